/* Two executors in lockstep: the same steps, compared after every op that both have. */
#ifndef FLETCH_VERIFY_H
#define FLETCH_VERIFY_H

#include <jansson.h>

#include "engine/engine.h"

struct verify_side {
    const struct exec_class *class;
    bool no_fuse;
};

/* Feeds the prompt as one step, then n_tokens greedy tokens, twice: each side freely from its own
 * values, comparing tokens; then op by op, comparing what each wrote and giving side a the values
 * of side b to go on with. *out is the report of fletch_verify. */
int verify_run(json_t **out, const char *path, const struct fletch_model_params *params,
               const struct verify_side side[2], u32 n_threads, const i32 *prompt, size_t n_prompt,
               u32 n_tokens, struct err *err);

#endif
