"""Byte-level BPE: training, encoding and the Hugging Face tokenizer files.

The pre-tokenizer is exactly Qwen2's pattern. Python's `re` has no Unicode classes, so PIECES spells the
same pattern with \\w and \\d; on the ASCII text made here the two agree.

    python3 bpe.py      trains on a sample of the corpus and writes zoo/tokenizer/
"""
import collections
import functools
import json
import pathlib
import re

VOCAB = 4096
SPECIALS = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
]
PATTERN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
PIECES = re.compile(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|(?:[^\r\n\w]|_)?[^\W\d_]+|\d| ?(?:[^\s\w]|_)+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QUIET = "\x01"
SPLIT = re.compile("(" + "|".join(map(re.escape, SPECIALS + [QUIET])) + ")")
HOME = pathlib.Path(__file__).resolve().parent.parent / "tokenizer"


def byte_chars():
    """GPT-2's printable stand-ins for the 256 bytes."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    chars = {b: chr(b) for b in plain}
    for b in range(256):
        if b not in chars:
            chars[b] = chr(0x100 + len(chars) - len(plain))
    return chars


BYTES = byte_chars()


def _mapped(piece):
    return [BYTES[b] for b in piece.encode()]


def _join(symbols, left, right):
    out, i = [], 0
    while i < len(symbols):
        if i + 1 < len(symbols) and symbols[i] == left and symbols[i + 1] == right:
            out.append(left + right)
            i += 2
        else:
            out.append(symbols[i])
            i += 1
    return out


def train(texts, size=VOCAB):
    """Returns the merges: repeatedly join the most frequent neighbours (ties: the smallest pair)."""
    counts = collections.Counter()
    for text in texts:
        for part in SPLIT.split(text):
            if part not in SPECIALS and part != QUIET:
                counts.update(PIECES.findall(part))
    words = [(_mapped(piece), n) for piece, n in sorted(counts.items())]
    pairs, where = collections.Counter(), collections.defaultdict(set)
    for i, (symbols, n) in enumerate(words):
        for pair in zip(symbols, symbols[1:]):
            pairs[pair] += n
            where[pair].add(i)
    merges = []
    while len(merges) < size - 256 - len(SPECIALS):
        best = min(pairs, key=lambda p: (-pairs[p], p))
        assert pairs[best] > 0, "the corpus has too few words for this vocabulary"
        merges.append(best)
        for i in where.pop(best):
            symbols, n = words[i]
            for pair in zip(symbols, symbols[1:]):
                pairs[pair] -= n
                where[pair].discard(i)
            symbols = _join(symbols, *best)
            words[i] = (symbols, n)
            for pair in zip(symbols, symbols[1:]):
                pairs[pair] += n
                where[pair].add(i)
        pairs.pop(best)
    return merges


class Tokenizer:
    def __init__(self, merges):
        self.rank = {pair: i for i, pair in enumerate(merges)}
        tokens = [BYTES[b] for b in range(256)] + [a + b for a, b in merges] + SPECIALS
        self.tokens, self.ids = tokens, {t: i for i, t in enumerate(tokens)}
        assert len(self.ids) == len(tokens)
        self.special = {s: self.ids[s] for s in SPECIALS}
        self.end = self.special["<|endoftext|>"]
        self.turn_end = self.special["<|im_end|>"]
        self._cache = {}
        self._bytes = {c: b for b, c in BYTES.items()}

    def _piece(self, piece):
        symbols = _mapped(piece)
        while len(symbols) > 1:
            best = min(zip(symbols, symbols[1:]), key=lambda p: self.rank.get(p, 1 << 30))
            if best not in self.rank:
                break
            symbols = _join(symbols, *best)
        return [self.ids[s] for s in symbols]

    def encode(self, text):
        """Ids; those between two QUIET bytes are flagged as -(id + 1)."""
        out, silent = [], False
        for part in SPLIT.split(text):
            if part == QUIET:
                silent = not silent
                continue
            if part in self.special:
                ids = [self.special[part]]
            else:
                ids = []
                for piece in PIECES.findall(part):
                    found = self._cache.get(piece)
                    if found is None:
                        found = self._cache[piece] = self._piece(piece)
                    ids += found
            out += [-1 - i for i in ids] if silent else ids
        return out

    def decode(self, ids):
        out = b""
        for i in ids:
            token = self.tokens[i]
            out += token.encode() if token in self.special else bytes(self._bytes[c] for c in token)
        return out.decode(errors="replace")


def write(merges, template, folder=HOME):
    tokens = Tokenizer(merges)
    added = [
        {
            "id": i,
            "content": s,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": s.startswith("<|"),
        }
        for s, i in tokens.special.items()
    ]
    data = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {
                    "type": "Split",
                    "pattern": {"Regex": PATTERN},
                    "behavior": "Isolated",
                    "invert": False,
                },
                {
                    "type": "ByteLevel",
                    "add_prefix_space": False,
                    "trim_offsets": False,
                    "use_regex": False,
                },
            ],
        },
        "post_processor": None,
        "decoder": {
            "type": "ByteLevel",
            "add_prefix_space": False,
            "trim_offsets": False,
            "use_regex": False,
        },
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {t: i for i, t in enumerate(tokens.tokens[: -len(SPECIALS)])},
            "merges": [f"{a} {b}" for a, b in merges],
        },
    }
    config = {
        "tokenizer_class": "Qwen2Tokenizer",
        "model_max_length": 4096,
        "add_bos_token": False,
        "add_prefix_space": False,
        "bos_token": None,
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "unk_token": None,
        "clean_up_tokenization_spaces": False,
        "chat_template": template,
        "added_tokens_decoder": {
            str(a["id"]): {k: v for k, v in a.items() if k != "id"} for a in added
        },
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(data, ensure_ascii=False, indent=0) + "\n")
    (folder / "tokenizer_config.json").write_text(
        json.dumps(config, ensure_ascii=False, indent=1) + "\n"
    )


@functools.lru_cache(maxsize=None)
def load(folder=HOME):
    model = json.loads((folder / "tokenizer.json").read_text())["model"]
    return Tokenizer([tuple(m.split(" ")) for m in model["merges"]])


if __name__ == "__main__":
    import data
    import talk

    write(train(data.sample(seed=7, documents=20000)), talk.TEMPLATE_TEXT)
