/* What a model remembers of some tokens, as a file: the tokens, a note of the caller's, and the
 * cache blocks or recurrent state behind them. A file belongs to one model, one rounding and one
 * kind of executor (its key); it appears under its name only when it is whole, and is trusted only
 * when its checksum is right. */
#ifndef FLETCH_STATEFILE_H
#define FLETCH_STATEFILE_H

#include "base/file.h"

struct statefile {
    const u8 *p; /* the whole image, borrowed */
    u64 n;
    const u8 *tokens; /* [n_tokens] i32, at any alignment */
    u32 n_tokens;
    struct str note;
    const u8 *state; /* [n_state] bytes */
    u64 n_state;
};

/* An image; refuses with one line whatever is not whole, or not of this key. */
int statefile_read(struct statefile *f, const u8 *p, u64 n, u64 key, struct err *err);

/* Writing: begin, then the state in pieces that add up to n_state, then end; end also cleans up
 * after a failure (rc) and returns it. */
struct statefile_out;
int statefile_begin(struct statefile_out **out, const char *path, u64 key, const i32 *tokens,
                    u32 n_tokens, struct str note, u64 n_state, struct err *err);
int statefile_add(struct statefile_out *f, const void *p, size_t n, struct err *err);
int statefile_end(struct statefile_out *f, int rc, struct err *err);

#endif
