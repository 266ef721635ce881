/* From rules as they were written to the machine, built from its end: every part is emitted for
 * the instruction that follows it. Then the checks: every rule exists, can end, and never begins
 * with itself. */
#include <stdlib.h>
#include <string.h>

#include "serve/grammar_tree.h"

enum {
    MAX_SETS = 1024,
    SHORT_TEXT = 4,     /* bytes that are repeated in place; more become a rule */
    INLINE_TEXT = 256,  /* bytes of a rule's only text that is copied to where it is used */
    MAX_TEXT_STEPS = 8, /* rules and groups around a text */
};

struct class_rule {
    const struct tree *class;
    u32 rule;
};

struct compiler {
    struct grammar *g;
    const struct tree_rule *rules;
    u32 n_named;
    struct class_rule *classes; /* [GRAMMAR_MAX_RULES] rules made for characters of many bytes */
    u32 n_classes;
    struct err *err;
    int rc;
};

bool grammar_set_has(const struct grammar_set *s, u8 byte)
{
    return s->bits[byte / 32] >> byte % 32 & 1;
}

static u32 fail(struct compiler *c, const char *what)
{
    if (!c->rc) c->rc = err_set(c->err, FLETCH_E_LIMIT, "grammar: %s", what);
    return 0;
}

/* ---- instructions ---- */

static u32 emit(struct compiler *c, enum grammar_op op, u32 next, u32 arg)
{
    struct grammar *g = c->g;
    if (c->rc) return 0;
    if (g->n_instrs == GRAMMAR_MAX_INSTRS)
        return fail(c, "too large after repetitions are expanded");
    g->instrs[g->n_instrs] = (struct grammar_instr){op, next, arg};
    return g->n_instrs++;
}

static u32 emit_set(struct compiler *c, const struct grammar_set *s, u32 next)
{
    struct grammar *g = c->g;
    u32 i = 0;
    while (i < g->n_sets && memcmp(&g->sets[i], s, sizeof *s) != 0) i++;
    if (i == MAX_SETS) return fail(c, "too many different classes of characters");
    if (i == g->n_sets) g->sets[g->n_sets++] = *s;
    return emit(c, GRAMMAR_BYTES, next, i);
}

static u32 emit_bytes(struct compiler *c, u8 lo, u8 hi, u32 next)
{
    struct grammar_set s = {0};
    for (u32 b = lo; b <= hi; b++) s.bits[b / 32] |= 1u << b % 32;
    return emit_set(c, &s, next);
}

static u32 new_rule(struct compiler *c)
{
    if (c->g->n_rules == GRAMMAR_MAX_RULES) return fail(c, "too many rules and groups");
    return c->g->n_rules++;
}

/* ---- characters ---- */

static void utf8(u32 ch, u32 n, u8 *to)
{
    for (u32 i = n; i-- > 1; ch >>= 6) to[i] = (u8)(0x80 | (ch & 0x3f));
    to[0] = (u8)(0xff00u >> n | ch);
}

/* Characters lo..hi, none below 0x80: sequences of byte ranges, each an alternative to `or_else`
 * (0: none), all ending in a return. */
static u32 emit_range(struct compiler *c, u32 lo, u32 hi, u32 or_else)
{
    static const u32 most[] = {0x7ff, 0xffff, 0x10ffff};
    u8 from[4], to[4];
    u32 n = 2;
    while (lo > most[n - 2]) n++;
    if (hi > most[n - 2])
        return emit_range(c, lo, most[n - 2], emit_range(c, most[n - 2] + 1, hi, or_else));
    for (u32 i = 1; i < n; i++) {
        u32 low = (1u << 6 * i) - 1;
        if ((lo & ~low) == (hi & ~low)) continue;
        if (lo & low)
            return emit_range(c, lo, lo | low, emit_range(c, (lo | low) + 1, hi, or_else));
        if ((hi & low) != low)
            return emit_range(c, lo, (hi & ~low) - 1, emit_range(c, hi & ~low, hi, or_else));
    }
    utf8(lo, n, from);
    utf8(hi, n, to);
    u32 at = 0;
    for (u32 i = n; i-- > 0;) at = emit_bytes(c, from[i], to[i], at);
    return or_else ? emit(c, GRAMMAR_SPLIT, at, or_else) : at;
}

static bool same_class(const struct tree *a, const struct tree *b)
{
    return a->n_ranges == b->n_ranges &&
           memcmp(a->ranges, b->ranges, a->n_ranges * sizeof *a->ranges) == 0;
}

/* The rule of a class; each class has one, however often it is used. */
static u32 class_rule(struct compiler *c, const struct tree *t)
{
    for (u32 i = 0; i < c->n_classes; i++)
        if (same_class(c->classes[i].class, t)) return c->classes[i].rule;
    u32 rule = new_rule(c), at = 0;
    if (c->rc) return 0;
    struct grammar_set ascii = {0};
    bool any = false;
    for (u32 i = t->n_ranges; i-- > 0;)
        if (t->ranges[i].hi >= 0x80)
            at = emit_range(c, MAX(t->ranges[i].lo, 0x80u), t->ranges[i].hi, at);
    for (u32 i = 0; i < t->n_ranges; i++)
        for (u32 b = t->ranges[i].lo; b <= t->ranges[i].hi && b < 0x80; b++, any = true)
            ascii.bits[b / 32] |= 1u << b % 32;
    if (any) at = emit(c, GRAMMAR_SPLIT, emit_set(c, &ascii, 0), at);
    c->g->entry[rule] = at;
    c->classes[c->n_classes++] = (struct class_rule){t, rule};
    return rule;
}

static u32 emit_class(struct compiler *c, const struct tree *t, u32 next)
{
    if (!t->n_ranges) { /* a circle, from which no way leads to a return */
        u32 at = emit(c, GRAMMAR_SPLIT, 0, 0);
        if (!c->rc) c->g->instrs[at].next = c->g->instrs[at].arg = at;
        return at;
    }
    if (t->ranges[t->n_ranges - 1].hi >= 0x80) return emit(c, GRAMMAR_CALL, next, class_rule(c, t));
    struct grammar_set s = {0};
    for (u32 i = 0; i < t->n_ranges; i++)
        for (u32 b = t->ranges[i].lo; b <= t->ranges[i].hi; b++) s.bits[b / 32] |= 1u << b % 32;
    return emit_set(c, &s, next);
}

/* ---- nodes ---- */

static u32 emit_tree(struct compiler *c, const struct tree *t, u32 next);

/* Parts are in a list that is read forwards and emitted backwards. */
static u32 emit_sequence(struct compiler *c, const struct tree *t, u32 next)
{
    size_t n = 0;
    for (const struct tree *part = t->first; part; part = part->next) n++;
    const struct tree **parts = calloc(n + 1, sizeof *parts);
    if (!parts) return c->rc = err_nomem(c->err, "the grammar"), 0;
    n = 0;
    for (const struct tree *part = t->first; part; part = part->next) parts[n++] = part;
    while (n && !c->rc) next = emit_tree(c, parts[--n], next);
    free(parts);
    return next;
}

/* The text that t is, itself or as all that a rule says; false: it is something else. */
static bool is_text(const struct compiler *c, const struct tree *t, struct str *text)
{
    for (int i = 0; i < MAX_TEXT_STEPS && t; i++) {
        bool wraps = (t->kind == TREE_SEQUENCE || t->kind == TREE_CHOICE) && t->first;
        if (t->kind == TREE_TEXT) return *text = t->text, i == 0 || t->text.n <= INLINE_TEXT;
        if (wraps && t->first == t->last)
            t = t->first;
        else if (t->kind == TREE_RULE && t->rule < c->n_named)
            t = c->rules[t->rule].body;
        else
            return false;
    }
    return false;
}

static int by_bytes(const void *a, const void *b)
{
    const struct str *x = a, *y = b;
    size_t n = MIN(x->n, y->n);
    int order = n ? memcmp(x->p, y->p, n) : 0;
    return order ? order : x->n < y->n ? -1 : x->n > y->n;
}

/* One of n sorted texts from byte `at` on, so that beginnings they share are written once: an enum
 * of thousands is at one place at a time, not at thousands. */
static u32 emit_texts(struct compiler *c, const struct str *texts, size_t n, size_t at, u32 next)
{
    struct str first = texts[0], last = texts[n - 1];
    size_t shared = at;
    u32 here = 0;
    bool any = false;
    while (shared < first.n && shared < last.n && first.p[shared] == last.p[shared]) shared++;
    for (size_t i = 0, end; i < n && !c->rc; i = end) {
        end = i + 1;
        if (texts[i].n == shared) { /* the same text several times comes first */
            if (!any) here = next;
            any = true;
            continue;
        }
        u8 byte = (u8)texts[i].p[shared];
        while (end < n && (u8)texts[end].p[shared] == byte) end++;
        u32 way = emit_texts(c, texts + i, end - i, shared + 1, next);
        way = emit_bytes(c, byte, byte, way);
        here = any ? emit(c, GRAMMAR_SPLIT, way, here) : way;
        any = true;
    }
    while (shared > at && !c->rc) {
        u8 byte = (u8)first.p[--shared];
        here = emit_bytes(c, byte, byte, here);
    }
    return here;
}

static u32 emit_choice(struct compiler *c, const struct tree *t, u32 next)
{
    size_t n = 0, n_texts = 0;
    u32 at = 0;
    bool any = false;
    for (const struct tree *part = t->first; part; part = part->next) n++;
    if (n == 1) return emit_tree(c, t->first, next);
    struct str *texts = calloc(n, sizeof *texts);
    if (!texts) return c->rc = err_nomem(c->err, "the grammar"), 0;
    for (const struct tree *part = t->first; part && !c->rc; part = part->next) {
        if (is_text(c, part, &texts[n_texts])) {
            n_texts++;
            continue;
        }
        u32 way = emit_tree(c, part, next);
        at = any ? emit(c, GRAMMAR_SPLIT, way, at) : way;
        any = true;
    }
    if (n_texts && !c->rc) {
        qsort(texts, n_texts, sizeof *texts, by_bytes);
        u32 way = emit_texts(c, texts, n_texts, 0, next);
        at = any ? emit(c, GRAMMAR_SPLIT, way, at) : way;
    }
    free(texts);
    return at;
}

static u32 emit_repeat(struct compiler *c, const struct tree *t, u32 next)
{
    const struct tree *part = t->first;
    struct tree call = {.kind = TREE_RULE};
    bool endless = t->max == TREE_NO_MAX;
    u32 n_copies = endless ? t->min + 1 : t->max, at = next;
    bool small = part->kind == TREE_RULE || part->kind == TREE_CLASS ||
                 (part->kind == TREE_TEXT && part->text.n <= SHORT_TEXT);
    if (n_copies > 1 && !small) {
        call.rule = new_rule(c);
        if (c->rc) return 0;
        u32 entry = emit_tree(c, part, 0);
        c->g->entry[call.rule] = entry;
        part = &call;
    }
    if (endless) {
        at = emit(c, GRAMMAR_SPLIT, 0, next);
        u32 body = emit_tree(c, part, at);
        if (!c->rc) c->g->instrs[at].next = body;
    }
    for (u32 i = t->min; !endless && i < t->max && !c->rc; i++)
        at = emit(c, GRAMMAR_SPLIT, emit_tree(c, part, at), next);
    for (u32 i = 0; i < t->min && !c->rc; i++) at = emit_tree(c, part, at);
    return at;
}

/* Where to begin so that t is matched and `next` follows. As deep as parentheses are nested. */
static u32 emit_tree(struct compiler *c, const struct tree *t, u32 next)
{
    switch (t->kind) {
    case TREE_TEXT:
        for (size_t i = t->text.n; i-- > 0;)
            next = emit_bytes(c, (u8)t->text.p[i], (u8)t->text.p[i], next);
        return next;
    case TREE_CLASS: return emit_class(c, t, next);
    case TREE_BYTE: return emit_bytes(c, 0, 0xff, next);
    case TREE_RULE: return emit(c, GRAMMAR_CALL, next, t->rule);
    case TREE_SEQUENCE: return emit_sequence(c, t, next);
    case TREE_CHOICE: return emit_choice(c, t, next);
    case TREE_REPEAT: return emit_repeat(c, t, next);
    }
    return next;
}

/* ---- checks ---- */

/* Each is done in one walk from what is known to whom it decides, because a grammar of 64 KB may
 * come with a request: going over all of it until nothing changes takes seconds. */
struct checks {
    u32 *users, *more; /* [n_instrs], [2 n_instrs] of an instruction, its edges: see add_user */
    u32 *now, *later;  /* instructions, or rules, to go on from */
    bool *empty;       /* [n_instrs] a return is reachable without a byte */
    u32 *seen;         /* [n_instrs] the rule that begins with it, + 1 */
    u32 *callers;      /* [n_rules] that begin with a rule: an edge + 1; 0: none */
    u32 *n_calls;      /* [n_rules] that a rule begins with and that are not known to be proper */
};

/* Edge 2i is instruction i's `next`, 2i + 1 its other one. */
static void add_user(struct checks *k, u32 of, u32 edge)
{
    k->more[edge] = k->users[of];
    k->users[of] = edge + 1;
}

static void find_users(const struct grammar *g, struct checks *k)
{
    for (u32 i = 0; i < g->n_instrs; i++) {
        const struct grammar_instr *in = &g->instrs[i];
        if (in->op != GRAMMAR_RETURN) add_user(k, in->next, 2 * i);
        if (in->op == GRAMMAR_SPLIT) add_user(k, in->arg, 2 * i + 1);
        if (in->op == GRAMMAR_CALL) add_user(k, g->entry[in->arg], 2 * i + 1);
    }
}

static int fail_rule(struct compiler *c, u32 rule, const char *what)
{
    if (rule < c->n_named)
        return err_set(c->err, FLETCH_E_ARG, "grammar: rule %s (line %u) %s",
                       QUOTE(c->rules[rule].name), c->rules[rule].line, what);
    return err_set(c->err, FLETCH_E_ARG, "grammar: a repeated item %s", what);
}

/* Calls in last place leave no frame, so they cost no depth. */
static u32 need_of(const struct grammar *g, u32 i)
{
    const struct grammar_instr *in = &g->instrs[i];
    u32 called;
    switch (in->op) {
    case GRAMMAR_RETURN: return 0;
    case GRAMMAR_BYTES: return g->need[in->next];
    case GRAMMAR_SPLIT: return MIN(g->need[in->next], g->need[in->arg]);
    case GRAMMAR_CALL: break;
    }
    called = g->need[g->entry[in->arg]];
    if (in->next == 0) return called;
    return called == GRAMMAR_NO_WAY ? GRAMMAR_NO_WAY : MAX(called + 1, g->need[in->next]);
}

/* Needs in their order, the least first, so that each is known when it is first found; those of one
 * more wait in `later`. */
static void find_needs(struct grammar *g, struct checks *k)
{
    u32 n_now = 1, n_later = 0;
    for (u32 i = 0; i < g->n_instrs; i++) g->need[i] = GRAMMAR_NO_WAY;
    k->now[0] = g->need[0] = 0;
    while (n_now || n_later) {
        if (!n_now) {
            u32 *swap = k->now;
            k->now = k->later;
            k->later = swap;
            n_now = n_later;
            n_later = 0;
        }
        u32 i = k->now[--n_now], need = g->need[i];
        for (u32 e = k->users[i]; e; e = k->more[e - 1]) {
            u32 user = (e - 1) / 2, its = need_of(g, user);
            if (g->need[user] != GRAMMAR_NO_WAY || its > need + 1)
                continue; /* it waits for the other */
            g->need[user] = its;
            if (its == need)
                k->now[n_now++] = user;
            else
                k->later[n_later++] = user;
        }
    }
}

/* Rules that stand for groups and classes are only looked at through those that use them. */
static bool must_end(const struct compiler *c, u32 rule)
{
    return rule == c->g->root || (rule < c->n_named && !c->rules[rule].pruned);
}

static int check_ends(struct compiler *c, struct checks *k)
{
    struct grammar *g = c->g;
    find_needs(g, k);
    for (u32 r = 0; r < g->n_rules; r++)
        if (g->need[g->entry[r]] == GRAMMAR_NO_WAY && must_end(c, r))
            return fail_rule(c, r, "can never end");
    if (g->need[g->entry[g->root]] > GRAMMAR_MAX_DEPTH)
        return fail_rule(c, g->root, "needs rules nested too deeply");
    return 0;
}

static void find_empty(const struct grammar *g, struct checks *k)
{
    u32 n = 1;
    k->now[0] = 0;
    k->empty[0] = true;
    while (n) {
        u32 i = k->now[--n];
        for (u32 e = k->users[i]; e; e = k->more[e - 1]) {
            u32 user = (e - 1) / 2;
            const struct grammar_instr *in = &g->instrs[user];
            bool empty =
                in->op == GRAMMAR_SPLIT ||
                (in->op == GRAMMAR_CALL && k->empty[g->entry[in->arg]] && k->empty[in->next]);
            if (!empty || k->empty[user]) continue;
            k->empty[user] = true;
            k->now[n++] = user;
        }
    }
}

/* Counts the calls that a rule may begin with, and makes it one of the callers of each. An edge is
 * the instruction of the call, and `seen` says whose it is; `more` is free again by now. */
static void find_beginnings(const struct grammar *g, u32 rule, struct checks *k)
{
    u32 n = 1;
    k->now[0] = g->entry[rule];
    k->seen[g->entry[rule]] = rule + 1;
    while (n) {
        u32 i = k->now[--n];
        const struct grammar_instr *in = &g->instrs[i];
        bool split = in->op == GRAMMAR_SPLIT, call = in->op == GRAMMAR_CALL;
        const u32 to[] = {in->next, in->arg};
        u32 n_to = split ? 2 : call && k->empty[g->entry[in->arg]] ? 1 : 0;
        for (u32 j = 0; j < n_to; j++) {
            if (k->seen[to[j]] == rule + 1) continue;
            k->seen[to[j]] = rule + 1;
            k->now[n++] = to[j];
        }
        if (!call) continue;
        k->n_calls[rule]++;
        k->more[i] = k->callers[in->arg];
        k->callers[in->arg] = i + 1;
    }
}

/* A rule is proper, and can't begin with itself, when all are that it may begin with. */
static int check_beginnings(struct compiler *c, struct checks *k)
{
    struct grammar *g = c->g;
    u32 n = 0;
    find_empty(g, k);
    for (u32 r = 0; r < g->n_rules; r++) find_beginnings(g, r, k);
    for (u32 r = 0; r < g->n_rules; r++)
        if (!k->n_calls[r]) k->later[n++] = r;
    while (n) {
        u32 proper = k->later[--n];
        for (u32 e = k->callers[proper]; e; e = k->more[e - 1]) {
            u32 caller = k->seen[e - 1] - 1;
            if (!--k->n_calls[caller]) k->later[n++] = caller;
        }
    }
    for (u32 r = 0; r < g->n_rules; r++)
        if (k->n_calls[r]) return fail_rule(c, r, "can begin with itself, so it would never end");
    return 0;
}

static int check(struct compiler *c)
{
    struct grammar *g = c->g;
    u32 n = g->n_instrs, most = MAX(n, g->n_rules);
    struct checks k = {.users = calloc(n, sizeof *k.users),
                       .more = calloc(2 * (size_t)n, sizeof *k.more),
                       .now = calloc(most, sizeof *k.now),
                       .later = calloc(most, sizeof *k.later),
                       .empty = calloc(n, sizeof *k.empty),
                       .seen = calloc(n, sizeof *k.seen),
                       .callers = calloc(g->n_rules, sizeof *k.callers),
                       .n_calls = calloc(g->n_rules, sizeof *k.n_calls)};
    bool there =
        k.users && k.more && k.now && k.later && k.empty && k.seen && k.callers && k.n_calls;
    int rc = there ? 0 : err_nomem(c->err, "the grammar");
    if (!rc) find_users(g, &k);
    if (!rc) rc = check_ends(c, &k);
    if (!rc) rc = check_beginnings(c, &k);
    free(k.users);
    free(k.more);
    free(k.now);
    free(k.later);
    free(k.empty);
    free(k.seen);
    free(k.callers);
    free(k.n_calls);
    return rc;
}

/* ---- the whole ---- */

/* Splits the classes of bytes until no set cuts through one. */
static void find_classes(struct grammar *g)
{
    g->n_classes = 1;
    for (u32 s = 0; s < g->n_sets; s++) {
        u32 n = g->n_classes;
        u16 inside[256], outside[256];
        memset(inside, 0xff, sizeof inside);
        memset(outside, 0xff, sizeof outside);
        for (u32 b = 0; b < 256; b++) {
            u16 *to = grammar_set_has(&g->sets[s], (u8)b) ? inside : outside;
            u16 *other = to == inside ? outside : inside;
            u32 old = g->class_of[b];
            if (to[old] == 0xffff) to[old] = (u16)(other[old] == 0xffff ? old : n++);
            g->class_of[b] = (u8)to[old];
        }
        g->n_classes = n;
    }
    for (u32 b = 0; b < 256; b++) g->of_class[g->class_of[b]] = (u8)b;
}

static int compile(struct compiler *c)
{
    struct grammar *g = c->g;
    for (u32 r = 0; r < c->n_named; r++)
        if (!c->rules[r].body)
            return err_set(c->err, FLETCH_E_ARG, "grammar, line %u: unknown rule %s",
                           c->rules[r].line, QUOTE(c->rules[r].name));
    emit(c, GRAMMAR_RETURN, 0, 0);
    for (u32 r = 0; r < c->n_named && !c->rc; r++) {
        u32 entry = emit_tree(c, c->rules[r].body, 0);
        g->entry[r] = entry;
    }
    int rc = c->rc;
    if (!rc) rc = check(c);
    if (!rc) find_classes(g);
    return rc;
}

int grammar_compile(struct grammar **out, const struct tree_rule *rules, u32 n, u32 root,
                    struct err *err)
{
    struct grammar *g = *out = calloc(1, sizeof *g);
    struct compiler c = {.g = g, .rules = rules, .n_named = n, .err = err};
    if (!g) return err_nomem(err, "the grammar");
    g->n_rules = n;
    g->root = root;
    g->instrs = calloc(GRAMMAR_MAX_INSTRS, sizeof *g->instrs);
    g->need = calloc(GRAMMAR_MAX_INSTRS, sizeof *g->need);
    g->entry = calloc(GRAMMAR_MAX_RULES, sizeof *g->entry);
    g->sets = calloc(MAX_SETS, sizeof *g->sets);
    c.classes = calloc(GRAMMAR_MAX_RULES, sizeof *c.classes);
    int rc = g->instrs && g->need && g->entry && g->sets && c.classes
                 ? compile(&c)
                 : err_nomem(err, "the grammar");
    free(c.classes);
    if (rc) {
        grammar_close(g);
        *out = NULL;
    }
    return rc;
}

void grammar_close(struct grammar *g)
{
    if (!g) return;
    free(g->instrs);
    free(g->need);
    free(g->entry);
    free(g->sets);
    free(g);
}
