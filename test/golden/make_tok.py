#!/usr/bin/env python3
"""Makes test/golden/tok/: small vocabularies and the ids that the `tokenizers` and `sentencepiece`
libraries give on the texts of texts.py. See README.md beside this."""

import argparse
import base64
import json
import os
import sys
import tempfile

import texts

# Regex lists as in the pre-tokenizers' own definitions; one split after the other.
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
END = r"\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
CASED = (
    r"[^\r\n\p{L}\p{N}]?"
    + UPPER
    + "*"
    + LOWER
    + "+%s|"
    + r"[^\r\n\p{L}\p{N}]?"
    + UPPER
    + "+"
    + LOWER
    + "*%s|"
)
PUNCT_SLASH = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|"


def ranges(hexes):
    """'0041–005A 00B5' -> the characters' class body."""
    out = []
    for part in hexes.split():
        ends = [chr(int(h, 16)) for h in part.split("–")]
        out.append("-".join(ends))
    return "".join(out)


DS_LETTERS = ranges(
    """
0041–005A 0061–007A 00B5 00C0–00D6 00D8–00F6 00F8–01BA 01BC–01BF 01C4–0293 0295–02AF 0370–0373
0376 0377 037B–037D 037F 0386 0388–038A 038C 038E–03A1 03A3–03F5 03F7–0481 048A–052F 0531–0556
10A0–10C5 13A0–13F5 13F8–13FD 1C90–1CBA 1CBD–1CBF 1D00–1D2B 1D6B–1D77 1D79–1D9A 1E00–1F15
1F18–1F1D 1F20–1F45 1F48–1F4D 1F50–1F57 1F59 1F5B 1F5D 1F5F–1F7D 1F80–1FB4 1FB6–1FBC 1FBE
1FC2–1FC4 1FC6–1FCC 1FD0–1FD3 1FD6–1FDB 1FE0–1FEC 1FF2–1FF4 1FF6–1FFC 2102 2107 210A–2113 2115
2119–211D 2124 2126 2128 212A–212D 212F–2134 2139 213C–213F 2145–2149 214E 2183 2184 2C00–2C7B
2C7E–2CE4 2CEB–2CEE 2CF2 2CF3 A640–A66D A680–A69B A722–A76F A771–A787 A78B–A78E AB70–ABBF
FB00–FB06 FB13–FB17 FF21–FF3A FF41–FF5A 10400–1044F 104B0–104D3 104D8–104FB 10C80–10CB2
10CC0–10CF2 118A0–118DF 1E900–1E943"""
)
DS_PUNCT = "!-/:-~" + ranges("FF01–FF0F FF1A–FF5E 2018–201F 3000–3002")
DS_CJK = ranges("4E00–9FA5 0800–4E00 AC00–D7FF")

PRE = {
    "llama-bpe": [
        CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + END
    ],
    "qwen2": [CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + END],
    "qwen35": [
        CONTRACTION
        + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|"
        + END
    ],
    "gpt-2": [GPT2],
    "smollm": [r"\p{N}", GPT2],
    "tekken": [CASED % ("", "") + r"\p{N}" + PUNCT_SLASH + END],
    "gpt-4o": [CASED % (CONTRACTION + "?", CONTRACTION + "?") + r"\p{N}{1,3}" + PUNCT_SLASH + END],
    "deepseek-v3": [
        r"\p{N}{1,3}",
        "[" + ranges("4E00–9FA5 3040–309F 30A0–30FF") + "]+",
        r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"""
        r" ?[\p{P}\p{S}]+[\r\n]*|" + END,
    ],
    "deepseek-coder": [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[" + DS_CJK + "]+", r"\p{N}"],
    "deepseek-llm": [
        r"[\r\n]",
        r"\s?[" + DS_LETTERS + "]+",
        r"\s?[" + DS_PUNCT + "]+",
        r"\s+$",
        "[" + DS_CJK + "]+",
        r"\p{N}+",
    ],
    "falcon": [r"[\p{P}\$\+<=>\^~\|`]+", GPT2, r"[0-9][0-9][0-9]"],
    "default": [r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"],
}

# control: special added tokens; user: added tokens that are always matched; first: control tokens
# take the first ids; bos: the post-processor puts this one in front.
CHATML = dict(control=["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
LLAMA3 = dict(
    control=[
        "<|begin_of_text|>",
        "<|end_of_text|>",
        "<|start_header_id|>",
        "<|end_header_id|>",
        "<|eot_id|>",
    ],
    bos="<|begin_of_text|>",
    eos="<|eot_id|>",
)
MISTRAL = dict(
    control=["<unk>", "<s>", "</s>", "[INST]", "[/INST]"], first=True, bos="<s>", eos="</s>"
)
KINDS = {
    "llama-bpe": dict(LLAMA3, ignore_merges=True),
    "qwen2": dict(CHATML, user=["<think>", "</think>", "<tool_call>"], nfc=True, eos="<|im_end|>"),
    "qwen35": dict(CHATML, user=["<think>", "</think>"], eos="<|im_end|>"),
    "gpt-2": dict(control=["<|endoftext|>"], old_merges=True, eos="<|endoftext|>"),
    "smollm": dict(CHATML, first=True, eos="<|im_end|>"),
    "tekken": dict(MISTRAL, ignore_merges=True),
    "gpt-4o": dict(control=["<|endoftext|>", "<|endofprompt|>"], eos="<|endoftext|>"),
    "deepseek-v3": dict(
        control=["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"],
        user=["<think>", "</think>"],
        first=True,
        bos="<｜begin▁of▁sentence｜>",
        eos="<｜end▁of▁sentence｜>",
    ),
    "deepseek-coder": {},
    "deepseek-llm": {},
    "falcon": {},
    "default": {},
    # The same splits in the spelling that published files use: byte-level's built-in regex.
    "gpt-2-builtin": dict(pre="gpt-2"),
    "smollm-builtin": dict(pre="smollm"),
}


def write(folder, name, value):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
        if name == "cases.json":
            f.write(
                "[\n" + ",\n".join(json.dumps(c, separators=(",", ":")) for c in value) + "\n]\n"
            )
        else:
            json.dump(value, f, ensure_ascii=False, separators=(",", ":"))
            f.write("\n")


def case(text, ids, special, bos):
    return dict(text_b64=base64.b64encode(text).decode(), ids=list(ids), special=special, bos=bos)


def encode_all(tok, added, has_bos):
    """Every text with control tokens off; those with added tokens also with them on."""
    out = []
    plain, tricky = texts.cases(), texts.cases_special(added) if added else []
    for text, special, bos in (
        [(t, False, False) for t in plain + tricky]
        + [(t, True, False) for t in tricky]
        + [(t, True, True) for t in (plain[20:28] + tricky[:6] if has_bos else [])]
        + [(b"", True, True)] * has_bos
    ):
        tok.encode_special_tokens = not special
        out.append(case(text, tok.encode(text.decode(), add_special_tokens=bos).ids, special, bos))
    return out


def config_of(kind, tok):
    control, user = kind.get("control", []), kind.get("user", [])
    cfg = dict(
        add_bos_token="bos" in kind,
        add_prefix_space=False,
        clean_up_tokenization_spaces=False,
        bos_token=kind.get("bos"),
        eos_token=kind.get("eos"),
        model_max_length=4096,
        tokenizer_class="PreTrainedTokenizerFast",
    )
    cfg["added_tokens_decoder"] = {
        str(tok.token_to_id(t)): dict(
            content=t,
            lstrip=False,
            normalized=False,
            rstrip=False,
            single_word=False,
            special=t in control,
        )
        for t in control + user
    }
    return cfg


def make_bpe(out, name, kind):
    from tokenizers import (
        AddedToken,
        Regex,
        Tokenizer,
        decoders,
        models,
        normalizers,
        pre_tokenizers,
        processors,
        trainers,
    )

    tok = Tokenizer(models.BPE(ignore_merges=kind.get("ignore_merges", False)))
    if kind.get("nfc"):
        tok.normalizer = normalizers.NFC()
    if name == "gpt-2-builtin":
        tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    elif name == "smollm-builtin":
        tok.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False),
            ]
        )
    else:
        tok.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Split(Regex(r), "isolated") for r in PRE[name]]
            + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
        )
    tok.decoder = decoders.ByteLevel()
    special = [AddedToken(t, special=True, normalized=False) for t in kind.get("control", [])]
    first = kind.get("first", False)
    tok.train_from_iterator(
        texts.corpus(),
        trainers.BpeTrainer(
            vocab_size=640,
            show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            special_tokens=special if first else [],
        ),
    )
    if not first:
        tok.add_special_tokens(special)
    tok.add_tokens([AddedToken(t, special=False, normalized=False) for t in kind.get("user", [])])
    if "bos" in kind:
        bos = kind["bos"]
        tok.post_processor = processors.Sequence(
            [
                processors.ByteLevel(trim_offsets=False),
                processors.TemplateProcessing(
                    single=f"{bos} $A",
                    pair=f"{bos} $A {bos} $B:1",
                    special_tokens=[(bos, tok.token_to_id(bos))],
                ),
            ]
        )
    data = json.loads(tok.to_str())
    if kind.get("ignore_merges"):
        # A token that no merge leads to: only the whole-piece lookup finds it.
        data["model"]["vocab"], data["added_tokens"] = orphan(data)
    if kind.get("old_merges"):
        data["model"]["merges"] = [" ".join(m) for m in data["model"]["merges"]]
    tok = Tokenizer.from_str(json.dumps(data))
    folder = os.path.join(out, name)
    write(folder, "tokenizer.json", data)
    write(folder, "tokenizer_config.json", config_of(kind, tok))
    cases = encode_all(tok, kind.get("control", []) + kind.get("user", []), "bos" in kind)
    write(folder, "cases.json", cases)
    return len(cases), tok.get_vocab_size()


def orphan(data):
    """Renames the last two merged tokens that no other merge uses to whole words of the texts."""
    vocab, words = data["model"]["vocab"], ["Ġaccord", "dsdfhu"]
    used = {p for m in data["model"]["merges"] for p in m}
    added = {t["content"] for t in data["added_tokens"]}
    spare = [t for t, i in sorted(vocab.items(), key=lambda x: -x[1]) if t not in used | added]
    swap = dict(zip(spare, words))
    data["model"]["merges"] = [m for m in data["model"]["merges"] if m[0] + m[1] not in swap]
    return {swap.get(t, t): i for t, i in vocab.items()}, data["added_tokens"]


def make_llama2(out):
    """BPE with byte fallback and U+2581 for spaces. As in published files, the merges are all
    splits of each token into two others, in the order of the tokens."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tok.train_from_iterator(
        [l for t in texts.corpus() for l in t.split("\n")],
        trainers.BpeTrainer(vocab_size=520, limit_alphabet=130, show_progress=False),
    )
    trained = sorted(tok.get_vocab().items(), key=lambda x: x[1])
    merged = [t for t, _ in trained if len(t) > 1] + ["\u2581" * n for n in (2, 4, 8)]
    chars = [t for t, _ in trained if len(t) == 1]
    names = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)] + merged + chars
    vocab = {t: i for i, t in enumerate(names)}
    merges = []
    for t in merged:
        splits = [(t[:k], t[k:]) for k in range(1, len(t)) if t[:k] in vocab and t[k:] in vocab]
        merges += sorted(splits, key=lambda s: (vocab[s[0]], vocab[s[1]]))
    special = [
        dict(
            id=i,
            content=t,
            single_word=False,
            lstrip=False,
            rstrip=False,
            normalized=False,
            special=True,
        )
        for i, t in enumerate(names[:3])
    ]
    data = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": special,
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                {"type": "Prepend", "prepend": "\u2581"},
                {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
            ],
        },
        "pre_tokenizer": None,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [
                {"SpecialToken": {"id": "<s>", "type_id": 0}},
                {"Sequence": {"id": "A", "type_id": 0}},
            ],
            "pair": [
                {"SpecialToken": {"id": "<s>", "type_id": 0}},
                {"Sequence": {"id": "A", "type_id": 0}},
                {"SpecialToken": {"id": "<s>", "type_id": 1}},
                {"Sequence": {"id": "B", "type_id": 1}},
            ],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
        },
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0},
            ],
        },
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": "<unk>",
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": True,
            "ignore_merges": False,
            "vocab": vocab,
            "merges": [" ".join(m) for m in merges],
        },
    }
    tok = Tokenizer.from_str(json.dumps(data))
    folder = os.path.join(out, "llama2")
    write(folder, "tokenizer.json", data)
    write(
        folder,
        "tokenizer_config.json",
        dict(
            add_bos_token=True,
            add_eos_token=False,
            bos_token="<s>",
            eos_token="</s>",
            unk_token="<unk>",
            legacy=False,
            model_max_length=4096,
            tokenizer_class="LlamaTokenizer",
            clean_up_tokenization_spaces=False,
        ),
    )
    cases = encode_all(tok, ["<s>", "</s>"], True)
    write(folder, "cases.json", cases)
    return len(cases), len(names)


def make_spm(out):
    import sentencepiece as spm

    with tempfile.TemporaryDirectory() as tmp:
        path = os.path.join(tmp, "corpus")
        with open(path, "w", encoding="utf-8") as f:
            f.write("\n".join(l for t in texts.corpus() for l in t.splitlines()))
        spm.SentencePieceTrainer.train(
            input=path,
            model_prefix=os.path.join(tmp, "m"),
            model_type="bpe",
            vocab_size=760,
            byte_fallback=True,
            add_dummy_prefix=True,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            character_coverage=0.98,
            split_digits=True,
            allow_whitespace_only_pieces=True,
            num_threads=1,
            minloglevel=2,
        )
        sp = spm.SentencePieceProcessor(model_file=os.path.join(tmp, "m.model"))
    n = sp.get_piece_size()
    types = [
        2 if sp.is_unknown(i) else 3 if sp.is_control(i) else 6 if sp.is_byte(i) else 1
        for i in range(n)
    ]
    folder = os.path.join(out, "spm")
    write(
        folder,
        "spec.json",
        dict(
            model="spm",
            tokens=[sp.id_to_piece(i) for i in range(n)],
            scores=[sp.get_score(i) for i in range(n)],
            types=types,
        ),
    )
    cases = [case(t, sp.encode(t.decode()), False, False) for t in texts.cases()]
    cases += [case(t, [1] + sp.encode(t.decode()), False, True) for t in texts.cases()[20:24]]
    write(folder, "cases.json", cases)
    return len(cases), n


def make_rwkv(out):
    """World vocabulary of our own; the oracle is a longest match over a dictionary."""
    words = set()
    for line in texts.corpus():
        for w in line.split(" "):
            b = w.encode()
            words |= {b, b" " + b, b[:3], b[:5], b" " + b[:2]}
    words |= {
        b"\n\n",
        b"\n\n\n",
        b"\r\n",
        b"\r\n\r\n",
        b"  ",
        b" " * 4,
        b" " * 8,
        b" " * 16,
        b" " * 128,
        b"aa",
        b"a" * 7,
        b"'s",
        b"'\"",
        b"\"'",
        b"\\n",
        b"\\",
        b"\t\t",
        b"\x00\x00",
        b"<s",
        b"s>",
        "\U0001f642".encode()[:3],
        "\u4e2d".encode()[:2],
        b"\xff\xfe",
        b"\x80\x80",
        b"\x99s",
        "é".encode()[1:] + b"a",
        "🙂🙂".encode(),
        "한".encode(),
    }
    multi = sorted((w for w in words if 1 < len(w) <= 128), key=lambda w: (len(w), w))
    table = (
        [bytes([b]) for b in range(256)] + multi[:600] + [w for w in multi[600:] if len(w) > 9][::3]
    )
    ids = {b: i + 1 for i, b in enumerate(table)}
    # The stored form: the body of Python's bytes literal.
    tokens = ["<s>"] + [repr(b)[2:-1] for b in table]
    types = [3] + [1] * len(table)
    while len(tokens) % 16:
        tokens.append(f"[PAD{len(tokens)}]")
        types.append(5)
    folder = os.path.join(out, "rwkv")
    write(folder, "spec.json", dict(model="rwkv", tokens=tokens, types=types))

    def longest_match(text):
        out, at = [], 0
        while at < len(text):
            n = max(k for k in range(1, 129) if text[at : at + k] in ids and at + k <= len(text))
            out.append(ids[text[at : at + n]])
            at += n
        return out

    invalid = [
        b"\xff\xfe\xfd",
        b"abc\x80\x80\x80def",
        b"\xe4\xb8",
        b"\xf0\x9f\x99",
        b"\xc3\x28 \xa0\xa1",
        bytes(range(256)),
        bytes(range(255, -1, -1)),
        b"\xed\xa0\x80 \xf8\x88\x80\x80\x80",
    ]
    cases = [case(t, longest_match(t), False, False) for t in texts.cases() + invalid]
    write(folder, "cases.json", cases)
    return len(cases), len(tokens)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument(
        "-o", "--out", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "tok")
    )
    ap.add_argument("--only", nargs="*")
    args = ap.parse_args()
    jobs = {n: (lambda n=n: make_bpe(args.out, n, KINDS[n])) for n in KINDS}
    jobs.update(
        llama2=lambda: make_llama2(args.out),
        spm=lambda: make_spm(args.out),
        rwkv=lambda: make_rwkv(args.out),
    )
    for name in args.only or jobs:
        n_cases, n_vocab = jobs[name]()
        folder = os.path.join(args.out, name)
        size = sum(os.path.getsize(os.path.join(folder, f)) for f in os.listdir(folder))
        print(f"{name}: {n_cases} cases, {n_vocab} tokens, {size} bytes", file=sys.stderr)
        assert size < 100_000, name


if __name__ == "__main__":
    main()
