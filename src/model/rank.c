#include "model/rank.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/num.h"
#include "model/model.h"

enum { MAX_LABELS = 64 };

/* What Qwen3-Reranker was trained with; its GGUF files carry the same as their rerank template. */
static const char qwen3_prompt[] =
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and "
    "the Instruct provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n"
    "<|im_start|>user\n<Instruct>: Given a web search query, retrieve relevant passages that "
    "answer "
    "the query\n<Query>: {query}\n<Document>: {document}<|im_end|>\n"
    "<|im_start|>assistant\n<think>\n\n</think>\n\n";

void rank_close(struct rank *r)
{
    if (r) free(r->rows);
    free(r);
}

/* Row `row` of a matrix of the file, as floats. */
static int read_row(struct model *m, const struct tensor *t, u64 row, float *dst, struct err *err)
{
    const u8 *data;
    u64 bytes;
    int rc = source_data(m->source, t, &data, err);
    if (rc) return rc;
    CHECK(quant_bytes(t->type, t->ne[0], &bytes));
    quant_decode(t->type, data + row * bytes, dst, t->ne[0]);
    return 0;
}

static int read_rows(struct rank *r, struct model *m, const struct tensor *t, const i32 *rows,
                     u32 n_rows, struct err *err)
{
    int rc = 0;
    if (t->ne[0] != m->hp.d_model || t->ne[2] != 1 || t->ne[3] != 1 || n_rows > MAX_LABELS)
        return err_set(err, FLETCH_E_FORMAT, "tensor %s: its shape is not [%u, labels], at most %u",
                       QUOTE(t->name), m->hp.d_model, (u32)MAX_LABELS);
    r->n_labels = n_rows;
    r->d_model = m->hp.d_model;
    r->rows = calloc(n_rows, r->d_model * sizeof *r->rows);
    if (!r->rows) return err_nomem(err, "the rank head");
    for (u32 i = 0; i < n_rows && !rc; i++)
        rc = read_row(m, t, rows ? (u64)rows[i] : i, r->rows + (size_t)i * r->d_model, err);
    source_drop(m->source, t);
    return rc;
}

/* The label called "yes"; the first one where none is. */
static u32 find_yes(const struct model *m)
{
    char key[96];
    snprintf(key, sizeof key, "%s.classifier.output_labels", m->hp.arch);
    const struct kv *kv = source_kv(m->source, key);
    struct str label;
    u64 at = 0;
    for (u32 i = 0; kv && kv->elem == KV_STR && i < kv->n && kv_next_str(kv, &at, &label); i++)
        if (label.n == 3 && strncasecmp(label.p, "yes", 3) == 0) return i;
    return 0;
}

static const char *find(struct str text, const char *what)
{
    return memmem(text.p, text.n, what, strlen(what));
}

static int split_prompt(struct rank *r, struct str text, struct err *err)
{
    static const char query[] = "{query}", document[] = "{document}";
    const char *q = find(text, query), *d = find(text, document), *end = text.p + text.n;
    if (!q || !d)
        return err_set(err, FLETCH_E_FORMAT, "the rerank template has no %s", q ? document : query);
    r->document_first = d < q;
    const char *first = r->document_first ? d : q, *second = r->document_first ? q : d;
    const char *after = first + strlen(r->document_first ? document : query);
    const char *last = second + strlen(r->document_first ? query : document);
    r->part[0] = (struct str){text.p, (size_t)(first - text.p)};
    r->part[1] = (struct str){after, (size_t)(second - after)};
    r->part[2] = (struct str){last, (size_t)(end - last)};
    return 0;
}

static bool is_qwen3(const struct model *m)
{
    return strcmp(m->hp.arch, "qwen3") == 0 || strcmp(m->hp.arch, "qwen3vl") == 0;
}

/* A published Qwen3-Reranker is a plain language model; only its name tells. */
static bool is_plain_reranker(const struct model *m)
{
    const struct tok *tok = m->vocab->tok;
    return is_qwen3(m) && strcasestr(m->hp.name, "reranker") && tok &&
           tok_find(tok, STR("yes")) >= 0 && tok_find(tok, STR("no")) >= 0;
}

static int open_parts(struct rank *r, struct model *m, struct err *err)
{
    const struct tensor *head = NULL;
    struct str prompt = str_of(is_qwen3(m) ? qwen3_prompt : "{query}{document}");
    int rc;
    if (m->hp.pooling == POOLING_RANK) {
        head = source_tensor(m->source, "cls.output.weight");
        if (!head)
            return err_set(err, FLETCH_E_UNSUPPORTED,
                           "pooling_type rank requires the tensor cls.output.weight, which is "
                           "missing");
        rc = read_rows(r, m, head, NULL, (u32)MIN(head->ne[1], UINT32_MAX), err);
        r->yes = find_yes(m);
    } else {
        const i32 rows[2] = {tok_find(m->vocab->tok, STR("yes")),
                             tok_find(m->vocab->tok, STR("no"))};
        head = source_tensor(m->source, "output.weight");
        if (!head) head = source_tensor(m->source, "token_embd.weight");
        rc = read_rows(r, m, head, rows, 2, err);
    }
    if (!rc && r->yes >= r->n_labels)
        rc = err_set(err, FLETCH_E_FORMAT,
                     "cls.output.weight has %u rows but label 'yes' is number %u", r->n_labels,
                     r->yes + 1);
    if (!rc) rc = MIN(source_get_str(m->source, "tokenizer.chat_template.rerank", &prompt, err), 0);
    return rc ? rc : split_prompt(r, prompt, err);
}

int rank_open(struct rank **out, struct model *m, struct err *err)
{
    *out = NULL;
    if (m->hp.pooling != POOLING_RANK && !is_plain_reranker(m)) return 0;
    struct rank *r = calloc(1, sizeof *r);
    int rc = r ? open_parts(r, m, err) : err_nomem(err, "the rank head");
    if (rc) {
        rank_close(r);
        err_prefix(err, "reranker");
        return rc;
    }
    *out = r;
    return 0;
}

float rank_score(const struct rank *r, const float *hidden)
{
    double logits[MAX_LABELS], sum = 0;
    for (u32 i = 0; i < r->n_labels; i++) {
        logits[i] = 0;
        for (u32 j = 0; j < r->d_model; j++)
            logits[i] += (double)hidden[j] * (double)r->rows[(size_t)i * r->d_model + j];
    }
    if (r->n_labels == 1) return (float)(1 / (1 + exp(-logits[0])));
    for (u32 i = 0; i < r->n_labels; i++) sum += exp(logits[i] - logits[r->yes]);
    return (float)(1 / sum);
}
