#!/usr/bin/env python3
"""README's tour and what the built-in model tells people, run as they are printed:
test/tour_test.py BUILD. Python's standard library only."""

import os
import re
import shlex
import signal
import subprocess

from suite import BUILD, FLETCH, fletch, run_tests

ROOT = os.getcwd()


def tour():
    """The lines of README's tour, without their comments."""
    with open("README.md", encoding="utf-8") as f:
        part = f.read().split("## A tour\n")[1].split("\n## ")[0]
    return [re.split(r"\s+# ", line.strip())[0] for line in part.split("\n") if line.startswith("    ")]


def start(line, d):
    """As a shell in the source folder would; what it writes stays in d."""
    for name in "zoo", "examples":
        if not os.path.exists(f"{d}/{name}"):
            os.symlink(f"{ROOT}/{name}", f"{d}/{name}")
    env = dict(os.environ, PATH=os.path.abspath(BUILD) + ":" + os.environ["PATH"], XDG_DATA_HOME=d, HOME=d)
    return subprocess.Popen(["bash", "-c", line], cwd=d, env=env, text=True, stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_every_line_of_the_tour_runs_as_printed(d):
    lines = tour()
    assert len(lines) > 15 and all(" fletch " in f" {line}" for line in lines), lines
    other = ("fletch pull", "fletch tune", "fletch serve", "fletch ps", "fletch chat")  # see below
    for line in lines:
        if line.startswith(other):
            continue
        out, err = (p := start(line, d)).communicate(timeout=100)
        assert p.returncode == 0 and (out or "-o " in line or line == "fletch list"), (line, p.returncode, out, err)


def test_what_of_the_tour_needs_more_than_this_machine_is_parsed(d):
    """The network, a GPU, a terminal or a free port."""
    for line in tour():
        words = shlex.split(line)
        if words[1] in ("pull", "tune", "ps"):
            out, err = (p := start(f"{line} --help", d)).communicate(timeout=60)
            assert p.returncode == 0 and f"usage: fletch {words[1]}" in out, (line, err)
        if words[1] == "chat":
            out, err = (p := start(f"echo 'Which day comes after Monday?' | {line}", d)).communicate(timeout=60)
            assert p.returncode == 0 and "Tuesday" in out, (line, out, err)
        if words[1] == "serve":
            p = start(f"exec {line} --port 0 --cache-disk 0", d)
            while line := p.stderr.readline():
                if "is ready" in line:
                    break
            p.send_signal(signal.SIGTERM)
            p.communicate(timeout=60)
            assert "is ready" in line and p.returncode == 0, line


def facts():
    """What the guide was trained to answer."""
    with open("zoo/make/facts.txt", encoding="utf-8") as f:
        return [line[2:].strip() for line in f if line.startswith("= ")]


def test_the_options_that_the_guide_names_exist():
    manual = fletch("man").text.replace("\\-", "-")
    known = set(re.findall(r"--[a-z][a-z-]*", manual)) | {"--version"}
    for fact in facts():
        for option in re.findall(r"--[a-z][a-z-]*", fact):
            if option not in known:  # an older name, which is still taken
                fletch("run", option, "1", "--help")


def test_the_commands_that_the_guide_names_exist():
    commands = set(re.findall(r"^  ([a-z]+) ", fletch("help").text, re.M)) | {"help"}
    for fact in facts():
        for command in re.findall(r"(?:Use|Run|Or): fletch ([a-z]+)", fact):
            assert command in commands, fact
        if fact.startswith("The commands are"):
            named = set(re.findall(r"[a-z]+", fact.split("are", 1)[1])) - {"and"}
            assert named <= commands, named - commands


def test_the_words_of_chat_that_the_guide_names_work():
    said = subprocess.run([FLETCH, "chat"], input="/help\n", capture_output=True, text=True, timeout=60).stderr
    for fact in facts():
        if "/v1" in fact or "/readyz" in fact or ("fletch chat" not in fact and not fact.startswith("/")):
            continue
        for word in re.findall(r"(?<![\w/.])(/[a-z]+)\b(?!/)", fact):
            assert f"{word} " in said, (word, fact)


def test_the_types_backends_and_kinds_that_the_guide_names_are_taken():
    helps = fletch("help", "convert").text + fletch("help", "run").text
    for word in "f32 f16 bf16 q8_0 q4_0 q4_k q4_k_m q5_k_m q6_k k8v4 auto metal cuda cpu ref emu int8 rejection".split():
        assert re.search(rf"\b{word}\b", helps), word


def test_the_ways_that_the_guide_tells_run():
    """Whole command lines of its answers, with files of the zoo in place of MODEL and the like."""
    run = [
        ["run", "zoo/guide.gguf", "-p", "your text", "-n", "4"],
        ["run", "zoo/guide.gguf", "--chat", "-p", "Hello"],
        ["run", "-p", "Once upon a time", "-n", "8"],
        ["eval", "zoo/guide.gguf", "--tokens", "1,2,3"],
        ["inspect", "zoo/guide.gguf"],
        ["plan", "zoo/guide.gguf", "-c", "1024"],
        ["plan", "zoo/guide.gguf", "--device", "m3-pro"],
        ["tokenize", "zoo/guide.gguf", "text", "--ids"],
        ["detokenize", "zoo/guide.gguf", "1 2 3"],
        ["verify", "zoo/tiny/llama.gguf", "--backend", "cpu", "--against", "ref", "-n", "2"],
        ["synth", "--list"],
        ["list"],
        ["doctor"],
        ["--version"],
        ["run", "-p", "a", "-n", "2", "--logit-bias", "5=1", "--kv-type", "q8", "--act-type", "int8", "--no-fuse"],
        ["run", "-p", "a", "-n", "2", "--draft", "zoo/guide-draft.gguf", "--spec-tokens", "2"],
        ["chat", "--think"],
    ]
    for args in run:
        fletch(*args)


run_tests(globals())
