/* Whole files: mapped read-only, read into memory, or written beside their final name and
 * renamed when complete. */
#ifndef FLETCH_FILE_H
#define FLETCH_FILE_H

#include "base/err.h"

struct file_map {
    const u8 *p;
    u64 n; /* the size when it was opened; a file that shrinks later faults (docs/design.md) */
};

int file_map_open(struct file_map *m, const char *path, struct err *err);
void file_map_close(struct file_map *m);

/* The whole file, NUL-terminated (free it). Over max bytes is an error that names the limit. */
int file_read(char **out, size_t *n, const char *path, size_t max, struct err *err);

bool file_is_dir(const char *path);
bool file_exists(const char *path);
/* A folder for its owner alone, and those above it that are not there. */
int file_make_dir(const char *path, struct err *err);
/* The same where prompts are kept: a folder that is there already and that others can read or write
 * is closed to them if it is the caller's and holds nothing but files whose names `is_ours` knows,
 * which are closed too; any other is refused. */
int file_make_private_dir(const char *path, bool (*is_ours)(const char *name), struct err *err);

/* A file that appears under its name only when it is whole; what has that name already must be a
 * regular file. Until then it is NAME.fletch0, or the next number that nobody writes to; what a
 * process that was killed left there is gone with the next writer's. */
struct file_out;
enum file_readers {
    FILE_SHARED,  /* anyone whom the user's umask allows */
    FILE_PRIVATE, /* the user alone */
};
int file_out_open(struct file_out **out, const char *path, enum file_readers readers,
                  struct err *err);
int file_out_write(struct file_out *f, const void *p, size_t n, struct err *err);
int file_out_pwrite(struct file_out *f, const void *p, size_t n, u64 at, struct err *err);
int file_out_commit(struct file_out *f, struct err *err); /* sync, rename; close it anyway */
void file_out_close(struct file_out *f);                  /* removes what was not committed */

#endif
