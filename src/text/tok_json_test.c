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

static struct tok *open_json(struct tok_spec *spec, struct arena *arena, const char *tokenizer,
                             const char *config)
{
    struct err err = {0};
    struct tok *t;
    if (read_json(spec, arena, tokenizer, config, (struct str){0}, &err))
        fail_msg("%s: %s", tokenizer, err.text);
    if (tok_open(&t, spec, &err)) fail_msg("%s: %s", tokenizer, err.text);
    return t;
}

static void check_ids(const struct tok *t, struct str text, const i32 *want, size_t n)
{
    struct tok_ids ids = {0};
    struct err err = {0};
    if (tok_encode(t, text, NULL, TOK_ADD_BOS | TOK_SPECIAL, &ids, &err)) fail_msg("%s", err.text);
    for (size_t i = 0; i < MAX(n, ids.n); i++)
        if (n != ids.n || ids.p[i] != want[i])
            fail_msg("%s: id %zu of %zu is %d, not %d of %zu", QUOTE(text), i, ids.n,
                     i < ids.n ? ids.p[i] : -1, i < n ? want[i] : -1, n);
    tok_ids_free(&ids);
}

#define IDS(...) (const i32[]){__VA_ARGS__}, ARRAY_LEN(((const i32[]){__VA_ARGS__}))

/* As transformers 5 does it: where there is a tokenizer.json, the config's flags mean nothing. */
static void test_the_post_processor_wins_over_the_config(void **state)
{
    (void)state;
    struct tok_spec spec;
    struct arena arena = {0};
    static const char *const flags[] = {
        "{'bos_token':'<s>'}",
        "{'add_bos_token':true,'add_eos_token':true,'bos_token':'<s>','eos_token':'</s>'}",
        "{'add_bos_token':false,'add_eos_token':false}",
    };
    for (size_t i = 0; i < ARRAY_LEN(flags); i++) {
        struct tok *t =
            open_json(&spec, &arena,
                      "{" BYTE_LEVEL "," SPECIALS "," TEMPLATE(BOS "," SEQ) "," AB "}", flags[i]);
        check_ids(t, STR("ab"), IDS(3, 2));
        tok_close(t);
        t = open_json(&spec, &arena, "{" BYTE_LEVEL "," SPECIALS "," AB "}", flags[i]);
        check_ids(t, STR("ab"), IDS(2));
        tok_close(t);
    }
    accept(&spec, &arena, "{" BYTE_LEVEL "," SPECIALS "," TEMPLATE(BOS "," SEQ) "," AB "}",
           "{'bos_token':'</s>','eos_token':{'content':'<s>'},'pad_token':'a','unk_token':null}");
    assert_int_equal(spec.bos, 4);
    assert_int_equal(spec.eos, 3);
    assert_int_equal(spec.pad, 0);
    assert_int_equal(spec.unk, -1);
    assert_int_equal(spec.n_before, 1); /* not what the config calls bos */
    assert_int_equal(spec.before[0], 3);
    accept(&spec, &arena, "{" BYTE_LEVEL "," SPECIALS "," TEMPLATE(BOS "," SEQ) "," AB "}",
           "{'bos_token':'no such token'}");
    assert_int_equal(spec.bos, 3);
    assert_int_equal(spec.n_before, 0);
    arena_free(&arena);
}

/* Command-R ends texts with two tokens; a template may give one name several ids. */
static void test_several_tokens_may_stand_around_a_text(void **state)
{
    (void)state;
    struct tok_spec spec;
    struct arena arena = {0};
    struct tok *t = open_json(
        &spec, &arena,
        "{" BYTE_LEVEL "," SPECIALS "," TEMPLATE(BOS "," SEQ "," BOS "," EOS) "," AB "}", NULL);
    check_ids(t, STR("ab"), IDS(3, 2, 3, 4));
    check_ids(t, STR(""), IDS(3, 3, 4));
    assert_true(tok_adds_bos(t));
    tok_close(t);
    t = open_json(&spec, &arena,
                  "{" BYTE_LEVEL "," SPECIALS
                  ",'post_processor':{'type':'TemplateProcessing','single':[" BOS "," SEQ
                  "],'special_tokens':{'<s>':{'id':'<s>','ids':[4,0]}}}," AB "}",
                  NULL);
    check_ids(t, STR("ab"), IDS(4, 0, 2));
    tok_close(t);
    static const char *const pairs[] = {"RobertaProcessing", "BertProcessing"};
    for (size_t i = 0; i < ARRAY_LEN(pairs); i++) {
        char text[1024];
        snprintf(text, sizeof text,
                 "{" BYTE_LEVEL "," SPECIALS
                 ",'post_processor':{'type':'%s','sep':['</s>',4],'cls':['<s>',3]}," AB "}",
                 pairs[i]);
        t = open_json(&spec, &arena, text, NULL);
        check_ids(t, STR("b"), IDS(3, 1, 4));
        tok_close(t);
    }
    arena_free(&arena);
}

static void test_added_tokens_may_take_the_blanks_beside_them(void **state)
{
    (void)state;
    struct tok_spec spec;
    struct arena arena = {0};
    struct tok *t = open_json(
        &spec, &arena,
        "{" BYTE_LEVEL ",'added_tokens':[{'id':3,'content':'<l>','lstrip':true,'special':true},"
        "{'id':4,'content':'<r>','rstrip':true},{'id':5,'content':'one','single_word':true}],"
        "'model':{'type':'BPE','vocab':{'a':0,'b':1,'ab':2,'o':6,'n':7,'e':8,'Ġ':9,'Ã':10,'©':11},"
        "'merges':['a b']}}",
        NULL);
    check_ids(t, STR("ab \t\xe2\x80\x83<l>ab"), IDS(2, 3, 2));
    check_ids(t, STR("ab <r>\xe3\x80\x80 ab"), IDS(2, 9, 4, 2));
    check_ids(t, STR("<r> <l> <r> "), IDS(4, 3, 9, 4));
    check_ids(t, STR("one a"), IDS(5, 9, 0));
    check_ids(t, STR("onea"), IDS(6, 7, 8, 0));
    check_ids(t, STR("\xc3\xa9one"), IDS(10, 11, 6, 7, 8));
    tok_close(t);
    arena_free(&arena);
}

/* As the tokenizers library does it: such a token is normalised itself, and looked for in what the
 * normalizer made of the text between the other tokens. */
static void test_added_tokens_may_be_found_in_normalised_text(void **state)
{
    (void)state;
    struct tok_spec spec;
    struct arena arena = {0};
    struct tok *t = open_json(
        &spec, &arena,
        "{'normalizer':{'type':'Sequence','normalizers':[{'type':'Prepend','prepend':'▁'},"
        "{'type':'Replace','pattern':{'String':' '},'content':'▁'},{'type':'Lowercase'}]},"
        "'added_tokens':[{'id':4,'content':'AB','normalized':true,'special':false},"
        "{'id':5,'content':'XX','normalized':false,'special':false},"
        "{'id':6,'content':'<S>','normalized':true,'special':true}],"
        "'model':{'type':'BPE','vocab':{'▁':0,'a':1,'b':2,'x':3,'<':7,'s':8,'>':9},'merges':[]}}",
        NULL);
    check_ids(t, STR("ab"), IDS(4));
    check_ids(t, STR("aB"), IDS(4));
    check_ids(t, STR("a Ab b"), IDS(0, 1, 4, 0, 2));
    check_ids(t, STR("xab"), IDS(0, 3, 1, 2)); /* it begins with the space that was put before it */
    check_ids(t, STR("xab ab"), IDS(0, 3, 1, 2, 4));
    check_ids(t, STR("XXab"), IDS(5, 4)); /* the text after another token gets one too */
    check_ids(t, STR("xx"), IDS(0, 3, 3));
    check_ids(t, STR("<S>a"), IDS(6, 0, 1)); /* special ones: in the text as it came */
    check_ids(t, STR("<s>a"), IDS(0, 7, 8, 9, 1));
    tok_close(t);

    /* Llama's normalizer, which has a kind of its own where nothing is looked for in its result. */
    t = open_json(&spec, &arena,
                  "{'normalizer':{'type':'Sequence','normalizers':[{'type':'Prepend','prepend':"
                  "'▁'},{'type':'Replace','pattern':{'String':' '},'content':'▁'}]},"
                  "'added_tokens':[{'id':3,'content':'b a','normalized':true,'special':false}],"
                  "'model':{'type':'BPE','vocab':{'▁':0,'a':1,'b':2},'merges':[]}}",
                  NULL);
    check_ids(t, STR("b a"), IDS(3));
    check_ids(t, STR("ab a"), IDS(0, 1, 2, 0, 1));
    check_ids(t, STR("a b a"), IDS(0, 1, 3));
    tok_close(t);

    /* Composed and not; and without a normalizer, as it is. */
    t = open_json(&spec, &arena,
                  "{'normalizer':{'type':'NFC'}," BYTE_LEVEL ",'added_tokens':[{'id':3,'content':"
                  "'ae\xcc\x81','normalized':true}]," AB "}",
                  NULL);
    check_ids(t, STR("a\xc3\xa9"), IDS(3));
    check_ids(t, STR("ae\xcc\x81"), IDS(3));
    tok_close(t);
    t = open_json(
        &spec, &arena,
        "{" BYTE_LEVEL ",'added_tokens':[{'id':3,'content':'ae','normalized':true}]," AB "}", NULL);
    check_ids(t, STR("abae"), IDS(2, 3));
    tok_close(t);
    arena_free(&arena);
}

/* InternLM2 has one. */
static void test_a_key_may_be_a_nul(void **state)
{
    (void)state;
    json_t *root, *model, *vocab;
    struct tok_spec spec;
    struct arena arena = {0};
    root = parse("{" LLAMA2 "," SPM_AB "}");
    model = json_object_get(root, "model");
    vocab = json_object_get(model, "vocab");
    json_object_setn_new(vocab, "\0", 1, json_integer(7));
    json_object_setn_new(vocab, "a\0", 2, json_integer(8));
    json_array_append_new(json_object_get(model, "merges"),
                          json_pack("[s,o]", "a", json_stringn("\0", 1)));
    assert_int_equal(tok_spec_from_json(&spec, &arena, root, NULL, (struct str){0}, NULL), 0);
    json_decref(root);
    struct tok *t;
    assert_int_equal(tok_open(&t, &spec, NULL), 0);
    check_ids(t, (struct str){"ab\0a\0b", 6}, IDS(5, 7, 8, 3));
    tok_close(t);
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
        {"{'model':{'type':'WordPiece'}}", "'WordPiece'"},
        {"{'normalizer':{'type':'BertNormalizer'}," BYTE_LEVEL "," AB "}", "'BertNormalizer'"},
        {"{'normalizer':{}," BYTE_LEVEL "," AB "}", "normalizer without a type"},
        {"{'normalizer':{'type':'Sequence','normalizers':[{'type':'NFC'},{'type':'Odd'}]}," AB "}",
         "'Odd'"},
        {"{'pre_tokenizer':{'type':'UnicodeScripts'}," AB "}", "'UnicodeScripts'"},
        {"{'pre_tokenizer':{}," AB "}", "pre_tokenizer without a type"},
        {"{'pre_tokenizer':{'type':'Sequence','pretokenizers':[{'type':'ByteLevel'},"
         "{'type':'ByteLevel'}]}," AB "}",
         "second ByteLevel"},
        {"{'pre_tokenizer':{'type':'Split','pattern':{'Regex':'a'},'behavior':'Odd'}," AB "}",
         "'Odd'"},
        {"{'pre_tokenizer':{'type':'Punctuation','behavior':'Odd'}," AB "}", "'Odd'"},
        {"{'pre_tokenizer':{'type':'Split','pattern':{'Regex':'(?<n>a)'},'behavior':'Isolated'},"
         "'model':{}}",
         "'(?<' in the regex"},
        {"{'pre_tokenizer':{'type':'Metaspace','replacement':'▁','prepend_scheme':'last'}," AB "}",
         "'last'"},
        {"{" BYTE_LEVEL ",'decoder':{'type':'WordPiece'}," AB "}", "decoder 'WordPiece'"},
        {"{" BYTE_LEVEL ",'decoder':{'type':'Fuse'}," AB "}", "without 'ByteLevel'"},
        {"{" LLAMA2 ",'decoder':{'type':'Strip','content':' ','start':2}," SPM_AB "}", "'Strip'"},
        {"{" LLAMA2 ",'decoder':{'type':'ByteLevel'}," SPM_AB "}", "decoder 'ByteLevel'"},
        {"{" BYTE_LEVEL "," SPECIALS "," TEMPLATE(SEQ "," SEQ) "," AB "}", "text twice"},
        {"{" BYTE_LEVEL "," SPECIALS "," TEMPLATE(BOS) "," AB "}", "without 'Sequence'"},
        {"{" BYTE_LEVEL ",'model':{'dropout':0.5}}", "'dropout'"},
        {"{" BYTE_LEVEL ",'model':{'end_of_word_suffix':'</w>'}}", "'end_of_word_suffix'"},
        {"{'post_processor':{'type':'Odd'}," BYTE_LEVEL "," AB "}", "post_processor 'Odd'"},
        {"{'post_processor':{'type':'RobertaProcessing','sep':['x',9],'cls':['a',0]}," BYTE_LEVEL
         "," AB "}",
         "'x'"},
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
        {"{'pre_tokenizer':{'type':'Metaspace','replacement':'__'}," AB "}", "'__'",
         FLETCH_E_FORMAT},
        {"{'pre_tokenizer':{'type':'Split','behavior':'Isolated'}," AB "}", "no pattern",
         FLETCH_E_FORMAT},
        {"{'model':{'type':'Unigram','vocab':[['a']],'unk_id':0}}", "model.vocab", FLETCH_E_FORMAT},
        {"{'model':{'type':'Unigram','vocab':[['a',0]],'unk_id':1}}", "unk_id", FLETCH_E_FORMAT},
        {"{" BYTE_LEVEL ",'model':{'type':'Unigram','vocab':[['a',0]]}}", "Unigram",
         FLETCH_E_FORMAT},
        {"{'normalizer':{'type':'Precompiled','precompiled_charsmap':'AAAA'}," AB "}", "damaged",
         FLETCH_E_FORMAT},
        {"{'normalizer':{'type':'Precompiled','precompiled_charsmap':'A*'}," AB "}", "base64",
         FLETCH_E_FORMAT},
        {"{'normalizer':{'type':'Replace','content':'x'}," AB "}", "Replace", FLETCH_E_FORMAT},
        {"{" BYTE_LEVEL "," MODEL("", "") "}", "no vocabulary", FLETCH_E_FORMAT},
        {"{" BYTE_LEVEL ",'model':{'vocab':{'a':0}}}", "no merges", FLETCH_E_FORMAT},
        {"{" BYTE_LEVEL "," MODEL("'a':0,'b':0", "") "}", "id 0 is both", FLETCH_E_FORMAT},
        {"{" BYTE_LEVEL "," MODEL("'a':-1", "") "}", "no usable id", FLETCH_E_FORMAT},
        {"{" BYTE_LEVEL "," MODEL("'a':'x','b':1", "") "}", "no usable id", FLETCH_E_FORMAT},
        {"{" BYTE_LEVEL "," MODEL("'a':2000000000", "") "}", "id 2000000000", FLETCH_E_LIMIT},
        {"{" BYTE_LEVEL "," MODEL("'a':9223372036854775807", "") "}", "vocabulary of 1",
         FLETCH_E_LIMIT},
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
        cmocka_unit_test(test_the_post_processor_wins_over_the_config),
        cmocka_unit_test(test_several_tokens_may_stand_around_a_text),
        cmocka_unit_test(test_added_tokens_may_take_the_blanks_beside_them),
        cmocka_unit_test(test_added_tokens_may_be_found_in_normalised_text),
        cmocka_unit_test(test_a_key_may_be_a_nul),
        cmocka_unit_test(test_chat_templates_come_from_three_places),
        cmocka_unit_test(test_ignore_merges_is_honoured),
        cmocka_unit_test(test_what_we_would_do_differently_is_refused_by_name),
        cmocka_unit_test(test_broken_files_say_what_is_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
