#include "gpu/gpu_step.h"

#include <string.h>

#include "gpu/args.h"

u32 step_max_tables(u32 rows)
{
    return 64 + rows;
}

void step_layout(struct step_layout *l, const struct program *p, const struct exec_limits *limits,
                 u32 rows)
{
    u64 t = rows, r = MIN(rows, limits->max_out), half = p->net->rope.n_rot / 2;
    const u64 words[STEP_PARTS] = {
        [STEP_HEAD] = HEAD_WORDS,
        [STEP_ROWS] = 4 * t,
        [STEP_PREV] = t,
        [STEP_NEXT] = t,
        [STEP_OUT] = r,
        [STEP_ITEMS] = t + 1,
        [STEP_COS] = t * half,
        [STEP_SIN] = t * half,
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

/* ---- writing ---- */

static void put_rows(const struct step_layout *l, const struct step *s, u8 *dst)
{
    u32 *row = (u32 *)(void *)(dst + l->at[STEP_ROWS]);
    i32 *prev = (i32 *)(void *)(dst + l->at[STEP_PREV]);
    i32 *next = (i32 *)(void *)(dst + l->at[STEP_NEXT]);
    u32 *items = (u32 *)(void *)(dst + l->at[STEP_ITEMS]);
    u32 n_items = 0;
    for (u32 t = 0; t < s->n_rows; t++) {
        const struct row *r = &s->rows[t];
        const u32 words[4] = {(u32)r->token, r->slot, r->pos, r->cls};
        memcpy(row + 4 * (size_t)t, words, sizeof words);
        prev[t] = s->prev[t];
        next[t] = -1;
        if (s->prev[t] >= 0) next[s->prev[t]] = (i32)t;
        items[t] = n_items;
        n_items += r->pos / SPLIT_TOKENS + 1;
    }
    items[s->n_rows] = n_items;
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

bool step_write(const struct step_layout *l, const struct step *s, struct step_tables *tables,
                u8 *dst, bool *extra)
{
    CHECK(s->n_rows <= l->rows && s->n_out <= l->out_rows);
    u32 *head = (u32 *)(void *)(dst + l->at[STEP_HEAD]);
    size_t angles = (size_t)s->n_rows * (s->net->rope.n_rot / 2) * sizeof *s->cos;
    head[HEAD_N_ROWS] = s->n_rows;
    head[HEAD_N_OUT] = s->n_out;
    put_rows(l, s, dst);
    memcpy(dst + l->at[STEP_OUT], s->out_rows, s->n_out * sizeof *s->out_rows);
    memcpy(dst + l->at[STEP_COS], s->cos, angles);
    memcpy(dst + l->at[STEP_SIN], s->sin, angles);
    if (l->n[STEP_HIDDEN] && s->hidden)
        memcpy(dst + l->at[STEP_HIDDEN], s->hidden,
               (size_t)s->n_rows * s->net->d_model * sizeof *s->hidden);
    *extra = put_sampling(l, s, dst);
    return put_tables(l, s, tables, dst, &head[HEAD_N_TABLES]);
}
