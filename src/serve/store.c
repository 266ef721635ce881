#include "serve/store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/os.h"

enum {
    MAX_FILES = 4096,
    MAX_PATH = 4096,
    STALE_SECONDS = 3600,   /* after which a file that was never finished is rubbish */
    MAX_PAUSE = 64,         /* times retry_seconds: see count_result */
    LARGEST_SHARE = 4,      /* no piece takes more than this part of the folder */
    PIECE_BYTES = 64 << 20, /* nor, of blocks, more than so many or one grain: it waits in memory */
};

struct entry {
    u64 key, hash; /* its name */
    u64 bytes;
    u64 used;  /* when, in ns */
    bool bad;  /* and could not be removed */
    bool seen; /* in the last listing */
};

/* What a file says besides its tokens. */
struct note {
    u64 salt, first;
};

/* A piece on its way to the disk. */
struct job {
    u64 hash, n_state;
    struct note note;
    i32 *tokens;
    u32 n;
    u8 *state;
    bool ready; /* the thread may have it; else it is being filled */
};

struct store {
    struct store_env env;
    char dir[MAX_PATH - 64];
    pthread_t thread;
    bool started;
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t changed;
    struct entry entries[MAX_FILES];
    u32 n;
    u64 total;
    u64 listed;     /* when the folder had last changed, as far as entries know */
    struct job job; /* tokens NULL: none */
    bool stop;
    u64 n_failed;    /* files that could not be written, all of them */
    u32 pause;       /* after the last one, in retry_seconds; 0: the last file was written */
    double retry_at; /* by base_now: no file is begun before */
};

static u64 now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (u64)t.tv_sec * 1000000000 + (u64)t.tv_nsec;
}

static void path_of(const struct store *s, const struct entry *e, char path[MAX_PATH])
{
    snprintf(path, MAX_PATH, "%s/%016llx-%016llx.kv", s->dir, (unsigned long long)e->key,
             (unsigned long long)e->hash);
}

static void tell(const struct store *s, const struct err *err, const char *what)
{
    char text[MAX_PATH + 512];
    snprintf(text, sizeof text, "%s; %s", err->text, what);
    if (s->env.notice) s->env.notice(s->env.notice_ctx, text);
}

/* ---- the index ---- */

static struct entry *find(struct store *s, u64 key, u64 hash)
{
    for (u32 i = 0; i < s->n; i++)
        if (s->entries[i].key == key && s->entries[i].hash == hash) return &s->entries[i];
    return NULL;
}

static void remove_entry(struct store *s, struct entry *e)
{
    s->total -= e->bytes;
    *e = s->entries[--s->n];
}

/* Somebody else removed it, or another process made room. */
static bool is_gone(const struct store *s, const struct entry *e)
{
    char path[MAX_PATH];
    struct stat st;
    path_of(s, e, path);
    return lstat(path, &st) != 0 && errno == ENOENT;
}

/* When files of the folder last came or went. */
static u64 changed_at(const struct store *s)
{
    struct stat st;
    return stat(s->dir, &st) ? 0 : os_written_ns(&st);
}

/* Removes the files that were unused for longest until there is room for one of so many bytes. */
static void make_room(struct store *s, u64 bytes)
{
    while (s->n && (s->n == MAX_FILES || s->total + bytes > s->env.max_bytes)) {
        char path[MAX_PATH];
        struct entry *oldest = s->entries;
        for (u32 i = 1; i < s->n; i++)
            if (s->entries[i].used < oldest->used) oldest = &s->entries[i];
        path_of(s, oldest, path);
        unlink(path);
        remove_entry(s, oldest);
    }
}

static void add_entry(struct store *s, struct entry e)
{
    struct entry *old = find(s, e.key, e.hash);
    if (old) remove_entry(s, old);
    make_room(s, e.bytes);
    s->entries[s->n++] = e;
    s->total += e.bytes;
}

/* Reads a file's name; *n_name: of the part that names a whole file. */
static bool parse_name(const char *name, u64 *key, u64 *hash, int *n_name)
{
    unsigned long long k, h;
    *n_name = 0;
    if (sscanf(name, "%16llx-%16llx.kv%n", &k, &h, n_name) != 2 || *n_name != 36) return false;
    *key = k;
    *hash = h;
    return true;
}

static bool is_ours(const char *name)
{
    u64 key, hash;
    int n;
    return parse_name(name, &key, &hash, &n);
}

static void add_listed(struct store *s, u64 key, u64 hash, const struct stat *st)
{
    struct entry *old = find(s, key, hash);
    u64 used = os_written_ns(st);
    if (old && old->bytes == (u64)st->st_size) {
        old->used = MAX(old->used, used);
        old->seen = true;
        return;
    }
    add_entry(s, (struct entry){key, hash, (u64)st->st_size, used, .seen = true});
}

/* Files of any model count, by their names; what a crash left unfinished goes. */
static int list_files(struct store *s, struct err *err)
{
    s->listed = changed_at(s);
    for (u32 i = 0; i < s->n; i++) s->entries[i].seen = false;
    DIR *dir = opendir(s->dir);
    if (!dir)
        return err_set(err, FLETCH_E_IO, "cannot list %s: %s", QUOTE(str_of(s->dir)),
                       strerror(errno));
    for (struct dirent *d; (d = readdir(dir));) {
        u64 key, hash;
        int end;
        struct stat st;
        if (!parse_name(d->d_name, &key, &hash, &end)) continue;
        if (fstatat(dirfd(dir), d->d_name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode))
            continue;
        if (!d->d_name[end])
            add_listed(s, key, hash, &st);
        else if (st.st_mtime + STALE_SECONDS < time(NULL))
            unlinkat(dirfd(dir), d->d_name, 0);
    }
    closedir(dir);
    for (u32 i = s->n; i-- > 0;)
        if (!s->entries[i].seen) remove_entry(s, &s->entries[i]);
    return 0;
}

/* Other models of this program and other servers use the folder, too. */
static void list_again(struct store *s)
{
    struct err err;
    if (changed_at(s) != s->listed) (void)list_files(s, &err);
}

int store_scan(const char *path, bool remove, u64 *n, u64 *bytes, struct err *err)
{
    DIR *dir = opendir(path);
    int rc = 0;
    *n = *bytes = 0;
    if (!dir && errno == ENOENT) return 0;
    if (!dir)
        return err_set(err, FLETCH_E_IO, "cannot list %s: %s", QUOTE(str_of(path)),
                       strerror(errno));
    for (struct dirent *d; (d = readdir(dir)) && !rc;) {
        struct stat st;
        if (!is_ours(d->d_name) || fstatat(dirfd(dir), d->d_name, &st, AT_SYMLINK_NOFOLLOW) ||
            !S_ISREG(st.st_mode))
            continue;
        if (remove && unlinkat(dirfd(dir), d->d_name, 0) && errno != ENOENT)
            rc = err_set(err, FLETCH_E_IO, "cannot delete %s in %s: %s", QUOTE(str_of(d->d_name)),
                         QUOTE(str_of(path)), strerror(errno));
        *n += !rc;
        *bytes += rc ? 0 : (u64)st.st_size;
    }
    closedir(dir);
    return rc;
}

/* ---- writing ---- */

static void job_free(struct job *j)
{
    free(j->tokens);
    free(j->state);
    *j = (struct job){0};
}

static int write_job(const struct store *s, const struct job *j, const char *path, struct err *err)
{
    struct statefile_out *f;
    struct str note = {(const char *)&j->note, sizeof j->note};
    int rc = statefile_begin(&f, path, s->env.key, j->tokens, j->n, note, j->n_state, err);
    if (!rc) rc = statefile_add(f, j->state, j->n_state, err);
    return statefile_end(f, rc, err);
}

/* The folder may have been removed meanwhile, with all that it held. */
static int write_anew(struct store *s, const char *path, struct err *err)
{
    int rc = write_job(s, &s->job, path, err);
    if (!rc || file_is_dir(s->dir)) return rc;
    rc = file_make_private_dir(s->dir, is_ours, err);
    if (rc) return rc;
    pthread_mutex_lock(&s->lock);
    s->n = 0;
    s->total = 0;
    pthread_mutex_unlock(&s->lock);
    return write_job(s, &s->job, path, err);
}

/* A full disk is nothing to try again at every prompt, nor anything to give up for: each file that
 * fails doubles the pause before the next one. One line says that files fail, and one that they no
 * longer do. */
static void count_result(struct store *s, const struct err *err, int rc)
{
    char text[128];
    pthread_mutex_lock(&s->lock);
    u32 before = s->pause;
    s->n_failed += rc != 0;
    s->pause = !rc ? 0 : before ? MIN(2 * before, (u32)MAX_PAUSE) : 1;
    s->retry_at = base_now() + s->pause * s->env.retry_seconds;
    snprintf(text, sizeof text, "prefix files are being saved again, after %llu failures",
             (unsigned long long)s->n_failed);
    pthread_mutex_unlock(&s->lock);
    if (rc && !before) tell(s, err, "no prefix files are saved until writing succeeds again");
    if (!rc && before && s->env.notice) s->env.notice(s->env.notice_ctx, text);
}

static void *write_jobs(void *arg)
{
    struct store *s = arg;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (!s->job.ready && !s->stop) pthread_cond_wait(&s->changed, &s->lock);
        if (!s->job.ready) break;
        struct entry e = {.key = s->env.key, .hash = s->job.hash, .used = now_ns()};
        struct stat st = {0};
        char path[MAX_PATH];
        struct err err;
        path_of(s, &e, path);
        list_again(s);
        make_room(s, s->job.n_state);
        bool was_listed = s->listed == changed_at(s);
        pthread_mutex_unlock(&s->lock);
        int rc = write_anew(s, path, &err);
        count_result(s, &err, rc);
        if (!rc) rc = stat(path, &st);
        pthread_mutex_lock(&s->lock);
        e.bytes = (u64)st.st_size;
        if (!rc) add_entry(s, e);
        if (was_listed) s->listed = changed_at(s);
        job_free(&s->job);
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

int store_open(struct store **out, const struct store_env *env, struct err *err)
{
    struct store *s = *out = calloc(1, sizeof *s);
    if (!s) return err_nomem(err, "the cache folder");
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    s->env = *env;
    if (s->env.retry_seconds <= 0) s->env.retry_seconds = 1;
    if (!s->env.piece_bytes) s->env.piece_bytes = PIECE_BYTES;
    int rc = 0;
    if (snprintf(s->dir, sizeof s->dir, "%s", env->dir) >= (int)sizeof s->dir)
        rc = err_set(err, FLETCH_E_ARG, "the cache folder's name is too long");
    if (!rc) rc = file_make_private_dir(s->dir, is_ours, err);
    if (!rc) rc = list_files(s, err);
    if (!rc && pthread_create(&s->thread, NULL, write_jobs, s) != 0)
        rc = err_set(err, FLETCH_E_NOMEM, "could not start a thread for the cache folder");
    s->started = !rc;
    if (rc) {
        store_close(s);
        *out = NULL;
    }
    return rc;
}

u64 store_failures(struct store *s)
{
    if (!s) return 0;
    pthread_mutex_lock(&s->lock);
    u64 n = s->n_failed;
    pthread_mutex_unlock(&s->lock);
    return n;
}

void store_close(struct store *s)
{
    if (!s) return;
    pthread_mutex_lock(&s->lock);
    s->stop = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    if (s->started) pthread_join(s->thread, NULL);
    job_free(&s->job);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

/* ---- looking up ---- */

/* Hashes of the prompt's beginnings, one after each grain. */
struct walk {
    XXH3_state_t state;
    const i32 *tokens;
    u32 n;
};

static void walk_begin(struct walk *w, u64 salt, const i32 *tokens)
{
    XXH3_64bits_reset_withSeed(&w->state, salt);
    w->tokens = tokens;
    w->n = 0;
}

static u64 walk_on(struct walk *w, u32 grain)
{
    XXH3_64bits_update(&w->state, w->tokens + w->n, grain * sizeof *w->tokens);
    w->n += grain;
    return XXH3_64bits_digest(&w->state);
}

static u64 bytes_of(const struct store *s, u32 first, u32 n)
{
    return s->env.state_bytes + (u64)(n - first) / s->env.grain * s->env.grain_bytes;
}

/* Opens a file and checks what it says against what it is to be. */
static int read_piece(const struct store *s, const struct entry *e, u64 salt, const i32 *tokens,
                      u32 n, struct stored *out, struct err *err)
{
    char path[MAX_PATH];
    struct statefile f;
    struct note note;
    path_of(s, e, path);
    int rc = file_map_open(&out->map, path, err);
    if (rc) return rc;
    rc = statefile_read(&f, out->map.p, out->map.n, s->env.key, err);
    if (!rc && f.note.n != sizeof note) rc = err_set(err, FLETCH_E_FORMAT, "not a prefix file");
    if (!rc) {
        memcpy(&note, f.note.p, sizeof note);
        if (f.n_tokens != n || note.salt != salt || memcmp(f.tokens, tokens, n * sizeof *tokens))
            rc = err_set(err, FLETCH_E_FORMAT, "its tokens do not match its name");
        else if (note.first >= n || note.first % s->env.grain || (s->env.state_bytes && note.first))
            rc = err_set(err, FLETCH_E_FORMAT, "the position of its first token is invalid");
        else if (f.n_state != bytes_of(s, (u32)note.first, n))
            rc = err_set(err, FLETCH_E_FORMAT, "its state has the wrong size for this model");
    }
    if (rc) {
        file_map_close(&out->map);
        return err_prefix(err, "%s", QUOTE(str_of(path)));
    }
    out->first = (u32)note.first;
    out->n = n;
    out->state = f.state;
    utimensat(AT_FDCWD, path, NULL, 0); /* for later runs; if it fails, it looks older to them */
    return 0;
}

/* What is damaged, or another program's, is of no use to anybody. */
static void drop_bad(struct store *s, struct entry *e, int rc, const struct err *err)
{
    char path[MAX_PATH];
    path_of(s, e, path);
    bool removed = rc == FLETCH_E_FORMAT && unlink(path) == 0;
    e->bad = true;
    tell(s, err, removed ? "removed" : "ignored");
    if (removed) remove_entry(s, e);
}

bool store_find(struct store *s, u64 salt, const i32 *tokens, u32 n, u32 have, struct stored *out)
{
    bool found = false, longest = s->env.state_bytes;
    struct walk w;
    struct err err;
    pthread_mutex_lock(&s->lock);
    list_again(s);
    walk_begin(&w, salt, tokens);
    while (n - w.n >= s->env.grain && !(found && !longest)) {
        struct entry *e = find(s, s->env.key, walk_on(&w, s->env.grain));
        struct stored piece;
        if (!e || e->bad || w.n <= have) continue;
        if (is_gone(s, e)) {
            remove_entry(s, e);
            continue;
        }
        int rc = read_piece(s, e, salt, tokens, w.n, &piece, &err);
        if (rc) {
            drop_bad(s, e, rc, &err);
        } else if (piece.first > have) {
            stored_close(&piece);
        } else {
            e->used = now_ns();
            if (found) stored_close(out);
            found = true;
            *out = piece;
        }
    }
    pthread_mutex_unlock(&s->lock);
    return found;
}

void stored_close(struct stored *p)
{
    file_map_close(&p->map);
}

bool store_is_free(struct store *s)
{
    pthread_mutex_lock(&s->lock);
    bool is_free = !s->job.tokens;
    pthread_mutex_unlock(&s->lock);
    return is_free;
}

void store_wait(struct store *s)
{
    pthread_mutex_lock(&s->lock);
    while (s->job.tokens) pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

/* The last token of a piece of blocks that begins there. */
static u32 piece_end(const struct store *s, u32 first, u32 n)
{
    u64 most = MIN(s->env.piece_bytes, s->env.max_bytes / LARGEST_SHARE);
    if (s->env.state_bytes || bytes_of(s, first, n) <= most) return n;
    u64 grains = MAX(most / s->env.grain_bytes, 1);
    return (u32)MIN(first + grains * s->env.grain, (u64)n);
}

/* Where its piece begins and ends, and its name; false: all is kept already. */
static bool next_piece(struct store *s, u64 salt, const i32 *tokens, const struct store_span *span,
                       struct job *j)
{
    struct walk w;
    bool whole = span->whole;
    u32 n = span->n;
    walk_begin(&w, salt, tokens);
    while (w.n < n) {
        u64 hash = walk_on(&w, s->env.grain);
        const struct entry *e = find(s, s->env.key, hash);
        bool there = e && !e->bad;
        if (there && w.n == n) return false;
        if (there && !s->env.state_bytes) j->note.first = w.n;
        u32 end = whole ? n : piece_end(s, (u32)j->note.first, n);
        if (!there && w.n == end) {
            j->hash = hash;
            j->n = w.n;
        }
    }
    return n;
}

u8 *store_begin(struct store *s, u64 salt, const i32 *tokens, struct store_span *span)
{
    u32 n = span->n;
    struct job j = {.note = {.salt = salt}};
    CHECK(n % s->env.grain == 0);
    pthread_mutex_lock(&s->lock);
    bool wanted = next_piece(s, salt, tokens, span, &j);
    j.n_state = wanted ? bytes_of(s, (u32)j.note.first, j.n) : 0;
    wanted = wanted && j.n_state <= s->env.max_bytes / LARGEST_SHARE;
    span->is_left = wanted;
    if (wanted && !s->job.tokens && base_now() >= s->retry_at) {
        j.tokens = malloc(j.n * sizeof *tokens);
        j.state = malloc(j.n_state);
        if (j.tokens && j.state) {
            memcpy(j.tokens, tokens, j.n * sizeof *tokens);
            s->job = j;
            span->is_left = j.n < n;
        } else {
            job_free(&j);
        }
    }
    pthread_mutex_unlock(&s->lock);
    span->first = (u32)j.note.first;
    span->n = j.n;
    return j.state;
}

void store_end(struct store *s, int rc)
{
    pthread_mutex_lock(&s->lock);
    if (rc) job_free(&s->job);
    s->job.ready = !rc;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}
