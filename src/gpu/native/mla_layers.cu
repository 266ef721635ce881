/* One row of layers with latent attention and experts (GLM-4.7-Flash), as one launch: a group on
 * every multiprocessor walks over the phases of a layer, as in rwkv7.cu. Groups pass values to each
 * other in pairs of a word and a tag, the number of the layer since the device was opened: whoever
 * reads a pair asks until its tag is there. No fence is needed, and nobody can overwrite what
 * others still read: between two layers' values of one kind all groups wait for all.
 *
 * Weights follow each other through a ring in shared memory that one warp fills; it also finds the
 * row's experts, so that their weights travel as soon as the router has spoken. The bits are those
 * of k_matmul, k_mla_query, k_mla_mma, k_mla_out, k_mix, k_experts_glu and k_experts_sum. */
#include "gpu/args.h"
#include "gpu/kernels/experts.h"
#include "gpu/kernels/halves.h"
#include "gpu/native/latent_mma.h"
#include "gpu/native/walk.h"

#if !defined __CUDA_ARCH__ || HAS_BULK

/* Phases with weights, in their order; attention is between PHASE_LATENT and PHASE_OUT. */
enum {
    PHASE_QKV,    /* q_a or kv_a */
    PHASE_QUERY,  /* q_b */
    PHASE_LATENT, /* k_b of one head */
    PHASE_OUT,    /* v_b of one head */
    PHASE_O,
    PHASE_ROUTER, /* an expert's logit */
    PHASE_SHARED, /* gate, then up */
    PHASE_EXPERT, /* of one choice, gate and up in turns */
    PHASE_DOWN,   /* the shared one's, then those of all choices */
    PHASES
};
enum {
    THREADS = MLA_SIMDS * 32,
    STEPS = MLA_MAX / 512, /* of the residual stream's columns: 32 units of 16 */
    QUERY_FEW = 2,         /* of q_a's outputs */
    MOST_ROTATED = 64,
    REGISTERS = 104,
    HELPERS_REGISTERS = 64,
};
static_assert((int)THREADS == (int)LATENT_MMA_THREADS, "all of them attend");

/* The group's rows of a phase, of 16 q_row bytes and s_row of scales; at_once of them are a slot.
 */
struct stretch {
    uint q, s; /* the matrix, in 16 bytes */
    uint first, n_rows, q_row, s_row, at_once;
};

struct walk_memory {
    u8 attention[LATENT_MMA_BYTES];
    uint4 ring[MLA_SLOTS * MLA_SLOT / 16];
    uint4 xs[MLA_MAX_IN / 16]; /* rounded columns */
    float scales[MLA_MAX_IN / 32];
    float4 row[MLA_MAX / 4];   /* for the router, or outputs of attention */
    float4 out[MLA_BLOCK / 4]; /* of v_b, or of an expert's glu */
    float sums[NORM_THREADS / 32];
    lm_shared latent;
    uint ahead[LATENT_POS]; /* places of the first tile */
    float cosine[MOST_ROTATED / 2], sine[MOST_ROTATED / 2];
    u64 full[MLA_SLOTS], empty[MLA_SLOTS];
    stretch stretches[PHASES];
    uint ids[ROUTE_MAX_USED];
    float weights[ROUTE_MAX_USED];
};

/* ---- weights ---- */

GPU_FN void deal(stretch &s, mla_matrix w, uint n_in, uint n_out, uint i, uint n)
{
    uint each = n_out / n, more = n_out - each * n;
    s.q = w.q, s.s = w.s;
    s.first = each * i + min(i, more);
    s.n_rows = each + (i < more ? 1u : 0u);
    s.q_row = n_in / 16u;
    s.s_row = (n_in / 16u + 3u) / 4u * 4u; /* as planes_plan */
}

/* Two groups have three blocks of 32 outputs of an expert, which they round: half of the middle one
 * each, then one of the others. */
GPU_FN uint expert_groups(const mla_layers_args &a)
{
    return a.n_between / (uint)MLA_EXPERT;
}
GPU_FN uint expert_row(const mla_layers_args &a, uint first) /* of the group's row `first` */
{
    uint i = blockIdx.x % expert_groups(a), side = i % 2u, three = i / 2u * 96u;
    return first == 0u ? three + 32u + 16u * side : three + 64u * side + first - 16u;
}

/* The group's rows of every phase. */
GPU_FN stretch stretch_of(const mla_layers_args &a, uint phase)
{
    stretch s = {0u, 0u, 0u, 0u, 0u, 0u, 0u};
    uint i = blockIdx.x, n = gridDim.x, heads = a.attn.n_heads, v = a.attn.v_units * 8u;
    uint most = (uint)MLA_SIMDS; /* rows of a slot */
    if (phase == (uint)PHASE_QKV && i < a.q_groups) {
        deal(s, a.q_a, a.n, a.n_q, i, a.q_groups);
    } else if (phase == (uint)PHASE_QKV) {
        deal(s, a.kv_a, a.n, a.attn.k_units * 8u, i - a.q_groups, n - a.q_groups);
    } else if (phase == (uint)PHASE_QUERY) {
        deal(s, a.q_b, a.n_q, heads * a.n_head, i, n);
        most = s.n_rows;
    } else if (phase == (uint)PHASE_LATENT) {
        uint per = n / heads;
        deal(s, a.k_b, a.n_k, v, i % per, per);
        s.first += i / per * v;
        if (i / per >= heads) s.n_rows = 0u;
        most = s.n_rows;
    } else if (phase == (uint)PHASE_OUT) {
        deal(s, a.v_b, v, heads * a.n_v, 0u, 1u);
        s.first = i * (uint)MLA_BLOCK;
        s.n_rows = s.first < s.n_rows ? (uint)MLA_BLOCK : 0u;
        most = s.n_rows;
    } else if (phase == (uint)PHASE_O) {
        deal(s, a.o, heads * a.n_v, a.n, i, n);
    } else if (phase == (uint)PHASE_ROUTER) {
        s.q = a.router, s.first = i, s.q_row = a.n / 4u;
        s.n_rows = i < a.route.n_experts ? 1u : 0u;
    } else if (phase == (uint)PHASE_SHARED) {
        deal(s, a.shared_gate, a.n, a.n_shared, i, n);
    } else if (phase == (uint)PHASE_EXPERT) {
        deal(s, a.gate, a.n, a.n_between, 0u, 1u);
        s.n_rows = i / expert_groups(a) < a.route.n_used ? (uint)MLA_EXPERT : 0u;
    } else {
        deal(s, a.down, a.n_between, a.n, i, n);
    }
    uint row = s.q_row * 16u + s.s_row;
    s.at_once = min(most, ((uint)MLA_SLOT - 16u) / row);
    return s;
}

/* The warp that fills the ring, its first lane. */
struct bringer {
    walk_memory *m;
    uint at, odd, lane;
};
/* One slot: n rows from q and s on, whose scales are behind room for `room` bytes. With it up to
 * at_once slots are on their way. Called, because it is needed in seven places. */
static __device__ __noinline__ void bring_slot(walk_memory *m, uint at, uint odd, CONST(uint4) q,
                                               CONST(u8) s, uint n_q, uint n_s, uint room,
                                               uint at_once)
{
    uint full = shared_at(m->full + at), to = shared_at(m->ring) + at * (uint)MLA_SLOT;
    uint adj = (uint)(u64)s % 16u, bytes = n_s > 0u ? (n_s + adj + 15u) / 16u * 16u : 0u;
    bulk_wait(shared_at(m->empty + at), odd ^ 1u);
    if (at_once < (uint)MLA_SLOTS) {
        bool wraps = at < at_once;
        uint before = at + (wraps ? (uint)MLA_SLOTS : 0u) - at_once;
        bulk_wait(shared_at(m->full + before), odd ^ (wraps ? 1u : 0u));
    }
    bulk_expect(full, n_q + bytes);
    bulk_send_once(to, q, n_q, full);
    if (bytes > 0u) bulk_send_once(to + room, s - adj, bytes, full);
}
/* n rows of a matrix from `row` on. */
GPU_FN void bring_rows(bringer &b, CONST(uint4) weights, mla_matrix w, const stretch &s, uint row,
                       uint n, uint at_once)
{
    if (b.lane == 0u)
        bring_slot(b.m, b.at, b.odd, weights + w.q + (u64)row * s.q_row,
                   (CONST(u8))(weights + w.s) + (u64)row * s.s_row, n * s.q_row * 16u, n * s.s_row,
                   s.at_once * s.q_row * 16u, at_once);
    if (++b.at == (uint)MLA_SLOTS) b.at = 0u, b.odd ^= 1u;
}

/* Vectors of the layer to the L2, by groups in turns. */
GPU_FN void bring_vectors(CONST(uint4) weights, const mla_layers_args &a)
{
    enum { TURNS = 8 };
    uint g = blockIdx.x, v = g / (uint)TURNS;
    uint n = v < 2u ? a.n : v == 2u ? a.n_q : v == 3u ? a.store.n : a.route.n_experts;
    uint at = v < 2u ? a.norm[v] : v == 2u ? a.q_norm : v == 3u ? a.c_norm : a.bias;
    uint share = n / 4u / (uint)TURNS;
    if (v < 5u && share > 0u && at != (uint)MIX_NOTHING)
        bulk_ask(weights + at + g % (uint)TURNS * share, share * 16u);
}

/* The row's experts, once the router's logits are there, for the whole group. */
GPU_FN void bring_experts(bringer &b, CONST(uint4) weights, DEV(const u64) passed,
                          const mla_layers_args &a, uint tag)
{
    CONST(float) bias = (CONST(float))(weights + a.bias);
    DEV(const u64) from = passed + a.pass[MLA_PASS_ROUTER];
    uint n = a.route.n_experts, far = b.lane + 32u;
    float u = -INFINITY, v = -INFINITY, by = 0.0f, bv = 0.0f, weight = 0.0f;
    bool first = b.lane < n, second = far < n;
    if (a.route.has_bias != 0u && first) by = early_one(bias + b.lane);
    if (a.route.has_bias != 0u && second) bv = early_one(bias + far);
    while (simd_any(!((!first || pass_one(from + b.lane, tag, &u)) &
                      (!second || pass_one(from + far, tag, &v))))) {
    }
    uint id = route_few(u, v, by, bv, a.route, b.lane, &weight);
    if (b.lane < a.route.n_used) b.m->ids[b.lane] = id, b.m->weights[b.lane] = weight;
    __syncwarp();
}

/* All weights, phase by phase. */
GPU_FN void bring(walk_memory *m, CONST(uint4) weights, DEV(const u64) passed,
                  const mla_layers_args &a)
{
    bringer b = {m, 0u, 0u, threadIdx.x % 32u};
    uint tag = 0u;
    ROLLED
    for (uint l = 0u; l < a.n_layers; l++, weights += a.stride) {
        if (b.lane == 0u && l + 1u < a.n_layers) bring_vectors(weights + a.stride, a);
        ROLLED
        for (uint phase = 0u; phase < (uint)PHASE_SHARED; phase++) {
            const stretch s = m->stretches[phase];
            const mla_matrix w = {s.q, s.s};
            ROLLED
            for (uint row = 0u; row < s.n_rows; row += s.at_once)
                bring_rows(b, weights, w, s, s.first + row, min(s.at_once, s.n_rows - row), 1u);
        }
        const stretch s = m->stretches[PHASE_SHARED];
        bring_rows(b, weights, a.shared_gate, s, s.first, s.n_rows, 1u);
        bring_rows(b, weights, a.shared_up, s, s.first, s.n_rows, 1u);
        if (l == 0u) {
            dep_wait();
            tag = ((DEV(const uint))passed)[0];
        }
        tag++;
        bring_experts(b, weights, passed, a, tag);
        const stretch e = m->stretches[PHASE_EXPERT];
        uint id = m->ids[min(blockIdx.x / expert_groups(a), a.route.n_used - 1u)];
        ROLLED
        for (uint row = 0u; row < e.n_rows; row += e.at_once) {
            uint at = id * a.n_between + expert_row(a, row);
            bring_rows(b, weights, a.gate, e, at, e.at_once, (uint)MLA_SLOTS);
            bring_rows(b, weights, a.up, e, at, e.at_once, (uint)MLA_SLOTS);
        }
        const stretch d = m->stretches[PHASE_DOWN];
        stretch shared = d;
        shared.q_row = a.n_shared / 16u, shared.s_row = a.n_shared / 16u;
        bring_rows(b, weights, a.shared_down, shared, d.first, d.n_rows, (uint)MLA_SLOTS);
        ROLLED
        for (uint k = 0u; k < a.route.n_used; k++)
            bring_rows(b, weights, a.down, d, m->ids[k] * a.n + d.first, d.n_rows, (uint)MLA_SLOTS);
    }
}

/* ---- those who multiply ---- */

struct walker {
    walk_memory *m;
    uint tid, lane, simd, slot, odd;
    uint tag;   /* of the layer */
    float mine; /* the residual stream at the simdgroup's row of it */
};
GPU_FN uint slot_wait(const walker &w)
{
    bulk_wait(shared_at(w.m->full + w.slot), w.odd);
    return shared_at(w.m->ring) + w.slot * (uint)MLA_SLOT;
}
GPU_FN void slot_done(walker &w)
{
    __syncwarp();
    if (w.lane == 0u) bulk_arrive(shared_at(w.m->empty + w.slot));
    if (++w.slot == (uint)MLA_SLOTS) w.slot = 0u, w.odd ^= 1u;
}

/* Row r of the slot at `at`, whose first is row `first` of its matrix: this lane's sum. */
template <int N>
GPU_FN float slot_dot(uint at, const stretch &s, uint first, uint r, const columns<UNIT_I8, N> &x,
                      uint lane)
{
    uint q = at + (r * s.q_row + lane) * 16u;
    uint sc = at + s.at_once * s.q_row * 16u + first * s.s_row % 16u + r * s.s_row +
              lane_scales<UNIT_I8>(lane);
    return dot_steps<UNIT_I8, N>(q, sc, s.q_row, x, lane, 0.0f);
}
template <int N> GPU_FN void load(columns<UNIT_I8, N> &x, const walker &w, uint column, uint n_in)
{
    columns_load<UNIT_I8, N, 0>(x, w.m->xs + column / 16u, w.m->scales + column / 32u, 0u,
                                n_in / 16u, w.lane);
}
GPU_FN void put(walk_memory *m, float4 v, uint i, bool real)
{
    columns_put<UNIT_I8, 0>(m->xs, m->scales, v, i, real);
}

/* One slot's rows, the simdgroup's by fours, passed on. */
template <int N>
GPU_FN void dot_many(walker &w, const stretch &s, const columns<UNIT_I8, N> &x, DEV(u64) to)
{
    uint at = slot_wait(w);
    ROLLED
    for (uint first = 0u; first < s.n_rows; first += 4u * (uint)MLA_SIMDS) {
        float sum[4];
        uint which;
        UNROLL
        for (int j = 0; j < 4; j++) {
            uint r = first + (uint)(j * MLA_SIMDS) + w.simd;
            sum[j] = r < s.n_rows ? slot_dot<N>(at, s, s.first, r, x, w.lane) : 0.0f;
        }
        float v = halves_sum<4>(sum, 5u, w.lane, &which);
        uint r = first + which * (uint)MLA_SIMDS + w.simd;
        if (w.lane % 8u == 0u && r < s.n_rows) pass_put(to + pass_place(s.first + r), v, w.tag);
    }
    slot_done(w);
}

/* ---- the phases ---- */

/* The norm of n columns that are passed, or of x where it is not NULL: a thread's four of them.
 * Squares are summed as norm.h does, four columns and those NORM_THREADS fours behind them by one
 * thread. */
GPU_FN float4 norm_of(walker &w, DEV(const u64) from, DEV(const float4) x, uint tag,
                      CONST(float4) weight, uint n, float eps)
{
    walk_memory *m = w.m;
    uint tid = w.tid, i = min(tid, n / 4u - 1u);
    float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f), by = early_four(weight + i);
    float sq = 0.0f;
    if (x != NULL)
        v = x[i];
    else if (w.simd * 32u < n / 4u)
        pass_fours<1>(from, tid, 0u, n / 4u, tag, &v);
    if (tid < n / 4u) sq = fmaf(v.x, v.x, v.y * v.y) + fmaf(v.z, v.z, v.w * v.w);
    if (n > 4u * (uint)NORM_THREADS) {
        if (tid >= (uint)NORM_THREADS) m->scales[tid - (uint)NORM_THREADS] = sq;
        meet<THREADS>();
        if (tid < (uint)NORM_THREADS) sq += m->scales[tid];
    }
    if (tid < (uint)NORM_THREADS) {
        sq = simd_sum(sq);
        if (w.lane == 0u) m->sums[w.simd] = sq;
    }
    meet<THREADS>();
    float factor = 1.0f / sqrtf(sum_eight(m->sums) / (float)n + eps);
    return make_float4(v.x * factor * by.x, v.y * factor * by.y, v.z * factor * by.z,
                       v.w * factor * by.w);
}

/* q_a and kv_a. */
GPU_FN void qkv_phase(walker &w, DEV(u64) passed, const mla_layers_args &a)
{
    const stretch s = w.m->stretches[PHASE_QKV];
    columns<UNIT_I8, STEPS> c;
    load<STEPS>(c, w, 0u, a.n);
    uint at = slot_wait(w), to = a.pass[MLA_PASS_QKV] + (blockIdx.x < a.q_groups ? 0u : a.n_q);
    if (w.simd < s.n_rows) {
        float v = simd_sum(slot_dot<STEPS>(at, s, s.first, w.simd, c, w.lane));
        if (w.lane == 0u) pass_put(passed + to + pass_place(s.first + w.simd), v, w.tag);
    }
    slot_done(w);
    meet<THREADS>(); /* nobody asks for more while others still work */
}

/* q_b. */
GPU_FN void query_phase(walker &w, DEV(u64) passed, const mla_layers_args &a)
{
    columns<UNIT_I8, QUERY_FEW> c;
    load<QUERY_FEW>(c, w, 0u, a.n_q);
    dot_many<QUERY_FEW>(w, w.m->stretches[PHASE_QUERY], c, passed + a.pass[MLA_PASS_QUERY]);
    meet<THREADS>();
}

/* k_b of one head. */
GPU_FN void latent_phase(walker &w, DEV(u64) passed, const mla_layers_args &a)
{
    const stretch s = w.m->stretches[PHASE_LATENT];
    columns<UNIT_I8, 1> c;
    if (s.n_rows == 0u) return;
    uint n = a.n_k / 4u, head = blockIdx.x / (gridDim.x / a.attn.n_heads);
    if (w.simd * 32u < n) {
        float4 v;
        pass_fours<1>(passed + a.pass[MLA_PASS_QUERY] + head * a.n_head, w.tid, 0u, n, w.tag, &v);
        put(w.m, v, w.tid, w.tid < n);
    }
    meet<THREADS>();
    load<1>(c, w, 0u, a.n_k);
    dot_many<1>(w, s, c, passed + a.pass[MLA_PASS_LATENT]);
    meet<THREADS>();
}

/* ---- attention ---- */

/* A group of heads at a group's tiles. */
struct item {
    lm_row r;
    uint heads, t; /* which group of heads; the first tile */
    bool owns;     /* the row's own latent */
};
GPU_FN uint head_groups(const mla_layers_args &a)
{
    return (a.attn.n_heads + (uint)LATENT_HEADS - 1u) / (uint)LATENT_HEADS;
}
GPU_FN uint tile_groups(const lm_row &r)
{
    return (r.n_tiles + r.per - 1u) / r.per;
}
GPU_FN item item_of(uint i, uint4 row, const mla_layers_args &a)
{
    uint n = head_groups(a), heads = i % n;
    lm_row r = lm_row_of(row, true, heads * (uint)LATENT_HEADS, a.attn);
    item it = {r, heads, i / n * r.per, false};
    it.owns = it.t < r.n_tiles && it.t + r.per >= r.n_tiles;
    return it;
}
/* The group's first one; groups that have no rows of k_b come first. */
GPU_FN uint first_item()
{
    return gridDim.x - 1u - blockIdx.x;
}

/* What attention needs of the step, the same in all layers. */
struct attention_in {
    uint4 row;
    DEV(const uint) tables;
    uint own; /* place of the row's own latent in the cache */
};

/* What was passed before latent queries: columns of queries to be turned, a head by a simdgroup,
 * and by others the row's own latent and key. */
GPU_FN void item_begin(walker &w, const item &it, DEV(const u64) passed, float *rotated, float *own,
                       const mla_layers_args &a)
{
    uint n_rot = a.store.n_rot, i = w.tid - (uint)LATENT_HEADS * 32u, n = a.attn.k_units * 2u;
    if (w.simd < it.r.n_heads) {
        float *mine = rotated + w.simd * n_rot;
        DEV(const u64)
        from = passed + a.pass[MLA_PASS_QUERY] + (it.r.h0 + w.simd) * a.n_head;
        ROLLED
        for (uint k = w.lane; k < n_rot / 2u; k += 32u)
            while (!pass_two(from + pass_place(a.n_k + 2u * k), w.tag, mine + 2u * k)) {
            }
        __syncwarp();
        mla_rotate(mine, w.m->cosine, w.m->sine, mine, n_rot, a.store.neox, 0.0f, w.lane, 32u);
    }
    if (it.owns && w.simd >= (uint)LATENT_HEADS && i - w.lane < n) {
        float4 v;
        pass_fours<1>(passed + a.pass[MLA_PASS_QKV] + a.n_q, i, 0u, n, w.tag, &v);
        if (i < n) ((float4 *)own)[i] = v;
    }
}

/* Queries of the item's heads, with their turned columns; and by one simdgroup the row's own
 * latent. */
GPU_FN void item_queries(walker &w, const item &it, DEV(const u64) passed, CONST(float4) weight,
                         const float *rotated, const float *own, const mla_layers_args &a)
{
    uint to = flash_shared() + (uint)LM_QUERIES, units = a.attn.v_units, n = a.store.n_rot / 8u;
    DEV(const u64) plain = passed + a.pass[MLA_PASS_LATENT] + it.r.h0 * units * 8u;
    if (it.owns && w.simd == (uint)MLA_SIMDS - 1u) {
        const lm_turn key = {own + a.store.n, NULL, w.m->cosine, w.m->sine};
        float4 by[LM_NORM];
        UNROLL
        for (uint i = 0u; i < (uint)LM_NORM; i++)
            by[i] = weight[min(w.lane + 32u * i, a.store.n / 4u - 1u)];
        lm_own(own, key, by, w.m->latent, a.store, w.lane);
    }
    ROLLED
    for (uint i = w.tid; i < it.r.n_heads * n; i += (uint)THREADS) {
        float v[8];
        UNROLL
        for (uint k = 0u; k < 8u; k++) v[k] = rotated[i * 8u + k];
        lm_put_query(to, i / n, units + i % n, v);
    }
    ROLLED
    for (uint i = w.tid; i < it.r.n_heads * units; i += (uint)THREADS) {
        float4 v[2];
        pass_fours<2>(plain, 2u * i, 1u, it.r.n_heads * units * 2u, w.tag, v);
        lm_put_query(to, i / units, i % units, (float *)v);
    }
    meet<THREADS>(); /* all know its own latent */
}

/* What it made, for the groups of PHASE_OUT. */
GPU_FN void item_leave(const walker &w, const item &it, uint i, float (*o)[4], DEV(u64) passed,
                       const mla_layers_args &a)
{
    uint h = w.lane / 4u, width = a.attn.v_units * 8u;
    DEV(u64) to = passed + a.pass[MLA_PASS_PARTS] + (u64)(i * (uint)LATENT_HEADS + h) * width;
    UNROLL
    for (uint j = 0u; j < (uint)LM_COLUMNS / 8u; j++) {
        uint col = w.simd * (uint)LM_COLUMNS + j * 8u;
        if (h < it.r.n_heads && col < width)
            pass_put_two(to + col + w.lane % 4u * 2u, o[j][0] + o[j][2], o[j][1] + o[j][3], w.tag);
    }
    if (w.tid < it.r.n_heads) {
        float2 ml = w.m->latent.ml[w.tid];
        pass_put_two(passed + a.pass[MLA_PASS_SUMS] + (i * (uint)LATENT_HEADS + w.tid) * 2u, ml.x,
                     ml.y, w.tag);
    }
}

/* Cached rows of the first item travel while others still make queries. */
GPU_FN void attention_ahead(walker &w, const attention_in &in, DEV(uint4) kv,
                            const mla_layers_args &a)
{
    item it = item_of(first_item(), in.row, a);
    if (it.t < it.r.n_tiles)
        lm_bring(kv, w.m->ahead, it.t * (uint)LATENT_POS, flash_shared(), it.r, a.attn);
}
GPU_FN void attention_phase(walker &w, const attention_in &in, CONST(uint4) weights, DEV(uint4) kv,
                            DEV(u64) passed, const mla_layers_args &a)
{
    float *memory = lm_memory(), *rotated = memory + LM_PARTS / 4;
    float *own = rotated + LATENT_HEADS * MOST_ROTATED; /* where parts of scores will be */
    lm_shared &tg = w.m->latent;
    ROLLED
    for (uint i = first_item();; i += gridDim.x) {
        item it = item_of(i, in.row, a);
        float o[LM_COLUMNS / 8][4];
        if (it.t >= it.r.n_tiles) return;
        if (i != first_item())
            lm_fetch(in.tables, kv, tg, it.t * (uint)LATENT_POS, flash_shared(), it.r, a.attn);
        item_begin(w, it, passed, rotated, own, a);
        meet<THREADS>();
        item_queries(w, it, passed, (CONST(float4))(weights + a.c_norm), rotated, own, a);
        lm_tiles(in.tables, kv, tg, memory, it.t, it.r, a.attn, o);
        if (it.owns && it.heads == 0u && w.tid < a.attn.k_units) kv[in.own + w.tid] = tg.own[w.tid];
        item_leave(w, it, i, o, passed, a);
    }
}

/* Nobody asks for what takes long but one thread. */
GPU_FN void linger(const walker &w, DEV(const u64) from)
{
    float v;
    if (w.tid == 0u)
        while (!pass_one(from, w.tag, &v)) __nanosleep(40);
    meet<THREADS>();
}

/* What a stretch of n items made of a column of a head, joined in order, with maximum and sum.
 * Eight lanes that follow each other work for the same head and stretch. */
GPU_FN float3 join(DEV(const u64) passed, const mla_layers_args &a, uint tag, uint head, uint col,
                   uint g, uint n, uint lane)
{
    enum { N = LATENT_CLUSTER };
    uint width = a.attn.v_units * 8u, rank = lane % (uint)N, step = head_groups(a) * LATENT_HEADS;
    uint at = g * step + head; /* heads of a group follow each other, and groups */
    DEV(const u64) parts = passed + a.pass[MLA_PASS_PARTS] + (u64)at * width + col;
    DEV(const u64) sums = passed + a.pass[MLA_PASS_SUMS] + (at + rank * step) * 2u;
    float v[N], own[2] = {ATTN_NOTHING, 0.0f}, sum = 0.0f, out = 0.0f;
    bool there[N] = {}, has = rank >= n;
    for (bool all = false; !all;) {
        if (!has) has = pass_two(sums, tag, own);
        all = has;
        UNROLL
        for (uint k = 0u; k < (uint)N; k++) {
            if (there[k]) continue;
            v[k] = 0.0f;
            there[k] = k >= n || pass_one(parts + (u64)(k * step) * width, tag, &v[k]);
            all &= there[k];
        }
    }
    __syncwarp();
    float most = own[0];
    UNROLL
    for (u16 k = N / 2; k > 0; k >>= 1) most = fmaxf(most, simd_shuffle_xor(most, k));
    float by = num_exp(own[0] - most);
    UNROLL
    for (uint k = 0u; k < (uint)N; k++) {
        u16 from = (u16)(lane - rank + k);
        float b = simd_shuffle(by, from), s = simd_shuffle(own[1], from);
        sum = fmaf(s, b, sum), out = fmaf(v[k], b, out);
    }
    return make_float3(out, most, sum);
}

/* n stretches of a column, folded in order; they are `apart` from each other. */
GPU_FN float fold(const float3 *v, uint n, uint apart)
{
    float top = 0.0f, l = 0.0f, o = 0.0f;
    ROLLED
    for (uint i = 0u; i < n; i++, v += apart) {
        float2 xy = attn_fold(&top, v->y, i == 0u);
        l = fmaf(l, xy.x, v->z * xy.y), o = fmaf(o, xy.x, v->x * xy.y);
    }
    return o / l;
}

/* Columns of attention's output. Where a row has one stretch they are those of the group's head;
 * otherwise groups deal out the columns of all heads and pass them on. */
GPU_FN void join_phase(walker &w, uint4 row, DEV(u64) passed, const mla_layers_args &a)
{
    lm_row r = lm_row_of(row, true, 0u, a.attn);
    const stretch out = w.m->stretches[PHASE_OUT];
    uint n_groups = tile_groups(r), width = a.attn.v_units * 8u, all = a.attn.n_heads * width / 8u;
    bool many = n_groups > (uint)LATENT_CLUSTER;
    uint each = many ? (uint)MLA_COLUMNS : (uint)THREADS, s = w.tid / each;
    uint begin = many ? all * blockIdx.x / gridDim.x * 8u : out.first / a.n_v * width;
    uint end = many ? all * (blockIdx.x + 1u) / gridDim.x * 8u : begin + width;
    uint col = min(begin + w.tid % each, end - 1u), g = s * (uint)LATENT_CLUSTER;
    float3 *to = (float3 *)w.m->row;
    if (!many && out.n_rows == 0u) return;
    linger(w, passed + a.pass[MLA_PASS_SUMS] + col / width * 2u);
    if (w.simd * 32u / each * (uint)LATENT_CLUSTER < n_groups) {
        uint n = g < n_groups ? min((uint)LATENT_CLUSTER, n_groups - g) : 0u;
        float3 v = join(passed, a, w.tag, col / width, col % width, g, n, w.lane);
        if (n > 0u) to[w.tid] = v;
    }
    meet<THREADS>();
    float z = fold(to + min(w.tid, end - begin - 1u), (n_groups + 7u) / (uint)LATENT_CLUSTER, each);
    if (many && w.tid < end - begin) pass_put(passed + a.pass[MLA_PASS_JOINED] + col, z, w.tag);
    if (many && out.n_rows > 0u) {
        uint at = out.first / a.n_v * width + min(w.tid, width - 1u);
        while (!pass_one(passed + a.pass[MLA_PASS_JOINED] + at, w.tag, &z)) {
        }
    }
    meet<THREADS>();
    if (w.tid < width) ((float *)w.m->row)[w.tid] = z;
    meet<THREADS>();
}

/* v_b of one head: MLA_BLOCK outputs, which are rounded here. */
GPU_FN void out_phase(walker &w, DEV(u64) passed, const mla_layers_args &a)
{
    const stretch s = w.m->stretches[PHASE_OUT];
    uint width = a.attn.v_units * 8u, n = width / 4u, which;
    columns<UNIT_I8, 1> c;
    if (s.n_rows == 0u) return;
    if (w.simd * 32u < n) put(w.m, w.m->row[min(w.tid, n - 1u)], w.tid, w.tid < n);
    meet<THREADS>();
    load<1>(c, w, 0u, width);
    uint at = slot_wait(w);
    float sum[MLA_BLOCK / MLA_SIMDS];
    UNROLL
    for (uint j = 0u; j < (uint)(MLA_BLOCK / MLA_SIMDS); j++)
        sum[j] = slot_dot<1>(at, s, s.first, j * (uint)MLA_SIMDS + w.simd, c, w.lane);
    slot_done(w);
    float v = halves_sum<MLA_BLOCK / MLA_SIMDS>(sum, 5u, w.lane, &which);
    if (w.lane % 8u == 0u) ((float *)w.m->out)[which * (uint)MLA_SIMDS + w.simd] = v;
    meet<THREADS>();
    if (w.simd == 0u) {
        float scale;
        uint i = min(w.lane, (uint)MLA_BLOCK / 4u - 1u);
        uint word = act_word(w.m->out[i], &scale);
        if (w.lane < (uint)MLA_BLOCK / 4u)
            pass_word(passed + a.pass[MLA_PASS_WORDS] + s.first / 4u + w.lane, word, w.tag);
        if (w.lane < (uint)MLA_BLOCK / 4u && w.lane % 8u == 0u)
            pass_put(passed + a.pass[MLA_PASS_SCALES] + (s.first + w.lane * 4u) / 32u, scale,
                     w.tag);
    }
    meet<THREADS>();
}

/* n columns that were rounded by those who made them. */
GPU_FN void take_rounded(const walker &w, DEV(const u64) words, DEV(const u64) scales, uint n)
{
    ROLLED
    for (uint i = w.tid; i < n / 8u; i += (uint)THREADS)
        while (!pass_two(words + 2u * i, w.tag, (float *)w.m->xs + 2u * i)) {
        }
    ROLLED
    for (uint i = (uint)THREADS - 1u - w.tid; i < n / 64u; i += (uint)THREADS)
        while (!pass_two(scales + 2u * i, w.tag, w.m->scales + 2u * i)) {
        }
}

/* The output of attention, added. */
GPU_FN void o_phase(walker &w, DEV(u64) passed, const mla_layers_args &a)
{
    enum { AT_ONCE = 5 };
    const stretch s = w.m->stretches[PHASE_O];
    DEV(const u64) words = passed + a.pass[MLA_PASS_WORDS];
    linger(w, words);
    take_rounded(w, words, passed + a.pass[MLA_PASS_SCALES], a.attn.n_heads * a.n_v);
    meet<THREADS>();
    float sum = 0.0f;
    ROLLED
    for (uint first = 0u; first < s.n_rows; first += s.at_once) {
        uint at = slot_wait(w), r = w.simd - first;
        if (r < min(s.at_once, s.n_rows - first)) {
            uint q = at + (r * s.q_row + w.lane) * 16u;
            uint sc = at + s.at_once * s.q_row * 16u + r * s.s_row + lane_scales<UNIT_I8>(w.lane);
            ROLLED
            for (uint u = 0u; u < s.q_row; u += 32u * (uint)AT_ONCE) {
                columns<UNIT_I8, AT_ONCE> c;
                columns_load<UNIT_I8, AT_ONCE, 0>(c, w.m->xs, w.m->scales, u, s.q_row, w.lane);
                sum = dot_steps<UNIT_I8, AT_ONCE>(q + u * 16u, sc + u, s.q_row - u, c, w.lane, sum);
            }
        }
        slot_done(w);
    }
    w.mine = w.mine + simd_sum(sum);
    if (w.lane == 0u && w.simd < s.n_rows)
        pass_put(passed + a.pass[MLA_PASS_MIDDLE] + pass_place(s.first + w.simd), w.mine, w.tag);
    meet<THREADS>();
}

/* Gate and up of the simdgroup's row of the next two slots, of n. */
GPU_FN float gate_up(walker &w, const stretch &s, uint n, const columns<UNIT_I8, STEPS> &c)
{
    float gate = 0.0f, v = 0.0f;
    ROLLED
    for (int i = 0;; i++) {
        uint at = slot_wait(w);
        if (w.simd < n) v = simd_sum(slot_dot<STEPS>(at, s, 0u, w.simd, c, w.lane));
        slot_done(w);
        if (i == 1) return gate * num_sigmoid(gate) * v;
        gate = v;
    }
}

/* A row of floats at `at`, times the row: a multiple of AT_ONCE steps. */
GPU_FN float router_dot(const walker &w, uint at, uint n_units)
{
    enum { AT_ONCE = 4 };
    float sum = 0.0f;
    ROLLED
    for (uint u = w.lane; u < n_units; u += 32u * (uint)AT_ONCE) {
        uint4 f[AT_ONCE];
        float4 x[AT_ONCE];
        UNROLL
        for (uint i = 0u; i < (uint)AT_ONCE; i++) {
            f[i] = tg_kept_at(at + (u + 32u * i) * 16u);
            x[i] = w.m->row[u + 32u * i];
        }
        UNROLL
        for (uint i = 0u; i < (uint)AT_ONCE; i++) {
            sum = fmaf(as_float(f[i].x), x[i].x, sum), sum = fmaf(as_float(f[i].y), x[i].y, sum);
            sum = fmaf(as_float(f[i].z), x[i].z, sum), sum = fmaf(as_float(f[i].w), x[i].w, sum);
        }
    }
    return simd_sum(sum);
}

/* The largest of the group's half of a block, for the group that has the other one. */
GPU_FN void half_put(const walker &w, DEV(u64) passed, const mla_layers_args &a)
{
    if (w.simd > 0u) {
        asm volatile("bar.arrive 2, %0;" ::"n"((int)THREADS) : "memory");
        return;
    }
    asm volatile("bar.sync 2, %0;" ::"n"((int)THREADS) : "memory");
    uint most = as_uint(fabsf(((const float *)w.m->out)[w.lane % 16u])); /* as in act_word */
    UNROLL
    for (u16 k = 8; k > 0; k >>= 1) most = max(most, simd_shuffle_xor(most, k));
    if (w.lane == 0u)
        pass_put(passed + a.pass[MLA_PASS_HALF] + blockIdx.x, as_float(most), w.tag);
}

/* What the group's rows of an expert became, rounded: the half block by one simdgroup, whose lanes
 * behind its values have the other half's largest, the whole one by another. */
GPU_FN void round_glu(const walker &w, DEV(u64) passed, const mla_layers_args &a)
{
    uint choice = blockIdx.x / expert_groups(a), side = blockIdx.x % 2u;
    uint column = choice * a.n_between + expert_row(a, w.simd * 16u), n = w.simd == 0u ? 4u : 8u;
    float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    float scale;
    if (w.simd > 1u) return;
    if (w.simd == 0u)
        while (!pass_one(passed + a.pass[MLA_PASS_HALF] + (blockIdx.x ^ 1u), w.tag, &v.x)) {
        }
    __syncwarp();
    if (w.lane < n) v = w.m->out[w.simd * 4u + w.lane];
    uint word = act_word(v, &scale);
    if (w.lane < n) pass_word(passed + a.pass[MLA_PASS_GLU] + column / 4u + w.lane, word, w.tag);
    if (w.lane == 0u && (w.simd > 0u || side == 0u))
        pass_put(passed + a.pass[MLA_PASS_BY] + column / 32u, scale, w.tag);
}

/* A logit of the router, by one simdgroup, while others round the row, of which v is a thread's. */
GPU_FN void router_phase(walker &w, float4 v, DEV(u64) passed, const mla_layers_args &a)
{
    if (w.m->stretches[PHASE_ROUTER].n_rows == 0u) return;
    if (w.tid < a.n / 4u) w.m->row[w.tid] = v;
    meet<THREADS>();
    uint at = slot_wait(w);
    if (w.simd == (uint)MLA_SIMDS - 1u) {
        float sum = router_dot(w, at, a.n / 4u);
        if (w.lane == 0u) pass_put(passed + a.pass[MLA_PASS_ROUTER] + blockIdx.x, sum, w.tag);
    }
    slot_done(w);
}

/* Gate and up of the shared expert, then of the others. */
GPU_FN void experts_phase(walker &w, DEV(u64) passed, const mla_layers_args &a)
{
    columns<UNIT_I8, STEPS> c;
    load<STEPS>(c, w, 0u, a.n);
    const stretch s = w.m->stretches[PHASE_SHARED];
    uint n_rows = w.m->stretches[PHASE_EXPERT].n_rows, n = s.n_rows;
    ROLLED
    for (uint behind = 0u; behind <= n_rows; behind += (uint)MLA_SIMDS) {
        float v = gate_up(w, w.m->stretches[behind == 0u ? PHASE_SHARED : PHASE_EXPERT], n, c);
        if (w.lane == 0u && behind == 0u && w.simd < n)
            pass_put(passed + a.pass[MLA_PASS_SHARED] + pass_place(s.first + w.simd), v, w.tag);
        if (w.lane == 0u && behind > 0u) ((float *)w.m->out)[behind - (uint)MLA_SIMDS + w.simd] = v;
        if (behind == (uint)MLA_SIMDS) half_put(w, passed, a);
        n = (uint)MLA_SIMDS;
    }
    meet<THREADS>(); /* all have the row in registers: there will be others */
    if (n_rows > 0u) round_glu(w, passed, a);
}

/* What the experts say, added. */
GPU_FN void down_phase(walker &w, DEV(u64) passed, DEV(float) y, const mla_layers_args &a,
                       bool is_last)
{
    const stretch s = w.m->stretches[PHASE_DOWN];
    stretch added = s;
    added.q_row = a.n_shared / 16u, added.s_row = a.n_shared / 16u;
    uint chosen = a.route.n_used * a.n_between, n = a.n_shared / 4u;
    if (w.simd * 32u < n) {
        float4 v;
        pass_fours<1>(passed + a.pass[MLA_PASS_SHARED], w.tid, 0u, n, w.tag, &v);
        put(w.m, v, chosen / 4u + w.tid, w.tid < n);
    }
    take_rounded(w, passed + a.pass[MLA_PASS_GLU], passed + a.pass[MLA_PASS_BY], chosen);
    meet<THREADS>();
    float total = 0.0f, shared = 0.0f;
    uint r = min(w.simd, s.n_rows - 1u);
    ROLLED
    for (uint k = 0u; k <= a.route.n_used; k++) {
        columns<UNIT_I8, STEPS> c;
        load<STEPS>(c, w, k == 0u ? chosen : (k - 1u) * a.n_between,
                    k == 0u ? a.n_shared : a.n_between);
        uint at = slot_wait(w);
        float z = simd_sum(slot_dot<STEPS>(at, k == 0u ? added : s, 0u, r, c, w.lane));
        if (k == 0u)
            shared = z;
        else
            total = total + w.m->weights[k - 1u] * z;
        slot_done(w);
    }
    total = total + shared;
    w.mine = w.mine + total;
    if (w.lane == 0u && w.simd < s.n_rows) {
        if (is_last)
            y[s.first + w.simd] = w.mine;
        else
            pass_put(passed + a.pass[MLA_PASS_IN] + pass_place(s.first + w.simd), w.mine, w.tag);
    }
    meet<THREADS>();
}

/* ---- the kernel ---- */

GPU_FN void begin(walk_memory *m, const mla_layers_args &a)
{
    if (threadIdx.x == 0u) {
        for (uint i = 0u; i < (uint)MLA_SLOTS; i++) {
            bulk_init(shared_at(m->full + i), 1u);
            bulk_init(shared_at(m->empty + i), (uint)MLA_SIMDS);
        }
        bulk_begin();
    }
    if (threadIdx.x < (uint)PHASES) m->stretches[threadIdx.x] = stretch_of(a, threadIdx.x);
    __syncthreads();
}

GPU_FN attention_in attention_begin(walk_memory *m, uint4 row, DEV(const uint) tables,
                                    CONST(float) cosine, CONST(float) sine,
                                    const mla_layers_args &a)
{
    item it = item_of(first_item(), row, a);
    attention_in in = {row, tables, flash_place(tables, a.attn, it.r.slot, it.r.pos)};
    if (it.t < it.r.n_tiles) lm_places(tables, m->ahead, it.t * (uint)LATENT_POS, it.r, a.attn);
    if (threadIdx.x < a.store.n_rot / 2u)
        m->cosine[threadIdx.x] = cosine[threadIdx.x], m->sine[threadIdx.x] = sine[threadIdx.x];
    meet<THREADS>();
    return in;
}

struct third_of {
    uint from, tag, weight, n;
    float eps;
};
GPU_FN third_of thirds(uint third, uint tag, const mla_layers_args &a)
{
    third_of in = {a.pass[MLA_PASS_IN], tag - 1u, a.norm[0], a.n, a.eps[0]};
    third_of query = {a.pass[MLA_PASS_QKV], tag, a.q_norm, a.n_q, a.q_eps};
    third_of middle = {a.pass[MLA_PASS_MIDDLE], tag, a.norm[1], a.n, a.eps[1]};
    return third == 0u ? in : third == 1u ? query : middle;
}

GPU_FN void walk(walk_memory *m, const attention_in &in, CONST(uint4) weights, DEV(float) mem,
                 DEV(uint4) kv, DEV(u64) passed, const mla_layers_args &a)
{
    walker w = {m, threadIdx.x, threadIdx.x % 32u, threadIdx.x / 32u, 0u, 0u, 0u, 0.0f};
    const stretch o = m->stretches[PHASE_O];
    DEV(uint) count = (DEV(uint))passed;
    w.tag = count[0];
    if (w.simd < o.n_rows) w.mine = mem[a.x + o.first + w.simd];
    ROLLED
    for (uint l = 0u; l < a.n_layers; l++, weights += a.stride, kv += a.kv_stride) {
        w.tag++;
        ROLLED
        for (uint third = 0u; third < 3u; third++) { /* each begins with a norm */
            DEV(const float4) x = NULL;
            if (l == 0u && third == 0u) x = (DEV(const float4))(mem + a.x);
            const third_of t = thirds(third, w.tag, a);
            float4 v = norm_of(w, passed + t.from, x, t.tag, (CONST(float4))(weights + t.weight),
                               t.n, t.eps);
            if (third == 2u) router_phase(w, v, passed, a);
            put(m, v, w.tid, w.tid < t.n / 4u);
            meet<THREADS>();
            if (third == 0u) {
                qkv_phase(w, passed, a);
                attention_ahead(w, in, kv, a);
            } else if (third == 1u) {
                query_phase(w, passed, a);
                latent_phase(w, passed, a);
                attention_phase(w, in, weights, kv, passed, a);
                join_phase(w, in.row, passed, a);
                out_phase(w, passed, a);
                o_phase(w, passed, a);
            } else {
                experts_phase(w, passed, a);
                down_phase(w, passed, mem + a.y, a, l + 1u == a.n_layers);
            }
        }
    }
    if (blockIdx.x == 0u && w.tid == 0u) count[0] = w.tag;
}

extern "C" __global__ void __launch_bounds__(THREADS + LAYERS_HELPERS, 1)
    k_mla_layers_i8(DEV(const uint4) rows, DEV(const uint) tables, CONST(float) cosine,
                    CONST(float) sine, CONST(uint4) weights, DEV(float) mem, DEV(uint4) kv,
                    DEV(u64) passed, ARGS(mla_layers_args) a)
{
    walk_memory *m = (walk_memory *)lm_memory();
    static_assert(sizeof *m <= LAYERS_BYTES, "what a group has");
    dep_launch();
    begin(m, a);
    if (threadIdx.x >= (uint)THREADS) {
        bulk_fewer_registers<HELPERS_REGISTERS>();
        if (threadIdx.x < (uint)THREADS + 32u) bring(m, weights, passed, a);
    } else {
        bulk_more_registers<REGISTERS>();
        dep_wait();
        const attention_in in = attention_begin(m, rows[0], tables, cosine, sine, a);
        walk(m, in, weights, mem, kv, passed, a);
    }
}

#endif
