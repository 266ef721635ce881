#include "core/exec.h"

static int check_op(const struct exec_class *class, const struct op *op, struct err *err)
{
    u64 lacks = op_features(op) & ~class->kernels[op->kind];
    if (!lacks) return 0;
    u32 f = 0;
    while (!(lacks >> f & 1)) f++;
    return err_set(err, FLETCH_E_UNSUPPORTED, "op '%s' of layer %d: %s has no kernel for %s",
                   op_info[op->kind].name, op->layer, class->name, feature_name(f));
}

int exec_check(const struct exec_class *class, const struct program *p, struct err *err)
{
    int rc = 0;
    for (u32 i = 0; i < p->n_ops && !rc; i++) rc = check_op(class, &p->ops[i], err);
    return rc;
}

static bool is_block(enum qtype type)
{
    return type == QT_Q8_0 || type == QT_Q4_0;
}

struct kv_row exec_kv_row(const struct net *net, u32 layer)
{
    const struct kv_layer *l = &net->kv[layer];
    enum qtype key = cache_info[net->profile.kv].key, value = cache_info[net->profile.kv].value;
    struct kv_row row = {.part = {{key, l->k_width, 0}, {value, l->v_width, 0}}};
    u64 bytes[2] = {0};
    if (l->n_rope) {
        row.part[0].width = l->k_width - l->n_rope;
        row.part[1].width = l->n_rope;
        row.part[1].type = key == QT_Q4_0 ? QT_Q8_0 : key; /* positions bear less rounding */
    } else if (key == QT_Q4_0 && (l->head & (l->head - 1)) == 0) {
        row.rotated = l->head;
    }
    for (u32 i = 0; i < 2; i++) CHECK(quant_bytes(row.part[i].type, row.part[i].width, &bytes[i]));
    row.part[1].at = bytes[0];
    row.bytes = bytes[0] + bytes[1];
    return row;
}

int exec_kv_check(const struct net *net, struct err *err)
{
    const struct cache_info *kv = &cache_info[net->profile.kv];
    if (!is_block(kv->key) && !is_block(kv->value)) return 0;
    for (u32 i = 0; i < net->n_kv; i++) {
        const struct kv_layer *l = &net->kv[i];
        if (l->n_rope && kv->key != kv->value)
            return err_set(err, FLETCH_E_ARG,
                           "KV type %s needs separate keys and values; this model's cache stores "
                           "them together",
                           kv->name);
        u32 v_head = l->head ? l->v_width / (l->k_width / l->head) : 0;
        if ((l->k_width - l->n_rope) % 32 || l->n_rope % 32 || v_head % 32 || l->head % 32)
            return err_set(
                err, FLETCH_E_ARG,
                "KV type %s requires a head width that is a multiple of 32; this model's "
                "is %u, so use KV type f16 or f32",
                kv->name,
                l->n_rope     ? l->n_rope
                : v_head % 32 ? v_head
                              : l->head);
    }
    return 0;
}

u64 exec_kv_bytes(const struct net *net)
{
    u64 sum = 0;
    for (u32 i = 0; i < net->n_kv; i++) sum += exec_kv_row(net, i).bytes;
    return sum;
}

u64 exec_state_bytes(const struct net *net)
{
    u64 sum = 0;
    for (u32 i = 0; i < net->n_states; i++) sum += (u64)net->states[i].width * sizeof(float);
    return sum;
}

u64 exec_part_bytes(const struct net *net, const struct exec_limits *limits, enum exec_part part)
{
    return part == PART_BLOCK ? exec_kv_bytes(net) * limits->block_tokens : exec_state_bytes(net);
}
