#include "serve/automaton.h"

#include <stdlib.h>
#include <string.h>

#include "base/strmap.h"

enum {
    MAX_STATES = 8192,
    MAX_WORDS = 1 << 19,   /* of all states */
    MAX_CLOSURE = 1 << 14, /* places looked at to find one state */
    CLOSURE_WORDS = 1 << 18,
    CLOSURE_SLOTS = 1 << 15,
    MAX_WORK = 1 << 20, /* places looked at to find one mask */
    N_MASKS = 64,
    UNKNOWN = 0, /* instead of a state: nobody asked yet */
    DEAD = UINT32_MAX,
    FULL = UINT32_MAX - 1,
};

/* A place is [instruction, n, n instructions to return to, the innermost last]; a state is its
 * places, one after the other: those before a byte, and [0, 0] where the text may end. */
struct state {
    u32 at, n; /* in words */
    u32 mask;  /* 1 + its slot; 0: none */
    bool accepts, over;
};

struct closure {
    u32 *words; /* [CLOSURE_WORDS] places, also those that are only passed through */
    u32 n_words, n_places;
    u32 *slots; /* [CLOSURE_SLOTS] where each place is, by hash */
    u32 *stamps;
    u32 stamp;
    bool full;
};

struct automaton {
    struct grammar *g;
    const struct trie *trie;
    struct state *states; /* [MAX_STATES] from 1 */
    u32 n_states;
    u32 *words; /* [MAX_WORDS] */
    u32 n_words;
    u32 *next; /* [MAX_STATES][n_classes] */
    struct strmap known;
    struct closure work;
    u64 n_work; /* places looked at since it began on a mask */
    u32 n_mask_words;
    u32 *masks;         /* [N_MASKS][n_mask_words] */
    u32 *only;          /* [n_mask_words] the mask of one token */
    u32 owner[N_MASKS]; /* state, 0: unused */
    u64 used[N_MASKS];  /* when */
    struct constraint *constraints;
    struct automaton_stats stats;
};

struct constraint {
    struct automaton *a;
    struct constraint *next, **link; /* among those that began; NULL before */
    u32 path[CONSTRAINT_BACK + 1];   /* states; the last one is now */
    u32 n;
    bool failed;
    /* of the grammar's budget: tokens so far, and after how many it began and ended */
    u32 n_tokens, begun_at, ended_at;
};

int automaton_open(struct automaton **out, struct grammar *g, const struct trie *trie,
                   struct err *err)
{
    struct automaton *a = *out = calloc(1, sizeof *a);
    if (!a) {
        grammar_close(g);
        return err_nomem(err, "the grammar's states");
    }
    a->g = g;
    a->trie = trie;
    a->n_states = 1;
    a->n_mask_words = trie->n_tokens / 32 + 1;
    a->states = calloc(MAX_STATES, sizeof *a->states);
    a->words = calloc(MAX_WORDS, sizeof *a->words);
    a->next = calloc((size_t)MAX_STATES * g->n_classes, sizeof *a->next);
    a->masks = calloc((size_t)N_MASKS * a->n_mask_words, sizeof *a->masks);
    a->only = calloc(a->n_mask_words, sizeof *a->only);
    a->work.words = calloc(CLOSURE_WORDS, sizeof *a->work.words);
    a->work.slots = calloc(CLOSURE_SLOTS, sizeof *a->work.slots);
    a->work.stamps = calloc(CLOSURE_SLOTS, sizeof *a->work.stamps);
    if (a->states && a->words && a->next && a->masks && a->only && a->work.words && a->work.slots &&
        a->work.stamps)
        return 0;
    automaton_close(a);
    *out = NULL;
    return err_nomem(err, "the grammar's states");
}

void automaton_close(struct automaton *a)
{
    if (!a) return;
    CHECK(!a->constraints);
    grammar_close(a->g);
    strmap_free(&a->known);
    free(a->states);
    free(a->words);
    free(a->next);
    free(a->masks);
    free(a->only);
    free(a->work.words);
    free(a->work.slots);
    free(a->work.stamps);
    free(a);
}

void automaton_stats(const struct automaton *a, struct automaton_stats *stats)
{
    *stats = a->stats;
    stats->n_states = a->n_states - 1;
}

/* ---- states ---- */

static void closure_begin(struct closure *w)
{
    w->n_words = w->n_places = 0;
    w->full = false;
    if (++w->stamp == 0) {
        memset(w->stamps, 0, CLOSURE_SLOTS * sizeof *w->stamps);
        w->stamp = 1;
    }
}

/* A place that is inside `depth` calls, and in one more if extra is not 0. */
static void closure_add(struct automaton *a, u32 instr, const u32 *calls, u32 depth, u32 extra)
{
    struct closure *w = &a->work;
    u32 n = depth + (extra != 0), *place = w->words + w->n_words;
    if (n + (u64)a->g->need[instr] > GRAMMAR_MAX_DEPTH) return; /* it could not be finished */
    w->full |= w->n_places == MAX_CLOSURE || w->n_words + n + 2 > CLOSURE_WORDS;
    if (w->full) return;
    place[0] = instr;
    place[1] = n;
    if (depth) memcpy(place + 2, calls, depth * sizeof *place);
    if (extra) place[2 + depth] = extra;
    u32 hash = instr * 2654435761u ^ n * 40503u ^ (n ? place[1 + n] * 2246822519u : 0);
    for (u32 i = (hash ^ hash >> 15) % CLOSURE_SLOTS;; i = (i + 1) % CLOSURE_SLOTS) {
        if (w->stamps[i] != w->stamp) {
            w->stamps[i] = w->stamp;
            w->slots[i] = w->n_words;
            break;
        }
        if (memcmp(w->words + w->slots[i], place, (n + 2) * sizeof *place) == 0) return;
    }
    w->n_words += n + 2;
    w->n_places++;
}

/* Follows everything that takes no byte. */
static void closure_expand(struct automaton *a)
{
    const struct grammar *g = a->g;
    struct closure *w = &a->work;
    for (u32 at = 0; at < w->n_words && !w->full; at += 2 + w->words[at + 1]) {
        const struct grammar_instr *in = &g->instrs[w->words[at]];
        const u32 *calls = w->words + at + 2;
        u32 n = w->words[at + 1];
        if (in->op == GRAMMAR_SPLIT) {
            closure_add(a, in->next, calls, n, 0);
            closure_add(a, in->arg, calls, n, 0);
        } else if (in->op == GRAMMAR_CALL) {
            closure_add(a, g->entry[in->arg], calls, n, in->next);
        } else if (in->op == GRAMMAR_RETURN && n) {
            closure_add(a, calls[n - 1], calls, n - 1, 0);
        }
    }
    a->n_work += w->n_places;
}

static u32 find_state(struct automaton *a, u32 n, bool accepts, bool over)
{
    struct str key = {(const char *)(a->words + a->n_words), n * sizeof(u32)};
    u32 id;
    if (strmap_get(&a->known, key, &id)) return id;
    if (a->n_states == MAX_STATES || !strmap_add(&a->known, key, a->n_states)) return FULL;
    a->states[a->n_states] =
        (struct state){.at = a->n_words, .n = n, .accepts = accepts, .over = over};
    a->n_words += n;
    return a->n_states++;
}

/* The state of the closure. */
static u32 closure_end(struct automaton *a)
{
    struct closure *w = &a->work;
    u32 n = 0;
    bool accepts = false, goes_on = false;
    closure_expand(a);
    if (w->full || a->n_words + w->n_words > MAX_WORDS) return FULL;
    for (u32 at = 0; at < w->n_words; at += 2 + w->words[at + 1]) {
        enum grammar_op op = a->g->instrs[w->words[at]].op;
        u32 n_place = 2 + w->words[at + 1];
        bool end = op == GRAMMAR_RETURN && n_place == 2;
        if (op != GRAMMAR_BYTES && !end) continue;
        accepts |= end;
        goes_on |= !end;
        memcpy(a->words + a->n_words + n, w->words + at, n_place * sizeof *w->words);
        n += n_place;
    }
    return n ? find_state(a, n, accepts, accepts && !goes_on) : DEAD;
}

static u32 first_state(struct automaton *a)
{
    closure_begin(&a->work);
    closure_add(a, a->g->entry[a->g->root], NULL, 0, 0);
    return closure_end(a);
}

static u32 successor(struct automaton *a, u32 from, u8 byte)
{
    const struct grammar *g = a->g;
    const struct state *s = &a->states[from];
    closure_begin(&a->work);
    for (u32 at = s->at; at < s->at + s->n; at += 2 + a->words[at + 1]) {
        const struct grammar_instr *in = &g->instrs[a->words[at]];
        if (in->op == GRAMMAR_BYTES && grammar_set_has(&g->sets[in->arg], byte))
            closure_add(a, in->next, a->words + at + 2, a->words[at + 1], 0);
    }
    return closure_end(a);
}

static inline u32 go(struct automaton *a, u32 from, u8 byte)
{
    u32 *next = &a->next[(size_t)from * a->g->n_classes + a->g->class_of[byte]];
    if (*next != UNKNOWN) return *next;
    u32 to = successor(a, from, a->g->of_class[a->g->class_of[byte]]);
    if (to != FULL) *next = to;
    return to;
}

/* Forgets all states but those that somebody is in. */
static bool flush(struct automaton *a)
{
    u32 n_words = a->n_words;
    u32 *words = malloc((n_words + 1) * sizeof *words);
    struct state *states = malloc(a->n_states * sizeof *states);
    bool ok = words && states;
    if (ok) {
        memcpy(words, a->words, n_words * sizeof *words);
        memcpy(states, a->states, a->n_states * sizeof *states);
        strmap_free(&a->known);
        memset(a->next, 0, (size_t)a->n_states * a->g->n_classes * sizeof *a->next);
        memset(a->owner, 0, sizeof a->owner);
        a->n_states = 1;
        a->n_words = 0;
        a->stats.n_flushes++;
    }
    for (struct constraint *c = a->constraints; ok && c; c = c->next) {
        for (u32 i = 0; i < c->n && !c->failed; i++) {
            const struct state *s = &states[c->path[i]];
            memcpy(a->words + a->n_words, words + s->at, s->n * sizeof *words);
            c->path[i] = find_state(a, s->n, s->accepts, s->over);
            c->failed = c->path[i] == FULL;
        }
    }
    free(words);
    free(states);
    return ok;
}

/* ---- masks ---- */

/* Every token whose bytes lead somewhere; false: no room for so many states. */
static bool walk(struct automaton *a, u32 from, u32 *mask)
{
    const struct trie *t = a->trie;
    u32 path[TRIE_MAX_BYTES + 1] = {from};
    memset(mask, 0, a->n_mask_words * sizeof *mask);
    a->n_work = 0;
    for (u32 i = 0; i < t->n_nodes;) {
        const struct trie_node *node = &t->nodes[i];
        u32 to = go(a, path[node->depth - 1], node->byte);
        if (to == FULL || a->n_work > MAX_WORK) return false;
        if (to == DEAD) {
            i = node->skip;
            continue;
        }
        path[node->depth] = to;
        for (u32 k = node->first; k < t->nodes[i + 1].first; k++)
            mask[t->ids[k] / 32] |= 1u << t->ids[k] % 32;
        i++;
    }
    for (u32 i = 0; a->states[from].accepts && i < t->n_ends; i++)
        mask[t->ends[i] / 32] |= 1u << t->ends[i] % 32;
    return true;
}

static const u32 *find_mask(struct automaton *a, u32 id)
{
    struct state *s = &a->states[id];
    u32 slot = 0;
    a->stats.n_masks++;
    if (s->mask) {
        a->stats.n_hits++;
        slot = s->mask - 1;
    } else {
        for (u32 i = 1; i < N_MASKS && a->owner[slot]; i++)
            if (!a->owner[i] || a->used[i] < a->used[slot]) slot = i;
        if (a->owner[slot]) a->states[a->owner[slot]].mask = 0;
        a->owner[slot] = 0;
        if (!walk(a, id, a->masks + (size_t)slot * a->n_mask_words)) return NULL;
        a->owner[slot] = id;
        s->mask = slot + 1;
    }
    a->used[slot] = a->stats.n_masks;
    return a->masks + (size_t)slot * a->n_mask_words;
}

/* ---- answers ---- */

int constraint_open(struct constraint **out, struct automaton *a, struct err *err)
{
    struct constraint *c = *out = calloc(1, sizeof *c);
    if (!c) return err_nomem(err, "the grammar's place");
    c->a = a;
    c->begun_at = a->g->budget_begin < 0 ? 0 : UINT32_MAX;
    c->ended_at = UINT32_MAX;
    return 0;
}

void constraint_close(struct constraint *c)
{
    if (!c) return;
    if (c->link) {
        *c->link = c->next;
        if (c->next) c->next->link = c->link;
    }
    free(c);
}

/* False: it gave up. */
static bool begin(struct constraint *c)
{
    struct automaton *a = c->a;
    if (c->failed || c->n) return !c->failed;
    u32 first = first_state(a);
    if (first == FULL && flush(a)) first = first_state(a);
    c->failed = first == FULL || first == DEAD;
    if (c->failed) return false;
    c->path[c->n++] = first;
    c->next = a->constraints;
    c->link = &a->constraints;
    if (c->next) c->next->link = &c->next;
    a->constraints = c;
    return true;
}

static u32 now(const struct constraint *c)
{
    return c->path[c->n - 1];
}

/* Where the budget is used up, the token that ends it alone, if it is allowed. */
static const u32 *within_budget(struct constraint *c, const u32 *mask)
{
    const struct grammar *g = c->a->g;
    u32 end = (u32)g->budget_end;
    if (!mask || g->budget_end < 0 || end / 32 >= c->a->n_mask_words || c->begun_at > c->n_tokens ||
        c->ended_at <= c->n_tokens || c->n_tokens - c->begun_at < g->budget ||
        !(mask[end / 32] >> end % 32 & 1))
        return mask;
    memset(c->a->only, 0, c->a->n_mask_words * sizeof *c->a->only);
    c->a->only[end / 32] = 1u << end % 32;
    return c->a->only;
}

const u32 *constraint_mask(struct constraint *c)
{
    if (!begin(c)) return NULL;
    const u32 *mask = find_mask(c->a, now(c));
    if (!mask && flush(c->a) && !c->failed) mask = find_mask(c->a, now(c));
    c->failed = !mask;
    return within_budget(c, mask);
}

/* As many bytes as are allowed, from a state; *to is where that leads. */
static size_t follow(struct automaton *a, u32 from, struct str text, u32 *to)
{
    size_t i = 0;
    *to = from;
    for (; i < text.n; i++) {
        u32 next = go(a, *to, (u8)text.p[i]);
        if (next == FULL) *to = FULL;
        if (next == FULL || next == DEAD) break;
        *to = next;
    }
    return i;
}

/* The same from where c is, which has not moved yet. */
static size_t try_text(struct constraint *c, struct str text, u32 *to)
{
    size_t n = follow(c->a, now(c), text, to);
    if (*to == FULL && flush(c->a) && !c->failed) n = follow(c->a, now(c), text, to);
    c->failed |= *to == FULL;
    return n;
}

static void move(struct constraint *c, u32 to)
{
    if (c->n == ARRAY_LEN(c->path)) memmove(c->path, c->path + 1, --c->n * sizeof *c->path);
    c->path[c->n++] = to;
}

static void count(struct constraint *c, i32 token)
{
    const struct grammar *g = c->a->g;
    c->n_tokens++;
    if (token == g->budget_begin && c->begun_at > c->n_tokens) c->begun_at = c->n_tokens;
    if (token == g->budget_end && c->begun_at < c->n_tokens && c->ended_at > c->n_tokens)
        c->ended_at = c->n_tokens;
}

static bool is_end(const struct trie *t, i32 token)
{
    for (u32 i = 0; i < t->n_ends; i++)
        if (t->ends[i] == token) return true;
    return false;
}

bool constraint_advance(struct constraint *c, i32 token)
{
    const struct trie *t = c->a->trie;
    u32 to;
    if (!begin(c) || token < 0 || (u32)token >= t->n_tokens) return false;
    if (is_end(t, token)) {
        if (!constraint_may_end(c)) return false;
        move(c, now(c));
        count(c, token);
        return true;
    }
    struct str bytes = t->pieces[token];
    if (!bytes.n || try_text(c, bytes, &to) < bytes.n || c->failed) return false;
    move(c, to);
    count(c, token);
    return true;
}

void constraint_back(struct constraint *c, u32 n)
{
    CHECK(n < c->n || (n == 0 && c->n == 0));
    c->n -= n;
    c->n_tokens -= n;
    if (c->begun_at > c->n_tokens) c->begun_at = UINT32_MAX;
    if (c->ended_at > c->n_tokens) c->ended_at = UINT32_MAX;
}

static void fill_row(struct constraint *c, struct step *step, u32 i)
{
    u32 n = step_mask_words(step->net), *to = step->masks + (size_t)i * n;
    const u32 *mask = constraint_mask(c);
    memset(to, 0, n * sizeof *to);
    if (mask) memcpy(to, mask, MIN(n, c->a->n_mask_words) * sizeof *to);
    step->sample[i].masked = true;
}

void constraint_fill(struct constraint *c, struct step *step, u32 i, const i32 *guesses, u32 n)
{
    u32 n_ahead = 0;
    fill_row(c, step, i);
    for (u32 k = 0; k < n; k++) {
        n_ahead += constraint_advance(c, guesses[k]);
        fill_row(c, step, i + 1 + k);
    }
    constraint_back(c, n_ahead);
}

u32 constraint_worth(struct constraint *c, const i32 *guesses, u32 n)
{
    u32 k = 0;
    while (k < n && constraint_advance(c, guesses[k])) k++;
    constraint_back(c, k);
    return MIN(n, k + 1);
}

/* The one byte that may follow a state; -1: there are others, or the text may end. */
static i32 only_byte(const struct automaton *a, u32 id)
{
    const struct state *s = &a->states[id];
    const struct grammar_set *set = NULL;
    i32 only = -1;
    if (s->accepts) return -1;
    for (u32 at = s->at; at < s->at + s->n; at += 2 + a->words[at + 1]) {
        const struct grammar_set *other = &a->g->sets[a->g->instrs[a->words[at]].arg];
        if (set && memcmp(set, other, sizeof *set) != 0) return -1;
        set = other;
    }
    for (u32 byte = 0; set && byte < 256; byte++) {
        if (!grammar_set_has(set, (u8)byte)) continue;
        if (only >= 0) return -1;
        only = (i32)byte;
    }
    return only;
}

u32 constraint_forced(struct constraint *c, i32 *tokens, u32 n)
{
    char bytes[256];
    u32 n_bytes = 0, k = 0;
    if (!begin(c)) return 0;
    for (u32 id = now(c); n_bytes < sizeof bytes; n_bytes++) {
        i32 byte = only_byte(c->a, id);
        u32 to = byte < 0 ? DEAD : go(c->a, id, (u8)byte);
        if (to == DEAD || to == FULL) break;
        bytes[n_bytes] = (char)byte;
        id = to;
    }
    for (u32 at = 0, len; k < n && at < n_bytes; k++, at += len) {
        tokens[k] = trie_longest(c->a->trie, (struct str){bytes + at, n_bytes - at}, &len);
        if (!len) break;
    }
    return k;
}

bool constraint_may_end(struct constraint *c)
{
    return begin(c) && c->a->states[now(c)].accepts;
}

bool constraint_is_over(struct constraint *c)
{
    return begin(c) && c->a->states[now(c)].over;
}

size_t constraint_feed(struct constraint *c, struct str text)
{
    u32 to;
    if (!begin(c)) return 0;
    size_t n = try_text(c, text, &to);
    if (!c->failed) move(c, to);
    return n;
}

int constraint_error(const struct constraint *c, struct err *err)
{
    if (c->failed)
        return err_set(err, FLETCH_E_LIMIT,
                       "the grammar is too ambiguous: there are too many ways to parse the answer");
    return err_set(err, FLETCH_E_ARG,
                   "the grammar requires text that no token of the vocabulary can produce");
}
