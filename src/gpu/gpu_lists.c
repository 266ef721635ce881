#include "gpu/gpu_lists.h"

#include <stdlib.h>
#include <string.h>

u32 gpu_list_rows(const struct exec_limits *limits, u32 list)
{
    u32 rows = list <= 7 ? (1u << list) / 2 : (list - 6) * 64;
    return MIN(rows, limits->max_rows);
}

u32 gpu_list_for(const struct exec_limits *limits, u32 n_rows)
{
    u32 list = 0;
    while (gpu_list_rows(limits, list) < n_rows) list++;
    return list;
}

u32 gpu_list_coarse(const struct exec_limits *limits, u32 n_rows)
{
    u32 n = 1;
    while (n < n_rows) n *= 2;
    if (n / 4 * 3 >= n_rows) n = n / 4 * 3;
    return MIN(n, limits->max_rows);
}

int gpu_measure(struct gpu_sizes *out, const struct program *p, const struct exec_limits *limits,
                struct list_kind kind, struct err *err)
{
    u32 last = gpu_list_for(limits, limits->max_rows), most = gpu_list_rows(limits, last);
    *out = (struct gpu_sizes){0};
    for (enum rows rows = ROWS_T; rows <= ROWS_R; rows++)
        out->mem[rows] = MAX(p->n_cols[rows], 1) * emit_room(limits, rows) * sizeof(float);
    /* rows of class P need the more the more there are of them */
    for (u32 i = 0; i <= last; i++) {
        struct emit e;
        kind.n_d = gpu_list_rows(limits, i);
        kind.n_p = p->net->profile.bf16 ? most : 0;
        if (kind.n_d + kind.n_p == 0) continue;
        int rc = emit_program(&e, p, limits, kind, err);
        if (rc) return rc;
        free(e.list);
        out->scratch = MAX(out->scratch, MAX(e.scratch, 256));
        out->step = MAX(out->step, e.step.bytes[1]);
    }
    return 0;
}

u64 gpu_bytes(const struct program *p, const struct exec_limits *limits)
{
    struct gpu_sizes size;
    struct err ignored = {0};
    struct list_kind all = {.native = true, .bulk = true};
    if (gpu_measure(&size, p, limits, all, &ignored)) return 0;
    return size.mem[0] + size.mem[1] + size.scratch + size.step +
           ROUND_UP((u64)limits->n_slots * (limits->max_pos / limits->block_tokens + 1) * 4, 256);
}

int gpu_launches(const struct gpu_driver *d, const struct program *p,
                 const struct exec_limits *limits, u32 n_rows, u32 n_units, u32 *by_op, u32 *total,
                 struct err *err)
{
    struct emit e;
    bool hopper = n_units && d && d->reside;
    struct list_kind kind = {.n_d = gpu_list_rows(limits, gpu_list_for(limits, n_rows)),
                             .native = hopper,
                             .bulk = hopper,
                             .resident = hopper,
                             .clusters = hopper,
                             .joins = d && d->joins,
                             .walks = hopper,
                             .n_units = n_units};
    int rc = emit_program(&e, p, limits, kind, err);
    if (rc) return rc;
    *total = e.n;
    memset(by_op, 0, p->n_ops * sizeof *by_op);
    for (u32 i = 0; i < e.n; i++) by_op[e.list[i].op]++;
    free(e.list);
    return 0;
}

int gpu_scratch(const struct gpu_driver *d, const struct program *p,
                const struct exec_limits *limits, u64 *by_op, struct err *err)
{
    struct emit e;
    u32 rows = gpu_list_rows(limits, gpu_list_for(limits, limits->max_rows));
    struct list_kind kind = {.native = d == &driver_cuda, .joins = d && d->joins};
    if (p->net->profile.bf16)
        kind.n_p = rows;
    else
        kind.n_d = rows;
    int rc = emit_program(&e, p, limits, kind, err);
    if (rc) return rc;
    memset(by_op, 0, p->n_ops * sizeof *by_op);
    for (u32 i = 0; i < e.n; i++)
        for (u32 j = 0; j < e.list[i].n_bufs; j++) {
            const struct binding *b = &e.list[i].bufs[j];
            u64 *most = &by_op[e.list[i].op];
            if (b->space == SPACE_SCRATCH) *most = MAX(*most, b->offset + b->n);
        }
    free(e.list);
    return 0;
}
