/* From Hugging Face's tensors to GGUF's. A table (hf_rules.c) says which name becomes which, and
 * how its values are laid out; a tensor that needs more than a new name gets a recipe, run by
 * hf_make when the bytes are asked for. A tensor that no rule takes is refused: a model that has it
 * would not be computed rightly without it. */
#include "format/hf.h"

#include <stdio.h>
#include <string.h>

#include "format/hf_model.h"
#include "format/hf_recipe.h"
#include "format/hf_rules.h"

/* Where a rule is applied: the block, or none. */
struct place {
    struct source *s;
    struct hf *h;
    const char *hf_prefix, *gguf_prefix; /* "model.layers.3.", "blk.3." */
    u32 block;
    struct err *err;
};

static int wrong_shape(const struct place *at, const struct st_tensor *t, const char *want)
{
    return err_set(at->err, FLETCH_E_FORMAT, "tensor %s: its shape is not %s", QUOTE(t->name),
                   want);
}

/* The tensor of that name, marked as used, or NULL. */
static const struct st_tensor *take(const struct place *at, const char *name)
{
    char full[320];
    u32 i;
    snprintf(full, sizeof full, "%s%s", at->hf_prefix, name);
    if (!strmap_get(&at->h->index, str_of(full), &i)) return NULL;
    at->h->used[i] = true;
    return at->h->tensors[i];
}

/* Adds a tensor of n_dims given slowest first, with the recipe unless the bytes in the file
 * are what it would make. */
static int add(const struct place *at, const struct rule *rule, enum qtype type, u32 n_dims,
               const u64 *dims, const struct recipe *r)
{
    const struct st_tensor *t = r->src[0];
    struct tensor out = {.type = type, .n_dims = n_dims};
    char *name = arena_printf(&at->s->arena, "%s%s", at->gguf_prefix, rule->gguf);
    bool whole =
        r->kind == RECIPE_ROWS && r->n_src == 1 && r->n_take == r->n_rows && r->map == MAP_NONE;
    bool aligned = (uintptr_t)t->data % quant_info(type)->bytes == 0;
    if (!name) return err_nomem(at->err, "tensors");
    for (u32 i = 0; i < r->n_src; i++)
        if (r->src[i]->fp8 && !r->src[i]->scales)
            return err_set(at->err, FLETCH_E_UNSUPPORTED,
                           "safetensors: tensor %s has type \"F8_E4M3\", but config.json does not "
                           "describe its scales",
                           QUOTE(r->src[i]->name));
    for (u32 i = 0; i < r->n_src; i++)
        if (r->src[i]->bytes && r->kind != RECIPE_MXFP4)
            return err_set(at->err, FLETCH_E_UNSUPPORTED,
                           "safetensors: tensor %s has type \"U8\", which is not supported",
                           QUOTE(r->src[i]->name));
    if (n_dims > 4) return wrong_shape(at, t, "of at most 4 dimensions");
    for (u32 i = 0; i < n_dims; i++) out.ne[i] = dims[n_dims - 1 - i];
    out.name = str_of(name);
    if (whole && aligned && t->type == type && !t->fp8) {
        out.data = t->data;
    } else {
        struct recipe *copy = arena_alloc(&at->s->arena, 1, sizeof *copy);
        const struct st_tensor **src = arena_alloc(&at->s->arena, r->n_src, sizeof *src);
        if (!copy || !src) return err_nomem(at->err, "tensors");
        *copy = *r;
        memcpy(src, r->src, r->n_src * sizeof *src);
        copy->src = src;
        out.recipe = copy;
    }
    return source_add_tensor(at->s, &out, at->err);
}

static int add_plain(const struct place *at, const struct rule *rule, const struct st_tensor *t)
{
    bool minus_one = (at->h->arch & GE) && strstr(rule->gguf, "norm.weight");
    struct recipe r = {.kind = RECIPE_ROWS,
                       .n_src = 1,
                       .src = &t,
                       .n_groups = 1,
                       .n_rows = 1,
                       .n_cols = t->n_elems,
                       .n_take = 1,
                       .map = rule->how == PLUS_ONE || minus_one ? MAP_PLUS_ONE : MAP_NONE};
    bool flat = rule->how == FLAT || t->n_dims == 0;
    bool f32 = rule->how == AS_F32 || flat || t->n_dims == 1 || r.map != MAP_NONE;
    return add(at, rule, f32 ? QT_F32 : t->type, flat ? 1 : t->n_dims,
               flat ? &t->n_elems : t->shape, &r);
}

static int add_rope(const struct place *at, const struct rule *rule, const struct st_tensor *t)
{
    u64 n_heads = rule->how == ROPE_Q ? at->h->n_heads : at->h->n_kv_heads;
    if (!(at->h->arch & PERMUTED)) return add_plain(at, rule, t);
    if (t->n_dims == 0 || t->n_dims > 2 || t->shape[0] % (2 * n_heads))
        return wrong_shape(at, t, "[heads * head size, ...]");
    u64 n_rows = t->shape[0] / n_heads;
    struct recipe r = {.kind = RECIPE_PAIRS,
                       .n_src = 1,
                       .src = &t,
                       .n_groups = n_heads,
                       .n_rows = n_rows,
                       .n_cols = t->n_elems / t->shape[0],
                       .n_take = n_rows};
    return add(at, rule, t->n_dims == 1 ? QT_F32 : t->type, t->n_dims, t->shape, &r);
}

static int add_stack(const struct place *at, const struct rule *rule)
{
    const struct st_tensor *src[1024];
    u32 n = at->h->n_experts;
    if (!n) return 0;
    CHECK(n <= ARRAY_LEN(src));
    for (u32 e = 0; e < n; e++) {
        char name[128];
        snprintf(name, sizeof name, rule->hf, e);
        src[e] = take(at, name);
        if (!src[e] && e == 0) return 0;
        if (!src[e])
            return err_set(at->err, FLETCH_E_FORMAT, "tensor %s%s is missing (%u experts)",
                           at->hf_prefix, name, n);
        if (src[e]->n_dims != 2 || memcmp(src[e]->shape, src[0]->shape, sizeof src[e]->shape) ||
            src[e]->type != src[0]->type)
            return wrong_shape(at, src[e], "a matrix with the shape and type of the other experts");
    }
    u64 dims[3] = {n, src[0]->shape[0], src[0]->shape[1]};
    struct recipe r = {.kind = RECIPE_ROWS,
                       .n_src = n,
                       .src = src,
                       .n_groups = 1,
                       .n_rows = dims[1],
                       .n_cols = dims[2],
                       .n_take = dims[1]};
    return add(at, rule, src[0]->type, 3, dims, &r);
}

static int add_half(const struct place *at, const struct rule *rule, const struct st_tensor *t)
{
    bool one = t->n_dims == 2; /* no experts, or one that all tokens share */
    u64 rows = one ? t->shape[0] : t->shape[1], half = rows / 2;
    if ((!one && t->n_dims != 3) || rows % 2) return wrong_shape(at, t, "[experts, 2 * ff, width]");
    u64 dims[3] = {one ? 1 : t->shape[0], half, t->shape[one ? 1 : 2]};
    u64 first = rule->how == UP_ROWS ? half : 0;
    struct recipe r = {.kind = RECIPE_ROWS,
                       .n_src = 1,
                       .src = &t,
                       .n_groups = dims[0],
                       .n_rows = 2 * half,
                       .n_cols = dims[2],
                       .first = first,
                       .n_take = half};
    return add(at, rule, t->type, one ? 2 : 3, one ? dims + 1 : dims, &r);
}

/* Whether the block's experts lie as [in][out], as Qwen3-VL's published files have them. */
static bool has_turned_experts(const struct place *at)
{
    const struct st_tensor *t = take(at, "mlp.experts.gate_up_proj");
    return (at->h->arch & QM) && t && t->n_dims == 3 && t->shape[1] == at->h->d_model &&
           t->shape[2] != at->h->d_model;
}

static int add_turned(const struct place *at, const struct rule *rule, const struct st_tensor *t)
{
    if (t->n_dims != 3) return wrong_shape(at, t, "[experts, in, out]");
    u64 dims[3] = {t->shape[0], t->shape[2], t->shape[1]};
    struct recipe r = {.kind = RECIPE_TRANSPOSE,
                       .n_src = 1,
                       .src = &t,
                       .n_groups = dims[0],
                       .n_rows = dims[2],
                       .n_cols = dims[1],
                       .n_take = dims[2]};
    return add(at, rule, t->type, 3, dims, &r);
}

/* gpt-oss: experts as [in][out], or as blocks and scales of [out][in/32]; the rows of a gate and
 * those of up lie in turns. */
static int add_turns(const struct place *at, const struct rule *rule, const struct st_tensor *t)
{
    u64 every = rule->how == WHOLE ? 1 : 2, first = rule->how == ODD;
    if (t->n_dims != 2 && t->n_dims != 3) return wrong_shape(at, t, "[experts, in, out]");
    u64 n_out = t->shape[t->n_dims - 1] / every, dims[3] = {t->shape[0], n_out, t->shape[1]};
    struct recipe r = {.src = &t,
                       .n_src = 1,
                       .n_groups = t->shape[0],
                       .first = first,
                       .n_take = n_out,
                       .every = every};
    if (t->n_dims == 2 && t->shape[1] % every == 0) { /* biases */
        r.n_rows = t->shape[1];
        r.n_cols = 1;
        return add(at, rule, QT_F32, 2, dims, &r);
    }
    if (t->n_dims != 3 || t->shape[2] % every) return wrong_shape(at, t, "[experts, in, out]");
    r.kind = RECIPE_TRANSPOSE;
    r.n_rows = t->shape[1];
    r.n_cols = t->shape[2];
    return add(at, rule, t->type, 3, dims, &r);
}

static int add_columns(const struct place *at, const struct rule *rule, const struct st_tensor *t)
{
    if (t->n_dims != 3 || t->shape[2] % 2 || !t->shape[2])
        return wrong_shape(at, t, "[experts, in, 2 * ff]");
    u64 half = t->shape[2] / 2, dims[3] = {t->shape[0], half, t->shape[1]};
    u64 first = rule->how == UP_COLUMNS ? half : 0;
    struct recipe r = {.kind = RECIPE_TRANSPOSE,
                       .n_src = 1,
                       .src = &t,
                       .n_groups = t->shape[0],
                       .n_rows = t->shape[1],
                       .n_cols = t->shape[2],
                       .first = first,
                       .end = first + half,
                       .every = 1};
    return add(at, rule, t->type, 3, dims, &r);
}

/* The same of blocks and scales; *found: whether the block has such tensors. */
static int add_blocks(const struct place *at, const struct rule *rule, bool *found)
{
    char name[2][96];
    snprintf(name[0], sizeof name[0], "%s_blocks", rule->hf);
    snprintf(name[1], sizeof name[1], "%s_scales", rule->hf);
    const struct st_tensor *src[2] = {take(at, name[0]), take(at, name[1])}, *t = src[0];
    *found = src[0] || src[1];
    if (!*found) return 0;
    u64 every = rule->how == WHOLE ? 1 : 2;
    if (!src[0] || !src[1])
        return err_set(at->err, FLETCH_E_FORMAT, "tensor %s%s is missing", at->hf_prefix,
                       name[src[0] ? 1 : 0]);
    if (t->n_dims != 4 || t->shape[3] != 16 || t->shape[1] % every || !t->bytes || !src[1]->bytes ||
        src[1]->n_dims != 3 || memcmp(src[1]->shape, t->shape, 3 * sizeof *t->shape))
        return wrong_shape(at, t, "[experts, out, in / 32, 16] of bytes, with scales likewise");
    u64 dims[3] = {t->shape[0], t->shape[1] / every, t->shape[2] * 32};
    struct recipe r = {.kind = RECIPE_MXFP4,
                       .n_src = 2,
                       .src = src,
                       .n_groups = t->shape[0],
                       .n_rows = t->shape[1],
                       .n_cols = t->shape[2],
                       .first = rule->how == ODD,
                       .n_take = dims[1],
                       .every = every};
    return add(at, rule, QT_MXFP4, 3, dims, &r);
}

static int add_mla(const struct place *at, const struct rule *rule, const struct st_tensor *t)
{
    u64 n_heads = at->h->n_heads, n_k = at->h->n_nope, n_v = at->h->n_value, rank = t->shape[1];
    if (t->n_dims != 2 || t->shape[0] != n_heads * (n_k + n_v))
        return wrong_shape(at, t, "[heads * (qk_nope_head_dim + v_head_dim), kv_lora_rank]");
    struct recipe r = {.kind = RECIPE_TRANSPOSE,
                       .n_src = 1,
                       .src = &t,
                       .n_groups = n_heads,
                       .n_rows = n_k + n_v,
                       .n_cols = rank,
                       .n_take = n_k};
    u64 k_dims[3] = {n_heads, rank, n_k}, v_dims[3] = {n_heads, n_v, rank};
    if (rule->how == MLA_K) return add(at, rule, t->type, 3, k_dims, &r);
    r.kind = RECIPE_ROWS;
    r.first = n_k;
    r.n_take = n_v;
    return add(at, rule, t->type, 3, v_dims, &r);
}

/* Values of a delta net, unit by unit: with Qwen3.5's in turns of the key heads. `first` values of
 * every group come before. */
static int add_heads(const struct place *at, const struct rule *rule, const struct st_tensor *t,
                     u64 n_groups, u64 first, u64 unit)
{
    u64 n = at->h->n_values, dims[2] = {t->shape[0], t->n_dims > 1 ? t->shape[1] : 1};
    bool f32 = t->n_dims == 1 || rule->how == TAPS || rule->how == MINUS_EXP;
    if (!unit || !n || (t->n_dims > 2 && rule->how != TAPS) ||
        t->n_elems != n_groups * (first + n * unit))
        return wrong_shape(at, t, "that of the delta net's heads");
    if (rule->how == TAPS) dims[1] = t->n_elems / t->shape[0]; /* [n][1][taps] */
    struct recipe r = {.kind = RECIPE_TURNS,
                       .n_src = 1,
                       .src = &t,
                       .n_groups = n_groups,
                       .n_rows = n,
                       .n_cols = unit,
                       .first = first,
                       .n_keys = at->h->arch & D5 ? at->h->n_keys : 1,
                       .map = rule->how == MINUS_EXP ? MAP_MINUS_EXP : MAP_NONE};
    return add(at, rule, f32 ? QT_F32 : t->type, t->n_dims == 1 ? 1 : 2, dims, &r);
}

static int add_delta(const struct place *at, const struct rule *rule, const struct st_tensor *t)
{
    const struct hf *h = at->h;
    u64 n = h->n_values, keys = 2 * (u64)h->n_keys * h->key_dim, rows = t->n_dims ? t->shape[0] : 0;
    if (!rows || t->n_elems % rows || t->n_elems == 0)
        return wrong_shape(at, t, "that of the delta net's heads");
    u64 cols = t->n_elems / rows;
    switch (rule->how) {
    case VALUES: return add_heads(at, rule, t, 1, 0, h->value_dim * cols);
    case MIXED:
    case TAPS: return add_heads(at, rule, t, 1, keys * cols, h->value_dim * cols);
    case COLUMNS: return add_heads(at, rule, t, rows, 0, cols / n);
    default: return add_heads(at, rule, t, 1, 0, cols);
    }
}

/* [key heads][q, k, their heads' v, their heads' z] */
static int add_qkvz(const struct place *at, const struct rule *rule, const struct st_tensor *t)
{
    const struct hf *h = at->h;
    u64 k = h->key_dim, v = (u64)h->n_values / h->n_keys * h->value_dim, all = 2 * k + 2 * v;
    if (t->n_dims != 2 || t->shape[0] != h->n_keys * all)
        return wrong_shape(at, t, "[key heads * (q, k, v and z), width]");
    bool z = rule->how == Z_ROWS;
    struct recipe r = {.kind = RECIPE_PARTS,
                       .n_src = 1,
                       .src = &t,
                       .n_groups = h->n_keys,
                       .n_rows = all,
                       .n_cols = t->shape[1],
                       .part = {{0, z ? 0 : k}, {k, z ? 0 : k}, {2 * k + (z ? v : 0), v}}};
    u64 dims[2] = {h->n_keys * (z ? v : 2 * k + v), t->shape[1]};
    return add(at, rule, t->type, 2, dims, &r);
}

/* A tensor of Mamba or of a convolution with its values in order, seen as [rows][cols]. */
static int add_shaped(const struct place *at, const struct rule *rule, const struct st_tensor *t)
{
    const struct hf *h = at->h;
    u64 n = t->n_dims ? t->shape[0] : 0, dims[2] = {n, 1};
    bool fits = t->n_dims == 1;
    if (rule->how == CONV || rule->how == CONV3) {
        fits = t->n_dims == 2 || (t->n_dims == 3 && t->shape[1] == 1);
        dims[1] = n ? t->n_elems / n : 0;
    } else if (rule->how == COLUMN_EXP) { /* Kimi's has four dimensions */
        fits = true;
        dims[0] = t->n_elems;
    } else if (rule->how == BY_GROUP) {
        dims[0] = h->n_keys;
        dims[1] = n / MAX(h->n_keys, 1u);
        fits &= h->n_keys && n % h->n_keys == 0;
    }
    if (!fits || dims[0] * dims[1] != t->n_elems || !t->n_elems)
        return wrong_shape(at, t, "that of Mamba's heads or of a convolution");
    struct recipe r = {.kind = RECIPE_ROWS,
                       .n_src = 1,
                       .src = &t,
                       .n_groups = 1,
                       .n_rows = 1,
                       .n_cols = t->n_elems,
                       .n_take = 1,
                       .map = rule->how == COLUMN_EXP ? MAP_MINUS_EXP : MAP_NONE};
    u64 three[3] = {dims[0], 1, dims[1]};
    bool apart = rule->how == CONV3;
    return add(at, rule, QT_F32, apart ? 3 : 2, apart ? three : dims, &r);
}

/* Falcon-H1's multiplier of a matrix, by its name in GGUF. */
static float factor_of(const struct hf *h, const char *name)
{
    static const struct {
        const char *name;
        enum hf_factor factor;
    } all[] = {{"token_embd.weight", HF_FACTOR_EMBED}, {"output.weight", HF_FACTOR_HEAD},
               {"attn_q.weight", HF_FACTOR_QV},        {"attn_v.weight", HF_FACTOR_QV},
               {"attn_k.weight", HF_FACTOR_K},         {"attn_output.weight", HF_FACTOR_O},
               {"ffn_gate.weight", HF_FACTOR_GATE},    {"ffn_down.weight", HF_FACTOR_DOWN},
               {"ssm_out.weight", HF_FACTOR_MAMBA_OUT}};
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        if (strcmp(name, all[i].name) == 0) return h->factor[all[i].factor];
    return 1;
}

/* The multipliers of a matrix, by the rows that they are for. */
static int add_scaled(const struct place *at, const struct rule *rule, const struct st_tensor *t)
{
    const struct hf *h = at->h;
    u64 values = (u64)h->n_values * h->value_dim, keys = (u64)h->n_keys * h->key_dim;
    u64 rows[5] = {values, values, keys, keys, h->n_values};
    if (t->n_dims != 2) return wrong_shape(at, t, "a matrix");
    if (rule->how == SCALED_ROWS && t->shape[0] != 2 * (values + keys) + h->n_values)
        return wrong_shape(at, t, "[z, x, B, C and dt, width]");
    struct recipe r = {.kind = RECIPE_SCALED,
                       .n_src = 1,
                       .src = &t,
                       .n_groups = 1,
                       .n_rows = t->shape[0],
                       .n_cols = t->shape[1],
                       .n_take = t->shape[0]};
    bool none = true;
    for (u32 i = 0; i < ARRAY_LEN(rows); i++) {
        bool whole = rule->how != SCALED_ROWS;
        r.scale_rows[i] = !whole ? rows[i] : i == 0 ? t->shape[0] : 0;
        r.scale[i] = whole ? factor_of(h, rule->gguf) : h->factor_mamba[i];
        none &= !r.scale_rows[i] || !(r.scale[i] < 1 || r.scale[i] > 1);
    }
    if (none) r.kind = RECIPE_ROWS;
    return add(at, rule, t->type, 2, t->shape, &r);
}

static int add_lerp(const struct place *at, const struct rule *rule)
{
    static const char order[] = "rwkvag";
    const struct st_tensor *src[sizeof order - 1];
    const struct st_tensor *one = take(at, "attn.x_x"); /* early checkpoints: [6][C] */
    if (one && one->n_elems % ARRAY_LEN(src) == 0) {
        u64 dims[4] = {ARRAY_LEN(src), 1, 1, one->n_elems / ARRAY_LEN(src)};
        struct recipe r = {.kind = RECIPE_ROWS,
                           .n_src = 1,
                           .src = &one,
                           .n_groups = 1,
                           .n_rows = 1,
                           .n_cols = one->n_elems,
                           .n_take = 1};
        return add(at, rule, QT_F32, 4, dims, &r);
    }
    for (u32 i = 0; i < ARRAY_LEN(src); i++) {
        char name[64];
        snprintf(name, sizeof name, rule->hf, order[i]);
        src[i] = take(at, name);
        if (!src[i])
            return err_set(at->err, FLETCH_E_FORMAT, "tensor %s%s is missing", at->hf_prefix, name);
        if (src[i]->n_elems != src[0]->n_elems)
            return wrong_shape(at, src[i], "that of the other five");
    }
    u64 dims[4] = {ARRAY_LEN(src), 1, 1, src[0]->n_elems};
    struct recipe r = {.kind = RECIPE_ROWS,
                       .n_src = ARRAY_LEN(src),
                       .src = src,
                       .n_groups = 1,
                       .n_rows = 1,
                       .n_cols = dims[3],
                       .n_take = 1};
    return add(at, rule, QT_F32, 4, dims, &r);
}

static int apply(const struct place *at, const struct rule *rule)
{
    if (rule->how == STACK) return add_stack(at, rule);
    if (rule->how == LERP) return add_lerp(at, rule);
    bool blocks = false;
    int rc = rule->how == EVEN || rule->how == ODD || rule->how == WHOLE
                 ? add_blocks(at, rule, &blocks)
                 : 0;
    if (blocks) return rc;
    const struct st_tensor *t = take(at, rule->hf);
    if (!t) return 0; /* whether it must be there is for whoever binds the model */
    switch (rule->how) {
    case ROPE_Q:
    case ROPE_K: return add_rope(at, rule, t);
    case GATE_ROWS:
    case UP_ROWS: return has_turned_experts(at) ? 0 : add_half(at, rule, t);
    case TURNED: return has_turned_experts(at) ? add_turned(at, rule, t) : 0;
    case EVEN:
    case ODD:
    case WHOLE: return add_turns(at, rule, t);
    case GATE_COLUMNS:
    case UP_COLUMNS: return add_columns(at, rule, t);
    case NOT_TURNED: return has_turned_experts(at) ? 0 : add_plain(at, rule, t);
    case MLA_K:
    case MLA_V: return add_mla(at, rule, t);
    case OUTPUT:
        if (at->h->tied) return 0;
        return at->h->arch & FH ? add_scaled(at, rule, t) : add_plain(at, rule, t);
    case CONV:
    case CONV3:
    case COLUMN:
    case COLUMN_EXP:
    case BY_GROUP: return add_shaped(at, rule, t);
    case SCALED:
    case SCALED_ROWS: return add_scaled(at, rule, t);
    case VALUE_MIX: return at->block == 0 ? 0 : add_plain(at, rule, t);
    case MINUS_EXP:
    case HEADS:
    case HEADS_F32:
    case VALUES:
    case MIXED:
    case TAPS:
    case COLUMNS: return add_delta(at, rule, t);
    case QKV_ROWS:
    case Z_ROWS: return add_qkvz(at, rule, t);
    case DROP: return 0;
    default: return add_plain(at, rule, t);
    }
}

static int apply_all(const struct place *at, const struct rule *rules)
{
    int rc = 0;
    for (; rules->archs && rc == 0; rules++)
        if (rules->archs & at->h->arch) rc = apply(at, rules);
    return rc;
}

static int add_rope_factors(struct source *s, const struct hf *h, struct err *err)
{
    const struct {
        const char *name;
        const float *values;
    } all[] = {{"rope_freqs.weight", h->rope_freqs},
               {"rope_factors_short.weight", h->rope_short},
               {"rope_factors_long.weight", h->rope_long}};
    int rc = 0;
    for (size_t i = 0; i < ARRAY_LEN(all) && rc == 0; i++) {
        if (!all[i].values) continue;
        struct recipe *r = arena_alloc(&s->arena, 1, sizeof *r);
        if (!r) return err_nomem(err, "tensors");
        *r = (struct recipe){.kind = RECIPE_VALUES, .values = all[i].values};
        struct tensor t = {str_of(all[i].name), QT_F32, 1, {h->n_rope_freqs}, 0, 0, NULL, r};
        rc = source_add_tensor(s, &t, err);
    }
    return rc;
}

/* Muse: heads are normed without weights, and queries scaled; GGUF has weights for both. */
static int add_head_norms(const struct place *at)
{
    static const char *const names[2] = {"attn_q_norm", "attn_k_norm"};
    struct hf *h = at->h;
    for (u32 i = 0; i < 2; i++) {
        struct recipe *r = arena_alloc(&at->s->arena, 1, sizeof *r);
        char *name = arena_printf(&at->s->arena, "%s%s.weight", at->gguf_prefix, names[i]);
        if (!h->head_norms[i]) { /* the same in all blocks */
            float *values = arena_alloc(&at->s->arena, h->head, sizeof *values);
            for (u32 k = 0; values && k < h->head; k++) values[k] = i ? 1 : h->q_scale;
            h->head_norms[i] = values;
        }
        if (!h->head_norms[i] || !r || !name) return err_nomem(at->err, "tensors");
        *r = (struct recipe){.kind = RECIPE_VALUES, .values = h->head_norms[i]};
        struct tensor t = {str_of(name), QT_F32, 1, {h->head}, 0, 0, NULL, r};
        int rc = source_add_tensor(at->s, &t, at->err);
        if (rc) return rc;
    }
    return 0;
}

/* Buffers that the code which wrote them makes anew, and MTP blocks that config.json does not
 * announce: nothing else is computed from them. */
static bool is_spare(const struct hf *h, struct str name)
{
    static const char *const buffers[] = {".rotary_emb.inv_freq", ".attention.masked_bias",
                                          ".attention.bias"};
    char mtp[64];
    for (size_t i = 0; i < ARRAY_LEN(buffers); i++)
        if (str_ends(name, buffers[i])) return true;
    if ((h->arch & EM) && str_starts(name, "model.mtp_")) return true;
    if ((h->arch & XM) && str_starts(name, "mtp.")) return true;
    if (h->arch & D) return false;
    if (!(h->arch & (G | GM | HV | BL)) || !str_starts(name, "model.layers.")) return false;
    const char *digits = name.p + strlen("model.layers.");
    size_t n = 0, most = name.n - strlen("model.layers.");
    u32 block = 0;
    for (; n < most && n < 6 && digits[n] >= '0' && digits[n] <= '9'; n++)
        block = block * 10 + (u32)(digits[n] - '0');
    if (n == 0 || n == most || digits[n] != '.' || block < h->n_layers) return false;
    snprintf(mtp, sizeof mtp, "model.layers.%u.eh_proj.weight", block);
    return hf_find(h, mtp) != NULL;
}

int hf_add_tensors(struct source *s, struct hf *h, struct err *err)
{
    struct place at = {s, h, "", "", 0, err};
    int rc = apply_all(&at, hf_model_rules);
    if (rc == 0) rc = add_rope_factors(s, h, err);
    for (u32 n = 0; n < h->n_layers + h->n_mtp && rc == 0; n++) {
        char hf_prefix[32], gguf_prefix[32];
        bool apart = n >= h->n_layers && (h->arch & D);
        snprintf(hf_prefix, sizeof hf_prefix, apart ? "mtp.layers.%u." : "model.layers.%u.",
                 apart ? n - h->n_layers : n);
        snprintf(gguf_prefix, sizeof gguf_prefix, "blk.%u.", n);
        at = (struct place){s, h, hf_prefix, gguf_prefix, n, err};
        rc = apply_all(&at, hf_block_rules);
        if (rc == 0 && (h->arch & MU)) rc = add_head_norms(&at);
        if (rc == 0 && n >= h->n_layers) rc = apply_all(&at, hf_mtp_rules);
        at.hf_prefix = "";
        if (rc == 0 && apart) rc = apply_all(&at, hf_mtp_apart_rules);
    }
    for (u32 i = 0; i < h->n_tensors && rc == 0; i++)
        if (!h->used[i] && !is_spare(h, h->names[i]))
            source_refuse(
                s, "tensor %s does not belong to this architecture as described by config.json",
                QUOTE(h->tensors[i]->name));
    return rc;
}
