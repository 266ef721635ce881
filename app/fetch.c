#define CURL_DISABLE_DEPRECATION /* what replaces them is not in every libcurl yet */
#include "fetch.h"

#include <curl/curl.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sha256.h"

enum {
    ATTEMPTS = 6, /* without a byte of progress; those with some are free */
    MAX_REDIRECTS = 8,
    STALL_SECONDS = 30,
};

/* The functions that are used, in a library that may not be there. */
struct fetch {
    void *lib;
    CURLcode (*global_init)(long flags);
    CURL *(*init)(void);
    CURLcode (*set)(CURL *, CURLoption, ...);
    CURLcode (*perform)(CURL *);
    CURLcode (*info)(CURL *, CURLINFO, ...);
    void (*reset)(CURL *);
    void (*cleanup)(CURL *);
    struct curl_slist *(*append)(struct curl_slist *, const char *);
    void (*free_list)(struct curl_slist *);
    CURL *curl;
    const char *token; /* borrowed */
    enum fetch_from from;
    struct curl_slist *headers;
    char error[CURL_ERROR_SIZE];
};

int fetch_open(struct fetch **out, const char *token, enum fetch_from from)
{
    static const char *const names[] = {"libcurl.so.4", "libcurl-gnutls.so.4", "libcurl.4.dylib"};
    struct fetch *f = *out = need(calloc(1, sizeof *f));
    for (size_t i = 0; i < sizeof names / sizeof *names && !f->lib; i++)
        f->lib = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    f->from = from;
    if (!f->lib) return say_error("this command requires libcurl, which is not installed");
    const struct {
        const char *name;
        void *to;
    } symbols[] = {
        {"curl_global_init", &f->global_init},  {"curl_easy_init", &f->init},
        {"curl_easy_setopt", &f->set},          {"curl_easy_perform", &f->perform},
        {"curl_easy_getinfo", &f->info},        {"curl_easy_reset", &f->reset},
        {"curl_easy_cleanup", &f->cleanup},     {"curl_slist_append", &f->append},
        {"curl_slist_free_all", &f->free_list},
    };
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *symbol = dlsym(f->lib, symbols[i].name);
        if (!symbol)
            return say_error("the installed libcurl is too old: it does not have %s",
                             symbols[i].name);
        memcpy(symbols[i].to, &symbol, sizeof symbol);
    }
    f->token = token;
    if (f->global_init(CURL_GLOBAL_DEFAULT) || !(f->curl = f->init()))
        return say_error("libcurl could not be initialized");
    return EXIT_OK;
}

void fetch_close(struct fetch *f)
{
    if (!f) return;
    if (f->curl) f->cleanup(f->curl);
    if (f->headers) f->free_list(f->headers);
    free(f); /* the library stays: it may have threads */
}

static void add_header(struct fetch *f, const char *text)
{
    f->headers = need(f->append(f->headers, text));
}

/* Does what is sent there stay on this machine? */
static bool is_local(const char *url)
{
    static const char *const hosts[] = {"http://127.0.0.1", "http://localhost", "http://[::1]"};
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
        size_t n = strlen(hosts[i]);
        if (strncasecmp(url, hosts[i], n) == 0 && (!url[n] || strchr(":/", url[n]))) return true;
    }
    return false;
}

/* What every request has; further headers may be added. Redirects may not leave HTTP, nor give up
 * encryption; libcurl keeps the token from other servers. */
static void prepare(struct fetch *f, const char *url)
{
    bool secure = strncasecmp(url, "https:", 6) == 0;
    char authorization[700];
    f->reset(f->curl);
    if (f->headers) f->free_list(f->headers);
    f->headers = NULL;
    if (f->token && (secure || is_local(url))) {
        snprintf(authorization, sizeof authorization, "Authorization: Bearer %s", f->token);
        add_header(f, authorization);
    }
    f->error[0] = 0;
    f->set(f->curl, CURLOPT_URL, url);
    f->set(f->curl, CURLOPT_ERRORBUFFER, f->error);
    f->set(f->curl, CURLOPT_USERAGENT, "fletch/" FLETCH_VERSION);
    f->set(f->curl, CURLOPT_FOLLOWLOCATION, 1L);
    f->set(f->curl, CURLOPT_MAXREDIRS, (long)MAX_REDIRECTS);
    f->set(f->curl, CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
    f->set(f->curl, CURLOPT_REDIR_PROTOCOLS,
           (long)(secure ? CURLPROTO_HTTPS : CURLPROTO_HTTP | CURLPROTO_HTTPS));
    f->set(f->curl, CURLOPT_FAILONERROR, 1L);
    f->set(f->curl, CURLOPT_NOSIGNAL, 1L);
    f->set(f->curl, CURLOPT_CONNECTTIMEOUT, (long)STALL_SECONDS);
    f->set(f->curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
    f->set(f->curl, CURLOPT_LOW_SPEED_TIME, (long)STALL_SECONDS);
}

static long status_of(struct fetch *f)
{
    long status = 0;
    f->info(f->curl, CURLINFO_RESPONSE_CODE, &status);
    return status;
}

static int say_curl(struct fetch *f, const char *url, CURLcode rc)
{
    long status = status_of(f);
    bool denied = status == 401 || status == 403;
    if (denied && f->from == FETCH_FROM_SERVER)
        return say_error("%s: the server requires %s API key (--api-key)", QUOTE(url),
                         f->token ? "another" : "an");
    if (denied)
        return say_error("%s: HTTP %ld: not found, or not public%s", QUOTE(url), status,
                         f->token
                             ? "; the token does not grant access: accept the model's terms on its "
                               "page, or use another token"
                             : "; set HF_TOKEN to a token that has access");
    if (status == 404) return say_error("%s: HTTP 404: not found", QUOTE(url));
    if (status >= 400) return say_error("%s: the server returned HTTP %ld", QUOTE(url), status);
    return say_error("%s: %s (%d)", QUOTE(url), f->error[0] ? f->error : "failed", (int)rc);
}

/* Is it worth another attempt? */
static bool passes(struct fetch *f, CURLcode rc)
{
    long status = status_of(f);
    switch (rc) {
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_PARTIAL_FILE:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_GOT_NOTHING: return true;
    case CURLE_HTTP_RETURNED_ERROR: return status == 408 || status == 429 || status >= 500;
    default: return false;
    }
}

static void pause_before(int attempt)
{
    usleep(attempt > 6 ? 8000000u : 125000u << attempt);
}

/* ---- into memory ---- */

struct memory {
    struct text text;
    size_t max;
    bool more;
};

static size_t keep_text(char *p, size_t one, size_t n, void *ctx)
{
    struct memory *m = ctx;
    (void)one;
    if (n > m->max - m->text.n) return 0;
    m->text.p = need(realloc(m->text.p, m->text.n + n + 1));
    memcpy(m->text.p + m->text.n, p, n);
    m->text.p[m->text.n += n] = 0;
    return n;
}

static bool header_is(const char *p, size_t n, const char *name)
{
    size_t k = strlen(name);
    return n > k && strncasecmp(p, name, k) == 0;
}

static size_t see_link(char *p, size_t one, size_t n, void *ctx)
{
    (void)one;
    if (header_is(p, n, "link:") && memmem(p, n, "rel=\"next\"", 10))
        ((struct memory *)ctx)->more = true;
    return n;
}

int fetch_text(struct fetch *f, const char *url, size_t max, struct text *out, bool *more)
{
    struct memory m = {.max = max};
    CURLcode rc = CURLE_OK;
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        prepare(f, url);
        f->set(f->curl, CURLOPT_WRITEFUNCTION, keep_text);
        f->set(f->curl, CURLOPT_WRITEDATA, &m);
        f->set(f->curl, CURLOPT_HEADERFUNCTION, see_link);
        f->set(f->curl, CURLOPT_HEADERDATA, &m);
        f->set(f->curl, CURLOPT_HTTPHEADER, f->headers);
        m.text.n = 0;
        m.more = false;
        rc = f->perform(f->curl);
        /* who is not connected wants to know at once */
        bool far = rc == CURLE_COULDNT_CONNECT || rc == CURLE_COULDNT_RESOLVE_HOST;
        if (!rc || far || !passes(f, rc) || attempt + 1 == ATTEMPTS) break;
        pause_before(attempt);
    }
    if (!m.text.p) m.text.p = need(strdup(""));
    *out = m.text;
    if (more) *more = m.more;
    if (rc == CURLE_WRITE_ERROR)
        return say_error("%s: the response is longer than %zu bytes", QUOTE(url), max);
    return rc ? say_curl(f, url, rc) : EXIT_OK;
}

/* ---- into a file ---- */

struct download {
    struct fetch *f;
    const struct fetch_file *what;
    int fd; /* of the part */
    char *part, *tag_path;
    uint64_t have;  /* bytes of the part that are on disk and in the sum */
    uint64_t begun; /* of them, when this attempt began */
    struct sha256 sum;
    char tag[256];     /* of the version that the part is of; "": not known */
    char new_tag[256]; /* that this answer has */
    bool started, too_long, moved;
    int error; /* errno of a write */
};

/* Begins the file anew. */
static void start_over(struct download *d)
{
    if (ftruncate(d->fd, 0) || lseek(d->fd, 0, SEEK_SET)) d->error = errno;
    d->have = 0;
    sha256_begin(&d->sum);
}

/* A tag that a server may compare byte for byte. */
static bool is_strong(const char *tag)
{
    return tag[0] == '"';
}

/* Opens or makes a file whose name others can guess: it must be a file of the user's own with no
 * other name, not a link that somebody has put there. */
static int open_own(const char *path)
{
    struct stat st;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
    if (fd < 0) return -1;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink <= 1 && st.st_uid == geteuid())
        return fd;
    close(fd);
    errno = ELOOP;
    return -1;
}

static void keep_tag(struct download *d)
{
    if (strcmp(d->tag, d->new_tag) == 0) return;
    strcpy(d->tag, d->new_tag);
    int fd = open_own(d->tag_path);
    if (fd < 0) return;
    bool failed = ftruncate(fd, 0) || write(fd, d->tag, strlen(d->tag)) != (ssize_t)strlen(d->tag);
    close(fd);
    if (failed) unlink(d->tag_path);
}

static size_t see_header(char *p, size_t one, size_t n, void *ctx)
{
    struct download *d = ctx;
    (void)one;
    if (header_is(p, n, "http/")) { /* another answer, behind a redirect */
        d->new_tag[0] = 0;
        d->moved = false;
    }
    if (header_is(p, n, "etag:")) {
        char *value = p + 5, *end = p + n;
        while (value < end && *value == ' ') value++;
        while (end > value && (unsigned char)end[-1] <= ' ') end--;
        size_t length = (size_t)(end - value);
        if (length < sizeof d->new_tag) {
            memcpy(d->new_tag, value, length);
            d->new_tag[length] = 0;
        }
    }
    if (header_is(p, n, "content-range:")) {
        unsigned long long from = 0;
        char value[64];
        snprintf(value, sizeof value, "%.*s", (int)(n < 63 ? n : 63) - 14, p + 14);
        d->moved = sscanf(value, " bytes %llu-", &from) != 1 || from != d->begun;
    }
    return n;
}

static size_t keep_bytes(char *p, size_t one, size_t n, void *ctx)
{
    struct download *d = ctx;
    (void)one;
    if (!d->started) {
        d->started = true;
        if (d->have && (status_of(d->f) != 206 || d->moved)) {
            if (status_of(d->f) == 206) return 0; /* not the bytes that were asked for */
            start_over(d);
        }
        keep_tag(d);
    }
    d->too_long = n > d->what->size - d->have;
    if (d->too_long || d->error) return 0;
    for (size_t at = 0; at < n;) {
        ssize_t w = write(d->fd, p + at, n - at);
        if (w < 0 && errno == EINTR) continue;
        if (w <= 0) {
            d->error = errno;
            return 0;
        }
        at += (size_t)w;
    }
    sha256_add(&d->sum, p, n);
    d->have += n;
    return n;
}

/* Called about once a second also while nothing comes. */
static int see_progress(void *ctx, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t e)
{
    const struct download *d = ctx;
    (void)a, (void)b, (void)c, (void)e;
    return progress_report(d->what->progress, d->have, d->what->size);
}

static CURLcode attempt_once(struct download *d)
{
    struct fetch *f = d->f;
    char range[40], condition[300];
    if (d->have && !is_strong(d->tag)) start_over(d);
    d->begun = d->have;
    d->started = d->moved = false;
    prepare(f, d->what->url);
    if (d->have) {
        snprintf(range, sizeof range, "%llu-", (unsigned long long)d->have);
        snprintf(condition, sizeof condition, "If-Range: %s", d->tag);
        add_header(f, condition);
        f->set(f->curl, CURLOPT_RANGE, range);
    }
    f->set(f->curl, CURLOPT_HTTPHEADER, f->headers);
    f->set(f->curl, CURLOPT_WRITEFUNCTION, keep_bytes);
    f->set(f->curl, CURLOPT_WRITEDATA, d);
    f->set(f->curl, CURLOPT_HEADERFUNCTION, see_header);
    f->set(f->curl, CURLOPT_HEADERDATA, d);
    f->set(f->curl, CURLOPT_NOPROGRESS, 0L);
    f->set(f->curl, CURLOPT_XFERINFOFUNCTION, see_progress);
    f->set(f->curl, CURLOPT_XFERINFODATA, d);
    return f->perform(f->curl);
}

/* What an earlier run left. */
static void find_part(struct download *d)
{
    char buffer[1 << 16];
    ssize_t n;
    int tag = open(d->tag_path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (tag >= 0) {
        n = read(tag, d->tag, sizeof d->tag - 1);
        d->tag[n > 0 ? n : 0] = 0;
        close(tag);
    }
    while ((n = read(d->fd, buffer, sizeof buffer)) > 0) {
        sha256_add(&d->sum, buffer, (size_t)n);
        d->have += (uint64_t)n;
    }
    if (n < 0 || d->have > d->what->size || strpbrk(d->tag, "\r\n")) start_over(d);
}

static int say_download(struct download *d, CURLcode rc)
{
    const char *path = d->what->path;
    if (interrupted) return say_error("interrupted; run the same command again to resume");
    if (d->error) return say_error("%s: %s", QUOTE(d->part), strerror(d->error));
    if (!rc && d->have == d->what->size) return EXIT_OK;
    if (rc && !d->too_long && !(rc == CURLE_WRITE_ERROR && d->begun))
        return say_curl(d->f, d->what->url, rc);
    unlink(d->part);
    unlink(d->tag_path);
    return say_error("%s: expected %llu bytes, but the server sent %s; pull it again", QUOTE(path),
                     (unsigned long long)d->what->size,
                     d->too_long ? "more" : "different or fewer bytes");
}

/* The whole part becomes the file, if it is what was expected. */
static int finish_part(struct download *d)
{
    char hex[65];
    const char *want = d->what->sha256;
    sha256_end(&d->sum, hex);
    if (want && strcasecmp(want, hex) != 0) {
        unlink(d->part);
        unlink(d->tag_path);
        return say_error("%s: its SHA-256 is %s, but %.64s was expected; pull it again",
                         QUOTE(d->what->path), hex, want);
    }
    if (fsync(d->fd) || rename(d->part, d->what->path))
        return say_error("%s: %s", QUOTE(d->what->path), strerror(errno));
    unlink(d->tag_path);
    return EXIT_OK;
}

static int run_download(struct download *d)
{
    CURLcode rc = CURLE_OK;
    int attempt = 0;
    find_part(d);
    while (d->have < d->what->size || (!d->what->size && attempt == 0)) {
        uint64_t before = d->have;
        rc = attempt_once(d);
        bool gone = rc == CURLE_HTTP_RETURNED_ERROR && status_of(d->f) == 416 && before;
        if (gone) start_over(d); /* there is no such part any more */
        if ((!gone && !passes(d->f, rc)) || d->error || d->too_long) break;
        attempt = d->have > before ? 1 : attempt + 1;
        if (attempt == ATTEMPTS) break;
        pause_before(attempt);
    }
    if (d->have == d->what->size && !d->too_long) rc = CURLE_OK;
    int code = say_download(d, rc);
    return code ? code : finish_part(d);
}

int fetch_to_file(struct fetch *f, const struct fetch_file *what)
{
    struct download d = {.f = f, .what = what};
    size_t n = strlen(what->path) + 16;
    d.part = need(calloc(n, 1));
    d.tag_path = need(calloc(n, 1));
    snprintf(d.part, n, "%s.part", what->path);
    snprintf(d.tag_path, n, "%s.part.etag", what->path);
    sha256_begin(&d.sum);
    int code;
    if ((d.fd = open_own(d.part)) < 0 && errno == ELOOP)
        code = say_error("%s is a link or another user's file; remove it", QUOTE(d.part));
    else if (d.fd < 0)
        code = say_error("%s: %s", QUOTE(d.part), strerror(errno));
    else if (flock(d.fd, LOCK_EX | LOCK_NB))
        code = say_error("%s is being downloaded by another fletch pull", QUOTE(what->path));
    else
        code = run_download(&d);
    if (d.fd >= 0) close(d.fd);
    sha256_drop(&d.sum);
    free(d.part);
    free(d.tag_path);
    return code;
}
