/* Row and head kernels of every instruction set that runs here: the same bits as plain C, and near
 * what the definition says. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/num.h"
#include "cpu/kernels.h"

#define ISA_NAME(isa) #isa,
static const char *const isas[] = {CPU_ISAS(ISA_NAME)};

/* The kernels of isas[i], NULL when this machine has not got them. */
static const struct row_kernels *kernels(size_t i)
{
    const struct cpu_kernels *k = kernels_find(isas[i]);
    return k ? k->rows : NULL;
}

static const struct row_kernels *plain(void)
{
    return kernels_find("generic")->rows;
}

static u64 random_state = 11;

static void fill(float *p, size_t n, float scale)
{
    for (size_t i = 0; i < n; i++) {
        random_state = random_state * 6364136223846793005u + 1442695040888963407u;
        p[i] = (float)(i32)(random_state >> 32) * 0x1p-31f * scale;
    }
}

/* Odd sizes, so that vectors end part-filled. */
enum { N = 77, GROUP = 11 };

static void norms_are_equal_on_every_instruction_set(void **state)
{
    (void)state;
    float x[N], w[N], b[N], want[N], got[N];
    fill(x, N, 3);
    fill(w, N, 1);
    fill(b, N, 1);
    for (enum norm_kind kind = NORM_RMS; kind <= NORM_L2; kind++)
        for (size_t i = 0; i < ARRAY_LEN(isas); i++) {
            if (!kernels(i)) continue;
            plain()->norm(want, x, w, b, N, N, kind, GROUP, 1e-5f);
            kernels(i)->norm(got, x, w, b, N, N, kind, GROUP, 1e-5f);
            assert_memory_equal(got, want, sizeof want);
        }
}

static void weights_of_logits_are_those_of_the_definition(void **state)
{
    (void)state;
    float z[16 * N + 5];
    const u32 n = ARRAY_LEN(z);
    fill(z, n, 60); /* some too far from the best to count */
    z[3] = -INFINITY;
    for (size_t i = 0; i < ARRAY_LEN(isas); i++)
        if (kernels(i)) assert_true(kernels(i)->weigh(z, n, 60) == sample_weigh(z, n, 60));
}

/* Squares of such values don't fit f32. */
static void norms_of_huge_values_are_finite(void **state)
{
    (void)state;
    float x[N], y[N], want[N], small[N];
    fill(small, N, 1);
    for (u32 i = 0; i < N; i++) x[i] = small[i] * 0x1p100f;
    for (size_t i = 0; i < ARRAY_LEN(isas); i++)
        for (enum norm_kind kind = NORM_RMS; kind <= NORM_L2 && kernels(i); kind++) {
            kernels(i)->norm(want, small, NULL, NULL, N, N, kind, N, 1e-12f);
            kernels(i)->norm(y, x, NULL, NULL, N, N, kind, N, 1e-12f);
            for (u32 j = 0; j < N; j++) assert_true(fabsf(y[j] - want[j]) < 1e-6f);
        }
}

static void gates_are_equal_on_every_instruction_set(void **state)
{
    (void)state;
    float x[N], u[N], got[N];
    fill(x, N, 3);
    fill(u, N, 1);
    for (size_t i = 0; i < ARRAY_LEN(isas); i++) {
        if (!kernels(i)) continue;
        kernels(i)->glu(got, x, u, N, &(struct op){.kind = OP_GLU});
        for (u32 j = 0; j < N; j++) assert_true(got[j] == x[j] * num_sigmoid(x[j]) * u[j]);
    }
}

static float act_of(enum act_kind kind, float x)
{
    switch (kind) {
    case ACT_TANH: return num_tanh(x);
    case ACT_SIGMOID: return num_sigmoid(x);
    case ACT_RELU2: return x > 0 ? x * x : 0;
    case ACT_DECAY: return num_exp(-0.606530660f * num_sigmoid(x));
    case ACT_SILU: return x * num_sigmoid(x);
    case ACT_EXP: return num_exp(x);
    case ACT_SOFTPLUS: return num_softplus(x);
    }
    return 0;
}

/* Small, middling and large arguments of both signs, and zeros. */
static void acts_are_those_of_num_on_every_instruction_set(void **state)
{
    (void)state;
    float x[N], want[N], got[N];
    fill(x, N, 1);
    for (u32 i = 0; i < N; i++) x[i] *= i % 3 == 0 ? 0.3f : i % 3 == 1 ? 4 : 120;
    x[5] = 0;
    x[6] = -0.0f;
    for (enum act_kind kind = ACT_TANH; kind <= ACT_SOFTPLUS; kind++)
        for (size_t i = 0; i < ARRAY_LEN(isas); i++) {
            if (!kernels(i)) continue;
            for (u32 j = 0; j < N; j++) want[j] = act_of(kind, x[j]);
            kernels(i)->act(got, x, N, kind);
            assert_memory_equal(got, want, sizeof want);
        }
}

static void lerps_are_equal_on_every_instruction_set(void **state)
{
    (void)state;
    float a[N], b[N], m[N], want[N], got[N];
    fill(a, N, 1);
    fill(b, N, 1);
    fill(m, N, 1);
    for (u32 j = 0; j < N; j++) want[j] = a[j] + (b[j] - a[j]) * m[j];
    for (size_t i = 0; i < ARRAY_LEN(isas); i++) {
        if (!kernels(i)) continue;
        kernels(i)->lerp(got, a, b, m, N);
        assert_memory_equal(got, want, sizeof want);
    }
}

/* ---- attention ---- */

enum { KW = 40, VW = 24, STATE = STATE_VALUE + 32, TOKENS = 70, QUERIES = 19, SCALE = 3 };

static u32 seen_by(u32 query)
{
    return TOKENS - 2 * query; /* every query sees another number of tokens */
}

/* `at_once` queries over all tokens in blocks of 32; tokens from `cut` on are gathered apart and
 * merged. y is [QUERIES][VW]. */
static void attend_all(const struct attention_kernels *k, enum qtype type, const float *q,
                       const u8 *kv, u32 at_once, u32 cut, float *y)
{
    _Alignas(64) float kt[48 * BLOCK], vf[32 * BLOCK], states[2][QUERIES][STATE] = {0};
    size_t size = type == QT_F16 ? 2 : 4, stride = (KW + VW) * size;
    struct cpu_query queries[QUERIES];
    for (u32 i = 0; i < QUERIES; i++) states[0][i][0] = states[1][i][0] = -INFINITY;
    for (u32 t = 0; t < TOKENS; t += BLOCK) {
        struct cpu_kv b = {.k = kv + t * stride,
                           .v = kv + t * stride + KW * size,
                           .stride = stride,
                           .n_tokens = MIN((u32)BLOCK, TOKENS - t),
                           .k_width = KW,
                           .v_width = VW,
                           .type = type,
                           .v_type = type,
                           .kt = kt,
                           .vf = vf};
        k->unpack(&b);
        u32 n = 0;
        for (u32 i = 0; i < QUERIES; i++)
            if (seen_by(i) > t)
                queries[n++] = (struct cpu_query){q + (size_t)i * KW, states[t >= cut][i], 0,
                                                  MIN((u32)BLOCK, seen_by(i) - t)};
        for (u32 i = 0; i < n; i += at_once)
            k->attend(&b, queries + i, MIN(at_once, n - i), 0.1f * (float)SCALE);
    }
    for (u32 i = 0; i < QUERIES; i++) {
        k->merge(states[0][i], states[1][i], VW);
        k->finish(y + (size_t)i * VW, states[0][i], VW, -INFINITY);
    }
}

static const struct attention_kernels *attention(const char *isa)
{
    const struct cpu_kernels *k = kernels_find(isa);
    return k ? k->attention : NULL;
}

static void check_softmax(const float *q, const float *kv, const float *want, double tolerance)
{
    for (u32 i = 0; i < QUERIES; i++) {
        double p[TOKENS], sum = 0, y[VW] = {0};
        for (u32 t = 0; t < seen_by(i); t++) {
            double s = 0;
            for (u32 j = 0; j < KW; j++) s += (double)q[i * KW + j] * (double)kv[t * (KW + VW) + j];
            sum += p[t] = exp(s * (double)(0.1f * (float)SCALE));
        }
        for (u32 t = 0; t < seen_by(i); t++)
            for (u32 j = 0; j < VW; j++) y[j] += p[t] / sum * (double)kv[t * (KW + VW) + KW + j];
        for (u32 j = 0; j < VW; j++) assert_true(fabs((double)want[i * VW + j] - y[j]) < tolerance);
    }
}

static void attention_is_softmax_on_every_instruction_set(void **state)
{
    (void)state;
    float kv[TOKENS * (KW + VW)], q[QUERIES * KW], want[QUERIES * VW], got[QUERIES * VW];
    u16 half[TOKENS * (KW + VW)];
    fill(kv, ARRAY_LEN(kv), 2);
    fill(q, ARRAY_LEN(q), 2 * SCALE); /* tops move: scores grow beyond e⁸ of each other */
    for (u32 i = 0; i < ARRAY_LEN(half); i++) {
        half[i] = half_from_float(kv[i]);
        kv[i] = half_to_float(half[i]);
    }
    attend_all(attention("generic"), QT_F32, q, (const u8 *)kv, QUERIES, TOKENS, want);
    check_softmax(q, kv, want, 2e-5);
    for (size_t i = 0; i < ARRAY_LEN(isas); i++)
        for (u32 at_once = 1; at_once <= QUERIES && attention(isas[i]); at_once++) {
            attend_all(attention(isas[i]), QT_F32, q, (const u8 *)kv, at_once, TOKENS, got);
            assert_memory_equal(got, want, sizeof got);
            attend_all(attention(isas[i]), QT_F16, q, (const u8 *)half, at_once, TOKENS, got);
            assert_memory_equal(got, want, sizeof got);
        }
    for (size_t i = 0; i < ARRAY_LEN(isas); i++) { /* in two splits: near, and equal everywhere */
        float first[QUERIES * VW];
        if (!attention(isas[i])) continue;
        attend_all(attention("generic"), QT_F16, q, (const u8 *)half, 3, BLOCK, first);
        attend_all(attention(isas[i]), QT_F16, q, (const u8 *)half, 5, BLOCK, got);
        assert_memory_equal(got, first, sizeof got);
        for (u32 j = 0; j < ARRAY_LEN(got); j++) assert_true(fabsf(got[j] - want[j]) < 1e-5f);
    }
}

/* Queries [first, QUERIES) on matrix units. */
static void attend_all_on_tiles(const struct attention_kernels *k, const float *q, const u8 *kv,
                                u32 first, float *y)
{
    enum { PADDED = 32, WIDE = 64 }; /* queries and keys in whole tiles */
    _Alignas(64) float kt[48 * BLOCK], vf[32 * BLOCK], states[PADDED][STATE] = {0};
    _Alignas(64) u16 kb[2 * WIDE * BLOCK], vb[2 * 32 * BLOCK], qb[2][2 * WIDE * TILE] = {0};
    size_t stride = (KW + VW) * sizeof(u16);
    struct cpu_query queries[QUERIES];
    u32 n = QUERIES - first;
    for (u32 i = 0; i < n; i++) {
        states[i][0] = -INFINITY;
        k->split_query(qb[i / TILE], i % TILE, q + (size_t)(first + i) * KW, KW,
                       0.1f * (float)SCALE);
    }
    for (u32 t = 0; t < TOKENS; t += BLOCK) {
        struct cpu_kv b = {.k = kv + t * stride,
                           .v = kv + t * stride + KW * sizeof(u16),
                           .stride = stride,
                           .n_tokens = MIN((u32)BLOCK, TOKENS - t),
                           .k_width = KW,
                           .v_width = VW,
                           .type = QT_F16,
                           .v_type = QT_F16,
                           .kt = kt,
                           .vf = vf,
                           .kb = kb,
                           .vb = vb};
        k->unpack(&b);
        k->split_cached(&b);
        for (u32 i = 0; i < n; i++) {
            u32 seen = seen_by(first + i);
            queries[i] = (struct cpu_query){NULL, states[i], 0, seen > t ? MIN(32u, seen - t) : 0};
        }
        k->attend_tiles(&b, queries, qb[0], n);
    }
    for (u32 i = 0; i < n; i++) k->finish(y + (size_t)i * VW, states[i], VW, -INFINITY);
}

static void attention_on_tiles_is_softmax_on_every_instruction_set(void **state)
{
    (void)state;
    float kv[TOKENS * (KW + VW)], q[QUERIES * KW], want[QUERIES * VW], got[QUERIES * VW];
    u16 half[TOKENS * (KW + VW)];
    fill(kv, ARRAY_LEN(kv), 2);
    fill(q, ARRAY_LEN(q), 2 * SCALE);
    for (u32 i = 0; i < ARRAY_LEN(half); i++) {
        half[i] = half_from_float(kv[i]);
        kv[i] = half_to_float(half[i]);
    }
    attend_all_on_tiles(attention("generic"), q, (const u8 *)half, 0, want);
    check_softmax(q, kv, want, 4e-5);
    for (size_t i = 0; i < ARRAY_LEN(isas); i++)
        for (u32 first = 0; first < QUERIES && attention(isas[i]); first++) {
            attend_all_on_tiles(attention(isas[i]), q, (const u8 *)half, first, got);
            assert_memory_equal(got, want + first * VW, (QUERIES - first) * VW * sizeof *got);
        }
}

/* ---- recurrence ---- */

static void recurrence_is_equal_on_every_instruction_set(void **state)
{
    (void)state;
    enum { HEAD = 20 }; /* a part-filled second vector */
    float in[6][HEAD], start[HEAD * HEAD], want_S[HEAD * HEAD], want[HEAD], S[HEAD * HEAD], y[HEAD];
    const float *ins[6];
    fill(start, ARRAY_LEN(start), 1);
    for (u32 i = 0; i < 6; i++) {
        fill(in[i], HEAD, 0.7f);
        ins[i] = in[i];
    }
    memcpy(want_S, start, sizeof want_S);
    plain()->wkv7(want_S, want, ins, HEAD);
    for (u32 i = 0; i < HEAD; i++) { /* the definition, with S transposed */
        double sa = 0, out = 0;
        for (u32 j = 0; j < HEAD; j++) sa -= (double)start[j * HEAD + i] * (double)in[4][j];
        for (u32 j = 0; j < HEAD; j++)
            out +=
                ((double)start[j * HEAD + i] * (double)in[1][j] +
                 (double)in[3][i] * (double)in[2][j] + sa * (double)in[4][j] * (double)in[5][j]) *
                (double)in[0][j];
        assert_true(fabs(out - (double)want[i]) < 1e-5);
    }
    for (size_t i = 0; i < ARRAY_LEN(isas); i++) {
        if (!kernels(i)) continue;
        memcpy(S, start, sizeof S);
        kernels(i)->wkv7(S, y, ins, HEAD);
        assert_memory_equal(y, want, sizeof y);
        assert_memory_equal(S, want_S, sizeof S);
    }
}

/* The kinds that remove nothing, keys of another width than values; the definition is in
 * ref_seq_test.c, whose results op_test compares with these. */
static void other_recurrences_are_equal_on_every_instruction_set(void **state)
{
    (void)state;
    enum { KEY = 16, VALUE = 77 };
    float r[KEY], w[KEY], k[KEY], v[VALUE], start[KEY * VALUE], S[2][KEY * VALUE], y[2][VALUE];
    fill(r, KEY, 1), fill(w, KEY, 0.7f), fill(k, KEY, 0.5f), fill(v, VALUE, 1);
    fill(start, ARRAY_LEN(start), 1);
    for (u32 form = 0; form < 4; form++) {
        const struct cpu_recurrence x = {.r = r,
                                         .w = w,
                                         .k = k,
                                         .v = v,
                                         .head_decay = form % 2,
                                         .delta = form / 2,
                                         .b = 0.6f,
                                         .n = KEY,
                                         .m = VALUE};
        memcpy(S[0], start, sizeof start);
        plain()->recurrence(S[0], y[0], &x);
        for (size_t i = 0; i < ARRAY_LEN(isas); i++) {
            if (!kernels(i)) continue;
            memcpy(S[1], start, sizeof start);
            kernels(i)->recurrence(S[1], y[1], &x);
            assert_memory_equal(y[1], y[0], sizeof y[0]);
            assert_memory_equal(S[1], S[0], sizeof S[0]);
        }
    }
}

static void convolutions_are_equal_on_every_instruction_set(void **state)
{
    (void)state;
    enum { TAPS = 3 };
    float x[TAPS][N], w[TAPS * N], b[N], want[N], got[N];
    const float *rows[TAPS];
    fill(w, ARRAY_LEN(w), 1), fill(b, N, 1);
    for (u32 i = 0; i < TAPS; i++) fill(x[i], N, 1), rows[i] = x[i];
    plain()->conv(want, rows, TAPS, w, N, b, N);
    for (size_t i = 0; i < ARRAY_LEN(isas); i++) {
        if (!kernels(i)) continue;
        kernels(i)->conv(got, rows, TAPS, w, N, b, N);
        assert_memory_equal(got, want, sizeof want);
    }
}

static void bonus_is_equal_on_every_instruction_set(void **state)
{
    (void)state;
    float x[5][N], want[N], got[N];
    double sum = 0;
    for (u32 i = 0; i < 5; i++) fill(x[i], N, 1);
    const float *in[] = {x[0], x[1], x[2], x[3]};
    plain()->rk_bonus(want, x[4], in, N);
    for (u32 j = 0; j < N; j++) sum += (double)x[0][j] * (double)x[1][j] * (double)x[2][j];
    for (u32 j = 0; j < N; j++)
        assert_true(fabs((double)want[j] - ((double)x[4][j] + sum * (double)x[3][j])) < 1e-5);
    for (size_t i = 0; i < ARRAY_LEN(isas); i++) {
        if (!kernels(i)) continue;
        kernels(i)->rk_bonus(got, x[4], in, N);
        assert_memory_equal(got, want, sizeof want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norms_are_equal_on_every_instruction_set),
        cmocka_unit_test(norms_of_huge_values_are_finite),
        cmocka_unit_test(weights_of_logits_are_those_of_the_definition),
        cmocka_unit_test(gates_are_equal_on_every_instruction_set),
        cmocka_unit_test(acts_are_those_of_num_on_every_instruction_set),
        cmocka_unit_test(lerps_are_equal_on_every_instruction_set),
        cmocka_unit_test(attention_is_softmax_on_every_instruction_set),
        cmocka_unit_test(attention_on_tiles_is_softmax_on_every_instruction_set),
        cmocka_unit_test(recurrence_is_equal_on_every_instruction_set),
        cmocka_unit_test(other_recurrences_are_equal_on_every_instruction_set),
        cmocka_unit_test(convolutions_are_equal_on_every_instruction_set),
        cmocka_unit_test(bonus_is_equal_on_every_instruction_set),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
