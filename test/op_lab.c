#include "op_cases.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/engine.h"
#include "gpu/gpu.h"
#include "ref/ref.h"

enum {
    GUARD = 16, /* columns between buffers */
    BLOCK_TOKENS = 32,
    BLOCKS = 4,          /* of a sequence */
    POISON = 0x7fc0dead, /* not a number: nothing that reads it gives anything else */
};

/* Tokens fed before the rows that are looked at: across a block, within one, none. */
static const u32 past[OP_SLOTS] = {45, 6, 0};

static void must(int rc, const struct err *err)
{
    if (rc) fail_msg("%s", err->text);
}

/* ---- labs ---- */

static void open_with(struct op_lab *l, const struct op_case *c, struct profile profile, u32 align,
                      u32 cols)
{
    struct err err = {0};
    *l = (struct op_lab){.c = c, .align = align};
    must(net_open(&l->net, &err), &err);
    l->net->profile = profile;
    l->net->d_model = cols;
    l->net->n_vocab = OP_VOCAB;
    must(prog_open(&l->p, l->net, c->name, &err), &err);
    l->in = prog_import_hidden(l->p, cols);
    c->record(l, &c->s);
    for (u32 i = 0; i < l->n_out; i++) l->p->bufs[l->out[i].buf].kept = true;
    must(prog_finish(l->p, l->out[0], l->out[l->n_out - 1], &err), &err);
}

/* Twice: the first time tells how many columns a row must bring. */
static void open_aligned(struct op_lab *l, const struct op_case *c, struct profile profile,
                         u32 align)
{
    open_with(l, c, profile, align, OP_COLS);
    u32 cols = l->used + align;
    op_lab_close(l);
    open_with(l, c, profile, align, cols);
}

void op_lab_open(struct op_lab *l, const struct op_case *c, struct profile profile)
{
    open_aligned(l, c, profile, 1);
}

void op_lab_open_for(struct op_lab *l, const struct op_case *c, const struct exec_class *class)
{
    struct profile profile;
    struct err err = {0};
    must(engine_profile(&profile, class, NULL, &err), &err);
    open_aligned(l, c, profile, gpu_driver_of(class) ? 4 : 1); /* kernels load four at once */
}

void op_lab_close(struct op_lab *l)
{
    prog_close(l->p);
    net_close(l->net);
}

u32 op_lab_width(const struct op_lab *l)
{
    u32 n = 0;
    for (u32 i = 0; i < l->n_out; i++) n += l->out[i].width;
    return n;
}

/* ---- sides ---- */

static void fill(float *p, size_t n)
{
    const u32 poison = POISON;
    for (size_t i = 0; i < n; i++) memcpy(&p[i], &poison, sizeof poison);
}

static bool is_poison(float x)
{
    u32 bits;
    memcpy(&bits, &x, sizeof bits);
    return bits == POISON;
}

/* Every buffer gets a place of its own, with guards on both sides. */
static void place_apart(struct op_side *o)
{
    struct program *p = o->p;
    u32 n = o->n_real = p->n_bufs;
    p->n_cols[ROWS_T] = p->n_cols[ROWS_R] = 0;
    for (u32 i = 0; i < 2 * n + 2; i++) {
        bool guard = i % 2 == 0;
        enum rows rows = i / 2 < n ? p->bufs[i / 2].rows : ROWS_T;
        u32 id = i / 2;
        if (guard) {
            id = prog_buf(p, "guard", GUARD).buf;
            p->bufs[id].rows = rows;
        } else if (id >= n || p->bufs[id].first == UINT32_MAX) {
            continue; /* inside a group */
        }
        p->bufs[id].place = p->n_cols[rows];
        p->n_cols[rows] += p->bufs[id].width;
    }
}

bool op_side_open(struct op_side *o, const struct op_lab *l, const struct exec_class *class,
                  enum op_form form, u32 n_threads)
{
    struct err err = {0};
    u32 n_tokens = BLOCKS * BLOCK_TOKENS, widest = 0;
    struct exec_limits limits = {.max_rows = OP_ROWS,
                                 .max_out = OP_ROWS,
                                 .n_slots = OP_SLOTS,
                                 .n_blocks = OP_SLOTS * BLOCKS,
                                 .block_tokens = BLOCK_TOKENS,
                                 .max_pos = n_tokens};
    *o = (struct op_side){.l = l, .class = class};
    must(prog_group(&o->p, l->p, class->rules, form == OP_FUSED ? class->n_rules : 0, &err), &err);
    place_apart(o);
    for (u32 i = 0; i < o->p->n_bufs; i++) widest = MAX(widest, o->p->bufs[i].width);
    assert_true(widest <= OP_COLS);
    o->hidden = calloc((size_t)OP_ROWS * l->in.width, sizeof(float));
    o->buf = calloc((size_t)OP_ROWS * widest, sizeof(float));
    assert_true(o->hidden && o->buf);
    int rc = class->open(&o->x, class, l->net, &limits, n_threads, &err);
    for (u32 i = 0; !rc && i < l->net->n_weights; i++) rc = class->weight(o->x, i, &err);
    if (!rc) rc = class->load(o->x, o->p, &o->handle, &err);
    if (rc == FLETCH_E_UNSUPPORTED || rc == FLETCH_E_LIMIT) return false;
    must(rc, &err);
    must(step_open(&o->s, l->net, &limits, &err), &err);
    for (u32 slot = 0; slot < OP_SLOTS; slot++) /* scattered, backwards */
        for (u32 i = 0; i < BLOCKS; i++)
            o->s->tables[slot * o->s->table_len + i] = (BLOCKS - 1 - i) * OP_SLOTS + slot;
    return true;
}

void op_side_close(struct op_side *o)
{
    if (o->x) o->class->close(o->x);
    step_close(o->s);
    prog_close(o->p);
    free(o->hidden);
    free(o->buf);
}

static struct operand whole(const struct program *p, u32 buf)
{
    return (struct operand){buf, 0, p->bufs[buf].width};
}

static bool lives(const struct op_side *o, u32 buf)
{
    return buf >= o->n_real || o->p->bufs[buf].first != UINT32_MAX;
}

static void poison_all(struct op_side *o)
{
    struct err err = {0};
    for (u32 b = 0; b < o->p->n_bufs; b++) {
        if (!lives(o, b)) continue;
        fill(o->buf, (size_t)OP_ROWS * o->p->bufs[b].width);
        must(o->class->write(o->x, o->handle, whole(o->p, b), 0, OP_ROWS, o->buf, &err), &err);
    }
}

/* The columns of a buffer that the program writes. */
static void find_written(const struct op_side *o, u32 buf, bool *written)
{
    memset(written, 0, o->p->bufs[buf].width);
    for (u32 i = 0; i < o->p->n_ops; i++)
        for (u32 j = 0; j < o->p->ops[i].n_out; j++) {
            struct operand y = o->p->ops[i].out[j];
            for (u32 c = 0; y.buf == buf && c < y.width; c++)
                written[y.col + c] |= op_writes(&o->p->ops[i], c);
        }
}

/* Nothing but the step's rows of written columns has changed since poison_all. */
static void check_poison(struct op_side *o)
{
    struct err err = {0};
    bool written[OP_COLS];
    for (u32 b = 0; b < o->p->n_bufs; b++) {
        if (!lives(o, b)) continue;
        const struct buffer *buf = &o->p->bufs[b];
        u32 n = buf->rows == ROWS_T ? o->s->n_rows : o->s->n_out;
        must(o->class->read(o->x, o->handle, whole(o->p, b), 0, OP_ROWS, o->buf, &err), &err);
        find_written(o, b, written);
        for (u32 t = 0; t < OP_ROWS; t++)
            for (u32 c = 0; c < buf->width; c++)
                if (!is_poison(o->buf[(size_t)t * buf->width + c]) && (t >= n || !written[c]))
                    fail_msg("%s on %s: column %u of row %u of %s was written in a step of %u rows",
                             o->l->c->name, o->class->name, c, t, buf->name, n);
    }
}

/* All settings of sampling in turn, by variant, for the row that was added last. */
static void set_sampling(struct step *s, u32 variant)
{
    u32 i = s->n_out - 1, words = step_mask_words(s->net);
    struct sample_row *row = &s->sample[i];
    *row = (struct sample_row){.temperature = 0.25f * (float)(variant % 5),
                               .top_k = variant % 3 ? 0 : 7,
                               .top_p = variant % 4 ? 1 : 0.8f,
                               .min_p = variant % 7 ? 0 : 0.1f,
                               .repeat = 1.3f,
                               .presence = 0.2f,
                               .frequency = 0.1f,
                               .choice = variant % 2,
                               .seed = 1000 + variant,
                               .first_edit = s->n_sample_edits,
                               .n_edits = variant % 4,
                               .n_logprobs = variant % 6,
                               .masked = variant % 3 == 1};
    for (u32 j = 0; j < row->n_edits; j++)
        s->sample_edits[s->n_sample_edits++] =
            (struct sample_edit){(variant + 5 * j) % s->net->n_vocab, 0.5f * (float)j, j};
    for (u32 j = 0; j < words; j++) s->masks[(size_t)i * words + j] = 0x5a5a1234u + variant;
}

/* Scores in which NaN, infinities, huge values or ties decide, by variant; x: 32 random bits. */
static float odd_value(u32 variant, u32 i, u32 x)
{
    static const float any[8] = {NAN, INFINITY, -INFINITY, 3e38f, -3e38f, -0.0f, 0, 1};
    switch (variant) {
    case 0: return NAN;
    case 1: return 0.25f;
    case 2: return -INFINITY;
    case 3: return INFINITY;
    case 4: return (float)(x % 2);
    case 5: return i == 3 ? NAN : (float)(x % 8);
    case 6: return i == 3 ? INFINITY : (float)(x % 8);
    case 7: return x % 4 ? NAN : (float)(x % 16);
    case 8: return x % 4 ? -INFINITY : (float)(x % 16);
    case 9: return any[3 + x % 5];
    default: return any[x % 8];
    }
}

/* What a row brings: uniform in [-1, 1), by its sequence and position. */
static void add_row(struct op_side *o, u32 slot, u32 pos, enum row_class cls)
{
    u64 x = ((u64)slot << 32 | pos) * 0x9e3779b97f4a7c15u + 1;
    float *row = o->hidden + (size_t)o->s->n_rows * o->l->in.width;
    for (u32 i = 0; i < o->l->in.width; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        row[i] = (float)(i32)(x >> 32) * 0x1p-31f;
        if (i - o->l->odd_at < o->l->n_odd)
            row[i] = odd_value((pos * OP_SLOTS + slot) % 11, i - o->l->odd_at, (u32)(x >> 36));
    }
    assert_true(step_add(
        o->s, (struct row){(i32)((7 * pos + 11 * slot) % OP_VOCAB), slot, pos, cls}, true));
    set_sampling(o->s, pos * OP_SLOTS + slot);
}

static void submit(struct op_side *o)
{
    struct err err = {0};
    step_prepare(o->s);
    o->s->hidden = o->hidden;
    must(o->class->submit(o->x, o->handle, o->s, &err), &err);
    must(o->class->wait(o->x, &err), &err);
}

/* Only caches and states remember it. */
static void feed_past(struct op_side *o)
{
    if (o->l->net->n_kv + o->l->net->n_states == 0) return;
    for (u32 slot = 0; slot < OP_SLOTS; slot++) {
        step_reset(o->s);
        assert_true(step_edit(o->s, EDIT_ZERO_STATE, slot, 0));
        for (u32 pos = 0; pos < past[slot]; pos++) add_row(o, slot, pos, ROW_P);
        if (o->s->n_rows == 0) add_row(o, slot, 0, ROW_P); /* an edit needs a step */
        submit(o);
    }
}

static void read_out(struct op_side *o, u32 n, float *y)
{
    struct err err = {0};
    u32 width = op_lab_width(o->l), at = 0;
    for (u32 i = 0; i < o->l->n_out; at += o->l->out[i++].width) {
        u32 w = o->l->out[i].width;
        must(o->class->read(o->x, o->handle, o->l->out[i], 0, n, o->buf, &err), &err);
        for (u32 t = 0; t < n; t++)
            memcpy(y + (size_t)t * width + at, o->buf + (size_t)t * w, w * sizeof *y);
    }
}

/* How many of n rows the step that begins with row t takes: all, or each alone. A sequence's rows
 * come in order, so among many the middle ones, which differ in nothing, go together. */
static u32 rows_of_step(u32 t, u32 n, bool alone)
{
    const u32 ends = 2 * OP_SLOTS;
    if (!alone) return n;
    return t == ends && n > 2 * ends ? n - 2 * ends : 1;
}

void op_side_run(struct op_side *o, u32 n, enum row_class cls, bool alone, float *y)
{
    feed_past(o);
    for (u32 begin = 0, end; begin < n; begin = end) {
        end = begin + rows_of_step(begin, n, alone);
        step_reset(o->s);
        poison_all(o);
        for (u32 t = begin; t < end; t++) {
            u32 slot = t % OP_SLOTS;
            if (past[slot] == 0 && t == slot)
                assert_true(step_edit(o->s, EDIT_ZERO_STATE, slot, 0));
            add_row(o, slot, past[slot] + t / OP_SLOTS, cls);
        }
        submit(o);
        if (!alone) check_poison(o);
        read_out(o, end - begin, y + (size_t)begin * op_lab_width(o->l));
    }
}

/* ---- comparing ---- */

static bool is_int(const struct op_lab *l, u32 i)
{
    return l->p->bufs[l->out[i].buf].is_int;
}

/* Does the op that wrote out[i] leave this column alone? Heads may have gaps between them. */
static bool is_gap(const struct op_lab *l, u32 i, u32 col)
{
    for (u32 j = 0; j < l->p->n_ops; j++)
        for (u32 k = 0; k < l->p->ops[j].n_out; k++)
            if (l->p->ops[j].out[k].buf == l->out[i].buf) return !op_writes(&l->p->ops[j], col);
    return false;
}

/* The same bits; of odd values any NaN is like another. */
static bool equal(const struct op_lab *l, float a, float b)
{
    return memcmp(&a, &b, sizeof a) == 0 || (l->n_odd && isnan(a) && isnan(b));
}

void op_compare(const struct op_lab *l, u32 n, const float *got, const float *want, const char *who)
{
    u32 width = op_lab_width(l), at = 0;
    for (u32 i = 0; i < l->n_out; at += l->out[i++].width) {
        double scale = 1e-30, limit = is_int(l, i) ? 0 : op_tolerance(l);
        for (u32 k = 0; k < n * l->out[i].width; k++) {
            size_t e = (size_t)(k / l->out[i].width) * width + at + k % l->out[i].width;
            if (!is_gap(l, i, k % l->out[i].width) && isfinite(want[e]))
                scale = fmax(scale, fabs((double)want[e]));
        }
        for (u32 k = 0; k < n * l->out[i].width; k++) {
            u32 t = k / l->out[i].width, c = k % l->out[i].width;
            size_t e = (size_t)t * width + at + c;
            if (is_gap(l, i, c) || equal(l, got[e], want[e])) continue;
            double d = fabs((double)got[e] - (double)want[e]) / scale;
            if (!(d <= limit))
                fail_msg("%s on %s: row %u of %u, column %u: %.9g instead of %.9g, %.2g of the "
                         "largest",
                         l->c->name, who, t, n, c, (double)got[e], (double)want[e], d);
        }
    }
}

static void same_bits(const struct op_lab *l, u32 n, const float *a, const float *b,
                      const char *who, const char *what)
{
    u32 width = op_lab_width(l);
    for (size_t i = 0; i < (size_t)n * width; i++)
        if (!equal(l, a[i], b[i]))
            fail_msg("%s on %s: row %zu of %u, column %zu: %.9g, but %.9g %s", l->c->name, who,
                     i / width, n, i % width, (double)a[i], (double)b[i], what);
}

/* A rule that the executor has must have made a group. */
static void check_fused(const struct op_case *c, const struct op_side *side)
{
    if (!op_case_is_rule_of(c, side->class)) return;
    for (u32 i = 0; i < side->p->n_groups; i++)
        if (strcmp(group_name(&side->p->groups[i]), op_case_rule(c)) == 0) return;
    fail_msg("%s on %s: no group", c->name, side->class->name);
}

static void check_runs(struct op_side *side, struct op_side *ref)
{
    const struct op_lab *l = side->l;
    const char *who = side->class->name;
    size_t size = (size_t)OP_ROWS * op_lab_width(l);
    float *y = calloc(3 * size, sizeof *y), *again = y + size, *want = again + size;
    assert_non_null(y);
    for (enum row_class cls = ROW_P; cls <= ROW_D; cls++)
        for (size_t i = 0; i < ARRAY_LEN(op_row_counts); i++) {
            u32 n = op_row_counts[i];
            /* classes that the profile does not tell apart: once is enough */
            if (cls == ROW_P && !l->net->profile.bf16 && n != 7) continue;
            op_side_run(ref, n, cls, false, want);
            op_side_run(side, n, cls, false, y);
            op_compare(l, n, y, want, who);
            op_side_run(side, n, cls, true, again);
            same_bits(l, n, y, again, who, "the second time, alone in its step");
        }
    free(y);
}

enum op_result op_case_check(const struct op_case *c, const struct exec_class *class,
                             enum op_form form, u32 n_threads)
{
    struct op_lab l;
    struct op_side ref, side;
    /* The ops it is made of have cases of their own. */
    if (form == OP_UNFUSED && op_case_is_rule_of(c, class)) return OP_NOTHING;
    op_lab_open_for(&l, c, class);
    enum op_result result = OP_REFUSED;
    if (op_side_open(&side, &l, class, form, n_threads)) {
        bool fused = side.p->n_groups < l.p->n_ops;
        result = form == OP_UNFUSED || fused ? OP_RAN : OP_NOTHING;
        if (form == OP_FUSED && fused) check_fused(c, &side);
    }
    if (result == OP_RAN) {
        assert_true(op_side_open(&ref, &l, &ref_exec, OP_UNFUSED, 1));
        check_runs(&side, &ref);
        op_side_close(&ref);
    }
    op_side_close(&side);
    op_lab_close(&l);
    return result;
}
