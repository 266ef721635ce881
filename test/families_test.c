/* The golden models on the executors that people use, in one step and token by token, in floats
 * throughout: the same numbers as on the reference, whatever kernels an architecture's ops take.
 * golden_test has the reference itself, invariance_test chunks and conversion there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "harness.h"
#include "opened.h"

/* Of the range; measured errors are about 1e-6, and 3e-4 with a cache in F16, which other kernels
 * read. */
static const double tolerance = 1e-4, tolerance_f16 = 5e-3;

/* Their sizes are such that every executor has kernels for them. */
static const char *const families[] = {
    "mixtral",      "seed_oss",     "smollm3",        "phi3",           "glm4_moe",
    "llama-blocks", "phi3_long",    "phi3_short",     "minimax_m2",     "granite",
    "ernie4_5",     "ernie4_5_moe", "hunyuan_dense",  "hunyuan_moe",    "deepseek_v2",
    "deepseek_v3",  "solar_open",   "gpt_oss",        "mistral4",       "cohere2_moe",
    "afmoe",        "laguna",       "laguna_columns", "mimo2",          "llama4",
    "exaone_moe",   "muse_glimmer", "step35",         "gemma4",         "gemma4_e",
    "gemma4_moe",   "gemma2",       "gemma3",         "mistral_window", "ministral3",
    "olmo2",        "olmo3",        "exaone4",        "cohere2",        "glm4",
    "qwen3_5",      "qwen3_5_moe",  "qwen3_next"};
/* Those with short convolutions and Mamba-2, and what came since. */
static const char *const later[] = {
    "lfm2",       "lfm2_moe",        "nemotron_h", "nemotron_h_moe",  "nemotron_h_latent",
    "granite_h",  "granite_h_dense", "falcon_h1",  "falcon_h1_plain", "hy_v3",
    "bailing_v2", "granite_4",       "kimi_linear"};
static const char *const backends[] = {"cpu", "emu"};

/* The first n tokens, chunk at a time. */
static void feed(const struct opened *o, const struct golden *g, u32 n, u32 chunk, float *logits)
{
    fletch_session_reset(o->s);
    for (u32 i = 0; i < n; i += chunk)
        if (fletch_session_append(
                o->s, g->tokens + i, MIN(chunk, n - i),
                &(struct fletch_append){.all_logits = logits + (size_t)i * g->n_vocab}))
            fail_msg("%s", fletch_model_error(o->m));
}

/* How far the logits are from the golden ones, at once and token by token, of their range. */
static void measure(const char *backend, const char *name, const char *kv_type, double error[2])
{
    struct fletch_model_params params = {.n_ctx = 64, .kv_type = kv_type, .act_type = "f32"};
    struct golden g;
    struct opened o;
    size_t n;
    golden_open(&g, name);
    float *want = golden_array(&g, "logits", &n), *got = calloc(n, sizeof *got);
    opened_path(&o, backend, g.model, &params);
    feed(&o, &g, 64, 64, got);
    error[0] = range_error(got, want, n);
    feed(&o, &g, 24, 1, got);
    error[1] = range_error(got, want, (size_t)24 * g.n_vocab);
    opened_close(&o);
    free(want);
    free(got);
    golden_close(&g);
}

static void check(const char *backend, const char *name)
{
    double f32[2], f16[2];
    measure(backend, name, "f32", f32);
    measure(backend, name, "f16", f16);
    print_message("%-4s %-12s %.2e at once, %.2e token by token; cache in F16 %.2e, %.2e\n",
                  backend, name, f32[0], f32[1], f16[0], f16[1]);
    assert_true(f32[0] <= tolerance && f32[1] <= tolerance);
    assert_true(f16[0] <= tolerance_f16 && f16[1] <= tolerance_f16);
}

static void every_executor_gives_the_golden_numbers(void **state)
{
    (void)state;
    for (size_t b = 0; b < ARRAY_LEN(backends); b++)
        for (size_t i = 0; i < ARRAY_LEN(families); i++) check(backends[b], families[i]);
}

static void later_ones_give_the_golden_numbers(void **state)
{
    (void)state;
    for (size_t b = 0; b < ARRAY_LEN(backends); b++)
        for (size_t i = 0; i < ARRAY_LEN(later); i++) check(backends[b], later[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_executor_gives_the_golden_numbers),
                                       cmocka_unit_test(later_ones_give_the_golden_numbers)};
    return cmocka_run_group_tests_name("families", tests, NULL, NULL);
}
