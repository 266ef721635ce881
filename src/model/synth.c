/* Synthetic models: what synth_shape.c declares, in the storage types that convert would choose;
 * and files of them, with the bytes of synth_fill.c. */
#include "model/synth.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/pool.h"
#include "format/gguf.h"
#include "model/convert.h"

enum {
    UNIT = 4096,        /* elements: a multiple of every block */
    SLICE = 512 * UNIT, /* elements made before they are written */
};

struct synth {
    struct source *decl;
    struct gguf_writer *writer;
    struct pool *pool;
    u8 *slice;
    u64 done, total;
    const struct synth_params *params;
};

struct fill_job {
    const struct tensor *t;
    struct synth_range range;
    u64 seed, at, n; /* elements of the slice */
    u8 *dst;
};

static void fill_units(void *ctx, u64 begin, u64 end)
{
    const struct fill_job *j = ctx;
    const struct quant_info *q = quant_info(j->t->type);
    u64 from = begin * UNIT, to = MIN(end * UNIT, j->n);
    synth_fill(j->t->type, j->seed, j->range, (j->at + from) / q->blk, (to - from) / q->blk,
               j->dst + from / q->blk * q->bytes);
}

/* Llama 3's scaling as a factor per rotated pair: long waves slower, those between blended. Of
 * Gemma 4's whole heads only the first quarter of the pairs turn. */
static void fill_rope_freqs(const struct synth_shape *s, u64 n, float *dst)
{
    const double low = 1, high = 4, ctx = 8192, factor = s->rope_llama3;
    for (u64 i = 0; s->head_full && i < n; i++) dst[i] = i < n / 4 ? 1 : 1e30f;
    for (u64 i = 0; !s->head_full && i < n; i++) {
        double wave = 2 * M_PI * pow(s->rope_base, 2.0 * (double)i / s->head);
        double blend = (ctx / wave - low) / (high - low);
        dst[i] = (float)(wave < ctx / high  ? 1
                         : wave > ctx / low ? factor
                                            : 1 / ((1 - blend) / factor + blend));
    }
}

static int write_tensor(struct synth *y, u32 id, struct err *err)
{
    const struct tensor *t = &y->decl->tensors[id];
    const struct quant_info *q = quant_info(t->type);
    u64 seed = (y->params->seed + 1) * 0x9e3779b97f4a7c15u ^ (u64)id * 0xd1342543de82ef95u;
    int rc = 0;
    for (u64 at = 0; at < t->n_elems && rc == 0; at += SLICE) {
        struct fill_job j = {t,       synth_range(t), seed, at, MIN(t->n_elems - at, (u64)SLICE),
                             y->slice};
        u64 n_bytes = j.n / q->blk * q->bytes;
        if (!t->data) pool_run(y->pool, fill_units, &j, (j.n + UNIT - 1) / UNIT);
        rc = gguf_writer_data(y->writer, t->data ? t->data : y->slice, (size_t)n_bytes, err);
        y->done += n_bytes;
        if (!rc) rc = err_progress(err, y->params->progress, y->params->ctx, y->done, y->total);
    }
    return rc;
}

/* The types of converted files: RWKV's low-rank matrices, which convert keeps as they are, come
 * from checkpoints of 16 bits. */
static void choose_types(struct source *s, const struct synth_shape *shape,
                         const struct convert_type *type)
{
    struct convert_model m;
    convert_describe(&m, s);
    for (u32 i = 0; i < s->n_tensors; i++) {
        struct tensor *t = &s->tensors[i];
        enum qtype q = convert_choose(type, &m, t);
        bool low_rank = shape->rank_decay && t->n_dims == 2 && q == QT_F32 &&
                        !memmem(t->name.p, t->name.n, "time_mix_w", 10);
        t->type = low_rank && type->base != QT_F32 ? QT_F16 : q;
        CHECK(quant_bytes(t->type, t->n_elems, &t->n_bytes));
    }
}

static int add_rope_freqs(struct source *s, const struct synth_shape *shape, struct err *err)
{
    for (u32 i = 0; i < s->n_tensors; i++) {
        struct tensor *t = &s->tensors[i];
        if (!str_is(t->name, "rope_freqs.weight")) continue;
        float *freqs = arena_alloc(&s->arena, t->n_elems, sizeof *freqs);
        if (!freqs) return err_nomem(err, "the rotary factors");
        fill_rope_freqs(shape, t->n_elems, freqs);
        t->data = (const u8 *)freqs;
    }
    return 0;
}

int synth_source(struct source **out, const struct synth_shape *shape, const char *type,
                 u32 n_layers, struct err *err)
{
    const struct convert_type *to = convert_type_by_name(type, err);
    *out = NULL;
    if (!to) return FLETCH_E_ARG;
    int rc = synth_declare(out, shape, n_layers, err);
    if (rc) return rc;
    choose_types(*out, shape, to);
    rc = source_add_u32(*out, "general.file_type", to->file_type, err);
    if (!rc) rc = source_add_u32(*out, "general.quantization_version", 2, err);
    if (!rc) rc = add_rope_freqs(*out, shape, err);
    if (rc) {
        source_close(*out);
        *out = NULL;
    }
    return rc;
}

static int write_all(struct synth *y, const char *out, struct err *err)
{
    const struct synth_params *p = y->params;
    int rc = synth_source(&y->decl, p->shape, p->type, p->n_layers, err);
    if (rc == 0) rc = pool_open(&y->pool, p->n_threads, err);
    if (rc == 0 && !(y->slice = malloc(SLICE * sizeof(float)))) rc = err_nomem(err, "a slice");
    if (rc == 0) rc = gguf_writer_open(&y->writer, out, err);
    for (u32 i = 0; rc == 0 && i < y->decl->n_kvs; i++)
        rc = gguf_writer_kv(y->writer, &y->decl->kvs[i], err);
    for (u32 i = 0; rc == 0 && i < y->decl->n_tensors; i++) {
        y->total += y->decl->tensors[i].n_bytes;
        rc = gguf_writer_tensor(y->writer, &y->decl->tensors[i], err);
    }
    for (u32 i = 0; rc == 0 && i < y->decl->n_tensors; i++) rc = write_tensor(y, i, err);
    return rc ? rc : gguf_writer_finish(y->writer, err);
}

int synth_run(const char *out, const struct synth_params *params, struct err *err)
{
    struct synth y = {.params = params};
    int rc = write_all(&y, out, err);
    gguf_writer_close(y.writer);
    pool_close(y.pool);
    source_close(y.decl);
    free(y.slice);
    return rc;
}
