/* Attention on the executor: a row's bits are the same in a chunk as alone, for any number of
 * threads, over contexts of several splits. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cpu/cpu.h"

enum { BLOCK_TOKENS = 32, TOKENS = 600, SLOTS = 2 };

struct shape {
    u32 heads, kv_heads, k, v; /* v = 0: latent, the value is the first k - 8 columns of the key */
};

struct bed {
    struct net *net;
    struct program *p;
    struct operand out;
    u32 width;
    enum row_class cls;
    float *input; /* [TOKENS][width] */
};

static void bed_open(struct bed *b, struct shape s, enum row_class cls)
{
    u32 K = s.kv_heads * s.k, V = s.kv_heads * s.v, Q = s.heads * s.k;
    assert_int_equal(net_open(&b->net, NULL), 0);
    assert_int_equal(prog_open(&b->p, b->net, "attention", NULL), 0);
    b->net->profile = (struct profile){.kv = CACHE_F16, .bf16 = cls == ROW_P};
    b->cls = cls;
    b->width = b->net->d_model = Q + K + V;
    struct operand x = prog_import_hidden(b->p, b->width);
    struct operand v = {.buf = NO_BUF};
    u32 kv = net_kv(b->net, K, V);
    if (V) v = prog_cols(b->p, x, Q + K, V);
    prog_kv_store(b->p, kv, prog_cols(b->p, x, Q, K), v);
    struct operand q = prog_cols(b->p, x, 0, Q);
    float scale = 1 / sqrtf((float)s.k);
    b->out = V ? prog_attention(b->p, "y", kv, s.heads, s.kv_heads, q, scale)
               : prog_latent_attention(b->p, "y", kv, s.heads, s.k - 8, q, scale);
    assert_int_equal(prog_finish(b->p, prog_gather_rows(b->p, b->out), b->out, NULL), 0);
    b->input = malloc((size_t)TOKENS * b->width * sizeof *b->input);
    u32 seed = 3;
    for (size_t i = 0; i < (size_t)TOKENS * b->width; i++) {
        seed = seed * 1664525 + 1013904223;
        b->input[i] = (float)(i32)seed * 0x1p-30f;
    }
}

static void bed_close(struct bed *b)
{
    prog_close(b->p);
    net_close(b->net);
    free(b->input);
}

/* The same tokens in every slot, `chunk` rows of each a step; y is [SLOTS][TOKENS][out]. */
static void feed(const struct bed *b, u32 n_threads, u32 chunk, float *y)
{
    const struct exec_class *class = cpu_class(NULL);
    u32 per_slot = (TOKENS + BLOCK_TOKENS - 1) / BLOCK_TOKENS, handle;
    struct exec_limits limits = {.max_rows = SLOTS * chunk,
                                 .max_out = 1,
                                 .n_slots = SLOTS,
                                 .n_blocks = SLOTS * per_slot,
                                 .block_tokens = BLOCK_TOKENS,
                                 .max_pos = TOKENS};
    struct exec *x;
    struct step *s;
    float *hidden = malloc((size_t)limits.max_rows * b->width * sizeof *hidden);
    assert_int_equal(class->open(&x, class, b->net, &limits, n_threads, NULL), 0);
    assert_int_equal(class->load(x, b->p, &handle, NULL), 0);
    assert_int_equal(step_open(&s, b->net, &limits, NULL), 0);
    for (u32 i = 0; i < limits.n_blocks; i++)
        s->tables[i / per_slot * s->table_len + i % per_slot] = limits.n_blocks - 1 - i;
    for (u32 pos = 0; pos < TOKENS; pos += chunk) {
        u32 n = MIN(chunk, TOKENS - pos);
        step_reset(s);
        for (u32 slot = 0; slot < SLOTS; slot++)
            for (u32 i = 0; i < n; i++) {
                memcpy(hidden + (size_t)s->n_rows * b->width,
                       b->input + (size_t)(pos + i) * b->width, b->width * sizeof *hidden);
                assert_true(step_add(s, (struct row){0, slot, pos + i, b->cls}, false));
            }
        s->hidden = hidden;
        step_prepare(s);
        assert_int_equal(class->submit(x, handle, s, NULL), 0);
        assert_int_equal(class->wait(x, NULL), 0);
        for (u32 slot = 0; slot < SLOTS; slot++)
            assert_int_equal(class->read(x, handle, b->out, slot * n, n,
                                         y + ((size_t)slot * TOKENS + pos) * b->out.width, NULL),
                             0);
    }
    step_close(s);
    class->close(x);
    free(hidden);
}

static void check_rows(enum row_class cls)
{
    static const struct shape shapes[] = {{6, 2, 32, 32}, {4, 4, 20, 12}, {5, 1, 40, 0}};
    static const struct {
        u32 threads, chunk;
    } ways[] = {{1, 1}, {2, 1}, {5, 1}, {1, 7}, {2, 64}, {5, 3}, {3, 200}};
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        struct bed b;
        bed_open(&b, shapes[i], cls);
        size_t n = (size_t)SLOTS * TOKENS * b.out.width;
        float *want = calloc(n, sizeof *want), *got = calloc(n, sizeof *got);
        for (size_t w = 0; w < ARRAY_LEN(ways); w++) {
            feed(&b, ways[w].threads, ways[w].chunk, w ? got : want);
            if (w && memcmp(got, want, n * sizeof *got) != 0)
                fail_msg("shape %zu: %u threads, %u rows a step differ from a row alone", i,
                         ways[w].threads, ways[w].chunk);
        }
        assert_memory_equal(want, want + n / SLOTS, n / SLOTS * sizeof *want);
        for (size_t j = 0; j < n; j++) assert_true(isfinite(want[j]));
        free(want);
        free(got);
        bed_close(&b);
    }
}

static void rows_do_not_depend_on_chunks_and_threads(void **state)
{
    (void)state;
    check_rows(ROW_D);
}

static void nor_do_rows_of_prompts_on_matrix_units(void **state)
{
    (void)state;
    check_rows(ROW_P);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_do_not_depend_on_chunks_and_threads),
        cmocka_unit_test(nor_do_rows_of_prompts_on_matrix_units),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
