/* Ids as the tokenizers and sentencepiece libraries give them, on vocabularies of our own:
 * test/golden/tok/NAME/ has tokenizer.json (or spec.json) and cases.json. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/tok_internal.h"

#define DIR_NAME "test/golden/tok"

static json_t *load(const char *name, const char *file)
{
    char path[512];
    snprintf(path, sizeof path, DIR_NAME "/%s/%s", name, file);
    return json_load_file(path, 0, NULL);
}

/* {"model", "tokens", "types", "scores"}: what a GGUF file would hold. */
static void spec_from_lists(struct tok_spec *spec, struct arena *arena, const json_t *v)
{
    const json_t *tokens = json_object_get(v, "tokens"), *types = json_object_get(v, "types");
    const json_t *scores = json_object_get(v, "scores");
    u32 n = (u32)json_array_size(tokens);
    struct str *texts = arena_alloc(arena, n, sizeof *texts);
    u8 *kinds = arena_alloc(arena, n, 1);
    float *points = arena_alloc(arena, n, sizeof *points);
    for (u32 i = 0; i < n; i++) {
        const json_t *t = json_array_get(tokens, i);
        struct str s = {json_string_value(t), json_string_length(t)};
        texts[i] = (struct str){arena_copy(arena, s), s.n};
        kinds[i] = (u8)json_integer_value(json_array_get(types, i));
        points[i] = (float)json_number_value(json_array_get(scores, i));
    }
    tok_spec_init(spec);
    spec->kind = scores ? TOK_SPM : TOK_RWKV;
    spec->n_tokens = n;
    spec->tokens = texts;
    spec->types = kinds;
    spec->scores = points;
    tok_spec_gguf_ids(spec);
}

static struct tok *open_vocabulary(const char *name, struct arena *arena)
{
    struct tok_spec spec;
    struct tok *t = NULL;
    struct err err = {0};
    json_t *lists = load(name, "spec.json");
    if (lists) {
        spec_from_lists(&spec, arena, lists);
    } else {
        json_t *tokenizer = load(name, "tokenizer.json"),
               *config = load(name, "tokenizer_config.json");
        assert_non_null(tokenizer);
        if (tok_spec_from_json(&spec, arena, tokenizer, config, (struct str){0}, &err))
            fail_msg("%s: %s", name, err.text);
        json_decref(tokenizer);
        json_decref(config);
    }
    json_decref(lists);
    if (tok_open(&t, &spec, &err)) fail_msg("%s: %s", name, err.text);
    return t;
}

static size_t base64_decode(const char *in, u8 *out)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    u32 bits = 0, have = 0;
    size_t n = 0;
    for (; *in && *in != '='; in++) {
        bits = bits << 6 | (u32)(strchr(digits, *in) - digits);
        have += 6;
        if (have >= 8) {
            have -= 8;
            out[n++] = (u8)(bits >> have);
        }
    }
    return n;
}

static bool same_ids(const struct tok_ids *got, const json_t *want)
{
    if (got->n != json_array_size(want)) return false;
    for (size_t i = 0; i < got->n; i++)
        if (got->p[i] != json_integer_value(json_array_get(want, i))) return false;
    return true;
}

static void print_difference(const char *name, size_t k, struct str text, const struct tok_ids *got,
                             const json_t *want)
{
    fprintf(stderr, "%s case %zu: %s\n  got ", name, k, QUOTE(text));
    for (size_t i = 0; i < got->n && i < 60; i++) fprintf(stderr, " %d", got->p[i]);
    fprintf(stderr, "\n  want");
    for (size_t i = 0; i < json_array_size(want) && i < 60; i++)
        fprintf(stderr, " %d", (int)json_integer_value(json_array_get(want, i)));
    fprintf(stderr, "\n");
}

/* Where encoding loses nothing, decoding gives the text back. */
static bool same_text(const struct tok *t, struct str text, const struct tok_ids *ids, bool special)
{
    bool spm = t->spec.kind == TOK_SPM;
    if (t->spec.norm || (spm && (special || memmem(text.p, text.n, TOK_SPACE, 3)))) return true;
    struct buf back = {0};
    tok_decode(t, ids->p, ids->n, special, &back);
    bool same = str_eq(buf_str(&back), text);
    buf_free(&back);
    return same;
}

/* Encodes every case; returns how many differ. */
static size_t check_vocabulary(const char *name)
{
    struct arena arena = {0};
    struct tok *t = open_vocabulary(name, &arena);
    json_t *cases = load(name, "cases.json");
    size_t n = json_array_size(cases), n_bad = 0;
    assert_true(n > 20);
    for (size_t k = 0; k < n; k++) {
        const json_t *c = json_array_get(cases, k), *want = json_object_get(c, "ids");
        const char *b64 = json_string_value(json_object_get(c, "text_b64"));
        struct tok_ids got = {0};
        struct err err = {0};
        u8 *text = malloc(strlen(b64) + 1);
        struct str s = {(char *)text, base64_decode(b64, text)};
        bool special = json_is_true(json_object_get(c, "special"));
        bool bos = json_is_true(json_object_get(c, "bos"));
        unsigned flags = (special ? TOK_SPECIAL : 0) | (bos ? TOK_ADD_BOS : 0);
        if (tok_encode(t, s, NULL, flags, &got, &err)) fail_msg("%s: %s", name, err.text);
        if (!same_ids(&got, want) || (!bos && !same_text(t, s, &got, special))) {
            print_difference(name, k, s, &got, want);
            n_bad++;
        }
        free(text);
        tok_ids_free(&got);
    }
    json_decref(cases);
    tok_close(t);
    arena_free(&arena);
    return n_bad;
}

static void test_ids_equal_those_of_the_libraries(void **state)
{
    (void)state;
    size_t n_folders = 0, n_bad = 0;
    DIR *dir = opendir(DIR_NAME);
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        if (e->d_name[0] == '.') continue;
        n_bad += check_vocabulary(e->d_name);
        n_folders++;
    }
    closedir(dir);
    assert_true(n_folders > 0);
    assert_int_equal(n_bad, 0);
}

/* Random pieces of a vocabulary, or one of them again and again, as one long piece. */
static struct str make_piece(const struct tok *t, u32 *random, char *text, size_t cap)
{
    struct str s = {text, 0};
    u32 id = 0, again = 0;
    for (;;) {
        *random = *random * 1664525 + 1013904223;
        if (!again) id = (*random >> 8) % t->spec.n_tokens;
        again = again ? again - 1 : *random >> 29 ? 0 : 50;
        struct str piece = t->spec.kind == TOK_SPM ? t->spec.tokens[id] : t->pieces[id];
        if (s.n + piece.n > cap) return s;
        memcpy(text + s.n, piece.p, piece.n);
        s.n += piece.n;
    }
}

static void check_windows(const char *name)
{
    enum { N_TEXTS = 12, N_BYTES = 3000 };
    struct arena arena = {0};
    struct tok *t = open_vocabulary(name, &arena);
    struct tok_merger merger = {0};
    u32 random = 1;
    char text[N_BYTES];
    for (int i = 0; i < N_TEXTS && t->spec.kind != TOK_RWKV; i++) {
        struct str piece = make_piece(t, &random, text, sizeof text);
        struct tok_ids whole = {0};
        struct err err = {0};
        int rc = tok_merge_windows(t, &merger, piece, N_BYTES, &whole, &err);
        for (size_t window = 4; window < N_BYTES; window *= 3) {
            struct tok_ids ids = {0};
            assert_int_equal(tok_merge_windows(t, &merger, piece, window, &ids, &err), rc);
            if (!rc && (ids.n != whole.n || memcmp(ids.p, whole.p, ids.n * sizeof *ids.p) != 0))
                fail_msg("%s: windows of %zu bytes give other tokens", name, window);
            tok_ids_free(&ids);
        }
        tok_ids_free(&whole);
    }
    tok_merger_free(&merger);
    tok_close(t);
    arena_free(&arena);
}

static void test_windows_of_a_piece_give_its_tokens(void **state)
{
    (void)state;
    DIR *dir = opendir(DIR_NAME);
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));)
        if (e->d_name[0] != '.') check_windows(e->d_name);
    closedir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ids_equal_those_of_the_libraries),
        cmocka_unit_test(test_windows_of_a_piece_give_its_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
