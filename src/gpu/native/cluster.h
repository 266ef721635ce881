/* Groups of a cluster: their barrier, and each other's shared memory. */
#ifndef NATIVE_CLUSTER_H
#define NATIVE_CLUSTER_H

#include "gpu/simt.h"

/* What was written before arriving is seen by all behind the wait. */
GPU_FN void cluster_arrive()
{
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
GPU_FN void cluster_wait()
{
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/* Where group `rank` has what p is here. */
GPU_FN uint cluster_at(const void *p, uint rank)
{
    uint at = (uint)__cvta_generic_to_shared(p), far;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(far) : "r"(at), "r"(rank));
    return far;
}
GPU_FN float4 cluster_get4(const void *p, uint rank)
{
    float4 v;
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "r"(cluster_at(p, rank))
                 : "memory");
    return v;
}
GPU_FN float2 cluster_get2(const void *p, uint rank)
{
    float2 v;
    asm volatile("ld.shared::cluster.v2.f32 {%0, %1}, [%2];"
                 : "=f"(v.x), "=f"(v.y)
                 : "r"(cluster_at(p, rank))
                 : "memory");
    return v;
}
GPU_FN void cluster_put(const void *p, uint rank, float v)
{
    asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(cluster_at(p, rank)), "f"(v) : "memory");
}

#endif
