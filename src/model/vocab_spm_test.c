/* SentencePiece models: ids and texts as the library gives them (test/golden/spm), and damaged
 * files. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/file.h"
#include "model/vocab.h"

#define DIR_NAME "test/golden/spm"

static struct str base64_decode(struct arena *arena, const json_t *v)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *in = json_string_value(v);
    char *out = arena_alloc(arena, strlen(in) + 1, 1);
    u32 bits = 0, have = 0;
    size_t n = 0;
    for (; *in && *in != '='; in++) {
        bits = bits << 6 | (u32)(strchr(digits, *in) - digits);
        have += 6;
        if (have >= 8) {
            have -= 8;
            out[n++] = (char)(bits >> have);
        }
    }
    return (struct str){out, n};
}

static struct str read_model(struct arena *arena, const char *name)
{
    char path[256], *text;
    size_t n;
    snprintf(path, sizeof path, DIR_NAME "/%s.model", name);
    assert_int_equal(file_read(&text, &n, path, 1 << 20, NULL), 0);
    struct str s = {arena_copy(arena, (struct str){text, n}), n};
    free(text);
    return s;
}

static size_t check_cases(const char *name, const struct tok *t, const json_t *list)
{
    size_t n_bad = 0;
    for (size_t k = 0; k < json_array_size(list); k++) {
        const json_t *c = json_array_get(list, k), *want = json_object_get(c, "ids");
        struct arena arena = {0};
        struct str text = base64_decode(&arena, json_object_get(c, "text"));
        struct str decoded = base64_decode(&arena, json_object_get(c, "decoded"));
        struct tok_ids ids = {0};
        struct buf back = {0};
        struct err err = {0};
        if (tok_encode(t, text, NULL, 0, &ids, &err)) fail_msg("%s: %s", name, err.text);
        bool same = ids.n == json_array_size(want), unknown = false;
        for (size_t i = 0; i < ids.n && same; i++) {
            same = ids.p[i] == json_integer_value(json_array_get(want, i));
            unknown |= tok_type(t, ids.p[i]) == TOK_UNKNOWN; /* shown in another way there */
        }
        tok_decode(t, ids.p, ids.n, false, &back);
        if (!same || (!unknown && !str_eq(buf_str(&back), decoded))) {
            n_bad++;
            fprintf(stderr, "%s: %s\n  got ", name, QUOTE(text));
            for (size_t i = 0; i < ids.n; i++)
                fprintf(stderr, " %d=%s", ids.p[i], QUOTE(tok_text(t, ids.p[i])));
            fprintf(stderr, "\n  want");
            for (size_t i = 0; i < json_array_size(want); i++) {
                i32 id = (i32)json_integer_value(json_array_get(want, i));
                fprintf(stderr, " %d=%s", id, QUOTE(tok_text(t, id)));
            }
            fprintf(stderr, "\n  decoded %s, want %s\n", QUOTE(buf_str(&back)), QUOTE(decoded));
        }
        buf_free(&back);
        tok_ids_free(&ids);
        arena_free(&arena);
    }
    return n_bad;
}

static const char *const names[] = {"bpe",     "bpe-user",      "bpe-rules", "bpe-bare",
                                    "unigram", "unigram-bytes", "unigram-t5"};

static json_t *load_golden(const char *name)
{
    char path[256];
    snprintf(path, sizeof path, DIR_NAME "/%s.json", name);
    json_t *golden = json_load_file(path, 0, NULL);
    assert_non_null(golden);
    return golden;
}

/* As read from the file, and again after a way through GGUF's metadata. */
static void ids_equal_those_of_the_library(void **state)
{
    (void)state;
    size_t n_bad = 0;
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        json_t *golden = load_golden(names[i]);
        const json_t *special = json_object_get(golden, "special");
        struct vocab v = {0}, *again = NULL;
        struct err err = {0};
        struct source *s;
        if (vocab_read_spm(&v.spec, &v.arena, read_model(&v.arena, names[i]), false, &err) ||
            tok_open(&v.tok, &v.spec, &err))
            fail_msg("%s: %s", names[i], err.text);
        i64 ids[] = {v.spec.unk, v.spec.bos, v.spec.eos, v.spec.pad};
        for (size_t k = 0; k < ARRAY_LEN(ids); k++)
            assert_int_equal(ids[k], json_integer_value(json_array_get(special, k)));
        n_bad += check_cases(names[i], v.tok, json_object_get(golden, "cases"));
        assert_int_equal(source_new(&s, "made", NULL), 0);
        if (vocab_to_source(&v, s, &err) || vocab_load(&again, s, &err))
            fail_msg("%s: %s", names[i], err.text);
        source_close(s);
        n_bad += check_cases(names[i], again->tok, json_object_get(golden, "cases"));
        vocab_close(again);
        tok_close(v.tok);
        arena_free(&v.arena);
        json_decref(golden);
    }
    assert_int_equal(n_bad, 0);
}

/* Other engines' files say the same with three keys of their own. */
static void unigram_files_of_other_engines_are_read(void **state)
{
    (void)state;
    json_t *golden = load_golden("unigram-t5");
    struct arena arena = {0};
    struct tok_spec spec;
    struct source *s;
    struct vocab *v;
    struct err err = {0};
    struct str file = read_model(&arena, "unigram-t5");
    assert_int_equal(vocab_read_spm(&spec, &arena, file, false, &err), 0);
    i32 types[1024];
    for (u32 i = 0; i < spec.n_tokens; i++) types[i] = spec.types[i];
    /* The map as it stands in the JSON: found again by its base64. */
    json_t *norm = json_loadb(spec.normalizer.p, spec.normalizer.n, 0, NULL);
    json_t *map64 = json_object_get(norm, "precompiled_charsmap");
    struct str map = base64_decode(&arena, map64);
    assert_true(map.n > 100);
    source_new(&s, "made", NULL);
    source_add_str(s, "tokenizer.ggml.model", STR("t5"), NULL);
    source_add_strs(s, "tokenizer.ggml.tokens", spec.n_tokens, spec.tokens, NULL);
    source_add_array(s, "tokenizer.ggml.scores", KV_F32, spec.n_tokens, spec.scores,
                     spec.n_tokens * sizeof(float), NULL);
    source_add_array(s, "tokenizer.ggml.token_type", KV_I32, spec.n_tokens, types,
                     spec.n_tokens * sizeof(i32), NULL);
    source_add_array(s, "tokenizer.ggml.precompiled_charsmap", KV_U8, map.n, map.p, map.n, NULL);
    source_add_bool(s, "tokenizer.ggml.add_space_prefix", true, NULL);
    source_add_bool(s, "tokenizer.ggml.remove_extra_whitespaces", true, NULL);
    source_add_u32(s, "tokenizer.fletch.n_symbols", spec.n_tokens, NULL);
    if (vocab_load(&v, s, &err)) fail_msg("%s", err.text);
    assert_int_equal(v->spec.eos, 1);
    assert_int_equal(v->spec.unk, 2);
    assert_true(!tok_adds_bos(v->tok) && v->spec.bos == -1);
    assert_int_equal(check_cases("t5", v->tok, json_object_get(golden, "cases")), 0);
    vocab_close(v);
    source_close(s);
    json_decref(norm);
    json_decref(golden);
    arena_free(&arena);
}

static void expect_error(struct str file, int code, const char *part)
{
    struct arena arena = {0};
    struct tok_spec spec;
    struct err err = {0};
    int rc = vocab_read_spm(&spec, &arena, file, false, &err);
    if (rc != code || !strstr(err.text, part)) fail_msg("%d '%s', not '%s'", rc, err.text, part);
    arena_free(&arena);
}

#define FILE_OF(lit) ((struct str){(lit), sizeof(lit) - 1})
#define PIECE_A      "\n\x08\n\1a\x15\0\0\x80\xbf" /* "a", -1 */
#define BPE          "\x12\2\x18\2"

static void damaged_files_are_errors(void **state)
{
    (void)state;
    expect_error(FILE_OF(""), FLETCH_E_FORMAT, "0 pieces");
    expect_error(FILE_OF("{\"a\": 1}"), FLETCH_E_FORMAT, "damaged");
    expect_error(FILE_OF(BPE), FLETCH_E_FORMAT, "0 pieces");
    expect_error(FILE_OF("\n\x7f\n\1a"), FLETCH_E_FORMAT, "the file is damaged");
    expect_error(FILE_OF("\n\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02"), FLETCH_E_FORMAT, "damaged");
    expect_error(FILE_OF("\n\2\n\5"), FLETCH_E_FORMAT, "a piece is damaged");
    expect_error(FILE_OF("\n\4\n\1a\x13"), FLETCH_E_FORMAT, "a piece is damaged"); /* a group */
    expect_error(FILE_OF("\n\2\n\0"), FLETCH_E_FORMAT, "piece 0 has no text");
    expect_error(FILE_OF("\n\5\n\1a\x18\x09"), FLETCH_E_UNSUPPORTED, "unknown type 9");
    expect_error(FILE_OF("\n\x08\n\1a\x15\0\0\xc0\x7f"), FLETCH_E_FORMAT, "score of piece 0");
    expect_error(FILE_OF(PIECE_A "\x12\2\x18\3"), FLETCH_E_UNSUPPORTED, "type 3");
    expect_error(FILE_OF(PIECE_A "\x12\3\xc0\1\1"), FLETCH_E_UNSUPPORTED, "whitespace_as_suffix");
    expect_error(FILE_OF(PIECE_A "\x1a\2\x28\0"), FLETCH_E_UNSUPPORTED, "escape_whitespaces");
    expect_error(FILE_OF(PIECE_A "\x2a\3\x12\1x"), FLETCH_E_UNSUPPORTED, "denormalizer");
    expect_error(FILE_OF("\n\x0a\n\6<0x41>\x18\6"), FLETCH_E_FORMAT, "no byte_fallback");
    expect_error(FILE_OF(PIECE_A "\x12\1\x18"), FLETCH_E_FORMAT, "trainer_spec is damaged");
    expect_error(FILE_OF(PIECE_A "\x1a\1\x18"), FLETCH_E_FORMAT, "normalizer_spec is damaged");
    expect_error(FILE_OF(PIECE_A "\x2a\1\x18"), FLETCH_E_FORMAT, "denormalizer_spec is damaged");
}

/* Every beginning of a file, and every file with one byte changed, is read or refused. */
static void cut_and_changed_files_do_no_harm(void **state)
{
    (void)state;
    struct arena keep = {0};
    struct str file = read_model(&keep, "bpe-rules");
    char *bytes = malloc(file.n);
    size_t n_read = 0;
    for (size_t i = 0; i < file.n; i += 1 + i / 16) {
        for (int cut = 0; cut < 2; cut++) {
            struct arena arena = {0};
            struct tok_spec spec;
            struct tok *t;
            struct tok_ids ids = {0};
            memcpy(bytes, file.p, file.n);
            bytes[i] = (char)(bytes[i] ^ 0x41);
            struct str s = {bytes, cut ? i : file.n};
            if (!vocab_read_spm(&spec, &arena, s, false, NULL) && !tok_open(&t, &spec, NULL)) {
                tok_encode(t, STR("AB the\tfi x\xff<tool>"), NULL, TOK_SPECIAL, &ids, NULL);
                tok_ids_free(&ids);
                tok_close(t);
                n_read++;
            }
            arena_free(&arena);
        }
    }
    assert_true(n_read > 0);
    free(bytes);
    arena_free(&keep);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_equal_those_of_the_library),
        cmocka_unit_test(unigram_files_of_other_engines_are_read),
        cmocka_unit_test(damaged_files_are_errors),
        cmocka_unit_test(cut_and_changed_files_do_no_harm),
    };
    return cmocka_run_group_tests_name("vocab_spm", tests, NULL, NULL);
}
