/* How a file of a model's state begins; then tokens, note, state, and the checksum of all before.
 * Little-endian hosts only, as GGUF is. */
#ifndef FLETCH_STATEFILE_HEAD_H
#define FLETCH_STATEFILE_HEAD_H

#include "base/base.h"

#define STATEFILE_MAGIC   "fletchS"
#define STATEFILE_VERSION 1

struct statefile_head {
    char magic[sizeof STATEFILE_MAGIC];
    u32 version, n_tokens;
    u64 key, n_note, n_state;
};

#endif
