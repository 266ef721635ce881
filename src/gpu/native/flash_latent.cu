/* Latent attention of prompts' rows on tensor cores: all heads share one cached row, whose first
 * columns are the value too. A group takes LATENT_TILE_ROWS (row, head) of one sequence; four by
 * four warps make their scores at FLASH_STRIDE positions, then each of the sixteen multiplies all
 * exponentials with 32 columns of the values. Rounding and order as in flash.cu. */
#include "gpu/native/flash.h"

#if !defined __CUDA_ARCH__ || __CUDA_ARCH__ >= 800

enum {
    LATENT_UNITS = LATENT_MAX_K / 8,
    LATENT_BYTES = LATENT_TILE_ROWS * LATENT_MAX_K * 2, /* of queries, and of a stride */
    LATENT_WARP_COLUMNS = LATENT_MAX_V / (FLASH_LATENT_THREADS / 32),
};

struct latent_shared {
    uint place[2][FLASH_STRIDE];
    float part[4][LATENT_TILE_ROWS]; /* tops, in the end sums, of 16 columns */
    float was[LATENT_TILE_ROWS];
};

/* Queries of pairs (row, head) from `pair` on, n of them real. */
GPU_FN void latent_queries(DEV(const float) q, const attention_args &a, uint pair, uint n, uint to)
{
    for (uint i = threadIdx.x; i < (uint)(LATENT_TILE_ROWS * LATENT_UNITS);
         i += (uint)FLASH_LATENT_THREADS) {
        uint m = i / (uint)LATENT_UNITS, u = i % (uint)LATENT_UNITS, p = pair + min(m, n - 1u);
        DEV(const float4)
        x = (DEV(const float4))(
            q + ((u64)(p / a.n_heads) * a.q_pitch + (p % a.n_heads * a.k_units + u) * 8u));
        uint4 h = make_uint4(0u, 0u, 0u, 0u);
        if (u < a.k_units) {
            float4 lo = x[0], hi = x[1];
            h = make_uint4(flash_halves(lo.x, lo.y), flash_halves(lo.z, lo.w),
                           flash_halves(hi.x, hi.y), flash_halves(hi.z, hi.w));
        }
        asm volatile(
            "st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to + flash_at<LATENT_UNITS>(m, u)),
            "r"(h.x), "r"(h.y), "r"(h.z), "r"(h.w)
            : "memory");
    }
}

GPU_FN void latent_fetch(DEV(const uint4) kv, const uint *place, const attention_args &a, uint n,
                         uint to)
{
    UNROLL
    for (uint i = 0u; i < (uint)(FLASH_STRIDE * LATENT_UNITS / FLASH_LATENT_THREADS); i++) {
        uint at = i * (uint)FLASH_LATENT_THREADS + threadIdx.x;
        uint p = at / (uint)LATENT_UNITS, u = at % (uint)LATENT_UNITS;
        bool real = p < n && u < a.k_units;
        flash_send(to + flash_at<LATENT_UNITS>(p, u), kv + place[p] + (real ? u : 0u), real);
    }
}

/* Scores of 16 pairs at 16 positions. */
GPU_FN void latent_scores(float (*s)[4], uint queries, uint keys, uint lane)
{
    UNROLL
    for (int i = 0; i < 2; i++) s[i][0] = s[i][1] = s[i][2] = s[i][3] = 0.0f;
    UNROLL
    for (uint k = 0u; k < (uint)LATENT_MAX_K / 16u; k++) {
        uint x[4], b[4];
        mma_load(x, queries + flash_at<LATENT_UNITS>(lane % 16u, 2u * k + lane / 16u));
        mma_load(
            b, keys + flash_at<LATENT_UNITS>(lane % 8u + lane / 16u * 8u, 2u * k + lane / 8u % 2u));
        mma_f16(s[0], x, b[0], b[1]);
        mma_f16(s[1], x, b[2], b[3]);
    }
}

/* o[16 rows][8 columns] of all pairs and this warp's columns. */
GPU_FN void latent_values(float (*o)[LATENT_WARP_COLUMNS / 8][4], uint expo, uint values, uint lane,
                          uint warp)
{
    UNROLL
    for (uint k = 0u; k < (uint)FLASH_STRIDE / 16u; k++) {
        uint p[LATENT_TILE_ROWS / 16][4], v[LATENT_WARP_COLUMNS / 16][4];
        UNROLL
        for (uint i = 0u; i < (uint)LATENT_TILE_ROWS / 16u; i++)
            mma_load(p[i], expo + flash_at<8>(16u * i + lane % 16u, 2u * k + lane / 16u));
        UNROLL
        for (uint i = 0u; i < (uint)LATENT_WARP_COLUMNS / 16u; i++)
            mma_load_across(
                v[i], values + flash_at<LATENT_UNITS>(16u * k + lane % 16u,
                                                      warp * (uint)(LATENT_WARP_COLUMNS / 8) +
                                                          2u * i + lane / 16u));
        UNROLL
        for (int i = 0; i < LATENT_TILE_ROWS / 16; i++) {
            UNROLL
            for (int j = 0; j < LATENT_WARP_COLUMNS / 8; j++)
                mma_f16(o[i][j], p[i], v[j / 2][j % 2 * 2], v[j / 2][j % 2 * 2 + 1]);
        }
    }
}

/* The softmax of a warp's 16 by 16 scores; pos: of the lane's two rows. Leaves exponentials in
 * shared memory, and what earlier ones are multiplied with. */
GPU_FN void latent_softmax(float (*s)[4], float *m, float *l, latent_shared &tg, const uint *pos,
                           uint expo, uint first, float by, uint lane, uint warp)
{
    uint row = warp / 4u * 16u + lane / 4u, col = warp % 4u * 16u + lane % 4u * 2u;
    UNROLL
    for (uint r = 0u; r < 2u; r++) {
        float top = FLASH_NOTHING;
        UNROLL
        for (uint i = 0u; i < 4u; i++) {
            float &v = s[i / 2u][2u * r + i % 2u];
            v = first + col + i / 2u * 8u + i % 2u <= pos[r] ? v * by : FLASH_NOTHING;
            top = fmaxf(top, v);
        }
        top = flash_row_max(top);
        if (lane % 4u == 0u) tg.part[warp % 4u][row + 8u * r] = top;
    }
    __syncthreads();
    UNROLL
    for (uint r = 0u; r < 2u; r++) {
        uint at = row + 8u * r;
        float top =
            fmaxf(fmaxf(fmaxf(tg.part[0][at], tg.part[1][at]), tg.part[2][at]), tg.part[3][at]);
        top = fmaxf(m[r], top);
        float was = flash_exp2(m[r] - top), sum = 0.0f;
        if (warp % 4u == 0u && lane % 4u == 0u) tg.was[at] = was;
        m[r] = top;
        UNROLL
        for (uint i = 0u; i < 2u; i++) {
            float a = flash_exp2(s[i][2u * r] - top), b = flash_exp2(s[i][2u * r + 1u] - top);
            sum += a + b;
            asm volatile("st.shared.u32 [%0], %1;" ::"r"(
                             expo + flash_at<8>(at, warp % 4u * 2u + i) + lane % 4u * 4u),
                         "r"(flash_halves(a, b))
                         : "memory");
        }
        l[r] = fmaf(l[r], was, sum);
    }
    __syncthreads();
}

GPU_FN void latent_put(float (*o)[LATENT_WARP_COLUMNS / 8][4], const float *l, latent_shared &tg,
                       DEV(float) y, const attention_args &a, uint pair, uint n, uint lane,
                       uint warp)
{
    UNROLL
    for (uint r = 0u; r < 2u; r++) {
        float sum = flash_row_sum(l[r]);
        if (lane % 4u == 0u) tg.part[warp % 4u][warp / 4u * 16u + lane / 4u + 8u * r] = sum;
    }
    __syncthreads();
    UNROLL
    for (uint i = 0u; i < (uint)LATENT_TILE_ROWS / 8u; i++) {
        uint m = 8u * i + lane / 4u, p = pair + m;
        if (m >= n) continue;
        float sum = tg.part[0][m] + tg.part[1][m] + tg.part[2][m] + tg.part[3][m];
        DEV(float) to = y + ((u64)(p / a.n_heads) * a.y_pitch + p % a.n_heads * a.v_units * 8u);
        UNROLL
        for (uint j = 0u; j < (uint)LATENT_WARP_COLUMNS / 8u; j++) {
            uint u = warp * (uint)(LATENT_WARP_COLUMNS / 8) + j, col = u * 8u + lane % 4u * 2u;
            const float *v = o[i / 2u][j] + i % 2u * 2u;
            if (u < a.v_units) to[col] = v[0] / sum, to[col + 1u] = v[1] / sum;
        }
    }
}

/* Pairs [pair, pair + n) of the sequence whose row before them all is `first` (position z). */
GPU_FN void latent_tile(uint4 first, DEV(const uint) tables, DEV(const float) q,
                        DEV(const uint4) kv, DEV(float) y, latent_shared &tg, uint pair, uint n,
                        const attention_args &a)
{
    uint lane = threadIdx.x % 32u, warp = threadIdx.x / 32u, tid = threadIdx.x;
    uint queries = flash_shared(), cache = queries + (uint)LATENT_BYTES;
    uint expo = cache + 2u * (uint)LATENT_BYTES;
    uint n_kv = first.z + (pair + n - 1u) / a.n_heads + 1u;
    uint n_strides = (n_kv + (uint)FLASH_STRIDE - 1u) / (uint)FLASH_STRIDE, pos[2];
    float o[LATENT_TILE_ROWS / 16][LATENT_WARP_COLUMNS / 8][4], l[2] = {0.0f, 0.0f};
    float m[2] = {FLASH_NOTHING, FLASH_NOTHING};
    UNROLL
    for (int i = 0; i < LATENT_TILE_ROWS * LATENT_WARP_COLUMNS / 32; i++) (&o[0][0][0])[i] = 0.0f;
    UNROLL
    for (uint r = 0u; r < 2u; r++)
        pos[r] = first.z + (pair + min(warp / 4u * 16u + lane / 4u + 8u * r, n - 1u)) / a.n_heads;
    __syncthreads(); /* of the tile before */
    for (uint i = tid; i < 2u * (uint)FLASH_STRIDE; i += (uint)FLASH_LATENT_THREADS)
        tg.place[i / (uint)FLASH_STRIDE][i % (uint)FLASH_STRIDE] =
            flash_place(tables, a, first.y, min(i, n_kv - 1u));
    latent_queries(q, a, pair, n, queries);
    __syncthreads();
    latent_fetch(kv, tg.place[0], a, n_kv, cache);
    mma_commit();
    for (uint j = 0u; j < n_strides; j++) {
        uint at = j * (uint)FLASH_STRIDE, next = at + (uint)FLASH_STRIDE;
        uint keys = cache + j % 2u * (uint)LATENT_BYTES;
        if (j + 1u < n_strides)
            latent_fetch(kv, tg.place[(j + 1u) % 2u], a, n_kv - next,
                         cache + (j + 1u) % 2u * (uint)LATENT_BYTES);
        mma_commit();
        mma_wait<1>();
        __syncthreads();
        if (tid < (uint)FLASH_STRIDE)
            tg.place[j % 2u][tid] =
                flash_place(tables, a, first.y, min(next + (uint)FLASH_STRIDE + tid, n_kv - 1u));
        float s[2][4];
        latent_scores(s, queries + warp / 4u * 16u * (uint)(LATENT_UNITS * 16),
                      keys + warp % 4u * 16u * (uint)(LATENT_UNITS * 16), lane);
        latent_softmax(s, m, l, tg, pos, expo, at, a.scale * 1.44269504f, lane, warp);
        UNROLL
        for (int i = 0; i < LATENT_TILE_ROWS / 8; i++) {
            float was = tg.was[8u * (uint)i + lane / 4u];
            UNROLL
            for (int k = 0; k < LATENT_WARP_COLUMNS / 8; k++)
                o[i / 2][k][i % 2 * 2] *= was, o[i / 2][k][i % 2 * 2 + 1] *= was;
        }
        latent_values(o, expo, keys, lane, warp);
        __syncthreads();
    }
    latent_put(o, l, tg, y, a, pair, n, lane, warp);
}

/* group.x: pairs of a tile of rows, .y: tiles in turn, those that see most first */
KERNEL(k_flash_latent, FLASH_LATENT_THREADS)
(DEV(const uint) head, DEV(const uint4) rows, DEV(const uint2) tiles, DEV(const uint) tables,
 DEV(const float) q, DEV(const uint4) kv, DEV(float) y, ARGS(attention_args) a)
{
    __shared__ latent_shared tg;
    dep_launch();
    dep_wait();
    uint n = head[HEAD_N_TILES], pair = blockIdx.x * (uint)LATENT_TILE_ROWS;
    for (uint i = blockIdx.y; i < n; i += gridDim.y) {
        uint2 tile = tiles[n - 1u - i];
        uint n_pairs = tile.y * a.n_heads;
        if (pair >= n_pairs) continue;
        latent_tile(rows[tile.x], tables, q + (u64)tile.x * a.q_pitch, kv,
                    y + (u64)tile.x * a.y_pitch, tg, pair,
                    min((uint)LATENT_TILE_ROWS, n_pairs - pair), a);
    }
}

#endif
