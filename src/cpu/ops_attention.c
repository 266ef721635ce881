/* The cache and attention over it: items are rows and heads. */
#include <math.h>
#include <string.h>

#include "cpu/cpu_internal.h"

void cpu_op_kv_store(const struct cpu_run *run, const struct op *op)
{
    u32 begin, end;
    share(run, run->s->n_rows, &begin, &end);
    for (u32 t = begin; t < end; t++) hostmem_kv_store(&run->x->host, run->handle, run->s, op, t);
}

/* ---- attention ----
 * A run is a few rows of one slot and class: blocks of the cache are unpacked once for all its rows
 * and all heads that share them. Positions are split every SPLIT tokens, and a query adds up its
 * splits in ascending order: the result is the same whether one member does them all (many runs) or
 * each member a few (one long context). Rows of prompts are attended to on matrix units where the
 * profile has bf16. */

enum { SPLIT = 256, QUERIES = 128, LONGEST_RUN = 32 };

struct attention {
    const struct op *op;
    u32 kw, vw, per;            /* per: heads that share a key head */
    u32 longest_run, most;      /* rows; queries of a run */
    size_t state;               /* floats of one */
    size_t query, keys, values; /* of bf16, two a number, in a query and in a block; or 0 */
};

static u32 round_up_16(u32 n)
{
    return (n + 15) / 16 * 16;
}

static struct attention attention_of(const struct program *p, const struct op *op)
{
    struct attention a = {.op = op,
                          .kw = op->p.attn.k_width,
                          .vw = op->p.attn.v_width,
                          .per = op->p.attn.n_heads / op->p.attn.n_kv_heads};
    a.longest_run = MIN(MAX(QUERIES / a.per, 1), (u32)LONGEST_RUN);
    a.most = round_up_16(a.longest_run * op->p.attn.n_heads);
    a.state = STATE_VALUE + round_up_16(a.vw);
    if (p->net->profile.bf16 == BF16_EVERYWHERE) {
        a.query = (size_t)(a.kw + BLOCK - 1) / BLOCK * BLOCK * 2;
        a.keys = BLOCK * a.query;
        a.values = 2 * BLOCK * round_up_16(a.vw);
    }
    return a;
}

/* Rows [t0, t1) of one slot, heads [h0, h1): all of several key heads, or some of one. Queries are
 * in order of key heads, then rows, so that those who see a token are the last of their key head.
 * n: heads to a key head. */
struct part {
    u32 t0, t1, h0, h1, n;
};

static u32 n_queries(struct part p)
{
    return (p.t1 - p.t0) * (p.h1 - p.h0);
}

static u32 row_of(struct part p, u32 i)
{
    return p.t0 + i / p.n % (p.t1 - p.t0);
}

static u32 head_of(struct part p, u32 i)
{
    return p.h0 + i / (p.n * (p.t1 - p.t0)) * p.n + i % p.n;
}

/* Part j of rows [t0, t1) when parts have n_heads heads. */
static struct part part_of(const struct attention *a, u32 t0, u32 t1, u32 n_heads, u32 j)
{
    if (n_heads >= a->per) return (struct part){t0, t1, j * n_heads, (j + 1) * n_heads, a->per};
    u32 pieces = (a->per + n_heads - 1) / n_heads, h0 = j / pieces * a->per;
    u32 from = h0 + j % pieces * n_heads, to = MIN(from + n_heads, h0 + a->per);
    return (struct part){t0, t1, from, to, to - from};
}

static u32 n_parts(const struct attention *a, u32 n_heads)
{
    u32 H = a->op->p.attn.n_heads;
    return n_heads >= a->per ? H / n_heads : H / a->per * ((a->per + n_heads - 1) / n_heads);
}

/* What a member works with: a part's queries, what they gathered from one split and from all so
 * far, and the unpacked block; the same for matrix units. */
struct desk {
    struct cpu_query *q;
    float *split, *all, *kt, *vf;
    u16 *qb, *kb, *vb;
};

static u64 desk_floats(const struct attention *a)
{
    return 2 * a->most * a->state + BLOCK * (a->state + round_up_16(a->kw));
}

static u64 desk_bf16(const struct attention *a)
{
    return a->most * a->query + a->keys + a->values;
}

static u64 desk_bytes(const struct attention *a)
{
    u64 n = desk_floats(a) * sizeof(float) + desk_bf16(a) * sizeof(u16) +
            (u64)a->most * sizeof(struct cpu_query);
    return (n + 63) / 64 * 64;
}

/* Splits of one run that wait to be added up, at most. */
static u32 shelf_size(u32 n_members)
{
    return 4 * n_members;
}

u64 cpu_attention_bytes(const struct program *p, u32 n_members)
{
    u64 most = 0;
    for (u32 i = 0; i < p->n_ops; i++) {
        if (p->ops[i].kind != OP_ATTENTION && p->ops[i].kind != OP_LATENT_ATTENTION) continue;
        struct attention a = attention_of(p, &p->ops[i]);
        u64 shelf = (shelf_size(n_members) + 1) * a.most * a.state * sizeof(float);
        most = MAX(most, n_members * desk_bytes(&a) + shelf);
    }
    return most;
}

static struct desk desk_of(const struct cpu_run *run, const struct attention *a)
{
    float *p = (float *)(void *)(run->x->attention + desk_bytes(a) * run->member);
    struct desk d = {.split = p, .all = p + a->most * a->state};
    d.vf = d.all + a->most * a->state;
    d.kt = d.vf + BLOCK * a->state;
    d.qb = (u16 *)(void *)(p + desk_floats(a));
    d.kb = d.qb + a->most * a->query;
    d.vb = d.kb + a->keys;
    d.q = (struct cpu_query *)(void *)(d.qb + desk_bf16(a));
    return d;
}

/* Behind the desks. */
static float *shelf_of(const struct cpu_run *run, const struct attention *a, u32 place)
{
    u8 *shelf = run->x->attention + desk_bytes(a) * run->n_members;
    return (float *)(void *)shelf + (u64)place * a->most * a->state;
}

static void clear_states(const struct attention *a, float *states, u32 n)
{
    memset(states, 0, n * a->state * sizeof *states);
    for (u32 i = 0; i < n; i++) states[i * a->state] = -INFINITY;
}

static bool on_tiles(const struct cpu_run *run, const struct attention *a, u32 t)
{
    return a->query && run->s->rows[t].cls == ROW_P;
}

/* Which of the 32 tokens at pos each query of a key head sees. */
static void count_seen(const struct attention *a, const struct row *rows, struct part p,
                       struct cpu_query *q, u32 pos)
{
    for (u32 t = p.t0; t < p.t1; t++) {
        u32 end = rows[t].pos + 1, n = end > pos ? MIN((u32)BLOCK, end - pos) : 0;
        u32 begin = op_first_seen(a->op, rows[t].pos), first = begin > pos ? begin - pos : 0;
        for (u32 h = 0; h < p.n; h++, q++) {
            q->n_tokens = n;
            q->first = first;
        }
    }
}

/* The first block of 32 tokens of which a run from row t0 on sees some. */
static u32 first_block(const struct cpu_run *run, const struct attention *a, u32 t0)
{
    return op_first_seen(a->op, run->s->rows[t0].pos) / BLOCK * BLOCK;
}

/* The block of 32 tokens at pos. On matrix units a part has one key head. */
static void attend_block(const struct cpu_run *run, const struct attention *a, struct part p,
                         const struct desk *d, u32 pos)
{
    const struct hostmem *host = &run->x->host;
    const struct row *rows = run->s->rows;
    u32 layer = a->op->p.attn.kv, slot = rows[p.t0].slot, last = rows[p.t1 - 1].pos;
    const u8 *row = hostmem_kv_row(host, run->s, layer, slot, pos), *next = row;
    if (pos + BLOCK <= last) next = hostmem_kv_row(host, run->s, layer, slot, pos + BLOCK);
    const struct kv_row *l = &host->rows[layer];
    const struct attention_kernels *k = run->x->k->attention;
    bool latent = a->op->kind == OP_LATENT_ATTENTION;
    struct cpu_kv kv = {.stride = l->bytes,
                        .n_tokens = MIN((u32)BLOCK, last + 1 - pos),
                        .k_width = a->kw,
                        .v_width = a->vw,
                        .type = l->part[0].type,
                        .v_type = l->part[latent ? 0 : 1].type,
                        /* of one type they are side by side */
                        .rope_width =
                            latent && l->part[0].type != l->part[1].type ? a->kw - a->vw : 0,
                        .softcap = latent ? 0 : a->op->p.attn.softcap,
                        .rotated = l->rotated != 0,
                        .kt = d->kt,
                        .vf = d->vf,
                        .kb = d->kb,
                        .vb = d->vb};
    if (next != row && p.h1 - p.h0 == a->op->p.attn.n_heads) /* each key head fetches its share */
        kv.next_bytes = BLOCK * kv.stride / a->op->p.attn.n_kv_heads;
    u32 first = p.t0, per_head = (p.t1 - p.t0) * p.n;
    while (rows[first].pos < pos) first++;
    for (u32 i = 0; i < n_queries(p); i += per_head) {
        u32 g = head_of(p, i) / a->per;
        kv.k = hostmem_kv_at(l, 0, row, latent ? 0 : g * a->kw);
        kv.v = latent ? kv.k : hostmem_kv_at(l, 1, row, g * a->vw);
        kv.rope = hostmem_kv_at(l, 1, row, 0);
        kv.next = next + i / per_head * kv.next_bytes;
        k->unpack(&kv);
        count_seen(a, rows, p, d->q + i, pos);
        u32 from = i + (first - p.t0) * p.n;
        if (on_tiles(run, a, p.t0)) {
            from = from / TILE * TILE;
            k->split_cached(&kv);
            k->attend_tiles(&kv, d->q + from, d->qb + from * a->query, per_head - from);
        } else {
            k->attend(&kv, d->q + from, i + per_head - from, a->op->p.attn.scale);
        }
    }
}

/* Splits [s0, s1) of a part, added up in d->all. */
static void attend_splits(const struct cpu_run *run, const struct attention *a, struct part p,
                          u32 s0, u32 s1, struct desk *d)
{
    u32 n = n_queries(p), end = run->s->rows[p.t1 - 1].pos + 1, first = first_block(run, a, p.t0);
    for (u32 i = 0; i < n; i++) {
        d->q[i].q = at(run, a->op->in[0], row_of(p, i)) + (size_t)head_of(p, i) * a->kw;
        if (on_tiles(run, a, p.t0))
            run->x->k->attention->split_query(d->qb + i / TILE * TILE * a->query, i % TILE,
                                              d->q[i].q, a->kw, a->op->p.attn.scale);
    }
    for (u32 s = s0; s < s1; s++) {
        float *states = s == s0 ? d->all : d->split;
        clear_states(a, states, n);
        for (u32 i = 0; i < n; i++) d->q[i].state = states + i * a->state;
        for (u32 pos = MAX(s * SPLIT, first); pos < MIN(end, (s + 1) * SPLIT); pos += BLOCK)
            attend_block(run, a, p, d, pos);
        for (u32 i = 0; s > s0 && i < n; i++)
            run->x->k->attention->merge(d->all + i * a->state, d->split + i * a->state, a->vw);
    }
}

static void finish_query(const struct cpu_run *run, const struct attention *a, struct part p, u32 i,
                         const float *state)
{
    u32 h = head_of(p, i);
    float *y = at(run, a->op->out[0], row_of(p, i)) + (size_t)h * a->vw;
    const float *sinks = a->op->n_w ? vector_of(run, a->op->w[0]) : NULL;
    run->x->k->attention->finish(y, state, a->vw, sinks ? sinks[h] : -INFINITY);
}

/* This member's share of adding up n splits from the shelf to the run's states, which the last of
 * them finishes. */
static void add_up(const struct cpu_run *run, const struct attention *a, struct part p, u32 n,
                   bool first, bool last)
{
    u32 at_ = p.h0 * (p.t1 - p.t0), m = run->n_members;
    for (u32 i = (run->member + m - at_ % m) % m; i < n_queries(p); i += m) {
        size_t place = (at_ + i) * a->state;
        float *state = shelf_of(run, a, 0) + place;
        if (first) clear_states(a, state, 1);
        for (u32 s = 1; s <= n; s++)
            run->x->k->attention->merge(state, shelf_of(run, a, s) + place, a->vw);
        if (last) finish_query(run, a, p, i, state);
    }
}

/* All members on one run: each takes splits, then each adds up some of the queries. */
static void attend_together(const struct cpu_run *run, const struct attention *a, u32 t0, u32 t1,
                            struct desk *d)
{
    u32 first = first_block(run, a, t0) / SPLIT, m = run->n_members;
    u32 n_splits = run->s->rows[t1 - 1].pos / SPLIT + 1 - first;
    u32 H = a->op->p.attn.n_heads, heads = (a->per + m - 1) / m;
    if (n_splits >= 2 * m && !on_tiles(run, a, t0))
        heads = H;
    else if (n_splits * (H / a->per) >= m)
        heads = a->per;
    u32 parts = n_parts(a, heads), shelf = shelf_size(m);
    for (u32 s0 = 0; s0 < n_splits; s0 += shelf) {
        u32 n = MIN(shelf, n_splits - s0);
        for (u32 item = run->member; item < n * parts; item += m) {
            struct part p = part_of(a, t0, t1, heads, item % parts);
            u32 s = item / parts;
            attend_splits(run, a, p, first + s0 + s, first + s0 + s + 1, d);
            memcpy(shelf_of(run, a, 1 + s) + p.h0 * (t1 - t0) * a->state, d->all,
                   n_queries(p) * a->state * sizeof *d->all);
        }
        barrier(run);
        for (u32 j = 0; j < parts; j++)
            add_up(run, a, part_of(a, t0, t1, heads, j), n, s0 == 0, s0 + n == n_splits);
        if (s0 + n < n_splits) barrier(run);
    }
}

static u32 run_end(const struct cpu_run *run, const struct attention *a, u32 t0)
{
    u32 t = t0 + 1;
    while (t < run->s->n_rows && t - t0 < a->longest_run &&
           run->s->rows[t].slot == run->s->rows[t0].slot &&
           run->s->rows[t].cls == run->s->rows[t0].cls)
        t++;
    return t;
}

void cpu_op_attention(const struct cpu_run *run, const struct op *op, u32 i)
{
    struct attention a = attention_of(run->p, op);
    struct desk d = desk_of(run, &a);
    u32 n_rows = run->s->n_rows, n_runs = 0, begin, end;
    bool tiles = false;
    for (u32 t = 0; t < n_rows; t = run_end(run, &a, t), n_runs++) tiles |= on_tiles(run, &a, t);
    if (n_runs * op->p.attn.n_kv_heads < 2 * run->n_members && run->n_members > 1) {
        for (u32 t = 0; t < n_rows; t = run_end(run, &a, t)) {
            attend_together(run, &a, t, run_end(run, &a, t), &d);
            barrier(run);
        }
        return;
    }
    /* short runs read all heads of a block at once, as it lies in memory */
    u32 heads = tiles || n_rows / n_runs >= 4 ? a.per : op->p.attn.n_heads,
        parts = n_parts(&a, heads);
    for (u32 t = 0, r = 0; take(run, i, n_runs * parts, 1, &begin, &end);) {
        for (; r < begin / parts; r++) t = run_end(run, &a, t);
        struct part p = part_of(&a, t, run_end(run, &a, t), heads, begin % parts);
        attend_splits(run, &a, p, first_block(run, &a, p.t0) / SPLIT,
                      run->s->rows[p.t1 - 1].pos / SPLIT + 1, &d);
        for (u32 q = 0; q < n_queries(p); q++) finish_query(run, &a, p, q, d.all + q * a.state);
    }
}
