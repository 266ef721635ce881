/* Sessions in files: one that is saved and loaded goes on as if it had never stopped, on every kind
 * of executor and memory; whatever else a file holds is refused in one line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/base.h"
#include "base/file.h"
#include "opened.h"

enum { N_PROMPT = 40, N_ANSWER = 12 };

struct heard {
    i32 ids[2 * N_ANSWER + 4];
    u32 n;
};

static int hear(void *ctx, int32_t token, const char *text, size_t n)
{
    (void)text;
    (void)n;
    struct heard *h = ctx;
    if (token >= 0) h->ids[h->n++] = token;
    return 0;
}

static const char *scratch_path(void)
{
    static char path[64];
    snprintf(path, sizeof path, "/tmp/fletch-session-%d", (int)getpid());
    return path;
}

static void turn(struct opened *o, i32 first, struct heard *h)
{
    i32 prompt[N_PROMPT];
    struct fletch_generated made;
    struct fletch_generate g = {
        .max_tokens = N_ANSWER,
        .sampling = {.temperature = 0.8f, .top_p = 1, .repeat_penalty = 1, .seed = 3},
        .ignore_end = true,
        .on_text = hear,
        .ctx = h};
    for (i32 i = 0; i < N_PROMPT; i++) prompt[i] = (first + i * i) % 200;
    if (fletch_session_append(o->s, prompt, N_PROMPT, NULL) ||
        fletch_session_generate(o->s, &g, &made))
        fail_msg("%s", fletch_session_error(o->s));
}

static void open_model(struct opened *o, const char *backend, const char *model, bool guesses)
{
    char path[64];
    struct fletch_model_params params = {.n_ctx = 160, .speculation = {.ngram = guesses}};
    if (guesses) params.speculation.n_tokens = 3;
    snprintf(path, sizeof path, "zoo/tiny/%s.gguf", model);
    opened_path(o, backend, path, &params);
}

static void save(struct opened *o, const char *note)
{
    if (fletch_session_save(o->s, scratch_path(), note, strlen(note)))
        fail_msg("%s", fletch_session_error(o->s));
}

/* Two turns in one go, then the same with a file in between. */
static void check_resumed(const char *backend, const char *model, bool guesses)
{
    struct opened o;
    struct heard whole = {.n = 0}, parts = {.n = 0};
    char *note;
    size_t n_note;
    open_model(&o, backend, model, false);
    turn(&o, 5, &whole);
    turn(&o, 9, &whole);
    opened_close(&o);
    open_model(&o, backend, model, guesses);
    turn(&o, 5, &parts);
    save(&o, "a note");
    u32 n = fletch_session_length(o.s);
    opened_close(&o);
    open_model(&o, backend, model, guesses);
    if (fletch_session_load(o.s, scratch_path(), &note, &n_note))
        fail_msg("%s", fletch_session_error(o.s));
    assert_int_equal(n_note, 6);
    assert_string_equal(note, "a note");
    assert_int_equal(fletch_session_length(o.s), n);
    assert_memory_equal(fletch_session_tokens(o.s) + N_PROMPT, whole.ids,
                        (n - N_PROMPT) * sizeof(i32));
    turn(&o, 9, &parts);
    assert_int_equal(parts.n, whole.n);
    assert_memory_equal(parts.ids, whole.ids, whole.n * sizeof *whole.ids);
    fletch_free(note);
    opened_close(&o);
    unlink(scratch_path());
}

static void test_a_loaded_session_goes_on(void **state)
{
    (void)state;
    static const char *const models[] = {"llama", "deepseek2", "rwkv7"};
    for (size_t i = 0; i < ARRAY_LEN(models); i++) {
        check_resumed("ref", models[i], false);
        check_resumed("cpu", models[i], false);
        check_resumed("cpu", models[i], true);
    }
    check_resumed("emu", "llama", false);
    check_resumed("emu", "rwkv7", false);
}

static void write_file(const char *p, size_t n)
{
    FILE *f = fopen(scratch_path(), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(p, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void expect_refusal(struct opened *o, const char *part)
{
    char *note;
    size_t n;
    expect_error(fletch_session_load(o->s, scratch_path(), &note, &n), FLETCH_E_FORMAT,
                 fletch_session_error(o->s), part);
    assert_null(note);
    assert_int_equal(fletch_session_length(o->s), 0);
}

static void fix_checksum(char *p, size_t n)
{
    u64 sum = XXH3_64bits(p, n - sizeof sum);
    memcpy(p + n - sizeof sum, &sum, sizeof sum);
}

static void test_damaged_and_foreign_files_are_refused(void **state)
{
    (void)state;
    struct opened o, other;
    struct heard h = {.n = 0};
    struct err err;
    char *p, *note;
    size_t n, n_note;
    open_model(&o, "cpu", "llama", false);
    turn(&o, 5, &h);
    save(&o, "");
    assert_int_equal(file_read(&p, &n, scratch_path(), 1 << 24, &err), 0);
    for (size_t cut = 0; cut < n; cut += cut < 64 ? 1 : 997) { /* cut short */
        write_file(p, cut);
        expect_refusal(&o, "");
    }
    for (size_t i = 0; i < n; i += i < 64 ? 1 : 997) { /* one bit wrong */
        p[i] ^= 4;
        write_file(p, n);
        expect_refusal(&o, "");
        p[i] ^= 4;
    }
    i32 token = 1 << 20, was;
    memcpy(&was, p + 40, sizeof was); /* the first token */
    memcpy(p + 40, &token, sizeof token);
    fix_checksum(p, n);
    write_file(p, n);
    expect_refusal(&o, "token 1048576");
    memcpy(p + 40, &was, sizeof was);
    p[12]--; /* a token less, and so the note begins earlier */
    p[24] += 4;
    fix_checksum(p, n);
    write_file(p, n);
    assert_int_equal(fletch_session_load(o.s, scratch_path(), &note, &n_note), 0); /* is as good */
    assert_int_equal(n_note, 4);
    fletch_free(note);
    p[12]++;
    p[24] -= 4;
    fix_checksum(p, n);
    write_file(p, n);
    open_model(&other, "cpu", "qwen2", false);
    expect_refusal(&other, "another model");
    opened_close(&other);
    open_model(&other, "ref", "llama", false); /* rounds differently */
    expect_refusal(&other, "another model");
    opened_close(&other);
    assert_int_equal(fletch_session_load(o.s, scratch_path(), &note, &n_note), 0);
    fletch_free(note);
    assert_int_equal(fletch_session_load(o.s, "/nowhere/at/all", &note, &n_note), FLETCH_E_IO);
    assert_int_equal(fletch_session_save(o.s, "/nowhere/at/all", "", 0), FLETCH_E_IO);
    free(p);
    opened_close(&o);
    unlink(scratch_path());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_loaded_session_goes_on),
        cmocka_unit_test(test_damaged_and_foreign_files_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
