#include "gpu/gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/pool.h"
#include "gpu/arithmetic.h"
#include "gpu/emit.h"
#include "gpu/gpu_kept.h"
#include "gpu/gpu_lists.h"
#include "gpu/rules.h"

enum {
    MAX_PROGRAMS = 4,
    MAX_ROWS = 4096,
    CUDA_ROWS = 2048, /* prompts at once: decoding matrices for them then costs 3 % (8B, H200) */
    METAL_ROWS = 512, /* a step of 8B is seconds on a small GPU, and nobody may be kept waiting */
    MAX_KERNELS = 512,
    BERTHS = GPU_BERTHS,
};

/* Some of a program's groups, most often all, as a berth submits them. */
struct part {
    struct part *next;
    u32 begin, end, berth;
    bool extra; /* the step is sent with edits of logits, and masks */
    struct gpu_list *list;
};

struct list {
    struct list_kind kind;
    struct part *parts;
    struct step_layout step;
};

struct gpu_program {
    const struct program *p;
    struct gpu_buf *mem[2], *scratch, *passed, *step, *upload[BERTHS];
    struct gpu_sizes size;
    u64 list_bytes;                  /* of all parts of its lists: at most size.lists */
    struct gpu_buf *sampled[BERTHS]; /* [R] ids as a whole step left them, for the host */
    u32 n_lists;
    struct list *lists; /* [n_lists][n_lists] for rows of class D and of class P */
};

struct gpu_exec {
    struct exec base;
    const struct gpu_driver *d;
    struct gpu *g;
    struct list_kind kind; /* what all its lists have in common */
    struct layouts layouts;
    const struct net *net;
    struct exec_limits limits;
    struct pool *pool;
    struct planes *planes;       /* [n_weights] */
    struct weight_place *places; /* [n_weights] */
    u32 n_chunks;
    u64 staging_n;
    struct gpu_buf **chunks, *staging;
    struct kept kv, state;
    struct gpu_buf *tables, *tickets, *edits, *edits_upload[BERTHS];
    struct step_tables known;
    struct step_order order; /* of the last step */
    struct gpu_list *edit_list[BERTHS];
    struct berth {
        u32 handle, n_sampled;
        u32 n_lists; /* that were submitted and not waited for */
        int rc;      /* of those that were */
        struct err err;
    } berths[BERTHS], *done; /* done: of the step that was waited for last */
    u32 oldest, n_away;      /* the first berth whose step was not waited for, and how many are */
    u32 n_programs;
    struct gpu_program programs[MAX_PROGRAMS];
    u32 n_kernels;
    struct kernel {
        char name[32];
        u32 id;
    } kernels[MAX_KERNELS];
};

static const char *gpu_driver_absent(const struct gpu_driver *d)
{
    return d ? d->absent() : "this build is not for macOS";
}

/* ---- open and close ---- */

static void drop_lists(struct gpu_exec *x, struct gpu_program *prog)
{
    for (u32 i = 0; i < prog->n_lists * prog->n_lists; i++) {
        struct list *list = &prog->lists[i];
        for (struct part *part; (part = list->parts) != NULL;) {
            list->parts = part->next;
            x->d->drop(x->g, part->list);
            free(part);
        }
    }
    prog->list_bytes = 0;
}

static void free_program(struct gpu_exec *x, struct gpu_program *prog)
{
    if (prog->lists) drop_lists(x, prog);
    free(prog->lists);
    struct gpu_buf *bufs[] = {prog->mem[0],    prog->mem[1],     prog->scratch,
                              prog->passed,    prog->step,       prog->upload[0],
                              prog->upload[1], prog->sampled[0], prog->sampled[1]};
    for (u32 i = 0; i < ARRAY_LEN(bufs); i++)
        if (bufs[i]) x->d->free(x->g, bufs[i]);
}

static int settle(struct gpu_exec *x, struct err *err);

static void gpu_close(struct exec *exec)
{
    struct gpu_exec *x = (struct gpu_exec *)exec;
    if (!x) return;
    struct err ignored = {0};
    if (x->g) settle(x, &ignored);
    for (u32 i = 0; i < x->n_programs; i++) free_program(x, &x->programs[i]);
    for (u32 i = 0; i < BERTHS; i++)
        if (x->edit_list[i]) x->d->drop(x->g, x->edit_list[i]);
    struct gpu_buf *bufs[] = {x->staging, x->tables,          x->tickets,
                              x->edits,   x->edits_upload[0], x->edits_upload[1]};
    kept_close(&x->state, x->d, x->g);
    kept_close(&x->kv, x->d, x->g);
    for (u32 i = 0; i < ARRAY_LEN(bufs); i++)
        if (bufs[i]) x->d->free(x->g, bufs[i]);
    for (u32 i = 0; x->chunks && i < x->n_chunks; i++)
        if (x->chunks[i]) x->d->free(x->g, x->chunks[i]);
    if (x->g) x->d->close(x->g);
    pool_close(x->pool);
    free(x->chunks);
    free(x->planes);
    free(x->places);
    free(x->known.known);
    layouts_close(&x->layouts);
    step_order_close(&x->order);
    free(x);
}

static int alloc_weights(struct gpu_exec *x, u64 max_buffer, struct err *err)
{
    u64 *sizes = calloc(x->net->n_weights + 1, sizeof *sizes);
    x->chunks = calloc(x->net->n_weights + 1, sizeof *x->chunks);
    if (!sizes || !x->chunks) {
        free(sizes);
        return err_nomem(err, "the executor");
    }
    int rc = 0;
    for (u32 i = 0; i < x->net->n_weights; i++) planes_plan(&x->planes[i], &x->net->weights[i]);
    x->n_chunks = planes_place(x->net, planes_limit(x->kind.caps.bulk, x->kind.caps.buffer),
                               x->places, sizes);
    for (u32 i = 0; !rc && i < x->n_chunks; i++) {
        if (sizes[i] > max_buffer)
            rc = err_set(err, FLETCH_E_FIT,
                         "a single buffer of %.1f MB for weights; at most %.1f MB are allowed",
                         (double)sizes[i] * 1e-6, (double)max_buffer * 1e-6);
        if (!rc) rc = x->d->alloc(x->g, &x->chunks[i], sizes[i], GPU_DEVICE, err);
    }
    free(sizes);
    return rc;
}

static int kernel_id(struct gpu_exec *x, const char *name, u32 *id, struct err *err)
{
    for (u32 i = 0; i < x->n_kernels; i++)
        if (strcmp(x->kernels[i].name, name) == 0) {
            *id = x->kernels[i].id;
            return 0;
        }
    CHECK(x->n_kernels < MAX_KERNELS);
    struct kernel *k = &x->kernels[x->n_kernels];
    int rc = x->d->kernel(x->g, name, &k->id, err);
    if (rc) return rc;
    strcpy(k->name, name);
    *id = k->id;
    x->n_kernels++;
    return 0;
}

/* The list that carries out the edits of a berth's step: of states, then of blocks. */
static int record_edits(struct gpu_exec *x, u32 berth, struct err *err)
{
    u32 n = 1, kernel;
    struct gpu_command *c = calloc(1 + x->state.n_bufs + x->kv.n_bufs, sizeof *c);
    if (!c) return err_nomem(err, "the executor");
    c[0] = (struct gpu_command){.kind = GPU_COPY,
                                .dst = {x->edits, 0},
                                .src = {x->edits_upload[berth], 0},
                                .n_bytes = gpu_edit_bytes(&x->limits)};
    int rc = kernel_id(x, "k_edit", &kernel, err);
    if (!rc) n += kept_edits(&x->state, x->edits, kernel, c + n);
    if (!rc) n += kept_edits(&x->kv, x->edits, kernel, c + n);
    if (!rc) rc = x->d->record(x->g, &x->edit_list[berth], c, n, err);
    free(c);
    return rc;
}

static int open_memory(struct gpu_exec *x, struct err *err)
{
    struct gpu_info info;
    x->d->info(x->g, &info);
    x->limits.found = (struct exec_device){true, info.memory_free, info.caps};
    x->kind = (struct list_kind){.caps = info.caps, .layouts = &x->layouts};
    int rc = alloc_weights(x, info.max_buffer, err);
    x->known.len = x->limits.max_pos / x->limits.block_tokens + 1;
    x->known.n_bytes = gpu_tables_bytes(&x->limits);
    x->known.known = malloc(x->known.n_bytes);
    if (!rc && !x->known.known) rc = err_nomem(err, "the executor");
    x->staging_n = gpu_staging_bytes(x->net);
    if (!rc) rc = step_order_open(&x->order, &x->limits, err);
    if (x->known.known) memset(x->known.known, 0, x->known.n_bytes);
    if (!rc) rc = x->d->alloc(x->g, &x->staging, x->staging_n, GPU_UPLOAD, err);
    if (!rc) rc = kept_open(&x->state, x->d, x->g, x->net, &x->limits, false, err);
    if (!rc) rc = kept_open(&x->kv, x->d, x->g, x->net, &x->limits, true, err);
    if (!rc) rc = x->d->alloc(x->g, &x->tables, x->known.n_bytes, GPU_DEVICE, err);
    if (!rc) rc = x->d->alloc(x->g, &x->tickets, TICKETS * sizeof(u32), GPU_DEVICE, err);
    if (!rc) rc = x->d->alloc(x->g, &x->edits, gpu_edit_bytes(&x->limits), GPU_DEVICE, err);
    for (u32 i = 0; !rc && i < BERTHS; i++) {
        rc = x->d->alloc(x->g, &x->edits_upload[i], gpu_edit_bytes(&x->limits), GPU_UPLOAD, err);
        if (!rc) rc = record_edits(x, i, err);
    }
    return rc;
}

static void check_arithmetic(struct gpu_exec *x)
{
    struct err err = {0};
    if (x->d->self_test && gpu_check_arithmetic(x->d, x->g, NULL, &err))
        snprintf(x->base.warning, sizeof x->base.warning, "%s", err.text);
}

static int gpu_open(struct exec **out, const struct exec_class *class, const struct net *net,
                    const struct exec_limits *limits, u32 n_threads, struct err *err)
{
    *out = NULL;
    const struct gpu_driver *d = class->driver;
    const char *why = gpu_driver_absent(d);
    if (why)
        return err_set(err, FLETCH_E_BACKEND, "backend '%s' is not available: %s", class->name,
                       why);
    struct gpu_exec *x = calloc(1, sizeof *x);
    if (!x) return err_nomem(err, "the executor");
    x->base.class = class;
    x->d = d;
    x->net = net;
    x->limits = *limits;
    x->planes = calloc(net->n_weights + 1, sizeof *x->planes);
    x->places = calloc(net->n_weights + 1, sizeof *x->places);
    int rc = x->planes && x->places ? 0 : err_nomem(err, "the executor");
    if (!rc) rc = pool_open(&x->pool, n_threads, err);
    if (!rc) rc = d->open(&x->g, limits->device, err);
    if (!rc && limits->cache_dir && d->cache) d->cache(x->g, limits->cache_dir);
    if (!rc) check_arithmetic(x);
    if (!rc && limits->capture)
        rc = d->capture ? d->capture(x->g, limits->capture, err)
                        : err_set(err, FLETCH_E_UNSUPPORTED,
                                  "backend '%s' does not support captures", class->name);
    if (!rc && limits->keep_alive && d->keep_alive)
        rc = d->keep_alive(x->g, limits->keep_alive, err);
    if (!rc) rc = open_memory(x, err);
    if (rc == FLETCH_E_NOMEM) rc = err->code = FLETCH_E_FIT;
    if (rc) {
        gpu_close(&x->base);
        return rc;
    }
    *out = &x->base;
    return 0;
}

/* ---- weights ---- */

struct packing {
    const struct planes *p;
    const struct weight *w;
    u64 first;
    u8 *q, *s;
};

static void pack_rows(void *ctx, u64 begin, u64 end)
{
    const struct packing *k = ctx;
    planes_pack(k->p, k->w, k->first + begin, k->first + end, k->q + begin * k->p->q_row * 16,
                k->s + begin * k->p->s_row);
}

static int gpu_weight(struct exec *exec, u32 id, struct err *err)
{
    struct gpu_exec *x = (struct gpu_exec *)exec;
    const struct planes *p = &x->planes[id];
    struct gpu_buf *to = x->chunks[x->places[id].chunk];
    u64 q_row = p->q_row * 16ull, per = q_row + p->s_row, q_at = x->places[id].at;
    u64 at_once = x->staging_n / per;
    u8 *staging = x->d->map(x->staging);
    if (!at_once)
        return err_set(err, FLETCH_E_LIMIT, "rows of tensor '%s' are longer than %d MB",
                       x->net->weights[id].name, GPU_STAGING >> 20);
    int rc = 0;
    for (u64 r = 0; r < p->n_rows && !rc; r += at_once) {
        u64 n = MIN(at_once, p->n_rows - r);
        struct packing k = {p, &x->net->weights[id], r, staging, staging + n * q_row};
        pool_run(x->pool, pack_rows, &k, n);
        rc = x->d->write(x->g, to, q_at + r * q_row, k.q, n * q_row, err);
        if (!rc && p->s_row)
            rc = x->d->write(x->g, to, q_at + p->bytes[0] + r * p->s_row, k.s, n * p->s_row, err);
    }
    return rc;
}

/* ---- programs ---- */

static int gpu_load(struct exec *exec, const struct program *p, u32 *handle, struct err *err)
{
    struct gpu_exec *x = (struct gpu_exec *)exec;
    struct gpu_sizes size;
    int rc = exec_check(x->base.class, p, err);
    if (!rc) rc = gpu_measure(&size, p, &x->limits, x->d, &x->kind, err);
    if (rc) return rc;
    CHECK(x->n_programs < MAX_PROGRAMS);
    struct gpu_program *prog = &x->programs[x->n_programs];
    *handle = x->n_programs++;
    prog->p = p;
    prog->n_lists = gpu_list_for(&x->limits, x->limits.max_rows) + 1;
    prog->lists = calloc((size_t)prog->n_lists * prog->n_lists, sizeof *prog->lists);
    if (!prog->lists) return err_nomem(err, "the program");
    prog->size = size;
    rc = x->d->alloc(x->g, &prog->mem[0], size.mem[0], GPU_DEVICE, err);
    if (!rc) rc = x->d->alloc(x->g, &prog->mem[1], size.mem[1], GPU_DEVICE, err);
    if (!rc) rc = x->d->alloc(x->g, &prog->scratch, size.scratch, GPU_DEVICE, err);
    if (!rc) rc = x->d->alloc(x->g, &prog->step, size.step, GPU_DEVICE, err);
    if (!rc && size.passed && x->d->reside(x->g)) {
        x->kind.resident = true;
        rc = x->d->alloc(x->g, &prog->passed, size.passed, GPU_DEVICE, err);
    }
    for (u32 i = 0; !rc && i < BERTHS; i++) {
        rc = x->d->alloc(x->g, &prog->upload[i], size.step, GPU_UPLOAD, err);
        if (!rc) rc = x->d->alloc(x->g, &prog->sampled[i], size.sampled, GPU_READBACK, err);
    }
    return rc;
}

static struct gpu_ref resolve(const struct gpu_exec *x, const struct gpu_program *prog,
                              const struct binding *b)
{
    switch (b->space) {
    case SPACE_STEP: return (struct gpu_ref){prog->step, b->offset};
    case SPACE_TABLES: return (struct gpu_ref){x->tables, b->offset};
    case SPACE_T: return (struct gpu_ref){prog->mem[ROWS_T], b->offset};
    case SPACE_R: return (struct gpu_ref){prog->mem[ROWS_R], b->offset};
    case SPACE_KV: return kept_ref(&x->kv, b->offset);
    case SPACE_STATE: return kept_ref(&x->state, b->offset);
    case SPACE_SCRATCH: return (struct gpu_ref){prog->scratch, b->offset};
    case SPACE_TICKETS: return (struct gpu_ref){x->tickets, b->offset};
    case SPACE_PASSED: return (struct gpu_ref){prog->passed, b->offset};
    default: break;
    }
    if (b->space == SPACE_CHUNK) return (struct gpu_ref){x->chunks[b->weight], 0};
    const struct weight_place *place = &x->places[b->weight];
    u64 plane = b->plane && x->planes[b->weight].bytes[1] ? x->planes[b->weight].bytes[0] : 0;
    return (struct gpu_ref){x->chunks[place->chunk], place->at + plane + b->offset};
}

/* The grid of a launch on this device. */
static void find_groups(const struct gpu_exec *x, const struct launch *l, u32 groups[3])
{
    u32 units = x->kind.caps.n_units, most = units * l->per_four / 4 / l->groups[2];
    memcpy(groups, l->groups, sizeof l->groups);
    if (l->per_four) groups[0] = MIN(MAX(groups[0], MIN(l->pieces, units)), MAX(most, 1));
}

/* A list for one row is never cut: no step is shorter, and it is done at every token. */
static int command_of(struct gpu_exec *x, const struct gpu_program *prog,
                      const struct list_kind *kind, const struct launch *l, struct gpu_command *c,
                      struct err *err)
{
    *c = (struct gpu_command){.kind = GPU_LAUNCH,
                              .after = l->after,
                              .work = kind->n_d + kind->n_p > 1 ? l->work : 0,
                              .threads = l->threads,
                              .tg_bytes = l->tg_bytes,
                              .n_bufs = l->n_bufs,
                              .n_args = l->n_args};
    find_groups(x, l, c->groups);
    memcpy(c->args, l->args, l->n_args);
    for (u32 i = 0; i < l->n_bufs; i++) c->bufs[i] = resolve(x, prog, &l->bufs[i]);
    return kernel_id(x, l->kernel, &c->kernel, err);
}

/* Where row `row` of an operand begins. */
static u64 row_at(const struct gpu_exec *x, const struct gpu_program *prog, struct operand o,
                  u32 row)
{
    const struct buffer *b = &prog->p->bufs[o.buf];
    u64 room = emit_room(&x->limits, b->rows);
    CHECK(row < room && b->first != UINT32_MAX);
    return (b->place * room + (u64)row * b->width + o.col) * sizeof(float);
}

/* The plan counts with size.lists bytes of lists. When one more would be too many, all are dropped:
 * those that are still in use are then recorded again. */
static int make_room(struct gpu_exec *x, struct gpu_program *prog, u64 n, struct err *err)
{
    if (prog->list_bytes + n <= prog->size.lists) return 0;
    int rc = settle(x, err);
    if (!rc) drop_lists(x, prog);
    return rc;
}

/* Records a part of a list. */
static int record(struct gpu_exec *x, struct gpu_program *prog, const struct list *list,
                  struct part *part, struct err *err)
{
    const struct step_layout *step = &list->step;
    struct emit e;
    int rc = emit_groups_of(&e, prog->p, &x->limits, list->kind, part->begin, part->end, err);
    if (rc) return rc;
    CHECK(e.scratch <= prog->size.scratch && e.passed <= prog->size.passed);
    u32 n = 0;
    struct gpu_command *c = calloc(e.n + 2, sizeof *c);
    if (!c) rc = err_nomem(err, "the program");
    if (c)
        c[n++] = (struct gpu_command){.kind = GPU_COPY,
                                      .dst = {prog->step, 0},
                                      .src = {prog->upload[part->berth], 0},
                                      .n_bytes = step->bytes[part->extra]};
    for (u32 i = 0; i < e.n && !rc; i++)
        rc = command_of(x, prog, &list->kind, &e.list[i], &c[n++], err);
    if (!rc && part->end == prog->p->n_groups && prog->p->sampled != NO_BUF)
        c[n++] = (struct gpu_command){
            .kind = GPU_COPY,
            .after = true,
            .dst = {prog->sampled[part->berth], 0},
            .src = {prog->mem[ROWS_R],
                    row_at(x, prog, (struct operand){prog->p->sampled, 0, 1}, 0)},
            .n_bytes = step->out_rows * sizeof(i32)};
    if (!rc) rc = make_room(x, prog, x->d->list_bytes(n), err);
    if (!rc) rc = x->d->record(x->g, &part->list, c, n, err);
    if (!rc) prog->list_bytes += x->d->list_bytes(n);
    free(e.list);
    free(c);
    return rc;
}

/* The part that is `like`; recorded now if it was not yet. */
static int part_of(struct gpu_exec *x, struct gpu_program *prog, struct list *list,
                   const struct part *like, struct part **out, struct err *err)
{
    for (struct part *p = *out = list->parts; p; p = *out = p->next)
        if (p->begin == like->begin && p->end == like->end && p->berth == like->berth &&
            p->extra == like->extra)
            return 0;
    struct part *p = malloc(sizeof *p);
    if (!p) return err_nomem(err, "the program");
    *p = *like;
    int rc = record(x, prog, list, p, err);
    if (rc) {
        free(p);
        return rc;
    }
    p->next = list->parts;
    *out = list->parts = p;
    return 0;
}

/* ---- steps ---- */

/* A list as a part of a berth's step. */
static int submit_list(struct gpu_exec *x, u32 berth, struct gpu_list *list, struct err *err)
{
    int rc = x->d->submit(x->g, list, err);
    if (!rc) x->berths[berth].n_lists++;
    return rc;
}

static int submit_edits(struct gpu_exec *x, u32 berth, const struct step *s, struct err *err)
{
    u32 *to = x->d->map(x->edits_upload[berth]);
    to[0] = s->n_edits;
    for (u32 i = 0; i < s->n_edits; i++) {
        to += 4;
        to[0] = s->edits[i].kind;
        to[1] = s->edits[i].dst;
        to[2] = s->edits[i].src;
    }
    return submit_list(x, berth, x->edit_list[berth], err);
}

/* The tables as they are: where a step has too many changes to carry them. */
static int write_tables(struct gpu_exec *x, const struct step *s, struct err *err)
{
    int rc = settle(x, err);
    if (rc) return rc;
    memcpy(x->known.known, s->tables, x->known.n_bytes);
    return x->d->write(x->g, x->tables, 0, x->known.known, x->known.n_bytes, err);
}

static bool is_whole(const struct gpu_program *prog, const struct step_shape *shape)
{
    return shape->group_begin == 0 && shape->group_end >= prog->p->n_groups;
}

static struct step_shape shape_of(const struct gpu_exec *x, const struct step *s)
{
    u32 n_d = x->order.n_d;
    return (struct step_shape){n_d, s->n_rows - n_d, s->group_begin, s->group_end};
}

/* The smallest list that holds a step's rows. */
static struct list *list_of(struct gpu_exec *x, struct gpu_program *prog, struct step_shape shape)
{
    bool whole = is_whole(prog, &shape);
    u32 n_d = whole ? shape.n_d : gpu_list_coarse(&x->limits, shape.n_d);
    u32 n_p = whole ? shape.n_p : gpu_list_coarse(&x->limits, shape.n_p);
    u32 d = gpu_list_for(&x->limits, n_d), p = gpu_list_for(&x->limits, n_p);
    struct list *list = &prog->lists[d * prog->n_lists + p];
    if (!list->step.rows) {
        u32 rows_d = gpu_list_rows(&x->limits, d), rows_p = gpu_list_rows(&x->limits, p);
        list->kind = x->kind;
        list->kind.n_d = rows_d;
        list->kind.n_p = rows_p;
        step_layout(&list->step, prog->p, &x->limits, MIN(rows_d + rows_p, x->limits.max_rows));
    }
    return list;
}

/* Until the lists of a berth's step are done; how that went stays there. */
static void wait_for(struct gpu_exec *x, struct berth *b)
{
    for (; b->n_lists; b->n_lists--) {
        struct err err;
        int rc = x->d->wait(x->g, &err);
        if (!rc || b->rc) continue;
        b->rc = rc;
        b->err = err;
    }
}

/* Until nothing runs any more; wait will find those steps done. */
static int settle(struct gpu_exec *x, struct err *err)
{
    int rc = 0;
    for (u32 i = 0; i < x->n_away; i++) {
        struct berth *b = &x->berths[(x->oldest + i) % BERTHS];
        wait_for(x, b);
        if (!b->rc || rc) continue;
        rc = b->rc;
        *err = b->err;
    }
    return rc;
}

static int submit_step(struct gpu_exec *x, u32 berth, const struct step *s, struct err *err)
{
    struct gpu_program *prog = &x->programs[x->berths[berth].handle];
    struct part *part,
        like = {.begin = s->group_begin, .end = MIN(s->group_end, prog->p->n_groups)};
    int rc = 0;
    step_order(&x->order, s);
    struct list *list = list_of(x, prog, shape_of(x, s));
    u8 *upload = x->d->map(prog->upload[berth]);
    if (!step_write(&list->step, s, &x->order, &x->known, upload, &like.extra)) {
        if ((rc = write_tables(x, s, err))) return rc;
        CHECK(step_write(&list->step, s, &x->order, &x->known, upload, &like.extra));
    }
    if (s->group_begin == 0 && s->n_edits && (rc = submit_edits(x, berth, s, err))) return rc;
    x->berths[berth].n_sampled = like.end == prog->p->n_groups ? s->n_out : 0;
    like.berth = berth;
    rc = part_of(x, prog, list, &like, &part, err);
    return rc ? rc : submit_list(x, berth, part->list, err);
}

/* In the first berth where there is a choice: each has lists of its own, made when needed. */
static int gpu_submit(struct exec *exec, u32 handle, const struct step *s, struct err *err)
{
    struct gpu_exec *x = (struct gpu_exec *)exec;
    CHECK(x->n_away < BERTHS);
    if (!x->n_away) x->oldest = 0;
    u32 berth = (x->oldest + x->n_away) % BERTHS;
    x->berths[berth] = (struct berth){.handle = handle};
    int rc = s->n_rows ? submit_step(x, berth, s, err) : 0;
    x->n_away++;
    if (rc) { /* its edits may be on their way */
        settle(x, &(struct err){0});
        x->n_away--;
    }
    return rc;
}

static int gpu_wait(struct exec *exec, struct err *err)
{
    struct gpu_exec *x = (struct gpu_exec *)exec;
    if (!x->n_away) return 0;
    struct berth *b = x->done = &x->berths[x->oldest];
    wait_for(x, b);
    x->oldest = (x->oldest + 1) % BERTHS;
    x->n_away--;
    if (b->rc) *err = b->err;
    return b->rc;
}

static int gpu_prepare(struct exec *exec, u32 handle, struct step_shape shape, struct err *err)
{
    struct gpu_exec *x = (struct gpu_exec *)exec;
    struct gpu_program *prog = &x->programs[handle];
    struct part *part,
        like = {.begin = shape.group_begin, .end = MIN(shape.group_end, prog->p->n_groups)};
    int rc = 0;
    if (!x->net->profile.bf16)
        shape = (struct step_shape){shape.n_d + shape.n_p, 0, like.begin, like.end};
    struct list *list = list_of(x, prog, shape);
    for (; !rc && like.berth < (is_whole(prog, &shape) ? BERTHS : 1); like.berth++)
        rc = part_of(x, prog, list, &like, &part, err);
    return rc;
}

/* ---- reading and writing buffers ---- */

static int move(struct gpu_exec *x, u32 handle, struct operand o, u32 row, u32 n_rows, float *dst,
                const float *src, struct err *err)
{
    CHECK(!x->n_away);
    const struct buffer *b = &x->programs[handle].p->bufs[o.buf];
    struct gpu_buf *mem = x->programs[handle].mem[b->rows];
    bool moved = b->rows == ROWS_T && x->order.moved, together = b->width == o.width && !moved;
    u32 n = together ? 1 : n_rows;
    u64 bytes = (u64)o.width * (together ? n_rows : 1) * sizeof(float);
    int rc = 0;
    for (u32 i = 0; i < n && n_rows && !rc; i++) {
        u32 r = row + i;
        if (moved && r < x->order.n) r = x->order.at[r];
        u64 at = row_at(x, &x->programs[handle], o, r), k = (u64)i * o.width;
        rc = dst ? x->d->read(x->g, mem, at, dst + k, bytes, err)
                 : x->d->write(x->g, mem, at, src + k, bytes, err);
    }
    return rc;
}

static int gpu_read(struct exec *exec, u32 handle, struct operand what, u32 row, u32 n_rows,
                    float *dst, struct err *err)
{
    struct gpu_exec *x = (struct gpu_exec *)exec;
    const struct gpu_program *prog = &x->programs[handle];
    if (what.buf == prog->p->sampled && x->done && x->done->handle == handle &&
        row + n_rows <= x->done->n_sampled) {
        const i32 *ids = x->d->map(prog->sampled[x->done - x->berths]);
        memcpy(dst, ids + row, n_rows * sizeof *ids);
        return 0;
    }
    return move(x, handle, what, row, n_rows, dst, NULL, err);
}

static int gpu_write(struct exec *exec, u32 handle, struct operand what, u32 row, u32 n_rows,
                     const float *src, struct err *err)
{
    return move((struct gpu_exec *)exec, handle, what, row, n_rows, NULL, src, err);
}

static int gpu_move(struct exec *exec, enum exec_part part, u32 index, u8 *dst, const u8 *src,
                    struct err *err)
{
    struct gpu_exec *x = (struct gpu_exec *)exec;
    return kept_move(part == PART_BLOCK ? &x->kv : &x->state, x->d, x->g, index, dst, src, err);
}

/* ---- what devices can tell ---- */

static void gpu_counters(const struct exec *exec, struct exec_counters *out)
{
    const struct gpu_exec *x = (const struct gpu_exec *)exec;
    struct gpu_counters c;
    x->d->counters(x->g, &c);
    *out = (struct exec_counters){.submissions = c.submissions,
                                  .waits = c.waits,
                                  .launches = c.dispatches,
                                  .copies = c.copies,
                                  .buffers_made = c.buffers_made,
                                  .kernels_made = c.kernels_made,
                                  .lists_made = c.lists_made,
                                  .bytes_allocated = c.bytes_allocated,
                                  .bytes_read = c.bytes_read,
                                  .barriers = c.barriers,
                                  .tg_bytes = c.tg_bytes,
                                  .command_buffers = c.command_buffers,
                                  .gpu_us = c.gpu_us,
                                  .longest_us = c.longest_us};
}

static bool gpu_memory(const struct exec *exec, u64 *allocated, u64 *recommended)
{
    const struct gpu_exec *x = (const struct gpu_exec *)exec;
    if (x->d->memory) x->d->memory(x->g, allocated, recommended);
    return x->d->memory != NULL;
}

static int gpu_profile(struct exec *exec, u32 handle, const struct step *s, double *us,
                       struct err *err)
{
    struct gpu_exec *x = (struct gpu_exec *)exec;
    struct gpu_program *prog = &x->programs[handle];
    if (!x->d->profile)
        return err_set(err, FLETCH_E_UNSUPPORTED, "backend '%s' does not support profiling",
                       x->d->name);
    int rc = gpu_submit(exec, handle, s, err); /* a first time, so that its list is there */
    if (!rc) rc = gpu_wait(exec, err);
    if (rc) return rc;
    struct list *list = list_of(x, prog, shape_of(x, s));
    struct part *whole = list->parts;
    while (whole && (whole->begin || whole->end < prog->p->n_groups)) whole = whole->next;
    CHECK(whole);
    struct emit e; /* anew: which launch is of which op */
    rc = emit_program(&e, prog->p, &x->limits, list->kind, err);
    if (rc) return rc;
    double *each = calloc(e.n + 2, sizeof *each);
    if (!each) rc = err_nomem(err, "the profile");
    if (!rc) rc = x->d->profile(x->g, whole->list, each, err);
    memset(us, 0, prog->p->n_groups * sizeof *us);
    for (u32 i = 0; i < e.n && !rc; i++) us[e.list[i].of] += each[1 + i];
    free(e.list);
    free(each);
    return rc;
}

bool gpu_look(const struct gpu_driver *d, u32 device, struct gpu_info *out)
{
    struct gpu *g;
    struct err ignored = {0};
    if (gpu_driver_absent(d) || d->open(&g, device, &ignored)) return false;
    d->info(g, out);
    d->close(g);
    return true;
}

/* When the device can't be opened, open will say why. */
static struct exec_device look(const struct exec_class *class, u32 device)
{
    struct gpu_info info;
    if (!gpu_look(class->driver, device, &info))
        return (struct exec_device){.available = UINT64_MAX};
    return (struct exec_device){true, info.memory_free, info.caps};
}

/* ---- layouts ---- */

void gpu_ablate(struct exec *exec, bool softmax)
{
    struct gpu_exec *x = (struct gpu_exec *)exec;
    x->kind.ablation = softmax ? ABLATION_SOFTMAX : ABLATION_SCORES;
    gpu_forget_lists(exec);
    for (u32 i = 0; i < x->n_programs; i++)
        for (u32 j = 0; j < x->programs[i].n_lists * x->programs[i].n_lists; j++)
            x->programs[i].lists[j].kind.ablation = x->kind.ablation;
}

struct layouts *gpu_layouts(struct exec *exec)
{
    return &((struct gpu_exec *)exec)->layouts;
}

void gpu_forget_lists(struct exec *exec)
{
    struct gpu_exec *x = (struct gpu_exec *)exec;
    CHECK(!x->n_away);
    for (u32 i = 0; i < x->n_programs; i++) drop_lists(x, &x->programs[i]);
}

void gpu_device(struct exec *exec, struct gpu_info *out)
{
    struct gpu_exec *x = (struct gpu_exec *)exec;
    x->d->info(x->g, out);
}

int gpu_sites(struct exec *exec, u32 handle, const struct step *s, struct gpu_site **out, u32 *n,
              struct err *err)
{
    struct gpu_exec *x = (struct gpu_exec *)exec;
    struct gpu_program *prog = &x->programs[handle];
    struct emit e; /* anew: layouts may have changed since the list was recorded */
    *n = 0;
    step_order(&x->order, s);
    const struct list *list = list_of(x, prog, shape_of(x, s));
    int rc = emit_program(&e, prog->p, &x->limits, list->kind, err);
    if (rc) return rc;
    struct gpu_site *sites = *out = calloc(e.n + 1, sizeof *sites);
    if (!sites) rc = err_nomem(err, "the sites");
    for (u32 i = 0; i < e.n && !rc; i++) {
        const struct launch *l = &e.list[i];
        u32 j = 0;
        if (!l->choice.site.kernel[0]) continue;
        while (j < *n && !site_is(&sites[j].choice.site, &l->choice.site)) j++;
        if (j == *n) {
            sites[(*n)++] =
                (struct gpu_site){.choice = l->choice, .first_group = l->of, .threads = l->threads};
            find_groups(x, l, sites[j].groups);
        }
        sites[j].last_group = l->of;
        sites[j].n_launches++;
    }
    free(e.list);
    return rc;
}

/* ---- one class for each driver ---- */

#define GPU_CLASS(driver_name, rounds_to_bf16, rows)                                              \
    {                                                                                             \
        .name = #driver_name, .driver = &driver_##driver_name, .rules = gpu_rules,                \
        .n_rules = GPU_RULES, .kernels = emit_features, .kv = CACHE_F16, .int8 = true,            \
        .bf16 = rounds_to_bf16, .has_bf16 = true, .max_rows = MAX_ROWS, .chunk = rows,            \
        .queues = true, .open = gpu_open, .close = gpu_close, .weight = gpu_weight,               \
        .load = gpu_load, .prepare = gpu_prepare, .submit = gpu_submit, .wait = gpu_wait,         \
        .read = gpu_read, .write = gpu_write, .move = gpu_move, .weight_bytes = planes_bytes,     \
        .bytes = gpu_bytes, .open_bytes = gpu_open_bytes, .look = look, .launches = gpu_launches, \
        .scratch = gpu_scratch, .counters = gpu_counters, .memory = gpu_memory,                   \
        .profile = gpu_profile,                                                                   \
    }

static const struct exec_class classes[] = {
    GPU_CLASS(cuda, true, CUDA_ROWS), GPU_CLASS(metal, true, METAL_ROWS), GPU_CLASS(emu, false, 0),
    GPU_CLASS(emu_checked, false, 0), GPU_CLASS(emu_metal, false, 0),
};

const struct exec_class *gpu_class(const char *name)
{
    for (u32 i = 0; i < ARRAY_LEN(classes); i++)
        if (strcmp(classes[i].name, name) == 0) return &classes[i];
    return NULL;
}

const struct gpu_driver *gpu_driver_of(const struct exec_class *class)
{
    return class ? class->driver : NULL;
}

const char *gpu_absent(const char *name)
{
    return gpu_driver_absent(gpu_driver_of(gpu_class(name)));
}
