#!/usr/bin/env python3
"""Do the golden tests bite? Each planted mistake must make golden_test fail.

    test/mutate_test.py BUILD

One source file at a time is copied with one text replaced, compiled with the build's compiler and
linked before BUILD/libfletch.a with the objects of golden_test. A text that is not found exactly
once is a failure: the mistake has to move with the code.
"""
import concurrent.futures
import os
import signal
import subprocess
import sys
import tempfile

PARTS = "src/model/arch/parts.c"
GLM = "src/model/arch/deepseek2.c"
MTP = "src/model/arch/mtp.c"
RWKV = "src/model/arch/rwkv7.c"
OPS = "src/ref/ref_ops.c"
HPARAMS = "src/model/hparams.c"
HOSTMEM = "src/core/hostmem.c"
DELTA = "src/model/arch/delta.c"
GEMMA4 = "src/model/arch/gemma4.c"
HF_TENSORS = "src/format/hf_tensors.c"
HF_MAKE = "src/format/hf_make.c"
MAMBA = "src/model/arch/mamba.c"
LFM2 = "src/model/arch/lfm2.c"
NEMOTRON = "src/model/arch/nemotron_h.c"

MUTANTS = [
    # name, file, text, replacement
    ("llama rotates halves", "src/model/arch/llama.c", "ROPE_NORM", "ROPE_NEOX"),
    ("qwen2 rotates neighbours", "src/model/arch/qwen2.c", "ROPE_NEOX", "ROPE_NORM"),
    ("glm rotates keys in halves", GLM,
     "prog_rope_to(p, ROPE_NORM, 1, rot,", "prog_rope_to(p, ROPE_NEOX, 1, rot,"),
    ("rope exponent", "src/model/rope.c", "pow((double)hp->rope_base, -2.0 * i", "pow((double)hp->rope_base, -1.0 * i"),
    ("rope_freqs ignored", "src/model/rope.c", "theta / (double)f[i]", "theta"),
    ("epsilon times ten", PARTS, "norm(b, label, x, w, b->hp->eps);",
     "norm(b, label, x, w, 10 * b->hp->eps);"),
    ("inner epsilon is the outer one", "src/model/hparams.c",
     'source_get_f32(r->s, "fletch.mla_norm_epsilon", &hp->eps_mla, r->err)', "0"),
    ("gate and up swapped", PARTS, 'prog_glu_by(b->p, "ffn_glu", gate, up, glu)',
     'prog_glu_by(b->p, "ffn_glu", up, gate, glu)'),
    ("expert gate and up swapped", PARTS, 'prog_glu_by(p, "expert_glu", gate, up, b->glu)',
     'prog_glu_by(p, "expert_glu", up, gate, b->glu)'),
    ("bias used in expert weights", HOSTMEM, "sum += weights[j] = p[e];",
     "sum += weights[j] = p[e] + (bias ? bias[e] : 0);"),
    ("bias not used for the choice", HOSTMEM, "pick[i] = score_of(p[i] + (bias ? bias[i] : 0))",
     "(void)bias, pick[i] = score_of(p[i])"),
    ("expert scale forgotten", HOSTMEM, "weights[j] *= op->p.route.scale;", ";"),
    ("expert weights not normalised", PARTS, ".normalise = hp->expert_norm,", ".normalise = false,"),
    ("shared expert left out", PARTS, "if (!spec.n_shared) return y;", "return y;"),
    ("latent scale of the cached width", GLM, "m * m / sqrtf((float)qk)",
     "m * m / sqrtf((float)wide)"),
    ("attention scale of the model width", PARTS, "1.0f / sqrtf((float)head_k)",
     "1.0f / sqrtf((float)hp->d_model)"),
    ("key heads dealt round", OPS, "g = h / per_group", "g = h % op->p.attn.n_kv_heads"),
    ("attention sees the future", OPS,
     "for (u32 j = first; j <= r->pos; j++) {\n            const u8",
     "for (u32 j = first; j <= (u32)a->run->s->rows[a->run->s->n_rows - 1].pos; j++) {\n"
     "            const u8"),
    ("head norm after rope", PARTS, "spec.qk_norm == QK_NORM_HEADS ||",
     "spec.qk_norm == QK_NORM_LAST ||"),
    ("embedding not scaled", PARTS, "prog_embed(b->p, w), b->hp->embedding_scale)",
     "prog_embed(b->p, w), 1)"),
    ("residuals not scaled", PARTS, "part_scale(b, \"residual\", y, b->hp->residual_scale)", "y"),
    ("attention's own scale ignored", PARTS,
     "hp->attention_scale > 0 ? hp->attention_scale :", ""),
    ("logits multiplied by their scale", PARTS, "scale > 0 ? 1 / scale : 1", "scale"),
    ("latent attention without yarn's scale", GLM, "m * m / sqrtf((float)qk)",
     "1 / sqrtf((float)qk)"),
    ("yarn's rotation scaled in MLA too", "src/model/rope.c", " && !(hp->kv_lora && hp->yarn_log_mul > 0)", ""),
    ("longrope's rotation not scaled", "src/model/rope.c", "SCALING_YARN || two)", "SCALING_YARN)"),
    ("short factors in long contexts", "src/model/rope.c", '"rope_factors_long.weight", err)',
     '"rope_factors_short.weight", err)'),
    ("yarn's corners fixed", "src/model/rope.c", "(double)hp->yarn_fast", "32"),
    ("alpha of the rotation ignored", "src/format/hf_rope.c",
     "if (by_alpha) base *=", "if (false) base *="),
    ("all layers rotate", PARTS, "bool turns = !spec.plain_every ||", "bool turns = true ||"),
    ("heads normed one by one", PARTS, "kind == QK_NORM_WHOLE ? x.width : b->hp->block_head_k[l]",
     "b->hp->block_head_k[l]"),
    ("gate and up rows swapped", PARTS, "wg = bind_rows(bind, d, 2 * n_ff, 0, n_ff, 1,",
     "wg = bind_rows(bind, d, 2 * n_ff, n_ff, n_ff, 1,"),
    ("whole heads rotate", "src/format/hf_rope.c", "n_rot = rotated(c, p, n_rot);",
     "rotated(c, p, n_rot);"),
    ("mixtral's expert weights not normalised", "src/model/hparams.c",
     "hp->expert_norm = !(r->traits & ARCH_SAYS_NORM);", "hp->expert_norm = false;"),
    ("residual dropped", PARTS,
     'return part_residual(b, "attn_residual", x, y);', "return y;"),
    ("MTP halves swapped", MTP,
     """    prog_norm_to(p, prog_cols(p, eg, 0, d), e, norm);
    norm.w = bind_vector(bind, d, "blk.%u.nextn.hnorm", l);
    prog_norm_to(p, prog_cols(p, eg, d, d), g, norm);
""",
     """    prog_norm_to(p, prog_cols(p, eg, d, d), e, norm);
    norm.w = bind_vector(bind, d, "blk.%u.nextn.hnorm", l);
    prog_norm_to(p, prog_cols(p, eg, 0, d), g, norm);
"""),
    ("MTP keeps the trunk's norm", MTP, 'bind_has(bind, "blk.%u.nextn.shared_head_norm", l)',
     "false"),
    ("shift not carried to the state", OPS,
     "memcpy(state_of(run, op, s->rows[t].slot), at(run, op->in[0], t), bytes);", ";"),
    ("kk after the update of k", RWKV, 'prog_mul_weight(p, "k_k", k,',
     'prog_mul_weight(p, "k_k", prog_k_control(p, "k2", k, a, '
     'bind_vector(bind, d, "blk.%u.time_mix_k_a", l)),'),
    ("wkv takes k before its update", RWKV,
     'k = prog_k_control(p, "k_controlled", k, a, bind_vector(bind, d, "blk.%u.time_mix_k_a", l));',
     ""),
    ("lerp order", RWKV, "h, prev, mu, m)", "h, prev, mu, m == 1 ? 2 : m == 2 ? 1 : m)"),
    ("lerp direction", RWKV, "h, prev, mu, m)", "prev, h, mu, m)"),
    ("decay without its factor", OPS, "-0.606530660f * num_sigmoid(x)", "-num_sigmoid(x)"),
    ("group norm epsilon", RWKV, ".eps = 64e-5f", ".eps = 1e-5f"),
    ("values mixed the other way", RWKV, "v, mix->v_first, m)", "mix->v_first, v, m)"),
    ("relu not squared", OPS, "x < 0 ? 0 : x * x;", "x < 0 ? 0 : x;"),
    ("state update without a", OPS, "s * (double)x->kk[j] * (double)x->a[j]",
     "s * (double)x->kk[j]"),
    ("convolution turned round", OPS, "w[(size_t)i * K + k]", "w[(size_t)i * K + K - 1 - k]"),
    ("what is learned compared before the decay", OPS,
     "v -= (double)row[j] * (double)x->w[x->head_decay ? 0 : j] * (double)x->k[j];",
     "v -= (double)row[j] * (double)x->k[j];"),
    ("delta rule without its subtraction", OPS, "kind == RECURRENCE_DELTA && j < n", "false"),
    ("heads of the delta net in order", "src/model/arch/qwen35.c",
     "return part_delta_net(b, h, l, true);", "return part_delta_net(b, h, l, false);"),
    ("heads of the delta net in turns", "src/model/arch/qwen35.c",
     "return part_delta_net(b, h, l, false);", "return part_delta_net(b, h, l, true);"),
    ("queries of the delta net not scaled", DELTA, "prog_cols(p, qkv, 0, keys), 1 / sqrtf((float)n))",
     "prog_cols(p, qkv, 0, keys), 1)"),
    ("queries and keys of the delta net swapped", DELTA, "prog_cols(p, qkv, keys, keys), 1)",
     "prog_cols(p, qkv, 0, keys), 1)"),
    ("convolution without its function", DELTA, 'prog_act(p, "conv_silu", ACT_SILU,',
     'prog_act(p, "conv_silu", ACT_TANH,'),
    ("decay without softplus", DELTA, "ACT_SOFTPLUS", "ACT_SILU"),
    ("alpha and beta swapped", DELTA, "alpha ? n : 0", "alpha ? 0 : n"),
    ("gate of the delta net swapped", DELTA, "z, y)", "y, z)"),
    ("heads not gated by a sigmoid", PARTS, '"q_gate", ACT_SIGMOID', '"q_gate", ACT_TANH'),
    ("heads gated by their queries", PARTS,
     "prog_cols(p, gate, head_k, gate.width - head_k)",
     "prog_cols(p, gate, 0, gate.width - head_k)"),
    ("shared expert not gated", PARTS, '"shared_part", ACT_SIGMOID', '"shared_part", ACT_EXP'),
    ("norms stored less one read as they are", HF_MAKE, "x[i] += 1", "x[i] += 0"),
    ("decay's logarithm not negated", HF_MAKE, "(float)-exp(", "(float)exp("),
    ("all blocks but every fourth have a state", "src/model/hparams.c",
     "listed ? kv->data[i] != 0 :", ""),
    ("windows ignored", OPS, "u32 first = op_first_seen(op, r->pos);", "u32 first = 0;"),
    ("windows in every layer", HPARAMS, "slides[i] ? hp->window : 0", "hp->window"),
    ("sinks left out", OPS, "double sum = a->sinks ? (double)num_exp(a->sinks[h] - top) : 0;",
     "double sum = 0;"),
    ("scores not capped", OPS, "return cap > 0 ? cap * num_tanh(s / cap) : s;", "return s;"),
    ("logits not capped", PARTS, "if (cap > 0) logits = prog_act(",
     "if (false) logits = prog_act("),
    ("gelu without its cube", OPS, "(g + 0.044715f * g * g * g)", "g"),
    ("gates not clamped", OPS, "g = g > limit ? limit : g;", ";"),
    ("up not clamped", OPS, "u = u > limit ? limit : u < -limit ? -limit : u;\n        return g *",
     ";\n        return g *"),
    ("up without its one", OPS, "(u + 1.0f)", "u"),
    ("biases of experts left out", PARTS,
     'if (!bind_has(bind, "blk.%u.%s.bias", l, name)) return x;', "return x;"),
    ("gate and up one behind the other", "src/format/hf_tensors.c",
     "every = rule->how == WHOLE ? 1 : 2, first = rule->how == ODD;",
     "every = rule->how == WHOLE ? 1 : 2, first = 0;"),
    ("nibbles of MXFP4 as they lie", HF_MAKE,
     "u32 low = blocks[i / 2] >> i % 2 * 4 & 15, high = blocks[8 + i / 2] >> i % 2 * 4 & 15;",
     "u32 low = blocks[i] & 15, high = blocks[i] >> 4;"),
    ("yarn's corners rounded", "src/model/rope.c", "hp->yarn_exact ? lo : floor(lo)", "floor(lo)"),
    ("layers with a window rotate as others do", HPARAMS, "local ? ROPE_LOCAL : ROPE_MAIN",
     "ROPE_MAIN"),
    ("layers without a window rotate", HPARAMS, "ROPE_OFF : ROPE_MAIN", "ROPE_MAIN : ROPE_MAIN"),
    ("queries do not grow", HPARAMS, "    hp->query_rope = ROPE_GROWING;\n", ""),
    ("no norm behind attention", PARTS, "if (spec.post_norm) y =", "if (false) y ="),
    ("no norm behind the feed-forward", "src/model/arch/dense.c", "if (spec.post_norm) y =",
     "if (false) y ="),
    ("Gemma's norms without their one", HF_TENSORS, "PLUS_ONE || minus_one ?", "PLUS_ONE ?"),
    ("embedding not scaled by its width", HPARAMS,
     "if (r->traits & ARCH_ROOT_EMBED) hp->embedding_scale =",
     "if (false) hp->embedding_scale ="),
    ("Gemma's scale of attention ignored", HPARAMS, 'if (n) get_f32(r, "attention.scale"',
     'if (false) get_f32(r, "attention.scale"'),
    ("logits divided by their scale", HPARAMS, "hp->logit_scale = 1 / scale;",
     "hp->logit_scale = scale;"),
    ("layer norms as RMS norms", PARTS, "b->hp->layer_norm ? NORM_LAYER : NORM_RMS", "NORM_RMS"),
    ("values not normed", PARTS, "if (v_norm) v =", "if (false) v ="),
    ("scores scaled by their width", PARTS, "spec.scale > 0 ? spec.scale : scale", "scale"),
    ("caches lent by the first layer of a kind", HPARAMS, "            lender[slides] = i;",
     "            if (lender[slides] == UINT32_MAX) lender[slides] = i;"),
    ("scales of experts left out", HOSTMEM, "if (scales) weights[j] *= scales[ids[j]];", ";"),
    ("the router reads what experts read", PARTS, "spec.router.width ? spec.router : h", "h"),
    ("the router's input not scaled", GEMMA4, "z, 1 / sqrtf((float)hp->d_model))", "z, 1)"),
    ("embeddings of layers not scaled", GEMMA4, "prog_embed(b->p, w), sqrtf((float)d))",
     "prog_embed(b->p, w), 1)"),
    ("embeddings of layers left out", GEMMA4, 'prog_add(b->p, "layers_sum", y, e)', "y"),
    ("projections to layers left out", GEMMA4, 'prog_add(b->p, "layers_sum", y, e)', "e"),
    ("a block's output not scaled", GEMMA4, "scale == NO_WEIGHT ? x :", "true ? x :"),
    ("all pairs of whole heads rotate", "src/format/hf_rope.c",
     "i < turning ? (float)factor : 1e30f", "(float)factor"),
    ("what attention gives not scaled", PARTS, "o, hp->value_scale)", "o, 1)"),
    ("sinks of some layers left out", PARTS, "(spec.sinks && bind_has(", "(false && bind_has("),
    ("gates by sigmoid", "src/model/arch/laguna.c", "ACT_SOFTPLUS", "ACT_SIGMOID"),
    ("gates by tanh", "src/model/arch/afmoe.c", "ACT_SIGMOID", "ACT_TANH"),
    ("columns that rotate do not grow", GLM, "ROPE_NORM, hp->query_rope, H", "ROPE_NORM, 0, H"),
    ("columns that do not rotate do not grow", GLM, "if (hp->query_rope == ROPE_GROWING)",
     "if (false)"),
    ("leading dense blocks do not rotate", HPARAMS, "        hp->block_rope[i] = ROPE_MAIN;\n",
     "        ;\n"),
    ("experts and shared ones added", "src/model/arch/cohere2.c", "y, 0.5f", "y, 1"),
    ("as many columns rotate in layers with a window", HPARAMS,
     '"rope.dimension_count_swa", OPTIONAL, 2, 1 << 16, &hp->n_rot_local);',
     '"rope.dimension_count_swa", OPTIONAL, 2, 1 << 16, &(u32){0});'),
    ("units not limited", OPS, "return (g > limit ? limit : g) * u;", "return g * u;"),
    ("up of limited units not limited", OPS,
     "u = u > limit ? limit : u < -limit ? -limit : u;\n        return (g", ";\n        return (g"),
    ("shared experts limited as others", PARTS, "spec.shared_glu ? *spec.shared_glu : b->glu",
     "b->glu"),
    ("all columns rotate in layers without a window", HPARAMS, "hp->n_rot /= 2;", ";"),
    ("norms behind the halves with the epsilon of others", PARTS,
     "b->post_eps > 0 ? b->post_eps : b->hp->eps", "b->hp->eps"),
    ("the router's weight left out of its expert", PARTS,
     'spec.on_input ? prog_mul_heads(p, "expert_in", h, weights) : h', "h"),
    ("all queries grow or none", PARTS, "hp->block_rope[l] == ROPE_OFF && hp->still_grows",
     "false"),
    ("chunks as windows", PARTS, ".chunked = hp->chunked", ".chunked = false"),
    ("rotated heads not normed", PARTS,
     "spec.qk_norm == QK_NORM_BARE && hp->block_rope[l] != ROPE_OFF", "false"),
    ("experts in every block", "src/model/arch/llama4.c", "if ((l + 1) % hp->expert_every)",
     "if ((l + 1) % hp->expert_every && false)"),
    ("columns of gate and up swapped", HF_TENSORS, "rule->how == UP_COLUMNS ? half : 0",
     "rule->how == UP_COLUMNS ? 0 : half"),
    ("queries not scaled", HF_TENSORS, "i ? 1 : h->q_scale", "1"),
    ("the embedding not normed", "src/model/arch/muse_glimmer.c", ".begin = norm_embedding",
     ".begin = NULL"),
    ("a parallel block in series", "src/model/arch/dense.c", "spec.ffn(b, h, l));\n    }",
     "spec.ffn(b, x, l));\n    }"),
    ("short convolution's gates swapped", LFM2,
     'prog_mul(p, "conv_out_gated", x, prog_cols(p, all, d, d))',
     'prog_mul(p, "conv_out_gated", x, prog_cols(p, all, 0, d))'),
    ("short convolution without its first gate", LFM2,
     'prog_mul(p, "conv_gated", prog_cols(p, all, 2 * d, d), prog_cols(p, all, 0, d))',
     "prog_cols(p, all, 2 * d, d)"),
    ("Mamba reads what it should learn by", MAMBA, "spec.k = prog_cols(p, x, values, keys)",
     "spec.k = prog_cols(p, x, values + keys, keys)"),
    ("Mamba's step not added to its bias", MAMBA,
     'dt = prog_add_weight(p, "step_in", dt, bind_vector(bind, dt.width, "blk.%u.ssm_dt.bias", l));',
     ""),
    ("Mamba without its skip", MAMBA, 'prog_add(p, "mamba_sum", y, skip)', "y"),
    ("Mamba gated the other way", MAMBA, 'prog_glu(p, "mamba_gated", z,',
     'prog_glu(p, "mamba_gated", spec.v,'),
    ("Mamba's norm over all groups", MAMBA, ".group = values / hp->recur_keys,", ""),
    ("convolution of Mamba without its bias", MAMBA, "past, taps, bias)", "past, taps, NO_WEIGHT)"),
    ("strength of Mamba forgotten", OPS,
     "x->b * v * (double)x->k[j] + gone", "v * (double)x->k[j] + gone"),
    ("Nemotron's attention rotates", NEMOTRON, "{.plain_every = 1}", "{.rope = ROPE_NORM}"),
    ("Nemotron's feed-forward not squared", NEMOTRON, "b->act = ACT_RELU2;", "b->act = ACT_SILU;"),
    ("Granite rotates where it should not", "src/model/arch/granite.c", "b->hp->no_rope ? 1 : 0", "0"),
    ("Falcon's mixers one after the other", "src/model/arch/falcon_h1.c",
     "part_mamba(b, h, l)", "part_mamba(b, a, l)"),
    ("pace of Kimi's decay without softplus", "src/model/arch/kimi_linear.c",
     'prog_act(p, "pace", ACT_SOFTPLUS,', 'prog_act(p, "pace", ACT_SILU,'),
    ("gate of Kimi's delta attention by SiLU", "src/model/arch/kimi_linear.c",
     'prog_act(p, "kda_gate", ACT_SIGMOID,', 'prog_act(p, "kda_gate", ACT_SILU,'),
    ("latent attention of Kimi Linear rotates", HPARAMS, "hp->no_rope = true;", ""),
    ("FP8 scaled by the first block of columns", HF_MAKE, "* across + col / wide;", "* across;"),
    ("FP8 without small values", HF_MAKE, "if (most < 8) x = (float)most / 512;", ""),
    ("multipliers of parts of Mamba forgotten", HF_MAKE, "f[i] *= r->scale[p];", "f[i] *= 1;"),
]


def mutate(text, name, old, new):
    """The changed text, or None and why."""
    if text.count(old) != 1:
        return None, f"{name}: its text is there {text.count(old)} times, not once"
    return text.replace(old, new), None


def compiler(build):
    """The build's compiler, preprocessor flags and libraries."""
    config = {}
    with open(os.path.join(build, "config.mk")) as f:
        for line in f:
            key, _, value = line.partition(":=")
            config[key.strip()] = value.split()
    libs = config["TEST_LIBS"] + config["PKG_LIBS"] + config["FRAMEWORKS"] + ["-lm", "-pthread"]
    return config["PKG_CFLAGS"], libs


def golden_fails(build, folder, name, source):
    """True, False, or a text that says why it can't be told. source: None for the plain link."""
    cflags, libs = compiler(build)
    cc, extra = os.environ.get("CC", "cc"), os.environ.get("EXTRA", "").split()
    stem = os.path.join(folder, name.replace(" ", "_").replace("'", ""))
    objects = []
    if source:
        compile_ = [cc, "-std=c11", "-D_GNU_SOURCE", "-O1", "-w", "-ffp-contract=off", "-Isrc",
                    "-Iinclude", *extra, *cflags, "-c", source, "-o", stem + ".o"]
        done = subprocess.run(compile_, capture_output=True, text=True)
        if done.returncode:
            return f"{name}: does not compile: {done.stderr.strip().splitlines()[0]}"
        objects = [stem + ".o"]
    helpers = [os.path.join(build, "test", x) for x in ("golden_test.o", "harness.o")]
    link = [cc, *extra, *objects, *helpers, os.path.join(build, "libfletch.a"), "-o", stem, *libs]
    done = subprocess.run(link, capture_output=True, text=True)
    if done.returncode:
        return f"{name}: does not link: {done.stderr.strip().splitlines()[-1]}"
    done = subprocess.run([stem], capture_output=True, text=True, timeout=60)
    if done.returncode == -signal.SIGABRT and "internal error: " in done.stderr:
        return True  # an invariant of ours found it
    if done.returncode < 0:
        return f"{name}: golden_test died of signal {-done.returncode}"
    return done.returncode > 0 and "[  FAILED  ]" in done.stdout + done.stderr


def main():
    build = sys.argv[1] if len(sys.argv) > 1 else "build"
    if "-fsanitize" in os.environ.get("EXTRA", ""):
        print("skip mutants: a sanitizer adds nothing to them")
        return
    with tempfile.TemporaryDirectory() as folder:

        def attempt(mutant):
            name, path, old, new = mutant
            if path is None:
                return name, golden_fails(build, folder, "unchanged", None), False
            with open(path) as f:
                text, why = mutate(f.read(), name, old, new)
            if why:
                return name, why, True
            copy = os.path.join(folder, name.replace(" ", "_").replace("'", "") + ".c")
            with open(copy, "w") as f:
                f.write(text)
            return name, golden_fails(build, folder, name, copy), True

        bad = 0
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for name, got, want in pool.map(attempt, [("unchanged", None, "", "")] + MUTANTS):
                bad += got is not want
                print("ok" if got is want else "not ok", "mutant", name, flush=True)
                if got is not want:
                    print("   ", got if isinstance(got, str) else f"golden_test fails: {got}")
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
