#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "text/tok_sample.h"

static struct tok *open_sample(const struct sample *s)
{
    struct tok *t;
    struct err err = {0};
    if (tok_open(&t, &s->spec, &err)) fail_msg("%s", err.text);
    return t;
}

/* The ids as text: "[3 17]". */
static struct buf encode(const struct tok *t, struct str text, const u8 *from_user, unsigned flags)
{
    struct tok_ids ids = {0};
    struct buf b = {0};
    struct err err = {0};
    if (tok_encode(t, text, from_user, flags, &ids, &err)) fail_msg("%s", err.text);
    buf_puts(&b, "");
    for (size_t i = 0; i < ids.n; i++) {
        struct str s = tok_text(t, ids.p[i]);
        if (i) buf_putc(&b, '|');
        buf_put(&b, s.p, s.n);
    }
    tok_ids_free(&ids);
    return b;
}

/* Compares the stored texts of the ids, joined by |. */
static void assert_tokens(const struct tok *t, const char *text, unsigned flags, const char *want)
{
    struct buf b = encode(t, str_of(text), NULL, flags);
    assert_string_equal(b.p, want);
    buf_free(&b);
}

static void assert_round_trip(const struct tok *t, struct str text)
{
    struct tok_ids ids = {0};
    struct buf b = {0};
    struct err err = {0};
    if (tok_encode(t, text, NULL, 0, &ids, &err)) fail_msg("%s", err.text);
    tok_decode(t, ids.p, ids.n, false, &b);
    assert_int_equal(b.n, text.n);
    assert_memory_equal(b.p, text.p, text.n);
    buf_free(&b);
    tok_ids_free(&ids);
}

static void test_bpe_merges_by_rank_inside_pieces(void **state)
{
    (void)state;
    struct sample s;
    sample_bpe(&s, "gpt-2");
    struct tok *t = open_sample(&s);
    assert_tokens(t, "hello world", 0, "hello|Ġwor|ld");
    assert_tokens(t, "aaaaaaa", 0, "aaaa|aa|a");
    assert_tokens(t, "", 0, "");
    assert_tokens(t, "orphan", 0, "or|p|h|a|n");
    tok_close(t);
    sample_free(&s);
}

static void test_ignore_merges_takes_a_whole_piece_that_is_a_token(void **state)
{
    (void)state;
    struct sample s;
    sample_bpe(&s, "gpt-2");
    s.spec.ignore_merges = 1;
    struct tok *t = open_sample(&s);
    assert_tokens(t, "orphan orphan", 0, "orphan|Ġ|or|p|h|a|n");
    tok_close(t);
    s.spec.pre = STR("llama-bpe");
    s.spec.ignore_merges = -1;
    t = open_sample(&s);
    assert_tokens(t, "orphan", 0, "orphan");
    tok_close(t);
    sample_free(&s);
}

static void test_spm_merges_by_score_and_falls_back_to_bytes(void **state)
{
    (void)state;
    struct sample s;
    sample_spm(&s);
    struct tok *t = open_sample(&s);
    assert_tokens(t, "the inn", 0, "▁the|▁|in|n");
    assert_tokens(t, "", 0, "");
    assert_tokens(t, " a", 0, "▁▁|a");
    assert_tokens(t, "中中q", 0, "▁|中中|<0x71>");
    assert_tokens(t, "\u00e9", 0, "▁|<0xC3>|<0xA9>");
    assert_tokens(t, "aaa", 0, "▁|aa|a");
    assert_tokens(t, "b<s>", TOK_SPECIAL | TOK_ADD_BOS, "<s>|▁|b|<s>");
    assert_tokens(t, "b<s>b", TOK_SPECIAL, "▁|b|<s>|▁|b");
    tok_close(t);
    sample_free(&s);
}

static void test_spm_space_prefix_modes(void **state)
{
    (void)state;
    static const char *const want[][2] = {
        [TOK_PREFIX_NEVER] = {"b|<s>|b", "▁|b"},
        [TOK_PREFIX_ALWAYS] = {"▁|b|<s>|▁|b", "▁▁|b"},
        [TOK_PREFIX_UNLESS_SPACE] = {"▁|b|<s>|▁|b", "▁|b"},
        [TOK_PREFIX_FIRST] = {"▁|b|<s>|b", "▁|b"},
    };
    struct sample s;
    sample_spm(&s);
    for (int mode = TOK_PREFIX_NEVER; mode <= TOK_PREFIX_FIRST; mode++) {
        s.spec.add_space_prefix = mode;
        struct tok *t = open_sample(&s);
        assert_tokens(t, "b<s>b", TOK_SPECIAL, want[mode][0]);
        assert_tokens(t, " b", 0, want[mode][1]);
        tok_close(t);
    }
    sample_free(&s);
}

static void test_spm_with_merges_follows_them_and_not_the_scores(void **state)
{
    (void)state;
    struct sample s;
    struct str merges[] = {STR("h e"), STR("▁ t")};
    sample_spm(&s);
    s.spec.merges = merges;
    s.spec.n_merges = 2;
    struct tok *t = open_sample(&s);
    assert_tokens(t, "the inn", 0, "▁t|he|▁|i|n|n");
    tok_close(t);
    sample_free(&s);
}

static void test_spm_without_byte_tokens_says_unknown_once_per_run(void **state)
{
    (void)state;
    struct sample s;
    sample_new(&s, TOK_SPM);
    sample_add(&s, STR("<unk>"), TOK_UNKNOWN, 0);
    sample_add(&s, STR("▁"), TOK_NORMAL, -1);
    sample_add(&s, STR("b"), TOK_NORMAL, -2);
    s.spec.unk = 0;
    struct tok *t = open_sample(&s);
    assert_tokens(t, "xybx", 0, "▁|<unk>|b|<unk>");
    tok_close(t);
    s.spec.unk = -1;
    t = open_sample(&s);
    struct tok_ids ids = {0};
    struct err err;
    assert_int_equal(tok_encode(t, STR("bx"), NULL, 0, &ids, &err), FLETCH_E_ARG);
    assert_int_equal(ids.n, 0);
    tok_ids_free(&ids);
    tok_close(t);
    sample_free(&s);
}

static void test_rwkv_takes_the_longest_match_over_unescaped_bytes(void **state)
{
    (void)state;
    struct sample s;
    sample_rwkv(&s);
    struct tok *t = open_sample(&s);
    assert_tokens(t, "abcd\nabc", 0, "abcd\\n|ab|\\x63");
    assert_tokens(t, "\\'\t\r", 0, "\\\\\\'\\t\\r");
    assert_tokens(t, "\xe4\xb8\xad", 0, "\\xe4\\xb8|\\xad");
    assert_tokens(t, "<s>", 0, "\\x3c|\\x73|\\x3e");
    assert_tokens(t, "<s>", TOK_SPECIAL, "<s>");
    assert_tokens(t, "[P", 0, "\\x5b|\\x50");
    assert_int_equal(tok_piece(t, 0, false).n, 0);
    assert_int_equal(tok_piece(t, (i32)tok_size(t) - 1, true).n, 0);
    tok_close(t);
    sample_free(&s);
}

static void test_control_tokens_are_found_only_when_asked(void **state)
{
    (void)state;
    struct sample s;
    sample_bpe(&s, "gpt-2");
    struct tok *t = open_sample(&s);
    assert_tokens(t, "a<|im_end|>a", TOK_SPECIAL, "a|<|im_end|>|a");
    assert_tokens(t, "1<think>1", 0, "1|<think>|1");
    struct buf plain = encode(t, STR("a<|im_end|>a"), NULL, 0);
    assert_null(strstr(plain.p, "<|im_end|>"));
    buf_free(&plain);
    tok_close(t);
    sample_free(&s);
}

static void test_no_byte_of_the_users_takes_part_in_a_control_token(void **state)
{
    (void)state;
    struct sample s;
    sample_bpe(&s, "gpt-2");
    struct tok *t = open_sample(&s);
    struct str text = STR("<|im_end|><|im_end|><think>");
    u8 mask[27];
    for (size_t i = 0; i < 10; i++) {
        memset(mask, 0, sizeof mask);
        memset(mask + 20, 1, 7);
        mask[i] = 1;
        struct buf b = encode(t, text, mask, TOK_SPECIAL);
        const char *hit = strstr(b.p, "<|im_end|>");
        assert_non_null(hit);
        assert_string_equal(hit, "<|im_end|>|<think>");
        buf_free(&b);
    }
    tok_close(t);
    sample_free(&s);
}

/* "<|im_end|>" can't come out of merges either, even where a file has them. */
static void test_merges_never_make_a_control_token(void **state)
{
    (void)state;
    struct sample s;
    struct str merges[] = {STR("a a"), STR("aa aa")};
    sample_bpe(&s, "gpt-2");
    s.spec.merges = merges;
    s.spec.n_merges = 2;
    s.spec.ignore_merges = 1;
    for (u32 i = 0; i < s.spec.n_tokens; i++)
        if (str_is(s.tokens[i], "aaaa")) s.types[i] = TOK_CONTROL;
    struct tok *t = open_sample(&s);
    assert_tokens(t, "aaaa", 0, "aa|aa");
    assert_tokens(t, "aaaa", TOK_SPECIAL, "aaaa");
    tok_close(t);
    sample_free(&s);
    sample_spm(&s);
    for (u32 i = 0; i < s.spec.n_tokens; i++)
        if (str_is(s.tokens[i], "aaaa")) s.types[i] = TOK_CONTROL;
    t = open_sample(&s);
    assert_tokens(t, "aaaa", 0, "▁|aa|aa");
    tok_close(t);
    sample_free(&s);
}

static void test_the_leftmost_longest_special_wins(void **state)
{
    (void)state;
    struct sample s;
    sample_bpe(&s, "gpt-2");
    sample_add(&s, STR("<x"), TOK_USER, 0);
    sample_add(&s, STR("<xyz>"), TOK_USER, 0);
    sample_add(&s, STR("xyz>11"), TOK_USER, 0);
    struct tok *t = open_sample(&s);
    assert_tokens(t, "<xyz>11", 0, "<xyz>|11");
    assert_tokens(t, "<xyz", 0, "<x|y|z");
    tok_close(t);
    sample_free(&s);
}

static void test_text_is_normalised_between_specials_only(void **state)
{
    (void)state;
    struct sample s;
    sample_bpe(&s, "gpt-2");
    sample_add(&s, STR("<e\u0301>"), TOK_USER, 0);
    s.spec.norm = TOK_NORM_NFC;
    struct tok *t = open_sample(&s);
    assert_tokens(t, "e\u0301<e\u0301>", 0, "Ã|©|<e\u0301>");
    tok_close(t);
    sample_free(&s);
}

static void test_bos_and_eos_come_where_the_vocabulary_wants_them(void **state)
{
    (void)state;
    struct sample s;
    sample_spm(&s);
    struct tok *t = open_sample(&s);
    assert_true(tok_adds_bos(t));
    assert_tokens(t, "b", 0, "▁|b");
    assert_tokens(t, "b", TOK_ADD_BOS, "<s>|▁|b");
    tok_close(t);
    s.spec.add_bos = 0;
    s.spec.add_eos = 1;
    t = open_sample(&s);
    assert_tokens(t, "b", TOK_ADD_BOS, "▁|b|</s>");
    tok_close(t);
    s.spec.add_bos = 1;
    s.spec.bos = s.spec.n_tokens;
    t = open_sample(&s);
    assert_false(tok_adds_bos(t));
    assert_int_equal(tok_bos(t), -1);
    assert_string_equal(tok_text(t, tok_bos(t)).p, "");
    tok_close(t);
    sample_free(&s);
}

static void test_gguf_files_leave_ids_unsaid(void **state)
{
    (void)state;
    struct tok_spec spec;
    tok_spec_init(&spec);
    spec.kind = TOK_BPE;
    tok_spec_gguf_ids(&spec);
    assert_int_equal(spec.bos, 11);
    spec.pre = STR("glm4");
    tok_spec_gguf_ids(&spec);
    assert_int_equal(spec.bos, -1);
    assert_int_equal(spec.eos, 11);
    tok_spec_init(&spec);
    spec.kind = TOK_RWKV;
    tok_spec_gguf_ids(&spec);
    assert_int_equal(spec.bos, -1);
    assert_int_equal(spec.eos, -1);
}

static void test_pieces_are_raw_bytes(void **state)
{
    (void)state;
    struct sample s;
    sample_bpe(&s, "gpt-2");
    struct tok *t = open_sample(&s);
    for (i32 b = 0; b < 256; b++) {
        assert_int_equal(tok_piece(t, b, false).n, 1);
        assert_int_equal((u8)tok_piece(t, b, false).p[0], b);
    }
    i32 end = tok_find(t, STR("<|im_end|>"));
    assert_int_equal(tok_piece(t, end, false).n, 0);
    assert_true(str_is(tok_piece(t, end, true), "<|im_end|>"));
    assert_true(str_is(tok_piece(t, tok_find(t, STR("Ġwor")), false), " wor"));
    assert_true(str_is(tok_piece(t, tok_find(t, STR("<think>")), false), "<think>"));
    assert_int_equal(tok_piece(t, tok_find(t, STR("[PAD281]")), true).n, 0);
    assert_int_equal(tok_piece(t, -1, true).n, 0);
    assert_int_equal(tok_piece(t, (i32)tok_size(t), true).n, 0);
    tok_close(t);
    sample_free(&s);
}

static void test_decoding_drops_the_space_that_encoding_put_in_front(void **state)
{
    (void)state;
    struct sample s;
    sample_spm(&s);
    struct tok *t = open_sample(&s);
    i32 ids[] = {1, tok_find(t, STR("▁the")), tok_find(t, STR("▁a")), 13};
    struct buf b = {0};
    tok_decode(t, ids + 1, 3, false, &b);
    assert_string_equal(b.p, "the a\n");
    buf_free(&b);
    tok_decode(t, ids, 4, false, &b);
    assert_string_equal(b.p, " the a\n");
    buf_free(&b);
    tok_decode(t, ids, 4, true, &b);
    assert_string_equal(b.p, "<s> the a\n");
    buf_free(&b);
    tok_close(t);
    sample_free(&s);
}

static void test_the_end_of_generation_set(void **state)
{
    (void)state;
    struct sample s;
    sample_bpe(&s, "gpt-2");
    i32 user = sample_add(&s, STR("<|user|>"), TOK_CONTROL, 0);
    i32 fim = sample_add(&s, STR("<|fim_pad|>"), TOK_CONTROL, 0);
    i32 end = sample_add(&s, STR("<|end|>"), TOK_CONTROL, 0);
    i32 back = sample_add(&s, STR("<|return|>"), TOK_CONTROL, 0);
    s.spec.eos = 7;
    struct tok *t = open_sample(&s);
    i32 im_end = tok_find(t, STR("<|im_end|>"));
    assert_true(tok_is_eog(t, 7) && tok_is_eog(t, fim) && tok_is_eog(t, im_end));
    assert_true(tok_is_eog(t, end) && tok_is_eog(t, back));
    assert_false(tok_is_eog(t, user) || tok_is_eog(t, 8) || tok_is_eog(t, -1));
    assert_false(tok_is_eog(t, (i32)tok_size(t)));
    assert_int_equal(tok_eot(t), im_end);
    tok_close(t);
    sample_add(&s, STR("<|call|>"), TOK_CONTROL, 0);
    s.spec.eot = user;
    t = open_sample(&s);
    assert_false(tok_is_eog(t, end));
    assert_true(tok_is_eog(t, user));
    assert_int_equal(tok_eot(t), user);
    tok_close(t);
    sample_free(&s);
}

static void test_a_file_without_vocabulary_knows_ids_only(void **state)
{
    (void)state;
    struct tok_spec spec;
    struct tok *t;
    struct err err;
    struct tok_ids ids = {0};
    tok_spec_init(&spec);
    spec.n_tokens = 100;
    spec.eos = 5;
    assert_int_equal(tok_open(&t, &spec, &err), 0);
    assert_int_equal(tok_size(t), 100);
    assert_true(tok_is_eog(t, 5));
    assert_int_equal(tok_piece(t, 5, true).n, 0);
    assert_int_equal(tok_encode(t, STR("x"), NULL, 0, &ids, &err), FLETCH_E_VOCAB);
    tok_close(t);
}

static void assert_refused(const struct sample *s, int code, const char *word)
{
    struct tok *t;
    struct err err = {0};
    assert_int_equal(tok_open(&t, &s->spec, &err), code);
    assert_null(t);
    assert_non_null(strstr(err.text, word));
}

static void test_bad_vocabularies_are_refused_with_a_reason(void **state)
{
    (void)state;
    struct sample s;
    sample_bpe(&s, "no-such-pre");
    assert_refused(&s, FLETCH_E_UNSUPPORTED, "'no-such-pre'");
    s.spec.pre = STR("gpt-2");
    struct str merges[] = {STR("h e"), STR("hello")};
    s.spec.merges = merges;
    s.spec.n_merges = 2;
    assert_refused(&s, FLETCH_E_FORMAT, "merge 1 is 'hello'");
    merges[1] = STR("hello ");
    assert_refused(&s, FLETCH_E_FORMAT, "merge 1");
    s.spec.n_merges = 1;
    char longest[TOK_MAX_WORD + 2];
    memset(longest, 'x', sizeof longest);
    sample_add(&s, (struct str){longest, TOK_MAX_WORD + 1}, TOK_CONTROL, 0);
    assert_refused(&s, FLETCH_E_LIMIT, "1025 bytes");
    s.spec.n_tokens = 0;
    assert_refused(&s, FLETCH_E_FORMAT, "0 tokens");
    sample_free(&s);
    sample_spm(&s);
    s.spec.scores = NULL;
    assert_refused(&s, FLETCH_E_FORMAT, "no scores");
    sample_free(&s);
}

static void test_scores_of_any_value_are_ordered(void **state)
{
    (void)state;
    struct sample s;
    sample_new(&s, TOK_SPM);
    static const char *const chars[] = {"▁", "a", "b", "c", "d", "e"};
    for (size_t i = 0; i < ARRAY_LEN(chars); i++) sample_add(&s, str_of(chars[i]), TOK_NORMAL, 0);
    sample_add(&s, STR("ab"), TOK_NORMAL, -INFINITY);
    sample_add(&s, STR("bc"), TOK_NORMAL, -3);
    sample_add(&s, STR("cd"), TOK_NORMAL, 2);
    sample_add(&s, STR("de"), TOK_NORMAL, NAN);
    s.spec.add_space_prefix = 0;
    struct tok *t = open_sample(&s);
    assert_tokens(t, "abc", 0, "a|bc");
    assert_tokens(t, "bcd", 0, "b|cd");
    assert_tokens(t, "abcde", 0, "ab|cd|e");
    assert_tokens(t, "de", 0, "d|e");
    tok_close(t);
    sample_free(&s);
}

/* All byte values, cut characters, surrogates: nothing is lost in any kind. */
static void test_invalid_utf8_survives_a_round_trip(void **state)
{
    (void)state;
    static const char *const pres[] = {"gpt-2", "llama-bpe", "qwen2", "tekken", "deepseek-llm"};
    char all[4096];
    u32 x = 1;
    for (size_t i = 0; i < sizeof all; i++) {
        x = x * 1664525 + 1013904223;
        all[i] = (char)(i < 256 ? i : i < 512 ? 511 - i : x >> 24);
    }
    struct str text = {all, sizeof all};
    struct sample s;
    for (size_t i = 0; i < ARRAY_LEN(pres); i++) {
        sample_bpe(&s, pres[i]);
        struct tok *t = open_sample(&s);
        assert_round_trip(t, text);
        assert_round_trip(t, STR("\xe4\xb8 \xed\xa0\x80\xf0\x9f\x99"));
        tok_close(t);
        sample_free(&s);
    }
    sample_spm(&s);
    struct tok *t = open_sample(&s);
    assert_round_trip(t, text);
    assert_round_trip(t, STR("\xe2 a\xe2\x96 "));
    tok_close(t);
    sample_free(&s);
    sample_rwkv(&s);
    t = open_sample(&s);
    assert_round_trip(t, text);
    tok_close(t);
    sample_free(&s);
}

/* Quadratic behaviour would take minutes here. */
static void test_a_megabyte_of_one_character_takes_linear_time(void **state)
{
    (void)state;
    static const char *const pres[] = {"deepseek-llm", "tekken", "smollm", "spm"};
    static const char fill[] = " aA1\n";
    size_t n = 1 << 20;
    char *text = malloc(n);
    assert_non_null(text);
    clock_t start = clock();
    for (size_t i = 0; i < ARRAY_LEN(pres); i++) {
        struct sample s;
        if (i < 3)
            sample_bpe(&s, pres[i]);
        else
            sample_spm(&s);
        struct tok *t = open_sample(&s);
        for (const char *c = fill; *c; c++) {
            memset(text, *c, n - 1);
            text[n - 1] = 'x';
            assert_round_trip(t, (struct str){text, n});
        }
        tok_close(t);
        sample_free(&s);
    }
    assert_true(clock() - start < 60 * CLOCKS_PER_SEC);
    free(text);
}

static void *encode_many(void *ctx)
{
    for (int i = 0; i < 50; i++) {
        struct buf b = encode(ctx, STR("hello world, it's 1111 o'clock"), NULL, TOK_SPECIAL);
        if (!strstr(b.p, "hello|Ġwor|ld")) return ctx;
        buf_free(&b);
    }
    return NULL;
}

static void test_threads_share_an_open_tokenizer(void **state)
{
    (void)state;
    struct sample s;
    sample_bpe(&s, "smollm");
    s.spec.norm = TOK_NORM_NFC;
    struct tok *t = open_sample(&s);
    pthread_t threads[4];
    for (size_t i = 0; i < ARRAY_LEN(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, encode_many, t), 0);
    for (size_t i = 0; i < ARRAY_LEN(threads); i++) {
        void *failed;
        assert_int_equal(pthread_join(threads[i], &failed), 0);
        assert_null(failed);
    }
    tok_close(t);
    sample_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bpe_merges_by_rank_inside_pieces),
        cmocka_unit_test(test_ignore_merges_takes_a_whole_piece_that_is_a_token),
        cmocka_unit_test(test_spm_merges_by_score_and_falls_back_to_bytes),
        cmocka_unit_test(test_spm_space_prefix_modes),
        cmocka_unit_test(test_spm_with_merges_follows_them_and_not_the_scores),
        cmocka_unit_test(test_spm_without_byte_tokens_says_unknown_once_per_run),
        cmocka_unit_test(test_rwkv_takes_the_longest_match_over_unescaped_bytes),
        cmocka_unit_test(test_control_tokens_are_found_only_when_asked),
        cmocka_unit_test(test_no_byte_of_the_users_takes_part_in_a_control_token),
        cmocka_unit_test(test_merges_never_make_a_control_token),
        cmocka_unit_test(test_the_leftmost_longest_special_wins),
        cmocka_unit_test(test_text_is_normalised_between_specials_only),
        cmocka_unit_test(test_bos_and_eos_come_where_the_vocabulary_wants_them),
        cmocka_unit_test(test_gguf_files_leave_ids_unsaid),
        cmocka_unit_test(test_pieces_are_raw_bytes),
        cmocka_unit_test(test_decoding_drops_the_space_that_encoding_put_in_front),
        cmocka_unit_test(test_the_end_of_generation_set),
        cmocka_unit_test(test_a_file_without_vocabulary_knows_ids_only),
        cmocka_unit_test(test_bad_vocabularies_are_refused_with_a_reason),
        cmocka_unit_test(test_scores_of_any_value_are_ordered),
        cmocka_unit_test(test_invalid_utf8_survives_a_round_trip),
        cmocka_unit_test(test_threads_share_an_open_tokenizer),
        cmocka_unit_test(test_a_megabyte_of_one_character_takes_linear_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
