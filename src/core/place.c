/* Where every buffer lives. A buffer is alive from its first writing to its last reading; two that
 * are never alive together may share columns. First fit in order of recording is enough here:
 * programs are long chains with few live values, and the result is printed by `fletch explain`. */
#include <stdlib.h>

#include "core/place.h"

static void note_use(struct buffer *b, u32 group)
{
    if (b->inside) return;
    b->first = MIN(b->first, group);
    b->last = MAX(b->last, group);
}

/* A group is one moment: what it reads lives until its end. */
static void find_lives(struct program *p)
{
    for (u32 b = 0; b < p->n_bufs; b++) {
        p->bufs[b].first = UINT32_MAX;
        p->bufs[b].last = 0;
    }
    for (u32 i = 0; i < p->n_groups; i++)
        for (u32 k = 0; k < p->groups[i].n_ops; k++) {
            const struct op *op = p->groups[i].ops[k];
            for (u32 j = 0; j < op->n_in; j++) note_use(&p->bufs[op->in[j].buf], i);
            for (u32 j = 0; j < op->n_out; j++) note_use(&p->bufs[op->out[j].buf], i);
        }
    for (u32 b = 0; b < p->n_bufs; b++)
        if (p->bufs[b].kept && p->bufs[b].first != UINT32_MAX) p->bufs[b].last = p->n_groups - 1;
}

static bool lives_meet(const struct buffer *a, const struct buffer *b)
{
    return a->first <= b->last && b->first <= a->last;
}

/* The lowest place where b meets no buffer that was placed before it. */
static u64 first_fit(const struct program *p, const u32 *order, u32 n_placed,
                     const struct buffer *b)
{
    u64 at = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (u32 i = 0; i < n_placed; i++) {
            const struct buffer *o = &p->bufs[order[i]];
            if (o->rows != b->rows || !lives_meet(o, b)) continue;
            if (at < o->place + o->width && o->place < at + b->width) {
                at = o->place + o->width;
                moved = true;
            }
        }
    }
    return at;
}

static bool is_among(const u32 *list, u32 n, u32 id)
{
    for (u32 i = 0; i < n; i++)
        if (list[i] == id) return true;
    return false;
}

int prog_place(struct program *p, struct err *err)
{
    u32 n = 0, *live = calloc(p->n_bufs + 1, sizeof *live);
    if (!live) return err_nomem(err, "the program");
    find_lives(p);
    p->n_cols[ROWS_T] = p->n_cols[ROWS_R] = 0;
    for (u32 i = 0; i < p->n_groups; i++) {
        const struct group *g = &p->groups[i];
        u32 kept = 0;
        for (u32 j = 0; j < n; j++)
            if (p->bufs[live[j]].last >= i) live[kept++] = live[j];
        n = kept;
        for (u32 k = 0; k < g->n_ops; k++)
            for (u32 j = 0; j < g->ops[k]->n_out; j++) {
                u32 id = g->ops[k]->out[j].buf;
                struct buffer *b = &p->bufs[id];
                if (b->first != i || is_among(live, n, id)) continue; /* not its first writer */
                b->place = first_fit(p, live, n, b);
                live[n++] = id;
                p->n_cols[b->rows] = MAX(p->n_cols[b->rows], b->place + b->width);
            }
    }
    free(live);
    return 0;
}

int prog_alone(struct program *p, const struct op *const *order, struct err *err)
{
    p->groups = calloc(p->n_ops + 1, sizeof *p->groups);
    p->members = calloc(p->n_ops + 1, sizeof *p->members);
    if (!p->groups || !p->members) return err_nomem(err, "the program");
    p->n_groups = p->n_ops;
    for (u32 i = 0; i < p->n_ops; i++) {
        p->members[i] = order ? order[i] : &p->ops[i];
        p->groups[i] = (struct group){.n_ops = 1, .ops = &p->members[i]};
    }
    return prog_place(p, err);
}

int prog_finish(struct program *p, struct operand logits, struct operand hidden, struct err *err)
{
    if (p->net->failed) return err_nomem(err, "the program");
    p->logits = logits.buf;
    p->hidden = hidden.buf;
    p->bufs[logits.buf].kept = true;
    p->bufs[hidden.buf].kept = true;
    return prog_alone(p, NULL, err);
}
