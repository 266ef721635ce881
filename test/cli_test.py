#!/usr/bin/env python3
"""End-to-end tests of the fletch command: test/cli_test.py BUILD. Python's standard library only.

Each function test_* is one test; its name says what it pins. Models: the golden ones, which have no
vocabulary, and a tiny random llama made here around a vocabulary of test/golden/tok."""

import array
import atexit
import base64
import fcntl
import json
import math
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import tempfile
import termios
import time

from model_dir import make_llama
from suite import FLETCH, Skip, fletch, run_tests

GOLDEN = "test/golden/models"
TOK = "test/golden/tok/llama-bpe"
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n"
    "{{ m.content }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
COMMANDS = (
    "run chat serve batch eval inspect explain plan tokenize detokenize template verify convert "
    "synth bench tune doctor pull list rm ps".split()
)


def one_line(r, *parts):
    """stdout is empty and stderr is one line that holds all parts."""
    assert r.out == b"", r.out
    assert r.err.count("\n") == 1 and r.err.endswith("\n"), r.err
    for part in parts:
        assert part in r.err, f"{part!r} is not in: {r.err}"


def make_model(folder):
    """A random llama with vocabulary and template."""
    tok = json.load(open(f"{TOK}/tokenizer.json", encoding="utf-8"))
    ids = list(tok["model"]["vocab"].values()) + [t["id"] for t in tok["added_tokens"]]
    make_llama(folder, max(ids) + 1)
    shutil.copy(f"{TOK}/tokenizer.json", folder)
    config = json.load(open(f"{TOK}/tokenizer_config.json", encoding="utf-8"))
    config["chat_template"] = TEMPLATE
    json.dump(config, open(f"{folder}/tokenizer_config.json", "w"))
    return folder


TMP = tempfile.mkdtemp(prefix="fletch-cli-")
atexit.register(shutil.rmtree, TMP)
MODEL = make_model(f"{TMP}/model")
LLAMA = f"{GOLDEN}/llama"  # no vocabulary


def tmp(name):
    return os.path.join(TMP, name)


def run(*args, model=MODEL, **kw):
    return fletch("run", model, "-q", "--temp", "0", "-n", "12", *args, **kw)


# ---- help and the command line ----


def test_version_names_compiler_and_backends():
    r = fletch("--version")
    assert r.text.startswith("fletch ") and "; backends " in r.text and "ref" in r.text, r.text
    built = "this build has no CUDA kernels" not in fletch("doctor").text
    assert ("cuda, " in r.text) == built, r.text


def test_no_command_prints_the_overview_on_stderr_and_exits_2():
    r = fletch(code=2)
    assert r.out == b"" and all(c in r.err for c in COMMANDS)


def test_help_of_every_command_is_the_same_two_ways():
    overview = fletch("help").text
    for c in COMMANDS:
        r = fletch("help", c)
        assert f"  {c} " in overview
        assert r.text.startswith(f"usage: fletch {c}") and "--help" in r.text
        assert r.text == fletch(c, "--help").text == fletch(c, "-h").text
        assert max(map(len, r.text.split("\n"))) <= 80, c


def test_man_page_is_up_to_date():
    page = fletch("man").text
    assert page == open("docs/fletch.1").read(), f"make it again: {FLETCH} man > docs/fletch.1"


def test_man_page_has_every_command_and_option():
    page = fletch("man").text.replace("\\-", "-")
    for c in COMMANDS:
        assert f"fletch {c}" in page
        options = re.findall(r"^  (?:-.,|   ) (--[a-z-]+)", fletch("help", c).text, re.M)
        assert "--help" in options
        for option in options:
            assert f"\\fB{option}\\fR" in page, (c, option)


def test_man_page_has_files_and_see_also():
    page = fletch("man").text
    for part in ".SH FILES", ".SH SEE ALSO", ".SH ENVIRONMENT", "chat_history", "share/fletch/models":
        assert part in page, part


COMPLETE = """
source "$SCRIPT"
COMP_LINE=$1 COMP_POINT=${#1}
IFS=$' \t\n:=' read -r -a COMP_WORDS <<< "$1"
COMP_WORDS[0]=$FLETCH
_fletch
printf '%s\n' "${COMPREPLY[@]}"
"""


def test_bash_completes_commands_options_values_and_models(folder):
    script = f"{folder}/script"
    with open(script, "wb") as f:
        f.write(fletch("completion", "bash").out)
    store = f"{folder}/data/fletch/models/own/mod"
    os.makedirs(store)
    for name in "m-q4.gguf", "m-q8.gguf":
        shutil.copy("zoo/tiny/llama.gguf", f"{store}/{name}")
    env = dict(os.environ, SCRIPT=script, FLETCH=os.path.abspath(FLETCH), XDG_DATA_HOME=f"{folder}/data")

    def complete(line):
        p = subprocess.run(["bash", "--norc", "-c", COMPLETE, "-", line], env=env, cwd=folder, text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)
        assert not p.stderr, p.stderr
        return set(p.stdout.split())

    assert complete("fletch pl") == {"plan"} and set(COMMANDS) < complete("fletch ")
    assert complete("fletch run --back") == {"--backend"}
    assert complete("fletch run --backend c") == {"cuda", "cpu"}
    assert complete("fletch chat -m own/mod:m-q") == {"m-q4.gguf", "m-q8.gguf"}
    assert complete("fletch run own") == {"own/mod:m-q4.gguf", "own/mod:m-q8.gguf"}
    assert complete("fletch eval own/mod -f scr") == {"script"} == complete("fletch batch scr")
    assert complete("fletch run -n ") == set() and complete("fletch help tok") == {"tokenize"}
    assert complete("fletch synth SmolLM2-135") == {"SmolLM2-135M"}


def test_fish_completes_commands_options_and_values(folder):
    if not shutil.which("fish"):
        raise Skip("fish is not installed")
    with open(f"{folder}/script", "wb") as f:
        f.write(fletch("completion", "fish").out)

    def complete(line):
        p = subprocess.run(["fish", "-c", f"source {folder}/script; complete -C '{line}'"], text=True,
                           capture_output=True, timeout=60, env=dict(os.environ, HOME=folder))
        assert not p.stderr, p.stderr
        return {one.split("\t")[0] for one in p.stdout.splitlines()}

    assert complete("fletch pl") == {"plan"} and complete("fletch help tok") == {"tokenize"}
    assert complete("fletch run --backend c") == {"cuda", "cpu"}


def test_zsh_reads_its_completions(folder):
    if not shutil.which("zsh"):
        raise Skip("zsh is not installed")
    with open(f"{folder}/_fletch", "wb") as f:
        f.write(fletch("completion", "zsh").out)
    p = subprocess.run(["zsh", "-n", f"{folder}/_fletch"], text=True, capture_output=True, timeout=60)
    assert p.returncode == 0 and not p.stderr, p.stderr


def test_completions_know_every_option():
    scripts = {shell: fletch("completion", shell).text for shell in ("bash", "zsh", "fish")}
    for c in COMMANDS:
        for option in re.findall(r"^  (?:-.,|   ) --([a-z-]+)", fletch("help", c).text, re.M):
            for shell, script in scripts.items():
                assert option in script, (shell, c, option)
    assert "usage: fletch completion bash|zsh|fish" in fletch("completion", code=2).err
    assert "unknown shell" in fletch("completion", "csh", code=2).err


def on_terminal(columns, *args, **kw):
    """What a command prints to a terminal of so many columns."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    p = subprocess.Popen([FLETCH, *args], stdin=slave, stdout=slave, stderr=slave, **kw)
    os.close(slave)
    said = b""
    try:
        while data := os.read(master, 4096):
            said += data
    except OSError:  # how Linux ends a terminal that nobody holds
        pass
    os.close(master)
    assert p.wait(60) == 0, said
    return said.decode().replace("\r\n", "\n")


def test_help_fills_the_width_of_the_terminal():
    for columns, most in (20, 60), (60, 60), (97, 97), (200, 200), (500, 200), (0, 80):
        longest = max(map(len, on_terminal(columns, "help", "run").split("\n")))
        assert most - 20 < longest <= most, (columns, longest)
        longest = max(map(len, on_terminal(columns, "help").split("\n")))
        assert longest <= most, (columns, longest)


def test_the_overview_groups_commands_and_shows_two_examples():
    text = fletch("help").text
    parts = text.split("\n\n")
    titles = [p.split(":")[0] for p in parts if p.split("\n")[0].endswith(":")]
    assert titles[0] == "Run a model" and titles[-1] == "Examples" and len(titles) >= 5, titles
    assert sum(line.startswith("  fletch ") for line in text.split("\n")) == 2, text


def test_words_of_other_programs_work_or_get_a_suggestion():
    assert fletch("-v").text == fletch("--version").text == fletch("version").text
    assert fletch("show", MODEL).text == fletch("inspect", MODEL).text
    for word, ours in ("quantize", "convert"), ("download", "pull"), ("models", "list"):
        one_line(fletch(word, code=2), f"unknown command '{word}' (did you mean {ours}?)")
    one_line(fletch("run", "--temperature", "1", code=2), "did you mean --temp?")
    one_line(fletch("run", "--ctx-size", "1", code=2), "did you mean --context?")
    one_line(fletch("run", "-hf", "own/mod", code=2), "unknown option '-hf' (did you mean --model?)")
    one_line(fletch("run", "-ngl", "99", code=2), "did you mean --backend?")
    one_line(fletch("load", code=2), "did you mean run?")
    want = run("-p", "Hello").out
    args = ["-q", "--temp", "0", "-p", "Hello", "--kv-type", "F16"]
    assert fletch("run", "-m", MODEL, *args, "-n", "12").out == want
    assert fletch("run", f"--model={MODEL}", *args, "-n", "12", "-c", "0").out == want
    r = fletch("run", MODEL, *args, "-n", "-1", "-c", "30", "--json", "--ignore-end").json
    assert r["finish"] == "context", r


def test_types_in_capitals_are_types(folder):
    fletch("convert", MODEL, "-o", f"{folder}/m.gguf", "--type", "Q8_0", "-q")
    assert fletch("run", f"{folder}/m.gguf", "-p", "a", "-n", "1", "--backend", "CPU", "-q").out


def test_unknown_command_suggests_the_nearest():
    one_line(fletch("tokenise", code=2), "'tokenise'", "did you mean tokenize?")
    one_line(fletch("xyzzy", code=2), "unknown command 'xyzzy'", "fletch help")


def test_unknown_options_are_refused():
    one_line(fletch("run", "--tmep", "1", code=2), "'--tmep'", "--temp?", "fletch help run")
    one_line(fletch("run", "-Z", code=2), "'-Z'")
    one_line(fletch("run", "--js\x1b[31m", code=2), "\\x1b")


def test_malformed_values_are_refused():
    for args in [
        ["-n", "abc"],
        ["-n", "12x"],
        ["-n", "-3"],
        ["-n", "0"],
        ["-n", ""],
        ["-n", "99999999999"],
        ["--temp", "nan"],
        ["--temp", "0x1p3"],
        ["--temp", "1.5.2"],
        ["--temp", "-1"],
        ["--top-p", "1.5"],
        ["--seed", "18446744073709551616"],
        ["--max-memory", "4Q"],
        ["--max-memory", "G"],
        ["--max-memory", "99999999T"],
        ["--kv-type", "f8"],
        ["--backend", "gpu"],
        ["--logit-bias", "5"],
        ["--logit-bias", "x=1"],
        ["--stop", ""],
        ["--json=1"],
    ]:
        one_line(fletch("run", MODEL, "-p", "a", *args, code=2), "fletch help run")


def test_options_that_mean_nothing_alone_are_refused():
    for args in [["--cache-disk", "1M"], ["--spec", "off", "--spec-tokens", "4"],
                 ["--spec", "off", "--spec-accept", "rejection"]]:
        one_line(fletch("run", MODEL, "-q", "-p", "a", *args, code=2), args[0], "require")
    one_line(fletch("run", MODEL, "--backend", "cpu", "--capture", tmp("x"), "-p", "a", code=2), "does not support captures")


def test_missing_values_and_operands_are_refused():
    one_line(fletch("run", MODEL, "-p", code=2), "-p needs a value: -p TEXT")
    one_line(fletch("run", MODEL, "--temp", code=2), "--temp needs a value: --temp T")
    one_line(fletch("eval", code=2), "missing argument MODEL; usage: fletch eval MODEL")
    one_line(fletch("batch", code=2), "missing argument FILE; usage: fletch batch [MODEL] FILE")
    one_line(fletch("batch", "-m", MODEL, code=2), "missing argument FILE")
    one_line(fletch("plan", "-m", MODEL, MODEL, code=2), "unexpected argument")
    one_line(fletch("plan", MODEL, "more", code=2), "'more'")
    one_line(fletch("convert", MODEL, "--type", "f32", code=2), "-o")
    one_line(fletch("convert", MODEL, "-o", tmp("x.gguf"), code=2), "--type")


def test_sentences_that_people_meet_first():
    one_line(fletch("inspect", code=2), "fletch inspect: missing argument FILE; usage: fletch inspect FILE")
    one_line(fletch("convert", MODEL, "--type", "f32", code=2), "no output file; add -o OUT.gguf")
    one_line(fletch("synth", "SmolLM2-135M", code=2), "no output file; add -o OUT.gguf")
    one_line(fletch("inspect", MODEL, "extra", code=2), "unexpected argument 'extra'")
    last = 'Run "fletch help COMMAND" for details and "fletch --version" for the version.\n'
    assert fletch("help").text.endswith(last)
    for about_completion in (fletch("help").text, fletch("help", "completion").text):
        assert "fletch completion bash" in about_completion
    manual = fletch("man").text
    for sentence in ("0 picks a free port and prints it", "maximum requests per minute per key (default: unlimited)",
                     "treat the names of control tokens in the prompt as control tokens instead of text",
                     "Interrupted downloads resume.",
                     "The server listens on localhost only; other addresses require API keys"):
        assert sentence in manual, sentence


def test_help_has_the_words_of_the_field():
    for command in COMMANDS:
        text = " ".join(fletch("help", command).text.split())
        found = re.findall(r"\b(guess\w*|behind|whoever|so many|lays?|wants?|is said|are told|goes on)\b", text)
        assert not found, (command, found)


def test_values_attach_and_dashes_end_options():
    want = run("-p", "abc").out
    assert run("--prompt=abc").out == want
    assert run("-pabc").out == want
    assert (
        fletch("tokenize", MODEL, "--ids", "--", "--ids").out
        == fletch("tokenize", MODEL, "--ids", stdin=b"--ids").out
    )


def write_vocabulary(path):
    """A GGUF file of metadata alone, as other engines publish vocabularies; no such model exists."""

    def string(s):
        return struct.pack("<Q", len(s.encode())) + s.encode()

    def strings(values):
        return struct.pack("<IIQ", 9, 8, len(values)) + b"".join(string(v) for v in values)

    def text(s):
        return struct.pack("<I", 8) + string(s)

    letters = [chr(c) for c in range(0x21, 0x7F)] + ["\u0120", "\u010a", "ab", "<s>", "<|end|>"]
    types = [3 if t in ("<s>", "<|end|>") else 1 for t in letters]
    bos = letters.index("<s>")
    values = {
        "general.architecture": text("nosuchmodel"),
        "tokenizer.ggml.model": text("gpt2"),
        "tokenizer.ggml.pre": text("qwen2"),
        "tokenizer.ggml.tokens": strings(letters),
        "tokenizer.ggml.token_type": struct.pack("<IIQ", 9, 5, len(types))
        + struct.pack(f"<{len(types)}i", *types),
        "tokenizer.ggml.merges": strings(["a b"]),
        "tokenizer.ggml.bos_token_id": struct.pack("<II", 4, bos),
        "tokenizer.ggml.add_bos_token": struct.pack("<IB", 7, 1),
        "tokenizer.chat_template": text("{{ bos_token }}{{ messages[0].content }}<|end|>"),
    }
    with open(path, "wb") as f:
        f.write(b"GGUF" + struct.pack("<IQQ", 3, 0, len(values)))
        f.write(b"".join(string(k) + v for k, v in values.items()))
    return letters, bos


def test_a_vocabulary_without_a_model_is_enough_for_text():
    path = f"{TMP}/vocab.gguf"
    letters, bos = write_vocabulary(path)
    ids = [bos, letters.index("ab"), letters.index("c")]
    assert fletch("tokenize", path, "--ids", "abc").text.split() == [str(i) for i in ids]
    assert fletch("detokenize", path, " ".join(map(str, ids))).text.strip() == "abc"
    r = fletch("template", path, stdin=b'[{"role": "user", "content": "abc"}]')
    assert r.text.strip() == "<s>abc<|end|>", r.text
    assert "nosuchmodel" in fletch("run", path, "-p", "abc", code=4).err


# ---- run ----


def test_answer_is_alone_on_stdout():
    r = fletch("run", MODEL, "-p", "Hello", "-n", "4", "--temp", "0")
    assert r.err == "" or os.path.exists("/dev/nvidiactl"), r.err
    assert r.out.endswith(b"\n") and b"backend" not in r.out
    r = fletch("run", MODEL, "-p", "Hello", "-n", "4", "--temp", "0", "-v")
    assert r.err.startswith("backend ") and b"backend" not in r.out, r.err
    assert fletch("run", MODEL, "-p", "Hello", "-n", "4", "--temp", "0", "-q").err == ""


def test_prompt_comes_from_option_file_or_stdin():
    with open(tmp("prompt.txt"), "w") as f:
        f.write("Once upon a time\n")
    want = run("-p", "Once upon a time").out
    assert run("-i", "Once upon a time").out == want
    assert run("-f", tmp("prompt.txt")).out == want
    assert run(stdin=b"Once upon a time\n").out == want
    assert run("-f", "-", stdin=b"Once upon a time").out == want
    assert run("-p", "Another").out != want
    one_line(run("-p", "a", "-f", tmp("prompt.txt"), code=2), "--prompt or with --file")
    one_line(run("-f", tmp("nowhere"), code=1), "nowhere", "No such file")


def test_a_pipe_is_added_to_the_prompt():
    assert run("-p", "Once", stdin=b"upon a\ntime\n").out == run("-p", "Once\n\nupon a\ntime").out
    assert run("-p", "Once", stdin=b"\n").out == run("-p", "Once").out
    guide = ["run", "zoo/guide.gguf", "--temp", "0", "-q"]
    assert fletch(*guide, "What is the sum?", stdin=b"27+48=\n").text == "27+48=75\n"


def test_a_text_after_the_model_is_answered():
    want = fletch("run", "--chat", "-p", "What is 2+3?", "--temp", "0").out
    assert b"5" in want
    for model in ["zoo/guide.gguf"], ["-m", "zoo/guide.gguf"]:
        assert fletch("run", *model, "What is 2+3?", "--temp", "0", "-q").out == want
    one_line(fletch("run", "What is 2+3?", code=1), "no model 'What is 2+3?'", "-p TEXT")
    one_line(fletch("run", MODEL, "a", "-p", "b", code=2), "unexpected argument 'a'")


def test_same_seed_gives_the_same_text():
    args = ["run", MODEL, "-q", "-p", "Hello", "-n", "12", "--temp", "1.5"]
    a = fletch(*args, "--seed", 5).out
    assert a == fletch(*args, "--seed", 5).out
    assert a != fletch(*args, "--seed", 6).out
    assert fletch(*args).out != fletch(*args).out  # random seeds: 12 draws from 645 tokens


def test_sampling_flags_change_the_choice():
    best = run("-p", "Hello", "-n", "1", "--json").json["tokens"][0]
    args = ["run", MODEL, "-q", "-p", "Hello", "-n", "1", "--json", "--seed", "3", "--temp", "50"]
    assert fletch(*args).json["tokens"][0] != best
    assert fletch(*args, "--top-k", "1").json["tokens"][0] == best
    assert fletch(*args, "--min-p", "1").json["tokens"][0] == best
    biased = run("-p", "Hello", "-n", "1", "--json", "--logit-bias", "17=1000").json
    assert biased["tokens"] == [17]
    without = run("-p", "Hello", "-n", "1", "--json", "--logit-bias", f"{best}=-1000").json
    assert without["tokens"][0] != best


def test_penalties_break_a_loop():
    plain = run("-p", "Hello", "-n", "64", "--json").json["tokens"]
    for flag in ["--repeat-penalty", "--presence-penalty", "--frequency-penalty"]:
        r = run("-p", "Hello", "-n", "64", "--json", flag, "20").json
        assert len(set(r["tokens"])) > len(set(plain)), flag


def test_stop_texts_end_the_answer_and_are_left_out():
    text = run("-p", "Hello", "--json").json["text"]
    stop = text[3:6]
    r = run("-p", "Hello", "--json", "--stop", "never there", "--stop", stop).json
    assert r["finish"] == "stop" and r["text"] == text[: text.index(stop)], (text, r)


def test_json_result_holds_text_tokens_finish_and_timings():
    r = run("-p", "Hello", "--json")
    j = r.json
    assert j["finish"] == "length" and len(j["tokens"]) == j["n_generated"] == 12
    assert j["timings"]["generate_seconds"] > 0 and j["n_prompt"] > 0
    assert run("-p", "Hello").text == j["text"] + "\n"
    ids = ",".join(map(str, j["tokens"]))
    whole = fletch("detokenize", MODEL, ids).out.decode("utf-8", "replace")
    assert whole == j["text"], (whole, j["text"])


def test_verbose_tells_the_seed():
    r = fletch("run", MODEL, "-v", "-p", "a", "-n", "1", "--seed", "42", "--ignore-end")
    assert "seed 42" in r.err and "decode 1 tokens" in r.err, r.err


def test_full_context_is_a_notice_and_exit_0():
    r = fletch("run", MODEL, "-p", "Hello", "-c", "16", "--temp", "0", "--ignore-end")
    assert "context of 16 tokens is full" in r.err
    j = run("-p", "Hello", "-c", "16", "-n", "99", "--json", "--ignore-end").json
    assert j["finish"] == "context" and j["n_prompt"] + j["n_generated"] == 16, j


def test_prompt_longer_than_the_context_names_both_numbers():
    n = len(fletch("tokenize", MODEL, "--ids", "word " * 50).text.split())
    one_line(run("-p", "word " * 50, "-c", "20", code=1), str(n), "20")


def test_empty_prompt_goes_on_from_bos():
    assert run("-p", "").out == run(stdin=b"").out


def test_chat_is_the_template_then_a_run():
    messages = [
        dict(role="system", content="Be brief."),
        dict(role="user", content="Hi <|eot_id|>"),
    ]
    ids = fletch("template", MODEL, "--ids", stdin=json.dumps(messages).encode()).text.split()
    r = run("--chat", "--system", "Be brief.", "-p", "Hi <|eot_id|>", "--json").json
    assert r["n_prompt"] == len(ids), (r["n_prompt"], ids)
    one_line(run("-p", "a", "--system", "b", code=2), "--chat")


def test_special_tokens_in_a_prompt_only_when_asked():
    plain = run("-p", "<|eot_id|>", "-n", "1", "--json").json["n_prompt"]
    asked = run("-p", "<|eot_id|>", "-n", "1", "--json", "--special").json["n_prompt"]
    assert (plain > 2) and (asked == 2), (plain, asked)


def test_interrupt_ends_the_answer_cleanly():
    p = subprocess.Popen(
        [FLETCH, "run", MODEL, "-q", "-p", "Hello", "-c", "50000", "--ignore-end"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
    )
    first = p.stdout.read(1)
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=60)
    assert p.returncode == 0 and err == b"", (p.returncode, err)
    assert (first + out).endswith(b"\n")
    (first + out).decode()  # no half character


def test_interrupt_while_the_prompt_is_read_tells_what_was_read():
    with open(tmp("long"), "w") as f:
        f.write("word " * 50000)
    master, slave = pty.openpty()
    p = subprocess.Popen(
        [FLETCH, "run", "--json", "-c", "100000", "-f", tmp("long")],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=slave,
        env={**os.environ, "NO_COLOR": "1", "TERM": "xterm"},
    )
    os.close(slave)
    said = b""
    while b"prefill" not in said:
        said += os.read(master, 4096)
    p.send_signal(signal.SIGINT)
    j = json.loads(p.stdout.read())
    while b"; decode" not in said:
        said += os.read(master, 4096)
    os.close(master)
    n, whole = map(int, re.search(r"prefill (\d+) of (\d+) tokens", said.decode()).groups())
    assert p.wait() == 0 and 0 < n < 50000 < whole, said
    assert (j["n_read"], j["n_prompt"]) == (n, whole), j
    rate = j["timings"]["prompt_tokens_per_second"]
    assert abs(rate * j["timings"]["prompt_seconds"] - n) <= 1, j


def test_reader_that_leaves_is_no_news():
    p = subprocess.Popen(
        [FLETCH, "run", MODEL, "-q", "-p", "Hello", "-c", "50000", "--ignore-end"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
    )
    p.stdout.read(1)
    p.stdout.close()
    err = p.stderr.read()
    assert p.wait(timeout=60) in (1, -signal.SIGPIPE) and err == b"", err


def test_full_disk_is_a_failure():
    if not os.path.exists("/dev/full"):
        raise Skip("there is no /dev/full")
    for args in [["run", MODEL, "-q", "-p", "a", "-c", "5000"], ["doctor"], ["help"]]:
        with open("/dev/full", "wb") as full:
            p = subprocess.run(
                [FLETCH, *args], stdout=full, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL
            )
        assert p.returncode == 1 and b"stdout: No space left" in p.stderr, (args, p)


def test_terminal_gets_a_statistics_line_dim_unless_no_color_is_set():
    for plain, term in ("", "xterm"), ("1", "xterm"), ("", "dumb"), ("", ""):
        master, slave = pty.openpty()
        p = subprocess.run(
            [FLETCH, "run", MODEL, "-p", "Hello", "-n", "2", "--ignore-end"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=slave,
            env={**os.environ, "NO_COLOR": plain, "TERM": term},
        )
        os.close(slave)
        said = b""
        try:
            while data := os.read(master, 4096):
                said += data
        except OSError:  # how Linux ends a terminal that nobody holds
            pass
        os.close(master)
        said = said.decode()
        assert p.returncode == 0 and "prefill" in said and "decode 2 tokens" in said, said
        assert ("\x1b[2mprefill" in said) == (not plain and term == "xterm"), said
        assert "\x1b" not in said or term == "xterm", said


def test_what_is_said_about_an_answer_comes_after_it_on_a_line_of_its_own():
    for args in ["-v"], ["-v", "--json"]:
        p = subprocess.run([FLETCH, "run", MODEL, "-p", "Hello", "-n", "2", "--ignore-end", *args],
                           stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        said = p.stdout.decode("utf-8", "replace")
        assert p.returncode == 0 and re.search(r"\nprefill .* decode 2 tokens, .*\n$", said), said


def test_terminal_as_stdin_is_not_waited_for():
    master, slave = pty.openpty()
    for args in [["run", MODEL], ["tokenize", MODEL], ["detokenize", MODEL], ["template", MODEL]]:
        p = subprocess.run([FLETCH, *args], stdin=slave, capture_output=True, timeout=60)
        assert p.returncode == 2 and b"missing " in p.stderr, (args, p)
    os.close(slave)
    os.close(master)


def test_without_a_model_the_built_in_one_runs():
    r = fletch("run", "-p", "Once upon a time", "-n", "8", "--temp", "0", "-q")
    assert len(r.out) > 1, r.out


def test_a_run_that_is_killed_while_it_speaks_leaves_its_session_as_it_was():
    path = tmp("talk.state")
    ask = ["run", "--chat", "--session", path, "--temp", "0", "-q", "-p"]
    fletch(*ask, "My name is Mira.")
    before = open(path, "rb").read()
    p = subprocess.Popen([FLETCH, *ask, "Tell me a story.", "--ignore-end"], stdin=subprocess.DEVNULL,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)
    assert p.stdout.read(4)
    p.kill()
    p.communicate()
    assert p.returncode == -signal.SIGKILL and open(path, "rb").read() == before
    assert [f for f in os.listdir(TMP) if f.startswith("talk.state")] == ["talk.state"]
    assert "Mira" in fletch(*ask, "What is my name?").text


def test_a_session_goes_on_with_the_text(folder):
    ask = ["run", "zoo/tiny/llama.gguf", "--backend", "ref", "--temp", "0", "-n", "6", "--json", "-q", "-p"]
    parts = ["Once upon a time", " and the dog"]
    first, second = [fletch(*ask, p, "--session", f"{folder}/s").json for p in parts]
    assert second["n_prompt"] < 6 and second["n_reused"] == 0, second
    whole = fletch(*ask, parts[0] + first["text"] + parts[1]).json
    assert second["text"] == whole["text"] != fletch(*ask, parts[1]).json["text"], (first, second)


def test_a_session_is_a_text_or_a_conversation(folder):
    for first, second in [[[], ["--chat"]], [["--chat"], []]]:
        ask = ["run", "-q", "-n", "4", "-p", "Hello", "--session", f"{folder}/{len(first)}"]
        fletch(*ask, *first)
        one_line(fletch(*ask, *second, code=1), "--chat")
        fletch(*ask, *first)


def test_a_session_takes_another_system_message_and_says_so(folder):
    ask = ["run", "--chat", "--temp", "0", "-n", "4", "--json", "--session", f"{folder}/s", "-p", "Hello", "--system"]
    fletch(*ask, "Be brief.")
    same, other = fletch(*ask, "Be brief."), fletch(*ask, "Be kind.")
    assert same.json["n_reused"] > 0 == other.json["n_reused"], (same, other)
    assert "system message" in other.err and "system message" not in same.err, (same.err, other.err)
    note = open(f"{folder}/s", "rb").read()
    assert note.count(b"Be kind.") == 1 and note.count(b"Be brief.") == 0


def test_a_session_is_kept_or_refused_before_the_answer(folder):
    ask = ["run", "-p", "Once upon a time", "-n", "4", "--session"]
    fletch(*ask, f"{folder}/s", "-q")
    with open(f"{folder}/notes", "w") as f:
        f.write("some notes\n")
    for args, part in [
        (["run", "zoo/qwen3.gguf", *ask[1:], f"{folder}/s"], "another model"),
        ([*ask, f"{folder}/notes"], "not a session file"),
        ([*ask, f"{folder}/none/s"], "cannot create"),
        ([*ask, folder], "not a regular file"),
    ]:
        before = {n: open(f"{folder}/{n}", "rb").read() for n in os.listdir(folder)}
        one_line(fletch(*args, "-q", code=1), part)
        assert before == {n: open(f"{folder}/{n}", "rb").read() for n in os.listdir(folder)}


def test_ctrl_c_while_a_model_is_written_leaves_nothing(folder):
    p = subprocess.Popen([FLETCH, "synth", "Llama-3.1-8B", "--type", "f32", "-o", f"{folder}/l.gguf"],
                         stderr=subprocess.PIPE, text=True)
    while not os.listdir(folder) and p.poll() is None:
        time.sleep(0.01)
    p.send_signal(signal.SIGINT)
    err = p.communicate()[1]
    assert p.returncode == 1 and err == "fletch: cancelled\n", (p.returncode, err)
    assert not os.listdir(folder)


# ---- models and memory ----


def test_same_tokens_through_directory_and_gguf():
    want = run("-p", "Once upon a time", "--json").json
    for kind in ["f32", "f16"]:
        out = tmp(f"{kind}.gguf")
        assert "wrote" in fletch("convert", MODEL, "-o", out, "--type", kind).err
        got = run("-p", "Once upon a time", "--json", model=out).json
        assert got["n_prompt"] == want["n_prompt"]
        if kind == "f32":  # the weights are not exact in f16
            assert got["tokens"] == want["tokens"]
    for name in ["llama", "qwen3", "rwkv7"]:
        a, b, c = tmp("a.f32"), tmp("b.f32"), tmp(f"{name}.gguf")
        fletch("convert", f"{GOLDEN}/{name}", "-o", c, "--type", "f16", "-q")
        ids = "1,2,3,50,51,52"
        fletch("eval", f"{GOLDEN}/{name}", "--tokens", ids, "--logits", a, "-q")
        fletch("eval", c, "--tokens", ids, "--logits", b, "-q")
        assert open(a, "rb").read() == open(b, "rb").read(), name


def test_too_little_memory_is_exit_3_with_the_plan():
    r = run("-p", "a", "--max-memory", "100K", code=3)
    assert r.out == b"" and "does not fit" in r.err and "weights" in r.err, r.err
    r = fletch("plan", MODEL, "--max-memory", "100K", code=3)
    assert "does not fit" in r.text


def test_bad_models_are_exit_4_in_one_line():
    with open(tmp("bad.gguf"), "wb") as f:
        f.write(b"GGUF" + b"\xff" * 60)
    with open(tmp("text.gguf"), "w") as f:
        f.write("hello, this is no model file at all\n" * 10)
    for bad in [tmp("bad.gguf"), tmp("text.gguf")]:
        one_line(run("-p", "a", model=bad, code=4), os.path.basename(bad))
        one_line(fletch("inspect", bad, code=4), os.path.basename(bad))
        one_line(fletch("plan", bad, code=4), os.path.basename(bad))
        one_line(fletch("convert", bad, "-o", tmp("x"), "--type", "f32", code=4))
    assert not os.path.exists(tmp("x"))


def test_missing_model_is_exit_1():
    for args in [["run", "-q", "-p", "a"], ["plan"], ["inspect"], ["tokenize"], ["verify"]]:
        one_line(fletch(args[0], tmp("nowhere"), *args[1:], code=1), "nowhere")


def test_a_name_that_no_model_has_says_where_models_are():
    for args in [["run", "qwen3", "-p", "a"], ["chat", "qwen3"], ["tokenize", "qwen3", "a"], ["eval", "qwen3", "--tokens", "1"]]:
        one_line(fletch(*args, "-q", code=1), "no model 'qwen3' on this machine", "fletch list", "fletch pull")
    one_line(run("-p", "a", model="qwen3.gguf", code=1), "No such file")


def test_missing_backend_is_said_not_replaced():
    one_line(run("-p", "a", "--backend", "metal", code=1), "metal")


def test_models_without_vocabulary_refuse_text():
    for args in [
        ["run", LLAMA, "-q", "-p", "a"],
        ["tokenize", LLAMA, "a"],
        ["detokenize", LLAMA, "1"],
        ["eval", LLAMA, "-q", "-f", tmp("model/config.json")],
        ["verify", LLAMA, "-p", "a"],
    ]:
        one_line(fletch(*args, code=1), "no vocabulary")
    one_line(fletch("template", LLAMA, stdin=b"[]", code=1))


# ---- eval ----


def logits_of(*args):
    fletch("eval", *args, "--logits", tmp("logits"), "-q")
    a = array.array("f")
    with open(tmp("logits"), "rb") as f:
        a.frombytes(f.read())
    return a


def test_eval_writes_the_golden_logits():
    want = array.array("f")
    with open(f"{LLAMA}/logits.f32", "rb") as f:
        want.frombytes(f.read())
    ids = json.load(open(f"{LLAMA}/golden.json"))["tokens"]
    # int8 does nothing to F16 weights; the processor's own profile may round prompts to bf16
    for place in (["--backend", "ref"], ["--backend", "cpu", "--act-type", "int8"]):
        got = logits_of(LLAMA, "--tokens", ",".join(map(str, ids)), *place)
        assert len(got) == len(want) == len(ids) * 101
        worst = max(abs(a - b) for a, b in zip(got, want))
        assert worst <= 1e-4 * (max(want) - min(want)), worst


def test_eval_gives_the_same_bits_whatever_the_chunk():
    for name in ["qwen3", "rwkv7"]:
        ids = ",".join(str(7 * i % 101) for i in range(40))
        all_at_once = logits_of(f"{GOLDEN}/{name}", "--tokens", ids)
        for chunk in ["1", "7"]:
            assert logits_of(f"{GOLDEN}/{name}", "--tokens", ids, "--chunk", chunk) == all_at_once


def nll(logits, n_vocab, ids):
    """Mean of -ln p, by the book."""
    total = 0.0
    for i, token in enumerate(ids[1:]):
        row = logits[i * n_vocab : (i + 1) * n_vocab]
        m = max(row)
        total += m + math.log(math.fsum(math.exp(x - m) for x in row)) - row[token]
    return total / (len(ids) - 1)


def test_eval_perplexity_is_that_of_its_logits():
    ids = [7 * i % 101 for i in range(30)]
    text = ",".join(map(str, ids))
    want = nll(logits_of(LLAMA, "--tokens", text), 101, ids)
    for chunk in ["64", "7"]:
        j = fletch("eval", LLAMA, "-q", "--json", "--tokens", text, "--chunk", chunk).json
        assert abs(j["nll"] - want) < 1e-9 * want and j["n_scored"] == 29, (j, want)
        assert j["perplexity_error"] > 0 and j["tokens_per_second"] > 0


def test_eval_windows_predict_every_token_once():
    with open(tmp("book.txt"), "w") as f:
        f.write("It was a dark and stormy night. " * 20)
    one = fletch("eval", MODEL, "-q", "--json", "-f", tmp("book.txt")).json
    assert one["n_windows"] == 1 and one["n_scored"] == one["n_tokens"] - 1
    many = fletch("eval", MODEL, "-q", "--json", "-f", tmp("book.txt"), "-c", "32").json
    assert many["n_scored"] == one["n_scored"] and many["n_windows"] > 3
    ids = [7 * i % 101 for i in range(50)]
    text = ",".join(map(str, ids))
    j = fletch("eval", LLAMA, "-q", "--json", "--tokens", text, "-c", "8").json
    assert j["n_scored"] == 49 and j["n_windows"] == 7, j
    total = 0.0
    for i in range(0, 49, 7):  # the last token of a window leads the next
        window = ids[i : i + 8]
        logits = logits_of(LLAMA, "--tokens", ",".join(map(str, window)))
        total += nll(logits, 101, window) * (len(window) - 1)
    assert abs(j["nll"] - total / 49) < 1e-9 * j["nll"], (j, total / 49)
    text = fletch("eval", MODEL, "-q", "-f", tmp("book.txt")).text
    assert text.startswith("perplexity ") and " +- " in text and "with bos" in text, text


def test_eval_refuses_what_it_can_not_do():
    one_line(fletch("eval", LLAMA, "-q", code=2), "--tokens")
    one_line(fletch("eval", LLAMA, "-q", "--tokens", "1,101", code=2), "101", "between 0 and 100")
    one_line(fletch("eval", LLAMA, "-q", "--tokens", "1,x", code=2), "'x'")
    one_line(fletch("eval", LLAMA, "-q", "--tokens", "", code=1), "no tokens")
    ids = ",".join(["1"] * 20)
    args = ["eval", LLAMA, "-q", "--tokens", ids, "--logits", tmp("l"), "-c", "9"]
    one_line(fletch(*args, code=1), "20 tokens", "which has 9 tokens")
    args = ["eval", LLAMA, "-q", "--tokens", "1,2", "--logits", tmp("no/where")]
    one_line(fletch(*args, code=1), "no/where")


# ---- text ----


def test_tokenize_round_trips_any_bytes():
    for text in [b"", b"Hello, world\n", "Grüße 你好 🙂".encode(), b"\xff\x00\xfe tail", b"  \t\n"]:
        ids = fletch("tokenize", MODEL, "--ids", stdin=text).text
        assert fletch("detokenize", MODEL, stdin=ids.encode()).out == text, text
        if text and b"\0" not in text:
            assert fletch("detokenize", MODEL, *ids.split()).out == text
            assert fletch("detokenize", MODEL, ids.replace(" ", ",")).out == text


def test_tokenize_gives_the_golden_ids():
    for case in json.load(open(f"{TOK}/cases.json"))[:40]:
        args = ["--ids"] + ([] if case["bos"] else ["--no-bos"])
        args += ["--special"] if case["special"] else []
        r = fletch("tokenize", MODEL, *args, stdin=base64.b64decode(case["text_b64"]))
        assert list(map(int, r.text.split())) == case["ids"], case


def test_tokenize_shows_pieces_escaped():
    lines = fletch("tokenize", MODEL, "a\x1b[31m\n").text.split("\n")
    assert "<|begin_of_text|>" in lines[0], lines
    assert "\x1b" not in "".join(lines) and any("\\x1b" in s for s in lines), lines
    ids = fletch("tokenize", MODEL, "--ids", "Hello").text.split()
    j = fletch("tokenize", MODEL, "--json", "Hello").json
    assert [str(t["id"]) for t in j] == ids
    assert "".join(t["piece"] for t in j) == "<|begin_of_text|>Hello", j
    pieces = [t["piece"] for t in fletch("tokenize", MODEL, "--json", "--no-bos", "\U0001f642\u4e00").json]
    whole = b"".join(p.encode() if isinstance(p, str) else bytes(p) for p in pieces)
    assert whole == "\U0001f642\u4e00".encode() and any(isinstance(p, list) for p in pieces), pieces


def test_detokenize_refuses_what_is_no_id():
    one_line(fletch("detokenize", MODEL, "1,x", code=2), "'x'")
    one_line(fletch("detokenize", MODEL, "99999999999", code=2))
    one_line(fletch("detokenize", MODEL, "1000000", code=2), "1000000")
    assert fletch("detokenize", MODEL, "--special", "640").text != ""


def test_template_renders_the_model_s_own():
    messages = [dict(role="user", content="Hi")]
    body = "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
    answer = "<|start_header_id|>assistant<|end_header_id|>\n\n"
    text = json.dumps(messages).encode()
    assert fletch("template", MODEL, stdin=text).text == body + answer
    wrapped = json.dumps(dict(messages=messages, tools=[])).encode()
    assert fletch("template", MODEL, stdin=wrapped).text == body + answer
    assert fletch("template", MODEL, "--no-generation-prompt", stdin=text).text == body


def test_template_takes_texts_with_nul():
    messages = json.dumps([{"role": "user", "content": "zero\0one"}]).encode()
    assert b"zero\0one" in fletch("template", "zoo/guide.gguf", stdin=messages).out


def test_template_file_and_arguments():
    with open(tmp("t.jinja"), "w") as f:
        f.write("{{ n + 1 }}|{{ s }}|{{ flag is true }}|{{ messages | length }}")
    args = ["--template-arg", "n=41", "--template-arg", "s=a b", "--template-arg", "flag=true"]
    r = fletch("template", MODEL, "--template", tmp("t.jinja"), *args, stdin=b"[]")
    assert r.text == "42|a b|True|0", r.text
    one_line(fletch("template", MODEL, "--template-arg", "x", stdin=b"[]", code=2), "NAME=VALUE")


def test_template_arguments_without_an_effect_are_refused():
    for name in "depth", "messages", "enable_thinking":
        arg = ["--template-arg", "n=1", "--template-arg", name + "=true"]
        own = ["--template", tmp("t.jinja")]
        with open(tmp("t.jinja"), "w") as f:
            f.write("{{ n }}{{ messages | length }}")
        one_line(fletch("template", MODEL, *own, *arg, stdin=b"[]", code=2), "--template-arg", name)
        r = fletch("run", MODEL, "-q", "-p", "a", "--chat", "-n", "1", *own, *arg, code=2)
        one_line(r, "--template-arg", name)
    with open(tmp("lines"), "w") as f:
        f.write('{"messages": []}\n')
    r = fletch("batch", "-q", MODEL, tmp("lines"), "--template-arg", "depth=1", code=2)
    one_line(r, "--template-arg", "depth")


def test_template_errors_are_one_line():
    one_line(fletch("template", MODEL, stdin=b"{", code=1), "line 1")
    one_line(fletch("template", MODEL, stdin=b'{"a": 1}', code=1), "messages")
    one_line(fletch("template", MODEL, stdin=b'{"messages": [], "tools": 1}', code=1), "tools")
    with open(tmp("bad.jinja"), "w") as f:
        f.write("{% unknown %}")
    one_line(fletch("template", MODEL, "--template", tmp("bad.jinja"), stdin=b"[]", code=1))


# ---- reports ----


def test_reports_are_json_on_request():
    for args, keys in [
        (["inspect", MODEL], "path format arch metadata tensors types"),
        (["plan", MODEL], "arch backend fits total available parts"),
        (["explain", MODEL], "arch backend programs"),
        (["verify", MODEL, "-n", "2"], "equal backend against tolerances first_difference"),
        (["doctor"], "version cpu memory backends architectures types"),
    ]:
        j = fletch(*args, "--json").json
        assert set(keys.split()) <= set(j), (args, j.keys())


def model_with_nan(name):
    os.makedirs(tmp(name))
    for part in ["config.json", "tokenizer.json"]:
        shutil.copy(f"{MODEL}/{part}", tmp(name))
    data = bytearray(open(f"{MODEL}/model.safetensors", "rb").read())
    data[-4:] = struct.pack("<f", float("nan"))
    open(tmp(f"{name}/model.safetensors"), "wb").write(data)
    return tmp(name)


def test_inspect_lists_and_checks():
    text = fletch("inspect", f"{GOLDEN}/llama-gguf/model.gguf", "--check").text
    for part in ["GGUF v3", "golden llama", "blk.2.ffn_down.weight", "52 x 60", "no NaN"]:
        assert part in text, part
    nan = model_with_nan("nan")
    text = fletch("inspect", nan, "--check", code=4).text
    assert "bad weights" in text and "norm" in text, text
    fletch("inspect", nan)


def test_values_that_are_not_numbers_end_a_command():
    nan = model_with_nan("nan-run")
    for backend in ["ref", "cpu"]:
        for args in [("run", nan, "-p", "One", "-n", "4"), ("eval", nan, "--tokens", "1,2,3")]:
            r = fletch(*args, "--backend", backend, "-q", code=1)
            one_line(r, "NaN", "inspect --check")


def test_a_model_of_floats_runs_without_rounding():
    """--act-type f32 is refused only where a weight is in blocks, by name."""
    args = ["-p", "Hello", "-n", "4", "--temp", "0", "--act-type", "f32", "-q"]
    want = fletch("run", MODEL, *args, "--backend", "ref").text
    assert fletch("run", MODEL, *args, "--backend", "cpu").text == want
    for backend in ["cpu", "emu"]:
        r = fletch("run", "zoo/tiny/llama.gguf", *args, "--backend", backend, code=1)
        one_line(r, "'token_embd.weight' has type Q8_0", "--backend ref")


def test_kv_types_in_blocks_say_which_would_do():
    r = fletch("plan", f"{GOLDEN}/qwen3", "--kv-type", "q8", code=2)
    one_line(r, "this model's is", "f16 or f32")


def test_verify_needs_no_vocabulary_that_has_its_sentence():
    path = "../shared/real/reverse-rwkv7.gguf"
    if not os.path.exists(path):
        raise Skip(f"{path} is not here")
    assert "equal within the tolerances" in fletch("verify", path, "-n", "4").text
    one_line(fletch("verify", path, "-p", "The quick", code=2), "no token for byte")


def test_plan_predicts_machines_that_are_not_at_hand():
    j = fletch("plan", MODEL, "--device", "m3-pro", "--json").json
    assert j["backend"] == "metal" and j["fits"] and j["machine"]["name"] == "m3-pro", j
    fast = fletch("plan", MODEL, "--device", "h200", "--json").json["predicted"][0]
    slow = j["predicted"][0]
    assert slow["bytes"] == fast["bytes"] and slow["tokens_per_s"] < fast["tokens_per_s"], (slow, fast)
    # a shape needs no file, and does not fit everywhere
    text = fletch("plan", "llama-3.1-8b:f16", "--device", "rtx-4090", "-c", 2048).text
    assert "predicted, not measured" in text and "RTX 4090" in text, text
    r = fletch("plan", "llama-3.1-8b:f16", "--device", "m1", code=3)
    assert "does not fit" in r.text, r.text
    fletch("plan", "llama-3.1-8b:f16", "--device", "m1", "--max-memory", "24G")
    one_line(fletch("plan", MODEL, "--device", "m9", code=2), "m9", "h200")
    one_line(fletch("plan", MODEL, "--device", "h200", "--backend", "cpu", code=2), "--backend")
    one_line(fletch("plan", "llama-3.1-8b:q9", code=2), "q9", "q4_k_m")


def test_plan_names_a_context_that_fits():
    plan = fletch("plan", MODEL, "--json").json
    some = plan["total"] - sum(p["bytes"] for p in plan["parts"] if p["name"] == "kv cache") // 2
    j = fletch("plan", MODEL, "--json", "--max-memory", some, code=3).json
    assert 0 < j["largest_ctx"] < plan["n_ctx"], j
    fits = fletch("plan", MODEL, "--max-memory", some, "-c", j["largest_ctx"]).text
    assert "kv cache" in fits and "fits" in fits
    fletch("plan", MODEL, "--max-memory", some, "-c", j["largest_ctx"] + 64, code=3)


def test_the_default_context_is_as_long_as_model_and_memory_allow():
    def plan(*args, code=0):
        return fletch("plan", "Llama-3.2-1B:q8_0", "--json", *args, code=code).json

    for args in [], ["-c", "0"]:
        assert plan("--max-memory", "64G", *args)["n_ctx"] == 131072
    j = plan("--max-memory", "4G")
    assert 8192 < j["n_ctx"] < 131072 == j["n_ctx_trained"] and j["total"] < 4 << 30, j
    assert plan("--max-memory", "1G", code=3)["n_ctx"] == 8192
    assert "context 8192 of 131072" in fletch("plan", "Llama-3.2-1B:q8_0", "-c", "8192").text
    assert fletch("plan", "zoo/guide.gguf", "--json").json["n_ctx"] == 4096


def test_a_context_beyond_the_trained_one_warns():
    for args in ["plan", "zoo/guide.gguf"], ["run", "-p", "a", "-n", "1"]:
        r = fletch(*args, "-c", "5000")
        assert "context of 5000 tokens is longer than the 4096" in r.err, r.err
        assert fletch(*args, "-c", "4096", "-q").err == fletch(*args, "-c", "5000", "-q").err == ""


def test_plan_counts_what_guesses_tokens():
    def plan(*args):
        j = fletch("plan", *args, "--json").json
        return j["total"], sum(p["bytes"] for p in j["parts"] if p["name"] == "speculation")

    alone, none = plan("zoo/guide.gguf", "-c", 2048)
    draft, _ = plan("zoo/guide-draft.gguf", "-c", 2048)
    assert none == 0
    assert plan("zoo/guide.gguf", "-c", 2048, "--draft", "zoo/guide-draft.gguf") == (alone + draft, draft)
    assert plan("zoo/guide.gguf", "-c", 2048, "--ngram") == (alone, 0)
    total, mtp = plan("zoo/glm.gguf", "--mtp")
    assert mtp > 0 and total - mtp == plan("zoo/glm.gguf", "--spec", "off")[0]
    assert plan("zoo/glm.gguf") == (total, mtp)
    got = fletch("run", "zoo/glm.gguf", "--mtp", "--max-memory", total - 1, "-p", "hi", code=3)
    assert "speculation" in got.err and "available" in got.err
    one_line(fletch("plan", "zoo/guide.gguf", "--mtp", code=2), "MTP")


def test_explain_shows_groups_and_recorded_ops():
    fused, plain = (fletch("explain", MODEL, *a).text for a in ([], ["--no-fuse"]))
    assert "norm+matmul" in fused and "norm+matmul" not in plain
    assert "blk.1.ffn_down.weight" in plain and "attention" in plain


def test_verify_compares_on_every_kind_of_model():
    for model in [MODEL, f"{GOLDEN}/qwen3_moe", f"{GOLDEN}/rwkv7"]:
        text = fletch("verify", model, "--backend", "ref", "--against", "ref", "-n", "3").text
        assert "equal within the tolerances" in text and "matmul" in text, text
    j = fletch("verify", f"{GOLDEN}/qwen3_moe", "--json", "-n", "3").json
    assert j["routing"]["compared"] > 0 and j["bad_values"] == 0
    one_line(fletch("verify", MODEL, "-p", "a", "--tokens", "1", code=2))


def test_convert_is_complete_or_absent():
    one_line(fletch("convert", MODEL, "-o", tmp("no/dir.gguf"), "--type", "f32", code=1), "no/dir")
    out = tmp("q8.gguf")
    for _ in range(2):  # a file that is there is replaced
        fletch("convert", f"{GOLDEN}/llama-gguf/model.gguf", "-o", out, "--type", "q8_0", "-q")
    assert [f for f in os.listdir(TMP) if f.startswith("q8.gguf")] == ["q8.gguf"]
    assert fletch("inspect", out, "--json").json["arch"] == "llama"


run_tests(globals())
