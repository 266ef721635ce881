/* Reads the header of one safetensors image: u64 length, JSON, then the tensors' bytes. The image
 * is hostile; after st_parse every tensor lies inside it and no two overlap. */
#include "format/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "format/json.h"

enum {
    MAX_HEADER = 32 << 20, /* the largest published headers are below 5 MiB */
    MAX_NAME = 255,
    MAX_DIMS = ARRAY_LEN(((struct st_tensor *)0)->shape),
};

static int bad(struct err *err, struct str name, const char *what)
{
    return err_set(err, FLETCH_E_FORMAT, "safetensors: tensor %s %s", QUOTE(name), what);
}

static bool name_ok(struct str name)
{
    if (name.n == 0 || name.n > MAX_NAME) return false;
    for (size_t i = 0; i < name.n; i++)
        if ((u8)name.p[i] < 0x20 || name.p[i] == 0x7f) return false;
    return true;
}

static int read_dtype(struct st_tensor *t, const json_t *v, struct err *err)
{
    struct str dtype = {json_string_value(v), json_string_length(v)};
    if (!dtype.p) return bad(err, t->name, "has no dtype");
    if (str_is(dtype, "F32"))
        t->type = QT_F32;
    else if (str_is(dtype, "F16"))
        t->type = QT_F16;
    else if (str_is(dtype, "BF16"))
        t->type = QT_BF16;
    else if (str_is(dtype, "U8"))
        t->bytes = true;
    else if (str_is(dtype, "F8_E4M3"))
        t->fp8 = true, t->type = QT_F32;
    else
        return err_set(
            err, FLETCH_E_UNSUPPORTED,
            "safetensors: tensor %s has type %s; only F32, F16, BF16 and F8_E4M3 are supported",
            QUOTE(t->name), QUOTE(dtype));
    return 0;
}

static int read_shape(struct st_tensor *t, const json_t *v, struct err *err)
{
    if (!json_is_array(v)) return bad(err, t->name, "has no shape");
    if (json_array_size(v) > MAX_DIMS) return bad(err, t->name, "has more than 8 dimensions");
    t->n_dims = (u32)json_array_size(v);
    t->n_elems = 1;
    for (u32 i = 0; i < t->n_dims; i++) {
        const json_t *d = json_array_get(v, i);
        if (!json_is_integer(d) || json_integer_value(d) <= 0)
            return bad(err, t->name, "has a dimension that is not a positive integer");
        t->shape[i] = (u64)json_integer_value(d);
        if (!CK_MUL(t->n_elems, t->shape[i], &t->n_elems))
            return bad(err, t->name, "has too many elements");
    }
    return 0;
}

static int read_range(struct st_tensor *t, const json_t *v, const u8 *data, u64 n_data,
                      struct err *err)
{
    const json_t *b = json_array_get(v, 0), *e = json_array_get(v, 1);
    if (json_array_size(v) != 2 || !json_is_integer(b) || !json_is_integer(e) ||
        json_integer_value(b) < 0 || json_integer_value(e) < json_integer_value(b))
        return bad(err, t->name, "has no valid data_offsets");
    u64 begin = (u64)json_integer_value(b), end = (u64)json_integer_value(e), need;
    if (end > n_data)
        return bad(err, t->name, "extends beyond the end of the file (is it truncated?)");
    need = t->n_elems;
    if ((!t->bytes && !t->fp8 && !quant_bytes(t->type, t->n_elems, &need)) || need != end - begin)
        return bad(err, t->name, "has data_offsets that do not match its shape and dtype");
    t->data = data + begin;
    t->n_bytes = end - begin;
    return 0;
}

static int read_tensor(struct st_file *f, struct str name, const json_t *info, const u8 *data,
                       u64 n_data, struct err *err)
{
    struct st_tensor *t = &f->tensors[f->n_tensors];
    if (!name_ok(name))
        return bad(err, name, "has a name that is empty, too long or not printable");
    if (!json_is_object(info)) return bad(err, name, "is not described by an object");
    t->name = (struct str){arena_copy(&f->arena, name), name.n};
    if (!t->name.p) return err_nomem(err, "safetensors names");
    int rc = read_dtype(t, json_object_get(info, "dtype"), err);
    if (rc == 0) rc = read_shape(t, json_object_get(info, "shape"), err);
    if (rc == 0) rc = read_range(t, json_object_get(info, "data_offsets"), data, n_data, err);
    return rc;
}

static int by_place(const void *a, const void *b)
{
    const struct st_tensor *x = *(const struct st_tensor *const *)a;
    const struct st_tensor *y = *(const struct st_tensor *const *)b;
    return (x->data > y->data) - (x->data < y->data);
}

static int check_overlap(struct st_file *f, struct err *err)
{
    const struct st_tensor **order = arena_alloc(&f->arena, f->n_tensors, sizeof *order);
    if (!order) return err_nomem(err, "safetensors header");
    for (u32 i = 0; i < f->n_tensors; i++) order[i] = &f->tensors[i];
    qsort(order, f->n_tensors, sizeof *order, by_place);
    for (u32 i = 1; i < f->n_tensors; i++)
        if (order[i]->data < order[i - 1]->data + order[i - 1]->n_bytes)
            return bad(err, order[i]->name, "overlaps another tensor's bytes");
    return 0;
}

static int read_header(struct st_file *f, json_t *root, const u8 *data, u64 n_data, struct err *err)
{
    const char *key;
    json_t *info;
    if (!json_is_object(root))
        return err_set(err, FLETCH_E_FORMAT, "safetensors: the header is not a JSON object");
    f->tensors = arena_alloc(&f->arena, json_object_size(root), sizeof *f->tensors);
    if (!f->tensors) return err_nomem(err, "safetensors header");
    json_object_foreach(root, key, info)
    {
        if (strcmp(key, "__metadata__") == 0) continue;
        int rc = read_tensor(f, str_of(key), info, data, n_data, err);
        if (rc) return rc;
        strmap_add(&f->index, f->tensors[f->n_tensors].name, f->n_tensors);
        f->n_tensors++;
    }
    if (!strmap_ok(&f->index)) return err_nomem(err, "safetensors header");
    return check_overlap(f, err);
}

int st_parse(struct st_file *f, const u8 *p, u64 n, struct err *err)
{
    u64 n_header = 0;
    json_t *root = NULL;
    *f = (struct st_file){0};
    for (u32 i = 0; i < 8 && n >= 8; i++) n_header |= (u64)p[i] << 8 * i;
    if (n < 8 || n_header > n - 8)
        return err_set(err, FLETCH_E_FORMAT,
                       "safetensors: the header does not fit in the file (is it truncated or in "
                       "another format?)");
    if (n_header > MAX_HEADER)
        return err_set(err, FLETCH_E_LIMIT, "safetensors: a header of %llu bytes; the limit is %d",
                       (unsigned long long)n_header, MAX_HEADER);
    struct str text = {(const char *)p + 8, (size_t)n_header};
    int rc = json_parse(&root, text, "safetensors header", err);
    if (rc == 0) rc = read_header(f, root, p + 8 + n_header, n - 8 - n_header, err);
    json_decref(root);
    if (rc) st_free(f);
    return rc;
}

const struct st_tensor *st_find(const struct st_file *f, struct str name)
{
    u32 i;
    return strmap_get(&f->index, name, &i) ? &f->tensors[i] : NULL;
}

void st_free(struct st_file *f)
{
    strmap_free(&f->index);
    arena_free(&f->arena);
    *f = (struct st_file){0};
}
