#include "serve/statefile.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "serve/statefile_head.h"

static bool add_up(const struct statefile_head *h, u64 *total)
{
    u64 n = sizeof *h + sizeof(u64) + (u64)h->n_tokens * sizeof(i32);
    return CK_ADD(n, h->n_note, &n) && CK_ADD(n, h->n_state, total);
}

int statefile_read(struct statefile *f, const u8 *p, u64 n, u64 key, struct err *err)
{
    struct statefile_head h;
    u64 total, sum;
    if (n < sizeof h || memcmp(p, STATEFILE_MAGIC, sizeof h.magic) != 0)
        return err_set(err, FLETCH_E_FORMAT, "not a session file or prefix file");
    memcpy(&h, p, sizeof h);
    if (h.version != STATEFILE_VERSION)
        return err_set(err, FLETCH_E_FORMAT, "format version %u; this fletch reads version %d",
                       h.version, STATEFILE_VERSION);
    if (!add_up(&h, &total) || total != n || h.n_tokens > INT32_MAX)
        return err_set(err, FLETCH_E_FORMAT,
                       "the file is damaged (its length does not match its header)");
    memcpy(&sum, p + n - sizeof sum, sizeof sum);
    if (XXH3_64bits(p, n - sizeof sum) != sum)
        return err_set(err, FLETCH_E_FORMAT, "the file is damaged (its checksum is wrong)");
    if (h.key != key)
        return err_set(err, FLETCH_E_FORMAT,
                       "it was saved with another model, or with other options (such as --kv-type "
                       "or --backend)");
    *f = (struct statefile){.p = p, .n = n, .tokens = p + sizeof h, .n_tokens = h.n_tokens};
    f->note = (struct str){(const char *)f->tokens + (size_t)h.n_tokens * sizeof(i32), h.n_note};
    f->state = (const u8 *)f->note.p + h.n_note;
    f->n_state = h.n_state;
    return 0;
}
