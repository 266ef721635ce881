/* Products of panels on tensor cores (args.h says what panels are): bf16 by bf16, sums in f32. An
 * output's sum runs over its columns in steps of 16 in ascending order whatever the launch, so a
 * row has the same bits alone and among thousands. Both panels come through a few stages of
 * shared memory, rows of 128 bytes whose eighths lie at (eighth ^ row % 8): no two of a warp's
 * reads then want the same banks. Hopper multiplies a warpgroup's 64 rows from there (wgmma), older
 * chips a warp's 64 by way of registers (mma). */
#include "gpu/args.h"
#include "gpu/native/mma.h"
#include "gpu/num_f32.h"
#include "gpu/simt.h"

#if !defined __CUDA_ARCH__ || __CUDA_ARCH__ >= 800

#if defined __CUDA_ARCH_FEAT_SM90_ALL
#define PANEL_WGMMA 1
#else
#define PANEL_WGMMA 0
#endif

GPU_FN uint panel_shared()
{
    extern __shared__ __align__(1024) u8 panel_memory[];
    return (uint)__cvta_generic_to_shared(panel_memory);
}

/* ---- global to shared memory ---- */

GPU_FN void panel_send(uint to, const u16 *from)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

/* A thread brings one eighth of every 32nd row. */
struct panel_source {
    const u16 *x[PANEL_M / 32], *w;
    u64 w_step;
    uint to;
};

GPU_FN void panel_fetch(const panel_source &p, uint k, uint stage)
{
    uint to = p.to + stage * (uint)((PANEL_M + PANEL_N) * 128);
    UNROLL
    for (int i = 0; i < PANEL_M / 32; i++) panel_send(to + (uint)i * 4096u, p.x[i] + k);
    UNROLL
    for (int i = 0; i < PANEL_N / 32; i++)
        panel_send(to + (uint)(PANEL_M * 128 + i * 4096), p.w + (u64)i * p.w_step + k);
}

/* ---- multiplying one stage ---- */

#if PANEL_WGMMA

/* acc[row % 8 and + 8 of a warp's 16][column pair]: as mma leaves them */
struct panel_sums {
    enum { MI = 1, NI = PANEL_N / 8 };
    float v[MI][NI][4];
};
GPU_FN uint panel_row_of(int, uint warp)
{
    return warp * 16u;
}
GPU_FN uint panel_column_of(int ni, uint)
{
    return (uint)ni * 8u;
}

/* Rows of 128 bytes in groups of eight, swizzled. */
GPU_FN u64 panel_descriptor(uint shared)
{
    return (u64)(shared >> 4 & 0x3fffu) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

#define SUM4(i)  "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])
#define SUM16(i) SUM4(i), SUM4(i + 1), SUM4(i + 2), SUM4(i + 3)
GPU_FN void panel_wgmma(float (*d)[4], u64 x, u64 w)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
                 "%64, %65, 1, 1, 1, 0, 0;"
                 : SUM16(0), SUM16(4), SUM16(8), SUM16(12)
                 : "l"(x), "l"(w));
}

GPU_FN void panel_multiply(panel_sums &s, uint stage, uint warp, uint)
{
    u64 x = panel_descriptor(stage + warp / 4u * 8192u);
    u64 w = panel_descriptor(stage + (uint)PANEL_M * 128u);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    UNROLL
    for (int k = 0; k < PANEL_K / 16; k++) {
        UNROLL
        for (int n = 0; n < PANEL_N / 128; n++)
            panel_wgmma(s.v[0] + 16 * n, x + (u64)(2 * k), w + (u64)(2 * k + 1024 * n));
    }
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
}
GPU_FN void panel_arrived()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
GPU_FN void panel_finish()
{
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}
enum { PANEL_READ = 2 }; /* stages that may still be read: the present one and the one before */

#else

struct panel_sums {
    enum { MI = 4, NI = PANEL_N / 32 };
    float v[MI][NI][4];
};
GPU_FN uint panel_row_of(int mi, uint warp)
{
    return warp / 4u * 64u + (uint)mi * 16u;
}
GPU_FN uint panel_column_of(int ni, uint warp)
{
    return warp % 4u * (uint)(PANEL_N / 4) + (uint)ni * 8u;
}

GPU_FN void panel_multiply(panel_sums &s, uint stage, uint warp, uint lane)
{
    enum { MI = panel_sums::MI, NI = panel_sums::NI };
    uint row = lane % 8u, x_row = row + lane / 8u % 2u * 8u, w_row = row + lane / 16u * 8u;
    uint x_at = stage + (panel_row_of(0, warp) + x_row) * 128u;
    uint w_at = stage + ((uint)PANEL_M + panel_column_of(0, warp) + w_row) * 128u;
    UNROLL
    for (int k = 0; k < PANEL_K / 16; k++) {
        uint x[MI][4], w[NI / 2][4];
        uint x_eighth = ((uint)(2 * k) + lane / 16u ^ row) * 16u;
        uint w_eighth = ((uint)(2 * k) + lane / 8u % 2u ^ row) * 16u;
        UNROLL
        for (int i = 0; i < MI; i++) mma_load(x[i], x_at + (uint)i * 2048u + x_eighth);
        UNROLL
        for (int i = 0; i < NI / 2; i++) mma_load(w[i], w_at + (uint)i * 2048u + w_eighth);
        UNROLL
        for (int i = 0; i < MI; i++) {
            UNROLL
            for (int j = 0; j < NI; j++)
                mma_bf16(s.v[i][j], x[i], w[j / 2][j % 2 * 2], w[j / 2][j % 2 * 2 + 1]);
        }
    }
}
GPU_FN void panel_arrived() {}
GPU_FN void panel_finish() {}
enum { PANEL_READ = 1 };

#endif

template <int STAGES>
GPU_FN void panel_loop(panel_sums &s, const panel_source &p, uint n_steps, uint warp, uint lane)
{
    enum { AHEAD = STAGES - PANEL_READ };
    uint memory = panel_shared();
    UNROLL
    for (uint i = 0u; i < (uint)AHEAD; i++) {
        if (i < n_steps) panel_fetch(p, i * (uint)PANEL_K, i);
        mma_commit();
    }
    for (uint i = 0u; i < n_steps; i++) {
        mma_wait<AHEAD - 1>();
        panel_arrived();
        __syncthreads();
        uint next = i + (uint)AHEAD;
        if (next < n_steps) panel_fetch(p, next * (uint)PANEL_K, next % (uint)STAGES);
        mma_commit();
        panel_multiply(s, memory + i % (uint)STAGES * (uint)((PANEL_M + PANEL_N) * 128), warp,
                       lane);
    }
    panel_finish();
}

/* ---- what becomes of the sums ---- */

struct panel_out {
    DEV(const float) add[2];
    CONST(float) bias[MATMUL_MAX];
    DEV(float) y[MATMUL_MAX];
};

/* Two neighbouring outputs of row t from column `col` on; at: of row t's first output in y. */
GPU_FN void panel_put(const panels_args &a, const panel_part &part, CONST(float) bias,
                      DEV(const float) add0, DEV(const float) add1, DEV(float) y, u64 at, uint t,
                      uint col, const float *v)
{
    UNROLL
    for (uint i = 0u; i < 2u; i++, col++) {
        if (col >= part.n_out) break;
        float f = v[i];
        if (part.has_bias != 0u) f += bias[col];
        if (a.add_pitch[0]) f = add0[t * a.add_pitch[0] + col] + f;
        if (a.add_pitch[1]) f = add1[t * a.add_pitch[1] + col] + f;
        y[at + col] = f;
    }
}

/* The same of gate and up: y = silu(g)·u. Both have their bias. */
GPU_FN void panel_put_glu(const panels_args &a, const panel_out &o, u64 at, uint col,
                          const float *gate, const float *up)
{
    UNROLL
    for (uint i = 0u; i < 2u; i++, col++) {
        if (col >= a.part[0].n_out) break;
        float g = gate[i], u = up[i];
        if (a.part[0].has_bias != 0u) g += o.bias[0][col];
        if (a.part[1].has_bias != 0u) u += o.bias[1][col];
        o.y[0][at + col] = g * num_sigmoid(g) * u;
    }
}

/* All of a thread's; t and y: row and first column of y for each of its rows, t of UINT_MAX: none.
 */
GPU_FN void panel_put_all(const panel_sums &s, const panels_args &a, const panel_out &o,
                          const uint *t, const uint *y, uint n0, uint warp, uint lane)
{
    enum { ROWS = 2 * panel_sums::MI, NI = panel_sums::NI };
    UNROLL
    for (int j = 0; j < NI; j += 2) {
        uint n = n0 + panel_column_of(j, warp) + lane % 4u * 2u;
        bool second = a.part[1].n_out > 0u && n >= a.part[1].begin && a.glu == 0u;
        bool third = second && a.part[2].n_out > 0u && n >= a.part[2].begin;
        const panel_part &part = a.part[third ? 2 : second ? 1 : 0];
        CONST(float) bias = third ? o.bias[2] : second ? o.bias[1] : o.bias[0];
        DEV(float) to = third ? o.y[2] : second ? o.y[1] : o.y[0];
        UNROLL
        for (int i = 0; i < ROWS; i++) {
            const float *low = s.v[i / 2][j] + i % 2 * 2, *high = s.v[i / 2][j + 1] + i % 2 * 2;
            u64 at = (u64)t[i] * part.y_pitch + y[i];
            if (t[i] == 0xffffffffu) continue;
            if (a.glu != 0u) {
                panel_put_glu(a, o, at, n / 16u * 8u + n % 8u, low, high);
                continue;
            }
            uint col = n - part.begin;
            panel_put(a, part, bias, o.add[0], o.add[1], to, at, t[i], col, low);
            panel_put(a, part, bias, o.add[0], o.add[1], to, at, t[i], col + 8u, high);
        }
    }
}

/* group.x: PANEL_M rows of class P, .y: PANEL_N rows of the panel of weights, .z: slice */
template <int STAGES>
GPU_FN void panels(DEV(const uint) head, DEV(const u16) x, DEV(const u16) w, DEV(const uint) places,
                   const panel_out &o, const panels_args &a)
{
    uint warp = threadIdx.x / 32u, lane = threadIdx.x % 32u, m0 = blockIdx.x * (uint)PANEL_M;
    uint slice = blockIdx.z, n0 = blockIdx.y * (uint)PANEL_N, row = threadIdx.x / 8u;
    dep_launch();
    dep_wait();
    uint first = head[HEAD_N_D], n_rows = head[HEAD_N_ROWS] - first, begin = 0u;
    if (a.n_used > 0u) {
        begin = places[a.first + slice];
        n_rows = places[a.first + slice + 1u] - begin;
        places += a.n_experts + 1u + begin;
    }
    if (m0 >= n_rows) return;

    panel_source p;
    u64 eighth = threadIdx.x % 8u * 8u;
    UNROLL
    for (uint i = 0u; i < (uint)PANEL_M / 32u; i++) {
        uint at = min(m0 + i * 32u + row, n_rows - 1u);
        if (a.n_used > 0u) at = a.per_slot != 0u ? places[at] : places[at] / a.n_used;
        p.x[i] = x + (u64)(slice * a.x_slice + at) * a.pitch + eighth;
    }
    p.w = w + (u64)(slice * a.w_slice + n0 + row) * a.pitch + eighth;
    p.w_step = 32ull * a.pitch;
    p.to = panel_shared() + row * 128u + (threadIdx.x % 8u ^ row % 8u) * 16u;

    panel_sums s;
    UNROLL
    for (int i = 0; i < s.MI * s.NI * 4; i++) (&s.v[0][0][0])[i] = 0.0f;
    panel_loop<STAGES>(s, p, a.pitch / (uint)PANEL_K, warp, lane);

    uint t[2 * panel_sums::MI], y[2 * panel_sums::MI];
    UNROLL
    for (int i = 0; i < 2 * s.MI; i++) {
        uint r = m0 + panel_row_of(i / 2, warp) + lane / 4u + (uint)(i % 2) * 8u;
        t[i] = first + r;
        y[i] = slice * a.y_slice;
        if (a.n_used > 0u && r < n_rows) {
            t[i] = first + places[r] / a.n_used;
            y[i] = places[r] % a.n_used * a.part[0].n_out;
        }
        if (r >= n_rows) t[i] = 0xffffffffu;
    }
    panel_put_all(s, a, o, t, y, n0, warp, lane);
}

#define PANELS_KERNEL(STAGES, GROUPS)                                                          \
    extern "C" __global__ void __launch_bounds__(PANEL_THREADS, GROUPS) k_panels_mma_##STAGES( \
        DEV(const uint) head, DEV(const u16) x, DEV(const u16) w, DEV(const uint) places,      \
        DEV(const float) add0, DEV(const float) add1, CONST(float) b0, DEV(float) y0,          \
        CONST(float) b1, DEV(float) y1, CONST(float) b2, DEV(float) y2, ARGS(panels_args) a)   \
    {                                                                                          \
        panel_out o = {{add0, add1}, {b0, b1, b2}, {y0, y1, y2}};                              \
        panels<STAGES>(head, x, w, places, o, a);                                              \
    }
PANELS_KERNEL(3, 2)
PANELS_KERNEL(6, 1)

#endif
