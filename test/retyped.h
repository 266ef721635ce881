/* A model as a GGUF image in memory, its tensors stored in the types that a test asks for: what
 * files of other people may hold. Failures end the test through cmocka. */
#ifndef FLETCH_RETYPED_H
#define FLETCH_RETYPED_H

#include "format/source.h"

struct retyped {
    u8 *image;
    u64 n;
    struct source *s; /* reads the image: tensor data lies inside it */
};

/* The type to store a tensor in; in one that fletch reads but does not write, it is random. */
typedef enum qtype retyped_type_fn(const void *ctx, const struct tensor *t);

/* path: a file or a directory, as source_open takes. */
void retyped_open(struct retyped *o, const char *path, retyped_type_fn *type_of, const void *ctx);
void retyped_close(struct retyped *o);

/* Can rows of t be stored in a type that fletch reads? */
bool retyped_fits(const struct tensor *t, enum qtype type);

/* Does the name of tensor i differ from those of used ones before it by more than the layer? */
bool retyped_is_first_of_kind(const struct source *s, u32 i);

#endif
