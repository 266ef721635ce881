/* What the program says to people: errors, progress, sizes, and text made safe to show. */
#include "app.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

size_t utf8_length(const char *s, size_t n)
{
    const unsigned char *u = (const unsigned char *)s;
    if (!n || u[0] < 0xc2) return n && u[0] < 0x80;
    size_t len = u[0] < 0xe0 ? 2 : u[0] < 0xf0 ? 3 : u[0] < 0xf5 ? 4 : 0;
    if (!len || n < len) return 0;
    for (size_t i = 1; i < len; i++)
        if ((u[i] & 0xc0) != 0x80) return 0;
    bool overlong = (u[0] == 0xe0 && u[1] < 0xa0) || (u[0] == 0xf0 && u[1] < 0x90);
    bool surrogate = u[0] == 0xed && u[1] > 0x9f;
    bool beyond = u[0] == 0xf4 && u[1] > 0x8f;
    return overlong || surrogate || beyond ? 0 : len;
}

/* C0, DEL and C1, which begin terminal sequences. */
static bool is_control(const char *s, size_t len)
{
    const unsigned char *u = (const unsigned char *)s;
    return (len == 1 && (u[0] < 0x20 || u[0] == 0x7f)) || (len == 2 && u[0] == 0xc2 && u[1] < 0xa0);
}

size_t escape(char *out, size_t cap, const char *s, size_t n)
{
    size_t i = 0, used = 0;
    while (i < n) {
        char piece[8];
        size_t len = utf8_length(s + i, n - i), taken = 1;
        if (s[i] == '\n')
            strcpy(piece, "\\n");
        else if (s[i] == '\t')
            strcpy(piece, "\\t");
        else if (s[i] == '\\')
            strcpy(piece, "\\\\");
        else if (!len || is_control(s + i, len))
            snprintf(piece, sizeof piece, "\\x%02x", (unsigned char)s[i]);
        else {
            memcpy(piece, s + i, len);
            piece[len] = 0;
            taken = len;
        }
        size_t width = strlen(piece);
        if (used + width >= cap) break;
        memcpy(out + used, piece, width);
        used += width;
        i += taken;
    }
    out[used] = 0;
    return i;
}

void say_text(FILE *out, const char *s, size_t n)
{
    for (size_t i = 0; i < n;) {
        size_t len = utf8_length(s + i, n - i);
        bool safe = s[i] == '\n' || s[i] == '\t' || !len || !is_control(s + i, len);
        if (safe)
            fwrite(s + i, 1, len ? len : 1, out);
        else
            fprintf(out, "\\x%02x", (unsigned char)s[i]);
        i += len ? len : 1;
    }
}

struct quoted quote(const char *s)
{
    struct quoted q;
    char text[80];
    size_t n = strlen(s);
    bool whole = escape(text, sizeof text, s, n) == n;
    snprintf(q.text, sizeof q.text, "'%s'%s", text, whole ? "" : "...");
    return q;
}

json_t *json_text(const char *s, size_t n)
{
    json_t *j = json_stringn(s, n);
    if (j) return j;
    json_malloc_t take; /* jansson's, which tells a server of what finds no memory */
    json_free_t give;
    json_get_alloc_funcs(&take, &give);
    char *clean = take(3 * n + 1), *to = clean;
    if (!clean) return NULL;
    for (size_t i = 0; i < n;) {
        size_t len = utf8_length(s + i, n - i);
        memcpy(to, len ? s + i : "\xef\xbf\xbd", len ? len : 3);
        to += len ? len : 3;
        i += len ? len : 1;
    }
    j = json_stringn(clean, (size_t)(to - clean));
    give(clean);
    return j;
}

json_t *json_bytes(const char *s, size_t n)
{
    json_t *a = json_array();
    for (size_t i = 0; i < n; i++) json_array_append_new(a, json_integer((unsigned char)s[i]));
    return a;
}

json_t *json_piece(const char *s, size_t n)
{
    json_t *j = json_stringn(s, n);
    return j ? j : json_bytes(s, n);
}

const char *json_word(const json_t *v)
{
    const char *s = json_string_value(v);
    return s && strlen(s) == json_string_length(v) ? s : NULL;
}

void say_json(const json_t *j)
{
    json_dumpf(j, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    putchar('\n');
}

static struct human human(uint64_t n, double step, const char *const *units, size_t n_units)
{
    struct human h;
    double v = (double)n;
    size_t i = 0;
    while (v >= step && i + 1 < n_units) {
        v /= step;
        i++;
    }
    snprintf(h.text, sizeof h.text, i ? "%.1f %s" : "%.0f %s", v, units[i]);
    if (!units[i][0]) h.text[strlen(h.text) - 1] = 0;
    return h;
}

struct human human_bytes(uint64_t n)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    return human(n, 1024, units, sizeof units / sizeof *units);
}

struct human human_count(uint64_t n)
{
    static const char *const units[] = {"", "K", "M", "B", "T"};
    return human(n, 1000, units, sizeof units / sizeof *units);
}

int say_error(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    if (!ferror(stdout)) fflush(stdout); /* stays before it, wherever both go */
    fputs("fletch: ", stderr);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    va_end(ap);
    return EXIT_FAIL;
}

int say_failure(int rc, const char *text)
{
    say_error("%s", text && *text ? text : fletch_strerror(rc));
    if (rc == FLETCH_E_FIT || rc == FLETCH_E_NOMEM) return EXIT_FIT;
    return rc == FLETCH_E_ARG ? EXIT_USAGE : EXIT_FAIL;
}

int say_model_failure(int rc, const char *text)
{
    int code = say_failure(rc, text);
    bool bad = rc == FLETCH_E_FORMAT || rc == FLETCH_E_UNSUPPORTED || rc == FLETCH_E_LIMIT;
    return bad ? EXIT_MODEL : code;
}

bool is_screen(int fd)
{
    const char *term = getenv("TERM");
    return isatty(fd) && term && *term && strcmp(term, "dumb") != 0;
}

unsigned terminal_width(int fd)
{
    struct winsize size;
    return isatty(fd) && ioctl(fd, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

unsigned screen_width(int fd)
{
    enum { MIN = 60, MAX = 200, OTHERWISE = 80 };
    unsigned width = terminal_width(fd);
    return !width ? OTHERWISE : width < MIN ? MIN : width > MAX ? MAX : width;
}

void say_wrapped(FILE *out, const char *text, size_t at, size_t indent)
{
    unsigned width = screen_width(fileno(out));
    while (*text) {
        size_t n = strcspn(text, " \n");
        if (!n) { /* the next paragraph */
            fprintf(out, "\n\n%*s", (int)indent, "");
            at = indent;
            text++;
            continue;
        }
        if (at > indent && at + 1 + n > width) {
            fprintf(out, "\n%*s", (int)indent, "");
            at = indent;
        } else if (at > indent) {
            fputc(' ', out);
            at++;
        }
        fwrite(text, 1, n, out);
        at += n;
        text += n;
        text += strspn(text, " ");
    }
    fputc('\n', out);
}

static const char *style(int fd, const char *code)
{
    const char *plain = getenv("NO_COLOR");
    return is_screen(fd) && !(plain && *plain) ? code : "";
}

const char *style_dim(int fd)
{
    return style(fd, "\033[2m");
}

const char *style_end(int fd)
{
    return style(fd, "\033[0m");
}

double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void progress_begin(struct progress *p, const char *what, const struct args *a)
{
    *p = (struct progress){.what = what, .on = !a->quiet && is_screen(2), .began = now()};
}

/* Of the last seconds, smoothed, so that the time left follows a connection that changes. */
static void update_speed(struct progress *p, double t, uint64_t done)
{
    const double interval = 0.5, weight = 0.2;
    if (p->t_speed <= 0 || done < p->n_speed) { /* what an earlier run left is no speed */
        p->t_speed = t;
        p->n_speed = done;
    }
    double took = t - p->t_speed;
    if (took < interval) return;
    double now_speed = (double)(done - p->n_speed) / took;
    p->speed = p->speed > 0 ? p->speed + weight * (now_speed - p->speed) : now_speed;
    p->t_speed = t;
    p->n_speed = done;
}

/* How long it will take, at the speed of the last seconds. */
static void format_left(char *left, size_t cap, double seconds)
{
    *left = 0;
    if (seconds >= 3600 && seconds < 360000)
        snprintf(left, cap, ", %.0f h %02.0f min left", floor(seconds / 3600),
                 floor(fmod(seconds, 3600) / 60));
    else if (seconds >= 0 && seconds < 3600)
        snprintf(left, cap, ", %.0f:%02.0f left", floor(seconds / 60), floor(fmod(seconds, 60)));
}

/* " [######------] 1.2 GiB, 23.4 MiB/s, 2:31 left": parts that do not fit are left out whole, the
 * amount first, the time left last; the bar takes what is left, up to 20. */
static void print_bar(const struct progress *p, uint64_t done, uint64_t total)
{
    enum { MOST = 20, LEAST = 5, FRAME = 3 };
    char amount[40], speed[40], left[40];
    int room = (int)screen_width(2) - (int)strlen(p->what) - 8;
    snprintf(amount, sizeof amount, " %s,", human_bytes(done).text);
    snprintf(speed, sizeof speed, " %s/s", human_bytes((uint64_t)p->speed).text);
    format_left(left, sizeof left, p->speed > 0 ? (double)(total - done) / p->speed : -1);
    if ((room -= (int)strlen(left)) < 0) *left = 0;
    if ((room -= (int)strlen(speed)) < 0) *speed = 0;
    if (room - (int)strlen(amount) < LEAST + FRAME) *amount = 0;
    room -= (int)strlen(amount) + FRAME;
    int bar = room < MOST ? room : MOST;
    if (bar >= LEAST) {
        fputs(" [", stderr);
        for (int i = 0; i < bar; i++)
            fputc((double)i + 0.5 < (double)bar * (double)done / (double)total ? '#' : '-', stderr);
        fputc(']', stderr);
    }
    fprintf(stderr, "%s%s%s\033[K", amount, speed, left);
}

int progress_report(void *progress, uint64_t done, uint64_t total)
{
    struct progress *p = progress;
    double t = p->on ? now() : 0;
    if (p->on && p->bytes) update_speed(p, t, done);
    if (!p->on || t - p->began < 1 || t - p->last < 0.1 || !total) return interrupted;
    fprintf(stderr, "\r%s %3.0f %%", p->what, 100.0 * (double)done / (double)total);
    if (p->bytes) print_bar(p, done, total);
    p->shown = true;
    p->last = t;
    return interrupted;
}

void progress_end(struct progress *p)
{
    if (p->shown) fputs("\r\033[K", stderr);
    p->on = p->shown = false;
}
