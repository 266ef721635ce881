/* Ops that look at one row: each alone, against sums done naively in double or by hand. Ops that
 * look at sequences are in ref_seq_test.c. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../test/lab.h"
#include "base/num.h"
#include "ref/ref.h"

/* ---- norms ---- */

static void naive_norm(const float *x, double *y, u32 n, enum norm_kind kind, double eps)
{
    double mean = 0, sq = 0;
    for (u32 i = 0; kind == NORM_LAYER && i < n; i++) mean += (double)x[i] / n;
    for (u32 i = 0; i < n; i++) sq += pow((double)x[i] - mean, 2);
    double by = kind == NORM_L2 ? fmax(sqrt(sq), eps) : sqrt(sq / n + eps);
    for (u32 i = 0; i < n; i++) y[i] = ((double)x[i] - mean) / by;
}

/* group 0: the whole width; n_w and n_b: entries of weight and bias, 0 for none. */
static void check_norm(enum norm_kind kind, u32 group, u32 n_w, u32 n_b)
{
    enum { N = 24 };
    const float *w = NULL, *b = NULL;
    double want[N];
    struct operand x = lab_in(N);
    struct norm_spec spec = {kind, group, 0.01f, NO_WEIGHT, NO_WEIGHT};
    if (n_w) spec.w = lab_random_weight(QT_F16, n_w, 1, 1, &w);
    if (n_b) spec.b = lab_random_weight(QT_F32, n_b, 1, 1, &b);
    struct operand y = prog_norm(lab.p, "y", x, spec);
    for (u32 t = 0; t < 3; t++) lab_row(0, t);
    lab_fill(3);
    lab_run(y, y);
    u32 g = group ? group : N;
    for (u32 t = 0; t < 3; t++) {
        for (u32 i = 0; i < N; i += g)
            naive_norm(lab_at(x, t) + i, want + i, g, kind, (double)0.01f);
        for (u32 i = 0; i < N; i++)
            lab_close_to(lab_out(y, t)[i],
                         want[i] * (w ? (double)w[i % n_w] : 1) + (b ? (double)b[i] : 0));
    }
}

static void norm_of_every_kind(void **state)
{
    static const struct {
        enum norm_kind kind;
        u32 group, n_w, n_b;
    } cases[] = {
        {NORM_RMS, 0, 0, 0},   {NORM_RMS, 0, 24, 0}, /* the usual one */
        {NORM_RMS, 6, 6, 0},                         /* per head, one weight for all heads */
        {NORM_LAYER, 0, 0, 0}, {NORM_LAYER, 0, 24, 24}, {NORM_LAYER, 8, 24, 24}, /* group norm */
        {NORM_L2, 0, 0, 0},    {NORM_L2, 4, 0, 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        check_norm(cases[i].kind, cases[i].group, cases[i].n_w, cases[i].n_b);
        lab_teardown(state);
        lab_setup(state);
    }
}

static void l2_of_nothing_is_nothing(void **state)
{
    (void)state;
    struct norm_spec spec = {NORM_L2, 0, 1e-12f, NO_WEIGHT, NO_WEIGHT};
    struct operand y = prog_norm(lab.p, "y", lab_in(4), spec);
    lab_row(0, 0);
    lab_run(y, y);
    for (u32 i = 0; i < 4; i++) assert_true(lab_out(y, 0)[i] == 0);
}

/* ---- matrices ---- */

static double dot(const float *x, const float *w, u32 n)
{
    double sum = 0;
    for (u32 i = 0; i < n; i++) sum += (double)x[i] * (double)w[i];
    return sum;
}

static void check_matmul(enum qtype type, u32 n_in, bool with_bias)
{
    enum { M = 5, T = 3 };
    const float *w, *b = NULL;
    lab_in(7); /* so that the input starts inside the row */
    struct operand x = lab_in(n_in);
    u32 weight = lab_random_weight(type, n_in, M, 1, &w);
    u32 bias = with_bias ? lab_random_weight(QT_F32, M, 1, 1, &b) : NO_WEIGHT;
    struct operand y = prog_matmul(lab.p, "y", x, weight, bias);
    for (u32 t = 0; t < T; t++) lab_row(0, t);
    lab_fill(T);
    lab_run(y, y);
    for (u32 t = 0; t < T; t++)
        for (u32 o = 0; o < M; o++) {
            double want = dot(lab_at(x, t), w + (size_t)o * n_in, n_in) + (b ? (double)b[o] : 0);
            assert_true(lab_out(y, t)[o] == (float)want);
        }
}

static void matmul_of_every_writable_type(void **state)
{
    u32 n_types = 0;
    for (u32 type = 0; type < QT_COUNT; type++) {
        const struct quant_info *info = quant_info(type);
        if (!info || !info->readable || !info->writable) continue;
        const u32 widths[] = {info->blk, 1024, 1280, 2048 + 256, info->blk == 1 ? 1501 : 512};
        for (u32 i = 0; i < 2 * ARRAY_LEN(widths); i++) {
            check_matmul((enum qtype)type, widths[i / 2], i % 2);
            lab_teardown(state);
            lab_setup(state);
        }
        n_types++;
    }
    assert_true(n_types >= 7);
}

/* Of the profile that rounds activations to 8 bits per 32 where they meet block types. */
static void check_rounded_matmul(enum qtype type)
{
    const float *w;
    float rounded[64];
    lab.net->profile.int8 = true;
    struct operand x = lab_in(64);
    u32 weight = lab_random_weight(type, 64, 3, 1, &w);
    struct operand y = prog_matmul(lab.p, "y", x, weight, NO_WEIGHT);
    lab_row(0, 0), lab_row(0, 1);
    lab_fill(2);
    lab_run(y, y);
    for (u32 t = 0; t < 2; t++) {
        const float *in = lab_at(x, t);
        for (u32 i = 0; i < 64; i++) {
            float top = 0;
            for (u32 j = i / 32 * 32; j < i / 32 * 32 + 32; j++) top = fmaxf(top, fabsf(in[j]));
            rounded[i] = type == QT_F16 ? in[i] : rintf(in[i] * (127 / top)) * (top / 127);
        }
        for (u32 o = 0; o < 3; o++) lab_close_to(lab_out(y, t)[o], dot(rounded, w + 64 * o, 64));
    }
}

static void int8_profile_rounds_what_meets_blocks(void **state)
{
    (void)state;
    check_rounded_matmul(QT_Q8_0);
}

static void int8_profile_leaves_what_meets_floats(void **state)
{
    (void)state;
    check_rounded_matmul(QT_F16);
}

static void matmul_heads_strides(void **state)
{
    (void)state;
    enum { H = 3, N = 4, IN = 7, M = 5, OUT = 6 };
    const float *w;
    struct operand x = lab_in(H * IN), y = prog_buf(lab.p, "y", H * OUT);
    u32 weight = lab_random_weight(QT_F16, N, M, H, &w);
    prog_matmul_heads_to(lab.p, y, OUT, x, IN, weight);
    lab_row(0, 0), lab_row(0, 1);
    lab_fill(2);
    lab_run(y, y);
    for (u32 t = 0; t < 2; t++)
        for (u32 h = 0; h < H; h++) {
            const float *got = lab_out(y, t) + h * OUT;
            for (u32 o = 0; o < M; o++)
                lab_close_to(got[o], dot(lab_at(x, t) + h * IN, w + (h * M + o) * N, N));
            assert_true(got[M] == 0); /* what lies between heads is not touched */
        }
}

static void check_experts(bool per_slot)
{
    enum { E = 5, K = 3, N = 6, M = 4 };
    static const i32 ids[2][K] = {{4, 0, 2}, {1, 3, 4}};
    const float *w;
    struct operand x = lab_in(per_slot ? K * N : N), chosen = lab_in(K);
    u32 weight = lab_random_weight(QT_BF16, N, M, E, &w);
    struct operand y = prog_matmul_experts(lab.p, "y", x, chosen, weight, per_slot);
    lab_row(0, 0), lab_row(1, 0);
    lab_fill(2);
    for (u32 t = 0; t < 2; t++) memcpy(lab_at(chosen, t), ids[t], sizeof ids[t]);
    lab_run(y, y);
    for (u32 t = 0; t < 2; t++)
        for (u32 j = 0; j < K; j++)
            for (u32 o = 0; o < M; o++) {
                const float *in = lab_at(x, t) + (per_slot ? j * N : 0);
                const float *row = w + ((size_t)ids[t][j] * M + o) * N;
                lab_close_to(lab_out(y, t)[j * M + o], dot(in, row, N));
            }
}

static void experts_share_their_input(void **state)
{
    (void)state;
    check_experts(false);
}

static void experts_have_an_input_each(void **state)
{
    (void)state;
    check_experts(true);
}

static void combine_adds_in_rank_order(void **state)
{
    (void)state;
    static const float x[6] = {1e8f, 1, 1, 2, -1e8f, 4}, w[3] = {1, 0.5f, 1};
    struct operand in = lab_in(6), weights = lab_in(3);
    struct operand y = prog_combine_experts(lab.p, "y", in, weights);
    lab_row(0, 0);
    memcpy(lab_at(in, 0), x, sizeof x);
    memcpy(lab_at(weights, 0), w, sizeof w);
    lab_run(y, y);
    assert_true(lab_out(y, 0)[0] == 0); /* (1e8 + 0.5) - 1e8 in f32 */
    assert_true(lab_out(y, 0)[1] == 1 + 0.5f * 2 + 4);
}

static void each_chosen_expert_adds_its_bias(void **state)
{
    (void)state;
    static const float b[6] = {1, 2, 10, 20, 100, 200};
    static const float z[3] = {0.5f, -3, 4}; /* the third, then the first */
    struct operand in = lab_in(3), x = lab_in(4), ids, weights;
    prog_route(lab.p, in,
               (struct route_spec){.n_used = 2, .scale = 1, .bias = NO_WEIGHT, .scales = NO_WEIGHT},
               &ids, &weights);
    struct operand y = prog_add_experts(lab.p, "y", x, ids, lab_weight(QT_F32, 2, 3, 1, b, NULL));
    lab_row(0, 0);
    lab_fill(1);
    memcpy(lab_at(in, 0), z, sizeof z);
    lab_run(y, y);
    static const float want[4] = {100, 200, 1, 2};
    for (u32 i = 0; i < 4; i++) assert_true(lab_out(y, 0)[i] == lab_at(x, 0)[i] + want[i]);
}

/* ---- columns ---- */

static void pairwise_ops(void **state)
{
    (void)state;
    static const float w[6] = {1, 2, 0.5f, -1, 0.25f, 3};
    struct operand a = lab_in(3), b = lab_in(3), m = lab_in(3), wide = lab_in(9);
    u32 v = lab_vector(3, w), rows = lab_weight(QT_F32, 3, 2, 1, w, NULL);
    struct operand y[] = {
        prog_add(lab.p, "y", a, b),
        prog_mul(lab.p, "y", a, b),
        prog_mul_weight(lab.p, "y", a, v),
        prog_lerp(lab.p, "y", a, b, m),
        prog_lerp_weight(lab.p, "y", a, b, rows, 1),
        prog_k_control(lab.p, "y", a, b, v),
        prog_glu(lab.p, "y", a, b),
        prog_glu_by(lab.p, "y", a, b, (struct glu_spec){.kind = GLU_GELU}),
        prog_glu_by(lab.p, "y", a, b,
                    (struct glu_spec){.kind = GLU_CLAMPED, .alpha = 1.5f, .limit = 0.4f}),
        prog_add_weight(lab.p, "y", a, v),
        prog_mul_heads(lab.p, "y", a, prog_cols(lab.p, b, 1, 1)),
        prog_mul_strided(lab.p, "y", a, wide, 1, 4),
        prog_mul_heads_weight(lab.p, "y", prog_cols(lab.p, wide, 2, 6), v),
        prog_glu_by(lab.p, "y", a, b, (struct glu_spec){.kind = GLU_LIMITED, .limit = 0.2f}),
    };
    for (u32 i = 0; i < ARRAY_LEN(y); i++) lab.p->bufs[y[i].buf].kept = true;
    lab_row(0, 0), lab_row(0, 1);
    lab_fill(2);
    lab_run(y[0], y[1]);
    for (u32 t = 0; t < 2; t++)
        for (u32 i = 0; i < 3; i++) {
            float p = lab_at(a, t)[i], q = lab_at(b, t)[i], r = lab_at(m, t)[i];
            double sigmoid = 1 / (1 + exp(-(double)p));
            assert_true(lab_out(y[0], t)[i] == p + q);
            assert_true(lab_out(y[1], t)[i] == p * q);
            assert_true(lab_out(y[2], t)[i] == p * w[i]);
            lab_close_to(lab_out(y[3], t)[i], (double)p * (1 - (double)r) + (double)q * (double)r);
            lab_close_to(lab_out(y[4], t)[i],
                         (double)p + ((double)q - (double)p) * (double)w[3 + i]);
            lab_close_to(lab_out(y[5], t)[i], (double)p * (1 + ((double)q - 1) * (double)w[i]));
            lab_close_to(lab_out(y[6], t)[i], (double)p * sigmoid * (double)q);
            double g = (double)p, turn = sqrt(2 / M_PI) * (g + 0.044715 * g * g * g);
            lab_close_to(lab_out(y[7], t)[i], g / 2 * (1 + tanh(turn)) * (double)q);
            g = fmin(g, (double)0.4f);
            double u = fmax(fmin((double)q, (double)0.4f), -(double)0.4f);
            lab_close_to(lab_out(y[8], t)[i], g / (1 + exp(-1.5 * g)) * (u + 1));
            assert_true(lab_out(y[9], t)[i] == p + w[i]);
            assert_true(lab_out(y[10], t)[i] == p * lab_at(b, t)[1]);
            assert_true(lab_out(y[11], t)[i] == p * lab_at(wide, t)[4 * i]);
            for (u32 j = 2 * i; j < 2 * i + 2; j++)
                assert_true(lab_out(y[12], t)[j] == lab_at(wide, t)[2 + j] * w[i]);
            u = fmax(fmin((double)q, (double)0.2f), -(double)0.2f);
            lab_close_to(lab_out(y[13], t)[i], fmin((double)p * sigmoid, (double)0.2f) * u);
        }
}

static void activations(void **state)
{
    (void)state;
    static const float x[7] = {-30, -1.5f, -0.1f, 0, 0.3f, 2, 40};
    struct operand in = lab_in(7), y[ACT_SOFTPLUS + 1];
    for (u32 k = 0; k <= ACT_SOFTPLUS; k++) {
        y[k] = prog_act(lab.p, "y", (enum act_kind)k, in);
        lab.p->bufs[y[k].buf].kept = true;
    }
    lab_row(0, 0);
    memcpy(lab_at(in, 0), x, sizeof x);
    lab_run(y[0], y[1]);
    for (u32 i = 0; i < 7; i++) {
        double z = (double)x[i], sigmoid = 1 / (1 + exp(-z));
        lab_close_to(lab_out(y[ACT_TANH], 0)[i], tanh(z));
        lab_close_to(lab_out(y[ACT_SIGMOID], 0)[i], sigmoid);
        lab_close_to(lab_out(y[ACT_RELU2], 0)[i], z > 0 ? z * z : 0);
        lab_close_to(lab_out(y[ACT_DECAY], 0)[i], exp(-exp(-0.5) * sigmoid));
        lab_close_to(lab_out(y[ACT_SILU], 0)[i], z * sigmoid);
        lab_close_to(lab_out(y[ACT_EXP], 0)[i], exp(z));
        lab_close_to(lab_out(y[ACT_SOFTPLUS], 0)[i], log1p(exp(z)));
    }
}

static void rk_bonus_by_heads(void **state)
{
    (void)state;
    enum { C = 6, N = 3 };
    const float *r_k;
    u32 w = lab_random_weight(QT_F32, C, 1, 1, &r_k);
    struct operand y = lab_in(C), r = lab_in(C), k = lab_in(C), v = lab_in(C);
    struct operand out = prog_rk_bonus(lab.p, "out", N, y, r, k, v, w);
    lab_row(0, 0);
    lab_fill(1);
    lab_run(out, out);
    for (u32 i = 0; i < C; i++) {
        double sum = 0;
        for (u32 j = i / N * N; j < i / N * N + N; j++)
            sum += (double)lab_at(r, 0)[j] * (double)lab_at(k, 0)[j] * (double)r_k[j];
        lab_close_to(lab_out(out, 0)[i], (double)lab_at(y, 0)[i] + sum * (double)lab_at(v, 0)[i]);
    }
}

/* ---- rows ---- */

static void embed_decodes_a_row(void **state)
{
    (void)state;
    const float *table;
    u32 w = lab_random_weight(QT_Q8_0, 64, 25, 1, &table);
    struct operand y = prog_embed(lab.p, w);
    lab_row(2, 4), lab_row(0, 3); /* lab tokens are 10·slot + position */
    lab_run(y, y);
    assert_memory_equal(lab_out(y, 0), table + 24 * 64, 64 * sizeof(float));
    assert_memory_equal(lab_out(y, 1), table + 3 * 64, 64 * sizeof(float));
}

static void gather_takes_the_rows_asked_for(void **state)
{
    (void)state;
    struct operand x = lab_in(3), y = prog_gather_rows(lab.p, x);
    const float *w;
    struct operand z =
        prog_matmul(lab.p, "z", y, lab_random_weight(QT_F32, 3, 2, 1, &w), NO_WEIGHT);
    lab_fill(4);
    for (u32 t = 0; t < 4; t++) lab_row(0, t);
    lab.s->n_out = 2;
    lab.s->out_rows[0] = 1, lab.s->out_rows[1] = 3;
    lab_run(z, y);
    for (u32 i = 0; i < 2; i++) {
        const float *row = lab_at(x, 2 * i + 1);
        assert_memory_equal(lab_out(y, i), row, 3 * sizeof(float));
        for (u32 o = 0; o < 2; o++) lab_close_to(lab_out(z, i)[o], dot(row, w + 3 * o, 3));
    }
}

/* ---- rope ---- */

static void check_rope(enum rope_kind kind)
{
    enum { H = 3, W = 7, ROT = 4, IN = 9, OUT = 8 };
    static double freq[2] = {1, 0.3};
    static const u32 pos[3] = {0, 5, 11};
    lab.net->rope[0] = (struct rope_table){.n_rot = ROT, .freq = freq, .mscale = 1};
    struct operand x = lab_in(H * IN), y = prog_buf(lab.p, "y", H * OUT);
    prog_rope_to(lab.p, kind, H, W, y, OUT, x, IN);
    for (u32 t = 0; t < 3; t++) lab_row(t, pos[t]);
    lab_fill(3);
    lab_run(y, y);
    for (u32 t = 0; t < 3; t++)
        for (u32 h = 0; h < H; h++) {
            const float *in = lab_at(x, t) + h * IN, *got = lab_out(y, t) + h * OUT;
            for (u32 i = 0; i < 2; i++) {
                u32 ia = kind == ROPE_NORM ? 2 * i : i, ib = kind == ROPE_NORM ? ia + 1 : i + 2;
                double c = cos(pos[t] * freq[i]), s = sin(pos[t] * freq[i]);
                lab_close_to(got[ia], (double)in[ia] * c - (double)in[ib] * s);
                lab_close_to(got[ib], (double)in[ia] * s + (double)in[ib] * c);
            }
            assert_memory_equal(got + ROT, in + ROT, (W - ROT) * sizeof(float)); /* passes */
            assert_true(got[W] == 0);                                            /* untouched */
        }
}

/* A frequency of 0 rotates nothing, so that what is left is the growth with the position. */
static void rope_by_a_second_table_grows(void **state)
{
    (void)state;
    static double main_freq[1] = {1}, freq[2] = {0, 0};
    static const u32 pos[3] = {0, 3, 11};
    lab.net->rope[0] = (struct rope_table){.n_rot = 2, .freq = main_freq, .mscale = 1};
    lab.net->rope[1] = (struct rope_table){
        .n_rot = 4, .freq = freq, .mscale = 2, .grow = 0.5, .grow_every = 4, .grow_from = 1};
    struct operand x = lab_in(4), y = prog_rope_by(lab.p, "y", ROPE_NEOX, 1, 1, x);
    for (u32 t = 0; t < 3; t++) lab_row(t, pos[t]);
    lab_fill(3);
    lab_run(y, y);
    for (u32 t = 0; t < 3; t++)
        for (u32 i = 0; i < 4; i++)
            lab_close_to(lab_out(y, t)[i],
                         (double)lab_at(x, t)[i] * 2 * (1 + 0.5 * log(1 + (pos[t] + 1) / 4)));
}

static void rope_norm_turns_neighbours(void **state)
{
    (void)state;
    check_rope(ROPE_NORM);
}

static void rope_neox_turns_halves(void **state)
{
    (void)state;
    check_rope(ROPE_NEOX);
}

/* ---- routing ---- */

/* Routes z, writes "id:weight ..." choices to ids and w. */
static void route(const float *z, u32 n, struct route_spec spec, i32 *ids, float *w)
{
    struct operand in = lab_in(n), chosen, weights;
    if (!spec.scales) spec.scales = NO_WEIGHT; /* weight 0 is another's here */
    prog_route(lab.p, in, spec, &chosen, &weights);
    lab_row(0, 0);
    memcpy(lab_at(in, 0), z, n * sizeof *z);
    lab_run(chosen, weights);
    memcpy(ids, lab_out(chosen, 0), spec.n_used * sizeof *ids);
    memcpy(w, lab_out(weights, 0), spec.n_used * sizeof *w);
}

static const float six[6] = {0.5f, 2, -1, 2, 1, 0};

static void route_softmax_takes_the_best_ties_to_the_lower(void **state)
{
    (void)state;
    static const i32 want[4] = {1, 3, 4, 0};
    i32 ids[4];
    float w[4];
    double sum = 0;
    route(six, 6, (struct route_spec){.n_used = 4, .scale = 1, .bias = NO_WEIGHT}, ids, w);
    assert_memory_equal(ids, want, sizeof want);
    for (u32 i = 0; i < 6; i++) sum += exp((double)six[i]);
    for (u32 j = 0; j < 4; j++) lab_close_to(w[j], exp((double)six[want[j]]) / sum);
}

static void route_normalises_then_scales(void **state)
{
    (void)state;
    i32 ids[2];
    float w[2];
    struct route_spec spec = {
        .n_used = 2, .normalise = true, .floor = 6e-5f, .scale = 1.8f, .bias = NO_WEIGHT};
    static const float z[3] = {1, 3, 2};
    route(z, 3, spec, ids, w);
    assert_true(ids[0] == 1 && ids[1] == 2);
    lab_close_to(w[0], 1.8 * exp(1) / (exp(1) + 1));
    lab_close_to(w[1], 1.8 * 1 / (exp(1) + 1));
}

static void route_scales_the_weight_of_each_expert(void **state)
{
    (void)state;
    static const float z[3] = {1, 3, 2}, scales[3] = {9, 0.5f, -2};
    i32 ids[2];
    float w[2];
    u32 other = lab_vector(3, scales);
    struct route_spec spec = {
        .n_used = 2, .normalise = true, .floor = 6e-5f, .scale = 1, .bias = NO_WEIGHT};
    assert_int_equal(other, 0);
    spec.scales = lab_vector(3, scales);
    route(z, 3, spec, ids, w);
    assert_true(ids[0] == 1 && ids[1] == 2);
    lab_close_to(w[0], 0.5 * exp(1) / (exp(1) + 1));
    lab_close_to(w[1], -2 / (exp(1) + 1));
}

static void route_bias_chooses_but_does_not_weigh(void **state)
{
    (void)state;
    static const float bias[6] = {0, 0, 1, -1, 0, 0};
    static const i32 want[2] = {2, 1};
    i32 ids[2];
    float w[2];
    route(six, 6,
          (struct route_spec){
              .kind = ROUTE_SIGMOID, .n_used = 2, .scale = 1, .bias = lab_vector(6, bias)},
          ids, w);
    assert_memory_equal(ids, want, sizeof want);
    for (u32 j = 0; j < 2; j++) lab_close_to(w[j], 1 / (1 + exp(-(double)six[want[j]])));
}

static void route_floor_bounds_the_divisor(void **state)
{
    (void)state;
    static const float z[2] = {-20, -21};
    i32 ids[2];
    float w[2];
    struct route_spec spec = {.kind = ROUTE_SIGMOID, .n_used = 2, .normalise = true, .scale = 1};
    spec.floor = 0.25f;
    spec.bias = NO_WEIGHT;
    route(z, 2, spec, ids, w);
    assert_true(fabs((double)w[0] * 0.25 / (1 / (1 + exp(20))) - 1) < 1e-6);
    assert_true(fabs((double)w[1] * 0.25 / (1 / (1 + exp(21))) - 1) < 1e-6);
}

static void route_groups_by_their_two_best(void **state)
{
    (void)state;
    /* Group 0 has the best expert, group 2 the best pair, group 1 the next best pair. */
    static const float z[9] = {4, -9, -9, 1, 0, 2, 3, 3, -9};
    static const i32 want[3] = {6, 7, 5};
    i32 ids[3];
    float w[3];
    route(z, 9,
          (struct route_spec){.kind = ROUTE_SIGMOID,
                              .n_used = 3,
                              .n_groups = 3,
                              .n_groups_used = 2,
                              .scale = 1,
                              .bias = NO_WEIGHT},
          ids, w);
    assert_memory_equal(ids, want, sizeof want);
    lab_close_to(w[2], 1 / (1 + exp(-2)));
}

/* Scores that are not numbers are the lowest, and no choice is ever made twice. */
static void route_of_bad_scores_is_still_distinct(void **state)
{
    (void)state;
    static const struct {
        float z[6], bias[6];
        enum route_kind kind;
        u32 groups;
        i32 want[4];
    } cases[] = {
        {{NAN, NAN, NAN, NAN, NAN, NAN}, {0}, ROUTE_SOFTMAX, 1, {0, 1, 2, 3}},
        {{1, NAN, 2, 3, 4, 5}, {0}, ROUTE_SOFTMAX, 1, {0, 1, 2, 3}}, /* the sum is NaN */
        {{1, 2, INFINITY, 3, 4, 5}, {0}, ROUTE_SOFTMAX, 1, {0, 1, 2, 3}},
        {{3e38f, -3e38f, 0, -INFINITY, 3e38f, 1}, {0}, ROUTE_SOFTMAX, 1, {0, 4, 1, 2}},
        {{NAN, -INFINITY, 5, NAN, -INFINITY, 6}, {0}, ROUTE_SIGMOID, 1, {5, 2, 1, 4}},
        {{1, 2, 3, 4, 5, 6}, {NAN, 0, NAN, INFINITY, 0, 0}, ROUTE_SIGMOID, 1, {3, 5, 4, 1}},
        {{0, 0, 0, 0, 0, 0},
         {-INFINITY, NAN, -INFINITY, NAN, 0, 0},
         ROUTE_SIGMOID,
         1,
         {4, 5, 0, 1}},
        {{NAN, 9, 1, 1, NAN, NAN}, {0}, ROUTE_SIGMOID, 3, {1, 2, 3, 0}}, /* of two groups */
        {{NAN, NAN, NAN, NAN, NAN, NAN}, {0}, ROUTE_SIGMOID, 3, {0, 1, 2, 3}},
        {{0, 0, 0, 0, 0, 0}, {INFINITY, -INFINITY, 1, 1, 2, 2}, ROUTE_SIGMOID, 3, {4, 5, 2, 3}},
    };
    for (u32 i = 0; i < ARRAY_LEN(cases); i++) {
        i32 ids[4];
        float w[4];
        u32 groups = cases[i].groups;
        if (i) {
            lab_teardown(state);
            lab_setup(state);
        }
        route(cases[i].z, 6,
              (struct route_spec){.kind = cases[i].kind,
                                  .n_used = 4,
                                  .n_groups = groups,
                                  .n_groups_used = groups > 1 ? 2 : 1,
                                  .normalise = true,
                                  .floor = 6e-5f,
                                  .scale = 1,
                                  .bias = lab_vector(6, cases[i].bias)},
              ids, w);
        if (memcmp(ids, cases[i].want, sizeof ids) != 0)
            fail_msg("case %u: %d %d %d %d", i, ids[0], ids[1], ids[2], ids[3]);
    }
}

/* ---- refusals ---- */

static void too_wide_is_refused_at_load(void **state)
{
    struct err err = {0};
    const struct exec_limits limits = {
        .max_rows = 1, .max_out = 1, .n_slots = 1, .n_blocks = 1, .block_tokens = 1, .max_pos = 1};
    static const char *const texts[3] = {"attention heads", "recurrent heads", "experts"};
    for (u32 i = 0; i < 3; i++) {
        struct operand y = lab_in(4096), ids;
        u32 kv = net_kv(lab.net, 4096, 4096), rec = net_state(lab.net, 4096u * 4096u);
        if (i == 0) y = prog_attention(lab.p, "y", kv, 1, 1, y, 1);
        if (i == 1) y = prog_wkv7(lab.p, "y", rec, 4096, y, y, y, y, y, y);
        if (i == 2)
            prog_route(lab.p, y,
                       (struct route_spec){.n_used = 1, .bias = NO_WEIGHT, .scales = NO_WEIGHT},
                       &ids, &y);
        assert_int_equal(prog_finish(lab.p, y, y, &err), 0);
        assert_int_equal(ref_exec.open(&lab.x, &ref_exec, lab.net, &limits, 1, &err), 0);
        assert_int_equal(ref_exec.load(lab.x, lab.p, &lab.handle, &err), FLETCH_E_LIMIT);
        assert_non_null(strstr(err.text, texts[i]));
        lab_teardown(state);
        lab_setup(state);
    }
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, lab_setup, lab_teardown)
    const struct CMUnitTest tests[] = {
        TEST(norm_of_every_kind),
        TEST(l2_of_nothing_is_nothing),
        TEST(matmul_of_every_writable_type),
        TEST(int8_profile_rounds_what_meets_blocks),
        TEST(int8_profile_leaves_what_meets_floats),
        TEST(matmul_heads_strides),
        TEST(experts_share_their_input),
        TEST(experts_have_an_input_each),
        TEST(combine_adds_in_rank_order),
        TEST(each_chosen_expert_adds_its_bias),
        TEST(pairwise_ops),
        TEST(activations),
        TEST(rk_bonus_by_heads),
        TEST(embed_decodes_a_row),
        TEST(gather_takes_the_rows_asked_for),
        TEST(rope_norm_turns_neighbours),
        TEST(rope_neox_turns_halves),
        TEST(rope_by_a_second_table_grows),
        TEST(route_softmax_takes_the_best_ties_to_the_lower),
        TEST(route_normalises_then_scales),
        TEST(route_bias_chooses_but_does_not_weigh),
        TEST(route_scales_the_weight_of_each_expert),
        TEST(route_floor_bounds_the_divisor),
        TEST(route_groups_by_their_two_best),
        TEST(route_of_bad_scores_is_still_distinct),
        TEST(too_wide_is_refused_at_load),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
