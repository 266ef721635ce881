/* Files and streams that the commands read and write. */
#include "app.h"

#include <errno.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* More text than any model reads; keeps an endless stream from taking all memory. */
enum { TEXT_MAX = 1 << 28 };

void *need(void *p)
{
    if (!p) exit(say_error("out of memory"));
    return p;
}

char *user_folder(const char *variable, const char *under_home, const char *rest)
{
    const char *folder = getenv(variable), *home = getenv("HOME");
    bool set = folder && folder[0] == '/';
    char *path;
    if (!set && !(home && home[0] == '/')) return NULL;
    int n = asprintf(&path, "%s%s%s", set ? folder : home, set ? "" : under_home, rest);
    return need(n < 0 ? NULL : path);
}

static int read_stream(struct text *out, FILE *f, const char *name)
{
    size_t cap = 1 << 16, n = 0;
    char *p = need(malloc(cap));
    for (;;) {
        n += fread(p + n, 1, cap - n - 1, f);
        if (n < cap - 1) break;
        if (cap > TEXT_MAX) {
            free(p);
            return say_error("%s is longer than %d MiB", name, TEXT_MAX >> 20);
        }
        p = need(realloc(p, cap *= 2));
    }
    if (ferror(f)) {
        free(p);
        return say_error("%s: %s", name, strerror(errno));
    }
    p[n] = 0;
    *out = (struct text){p, n};
    return EXIT_OK;
}

int read_text(struct text *out, const char *path)
{
    if (strcmp(path, "-") == 0) return read_stream(out, stdin, "stdin");
    FILE *f = fopen(path, "rb");
    if (!f) return say_error("%s: %s", QUOTE(path), strerror(errno));
    int rc = read_stream(out, f, QUOTE(path));
    fclose(f);
    return rc;
}

int read_string(char **out, const char *path)
{
    struct text text;
    int rc = read_text(&text, path);
    if (rc) return rc;
    if (strlen(text.p) != text.n) {
        free(text.p);
        return say_error("%s: not a text file (contains a NUL byte)", QUOTE(path));
    }
    *out = text.p;
    return EXIT_OK;
}

int save_file(const char *path, void (*write)(FILE *out, const json_t *doc), const json_t *doc)
{
    char temp[4096];
    struct stat st;
    if (!*path || (stat(path, &st) == 0 && !S_ISREG(st.st_mode)))
        return say_error("cannot write %s: not a regular file", QUOTE(path));
    int n = snprintf(temp, sizeof temp, "%s.XXXXXX", path);
    int fd = n > 0 && (size_t)n < sizeof temp ? mkstemp(temp) : -1;
    FILE *f = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (!f) {
        if (fd >= 0) close(fd);
        return say_error("cannot create %s: %s", QUOTE(path), strerror(errno));
    }
    write(f, doc);
    bool failed = ferror(f) != 0;
    failed |= fclose(f) != 0;
    failed = failed || rename(temp, path) != 0;
    if (!failed) return EXIT_OK;
    int code = say_error("cannot write %s: %s", QUOTE(path), strerror(errno));
    unlink(temp);
    return code;
}

bool make_folders(char *path, mode_t mode)
{
    for (char *p = path + 1; *p; p++) {
        if (*p != '/') continue;
        *p = 0;
        bool failed = mkdir(path, mode) && errno != EEXIST;
        *p = '/';
        if (failed) return false;
    }
    return true;
}

int check_folder_of(const char *path)
{
    char *copy = need(strdup(path));
    bool good = access(dirname(copy), W_OK | X_OK) == 0;
    free(copy);
    return good ? EXIT_OK : say_error("cannot create %s: %s", QUOTE(path), strerror(errno));
}

int read_stdin(struct text *out, const char *command, const char *what)
{
    if (isatty(0)) return opts_wrong(command, "missing %s", what);
    return read_text(out, "-");
}

void ids_add(struct ids *ids, int32_t id)
{
    if ((ids->n & (ids->n - 1)) == 0) /* full at powers of two */
        ids->p = need(realloc(ids->p, (ids->n ? 2 * ids->n : 1) * sizeof *ids->p));
    ids->p[ids->n++] = id;
}

int parse_ids(struct ids *ids, const char *command, const char *what, const char *s)
{
    static const char between[] = ", \t\r\n";
    for (s += strspn(s, between); *s; s += strspn(s, between)) {
        char word[12];
        uint64_t id;
        size_t n = strcspn(s, between);
        snprintf(word, sizeof word, "%.*s", (int)(n < sizeof word ? n : sizeof word - 1), s);
        if (n >= sizeof word || !parse_count(word, &id) || id > INT32_MAX)
            return opts_wrong(command, "%s is not %s", QUOTE(word), what);
        ids_add(ids, (int32_t)id);
        s += n;
    }
    return EXIT_OK;
}

int finish_stdout(int code)
{
    bool failed = fflush(stdout) != 0;
    if (!failed && !ferror(stdout)) return code;
    if (errno != EPIPE) say_error("stdout: %s", failed ? strerror(errno) : "write failed");
    return code ? code : EXIT_FAIL;
}
