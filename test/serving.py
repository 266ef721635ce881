"""What tests of the server share: a server on a port of its own, and how to wait for it."""

import atexit
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time

from suite import FLETCH, with_isa

ASK = [{"role": "user", "content": "How do I make a model smaller?"}]


class Server:
    """A server of its own, on a port of its own."""

    def __init__(self, *args, asan_options="", waits=True, **more_env):
        env = {**os.environ, **more_env, "ASAN_OPTIONS": f"{os.environ.get('ASAN_OPTIONS', '')}:{asan_options}"}
        keeps = any(a in ("--cache-dir", "--cache-disk") for a in args) or "XDG_CACHE_HOME" in more_env
        args = args if keeps else ("--cache-disk", "0", *args)  # nothing of tests stays in the user's folder
        self.p = subprocess.Popen(
            [FLETCH, *with_isa(["serve", "--port", "0", "--threads", "2", *args])], env=env,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        atexit.register(self.p.kill)  # where a test failed before it ended its server
        self.lines = []
        while not (found := re.search(r"listening on https?://127\.0\.0\.1:(\d+)",
                                      line := self.p.stderr.readline())):
            assert line, f"it ended: {self.lines}"
            self.lines.append(line)
        self.port = int(found[1])
        self.reader = threading.Thread(target=lambda: self.lines.extend(self.p.stderr), daemon=True)
        self.reader.start()
        wait_for(lambda: not waits or "--model-dir" in args or any("is ready" in x for x in self.lines))

    def request(self, method, path, body=None, headers=None, timeout=60):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        c.request(method, path, body, headers or {})
        r = c.getresponse()
        r.text = r.read().decode()
        r.json = json.loads(r.text) if r.text and "json" in (r.getheader("content-type") or "") else None
        c.close()
        return r

    def get(self, path, **headers):
        return self.request("GET", path, headers={k.replace("_", "-"): v for k, v in headers.items()})

    def post(self, path, body, status=200, **headers):
        data = body if isinstance(body, (bytes, str)) else json.dumps(body)
        r = self.request("POST", path, data, {k.replace("_", "-"): v for k, v in headers.items()})
        assert r.status == status, f"{path} {data[:200]}: {r.status} {r.text[:300]}"
        return r.json if r.json is not None else r.text

    def chat(self, status=200, **body):
        return self.post("/v1/chat/completions", {"messages": ASK, "seed": 1, **body}, status)

    def complete(self, prompt, status=200, **body):
        return self.post("/v1/completions", {"prompt": prompt, "seed": 1, **body}, status)

    def stream(self, path="/v1/chat/completions", **body):
        """Chunks of a stream; checks its form."""
        text = self.post(path, {"messages": ASK, "seed": 1, **body, "stream": True}
                         if "prompt" not in body else {"seed": 1, **body, "stream": True})
        events = text.split("\n\n")
        assert events[-2:] == ["data: [DONE]", ""], text[-200:]
        return [json.loads(e.removeprefix("data: ")) for e in events[:-2]]

    def open(self, data):
        """A connection on which bytes were sent."""
        s = socket.create_connection(("127.0.0.1", self.port), timeout=30)
        s.sendall(data)
        return s

    def status(self):
        return self.get("/v1/status").json

    def end(self, how=signal.SIGTERM, code=0, timeout=30):
        self.p.send_signal(how)
        assert self.p.wait(timeout) == code, f"exit {self.p.returncode}: {self.lines[-5:]}"


def wait_for(condition, seconds=20):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it took too long"
        time.sleep(0.02)


def raw_post(body, path="/v1/chat/completions"):
    data = json.dumps(body).encode()
    return (f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n\r\n".encode()
            + data)
