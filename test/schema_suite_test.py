#!/usr/bin/env python3
"""The public JSON-Schema-Test-Suite, draft 2020-12: test/schema_suite_test.py BUILD. A schema is
refused by name, or no value that it forbids is ever accepted. Valid values that our form of JSON
can't write are counted, and neither they nor refused schemas may become more. The suite is no part
of this project: without ../shared/real/json-schema-test-suite.tgz the test is skipped."""

import itertools
import json
import os
import subprocess
import tarfile

from suite import BUILD, Skip, run_tests

SUITE = os.path.join("..", "shared", "real", "json-schema-test-suite.tgz")
MOST_REFUSED = 389  # values whose schema is refused
MOST_UNREACHABLE = 490  # valid values that are not accepted in any order of members


def orders(value):
    """The value with its members in other orders, at the top only."""
    yield value
    if isinstance(value, dict) and 1 < len(value) <= 4:
        for keys in itertools.permutations(value):
            yield {key: value[key] for key in keys}


def spellings(value):
    texts = []
    for v in orders(value):
        texts.append(json.dumps(v, separators=(",", ":"), ensure_ascii=False))
        texts.append(json.dumps(v, ensure_ascii=False))
        texts.append(json.dumps(v))
    return list(dict.fromkeys(texts))


def read_suite():
    if not os.path.exists(SUITE):
        raise Skip(f"there is no {SUITE}")
    with tarfile.open(SUITE) as tar:
        for member in sorted(tar.getmembers(), key=lambda m: m.name):
            if member.name.endswith(".json") and "/draft2020-12/" in member.name:
                for group in json.load(tar.extractfile(member)):
                    yield member.name.split("draft2020-12/")[1], group


def test_no_invalid_value_is_accepted():
    groups = list(read_suite())
    lines = [json.dumps({"schema": g["schema"],
                         "texts": [t for case in g["tests"] for t in spellings(case["data"])]})
             for _, g in groups]
    out = subprocess.run([os.path.join(BUILD, "test", "schema_cli")], input="\n".join(lines) + "\n",
                         stdout=subprocess.PIPE, text=True, check=True).stdout
    n_schemas = n_values = n_refused_schemas = n_refused = n_unreachable = 0
    wrong = []
    for (name, group), reply in zip(groups, map(json.loads, out.splitlines()), strict=True):
        n_schemas += 1
        n_values += len(group["tests"])
        if "accepts" not in reply:
            if os.environ.get("VERBOSE"):
                print("refused", name, group["description"], reply, json.dumps(group["schema"]))
            n_refused_schemas += 1
            n_refused += len(group["tests"])
            continue
        accepted = iter(reply["accepts"])
        for case in group["tests"]:
            got = [next(accepted) for _ in spellings(case["data"])]
            if any(got) and not case["valid"]:
                wrong.append((name, group["description"], group["schema"], case["data"]))
            elif case["valid"] and not any(got):
                if os.environ.get("VERBOSE"):
                    print("unreachable", name, group["description"], "|", case["description"])
                n_unreachable += 1
    print(f"{n_schemas} schemas with {n_values} values: {n_refused_schemas} schemas refused with "
          f"{n_refused} values, {n_unreachable} valid values unreachable, "
          f"{len(wrong)} invalid values accepted")
    assert not wrong, wrong
    assert n_refused <= MOST_REFUSED and n_unreachable <= MOST_UNREACHABLE


run_tests(globals())
