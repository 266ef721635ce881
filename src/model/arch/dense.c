/* The decoder that most architectures have in common. */
#include "model/arch/dense.h"

struct operand dense_ffn(struct build *b, struct operand h, u32 l)
{
    return part_swiglu(b, h, l, b->hp->n_ff, "");
}

struct operand dense_experts(struct build *b, struct operand h, u32 l)
{
    return part_experts(b, h, l, ROUTE_SOFTMAX, NO_WEIGHT, 0);
}

struct operand dense_sigmoid_experts(struct build *b, struct operand h, u32 l)
{
    const struct hparams *hp = b->hp;
    if (l < hp->n_dense_layers) return dense_ffn(b, h, l);
    u32 bias = bind_vector(&b->bind, hp->n_experts, "blk.%u.exp_probs_b.bias", l);
    return part_experts(b, h, l, ROUTE_SIGMOID, bias, hp->n_ff_expert * hp->n_shared_experts);
}

struct operand dense_block(struct build *b, struct operand x, u32 l, struct decoder_spec spec)
{
    const char *norm = spec.ffn_norm ? spec.ffn_norm : "ffn_norm";
    x = part_attention(b, x, l, spec.attention);
    u32 w = bind_vector(&b->bind, b->hp->d_model, "blk.%u.%s", l, norm);
    return prog_add(b->p, "block_out", x, spec.ffn(b, part_rms(b, "ffn_norm", x, w), l));
}

int dense_record(struct build *b, struct decoder_spec spec)
{
    const struct hparams *hp = b->hp;
    u32 d = hp->d_model;
    struct operand x = prog_embed(b->p, bind_matrix(&b->bind, d, hp->n_vocab, "token_embd"));
    for (u32 l = 0; l < hp->n_layers; l++) {
        b->p->layer = (int)l;
        x = dense_block(b, x, l, spec);
    }
    b->p->layer = -1;
    struct operand hidden = part_rms(b, "output_norm", x, bind_vector(&b->bind, d, "output_norm"));
    u32 bias = bind_vector_opt(&b->bind, hp->n_vocab, "output.bias");
    return part_output(b, hidden, part_head(b), bias);
}
