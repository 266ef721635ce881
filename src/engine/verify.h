/* Two executors in lockstep: the same steps, compared after every op that both have. */
#ifndef FLETCH_VERIFY_H
#define FLETCH_VERIFY_H

#include <jansson.h>

#include "engine/engine.h"

struct verify_side {
    const struct exec_class *class;
    bool no_fuse;
};

/* Feeds the prompt as one step, then how->n_tokens chosen ones, twice: each side freely from its
 * own values, comparing tokens; then op by op, comparing what each wrote and giving side a the
 * values of side b to go on with. *out is the report of fletch_verify. */
int verify_run(json_t **out, const char *path, const struct fletch_model_params *params,
               const struct verify_side side[2], u32 n_threads, const struct fletch_verify *how,
               struct err *err);

/* Whether the logits a and b of two executors agree so nearly about two tokens that one may choose
 * the first and the other the second. */
bool verify_is_close(const struct net *net, const float *a, const float *b, i32 s, i32 t);

#endif
