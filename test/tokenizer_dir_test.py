#!/usr/bin/env python3
"""Hugging Face directories by the tokenizer files in them: test/tokenizer_dir_test.py BUILD."""

import base64
import json
import os
import shutil

from model_dir import make_llama
from suite import fletch, run_tests

SPM = "test/golden/spm/bpe"
TEMPLATE = "{{ bos_token }}{% for m in messages %}<|user|>{{ m.content }}{{ eos_token }}{% endfor %}"


def put(folder, name, value):
    with open(f"{folder}/{name}", "w", encoding="utf-8") as f:
        json.dump(value, f)


def count_pieces(path):
    """The fields numbered 1 of a protobuf message of strings and messages."""
    data, at, n = open(path, "rb").read(), 0, 0
    while at < len(data):
        field, at, size, shift = data[at] >> 3, at + 1, 0, 0
        while True:
            size |= (data[at] & 127) << shift
            at, shift = at + 1, shift + 7
            if data[at - 1] < 128:
                break
        n, at = n + (field == 1), at + size
    return n


def put_sentencepiece(folder):
    """Beside the pieces: a token in each of the three files that can name one."""
    n = count_pieces(f"{SPM}.model")
    shutil.copy(f"{SPM}.model", f"{folder}/tokenizer.model")
    put(folder, "added_tokens.json", {"<tool>": n, "<|user|>": n + 1})
    put(folder, "special_tokens_map.json",
        {"bos_token": "<s>", "eos_token": {"content": "</s>"}, "unk_token": "<unk>",
         "additional_special_tokens": ["<|user|>"]})
    put(folder, "tokenizer_config.json",
        {"tokenizer_class": "LlamaTokenizer", "legacy": False, "chat_template": TEMPLATE,
         "added_tokens_decoder": {"0": {"content": "<unk>", "special": True},
                                  "1": {"content": "<s>", "special": True},
                                  "2": {"content": "</s>", "special": True},
                                  str(n + 2): {"content": "<|strip|>", "special": True,
                                               "lstrip": True, "rstrip": True}}})
    return n


def ids_of(model, text, *args):
    text = text.encode() if isinstance(text, str) else text
    return [int(i) for i in fletch("tokenize", model, "--ids", *args, stdin=text).text.split()]


def back(model, ids):
    return fletch("detokenize", model, " ".join(map(str, ids))).out


def check_sentencepiece(model, n):
    """What the sentencepiece library says of texts, and added tokens in theirs."""
    cases = json.load(open(f"{SPM}.json"))["cases"]
    for case in cases[::7]:
        text = base64.b64decode(case["text"])
        if not text:
            continue
        assert ids_of(model, text, "--no-bos") == case["ids"], text
        assert back(model, case["ids"]) == base64.b64decode(case["decoded"]), text
    the = ids_of(model, "the", "--no-bos")
    assert ids_of(model, "the") == [1] + the, "the class begins texts with bos"
    assert ids_of(model, "\u2603", "--no-bos")[-3:] == [3 + b for b in "\u2603".encode()], "byte fallback"
    # a token that is not special is found in any text, the special ones where they are asked for
    assert ids_of(model, "the<tool>") == [1] + the + [n]
    assert n + 1 not in ids_of(model, "the<|user|>")
    assert ids_of(model, "the<|user|>", "--special") == [1] + the + [n + 1]
    assert ids_of(model, "the <|strip|> \n", "--special") == [1] + the + [n + 2]
    assert ids_of(model, "</s>", "--special") == [1, 2]
    assert back(model, [1] + the + [n]) == b" the<tool>" or back(model, the + [n]) == b"the<tool>"
    chat = json.dumps([{"role": "user", "content": "the"}]).encode()
    assert fletch("template", model, stdin=chat).text.strip() == "<s><|user|>the</s>"


def test_a_directory_with_only_a_sentencepiece_model(folder):
    m = make_llama(f"{folder}/m", count_pieces(f"{SPM}.model") + 10)
    n = put_sentencepiece(m)
    check_sentencepiece(m, n)
    fletch("convert", m, "-o", f"{folder}/m.gguf", "--type", "f32", "-q")
    check_sentencepiece(f"{folder}/m.gguf", n)
    a, b = (fletch("run", x, "-q", "-p", "the", "-n", 8, "--temp", 0).out for x in (m, f"{folder}/m.gguf"))
    assert a == b


def test_tokenizer_files_alone_are_enough_for_text(folder):
    n = put_sentencepiece(folder)
    check_sentencepiece(folder, n)
    for name in ("added_tokens.json", "special_tokens_map.json", "tokenizer.model"):
        os.remove(f"{folder}/{name}")
    shutil.copy("test/golden/tok/qwen2/tokenizer.json", folder)
    with open(f"{folder}/chat_template.jinja", "w") as f:
        f.write("<|im_start|>{{ messages[0].content }}")
    put(folder, "tokenizer_config.json", {})
    assert back(folder, ids_of(folder, "hello world")) == b"hello world"
    chat = b'[{"role": "user", "content": "hi"}]'
    assert fletch("template", folder, stdin=chat).text.strip() == "<|im_start|>hi"
    # what config.json says does not matter, nor that there are weights which nothing here can read
    put(folder, "config.json", {"architectures": ["NewForCausalLM"], "model_type": "new", "vocab_size": 9999})
    want = ids_of(folder, "hello world")
    assert back(folder, want) == b"hello world"
    os.remove(f"{folder}/tokenizer.json")
    assert "no vocabulary" in fletch("tokenize", folder, "hello", code=1).err
    for command in (["run", folder, "-p", "hello"], ["inspect", folder], ["plan", folder]):
        fletch(*command, code=4)


def put_merges(folder, name, **config):
    """A golden vocabulary in the form before tokenizer.json; where its ids are those of the library."""
    tok = json.load(open(f"test/golden/tok/{name}/tokenizer.json", encoding="utf-8"))
    put(folder, "vocab.json", tok["model"]["vocab"])
    with open(f"{folder}/merges.txt", "w", encoding="utf-8") as f:
        merges = (m if isinstance(m, str) else " ".join(m) for m in tok["model"]["merges"])
        f.write("#version: 0.2\n" + "\n".join(merges) + "\n")
    decoder = {str(t["id"]): {k: v for k, v in t.items() if k != "id"} for t in tok["added_tokens"]}
    put(folder, "tokenizer_config.json", {"added_tokens_decoder": decoder, **config})
    return json.load(open(f"test/golden/tok/{name}/cases.json"))


def check_cases(model, cases):
    plain = [c for c in cases if not c["special"] and not c["bos"] and c["text_b64"]]
    special = [c for c in cases if c["special"] and not c["bos"] and c["text_b64"]]
    assert len(plain) > 20 and len(special) > 3
    for case in plain[::8] + special[::4]:
        text = base64.b64decode(case["text_b64"])
        args = ["--no-bos"] + ["--special"] * case["special"]
        assert ids_of(model, text, *args) == case["ids"], text


def test_vocabulary_and_merges_are_cut_as_their_class_says(folder):
    for name, kind in (("gpt-2", "GPT2Tokenizer"), ("qwen2", "Qwen2Tokenizer")):
        sub = f"{folder}/{name}"
        os.mkdir(sub)
        check_cases(sub, put_merges(sub, name, tokenizer_class=kind))
    # the class also names a token, here of the vocabulary itself
    vocab = json.load(open(f"{folder}/gpt-2/vocab.json", encoding="utf-8"))
    vocab["<|endoftext|>"] = len(vocab)
    put(f"{folder}/gpt-2", "vocab.json", vocab)
    put(f"{folder}/gpt-2", "tokenizer_config.json", {"tokenizer_class": "GPT2Tokenizer", "add_bos_token": True})
    end = vocab["<|endoftext|>"]
    assert ids_of(f"{folder}/gpt-2", "") == [end]
    assert ids_of(f"{folder}/gpt-2", "<|endoftext|>", "--special", "--no-bos") == [end]
    assert end not in ids_of(f"{folder}/gpt-2", "<|endoftext|>", "--no-bos")


def test_merges_of_another_class_and_damaged_ones_are_refused(folder):
    put_merges(folder, "qwen2", tokenizer_class="NewTokenizer")
    assert "vocab.json, which is not supported" in fletch("tokenize", folder, "a", code=4).err
    put_merges(folder, "qwen2", tokenizer_class="Qwen2Tokenizer")
    for merges, part in ((b"#version\nab\n", "not two tokens"), (b"\xff \xff\n", "not UTF-8")):
        with open(f"{folder}/merges.txt", "wb") as f:
            f.write(merges)
        assert part in fletch("tokenize", folder, "a", code=4).err
    os.remove(f"{folder}/merges.txt")
    assert "vocab.json, which is not supported" in fletch("tokenize", folder, "a", code=4).err


def test_a_directory_without_any_of_them_is_refused_in_a_line(folder):
    r = fletch("tokenize", folder, "hello", code=4)
    assert "neither a tokenizer.json nor a tokenizer.model" in r.err and r.err.count("\n") == 1, r.err
    with open(f"{folder}/config.json", "w") as f:
        f.write("{")
    fletch("tokenize", folder, "hello", code=4)


run_tests(globals())
