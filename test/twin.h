/* A copy in memory of a golden model's metadata and tensors with some left out, to which a test
 * adds its own. Failures end the test through cmocka. */
#ifndef FLETCH_TWIN_H
#define FLETCH_TWIN_H

#include "format/source.h"

struct twin {
    struct source *from, *to; /* to: give it to model_open, or let twin_close have it */
};

/* name: of a golden directory. without: names of keys and tensors with '|' between them, or "" for
 * a whole copy; one '*' in each stands for anything. */
void twin_open(struct twin *t, const char *name, const char *without);
void twin_close(struct twin *t);
/* to, which now belongs to the caller. */
struct source *twin_take(struct twin *t);

bool twin_matches(const char *pattern, struct str name);
/* A tensor of these dimensions; data is borrowed. */
void twin_add(struct twin *t, const char *name, enum qtype type, u64 ne0, u64 ne1, u64 ne2,
              const void *data);
/* Rows of the tensors of `from` named names[0..n-1], slice by slice one after the other, as name.
 */
void twin_join(struct twin *t, const char *name, const char *const *names, u32 n);

#endif
