/* What tests of the scheduler run it on: an executor of its own. "Computing" a token means to write
 * it, with its class, where the block table says, and the next token is a hash of all that stands
 * there. Whatever goes wrong with blocks, states, classes or positions changes tokens. It does so
 * in each of some layers, so that a step which rests between them is seen. */
#ifndef FLETCH_BATCH_STUB_H
#define FLETCH_BATCH_STUB_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "serve/batch_internal.h"

enum { VOCAB = 500, N_SLOTS = 10, N_SNAPS = 3, BLOCK = 8, N_BLOCKS = 60, MAX_POS = 200 };

enum { LAYERS = 6, N_OPS = LAYERS + 2 }; /* what comes first, the layers, what gives tokens */

struct stub {
    struct exec base;
    bool recurrent, fails;
    bool loses; /* it fails while a step is on its way */
    i32 kv[LAYERS][N_BLOCKS * BLOCK];
    u64 state[LAYERS][2 * N_SLOTS + N_SNAPS];
    struct {
        i32 ids[2][64];      /* of step i at i % 2 */
        u32 n_begun, n_done; /* steps */
        u32 next_op;         /* that its step goes on with */
        u64 rows;            /* a hash of them, while it rests */
    } program[2];            /* of answers, and of prompts where there is a reader */
    u32 away[2];             /* programs of what is on its way, the older first; + 2: to its end */
    u32 n_submits, n_waits, n_chosen; /* chosen: rows whose token the host did not know */
    u32 most_prompt_rows;             /* beside answers */
    u32 n_rests, most_rows;           /* submissions that end before the step; rows of those */
    struct step_shape ready;          /* what was prepared last */
    u32 n_unready;                    /* pieces that were not, or while nothing was on its way */
};

static bool ahead;   /* steps are queued ahead */
static bool reads;   /* there is a reader */
static bool guesses; /* tokens are guessed, and tokens don't depend on classes, which differ then */

static inline u64 fold(u64 h, i32 token, enum row_class cls)
{
    if (guesses) cls = ROW_P;
    h = (h ^ (u64)(token * 2 + (i32)cls)) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

static inline i32 token_of(u64 h)
{
    return (i32)(h % VOCAB);
}

/* What row t leaves in a layer. */
static inline void compute(struct stub *e, const struct step *s, u32 layer, u32 t, i32 token)
{
    const struct row *r = &s->rows[t];
    const u32 *table = s->tables + (size_t)r->slot * s->table_len;
    u64 *state = &e->state[layer][r->slot];
    *state = fold(r->pos ? *state : 0, token, r->cls);
    if (!e->recurrent)
        e->kv[layer][table[r->pos / BLOCK] * BLOCK + r->pos % BLOCK] = token * 2 + (i32)r->cls;
}

/* The token behind row r by what a layer has of it and all before it. */
static inline i32 result(const struct stub *e, const struct step *s, u32 layer, const struct row *r)
{
    const u32 *table = s->tables + (size_t)r->slot * s->table_len;
    u64 h = e->recurrent ? e->state[layer][r->slot] : 0;
    for (u32 i = 0; i <= r->pos && !e->recurrent; i++) {
        i32 v = e->kv[layer][table[i / BLOCK] * BLOCK + i % BLOCK];
        h = fold(h, v / 2, (enum row_class)(v & 1));
    }
    return token_of(h);
}

/* Out rows give what all layers agree upon. */
static inline void choose(const struct stub *e, const struct step *s, i32 *ids)
{
    for (u32 i = 0; i < s->n_out; i++) {
        const struct row *r = &s->rows[s->out_rows[i]];
        ids[i] = result(e, s, 0, r);
        for (u32 j = 1; j < LAYERS; j++) assert_int_equal(ids[i], result(e, s, j, r));
    }
}

static inline int stub_prepare(struct exec *x, u32 handle, struct step_shape shape, struct err *err)
{
    struct stub *e = (struct stub *)x;
    (void)err;
    e->n_unready += handle == 1 && e->n_submits == e->n_waits;
    e->ready = shape;
    return 0;
}

static inline bool is_ready(const struct stub *e, const struct step *s)
{
    return e->ready.group_begin == s->group_begin && e->ready.group_end == s->group_end &&
           (!s->group_begin || e->ready.n_p == s->n_rows);
}

static inline int stub_submit(struct exec *x, u32 handle, const struct step *s, struct err *err)
{
    struct stub *e = (struct stub *)x;
    u32 n_p = 0, n_d = 0, end = MIN(s->group_end, (u32)N_OPS);
    u64 rows = 0;
    if (e->fails) return err_set(err, FLETCH_E_BACKEND, "the device is gone");
    u32 n_away = e->n_submits++ - e->n_waits, nth = e->program[handle].n_begun;
    assert_true(n_away < 2);
    for (u32 t = 0; t < s->n_rows; t++) {
        rows = fold(rows, s->rows[t].token + (i32)s->rows[t].pos, s->rows[t].cls);
        n_p += s->rows[t].cls == ROW_P;
        n_d += s->rows[t].cls == ROW_D;
        e->n_chosen += s->rows[t].token < 0;
    }
    if (s->group_begin) assert_true(e->program[handle].rows == rows);
    assert_true(s->group_begin == 0 || s->group_begin == e->program[handle].next_op);
    for (u32 op = s->group_begin; op < end; op++) {
        for (u32 i = 0; op == 0 && i < s->n_edits; i++)
            for (u32 j = 0; j < LAYERS; j++)
                e->state[j][s->edits[i].dst] =
                    s->edits[i].kind == EDIT_ZERO_STATE ? 0 : e->state[j][s->edits[i].src];
        for (u32 t = 0; op > 0 && op <= LAYERS && t < s->n_rows; t++) {
            i32 token = s->rows[t].token;
            if (token < 0) token = e->program[handle].ids[(nth + 1) % 2][~token];
            compute(e, s, op - 1, t, token);
        }
        if (op == N_OPS - 1) choose(e, s, e->program[handle].ids[nth % 2]);
    }
    e->away[n_away] = handle + (end == N_OPS ? 2 : 0);
    e->program[handle].n_begun += end == N_OPS;
    e->program[handle].next_op = end;
    e->program[handle].rows = rows;
    e->n_rests += end < N_OPS;
    e->n_unready += handle == 1 && !is_ready(e, s);
    if (end < N_OPS) e->most_rows = MAX(e->most_rows, s->n_rows);
    if (n_d) e->most_prompt_rows = MAX(e->most_prompt_rows, n_p);
    return 0;
}

static inline int stub_wait(struct exec *x, struct err *err)
{
    struct stub *e = (struct stub *)x;
    assert_true(e->n_waits++ < e->n_submits);
    e->program[e->away[0] % 2].n_done += e->away[0] / 2;
    e->away[0] = e->away[1];
    return e->loses ? err_set(err, FLETCH_E_BACKEND, "the device is gone") : 0;
}

static inline int stub_read(struct exec *x, u32 handle, struct operand what, u32 row, u32 n_rows,
                            float *dst, struct err *err)
{
    (void)err;
    struct stub *e = (struct stub *)x;
    const i32 *ids = e->program[handle].ids[(e->program[handle].n_done + 1) % 2];
    if (what.buf == 0) memcpy(dst, ids + row, n_rows * sizeof(i32));
    if (what.buf) assert_int_equal(e->n_submits, e->n_waits); /* the next step writes there */
    for (u32 i = 0; what.buf && i < n_rows * what.width; i++) dst[i] = (float)what.buf;
    return 0;
}

static const struct exec_class stub_class = {.name = "stub",
                                             .queues = true,
                                             .prepare = stub_prepare,
                                             .submit = stub_submit,
                                             .wait = stub_wait,
                                             .read = stub_read};

/* An executor, and what runs steps on it. */
struct world {
    struct stub x;
    struct net net;
    struct program p;
    struct op ops[N_OPS];
    const struct op *members[N_OPS];
    struct group groups[N_OPS];
    struct step *step, *read_step;
    struct step_queue queue, reader;
    struct kv_pool kv;
};

struct fixture {
    struct world w, draft;
    struct spec *spec;
    bool slot_used[N_SLOTS];
    struct batch *b;
    struct err err;
    u64 random;
};

static inline u32 below(struct fixture *f, u32 n)
{
    f->random = f->random * 6364136223846793005u + 1442695040888963407u;
    return (u32)(f->random >> 33) % n;
}

static inline int open_batch(struct fixture *f, const struct fletch_batch_params *params)
{
    struct batch_env env = {.queue = &f->w.queue,
                            .kv = &f->w.kv,
                            .slot_used = f->slot_used,
                            .n_slots = N_SLOTS,
                            .spec = f->spec};
    if (reads) env.reader = &f->w.reader;
    assert_int_equal(step_queue_prepare_decode(&f->w.queue, N_SLOTS, &f->err), 0);
    return batch_open(&f->b, &env, params, &f->err);
}

static inline void open_world(struct world *w, bool recurrent, u32 max_rows, u32 n_blocks,
                              u32 n_slots)
{
    struct err err;
    struct exec_limits limits = {.max_rows = max_rows,
                                 .max_out = 16,
                                 .n_slots = n_slots,
                                 .n_blocks = n_blocks,
                                 .block_tokens = BLOCK,
                                 .max_pos = MAX_POS};
    w->x.base.class = &stub_class;
    w->x.recurrent = recurrent;
    w->net.n_vocab = VOCAB;
    w->net.n_kv = !recurrent;
    w->net.n_states = recurrent;
    for (u32 i = 0; i < N_OPS; i++) w->ops[i].layer = i > LAYERS ? -1 : (int)i - 1;
    for (u32 i = 0; i < N_OPS; i++) {
        w->members[i] = &w->ops[i];
        w->groups[i] = (struct group){.n_ops = 1, .ops = &w->members[i]};
    }
    w->p = (struct program){.net = &w->net,
                            .ops = w->ops,
                            .n_ops = N_OPS,
                            .groups = w->groups,
                            .n_groups = N_OPS,
                            .sampled = 0,
                            .logprobs = 1,
                            .top = 2};
    assert_int_equal(step_open(&w->step, &w->net, &limits, &err), 0);
    assert_int_equal(step_open_beside(&w->read_step, w->step, &err), 0);
    w->reader = (struct step_queue){.x = &w->x.base, .p = &w->p, .step = w->read_step, .handle = 1};
    w->queue = (struct step_queue){.x = &w->x.base, .p = &w->p, .step = w->step, .ahead = ahead};
    assert_int_equal(kv_open(&w->kv, recurrent ? 0 : n_blocks, BLOCK, &err), 0);
}

static inline void close_world(struct world *w)
{
    assert_int_equal(w->x.n_submits, w->x.n_waits);
    kv_check(&w->kv, NULL, NULL, 0);
    kv_close(&w->kv);
    step_close(w->read_step);
    step_close(w->step);
}

static inline struct fixture *open_worlds(bool recurrent)
{
    struct fixture *f = calloc(1, sizeof *f);
    f->random = 1;
    open_world(&f->w, recurrent, 24, N_BLOCKS, N_SLOTS + N_SNAPS);
    return f;
}

static inline struct fixture *open_fixture(bool recurrent, const struct fletch_batch_params *params)
{
    struct fixture *f = open_worlds(recurrent);
    assert_int_equal(open_batch(f, params), 0);
    return f;
}

static inline void close_fixture(struct fixture *f)
{
    batch_close(f->b);
    for (u32 i = 0; i < N_SLOTS; i++) assert_false(f->slot_used[i]);
    if (f->spec) kv_check(&f->draft.kv, NULL, NULL, 0); /* all was given back with requests */
    spec_close(f->spec);
    if (f->spec) close_world(&f->draft);
    close_world(&f->w);
    free(f);
}

/* One request, and what became of it. */
struct asked {
    i32 tokens[MAX_POS];
    u32 n_prompt, max_tokens, n_got, n_done, stop_at;
    u32 n_told, first_told, last_told; /* how much of its prompt was read */
    u64 id;
    struct fletch_result result;
    char error[128];
};

static inline bool on_token(void *ctx, i32 token, const struct batch_logprobs *logprobs)
{
    struct asked *a = ctx;
    (void)logprobs;
    u64 h = 0;
    u32 n = a->n_prompt + a->n_got;
    assert_false(a->n_done);
    for (u32 i = 0; i < n; i++) h = fold(h, a->tokens[i], i < a->n_prompt ? ROW_P : ROW_D);
    assert_int_equal(token, token_of(h));
    a->tokens[n] = token;
    return ++a->n_got == a->stop_at;
}

static inline void on_reading(void *ctx, const struct fletch_reading *r)
{
    struct asked *a = ctx;
    if (!a->n_told++) a->first_told = r->n_done;
    assert_in_range(r->n_done, a->last_told, a->n_prompt);
    a->last_told = r->n_done;
}

static inline void on_done(void *ctx, const struct fletch_result *r)
{
    struct asked *a = ctx;
    a->n_done++;
    a->result = *r;
    snprintf(a->error, sizeof a->error, "%s", r->error);
    a->result.error = a->error;
}

static inline struct batch_request request_of(struct asked *a)
{
    return (struct batch_request){.tokens = a->tokens,
                                  .n_tokens = a->n_prompt,
                                  .max_tokens = a->max_tokens,
                                  .sampling = {.top_p = 1, .repeat_penalty = 1},
                                  .on_reading = on_reading,
                                  .on_token = on_token,
                                  .on_done = on_done,
                                  .ctx = a};
}

static inline struct asked ask(u32 n_prompt, u32 max_tokens)
{
    struct asked a = {.n_prompt = n_prompt, .max_tokens = max_tokens};
    for (u32 i = 0; i < n_prompt; i++) a.tokens[i] = (i32)(i * i % VOCAB);
    return a;
}

static inline void submit(struct fixture *f, struct asked *a, struct batch_request r)
{
    if (batch_submit(f->b, &r, &a->id, &f->err)) fail_msg("%s", f->err.text);
}

static inline void drain(struct fixture *f)
{
    while (batch_step(f->b, 0)) batch_check(f->b);
    batch_check(f->b);
}

/* ---- traffic ---- */

enum { AT_ONCE = 40 };

static inline void start_random(struct fixture *f, struct asked *a)
{
    *a = (struct asked){.n_prompt = 1 + below(f, below(f, 4) ? 40 : 150)};
    a->max_tokens = 1 + below(f, MIN(60u, MAX_POS - a->n_prompt));
    a->stop_at = below(f, 3) ? 0 : 1 + below(f, a->max_tokens);
    u32 theme = below(f, 12); /* prompts of a theme begin alike, and go on alike for a while */
    for (u32 i = 0; i < a->n_prompt; i++)
        a->tokens[i] = theme < 8 && i < 20 + 10 * theme ? (i32)((theme * 31 + i * 7) % VOCAB)
                                                        : (i32)below(f, VOCAB);
    struct batch_request r = request_of(a);
    r.client = below(f, 5);
    r.priority = (i32)below(f, 3);
    submit(f, a, r);
}

static inline void check_end(const struct asked *a, bool cancelled)
{
    assert_int_equal(a->n_done, 1);
    assert_int_equal(a->result.n_generated, a->n_got);
    if (cancelled && a->result.finish == FLETCH_FINISH_CANCELLED) return;
    if (a->stop_at)
        assert_int_equal(a->n_got, a->stop_at);
    else
        assert_int_equal(a->n_got, a->max_tokens);
    assert_int_equal(a->result.finish, a->stop_at ? FLETCH_FINISH_ASKED : FLETCH_FINISH_LENGTH);
}

static inline void send_traffic(struct fixture *f, u32 n)
{
    struct asked *asked = calloc(AT_ONCE, sizeof *asked);
    bool cancelled[AT_ONCE] = {false};
    u32 n_started = 0, n_cancelled = 0;
    while (n_started < n) {
        u32 i = below(f, AT_ONCE);
        if (!asked[i].n_prompt || asked[i].n_done) {
            if (asked[i].n_prompt) check_end(&asked[i], cancelled[i]);
            start_random(f, &asked[i]);
            cancelled[i] = false;
            n_started++;
        } else if (below(f, 30) == 0) {
            assert_int_equal(batch_cancel(f->b, asked[i].id, &f->err), 0);
            cancelled[i] = true;
            n_cancelled++;
        }
        if (below(f, 2)) batch_step(f->b, 0);
        if (n_started % 16 == 0) batch_check(f->b);
    }
    drain(f);
    for (u32 i = 0; i < AT_ONCE; i++) check_end(&asked[i], cancelled[i]);
    assert_true(n_cancelled > n / 100);
    free(asked);
}

#endif
