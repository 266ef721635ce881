/* The decoder that most architectures have in common. */
#include "model/arch/dense.h"

struct operand dense_ffn(struct build *b, struct operand h, u32 l)
{
    return part_swiglu(b, h, l, b->hp->block_ff[l], "");
}

struct operand dense_experts(struct build *b, struct operand h, u32 l)
{
    return part_experts(
        b, h, l,
        (struct expert_spec){.kind = ROUTE_SOFTMAX, .bias = NO_WEIGHT, .scales = NO_WEIGHT});
}

struct operand dense_sigmoid_experts(struct build *b, struct operand h, u32 l)
{
    const struct hparams *hp = b->hp;
    if (l < hp->n_dense_layers) return dense_ffn(b, h, l);
    u32 bias = bind_vector(&b->bind, hp->n_experts, "blk.%u.exp_probs_b.bias", l);
    u32 shared = hp->n_ff_shared ? hp->n_ff_shared : hp->n_ff_expert * hp->n_shared_experts;
    return part_experts(
        b, h, l,
        (struct expert_spec){
            .kind = ROUTE_SIGMOID, .bias = bias, .scales = NO_WEIGHT, .n_shared = shared});
}

struct operand dense_gated_experts(struct build *b, struct operand h, u32 l)
{
    const struct hparams *hp = b->hp;
    if (l < hp->n_dense_layers) return dense_ffn(b, h, l);
    u32 bias = hp->expert_gating == 2
                   ? bind_vector(&b->bind, hp->n_experts, "blk.%u.exp_probs_b.bias", l)
                   : bind_vector_opt(&b->bind, hp->n_experts, "blk.%u.exp_probs_b.bias", l);
    /* files that don't say it: only sigmoid routing had a bias then, but for ERNIE's */
    bool sigmoid = hp->expert_gating ? hp->expert_gating == 2 : hp->kv_lora && bias != NO_WEIGHT;
    if (!sigmoid && hp->n_expert_groups > 1 && !b->bind.rc) {
        b->bind.rc = err_set(b->err, FLETCH_E_UNSUPPORTED,
                             "experts in groups that are routed by softmax are not supported");
        b->p->net->failed = true;
    }
    return part_experts(b, h, l,
                        (struct expert_spec){.kind = sigmoid ? ROUTE_SIGMOID : ROUTE_SOFTMAX,
                                             .bias = bias,
                                             .scales = NO_WEIGHT,
                                             .n_shared = hp->n_ff_expert * hp->n_shared_experts});
}

struct operand dense_block(struct build *b, struct operand x, u32 l, struct decoder_spec spec)
{
    if (spec.parallel) {
        struct operand h = part_block_norm(b, "attn_norm", x, l, "attn_norm");
        struct operand a = part_attend(b, h, l, spec.attention);
        x = part_residual(b, "attn_residual", x, a);
        return part_residual(b, "block_out", x, spec.ffn(b, h, l));
    }
    if (spec.whole) {
        struct operand h = part_block_norm(b, "attn_norm", x, l, "attn_norm");
        return part_residual(b, "block_out", x, spec.whole(b, h, l));
    }
    if (spec.mixer && b->hp->block_recurrent[l]) {
        struct operand h = part_block_norm(b, "attn_norm", x, l, "attn_norm");
        x = part_residual(b, "attn_residual", x, spec.mixer(b, h, l));
    } else {
        x = spec.attend ? spec.attend(b, x, l) : part_attention(b, x, l, spec.attention);
    }
    struct operand h = x;
    if (!spec.no_norm)
        h = part_block_norm(b, "ffn_norm", x, l, spec.ffn_norm ? spec.ffn_norm : "ffn_norm");
    struct operand y = spec.ffn(b, h, l);
    if (spec.post_norm) y = part_post_norm(b, "ffn_post_norm", y, l, spec.post_norm);
    x = part_residual(b, "block_out", x, y);
    return spec.tail ? spec.tail(b, x, l) : x;
}

int dense_record(struct build *b, struct decoder_spec spec)
{
    const struct hparams *hp = b->hp;
    u32 d = hp->d_model;
    struct operand x = part_embed(b);
    if (spec.begin) x = spec.begin(b, x);
    for (u32 l = 0; l < hp->n_layers; l++) {
        b->p->layer = (int)l;
        x = dense_block(b, x, l, spec);
    }
    b->p->layer = -1;
    u32 w = bind_vector(&b->bind, d, "%s", spec.output_norm ? spec.output_norm : "output_norm");
    struct operand hidden = part_norm(b, "output_norm", x, w);
    u32 bias = bind_vector_opt(&b->bind, hp->n_vocab, "output.bias");
    return part_output(b, hidden, part_head(b), bias);
}
