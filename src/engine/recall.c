/* The folder that keeps prompts for later runs (serve/recall.h): opened with a model, and what
 * sessions do with it. */
#include <string.h>

#include "engine/session.h"
#include "serve/snap.h"

int engine_recall_open(struct fletch_model *m, const struct fletch_model_params *params,
                       struct err *err)
{
    const struct net *net = m->m->net;
    m->recall = (struct recall){.queue = &m->queue, .kv = &m->kv};
    if (!params || !params->cache_dir) return 0;
    _Static_assert((u32)SNAP_GRAIN % (u32)ENGINE_BLOCK_TOKENS == 0, "snapshots end with blocks");
    m->recall.grain = net->n_states ? (u32)SNAP_GRAIN : m->limits.block_tokens;
    if (net->n_kv) m->recall.block_bytes = exec_part_bytes(net, &m->limits, PART_BLOCK);
    if (net->n_states) m->recall.state_bytes = exec_part_bytes(net, &m->limits, PART_STATE);
    struct store_env env = {.dir = params->cache_dir,
                            .max_bytes = params->cache_bytes ? params->cache_bytes : 8ull << 30,
                            .grain = m->recall.grain,
                            .grain_bytes =
                                m->recall.grain / m->limits.block_tokens * m->recall.block_bytes,
                            .state_bytes = m->recall.state_bytes,
                            .notice = params->notice,
                            .notice_ctx = params->notice_ctx};
    int rc = engine_key(m, &env.key, err);
    if (!rc) rc = store_open(&m->recall.store, &env, err);
    if (!rc || !params->cache_optional) return rc;
    err_prefix(err, "prefixes are not saved");
    if (params->notice) params->notice(params->notice_ctx, err->text);
    return 0;
}

int fletch_prefix_files(struct fletch_engine *e, const char *dir, bool remove, uint64_t *n_files,
                        uint64_t *n_bytes)
{
    u64 n = 0, bytes = 0;
    if (!e) return FLETCH_E_ARG;
    int rc = engine_need(&e->err, dir, "the folder");
    if (!rc) rc = store_scan(dir, remove, &n, &bytes, &e->err);
    if (n_files) *n_files = n;
    if (n_bytes) *n_bytes = bytes;
    return rc;
}

static struct recall_seq seq_of(struct fletch_session *s)
{
    const struct step *step = s->model->step;
    struct batch_seq *q = &s->seq;
    u32 *table = step->tables + (size_t)q->slot * step->table_len;
    const struct net *net = s->model->m->net;
    return (struct recall_seq){0,
                               q->tokens,
                               net->n_kv ? table : NULL,
                               &q->n_blocks,
                               net->n_states > 0,
                               spec_slot(s->model->spec, q->slot, q->aside)};
}

size_t fletch_session_recall(struct fletch_session *s, const int32_t *tokens, size_t n)
{
    if (!s || !tokens) return 0;
    struct fletch_model *m = s->model;
    if (!m->recall.store || s->state != SESSION_EMPTY || n < 2 || n >= m->limits.max_pos) return 0;
    memcpy(s->seq.tokens, tokens, n * sizeof *tokens);
    memset(s->seq.classes, ROW_P, n);
    const struct recall_seq q = seq_of(s);
    session_set(s, SESSION_RUNNING);
    turns_take(&m->turns);
    u32 n_kept = recall_more(&m->recall, &q, (u32)n - 1, 0);
    turns_give(&m->turns);
    s->seq.n = s->seq.n_fed = n_kept;
    session_set(s, n_kept ? SESSION_PARTIAL : SESSION_EMPTY);
    s->keep_at = ((u32)n - 1) / m->recall.grain * m->recall.grain;
    return n_kept;
}

void session_keep(struct fletch_session *s, u32 n)
{
    const struct recall_seq q = seq_of(s);
    turns_take(&s->model->turns);
    (void)recall_keep(&s->model->recall, &q, n, true);
    turns_give(&s->model->turns);
}
