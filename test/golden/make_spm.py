#!/usr/bin/env python3
"""Makes test/golden/spm/: small SentencePiece models, and what the sentencepiece library does with
them. Run it in a folder of its own: the library writes files, and their names into the models."""

import base64
import json
import os
import sys

import sentencepiece as spm

import texts
from make_steps import TEXTS

HERE = os.path.dirname(os.path.abspath(__file__))
MORE = [
    "<tool>x <tool> y<tool><tool>", "a<b>c", "   a   b   ", "\u2581\u2581x", "1,234.5 \u00a0 2\u00bd",
    "\ufb01n\ufb01 ABAB e\u0301e\u0301 \u3000 \u200b\u200bx", "zzzzqqqq \u0416\u0416", "\t\n\r\n tab",
]  # fmt: skip
RULES = {"\ufb01": "fi", "\u00a0": " ", "\t": " ", "\n": " ", "e\u0301": "\u00e9", "\u3000": " ",
         "\u200b": "", "AB": "x", "A": "a", "\u00bd": "1/2", "\u2581": " "}  # fmt: skip
MODELS = {
    "bpe": dict(model_type="bpe", byte_fallback=True, normalization_rule_name="identity",
                remove_extra_whitespaces=False),
    "bpe-user": dict(model_type="bpe", byte_fallback=True, normalization_rule_name="identity",
                     remove_extra_whitespaces=False, user_defined_symbols=["<tool>", "\u2581\u2581", "<b>"]),
    "bpe-rules": dict(model_type="bpe", byte_fallback=False, normalization_rule_tsv="rules.tsv",
                      remove_extra_whitespaces=True, user_defined_symbols=["AB", "<tool>"],
                      control_symbols=["<ctl>"]),
    "bpe-bare": dict(model_type="bpe", byte_fallback=True, normalization_rule_name="identity",
                     remove_extra_whitespaces=False, add_dummy_prefix=False, bos_id=-1, pad_id=3),
    "unigram": dict(model_type="unigram", byte_fallback=False, normalization_rule_name="identity",
                    remove_extra_whitespaces=False),
    "unigram-bytes": dict(model_type="unigram", byte_fallback=True, normalization_rule_tsv="rules.tsv",
                          remove_extra_whitespaces=True, user_defined_symbols=["<tool>", "\u2581\u2581"]),
    "unigram-t5": dict(model_type="unigram", normalization_rule_tsv="rules.tsv", bos_id=-1, eos_id=1,
                       unk_id=2, pad_id=0, user_defined_symbols=["<b>"]),
}  # fmt: skip


def main():
    out = os.path.join(HERE, "spm")
    os.makedirs(out, exist_ok=True)
    with open("corpus", "w", encoding="utf-8") as f:
        f.write("\n".join(l for t in texts.corpus() for l in t.splitlines()))
    with open("rules.tsv", "w", encoding="utf-8") as f:
        for a, b in RULES.items():
            f.write(" ".join(f"{ord(c):X}" for c in a) + "\t" + " ".join(f"{ord(c):X}" for c in b) + "\n")
    all_texts, n = TEXTS + MORE + [t.decode() for t in texts.cases()[:40]], 0
    all_texts = [t for t in all_texts if "\0" not in t]
    for name, options in MODELS.items():
        spm.SentencePieceTrainer.train(
            input="corpus", model_prefix=name, vocab_size=700 if options.get("byte_fallback") else 420,
            character_coverage=0.98, num_threads=1, minloglevel=2, hard_vocab_limit=False, **options,
        )  # fmt: skip
        sp = spm.SentencePieceProcessor(model_file=name + ".model")
        os.replace(name + ".model", os.path.join(out, name + ".model"))
        os.remove(name + ".vocab")
        rows = []
        for t in all_texts:
            ids = sp.encode(t)
            rows.append(dict(text=base64.b64encode(t.encode()).decode(), ids=ids,
                             decoded=base64.b64encode(sp.decode(ids).encode()).decode()))  # fmt: skip
        n += len(rows)
        special = [sp.unk_id(), sp.bos_id(), sp.eos_id(), sp.pad_id()]
        with open(os.path.join(out, name + ".json"), "w", encoding="utf-8") as f:
            f.write('{"special":' + json.dumps(special) + ',"cases":[\n')
            f.write(",\n".join(json.dumps(r, separators=(",", ":")) for r in rows) + "\n]}\n")
    print(n, "cases", {f: os.path.getsize(os.path.join(out, f)) for f in sorted(os.listdir(out))}, file=sys.stderr)


if __name__ == "__main__":
    main()
