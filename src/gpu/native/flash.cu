/* Attention of prompts' rows on tensor cores, over cached halves. A group takes up to FLASH_TILE
 * rows of one sequence and one head and walks over the cache, FLASH_STRIDE positions at a time from
 * position 0 on, with an online softmax: queries and exponentials are rounded to halves, everything
 * else is f32. What lies behind a row's own position adds exact zeros, so a row has the same bits
 * whichever rows share its tile, and there is no buffer of scores. */
#include "gpu/native/flash.h"

#if !defined __CUDA_ARCH__ || __CUDA_ARCH__ >= 800

enum { FLASH_WARPS = FLASH_THREADS / 32 };

/* The queries of a warp's 16 rows as mma wants them; rows beyond n are the last one's. */
template <int D>
GPU_FN void flash_queries(DEV(const float) q, uint (*f)[4], uint pitch, uint n, uint width,
                          uint row, uint lane)
{
    DEV(const float) low = q + (u64)min(row + lane / 4u, n - 1u) * pitch;
    DEV(const float) high = q + (u64)min(row + lane / 4u + 8u, n - 1u) * pitch;
    UNROLL
    for (int k = 0; k < D / 16; k++) {
        UNROLL
        for (int i = 0; i < 4; i++) {
            uint col = (uint)(16 * k + i / 2 * 8) + lane % 4u * 2u;
            DEV(const float) x = i % 2 ? high : low;
            f[k][i] = col < width ? flash_halves(x[col], x[col + 1u]) : 0u;
        }
    }
}

/* Keys and values of FLASH_STRIDE positions, of which n are real. */
template <int D>
GPU_FN void flash_fetch(DEV(const uint4) kv, const uint *place, const attention_args &a, uint head,
                        uint n, uint to)
{
    enum { UNITS = D / 8 };
    UNROLL
    for (uint i = 0u; i < (uint)(FLASH_STRIDE * UNITS / FLASH_THREADS); i++) {
        uint at = i * (uint)FLASH_THREADS + threadIdx.x, p = at / (uint)UNITS, u = at % (uint)UNITS;
        DEV(const uint4) row = kv + place[p];
        bool k_real = p < n && u < a.k_units, v_real = p < n && u < a.v_units;
        flash_send(to + flash_at<UNITS>(p, u), row + (k_real ? head * a.k_units + u : 0u), k_real);
        flash_send(to + (uint)(FLASH_STRIDE * D * 2) + flash_at<UNITS>(p, u),
                   row + (v_real ? a.v_at + head * a.v_units + u : 0u), v_real);
    }
}

template <int D> GPU_FN void flash_scores(float (*s)[4], const uint (*q)[4], uint keys, uint lane)
{
    UNROLL
    for (int i = 0; i < FLASH_STRIDE / 8; i++) s[i][0] = s[i][1] = s[i][2] = s[i][3] = 0.0f;
    UNROLL
    for (int k = 0; k < D / 16; k++) {
        UNROLL
        for (int i = 0; i < FLASH_STRIDE / 16; i++) {
            uint b[4], row = (uint)(16 * i) + lane % 8u + lane / 16u * 8u;
            mma_load(b, keys + flash_at<D / 8>(row, (uint)(2 * k) + lane / 8u % 2u));
            mma_f16(s[2 * i], q[k], b[0], b[1]);
            mma_f16(s[2 * i + 1], q[k], b[2], b[3]);
        }
    }
}

/* Scores become exponentials; o, l and m follow. pos: of the lane's first row. */
template <int D>
GPU_FN void flash_softmax(float (*s)[4], float (*o)[4], float *m, float *l, float by, uint first,
                          uint pos, uint lane)
{
    UNROLL
    for (int r = 0; r < 2; r++) {
        float top = m[r], sum = 0.0f;
        UNROLL
        for (int i = 0; i < FLASH_STRIDE / 8; i++) {
            UNROLL
            for (int e = 2 * r; e < 2 * r + 2; e++) {
                uint p = first + (uint)(8 * i + e % 2) + lane % 4u * 2u;
                s[i][e] = p <= pos + 8u * (uint)r ? s[i][e] * by : FLASH_NOTHING;
                top = fmaxf(top, s[i][e]);
            }
        }
        top = flash_row_max(top);
        float was = flash_exp2(m[r] - top);
        UNROLL
        for (int i = 0; i < FLASH_STRIDE / 8; i++) {
            UNROLL
            for (int e = 2 * r; e < 2 * r + 2; e++) {
                s[i][e] = flash_exp2(s[i][e] - top);
                sum += s[i][e];
            }
        }
        UNROLL
        for (int i = 0; i < D / 8; i++) o[i][2 * r] *= was, o[i][2 * r + 1] *= was;
        l[r] = fmaf(l[r], was, sum);
        m[r] = top;
    }
}

template <int D>
GPU_FN void flash_values(float (*o)[4], const float (*s)[4], uint values, uint lane)
{
    UNROLL
    for (int k = 0; k < FLASH_STRIDE / 16; k++) {
        const float *lo = s[2 * k], *hi = s[2 * k + 1];
        uint p[4] = {flash_halves(lo[0], lo[1]), flash_halves(lo[2], lo[3]),
                     flash_halves(hi[0], hi[1]), flash_halves(hi[2], hi[3])};
        uint row = (uint)(16 * k) + lane % 16u;
        UNROLL
        for (int i = 0; i < D / 16; i++) {
            uint b[4];
            mma_load_across(b, values + flash_at<D / 8>(row, (uint)(2 * i) + lane / 16u));
            mma_f16(o[2 * i], p, b[0], b[1]);
            mma_f16(o[2 * i + 1], p, b[2], b[3]);
        }
    }
}

template <int D>
GPU_FN void flash_tile(DEV(const uint4) rows, DEV(const uint) tables, DEV(const float) q,
                       DEV(const uint4) kv, DEV(float) y, uint (*place)[FLASH_STRIDE], uint2 tile,
                       uint head, const attention_args &a)
{
    enum { STAGE = 2 * FLASH_STRIDE * D * 2 };
    uint lane = threadIdx.x % 32u, row = threadIdx.x / 32u * 16u, tid = threadIdx.x;
    uint4 first = rows[tile.x];
    uint n_kv = first.z + tile.y, n_strides = (n_kv + (uint)FLASH_STRIDE - 1u) / (uint)FLASH_STRIDE;
    uint kv_head = head / (a.n_heads / a.n_kv_heads), memory = flash_shared();
    uint f[D / 16][4];
    float o[D / 8][4], m[2] = {FLASH_NOTHING, FLASH_NOTHING}, l[2] = {0.0f, 0.0f};
    UNROLL
    for (int i = 0; i < D / 8; i++) o[i][0] = o[i][1] = o[i][2] = o[i][3] = 0.0f;
    __syncthreads(); /* of the tile before */
    for (uint i = tid; i < 2u * (uint)FLASH_STRIDE; i += (uint)FLASH_THREADS)
        place[i / (uint)FLASH_STRIDE][i % (uint)FLASH_STRIDE] =
            flash_place(tables, a, first.y, min(i, n_kv - 1u));
    flash_queries<D>(q + ((u64)tile.x * a.q_pitch + head * a.k_units * 8u), f, a.q_pitch, tile.y,
                     a.k_units * 8u, row, lane);
    __syncthreads();
    flash_fetch<D>(kv, place[0], a, kv_head, n_kv, memory);
    mma_commit();
    for (uint j = 0u; j < n_strides; j++) {
        uint at = j * (uint)FLASH_STRIDE, next = at + (uint)FLASH_STRIDE;
        if (j + 1u < n_strides)
            flash_fetch<D>(kv, place[(j + 1u) % 2u], a, kv_head, n_kv - next,
                           memory + (j + 1u) % 2u * (uint)STAGE);
        mma_commit();
        mma_wait<1>();
        __syncthreads();
        uint ahead = next + (uint)FLASH_STRIDE + tid;
        if (tid < (uint)FLASH_STRIDE)
            place[j % 2u][tid] = flash_place(tables, a, first.y, min(ahead, n_kv - 1u));
        if (at <= first.z + row + 15u) {
            float s[FLASH_STRIDE / 8][4];
            uint keys = memory + j % 2u * (uint)STAGE;
            flash_scores<D>(s, f, keys, lane);
            flash_softmax<D>(s, o, m, l, a.scale * 1.44269504f, at, first.z + row + lane / 4u,
                             lane);
            flash_values<D>(o, s, keys + (uint)(STAGE / 2), lane);
        }
        __syncthreads();
    }
    UNROLL
    for (uint r = 0u; r < 2u; r++) {
        uint t = row + lane / 4u + 8u * r;
        float sum = flash_row_sum(l[r]);
        if (t >= tile.y) continue;
        DEV(float) to = y + ((u64)(tile.x + t) * a.y_pitch + head * a.v_units * 8u);
        UNROLL
        for (uint i = 0u; i < (uint)(D / 8); i++) {
            uint col = 8u * i + lane % 4u * 2u;
            if (i < a.v_units) to[col] = o[i][2u * r] / sum, to[col + 1u] = o[i][2u * r + 1u] / sum;
        }
    }
}

/* group.x: head, .y: tiles in turn, those that see most first */
#define FLASH_KERNEL(D)                                                                           \
    KERNEL(k_flash_##D, FLASH_THREADS)                                                            \
    (DEV(const uint) head, DEV(const uint4) rows, DEV(const uint2) tiles, DEV(const uint) tables, \
     DEV(const float) q, DEV(const uint4) kv, DEV(float) y, ARGS(attention_args) a)               \
    {                                                                                             \
        __shared__ uint place[2][FLASH_STRIDE];                                                   \
        dep_launch();                                                                             \
        dep_wait();                                                                               \
        uint n = head[HEAD_N_TILES];                                                              \
        for (uint i = blockIdx.y; i < n; i += gridDim.y)                                          \
            flash_tile<D>(rows, tables, q, kv, y, place, tiles[n - 1u - i], blockIdx.x, a);       \
    }
FLASH_KERNEL(64)
FLASH_KERNEL(128)

#endif
