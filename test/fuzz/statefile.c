/* Any bytes as a file of a model's state: as they are, and with the checksum that they should have,
 * which anybody can compute. */
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "serve/statefile.h"

static u64 touch(const u8 *p, u64 n)
{
    u64 sum = 0;
    for (u64 i = 0; i < n; i++) sum += p[i];
    return sum;
}

static void read_image(const u8 *p, size_t n)
{
    struct statefile f;
    struct err err = {0};
    int rc = statefile_read(&f, p, n, 7, &err);
    CHECK(rc == 0 || (rc == FLETCH_E_FORMAT && err.text[0] && !strchr(err.text, '\n')));
    if (rc) return;
    volatile u64 sum = touch(f.tokens, (u64)f.n_tokens * sizeof(i32)) +
                       touch((const u8 *)f.note.p, f.note.n) + touch(f.state, f.n_state);
    (void)sum;
}

int LLVMFuzzerTestOneInput(const u8 *p, size_t n);
int LLVMFuzzerTestOneInput(const u8 *p, size_t n)
{
    read_image(p, n);
    if (n < sizeof(u64)) return 0;
    u8 *copy = malloc(n);
    if (!copy) return 0;
    memcpy(copy, p, n);
    u64 sum = XXH3_64bits(copy, n - sizeof sum);
    memcpy(copy + n - sizeof sum, &sum, sizeof sum);
    read_image(copy, n);
    free(copy);
    return 0;
}
