#!/usr/bin/env python3
"""A server whose caches are all filled under load (tools/fill-memory, for minutes in check-long) takes the memory that
was planned, and what the program itself needs."""

import os
import subprocess
import sys

from suite import BUILD, Skip, run_tests


def test_memory_stays_within_the_plan():
    if not os.path.exists("/proc/self/statm"):
        raise Skip("this system does not say how much memory a process has")
    p = subprocess.run([sys.executable, "tools/fill-memory", "--build", BUILD, "--seconds", "4", "--", "-c", "512",
                        "--parallel", "4"], capture_output=True, text=True, timeout=200)
    assert p.returncode == 0, p.stdout + p.stderr
    print("#", p.stdout.strip())


if __name__ == "__main__":
    run_tests(globals())
