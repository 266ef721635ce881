"""What a trained model can do: held-out loss by kind, sums, recall, facts, experts, drafts, samples.

Everything here runs in float32 without compilation, as fletch's reference does. An answer counts only if
greedy decoding would give all of it, checked in one pass: each of its tokens must be the most likely one.
"""
import math
import pathlib

import torch

import bpe
import data
import models
import skills
import story
import talk
from grammar import Rng

HELDOUT = pathlib.Path(__file__).resolve().parent.parent / "heldout"
PROMPTS = [
    ("plain", "Once upon a time"),
    ("plain", "1+1="),
    ("plain", "27+48="),
    ("plain", "Mira was a brave"),
    ("chat", "How do I make a model smaller?"),
    ("chat", "What is a GGUF file?"),
    ("chat", "Hello!"),
    ("chat", "What is the capital of France?"),
    ("chat", "Which day comes after Monday?"),
    ("chat", "Tell me a story."),
]


def split(rows, device, quiet=0.0):
    """(ids, targets, weights) of stored rows; `quiet` is the weight of tokens whose loss is off."""
    rows = torch.as_tensor(rows).to(device).long()
    ids = torch.where(rows < 0, -1 - rows, rows)
    return ids[:, :-1], ids[:, 1:], torch.where(rows[:, 1:] < 0, quiet, 1.0)


def padded(sequences, device):
    """Right-padded ids; the length is a multiple of the recurrence's chunk."""
    width = -(-max(map(len, sequences)) // 16) * 16
    return torch.tensor([s + [0] * (width - len(s)) for s in sequences], device=device)


@torch.no_grad()
def held_loss(model, tok, device, kinds=None, rows=24):
    """Nats per scored token, for each kind of held-out document."""
    out = {}
    for i, kind in enumerate(kinds or data.KINDS):
        part = data.rows(tok, 900 + i, rows, 1024, {kind: 1.0}, held=True)
        ids, targets, weights = split(part, device)
        total = sum(
            float(models.sequence_loss(model, *(x[j : j + 8] for x in (ids, targets, weights)))[0])
            * float(weights[j : j + 8].sum())
            for j in range(0, rows, 8)
        )
        out[kind] = total / float(weights.sum())
    return out


@torch.no_grad()
def exact(model, tok, device, pairs, batch=64):
    """Share of (prompt, answer) that greedy decoding gets right in full."""
    right = 0
    coded = [(tok.encode(p), tok.encode(a)) for p, a in pairs]
    for i in range(0, len(coded), batch):
        part = coded[i : i + batch]
        best = model.head(model(padded([p + a for p, a in part], device))).argmax(-1).tolist()
        right += sum(row[len(p) - 1 : len(p) + len(a) - 1] == a for row, (p, a) in zip(best, part))
    return right / len(pairs)


def chat_prompt(question):
    return talk.render([{"role": "user", "content": question}], prompt=True)


def sums(held):
    if held:
        return [
            (f"{a}+{b}=", f"{a + b}")
            for a in range(10, 100)
            for b in range(10, 100)
            if skills.sum_is_held(a, b)
        ]
    return [(f"{a}+{b}=", f"{a + b}{skills.END}") for a in range(10) for b in range(10)]


def recalls(tok, count, tokens, relation=None):
    """Prompts of `tokens` to 1.1 `tokens` tokens that end in a question, with the answer."""
    rng, out = Rng(77), []
    while len(out) < count:
        notes, pairs = skills.recall_document(
            rng, tokens * rng.uniform(0.75, 1.1), held=True, ask=1, relation=relation
        )
        prompt = f"Notes:\n{notes}\n\nQuestion: {pairs[0][0]}\nAnswer:"
        if tokens <= len(tok.encode(prompt)) <= 1.1 * tokens:
            out.append((prompt, f" {pairs[0][1]}\n"))
    return out


def fact_questions():
    return [(chat_prompt(q + "?"), a + "<|im_end|>") for a, _, held in talk.FACTS for q in held]


@torch.no_grad()
def generate(model, tok, device, prompts, count):
    """Greedy continuations of token lists, cut after an end token."""
    rows = [list(p) for p in prompts]
    going = set(range(len(rows)))
    for _ in range(count):
        if not going:
            break
        todo = sorted(going)
        hidden = model(padded([rows[i] for i in todo], device))
        last = torch.tensor([len(rows[i]) - 1 for i in todo], device=device)
        best = model.head(hidden[torch.arange(len(todo), device=device), last]).argmax(-1).tolist()
        for i, token in zip(todo, best):
            rows[i].append(token)
            if token in (tok.end, tok.turn_end):
                going.discard(i)
    return [r[len(p) :] for r, p in zip(rows, prompts)]


def samples(model, tok, device):
    coded = [tok.encode(chat_prompt(text) if kind == "chat" else text) for kind, text in PROMPTS]
    texts = generate(model, tok, device, coded, 320)
    return [
        {"mode": kind, "prompt": text, "answer": tok.decode(t)}
        for (kind, text), t in zip(PROMPTS, texts)
    ]


def story_starts(tok, count=48):
    rng = Rng(4242)
    return [tok.encode(story.story(rng, held=True))[:24] for _ in range(count)]


@torch.no_grad()
def agreement(model, tok, device, starts, texts):
    """Share of a text's tokens that this model, reading along, would have drafted."""
    same = total = 0
    for p, t in zip(starts, texts):
        best = model.head(model(padded([p + t], device)))[0].argmax(-1).tolist()
        same += sum(x == y for x, y in zip(best[len(p) - 1 :], t))
        total += len(t)
    return same / total


@torch.no_grad()
def mtp_agreement(model, tok, device):
    """GLM: how often the MTP block names the token that the trunk then chooses."""
    starts = story_starts(tok)
    same = total = 0
    for p, t in zip(starts, generate(model, tok, device, starts, 128)):
        ids = padded([p + t], device)
        best = (
            model.head(model.draft(ids, model(ids)))[0].argmax(-1).tolist()
        )  # best[i] names token i + 2
        same += sum(best[len(p) - 2 + i] == token for i, token in enumerate(t))
        total += len(t)
    return same / total


@torch.no_grad()
def expert_share(model, tok, device):
    """For each layer with experts: the least loaded expert's share of the choices, times the number of experts."""
    layers = [m for m in model.modules() if isinstance(m, models.Experts)]
    for m in layers:
        m.load.zero_()
    for i in range(4):
        models.sequence_loss(model, *split(data.rows(tok, 700 + i, 8, 1024, held=True), device))
    return [float(m.load.min() / m.load.sum() * m.c.experts) for m in layers]


@torch.no_grad()
def zero_share(model, tok, device):
    """RWKV: share of channel-mix activations that are exactly zero, for each layer."""
    shares, hooks = [[] for _ in model.model.layers], []
    for i, block in enumerate(model.model.layers):
        hooks.append(
            block.ffn.key.register_forward_hook(
                lambda _, __, out, i=i: shares[i].append(float((out <= 0).float().mean()))
            )
        )
    models.sequence_loss(model, *split(data.rows(tok, 710, 8, 1024, held=True), device))
    for hook in hooks:
        hook.remove()
    return [sum(s) / len(s) for s in shares]


@torch.no_grad()
def perplexity(model, tok, device, text):
    """Of a text that fits into the context, as `fletch eval` counts it: all tokens but the first are scored."""
    ids = tok.encode(text)
    assert len(ids) <= 4096
    logits = model.head(model(padded([ids], device)))[0, : len(ids) - 1].double()
    return math.exp(torch.nn.functional.cross_entropy(logits, torch.tensor(ids[1:], device=device)))


def report(model, tok, device, full):
    """The figures of one model; `full` adds what only a capable model is asked for."""
    out = {
        "loss": held_loss(model, tok, device),
        "samples": samples(model, tok, device),
        "perplexity": {
            path.stem: perplexity(model, tok, device, path.read_text())
            for path in sorted(HELDOUT.glob("*.txt"))
        },
        "sums": {
            "one digit": exact(model, tok, device, sums(False)),
            "two digits, held out": exact(model, tok, device, sums(True)),
        },
    }
    if full:
        out["facts, held-out questions"] = exact(model, tok, device, fact_questions())
        out["recall"] = {
            str(n): exact(model, tok, device, recalls(tok, 100, n), batch=8)
            for n in (200, 800, 2000, 3000)
        }
        out["recall at 3000 by note"] = {
            r[0]: exact(model, tok, device, recalls(tok, 40, 3000, r), batch=8)
            for r in skills.RELATIONS
        }
    if any(isinstance(m, models.Experts) for m in model.modules()):
        out["least expert load"] = expert_share(model, tok, device)
    if model.c.family == "glm":
        out["mtp agreement"] = mtp_agreement(model, tok, device)
    if model.c.family == "rwkv7":
        out["zero channel-mix share"] = zero_share(model, tok, device)
    return out


def write_heldout():
    """zoo/heldout/*.txt: text for `fletch eval`, of which nothing occurs in training; each fits into the context."""
    rng = Rng(31337)
    unmark = lambda text: text.replace(skills.QUIET, "")
    pairs = [(a, b) for a in range(10, 100) for b in range(10, 100) if skills.sum_is_held(a, b)]
    files = {
        "stories": "\n\n".join(story.story(rng, held=True) for _ in range(9)) + "\n",
        "sums": "".join(f"{a}+{b}={a + b}\n" for a, b in rng.sample(pairs, 200)),
        "calendar": "".join(unmark(skills.fact_document(rng, held=True)) for _ in range(10)),
        "recall": unmark(skills.recall_plain(rng, 3000, held=True)),
    }
    for name, text in files.items():
        (HELDOUT / f"{name}.txt").write_text(text)
        print(name, len(bpe.load().encode(text)), "tokens")


if __name__ == "__main__":
    write_heldout()
