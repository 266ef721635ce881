/* A file may store each tensor in any type that fletch reads. Every kind of tensor of every family,
 * in every type that its rows can have: on each executor it runs, near the reference on the same
 * file, or is refused in one line that names the tensor. With the argument `all` each meets all
 * executors; without it each type of each tensor has its turn on some. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/engine.h"
#include "harness.h"
#include "retyped.h"

enum { N_PROMPT = 5, MAX_VOCAB = 4096 };

static const i32 prompt[N_PROMPT] = {0, 5, 17, 3, 42};
static const enum qtype types[] = {
    QT_F32,     QT_F16,    QT_BF16,  QT_Q8_0,    QT_Q4_0,  QT_Q4_1,  QT_Q5_0,   QT_Q5_1,  QT_IQ4_NL,
    QT_MXFP4,   QT_Q2_K,   QT_Q3_K,  QT_Q4_K,    QT_Q5_K,  QT_Q6_K,  QT_IQ4_XS, QT_IQ1_S, QT_IQ1_M,
    QT_IQ2_XXS, QT_IQ2_XS, QT_IQ2_S, QT_IQ3_XXS, QT_IQ3_S, QT_TQ1_0, QT_TQ2_0,  QT_Q1_0,  QT_Q2_0};
static bool all; /* the argument */

struct stats {
    struct fletch_engine *ref, *cpu, *emu;
    u32 n_ran, n_refused, turn;
};

struct change {
    struct str name;
    enum qtype type;
};

static enum qtype type_of(const void *ctx, const struct tensor *t)
{
    const struct change *c = ctx;
    return c->name.p && str_eq(c->name, t->name) ? c->type : t->type;
}

static struct fletch_engine *open_engine(const char *backend)
{
    struct fletch_engine *e;
    assert_int_equal(
        fletch_engine_open(&e, &(struct fletch_engine_params){.backend = backend, .n_threads = 1}),
        0);
    return e;
}

/* The logits after the prompt, one part of it read at once and the last token alone; false when the
 * model was refused, which must be by the tensor's name. */
static bool logits_of(struct fletch_engine *e, const struct retyped *o, const char *act,
                      const char *name, float *logits)
{
    const struct fletch_model_params params = {.n_ctx = 64, .act_type = act, .kv_type = "f32"};
    struct fletch_model_info info;
    struct fletch_model *m;
    struct fletch_session *s;
    if (fletch_model_open_image(&m, e, o->image, o->n, &params)) {
        const char *why = fletch_engine_error(e);
        if (strchr(why, '\n') || !strstr(why, name)) fail_msg("%s: %s", name, why);
        return false;
    }
    fletch_model_info(m, &info);
    assert_true(info.n_vocab <= MAX_VOCAB);
    assert_int_equal(fletch_session_open(&s, m), 0);
    assert_int_equal(fletch_session_append(s, prompt, N_PROMPT - 1, NULL), 0);
    assert_int_equal(fletch_session_append(s, prompt + N_PROMPT - 1, 1, NULL), 0);
    const float *z = fletch_session_logits(s);
    for (u32 i = 0; i < info.n_vocab; i++)
        if (!isfinite(logits[i] = z[i])) fail_msg("%s: logit %u is %f", name, i, (double)z[i]);
    fletch_session_close(s);
    fletch_model_close(m);
    return true;
}

static bool is_vector(const struct tensor *t)
{
    return t->n_elems == t->ne[0] || str_ends(t->name, "lerp_fused.weight");
}

/* One tensor in one type; base: the reference's logits of the file as it is. */
static void try_type(struct stats *st, const char *path, const struct tensor *t, enum qtype type,
                     const float *base, u32 n_vocab)
{
    static float want[MAX_VOCAB], got[MAX_VOCAB];
    struct retyped o;
    char name[128];
    snprintf(name, sizeof name, "%.*s", (int)t->name.n, t->name.p);
    retyped_open(&o, path, type_of, &(struct change){str_of(name), type});
    bool ran = logits_of(st->ref, &o, "int8", name, want);
    /* what is used value by value has no blocks, anything else has any type */
    if (ran != !(is_vector(t) && quant_info(type)->blk > 1))
        fail_msg("%s of %s as %s %s", name, path, quant_info(type)->name, ran ? "ran" : "refused");
    ran ? st->n_ran++ : st->n_refused++;
    const struct quant_info *info = quant_info(type);
    double moved = ran && info->writable ? range_error(want, base, n_vocab) : 0; /* else random */
    if (moved > (info->bytes * 8 <= info->blk * 5 ? 0.5 : 0.1)) /* five bits or fewer */
        fail_msg("%s of %s as %s moves logits by %g", name, path, quant_info(type)->name, moved);
    struct fletch_engine *others[2] = {st->cpu, st->emu};
    bool slow = all || st->turn++ % 8 == 0; /* the emulator is */
    for (u32 i = 0; i < 1u + slow; i++) {
        bool ran_too = logits_of(others[i], &o, "int8", name, got);
        if (ran && !ran_too && others[i] == st->cpu) fail_msg("cpu refuses %s", name);
        double e = ran && ran_too ? range_error(got, want, n_vocab) : 0;
        if (ran_too && (!ran || e > 0.01))
            fail_msg("%s of %s as %s: %s is %g from the reference", name, path,
                     quant_info(type)->name, i ? "emu" : "cpu", e);
    }
    retyped_close(&o);
}

static void store_each(struct stats *st, const char *path)
{
    static float base[MAX_VOCAB];
    struct err err = {0};
    struct retyped as_it_is;
    struct source *s;
    u32 n_vocab = 0;
    retyped_open(&as_it_is, path, type_of, &(struct change){0});
    assert_true(logits_of(st->ref, &as_it_is, "int8", path, base));
    retyped_close(&as_it_is);
    assert_int_equal(source_open(&s, path, &err), 0);
    n_vocab = (u32)source_tensor(s, "token_embd.weight")->ne[1];
    for (u32 i = 0; i < s->n_tensors; i++) {
        const struct tensor *t = &s->tensors[i];
        if (!retyped_is_first_of_kind(s, i)) continue;
        for (u32 k = 0, n = 0; k < ARRAY_LEN(types) && n < (all ? ARRAY_LEN(types) : 2); k++) {
            enum qtype type = types[(k + (all ? 0 : st->turn)) % ARRAY_LEN(types)];
            if (type == t->type || !retyped_fits(t, type)) continue;
            try_type(st, path, t, type, base, n_vocab);
            n++;
        }
    }
    source_close(s);
}

static void any_tensor_has_any_type_or_is_refused_by_name(void **state)
{
    static const char *const models[] = {"llama",    "qwen2",     "qwen3",
                                         "qwen3moe", "deepseek2", "rwkv7"};
    struct stats st = {
        .ref = open_engine("ref"), .cpu = open_engine("cpu"), .emu = open_engine("emu")};
    (void)state;
    for (u32 i = 0; i < ARRAY_LEN(models); i++) {
        char path[64];
        snprintf(path, sizeof path, "zoo/tiny/%s.gguf", models[i]);
        store_each(&st, path);
    }
    print_message("%u ran, %u were refused\n", st.n_ran, st.n_refused);
    assert_true(st.n_ran > 80 && st.n_refused > 20);
    fletch_engine_close(st.ref);
    fletch_engine_close(st.cpu);
    fletch_engine_close(st.emu);
}

int main(int argc, char **argv)
{
    all = argc > 1 && strcmp(argv[1], "all") == 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_tensor_has_any_type_or_is_refused_by_name)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
