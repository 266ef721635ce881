#!/usr/bin/env python3
"""Parts of tools/mac-report that run without a Mac: what is measured around a model, and the table
at the end. Called with the build folder."""
import os
import re
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
"""
TABLE = """| mac-report | |
|---|---|
| system | ok |
| starts | ok |
| tests | failed (2) |
| first start, start to first token | 3.10 s |
| second start, start to first token | 0.40 s |
"""


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
    return not good


if __name__ == '__main__':
    sys.exit(main())
