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

u64 gpu_metal_list_bytes(u32 n)
{
    const u64 head = 3 * sizeof(u64);
    return head + n * sizeof(struct gpu_command) + MAX(n, 1) * (u64)GPU_ARGS_PITCH;
}

u32 gpu_list_part(const struct gpu_command *c, u32 begin, u32 n, double most)
{
    double sum = 0;
    u32 end = begin;
    while (end < n && (end == begin || sum + c[end].work <= most)) sum += c[end++].work;
    return end;
}

u64 gpu_list_bytes(const struct gpu_driver *d, u32 n)
{
    return d ? d->list_bytes(n) : gpu_metal_list_bytes(n);
}

bool gpu_is_unified(const struct gpu_driver *d)
{
    return !d || d->unified;
}

struct device_caps gpu_least(const struct gpu_driver *d)
{
    return d ? d->least : (struct device_caps)METAL_CAPS;
}

/* How many lists for whole steps there is room for. There may be one for any two numbers of rows,
 * with edits of logits or without, for each of the steps that may be on their way. */
static u64 count_lists(const struct program *p, const struct exec_limits *limits)
{
    u64 n = gpu_list_for(limits, limits->max_rows) + 1;
    u64 possible = 2ull * GPU_BERTHS * (p->net->profile.bf16 ? n * n : n);
    u64 most = MIN((u64)limits->n_slots * GPU_SLOT_LISTS, (u64)GPU_MAX_LISTS);
    return MIN(possible, most);
}

/* What groups exchange where one row has a launch whose groups wait for each other. */
static int measure_passed(u64 *out, const struct program *p, const struct exec_limits *limits,
                          const struct gpu_driver *d, struct list_kind kind, struct err *err)
{
    struct emit e;
    *out = 0;
    if (!d || !d->reside || !kind.caps.bulk) return 0;
    kind.n_d = 1;
    kind.resident = true;
    int rc = emit_program(&e, p, limits, kind, err);
    if (rc) return rc;
    *out = e.passed;
    free(e.list);
    return 0;
}

int gpu_measure(struct gpu_sizes *out, const struct program *p, const struct exec_limits *limits,
                const struct gpu_driver *d, const struct list_kind *on, struct err *err)
{
    u32 last = gpu_list_for(limits, limits->max_rows), most = gpu_list_rows(limits, last);
    struct list_kind kind = {.caps = gpu_least(d)}; /* the most scratch */
    kind.caps.native = on->caps.native;
    kind.caps.bulk = on->caps.bulk;
    kind.caps.buffer = on->caps.buffer;
    kind.caps.joins = false; /* the longer list */
    u32 n_commands = 0;
    *out = (struct gpu_sizes){.sampled = emit_room(limits, ROWS_R) * sizeof(i32)};
    for (enum rows rows = ROWS_T; rows <= ROWS_R; rows++)
        out->mem[rows] = MAX(p->n_cols[rows], 1) * emit_room(limits, rows) * sizeof(float);
    /* rows of class P need the more the more there are of them; without any, other kernels run */
    u32 n_kinds = p->net->profile.bf16 ? 2 : 1;
    for (u32 i = 0; i < (last + 1) * n_kinds; i++) {
        struct emit e;
        kind.n_d = gpu_list_rows(limits, i / n_kinds);
        kind.n_p = i % n_kinds ? most : 0;
        if (kind.n_d + kind.n_p == 0) continue;
        int rc = emit_program(&e, p, limits, kind, err);
        if (rc) return rc;
        free(e.list);
        out->scratch = MAX(out->scratch, MAX(e.scratch, 256));
        out->step = MAX(out->step, e.step.bytes[1]);
        n_commands = MAX(n_commands, e.n + 2); /* the step comes, and what was sampled goes */
    }
    out->lists = count_lists(p, limits) * gpu_list_bytes(d, n_commands);
    return measure_passed(&out->passed, p, limits, d, *on, err);
}

u64 gpu_bytes(const struct exec_class *class, const struct program *p,
              const struct exec_limits *limits)
{
    const struct gpu_driver *d = class->driver;
    struct gpu_sizes size;
    struct err ignored = {0};
    struct list_kind kind = {.caps = limits->found.caps};
    if (!limits->found.known) kind.caps = d ? d->most : gpu_least(d);
    if (gpu_measure(&size, p, limits, d, &kind, &ignored)) return 0;
    u64 host = gpu_is_unified(d) ? GPU_BERTHS * (size.step + size.sampled) : 0;
    return size.mem[0] + size.mem[1] + size.scratch + size.step + size.passed + size.lists + host;
}

int gpu_launches(const struct exec_class *class, const struct program *p,
                 const struct exec_limits *limits, u32 n_rows, u32 n_units, u32 *by_group,
                 u32 *total, struct err *err)
{
    const struct gpu_driver *d = class->driver;
    struct emit e;
    bool all_at_once = n_units && d && d->reside;
    struct list_kind kind = {.n_d = gpu_list_rows(limits, gpu_list_for(limits, n_rows)),
                             .caps = all_at_once ? d->most : gpu_least(d),
                             .resident = all_at_once};
    kind.caps.n_units = n_units;
    int rc = emit_program(&e, p, limits, kind, err);
    if (rc) return rc;
    *total = e.n;
    memset(by_group, 0, p->n_groups * sizeof *by_group);
    for (u32 i = 0; i < e.n; i++) by_group[e.list[i].of]++;
    free(e.list);
    return 0;
}

int gpu_scratch(const struct exec_class *class, const struct program *p,
                const struct exec_limits *limits, u64 *by_group, struct err *err)
{
    const struct gpu_driver *d = class->driver;
    struct emit e;
    u32 rows = gpu_list_rows(limits, gpu_list_for(limits, limits->max_rows));
    struct list_kind kind = {.caps = gpu_least(d)};
    kind.caps.native = d && d->most.native;
    if (p->net->profile.bf16)
        kind.n_p = rows;
    else
        kind.n_d = rows;
    int rc = emit_program(&e, p, limits, kind, err);
    if (rc) return rc;
    memset(by_group, 0, p->n_groups * sizeof *by_group);
    for (u32 i = 0; i < e.n; i++)
        for (u32 j = 0; j < e.list[i].n_bufs; j++) {
            const struct binding *b = &e.list[i].bufs[j];
            u64 *most = &by_group[e.list[i].of];
            if (b->space == SPACE_SCRATCH) *most = MAX(*most, b->offset + b->n);
        }
    free(e.list);
    return 0;
}
