/* What modules.json and 1_Pooling/config.json say of embeddings. */
#include "format/hf.h"

#include "format/hf_testdir.h"

#include <sys/stat.h>

#define CONFIG                                                                             \
    "{\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":8,\"num_hidden_layers\":1," \
    "\"num_attention_heads\":2,\"intermediate_size\":6,\"rms_norm_eps\":1e-5,"             \
    "\"max_position_embeddings\":64,\"vocab_size\":5}"

static struct source *open_source(void)
{
    struct source *s;
    struct err err = {0};
    if (source_open(&s, dir.path, &err)) fail_msg("%s", err.text);
    return s;
}

static void must_fail(const char *part)
{
    struct source *s;
    struct err err = {0};
    assert_int_not_equal(source_open(&s, dir.path, &err), 0);
    if (!strstr(err.text, part)) fail_msg("%s", err.text);
}

static void modules_say_how_embeddings_are_made(void **state)
{
    (void)state;
    testdir_puts(&dir, "config.json", CONFIG);
    TESTDIR_TENSOR(&dir, "model.norm.weight", QT_F32, 0, 8);
    testdir_tensors(&dir, "model.safetensors", false);
    static const struct {
        const char *modules, *pooling;
        u32 type;          /* 0: not said */
        const char *other; /* NULL: nothing */
    } cases[] = {
        {NULL, "{\"pooling_mode_mean_tokens\":true,\"pooling_mode_cls_token\":false}", 1, NULL},
        {NULL, "{\"pooling_mode_cls_token\":true}", 2, NULL},
        {NULL, "{\"pooling_mode_lasttoken\":true,\"include_prompt\":true}", 3, NULL},
        {NULL, "{\"pooling_mode\":\"mean\"}", 1, NULL},
        {NULL, "{\"pooling_mode\":\"lasttoken\"}", 3, NULL},
        {NULL, "{}", 0, NULL},
        {NULL, "{\"pooling_mode_max_tokens\":true}", 0, "'max_tokens'"},
        {NULL, "{\"pooling_mode\":[\"cls\",\"mean\"]}", 0, "several"},
        {NULL, "{\"pooling_mode_cls_token\":true,\"pooling_mode_mean_tokens\":true}", 0, "several"},
        {"[{\"type\":\"a.b.Transformer\",\"path\":\"\"},{\"type\":\"x.Pooling\",\"path\":"
         "\"1_Pooling\"},{\"type\":\"x.Normalize\",\"path\":\"2_N\"}]",
         "{\"pooling_mode_lasttoken\":true}", 3, NULL},
        {"[{\"type\":\"x.Pooling\",\"path\":\"2_Pooling\"}]", "{}", 0, "2_Pooling/config.json"},
        {"[{\"type\":\"x.Dense\",\"path\":\"2_Dense\"}]", "{}", 0, "module 'Dense'"},
    };
    char folder[80];
    snprintf(folder, sizeof folder, "%s/1_Pooling", dir.path);
    assert_int_equal(mkdir(folder, 0700), 0);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct str other = {0};
        u32 type = 0;
        testdir_puts(&dir, "1_Pooling/config.json", cases[i].pooling);
        if (cases[i].modules) testdir_puts(&dir, "modules.json", cases[i].modules);
        struct source *s = open_source();
        source_get_u32(s, "llama.pooling_type", &type, NULL);
        assert_int_equal(type, cases[i].type);
        source_get_str(s, "fletch.embedding_module", &other, NULL);
        assert_int_equal(other.p != NULL, cases[i].other != NULL);
        if (other.p) {
            char text[80];
            snprintf(text, sizeof text, "%.*s", (int)other.n, other.p);
            if (!strstr(text, cases[i].other)) fail_msg("%s", text);
        }
        source_close(s);
    }
    testdir_puts(&dir, "modules.json", "[{\"type\":\"x.Pooling\",\"path\":\"../x\"}]");
    must_fail("'../x' is not a folder in the same directory");
    testdir_puts(&dir, "modules.json", "[{}]");
    must_fail("a module has no type");
    testdir_puts(&dir, "modules.json", "{}");
    must_fail("modules.json is not a list");
    unlink(testdir_path(&dir, "modules.json"));
    testdir_puts(&dir, "1_Pooling/config.json", "[]");
    must_fail("not an object");
    unlink(testdir_path(&dir, "1_Pooling/config.json"));
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TESTDIR_TEST(modules_say_how_embeddings_are_made),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
