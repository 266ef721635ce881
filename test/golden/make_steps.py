#!/usr/bin/env python3
"""Makes test/golden/steps.json: what the `tokenizers` library does with every normalizer,
pre_tokenizer, post_processor and decoder that fletch reads, on three small models. See README.md."""

import base64
import json
import os
import sys

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

import texts

HERE = os.path.dirname(os.path.abspath(__file__))
SPACE = "\u2581"
TEXTS = [
    "Hello, world!  It's 3.14159 or 2,718\tand\u00a0more.",
    "  two  leading,\n\n  and trailing   ",
    "a,b;;c--d(e)[f]{g}<h>=$5+^`~| \u00bfq? \u201cw\u201d \u2014 \u3002",
    "caf\u00e9 cafe\u0301 \u0130stanbul STRASSE \u1e9e \ufb01n \u00bd \u2460 \u216b \u0661\u0662",
    "\u4e2d\u6587\u548c\u65e5\u672c\u8a9e\u306e\u6587\u7ae0\u3001\ud55c\uad6d\uc5b4 \u1112\u1161\u11ab",
    "don't WE'LL they\u2019re 's 'S \u017fo I'M",
    "x\ufffdy\u200bz\u200d\u0085v\u2028w\ufeff \x01\x7f|\u3000|",
    "\U0001f469\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea \U0001f44d\U0001f3fd ok",
    "snake_case camelCase HTTPServer2x 12345678 0x1F",
    "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35 \u0928\u092e\u0938\u094d\u0924\u0947 \u05e9\u05c1\u05dc\u05d5\u05dd",
    "the the the tin tinn\n\r\n \t end",
    SPACE + "literal" + SPACE + SPACE + "mark " + SPACE,
    " ",
    "\n",
    "<s>text</s> <s> a</s>b <user> c<user>",
    "",
]
REGEX = [
    r"\d+|\w+", r"[^\s\w]+", r"\s+$", r"^\S+", r"(?=\d{2})", r"\b", r"[\p{Lu}\p{Lt}]\p{Ll}*",
    r"(?i:the|t(?!i))|\p{P}{2,}?", r"[\S]{,3}", r"(?<=[aeiou])\w", r".{4}", r"[\x61-\x66\u0067]+",
    r"\p{Han}|\p{^L}", r"[[:alpha:][:punct:]]+", r"^.|.$", r"(?>a|ab)c?|\x{65}\s*",
]  # fmt: skip
BEHAVIORS = ["Isolated", "Removed", "Contiguous", "MergedWithPrevious", "MergedWithNext"]
GPT4O = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def byte_level(prefix=False, regex=False):
    return dict(type="ByteLevel", add_prefix_space=prefix, trim_offsets=True, use_regex=regex)


def split(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return dict(type="Split", pattern={kind: pattern}, behavior=behavior, invert=invert)


def chain(*steps, key="pretokenizers"):
    return {"type": "Sequence", key: list(steps)}


def metaspace(scheme, whole=False):
    return dict(type="Metaspace", replacement=SPACE, prepend_scheme=scheme, split=not whole)


def replace(a, b, kind="String"):
    return dict(type="Replace", pattern={kind: a}, content=b)


def charsmap():
    """A precompiled map of our own: a double array over the words, and their texts."""
    rules = {"\ufb01": "fi", "\u00a0": " ", "\t": " ", "e\u0301": "\u00e9", "\u2460": "1", "\u3000": " ",
             "\u200b": "", "\u1112\u1161\u11ab": "\ud55c", "\u0085": "", "A": "a", "AB": "x"}  # fmt: skip
    pool, offsets = b"", {}
    for key, text in rules.items():
        offsets[key.encode()] = len(pool)
        pool += text.encode() + b"\0"
    units = {0: 0}
    used = {0}

    def place(node, words, depth):
        """Finds a base so that all children of the node are free, and fills them in."""
        labels = sorted({w[depth] if len(w) > depth else 0 for w in words})
        base = 1
        while any((node ^ base ^ l) in used or (node ^ base ^ l) <= 0 for l in labels):
            base += 1
        assert base < 1 << 21
        units[node] |= base << 10
        children = {l: node ^ base ^ l for l in labels}
        used.update(children.values())
        for label, child in children.items():
            if label == 0:
                units[node] |= 1 << 8
                units[child] = 1 << 31 | next(offsets[w] for w in words if len(w) == depth)
            else:
                units[child] = label
        for label, child in children.items():
            if label:
                place(child, [w for w in words if len(w) > depth and w[depth] == label], depth + 1)

    place(0, list(offsets), 0)
    n = (max(units) | 0xFF) + 1
    blob = b"".join(units.get(i, 0).to_bytes(4, "little") for i in range(n))
    return base64.b64encode(len(blob).to_bytes(4, "little") + blob + pool).decode()


def train():
    """Merges that know no borders, so that every border a step makes can be seen."""
    lines = [l for t in texts.corpus() for l in t.split("\n")][:400] + TEXTS * 3
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    out = {}
    for name in ("bytes", "chars"):
        tok = Tokenizer(models.BPE())
        if name == "bytes":
            tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        else:
            lines = [l.replace(" ", SPACE) for l in lines]
        tok.train_from_iterator(
            lines,
            trainers.BpeTrainer(
                vocab_size=460 if name == "bytes" else 330,
                max_token_length=5,
                initial_alphabet=alphabet if name == "bytes" else [" "],
                limit_alphabet=256 if name == "bytes" else 120,
                special_tokens=["<unk>", "<s>", "</s>"],
                show_progress=False,
            ),
        )
        model = json.loads(tok.to_str())["model"]
        if name == "chars":
            model["unk_token"] = "<unk>"
            model["merges"] = [m for m in model["merges"] if " " not in m[0] + m[1]]
            chars = dict(model, fuse_unk=True)
            n = len(model["vocab"])
            bytes_vocab = dict(model["vocab"], **{f"<0x{b:02X}>": n + b for b in range(256)})
            out["chars"] = dict(model, fuse_unk=False)
            out["chars-fused"] = chars
            out["chars-bytes"] = dict(model, vocab=bytes_vocab, byte_fallback=True, fuse_unk=True)
        else:
            out["bytes"] = dict(model, unk_token=None)
            out["bytes-whole"] = dict(model, unk_token=None, ignore_merges=True)
    tok = Tokenizer(models.Unigram())
    tok.train_from_iterator(
        lines,
        trainers.UnigramTrainer(
            vocab_size=420, unk_token="<unk>", show_progress=False, max_piece_length=5,
            special_tokens=["<unk>", "<s>", "</s>"]
        ),
    )  # fmt: skip
    model = json.loads(tok.to_str())["model"]
    # In single precision, as files of other engines have them.
    import struct

    vocab = [[t, struct.unpack("f", struct.pack("f", s))[0]] for t, s in model["vocab"]]
    out["unigram"] = dict(model, vocab=vocab, unk_id=0, byte_fallback=False)
    vocab = vocab + [[f"<0x{b:02X}>", 0.0] for b in range(256)]
    out["unigram-bytes"] = dict(model, vocab=vocab, unk_id=0, byte_fallback=True)
    return out


def cases():
    """(name, model, parts of tokenizer.json)"""
    out = []

    def add(name, model, **parts):
        parts = {k.replace("pre", "pre_tokenizer", 1) if k == "pre" else k: v for k, v in parts.items()}
        out.append((name, model, parts))

    for i, regex in enumerate(REGEX):
        for b, behavior in enumerate(BEHAVIORS):
            invert = (i + b) % 2 == 1
            add(f"split {i} {behavior} {invert}", "bytes", pre=chain(split(regex, behavior, invert), byte_level()))
    for behavior in BEHAVIORS:
        for invert in (False, True):
            add(f"string {behavior} {invert}", "bytes", pre=chain(split(" ", behavior, invert, "String"), byte_level()))
            add(f"after {behavior} {invert}", "bytes", pre=chain(byte_level(), split("Ġ|\\p{N}", behavior, invert)))
        add(f"punctuation {behavior}", "bytes", pre=chain(dict(type="Punctuation", behavior=behavior), byte_level()))
    add("gpt-4o", "bytes", pre=chain(split(GPT4O, "Removed", True), byte_level()), decoder=byte_level())
    add("whole", "bytes-whole", pre=chain(split(r"\w+", "Removed", True), byte_level()))
    for prefix in (False, True):
        for regex in (False, True):
            add(f"bytes {prefix} {regex}", "bytes", pre=byte_level(prefix, regex), decoder=byte_level())
    add("nested", "bytes", pre=chain(chain(dict(type="Digits", individual_digits=True)), chain(byte_level(True, True))))
    for individual in (False, True):
        add(f"digits {individual}", "bytes", pre=chain(dict(type="Digits", individual_digits=individual), byte_level()))
    for kind in ("Whitespace", "WhitespaceSplit", "BertPreTokenizer"):
        add(kind, "bytes", pre=chain(dict(type=kind), byte_level()))
    add("delimiter", "bytes", pre=chain(dict(type="CharDelimiterSplit", delimiter="e"), byte_level(True)))
    add("removed then prefix", "bytes", pre=chain(split(r"\s+", "Removed"), byte_level(True)))
    for kind in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt"):
        add(kind, "bytes", normalizer=dict(type=kind), pre=byte_level(False, True))
    for left in (False, True):
        for right in (False, True):
            add(f"strip {left} {right}", "bytes", normalizer=dict(type="Strip", strip_left=left, strip_right=right), pre=byte_level())
    add("accents", "bytes", normalizer=chain(*[dict(type=t) for t in ("NFD", "StripAccents", "Lowercase", "NFC")], key="normalizers"), pre=byte_level())
    add("replace", "bytes", normalizer=chain(replace("th", "ZZ"), replace(r"\s+", " ", "Regex"), replace(".", "\u2026"), key="normalizers"), pre=byte_level())
    add("replace some", "bytes", normalizer=replace(r"\d+(?=\d)", "#", "Regex"), pre=byte_level())
    add("prepend", "bytes", normalizer=dict(type="Prepend", prepend=">"), pre=byte_level())
    add("precompiled", "bytes", normalizer=dict(type="Precompiled", precompiled_charsmap=charsmap()), pre=byte_level())

    plain = chain(dict(type="ByteFallback"), dict(type="Fuse"), key="decoders")
    plain["decoders"].insert(0, replace(SPACE, " "))
    stripped = chain(*plain["decoders"], dict(type="Strip", content=" ", start=1, stop=0), key="decoders")
    for model in ("chars", "chars-fused", "chars-bytes", "unigram", "unigram-bytes"):
        for scheme in ("always", "first", "never"):
            for whole in (False, True):
                add(f"metaspace {scheme} {whole}", model, pre=metaspace(scheme, whole), decoder=plain)
        add("gemma", model, normalizer=replace(" ", SPACE), pre=split(" ", "MergedWithPrevious", False, "String"), decoder=plain)
        add("llama", model, normalizer=chain(dict(type="Prepend", prepend=SPACE), replace(" ", SPACE), key="normalizers"), decoder=stripped)
        add("t5", model, normalizer=dict(type="Precompiled", precompiled_charsmap=charsmap()), pre=chain(dict(type="WhitespaceSplit"), metaspace("always")), **({} if "bytes" in model else dict(decoder=metaspace("always"))))
        add("squeezed", model, normalizer=chain(dict(type="NFKC"), replace(" {2,}", " ", "Regex"), key="normalizers"), pre=metaspace("always"))
        add("words", model, normalizer=dict(type="Lowercase"), pre=chain(split(r"\d", "Isolated"), metaspace("first")), decoder=plain)
    add("digits and spaces", "chars-bytes", normalizer=replace(" ", SPACE), pre=chain(dict(type="Digits", individual_digits=True), split(SPACE, "MergedWithNext", False, "String")), decoder=plain)

    s, e = ({"SpecialToken": {"id": t, "type_id": 0}} for t in ("<s>", "</s>"))
    a = {"Sequence": {"id": "A", "type_id": 0}}
    ids = {"<s>": dict(id="<s>", ids=[1], tokens=["<s>"]), "</s>": dict(id="</s>", ids=[2], tokens=["</s>"])}
    for name, single in (("bos", [s, a]), ("both", [s, a, e]), ("end", [a, e]), ("command-r", [s, a, e, s]), ("two", [s, e, a])):
        add(f"template {name}", "bytes", pre=byte_level(False, True), post_processor=dict(type="TemplateProcessing", single=single, pair=single + [{"Sequence": {"id": "B", "type_id": 1}}], special_tokens=ids))
    for kind in ("RobertaProcessing", "BertProcessing"):
        extra = dict(trim_offsets=True, add_prefix_space=False) if kind[0] == "R" else {}
        add(kind, "bytes", pre=byte_level(False, True), post_processor=dict(type=kind, sep=["</s>", 2], cls=["<s>", 1], **extra))
    many = dict(type="TemplateProcessing", single=[s, a], pair=[s, a, {"Sequence": {"id": "B", "type_id": 1}}], special_tokens={"<s>": dict(id="<s>", ids=[1, 2], tokens=["<s>", "</s>"])})
    add("template ids", "bytes", pre=byte_level(False, True), post_processor=dict(type="Sequence", processors=[byte_level(), many]))
    for flag in ("lstrip", "rstrip", "single_word"):
        add(f"added {flag}", "bytes", pre=byte_level(False, True), flag=flag)
    return out


def added(flag):
    tokens = [("<unk>", 0, True), ("<s>", 1, True), ("</s>", 2, True), ("<user>", 1200, False), ("the", 1201, False)]
    return [
        dict(id=i, content=t, special=special, normalized=False, single_word=flag == "single_word" and i > 2,
             lstrip=flag == "lstrip" and i > 0, rstrip=flag == "rstrip" and i > 0)
        for t, i, special in tokens[: 5 if flag else 4]
    ]  # fmt: skip


def main():
    trained = train()
    out = dict(models=trained, texts=[base64.b64encode(t.encode()).decode() for t in TEXTS], cases=[])
    n = 0
    for name, model, parts in cases():
        flag = parts.pop("flag", None)
        data = dict(version="1.0", truncation=None, padding=None, added_tokens=added(flag),
                    normalizer=None, pre_tokenizer=None, post_processor=None, decoder=None)  # fmt: skip
        data["model"] = trained[model]
        data.update(parts)
        # Ids past the vocabulary's end follow it directly in the library.
        vocab = trained[model]["vocab"]
        for t in data["added_tokens"][3:]:
            known = isinstance(vocab, dict) and t["content"] in vocab
            t["id"] = vocab[t["content"]] if known else len(vocab) + t["id"] - 1200
        tok = Tokenizer.from_str(json.dumps(data))
        rows = [tok.encode(t).ids for t in TEXTS]
        case = dict(name=name, model=model, added_tokens=data["added_tokens"], ids=rows, **parts)
        if "decoder" in parts:
            case["decoded"] = [
                base64.b64encode(tok.decode(r, skip_special_tokens=False).encode()).decode() for r in rows
            ]
        out["cases"].append(case)
        n += len(rows)
    path = os.path.join(HERE, "steps.json")
    with open(path, "w", encoding="utf-8") as f:
        f.write('{"models":{\n')
        f.write(",\n".join(f"{json.dumps(k)}:{json.dumps(v, ensure_ascii=False, separators=(',', ':'))}" for k, v in trained.items()))
        f.write('},\n"texts":' + json.dumps(out["texts"]) + ',\n"cases":[\n')
        f.write(",\n".join(json.dumps(c, ensure_ascii=False, separators=(",", ":")) for c in out["cases"]))
        f.write("\n]}\n")
    print(f"{len(out['cases'])} pipelines, {n} cases, {os.path.getsize(path)} bytes", file=sys.stderr)


if __name__ == "__main__":
    main()
