/* The kernel dialect: one C++ subset that expands to CUDA, to the Metal Shading Language and to the
 * emulator (fast, or checked with SIMT_CHECKED). Kernels know nothing else of where they run.
 *
 * Where kernels live: every src/gpu/kernels/NAME.gpu is found and compiled by the Makefile, every
 * KERNEL() in it is in the driver's table under its own name; there is nothing else to register.
 * Metal and CUDA compile all of them as one text, so helpers' names are unique across files; what
 * files share goes into headers beside them (included as "gpu/kernels/x.h", guarded).
 *
 *     #include "gpu/simt.h"
 *     #include "gpu/args.h"
 *     KERNEL(k_scale, 64)(CONST(float) w BUF(0), DEV(const float) x BUF(1), DEV(float) y BUF(2),
 *                         ARGS(scale_args) a BUF(3) GPU_IDS)
 *     {
 *         TG_ARRAY(float, part, 2);
 *         float k = w[0];                    // CONST may be read before the wait,
 *         dep_wait();                        // DEV only after it; every thread calls it once
 *         for (uint i = gpu_group.x * 64u + gpu_tid; i < a.n; i += gpu_groups.x * 64u)
 *             y[i] = x[i] * k;
 *     }
 *
 * Rules
 * - Buffers are BUF(0..) in order, then ARGS(struct of args.h) as the next one, then GPU_IDS with
 *   no comma before it. The number after the name is the largest group; a multiple of 32.
 * - gpu_group, gpu_groups (.x .y .z: place in and size of the grid), gpu_tid (in the group),
 *   gpu_lane (0..31), gpu_simd (which 32 of the group) exist in the kernel's body only; helpers
 *   (GPU_FN) get what they need as parameters.
 * - A helper gets the arguments as ARGS_IN(struct).
 * - Pointers are written CONST(T), DEV(T), DEV(const T), TG(T), THR(T); no pointers to pointers, no
 *   references but ARGS. A helper that takes several kinds is a function template over its type.
 * - Elements of CONST, DEV and TG are loaded and stored whole: `float4 v = p[i]; use v.x`, never
 *   p[i].x, &p[i] or a struct (helpers may take structs by value, also of pointers). Give functions
 *   that are overloaded or templates (min, max, simd_*) values, not p[i]. Pointers may be cast to
 *   another element type of the same kind and moved with + (unsigned).
 * - A buffer is bound as CONST when no kernel of the same list writes it (weights).
 * - Bindings of a launch may overlap (in-place adds, a state and what it becomes, the cache) where
 * a thread's own load feeds its own store: what is stored through one binding and touched through
 *   another is one thread's, which loads it first, so that no compiler that believes them apart can
 *   tell. The checked emulator finds what does not follow this.
 * - TG_ARRAY only at the top of a kernel's body, at most 32 KiB in all; it starts undefined.
 * - Vectors (float2 float4 uint2 uint4) have .x .y .z .w and make_float4(...) only, no operators.
 * - float, uint, int, u8 i8 u16 i16 u64; halves are u16 bits (f16_to_f32 ...). No double,
 * recursion, lambdas, function pointers, globals but `GPU_CONST(T, name, n) = {...};` tables, no
 * static.
 * - tg_barrier() orders threadgroup memory (simd_barrier() for one simdgroup's own use of it),
 *   tg_dev_barrier() also what the group wrote to DEV; simd ops order nothing. All threads of a
 *   group reach a barrier, all lanes of a simdgroup a simd op; threads that leave early do so as
 *   whole groups (or simdgroups, where no barrier follows), after dep_wait().
 * - A lane may have a queue of 16-byte units and words on their way from CONST memory, QUEUE_SLOTS
 *   of them (args.h): queue_send_unit/_word(slot, pointer), queue_commit() after each batch of
 *   QUEUE_BATCH slots, queue_wait<n>() until all but the last n batches are there, then
 *   queue_unit/_word(slot, the same pointer), or queue_kept(queue_keep(), slot, lane, pointer)
 *   for what another lane of the simdgroup sent without words. A simdgroup may send up to 128
 *   bytes as the words of each slot of a batch (queue_send_row, then queue_row). Groups have
 *   QUEUE_THREADS. It is real on CUDA, in threadgroup memory that the host asks for
 *   (QUEUE_BYTES); elsewhere a unit is loaded when it is taken.
 * - touch(pointer) asks for what will be read soon; early_word(pointer) is what a word of DEV
 *   memory has before the wait, perhaps not what it will have behind it: a guess at what to send
 *   for, to be compared later. All ones where nobody guesses (all but CUDA). tg_kept(tg_keep(p),
 *   p, i) is p[i] of threadgroup memory, by a place that is kept in a register.
 * - A mat8 is 8 × 8 floats that a simdgroup holds together, for its matrix unit: mat_zero(),
 *   mat_load(p, pitch), mat_load_across (transposed), mat_store(m, p, pitch), p a TG(float) and the
 *   same in all lanes, mat_fma(a, b, c) = a·b + c. A simdgroup's own variables, passed by value or
 *   as THR(mat8). Here alone the order of a sum is the device's: eight terms onto c, in ascending
 *   order wherever there is no such unit. tensor_tile (kernels/tensor.h) is the same for a whole
 *   group, by tensor operations of halves or bfloats, in tensor.gpu only: its sums are in the
 *   device's order, in ascending order where there are no such operations.
 * - Groups of a launch see nothing of each other's writes, except through atomic_add, and the last
 *   of several that hand over by last_group() (where device_caps.joins), which sees all of theirs.
 * - What copies and k_tables bring (the step, block tables) is CONST too for all behind them: they
 *   start nobody early and end with dev_fence(). So are cached rows of earlier steps.
 * - dot4_i8(a, b, acc) is acc plus the products of four signed bytes, dot4_low and dot4_high those
 * of the low or high nibbles of a's bytes with b's signed ones: a dot_sum, int or float, exact as
 * long as all its sums stay below 2^24.
 * - Arithmetic means the same bits everywhere: only fmaf() fuses, simd_sum adds by halves (lane i
 *   and i^16 first, then 8, 4, 2, 1), / and sqrtf round correctly, exp and so on are num_f32.h's.
 *   float_of(u64) rounds to the nearest; a cast is emulated on Metal, nobody says how. Subnormal
 *   floats are zeros on some devices (Metal, the emulator): decide by bits where that matters.
 *   kernels/self_test.gpu has a case for each of these promises.
 */
#ifndef SIMT_H
#define SIMT_H

#if defined SIMT_LIST /* ------------------------------ only the names, for tools/gpu-table */

#define KERNEL(name, n_threads) SIMT_KERNEL name

#elif defined __METAL_VERSION__ /* ------------------------------------------------- Metal */

#include <metal_simdgroup_matrix>
#include <metal_stdlib>
#ifdef GPU_TENSOR /* the driver says so for the text of tensor.gpu, in Metal 4.0 */
#include <metal_tensor>
#include <MetalPerformancePrimitives/MetalPerformancePrimitives.h>
#define SIMT_TENSOR
#endif
using namespace metal;
/* Contraction stays on even in Metal's safe math mode. Each compiler takes one of these. */
#pragma STDC FP_CONTRACT OFF
#pragma clang fp contract(off)
typedef uchar u8;
typedef char i8;
typedef ushort u16;
typedef short i16;
typedef uint u32;
typedef int i32;
typedef ulong u64;
#define KERNEL(name, n_threads) [[max_total_threads_per_threadgroup(n_threads)]] kernel void name
#define BUF(n)                  [[buffer(n)]]
#define CONST(T)                device const T *
#define DEV(T)                  device T *
#define TG(T)                   threadgroup T *
#define THR(T)                  thread T *
#define ARGS(T)                 constant T &
#define ARGS_IN(T)              constant T &
/* gpu_grid: six words, which of a launch's groups come first and how many it has, where the driver
 * had to cut it; else zeros. */
#define GPU_IDS                                                                                \
    , constant uint *gpu_grid [[buffer(30)]], uint3 gpu_at [[threadgroup_position_in_grid]],   \
        uint3 gpu_all [[threadgroups_per_grid]], uint gpu_tid [[thread_index_in_threadgroup]], \
        uint gpu_lane [[thread_index_in_simdgroup]],                                           \
        uint gpu_simd [[simdgroup_index_in_threadgroup]]
#define gpu_group             (gpu_at + uint3(gpu_grid[0], gpu_grid[1], gpu_grid[2]))
#define gpu_groups            (gpu_grid[3] == 0u ? gpu_all : uint3(gpu_grid[3], gpu_grid[4], gpu_grid[5]))
#define TG_ARRAY(T, name, n)  threadgroup T name[n]
#define GPU_CONST(T, name, n) constant T name[n]
#define GPU_FN                static METAL_FUNC /* always inline */
#define UNROLL                _Pragma("clang loop unroll(full)")
#define ROLLED                _Pragma("clang loop unroll(disable)")
#define tg_barrier()          threadgroup_barrier(mem_flags::mem_threadgroup)
#define tg_dev_barrier()      threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device)
#define simd_barrier()        simdgroup_barrier(mem_flags::mem_threadgroup)
#define dep_wait()
#define dep_launch()
#define dev_fence()
#define sees_groups()
#define fmaf(a, b, c)           fma(a, b, c)
#define fabsf(x)                fabs(x)
#define fmaxf(a, b)             fmax(a, b)
#define fminf(a, b)             fmin(a, b)
#define sqrtf(x)                sqrt(x)
#define rintf(x)                rint(x)
#define floorf(x)               floor(x)
#define as_float(u)             as_type<float>(u)
#define as_uint(f)              as_type<uint>(f)
#define make_float2(a, b)       float2(a, b)
#define make_float4(a, b, c, d) float4(a, b, c, d)
#define make_uint2(a, b)        uint2(a, b)
#define make_uint4(a, b, c, d)  uint4(a, b, c, d)
GPU_FN float f16_to_f32(u16 h)
{
    return (float)as_type<half>(h);
}
GPU_FN u16 f32_to_f16(float f)
{
    return as_type<ushort>((half)f);
}
/* Floats hold these sums exactly, and multiply faster than integers there. Nibbles stay where they
 * are in their words: what multiplies them is smaller by as many powers of two. */
#define SIMT_FLOAT_DOTS
typedef float dot_sum;
GPU_FN dot_sum dot4_i8(uint a, uint b, dot_sum acc)
{
    char4 x = as_type<char4>(a), y = as_type<char4>(b);
    acc = fma((float)x.x, (float)y.x, acc);
    acc = fma((float)x.y, (float)y.y, acc);
    acc = fma((float)x.z, (float)y.z, acc);
    return fma((float)x.w, (float)y.w, acc);
}
GPU_FN dot_sum dot4_low(uint a, uint b, dot_sum acc)
{
    char4 y = as_type<char4>(b);
    acc = fma((float)(a & 0xfu), (float)y.x, acc);
    acc = fma((float)(a & 0xf00u), (float)y.y * (1.0f / 256.0f), acc);
    acc = fma((float)(a & 0xf0000u), (float)y.z * (1.0f / 65536.0f), acc);
    return fma((float)(a & 0xf000000u), (float)y.w * (1.0f / 16777216.0f), acc);
}
GPU_FN dot_sum dot4_high(uint a, uint b, dot_sum acc)
{
    char4 y = as_type<char4>(b);
    acc = fma((float)(a & 0xf0u), (float)y.x * (1.0f / 16.0f), acc);
    acc = fma((float)(a & 0xf000u), (float)y.y * (1.0f / 4096.0f), acc);
    acc = fma((float)(a & 0xf00000u), (float)y.z * (1.0f / 1048576.0f), acc);
    return fma((float)(a & 0xf0000000u), (float)y.w * (1.0f / 268435456.0f), acc);
}
typedef simdgroup_float8x8 mat8;
GPU_FN mat8 mat_zero()
{
    return make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
}
GPU_FN mat8 mat_load(TG(const float) p, uint pitch)
{
    mat8 m;
    simdgroup_load(m, p, pitch);
    return m;
}
GPU_FN mat8 mat_load_across(TG(const float) p, uint pitch)
{
    mat8 m;
    simdgroup_load(m, p, pitch, ulong2(0ul, 0ul), true);
    return m;
}
GPU_FN void mat_store(mat8 m, TG(float) p, uint pitch)
{
    simdgroup_store(m, p, pitch);
}
GPU_FN mat8 mat_fma(mat8 a, mat8 b, mat8 c)
{
    simdgroup_multiply_accumulate(c, a, b, c);
    return c;
}
#define simd_sum(v)      simt_sum(v) /* Metal's own leave the order open */
#define simd_max(v)      simt_max(v)
#define simd_any(v)      simd_any(v)
#define atomic_u32       atomic_uint
#define atomic_add(p, v) atomic_fetch_add_explicit(p, v, memory_order_relaxed)
#define SIMT_SHUFFLES

#elif defined __CUDACC__ /* --------------------------------------------------------- CUDA */

#include "gpu/args.h"

typedef unsigned char u8;
typedef signed char i8;
typedef unsigned short u16;
typedef short i16;
typedef unsigned int u32;
typedef int i32;
typedef unsigned long long u64;
typedef unsigned int uint;
typedef unsigned short ushort;
#define KERNEL(name, n_threads) extern "C" __global__ void __launch_bounds__(n_threads) name
#define KERNEL_FIT(name, n_threads, n_groups) \
    extern "C" __global__ void __launch_bounds__(n_threads, n_groups) name
#define BUF(n)
#define CONST(T)   const T *__restrict__
#define DEV(T)     T *
#define TG(T)      T *
#define THR(T)     T *
#define ARGS(T)    const __grid_constant__ T
#define ARGS_IN(T) const T &
#define GPU_IDS
#define gpu_group             blockIdx
#define gpu_groups            gridDim
#define gpu_tid               threadIdx.x
#define gpu_lane              (threadIdx.x & 31u)
#define gpu_simd              (threadIdx.x >> 5)
#define TG_ARRAY(T, name, n)  __shared__ T name[n]
#define GPU_CONST(T, name, n) static __constant__ T name[n]
#define GPU_FN                static __device__ __forceinline__
#define UNROLL                _Pragma("unroll")
#define ROLLED                _Pragma("unroll 1")
#define tg_barrier()          __syncthreads()
#define tg_dev_barrier()      __syncthreads()
#define simd_barrier()        __syncwarp()
#if __CUDA_ARCH__ >= 900
#define dep_wait()   asm volatile("griddepcontrol.wait;" ::: "memory")
#define dep_launch() asm volatile("griddepcontrol.launch_dependents;")
#else
#define dep_wait()
#define dep_launch()
#endif
#define dev_fence() __threadfence()
#define sees_groups()
#define as_float(u)             __uint_as_float(u)
#define as_uint(f)              __float_as_uint(f)
GPU_FN float f16_to_f32(u16 h)
{
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
    return f;
}
GPU_FN u16 f32_to_f16(float f)
{
    u16 h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
    return h;
}
typedef int dot_sum;
GPU_FN int dot4_i8(uint a, uint b, int acc)
{
    return __dp4a((int)a, (int)b, acc);
}
template <class T> GPU_FN T simd_shuffle_xor(T v, u16 m)
{
    return __shfl_xor_sync(0xffffffffu, v, m);
}
template <class T> GPU_FN T simd_shuffle(T v, u16 lane)
{
    return __shfl_sync(0xffffffffu, v, lane);
}
#define simd_broadcast(v, lane) simd_shuffle(v, lane)
#define simd_sum(v)             simt_sum(v)
#define simd_max(v)             simt_max(v)
#define simd_any(v)             (__any_sync(0xffffffffu, v) != 0)
#define SIMT_LANE               gpu_lane
#define SIMT_LINE
#define mat_at(p, pitch)
#define atomic_u32       uint
#define atomic_add(p, v) atomicAdd(p, v)
#define float_of(v)      ((float)(u64)(v))
#define SIMT_SHUFFLES

/* Through a shuffle the compiler does not know what it is and keeps it: it would ask for the place
 * of shared memory anew before each use. */
#define SIMT_KEEP
GPU_FN uint tg_keep(TG(const uint4) p)
{
    return simd_broadcast((uint)__cvta_generic_to_shared(p), 0);
}
GPU_FN uint4 tg_kept_at(uint at)
{
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(at)
                 : "memory");
    return v;
}
GPU_FN uint4 tg_kept(uint kept, TG(const uint4), uint i)
{
    return tg_kept_at(kept + i * 16u);
}

#if !defined __CUDA_ARCH__ || __CUDA_ARCH__ >= 800
#define SIMT_QUEUE
/* A slot: [thread] units, then [WORDS][thread] words. */
template <int WORDS> GPU_FN uint queue_slot(uint slot)
{
    extern __shared__ uint4 queue_memory[];
    return (uint)__cvta_generic_to_shared(queue_memory) +
           slot * (QUEUE_THREADS * (16u + 4u * (uint)WORDS));
}
/* Of what is in the L2, weights go first: a step reads them once, and code and activations many
 * times. Without that, each kernel of a layer finds its code gone again (GLM-4.7-Flash + 12 %). */
#define QUEUE_EVICT_FIRST 0x12f0000000000000ull
template <int WORDS> GPU_FN void queue_send_unit(uint slot, CONST(uint4) p)
{
    uint at = queue_slot<WORDS>(slot) + threadIdx.x * 16u;
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(at), "l"(p),
                 "l"(QUEUE_EVICT_FIRST)
                 : "memory");
}
template <int WORDS> GPU_FN void queue_send_word(uint slot, uint which, CONST(u8) p)
{
    uint at = queue_slot<WORDS>(slot) + QUEUE_THREADS * (16u + 4u * which) + threadIdx.x * 4u;
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(at), "l"((u64)p & ~3ull)
                 : "memory");
}
GPU_FN void queue_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int N> GPU_FN void queue_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
    __syncwarp();
}
template <int WORDS> GPU_FN uint4 queue_unit(uint slot, CONST(uint4))
{
    return tg_kept_at(queue_slot<WORDS>(slot) + threadIdx.x * 16u);
}
GPU_FN uint queue_keep()
{
    return simd_broadcast(queue_slot<0>(0u), 0);
}
GPU_FN uint4 queue_kept(uint kept, uint slot, uint lane, CONST(uint4))
{
    return tg_kept_at(kept + slot * (QUEUE_THREADS * 16u) + (gpu_simd * 32u + lane) * 16u);
}
template <int WORDS, int BYTES> GPU_FN uint queue_word(uint slot, uint which, CONST(u8) p)
{
    uint at = queue_slot<WORDS>(slot) + QUEUE_THREADS * (16u + 4u * which) + threadIdx.x * 4u, v;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(at) : "memory");
    if (BYTES < 4) v = v >> ((uint)(u64)p & 3u) * 8u & ((1u << BYTES % 4 * 8) - 1u);
    return v;
}
template <int MOST> GPU_FN void queue_send_row(uint slot, CONST(u8) p, uint n)
{
    __syncwarp();
    UNROLL
    for (uint i = 0u; i < (uint)MOST; i += 128u) {
        uint from = gpu_lane * 4u + i;
        uint at = queue_slot<1>(slot + i / 128u) + QUEUE_THREADS * 16u + threadIdx.x * 4u;
        if (from < n && from < (uint)MOST)
            asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(at), "l"(p + from)
                         : "memory");
    }
}
template <int BYTES> GPU_FN uint queue_row(uint slot, uint at, CONST(u8))
{
    uint v,
        from = queue_slot<1>(slot + at / 128u) + QUEUE_THREADS * 16u + gpu_simd * 128u + at % 128u;
    if (BYTES == 4)
        asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(from) : "memory");
    else
        asm volatile("ld.shared.u16 %0, [%1];" : "=r"(v) : "r"(from) : "memory");
    return v;
}
#endif
#define touch(p)      asm volatile("prefetch.global.L1 [%0];" ::"l"(p))
#define early_word(p) simt_early(p)
GPU_FN uint simt_early(const void *p)
{
    uint v;
    asm volatile("ld.volatile.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}

#else /* ------------------------------------------------------------------------ emulator */
#include "gpu/emu/dialect.h"
#endif

/* A kernel of which n_groups must fit on a multiprocessor, whatever that costs in registers. */
#ifndef KERNEL_FIT
#define KERNEL_FIT(name, n_threads, n_groups) KERNEL(name, n_threads)
#endif

#ifndef SIMT_LIST /* ----------------------------------------------------------- all of them */

#ifdef SIMT_SHUFFLES
template <class T> GPU_FN T simt_sum(T v)
{
    for (u16 m = 16; m > 0; m >>= 1) v = v + simd_shuffle_xor(v, m);
    return v;
}
template <class T> GPU_FN T simt_max(T v)
{
    for (u16 m = 16; m > 0; m >>= 1) {
        T o = simd_shuffle_xor(v, m);
        v = o > v ? o : v;
    }
    return v;
}
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 800
GPU_FN uint simt_max(uint v)
{
    return __reduce_max_sync(0xffffffffu, v);
}
#endif
#endif

#ifdef SIMT_LANE
/* Without matrix units a lane has two neighbours of row lane / 4. */
struct mat8 {
    float x, y;
};
GPU_FN mat8 mat_zero()
{
    mat8 m = {0.0f, 0.0f};
    return m;
}
GPU_FN mat8 mat_load(TG(const float) p, uint pitch SIMT_LINE)
{
    mat_at(p, pitch);
    uint at = SIMT_LANE / 4u * pitch + SIMT_LANE % 4u * 2u;
    mat8 m = {p[at], p[at + 1u]};
    return m;
}
GPU_FN mat8 mat_load_across(TG(const float) p, uint pitch SIMT_LINE)
{
    mat_at(p, pitch);
    uint at = SIMT_LANE % 4u * 2u * pitch + SIMT_LANE / 4u;
    mat8 m = {p[at], p[at + pitch]};
    return m;
}
GPU_FN void mat_store(mat8 m, TG(float) p, uint pitch SIMT_LINE)
{
    mat_at(p, pitch);
    uint at = SIMT_LANE / 4u * pitch + SIMT_LANE % 4u * 2u;
    p[at] = m.x;
    p[at + 1u] = m.y;
}
GPU_FN mat8 simt_fma(mat8 a, mat8 b, mat8 c)
{
    uint row = SIMT_LANE / 4u * 4u, col = SIMT_LANE % 4u;
    UNROLL
    for (uint k = 0u; k < 8u; k++) {
        float x = simd_shuffle(k % 2u ? a.y : a.x, (u16)(row + k / 2u));
        c.x = fmaf(x, simd_shuffle(b.x, (u16)(k * 4u + col)), c.x);
        c.y = fmaf(x, simd_shuffle(b.y, (u16)(k * 4u + col)), c.y);
    }
    return c;
}
#ifndef mat_fma
#define mat_fma(a, b, c) simt_fma(a, b, c)
#endif
#endif

#ifndef SIMT_QUEUE
template <int WORDS, class P> GPU_FN void queue_send_unit(uint, P) {}
template <int WORDS, class P> GPU_FN void queue_send_word(uint, uint, P) {}
#define queue_commit()
template <int N> GPU_FN void queue_wait() {}
template <int MOST, class P> GPU_FN void queue_send_row(uint, P, uint) {}
template <int BYTES> GPU_FN uint queue_row(uint, uint at, CONST(u8) p)
{
    CONST(u16) p16 = (CONST(u16))(p + at);
    CONST(uint) p32 = (CONST(uint))(p + at);
    if (BYTES == 4) return p32[0];
    return p16[0];
}
template <int WORDS> GPU_FN uint4 queue_unit(uint, CONST(uint4) p)
{
    return p[0];
}
#define queue_keep() 0u
GPU_FN uint4 queue_kept(uint, uint, uint, CONST(uint4) p)
{
    return p[0];
}
template <int WORDS, int BYTES> GPU_FN uint queue_word(uint, uint, CONST(u8) p)
{
    CONST(u16) p16 = (CONST(u16))p;
    CONST(uint) p32 = (CONST(uint))p;
    if (BYTES == 4) return p32[0];
    if (BYTES == 2) return p16[0];
    return p[0];
}
#endif
#ifndef touch
#define touch(p)
#endif
#ifndef SIMT_KEEP
#define tg_keep(p) 0u
template <class P> GPU_FN uint4 tg_kept(uint, P p, uint i)
{
    return p[i];
}
#endif
#ifndef early_word
#define early_word(p) 0xffffffffu
#endif

/* Is this the last of n groups that call it with the same counter? That one then sees what the
 * others wrote before. The counter is 0 before and behind; flag is a word of the group. */
template <class C> GPU_FN bool last_group(C counter, uint n, TG(uint) flag, uint tid)
{
    tg_dev_barrier();
    if (tid == 0u) {
        dev_fence();
        uint before = atomic_add(counter, 1u);
        if (before + 1u == n) atomic_add(counter, 0u - n);
        flag[0] = before + 1u == n ? 1u : 0u;
        dev_fence();
    }
    tg_dev_barrier();
    bool last = flag[0] != 0u;
    if (last) sees_groups();
    return last;
}

#ifndef SIMT_FLOAT_DOTS
#define dot4_low(a, b, acc)  dot4_i8((a)&0x0f0f0f0fu, b, acc)
#define dot4_high(a, b, acc) dot4_i8((a) >> 4 & 0x0f0f0f0fu, b, acc)
#endif

#ifndef float_of
/* The highest 32 bits, of which the last one stands for all below it, round as the whole does. */
GPU_FN float float_of(u64 v)
{
    uint high = (uint)(v >> 32), shift = 0u;
    UNROLL
    for (uint i = 16u; i > 0u; i >>= 1)
        if (high >> shift >> i != 0u) shift += i;
    if (high >> shift != 0u) shift++;
    uint top = (uint)(v >> shift);
    if (v >> shift << shift != v) top |= 1u;
    return (float)top * as_float((127u + shift) << 23);
}
#endif

GPU_FN float bf16_to_f32(u16 h)
{
    return as_float((uint)h << 16);
}
/* Nearest even; a NaN stays one. */
GPU_FN u16 f32_to_bf16(float f)
{
    uint u = as_uint(f);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (u16)(u >> 16 | 0x40u);
    return (u16)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}
/* Two of them as a word, the first one low. */
GPU_FN uint f32x2_to_bf16(float low, float high)
{
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 800
    uint u;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(u) : "f"(high), "f"(low));
    return u;
#else
    return (uint)f32_to_bf16(low) | (uint)f32_to_bf16(high) << 16;
#endif
}
/* Two halves of a word, the low one first. */
GPU_FN float2 f16x2_to_f32(uint u)
{
    return make_float2(f16_to_f32((u16)u), f16_to_f32((u16)(u >> 16)));
}
GPU_FN float2 bf16x2_to_f32(uint u)
{
    return make_float2(as_float(u << 16), as_float(u & 0xffff0000u));
}

#endif
#endif
