#include "line.h"

#include <errno.h>
#include <fcntl.h>
#include <histedit.h>
#include <langinfo.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>
#include <wchar.h>

#include "app.h"

struct line {
    const char *const *words;
    EditLine *el; /* NULL without a terminal that can be written all over */
    bool asks;    /* lines of a terminal that is typed on without an editor */
    History *history;
    HistEvent event;
    char *history_path; /* NULL: kept for this run only */
    bool more;          /* the next line belongs to the same message */
    bool typed;         /* something was, since the prompt */
    struct text text;
    char *plain; /* getline's */
    size_t plain_size;
    unsigned char keys[256]; /* read from the terminal, not yet taken */
    size_t n_keys, next_key;
    bool quiet;            /* line_quiet */
    struct termios before; /* it */
};

/* Set by signals; acted upon where a key is waited for, or between tokens. */
static volatile sig_atomic_t resized, stopped;

static void on_resize(int signal)
{
    (void)signal;
    resized = 1;
}

static void on_stop(int signal)
{
    (void)signal;
    stopped = 1;
}

static void catch_signals(void)
{
    struct sigaction resize = {.sa_handler = on_resize, .sa_flags = SA_RESTART};
    struct sigaction stop = {.sa_handler = on_stop, .sa_flags = SA_RESTART};
    sigemptyset(&resize.sa_mask);
    sigemptyset(&stop.sa_mask);
    sigaction(SIGWINCH, &resize, NULL);
    sigaction(SIGTSTP, &stop, NULL);
}

/* ---- the terminal ---- */

/* Turns the terminal's bracketed paste on or off. */
static void mark_pastes(const struct line *l, bool on)
{
    if (!l->el) return;
    fputs(on ? "\033[?2004h" : "\033[?2004l", stdout);
    fflush(stdout);
}

static void set_quiet(struct line *l, bool on)
{
    if (!on) {
        tcsetattr(0, TCSADRAIN, &l->before);
        return;
    }
    if (tcgetattr(0, &l->before)) return;
    struct termios mode = l->before;
    mode.c_lflag &= ~(tcflag_t)ECHO;
    if (l->el) mode.c_lflag &= ~(tcflag_t)ICANON; /* so that the editor gets what was typed */
    tcsetattr(0, TCSADRAIN, &mode);
}

void line_quiet(struct line *l, bool on)
{
    if ((!l->el && !l->asks) || l->quiet == on) return;
    set_quiet(l, on);
    l->quiet = on;
}

/* Ctrl-Z: the shell gets a terminal as it was, and gives it back with fg. */
static void stop(struct line *l)
{
    sigset_t set, old;
    struct sigaction action = {.sa_handler = SIG_DFL}, caught;
    sigemptyset(&action.sa_mask);
    sigemptyset(&set);
    sigaddset(&set, SIGTSTP);
    stopped = 0;
    mark_pastes(l, false);
    if (l->quiet) set_quiet(l, false);
    if (l->el && !l->quiet) el_set(l->el, EL_PREP_TERM, 0);
    sigaction(SIGTSTP, &action, &caught);
    raise(SIGTSTP);
    sigprocmask(SIG_UNBLOCK, &set, &old); /* here it stops */
    sigprocmask(SIG_SETMASK, &old, NULL);
    sigaction(SIGTSTP, &caught, NULL);
    if (l->quiet) set_quiet(l, true);
    if (l->el && !l->quiet) el_set(l->el, EL_PREP_TERM, 1);
    mark_pastes(l, true);
}

void line_stop_if_asked(struct line *l)
{
    if (stopped) stop(l);
}

/* Rows between the first one of the line and the cursor's, as the terminal wraps them now. */
static unsigned rows_above(const struct line *l)
{
    const LineInfoW *info = el_wline(l->el);
    unsigned columns = terminal_width(1), rows = 0, at = 2; /* after the prompt */
    if (!columns) return 0;
    for (const wchar_t *c = info->buffer; c < info->cursor; c++) {
        int width = wcwidth(*c);
        if (*c == L'\n') {
            rows += at / columns + 1;
            at = 0;
        } else
            at += width > 0 ? (unsigned)width : 0;
    }
    return rows + at / columns;
}

/* Draws the line again after the window was resized. */
static void redraw(struct line *l)
{
    resized = 0;
    el_resize(l->el);
    unsigned rows = rows_above(l);
    putchar('\r');
    if (rows) printf("\033[%uA", rows);
    fputs("\033[J", stdout);
    el_set(l->el, EL_REFRESH);
}

/* Waits for keys and acts on signals meanwhile, none of which can come unseen. Negative: Ctrl-C. */
static ssize_t wait_for_keys(struct line *l)
{
    sigset_t block, old;
    sigemptyset(&block);
    sigaddset(&block, SIGINT);
    sigaddset(&block, SIGWINCH);
    sigaddset(&block, SIGTSTP);
    sigprocmask(SIG_BLOCK, &block, &old);
    ssize_t got = -1;
    while (!interrupted) {
        fd_set set;
        FD_ZERO(&set);
        FD_SET(0, &set);
        if (stopped) {
            stop(l);
            putchar('\r');
            el_set(l->el, EL_REFRESH);
        }
        if (resized) redraw(l);
        fflush(stdout);
        int ready = pselect(1, &set, NULL, NULL, NULL, &old);
        if (ready < 0 && errno == EINTR) continue;
        if (ready > 0) got = read(0, l->keys, sizeof l->keys);
        if (got < 0 && errno == EINTR) continue;
        break;
    }
    sigprocmask(SIG_SETMASK, &old, NULL);
    return got;
}

/* A byte; 0: the end, negative: Ctrl-C. */
static int read_byte(struct line *l, unsigned char *c)
{
    if (l->next_key == l->n_keys) {
        ssize_t got = wait_for_keys(l);
        if (got <= 0) return (int)got;
        l->n_keys = (size_t)got;
        l->next_key = 0;
    }
    *c = l->keys[l->next_key++];
    l->typed = true;
    return 1;
}

/* libedit's source of characters: UTF-8, whatever the locale. Other bytes are U+FFFD. */
static int read_character(EditLine *el, wchar_t *out)
{
    struct line *l;
    unsigned char b[4];
    el_get(el, EL_CLIENTDATA, &l);
    int got = read_byte(l, b);
    if (got <= 0) return got;
    size_t n = b[0] < 0xc2 ? 1 : b[0] < 0xe0 ? 2 : b[0] < 0xf0 ? 3 : b[0] < 0xf5 ? 4 : 1;
    for (size_t i = 1; i < n; i++)
        if ((got = read_byte(l, b + i)) <= 0) return got;
    if (!utf8_length((char *)b, n)) {
        *out = 0xfffd;
        return 1;
    }
    unsigned long c = n == 1 ? b[0] : b[0] & (0x7fu >> n);
    for (size_t i = 1; i < n; i++) c = c << 6 | (b[i] & 0x3f);
    *out = (wchar_t)c;
    return 1;
}

/* What is pasted goes into the line as it is, newlines too; those at its end are left out, so that
 * the line can still be changed before it is sent. */
static unsigned char paste(EditLine *el, int key)
{
    static const wchar_t end[] = L"\033[201~";
    enum { END = sizeof end / sizeof *end - 1, MAX = 1 << 22 };
    size_t n = 0, cap = 256;
    wchar_t *text = need(malloc(cap * sizeof *text)), c;
    (void)key;
    while (n < MAX && el_wgetc(el, &c) == 1) {
        if (n + 1 == cap) text = need(realloc(text, (cap *= 2) * sizeof *text));
        text[n++] = c;
        if (n < END || wmemcmp(text + n - END, end, END) != 0) continue;
        n -= END;
        break;
    }
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        if (text[i] == L'\r') text[i] = L'\n'; /* so terminals paste newlines */
        if (text[i] == L'\n' || text[i] == L'\t' || (text[i] >= 0x20 && text[i] != 0x7f))
            text[kept++] = text[i];
    }
    while (kept && text[kept - 1] == L'\n') kept--;
    text[kept] = 0;
    int rc = kept ? el_winsertstr(el, text) : 0;
    free(text);
    return rc ? CC_ERROR : CC_REFRESH;
}

/* ---- the editor ---- */

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

/* libedit shows and counts characters as the locale has them. Terminals speak UTF-8, also where no
 * locale says so. */
static void set_locale(void)
{
    static const char *const others[] = {"C.UTF-8", "en_US.UTF-8", "UTF-8"};
    setlocale(LC_CTYPE, "");
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(nl_langinfo(CODESET), "UTF-8") != 0) setlocale(LC_CTYPE, others[i]);
}

static void open_editor(struct line *l)
{
    enum { KEPT = 1000 };
    set_locale();
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
    el_wset(l->el, EL_GETCFN, read_character);
    el_set(l->el, EL_ADDFN, "paste", "insert pasted text", paste);
    el_set(l->el, EL_BIND, "\\e[200~", "paste", NULL);
    mark_pastes(l, true);
}

struct line *line_open(const char *const *words)
{
    struct line *l = need(calloc(1, sizeof *l));
    l->words = words;
    if (isatty(0) && is_screen(1)) open_editor(l);
    l->asks = !l->el && isatty(0) && isatty(1);
    if (l->el) catch_signals();
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
    line_quiet(l, false);
    mark_pastes(l, false);
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

bool line_is_typed(const struct line *l)
{
    return l->el || l->asks;
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
        *s = el_gets(l->el, &count);
        if (!*s && interrupted) return l->typed ? LINE_CLEARED : LINE_INTERRUPTED;
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
    enum { FENCE = sizeof fence - 1 };
    bool fenced = false;
    enum line_result result;
    l->text.n = 0;
    add(l, "", 0, "");
    l->more = l->typed = false;
    do {
        const char *s;
        size_t m;
        result = read_one(l, &s, &m);
        if (result != LINE_TEXT) break;
        bool opens = !fenced && m >= FENCE && memcmp(s, fence, FENCE) == 0;
        if (opens) { /* text may follow on the same line */
            s += FENCE;
            m -= FENCE;
        }
        fenced |= opens;
        bool closes = fenced && m >= FENCE && memcmp(s + m - FENCE, fence, FENCE) == 0;
        if (closes) m -= FENCE;
        bool goes_on = !fenced && m && s[m - 1] == '\\';
        fenced &= !closes;
        l->more = fenced || goes_on;
        if (m || !opens) add(l, s, m - goes_on, l->more ? "\n" : "");
        if (closes && !m && l->text.n) l->text.p[--l->text.n] = 0; /* before a fence on its own */
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
    char *pasted;
    need(asprintf(&pasted, "\033[200~%s\033[201~", text) < 0 ? NULL : pasted);
    el_push(l->el, pasted);
    free(pasted);
    return true;
}
