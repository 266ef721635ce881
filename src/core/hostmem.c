#include "core/hostmem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "base/os.h"

/* Weights in pages of this size read a tenth faster. */
enum { HUGE_PAGE = 2 << 20 };

static u64 row_bytes(const struct hostmem *h, u32 layer)
{
    return h->rows[layer].bytes;
}

int hostmem_open(struct hostmem *h, const struct exec_class *class, const struct net *net,
                 const struct exec_limits *limits, struct err *err)
{
    h->base.class = class;
    h->net = net;
    h->limits = *limits;
    h->rows = calloc(net->n_kv + 1, sizeof *h->rows);
    for (u32 i = 0; h->rows && i < net->n_kv; i++) h->rows[i] = exec_kv_row(net, i);
    h->kv = calloc(net->n_kv + 1, sizeof *h->kv);
    h->state = calloc(net->n_states + 1, sizeof *h->state);
    h->sample_z = hostmem_alloc((u64)HOSTMEM_LANES * net->n_vocab * sizeof *h->sample_z);
    h->sample_order = hostmem_alloc((u64)HOSTMEM_LANES * net->n_vocab * sizeof *h->sample_order);
    bool ok = h->rows && h->kv && h->state && h->sample_z && h->sample_order;
    u64 n_tokens = (u64)limits->n_blocks * limits->block_tokens;
    for (u32 i = 0; ok && i < net->n_kv; i++)
        ok = (h->kv[i] = calloc(n_tokens, row_bytes(h, i))) != NULL;
    for (u32 i = 0; ok && i < net->n_states; i++)
        ok = (h->state[i] =
                  calloc((size_t)limits->n_slots * net->states[i].width, sizeof(float))) != NULL;
    return ok ? 0 : err_nomem(err, "the cache");
}

void hostmem_close(struct hostmem *h)
{
    for (u32 i = 0; h->kv && i < h->net->n_kv; i++) free(h->kv[i]);
    for (u32 i = 0; h->state && i < h->net->n_states; i++) free(h->state[i]);
    for (u32 i = 0; i < h->n_programs; i++) {
        free(h->programs[i].mem[ROWS_T]);
        free(h->programs[i].mem[ROWS_R]);
    }
    free(h->rows);
    free(h->kv);
    free(h->state);
    free(h->sample_z);
    free(h->sample_order);
}

void *hostmem_alloc(u64 n)
{
    u64 up;
    const size_t align = n >= HUGE_PAGE ? HUGE_PAGE : 64;
    void *p = ck_align_up(n ? n : 1, align, &up) ? aligned_alloc(align, up) : NULL;
    if (p && align == HUGE_PAGE) os_want_huge_pages(p, up);
    return p;
}

static u32 room_of(const struct hostmem *h, enum rows rows)
{
    return rows == ROWS_T ? h->limits.max_rows : h->limits.max_out;
}

int hostmem_load(struct hostmem *h, const struct program *p, u32 *handle, struct err *err)
{
    CHECK(h->n_programs < HOSTMEM_MAX_PROGRAMS);
    struct hostmem_program *prog = &h->programs[h->n_programs];
    *handle = h->n_programs++;
    prog->p = p;
    for (enum rows rows = ROWS_T; rows <= ROWS_R; rows++) {
        u64 bytes = p->n_cols[rows] * room_of(h, rows) * sizeof(float);
        prog->mem[rows] = hostmem_alloc(bytes);
        if (prog->mem[rows]) memset(prog->mem[rows], 0, bytes);
    }
    return prog->mem[ROWS_T] && prog->mem[ROWS_R] ? 0 : err_nomem(err, "the activations");
}

u64 hostmem_bytes(const struct program *p, const struct exec_limits *limits)
{
    u64 sampling = (u64)HOSTMEM_LANES * p->net->n_vocab * 2;
    return (p->n_cols[ROWS_T] * limits->max_rows + p->n_cols[ROWS_R] * limits->max_out + sampling) *
           sizeof(float);
}

/* ---- a step ---- */

static void edit(struct hostmem *h, const struct step_edit *e)
{
    if (e->kind == EDIT_COPY_BLOCK) {
        for (u32 i = 0; i < h->net->n_kv; i++) {
            u64 n = row_bytes(h, i) * h->limits.block_tokens;
            memcpy(h->kv[i] + e->dst * n, h->kv[i] + e->src * n, n);
        }
        return;
    }
    for (u32 i = 0; i < h->net->n_states; i++) {
        size_t n = h->net->states[i].width * sizeof(float);
        if (e->kind == EDIT_COPY_STATE)
            memcpy(hostmem_state(h, i, e->dst), hostmem_state(h, i, e->src), n);
        else
            memset(hostmem_state(h, i, e->dst), 0, n);
    }
}

void hostmem_edit(struct hostmem *h, const struct step *s)
{
    for (u32 i = 0; i < s->n_edits; i++) edit(h, &s->edits[i]);
}

float *hostmem_row(const struct hostmem *h, u32 handle, struct operand o, u32 row)
{
    const struct hostmem_program *prog = &h->programs[handle];
    const struct buffer *b = &prog->p->bufs[o.buf];
    return prog->mem[b->rows] + b->place * room_of(h, b->rows) + (size_t)row * b->width + o.col;
}

u32 hostmem_token(const struct hostmem *h, u32 handle, const struct step *s, u32 t)
{
    i32 token = s->rows[t].token;
    const struct operand sampled = {h->programs[handle].p->sampled, 0, 1};
    if (token < 0) memcpy(&token, hostmem_row(h, handle, sampled, (u32)~token), sizeof token);
    return token < 0 ? 0 : (u32)token; /* it chose none: whoever asked for that will know */
}

u8 *hostmem_kv_row(const struct hostmem *h, const struct step *s, u32 layer, u32 slot, u32 pos)
{
    u32 per = h->limits.block_tokens;
    u32 block = s->tables[(size_t)slot * s->table_len + pos / per];
    return h->kv[layer] + ((u64)block * per + pos % per) * row_bytes(h, layer);
}

const u8 *hostmem_kv_at(const struct kv_row *row, u32 part, const u8 *cached, u32 col)
{
    u64 skip = 0;
    CHECK(quant_bytes(row->part[part].type, col, &skip));
    return cached + row->part[part].at + skip;
}

void hostmem_rotate(float *x, u32 n)
{
    for (u32 half = 1; half < n; half *= 2)
        for (u32 i = 0; i < n; i += 2 * half)
            for (u32 j = i; j < i + half; j++) {
                float a = x[j], b = x[j + half];
                x[j] = a + b;
                x[j + half] = a - b;
            }
    float scale = 1 / sqrtf((float)n);
    for (u32 i = 0; i < n; i++) x[i] *= scale;
}

static void put(enum qtype type, const float *x, u8 *dst, u32 n)
{
    if (type == QT_F32) {
        memcpy(dst, x, n * sizeof *x);
    } else if (type == QT_F16) {
        for (u32 i = 0; i < n; i++) {
            u16 half = half_from_float(x[i]);
            memcpy(dst + 2 * (size_t)i, &half, sizeof half);
        }
    } else if (!quant_encode(type, x, dst, n)) {
        const struct quant_info *q = quant_info(type);
        for (u32 i = 0; i < n; i += q->blk, dst += q->bytes) { /* its scale comes first */
            const u16 not_a_number = 0x7e00; /* an infinite score would hide the row */
            memcpy(dst, &not_a_number, sizeof not_a_number);
        }
    }
}

void hostmem_kv_put(const struct kv_row *row, u32 part, u8 *cached, u32 col, const float *x, u32 n)
{
    float turned[HOSTMEM_MAX_HEAD];
    if (part == 0 && row->rotated) {
        memcpy(turned, x, n * sizeof *turned);
        hostmem_rotate(turned, n);
        x = turned;
    }
    put(row->part[part].type, x, cached + (hostmem_kv_at(row, part, cached, col) - cached), n);
}

void hostmem_kv_store(const struct hostmem *h, u32 handle, const struct step *s,
                      const struct op *op, u32 t)
{
    const struct kv_row *l = &h->rows[op->p.attn.kv];
    const struct row *r = &s->rows[t];
    u8 *to = hostmem_kv_row(h, s, op->p.attn.kv, r->slot, r->pos);
    const float *k = hostmem_row(h, handle, op->in[0], t);
    const float *second =
        op->n_in > 1 ? hostmem_row(h, handle, op->in[1], t) : k + l->part[0].width;
    u32 n = l->rotated ? l->rotated : l->part[0].width;
    for (u32 i = 0; i < l->part[0].width; i += n) hostmem_kv_put(l, 0, to, i, k + i, n);
    hostmem_kv_put(l, 1, to, 0, second, l->part[1].width);
}

float *hostmem_state(const struct hostmem *h, u32 state, u32 slot)
{
    return h->state[state] + (size_t)slot * h->net->states[state].width;
}

int hostmem_wait(struct exec *x, struct err *err)
{
    (void)x;
    (void)err;
    return 0;
}

static size_t check_rows(const struct hostmem *h, u32 handle, struct operand o, u32 row, u32 n_rows)
{
    const struct buffer *b = &h->programs[handle].p->bufs[o.buf];
    CHECK(row + n_rows <= room_of(h, b->rows));
    return b->width;
}

int hostmem_read(struct exec *x, u32 handle, struct operand what, u32 row, u32 n_rows, float *dst,
                 struct err *err)
{
    (void)err;
    const struct hostmem *h = (const struct hostmem *)x;
    size_t pitch = check_rows(h, handle, what, row, n_rows);
    const float *from = hostmem_row(h, handle, what, row);
    for (u32 i = 0; i < n_rows; i++)
        memcpy(dst + (size_t)i * what.width, from + i * pitch, what.width * sizeof *dst);
    return 0;
}

int hostmem_write(struct exec *x, u32 handle, struct operand what, u32 row, u32 n_rows,
                  const float *src, struct err *err)
{
    (void)err;
    const struct hostmem *h = (const struct hostmem *)x;
    size_t pitch = check_rows(h, handle, what, row, n_rows);
    float *to = hostmem_row(h, handle, what, row);
    for (u32 i = 0; i < n_rows; i++)
        memcpy(to + i * pitch, src + (size_t)i * what.width, what.width * sizeof *src);
    return 0;
}

int hostmem_move(struct exec *x, enum exec_part part, u32 index, u8 *dst, const u8 *src,
                 struct err *err)
{
    (void)err;
    const struct hostmem *h = (const struct hostmem *)x;
    u32 n_layers = part == PART_BLOCK ? h->net->n_kv : h->net->n_states;
    for (u32 i = 0; i < n_layers; i++) {
        u64 n = part == PART_BLOCK ? row_bytes(h, i) * h->limits.block_tokens
                                   : h->net->states[i].width * sizeof(float);
        u8 *at =
            part == PART_BLOCK ? h->kv[i] + index * n : (u8 *)(void *)hostmem_state(h, i, index);
        if (dst)
            memcpy(dst, at, n), dst += n;
        else
            memcpy(at, src, n), src += n;
    }
    return 0;
}

/* ---- routing ---- */

/* The highest of the scores that are not out, the lower id of equals: n when all are out. */
static u32 best(const float *score, const bool *out, u32 n)
{
    u32 b = n;
    for (u32 i = 0; i < n; i++)
        if (!out[i] && (b == n || score[i] > score[b])) b = i;
    return b;
}

/* Any number orders itself among others, NaN does not: it counts as the lowest. */
static float score_of(float v)
{
    return isnan(v) ? -INFINITY : v;
}

/* Leaves the n_groups_used groups whose two best scores sum highest; the others are out. */
static void keep_best_groups(const struct op *op, const float *score, bool *out)
{
    u32 n = op->p.route.n_groups, size = op->p.route.n_experts / n;
    float group[HOSTMEM_MAX_EXPERTS];
    bool kept[HOSTMEM_MAX_EXPERTS] = {false};
    for (u32 g = 0; g < n; g++) {
        float first = -INFINITY, second = -INFINITY;
        for (u32 i = g * size; i < (g + 1) * size; i++) {
            second = fmaxf(second, fminf(first, score[i]));
            first = fmaxf(first, score[i]);
        }
        group[g] = score_of(first + second);
    }
    for (u32 j = 0; j < op->p.route.n_groups_used; j++) kept[best(group, kept, n)] = true;
    for (u32 i = 0; i < op->p.route.n_experts; i++) out[i] = !kept[i / size];
}

static void softmax(const float *z, float *p, u32 n)
{
    float top = -INFINITY;
    double sum = 0;
    for (u32 i = 0; i < n; i++) top = fmaxf(top, z[i]);
    for (u32 i = 0; i < n; i++) sum += (double)(p[i] = num_exp(z[i] - top));
    for (u32 i = 0; i < n; i++) p[i] = (float)((double)p[i] / sum);
}

void hostmem_route(const struct op *op, const float *z, const float *bias, const float *scales,
                   i32 *ids, float *weights)
{
    u32 n = op->p.route.n_experts, k = op->p.route.n_used;
    float p[HOSTMEM_MAX_EXPERTS], pick[HOSTMEM_MAX_EXPERTS], sum = 0;
    bool out[HOSTMEM_MAX_EXPERTS] = {false};
    if (op->p.route.kind == ROUTE_SOFTMAX)
        softmax(z, p, n);
    else
        for (u32 i = 0; i < n; i++) p[i] = num_sigmoid(z[i]);
    for (u32 i = 0; i < n; i++) pick[i] = score_of(p[i] + (bias ? bias[i] : 0));
    if (op->p.route.n_groups > 1) keep_best_groups(op, pick, out);
    for (u32 j = 0; j < k; j++) {
        u32 e = best(pick, out, n);
        out[e] = true;
        ids[j] = (i32)e;
        sum += weights[j] = p[e];
    }
    for (u32 j = 0; j < k; j++) {
        if (op->p.route.normalise) weights[j] /= fmaxf(sum, op->p.route.floor);
        weights[j] *= op->p.route.scale;
        if (scales) weights[j] *= scales[ids[j]];
    }
}

/* ---- sampling ---- */

static void sample_one(const struct hostmem *h, u32 handle, const struct step *s,
                       const struct op *op, u32 i, u32 lane)
{
    const struct sample_row *row = &s->sample[i];
    size_t n_vocab = op->in[0].width;
    struct sample_in in = {.logits = hostmem_row(h, handle, op->in[0], i),
                           .n_vocab = op->in[0].width,
                           .position = s->rows[s->out_rows[i]].pos + 1 + row->ahead,
                           .edits = s->sample_edits + row->first_edit,
                           .mask = s->masks + (size_t)i * step_mask_words(s->net),
                           .weigh = h->weigh};
    struct sample_scratch x = {h->sample_z + lane * n_vocab, h->sample_order + lane * n_vocab};
    i32 token = sample_token(row, &in, &x);
    memcpy(hostmem_row(h, handle, op->out[0], i), &token, sizeof token);
    if (row->n_logprobs && token >= 0)
        sample_logprobs(&in, token, row->n_logprobs - 1, hostmem_row(h, handle, op->out[1], i),
                        (i32 *)(void *)hostmem_row(h, handle, op->out[2], i));
}

void hostmem_sample(const struct hostmem *h, u32 handle, const struct step *s, const struct op *op,
                    u32 member, u32 n_members)
{
    n_members = MIN(n_members, (u32)HOSTMEM_LANES);
    for (u32 i = member; member < n_members && i < s->n_out; i += n_members)
        sample_one(h, handle, s, op, i, member);
}
