/* Unigram: of all ways to cut a text into tokens, the one with the highest sum of scores. Where no
 * token fits, a character counts as unknown. */
#include "text/tok_internal.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "text/unicode.h"

/* Bytes of text after which ids are put out at the next place that all ways lead through. */
enum { WINDOW = 1 << 16 };

/* Unknown characters cost this much more than the worst token. */
static const double unknown_penalty = 10;

void tok_unigram_open(struct tok *t)
{
    double min = FLT_MAX;
    for (u32 i = 0; i < t->spec.n_tokens; i++) {
        if (tok_type(t, (i32)i) != TOK_NORMAL) continue;
        min = MIN(min, (double)t->spec.scores[i]);
        t->max_score = MAX(t->max_score, (double)t->spec.scores[i]);
    }
    t->unknown_score = (min < FLT_MAX ? min : 0) - unknown_penalty;
}

static double unigram_score(const struct tok *t, i32 id, size_t n)
{
    /* max_score is not below 0: user-defined tokens win over what is made of other tokens. */
    if (tok_type(t, id) == TOK_USER) return (double)n * t->max_score - 0.1;
    return (double)t->spec.scores[id];
}

/* What is known of a text's places: of each one the length of the last token of the best way there
 * (0: no way), and the scores of those that a token can reach from here. */
struct unigram {
    const struct tok *t;
    struct str s;
    u16 *lens;      /* [bytes since base, and one more] */
    double *scores; /* [mask + 1] by place */
    size_t mask;
    size_t base; /* all ways lead through this place; the tokens before it are out */
    size_t far;  /* the last place that a token offered so far reaches */
};

static void unigram_offer(struct unigram *u, size_t from, size_t end, double score)
{
    u16 *len = &u->lens[end - u->base];
    double *best = &u->scores[end & u->mask];
    if (*len && score <= *best) return;
    *len = (u16)(end - from);
    *best = score;
    u->far = MAX(u->far, end);
}

static size_t char_size(struct str s, size_t at)
{
    int len = utf8_check(s.p + at, s.n - at);
    return len > 0 ? (size_t)len : 1;
}

/* Offers all tokens that begin at `at`, and the character there as an unknown one. */
static void unigram_step(struct unigram *u, size_t at)
{
    const struct tok *t = u->t;
    size_t one = char_size(u->s, at);
    double score = u->scores[at & u->mask];
    bool single = false;
    u32 node = 0;
    for (size_t i = at; i < u->s.n && (node = trie_step(&t->words, node, u->s.p[i])); i++) {
        i32 id = t->words.ids[node];
        size_t n = i + 1 - at;
        if (id < 0) continue;
        unigram_offer(u, at, i + 1, score + unigram_score(t, id, n));
        single |= n == one;
    }
    if (!single) unigram_offer(u, at, at + one, score + t->unknown_score);
}

/* The token that is this text, or -1. */
static i32 unigram_find(const struct tok *t, struct str s)
{
    u32 node = 0;
    for (size_t i = 0; i < s.n; i++)
        if (!(node = trie_step(&t->words, node, s.p[i]))) return -1;
    return t->words.ids[node];
}

/* Emits the best way from base to `end`, which becomes the new base. */
static int unigram_flush(struct unigram *u, size_t end, struct tok_ids *ids, size_t first,
                         struct err *err)
{
    u16 next = 0;
    int rc = 0;
    /* From the end to the beginning, the lengths move to where their tokens begin. */
    for (size_t at = end - u->base;;) {
        u16 len = u->lens[at];
        u->lens[at] = next;
        if (at == 0) break;
        at -= len;
        next = len;
    }
    for (size_t at = u->base; at < end && rc == 0;) {
        struct str s = {u->s.p + at, u->lens[at - u->base]};
        rc = tok_emit(u->t, s, unigram_find(u->t, s), ids, first, err);
        at += s.n;
    }
    memset(u->lens, 0, (end - u->base + 1) * sizeof *u->lens);
    u->base = u->far = end;
    return rc;
}

/* Memory for places up to `end`, zero where it is new. */
static int unigram_reserve(struct unigram *u, struct tok_merger *m, size_t end, struct err *err)
{
    size_t n = end - u->base + 1, cap = MAX(m->cap_lens, (size_t)4096), bytes;
    if (n <= m->cap_lens) return 0;
    while (cap < n) cap += cap / 2;
    if (!CK_MUL(cap, sizeof *u->lens, &bytes)) return err_nomem(err, "tokens");
    u16 *p = realloc(m->lens, bytes);
    if (!p) return err_nomem(err, "tokens");
    memset(p + m->cap_lens, 0, (cap - m->cap_lens) * sizeof *p);
    u->lens = m->lens = p;
    m->cap_lens = cap;
    return 0;
}

static int unigram_scores(struct unigram *u, struct tok_merger *m, struct err *err)
{
    size_t n = 8; /* more than the longest character, and the longest token that is searched for */
    while (n <= MIN(u->t->max_text, (size_t)TOK_MAX_WORD)) n *= 2;
    if (!m->scores && !(m->scores = calloc(n, sizeof *m->scores))) return err_nomem(err, "tokens");
    u->scores = m->scores;
    u->mask = n - 1;
    return 0;
}

int tok_unigram_windows(const struct tok *t, struct tok_merger *m, struct str s, size_t window,
                        struct tok_ids *ids, struct err *err)
{
    struct unigram u = {.t = t, .s = s, .lens = m->lens};
    size_t first = ids->n;
    int rc = unigram_scores(&u, m, err);
    if (rc == 0) u.scores[0] = 0;
    for (size_t at = 0; at < s.n && rc == 0; at++) {
        if (at > u.base && at == u.far && at - u.base >= window)
            rc = unigram_flush(&u, at, ids, first, err);
        if (rc == 0) rc = unigram_reserve(&u, m, MIN(at + u.mask, s.n), err);
        if (rc == 0 && (at == u.base || u.lens[at - u.base])) unigram_step(&u, at);
    }
    return rc || !s.n ? rc : unigram_flush(&u, s.n, ids, first, err);
}

int tok_unigram(const struct tok *t, struct tok_merger *m, struct str s, struct tok_ids *ids,
                struct err *err)
{
    return tok_unigram_windows(t, m, s, WINDOW, ids, err);
}
