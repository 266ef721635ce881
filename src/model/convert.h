/* Writes any source as one GGUF file in a chosen storage type. */
#ifndef FLETCH_CONVERT_H
#define FLETCH_CONVERT_H

#include "format/source.h"

/* type_name: see convert_type_by_name. n_threads as in pool_open. progress is told bytes written
 * and bytes to write, from the calling thread. out appears only when it is whole. A model that
 * would not open because of what it says is refused (params->ignore_unknown: told of). */
int convert_run(const char *in, const char *out, const char *type_name, u32 n_threads,
                const struct fletch_convert_params *params, struct err *err);

/* Which type each tensor gets. */
struct convert_type {
    const char *name;
    enum qtype base; /* what most matrices become */
    u32 file_type;   /* general.file_type */
    bool more_bits;  /* Q6_K for the tensors that lose most */
    bool big_output; /* Q6_K for the output matrix, or the embedding in its place */
};

/* NULL: there is none, and err says which there are. */
const struct convert_type *convert_type_by_name(const char *name, struct err *err);

/* What the choice depends on besides the tensor. */
struct convert_model {
    u32 n_blocks, n_experts;
    u32 n_attn_v; /* blocks with attn_v, attn_qkv or attn_kv_b */
    bool tied;    /* no output tensor */
    bool is_70b;
};

void convert_describe(struct convert_model *m, const struct source *s);
enum qtype convert_choose(const struct convert_type *type, const struct convert_model *m,
                          const struct tensor *t);

#endif
