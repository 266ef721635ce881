/* One-row products in groups of 384 threads, k_matmul_<encoding>_t384 and k_glu_<encoding>_t384: the
 * same bits. Where 512 have less than two outputs for each simdgroup these are sometimes faster, also
 * because a group of the next kernel fits beside two of them; fletch tune finds out where. */
#define MATVEC_THREADS 384
#define MATVEC_NAME(kernel) kernel##_t384
#include "gpu/kernels/matvec.gpu"
