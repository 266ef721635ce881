/* The MTP block of DeepSeek V3 and GLM: e = norm(embed(next token)), g = norm(hidden),
 * x = eh_proj·[e | g], one more block, its own head. */
#include "model/arch/parts.h"

int part_mtp(struct build *b, u32 l,
             struct operand (*block)(struct build *b, struct operand x, u32 l))
{
    const struct hparams *hp = b->hp;
    struct bind *bind = &b->bind;
    struct program *p = b->p = b->mtp;
    u32 d = hp->d_model;
    bool own_embed = bind_has(bind, "blk.%u.nextn.embed_tokens", l);
    u32 we = own_embed ? bind_matrix(bind, d, hp->n_vocab, "blk.%u.nextn.embed_tokens", l)
                       : bind_matrix(bind, d, hp->n_vocab, "token_embd");
    struct norm_spec norm = {.kind = NORM_RMS, .eps = hp->eps, .b = NO_WEIGHT};
    struct operand e = prog_embed(p, we), g = prog_import_hidden(p, d);
    struct operand eg = prog_buf(p, "mtp_in", 2 * d);
    p->layer = (int)l;
    norm.w = bind_vector(bind, d, "blk.%u.nextn.enorm", l);
    prog_norm_to(p, prog_cols(p, eg, 0, d), e, norm);
    norm.w = bind_vector(bind, d, "blk.%u.nextn.hnorm", l);
    prog_norm_to(p, prog_cols(p, eg, d, d), g, norm);
    u32 wp = bind_matrix(bind, 2 * d, d, "blk.%u.nextn.eh_proj", l);
    struct operand x = block(b, prog_matmul(p, "eh_proj", eg, wp, NO_WEIGHT), l);
    u32 wn = bind_has(bind, "blk.%u.nextn.shared_head_norm", l)
                 ? bind_vector(bind, d, "blk.%u.nextn.shared_head_norm", l)
                 : bind_vector(bind, d, "output_norm");
    u32 head = bind_has(bind, "blk.%u.nextn.shared_head_head", l)
                   ? bind_matrix(bind, d, hp->n_vocab, "blk.%u.nextn.shared_head_head", l)
                   : part_head(b);
    return part_output(b, part_norm(b, "mtp_norm", x, wn), head, NO_WEIGHT);
}
