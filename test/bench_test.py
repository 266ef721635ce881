#!/usr/bin/env python3
"""End-to-end tests of fletch bench and fletch synth: test/bench_test.py BUILD. Python's standard
library only. Numbers are never judged here, only that they are there and fit together."""

import html
import json
import os
import re
import subprocess
import sys

from suite import BUILD, fletch, run_tests

GOLDEN = "test/golden/models/llama-gguf/model.gguf"
FAST = ["-r", "2", "-p", "16", "-n", "4", "-d", "8"]


def bench(d, *args, code=0):
    return fletch("bench", *args, "--dir", d, code=code)


def test_json_has_every_field(d):
    doc = json.loads(bench(d, GOLDEN, *FAST, "--json").text)
    assert doc["machine"]["read_gb_s"] > 0 and doc["machine"]["peak_gflop_s"] > 0
    assert doc["machine"]["peak"] and re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", doc["date"])
    assert doc["machine"]["read_bytes"] >= doc["machine"]["llc_bytes"]
    assert doc["load_s"] > 0 and doc["peak_rss"] > 0 and doc["plan_bytes"] > 0
    assert [r["mode"] for r in doc["results"]] == ["prefill", "decode", "full"]
    for r in doc["results"]:
        for key in "n_prompt n_gen depth batch tokens_per_s best worst spread gb_s gflop_s".split():
            assert key in r, key
        for key in "bandwidth_share flop_share active_bytes placed_bytes".split():
            assert r[key] > 0, key
        assert r["bandwidth_share"] <= 1 and r["flop_share"] <= 1, r
        assert len(r["samples"]) == 2
        assert r["worst"] <= r["tokens_per_s"] <= r["best"]
        if r["mode"] != "decode":
            assert r["first_token_ms"] > 0
        if r["mode"] != "prefill":
            lat = r["latency_ms"]
            assert lat["n"] == 8 and 0 < lat["p50"] <= lat["p95"] <= lat["p99"] <= lat["max"]
            assert r["waits_per_token"] == 1 and r["ops_per_step"] > 0
            assert r["ahead_share"] == 0 and r["gap_us"] > 0


def test_steps_are_queued_ahead_when_asked_to(d):
    args = ["zoo/tiny/llama.gguf", "--mode", "decode", "-n", "8", "-r", "1", "--ahead", "always"]
    (row,) = json.loads(bench(d, *args, "--json").text)["results"]
    assert row["ahead_share"] == 1 and row["waits_per_token"] == 1
    assert "100 % of the steps submitted ahead" in bench(d, *args).text


def test_built_in_model_and_artifacts_under_stable_names(d):
    d = os.path.join(d, "made", "here")
    out = bench(d, *FAST, "-b", "1,2", "--backend", "cpu").text
    assert "built-in" in out and "tokens/s" in out and "queued" not in out
    doc = json.load(open(os.path.join(d, "fletch-bench-cpu-built-in-all.json")))
    assert len(doc["results"]) == 6
    page = open(os.path.join(d, "fletch-bench-cpu-built-in-all.html")).read()
    assert page.count("<svg") >= 3 and "prefers-color-scheme:dark" in page
    assert doc["date"][:10] in page and html.escape(doc["machine"]["processor"]) in page
    meanings = re.findall(r'<span><i class="b(\d)"></i>([^<]+)</span>', page)
    assert len(meanings) > 6 and len(dict(meanings)) == len(set(meanings)), meanings
    assert not re.search(r"https?://|<script|<link|src=", page), "the page needs something else"


def test_no_run_overwrites_another(d):
    for mode in ("prefill", "decode"):
        bench(d, GOLDEN, "-r", "1", "-p", "16", "-n", "4", "-d", "8", "--mode", mode, "--backend", "cpu")
    bench(d, "zoo/tiny/llama.gguf", "-r", "1", "-p", "16", "--mode", "prefill", "--backend", "ref")
    bench(d, GOLDEN, "-r", "1", "-n", "4", "--mode", "decode", "--profile", "--backend", "cpu")
    assert sorted(f for f in os.listdir(d) if f.endswith(".json")) == [
        "fletch-bench-cpu-model-decode.json", "fletch-bench-cpu-model-prefill.json",
        "fletch-bench-ref-llama-prefill.json", "fletch-profile-cpu-model-decode.json"]


def test_targets_by_the_names_people_try():
    def make(*args):
        p = subprocess.run(["make", "-n", f"B={BUILD}", *args], capture_output=True, text=True)
        return p.stdout + p.stderr

    for backend in ("cpu", "metal", "cuda"):
        assert f"bench-tps BACKEND={backend}" in make(f"bench-tps-{backend}")
    for target, backend in (("bench", "cpu"), ("bench-tps", "metal")):
        assert f"--backend {backend}" in make(target, f"BACKEND={backend}")
    assert "--backend" not in make("bench")
    assert sys.platform == "darwin" or "macOS only" in make("build-metal")
    for target in ("run", "test"):
        assert "MTL_DEBUG_LAYER=1 MTL_SHADER_VALIDATION=1" in make(target, "DEBUG=metal")
        assert "MTL_" not in make(target)
    capture = make("capture")
    assert capture.index("rm -rf " + BUILD + "/token.gputrace") < capture.index("--capture " + BUILD + "/token.gputrace")
    assert "MTL_CAPTURE_ENABLED=1" in capture


def test_serving_is_measured_for_many_clients(d):
    page = os.path.join(d, "page.html")
    args = ["zoo/tiny/llama.gguf", "--backend", "cpu", "--mode", "serve", "-p", "80", "-n", "6", "-b", "1,3"]
    doc = json.loads(bench(d, *args, "--json", "--html", page).text)
    rows = doc["serve"]
    assert [r["mode"] for r in rows] == ["closed", "closed", "open", "stall", "cancel"]
    assert [r["requests"] for r in rows] == [4, 12, 12, 3, 16]
    for r in rows:
        assert r["tokens_per_second"] > 0 and 0 < r["first_p50"] <= r["first_p95"]
        if r["mode"] != "cancel":
            assert 0 < r["gap_p50"] <= r["gap_p95"] <= r["gap_p99"] <= r["gap_max"]
    assert doc["reused"] > 0.05 and doc["ahead_share"] == 0
    assert rows[3]["long_prompt"] > 500 and rows[3]["usual_gap"] > 0
    assert 0 < rows[4]["cancel_p50"] <= rows[4]["cancel_max"]
    assert open(page).read().count("<svg") == 3
    assert json.load(open(os.path.join(d, "fletch-bench-cpu-llama-serve.json"))) == doc
    out = bench(d, *args).text
    assert "tokens/s" in out and out.count("closed") == 2 and "prompt tokens were cached" in out
    bench(d, *args[:-1], "0", code=2)


def test_drafts_are_measured_on_texts_of_several_kinds(d):
    rows = json.loads(fletch("bench", "zoo/tiny/llama.gguf", "--backend", "cpu", "--mode", "drafts", "--json").text)["drafts"]
    copied, against, schema, story = rows
    assert copied["n_accepted"] > 0 and against["n_accepted"] <= against["n_drafted"] / 2, rows
    assert all(r["n_tokens"] > 20 and abs(r["ratio"] - r["on"] / r["off"]) < 1e-6 for r in rows), rows


def test_csv_has_a_row_per_case(d):
    lines = bench(d, GOLDEN, *FAST, "--csv").text.splitlines()
    assert len(lines) == 4 and lines[0].startswith("mode,n_prompt,n_gen,depth,batch,tokens_per_s")
    assert all(line.count(",") == lines[0].count(",") for line in lines)


def test_html_goes_where_it_is_asked_to(d):
    path = os.path.join(d, "page.html")
    assert path in bench(d, GOLDEN, *FAST, "--backend", "cpu", "--mode", "decode", "--html", path).err
    assert open(path).read().startswith("<!doctype html>")
    assert sorted(os.listdir(d)) == ["fletch-bench-cpu-model-decode.json", "page.html"]


def test_what_can_not_be_saved_or_counted_is_not_measured(d):
    for args, part in [(["--html", f"{d}/none/x.html"], "cannot create"), (["-p", "12,a"], "'a' is not a count")]:
        r = bench(d, GOLDEN, *args, code=2 if "-p" in args else 1)
        assert part in r.err and not r.out and not os.listdir(d), (args, r.err)


def test_names_from_files_are_escaped_in_the_page(d):
    path = os.path.join(d, "<b>&.gguf")
    os.symlink(os.path.abspath(GOLDEN), path)
    bench(d, path, *FAST, "--backend", "cpu", "--mode", "decode")
    assert "<b>&.gguf" not in open(os.path.join(d, "fletch-bench-cpu--b---decode.html")).read()


def document(d, name, speeds):
    doc = {
        "results": [
            {"mode": "decode", "n_prompt": 0, "n_gen": 64, "depth": 256, "batch": b, "samples": s}
            for b, s in speeds.items()
        ]
    }
    path = os.path.join(d, name)
    json.dump(doc, open(path, "w"))
    return path


def test_compare_finds_a_planted_regression(d):
    base = [100, 101, 99, 102, 100, 98, 100]
    a = document(d, "a.json", {1: base, 4: base})
    slower = document(d, "b.json", {1: base, 4: [0.9 * v for v in base]})
    p = bench(d, "compare", a, slower, code=1)
    assert p.text.count("SLOWER") == 1 and "1 of 2 cases" in p.text
    j = json.loads(bench(d, "compare", a, slower, "--json", code=1).text)
    rows = {r["batch"]: r for r in j["comparison"]}
    assert j["regression"] and rows[4]["regression"] and not rows[1]["regression"]
    assert abs(rows[4]["ratio"] - 0.9) < 1e-6 and rows[4]["low"] < 0.9 < rows[4]["high"] < 0.98


def test_compare_forgives_noise_and_praises_speed(d):
    a = document(d, "a.json", {1: [100, 70, 130, 95, 105, 120, 80]})
    noisy = document(d, "b.json", {1: [97, 75, 120, 90, 105, 125, 70]})
    assert "SLOWER" not in bench(d, "compare", a, noisy).text
    faster = document(d, "c.json", {1: [200, 201, 202, 199, 200, 200, 200]})
    assert "faster" in bench(d, "compare", a, faster).text


def test_compare_refuses_what_it_cannot_compare(d):
    a = document(d, "a.json", {1: [100] * 7})
    other = document(d, "b.json", {2: [100] * 7})
    assert "no cases in common" in bench(d, "compare", a, other, code=1).err
    bad = os.path.join(d, "bad.json")
    open(bad, "w").write("{")
    assert "not written by fletch bench" in bench(d, "compare", a, bad, code=1).err
    bench(d, "compare", a, code=2)


def test_profile_is_a_chrome_trace_without_tokens_per_second(d):
    out = bench(d, GOLDEN, *FAST, "--backend", "cpu", "--profile").text
    assert "tokens/s" not in out and "matmul" in out and "layers" in out
    doc = json.load(open(os.path.join(d, "fletch-profile-cpu-model-all.json")))
    assert {e["ph"] for e in doc["traceEvents"]} == {"X"}
    assert {"layer", "bytes"} <= set(doc["traceEvents"][0]["args"])


def test_kernels_are_checked(d):
    doc = json.loads(bench(d, "--kernel", "gate+up+glu", "--shape", "n=256,m=64", "--json").text)
    assert [k["form"] for k in doc["kernels"]] == ["unfused", "fused"]
    for k in doc["kernels"]:
        assert k["ok"] and k["us"] > 0 and k["difference"] <= k["tolerance"]


def test_attention_of_one_row_joins_its_chunks(d):
    shape = "n=64,heads=4,kv_heads=1,head=16,depth=600"
    doc = json.loads(bench(d, "--kernel", "norm+qkv+rope+kv_store+attention", "--shape", shape,
                           "--backend", "emu", "--json").text)
    assert [k["ok"] for k in doc["kernels"]] == [True, True]


def test_bad_options_are_refused(d):
    bench(d, GOLDEN, "-p", "x", code=2)
    bench(d, GOLDEN, "--kernel", "norm", code=2)
    bench(d, GOLDEN, "--shape", "n=1", code=2)
    bench(d, GOLDEN, "--json", "--csv", code=2)
    bench(d, "--kernel", "nothing", code=2)
    for more in [("--kv-type", "q8"), ("-p", "64"), ("-d", "64"), ("--mode", "decode"), ("--profile",), ("--csv",)]:
        bench(d, "--kernel", "attention", *more, code=2)
    open(os.path.join(d, "file"), "w").close()
    assert "cannot" in bench(os.path.join(d, "file"), GOLDEN, *FAST, code=1).err


def test_synthetic_models_run_and_agree_with_the_reference(d):
    models = (("smollm2-135m", "q8_0"), ("rwkv-7-0.4b", "q8_0"), ("Qwen2.5-0.5B", "q4_0"))
    for shape, kind in models:
        path = os.path.join(d, shape + ".gguf")
        fletch("synth", shape, "--type", kind, "--layers", "1", "-o", path)
        doc = json.loads(fletch("inspect", path, "--json").text)
        assert doc["name"].lower().startswith(shape.lower())
        out = fletch("run", path, "-p", "hello", "-n", "2", "--ignore-end").text
        assert out, shape
        v = fletch("verify", path, "--backend", "cpu", "--tokens", "5,300,7", "-n", "1", "--json")
        assert json.loads(v.text)["bad_values"] == 0
        os.unlink(path)


def test_synth_says_what_is_missing(d):
    names = [s["name"] for s in json.loads(fletch("synth", "--list", "--json").text)["shapes"]]
    assert len(set(names)) == len(names) and {"GLM-4.7-Flash", "Qwen3.5-0.8B"} <= set(names)
    assert all(name in fletch("synth", "--list").text for name in names)
    fletch("synth", code=2)
    fletch("synth", "Qwen3-0.6B", code=2)
    assert "--list" in fletch("synth", "gpt-9", "-o", os.path.join(d, "x"), code=2).err
    fletch("synth", "Qwen3-0.6B", "--layers", "29", "-o", os.path.join(d, "x"), code=2)
    assert not os.listdir(d)


run_tests(globals())
