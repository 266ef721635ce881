#!/usr/bin/env python3
"""Parts of tools/mac-report that run without a Mac: what is measured around a model, and the table
at the end. Called with the build folder."""
import os
import re
import shutil
import subprocess
import sys
import tempfile

REPORT = """== system: sw_vers
ProductVersion: 26.1
== exit status 0

== starts: starts
= first start, start to first token: 3.10 s
= second start, start to first token: 0.40 s
== exit status 0

== tests: make test
== exit status 2

== bench: env BACKEND=metal tools/gpu-check build bench
## Llama-3.2-1B:q8_0
mode,n_prompt,tokens_per_s
decode,0,80.5
= Llama-3.2-1B:q8_0, metal, decode: 80.5 tokens/s, 106.0 GB/s (71 %)
== exit status 0
"""
TABLE = """| mac-report | |
|---|---|
| system | ok |
| starts | ok |
| tests | failed (2) |
| bench | ok |
| first start, start to first token | 3.10 s |
| second start, start to first token | 0.40 s |
| Llama-3.2-1B:q8_0, metal, decode | 80.5 tokens/s, 106.0 GB/s (71 %) |
"""
BENCHED = (r"= tiny:f32, cpu, decode after 16 tokens: \d+\.\d tokens/s, \d+\.\d GB/s \(\d+ %\)",
           r"= tiny:f32, cpu, prefill of 512 tokens: \d+\.\d tokens/s",
           r"= tiny:f32, cpu, prefill of 2048 tokens: \d+\.\d tokens/s")


def gpu_check(build, folder, *what):
    return subprocess.run(['tools/gpu-check', build, *what], capture_output=True, text=True,
                          env=dict(os.environ, BACKEND='cpu', MODELS=folder))


def benched(build, folder):
    """tools/gpu-check measures a model that is there already, and fails where one cannot be opened."""
    model = os.path.join(folder, 'tiny-f32.gguf')
    shutil.copy('zoo/tiny/llama.gguf', model)
    run = gpu_check(build, folder, 'bench', 'tiny:f32')
    lines = [line for line in run.stdout.split('\n') if line.startswith('=')]
    good = run.returncode == 0 and len(lines) == len(BENCHED) and all(map(re.fullmatch, BENCHED, lines))
    good = check('figures of bench are for the table, and its models are no parts', good, run)
    with open(model, 'w') as f:
        f.write('no model')
    run = gpu_check(build, folder, 'bench', 'tiny:f32')
    return good & check('a bench that failed', run.returncode == 1 and '\n=' not in run.stdout, run)


def check(name, ok, said):
    print('ok' if ok else 'not ok', name)
    if not ok:
        print('  ', said)
    return ok


def main():
    build = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, 'report')
        with open(path, 'w') as f:
            f.write(REPORT)
        said = subprocess.run(['tools/mac/table', path], capture_output=True, text=True).stdout
        good = check('table of a report', said == TABLE, said)
        probe = [os.path.join(build, 'tools/mac_probe'), 'emu', 'zoo/tiny/llama.gguf', folder, 'a name', 'start']
        run = subprocess.run(probe, capture_output=True, text=True)
        good &= check('time of a start', bool(re.fullmatch(r'= a name, start to first token: \d+\.\d\d s\n', run.stdout)), run)
        probe[2:3] = [os.path.join(folder, 'none')]
        run = subprocess.run(probe, capture_output=True, text=True)
        good &= check('a model that is not there', run.returncode == 1 and 'mac_probe: ' in run.stderr, run)
        good &= benched(build, folder)
    return not good


if __name__ == '__main__':
    sys.exit(main())
