#include "model/model.h"

#include <stdlib.h>

#include "model/known.h"
#include "model/rank.h"
#include "model/rope.h"

void model_close(struct model *m)
{
    if (!m) return;
    rank_close(m->rank);
    prog_close(m->mtp);
    prog_close(m->trunk);
    bind_free(&m->bind);
    net_close(m->net);
    vocab_close(m->vocab);
    source_close(m->source);
    free(m);
}

/* Some files announce MTP blocks and leave them out. */
static bool has_mtp(const struct model *m)
{
    return m->hp.n_mtp && bind_has(&m->bind, "blk.%u.nextn.eh_proj", m->hp.n_layers);
}

static int record(struct model *m, struct err *err)
{
    int rc = prog_open(&m->trunk, m->net, "trunk", err);
    bind_init(&m->bind, m->source, m->net, err);
    if (!rc && has_mtp(m)) rc = prog_open(&m->mtp, m->net, "mtp", err);
    if (rc) return rc;
    struct build b = {.hp = &m->hp, .bind = m->bind, .p = m->trunk, .mtp = m->mtp, .err = err};
    rc = m->arch->record(&b);
    m->bind = b.bind;
    return rc ? rc : b.bind.rc;
}

/* Do most products meet weights that bf16 for floats alone changes? Where few do, rows of prompts
 * are better multiplied as all others: then they share steps. */
static bool has_halves(const struct net *net)
{
    u64 halves = 0, all = 0;
    for (u32 i = 0; i < net->n_weights; i++) {
        const struct weight *w = &net->weights[i];
        u64 n = w->plain ? 0 : (u64)w->n_in * w->n_out * w->n_slices;
        all += n;
        if (w->type == QT_F16 || w->type == QT_BF16) halves += n;
    }
    return halves > all / 2;
}

static int open_parts(struct model *m, struct profile profile, struct err *err)
{
    int rc = hparams_read(&m->hp, m->source, err);
    if (rc) return rc;
    m->arch = arch_find(m->hp.arch);
    if ((rc = vocab_load(&m->vocab, m->source, err))) return rc;
    if (m->vocab->tok && m->vocab->spec.n_tokens > m->hp.n_vocab)
        return err_set(err, FLETCH_E_FORMAT, "%u tokens but only %u rows in token_embd.weight",
                       m->vocab->spec.n_tokens, m->hp.n_vocab);
    if ((rc = net_open(&m->net, err))) return rc;
    m->net->profile = profile;
    m->net->n_vocab = m->hp.n_vocab;
    m->net->d_model = m->hp.d_model;
    if ((rc = rope_fill(m->net, &m->hp, m->source, err))) return rc;
    known_check_keys(m->source, &m->hp);
    rc = record(m, err);
    if (!rc) rc = rank_open(&m->rank, m, err);
    if (!rc && profile.bf16 == BF16_FLOATS && !has_halves(m->net))
        m->net->profile.bf16 = BF16_NOWHERE;
    if (!rc) known_check_tensors(m->source, &m->hp);
    /* a key that is not supported is often why a tensor is missing */
    int refused = m->source->ignore_unknown ? 0 : source_refused_error(m->source, err);
    return refused ? refused : rc;
}

int model_open(struct model **out, struct source *s, struct profile profile, struct err *err)
{
    struct model *m = *out = calloc(1, sizeof *m);
    if (!m) {
        source_close(s);
        return err_nomem(err, "the model");
    }
    m->source = s;
    int rc = open_parts(m, profile, err);
    if (rc) {
        model_close(m);
        *out = NULL;
    }
    return rc;
}

static int open_text(struct model *m, struct err *err)
{
    int rc = vocab_load(&m->vocab, m->source, err);
    if (rc) return rc;
    known_check_keys(m->source, &m->hp);
    hparams_read_names(&m->hp, m->source);
    m->hp.n_vocab = m->vocab->spec.n_tokens;
    return m->source->ignore_unknown ? 0 : source_refused_error(m->source, err);
}

int model_open_text(struct model **out, struct source *s, struct err *err)
{
    struct model *m = *out = calloc(1, sizeof *m);
    if (!m) {
        source_close(s);
        return err_nomem(err, "the model");
    }
    m->source = s;
    int rc = open_text(m, err);
    if (rc) {
        model_close(m);
        *out = NULL;
    }
    return rc;
}

int model_probe(struct model **out, const char *path, struct err *err)
{
    struct source *s;
    *out = NULL;
    int rc = source_open(&s, path, err);
    if (rc) return rc;
    s->ignore_unknown = true;
    return model_open(out, s, (struct profile){.kv = CACHE_F32}, err);
}

u64 model_weight_bytes(const struct model *m)
{
    u64 sum = 0;
    for (u32 i = 0; m->net && i < m->net->n_weights; i++) sum += m->net->weights[i].n_bytes;
    return sum;
}

int model_place(struct model *m, struct exec *x, fletch_progress progress, void *ctx,
                struct err *err)
{
    u64 done = 0, total = model_weight_bytes(m);
    for (u32 i = 0; i < m->net->n_weights; i++) {
        struct weight *w = &m->net->weights[i];
        const struct bound *b = &m->bind.bound[i];
        const u8 *data;
        int rc = b->tensor ? source_data(m->source, b->tensor, &data, err) : 0;
        if (rc) return rc;
        if (b->tensor) w->data = data + b->offset;
        if ((rc = x->class->weight(x, i, err))) return rc;
        if (!x->class->keeps_weights && b->tensor) {
            w->data = NULL;
            source_drop(m->source, b->tensor);
        }
        done += w->n_bytes;
        if ((rc = err_progress(err, progress, ctx, done, total))) return rc;
    }
    return 0;
}
