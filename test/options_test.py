#!/usr/bin/env python3
"""Every option of `run` does the same on every backend: a table of command lines, each run on all of
them in the same profile, with the same text and exit code."""
import os

import suite
from suite import fletch

MODEL = "zoo/tiny/llama.gguf"
BACKENDS = ["ref", "cpu", "emu"]
PROFILE = ["--act-type", "int8", "--kv-type", "f16"]
BASE = ["-p", "One morning the", "-n", "6", "--temp", "0"]
DRAWN = ["-p", "One morning the", "-n", "6", "--seed", "5"]
SCHEMA = '{"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}'

# What is run, and the exit code it must have everywhere. {} is a folder of the backend's own.
TABLE = [
    (BASE, 0),
    (["-i", "One morning the", "-n", "6", "--temp", "0"], 0),
    (["-f", "{}/prompt", "-n", "6", "--temp", "0"], 0),
    (BASE + ["--stop", "e"], 0),
    (BASE + ["--ignore-end"], 0),
    (BASE + ["--json-schema", SCHEMA, "-n", "12"], 0),
    (BASE + ["--grammar", 'root ::= "yes" | "no"'], 0),
    (BASE + ["--grammar", "root ::= ("], 2),
    (["-p", "<|im_start|>user", "--special", "-n", "4", "--temp", "0"], 0),
    (BASE + ["--chat", "--system", "Be brief."], 0),
    (BASE + ["--chat", "--template", "{}/template"], 0),
    (BASE + ["--chat", "--template-arg", "enable_thinking=true"], 0),
    (BASE + ["--session", "{}/session"], 0),
    (["-p", " friend", "-n", "6", "--temp", "0", "--session", "{}/session"], 0),
    (BASE + ["-c", "64"], 0),
    (BASE + ["-c", "2"], 1),
    (BASE + ["--kv-type", "q8"], 0),
    (BASE + ["--kv-type", "q4"], 0),
    (BASE + ["--max-memory", "1G"], 0),
    (BASE + ["--max-memory", "1K"], 3),
    (BASE + ["--no-fuse"], 0),
    (BASE + ["--ignore-unknown"], 0),
    (BASE + ["--draft", MODEL, "--spec-tokens", "2"], 0),
    (BASE + ["--draft", MODEL, "--spec-accept", "rejection"], 0),
    (BASE + ["--ngram"], 0),
    (BASE + ["--spec", "off"], 0),
    (BASE + ["--spec", "off", "--spec-tokens", "2"], 2),
    (BASE + ["--ahead", "always"], 0),
    (BASE + ["--ahead", "never"], 0),
    (BASE + ["--mtp"], 2),
    (BASE + ["--cache-dir", "{}/cache", "--cache-disk", "1M"], 0),
    (BASE + ["-t", "1"], 0),
    (BASE + ["--keep-alive", "0"], 0),
    (BASE + ["--device", "0"], 0),
    (BASE + ["--device", "1"], 2),
    (DRAWN + ["--temp", "0.8"], 0),
    (DRAWN + ["--temp", "0.8", "--top-k", "3"], 0),
    (DRAWN + ["--temp", "1", "--top-p", "0.5"], 0),
    (DRAWN + ["--temp", "1", "--min-p", "0.2"], 0),
    (DRAWN + ["--temp", "0.8", "--repeat-penalty", "1.5"], 0),
    (DRAWN + ["--temp", "0.8", "--presence-penalty", "2"], 0),
    (DRAWN + ["--temp", "0.8", "--frequency-penalty", "2"], 0),
    (DRAWN + ["--temp", "0", "--logit-bias", "300=100"], 0),
    (DRAWN + ["--temp", "0.8", "--repeat-penalty", "1.5", "--penalty-window", "2"], 0),
    (DRAWN + ["--temp", "0.8", "--no-repeat-ngram", "2"], 0),
]


def options():
    """The long options that `run` knows, from its help."""
    text = fletch("run", "--help").text
    return {w.strip(",") for line in text.splitlines() if line.startswith("  ")
            for w in line.split()[:3] if w.startswith("--")}


def test_options_of_run_do_the_same_on_every_backend(folder):
    for backend in BACKENDS:
        os.mkdir(f"{folder}/{backend}")
        with open(f"{folder}/{backend}/prompt", "w") as f:
            f.write("Once upon a time")
        with open(f"{folder}/{backend}/template", "w") as f:
            f.write("{% for m in messages %}{{ m.content }}{% endfor %}")
    for line, code in TABLE:
        said = [fletch("run", MODEL, "--backend", b, "-q", *PROFILE, *(a.replace("{}", f"{folder}/{b}") for a in line),
                       code=code).text for b in BACKENDS]
        assert said[0] == said[1] == said[2], (line, dict(zip(BACKENDS, said)))
        assert code or said[0], line


def test_the_table_has_every_option_that_may_depend_on_the_backend():
    """What is left out is about where to run or what is said beside the answer."""
    beside = {"--backend", "--isa", "--capture", "--threads", "--json", "--verbose", "--quiet", "--help",
              "--act-type", "--model", "--prompt", "--input", "--file", "--max-tokens", "--context"}
    missing = options() - {a for line, _ in TABLE for a in line} - beside
    assert not missing, missing


suite.run_tests(globals())
