/* Sequences that outlive the requests of a scheduler: prefill, generation, and what stops either,
 * in random order. Every token must follow from all tokens before it, as they were computed. */
#include "serve/batch_stub.h"
#include "serve/speculate_internal.h"

enum { N_ROUNDS = 4000, SLOT = 3 };

/* A sequence, and what it should hold. */
struct talk {
    struct fixture *f;
    struct batch_seq q;
    i32 tokens[MAX_POS + 1];
    u8 classes[MAX_POS + 1];
    u32 n, n_got, stop_at, n_rows;
    struct fletch_result result;
};

static bool take_token(void *ctx, i32 token, const struct batch_logprobs *logprobs)
{
    struct talk *t = ctx;
    u64 h = 0;
    (void)logprobs;
    for (u32 i = 0; i < t->n; i++) h = fold(h, t->tokens[i], (enum row_class)t->classes[i]);
    assert_int_equal(token, token_of(h));
    t->classes[t->n] = ROW_D;
    t->tokens[t->n++] = token;
    return ++t->n_got == t->stop_at;
}

static int count_rows(void *ctx, const struct step_queue *queue, u32 n, struct err *err)
{
    (void)err;
    assert_int_equal(queue->step->n_rows, n);
    assert_int_equal(queue->step->n_out, n);
    ((struct talk *)ctx)->n_rows += n;
    return 0;
}

static void take_result(void *ctx, const struct fletch_result *r)
{
    ((struct talk *)ctx)->result = *r;
}

/* Runs a request for the first n tokens; cancels it after so many steps. */
static void request(struct talk *t, struct batch_request r, u32 n, u32 cancel_after)
{
    struct fixture *f = t->f;
    u64 id;
    r.seq = &t->q;
    r.n_tokens = n;
    r.sampling = (struct fletch_sampling){.top_p = 1, .repeat_penalty = 1};
    r.on_token = take_token;
    r.on_done = take_result;
    r.ctx = t;
    if (batch_submit(f->b, &r, &id, &f->err)) fail_msg("%s", f->err.text);
    for (u32 i = 0; batch_step(f->b, 0); i++) {
        batch_check(f->b);
        if (i == cancel_after) assert_int_equal(batch_cancel(f->b, id, &f->err), 0);
    }
}

static void reset(struct talk *t)
{
    const struct step *step = t->f->w.step;
    kv_release(&t->f->w.kv, step->tables + (size_t)SLOT * step->table_len, &t->q.n_blocks);
    spec_rewind(t->f->spec, SLOT, 0);
    t->n = t->q.n = t->q.n_fed = 0;
    t->q.aside = false;
}

static void prefill(struct talk *t)
{
    struct fixture *f = t->f;
    u32 n = 1 + below(f, 60), cancel_after = below(f, 4) ? UINT32_MAX : below(f, 3);
    bool wants_rows = below(f, 4) == 0;
    if (t->n + n > MAX_POS - 2) reset(t);
    u32 n_old = t->n;
    for (u32 i = 0; i < n; i++, t->n++) {
        t->tokens[t->n] = t->q.tokens[t->n] = (i32)below(f, VOCAB);
        t->classes[t->n] = t->q.classes[t->n] = ROW_P;
    }
    t->q.n = t->n;
    t->n_rows = 0;
    struct batch_request r = {.kind = REQUEST_PREFILL};
    if (wants_rows) {
        if (n_old > t->q.n_fed) request(t, r, n_old, UINT32_MAX);
        r = (struct batch_request){.kind = REQUEST_PREFILL_LOGITS, .on_rows = count_rows};
    }
    u32 end = t->n - !wants_rows;
    if (end > t->q.n_fed) request(t, r, end, cancel_after);
    if (t->q.n_fed == end) {
        if (wants_rows) assert_int_equal(t->n_rows, n);
    } else { /* cancelled */
        assert_int_equal(t->result.finish, FLETCH_FINISH_CANCELLED);
        t->n = t->q.n = MAX(n_old, t->q.n_fed);
    }
}

static void generate(struct talk *t)
{
    struct fixture *f = t->f;
    u32 n = t->n, cancel_after = below(f, 4) ? UINT32_MAX : below(f, 6);
    if (!n || n > MAX_POS - 2) return;
    if (t->q.n_fed == n) t->q.n_fed = f->w.x.recurrent ? 0 : n - 1;
    struct batch_request r = {.max_tokens = 1 + below(f, 20)};
    t->n_got = 0;
    t->stop_at = below(f, 2) ? 1 + below(f, 12) : 0;
    request(t, r, n, cancel_after);
    assert_int_equal(t->result.n_generated, t->n_got);
    if (t->result.finish == FLETCH_FINISH_ASKED) {
        assert_int_equal(t->n_got, t->stop_at);
        t->n--;
    } else if (t->result.finish == FLETCH_FINISH_LENGTH) {
        assert_int_equal(t->n_got, r.max_tokens);
    } else if (t->result.finish == FLETCH_FINISH_CONTEXT) {
        assert_int_equal(t->n, MAX_POS);
    } else {
        assert_int_equal(t->result.finish, FLETCH_FINISH_CANCELLED);
    }
}

static void hold_talk(struct fixture *f)
{
    i32 tokens[MAX_POS + 1];
    u8 classes[MAX_POS + 1];
    struct talk t = {.f = f, .q = {.slot = SLOT, .tokens = tokens, .classes = classes}};
    u32 n_tokens = 0;
    f->slot_used[SLOT] = true;
    for (u32 i = 0; i < N_ROUNDS; i++) {
        if (below(f, 2))
            prefill(&t);
        else
            generate(&t);
        n_tokens += t.n_got;
        t.n_got = 0;
        assert_int_equal(t.q.n, t.n);
        assert_true(t.q.n_fed <= t.n);
        assert_memory_equal(tokens, t.tokens, t.n * sizeof *tokens);
        assert_memory_equal(classes, t.classes, t.n);
    }
    assert_true(n_tokens > N_ROUNDS);
    reset(&t);
    f->slot_used[SLOT] = false;
}

static void check(bool recurrent)
{
    struct fixture *f = open_fixture(recurrent, &(struct fletch_batch_params){.no_reuse = true});
    hold_talk(f);
    close_fixture(f);
}

static void test_sequences_with_blocks_go_on(void **state)
{
    (void)state;
    for (u32 i = 0; i < 2; i++) {
        ahead = i;
        check(false);
    }
}

static void test_sequences_with_states_go_on(void **state)
{
    (void)state;
    for (u32 i = 0; i < 2; i++) {
        ahead = i;
        check(true);
    }
}

/* By a draft model, whose draft tokens are all accepted; unwanted ones are not in the sequence. */
static void test_sequences_with_draft_tokens_go_on(void **state)
{
    (void)state;
    ahead = false;
    guesses = true;
    for (u32 i = 0; i < 2; i++) {
        struct fixture *f = open_worlds(false);
        struct fletch_batch_stats s;
        open_world(&f->draft, i, 48, N_BLOCKS, 2 * N_SLOTS);
        const struct spec_env env = {.target = {&f->w.queue, &f->w.kv, N_SLOTS, NULL},
                                     .program = {&f->draft.queue, &f->draft.kv, N_SLOTS, NULL},
                                     .uses = {[DRAFTER_MODEL] = true},
                                     .n_tokens = 3,
                                     .n_slots = N_SLOTS};
        assert_int_equal(spec_open(&f->spec, &env, &f->err), 0);
        assert_int_equal(open_batch(f, NULL), 0);
        hold_talk(f);
        batch_stats(f->b, &s);
        assert_true(s.n_drafted > 1000 && s.n_accepted == s.n_drafted);
        close_fixture(f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sequences_with_blocks_go_on),
        cmocka_unit_test(test_sequences_with_states_go_on),
        cmocka_unit_test(test_sequences_with_draft_tokens_go_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
