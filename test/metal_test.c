/* Models on the Metal driver and its stand-in: how their steps reach the GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/engine.h"
#include "gpu/emit.h"
#include "gpu/gpu.h"
#include "opened.h"
#include "standin/standin.h"

#define MODEL "zoo/tiny/llama.gguf"
enum { N_PROMPT = 200, LONG = 131072 };

/* Tests skip where the driver has a real device, or is not there. */
static struct standin *standin(void)
{
    static const struct gpu_driver *const metal = &driver_metal;
    return metal ? STANDIN_METAL : NULL;
}

static i32 append(struct opened *o, u32 n)
{
    i32 tokens[N_PROMPT];
    for (u32 i = 0; i < n; i++) tokens[i] = (i32)(i * 37 % 200);
    assert_int_equal(fletch_session_append(o->s, tokens, n, NULL), 0);
    struct fletch_model_info info;
    fletch_model_info(o->m, &info);
    struct fletch_sampling greedy = info.sampling;
    greedy.temperature = 0;
    i32 token;
    assert_int_equal(fletch_session_sample(o->s, &greedy, &token), 0);
    return token;
}

/* All launches together do what the ops do, for as many rows and behind as many tokens as may be.
 */
static void launches_share_the_work_of_their_ops(void **state)
{
    (void)state;
    struct opened o;
    struct emit e;
    struct err err;
    opened_path(&o, "emu", MODEL, &(struct fletch_model_params){.n_ctx = 256, .act_type = "int8"});
    const struct program *p = o.m->trunk;
    for (u32 rows = 1; rows <= 64; rows *= 64) {
        double sum = 0, least = 0;
        struct list_kind kind = {.n_d = rows};
        assert_int_equal(emit_program(&e, p, &o.m->limits, kind, &err), 0);
        for (u32 i = 0; i < e.n; i++) sum += e.list[i].work;
        for (u32 i = 0; i < p->n_ops; i++) {
            bool out = p->ops[i].n_out && p->bufs[p->ops[i].out[0].buf].rows == ROWS_R;
            least += (out ? e.out_rows : rows) * prog_op_flops(p->net, &p->ops[i]);
        }
        assert_true(least > 0 && sum >= least);
        assert_true(sum < 100 * least);
        free(e.list);
    }
    opened_close(&o);
}

/* Behind 65,536 tokens 200 rows of attention are long work for a GPU of one core: the list is cut,
 * and some of its launches. */
static void long_steps_are_cut_and_tokens_are_not(void **state)
{
    (void)state;
    struct standin *s = standin();
    if (!s) skip();
    struct opened o;
    u64 submissions[2];
    i32 token[2];
    for (u32 cut = 0; cut < 2; cut++) {
        s->cores = cut ? 1 : 1000;
        opened_path(&o, "metal", MODEL, &(struct fletch_model_params){.n_ctx = LONG});
        struct standin before = *s;
        token[cut] = append(&o, N_PROMPT);
        submissions[cut] = s->submissions - before.submissions;
        before = *s;
        append(&o, 1);
        assert_int_equal(s->submissions - before.submissions, 1);
        opened_close(&o);
    }
    assert_true(submissions[1] > submissions[0]);
    assert_int_equal(token[1], token[0]);
    s->cores = 0;
    assert_int_equal(s->alive, 0);
}

/* Sets of memory that are wired as a whole stay small: so do buffers of weights. */
static void weights_lie_in_small_buffers(void **state)
{
    (void)state;
    struct standin *s = standin();
    if (!s) skip();
    struct opened o;
    s->working_set = 9 << 20;
    s->largest_set = 0;
    opened_path(&o, "metal", MODEL, &(struct fletch_model_params){.n_ctx = 64, .max_rows = 8});
    append(&o, 8);
    opened_close(&o);
    print_message("sets of up to %d bytes\n", (int)s->largest_set);
    assert_true(s->largest_set > 0 && s->largest_set <= s->working_set / 20);
    s->working_set = 0;
}

/* The bits of the logits after n tokens more, as one number. */
static u64 logits_after(struct fletch_session *s, u32 n_vocab, u32 n)
{
    i32 tokens[N_PROMPT];
    for (u32 i = 0; i < n; i++) tokens[i] = (i32)(i * 37 % 200);
    assert_int_equal(fletch_session_append(s, tokens, n, NULL), 0);
    const float *logits = fletch_session_logits(s);
    assert_non_null(logits);
    u64 hash = 1469598103934665603;
    for (u32 i = 0; i < n_vocab; i++) {
        u32 bits;
        memcpy(&bits, logits + i, sizeof bits);
        hash = (hash ^ bits) * 1099511628211;
    }
    return hash;
}

/* In steps of one row, each of which needs the states that the one before it left. The logits are
 * then computed anew, so it's the tokens that tell. */
static void generate(struct fletch_session *s, u32 n)
{
    struct fletch_generated made;
    struct fletch_generate g = {
        .max_tokens = n,
        .sampling = {.temperature = 1, .top_p = 1, .repeat_penalty = 1, .seed = 3},
        .ignore_end = true};
    assert_int_equal(fletch_session_generate(s, &g, &made), 0);
}

/* Logits after a first token, after a prompt, after more of it, after the same in a second
 * session that has loaded the prompt, and after the prompt once that is empty again; and how many
 * buffers the model took. */
static u64 two_sessions(const char *path, const struct fletch_model_params *params, u64 got[5])
{
    struct opened o;
    struct fletch_session *s;
    char file[] = "/tmp/fletch-session-XXXXXX";
    struct exec_counters c;
    int fd = mkstemp(file);
    assert_true(fd >= 0);
    close(fd);
    opened_path(&o, "metal", path, params);
    o.m->x->class->counters(o.m->x, &c);
    assert_int_equal(fletch_session_open(&s, o.m), 0);
    struct fletch_model_info info;
    fletch_model_info(o.m, &info);
    got[0] = logits_after(s, info.n_vocab, 1);
    got[1] = logits_after(o.s, info.n_vocab, 40);
    assert_int_equal(fletch_session_save(o.s, file, NULL, 0), 0);
    assert_int_equal(fletch_session_load(s, file, NULL, NULL), 0);
    logits_after(o.s, info.n_vocab, 9);
    logits_after(s, info.n_vocab, 9);
    generate(o.s, 12);
    generate(s, 12);
    got[2] = logits_after(o.s, info.n_vocab, 1);
    got[3] = logits_after(s, info.n_vocab, 1);
    fletch_session_reset(s); /* and what it had is cleared, in all buffers */
    got[4] = logits_after(s, info.n_vocab, 40);
    remove(file);
    fletch_session_close(s);
    opened_close(&o);
    return c.buffers_made;
}

/* The cache and the states too: in several buffers they are what they are in one. */
static void what_is_kept_lies_in_small_buffers(void **state)
{
    static const struct {
        const char *path;
        u32 working_set; /* MB: fits, and a fortieth is less than what is kept */
        struct fletch_model_params params;
    } cases[] = {
        {MODEL, 26, {.n_ctx = 2048, .n_sessions = 2, .max_rows = 8, .kv_type = "f16"}},
        {MODEL, 26, {.n_ctx = 4000, .n_sessions = 2, .max_rows = 8, .kv_type = "q8"}},
        {"zoo/tiny/rwkv7.gguf",
         44,
         {.n_ctx = 64, .n_sessions = 2, .n_snapshots = 78, .max_rows = 8}},
    };
    (void)state;
    struct standin *s = standin();
    if (!s) skip();
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        u64 whole[5], parts[5];
        u64 n = two_sessions(cases[i].path, &cases[i].params, whole);
        s->working_set = (u64)cases[i].working_set << 20;
        s->largest_set = 0;
        assert_true(two_sessions(cases[i].path, &cases[i].params, parts) > n);
        print_message("%s: sets of up to %d bytes\n", cases[i].path, (int)s->largest_set);
        assert_true(s->largest_set > 0 && s->largest_set <= s->working_set / 20);
        s->working_set = 0;
        assert_memory_equal(parts, whole, sizeof whole);
        assert_true(parts[3] == parts[2]);
        assert_true(parts[4] == parts[1]);
    }
    assert_int_equal(s->alive, 0);
}

/* Loops stand for them here, in the order of those that stand for simdgroup matrices. */
static void prompts_are_multiplied_by_tensor_operations(void **state)
{
    (void)state;
    struct standin *s = standin();
    if (!s) skip();
    float *logits[2];
    u32 n = 0;
    for (u32 has = 0; has < 2; has++) {
        struct opened o;
        struct fletch_model_info info;
        s->tensor = has ? STANDIN_TENSOR_FINE : STANDIN_TENSOR_NONE;
        opened_path(&o, "metal", MODEL, &(struct fletch_model_params){.n_ctx = 256});
        fletch_model_info(o.m, &info);
        n = info.n_vocab;
        u64 before = s->tensor_products;
        append(&o, N_PROMPT);
        assert_true((s->tensor_products > before) == has);
        logits[has] = malloc(n * sizeof **logits);
        assert_non_null(logits[has]);
        memcpy(logits[has], fletch_session_logits(o.s), n * sizeof **logits);
        opened_close(&o);
    }
    s->tensor = STANDIN_TENSOR_NONE;
    assert_memory_equal(logits[0], logits[1], n * sizeof **logits);
    free(logits[0]);
    free(logits[1]);
}

/* As the device says it, while models come and go. */
static void memory_of_the_gpu_is_told(void **state)
{
    (void)state;
    if (!standin()) skip();
    struct opened o, other;
    uint64_t one, two, most;
    const struct fletch_model_params params = {.n_ctx = 256};
    opened_path(&o, "metal", MODEL, &params);
    assert_true(fletch_model_gpu_memory(o.m, &one, &most));
    assert_true(one > 100000 && most > one);
    opened_path(&other, "metal", MODEL, &params);
    assert_true(fletch_model_gpu_memory(o.m, &two, &most));
    assert_true(two > one);
    opened_close(&other);
    assert_true(fletch_model_gpu_memory(o.m, &two, &most));
    assert_int_equal(two, one);
    opened_close(&o);
    opened_path(&o, "emu", MODEL, &params);
    assert_false(fletch_model_gpu_memory(o.m, &one, &most));
    opened_close(&o);
}

static void note_wrong_bits(void *ctx, const char *text)
{
    *(int *)ctx += strstr(text, "warning: this GPU computes wrong bits") == text;
}

/* Who asked for the backend is told once for a model, in one line; it opens all the same. Who did
 * not gets an error that says what to do. */
static void wrong_arithmetic_is_told_at_open(void **state)
{
    (void)state;
    struct standin *s = standin();
    if (!s) skip();
    for (int wrong = 0; wrong < 2; wrong++) {
        int n = 0;
        struct opened o;
        s->fuses = wrong;
        opened_path(&o, "metal", MODEL,
                    &(struct fletch_model_params){
                        .n_ctx = 256, .notice = note_wrong_bits, .notice_ctx = &n});
        s->fuses = false;
        assert_int_equal(n, wrong);
        opened_close(&o);

        struct fletch_engine *e;
        struct fletch_model *m;
        s->fuses = wrong;
        assert_int_equal(fletch_engine_open(&e, NULL), FLETCH_OK);
        assert_int_equal(strncmp(fletch_engine_backend(e), "metal", 5), 0);
        int rc = fletch_model_open(&m, e, MODEL, &(struct fletch_model_params){.n_ctx = 256});
        s->fuses = false;
        assert_int_equal(rc, wrong ? FLETCH_E_BACKEND : FLETCH_OK);
        if (wrong)
            assert_non_null(
                strstr(fletch_engine_error(e), "use --backend cpu, or --backend metal"));
        fletch_model_close(m);
        fletch_engine_close(e);
    }
}

/* Counted by the stand-in for tiny models' layers: what is bound stays bound. */
static void a_token_binds_little_anew(void **state)
{
    static const struct {
        const char *path;
        u32 dispatches, bindings, set; /* as in docs/gpu.md */
    } models[] = {
        {MODEL, 44, 339, 206},
        {"zoo/tiny/qwen3moe.gguf", 58, 441, 278},
        {"zoo/tiny/rwkv7.gguf", 95, 876, 494},
    };
    (void)state;
    struct standin *s = standin();
    if (!s) skip();
    for (size_t i = 0; i < ARRAY_LEN(models); i++) {
        struct opened o;
        u64 libraries = s->libraries;
        opened_path(&o, "metal", models[i].path, &(struct fletch_model_params){.n_ctx = 256});
        append(&o, 8);
        append(&o, 1);
        struct standin before = *s;
        append(&o, 1);
        assert_int_equal(s->dispatches - before.dispatches, models[i].dispatches);
        assert_int_equal(s->bindings - before.bindings, models[i].bindings);
        assert_int_equal(s->binds - before.binds, models[i].set);
        assert_true(s->libraries - libraries < 17);
        opened_close(&o);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(launches_share_the_work_of_their_ops),
        cmocka_unit_test(long_steps_are_cut_and_tokens_are_not),
        cmocka_unit_test(weights_lie_in_small_buffers),
        cmocka_unit_test(what_is_kept_lies_in_small_buffers),
        cmocka_unit_test(prompts_are_multiplied_by_tensor_operations),
        cmocka_unit_test(memory_of_the_gpu_is_told),
        cmocka_unit_test(wrong_arithmetic_is_told_at_open),
        cmocka_unit_test(a_token_binds_little_anew),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
