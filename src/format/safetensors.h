/* The safetensors container: one header of names, types, shapes and byte ranges. */
#ifndef FLETCH_SAFETENSORS_H
#define FLETCH_SAFETENSORS_H

#include "base/arena.h"
#include "base/strmap.h"
#include "base/err.h"
#include "quant/quant.h"

struct st_tensor {
    struct str name;
    enum qtype type; /* F32, F16 or BF16; other types but bytes are refused by name */
    bool bytes;      /* U8: n_elems bytes, which only some recipes take */
    bool fp8;        /* F8_E4M3: a byte for each value, which with its scale becomes F32 */
    /* of fp8: one number for each block of rows and columns; NULL: not known */
    const struct st_tensor *scales;
    u64 block[2];
    u32 n_dims;
    u64 shape[8]; /* slowest dimension first, as written */
    u64 n_elems;
    const u8 *data;
    u64 n_bytes;
};

struct st_file {
    u32 n_tensors;
    struct st_tensor *tensors;
    struct strmap index;
    struct arena arena;
};

/* The image must outlive f. */
int st_parse(struct st_file *f, const u8 *p, u64 n, struct err *err);
const struct st_tensor *st_find(const struct st_file *f, struct str name);
void st_free(struct st_file *f);

#endif
