#include "core/group.h"

#include <stdlib.h>
#include <string.h>

#include "core/place.h"

enum { NONE = UINT32_MAX, LETTERS = 'z' + 1, MAX_VALUES = OP_MAX_IN + OP_MAX_OUT + 2 };
enum { MAX_PRODUCTS = 8, MAX_MEMBERS = GROUP_MAX_ROLES + 3 * MAX_PRODUCTS };

/* What ops of all roles may have (op.h). */
static const u64 features[OP_COUNT] = {
    [OP_NORM] = HAS_ANY_NORM & ~HAS(GROUPS),
    [OP_MATMUL] = HAS(OP) | HAS(BIAS),
    [OP_MATMUL_HEADS] = HAS(OP),
    [OP_MATMUL_EXPERTS] = HAS(OP),
    [OP_ADD] = HAS(OP),
    [OP_MUL] = HAS(OP) | HAS(WEIGHT),
    [OP_LERP] = HAS(OP) | HAS(WEIGHT),
    [OP_ACT] = HAS_ANY_ACT,
    [OP_GLU] = HAS(OP),
    [OP_ROPE] = HAS(OP) | HAS(NEOX) | HAS(PARTIAL),
    [OP_KV_STORE] = HAS(OP) | HAS(NO_VALUE),
    [OP_ATTENTION] = HAS(OP) | HAS(V_WIDTH),
    [OP_LATENT_ATTENTION] = HAS(OP),
    [OP_ROUTE] = HAS_ANY_ROUTE,
    [OP_COMBINE_EXPERTS] = HAS(OP),
    [OP_TOKEN_SHIFT] = HAS(OP),
    [OP_K_CONTROL] = HAS(OP),
    [OP_RECURRENCE] = HAS(OP),
    [OP_RK_BONUS] = HAS(OP),
};

bool role_takes(const struct role *r, u64 has)
{
    return !(has & ~(features[r->kind] | r->also));
}

/* ---- values ---- */

/* What an op reads or writes: columns of a buffer, or all of a cache layer or state. */
struct use {
    struct operand x;
    bool write;
    u32 op, next; /* next use of the same buffer, cache layer or state */
};

struct finder {
    const struct program *p;
    struct arena arena;
    u32 n, n_values, n_uses;
    const struct op **ops;     /* [n] in an order that does not depend on the recorded one */
    struct use *uses;          /* in order of ops */
    u32 *first_use, *last_use; /* [n_values] */
    u32 *edge_at, *edge;       /* ops that must follow op i: edge[edge_at[i] .. edge_at[i + 1]) */
    u32 *group_of;             /* [n] or NONE */
    bool *leaves;              /* [n_bufs] values that groups write for others */
    u8 *mark;                  /* [n] */
    u32 *stack;                /* [n] */
    u32 n_sets;
    struct set {
        const struct rule *rule;
        u32 n, ops[MAX_MEMBERS], role[GROUP_MAX_ROLES];
    } * sets; /* [n] */
};

/* Caches and states are values too, with numbers after those of all buffers. */
static u32 memory_of(const struct program *p, const struct op *op, bool *reads, bool *writes)
{
    *reads = op->kind != OP_KV_STORE;
    *writes = op->kind != OP_ATTENTION && op->kind != OP_LATENT_ATTENTION;
    switch (op->kind) {
    case OP_KV_STORE:
    case OP_ATTENTION:
    case OP_LATENT_ATTENTION: return p->n_bufs + op->p.attn.kv;
    case OP_TOKEN_SHIFT:
    case OP_CONV:
    case OP_RECURRENCE: return p->n_bufs + p->net->n_kv + op->p.rec.state;
    default: *reads = *writes = false; return NONE;
    }
}

/* What an op reads, or what it writes; gives how many. */
static u32 values_of(const struct program *p, const struct op *op, bool write, struct operand *x)
{
    bool reads, writes;
    u32 n = write ? op->n_out : op->n_in, memory = memory_of(p, op, &reads, &writes);
    memcpy(x, write ? op->out : op->in, n * sizeof *x);
    if (write ? writes : reads) x[n++] = (struct operand){memory, 0, 1};
    return n;
}

bool operand_same(struct operand a, struct operand b)
{
    return a.buf == b.buf && a.col == b.col && a.width == b.width;
}

static bool overlaps(struct operand a, struct operand b)
{
    return a.buf == b.buf && a.col < b.col + b.width && b.col < a.col + a.width;
}

static void list_uses(struct finder *f)
{
    struct operand x[MAX_VALUES];
    f->n_uses = 0;
    memset(f->first_use, 0xff, f->n_values * sizeof *f->first_use);
    for (u32 i = 0; i < f->n; i++)
        for (u32 write = 0; write < 2; write++) {
            u32 n = values_of(f->p, f->ops[i], write, x);
            for (u32 k = 0; k < n; k++) {
                u32 *first = &f->first_use[x[k].buf];
                *(*first == NONE ? first : &f->uses[f->last_use[x[k].buf]].next) = f->n_uses;
                f->last_use[x[k].buf] = f->n_uses;
                f->uses[f->n_uses++] = (struct use){x[k], write, i, NONE};
            }
        }
}

/* Must the op of b wait for that of a, which stands before it? Buffers are written once; caches and
 * states are not. */
static bool must_follow(const struct finder *f, const struct use *a, const struct use *b)
{
    if (a->op >= b->op || !overlaps(a->x, b->x)) return false;
    return a->x.buf < f->p->n_bufs ? a->write && !b->write : a->write || b->write;
}

/* Twice over all pairs of uses of a value: counting, then filling in. */
static bool list_edges(struct finder *f)
{
    memset(f->edge_at, 0, (f->n + 2) * sizeof *f->edge_at);
    for (u32 pass = 0; pass < 2; pass++) {
        for (u32 v = 0; v < f->n_values; v++)
            for (u32 i = f->first_use[v]; i != NONE; i = f->uses[i].next)
                for (u32 k = f->uses[i].next; k != NONE; k = f->uses[k].next) {
                    if (!must_follow(f, &f->uses[i], &f->uses[k])) continue;
                    u32 *at = &f->edge_at[f->uses[i].op + 1 + !pass];
                    if (pass) f->edge[*at] = f->uses[k].op;
                    ++*at;
                }
        if (pass) break;
        for (u32 i = 0; i < f->n; i++) f->edge_at[i + 2] += f->edge_at[i + 1];
        f->edge = arena_alloc(&f->arena, f->edge_at[f->n + 1] + 1, sizeof *f->edge);
        if (!f->edge) return false;
    }
    return true;
}

/* ---- orders ---- */

/* Where an op stands among those that may come next: layer by layer, as its values were recorded.
 * What belongs to no layer comes as soon as it can, so that layers are not torn apart. */
static u64 rank_of(const struct op *op)
{
    struct operand x = op->n_out ? op->out[0] : op->in[0];
    return (u64)(op->layer + 1) << 48 | (u64)x.buf << 24 | x.col;
}

/* Nodes in an order that edges allow, the first in rank first. node[i]: of op i; list: [n_nodes].
 */
static bool sort_nodes(struct finder *f, const u32 *node, const u64 *rank, u32 n_nodes, u32 *list)
{
    u32 *n_before = arena_alloc(&f->arena, n_nodes + 1, sizeof *n_before);
    bool *done = arena_alloc(&f->arena, n_nodes + 1, sizeof *done);
    if (!n_before || !done) return false;
    for (u32 i = 0; i < f->n; i++)
        for (u32 k = f->edge_at[i]; k < f->edge_at[i + 1]; k++)
            n_before[node[f->edge[k]]] += node[f->edge[k]] != node[i];
    for (u32 at = 0; at < n_nodes; at++) {
        u32 best = NONE;
        for (u32 v = 0; v < n_nodes; v++)
            if (!done[v] && !n_before[v] && (best == NONE || rank[v] < rank[best])) best = v;
        CHECK(best != NONE); /* no cycles */
        done[list[at] = best] = true;
        for (u32 i = 0; i < f->n; i++)
            for (u32 k = f->edge_at[i]; node[i] == best && k < f->edge_at[i + 1]; k++)
                n_before[node[f->edge[k]]] -= node[f->edge[k]] != best;
    }
    return true;
}

/* Ops in an order that does not depend on the recorded one. */
static bool sort_ops(struct finder *f)
{
    u32 *node = arena_alloc(&f->arena, f->n + 1, sizeof *node);
    u32 *list = arena_alloc(&f->arena, f->n + 1, sizeof *list);
    u64 *rank = arena_alloc(&f->arena, f->n + 1, sizeof *rank);
    const struct op **sorted = arena_alloc(&f->arena, f->n + 1, sizeof *sorted);
    if (!node || !list || !rank || !sorted || !list_edges(f)) return false;
    for (u32 i = 0; i < f->n; i++) {
        node[i] = i;
        rank[i] = rank_of(f->ops[i]);
    }
    if (!sort_nodes(f, node, rank, f->n, list)) return false;
    for (u32 i = 0; i < f->n; i++) sorted[i] = f->ops[list[i]];
    f->ops = sorted;
    list_uses(f);
    return list_edges(f);
}

/* ---- matching ---- */

struct letters {
    bool known[LETTERS];
    struct operand value[LETTERS];
};

struct match {
    struct finder *f;
    const struct rule *rule;
    u32 begin, end; /* ops of the layer */
    u32 n_roles, n;
    u32 role[GROUP_MAX_ROLES], ops[MAX_MEMBERS];
    struct letters l;
};

static bool is_member(const struct match *m, u32 op)
{
    for (u32 i = 0; i < m->n; i++)
        if (m->ops[i] == op) return true;
    return false;
}

static bool stands_for(char letter, struct operand a, struct operand b)
{
    return letter >= 'A' && letter <= 'Z' ? a.buf == b.buf : operand_same(a, b);
}

/* Takes the values for the letters; false if one stands for something else already. */
static bool unify(struct letters *l, const char *names, const struct operand *x, u32 n)
{
    if (strlen(names) != n) return false;
    for (u32 i = 0; i < n; i++) {
        int c = names[i];
        if (l->known[c] && !stands_for(names[i], l->value[c], x[i])) return false;
        l->known[c] = true;
        l->value[c] = x[i];
    }
    return true;
}

/* Both letters stand for the same value. */
static bool unify_letters(struct letters *l, int a, int b)
{
    if (l->known[a] && l->known[b]) return operand_same(l->value[a], l->value[b]);
    if (l->known[a] || l->known[b]) {
        l->value[a] = l->value[b] = l->value[l->known[a] ? a : b];
        l->known[a] = l->known[b] = true;
    }
    return true;
}

static bool any_known(const struct letters *l, const struct role *r)
{
    for (const char *c = r->in; *c; c++)
        if (l->known[(int)*c]) return true;
    for (const char *c = r->out; *c; c++)
        if (l->known[(int)*c]) return true;
    return false;
}

static bool is_free(const struct match *m, u32 i, enum op_kind kind, u64 also)
{
    const struct op *op = m->f->ops[i];
    return op->kind == kind && m->f->group_of[i] == NONE &&
           role_takes(&(struct role){.kind = kind, .also = also}, op_features(op)) &&
           !is_member(m, i);
}

/* Do only members read it, and nobody after the step? */
static bool is_inside(const struct match *m, struct operand x)
{
    const struct finder *f = m->f;
    if (f->p->bufs[x.buf].kept) return false;
    for (u32 i = f->first_use[x.buf]; i != NONE; i = f->uses[i].next)
        if (!f->uses[i].write && overlaps(f->uses[i].x, x) && !is_member(m, f->uses[i].op))
            return false;
    return true;
}

/* Does no path lead from a member to others and back? Groups that exist are passed as a whole. */
static bool is_legal(const struct match *m)
{
    struct finder *f = m->f;
    u32 top = 0;
    memset(f->mark, 0, f->n);
    for (u32 i = 0; i < m->n; i++) f->mark[m->ops[i]] = 2;
    for (u32 i = 0; i < m->n; i++)
        for (u32 k = f->edge_at[m->ops[i]]; k < f->edge_at[m->ops[i] + 1]; k++)
            if (!f->mark[f->edge[k]]) f->mark[f->stack[top++] = f->edge[k]] = 1;
    while (top) {
        u32 at = f->stack[--top];
        const struct set *s = f->group_of[at] == NONE ? NULL : &f->sets[f->group_of[at]];
        for (u32 i = 0; i < (s ? s->n : 1); i++) {
            u32 op = s ? s->ops[i] : at;
            f->mark[op] = 1;
            for (u32 k = f->edge_at[op]; k < f->edge_at[op + 1]; k++) {
                if (f->mark[f->edge[k]] == 2) return false;
                if (!f->mark[f->edge[k]]) f->mark[f->stack[top++] = f->edge[k]] = 1;
            }
        }
    }
    return true;
}

/* ---- any number of products ---- */

static const struct op *member_that_makes(const struct match *m, struct operand x)
{
    for (u32 i = 0; i < m->n; i++) {
        const struct op *op = m->f->ops[m->ops[i]];
        if (op->n_out && overlaps(op->out[0], x)) return op;
    }
    return NULL;
}

/* The act that alone reads x, if it is free; NONE: there is none. */
static u32 act_of(const struct match *m, struct operand x)
{
    const struct finder *f = m->f;
    for (u32 i = m->begin; i < m->end; i++) {
        if (!is_free(m, i, OP_ACT, 0) || !operand_same(f->ops[i]->in[0], x)) continue;
        struct match with = *m;
        with.ops[with.n++] = i;
        return is_inside(&with, x) ? i : NONE;
    }
    return NONE;
}

static void gather_products(struct match *m)
{
    for (u32 i = m->begin, n = 0; i < m->end && n < MAX_PRODUCTS; i++) {
        const struct op *op = m->f->ops[i];
        /* kernels of several products have rows of prompts and answers, not those of logits */
        if (!is_free(m, i, OP_MATMUL, 0) || m->f->p->bufs[op->out[0].buf].rows != ROWS_T) continue;
        const struct op *from = member_that_makes(m, op->in[0]);
        if (from ? from->kind != OP_LERP : m->n_roles) continue;
        m->ops[m->n++] = i;
        if (!is_legal(m)) {
            m->n--;
            continue;
        }
        u32 act = act_of(m, op->out[0]);
        if (act != NONE) m->ops[m->n++] = act;
        n++;
    }
}

/* What others read too must stay, and is no member. */
static void drop_lerps(struct match *m)
{
    u32 n = 0;
    for (u32 i = 0; i < m->n; i++) {
        const struct op *op = m->f->ops[m->ops[i]];
        if (op->kind != OP_LERP || is_inside(m, op->out[0])) m->ops[n++] = m->ops[i];
    }
    m->n = n;
}

static bool gather(struct match *m, u32 anchor)
{
    const struct op *first = m->f->ops[anchor];
    bool pair = m->n_roles || first->kind == OP_LERP;
    struct operand h = m->n_roles ? m->l.value['h'] : first->in[0];
    struct operand p = m->n_roles ? m->l.value['p'] : pair ? first->in[1] : h;
    u32 n = m->n;
    for (u32 i = m->begin; i < m->end && pair && m->n < n + MAX_PRODUCTS; i++) {
        const struct op *op = m->f->ops[i];
        if (is_free(m, i, OP_LERP, 0) && op->n_in == 2 && operand_same(op->in[0], h) &&
            operand_same(op->in[1], p))
            m->ops[m->n++] = i;
    }
    gather_products(m);
    drop_lerps(m);
    bool any = false;
    for (u32 i = n; i < m->n; i++) any |= m->f->ops[m->ops[i]]->kind == OP_MATMUL;
    return any && m->n > 1;
}

/* ---- a rule ---- */

/* Does its function write this for others? */
static bool leaves(const struct match *m, const struct op *op, struct operand x)
{
    for (const char *c = m->rule->out; *c; c++)
        if (m->l.known[(int)*c] && stands_for(*c, m->l.value[(int)*c], x)) return true;
    if (!m->rule->gathers || (op->kind != OP_MATMUL && op->kind != OP_ACT)) return false;
    for (u32 i = 0; i < m->n; i++) { /* an act alone reads its product */
        const struct op *act = m->f->ops[m->ops[i]];
        if (act->kind == OP_ACT && operand_same(act->in[0], x)) return false;
    }
    return true;
}

static bool nothing_else_leaves(const struct match *m)
{
    for (u32 i = 0; i < m->n; i++) {
        const struct op *op = m->f->ops[m->ops[i]];
        for (u32 j = 0; j < op->n_out; j++)
            if (!leaves(m, op, op->out[j]) && !is_inside(m, op->out[j])) return false;
    }
    return true;
}

static int by_number(const void *a, const void *b)
{
    u32 x = *(const u32 *)a, y = *(const u32 *)b;
    return (x > y) - (x < y);
}

/* All roles are known: is it a group? Then it is made. */
static bool complete(struct match *m, u32 anchor)
{
    u32 n = m->n;
    bool ok = (!m->rule->gathers || gather(m, anchor)) && nothing_else_leaves(m) && is_legal(m);
    if (!ok) {
        m->n = n;
        return false;
    }
    struct finder *f = m->f;
    struct set *s = &f->sets[f->n_sets];
    *s = (struct set){.rule = m->rule, .n = m->n};
    memcpy(s->ops, m->ops, m->n * sizeof *s->ops);
    memcpy(s->role, m->role, sizeof s->role);
    qsort(s->ops, s->n, sizeof *s->ops, by_number);
    for (u32 i = 0; i < s->n; i++) {
        const struct op *op = f->ops[s->ops[i]];
        f->group_of[s->ops[i]] = f->n_sets;
        for (u32 j = 0; j < op->n_out; j++) f->leaves[op->out[j].buf] |= leaves(m, op, op->out[j]);
    }
    f->n_sets++;
    return true;
}

static bool match_role(struct match *m, u32 r)
{
    const struct role *role = &m->rule->roles[r];
    struct letters before = m->l;
    struct operand in[MAX_VALUES], out[MAX_VALUES];
    if (r == m->n_roles) return complete(m, m->role[0]);
    for (u32 i = m->begin; i < m->end && any_known(&before, role); i++) {
        if (!is_free(m, i, role->kind, role->also)) continue;
        const struct op *op = m->f->ops[i];
        u32 n_in = values_of(m->f->p, op, false, in), n_out = values_of(m->f->p, op, true, out);
        if (unify(&m->l, role->in, in, n_in) && unify(&m->l, role->out, out, n_out)) {
            u32 n = m->n;
            m->role[r] = i;
            if (role->without != '!') m->ops[m->n++] = i;
            if (match_role(m, r + 1)) return true;
            m->n = n;
        }
        m->l = before;
    }
    m->role[r] = NONE;
    if (!role->without || role->without == '!') return false;
    if ((role->without == '-' || unify_letters(&m->l, role->without, role->out[0])) &&
        match_role(m, r + 1))
        return true;
    m->l = before;
    return false;
}

/* Tries a rule with op i in its first role, or as the first of its products. */
static void try_rule(struct match *m, u32 i)
{
    struct operand x[MAX_VALUES];
    const struct role *first = &m->rule->roles[0];
    m->n = m->n_roles = 0;
    while (m->n_roles < GROUP_MAX_ROLES && m->rule->roles[m->n_roles].in) m->n_roles++;
    memset(m->role, 0xff, sizeof m->role);
    memset(m->l.known, 0, sizeof m->l.known);
    if (!m->n_roles) {
        if (is_free(m, i, OP_LERP, 0) || is_free(m, i, OP_MATMUL, 0)) complete(m, i);
        return;
    }
    if (!is_free(m, i, first->kind, first->also)) return;
    u32 n = values_of(m->f->p, m->f->ops[i], false, x);
    if (!unify(&m->l, first->in, x, n)) return;
    n = values_of(m->f->p, m->f->ops[i], true, x);
    if (!unify(&m->l, first->out, x, n)) return;
    m->ops[m->n++] = m->role[0] = i;
    match_role(m, 1);
}

static void find_groups(struct finder *f, const struct rule *rules, u32 n_rules)
{
    struct match m = {.f = f};
    for (; m.begin < f->n; m.begin = m.end) {
        m.end = m.begin;
        while (m.end < f->n && f->ops[m.end]->layer == f->ops[m.begin]->layer) m.end++;
        for (u32 r = 0; r < n_rules; r++) {
            m.rule = &rules[r];
            for (u32 i = m.begin; i < m.end; i++) try_rule(&m, i);
        }
    }
}

/* ---- programs ---- */

/* Ops that no rule took are groups too. */
static void add_others(struct finder *f)
{
    for (u32 i = 0; i < f->n; i++) {
        if (f->group_of[i] != NONE) continue;
        f->group_of[i] = f->n_sets;
        f->sets[f->n_sets++] = (struct set){.n = 1, .ops = {i}};
    }
}

/* What only one group's ops use, and its function need not write, gets no place. */
static void find_insides(const struct finder *f, struct program *out)
{
    for (u32 b = 0; b < out->n_bufs; b++) {
        u32 first = f->first_use[b];
        bool inside = first != NONE && !out->bufs[b].kept && !f->leaves[b];
        for (u32 i = first; i != NONE && inside; i = f->uses[i].next)
            inside = f->group_of[f->uses[i].op] == f->group_of[f->uses[first].op];
        out->bufs[b].inside = inside && f->sets[f->group_of[f->uses[first].op]].rule;
    }
}

/* The groups in an order that their ops' dependencies allow, those that begin first first. */
static bool order_groups(struct finder *f, struct program *out)
{
    u32 n = f->n_sets, at = 0, *list = arena_alloc(&f->arena, n + 1, sizeof *list);
    u64 *rank = arena_alloc(&f->arena, n + 1, sizeof *rank);
    if (!list || !rank) return false;
    for (u32 i = 0; i < n; i++) rank[i] = f->sets[i].ops[0];
    if (!sort_nodes(f, f->group_of, rank, n, list)) return false;
    for (u32 i = 0; i < n; i++) {
        const struct set *s = &f->sets[list[i]];
        struct group *g = &out->groups[out->n_groups++];
        *g = (struct group){.rule = s->rule, .n_ops = s->n, .ops = &out->members[at]};
        for (u32 k = 0; k < s->n; k++) out->members[at++] = f->ops[s->ops[k]];
        for (u32 r = 0; s->rule && r < GROUP_MAX_ROLES; r++)
            if (s->role[r] != NONE) g->role[r] = f->ops[s->role[r]];
    }
    return true;
}

static bool open_finder(struct finder *f, const struct program *p)
{
    u32 n = f->n = p->n_ops;
    f->p = p;
    f->n_values = p->n_bufs + p->net->n_kv + p->net->n_states;
    f->uses = arena_alloc(&f->arena, (size_t)n * MAX_VALUES + 1, sizeof *f->uses);
    f->first_use = arena_alloc(&f->arena, f->n_values + 1, sizeof *f->first_use);
    f->last_use = arena_alloc(&f->arena, f->n_values + 1, sizeof *f->last_use);
    f->edge_at = arena_alloc(&f->arena, n + 2, sizeof *f->edge_at);
    f->group_of = arena_alloc(&f->arena, n + 1, sizeof *f->group_of);
    f->leaves = arena_alloc(&f->arena, p->n_bufs + 1, sizeof *f->leaves);
    f->mark = arena_alloc(&f->arena, n + 1, 1);
    f->stack = arena_alloc(&f->arena, n + 1, sizeof *f->stack);
    f->sets = arena_alloc(&f->arena, n + 1, sizeof *f->sets);
    f->ops = arena_alloc(&f->arena, n + 1, sizeof *f->ops);
    if (!f->uses || !f->first_use || !f->last_use || !f->edge_at || !f->group_of || !f->leaves ||
        !f->mark || !f->stack || !f->sets || !f->ops)
        return false;
    for (u32 i = 0; i < n; i++) f->ops[i] = &p->ops[i];
    memset(f->group_of, 0xff, n * sizeof *f->group_of);
    list_uses(f);
    return sort_ops(f);
}

/* A program with p's ops and buffers, without groups. */
static int borrow(struct program **out, const struct program *p, struct err *err)
{
    int rc = prog_open(out, p->net, p->name, err);
    if (rc) return rc;
    struct program *f = *out;
    *f = *p;
    f->borrows = true;
    f->cap_bufs = p->n_bufs;
    f->n_groups = 0;
    f->groups = NULL;
    f->members = NULL;
    f->bufs = calloc(p->n_bufs + 1, sizeof *f->bufs);
    if (!f->bufs) return err_nomem(err, "the program");
    memcpy(f->bufs, p->bufs, p->n_bufs * sizeof *f->bufs);
    return 0;
}

static int group_ops(struct program *out, const struct program *p, const struct rule *rules,
                     u32 n_rules, struct err *err)
{
    struct finder f = {0};
    out->groups = calloc(p->n_ops + 1, sizeof *out->groups);
    out->members = calloc(p->n_ops + 1, sizeof *out->members);
    bool ok = out->groups && out->members && open_finder(&f, p);
    if (ok) {
        find_groups(&f, rules, n_rules);
        add_others(&f);
        find_insides(&f, out);
        ok = order_groups(&f, out);
    }
    arena_free(&f.arena);
    return ok ? prog_place(out, err) : err_nomem(err, "the program");
}

static int finish(struct program **out, int rc)
{
    if (!rc) return 0;
    prog_close(*out);
    *out = NULL;
    return rc;
}

int prog_group(struct program **out, const struct program *p, const struct rule *rules, u32 n_rules,
               struct err *err)
{
    int rc = borrow(out, p, err);
    if (!rc && n_rules)
        rc = group_ops(*out, p, rules, n_rules, err);
    else if (!rc)
        rc = prog_alone(*out, NULL, err);
    return finish(out, rc);
}

int prog_split(struct program **out, const struct program *p, const struct program *like,
               struct err *err)
{
    int rc = borrow(out, p, err);
    const struct op **order = calloc(p->n_ops + 1, sizeof *order);
    if (!rc && !order) rc = err_nomem(err, "the program");
    for (u32 i = 0; !rc && i < p->n_ops; i++) order[i] = &p->ops[like->members[i] - like->ops];
    if (!rc) rc = prog_alone(*out, order, err);
    free((void *)order);
    return finish(out, rc);
}

/* ---- groups ---- */

const char *group_name(const struct group *g)
{
    return g->rule ? g->rule->name : op_info[g->ops[0]->kind].name;
}

const struct op *group_op(const struct group *g, enum op_kind kind, u32 nth)
{
    for (u32 i = 0; i < g->n_ops; i++)
        if (g->ops[i]->kind == kind && nth-- == 0) return g->ops[i];
    return NULL;
}

const struct op *group_maker(const struct group *g, struct operand x)
{
    for (u32 i = 0; i < g->n_ops; i++)
        for (u32 j = 0; j < g->ops[i]->n_out; j++)
            if (operand_same(g->ops[i]->out[j], x)) return g->ops[i];
    return NULL;
}

const struct op *group_reader(const struct group *g, struct operand x, enum op_kind kind)
{
    for (u32 i = 0; i < g->n_ops; i++)
        for (u32 j = 0; j < g->ops[i]->n_in; j++)
            if (g->ops[i]->kind == kind && operand_same(g->ops[i]->in[j], x)) return g->ops[i];
    return NULL;
}

const struct op *group_last(const struct group *g)
{
    return g->ops[g->n_ops - 1];
}

u32 group_outputs(const struct program *p, const struct group *g, struct operand *x, u32 max)
{
    u32 n = 0;
    for (u32 i = 0; i < g->n_ops; i++)
        for (u32 j = 0; j < g->ops[i]->n_out && n < max; j++)
            if (!p->bufs[g->ops[i]->out[j].buf].inside) x[n++] = g->ops[i]->out[j];
    return n;
}

static bool is_listed(const struct operand *x, u32 n, struct operand y)
{
    for (u32 i = 0; i < n; i++)
        if (operand_same(x[i], y)) return true;
    return false;
}

u32 group_inputs(const struct program *p, const struct group *g, struct operand *x, u32 max)
{
    u32 n = 0;
    for (u32 i = 0; i < g->n_ops; i++)
        for (u32 j = 0; j < g->ops[i]->n_in && n < max; j++) {
            struct operand y = g->ops[i]->in[j];
            if (!p->bufs[y.buf].inside && !group_maker(g, y) && !is_listed(x, n, y)) x[n++] = y;
        }
    return n;
}

enum rows group_rows(const struct program *p, const struct group *g)
{
    const struct op *op = group_last(g);
    return op->n_out ? p->bufs[op->out[0].buf].rows : ROWS_T;
}

u64 group_bytes(const struct program *p, const struct group *g, u32 n_rows)
{
    u64 sum = 0;
    for (u32 i = 0; i < g->n_ops; i++) sum += prog_op_bytes(p, g->ops[i], n_rows);
    return sum;
}

double group_flops(const struct net *net, const struct group *g)
{
    double sum = 0;
    for (u32 i = 0; i < g->n_ops; i++) sum += prog_op_flops(net, g->ops[i]);
    return sum;
}

double group_flops_per_position(const struct group *g)
{
    double sum = 0;
    for (u32 i = 0; i < g->n_ops; i++) sum += prog_op_flops_per_position(g->ops[i]);
    return sum;
}
