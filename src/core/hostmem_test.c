#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "core/hostmem.h"

/* Weights of a bad file may give anything: it must show in what is read back, and end nothing. */
static void values_that_no_scale_holds_are_not_numbers_in_the_cache(void **state)
{
    static const float bad[] = {NAN, INFINITY, -1e30f};
    static const enum qtype types[] = {QT_Q8_0, QT_Q4_0};
    (void)state;
    for (u32 i = 0; i < ARRAY_LEN(bad) * ARRAY_LEN(types); i++) {
        struct kv_row row = {.part = {{types[i % 2], 32, 0}, {types[i % 2], 32, 64}}, .bytes = 128};
        u8 cached[128];
        float x[32] = {1, 2, 3}, y[32];
        x[17] = bad[i / 2];
        hostmem_kv_put(&row, 1, cached, 0, x, 32);
        quant_decode(types[i % 2], hostmem_kv_at(&row, 1, cached, 0), y, 32);
        for (u32 j = 0; j < 32; j++) assert_true(!isfinite(y[j]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_that_no_scale_holds_are_not_numbers_in_the_cache),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
