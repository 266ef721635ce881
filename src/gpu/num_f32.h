/* num_exp, num_log, num_sigmoid, num_tanh and num_softplus for kernels: the host's own text, so the
 * same bits. */
#ifndef GPU_NUM_F32_H
#define GPU_NUM_F32_H

#include "gpu/simt.h"
#ifndef SIMT_LIST
#define NUM_FN GPU_FN
#include "base/num_f32.h"
#endif

#endif
