/* A source is what a model is loaded from: typed metadata and named tensors, in GGUF's terms.
 * A GGUF file (or split set) is one as it stands; a Hugging Face directory is made to look like
 * one: config.json becomes GGUF metadata, tensors get GGUF names, and those that GGUF stores
 * differently (permuted, stacked, transposed) are made when asked for. Everything above this
 * (binding, convert, inspect) knows sources only. The text tokenizer of a directory is not part
 * of it: model/vocab.h reads that. */
#ifndef FLETCH_SOURCE_H
#define FLETCH_SOURCE_H

#include "base/arena.h"
#include "base/err.h"
#include "base/file.h"
#include "base/strmap.h"
#include "quant/quant.h"

enum {
    SOURCE_MAX_ENTRIES = 65536, /* metadata entries, and tensors over all files of a set */
    SOURCE_MAX_KEY = 256,       /* bytes */
    SOURCE_MAX_NAME = 63,       /* bytes of a tensor's name, the limit of other engines */
};

/* GGUF metadata type ids. */
enum kv_type {
    KV_U8,
    KV_I8,
    KV_U16,
    KV_I16,
    KV_U32,
    KV_I32,
    KV_F32,
    KV_BOOL,
    KV_STR,
    KV_ARRAY,
    KV_U64,
    KV_I64,
    KV_F64,
    KV_COUNT
};

/* One metadata entry. Values stay packed as GGUF has them (little-endian, unaligned; strings as
 * u64 length + bytes), so a huge array costs nothing until it is read. */
struct kv {
    struct str key;
    enum kv_type type; /* KV_ARRAY: elem is the type of the elements */
    enum kv_type elem; /* = type for scalars */
    u64 n;             /* elements; 1 for scalars */
    const u8 *data;    /* n packed elements */
    u64 n_bytes;
};

struct tensor {
    struct str name;
    enum qtype type; /* always readable() types in a bound model; inspect shows any */
    u32 n_dims;
    u64 ne[4]; /* ne[0] runs fastest; missing dimensions are 1 */
    u64 n_elems, n_bytes;
    const u8 *data;              /* in a mapping or made; NULL until source_data makes it */
    const struct recipe *recipe; /* how to make it (hf.c); NULL: data is mapped */
};

struct source {
    char *path;
    bool is_dir;    /* a Hugging Face directory */
    bool text_only; /* one of which nothing but the text is read */
    u32 version;    /* GGUF version, 0 for a directory */
    u32 n_files;
    struct file_map *files;
    u32 n_kvs, cap_kvs;
    struct kv *kvs;
    u32 n_tensors, cap_tensors;
    struct tensor *tensors;
    u8 **made; /* [n_tensors] bytes made by recipes; NULL until the first one */
    u64 alignment;
    struct strmap kv_index, tensor_index;
    bool *kv_asked, *tensor_asked; /* [n_kvs], [n_tensors] somebody looked it up by name */
    bool ignore_unknown;           /* a model opens although n_refused > 0 */
    struct source_refused *refused;
    const char *left_out; /* a line about what is no part of the text model; NULL: nothing */
    struct arena arena;
    void *hf; /* what recipes refer to */
};

/* What the source says and nothing here honours, a line of text each: "metadata key 'x' = 3". */
struct source_refused {
    u32 n, cap;
    char **lines;
    bool failed; /* memory ran out: the list is not whole */
};

/* path: a .gguf file (the first of a split set) or a directory. */
int source_open(struct source **out, const char *path, struct err *err);
/* For the vocabulary and the chat template alone: of a directory nothing else is read, and neither
 * config.json nor weights need be there. */
int source_open_text(struct source **out, const char *path, struct err *err);
void source_close(struct source *s);

/* Looking a tensor or a key up by name marks it as asked for. */
const struct tensor *source_tensor(const struct source *s, const char *name);
/* The tensor's bytes in its own type, n_bytes long, at any alignment; made on first use and kept
 * until dropped. Refuses by name a type that quant_decode does not know. One caller at a time. */
int source_data(struct source *s, const struct tensor *t, const u8 **out, struct err *err);
/* Frees made bytes, or tells the system that the mapped pages won't be needed soon. */
void source_drop(struct source *s, const struct tensor *t);

const struct kv *source_kv(const struct source *s, const char *key);

/* Getters: 0 found, SOURCE_ABSENT (1) not there and *out untouched, negative wrong type or out
 * of range. Integers come from any integer type whose value fits, floats from f32/f64. */
enum { SOURCE_ABSENT = 1 };
int source_get_u32(const struct source *s, const char *key, u32 *out, struct err *err);
int source_get_f32(const struct source *s, const char *key, float *out, struct err *err);
int source_get_bool(const struct source *s, const char *key, bool *out, struct err *err);
int source_get_str(const struct source *s, const char *key, struct str *out, struct err *err);

/* Adds a line to what can't be honoured. Nothing fails yet: opening the model does. */
void source_refuse(const struct source *s, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* The line "metadata key 'x' = value". */
void source_refuse_kv(const struct source *s, const struct kv *kv);
/* An error that names the first of these lines and how many there are; 0 when there are none. */
int source_refused_error(const struct source *s, struct err *err);

/* Elements of an entry, scalar or array. False when it is not of that kind or does not fit. */
bool kv_int(const struct kv *kv, u64 i, i64 *out);
bool kv_float(const struct kv *kv, u64 i, double *out);
/* Strings in order: start with *at = 0, call n times. */
bool kv_next_str(const struct kv *kv, u64 *at, struct str *out);

/* For makers of sources (gguf.c, hf.c, convert, tests). Names and values are copied into the
 * arena. All fail on a duplicate name or when memory runs out. */
int source_new(struct source **out, const char *path, struct err *err);
int source_add_u32(struct source *s, const char *key, u32 v, struct err *err);
int source_add_f32(struct source *s, const char *key, float v, struct err *err);
int source_add_bool(struct source *s, const char *key, bool v, struct err *err);
int source_add_str(struct source *s, const char *key, struct str v, struct err *err);
/* n elements already packed as GGUF packs them. */
int source_add_array(struct source *s, const char *key, enum kv_type elem, u64 n, const void *data,
                     u64 n_bytes, struct err *err);
int source_add_strs(struct source *s, const char *key, u64 n, const struct str *v, struct err *err);
/* Borrows kv->key and kv->data (they live in a mapping or in the arena). */
int source_add_kv(struct source *s, const struct kv *kv, struct err *err);
/* t->n_elems and n_bytes are computed here; t->name is borrowed. */
int source_add_tensor(struct source *s, const struct tensor *t, struct err *err);

/* Size in bytes of one element of a fixed-size metadata type, 0 for strings and arrays. */
u32 kv_size(enum kv_type type);
const char *kv_type_name(enum kv_type type);

#endif
