#include "serve/statefile.h"

#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { VERSION = 1 };

/* Little-endian hosts only, as GGUF is; then tokens, note, state, and the checksum of all before.
 */
struct head {
    char magic[8];
    u32 version, n_tokens;
    u64 key, n_note, n_state;
};
static const char magic[8] = "fletchS";

static bool add_up(const struct head *h, u64 *total)
{
    u64 n = sizeof *h + sizeof(u64) + (u64)h->n_tokens * sizeof(i32);
    return CK_ADD(n, h->n_note, &n) && CK_ADD(n, h->n_state, total);
}

int statefile_read(struct statefile *f, const u8 *p, u64 n, u64 key, struct err *err)
{
    struct head h;
    u64 total, sum;
    if (n < sizeof h || memcmp(p, magic, sizeof magic) != 0)
        return err_set(err, FLETCH_E_FORMAT, "not a file of a model's state");
    memcpy(&h, p, sizeof h);
    if (h.version != VERSION)
        return err_set(err, FLETCH_E_FORMAT, "state of version %u; this is version %d", h.version,
                       VERSION);
    if (!add_up(&h, &total) || total != n || h.n_tokens > INT32_MAX)
        return err_set(err, FLETCH_E_FORMAT, "its length is not what it says: damaged");
    memcpy(&sum, p + n - sizeof sum, sizeof sum);
    if (XXH3_64bits(p, n - sizeof sum) != sum)
        return err_set(err, FLETCH_E_FORMAT, "its checksum is wrong: damaged");
    if (h.key != key)
        return err_set(err, FLETCH_E_FORMAT,
                       "state of another model, or of other options (KV type, backend)");
    *f = (struct statefile){.p = p, .n = n, .tokens = p + sizeof h, .n_tokens = h.n_tokens};
    f->note = (struct str){(const char *)f->tokens + (size_t)h.n_tokens * sizeof(i32), h.n_note};
    f->state = (const u8 *)f->note.p + h.n_note;
    f->n_state = h.n_state;
    return 0;
}

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
    struct head h = {
        .version = VERSION, .n_tokens = n_tokens, .key = key, .n_note = note.n, .n_state = n_state};
    struct statefile_out *f = *out = calloc(1, sizeof *f);
    if (!f) return err_nomem(err, "the file");
    memcpy(h.magic, magic, sizeof magic);
    f->n_left = n_state;
    f->sum = XXH3_createState();
    if (!f->sum) return err_nomem(err, "the file");
    XXH3_64bits_reset(f->sum);
    int rc = file_out_open(&f->file, path, err);
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
