/* The mixtures: which storage type each tensor of a model gets. The rules are those of the
 * quantisation tools that published files come from, so that sizes and quality compare. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "model/convert.h"

static const struct convert_type types[] = {
    {"f32", QT_F32, 0, false, false},    {"f16", QT_F16, 1, false, false},
    {"bf16", QT_BF16, 32, false, false}, {"q8_0", QT_Q8_0, 7, false, false},
    {"q4_0", QT_Q4_0, 2, false, true},   {"q4_k", QT_Q4_K, 14, false, false},
    {"q4_k_m", QT_Q4_K, 15, true, true}, {"q5_k_m", QT_Q5_K, 17, true, true},
    {"q6_k", QT_Q6_K, 18, false, false},
};

const struct convert_type *convert_type_by_name(const char *name, struct err *err)
{
    char known[128] = "";
    for (size_t i = 0, n = 0; i < ARRAY_LEN(types); i++) {
        if (strcasecmp(name, types[i].name) == 0) return &types[i];
        n += (size_t)snprintf(known + n, sizeof known - n, " %s", types[i].name);
    }
    err_set(err, FLETCH_E_ARG, "unknown type %s; known types:%s", QUOTE(str_of(name)), known);
    return NULL;
}

static bool contains(struct str s, const char *part)
{
    return memmem(s.p, s.n, part, strlen(part)) != NULL;
}

/* "blk.7.attn_v.weight": block 7, part "attn_v.weight". Block -1 outside blocks. */
static int block_of(struct str name, struct str *part)
{
    u32 n = 0;
    size_t i = 4;
    *part = name;
    if (!str_starts(name, "blk.")) return -1;
    for (; i < name.n && name.p[i] >= '0' && name.p[i] <= '9' && n < 100000; i++)
        n = n * 10 + (u32)(name.p[i] - '0');
    if (i == 4 || i == name.n || name.p[i] != '.') return -1;
    *part = (struct str){name.p + i + 1, name.n - i - 1};
    return (int)n;
}

static bool one_of(struct str name, const char *const *names)
{
    for (; *names; names++)
        if (str_is(name, *names)) return true;
    return false;
}

static bool is_attn_v(struct str part)
{
    static const char *const names[] = {"attn_v.weight", "attn_qkv.weight", "attn_kv_b.weight",
                                        NULL};
    return one_of(part, names);
}

static bool is_ffn_down(struct str part)
{
    static const char *const names[] = {"ffn_down.weight", "ffn_down_exps.weight",
                                        "ffn_down_shexp.weight", NULL};
    return one_of(part, names);
}

/* Kept in the source's type whatever is asked for, f32 excepted. */
static bool is_kept(const struct tensor *t, struct str part, bool quantised)
{
    static const char *const always[] = {"time_mix_lerp_fused.weight",
                                         "time_mix_w0.weight",
                                         "time_mix_w1.weight",
                                         "time_mix_w2.weight",
                                         "time_mix_a0.weight",
                                         "time_mix_v0.weight",
                                         "time_mix_first.weight",
                                         "ssm_conv1d.weight",
                                         "shortconv.conv.weight",
                                         "ssm_conv1d_q.weight",
                                         "ssm_conv1d_k.weight",
                                         "ssm_conv1d_v.weight",
                                         "ssm_a",
                                         "ssm_d",
                                         NULL};
    static const char *const low_rank[] = {"time_mix_a1.weight",
                                           "time_mix_a2.weight",
                                           "time_mix_v1.weight",
                                           "time_mix_v2.weight",
                                           "time_mix_g1.weight",
                                           "time_mix_g2.weight",
                                           NULL};
    return t->n_dims < 2 || (t->ne[1] == 1 && t->ne[2] == 1 && t->ne[3] == 1) ||
           contains(t->name, "_norm.weight") || contains(t->name, "ffn_gate_inp") ||
           str_ends(t->name, ".bias") || one_of(part, always) ||
           (quantised && one_of(part, low_rank));
}

/* The first and last eighth of the blocks, and every third between. */
static bool more(u32 i, u32 n)
{
    return i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2;
}

static bool is_output(const struct convert_model *m, struct str name)
{
    return str_is(name, "output.weight") || (m->tied && str_is(name, "token_embd.weight"));
}

static enum qtype choose_mixed(enum qtype base, const struct convert_model *m, u32 block,
                               struct str part)
{
    bool eight = m->n_experts == 8;
    if (is_attn_v(part)) {
        if (eight && str_is(part, "attn_v.weight")) return QT_Q8_0;
        if (more(block, m->n_attn_v)) return QT_Q6_K;
        return m->is_70b ? QT_Q5_K : base;
    }
    if (is_ffn_down(part)) return more(block, m->n_blocks) ? QT_Q6_K : base;
    if (eight && str_is(part, "attn_k.weight")) return QT_Q8_0;
    if (eight && str_is(part, "attn_output.weight")) return QT_Q5_K;
    return base;
}

/* Rows that are not whole blocks get a type with smaller blocks and no fewer bits. */
static enum qtype fall_back(enum qtype type, u64 n_row)
{
    if (n_row % 32) return QT_F16;
    if (n_row % quant_info(type)->blk == 0) return type;
    return type == QT_Q4_K ? QT_Q5_0 : type == QT_Q5_K ? QT_Q5_1 : QT_Q8_0;
}

enum qtype convert_choose(const struct convert_type *type, const struct convert_model *m,
                          const struct tensor *t)
{
    struct str part;
    int block = block_of(t->name, &part);
    bool quantised = quant_info(type->base)->blk > 1;
    enum qtype q = type->base;
    if (q == QT_F32) return q;
    if (is_kept(t, part, quantised)) return t->type;
    if (!quantised) return q;
    if (t->type == QT_MXFP4) return t->type; /* experts that were trained so */
    if (type->big_output && is_output(m, t->name))
        q = QT_Q6_K;
    else if (type->more_bits && block >= 0)
        q = choose_mixed(q, m, (u32)block, part);
    return fall_back(q, t->ne[0]);
}

static u32 get_u32(const struct source *s, const char *arch, const char *suffix)
{
    char key[160];
    u32 v = 0;
    snprintf(key, sizeof key, "%s.%s", arch, suffix);
    source_get_u32(s, key, &v, NULL);
    return v;
}

void convert_describe(struct convert_model *m, const struct source *s)
{
    struct str name = {0}, part;
    char arch[64];
    source_get_str(s, "general.architecture", &name, NULL);
    snprintf(arch, sizeof arch, "%.*s", (int)MIN(name.n, sizeof arch), name.n ? name.p : "");
    *m = (struct convert_model){
        .n_blocks = get_u32(s, arch, "block_count"),
        .n_experts = get_u32(s, arch, "expert_count"),
        .tied = !source_tensor(s, "output.weight"),
    };
    m->is_70b = strcmp(arch, "llama") == 0 && m->n_blocks == 80;
    for (u32 i = 0; i < s->n_tensors; i++)
        if (block_of(s->tensors[i].name, &part) >= 0 && is_attn_v(part)) m->n_attn_v++;
}
