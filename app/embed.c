/* fletch embed and rerank: texts into vectors, and documents in the order in which they answer a
 * query. */
#include "app.h"

#include <stdlib.h>
#include <string.h>

static const struct opt text_opts[] = {
    {'f', "file", OPT_TEXT, "FILE", NULL, "read the texts from FILE, one per line (- for stdin)",
     OPT_FIELD(file), 0, 0},
    OPT_ROW_JSON,
};
static const struct opt_group embed_group = {NULL, OPT_TABLE(text_opts)};

static const struct opt rank_opts[] = {
    {'f', "file", OPT_TEXT, "FILE", NULL,
     "read the documents from FILE, one per line (- for stdin)", OPT_FIELD(file), 0, 0},
    OPT_ROW_JSON,
};
static const struct opt_group rank_group = {NULL, OPT_TABLE(rank_opts)};

/* Texts from the command line, then the lines of a file. */
struct texts {
    struct text file;
    size_t n;
    const char **p;
    size_t *length;
};

static void texts_close(struct texts *t)
{
    free(t->file.p);
    free(t->p);
    free(t->length);
}

static void add_text(struct texts *t, const char *p, size_t n)
{
    if ((t->n & (t->n + 1)) == 0) { /* of 2^k - 1: room for twice as many */
        t->p = need(realloc(t->p, (2 * t->n + 1) * sizeof *t->p));
        t->length = need(realloc(t->length, (2 * t->n + 1) * sizeof *t->length));
    }
    t->p[t->n] = p;
    t->length[t->n++] = n;
}

/* Operands from `first` on, and the lines of -f; what: what is missing where there are none. */
static int texts_open(struct texts *t, const struct args *a, size_t first, const char *command,
                      const char *what)
{
    *t = (struct texts){0};
    for (size_t i = first; i < a->operands.n; i++)
        add_text(t, a->operands.p[i], strlen(a->operands.p[i]));
    if (!a->file)
        return t->n ? EXIT_OK
                    : opts_wrong(command, "missing %s: pass it as an argument, or use -f FILE",
                                 what);
    int code = read_text(&t->file, a->file);
    if (code) return code;
    const char *p = t->file.p, *end = p + t->file.n;
    while (p < end) {
        const char *line = memchr(p, '\n', (size_t)(end - p));
        size_t n = (size_t)((line ? line : end) - p);
        size_t bare = n && p[n - 1] == '\r' ? n - 1 : n;
        if (bare) add_text(t, p, bare);
        p += n + 1;
    }
    return t->n ? EXIT_OK : say_error("%s contains no text", QUOTE(a->file));
}

struct job {
    struct host host;
    const struct args *a;
    struct texts texts;
    struct progress progress;
    size_t n_tokens;
};

static int open_model(struct job *j)
{
    int code = host_open_engine(&j->host, j->a->backend, j->a);
    if (!code) code = host_open_model(&j->host, j->a->operands.p[0], j->a);
    return code ? code : host_open_session(&j->host);
}

static void close_job(struct job *j)
{
    host_close(&j->host);
    texts_close(&j->texts);
}

static int text_failed(const struct job *j, int rc)
{
    return say_failure(rc, fletch_model_error(j->host.model));
}

/* ---- embed ---- */

static void print_vector(const struct job *j, size_t i, const float *v, size_t n_tokens,
                         json_t *list)
{
    uint32_t n = j->host.info.n_embd;
    if (!j->a->json) {
        for (uint32_t k = 0; k < n; k++) printf("%s%.9g", k ? " " : "", (double)v[k]);
        putchar('\n');
        return;
    }
    json_t *values = need(json_array());
    for (uint32_t k = 0; k < n; k++) json_array_append_new(values, json_real((double)v[k]));
    json_array_append_new(list, json_pack("{s:I, s:I, s:o}", "index", (json_int_t)i, "n_tokens",
                                          (json_int_t)n_tokens, "embedding", values));
}

static int embed_one(struct job *j, size_t i, float *v, json_t *list)
{
    int32_t *ids;
    size_t n;
    int rc =
        fletch_tokenize(j->host.model, j->texts.p[i], j->texts.length[i], FLETCH_BOS, &ids, &n);
    if (rc) return text_failed(j, rc);
    fletch_session_reset(j->host.session);
    rc = fletch_session_embed(j->host.session, ids, n, v);
    fletch_free(ids);
    if (rc) return say_failure(rc, fletch_session_error(j->host.session));
    fletch_normalise(v, j->host.info.n_embd);
    print_vector(j, i, v, n, list);
    return EXIT_OK;
}

static int embed_all(struct job *j)
{
    json_t *list = need(json_array());
    float *v = need(calloc(j->host.info.n_embd, sizeof *v));
    int code = EXIT_OK;
    progress_begin(&j->progress, "embedding", j->a);
    for (size_t i = 0; i < j->texts.n && !code; i++) {
        code = embed_one(j, i, v, list);
        progress_report(&j->progress, i + 1, j->texts.n);
    }
    progress_end(&j->progress);
    free(v);
    if (!code && j->a->json) {
        json_t *doc =
            need(json_pack("{s:s, s:I, s:O}", "pooling", j->host.info.pooling, "dimensions",
                           (json_int_t)j->host.info.n_embd, "embeddings", list));
        say_json(doc);
        json_decref(doc);
    }
    json_decref(list);
    return code;
}

static int embed(const struct args *a)
{
    struct job j = {.a = a};
    int code = texts_open(&j.texts, a, 1, "embed", "TEXT");
    if (!code) code = open_model(&j);
    if (!code) code = embed_all(&j);
    close_job(&j);
    return code;
}

const struct command cmd_embed = {
    .name = "embed",
    .operands = "MODEL [TEXT]...",
    .summary = "convert texts to vectors",
    .about = "Prints one vector of length 1 (an embedding) for each text. Give the texts as "
             "arguments, or in a file with one text per line.\nA vector is the mean of the final "
             "hidden states of all tokens, or the state of the first or last token, as the model "
             "specifies (pooling_type). With --json, the command prints one JSON document with the "
             "vectors, the number of tokens of each text, and the pooling type.",
    .groups = {&embed_group, &opts_model, &opts_place, &opts_common},
    .min_operands = 1,
    .max_operands = 1000000,
    .run = embed,
};

/* ---- rerank ---- */

struct ranked {
    size_t index;
    float score;
};

static int by_score(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    if (x->score > y->score) return -1;
    if (x->score < y->score) return 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static int rank_one(struct job *j, struct ranked *r)
{
    const struct args *a = j->a;
    int32_t *ids;
    size_t n;
    const struct fletch_pair pair = {a->operands.p[1], strlen(a->operands.p[1]),
                                     j->texts.p[r->index], j->texts.length[r->index]};
    int rc = fletch_rank_tokenize(j->host.model, &pair, &ids, &n);
    if (rc) return text_failed(j, rc);
    fletch_session_reset(j->host.session);
    rc = fletch_session_rank(j->host.session, ids, n, &r->score);
    fletch_free(ids);
    j->n_tokens += n;
    return rc ? say_failure(rc, fletch_session_error(j->host.session)) : EXIT_OK;
}

static void print_ranked(const struct job *j, const struct ranked *all)
{
    json_t *list = need(json_array());
    for (size_t i = 0; i < j->texts.n; i++) {
        const char *text = j->texts.p[all[i].index];
        size_t n = j->texts.length[all[i].index];
        if (j->a->json) {
            json_array_append_new(
                list, json_pack("{s:I, s:f, s:o}", "index", (json_int_t)all[i].index, "score",
                                (double)all[i].score, "text", json_text(text, n)));
            continue;
        }
        printf("%.4f  ", (double)all[i].score);
        say_text(stdout, text, n);
        putchar('\n');
    }
    if (j->a->json) {
        json_t *doc =
            need(json_pack("{s:I, s:O}", "n_tokens", (json_int_t)j->n_tokens, "results", list));
        say_json(doc);
        json_decref(doc);
    }
    json_decref(list);
}

static int rank_all(struct job *j)
{
    struct ranked *all = need(calloc(j->texts.n, sizeof *all));
    int code = EXIT_OK;
    progress_begin(&j->progress, "ranking", j->a);
    for (size_t i = 0; i < j->texts.n && !code; i++) {
        all[i].index = i;
        code = rank_one(j, &all[i]);
        progress_report(&j->progress, i + 1, j->texts.n);
    }
    progress_end(&j->progress);
    if (!code) {
        qsort(all, j->texts.n, sizeof *all, by_score);
        print_ranked(j, all);
    }
    free(all);
    return code;
}

static int rerank(const struct args *a)
{
    struct job j = {.a = a};
    int code = texts_open(&j.texts, a, 2, "rerank", "DOCUMENT");
    if (!code) code = open_model(&j);
    if (!code) code = rank_all(&j);
    close_job(&j);
    return code;
}

const struct command cmd_rerank = {
    .name = "rerank",
    .operands = "MODEL QUERY [DOCUMENT]...",
    .summary = "sort documents by how well they answer a query",
    .about = "Scores how well each document answers QUERY, from 0 to 1, and prints the documents "
             "with their scores, best first. Give the documents as arguments, or in a file with "
             "one document per line. MODEL must be a reranker, such as Qwen3-Reranker.",
    .groups = {&rank_group, &opts_model, &opts_place, &opts_common},
    .min_operands = 2,
    .max_operands = 1000000,
    .run = rerank,
};
