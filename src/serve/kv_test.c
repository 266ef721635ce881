/* The block pool: who gets which block, and that none is ever held twice. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "serve/kv.h"

enum { N_BLOCKS = 40, BLOCK_TOKENS = 8, N_TABLES = 7 };

struct fixture {
    struct kv_pool pool;
    u32 table[N_TABLES][N_BLOCKS], n_held[N_TABLES];
};

static void open_pool(struct fixture *f)
{
    struct err err;
    *f = (struct fixture){0};
    assert_int_equal(kv_open(&f->pool, N_BLOCKS, BLOCK_TOKENS, &err), 0);
}

/* Every block is free or in one table, exactly once. */
static void check_blocks(const struct fixture *f)
{
    u32 seen[N_BLOCKS] = {0}, n = f->pool.n_free;
    for (u32 i = 0; i < f->pool.n_free; i++) seen[f->pool.free[i]]++;
    for (u32 t = 0; t < N_TABLES; t++) {
        n += f->n_held[t];
        for (u32 i = 0; i < f->n_held[t]; i++) seen[f->table[t][i]]++;
    }
    assert_int_equal(n, N_BLOCKS);
    for (u32 i = 0; i < N_BLOCKS; i++) assert_int_equal(seen[i], 1);
}

static void test_covers_whole_blocks_and_grows(void **state)
{
    (void)state;
    struct fixture f;
    open_pool(&f);
    static const struct {
        u64 n_tokens;
        u32 n_held;
    } cases[] = {{0, 0}, {1, 1}, {8, 1}, {9, 2}, {16, 2}, {17, 3}, {3, 3}, {8 * N_BLOCKS, 40}};
    u32 first = UINT32_MAX;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        assert_true(kv_cover(&f.pool, f.table[0], &f.n_held[0], cases[i].n_tokens));
        assert_int_equal(f.n_held[0], cases[i].n_held);
        check_blocks(&f);
        if (cases[i].n_held && first == UINT32_MAX) first = f.table[0][0];
        if (cases[i].n_held) assert_int_equal(f.table[0][0], first); /* growing moves nothing */
    }
    kv_close(&f.pool);
}

static void test_exhaustion_takes_nothing(void **state)
{
    (void)state;
    struct fixture f;
    open_pool(&f);
    assert_true(kv_cover(&f.pool, f.table[0], &f.n_held[0], 30 * BLOCK_TOKENS));
    assert_true(kv_cover(&f.pool, f.table[1], &f.n_held[1], 4 * BLOCK_TOKENS));
    assert_false(kv_cover(&f.pool, f.table[1], &f.n_held[1], 10 * BLOCK_TOKENS + 1));
    assert_int_equal(f.n_held[1], 4);
    assert_int_equal(f.pool.n_free, 6);
    assert_false(kv_cover(&f.pool, f.table[1], &f.n_held[1], UINT32_MAX));
    check_blocks(&f);
    assert_true(kv_cover(&f.pool, f.table[1], &f.n_held[1], 10 * BLOCK_TOKENS));
    assert_int_equal(f.pool.n_free, 0);
    kv_release(&f.pool, f.table[0], &f.n_held[0]);
    assert_int_equal(f.n_held[0], 0);
    assert_int_equal(f.pool.n_free, 30);
    check_blocks(&f);
    kv_close(&f.pool);
}

static void test_an_empty_pool_covers_nothing(void **state)
{
    (void)state;
    struct err err;
    struct kv_pool pool;
    u32 n_held = 0;
    assert_int_equal(kv_open(&pool, 0, BLOCK_TOKENS, &err), 0);
    assert_true(kv_cover(&pool, NULL, &n_held, 0));
    assert_false(kv_cover(&pool, NULL, &n_held, 1));
    kv_close(&pool);
}

static void test_random_use_keeps_every_block_once(void **state)
{
    (void)state;
    struct fixture f;
    u64 r = 1;
    u32 n_refused = 0;
    open_pool(&f);
    for (u32 i = 0; i < 20000; i++) {
        r = r * 6364136223846793005u + 1442695040888963407u;
        u32 t = (u32)(r >> 33) % N_TABLES, n_tokens = (u32)(r >> 40) % (15 * BLOCK_TOKENS);
        u32 held = f.n_held[t], n_free = f.pool.n_free;
        u32 need = (n_tokens + BLOCK_TOKENS - 1) / BLOCK_TOKENS;
        if ((r >> 60) == 0) {
            kv_release(&f.pool, f.table[t], &f.n_held[t]);
        } else if (kv_cover(&f.pool, f.table[t], &f.n_held[t], n_tokens)) {
            assert_int_equal(f.n_held[t], MAX(held, need));
        } else {
            n_refused++;
            assert_true(need - held > n_free && f.n_held[t] == held && f.pool.n_free == n_free);
        }
        check_blocks(&f);
    }
    assert_true(n_refused > 100); /* the stress did reach the end of the pool */
    kv_close(&f.pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_covers_whole_blocks_and_grows),
        cmocka_unit_test(test_exhaustion_takes_nothing),
        cmocka_unit_test(test_an_empty_pool_covers_nothing),
        cmocka_unit_test(test_random_use_keeps_every_block_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
