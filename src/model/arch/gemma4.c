/* Gemma 4: Gemma 3 whose layers without a window have heads of their own width, whose keys may be
 * the values too; scores are not scaled, values are normed, a block's output is. The E models add
 * an embedding of the token to every layer, and their last layers read the caches of earlier ones;
 * the mixture of experts lies beside the dense feed-forward. */
#include <math.h>

#include "model/arch/dense.h"

/* The feed-forward of stream x and, where the model has them, experts beside it. */
static struct operand ffn(struct build *b, struct operand x, u32 l)
{
    const struct hparams *hp = b->hp;
    struct operand y = dense_ffn(b, part_block_norm(b, "ffn_norm", x, l, "ffn_norm"), l);
    if (!hp->n_experts) return y;
    y = part_block_norm(b, "ffn_dense_norm", y, l, "post_ffw_norm_1");
    struct operand z = part_block_norm(b, "router_norm", x, l, "ffn_gate_inp.scale");
    struct expert_spec spec = {.kind = ROUTE_SOFTMAX, .bias = NO_WEIGHT};
    spec.router = part_scale(b, "router_in", z, 1 / sqrtf((float)hp->d_model));
    spec.scales = bind_vector_opt(&b->bind, hp->n_experts, "blk.%u.ffn_down_exps.scale", l);
    struct operand h = part_block_norm(b, "experts_norm", x, l, "pre_ffw_norm_2");
    struct operand e = part_experts(b, h, l, spec);
    e = part_block_norm(b, "experts_post_norm", e, l, "post_ffw_norm_2");
    return prog_add(b->p, "moe_sum", y, e);
}

/* What each layer adds of the token: columns [d_per_layer·l, ..) for layer l. */
static struct operand embed_by_layer(struct build *b, struct operand x)
{
    const struct hparams *hp = b->hp;
    u32 d = hp->d_per_layer, all = d * hp->n_layers;
    if (!d) return x;
    u32 w = bind_matrix(&b->bind, all, hp->n_vocab, "per_layer_token_embd");
    struct operand e = part_scale(b, "layers_scaled", prog_embed(b->p, w), sqrtf((float)d));
    w = bind_matrix(&b->bind, hp->d_model, all, "per_layer_model_proj");
    struct operand y = prog_matmul(b->p, "layers_proj", x, w, NO_WEIGHT);
    y = part_scale(b, "layers_proj_scaled", y, 1 / sqrtf((float)hp->d_model));
    w = bind_vector(&b->bind, d, "per_layer_proj_norm");
    y = part_heads_norm(b, "layers_norm", y, d, w);
    b->by_layer = part_scale(b, "layers_in", prog_add(b->p, "layers_sum", y, e), sqrtf(0.5f));
    return x;
}

/* After the residual sum of both halves of a block. */
static struct operand tail(struct build *b, struct operand x, u32 l)
{
    u32 d = b->hp->d_per_layer;
    if (d) {
        u32 w = bind_matrix(&b->bind, b->hp->d_model, d, "blk.%u.inp_gate", l);
        struct operand gate = prog_matmul(b->p, "layer_gate", x, w, NO_WEIGHT);
        struct operand own = prog_cols(b->p, b->by_layer, d * l, d);
        struct operand y = prog_glu_by(b->p, "layer_glu", gate, own, b->glu);
        w = bind_matrix(&b->bind, d, b->hp->d_model, "blk.%u.proj", l);
        y = prog_matmul(b->p, "layer_proj", y, w, NO_WEIGHT);
        x = prog_add(b->p, "layer_sum", x, part_block_norm(b, "layer_norm", y, l, "post_norm"));
    }
    u32 scale = bind_vector_opt(&b->bind, 1, "blk.%u.layer_output_scale", l);
    return scale == NO_WEIGHT ? x : prog_mul_heads_weight(b->p, "block_scaled", x, scale);
}

int arch_gemma4(struct build *b)
{
    b->glu.kind = GLU_GELU;
    return dense_record(b, (struct decoder_spec){.attention = {.rope = ROPE_NEOX,
                                                               .qk_norm = QK_NORM_HEADS,
                                                               .scale = 1,
                                                               .v_norm = true,
                                                               .post_norm = "post_attention_norm"},
                                                 .no_norm = true,
                                                 .post_norm = "post_ffw_norm",
                                                 .ffn = ffn,
                                                 .begin = embed_by_layer,
                                                 .tail = tail});
}
