/* Recording and placing programs. Nothing runs here: ref/ref_test.c does that. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "../test/harness.h"
#include "core/program.h"
#include "gpu/rules.h"

static struct net *net;
static struct program *p;

static int setup(void **state)
{
    (void)state;
    return net_open(&net, NULL) || prog_open(&p, net, "test", NULL);
}

static int teardown(void **state)
{
    (void)state;
    prog_close(p);
    net_close(net);
    return 0;
}

/* A weight without bytes. */
static u32 weight(u32 n_in, u32 n_out, u32 n_slices)
{
    struct weight w = weight_packed("w", QT_F32, n_in, n_out, n_slices);
    return net_weight(net, &w);
}

static struct operand matmul(struct operand x, u32 n_out)
{
    return prog_matmul(p, "m", x, weight(x.width, n_out, 1), NO_WEIGHT);
}

static struct norm_spec rms(void)
{
    return (struct norm_spec){.kind = NORM_RMS, .eps = 1e-5f, .w = NO_WEIGHT, .b = NO_WEIGHT};
}

static void finish(struct operand x)
{
    struct err err = {0};
    struct operand logits = matmul(prog_gather_rows(p, x), 10);
    assert_int_equal(prog_finish(p, logits, x, &err), 0);
}

/* ---- placement ---- */

static u64 widths(const struct program *q)
{
    u64 sum = 0;
    for (u32 i = 0; i < q->n_bufs; i++) sum += q->bufs[i].width;
    return sum;
}

/* A value of the last few, seldom one from long ago. */
static struct operand pick(const struct operand *made, u32 n, u32 *seed)
{
    *seed = *seed * 1664525 + 1013904223;
    u32 back = *seed >> 29 ? *seed >> 8 & 3 : *seed >> 8;
    return made[n - 1 - back % n];
}

static struct operand record_random_op(const struct operand *made, u32 n, u32 *seed)
{
    struct operand a = pick(made, n, seed), b = pick(made, n, seed);
    switch (*seed >> 13 & 7) {
    case 0: return prog_act(p, "act", ACT_TANH, a);
    case 1: return prog_norm(p, "norm", a, rms());
    case 2: return a.width == b.width ? prog_add(p, "add", a, b) : matmul(a, b.width);
    case 3: return a.width > 2 ? prog_cols(p, a, 1, a.width / 2) : a;
    case 4: { /* two ops that write parts of one buffer */
        struct operand y = prog_buf(p, "pair", a.width + b.width);
        prog_norm_to(p, prog_cols(p, y, 0, a.width), a, rms());
        prog_norm_to(p, prog_cols(p, y, a.width, b.width), b, rms());
        return prog_act(p, "act", ACT_TANH, prog_cols(p, y, 1, y.width - 1));
    }
    case 5: {
        struct operand ids, weights;
        prog_route(p, a, (struct route_spec){.n_used = 1, .bias = NO_WEIGHT, .scales = NO_WEIGHT},
                   &ids, &weights);
        return prog_combine_experts(p, "sum", a, weights);
    }
    default: return matmul(a, 8 + (*seed >> 20 & 31));
    }
}

static void random_programs_never_overlap(void **state)
{
    for (u32 seed = 1; seed <= 40; seed++) {
        struct operand made[256] = {prog_embed(p, weight(16, 4, 1))};
        u32 rng = seed;
        for (u32 n = 1; n < ARRAY_LEN(made); n++) made[n] = record_random_op(made, n, &rng);
        finish(made[ARRAY_LEN(made) - 1]);
        assert_placed(p);
        struct program *f;
        assert_int_equal(prog_group(&f, p, gpu_rules, GPU_RULES, NULL), 0);
        assert_placed(f);
        prog_close(f);
        teardown(state);
        setup(state);
    }
}

static void a_chain_needs_two_values_at_a_time(void **state)
{
    (void)state;
    struct operand x = prog_embed(p, weight(64, 4, 1));
    for (int i = 0; i < 50; i++) x = matmul(x, 64);
    finish(x);
    assert_placed(p);
    assert_true(widths(p) > 50 * 64);
    assert_int_equal(p->n_cols[ROWS_T], 2 * 64);
}

static void outputs_live_to_the_end(void **state)
{
    (void)state;
    struct err err = {0};
    struct operand hidden = prog_embed(p, weight(8, 4, 1)), x = hidden;
    struct operand logits = matmul(prog_gather_rows(p, hidden), 8);
    for (int i = 0; i < 5; i++) x = matmul(x, 8);
    assert_int_equal(prog_finish(p, logits, hidden, &err), 0);
    assert_int_equal(p->bufs[hidden.buf].last, p->n_ops - 1);
    assert_int_equal(p->bufs[logits.buf].last, p->n_ops - 1);
    assert_placed(p);
}

static void models_never_overlap_and_reuse_memory(void **state)
{
    (void)state;
    char **names = golden_list();
    for (char **name = names; *name; name++) {
        struct golden g;
        struct harness h;
        golden_open(&g, *name);
        harness_open(&h, g.model, (struct harness_options){.kv = CACHE_F32});
        assert_placed(h.m->trunk);
        if (h.m->mtp) assert_placed(h.m->mtp);
        assert_true(h.m->trunk->n_cols[ROWS_T] * 5 < widths(h.m->trunk) * 2);
        harness_close(&h);
        golden_close(&g);
    }
    golden_list_free(names);
}

/* ---- shapes ---- */

/* Runs bad in a child: it must die of a CHECK. */
static void assert_dies(void (*bad)(struct operand x))
{
    struct operand x = prog_embed(p, weight(12, 4, 1));
    net_kv(net, 6, 6);
    net_state(net, 12);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (!freopen("/dev/null", "w", stderr)) _exit(1);
        signal(SIGABRT, SIG_DFL); /* cmocka's handler would report it as its own */
        bad(x);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

static void narrow_matmul(struct operand x)
{
    prog_matmul(p, "m", x, weight(11, 3, 1), NO_WEIGHT);
}

static void long_bias(struct operand x)
{
    prog_matmul(p, "m", x, weight(12, 3, 1), weight(4, 1, 1));
}

static void sliced_matmul(struct operand x)
{
    prog_matmul(p, "m", x, weight(12, 3, 2), NO_WEIGHT);
}

static void unequal_add(struct operand x)
{
    prog_add(p, "a", x, prog_cols(p, x, 0, 4));
}

static void columns_outside(struct operand x)
{
    prog_cols(p, x, 8, 5);
}

static void broken_group(struct operand x)
{
    struct norm_spec spec = rms();
    spec.group = 5;
    prog_norm(p, "n", x, spec);
}

static void wide_norm_weight(struct operand x)
{
    struct norm_spec spec = rms();
    spec.w = weight(13, 1, 1);
    prog_norm(p, "n", x, spec);
}

static void narrow_store(struct operand x)
{
    prog_kv_store(p, 0, x, prog_cols(p, x, 0, 6));
}

static void store_without_value(struct operand x)
{
    prog_kv_store(p, 0, prog_cols(p, x, 0, 6), (struct operand){.buf = NO_BUF});
}

static void odd_groups_of_heads(struct operand x)
{
    prog_attention(p, "a", 0, 3, 2, prog_cols(p, x, 0, 9), 1);
}

static void rope_without_table(struct operand x)
{
    prog_rope(p, "r", ROPE_NORM, 2, x);
}

static void more_experts_than_there_are(struct operand x)
{
    struct operand ids, weights;
    prog_route(p, x, (struct route_spec){.n_used = 13, .bias = NO_WEIGHT, .scales = NO_WEIGHT},
               &ids, &weights);
}

static void narrow_shift(struct operand x)
{
    prog_token_shift(p, "s", prog_cols(p, x, 0, 4), 0);
}

static void small_wkv_state(struct operand x)
{
    prog_wkv7(p, "w", 0, 4, x, x, x, x, x, x);
}

static void heads_past_the_end(struct operand x)
{
    prog_matmul_heads_to(p, prog_buf(p, "y", 8), 4, x, 8, weight(8, 4, 2));
}

static void lerp_row_outside(struct operand x)
{
    prog_lerp_weight(p, "l", x, x, weight(12, 3, 1), 3);
}

static void wrong_shapes_abort(void **state)
{
    void (*const bad[])(struct operand) = {
        narrow_matmul,      long_bias,           sliced_matmul,       unequal_add,
        columns_outside,    broken_group,        narrow_store,        wide_norm_weight,
        rope_without_table, odd_groups_of_heads, store_without_value, narrow_shift,
        small_wkv_state,    heads_past_the_end,  lerp_row_outside,    more_experts_than_there_are};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_dies(bad[i]);
        teardown(state);
        setup(state);
    }
}

/* ---- failing ---- */

static void a_failed_net_records_nothing(void **state)
{
    (void)state;
    struct err err = {0};
    net->failed = true;
    struct operand x = prog_embed(p, NO_WEIGHT), ids, weights;
    x = prog_norm(p, "n", x, rms());
    x = prog_matmul(p, "m", x, NO_WEIGHT, NO_WEIGHT);
    x = prog_lerp(p, "l", x, x, x);
    x = prog_mul(p, "m", x, x);
    x = prog_mul_weight(p, "m", x, NO_WEIGHT);
    x = prog_k_control(p, "k", x, x, NO_WEIGHT);
    x = prog_rk_bonus(p, "b", 1, x, x, x, x, NO_WEIGHT);
    prog_route(p, x, (struct route_spec){.n_used = 1, .bias = NO_WEIGHT, .scales = NO_WEIGHT}, &ids,
               &weights);
    x = prog_matmul_experts(p, "e", x, ids, NO_WEIGHT, true);
    x = prog_gather_rows(p, prog_combine_experts(p, "c", x, weights));
    assert_int_equal(p->n_ops, 0);
    assert_int_equal(prog_finish(p, x, x, &err), FLETCH_E_NOMEM);
}

static void bytes_read_by_ops(void **state)
{
    (void)state;
    struct operand ids, weights, x = prog_embed(p, weight(8, 100, 1));
    prog_route(p, x, (struct route_spec){.n_used = 2, .bias = NO_WEIGHT, .scales = NO_WEIGHT}, &ids,
               &weights);
    prog_matmul_experts(p, "e", x, ids, weight(8, 3, 5), false);
    matmul(x, 7);
    assert_int_equal(prog_op_bytes(p, &p->ops[0], 3), 3 * 8 * 4);       /* its rows only */
    assert_int_equal(prog_op_bytes(p, &p->ops[2], 2), 4 * 8 * 3 * 4);   /* two experts a row */
    assert_int_equal(prog_op_bytes(p, &p->ops[2], 100), 5 * 8 * 3 * 4); /* all there are */
    assert_int_equal(prog_op_bytes(p, &p->ops[3], 100), 7 * 8 * 4);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(random_programs_never_overlap),
        TEST(a_chain_needs_two_values_at_a_time),
        TEST(outputs_live_to_the_end),
        TEST(models_never_overlap_and_reuse_memory),
        TEST(wrong_shapes_abort),
        TEST(a_failed_net_records_nothing),
        TEST(bytes_read_by_ops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
