/* The JSON reports of fletch.h: that they parse, hold what they promise, and tell the truth. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "opened.h"

#define GOLDEN(name)  "test/golden/models/" name
#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

static int open_engine(void **state)
{
    return fletch_engine_open((struct fletch_engine **)state,
                              &(struct fletch_engine_params){.backend = "ref", .n_threads = 1});
}

static int close_engine(void **state)
{
    fletch_engine_close(*state);
    return 0;
}

/* Takes the text that a report function gave. */
static json_t *parse(struct fletch_engine *e, int rc, char *text)
{
    json_error_t error;
    if (rc) fail_msg("%s", fletch_engine_error(e));
    json_t *doc = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    if (!doc) fail_msg("line %d: %s in %s", error.line, error.text, text);
    fletch_free(text);
    return doc;
}

/* fields: "name:type ..." with i integer, s string, b boolean, a array, o object, f number. */
static void expect_fields(const json_t *object, const char *fields)
{
    char name[64], type;
    int n;
    for (; sscanf(fields, " %63[^:]:%c%n", name, &type, &n) == 2; fields += n) {
        const json_t *v = json_object_get(object, name);
        bool ok = type == 'i'   ? json_is_integer(v)
                  : type == 's' ? json_is_string(v)
                  : type == 'b' ? json_is_boolean(v)
                  : type == 'a' ? json_is_array(v)
                  : type == 'f' ? json_is_number(v)
                                : json_is_object(v);
        if (!ok) fail_msg("field %s is not there or not of type %c", name, type);
    }
}

static json_int_t integer(const json_t *object, const char *name)
{
    return json_integer_value(json_object_get(object, name));
}

static const char *string(const json_t *object, const char *name)
{
    return json_string_value(json_object_get(object, name));
}

/* The entry of an array whose field has this text. */
static json_t *find(const json_t *array, const char *field, const char *text)
{
    size_t i;
    json_t *v;
    json_array_foreach(array, i, v)
    {
        const char *s = string(v, field);
        if (s && strcmp(s, text) == 0) return v;
    }
    fail_msg("no %s '%s'", field, text);
    return NULL;
}

/* ---- inspect ---- */

static json_t *inspect(struct fletch_engine *e, const char *path, bool check)
{
    char *text = NULL;
    int rc = fletch_inspect(e, path, check, &text);
    json_t *doc = parse(e, rc, text);
    expect_fields(doc, "path:s format:s arch:s name:s n_params:i n_bytes:i n_files:i metadata:a "
                       "tensors:a types:a");
    return doc;
}

static void test_inspect_lists_metadata_and_tensors(void **state)
{
    struct fletch_engine *e = *state;
    char *path = tiny_model_path(&(struct tiny_model){.seed = 1});
    json_t *doc = inspect(e, path, false);
    assert_string_equal(string(doc, "format"), "GGUF v3");
    assert_string_equal(string(doc, "arch"), "llama");
    assert_string_equal(string(doc, "path"), path);
    assert_null(json_object_get(doc, "check"));
    json_t *kv = find(json_object_get(doc, "metadata"), "key", "llama.block_count");
    assert_true(strcmp(string(kv, "type"), "u32") == 0 && integer(kv, "value") == 2);
    kv = find(json_object_get(doc, "metadata"), "key", "tokenizer.ggml.tokens");
    assert_int_equal(integer(kv, "n"), 646);
    assert_int_equal(json_array_size(json_object_get(kv, "value")), 8);
    json_t *t = find(json_object_get(doc, "tensors"), "name", "token_embd.weight");
    expect_fields(t, "name:s type:s shape:a bytes:i");
    assert_int_equal(integer(t, "bytes"), 646 * 32 * 4);
    const json_t *shape = json_object_get(t, "shape");
    assert_int_equal(json_array_size(shape), 2);
    assert_int_equal(json_integer_value(json_array_get(shape, 0)), 32);
    json_t *type = find(json_object_get(doc, "types"), "type", "F32");
    assert_int_equal(integer(type, "bytes"), integer(doc, "n_bytes"));
    assert_int_equal(integer(doc, "n_bytes"), 4 * integer(doc, "n_params"));
    assert_int_equal(integer(type, "tensors"), json_array_size(json_object_get(doc, "tensors")));
    json_decref(doc);
    tiny_model_remove(path);
    doc = inspect(e, GOLDEN("llama-shards"), false);
    assert_string_equal(string(doc, "format"), "Hugging Face directory");
    assert_int_equal(integer(doc, "n_files"), 2);
    json_decref(doc);
}

static void test_inspect_check_finds_what_is_no_number(void **state)
{
    struct fletch_engine *e = *state;
    char *path = tiny_model_path(&(struct tiny_model){.plant_nan = true});
    json_t *doc = inspect(e, path, true);
    const json_t *check = json_object_get(doc, "check");
    expect_fields(check, "ok:b n_tensors:i bad:a");
    assert_true(json_is_false(json_object_get(check, "ok")));
    assert_int_equal(json_array_size(json_object_get(check, "bad")), 1);
    json_t *bad = find(json_object_get(check, "bad"), "tensor", "blk.1.ffn_down.weight");
    assert_true(integer(bad, "nan") == 1 && integer(bad, "inf") == 1);
    json_decref(doc);
    tiny_model_remove(path);
    doc = inspect(e, GOLDEN("glm4_moe_lite"), true);
    check = json_object_get(doc, "check");
    assert_true(json_is_true(json_object_get(check, "ok")));
    assert_int_equal(integer(check, "n_tensors"), json_array_size(json_object_get(doc, "tensors")));
    json_decref(doc);
}

/* File names may be any bytes; JSON may not. */
static void test_paths_need_not_be_utf8(void **state)
{
    struct fletch_engine *e = *state;
    char *path = tiny_model_path(&(struct tiny_model){0}), odd[64], *text;
    snprintf(odd, sizeof odd, "%s-\xff", path);
    assert_int_equal(rename(path, odd), 0);
    json_t *doc = inspect(e, odd, false);
    assert_non_null(strstr(string(doc, "path"), "\\xff"));
    json_decref(doc);
    int rc = fletch_plan(e, odd, NULL, &text);
    json_decref(parse(e, rc, text));
    rc = fletch_explain(e, odd, NULL, &text);
    json_decref(parse(e, rc, text));
    unlink(odd);
    free(path);
}

/* ---- plan ---- */

static json_t *plan(struct fletch_engine *e, const char *path,
                    const struct fletch_model_params *params)
{
    char *text = NULL;
    int rc = fletch_plan(e, path, params, &text);
    json_t *doc = parse(e, rc, text);
    expect_fields(doc,
                  "model:s arch:s backend:s fits:b total:i available:i n_ctx:i n_ctx_trained:i "
                  "n_sessions:i "
                  "kv_type:s max_rows:i parts:a largest_ctx:i");
    json_int_t sum = 0;
    size_t i;
    json_t *part;
    json_array_foreach(json_object_get(doc, "parts"), i, part)
    {
        expect_fields(part, "name:s bytes:i note:s");
        sum += integer(part, "bytes");
    }
    assert_int_equal(sum, integer(doc, "total"));
    return doc;
}

static json_int_t part_bytes(const json_t *doc, const char *name)
{
    size_t i;
    json_t *part;
    json_array_foreach(json_object_get(doc, "parts"), i, part)
    {
        if (strcmp(string(part, "name"), name) == 0) return integer(part, "bytes");
    }
    return 0;
}

/* The context that nobody asked for is as long as the model's where half of the memory that is left
 * holds it; several sessions share a cache in which one of them may have all of it. */
static void test_plan_widens_the_default_context(void **state)
{
    struct fletch_engine *e = *state;
    static const char shape[] = "Llama-3.2-1B:q8_0";
    struct fletch_model_params params = {.max_memory = 64ull << 30, .kv_type = "f16"};
    json_t *one = plan(e, shape, &params);
    params.n_sessions = 9;
    json_t *nine = plan(e, shape, &params);
    params.kv_tokens = 1000;
    json_t *fixed = plan(e, shape, &params);
    assert_int_equal(integer(one, "n_ctx"), 131072);
    assert_int_equal(integer(nine, "n_ctx"), 131072);
    assert_int_equal(part_bytes(one, "kv cache"), part_bytes(nine, "kv cache"));
    assert_int_equal(integer(fixed, "n_ctx"), 8192);
    params = (struct fletch_model_params){.max_memory = (uint64_t)integer(one, "total")};
    json_t *less = plan(e, shape, &params);
    assert_true(integer(less, "n_ctx") > 8192 && integer(less, "n_ctx") < 131072);
    json_decref(one);
    json_decref(nine);
    json_decref(fixed);
    json_decref(less);
}

static int open_model(struct fletch_engine *e, const char *path,
                      const struct fletch_model_params *params)
{
    struct fletch_model *m;
    int rc = fletch_model_open(&m, e, path, params);
    fletch_model_close(m);
    return rc;
}

static void test_plan_counts_what_the_settings_cost(void **state)
{
    struct fletch_engine *e = *state;
    struct fletch_model_params params = {.n_ctx = 64, .kv_type = "f16"};
    json_t *doc = plan(e, GOLDEN("llama"), &params);
    json_int_t kv = integer(find(json_object_get(doc, "parts"), "name", "kv cache"), "bytes");
    assert_string_equal(string(doc, "kv_type"), "f16");
    assert_string_equal(string(doc, "backend"), "ref");
    assert_int_equal(integer(doc, "n_ctx"), 64);
    assert_true(json_is_true(json_object_get(doc, "fits")));
    json_decref(doc);
    params = (struct fletch_model_params){.n_ctx = 128, .kv_type = "f32", .n_sessions = 3};
    doc = plan(e, GOLDEN("llama"), &params);
    assert_int_equal(integer(find(json_object_get(doc, "parts"), "name", "kv cache"), "bytes"),
                     kv * 2 * 2 * 3);
    json_decref(doc);
    doc = plan(e, GOLDEN("rwkv7"), NULL);
    assert_true(integer(find(json_object_get(doc, "parts"), "name", "state"), "bytes") > 0);
    json_decref(doc);
}

static json_int_t part_of(struct fletch_engine *e, const char *name, const char *act, bool mtp)
{
    struct fletch_model_params params = {
        .n_ctx = 64, .n_sessions = 2, .act_type = act, .speculation = {.mtp = mtp}};
    json_t *doc = plan(e, "zoo/tiny/deepseek2.gguf", &params);
    json_int_t bytes = integer(find(json_object_get(doc, "parts"), "name", name), "bytes");
    json_decref(doc);
    return bytes;
}

/* Buffers for prompts beside answers are there whether tokens are guessed or not. */
static void test_plan_counts_the_reader_where_tokens_are_guessed(void **state)
{
    struct fletch_engine *e = *state;
    json_int_t beside = part_of(e, "activations", "bf16", true);
    assert_int_equal(beside, part_of(e, "activations", "bf16", false));
    assert_true(beside > part_of(e, "activations", "int8", true));
    assert_true(part_of(e, "speculation", "bf16", true) > 0);
}

/* What the plan says fits does, what it says does not is refused; largest_ctx is the edge. */
static void test_plan_and_opening_agree(void **state)
{
    struct fletch_engine *e = *state;
    char *path = tiny_model_path(&(struct tiny_model){.n_ctx = 100000});
    struct fletch_model_params params = {.n_ctx = 50000, .n_sessions = 2, .max_memory = 4 << 20};
    json_t *doc = plan(e, path, &params);
    json_int_t largest = integer(doc, "largest_ctx");
    assert_true(json_is_false(json_object_get(doc, "fits")));
    assert_true(integer(doc, "total") > integer(doc, "available"));
    assert_int_equal(integer(doc, "available"), 4 << 20);
    assert_in_range(largest, 1000, 50000);
    json_decref(doc);
    char hint[32];
    snprintf(hint, sizeof hint, "(-c %d)", (int)largest);
    expect_error(open_model(e, path, &params), FLETCH_E_FIT, fletch_engine_error(e), hint);
    params.n_ctx = (uint32_t)largest;
    doc = plan(e, path, &params);
    assert_true(json_is_true(json_object_get(doc, "fits")));
    json_decref(doc);
    assert_int_equal(open_model(e, path, &params), 0);
    params.n_ctx = (uint32_t)largest + 1;
    assert_int_equal(open_model(e, path, &params), FLETCH_E_FIT);
    params.max_memory = 100 << 10; /* less than the weights */
    doc = plan(e, path, &params);
    assert_int_equal(integer(doc, "largest_ctx"), 0);
    json_decref(doc);
    expect_error(open_model(e, path, &params), FLETCH_E_FIT, fletch_engine_error(e),
                 "smaller model");
    tiny_model_remove(path);
}

/* ---- explain ---- */

static json_t *explain(struct fletch_engine *e, const char *path, bool no_fuse)
{
    char *text = NULL;
    int rc = fletch_explain(e, path, &(struct fletch_model_params){.no_fuse = no_fuse}, &text);
    json_t *doc = parse(e, rc, text);
    expect_fields(doc, "model:s arch:s backend:s n_ctx:i kv_type:s programs:a");
    size_t i, j;
    json_t *p, *op;
    json_array_foreach(json_object_get(doc, "programs"), i, p)
    {
        expect_fields(p, "name:s n_ops:i n_groups:i cols_per_row:i bytes_per_row:i "
                         "weight_bytes:i kv_bytes_per_token:i state_bytes:i groups:a");
        assert_int_equal(integer(p, "n_groups"), json_array_size(json_object_get(p, "groups")));
        json_int_t bytes = 0, n_ops = 0;
        json_array_foreach(json_object_get(p, "groups"), j, op)
        {
            expect_fields(op, "i:i layer:i name:s ops:a out:a in:a weights:a bytes:i");
            assert_int_equal(integer(op, "i"), j);
            bytes += integer(op, "bytes");
            n_ops += (json_int_t)json_array_size(json_object_get(op, "ops"));
        }
        assert_int_equal(bytes, integer(p, "weight_bytes"));
        assert_int_equal(n_ops, integer(p, "n_ops"));
    }
    return doc;
}

static bool has_group(const json_t *program, const char *name)
{
    size_t i;
    json_t *op;
    json_array_foreach(json_object_get(program, "groups"), i, op)
    {
        if (strcmp(string(op, "name"), name) == 0) return true;
    }
    return false;
}

static void test_explain_lists_the_ops(void **state)
{
    struct fletch_engine *e = *state, *cpu;
    assert_int_equal(fletch_engine_open(&cpu, &(struct fletch_engine_params){.backend = "cpu"}), 0);
    json_t *doc = explain(cpu, GOLDEN("llama"), false), *p;
    p = json_array_get(json_object_get(doc, "programs"), 0);
    assert_true(has_group(p, "norm+matmul") && has_group(p, "attention") && has_group(p, "embed"));
    assert_true(integer(p, "n_groups") < integer(p, "n_ops"));
    assert_true(integer(p, "kv_bytes_per_token") > 0 && integer(p, "state_bytes") == 0);
    const json_t *first = json_array_get(json_object_get(p, "groups"), 0);
    assert_string_equal(string(first, "name"), "embed");
    assert_string_equal(json_string_value(json_array_get(json_object_get(first, "out"), 0)),
                        "embed[T][60]");
    assert_string_equal(json_string_value(json_array_get(json_object_get(first, "weights"), 0)),
                        "token_embd.weight F16 60x101");
    json_decref(doc);
    doc = explain(cpu, GOLDEN("llama"), true);
    fletch_engine_close(cpu);
    p = json_array_get(json_object_get(doc, "programs"), 0);
    assert_false(has_group(p, "norm+matmul"));
    assert_int_equal(integer(p, "n_groups"), integer(p, "n_ops"));
    json_decref(doc);
    doc = explain(e, GOLDEN("glm4_moe_lite"), false);
    find(json_object_get(doc, "programs"), "name", "trunk");
    find(json_object_get(doc, "programs"), "name", "mtp");
    json_decref(doc);
    doc = explain(e, GOLDEN("rwkv7"), false);
    p = json_array_get(json_object_get(doc, "programs"), 0);
    assert_true(has_group(p, "recurrence") && integer(p, "state_bytes") > 0);
    json_decref(doc);
}

/* ---- doctor, verify, errors ---- */

static void test_doctor_tells_about_backends_and_models(void **state)
{
    struct fletch_engine *e = *state;
    char *text = NULL;
    int rc = fletch_doctor(e, &text);
    json_t *doc = parse(e, rc, text);
    expect_fields(doc, "version:s cpu:o memory:o backends:a architectures:a types:a advice:s");
    expect_fields(json_object_get(doc, "cpu"), "model:s cores:i threads:i features:a");
    expect_fields(
        json_object_get(doc, "memory"),
        "total:i available:i pressure:s huge_pages:s nodes:i read_gb_s:f core_read_gb_s:f");
    json_t *ref = find(json_object_get(doc, "backends"), "name", "ref");
    assert_true(json_is_true(json_object_get(ref, "works")));
    json_t *cuda = find(json_object_get(doc, "backends"), "name", "cuda");
    expect_fields(cuda, "name:s works:b why:s");
    static const char *const archs[] = {"llama",     "qwen2", "qwen3", "qwen3moe",
                                        "deepseek2", "rwkv7", "arwkv7"};
    for (size_t i = 0; i < LENGTH(archs); i++)
        expect_fields(find(json_object_get(doc, "architectures"), "name", archs[i]), "models:s");
    assert_int_equal(json_array_size(json_object_get(doc, "types")), 27);
    json_decref(doc);
}

static void test_verify_through_the_interface(void **state)
{
    struct fletch_engine *e = *state;
    static const int32_t prompt[] = {1, 2, 3};
    struct fletch_verify v = {.backend = "ref", .against = "ref", .tokens = prompt, .n_prompt = 3};
    char *text = NULL;
    int rc = fletch_verify(e, GOLDEN("qwen3_moe"), NULL, &v, &text);
    json_t *doc = parse(e, rc, text);
    expect_fields(doc, "equal:b backend:s against:s n_steps:i n_ops:i tolerances:a routing:o "
                       "bad_values:i tokens:o");
    assert_true(json_is_true(json_object_get(doc, "equal")));
    assert_true(json_is_null(json_object_get(doc, "first_difference")));
    assert_int_equal(integer(doc, "n_steps"), 17);
    json_decref(doc);
    v.against = "cuda";
    rc = fletch_verify(e, GOLDEN("llama"), NULL, &v, &text);
    expect_error(rc, FLETCH_E_BACKEND, fletch_engine_error(e), "'cuda'");
    v.against = NULL;
    v.n_prompt = 0;
    rc = fletch_verify(e, GOLDEN("llama"), NULL, &v, &text);
    expect_error(rc, FLETCH_E_ARG, fletch_engine_error(e), "needs a prompt");
}

static void test_reports_about_bad_files_name_them(void **state)
{
    struct fletch_engine *e = *state;
    char *text;
    int rc = fletch_inspect(e, "no/such/file", false, &text);
    expect_error(rc, FLETCH_E_IO, fletch_engine_error(e), "no/such/file");
    assert_null(text);
    rc = fletch_plan(e, "no/such/file", NULL, &text);
    expect_error(rc, FLETCH_E_IO, fletch_engine_error(e), "no/such/file");
    assert_null(text);
    /* a good GGUF file that is no model */
    static const char path[] = "test/corpus/gguf/good-empty.gguf";
    rc = fletch_plan(e, path, NULL, &text);
    expect_error(rc, FLETCH_E_FORMAT, fletch_engine_error(e), path);
    rc = fletch_explain(e, path, NULL, &text);
    expect_error(rc, FLETCH_E_FORMAT, fletch_engine_error(e), path);
    assert_null(text);
    struct fletch_verify v = {.tokens = (const int32_t[]){1}, .n_prompt = 1};
    rc = fletch_verify(e, path, NULL, &v, &text);
    expect_error(rc, FLETCH_E_FORMAT, fletch_engine_error(e), path);
    json_decref(inspect(e, path, true));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_engine, close_engine)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_inspect_lists_metadata_and_tensors),
        TEST(test_inspect_check_finds_what_is_no_number),
        TEST(test_paths_need_not_be_utf8),
        TEST(test_plan_counts_what_the_settings_cost),
        TEST(test_plan_counts_the_reader_where_tokens_are_guessed),
        TEST(test_plan_and_opening_agree),
        TEST(test_plan_widens_the_default_context),
        TEST(test_explain_lists_the_ops),
        TEST(test_doctor_tells_about_backends_and_models),
        TEST(test_verify_through_the_interface),
        TEST(test_reports_about_bad_files_name_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
