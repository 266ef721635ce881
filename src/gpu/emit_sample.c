/* Sampling as launches: the best of every part of the vocabulary, then one group per row. */
#include "gpu/emit.h"

enum { PART = 2048 }; /* tokens of a group, as long as there are groups */

int emit_sample(struct emit *e, const struct op *op)
{
    u32 n = op->in[0].width, rows = emit_n_rows(e, op->in[0]);
    struct sample_args a = {.n_vocab = n,
                            .n_parts = MIN(SAMPLE_MAX_PARTS, (n + PART - 1) / PART),
                            .mask_words = step_mask_words(e->p->net),
                            .logits_pitch = emit_pitch(e, op->in[0]),
                            .ids_pitch = emit_pitch(e, op->out[0]),
                            .logprobs_pitch = emit_pitch(e, op->out[1]),
                            .top_pitch = emit_pitch(e, op->out[2])};
    u64 best = (u64)rows * SAMPLE_MAX_PARTS * 16, z = ((u64)rows * n * 4 + 255) / 256 * 256;
    emit_launch(e, "k_sample_parts", a.n_parts, rows, SAMPLE_THREADS);
    emit_step(e, STEP_HEAD);
    emit_step(e, STEP_SAMPLE);
    emit_step(e, STEP_SAMPLE_EDITS);
    emit_step(e, STEP_MASKS);
    emit_in(e, op->in[0]);
    emit_scratch(e, best, z, true);
    emit_scratch(e, 0, best, true);
    emit_args(e, &a, sizeof a);

    emit_launch(e, "k_sample", rows, 1, SAMPLE_THREADS);
    emit_step(e, STEP_HEAD);
    emit_step(e, STEP_ROWS);
    emit_step(e, STEP_OUT);
    emit_step(e, STEP_SAMPLE);
    emit_in(e, op->in[0]);
    emit_scratch(e, best, z, false);
    emit_scratch(e, 0, best, false);
    emit_scratch(e, best + z, z, true);
    for (u32 i = 0; i < 3; i++) emit_out(e, op->out[i]);
    return emit_args(e, &a, sizeof a);
}
