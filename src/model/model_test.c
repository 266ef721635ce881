/* Whole models that lack something, store it differently, or are of a kind that is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../test/harness.h"
#include "../test/twin.h"

static const struct harness_options plain = {.kv = CACHE_F32};

static int try_open(struct twin *t, struct err *err)
{
    struct model *m;
    int rc = model_open(&m, twin_take(t), (struct profile){.kv = CACHE_F32}, err);
    if (rc == 0) model_close(m);
    return rc;
}

/* ---- tensors ---- */

static const char *const models[] = {"llama-gguf", "llama-untied", "qwen2",       "qwen3",
                                     "qwen3_moe",  "rwkv7",        "arwkv7-gate", "glm4_moe_lite"};

/* Tensors that a model can do without: then it means something else, or they were not used. */
static bool is_optional(const char *model, struct str name)
{
    static const struct {
        const char *model, *tensor;
    } optional[] = {
        {"", "rope_freqs.weight"},
        {"", "output.weight"}, /* tied */
        {"", "blk.*attn_q.bias"},
        {"", "blk.*attn_k.bias"},
        {"", "blk.*attn_v.bias"},
        {"", "blk.*attn_output.bias"},
        {"", "blk.0.time_mix_v*"},                       /* dummies of block 0 */
        {"glm4_moe_lite", "blk.3.nextn.eh_proj.weight"}, /* no MTP block at all */
        {"glm4_moe_lite", "blk.3.nextn.embed_tokens.weight"},
        {"glm4_moe_lite", "blk.3.nextn.shared_head*"},
    };
    if (twin_matches("blk.*.time_mix_value.weight", name)) return false;
    for (size_t i = 0; i < ARRAY_LEN(optional); i++)
        if ((!optional[i].model[0] || strcmp(optional[i].model, model) == 0) &&
            twin_matches(optional[i].tensor, name))
            return true;
    return false;
}

/* Two say what kind of model this is, so that without them it looks like another kind. */
static bool is_told(const char *text, const char *name)
{
    if (strstr(name, "exp_probs_b") && strstr(text, "selection bias")) return true;
    if (strstr(name, "blk.0.time_mix_g1") && strstr(text, "lerp_fused")) return true;
    return strstr(text, name) != NULL;
}

static void every_missing_tensor_is_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(models); i++) {
        struct twin all;
        twin_open(&all, models[i], "");
        for (u32 j = 0; j < all.from->n_tensors; j++) {
            struct twin t;
            struct err err = {0};
            char name[SOURCE_MAX_NAME + 1];
            snprintf(name, sizeof name, "%.*s", (int)all.from->tensors[j].name.n,
                     all.from->tensors[j].name.p);
            twin_open(&t, models[i], name);
            int rc = try_open(&t, &err);
            if (is_optional(models[i], str_of(name)) != (rc == 0))
                fail_msg("%s without %s: %d, %s", models[i], name, rc, err.text);
            if (rc && !is_told(err.text, name))
                fail_msg("%s without %s: %s", models[i], name, err.text);
            twin_close(&t);
        }
        twin_close(&all);
    }
}

static void every_wrong_shape_is_named(void **state)
{
    (void)state;
    static const u8 zeros[1 << 20];
    for (size_t i = 0; i < ARRAY_LEN(models); i++) {
        struct twin all;
        twin_open(&all, models[i], "");
        for (u32 j = 0; j < all.from->n_tensors; j++) {
            const struct tensor *old = &all.from->tensors[j];
            struct twin t;
            struct err err = {0};
            char name[SOURCE_MAX_NAME + 1];
            snprintf(name, sizeof name, "%.*s", (int)old->name.n, old->name.p);
            if (twin_matches("blk.0.time_mix_v*", old->name) && !strstr(name, "value")) continue;
            twin_open(&t, models[i], name);
            assert_true(old->n_bytes < sizeof zeros / 2);
            twin_add(&t, name, QT_F32, old->ne[0] + 1, old->ne[1] * old->ne[3], old->ne[2], zeros);
            if (!try_open(&t, &err)) fail_msg("%s takes a wide %s", models[i], name);
            if (!strstr(err.text, name)) fail_msg("%s, %s: %s", models[i], name, err.text);
            twin_close(&t);
        }
        twin_close(&all);
    }
}

static void an_unreadable_type_is_named(void **state)
{
    (void)state;
    static const u8 zeros[1 << 16];
    struct twin t;
    struct err err = {0};
    twin_open(&t, "llama-gguf", "blk.1.ffn_up.weight");
    const struct tensor *old = source_tensor(t.from, "blk.1.ffn_up.weight");
    twin_add(&t, "blk.1.ffn_up.weight", (enum qtype)26, old->ne[0], old->ne[1], 1, zeros);
    assert_int_equal(try_open(&t, &err), FLETCH_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "'blk.1.ffn_up.weight' has type I32"));
    twin_close(&t);
}

/* ---- the same weights, stored otherwise ---- */

static void assert_same_logits(const char *name, struct twin *t)
{
    struct golden g;
    struct harness a, b;
    golden_open(&g, name);
    float *want = calloc(64, g.n_vocab * sizeof *want), *got = calloc(64, g.n_vocab * sizeof *got);
    harness_open(&a, g.model, plain);
    harness_open_source(&b, twin_take(t), plain);
    harness_feed(&a, g.tokens, 64, 64, want);
    harness_feed(&b, g.tokens, 64, 64, got);
    assert_memory_equal(want, got, 64 * g.n_vocab * sizeof *got);
    harness_close(&a);
    harness_close(&b);
    golden_close(&g);
    free(want);
    free(got);
}

/* Joins blk.l.PART of every block in which `from` has them. */
static void join_blocks(struct twin *t, const char *joined, const char *const *parts, u32 n)
{
    u32 n_joined = 0;
    for (u32 l = 0; l < 8; l++) {
        char names[4][64], name[64];
        const char *list[4];
        for (u32 i = 0; i < n; i++) {
            snprintf(names[i], sizeof names[i], "blk.%u.%s", l, parts[i]);
            list[i] = names[i];
        }
        if (!source_tensor(t->from, names[0])) continue;
        snprintf(name, sizeof name, "blk.%u.%s", l, joined);
        twin_join(t, name, list, n);
        n_joined++;
    }
    assert_true(n_joined > 1);
}

static void joined_qkv_equals_three(void **state)
{
    (void)state;
    static const char *const names[] = {"llama-untied", "qwen2"};
    static const char *const w[] = {"attn_q.weight", "attn_k.weight", "attn_v.weight"};
    static const char *const bias[] = {"attn_q.bias", "attn_k.bias", "attn_v.bias"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct twin t;
        twin_open(&t, names[i],
                  "blk.*.attn_q.weight|blk.*.attn_k.weight|blk.*.attn_v.weight|"
                  "blk.*.attn_q.bias|blk.*.attn_k.bias|blk.*.attn_v.bias");
        join_blocks(&t, "attn_qkv.weight", w, 3);
        join_blocks(&t, "attn_qkv.bias", bias, 3);
        assert_same_logits(names[i], &t);
        twin_close(&t);
    }
}

static void joined_expert_gate_up_equals_two(void **state)
{
    (void)state;
    static const char *const names[] = {"qwen3_moe", "glm4_moe_lite"};
    static const char *const w[] = {"ffn_gate_exps.weight", "ffn_up_exps.weight"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct twin t;
        twin_open(&t, names[i], "blk.*.ffn_gate_exps.weight|blk.*.ffn_up_exps.weight");
        join_blocks(&t, "ffn_gate_up_exps.weight", w, 2);
        assert_same_logits(names[i], &t);
        twin_close(&t);
    }
}

static void tied_embeddings_are_one_weight(void **state)
{
    (void)state;
    struct harness h;
    harness_open(&h, GOLDEN_DIR "/llama", plain);
    u32 n = 0;
    for (u32 i = 0; i < h.m->net->n_weights; i++)
        n += strcmp(h.m->net->weights[i].name, "token_embd.weight") == 0;
    assert_int_equal(n, 1);
    const struct program *p = h.m->trunk;
    assert_int_equal(p->ops[0].kind, OP_EMBED);
    assert_int_equal(p->ops[p->n_ops - 2].kind, OP_MATMUL);
    assert_int_equal(p->ops[0].w[0], p->ops[p->n_ops - 2].w[0]);
    harness_close(&h);
}

/* ---- kinds that are refused ---- */

static void check_refusal(const char *without, void (*add)(struct source *s), const char *text)
{
    struct twin t;
    struct err err = {0};
    twin_open(&t, "glm4_moe_lite", without);
    struct str name = STR("Other-16B");
    if (source_get_str(t.to, "general.name", &name, &err) == SOURCE_ABSENT)
        assert_int_equal(source_add_str(t.to, "general.name", name, &err), 0);
    struct err_quoted quoted = err_quote(name);
    if (add) add(t.to);
    assert_int_equal(try_open(&t, &err), FLETCH_E_UNSUPPORTED);
    if (!strstr(err.text, text)) fail_msg("\"%s\" does not say %s", err.text, text);
    assert_non_null(strstr(err.text, quoted.text));
    assert_non_null(strstr(err.text, "deepseek2"));
    twin_close(&t);
}

static void add_yarn(struct source *s)
{
    assert_int_equal(source_add_str(s, "deepseek2.rope.scaling.type", STR("yarn"), NULL), 0);
}

static void add_two_mtp(struct source *s)
{
    assert_int_equal(source_add_u32(s, "deepseek2.nextn_predict_layers", 2, NULL), 0);
}

static void other_deepseek2_models_are_refused_by_name(void **state)
{
    (void)state;
    check_refusal("deepseek2.attention.key_length_mla", NULL, "not split by heads");
    check_refusal("deepseek2.attention.value_length_mla", NULL, "not split by heads");
    check_refusal("deepseek2.rope.scaling.type", add_yarn, "yarn");
    check_refusal("deepseek2.nextn_predict_layers", add_two_mtp, "more than one MTP block");
}

static void unknown_architectures_are_refused(void **state)
{
    (void)state;
    static const struct str names[] = {STR("mamba"), STR("llama\0x"),
                                       STR("a-name-much-longer-than-any-architecture-has")};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct twin t;
        struct err err = {0};
        twin_open(&t, "llama-gguf", "general.architecture");
        assert_int_equal(source_add_str(t.to, "general.architecture", names[i], &err), 0);
        assert_true(try_open(&t, &err) < 0);
        assert_non_null(strstr(err.text, i == 0 ? "'mamba'" : i == 1 ? "llama\\" : "a-name-much"));
        twin_close(&t);
    }
}

static void a_model_that_announces_mtp_may_lack_it(void **state)
{
    (void)state;
    struct twin t;
    struct model *m;
    struct err err = {0};
    twin_open(&t, "glm4_moe_lite", "blk.3.*");
    assert_int_equal(model_open(&m, twin_take(&t), (struct profile){.kv = CACHE_F32}, &err), 0);
    assert_int_equal(m->hp.n_mtp, 1);
    assert_int_equal(m->hp.n_layers, 3);
    assert_null(m->mtp);
    model_close(m);
    twin_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_missing_tensor_is_named),
        cmocka_unit_test(every_wrong_shape_is_named),
        cmocka_unit_test(an_unreadable_type_is_named),
        cmocka_unit_test(joined_qkv_equals_three),
        cmocka_unit_test(joined_expert_gate_up_equals_two),
        cmocka_unit_test(tied_embeddings_are_one_weight),
        cmocka_unit_test(other_deepseek2_models_are_refused_by_name),
        cmocka_unit_test(unknown_architectures_are_refused),
        cmocka_unit_test(a_model_that_announces_mtp_may_lack_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
