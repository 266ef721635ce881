/* Tables of layouts as text. */
#include <string.h>

#include "gpu/layout.h"

/* Of a site and its layout, behind the kernel's name. */
enum { NUMBERS = 5 + LAYOUT_AXES };

static void numbers_of(const struct laid_out *l, u32 *n)
{
    const struct site *s = &l->site;
    const u32 all[] = {s->rows, s->n_out, s->n_in, s->n_slices, s->normed};
    memcpy(n, all, sizeof all);
    memcpy(n + ARRAY_LEN(all), l->layout.v, sizeof l->layout.v);
}

static void write_head(struct layouts_for who, struct buf *out)
{
    buf_printf(out, "fletch layouts 2, by fletch tune\ndriver %s\ndevice %s\nkernels %s\n",
               who.driver, who.device, who.kernels);
    buf_puts(out, "# kernel rows n_out n_in slices normed: threads, groups for 4 units, columns, "
                  "outputs, quads\n");
}

void layouts_write(const struct layouts *t, struct layouts_for who, struct buf *out)
{
    write_head(who, out);
    for (u32 i = 0; i < t->n; i++) {
        u32 n[NUMBERS];
        numbers_of(&t->p[i], n);
        buf_puts(out, t->p[i].site.kernel);
        for (u32 j = 0; j < NUMBERS; j++) buf_printf(out, " %u", n[j]);
        buf_putc(out, '\n');
    }
    buf_printf(out, "end %u\n", t->n);
}

/* The next line of text, which it is cut off from; false when there is no whole one. */
static bool next_line(struct str *text, struct str *line)
{
    const char *end = memchr(text->p, '\n', text->n);
    if (!end) return false;
    *line = (struct str){text->p, (size_t)(end - text->p)};
    text->n -= line->n + 1;
    text->p = end + 1;
    return true;
}

/* A blank and a decimal number, cut off from a line. */
static bool next_number(struct str *line, u32 *out)
{
    size_t i = 1;
    u32 v = 0;
    if (line->n < 2 || line->p[0] != ' ') return false;
    for (; i < line->n && line->p[i] >= '0' && line->p[i] <= '9'; i++)
        if (!CK_MUL(v, 10u, &v) || !CK_ADD(v, (u32)(line->p[i] - '0'), &v)) return false;
    *out = v;
    line->p += i;
    line->n -= i;
    return i > 1;
}

/* A kernel's name and numbers, the whole line. */
static bool read_line(struct str line, struct laid_out *l)
{
    size_t n = 0;
    u32 v[NUMBERS];
    while (n < line.n && line.p[n] > ' ' && line.p[n] < 0x7f) n++;
    if (!n || n >= sizeof l->site.kernel) return false;
    *l = (struct laid_out){0};
    memcpy(l->site.kernel, line.p, n);
    line = (struct str){line.p + n, line.n - n};
    for (u32 i = 0; i < NUMBERS; i++)
        if (!next_number(&line, &v[i])) return false;
    if (line.n) return false;
    struct site *s = &l->site;
    s->rows = v[0], s->n_out = v[1], s->n_in = v[2], s->n_slices = v[3], s->normed = v[4];
    memcpy(l->layout.v, v + 5, sizeof l->layout.v);
    return true;
}

static int read_lines(struct layouts *t, struct str text, struct err *err)
{
    struct str line;
    struct laid_out l;
    while (next_line(&text, &line)) {
        if (str_starts(line, "end")) {
            struct str rest = {line.p + 3, line.n - 3};
            u32 n;
            if (next_number(&rest, &n) && !rest.n && n == t->n && !text.n) return 0;
            break;
        }
        if (!read_line(line, &l))
            return err_set(err, FLETCH_E_FORMAT,
                           "the file is damaged: line %s is not a launch shape", QUOTE(line));
        int rc = layouts_set(t, &l.site, &l.layout, err);
        if (rc) return rc;
    }
    return err_set(err, FLETCH_E_FORMAT, "the file is damaged: its end is missing");
}

int layouts_read(struct layouts *t, struct layouts_for who, struct str text, struct err *err)
{
    struct buf head = {0};
    *t = (struct layouts){0};
    write_head(who, &head);
    int rc = head.failed ? err_nomem(err, "the layouts") : 0;
    if (!rc && !str_starts(text, "fletch layouts "))
        rc = err_set(err, FLETCH_E_FORMAT, "not a file of launch shapes");
    else if (!rc && !str_starts(text, head.p))
        rc = err_set(err, FLETCH_E_FIT, "made for another build or device; run fletch tune again");
    else if (!rc)
        rc = read_lines(t, (struct str){text.p + head.n, text.n - head.n}, err);
    buf_free(&head);
    if (rc) layouts_close(t);
    return rc;
}
