#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/tok_internal.h"

#define BYTE_LEVEL "'pre_tokenizer':{'type':'ByteLevel','add_prefix_space':false,'use_regex':true}"
#define LLAMA2                                                                           \
    "'normalizer':{'type':'Sequence','normalizers':[{'type':'Prepend','prepend':'▁'}," \
    "{'type':'Replace','pattern':{'String':' '},'content':'▁'}]},'pre_tokenizer':null"
#define AB "'model':{'type':'BPE','vocab':{'a':0,'b':1,'ab':2},'merges':['a b']}"
#define SPM_AB                                                                                   \
    "'model':{'type':'BPE','vocab':{'<unk>':0,'▁':1,'a':2,'b':3,'ab':4,'▁ab':5,'<0x0A>':6}," \
    "'unk_token':'<unk>','byte_fallback':true,'merges':[['a','b'],['▁','ab']]}"

/* JSON with ' for ", so that it can be read here. */
static json_t *parse(const char *z)
{
    char *p = strdup(z);
    for (char *c = p; *c; c++)
        if (*c == '\'') *c = '"';
    json_error_t e;
    json_t *v = json_loads(p, 0, &e);
    if (!v) fail_msg("%s: %s", p, e.text);
    free(p);
    return v;
}

static int read_json(struct tok_spec *spec, struct arena *arena, const char *tokenizer,
                     const char *config, struct str chat_template, struct err *err)
{
    json_t *t = parse(tokenizer), *c = config ? parse(config) : NULL;
    int rc = tok_spec_from_json(spec, arena, t, c, chat_template, err);
    json_decref(t);
    json_decref(c);
    return rc;
}

static void accept(struct tok_spec *spec, struct arena *arena, const char *tokenizer,
                   const char *config)
{
    struct err err = {0};
    struct tok *t;
    if (read_json(spec, arena, tokenizer, config, (struct str){0}, &err))
        fail_msg("%s: %s", tokenizer, err.text);
    if (tok_open(&t, spec, &err)) fail_msg("%s: %s", tokenizer, err.text);
    tok_close(t);
}

static void assert_refused(const char *tokenizer, int code, const char *word)
{
    struct tok_spec spec;
    struct arena arena = {0};
    struct err err = {0};
    assert_int_equal(read_json(&spec, &arena, tokenizer, NULL, (struct str){0}, &err), code);
    if (!strstr(err.text, word)) fail_msg("'%s' is not in: %s", word, err.text);
    arena_free(&arena);
}

static void test_byte_level_bpe_is_recognised(void **state)
{
    (void)state;
    struct tok_spec spec;
    struct arena arena = {0};
    accept(&spec, &arena, "{" BYTE_LEVEL "," AB "}", NULL);
    assert_int_equal(spec.kind, TOK_BPE);
    assert_true(str_is(spec.pre, "gpt-2"));
    assert_int_equal(spec.n_tokens, 3);
    assert_int_equal(spec.n_merges, 1);
    assert_int_equal(spec.ignore_merges, 0);
    assert_int_equal(spec.add_bos, 0);
    assert_int_equal(spec.bos, -1);
    assert_null(spec.chat_template.p);
    arena_free(&arena);
}

static void test_pre_tokenizer_sequences_get_their_names(void **state)
{
    (void)state;
    struct tok_spec spec;
    struct arena arena = {0};
    accept(&spec, &arena,
           "{'pre_tokenizer':{'type':'Sequence','pretokenizers':["
           "{'type':'Digits','individual_digits':true},"
           "{'type':'ByteLevel','add_prefix_space':false}]}," AB "}",
           NULL);
    assert_true(str_is(spec.pre, "smollm"));
    accept(&spec, &arena,
           "{'pre_tokenizer':{'type':'Sequence','pretokenizers':["
           "{'type':'Punctuation','behavior':'Contiguous'},"
           "{'type':'ByteLevel','add_prefix_space':false},"
           "{'type':'Split','pattern':{'Regex':'[0-9][0-9][0-9]'},'behavior':'Isolated'}]}," AB "}",
           NULL);
    assert_true(str_is(spec.pre, "falcon"));
    arena_free(&arena);
}

static void test_byte_fallback_with_word_spaces_becomes_spm(void **state)
{
    (void)state;
    struct tok_spec spec;
    struct arena arena = {0};
    accept(&spec, &arena, "{" LLAMA2 "," SPM_AB "}", NULL);
    assert_int_equal(spec.kind, TOK_SPM);
    assert_int_equal(spec.add_space_prefix, TOK_PREFIX_ALWAYS);
    assert_int_equal(spec.types[0], TOK_UNKNOWN);
    assert_int_equal(spec.types[6], TOK_BYTE);
    assert_int_equal(spec.unk, 0);
    assert_true(spec.scores[4] > spec.scores[5]);
    assert_true(spec.scores[5] > spec.scores[2]);
    assert_true(str_is(spec.merges[1], "▁ ab"));
    arena_free(&arena);
}

static void test_metaspace_says_where_a_space_goes_in_front(void **state)
{
    (void)state;
    static const struct {
        const char *options;
        int prefix;
    } cases[] = {
        {"'prepend_scheme':'always'", TOK_PREFIX_UNLESS_SPACE},
        {"'prepend_scheme':'first','split':false", TOK_PREFIX_FIRST},
        {"'prepend_scheme':'never'", TOK_PREFIX_NEVER},
        {"'add_prefix_space':true", TOK_PREFIX_UNLESS_SPACE},
        {"'add_prefix_space':false", TOK_PREFIX_NEVER},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct tok_spec spec;
        struct arena arena = {0};
        char text[1024];
        snprintf(text, sizeof text,
                 "{'pre_tokenizer':{'type':'Metaspace','replacement':'▁',%s}," SPM_AB "}",
                 cases[i].options);
        accept(&spec, &arena, text, NULL);
        assert_int_equal(spec.add_space_prefix, cases[i].prefix);
        arena_free(&arena);
    }
}

static void test_metaspace_that_splits_drops_merges_across_words(void **state)
{
    (void)state;
    struct tok_spec spec;
    struct arena arena = {0};
    static const char *const text =
        "{'pre_tokenizer':{'type':'Metaspace','replacement':'▁','prepend_scheme':'never','split':%"
        "s},"
        "'model':{'type':'BPE','vocab':{'▁':0,'a':1,'▁▁':2,'a▁':3,'▁a':4},"
        "'merges':['▁ ▁','a ▁','▁ a']}}";
    char filled[512];
    snprintf(filled, sizeof filled, text, "true");
    accept(&spec, &arena, filled, NULL);
    assert_int_equal(spec.n_merges, 1);
    assert_true(str_is(spec.merges[0], "▁ a"));
    snprintf(filled, sizeof filled, text, "false");
    accept(&spec, &arena, filled, NULL);
    assert_int_equal(spec.n_merges, 3);
    arena_free(&arena);
}

static void test_added_tokens_may_lie_beyond_the_vocabulary(void **state)
{
    (void)state;
    struct tok_spec spec;
    struct arena arena = {0};
    accept(&spec, &arena,
           "{" BYTE_LEVEL ",'added_tokens':[{'id':2,'content':'ab','special':false},"
           "{'id':5,'content':'<s>','special':true},{'id':6,'content':'<t>'}]," AB "}",
           NULL);
    assert_int_equal(spec.n_tokens, 7);
    assert_int_equal(spec.types[2], TOK_USER);
    assert_int_equal(spec.types[5], TOK_CONTROL);
    assert_int_equal(spec.types[6], TOK_USER);
    assert_int_equal(spec.types[3], TOK_UNUSED);
    assert_true(str_is(spec.tokens[4], "[PAD4]"));
    assert_true(str_is(spec.tokens[5], "<s>"));
    arena_free(&arena);
}

static void test_normalisers_are_honoured(void **state)
{
    (void)state;
    static const char *const names[] = {
        [TOK_NORM_NFC] = "NFC",
        [TOK_NORM_NFD] = "NFD",
        [TOK_NORM_NFKC] = "NFKC",
        [TOK_NORM_NFKD] = "NFKD",
    };
    for (enum tok_norm i = TOK_NORM_NFC; i <= TOK_NORM_NFKD; i++) {
        struct tok_spec spec;
        struct arena arena = {0};
        char text[512];
        snprintf(text, sizeof text, "{'normalizer':{'type':'%s'}," BYTE_LEVEL "," AB "}", names[i]);
        accept(&spec, &arena, text, NULL);
        assert_int_equal(spec.norm, i);
        arena_free(&arena);
    }
}

#define SPECIALS                                                                    \
    "'added_tokens':[{'id':3,'content':'<s>','special':true},{'id':4,'content':'</" \
    "s>','special':true}]"
#define TEMPLATE(items)                                                       \
    "'post_processor':{'type':'Sequence','processors':[{'type':'ByteLevel'}," \
    "{'type':'TemplateProcessing','single':[" items "]}]}"
#define BOS "{'SpecialToken':{'id':'<s>'}}"
#define EOS "{'SpecialToken':{'id':'</s>'}}"
#define SEQ "{'Sequence':{'id':'A'}}"

static void test_the_post_processor_says_which_tokens_are_added(void **state)
{
    (void)state;
    struct tok_spec spec;
    struct arena arena = {0};
    accept(&spec, &arena, "{" BYTE_LEVEL "," SPECIALS "," TEMPLATE(BOS "," SEQ "," EOS) "," AB "}",
           NULL);
    assert_int_equal(spec.add_bos, 1);
    assert_int_equal(spec.add_eos, 1);
    assert_int_equal(spec.bos, 3);
    assert_int_equal(spec.eos, 4);
    accept(&spec, &arena, "{" BYTE_LEVEL "," SPECIALS "," TEMPLATE(SEQ) "," AB "}", NULL);
    assert_int_equal(spec.add_bos, 0);
    arena_free(&arena);
}

static void test_the_config_wins_over_the_post_processor(void **state)
{
    (void)state;
    struct tok_spec spec;
    struct arena arena = {0};
    static const char *const text =
        "{" BYTE_LEVEL "," SPECIALS "," TEMPLATE(BOS "," SEQ) "," AB "}";
    accept(&spec, &arena, text,
           "{'add_bos_token':false,'add_eos_token':true,'bos_token':'</s>',"
           "'eos_token':{'content':'<s>'},'pad_token':'a','unk_token':null}");
    assert_int_equal(spec.add_bos, 0);
    assert_int_equal(spec.add_eos, 1);
    assert_int_equal(spec.bos, 4);
    assert_int_equal(spec.eos, 3);
    assert_int_equal(spec.pad, 0);
    assert_int_equal(spec.unk, -1);
    accept(&spec, &arena, text, "{'add_bos_token':null,'bos_token':'no such token'}");
    assert_int_equal(spec.add_bos, 1);
    assert_int_equal(spec.bos, 3);
    arena_free(&arena);
}

static void test_chat_templates_come_from_three_places(void **state)
{
    (void)state;
    struct tok_spec spec;
    struct arena arena = {0};
    static const char *const text = "{" BYTE_LEVEL "," AB "}";
    accept(&spec, &arena, text, "{'chat_template':'one'}");
    assert_true(str_is(spec.chat_template, "one"));
    accept(&spec, &arena, text,
           "{'chat_template':[{'name':'tool_use','template':'t'},"
           "{'name':'default','template':'two'}]}");
    assert_true(str_is(spec.chat_template, "two"));
    accept(&spec, &arena, text, "{'chat_template':[{'name':'tool_use','template':'t'}]}");
    assert_null(spec.chat_template.p);
    assert_int_equal(read_json(&spec, &arena, text, "{'chat_template':'one'}", STR("three"), NULL),
                     0);
    assert_true(str_is(spec.chat_template, "three"));
    arena_free(&arena);
}

static void test_ignore_merges_is_honoured(void **state)
{
    (void)state;
    struct tok_spec spec;
    struct arena arena = {0};
    accept(&spec, &arena,
           "{" BYTE_LEVEL ",'model':{'type':'BPE','ignore_merges':true,'vocab':{'a':0},"
           "'merges':[]}}",
           NULL);
    assert_int_equal(spec.ignore_merges, 1);
    arena_free(&arena);
}

static void test_what_we_would_do_differently_is_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *text, *word;
    } cases[] = {
        {"{'model':{'type':'Unigram'}}", "'Unigram'"},
        {"{'model':{'type':'WordPiece'}}", "'WordPiece'"},
        {"{'normalizer':{'type':'Lowercase'}," BYTE_LEVEL "," AB "}", "'Lowercase'"},
        {"{'normalizer':{'type':'Replace','pattern':{'String':'x'},'content':'y'}," BYTE_LEVEL
         "," AB "}",
         "'Replace'"},
        {"{'normalizer':{'type':'Sequence','normalizers':[{'type':'NFC'},{'type':'NFD'}]}," AB "}",
         "'NFD'"},
        {"{'normalizer':{'type':'Sequence','normalizers':[{'type':'Sequence'}]}," AB "}",
         "Sequence in a Sequence"},
        {"{'pre_tokenizer':{'type':'Whitespace'}," AB "}", "'Whitespace'"},
        {"{'pre_tokenizer':{'type':'ByteLevel','add_prefix_space':true}," AB "}",
         "'add_prefix_space'"},
        {"{'pre_tokenizer':{'type':'Sequence','pretokenizers':[{'type':'Split','pattern':"
         "{'Regex':'[xyz]+'},'behavior':'Isolated'},{'type':'ByteLevel','add_prefix_space':false,"
         "'use_regex':false}]}," AB "}",
         "'[xyz]+'"},
        {"{'pre_tokenizer':{'type':'Split','pattern':{'Regex':'a'},'behavior':'Removed'}," AB "}",
         "'Removed'"},
        {"{'pre_tokenizer':{'type':'Sequence','pretokenizers':[{'type':'Digits'},{'type':'Digits'},"
         "{'type':'Digits'},{'type':'Digits'},{'type':'Digits'},{'type':'Digits'},"
         "{'type':'Digits'}]}," AB "}",
         "long list"},
        {"{'pre_tokenizer':{'type':'Metaspace','replacement':'_'}," AB "}", "'_'"},
        {"{'pre_tokenizer':{'type':'Metaspace','replacement':'▁','prepend_scheme':'last'}," AB "}",
         "'last'"},
        {"{" LLAMA2 ",'model':{'type':'BPE','ignore_merges':true}}", "'ignore_merges'"},
        {"{" BYTE_LEVEL ",'model':{'dropout':0.5}}", "'dropout'"},
        {"{" BYTE_LEVEL ",'model':{'end_of_word_suffix':'</w>'}}", "'end_of_word_suffix'"},
        {"{" BYTE_LEVEL ",'added_tokens':[{'id':5,'content':'x','lstrip':true}]," AB "}", "lstrip"},
        {"{'post_processor':{'type':'BertProcessing'}," BYTE_LEVEL "," AB "}", "'BertProcessing'"},
        {"{" BYTE_LEVEL "," SPECIALS "," TEMPLATE(BOS "," BOS "," SEQ) "," AB "}", "'<s>'"},
        {"{" BYTE_LEVEL "," TEMPLATE(BOS) "," AB "}", "'<s>'"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        assert_refused(cases[i].text, FLETCH_E_UNSUPPORTED, cases[i].word);
}

#define MODEL(vocab, merges) "'model':{'vocab':{" vocab "},'merges':[" merges "]}"

static void test_broken_files_say_what_is_wrong(void **state)
{
    (void)state;
    static const struct {
        const char *text, *word;
        int code;
    } cases[] = {
        {"{}", "no model", FLETCH_E_FORMAT},
        {"[]", "no model", FLETCH_E_FORMAT},
        {"{" AB "}", "neither", FLETCH_E_FORMAT},
        {"{" LLAMA2 "," BYTE_LEVEL "," AB "}", "neither", FLETCH_E_FORMAT},
        {"{'pre_tokenizer':{}," AB "}", "no type", FLETCH_E_FORMAT},
        {"{" BYTE_LEVEL "," MODEL("", "") "}", "no vocabulary", FLETCH_E_FORMAT},
        {"{" BYTE_LEVEL ",'model':{'vocab':{'a':0}}}", "no merges", FLETCH_E_FORMAT},
        {"{" BYTE_LEVEL "," MODEL("'a':0,'b':0", "") "}", "id 0 is both", FLETCH_E_FORMAT},
        {"{" BYTE_LEVEL "," MODEL("'a':-1", "") "}", "no usable id", FLETCH_E_FORMAT},
        {"{" BYTE_LEVEL "," MODEL("'a':'x','b':1", "") "}", "no usable id", FLETCH_E_FORMAT},
        {"{" BYTE_LEVEL "," MODEL("'a':2000000000", "") "}", "id 2000000000", FLETCH_E_LIMIT},
        {"{" BYTE_LEVEL "," MODEL("'a':9223372036854775807", "") "}", "only 1", FLETCH_E_LIMIT},
        {"{" BYTE_LEVEL "," MODEL("'a':0", "'ab'") "}", "a merge", FLETCH_E_FORMAT},
        {"{" BYTE_LEVEL "," MODEL("'a':0", "['a b','c']") "}", "a merge", FLETCH_E_FORMAT},
        {"{" BYTE_LEVEL "," MODEL("'a':0", "['a','b','c']") "}", "a merge", FLETCH_E_FORMAT},
        {"{" BYTE_LEVEL "," MODEL("'a':0", "7") "}", "a merge", FLETCH_E_FORMAT},
        {"{" BYTE_LEVEL "," MODEL("'a':0", "'a a'") "}", "merge 'a a'", FLETCH_E_FORMAT},
        {"{" BYTE_LEVEL ",'added_tokens':[{'id':1}]," AB "}", "no content", FLETCH_E_FORMAT},
        {"{" BYTE_LEVEL ",'added_tokens':[{'id':5,'content':'a'}]," AB "}", "twice",
         FLETCH_E_FORMAT},
        {"{" BYTE_LEVEL ",'added_tokens':[{'id':1,'content':'a'}]," AB "}", "both",
         FLETCH_E_FORMAT},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        assert_refused(cases[i].text, cases[i].code, cases[i].word);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_byte_level_bpe_is_recognised),
        cmocka_unit_test(test_pre_tokenizer_sequences_get_their_names),
        cmocka_unit_test(test_byte_fallback_with_word_spaces_becomes_spm),
        cmocka_unit_test(test_metaspace_says_where_a_space_goes_in_front),
        cmocka_unit_test(test_metaspace_that_splits_drops_merges_across_words),
        cmocka_unit_test(test_added_tokens_may_lie_beyond_the_vocabulary),
        cmocka_unit_test(test_normalisers_are_honoured),
        cmocka_unit_test(test_the_post_processor_says_which_tokens_are_added),
        cmocka_unit_test(test_the_config_wins_over_the_post_processor),
        cmocka_unit_test(test_chat_templates_come_from_three_places),
        cmocka_unit_test(test_ignore_merges_is_honoured),
        cmocka_unit_test(test_what_we_would_do_differently_is_refused_by_name),
        cmocka_unit_test(test_broken_files_say_what_is_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
