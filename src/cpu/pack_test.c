/* Packing is exact: every type, unpacked from its encoding, gives quant_decode's bits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cpu/pack.h"

static u64 random_state = 7;

static u32 next_random(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (u32)(random_state >> 33);
}

/* Random bytes, with scales that are numbers. */
static void fill(u8 *p, u64 n, const struct quant_info *info)
{
    for (u64 i = 0; i < n; i++) p[i] = (u8)next_random();
    if (info->blk == 1) return;
    for (u64 b = 0; b < n; b += info->bytes)
        for (u32 i = 0; i + 1 < info->bytes; i++)
            p[b + i + 1] &= 0xbb; /* no f16 exponent of ones */
}

static void every_type_survives_packing(void **state)
{
    (void)state;
    for (u32 type = 0; type < QT_COUNT; type++) {
        const struct quant_info *info = quant_info(type);
        if (!info || !info->readable) continue;
        enum { IN = 512, OUT = 37, SLICES = 2 };
        struct weight w = {.type = type, .n_in = IN, .n_out = OUT, .n_slices = SLICES};
        assert_true(quant_bytes(type, IN, &w.row_bytes));
        w.slice_bytes = w.row_bytes * OUT;
        w.n_bytes = w.slice_bytes * SLICES;
        u8 *data = malloc(w.n_bytes);
        fill(data, w.n_bytes, info);
        w.data = data;
        struct packed p;
        pack_plan(&p, &w);
        p.data = malloc(p.slice_bytes * SLICES);
        pack_tiles(&p, &w, 0, (u64)p.n_tiles * SLICES);
        for (u32 s = 0; s < SLICES; s++)
            for (u32 r = 0; r < OUT; r++) {
                float want[IN], got[IN];
                struct packed slice = p;
                slice.data = p.data + s * p.slice_bytes;
                quant_decode(type, data + s * w.slice_bytes + r * w.row_bytes, want, IN);
                pack_row(&slice, r, got);
                if (memcmp(want, got, sizeof want) != 0)
                    for (u32 i = 0; i < IN; i++)
                        if (want[i] != got[i])
                            fail_msg("%s row %u column %u: %g, not %g", info->name, r, i,
                                     (double)got[i], (double)want[i]);
            }
        free(p.data);
        free(data);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_type_survives_packing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
