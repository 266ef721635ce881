#!/usr/bin/env python3
"""The walks of docs/design.md: every function exists and is called by the one above it:
test/walks_test.py BUILD. Python's standard library only."""

import re

from suite import run_tests

HOP = re.compile(r"^    ( *)([a-z_0-9/]+\.c):([a-z_0-9]+)(?: \.([a-z_]+))?  +\S")
MOST = 25


def source(path):
    return open(path if path.startswith("app/") else "src/" + path).read()


def body(path, name):
    found = re.search(rf"^[a-z][^;=]*\b{name}\([^;]*?\)\n{{\n.*?^}}", source(path), re.M | re.S)
    assert found, f"{path} has no function {name}"
    return found.group(0).split("\n{\n", 1)[1]


def check_call(caller, callee):
    path, name, member = callee
    word = member or name
    text = body(*caller)
    assert re.search(rf"\b{word}\b" if member else rf"\b{word}\(", text), \
        f"{caller[0]}:{caller[1]} does not call {word}"
    if member:  # somebody puts the function there
        uses = len(re.findall(rf"\b{name}\b", source(path)))
        assert uses > 1, f"{path}: nothing points to {name}"


def walks():
    text = open("docs/design.md").read()
    part = text.split("## Two walks through the code", 1)[1].split("\n## ", 1)[0]
    blocks = [b for b in re.split(r"\n\n+", part) if b.startswith("    ")]
    lines = [[(len(h.group(1)), h.group(2), h.group(3), h.group(4)) if h else line
              for line in b.splitlines() for h in [HOP.match(line)]] for b in blocks]
    return lines


def test_walks():
    blocks = walks()
    assert len(blocks) >= 5, "the walks are gone"
    for block in blocks:
        assert len(block) <= MOST, f"a walk has {len(block)} functions"
        above = []
        for hop in block:
            assert isinstance(hop, tuple), f"not a line of a walk: {hop}"
            depth, path, name, member = hop
            assert depth <= len(above), f"{path}:{name} is indented too far"
            above = above[:depth]
            body(path, name)
            if above:
                check_call(above[-1], (path, name, member))
            above.append((path, name))


run_tests(globals())
