/* Ops that look at sequences: cache and attention, remembered rows, wkv7, and the edits that a step
 * begins with; each against a naive computation in double. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../test/lab.h"

enum { MAX_POS = 12, MAX_WIDTH = 16 };

/* What a cache of one layer should hold. */
static float keys[LAB_SLOTS][MAX_POS][MAX_WIDTH], values[LAB_SLOTS][MAX_POS][MAX_WIDTH];

struct heads {
    u32 n, n_kv, k, v;
    double scale;
    bool latent;
    u32 window;
    bool chunked;
    double cap;
    const float *sinks; /* NULL: none */
};

/* Σ softmax(scale·q·k)·v of head h over positions 0..pos. */
static double naive_attention(const struct heads *a, const float *q, u32 h, u32 slot, u32 pos,
                              u32 col)
{
    u32 g = h / (a->n / a->n_kv);
    double top = a->sinks ? (double)a->sinks[h] : -INFINITY, sum = 0, y = 0, s[MAX_POS];
    u32 first = a->window && pos >= a->window ? pos - a->window + 1 : 0;
    if (a->chunked) first = pos - pos % a->window;
    for (u32 j = first; j <= pos; j++) {
        s[j] = 0;
        for (u32 i = 0; i < a->k; i++)
            s[j] += a->scale * (double)q[h * a->k + i] * (double)keys[slot][j][g * a->k + i];
        if (a->cap > 0) s[j] = a->cap * tanh(s[j] / a->cap);
        top = fmax(top, s[j]);
    }
    if (a->sinks) sum = exp((double)a->sinks[h] - top);
    for (u32 j = first; j <= pos; j++) {
        double e = exp(s[j] - top);
        sum += e;
        y += e * (double)(a->latent ? keys[slot][j][col] : values[slot][j][g * a->v + col]);
    }
    return y / sum;
}

static void remember(struct operand k, struct operand v, u32 t, const struct row *r,
                     enum cache_type kv)
{
    float *dst[2] = {keys[r->slot][r->pos], values[r->slot][r->pos]};
    const struct operand from[2] = {k, v};
    for (u32 part = 0; part < 2; part++)
        for (u32 i = 0; i < from[part].width; i++) {
            float x = lab_at(from[part], t)[i];
            dst[part][i] = kv == CACHE_F16 ? half_to_float(half_from_float(x)) : x;
        }
}

/* Three steps over two slots, rows of both mixed. */
static const struct row steps[3][5] = {
    {{0, 0, 0, ROW_P}, {0, 2, 0, ROW_P}, {0, 0, 1, ROW_P}, {0, 0, 2, ROW_P}, {0, 2, 1, ROW_P}},
    {{0, 2, 2, ROW_P}, {0, 2, 3, ROW_P}, {0, 2, 4, ROW_P}, {0, 0, 3, ROW_P}, {0, 2, 5, ROW_P}},
    {{0, 0, 4, ROW_P}, {0, 0, 5, ROW_P}, {0, 2, 6, ROW_P}, {0, 0, 6, ROW_P}, {0, 0, 7, ROW_P}},
};

static u32 sinks_of(const struct heads *a)
{
    if (!a->sinks) return NO_WEIGHT;
    struct weight w = weight_packed("sinks", QT_F32, a->n, 1, 1);
    w.data = (const u8 *)a->sinks;
    return net_weight(lab.net, &w);
}

static void check_attention(const struct heads *a, enum cache_type kv_type)
{
    u32 k_width = a->n_kv * a->k, v_width = a->latent ? 0 : a->n_kv * a->v;
    lab.net->profile.kv = kv_type;
    u32 kv = net_kv(lab.net, k_width, v_width);
    struct operand q = lab_in(a->n * a->k), k = lab_in(k_width), v = {.buf = NO_BUF}, y;
    if (v_width) v = lab_in(v_width);
    prog_kv_store(lab.p, kv, k, v);
    y = a->latent ? prog_latent_attention(lab.p, "y", kv, a->n, a->v, q, (float)a->scale)
                  : prog_attention_by(lab.p, "y", kv, a->n, a->n_kv, q,
                                      (struct attend_spec){.scale = (float)a->scale,
                                                           .window = a->window,
                                                           .chunked = a->chunked,
                                                           .softcap = (float)a->cap,
                                                           .sinks = sinks_of(a)});
    for (u32 s = 0; s < 3; s++) {
        for (u32 t = 0; t < 5; t++) lab_row(steps[s][t].slot, steps[s][t].pos);
        lab_fill(5);
        for (u32 t = 0; t < 5; t++) remember(k, v, t, &steps[s][t], kv_type);
        lab_run(y, y);
        for (u32 t = 0; t < 5; t++)
            for (u32 i = 0; i < y.width; i++)
                lab_close_to(lab_out(y, t)[i],
                             naive_attention(a, lab_at(q, t), i / a->v, steps[s][t].slot,
                                             steps[s][t].pos, i % a->v));
    }
}

static const struct heads grouped = {.n = 6, .n_kv = 2, .k = 4, .v = 3, .scale = 1.5},
                          latent = {
                              .n = 3, .n_kv = 1, .k = 6, .v = 4, .scale = 0.75, .latent = true};

static void attention_of_grouped_heads(void **state)
{
    (void)state;
    check_attention(&grouped, CACHE_F32);
}

static void attention_reads_keys_and_values_rounded_to_f16(void **state)
{
    (void)state;
    check_attention(&grouped, CACHE_F16); /* f32 would be off by up to 5e-4, not 1e-6 */
}

static void attention_sees_its_window_only(void **state)
{
    (void)state;
    struct heads a = grouped;
    a.window = 3;
    check_attention(&a, CACHE_F32);
}

static void attention_sees_its_chunk_only(void **state)
{
    (void)state;
    struct heads a = grouped;
    a.window = 3;
    a.chunked = true;
    check_attention(&a, CACHE_F32);
}

static void scores_are_capped(void **state)
{
    (void)state;
    struct heads a = grouped;
    a.cap = 0.8;
    check_attention(&a, CACHE_F32);
}

static void sinks_are_one_more_score(void **state)
{
    (void)state;
    static const float sinks[6] = {0.5f, -2, 90, 3, -INFINITY, 0};
    struct heads a = grouped;
    a.sinks = sinks;
    check_attention(&a, CACHE_F32);
}

static void latent_attention_takes_values_from_keys(void **state)
{
    (void)state;
    check_attention(&latent, CACHE_F32);
}

static void latent_attention_in_f16(void **state)
{
    (void)state;
    check_attention(&latent, CACHE_F16);
}

static void scores_far_apart_stay_finite(void **state)
{
    (void)state;
    u32 kv = net_kv(lab.net, 1, 1);
    struct operand q = lab_in(1), k = lab_in(1), v = lab_in(1);
    prog_kv_store(lab.p, kv, k, v);
    struct operand y = prog_attention(lab.p, "y", kv, 1, 1, q, 1);
    for (u32 t = 0; t < 2; t++) {
        lab_row(0, t);
        *lab_at(q, t) = 1e4f;
        *lab_at(k, t) = t ? 1e4f : -1e4f;
        *lab_at(v, t) = (float)t + 2;
    }
    lab_run(y, y);
    assert_true(*lab_out(y, 0) == 2 && *lab_out(y, 1) == 3);
}

static void copied_blocks_are_read(void **state)
{
    (void)state;
    u32 kv = net_kv(lab.net, 1, 1), other = net_kv(lab.net, 2, 0);
    struct operand q = lab_in(1), k = lab_in(1), v = lab_in(1), c = lab_in(2);
    prog_kv_store(lab.p, kv, k, v);
    prog_kv_store(lab.p, other, c, (struct operand){.buf = NO_BUF});
    struct operand y = prog_attention(lab.p, "y", kv, 1, 1, q, 1);
    struct operand z = prog_latent_attention(lab.p, "z", other, 1, 2, c, 1);
    lab_fill(LAB_BLOCK + 1);
    for (u32 t = 0; t < LAB_BLOCK; t++) lab_row(0, t);
    lab_run(y, z);
    /* Slot 1 gets a copy of slot 0's first block and goes on as slot 0 does. */
    assert_true(
        step_edit(lab.s, EDIT_COPY_BLOCK, lab.s->tables[lab.s->table_len], lab.s->tables[0]));
    lab_row(0, LAB_BLOCK), lab_row(1, LAB_BLOCK);
    memcpy(lab_at(lab.all, 1), lab_at(lab.all, 0), lab.used * sizeof(float));
    lab_run(y, z);
    assert_true(*lab_out(y, 0) == *lab_out(y, 1));
    assert_memory_equal(lab_out(z, 0), lab_out(z, 1), 2 * sizeof(float));
    lab_row(2, LAB_BLOCK); /* slot 2 has no copy */
    memcpy(lab_at(lab.all, 0), lab_at(lab.all, 1), lab.used * sizeof(float));
    const float before = *lab_out(y, 1);
    lab_run(y, z);
    assert_true(*lab_out(y, 0) != before);
}

/* ---- recurrence ---- */

static void token_shift_follows_its_slot(void **state)
{
    (void)state;
    enum { N = 3 };
    float last[LAB_SLOTS][N] = {{0}};
    struct operand x = lab_in(N), y = prog_token_shift(lab.p, "y", x, net_state(lab.net, N));
    for (u32 s = 0; s < 3; s++) {
        for (u32 t = 0; t < 5; t++) lab_row(steps[s][t].slot, steps[s][t].pos);
        lab_fill(5);
        lab_run(y, y);
        for (u32 t = 0; t < 5; t++) {
            assert_memory_equal(lab_out(y, t), last[steps[s][t].slot], sizeof last[0]);
            memcpy(last[steps[s][t].slot], lab_at(x, t), sizeof last[0]);
        }
    }
}

enum { HEADS = 2, HEAD = 4, C = HEADS * HEAD };

struct wkv {
    struct operand r, w, k, v, kk, a, y;
};

static void record_wkv(struct wkv *m)
{
    struct operand *in[] = {&m->r, &m->w, &m->k, &m->v, &m->kk, &m->a};
    for (u32 i = 0; i < ARRAY_LEN(in); i++) *in[i] = lab_in(C);
    u32 rec = net_state(lab.net, C * HEAD);
    m->y = prog_wkv7(lab.p, "y", rec, HEAD, m->r, m->w, m->k, m->v, m->kk, m->a);
}

/* The matrix form: S ← S·(diag(w) - kk·(kk⊙a)ᵀ) + v·kᵀ, y = S·r. */
static void naive_wkv(const struct wkv *m, u32 t, double S[HEADS][HEAD][HEAD])
{
    for (u32 h = 0; h < HEADS; h++) {
        double M[HEAD][HEAD], next[HEAD][HEAD], b = 0;
#define AT(x, i) ((double)lab_at(m->x, t)[h * HEAD + (i)])
        for (u32 i = 0; i < HEAD; i++)
            for (u32 j = 0; j < HEAD; j++)
                M[i][j] = (i == j ? AT(w, i) : 0) - AT(kk, i) * AT(kk, j) * AT(a, j);
        for (u32 i = 0; i < HEAD; i++)
            for (u32 j = 0; j < HEAD; j++) {
                next[i][j] = AT(v, i) * AT(k, j);
                for (u32 l = 0; l < HEAD; l++) next[i][j] += S[h][i][l] * M[l][j];
            }
        memcpy(S[h], next, sizeof next);
        for (u32 i = 0; i < HEAD; i++, b = 0) {
            for (u32 j = 0; j < HEAD; j++) b += S[h][i][j] * AT(r, j);
            lab_close_to(lab_out(m->y, t)[h * HEAD + i], b);
        }
#undef AT
    }
}

static void wkv7_over_steps_and_slots(void **state)
{
    (void)state;
    double S[LAB_SLOTS][HEADS][HEAD][HEAD] = {{{{0}}}};
    struct wkv m;
    record_wkv(&m);
    for (u32 s = 0; s < 3; s++) {
        for (u32 t = 0; t < 5; t++) lab_row(steps[s][t].slot, steps[s][t].pos);
        lab_fill(5);
        lab_run(m.y, m.y);
        for (u32 t = 0; t < 5; t++) naive_wkv(&m, t, S[steps[s][t].slot]);
    }
}

enum { KEYS = 2, VALUES = 3, RECURRENT = 4 }; /* columns of a key and a value, heads */

struct recur {
    struct recurrence_spec spec;
    struct operand y;
};

/* Two key heads for four heads. */
static void record_recur(struct recur *m, enum recurrence_kind kind, bool tiled, bool by_column)
{
    u32 n = 2 * KEYS;
    m->spec = (struct recurrence_spec){.kind = kind,
                                       .state = net_state(lab.net, RECURRENT * KEYS * VALUES),
                                       .head = KEYS,
                                       .n_heads = RECURRENT,
                                       .tiled = tiled,
                                       .r = lab_in(n),
                                       .w = lab_in(by_column ? n : RECURRENT),
                                       .k = lab_in(n),
                                       .v = lab_in(RECURRENT * VALUES),
                                       .b = lab_in(RECURRENT)};
    m->y = prog_recurrence(lab.p, "y", m->spec);
}

/* The matrix form: S ← S·diag(w)·(1 - b·k·kᵀ) + b·v·kᵀ, without the subtraction where plain. */
static void naive_recur(const struct recur *m, u32 t, double S[RECURRENT][VALUES][KEYS])
{
    const struct recurrence_spec *s = &m->spec;
    for (u32 h = 0; h < RECURRENT; h++) {
        const float *k = lab_at(s->k, t) + KEYS * (s->tiled ? h % 2 : h / 2);
        const float *r = lab_at(s->r, t) + KEYS * (s->tiled ? h % 2 : h / 2);
        const float *w = lab_at(s->w, t), *v = lab_at(s->v, t) + h * VALUES;
        double b = (double)lab_at(s->b, t)[h];
        for (u32 i = 0; i < VALUES; i++) {
            double next[KEYS], y = 0;
            for (u32 j = 0; j < KEYS; j++) {
                next[j] = b * (double)v[i] * (double)k[j];
                for (u32 l = 0; l < KEYS; l++) {
                    u32 col = s->tiled ? h % 2 : h / 2;
                    double decay = (double)w[s->w.width == RECURRENT ? h : col * KEYS + l];
                    double m_lj =
                        (l == j) - (s->kind == RECURRENCE_DELTA) * b * (double)k[l] * (double)k[j];
                    next[j] += S[h][i][l] * decay * m_lj;
                }
            }
            memcpy(S[h][i], next, sizeof next);
            for (u32 j = 0; j < KEYS; j++) y += next[j] * (double)r[j];
            lab_close_to(lab_out(m->y, t)[h * VALUES + i], y);
        }
    }
}

static void check_recur(enum recurrence_kind kind, bool tiled, bool by_column)
{
    double S[LAB_SLOTS][RECURRENT][VALUES][KEYS] = {{{{0}}}};
    struct recur m;
    record_recur(&m, kind, tiled, by_column);
    for (u32 s = 0; s < 3; s++) {
        for (u32 t = 0; t < 5; t++) lab_row(steps[s][t].slot, steps[s][t].pos);
        lab_fill(5);
        lab_run(m.y, m.y);
        for (u32 t = 0; t < 5; t++) naive_recur(&m, t, S[steps[s][t].slot]);
    }
}

static void delta_rule_over_steps_and_slots(void **state)
{
    (void)state;
    check_recur(RECURRENCE_DELTA, false, false);
}

static void delta_rule_with_keys_in_turns_and_decay_by_column(void **state)
{
    (void)state;
    check_recur(RECURRENCE_DELTA, true, true);
}

static void plain_recurrence_over_steps_and_slots(void **state)
{
    (void)state;
    check_recur(RECURRENCE_PLAIN, false, false);
}

static void conv_sees_the_rows_before_across_steps(void **state)
{
    (void)state;
    enum { N = 3, TAPS = 4, LONGEST = 16 };
    const float *w, *b;
    u32 weight = lab_random_weight(QT_F32, N * TAPS, 1, 1, &w);
    u32 bias = lab_random_weight(QT_F32, N, 1, 1, &b), n[LAB_SLOTS] = {0};
    float seen[LAB_SLOTS][LONGEST + TAPS][N] = {{{0}}}; /* TAPS rows of zeros before */
    struct operand x = lab_in(N);
    struct operand y = prog_conv(lab.p, "y", x, net_state(lab.net, N * (TAPS - 1)), weight, bias);
    for (u32 s = 0; s < 3; s++) {
        for (u32 t = 0; t < 5; t++) lab_row(steps[s][t].slot, steps[s][t].pos);
        lab_fill(5);
        lab_run(y, y);
        for (u32 t = 0; t < 5; t++) {
            u32 slot = steps[s][t].slot, at = TAPS + n[slot]++;
            memcpy(seen[slot][at], lab_at(x, t), sizeof seen[0][0]);
            for (u32 i = 0; i < N; i++) {
                double sum = (double)b[i];
                for (u32 k = 0; k < TAPS; k++)
                    sum += (double)w[i * TAPS + k] * (double)seen[slot][at - TAPS + 1 + k][i];
                lab_close_to(lab_out(y, t)[i], sum);
            }
        }
    }
}

static void states_are_zeroed_and_copied(void **state)
{
    (void)state;
    struct wkv m;
    record_wkv(&m);
    struct operand x = lab_in(3), y = prog_token_shift(lab.p, "p", x, net_state(lab.net, 3));
    float fresh[C];
    lab_fill(1);
    lab_row(0, 0);
    lab_run(m.y, y);
    memcpy(fresh, lab_out(m.y, 0), sizeof fresh);
    lab_row(0, 1); /* the same input again: the state has moved on */
    lab_run(m.y, y);
    assert_memory_not_equal(fresh, lab_out(m.y, 0), sizeof fresh);
    assert_memory_equal(lab_out(y, 0), lab_at(x, 0), 3 * sizeof(float));
    /* Slot 2 becomes what slot 0 is now, then slot 0 begins again: in that order. */
    step_edit(lab.s, EDIT_COPY_STATE, 2, 0);
    step_edit(lab.s, EDIT_ZERO_STATE, 0, 0);
    lab_row(0, 0), lab_row(2, 2), lab_row(1, 0);
    for (u32 t = 1; t < 3; t++)
        memcpy(lab_at(lab.all, t), lab_at(lab.all, 0), lab.used * sizeof(float));
    lab_run(m.y, y);
    assert_memory_equal(fresh, lab_out(m.y, 0), sizeof fresh);
    assert_memory_equal(fresh, lab_out(m.y, 2), sizeof fresh); /* slot 1 was never used */
    assert_memory_not_equal(fresh, lab_out(m.y, 1), sizeof fresh);
    assert_memory_equal(lab_out(y, 1), lab_at(x, 0), 3 * sizeof(float));
    for (u32 i = 0; i < 3; i++) assert_true(lab_out(y, 0)[i] == 0);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, lab_setup, lab_teardown)
    const struct CMUnitTest tests[] = {
        TEST(attention_of_grouped_heads),
        TEST(attention_sees_its_window_only),
        TEST(attention_sees_its_chunk_only),
        TEST(scores_are_capped),
        TEST(sinks_are_one_more_score),
        TEST(attention_reads_keys_and_values_rounded_to_f16),
        TEST(latent_attention_takes_values_from_keys),
        TEST(latent_attention_in_f16),
        TEST(scores_far_apart_stay_finite),
        TEST(copied_blocks_are_read),
        TEST(token_shift_follows_its_slot),
        TEST(wkv7_over_steps_and_slots),
        TEST(delta_rule_over_steps_and_slots),
        TEST(delta_rule_with_keys_in_turns_and_decay_by_column),
        TEST(plain_recurrence_over_steps_and_slots),
        TEST(conv_sees_the_rows_before_across_steps),
        TEST(states_are_zeroed_and_copied),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
