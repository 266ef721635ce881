#include "core/op.h"

const struct op_info op_info[OP_COUNT] = {
#define OP_ROW(id, name, io, weights, maths, rounding) {name, io, weights, maths, rounding},
    OP_TABLE(OP_ROW)
#undef OP_ROW
};
