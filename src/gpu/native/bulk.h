/* Hopper: memory that one thread sends to shared memory, barriers there that count its bytes, and
 * registers that some warps give to others. */
#ifndef NATIVE_BULK_H
#define NATIVE_BULK_H

#include "gpu/simt.h"

#if defined __CUDA_ARCH_FEAT_SM90_ALL
#define HAS_BULK 1

/* Barriers are addresses in shared memory; a phase ends when `count` arrived and all bytes did. */
GPU_FN void bulk_init(uint barrier, uint count)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}
/* What was begun by one thread is there for those that meet it at a barrier of the group. */
GPU_FN void bulk_begin()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
GPU_FN void bulk_expect(uint barrier, uint bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
}
GPU_FN void bulk_arrive(uint barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
/* Until the phase that is odd or even is over. */
GPU_FN void bulk_wait(uint barrier, uint odd)
{
    asm volatile("{\n\t.reg .pred done;\n\tAGAIN:\n\t"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n\t"
                 "@!done bra AGAIN;\n\t}" ::"r"(barrier),
                 "r"(odd)
                 : "memory");
}
/* Multiples of 16 bytes. */
GPU_FN void bulk_send(uint to, const void *from, uint bytes, uint barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier)
                 : "memory");
}
/* The same, of weights: they go first again from the L2 (simt.h). */
GPU_FN void bulk_send_once(uint to, const void *from, uint bytes, uint barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
                 "[%0], [%1], %2, [%3], %4;" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier), "l"(QUEUE_EVICT_FIRST)
                 : "memory");
}
/* To the L2 only. */
GPU_FN void bulk_ask(const void *from, uint bytes)
{
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}
/* A warpgroup's registers of a thread; those that some give away others can have. */
template <int N> GPU_FN void bulk_fewer_registers()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N> GPU_FN void bulk_more_registers()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}
#else
#define HAS_BULK 0
#endif

#endif
