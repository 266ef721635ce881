#include "answer.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

enum { MIN_WIDTH = 20 }; /* narrower terminals break lines themselves */

#define BOLD       "\033[1m"
#define BOLD_OFF   "\033[22m"
#define COLOUR     "\033[36m" /* of code */
#define COLOUR_OFF "\033[39m"

void answer_begin(struct answer_view *v, FILE *out)
{
    *v = (struct answer_view){.out = out,
                              .styled = *style_dim(fileno(out)) != 0,
                              .width = terminal_width(fileno(out)),
                              .line_begins = true};
    if (v->width < MIN_WIDTH) v->width = 0;
}

/* ---- words ---- */

static void add(struct answer_view *v, const char *s, size_t n, unsigned width)
{
    v->word.p = need(realloc(v->word.p, v->word.n + n + 1));
    memcpy(v->word.p + v->word.n, s, n);
    v->word.n += n;
    v->word_width += width;
}

static void style(struct answer_view *v, const char *code)
{
    if (v->styled) add(v, code, strlen(code), 0);
}

static void end_word(struct answer_view *v)
{
    unsigned all = v->at + v->blanks + v->word_width;
    if (v->word_width && v->width && !v->fenced && all > v->width && v->at > v->indent) {
        fprintf(v->out, "\n%*s", (int)v->indent, "");
        v->at = v->indent;
    } else if (v->word_width) {
        fprintf(v->out, "%*s", (int)v->blanks, "");
        v->at += v->blanks;
    }
    if (v->word_width) v->blanks = 0;
    if (v->word.n) fwrite(v->word.p, 1, v->word.n, v->out);
    v->at += v->word_width;
    if (v->width && v->at > v->width) v->at = (v->at - 1) % v->width + 1; /* a long word */
    v->word.n = v->word_width = 0;
}

static void end_line(struct answer_view *v)
{
    if (v->bold || v->heading) style(v, BOLD_OFF);
    if (v->code) style(v, COLOUR_OFF);
    end_word(v);
    fputc('\n', v->out);
    v->at = v->indent = v->blanks = 0;
    v->bold = v->heading = v->code = v->skip_line = false;
    v->line_begins = true;
    unsigned width = terminal_width(fileno(v->out)); /* it may have been resized */
    if (width) v->width = width < MIN_WIDTH ? 0 : width;
}

/* One character that means nothing but itself. */
static void put_plain(struct answer_view *v, const char *s, size_t n)
{
    if (*s == ' ' && !v->fenced) {
        end_word(v);
        v->blanks++;
    } else if (*s == '\t') {
        end_word(v);
        v->blanks += 8 - (v->at + v->blanks) % 8;
    } else if ((unsigned char)*s < 0x20 || *s == 0x7f ||
               (n == 2 && (unsigned char)s[0] == 0xc2 && (unsigned char)s[1] < 0xa0)) {
        char shown[20] = "";
        for (size_t i = 0; i < n; i++) snprintf(shown + 4 * i, 5, "\\x%02x", (unsigned char)s[i]);
        add(v, shown, 4 * n, (unsigned)(4 * n));
    } else {
        wchar_t c = L' ';
        mbstate_t state = {0};
        int width = mbrtowc(&c, s, n, &state) == n ? wcwidth(c) : 1;
        if (width > 1) end_word(v); /* ideographs break anywhere */
        add(v, s, n, width > 0 ? (unsigned)width : 0);
        if (width > 1) end_word(v);
    }
}

/* ---- Markdown ---- */

/* Stars before a character (NULL: at the end of the line): two begin or end bold text. */
static void end_stars(struct answer_view *v, const char *next)
{
    unsigned n = v->stars;
    bool blank = !next || *next == ' ' || *next == '\n';
    v->stars = 0;
    if (n >= 2 && !v->heading && (v->bold || !blank)) {
        v->bold = !v->bold;
        style(v, v->bold ? BOLD : BOLD_OFF);
        n -= 2;
    }
    while (n--) put_plain(v, "*", 1);
}

static void put_inline(struct answer_view *v, const char *s, size_t n)
{
    if (*s == '*' && !v->code) {
        v->stars++;
        return;
    }
    end_stars(v, s);
    if (*s == '`') {
        v->code = !v->code;
        style(v, v->code ? COLOUR : COLOUR_OFF);
    } else
        put_plain(v, s, n);
}

/* What the beginning of a line is, as far as it is known. */
enum lead { LEAD_NOTHING, LEAD_MAYBE, LEAD_FENCE, LEAD_HEADING, LEAD_BULLET, LEAD_NUMBER };

static enum lead lead_of(const struct answer_view *v)
{
    const char *s = v->lead, *end = v->lead + v->n_lead;
    while (s < end && *s == ' ') s++;
    size_t n = (size_t)(end - s), k = 0;
    if (v->n_lead + 1 == sizeof v->lead) return LEAD_NOTHING;
    if (!n) return LEAD_MAYBE;
    if (*s == '`')
        return n > 3 || memcmp(s, "```", n) != 0 ? LEAD_NOTHING : n == 3 ? LEAD_FENCE : LEAD_MAYBE;
    if (v->fenced) return LEAD_NOTHING;
    bool ended = end[-1] == ' ';
    size_t marks = n - ended;
    if (strchr("-*+", *s)) return marks > 1 ? LEAD_NOTHING : ended ? LEAD_BULLET : LEAD_MAYBE;
    while (k < marks && s[k] == '#') k++;
    if (k) return k < marks || k > 6 ? LEAD_NOTHING : ended ? LEAD_HEADING : LEAD_MAYBE;
    while (k < marks && isdigit((unsigned char)s[k])) k++;
    if (!k || k > 3) return LEAD_NOTHING;
    if (k < marks && !strchr(".)", s[k])) return LEAD_NOTHING;
    if (k + 1 < marks) return LEAD_NOTHING;
    return !ended ? LEAD_MAYBE : k < marks ? LEAD_NUMBER : LEAD_NOTHING;
}

static void replay_lead(struct answer_view *v)
{
    size_t n = v->n_lead;
    v->n_lead = 0;
    v->line_begins = false;
    for (size_t i = 0; i < n; i++) {
        if (v->fenced)
            put_plain(v, v->lead + i, 1);
        else
            put_inline(v, v->lead + i, 1);
    }
}

/* A line that begins with a mark of Markdown. */
static void begin_block(struct answer_view *v, enum lead lead)
{
    size_t n_blanks = strspn(v->lead, " ");
    v->line_begins = false;
    switch (lead) {
    case LEAD_FENCE:
        v->fenced = !v->fenced;
        v->skip_line = true;
        break;
    case LEAD_HEADING:
        v->heading = true;
        style(v, BOLD);
        break;
    case LEAD_BULLET:
        v->blanks = (unsigned)n_blanks;
        add(v, "\xe2\x80\xa2", 3, 1);
        put_plain(v, " ", 1);
        v->indent = (unsigned)n_blanks + 2;
        break;
    case LEAD_NUMBER:
        v->indent = (unsigned)v->n_lead;
        replay_lead(v);
        break;
    case LEAD_NOTHING:
    case LEAD_MAYBE: break;
    }
    v->n_lead = 0;
}

static void put_character(struct answer_view *v, const char *s, size_t n)
{
    if (*s == '\n') {
        bool skipped = v->skip_line;
        if (v->line_begins) replay_lead(v);
        end_stars(v, NULL);
        if (skipped) {
            v->skip_line = false;
            v->line_begins = true;
            v->word.n = v->word_width = v->blanks = 0;
            style(v, v->fenced ? COLOUR : COLOUR_OFF);
        } else
            end_line(v);
        return;
    }
    if (v->skip_line) return;
    if (!v->styled) {
        put_plain(v, s, n);
        return;
    }
    if (v->line_begins && n == 1) {
        v->lead[v->n_lead++] = *s;
        v->lead[v->n_lead] = 0;
        enum lead lead = lead_of(v);
        if (lead == LEAD_NOTHING)
            replay_lead(v);
        else if (lead != LEAD_MAYBE)
            begin_block(v, lead);
        return;
    }
    if (v->line_begins) replay_lead(v);
    if (v->fenced)
        put_plain(v, s, n);
    else
        put_inline(v, s, n);
}

void answer_put(struct answer_view *v, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        v->part[v->n_part++] = text[i];
        size_t len = utf8_length(v->part, v->n_part);
        unsigned char first = (unsigned char)v->part[0];
        size_t want = first < 0xc2 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 1;
        if (!len && v->n_part < want) continue;
        if (len)
            put_character(v, v->part, len);
        else
            put_character(v, "\xef\xbf\xbd", 3);
        v->n_part = 0;
    }
    /* what can't be moved to another line need not wait */
    if (v->fenced || v->indent + v->word_width >= v->width) end_word(v);
}

void answer_flush(struct answer_view *v)
{
    if (v->n_part) put_character(v, "\xef\xbf\xbd", 3);
    v->n_part = 0;
    if (v->line_begins) replay_lead(v);
    end_stars(v, NULL);
    end_word(v);
}

void answer_end(struct answer_view *v)
{
    answer_flush(v);
    if (v->styled && (v->bold || v->heading)) fputs(BOLD_OFF, v->out);
    if (v->styled && (v->code || v->fenced)) fputs(COLOUR_OFF, v->out);
    free(v->word.p);
    v->word = (struct text){0};
}
