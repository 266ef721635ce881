#include "model/bind.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_MAX_BYTES = 96 };

struct want {
    u32 n_in, n_rows, row, n_out, n_slices;
    u32 n_all, col; /* a vector: entries [col, col + n_in) of n_all; matrices: n_all is 0 */
    bool plain;     /* used value by value: its type has no blocks */
};

void bind_init(struct bind *b, struct source *s, struct net *net, struct err *err)
{
    *b = (struct bind){.s = s, .net = net, .err = err};
}

void bind_free(struct bind *b)
{
    strmap_free(&b->ids);
    free(b->bound);
    *b = (struct bind){0};
}

static u32 give_up(struct bind *b, int rc)
{
    b->rc = rc;
    b->net->failed = true;
    return NO_WEIGHT;
}

/* A name that GGUF gives no ".weight". */
static bool stands_alone(struct str name)
{
    return str_ends(name, ".bias") || str_ends(name, ".scale") || str_ends(name, ".ssm_a") ||
           str_ends(name, ".ssm_d");
}

static void full_name(char out[NAME_MAX_BYTES], const char *fmt, va_list ap)
{
    int n = vsnprintf(out, NAME_MAX_BYTES, fmt, ap);
    CHECK(n > 0 && n + 8 < NAME_MAX_BYTES);
    if (!stands_alone(str_of(out))) snprintf(out + n, NAME_MAX_BYTES - (size_t)n, ".weight");
}

/* The tensor of that name; converters leave the end of one out, of Falcon-H1 and Hy3. */
static const struct tensor *find_tensor(const struct bind *b, const char *name)
{
    char bare[NAME_MAX_BYTES];
    const struct tensor *t = source_tensor(b->s, name);
    static const char *const ends[][2] = {{".ffn_norm", ".weight"}, {".exp_probs_b", ".bias"}};
    for (size_t i = 0; !t && i < ARRAY_LEN(ends); i++) {
        size_t n = strlen(name), end = strlen(ends[i][1]);
        snprintf(bare, sizeof bare, "%.*s", (int)(n > end ? n - end : 0), name);
        if (str_ends(str_of(name), ends[i][1]) && str_ends(str_of(bare), ends[i][0]))
            t = source_tensor(b->s, bare);
    }
    return t;
}

static int check_tensor(struct bind *b, const struct tensor *t, const char *name,
                        const struct want *w)
{
    const struct quant_info *info = quant_info(t->type);
    u64 rest = (u64)w->n_rows * w->n_slices;
    bool fits = w->n_all ? t->n_elems == w->n_all
                         : t->ne[0] == w->n_in && t->n_elems == rest * w->n_in &&
                               (w->n_slices == 1 || t->n_dims == 2 || t->ne[1] == w->n_rows);
    if (!fits)
        return err_set(b->err, FLETCH_E_FORMAT,
                       "tensor '%s' is %llu×%llu×%llu×%llu but the metadata requires %u×%u×%u",
                       name, (unsigned long long)t->ne[0], (unsigned long long)t->ne[1],
                       (unsigned long long)t->ne[2], (unsigned long long)t->ne[3], w->n_in,
                       w->n_rows, w->n_slices);
    if (!info || !info->readable)
        return err_set(b->err, FLETCH_E_UNSUPPORTED,
                       "tensor '%s' has type %s, which fletch does not support; use a file with "
                       "another type, such as Q4_K_M or Q8_0",
                       name, info && info->name ? info->name : "unknown");
    if (w->plain && info->blk != 1)
        return err_set(b->err, FLETCH_E_UNSUPPORTED,
                       "tensor '%s' has type %s, but a vector must be F32, F16 or BF16", name,
                       info->name);
    return 0;
}

/* Key of a bound stretch of rows; a tensor bound twice is one weight. */
static struct str bind_key(struct bind *b, const char *name, const struct want *w)
{
    char *key = arena_printf(&b->net->arena, "%s@%u+%u", name, w->row + w->col, w->n_out);
    return key ? str_of(key) : (struct str){0};
}

/* Adds the weight; the net knows it by key. */
static u32 bind_add(struct bind *b, struct str key, const struct weight *weight, struct bound bound)
{
    if (b->n == b->cap) {
        u32 cap = b->cap ? b->cap * 2 : 64;
        struct bound *p = realloc(b->bound, cap * sizeof *p);
        if (!p) return give_up(b, err_nomem(b->err, "the model"));
        b->bound = p;
        b->cap = cap;
    }
    u32 id = net_weight(b->net, weight);
    if (!key.p || !weight->name || id == NO_WEIGHT || !strmap_add(&b->ids, key, id))
        return give_up(b, err_nomem(b->err, "the model"));
    CHECK(id == b->n);
    b->bound[b->n++] = bound;
    return id;
}

static u32 bind_want(struct bind *b, const char *name, const struct want *w)
{
    u32 id;
    if (b->rc) return NO_WEIGHT;
    const struct tensor *t = find_tensor(b, name);
    if (!t) return give_up(b, err_set(b->err, FLETCH_E_FORMAT, "tensor '%s' is missing", name));
    int rc = check_tensor(b, t, name, w);
    if (rc) return give_up(b, rc);
    struct str key = bind_key(b, name, w);
    if (key.p && strmap_get(&b->ids, key, &id)) return id;
    struct weight weight = weight_packed(arena_copy(&b->net->arena, str_of(name)), t->type, w->n_in,
                                         w->n_out, w->n_slices);
    weight.plain = w->plain;
    weight.slice_bytes = weight.row_bytes * w->n_rows; /* other rows may lie between */
    u64 offset = w->row * weight.row_bytes + (w->n_all ? w->col * weight.row_bytes / w->n_in : 0);
    return bind_add(b, key, &weight, (struct bound){t, offset});
}

#define WITH_NAME(fmt)          \
    char name_[NAME_MAX_BYTES]; \
    va_list ap_;                \
    va_start(ap_, fmt);         \
    full_name(name_, fmt, ap_); \
    va_end(ap_)

u32 bind_matrix(struct bind *b, u32 n_in, u32 n_out, const char *name, ...)
{
    WITH_NAME(name);
    return bind_want(b, name_, &(struct want){n_in, n_out, 0, n_out, 1, 0, 0, false});
}

u32 bind_slices(struct bind *b, u32 n_in, u32 n_out, u32 n_slices, const char *name, ...)
{
    WITH_NAME(name);
    return bind_want(b, name_, &(struct want){n_in, n_out, 0, n_out, n_slices, 0, 0, false});
}

u32 bind_vector(struct bind *b, u32 n, const char *name, ...)
{
    WITH_NAME(name);
    return bind_want(b, name_, &(struct want){n, 1, 0, 1, 1, n, 0, true});
}

u32 bind_vectors(struct bind *b, u32 n, u32 n_vectors, const char *name, ...)
{
    WITH_NAME(name);
    return bind_want(b, name_, &(struct want){n, n_vectors, 0, n_vectors, 1, 0, 0, true});
}

u32 bind_rows(struct bind *b, u32 n_in, u32 n_rows, u32 row, u32 n_out, u32 n_slices,
              const char *name, ...)
{
    WITH_NAME(name);
    CHECK(row + n_out <= n_rows);
    return bind_want(b, name_, &(struct want){n_in, n_rows, row, n_out, n_slices, 0, 0, false});
}

u32 bind_vector_opt(struct bind *b, u32 n, const char *name, ...)
{
    WITH_NAME(name);
    if (!source_tensor(b->s, name_)) return NO_WEIGHT;
    return bind_want(b, name_, &(struct want){n, 1, 0, 1, 1, n, 0, true});
}

u32 bind_vector_part(struct bind *b, u32 n_all, u32 col, u32 n, const char *name, ...)
{
    WITH_NAME(name);
    CHECK(col + n <= n_all);
    if (!source_tensor(b->s, name_)) return NO_WEIGHT;
    return bind_want(b, name_, &(struct want){n, 1, 0, 1, 1, n_all, col, true});
}

u32 bind_constant(struct bind *b, u32 n, float value)
{
    char name[64];
    u32 id;
    if (b->rc) return NO_WEIGHT;
    snprintf(name, sizeof name, "constant %.9g@%u", (double)value, n);
    if (strmap_get(&b->ids, str_of(name), &id)) return id;
    float *values = arena_alloc(&b->net->arena, n, sizeof *values);
    char *kept = arena_copy(&b->net->arena, str_of(name));
    if (!values || !kept) return give_up(b, err_nomem(b->err, "the model"));
    for (u32 i = 0; i < n; i++) values[i] = value;
    struct weight weight = weight_packed(kept, QT_F32, n, 1, 1);
    weight.data = (const u8 *)values;
    return bind_add(b, str_of(kept), &weight, (struct bound){NULL, 0});
}

bool bind_has(const struct bind *b, const char *name, ...)
{
    WITH_NAME(name);
    return source_tensor(b->s, name_) != NULL;
}

u64 bind_count_rows(const struct bind *b, const char *name, ...)
{
    WITH_NAME(name);
    const struct tensor *t = source_tensor(b->s, name_);
    return t ? t->ne[1] : 0;
}
