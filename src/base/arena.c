#include "base/arena.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct arena_chunk {
    struct arena_chunk *next;
    size_t used, cap;
    _Alignas(16) u8 data[];
};

void *arena_alloc(struct arena *a, size_t n, size_t size)
{
    size_t bytes, need;
    u64 up;
    if (!CK_MUL(n, size, &bytes) || !ck_align_up(bytes ? bytes : 1, 16, &up)) return NULL;
    bytes = (size_t)up;
    struct arena_chunk *c = a->head;
    if (!c || c->cap - c->used < bytes) {
        size_t cap = MAX(bytes, (size_t)32 << 10);
        if (!CK_ADD(cap, sizeof *c, &need)) return NULL;
        c = calloc(1, need);
        if (!c) return NULL;
        c->cap = cap;
        c->next = a->head;
        a->head = c;
    }
    void *p = c->data + c->used;
    c->used += bytes;
    return p;
}

char *arena_copy(struct arena *a, struct str s)
{
    size_t need;
    if (!CK_ADD(s.n, (size_t)1, &need)) return NULL;
    char *p = arena_alloc(a, need, 1);
    if (p && s.n) memcpy(p, s.p, s.n);
    return p;
}

char *arena_printf(struct arena *a, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    char *p = n < 0 ? NULL : arena_alloc(a, (size_t)n + 1, 1);
    if (p) {
        va_start(ap, fmt);
        vsnprintf(p, (size_t)n + 1, fmt, ap);
        va_end(ap);
    }
    return p;
}

void arena_free(struct arena *a)
{
    for (struct arena_chunk *c = a->head, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    a->head = NULL;
}
