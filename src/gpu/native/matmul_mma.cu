/* Products of two rows of class D and more on matrix units, bit for bit those of matvec.gpu and
 * matmul.gpu: int8 dots are exact, so only the order of what follows counts. There lane l sums
 * units l, l + 32, .. of a weight's row, then lanes are added by halves. Here a warp has the sums
 * of four of those 32 lanes for a tile of MMA_M outputs and up to 32 rows in its registers; warps'
 * sums are added in shared memory, in the same order.
 *
 * 32 sums an output are so many that a tile of 64 rows has registers for half of them: it goes over
 * its columns in two phases, lanes l and l + 16 for l < 8, then for the others, and keeps what the
 * first gave in shared memory.
 *
 * Eight warps of a group do nothing but bring what the other eight multiply, stage by stage, and
 * decode scales; so those who multiply issue little else. */
#include "gpu/args.h"
#include "gpu/kernels/units.h"
#include "gpu/native/bulk.h"
#include "gpu/native/matmul_mma.h"
#include "gpu/native/mma.h"
#include "gpu/num_f32.h"
#include "gpu/simt.h"

#if !defined __CUDA_ARCH__ || HAS_BULK

/* A dot begins at MAGIC's bits, so that what it ends at is the float MAGIC + dot. */
#define MAGIC 12582912.0f
enum { MAGIC_BITS = 0x4b400000 };

/* Registers of threads that bring, and of those that multiply. */
enum { MMA_FEWER = 48, MMA_MORE = 208 };

/* Have scales so few digits that MAGIC·d is exact? NL4's and MX4's are any floats. */
#define MMA_SHORT_SCALES(E) \
    (UNIT_KIND(E) == UNIT_SCALES_HALF || UNIT_KIND(E) == UNIT_SCALES_BY_16)

template <int E, int N> struct mma_shape {
    enum {
        COLUMNS = UNIT_COLUMNS(E),
        WIDE = COLUMNS / 16, /* units of activations for one of weights */
        SHARE = COLUMNS == 16 && UNIT_INNER(E) != 16 ? 2 : 1,
        WORDS = UNIT_SCALES(E),
        N_D = UNIT_HAS_HALVES(E) ? 4 : 2,
        STAGES = MMA_STAGES(COLUMNS, SHARE, WORDS, N_D, N),
        AHEAD = STAGES > 3 ? 2 : 1, /* stages on their way that a team sent */
        STAGE = MMA_STAGE(COLUMNS, SHARE, WORDS, N_D, N),
        X_AT = MMA_X_AT(SHARE, WORDS, N),
        D_AT = MMA_D_AT(COLUMNS, SHARE, WORDS, N),
        D_PITCH = MMA_D_PITCH(N_D),
        PIECE = PIECE_BYTES(N),
        UNITS = MMA_UNITS(N), /* of a row in a stage */
        PHASES = 32 / UNITS,
        RUNS = PHASES, /* pieces of a stage lie together so many times */
        RUN = UNITS * COLUMNS / PIECE_COLUMNS / RUNS,
        ROWS = MMA_M * UNITS / MMA_BRINGERS, /* weights' rows of which a thread brings a unit */
        SCALES = MMA_M * UNITS / SHARE / MMA_BRINGERS, /* units whose scales it brings */
        LANES = 4,                                     /* whose sums a warp has */
        PAIRS = PHASES == 2, /* are they l, l + 1, l + 16, l + 17, or l, l + 8, l + 16, l + 24? */
        WARP_ROWS = N < 32 ? N : 32,
        TILES = WARP_ROWS / 8, /* of eight rows */
    };
};

GPU_FN u8 *mma_memory()
{
    extern __shared__ __align__(128) u8 mma_bytes[];
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
    DEV(const u8) x;
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

/* What a group goes over: items are tiles of rows first, then of outputs; in an item phases, in a
 * phase steps. */
struct mma_walk {
    uint n_items, n_steps, n_units, across, n_rows, slice;
};
struct mma_at {
    uint item, phase, step;
};
/* A stage's place in memory, and how often that was used before. */
template <class S> struct mma_stage {
    uint stage = 0u, again = 0u;

    __device__ __forceinline__ void go_on()
    {
        if (++stage == (uint)S::STAGES) stage = 0u, again++;
    }
};
template <class S> GPU_FN void mma_go_on(const mma_walk &walk, mma_at &at)
{
    if (++at.step < walk.n_steps) return;
    at.step = 0u;
    if (++at.phase < (uint)S::PHASES) return;
    at.phase = 0u;
    at.item += gridDim.x;
}
/* To the next stage of the same team. */
template <class S> GPU_FN void mma_turn(const mma_walk &walk, mma_at &at, mma_stage<S> &stage)
{
    UNROLL
    for (int i = 0; i < MMA_TEAMS; i++) {
        mma_go_on<S>(walk, at);
        stage.go_on();
    }
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

/* Rows 2i and 2i + 1 of sixteen outputs lie eight apart: so what one thread gets of a product
 * belongs to neighbours, whose scales are one load; rows of activations lie alike (k_quantise). */
GPU_FN uint mma_w_row(uint out)
{
    return (out & 16u) + out / 2u % 8u + out % 2u * 8u;
}

/* Which of a step's 32 units is unit u of a row in a stage. */
template <class S> GPU_FN uint mma_unit_of(uint u, uint phase)
{
    return S::PHASES == 1 ? u : u / 8u * 16u + phase * 8u + u % 8u;
}

/* What one of the threads that bring stages brings: units of a few rows of weights, and scales,
 * which it will decode itself. */
template <int E, int N> struct mma_source {
    typedef mma_shape<E, N> S;
    CONST(uint4) q[S::ROWS];
    CONST(u8) s[S::SCALES];

    static __device__ __forceinline__ uint row(uint me, int i)
    {
        return me / (uint)S::UNITS + (uint)(i * MMA_BRINGERS / S::UNITS);
    }
    static __device__ __forceinline__ uint scale_row(uint me, int i)
    {
        return (me + (uint)(i * MMA_BRINGERS)) / (uint)(S::UNITS / S::SHARE);
    }
    static __device__ __forceinline__ uint scale_unit(uint me)
    {
        return me % (uint)(S::UNITS / S::SHARE) * (uint)S::SHARE;
    }
    __device__ __forceinline__ void begin(const mma_product &m, const matmul_args &a, uint tile,
                                          uint slice, uint me)
    {
        UNROLL
        for (int i = 0; i < S::ROWS; i++) {
            mma_place p = mma_place_of(a, tile, row(me, i), slice);
            q[i] = mma_pick(m.q, p.part) + p.w_row * a.q_row;
        }
        UNROLL
        for (int i = 0; i < S::SCALES; i++) {
            mma_place p = mma_place_of(a, tile, scale_row(me, i), slice);
            s[i] = mma_pick(m.s, p.part) + (u64)p.w_row * a.s_row;
        }
    }
    __device__ __forceinline__ void send(u8 *stage, const mma_at &at, uint n_units, uint me) const
    {
        uint u = me % (uint)S::UNITS, left = n_units - at.step * 32u;
        uint of = mma_unit_of<S>(u, at.phase);
        UNROLL
        for (int i = 0; i < S::ROWS; i++)
            if (of < left)
                mma_send_16(stage + mma_w_row(row(me, i)) * (uint)MMA_W_PITCH(N) + u * 16u,
                            q[i] + (at.step * 32u + of));
        of = mma_unit_of<S>(scale_unit(me), at.phase);
        u8 *to = stage + MMA_WORDS_AT(N) + me * 4u;
        UNROLL
        for (int i = 0; i < S::SCALES; i++) {
            CONST(u8) from = s[i] + at.step * unit_scale_at<E, 0>(32u);
            if (of >= left) continue;
            mma_send_word(to + i * S::WORDS * MMA_BRINGERS * 4, from + unit_scale_at<E, 0>(of));
            if (S::WORDS > 1)
                mma_send_word(to + (i * S::WORDS + 1) * MMA_BRINGERS * 4,
                              from + unit_scale_at<E, 1>(of));
        }
    }
    /* Scales that were sent, decoded to where all find them. Rows may begin inside a word, a step's
     * are a multiple of four bytes. */
    static __device__ __forceinline__ void decode(u8 *stage, const matmul_args &a,
                                                  const mma_walk &walk, const mma_at &at, uint me)
    {
        const u8 *from = stage + MMA_WORDS_AT(N) + me * 4u;
        float *d = (float *)(stage + S::D_AT);
        uint u = scale_unit(me), of = mma_unit_of<S>(u, at.phase);
        UNROLL
        for (int i = 0; i < S::SCALES; i++) {
            uint2 bits = make_uint2(0u, 0u);
            uint low = 0u, row = scale_row(me, i);
            if (a.s_row % 4u)
                low = mma_place_of(a, at.item / walk.across, row, walk.slice).w_row * a.s_row;
            bits.x = mma_word<UNIT_SCALE_BYTES(E, 0)>(from + i * S::WORDS * MMA_BRINGERS * 4,
                                                      low + unit_scale_at<E, 0>(of));
            if (S::WORDS > 1)
                bits.y = mma_word<UNIT_SCALE_BYTES(E, 1)>(
                    from + (i * S::WORDS + 1) * MMA_BRINGERS * 4, low + unit_scale_at<E, 1>(of));
            float v[4];
            unit_scales<E>(bits, v);
            if (MMA_SHORT_SCALES(E)) v[1] = -MAGIC * v[0];
            float2 *to = (float2 *)(d + u / (uint)S::SHARE * (uint)S::D_PITCH + row * (uint)S::N_D);
            to[0] = make_float2(v[0], v[1]);
            if (S::N_D == 4) to[1] = make_float2(v[2], v[3]);
        }
    }
};

/* Rows of a stage come in pieces. What lies in the place of rows and columns behind the last does
 * no harm: a row's sums are its own, and units behind the last are not multiplied. */
template <class S>
GPU_FN void mma_send_rows(DEV(const u8) x, uint n_pieces, const mma_walk &walk, const mma_at &at,
                          uint to, uint barrier)
{
    uint n[S::RUNS], first[S::RUNS], all = 0u;
    u64 tile = (u64)(at.item % walk.across * gridDim.z + walk.slice) * n_pieces;
    UNROLL
    for (int i = 0; i < S::RUNS; i++) {
        first[i] =
            at.step * (uint)(S::PHASES * S::RUNS * S::RUN) + (uint)(i * S::PHASES) + at.phase;
        n[i] = first[i] >= n_pieces ? 0u : min((uint)S::RUN, n_pieces - first[i]) * (uint)S::PIECE;
        all += n[i];
    }
    bulk_expect(barrier, all);
    UNROLL
    for (int i = 0; i < S::RUNS; i++)
        if (n[i] > 0u)
            bulk_send(to + (uint)(i * S::RUN * S::PIECE), x + (tile + first[i]) * (u64)S::PIECE,
                      n[i], barrier);
}

/* Barriers of stages: full, of those who bring and the bytes of rows; free, of the warps that
 * multiply. */
template <class S> GPU_FN uint mma_full(uint barriers, uint stage)
{
    return barriers + stage * 8u;
}
template <class S> GPU_FN uint mma_free(uint barriers, uint stage)
{
    return barriers + (uint)(S::STAGES + stage) * 8u;
}

template <int E, int N>
GPU_FN void mma_bring(const mma_product &m, const matmul_args &a, const mma_walk &walk, u8 *memory,
                      uint barriers)
{
    typedef mma_shape<E, N> S;
    uint me = threadIdx.x % (uint)MMA_BRINGERS, known = ~0u;
    uint n_pieces = (a.n_in + (uint)PIECE_COLUMNS - 1u) / (uint)PIECE_COLUMNS;
    mma_source<E, N> source;
    mma_at next = {blockIdx.x, 0u, 0u};
    mma_stage<S> to;
    if (threadIdx.x >= MMA_MAKERS + (uint)MMA_BRINGERS) {
        mma_go_on<S>(walk, next);
        to.go_on();
    }
    mma_at last = next;
    mma_stage<S> ready = to;
    auto send_weights = [&]() {
        if (next.item < walk.n_items) {
            if (next.item != known) source.begin(m, a, next.item / walk.across, walk.slice, me);
            known = next.item;
            source.send(memory + to.stage * (uint)S::STAGE, next, walk.n_units, me);
        }
        mma_commit();
    };
    auto send_rows = [&]() {
        if (me == 0u && next.item < walk.n_items)
            mma_send_rows<S>(m.x, n_pieces, walk, next,
                             mma_shared(memory) + to.stage * (uint)S::STAGE + (uint)S::X_AT,
                             mma_full<S>(barriers, to.stage));
        mma_turn<S>(walk, next, to);
    };
    for (int i = 0; i < S::AHEAD; i++) {
        send_weights();
        mma_turn<S>(walk, next, to);
    }
    dep_wait();
    next = last;
    to = ready;
    for (int i = 0; i < S::AHEAD; i++) send_rows();
    while (last.item < walk.n_items) {
        mma_wait<S::AHEAD - 1>();
        source.decode(memory + ready.stage * (uint)S::STAGE, a, walk, last, me);
        bulk_arrive(mma_full<S>(barriers, ready.stage));
        mma_turn<S>(walk, last, ready);
        if (to.again && next.item < walk.n_items)
            bulk_wait(mma_free<S>(barriers, to.stage), (to.again - 1u) & 1u);
        send_weights();
        send_rows();
    }
}

/* ---- multiplying one stage ---- */

/* [lane][sixteen outputs][eight rows]: as mma leaves them */
template <int E, int N> struct mma_sums {
    float v[mma_shape<E, N>::LANES][MMA_M / 16][mma_shape<E, N>::TILES][4];
};

/* What unit_dot of units.h gives, from a dot with MAGIC in it; sum: of the activations. */
template <int E>
GPU_FN float mma_value(const float *d, float dot, float sum, float dot2, float sum2)
{
    if (UNIT_HAS_HALVES(E))
        return fmaf(d[0], dot - MAGIC, fmaf(d[1], sum, fmaf(d[2], dot2 - MAGIC, d[3] * sum2)));
    if (UNIT_HAS_MIN(E)) return fmaf(d[0], dot - MAGIC, d[1] * sum);
    if (!MMA_SHORT_SCALES(E)) return d[0] * (dot - MAGIC);
    return fmaf(d[0], dot, d[1]); /* d·(MAGIC + dot) - d·MAGIC: rounded once */
}

/* Words of columns 4i .. 4i + 3 of a unit with nibbles, and of those 16 behind. */
template <int E> GPU_FN void mma_nibbles(uint raw, uint *low, uint *high)
{
    *low = raw & 0x0f0f0f0fu, *high = raw >> 4 & 0x0f0f0f0fu;
    if (UNIT_TABLE(E) != UNIT_TABLE_NONE) {
        uint t[4];
        UNROLL
        for (int i = 0; i < 4; i++) t[i] = units_tables[4 * (UNIT_TABLE(E) - 1) + i];
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
    enum { ONES = 0x01010101, N_D = UNIT_HAS_HALVES(E) ? 4 : 2 };
    uint ones[4] = {ONES, ONES, ONES, ONES};
    int dot[4], dot2[4] = {0}, sum[4] = {0}, sum2[4] = {0};
    if (UNIT_HAS_NIBBLES(E) && !UNIT_HAS_HALVES(E)) {
        mma_i8_32(dot, magic, a, x0, x1);
        if (UNIT_HAS_MIN(E)) mma_i8_32(sum, magic, ones, x0, x1);
    } else {
        mma_i8_16(dot, magic, a[0], a[1], x0);
        if (UNIT_HAS_MIN(E)) mma_i8_16(sum, magic, ONES, ONES, x0);
    }
    if (UNIT_HAS_HALVES(E)) {
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

/* The stage's units, with REST only those before the n-th of the step. */
template <int E, int N, int REST>
GPU_FN void mma_multiply(mma_sums<E, N> &acc, const u8 *stage, const int *magic, uint n, uint phase,
                         uint warp, uint lane)
{
    typedef mma_shape<E, N> S;
    enum { SHARED = S::PAIRS && S::WIDE == 1, SHARED_D = S::PAIRS && S::SHARE == 2 };
    uint base = S::PAIRS ? warp % 4u * 2u : warp, part = S::PAIRS ? warp / 4u * 32u : 0u;
    uint w_at = mma_shared(stage) + lane * (uint)MMA_W_PITCH(N) + base * 16u;
    uint block = base * (uint)S::WIDE % 8u, row = part + (N == 16 ? lane % 16u : lane);
    const u8 *piece = stage + S::X_AT + base * (uint)S::WIDE / 8u * (uint)S::PIECE;
    uint x_at = row * 128u + (block + (N == 16 && S::WIDE == 2 ? lane / 16u : 0u) ^ row % 8u) * 16u;
    const float *s_at =
        (const float *)(piece + N * 128) + block / 2u * (uint)N + part + lane % 4u * 4u;
    const float *d = (const float *)(stage + S::D_AT) + lane / 4u * (uint)(2 * S::N_D) +
                     base / (uint)S::SHARE * (uint)S::D_PITCH;
    float scales[N == 16 ? 4 : 8], both[MMA_M / 16][2 * S::N_D];
    UNROLL
    for (int k = 0; k < S::LANES; k++) {
        uint w[4], x[2][4]; /* x: [half of the columns][tile]; both halves in x[0] if N is 16 */
        const int unit = S::PAIRS ? k / 2 * 8 + k % 2 : k * 8;
        const int from = S::PAIRS ? k / 2 * S::PIECE : k * S::WIDE * S::PIECE;
        if (REST && mma_unit_of<S>(base + (uint)unit, phase) >= n) continue;
        mma_load(w, w_at + (uint)(unit * 16));
        mma_load(x[0],
                 mma_shared(piece) + (uint)from + (S::PAIRS ? x_at ^ (uint)(k % 2 * 16) : x_at));
        if (N > 16 && S::WIDE == 2) mma_load(x[1], mma_shared(piece) + (uint)from + (x_at ^ 16u));
        if (!SHARED || REST || k % 2 == 0) {
            UNROLL
            for (int i = 0; i < S::WARP_ROWS / 16; i++)
                mma_floats(scales + 4 * i, s_at + from / 4 + i * 16);
        }
        UNROLL
        for (int i = 0; i < MMA_M / 16; i++) {
            uint a[4] = {w[2 * i], w[2 * i + 1], 0u, 0u};
            if (UNIT_HAS_NIBBLES(E)) {
                mma_nibbles<E>(w[2 * i], &a[0], &a[2]);
                mma_nibbles<E>(w[2 * i + 1], &a[1], &a[3]);
            }
            UNROLL
            for (int j = 0; j < 2 * S::N_D && (!SHARED_D || REST || k % 2 == 0); j += 4)
                mma_floats(both[i] + j, d + unit / S::SHARE * S::D_PITCH + i * 16 * S::N_D + j);
            UNROLL
            for (int j = 0; j < S::TILES; j++)
                mma_unit<E>(acc.v[k][i][j], magic, a, x[0][j], N == 16 ? x[0][2 + j % 2] : x[1][j],
                            both[i], scales + 2 * j);
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

/* The first phase's sums: l with l + 16 are added, and kept until those of l + 8 and l + 24 are
 * there. Each thread keeps its own. */
template <int E, int N> GPU_FN void mma_keep(mma_sums<E, N> &acc, float *kept, bool last)
{
    typedef mma_shape<E, N> S;
    float4 *at = (float4 *)kept + threadIdx.x;
    UNROLL
    for (int n = 0; n < 2 * MMA_M / 16 * S::TILES; n++) {
        int p = n / (MMA_M / 16 * S::TILES), i = n / S::TILES % (MMA_M / 16), j = n % S::TILES;
        float *v = acc.v[p][i][j], *w = acc.v[p + 2][i][j];
        float4 sum = make_float4(v[0] + w[0], v[1] + w[1], v[2] + w[2], v[3] + w[3]);
        if (last) {
            float4 k = at[n * MMA_MAKERS];
            v[0] = k.x + sum.x, v[1] = k.y + sum.y, v[2] = k.z + sum.z, v[3] = k.w + sum.w;
        } else {
            at[n * MMA_MAKERS] = sum;
        }
    }
}

/* Sixteen outputs' sums of this warp's lanes to where all find them. */
template <int E, int N>
GPU_FN void mma_leave(const mma_sums<E, N> &acc, int which, float *sums, uint warp, uint lane)
{
    typedef mma_shape<E, N> S;
    enum { PITCH = MMA_SUMS_PITCH(N) };
    UNROLL
    for (int p = 0; p < (S::PAIRS ? 2 : 1); p++) {
        uint of = S::PAIRS ? warp % 4u * 2u + (uint)p : warp,
             part = S::PAIRS ? warp / 4u * 32u : 0u;
        float *to = sums + (of * (uint)N + part + lane % 4u * 4u) * (uint)PITCH + lane / 4u * 2u;
        UNROLL
        for (int j = 0; j < S::TILES; j++) {
            float v[4];
            UNROLL
            for (int i = 0; i < 4; i++) {
                float all[S::LANES];
                UNROLL
                for (int k = 0; k < S::LANES; k++) all[k] = acc.v[k][which][j][i];
                if (!S::PAIRS) mma_halves<S::LANES>(all);
                v[i] = all[p];
            }
            float *row = to + (j / 2 * 16 + j % 2 * 2) * PITCH;
            *(float2 *)row = make_float2(v[0], v[2]);
            *(float2 *)(row + PITCH) = make_float2(v[1], v[3]);
        }
    }
}
template <int N> GPU_FN float mma_join(const float *sums, uint row, uint out)
{
    float of[MMA_SUMS];
    UNROLL
    for (int k = 0; k < MMA_SUMS; k++)
        of[k] = sums[((uint)(k * N) + row) * (uint)MMA_SUMS_PITCH(N) + out];
    mma_halves<MMA_SUMS>(of);
    return of[0];
}

/* Those who multiply wait for each other. */
GPU_FN void mma_barrier()
{
    asm volatile("bar.sync 1, %0;" ::"n"((int)MMA_MAKERS) : "memory");
}

/* Outputs of a tile from `begin` on, from the sums that warps left: a thread ends one of them, or
 * with glu one pair, for some of the rows. All it reads is asked for before any of it is used. */
template <int N>
GPU_FN void mma_end(const matmul_args &a, const mma_out &o, uint tile, uint first, uint n_rows,
                    uint slice, uint begin, const float *sums)
{
    enum { OUTS = MMA_OUTS(N), STEP = MMA_MAKERS / OUTS, TIMES = N / STEP };
    uint out = threadIdx.x % (uint)OUTS, row = threadIdx.x / (uint)OUTS;
    mma_place p = mma_place_of(a, tile, begin + out, slice);
    bool biased = p.real && a.part[p.part].has_bias;
    float bias = biased ? mma_pick(o.bias, p.part)[p.row] : 0.0f, v[TIMES], add[2][TIMES];
    DEV(float) y = mma_pick(o.y, p.part) + (slice * a.y_stride + p.row);
    UNROLL
    for (int j = 0; j < 2 * TIMES; j++) {
        uint t = first + row + (uint)(j % TIMES * STEP), pitch = a.add_pitch[j / TIMES];
        add[j / TIMES][j % TIMES] =
            pitch && p.real && t < n_rows ? o.add[j / TIMES][t * pitch + p.row] : 0.0f;
    }
    UNROLL
    for (int j = 0; j < TIMES; j++) {
        v[j] = mma_join<N>(sums, row + (uint)(j * STEP), out);
        if (biased) v[j] += bias;
    }
    UNROLL
    for (int j = 0; j < TIMES; j++) {
        uint t = first + row + (uint)(j * STEP);
        if (a.add_pitch[0]) v[j] = add[0][j] + v[j];
        if (a.add_pitch[1]) v[j] = add[1][j] + v[j];
        if (p.real && t < n_rows) y[t * a.part[p.part].y_pitch] = v[j];
    }
}
template <int N>
GPU_FN void mma_end_glu(const matmul_args &a, const mma_out &o, uint tile, uint first, uint n_rows,
                        uint slice, uint begin, const float *sums)
{
    enum { PAIRS = MMA_OUTS(N) / 2, STEP = MMA_MAKERS / PAIRS, TIMES = N < STEP ? 1 : N / STEP };
    uint out = threadIdx.x % (uint)PAIRS, row = threadIdx.x / (uint)PAIRS;
    out = out / 8u * 16u + out % 8u;
    mma_place p = mma_place_of(a, tile, begin + out, slice);
    float gate_bias = p.real && a.part[0].has_bias ? o.bias[0][p.row] : 0.0f;
    float up_bias = p.real && a.part[1].has_bias ? o.bias[1][p.row] : 0.0f;
    DEV(float) y = o.y[0] + (slice * a.y_stride + p.row);
    float gate[TIMES], up[TIMES];
    if (row >= (uint)N) return;
    UNROLL
    for (int j = 0; j < TIMES; j++) {
        gate[j] = mma_join<N>(sums, row + (uint)(j * STEP), out);
        up[j] = mma_join<N>(sums, row + (uint)(j * STEP), out + 8u);
        if (a.part[0].has_bias) gate[j] += gate_bias;
        if (a.part[1].has_bias) up[j] += up_bias;
    }
    UNROLL
    for (int j = 0; j < TIMES; j++) {
        uint t = first + row + (uint)(j * STEP);
        float v = gate[j] * num_sigmoid(gate[j]) * up[j];
        if (p.real && t < n_rows) y[t * a.part[0].y_pitch] = v;
    }
}

/* The tile's sums become outputs. */
template <int E, int N>
GPU_FN void mma_finish(const mma_sums<E, N> &acc, const matmul_args &a, const mma_out &o,
                       const mma_walk &walk, uint item, float *sums)
{
    uint tile = item / walk.across, first = item % walk.across * (uint)N;
    ROLLED
    for (uint i = 0u; i < (uint)MMA_M; i += (uint)MMA_OUTS(N)) {
        mma_barrier();
        if (i == 0u) mma_leave(acc, 0, sums, threadIdx.x / 32u, threadIdx.x % 32u);
        if (i > 0u || MMA_OUTS(N) == 32u)
            mma_leave(acc, 1, sums + MMA_OUTS(N) / 32u * 16u, threadIdx.x / 32u, threadIdx.x % 32u);
        mma_barrier();
        if (a.glu)
            mma_end_glu<N>(a, o, tile, first, walk.n_rows, walk.slice, i, sums);
        else
            mma_end<N>(a, o, tile, first, walk.n_rows, walk.slice, i, sums);
    }
    mma_barrier();
}

template <int E, int N>
GPU_FN void mma_make(const mma_out &o, const matmul_args &a, const mma_walk &walk, const u8 *memory,
                     float *sums, uint barriers)
{
    typedef mma_shape<E, N> S;
    uint warp = threadIdx.x / 32u, lane = threadIdx.x % 32u;
    mma_stage<S> at;
    mma_sums<E, N> acc;
    int magic[4];
    UNROLL
    for (int i = 0; i < 4; i++) asm volatile("mov.s32 %0, %1;" : "=r"(magic[i]) : "r"(MAGIC_BITS));
    dep_wait();
    for (uint item = blockIdx.x; item < walk.n_items; item += gridDim.x) {
        for (uint phase = 0u; phase < (uint)S::PHASES; phase++) {
            UNROLL
            for (int i = 0; i < (int)(sizeof acc / 4); i++) (&acc.v[0][0][0][0])[i] = 0.0f;
            for (uint n = walk.n_units; (int)n > 0; n -= 32u) {
                const u8 *stage = memory + at.stage * (uint)S::STAGE;
                bulk_wait(mma_full<S>(barriers, at.stage), at.again & 1u);
                if (n >= 32u)
                    mma_multiply<E, N, 0>(acc, stage, magic, n, phase, warp, lane);
                else
                    mma_multiply<E, N, 1>(acc, stage, magic, n, phase, warp, lane);
                __syncwarp();
                if (lane == 0u) bulk_arrive(mma_free<S>(barriers, at.stage));
                at.go_on();
            }
            if (S::PAIRS) mma_keep(acc, sums, phase == 1u);
        }
        mma_finish(acc, a, o, walk, item, sums);
    }
}

/* group.x: a share of all tiles, .z: slice */
template <int E, int N>
GPU_FN void matmul_mma(CONST(uint) head, const mma_product &m, const mma_out &o,
                       const matmul_args &a)
{
    typedef mma_shape<E, N> S;
    uint total = a.part[0].n_out + a.part[1].n_out + a.part[2].n_out;
    mma_walk walk = {0u, 0u, a.n_in / (uint)S::COLUMNS, 0u, head[a.rows], blockIdx.z};
    walk.n_steps = (walk.n_units + 31u) / 32u;
    walk.across = (walk.n_rows + (uint)N - 1u) / (uint)N;
    walk.n_items = (total + (uint)MMA_M - 1u) / (uint)MMA_M * walk.across;
    u8 *memory = mma_memory();
    float *sums = (float *)(memory + S::STAGES * S::STAGE);
    uint barriers = mma_shared(sums) + MMA_BESIDE(N) - (uint)MMA_BARRIERS;
    dep_launch();
    for (uint i = 0u; threadIdx.x == 0u && i < (uint)S::STAGES; i++) {
        bulk_init(mma_full<S>(barriers, i), MMA_BRINGERS + 1u);
        bulk_init(mma_free<S>(barriers, i), MMA_MAKERS / 32u);
    }
    bulk_begin();
    __syncthreads();
    if (threadIdx.x >= (uint)MMA_MAKERS) {
        bulk_fewer_registers<MMA_FEWER>();
        mma_bring<E, N>(m, a, walk, memory, barriers);
    } else {
        bulk_more_registers<MMA_MORE>();
        mma_make<E, N>(o, a, walk, memory, sums, barriers);
    }
}

#define MATMUL_MMA_KERNEL(name, E, N)                                                      \
    extern "C" __global__ void __launch_bounds__(MMA_THREADS, 1) k_matmul_##name##_mma##N( \
        CONST(uint) head, DEV(const u8) x, DEV(const float) add0, DEV(const float) add1,   \
        CONST(uint4) q0, CONST(u8) s0, CONST(float) b0, DEV(float) y0, CONST(uint4) q1,    \
        CONST(u8) s1, CONST(float) b1, DEV(float) y1, CONST(uint4) q2, CONST(u8) s2,       \
        CONST(float) b2, DEV(float) y2, ARGS(matmul_args) a)                               \
    {                                                                                      \
        mma_product m = {{q0, q1, q2}, {s0, s1, s2}, x};                                   \
        mma_out o = {{add0, add1}, {b0, b1, b2}, {y0, y1, y2}};                            \
        matmul_mma<E, N>(head, m, o, a);                                                   \
    }
#define MATMUL_MMA_KERNELS(name, E) \
    MATMUL_MMA_KERNEL(name, E, 16)  \
    MATMUL_MMA_KERNEL(name, E, 32)
#define MATMUL_MMA_KERNELS_64(name, E) \
    MATMUL_MMA_KERNELS(name, E)        \
    MATMUL_MMA_KERNEL(name, E, 64)

/* By the bits of a quant: 64 rows for those of 16 columns a unit. */
#define MATMUL_MMA_8_0 MATMUL_MMA_KERNELS_64
#define MATMUL_MMA_4_1 MATMUL_MMA_KERNELS_64
#define MATMUL_MMA_4_2 MATMUL_MMA_KERNELS_64
#define MATMUL_MMA_4_0 MATMUL_MMA_KERNELS
#define MATMUL_MMA_2_0 MATMUL_MMA_KERNELS
#define MATMUL_MMA_OF(id, name, cols, low, high, ...) MATMUL_MMA_##low##_##high(name, UNIT_##id)
ENCODINGS_INT8(MATMUL_MMA_OF)

#endif
