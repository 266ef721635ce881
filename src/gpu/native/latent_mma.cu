/* Latent attention of rows of class D on tensor cores, each cached row read once for eight heads:
 * with what coarse halves leave they fill the matrix unit's rows, and two groups fit on a
 * multiprocessor. A cluster of groups takes a stretch of the positions, a group a run of its tiles
 * of LATENT_POS; it multiplies queries and exponentials as two halves each, a coarse one and what
 * that leaves, so that sums are as good as those of floats. Groups of a cluster join what they have
 * in order through each other's shared memory, and stretches are folded in order, by the same
 * cluster or by k_mla_out. How a row is cut depends on its position alone: its bits are its own,
 * whatever else runs. */
#include "gpu/kernels/attention.h"
#include "gpu/kernels/mla.h"
#include "gpu/kernels/norm.h"
#include "gpu/native/cluster.h"
#include "gpu/native/flash.h"

#if !defined __CUDA_ARCH__ || __CUDA_ARCH__ >= 900

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

/* Queries of the group's heads, q: of the row's first; turn: where rotated columns come from, or
 * NULL if q has them. Heads that are not there become zeros. */
GPU_FN void lm_queries(DEV(const float) q, const lm_turn *turn, float *memory, const lm_row &r,
                       const attention_args &a, const mla_store_args *store, bool writes)
{
    enum { AT_ONCE = (LATENT_HEADS * LM_UNITS + LM_QUERY_THREADS - 1) / LM_QUERY_THREADS };
    uint to = flash_shared() + (uint)LM_QUERIES, n_plain = turn ? a.v_units : a.k_units;
    float v[AT_ONCE][8], *rotated = memory + LM_PARTS / 4;
    bool mine = threadIdx.x < (uint)LM_QUERY_THREADS;
    UNROLL
    for (uint k = 0u; k < (uint)AT_ONCE; k++) {
        uint i = k * (uint)LM_QUERY_THREADS + threadIdx.x, h = i / (uint)LM_UNITS;
        uint u = i % (uint)LM_UNITS;
        float4 lo = make_float4(0.0f, 0.0f, 0.0f, 0.0f), hi = lo;
        if (mine && h < r.n_heads && u < n_plain) {
            DEV(const float4) x = (DEV(const float4))(q + ((r.h0 + h) * a.k_units + u) * 8u);
            lo = x[0], hi = x[1];
        }
        v[k][0] = lo.x, v[k][1] = lo.y, v[k][2] = lo.z, v[k][3] = lo.w;
        v[k][4] = hi.x, v[k][5] = hi.y, v[k][6] = hi.z, v[k][7] = hi.w;
    }
    ROLLED
    for (uint h = threadIdx.x / 32u; turn && mine && h < r.n_heads; h += (uint)LM_WARPS - 1u) {
        DEV(const float) from = turn->q + (r.h0 + h) * store->q_stride;
        float *turned = rotated + h * store->n_rot;
        mla_rotate(from, turn->cosine, turn->sine, turned, store->n_rot, store->neox, 0.0f,
                   threadIdx.x % 32u, 32u);
        __syncwarp();
        for (uint i = threadIdx.x % 32u; writes && i < store->n_rot; i += 32u)
            turn->turned[(r.h0 + h) * store->y_stride + i] = turned[i];
    }
    ROLLED
    for (uint k = 0u; k < (uint)AT_ONCE; k++) {
        uint i = k * (uint)LM_QUERY_THREADS + threadIdx.x, h = i / (uint)LM_UNITS;
        if (mine && h < r.n_heads) lm_put_query(to, h, i % (uint)LM_UNITS, v[0]);
        UNROLL
        for (int j = 0; j < (AT_ONCE - 1) * 8; j++) (&v[0][0])[j] = (&v[1][0])[j];
    }
    if (!turn) return;
    __syncthreads();
    uint n = store->n_rot / 8u;
    ROLLED
    for (uint i = threadIdx.x; i < r.n_heads * n; i += (uint)LATENT_MMA_THREADS)
        lm_put_query(to, i / n, n_plain + i % n, rotated + i * 8u);
}

/* The tile of cached rows from `first` on, on its way; zeros behind the row's position. Begins with
 * a barrier: the tile before was used. */
GPU_FN void lm_fetch(DEV(const uint) tables, DEV(const uint4) kv, lm_shared &tg, uint first,
                     uint to, const lm_row &r, const attention_args &a)
{
    __syncthreads();
    if (threadIdx.x < (uint)LATENT_POS)
        tg.place[threadIdx.x] = flash_place(tables, a, r.slot, min(first + threadIdx.x, r.pos));
    __syncthreads();
    ROLLED
    for (uint i = threadIdx.x; i < (uint)(LATENT_POS * LM_UNITS); i += (uint)LATENT_MMA_THREADS) {
        uint p = i / (uint)LM_UNITS, u = i % (uint)LM_UNITS;
        bool real = first + p <= r.pos && u < a.k_units;
        if (first + p != r.own)
            lm_send(to + flash_at<LM_UNITS>(p, u), kv + tg.place[p] + (real ? u : 0u), real);
    }
    mma_commit();
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

/* Outputs to out[head][column], rows of `pitch`; so many are wanted. */
GPU_FN void lm_leave(float (*o)[4], float *out, uint pitch, uint n_heads, uint n_columns, uint lane,
                     uint warp)
{
    uint h = lane / 4u;
    UNROLL
    for (uint j = 0u; j < (uint)LM_COLUMNS / 8u; j++) {
        uint col = warp * (uint)LM_COLUMNS + j * 8u;
        if (h < n_heads && col < n_columns)
            *(float2 *)(out + h * pitch + col + lane % 4u * 2u) =
                make_float2(o[j][0] + o[j][2], o[j][1] + o[j][3]);
    }
}

/* The four columns of one head that a thread joins; and groups that have a part of a stretch. */
struct lm_slice {
    uint h, col;
};
GPU_FN lm_slice lm_slice_of(const attention_args &a, uint rank)
{
    uint width = a.v_units * 8u / (uint)LATENT_CLUSTER, threads = width / 4u;
    lm_slice s = {threadIdx.x / threads, rank * width + threadIdx.x % threads * 4u};
    return s;
}
GPU_FN uint lm_groups(const lm_row &r, uint before)
{
    return min((r.n_tiles - before + r.per - 1u) / r.per, (uint)LATENT_CLUSTER);
}

/* What n groups of the cluster have left of it, joined in order, with their maximum and sum. */
GPU_FN float4 lm_join(const float *out, const lm_shared &tg, lm_slice at, uint n, float2 *ml)
{
    float4 v[LATENT_CLUSTER], o = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    float2 s[LATENT_CLUSTER];
    float top = ATTN_NOTHING, l = 0.0f;
    UNROLL
    for (uint r = 0u; r < (uint)LATENT_CLUSTER; r++) {
        v[r] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        s[r] = make_float2(ATTN_NOTHING, 0.0f);
        if (r < n) {
            v[r] = cluster_get4(out + at.h * (uint)LM_OUT_PITCH + at.col, r);
            s[r] = cluster_get2(&tg.ml[at.h], r);
        }
        top = fmaxf(top, s[r].x);
    }
    UNROLL
    for (uint r = 0u; r < (uint)LATENT_CLUSTER; r++) { /* who has nothing adds zeros */
        float by = num_exp(s[r].x - top);
        l = fmaf(s[r].y, by, l);
        o = make_float4(fmaf(v[r].x, by, o.x), fmaf(v[r].y, by, o.y), fmaf(v[r].z, by, o.z),
                        fmaf(v[r].w, by, o.w));
    }
    *ml = make_float2(top, l);
    return o;
}

/* The tiles of one group, from t on; the first is on its way. What it makes goes to rows of out. */
GPU_FN void lm_tiles(DEV(const uint) tables, DEV(const uint4) kv, lm_shared &tg, float *memory,
                     uint t, const lm_row &r, const attention_args &a, float *out, uint pitch)
{
    uint lane = threadIdx.x % 32u, warp = threadIdx.x / 32u, shared = flash_shared();
    uint end = min(t + r.per, r.n_tiles), begin = t;
    float o[LM_COLUMNS / 8][4];
    UNROLL
    for (int i = 0; i < LM_COLUMNS / 2; i++) (&o[0][0])[i] = 0.0f;
    for (; t < end; t++) {
        uint first = t * (uint)LATENT_POS;
        if (t > begin) lm_fetch(tables, kv, tg, first, shared, r, a);
        if (r.own - first < (uint)LATENT_POS && threadIdx.x < (uint)LM_UNITS)
            lm_put(shared + flash_at<LM_UNITS>(r.own - first, threadIdx.x),
                   threadIdx.x < a.k_units ? tg.own[threadIdx.x] : make_uint4(0u, 0u, 0u, 0u));
        mma_wait<0>();
        __syncthreads();
        lm_scores(shared, lane, warp);
        __syncthreads();
        lm_softmax(memory + LM_PARTS / 4, shared + (uint)LM_EXPO, tg, r.n_heads,
                   min((uint)LATENT_POS, r.pos + 1u - first), a.scale, t == begin, lane, warp);
        __syncthreads();
        float was = t > begin ? tg.was[lane / 4u] : 1.0f;
        UNROLL
        for (int i = 0; i < LM_COLUMNS / 2; i++) (&o[0][0])[i] *= was;
        lm_values(o, shared, shared + (uint)LM_EXPO, lane, warp);
    }
    __syncthreads();
    lm_leave(o, out, pitch, r.n_heads, a.v_units * 8u, lane, warp);
}

/* ---- rows whose latents are in the cache ---- */

/* group.x: rows go round over clusters; group.y: heads */
extern "C" __global__ void __cluster_dims__(LATENT_CLUSTER, 1, 1)
    __launch_bounds__(LATENT_MMA_THREADS, 2)
        k_latent_mma(DEV(const uint) head, DEV(const uint4) rows, DEV(const uint) tables,
                     DEV(const float) q, DEV(const uint4) kv, DEV(float) y, ARGS(attention_args) a)
{
    __shared__ lm_shared tg;
    float *memory = lm_memory();
    uint shared = flash_shared(), rank = blockIdx.x % (uint)LATENT_CLUSTER;
    lm_slice mine = lm_slice_of(a, rank);
    dep_launch();
    dep_wait();
    uint n_rows = a.rows == 1u ? 1u : head[a.count];
    for (uint i = blockIdx.x / (uint)LATENT_CLUSTER; i < n_rows;
         i += gridDim.x / (uint)LATENT_CLUSTER) {
        lm_row r = lm_row_of(rows[i], false, blockIdx.y * (uint)LATENT_HEADS, a);
        float4 o = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        float top = 0.0f, l = 0.0f;
        for (uint s = 0u; s < latent_stretches(r.n_tiles); s++) {
            uint before = s * (uint)LATENT_CLUSTER * r.per, t = before + rank * r.per;
            if (t < r.n_tiles) {
                lm_fetch(tables, kv, tg, t * (uint)LATENT_POS, shared, r, a);
                if (s == 0u) lm_queries(q + (u64)i * a.q_pitch, NULL, memory, r, a, NULL, false);
                lm_tiles(tables, kv, tg, memory, t, r, a, memory, (uint)LM_OUT_PITCH);
            }
            cluster_arrive(), cluster_wait();
            if (mine.h < r.n_heads) {
                float2 ml;
                float4 v = lm_join(memory, tg, mine, lm_groups(r, before), &ml);
                float2 xy = attn_fold(&top, ml.x, s == 0u); /* as attn_merge */
                l = fmaf(l, xy.x, ml.y * xy.y);
                o = make_float4(fmaf(o.x, xy.x, v.x * xy.y), fmaf(o.y, xy.x, v.y * xy.y),
                                fmaf(o.z, xy.x, v.z * xy.y), fmaf(o.w, xy.x, v.w * xy.y));
            }
            cluster_arrive(), cluster_wait();
        }
        if (mine.h < r.n_heads)
            *(float4 *)(y + (u64)i * a.y_pitch + (r.h0 + mine.h) * a.v_units * 8u + mine.col) =
                make_float4(o.x / l, o.y / l, o.z / l, o.w / l);
    }
}

/* ---- one row, from its products on ---- */

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

/* group.x: stretches, LATENT_CLUSTER groups each; group.y: heads. Cached rows of earlier steps
 * travel before the wait; the last group has the row's own latent and puts it into the cache.
 * Leaves a part of each stretch for k_mla_out. */
extern "C" __global__ void __cluster_dims__(LATENT_CLUSTER, 1, 1)
    __launch_bounds__(LATENT_MMA_THREADS, 2)
        k_mla_mma(CONST(uint4) rows, CONST(uint) tables, CONST(float) cosine, CONST(float) sine,
                  CONST(float4) w, CONST(float4), DEV(const float) q, DEV(const float) c,
                  DEV(const float) k, DEV(const float) x, DEV(float) turned, DEV(const uint4) kv,
                  DEV(uint4) cache, DEV(float) parts, DEV(float2) sums, ARGS(mla_args) a)
{
    __shared__ lm_shared tg;
    float *memory = lm_memory();
    uint shared = flash_shared(), rank = blockIdx.x % (uint)LATENT_CLUSTER;
    uint stretch = blockIdx.x / (uint)LATENT_CLUSTER, lane = threadIdx.x % 32u;
    lm_row r = lm_row_of(rows[0], true, blockIdx.y * (uint)LATENT_HEADS, a.attn);
    uint before = stretch * (uint)LATENT_CLUSTER * r.per, t = before + rank * r.per;
    bool works = t < r.n_tiles, owns = works && t + r.per >= r.n_tiles;
    float4 nw[LM_NORM];
    dep_launch();
    if (works) lm_fetch(tables, kv, tg, t * (uint)LATENT_POS, shared, r, a.attn);
    UNROLL
    for (uint i = 0u; i < (uint)LM_NORM; i++) {
        uint at = lane + 32u * i;
        nw[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (owns && threadIdx.x >= (uint)LM_QUERY_THREADS && a.store.has_w != 0u &&
            at < a.store.n / 4u)
            nw[i] = w[at];
    }
    dep_wait();
    if (before >= r.n_tiles) return;
    uint n = lm_groups(r, before), at = stretch * a.attn.n_heads + r.h0,
         width = a.attn.v_units * 8u;
    if (works) {
        const lm_turn turn = {q, turned, cosine, sine};
        const lm_turn key = {k, NULL, cosine, sine};
        lm_queries(x, &turn, memory, r, a.attn, &a.store, blockIdx.x == 0u);
        if (owns && threadIdx.x >= (uint)LM_QUERY_THREADS) lm_own(c, key, nw, tg, a.store, lane);
        __syncthreads();
        if (owns && blockIdx.y == 0u && threadIdx.x < a.attn.k_units)
            cache[flash_place(tables, a.attn, r.slot, r.pos) + threadIdx.x] = tg.own[threadIdx.x];
        lm_tiles(tables, kv, tg, memory, t, r, a.attn, n == 1u ? parts + (u64)at * width : memory,
                 n == 1u ? width : (uint)LM_OUT_PITCH);
    }
    if (n == 1u) { /* the first group has it all */
        if (works && threadIdx.x < r.n_heads) sums[at + threadIdx.x] = tg.ml[threadIdx.x];
        return;
    }
    cluster_arrive(), cluster_wait();
    lm_slice mine = lm_slice_of(a.attn, rank);
    if (mine.h < r.n_heads) {
        float2 ml;
        float4 o = lm_join(memory, tg, mine, n, &ml);
        if (mine.col == 0u) sums[at + mine.h] = ml;
        *(float4 *)(parts + (u64)(at + mine.h) * width + mine.col) = o;
    }
    cluster_arrive(), cluster_wait(); /* nobody leaves while others read */
}

#endif
