/* Any bytes as a GGUF file: read, then touch everything that the source says is there. */
#include <stdlib.h>
#include <string.h>

#include "format/gguf.h"

static void touch_kv(const struct source *s, const struct kv *kv)
{
    i64 v;
    double d;
    u32 u;
    float f;
    bool b;
    struct str str;
    u64 at = 0, n = MIN(kv->n, (u64)64);
    for (u64 i = 0; i < n; i++) {
        kv_int(kv, i, &v);
        kv_float(kv, i, &d);
    }
    if (kv->n && kv_int(kv, kv->n - 1, &v)) CHECK(!kv_float(kv, 0, &d));
    for (u64 i = 0; kv->elem == KV_STR && i < kv->n; i++) CHECK(kv_next_str(kv, &at, &str));
    CHECK(kv->elem != KV_STR || at == kv->n_bytes);
    char key[SOURCE_MAX_KEY + 1] = {0};
    memcpy(key, kv->key.p, kv->key.n);
    CHECK(source_kv(s, key) == kv);
    struct err err;
    source_get_u32(s, key, &u, &err);
    source_get_f32(s, key, &f, &err);
    source_get_bool(s, key, &b, &err);
    source_get_str(s, key, &str, &err);
}

static void touch_tensor(struct source *s, const struct tensor *t)
{
    const struct quant_info *q = quant_info(t->type);
    const u8 *data;
    struct err err;
    u64 bytes;
    CHECK(q && quant_bytes(t->type, t->n_elems, &bytes) && bytes == t->n_bytes);
    volatile u8 last = t->data[t->n_bytes - 1];
    (void)last;
    if (source_data(s, t, &data, &err)) {
        CHECK(!q->readable);
        return;
    }
    float y[256];
    quant_decode(t->type, data, y, q->blk);
    quant_decode(t->type, data + t->n_bytes - q->bytes, y, q->blk);
    source_drop(s, t);
}

int LLVMFuzzerTestOneInput(const u8 *p, size_t n);
int LLVMFuzzerTestOneInput(const u8 *p, size_t n)
{
    struct source *s;
    struct err err = {0};
    if (source_new(&s, "fuzz.gguf", &err)) return 0;
    int rc = gguf_read_image(s, p, n, &err);
    CHECK(rc <= 0 && (rc == 0 || (err.code == rc && err.text[0] && !strchr(err.text, '\n'))));
    for (u32 i = 0; rc == 0 && i < s->n_kvs; i++) touch_kv(s, &s->kvs[i]);
    for (u32 i = 0; rc == 0 && i < s->n_tensors; i++) touch_tensor(s, &s->tensors[i]);
    source_close(s);
    return 0;
}
