#include "base/base.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct str str_of(const char *z)
{
    return (struct str){z, z ? strlen(z) : 0};
}

bool str_eq(struct str a, struct str b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}

bool str_is(struct str a, const char *z)
{
    return str_eq(a, str_of(z));
}

bool str_starts(struct str a, const char *prefix)
{
    size_t n = strlen(prefix);
    return n == 0 || (a.n >= n && memcmp(a.p, prefix, n) == 0);
}

bool str_ends(struct str a, const char *suffix)
{
    size_t n = strlen(suffix);
    return n == 0 || (a.n >= n && memcmp(a.p + a.n - n, suffix, n) == 0);
}

void base_check_failed(const char *cond, const char *file, int line)
{
    fprintf(stderr, "fletch: internal error: %s (%s:%d); please report this\n", cond, file, line);
    abort();
}

bool ck_align_up(u64 n, u64 align, u64 *out)
{
    u64 up;
    if (!CK_ADD(n, align - 1, &up)) return false;
    *out = up & ~(align - 1);
    return true;
}

double base_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}
