#include "gpu/gpu_memory.h"

#include "gpu/gpu_lists.h"

u32 gpu_stretches(const struct net *net, const struct exec_limits *limits, bool blocks,
                  struct stretch *out, u32 *n_bufs)
{
    u32 n = 0;
    u64 begin = 0, n_items = blocks ? (u64)limits->n_blocks : limits->n_slots;
    *n_bufs = 1;
    for (u32 i = 0; i < (blocks ? net->n_kv : net->n_states); i++) {
        struct kv_plane planes[KV_PLANES];
        u64 bytes, at = blocks ? 0 : emit_state_at(net, limits, i, &bytes);
        u32 n_planes = blocks ? emit_kv_planes(net, limits, i, planes) : 1;
        for (u32 j = 0; j < n_planes; j++, n++) {
            struct stretch s = {at, (u64)(blocks ? 0 : net->states[i].width) * sizeof(float), 0};
            if (blocks) s = (struct stretch){planes[j].at, planes[j].row * limits->block_tokens, 0};
            u64 from = emit_buffer_begin(limits, begin, s.at, s.item * n_items);
            *n_bufs += from > begin;
            s.buf = *n_bufs - 1;
            begin = from;
            if (out) out[n] = s;
        }
    }
    return n;
}

u64 gpu_kept_bytes(const struct net *net, const struct exec_limits *limits, bool blocks)
{
    u64 end = 0, n;
    struct kv_plane planes[KV_PLANES];
    if (blocks && net->n_kv) {
        u32 last = emit_kv_planes(net, limits, net->n_kv - 1, planes) - 1;
        end = planes[last].at + planes[last].row * limits->n_blocks * limits->block_tokens;
    } else if (!blocks && net->n_states) {
        end = emit_state_at(net, limits, net->n_states - 1, &n) + n;
    }
    return MAX(ROUND_UP(end, 256), 1);
}

u64 gpu_layers_bytes(u32 n_stretches)
{
    return n_stretches * 8ull + 1;
}

u64 gpu_edit_bytes(const struct exec_limits *limits)
{
    return (1 + (u64)limits->max_rows + limits->n_slots) * 16;
}

u64 gpu_tables_bytes(const struct exec_limits *limits)
{
    return (u64)limits->n_slots * (limits->max_pos / limits->block_tokens + 1) * sizeof(u32);
}

u64 gpu_staging_bytes(const struct net *net)
{
    u64 most = 1;
    for (u32 i = 0; i < net->n_weights; i++) {
        struct planes p;
        planes_plan(&p, &net->weights[i]);
        most = MAX(most, p.n_rows * (p.q_row * 16ull + p.s_row));
    }
    return MIN(most, (u64)GPU_STAGING);
}

u64 gpu_open_bytes(const struct exec_class *class, const struct net *net,
                   const struct exec_limits *limits)
{
    const struct gpu_driver *d = class->driver;
    u32 n_stretches[2], n_bufs, n_edits = 1; /* commands of their list: a copy, and one a buffer */
    for (u32 i = 0; i < 2; i++) {
        n_stretches[i] = gpu_stretches(net, limits, i, NULL, &n_bufs);
        if (n_stretches[i]) n_edits += n_bufs;
    }
    u64 sum = (d ? d->lists_base : 0) + gpu_tables_bytes(limits) + TICKETS * sizeof(u32) +
              gpu_edit_bytes(limits) + GPU_BERTHS * gpu_list_bytes(d, n_edits);
    if (gpu_is_unified(d)) sum += gpu_staging_bytes(net) + GPU_BERTHS * gpu_edit_bytes(limits);
    u64 counted[2] = {exec_state_bytes(net) * limits->n_slots,
                      exec_kv_bytes(net) * limits->n_blocks * limits->block_tokens};
    for (u32 i = 0; i < 2; i++)
        sum += gpu_layers_bytes(n_stretches[i]) + gpu_kept_bytes(net, limits, i) - counted[i];
    return sum;
}
