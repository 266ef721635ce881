/* RWKV-7: no attention and no cache; every block has a matrix state per head and one or two
 * remembered rows per sequence. arwkv7 is the same mixer inside a Qwen2.5 block. */
#include "model/arch/parts.h"

/* What time mixing needs to know of its surroundings. */
struct mixer {
    bool has_gate;          /* g1, g2 */
    bool has_norm;          /* time_mix_ln */
    struct operand v_first; /* v of block 0 */
};

static struct operand layer_norm(struct build *b, const char *label, struct operand x, u32 w,
                                 u32 bias)
{
    return prog_norm(b->p, label, x,
                     (struct norm_spec){.kind = NORM_LAYER, .eps = b->hp->eps, .w = w, .b = bias});
}

/* W2·f(W1·x) + bias, tensors blk.l.time_mix_{c}1, {c}2 and (when with_bias) {c}0. */
static struct operand low_rank(struct build *b, struct operand x, u32 l, char c, u32 rank,
                               const enum act_kind *f, bool with_bias)
{
    u32 d = b->hp->d_model;
    u32 w1 = bind_matrix(&b->bind, d, rank, "blk.%u.time_mix_%c1", l, c);
    u32 w2 = bind_matrix(&b->bind, rank, d, "blk.%u.time_mix_%c2", l, c);
    u32 bias = with_bias ? bind_vector(&b->bind, d, "blk.%u.time_mix_%c0", l, c) : NO_WEIGHT;
    struct operand y = prog_matmul(b->p, "low_rank_in", x, w1, NO_WEIGHT);
    if (f) y = prog_act(b->p, "low_rank_act", *f, y);
    return prog_matmul(b->p, "low_rank_out", y, w2, bias);
}

/* Wo·(gated wkv7 of h), in the order of the paper's listing. */
static struct operand time_mix(struct build *b, struct operand h, u32 l, struct mixer *mix)
{
    static const enum act_kind f_tanh = ACT_TANH, f_sigmoid = ACT_SIGMOID;
    const struct hparams *hp = b->hp;
    struct bind *bind = &b->bind;
    struct program *p = b->p;
    u32 d = hp->d_model, hs = hp->wkv_head, n_mix = mix->has_gate ? 6 : 5;
    u32 mu = bind_vectors(bind, d, n_mix, "blk.%u.time_mix_lerp_fused", l);
    struct operand prev = prog_token_shift(p, "h_prev", h, net_state(p->net, d));
    static const char *const names[6] = {"x_r", "x_w", "x_k", "x_v", "x_a", "x_g"};
    struct operand x[6], g;
    for (u32 m = 0; m < n_mix; m++) x[m] = prog_lerp_weight(p, names[m], h, prev, mu, m);

    struct operand r = prog_matmul(
        p, "r", x[0], bind_matrix(bind, d, d, "blk.%u.time_mix_receptance", l), NO_WEIGHT);
    struct operand w =
        prog_act(p, "decay", ACT_DECAY, low_rank(b, x[1], l, 'w', hp->rank_decay, &f_tanh, true));
    struct operand k =
        prog_matmul(p, "k", x[2], bind_matrix(bind, d, d, "blk.%u.time_mix_key", l), NO_WEIGHT);
    struct operand v =
        prog_matmul(p, "v", x[3], bind_matrix(bind, d, d, "blk.%u.time_mix_value", l), NO_WEIGHT);
    if (l > 0) {
        struct operand m = prog_act(p, "v_mix", ACT_SIGMOID,
                                    low_rank(b, x[3], l, 'v', hp->rank_value, NULL, true));
        v = prog_lerp(p, "v_mixed", v, mix->v_first, m);
    } else {
        mix->v_first = v;
    }
    struct operand a =
        prog_act(p, "a", ACT_SIGMOID, low_rank(b, x[4], l, 'a', hp->rank_iclr, NULL, true));
    if (mix->has_gate) g = low_rank(b, x[5], l, 'g', hp->rank_gate, &f_sigmoid, false);

    struct operand kk =
        prog_mul_weight(p, "k_k", k, bind_vector(bind, d, "blk.%u.time_mix_k_k", l));
    kk =
        prog_norm(p, "kk", kk,
                  (struct norm_spec){
                      .kind = NORM_L2, .group = hs, .eps = 1e-12f, .w = NO_WEIGHT, .b = NO_WEIGHT});
    k = prog_k_control(p, "k_controlled", k, a, bind_vector(bind, d, "blk.%u.time_mix_k_a", l));
    struct operand y = prog_wkv7(p, "wkv", net_state(p->net, d * hs), hs, r, w, k, v, kk, a);
    if (mix->has_norm)
        y = prog_norm(p, "wkv_norm", y,
                      (struct norm_spec){.kind = NORM_LAYER,
                                         .group = hs,
                                         .eps = 64e-5f,
                                         .w = bind_vector(bind, d, "blk.%u.time_mix_ln", l),
                                         .b = bind_vector(bind, d, "blk.%u.time_mix_ln.bias", l)});
    y = prog_rk_bonus(p, "wkv_bonus", hs, y, r, k, v,
                      bind_vector(bind, d, "blk.%u.time_mix_r_k", l));
    if (mix->has_gate) y = prog_mul(p, "gated", y, g);
    u32 wo = bind_matrix(bind, d, d, "blk.%u.time_mix_output", l);
    return prog_matmul(p, "time_mix_out", y, wo, NO_WEIGHT);
}

static struct operand channel_mix(struct build *b, struct operand h, u32 l)
{
    struct bind *bind = &b->bind;
    struct program *p = b->p;
    u32 d = b->hp->d_model, f = b->hp->n_ff;
    struct operand prev = prog_token_shift(p, "h2_prev", h, net_state(p->net, d));
    struct operand x = prog_lerp_weight(p, "x_ffn", h, prev,
                                        bind_vector(bind, d, "blk.%u.channel_mix_lerp_k", l), 0);
    u32 wk = bind_matrix(bind, d, f, "blk.%u.channel_mix_key", l);
    u32 wv = bind_matrix(bind, f, d, "blk.%u.channel_mix_value", l);
    struct operand k =
        prog_act(p, "relu2", ACT_RELU2, prog_matmul(p, "channel_k", x, wk, NO_WEIGHT));
    return prog_matmul(p, "channel_v", k, wv, NO_WEIGHT);
}

int arch_rwkv7(struct build *b)
{
    const struct hparams *hp = b->hp;
    struct bind *bind = &b->bind;
    u32 d = hp->d_model;
    struct mixer mix = {.has_gate = true, .has_norm = true};
    if (!hp->rank_gate)
        return err_set(b->err, FLETCH_E_FORMAT, "rwkv7.attention.gate_lora_rank is missing or 0");
    struct operand x = prog_embed(b->p, bind_matrix(bind, d, hp->n_vocab, "token_embd"));
    x = layer_norm(b, "ln0", x, bind_vector(bind, d, "token_embd_norm"),
                   bind_vector(bind, d, "token_embd_norm.bias"));
    for (u32 l = 0; l < hp->n_layers; l++) {
        b->p->layer = (int)l;
        struct operand h = layer_norm(b, "ln1", x, bind_vector(bind, d, "blk.%u.attn_norm", l),
                                      bind_vector(bind, d, "blk.%u.attn_norm.bias", l));
        x = prog_add(b->p, "attn_residual", x, time_mix(b, h, l, &mix));
        h = layer_norm(b, "ln2", x, bind_vector(bind, d, "blk.%u.attn_norm_2", l),
                       bind_vector(bind, d, "blk.%u.attn_norm_2.bias", l));
        x = prog_add(b->p, "block_out", x, channel_mix(b, h, l));
    }
    b->p->layer = -1;
    x = layer_norm(b, "output_norm", x, bind_vector(bind, d, "output_norm"),
                   bind_vector(bind, d, "output_norm.bias"));
    return part_output(b, x, part_head(b), NO_WEIGHT);
}

int arch_arwkv7(struct build *b)
{
    const struct hparams *hp = b->hp;
    struct bind *bind = &b->bind;
    u32 d = hp->d_model;
    struct mixer mix = {.has_gate = bind_has(bind, "blk.0.time_mix_g1"),
                        .has_norm = bind_has(bind, "blk.0.time_mix_ln")};
    if (mix.has_gate && !hp->rank_gate)
        return err_set(b->err, FLETCH_E_FORMAT, "arwkv7.attention.gate_lora_rank is missing or 0");
    struct operand x = prog_embed(b->p, bind_matrix(bind, d, hp->n_vocab, "token_embd"));
    for (u32 l = 0; l < hp->n_layers; l++) {
        b->p->layer = (int)l;
        struct operand h =
            part_norm(b, "attn_norm", x, bind_vector(bind, d, "blk.%u.attn_norm", l));
        x = prog_add(b->p, "attn_residual", x, time_mix(b, h, l, &mix));
        h = part_norm(b, "ffn_norm", x, bind_vector(bind, d, "blk.%u.ffn_norm", l));
        x = prog_add(b->p, "block_out", x, part_swiglu(b, h, l, hp->n_ff, ""));
    }
    b->p->layer = -1;
    x = part_norm(b, "output_norm", x, bind_vector(bind, d, "output_norm"));
    return part_output(b, x, part_head(b), NO_WEIGHT);
}
