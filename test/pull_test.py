#!/usr/bin/env python3
"""fletch pull, list and rm against a stand-in of Hugging Face on the loopback: test/pull_test.py
BUILD. The stand-in breaks connections, lies about sizes and checksums, redirects, changes files in
between and offers hostile names. Python's standard library only."""

import ctypes.util
import hashlib
import http.server
import json
import os
import pty
import random
import re
import signal
import subprocess
import threading
import time
import urllib.parse

import suite
from suite import FLETCH, run_tests

BIG = random.Random(1).randbytes(300_000)
TINY = open("zoo/tiny/llama.gguf", "rb").read()


class Repo:
    """Files of OWNER/REPO, and what goes wrong with them."""

    def __init__(self, files):
        self.files = dict(files)
        self.sizes, self.sums = {}, {}  # lies
        self.small = set()  # files without a checksum
        self.break_after, self.n_breaks = None, 0  # bytes, times
        self.redirect, self.no_etag, self.etag, self.slow = None, False, None, False
        self.wrong_range, self.statuses = False, []
        self.more_pages = False
        self.revision, self.needs = "main", None  # needs: a token that must come
        self.log, self.tokens = [], []  # (path, range); (path, authorization)

    def tree(self):
        out = [{"type": "directory", "oid": "0", "size": 0, "path": "somewhere"}]
        for path, data in self.files.items():
            size = self.sizes.get(path, len(data))
            entry = {"type": "file", "oid": "0" * 40, "size": size, "path": path}
            if path not in self.small:
                oid = self.sums.get(path, hashlib.sha256(data).hexdigest())
                entry["lfs"] = {"oid": oid, "size": size, "pointerSize": 130}
            out.append(entry)
        return out


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def reply(self, status, body=b"", **headers):
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        repo = self.server.repo
        path = urllib.parse.unquote(self.path.split("?")[0])
        repo.tokens.append((path, self.headers.get("Authorization")))
        if repo.needs and path.startswith(("/api/", "/own/")) and \
                self.headers.get("Authorization") != f"Bearer {repo.needs}":
            return self.reply(401)
        if path == f"/api/models/own/mod/tree/{repo.revision}":
            assert "recursive=true" in self.path
            extra = {"Link": '<http://x/>; rel="next"'} if repo.more_pages else {}
            body = repo.tree() if isinstance(repo.files, dict) else repo.files
            return self.reply(200, json.dumps(body).encode(), **extra)
        for prefix in (f"/own/mod/resolve/{repo.revision}/", "/cdn/"):
            if path.startswith(prefix) and path[len(prefix):] in repo.files:
                return self.send_file(prefix, path[len(prefix):])
        self.reply(404, b"no")

    def send_file(self, prefix, name):
        repo, data = self.server.repo, self.server.repo.files[name]
        wanted = self.headers.get("Range")
        if repo.redirect and prefix != "/cdn/":
            return self.reply(302, Location=repo.redirect + name, ETag='"pointer"')
        repo.log.append((name, wanted))
        if repo.statuses:
            return self.reply(repo.statuses.pop(0))
        etag = repo.etag or '"%s"' % hashlib.md5(data).hexdigest()
        start, status, headers = 0, 200, {}
        if not repo.no_etag:
            headers["ETag"] = etag
        if wanted and self.headers.get("If-Range") == etag:
            start, status = int(wanted[6:].rstrip("-")), 206
            if start >= len(data):
                return self.reply(416)
            if repo.wrong_range:
                start -= 10
            headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
        body = data[start:]
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if repo.break_after is not None and repo.n_breaks > 0:
            repo.n_breaks -= 1
            self.wfile.write(body[: repo.break_after])
            self.wfile.flush()
            self.close_connection = True
            self.connection.shutdown(2)
            return None
        for i in range(0, len(body), 50_000):
            if repo.slow and i == 100_000:
                time.sleep(0.6)  # at least: so that there is a speed
            self.wfile.write(body[i : i + 50_000])
            if i >= (100_000 if repo.slow else 1):
                self.server.go.wait()
        return None


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *args):
        pass  # clients that go away


def start(repo, holds=False):
    """holds: it stands still in the middle of a file."""
    server = Server(("127.0.0.1", 0), Handler)
    server.repo, server.go = repo, threading.Event()
    if not holds:
        server.go.set()
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    server.url = f"http://127.0.0.1:{server.server_address[1]}"
    return server


def environment(d):
    if not ctypes.util.find_library("curl"):
        raise suite.Skip("libcurl is not installed")
    env = {k: v for k, v in os.environ.items() if not k.startswith("HF_")}
    return dict(env, XDG_DATA_HOME=d, XDG_CACHE_HOME=os.path.join(d, "cache"),
                OLLAMA_MODELS=os.path.join(d, "none"), no_proxy="*")


def fletch(d, *args, code=0, env=None):
    return suite.fletch(*args, code=code, env=env or environment(d))


def pull(d, repo, name="own/mod", code=0, **kw):
    server = start(repo)
    try:
        return fletch(d, "pull", name, "--endpoint", server.url, code=code, **kw)
    finally:
        server.shutdown()


def stored(d):
    root = os.path.join(d, "fletch/models")
    return {os.path.relpath(os.path.join(at, f), root)
            for at, _, files in os.walk(root) for f in files}


def content(d, name):
    with open(os.path.join(d, "fletch/models/own/mod", name), "rb") as f:
        return f.read()


def test_one_file_comes_and_runs_by_its_name(d):
    p = pull(d, Repo({"README.md": b"hi", "model-q8.gguf": TINY}))
    assert p.text == "own/mod:model-q8.gguf\n" and stored(d) == {"own/mod/model-q8.gguf"}
    assert content(d, "model-q8.gguf") == TINY
    for name in ("own/mod", "own/mod:model-q8.gguf", "own/mod:Q8"):
        assert fletch(d, "tokenize", name, "a b", "--ids").out
    assert "llama" in fletch(d, "inspect", "own/mod").text
    a = fletch(d, "run", "own/mod", "-p", "Once", "-n", 4, "--seed", 1, "-q")
    assert a.out == fletch(d, "run", "zoo/tiny/llama.gguf", "-p", "Once", "-n", 4, "--seed", 1,
                           "-q").out
    drafted = fletch(d, "run", "own/mod", "--draft", "own/mod:q8", "-p", "Once", "-n", 4, "--seed", 1,
                     "-q")
    assert drafted.out == a.out
    again = pull(d, Repo({"model-q8.gguf": TINY}))
    assert "already downloaded" in again.err and again.out == p.out


def test_which_file(d):
    repo = Repo({"a-Q4_K_M.gguf": b"4", "a-Q8_0.gguf": b"8", "sub/b c+.gguf": b"b",
                 "mmproj-x.gguf": b"m", "s-00001-of-00002.gguf": b"s1",
                 "s-00002-of-00002.gguf": b"s2"})
    others = {name: data for name, data in repo.files.items() if "Q4" not in name}
    p = pull(d, Repo(others), code=2)
    assert "several" in p.err and "  a-Q8_0.gguf\n" in p.err and "mmproj" not in p.err
    assert "00002-of" not in p.err and not stored(d)
    p = pull(d, repo)
    assert p.text == "own/mod:a-Q4_K_M.gguf\n" and "downloading Q4_K_M" in p.err, p.err
    assert stored(d) == {"own/mod/a-Q4_K_M.gguf"}
    assert pull(d, repo, "own/mod:q4_k_m").text == "own/mod:a-Q4_K_M.gguf\n"
    assert pull(d, repo, "own/mod:sub/b c+.gguf").text == "own/mod:sub/b c+.gguf\n"
    assert pull(d, repo, "own/mod:s-0").text == "own/mod:s-00001-of-00002.gguf\n"
    assert content(d, "s-00002-of-00002.gguf") == b"s2" and content(d, "sub/b c+.gguf") == b"b"
    assert "no GGUF file of that name" in pull(d, repo, "own/mod:q5", code=1).err
    names = [m["name"] for m in fletch(d, "list", "--json").json]
    assert names == ["own/mod:a-Q4_K_M.gguf", "own/mod:s-00001-of-00002.gguf",
                     "own/mod:sub/b c+.gguf"]
    assert "several" in fletch(d, "run", "own/mod", "-p", "a", code=2).err
    fletch(d, "rm", "own/mod:s-0")
    assert stored(d) == {"own/mod/a-Q4_K_M.gguf", "own/mod/sub/b c+.gguf"}
    assert "no model 'own/mod:zzz'" in fletch(d, "rm", "own/mod:zzz", code=1).err
    fletch(d, "rm", "own/mod")
    assert not os.path.exists(os.path.join(d, "fletch/models/own"))
    assert "no model 'own/mod'" in fletch(d, "rm", "own/mod", code=1).err


def test_links_in_the_place_of_a_part_are_not_followed(d):
    folder, victim = os.path.join(d, "fletch/models/own/mod"), os.path.join(d, "victim")
    part = os.path.join(folder, "model.gguf.part")
    os.makedirs(folder)
    for link in (os.symlink, os.link):
        for name, code in ((part, 1), (part + ".etag", 0)):
            with open(victim, "w") as f:
                f.write("precious")
            link(victim, name)
            r = pull(d, Repo({"model.gguf": TINY}), code=code)
            assert open(victim).read() == "precious", name
            assert code == 0 or "remove it" in r.err, r.err
            os.unlink(name) if os.path.lexists(name) else None
            fletch(d, "rm", "own/mod") if code == 0 else None
            os.makedirs(folder, exist_ok=True)


def test_a_directory_of_safetensors(d):
    source = "test/golden/models/llama"
    files = {f: open(os.path.join(source, f), "rb").read() for f in os.listdir(source)}
    files["tokenizer.model"] = b"a vocabulary may be nowhere else"
    repo = Repo({**files, ".gitattributes": b"x", "onnx/model.onnx": b"no"})
    repo.small = {f for f in files if f.endswith(".json")}
    assert pull(d, repo).text == "own/mod\n"
    assert {f"own/mod/{f}" for f in files if f.endswith((".json", ".safetensors", ".model"))} <= stored(d)
    assert repo.log[-1][0] == "config.json"  # without it the others are no model yet
    assert "llama" in fletch(d, "inspect", "own/mod").text
    assert [m["name"] for m in fletch(d, "list", "--json").json] == ["own/mod"]


def test_broken_connections_are_taken_up_where_they_broke(d):
    repo = Repo({"m.gguf": BIG})
    repo.break_after, repo.n_breaks = 100_000, 2
    pull(d, repo)
    assert content(d, "m.gguf") == BIG and stored(d) == {"own/mod/m.gguf"}
    ranges = [r for _, r in repo.log]
    assert ranges[0] is None and len(ranges) == 3 and all(r.startswith("bytes=") for r in ranges[1:])


def end_in_the_middle(d, repo, how):
    """A pull that gets a signal; its exit code and what it said."""
    server = start(repo, holds=True)
    p = subprocess.Popen([FLETCH, "pull", "own/mod", "--endpoint", server.url],
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(d))
    part = os.path.join(d, "fletch/models/own/mod/m.gguf.part")
    deadline = time.time() + 60
    while not (os.path.exists(part) and os.path.getsize(part) > 50_000):
        assert time.time() < deadline, "nothing came"
        time.sleep(0.02)
    second = fletch(d, "pull", "own/mod", "--endpoint", server.url, code=1)
    assert "is being downloaded by another fletch pull" in second.err
    p.send_signal(how)
    err = p.communicate(timeout=60)[1].decode()
    server.go.set()
    server.shutdown()
    return p.returncode, err


def test_what_an_interrupted_or_killed_run_left_is_used_by_the_next(d):
    for how in [signal.SIGINT, signal.SIGKILL]:
        repo = Repo({"m.gguf": BIG})
        code, err = end_in_the_middle(d, repo, how)
        assert code == -9 if how == signal.SIGKILL else code == 1 and "interrupted" in err, (code, err)
        assert "own/mod/m.gguf" not in stored(d)
        (left,) = fletch(d, "list", "--json").json
        assert left["name"] == "own/mod:m.gguf" and left["partial"] and left["bytes"] > 50_000
        repo.log.clear()
        pull(d, repo)
        assert content(d, "m.gguf") == BIG and repo.log[0][1] not in (None, "bytes=0-")
        fletch(d, "rm", "own/mod")


def leave_part(d, data, tag):
    folder = os.path.join(d, "fletch/models/own/mod")
    os.makedirs(folder, exist_ok=True)
    with open(folder + "/m.gguf.part", "wb") as f:
        f.write(data)
    with open(folder + "/m.gguf.part.etag", "w") as f:
        f.write(tag)


def test_parts_of_other_versions_are_not_used(d):
    tag = '"%s"' % hashlib.md5(BIG).hexdigest()
    for part, etag in [(b"old" * 1000, '"other"'), (BIG[:1000], ""), (BIG[:1000], 'W/"weak"'),
                       (BIG + b"more", tag), (BIG[:500], "bad\nHost: evil")]:
        leave_part(d, part, etag)
        pull(d, Repo({"m.gguf": BIG}))
        assert content(d, "m.gguf") == BIG
        os.remove(os.path.join(d, "fletch/models/own/mod/m.gguf"))
    leave_part(d, BIG[:1000], tag)
    repo = Repo({"m.gguf": BIG})
    pull(d, repo)
    assert content(d, "m.gguf") == BIG and repo.log == [("m.gguf", "bytes=1000-")]
    os.remove(os.path.join(d, "fletch/models/own/mod/m.gguf"))
    leave_part(d, BIG, tag)  # whole, but not renamed
    repo = Repo({"m.gguf": BIG})
    pull(d, repo)
    assert content(d, "m.gguf") == BIG and repo.log == []


def test_a_damaged_part_is_found_by_its_checksum(d):
    tag = '"%s"' % hashlib.md5(BIG).hexdigest()
    leave_part(d, b"x" + BIG[1:1000], tag)
    p = pull(d, Repo({"m.gguf": BIG}), code=1)
    assert "SHA-256" in p.err and stored(d) == set()
    pull(d, Repo({"m.gguf": BIG}))
    assert content(d, "m.gguf") == BIG


def test_checksums_of_all_lengths(d):
    for n in (0, 1, 55, 56, 63, 64, 65, 119, 120, 128):
        pull(d, Repo({"m.gguf": BIG[:n]}))
        assert content(d, "m.gguf") == BIG[:n]
        fletch(d, "rm", "own/mod")


def test_lies_about_sizes_sums_and_ranges(d):
    repo = Repo({"m.gguf": BIG})
    repo.sums["m.gguf"] = "0" * 64
    assert "SHA-256" in pull(d, repo, code=1).err and stored(d) == set()
    for size in (len(BIG) - 1, len(BIG) + 1, 0):
        repo = Repo({"m.gguf": BIG})
        repo.sizes["m.gguf"] = size
        assert "expected" in pull(d, repo, code=1).err and stored(d) == set()
    tag = '"%s"' % hashlib.md5(BIG).hexdigest()
    leave_part(d, BIG[:1000], tag)
    repo = Repo({"m.gguf": BIG})
    repo.wrong_range = True
    assert "different or fewer" in pull(d, repo, code=1).err and stored(d) == set()
    repo = Repo({"m.gguf": BIG})
    repo.files = [{"path": "m.gguf", "size": -1}]
    assert "did not return a size" in pull(d, repo, code=1).err
    repo.files = {"not": "a list"}
    repo.tree = lambda: {"error": 1}
    assert "list of files" in pull(d, repo, code=1).err


def test_without_tags_a_broken_file_begins_again(d):
    repo = Repo({"m.gguf": BIG})
    repo.no_etag, repo.break_after, repo.n_breaks = True, 100_000, 2
    pull(d, repo)
    assert content(d, "m.gguf") == BIG and [r for _, r in repo.log] == [None] * 3


def test_redirects(d):
    repo = Repo({"m.gguf": BIG})
    server = start(repo)
    repo.redirect = server.url.replace("127.0.0.1", "localhost") + "/cdn/"
    repo.break_after, repo.n_breaks = 100_000, 1
    fletch(d, "pull", "own/mod", "--endpoint", server.url + "/")
    assert content(d, "m.gguf") == BIG and len(repo.log) == 2 and repo.log[1][1]
    fletch(d, "rm", "own/mod")
    for target in (server.url + "/own/mod/resolve/main/", "file:///etc/", "ftp://127.0.0.1/"):
        repo.redirect = target
        assert fletch(d, "pull", "own/mod", "--endpoint", server.url, code=1).err
        assert not any(f.endswith(".gguf") for f in stored(d))
    server.shutdown()


def test_hostile_names(d):
    for name in ("../../../evil.gguf", "/tmp/evil.gguf", "a/../../evil.gguf", ".hidden.gguf",
                 "a\\..\\evil.gguf", "a//b.gguf", "x\n.gguf", "c:evil.gguf", "a/./b.gguf",
                 "x" * 400 + ".gguf", "a/b/c/d/e/f/g.gguf"):
        p = pull(d, Repo({name: b"evil"}), code=1)
        assert "unsafe" in p.err and len(p.err.splitlines()) == 1, (name, p.err)
        assert stored(d) == set() and not os.path.exists("/tmp/evil.gguf")
    for name in ("mod", "../mod", "own/..", "own/mod/x", "own/mod:", "-own/mod", "own/.mod",
                 "own/m od", "", "own/", "/mod", "o" * 200 + "/mod"):
        for command in ("pull", "rm"):
            assert "OWNER/REPO" in fletch(d, command, "--", name, code=2).err, name
    outside = os.path.join(d, "outside")
    os.makedirs(outside)
    open(os.path.join(outside, "keep"), "w").close()
    os.makedirs(os.path.join(d, "fletch/models/own/mod"))
    os.symlink(outside, os.path.join(d, "fletch/models/own/mod/link"))
    fletch(d, "rm", "own/mod")
    assert os.path.exists(os.path.join(outside, "keep"))


def test_servers_that_fail(d):
    repo = Repo({"m.gguf": BIG})
    repo.statuses = [503, 429]
    pull(d, repo)
    assert content(d, "m.gguf") == BIG
    fletch(d, "rm", "own/mod")
    repo.statuses = [403]
    assert "not public" in pull(d, repo, code=1).err
    assert "404" in pull(d, repo, "own/other", code=1).err
    repo.more_pages = True
    assert "too many files" in pull(d, repo, code=1).err
    assert "no GGUF or safetensors files" in pull(d, Repo({"a.txt": b"a"}), code=1).err
    assert "http" in fletch(d, "pull", "own/mod", "--endpoint", "ftp://x", code=2).err
    p = fletch(d, "pull", "own/mod", "--endpoint", "http://127.0.0.1:1", code=1)
    assert len(p.err.splitlines()) == 1 and "127.0.0.1" in p.err


def test_tokens_reach_the_server_and_nobody_else(d):
    token, env = "hf_secret", environment(d)
    repo = Repo({"m.gguf": BIG})
    repo.needs = token
    r = pull(d, repo, code=1)
    assert "401" in r.err and "HF_TOKEN" in r.err, r.err
    server = start(repo)
    repo.redirect = server.url.replace("127.0.0.1", "localhost") + "/cdn/"
    ways = {"env": {"HF_TOKEN": token}, "path": {"HF_TOKEN_PATH": d + "/other"},
            "home": {"HF_HOME": d + "/hf"}, "cache": {}}
    for folder in ("/hf", "/cache/huggingface"):
        os.makedirs(d + folder)
    for way, more in ways.items():
        for name, path in [("path", "/other"), ("home", "/hf/token"), ("cache", "/cache/huggingface/token")]:
            with open(d + path, "w") as f:
                f.write(token + "\n" if way == name else "")
        repo.tokens.clear()
        more["HF_ENDPOINT"] = server.url  # no --endpoint: it is taken from there
        fletch(d, "pull", "own/mod", env=dict(env, **more))
        assert content(d, "m.gguf") == BIG, way
        assert all((a is None) == path.startswith("/cdn/") for path, a in repo.tokens), (way, repo.tokens)
        fletch(d, "rm", "own/mod")
    server.shutdown()
    r = pull(d, repo, code=1, env=dict(env, HF_TOKEN="hf_wrong"))
    assert "401" in r.err and "token does not grant access" in r.err and "hf_wrong" not in r.err, r.err
    for bad in ("a b", "a\r\nHost: evil", "x" * 1000, "\u20ac"):
        assert "valid token" in pull(d, repo, code=1, env=dict(env, HF_TOKEN=bad)).err, bad
    assert "HF_ENDPOINT" in fletch(d, "pull", "own/mod", code=2, env=dict(env, HF_ENDPOINT="x")).err


def test_revisions_and_addresses(d):
    repo = Repo({"m-q8.gguf": TINY, "sub/a b.gguf": TINY})
    for name in ("own/mod@main:q8", "hf.co/own/mod:q8", "https://huggingface.co/own/mod/tree/main",
                 "https://huggingface.co/own/mod/blob/main/sub/a%20b.gguf?download=true",
                 "HTTPS://HuggingFace.co/own/mod/resolve/main/m-q8.gguf#x"):
        code = 2 if name.endswith("tree/main") else 0
        r = pull(d, repo, name, code=code)
        assert r.text.startswith("own/mod:") or code, (name, r.text)
    assert stored(d) == {"own/mod/m-q8.gguf", "own/mod/sub/a b.gguf"}
    repo.revision = "v1.0"
    for name in ("own/mod@v1.0:q8", "https://huggingface.co/own/mod/blob/v1.0/m-q8.gguf"):
        assert pull(d, repo, name).text == "own/mod@v1.0:m-q8.gguf\n"
    assert "own/mod@v1.0/m-q8.gguf" in stored(d)
    assert fletch(d, "tokenize", "own/mod@v1.0", "a b", "--ids").out
    assert "404" in pull(d, repo, "own/mod@v2", code=1).err
    for bad in ("own/mod@", "own/mod@../x", "own/mod@a/b", "hf.co/own", "hf.co/own/mod/x/y/z",
                "hf.co/own/mod/blob/main", "hf.co/own/mod/blob/main/%00.gguf", "hf.co/own/m%2fx",
                "https://huggingface.co/own/mod/tree/..%2f..", "hf.co/" + "a/" * 300):
        assert "OWNER/REPO" in pull(d, repo, bad, code=2).err, bad


def test_space_is_checked_before_anything_comes(d):
    repo = Repo({"m.gguf": BIG})
    repo.sizes["m.gguf"] = 1 << 60
    r = pull(d, repo, code=1)
    assert "1024.0 PiB to download" in r.err and "is free" in r.err and not repo.log, r.err
    repo = Repo({"m-0000%d-of-00009.gguf" % i: b"x" for i in range(1, 10)})
    repo.sizes = {name: (1 << 63) - 1 for name in repo.files}  # their sum is more than 64 bits hold
    assert "to download" in pull(d, repo, code=1).err and not repo.log


def test_proxies_of_the_environment(d):
    repo = Repo({"m.gguf": BIG})
    server = start(repo)
    seen = []
    plain = Handler.do_GET

    class Proxy(Handler):
        def do_GET(self):
            seen.append(self.path)
            self.path = urllib.parse.urlsplit(self.path).path + "?recursive=true"
            plain(self)

    server.RequestHandlerClass = Proxy
    env = dict(environment(d), http_proxy=server.url)
    del env["no_proxy"]
    fletch(d, "pull", "own/mod", "--endpoint", "http://models.invalid", env=env)
    server.shutdown()
    assert content(d, "m.gguf") == BIG and all(s.startswith("http://models.invalid/") for s in seen)


def test_progress_on_a_terminal(d):
    repo = Repo({"m.gguf": BIG})
    repo.slow = True
    server = start(repo, holds=True)
    give_up = threading.Timer(60, server.go.set)
    give_up.start()
    master, slave = pty.openpty()
    p = subprocess.Popen([FLETCH, "pull", "own/mod", "--endpoint", server.url], stderr=slave,
                         stdout=subprocess.PIPE, env=environment(d))
    os.close(slave)
    said = b""
    try:
        while chunk := os.read(master, 4096):
            said += chunk
            if b" left" in said:
                server.go.set()
    except OSError:
        pass
    os.close(master)
    give_up.cancel()
    assert p.wait(30) == 0 and b"m.gguf" in said, said
    assert re.search(rb"\[#+-+\] [0-9.]+ KiB, [0-9.]+ [KMG]?i?B/s, \d+:\d\d left", said), said
    for line in said.decode().replace("\x1b[K", "").split("\r"):
        assert len(line) < 80 and (" left" not in line or line.endswith(" left")), line  # no part is cut
    p.stdout.close()
    server.shutdown()


def test_a_model_that_is_not_here_is_offered(d):
    r = fletch(d, "run", "own/mod", "-p", "Once", code=1)
    assert "not on this machine; download it with: fletch pull own/mod" in r.err, r.err
    for path in "zoo/nothing", "./own/mod", "own/mod.gguf":  # files, by their names
        assert "No such file" in fletch(d, "run", path, "-p", "Once", code=1).err
    server = start(Repo({"m-q8.gguf": TINY}))
    env = dict(environment(d), HF_ENDPOINT=server.url)
    for answer in b"n\n", b"\n":
        master, slave = pty.openpty()
        p = subprocess.Popen([FLETCH, "run", "own/mod", "-p", "Once", "-n", "4"], stdin=slave,
                             stdout=subprocess.PIPE, stderr=slave, env=env)
        os.close(slave)
        said = b""
        try:
            while chunk := os.read(master, 4096):
                said += chunk
                if said.endswith(b"[Y/n] "):
                    os.write(master, answer)
        except OSError:
            pass
        os.close(master)
        out = p.stdout.read()
        p.stdout.close()
        assert (p.wait(30) == 0) == (answer == b"\n") == bool(out), (answer, said, out)
    assert stored(d) == {"own/mod/m-q8.gguf"}
    server.shutdown()


def test_folders(d):
    p = fletch(d, "list")
    assert p.text == "" and "fletch pull" in p.err
    env = {k: v for k, v in environment(d).items() if k not in ("XDG_DATA_HOME", "HOME")}
    assert "HOME" in fletch(d, "list", env=env, code=1).err
    env["HOME"] = d
    pull(d, Repo({"m.gguf": b"m"}), env=env)
    assert os.path.exists(os.path.join(d, ".local/share/fletch/models/own/mod/m.gguf"))
    open(os.path.join(d, "fletch"), "w").close()  # a file where a folder should be
    assert "Not a directory" in pull(d, Repo({"m.gguf": b"m"}), code=1).err


run_tests(globals())
