#include "model/vocab.h"

#include "format/hf_testdir.h"

static struct source *new_source(const char *path)
{
    struct source *s;
    assert_int_equal(source_new(&s, path, NULL), 0);
    return s;
}

/* Byte-level BPE with every byte, so that any text can be encoded; 256 is "ab". */
static struct source *bpe_source(void)
{
    struct source *s = new_source("made");
    struct str tokens[260];
    static char texts[256][3];
    for (u32 i = 0, other = 0; i < 256; i++) {
        bool plain = (i >= 0x21 && i <= 0x7e) || (i >= 0xa1 && i != 0xad);
        u32 c = plain ? i : 0x100 + other++;
        size_t n = 0;
        if (c >= 0x80) texts[i][n++] = (char)(0xc0 | c >> 6);
        texts[i][n++] = (char)(c >= 0x80 ? 0x80 | (c & 0x3f) : c);
        tokens[i] = (struct str){texts[i], n};
    }
    tokens[256] = STR("ab");
    tokens[257] = STR("<|end|>");
    tokens[258] = STR("<user>");
    tokens[259] = STR("odd");
    i32 types[260];
    for (int i = 0; i < 260; i++) types[i] = TOK_NORMAL;
    types[257] = TOK_CONTROL;
    types[258] = TOK_USER;
    types[259] = 77;
    struct str merge = STR("a b");
    assert_int_equal(source_add_str(s, "tokenizer.ggml.model", STR("gpt2"), NULL), 0);
    assert_int_equal(source_add_str(s, "tokenizer.ggml.pre", STR("qwen2"), NULL), 0);
    assert_int_equal(source_add_strs(s, "tokenizer.ggml.tokens", 260, tokens, NULL), 0);
    assert_int_equal(
        source_add_array(s, "tokenizer.ggml.token_type", KV_I32, 260, types, sizeof types, NULL),
        0);
    assert_int_equal(source_add_strs(s, "tokenizer.ggml.merges", 1, &merge, NULL), 0);
    return s;
}

static struct vocab *must_load(const struct source *s)
{
    struct vocab *v;
    struct err err = {0};
    if (vocab_load(&v, s, &err)) fail_msg("%s", err.text);
    return v;
}

static void must_fail(struct source *s, const char *text)
{
    struct vocab *v;
    struct err err = {0};
    int rc = vocab_load(&v, s, &err);
    if (rc == 0 || !strstr(err.text, text)) fail_msg("%d '%s', not '%s'", rc, err.text, text);
    assert_null(v);
    source_close(s);
}

static void check_ids(const struct vocab *v, struct str text, unsigned flags, const i32 *want,
                      size_t n)
{
    struct tok_ids ids = {0};
    assert_int_equal(tok_encode(v->tok, text, NULL, flags, &ids, NULL), 0);
    assert_int_equal(ids.n, n);
    assert_memory_equal(ids.p, want, n * sizeof *want);
    tok_ids_free(&ids);
}

#define IDS(...) (const i32[]){__VA_ARGS__}, ARRAY_LEN(((const i32[]){__VA_ARGS__}))

static void loads_gguf_metadata_and_outlives_it(void **state)
{
    (void)state;
    struct source *s = bpe_source();
    assert_int_equal(source_add_u32(s, "tokenizer.ggml.bos_token_id", 258, NULL), 0);
    assert_int_equal(source_add_u32(s, "tokenizer.ggml.eos_token_id", 257, NULL), 0);
    assert_int_equal(source_add_u32(s, "tokenizer.ggml.eot_token_id", 256, NULL), 0);
    assert_int_equal(source_add_u32(s, "tokenizer.ggml.padding_token_id", 260, NULL), 0);
    assert_int_equal(source_add_bool(s, "tokenizer.ggml.add_bos_token", true, NULL), 0);
    assert_int_equal(source_add_str(s, "tokenizer.chat_template", STR("{{ x }}"), NULL), 0);
    struct vocab *v = must_load(s);
    source_close(s);
    assert_int_equal(v->spec.kind, TOK_BPE);
    assert_int_equal(v->spec.n_tokens, 260);
    assert_int_equal(v->spec.n_merges, 1);
    assert_true(str_is(v->spec.pre, "qwen2"));
    assert_true(str_is(v->spec.chat_template, "{{ x }}"));
    assert_int_equal(v->spec.bos, 258);
    assert_int_equal(v->spec.eos, 257);
    assert_int_equal(v->spec.eot, 256);
    assert_int_equal(v->spec.pad, -1); /* no such token */
    assert_int_equal(v->spec.types[257], TOK_CONTROL);
    assert_int_equal(v->spec.types[259], TOK_UNUSED);
    check_ids(v, STR("abc<|end|>"), TOK_ADD_BOS | TOK_SPECIAL, IDS(258, 256, 'c', 257));
    vocab_close(v);
}

/* SentencePiece's pieces with spaces as U+2581, none before the text, merged in the order of the
 * list although the scores say otherwise; the same after a round trip. */
static void gemma4_merges_in_the_order_of_its_list(void **state)
{
    (void)state;
    static const struct str tokens[] = {STR("<pad>"),
                                        STR("<eos>"),
                                        STR("<bos>"),
                                        STR("\xe2\x96\x81"),
                                        STR("a"),
                                        STR("b"),
                                        STR("\xe2\x96\x81"
                                            "a"),
                                        STR("ab"),
                                        STR("<0x21>")};
    static const struct str merges[] = {STR("a b"), STR("\xe2\x96\x81 a")};
    static const i32 types[] = {TOK_CONTROL, TOK_CONTROL, TOK_CONTROL, TOK_NORMAL, TOK_NORMAL,
                                TOK_NORMAL,  TOK_NORMAL,  TOK_NORMAL,  TOK_BYTE};
    static const float scores[] = {0, 0, 0, -9, -9, -9, -1, -5, -9};
    struct source *s = new_source("made"), *again = new_source("again");
    source_add_str(s, "tokenizer.ggml.model", STR("gemma4"), NULL);
    source_add_strs(s, "tokenizer.ggml.tokens", ARRAY_LEN(tokens), tokens, NULL);
    source_add_array(s, "tokenizer.ggml.token_type", KV_I32, ARRAY_LEN(types), types, sizeof types,
                     NULL);
    source_add_array(s, "tokenizer.ggml.scores", KV_F32, ARRAY_LEN(scores), scores, sizeof scores,
                     NULL);
    source_add_strs(s, "tokenizer.ggml.merges", ARRAY_LEN(merges), merges, NULL);
    source_add_u32(s, "tokenizer.ggml.bos_token_id", 2, NULL);
    struct vocab *v = must_load(s);
    check_ids(v, STR("ab ab!"), TOK_ADD_BOS, IDS(2, 7, 3, 7, 8));
    source_add_str(again, "general.architecture", STR("gemma4"), NULL);
    assert_int_equal(vocab_to_source(v, again, NULL), 0);
    vocab_close(v);
    source_close(s);
    struct str model;
    assert_int_equal(source_get_str(again, "tokenizer.ggml.model", &model, NULL), 0);
    assert_true(str_is(model, "gemma4"));
    v = must_load(again);
    check_ids(v, STR("ab ab!"), TOK_ADD_BOS, IDS(2, 7, 3, 7, 8));
    vocab_close(v);
    source_close(again);
    s = new_source("made");
    source_add_str(s, "tokenizer.ggml.model", STR("gemma4"), NULL);
    source_add_strs(s, "tokenizer.ggml.tokens", ARRAY_LEN(tokens), tokens, NULL);
    must_fail(s, "tokenizer.ggml.merges is missing");
}

static void a_model_may_have_no_vocabulary(void **state)
{
    (void)state;
    static const char *const names[] = {NULL, "none", "no_vocab"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct source *s = new_source("made");
        if (names[i]) source_add_str(s, "tokenizer.ggml.model", str_of(names[i]), NULL);
        struct vocab *v = must_load(s);
        assert_null(v->tok);
        assert_int_equal(v->spec.kind, TOK_NONE);
        vocab_close(v);
        source_close(s);
    }
    vocab_close(NULL);
}

static void refuses_bad_metadata(void **state)
{
    (void)state;
    struct source *s = new_source("made");
    source_add_str(s, "tokenizer.ggml.model", STR("bert"), NULL);
    must_fail(s, "tokenizer model 'bert' is not supported");
    s = new_source("made");
    source_add_u32(s, "tokenizer.ggml.model", 1, NULL);
    must_fail(s, "'tokenizer.ggml.model' has type u32 but must be a string");
    s = new_source("made");
    source_add_str(s, "tokenizer.ggml.model", STR("llama"), NULL);
    must_fail(s, "tokenizer.ggml.tokens is missing");
    s = new_source("made");
    source_add_str(s, "tokenizer.ggml.model", STR("llama"), NULL);
    source_add_str(s, "tokenizer.ggml.tokens", STR("a"), NULL);
    must_fail(s, "tokenizer.ggml.tokens is not an array of strings");
    s = bpe_source();
    source_add_bool(s, "tokenizer.ggml.eos_token_id", true, NULL);
    must_fail(s, "eos_token_id is not an integer");
    s = bpe_source();
    source_add_u32(s, "tokenizer.ggml.add_bos_token", 1, NULL);
    must_fail(s, "add_bos_token' has type u32 but must be a bool");
    s = bpe_source();
    source_add_str(s, "tokenizer.fletch.normalizer", STR("nfx"), NULL);
    must_fail(s, "unknown value 'nfx'");
}

static void arrays_must_be_as_long_as_the_tokens(void **state)
{
    (void)state;
    static const struct str tokens[] = {{"a", 1}, {"b", 1}, {"c", 1}};
    static const float scores[] = {1, 2, 0};
    static const i32 types[] = {1, 1, 1};
    for (int bad = 0; bad < 5; bad++) {
        float nan = 0.0f / 0.0f, with_nan[] = {1, 2, nan};
        struct source *s = new_source("made");
        source_add_str(s, "tokenizer.ggml.model", STR("llama"), NULL);
        source_add_strs(s, "tokenizer.ggml.tokens", 3, tokens, NULL);
        source_add_array(s, "tokenizer.ggml.scores", bad == 3 ? KV_I32 : KV_F32, bad == 0 ? 2 : 3,
                         bad == 1 ? with_nan : scores, bad == 0 ? 8 : 12, NULL);
        source_add_array(s, "tokenizer.ggml.token_type", bad == 4 ? KV_F32 : KV_I32,
                         bad == 2 ? 2 : 3, types, bad == 2 ? 8 : 12, NULL);
        static const char *const texts[] = {
            "scores must have one", "scores is not an array of numbers", "token_type must have one",
            "scores is not an array of numbers", "token_type is not an array of integers"};
        must_fail(s, texts[bad]);
    }
}

/* Writing and reading back */

static struct vocab *reload(const struct vocab *v)
{
    struct source *s = new_source("made");
    assert_int_equal(vocab_to_source(v, s, NULL), 0);
    struct vocab *again = must_load(s);
    source_close(s);
    return again;
}

static void check_same_spec(const struct tok_spec *a, const struct tok_spec *b)
{
    assert_int_equal(a->kind, b->kind);
    assert_true(str_eq(a->pre, b->pre));
    assert_int_equal(a->n_tokens, b->n_tokens);
    for (u32 i = 0; i < a->n_tokens; i++) {
        assert_true(str_eq(a->tokens[i], b->tokens[i]));
        assert_int_equal(a->types ? a->types[i] : TOK_NORMAL, b->types ? b->types[i] : TOK_NORMAL);
        if (a->scores) assert_true(b->scores && a->scores[i] == b->scores[i]);
    }
    assert_int_equal(a->n_merges, b->n_merges);
    for (u32 i = 0; i < a->n_merges; i++) assert_true(str_eq(a->merges[i], b->merges[i]));
    assert_int_equal(a->bos, b->bos);
    assert_int_equal(a->eos, b->eos);
    assert_int_equal(a->eot, b->eot);
    assert_int_equal(a->eom, b->eom);
    assert_int_equal(a->unk, b->unk);
    assert_int_equal(a->pad, b->pad);
    assert_int_equal(a->add_bos, b->add_bos);
    assert_int_equal(a->add_eos, b->add_eos);
    assert_int_equal(a->ignore_merges, b->ignore_merges);
    assert_int_equal(a->add_space_prefix, b->add_space_prefix);
    assert_int_equal(a->norm, b->norm);
    assert_true(str_eq(a->chat_template, b->chat_template));
}

/* The directories hold a byte-level vocabulary with a normaliser and one with U+2581. */
static void directories_survive_as_metadata(void **state)
{
    (void)state;
    static const char *const dirs[] = {"test/golden/tok/qwen2", "test/golden/tok/llama2",
                                       "test/golden/tok/llama-bpe"};
    static const char text[] = "Hello  world, e\xcc\x81 \xe2\x82\xac\n123 abc";
    for (size_t i = 0; i < ARRAY_LEN(dirs); i++) {
        struct source *s = new_source(dirs[i]);
        s->is_dir = true;
        struct vocab *v = must_load(s), *again = reload(v);
        struct tok_ids ids = {0};
        check_same_spec(&v->spec, &again->spec);
        assert_int_equal(tok_encode(v->tok, STR(text), NULL, TOK_ADD_BOS, &ids, NULL), 0);
        assert_true(ids.n > 5);
        check_ids(again, STR(text), TOK_ADD_BOS, ids.p, ids.n);
        tok_ids_free(&ids);
        vocab_close(again);
        vocab_close(v);
        source_close(s);
    }
}

static void every_field_survives_as_metadata(void **state)
{
    (void)state;
    struct source *s = bpe_source();
    struct vocab *v = must_load(s);
    v->spec.norm = TOK_NORM_NFKC;
    v->spec.bos = -1; /* though GGUF has a default */
    v->spec.eos = 3;
    v->spec.eot = 4;
    v->spec.eom = 5;
    v->spec.unk = 6;
    v->spec.pad = 7;
    v->spec.add_bos = 0;
    v->spec.add_eos = 1;
    v->spec.ignore_merges = 1;
    v->spec.add_space_prefix = TOK_PREFIX_FIRST;
    v->spec.chat_template = STR("t");
    struct vocab *again = reload(v);
    check_same_spec(&v->spec, &again->spec);
    vocab_close(again);
    v->spec.add_space_prefix = TOK_PREFIX_ALWAYS;
    again = reload(v);
    check_same_spec(&v->spec, &again->spec);
    vocab_close(again);
    vocab_close(v);
    source_close(s);
}

/* Directories */

static struct source *dir_source(u32 n_vocab)
{
    struct source *s = new_source(dir.path);
    s->is_dir = true;
    source_add_str(s, "general.architecture", STR("llama"), NULL);
    source_add_u32(s, "llama.vocab_size", n_vocab, NULL);
    return s;
}

static void copy_tokenizer(void)
{
    char *text;
    size_t n;
    assert_int_equal(file_read(&text, &n, "test/golden/tok/qwen2/tokenizer.json", 64 << 20, NULL),
                     0);
    testdir_write(&dir, "tokenizer.json", (struct str){text, n});
    free(text);
}

static void an_empty_directory_has_no_vocabulary(void **state)
{
    (void)state;
    struct source *s = dir_source(9);
    struct vocab *v = must_load(s);
    assert_null(v->tok);
    vocab_close(v);
    source_close(s);
}

static void the_model_may_have_more_tokens_than_the_tokenizer(void **state)
{
    (void)state;
    copy_tokenizer();
    struct source *s = dir_source(100000);
    struct vocab *v = must_load(s);
    assert_int_equal(v->spec.n_tokens, 100000);
    assert_true(str_is(v->spec.tokens[99999], "[PAD99999]"));
    assert_int_equal(v->spec.types[99999], TOK_UNUSED);
    assert_int_equal(v->spec.types['a'], TOK_NORMAL);
    vocab_close(v);
    source_close(s);
    must_fail(dir_source(10), "tokens, but the model only 10");
}

/* A padding token that a training run added without a row in the model for it. */
static void added_tokens_that_the_model_lacks_are_dropped(void **state)
{
    (void)state;
    copy_tokenizer();
    struct source *s = dir_source(0);
    struct vocab *v = must_load(s);
    u32 last = v->spec.n_tokens - 1, first = last;
    while (v->spec.types[first - 1] != TOK_NORMAL) first--;
    assert_true(v->spec.types[last] != TOK_NORMAL);
    char text[64], config[96];
    snprintf(text, sizeof text, "%.*s", (int)v->spec.tokens[last].n, v->spec.tokens[last].p);
    check_ids(v, str_of(text), TOK_SPECIAL, IDS((i32)last));
    vocab_close(v);
    source_close(s);
    snprintf(config, sizeof config, "{\"pad_token\":\"%s\"}", text);
    testdir_puts(&dir, "tokenizer_config.json", config);
    s = dir_source(last);
    v = must_load(s);
    struct tok_ids ids = {0};
    assert_int_equal(v->spec.n_tokens, last);
    assert_int_equal(tok_encode(v->tok, str_of(text), NULL, TOK_SPECIAL, &ids, NULL), 0);
    assert_true(ids.n > 1); /* text like any other */
    for (u32 i = 0; i < ids.n; i++) assert_true((u32)ids.p[i] < last);
    tok_ids_free(&ids);
    vocab_close(v);
    source_close(s);
    must_fail(dir_source(first - 1), "tokens, but the model only"); /* no added token */
    config[2] = 'e', config[3] = 'o', config[4] = 's';
    testdir_puts(&dir, "tokenizer_config.json", config);
    must_fail(dir_source(last), "tokens, but the model only");
}

static void all_listed_ids_end_generation(void **state)
{
    (void)state;
    copy_tokenizer();
    testdir_puts(&dir, "config.json", "{\"eos_token_id\":9}");
    testdir_puts(&dir, "generation_config.json", "{\"eos_token_id\":[5,6,5,7]}");
    struct source *s = dir_source(0);
    struct vocab *v = must_load(s);
    assert_int_equal(v->spec.eos, 5);
    for (i32 id = 5; id <= 7; id++) assert_true(tok_is_eog(v->tok, id));
    assert_false(tok_is_eog(v->tok, 9));
    vocab_close(v);
    testdir_puts(&dir, "generation_config.json", "{}");
    v = must_load(s);
    assert_int_equal(v->spec.eos, 9);
    vocab_close(v);
    source_close(s);
    testdir_puts(&dir, "generation_config.json", "{\"eos_token_id\":-1}"); /* none */
    s = dir_source(0);
    v = must_load(s);
    assert_int_equal(v->spec.eos, -1);
    vocab_close(v);
    source_close(s);
    testdir_puts(&dir, "generation_config.json", "{\"eos_token_id\":-2}");
    must_fail(dir_source(0), "eos_token_id is not in");
    testdir_puts(&dir, "generation_config.json", "{\"eos_token_id\":\"x\"}");
    must_fail(dir_source(0), "eos_token_id is not in");
}

static void any_number_of_ids_ends_generation(void **state)
{
    (void)state;
    copy_tokenizer();
    testdir_puts(&dir, "generation_config.json", "{\"eos_token_id\":[1,2,3,4,5,4,1,6]}");
    struct source *s = dir_source(0), *gguf = new_source("x.gguf");
    struct vocab *v = must_load(s);
    assert_int_equal(v->spec.n_ends, 3);
    assert_int_equal(vocab_to_source(v, gguf, NULL), 0);
    vocab_close(v);
    source_close(s);
    v = must_load(gguf);
    for (i32 id = 0; id < 8; id++) assert_int_equal(tok_is_eog(v->tok, id), id >= 1 && id <= 6);
    vocab_close(v);
    source_close(gguf);
    struct buf b = {0};
    buf_puts(&b, "{\"eos_token_id\":[0");
    for (int id = 1; id < 1100; id++) buf_printf(&b, ",%d", id);
    buf_puts(&b, "]}");
    testdir_write(&dir, "generation_config.json", (struct str){b.p, b.n});
    buf_free(&b);
    must_fail(dir_source(2000), "lists more than 1024 ids");
}

/* RWKV's own text form */

static void reads_rwkv_lines(void **state)
{
    (void)state;
    struct buf b = {0};
    for (int i = 0; i < 256; i++) buf_printf(&b, "%d b'\\x%02x' 1\n", i + 1, i);
    buf_puts(&b, "257 '\\x00\\x7f\\xff' 4\n"
                 "258 \" a'b\" 4\n"
                 "259 '\xc3\xa9\\u20ac\\U0001f600' 9\r\n"
                 "260 '\\'\"\\\\' 3\n"
                 "261 '\\n\\n' 2\n"
                 "263 '\\t\\r' 2");
    testdir_write(&dir, "rwkv_vocab_v20230424.txt", buf_str(&b));
    testdir_puts(&dir, "tokenizer_config.json", "{\"chat_template\":\"T\"}");
    buf_free(&b);
    struct source *s = dir_source(266);
    struct vocab *v = must_load(s);
    assert_int_equal(v->spec.kind, TOK_RWKV);
    assert_int_equal(v->spec.n_tokens, 266);
    static const char *const want[] = {"\\x00\\x7f\\xc3\\xbf",
                                       " a'b",
                                       "\\xc3\\xa9\\xe2\\x82\\xac\\xf0\\x9f\\x98\\x80",
                                       "\\'\"\\\\",
                                       "\\n\\n",
                                       "[PAD262]",
                                       "\\t\\r",
                                       "[PAD264]"};
    for (size_t i = 0; i < ARRAY_LEN(want); i++)
        if (!str_is(v->spec.tokens[257 + i], want[i]))
            fail_msg("%s, not %s", QUOTE(v->spec.tokens[257 + i]), want[i]);
    assert_true(str_is(v->spec.tokens[0], "<s>"));
    assert_true(str_is(v->spec.tokens[11], "\\n"));
    assert_int_equal(v->spec.types[0], TOK_CONTROL);
    assert_int_equal(v->spec.types[262], TOK_UNUSED);
    assert_int_equal(v->spec.bos, 0);
    assert_int_equal(v->spec.eos, 0);
    assert_int_equal(v->spec.eot, 261);
    assert_true(str_is(v->spec.chat_template, "T"));
    check_ids(v, STR("a a'b\n\n\xff"), 0, IDS('a' + 1, 258, 261, 256));
    vocab_close(v);
    source_close(s);
}

static void refuses_bad_rwkv_lines(void **state)
{
    (void)state;
    static const struct {
        const char *text, *want;
    } cases[] = {
        {"", "has 0 ids"},
        {"1 'a' 1\n\n", ":2: expected an id"},
        {"x 'a' 1", ":1: expected an id"},
        {"0 'a' 1", "not an integer of at least 1"},
        {"1 'a'", "expected an id, a literal and a length"},
        {"1 'a' 2", "the length differs"},
        {"1 'a' x", "the length differs"},
        {"1 '' 0", "not a Python literal"},
        {"1 a 1", "not a Python literal"},
        {"1 'a\" 1", "not a Python literal"},
        {"1 '\\' 1", "not a Python literal"},
        {"1 '\\q' 1", "not a Python literal"},
        {"1 '\\x1' 1", "not a Python literal"},
        {"1 b'\\u0041' 1", "not a Python literal"},
        {"1 '\\Uffffffff' 1", "not a Python literal"},
        {"1 'a' 1\n1 'b' 1", ":2: the id appears twice"},
        {"99999999 'a' 1", ":1: expected an id"},
        {"12 'a' 1", "has 13 ids, but the model 9"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        testdir_puts(&dir, "rwkv_vocab_v20230424.txt", cases[i].text);
        must_fail(dir_source(9), cases[i].want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loads_gguf_metadata_and_outlives_it),
        cmocka_unit_test(gemma4_merges_in_the_order_of_its_list),
        cmocka_unit_test(a_model_may_have_no_vocabulary),
        cmocka_unit_test(refuses_bad_metadata),
        cmocka_unit_test(arrays_must_be_as_long_as_the_tokens),
        cmocka_unit_test(directories_survive_as_metadata),
        cmocka_unit_test(every_field_survives_as_metadata),
        TESTDIR_TEST(an_empty_directory_has_no_vocabulary),
        TESTDIR_TEST(the_model_may_have_more_tokens_than_the_tokenizer),
        TESTDIR_TEST(added_tokens_that_the_model_lacks_are_dropped),
        TESTDIR_TEST(all_listed_ids_end_generation),
        TESTDIR_TEST(any_number_of_ids_ends_generation),
        TESTDIR_TEST(reads_rwkv_lines),
        TESTDIR_TEST(refuses_bad_rwkv_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
