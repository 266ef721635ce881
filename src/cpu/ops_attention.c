/* The cache and attention over it: items are rows and heads. */
#include <math.h>
#include <string.h>

#include "cpu/cpu_internal.h"

void cpu_op_kv_store(const struct cpu_run *run, const struct op *op)
{
    const struct hostmem *h = &run->x->host;
    u32 layer = op->p.attn.kv, width = op->in[0].width, begin, end;
    share(run, run->s->n_rows, &begin, &end);
    for (u32 t = begin; t < end; t++) {
        const struct row *r = &run->s->rows[t];
        u8 *row = hostmem_kv_row(h, run->s, layer, r->slot, r->pos);
        hostmem_kv_put(h, at(run, op->in[0], t), row, width);
        if (op->n_in > 1)
            hostmem_kv_put(h, at(run, op->in[1], t), row + hostmem_kv_bytes(h, width),
                           op->in[1].width);
    }
}

/* One row's heads [h0, h0 + n) that share a key head, block by block of the cache. */
static void attend_group(const struct cpu_run *run, const struct op *op, u32 t, u32 g, u32 h0,
                         u32 n)
{
    const struct row *r = &run->s->rows[t];
    const struct kv_layer *l = &run->x->host.net->kv[op->p.attn.kv];
    u32 kw = op->p.attn.k_width, vw = op->p.attn.v_width;
    size_t size = hostmem_kv_bytes(&run->x->host, 1);
    bool latent = op->kind == OP_LATENT_ATTENTION;
    for (u32 h = h0; h < h0 + n; h++) {
        struct cpu_head head = {-INFINITY, 0, at(run, op->out[0], t) + (size_t)h * vw};
        memset(head.acc, 0, vw * sizeof *head.acc);
        for (u32 pos = 0; pos <= r->pos; pos += BLOCK) {
            u8 *row = hostmem_kv_row(&run->x->host, run->s, op->p.attn.kv, r->slot, pos);
            struct cpu_block b = {.k = row + (size_t)g * kw * size,
                                  .v = latent ? row
                                              : row + ((size_t)l->k_width + (size_t)g * vw) * size,
                                  .stride = (l->k_width + l->v_width) * size,
                                  .n_tokens = MIN((u32)BLOCK, r->pos + 1 - pos),
                                  .k_width = kw,
                                  .v_width = vw,
                                  .type = run->x->host.net->profile.kv,
                                  .scale = op->p.attn.scale};
            run->x->k->rows->attend(&head, at(run, op->in[0], t) + (size_t)h * kw, &b);
        }
        for (u32 i = 0; i < vw; i++) head.acc[i] /= head.sum;
    }
}

void cpu_op_attention(const struct cpu_run *run, const struct op *op, u32 i)
{
    u32 groups = op->p.attn.n_kv_heads, per = op->p.attn.n_heads / groups, begin, end;
    if (groups == 1) { /* nothing shared to keep together: spread the heads */
        groups = op->p.attn.n_heads;
        per = 1;
    }
    u32 n = run->s->n_rows * groups;
    while (take(run, i, n, 1, &begin, &end))
        for (u32 item = begin; item < end; item++) {
            u32 t = item / groups, g = item % groups;
            attend_group(run, op, t, op->p.attn.n_kv_heads == 1 ? 0 : g, g * per, per);
        }
}
