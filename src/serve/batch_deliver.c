#include "serve/batch_internal.h"
#include "serve/sampling.h"

static int read_logprobs(struct batch *b, const struct step_queue *l, u32 i, u32 n,
                         struct batch_logprobs *out, struct err *err)
{
    const struct operand values = {l->p->logprobs, 0, n}, ids = {l->p->top, 0, n - 1};
    float *top = b->logprobs + 1 + SAMPLE_MAX_TOP;
    *out = (struct batch_logprobs){n, b->logprobs, (const i32 *)(const void *)top};
    int rc = step_queue_read(l, values, i, 1, b->logprobs, err);
    if (!rc && n > 1) rc = step_queue_read(l, ids, i, 1, top, err);
    return rc;
}

/* Goes on in the request's grammar; says why not. */
static int follow(const struct request *r, i32 token, struct err *err)
{
    if (!r->r.constraint || token == SAMPLE_BAD || constraint_advance(r->r.constraint, token))
        return 0;
    return constraint_error(r->r.constraint, err);
}

/* Out row i of a step gave a token: tells it, and ends the request when that was the last: true. */
static bool deliver(struct batch *b, const struct pending_step *p, struct request *r, u32 i)
{
    i32 token = p->ids[i];
    struct batch_logprobs logprobs = {0};
    struct err err = {0};
    int rc = follow(r, token, &err);
    if (!rc) rc = sampling_result(token, r->n_tokens, &err);
    if (!rc && r->r.n_logprobs)
        rc = read_logprobs(b, p->batch.queue, i, r->r.n_logprobs, &logprobs, &err);
    if (rc) {
        batch_finish(b, r, FLETCH_FINISH_FAILED, &err);
        return true;
    }
    if (r->n_tokens == r->n_prompt) r->result.first_token_seconds = base_now() - r->t_submit;
    r->tokens[r->n_tokens++] = token;
    if (r->r.on_token(r->r.ctx, token, &logprobs))
        batch_finish(b, r, FLETCH_FINISH_ASKED, NULL);
    else if (r->r.constraint && constraint_is_over(r->r.constraint))
        batch_finish(b, r, FLETCH_FINISH_END, NULL);
    else if (r->r.max_tokens && r->n_tokens - r->n_prompt == r->r.max_tokens)
        batch_finish(b, r, FLETCH_FINISH_LENGTH, NULL);
    else if (r->n_tokens == b->env.queue->step->limits.max_pos)
        batch_finish(b, r, FLETCH_FINISH_CONTEXT, NULL);
    else
        return false;
    return true;
}

/* How many of a request's guesses were right, by what its out rows from i on gave. Cache entries of
 * the others are written over later; a recurrent state stays where it was before them. */
static int judge(struct batch *b, struct pending_step *p, struct request *r, u32 i, u32 *n_accepted,
                 struct err *err)
{
    bool trial = batch_tries(b, r);
    const struct spec_step step = {p->batch.n_seqs, p->batch.n_decode};
    u32 n = r->n_draft;
    int rc = 0;
    *n_accepted = 0;
    if (!b->env.spec || (!n && p->batch.n_prefill)) return 0;
    for (; !rc && *n_accepted < n; ++*n_accepted) {
        i32 draft = r->tokens[r->n_tokens + *n_accepted], *token = &p->ids[i + *n_accepted];
        rc = spec_judge(b->env.spec, &r->record, i + *n_accepted, *n_accepted, draft, token, err);
        if (*token != draft) break;
    }
    if (step.n_decode) spec_count(b->env.spec, &r->record, step, r->n_rows, n, *n_accepted);
    if (!n) return 0;
    bool all = *n_accepted == n;
    r->n_fed = trial && !all ? r->n_settled : r->n_tokens + *n_accepted;
    r->aside ^= trial && all;
    r->n_draft = 0;
    b->stats.n_drafted += n;
    b->stats.n_accepted += *n_accepted;
    return rc;
}

/* The tokens that a step gave, in order. */
static void deliver_all(struct batch *b, struct pending_step *p)
{
    for (u32 i = 0, n_rows; i < p->n_out; i += n_rows) {
        struct request *r = p->batch.owners[i];
        struct err err = {0};
        u32 n_accepted;
        n_rows = 1;
        if (!r) continue;
        n_rows += r->n_draft;
        r->n_due--;
        bool ended = judge(b, p, r, i, &n_accepted, &err) != 0;
        if (ended) batch_finish(b, r, FLETCH_FINISH_FAILED, &err);
        for (u32 j = 0; !ended && j <= n_accepted; j++) ended = deliver(b, p, r, i + j);
    }
}

/* How many of its tokens are in the executor by now. */
static u32 n_landed(const struct batch *b, const struct request *r)
{
    return b->n_pending || r->reads ? r->n_settled : r->n_fed;
}

/* Full blocks of prompts become findable; those of whole ones, and states where snapshots are due,
 * are kept in the folder. */
static void publish(struct batch *b)
{
    if (!b->reuses) return;
    u32 per = b->env.kv->block_tokens;
    for (u32 i = 0; i < b->n_running; i++) {
        struct request *r = b->running[i];
        const struct recall_seq q = batch_seq(b, r);
        u32 n = n_landed(b, r);
        bool keeps = q.has_state && r->snap_at && r->snap_at == n;
        if (keeps && !batch_is_spare(r, n)) batch_keep(b, r, n);
        if (!q.table) continue;
        u32 end = MIN(n, r->n_prompt) / per;
        for (; r->n_published < end; r->n_published++)
            kv_publish(b->env.kv, r->r.cache_salt, batch_table(b, r->slot), r->n_published,
                       r->tokens + (size_t)r->n_published * per);
        if (q.has_state || r->kept || n < r->n_prompt) continue;
        batch_keep(b, r, end * per);
        r->kept = true;
    }
}

void batch_tell_reading(struct request *r, u32 n)
{
    struct fletch_reading reading = {n, r->n_prompt, r->result.n_reused, r->result.reuse_end};
    r->n_told = n;
    if (r->r.on_reading) r->r.on_reading(r->r.ctx, &reading);
}

static void tell_readings(struct batch *b)
{
    for (u32 i = 0; i < b->n_running; i++) {
        u32 n = MIN(n_landed(b, b->running[i]), b->running[i]->n_prompt);
        if (n > b->running[i]->n_told) batch_tell_reading(b->running[i], n);
    }
}

/* Shows the rows of prefills that draw nothing, and ends those that are complete. */
static void end_prefills(struct batch *b, const struct pending_step *p)
{
    for (u32 i = b->n_running; i-- > 0;) {
        struct request *r = b->running[i];
        struct err err = {0};
        if (r->r.kind == REQUEST_GENERATE) continue;
        u32 n = r->n_fed - r->n_settled;
        if (r->r.on_rows && n && r->r.on_rows(r->r.ctx, p->batch.queue, n, &err))
            batch_finish(b, r, FLETCH_FINISH_FAILED, &err);
        else if (n_landed(b, r) >= r->n_prompt)
            batch_finish(b, r, FLETCH_FINISH_LENGTH, NULL);
    }
}

void batch_deliver(struct batch *b, struct pending_step *p)
{
    publish(b);
    tell_readings(b);
    deliver_all(b, p);
    end_prefills(b, p);
}
