/* One row of RWKV-7 through several layers, as one launch: a group on every multiprocessor walks
 * over the five phases of a layer. Each phase needs all that the one before it made, so groups pass
 * values to each other in pairs of a float and a tag, the number of the layer since the device was
 * opened: whoever reads a pair asks until its tag is there. No fence and no barrier of the grid is
 * needed (a fence alone took 1.3 µs of a phase on an H200), and nobody can overwrite what others
 * still read, because each phase begins with the last value of the one before.
 *
 * Weights follow each other, from phase to phase and layer to layer, through a ring in shared
 * memory that one thread fills. Only one stretch of it is on its way at a time: five of them filled
 * queues of the memory so that the few words a phase waits for came 3 µs late.
 *
 * All groups must run at once: there are as many as multiprocessors, and one always fits. The bits
 * are those of k_mix, k_low_mix and k_matmul. */
#include "gpu/args.h"
#include "gpu/kernels/columns.h"
#include "gpu/kernels/halves.h"
#include "gpu/kernels/wkv7.h"
#include "gpu/native/bulk.h"
#include "gpu/native/meet.h"
#include "gpu/native/walk.h"

#if !defined __CUDA_ARCH__ || HAS_BULK

enum { PHASE_MIX, PHASE_LOW, PHASE_OUT, PHASE_KEY, PHASE_VALUE, PHASES };
enum { HEAD = 64, STATE_BYTES = HEAD * HEAD * 4 };
enum { VEC_K_K, VEC_K_A, VEC_R_K, VEC_LN_W, VEC_LN_B, VEC_R, VEC_K, VEC_V, VEC_FIRST, VECS };

template <int E> struct shape {
    enum {
        NIBBLES = UNIT_HAS_NIBBLES(E),
        SIMDS = LAYERS_SIMDS(NIBBLES),
        THREADS = SIMDS * 32, /* without helpers */
        STEPS = LAYERS_STEPS(NIBBLES),
        LONG_STEPS = NIBBLES ? 2 : 4, /* of a longer row at once */
        MAX = LAYERS_MAX(NIBBLES),
        MAX_UNITS = MAX * 4 / UNIT_COLUMNS(E),
        S_STEP = UNIT_ROW(E), /* bytes of a step's scales */
        ROW_BYTES = MAX / UNIT_COLUMNS(E) * (16 * 32 + S_STEP) / 32,
        SLOT = (SIMDS * ROW_BYTES + 16 + 127) / 128 * 128,
        SLOTS = NIBBLES ? 6 : 5,
        REGISTERS = NIBBLES ? 88 : 112,
        HELPERS_REGISTERS = NIBBLES ? 40 : 32,
    };
};

/* Rows of the group in one phase: of 16 q_row bytes, and s_row; at_once of them are a slot. */
struct stretch {
    uint q, scales, s; /* 16 bytes: first row, plane of scales; bytes of that before its row */
    uint q_row, s_row, n_rows, first, at_once;
};

template <int E> struct layers_memory {
    uint4 ring[shape<E>::SLOTS * shape<E>::SLOT / 16];
    uint4 xs[shape<E>::MAX / 4]; /* rounded columns, for nibbles second halves apart; or floats */
    float scales[2 * shape<E>::MAX * 4 / 32]; /* and sums */
    float4 row[shape<E>::MAX / 4];            /* before it is normed, then what the state keeps */
    float4 state[STATE_BYTES / 16], in[6 * HEAD / 4], middles[LAYERS_MAX_RANKS / 4];
    float vec[VECS][HEAD], low[LAYERS_LOW][HEAD], out[HEAD], sums[2][NORM_THREADS / 32];
    u64 full[shape<E>::SLOTS], empty[shape<E>::SLOTS], state_full, state_empty;
    stretch stretches[PHASES];
    uint part; /* of the mix, that the group works for */
};

/* ---- what groups pass ---- */

enum { PASS_IN, PASS_MIDDLE_X, PASS_Y, PASS_RKV, PASS_MIDDLES = 6, PASS_BETWEEN };
GPU_FN uint pass_at(const layers_args &a, uint what)
{
    return (uint)LAYERS_HEADER +
           (what == (uint)PASS_BETWEEN ? 6u * a.n + (uint)LAYERS_MAX_RANKS : what * a.n);
}
/* Four that groups passed; all lanes take part. If it may take long one lane asks for all: what so
 * many ask for again and again keeps others waiting. */
template <bool LONG> GPU_FN float4 pass_four(DEV(const u64) base, uint i, uint tag, uint lane)
{
    DEV(const u64) from = base + pass_place(i * 4u);
    float v[4];
    for (;;) {
        bool there = pass_two(from, tag, v) & pass_two(from + 64, tag, v + 2);
        uint missing = __ballot_sync(0xffffffffu, !there);
        if (missing == 0u) return make_float4(v[0], v[1], v[2], v[3]);
        if (LONG && lane == (uint)__ffs((int)missing) - 1u)
            while (!(pass_two(from, tag, v) & pass_two(from + 64, tag, v + 2))) {
            }
    }
}

/* Where none is negative (but NaN may be) the tag is the sign: it is another one in every layer. */
GPU_FN void pass_put_signed(DEV(float) to, float v, uint tag)
{
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(as_uint(fabsf(v)) | tag << 31)
                 : "memory");
}
GPU_FN bool pass_signed(DEV(const float) from, uint tag, THR(float4) to)
{
    uint4 v;
    asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from)
                 : "memory");
    *to = make_float4(fabsf(as_float(v.x)), fabsf(as_float(v.y)), fabsf(as_float(v.z)),
                      fabsf(as_float(v.w)));
    uint sign = tag << 31;
    return (((v.x ^ sign) | (v.y ^ sign) | (v.z ^ sign) | (v.w ^ sign)) & 0x80000000u) == 0u;
}

/* ---- weights ---- */

/* Of a row of a low-rank product. */
GPU_FN uint low_units(const layers_args &a, uint p)
{
    return a.low[p].n_in / (a.low[p].enc == (uint)UNIT_F32 ? 4u : 8u);
}

/* The group's rows of every phase. */
template <int E> GPU_FN stretch stretch_of(const layers_args &a, uint phase, uint part)
{
    enum { SLOT = shape<E>::SLOT, SIMDS = shape<E>::SIMDS };
    stretch s = {0u, 0u, 0u, 0u, 0u, 0u, 0u, 0u};
    uint i = blockIdx.x, n = gridDim.x, n_in = a.n, n_out = 0u;
    uint columns = (uint)UNIT_COLUMNS(E);
    if (phase == (uint)PHASE_MIX && part > 2u)
        columns = a.part[part].enc == (uint)UNIT_F32 ? 4u : 8u;
    if (phase == (uint)PHASE_MIX) {
        i -= a.part[part].first;
        n = (part + 1u < (uint)LAYERS_PARTS ? a.part[part + 1u].first : n) - a.part[part].first;
        n_out = a.part[part].n_out;
        s.q = a.part[part].q, s.scales = a.part[part].s;
    } else if (phase != (uint)PHASE_LOW) {
        uint m = phase - (uint)PHASE_OUT;
        n_out = phase == (uint)PHASE_KEY ? a.n_between : a.n;
        n_in = phase == (uint)PHASE_VALUE ? a.n_between : a.n;
        s.q = a.q[m], s.scales = a.s[m];
    }
    uint each = n_out / n, more = n_out - each * n;
    s.first = each * i + min(i, more);
    s.n_rows = each + (i < more ? 1u : 0u);
    s.q_row = n_in / columns;
    s.s_row = phase == (uint)PHASE_MIX && part > 2u ? 0u : s.q_row * (uint)shape<E>::S_STEP / 32u;
    if (phase == (uint)PHASE_LOW) { /* a row of each matrix */
        s.q_row = low_units(a, 0u) + low_units(a, 1u) + low_units(a, 2u) + low_units(a, 3u);
        s.s_row = 0u;
        s.first = i * (uint)HEAD;
        s.n_rows = i < a.n_heads ? (uint)HEAD : 0u;
    }
    s.q += s.first * s.q_row, s.s = s.first * s.s_row;
    uint ways = 1u;
    while ((uint)SIMDS / ways * (s.q_row * 16u + s.s_row) + 16u > (uint)SLOT) ways++;
    s.at_once = (uint)SIMDS / ways;
    return s;
}

/* n rows of the low-rank products from `row` on, matrix by matrix. */
GPU_FN void bring_low(CONST(uint4) weights, const layers_args &a, uint row, uint n, uint q_row,
                      uint to, uint barrier)
{
    bulk_expect(barrier, n * q_row * 16u);
    for (uint p = 0u; p < (uint)LAYERS_LOW; p++) {
        uint units = low_units(a, p);
        bulk_send_once(to, weights + a.low[p].q + row * units, n * units * 16u, barrier);
        to += n * units * 16u;
    }
}

/* The layer's vectors to the L2, by groups in turns. */
GPU_FN void bring_vectors(CONST(uint4) weights, CONST(float4) states, const layers_args &a,
                          uint slot, uint layer)
{
    enum { TURNS = 8 };
    uint g = blockIdx.x, v = g / (uint)TURNS, n = a.n / 4u, share = n / (uint)TURNS;
    uint at = v < 2u                  ? a.norm_w[v]
              : v < 4u                ? a.norm_b[v - 2u]
              : v < 4u + LAYERS_PARTS ? a.part[v - 4u].m
                                      : a.m;
    if (v < 5u + (uint)LAYERS_PARTS) bulk_ask(weights + at + g % TURNS * share, share * 16u);
    if (v == 5u + (uint)LAYERS_PARTS || v == 6u + (uint)LAYERS_PARTS)
        bulk_ask(states + a.shift[v - 5u - (uint)LAYERS_PARTS] + layer * a.state_stride + slot * n +
                     g % TURNS * share,
                 share * 16u);
    if (g >= a.n_heads) return;
    for (uint i = 0u; i < 5u; i++) bulk_ask(weights + a.vector[i] + g * (HEAD / 4u), HEAD * 4u);
    for (uint i = 0u; i < (uint)LAYERS_LOW; i++)
        if (a.low[i].bias != (uint)MIX_NOTHING)
            bulk_ask(weights + a.low[i].bias + g * (HEAD / 4u), HEAD * 4u);
}

/* The only row's slot: that of an earlier step perhaps, before dep_wait(). */
GPU_FN uint slot_of(DEV(const uint4) rows)
{
    uint v;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(&rows->y) : "memory");
    return v;
}

/* All weights, phase by phase, and the head's states: by one thread. */
template <int E>
GPU_FN void bring(CONST(uint4) weights, CONST(float4) states, DEV(const uint4) rows,
                  layers_memory<E> *m, const layers_args &a)
{
    enum { SLOTS = shape<E>::SLOTS };
    uint at = 0u, odd = 0u, full = shared_at(m->full), empty = shared_at(m->empty), last = full;
    uint last_odd = 1u, slot = slot_of(rows); /* good enough for what only asks */
    ROLLED
    for (uint l = 0u; l < a.n_layers; l++, weights += a.stride) {
        bring_vectors(weights, states, a, slot, l);
        ROLLED
        for (uint phase = 0u; phase < (uint)PHASES; phase++) {
            stretch s = m->stretches[phase];
            if (l == 0u && phase == (uint)PHASE_LOW) {
                dep_wait();
                slot = slot_of(rows);
            }
            if (phase == (uint)PHASE_LOW && s.n_rows > 0u) {
                CONST(float4)
                from = states + a.state + l * a.state_stride +
                       (slot * a.n_heads + blockIdx.x) * (STATE_BYTES / 16u);
                bulk_wait(shared_at(&m->state_empty), l % 2u ^ 1u);
                bulk_expect(shared_at(&m->state_full), STATE_BYTES);
                bulk_send(shared_at(m->state), from, STATE_BYTES, shared_at(&m->state_full));
            }
            ROLLED
            for (uint row = 0u; row < s.n_rows; row += s.at_once) {
                uint n = min(s.at_once, s.n_rows - row),
                     to = shared_at(m->ring) + at * shape<E>::SLOT;
                bulk_wait(empty + at * 8u, odd ^ 1u);
                bulk_wait(last, last_odd); /* one at a time */
                last = full + at * 8u, last_odd = odd;
                if (++at == (uint)SLOTS) at = 0u, odd ^= 1u;
                if (phase == (uint)PHASE_LOW) {
                    bring_low(weights, a, s.first + row, n, s.q_row, to, last);
                    continue;
                }
                uint begin = s.s + row * s.s_row, adj = begin % 16u;
                uint bytes = s.s_row > 0u ? (n * s.s_row + adj + 15u) / 16u * 16u : 0u;
                bulk_expect(last, n * s.q_row * 16u + bytes);
                bulk_send_once(to, weights + s.q + row * s.q_row, n * s.q_row * 16u, last);
                if (bytes > 0u)
                    bulk_send_once(to + s.at_once * s.q_row * 16u,
                                   (CONST(u8))(weights + s.scales) + begin - adj, bytes, last);
            }
        }
    }
}

/* ---- those who multiply ---- */

template <int E> struct walker {
    layers_memory<E> *m;
    uint tid, lane, simd, slot, odd;
    uint tag;   /* of the layer */
    float mine; /* lane 0: the residual stream at the simdgroup's row of it */
};
template <int E> GPU_FN uint slot_wait(const walker<E> &w)
{
    bulk_wait(shared_at(w.m->full + w.slot), w.odd);
    return shared_at(w.m->ring) + w.slot * (uint)shape<E>::SLOT;
}
template <int E> GPU_FN void slot_done(walker<E> &w)
{
    __syncwarp();
    if (w.lane == 0u) bulk_arrive(shared_at(w.m->empty + w.slot));
    if (++w.slot == (uint)shape<E>::SLOTS) w.slot = 0u, w.odd ^= 1u;
}

/* Products of the staged row: four rows of the simdgroup at a time, one in a slot. SIGNED: relu²
 * of them. */
template <int E, bool SIGNED> GPU_FN void dot_rows(walker<E> &w, const stretch &s, DEV(u64) to)
{
    enum { SIMDS = shape<E>::SIMDS, STEPS = shape<E>::STEPS };
    columns<E, STEPS> x;
    columns_load<E, STEPS, shape<E>::MAX_UNITS>(x, w.m->xs, w.m->scales, 0u, s.q_row, w.lane);
    uint q = (w.simd * s.q_row + w.lane) * 16u;
    uint sc = (uint)SIMDS * s.q_row * 16u + w.simd * s.s_row + lane_scales<E>(w.lane);
    ROLLED
    for (uint first = 0u; first < s.n_rows; first += 4u * (uint)SIMDS) {
        float sum[4];
        uint which;
        UNROLL
        for (int j = 0; j < 4; j++) {
            uint row = first + (uint)(j * SIMDS);
            sum[j] = 0.0f;
            if (row >= s.n_rows) continue;
            uint at = slot_wait(w), adj = (s.s + row * s.s_row) % 16u;
            sum[j] = dot_steps<E, STEPS>(at + q, at + sc + adj, s.q_row, x, w.lane, 0.0f);
            slot_done(w);
        }
        float v = halves_sum<4>(sum, 5u, w.lane, &which);
        uint row = first + which * (uint)SIMDS + w.simd;
        if (w.lane % 8u != 0u || row >= s.n_rows) continue;
        if (SIGNED)
            pass_put_signed((DEV(float))to + s.first + row, v < 0.0f ? 0.0f : v * v, w.tag);
        else
            pass_put(to + pass_place(s.first + row), v, w.tag);
    }
}

/* Unit u of a row of halves, or of floats, times its columns. */
template <int F> GPU_FN float dot_unit_of(uint4 raw, const uint4 *xs, uint u, float sum)
{
    enum { N = UNIT_COLUMNS(F) / 4 };
    /* Half of the lanes take the second four first: no two then want the same bank. */
    uint odd = N == 2 ? u / 4u % 2u : 0u;
    uint4 v[2];
    float f[8];
    UNROLL
    for (int i = 0; i < N; i++) v[i] = xs[(uint)N * u + ((uint)i ^ odd)];
    unit_floats<F>(raw, f);
    UNROLL
    for (int i = 0; i < N; i++) {
        uint4 x = odd ? v[N - 1 - i] : v[i];
        sum = fmaf(f[4 * i], as_float(x.x), sum), sum = fmaf(f[4 * i + 1], as_float(x.y), sum);
        sum = fmaf(f[4 * i + 2], as_float(x.z), sum), sum = fmaf(f[4 * i + 3], as_float(x.w), sum);
    }
    return sum;
}

/* Products with a matrix of halves or floats; so many values are before them. */
template <int E, int F>
GPU_FN void dot_floats(walker<E> &w, const stretch &s, DEV(u64) to, uint before, uint f)
{
    uint mine = w.simd / s.at_once, in = w.simd % s.at_once,
         ways = (uint)shape<E>::SIMDS / s.at_once;
    ROLLED
    for (uint row = 0u, way = 0u; row < s.n_rows;
         row += s.at_once, way = way + 1u == ways ? 0u : way + 1u) {
        uint at = slot_wait(w) + in * s.q_row * 16u;
        if (way == mine && row + in < s.n_rows) {
            float sum = 0.0f;
            for (uint u = w.lane; u < s.q_row; u += 32u)
                sum = dot_unit_of<F>(tg_kept_at(at + u * 16u), w.m->xs, u, sum);
            float v = simd_sum(sum);
            if (w.lane == 0u)
                pass_put(to + pass_place(before + s.first + row + in), columns_of(f, v, v, v),
                         w.tag);
        }
        slot_done(w);
    }
}

/* ---- the phases ---- */

/* Mean and factor of a layer norm, of the row in m->row: as norm.h has it. */
template <int E> GPU_FN float2 norm_row(walker<E> &w, uint n, float eps)
{
    enum { FOURS = (shape<E>::MAX / 4 + NORM_THREADS - 1) / NORM_THREADS };
    layers_memory<E> *m = w.m;
    float4 v[FOURS];
    float sum = 0.0f, sq = 0.0f;
    if (w.tid < (uint)NORM_THREADS) {
        UNROLL
        for (int j = 0; j < FOURS; j++) {
            uint i = w.tid + (uint)(j * NORM_THREADS);
            v[j] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            if (i < n / 4u) v[j] = m->row[i];
            sum += (v[j].x + v[j].y) + (v[j].z + v[j].w);
        }
        sum = simd_sum(sum);
        if (w.lane == 0u) m->sums[0][w.simd] = sum;
    }
    meet<shape<E>::THREADS>();
    float mean = sum_eight(m->sums[0]) / (float)n;
    if (w.tid < (uint)NORM_THREADS) {
        UNROLL
        for (int j = 0; j < FOURS; j++) {
            if (w.tid + (uint)(j * NORM_THREADS) >= n / 4u) continue;
            float a = v[j].x - mean, b = v[j].y - mean, c = v[j].z - mean, d = v[j].w - mean;
            sq += fmaf(a, a, b * b) + fmaf(c, c, d * d);
        }
        sq = simd_sum(sq);
        if (w.lane == 0u) m->sums[1][w.simd] = sq;
    }
    meet<shape<E>::THREADS>();
    return make_float2(mean, 1.0f / sqrtf(sum_eight(m->sums[1]) / (float)n + eps));
}

GPU_FN float mix_one(float x, float2 stats, float w, float b, THR(float) normed, float before,
                     float m)
{
    float y = (x - stats.x) * stats.y * w + b;
    *normed = y;
    return y + (before - y) * m;
}
/* Norm, shift and lerp of the row, and the group's products of it. half: 0 of the time mix, 1 of
 * the channel mix. */
template <int E>
GPU_FN void mix_phase(walker<E> &w, CONST(uint4) weights, CONST(float4) before, DEV(u64) passed,
                      DEV(const float) x, const layers_args &a, uint half, bool is_first)
{
    layers_memory<E> *m = w.m;
    CONST(float4) vectors = (CONST(float4))weights;
    uint part = half ? 0u : m->part, i = min(w.tid, a.n / 4u - 1u);
    bool real = w.tid < a.n / 4u;
    bool floats = part > 2u;
    const stretch s = m->stretches[half ? PHASE_KEY : PHASE_MIX];
    float4 nw = vectors[a.norm_w[half] + i], nb = vectors[a.norm_b[half] + i];
    float4 share = vectors[(half ? a.m : a.part[part].m) + i], old = before[i], v, y;
    if (half)
        v = pass_four<false>(passed + pass_at(a, PASS_MIDDLE_X), i, w.tag, w.lane);
    else if (is_first)
        v = ((DEV(const float4))x)[i];
    else
        v = pass_four<false>(passed + pass_at(a, PASS_IN), i, w.tag - 1u, w.lane);
    if (real) m->row[i] = v;
    meet<shape<E>::THREADS>();
    float2 stats = norm_row(w, a.n, a.eps[half]);
    v = make_float4(mix_one(v.x, stats, nw.x, nb.x, &y.x, old.x, share.x),
                    mix_one(v.y, stats, nw.y, nb.y, &y.y, old.y, share.y),
                    mix_one(v.z, stats, nw.z, nb.z, &y.z, old.z, share.z),
                    mix_one(v.w, stats, nw.w, nb.w, &y.w, old.w, share.w));
    if (real) m->row[i] = y;
    if (!floats)
        columns_put<E, shape<E>::MAX_UNITS>(m->xs, m->scales, v, w.tid, real);
    else if (real)
        m->xs[i] = make_uint4(as_uint(v.x), as_uint(v.y), as_uint(v.z), as_uint(v.w));
    meet<shape<E>::THREADS>();
    uint to = half     ? pass_at(a, PASS_BETWEEN)
              : floats ? pass_at(a, PASS_MIDDLES)
                       : pass_at(a, PASS_RKV) + part * a.n;
    uint earlier = 0u; /* middles */
    for (uint p = 3u; !half && p < part; p++) earlier += a.part[p].n_out;
    if (floats && a.part[part].enc == (uint)UNIT_F32)
        dot_floats<E, UNIT_F32>(w, s, passed + to, earlier, a.part[part].f);
    else if (floats)
        dot_floats<E, UNIT_F16>(w, s, passed + to, earlier, a.part[part].f);
    else if (half)
        dot_rows<E, true>(w, s, passed + to);
    else
        dot_rows<E, false>(w, s, passed + to);
    meet<shape<E>::THREADS>(); /* nobody asks for more while others still work */
}

/* A lane's columns of unit u: eight, or four. */
GPU_FN void low_columns(const float4 *x, uint u, bool f32, THR(float) f)
{
    float4 a = x[f32 ? u : 2u * u], b = a;
    if (!f32) b = x[2u * u + 1u];
    f[0] = a.x, f[1] = a.y, f[2] = a.z, f[3] = a.w;
    f[4] = b.x, f[5] = b.y, f[6] = b.z, f[7] = b.w;
}
GPU_FN float low_dot(uint at, bool f32, THR(const float) x, float sum)
{
    float w[8];
    uint4 raw = tg_kept_at(at);
    if (f32) {
        unit_floats<UNIT_F32>(raw, w);
        UNROLL
        for (int i = 0; i < 4; i++) sum = fmaf(w[i], x[i], sum);
        return sum;
    }
    unit_floats<UNIT_F16>(raw, w);
    UNROLL
    for (int i = 0; i < 8; i++) sum = fmaf(w[i], x[i], sum);
    return sum;
}
/* A head's columns of w, a, gate and mixture; matrices have up to 32 units a row, the third 64. */
template <int E> GPU_FN void low_products(walker<E> &w, const layers_args &a)
{
    enum { SIMDS = shape<E>::SIMDS, WIDE = 2 };
    float x[LAYERS_LOW + 1][8];
    uint units[LAYERS_LOW], at4 = 0u;
    UNROLL
    for (int p = 0; p < LAYERS_LOW; p++) {
        bool f32 = a.low[p].enc == (uint)UNIT_F32;
        units[p] = low_units(a, (uint)p);
        if (w.lane < units[p]) low_columns(w.m->middles + at4, w.lane, f32, x[p]);
        if (p == WIDE && w.lane + 32u < units[p])
            low_columns(w.m->middles + at4, w.lane + 32u, f32, x[LAYERS_LOW]);
        at4 += a.low[p].n_in / 4u;
    }
    ROLLED
    for (uint first = 0u; first < (uint)HEAD; first += (uint)SIMDS) {
        uint at = slot_wait(w) + w.lane * 16u, n = min((uint)SIMDS, (uint)HEAD - first), which;
        float sum[LAYERS_LOW];
        UNROLL
        for (int p = 0; p < LAYERS_LOW; p++) {
            uint row = at + w.simd * units[p] * 16u;
            bool f32 = a.low[p].enc == (uint)UNIT_F32;
            sum[p] = 0.0f;
            if (w.lane < units[p]) sum[p] = low_dot(row, f32, x[p], 0.0f);
            if (p == WIDE && w.lane + 32u < units[p])
                sum[p] = low_dot(row + 512u, f32, x[LAYERS_LOW], sum[p]);
            at += n * units[p] * 16u;
        }
        slot_done(w);
        float v = halves_sum<LAYERS_LOW>(sum, 5u, w.lane, &which);
        if (w.lane % 8u == 0u && first + w.simd < (uint)HEAD) w.m->low[which][first + w.simd] = v;
    }
}

/* What the head's products and functions need, in shared memory. */
template <int E>
GPU_FN float low_stage(walker<E> &w, CONST(uint4) weights, DEV(const u64) passed,
                       const layers_args &a)
{
    layers_memory<E> *m = w.m;
    uint p = w.tid / (uint)HEAD, i = w.tid % (uint)HEAD, col = blockIdx.x * (uint)HEAD + i;
    float bias = 0.0f, two[2];
    if (p < 5u) m->vec[p][i] = ((CONST(float))(weights + a.vector[p]))[col];
    if (p < (uint)LAYERS_LOW && a.low[p].bias != (uint)MIX_NOTHING)
        bias = ((CONST(float))(weights + a.low[p].bias))[col];
    uint n = a.low[0].n_in + a.low[1].n_in + a.low[2].n_in + a.low[3].n_in;
    float4 middle =
        pass_four<false>(passed + pass_at(a, PASS_MIDDLES), min(w.tid, n / 4u - 1u), w.tag, w.lane);
    if (w.tid < n / 4u) m->middles[w.tid] = middle;
    uint from = (uint)shape<E>::THREADS - 1u - w.tid, which = from / (HEAD / 2u),
         k = from % (HEAD / 2u) * 2u;
    if (which < 3u) { /* r, k, v: two of them */
        while (!pass_two(passed + pass_at(a, PASS_RKV) + which * a.n +
                             pass_place(blockIdx.x * HEAD + k),
                         w.tag, two)) {
        }
        m->vec[VEC_R + which][k] = two[0], m->vec[VEC_R + which][k + 1u] = two[1];
    }
    meet<shape<E>::THREADS>();
    return bias;
}

template <int E>
GPU_FN void head_load(const layers_memory<E> *m, const layers_args &a, THR(float) x, THR(float) k_k,
                      THR(float) k_a, THR(float) r_k, uint lane)
{
    UNROLL
    for (int p = 0; p < 2; p++) {
        uint i = lane + 32u * (uint)p;
        k_k[p] = m->vec[VEC_K_K][i], k_a[p] = m->vec[VEC_K_A][i], r_k[p] = m->vec[VEC_R_K][i];
        x[MIX_R * 2 + p] = m->vec[VEC_R][i], x[MIX_K * 2 + p] = m->vec[VEC_K][i];
        x[MIX_V * 2 + p] = m->vec[VEC_V][i], x[MIX_FIRST * 2 + p] = m->vec[VEC_FIRST][i];
        x[MIX_W * 2 + p] = m->low[0][i], x[MIX_A * 2 + p] = m->low[1][i];
        x[MIX_G * 2 + p] = m->low[2][i], x[MIX_M * 2 + p] = m->low[3][i];
    }
}

/* Low-rank products, wkv7 with head and tail, of the group's head. */
template <int E>
GPU_FN void low_phase(walker<E> &w, CONST(uint4) weights, DEV(float4) state, DEV(u64) passed,
                      const layers_args &a, uint odd)
{
    layers_memory<E> *m = w.m;
    float x[MIX_INPUTS * 2], bonus = 0.0f;
    float bias = low_stage<E>(w, weights, passed, a);
    low_products<E>(w, a);
    meet<shape<E>::THREADS>();
    if (w.tid < (uint)(LAYERS_LOW * HEAD)) {
        uint p = w.tid / (uint)HEAD;
        float v = m->low[p][w.tid % (uint)HEAD];
        if (a.low[p].bias != (uint)MIX_NOTHING) v += bias;
        m->low[p][w.tid % (uint)HEAD] = columns_of(a.low[p].f, v, v, v);
    }
    meet<shape<E>::THREADS>();
    if (w.simd == 0u) {
        float k_k[2], k_a[2], r_k[2];
        head_load<E>(m, a, x, k_k, k_a, r_k, w.lane);
        mix_blend<HEAD>(x);
        bonus = mix_stage<HEAD>(x, k_k, k_a, r_k, (float *)m->in, a.l2_eps, w.lane);
    }
    meet<shape<E>::THREADS>();
    if (w.tid < 4u * (uint)HEAD) {
        float s[HEAD / 4];
        uint i = w.tid / 4u, q = w.tid % 4u, at = i * (HEAD / 4u) + q;
        bulk_wait(shared_at(&m->state_full), odd);
        wkv7_load<HEAD>((const float4 *)m->state + at, s);
        __syncwarp();
        if (w.lane == 0u) bulk_arrive(shared_at(&m->state_empty));
        float y = wkv7_token<HEAD>(m->in, s, ((const float *)m->in)[3u * (uint)HEAD + i], q);
        if (q == 0u) m->out[i] = y;
        wkv7_keep<HEAD>(state + at, s);
    }
    meet<shape<E>::THREADS>();
    if (w.simd != 0u) return;
    time_mix_args t;
    t.has_norm = 1u, t.norm_eps = a.head_eps;
    float y[2], ln_w[2], ln_b[2];
    UNROLL
    for (int p = 0; p < 2; p++)
        ln_w[p] = m->vec[VEC_LN_W][w.lane + 32u * (uint)p],
        ln_b[p] = m->vec[VEC_LN_B][w.lane + 32u * (uint)p];
    mix_tail<HEAD>(x, (const float *)m->out, ln_w, ln_b, bonus, m->out, 0u, w.lane, t);
    UNROLL
    for (int p = 0; p < 2; p++) { /* a lane's own */
        y[p] = m->out[w.lane + 32u * (uint)p];
        pass_put(passed + pass_at(a, PASS_Y) +
                     pass_place(blockIdx.x * HEAD + w.lane + 32u * (uint)p),
                 y[p], w.tag);
    }
}

/* What the shift keeps of the row. One group does it, once all have read what was there. */
template <int E> GPU_FN void keep(const walker<E> &w, DEV(float4) to, const layers_args &a)
{
    if (blockIdx.x == gridDim.x - 1u && w.tid < a.n / 4u) to[w.tid] = w.m->row[w.tid];
}

/* The time mix's output, added. */
template <int E>
GPU_FN void out_phase(walker<E> &w, DEV(float4) shift, DEV(u64) passed, const layers_args &a)
{
    enum { STEPS = shape<E>::STEPS, SIMDS = shape<E>::SIMDS };
    const stretch s = w.m->stretches[PHASE_OUT];
    bool real = w.tid < a.n / 4u;
    float4 v =
        pass_four<true>(passed + pass_at(a, PASS_Y), min(w.tid, a.n / 4u - 1u), w.tag, w.lane);
    meet<shape<E>::THREADS>();
    keep(w, shift, a);
    columns_put<E, shape<E>::MAX_UNITS>(w.m->xs, w.m->scales, v, w.tid, real);
    meet<shape<E>::THREADS>();
    columns<E, STEPS> x;
    columns_load<E, STEPS, shape<E>::MAX_UNITS>(x, w.m->xs, w.m->scales, 0u, s.q_row, w.lane);
    uint at = slot_wait(w), q = at + (w.simd * s.q_row + w.lane) * 16u;
    uint sc =
        at + (uint)SIMDS * s.q_row * 16u + w.simd * s.s_row + lane_scales<E>(w.lane) + s.s % 16u;
    float sum = dot_steps<E, STEPS>(q, sc, s.q_row, x, w.lane, 0.0f);
    slot_done(w);
    w.mine = w.mine + simd_sum(sum);
    if (w.lane == 0u && w.simd < s.n_rows)
        pass_put(passed + pass_at(a, PASS_MIDDLE_X) + pass_place(s.first + w.simd), w.mine, w.tag);
}

/* The channel mix's second product, added. */
template <int E>
GPU_FN void value_phase(walker<E> &w, DEV(float4) shift, DEV(u64) passed, DEV(float) y,
                        const layers_args &a, bool is_last)
{
    enum { LONG = shape<E>::LONG_STEPS, THREADS = shape<E>::THREADS, FOURS = 4 };
    const stretch s = w.m->stretches[PHASE_VALUE];
    DEV(const float) from = (DEV(const float))(passed + pass_at(a, PASS_BETWEEN));
    float4 v[FOURS];
    uint n = a.n_between / 4u;
    for (bool there = false; !there;) {
        there = true;
        UNROLL
        for (int j = 0; j < FOURS; j++)
            there &=
                pass_signed(from + min(w.tid + (uint)(j * THREADS), n - 1u) * 4u, w.tag, &v[j]);
    }
    meet<THREADS>();
    keep(w, shift, a);
    UNROLL
    for (int j = 0; j < FOURS; j++) {
        uint i = w.tid + (uint)(j * THREADS);
        columns_put<E, shape<E>::MAX_UNITS>(w.m->xs, w.m->scales, v[j], i, i < n);
    }
    meet<THREADS>();
    uint mine = w.simd / s.at_once, in = w.simd % s.at_once;
    ROLLED
    for (uint row = 0u, way = 0u; row < s.n_rows; row += s.at_once, way++) {
        uint at = slot_wait(w);
        if (way == mine && row + in < s.n_rows) {
            uint q = at + (in * s.q_row + w.lane) * 16u;
            uint sc = at + s.at_once * s.q_row * 16u + in * s.s_row + lane_scales<E>(w.lane) +
                      (s.s + row * s.s_row) % 16u;
            float sum = 0.0f;
            ROLLED
            for (uint u = 0u; u < s.q_row; u += 32u * (uint)LONG) {
                columns<E, LONG> x;
                columns_load<E, LONG, shape<E>::MAX_UNITS>(x, w.m->xs, w.m->scales, u, s.q_row,
                                                           w.lane);
                sum = dot_steps<E, LONG>(q + u * 16u, sc + u * (uint)shape<E>::S_STEP / 32u,
                                         s.q_row - u, x, w.lane, sum);
            }
            w.mine = w.mine + simd_sum(sum);
            if (w.lane == 0u && !is_last)
                pass_put(passed + pass_at(a, PASS_IN) + pass_place(s.first + w.simd), w.mine,
                         w.tag);
            if (w.lane == 0u && is_last) y[s.first + w.simd] = w.mine;
        }
        slot_done(w);
    }
    meet<THREADS>();
}

/* ---- the kernel ---- */

template <int E> GPU_FN void begin(layers_memory<E> *m, const layers_args &a)
{
    enum { SLOTS = shape<E>::SLOTS };
    uint part = 0u;
    if (threadIdx.x == 0u) {
        bulk_init(shared_at(&m->state_full), 1u);
        bulk_init(shared_at(&m->state_empty), 4u * HEAD / 32u);
        for (uint i = 0u; i < (uint)SLOTS; i++) {
            bulk_init(shared_at(m->full + i), 1u);
            bulk_init(shared_at(m->empty + i), (uint)shape<E>::SIMDS);
        }
        bulk_begin();
    }
    while (part + 1u < (uint)LAYERS_PARTS && blockIdx.x >= a.part[part + 1u].first) part++;
    if (threadIdx.x == 0u) m->part = part;
    if (threadIdx.x < (uint)PHASES) m->stretches[threadIdx.x] = stretch_of<E>(a, threadIdx.x, part);
    __syncthreads();
}

template <int E>
GPU_FN void walk(layers_memory<E> *m, CONST(uint4) weights, DEV(float) mem, DEV(float4) states,
                 DEV(u64) passed, const layers_args &a, uint slot)
{
    walker<E> w = {m, threadIdx.x, threadIdx.x % 32u, threadIdx.x / 32u, 0u, 0u, 0u, 0.0f};
    const stretch out = m->stretches[PHASE_OUT];
    bool head = blockIdx.x < a.n_heads;
    DEV(uint) count = (DEV(uint))passed;
    w.tag = count[0];
    if (w.lane == 0u && w.simd < out.n_rows) w.mine = mem[a.x + out.first + w.simd];
    if (head && w.tid < (uint)HEAD)
        m->vec[VEC_FIRST][w.tid] = mem[a.v_first + blockIdx.x * (uint)HEAD + w.tid];
    ROLLED
    for (uint l = 0u; l < a.n_layers; l++, weights += a.stride, states += a.state_stride) {
        DEV(float4)
        shift[2] = {states + a.shift[0] + slot * (a.n / 4u),
                    states + a.shift[1] + slot * (a.n / 4u)};
        w.tag++;
        mix_phase<E>(w, weights, shift[0], passed, mem + a.x, a, 0u, l == 0u);
        if (head)
            low_phase<E>(w, weights,
                         states + a.state + (slot * a.n_heads + blockIdx.x) * (STATE_BYTES / 16u),
                         passed, a, l % 2u);
        out_phase<E>(w, shift[0], passed, a);
        mix_phase<E>(w, weights, shift[1], passed, mem, a, 1u, false);
        value_phase<E>(w, shift[1], passed, mem + a.y, a, l + 1u == a.n_layers);
    }
    if (blockIdx.x == 0u && w.tid == 0u) count[0] = w.tag;
}

#define RWKV7_KERNEL(name, E)                                                                  \
    extern "C" __global__ void __launch_bounds__(shape<E>::THREADS + LAYERS_HELPERS, 1)        \
        k_rwkv7_##name(DEV(const uint4) rows, CONST(uint4) weights, DEV(float) mem,            \
                       DEV(float4) states, DEV(u64) passed, ARGS(layers_args) a)               \
    {                                                                                          \
        extern __shared__ __align__(128) uint4 layers_bytes[];                                 \
        layers_memory<E> *m = (layers_memory<E> *)layers_bytes;                                \
        static_assert(sizeof *m <= LAYERS_BYTES, "what a group has");                          \
        dep_launch();                                                                          \
        begin<E>(m, a);                                                                        \
        if (threadIdx.x >= (uint)shape<E>::THREADS) {                                          \
            bulk_fewer_registers<shape<E>::HELPERS_REGISTERS>();                               \
            if (threadIdx.x == (uint)shape<E>::THREADS) bring<E>(weights, states, rows, m, a); \
        } else {                                                                               \
            bulk_more_registers<shape<E>::REGISTERS>();                                        \
            dep_wait();                                                                        \
            walk<E>(m, weights, mem, states, passed, a, slot_of(rows));                        \
        }                                                                                      \
    }
RWKV7_KERNEL(i8, UNIT_I8)
RWKV7_KERNEL(k4, UNIT_K4)

#endif
