/* Groups: what rules take, what they refuse, and that the order of recording does not matter. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../test/harness.h"
#include "core/patterns.h"
#include "cpu/cpu.h"
#include "cpu/cpu_internal.h"
#include "engine/engine.h"
#include "gpu/gpu.h"
#include "gpu/rules.h"

static struct net *net;
static struct program *p;

static int setup(void **state)
{
    (void)state;
    return net_open(&net, NULL) || prog_open(&p, net, "test", NULL);
}

static int teardown(void **state)
{
    (void)state;
    prog_close(p);
    net_close(net);
    return 0;
}

/* A weight without bytes. */
static u32 weight(u32 n_in, u32 n_out, u32 n_slices)
{
    struct weight w = weight_packed("w", QT_F32, n_in, n_out, n_slices);
    return net_weight(net, &w);
}

static struct operand matmul(struct operand x, u32 n_out)
{
    return prog_matmul(p, "m", x, weight(x.width, n_out, 1), NO_WEIGHT);
}

static struct norm_spec rms(void)
{
    return (struct norm_spec){.kind = NORM_RMS, .eps = 1e-5f, .w = NO_WEIGHT, .b = NO_WEIGHT};
}

static void finish(struct operand x)
{
    struct err err = {0};
    struct operand logits = matmul(prog_gather_rows(p, x), 10);
    assert_int_equal(prog_finish(p, logits, x, &err), 0);
}

static struct program *group(const struct rule *rules, u32 n_rules)
{
    struct program *f;
    struct err err = {0};
    assert_int_equal(prog_group(&f, p, rules, n_rules, &err), 0);
    assert_placed(f);
    return f;
}

static const struct rule norm_matmul = PATTERN_NORM_MATMUL, glu = PATTERN_GATE_UP_GLU,
                         experts_glu = PATTERN_EXPERTS_GLU, add = PATTERN_MATMUL_ADD,
                         matmuls = PATTERN_MATMULS;

static const struct group *find(const struct program *f, const char *name)
{
    for (u32 i = 0; i < f->n_groups; i++)
        if (strcmp(group_name(&f->groups[i]), name) == 0) return &f->groups[i];
    return NULL;
}

/* ---- what is taken ---- */

static void a_norm_and_up_to_three_matmuls_are_a_group(void **state)
{
    for (u32 n = 1; n <= 4; n++) {
        struct operand x = prog_embed(p, weight(8, 4, 1)), y[4];
        struct operand h = prog_norm(p, "n", x, rms());
        for (u32 i = 0; i < n; i++) y[i] = matmul(h, 6 + i);
        for (u32 i = 0; i < n; i++) x = prog_act(p, "a", ACT_TANH, y[i]); /* keeps them alive */
        finish(x);
        struct program *f = group(&norm_matmul, 1);
        const struct group *g = find(f, "norm+matmul");
        assert_int_equal(g != NULL, n < 4);
        assert_int_equal(f->n_groups, n < 4 ? p->n_ops - n : p->n_ops);
        assert_int_equal(f->bufs[h.buf].inside, n < 4);
        for (u32 i = 0; g && i <= n; i++) assert_ptr_equal(g->role[i], &p->ops[1 + i]);
        prog_close(f);
        teardown(state);
        setup(state);
    }
}

static void another_reader_keeps_a_norm_out(void **state)
{
    for (u32 kind = 0; kind < 4; kind++) {
        struct err err = {0};
        struct operand h = prog_norm(p, "n", prog_embed(p, weight(8, 4, 1)), rms());
        struct operand y = matmul(h, 8);
        if (kind == 0) y = prog_add(p, "a", y, h);           /* read again later */
        if (kind == 1) y = prog_glu(p, "g", h, y);           /* by another op */
        if (kind == 2) y = matmul(prog_cols(p, h, 0, 4), 8); /* in part */
        if (kind == 3)
            assert_int_equal(prog_finish(p, y, h, &err), 0); /* after the step */
        else
            finish(y);
        struct program *f = group(&norm_matmul, 1);
        assert_int_equal(f->n_groups, p->n_ops);
        prog_close(f);
        teardown(state);
        setup(state);
    }
}

static void gate_and_up_are_told_apart(void **state)
{
    for (u32 kind = 0; kind < 3; kind++) {
        struct operand x = prog_embed(p, weight(8, 4, 1));
        struct operand a = matmul(x, 6), b = matmul(x, 6);
        struct operand y = prog_glu(p, "glu", kind == 1 ? b : a, kind == 1 ? a : b);
        if (kind == 2) y = prog_add(p, "again", y, a);
        finish(y);
        struct program *f = group(&glu, 1);
        const struct group *g = find(f, "gate+up+glu");
        assert_int_equal(g != NULL, kind < 2);
        if (g) assert_ptr_equal(g->role[0], &p->ops[kind == 1 ? 2 : 1]);
        if (g) assert_ptr_equal(g->role[2], &p->ops[kind == 1 ? 1 : 2]);
        prog_close(f);
        teardown(state);
        setup(state);
    }
}

static void roles_may_be_absent(void **state)
{
    for (u32 two = 0; two < 2; two++) {
        struct operand x = prog_embed(p, weight(8, 4, 1)), r = prog_act(p, "r", ACT_TANH, x);
        struct operand y = prog_add(p, "y", r, matmul(x, 8));
        if (two) y = prog_add(p, "z", x, y);
        finish(y);
        struct program *f = group(&add, 1);
        const struct group *g = find(f, "matmul+add");
        assert_int_equal(g->n_ops, 2 + two);
        assert_int_equal(g->role[2] != NULL, two);
        assert_memory_equal(&group_last(g)->out[0], &y, sizeof y);
        prog_close(f);
        teardown(state);
        setup(state);
    }
}

/* What another op reads must stay, so it can't be inside. */
static void lerps_and_products_are_gathered(void **state)
{
    for (u32 kind = 0; kind < 3; kind++) {
        struct operand x = prog_embed(p, weight(8, 4, 1)), b = prog_act(p, "b", ACT_TANH, x);
        u32 mu = weight(8, 2, 1);
        struct operand l0 = prog_lerp_weight(p, "l0", x, b, mu, 0), m = matmul(l0, 8);
        struct operand y = prog_act(p, "a", ACT_SIGMOID, m), other = prog_add(p, "o", x, b);
        struct operand l1 = prog_lerp_weight(p, "l1", x, b, mu, 1), v = matmul(l1, 8);
        struct operand u = matmul(other, 8); /* independent too */
        if (kind == 1) y = prog_add(p, "again", y, l0);
        if (kind == 2) y = prog_add(p, "again", y, m);
        finish(matmul(prog_glu(p, "y", y, prog_add(p, "sum", u, v)), 8));
        struct program *f = group(&matmuls, 1);
        const struct group *g = find(f, "lerp+matmul+act");
        assert_int_equal(g->n_ops, kind ? 5 : 6);
        assert_int_equal(group_op(g, OP_ACT, 0) != NULL, kind != 2);
        assert_int_equal(group_op(g, OP_LERP, 1) != NULL, kind != 1);
        assert_ptr_equal(group_op(g, OP_MATMUL, 3), NULL); /* not the one that reads them */
        prog_close(f);
        teardown(state);
        setup(state);
    }
}

/* No group may wait for what waits for it, by values or by a state. */
static void a_path_out_and_back_makes_no_group(void **state)
{
    static const struct rule pair = {.name = "pair",
                                     .out = "ab",
                                     .roles = {ROLE(NORM, "x", "h"), ROLE(MATMUL, "h", "a"),
                                               ROLE(MATMUL, "y", "b"), ROLE(ADD, "ab", "z")}};
    for (u32 kind = 0; kind < 2; kind++) {
        struct operand x = prog_embed(p, weight(8, 4, 1)), h = prog_norm(p, "h", x, rms());
        struct operand a = matmul(h, 8), b = matmul(kind ? prog_act(p, "out", ACT_TANH, a) : x, 8);
        finish(prog_add(p, "z", a, b));
        struct rule by_sum = pair;
        by_sum.out = "abz";
        by_sum.roles[0] = pair.roles[3];
        by_sum.roles[3] = pair.roles[0];
        struct program *f = group(&by_sum, 1);
        assert_int_equal(find(f, "pair") == NULL, kind);
        prog_close(f);
        teardown(state);
        setup(state);
    }
}

/* ---- what is refused ---- */

/* Gives op the feature; false: it can't have it. */
static bool give(struct op *op, enum feature f)
{
    u64 had = op_features(op);
    switch (f) {
    case FEATURE_RMS: op->p.norm.kind = NORM_RMS; break;
    case FEATURE_LAYER: op->p.norm.kind = NORM_LAYER; break;
    case FEATURE_L2: op->p.norm.kind = NORM_L2; break;
    case FEATURE_GROUPS: op->p.norm.group = op->in[0].width / 2; break;
    case FEATURE_PER_SLOT: op->p.experts.per_slot = true; break;
    case FEATURE_TANH: op->p.act.kind = ACT_TANH; break;
    case FEATURE_SIGMOID: op->p.act.kind = ACT_SIGMOID; break;
    case FEATURE_RELU2: op->p.act.kind = ACT_RELU2; break;
    case FEATURE_DECAY: op->p.act.kind = ACT_DECAY; break;
    case FEATURE_NEOX: op->p.rope.kind = ROPE_NEOX; break;
    case FEATURE_PARTIAL: op->p.rope.n_rot = op->p.rope.width - 2; break;
    case FEATURE_ROPE_TABLE: op->p.rope.table = 1; break;
    case FEATURE_GELU: op->p.glu.kind = GLU_GELU; break;
    case FEATURE_CLAMPED: op->p.glu.kind = GLU_CLAMPED; break;
    case FEATURE_V_WIDTH: op->p.attn.v_width = op->p.attn.k_width + 8; break;
    case FEATURE_WINDOW: op->p.attn.window = 4; break;
    case FEATURE_SOFTCAP: op->p.attn.softcap = 1; break;
    case FEATURE_SINKS: op->n_w = 1; break;
    case FEATURE_BY_SIGMOID: op->p.route.kind = ROUTE_SIGMOID; break;
    case FEATURE_EXPERT_GROUPS: op->p.route.n_groups = 4; break;
    case FEATURE_NORMALISED: op->p.route.normalise = true; break;
    case FEATURE_SCALE: op->p.route.scale = 2; break;
    case FEATURE_EXPERT_SCALES: op->w[1] = 0; break;
    case FEATURE_LIMITED: op->p.glu.kind = GLU_LIMITED; break;
    default: return false;
    }
    return op_features(op) >> f & 1 && !(had >> f & 1);
}

/* Which op of a kind has a feature: others' parameters share its memory. */
static bool may_have(enum op_kind kind, enum feature f)
{
    switch (f) {
    case FEATURE_RMS:
    case FEATURE_LAYER:
    case FEATURE_L2:
    case FEATURE_GROUPS: return kind == OP_NORM;
    case FEATURE_PER_SLOT: return kind == OP_MATMUL_EXPERTS;
    case FEATURE_TANH:
    case FEATURE_SIGMOID:
    case FEATURE_RELU2:
    case FEATURE_DECAY: return kind == OP_ACT;
    case FEATURE_NEOX:
    case FEATURE_PARTIAL:
    case FEATURE_ROPE_TABLE: return kind == OP_ROPE;
    case FEATURE_GELU:
    case FEATURE_LIMITED:
    case FEATURE_CLAMPED: return kind == OP_GLU;
    case FEATURE_V_WIDTH:
    case FEATURE_WINDOW:
    case FEATURE_SOFTCAP:
    case FEATURE_SINKS: return kind == OP_ATTENTION;
    case FEATURE_BY_SIGMOID:
    case FEATURE_EXPERT_GROUPS:
    case FEATURE_NORMALISED:
    case FEATURE_SCALE:
    case FEATURE_EXPERT_SCALES: return kind == OP_ROUTE;
    default: return false;
    }
}

static const struct rules {
    const struct rule *list;
    u32 n;
} all_rules[] = {{cpu_rules, CPU_RULES}, {gpu_rules, GPU_RULES}};

static bool is_in_group(const struct program *f, const struct op *op)
{
    for (u32 i = 0; i < f->n_groups; i++)
        for (u32 k = 0; k < f->groups[i].n_ops; k++)
            if (f->groups[i].ops[k] == op) return f->groups[i].rule;
    return false;
}

/* The role that op has in f, or none of its own. */
static const struct role *role_of(const struct program *f, const struct op *op)
{
    static struct role gathered;
    gathered.kind = op->kind;
    for (u32 i = 0; i < f->n_groups; i++)
        for (u32 r = 0; f->groups[i].rule && r < GROUP_MAX_ROLES; r++)
            if (f->groups[i].role[r] == op) return &f->groups[i].rule->roles[r];
    return &gathered;
}

/* Each op of a model's second block that a rule takes, with every feature that its role lacks:
 * then the rule alone takes it no more. */
static u32 count_refused(const struct program *m, const struct rule *rule)
{
    struct program *f;
    u32 n = 0;
    assert_int_equal(prog_group(&f, m, rule, 1, NULL), 0);
    for (u32 i = 0; i < m->n_ops; i++) {
        struct op *op = &m->ops[i], was = *op;
        if (op->layer != 1 || !is_in_group(f, op)) continue;
        for (u32 bit = 0; bit < FEATURE_COUNT; bit++) {
            struct rule without = *rule;
            struct program *g;
            if (!may_have(op->kind, bit) || !give(op, bit)) {
                *op = was;
                continue;
            }
            bool lacks = !role_takes(role_of(f, op), op_features(op));
            assert_int_equal(prog_group(&g, m, &without, 1, NULL), 0);
            if (lacks && is_in_group(g, op))
                fail_msg("%s takes an op '%s' with %s", rule->name, op_info[op->kind].name,
                         feature_name(bit));
            n += lacks;
            prog_close(g);
            *op = was;
        }
    }
    prog_close(f);
    return n;
}

static void open_program(struct model **m, const char *path)
{
    struct err err = {0};
    struct source *s;
    if (source_open(&s, path, &err) || model_open(m, s, (struct profile){.kv = CACHE_F16}, &err))
        fail_msg("%s: %s", path, err.text);
}

static void rules_refuse_features_that_they_do_not_list(void **state)
{
    (void)state;
    u32 n = 0;
    static const char *const models[] = {"qwen2", "qwen3_moe", "glm4_moe_lite", "rwkv7"};
    for (size_t i = 0; i < ARRAY_LEN(models); i++) {
        struct golden g;
        struct model *m;
        golden_open(&g, models[i]);
        open_program(&m, g.model);
        for (size_t c = 0; c < ARRAY_LEN(all_rules); c++)
            for (u32 r = 0; r < all_rules[c].n; r++)
                n += count_refused(m->trunk, &all_rules[c].list[r]);
        model_close(m);
        golden_close(&g);
    }
    print_message("%u features refused\n", n);
    assert_true(n > 0);
}

/* No role takes what it does not know: every bit that is not listed, alone. */
static void roles_take_listed_features_only(void **state)
{
    (void)state;
    for (size_t c = 0; c < ARRAY_LEN(all_rules); c++)
        for (u32 r = 0; r < all_rules[c].n; r++)
            for (u32 k = 0; k < GROUP_MAX_ROLES && all_rules[c].list[r].roles[k].in; k++) {
                const struct role *role = &all_rules[c].list[r].roles[k];
                struct role none = *role;
                assert_true(role_takes(role, HAS(OP)));
                if (role->without != '!') assert_false(role_takes(role, 1ull << 63));
                none.also = 0;
                for (u32 bit = 0; bit < FEATURE_COUNT; bit++)
                    if (role->without != '!' && role_takes(role, HAS(OP) | 1ull << bit))
                        assert_true(role_takes(&none, 1ull << bit) || role->also >> bit & 1);
            }
}

static void a_feature_keeps_the_op_out(void **state)
{
    for (u32 per_slot = 0; per_slot < 2; per_slot++) {
        struct operand ids, weights, y[2], x = prog_embed(p, weight(16, 4, 1));
        prog_route(p, x, (struct route_spec){.n_used = 2, .bias = NO_WEIGHT, .scales = NO_WEIGHT},
                   &ids, &weights);
        for (u32 i = 0; i < 2; i++)
            y[i] = prog_matmul_experts(p, "e", x, ids, weight(per_slot ? 8 : 16, 3, 16), per_slot);
        finish(prog_combine_experts(p, "c", prog_glu(p, "g", y[0], y[1]), weights));
        struct program *f = group(&experts_glu, 1);
        assert_int_equal(op_features(&p->ops[2]), HAS(OP) | (per_slot ? HAS(PER_SLOT) : 0));
        assert_int_equal(find(f, "experts gate+up+glu") == NULL, per_slot);
        prog_close(f);
        teardown(state);
        setup(state);
    }
}

/* ---- models ---- */

static void list_block(const struct program *q, int l, char *out, size_t n)
{
    *out = 0;
    for (u32 i = 0; i < q->n_groups; i++)
        if (q->groups[i].ops[0]->layer == l) {
            size_t used = strlen(out);
            snprintf(out + used, n - used, "%s%s", used ? " " : "", group_name(&q->groups[i]));
        }
}

/* What the second block of each kind of model becomes on a GPU. */
static void blocks_become_few_groups(void **state)
{
    (void)state;
    static const char dense[] =
        "norm+qkv+rope+kv_store+attention matmul+add norm+gate+up+glu matmul+add";
    static const struct {
        const char *golden, *groups;
    } want[] = {
        {"llama", dense},
        {"qwen2", dense},
        {"qwen3", dense},
        {"qwen3_moe", "norm+qkv+rope+kv_store+attention matmul+add norm+router "
                      "route+experts gate+up+glu experts down+combine"},
        {"glm4_moe_lite",
         "norm+matmul norm+matmul+matmul_heads "
         "rope+norm+rope+kv_store+latent_attention+matmul_heads matmul+add "
         "norm+router+gate+up+glu route+experts gate+up+glu experts down+combine+matmul+add"},
        {"rwkv7", "norm+token_shift+lerp+matmul+act matmul+act+wkv7+head+tail matmul+add "
                  "norm+token_shift+lerp+matmul+act matmul+add"},
        {"arwkv7-nogate", "norm+token_shift+lerp+matmul+act matmul+act+wkv7+head+tail "
                          "matmul+add norm+gate+up+glu matmul+add"},
    };
    for (size_t i = 0; i < ARRAY_LEN(want); i++) {
        struct golden g;
        struct model *m;
        struct program *f;
        char got[512];
        u64 bytes[2] = {0};
        golden_open(&g, want[i].golden);
        open_program(&m, g.model);
        assert_int_equal(prog_group(&f, m->trunk, gpu_rules, GPU_RULES, NULL), 0);
        assert_placed(f);
        list_block(f, 1, got, sizeof got);
        assert_string_equal(got, want[i].groups);
        for (u32 j = 0; j < f->n_groups; j++) bytes[0] += group_bytes(f, &f->groups[j], 3);
        for (u32 j = 0; j < f->n_ops; j++) bytes[1] += prog_op_bytes(f, &f->ops[j], 3);
        assert_int_equal(bytes[0], bytes[1]);
        prog_close(f);
        model_close(m);
        golden_close(&g);
    }
}

/* ---- orders ---- */

static u32 random_below(u32 n)
{
    static u64 seed = 1;
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (u32)((seed >> 33) % n);
}

static bool meet(struct operand a, struct operand b)
{
    return a.buf == b.buf && a.col < b.col + b.width && b.col < a.col + a.width;
}

static bool uses_cache(const struct op *op)
{
    return op->kind == OP_KV_STORE || op->kind == OP_ATTENTION || op->kind == OP_LATENT_ATTENTION;
}

/* Must b, which was recorded after a, wait for it? */
static bool waits(const struct op *b, const struct op *a)
{
    for (u32 i = 0; i < b->n_in; i++)
        for (u32 j = 0; j < a->n_out; j++)
            if (meet(b->in[i], a->out[j])) return true;
    return uses_cache(a) && uses_cache(b) && a->p.attn.kv == b->p.attn.kv;
}

/* The program as if its ops, and so the values they write, had been recorded in another order that
 * dependencies allow. from[i]: which op of m it is that is now number i. */
static void shuffle(struct program *out, const struct program *m, u32 *from)
{
    u32 n = m->n_ops, *ready = calloc(n, sizeof *ready),
        *number = malloc(m->n_bufs * sizeof *number);
    bool *done = calloc(n, sizeof *done);
    *out = *m;
    out->ops = calloc(n, sizeof *out->ops);
    out->bufs = calloc(m->n_bufs, sizeof *out->bufs);
    assert_true(ready && number && done && out->ops && out->bufs);
    memset(number, 0xff, m->n_bufs * sizeof *number);
    u32 n_bufs = 0;
    for (u32 at = 0; at < n; at++) {
        u32 n_ready = 0;
        for (u32 i = 0; i < n; i++) {
            bool free_ = !done[i];
            for (u32 k = 0; k < i && free_; k++) free_ = done[k] || !waits(&m->ops[i], &m->ops[k]);
            if (free_) ready[n_ready++] = i;
        }
        u32 pick = from[at] = ready[random_below(n_ready)];
        struct op *op = &out->ops[at];
        done[pick] = true;
        *op = m->ops[pick];
        for (u32 j = 0; j < op->n_out; j++)
            if (number[op->out[j].buf] == UINT32_MAX) number[op->out[j].buf] = n_bufs++;
        for (u32 j = 0; j < op->n_out; j++) op->out[j].buf = number[op->out[j].buf];
        for (u32 j = 0; j < op->n_in; j++) op->in[j].buf = number[op->in[j].buf];
    }
    for (u32 b = 0; b < m->n_bufs; b++)
        if (number[b] != UINT32_MAX) out->bufs[number[b]] = m->bufs[b];
    out->n_bufs = n_bufs;
    u32 *special[] = {&out->logits, &out->hidden, &out->sampled, &out->logprobs, &out->top};
    for (u32 i = 0; i < ARRAY_LEN(special); i++)
        if (*special[i] != NO_BUF) *special[i] = number[*special[i]];
    free(ready);
    free(number);
    free(done);
}

static void free_shuffled(struct program *q)
{
    free(q->ops);
    free(q->bufs);
}

/* 32 bits that don't depend on the order: of a group's name and its ops, as m numbers them. */
static u32 digest(const struct group *g, const struct op *base, const u32 *from)
{
    u32 sum = 0;
    for (const char *c = group_name(g); *c; c++) sum = sum * 31 + (u8)*c;
    for (u32 i = 0; i < g->n_ops; i++) {
        u32 x = (from ? from[g->ops[i] - base] : (u32)(g->ops[i] - base)) + 1;
        sum += (x * 2654435761u) ^ (x * 40503u >> 3);
    }
    return sum;
}

/* Same groups: each one's digest is there as often. */
static void expect_same_groups(const struct program *a, const struct program *b, const u32 *from,
                               const char *name)
{
    assert_int_equal(a->n_groups, b->n_groups);
    for (u32 i = 0; i < a->n_groups; i++) {
        u32 want = digest(&a->groups[i], a->ops, NULL), n = 0;
        for (u32 k = 0; k < b->n_groups; k++) n += digest(&b->groups[k], b->ops, from) == want;
        if (n != 1) fail_msg("%s: group %u (%s) became others", name, i, group_name(&a->groups[i]));
    }
}

static void any_order_gives_the_same_groups(void **state)
{
    (void)state;
    char **names = golden_list();
    for (char **name = names; *name; name++) {
        struct golden g;
        struct model *m;
        golden_open(&g, *name);
        open_program(&m, g.model);
        u32 *from = calloc(m->trunk->n_ops, sizeof *from);
        struct program *base[2];
        for (u32 c = 0; c < 2; c++)
            assert_int_equal(
                prog_group(&base[c], m->trunk, all_rules[c].list, all_rules[c].n, NULL), 0);
        for (u32 i = 0; i < 100; i++) {
            struct program q, *f;
            shuffle(&q, m->trunk, from);
            for (u32 c = 0; c < 2; c++) {
                assert_int_equal(prog_group(&f, &q, all_rules[c].list, all_rules[c].n, NULL), 0);
                expect_same_groups(base[c], f, from, *name);
                if (i == 0) assert_placed(f);
                prog_close(f);
            }
            free_shuffled(&q);
        }
        for (u32 c = 0; c < 2; c++) prog_close(base[c]);
        free(from);
        model_close(m);
        golden_close(&g);
    }
    golden_list_free(names);
}

/* Logits of a few rows; false: the executor has no kernel for the model. */
static bool run(const struct exec_class *class, struct model *m, const struct program *recorded,
                float *logits)
{
    enum { ROWS = 5, TOKENS = 32 };
    struct err err = {0};
    struct exec_limits limits = {.max_rows = 8,
                                 .max_out = 8,
                                 .n_slots = 1,
                                 .n_blocks = 2,
                                 .block_tokens = TOKENS,
                                 .max_pos = 2 * TOKENS};
    struct program *f;
    struct exec *x;
    struct step *s;
    u32 handle;
    assert_int_equal(prog_group(&f, recorded, class->rules, class->n_rules, &err), 0);
    assert_int_equal(class->open(&x, class, m->net, &limits, 2, &err), 0);
    assert_int_equal(model_place(m, x, NULL, NULL, &err), 0);
    int rc = class->load(x, f, &handle, &err);
    if (!rc) {
        assert_int_equal(step_open(&s, m->net, &limits, &err), 0);
        for (u32 i = 0; i < 2 && i < s->table_len; i++) s->tables[i] = i;
        step_reset(s);
        assert_true(step_edit(s, EDIT_ZERO_STATE, 0, 0));
        for (u32 i = 0; i < ROWS; i++)
            assert_true(step_add(s, (struct row){(i32)(7 * i + 3), 0, i, ROW_D}, true));
        step_prepare(s);
        rc = class->submit(x, handle, s, &err);
        if (!rc) rc = class->wait(x, &err);
        struct operand what = {f->logits, 0, m->hp.n_vocab};
        if (!rc) rc = class->read(x, handle, what, 0, ROWS, logits, &err);
        step_close(s);
    }
    class->close(x);
    prog_close(f);
    if (rc && rc != FLETCH_E_UNSUPPORTED) fail_msg("%s", err.text);
    return !rc;
}

/* A model in three other orders on an executor; false: that has no kernel for it. */
static bool orders_have_the_same_bits(const struct exec_class *class, const char *path)
{
    struct err err = {0};
    struct profile profile;
    struct source *s;
    struct model *m;
    assert_int_equal(engine_profile(&profile, class, NULL, &err), 0);
    assert_int_equal(source_open(&s, path, &err), 0);
    assert_int_equal(model_open(&m, s, profile, &err), 0);
    size_t size = (size_t)8 * m->hp.n_vocab;
    float *want = calloc(2 * size, sizeof *want), *got = want + size;
    u32 *from = calloc(m->trunk->n_ops, sizeof *from);
    bool ran = run(class, m, m->trunk, want);
    for (u32 k = 0; k < 3 && ran; k++) {
        struct program q;
        shuffle(&q, m->trunk, from);
        assert_true(run(class, m, &q, got));
        if (memcmp(got, want, size * sizeof *got)) fail_msg("%s: %s", class->name, path);
        free_shuffled(&q);
    }
    free(from);
    free(want);
    model_close(m);
    return ran;
}

/* All golden models; and of the zoo's, because golden ones are too narrow for some kernels. */
static void other_orders_have_the_same_bits(void **state)
{
    (void)state;
    static const char *const zoo[] = {"zoo/tiny/llama.gguf", "zoo/tiny/qwen3moe.gguf",
                                      "zoo/tiny/deepseek2.gguf", "zoo/tiny/rwkv7.gguf"};
    const struct exec_class *const classes[] = {cpu_class("generic"), gpu_class("emu")};
    for (size_t c = 0; c < ARRAY_LEN(classes); c++) {
        char **names = golden_list();
        u32 n = 0, n_golden = 0;
        for (size_t i = 0; i < ARRAY_LEN(zoo); i++)
            assert_true(orders_have_the_same_bits(classes[c], zoo[i]));
        for (; names[n_golden]; n_golden++) {
            struct golden g;
            golden_open(&g, names[n_golden]);
            n += orders_have_the_same_bits(classes[c], g.model);
            golden_close(&g);
        }
        print_message("%s: %u of %u golden models\n", classes[c]->name, n, n_golden);
        assert_true(c ? n > n_golden / 4 : n == n_golden);
        golden_list_free(names);
    }
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_norm_and_up_to_three_matmuls_are_a_group),
        TEST(another_reader_keeps_a_norm_out),
        TEST(gate_and_up_are_told_apart),
        TEST(roles_may_be_absent),
        TEST(lerps_and_products_are_gathered),
        TEST(a_path_out_and_back_makes_no_group),
        TEST(a_feature_keeps_the_op_out),
        cmocka_unit_test(roles_take_listed_features_only),
        cmocka_unit_test(rules_refuse_features_that_they_do_not_list),
        cmocka_unit_test(blocks_become_few_groups),
        cmocka_unit_test(any_order_gives_the_same_groups),
        cmocka_unit_test(other_orders_have_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
