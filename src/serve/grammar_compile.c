/* From rules as they were written to the machine, built from its end: every part is emitted for
 * the instruction that follows it. Then the checks: every rule exists, can end, and never begins
 * with itself. */
#include <stdlib.h>
#include <string.h>

#include "serve/grammar_tree.h"

enum {
    MAX_SETS = 1024,
    SHORT_TEXT = 4, /* bytes that are repeated in place; more become a rule */
    NO_WAY = UINT32_MAX,
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
        return fail(c, "too large once repetitions are written out");
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

static u32 emit_choice(struct compiler *c, const struct tree *t, u32 next)
{
    u32 at = emit_tree(c, t->first, next);
    for (const struct tree *part = t->first->next; part && !c->rc; part = part->next)
        at = emit(c, GRAMMAR_SPLIT, at, emit_tree(c, part, next));
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
    case TREE_RULE: return emit(c, GRAMMAR_CALL, next, t->rule);
    case TREE_SEQUENCE: return emit_sequence(c, t, next);
    case TREE_CHOICE: return emit_choice(c, t, next);
    case TREE_REPEAT: return emit_repeat(c, t, next);
    }
    return next;
}

/* ---- checks ---- */

static int fail_rule(struct compiler *c, u32 rule, const char *what)
{
    if (rule < c->n_named)
        return err_set(c->err, FLETCH_E_ARG, "grammar: rule %s (line %u) %s",
                       QUOTE(c->rules[rule].name), c->rules[rule].line, what);
    return err_set(c->err, FLETCH_E_ARG, "grammar: something repeated %s", what);
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
    return called == NO_WAY ? NO_WAY : MAX(called + 1, g->need[in->next]);
}

static int check_ends(struct compiler *c)
{
    struct grammar *g = c->g;
    bool changed = true;
    for (u32 i = 0; i < g->n_instrs; i++) g->need[i] = NO_WAY;
    for (u32 pass = 0; changed; pass++) {
        changed = false;
        for (u32 k = 0; k < g->n_instrs; k++) {
            u32 i = pass % 2 ? g->n_instrs - 1 - k : k, need = need_of(g, i);
            changed |= need != g->need[i];
            g->need[i] = need;
        }
    }
    for (u32 r = 0; r < g->n_rules; r++)
        if (g->need[g->entry[r]] == NO_WAY) return fail_rule(c, r, "can never end");
    if (g->need[g->entry[g->root]] > GRAMMAR_MAX_DEPTH)
        return fail_rule(c, g->root, "needs rules nested too deep");
    return 0;
}

struct left {
    bool *empty; /* [n_instrs] a return is reachable without a byte */
    u32 *queue;  /* [n_instrs] */
    u32 *seen;   /* [n_instrs] in which search */
    u32 search;
    bool *proper; /* [n_rules] it can't begin with itself */
};

static void find_empty(const struct grammar *g, bool *empty)
{
    bool changed = true;
    empty[0] = true;
    for (u32 pass = 0; changed; pass++) {
        changed = false;
        for (u32 k = 0; k < g->n_instrs; k++) {
            u32 i = pass % 2 ? g->n_instrs - 1 - k : k;
            const struct grammar_instr *in = &g->instrs[i];
            bool e = empty[i];
            if (in->op == GRAMMAR_SPLIT) e = empty[in->next] || empty[in->arg];
            if (in->op == GRAMMAR_CALL) e = empty[g->entry[in->arg]] && empty[in->next];
            changed |= e != empty[i];
            empty[i] = e;
        }
    }
}

/* Are all rules that this one may begin with proper? */
static bool begins_properly(const struct grammar *g, u32 rule, struct left *l)
{
    u32 n = 0;
    bool ok = true;
    l->queue[n++] = g->entry[rule];
    l->seen[g->entry[rule]] = ++l->search;
    for (u32 k = 0; k < n && ok; k++) {
        const struct grammar_instr *in = &g->instrs[l->queue[k]];
        bool split = in->op == GRAMMAR_SPLIT, call = in->op == GRAMMAR_CALL;
        if (call) ok = l->proper[in->arg];
        const u32 to[] = {in->next, in->arg};
        u32 n_to = split ? 2 : call && l->empty[g->entry[in->arg]] ? 1 : 0;
        for (u32 j = 0; j < n_to; j++) {
            if (l->seen[to[j]] == l->search) continue;
            l->seen[to[j]] = l->search;
            l->queue[n++] = to[j];
        }
    }
    return ok;
}

static int check_beginnings(struct compiler *c)
{
    struct grammar *g = c->g;
    struct left l = {.empty = calloc(g->n_instrs, sizeof *l.empty),
                     .queue = calloc(g->n_instrs, sizeof *l.queue),
                     .seen = calloc(g->n_instrs, sizeof *l.seen),
                     .proper = calloc(g->n_rules, sizeof *l.proper)};
    int rc = l.empty && l.queue && l.seen && l.proper ? 0 : err_nomem(c->err, "the grammar");
    if (!rc) find_empty(g, l.empty);
    bool changed = !rc;
    for (u32 pass = 0; changed; pass++) {
        changed = false;
        for (u32 k = 0; k < g->n_rules; k++) {
            u32 r = pass % 2 ? g->n_rules - 1 - k : k;
            if (l.proper[r] || !begins_properly(g, r, &l)) continue;
            changed = l.proper[r] = true;
        }
    }
    for (u32 r = 0; !rc && r < g->n_rules; r++)
        if (!l.proper[r]) rc = fail_rule(c, r, "can begin with itself, so it would never be done");
    free(l.empty);
    free(l.queue);
    free(l.seen);
    free(l.proper);
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
            return err_set(c->err, FLETCH_E_ARG, "grammar, line %u: there is no rule named %s",
                           c->rules[r].line, QUOTE(c->rules[r].name));
    emit(c, GRAMMAR_RETURN, 0, 0);
    for (u32 r = 0; r < c->n_named && !c->rc; r++) {
        u32 entry = emit_tree(c, c->rules[r].body, 0);
        g->entry[r] = entry;
    }
    int rc = c->rc;
    if (!rc) rc = check_ends(c);
    if (!rc) rc = check_beginnings(c);
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
