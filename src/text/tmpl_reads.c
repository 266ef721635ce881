/* Which variables a template reads from its caller: the tree is walked in the order in which it
 * would run. A name that the template gives a value itself before, whatever happens, is its own. */
#include "text/tmpl_internal.h"

enum { MAX_DEPTH = 1000 }; /* of the tree; chains of operators are not bounded by the parser */

enum reads { READS_NOTHING, READS_OWN, READS_CALLERS };

struct walk {
    u32 id;
    u32 depth, n_maybe; /* n_maybe: parts around it that may not run */
};

static enum reads visit(struct walk *w, const struct tmpl_node *node);

/* Whether a target gives the name a value. */
static bool binds(const struct walk *w, const struct tmpl_node *target)
{
    if (!target) return false;
    bool found = target->kind == N_NAME && target->id == w->id;
    for (u32 i = 0; target->kind == N_TUPLE && i < target->n && !found; i++)
        found = target->kid[i] && target->kid[i]->kind == N_NAME && target->kid[i]->id == w->id;
    return found;
}

static enum reads visit_kids(struct walk *w, const struct tmpl_node *node, u32 from)
{
    enum reads got = READS_NOTHING;
    for (u32 i = from; i < node->n && !got; i++) got = visit(w, node->kid[i]);
    return got;
}

/* What may not run, or runs in a scope of its own, gives no name a value for what follows. */
static enum reads visit_maybe(struct walk *w, const struct tmpl_node *node, u32 from)
{
    w->n_maybe++;
    enum reads got = visit_kids(w, node, from);
    w->n_maybe--;
    return got == READS_CALLERS ? got : READS_NOTHING;
}

static enum reads visit_set(struct walk *w, const struct tmpl_node *node)
{
    enum reads got = visit_kids(w, node, 1);
    if (got) return got;
    return binds(w, node->kid[0]) && !w->n_maybe ? READS_OWN : READS_NOTHING;
}

static enum reads visit_for(struct walk *w, const struct tmpl_node *node)
{
    enum reads got = visit(w, node->kid[1]);
    if (got || binds(w, node->kid[0])) return got;
    return visit_maybe(w, node, 2);
}

static enum reads visit_macro(struct walk *w, const struct tmpl_node *node)
{
    enum reads got = visit_maybe(w, node, 1);
    for (u32 i = 0; i + 1 < node->n; i++)
        if (node->ids[i] == w->id) return got;
    if (got) return got;
    w->n_maybe++;
    got = visit(w, node->kid[0]);
    w->n_maybe--;
    if (got == READS_CALLERS) return got;
    return node->id == w->id && !w->n_maybe ? READS_OWN : READS_NOTHING;
}

/* [body, target, value, ...]: no value sees the names of the tag, all of the body does. */
static enum reads visit_with(struct walk *w, const struct tmpl_node *node)
{
    enum reads got = READS_NOTHING;
    bool bound = false;
    for (u32 i = 2; i < node->n && !got; i += 2) got = visit(w, node->kid[i]);
    for (u32 i = 1; i < node->n && !bound; i += 2) bound = binds(w, node->kid[i]);
    if (got || bound) return got;
    w->n_maybe++;
    got = visit(w, node->kid[0]);
    w->n_maybe--;
    return got == READS_CALLERS ? got : READS_NOTHING;
}

static enum reads visit(struct walk *w, const struct tmpl_node *node)
{
    enum reads got = READS_NOTHING;
    if (!node) return got;
    if (w->depth == MAX_DEPTH) return READS_CALLERS; /* not known: nobody is refused for it */
    w->depth++;
    switch (node->kind) {
    case N_NAME: got = node->id == w->id ? READS_CALLERS : READS_NOTHING; break;
    case N_SET:
    case N_SETBLOCK: got = visit_set(w, node); break;
    case N_FOR: got = visit_for(w, node); break;
    case N_MACRO: got = visit_macro(w, node); break;
    case N_IF:
        got = visit(w, node->kid[0]);
        if (!got) got = visit_maybe(w, node, 1);
        break;
    case N_WITH: got = visit_with(w, node); break;
    case N_SCOPE:
    case N_BLOCK:
    case N_ESCAPED:
    case N_CALLER:
    case N_FILTERED: got = visit_maybe(w, node, 0); break;
    default: got = visit_kids(w, node, 0); break;
    }
    w->depth--;
    return got;
}

bool tmpl_reads(const struct tmpl *t, struct str name)
{
    struct walk w = {0};
    return strmap_get(&t->name_ids, name, &w.id) && visit(&w, t->root) == READS_CALLERS;
}
