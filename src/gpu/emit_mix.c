/* RWKV-7's many products of one input, as launches. */
#include "gpu/emit.h"

int emit_matmuls(struct emit *e, const struct op *op)
{
    return emit_parts(e, op);
}
