/* The rotation of positions, from the spellings of config.json. */
#include "format/hf_opened.h"

static void old_and_new_spellings_of_rope_agree(void **state)
{
    (void)state;
    static const char *const configs[] = {
        LLAMA(",\"rope_theta\":5e5,\"rope_scaling\":{\"type\":\"linear\",\"factor\":4.0}"),
        LLAMA(",\"rope_theta\":5e5,\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":4}"),
        LLAMA(",\"rope_parameters\":{\"rope_type\":\"linear\",\"factor\":4.0,"
              "\"rope_theta\":5e5}"),
        /* an old one that somebody added to a new one wins */
        LLAMA(",\"rope_theta\":5e5,\"rope_scaling\":{\"type\":\"linear\",\"factor\":4},"
              "\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":500000}"),
        LLAMA(",\"rope_scaling\":{},\"rope_parameters\":{\"rope_type\":\"linear\",\"factor\":4.0,"
              "\"rope_theta\":5e5}"),
    };
    for (size_t i = 0; i < ARRAY_LEN(configs); i++) {
        struct source *s = must_open(configs[i]);
        assert_int_equal(s->refused->n, 0);
        NEAR(f32_of(s, "llama.rope.freq_base"), 5e5);
        assert_true(str_of_is(s, "llama.rope.scaling.type", "linear"));
        NEAR(f32_of(s, "llama.rope.scaling.factor"), 4);
        source_close(s);
    }
}

static void yarn_keys(void **state)
{
    (void)state;
    struct source *s = must_open(
        LLAMA(",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4,"
              "\"original_max_position_embeddings\":16,\"beta_fast\":32.0,\"beta_slow\":1}"));
    assert_true(str_of_is(s, "llama.rope.scaling.type", "yarn"));
    NEAR(f32_of(s, "llama.rope.scaling.factor"), 4);
    assert_int_equal(u32_of(s, "llama.rope.scaling.original_context_length"), 16);
    assert_null(source_kv(s, "llama.rope.scaling.attn_factor"));
    source_close(s);
    s = must_open(LLAMA(",\"original_max_position_embeddings\":16,"
                        "\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4}"));
    assert_int_equal(u32_of(s, "llama.rope.scaling.original_context_length"), 16);
    assert_int_equal(s->refused->n, 0);
    source_close(s);
    s = must_open(LLAMA(",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4,"
                        "\"attention_factor\":2.0}"));
    assert_int_equal(u32_of(s, "llama.rope.scaling.original_context_length"), 64);
    NEAR(f32_of(s, "llama.rope.scaling.attn_factor"), 2 / (1 + 0.1 * log(4)));
    source_close(s);
    s = must_open(LLAMA(",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4,"
                        "\"mscale\":1.0,\"mscale_all_dim\":1.0}"));
    NEAR(f32_of(s, "llama.rope.scaling.attn_factor"), 1 / (1 + 0.1 * log(4)));
    source_close(s);
}

#define LONG(extra)                                                                           \
    LLAMA(",\"original_max_position_embeddings\":16,\"rope_scaling\":{\"type\":\"longrope\"," \
          "\"short_factor\":[1,2],\"long_factor\":[3.5,4]" extra "}")

static void longrope_becomes_two_tensors(void **state)
{
    (void)state;
    struct source *s = must_open(LONG(""));
    assert_int_equal(s->refused->n, 0);
    assert_true(str_of_is(s, "llama.rope.scaling.type", "longrope"));
    assert_int_equal(u32_of(s, "llama.rope.scaling.original_context_length"), 16);
    NEAR(f32_of(s, "llama.rope.scaling.attn_factor"), sqrt(1.5)); /* 4 times as long: 1 + ½ */
    check_tensor(s, "rope_factors_short.weight", QT_F32, DIMS(2), VALUES(1, 2));
    check_tensor(s, "rope_factors_long.weight", QT_F32, DIMS(2), VALUES(3.5f, 4));
    source_close(s);
    s = must_open(LONG(",\"attention_factor\":1.5"));
    NEAR(f32_of(s, "llama.rope.scaling.attn_factor"), 1.5);
    source_close(s);
    s = must_open(LONG(",\"factor\":16")); /* not what the lengths say */
    NEAR(f32_of(s, "llama.rope.scaling.attn_factor"), sqrt(2));
    source_close(s);
    must_fail(LONG(",\"long_mscale\":1.2"), "rope parameter 'long_mscale' = 1.2");
}

/* Head size 64, base 500000: wavelengths of pairs 0..31 run from 2π to about 2 million. With
 * orig 8192, pairs below 2048 keep theirs, those above 8192 are divided by 8. */
static void llama3_scaling_becomes_rope_freqs(void **state)
{
    (void)state;
    struct source *s = must_open(
        LLAMA(",\"head_dim\":64,\"rope_theta\":500000.0,\"rope_scaling\":{\"rope_type\":\"llama3\","
              "\"factor\":8.0,\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"
              "\"original_max_position_embeddings\":8192}"));
    const struct tensor *t = source_tensor(s, "rope_freqs.weight");
    const u8 *data;
    float f[32];
    assert_non_null(t);
    assert_int_equal(t->type, QT_F32);
    assert_int_equal(t->ne[0], 32);
    assert_int_equal(source_data(s, t, &data, NULL), 0);
    memcpy(f, data, sizeof f);
    for (int i = 0; i < 15; i++) NEAR(f[i], 1);
    for (int i = 18; i < 32; i++) NEAR(f[i], 8);
    for (int i = 15; i < 18; i++) { /* between: by the formula of the specification */
        double wave = 2 * M_PI * pow(500000, i / 32.0), b = (8192 / wave - 1) / 3;
        NEAR(f[i], 1 / ((1 - b) / 8 + b));
    }
    source_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TESTDIR_TEST(old_and_new_spellings_of_rope_agree),
        TESTDIR_TEST(yarn_keys),
        TESTDIR_TEST(longrope_becomes_two_tensors),
        TESTDIR_TEST(llama3_scaling_becomes_rope_freqs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
