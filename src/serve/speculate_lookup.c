/* Drafts without a program: what followed the latest tokens where they stood before, and what a
 * grammar allows alone. */
#include "serve/automaton.h"
#include "serve/speculate_internal.h"

enum {
    LOOKUP_MIN = 3, /* latest tokens that must have stood somewhere before */
    LOOKUP_MAX = 32,
    COPY_EDIT = 2, /* latest tokens that may differ from what is copied, */
    COPY_SEEN = 8, /* those before that are compared, */
    COPY_SAME = 5, /* and how many of them must be the same */
    /* kinds: */
    KIND_AGREES = SPEC_KINDS - 2, /* the latest token agrees with a copy that was edited */
    KIND_REPLACED,                /* it is instead of the one that was copied */
};

enum {
    KIND_INSIDE, /* more that is forced follows */
    KIND_LAST,   /* a token may have more bytes than those that are forced */
};

/* ---- the text ---- */

/* A place that the text may go on from: where, and what speaks for it. */
struct place {
    u32 at, kind; /* at 0: none */
};

/* Of the places where most of the latest tokens stood before, the last one. */
static struct place longest(const i32 *tokens, u32 n)
{
    static const u8 limits[KIND_AGREES - 1] = {3, 4, 6, 9, 16};
    const i32 *last = tokens + n - 1;
    u32 best = 0, most = LOOKUP_MIN - 1, kind = 0;
    for (u32 end = n - 1; end >= LOOKUP_MIN && most < LOOKUP_MAX; end--) {
        const i32 *at = tokens + end - 1;
        u32 len = 0;
        if (end <= most || *at != *last || *(at - most) != *(last - most)) continue;
        while (len < LOOKUP_MAX && len < end && *(at - len) == *(last - len)) len++;
        if (len > most) {
            most = len;
            best = end;
        }
    }
    while (kind < ARRAY_LEN(limits) && most > limits[kind]) kind++;
    return (struct place){best, kind};
}

/* Where a copy goes on after a token or two of it were replaced, left out or put in. */
static struct place resume(const struct spec_record *r, const i32 *tokens, u32 n)
{
    static const i32 shifts[] = {0, 1, -1, 2, -2};
    enum { BACK = COPY_EDIT + COPY_SEEN };
    u32 at = n - r->copy, n_same = 0;
    if (!r->copy || at < BACK || at >= n) return (struct place){0};
    for (u32 i = COPY_EDIT + 1; i <= BACK; i++) n_same += tokens[at - i] == tokens[n - i];
    if (n_same < COPY_SAME) return (struct place){0};
    for (u32 i = 0; i < ARRAY_LEN(shifts); i++) {
        u32 to = at + (u32)shifts[i];
        if (to < n && tokens[to - 1] == tokens[n - 1]) return (struct place){to, KIND_AGREES};
    }
    return (struct place){at, KIND_REPLACED};
}

static struct place look_up(const struct spec_seq *q)
{
    u32 n = q->n + q->n_draft;
    if (n <= LOOKUP_MIN) return (struct place){0};
    struct place p = longest(q->tokens, n);
    return p.at ? p : resume(q->record, q->tokens, n);
}

static void append(struct spec_seq *q, i32 token, enum drafter_kind d, u32 kind)
{
    q->record->kind[q->n_draft] = (u8)(d * SPEC_KINDS + kind);
    q->tokens[q->n + q->n_draft++] = token;
}

/* Bytes that are forced may be spelled by other tokens than the longest; a text shows by which. */
static bool knows_better(const struct spec_seq *q)
{
    struct spec_seq bare = *q;
    bare.n_draft = 0;
    struct place p = look_up(&bare);
    return p.at && spec_rate(q->record, DRAFTER_NGRAM, p.kind) >
                       spec_rate(q->record, DRAFTER_FORCED, KIND_INSIDE);
}

/* May run on into its own drafts: a loop goes on as a loop. */
static int ngram_draft(struct spec *s, struct spec_seq *seqs, u32 n, u32 n_decode, struct err *err)
{
    (void)err;
    for (u32 i = 0; i < n; i++) {
        struct spec_seq *q = &seqs[i];
        if (!q->room || !spec_can_try(s, q->record, n_decode)) continue;
        if (q->n_draft && knows_better(q)) q->n_draft = 0;
        struct place p = look_up(q);
        u32 known = q->n + q->n_draft;
        u32 most = p.at ? spec_worth(s, q, DRAFTER_NGRAM, p.kind, n_decode) : 0;
        if (p.at && p.kind < KIND_AGREES) q->record->copy = known - p.at;
        for (u32 k = 0; k < most; k++) append(q, q->tokens[p.at + k], DRAFTER_NGRAM, p.kind);
    }
    return 0;
}

static bool ngram_would(struct spec *s, struct spec_seq *q, u32 n_decode)
{
    if (!q->room || !spec_can_try(s, q->record, n_decode)) return false;
    struct place p = look_up(q);
    return p.at && spec_worth(s, q, DRAFTER_NGRAM, p.kind, n_decode);
}

/* ---- the grammar ---- */

static int forced_draft(struct spec *s, struct spec_seq *seqs, u32 n, u32 n_decode, struct err *err)
{
    (void)err;
    for (u32 i = 0; i < n; i++) {
        struct spec_seq *q = &seqs[i];
        i32 ids[SPEC_MAX];
        if (!q->constraint || !q->room) continue;
        u32 n_forced = constraint_forced(q->constraint, ids, SPEC_MAX);
        u32 most = n_forced ? spec_worth(s, q, DRAFTER_FORCED, KIND_INSIDE, n_decode) : 0;
        for (u32 k = 0; k < MIN(most, n_forced); k++)
            append(q, ids[k], DRAFTER_FORCED, k + 1 == n_forced ? KIND_LAST : KIND_INSIDE);
    }
    return 0;
}

static bool forced_would(struct spec *s, struct spec_seq *q, u32 n_decode)
{
    (void)s;
    (void)n_decode;
    return q->constraint && q->room;
}

const struct drafter drafter_ngram = {.name = "n-gram", .draft = ngram_draft, .would = ngram_would};
const struct drafter drafter_forced = {
    .name = "grammar", .draft = forced_draft, .would = forced_would};
