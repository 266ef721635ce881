#include "op_cases.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model/synth.h"

/* ---- recording ---- */

/* Columns of what a row brings, aligned no more than they must be. */
static struct operand take(struct op_lab *l, u32 width)
{
    u32 col = l->used + l->align;
    l->used = col + (width + l->align - 1) / l->align * l->align;
    return prog_cols(l->p, l->in, col, width);
}

static void give(struct op_lab *l, struct operand y)
{
    l->out[l->n_out++] = y;
}

static u32 weight(struct op_lab *l, enum qtype type, u32 n_in, u32 n_out, u32 n_slices)
{
    struct weight w = weight_packed("weight", type, n_in, n_out, n_slices);
    u8 *data = arena_alloc(&l->net->arena, w.n_bytes, 1);
    assert_non_null(data);
    synth_fill(type, ++l->seed, (struct synth_range){0, n_out == 1 ? 1 : sqrtf(3 / (float)n_in)}, 0,
               w.n_bytes / quant_info(type)->bytes, data);
    w.data = data;
    return net_weight(l->net, &w);
}

static u32 vector(struct op_lab *l, bool wanted, u32 n)
{
    return wanted ? weight(l, QT_F32, n, 1, 1) : NO_WEIGHT;
}

static void record_embed(struct op_lab *l, const struct op_shape *s)
{
    give(l, prog_embed(l->p, weight(l, s->type, s->n, s->m, 1)));
}

static void record_import(struct op_lab *l, const struct op_shape *s)
{
    (void)s;
    give(l, l->in);
}

static struct operand norm(struct op_lab *l, const struct op_shape *s, struct operand x)
{
    u32 group = s->head ? s->head : s->n;
    return prog_norm(l->p, "normed", x,
                     (struct norm_spec){.kind = s->kind,
                                        .group = s->head,
                                        .eps = 1e-5f,
                                        .w = vector(l, s->weight, s->per_slot ? s->n : group),
                                        .b = vector(l, s->bias, s->n)});
}

static void record_norm(struct op_lab *l, const struct op_shape *s)
{
    give(l, norm(l, s, take(l, s->n)));
}

static struct operand matmul(struct op_lab *l, const struct op_shape *s, struct operand x, u32 m)
{
    return prog_matmul(l->p, "y", x, weight(l, s->type, x.width, m, 1), vector(l, s->bias, m));
}

static void record_matmul(struct op_lab *l, const struct op_shape *s)
{
    give(l, matmul(l, s, take(l, s->n), s->m));
}

static void record_matmul_heads(struct op_lab *l, const struct op_shape *s)
{
    u32 in = s->n + s->gap, out = s->m + s->gap;
    struct operand y = prog_buf(l->p, "y", s->heads * out + 5);
    y = prog_cols(l->p, y, 5, s->heads * out);
    if (s->per_slot) in = 0; /* all heads read the same columns */
    prog_matmul_heads_to(l->p, y, out, take(l, in ? s->heads * in : s->n), in,
                         weight(l, s->type, s->n, s->m, s->heads));
    give(l, y);
}

static struct operand route(struct op_lab *l, const struct op_shape *s, struct operand *weights)
{
    struct operand ids, z = take(l, s->experts);
    if (s->odd) l->odd_at = z.col, l->n_odd = s->experts;
    prog_route(l->p, z,
               (struct route_spec){.kind = s->kind,
                                   .n_used = s->used,
                                   .n_groups = s->groups,
                                   .n_groups_used = s->groups / 2,
                                   .normalise = s->weight,
                                   .floor = 6.1e-5f,
                                   .scale = 1.5f,
                                   .bias = vector(l, s->bias, s->experts),
                                   .scales = vector(l, s->scales, s->experts)},
               &ids, weights);
    return ids;
}

static void record_matmul_experts(struct op_lab *l, const struct op_shape *s)
{
    struct operand weights, ids = route(l, s, &weights);
    struct operand x = take(l, s->per_slot ? s->n * s->used : s->n);
    give(l, prog_matmul_experts(l->p, "y", x, ids, weight(l, s->type, s->n, s->m, s->experts),
                                s->per_slot));
}

static void record_add_experts(struct op_lab *l, const struct op_shape *s)
{
    struct operand weights, ids = route(l, s, &weights);
    u32 b = weight(l, QT_F32, s->n, s->experts, 1);
    l->net->weights[b].plain = true;
    give(l, prog_add_experts(l->p, "y", take(l, s->n * s->used), ids, b));
}

static void record_combine(struct op_lab *l, const struct op_shape *s)
{
    struct operand x = take(l, s->n * s->used);
    give(l, prog_combine_experts(l->p, "y", x, take(l, s->used)));
}

static void record_route(struct op_lab *l, const struct op_shape *s)
{
    struct operand weights, ids = route(l, s, &weights);
    give(l, ids);
    give(l, weights);
}

static void record_pairwise(struct op_lab *l, const struct op_shape *s)
{
    struct operand a = take(l, s->n), b = take(l, s->n);
    switch (l->c->kind) {
    case OP_ADD:
        give(l, s->weight ? prog_add_weight(l->p, "y", a, vector(l, true, s->n))
                          : prog_add(l->p, "y", a, b));
        break;
    case OP_GLU:
        give(l, prog_glu_by(l->p, "y", a, b,
                            (struct glu_spec){.kind = s->kind, .alpha = 1.7f, .limit = 0.6f}));
        break;
    case OP_K_CONTROL: give(l, prog_k_control(l->p, "y", a, b, vector(l, true, s->n))); break;
    case OP_MUL:
        give(l, s->weight ? prog_mul_weight(l->p, "y", a, vector(l, true, s->n))
                          : prog_mul(l->p, "y", a, b));
        break;
    default:
        give(l, s->weight
                    ? prog_lerp_weight(l->p, "y", a, b, weight(l, QT_F32, s->n, s->m, 1), s->m - 1)
                    : prog_lerp(l->p, "y", a, b, take(l, s->n)));
    }
}

static void record_act(struct op_lab *l, const struct op_shape *s)
{
    give(l, prog_act(l->p, "y", s->kind, take(l, s->n)));
}

/* Of the first rotary table, and of others before the one that is asked for. */
static void make_angles_of(struct op_lab *l, u32 table, u32 n_rot)
{
    for (u32 k = 0; k <= table; k++) {
        u32 n = k == table ? n_rot : n_rot + 2;
        double *freq = arena_alloc(&l->net->arena, n / 2, sizeof *freq);
        assert_non_null(freq);
        for (u32 i = 0; i < n / 2; i++) freq[i] = pow(1e4 + k, -2.0 * i / n);
        l->net->rope[k] = (struct rope_table){.n_rot = n, .freq = freq, .mscale = 1.25 + k};
    }
}

static void make_angles(struct op_lab *l, u32 n_rot)
{
    make_angles_of(l, 0, n_rot);
}

static void record_rope_table(struct op_lab *l, const struct op_shape *s)
{
    make_angles_of(l, 2, s->n);
    l->net->rope[2].grow = 0.3;
    l->net->rope[2].grow_every = 2;
    l->net->rope[2].grow_from = 1;
    give(l, prog_rope_by(l->p, "y", s->kind, 2, s->heads, take(l, s->heads * s->head)));
}

static void record_rope(struct op_lab *l, const struct op_shape *s)
{
    u32 in = s->head + s->gap, out = s->head + 2 * s->gap;
    make_angles(l, s->n);
    struct operand y = prog_buf(l->p, "y", s->heads * out + 3);
    y = prog_cols(l->p, y, 3, s->heads * out);
    prog_rope_to(l->p, s->kind, s->heads, s->head, y, out, take(l, s->heads * in), in);
    give(l, y);
}

/* Scores of attention: in the thousands, all the same, or all below every float, of which only NaN
 * can come. A step of seven rows has one of a sequence without a past: one position. */
enum { SCORES_USUAL, SCORES_HUGE, SCORES_EQUAL, SCORES_BELOW };

static float scale_of(struct op_lab *l, const struct op_shape *s)
{
    switch (s->kind) {
    case SCORES_HUGE: return 1e4f / sqrtf((float)s->head);
    case SCORES_EQUAL: return 0;
    case SCORES_BELOW:
        l->odd_at = OP_COLS; /* NaN may come out, though no column brings one */
        l->n_odd = 1;
        return -3e38f;
    default: return 2 / sqrtf((float)s->head);
    }
}

static void record_attention(struct op_lab *l, const struct op_shape *s)
{
    u32 vw = s->v_head ? s->v_head : s->head;
    u32 kv = net_kv(l->net, s->kv_heads * s->head, s->kv_heads * vw);
    struct operand k = take(l, s->kv_heads * s->head), v = take(l, s->kv_heads * vw);
    struct operand q = take(l, s->heads * s->head);
    float scale = scale_of(l, s);
    if (s->kind == SCORES_BELOW) { /* above 0, so that all products are */
        k = prog_act(l->p, "k", ACT_SIGMOID, k);
        q = prog_act(l->p, "q", ACT_SIGMOID, q);
    }
    prog_kv_store(l->p, kv, k, v);
    give(l, prog_attention_by(l->p, "y", kv, s->heads, s->kv_heads, q,
                              (struct attend_spec){.scale = scale,
                                                   .window = s->window,
                                                   .chunked = s->chunked,
                                                   .softcap = s->capped ? 0.75f : 0,
                                                   .sinks = vector(l, s->sinks, s->heads)}));
}

static void record_latent_attention(struct op_lab *l, const struct op_shape *s)
{
    u32 kv = net_kv(l->net, s->head, 0);
    prog_kv_store(l->p, kv, take(l, s->head), (struct operand){.buf = NO_BUF});
    give(l, prog_latent_attention(l->p, "y", kv, s->heads, s->v_head, take(l, s->heads * s->head),
                                  2 / sqrtf((float)s->head)));
}

static void record_token_shift(struct op_lab *l, const struct op_shape *s)
{
    u32 state = net_state(l->net, s->n);
    give(l, prog_token_shift(l->p, "y", take(l, s->n), state));
}

static void record_wkv7(struct op_lab *l, const struct op_shape *s)
{
    u32 state = net_state(l->net, s->n * s->head);
    struct operand x[6];
    for (u32 i = 0; i < 6; i++) x[i] = take(l, s->n);
    x[1] = prog_act(l->p, "w", ACT_DECAY, x[1]);
    x[4] = prog_norm(
        l->p, "kk", x[4],
        (struct norm_spec){
            .kind = NORM_L2, .group = s->head, .eps = 1e-12f, .w = NO_WEIGHT, .b = NO_WEIGHT});
    x[5] = prog_act(l->p, "a", ACT_SIGMOID, x[5]);
    give(l, prog_wkv7(l->p, "y", state, s->head, x[0], x[1], x[2], x[3], x[4], x[5]));
}

/* A causal convolution of gap taps. */
static void record_conv(struct op_lab *l, const struct op_shape *s)
{
    u32 state = net_state(l->net, s->n * (s->gap - 1));
    give(l, prog_conv(l->p, "y", take(l, s->n), state, vector(l, true, s->n * s->gap),
                      vector(l, s->bias, s->n)));
}

/* kind: of the recurrence; weight: a decay for each column; per_slot: key heads in turns; bias: a
 * strength for each head; gap: columns between its operands. */
static void record_recurrence(struct op_lab *l, const struct op_shape *s)
{
    u32 m = s->v_head ? s->v_head : s->head, n_keys = s->kv_heads * s->head;
    struct recurrence_spec spec = {.kind = s->kind,
                                   .state = net_state(l->net, s->heads * s->head * m),
                                   .head = s->head,
                                   .n_heads = s->heads,
                                   .tiled = s->per_slot,
                                   .r = take(l, n_keys),
                                   .w = take(l, s->weight ? n_keys : s->heads),
                                   .k = take(l, n_keys),
                                   .v = take(l, s->heads * m)};
    spec.w = prog_act(l->p, "w", ACT_DECAY, spec.w);
    spec.k = prog_norm(
        l->p, "k", spec.k,
        (struct norm_spec){
            .kind = NORM_L2, .group = s->head, .eps = 1e-12f, .w = NO_WEIGHT, .b = NO_WEIGHT});
    if (s->bias) spec.b = prog_act(l->p, "b", ACT_SIGMOID, take(l, s->heads));
    give(l, prog_recurrence(l->p, "y", spec));
}

static void record_mul_heads(struct op_lab *l, const struct op_shape *s)
{
    u32 n = s->heads * s->head;
    struct operand a = take(l, n);
    if (s->weight)
        give(l, prog_mul_heads_weight(l->p, "y", a, vector(l, true, s->heads)));
    else if (s->gap)
        give(l, prog_mul_strided(l->p, "y", a, take(l, n + s->heads * s->gap), s->head,
                                 s->head + s->gap));
    else
        give(l, prog_mul_heads(l->p, "y", a, take(l, s->heads)));
}

static void record_rk_bonus(struct op_lab *l, const struct op_shape *s)
{
    struct operand x[4];
    for (u32 i = 0; i < 4; i++) x[i] = take(l, s->n);
    give(l, prog_rk_bonus(l->p, "y", s->head, x[0], x[1], x[2], x[3], vector(l, true, s->n)));
}

static void record_gather(struct op_lab *l, const struct op_shape *s)
{
    struct operand y = prog_gather_rows(l->p, take(l, s->n));
    give(l, s->m ? matmul(l, s, y, s->m) : y);
}

static struct operand rms(struct op_lab *l, struct operand x, u32 group)
{
    return norm(l, &(struct op_shape){.n = x.width, .head = group, .weight = true}, x);
}

static void record_norm_matmul(struct op_lab *l, const struct op_shape *s)
{
    struct operand x = rms(l, take(l, s->n), 0);
    for (u32 i = 0; i < s->kind; i++) give(l, matmul(l, s, x, s->m + 8 * i));
}

static void record_norm_matmul_act(struct op_lab *l, const struct op_shape *s)
{
    struct operand y = matmul(l, s, rms(l, take(l, s->n), 0), s->m);
    give(l, prog_act(l->p, "y", ACT_RELU2, y));
}

static void record_gate_up_glu(struct op_lab *l, const struct op_shape *s)
{
    struct operand x = take(l, s->n);
    if (l->c->kind == CASE_NORM_GATE_UP_GLU) x = rms(l, x, 0);
    struct operand g = matmul(l, s, x, s->m), u = matmul(l, s, x, s->m);
    give(l, prog_glu(l->p, "y", g, u));
}

/* weight: a second residual. */
static void record_matmul_add(struct op_lab *l, const struct op_shape *s)
{
    struct operand m = matmul(l, s, take(l, s->n), s->m);
    struct operand y = prog_add(l->p, "y", take(l, s->m), m);
    give(l, s->weight ? prog_add(l->p, "z", take(l, s->m), y) : y);
}

/* From q, k and v on: ropes, store and attention. */
static void rope_and_attend(struct op_lab *l, const struct op_shape *s, struct operand q,
                            struct operand k, struct operand v)
{
    u32 kv = net_kv(l->net, k.width, v.width);
    struct operand rq = prog_rope(l->p, "rq", s->kind, s->heads, q);
    struct operand rk = prog_rope(l->p, "rk", s->kind, s->kv_heads, k);
    prog_kv_store(l->p, kv, rk, v);
    if (l->c->kind != CASE_NORM_QKV_ATTENTION) give(l, rq);
    give(l, prog_attention(l->p, "y", kv, s->heads, s->kv_heads, rq, 2 / sqrtf((float)s->head)));
}

static void record_rope_store(struct op_lab *l, const struct op_shape *s)
{
    struct operand q = take(l, s->heads * s->head), k = take(l, s->kv_heads * s->head);
    make_angles(l, s->head);
    rope_and_attend(l, s, q, k, take(l, s->kv_heads * s->head));
}

/* As MLA does it: the queries' and the key's last columns rotated, the latent normed before them;
 * with m a product by heads behind attention. */
static void record_mla(struct op_lab *l, const struct op_shape *s)
{
    u32 c = s->v_head, rot = s->head - c, kv = net_kv(l->net, s->head, 0);
    struct norm_spec rms_of = {
        .kind = NORM_RMS, .eps = 1e-5f, .w = vector(l, true, c), .b = NO_WEIGHT};
    struct operand q = prog_buf(l->p, "q", s->heads * s->head), k = prog_buf(l->p, "k", s->head);
    make_angles(l, rot);
    for (u32 h = 0; h < s->heads; h++)
        prog_norm_to(l->p, prog_cols(l->p, q, h * s->head, c), take(l, c), rms_of);
    prog_rope_to(l->p, ROPE_NORM, s->heads, rot, prog_cols(l->p, q, c, q.width - c), s->head,
                 take(l, s->heads * rot), rot);
    prog_norm_to(l->p, prog_cols(l->p, k, 0, c), take(l, c), rms_of);
    prog_rope_to(l->p, ROPE_NORM, 1, rot, prog_cols(l->p, k, c, rot), rot, take(l, rot), rot);
    prog_kv_store(l->p, kv, k, (struct operand){.buf = NO_BUF});
    struct operand z =
        prog_latent_attention(l->p, "y", kv, s->heads, c, q, 1 / sqrtf((float)s->head));
    if (s->m) {
        struct operand y = prog_buf(l->p, "v", s->heads * s->m);
        prog_matmul_heads_to(l->p, y, s->m, z, c, weight(l, s->type, c, s->m, s->heads));
        z = y;
    }
    give(l, z);
}

/* Queries as MLA makes them: heads of `head` columns, all but 32 of which a product by heads
 * widens. */
static void record_mla_query(struct op_lab *l, const struct op_shape *s)
{
    struct operand q = matmul(l, s, rms(l, take(l, s->n), 0), s->heads * s->head);
    struct operand y = prog_buf(l->p, "wide", s->heads * s->m);
    u32 n_k = s->head - 32;
    prog_matmul_heads_to(l->p, y, s->m, q, s->head, weight(l, s->type, n_k, s->m, s->heads));
    give(l, y);
    give(l, q);
}

/* weight: with head norms. */
static void record_norm_qkv_store(struct op_lab *l, const struct op_shape *s)
{
    struct operand x = rms(l, take(l, s->n), 0);
    struct operand q = matmul(l, s, x, s->heads * s->head);
    struct operand k = matmul(l, s, x, s->kv_heads * s->head);
    struct operand v = matmul(l, s, x, s->kv_heads * s->head);
    make_angles(l, s->head);
    if (s->weight) {
        q = rms(l, q, s->head);
        k = rms(l, k, s->head);
    }
    rope_and_attend(l, s, q, k, v);
}

/* Three lerps, a product of each, one of them with an act. */
static void record_matmuls(struct op_lab *l, const struct op_shape *s)
{
    struct operand a = take(l, s->n), b = take(l, s->n), x[3];
    u32 w = weight(l, QT_F32, s->n, 3, 1);
    for (u32 i = 0; i < 3; i++) x[i] = prog_lerp_weight(l->p, "x", a, b, w, i);
    give(l, matmul(l, s, x[0], s->m));
    give(l, prog_act(l->p, "y", ACT_RELU2, matmul(l, s, x[1], s->m + 9)));
    give(l, matmul(l, s, x[2], s->m));
}

/* Behind a norm and the shift of its result, the middle one of floats. */
static void record_shift_matmuls(struct op_lab *l, const struct op_shape *s)
{
    struct op_shape half = *s, with = *s;
    half.type = QT_F16;
    with.weight = true;
    struct operand h = norm(l, &with, take(l, s->n));
    struct operand prev = prog_token_shift(l->p, "prev", h, net_state(l->net, s->n)), x[3];
    u32 w = weight(l, QT_F32, s->n, 3, 1);
    for (u32 i = 0; i < 3; i++) x[i] = prog_lerp_weight(l->p, "x", h, prev, w, i);
    give(l, matmul(l, s, x[0], s->m));
    give(l, prog_act(l->p, "y", ACT_TANH, matmul(l, &half, x[1], s->m / 2)));
    give(l, matmul(l, s, x[2], s->m));
}

/* weight: with gate, up and glu. */
static void record_norm_router(struct op_lab *l, const struct op_shape *s)
{
    struct operand h = rms(l, take(l, s->n), 0), y[2];
    u32 w = weight(l, QT_F32, s->n, s->experts, 1);
    struct operand z = prog_matmul(l->p, "z", h, w, NO_WEIGHT), ids, weights;
    give(l, h);
    give(l, z);
    prog_route(l->p, z, (struct route_spec){.n_used = 2, .bias = NO_WEIGHT, .scales = NO_WEIGHT},
               &ids, &weights);
    if (!s->weight) return;
    for (u32 i = 0; i < 2; i++) y[i] = matmul(l, s, h, s->m);
    give(l, prog_glu(l->p, "y", y[0], y[1]));
}

static void record_experts_glu(struct op_lab *l, const struct op_shape *s)
{
    struct operand weights, ids = route(l, s, &weights), x = take(l, s->n), y[2];
    if (l->c->kind == CASE_EXPERTS_GLU)
        x = prog_act(l->p, "x", ACT_TANH, x); /* so that it doesn't follow the route at once */
    else
        give(l, weights);
    for (u32 i = 0; i < 2; i++)
        y[i] = prog_matmul_experts(l->p, "y", x, ids, weight(l, s->type, s->n, s->m, s->experts),
                                   false);
    give(l, prog_glu(l->p, "y", y[0], y[1]));
}

/* weight: with a residual; or also with a matmul that is added. */
static void record_experts_sum(struct op_lab *l, const struct op_shape *s)
{
    struct operand weights, ids = route(l, s, &weights), x = take(l, s->n * s->used);
    struct operand d =
        prog_matmul_experts(l->p, "d", x, ids, weight(l, s->type, s->n, s->m, s->experts), true);
    struct operand y = prog_combine_experts(l->p, "y", d, weights);
    if (l->c->kind == CASE_EXPERTS_SUM_ADD)
        y = prog_add(l->p, "sum", y, matmul(l, s, take(l, s->n), s->m));
    give(l, s->weight ? prog_add(l->p, "z", take(l, s->m), y) : y);
}

/* n columns, as they come or as a product of m. */
static struct operand low_rank(struct op_lab *l, const struct op_shape *s, enum qtype type)
{
    if (!s->m) return take(l, s->n);
    u32 w = weight(l, type, s->m, s->n, 1);
    return prog_matmul(l->p, "low", take(l, s->m), w, vector(l, type != QT_BF16, s->n));
}

/* weight: with a value of the first layer, a norm and a gate. */
static void record_time_mix(struct op_lab *l, const struct op_shape *s)
{
    u32 state = net_state(l->net, s->n * s->head);
    struct operand r = take(l, s->n), k = take(l, s->n), v = take(l, s->n), g = v;
    struct operand w = prog_act(l->p, "w", ACT_DECAY, low_rank(l, s, QT_F32));
    struct operand a = prog_act(l->p, "a", ACT_SIGMOID, low_rank(l, s, QT_F16));
    if (s->weight) {
        struct operand m = low_rank(l, s, QT_F16);
        g = low_rank(l, s, QT_BF16);
        v = prog_lerp(l->p, "v", v, take(l, s->n), m);
    }
    struct norm_spec l2 = {
        .kind = NORM_L2, .group = s->head, .eps = 1e-12f, .w = NO_WEIGHT, .b = NO_WEIGHT};
    struct operand kk = prog_mul_weight(l->p, "kk", k, vector(l, true, s->n));
    kk = prog_norm(l->p, "kk", kk, l2);
    k = prog_k_control(l->p, "k", k, a, vector(l, true, s->n));
    struct operand y = prog_wkv7(l->p, "y", state, s->head, r, w, k, v, kk, a);
    if (s->weight)
        y = norm(l,
                 &(struct op_shape){.n = s->n,
                                    .head = s->head,
                                    .kind = NORM_LAYER,
                                    .weight = true,
                                    .bias = true,
                                    .per_slot = true},
                 y);
    y = prog_rk_bonus(l->p, "y", s->head, y, r, k, v, vector(l, true, s->n));
    give(l, s->weight ? prog_mul(l->p, "y", y, g) : y);
}

static void record_sample(struct op_lab *l, const struct op_shape *s)
{
    l->net->n_vocab = s->n;
    prog_sample(l->p, prog_gather_rows(l->p, take(l, s->n)));
    for (u32 i = 0; i < 3; i++) give(l, l->p->ops[l->p->n_ops - 1].out[i]);
}

/* ---- the table ---- */

#define FLOAT_TYPES(X) X(F32) X(F16) X(BF16)
#define SMALL_TYPES(X) X(Q8_0) X(Q4_0) X(Q4_1) X(Q5_0) X(Q5_1) X(IQ4_NL) X(MXFP4) X(Q1_0)
#define SUPER_TYPES(X) X(Q2_K) X(Q3_K) X(Q4_K) X(Q5_K) X(Q6_K) X(IQ4_XS)
#define CODE_TYPES(X)  X(IQ1_M) X(IQ2_XS) X(IQ3_XXS) X(IQ3_S) X(TQ1_0)
#define BLOCK_TYPES(X) SMALL_TYPES(X) SUPER_TYPES(X) CODE_TYPES(X)
#define EACH_TYPE(X)   FLOAT_TYPES(X) BLOCK_TYPES(X)

#define EMBED_OF(T) \
    {OP_EMBED, "embed " #T, record_embed, {.n = 256, .m = OP_VOCAB, .type = QT_##T}},
#define MATMUL_OF(T) {OP_MATMUL, "matmul " #T, record_matmul, {.n = 512, .m = 40, .type = QT_##T}},
#define RAGGED_OF(T)         \
    {OP_MATMUL,              \
     "matmul " #T " ragged", \
     record_matmul,          \
     {.n = 77, .m = 17, .type = QT_##T, .bias = true}},
#define HEADS_OF(T)       \
    {OP_MATMUL_HEADS,     \
     "matmul_heads " #T,  \
     record_matmul_heads, \
     {.n = 256, .m = 24, .heads = 3, .gap = 4, .type = QT_##T}},
#define EXPERTS_OF(T)                                               \
    {OP_MATMUL_EXPERTS,                                             \
     "matmul_experts " #T,                                          \
     record_matmul_experts,                                         \
     {.n = 256, .m = 24, .experts = 8, .used = 3, .type = QT_##T}}, \
        {OP_MATMUL_EXPERTS,                                         \
         "matmul_experts per choice " #T,                           \
         record_matmul_experts,                                     \
         {.n = 256, .m = 33, .experts = 5, .used = 2, .type = QT_##T, .per_slot = true}},
#define FUSED_OF(T)                                                                        \
    {CASE_NORM_MATMUL,                                                                     \
     "norm+matmul " #T,                                                                    \
     record_norm_matmul,                                                                   \
     {.n = 256, .m = 24, .kind = 3, .type = QT_##T, .bias = true}},                        \
        {CASE_NORM_MATMUL_ACT,                                                             \
         "norm+matmul+act " #T,                                                            \
         record_norm_matmul_act,                                                           \
         {.n = 256, .m = 24, .type = QT_##T, .bias = true}},                               \
        {CASE_NORM_MATMUL,                                                                 \
         "norm+matmul of one " #T,                                                         \
         record_norm_matmul,                                                               \
         {.n = 512, .m = 17, .kind = 1, .type = QT_##T}},                                  \
        {CASE_NORM_QKV_ATTENTION,                                                          \
         "norm+qkv+attention with head norms " #T,                                         \
         record_norm_qkv_store,                                                            \
         {.n = 256,                                                                        \
          .heads = 2,                                                                      \
          .kv_heads = 1,                                                                   \
          .head = 24,                                                                      \
          .kind = ROPE_NEOX,                                                               \
          .type = QT_##T,                                                                  \
          .weight = true}},                                                                \
        {CASE_NORM_QKV_ATTENTION,                                                          \
         "norm+qkv+attention " #T,                                                         \
         record_norm_qkv_store,                                                            \
         {.n = 256, .heads = 6, .kv_heads = 2, .head = 16, .type = QT_##T, .bias = true}}, \
        {CASE_NORM_GATE_UP_GLU,                                                            \
         "norm+gate+up+glu " #T,                                                           \
         record_gate_up_glu,                                                               \
         {.n = 256, .m = 40, .type = QT_##T}},                                             \
        {CASE_GATE_UP_GLU,                                                                 \
         "gate+up+glu " #T,                                                                \
         record_gate_up_glu,                                                               \
         {.n = 256, .m = 40, .type = QT_##T, .bias = true}},                               \
        {CASE_MATMUL_ADD,                                                                  \
         "matmul+add " #T,                                                                 \
         record_matmul_add,                                                                \
         {.n = 256, .m = 41, .type = QT_##T, .bias = true}},                               \
        {CASE_MATMUL_ADD,                                                                  \
         "matmul+add+add " #T,                                                             \
         record_matmul_add,                                                                \
         {.n = 256, .m = 64, .type = QT_##T, .weight = true}},                             \
        {CASE_MATMULS,                                                                     \
         "lerp+matmul+act " #T,                                                            \
         record_matmuls,                                                                   \
         {.n = 256, .m = 24, .type = QT_##T}},                                             \
        {CASE_EXPERTS_GLU,                                                                 \
         "experts gate+up+glu " #T,                                                        \
         record_experts_glu,                                                               \
         {.n = 256, .m = 40, .experts = 6, .used = 2, .type = QT_##T}},                    \
        {CASE_ROUTE_EXPERTS_GLU,                                                           \
         "route+experts gate+up+glu " #T,                                                  \
         record_experts_glu,                                                               \
         {.n = 256, .m = 24, .experts = 40, .used = 3, .groups = 4, .type = QT_##T}},      \
        {CASE_EXPERTS_SUM,                                                                 \
         "experts down+combine " #T,                                                       \
         record_experts_sum,                                                               \
         {.n = 256, .m = 40, .experts = 6, .used = 3, .type = QT_##T}},                    \
        {CASE_EXPERTS_SUM,                                                                 \
         "experts down+combine+add " #T,                                                   \
         record_experts_sum,                                                               \
         {.n = 256, .m = 27, .experts = 6, .used = 3, .type = QT_##T, .weight = true}},    \
        {CASE_EXPERTS_SUM_ADD,                                                             \
         "experts down+combine+matmul+add " #T,                                            \
         record_experts_sum,                                                               \
         {.n = 256,                                                                        \
          .m = 27,                                                                         \
          .experts = 6,                                                                    \
          .used = 3,                                                                       \
          .type = QT_##T,                                                                  \
          .weight = true,                                                                  \
          .bias = true}},                                                                  \
        {CASE_NORM_ROUTER_GLU,                                                             \
         "norm+router+gate+up+glu " #T,                                                    \
         record_norm_router,                                                               \
         {.n = 256, .m = 40, .experts = 12, .type = QT_##T, .weight = true}},

#define ATTENTION_OF(what, ...)                             \
    {                                                       \
        OP_ATTENTION, "attention, " what, record_attention, \
        {                                                   \
            __VA_ARGS__                                     \
        }                                                   \
    }

/* Heads of 64 and of 40 columns, which kernels unpack in different ways. */
#define ATTENTION_WITH(what, ...)                                                \
    {OP_ATTENTION,                                                               \
     "attention with " what,                                                     \
     record_attention,                                                           \
     {.heads = 6, .kv_heads = 2, .head = 64, __VA_ARGS__}},                      \
    {                                                                            \
        OP_ATTENTION, "attention with " what ", ragged heads", record_attention, \
        {                                                                        \
            .heads = 4, .kv_heads = 4, .head = 40, .v_head = 24, __VA_ARGS__     \
        }                                                                        \
    }

const struct op_case op_cases[] = {
    EACH_TYPE(EMBED_OF) EACH_TYPE(MATMUL_OF) FLOAT_TYPES(RAGGED_OF){
        OP_MATMUL, "matmul of 32 to 1", record_matmul, {.n = 32, .m = 1, .type = QT_Q8_0}},
    {OP_MATMUL, "matmul of 96 to 16", record_matmul, {.n = 96, .m = 16, .type = QT_Q4_0}},
    {OP_MATMUL,
     "matmul with bias",
     record_matmul,
     {.n = 256, .m = 67, .type = QT_Q4_K, .bias = true}},
    {OP_MATMUL, "matmul, wide", record_matmul, {.n = 2816, .m = 129, .type = QT_Q8_0}},
    HEADS_OF(F32) HEADS_OF(F16) HEADS_OF(Q8_0) HEADS_OF(Q4_K) EXPERTS_OF(F16) EXPERTS_OF(Q8_0)
        EXPERTS_OF(Q4_K) EXPERTS_OF(Q6_K) EXPERTS_OF(MXFP4) FUSED_OF(F32) FUSED_OF(BF16)
            FUSED_OF(Q8_0) FUSED_OF(Q4_K){OP_IMPORT_HIDDEN, "import_hidden", record_import, {0}},
    {OP_NORM, "norm rms", record_norm, {.n = 256, .kind = NORM_RMS, .weight = true}},
    {OP_NORM, "norm rms, ragged", record_norm, {.n = 77, .kind = NORM_RMS, .weight = true}},
    {OP_NORM,
     "norm rms of heads",
     record_norm,
     {.n = 96, .head = 24, .kind = NORM_RMS, .weight = true}},
    {OP_NORM,
     "norm layer",
     record_norm,
     {.n = 130, .kind = NORM_LAYER, .weight = true, .bias = true}},
    {OP_NORM,
     "norm layer of groups",
     record_norm,
     {.n = 192, .head = 64, .kind = NORM_LAYER, .weight = true, .bias = true, .per_slot = true}},
    {OP_NORM, "norm l2 of groups", record_norm, {.n = 140, .head = 20, .kind = NORM_L2}},
    {OP_NORM, "norm of one column", record_norm, {.n = 1, .kind = NORM_RMS}},
    {OP_ADD, "add", record_pairwise, {.n = 77}},
    {OP_ADD, "add, wide", record_pairwise, {.n = 1024}},
    {OP_ADD, "add a weight", record_pairwise, {.n = 77, .weight = true}},
    {OP_MATMUL_HEADS,
     "matmul_heads of a shared input",
     record_matmul_heads,
     {.n = 256, .m = 6, .heads = 5, .type = QT_Q8_0, .per_slot = true}},
    {OP_MUL, "mul", record_pairwise, {.n = 77}},
    {OP_MUL, "mul by a weight", record_pairwise, {.n = 77, .weight = true}},
    {OP_MUL, "mul by a factor for each head", record_mul_heads, {.heads = 7, .head = 12}},
    {OP_MUL, "mul by a factor for each row", record_mul_heads, {.heads = 1, .head = 300}},
    {OP_MUL, "mul by columns with gaps", record_mul_heads, {.heads = 3, .head = 20, .gap = 8}},
    {OP_MUL, "mul heads by a weight", record_mul_heads, {.heads = 6, .head = 11, .weight = true}},
    {OP_LERP, "lerp", record_pairwise, {.n = 77}},
    {OP_LERP, "lerp by a weight's row", record_pairwise, {.n = 77, .m = 6, .weight = true}},
    {OP_GLU, "glu", record_pairwise, {.n = 77}},
    {OP_GLU, "glu, wide", record_pairwise, {.n = 1024}},
    {OP_GLU, "glu of gelu", record_pairwise, {.n = 77, .kind = GLU_GELU}},
    {OP_GLU, "glu, clamped", record_pairwise, {.n = 77, .kind = GLU_CLAMPED}},
    {OP_GLU, "glu, limited", record_pairwise, {.n = 77, .kind = GLU_LIMITED}},
    {OP_ADD_EXPERTS,
     "add_experts",
     record_add_experts,
     {.n = 77, .experts = 9, .used = 3, .kind = ROUTE_SOFTMAX}},
    {OP_K_CONTROL, "k_control", record_pairwise, {.n = 77}},
    {OP_ACT, "act tanh", record_act, {.n = 77, .kind = ACT_TANH}},
    {OP_ACT, "act sigmoid", record_act, {.n = 77, .kind = ACT_SIGMOID}},
    {OP_ACT, "act relu2", record_act, {.n = 77, .kind = ACT_RELU2}},
    {OP_ACT, "act decay", record_act, {.n = 77, .kind = ACT_DECAY}},
    {OP_ACT, "act silu", record_act, {.n = 77, .kind = ACT_SILU}},
    {OP_ACT, "act exp", record_act, {.n = 77, .kind = ACT_EXP}},
    {OP_ACT, "act softplus", record_act, {.n = 77, .kind = ACT_SOFTPLUS}},
    {OP_ROPE, "rope norm", record_rope, {.n = 64, .heads = 3, .head = 64, .kind = ROPE_NORM}},
    {OP_ROPE, "rope neox", record_rope, {.n = 64, .heads = 3, .head = 64, .kind = ROPE_NEOX}},
    {OP_ROPE,
     "rope norm of a part",
     record_rope,
     {.n = 12, .heads = 2, .head = 21, .gap = 2, .kind = ROPE_NORM}},
    {OP_ROPE,
     "rope neox of a part",
     record_rope,
     {.n = 12, .heads = 5, .head = 21, .gap = 1, .kind = ROPE_NEOX}},
    {OP_ROPE,
     "rope by the third table",
     record_rope_table,
     {.n = 12, .heads = 3, .head = 20, .kind = ROPE_NEOX}},
    {OP_ATTENTION, "attention", record_attention, {.heads = 4, .kv_heads = 4, .head = 64}},
    ATTENTION_OF("heads of 512", .heads = 3, .kv_heads = 1, .head = 512),
    ATTENTION_OF("ragged heads of 328", .heads = 6, .kv_heads = 2, .head = 328, .v_head = 264,
                 .window = 20, .sinks = true),
    ATTENTION_OF("keys of 192 and values of 128", .heads = 6, .kv_heads = 2, .head = 192,
                 .v_head = 128),
    ATTENTION_WITH("a window of 5", .window = 5),
    ATTENTION_WITH("a window of 50", .window = 50),
    ATTENTION_WITH("a window of one", .window = 1),
    ATTENTION_WITH("chunks of 12", .window = 12, .chunked = true),
    ATTENTION_WITH("a softcap", .capped = true),
    ATTENTION_WITH("sinks", .sinks = true),
    ATTENTION_WITH("a window, a softcap and sinks", .window = 9, .capped = true, .sinks = true),
    ATTENTION_OF("groups of 7", .heads = 14, .kv_heads = 2, .head = 64),
    ATTENTION_OF("one key head", .heads = 6, .kv_heads = 1, .head = 128),
    ATTENTION_OF("ragged heads", .heads = 4, .kv_heads = 2, .head = 40, .v_head = 24),
    ATTENTION_OF("scores of ten thousand", .heads = 4, .kv_heads = 2, .head = 64,
                 .kind = SCORES_HUGE),
    ATTENTION_OF("equal scores", .heads = 4, .kv_heads = 2, .head = 64, .kind = SCORES_EQUAL),
    ATTENTION_OF("scores of minus infinity", .heads = 4, .kv_heads = 2, .head = 64,
                 .kind = SCORES_BELOW),
    ATTENTION_OF("heads of 7", .heads = 2, .kv_heads = 1, .head = 7),
    ATTENTION_OF("heads of 256", .heads = 3, .kv_heads = 1, .head = 256),
    {OP_KV_STORE, "kv_store", record_attention, {.heads = 2, .kv_heads = 2, .head = 32}},
    {OP_KV_STORE, "kv_store, ragged", record_attention, {.heads = 2, .kv_heads = 2, .head = 33}},
    {OP_LATENT_ATTENTION,
     "latent_attention",
     record_latent_attention,
     {.heads = 5, .head = 576, .v_head = 512}},
    {OP_LATENT_ATTENTION,
     "latent_attention, ragged",
     record_latent_attention,
     {.heads = 3, .head = 43, .v_head = 36}},
    {OP_ROUTE,
     "route softmax",
     record_route,
     {.experts = 64, .used = 4, .kind = ROUTE_SOFTMAX, .weight = true}},
    {OP_ROUTE,
     "route with scales of experts",
     record_route,
     {.experts = 40, .used = 5, .kind = ROUTE_SOFTMAX, .weight = true, .scales = true}},
    {OP_ROUTE,
     "route softmax, as it is",
     record_route,
     {.experts = 7, .used = 7, .kind = ROUTE_SOFTMAX}},
    {OP_ROUTE,
     "route sigmoid with bias",
     record_route,
     {.experts = 64, .used = 4, .kind = ROUTE_SIGMOID, .weight = true, .bias = true}},
    {OP_ROUTE,
     "route sigmoid in groups",
     record_route,
     {.experts = 32, .used = 3, .groups = 4, .kind = ROUTE_SIGMOID, .weight = true, .bias = true}},
    {OP_ROUTE,
     "route softmax, odd scores",
     record_route,
     {.experts = 64, .used = 4, .kind = ROUTE_SOFTMAX, .weight = true, .odd = true}},
    {OP_ROUTE,
     "route softmax, odd scores of 200",
     record_route,
     {.experts = 200, .used = 8, .kind = ROUTE_SOFTMAX, .odd = true}},
    {OP_ROUTE,
     "route sigmoid, odd scores of all",
     record_route,
     {.experts = 7, .used = 7, .kind = ROUTE_SIGMOID, .weight = true, .odd = true}},
    {OP_ROUTE,
     "route sigmoid with bias, odd scores",
     record_route,
     {.experts = 64, .used = 4, .kind = ROUTE_SIGMOID, .weight = true, .bias = true, .odd = true}},
    {OP_ROUTE,
     "route sigmoid in groups, odd scores",
     record_route,
     {.experts = 32,
      .used = 3,
      .groups = 4,
      .kind = ROUTE_SIGMOID,
      .weight = true,
      .bias = true,
      .odd = true}},
    {CASE_ROUTE_EXPERTS_GLU,
     "route softmax+experts gate+up+glu, odd scores",
     record_experts_glu,
     {.n = 256, .m = 24, .experts = 40, .used = 3, .type = QT_Q8_0, .odd = true}},
    {CASE_ROUTE_EXPERTS_GLU,
     "route sigmoid+experts gate+up+glu, odd scores",
     record_experts_glu,
     {.n = 256,
      .m = 24,
      .experts = 64,
      .used = 4,
      .kind = ROUTE_SIGMOID,
      .type = QT_Q8_0,
      .bias = true,
      .weight = true,
      .odd = true}},
    {OP_COMBINE_EXPERTS, "combine_experts", record_combine, {.n = 77, .used = 4}},
    {OP_TOKEN_SHIFT, "token_shift", record_token_shift, {.n = 64}},
    {OP_TOKEN_SHIFT, "token_shift, ragged", record_token_shift, {.n = 77}},
    {OP_CONV, "conv", record_conv, {.n = 300, .gap = 4}},
    {OP_CONV, "conv of three rows with bias", record_conv, {.n = 78, .gap = 3, .bias = true}},
    {OP_CONV, "conv of two rows", record_conv, {.n = 64, .gap = 2}},
    {OP_RECURRENCE,
     "recurrence, delta",
     record_recurrence,
     {.heads = 4, .kv_heads = 2, .head = 32, .kind = RECURRENCE_DELTA, .bias = true}},
    {OP_RECURRENCE,
     "recurrence, delta, keys in turns, ragged values",
     record_recurrence,
     {.heads = 6,
      .kv_heads = 3,
      .head = 16,
      .v_head = 41,
      .kind = RECURRENCE_DELTA,
      .bias = true,
      .per_slot = true}},
    {OP_RECURRENCE,
     "recurrence, delta, a decay for each column",
     record_recurrence,
     {.heads = 2, .kv_heads = 2, .head = 128, .kind = RECURRENCE_DELTA, .weight = true}},
    {OP_RECURRENCE,
     "recurrence, plain",
     record_recurrence,
     {.heads = 6, .kv_heads = 2, .head = 64, .v_head = 24, .kind = RECURRENCE_PLAIN, .bias = true}},
    {OP_RECURRENCE,
     "recurrence, plain, wide keys",
     record_recurrence,
     {.heads = 2, .kv_heads = 1, .head = 256, .v_head = 32, .kind = RECURRENCE_PLAIN}},
    {OP_RECURRENCE,
     "recurrence, keys of 20",
     record_recurrence,
     {.heads = 4, .kv_heads = 2, .head = 20, .v_head = 12, .kind = RECURRENCE_DELTA, .bias = true}},
    {OP_RECURRENCE, "wkv7", record_wkv7, {.n = 128, .head = 64}},
    {OP_RECURRENCE, "wkv7, heads of 20", record_wkv7, {.n = 60, .head = 20}},
    {OP_RK_BONUS, "rk_bonus", record_rk_bonus, {.n = 128, .head = 64}},
    {OP_RK_BONUS, "rk_bonus, heads of 11", record_rk_bonus, {.n = 77, .head = 11}},
    {CASE_ROPE_STORE, "rope+kv_store", record_rope_store, {.heads = 4, .kv_heads = 2, .head = 32}},
    {CASE_ROPE_STORE,
     "rope+kv_store neox",
     record_rope_store,
     {.heads = 3, .kv_heads = 1, .head = 20, .kind = ROPE_NEOX}},
    {CASE_TIME_MIX, "wkv7+head+tail", record_time_mix, {.n = 128, .head = 64}},
    {CASE_TIME_MIX,
     "wkv7+head+tail with all",
     record_time_mix,
     {.n = 64, .head = 32, .weight = true}},
    {CASE_TIME_MIX,
     "wkv7+head+tail, heads of 20",
     record_time_mix,
     {.n = 60, .head = 20, .weight = true}},
    {CASE_LOW_TIME_MIX,
     "matmul+act+wkv7+head+tail",
     record_time_mix,
     {.n = 128, .m = 40, .head = 64}},
    {CASE_LOW_TIME_MIX,
     "matmul+act+wkv7+head+tail with all",
     record_time_mix,
     {.n = 64, .m = 264, .head = 32, .weight = true}},
    {CASE_MLA_QUERY,
     "norm+matmul+matmul_heads",
     record_mla_query,
     {.n = 768, .heads = 2, .head = 256, .m = 512, .type = QT_Q8_0}},
    {CASE_MLA_QUERY,
     "norm+matmul+matmul_heads F16",
     record_mla_query,
     {.n = 96, .heads = 3, .head = 64, .m = 40, .type = QT_F16}},
    {CASE_MLA_ATTENTION,
     "rope+norm+kv_store+latent_attention+matmul_heads",
     record_mla,
     {.heads = 2, .head = 576, .v_head = 512, .m = 72, .type = QT_Q8_0}},
    {CASE_MLA_ATTENTION,
     "rope+norm+kv_store+latent_attention+matmul_heads F16",
     record_mla,
     {.heads = 3, .head = 72, .v_head = 64, .m = 9, .type = QT_F16}},
    {CASE_SHIFT_MATMULS,
     "norm+token_shift+lerp+matmul+act",
     record_shift_matmuls,
     {.n = 64, .m = 24, .type = QT_F32}},
    {CASE_SHIFT_MATMULS,
     "norm+token_shift+lerp+matmul+act, types mixed",
     record_shift_matmuls,
     {.n = 2304, .m = 40, .type = QT_Q8_0, .bias = true, .kind = NORM_LAYER}},
    {CASE_NORM_ROUTER, "norm+router", record_norm_router, {.n = 64, .experts = 9}},
    {OP_SAMPLE, "sample", record_sample, {.n = 300}},
    {OP_SAMPLE, "sample of few", record_sample, {.n = 33}},
    {OP_GATHER_ROWS, "gather_rows", record_gather, {.n = 77}},
    {OP_GATHER_ROWS, "gather_rows and matmul", record_gather, {.n = 256, .m = 70, .type = QT_Q6_K}},
};
const u32 op_case_count = ARRAY_LEN(op_cases);

const char *op_case_rule(const struct op_case *c)
{
    static const char *const rules[] = {
#define CASE_NAME(id, name) name,
        OP_CASE_RULES(CASE_NAME)
#undef CASE_NAME
    };
    return c->kind < OP_COUNT ? NULL : rules[c->kind - OP_COUNT];
}

bool op_case_is_rule_of(const struct op_case *c, const struct exec_class *class)
{
    for (u32 i = 0; i < class->n_rules && op_case_rule(c); i++)
        if (strcmp(class->rules[i].name, op_case_rule(c)) == 0) return true;
    return false;
}

/* Largest difference over the largest value. What is a copy, or rounded at every operation, is
 * exact. Inside a fused norm and product the last bit of a norm may round an int8 activation the
 * other way. */
double op_tolerance(const struct op_lab *l)
{
    switch (l->c->kind) {
    case OP_EMBED:
    case OP_IMPORT_HIDDEN:
    case OP_GATHER_ROWS:
    case OP_TOKEN_SHIFT:
    case OP_ADD:
    case OP_MUL:
    case OP_LERP:
    case OP_K_CONTROL:
    case OP_ROPE: return l->c->s.m && l->c->kind == OP_GATHER_ROWS ? 2e-6 : 0;
    case CASE_MLA_ATTENTION:
        return 3e-3; /* a norm's last bit rounds a cached half the other way, and
                      that an activation */
    case CASE_NORM_QKV_ATTENTION:
    case CASE_NORM_GATE_UP_GLU:
    case CASE_SHIFT_MATMULS:
    case CASE_NORM_ROUTER:
    case CASE_NORM_ROUTER_GLU:
    case CASE_MLA_QUERY:
    case CASE_NORM_MATMUL_ACT:
    case CASE_NORM_MATMUL: return l->net->profile.int8 ? 3e-3 : 5e-6;
    case OP_ATTENTION:
        if (l->c->s.kind == SCORES_HUGE) return 5e-3; /* scores are off by their last bits */
        return l->net->profile.bf16 ? 1e-3 : 1e-5;
    case OP_LATENT_ATTENTION:
    case OP_KV_STORE:
    case CASE_ROPE_STORE: /* on matrix units queries and exponentials are halves */
        return l->net->profile.bf16 ? 1e-3 : 1e-5;
    case OP_RECURRENCE:
    case CASE_TIME_MIX: return 1e-5;
    case CASE_LOW_TIME_MIX: return l->net->profile.bf16 ? 1e-4 : 1e-5;
    default: return l->net->profile.bf16 ? 2e-5 : 3e-6; /* matrix units cut bits off while adding */
    }
}
