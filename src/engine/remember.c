/* Sessions as files (serve/statefile.h): what one has read and computed, to go on from later. */
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "engine/session.h"
#include "serve/statefile.h"

/* Bytes of a matrix that a model is known by. */
enum { SAMPLE_BYTES = 4096 };

/* Parameters of ops that no weight's name or shape tells. */
static u64 hash_parameters(const struct program *p, u64 h)
{
    for (u32 i = 0; i < p->n_ops; i++) {
        const struct op *op = &p->ops[i];
        double x[4] = {op->kind};
        if (op->kind == OP_ATTENTION) {
            x[1] = op->p.attn.chunked ? -(double)op->p.attn.window : (double)op->p.attn.window;
            x[2] = (double)op->p.attn.softcap;
            x[3] = (double)op->p.attn.scale;
        } else if (op->kind == OP_GLU) {
            x[1] = op->p.glu.kind;
            x[2] = (double)op->p.glu.alpha;
            x[3] = (double)op->p.glu.limit;
        } else if (op->kind == OP_ROPE) {
            x[1] = op->p.rope.table;
        } else if (op->kind == OP_RECURRENCE) {
            x[1] = op->p.rec.kind;
            x[2] = op->p.rec.tiled;
            x[3] = op->p.rec.n_key_heads;
        } else {
            continue;
        }
        h = XXH3_64bits_withSeed(x, sizeof x, h);
    }
    return h;
}

/* What must be equal for a state to mean the same: the executor's kind, the rounding, numbers that
 * the program computes with, shapes and names of all weights, the values of those that are vectors
 * (norms and biases: few), and the beginning of every matrix that is mapped (a training of matrices
 * alone changes that). */
int engine_key(struct fletch_model *m, u64 *key, struct err *err)
{
    const struct net *net = m->m->net;
    const struct profile *p = &net->profile;
    const u32 numbers[] = {
        (u32)p->kv, p->int8,      (u32)p->bf16, p->int8_experts, m->limits.block_tokens,
        net->n_kv,  net->n_states};
    const struct hparams *hp = &m->m->hp;
    const float reals[] = {hp->eps,
                           hp->rope_base,
                           hp->rope_factor,
                           hp->eps_mla,
                           hp->rope_attn_factor,
                           hp->expert_scale,
                           (float)hp->n_rot,
                           (float)hp->rope_ctx,
                           (float)hp->rope_scaling,
                           hp->yarn_fast,
                           hp->yarn_slow,
                           hp->yarn_log_mul,
                           hp->attention_scale};
    const char *name = m->engine->class->name;
    u64 h = XXH3_64bits_withSeed(numbers, sizeof numbers, XXH3_64bits(name, strlen(name)));
    h = XXH3_64bits_withSeed(reals, sizeof reals, h);
    /* the factors of the frequencies are no weights, and a context may choose between two tables */
    for (u32 i = 0; i < NET_ROPES; i++) {
        const struct rope_table *r = &net->rope[i];
        if (!r->n_rot) continue;
        const double scales[] = {r->mscale, r->grow, r->grow_every, r->grow_from};
        h = XXH3_64bits_withSeed(scales, sizeof scales, h);
        h = XXH3_64bits_withSeed(rope_freq(r, m->limits.max_pos), r->n_rot / 2 * sizeof *r->freq,
                                 h);
    }
    h = hash_parameters(m->m->trunk, h);
    for (u32 i = 0; i < net->n_weights; i++) {
        const struct weight *w = &net->weights[i];
        const u64 shape[] = {w->type, w->n_in, w->n_out, w->n_slices, h};
        const struct bound *b = &m->m->bind.bound[i];
        const u8 *data;
        h = XXH3_64bits_withSeed(shape, sizeof shape, XXH3_64bits(w->name, strlen(w->name)));
        bool is_vector = w->n_out == 1 && w->n_slices == 1;
        if (!b->tensor || (!is_vector && b->tensor->recipe))
            continue; /* a constant's name says it */
        int rc = source_data(m->m->source, b->tensor, &data, err);
        if (rc) return rc;
        u64 n = is_vector ? w->n_bytes : MIN(w->n_bytes, (u64)SAMPLE_BYTES);
        h = XXH3_64bits_withSeed(data + b->offset, n, h);
    }
    *key = h;
    return 0;
}

/* A session's parts in a row: its cache blocks, or its recurrent state. */
static u64 n_parts(const struct fletch_session *s, enum exec_part part, u32 n_tokens)
{
    const struct net *net = s->model->m->net;
    if (part == PART_STATE) return net->n_states && n_tokens;
    return net->n_kv ? kv_blocks_for(&s->model->kv, n_tokens) : 0;
}

static u64 part_bytes(const struct fletch_session *s, enum exec_part part)
{
    return exec_part_bytes(s->model->m->net, &s->model->limits, part);
}

static u64 state_bytes(const struct fletch_session *s, u32 n_tokens)
{
    return n_parts(s, PART_BLOCK, n_tokens) * part_bytes(s, PART_BLOCK) +
           n_parts(s, PART_STATE, n_tokens) * part_bytes(s, PART_STATE);
}

static u32 part_index(const struct fletch_session *s, enum exec_part part, u32 i)
{
    const struct step *step = s->model->step;
    if (part == PART_BLOCK) return step->tables[(size_t)s->seq.slot * step->table_len + i];
    return spec_slot(s->model->spec, s->seq.slot, s->seq.aside);
}

static int save_parts(struct fletch_session *s, struct statefile_out *f)
{
    int rc = 0;
    for (enum exec_part part = PART_BLOCK; part <= PART_STATE && !rc; part++) {
        u64 bytes = part_bytes(s, part);
        u8 *buffer = malloc(bytes + 1);
        if (!buffer) rc = err_nomem(&s->err, "the state");
        for (u32 i = 0; !rc && i < n_parts(s, part, s->seq.n); i++) {
            rc = step_queue_move(&s->model->queue, part, part_index(s, part, i), buffer, NULL,
                                 &s->err);
            if (!rc) rc = statefile_add(f, buffer, bytes, &s->err);
        }
        free(buffer);
    }
    return rc;
}

int fletch_session_save(struct fletch_session *s, const char *path, const char *note, size_t n_note)
{
    struct statefile_out *f = NULL;
    enum session_state was;
    u64 key;
    if (!s) return FLETCH_E_ARG;
    int rc = engine_need(&s->err, path, "the path of the session file");
    if (!rc) rc = engine_need_all(&s->err, note, n_note, "the note");
    if (rc) return rc;
    if ((rc = session_begin(s, &was))) return rc;
    const struct batch_seq *q = &s->seq;
    rc = session_prefill(s, q->n);
    if (!rc) rc = engine_key(s->model, &key, &s->err);
    if (!rc)
        rc = statefile_begin(&f, path, key, q->tokens, q->n, (struct str){note, n_note},
                             state_bytes(s, q->n), &s->err);
    turns_take(&s->model->turns);
    if (!rc) rc = save_parts(s, f);
    turns_give(&s->model->turns);
    session_set(s, was);
    return statefile_end(f, rc, &s->err);
}

/* Numbers that a checksum does not make sensible. */
static int check_file(const struct fletch_session *s, const struct statefile *f, struct err *err)
{
    const struct fletch_model *m = s->model;
    if (f->n_tokens >= m->limits.max_pos)
        return err_set(err, FLETCH_E_CONTEXT,
                       "its %u tokens fill the context of %u; set a longer one with -c",
                       f->n_tokens, m->limits.max_pos);
    if (f->n_state != state_bytes(s, f->n_tokens))
        return err_set(err, FLETCH_E_FORMAT, "its state has the wrong size for this model");
    for (u32 i = 0; i < f->n_tokens; i++) {
        i32 token;
        memcpy(&token, f->tokens + i * sizeof token, sizeof token);
        if (token < 0 || (u32)token >= m->m->hp.n_vocab)
            return err_set(err, FLETCH_E_FORMAT, "token id %d is outside the model's vocabulary",
                           (int)token);
    }
    return 0;
}

static int load_parts(struct fletch_session *s, const struct statefile *f)
{
    struct fletch_model *m = s->model;
    const u8 *at = f->state;
    int rc = 0;
    u32 *table = m->step->tables + (size_t)s->seq.slot * m->step->table_len;
    if (m->limits.n_blocks && !kv_cover(&m->kv, table, &s->seq.n_blocks, f->n_tokens))
        return err_set(&s->err, FLETCH_E_CONTEXT, "no cache blocks are left");
    for (enum exec_part part = PART_BLOCK; part <= PART_STATE; part++)
        for (u32 i = 0; !rc && i < n_parts(s, part, f->n_tokens); i++, at += part_bytes(s, part))
            rc = step_queue_move(&m->queue, part, part_index(s, part, i), NULL, at, &s->err);
    if (rc) return rc;
    memcpy(s->seq.tokens, f->tokens, f->n_tokens * sizeof *s->seq.tokens);
    s->seq.n = s->seq.n_fed = f->n_tokens;
    memset(s->seq.classes, ROW_P, f->n_tokens);
    session_set(s, SESSION_RUNNING);
    session_set(s, f->n_tokens ? SESSION_PARTIAL : SESSION_EMPTY);
    return 0;
}

int fletch_session_load(struct fletch_session *s, const char *path, char **note, size_t *n_note)
{
    struct file_map map;
    struct statefile f;
    enum session_state was;
    char *text = NULL;
    u64 key;
    if (note) *note = NULL;
    if (n_note) *n_note = 0;
    if (!s) return FLETCH_E_ARG;
    int rc = engine_need(&s->err, path, "the path of the session file");
    if (rc) return rc;
    if ((rc = session_begin(s, &was))) return rc;
    session_set(s, was);
    fletch_session_reset(s);
    rc = engine_key(s->model, &key, &s->err);
    if (!rc) rc = file_map_open(&map, path, &s->err);
    if (rc) return rc;
    rc = statefile_read(&f, map.p, map.n, key, &s->err);
    if (!rc) rc = check_file(s, &f, &s->err);
    if (!rc && note && !(text = malloc(f.note.n + 1))) rc = err_nomem(&s->err, "the note");
    turns_take(&s->model->turns);
    if (!rc) rc = load_parts(s, &f);
    turns_give(&s->model->turns);
    if (!rc && note) {
        memcpy(text, f.note.p, f.note.n);
        text[f.note.n] = 0;
        *note = text;
        if (n_note) *n_note = f.note.n;
    } else if (rc) {
        free(text);
        fletch_session_reset(s);
        err_prefix(&s->err, "%s", QUOTE(str_of(path)));
    }
    file_map_close(&map);
    return rc;
}
