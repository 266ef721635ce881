/* The kernels that fletch bench runs alone, and their own shapes. */
#include <math.h>
#include <stdlib.h>

#include "engine/bench_lab.h"
#include "model/synth.h"

static u32 add_weight(struct lab *l, u32 n_in, u32 n_out, u32 n_slices, enum qtype type)
{
    struct weight w = weight_packed("weight", type, n_in, n_out, n_slices);
    bool vector = n_out == 1;
    struct synth_range range = {vector ? 1 : 0, vector ? 0.1f : sqrtf(3 / (float)n_in)};
    CHECK(l->n_data < ARRAY_LEN(l->data));
    u8 *data = l->data[l->n_data] = malloc(w.n_bytes);
    l->net->failed |= !data;
    if (data) synth_fill(type, l->n_data + 1, range, 0, w.n_bytes / quant_info(type)->bytes, data);
    l->n_data++;
    w.data = data;
    return net_weight(l->net, &w);
}

/* What is recorded from here on are copies that read so much each. */
static void begin_copies(struct lab *l, u64 bytes_each)
{
    u64 n = 2 * bench_llc_bytes() / MAX(bytes_each, 1) + 1;
    l->n_copies = (u32)MIN(n, (u64)LAB_COPIES);
    l->first = l->p->n_ops;
}

static u64 matrix_bytes(const struct lab *l, u32 m)
{
    u64 n = 0;
    quant_bytes(l->s.type, (u64)l->s.n * m, &n);
    return n;
}

static struct operand matmul(struct lab *l, struct operand x, u32 m)
{
    return prog_matmul(l->p, "y", x, add_weight(l, x.width, m, 1, l->s.type), NO_WEIGHT);
}

static void build_matmul(struct lab *l)
{
    l->x = prog_import_hidden(l->p, l->s.n);
    begin_copies(l, matrix_bytes(l, l->s.m));
    for (u32 i = 0; i < l->n_copies; l->p->layer = (int)++i) l->out = matmul(l, l->x, l->s.m);
}

static void build_matmul_add(struct lab *l)
{
    l->x = prog_import_hidden(l->p, l->s.n + l->s.m);
    begin_copies(l, matrix_bytes(l, l->s.m));
    for (u32 i = 0; i < l->n_copies; l->p->layer = (int)++i)
        l->out = prog_add(l->p, "y", prog_cols(l->p, l->x, l->s.n, l->s.m),
                          matmul(l, prog_cols(l->p, l->x, 0, l->s.n), l->s.m));
}

static void build_lerp_matmul(struct lab *l)
{
    u32 n = l->s.n;
    l->x = prog_import_hidden(l->p, 2 * n);
    begin_copies(l, 3 * matrix_bytes(l, l->s.m));
    for (u32 i = 0; i < l->n_copies; l->p->layer = (int)++i) {
        struct operand x[3];
        u32 mix = add_weight(l, n, 3, 1, QT_F32);
        for (u32 j = 0; j < 3; j++)
            x[j] = prog_lerp_weight(l->p, "x", prog_cols(l->p, l->x, 0, n),
                                    prog_cols(l->p, l->x, n, n), mix, j);
        for (u32 j = 0; j < 3; j++) l->out = matmul(l, x[j], l->s.m);
    }
}

static struct operand rms(struct lab *l, struct operand x, u32 w)
{
    return prog_norm(l->p, "normed", x,
                     (struct norm_spec){.kind = NORM_RMS, .eps = 1e-5f, .w = w, .b = NO_WEIGHT});
}

static void build_norm_matmul(struct lab *l)
{
    l->x = prog_import_hidden(l->p, l->s.n);
    begin_copies(l, matrix_bytes(l, l->s.m));
    u32 norm = add_weight(l, l->s.n, 1, 1, QT_F32);
    for (u32 i = 0; i < l->n_copies; l->p->layer = (int)++i)
        l->out = matmul(l, rms(l, l->x, norm), l->s.m);
}

static void make_angles(struct lab *l)
{
    u32 half = l->s.head / 2;
    double *freq = arena_alloc(&l->net->arena, half, sizeof *freq);
    l->net->failed |= !freq;
    for (u32 i = 0; freq && i < half; i++) freq[i] = pow(10000, -1.0 * i / half);
    l->net->rope[0] = (struct rope_table){.n_rot = l->s.head, .freq = freq, .mscale = 1};
}

static void build_norm_qkv_attention(struct lab *l)
{
    u32 q = l->s.heads * l->s.head, kv = l->s.kv_heads * l->s.head;
    make_angles(l);
    l->x = prog_import_hidden(l->p, l->s.n);
    begin_copies(l, matrix_bytes(l, q + 2 * kv));
    u32 norm = add_weight(l, l->s.n, 1, 1, QT_F32);
    for (u32 i = 0; i < l->n_copies; l->p->layer = (int)++i) {
        struct operand x = rms(l, l->x, norm), yq = matmul(l, x, q), yk = matmul(l, x, kv);
        struct operand yv = matmul(l, x, kv);
        yq = prog_rope(l->p, "q", ROPE_NEOX, l->s.heads, yq);
        yk = prog_rope(l->p, "k", ROPE_NEOX, l->s.kv_heads, yk);
        u32 layer = net_kv(l->net, kv, kv);
        prog_kv_store(l->p, layer, yk, yv);
        l->out = prog_attention(l->p, "y", layer, l->s.heads, l->s.kv_heads, yq,
                                1 / sqrtf((float)l->s.head));
    }
}

static void build_gate_up_glu(struct lab *l)
{
    l->x = prog_import_hidden(l->p, l->s.n);
    begin_copies(l, 2 * matrix_bytes(l, l->s.m));
    for (u32 i = 0; i < l->n_copies; l->p->layer = (int)++i) {
        struct operand g = matmul(l, l->x, l->s.m);
        l->out = prog_glu(l->p, "y", g, matmul(l, l->x, l->s.m));
    }
}

static void build_norm_gate_up_glu(struct lab *l)
{
    l->x = prog_import_hidden(l->p, l->s.n);
    begin_copies(l, 2 * matrix_bytes(l, l->s.m));
    u32 norm = add_weight(l, l->s.n, 1, 1, QT_F32);
    for (u32 i = 0; i < l->n_copies; l->p->layer = (int)++i) {
        struct operand x = rms(l, l->x, norm), g = matmul(l, x, l->s.m);
        l->out = prog_glu(l->p, "y", g, matmul(l, x, l->s.m));
    }
}

static void build_norm(struct lab *l)
{
    l->x = prog_import_hidden(l->p, l->s.n);
    begin_copies(l, 0);
    u32 w = add_weight(l, l->s.n, 1, 1, QT_F32);
    for (u32 i = 0; i < l->n_copies; l->p->layer = (int)++i) l->out = rms(l, l->x, w);
}

static void build_rope(struct lab *l)
{
    make_angles(l);
    l->x = prog_import_hidden(l->p, l->s.heads * l->s.head);
    begin_copies(l, 0);
    for (u32 i = 0; i < l->n_copies; l->p->layer = (int)++i)
        l->out = prog_rope(l->p, "y", ROPE_NEOX, l->s.heads, l->x);
}

static struct operand add_route(struct lab *l, struct operand z, struct operand *weights)
{
    struct operand ids;
    prog_route(l->p, z,
               (struct route_spec){.kind = ROUTE_SOFTMAX,
                                   .n_used = l->s.used,
                                   .normalise = true,
                                   .floor = 6.1e-5f,
                                   .scale = 1,
                                   .bias = NO_WEIGHT,
                                   .scales = NO_WEIGHT},
               &ids, weights);
    return ids;
}

static void build_route(struct lab *l)
{
    l->x = prog_import_hidden(l->p, l->s.experts);
    begin_copies(l, 0);
    for (u32 i = 0; i < l->n_copies; l->p->layer = (int)++i) add_route(l, l->x, &l->out);
}

/* Choices by the columns behind the first n. */
static struct operand begin_experts(struct lab *l, u32 n, u32 n_matrices, struct operand *weights)
{
    l->varied = true;
    l->s.depth = LAB_VARIED;
    l->x = prog_import_hidden(l->p, n + l->s.experts);
    struct operand ids = add_route(l, prog_cols(l->p, l->x, n, l->s.experts), weights);
    begin_copies(l, n_matrices * matrix_bytes(l, l->s.m) * l->s.experts);
    return ids;
}

static struct operand experts(struct lab *l, struct operand x, struct operand ids, bool per_slot)
{
    u32 w = add_weight(l, l->s.n, l->s.m, l->s.experts, l->s.type);
    return prog_matmul_experts(l->p, "y", x, ids, w, per_slot);
}

static void build_experts(struct lab *l)
{
    struct operand weights, ids = begin_experts(l, l->s.n, 1, &weights);
    struct operand x = prog_cols(l->p, l->x, 0, l->s.n);
    for (u32 i = 0; i < l->n_copies; l->p->layer = (int)++i) l->out = experts(l, x, ids, false);
}

static void build_experts_glu(struct lab *l)
{
    struct operand weights, ids = begin_experts(l, l->s.n, 2, &weights);
    struct operand x = prog_cols(l->p, l->x, 0, l->s.n);
    for (u32 i = 0; i < l->n_copies; l->p->layer = (int)++i) {
        struct operand g = experts(l, x, ids, false);
        l->out = prog_glu(l->p, "y", g, experts(l, x, ids, false));
    }
}

static void build_experts_combine(struct lab *l)
{
    u32 n = l->s.n * l->s.used;
    struct operand weights, ids = begin_experts(l, n, 1, &weights);
    for (u32 i = 0; i < l->n_copies; l->p->layer = (int)++i)
        l->out = prog_combine_experts(l->p, "y", experts(l, prog_cols(l->p, l->x, 0, n), ids, true),
                                      weights);
}

static void build_attention(struct lab *l)
{
    u32 q = l->s.heads * l->s.head, kv = l->s.kv_heads * l->s.head;
    u32 value = l->net->profile.kv == CACHE_F16 ? 2 : 4;
    l->x = prog_import_hidden(l->p, q + 2 * kv);
    begin_copies(l, (u64)(l->s.depth + l->s.t) * 2 * kv * value);
    for (u32 i = 0; i < l->n_copies; l->p->layer = (int)++i)
        prog_kv_store(l->p, net_kv(l->net, kv, kv), prog_cols(l->p, l->x, q, kv),
                      prog_cols(l->p, l->x, q + kv, kv));
    l->first = l->p->n_ops;
    for (u32 i = 0; i < l->n_copies; l->p->layer = (int)++i)
        l->out = prog_attention(l->p, "y", i, l->s.heads, l->s.kv_heads,
                                prog_cols(l->p, l->x, 0, q), 1 / sqrtf((float)l->s.head));
}

static void build_latent_attention(struct lab *l)
{
    u32 wide = l->s.head + l->s.rope, q = l->s.heads * wide;
    u32 value = l->net->profile.kv == CACHE_F16 ? 2 : 4;
    l->x = prog_import_hidden(l->p, q + wide);
    begin_copies(l, (u64)(l->s.depth + l->s.t) * wide * value);
    for (u32 i = 0; i < l->n_copies; l->p->layer = (int)++i)
        prog_kv_store(l->p, net_kv(l->net, wide, 0), prog_cols(l->p, l->x, q, wide),
                      (struct operand){.buf = NO_BUF});
    l->first = l->p->n_ops;
    for (u32 i = 0; i < l->n_copies; l->p->layer = (int)++i)
        l->out = prog_latent_attention(l->p, "y", i, l->s.heads, l->s.head,
                                       prog_cols(l->p, l->x, 0, q), 1 / sqrtf((float)wide));
}

/* r, w, k, v, kk and a, as a model makes them. */
static void wkv7_inputs(struct lab *l, struct operand c[6])
{
    u32 n = l->s.n;
    l->x = prog_import_hidden(l->p, 6 * n);
    for (u32 i = 0; i < 6; i++) c[i] = prog_cols(l->p, l->x, i * n, n);
    c[1] = prog_act(l->p, "w", ACT_DECAY, c[1]);
    c[5] = prog_act(l->p, "a", ACT_SIGMOID, c[5]);
    l->whole = true;
}

static struct operand l2(struct lab *l, struct operand x)
{
    return prog_norm(
        l->p, "kk", x,
        (struct norm_spec){
            .kind = NORM_L2, .group = l->s.head, .eps = 1e-12f, .w = NO_WEIGHT, .b = NO_WEIGHT});
}

static void build_wkv7(struct lab *l)
{
    struct operand c[6];
    u32 n = l->s.n, head = l->s.head;
    wkv7_inputs(l, c);
    c[4] = l2(l, c[4]);
    begin_copies(l, (u64)n * head * sizeof(float));
    for (u32 i = 0; i < l->n_copies; l->p->layer = (int)++i)
        l->out = prog_wkv7(l->p, "y", net_state(l->net, n * head), head, c[0], c[1], c[2], c[3],
                           c[4], c[5]);
}

static void build_time_mix(struct lab *l)
{
    struct operand c[6];
    u32 n = l->s.n, head = l->s.head;
    wkv7_inputs(l, c);
    begin_copies(l, (u64)n * head * sizeof(float));
    u32 k_k = add_weight(l, n, 1, 1, QT_F32), k_a = add_weight(l, n, 1, 1, QT_F32);
    u32 r_k = add_weight(l, n, 1, 1, QT_F32);
    for (u32 i = 0; i < l->n_copies; l->p->layer = (int)++i) {
        struct operand kk = l2(l, prog_mul_weight(l->p, "kk", c[2], k_k));
        struct operand k = prog_k_control(l->p, "k", c[2], c[5], k_a);
        struct operand y =
            prog_wkv7(l->p, "y", net_state(l->net, n * head), head, c[0], c[1], k, c[3], kk, c[5]);
        l->out = prog_rk_bonus(l->p, "y", head, y, c[0], k, c[3], r_k);
    }
}

/* Logits of n tokens. */
static void build_sample(struct lab *l)
{
    l->samples = true;
    l->net->n_vocab = l->s.n;
    l->x = prog_import_hidden(l->p, l->s.n);
    struct operand z = prog_gather_rows(l->p, l->x);
    begin_copies(l, (u64)l->s.n * sizeof(float));
    for (u32 i = 0; i < l->n_copies; l->p->layer = (int)++i) prog_sample(l->p, z);
    l->out = (struct operand){l->p->sampled, 0, 1};
}

const struct lab_kernel lab_kernels[] = {
    {"matvec", build_matmul, {.n = 2048, .m = 8192, .t = 1, .type = QT_Q8_0}, 1e-4, NULL},
    {"matmul", build_matmul, {.n = 2048, .m = 8192, .t = 512, .type = QT_Q8_0}, 1e-4, NULL},
    {"matmul+add",
     build_matmul_add,
     {.n = 2048, .m = 2048, .t = 1, .type = QT_Q8_0},
     1e-4,
     "matmul+add"},
    {"norm+matmul",
     build_norm_matmul,
     {.n = 2048, .m = 2048, .t = 1, .type = QT_Q8_0},
     2e-2,
     "norm+matmul"},
    {"norm+qkv+rope+kv_store+attention",
     build_norm_qkv_attention,
     {.n = 2048, .t = 1, .heads = 32, .kv_heads = 8, .head = 64, .depth = 100, .type = QT_Q8_0},
     2e-2,
     "norm+qkv+rope+kv_store+attention"},
    {"gate+up+glu",
     build_gate_up_glu,
     {.n = 2048, .m = 8192, .t = 1, .type = QT_Q8_0},
     1e-4,
     "gate+up+glu"},
    {"norm+gate+up+glu",
     build_norm_gate_up_glu,
     {.n = 2048, .m = 8192, .t = 1, .type = QT_Q8_0},
     2e-2,
     "norm+gate+up+glu"},
    {"lerp+matmul+act",
     build_lerp_matmul,
     {.n = 1024, .m = 1024, .t = 1, .type = QT_Q8_0},
     1e-4,
     "lerp+matmul+act"},
    {"attention",
     build_attention,
     {.t = 1, .heads = 32, .kv_heads = 8, .head = 64, .depth = 2048},
     1e-3,
     NULL},
    {"latent_attention",
     build_latent_attention,
     {.t = 1, .heads = 20, .head = 512, .rope = 64, .depth = 2048},
     1e-3,
     NULL},
    {"norm", build_norm, {.n = 2048, .t = 1}, 1e-5, NULL},
    {"rope", build_rope, {.t = 1, .heads = 32, .head = 64, .depth = 100}, 1e-5, NULL},
    {"route", build_route, {.t = 1, .experts = 64, .used = 4}, 1e-5, NULL},
    {"experts",
     build_experts,
     {.n = 2048, .m = 1536, .t = 1, .experts = 64, .used = 4, .type = QT_Q4_K},
     1e-4,
     NULL},
    {"experts+glu",
     build_experts_glu,
     {.n = 2048, .m = 1536, .t = 1, .experts = 64, .used = 4, .type = QT_Q4_K},
     1e-4,
     "experts gate+up+glu"},
    {"experts+combine",
     build_experts_combine,
     {.n = 1536, .m = 2048, .t = 1, .experts = 64, .used = 4, .type = QT_Q4_K},
     1e-4,
     "experts down+combine"},
    {"wkv7", build_wkv7, {.n = 1024, .t = 1, .head = 64}, 1e-4, NULL},
    {"wkv7+head+tail", build_time_mix, {.n = 1024, .t = 1, .head = 64}, 1e-4, "wkv7+head+tail"},
    {"sample", build_sample, {.n = 131072, .t = 1}, 0, NULL},
    {NULL, NULL, {0}, 0, NULL},
};
