#!/usr/bin/env python3
"""fletch chat, through a pipe and on a terminal, with the built-in model: test/talk_test.py BUILD.
Python's standard library only. Each function test_* is one test; its name says what it pins."""

import atexit
import fcntl
import json
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import tempfile
import termios
import time

from suite import FLETCH, run_tests

TMP = tempfile.mkdtemp(prefix="fletch-talk-")
atexit.register(shutil.rmtree, TMP)


def chat(*lines, args=(), code=0):
    """What the program says to these lines: (stdout, stderr)."""
    p = subprocess.run(
        [FLETCH, "chat", "--temp", "0", *args],
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert p.returncode == code, p
    return p.stdout, p.stderr


def saved(name):
    with open(os.path.join(TMP, name)) as f:
        return json.load(f)["messages"]


class Terminal:
    """A person at a terminal."""

    def __init__(self, *args, term="xterm", columns=0, program=None, **env):
        self.said = ""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ.update({"HOME": TMP, "TERM": term, "LC_ALL": "C.UTF-8", "XDG_STATE_HOME": "", **env})
            if columns:
                fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
            program = program or [FLETCH, "chat", "--temp", "0", *args]
            os.execvp(program[0], program)

    def resize(self, columns):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def type(self, text):
        os.write(self.fd, text.encode())

    def wait_for(self, text, seconds=60):
        """Reads until `text` was said since the last call; returns what was."""
        end = time.time() + seconds
        while text not in self.said:
            assert time.time() < end, f"{text!r} never came: {self.said!r}"
            if select.select([self.fd], [], [], 1)[0]:
                self.said += os.read(self.fd, 4096).decode("utf-8", "replace")
        at = self.said.index(text) + len(text)
        said, self.said = self.said[:at], self.said[at:]
        return said

    def say(self, text):
        """Types a line when the program waits for one."""
        self.wait_for("> ")
        self.type(text)

    def leave(self, word="/bye\n"):
        """The exit code."""
        self.say(word)
        try:
            while select.select([self.fd], [], [], 60)[0] and os.read(self.fd, 4096):
                pass
            os.kill(self.pid, signal.SIGKILL)
        except OSError:  # how Linux ends a terminal that nobody holds
            pass
        os.close(self.fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


# ---- through a pipe ----


def test_each_line_is_a_message_and_gets_an_answer():
    out, err = chat("Hello!", "What is 2+3?")
    assert out == "Hello! How can I help you?\n2+3=5\n", out
    assert err == "", err


def test_the_model_sees_what_was_said_before():
    out, _ = chat("My name is Mira.", "What is my name?")
    assert "Mira" in out.splitlines()[-1], out


def test_several_lines_are_one_message():
    chat('"""', "one", "two", '"""', "three \\", "four", f"/save {TMP}/lines.json")
    said = [m["content"] for m in saved("lines.json") if m["role"] == "user"]
    assert said == ["one\ntwo", "three \nfour"], said
    chat('"""Hello,', "", '  world!"""', '"""one line"""', '"""', "a", "", '"""', f"/save {TMP}/fences.json")
    said = [m["content"] for m in saved("fences.json") if m["role"] == "user"]
    assert said == ["Hello,\n\n  world!", "one line", "a\n"], said


def test_undo_regen_and_edit_change_the_conversation():
    chat("Hello!", "/regen", "What is 1+1?", "/undo", "/edit What is 2+2?", f"/save {TMP}/a.json")
    messages = saved("a.json")
    assert [m["role"] for m in messages] == ["user", "assistant"], messages
    assert messages[0]["content"] == "What is 2+2?" and "4" in messages[1]["content"], messages


def test_a_saved_conversation_goes_on():
    chat("My name is Mira.", f"/save {TMP}/b.json")
    out, err = chat(f"/load {TMP}/b.json", "What is my name?")
    assert "Mira" in out and "loaded 2 messages" in err, (out, err)


def test_a_loaded_text_with_nul_stays_whole():
    with open(f"{TMP}/nul.json", "w") as f:
        json.dump({"messages": [{"role": "user", "content": "zero\0one"}]}, f)
    chat(f"/load {TMP}/nul.json", "/edit", f"/save {TMP}/nul2.json")
    assert saved("nul2.json") == [{"role": "user", "content": "zero\0one"}]


def test_what_is_no_conversation_is_refused_and_the_chat_goes_on():
    for name, text in [("bad", "{"), ("list", '[{"role": 1}]'), ("other", '{"x": []}')]:
        with open(f"{TMP}/{name}.json", "w") as f:
            f.write(text)
        out, err = chat(f"/load {TMP}/{name}.json", "What is 2+3?")
        assert err.startswith("fletch: ") and err.count("\n") == 1 and out == "2+3=5\n", (out, err)
    _, err = chat("/load /nowhere/x.json", "/read /nowhere/y", "/save /nowhere/z")
    assert err.count("\n") == 3 and err.count("fletch: ") == 3 and "line" not in err, err


def test_a_file_goes_with_the_next_message():
    with open(f"{TMP}/notes.txt", "w") as f:
        f.write("Notes:\nThe red box holds tea. The old lamp holds sand.")
    chat(f"/read {TMP}/notes.txt", "What does the red box hold?", f"/save {TMP}/c.json")
    said = saved("c.json")[0]["content"]
    assert said.startswith("Notes:") and said.endswith("\n\nWhat does the red box hold?"), said


def test_settings_are_checked():
    _, err = chat("/set temp hot", "/set temp 0.5", "/set nothing 1", "/set", "/think maybe", "/sytem")
    assert "temp takes a number from 0 to 100, not 'hot'" in err, err
    assert "unknown setting 'nothing 1'" in err, err
    assert "temp               0.5" in err, err
    assert "/think takes on or off" in err and "did you mean /system?" in err, err


def test_a_full_context_leaves_out_the_oldest_and_says_so():
    lines = [f"What is {i}+{i}?" for i in range(1, 13)]
    out, err = chat(*lines, f"/save {TMP}/d.json", args=["-c", "220", "-n", "20"])
    assert "nearly full" in err and "are no longer sent to the model" in err, err
    assert out.splitlines()[-1] == "12+12=24", out
    assert len(saved("d.json")) == 24


def test_a_message_that_never_fits_is_an_error_and_the_chat_goes_on():
    out, err = chat("word " * 300, "What is 2+3?", args=["-c", "160", "-n", "20"])
    assert "the context holds 160" in err and out.endswith("2+3=5\n"), (out, err)


def test_thinking_is_the_templates_business():
    out, err = chat("/think on", "What is 17+25?")
    assert "42" in out and "thinking is on" in err, (out, err)
    begins, thought, answer = out.partition("<think>\n")[0], *out.partition("<think>\n")[2].split("\n</think>\n\n")
    assert not begins and thought and "42" in answer and "think" not in answer, out
    _, err = chat(args=["--think", "--no-think"], code=2)
    assert "cannot be combined" in err, err


def test_thinking_without_a_variable_for_it_is_refused():
    path = os.path.join(TMP, "template")
    with open(path, "w") as f:
        f.write("{{ messages[-1].content }}")
    for option in "--think", "--no-think":
        _, err = chat("hello", args=["--template", path, option], code=2)
        assert option in err and "no variable 'enable_thinking'" in err, err
    _, err = chat("/think on", args=["--template", path])
    assert "thinking cannot be turned on or off" in err, err
    with open(path, "w") as f:  # the model's own, by another name for it
        f.write("{{ messages[-1].content }}{{ 'X' * 4000 if thinking }}")
    _, err = chat("/tokens", "/think on", "hello", args=["--template", path, "-c", "256", "-n", "1"])
    assert "the context holds 256" in err, err


def test_a_model_without_a_template_is_refused_before_its_weights_are_loaded():
    path = "test/golden/models/llama-gguf/model.gguf"
    for limit in [], ["--max-memory", "1K"]:  # loading would not fit
        _, err = chat(args=[path, *limit], code=1)
        assert "no chat template" in err and "--template" in err and "fletch run" in err, err


def test_the_system_message_is_shown_and_removed():
    _, err = chat("/system", "/system Be brief.", "/system", '/system ""', "/system")
    assert err.count("no system message") == 2 and "\nBe brief.\n" in err and "removed" in err, err


def test_save_says_what_it_wrote_and_replaces_only_its_own_files():
    path = f"{TMP}/kept.json"
    with open(path, "w") as f:
        f.write("mine")
    _, err = chat("Hello!", f"/save {path}")
    assert "exists; /save! FILE" in err and open(path).read() == "mine", err
    _, err = chat("Hello!", f"/save {path}2", "Hello!", f"/save {path}2", f"/save! {path}")
    assert f"saved 2 messages to '{path}2' (" in err and "saved 4 messages" in err, err
    assert err.count("replaced") == 2 and len(saved("kept.json")) == 4, err


def test_the_model_is_shown_and_changed():
    out, err = chat("My name is Mira.", "/model", "/model zoo/qwen3.gguf", "/model", f"/save {TMP}/m.json",
                    "/model zoo/nothing.gguf", "/model test/golden/models/llama-gguf/model.gguf", "Hello!",
                    args=["zoo/guide.gguf", "-n", "20"])
    assert "'zoo/guide.gguf' (llama)" in err and "'zoo/qwen3.gguf' (qwen3)" in err, err
    assert len(saved("m.json")) == 2 and "no chat template" in err and "nothing.gguf" in err, err
    assert out.count("\n") == 2, out  # it goes on with the last model that worked


def test_words_of_other_chats():
    _, err = chat("/set parameter temperature 0.25", "/set top_k 7", "/set num_predict 5", "/set system Be brief.",
                  "/show system", "/show parameters", "/show", "/?")
    assert re.search(r"temp +0.25\n", err) and re.search(r"top-k +7\n", err), err
    assert re.search(r"max-tokens +5\n", err) and "\nBe brief.\n" in err, err
    assert "(llama), " in err and "list these commands" in err and "unknown" not in err, err


def test_words_that_leave():
    for word in "/bye", "/exit", "/quit":
        assert chat(word, "Hello!") == ("", "")


# ---- on a terminal ----


def test_a_terminal_gets_prompt_answer_and_statistics():
    t = Terminal()
    t.wait_for("/help lists commands")
    t.say("What is 2+3?\n")
    t.wait_for("2+3=5")
    t.wait_for("; context ")
    t.say("What is 2+4?\n")
    assert "cached)" in t.wait_for("; context "), "the second prompt reuses the first"
    assert t.leave() == 0


def test_pasted_text_is_one_message():
    t = Terminal()
    t.say("\x1b[200~Traceback:\r  line 2\rValueError\r\x1b[201~")
    t.wait_for("ValueError")
    t.type("\r")
    t.wait_for("; context ")
    t.say(f"/save {TMP}/pasted.json\n")
    t.wait_for("saved 2")
    assert saved("pasted.json")[0]["content"] == "Traceback:\n  line 2\nValueError"
    t.say("/edit\n")  # comes back as it was, to be changed
    t.wait_for("ValueError")
    t.type("!\n")
    t.wait_for("; context ")
    t.say(f"/save {TMP}/pasted.json\n")
    t.wait_for("saved 2")
    assert saved("pasted.json")[0]["content"] == "Traceback:\n  line 2\nValueError!"
    assert t.leave() == 0


def test_utf8_needs_no_locale():
    t = Terminal(LC_ALL="", LC_CTYPE="", LANG="")
    t.say("Gr\u00fc\u00dfe \u4f60\u597d \U0001f642\n")
    assert "\u4f60\u597d \U0001f642" in t.wait_for("; context ")
    t.say(f"/save {TMP}/utf8.json\n")
    t.wait_for("saved 2")
    assert saved("utf8.json")[0]["content"] == "Gr\u00fc\u00dfe \u4f60\u597d \U0001f642"
    assert t.leave() == 0


def test_what_is_typed_during_an_answer_comes_at_the_next_prompt():
    t = Terminal("--logit-bias", f"{token_of('Once')}=1000", "-c", "100000")  # never ends by itself
    t.say("Tell me a story.\n")
    t.wait_for("Once")
    t.type("/tokens")
    for _ in range(20):  # tokens that came after the letters did
        t.wait_for("Once")
    os.kill(t.pid, signal.SIGINT)
    said = t.wait_for("; stopped")
    assert "tokens\r" not in said and "/tok" not in said and "^C" not in said, said
    t.say("\n")
    assert "/tokens" in t.wait_for("tokens of context")
    assert t.leave() == 0


def test_answers_wrap_at_words():
    question = "How do I make a model smaller?"
    text = chat(question)[0].strip()
    t = Terminal(columns=40)
    t.say(question + "\n")
    t.wait_for("\r\n")
    shown = re.sub("\x1b\\[[0-9;]*[a-zA-Z]", "", t.wait_for("prefill "))[: -len("prefill ")]
    lines = shown.strip("\r\n").split("\r\n")
    assert len(lines) > 2 and max(map(len, lines)) <= 40 and " ".join(lines) == text, lines
    assert t.leave() == 0


def test_typing_resets_the_second_control_c():
    t = Terminal()
    t.say("\x03")
    t.wait_for("Ctrl-C again")
    t.say("x")
    t.wait_for("x")
    t.type("\x03")  # ends that line
    t.say("\x03")
    t.wait_for("Ctrl-C again")
    assert t.leave("\x03") == 0


def test_leaving_ends_the_line():
    for word in "\x04", "/exit\n":
        t = Terminal()
        t.wait_for("> ")
        t.type(word)
        t.wait_for("\r\n")
        t.said = "> "
        assert t.leave("") == 0


def test_a_resized_terminal_gets_the_line_again():
    t = Terminal(columns=80)
    t.say("/tok")
    t.wait_for("tok")
    t.resize(50)
    assert "\x1b[J" in t.wait_for("/tok")
    t.type("ens\n")
    t.wait_for("tokens of context")
    assert t.leave() == 0


def test_a_stopped_chat_comes_back_with_its_line():
    t = Terminal(program=["bash", "--norc", "-i"], PS1="shell% ")
    t.wait_for("shell% ")
    t.type(f"{FLETCH} chat\n")
    t.wait_for("Ctrl-D exits")
    t.say("/tok")
    t.wait_for("tok")
    t.type("\x1a")
    t.wait_for("Stopped")
    t.wait_for("shell% ")
    t.type("fg\n")
    t.wait_for("> /tok")
    t.type("ens\n")
    t.wait_for("tokens of context")
    t.say("/bye\n")
    t.wait_for("shell% ")
    t.said = "> "
    assert t.leave("exit 0\n") == 0


def test_run_without_a_prompt_is_a_conversation():
    t = Terminal(program=[FLETCH, "run", "zoo/guide.gguf", "--temp", "0"])
    t.wait_for("Ctrl-D exits")
    t.say("What is 2+3?\n")
    t.wait_for("2+3=5")
    assert t.leave("\x04") == 0
    t = Terminal(program=[FLETCH, "run", "zoo/guide.gguf", "--json"])
    t.wait_for("missing prompt")
    t.said = "> "
    assert t.leave("") == 2


def test_a_dumb_terminal_gets_no_escape_sequences():
    t = Terminal(term="dumb")
    t.say("27+48=\n")
    said = t.wait_for("75") + t.wait_for("> ")
    t.said = "> "
    assert t.leave() == 0 and "\x1b" not in said, said


def test_no_color_leaves_text_unstyled():
    t = Terminal(NO_COLOR="1")
    t.say("What is 2+3?\n")
    said = t.wait_for("; context ") + t.wait_for("> ")
    t.said = "> "
    assert t.leave() == 0 and not re.search("\x1b\\[[0-9;]*m", said), said


def test_tab_completes_commands():
    t = Terminal()
    t.say("/tok\t\n")
    t.wait_for("0 of 4096 tokens of context")
    assert t.leave() == 0


def test_control_c_stops_the_answer_and_keeps_the_conversation():
    t = Terminal("--logit-bias", f"{token_of('Once')}=1000", "-c", "100000")  # never ends by itself
    for _ in range(2):
        t.say("Tell me a story.\n")
        t.wait_for("Once")
        os.kill(t.pid, signal.SIGINT)
        t.wait_for("; stopped")
    t.say(f"/save {TMP}/e.json\n")
    t.wait_for("saved 4 messages")
    assert saved("e.json")[3]["content"].startswith("Once")
    assert t.leave() == 0


def test_control_c_while_the_prompt_is_read_tells_what_was_read():
    path = os.path.join(TMP, "long.txt")
    with open(path, "w") as f:
        f.write("word " * 50000)
    t = Terminal("-c", "100000")
    t.say(f"/read {path}\n")
    t.say("What is that?\n")
    t.wait_for("prefill")
    os.kill(t.pid, signal.SIGINT)
    t.wait_for("\x1b[2mprefill ")
    n, whole = t.wait_for(" tokens")[: -len(" tokens")].split(" of ")
    said = t.wait_for("; stopped")
    in_context = int(said.split("context ")[1].split(" of")[0])
    assert 0 < int(n) == in_context < 50000 < int(whole), (n, whole, said)
    assert t.leave() == 0


def test_control_d_leaves_as_soon_as_there_is_a_prompt():
    for _ in range(10):
        assert Terminal("zoo/tiny/qwen3.gguf").leave("\x04") == 0


def test_a_model_cannot_command_the_terminal():
    t = Terminal("-n", "4", "--logit-bias", f"{token_of(chr(27))}=1000")
    t.say("x\n")
    said = t.wait_for("; context ")
    assert "\\x1b\\x1b\\x1b\\x1b" in said, said
    assert t.leave() == 0


def token_of(text):
    p = subprocess.run([FLETCH, "tokenize", "zoo/guide.gguf", "--json", text], capture_output=True, check=True)
    return json.loads(p.stdout)[-1]["id"]


run_tests(globals())
