#include "line.h"

#include <errno.h>
#include <fcntl.h>
#include <histedit.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "app.h"

struct line {
    const char *const *words;
    EditLine *el; /* NULL without a terminal that can be written all over */
    bool asks;    /* lines of a terminal that is typed on without an editor */
    History *history;
    HistEvent event;
    char *history_path; /* NULL: kept for this run only */
    bool more;          /* the next line belongs to the same message */
    struct text text;
    char *plain; /* getline's */
    size_t plain_size;
};

static char *prompt(EditLine *el)
{
    static char first[] = "> ", more[] = ". ";
    struct line *l;
    el_get(el, EL_CLIENTDATA, &l);
    return l->more ? more : first;
}

/* Tab on a line that begins with a slash: the rest of the only word, or all that begin so. */
static unsigned char complete(EditLine *el, int key)
{
    (void)key;
    struct line *l;
    const LineInfo *info = el_line(el);
    size_t n = (size_t)(info->cursor - info->buffer), n_hits = 0;
    const char *hit = NULL;
    el_get(el, EL_CLIENTDATA, &l);
    if (!n || info->buffer[0] != '/') return CC_ERROR;
    for (const char *const *w = l->words; *w; w++)
        if (strncmp(*w, info->buffer, n) == 0) {
            hit = *w;
            n_hits++;
        }
    if (n_hits == 1) {
        el_insertstr(el, hit + n);
        el_insertstr(el, " ");
        return CC_REFRESH;
    }
    if (n_hits < 2) return CC_ERROR;
    putchar('\n');
    for (const char *const *w = l->words; *w; w++)
        if (strncmp(*w, info->buffer, n) == 0) printf("%s  ", *w);
    putchar('\n');
    return CC_REDISPLAY;
}

/* Where lines are kept for later chats; NULL: nowhere. */
static char *history_path(void)
{
    char *path = user_folder("XDG_STATE_HOME", "/.local/state", "/fletch/chat_history");
    if (path && make_folders(path, 0700)) return path;
    free(path);
    return NULL;
}

static void open_editor(struct line *l)
{
    enum { KEPT = 1000 };
    setlocale(LC_CTYPE, "");
    l->el = need(el_init("fletch", stdin, stdout, stderr));
    l->history = need(history_init());
    history(l->history, &l->event, H_SETSIZE, KEPT);
    history(l->history, &l->event, H_SETUNIQUE, 1);
    l->history_path = history_path();
    if (l->history_path) history(l->history, &l->event, H_LOAD, l->history_path);
    el_set(l->el, EL_CLIENTDATA, l);
    el_set(l->el, EL_PROMPT, prompt);
    el_set(l->el, EL_EDITOR, "emacs");
    el_set(l->el, EL_HIST, history, l->history);
    el_set(l->el, EL_ADDFN, "complete", "complete a command", complete);
    el_set(l->el, EL_BIND, "\t", "complete", NULL);
    el_set(l->el, EL_BIND, "^R", "em-inc-search-prev", NULL);
}

struct line *line_open(const char *const *words)
{
    struct line *l = need(calloc(1, sizeof *l));
    l->words = words;
    if (isatty(0) && is_screen(1)) open_editor(l);
    l->asks = !l->el && isatty(0) && isatty(1);
    return l;
}

/* The file is there and for nobody else to read before anything is written to it. */
static bool close_to_others(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    bool closed = fd >= 0 && fchmod(fd, 0600) == 0;
    if (fd >= 0) close(fd);
    return closed;
}

void line_close(struct line *l)
{
    if (!l) return;
    if (l->el) {
        if (l->history_path && close_to_others(l->history_path))
            history(l->history, &l->event, H_SAVE, l->history_path);
        history_end(l->history);
        el_end(l->el);
    }
    free(l->history_path);
    free(l->text.p);
    free(l->plain);
    free(l);
}

bool line_is_terminal(const struct line *l)
{
    return l->el != NULL;
}

/* One line without its newline. */
static enum line_result read_one(struct line *l, const char **s, size_t *n)
{
    if (l->el) {
        int count = 0;
        /* Before the prompt is shown: libedit itself changes the terminal's mode only after it, and
         * a Ctrl-D that comes in between is turned into a zero by the kernel, which means nothing.
         */
        el_set(l->el, EL_PREP_TERM, 1);
        errno = 0;
        *s = el_gets(l->el, &count);
        if (!*s && errno == EINTR) return LINE_INTERRUPTED;
        if (!*s) return LINE_END;
        *n = (size_t)count;
    } else {
        if (l->asks) fputs("> ", stdout);
        if (l->asks) fflush(stdout);
        ssize_t got = getline(&l->plain, &l->plain_size, stdin);
        if (got < 0) return LINE_END;
        *s = l->plain;
        *n = (size_t)got;
    }
    if (*n && (*s)[*n - 1] == '\n') --*n;
    return LINE_TEXT;
}

static void add(struct line *l, const char *s, size_t n, const char *end)
{
    size_t m = strlen(end);
    l->text.p = need(realloc(l->text.p, l->text.n + n + m + 1));
    memcpy(l->text.p + l->text.n, s, n);
    memcpy(l->text.p + l->text.n + n, end, m + 1);
    l->text.n += n + m;
}

enum line_result line_read(struct line *l, const char **text, size_t *n)
{
    static const char fence[] = "\"\"\"";
    bool fenced = false;
    enum line_result result;
    l->text.n = 0;
    add(l, "", 0, "");
    l->more = false;
    do {
        const char *s;
        size_t m;
        result = read_one(l, &s, &m);
        if (result != LINE_TEXT) break;
        bool is_fence = m == 3 && memcmp(s, fence, 3) == 0;
        bool goes_on = !fenced && m && s[m - 1] == '\\';
        l->more = is_fence ? !fenced : fenced || goes_on;
        if (is_fence)
            fenced = !fenced;
        else
            add(l, s, m - goes_on, l->more ? "\n" : "");
        if (is_fence && !fenced && l->text.n) l->text.p[--l->text.n] = 0;
    } while (l->more);
    /* What a pipe gave before it ended is a message too. */
    if (result == LINE_END && l->text.n) result = LINE_TEXT;
    if (result == LINE_TEXT && l->el && l->text.n)
        history(l->history, &l->event, H_ENTER, l->text.p);
    *text = l->text.p;
    *n = l->text.n;
    return result;
}

bool line_offer(struct line *l, const char *text)
{
    if (!l->el) return false;
    /* Line by line: a backslash before each end, as it would be typed. */
    char *typed = need(malloc(2 * strlen(text) + 1)), *to = typed;
    for (const char *c = text; *c; c++) {
        if (*c == '\n') *to++ = '\\';
        *to++ = *c;
    }
    *to = 0;
    el_push(l->el, typed);
    free(typed);
    return true;
}
