#include "model/arch/parts.h"

#include <math.h>

static struct operand norm(struct build *b, const char *label, struct operand x, u32 w, float eps)
{
    return prog_norm(
        b->p, label, x,
        (struct norm_spec){
            .kind = b->hp->layer_norm ? NORM_LAYER : NORM_RMS, .eps = eps, .w = w, .b = NO_WEIGHT});
}

struct operand part_norm(struct build *b, const char *label, struct operand x, u32 w)
{
    return norm(b, label, x, w, b->hp->eps);
}

struct operand part_block_norm(struct build *b, const char *label, struct operand x, u32 l,
                               const char *name)
{
    return part_norm(b, label, x, bind_vector(&b->bind, x.width, "blk.%u.%s", l, name));
}

struct operand part_heads_norm(struct build *b, const char *label, struct operand x, u32 width,
                               u32 w)
{
    return prog_norm(
        b->p, label, x,
        (struct norm_spec){
            .kind = NORM_RMS, .group = width, .eps = b->hp->eps, .w = w, .b = NO_WEIGHT});
}

struct operand part_post_norm(struct build *b, const char *label, struct operand x, u32 l,
                              const char *name)
{
    u32 w = bind_vector(&b->bind, x.width, "blk.%u.%s", l, name);
    return norm(b, label, x, w, b->post_eps > 0 ? b->post_eps : b->hp->eps);
}

struct operand part_scale(struct build *b, const char *label, struct operand x, float value)
{
    if (value == 0 || value == 1) return x;
    return prog_mul_weight(b->p, label, x, bind_constant(&b->bind, x.width, value));
}

struct operand part_embed(struct build *b)
{
    u32 w = bind_matrix(&b->bind, b->hp->d_model, b->hp->n_vocab, "token_embd");
    return part_scale(b, "embed_scaled", prog_embed(b->p, w), b->hp->embedding_scale);
}

struct operand part_residual(struct build *b, const char *label, struct operand x, struct operand y)
{
    return prog_add(b->p, label, x, part_scale(b, "residual", y, b->hp->residual_scale));
}

/* Does block l attend to the cache of an earlier one? */
static bool borrows(const struct build *b, u32 l)
{
    return b->hp->block_cache[l] != l;
}

/* q, k and v of block l, from three tensors or from rows of one. */
static void bind_qkv(struct build *b, u32 l, struct attention_spec spec, u32 w[3], u32 bias[3])
{
    const struct hparams *hp = b->hp;
    u32 k = hp->block_head_k[l], v = hp->block_head_v[l];
    const u32 n[3] = {hp->block_heads[l] * k * (spec.q_gate ? 2 : 1), hp->block_kv_heads[l] * k,
                      hp->block_kv_heads[l] * v};
    static const char part[3] = {'q', 'k', 'v'};
    bool fused = bind_has(&b->bind, "blk.%u.attn_qkv", l);
    u32 all = n[0] + n[1] + n[2], row = 0;
    for (u32 i = 0; i < (borrows(b, l) ? 1 : 3); i++) {
        if (i == 2 && spec.v_norm && !fused && k == v && !bind_has(&b->bind, "blk.%u.attn_v", l)) {
            w[i] = bias[i] = NO_WEIGHT; /* keys are the values */
            break;
        }
        w[i] = fused ? bind_rows(&b->bind, hp->d_model, all, row, n[i], 1, "blk.%u.attn_qkv", l)
                     : bind_matrix(&b->bind, hp->d_model, n[i], "blk.%u.attn_%c", l, part[i]);
        bias[i] = fused ? bind_vector_part(&b->bind, all, row, n[i], "blk.%u.attn_qkv.bias", l)
                        : bind_vector_opt(&b->bind, n[i], "blk.%u.attn_%c.bias", l, part[i]);
        row += n[i];
    }
}

/* q or k of block l, of n_heads heads, normed as spec says. */
static struct operand norm_heads(struct build *b, const char *label, struct operand x, u32 l,
                                 const char *name, enum qk_norm kind)
{
    u32 n = kind == QK_NORM_WHOLE ? x.width : b->hp->block_head_k[l];
    return part_heads_norm(b, label, x, n, bind_vector(&b->bind, n, "blk.%u.%s", l, name));
}

/* q and k of block l rotated by the tables of its kind of layer. */
static void rotate(struct build *b, u32 l, enum rope_kind kind, struct operand *q,
                   struct operand *k)
{
    const struct hparams *hp = b->hp;
    u32 width = hp->block_head_k[l];
    u32 table = hp->block_rope[l], grown = hp->query_rope == ROPE_MAIN ? table : hp->query_rope;
    u32 n = hp->block_heads[l], stride = q->width / n;
    if (stride > width) { /* gates lie between the heads; such models have one table */
        struct operand turned = prog_buf(b->p, "q_rope", n * width);
        prog_rope_to(b->p, kind, n, width, turned, width, *q, stride);
        *q = turned;
    } else {
        *q = prog_rope_by(b->p, "q_rope", kind, grown, n, *q);
    }
    if (!borrows(b, l)) *k = prog_rope_by(b->p, "k_rope", kind, table, hp->block_kv_heads[l], *k);
}

/* Keys and values of block l to a cache of their own, once rotated. */
static void store(struct build *b, u32 l, struct operand k, struct operand v, bool v_norm)
{
    if (v_norm) v = part_heads_norm(b, "v_norm", v, b->hp->block_head_v[l], NO_WEIGHT);
    b->kv[l] = net_kv(b->p->net, k.width, v.width);
    prog_kv_store(b->p, b->kv[l], k, v);
}

/* The heads o of block l times what their gates say of h. */
static struct operand gate_heads(struct build *b, struct operand o, struct operand h, u32 l,
                                 enum act_kind act)
{
    u32 n_heads = b->hp->block_heads[l];
    bool by_head = bind_count_rows(&b->bind, "blk.%u.attn_gate", l) == n_heads;
    u32 w = bind_matrix(&b->bind, h.width, by_head ? n_heads : o.width, "blk.%u.attn_gate", l);
    struct operand g = prog_act(b->p, "gate", act, prog_matmul(b->p, "gate_in", h, w, NO_WEIGHT));
    return by_head ? prog_mul_heads(b->p, "attn_gated", o, g) : prog_mul(b->p, "attn_gated", o, g);
}

struct operand part_attend(struct build *b, struct operand h, u32 l, struct attention_spec spec)
{
    const struct hparams *hp = b->hp;
    struct program *p = b->p;
    u32 w[3] = {0}, bias[3] = {0}, n_heads = hp->block_heads[l], n_kv_heads = hp->block_kv_heads[l];
    u32 head_k = hp->block_head_k[l], head_v = hp->block_head_v[l];
    bool own = !borrows(b, l);
    bind_qkv(b, l, spec, w, bias);
    struct operand q = prog_matmul(p, "q", h, w[0], bias[0]), k = q, v;
    if (own) k = prog_matmul(p, "k", h, w[1], bias[1]);
    v = own && w[2] != NO_WEIGHT ? prog_matmul(p, "v", h, w[2], bias[2]) : k;
    struct operand gate = q; /* and the queries */
    u32 stride = q.width / n_heads;
    if (spec.qk_norm == QK_NORM_HEADS || spec.qk_norm == QK_NORM_WHOLE) {
        q = norm_heads(b, "q_norm", q, l, "attn_q_norm", spec.qk_norm);
        if (own) k = norm_heads(b, "k_norm", k, l, "attn_k_norm", spec.qk_norm);
    }
    bool turns = !spec.plain_every || (l + 1) % spec.plain_every;
    if (turns && hp->block_rope[l] != ROPE_OFF) rotate(b, l, spec.rope, &q, &k);
    if (hp->block_rope[l] == ROPE_OFF && hp->still_grows)
        q = prog_rope_by(p, "q_grown", spec.rope, ROPE_STILL, n_heads, q);
    if (spec.qk_norm == QK_NORM_BARE && hp->block_rope[l] != ROPE_OFF) {
        q = part_heads_norm(b, "q_norm", q, head_k, NO_WEIGHT);
        k = part_heads_norm(b, "k_norm", k, head_k, NO_WEIGHT);
    }
    if (spec.qk_norm == QK_NORM_LAST) {
        q = norm_heads(b, "q_norm", q, l, "attn_q_norm", spec.qk_norm);
        if (own) k = norm_heads(b, "k_norm", k, l, "attn_k_norm", spec.qk_norm);
    }
    if (own) store(b, l, k, v, spec.v_norm);
    float scale = hp->attention_scale > 0 ? hp->attention_scale : 1.0f / sqrtf((float)head_k);
    struct attend_spec attend = {.scale = spec.scale > 0 ? spec.scale : scale,
                                 .window = hp->block_window[l],
                                 .chunked = hp->chunked,
                                 .softcap = hp->score_cap,
                                 .sinks = NO_WEIGHT};
    if (spec.sinks == SINKS_ALL || (spec.sinks && bind_has(&b->bind, "blk.%u.attn_sinks", l)))
        attend.sinks = bind_vector(&b->bind, n_heads, "blk.%u.attn_sinks", l);
    u32 kv = b->kv[hp->block_cache[l]];
    struct operand o = prog_attention_by(p, "attn", kv, n_heads, n_kv_heads, q, attend);
    if (spec.q_gate) {
        gate = prog_act(p, "q_gate", ACT_SIGMOID, gate);
        gate = prog_cols(p, gate, head_k, gate.width - head_k);
        o = prog_mul_strided(p, "attn_gated", o, gate, head_v, stride);
    }
    o = part_scale(b, "attn_scaled", o, hp->value_scale);
    if (spec.gated) o = gate_heads(b, o, h, l, spec.gate_act);
    u32 wo = bind_matrix(&b->bind, n_heads * head_v, hp->d_model, "blk.%u.attn_output", l);
    u32 bo = bind_vector_opt(&b->bind, hp->d_model, "blk.%u.attn_output.bias", l);
    return prog_matmul(p, "attn_out", o, wo, bo);
}

struct operand part_attention(struct build *b, struct operand x, u32 l, struct attention_spec spec)
{
    struct operand h = x;
    if (!spec.no_norm) h = part_block_norm(b, "attn_norm", x, l, "attn_norm");
    struct operand y = part_attend(b, h, l, spec);
    if (spec.post_norm) y = part_post_norm(b, "attn_post_norm", y, l, spec.post_norm);
    return part_residual(b, "attn_residual", x, y);
}

/* glu(Wgate·h, Wup·h), or act(Wup·h) */
static struct operand gate_up(struct build *b, struct operand h, u32 l, u32 n_ff,
                              const char *suffix, struct glu_spec glu)
{
    struct bind *bind = &b->bind;
    u32 d = b->hp->d_model, wg, wu, bg = NO_WEIGHT, bu = NO_WEIGHT;
    if (b->ungated) {
        wu = bind_matrix(bind, d, n_ff, "blk.%u.ffn_up%s", l, suffix);
        bu = bind_vector_opt(bind, n_ff, "blk.%u.ffn_up%s.bias", l, suffix);
        return prog_act(b->p, "ffn_act", b->act, prog_matmul(b->p, "ffn_up", h, wu, bu));
    }
    bool fused = !bind_has(bind, "blk.%u.ffn_gate%s", l, suffix) &&
                 bind_count_rows(bind, "blk.%u.ffn_up%s", l, suffix) == 2 * (u64)n_ff;
    if (!fused) {
        wg = bind_matrix(bind, d, n_ff, "blk.%u.ffn_gate%s", l, suffix);
        bg = bind_vector_opt(bind, n_ff, "blk.%u.ffn_gate%s.bias", l, suffix);
        wu = bind_matrix(bind, d, n_ff, "blk.%u.ffn_up%s", l, suffix);
        bu = bind_vector_opt(bind, n_ff, "blk.%u.ffn_up%s.bias", l, suffix);
    } else {
        wg = bind_rows(bind, d, 2 * n_ff, 0, n_ff, 1, "blk.%u.ffn_up%s", l, suffix);
        wu = bind_rows(bind, d, 2 * n_ff, n_ff, n_ff, 1, "blk.%u.ffn_up%s", l, suffix);
    }
    struct operand gate = prog_matmul(b->p, "ffn_gate", h, wg, bg);
    struct operand up = prog_matmul(b->p, "ffn_up", h, wu, bu);
    return prog_glu_by(b->p, "ffn_glu", gate, up, glu);
}

static struct operand down(struct build *b, struct operand y, u32 l, const char *suffix)
{
    u32 d = b->hp->d_model;
    u32 wd = bind_matrix(&b->bind, y.width, d, "blk.%u.ffn_down%s", l, suffix);
    u32 bd = bind_vector_opt(&b->bind, d, "blk.%u.ffn_down%s.bias", l, suffix);
    return prog_matmul(b->p, "ffn_down", y, wd, bd);
}

struct operand part_swiglu(struct build *b, struct operand h, u32 l, u32 n_ff, const char *suffix)
{
    return down(b, gate_up(b, h, l, n_ff, suffix, b->glu), l, suffix);
}

/* x, the products of the chosen experts, plus their biases where the file has them. */
static struct operand add_biases(struct build *b, const char *label, struct operand x,
                                 struct operand ids, u32 l, const char *name)
{
    struct bind *bind = &b->bind;
    u32 n = x.width / ids.width;
    if (!bind_has(bind, "blk.%u.%s.bias", l, name)) return x;
    u32 w = bind_vectors(bind, n, b->hp->n_experts, "blk.%u.%s.bias", l, name);
    return prog_add_experts(b->p, label, x, ids, w);
}

/* glu(Wgate·h, Wup·h), or act(Wup·h), of the chosen experts */
static struct operand experts_gate_up(struct build *b, struct operand h, struct operand ids, u32 l)
{
    struct bind *bind = &b->bind;
    struct program *p = b->p;
    u32 d = h.width, f = b->hp->n_ff_expert, n = b->hp->n_experts, wg, wu;
    if (b->ungated) {
        wu = bind_slices(bind, d, f, n, "blk.%u.ffn_up_exps", l);
        return prog_act(p, "expert_act", b->act,
                        prog_matmul_experts(p, "expert_up", h, ids, wu, false));
    }
    if (bind_has(bind, "blk.%u.ffn_gate_up_exps", l)) {
        wg = bind_rows(bind, d, 2 * f, 0, f, n, "blk.%u.ffn_gate_up_exps", l);
        wu = bind_rows(bind, d, 2 * f, f, f, n, "blk.%u.ffn_gate_up_exps", l);
    } else {
        wg = bind_slices(bind, d, f, n, "blk.%u.ffn_gate_exps", l);
        wu = bind_slices(bind, d, f, n, "blk.%u.ffn_up_exps", l);
    }
    struct operand gate = prog_matmul_experts(p, "expert_gate", h, ids, wg, false);
    struct operand up = prog_matmul_experts(p, "expert_up", h, ids, wu, false);
    gate = add_biases(b, "expert_gate_bias", gate, ids, l, "ffn_gate_exps");
    up = add_biases(b, "expert_up_bias", up, ids, l, "ffn_up_exps");
    return prog_glu_by(p, "expert_glu", gate, up, b->glu);
}

struct operand part_experts(struct build *b, struct operand h, u32 l, struct expert_spec spec)
{
    const struct hparams *hp = b->hp;
    struct bind *bind = &b->bind;
    struct program *p = b->p;
    u32 d = hp->d_model, f = hp->n_ff_expert, n = hp->n_experts, wide = d;
    struct operand z = prog_matmul(p, "router", spec.router.width ? spec.router : h,
                                   bind_matrix(bind, d, n, "blk.%u.ffn_gate_inp", l),
                                   bind_vector_opt(bind, n, "blk.%u.ffn_gate_inp.bias", l));
    struct operand ids, weights, shared = h;
    struct glu_spec glu = spec.shared_glu ? *spec.shared_glu : b->glu;
    if (spec.n_shared) shared = gate_up(b, h, l, spec.n_shared, "_shexp", glu);
    prog_route(p, z,
               (struct route_spec){.kind = spec.kind,
                                   .n_used = hp->n_experts_used,
                                   .n_groups = hp->n_expert_groups,
                                   .n_groups_used = hp->n_groups_used,
                                   .normalise = hp->expert_norm,
                                   .floor = 6.103515625e-5f,
                                   .scale = hp->expert_scale,
                                   .bias = spec.bias,
                                   .scales = spec.scales},
               &ids, &weights);
    struct operand in = spec.on_input ? prog_mul_heads(p, "expert_in", h, weights) : h;
    if (hp->n_latent) {
        wide = hp->n_latent;
        in = prog_matmul(p, "latent", h, bind_matrix(bind, d, wide, "blk.%u.ffn_latent_down", l),
                         NO_WEIGHT);
    }
    u32 wd = bind_slices(bind, f, wide, n, "blk.%u.ffn_down_exps", l);
    struct operand act = experts_gate_up(b, in, ids, l);
    struct operand each = prog_matmul_experts(p, "expert_down", act, ids, wd, true);
    each = add_biases(b, "expert_down_bias", each, ids, l, "ffn_down_exps");
    struct operand y = spec.on_input ? each : prog_combine_experts(p, "experts", each, weights);
    if (hp->n_latent)
        y = prog_matmul(p, "latent_out", y, bind_matrix(bind, wide, d, "blk.%u.ffn_latent_up", l),
                        NO_WEIGHT);
    if (!spec.n_shared) return y;
    struct operand s = down(b, shared, l, "_shexp");
    if (bind_has(bind, "blk.%u.ffn_gate_inp_shexp", l)) { /* how much of the shared experts */
        u32 w = bind_matrix(bind, d, 1, "blk.%u.ffn_gate_inp_shexp", l);
        struct operand part = prog_matmul(p, "shared_gate", h, w, NO_WEIGHT);
        s = prog_mul_heads(p, "shared_gated", s, prog_act(p, "shared_part", ACT_SIGMOID, part));
    }
    return prog_add(p, "moe_sum", y, s);
}

u32 part_head(struct build *b)
{
    return bind_matrix(&b->bind, b->hp->d_model, b->hp->n_vocab, "%s",
                       bind_has(&b->bind, "output") ? "output" : "token_embd");
}

int part_output(struct build *b, struct operand hidden, u32 head, u32 head_bias)
{
    b->p->layer = -1;
    float scale = b->hp->logit_scale, cap = b->hp->logit_cap;
    struct operand z = part_scale(b, "logits_in", hidden, scale > 0 ? 1 / scale : 1);
    struct operand rows = prog_gather_rows(b->p, z);
    if (cap > 0) rows = part_scale(b, "logits_uncapped", rows, 1 / cap);
    struct operand logits = prog_matmul(b->p, "logits", rows, head, head_bias);
    if (cap > 0) logits = prog_act(b->p, "logits_tanh", ACT_TANH, logits);
    if (cap > 0) logits = part_scale(b, "logits_capped", logits, cap);
    prog_sample(b->p, logits);
    return b->bind.rc ? b->bind.rc : prog_finish(b->p, logits, hidden, b->err);
}
