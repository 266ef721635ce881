#include "gpu/rules.h"

#include <stdlib.h>
#include <string.h>

u32 emit_room(const struct exec_limits *limits, enum rows rows)
{
    u32 n = rows == ROWS_T ? limits->max_rows : limits->max_out;
    return (n + 7) / 8 * 8;
}

bool emit_kv_in_blocks(const struct net *net)
{
    enum qtype key = cache_info[net->profile.kv].key;
    return key != QT_F32 && key != QT_F16;
}

u32 emit_kv_planes(const struct net *net, const struct exec_limits *limits, u32 layer,
                   struct kv_plane planes[KV_PLANES])
{
    u64 at = 0, tokens = (u64)limits->n_blocks * limits->block_tokens;
    for (u32 i = 0; i < layer; i++) at += (tokens * exec_kv_row(net, i).bytes + 255) / 256 * 256;
    struct kv_row row = exec_kv_row(net, layer);
    if (!emit_kv_in_blocks(net)) {
        planes[0] = (struct kv_plane){at, row.bytes};
        return 1;
    }
    for (u32 i = 0; i < KV_PLANES; i++) {
        u32 n = row.part[i / 2].width;
        u64 quants = row.part[i / 2].type == QT_Q8_0 ? n : n / 2;
        planes[i] = (struct kv_plane){at, i % 2 ? n / 32 * sizeof(u16) : quants};
        at += tokens * planes[i].row;
    }
    return KV_PLANES;
}

static u64 state_bytes(const struct net *net, const struct exec_limits *limits, u32 layer)
{
    return ROUND_UP((u64)limits->n_slots * net->states[layer].width * sizeof(float), 256);
}

u64 emit_state_at(const struct net *net, const struct exec_limits *limits, u32 layer, u64 *n)
{
    u64 at = 0;
    for (u32 i = 0; i < layer; i++) at += state_bytes(net, limits, i);
    *n = state_bytes(net, limits, layer);
    return at;
}

u64 emit_buffer_begin(const struct exec_limits *limits, u64 begin, u64 at, u64 n)
{
    u64 most = limits->found.caps.buffer;
    return most && at > begin && at + ROUND_UP(n, 256) - begin > most ? at : begin;
}

u64 emit_state_buffer(const struct net *net, const struct exec_limits *limits, u32 layer)
{
    u64 begin = 0, at = 0;
    for (u32 i = 0; i <= layer; i++) {
        u64 n = state_bytes(net, limits, i);
        begin = emit_buffer_begin(limits, begin, at, n);
        at += n;
    }
    return begin;
}

/* ---- one launch ---- */

static struct launch *current(struct emit *e)
{
    return &e->list[e->n];
}

void emit_launch(struct emit *e, const char *kernel, u32 gx, u32 gy, u32 threads)
{
    if (e->rc) return;
    if (e->n == e->cap) {
        u32 cap = e->cap ? 2 * e->cap : 256;
        struct launch *list = realloc(e->list, cap * sizeof *list);
        if (!list) {
            e->rc = err_nomem(e->err, "the launches");
            return;
        }
        e->list = list;
        e->cap = cap;
    }
    struct launch *l = current(e);
    memset(l, 0, sizeof *l);
    CHECK(strlen(kernel) < sizeof l->kernel);
    strcpy(l->kernel, kernel);
    l->of = e->of;
    l->groups[0] = gx;
    l->groups[1] = gy;
    l->groups[2] = 1;
    l->threads = threads;
    l->choice = e->choice;
    e->choice = (struct choice){0};
}

u32 emit_per_four(const struct emit *e, u32 per_unit)
{
    return e->kind.caps.walks ? 4 * per_unit : 0;
}

void emit_depth(struct emit *e, u32 gz)
{
    if (!e->rc) current(e)->groups[2] = gz;
}

void emit_walk(struct emit *e, u32 per_unit, u32 tg_bytes)
{
    if (e->rc) return;
    current(e)->per_four = emit_per_four(e, per_unit);
    current(e)->tg_bytes = tg_bytes;
}

void emit_walk_by(struct emit *e, const struct layout *l, u32 tg_bytes)
{
    if (e->rc) return;
    current(e)->per_four = l->v[LAYOUT_GROUPS];
    current(e)->tg_bytes = tg_bytes;
}

void emit_pieces(struct emit *e, u32 n)
{
    if (!e->rc) current(e)->pieces = n;
}

u32 emit_even(const struct emit *e, u32 n)
{
    return e->kind.caps.walks ? MAX(n, e->kind.caps.n_units) : n;
}

void emit_groups(struct emit *e, u32 gx, u32 tg_bytes)
{
    if (e->rc) return;
    current(e)->groups[0] = gx;
    current(e)->tg_bytes = tg_bytes;
}

void emit_bind(struct emit *e, struct binding b)
{
    if (e->rc) return;
    struct launch *l = current(e);
    CHECK(l->n_bufs < GPU_MAX_BUFS);
    l->bufs[l->n_bufs++] = b;
}

static struct binding binding_of(const struct emit *e, struct operand o, bool write)
{
    if (o.buf == NO_BUF) /* something harmless */
        return (struct binding){
            .space = SPACE_STEP, .offset = e->step.at[STEP_HEAD], .n = e->step.n[STEP_HEAD]};
    const struct buffer *b = &e->p->bufs[o.buf];
    u64 room = emit_room(e->limits, b->rows), at = b->inside ? e->at[o.buf] / 4 : b->place * room;
    return (struct binding){.space = b->inside           ? SPACE_SCRATCH
                                     : b->rows == ROWS_T ? SPACE_T
                                                         : SPACE_R,
                            .offset = (at + o.col) * sizeof(float),
                            .n = ((room - 1) * b->width + o.width) * sizeof(float),
                            .write = write};
}

void emit_all(struct emit *e, bool write)
{
    emit_bind(e, (struct binding){.space = SPACE_T, .n = write ? UINT64_MAX : 0, .write = write});
}

void emit_chunk(struct emit *e, u32 chunk)
{
    emit_bind(e, (struct binding){.space = SPACE_CHUNK, .weight = chunk});
}

struct planes emit_planes(const struct emit *e, u32 id)
{
    struct planes p;
    planes_plan(&p, &e->p->net->weights[id]);
    return p;
}

u32 emit_unit(const struct emit *e, u32 id)
{
    return id == NO_WEIGHT ? (u32)MIX_NOTHING : (u32)(e->places[id].at / 16);
}

u32 emit_scales_unit(const struct emit *e, u32 id)
{
    return (u32)((e->places[id].at + emit_planes(e, id).bytes[0]) / 16);
}

u32 emit_place(const struct emit *e, struct operand o)
{
    return (u32)(binding_of(e, o, false).offset / sizeof(float));
}

u32 emit_touch(struct emit *e, struct operand o, bool write)
{
    CHECK(e->p->bufs[o.buf].rows == ROWS_T && !e->p->bufs[o.buf].inside);
    if (e->rc) return 0;
    struct launch *l = current(e);
    CHECK(l->n_touched < EMIT_MAX_TOUCHED);
    l->touched[l->n_touched++] = binding_of(e, o, write);
    return emit_place(e, o);
}

void emit_in(struct emit *e, struct operand o)
{
    emit_bind(e, binding_of(e, o, false));
}

void emit_out(struct emit *e, struct operand o)
{
    emit_bind(e, binding_of(e, o, true));
}

void emit_step(struct emit *e, enum step_part part)
{
    emit_bind(
        e, (struct binding){.space = SPACE_STEP, .offset = e->step.at[part], .n = e->step.n[part]});
}

void emit_angles(struct emit *e, const struct op *rope)
{
    const struct net *net = e->p->net;
    u32 table = rope->p.rope.table;
    u64 at = step_angles_at(net, table, e->step.rows) * sizeof(float);
    u64 n = (u64)e->step.rows * (net->rope[table].n_rot / 2) * sizeof(float);
    for (enum step_part part = STEP_COS; part <= STEP_SIN; part++)
        emit_bind(e,
                  (struct binding){.space = SPACE_STEP, .offset = e->step.at[part] + at, .n = n});
}

void emit_tables(struct emit *e, bool write)
{
    emit_bind(e, (struct binding){.space = SPACE_TABLES, .n = 1, .write = write});
}

static void bind_plane(struct emit *e, u32 id, u32 plane, u64 offset)
{
    emit_bind(e,
              (struct binding){
                  .space = SPACE_WEIGHT, .weight = id, .plane = plane, .offset = offset, .n = 1});
}

void emit_weight(struct emit *e, u32 id)
{
    bind_plane(e, id, 0, 0);
    bind_plane(e, id, 1, 0);
}

void emit_vector(struct emit *e, u32 id, u32 row)
{
    if (id == NO_WEIGHT) {
        emit_step(e, STEP_HEAD);
        return;
    }
    struct planes p = emit_planes(e, id);
    const struct weight *w = &e->p->net->weights[id];
    if (p.enc != ENC_F32 && !e->rc)
        e->rc = err_set(e->err, FLETCH_E_UNSUPPORTED, "tensor '%s' is used as a vector but is %s",
                        w->name, quant_info(w->type)->name);
    bind_plane(e, id, 0, (u64)row * p.q_row * 16);
}

void emit_kv(struct emit *e, u32 layer, bool write)
{
    struct kv_plane planes[KV_PLANES];
    u32 n = emit_kv_planes(e->p->net, e->limits, layer, planes);
    u64 tokens = (u64)e->limits->n_blocks * e->limits->block_tokens;
    for (u32 i = 0; i < n; i++)
        emit_bind(e, (struct binding){.space = SPACE_KV,
                                      .offset = planes[i].at,
                                      .n = MAX(tokens * planes[i].row, 1),
                                      .write = write});
}

void emit_state(struct emit *e, u32 layer, bool write)
{
    u64 n;
    emit_bind(e, (struct binding){.space = SPACE_STATE,
                                  .offset = emit_state_at(e->p->net, e->limits, layer, &n),
                                  .n = n,
                                  .write = write});
}

void emit_states(struct emit *e, u64 begin)
{
    emit_bind(e,
              (struct binding){
                  .space = SPACE_STATE, .offset = begin, .n = UINT64_MAX - begin, .write = true});
}

void emit_passed(struct emit *e)
{
    emit_bind(e, (struct binding){.space = SPACE_PASSED, .n = 1, .write = true});
}

/* Bytes of a row that is kept. */
static u64 kept_pitch(u32 n)
{
    return ((u64)n * sizeof(float) + 255) / 256 * 256;
}

void emit_kept(struct emit *e, u32 layer, u32 n)
{
    if (!e->n_kept || e->kept_for[e->n_kept - 1] != layer) e->kept_for[e->n_kept++] = layer;
    CHECK(n == e->kept_width && e->n_kept * kept_pitch(n) <= e->kept);
    emit_bind(e, (struct binding){.space = SPACE_SCRATCH,
                                  .offset = (e->n_kept - 1) * kept_pitch(n),
                                  .n = kept_pitch(n),
                                  .write = true});
}

void emit_scratch(struct emit *e, u64 offset, u64 n, bool write)
{
    CHECK(offset % 256 == 0);
    offset += e->inner;
    n = ROUND_UP(MAX(n, 1),
                 16); /* Metal wants an element behind each offset, also where it's empty */
    e->scratch = MAX(e->scratch, offset + n);
    emit_bind(e,
              (struct binding){.space = SPACE_SCRATCH, .offset = offset, .n = n, .write = write});
}

void emit_tickets(struct emit *e)
{
    emit_bind(e, (struct binding){.space = SPACE_TICKETS, .n = 1, .write = true});
}

static bool touches(const struct binding *a, const struct binding *b)
{
    return a->space == b->space && (a->write || b->write) && a->offset < b->offset + b->n &&
           b->offset < a->offset + a->n;
}

static bool any_touches(const struct binding *a, u32 n_a, const struct binding *b, u32 n_b)
{
    for (u32 i = 0; i < n_a; i++)
        for (u32 j = 0; j < n_b; j++)
            if (touches(&a[i], &b[j])) return true;
    return false;
}

static bool must_wait(const struct launch *l, const struct launch *m)
{
    return any_touches(l->bufs, l->n_bufs, m->bufs, m->n_bufs) ||
           any_touches(l->touched, l->n_touched, m->bufs, m->n_bufs) ||
           any_touches(l->bufs, l->n_bufs, m->touched, m->n_touched) ||
           any_touches(l->touched, l->n_touched, m->touched, m->n_touched);
}

int emit_args(struct emit *e, const void *args, u32 n)
{
    if (e->rc) return e->rc;
    struct launch *l = current(e);
    CHECK(n <= sizeof l->args);
    if (n) memcpy(l->args, args, n);
    l->n_args = n;
    l->after = e->n == 0;
    for (u32 i = e->barrier; i < e->n && !l->after; i++) l->after = must_wait(l, &e->list[i]);
    if (l->after) e->barrier = e->n;
    e->n++;
    return 0;
}

/* ---- what emitters ask for ---- */

u32 emit_pitch(const struct emit *e, struct operand o)
{
    return e->p->bufs[o.buf].width;
}

u32 emit_rows_of(const struct emit *e, struct operand o)
{
    return e->p->bufs[o.buf].rows == ROWS_T ? e->count : ROWS_OUT;
}

u32 emit_n_rows(const struct emit *e, struct operand o)
{
    return e->p->bufs[o.buf].rows == ROWS_T ? e->rows : e->out_rows;
}

int emit_lacks(struct emit *e, const struct op *op, const char *what)
{
    if (!e->rc)
        e->rc = err_set(e->err, FLETCH_E_UNSUPPORTED, "op '%s' of layer %d: no kernel for %s",
                        op_info[op->kind].name, op->layer, what);
    return e->rc;
}

/* ---- programs ---- */

void emit_only_d(struct emit *e)
{
    e->rows = e->kind.n_d;
    e->count = ROWS_D;
}

void emit_for_all(struct emit *e)
{
    e->rows = MIN(e->kind.n_d + e->kind.n_p, e->limits->max_rows);
    e->count = ROWS_ALL;
}

void emit_inside(struct emit *e, const struct group *g)
{
    e->inner = e->kept;
    for (u32 i = 0; i < g->n_ops; i++)
        for (u32 j = 0; j < g->ops[i]->n_out; j++) {
            u32 buf = g->ops[i]->out[j].buf;
            const struct buffer *b = &e->p->bufs[buf];
            if (!b->inside) continue;
            e->at[buf] = e->inner;
            e->inner += ((u64)b->width * emit_room(e->limits, b->rows) * 4 + 255) / 256 * 256;
        }
    e->scratch = MAX(e->scratch, e->inner);
}

int emit_each(struct emit *e, const struct group *g)
{
    emit_inside(e, g);
    for (u32 i = 0; i < g->n_ops && !e->rc; i++) emit_op(e, g->ops[i]);
    return e->rc;
}

static int (*const emitters[OP_COUNT])(struct emit *e, const struct op *op) = {
#define OP_EMITTER(id, emitter, has) [OP_##id] = emitter,
    GPU_OP_TABLE(OP_EMITTER)
#undef OP_EMITTER
};
const u64 emit_features[OP_COUNT] = {
#define OP_FEATURES(id, emitter, has) [OP_##id] = has,
    GPU_OP_TABLE(OP_FEATURES)
#undef OP_FEATURES
};

int emit_op(struct emit *e, const struct op *op)
{
    if (!emitters[op->kind]) return emit_lacks(e, op, "this op");
    int rc = emitters[op->kind](e, op);
    if (rc && !e->rc) e->rc = rc;
    return e->rc;
}

/* Block tables change before anything reads them. */
static void begin(struct emit *e)
{
    if (!e->p->net->n_kv) return;
    emit_launch(e, "k_tables", 1, 1, TABLES_THREADS);
    emit_step(e, STEP_HEAD);
    emit_step(e, STEP_TABLES);
    emit_tables(e, true);
    emit_args(e, NULL, 0);
}

/* Room in front of all other scratch for what shifts keep, the same in every list. */
static void plan_kept(struct emit *e)
{
    u32 n = 0;
    for (u32 i = 0; i < e->p->n_groups; i++) {
        const struct group *g = &e->p->groups[i];
        e->even |= g->rule == &gpu_rules[RULE_LOW_TIME_MIX];
        if (!g->rule || !group_op(g, OP_TOKEN_SHIFT, 0)) continue;
        e->kept_width = group_op(g, OP_TOKEN_SHIFT, 0)->in[0].width;
        n++;
    }
    e->kept_for = calloc(n + 1, sizeof *e->kept_for);
    if (!e->kept_for && !e->rc) e->rc = err_nomem(e->err, "the launches");
    e->scratch = e->inner = e->kept = n * kept_pitch(e->kept_width);
}

/* One launch's share of the rows that were kept: those from `first` on whose states lie in one
 * buffer, at most KEEP_MAX. Where that buffer begins, and the first row that is not among them. */
static u32 end_of_kept(const struct emit *e, u32 first, u64 *begin)
{
    u32 i = first;
    *begin = emit_state_buffer(e->p->net, e->limits, e->kept_for[first]);
    while (i < e->n_kept && i - first < KEEP_MAX &&
           emit_state_buffer(e->p->net, e->limits, e->kept_for[i]) == *begin)
        i++;
    return i;
}

/* What was kept becomes state. */
static void end(struct emit *e)
{
    u64 pitch = kept_pitch(e->kept_width), n = e->kept_width / 4, begin, bytes;
    e->of--; /* it counts as one of the last group's */
    for (u32 i = 0, next; i < e->n_kept; i = next) {
        next = end_of_kept(e, i, &begin);
        u32 rows = next - i;
        struct keep_args a = {.n = (u32)n, .pitch = (u32)(pitch / 16)};
        emit_launch(e, "k_keep", (u32)(n + KEEP_THREADS - 1) / KEEP_THREADS, rows, KEEP_THREADS);
        emit_step(e, STEP_HEAD);
        emit_step(e, STEP_ROWS);
        emit_bind(e,
                  (struct binding){.space = SPACE_SCRATCH, .offset = i * pitch, .n = rows * pitch});
        emit_states(e, begin);
        for (u32 j = 0; j < rows; j++) {
            u64 at = emit_state_at(e->p->net, e->limits, e->kept_for[i + j], &bytes);
            a.place[j] = (u32)((at - begin) / 16);
        }
        emit_args(e, &a, sizeof a);
    }
}

/* The work of a group, dealt out evenly to its launches, those from `first` on. Where a row lies in
 * its sequence is not known before the step: as far behind as it can. */
static void share_work(struct emit *e, u32 first)
{
    const struct group *g = &e->p->groups[e->of];
    u32 rows = group_rows(e->p, g) == ROWS_R ? e->out_rows : e->rows;
    double per_row = group_flops(e->p->net, g) + group_flops_per_position(g) * e->limits->max_pos;
    double bytes = (double)group_bytes(e->p, g, rows);
    double work = MAX(rows * per_row, GPU_OPS_PER_BYTE * bytes);
    for (u32 i = first; i < e->n; i++) e->list[i].work = work / (e->n - first);
}

int emit_groups_of(struct emit *e, const struct program *p, const struct exec_limits *limits,
                   struct list_kind kind, u32 first, u32 behind, struct err *err)
{
    *e = (struct emit){.p = p,
                       .limits = limits,
                       .kind = kind,
                       .err = err,
                       .at = calloc(p->n_bufs + 1, sizeof *e->at),
                       .places = calloc(p->net->n_weights + 1, sizeof *e->places)};
    if (!e->at || !e->places) e->rc = err_nomem(err, "the launches");
    if (e->places)
        planes_place(p->net, planes_limit(kind.caps.bulk, kind.caps.buffer), e->places, NULL);
    emit_for_all(e);
    e->out_rows = MIN(e->rows, limits->max_out);
    step_layout(&e->step, p, limits, e->rows);
    plan_kept(e);
    begin(e);
    for (e->of = first; e->of < behind && !e->rc;) {
        u32 n = e->n, n_groups = emit_layers(e, behind);
        if (!n_groups && emit_group(e, &p->groups[e->of]) == 0) share_work(e, n);
        e->of += MAX(n_groups, 1);
    }
    if (!e->rc) end(e);
    free(e->kept_for);
    free(e->at);
    free(e->places);
    e->at = NULL;
    e->places = NULL;
    e->kept_for = NULL;
    if (e->rc) {
        free(e->list);
        e->list = NULL;
    }
    return e->rc;
}

int emit_program(struct emit *e, const struct program *p, const struct exec_limits *limits,
                 struct list_kind kind, struct err *err)
{
    return emit_groups_of(e, p, limits, kind, 0, p->n_groups, err);
}
