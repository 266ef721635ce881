/* What a token reads: a layer of real shapes on the checked emulator, which counts every sector of
 * weights and cache once for each launch, reads no more than 3 % beside what the model needs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/bench.h"
#include "gpu/gpu.h"
#include "model/synth.h"

enum { DEPTH = 1500, MAX_DATA = 176 << 20 };

static const u8 *zeros; /* the weights */

struct lab {
    const struct exec_class *class;
    struct model *m;
    struct program *p;
    struct exec *x;
    struct step *s;
    u32 handle;
    struct err err;
};

#define OK(lab, call)                                     \
    do {                                                  \
        if ((call) != 0) fail_msg("%s", (lab)->err.text); \
    } while (0)

static void lab_open(struct lab *l, const char *class, const char *shape, const char *type,
                     const char *kv)
{
    struct fletch_model_params params = {.n_ctx = 2048, .max_rows = 1, .kv_type = kv};
    struct profile profile;
    struct exec_limits limits;
    struct source *s;
    *l = (struct lab){.class = gpu_class(class)};
    OK(l, engine_profile(&profile, l->class, &params, &l->err));
    profile.bf16 = false;
    OK(l, synth_source(&s, synth_find(shape), type, 1, &l->err));
    for (u32 i = 0; i < s->n_tensors; i++) {
        assert_true(s->tensors[i].n_bytes <= MAX_DATA);
        if (!s->tensors[i].data) s->tensors[i].data = zeros;
    }
    OK(l, model_open(&l->m, s, profile, &l->err));
    OK(l, engine_limits(&limits, l->m, l->class, &params, &l->err));
    OK(l, engine_program(&l->p, l->m->trunk, l->class, false, &l->err));
    OK(l, step_open(&l->s, l->m->net, &limits, &l->err));
    OK(l, l->class->open(&l->x, l->class, l->m->net, &limits, 1, &l->err));
    OK(l, model_place(l->m, l->x, NULL, NULL, &l->err));
    OK(l, l->class->load(l->x, l->p, &l->handle, &l->err));
    for (u32 i = 0; i < limits.n_blocks; i++) l->s->tables[i] = i;
}

static void lab_close(struct lab *l)
{
    l->class->close(l->x);
    step_close(l->s);
    prog_close(l->p);
    model_close(l->m);
}

/* Bytes that the ops of the layer read for a token behind DEPTH others. */
static u64 read_by_token(struct lab *l, double *needed)
{
    struct exec_counters before, after;
    u32 end = 0;
    step_reset(l->s);
    assert_true(step_add(l->s, (struct row){1, 0, DEPTH, ROW_D}, true));
    step_prepare(l->s);
    *needed = -(double)exec_state_bytes(l->m->net); /* is counted as read and as written */
    for (u32 i = 0; i < l->p->n_groups; i++) {
        const struct group *g = &l->p->groups[i];
        if (g->ops[0]->layer < 0) continue;
        for (u32 k = 0; k < g->n_ops; k++)
            *needed += (double)bench_placed_bytes(l->class, l->p, g->ops[k], 1) +
                       bench_memory_bytes(l->m->net, g->ops[k], l->s);
        end = i + 1;
    }
    l->s->group_end = end;
    l->class->counters(l->x, &before);
    OK(l, l->class->submit(l->x, l->handle, l->s, &l->err));
    OK(l, l->class->wait(l->x, &l->err));
    l->class->counters(l->x, &after);
    return after.bytes_read - before.bytes_read;
}

static void a_layer_reads_what_it_needs(void **state)
{
    static const struct {
        const char *shape, *type, *kv, *class;
    } rows[] = {{"SmolLM2-135M", "q4_0", "f16", "emu_checked"},
                {"SmolLM2-135M", "q8_0", "q8", "emu_checked"},
                {"Qwen2.5-0.5B", "q8_0", "f16", "emu_checked"},
                {"Qwen2.5-0.5B", "q8_0", "f16", "emu_metal"},
                {"RWKV-7-0.4B", "q4_k", "f16", "emu_checked"},
                {"RWKV-7-0.4B", "q4_k", "f16", "emu_metal"}};
    zeros = calloc(MAX_DATA, 1);
    (void)state;
    assert_non_null(zeros);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct lab l;
        double needed;
        lab_open(&l, rows[i].class, rows[i].shape, rows[i].type, rows[i].kv);
        u64 n = read_by_token(&l, &needed);
        print_message("%s %s on %s: %.0f bytes needed, %llu read\n", rows[i].shape, rows[i].type,
                      rows[i].class, needed, (unsigned long long)n);
        lab_close(&l);
        assert_true((double)n > 0.97 * needed && (double)n < 1.03 * needed);
    }
    free((void *)(uintptr_t)zeros);
}

/* What a token costs beside its bytes, with products that stage their row and as on Metal, of a
 * layer each: dispatches, barriers between them, threadgroup memory of all groups. Pinned: a change
 * shows what it does to them. */
static void a_token_costs_what_it_did(void **state)
{
    static const struct {
        const char *shape, *type, *class;
        u32 launches, barriers;
        u64 tg_bytes;
    } rows[] = {{"Qwen2.5-0.5B", "q8_0", "emu_checked", 7, 6, 9881344},
                {"Qwen2.5-0.5B", "q8_0", "emu_metal", 12, 11, 1516192},
                {"RWKV-7-0.4B", "q4_k", "emu_checked", 8, 7, 3088736},
                {"RWKV-7-0.4B", "q4_k", "emu_metal", 14, 11, 45632},
                {"Qwen3-30B-A3B", "q4_k", "emu_checked", 8, 7, 23982736},
                {"Qwen3-30B-A3B", "q4_k", "emu_metal", 15, 13, 3040448}};
    u32 n_bad = 0;
    zeros = calloc(MAX_DATA, 1);
    (void)state;
    assert_non_null(zeros);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct lab l;
        struct exec_counters before, after;
        double needed;
        lab_open(&l, rows[i].class, rows[i].shape, rows[i].type, "f16");
        l.class->counters(l.x, &before);
        read_by_token(&l, &needed);
        l.class->counters(l.x, &after);
        u64 launches = after.launches - before.launches,
            barriers = after.barriers - before.barriers;
        u64 tg_bytes = after.tg_bytes - before.tg_bytes;
        lab_close(&l);
        print_message("%s %s on %s: %llu dispatches, %llu barriers, %llu bytes of threadgroup "
                      "memory\n",
                      rows[i].shape, rows[i].type, rows[i].class, (unsigned long long)launches,
                      (unsigned long long)barriers, (unsigned long long)tg_bytes);
        n_bad += launches != rows[i].launches || barriers != rows[i].barriers ||
                 tg_bytes != rows[i].tg_bytes;
    }
    free((void *)(uintptr_t)zeros);
    assert_int_equal(n_bad, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_layer_reads_what_it_needs),
                                       cmocka_unit_test(a_token_costs_what_it_did)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
