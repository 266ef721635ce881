#include "tiny_model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "format/gguf.h"
#include "model/vocab.h"

enum { DIM = 32, LAYERS = 2, HEADS = 4, KV_HEADS = 2, FF = 48 };

static const char chatml[] = "{%- for m in messages %}"
                             "{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}"
                             "{%- endfor %}"
                             "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}"
                             "{%- endif %}";

struct maker {
    struct source *s;
    struct gguf_writer *w;
    struct err err;
    u64 r;
    bool plant_nan;
};

static void must(struct maker *m, int rc)
{
    if (rc) fail_msg("tiny model: %s", m->err.text);
}

static float uniform(struct maker *m)
{
    m->r = m->r * 6364136223846793005u + 1442695040888963407u;
    return (float)(m->r >> 40) * 0x1p-23f - 1;
}

/* A directory of tokenizer files alone is no source, but vocab_load asks no more of one. */
static struct vocab *load_vocab(struct maker *m, const char *name)
{
    char path[128];
    struct source *dir;
    struct vocab *v;
    snprintf(path, sizeof path, "test/golden/tok/%s", name);
    must(m, source_new(&dir, path, &m->err));
    dir->is_dir = true;
    must(m, source_add_str(dir, "general.architecture", STR("llama"), &m->err));
    must(m, vocab_load(&v, dir, &m->err));
    assert_non_null(v->tok);
    source_close(dir);
    return v;
}

static void add_metadata(struct maker *m, u32 n_ctx)
{
    static const struct {
        const char *key;
        u32 value;
    } numbers[] = {
        {"llama.embedding_length", DIM},
        {"llama.block_count", LAYERS},
        {"llama.feed_forward_length", FF},
        {"llama.attention.head_count", HEADS},
        {"llama.attention.head_count_kv", KV_HEADS},
    };
    must(m, source_add_str(m->s, "general.architecture", STR("llama"), &m->err));
    must(m, source_add_str(m->s, "general.name", STR("tiny"), &m->err));
    must(m, source_add_u32(m->s, "llama.context_length", n_ctx, &m->err));
    must(m, source_add_f32(m->s, "llama.attention.layer_norm_rms_epsilon", 1e-5f, &m->err));
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
        must(m, source_add_u32(m->s, numbers[i].key, numbers[i].value, &m->err));
}

static void add_tensor(struct maker *m, u64 n_in, u64 n_out, const char *fmt, u32 layer)
{
    char name[64];
    snprintf(name, sizeof name, fmt, layer);
    struct str own = {arena_copy(&m->s->arena, str_of(name)), strlen(name)};
    struct tensor t = {.name = own, .type = QT_F32, .n_dims = n_out ? 2 : 1, .ne = {n_in, 1, 1, 1}};
    if (n_out) t.ne[1] = n_out;
    must(m, source_add_tensor(m->s, &t, &m->err));
}

static void add_tensors(struct maker *m, u32 n_vocab)
{
    u32 kv = DIM / HEADS * KV_HEADS;
    add_tensor(m, DIM, n_vocab, "token_embd.weight", 0);
    add_tensor(m, DIM, n_vocab, "output.weight", 0);
    add_tensor(m, DIM, 0, "output_norm.weight", 0);
    for (u32 l = 0; l < LAYERS; l++) {
        add_tensor(m, DIM, 0, "blk.%u.attn_norm.weight", l);
        add_tensor(m, DIM, DIM, "blk.%u.attn_q.weight", l);
        add_tensor(m, DIM, kv, "blk.%u.attn_k.weight", l);
        add_tensor(m, DIM, kv, "blk.%u.attn_v.weight", l);
        add_tensor(m, DIM, DIM, "blk.%u.attn_output.weight", l);
        add_tensor(m, DIM, 0, "blk.%u.ffn_norm.weight", l);
        add_tensor(m, DIM, FF, "blk.%u.ffn_gate.weight", l);
        add_tensor(m, DIM, FF, "blk.%u.ffn_up.weight", l);
        add_tensor(m, FF, DIM, "blk.%u.ffn_down.weight", l);
    }
}

/* Matrices with outputs as large as their inputs; norms near 1. */
static void write_tensor(struct maker *m, const struct tensor *t)
{
    float *x = malloc(t->n_bytes), scale = sqrtf(3.0f / (float)t->ne[0]);
    assert_non_null(x);
    if (str_starts(t->name, "token_embd") || str_starts(t->name, "output.")) scale = 1;
    for (u64 i = 0; i < t->n_elems; i++)
        x[i] = t->n_dims == 1 ? 1 + uniform(m) / 8 : uniform(m) * scale;
    if (m->plant_nan && str_is(t->name, "blk.1.ffn_down.weight")) {
        x[3] = NAN;
        x[7] = INFINITY;
    }
    must(m, gguf_writer_data(m->w, x, t->n_bytes, &m->err));
    free(x);
}

char *tiny_model_path(const struct tiny_model *o)
{
    struct maker m = {.r = o->seed, .plant_nan = o->plant_nan};
    char *path = strdup("/tmp/fletch-tiny-XXXXXX");
    assert_non_null(path);
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    must(&m, source_new(&m.s, path, &m.err));
    add_metadata(&m, o->n_ctx ? o->n_ctx : 256);
    struct vocab *v = load_vocab(&m, o->vocab ? o->vocab : "qwen2");
    const char *text = o->chat_template ? o->chat_template : chatml;
    v->spec.chat_template = *text ? str_of(text) : (struct str){0};
    must(&m, vocab_to_source(v, m.s, &m.err));
    add_tensors(&m, v->spec.n_tokens);
    must(&m, gguf_writer_open(&m.w, path, &m.err));
    for (u32 i = 0; i < m.s->n_kvs; i++) must(&m, gguf_writer_kv(m.w, &m.s->kvs[i], &m.err));
    for (u32 i = 0; i < m.s->n_tensors; i++)
        must(&m, gguf_writer_tensor(m.w, &m.s->tensors[i], &m.err));
    for (u32 i = 0; i < m.s->n_tensors; i++) write_tensor(&m, &m.s->tensors[i]);
    must(&m, gguf_writer_finish(m.w, &m.err));
    gguf_writer_close(m.w);
    source_close(m.s);
    vocab_close(v);
    return path;
}

void tiny_model_remove(char *path)
{
    unlink(path);
    free(path);
}
