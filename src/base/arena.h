/* Memory that is given back all at once. Everything a handle owns and never frees singly. */
#ifndef FLETCH_ARENA_H
#define FLETCH_ARENA_H

#include "base/base.h"

struct arena {
    struct arena_chunk *head;
};

/* Zeroed, aligned to 16. NULL when out of memory or when n * size overflows. */
void *arena_alloc(struct arena *a, size_t n, size_t size);
/* A NUL-terminated copy. */
char *arena_copy(struct arena *a, struct str s);
char *arena_printf(struct arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void arena_free(struct arena *a);

#endif
