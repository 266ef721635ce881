#!/usr/bin/env python3
"""Two servers behind HAProxy, as in examples/haproxy.cfg: test/replicas_test.py BUILD."""

import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import threading

from serving import ASK, Server, wait_for
from suite import Skip, run_tests

CLIENTS = 10


class Proxy:
    """HAProxy with the example's configuration, but for the addresses."""

    def __init__(self, folder, *replicas):
        haproxy = shutil.which("haproxy", path=os.environ["PATH"] + ":/usr/sbin:/usr/local/sbin")
        if not haproxy:
            raise Skip("there is no haproxy")
        listener = socket.create_server(("127.0.0.1", 0))
        self.port = listener.getsockname()[1]
        with open("examples/haproxy.cfg") as f:
            text = f.read().replace("bind :8000", f"bind fd@{listener.fileno()}")
        ports = iter(r.port for r in replicas)
        text = re.sub(r"10\.0\.0\.\d:8080", lambda _: f"127.0.0.1:{next(ports)}", text)
        path = os.path.join(folder, "haproxy.cfg")
        with open(path, "w") as f:
            f.write(text)
        self.p = subprocess.Popen([haproxy, "-db", "-f", path], pass_fds=[listener.fileno()],
                                  stderr=subprocess.DEVNULL)
        listener.close()
        wait_for(lambda: self.ask("GET", "/readyz") == "whole")

    def ask(self, method, path, body=None):
        """How an answer came: whole; cut, when it had begun to stream; or what went wrong."""
        c, got = http.client.HTTPConnection("127.0.0.1", self.port, timeout=100), b""
        try:
            c.request(method, path, json.dumps(body) if body else None)
            r = c.getresponse()
            if r.status != 200:
                return f"{r.status} {r.read()[:200]}"
            while more := r.read1(1000):
                got += more
            return "whole" if not body or b"data: [DONE]" in got else "cut"
        except (http.client.HTTPException, OSError) as e:
            return "cut" if got else repr(e)
        finally:
            c.close()


def end_one_under_load(folder, how):
    """What became of all requests, when one of two servers gets a signal while others wait there."""
    replicas = [Server("--parallel", 1, "--threads", 1) for _ in range(2)]
    proxy, came, ending = None, [], threading.Event()
    body = {"messages": ASK, "max_tokens": 16, "ignore_end": True, "stream": True}

    def client():
        while not ending.is_set():
            came.append(proxy.ask("POST", "/v1/chat/completions", body))
        came.append(proxy.ask("POST", "/v1/chat/completions", body))
    try:
        proxy = Proxy(folder, *replicas)
        threads = [threading.Thread(target=client) for _ in range(CLIENTS)]
        for t in threads:
            t.start()
        wait_for(lambda: all(r.status()["queue"] >= 2 for r in replicas), 60)
        replicas[0].p.send_signal(how)
        ending.set()
        for t in threads:
            t.join()
        replicas[0].p.wait(60)
        assert replicas[1].get("/livez").status == 200
    finally:
        ending.set()
        for p in [r.p for r in replicas] + ([proxy.p] if proxy else []):
            p.kill()
            p.wait()
    assert len(came) > CLIENTS
    return came


def test_a_killed_server_fails_no_request_that_had_not_begun(folder):
    came = end_one_under_load(folder, signal.SIGKILL)
    assert set(came) <= {"whole", "cut"} and came.count("cut") <= 1, came


def test_a_server_that_is_told_to_end_fails_none(folder):
    came = end_one_under_load(folder, signal.SIGTERM)
    assert set(came) == {"whole"}, came


run_tests(globals())
