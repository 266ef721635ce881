/* Damaged and hostile model files through the public interface: each is refused in one line or
 * runs; nothing crashes, hangs or reads beyond its bytes (the sanitizer builds see to that). */
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "opened.h"

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

struct victim {
    struct fletch_engine *e;
    unsigned char *whole;
    size_t n, n_header;
    unsigned n_opened, n_refused, n_failed; /* failed: opened, but could not run */
};

static void open_victim(struct victim *v, const char *backend, const char *path)
{
    *v = (struct victim){0};
    assert_int_equal(fletch_engine_open(
                         &v->e, &(struct fletch_engine_params){.backend = backend, .n_threads = 1}),
                     0);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    v->n = (size_t)ftell(f);
    rewind(f);
    v->whole = malloc(v->n);
    assert_non_null(v->whole);
    assert_int_equal(fread(v->whole, 1, v->n, f), v->n);
    fclose(f);
    char *text;
    assert_int_equal(fletch_inspect(v->e, path, false, &text), 0);
    json_t *doc = json_loads(text, 0, NULL);
    v->n_header = v->n - (size_t)json_integer_value(json_object_get(doc, "n_bytes"));
    json_decref(doc);
    fletch_free(text);
    assert_in_range(v->n_header, 1000, 100000);
}

static void close_victim(struct victim *v)
{
    free(v->whole);
    fletch_engine_close(v->e);
}

static void expect_line(const char *text)
{
    if (!*text || strchr(text, '\n')) fail_msg("error text '%s'", text);
}

/* Two tokens, and where there is a vocabulary some text and a chat. */
static int use_model(struct fletch_model *m)
{
    static const char text[] = "Hello <|im_end|> \xff world";
    struct fletch_session *s;
    struct fletch_generated result;
    const struct fletch_generate g = {
        .max_tokens = 1, .sampling = {.top_p = 1, .repeat_penalty = 1, .temperature = 1}};
    int32_t *ids = NULL;
    char *back = NULL;
    size_t n;
    int rc = fletch_session_open(&s, m);
    assert_int_equal(rc, 0);
    rc = fletch_session_append(s, (const int32_t[]){0, 0}, 2, NULL);
    if (!rc) rc = fletch_session_generate(s, &g, &result);
    if (rc) expect_line(fletch_session_error(s));
    fletch_session_close(s);
    int text_rc = fletch_tokenize(m, text, sizeof text, FLETCH_BOS | FLETCH_SPECIAL, &ids, &n);
    if (!text_rc) text_rc = fletch_detokenize(m, ids, n, FLETCH_SPECIAL, &back, &n);
    fletch_free(back);
    fletch_free(ids);
    const struct fletch_chat chat = {.messages = "[{\"role\": \"user\", \"content\": \"x\"}]"};
    if (!text_rc && !(text_rc = fletch_chat_tokenize(m, &chat, &ids, &n))) fletch_free(ids);
    if (text_rc) expect_line(fletch_model_error(m));
    return rc;
}

/* Takes image, which is as long as what is in it, so that one byte too far is seen. */
static void try_image(struct victim *v, unsigned char *image, size_t n)
{
    struct fletch_model *m;
    const struct fletch_model_params params = {.max_rows = 4, .max_memory = 64 << 20};
    int rc = fletch_model_open_image(&m, v->e, image, n, &params);
    if (rc) {
        expect_line(fletch_engine_error(v->e));
        assert_null(m);
        v->n_refused++;
    } else {
        v->n_opened++;
        v->n_failed += use_model(m) != 0;
        fletch_model_close(m);
    }
    free(image);
}

static unsigned char *copy(const struct victim *v, size_t n)
{
    unsigned char *image = malloc(n ? n : 1);
    assert_non_null(image);
    memcpy(image, v->whole, n);
    return image;
}

static uint64_t next(uint64_t *r)
{
    *r = *r * 6364136223846793005u + 1442695040888963407u;
    return *r >> 33;
}

/* One byte of the header changed; every stride-th byte in turn. */
static void change_bytes(struct victim *v, size_t stride, uint64_t seed)
{
    for (size_t at = 0; at < v->n_header; at += stride) {
        unsigned char *image = copy(v, v->n);
        image[at] ^= (unsigned char)(1u << next(&seed) % 8);
        try_image(v, image, v->n);
    }
}

/* Counts, lengths, types, dimensions and offsets that hostile files have. */
static void plant_numbers(struct victim *v, unsigned n, uint64_t seed)
{
    static const uint64_t numbers[] = {
        0,          1,
        2,          0x7f,
        0xff,       0xffff,
        1u << 16,   1u << 24,
        0x7fffffff, 0x80000000,
        UINT32_MAX, 1ull << 32,
        1ull << 40, 1ull << 61,
        INT64_MAX,  1ull << 63,
        UINT64_MAX, 0x7fc000007f800000,
        33,         UINT64_MAX - 31,
    };
    for (unsigned i = 0; i < n; i++) {
        unsigned char *image = copy(v, v->n);
        for (uint64_t left = 1 + next(&seed) % 3; left > 0; left--) {
            uint64_t x = numbers[next(&seed) % LENGTH(numbers)];
            size_t width = (size_t)4 << next(&seed) % 2;
            memcpy(image + next(&seed) % (v->n_header - 8), &x, width);
        }
        try_image(v, image, v->n);
    }
}

static void cut_short(struct victim *v, unsigned n, uint64_t seed)
{
    for (unsigned i = 0; i < n; i++) {
        size_t len = next(&seed) % (i % 4 ? v->n_header : v->n);
        try_image(v, copy(v, len), len);
    }
}

/* Weights of any bit pattern: not every one is a number. */
static void spoil_weights(struct victim *v, unsigned n, uint64_t seed)
{
    for (unsigned i = 0; i < n; i++) {
        unsigned char *image = copy(v, v->n);
        size_t at = v->n_header + next(&seed) % (v->n - v->n_header - 64);
        for (size_t j = 0; j < 64; j++) image[at + j] = (unsigned char)next(&seed);
        memset(image + at, 0xff, 8);
        try_image(v, image, v->n);
    }
}

static void test_a_damaged_model(void **state)
{
    struct victim v;
    open_victim(&v, *state, "test/golden/models/llama-gguf/model.gguf");
    change_bytes(&v, 1, 1);
    plant_numbers(&v, 2000, 2);
    cut_short(&v, 200, 3);
    unsigned refused = v.n_refused, failed = v.n_failed;
    spoil_weights(&v, 100, 4);
    /* as many as promised, and of both kinds; bad weights open and are noticed when they run */
    assert_true(v.n_opened + v.n_refused >= 2000);
    assert_true(v.n_opened > 100 && refused > 1000);
    assert_true(v.n_refused == refused && v.n_failed > failed + 50);
    print_message("%u variants refused, %u opened, %u of them could not run\n", v.n_refused,
                  v.n_opened, v.n_failed);
    close_victim(&v);
}

/* The same with a vocabulary and a template in the header. */
static void test_a_damaged_vocabulary(void **state)
{
    struct victim v;
    char *path = tiny_model_path(&(struct tiny_model){.seed = 1});
    open_victim(&v, *state, path);
    change_bytes(&v, 11, 5);
    plant_numbers(&v, 800, 6);
    cut_short(&v, 50, 7);
    assert_true(v.n_opened > 100 && v.n_refused > 300);
    print_message("%u variants refused, %u opened, %u of them could not run\n", v.n_refused,
                  v.n_opened, v.n_failed);
    close_victim(&v);
    tiny_model_remove(path);
}

int main(void)
{
    static char ref[] = "ref", cpu[] = "cpu";
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(test_a_damaged_model, ref),
        cmocka_unit_test_prestate(test_a_damaged_model, cpu),
        cmocka_unit_test_prestate(test_a_damaged_vocabulary, ref),
        cmocka_unit_test_prestate(test_a_damaged_vocabulary, cpu),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
