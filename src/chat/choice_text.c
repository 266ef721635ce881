/* Texts in grammars: markers, and anything that contains no marker. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "chat/choice_internal.h"

const char *maker_tool_name(const json_t *tool)
{
    return tool_name(json_object_get(tool, "function"));
}

int32_t maker_control(const struct maker *m, const char *text)
{
    return m->ask->control ? m->ask->control(m->ask->ctx, text) : -1;
}

void maker_fail(struct maker *m, const json_t *tool, const char *fmt, ...)
{
    va_list args;
    int n = 0;
    if (m->failed) return;
    m->failed = true;
    if (tool) n = snprintf(m->why, m->why_cap, "tool %s: ", maker_tool_name(tool));
    va_start(args, fmt);
    if (n >= 0 && (size_t)n < m->why_cap) vsnprintf(m->why + n, m->why_cap - (size_t)n, fmt, args);
    va_end(args);
}

void maker_put_text(struct maker *m, const char *text, size_t n)
{
    fputc('"', m->out);
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c < 0x20 || c == 0x7f)
            fprintf(m->out, "\\x%02x", c);
        else
            fprintf(m->out, c == '"' || c == '\\' ? "\\%c" : "%c", c);
    }
    fputs("\" ", m->out);
}

/* ---- markers ---- */

void maker_put_mark(struct maker *m, const char *text)
{
    size_t i = 0;
    while (i < m->n_marks && strcmp(m->marks[i], text) != 0) i++;
    if (i == MAX_MARKS) {
        m->failed = true;
        return;
    }
    m->marks[i] = text;
    if (i == m->n_marks) m->n_marks++;
    fprintf(m->out, "mark-%zu ", i);
}

/* The length of the control token at the front of a text, <..> or [..]; 0: there is none. */
static size_t token_at(const struct maker *m, const char *text, int32_t *id)
{
    char token[64];
    const char *end = *text == '<' ? strchr(text, '>') : *text == '[' ? strchr(text, ']') : NULL;
    size_t n = end ? (size_t)(end - text) + 1 : 0;
    if (!n || n >= sizeof token) return 0;
    memcpy(token, text, n);
    token[n] = 0;
    *id = maker_control(m, token);
    return *id >= 0 ? n : 0;
}

static void put_mark_rule(struct maker *m, size_t i)
{
    fprintf(m->out, "mark-%zu ::= ", i);
    for (const char *s = m->marks[i]; *s;) {
        int32_t id;
        size_t n = token_at(m, s, &id), n_text = 0;
        if (n) {
            fprintf(m->out, "<[%d]> ", id);
            s += n;
            continue;
        }
        do n_text++;
        while (s[n_text] && !token_at(m, s + n_text, &id));
        maker_put_text(m, s, n_text);
        s += n_text;
    }
    fputs("\n", m->out);
}

/* ---- any text without a marker ---- */

void maker_put_without(struct maker *m, const char *const *words)
{
    size_t i = 0, n = 0;
    const char *set[MAX_WORDS] = {0};
    for (; *words && n < MAX_WORDS; words++) set[n++] = *words;
    while (i < m->n_without && memcmp(m->without[i], set, sizeof set) != 0) i++;
    if (i == MAX_WITHOUT) {
        m->failed = true;
        return;
    }
    memcpy(m->without[i], set, sizeof set);
    if (i == m->n_without) m->n_without++;
    fprintf(m->out, "without-%zu-0 ", i);
}

enum { MAX_STATES = 256, MAX_LENGTH = 64 };

/* Beginnings of the words, in characters; a text is in the state of the longest one that it ends
 * with. */
struct search {
    uint32_t words[MAX_WORDS][MAX_LENGTH];
    size_t n_words, lengths[MAX_WORDS];
    struct {
        size_t word, n;
    } states[MAX_STATES];
    size_t n_states;
};

static size_t read_character(const char *s, uint32_t *c)
{
    unsigned char first = (unsigned char)*s;
    size_t n = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    *c = n == 1 ? first : first & (0x7fu >> n);
    for (size_t i = 1; i < n; i++) *c = *c << 6 | ((unsigned char)s[i] & 0x3f);
    return n;
}

static size_t find_state(const struct search *s, const uint32_t *text, size_t n)
{
    size_t i = 0;
    while (i < s->n_states && (s->states[i].n != n ||
                               memcmp(s->words[s->states[i].word], text, n * sizeof *text) != 0))
        i++;
    return i;
}

static void search_open(struct search *s, const char *const *words)
{
    *s = (struct search){0};
    for (; s->n_words < MAX_WORDS && words[s->n_words]; s->n_words++) {
        const char *p = words[s->n_words];
        size_t *n = &s->lengths[s->n_words];
        while (*p && *n < MAX_LENGTH) p += read_character(p, &s->words[s->n_words][(*n)++]);
        for (size_t i = 0; i < *n && s->n_states < MAX_STATES; i++) {
            if (find_state(s, s->words[s->n_words], i) < s->n_states) continue;
            s->states[s->n_states].word = s->n_words;
            s->states[s->n_states++].n = i;
        }
    }
}

/* Where a character leads; n_states: it would end a word. */
static size_t next_state(const struct search *s, size_t from, uint32_t c)
{
    uint32_t text[MAX_LENGTH + 1];
    size_t n = s->states[from].n;
    memcpy(text, s->words[s->states[from].word], n * sizeof *text);
    text[n++] = c;
    for (size_t w = 0; w < s->n_words; w++)
        if (s->lengths[w] <= n &&
            memcmp(text + n - s->lengths[w], s->words[w], s->lengths[w] * sizeof *text) == 0)
            return s->n_states;
    for (size_t cut = 0; cut < n; cut++) {
        size_t state = find_state(s, text + cut, n - cut);
        if (state < s->n_states) return state;
    }
    return 0;
}

static size_t all_characters(const struct search *s, uint32_t *to)
{
    size_t n = 0;
    for (size_t w = 0; w < s->n_words; w++)
        for (size_t i = 0; i < s->lengths[w]; i++) {
            size_t k = 0;
            while (k < n && to[k] != s->words[w][i]) k++;
            if (k == n) to[n++] = s->words[w][i];
        }
    return n;
}

/* A rule for each state: any character but those of words leads to the first. */
static void put_without_rules(struct maker *m, size_t which)
{
    static const char escape[] = "\\U%08x";
    struct search *s = malloc(sizeof *s);
    uint32_t characters[MAX_WORDS * MAX_LENGTH];
    if (!s) {
        m->failed = true;
        return;
    }
    search_open(s, m->without[which]);
    size_t n = all_characters(s, characters);
    for (size_t from = 0; from < s->n_states; from++) {
        fprintf(m->out, "without-%zu-%zu ::= ([^", which, from);
        for (size_t i = 0; i < n; i++) fprintf(m->out, escape, characters[i]);
        fprintf(m->out, "] without-%zu-0", which);
        for (size_t i = 0; i < n; i++) {
            size_t to = next_state(s, from, characters[i]);
            if (to == s->n_states) continue;
            fputs(" | [", m->out);
            fprintf(m->out, escape, characters[i]);
            fprintf(m->out, "] without-%zu-%zu", which, to);
        }
        fputs(")?\n", m->out);
    }
    free(s);
}

void maker_finish(struct maker *m)
{
    if (m->parts) {
        m->failed |= ferror(m->parts) || fclose(m->parts);
        if (!m->failed) fwrite(m->parts_text, 1, m->n_parts_text, m->out);
        free(m->parts_text);
    }
    if (m->any_value) maker_put_any_value(m);
    for (size_t i = 0; i < m->n_without; i++) put_without_rules(m, i);
    for (size_t i = 0; i < m->n_marks; i++) put_mark_rule(m, i);
}
