/* Embeddings and rerankers' scores through the public interface, against golden data that
 * transformers computed: however a text is cut into calls, on every backend. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "harness.h"
#include "opened.h"

enum { N = 64 };

static const struct fletch_model_params floats = {.kv_type = "f32", .act_type = "f32"};

/* Whole, and in calls of 1, 2, 3 .. tokens. */
static void cut(struct opened *o, const i32 *tokens, u32 n, bool whole, bool ranks, float *out)
{
    fletch_session_reset(o->s);
    for (u32 i = 0, k = 1; i < n; i += k, k++) {
        k = whole ? n : MIN(k, n - i);
        int rc = ranks ? fletch_session_rank(o->s, tokens + i, k, out)
                       : fletch_session_embed(o->s, tokens + i, k, out);
        if (rc) fail_msg("%s", fletch_session_error(o->s));
    }
}

static void the_last_tokens_state_is_the_embedding(void **state)
{
    (void)state;
    struct golden g;
    size_t n;
    golden_open(&g, "qwen3_embedding");
    float *want = golden_array(&g, "hidden", &n), *got = calloc(g.n_embd, sizeof *got);
    for (size_t b = 0; b < ARRAY_LEN(opened_backends); b++) {
        struct opened o;
        struct fletch_model_info info;
        opened_path(&o, opened_backends[b], g.model, &floats);
        fletch_model_info(o.m, &info);
        assert_string_equal(info.pooling, "last");
        for (u32 i = 0; i < 4; i++) {
            u32 length = i < 2 ? N : 17;
            cut(&o, g.tokens, length, i % 2, false, got);
            double e = range_error(got, want + (size_t)(length - 1) * g.n_embd, g.n_embd);
            if (!(e < 1e-4)) fail_msg("%s, %u tokens: %g", opened_backends[b], length, e);
        }
        float score;
        assert_int_equal(fletch_session_rank(o.s, g.tokens, 3, &score), FLETCH_E_UNSUPPORTED);
        expect_error(FLETCH_E_UNSUPPORTED, FLETCH_E_UNSUPPORTED, fletch_session_error(o.s),
                     "not a reranker");
        opened_close(&o);
    }
    free(got);
    free(want);
    golden_close(&g);
}

static void a_reranker_scores_by_the_label_yes(void **state)
{
    (void)state;
    enum { LABELS = 3, YES = 2 };
    struct golden g;
    size_t n;
    golden_open(&g, "qwen3_reranker");
    float *labels = golden_array(&g, "labels", &n), score;
    for (size_t b = 0; b < ARRAY_LEN(opened_backends); b++) {
        struct opened o;
        struct fletch_model_info info;
        opened_path(&o, opened_backends[b], g.model, &floats);
        fletch_model_info(o.m, &info);
        assert_string_equal(info.pooling, "rank");
        for (u32 length = 1; length <= N; length += 9) {
            const float *z = labels + (size_t)(length - 1) * LABELS;
            double sum = 0;
            for (u32 k = 0; k < LABELS; k++) sum += exp((double)z[k] - (double)z[YES]);
            cut(&o, g.tokens, length, length % 2, true, &score);
            if (!(fabs((double)score - 1 / sum) < 1e-4))
                fail_msg("%s, %u tokens: %g, not %g", opened_backends[b], length, (double)score,
                         1 / sum);
        }
        float vector[64];
        fletch_session_reset(o.s);
        int rc = fletch_session_embed(o.s, g.tokens, 3, vector);
        expect_error(rc, FLETCH_E_UNSUPPORTED, fletch_session_error(o.s), "is a reranker");
        opened_close(&o);
    }
    free(labels);
    golden_close(&g);
}

static void a_vector_of_zeros_stays_zero(void **state)
{
    (void)state;
    float v[4] = {0}, w[4] = {3, 0, 0, -4};
    fletch_normalise(v, 4);
    fletch_normalise(w, 4);
    for (int i = 0; i < 4; i++) assert_true(v[i] >= 0 && v[i] <= 0);
    assert_true(fabsf(w[0] - 0.6f) < 1e-6f && fabsf(w[3] + 0.8f) < 1e-6f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_tokens_state_is_the_embedding),
        cmocka_unit_test(a_reranker_scores_by_the_label_yes),
        cmocka_unit_test(a_vector_of_zeros_stays_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
