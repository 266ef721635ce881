/* Reads one GGUF image. Nothing in it is believed: counts are bounded by the bytes that are
 * left before anything is allocated for them, every length is compared with what remains, and
 * tensors must lie inside the data section without touching each other. Keys, values and
 * tensors stay where they are in the mapping; a source only points at them. */
#include "format/gguf.h"

#include <stdlib.h>
#include <string.h>

#include "format/foreign.h"

enum {
    MIN_FILE = 24,        /* magic, version, two counts */
    MIN_KV = 14,          /* key length, one byte of key, type, one byte of value */
    MIN_TENSOR = 25,      /* name length, one byte of name, n_dims, type, offset */
    MAX_VALUE = 64 << 20, /* bytes of a string value */
    MAX_ARRAY = 1 << 30,  /* elements */
};

struct reader {
    const u8 *p;
    u64 n, at; /* at <= n always */
    struct err *err;
};

static int truncated(struct reader *r, const char *what)
{
    return err_set(r->err, FLETCH_E_FORMAT,
                   "the file ends inside %s (%llu bytes in all); it is damaged or not completely "
                   "downloaded",
                   what, (unsigned long long)r->n);
}

/* Little-endian integers; false when the file ends. */
static bool get_le(struct reader *r, u32 n, u64 *out)
{
    if (r->n - r->at < n) return false;
    *out = 0;
    for (u32 i = n; i-- > 0;) *out = *out << 8 | r->p[r->at + i];
    r->at += n;
    return true;
}

static bool get_u32(struct reader *r, u32 *out)
{
    u64 v;
    if (!get_le(r, 4, &v)) return false;
    *out = (u32)v;
    return true;
}

static bool get_str(struct reader *r, struct str *out)
{
    u64 n;
    if (!get_le(r, 8, &n) || n > r->n - r->at) return false;
    *out = (struct str){(const char *)r->p + r->at, (size_t)n};
    r->at += n;
    return true;
}

static int read_header(struct reader *r, const char *path, u32 *version, u64 *n_tensors, u64 *n_kvs)
{
    if (r->n < 4 || memcmp(r->p, "GGUF", 4) != 0) {
        const char *what = foreign_describe(path, r->p, r->n);
        if (what) return err_set(r->err, FLETCH_E_FORMAT, "not a GGUF file: %s", what);
        return err_set(r->err, FLETCH_E_FORMAT, "not a GGUF file (its first bytes are not GGUF)");
    }
    if (r->n < MIN_FILE) return truncated(r, "the header");
    r->at = 4;
    CHECK(get_u32(r, version) && get_le(r, 8, n_tensors) && get_le(r, 8, n_kvs));
    if (*version != 0 && (*version & 0xffff) == 0)
        return err_set(r->err, FLETCH_E_UNSUPPORTED,
                       "big-endian GGUF is not supported; convert the file to little-endian");
    if (*version != 2 && *version != 3)
        return err_set(r->err, FLETCH_E_UNSUPPORTED,
                       "GGUF version %u is not supported; the supported versions are 2 and 3",
                       *version);
    u64 left = r->n - r->at;
    if (*n_kvs > left / MIN_KV || *n_tensors > left / MIN_TENSOR)
        return err_set(r->err, FLETCH_E_FORMAT,
                       "the header claims %llu metadata entries and %llu tensors, more than fit in "
                       "the file's %llu bytes",
                       (unsigned long long)*n_kvs, (unsigned long long)*n_tensors,
                       (unsigned long long)r->n);
    if (*n_kvs > SOURCE_MAX_ENTRIES || *n_tensors > SOURCE_MAX_ENTRIES)
        return err_set(r->err, FLETCH_E_LIMIT,
                       "%llu metadata entries and %llu tensors; at most %d of each are allowed",
                       (unsigned long long)*n_kvs, (unsigned long long)*n_tensors,
                       SOURCE_MAX_ENTRIES);
    return 0;
}

/* kv->n strings, each with its length in front. */
static int skip_strs(struct reader *r, const struct kv *kv)
{
    for (u64 i = 0; i < kv->n; i++) {
        struct str s;
        if (!get_str(r, &s)) {
            int rc = truncated(r, "a string");
            err_prefix(r->err, "metadata key %s", QUOTE(kv->key));
            return rc;
        }
        if (s.n > MAX_VALUE)
            return err_set(r->err, FLETCH_E_LIMIT,
                           "metadata key %s has a string of %zu bytes; at most %d are allowed",
                           QUOTE(kv->key), s.n, MAX_VALUE);
    }
    return 0;
}

static int read_kv(struct reader *r, struct kv *kv)
{
    u32 type, elem;
    *kv = (struct kv){.n = 1};
    if (!get_str(r, &kv->key) || !get_u32(r, &type)) return truncated(r, "a metadata key");
    if (type >= KV_COUNT)
        return err_set(r->err, FLETCH_E_FORMAT, "metadata key %s has unknown type %u",
                       QUOTE(kv->key), type);
    elem = type;
    if (type == KV_ARRAY) {
        if (!get_u32(r, &elem) || !get_le(r, 8, &kv->n)) return truncated(r, "a metadata array");
        if (elem >= KV_COUNT || elem == KV_ARRAY)
            return err_set(r->err, FLETCH_E_FORMAT, "metadata key %s has an array of type %u (%s)",
                           QUOTE(kv->key), elem, kv_type_name((enum kv_type)elem));
    }
    kv->type = (enum kv_type)type;
    kv->elem = (enum kv_type)elem;
    u64 size = kv->elem == KV_STR ? 8 : kv_size(kv->elem), left = r->n - r->at;
    if (kv->n > left / size)
        return err_set(r->err, FLETCH_E_FORMAT,
                       "metadata key %s: %llu values of type %s, but only %llu bytes of the file "
                       "are left",
                       QUOTE(kv->key), (unsigned long long)kv->n, kv_type_name(kv->elem),
                       (unsigned long long)left);
    if (kv->n > MAX_ARRAY)
        return err_set(r->err, FLETCH_E_LIMIT,
                       "metadata key %s has an array of %llu values; at most %d are allowed",
                       QUOTE(kv->key), (unsigned long long)kv->n, MAX_ARRAY);
    u64 start = r->at;
    kv->data = r->p + start;
    if (kv->elem == KV_STR) {
        int rc = skip_strs(r, kv);
        if (rc) return rc;
    } else {
        r->at += kv->n * size;
    }
    kv->n_bytes = r->at - start;
    return 0;
}

int gguf_alignment(const struct source *s, u64 *out, struct err *err)
{
    const struct kv *kv = source_kv(s, "general.alignment");
    i64 v;
    if (!kv) return 0;
    if (kv->type != KV_U32 || !kv_int(kv, 0, &v))
        return err_set(err, FLETCH_E_FORMAT, "general.alignment must be a u32, not %s",
                       kv_type_name(kv->type));
    if (v == 0 || (v & (v - 1)) != 0 || v > GGUF_MAX_ALIGNMENT)
        return err_set(err, FLETCH_E_FORMAT,
                       "general.alignment is %lld; it must be a power of two up to %d",
                       (long long)v, GGUF_MAX_ALIGNMENT);
    *out = (u64)v;
    return 0;
}

/* Where a tensor's bytes lie, relative to the data section. */
struct extent {
    u64 begin, end;
    u32 tensor;
};

static int read_tensor(struct source *s, struct reader *r, struct extent *x)
{
    struct tensor t = {0};
    u32 type = QT_F32;
    if (!get_str(r, &t.name) || !get_u32(r, &t.n_dims)) return truncated(r, "a tensor's name");
    if (t.n_dims <= 4) { /* more are refused by source_add_tensor */
        for (u32 i = 0; i < t.n_dims; i++)
            if (!get_le(r, 8, &t.ne[i])) return truncated(r, "a tensor's dimensions");
        if (!get_u32(r, &type) || !get_le(r, 8, &x->begin))
            return truncated(r, "a tensor's type and offset");
    }
    t.type = (enum qtype)type;
    x->tensor = s->n_tensors;
    int rc = source_add_tensor(s, &t, r->err);
    if (rc) return rc;
    if (x->begin % s->alignment)
        return err_set(r->err, FLETCH_E_FORMAT,
                       "tensor %s: offset %llu is not a multiple of the alignment %llu",
                       QUOTE(t.name), (unsigned long long)x->begin,
                       (unsigned long long)s->alignment);
    return 0;
}

static int extent_order(const void *a, const void *b)
{
    const struct extent *x = a, *y = b;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

/* Gives every tensor its place in the data section, which begins at r->at rounded up. */
static int place_tensors(struct source *s, struct reader *r, struct extent *x, u64 n)
{
    u64 start;
    if (!ck_align_up(r->at, s->alignment, &start) || start > r->n)
        return truncated(r, "the padding before the tensor data");
    u64 size = r->n - start;
    for (u64 i = 0; i < n; i++) {
        struct tensor *t = &s->tensors[x[i].tensor];
        if (x[i].begin > size || t->n_bytes > size - x[i].begin)
            return err_set(r->err, FLETCH_E_FORMAT,
                           "tensor %s: %llu bytes at offset %llu extend beyond the end of the "
                           "file, which is damaged or not completely downloaded",
                           QUOTE(t->name), (unsigned long long)t->n_bytes,
                           (unsigned long long)x[i].begin);
        x[i].end = x[i].begin + t->n_bytes;
        t->data = r->p + start + x[i].begin;
    }
    qsort(x, n, sizeof *x, extent_order);
    for (u64 i = 1; i < n; i++)
        if (x[i].begin < x[i - 1].end)
            return err_set(r->err, FLETCH_E_FORMAT, "tensors %s and %s overlap",
                           QUOTE(s->tensors[x[i - 1].tensor].name),
                           QUOTE(s->tensors[x[i].tensor].name));
    return 0;
}

int gguf_read_image(struct source *s, const u8 *p, u64 n, struct err *err)
{
    struct reader r = {.p = p, .n = n, .err = err};
    u64 n_tensors = 0, n_kvs = 0;
    int rc = read_header(&r, s->path, &s->version, &n_tensors, &n_kvs);
    for (u64 i = 0; rc == 0 && i < n_kvs; i++) {
        struct kv kv;
        rc = read_kv(&r, &kv);
        if (rc == 0) rc = source_add_kv(s, &kv, err);
    }
    if (rc == 0) rc = gguf_alignment(s, &s->alignment, err);
    if (rc || n_tensors == 0) return rc;
    struct extent *x = calloc((size_t)n_tensors, sizeof *x);
    if (!x) return err_nomem(err, "tensors");
    for (u64 i = 0; rc == 0 && i < n_tensors; i++) rc = read_tensor(s, &r, &x[i]);
    if (rc == 0) rc = place_tensors(s, &r, x, n_tensors);
    free(x);
    return rc;
}
