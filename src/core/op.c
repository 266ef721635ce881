#include "core/op.h"

const struct op_info op_info[OP_COUNT] = {
#define OP_ROW(id, name, io, weights, maths, rounding) {name, io, weights, maths, rounding},
    OP_TABLE(OP_ROW)
#undef OP_ROW
};

static const char *const features[FEATURE_COUNT] = {
#define FEATURE_ROW(id, what, test) what,
    FEATURE_TABLE(FEATURE_ROW)
#undef FEATURE_ROW
};

const char *feature_name(enum feature f)
{
    return features[f];
}

u64 op_features(const struct op *o)
{
    u64 bits = 0;
#define FEATURE_TEST(id, what, test) \
    if (test) bits |= HAS(id);
    FEATURE_TABLE(FEATURE_TEST)
#undef FEATURE_TEST
    return bits;
}

bool op_writes(const struct op *op, u32 col)
{
    switch (op->kind) {
    case OP_MATMUL_HEADS: return col % op->p.heads.out_stride < op->p.heads.n_out;
    case OP_ROPE: return col % op->p.rope.out_stride < op->p.rope.width;
    default: return true;
    }
}
