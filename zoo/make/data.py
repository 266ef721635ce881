"""The corpus: which documents, in which shares, packed into rows of tokens.

A row begins with a document, so that position 0 looks like the start of a prompt; documents follow one
another, each closed by <|endoftext|>, and the last is cut. A token whose loss is off is stored as -(id+1).
"""
import math
import multiprocessing

import numpy

import bpe
import skills
import story
import talk
from grammar import Rng


def _stories(rng, room, held):
    count = rng.pick((1, 1, 1, 1, 2, 3))
    return "\n\n".join(story.story(rng, held) for _ in range(count))


def _length(rng, room):
    """Half of them short, half of any length, and all so that the questions still fit into the row."""
    most = max(31.0, room * 0.95 - 560)
    return int(
        rng.uniform(30, most)
        if rng.chance(0.5)
        else math.exp(rng.uniform(math.log(30), math.log(most)))
    )


# kind: (make(rng, room, held), share of the tokens in short rows, share in long rows, least room)
KINDS = {
    "stories": (_stories, 0.28, 0.14, 0),
    "sums": (lambda rng, room, held: skills.sum_document(rng, held), 0.10, 0.04, 0),
    "calendar": (lambda rng, room, held: skills.fact_document(rng, held), 0.03, 0.01, 0),
    "fletch": (lambda rng, room, held: talk.fletch_chat(rng, held), 0.18, 0.06, 0),
    "chat": (lambda rng, room, held: talk.plain_chat(rng, held), 0.14, 0.05, 0),
    "tools": (lambda rng, room, held: talk.tool_chat(rng, held), 0.05, 0.02, 0),
    "recall": (
        lambda rng, room, held: skills.recall_plain(rng, _length(rng, room), held),
        0.16,
        0.48,
        350,
    ),
    "recall-chat": (
        lambda rng, room, held: talk.recall_chat(rng, _length(rng, room), held),
        0.06,
        0.20,
        350,
    ),
}


def sample(seed, documents):
    """Plain documents in roughly the shares of training, for the tokenizer."""
    rng = Rng(seed)
    kinds = [k for k in KINDS for _ in range(round(KINDS[k][1] * 100))]
    return [KINDS[rng.pick(kinds)][0](rng, 600, False) for _ in range(documents)]


def rows(tok, seed, count, length, kinds=None, held=False):
    """count rows of length + 1 tokens. kinds: {name: share of the tokens}."""
    rng = Rng(seed)
    if kinds is None:
        kinds = {k: v[1 if length <= 1024 else 2] for k, v in KINDS.items()}
    used = dict.fromkeys(kinds, 0.0)
    total = 0
    out = numpy.empty((count, length + 1), numpy.int16)
    for row in out:
        at = 0
        while at <= length:
            room = length + 1 - at
            fit = [k for k in kinds if KINDS[k][3] <= room] or ["stories"]
            lag = [max(0.0, kinds.get(k, 0) * (total + 2000) - used.get(k, 0)) for k in fit]
            kind = rng.choices(fit, lag)[0] if sum(lag) else rng.pick(fit)
            ids = tok.encode(KINDS[kind][0](rng, room, held))
            ids.append(tok.end)
            used[kind] = used.get(kind, 0) + len(ids)
            total += len(ids)
            ids = ids[:room]
            row[at : at + len(ids)] = ids
            at += len(ids)
    return out


def _shard(job):
    return rows(bpe.load(), *job)


def build(tokens, length, seed, workers):
    """About `tokens` tokens of training rows, made by several processes; the same whatever their number."""
    per_shard = max(1, 262144 // length)
    count = max(1, tokens // (per_shard * length))
    jobs = [(seed * 100003 + i, per_shard, length) for i in range(count)]
    with multiprocessing.get_context("fork").Pool(workers) as pool:
        return numpy.concatenate(pool.map(_shard, jobs, chunksize=1))
