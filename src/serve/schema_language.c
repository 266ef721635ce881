#include "serve/schema_language.h"

#include <stdlib.h>
#include <string.h>

#include "serve/schema_regex.h"

enum {
    MAX_TERMS = 1 << 14,
    MAX_CLASSES = 512,
    MAX_LETTERS = 512,
    MAX_STATES = 1024,  /* of an automaton */
    MAX_COUNTED = 2048, /* the same with the number of characters so far */
    MAX_DEPTH = 2000,   /* of terms inside each other */
    MAX_DERIVED = 1 << 18,
    LEAST_LENGTH = 16,  /* of strings that are counted: fewer characters are no use */
    MAX_PATTERN = 2048, /* bytes of a pattern */
    MAX_UNROLLED = 8,   /* times that something with look-aheads is repeated */
    MAX_LIST_TERMS = 256,
    ANY_COUNT = UINT32_MAX, /* the number of characters no longer matters */
};

enum kind { CLASS, SEQUENCE, REPEAT, NOT, EITHER, BOTH };

struct term {
    enum kind kind;
    bool has_empty; /* "" is in it */
    u32 a, b;       /* parts; of a class its number; of a list where it begins, and its length */
    u32 min, max;
    u32 *next; /* [n_letters] derivatives, 1 + term; NULL before the first */
};

struct class
{
    struct regex_range *ranges;
    u32 n;
};

struct language {
    struct schemac *c;
    struct arena arena;
    struct term terms[MAX_TERMS];
    u32 n_terms;
    struct strmap known;
    u32 *lists; /* of EITHER and BOTH */
    u32 n_lists, cap_lists;
    struct class classes[MAX_CLASSES];
    u32 n_classes;
    u32 depth, any; /* any: one character */
    /* Characters that no class tells apart are one letter; made when a term is first followed. */
    u32 *cuts; /* [n_cuts] where pieces begin */
    u32 *letter_of;
    u32 n_cuts, n_letters, n_derived;
    const struct signature **letters; /* [n_letters] the classes that each is in */
};

/* ---- terms ---- */

static u32 fail(struct language *l, const char *what)
{
    schema_fail(l->c, FLETCH_E_UNSUPPORTED, "%s", what);
    return LANGUAGE_NOTHING;
}

static u32 too_complex(struct language *l)
{
    return fail(l, "the pattern, format and length of one string together require too many states; "
                   "shorten or drop one of them");
}

struct term_key {
    u32 kind, a, b, min, max;
};

static u32 add_term(struct language *l, struct term t, const void *key, size_t n)
{
    u32 id;
    if (l->c->rc) return LANGUAGE_NOTHING;
    if (strmap_get(&l->known, (struct str){key, n}, &id)) return id;
    if (l->n_terms == MAX_TERMS) return too_complex(l);
    char *copy = arena_alloc(&l->arena, n, 1);
    if (copy) memcpy(copy, key, n);
    if (!copy || !strmap_add(&l->known, (struct str){copy, n}, l->n_terms)) {
        schema_nomem(l->c);
        return LANGUAGE_NOTHING;
    }
    l->terms[l->n_terms] = t;
    return l->n_terms++;
}

static u32 make_term(struct language *l, struct term t)
{
    struct term_key key = {t.kind, t.a, t.b, t.min, t.max};
    return add_term(l, t, &key, sizeof key);
}

static u32 make_class(struct language *l, const struct regex_range *ranges, u32 n)
{
    u32 i = 0;
    if (!n || l->c->rc) return LANGUAGE_NOTHING;
    for (; i < l->n_classes; i++)
        if (l->classes[i].n == n && memcmp(l->classes[i].ranges, ranges, n * sizeof *ranges) == 0)
            break;
    if (i == MAX_CLASSES) return too_complex(l);
    if (i == l->n_classes) {
        struct regex_range *copy = arena_alloc(&l->arena, n, sizeof *copy);
        if (!copy) return schema_nomem(l->c), LANGUAGE_NOTHING;
        memcpy(copy, ranges, n * sizeof *copy);
        l->classes[l->n_classes++] = (struct class){copy, n};
    }
    return make_term(l, (struct term){.kind = CLASS, .a = i});
}

static u32 sequence(struct language *l, u32 a, u32 b);

static u32 repeat(struct language *l, u32 a, u32 min, u32 max)
{
    if (max == 0 || a == LANGUAGE_EMPTY) return LANGUAGE_EMPTY;
    if (a == LANGUAGE_NOTHING) return min ? LANGUAGE_NOTHING : LANGUAGE_EMPTY;
    if (min == 1 && max == 1) return a;
    if (l->terms[a].has_empty) min = 0;
    if (a == l->any && !min && max == REGEX_NO_MAX) return LANGUAGE_ALL;
    struct term t = {.kind = REPEAT, .has_empty = min == 0, .a = a, .min = min, .max = max};
    return make_term(l, t);
}

static int by_number(const void *a, const void *b)
{
    u32 x = *(const u32 *)a, y = *(const u32 *)b;
    return x < y ? -1 : x > y;
}

/* The parts of a term that is a list of this kind, or the term. */
static u32 add_parts(const struct language *l, enum kind kind, u32 term, u32 *parts, u32 n)
{
    const struct term *t = &l->terms[term];
    bool is_list = term > LANGUAGE_ALL && t->kind == kind;
    u32 n_more = is_list ? t->b : 1;
    if (n + n_more > MAX_LIST_TERMS) return UINT32_MAX;
    memcpy(parts + n, is_list ? l->lists + t->a : &term, n_more * sizeof *parts);
    return n + n_more;
}

/* One term of what is in any of the parts, or in all of them. */
static u32 join(struct language *l, enum kind kind, u32 x, u32 y)
{
    u32 parts[MAX_LIST_TERMS + 1], n, used = 0;
    u32 none = kind == EITHER ? LANGUAGE_NOTHING : LANGUAGE_ALL;
    u32 all = kind == EITHER ? LANGUAGE_ALL : LANGUAGE_NOTHING;
    bool has_empty = kind == BOTH;
    if (l->c->rc || x == all || y == all) return l->c->rc ? LANGUAGE_NOTHING : all;
    if (x == none || x == y) return y;
    if (y == none) return x;
    n = add_parts(l, kind, x, parts + 1, 0);
    if (n != UINT32_MAX) n = add_parts(l, kind, y, parts + 1, n);
    if (n == UINT32_MAX) return too_complex(l);
    qsort(parts + 1, n, sizeof *parts, by_number);
    for (u32 i = 1; i <= n; i++)
        if (!used || parts[used] != parts[i]) parts[++used] = parts[i];
    for (u32 i = 1; i <= used; i++)
        has_empty = kind == EITHER ? has_empty || l->terms[parts[i]].has_empty
                                   : has_empty && l->terms[parts[i]].has_empty;
    for (u32 i = 1; i <= used; i++)
        if (kind == BOTH && parts[i] == LANGUAGE_EMPTY)
            return has_empty ? LANGUAGE_EMPTY : LANGUAGE_NOTHING;
    if (used == 1) return parts[1];
    parts[0] = (u32)kind;
    if (l->n_lists + used > l->cap_lists) {
        u32 cap = l->cap_lists * 2 + 1024;
        u32 *more = realloc(l->lists, cap * sizeof *more);
        if (!more) return schema_nomem(l->c), LANGUAGE_NOTHING;
        l->lists = more;
        l->cap_lists = cap;
    }
    u32 before = l->n_terms;
    struct term t = {.kind = kind, .has_empty = has_empty, .a = l->n_lists, .b = used};
    u32 id = add_term(l, t, parts, (used + 1) * sizeof *parts);
    if (l->n_terms > before) {
        memcpy(l->lists + l->n_lists, parts + 1, used * sizeof *parts);
        l->n_lists += used;
    }
    return id;
}

u32 language_both(struct language *l, u32 a, u32 b)
{
    return join(l, BOTH, a, b);
}

u32 language_either(struct language *l, u32 a, u32 b)
{
    return join(l, EITHER, a, b);
}

u32 language_not(struct language *l, u32 a)
{
    if (a == LANGUAGE_NOTHING) return LANGUAGE_ALL;
    if (a == LANGUAGE_ALL) return LANGUAGE_NOTHING;
    if (a > LANGUAGE_ALL && l->terms[a].kind == NOT) return l->terms[a].a;
    return make_term(l, (struct term){.kind = NOT, .has_empty = !l->terms[a].has_empty, .a = a});
}

/* Sequences lean to the right, and a choice before one is taken apart, so that equal terms look the
 * same. */
static u32 sequence(struct language *l, u32 a, u32 b)
{
    const struct term *t = &l->terms[a];
    u32 made = LANGUAGE_NOTHING;
    if (l->c->rc || a == LANGUAGE_NOTHING || b == LANGUAGE_NOTHING) return LANGUAGE_NOTHING;
    if (a == LANGUAGE_EMPTY) return b;
    if (b == LANGUAGE_EMPTY || (a == LANGUAGE_ALL && b == LANGUAGE_ALL)) return a;
    if (l->depth > MAX_DEPTH) return too_complex(l);
    l->depth++;
    if (a > LANGUAGE_ALL && t->kind == SEQUENCE) {
        u32 first = t->a, rest = sequence(l, t->b, b);
        made = sequence(l, first, rest);
    } else if (a > LANGUAGE_ALL && t->kind == EITHER) {
        u32 at = t->a, n = t->b;
        for (u32 i = 0; i < n; i++) made = join(l, EITHER, made, sequence(l, l->lists[at + i], b));
    } else {
        bool has_empty = t->has_empty && l->terms[b].has_empty;
        made =
            make_term(l, (struct term){.kind = SEQUENCE, .has_empty = has_empty, .a = a, .b = b});
    }
    l->depth--;
    return made;
}

/* ---- patterns ---- */

struct writer {
    struct language *l;
    enum language_mode mode;
};

static u32 put_choice(struct writer w, const struct regex *x, u32 then, bool begins);

static u32 put_class(struct writer w, const struct regex *x)
{
    struct regex_range few[64], *to = few;
    if (w.mode == LANGUAGE_EXACT && x->partial)
        return fail(
            w.l, "a pattern with \\p cannot be negated or tested against listed values; list the "
                 "characters in [...]");
    if (w.mode == LANGUAGE_EXACT) return make_class(w.l, x->ranges, x->n_ranges);
    if (x->n_ranges + 32 > ARRAY_LEN(few))
        to = arena_alloc(&w.l->arena, x->n_ranges + 32, sizeof *to);
    if (!to) return schema_nomem(w.l->c), LANGUAGE_NOTHING;
    return make_class(w.l, to, regex_drop_controls(x, to));
}

static bool has_begin(const struct regex *x)
{
    if (x->kind == REGEX_BEGIN) return true;
    for (const struct regex *part = x->first; part; part = part->next)
        if (has_begin(part)) return true;
    return false;
}

/* Something that repeats and looks around is written out: each time sees what follows it. */
static u32 put_unrolled(struct writer w, const struct regex *x, u32 then, bool begins)
{
    u32 made = then;
    if (x->max > MAX_UNROLLED)
        return fail(w.l, "a pattern with ^, $ or a look-ahead inside a repetition is not "
                         "supported; repeat it at most 8 times");
    if (has_begin(x) && x->max > 1)
        return fail(w.l, "a pattern with ^ inside a repetition is not supported");
    for (u32 i = x->max; i-- > 0;) {
        made = put_choice(w, x->first, made, begins);
        if (i >= x->min) made = join(w.l, EITHER, made, then);
    }
    return made;
}

static u32 put_atom(struct writer w, const struct regex *x, u32 then, bool begins)
{
    struct writer exact = {w.l, LANGUAGE_EXACT};
    switch (x->kind) {
    case REGEX_CLASS: return sequence(w.l, put_class(w, x), then);
    case REGEX_CHOICE: return put_choice(w, x, then, begins);
    case REGEX_BEGIN: return begins ? then : LANGUAGE_NOTHING;
    case REGEX_END: return w.l->terms[then].has_empty ? LANGUAGE_EMPTY : LANGUAGE_NOTHING;
    case REGEX_LOOK:
        if (!x->negated)
            return join(w.l, BOTH, put_choice(w, x->first, LANGUAGE_ALL, begins), then);
        return join(w.l, BOTH, language_not(w.l, put_choice(exact, x->first, LANGUAGE_ALL, begins)),
                    then);
    default: break;
    }
    if (regex_looks_around(x)) return put_unrolled(w, x, then, begins);
    u32 part = x->first->kind == REGEX_CLASS ? put_class(w, x->first)
                                             : put_choice(w, x->first, LANGUAGE_EMPTY, false);
    return sequence(w.l, repeat(w.l, part, x->min, x->max), then);
}

/* From a part of a sequence on. Nothing was taken before it: begins. Where that depends on what an
 * optional part takes, both ways are written. */
static u32 put_from(struct writer w, const struct regex *x, u32 then, bool begins)
{
    if (!x || w.l->c->rc) return then;
    bool later = begins && x->next && x->kind < REGEX_LOOK;
    for (const struct regex *p = x->next; later && !has_begin(p); p = p->next) later = p->next;
    bool still = begins && x->kind >= REGEX_LOOK;
    if (w.l->depth > MAX_DEPTH) return too_complex(w.l);
    w.l->depth++;
    u32 rest = put_from(w, x->next, then, still), made = LANGUAGE_NOTHING;
    if (!later) {
        made = put_atom(w, x, rest, begins);
    } else if (regex_looks_around(x)) {
        fail(w.l, "a pattern with ^ after another ^ or a look-ahead is not supported");
    } else {
        u32 alone = put_atom(w, x, LANGUAGE_EMPTY, begins);
        u32 more = sequence(w.l, w.l->any, LANGUAGE_ALL);
        made = sequence(w.l, join(w.l, BOTH, alone, more), rest);
        if (w.l->terms[alone].has_empty)
            made = join(w.l, EITHER, made, put_from(w, x->next, then, true));
    }
    w.l->depth--;
    return made;
}

static u32 put_choice(struct writer w, const struct regex *x, u32 then, bool begins)
{
    u32 made = LANGUAGE_NOTHING;
    if (x->kind != REGEX_CHOICE) return put_atom(w, x, then, begins);
    for (const struct regex *part = x->first; part; part = part->next)
        made = join(w.l, EITHER, made, put_from(w, part->first, then, begins));
    return made;
}

u32 language_pattern(struct language *l, struct str pattern, enum language_mode mode)
{
    struct arena arena = {0};
    struct writer w = {l, mode};
    u32 made = LANGUAGE_NOTHING;
    if (pattern.n > MAX_PATTERN) {
        schema_fail(
            l->c, FLETCH_E_LIMIT,
            "a pattern of more than %d bytes is not supported together with other conditions",
            MAX_PATTERN);
        return LANGUAGE_NOTHING;
    }
    const struct regex *x = schema_read_regex(l->c, &arena, pattern);
    if (x && !has_begin(x)) {
        made = sequence(l, LANGUAGE_ALL, put_choice(w, x, LANGUAGE_ALL, false));
    } else if (x) {
        u32 later = sequence(l, LANGUAGE_ALL, put_choice(w, x, LANGUAGE_ALL, false));
        made = join(l, EITHER, put_choice(w, x, LANGUAGE_ALL, true), sequence(l, l->any, later));
    }
    arena_free(&arena);
    return l->c->rc ? LANGUAGE_NOTHING : made;
}

static size_t take_char(struct str text, size_t at, u32 *ch)
{
    u32 first = (u8)text.p[at], n = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    *ch = n == 1 ? first : first & (0xffu >> (n + 1));
    for (u32 i = 1; i < n && at + i < text.n; i++) *ch = *ch << 6 | ((u8)text.p[at + i] & 0x3f);
    return at + n;
}

u32 language_text(struct language *l, struct str text)
{
    u32 made = LANGUAGE_EMPTY, ch;
    if (text.n > MAX_DEPTH) return too_complex(l);
    for (size_t end = text.n; end > 0;) { /* from its end, as sequences lean */
        size_t at = end - 1;
        while (at > 0 && ((u8)text.p[at] & 0xc0) == 0x80) at--;
        take_char(text, at, &ch);
        made = sequence(l, make_class(l, &(struct regex_range){ch, ch}, 1), made);
        end = at;
    }
    return made;
}

u32 language_of_length(struct language *l, u32 lo, u32 hi)
{
    return lo > hi ? LANGUAGE_NOTHING : repeat(l, l->any, lo, hi);
}

struct language *language_open(struct schemac *c)
{
    struct language *l = calloc(1, sizeof *l);
    if (!l) {
        schema_nomem(c);
        return NULL;
    }
    l->c = c;
    l->any = LANGUAGE_ALL + 1;
    l->n_terms = l->any;
    l->terms[LANGUAGE_EMPTY].has_empty = l->terms[LANGUAGE_ALL].has_empty = true;
    make_class(l, &(struct regex_range){0, REGEX_LAST_CHAR}, 1);
    return l;
}

void language_close(struct language *l)
{
    if (!l) return;
    strmap_free(&l->known);
    arena_free(&l->arena);
    free(l->lists);
    free(l);
}

/* ---- letters ---- */

struct signature {
    u64 bits[MAX_CLASSES / 64]; /* the classes that a piece is in */
};

static u32 piece_at(const struct language *l, u32 ch)
{
    u32 lo = 0, hi = l->n_cuts;
    while (hi - lo > 1) {
        u32 middle = (lo + hi) / 2;
        if (l->cuts[middle] <= ch)
            lo = middle;
        else
            hi = middle;
    }
    return lo;
}

static bool find_cuts(struct language *l)
{
    u32 n = 1, used = 0;
    for (u32 i = 0; i < l->n_classes; i++) n += 2 * l->classes[i].n;
    l->cuts = arena_alloc(&l->arena, n, sizeof *l->cuts);
    if (!l->cuts) return false;
    n = 1;
    for (u32 i = 0; i < l->n_classes; i++) {
        for (u32 k = 0; k < l->classes[i].n; k++) {
            l->cuts[n++] = l->classes[i].ranges[k].lo;
            l->cuts[n++] = l->classes[i].ranges[k].hi + 1;
        }
    }
    qsort(l->cuts, n, sizeof *l->cuts, by_number);
    for (u32 i = 0; i < n; i++)
        if (l->cuts[i] <= REGEX_LAST_CHAR && (!used || l->cuts[used - 1] != l->cuts[i]))
            l->cuts[used++] = l->cuts[i];
    l->n_cuts = used;
    return true;
}

/* Makes the letters; nothing is followed before, and no class is added afterwards. */
static bool find_letters(struct language *l)
{
    struct strmap known = {0};
    if (l->n_letters || l->c->rc) return !l->c->rc;
    if (!find_cuts(l)) return schema_nomem(l->c), false;
    struct signature *all = arena_alloc(&l->arena, l->n_cuts, sizeof *all);
    l->letter_of = arena_alloc(&l->arena, l->n_cuts, sizeof *l->letter_of);
    l->letters = arena_alloc(&l->arena, MAX_LETTERS, sizeof *l->letters);
    if (!all || !l->letter_of || !l->letters) return schema_nomem(l->c), false;
    for (u32 i = 0; i < l->n_classes; i++)
        for (u32 k = 0; k < l->classes[i].n; k++)
            for (u32 p = piece_at(l, l->classes[i].ranges[k].lo);
                 p < l->n_cuts && l->cuts[p] <= l->classes[i].ranges[k].hi; p++)
                all[p].bits[i / 64] |= 1ull << i % 64;
    for (u32 p = 0; p < l->n_cuts && !l->c->rc; p++) {
        struct str key = {(const char *)&all[p], sizeof *all};
        if (strmap_get(&known, key, &l->letter_of[p])) continue;
        if (l->n_letters == MAX_LETTERS)
            too_complex(l);
        else if (!strmap_add(&known, key, l->n_letters))
            schema_nomem(l->c);
        else
            l->letters[l->letter_of[p] = l->n_letters++] = &all[p];
    }
    strmap_free(&known);
    return !l->c->rc;
}

/* ---- derivatives ---- */

/* What may follow a letter. */
static u32 derive(struct language *l, u32 id, u32 letter)
{
    struct term t = l->terms[id];
    u32 made = LANGUAGE_NOTHING;
    if (l->c->rc || id <= LANGUAGE_ALL) return id == LANGUAGE_ALL ? id : LANGUAGE_NOTHING;
    if (!t.next) t.next = l->terms[id].next = arena_alloc(&l->arena, l->n_letters, sizeof *t.next);
    if (!t.next) return schema_nomem(l->c), LANGUAGE_NOTHING;
    if (t.next[letter]) return t.next[letter] - 1;
    if (l->depth > MAX_DEPTH || ++l->n_derived > MAX_DERIVED) return too_complex(l);
    if (!schema_work(l->c, 1)) return LANGUAGE_NOTHING;
    l->depth++;
    switch (t.kind) {
    case CLASS:
        made = l->letters[letter]->bits[t.a / 64] >> t.a % 64 & 1 ? LANGUAGE_EMPTY : made;
        break;
    case SEQUENCE:
        made = sequence(l, derive(l, t.a, letter), t.b);
        if (l->terms[t.a].has_empty) made = join(l, EITHER, made, derive(l, t.b, letter));
        break;
    case REPEAT: {
        u32 rest =
            repeat(l, t.a, t.min ? t.min - 1 : 0, t.max == REGEX_NO_MAX ? REGEX_NO_MAX : t.max - 1);
        made = sequence(l, derive(l, t.a, letter), rest);
        break;
    }
    case NOT: made = language_not(l, derive(l, t.a, letter)); break;
    case EITHER:
    case BOTH:
        made = t.kind == EITHER ? LANGUAGE_NOTHING : LANGUAGE_ALL;
        for (u32 i = 0; i < t.b; i++)
            made = join(l, t.kind, made, derive(l, l->lists[t.a + i], letter));
        break;
    }
    l->depth--;
    t.next[letter] = made + 1;
    return made;
}

bool language_has(struct language *l, u32 term, struct str text)
{
    u32 ch;
    if (!find_letters(l)) return false;
    for (size_t at = 0; at < text.n && !l->c->rc;) {
        at = take_char(text, at, &ch);
        term = derive(l, term, l->letter_of[piece_at(l, ch)]);
    }
    return !l->c->rc && l->terms[term].has_empty;
}

/* ---- automatons ---- */

enum { DEAD = UINT32_MAX };

struct machine {
    struct language *l;
    u32 n;
    u32 *terms;        /* [n] of each state; the first is where it begins */
    u32 *next;         /* [n][n_letters] states, or DEAD */
    u32 *least, *most; /* [n] characters to an end: DEAD, there is no way; ANY_COUNT, no limit */
};

static u32 *alloc(struct language *l, size_t n)
{
    u32 *got = arena_alloc(&l->arena, n, sizeof *got);
    if (!got) schema_nomem(l->c);
    return got;
}

static void find_states(struct machine *m, u32 first)
{
    struct language *l = m->l;
    u32 *state_of = alloc(l, MAX_TERMS);
    m->terms = alloc(l, MAX_STATES);
    m->next = alloc(l, (size_t)MAX_STATES * l->n_letters);
    if (l->c->rc) return;
    m->terms[m->n++] = first;
    state_of[first] = 1;
    for (u32 i = 0; i < m->n && !l->c->rc; i++) {
        for (u32 k = 0; k < l->n_letters; k++) {
            u32 to = derive(l, m->terms[i], k);
            if (to != LANGUAGE_NOTHING && !state_of[to]) {
                if (m->n == MAX_STATES) {
                    too_complex(l);
                    return;
                }
                m->terms[m->n] = to;
                state_of[to] = ++m->n;
            }
            m->next[i * l->n_letters + k] = to == LANGUAGE_NOTHING ? DEAD : state_of[to] - 1;
        }
    }
}

/* One pass from the last state to the first; true: something changed. */
static bool improve(struct machine *m, bool most)
{
    u32 n_letters = m->l->n_letters;
    bool changed = false;
    for (u32 i = m->n; i-- > 0;) {
        const u32 *next = m->next + (size_t)i * n_letters;
        u32 least = m->l->terms[m->terms[i]].has_empty ? 0 : DEAD, longest = 0;
        for (u32 k = 0; k < n_letters; k++) {
            u32 to = next[k];
            if (to == DEAD || m->least[to] == DEAD) continue;
            least = MIN(least, m->least[to] + 1);
            longest = m->most[to] == ANY_COUNT ? ANY_COUNT : MAX(longest, m->most[to] + 1);
            if (most && longest == ANY_COUNT) break;
        }
        u32 *value = most ? &m->most[i] : &m->least[i], found = most ? longest : least;
        changed |= *value != found;
        *value = found;
    }
    return changed;
}

/* The limits of each state, found by going over all of them until nothing changes. */
static bool find_machine(struct machine *m, u32 term)
{
    struct language *l = m->l;
    if (!find_letters(l)) return false;
    find_states(m, term);
    m->least = alloc(l, m->n);
    m->most = alloc(l, m->n);
    for (u32 i = 0; i < m->n && !l->c->rc; i++) m->least[i] = m->most[i] = ANY_COUNT;
    while (!l->c->rc && improve(m, false)) schema_work(l->c, m->n);
    while (!l->c->rc && improve(m, true)) schema_work(l->c, m->n);
    return !l->c->rc && m->least[0] != DEAD;
}

/* ---- rules ---- */

/* A state and the characters before it, as far as they matter: for the longest string that there
 * may be, and for the shortest. */
struct counted {
    u32 state, n, at_least;
};

struct rules {
    struct machine *m;
    u32 lo, hi, name;
    struct counted *at; /* [MAX_COUNTED] */
    u32 n;
    struct strmap known;
};

/* The rule after one more character; DEAD: too long, or there are too many rules. */
static u32 find_rule(struct rules *r, u32 state, u32 n, u32 at_least)
{
    const struct machine *m = r->m;
    u32 id = r->n, most = state == DEAD ? 0 : m->most[state];
    if (state == DEAD || m->least[state] == DEAD) return DEAD;
    if (n != ANY_COUNT && (n > r->hi || m->least[state] > r->hi - n)) return DEAD;
    if (n != ANY_COUNT && (r->hi == ANY_COUNT || (most != ANY_COUNT && n + most <= r->hi)))
        n = ANY_COUNT;
    if (id == MAX_COUNTED) return r->n = UINT32_MAX, DEAD;
    if (id == UINT32_MAX) return DEAD;
    r->at[id] = (struct counted){state, n, MIN(at_least, r->lo)};
    struct str key = {(const char *)&r->at[id], sizeof *r->at};
    if (strmap_get(&r->known, key, &id)) return id;
    if (!strmap_add(&r->known, key, id)) schema_nomem(m->l->c);
    return r->n++;
}

/* The characters that lead to a target. */
static u32 find_ranges(const struct language *l, const u32 *targets, u32 target,
                       struct regex_range *ranges)
{
    u32 n = 0;
    for (u32 p = 0; p < l->n_cuts; p++) {
        u32 last = p + 1 < l->n_cuts ? l->cuts[p + 1] - 1 : REGEX_LAST_CHAR;
        if (targets[l->letter_of[p]] != target) continue;
        if (n && ranges[n - 1].hi + 1 == l->cuts[p])
            ranges[n - 1].hi = last;
        else
            ranges[n++] = (struct regex_range){l->cuts[p], last};
    }
    return n;
}

/* The alternatives of a rule: for each that follows, the characters that lead to it. */
static void put_rule(struct rules *r, struct buf *b, u32 id, u32 *targets,
                     struct regex_range *ranges)
{
    const struct language *l = r->m->l;
    struct counted at = r->at[id];
    u32 next = at.n == ANY_COUNT ? ANY_COUNT : at.n + 1;
    bool any = l->terms[r->m->terms[at.state]].has_empty && at.at_least >= r->lo;
    for (u32 k = 0; k < l->n_letters; k++)
        targets[k] =
            find_rule(r, r->m->next[(size_t)at.state * l->n_letters + k], next, at.at_least + 1);
    if (!b) return;
    buf_printf(b, "p%u-%u ::= %s", r->name, id, any ? "\"\" " : "");
    for (u32 k = 0; k < l->n_letters; k++) {
        u32 target = targets[k];
        if (target == DEAD) continue;
        if (any) buf_puts(b, "| ");
        schema_put_ranges(b, ranges, find_ranges(l, targets, target, ranges));
        buf_printf(b, "p%u-%u ", r->name, target);
        for (u32 i = k; i < l->n_letters; i++)
            if (targets[i] == target) targets[i] = DEAD;
        any = true;
    }
    buf_puts(b, any ? "\n" : "[]\n");
}

/* Finds the rules, and writes them if `b` is not NULL. How many characters can be counted before
 * there are too many rules; ANY_COUNT: all. */
static u32 put_rules(struct rules *r, struct buf *b)
{
    struct language *l = r->m->l;
    u32 *targets = alloc(l, l->n_letters), i = 0;
    struct regex_range *ranges = arena_alloc(&l->arena, l->n_cuts + 1, sizeof *ranges);
    r->n = 0;
    r->known = (struct strmap){0};
    if (!targets || !ranges) return schema_nomem(l->c), ANY_COUNT;
    if (find_rule(r, 0, 0, 0) == DEAD && b) buf_printf(b, "p%u-0 ::= []\n", r->name);
    for (; i < r->n && r->n != UINT32_MAX && !l->c->rc; i++) put_rule(r, b, i, targets, ranges);
    strmap_free(&r->known);
    if (r->n != UINT32_MAX) return ANY_COUNT;
    return r->at[i - 1].n == ANY_COUNT ? 0 : r->at[i - 1].n; /* they were found in this order */
}

bool language_put(struct language *l, u32 term, u32 lo, u32 hi, u32 name)
{
    struct machine m = {.l = l};
    struct rules r = {.m = &m, .lo = lo, .hi = hi, .name = name};
    struct schemac *c = l->c;
    bool any = !c->rc && term != LANGUAGE_NOTHING && lo <= hi && find_machine(&m, term);
    if (any) r.at = arena_alloc(&l->arena, MAX_COUNTED + 1, sizeof *r.at);
    if (any && !r.at) schema_nomem(c);
    while (any && !c->rc) {
        u32 most = put_rules(&r, NULL);
        if (most == ANY_COUNT) break;
        r.hi = MIN(most, r.hi - 1);
        if (r.hi < MAX(lo, LEAST_LENGTH)) too_complex(l);
    }
    if (any && !c->rc) put_rules(&r, &c->out);
    any = any && !c->rc;
    buf_printf(&c->out, "p%u ::= ", name);
    buf_printf(&c->out, any ? "p%u-0\n" : "[]\n", name);
    return any;
}
