/* Copies a source into a GGUF file, tensor by tensor and slice by slice: of mapped tensors at
 * most a slice is held in memory, of made ones (hf.h) one tensor. Blocks don't know each other,
 * so a tensor is a row of equal units that threads share. */
#include "model/convert.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/pool.h"
#include "format/gguf.h"
#include "model/model.h"

enum {
    UNIT = 4096,        /* elements: a multiple of every block */
    SLICE = 512 * UNIT, /* elements */
};

/* One tensor of the output. */
struct item {
    const struct tensor *from;
    struct tensor to;
};

struct convert {
    struct source *src, *meta;
    struct vocab *vocab;
    struct gguf_writer *writer;
    struct pool *pool;
    u32 n_items;
    struct item *items;
    u8 *slice; /* SLICE elements in the widest type */
    u64 done, total;
    struct fletch_convert_params params;
};

/* Metadata */

static bool is_ours(struct str key)
{
    return str_starts(key, "split.") || str_is(key, "general.file_type") ||
           str_is(key, "general.quantization_version");
}

static int plan_metadata(struct convert *c, const struct convert_type *type, const char *out,
                         struct err *err)
{
    int rc = source_new(&c->meta, out, err);
    for (u32 i = 0; i < c->src->n_kvs && rc == 0; i++)
        if (!is_ours(c->src->kvs[i].key)) rc = source_add_kv(c->meta, &c->src->kvs[i], err);
    if (rc == 0) rc = source_add_u32(c->meta, "general.file_type", type->file_type, err);
    if (rc == 0) rc = source_add_u32(c->meta, "general.quantization_version", 2, err);
    if (rc == 0 && c->src->is_dir) {
        rc = vocab_load(&c->vocab, c->src, err);
        if (rc == 0) rc = vocab_to_source(c->vocab, c->meta, err);
    }
    for (u32 i = 0; rc == 0 && i < c->meta->n_kvs; i++)
        rc = gguf_writer_kv(c->writer, &c->meta->kvs[i], err);
    return rc;
}

/* Tensors */

static int plan_tensor(struct convert *c, const struct tensor *from, struct str name,
                       enum qtype type, struct err *err)
{
    const struct quant_info *q = quant_info(from->type);
    struct item *it = &c->items[c->n_items++];
    *it = (struct item){from, *from};
    it->to.name = name;
    it->to.type = type;
    if (!q->readable)
        return err_set(err, FLETCH_E_UNSUPPORTED, "tensor %s has type %s, which is not supported",
                       QUOTE(name), q->name);
    if (!quant_bytes(type, from->n_elems, &it->to.n_bytes) ||
        !CK_ADD(c->total, it->to.n_bytes, &c->total))
        return err_set(err, FLETCH_E_LIMIT, "tensor %s would be too large", QUOTE(name));
    return gguf_writer_tensor(c->writer, &it->to, err);
}

/* Other engines want block 0 of RWKV-7 to have the value mix that it doesn't use: copies of a. */
static const char *dummy_for(const struct convert *c, const struct tensor *t)
{
    static const char *const pairs[][2] = {
        {"blk.0.time_mix_a0.weight", "blk.0.time_mix_v0.weight"},
        {"blk.0.time_mix_a1.weight", "blk.0.time_mix_v1.weight"},
        {"blk.0.time_mix_a2.weight", "blk.0.time_mix_v2.weight"},
    };
    struct str arch;
    if (source_get_str(c->src, "general.architecture", &arch, NULL) || !str_is(arch, "rwkv7"))
        return NULL;
    for (size_t i = 0; i < ARRAY_LEN(pairs); i++)
        if (str_is(t->name, pairs[i][0]) && !source_tensor(c->src, pairs[i][1])) return pairs[i][1];
    return NULL;
}

static int plan_tensors(struct convert *c, const struct convert_type *type, struct err *err)
{
    struct convert_model m;
    int rc = 0;
    convert_describe(&m, c->src);
    c->items = calloc((size_t)c->src->n_tensors + 3, sizeof *c->items); /* 3 dummies */
    if (!c->items) return err_nomem(err, "the list of tensors");
    for (u32 i = 0; i < c->src->n_tensors && rc == 0; i++) {
        const struct tensor *t = &c->src->tensors[i];
        const char *dummy = dummy_for(c, t);
        enum qtype q = convert_choose(type, &m, t);
        rc = plan_tensor(c, t, t->name, q, err);
        if (rc == 0 && dummy) rc = plan_tensor(c, t, str_of(dummy), q, err);
    }
    return rc;
}

/* Data */

enum { BAD_SOURCE = 1, BAD_RESULT = 2 };

struct job {
    enum qtype from, to;
    const u8 *src;
    u8 *dst;
    u64 n;          /* elements in the slice */
    atomic_int bad; /* enum above */
};

static bool all_finite(const float *f, u64 n)
{
    for (u64 i = 0; i < n; i++)
        if (!isfinite(f[i])) return false;
    return true;
}

static u64 bytes_of(enum qtype type, u64 n)
{
    u64 bytes;
    CHECK(quant_bytes(type, n, &bytes));
    return bytes;
}

/* Units begin..end of the slice. */
static void convert_units(void *ctx, u64 begin, u64 end)
{
    struct job *j = ctx;
    float raw[UNIT], f[UNIT]; /* raw holds any type, aligned */
    for (u64 u = begin; u < end; u++) {
        u64 at = u * UNIT, n = MIN(j->n - at, (u64)UNIT);
        memcpy(raw, j->src + bytes_of(j->from, at), (size_t)bytes_of(j->from, n));
        quant_decode(j->from, raw, f, n);
        if (!quant_encode(j->to, f, j->dst + bytes_of(j->to, at), n))
            atomic_fetch_or(&j->bad, all_finite(f, n) ? BAD_RESULT : BAD_SOURCE);
    }
}

static int write_slice(struct convert *c, const struct item *it, const u8 *src, u64 at, u64 n,
                       struct err *err)
{
    struct job j = {it->from->type, it->to.type, src + bytes_of(it->from->type, at),
                    c->slice,       n,           0};
    u64 n_bytes = bytes_of(j.to, n);
    if (j.from == j.to)
        j.dst = (u8 *)(uintptr_t)j.src; /* as it stands */
    else
        pool_run(c->pool, convert_units, &j, (n + UNIT - 1) / UNIT);
    if (atomic_load(&j.bad) & BAD_SOURCE)
        return err_set(err, FLETCH_E_FORMAT, "tensor %s contains NaN or infinite weights",
                       QUOTE(it->from->name));
    if (atomic_load(&j.bad))
        return err_set(
            err, FLETCH_E_FORMAT,
            "tensor %s contains weights outside the range of %s; convert to bf16 instead",
            QUOTE(it->from->name), quant_info(j.to)->name);
    int rc = gguf_writer_data(c->writer, j.dst, (size_t)n_bytes, err);
    c->done += n_bytes;
    return rc ? rc : err_progress(err, c->params.progress, c->params.ctx, c->done, c->total);
}

static int write_tensor(struct convert *c, const struct item *it, struct err *err)
{
    const u8 *data;
    int rc = source_data(c->src, it->from, &data, err);
    for (u64 at = 0; at < it->from->n_elems && rc == 0; at += SLICE)
        rc = write_slice(c, it, data, at, MIN(it->from->n_elems - at, (u64)SLICE), err);
    source_drop(c->src, it->from);
    return rc;
}

/* Running */

/* The same file under any spelling of its path. */
static bool is_same_file(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* What the model says and nothing honours. A file of a kind that can't be opened is copied all the
 * same: opening the copy tells it. */
static int check_known(const struct convert *c, const char *in, struct err *err)
{
    const struct fletch_convert_params *params = &c->params;
    struct model *m;
    struct err why = {0};
    const struct source *s = model_probe(&m, in, &why) ? c->src : m->source;
    int rc = why.code == FLETCH_E_NOMEM ? err_nomem(err, "the model") : 0;
    if (!rc && !params->ignore_unknown) rc = source_refused_error(s, err);
    if (rc == FLETCH_E_UNSUPPORTED) err_prefix(err, "%s", QUOTE(str_of(in)));
    if (!rc && params->notice && s->left_out) params->notice(params->notice_ctx, s->left_out);
    for (u32 i = 0; !rc && params->notice && i < s->refused->n; i++) {
        char text[400];
        snprintf(text, sizeof text, "ignored, at your own risk: %s", s->refused->lines[i]);
        params->notice(params->notice_ctx, text);
    }
    model_close(m);
    return rc;
}

static int convert_all(struct convert *c, const char *in, const char *out,
                       const struct convert_type *type, u32 n_threads, struct err *err)
{
    int rc = source_open(&c->src, in, err);
    if (rc == 0) rc = check_known(c, in, err);
    if (rc == 0) rc = pool_open(&c->pool, n_threads, err);
    if (rc == 0 && !(c->slice = malloc(SLICE * sizeof(float)))) rc = err_nomem(err, "a slice");
    if (rc == 0) rc = gguf_writer_open(&c->writer, out, err);
    if (rc == 0) rc = plan_metadata(c, type, out, err);
    if (rc == 0) rc = plan_tensors(c, type, err);
    for (u32 i = 0; i < c->n_items && rc == 0; i++) rc = write_tensor(c, &c->items[i], err);
    return rc ? rc : gguf_writer_finish(c->writer, err);
}

int convert_run(const char *in, const char *out, const char *type_name, u32 n_threads,
                const struct fletch_convert_params *params, struct err *err)
{
    const struct convert_type *type = convert_type_by_name(type_name, err);
    struct convert c = {0};
    if (params) c.params = *params;
    if (!type) return FLETCH_E_ARG;
    if (is_same_file(in, out))
        return err_set(err, FLETCH_E_ARG,
                       "%s is the input file; choose another name for the output",
                       QUOTE(str_of(out)));
    int rc = convert_all(&c, in, out, type, n_threads, err);
    gguf_writer_close(c.writer);
    pool_close(c.pool);
    vocab_close(c.vocab);
    source_close(c.meta);
    source_close(c.src);
    free(c.items);
    free(c.slice);
    return rc;
}
