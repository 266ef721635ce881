"""What the Python tests share: the build they test, how a command is run, and the runner. A test is
a function test_* whose name says what it pins; one that takes an argument gets a folder of its own.

    test/x_test.py BUILD [PART-OF-A-NAME...]"""

import functools
import inspect
import json
import os
import subprocess
import sys
import tempfile
import traceback

BUILD = sys.argv[1] if len(sys.argv) > 1 else "build"
FLETCH = os.path.join(BUILD, "fletch")
ISA = os.environ.get("TEST_ISA")  # what the cpu backend uses where a test does not say (test/run -i)


class Skip(Exception):
    """Raised by a test that can't run here, with the reason."""


class Result:
    """What a command gave: bytes in out; text, err and json are made of what it said."""

    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err.decode("utf-8", "replace")

    @property
    def text(self):
        return self.out.decode()

    @property
    def json(self):
        return json.loads(self.out)


@functools.lru_cache(None)
def takes_isa(command):
    told = subprocess.run([FLETCH, "help", command], capture_output=True, text=True).stdout
    return "--isa NAME" in told


def with_isa(args):
    """The arguments of a command, with the instruction set that is tested where it takes one."""
    args = [*map(str, args)]
    known = not ISA or not args or "--isa" in args or "--backend" in args
    return args if known or not takes_isa(args[0]) else [args[0], "--isa", ISA, *args[1:]]


def fletch(*args, stdin=b"", code=0, timeout=200, **kw):
    """Runs a command and expects its exit code; never lets it see a terminal."""
    p = subprocess.run([FLETCH, *with_isa(args)], input=stdin, stdout=subprocess.PIPE,
                       stderr=subprocess.PIPE, timeout=timeout, **kw)
    r = Result(p.returncode, p.stdout, p.stderr)
    assert r.code == code, f"fletch {' '.join(map(str, args))}: exit {r.code}, not {code}\n{r.err}"
    return r


def run_one(test):
    if inspect.signature(test).parameters:
        with tempfile.TemporaryDirectory(prefix="fletch-test-") as folder:
            test(folder)
    else:
        test()


def run_tests(module):
    """Runs the tests of a module (its globals()), or those with a name that was asked for."""
    only, failed = sys.argv[2:], False
    for name, test in [(n, f) for n, f in module.items() if n.startswith("test_")]:
        if only and not any(o in name for o in only):
            continue
        try:
            run_one(test)
            print(f"ok {name}", flush=True)
        except Skip as why:
            print(f"skip {name}: {why}", flush=True)
        except Exception:
            failed = True
            print(f"not ok {name}\n{traceback.format_exc()}", flush=True)
    sys.exit(failed)
