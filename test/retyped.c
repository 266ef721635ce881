#include "retyped.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "format/gguf.h"
#include "model/synth.h"

static void must(int rc, const struct err *err)
{
    if (rc) fail_msg("%s", err->text);
}

bool retyped_fits(const struct tensor *t, enum qtype type)
{
    const struct quant_info *info = quant_info(type);
    return info && info->readable && t->ne[0] % info->blk == 0;
}

/* RWKV-7's first layer has no earlier value to mix with; files hold tensors for it all the same. */
static bool is_unused(struct str name)
{
    return str_is(name, "blk.0.time_mix_v0.weight") || str_is(name, "blk.0.time_mix_v1.weight") ||
           str_is(name, "blk.0.time_mix_v2.weight");
}

bool retyped_is_first_of_kind(const struct source *s, u32 i)
{
    struct str a = s->tensors[i].name;
    const char *dot = memchr(a.p + 4, '.', a.n - 4);
    if (is_unused(a)) return false;
    if (!str_starts(a, "blk.") || !dot) return true;
    size_t n = a.n - (size_t)(dot - a.p);
    for (u32 j = 0; j < i; j++) {
        struct str b = s->tensors[j].name;
        if (is_unused(b)) continue;
        if (str_starts(b, "blk.") && b.n > n && memcmp(b.p + b.n - n, dot, n) == 0) return false;
    }
    return true;
}

static void write_data(struct gguf_writer *w, struct source *s, const struct tensor *t,
                       enum qtype type)
{
    struct err err = {0};
    const u8 *from;
    u64 n_bytes;
    must(source_data(s, t, &from, &err), &err);
    if (type == t->type) {
        must(gguf_writer_data(w, from, t->n_bytes, &err), &err);
        return;
    }
    assert_true(quant_bytes(type, t->n_elems, &n_bytes));
    float *x = malloc(t->n_elems * sizeof *x);
    u8 *to = malloc(n_bytes);
    assert_true(x && to);
    quant_decode(t->type, from, x, t->n_elems);
    if (quant_info(type)->writable)
        assert_true(quant_encode(type, x, to, t->n_elems));
    else
        synth_fill(type, 1, (struct synth_range){0, synth_range(t).spread}, 0,
                   t->n_elems / quant_info(type)->blk, to);
    must(gguf_writer_data(w, to, n_bytes, &err), &err);
    free(x);
    free(to);
}

static void write_file(const char *to, struct source *s, retyped_type_fn *type_of, const void *ctx)
{
    struct err err = {0};
    struct gguf_writer *w;
    must(gguf_writer_open(&w, to, &err), &err);
    for (u32 i = 0; i < s->n_kvs; i++) must(gguf_writer_kv(w, &s->kvs[i], &err), &err);
    for (u32 i = 0; i < s->n_tensors; i++) {
        struct tensor t = s->tensors[i];
        t.type = type_of(ctx, &t);
        assert_true(quant_bytes(t.type, t.n_elems, &t.n_bytes));
        must(gguf_writer_tensor(w, &t, &err), &err);
    }
    for (u32 i = 0; i < s->n_tensors; i++)
        write_data(w, s, &s->tensors[i], type_of(ctx, &s->tensors[i]));
    must(gguf_writer_finish(w, &err), &err);
    gguf_writer_close(w);
}

static void read_image(struct retyped *o, const char *path)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    o->n = (u64)ftell(f);
    rewind(f);
    o->image = malloc(o->n);
    assert_non_null(o->image);
    assert_int_equal(fread(o->image, 1, o->n, f), o->n);
    fclose(f);
}

void retyped_open(struct retyped *o, const char *path, retyped_type_fn *type_of, const void *ctx)
{
    struct err err = {0};
    char to[] = "/tmp/fletch-retyped-XXXXXX";
    struct source *s;
    int fd = mkstemp(to);
    assert_true(fd >= 0);
    close(fd);
    must(source_open(&s, path, &err), &err);
    write_file(to, s, type_of, ctx);
    source_close(s);
    read_image(o, to);
    unlink(to);
    must(source_new(&o->s, "image", &err), &err);
    must(gguf_read_image(o->s, o->image, o->n, &err), &err);
}

void retyped_close(struct retyped *o)
{
    source_close(o->s);
    free(o->image);
}
