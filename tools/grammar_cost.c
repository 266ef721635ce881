/* What following a grammar costs: time in masks per token, on a model's own vocabulary beside the
 * time of a step, and on a synthetic vocabulary of 128k tokens.
 *   make build/tools/grammar_cost && build/tools/grammar_cost zoo/guide.gguf */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "serve/automaton.h"
#include "serve/schema.h"

enum { N_ANSWER = 200, N_SYNTHETIC = 128 * 1024, MAX_TOKENS = 4096 };

static const char *const schemas[][2] = {
    {"any object", "{\"type\":\"object\"}"},
    {"bounded strings", "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"maxLength\":200}}"},
    {"named members",
     "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},\"age\":{\"type\":"
     "\"integer\",\"minimum\":0},\"tags\":{\"type\":\"array\",\"items\":{\"type\":\"string\"}}},"
     "\"required\":[\"name\",\"age\",\"tags\"]}"},
};
static const char *const texts[] = {
    "{\"The name of the thing\": [1, 2.5, {\"deep\": null}], \"a longer text\": \"once upon a "
    "time, "
    "in a house made of stone, there lived a boy\", \"x\": true}",
    "[\"once upon a time, in a house made of stone\", \"there lived a loyal boy\", \"and a dog\"]",
    "{\"name\": \"Viggo the second of his name\", \"age\": 117, \"tags\": [\"tall\", \"loyal\"]}",
};

/* Tools with the fields that code generators write. */
static void make_fields(struct buf *schema)
{
    buf_puts(schema, "{\"anyOf\":[");
    for (u32 i = 0; i < 400; i++)
        buf_printf(schema,
                   "%s{\"type\":\"object\",\"properties\":{\"name\":{\"const\":\"tool_%u\"},"
                   "\"arguments\":{\"type\":\"object\",\"properties\":{"
                   "\"email\":{\"type\":\"string\",\"format\":\"email\",\"maxLength\":254,"
                   "\"description\":\"of %u\"},"
                   "\"site\":{\"type\":\"string\",\"format\":\"uri\",\"minLength\":1,"
                   "\"maxLength\":2083,\"title\":\"%u\"},"
                   "\"when\":{\"type\":\"string\",\"format\":\"date-time\",\"title\":\"%u\"},"
                   "\"id\":{\"type\":\"string\",\"format\":\"uuid\",\"title\":\"%u\"},"
                   "\"price\":{\"type\":\"number\",\"exclusiveMinimum\":0,\"multipleOf\":0.01},"
                   "\"count\":{\"type\":\"integer\",\"minimum\":0,\"maximum\":%u},"
                   "\"slug\":{\"type\":\"string\",\"pattern\":\"^[a-z0-9]+(-[a-z0-9]+)*$\","
                   "\"maxLength\":%u},"
                   "\"roles\":{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"enum\":["
                   "\"view\",\"edit\",\"own\"]}}},"
                   "\"required\":[\"email\"]}},\"required\":[\"name\",\"arguments\"]}",
                   i ? "," : "", i, i, i, i, i, 100 + i, 20 + i % 4 * 20);
    buf_puts(schema, "]}");
}

/* Large ones, made here: a value of an enum, a call of one of many tools, many members. */
enum { N_LARGE = 5 };
static void make_large(struct buf schema[N_LARGE], struct buf text[N_LARGE])
{
    for (u32 k = 0; k < 2; k++) {
        buf_puts(&schema[k], k ? "{\"anyOf\":[" : "{\"enum\":[");
        for (u32 i = 0; i < 2000; i++) {
            if (i) buf_putc(&schema[k], ',');
            if (k) buf_puts(&schema[k], "{\"const\":");
            if (i % 3)
                buf_printf(&schema[k], "\"value %x of %u\"", i * 2654435761u, i);
            else
                buf_printf(&schema[k], "%u", i * 2654435761u);
            if (k) buf_putc(&schema[k], '}');
        }
        buf_puts(&schema[k], "]}");
        buf_printf(&text[k], "\"value %x of %u\"", 1999 * 2654435761u, 1999);
    }
    buf_puts(&schema[2], "{\"anyOf\":[");
    for (u32 i = 0; i < 400; i++)
        buf_printf(&schema[2],
                   "%s{\"type\":\"object\",\"properties\":{\"name\":{\"const\":\"tool_%u\"},"
                   "\"arguments\":{\"type\":\"object\",\"properties\":{\"path_%u\":{\"type\":"
                   "\"string\"},\"count\":{\"type\":\"integer\"}},\"required\":[\"path_%u\"]}},"
                   "\"required\":[\"name\",\"arguments\"]}",
                   i ? "," : "", i, i, i);
    buf_puts(&schema[2], "]}");
    buf_puts(&text[2], "{\"name\": \"tool_377\", \"arguments\": {\"path_377\": \"a boy\"}}");
    buf_puts(&schema[3], "{\"type\":\"object\",\"properties\":{\"m\":{}");
    for (u32 i = 0; i < 500; i++)
        buf_printf(&schema[3], ",\"member_%u\":{\"type\":\"integer\"}", i);
    buf_puts(&schema[3], "}}");
    buf_puts(&text[3], "{\"member_3\": 5, \"member_250\": 17, \"member_499\": 1}");
    make_fields(&schema[4]);
    buf_puts(&text[4],
             "{\"name\": \"tool_377\", \"arguments\": {\"email\": \"joe@example.com\", "
             "\"site\": \"https://example.com/a\", \"when\": \"2024-02-29T10:00:00Z\", "
             "\"id\": \"123e4567-e89b-12d3-a456-426614174000\", \"price\": 12.5, "
             "\"count\": 377, \"slug\": \"a-long-walk\", \"roles\": [\"view\", \"edit\"]}}");
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static struct automaton *open_schema(const char *text, const struct trie *trie)
{
    struct grammar *g;
    struct automaton *a;
    struct err err;
    json_t *j = json_loads(text, 0, NULL);
    CHECK(j && schema_compile(&g, j, &err) == 0);
    CHECK(automaton_open(&a, g, trie, &err) == 0);
    json_decref(j);
    return a;
}

/* Twice: as a first request pays it, and as later ones do. Gives seconds per token of the second.
 */
static double follow(const char *what, struct automaton *a, const i32 *tokens, u32 n)
{
    double total = 0;
    for (int pass = 0; pass < 2; pass++) {
        struct constraint *c;
        double worst = 0, began = now();
        CHECK(constraint_open(&c, a, NULL) == 0);
        for (u32 i = 0; i < n; i++) {
            double t = now();
            CHECK(constraint_mask(c) && constraint_advance(c, tokens[i]));
            worst = MAX(worst, now() - t);
        }
        total = (now() - began) / n;
        printf("%-16s %s: %7.1f us a token, at most %7.1f (%u tokens)\n", what,
               pass ? "again" : "first", total * 1e6, worst * 1e6, n);
        constraint_close(c);
    }
    return total;
}

/* ---- a model's vocabulary ---- */

struct answer {
    i32 tokens[MAX_TOKENS];
    u32 n;
    double began, ended;
};

static int on_text(void *ctx, int32_t token, const char *text, size_t n)
{
    struct answer *a = ctx;
    (void)text, (void)n;
    a->ended = now();
    if (!a->n) a->began = a->ended;
    if (token >= 0) a->tokens[a->n++] = token;
    return 0;
}

static void measure_model(const char *path)
{
    struct fletch_engine *e;
    struct fletch_model *m;
    struct fletch_session *s;
    struct fletch_model_info info;
    struct fletch_generated made;
    static struct answer answer;
    int32_t *ids;
    size_t n;
    CHECK(fletch_engine_open(&e, NULL) == 0);
    CHECK(fletch_model_open(&m, e, path, NULL) == 0 && fletch_session_open(&s, m) == 0);
    fletch_model_info(m, &info);
    CHECK(fletch_tokenize(m, "Once upon a time", 16, FLETCH_BOS, &ids, &n) == 0);
    CHECK(fletch_session_append(s, ids, n, NULL) == 0);
    struct fletch_generate g = {.max_tokens = N_ANSWER,
                                .sampling = info.sampling,
                                .json_schema = schemas[0][1],
                                .on_text = on_text,
                                .ctx = &answer};
    g.sampling.temperature = 0.8f;
    CHECK(fletch_session_generate(s, &g, &made) == 0);
    double step = (answer.ended - answer.began) / (answer.n - 1);
    struct str *pieces = calloc(info.n_vocab, sizeof *pieces);
    for (u32 i = 0; i < info.n_vocab; i++) {
        char *text = NULL;
        int32_t id = (int32_t)i;
        size_t length;
        CHECK(fletch_detokenize(m, &id, 1, 0, &text, &length) == 0);
        pieces[i] = (struct str){text, length};
    }
    struct trie *trie;
    CHECK(trie_open(&trie, pieces, info.n_vocab, NULL, 0, NULL) == 0);
    printf("%s: %u tokens, %.1f us a step\n", path, info.n_vocab, step * 1e6);
    struct automaton *a = open_schema(schemas[0][1], trie);
    double mask = follow(schemas[0][0], a, answer.tokens, answer.n);
    printf("%-16s %.2f %% of a step\n", "", 100 * mask / step);
    automaton_close(a);
    trie_close(trie);
    for (u32 i = 0; i < info.n_vocab; i++) fletch_free((void *)(uintptr_t)pieces[i].p);
    free(pieces);
    fletch_free(ids);
    fletch_session_close(s);
    fletch_model_close(m);
    fletch_engine_close(e);
}

/* ---- a synthetic one ---- */

static u32 next_random(u64 *x)
{
    *x = *x * 6364136223846793005u + 1442695040888963407u;
    return (u32)(*x >> 33);
}

/* All bytes, then words; most with a space before them, some with the marks of JSON around. */
static struct str synthetic(u32 i, u64 *random)
{
    static const char *const marks[] = {"", "\"", "\":", "\",", "{\"", "}", ", \"", "\xc3\xa9"};
    char text[32];
    size_t n = 0;
    if (i < 256) {
        text[n++] = (char)i;
    } else {
        if (next_random(random) % 2) text[n++] = ' ';
        for (u32 k = 1 + next_random(random) % 9; k; k--) {
            size_t rare = 10 + n % 16;
            text[n++] = "etaoinshrdlucmfwypvbgkjqxz"[next_random(random) % rare];
        }
        const char *mark = marks[next_random(random) % 40 % ARRAY_LEN(marks)];
        if (next_random(random) % 8 == 0) n += (size_t)sprintf(text + n, "%s", mark);
    }
    char *copy = malloc(n);
    return (struct str){memcpy(copy, text, n), n};
}

/* The longest token at each place. */
static u32 encode(const struct str *pieces, const char *text, i32 *tokens)
{
    u32 n = 0;
    for (size_t at = 0, length = strlen(text); at < length;) {
        u32 best = (u8)text[at];
        for (u32 i = 256; i < N_SYNTHETIC; i++)
            if (pieces[i].n > pieces[best].n && pieces[i].n <= length - at &&
                memcmp(pieces[i].p, text + at, pieces[i].n) == 0)
                best = i;
        tokens[n++] = (i32)best;
        at += pieces[best].n;
    }
    return n;
}

static void measure_synthetic(void)
{
    struct str *pieces = calloc(N_SYNTHETIC, sizeof *pieces);
    struct trie *trie;
    i32 tokens[MAX_TOKENS];
    u64 random = 1;
    for (u32 i = 0; i < N_SYNTHETIC; i++) pieces[i] = synthetic(i, &random);
    double began = now();
    CHECK(trie_open(&trie, pieces, N_SYNTHETIC, NULL, 0, NULL) == 0);
    printf("synthetic: %d tokens, a tree of %u nodes in %.0f ms\n", N_SYNTHETIC, trie->n_nodes,
           (now() - began) * 1e3);
    static const char *const large[] = {"2,000 values", "2,000 const", "400 tools", "500 members",
                                        "400 x 8 fields"};
    struct buf made[N_LARGE] = {0}, said[N_LARGE] = {0};
    make_large(made, said);
    for (size_t i = 0; i < ARRAY_LEN(schemas) + N_LARGE; i++) {
        size_t k = i - ARRAY_LEN(schemas);
        bool is_large = i >= ARRAY_LEN(schemas);
        const char *name = is_large ? large[k] : schemas[i][0];
        began = now();
        struct automaton *a = open_schema(is_large ? made[k].p : schemas[i][1], trie);
        printf("%-16s compiled in %.1f ms\n", name, (now() - began) * 1e3);
        follow(name, a, tokens, encode(pieces, is_large ? said[k].p : texts[i], tokens));
        automaton_close(a);
    }
    for (size_t k = 0; k < N_LARGE; k++) {
        buf_free(&made[k]);
        buf_free(&said[k]);
    }
    trie_close(trie);
    for (u32 i = 0; i < N_SYNTHETIC; i++) free((void *)(uintptr_t)pieces[i].p);
    free(pieces);
}

int main(int argc, char **argv)
{
    if (argc > 1) measure_model(argv[1]);
    measure_synthetic();
    return 0;
}
