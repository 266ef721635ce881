/* Recording, placing and fusing programs. Nothing runs here: ref/ref_test.c does that. */
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

static struct program *fuse(u64 mask)
{
    struct program *f;
    struct err err = {0};
    assert_int_equal(prog_fuse(&f, p, mask, &err), 0);
    return f;
}

static const u64 both = 1ull << OP_NORM_MATMUL | 1ull << OP_GATE_UP_GLU;

static u32 count(const struct program *q, enum op_kind kind)
{
    u32 n = 0;
    for (u32 i = 0; i < q->n_ops; i++) n += q->ops[i].kind == kind;
    return n;
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
        prog_route(p, a, (struct route_spec){.n_used = 1, .bias = NO_WEIGHT}, &ids, &weights);
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
        struct program *f = fuse(both);
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
        harness_open(&h, g.model, (struct harness_options){.kv = QT_F32, .fuse = true});
        assert_placed(h.m->trunk);
        assert_placed(h.p);
        if (h.m->mtp) assert_placed(h.m->mtp);
        assert_true(h.m->trunk->n_cols[ROWS_T] * 3 < widths(h.m->trunk));
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
    prog_route(p, x, (struct route_spec){.n_used = 13, .bias = NO_WEIGHT}, &ids, &weights);
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
    prog_route(p, x, (struct route_spec){.n_used = 1, .bias = NO_WEIGHT}, &ids, &weights);
    x = prog_matmul_experts(p, "e", x, ids, NO_WEIGHT, true);
    x = prog_gather_rows(p, prog_combine_experts(p, "c", x, weights));
    assert_int_equal(p->n_ops, 0);
    assert_int_equal(prog_finish(p, x, x, &err), FLETCH_E_NOMEM);
}

/* ---- fusing ---- */

static void norm_fuses_with_one_to_three_readers(void **state)
{
    for (u32 n = 1; n <= 3; n++) {
        struct operand x = prog_embed(p, weight(8, 4, 1)), y[3];
        u32 wn = weight(8, 1, 1);
        struct norm_spec spec = {.kind = NORM_LAYER, .group = 4, .eps = 0.5f, .w = wn, .b = wn};
        struct operand h = prog_norm(p, "n", x, spec);
        for (u32 i = 0; i < n; i++) {
            u32 w = weight(8, 6 + i, 1), bias = weight(6 + i, 1, 1);
            y[i] = prog_matmul(p, "m", h, w, bias);
        }
        for (u32 i = 0; i < n; i++) x = prog_act(p, "a", ACT_TANH, y[i]); /* keeps them alive */
        finish(x);
        struct program *f = fuse(both);
        assert_int_equal(f->n_ops, p->n_ops - n);
        const struct op *op = &f->ops[1];
        assert_int_equal(op->kind, OP_NORM_MATMUL);
        assert_int_equal(op->n_out, n);
        assert_int_equal(op->in[0].buf, 0);
        assert_int_equal(op->p.norm.kind, NORM_LAYER);
        assert_int_equal(op->p.norm.group, 4);
        assert_true(op->p.norm.eps == 0.5f);
        assert_true(op->w[0] == wn && op->w[1] == wn && op->n_w == 2 + 2 * n);
        for (u32 i = 0; i < n; i++) {
            assert_memory_equal(&op->out[i], &y[i], sizeof y[i]); /* the same buffer ids */
            assert_int_equal(op->w[2 + 2 * i], wn + 1 + 2 * i);
            assert_int_equal(op->w[3 + 2 * i], wn + 2 + 2 * i);
        }
        assert_int_equal(op->origin, 1 + n);
        assert_int_equal(f->bufs[h.buf].first, UINT32_MAX); /* the normed value is gone */
        assert_placed(f);
        prog_close(f);
        teardown(state);
        setup(state);
    }
}

static void norm_does_not_fuse_with_another_reader(void **state)
{
    for (u32 kind = 0; kind < 3; kind++) {
        struct operand h = prog_norm(p, "n", prog_embed(p, weight(8, 4, 1)), rms());
        struct operand y = matmul(h, 8);
        if (kind == 0) y = prog_add(p, "a", y, h);           /* read again later */
        if (kind == 1) y = prog_glu(p, "g", h, y);           /* by another op */
        if (kind == 2) y = matmul(prog_cols(p, h, 0, 4), 8); /* in part */
        finish(y);
        struct program *f = fuse(both);
        assert_int_equal(f->n_ops, p->n_ops);
        prog_close(f);
        teardown(state);
        setup(state);
    }
}

static void a_fourth_reader_stops_fusing(void **state)
{
    (void)state;
    struct operand h = prog_norm(p, "n", prog_embed(p, weight(8, 4, 1)), rms()), y = h;
    for (int i = 0; i < 4; i++) y = matmul(h, 8);
    finish(y);
    struct program *f = fuse(both);
    assert_int_equal(count(f, OP_NORM_MATMUL), 0);
    prog_close(f);
}

static void a_kept_norm_does_not_fuse(void **state)
{
    (void)state;
    struct err err = {0};
    struct operand h = prog_norm(p, "n", prog_embed(p, weight(8, 4, 1)), rms());
    assert_int_equal(prog_finish(p, matmul(h, 9), h, &err), 0);
    struct program *f = fuse(both);
    assert_int_equal(f->n_ops, p->n_ops);
    prog_close(f);
}

static struct operand gate_up(struct operand x, struct operand *gate, struct operand *up)
{
    u32 wg = weight(x.width, 6, 1), bg = weight(6, 1, 1), wu = weight(x.width, 6, 1);
    *gate = prog_matmul(p, "gate", x, wg, bg);
    *up = prog_matmul(p, "up", x, wu, NO_WEIGHT);
    return prog_glu(p, "glu", *gate, *up);
}

static void gate_up_glu_fuses(void **state)
{
    (void)state;
    struct operand gate, up, x = prog_embed(p, weight(8, 4, 1));
    struct operand y = gate_up(prog_norm(p, "n", x, rms()), &gate, &up);
    finish(y);
    struct program *f = fuse(1ull << OP_GATE_UP_GLU);
    assert_int_equal(f->n_ops, p->n_ops - 2);
    const struct op *op = &f->ops[2];
    assert_int_equal(op->kind, OP_GATE_UP_GLU);
    assert_memory_equal(&op->out[0], &y, sizeof y);
    assert_int_equal(op->in[0].buf, 1);
    assert_int_equal(op->n_w, 4);
    assert_true(op->w[0] == 1 && op->w[1] == 2 && op->w[2] == 3 && op->w[3] == NO_WEIGHT);
    assert_int_equal(op->origin, 4);
    assert_placed(f);
    prog_close(f);
    f = fuse(both); /* then the norm has no plain matmul left to join */
    assert_int_equal(count(f, OP_GATE_UP_GLU), 0);
    assert_int_equal(count(f, OP_NORM_MATMUL), 1);
    prog_close(f);
}

static void swapped_or_read_gates_do_not_fuse(void **state)
{
    for (u32 kind = 0; kind < 2; kind++) {
        struct operand gate, up, x = prog_embed(p, weight(8, 4, 1));
        struct operand y = gate_up(x, &gate, &up);
        if (kind == 0) p->ops[3].in[0] = up, p->ops[3].in[1] = gate;
        if (kind == 1) y = prog_add(p, "a", y, gate);
        finish(y);
        struct program *f = fuse(both);
        assert_int_equal(count(f, OP_GATE_UP_GLU), 0);
        prog_close(f);
        teardown(state);
        setup(state);
    }
}

static void mask_decides_what_fuses(void **state)
{
    (void)state;
    struct operand gate, up;
    struct operand y = prog_norm(p, "n", prog_embed(p, weight(8, 4, 1)), rms());
    y = gate_up(matmul(y, 8), &gate, &up);
    finish(y);
    const u64 masks[] = {0, 1ull << OP_NORM_MATMUL, 1ull << OP_GATE_UP_GLU, both};
    for (u32 i = 0; i < 4; i++) {
        struct program *f = fuse(masks[i]);
        assert_int_equal(count(f, OP_NORM_MATMUL), i & 1);
        assert_int_equal(count(f, OP_GATE_UP_GLU), i >> 1);
        assert_int_equal(f->n_bufs, p->n_bufs);
        prog_close(f);
    }
}

/* The names of block l's ops. */
static void list_block(const struct program *q, int l, char *out, size_t n)
{
    *out = 0;
    for (u32 i = 0; i < q->n_ops; i++)
        if (q->ops[i].layer == l) {
            size_t used = strlen(out);
            snprintf(out + used, n - used, "%s%s", used ? " " : "", op_info[q->ops[i].kind].name);
        }
}

/* With every fused op there is: what the second block of each kind of model becomes. */
static void blocks_fuse_to_few_ops(void **state)
{
    (void)state;
    static const char dense[] =
        "norm+qkv+rope+kv_store+attention matmul+add norm+gate+up+glu matmul+add";
    static const struct {
        const char *golden, *ops;
    } want[] = {
        {"llama", dense},
        {"qwen2", dense},
        {"qwen3", dense},
        {"qwen3_moe", "norm+qkv+rope+kv_store+attention matmul+add norm+router+gate+up+glu "
                      "route+experts gate+up+glu experts down+combine"},
        {"glm4_moe_lite",
         "norm+matmul norm+matmul+matmul_heads "
         "rope+norm+rope+kv_store+latent_attention+matmul_heads matmul+add "
         "norm+router+gate+up+glu route+experts gate+up+glu experts down+combine+matmul+add"},
        {"rwkv7", "norm+token_shift+lerp+matmul+act matmul+act+wkv7+head+tail matmul+add "
                  "norm+token_shift+lerp+matmul+act matmul+add"},
        {"arwkv7-nogate", "norm+token_shift+lerp+matmul+act matmul+act+wkv7+head+tail "
                          "matmul+add norm+gate+up+glu matmul+add"},
    };
    for (size_t i = 0; i < ARRAY_LEN(want); i++) {
        struct golden g;
        struct harness h;
        char got[512];
        golden_open(&g, want[i].golden);
        harness_open(&h, g.model, (struct harness_options){.kv = QT_F32});
        struct program *f;
        assert_int_equal(prog_fuse(&f, h.m->trunk, UINT64_MAX, NULL), 0);
        assert_placed(f);
        list_block(f, 1, got, sizeof got);
        assert_string_equal(got, want[i].ops);
        u64 bytes[2] = {0};
        for (u32 j = 0; j < f->n_ops; j++) bytes[0] += prog_op_bytes(f, &f->ops[j], 3);
        for (u32 j = 0; j < h.m->trunk->n_ops; j++)
            bytes[1] += prog_op_bytes(h.m->trunk, &h.m->trunk->ops[j], 3);
        assert_int_equal(bytes[0], bytes[1]);
        prog_close(f);
        harness_close(&h);
        golden_close(&g);
    }
}

/* A parameter that a pattern does not list keeps the op out of it. */
static void unlisted_parameters_do_not_fuse(void **state)
{
    for (u32 per_slot = 0; per_slot < 2; per_slot++) {
        struct operand ids, weights, y[2], x = prog_embed(p, weight(16, 4, 1));
        prog_route(p, x, (struct route_spec){.n_used = 2, .bias = NO_WEIGHT}, &ids, &weights);
        for (u32 i = 0; i < 2; i++)
            y[i] = prog_matmul_experts(p, "e", x, ids, weight(per_slot ? 8 : 16, 3, 16), per_slot);
        struct operand sum = prog_combine_experts(p, "c", prog_glu(p, "g", y[0], y[1]), weights);
        finish(sum);
        struct program *f = fuse(1ull << OP_EXPERTS_GLU);
        assert_int_equal(op_features(&p->ops[2]), HAS(OP) | (per_slot ? HAS(PER_SLOT) : 0));
        assert_int_equal(count(f, OP_EXPERTS_GLU), !per_slot);
        prog_close(f);
        teardown(state);
        setup(state);
    }
}

/* Parts may be absent: their inputs are then left out, and those behind keep their order. */
static void optional_parts_may_be_absent(void **state)
{
    for (u32 two = 0; two < 2; two++) {
        struct operand x = prog_embed(p, weight(8, 4, 1)), r = prog_act(p, "r", ACT_TANH, x);
        u32 w = weight(8, 8, 1);
        struct operand y = prog_add(p, "y", r, prog_matmul(p, "m", x, w, NO_WEIGHT));
        if (two) y = prog_add(p, "z", x, y);
        finish(y);
        struct program *f = fuse(1ull << OP_MATMUL_ADD);
        const struct op *op = &f->ops[2];
        assert_int_equal(op->kind, OP_MATMUL_ADD);
        assert_int_equal(op->n_parts, 2 + two);
        assert_int_equal(op->n_in, 2 + two);
        const struct operand in[] = {x, r, x};
        assert_memory_equal(op->in, in, op->n_in * sizeof *in);
        assert_memory_equal(&op->out[0], &y, sizeof y);
        assert_true(op->n_w == 2 && op->w[0] == w && op->w[1] == NO_WEIGHT);
        assert_ptr_equal(op_part(op, OP_ADD, 0), &op->parts[1]);
        assert_ptr_equal(op_part(op, OP_ADD, 2), NULL);
        assert_placed(f);
        prog_close(f);
        teardown(state);
        setup(state);
    }
}

/* What another op reads must stay, so the run can't start with it. */
static void lerps_and_products_fuse_only_when_nobody_else_reads_them(void **state)
{
    for (u32 kind = 0; kind < 3; kind++) {
        struct operand x = prog_embed(p, weight(8, 4, 1)), b = prog_act(p, "b", ACT_TANH, x);
        u32 mu = weight(8, 2, 1);
        struct operand l0 = prog_lerp_weight(p, "l0", x, b, mu, 0);
        struct operand l1 = prog_lerp_weight(p, "l1", x, b, mu, 1);
        struct operand m = matmul(l0, 8), y = prog_act(p, "a", ACT_SIGMOID, m);
        struct operand v = matmul(l1, 8), u = matmul(b, 8), a = y;
        if (kind == 1) y = prog_add(p, "again", y, l0);
        if (kind == 2) y = prog_add(p, "again", y, m);
        finish(matmul(prog_glu(p, "y", y, prog_add(p, "sum", u, v)), 8));
        struct program *f = fuse(1ull << OP_MATMULS);
        const struct op *op = &f->ops[2];
        assert_int_equal(count(f, OP_MATMULS), 1); /* at least its end; never one matmul alone */
        assert_int_equal(op->kind, kind ? OP_LERP : OP_MATMULS);
        if (kind == 0) {
            const struct operand in[] = {x, b}, out[] = {a, v, u};
            assert_true(op->n_parts == 6 && op->n_in == 2 && op->n_out == 3 && op->n_w == 8);
            assert_memory_equal(op->in, in, sizeof in);
            assert_memory_equal(op->out, out, sizeof out);
        }
        assert_placed(f);
        prog_close(f);
        teardown(state);
        setup(state);
    }
}

static void bytes_read_by_ops(void **state)
{
    (void)state;
    struct operand ids, weights, x = prog_embed(p, weight(8, 100, 1));
    prog_route(p, x, (struct route_spec){.n_used = 2, .bias = NO_WEIGHT}, &ids, &weights);
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
        TEST(norm_fuses_with_one_to_three_readers),
        TEST(norm_does_not_fuse_with_another_reader),
        TEST(a_fourth_reader_stops_fusing),
        TEST(a_kept_norm_does_not_fuse),
        TEST(gate_up_glu_fuses),
        TEST(swapped_or_read_gates_do_not_fuse),
        TEST(mask_decides_what_fuses),
        TEST(blocks_fuse_to_few_ops),
        TEST(unlisted_parameters_do_not_fuse),
        TEST(optional_parts_may_be_absent),
        TEST(lerps_and_products_fuse_only_when_nobody_else_reads_them),
        TEST(bytes_read_by_ops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
