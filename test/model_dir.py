"""A random llama of 2 layers as a Hugging Face directory, for tests that bring a tokenizer."""

import array
import json
import os
import random
import struct


def write_safetensors(path, tensors):
    head, at = {}, 0
    for name, (shape, data) in tensors.items():
        head[name] = dict(dtype="F32", shape=shape, data_offsets=[at, at + 4 * len(data)])
        at += 4 * len(data)
    text = json.dumps(head).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for _, data in tensors.values():
            f.write(array.array("f", data).tobytes())


def make_llama(folder, n_vocab):
    os.makedirs(folder)
    d, ffn, kv = 32, 48, 16
    config = dict(
        architectures=["LlamaForCausalLM"],
        model_type="llama",
        hidden_act="silu",
        hidden_size=d,
        intermediate_size=ffn,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=n_vocab,
        max_position_embeddings=4096,
        rms_norm_eps=1e-5,
        rope_theta=10000.0,
        tie_word_embeddings=True,
        torch_dtype="float32",
    )
    rng = random.Random(7)

    def normal(*shape):
        n = 1
        for k in shape:
            n *= k
        return list(shape), [rng.gauss(0, 0.3) for _ in range(n)]

    tensors = {"model.embed_tokens.weight": normal(n_vocab, d)}
    for i in range(2):
        p = f"model.layers.{i}."
        tensors[p + "input_layernorm.weight"] = ([d], [1.0] * d)
        tensors[p + "self_attn.q_proj.weight"] = normal(d, d)
        tensors[p + "self_attn.k_proj.weight"] = normal(kv, d)
        tensors[p + "self_attn.v_proj.weight"] = normal(kv, d)
        tensors[p + "self_attn.o_proj.weight"] = normal(d, d)
        tensors[p + "post_attention_layernorm.weight"] = ([d], [1.0] * d)
        tensors[p + "mlp.gate_proj.weight"] = normal(ffn, d)
        tensors[p + "mlp.up_proj.weight"] = normal(ffn, d)
        tensors[p + "mlp.down_proj.weight"] = normal(d, ffn)
    tensors["model.norm.weight"] = ([d], [1.0] * d)
    write_safetensors(f"{folder}/model.safetensors", tensors)
    json.dump(config, open(f"{folder}/config.json", "w"))
    return folder
