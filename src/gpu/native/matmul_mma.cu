/* Products of two rows of class D and more on matrix units, bit for bit those of matvec.gpu and
 * matmul.gpu: int8 dots are exact, so only the order of what follows counts. There lane l sums
 * units l, l + 32, .. of a weight's row, then lanes are added by halves. Here a warp has the sums
 * of four of those 32 lanes for a whole tile of MMA_M outputs and N rows in its registers; warps'
 * sums are added in shared memory, in the same order. A group makes tiles one after another and
 * keeps stages of the next ones coming. */
#include "gpu/args.h"
#include "gpu/kernels/units.h"
#include "gpu/native/matmul_mma.h"
#include "gpu/native/mma.h"
#include "gpu/num_f32.h"
#include "gpu/simt.h"

#if !defined __CUDA_ARCH__ || __CUDA_ARCH__ >= 800

/* A dot begins at MAGIC's bits, so that what it ends at is the float MAGIC + dot. */
#define MAGIC 12582912.0f
enum { MAGIC_BITS = 0x4b400000 };

/* Have scales so few digits that MAGIC·d is exact? NL4's and MX4's are any floats. */
#define MMA_SHORT_SCALES(E) ((E) == UNIT_I8 || (E) == UNIT_K6)

template <int E, int N> struct mma_shape {
    enum {
        COLUMNS = UNIT_COLUMNS(E),
        WIDE = COLUMNS / 16, /* units of activations for one of weights */
        SHARE = COLUMNS == 16 && E != UNIT_K6 ? 2 : 1,
        WORDS = UNIT_SCALES(E),
        N_D = E == UNIT_K2 ? 4 : 2,
        GROUPS = MMA_GROUPS(COLUMNS, SHARE, N),
        STAGES = MMA_STAGES(COLUMNS, SHARE, WORDS, N_D, N),
        AHEAD = STAGES - 1,
        STAGE = MMA_STAGE(COLUMNS, SHARE, WORDS, N),
        X_PITCH = MMA_X_PITCH(COLUMNS),
        SCALES_AT = MMA_SCALES_AT(COLUMNS, N),
        SCALES_PITCH = MMA_SCALES_PITCH(N),
        WORDS_AT = MMA_WORDS_AT(COLUMNS, N),
        D_BYTES = MMA_D_BYTES(SHARE, N_D),
        D_PITCH = MMA_D_PITCH(N_D),
        WARPS = MMA_THREADS / 32,
        ROWS = MMA_M / WARPS,                      /* weights' rows that a warp brings */
        SCALES = MMA_M * 32 / SHARE / MMA_THREADS, /* units whose scales a thread brings */
        LANES = 32 / WARPS,                        /* whose sums a warp has */
        TILES = N / 8,                             /* of eight rows */
    };
};

GPU_FN u8 *mma_memory()
{
    extern __shared__ __align__(16) u8 mma_bytes[];
    return mma_bytes;
}
GPU_FN uint mma_shared(const void *p)
{
    return (uint)__cvta_generic_to_shared(p);
}
GPU_FN void mma_send_16(u8 *to, const void *from)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(mma_shared(to)), "l"(from)
                 : "memory");
}
/* The aligned word that holds what is at p, and that again once it is there. */
GPU_FN void mma_send_word(u8 *to, const void *p)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(mma_shared(to)),
                 "l"((u64)p & ~3ull)
                 : "memory");
}
template <int BYTES> GPU_FN uint mma_word(const u8 *from, uint p)
{
    uint v = *(const volatile uint *)from;
    return BYTES < 4 ? v >> (p & 3u) * 8u & ((1u << BYTES % 4 * 8) - 1u) : v;
}

/* What a launch multiplies, and what becomes of it. */
struct mma_product {
    CONST(uint4) q[MATMUL_MAX];
    CONST(u8) s[MATMUL_MAX];
    DEV(const uint4) x;
    DEV(const float) scales;
};
struct mma_out {
    DEV(const float) add[2];
    CONST(float) bias[MATMUL_MAX];
    DEV(float) y[MATMUL_MAX];
};
template <class T> GPU_FN T mma_pick(const T *of, uint part)
{
    return part == 0u ? of[0] : part == 1u ? of[1] : of[2];
}

/* Where output `out` of a tile is: its matrix, its row there, whether it is one. With glu eight of
 * every sixteen belong to the second matrix. */
struct mma_place {
    uint part, row, w_row; /* w_row: of all slices, the last for those behind it */
    bool real;
};
GPU_FN mma_place mma_place_of(const matmul_args &a, uint tile, uint out, uint slice)
{
    mma_place p = {0u, tile * (uint)MMA_M + out, 0u, true};
    if (a.glu) {
        p.part = out / 8u % 2u;
        p.row = tile * (uint)(MMA_M / 2) + out / 16u * 8u + out % 8u;
    } else if (p.row >= a.part[0].n_out && a.part[1].n_out > 0u) {
        p.row -= a.part[0].n_out, p.part = 1u;
        if (p.row >= a.part[1].n_out && a.part[2].n_out > 0u) p.row -= a.part[1].n_out, p.part = 2u;
    }
    uint n_out = a.part[p.part].n_out;
    p.real = p.row < n_out;
    p.w_row = slice * n_out + min(p.row, n_out - 1u);
    return p;
}

/* ---- global to shared memory ---- */

/* Rows 2i and 2i + 1 of sixteen outputs lie eight apart, rows 4i .. 4i + 3 of activations as pairs:
 * so what one thread gets of a product belongs to neighbours, whose scales are one load. */
GPU_FN uint mma_w_row(uint out)
{
    return (out & 16u) + out / 2u % 8u + out % 2u * 8u;
}
GPU_FN uint mma_x_row(uint row)
{
    return (row & 16u) + row / 4u % 4u * 2u + row / 2u % 2u * 8u + row % 2u;
}

/* What a thread brings of each stage. A warp brings whole rows of weights, a unit a lane; a thread
 * the scales of a few units, which it will decode itself. */
template <int E, int N> struct mma_source {
    typedef mma_shape<E, N> S;
    enum {
        UNITS = 32 * S::WIDE, /* of activations in a stage */
        BLOCKS = S::COLUMNS,
        X_TIMES = N * UNITS / MMA_THREADS,
        B_TIMES = N * BLOCKS / MMA_THREADS,
    };
    CONST(uint4) q[S::ROWS];
    CONST(u8) s[S::SCALES];
    uint x, b, t; /* first unit and block of activations; row that they start from */

    static __device__ __forceinline__ uint scale_row(int i)
    {
        return (threadIdx.x + (uint)(i * MMA_THREADS)) / (uint)(32 / S::SHARE);
    }
    static __device__ __forceinline__ uint scale_unit()
    {
        return threadIdx.x % (uint)(32 / S::SHARE) * (uint)S::SHARE;
    }
    __device__ __forceinline__ void begin(const mma_product &m, const matmul_args &a, uint tile,
                                          uint first, uint slice)
    {
        UNROLL
        for (int i = 0; i < S::ROWS; i++) {
            mma_place p = mma_place_of(a, tile, threadIdx.x / 32u + (uint)(i * S::WARPS), slice);
            q[i] = mma_pick(m.q, p.part) + p.w_row * a.q_row + threadIdx.x % 32u;
        }
        UNROLL
        for (int i = 0; i < S::SCALES; i++) {
            mma_place p = mma_place_of(a, tile, scale_row(i), slice);
            s[i] = mma_pick(m.s, p.part) + (u64)p.w_row * a.s_row;
        }
        t = first;
        x = (t + threadIdx.x / (uint)UNITS) * (a.x_pitch / 16u) + threadIdx.x % (uint)UNITS;
        b = (t + threadIdx.x / (uint)BLOCKS) * (a.x_pitch / 32u) + threadIdx.x % (uint)BLOCKS;
    }
    __device__ __forceinline__ void send_weights(u8 *stage, uint step, uint n_units)
    {
        uint u = threadIdx.x % 32u, left = n_units - step * 32u;
        UNROLL
        for (int i = 0; i < S::ROWS; i++) {
            uint row = mma_w_row(threadIdx.x / 32u + (uint)(i * S::WARPS));
            if (u < left) mma_send_16(stage + row * (uint)MMA_W_PITCH + u * 16u, q[i] + step * 32u);
        }
        u = scale_unit();
        u8 *to = stage + S::WORDS_AT + threadIdx.x * 4u;
        UNROLL
        for (int i = 0; i < S::SCALES; i++) {
            CONST(u8) from = s[i] + step * unit_scale_at<E, 0>(32u);
            if (u >= left) continue;
            mma_send_word(to + i * S::WORDS * MMA_THREADS * 4, from + unit_scale_at<E, 0>(u));
            if (S::WORDS > 1)
                mma_send_word(to + (i * S::WORDS + 1) * MMA_THREADS * 4,
                              from + unit_scale_at<E, 1>(u));
        }
    }
    /* What lies in the place of rows behind the last does no harm: a row's sums are its own. */
    __device__ __forceinline__ void send_rows(const mma_product &m, const matmul_args &a, u8 *stage,
                                              uint step, uint n_rows)
    {
        uint u = threadIdx.x % (uint)UNITS, row = threadIdx.x / (uint)UNITS;
        u8 *to = stage + MMA_X_AT + u * 16u;
        bool real = u + step * (uint)UNITS < a.n_in / 16u;
        UNROLL
        for (int i = 0; i < X_TIMES; i++) {
            uint r = row + (uint)(i * MMA_THREADS / UNITS);
            if (real && t + r < n_rows)
                mma_send_16(to + mma_x_row(r) * (uint)S::X_PITCH,
                            m.x + (x + (r - row) * (a.x_pitch / 16u) + step * (uint)UNITS));
        }
        u = threadIdx.x % (uint)BLOCKS, row = threadIdx.x / (uint)BLOCKS;
        to = stage + S::SCALES_AT + u * (uint)(S::SCALES_PITCH * 4);
        real = u + step * (uint)BLOCKS < a.n_in / 32u;
        UNROLL
        for (int i = 0; i < B_TIMES; i++) {
            uint r = row + (uint)(i * MMA_THREADS / BLOCKS);
            if (real && t + r < n_rows)
                mma_send_word(to + r * 4u,
                              m.scales + (b + (r - row) * (a.x_pitch / 32u) + step * (uint)BLOCKS));
        }
    }
    /* Scales that were sent, decoded to where all find them. low: of the rows' addresses; a step's
     * are a multiple of four bytes. */
    static __device__ __forceinline__ void decode(const u8 *stage, float *d, const uint *low)
    {
        const u8 *from = stage + S::WORDS_AT + threadIdx.x * 4u;
        uint u = scale_unit();
        UNROLL
        for (int i = 0; i < S::SCALES; i++) {
            uint2 bits = make_uint2(0u, 0u);
            bits.x = mma_word<UNIT_SCALE_BYTES(E, 0)>(from + i * S::WORDS * MMA_THREADS * 4,
                                                      low[i] + unit_scale_at<E, 0>(u));
            if (S::WORDS > 1)
                bits.y = mma_word<UNIT_SCALE_BYTES(E, 1)>(
                    from + (i * S::WORDS + 1) * MMA_THREADS * 4, low[i] + unit_scale_at<E, 1>(u));
            float v[4];
            unit_scales<E>(bits, v);
            if (MMA_SHORT_SCALES(E)) v[1] = -MAGIC * v[0];
            float2 *to =
                (float2 *)(d + u / (uint)S::SHARE * (uint)S::D_PITCH + scale_row(i) * (uint)S::N_D);
            to[0] = make_float2(v[0], v[1]);
            if (S::N_D == 4) to[1] = make_float2(v[2], v[3]);
        }
    }
};

/* ---- multiplying one stage ---- */

/* [lane][sixteen outputs][eight rows]: as mma leaves them */
template <int E, int N> struct mma_sums {
    float v[mma_shape<E, N>::LANES][MMA_M / 16][N / 8][4];
};

/* What unit_dot of units.h gives, from a dot with MAGIC in it; sum: of the activations. */
template <int E>
GPU_FN float mma_value(const float *d, float dot, float sum, float dot2, float sum2)
{
    if (E == UNIT_K2)
        return fmaf(d[0], dot - MAGIC, fmaf(d[1], sum, fmaf(d[2], dot2 - MAGIC, d[3] * sum2)));
    if (UNIT_HAS_MIN(E)) return fmaf(d[0], dot - MAGIC, d[1] * sum);
    if (!MMA_SHORT_SCALES(E)) return d[0] * (dot - MAGIC);
    return fmaf(d[0], dot, d[1]); /* d·(MAGIC + dot) - d·MAGIC: rounded once */
}

/* Words of columns 4i .. 4i + 3 of a unit with nibbles, and of those 16 behind. */
template <int E> GPU_FN void mma_nibbles(uint raw, uint *low, uint *high)
{
    *low = raw & 0x0f0f0f0fu, *high = raw >> 4 & 0x0f0f0f0fu;
    if (E == UNIT_NL4 || E == UNIT_MX4) {
        uint t[4];
        UNROLL
        for (int i = 0; i < 4; i++) t[i] = E == UNIT_NL4 ? units_nl4[i] : units_mx4[i];
        UNROLL
        for (int i = 0; i < 2; i++) {
            uint n = i == 0 ? *low : *high;
            n |= n >> 4, n = __byte_perm(n, 0u, 0x4420); /* nibbles that choose bytes */
            uint lo = __byte_perm(t[0], t[1], n & 0x7777u);
            uint hi = __byte_perm(t[2], t[3], n & 0x7777u);
            *(i == 0 ? low : high) = __byte_perm(lo, hi, 0x3210u + (n >> 1 & 0x4444u));
        }
    }
}

/* One unit of sixteen outputs by eight rows. a: its words, x0 and x1: those of the rows' columns,
 * the second for nibbles; d: scales of two outputs; scales: of two rows. */
template <int E>
GPU_FN void mma_unit(float *acc, const int *magic, const uint *a, uint x0, uint x1, const float *d,
                     const float *scales)
{
    enum { ONES = 0x01010101, N_D = E == UNIT_K2 ? 4 : 2 };
    uint ones[4] = {ONES, ONES, ONES, ONES};
    int dot[4], dot2[4] = {0}, sum[4] = {0}, sum2[4] = {0};
    if (UNIT_HAS_NIBBLES(E) && E != UNIT_K2) {
        mma_i8_32(dot, magic, a, x0, x1);
        if (UNIT_HAS_MIN(E)) mma_i8_32(sum, magic, ones, x0, x1);
    } else {
        mma_i8_16(dot, magic, a[0], a[1], x0);
        if (UNIT_HAS_MIN(E)) mma_i8_16(sum, magic, ONES, ONES, x0);
    }
    if (E == UNIT_K2) {
        mma_i8_16(dot2, magic, a[2], a[3], x1);
        mma_i8_16(sum2, magic, ONES, ONES, x1);
    }
    UNROLL
    for (int i = 0; i < 4; i++) {
        float s = __int_as_float(sum[i % 2]) - MAGIC, s2 = __int_as_float(sum2[i % 2]) - MAGIC;
        float v =
            mma_value<E>(d + i / 2 * N_D, __int_as_float(dot[i]), s, __int_as_float(dot2[i]), s2);
        acc[i] = fmaf(scales[i % 2], v, acc[i]);
    }
}

GPU_FN void mma_floats(float *to, const float *from)
{
    float4 v = *(const float4 *)from;
    to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
}

/* The step's units: 32, or with REST only the first n. */
template <int E, int N, int REST>
GPU_FN void mma_multiply(mma_sums<E, N> &acc, const u8 *stage, const float *d, const int *magic,
                         uint n, uint warp, uint lane)
{
    typedef mma_shape<E, N> S;
    uint w_at = mma_shared(stage) + lane * (uint)MMA_W_PITCH + warp * 16u;
    uint x_at =
        mma_shared(stage) + MMA_X_AT + warp * (uint)(S::WIDE * 16) +
        (N == 16 ? lane % 16u * (uint)S::X_PITCH + lane / 16u * 16u : lane * (uint)S::X_PITCH);
    const float *s_at = (const float *)(stage + S::SCALES_AT) + lane % 4u * 4u +
                        warp * (uint)S::WIDE / 2u * (uint)S::SCALES_PITCH;
    d += lane / 4u * (uint)(2 * S::N_D) + warp / (uint)S::SHARE * (uint)S::D_PITCH;
    UNROLL
    for (int k = 0; k < S::LANES; k++) {
        uint w[4], x[2][4]; /* x: [half of the columns][tile]; both halves in x[0] if N is 16 */
        if (REST && warp + (uint)(k * S::WARPS) >= n) return;
        mma_load(w, w_at + (uint)(k * S::WARPS * 16));
        mma_load(x[0], x_at + (uint)(k * S::WARPS * S::WIDE * 16));
        if (N == 32 && S::WIDE == 2) mma_load(x[1], x_at + (uint)(k * S::WARPS * 32 + 16));
        float scales[N / 4];
        UNROLL
        for (int i = 0; i < N / 16; i++)
            mma_floats(scales + 4 * i,
                       s_at + k * S::WARPS * S::WIDE / 2 * S::SCALES_PITCH + i * 16);
        UNROLL
        for (int i = 0; i < MMA_M / 16; i++) {
            uint a[4] = {w[2 * i], w[2 * i + 1], 0u, 0u};
            if (UNIT_HAS_NIBBLES(E)) {
                mma_nibbles<E>(w[2 * i], &a[0], &a[2]);
                mma_nibbles<E>(w[2 * i + 1], &a[1], &a[3]);
            }
            float both[2 * S::N_D];
            UNROLL
            for (int j = 0; j < 2 * S::N_D; j += 4)
                mma_floats(both + j,
                           d + k * S::WARPS / S::SHARE * S::D_PITCH + i * 16 * S::N_D + j);
            UNROLL
            for (int j = 0; j < S::TILES; j++)
                mma_unit<E>(acc.v[k][i][j], magic, a, x[0][j], N == 16 ? x[0][2 + j % 2] : x[1][j],
                            both, scales + 2 * j);
        }
    }
}

/* ---- what becomes of the sums ---- */

/* v[0] = all of them, by halves */
template <int COUNT> GPU_FN void mma_halves(float *v)
{
    UNROLL
    for (int i = 0; i < COUNT / 2; i++) v[i] = v[i] + v[i + COUNT / 2];
    if constexpr (COUNT > 2) mma_halves<COUNT / 2>(v);
}

/* Sixteen outputs' sums of this warp's lanes to where all find them. */
template <int E, int N>
GPU_FN void mma_leave(const mma_sums<E, N> &acc, int which, float *sums, uint warp, uint lane)
{
    typedef mma_shape<E, N> S;
    float *to = sums + (warp * (uint)N + lane % 4u * 4u) * (uint)MMA_SUMS_PITCH + lane / 4u * 2u;
    UNROLL
    for (int j = 0; j < S::TILES; j++) {
        float v[4];
        UNROLL
        for (int i = 0; i < 4; i++) {
            float of[S::LANES];
            UNROLL
            for (int k = 0; k < S::LANES; k++) of[k] = acc.v[k][which][j][i];
            mma_halves<S::LANES>(of);
            v[i] = of[0];
        }
        float *row = to + (j / 2 * 16 + j % 2 * 2) * MMA_SUMS_PITCH;
        *(float2 *)row = make_float2(v[0], v[2]);
        *(float2 *)(row + MMA_SUMS_PITCH) = make_float2(v[1], v[3]);
    }
}
template <int E, int N> GPU_FN float mma_join(const float *sums, uint row, uint out)
{
    typedef mma_shape<E, N> S;
    float of[S::WARPS];
    UNROLL
    for (int k = 0; k < S::WARPS; k++) of[k] = sums[((uint)(k * N) + row) * MMA_SUMS_PITCH + out];
    mma_halves<S::WARPS>(of);
    return of[0];
}

/* v: output `out` of row t */
GPU_FN void mma_put(const matmul_args &a, const mma_out &o, float v, uint tile, uint out, uint t,
                    uint n_rows, uint slice)
{
    mma_place p = mma_place_of(a, tile, out, slice);
    if (p.real && a.part[p.part].has_bias) v += mma_pick(o.bias, p.part)[p.row];
    float up = __shfl_down_sync(0xffffffffu, v, 8);
    if (a.glu) v = v * num_sigmoid(v) * up;
    if (!p.real || t >= n_rows || (a.glu && p.part)) return;
    if (a.add_pitch[0]) v = o.add[0][t * a.add_pitch[0] + p.row] + v;
    if (a.add_pitch[1]) v = o.add[1][t * a.add_pitch[1] + p.row] + v;
    mma_pick(o.y, p.part)[t * a.part[p.part].y_pitch + slice * a.y_stride + p.row] = v;
}

/* Where a group is: in which of its tiles (first of rows, then of outputs), step and stage. */
struct mma_at {
    uint tile, step, stage;
};

/* group.x: a share of all tiles, .z: slice */
template <int E, int N>
GPU_FN void matmul_mma(CONST(uint) head, const mma_product &m, const mma_out &o,
                       const matmul_args &a)
{
    typedef mma_shape<E, N> S;
    uint warp = threadIdx.x / 32u, lane = threadIdx.x % 32u, slice = blockIdx.z;
    uint n_rows = head[a.rows], across = (n_rows + (uint)N - 1u) / (uint)N;
    uint n_units = a.n_in / (uint)S::COLUMNS, n_steps = (n_units + 31u) / 32u;
    uint total = a.part[0].n_out + a.part[1].n_out + a.part[2].n_out;
    uint n_tiles = (total + (uint)MMA_M - 1u) / (uint)MMA_M * across;
    u8 *memory = mma_memory();
    float *d = (float *)(memory + S::STAGES * S::STAGE), *sums = d + 2 * S::D_BYTES / 4;
    mma_source<E, N> source;
    mma_at now = {blockIdx.x, 0u, 0u}, next = now;
    dep_launch();
    auto send = [&](bool weights, bool rows) {
        u8 *to = memory + next.stage * (uint)S::STAGE;
        if (next.tile >= n_tiles) return;
        if (next.step == 0u)
            source.begin(m, a, next.tile / across, next.tile % across * (uint)N, slice);
        if (weights) source.send_weights(to, next.step, n_units);
        if (rows) source.send_rows(m, a, to, next.step, n_rows);
        if (++next.step == n_steps) next.step = 0u, next.tile += gridDim.x;
        next.stage = next.stage == (uint)S::AHEAD ? 0u : next.stage + 1u;
    };
    for (int i = 0; i < S::AHEAD; i++) send(true, false);
    dep_wait();
    next = now;
    for (int i = 0; i < S::AHEAD; i++) {
        send(false, true);
        mma_commit();
    }
    mma_sums<E, N> acc;
    int magic[4];
    uint low[S::SCALES];
    UNROLL
    for (int i = 0; i < 4; i++) asm volatile("mov.s32 %0, %1;" : "=r"(magic[i]) : "r"(MAGIC_BITS));
    for (uint odd = 0u; now.tile < n_tiles; odd ^= 1u) {
        if (now.step == 0u) {
            UNROLL
            for (int i = 0; i < (int)(sizeof acc / 4); i++) (&acc.v[0][0][0][0])[i] = 0.0f;
            UNROLL
            for (int i = 0; i < S::SCALES; i++)
                low[i] =
                    mma_place_of(a, now.tile / across, source.scale_row(i), slice).w_row * a.s_row;
        }
        const u8 *stage = memory + now.stage * (uint)S::STAGE;
        float *decoded = d + odd * (uint)(S::D_BYTES / 4);
        mma_wait<S::AHEAD - 1>();
        source.decode(stage, decoded, low);
        __syncthreads();
        send(true, true);
        mma_commit();
        uint n = n_units - now.step * 32u;
        if (n >= 32u)
            mma_multiply<E, N, 0>(acc, stage, decoded, magic, n, warp, lane);
        else
            mma_multiply<E, N, 1>(acc, stage, decoded, magic, n, warp, lane);
        now.stage = now.stage == (uint)S::AHEAD ? 0u : now.stage + 1u;
        if (++now.step < n_steps) continue;
        UNROLL
        for (int i = 0; i < MMA_M / 16; i++) {
            if (i > 0) __syncthreads();
            mma_leave(acc, i, sums, warp, lane);
            __syncthreads();
            for (uint row = threadIdx.x / 16u; row < (uint)N; row += (uint)(MMA_THREADS / 16))
                mma_put(a, o, mma_join<E, N>(sums, row, threadIdx.x % 16u), now.tile / across,
                        (uint)(i * 16) + threadIdx.x % 16u, now.tile % across * (uint)N + row,
                        n_rows, slice);
        }
        now.step = 0u, now.tile += gridDim.x;
    }
}

#define MATMUL_MMA_KERNEL(name, E, N)                                                             \
    extern "C" __global__ void __launch_bounds__(MMA_THREADS, (mma_shape<E, N>::GROUPS))          \
        k_matmul_##name##_mma##N(                                                                 \
            CONST(uint) head, DEV(const uint4) x, DEV(const float) scales, DEV(const float) add0, \
            DEV(const float) add1, CONST(uint4) q0, CONST(u8) s0, CONST(float) b0, DEV(float) y0, \
            CONST(uint4) q1, CONST(u8) s1, CONST(float) b1, DEV(float) y1, CONST(uint4) q2,       \
            CONST(u8) s2, CONST(float) b2, DEV(float) y2, ARGS(matmul_args) a)                    \
    {                                                                                             \
        uint at = blockIdx.z * a.x_stride;                                                        \
        mma_product m = {{q0, q1, q2}, {s0, s1, s2}, x + at / 16u, scales + at / 32u};            \
        mma_out o = {{add0, add1}, {b0, b1, b2}, {y0, y1, y2}};                                   \
        matmul_mma<E, N>(head, m, o, a);                                                          \
    }
#define MATMUL_MMA_KERNELS(name, E) \
    MATMUL_MMA_KERNEL(name, E, 16)  \
    MATMUL_MMA_KERNEL(name, E, 32)

MATMUL_MMA_KERNELS(i8, UNIT_I8)
MATMUL_MMA_KERNELS(u4, UNIT_U4)
MATMUL_MMA_KERNELS(u8, UNIT_U8)
MATMUL_MMA_KERNELS(nl4, UNIT_NL4)
MATMUL_MMA_KERNELS(mx4, UNIT_MX4)
MATMUL_MMA_KERNELS(k4, UNIT_K4)
MATMUL_MMA_KERNELS(k5, UNIT_K5)
MATMUL_MMA_KERNELS(k6, UNIT_K6)
MATMUL_MMA_KERNELS(k2, UNIT_K2)

#endif
