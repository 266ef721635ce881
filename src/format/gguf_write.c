/* Writes GGUF v3. What is declared is kept in a source, so that names, sizes and duplicates are
 * judged by the rules of the reader; the header is written when the first data arrives. Tensors
 * lie in declaration order, each padded to the alignment: other engines require exactly that. */
#include "format/gguf.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"

struct gguf_writer {
    struct source *decl;
    struct file_out *file;
    bool laid_out; /* the header is written */
    u32 tensor;    /* being filled */
    u64 filled;    /* bytes of it so far */
};

int gguf_writer_open(struct gguf_writer **out, const char *path, struct err *err)
{
    struct gguf_writer *w = calloc(1, sizeof *w);
    *out = NULL;
    if (!w) return err_nomem(err, path);
    int rc = source_new(&w->decl, path, err);
    if (rc == 0) rc = file_out_open(&w->file, path, FILE_SHARED, err);
    if (rc) {
        gguf_writer_close(w);
        return rc;
    }
    *out = w;
    return 0;
}

void gguf_writer_close(struct gguf_writer *w)
{
    if (!w) return;
    file_out_close(w->file);
    source_close(w->decl);
    free(w);
}

int gguf_writer_kv(struct gguf_writer *w, const struct kv *kv, struct err *err)
{
    struct kv new = *kv;
    CHECK(!w->laid_out);
    new.key.p = arena_copy(&w->decl->arena, kv->key);
    new.data = (const u8 *)arena_copy(&w->decl->arena,
                                      (struct str){(const char *)kv->data, (size_t)kv->n_bytes});
    if (!new.key.p || !new.data) return err_nomem(err, "metadata");
    return source_add_kv(w->decl, &new, err);
}

int gguf_writer_tensor(struct gguf_writer *w, const struct tensor *t, struct err *err)
{
    struct tensor new = *t;
    CHECK(!w->laid_out);
    new.name.p = arena_copy(&w->decl->arena, t->name);
    if (!new.name.p) return err_nomem(err, "tensors");
    return source_add_tensor(w->decl, &new, err);
}

static void put_le(struct buf *b, u64 v, u32 n)
{
    for (u32 i = 0; i < n; i++) buf_putc(b, (char)(v >> (8 * i)));
}

static void put_str(struct buf *b, struct str s)
{
    put_le(b, s.n, 8);
    buf_put(b, s.p, s.n);
}

static void put_pad(struct buf *b, u64 at, u64 align)
{
    while (at++ % align) buf_putc(b, 0);
}

static int lay_out(struct gguf_writer *w, struct err *err)
{
    struct source *s = w->decl;
    struct buf b = {0};
    u64 offset = 0;
    int rc = gguf_alignment(s, &s->alignment, err);
    w->laid_out = true;
    buf_puts(&b, "GGUF");
    put_le(&b, 3, 4);
    put_le(&b, s->n_tensors, 8);
    put_le(&b, s->n_kvs, 8);
    for (u32 i = 0; i < s->n_kvs; i++) {
        const struct kv *kv = &s->kvs[i];
        put_str(&b, kv->key);
        put_le(&b, kv->type, 4);
        if (kv->type == KV_ARRAY) {
            put_le(&b, kv->elem, 4);
            put_le(&b, kv->n, 8);
        }
        buf_put(&b, kv->data, (size_t)kv->n_bytes);
    }
    for (u32 i = 0; i < s->n_tensors && rc == 0; i++) {
        const struct tensor *t = &s->tensors[i];
        put_str(&b, t->name);
        put_le(&b, t->n_dims, 4);
        for (u32 d = 0; d < t->n_dims; d++) put_le(&b, t->ne[d], 8);
        put_le(&b, t->type, 4);
        put_le(&b, offset, 8);
        if (!CK_ADD(offset, t->n_bytes, &offset) || !ck_align_up(offset, s->alignment, &offset))
            rc = err_set(err, FLETCH_E_LIMIT,
                         "the sizes of the tensors add up to more than 2^64 bytes");
    }
    if (s->n_tensors) put_pad(&b, b.n, s->alignment);
    if (rc == 0) rc = b.failed ? err_nomem(err, "the GGUF header") : 0;
    if (rc == 0) rc = file_out_write(w->file, b.p, b.n, err);
    buf_free(&b);
    return rc;
}

static int pad_tensor(struct gguf_writer *w, struct err *err)
{
    struct buf b = {0};
    put_pad(&b, w->filled, w->decl->alignment);
    int rc = b.failed ? err_nomem(err, "padding") : file_out_write(w->file, b.p, b.n, err);
    buf_free(&b);
    w->filled = 0;
    w->tensor++;
    return rc;
}

int gguf_writer_data(struct gguf_writer *w, const void *p, size_t n, struct err *err)
{
    const u8 *from = p;
    int rc = w->laid_out ? 0 : lay_out(w, err);
    while (rc == 0 && n) {
        CHECK(w->tensor < w->decl->n_tensors);
        u64 left = w->decl->tensors[w->tensor].n_bytes - w->filled;
        size_t piece = (size_t)MIN((u64)n, left);
        rc = file_out_write(w->file, from, piece, err);
        from += piece;
        n -= piece;
        w->filled += piece;
        if (rc == 0 && piece == left) rc = pad_tensor(w, err);
    }
    return rc;
}

int gguf_writer_finish(struct gguf_writer *w, struct err *err)
{
    int rc = gguf_writer_data(w, NULL, 0, err);
    CHECK(rc || w->tensor == w->decl->n_tensors);
    return rc ? rc : file_out_commit(w->file, err);
}
