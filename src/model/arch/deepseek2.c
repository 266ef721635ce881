/* DeepSeek V2-Lite, V3 and R1, Kimi K2, GLM-4.7-Flash, Mistral 4 (whose queries grow): latent
 * attention in absorbed form, so the cache holds one row of kv_lora + rope values per token for all
 * heads; mixture of experts after the first dense blocks; in some, one MTP block that predicts the
 * next-but-one token. */
#include <math.h>

#include "model/arch/dense.h"

static int refuse(struct build *b, const char *why)
{
    return err_set(b->err, FLETCH_E_UNSUPPORTED,
                   "model '%s' of architecture %s is not supported: %s",
                   b->hp->name[0] ? b->hp->name : "(unnamed)", b->hp->arch, why);
}

static int check_kind(struct build *b)
{
    const struct hparams *hp = b->hp;
    if (!hp->head_k_mla || !hp->head_v_mla)
        return refuse(
            b, "its kv_b tensor is not split by heads, as in old files; convert the model again");
    if (hp->rope_scaling == SCALING_YARN && hp->yarn_log_mul == 0)
        return refuse(b, "yarn rope scaling without rope.scaling.yarn_log_multiplier");
    if (hp->n_mtp > 1) return refuse(b, "more than one MTP block");
    return 0;
}

static struct operand inner_norm(struct build *b, const char *label, struct operand x, u32 l,
                                 const char *name)
{
    u32 w = bind_vector(&b->bind, x.width, "blk.%u.%s", l, name);
    return prog_norm(
        b->p, label, x,
        (struct norm_spec){.kind = NORM_RMS, .eps = b->hp->eps_mla, .w = w, .b = NO_WEIGHT});
}

struct operand part_latent(struct build *b, struct operand x, u32 l)
{
    const struct hparams *hp = b->hp;
    struct bind *bind = &b->bind;
    struct program *p = b->p;
    u32 d = hp->d_model, H = hp->n_heads, c = hp->kv_lora, rot = hp->n_rot;
    u32 wide = c + rot, qk = hp->head_k_mla, nope = qk - rot, v = hp->head_v_mla;
    u32 kv = net_kv(p->net, wide, 0);

    struct operand h = part_norm(b, "attn_norm", x, bind_vector(bind, d, "blk.%u.attn_norm", l));
    u32 wq = hp->q_lora ? bind_matrix(bind, d, hp->q_lora, "blk.%u.attn_q_a", l)
                        : bind_matrix(bind, d, H * qk, "blk.%u.attn_q", l);
    u32 wkv = bind_matrix(bind, d, wide, "blk.%u.attn_kv_a_mqa", l);
    struct operand q = prog_matmul(p, hp->q_lora ? "q_a" : "q", h, wq, NO_WEIGHT);
    struct operand u = prog_matmul(p, "kv_a", h, wkv, NO_WEIGHT); /* [c' | kr] */
    if (hp->q_lora) {
        q = inner_norm(b, "q_a_norm", q, l, "attn_q_a_norm");
        wq = bind_matrix(bind, hp->q_lora, H * qk, "blk.%u.attn_q_b", l);
        q = prog_matmul(p, "q", q, wq, NO_WEIGHT); /* [H][nope | rope] */
    }

    struct operand absorbed = prog_buf(p, "q_absorbed", H * wide); /* [H][k_bᵀ·nope | rope] */
    struct operand still = q;
    u32 still_width = qk;
    if (hp->query_rope == ROPE_GROWING) {
        still = prog_buf(p, "q_grown", H * nope);
        still_width = nope;
        prog_rope_by_to(p, ROPE_NORM, ROPE_STILL, H, nope, still, nope, q, qk);
    }
    prog_matmul_heads_to(p, absorbed, wide, still, still_width,
                         bind_slices(bind, nope, c, H, "blk.%u.attn_k_b", l));
    prog_rope_by_to(p, ROPE_NORM, hp->query_rope, H, rot, prog_cols(p, absorbed, c, H * wide - c),
                    wide, prog_cols(p, q, nope, H * qk - nope), qk);

    struct operand latent = prog_buf(p, "latent", wide); /* [norm(c') | rope(kr)] */
    u32 wn = bind_vector(bind, c, "blk.%u.attn_kv_a_norm", l);
    prog_norm_to(p, prog_cols(p, latent, 0, c), prog_cols(p, u, 0, c),
                 (struct norm_spec){.kind = NORM_RMS, .eps = hp->eps_mla, .w = wn, .b = NO_WEIGHT});
    prog_rope_to(p, ROPE_NORM, 1, rot, prog_cols(p, latent, c, rot), rot, prog_cols(p, u, c, rot),
                 rot);
    prog_kv_store(p, kv, latent, (struct operand){.buf = NO_BUF});
    float m = 1 + (hp->rope_scaling == SCALING_YARN ? hp->yarn_log_mul * logf(hp->rope_factor) : 0);
    struct operand z =
        prog_latent_attention(p, "attn", kv, H, c, absorbed, m * m / sqrtf((float)qk));
    struct operand o = prog_buf(p, "attn_v", H * v);
    prog_matmul_heads_to(p, o, v, z, c, bind_slices(bind, c, v, H, "blk.%u.attn_v_b", l));
    u32 wo = bind_matrix(bind, H * v, d, "blk.%u.attn_output", l);
    return prog_add(p, "attn_residual", x, prog_matmul(p, "attn_out", o, wo, NO_WEIGHT));
}

static struct operand block(struct build *b, struct operand x, u32 l)
{
    const struct hparams *hp = b->hp;
    x = part_latent(b, x, l);
    u32 wn = bind_vector(&b->bind, hp->d_model, "blk.%u.ffn_norm", l);
    struct operand h = part_norm(b, "ffn_norm", x, wn);
    return prog_add(b->p, "block_out", x, dense_gated_experts(b, h, l));
}

int arch_deepseek2(struct build *b)
{
    const struct hparams *hp = b->hp;
    int rc = check_kind(b);
    if (rc) return rc;
    u32 we = bind_matrix(&b->bind, hp->d_model, hp->n_vocab, "token_embd");
    struct operand x = prog_embed(b->p, we);
    for (u32 l = 0; l < hp->n_layers; l++) {
        b->p->layer = (int)l;
        x = block(b, x, l);
    }
    b->p->layer = -1;
    struct operand hidden =
        part_norm(b, "output_norm", x, bind_vector(&b->bind, hp->d_model, "output_norm"));
    rc = part_output(b, hidden, part_head(b), NO_WEIGHT);
    return rc || !b->mtp ? rc : part_mtp(b, hp->n_layers, block);
}
