/* Latent attention of rows of class D on tensor cores, each cached row read once for eight heads:
 * with what coarse halves leave they fill the matrix unit's rows, and two groups fit on a
 * multiprocessor. A cluster of groups takes a stretch of the positions, a group a run of its tiles
 * of LATENT_POS; it multiplies queries and exponentials as two halves each, a coarse one and what
 * that leaves, so that sums are as good as those of floats. Groups of a cluster join what they have
 * in order through each other's shared memory, and stretches are folded in order, by the same
 * cluster or by k_mla_out. How a row is cut depends on its position alone: its bits are its own,
 * whatever else runs. */
#include "gpu/native/cluster.h"
#include "gpu/native/latent_mma.h"

#if !defined __CUDA_ARCH__ || __CUDA_ARCH__ >= 900

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
    lm_meet();
    uint n = store->n_rot / 8u;
    ROLLED
    for (uint i = threadIdx.x; i < r.n_heads * n; i += (uint)LATENT_MMA_THREADS)
        lm_put_query(to, i / n, n_plain + i % n, rotated + i * 8u);
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
                float made[LM_COLUMNS / 8][4];
                lm_fetch(tables, kv, tg, t * (uint)LATENT_POS, shared, r, a);
                if (s == 0u) lm_queries(q + (u64)i * a.q_pitch, NULL, memory, r, a, NULL, false);
                lm_tiles(tables, kv, tg, memory, t, r, a, made);
                lm_leave(made, memory, (uint)LM_OUT_PITCH, r.n_heads, a.v_units * 8u,
                         threadIdx.x % 32u, threadIdx.x / 32u);
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
        lm_meet();
        if (owns && blockIdx.y == 0u && threadIdx.x < a.attn.k_units)
            cache[flash_place(tables, a.attn, r.slot, r.pos) + threadIdx.x] = tg.own[threadIdx.x];
        float o[LM_COLUMNS / 8][4];
        lm_tiles(tables, kv, tg, memory, t, r, a.attn, o);
        lm_leave(o, n == 1u ? parts + (u64)at * width : memory,
                 n == 1u ? width : (uint)LM_OUT_PITCH, r.n_heads, width, lane, threadIdx.x / 32u);
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
