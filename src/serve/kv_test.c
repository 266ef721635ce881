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

/* ---- sharing ---- */

static void fill(i32 *tokens, u32 n, i32 seed)
{
    for (u32 i = 0; i < n; i++) tokens[i] = seed + (i32)(i % 50);
}

static void publish_all(struct fixture *f, u32 t, const i32 *tokens, u32 n)
{
    assert_true(kv_cover(&f->pool, f->table[t], &f->n_held[t], n));
    for (u32 i = 0; i < n / BLOCK_TOKENS; i++)
        kv_publish(&f->pool, 0, f->table[t], i, tokens + i * BLOCK_TOKENS);
}

static void check_pool(const struct fixture *f)
{
    const u32 *tables[N_TABLES];
    for (u32 t = 0; t < N_TABLES; t++) tables[t] = f->table[t];
    kv_check(&f->pool, tables, f->n_held, N_TABLES);
}

static void test_full_blocks_are_found_by_their_tokens(void **state)
{
    (void)state;
    struct fixture f;
    i32 a[100], b[100];
    open_pool(&f);
    fill(a, 100, 0);
    fill(b, 100, 0);
    publish_all(&f, 0, a, 36); /* four whole blocks and a half */
    assert_int_equal(kv_match(&f.pool, 0, b, 100, f.table[1], &f.n_held[1]), 32);
    assert_memory_equal(f.table[0], f.table[1], 4 * sizeof(u32));
    check_pool(&f);
    /* the last token is never taken from the cache */
    assert_int_equal(kv_match(&f.pool, 0, b, 32, f.table[2], &f.n_held[2]), 24);
    assert_int_equal(kv_match(&f.pool, 0, b, 8, f.table[3], &f.n_held[3]), 0);
    b[9]++; /* in the second block */
    assert_int_equal(kv_match(&f.pool, 0, b, 100, f.table[4], &f.n_held[4]), 8);
    /* the same tokens behind others are not the same */
    assert_int_equal(kv_match(&f.pool, 0, a + 8, 50, f.table[5], &f.n_held[5]), 0);
    /* nor are those of another salt */
    assert_int_equal(kv_match(&f.pool, 1, a, 100, f.table[5], &f.n_held[5]), 0);
    check_pool(&f);
    for (u32 t = 0; t < N_TABLES; t++) kv_release(&f.pool, f.table[t], &f.n_held[t]);
    check_pool(&f);
    assert_int_equal(f.pool.n_idle, 4);
    assert_int_equal(kv_match(&f.pool, 0, a, 100, f.table[0], &f.n_held[0]),
                     32); /* unused, but there */
    assert_int_equal(f.pool.n_idle, 0);
    kv_close(&f.pool);
}

static void test_equal_blocks_become_one(void **state)
{
    (void)state;
    struct fixture f;
    i32 a[64];
    open_pool(&f);
    fill(a, 64, 3);
    assert_true(kv_cover(&f.pool, f.table[1], &f.n_held[1], 64)); /* computed at the same time */
    publish_all(&f, 0, a, 64);
    publish_all(&f, 1, a, 64);
    assert_memory_equal(f.table[0], f.table[1], 8 * sizeof(u32));
    assert_int_equal(f.pool.n_free, N_BLOCKS - 8);
    check_pool(&f);
    kv_release(&f.pool, f.table[0], &f.n_held[0]);
    check_pool(&f);
    assert_int_equal(f.pool.n_idle, 0); /* the other still holds them */
    kv_close(&f.pool);
}

static void test_the_longest_unused_goes_first_and_takes_its_followers(void **state)
{
    (void)state;
    struct fixture f;
    i32 a[64], b[64];
    open_pool(&f);
    fill(a, 64, 0);
    fill(b, 64, 100);
    publish_all(&f, 0, a, 64);
    publish_all(&f, 1, b, 64);
    kv_release(&f.pool, f.table[0], &f.n_held[0]);
    kv_release(&f.pool, f.table[1], &f.n_held[1]);
    assert_int_equal(kv_available(&f.pool), N_BLOCKS);
    /* 24 free, 16 idle: three of a's, its last ones, have to go */
    assert_true(kv_cover(&f.pool, f.table[2], &f.n_held[2], 27 * BLOCK_TOKENS));
    assert_int_equal(f.pool.n_evicted, 3);
    check_pool(&f);
    assert_int_equal(kv_match(&f.pool, 0, a, 64, f.table[3], &f.n_held[3]), 5 * BLOCK_TOKENS);
    assert_int_equal(kv_match(&f.pool, 0, b, 64, f.table[4], &f.n_held[4]), 7 * BLOCK_TOKENS);
    kv_release(&f.pool, f.table[3], &f.n_held[3]);
    kv_release(&f.pool, f.table[4], &f.n_held[4]);
    kv_forget(&f.pool);
    check_pool(&f);
    assert_int_equal(f.pool.n_idle, 0);
    assert_int_equal(kv_match(&f.pool, 0, b, 64, f.table[3], &f.n_held[3]), 0);
    /* a forgotten beginning makes what followed it unreachable, even where it is still there */
    publish_all(&f, 5, a, 16);
    u32 first = f.table[5][0], one = 1;
    kv_release(&f.pool, &f.table[5][0], &one);
    f.table[5][0] = f.table[5][1];
    f.n_held[5] = 1;
    while (f.pool.blocks[first].id) {
        u32 held = 0, got[1];
        assert_true(kv_cover(&f.pool, got, &held, 1));
        f.table[6][f.n_held[6]++] = got[0];
    }
    check_pool(&f);
    assert_int_equal(kv_match(&f.pool, 0, a, 64, f.table[0], &f.n_held[0]), 0);
    kv_close(&f.pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_covers_whole_blocks_and_grows),
        cmocka_unit_test(test_exhaustion_takes_nothing),
        cmocka_unit_test(test_an_empty_pool_covers_nothing),
        cmocka_unit_test(test_random_use_keeps_every_block_once),
        cmocka_unit_test(test_full_blocks_are_found_by_their_tokens),
        cmocka_unit_test(test_equal_blocks_become_one),
        cmocka_unit_test(test_the_longest_unused_goes_first_and_takes_its_followers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
