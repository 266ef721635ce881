/* Matrix products on the team. All of them, over rows, heads or experts, plain or fused, are one
 * kind of job: the rows of activations that meet the same matrix are brought together in batches
 * and rounded by all members, then tiles of 16 outputs are handed out. Rows of prompts go through
 * bf16 panels where the profile says so, with weights that stay floats through a BLAS library where
 * there is one, all others through tiles; what a row gets never depends on others. */
#include <string.h>

#include "cpu/cpu_internal.h"

enum { MAX_PRODUCTS = OP_MAX_OUT };

/* One matrix: y = x·Wᵀ + bias. */
struct product {
    const struct packed *w;
    const float *bias;
    float *y;
    size_t pitch, step;   /* of y from row to row, from part (head or choice) to part */
    const struct op *act; /* of y, or NULL */
    u32 input;            /* which of a job's inputs, where it has several */
};

/* One of several inputs: a, or lerp(a, b, by mu). */
struct input {
    struct operand a, b;
    const float *mu; /* NULL: a itself */
};

struct job {
    const struct cpu_run *run;
    struct operand from; /* x */
    const float *x;
    size_t pitch, step; /* of x likewise */
    u32 n;              /* columns of x */
    u32 n_products;
    struct product products[MAX_PRODUCTS];
    u32 n_inputs; /* 0: only x; else parts are inputs, and each product meets one */
    struct input inputs[MAX_PRODUCTS];
    const struct op *norm; /* of x, before it is rounded; or NULL */
    const struct op *glu;  /* y of the first product = glu(first, second); NULL: no */
    u32 n_add;             /* values that are added to y of the first */
    struct operand add[2];
    bool int8, floats;     /* what class D meets */
    bool p_int8, p_floats; /* what class P meets beside bf16, */
    bool p_bf16;           /* and does it meet that? */
    struct cpu_act act;
    struct cpu_lists *lists;
    u32 n_tiles; /* of all batches; of a pair for glu */
    u32 first;   /* where they begin in the count of a group of several jobs */
};

/* ---- which rows meet which matrix ---- */

/* In rows of prompts. */
static bool is_bf16(const struct job *j, enum encoding enc)
{
    bool halves = enc == ENC_F16 || enc == ENC_BF16;
    enum bf16_use use = j->run->x->host.net->profile.bf16;
    return use == BF16_FLOATS ? halves : use && enc != ENC_F32;
}

static void note_encodings(struct job *j, bool experts)
{
    bool never = experts && j->run->x->host.net->profile.int8_experts;
    for (u32 k = 0; k < j->n_products; k++) {
        enum encoding enc = j->products[k].w->enc;
        bool int8 = encoding_is_int8(enc), bf16 = !never && is_bf16(j, enc);
        j->int8 |= int8;
        j->floats |= !int8;
        j->p_bf16 |= bf16;
        j->p_int8 |= int8 && !bf16;
        j->p_floats |= !int8 && !bf16;
    }
}

/* Are rows of prompts multiplied otherwise than others? Rows that give logits are few and their
 * last bits choose tokens: never those. Experts have too few rows each for a BLAS library. */
static bool sets_prompts_apart(const struct job *j, bool experts)
{
    return j->run->p->bufs[j->from.buf].rows == ROWS_T &&
           (j->p_bf16 || (j->floats && j->run->x->has_blas && !experts));
}

static bool is_apart(const struct row *rows, u32 t)
{
    return rows && rows[t].cls == ROW_P;
}

/* The slice of a part is the part itself (heads), or what ids say (experts). */
static u32 slice_of(const struct job *j, const struct operand *ids, u32 row, u32 part)
{
    i32 id;
    if (!ids) return part;
    memcpy(&id, at(j->run, *ids, row) + part, sizeof id);
    return (u32)id;
}

/* Sorts the (row, part) of a step by class and slice into batches, rows of one in their order. */
static void list_places(struct job *j, u32 n_parts, u32 n_slices, const struct operand *ids)
{
    u32 n_rows = rows_of(j->run, j->from), next[2 * CPU_MAX_SLICES + 1] = {0}, group = 0;
    struct cpu_lists *l = j->lists;
    note_encodings(j, ids);
    const struct row *rows = sets_prompts_apart(j, ids) ? j->run->s->rows : NULL;
    for (u32 t = 0; t < n_rows; t++)
        for (u32 c = 0; c < n_parts; c++)
            next[(is_apart(rows, t) ? 0 : n_slices) + slice_of(j, ids, t, c) + 1]++;
    l->n_batches = 0;
    for (u32 key = 0; key < 2 * n_slices; key++) {
        u32 n = next[key + 1];
        next[key + 1] += next[key];
        if (!n) continue;
        l->batches[l->n_batches++] = (struct cpu_batch){.slice = key % n_slices,
                                                        .begin = next[key],
                                                        .end = next[key] + n,
                                                        .prompt = key < n_slices,
                                                        .bf16 = key < n_slices && j->p_bf16,
                                                        .group = group};
        group += (n + TILE - 1) / TILE;
    }
    l->n_places = n_rows * n_parts;
    for (u32 t = 0; t < n_rows; t++)
        for (u32 c = 0; c < n_parts; c++)
            l->places[next[(is_apart(rows, t) ? 0 : n_slices) + slice_of(j, ids, t, c)]++] =
                (struct cpu_place){t, c};
}

/* ---- rounding ---- */

static void prepare_row(const struct job *j, const struct cpu_batch *b, u32 i)
{
    const struct cpu_act *a = &j->act;
    const struct cpu_place *p = &j->lists->places[i];
    const struct input *in = j->n_inputs ? &j->inputs[p->part] : NULL;
    const float *x = in ? at(j->run, in->a, p->row) : j->x + p->row * j->pitch + p->part * j->step;
    float *own = a->x + (size_t)i * j->n;
    u32 in_batch = i - b->begin;
    bool lerp = in && in->mu;
    if (j->norm)
        cpu_norm_row(j->run, j->norm, x, own);
    else if (lerp)
        j->run->x->k->rows->lerp(own, x, at(j->run, in->b, p->row), in->mu, j->n);
    else if (b->bf16 ? j->p_floats : j->floats)
        memcpy(own, x, j->n * sizeof *x);
    if (j->norm || lerp) x = own;
    if (b->bf16)
        j->run->x->k->panels->pack(a->b + (b->group + in_batch / TILE) * cpu_group_values(j->n),
                                   in_batch % TILE, x, j->n);
    if (b->bf16 ? j->p_int8 : j->int8) j->run->x->k->tiles->quantise(a, i, x);
}

/* Moves the job to this member's row of the scratch, if each has one. */
static bool has_own_row(struct job *j)
{
    const struct cpu_run *run = j->run;
    size_t at = (size_t)run->member * j->n;
    if (j->lists->n_places != 1 || j->lists->batches[0].bf16) return false;
    if (run->n_members > run->x->host.limits.max_rows) return false;
    j->act.x += at;
    j->act.q += at;
    j->act.scale += at / BLOCK;
    j->act.sum += at / 16;
    j->act.mins += at / BLOCK * 3;
    return true;
}

/* A row alone is rounded by every member for itself, which takes no longer than waiting for one
 * that does it for all. */
static void prepare(struct job *j)
{
    u32 begin, end;
    if (has_own_row(j)) {
        prepare_row(j, j->lists->batches, 0);
        return;
    }
    share(j->run, j->lists->n_places, &begin, &end);
    for (u32 k = 0; k < j->lists->n_batches; k++) {
        const struct cpu_batch *b = &j->lists->batches[k];
        for (u32 i = MAX(begin, b->begin); i < MIN(end, b->end); i++) prepare_row(j, b, i);
    }
    barrier(j->run);
}

/* ---- products ---- */

/* Tiles [begin, end) of a product for a batch. */
struct piece {
    const struct job *j;
    const struct cpu_batch *b;
    const struct product *p;
    u32 begin, end;
    float *y[CPU_MAX_ROWS], *up[CPU_MAX_ROWS]; /* first column of each row */
    size_t pitch;                              /* of y, or 0: it is no rectangle */
};

enum { UP_PITCH = CPU_UP_TILES * TILE };

static u32 cols_of(const struct piece *s)
{
    return MIN(s->end * TILE, s->p->w->n_out) - s->begin * TILE;
}

static const u8 *tile_of(const struct piece *s, const struct product *p, u32 t)
{
    return p->w->data + s->b->slice * p->w->slice_bytes + t * p->w->tile_bytes;
}

/* The part of a panel that is tile t of a product. */
static struct cpu_half half_of(const struct piece *s, const struct product *p, u32 t,
                               float *const *y)
{
    return (struct cpu_half){.w = p->w,
                             .tile = tile_of(s, p, t),
                             .bias = p->bias ? p->bias + t * TILE : NULL,
                             .n = MIN(TILE, p->w->n_out - t * TILE),
                             .y = y,
                             .pitch = y == s->up ? UP_PITCH : s->pitch,
                             .col = (t - s->begin) * TILE};
}

/* Does this product go through bf16 panels? */
static bool in_panels(const struct piece *s, const struct product *p)
{
    return s->b->bf16 && is_bf16(s->j, p->w->enc);
}

/* Columns outermost, so that this stretch of the activations stays in the second cache. With an
 * `up`, tiles of both products are paired, else neighbours. */
static void multiply_panels(const struct piece *s, const struct product *p, float *const *y,
                            const struct product *up)
{
    const struct job *j = s->j;
    u32 n_blocks = (j->n + BLOCK - 1) / BLOCK;
    struct cpu_panel panel = {.x = j->act.b + s->b->group * cpu_group_values(j->n),
                              .group_values = cpu_group_values(j->n),
                              .by_pairs = j->run->x->host.net->profile.bf16 == BF16_FLOATS,
                              .n_rows = s->b->end - s->b->begin};
    for (u32 b = 0; b < n_blocks; b += PANEL_BLOCKS) {
        panel.block = b;
        panel.n_blocks = MIN(PANEL_BLOCKS, n_blocks - b);
        for (u32 t = s->begin; t < s->end; t += up ? 1 : 2) {
            panel.n_halves = up || t + 1 < s->end ? 2 : 1;
            panel.half[0] = half_of(s, p, t, y);
            if (panel.n_halves > 1)
                panel.half[1] = up ? half_of(s, up, t, s->up) : half_of(s, p, t + 1, y);
            for (u32 h = 0; h < panel.n_halves; h++)
                panel.half[h].to_next = (up ? 1 : 2) * panel.half[h].w->tile_bytes;
            j->run->x->k->panels->multiply(&panel);
        }
    }
}

/* A row's outputs of tile t. */
static void put_outputs(const struct piece *s, const struct product *p, u32 t, float *y,
                        const float *out)
{
    u32 n = MIN(TILE, p->w->n_out - t * TILE);
    const float *bias = p->bias ? p->bias + t * TILE : NULL;
    y += (t - s->begin) * TILE;
    if (!bias && n == TILE)
        memcpy(y, out, TILE * sizeof *y);
    else
        for (u32 i = 0; i < n; i++) y[i] = bias ? out[i] + bias[i] : out[i];
}

static void multiply_tiles(const struct piece *s, const struct product *p, float *const *y)
{
    enum { AT_ONCE = 64 };
    _Alignas(64) float out[STRIP_TILES * AT_ONCE * TILE];
    u32 n_rows = s->b->end - s->b->begin, n_tiles;
    u32 most = n_rows == 1 ? AT_ONCE : encoding_is_int8(p->w->enc) ? 1 : STRIP_TILES;
    for (u32 t = s->begin; t < s->end; t += n_tiles) {
        n_tiles = MIN(most, s->end - t);
        const u8 *first = tile_of(s, p, t);
        for (u32 row = 0; row < n_rows; row += AT_ONCE) {
            u32 k = MIN(AT_ONCE, n_rows - row);
            s->j->run->x->k->tiles->tiles(p->w, first, n_tiles, &s->j->act, s->b->begin + row, k,
                                          out);
            for (u32 i = 0; i < n_tiles * k; i++)
                put_outputs(s, p, t + i / k, y[row + i % k], out + i * TILE);
        }
    }
}

/* Whole blocks of outputs, whichever of them are wanted. */
static void multiply_blas(const struct piece *s, const struct product *p, float *const *y)
{
    const struct job *j = s->j;
    float *w = j->lists->blas, *out = w + (size_t)j->n * BLAS_TILES * TILE;
    u32 n_rows = s->b->end - s->b->begin;
    for (u32 t = s->begin / BLAS_TILES * BLAS_TILES; t < s->end; t += BLAS_TILES) {
        u32 end = MIN(p->w->n_tiles, t + BLAS_TILES), width = (end - t) * TILE;
        for (u32 k = t; k < end; k++)
            j->run->x->k->tiles->floats(p->w, tile_of(s, p, k), w + (k - t) * TILE, width);
        for (u32 row = 0; row < n_rows; row += BLAS_ROWS) {
            blas_multiply(out, j->act.x + (size_t)(s->b->begin + row) * j->n, w, width, j->n);
            for (u32 r = 0; r < MIN(BLAS_ROWS, n_rows - row); r++)
                for (u32 k = MAX(t, s->begin); k < MIN(end, s->end); k++)
                    put_outputs(s, p, k, y[row + r], out + r * width + (k - t) * TILE);
        }
    }
}

static void multiply_one(const struct piece *s, const struct product *p, float *const *y)
{
    if (in_panels(s, p))
        multiply_panels(s, p, y, NULL);
    else if (s->b->prompt && s->j->run->x->has_blas && !encoding_is_int8(p->w->enc))
        multiply_blas(s, p, y);
    else
        multiply_tiles(s, p, y);
}

/* What a group does to its product. */
static void finish(const struct piece *s)
{
    const struct job *j = s->j;
    u32 n = cols_of(s);
    for (u32 r = 0; r < s->b->end - s->b->begin; r++) {
        u32 row = j->lists->places[s->b->begin + r].row;
        if (j->glu) j->run->x->k->rows->glu(s->y[r], s->y[r], s->up[r], n, j->glu);
        if (s->p->act) j->run->x->k->rows->act(s->y[r], s->y[r], n, s->p->act->p.act.kind);
        for (u32 k = 0; k < j->n_add; k++) {
            const float *x = at(j->run, j->add[k], row) + s->begin * TILE;
            for (u32 i = 0; i < n; i++) s->y[r][i] = x[i] + s->y[r][i];
        }
    }
}

/* From each of n rows to the next, which is higher; 0 where that differs. */
static size_t even_pitch(float *const *y, u32 n)
{
    size_t pitch = n > 1 ? (size_t)(y[1] - y[0]) : 0;
    for (u32 r = 2; r < n; r++)
        if (y[r] != y[r - 1] + pitch) return 0;
    return pitch;
}

static void multiply(struct piece *s)
{
    const struct job *j = s->j;
    const struct product *p = s->p;
    for (u32 r = 0; r < s->b->end - s->b->begin; r++) {
        const struct cpu_place *at_place = &j->lists->places[s->b->begin + r];
        s->y[r] = p->y + at_place->row * p->pitch + at_place->part * p->step + s->begin * TILE;
        s->up[r] = j->lists->up + (size_t)r * UP_PITCH;
    }
    s->pitch = even_pitch(s->y, s->b->end - s->b->begin);
    if (j->glu && in_panels(s, p) && in_panels(s, p + 1)) {
        multiply_panels(s, p, s->y, p + 1);
    } else {
        multiply_one(s, p, s->y);
        if (j->glu) multiply_one(s, p + 1, s->up);
    }
    finish(s);
}

/* Panels are pairs of tiles, floats go by strips of them. Activations that don't fit in the second
 * cache come from behind it for every piece, so there are not too many of them. */
static u32 least_piece(const struct job *j)
{
    if (j->lists->batches[0].prompt && j->floats && j->run->x->has_blas) return BLAS_TILES;
    if (!j->lists->batches[0].bf16)
        return j->floats && j->n_tiles >= j->run->n_members * 16 * STRIP_TILES ? STRIP_TILES : 1;
    return (j->n_tiles / (j->run->n_members * 16) + 2) / 2 * 2;
}

/* Which products a batch meets: all, or those of its input. */
static void set_products(struct job *j, struct cpu_batch *b)
{
    b->product = b->n_tiles = 0;
    b->n_products = j->n_products;
    if (j->n_inputs) {
        while (j->products[b->product].input != b->slice) b->product++;
        for (b->n_products = 0; b->product + b->n_products < j->n_products; b->n_products++)
            if (j->products[b->product + b->n_products].input != b->slice) break;
        b->slice = 0;
    }
    for (u32 k = 0; k < (j->glu ? 1 : b->n_products); k++)
        b->n_tiles += j->products[b->product + k].w->n_tiles;
    j->n_tiles += b->n_tiles;
}

/* From the counter of group i. */
static bool next_tiles(const struct job *j, u32 i, u32 *begin, u32 *end)
{
    if (!take_less(j->run, i, j->first + j->n_tiles, least_piece(j), begin, end)) return false;
    *begin -= j->first;
    *end -= j->first;
    return true;
}

/* i: the group. */
static void run_job(struct job *j, u32 i)
{
    struct piece s = {.j = j};
    u32 begin, end;
    for (u32 k = 0; k < j->lists->n_batches; k++) set_products(j, &j->lists->batches[k]);
    prepare(j);
    if (j->lists->n_batches == 0) return;
    while (next_tiles(j, i, &begin, &end))
        for (; begin < end; begin += s.end - s.begin) {
            s.b = j->lists->batches;
            s.begin = begin;
            while (s.begin >= s.b->n_tiles) s.begin -= s.b++->n_tiles;
            s.p = &j->products[s.b->product];
            while (s.begin >= s.p->w->n_tiles) s.begin -= s.p++->w->n_tiles;
            s.end = MIN(s.p->w->n_tiles, s.begin + (end - begin));
            if (j->glu) s.end = MIN(s.end, s.begin + CPU_UP_TILES);
            multiply(&s);
        }
}

/* ---- groups ---- */

static struct job job_of(const struct cpu_run *run, struct operand x, u32 n)
{
    struct job j = {.run = run,
                    .from = x,
                    .x = at(run, x, 0),
                    .pitch = pitch_of(run, x),
                    .n = n,
                    .act = run->x->act,
                    .lists = &run->x->lists[run->member]};
    j.act.n = n;
    return j;
}

static bool is_product(const struct op *op)
{
    return op->kind == OP_MATMUL || op->kind == OP_MATMUL_HEADS || op->kind == OP_MATMUL_EXPERTS;
}

/* Adds product m of the group with what becomes of it: an act, a glu, sums. */
static void add_product(struct job *j, const struct group *g, const struct op *m)
{
    const struct op *add, *act = group_reader(g, m->out[0], OP_ACT);
    const struct op *glu = group_reader(g, m->out[0], OP_GLU);
    struct operand y = glu ? glu->out[0] : act ? act->out[0] : m->out[0];
    for (; (add = group_reader(g, y, OP_ADD)) != NULL; y = add->out[0])
        j->add[j->n_add++] = add->in[add->in[0].buf == y.buf];
    j->products[j->n_products++] =
        (struct product){.w = &j->run->x->packed[m->w[0]],
                         .bias = m->kind == OP_MATMUL ? vector_of(j->run, m->w[1]) : NULL,
                         .y = at(j->run, y, 0),
                         .pitch = pitch_of(j->run, y),
                         .step = m->kind == OP_MATMUL_HEADS     ? m->p.heads.out_stride
                                 : m->kind == OP_MATMUL_EXPERTS ? m->p.experts.n_out
                                                                : 0,
                         .act = act};
}

void cpu_op_product(const struct cpu_run *run, const struct group *g, u32 i)
{
    const struct op *norm = group_op(g, OP_NORM, 0), *glu = group_op(g, OP_GLU, 0), *m = NULL;
    u32 n_parts = 1, n_slices = 1;
    for (u32 k = 0; k < g->n_ops && !m; k++)
        if (is_product(g->ops[k])) m = g->ops[k];
    struct job j = job_of(run, norm ? norm->in[0] : m->in[0], m->in[0].width);
    if (m->kind == OP_MATMUL_HEADS) {
        j.n = j.act.n = m->p.heads.n_in;
        j.step = m->p.heads.in_stride;
        n_parts = n_slices = m->p.heads.n_heads;
    } else if (m->kind == OP_MATMUL_EXPERTS) {
        j.n = j.act.n = m->p.experts.n_in;
        j.step = m->p.experts.per_slot ? j.n : 0;
        n_parts = m->p.experts.n_used;
        n_slices = run->x->packed[m->w[0]].n_slices;
    }
    j.norm = norm;
    j.glu = glu;
    for (u32 k = 0; k < 2 && glu; k++) add_product(&j, g, group_maker(g, glu->in[k]));
    for (u32 k = 0; k < g->n_ops && !glu; k++)
        if (is_product(g->ops[k])) add_product(&j, g, g->ops[k]);
    list_places(&j, n_parts, n_slices, m->kind == OP_MATMUL_EXPERTS ? &m->in[1] : NULL);
    run_job(&j, i);
}

/* The place of x among the job's inputs, which it joins if it is new. */
static u32 input_of(struct job *j, const struct group *g, struct operand x)
{
    u32 k = 0;
    const struct op *lerp = group_maker(g, x);
    struct input in = {.a = x};
    if (lerp) {
        in.a = lerp->in[0];
        in.b = lerp->in[1];
        in.mu = vector_of(j->run, lerp->w[0]) + (size_t)lerp->p.lerp.row * x.width;
    }
    while (k < j->n_inputs && memcmp(&j->inputs[k], &in, sizeof in) != 0) k++;
    if (k == j->n_inputs) j->inputs[j->n_inputs++] = in;
    return k;
}

/* A job for the matmuls of each width, its products in order of their inputs. */
void cpu_op_matmuls(const struct cpu_run *run, const struct group *g, u32 i)
{
    u32 input[64], left = 0, n_tiles = 0;
    CHECK(g->n_ops <= ARRAY_LEN(input));
    for (u32 k = 0; k < g->n_ops; k++) left += g->ops[k]->kind == OP_MATMUL;
    for (u64 done = 0; left;) {
        struct job j = {0};
        for (u32 k = 0; k < g->n_ops; k++) {
            const struct op *m = g->ops[k];
            input[k] = UINT32_MAX;
            if (m->kind != OP_MATMUL || done >> k & 1) continue;
            if (!j.n) j = job_of(run, m->in[0], m->in[0].width);
            j.first = n_tiles;
            if (m->in[0].width != j.n) continue;
            input[k] = input_of(&j, g, m->in[0]);
            done |= 1ull << k;
            left--;
        }
        for (u32 in = 0; in < j.n_inputs; in++)
            for (u32 k = 0; k < g->n_ops; k++) {
                if (input[k] != in) continue;
                add_product(&j, g, g->ops[k]);
                j.products[j.n_products - 1].input = in;
            }
        list_places(&j, j.n_inputs, j.n_inputs, NULL);
        run_job(&j, i);
        n_tiles += j.n_tiles;
        if (left) barrier(run);
    }
}
