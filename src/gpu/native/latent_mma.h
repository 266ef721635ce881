/* What latent attention on tensor cores is made of (latent_mma.cu, mla_layers.cu): queries and
 * cached rows in shared memory, scores, softmax and values of tiles of LATENT_POS positions. */
#ifndef NATIVE_LATENT_MMA_H
#define NATIVE_LATENT_MMA_H

#include "gpu/kernels/attention.h"
#include "gpu/kernels/mla.h"
#include "gpu/kernels/norm.h"
#include "gpu/native/flash.h"
#include "gpu/native/meet.h"

enum {
    LM_UNITS = LATENT_MAX_K / 8,
    LM_WARPS = LATENT_MMA_THREADS / 32,
    LM_QUERY_THREADS = LATENT_MMA_THREADS - 32, /* that bring queries; the last warp its own row */
    LM_K_PARTS = 4,                             /* warps that share the columns of a score */
    LM_K_STEPS = LATENT_MAX_K / 16 / LM_K_PARTS,
    LM_PITCH = LATENT_POS + 8, /* of parts of scores: no two lanes want the same bank */
    LM_OUT_PITCH = LATENT_MAX_V + 4,
    LM_COLUMNS = LATENT_MAX_V / LM_WARPS,
    LM_NORM = LATENT_MAX_V / 128,               /* fours of a lane that a row's own latent has */
    LM_QUERIES = LATENT_POS * LATENT_MAX_K * 2, /* where things lie, in bytes; first the tile */
    LM_EXPO = LM_QUERIES + LATENT_HEADS * 2 * LATENT_MAX_K * 2,
    LM_PARTS = LM_EXPO + LATENT_HEADS * 2 * LATENT_POS * 2,
    LM_END = LM_PARTS + LM_K_PARTS * LATENT_HEADS * LM_PITCH * 4,
};
static_assert(LM_END == LATENT_MMA_BYTES, "args.h");
static_assert(LATENT_HEADS * LM_OUT_PITCH * 4 <= LM_QUERIES, "outputs lie where the tile was");

struct lm_shared {
    uint place[LATENT_POS];
    float2 ml[LATENT_HEADS]; /* maximum and sum of the group's positions */
    float was[LATENT_HEADS]; /* what earlier tiles are multiplied by */
    uint4 own[LM_UNITS];     /* the row's own latent, where the cache does not have it yet */
};

/* What a group of heads of one row attends to. */
struct lm_row {
    uint slot, pos, own; /* own: pos where the latent there is not read from the cache */
    uint h0, n_heads;    /* heads of this group */
    uint per, n_tiles;   /* tiles of a group, and of all */
};

GPU_FN lm_row lm_row_of(uint4 row, bool owns, uint h0, const attention_args &a)
{
    uint n = row.z / (uint)LATENT_POS + 1u;
    lm_row r = {
        row.y,         row.z, owns ? row.z : ~0u, h0, min((uint)LATENT_HEADS, a.n_heads - h0),
        latent_per(n), n};
    return r;
}

GPU_FN void lm_meet()
{
    meet<LATENT_MMA_THREADS>();
}
GPU_FN float *lm_memory()
{
    extern __shared__ __align__(1024) u8 flash_memory[];
    return (float *)flash_memory;
}
GPU_FN void lm_put(uint to, uint4 v)
{
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(v.x), "r"(v.y), "r"(v.z),
                 "r"(v.w)
                 : "memory");
}
/* As flash_send; of what is in the L2 this goes first. */
GPU_FN void lm_send(uint to, const uint4 *from, bool real)
{
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;" ::"r"(to),
                 "l"(from), "r"(real ? 16 : 0), "l"(QUEUE_EVICT_FIRST)
                 : "memory");
}
GPU_FN void lm_put_half(uint to, u16 v)
{
    asm volatile("st.shared.u16 [%0], %1;" ::"r"(to), "h"(v) : "memory");
}
/* Eight values as coarse halves, and what those leave. */
GPU_FN uint4 lm_halves(const float *v)
{
    return make_uint4(flash_halves(v[0], v[1]), flash_halves(v[2], v[3]), flash_halves(v[4], v[5]),
                      flash_halves(v[6], v[7]));
}
GPU_FN void lm_put_query(uint to, uint h, uint u, float *v)
{
    uint4 coarse = lm_halves(v);
    uint w[4] = {coarse.x, coarse.y, coarse.z, coarse.w};
    lm_put(to + flash_at<LM_UNITS>(h, u), coarse);
    UNROLL
    for (int i = 0; i < 4; i++) {
        float2 c = f16x2_to_f32(w[i]);
        v[2 * i] -= c.x, v[2 * i + 1] -= c.y;
    }
    lm_put(to + flash_at<LM_UNITS>(h + (uint)LATENT_HEADS, u), lm_halves(v));
}

/* The row's queries as they come from the products: rotated columns apart from the others. */
struct lm_turn {
    DEV(const float) q;
    DEV(float) turned;
    CONST(float) cosine;
    CONST(float) sine;
};

/* Where the cached rows of a tile are; a thread's. */
GPU_FN void lm_places(DEV(const uint) tables, uint *place, uint first, const lm_row &r,
                      const attention_args &a)
{
    if (threadIdx.x < (uint)LATENT_POS)
        place[threadIdx.x] = flash_place(tables, a, r.slot, min(first + threadIdx.x, r.pos));
}
/* They on their way; zeros behind the row's position. */
GPU_FN void lm_bring(DEV(const uint4) kv, const uint *place, uint first, uint to, const lm_row &r,
                     const attention_args &a)
{
    ROLLED
    for (uint i = threadIdx.x; i < (uint)(LATENT_POS * LM_UNITS); i += (uint)LATENT_MMA_THREADS) {
        uint p = i / (uint)LM_UNITS, u = i % (uint)LM_UNITS;
        bool real = first + p <= r.pos && u < a.k_units;
        if (first + p != r.own)
            lm_send(to + flash_at<LM_UNITS>(p, u), kv + place[p] + (real ? u : 0u), real);
    }
    mma_commit();
}
/* Both. Begins with a barrier: the tile before was used. */
GPU_FN void lm_fetch(DEV(const uint) tables, DEV(const uint4) kv, lm_shared &tg, uint first,
                     uint to, const lm_row &r, const attention_args &a)
{
    lm_meet();
    lm_places(tables, tg.place, first, r, a);
    lm_meet();
    lm_bring(kv, tg.place, first, to, r, a);
}

/* Scores of all heads at 16 positions over a quarter of the columns. */
GPU_FN void lm_scores(uint shared, uint lane, uint warp)
{
    uint keys = shared + warp % 4u * 16u * (uint)(LM_UNITS * 16), part = warp / 4u;
    float s[2][4] = {{0.0f, 0.0f, 0.0f, 0.0f}, {0.0f, 0.0f, 0.0f, 0.0f}};
    ROLLED
    for (uint k = 0u; k < (uint)LM_K_STEPS; k++) {
        uint at = part * (uint)LM_K_STEPS + k, x[4], b[4];
        mma_load(x,
                 shared + (uint)LM_QUERIES + flash_at<LM_UNITS>(lane % 16u, 2u * at + lane / 16u));
        mma_load(b,
                 keys + flash_at<LM_UNITS>(lane % 8u + lane / 16u * 8u, 2u * at + lane / 8u % 2u));
        mma_f16(s[0], x, b[0], b[1]);
        mma_f16(s[1], x, b[2], b[3]);
    }
    uint to = shared + (uint)LM_PARTS + part * (uint)(LATENT_HEADS * LM_PITCH * 4);
    UNROLL
    for (uint j = 0u; j < 2u; j++) {
        uint col = warp % 4u * 16u + j * 8u + lane % 4u * 2u;
        uint at = to + (lane / 4u * (uint)LM_PITCH + col) * 4u;
        asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(at), "f"(s[j][0] + s[j][2]),
                     "f"(s[j][1] + s[j][3])
                     : "memory");
    }
}

/* The online softmax of a tile of n positions, a head by one warp. */
GPU_FN void lm_softmax(const float *parts, uint expo, lm_shared &tg, uint n_heads, uint n,
                       float scale, bool first, uint lane, uint warp)
{
    ROLLED
    for (uint h = warp; h < n_heads; h += (uint)LM_WARPS) {
        float v[2], e[2] = {0.0f, 0.0f};
        float2 before = tg.ml[h];
        UNROLL
        for (uint j = 0u; j < 2u; j++) {
            const float *from = parts + h * (uint)LM_PITCH + lane + 32u * j;
            float sum = from[0];
            UNROLL
            for (int k = 1; k < LM_K_PARTS; k++) sum += from[k * LATENT_HEADS * LM_PITCH];
            v[j] = lane + 32u * j < n ? sum * scale : ATTN_NOTHING;
        }
        float most = simd_max(fmaxf(v[0], v[1])), top = first ? most : fmaxf(before.x, most);
        ROLLED
        for (uint j = 0u; j < 2u; j++) { /* e[0] + e[1] is the same either way */
            uint p = lane + 32u * j, at = p / 8u, byte = p % 8u * 2u;
            e[0] = e[1];
            e[1] = p < n ? num_exp(v[0] - top) : 0.0f;
            v[0] = v[1];
            u16 coarse = f32_to_f16(e[1]), rest = f32_to_f16(e[1] - f16_to_f32(coarse));
            lm_put_half(expo + flash_at<8>(h, at) + byte, coarse);
            lm_put_half(expo + flash_at<8>(h + (uint)LATENT_HEADS, at) + byte, rest);
        }
        float l = simd_sum(e[0] + e[1]), was = 0.0f;
        if (!first) {
            was = num_exp(before.x - top);
            l = fmaf(before.y, was, l);
        }
        __syncwarp(); /* all have read what is there */
        if (lane == 0u) tg.was[h] = was, tg.ml[h] = make_float2(top, l);
    }
}

/* o += exponentials · values, of all heads and this warp's columns: coarse halves in the first
 * eight rows and rests in the others. */
GPU_FN void lm_values(float (*o)[4], uint tile, uint expo, uint lane, uint warp)
{
    ROLLED
    for (uint k = 0u; k < (uint)LATENT_POS / 16u; k++) {
        uint p[4], v[LM_COLUMNS / 16][4];
        mma_load(p, expo + flash_at<8>(lane % 16u, 2u * k + lane / 16u));
        UNROLL
        for (uint i = 0u; i < (uint)LM_COLUMNS / 16u; i++)
            mma_load_across(v[i], tile + flash_at<LM_UNITS>(16u * k + lane % 16u,
                                                            warp * (uint)(LM_COLUMNS / 8) + 2u * i +
                                                                lane / 16u));
        UNROLL
        for (int j = 0; j < LM_COLUMNS / 8; j++)
            mma_f16(o[j], p, v[j / 2][j % 2 * 2], v[j / 2][j % 2 * 2 + 1]);
    }
}

/* The tiles of one group, from t on; the first is on its way. o: its outputs.
 */
GPU_FN void lm_tiles(DEV(const uint) tables, DEV(const uint4) kv, lm_shared &tg, float *memory,
                     uint t, const lm_row &r, const attention_args &a, float (*o)[4])
{
    uint lane = threadIdx.x % 32u, warp = threadIdx.x / 32u, shared = flash_shared();
    uint end = min(t + r.per, r.n_tiles), begin = t;
    UNROLL
    for (int i = 0; i < LM_COLUMNS / 2; i++) (&o[0][0])[i] = 0.0f;
    for (; t < end; t++) {
        uint first = t * (uint)LATENT_POS;
        if (t > begin) lm_fetch(tables, kv, tg, first, shared, r, a);
        if (r.own - first < (uint)LATENT_POS && threadIdx.x < (uint)LM_UNITS)
            lm_put(shared + flash_at<LM_UNITS>(r.own - first, threadIdx.x),
                   threadIdx.x < a.k_units ? tg.own[threadIdx.x] : make_uint4(0u, 0u, 0u, 0u));
        mma_wait<0>();
        lm_meet();
        lm_scores(shared, lane, warp);
        lm_meet();
        lm_softmax(memory + LM_PARTS / 4, shared + (uint)LM_EXPO, tg, r.n_heads,
                   min((uint)LATENT_POS, r.pos + 1u - first), a.scale, t == begin, lane, warp);
        lm_meet();
        float was = t > begin ? tg.was[lane / 4u] : 1.0f;
        UNROLL
        for (int i = 0; i < LM_COLUMNS / 2; i++) (&o[0][0])[i] *= was;
        lm_values(o, shared, shared + (uint)LM_EXPO, lane, warp);
    }
    lm_meet();
}

/* The row's own latent by one warp, normed (rms; w: the lane's columns) to the bits of norm_stats
 * and norm_apply, and its key rotated. */
GPU_FN void lm_own(DEV(const float) c, const lm_turn &key, const float4 *w, lm_shared &tg,
                   const mla_store_args &a, uint lane)
{
    DEV(const float4) from = (DEV(const float4))c;
    u16 *own = (u16 *)tg.own;
    float4 v[LM_NORM];
    float sq = 0.0f;
    UNROLL
    for (uint i = 0u; i < (uint)LM_NORM; i++) {
        v[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (lane + 32u * i < a.n / 4u) v[i] = from[lane + 32u * i];
    }
    mla_rotate(key.q, key.cosine, key.sine, own + a.n, a.n_rot, a.neox, (u16)0, lane, 32u);
    UNROLL
    for (int i = 0; i < LM_NORM; i++)
        sq +=
            simd_sum(fmaf(v[i].x, v[i].x, v[i].y * v[i].y) + fmaf(v[i].z, v[i].z, v[i].w * v[i].w));
    float2 stats = make_float2(0.0f, 1.0f / sqrtf(sq / (float)a.n + a.eps));
    UNROLL
    for (uint i = 0u; i < (uint)LM_NORM; i++) {
        float4 f = norm_apply(v[i], stats, w, i, a.has_w != 0u, w, i, false);
        if (lane + 32u * i < a.n / 4u)
            *(uint2 *)(own + 4u * (lane + 32u * i)) =
                make_uint2((uint)f32_to_f16(f.x) | (uint)f32_to_f16(f.y) << 16,
                           (uint)f32_to_f16(f.z) | (uint)f32_to_f16(f.w) << 16);
    }
}

#endif
