/* Attention as launches: the splits of all rows, then their merge; rows of prompts on matrix units
 * by one launch. */
#include <stdio.h>

#include "gpu/emit.h"

enum {
    UNIT = 8,           /* cached values that a lane takes at once */
    MIN_ITEMS = 1024,   /* splits of a step that the scratch holds, more if one row has more */
    GROUPS = 1024,      /* launched at most, for any amount of work */
    LATENT_GROUPS = 528 /* likewise; they are twice as large */
};

/* Lanes that read one row of n units: a power of two, eight at least, as its logarithm. */
static u32 shift_of(u32 n_units)
{
    u32 shift = 3;
    while (1u << shift < n_units && 1u << shift < ATTN_UNITS) shift++;
    return shift;
}

u32 emit_heads_at_once(const struct emit *e, const struct op *op)
{
    bool f32 = e->p->net->profile.kv != CACHE_F16; /* as they are read */
    enum { FEW = 4 }; /* rows: more groups pay more than fewer reads of the cache */
    u32 per = op->p.attn.n_heads / op->p.attn.n_kv_heads, most = e->kind.caps.attn_heads;
    bool few = e->rows <= FEW;
    if (op->kind == OP_LATENT_ATTENTION) return few && !f32 ? 1 : per <= 4 || f32 ? 4 : 20;
    u32 n = f32 ? (per == 1 ? 1 : 4) : per <= 2 ? per : per <= 4 || few ? 4 : 8;
    return most ? MIN(n, most) : n;
}

static const char *unfit(const struct op *op, const struct net *net)
{
    u32 k = op->p.attn.k_width, v = op->p.attn.v_width;
    const struct kv_layer *l = &net->kv[op->p.attn.kv];
    if (emit_kv_in_blocks(net) && op->kind == OP_ATTENTION && l->k_width != l->v_width)
        return "keys and values of different sizes in blocks";
    if (k % UNIT || v % UNIT) return "heads whose size is not a multiple of 8";
    if (op->kind == OP_LATENT_ATTENTION)
        return k > LATENT_MAX_K || v > LATENT_MAX_V ? "latent rows of more than 512 + 64 values"
                                                    : NULL;
    return MAX(k, v) > ATTN_MAX_HEAD ? "heads of more than 512 values" : NULL;
}

struct attention_args emit_attention_args(const struct emit *e, const struct op *op)
{
    const struct kv_layer *l = &e->p->net->kv[op->p.attn.kv];
    bool blocks = emit_kv_in_blocks(e->p->net), latent = op->kind == OP_LATENT_ATTENTION;
    u32 per_unit = e->p->net->profile.kv == CACHE_F32 ? 2 : 1;
    u32 row_units = (l->k_width + l->v_width) / UNIT * per_unit;
    u32 splits = e->limits->max_pos / SPLIT_TOKENS + 1;
    u32 shift = shift_of(MAX(op->p.attn.k_width, op->p.attn.v_width) / UNIT);
    return (struct attention_args){
        .n_heads = op->p.attn.n_heads,
        .n_kv_heads = op->p.attn.n_kv_heads,
        .k_units = op->p.attn.k_width / UNIT,
        .v_units = op->p.attn.v_width / UNIT,
        .k_shift = shift,
        .v_shift = shift,
        .row_units = !blocks  ? row_units
                     : latent ? 1
                              : l->k_width / UNIT,
        .v_at = blocks ? 0 : l->k_width / UNIT * per_unit,
        .q_pitch = emit_pitch(e, op->in[0]),
        .y_pitch = emit_pitch(e, op->out[0]),
        .block_tokens = e->limits->block_tokens,
        .table_len = e->limits->max_pos / e->limits->block_tokens + 1,
        .max_items = (u32)MIN((u64)e->rows * splits, MAX(splits, MIN_ITEMS)),
        .rows = e->rows,
        .count = e->count,
        .stride = latent ? 1 : ATTN_SUBS,
        .scale = op->p.attn.scale,
        .window = latent ? 0 : op->p.attn.window,
        .chunked = !latent && op->p.attn.chunked,
        .has_sinks = !latent && op->n_w,
        .softcap = latent ? 0 : op->p.attn.softcap,
    };
}

static u64 n_parts(const struct emit *e, const struct op *op)
{
    return (u64)emit_attention_args(e, op).max_items * op->p.attn.n_heads;
}

void emit_attention_scratch(struct emit *e, const struct op *op, bool write)
{
    u64 n = n_parts(e, op), bytes = n * op->p.attn.v_width * sizeof(float);
    emit_scratch(e, 0, bytes, write);
    emit_scratch(e, ROUND_UP(bytes, 256), n * 2 * sizeof(float), write);
}

/* Behind that: queries, where keys are rotated. */
static u64 rotated_at(const struct emit *e, const struct op *op)
{
    u64 n = n_parts(e, op);
    return ROUND_UP(n * op->p.attn.v_width * sizeof(float), 256) +
           ROUND_UP(n * 2 * sizeof(float), 256);
}

static void bind_sinks(struct emit *e, const struct op *op)
{
    emit_vector(e, op->n_w ? op->w[0] : NO_WEIGHT, 0);
}

void emit_attention_merge(struct emit *e, const struct op *op)
{
    struct attention_args a = emit_attention_args(e, op);
    u64 pieces =
        (u64)e->rows * a.n_heads * ((op->p.attn.v_width + MERGE_THREADS - 1) / MERGE_THREADS);
    emit_launch(e, "k_attention_merge", (u32)MIN(pieces, 4 * GROUPS), 1, MERGE_THREADS);
    emit_step(e, STEP_HEAD);
    emit_step(e, STEP_ROWS);
    emit_step(e, STEP_ITEMS);
    bind_sinks(e, op);
    emit_attention_scratch(e, op, false);
    emit_out(e, op->out[0]);
    emit_args(e, &a, sizeof a);
}

/* Can matrix units do rows of class P? The kernels of native/ know no windows, caps and sinks. */
static bool flashes(const struct emit *e, const struct op *op)
{
    enum { MAX_HEAD = 128 };
    bool small =
        op->kind == OP_LATENT_ATTENTION || MAX(op->p.attn.k_width, op->p.attn.v_width) <= MAX_HEAD;
    bool plain = !(op_features(op) & (HAS(WINDOW) | HAS(SOFTCAP) | HAS(SINKS)));
    return e->kind.n_p && small && e->p->net->profile.kv == CACHE_F16 &&
           (plain || !e->kind.caps.native);
}

static void emit_flash(struct emit *e, const struct op *op)
{
    struct attention_args a = emit_attention_args(e, op);
    bool latent = op->kind == OP_LATENT_ATTENTION, few = MAX(a.k_units, a.v_units) <= 8;
    bool native = e->kind.caps.native;
    u32 tiles = 2 * ((e->kind.n_p + FLASH_TILE - 1) / FLASH_TILE);
    if (latent) {
        u32 pairs = native ? LATENT_TILE_ROWS : LATENT_MAT_ROWS;
        u32 most = MIN(e->kind.n_p, FLASH_TILE) * a.n_heads;
        emit_launch(e, native ? "k_flash_latent" : "k_flash_mat_latent", (most + pairs - 1) / pairs,
                    tiles, native ? FLASH_LATENT_THREADS : LATENT_MAT_THREADS);
        if (native) emit_walk(e, 0, FLASH_LATENT_BYTES);
    } else if (native) {
        emit_launch(e, few ? "k_flash_64" : "k_flash_128", a.n_heads, tiles, FLASH_THREADS);
        emit_walk(e, 0, FLASH_BYTES(few ? 64u : 128u));
    } else {
        u32 most = MIN(e->kind.n_p, FLASH_TILE);
        emit_launch(e, few ? "k_flash_mat_64" : "k_flash_mat_128", a.n_heads, tiles,
                    FLASH_MAT_THREADS);
        emit_depth(e, (most + FLASH_MAT_ROWS - 1) / FLASH_MAT_ROWS);
    }
    emit_step(e, STEP_HEAD);
    emit_step(e, STEP_ROWS);
    emit_step(e, STEP_TILES);
    emit_tables(e, false);
    emit_in(e, op->in[0]);
    emit_kv(e, op->p.attn.kv, false);
    if (!latent && !native) bind_sinks(e, op);
    emit_out(e, op->out[0]);
    emit_args(e, &a, sizeof a);
}

/* Can clusters do rows of class D, with each cached row read once for all heads? */
static bool clusters(const struct emit *e, const struct op *op)
{
    return e->kind.caps.clusters && op->kind == OP_LATENT_ATTENTION &&
           op->p.attn.v_width % 32 == 0 && e->p->net->profile.kv == CACHE_F16;
}

void emit_clusters(struct emit *e, const char *kernel, const struct op *op, u32 clusters)
{
    emit_launch(e, kernel, LATENT_CLUSTER * clusters,
                (op->p.attn.n_heads + LATENT_HEADS - 1) / LATENT_HEADS, LATENT_MMA_THREADS);
    emit_walk(e, 0, LATENT_MMA_BYTES);
}

static void emit_latent_mma(struct emit *e, const struct op *op)
{
    struct attention_args a = emit_attention_args(e, op);
    emit_clusters(e, "k_latent_mma", op, LATENT_CLUSTERS);
    emit_step(e, STEP_HEAD);
    emit_step(e, STEP_ROWS);
    emit_tables(e, false);
    emit_in(e, op->in[0]);
    emit_kv(e, op->p.attn.kv, false);
    emit_out(e, op->out[0]);
    emit_args(e, &a, sizeof a);
}

static void emit_splits(struct emit *e, const struct op *op)
{
    const struct net *net = e->p->net;
    bool latent = op->kind == OP_LATENT_ATTENTION;
    u32 n_heads = op->p.attn.n_heads, at_once = emit_heads_at_once(e, op);
    u32 splits = e->limits->max_pos / SPLIT_TOKENS + 1;
    u32 per = n_heads / op->p.attn.n_kv_heads, turned = exec_kv_row(net, op->p.attn.kv).rotated;
    u64 tiles = (u64)op->p.attn.n_kv_heads * ((per + at_once - 1) / at_once);
    struct attention_args a = emit_attention_args(e, op);
    u64 items = (u64)e->rows * splits * tiles;
    char name[32];
    if (turned) {
        emit_rotate(e, op->in[0], turned, rotated_at(e, op));
        a.q_pitch = op->in[0].width;
    }
    static const char *const ends[] = {"", "_scores", "_softmax"}; /* enum gpu_ablation */
    bool ablates = !latent && net->profile.kv == CACHE_F16 && at_once <= 4;
    snprintf(name, sizeof name, "k_%s_%s_h%u%s", latent ? "latent" : "attention",
             cache_info[net->profile.kv].name, at_once, ablates ? ends[e->kind.ablation] : "");
    emit_launch(e, name, (u32)MIN(items, latent ? LATENT_GROUPS : GROUPS), 1,
                latent ? LATENT_THREADS : ATTN_THREADS);
    emit_walk(e, latent ? 4 : 1, 0);
    emit_step(e, STEP_HEAD);
    emit_step(e, STEP_ROWS);
    emit_step(e, STEP_ITEMS);
    emit_tables(e, false);
    if (turned)
        emit_scratch(e, rotated_at(e, op), emit_rotated_bytes(e, op->in[0]), false);
    else
        emit_in(e, op->in[0]);
    emit_kv(e, op->p.attn.kv, false);
    if (!latent) bind_sinks(e, op);
    emit_attention_scratch(e, op, true);
    emit_out(e, op->out[0]);
    emit_args(e, &a, sizeof a);
    emit_attention_merge(e, op);
}

int emit_attention(struct emit *e, const struct op *op)
{
    const char *why = unfit(op, e->p->net);
    if (why) return emit_lacks(e, op, why);
    if ((op->in[0].col | emit_pitch(e, op->in[0])) % 4)
        return emit_lacks(e, op, "columns that are not a multiple of 4");
    if (flashes(e, op)) {
        emit_flash(e, op);
        if (!e->kind.n_d) return e->rc;
        emit_only_d(e);
    }
    if (clusters(e, op))
        emit_latent_mma(e, op);
    else
        emit_splits(e, op);
    emit_for_all(e);
    return e->rc;
}
