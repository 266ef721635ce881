"""fletch embed and rerank, /v1/embeddings and /v1/rerank, on the zoo's model with other metadata.
A reranker's score is compared with the logits of the same prompt.

    test/embed_test.py BUILD [PART-OF-A-NAME...]"""

import base64
import math
import os
import struct

from serving import Server
from suite import FLETCH, fletch, run_tests

ZOO = "zoo/qwen3.gguf"
U32, STR = 4, 8
SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
PROMPT = "<|im_start|>user\nIs {document} an answer to {query}?<|im_end|>\n<|im_start|>assistant\n"
EXACT = ["--backend", "ref", "--act-type", "f32"]
DOCUMENTS = ["It rains.", "The panda is a bear.", "<|im_end|> is text here"]


def string(s):
    return struct.pack("<Q", len(s.encode())) + s.encode()


def entry(key, v):
    if isinstance(v, int):
        return string(key) + struct.pack("<II", U32, v)
    return string(key) + struct.pack("<I", STR) + string(v)


def edited(folder, name, entries=None, rows=()):
    """The zoo's model with more metadata (or another name), and two rows of its embedding, which is
    its output matrix too, as cls.output.weight."""
    with open(ZOO, "rb") as f:
        data = f.read()
    n_tensors, n_kvs = struct.unpack("<QQ", data[8:24])
    at, kvs, dropped = 24, b"", set(entries or ())

    def text():
        nonlocal at
        n = struct.unpack_from("<Q", data, at)[0]
        at += 8 + n
        return data[at - n:at].decode("utf-8", "replace")

    for _ in range(n_kvs):
        begin, key = at, text()
        kind = struct.unpack_from("<I", data, at)[0]
        at += 4
        n = 1
        if kind == 9:
            kind, n = struct.unpack_from("<IQ", data, at)
            at += 12
        for _ in range(n):
            at = at if kind != STR else (text(), at)[1]
        at += 0 if kind == STR else n * SIZES[kind]
        if key not in dropped:
            kvs += data[begin:at]
        else:
            n_kvs -= 1
    tensors, begin = {}, at
    for _ in range(n_tensors):
        name_of = text()
        n_dims = struct.unpack_from("<I", data, at)[0]
        dims = struct.unpack_from(f"<{n_dims}Q", data, at + 4)
        kind, offset = struct.unpack_from("<IQ", data, at + 4 + 8 * n_dims)
        at += 16 + 8 * n_dims
        tensors[name_of] = (dims, kind, offset)
    infos, body = data[begin:at], data[-(-at // 32) * 32:]
    body += bytes(-len(body) % 32)
    if rows:
        (width, _), kind, offset = tensors["token_embd.weight"]
        assert kind == 8, "Q8_0"
        n_row = width // 32 * 34
        infos += string("cls.output.weight") + struct.pack("<IQQIQ", 2, width, len(rows), kind, len(body))
        for r in rows:
            body += body[offset + r * n_row:offset + (r + 1) * n_row]
        n_tensors += 1
    for key, v in (entries or {}).items():
        kvs += entry(key, v)
        n_kvs += 1
    out = data[:8] + struct.pack("<QQ", n_tensors, n_kvs) + kvs + infos
    path = os.path.join(folder, name)
    with open(path, "wb") as f:
        f.write(out + bytes(-len(out) % 32) + body)
    return path


def ids_of(text):
    return [int(i) for i in fletch("tokenize", "--ids", "--special", ZOO, text).text.split()]


def expected(folder, prompt, rows):
    """The probability of the first row among these, from the logits after the prompt."""
    ids = prompt if isinstance(prompt, list) else ids_of(prompt)
    path = os.path.join(folder, "logits")
    fletch("eval", ZOO, "--tokens", ",".join(map(str, ids)), "--logits", path, *EXACT)
    with open(path, "rb") as f:
        data = f.read()
    n_vocab = len(data) // 4 // len(ids)
    last = struct.unpack(f"<{n_vocab}f", data[-4 * n_vocab:])
    return 1 / sum(math.exp(last[r] - last[rows[0]]) for r in rows)


def scores(model, query, documents):
    got = fletch("rerank", model, query, *documents, "--json", *EXACT).json
    assert [r["text"] for r in got["results"]] == [documents[r["index"]] for r in got["results"]]
    found = [r["score"] for r in got["results"]]
    assert found == sorted(found, reverse=True)
    return {r["index"]: r["score"] for r in got["results"]}


def test_a_reranker_reads_its_template_and_its_head(d):
    rows = [70, 300]
    model = edited(d, "rank.gguf", {"qwen3.pooling_type": 4, "tokenizer.chat_template.rerank": PROMPT}, rows)
    got = scores(model, "bears", DOCUMENTS[:2])
    for i, document in enumerate(DOCUMENTS[:2]):
        want = expected(d, PROMPT.replace("{query}", "bears").replace("{document}", document), rows)
        assert abs(got[i] - want) < 1e-4, (got[i], want)


def test_control_tokens_in_documents_are_text(d):
    model = edited(d, "rank.gguf", {"qwen3.pooling_type": 4, "tokenizer.chat_template.rerank": PROMPT}, [70, 300])
    name = "<|im_end|>"
    n_tokens = fletch("rerank", model, "bears", f"a{name}b", "--json").json["n_tokens"]
    as_token = len(ids_of(PROMPT.replace("{query}", "bears").replace("{document}", f"a{name}b")))
    assert n_tokens > as_token + 3, (n_tokens, as_token)


def test_labels_name_the_row(d):
    plain = {"qwen3.pooling_type": 4, "tokenizer.chat_template.rerank": PROMPT}
    one = scores(edited(d, "a.gguf", plain, [70, 300]), "bears", DOCUMENTS[:2])
    other = scores(edited(d, "b.gguf", plain, [300, 70]), "bears", DOCUMENTS[:2])
    assert all(abs(one[i] + other[i] - 1) < 1e-4 for i in one)


def test_a_published_reranker_is_known_by_its_name(d):
    rows = [ids_of("yes")[-1], ids_of("no")[-1]]
    model = edited(d, "named.gguf", {"general.name": "Qwen3-Reranker-0.6B"})
    got = scores(model, "bears", DOCUMENTS[:1])[0]
    prompt = (
        "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
        'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n<Instruct>: Given a web '
        "search query, retrieve relevant passages that answer the query\n<Query>: bears\n<Document>: It rains.<|im_end|>\n"
        "<|im_start|>assistant\n<think>\n\n</think>\n\n")
    assert abs(got - expected(d, prompt, rows)) < 1e-4


def test_models_without_a_head_are_refused(d):
    r = fletch("rerank", ZOO, "bears", "It rains.", code=1)
    assert "not a reranker" in r.err and r.err.count("\n") == 1
    r = fletch("rerank", edited(d, "rank.gguf", {"qwen3.pooling_type": 4}), "bears", "It rains.", code=4)
    assert "cls.output.weight" in r.err
    bad = edited(d, "bad.gguf", {"qwen3.pooling_type": 4, "tokenizer.chat_template.rerank": "{query}"}, [1, 2])
    assert "{document}" in fletch("rerank", bad, "bears", "It rains.", code=4).err
    r = fletch("embed", edited(d, "r.gguf", {"qwen3.pooling_type": 4}, [1, 2]), "bears", code=1)
    assert "reranker" in r.err


def test_embeddings_follow_the_files_pooling(d):
    texts = ["Once upon a time", "there was a bear"]
    vectors = {}
    for kind, name in (1, "mean"), (2, "cls"), (3, "last"):
        model = edited(d, f"{name}.gguf", {"qwen3.pooling_type": kind})
        got = fletch("embed", model, *texts, "--json").json
        assert got["pooling"] == name and got["dimensions"] == len(got["embeddings"][0]["embedding"])
        vectors[name] = [e["embedding"] for e in got["embeddings"]]
        assert all(abs(sum(x * x for x in v) - 1) < 1e-5 for v in vectors[name])
    assert vectors["mean"] == [
        e["embedding"] for e in fletch("embed", ZOO, *texts, "--json").json["embeddings"]]
    assert vectors["mean"][0] != vectors["last"][0] != vectors["cls"][0]
    with open(os.path.join(d, "lines"), "w") as f:
        f.write("\n".join(texts) + "\n\n")
    lines = fletch("embed", os.path.join(d, "last.gguf"), "-f", os.path.join(d, "lines")).text.split("\n")
    assert len(lines) == 3 and all(
        abs(float(x) - y) < 1e-6 for line, v in zip(lines, vectors["last"]) for x, y in zip(line.split(), v))


def test_the_server_ranks_as_the_command_does(d):
    model = edited(d, "rank.gguf", {"qwen3.pooling_type": 4, "tokenizer.chat_template.rerank": PROMPT}, [70, 300])
    s = Server(model)
    long = DOCUMENTS + ["a word " * 200]
    got = s.post("/v1/rerank", {"query": "bears", "documents": long})
    want = fletch("rerank", model, "bears", *long, "--json").json
    assert [r["index"] for r in got["results"]] == [r["index"] for r in want["results"]]
    assert all(abs(a["relevance_score"] - b["score"]) < 1e-5 for a, b in zip(got["results"], want["results"]))
    assert got["usage"]["total_tokens"] == want["n_tokens"]
    top = s.post("/rerank", {"query": "bears", "documents": [{"text": t} for t in DOCUMENTS], "top_n": 1,
                             "return_documents": True, "model": got["model"]})
    assert len(top["results"]) == 1
    assert top["results"][0]["document"] == {"text": DOCUMENTS[top["results"][0]["index"]]}
    tei = s.post("/rerank", {"query": "bears", "texts": DOCUMENTS, "return_text": True})
    assert [r["text"] for r in tei] == [DOCUMENTS[r["index"]] for r in tei] and "score" in tei[0]
    for body, part in (({"documents": ["x"]}, "query"), ({"query": "x"}, "documents"),
                       ({"query": "x", "documents": []}, "documents"), ({"query": 1, "documents": ["x"]}, "query"),
                       ({"query": "x", "documents": [1]}, "documents[0]"),
                       ({"query": "x", "documents": ["x"], "texts": ["x"]}, "either"),
                       ({"query": "x", "documents": ["x"], "top_n": 0}, "top_n")):
        assert part in s.post("/v1/rerank", body, 400)["error"]["message"], body
    assert "reranker" in s.post("/v1/embeddings", {"input": "x"}, 400)["error"]["message"]
    s.p.terminate()


def test_the_server_names_the_pooling(d):
    model = edited(d, "last.gguf", {"qwen3.pooling_type": 3})
    s = Server(model)
    text = "a word and another " * 60  # several steps
    got = s.post("/v1/embeddings", {"input": [text, "x"], "encoding_format": "base64"})
    assert got["pooling"] == "last"
    v = struct.unpack(f"<{len(base64.b64decode(got['data'][0]['embedding'])) // 4}f",
                      base64.b64decode(got["data"][0]["embedding"]))
    want = fletch("embed", model, text, "--json").json["embeddings"][0]["embedding"]
    assert max(abs(a - b) for a, b in zip(v, want)) < 1e-3
    assert "not a reranker" in s.post("/v1/rerank", {"query": "x", "documents": ["y"]}, 400)["error"]["message"]
    s.p.terminate()


if __name__ == "__main__":
    run_tests(globals())
