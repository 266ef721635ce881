/* The decoder that llama, qwen2, qwen3 and qwen3moe have in common. */
#include "model/arch/dense.h"

struct operand dense_ffn(struct build *b, struct operand h, u32 l)
{
    return part_swiglu(b, h, l, b->hp->n_ff, "");
}

int dense_record(struct build *b, struct attention_spec attention,
                 struct operand (*ffn)(struct build *b, struct operand h, u32 l))
{
    const struct hparams *hp = b->hp;
    u32 d = hp->d_model;
    struct operand x = prog_embed(b->p, bind_matrix(&b->bind, d, hp->n_vocab, "token_embd"));
    for (u32 l = 0; l < hp->n_layers; l++) {
        b->p->layer = (int)l;
        x = part_attention(b, x, l, attention);
        struct operand h =
            part_rms(b, "ffn_norm", x, bind_vector(&b->bind, d, "blk.%u.ffn_norm", l));
        x = prog_add(b->p, "block_out", x, ffn(b, h, l));
    }
    b->p->layer = -1;
    struct operand hidden = part_rms(b, "output_norm", x, bind_vector(&b->bind, d, "output_norm"));
    u32 bias = bind_vector_opt(&b->bind, hp->n_vocab, "output.bias");
    return part_output(b, hidden, part_head(b), bias);
}
