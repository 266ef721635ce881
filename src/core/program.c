#include "core/program.h"

#include <stdlib.h>
#include <string.h>

static bool grow(void **p, u32 *cap, u32 need, size_t size)
{
    if (need <= *cap) return true;
    u32 want = MAX(MAX(*cap * 2, 32), need);
    void *q = realloc(*p, (size_t)want * size);
    if (!q) return false;
    *p = q;
    *cap = want;
    return true;
}

const struct cache_info cache_info[CACHE_COUNT] = {
#define CACHE_ROW(id, name, key, value) {#name, QT_##key, QT_##value},
    CACHE_TABLE(CACHE_ROW)
#undef CACHE_ROW
};

int net_open(struct net **out, struct err *err)
{
    *out = calloc(1, sizeof **out);
    if (!*out) return err_nomem(err, "the model");
    (*out)->profile.kv = CACHE_F16;
    return 0;
}

void net_close(struct net *net)
{
    if (!net) return;
    free(net->weights);
    free(net->states);
    arena_free(&net->arena);
    free(net);
}

struct weight weight_packed(const char *name, enum qtype type, u32 n_in, u32 n_out, u32 n_slices)
{
    u64 row;
    CHECK(quant_bytes(type, n_in, &row));
    return (struct weight){.name = name,
                           .type = type,
                           .n_in = n_in,
                           .n_out = n_out,
                           .n_slices = n_slices,
                           .row_bytes = row,
                           .slice_bytes = row * n_out,
                           .n_bytes = row * n_out * n_slices};
}

u32 net_weight(struct net *net, const struct weight *w)
{
    if (!grow((void **)&net->weights, &net->cap_weights, net->n_weights + 1, sizeof *w)) {
        net->failed = true;
        return NO_WEIGHT;
    }
    net->weights[net->n_weights] = *w;
    return net->n_weights++;
}

u32 net_kv(struct net *net, u32 k_width, u32 v_width)
{
    CHECK(net->n_kv < ARRAY_LEN(net->kv));
    net->kv[net->n_kv] = (struct kv_layer){.k_width = k_width, .v_width = v_width};
    return net->n_kv++;
}

u32 net_state(struct net *net, u32 width)
{
    if (!grow((void **)&net->states, &net->cap_states, net->n_states + 1, sizeof *net->states)) {
        net->failed = true;
        return 0;
    }
    net->states[net->n_states] = (struct state_layer){width};
    return net->n_states++;
}

int prog_open(struct program **out, struct net *net, const char *name, struct err *err)
{
    struct program *p = *out = calloc(1, sizeof *p);
    if (!p) return err_nomem(err, "the program");
    p->net = net;
    p->name = name;
    p->logits = p->hidden = p->sampled = p->logprobs = p->top = NO_BUF;
    p->layer = -1;
    return 0;
}

void prog_close(struct program *p)
{
    if (!p) return;
    if (!p->borrows) free(p->ops);
    free(p->bufs);
    free(p->groups);
    free((void *)p->members);
    free(p);
}

/* ---- recording ---- */

/* Once recording has given up, widths mean nothing. */
#define SHAPE(cond) CHECK(p->net->failed || (cond))

struct operand prog_buf(struct program *p, const char *name, u32 width)
{
    SHAPE(width > 0);
    if (!grow((void **)&p->bufs, &p->cap_bufs, p->n_bufs + 1, sizeof *p->bufs)) {
        p->net->failed = true;
        return (struct operand){0, 0, width};
    }
    p->bufs[p->n_bufs] = (struct buffer){.name = name, .width = width};
    return (struct operand){p->n_bufs++, 0, width};
}

struct operand prog_cols(const struct program *p, struct operand x, u32 col, u32 width)
{
    SHAPE(col + width <= x.width);
    return (struct operand){x.buf, x.col + col, width};
}

#define COUNTED(type, ...) sizeof((type[]){__VA_ARGS__}) / sizeof(type)
#define IN(...)            .n_in = COUNTED(struct operand, __VA_ARGS__), .in = {__VA_ARGS__}
#define WEIGHTS(...)       .n_w = COUNTED(u32, __VA_ARGS__), .w = {__VA_ARGS__}

static void record(struct program *p, struct op op)
{
    if (p->net->failed || !grow((void **)&p->ops, &p->cap_ops, p->n_ops + 1, sizeof *p->ops)) {
        p->net->failed = true;
        return;
    }
    op.layer = p->layer;
    p->ops[p->n_ops++] = op;
}

static void record_to(struct program *p, struct operand y, struct op op)
{
    op.out[op.n_out++] = y;
    record(p, op);
}

/* To a new buffer, with the rows of what the op reads first. */
static struct operand record_new(struct program *p, const char *name, u32 width, struct op op)
{
    struct operand y = prog_buf(p, name, width);
    if (op.n_in && !p->net->failed) p->bufs[y.buf].rows = p->bufs[op.in[0].buf].rows;
    record_to(p, y, op);
    return y;
}

/* Sticky failure leaves no weights to look at. */
static const struct weight *wt(const struct program *p, u32 w)
{
    static const struct weight none;
    if (p->net->failed || w == NO_WEIGHT) return &none;
    CHECK(w < p->net->n_weights);
    return &p->net->weights[w];
}

static bool has_width(const struct program *p, u32 w, u32 width)
{
    return w == NO_WEIGHT || p->net->failed || wt(p, w)->n_in == width;
}

struct operand prog_embed(struct program *p, u32 w)
{
    return record_new(p, "embed", MAX(wt(p, w)->n_in, 1),
                      (struct op){.kind = OP_EMBED, WEIGHTS(w)});
}

struct operand prog_import_hidden(struct program *p, u32 width)
{
    p->imports_hidden = true;
    return record_new(p, "hidden_in", width, (struct op){.kind = OP_IMPORT_HIDDEN});
}

void prog_norm_to(struct program *p, struct operand out, struct operand x, struct norm_spec spec)
{
    u32 group = spec.group ? spec.group : x.width;
    SHAPE(out.width == x.width && x.width % group == 0);
    SHAPE(has_width(p, spec.w, x.width) || has_width(p, spec.w, group));
    SHAPE(has_width(p, spec.b, x.width));
    record_to(p, out,
              (struct op){.kind = OP_NORM,
                          IN(x),
                          WEIGHTS(spec.w, spec.b),
                          .p.norm = {spec.kind, group, spec.eps}});
}

struct operand prog_norm(struct program *p, const char *name, struct operand x,
                         struct norm_spec spec)
{
    struct operand out = prog_buf(p, name, x.width);
    prog_norm_to(p, out, x, spec);
    return out;
}

struct operand prog_matmul(struct program *p, const char *name, struct operand x, u32 w, u32 bias)
{
    const struct weight *m = wt(p, w);
    SHAPE(m->n_in == x.width && m->n_slices == 1);
    SHAPE(has_width(p, bias, m->n_out));
    return record_new(p, name, MAX(m->n_out, 1),
                      (struct op){.kind = OP_MATMUL, IN(x), WEIGHTS(w, bias)});
}

void prog_matmul_heads_to(struct program *p, struct operand out, u32 out_stride, struct operand x,
                          u32 in_stride, u32 w)
{
    const struct weight *m = wt(p, w);
    SHAPE(((in_stride ? m->n_in <= in_stride : m->n_in <= x.width) && m->n_out <= out_stride &&
           m->n_slices * in_stride <= x.width + in_stride - m->n_in &&
           m->n_slices * out_stride <= out.width + out_stride - m->n_out));
    record_to(p, out,
              (struct op){.kind = OP_MATMUL_HEADS,
                          IN(x),
                          WEIGHTS(w),
                          .p.heads = {m->n_slices, m->n_in, m->n_out, in_stride, out_stride}});
}

struct operand prog_matmul_experts(struct program *p, const char *name, struct operand x,
                                   struct operand ids, u32 w, bool per_slot)
{
    const struct weight *m = wt(p, w);
    SHAPE(x.width == m->n_in * (per_slot ? ids.width : 1));
    return record_new(p, name, MAX(m->n_out * ids.width, 1),
                      (struct op){.kind = OP_MATMUL_EXPERTS,
                                  IN(x, ids),
                                  WEIGHTS(w),
                                  .p.experts = {ids.width, m->n_in, m->n_out, per_slot}});
}

struct operand prog_add_experts(struct program *p, const char *name, struct operand x,
                                struct operand ids, u32 b)
{
    u32 n = x.width / ids.width;
    SHAPE(has_width(p, b, n) && x.width % ids.width == 0);
    return record_new(p, name, x.width,
                      (struct op){.kind = OP_ADD_EXPERTS,
                                  IN(x, ids),
                                  WEIGHTS(b),
                                  .p.experts = {.n_used = ids.width, .n_out = n}});
}

struct operand prog_add(struct program *p, const char *name, struct operand a, struct operand b)
{
    SHAPE(a.width == b.width);
    return record_new(p, name, a.width, (struct op){.kind = OP_ADD, IN(a, b)});
}

struct operand prog_mul(struct program *p, const char *name, struct operand a, struct operand b)
{
    return prog_mul_strided(p, name, a, b, a.width, a.width);
}

struct operand prog_mul_strided(struct program *p, const char *name, struct operand a,
                                struct operand b, u32 group, u32 stride)
{
    SHAPE(group && a.width % group == 0 && (a.width / group - 1) * stride + group <= b.width);
    return record_new(
        p, name, a.width,
        (struct op){.kind = OP_MUL, IN(a, b), WEIGHTS(NO_WEIGHT), .p.mul = {group, stride, false}});
}

struct operand prog_mul_heads(struct program *p, const char *name, struct operand a,
                              struct operand b)
{
    SHAPE(a.width % b.width == 0);
    return record_new(p, name, a.width,
                      (struct op){.kind = OP_MUL,
                                  IN(a, b),
                                  WEIGHTS(NO_WEIGHT),
                                  .p.mul = {a.width / MAX(b.width, 1), 1, true}});
}

struct operand prog_mul_heads_weight(struct program *p, const char *name, struct operand a, u32 w)
{
    u32 n = MAX(wt(p, w)->n_in, 1);
    SHAPE(a.width % n == 0);
    return record_new(
        p, name, a.width,
        (struct op){.kind = OP_MUL, IN(a), WEIGHTS(w), .p.mul = {MAX(a.width / n, 1), 1, true}});
}

struct operand prog_mul_weight(struct program *p, const char *name, struct operand a, u32 w)
{
    SHAPE(has_width(p, w, a.width));
    return record_new(
        p, name, a.width,
        (struct op){.kind = OP_MUL, IN(a), WEIGHTS(w), .p.mul = {a.width, a.width, false}});
}

struct operand prog_add_weight(struct program *p, const char *name, struct operand a, u32 w)
{
    SHAPE(has_width(p, w, a.width));
    return record_new(p, name, a.width, (struct op){.kind = OP_ADD, IN(a), WEIGHTS(w)});
}

struct operand prog_lerp(struct program *p, const char *name, struct operand a, struct operand b,
                         struct operand m)
{
    SHAPE(a.width == m.width && a.width == b.width);
    return record_new(p, name, a.width,
                      (struct op){.kind = OP_LERP, IN(a, b, m), WEIGHTS(NO_WEIGHT)});
}

struct operand prog_lerp_weight(struct program *p, const char *name, struct operand a,
                                struct operand b, u32 w, u32 row)
{
    SHAPE(has_width(p, w, a.width) && a.width == b.width);
    SHAPE(row < wt(p, w)->n_out);
    return record_new(p, name, a.width,
                      (struct op){.kind = OP_LERP, IN(a, b), WEIGHTS(w), .p.lerp = {row}});
}

struct operand prog_act(struct program *p, const char *name, enum act_kind kind, struct operand x)
{
    return record_new(p, name, x.width, (struct op){.kind = OP_ACT, IN(x), .p.act = {kind}});
}

struct operand prog_glu(struct program *p, const char *name, struct operand g, struct operand u)
{
    return prog_glu_by(p, name, g, u, (struct glu_spec){.kind = GLU_SILU});
}

struct operand prog_glu_by(struct program *p, const char *name, struct operand g, struct operand u,
                           struct glu_spec spec)
{
    SHAPE(g.width == u.width);
    return record_new(
        p, name, g.width,
        (struct op){.kind = OP_GLU, IN(g, u), .p.glu = {spec.kind, spec.alpha, spec.limit}});
}

void prog_rope_by_to(struct program *p, enum rope_kind kind, u32 table, u32 n_heads, u32 width,
                     struct operand out, u32 out_stride, struct operand x, u32 in_stride)
{
    SHAPE(table < NET_ROPES);
    u32 n_rot = p->net->rope[table].n_rot;
    SHAPE(n_rot > 0 && n_rot % 2 == 0 && n_rot <= width);
    SHAPE((n_heads - 1) * in_stride + width <= x.width);
    SHAPE((n_heads - 1) * out_stride + width <= out.width);
    record_to(p, out,
              (struct op){.kind = OP_ROPE,
                          IN(x),
                          .p.rope = {kind, n_heads, width, n_rot, in_stride, out_stride, table}});
}

void prog_rope_to(struct program *p, enum rope_kind kind, u32 n_heads, u32 width,
                  struct operand out, u32 out_stride, struct operand x, u32 in_stride)
{
    prog_rope_by_to(p, kind, 0, n_heads, width, out, out_stride, x, in_stride);
}

struct operand prog_rope_by(struct program *p, const char *name, enum rope_kind kind, u32 table,
                            u32 n_heads, struct operand x)
{
    struct operand out = prog_buf(p, name, x.width);
    u32 width = x.width / n_heads;
    prog_rope_by_to(p, kind, table, n_heads, width, out, width, x, width);
    return out;
}

struct operand prog_rope(struct program *p, const char *name, enum rope_kind kind, u32 n_heads,
                         struct operand x)
{
    return prog_rope_by(p, name, kind, 0, n_heads, x);
}

void prog_kv_store(struct program *p, u32 kv, struct operand k, struct operand v)
{
    SHAPE(k.width == p->net->kv[kv].k_width);
    SHAPE(v.buf == NO_BUF ? p->net->kv[kv].v_width == 0 : v.width == p->net->kv[kv].v_width);
    struct op op = {.kind = OP_KV_STORE, IN(k, v), .p.attn.kv = kv};
    if (v.buf == NO_BUF) op.n_in = 1, op.in[1] = (struct operand){0};
    record(p, op);
}

struct operand prog_attention_by(struct program *p, const char *name, u32 kv, u32 n_heads,
                                 u32 n_kv_heads, struct operand q, struct attend_spec spec)
{
    struct kv_layer l = p->net->kv[kv];
    u32 hd = l.k_width / n_kv_heads, vd = l.v_width / n_kv_heads;
    SHAPE(n_heads % n_kv_heads == 0 && q.width == n_heads * hd);
    SHAPE(has_width(p, spec.sinks, n_heads) && spec.softcap >= 0);
    p->net->kv[kv].head = hd;
    struct op op = {.kind = OP_ATTENTION,
                    IN(q),
                    .p.attn = {.kv = kv,
                               .n_heads = n_heads,
                               .n_kv_heads = n_kv_heads,
                               .k_width = hd,
                               .v_width = vd,
                               .scale = spec.scale,
                               .window = spec.window,
                               .chunked = spec.chunked,
                               .softcap = spec.softcap}};
    if (spec.sinks != NO_WEIGHT) op.w[op.n_w++] = spec.sinks;
    return record_new(p, name, n_heads * vd, op);
}

struct operand prog_attention(struct program *p, const char *name, u32 kv, u32 n_heads,
                              u32 n_kv_heads, struct operand q, float scale)
{
    return prog_attention_by(p, name, kv, n_heads, n_kv_heads, q,
                             (struct attend_spec){.scale = scale, .sinks = NO_WEIGHT});
}

struct operand prog_latent_attention(struct program *p, const char *name, u32 kv, u32 n_heads,
                                     u32 c_width, struct operand q, float scale)
{
    u32 w = p->net->kv[kv].k_width;
    SHAPE(q.width == n_heads * w && c_width <= w);
    p->net->kv[kv].n_rope = w - c_width;
    return record_new(p, name, n_heads * c_width,
                      (struct op){.kind = OP_LATENT_ATTENTION,
                                  IN(q),
                                  .p.attn = {.kv = kv,
                                             .n_heads = n_heads,
                                             .n_kv_heads = 1,
                                             .k_width = w,
                                             .v_width = c_width,
                                             .scale = scale}});
}

void prog_route(struct program *p, struct operand z, struct route_spec spec, struct operand *ids,
                struct operand *weights)
{
    SHAPE(spec.n_used >= 1 && spec.n_used <= z.width);
    SHAPE(has_width(p, spec.bias, z.width) && has_width(p, spec.scales, z.width));
    SHAPE(spec.n_groups <= 1 ||
          (z.width % spec.n_groups == 0 && spec.n_groups_used <= spec.n_groups &&
           spec.n_used <= z.width / spec.n_groups * spec.n_groups_used));
    *ids = prog_buf(p, "expert_ids", spec.n_used);
    *weights = prog_buf(p, "expert_weights", spec.n_used);
    if (!p->net->failed) p->bufs[ids->buf].is_int = true;
    record(p, (struct op){.kind = OP_ROUTE,
                          IN(z),
                          WEIGHTS(spec.bias, spec.scales),
                          .n_out = 2,
                          .out = {*ids, *weights},
                          .p.route = {.kind = spec.kind,
                                      .n_experts = z.width,
                                      .n_used = spec.n_used,
                                      .n_groups = MAX(spec.n_groups, 1),
                                      .n_groups_used = MAX(spec.n_groups_used, 1),
                                      .normalise = spec.normalise,
                                      .floor = spec.floor,
                                      .scale = spec.scale}});
}

struct operand prog_combine_experts(struct program *p, const char *name, struct operand x,
                                    struct operand weights)
{
    u32 n = x.width / weights.width;
    SHAPE(x.width % weights.width == 0);
    return record_new(p, name, n,
                      (struct op){.kind = OP_COMBINE_EXPERTS,
                                  IN(x, weights),
                                  .p.experts = {.n_used = weights.width, .n_out = n}});
}

struct operand prog_token_shift(struct program *p, const char *name, struct operand x, u32 state)
{
    SHAPE(p->net->states[state].width == x.width);
    return record_new(p, name, x.width,
                      (struct op){.kind = OP_TOKEN_SHIFT, IN(x), .p.rec.state = state});
}

struct operand prog_k_control(struct program *p, const char *name, struct operand k,
                              struct operand a, u32 k_a)
{
    SHAPE(has_width(p, k_a, k.width) && k.width == a.width);
    return record_new(p, name, k.width, (struct op){.kind = OP_K_CONTROL, IN(k, a), WEIGHTS(k_a)});
}

struct operand prog_wkv7(struct program *p, const char *name, u32 state, u32 head, struct operand r,
                         struct operand w, struct operand k, struct operand v, struct operand kk,
                         struct operand a)
{
    return prog_recurrence(p, name,
                           (struct recurrence_spec){.kind = RECURRENCE_REMOVE,
                                                    .state = state,
                                                    .head = head,
                                                    .n_heads = MAX(r.width / head, 1),
                                                    .r = r,
                                                    .w = w,
                                                    .k = k,
                                                    .v = v,
                                                    .kk = kk,
                                                    .a = a});
}

struct operand prog_recurrence(struct program *p, const char *name, struct recurrence_spec s)
{
    bool removes = s.kind == RECURRENCE_REMOVE;
    u32 n_keys = s.r.width / s.head, v_head = s.v.width / s.n_heads;
    SHAPE(n_keys && v_head && s.r.width % s.head == 0 && s.v.width % s.n_heads == 0);
    SHAPE(s.n_heads % n_keys == 0 && s.k.width == s.r.width);
    SHAPE(s.w.width == s.n_heads || s.w.width == s.r.width);
    SHAPE(p->net->states[s.state].width == s.n_heads * s.head * v_head);
    struct op op = {.kind = OP_RECURRENCE,
                    IN(s.r, s.w, s.k, s.v),
                    .p.rec = {.state = s.state,
                              .head = s.head,
                              .n_heads = s.n_heads,
                              .n_key_heads = n_keys,
                              .v_head = v_head,
                              .kind = s.kind,
                              .tiled = s.tiled}};
    if (removes) {
        SHAPE(s.kk.width == s.r.width && s.a.width == s.r.width && n_keys == s.n_heads);
        op.in[op.n_in++] = s.kk;
        op.in[op.n_in++] = s.a;
    } else if (s.b.width) {
        SHAPE(s.b.width == s.n_heads);
        op.in[op.n_in++] = s.b;
    }
    return record_new(p, name, s.v.width, op);
}

struct operand prog_conv(struct program *p, const char *name, struct operand x, u32 state, u32 w,
                         u32 bias)
{
    u32 n_taps = wt(p, w)->n_in / x.width;
    SHAPE(n_taps >= 2 && wt(p, w)->n_in == n_taps * x.width && has_width(p, bias, x.width));
    SHAPE(p->net->states[state].width == (n_taps - 1) * x.width);
    return record_new(
        p, name, x.width,
        (struct op){
            .kind = OP_CONV, IN(x), WEIGHTS(w, bias), .p.rec = {.state = state, .n_taps = n_taps}});
}

struct operand prog_rk_bonus(struct program *p, const char *name, u32 head, struct operand y,
                             struct operand r, struct operand k, struct operand v, u32 r_k)
{
    SHAPE(y.width % head == 0 && has_width(p, r_k, y.width));
    SHAPE(r.width == y.width && k.width == y.width && v.width == y.width);
    return record_new(
        p, name, y.width,
        (struct op){.kind = OP_RK_BONUS, IN(y, r, k, v), WEIGHTS(r_k), .p.rec.head = head});
}

struct operand prog_gather_rows(struct program *p, struct operand x)
{
    struct operand y =
        record_new(p, "gathered", x.width, (struct op){.kind = OP_GATHER_ROWS, IN(x)});
    if (!p->net->failed) p->bufs[y.buf].rows = ROWS_R;
    return y;
}

void prog_sample(struct program *p, struct operand logits)
{
    struct op op = {.kind = OP_SAMPLE,
                    IN(logits),
                    .n_out = 3,
                    .out = {prog_buf(p, "sampled", 1), prog_buf(p, "logprobs", 1 + SAMPLE_MAX_TOP),
                            prog_buf(p, "top", SAMPLE_MAX_TOP)}};
    record(p, op);
    for (u32 i = 0; i < op.n_out && !p->net->failed; i++) {
        p->bufs[op.out[i].buf].rows = ROWS_R;
        p->bufs[op.out[i].buf].is_int = i != 1;
        p->bufs[op.out[i].buf].kept = true;
    }
    p->sampled = op.out[0].buf;
    p->logprobs = op.out[1].buf;
    p->top = op.out[2].buf;
}

u64 prog_op_bytes(const struct program *p, const struct op *op, u32 n_rows)
{
    u64 sum = 0;
    for (u32 i = 0; i < op->n_w; i++) {
        if (op->w[i] == NO_WEIGHT) continue;
        const struct weight *w = &p->net->weights[op->w[i]];
        u64 n = w->n_bytes;
        if (op->kind == OP_EMBED) n = n / w->n_out * n_rows;
        if (op->kind == OP_MATMUL_EXPERTS)
            n = n / w->n_slices * MIN((u64)n_rows * op->p.experts.n_used, w->n_slices);
        sum += n;
    }
    return sum;
}

double prog_op_flops(const struct net *net, const struct op *op)
{
    switch (op->kind) {
    case OP_MATMUL:
    case OP_MATMUL_HEADS:
    case OP_MATMUL_EXPERTS: {
        const struct weight *w = &net->weights[op->w[0]];
        double n = op->kind == OP_MATMUL_EXPERTS ? op->p.experts.n_used : w->n_slices;
        return 2 * n * w->n_in * w->n_out;
    }
    case OP_CONV: return 2.0 * op->out[0].width * op->p.rec.n_taps;
    case OP_RECURRENCE: {
        static const double per_value[] = {
            [RECURRENCE_REMOVE] = 9, [RECURRENCE_DELTA] = 7, [RECURRENCE_PLAIN] = 5};
        return per_value[op->p.rec.kind] * op->out[0].width * op->p.rec.head;
    }
    default: return 0;
    }
}

double prog_op_flops_per_position(const struct op *op)
{
    if (op->kind != OP_ATTENTION && op->kind != OP_LATENT_ATTENTION) return 0;
    return 2.0 * op->p.attn.n_heads * (op->p.attn.k_width + op->p.attn.v_width);
}
