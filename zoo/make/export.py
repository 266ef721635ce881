"""Trained models as Hugging Face directories, from which `fletch convert` makes GGUF files."""
import json
import pathlib
import shutil
import struct

import numpy

import bpe


def write_safetensors(path, tensors):
    """Float32 only."""
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, x in tensors.items():
        assert x.dtype == numpy.float32
        header[name] = {
            "dtype": "F32",
            "shape": list(x.shape),
            "data_offsets": [offset, offset + x.nbytes],
        }
        offset += x.nbytes
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(head)) + head)
        for x in tensors.values():
            f.write(numpy.ascontiguousarray(x).tobytes())


def tensors(model):
    """The checkpoint's tensors under Hugging Face names; experts are cut apart."""
    out = {}
    for name, x in model.state_dict().items():
        x = x.detach().float().cpu().numpy()
        if ".mlp.experts." not in name:
            out[name] = x
            continue
        head, _, tail = name.partition(".experts.")
        parts = numpy.split(x, model.c.experts, axis=1 if tail.startswith("down") else 0)
        for e, part in enumerate(parts):
            out[f"{head}.experts.{e}.{tail}"] = numpy.ascontiguousarray(part)
    return out


def hf_config(c):
    """config.json for a models.Config."""
    ids = bpe.load().special
    out = {
        "vocab_size": c.vocab,
        "hidden_size": c.d,
        "num_hidden_layers": c.layers,
        "torch_dtype": "float32",
        "bos_token_id": None,
        "eos_token_id": ids["<|im_end|>"],
        "pad_token_id": ids["<|endoftext|>"],
        "max_position_embeddings": c.context,
        "tie_word_embeddings": c.tied,
    }
    if c.family == "rwkv7":
        w, a, v, g = c.ranks
        return {
            "architectures": ["RWKV7ForCausalLM"],
            "model_type": "rwkv7",
            **out,
            "head_dim": c.hd,
            "num_heads": c.heads,
            "intermediate_size": 4 * c.d,
            "hidden_act": "sqrelu",
            "norm_eps": 1e-5,
            "norm_first": True,
            "norm_bias": True,
            "decay_low_rank_dim": w,
            "a_low_rank_dim": a,
            "v_low_rank_dim": v,
            "gate_low_rank_dim": g,
        }
    out.update(
        hidden_act="silu",
        num_attention_heads=c.heads,
        rms_norm_eps=c.eps,
        rope_theta=c.theta,
        attention_bias=False,
    )
    if c.family == "glm":
        return {
            "architectures": ["Glm4MoeLiteForCausalLM"],
            "model_type": "glm4_moe_lite",
            **out,
            "num_key_value_heads": c.heads,
            "intermediate_size": c.ff,
            "moe_intermediate_size": c.expert_ff,
            "q_lora_rank": c.q_lora,
            "kv_lora_rank": c.kv_lora,
            "qk_nope_head_dim": c.nope,
            "qk_rope_head_dim": c.rope,
            "qk_head_dim": c.nope + c.rope,
            "v_head_dim": c.v_hd,
            "n_routed_experts": c.experts,
            "n_shared_experts": 1,
            "num_experts_per_tok": c.top,
            "first_k_dense_replace": 1,
            "routed_scaling_factor": c.scale,
            "norm_topk_prob": True,
            "n_group": 1,
            "topk_group": 1,
            "topk_method": "noaux_tc",
            "scoring_func": "sigmoid",
            "rope_interleave": True,
            "num_nextn_predict_layers": 1,
        }
    kind = {"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3", "qwen3moe": "Qwen3Moe"}[c.family]
    out = {
        "architectures": [kind + "ForCausalLM"],
        "model_type": "qwen3_moe" if c.family == "qwen3moe" else c.family,
        **out,
        "num_key_value_heads": c.kv,
        "head_dim": c.hd,
        "intermediate_size": c.ff or c.experts * c.expert_ff,
    }
    if c.experts:
        out.update(
            num_experts=c.experts,
            num_experts_per_tok=c.top,
            moe_intermediate_size=c.expert_ff,
            norm_topk_prob=True,
            decoder_sparse_step=1,
            mlp_only_layers=[],
        )
    return out


def write_hf(folder, config, weights):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_safetensors(folder / "model.safetensors", weights)
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    eos = [config["eos_token_id"], config["pad_token_id"]]
    (folder / "generation_config.json").write_text(
        json.dumps({"eos_token_id": eos, "do_sample": False}, indent=1) + "\n"
    )
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(bpe.HOME / name, folder / name)
