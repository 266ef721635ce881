/* Our exp, log, sigmoid, tanh, sin and cos against libm's in double, and at the edges. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "base/num.h"

static float from_bits(u32 u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static u32 to_bits(float f)
{
    u32 u;
    memcpy(&u, &f, sizeof u);
    return u;
}

/* |got - want| in units of the last place that want has as a normal float. */
static double ulps(float got, double want)
{
    int e;
    frexp(want, &e);
    return fabs((double)got - want) / ldexp(1.0, (e < -125 ? -125 : e) - FLT_MANT_DIG);
}

/* Every step-th float of [from, to], both of one sign, against f. */
static double worst_ulps(float from, float to, u32 step, float (*ours)(float), double (*f)(double))
{
    u32 a = to_bits(from), b = to_bits(to);
    double worst = 0;
    for (u32 u = a < b ? a : b; u <= (a < b ? b : a); u += step) {
        float x = from_bits(u);
        double d = ulps(ours(x), f((double)x));
        if (!(d <= worst)) worst = d;
    }
    return worst;
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static void exp_is_within_one_ulp(void **state)
{
    (void)state;
    assert_true(worst_ulps(0, 88.72f, 2003, num_exp, exp) <= 1);
    assert_true(worst_ulps(-0.0f, -87.33f, 2003, num_exp, exp) <= 1);
}

static void log_is_within_one_ulp(void **state)
{
    (void)state;
    assert_true(worst_ulps(FLT_MIN, FLT_MAX, 2003, num_log, log) <= 1);
    assert_true(worst_ulps(0.9f, 1.1f, 5, num_log, log) <= 1); /* where the result cancels */
}

static void sigmoid_and_tanh_are_within_a_few_ulps(void **state)
{
    (void)state;
    assert_true(worst_ulps(0, 100, 2003, num_sigmoid, sigmoid) <= 2);
    assert_true(worst_ulps(-0.0f, -87, 2003, num_sigmoid, sigmoid) <= 3);
    assert_true(worst_ulps(0, 100, 2003, num_tanh, tanh) <= 3);
    assert_true(worst_ulps(0.24f, 0.26f, 3, num_tanh, tanh) <= 3); /* where the formula changes */
}

static double softplus(double x)
{
    return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
}

static void softplus_is_within_a_few_ulps(void **state)
{
    (void)state;
    assert_true(worst_ulps(0, 100, 2003, num_softplus, softplus) <= 3);
    assert_true(worst_ulps(-0.0f, -87, 2003, num_softplus, softplus) <= 3);
    assert_true(num_softplus(1e30f) == 1e30f && num_softplus(-1e30f) == 0);
    assert_true(isnan(num_softplus(NAN)) && num_softplus(INFINITY) == INFINITY);
}

static void tanh_is_odd(void **state)
{
    (void)state;
    for (float x = 1e-30f; x < 30; x *= 1.37f) assert_true(num_tanh(-x) == -num_tanh(x));
    assert_true(num_tanh(-0.0f) == 0);
}

static void exp_at_the_edges(void **state)
{
    (void)state;
    assert_true(num_exp(0) == 1 && num_exp(-0.0f) == 1);
    assert_true(num_exp(INFINITY) == INFINITY && num_exp(-INFINITY) == 0);
    assert_true(isnan(num_exp(NAN)));
    float top = 88.7228317f; /* the last float whose exp is one */
    assert_true(ulps(num_exp(top), exp((double)top)) <= 1 &&
                num_exp(nextafterf(top, 89)) == INFINITY);
    assert_true(num_exp(-87.3365402f) >= FLT_MIN && num_exp(nextafterf(-87.3365402f, -88)) == 0);
    assert_true(num_exp(1e-40f) == 1 && num_exp(FLT_MAX) == INFINITY && num_exp(-FLT_MAX) == 0);
}

static void log_at_the_edges(void **state)
{
    (void)state;
    assert_true(num_log(1) == 0 && !signbit(num_log(1)));
    assert_true(num_log(0) == -INFINITY && num_log(-0.0f) == -INFINITY);
    assert_true(num_log(INFINITY) == INFINITY);
    assert_true(isnan(num_log(-1)) && isnan(num_log(-INFINITY)) && isnan(num_log(NAN)));
    assert_true(ulps(num_log(1e-45f), log((double)1e-45f)) <= 1); /* the smallest subnormal */
    assert_true(ulps(num_log(1e-40f), log((double)1e-40f)) <= 1);
}

static void sigmoid_and_tanh_at_the_edges(void **state)
{
    (void)state;
    assert_true(num_sigmoid(0) == 0.5f);
    assert_true(num_sigmoid(INFINITY) == 1 && num_sigmoid(-INFINITY) == 0);
    assert_true(num_sigmoid(200) == 1 && num_sigmoid(-200) == 0 && isnan(num_sigmoid(NAN)));
    assert_true(num_tanh(INFINITY) == 1 && num_tanh(-INFINITY) == -1 && isnan(num_tanh(NAN)));
    assert_true(num_tanh(1e-40f) == 1e-40f && num_tanh(50) == 1);
}

static double sincos_error(double x)
{
    double s, c;
    num_sincos(x, &s, &c);
    return fmax(fabs(s - sin(x)), fabs(c - cos(x)));
}

static void sincos_is_within_1e_15(void **state)
{
    (void)state;
    double worst = 0;
    for (int i = -400000; i < 400000; i++) worst = fmax(worst, sincos_error(i * 1e-4 + 1e-9));
    for (double x = 1; x < 1073741824.0; x *= 1.00007) worst = fmax(worst, sincos_error(x));
    for (int i = 0; i < 400000; i++) /* whole multiples of π/2, where one of them vanishes */
        worst = fmax(worst, sincos_error(1.57079632679489661923 * (i * 1709.0)));
    for (u32 p = 0; p < 200000; p++) worst = fmax(worst, sincos_error((double)(p * 5000u)));
    assert_true(worst < 1e-15);
}

static void sincos_of_zero_is_exact(void **state)
{
    (void)state;
    double s, c;
    num_sincos(0, &s, &c);
    assert_true(s == 0 && c == 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exp_is_within_one_ulp),
        cmocka_unit_test(log_is_within_one_ulp),
        cmocka_unit_test(sigmoid_and_tanh_are_within_a_few_ulps),
        cmocka_unit_test(softplus_is_within_a_few_ulps),
        cmocka_unit_test(tanh_is_odd),
        cmocka_unit_test(exp_at_the_edges),
        cmocka_unit_test(log_at_the_edges),
        cmocka_unit_test(sigmoid_and_tanh_at_the_edges),
        cmocka_unit_test(sincos_is_within_1e_15),
        cmocka_unit_test(sincos_of_zero_is_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
