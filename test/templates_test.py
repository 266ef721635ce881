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


# The format in which the models of published templates call tools.
FORMATS = {
    "apertus": ["Apertus-8B-Instruct"],
    "apriel": ["Apriel-1.6-15b-Thinker-fixed", "unsloth-Apriel-1.5"],
    "cohere": ["CohereForAI-c4ai-command-r7b-12-2024-tool_use", "Cohere2MoE"],
    "deepseek-r1": ["deepseek-ai-DeepSeek-R1-Distill-Llama-8B", "lenml-deepseek_v3",
                    "llama-cpp-deepseek-r1"],
    "deepseek-v3.1": ["deepseek-ai-DeepSeek-V3.1"],
    "deepseek-v3.2": ["deepseek-ai-DeepSeek-V3.2"],
    "deepseek-v4": ["deepseek-ai-DeepSeek-V4", "deepseek-ai-DeepSeek-V4-Flash-0731"],
    "firefunction": ["fireworks-ai-llama-3-firefunction-v2"],
    "functionary": ["meetkai-functionary-medium-v3.1"],
    "functionary-v3.2": ["meetkai-functionary-medium-v3.2"],
    "gemma4": ["google-gemma-4-31B-it", "google-gemma-4-31B-it-interleaved"],
    "glm": ["GLM-4.6", "GLM-4.7-Flash", "poolside-Laguna-XS.2", "poolside-Laguna-S-2.1"],
    "granite3": ["ibm-granite-granite-3.3-2B-Instruct"],
    "harmony": ["openai-gpt-oss-120b"],
    "hermes": ["Qwen-Qwen3-0.6B", "Qwen-Qwen2.5-7B-Instruct", "ibm-granite-granite-4.0",
               "NousResearch-Hermes-3-Llama-3.1-8B-tool_use", "Bielik-11B-v3.0-Instruct",
               "HuggingFaceTB-SmolLM3-3B", "Qwen-QwQ-32B", "MiMo-VL"],
    "hy3": ["tencent-Hy3"],
    "kimi-k2": ["Kimi-K2-Instruct", "Kimi-K2-Thinking", "moonshotai-Kimi-K2"],
    "lfm2": ["LFM2-8B-A1B", "LFM2.5-Instruct", "LFM2.5-8B-A1B"],
    "llama": ["meta-llama-Llama-3.1-8B-Instruct", "meta-llama-Llama-3.3-70B-Instruct"],
    "minimax-m2": ["MiniMax-M2"],
    "mistral": ["mistralai-Mistral-Nemo-Instruct-2407", "lenml-mistral_nemo"],
    "mistral-args": ["mistralai-Ministral-3-14B-Reasoning-2512",
                     "unsloth-mistral-Devstral-Small-2507"],
    "mistral-id": ["Mistral-Small-3.2-24B-Instruct-2506"],
    "muse": ["muse-glimmer"],
    "nemotron-v2": ["NVIDIA-Nemotron-Nano-v2"],
    "qwen-xml": ["Qwen3-Coder", "Qwen3.5-4B", "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
                 "StepFun3.5-Flash"],
    "seed-oss": ["ByteDance-Seed-OSS"],
    "solar": ["upstage-Solar-Open-100B"],
}


def test_published_templates_show_how_their_models_call_tools():
    sources, _, _ = published()
    cli = subprocess.Popen(
        [os.path.join(BUILD, "test/tmpl_cli")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    wrong = []
    for wanted, names in FORMATS.items():
        for name in names:
            case = {"template": sources[name + ".jinja"], "vars": {}, "trusted": {}, "now": NOW}
            cli.stdin.write(json.dumps(case).encode() + b"\n")
            cli.stdin.flush()
            got = json.loads(cli.stdout.readline())["format"]
            wrong += [] if got == wanted else [f"{name}: {got}, not {wanted}"]
    cli.stdin.close()
    cli.wait()
    assert not wrong, wrong


def test_published_templates_render_as_jinja2_renders_them():
    # transformers gives these two in any case.
    counts, wrong = compare({"tools": None, "documents": None})
    assert not wrong, f"{len(wrong)} wrong, the first ones:\n" + "\n".join(wrong[:5])
    assert counts["equal"] > 1000 and counts["both raise"] > 100, counts


run_tests(globals())
