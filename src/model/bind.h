/* Binding: a weight is asked for by name and shape, and becomes an id of the net or an error that
 * names it. Failure is sticky: the net stops recording and bind->rc tells. Bytes are fetched later
 * (model_place), so that plans and explanations don't touch weights. */
#ifndef FLETCH_BIND_H
#define FLETCH_BIND_H

#include "base/strmap.h"
#include "core/program.h"
#include "format/source.h"

/* What a weight id is made of. */
struct bound {
    const struct tensor *tensor; /* NULL: the weight has its data already */
    u64 offset;                  /* of the first row used, in bytes */
};

struct bind {
    struct source *s;
    struct net *net;
    struct err *err;
    int rc;
    struct strmap ids; /* tensor name (+ row) to weight id, so that tied weights are one */
    u32 n, cap;
    struct bound *bound; /* [n] by weight id */
};

void bind_init(struct bind *b, struct source *s, struct net *net, struct err *err);
void bind_free(struct bind *b);

#define BIND_NAME(i) __attribute__((format(printf, i, i + 1)))

/* Required: [n_out][n_in], [n_slices][n_out][n_in] and [n]. Names are without ".weight"; a name
 * that ends in ".bias", ".scale", ".ssm_a" or ".ssm_d" is taken as it stands. */
u32 bind_matrix(struct bind *b, u32 n_in, u32 n_out, const char *name, ...) BIND_NAME(4);
u32 bind_slices(struct bind *b, u32 n_in, u32 n_out, u32 n_slices, const char *name, ...)
    BIND_NAME(5);
u32 bind_vector(struct bind *b, u32 n, const char *name, ...) BIND_NAME(3);
/* [n_vectors][n]: each row is used as a vector. */
u32 bind_vectors(struct bind *b, u32 n, u32 n_vectors, const char *name, ...) BIND_NAME(4);
/* Rows [row, row + n_out) of every slice of a tensor that has n_rows rows a slice, or of every
 * n_rows rows of a matrix. */
u32 bind_rows(struct bind *b, u32 n_in, u32 n_rows, u32 row, u32 n_out, u32 n_slices,
              const char *name, ...) BIND_NAME(7);
/* NO_WEIGHT when the file has no such tensor. */
u32 bind_vector_opt(struct bind *b, u32 n, const char *name, ...) BIND_NAME(3);
/* Entries [col, col + n) of an optional vector of n_all. */
u32 bind_vector_part(struct bind *b, u32 n_all, u32 col, u32 n, const char *name, ...) BIND_NAME(5);
/* A vector of n equal values, which is in no file. */
u32 bind_constant(struct bind *b, u32 n, float value);
bool bind_has(const struct bind *b, const char *name, ...) BIND_NAME(2);
/* Rows of a matrix, 0 when the file has no such tensor. */
u64 bind_count_rows(const struct bind *b, const char *name, ...) BIND_NAME(2);

#endif
