#!/usr/bin/env python3
"""Chat templates that others published, against what Jinja2 rendered: test/templates_test.py BUILD.
The templates are no part of the project; they are looked for beside the checkout."""

import calendar
import gzip
import json
import os
import subprocess
import tarfile

from suite import BUILD, Skip, run_tests

REAL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../shared/real")
NOW = calendar.timegm((2026, 11, 16, 12, 0, 0))  # the day on which Jinja2 rendered them
TRUSTED = {"bos_token": "<s>", "eos_token": "</s>"}
# transformers has no such filter, so Jinja2 raises; engines that serve these models provide it.
ONLY_HERE = "No filter named 'from_json'"


def published():
    """The templates by name, the conversations, and (state, text or error) of each pair."""
    names = [os.path.join(REAL, n) for n in ("templates.tgz", "cases.json", "tpl-py.json.gz")]
    if not all(os.path.exists(n) for n in names):
        raise Skip("there are no published templates beside the checkout")
    with tarfile.open(names[0]) as tar, open(names[1]) as cases, gzip.open(names[2]) as rendered:
        sources = {
            os.path.basename(m.name): tar.extractfile(m).read().decode()
            for m in tar.getmembers()
            if m.isfile()
        }
        return sources, json.load(cases), json.load(rendered)


def compare(given):
    """Renders everything with the variables of given; returns the counts and what is wrong."""
    sources, conversations, rendered = published()
    counts, wrong = {"equal": 0, "both raise": 0, "only Jinja2 raises": 0}, []
    cli = subprocess.Popen(
        [os.path.join(BUILD, "test/tmpl_cli")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "TZ": "UTC"},
    )
    for name, source in sorted(sources.items()):
        for talk, (messages, arguments) in conversations.items():
            variables = {**given, "add_generation_prompt": True, **messages, **arguments}
            case = {"template": source, "vars": variables, "trusted": TRUSTED, "now": NOW}
            cli.stdin.write(json.dumps(case).encode() + b"\n")
            cli.stdin.flush()
            ours, (state, theirs) = json.loads(cli.stdout.readline()), rendered[name][talk]
            text = ours.get("text")
            if state == "ok" and text == theirs:
                counts["equal"] += 1
            elif state == "ok":
                wrong.append(f"{name} {talk}: {ours.get('error') or text!r}\n  not {theirs!r}")
            elif text is None:
                counts["both raise"] += 1
            else:
                counts["only Jinja2 raises"] += 1
                wrong += [] if ONLY_HERE in theirs else [f"{name} {talk}: only Jinja2 raises {theirs}"]
    cli.stdin.close()
    cli.wait()
    print(f"# {counts}")
    return counts, wrong


def test_published_templates_render_as_jinja2_renders_them():
    # transformers gives these two in any case.
    counts, wrong = compare({"tools": None, "documents": None})
    assert not wrong, f"{len(wrong)} wrong, the first ones:\n" + "\n".join(wrong[:5])
    assert counts["equal"] > 1000 and counts["both raise"] > 100, counts


run_tests(globals())
