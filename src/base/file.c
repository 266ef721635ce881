#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int open_regular(const char *path, u64 *size, struct err *err)
{
    struct stat st;
    /* Opening a pipe would wait for its writer; for regular files the flag means nothing. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return err_set(err, FLETCH_E_IO, "cannot open %s: %s", QUOTE(str_of(path)),
                       strerror(errno));
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        close(fd);
        return err_set(err, FLETCH_E_IO, "%s is not a regular file", QUOTE(str_of(path)));
    }
    *size = (u64)st.st_size;
    return fd;
}

int file_map_open(struct file_map *m, const char *path, struct err *err)
{
    *m = (struct file_map){0};
    int fd = open_regular(path, &m->n, err);
    if (fd < 0) return fd;
    if (m->n > SIZE_MAX / 2) {
        close(fd);
        return err_set(err, FLETCH_E_IO, "%s is too large to map", QUOTE(str_of(path)));
    }
    void *p = m->n ? mmap(NULL, (size_t)m->n, PROT_READ, MAP_SHARED, fd, 0) : NULL;
    int saved = errno;
    close(fd);
    if (p == MAP_FAILED) {
        m->n = 0;
        return err_set(err, FLETCH_E_IO, "cannot map %s: %s", QUOTE(str_of(path)), strerror(saved));
    }
    m->p = p;
    return 0;
}

void file_map_close(struct file_map *m)
{
    if (m->p) munmap((void *)(uintptr_t)m->p, (size_t)m->n);
    *m = (struct file_map){0};
}

int file_read(char **out, size_t *n, const char *path, size_t max, struct err *err)
{
    u64 size;
    *out = NULL;
    int fd = open_regular(path, &size, err);
    if (fd < 0) return fd;
    if (size > max) {
        close(fd);
        return err_set(err, FLETCH_E_LIMIT, "%s has %llu bytes; the limit is %zu",
                       QUOTE(str_of(path)), (unsigned long long)size, max);
    }
    char *p = malloc((size_t)size + 1);
    size_t got = 0;
    while (p && got < size) {
        ssize_t r = read(fd, p + got, (size_t)size - got);
        if (r < 0 && errno == EINTR) continue;
        if (r <= 0) break;
        got += (size_t)r;
    }
    close(fd);
    if (!p) return err_nomem(err, path);
    if (got != size) {
        free(p);
        return err_set(err, FLETCH_E_IO, "cannot read all of %s", QUOTE(str_of(path)));
    }
    p[got] = 0;
    *out = p;
    *n = got;
    return 0;
}

bool file_is_dir(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

bool file_exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

int file_make_dir(const char *path, struct err *err)
{
    char dir[4096];
    size_t n = strlen(path);
    if (n >= sizeof dir) return err_set(err, FLETCH_E_ARG, "the name of a folder is too long");
    for (size_t i = 1; i <= n; i++) {
        if (i < n && path[i] != '/') continue;
        memcpy(dir, path, i);
        dir[i] = 0;
        if (mkdir(dir, 0700) && errno != EEXIST)
            return err_set(err, FLETCH_E_IO, "cannot create the folder %s: %s", QUOTE(str_of(dir)),
                           strerror(errno));
    }
    return 0;
}

static bool is_closed_to_others(mode_t mode)
{
    return (mode & 077) == 0;
}

/* Nothing is changed before all is known to be ours. */
static bool holds_only_ours(DIR *dir, bool (*is_ours)(const char *name))
{
    struct stat st;
    rewinddir(dir);
    for (struct dirent *d; (d = readdir(dir));) {
        if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0) continue;
        if (!is_ours(d->d_name) || fstatat(dirfd(dir), d->d_name, &st, AT_SYMLINK_NOFOLLOW) ||
            !S_ISREG(st.st_mode))
            return false;
    }
    return true;
}

static bool close_to_others(DIR *dir)
{
    struct stat st;
    if (fchmod(dirfd(dir), 0700) != 0) return false;
    rewinddir(dir);
    for (struct dirent *d; (d = readdir(dir));) {
        if (d->d_name[0] == '.' || fstatat(dirfd(dir), d->d_name, &st, AT_SYMLINK_NOFOLLOW) ||
            is_closed_to_others(st.st_mode))
            continue;
        int fd = openat(dirfd(dir), d->d_name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        bool failed = fd < 0 || fchmod(fd, 0600) != 0;
        if (fd >= 0) close(fd);
        if (failed) return false;
    }
    return true;
}

int file_make_private_dir(const char *path, bool (*is_ours)(const char *name), struct err *err)
{
    struct stat st;
    int rc = file_make_dir(path, err);
    if (rc) return rc;
    DIR *dir = opendir(path);
    if (!dir || fstat(dirfd(dir), &st) != 0) {
        rc = err_set(err, FLETCH_E_IO, "cannot list %s: %s", QUOTE(str_of(path)), strerror(errno));
    } else if (!is_closed_to_others(st.st_mode)) {
        bool closed =
            st.st_uid == geteuid() && holds_only_ours(dir, is_ours) && close_to_others(dir);
        if (!closed)
            rc = err_set(err, FLETCH_E_ARG,
                         "no prefix files are saved in %s, because other users can open it (mode "
                         "%03o); use another folder, or run chmod 700 on this folder",
                         QUOTE(str_of(path)), (unsigned)(st.st_mode & 0777));
    }
    if (dir) closedir(dir);
    return rc;
}

struct file_out {
    int fd;
    char *path, *tmp; /* tmp is NULL once renamed */
};

/* Is fd, which has that name, ours alone? Its lock goes with whoever held it. */
static bool is_free(int fd, const char *name, bool made)
{
    struct stat st, named;
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 && (errno == EWOULDBLOCK || !made)) return false;
    return fstat(fd, &st) == 0 && lstat(name, &named) == 0 && st.st_ino == named.st_ino &&
           st.st_dev == named.st_dev && S_ISREG(st.st_mode) && st.st_uid == geteuid();
}

/* Removes what a writer that was killed has left under that name. */
static void remove_abandoned(const char *name)
{
    int fd = open(name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) return; /* somebody else's, or gone */
    if (is_free(fd, name, false)) unlink(name);
    close(fd);
}

/* Beside the final name, for one writer each. Its mode is right from the beginning, so that nobody
 * can have opened it before: a leftover is made anew, not used again. */
static int open_unfinished(char *name, size_t cap, const char *path, mode_t mode)
{
    enum { MAX_WRITERS = 100 };
    const int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_CREAT | O_EXCL;
    int fd = -1;
    for (u32 i = 0; i < MAX_WRITERS && fd < 0; i++) {
        snprintf(name, cap, "%s.fletch%u", path, i);
        fd = open(name, flags, mode);
        if (fd < 0 && errno == EEXIST) {
            remove_abandoned(name);
            fd = open(name, flags, mode);
        }
        if (fd < 0 && errno != EEXIST) break;
        if (fd < 0 || is_free(fd, name, true)) continue;
        close(fd);
        fd = -1;
        errno = EBUSY;
    }
    return fd;
}

int file_out_open(struct file_out **out, const char *path, enum file_readers readers,
                  struct err *err)
{
    size_t n = strlen(path) + 16;
    struct stat st;
    *out = NULL;
    /* Renaming would put a file in the place of a device, or fail when all is written. */
    if (!*path || (stat(path, &st) == 0 && !S_ISREG(st.st_mode)))
        return err_set(err, FLETCH_E_IO, "cannot write %s: it is not a regular file",
                       QUOTE(str_of(path)));
    struct file_out *f = calloc(1, sizeof *f);
    if (!f) return err_nomem(err, path);
    f->fd = -1;
    f->path = strdup(path);
    f->tmp = malloc(n);
    if (!f->path || !f->tmp) {
        free(f->tmp);
        f->tmp = NULL;
        file_out_close(f);
        return err_nomem(err, path);
    }
    f->fd = open_unfinished(f->tmp, n, path, readers == FILE_PRIVATE ? 0600 : 0666);
    if (f->fd < 0) {
        int saved = errno;
        free(f->tmp);
        f->tmp = NULL;
        file_out_close(f);
        return err_set(err, FLETCH_E_IO, "cannot create %s: %s", QUOTE(str_of(path)),
                       strerror(saved));
    }
    *out = f;
    return 0;
}

static int out_failed(struct file_out *f, struct err *err)
{
    return err_set(err, FLETCH_E_IO, "cannot write %s: %s", QUOTE(str_of(f->path)),
                   strerror(errno));
}

int file_out_write(struct file_out *f, const void *p, size_t n, struct err *err)
{
    for (const char *c = p; n;) {
        ssize_t r = write(f->fd, c, n);
        if (r < 0 && errno == EINTR) continue;
        if (r <= 0) return out_failed(f, err);
        c += r;
        n -= (size_t)r;
    }
    return 0;
}

int file_out_pwrite(struct file_out *f, const void *p, size_t n, u64 at, struct err *err)
{
    for (const char *c = p; n;) {
        ssize_t r = pwrite(f->fd, c, n, (off_t)at);
        if (r < 0 && errno == EINTR) continue;
        if (r <= 0) return out_failed(f, err);
        c += r;
        n -= (size_t)r;
        at += (u64)r;
    }
    return 0;
}

int file_out_commit(struct file_out *f, struct err *err)
{
    if (fsync(f->fd) != 0 || rename(f->tmp, f->path) != 0) return out_failed(f, err);
    free(f->tmp);
    f->tmp = NULL;
    return 0;
}

void file_out_close(struct file_out *f)
{
    if (!f) return;
    if (f->tmp) unlink(f->tmp); /* while it is locked */
    if (f->fd >= 0) close(f->fd);
    free(f->tmp);
    free(f->path);
    free(f);
}
