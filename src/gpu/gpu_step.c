#include "gpu/gpu_step.h"

#include <stdlib.h>
#include <string.h>

#include "gpu/args.h"

u32 step_max_tables(u32 rows)
{
    return 64 + rows;
}

u64 step_angles_at(const struct net *net, u32 table, u32 rows)
{
    u64 n = 0;
    for (u32 i = 0; i < table; i++) n += ROUND_UP((u64)rows * (net->rope[i].n_rot / 2), 64);
    return n;
}

void step_layout(struct step_layout *l, const struct program *p, const struct exec_limits *limits,
                 u32 rows)
{
    u64 t = rows, r = MIN(rows, limits->max_out), angles = step_angles_at(p->net, NET_ROPES, rows);
    const u64 words[STEP_PARTS] = {
        [STEP_HEAD] = HEAD_WORDS,
        [STEP_ROWS] = 4 * t,
        [STEP_PREV] = t,
        [STEP_NEXT] = t,
        [STEP_OUT] = r,
        [STEP_ITEMS] = t + 1,
        [STEP_TILES] = 2 * t,
        [STEP_COS] = angles,
        [STEP_SIN] = angles,
        [STEP_TABLES] = 2ull * step_max_tables(rows),
        [STEP_SAMPLE] = SAMPLE_WORDS * r,
        [STEP_HIDDEN] = p->imports_hidden ? t * p->net->d_model : 0,
        [STEP_SAMPLE_EDITS] = r * SAMPLE_MAX_EDITS * SAMPLE_EDIT_WORDS,
        [STEP_MASKS] = r * step_mask_words(p->net),
    };
    u64 at = 0;
    *l = (struct step_layout){.rows = rows, .out_rows = (u32)r};
    for (u32 i = 0; i < STEP_PARTS; i++) {
        if (i == STEP_SAMPLE_EDITS) l->bytes[0] = at;
        l->at[i] = at;
        l->n[i] = words[i] * 4;
        at = (at + l->n[i] + 255) / 256 * 256;
    }
    l->bytes[1] = at;
}

/* ---- order ---- */

int step_order_open(struct step_order *o, const struct exec_limits *limits, struct err *err)
{
    *o = (struct step_order){.row = calloc(limits->max_rows, sizeof *o->row),
                             .at = calloc(limits->max_rows, sizeof *o->at)};
    return o->row && o->at ? 0 : err_nomem(err, "the executor");
}

void step_order_close(struct step_order *o)
{
    free(o->row);
    free(o->at);
}

static bool is_p(const struct step *s, u32 t)
{
    return s->net->profile.bf16 && s->rows[t].cls == ROW_P;
}

static u32 place(struct step_order *o, u32 t, u32 at)
{
    o->row[at] = t;
    o->at[t] = at;
    o->moved |= t != at;
    return at + 1;
}

/* While rows are placed, at[t] of one of class P that has to wait is the next of its sequence. */
void step_order(struct step_order *o, const struct step *s)
{
    enum { NONE = UINT32_MAX };
    u32 n = 0;
    o->moved = false;
    for (u32 t = 0; t < s->n_rows; t++) o->at[t] = NONE;
    for (u32 t = 0; t < s->n_rows; t++)
        if (is_p(s, t) && s->prev[t] >= 0 && is_p(s, (u32)s->prev[t])) o->at[s->prev[t]] = t;
    for (u32 t = 0; t < s->n_rows; t++)
        if (!is_p(s, t)) n = place(o, t, n);
    o->n = s->n_rows;
    o->n_d = n;
    for (u32 t = 0; t < s->n_rows; t++) {
        if (!is_p(s, t) || (s->prev[t] >= 0 && is_p(s, (u32)s->prev[t]))) continue;
        for (u32 r = t, next; r != NONE; r = next) {
            next = o->at[r];
            n = place(o, r, n);
        }
    }
}

/* ---- writing ---- */

/* Rows of n floats in the device's order. */
static void put_floats(const struct step_order *o, float *dst, const float *src, u32 n_rows,
                       size_t n)
{
    if (!o->moved) memcpy(dst, src, n_rows * n * sizeof *dst);
    for (u32 t = 0; o->moved && t < n_rows; t++)
        memcpy(dst + t * n, src + o->row[t] * n, n * sizeof *dst);
}

static void put_rows(const struct step_layout *l, const struct step *s,
                     const struct step_order *order, u8 *dst)
{
    u32 *row = (u32 *)(void *)(dst + l->at[STEP_ROWS]);
    i32 *prev = (i32 *)(void *)(dst + l->at[STEP_PREV]);
    i32 *next = (i32 *)(void *)(dst + l->at[STEP_NEXT]);
    u32 *items = (u32 *)(void *)(dst + l->at[STEP_ITEMS]);
    u32 n_items = 0;
    for (u32 t = 0; t < s->n_rows; t++) next[t] = -1;
    for (u32 t = 0; t < s->n_rows; t++) {
        const struct row *r = &s->rows[order->row[t]];
        const u32 words[4] = {(u32)r->token, r->slot, r->pos, r->cls};
        i32 before = s->prev[order->row[t]];
        memcpy(row + 4 * (size_t)t, words, sizeof words);
        prev[t] = before < 0 ? -1 : (i32)order->at[before];
        if (before >= 0) next[prev[t]] = (i32)t;
        items[t] = n_items;
        n_items += r->pos / SPLIT_TOKENS + 1;
    }
    items[s->n_rows] = n_items;
}

/* Rows of class P that follow each other in a sequence, FLASH_TILE at most; returns how many. */
static u32 put_tiles(const struct step_layout *l, const struct step *s,
                     const struct step_order *order, u8 *dst)
{
    u32 *tile = (u32 *)(void *)(dst + l->at[STEP_TILES]), n = 0;
    for (u32 t = order->n_d; t < s->n_rows; t++) {
        bool follows = t > order->n_d && s->prev[order->row[t]] == (i32)order->row[t - 1];
        if (follows && tile[2 * n - 1] < FLASH_TILE) {
            tile[2 * n - 1]++;
            continue;
        }
        tile[2 * n] = t;
        tile[2 * n + 1] = 1;
        n++;
    }
    return n;
}

static bool put_tables(const struct step_layout *l, const struct step *s,
                       struct step_tables *tables, u8 *dst, u32 *n)
{
    u32 *out = (u32 *)(void *)(dst + l->at[STEP_TABLES]);
    u32 room = step_max_tables(l->rows);
    *n = 0;
    for (u32 t = 0; tables->known && t < s->n_rows; t++) {
        const struct row *r = &s->rows[t];
        size_t base = (size_t)r->slot * tables->len;
        const u32 *now = s->tables + base;
        u32 *known = tables->known + base;
        u32 end = r->pos / s->limits.block_tokens + 1;
        if (s->prev[t] >= 0) { /* its earlier row has looked at all but the last */
            known += end - 1, now += end - 1, base += end - 1;
            end = 1;
        }
        if (memcmp(known, now, end * sizeof *now) == 0) continue;
        for (u32 i = 0; i < end; i++) {
            if (known[i] == now[i]) continue;
            if (*n == room) return false;
            out[2 * *n] = (u32)base + i;
            out[2 * *n + 1] = known[i] = now[i];
            ++*n;
        }
    }
    return true;
}

static u32 float_bits(float f)
{
    u32 u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static bool put_sampling(const struct step_layout *l, const struct step *s, u8 *dst)
{
    u32 *out = (u32 *)(void *)(dst + l->at[STEP_SAMPLE]);
    bool masked = false;
    for (u32 i = 0; i < s->n_out; i++, out += SAMPLE_WORDS) {
        const struct sample_row *r = &s->sample[i];
        const u32 words[SAMPLE_WORDS] = {
            [SAMPLE_TEMPERATURE] = float_bits(r->temperature),
            [SAMPLE_TOP_K] = r->top_k,
            [SAMPLE_TOP_P] = float_bits(r->top_p),
            [SAMPLE_MIN_P] = float_bits(r->min_p),
            [SAMPLE_REPEAT] = float_bits(r->repeat),
            [SAMPLE_PRESENCE] = float_bits(r->presence),
            [SAMPLE_FREQUENCY] = float_bits(r->frequency),
            [SAMPLE_CHOICE] = r->choice,
            [SAMPLE_SEED_LOW] = (u32)r->seed,
            [SAMPLE_SEED_HIGH] = (u32)(r->seed >> 32),
            [SAMPLE_FIRST_EDIT] = r->first_edit,
            [SAMPLE_N_EDITS] = r->n_edits,
            [SAMPLE_N_LOGPROBS] = r->n_logprobs,
            [SAMPLE_MASKED] = r->masked,
            [SAMPLE_AHEAD] = r->ahead,
        };
        memcpy(out, words, sizeof words);
        masked |= r->masked;
    }
    u32 *edits = (u32 *)(void *)(dst + l->at[STEP_SAMPLE_EDITS]);
    for (u32 i = 0; i < s->n_sample_edits; i++, edits += SAMPLE_EDIT_WORDS) {
        const struct sample_edit *e = &s->sample_edits[i];
        edits[0] = e->id;
        edits[1] = float_bits(e->bias);
        edits[2] = e->count;
    }
    if (masked)
        memcpy(dst + l->at[STEP_MASKS], s->masks,
               (size_t)s->n_out * step_mask_words(s->net) * sizeof *s->masks);
    return masked || s->n_sample_edits;
}

bool step_write(const struct step_layout *l, const struct step *s, const struct step_order *order,
                struct step_tables *tables, u8 *dst, bool *extra)
{
    CHECK(s->n_rows <= l->rows && s->n_out <= l->out_rows);
    u32 *head = (u32 *)(void *)(dst + l->at[STEP_HEAD]);
    u32 *out = (u32 *)(void *)(dst + l->at[STEP_OUT]);
    head[HEAD_N_ROWS] = s->n_rows;
    head[HEAD_N_OUT] = s->n_out;
    head[HEAD_N_D] = order->n_d;
    put_rows(l, s, order, dst);
    head[HEAD_N_TILES] = put_tiles(l, s, order, dst);
    for (u32 i = 0; i < s->n_out; i++) out[i] = order->at[s->out_rows[i]];
    for (u32 i = 0; i < NET_ROPES; i++) {
        size_t half = s->net->rope[i].n_rot / 2, to = step_angles_at(s->net, i, l->rows);
        size_t from = step_rope_at(s->net, i, s->limits.max_rows);
        float *cosine = (float *)(void *)(dst + l->at[STEP_COS]) + to;
        float *sine = (float *)(void *)(dst + l->at[STEP_SIN]) + to;
        put_floats(order, cosine, s->cos + from, s->n_rows, half);
        put_floats(order, sine, s->sin + from, s->n_rows, half);
    }
    if (l->n[STEP_HIDDEN] && s->hidden)
        put_floats(order, (float *)(void *)(dst + l->at[STEP_HIDDEN]), s->hidden, s->n_rows,
                   s->net->d_model);
    *extra = put_sampling(l, s, dst);
    return put_tables(l, s, tables, dst, &head[HEAD_N_TABLES]);
}
