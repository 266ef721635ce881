/* Rotary tables against the formulas, written out a second time. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "model/rope.h"

static struct net *net;
static struct source *s;
static struct err err;
static struct hparams hp;

static int setup(void **state)
{
    (void)state;
    hp = (struct hparams){.n_rot = 32,
                          .rope_base = 10000,
                          .rope_factor = 1,
                          .rope_attn_factor = 1,
                          .rope_ctx = 4096,
                          .yarn_fast = 32,
                          .yarn_slow = 1};
    return net_open(&net, &err) || source_new(&s, "rope", &err);
}

static int teardown(void **state)
{
    (void)state;
    net_close(net);
    source_close(s);
    return 0;
}

static void fill(void)
{
    if (rope_fill(net, &hp, s, &err)) fail_msg("%s", err.text);
    assert_int_equal(net->rope[0].n_rot, hp.n_rot);
}

static void near(double got, double want)
{
    if (!(fabs(got - want) <= 1e-12 * fabs(want))) fail_msg("%.15g, not %.15g", got, want);
}

static void plain_frequencies_fall_by_powers(void **state)
{
    (void)state;
    fill();
    for (u32 i = 0; i < 16; i++) near(net->rope[0].freq[i], exp(-log(10000) * i / 16));
    near(net->rope[0].freq[8], 0.01);
    assert_true(net->rope[0].mscale == 1);
}

static void linear_scaling_divides_all(void **state)
{
    (void)state;
    hp.rope_scaling = SCALING_LINEAR;
    hp.rope_factor = 4;
    fill();
    for (u32 i = 0; i < 16; i++) near(net->rope[0].freq[i], exp(-log(10000) * i / 16) / 4);
    assert_true(net->rope[0].mscale == 1);
}

static void no_scaling_ignores_the_factor(void **state)
{
    (void)state;
    hp.rope_scaling = SCALING_NONE;
    hp.rope_factor = 4;
    fill();
    assert_true(net->rope[0].freq[0] == 1 && net->rope[0].mscale == 1);
}

/* With 32 dimensions, base 10^4 and 4096 positions: c(β) = 32·ln(4096/(2πβ))/(2·ln 10^4), so
 * c(32) = 5.2369..., lo = 5; c(1) = 11.257..., hi = 12. */
static void yarn_ramps_between_its_corners(void **state)
{
    (void)state;
    hp.rope_scaling = SCALING_YARN;
    hp.rope_factor = 8;
    hp.rope_attn_factor = 0.5f;
    fill();
    for (u32 i = 0; i < 16; i++) {
        double kept = i <= 5 ? 1 : i >= 12 ? 0 : (12.0 - i) / 7;
        near(net->rope[0].freq[i], pow(10000, -(double)i / 16) * (kept + (1 - kept) / 8));
    }
    near(net->rope[0].mscale, 0.5 * (1 + 0.1 * 2.0794415416798357)); /* ln 8 */
}

static void yarn_corners_stay_within_the_pairs(void **state)
{
    (void)state;
    hp.rope_scaling = SCALING_YARN;
    hp.rope_factor = 2;
    hp.rope_ctx = 64; /* c(32) is negative: lo = 0; c(1) = 4.03..., hi = 5 */
    fill();
    for (u32 i = 0; i < 16; i++) {
        double kept = i >= 5 ? 0 : 1 - i / 5.0;
        near(net->rope[0].freq[i], pow(10000, -(double)i / 16) * (kept + (1 - kept) / 2));
    }
}

static void add_factors(const char *name, enum qtype type, u64 n, const void *data)
{
    struct tensor t = {
        .name = str_of(name), .type = type, .n_dims = 1, .ne = {n, 1, 1, 1}, .data = data};
    assert_int_equal(source_add_tensor(s, &t, &err), 0);
}

static void add_freqs(enum qtype type, u64 n, const void *data)
{
    add_factors("rope_freqs.weight", type, n, data);
}

static void rope_freqs_divide_each(void **state)
{
    (void)state;
    static const float factors[4] = {1, 2, 4, 8};
    hp.n_rot = 8;
    add_freqs(QT_F32, 4, factors);
    fill();
    for (u32 i = 0; i < 4; i++)
        near(net->rope[0].freq[i], pow(10, -(double)i) / (double)factors[i]);
}

static void rope_freqs_may_be_halves(void **state)
{
    (void)state;
    static const u16 factors[2] = {0x3c00, 0x4200}; /* 1, 3 */
    hp.n_rot = 4;
    add_freqs(QT_F16, 2, factors);
    fill();
    near(net->rope[0].freq[1], 0.01 / 3);
}

static void bad_rope_freqs_are_refused(void **state)
{
    static const float bad[][2] = {{1, 0}, {1, -2}, {1, NAN}, {INFINITY, 1}, {1, 1e-30f}};
    for (size_t i = 0; i <= ARRAY_LEN(bad); i++) {
        hp.n_rot = 4;
        if (i < ARRAY_LEN(bad))
            add_freqs(QT_F32, 2, bad[i]);
        else
            add_freqs(QT_F32, 1, bad[0]); /* too few */
        assert_int_equal(rope_fill(net, &hp, s, &err), FLETCH_E_FORMAT);
        assert_non_null(strstr(err.text, "rope_freqs.weight"));
        teardown(state);
        setup(state);
    }
}

static void longrope_has_two_tables(void **state)
{
    (void)state;
    static const float factors[2][2] = {{1, 2}, {3, 8}};
    hp.n_rot = 4;
    hp.rope_scaling = SCALING_LONGROPE;
    hp.rope_attn_factor = 1.25f;
    add_factors("rope_factors_short.weight", QT_F32, 2, factors[0]);
    assert_int_equal(rope_fill(net, &hp, s, &err), FLETCH_E_FORMAT);
    assert_non_null(strstr(err.text, "'rope_factors_long.weight' is missing"));
    add_factors("rope_factors_long.weight", QT_F32, 2, factors[1]);
    fill();
    near(rope_freq(&net->rope[0], 4096)[1], 0.01 / 2);
    near(rope_freq(&net->rope[0], 4097)[1], 0.01 / 8);
    near(rope_freq(&net->rope[0], 4097)[0], 1.0 / 3);
    near(net->rope[0].mscale, 1.25);
}

static void frequencies_without_bound_are_refused(void **state)
{
    (void)state;
    hp.rope_scaling = SCALING_LINEAR;
    hp.rope_factor = 1e-30f;
    assert_int_equal(rope_fill(net, &hp, s, &err), FLETCH_E_FORMAT);
    assert_non_null(strstr(err.text, "rope.scaling.factor"));
}

static void a_model_without_rotation_has_no_table(void **state)
{
    (void)state;
    hp.n_rot = 0;
    fill();
    assert_null(net->rope[0].freq);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(plain_frequencies_fall_by_powers),
        TEST(linear_scaling_divides_all),
        TEST(no_scaling_ignores_the_factor),
        TEST(yarn_ramps_between_its_corners),
        TEST(yarn_corners_stay_within_the_pairs),
        TEST(rope_freqs_divide_each),
        TEST(rope_freqs_may_be_halves),
        TEST(bad_rope_freqs_are_refused),
        TEST(longrope_has_two_tables),
        TEST(frequencies_without_bound_are_refused),
        TEST(a_model_without_rotation_has_no_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
