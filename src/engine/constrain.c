#include "engine/constrain.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "format/json.h"
#include "serve/schema.h"

enum { MAX_IDLE = 8 }; /* compiled grammars that are kept though nobody uses them */

struct rules {
    struct rules *next;
    struct automaton *a;
    u32 n_users;
    bool schema;
    char text[];
};

struct constrain {
    pthread_mutex_t lock;
    struct str *pieces; /* [n_tokens]; NULL before the first grammar */
    u8 *marks;          /* [n_tokens][GRAMMAR_TOKEN_BYTES] pieces of control tokens */
    i32 *ends;
    struct trie *trie;
    struct rules *rules; /* the latest first */
};

int constrain_open(struct constrain **out, struct err *err)
{
    struct constrain *c = *out = calloc(1, sizeof *c);
    if (!c) return err_nomem(err, "grammars");
    pthread_mutex_init(&c->lock, NULL);
    return 0;
}

static void rules_free(struct rules *r)
{
    automaton_close(r->a);
    free(r);
}

void constrain_close(struct constrain *c)
{
    if (!c) return;
    while (c->rules) {
        struct rules *r = c->rules;
        c->rules = r->next;
        rules_free(r);
    }
    trie_close(c->trie);
    free(c->pieces);
    free(c->ends);
    free(c->marks);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

/* Bytes of the tokens that are text. Control tokens are none, whatever they look like: they are
 * what grammars name them by. A token with a byte of theirs can be in no answer, nor is it UTF-8.
 */
static int make_trie(struct constrain *c, const struct tok *tok, struct err *err)
{
    u32 n = tok_size(tok), n_ends = 0;
    c->pieces = calloc((size_t)n + 1, sizeof *c->pieces);
    c->ends = calloc((size_t)n + 1, sizeof *c->ends);
    c->marks = calloc((size_t)n + 1, GRAMMAR_TOKEN_BYTES);
    if (!c->pieces || !c->ends || !c->marks) return err_nomem(err, "the tree of tokens");
    for (u32 i = 0; i < n; i++) {
        enum tok_type type = tok_type(tok, (i32)i);
        if (tok_is_eog(tok, (i32)i))
            c->ends[n_ends++] = (i32)i;
        else if (type == TOK_NORMAL || type == TOK_USER || type == TOK_BYTE)
            c->pieces[i] = tok_piece(tok, (i32)i, false);
        else if (type == TOK_CONTROL && i <= GRAMMAR_MAX_TOKEN_ID) {
            u8 *mark = c->marks + (size_t)i * GRAMMAR_TOKEN_BYTES;
            grammar_token_bytes(mark, i);
            c->pieces[i] = (struct str){(const char *)mark, GRAMMAR_TOKEN_BYTES};
            continue;
        }
        struct str piece = c->pieces[i];
        if (piece.n && memchr(piece.p, GRAMMAR_TOKEN_MARK, piece.n)) c->pieces[i] = (struct str){0};
    }
    return trie_open(&c->trie, c->pieces, n, c->ends, n_ends, err);
}

static int need_trie(struct constrain *c, const struct tok *tok, struct err *err)
{
    if (c->trie) return 0;
    int rc = make_trie(c, tok, err);
    if (!rc) return 0;
    free(c->pieces);
    free(c->ends);
    free(c->marks);
    c->pieces = NULL;
    c->ends = NULL;
    c->marks = NULL;
    return rc;
}

/* What a grammar names by id must be a control token: all else is matched by its text. */
static int check_tokens(const struct grammar *g, const struct tok *tok, struct err *err)
{
    for (u32 i = 0; i < g->n_tokens; i++) {
        u32 id = g->tokens[i];
        const char *why = id >= tok_size(tok) ? "the vocabulary has no token with this id"
                          : tok_is_eog(tok, (i32)id)
                              ? "this token ends the answer and cannot appear in a grammar"
                          : tok_type(tok, (i32)id) == TOK_CONTROL
                              ? NULL
                              : "this is not a control token; write its text instead";
        if (why) return err_set(err, FLETCH_E_ARG, "grammar: token <[%u]>: %s", id, why);
    }
    i32 ids[] = {g->budget_end, g->budget_begin};
    for (u32 i = 0; g->budget_end >= 0 && i < ARRAY_LEN(ids); i++)
        if (ids[i] >= (i32)tok_size(tok) || (ids[i] >= 0 && tok_is_eog(tok, ids[i])))
            return err_set(err, FLETCH_E_ARG,
                           "grammar: token <[%d]> of the budget is not in the vocabulary or ends "
                           "the answer",
                           ids[i]);
    return 0;
}

static int compile(struct automaton **out, const struct tok *tok, const struct trie *trie,
                   struct str text, bool schema, struct err *err)
{
    struct grammar *g = NULL;
    json_t *j = NULL;
    int rc;
    if (schema) {
        if (text.n > GRAMMAR_MAX_TEXT)
            return err_set(err, FLETCH_E_ARG, "schema: larger than %d bytes", GRAMMAR_MAX_TEXT);
        rc = json_parse(&j, text, "schema", err);
        if (!rc) rc = schema_compile(&g, j, err);
        json_decref(j);
    } else {
        rc = grammar_parse(&g, text, err);
    }
    if (!rc && (rc = check_tokens(g, tok, err))) grammar_close(g);
    if (rc && rc != FLETCH_E_NOMEM) rc = err->code = FLETCH_E_ARG; /* whoever asked can mend it */
    return rc ? rc : automaton_open(out, g, trie, err);
}

static int find_rules(struct rules **out, struct constrain *c, const struct tok *tok,
                      const char *text, bool schema, struct err *err)
{
    for (struct rules **r = &c->rules; *r; r = &(*r)->next) {
        if ((*r)->schema != schema || strcmp((*r)->text, text) != 0) continue;
        struct rules *found = *out = *r;
        *r = found->next;
        found->next = c->rules;
        c->rules = found;
        return 0;
    }
    size_t n = strlen(text);
    struct rules *r = calloc(1, sizeof *r + n + 1);
    if (!r) return err_nomem(err, "the grammar");
    memcpy(r->text, text, n);
    r->schema = schema;
    int rc = compile(&r->a, tok, c->trie, (struct str){text, n}, schema, err);
    if (rc) {
        free(r);
        return rc;
    }
    r->next = c->rules;
    *out = c->rules = r;
    return 0;
}

int constrain_begin(struct constrained *out, struct fletch_model *m, const char *grammar,
                    const char *json_schema, struct err *err)
{
    struct constrain *c = m->constrain;
    *out = (struct constrained){0};
    if (!grammar && !json_schema) return 0;
    if (grammar && json_schema)
        return err_set(err, FLETCH_E_ARG, "a grammar and a JSON schema cannot be combined");
    if (!m->m->vocab->tok)
        return err_set(
            err, FLETCH_E_VOCAB,
            "the model has no vocabulary, so its output cannot be constrained by a grammar");
    pthread_mutex_lock(&c->lock);
    int rc = need_trie(c, m->m->vocab->tok, err);
    if (!rc)
        rc = find_rules(&out->rules, c, m->m->vocab->tok, grammar ? grammar : json_schema, !grammar,
                        err);
    if (!rc) rc = constraint_open(&out->place, out->rules->a, err);
    if (!rc) out->rules->n_users++;
    pthread_mutex_unlock(&c->lock);
    if (rc) *out = (struct constrained){0};
    return rc;
}

void constrain_end(struct constrained *used, struct fletch_model *m)
{
    struct constrain *c = m->constrain;
    u32 n_idle = 0;
    if (!used->rules) return;
    constraint_close(used->place);
    pthread_mutex_lock(&c->lock);
    used->rules->n_users--;
    for (struct rules **r = &c->rules; *r;) {
        struct rules *gone = *r;
        if (gone->n_users || n_idle++ < MAX_IDLE) {
            r = &gone->next;
            continue;
        }
        *r = gone->next;
        rules_free(gone);
    }
    pthread_mutex_unlock(&c->lock);
    *used = (struct constrained){0};
}
