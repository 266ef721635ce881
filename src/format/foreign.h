/* Files that people take for models: what one is by its first bytes, and what to do with it. */
#ifndef FLETCH_FOREIGN_H
#define FLETCH_FOREIGN_H

#include "base/base.h"

/* One line without the file's name, or NULL: nothing that is known. path only helps to tell. */
const char *foreign_describe(const char *path, const u8 *p, u64 n);

#endif
