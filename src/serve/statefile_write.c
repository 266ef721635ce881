#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "serve/statefile.h"
#include "serve/statefile_head.h"

struct statefile_out {
    struct file_out *file;
    XXH3_state_t *sum;
    u64 n_left;
};

static int put(struct statefile_out *f, const void *p, size_t n, struct err *err)
{
    XXH3_64bits_update(f->sum, p, n);
    return file_out_write(f->file, p, n, err);
}

int statefile_begin(struct statefile_out **out, const char *path, u64 key, const i32 *tokens,
                    u32 n_tokens, struct str note, u64 n_state, struct err *err)
{
    struct statefile_head h = {.version = STATEFILE_VERSION,
                               .n_tokens = n_tokens,
                               .key = key,
                               .n_note = note.n,
                               .n_state = n_state};
    struct statefile_out *f = *out = calloc(1, sizeof *f);
    if (!f) return err_nomem(err, "the file");
    memcpy(h.magic, STATEFILE_MAGIC, sizeof h.magic);
    f->n_left = n_state;
    f->sum = XXH3_createState();
    if (!f->sum) return err_nomem(err, "the file");
    XXH3_64bits_reset(f->sum);
    int rc = file_out_open(&f->file, path, FILE_PRIVATE, err);
    if (!rc) rc = put(f, &h, sizeof h, err);
    if (!rc) rc = put(f, tokens, n_tokens * sizeof *tokens, err);
    return rc ? rc : put(f, note.p, note.n, err);
}

int statefile_add(struct statefile_out *f, const void *p, size_t n, struct err *err)
{
    CHECK(n <= f->n_left);
    f->n_left -= n;
    return put(f, p, n, err);
}

int statefile_end(struct statefile_out *f, int rc, struct err *err)
{
    if (!f) return rc;
    if (!rc) {
        CHECK(f->n_left == 0);
        u64 sum = XXH3_64bits_digest(f->sum);
        rc = file_out_write(f->file, &sum, sizeof sum, err);
    }
    if (!rc) rc = file_out_commit(f->file, err);
    if (f->file) file_out_close(f->file);
    XXH3_freeState(f->sum);
    free(f);
    return rc;
}
