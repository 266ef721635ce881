#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "model/model.h"
#include "model/synth.h"

static struct source *declare(const char *name, u32 n_layers)
{
    struct err err;
    struct source *s;
    assert_int_equal(synth_declare(&s, synth_find(name), n_layers, &err), 0);
    return s;
}

/* Weights as published; files also hold Llama 3's rotary factors and RWKV's unused block-0 mix. */
static void test_shapes_have_the_published_number_of_parameters(void **state)
{
    static const struct {
        const char *name;
        u64 n;
    } published[] = {
        {"SmolLM2-135M", 134515008},      {"Qwen2.5-0.5B", 494032768},
        {"Qwen3-0.6B", 596049920},        {"Llama-3.2-1B", 1235814400},
        {"Llama-3.1-8B", 8030261248},     {"Qwen3-30B-A3B", 30532122624},
        {"GLM-4.7-Flash", 29943393920},   {"Qwen3.5-0.8B", 752393024},
        {"Qwen3.6-35B-A3B", 34660610688}, {"gpt-oss-20B", 20914757184},
        {"Gemma-3-4B", 3880099328},       {"Gemma-4-26B-A4B", 25233141790},
        {"Ministral-3-8B", 8489553920},   {"RWKV-7-0.4B", 450767872},
        {"RWKV-7-1.5B", 1527404544},      {"RWKV-7-2.9B", 2947735040},
        {"Qwen3.8-27B", 26895998464},     {"LFM2-1.2B", 1170340608},
        {"Granite-4-H-Tiny", 6939037248},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(published); i++) {
        struct source *s = declare(published[i].name, 0);
        u64 n = 0;
        for (u32 k = 0; k < s->n_tensors; k++) {
            struct str name = s->tensors[k].name;
            if (!str_is(name, "rope_freqs.weight") && !str_starts(name, "blk.0.time_mix_v0") &&
                !str_starts(name, "blk.0.time_mix_v1") && !str_starts(name, "blk.0.time_mix_v2"))
                n += s->tensors[k].n_elems;
        }
        assert_int_equal(n, published[i].n);
        source_close(s);
    }
    assert_null(synth_shapes[ARRAY_LEN(published)].name);
}

static void test_every_shape_is_a_model(void **state)
{
    (void)state;
    for (const struct synth_shape *shape = synth_shapes; shape->name; shape++) {
        struct err err = {0};
        struct source *s;
        struct model *m;
        assert_int_equal(synth_source(&s, shape, "q8_0", 2, &err), 0);
        int rc = model_open(&m, s, (struct profile){.kv = CACHE_F16}, &err);
        if (rc) print_error("%s: %s\n", shape->name, err.text);
        assert_int_equal(rc, 0);
        assert_int_equal(m->hp.n_layers, 2);
        assert_int_equal(m->hp.n_vocab, shape->n_vocab);
        assert_int_equal(tok_size(m->vocab->tok), shape->n_vocab);
        model_close(m);
    }
}

static void test_made_up_vocabulary_reads_any_bytes(void **state)
{
    static const char *const names[] = {"Qwen2.5-0.5B", "RWKV-7-0.4B"};
    static const char text[] = "a \n\xff\x01";
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct err err;
        struct vocab *v;
        struct tok_ids ids = {0};
        struct buf back = {0};
        struct source *s = declare(names[i], 1);
        assert_int_equal(vocab_load(&v, s, &err), 0);
        struct str in = {text, sizeof text - 1};
        assert_int_equal(tok_encode(v->tok, in, NULL, 0, &ids, &err), 0);
        assert_int_equal(ids.n, in.n);
        tok_decode(v->tok, ids.p, ids.n, false, &back);
        assert_true(str_eq(buf_str(&back), in));
        tok_ids_free(&ids);
        buf_free(&back);
        vocab_close(v);
        source_close(s);
    }
}

/* A published Q8_0 file of GLM-4.7-Flash has 563 tensors of Q8_0 and 281 of F32. */
static void test_storage_types_are_those_of_published_files(void **state)
{
    struct err err;
    u32 n[QT_COUNT] = {0};
    struct source *s;
    (void)state;
    assert_int_equal(synth_source(&s, synth_find("glm-4.7-flash"), "q8_0", 0, &err), 0);
    for (u32 i = 0; i < s->n_tensors; i++) n[s->tensors[i].type]++;
    assert_int_equal(n[QT_Q8_0], 563);
    assert_int_equal(n[QT_F32], 281);
    source_close(s);
}

static void test_more_layers_than_there_are_is_refused(void **state)
{
    struct err err;
    struct source *s;
    (void)state;
    assert_int_equal(synth_declare(&s, synth_find("SmolLM2-135M"), 31, &err), FLETCH_E_ARG);
    assert_null(s);
    assert_null(synth_find("SmolLM2"));
}

/* All readable types, whatever the block. */
static void test_values_have_the_spread_asked_for(void **state)
{
    enum { N = 64 * 256 };
    static u8 raw[N * 4];
    static float x[N];
    const float std = 0.02f;
    const double n = N;
    (void)state;
    for (u32 type = 0; type < QT_COUNT; type++) {
        const struct quant_info *q = quant_info(type);
        double sum = 0, squares = 0;
        if (!q || !q->readable) continue;
        synth_fill((enum qtype)type, 1, (struct synth_range){0, std * sqrtf(3)}, 0, N / q->blk,
                   raw);
        quant_decode((enum qtype)type, raw, x, N);
        for (u32 i = 0; i < N; i++) {
            assert_true(isfinite(x[i]));
            sum += (double)x[i];
            squares += (double)x[i] * (double)x[i];
        }
        double got = sqrt(squares / n), mean = sum / n;
        double wide = type == QT_MXFP4 ? 0.45 : 0.1; /* a power of two */
        if (fabs(got / (double)std - 1) > wide || fabs(mean) > (double)std / 8)
            fail_msg("%s: standard deviation %g, mean %g", q->name, got, mean);
    }
}

static void test_how_work_is_cut_changes_nothing(void **state)
{
    static const enum qtype types[] = {QT_F32, QT_BF16, QT_Q8_0, QT_Q4_K};
    u8 whole[64 * 256], cut[64 * 256];
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        const struct quant_info *q = quant_info(types[i]);
        struct synth_range range = {0, 0.1f};
        synth_fill(types[i], 9, range, 0, 50, whole);
        synth_fill(types[i], 9, range, 0, 13, cut);
        synth_fill(types[i], 9, range, 13, 37, cut + 13 * q->bytes);
        assert_memory_equal(whole, cut, 50 * q->bytes);
        synth_fill(types[i], 10, range, 0, 50, cut);
        assert_memory_not_equal(whole, cut, 50 * q->bytes);
    }
}

static void test_file_depends_on_the_seed_and_not_on_threads(void **state)
{
    char path[3][64];
    char *bytes[3];
    size_t n[3];
    struct err err = {0};
    (void)state;
    for (u32 i = 0; i < 3; i++) {
        struct synth_params p = {.shape = synth_find("rwkv-7-0.4b"),
                                 .type = "q4_k_m",
                                 .n_layers = 1,
                                 .seed = i == 2,
                                 .n_threads = i + 1};
        snprintf(path[i], sizeof path[i], "/tmp/synth_test.%d.%u.gguf", (int)getpid(), i);
        assert_int_equal(synth_run(path[i], &p, &err), 0);
        assert_int_equal(file_read(&bytes[i], &n[i], path[i], 256u << 20, &err), 0);
        unlink(path[i]);
    }
    assert_int_equal(n[0], n[1]);
    assert_int_equal(n[0], n[2]);
    assert_memory_equal(bytes[0], bytes[1], n[0]);
    assert_true(memcmp(bytes[0], bytes[2], n[0]) != 0);
    for (u32 i = 0; i < 3; i++) free(bytes[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes_have_the_published_number_of_parameters),
        cmocka_unit_test(test_every_shape_is_a_model),
        cmocka_unit_test(test_made_up_vocabulary_reads_any_bytes),
        cmocka_unit_test(test_storage_types_are_those_of_published_files),
        cmocka_unit_test(test_more_layers_than_there_are_is_refused),
        cmocka_unit_test(test_values_have_the_spread_asked_for),
        cmocka_unit_test(test_how_work_is_cut_changes_nothing),
        cmocka_unit_test(test_file_depends_on_the_seed_and_not_on_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
