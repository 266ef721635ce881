"""A tiny template language: the one way this folder writes text.

    [a|b|c]   one of the alternatives, at random (they nest)
    {name}    a value from the environment, itself a template or plain text

Owns parsing and expansion. `Rng.nats` adds up the entropy of the choices made, so that a corpus
can state a bound on how well any model could predict it.
"""
import functools
import math
import random
import zlib


class Rng(random.Random):
    """A seeded generator that knows how much it has chosen."""

    nats = 0.0

    def pick(self, items):
        n = len(items)
        if n == 1:
            return items[0]
        self.nats += math.log(n)
        return items[int(self.random() * n)]

    def chance(self, p):
        return self.random() < p

    def distinct(self, items, n):
        self.nats += n * math.log(len(items))
        return self.sample(items, n)


def held_out(key, one_in):
    """Whether this key belongs to the held-out share; stable across runs and machines."""
    return zlib.crc32(repr(key).encode()) % one_in == 0


def _parse(text, i, stop):
    """Parses from i to one of the characters in stop; returns (node, index of the stop)."""
    parts, start = [], i
    while i < len(text) and text[i] not in stop:
        c = text[i]
        if c == "[" or c == "{":
            if i > start:
                parts.append(text[start:i])
            if c == "{":
                end = text.index("}", i)
                parts.append((text[i + 1 : end],))
                i = end + 1
            else:
                options = []
                while text[i] != "]":
                    node, i = _parse(text, i + 1, "|]")
                    options.append(node)
                parts.append(options)
                i += 1
            start = i
        else:
            i += 1
    if i > start:
        parts.append(text[start:i])
    return tuple(parts) if len(parts) != 1 or isinstance(parts[0], tuple) else parts[0], i


@functools.lru_cache(maxsize=None)
def parse(text):
    node, end = _parse(text, 0, "")
    assert end == len(text), text
    return node


def _write(node, rng, env, out):
    if isinstance(node, str):
        out.append(node)
    elif isinstance(node, list):
        _write(rng.pick(node), rng, env, out)
    elif len(node) == 1 and isinstance(node[0], str):
        value = env[node[0]]
        _write(parse(value) if "[" in value or "{" in value else value, rng, env, out)
    else:
        for part in node:
            _write(part, rng, env, out)


def expand(template, rng, env={}):
    out = []
    _write(parse(template), rng, env, out)
    return "".join(out)


def all_forms(template):
    """Every expansion of a template without variables."""

    def forms(node):
        if isinstance(node, str):
            return [node]
        if isinstance(node, list):
            return [f for option in node for f in forms(option)]
        texts = [""]
        for part in node:
            texts = [t + f for t in texts for f in forms(part)]
        return texts

    return forms(parse(template))


def an(noun):
    return ("an " if noun[0] in "aeiou" else "a ") + noun


def sentence(text):
    return text[0].upper() + text[1:]
