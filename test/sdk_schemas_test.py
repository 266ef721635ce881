#!/usr/bin/env python3
"""Schemas as code generators write them (test/schemas/*.json: Pydantic's model_json_schema, Zod's
toJSONSchema, components of OpenAPI documents): test/sdk_schemas_test.py BUILD. Each is accepted,
with all of its valid values and none of the invalid ones, or refused by the name that is noted."""

import glob
import json
import os
import subprocess

from suite import BUILD, run_tests

FILES = sorted(glob.glob(os.path.join(os.path.dirname(os.path.abspath(__file__)), "schemas",
                                      "*.json")))


def spell(value):
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def read_cases():
    for path in FILES:
        with open(path, encoding="utf-8") as file:
            for case in json.load(file):
                yield os.path.basename(path)[:-5] + " " + case["name"], case


def test_every_schema_is_kept_or_refused_by_name():
    cases = list(read_cases())
    lines = [json.dumps({"schema": case["schema"],
                         "texts": [spell(v) for v in case["valid"] + case["invalid"]]})
             for _, case in cases]
    out = subprocess.run([os.path.join(BUILD, "test", "schema_cli")], input="\n".join(lines) + "\n",
                         stdout=subprocess.PIPE, text=True, check=True).stdout
    wrong, n_refused = [], 0
    for (name, case), reply in zip(cases, map(json.loads, out.splitlines()), strict=True):
        n_refused += "error" in reply
        if "error" in reply or "refused" in case:
            if "refused" not in case or case["refused"] not in reply.get("error", ""):
                wrong.append(f"{name}: {reply.get('error', 'is accepted')}")
            continue
        n_valid = len(case["valid"])
        for i, (value, yes) in enumerate(zip(case["valid"] + case["invalid"], reply["accepts"])):
            if yes != (i < n_valid):
                wrong.append(f"{name}: {spell(value)} {'is accepted' if yes else 'is not accepted'}")
    print(f"{len(cases)} schemas, {n_refused} refused")
    assert len(cases) >= 60 and not wrong, "\n".join(wrong)


run_tests(globals())
