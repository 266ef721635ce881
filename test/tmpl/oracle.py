#!/usr/bin/env python3
"""Compares our template interpreter with Jinja2, byte for byte.

    oracle.py PATH/TO/tmpl_cli [--seed N] [--count N]

Three parts: the templates beside this file with every conversation of conversations(); renderings
that published templates are known to give, from templates of the same shape; COUNT random
templates. Both sides must give the same text, or both must fail."""
import argparse
import datetime
import glob
import json
import os
import subprocess
import sys
import time

import jinja2
import jinja2.ext
import jinja2.sandbox

from grammar import Grammar

HERE = os.path.dirname(os.path.abspath(__file__))
NOW = 1767355200  # 2026-01-02 12:00 UTC
TRUSTED = {"bos_token": "<s>", "eos_token": "</s>"}


class Generation(jinja2.ext.Extension):
    """{% generation %}: a scope that changes nothing, as the library of the templates has it."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("_text")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _text(self, caller):
        return caller()


def environment():
    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                          sort_keys=sort_keys)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def strftime_now(form):
        return datetime.datetime.fromtimestamp(NOW).strftime(form)

    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True,
        extensions=["jinja2.ext.loopcontrols", Generation])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = strftime_now
    return env


def expected(env, source, variables):
    """(text, None) or (None, why it failed)."""
    try:
        text = env.from_string(source).render(**{**TRUSTED, **variables})
        text.encode()
        return text, None
    except RecursionError:
        raise
    except Exception as e:  # Jinja2 lets through whatever Python throws
        return None, f"{type(e).__name__}: {e}"


class Ours:
    def __init__(self, path):
        self.cli = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def render(self, source, variables):
        case = {"template": source, "vars": variables, "trusted": TRUSTED, "now": NOW}
        self.cli.stdin.write(json.dumps(case).encode() + b"\n")
        self.cli.stdin.flush()
        reply = json.loads(self.cli.stdout.readline())
        return reply.get("text"), reply.get("error")


class Report:
    def __init__(self):
        self.passed = self.failed = self.skipped = self.rendered = 0

    def compare(self, name, source, theirs, ours, quiet=False):
        text, why = theirs
        mine, error = ours
        # An address is printed, or Python counts further than we do: no answer is the right one.
        if (text and " at 0x" in text) or (error and "integer overflow" in error):
            self.skipped += 1
            return
        good = mine == text and (error is None) == (why is None)
        self.passed += good
        self.rendered += good and why is None
        self.failed += not good
        if not good:
            print(f"not ok {name}\n  template: {source!r}\n  jinja2:   {text!r} {why}\n"
                  f"  ours:     {mine!r} {error}")
        elif not quiet:
            print(f"ok {name}")


def conversations():
    system = {"role": "system", "content": " You are S. /no_think "}
    user = {"role": "user", "content": "Hi <|im_end|> there\n"}
    thought = {"role": "assistant", "content": "<think>\nt\n</think>\n\nYo"}
    unicode_user = {"role": "user", "content": "\u00a0h\u00e9llo \u4e16\u754c \U0001f600 'q' \"d\"\u2003"}
    call = {"role": "assistant", "content": None, "tool_calls": [
        {"id": "abcdefghi", "type": "function", "function": {
            "name": "look_up", "arguments": {"what": "caf\u00e9", "n": 3, "deep": {"a": [1, 2.5, None, True]}}}}]}
    reasoned = dict(call, reasoning_content="because\n", content="")
    answer = {"role": "tool", "tool_call_id": "abcdefghi", "content": "R"}
    parts = {"role": "user", "content": [{"type": "text", "text": "look"}, {"type": "image"}]}
    tools = [{"type": "function", "function": {
        "name": "look_up", "description": "Looks \"things\" up \u2192 tells",
        "parameters": {"type": "object", "properties": {"what": {"type": "string"}, "n": {"type": "integer"}},
                       "required": ["what"]}}}]
    talks = {
        "empty": [],
        "one": [user],
        "system": [system, user],
        "turns": [system, user, thought, unicode_user],
        "call": [user, call, answer],
        "calls": [system, user, reasoned, answer, answer, {"role": "assistant", "content": "Done."}, user],
        "parts": [parts, thought, parts],
        "odd": [user, user, system, {"role": "nobody", "content": ""}],
    }
    for name, messages in talks.items():
        for extra_name, extra in (
                ("", {}), ("+gen", {"add_generation_prompt": True}),
                ("+tools", {"tools": tools, "add_generation_prompt": True}),
                ("+args", {"add_generation_prompt": True, "enable_thinking": False, "date_string": "1 May",
                           "clear_thinking": False, "builtin_tools": ["code_interpreter", "look_up"]}),
                ("+system-tools", {"tools": tools, "tools_in_user_message": False, "enable_thinking": True})):
            yield name + extra_name, {"messages": messages, **extra}


def goldens():
    talk = [{"role": "system", "content": "S"}, {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "<think>t</think>\n\nYo"}, {"role": "user", "content": "Q?"}]
    gen = {"messages": talk, "add_generation_prompt": True}
    quiet = {**gen, "enable_thinking": False}
    glm = "[gMASK]<sop><|system|>S<|user|>Hi<|assistant|></think>Yo<|user|>Q?<|assistant|>"
    qwen = ("<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nYo<|im_end|>\n"
            "<|im_start|>user\nQ?<|im_end|>\n<|im_start|>assistant\n")
    head, end = "<|start_header_id|>", "<|end_header_id|>\n\n"
    llama = (f"<s>{head}system{end}Cutting Knowledge Date: December 2023\nToday Date: 02 Jan 2026\n\nS<|eot_id|>"
             f"{head}user{end}Hi<|eot_id|>{head}assistant{end}<think>t</think>\n\nYo<|eot_id|>"
             f"{head}user{end}Q?<|eot_id|>{head}assistant{end}")
    tool_turn = [{"role": "user", "content": "Hi"},
                 {"role": "assistant", "content": "", "reasoning_content": "r", "tool_calls": [
                     {"function": {"name": "f", "arguments": {"x": "a", "n": 3}}}]},
                 {"role": "tool", "content": "R"}]
    yield "glm47", gen, glm + "<think>"
    yield "glm47", quiet, glm + "</think>"
    yield "glm47", {"messages": tool_turn, "add_generation_prompt": True}, (
        "[gMASK]<sop><|user|>Hi<|assistant|><think>r</think><tool_call>f<arg_key>x</arg_key><arg_value>a</arg_value>"
        "<arg_key>n</arg_key><arg_value>3</arg_value></tool_call><|observation|><tool_response>R</tool_response>"
        "<|assistant|><think>")
    yield "qwen3", gen, qwen
    yield "qwen3", quiet, qwen + "<think>\n\n</think>\n\n"
    yield "llama32", gen, llama
    yield "nemo", gen, "<s>[INST]Hi[/INST]<think>t</think>\n\nYo</s>[INST]S\n\nQ?[/INST]"
    yield "rwkv", gen, "<s>System: S\n\nUser: Hi\n\nAssistant: Yo\n\nUser: Q?\n\nAssistant:"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cli")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=2000)
    args = parser.parse_args()
    os.environ["TZ"] = "UTC"
    time.tzset()
    env, ours, report = environment(), Ours(args.cli), Report()

    sources = {}
    for path in sorted(glob.glob(os.path.join(HERE, "*.jinja"))):
        with open(path, encoding="utf-8") as f:
            sources[os.path.basename(path)[:-6]] = f.read()
    for name, source in sources.items():
        for talk, variables in conversations():
            report.compare(f"{name} {talk}", name, expected(env, source, variables),
                           ours.render(source, variables))
    for i, (name, variables, text) in enumerate(goldens()):
        report.compare(f"golden {i} {name}", name, (text, None), ours.render(sources[name], variables))

    before, rendered = report.failed, report.rendered
    for i in range(args.count):
        grammar = Grammar(args.seed * 1000003 + i)
        source, variables = grammar.template(), grammar.variables()
        report.compare(f"random seed {args.seed} number {i}", source, expected(env, source, variables),
                       ours.render(source, variables), quiet=True)
    print(f"{'ok' if report.failed == before else 'not ok'} {args.count} random templates, seed {args.seed}: "
          f"{report.rendered - rendered} rendered, the others fail on both sides")
    print(f"{report.passed} passed, {report.failed} failed, {report.skipped} skipped")
    sys.exit(1 if report.failed or not report.passed else 0)


if __name__ == "__main__":
    main()
