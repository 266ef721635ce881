#include <string.h>

#include "serve/batch_internal.h"
#include "serve/sampling.h"

/* ---- room ---- */

/* The last that came, of those with the lowest priority: the first ones always get on. */
static struct request *victim(const struct batch *b)
{
    struct request *v = b->running[b->n_running - 1];
    for (u32 i = b->n_running; i-- > 0;)
        if (b->running[i]->r.priority < v->r.priority) v = b->running[i];
    return v;
}

static void preempt(struct batch *b, struct request *r)
{
    CHECK(!b->n_pending);
    batch_leave_room(b, r);
    r->waits_since = b->stats.n_steps;
    r->result.n_preempted++;
    b->stats.n_preemptions += !batch_is_warm(r);
    queue_put(&b->waiting, r);
}

void batch_give_way(struct batch *b)
{
    const struct request *first = queue_next(&b->waiting, b->stats.n_steps);
    if (b->n_pending || b->reading.at) return; /* at the next step */
    for (u32 i = b->n_running; i-- > 0;)
        if (batch_is_warm(b->running[i]) && (b->n_running > 1 || (first && !batch_is_warm(first))))
            preempt(b, b->running[i]);
}

/* Tokens that it has or will have once the step on its way has landed; without the last one of an
 * answer, which nothing follows. */
static u32 n_known(const struct request *r)
{
    return r->n_tokens + (r->n_due && r->n_tokens + r->n_due < r->room);
}

bool batch_grow(struct batch *b)
{
    if (!b->env.queue->p->net->n_kv) return true;
    for (u32 i = 0; i < b->n_running;) {
        struct request *r = b->running[i];
        if (kv_cover(b->env.kv, batch_table(b, r->slot), &r->n_blocks, n_known(r))) {
            i++;
            continue;
        }
        if (b->n_pending || b->reading.at) return false;
        struct request *v = victim(b);
        struct err err = {0};
        if (v->r.seq) {
            err_set(&err, FLETCH_E_CONTEXT, "no cache blocks are left");
            batch_finish(b, v, FLETCH_FINISH_FAILED, &err);
        } else {
            preempt(b, v);
        }
        i = 0; /* whoever left may have stood before this one */
    }
    return true;
}

/* Of a model with cache and state: as many tokens as a snapshot has and published blocks hold. */
static u32 reuse_both(struct batch *b, struct request *r, u32 *from)
{
    const i32 *tokens = r->tokens;
    u64 salt = r->r.cache_salt;
    u32 *table = batch_table(b, r->slot);
    u32 n = kv_match(b->env.kv, salt, tokens, r->n_prompt, table, &r->n_blocks);
    kv_release(b->env.kv, table, &r->n_blocks);
    if (n) n = snap_match(&b->snaps, salt, tokens, n + 1, from);
    if (!n || kv_match(b->env.kv, salt, tokens, n + 1, table, &r->n_blocks) == n) return n;
    kv_release(b->env.kv, table, &r->n_blocks); /* it ends within a block */
    return 0;
}

/* Why no more than n tokens of a prompt were found. */
static const char *reuse_end(const struct batch *b, const struct request *r, u32 n)
{
    if (r->n_prompt - n <= b->env.queue->step->limits.block_tokens)
        return "the rest is shorter than a cache block";
    if (!n) return "no cached prompt begins like this one";
    if (b->env.queue->p->net->n_states) return "no state snapshot of more tokens is kept";
    return kv_goes_on(b->env.kv, r->r.cache_salt, batch_table(b, r->slot), r->n_blocks)
               ? "the next tokens differ from those of earlier prompts"
               : "the rest has not been computed before or was evicted";
}

/* What the cache, or else a folder, has of its tokens; says why not more. *from: the slot to copy
 * its state from, its own if it is there already. */
static u32 reuse(struct batch *b, struct request *r, u32 *from)
{
    u32 n = 0, more;
    if (!b->reuses) {
        r->result.reuse_end = "reuse is off";
        return 0;
    }
    *from = UINT32_MAX;
    if (b->env.queue->p->net->n_states && b->env.queue->p->net->n_kv)
        n = reuse_both(b, r, from);
    else if (b->env.queue->p->net->n_states)
        n = snap_match(&b->snaps, r->r.cache_salt, r->tokens, r->n_prompt, from);
    else
        n = kv_match(b->env.kv, r->r.cache_salt, r->tokens, r->n_prompt, batch_table(b, r->slot),
                     &r->n_blocks);
    const struct recall_seq q = batch_seq(b, r);
    more = recall_more(&b->env.recall, &q, r->n_prompt - 1, n);
    if (more > n) *from = r->slot;
    n = more;
    r->result.reuse_end = reuse_end(b, r, n);
    return n;
}

/* A waiting request that has its room runs from now on, with n tokens computed already. */
static void begin_request(struct batch *b, struct request *r, u32 n)
{
    queue_remove(&b->waiting, r);
    b->env.slot_used[r->slot] = true;
    b->running[b->n_running++] = r;
    b->stats.most_running = MAX(b->stats.most_running, b->n_running);
    r->order = ++b->n_admitted;
    r->n_fed = r->n_settled = n;
    if (r->result.n_preempted || batch_is_warm(r)) return;
    r->result.queue_seconds = base_now() - r->t_submit;
    r->result.n_reused = n;
    b->stats.n_prompt += r->n_prompt;
    b->stats.n_reused += n;
    batch_tell_reading(r, n);
}

void batch_resume(struct batch *b)
{
    for (struct request *r = b->waiting.head, *next; r && b->n_running < b->max_running; r = next) {
        const struct batch_seq *q = r->r.seq;
        next = r->next;
        if (!q) continue;
        r->slot = q->slot;
        r->n_blocks = q->n_blocks;
        r->aside = q->aside;
        r->record = q->record;
        r->record.n_drafted = r->record.n_accepted = 0;
        begin_request(b, r, q->n_fed);
    }
}

/* Gives a waiting request its slot and the blocks of all its tokens, beginning with step s; false:
 * there is no room. */
static bool admit(struct batch *b, struct step *s, struct request *r)
{
    u32 slot = 0, from = UINT32_MAX;
    while (slot < b->env.n_slots && b->env.slot_used[slot]) slot++;
    if (r->r.seq || b->n_running == b->max_running || slot == b->env.n_slots) return false;
    if (batch_is_warm(r) && b->n_running) return false;
    r->slot = slot;
    u32 n = reuse(b, r, &from);
    /* some of those who run will need a block quite soon */
    u64 spare = b->n_running / 4,
        need = kv_blocks_for(b->env.kv, (u64)r->n_tokens + 1) - r->n_blocks;
    if (b->env.queue->p->net->n_kv &&
        (need + spare > kv_available(b->env.kv) ||
         !kv_cover(b->env.kv, batch_table(b, r->slot), &r->n_blocks, (u64)r->n_tokens + 1))) {
        kv_release(b->env.kv, batch_table(b, r->slot), &r->n_blocks);
        return false;
    }
    if (b->env.queue->p->net->n_states && n && from != slot)
        CHECK(step_edit(s, EDIT_COPY_STATE, slot, from));
    begin_request(b, r, n);
    return true;
}

/* ---- the rows of a step ---- */

static enum row_class class_of(const struct request *r, u32 i)
{
    if (i >= r->n_prompt) return ROW_D;
    return r->r.seq ? (enum row_class)r->r.seq->classes[i] : ROW_P;
}

/* The next n tokens of a request. The last one that is known, or will be, asks for the next, and
 * so do guesses behind it. */
static void add_rows(struct batch *b, struct pending_step *p, struct request *r, u32 n)
{
    struct step *s = p->batch.queue->step;
    bool trial = batch_tries(b, r);
    u32 slot, home = spec_slot(b->env.spec, r->slot, r->aside);
    u32 place = spec_slot(b->env.spec, r->slot, r->aside ^ trial), n_asks = 0;
    u32 last = n_known(r) - 1, chosen = r->out;
    spec_share_blocks(s, place, r->slot);
    if (trial) CHECK(step_edit(s, EDIT_COPY_STATE, place, home));
    if (!r->n_fed && s->net->n_states) CHECK(step_edit(s, EDIT_ZERO_STATE, place, 0));
    if (r->snap_at && r->snap_at == r->n_fed &&
        snap_put(&b->snaps, r->r.cache_salt, r->tokens, r->n_fed, batch_is_spare(r, r->n_fed),
                 &slot))
        CHECK(step_edit(s, EDIT_COPY_STATE, slot, r->slot));
    for (u32 i = 0; i < n; i++, r->n_fed++) {
        bool asks = r->r.kind == REQUEST_GENERATE && r->n_fed >= last;
        bool wanted = asks || r->r.kind == REQUEST_PREFILL_LOGITS;
        bool is_here = r->n_fed < r->n_tokens + r->n_draft;
        i32 token = is_here ? r->tokens[r->n_fed] : STEP_CHOSEN(chosen);
        CHECK(step_add(s, (struct row){token, place, r->n_fed, class_of(r, r->n_fed)}, wanted));
        if (wanted) p->batch.owners[s->n_out - 1] = asks ? r : NULL;
        if (!asks) continue;
        sampling_fill(s, s->n_out - 1, &r->r.sampling, r->tokens, r->n_fed + 1);
        s->sample[s->n_out - 1].n_logprobs = r->r.n_logprobs;
        r->out = s->n_out - 1;
        n_asks++;
    }
    r->n_due += n_asks > 0;
    if (r->r.constraint && n_asks)
        constraint_fill(r->r.constraint, s, s->n_out - n_asks, r->tokens + r->n_tokens, n_asks - 1);
    r->client->rows += batch_is_warm(r) ? 0 : n;
    r->n_rows = n;
}

/* As many rows of what it has to read as there are, at most up to where a snapshot is due. The last
 * one waits where guesses have taken all rows that ask. */
static u32 add_reading(struct batch *b, struct pending_step *p, struct request *r, u32 most)
{
    const struct step *s = p->batch.queue->step;
    u32 n = MIN(most, r->n_tokens - r->n_fed - (s->n_out == s->limits.max_out));
    if (batch_is_warm(r)) n = MIN(n, (u32)b->warm_rows);
    u32 point = snap_point(&b->snaps, r->n_fed, r->n_prompt, &r->r.marks);
    if (point) n = MIN(n, point - r->n_fed);
    if (r->r.kind == REQUEST_PREFILL_LOGITS) n = MIN(n, s->limits.max_out - s->n_out);
    for (u32 i = 1; r->r.seq && i < n; i++) /* rows of one class run before those of the other */
        if (class_of(r, r->n_fed + i) != class_of(r, r->n_fed)) n = i;
    if (!n) return 0;
    r->n_settled = r->n_fed;
    add_rows(b, p, r, n);
    b->stats.n_warmed += batch_is_warm(r) ? n : 0;
    r->snap_at = r->n_fed == point ? point : 0;
    r->reads = p == &b->read;
    return n;
}

/* Blocks for n draft tokens of a request, while others have some left. */
static bool cover_drafts(struct batch *b, struct request *r, u32 n)
{
    struct kv_pool *kv = b->env.kv;
    if (!b->env.queue->p->net->n_kv) return true;
    return kv_available(kv) > b->n_running / 4 &&
           kv_cover(kv, batch_table(b, r->slot), &r->n_blocks, (u64)r->n_tokens + n);
}

/* How many draft tokens a request may have, with so many rows. */
static u32 draft_room(struct batch *b, struct request *r, u32 rows)
{
    u32 again = r->n_tokens - r->n_fed - 1;
    if (!batch_answers(r) || again > SPEC_MAX / 2) return 0;
    u32 room = MIN(MIN(rows, (u32)SPEC_MAX), r->room - r->n_tokens - 1);
    return cover_drafts(b, r, MIN(room, (u32)SPEC_MAX_PROGRAM)) ? room : 0;
}

/* Everybody who runs, without room for drafts. */
static void fill_seqs(struct batch *b)
{
    for (u32 i = 0; i < b->n_running; i++) {
        struct request *r = b->running[i];
        b->seqs[i] = (struct spec_seq){.slot = r->slot,
                                       .tokens = r->tokens,
                                       .n = r->n_tokens,
                                       .sampling = &r->r.sampling,
                                       .constraint = r->r.constraint,
                                       .record = &r->record};
    }
}

int batch_guesser_reads(struct batch *b, double seconds, bool *did, struct err *err)
{
    *did = false;
    if (!b->env.spec) return 0;
    fill_seqs(b);
    return spec_read(b->env.spec, b->seqs, b->n_running, seconds, did, err);
}

static u32 n_decoding(const struct batch *b)
{
    u32 n = 0;
    for (u32 i = 0; i < b->n_running; i++) n += batch_answers(b->running[i]);
    return n;
}

bool batch_would_draft(struct batch *b)
{
    u32 n_decode = n_decoding(b);
    if (!b->env.spec || !n_decode) return false;
    fill_seqs(b);
    for (u32 i = 0; i < b->n_running; i++)
        b->seqs[i].room = batch_answers(b->running[i]) ? SPEC_MAX : 0;
    return spec_would_draft(b->env.spec, b->seqs, b->n_running, n_decode);
}

int batch_draft(struct batch *b, struct err *err)
{
    const struct exec_limits *l = &b->env.queue->step->limits;
    u32 n_decode = n_decoding(b), n_rows = 0;
    if (!b->env.spec || !b->n_running) return 0;
    for (u32 i = 0; i < b->n_running; i++)
        if (batch_answers(b->running[i])) n_rows += b->running[i]->n_tokens - b->running[i]->n_fed;
    u32 most = MIN(l->max_out, l->max_rows - MIN(l->max_rows, MIN_BUDGET));
    u32 left = most > n_rows ? most - n_rows : 0;
    fill_seqs(b);
    for (u32 i = 0; i < b->n_running; i++) {
        b->seqs[i].room = draft_room(b, b->running[i], MIN(left, MAX(most / MAX(n_decode, 1), 1)));
        left -= b->seqs[i].room;
    }
    int rc = spec_draft(b->env.spec, b->seqs, b->n_running, n_decode, err);
    for (u32 i = 0; !rc && i < b->n_running; i++) {
        struct request *r = b->running[i];
        r->n_draft = b->seqs[i].n_draft;
        if (r->n_draft > SPEC_MAX_PROGRAM && !cover_drafts(b, r, r->n_draft))
            r->n_draft = SPEC_MAX_PROGRAM;
        if (r->r.constraint)
            r->n_draft = constraint_worth(r->r.constraint, r->tokens + r->n_tokens, r->n_draft);
    }
    return rc;
}

void batch_fill_answers(struct batch *b, struct pending_step *p)
{
    struct step *s = p->batch.queue->step;
    for (u32 i = 0; i < b->n_running; i++) {
        struct request *r = b->running[i];
        if (!r->reads) r->n_settled = r->n_fed;
        if (!batch_answers(r)) continue;
        u32 n = MIN(n_known(r) + r->n_draft - r->n_fed, s->limits.max_rows - s->n_rows);
        if (n) add_rows(b, p, r, n);
    }
    p->batch.n_decode = s->n_rows;
    p->batch.n_prefill = 0;
}

void batch_fill_prompts(struct batch *b, struct pending_step *p, u32 most)
{
    struct step *s = p->batch.queue->step;
    struct request *r;
    for (u32 i = 0; i < b->n_running && most; i++) {
        r = b->running[i];
        if (r->n_fed >= r->n_tokens || batch_answers(r)) continue;
        most -= add_reading(b, p, r, most);
    }
    while (most && (r = queue_next(&b->waiting, b->stats.n_steps)) && admit(b, s, r))
        most -= add_reading(b, p, r, most);
    p->batch.n_prefill = s->n_rows - p->batch.n_decode;
}
