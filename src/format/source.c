#include "format/source.h"

#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/buf.h"
#include "format/gguf.h"
#include "format/hf.h"

static const struct {
    const char *name;
    u32 size;
} kv_types[KV_COUNT] = {
    [KV_U8] = {"u8", 1},       [KV_I8] = {"i8", 1},     [KV_U16] = {"u16", 2},
    [KV_I16] = {"i16", 2},     [KV_U32] = {"u32", 4},   [KV_I32] = {"i32", 4},
    [KV_F32] = {"f32", 4},     [KV_BOOL] = {"bool", 1}, [KV_STR] = {"string", 0},
    [KV_ARRAY] = {"array", 0}, [KV_U64] = {"u64", 8},   [KV_I64] = {"i64", 8},
    [KV_F64] = {"f64", 8},
};

u32 kv_size(enum kv_type type)
{
    return (u32)type < KV_COUNT ? kv_types[type].size : 0;
}

const char *kv_type_name(enum kv_type type)
{
    return (u32)type < KV_COUNT ? kv_types[type].name : "unknown";
}

/* Opening and closing */

int source_new(struct source **out, const char *path, struct err *err)
{
    struct source *s = calloc(1, sizeof *s);
    *out = NULL;
    if (s) s->path = arena_copy(&s->arena, str_of(path));
    if (s) s->refused = calloc(1, sizeof *s->refused);
    if (!s || !s->path || !s->refused) {
        source_close(s);
        return err_nomem(err, path);
    }
    s->alignment = GGUF_ALIGNMENT;
    *out = s;
    return 0;
}

static int open_with(struct source **out, const char *path,
                     int (*read_dir)(struct source *s, struct err *err), struct err *err)
{
    struct source *s;
    *out = NULL;
    int rc = source_new(&s, path, err);
    if (rc) return rc;
    s->is_dir = file_is_dir(path);
    rc = s->is_dir ? read_dir(s, err) : gguf_read(s, err);
    if (rc) {
        source_close(s);
        return rc;
    }
    *out = s;
    return 0;
}

int source_open(struct source **out, const char *path, struct err *err)
{
    return open_with(out, path, hf_read, err);
}

int source_open_text(struct source **out, const char *path, struct err *err)
{
    return open_with(out, path, hf_read_text, err);
}

void source_close(struct source *s)
{
    if (!s) return;
    if (s->hf) hf_free(s);
    for (u32 i = 0; s->made && i < s->n_tensors; i++) free(s->made[i]);
    free(s->made);
    for (u32 i = 0; i < s->n_files; i++) file_map_close(&s->files[i]);
    free(s->files);
    free(s->kvs);
    free(s->tensors);
    free(s->kv_asked);
    free(s->tensor_asked);
    for (u32 i = 0; s->refused && i < s->refused->n; i++) free(s->refused->lines[i]);
    if (s->refused) free(s->refused->lines);
    free(s->refused);
    strmap_free(&s->kv_index);
    strmap_free(&s->tensor_index);
    arena_free(&s->arena);
    free(s);
}

/* Tensors */

const struct tensor *source_tensor(const struct source *s, const char *name)
{
    u32 i;
    if (!strmap_get(&s->tensor_index, str_of(name), &i)) return NULL;
    s->tensor_asked[i] = true;
    return &s->tensors[i];
}

int source_data(struct source *s, const struct tensor *t, const u8 **out, struct err *err)
{
    const struct quant_info *q = quant_info(t->type);
    size_t i = (size_t)(t - s->tensors);
    CHECK(i < s->n_tensors);
    *out = NULL;
    if (!q || !q->readable)
        return err_set(err, FLETCH_E_UNSUPPORTED,
                       "tensor %s has type %s, which fletch does not support; use a file with "
                       "another type, such as Q4_K_M or Q8_0",
                       QUOTE(t->name), q ? q->name : "unknown");
    if (!t->recipe) {
        *out = t->data;
        return 0;
    }
    if (!s->made && !(s->made = calloc(s->n_tensors, sizeof *s->made)))
        return err_nomem(err, "tensors");
    if (!s->made[i]) {
        u8 *p = t->n_bytes <= SIZE_MAX ? malloc((size_t)t->n_bytes) : NULL;
        if (!p) return err_set(err, FLETCH_E_NOMEM, "out of memory for tensor %s", QUOTE(t->name));
        int rc = hf_make(s, t, p, err);
        if (rc) {
            free(p);
            return rc;
        }
        s->made[i] = p;
    }
    *out = s->made[i];
    return 0;
}

/* Only whole pages inside the range: its neighbours may be in use. */
static void forget_pages(const u8 *p, u64 n)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t begin = ((uintptr_t)p + page - 1) & ~(page - 1);
    uintptr_t end = ((uintptr_t)p + (uintptr_t)n) & ~(page - 1);
    if (begin < end) madvise((void *)begin, end - begin, MADV_DONTNEED);
}

void source_drop(struct source *s, const struct tensor *t)
{
    size_t i = (size_t)(t - s->tensors);
    CHECK(i < s->n_tensors);
    if (t->recipe) {
        if (!s->made) return;
        free(s->made[i]);
        s->made[i] = NULL;
        return;
    }
    for (u32 f = 0; f < s->n_files; f++) {
        uintptr_t file = (uintptr_t)s->files[f].p, data = (uintptr_t)t->data;
        if (data - file < s->files[f].n) forget_pages(t->data, t->n_bytes);
    }
}

/* Metadata */

const struct kv *source_kv(const struct source *s, const char *key)
{
    u32 i;
    if (!strmap_get(&s->kv_index, str_of(key), &i)) return NULL;
    s->kv_asked[i] = true;
    return &s->kvs[i];
}

static u64 load_le(const u8 *p, u32 n)
{
    u64 v = 0;
    while (n--) v = v << 8 | p[n];
    return v;
}

bool kv_int(const struct kv *kv, u64 i, i64 *out)
{
    u32 size = kv_size(kv->elem);
    if (i >= kv->n || size == 0) return false;
    u64 v = load_le(kv->data + i * size, size);
    switch (kv->elem) {
    case KV_U8:
    case KV_U16:
    case KV_U32: *out = (i64)v; return true;
    case KV_U64: *out = (i64)v; return v <= INT64_MAX;
    case KV_I8: *out = (i8)v; return true;
    case KV_I16: *out = (i16)v; return true;
    case KV_I32: *out = (i32)v; return true;
    case KV_I64: *out = (i64)v; return true;
    default: return false;
    }
}

bool kv_float(const struct kv *kv, u64 i, double *out)
{
    u32 size = kv_size(kv->elem);
    if (i >= kv->n || (kv->elem != KV_F32 && kv->elem != KV_F64)) return false;
    u64 v = load_le(kv->data + i * size, size);
    if (kv->elem == KV_F64) {
        memcpy(out, &v, sizeof *out);
    } else {
        u32 v32 = (u32)v;
        float f;
        memcpy(&f, &v32, sizeof f);
        *out = (double)f;
    }
    return true;
}

bool kv_next_str(const struct kv *kv, u64 *at, struct str *out)
{
    if (kv->elem != KV_STR || *at > kv->n_bytes || kv->n_bytes - *at < 8) return false;
    u64 n = load_le(kv->data + *at, 8);
    if (n > kv->n_bytes - *at - 8) return false;
    *out = (struct str){(const char *)kv->data + *at + 8, (size_t)n};
    *at += 8 + n;
    return true;
}

static int wrong_kv(const struct kv *kv, const char *want, struct err *err)
{
    const char *have = kv_type_name(kv->type);
    return err_set(err, FLETCH_E_FORMAT, "metadata key %s has type %s but must be %s",
                   QUOTE(kv->key), have, want);
}

int source_get_u32(const struct source *s, const char *key, u32 *out, struct err *err)
{
    const struct kv *kv = source_kv(s, key);
    i64 v;
    if (!kv) return SOURCE_ABSENT;
    if (kv->type == KV_ARRAY || !kv_int(kv, 0, &v) || v < 0 || v > UINT32_MAX)
        return wrong_kv(kv, "an integer from 0 to 2^32-1", err);
    *out = (u32)v;
    return 0;
}

int source_get_f32(const struct source *s, const char *key, float *out, struct err *err)
{
    const struct kv *kv = source_kv(s, key);
    double v;
    if (!kv) return SOURCE_ABSENT;
    if (kv->type == KV_ARRAY || !kv_float(kv, 0, &v) || !(fabs(v) <= (double)FLT_MAX))
        return wrong_kv(kv, "a finite float", err);
    *out = (float)v;
    return 0;
}

int source_get_bool(const struct source *s, const char *key, bool *out, struct err *err)
{
    const struct kv *kv = source_kv(s, key);
    if (!kv) return SOURCE_ABSENT;
    if (kv->type != KV_BOOL) return wrong_kv(kv, "a bool", err);
    *out = kv->data[0] != 0;
    return 0;
}

int source_get_str(const struct source *s, const char *key, struct str *out, struct err *err)
{
    const struct kv *kv = source_kv(s, key);
    u64 at = 0;
    if (!kv) return SOURCE_ABSENT;
    if (kv->type != KV_STR || !kv_next_str(kv, &at, out)) return wrong_kv(kv, "a string", err);
    return 0;
}

/* Adding */

/* Room for one more in an array of n and in its flags (may be NULL); grows by doubling. */
static bool grow(void *array, bool **flags, u32 n, u32 *cap, size_t size)
{
    void *old, *p;
    memcpy(&old, array, sizeof old);
    if (n < *cap) return true;
    u32 want = *cap ? *cap * 2 : 64;
    p = realloc(old, want * size);
    if (!p) return false;
    memcpy(array, &p, sizeof p);
    if (flags) {
        bool *f = realloc(*flags, want * sizeof *f);
        if (!f) return false;
        memset(f + n, 0, (want - n) * sizeof *f);
        *flags = f;
    }
    *cap = want;
    return true;
}

static int check_name(struct str name, const char *what, size_t max, struct err *err)
{
    if (name.n == 0 || name.n > max)
        return err_set(err, FLETCH_E_FORMAT, "%s %s has %zu bytes; 1 to %zu are allowed", what,
                       QUOTE(name), name.n, max);
    for (size_t i = 0; i < name.n; i++)
        if ((u8)name.p[i] < 0x20 || name.p[i] == 0x7f)
            return err_set(err, FLETCH_E_FORMAT, "%s %s contains a control character", what,
                           QUOTE(name));
    return 0;
}

int source_add_kv(struct source *s, const struct kv *kv, struct err *err)
{
    int rc = check_name(kv->key, "metadata key", SOURCE_MAX_KEY, err);
    if (rc) return rc;
    if (s->n_kvs >= SOURCE_MAX_ENTRIES)
        return err_set(err, FLETCH_E_LIMIT, "more than %d metadata entries are not supported",
                       SOURCE_MAX_ENTRIES);
    if (!grow(&s->kvs, &s->kv_asked, s->n_kvs, &s->cap_kvs, sizeof *s->kvs))
        return err_nomem(err, "metadata");
    if (!strmap_add(&s->kv_index, kv->key, s->n_kvs)) {
        if (!strmap_ok(&s->kv_index)) return err_nomem(err, "metadata");
        return err_set(err, FLETCH_E_FORMAT, "metadata key %s appears twice", QUOTE(kv->key));
    }
    s->kvs[s->n_kvs++] = *kv;
    return 0;
}

/* Elements and bytes from type and dimensions; every product checked. */
static int measure(struct tensor *t, struct err *err)
{
    const struct quant_info *q = quant_info(t->type);
    struct err_quoted name = err_quote(t->name);
    if (!q)
        return err_set(err, FLETCH_E_UNSUPPORTED,
                       "tensor %s has type id %u, which is unknown or was removed from GGUF",
                       name.text, (u32)t->type);
    if (t->n_dims > 4)
        return err_set(err, FLETCH_E_FORMAT, "tensor %s has %u dimensions; at most 4 are allowed",
                       name.text, t->n_dims);
    t->n_elems = 1;
    for (u32 i = 0; i < 4; i++) {
        if (i >= t->n_dims) t->ne[i] = 1;
        if (t->ne[i] == 0 || t->ne[i] > INT64_MAX)
            return err_set(err, FLETCH_E_FORMAT,
                           "tensor %s: dimension %u has the invalid value %lld", name.text, i,
                           (long long)t->ne[i]);
        if (!CK_MUL(t->n_elems, t->ne[i], &t->n_elems))
            return err_set(err, FLETCH_E_FORMAT, "tensor %s: the dimensions' product overflows",
                           name.text);
    }
    if (t->ne[0] % q->blk)
        return err_set(err, FLETCH_E_FORMAT,
                       "tensor %s: rows of %llu elements do not consist of whole %s blocks of %u",
                       name.text, (unsigned long long)t->ne[0], q->name, q->blk);
    if (!quant_bytes(t->type, t->n_elems, &t->n_bytes))
        return err_set(err, FLETCH_E_FORMAT, "tensor %s: its size in bytes overflows", name.text);
    return 0;
}

int source_add_tensor(struct source *s, const struct tensor *t, struct err *err)
{
    struct tensor new = *t;
    int rc = check_name(t->name, "tensor name", SOURCE_MAX_NAME, err);
    if (rc == 0) rc = measure(&new, err);
    if (rc) return rc;
    CHECK(!s->made);
    if (s->n_tensors >= SOURCE_MAX_ENTRIES)
        return err_set(err, FLETCH_E_LIMIT, "more than %d tensors are not supported",
                       SOURCE_MAX_ENTRIES);
    if (!grow(&s->tensors, &s->tensor_asked, s->n_tensors, &s->cap_tensors, sizeof *s->tensors))
        return err_nomem(err, "tensors");
    if (!strmap_add(&s->tensor_index, t->name, s->n_tensors)) {
        if (!strmap_ok(&s->tensor_index)) return err_nomem(err, "tensors");
        return err_set(err, FLETCH_E_FORMAT, "tensor %s appears twice", QUOTE(t->name));
    }
    s->tensors[s->n_tensors++] = new;
    return 0;
}

/* Copies key and value, then adds. */
static int add_copy(struct source *s, const char *key, struct kv kv, const void *data,
                    struct err *err)
{
    struct str k = {arena_copy(&s->arena, str_of(key)), strlen(key)};
    u8 *copy = kv.n_bytes <= SIZE_MAX ? arena_alloc(&s->arena, (size_t)kv.n_bytes, 1) : NULL;
    if (!k.p || !copy) return err_nomem(err, key);
    if (kv.n_bytes) memcpy(copy, data, (size_t)kv.n_bytes);
    kv.key = k;
    kv.data = copy;
    return source_add_kv(s, &kv, err);
}

static int add_scalar(struct source *s, const char *key, enum kv_type type, u32 v, struct err *err)
{
    u8 le[4] = {(u8)v, (u8)(v >> 8), (u8)(v >> 16), (u8)(v >> 24)};
    struct kv kv = {.type = type, .elem = type, .n = 1, .n_bytes = kv_size(type)};
    return add_copy(s, key, kv, le, err);
}

int source_add_u32(struct source *s, const char *key, u32 v, struct err *err)
{
    return add_scalar(s, key, KV_U32, v, err);
}

int source_add_f32(struct source *s, const char *key, float v, struct err *err)
{
    u32 u;
    memcpy(&u, &v, sizeof u);
    return add_scalar(s, key, KV_F32, u, err);
}

int source_add_bool(struct source *s, const char *key, bool v, struct err *err)
{
    return add_scalar(s, key, KV_BOOL, v, err);
}

static void put_str(struct buf *b, struct str v)
{
    u64 n = v.n;
    for (int i = 0; i < 8; i++) buf_putc(b, (char)(n >> (8 * i)));
    buf_put(b, v.p, v.n);
}

static int add_packed_strs(struct source *s, const char *key, enum kv_type type, u64 n,
                           const struct str *v, struct err *err)
{
    struct buf b = {0};
    for (u64 i = 0; i < n; i++) put_str(&b, v[i]);
    struct kv kv = {.type = type, .elem = KV_STR, .n = n, .n_bytes = b.n};
    int rc = b.failed ? err_nomem(err, key) : add_copy(s, key, kv, b.p, err);
    buf_free(&b);
    return rc;
}

int source_add_str(struct source *s, const char *key, struct str v, struct err *err)
{
    return add_packed_strs(s, key, KV_STR, 1, &v, err);
}

int source_add_strs(struct source *s, const char *key, u64 n, const struct str *v, struct err *err)
{
    return add_packed_strs(s, key, KV_ARRAY, n, v, err);
}

int source_add_array(struct source *s, const char *key, enum kv_type elem, u64 n, const void *data,
                     u64 n_bytes, struct err *err)
{
    struct kv kv = {.type = KV_ARRAY, .elem = elem, .n = n, .n_bytes = n_bytes};
    return add_copy(s, key, kv, data, err);
}

/* What can't be honoured */

void source_refuse(const struct source *s, const char *fmt, ...)
{
    struct source_refused *r = s->refused;
    char line[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    char *copy = strdup(line);
    if (!copy || !grow(&r->lines, NULL, r->n, &r->cap, sizeof *r->lines)) {
        free(copy);
        r->failed = true;
        return;
    }
    r->lines[r->n++] = copy;
}

void source_refuse_kv(const struct source *s, const struct kv *kv)
{
    char value[112];
    struct str text;
    u64 at = 0;
    i64 n;
    double d;
    if (kv->type == KV_ARRAY)
        snprintf(value, sizeof value, "an array of %llu", (unsigned long long)kv->n);
    else if (kv->type == KV_BOOL)
        snprintf(value, sizeof value, "%s", kv->data[0] ? "true" : "false");
    else if (kv_int(kv, 0, &n))
        snprintf(value, sizeof value, "%lld", (long long)n);
    else if (kv_float(kv, 0, &d))
        snprintf(value, sizeof value, "%g", d);
    else if (kv_next_str(kv, &at, &text))
        snprintf(value, sizeof value, "%s", QUOTE(text));
    else
        snprintf(value, sizeof value, "a number beyond 2^63");
    source_refuse(s, "metadata key %s = %s", QUOTE(kv->key), value);
}

int source_refused_error(const struct source *s, struct err *err)
{
    const struct source_refused *r = s->refused;
    char text[280], more[40] = "";
    size_t n = 0;
    u32 shown = 0;
    if (r->failed) return err_nomem(err, "the list of what is not supported");
    if (r->n == 0) return 0;
    /* whole lines, as many as fit; the first one always does */
    for (; shown < r->n && n + strlen(r->lines[shown]) + 3 < sizeof text; shown++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%s", n ? "; " : "", r->lines[shown]);
    if (shown < r->n) snprintf(more, sizeof more, "; and %u more", r->n - shown);
    return err_set(err, FLETCH_E_UNSUPPORTED,
                   "the model requires unsupported features, so its answers would be wrong: %s%s "
                   "(--ignore-unknown ignores them at your own risk)",
                   text, more);
}
