"""Models whose hidden states are pooled: an embedder saved without the class around it, with
sentence-transformers' files beside it, and a reranker with a classifier's head, from transformers'
own classes."""

import json
import os

import torch
from transformers import Qwen3Config, Qwen3ForSequenceClassification, Qwen3Model

from common import F64, Random, entry, fresh, write_f32, write_golden

SIZES = dict(
    vocab_size=101,
    hidden_size=36,
    num_hidden_layers=2,
    num_attention_heads=3,
    num_key_value_heads=1,
    head_dim=16,
    intermediate_size=40,
    rms_norm_eps=1e-6,
    rope_theta=1e4,
    max_position_embeddings=256,
    tie_word_embeddings=True,
    bos_token_id=1,
    eos_token_id=2,
    pad_token_id=0,
)


def randomise(model, random):
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(random.around(*p.shape) if p.ndim == 1 else random.normal(*p.shape, gain=1.5))
    return model.to(F64).eval()


def save(model, folder):
    model.to(torch.float16).save_pretrained(folder, safe_serialization=True)
    model.to(F64)


def put(folder, name, value):
    path = os.path.join(folder, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as f:
        json.dump(value, f, indent=1)
        f.write("\n")


def add_hidden(model, tokens, folder):
    """The final hidden states, and the logits of the embedding as a tied head."""
    with torch.no_grad():
        hidden = model(tokens[None]).last_hidden_state[0]
    logits = hidden @ model.embed_tokens.weight.T
    write_f32(os.path.join(folder, "hidden.f32"), hidden)
    write_f32(os.path.join(folder, "logits.f32"), logits)
    return dict(
        hidden=entry("hidden.f32", *hidden.shape), logits=entry("logits.f32", *logits.shape)
    )


def make_embedding(out, name="qwen3_embedding", seed=501):
    folder, random = fresh(out, name), Random(seed)
    model = randomise(Qwen3Model(Qwen3Config(**SIZES)), random)
    tokens = random.tokens()
    files = add_hidden(model, tokens, folder)
    save(model, folder)
    modules = [("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")]
    put(
        folder,
        "modules.json",
        [
            dict(idx=i, name=str(i), path=path, type="sentence_transformers.models." + kind)
            for i, (kind, path) in enumerate(modules)
        ],
    )
    put(folder, "1_Pooling/config.json", dict(pooling_mode_lasttoken=True, include_prompt=True))
    write_golden(folder, tokens, SIZES["hidden_size"], SIZES["num_hidden_layers"], files, seed=seed)


def make_reranker(out, name="qwen3_reranker", seed=502):
    folder, random = fresh(out, name), Random(seed)
    labels = {0: "no", 1: "maybe", 2: "yes"}
    config = Qwen3Config(**SIZES, num_labels=3, id2label=labels)
    model = randomise(Qwen3ForSequenceClassification(config), random)
    tokens = random.tokens()
    tokens[tokens == 0] = 3  # the class pools before padding
    files = add_hidden(model.model, tokens, folder)
    with torch.no_grad():
        labels = torch.stack([model(tokens[None, : i + 1]).logits[0] for i in range(len(tokens))])
    save(model, folder)
    write_f32(os.path.join(folder, "labels.f32"), labels)
    files["labels"] = entry("labels.f32", *labels.shape)
    write_golden(folder, tokens, SIZES["hidden_size"], SIZES["num_hidden_layers"], files, seed=seed)


def make_all(out):
    make_embedding(out)
    make_reranker(out)
