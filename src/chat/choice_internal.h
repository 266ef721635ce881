/* What the files that write grammars share: markers and free text, and arguments of calls. */
#ifndef FLETCH_CHOICE_INTERNAL_H
#define FLETCH_CHOICE_INTERNAL_H

#include <stdio.h>

#include "chat/tools_internal.h"

enum { MAX_MARKS = 40, MAX_WITHOUT = 6, MAX_WORDS = 4 };

struct maker {
    const struct tools_ask *ask;
    FILE *out;
    char *why;
    size_t why_cap;
    bool failed;
    /* rules that are written at the end */
    const char *marks[MAX_MARKS];
    size_t n_marks;
    const char *without[MAX_WITHOUT][MAX_WORDS];
    size_t n_without;
    bool any_value;
    unsigned n_parts, n_values; /* rules made for members; values written */
    FILE *parts;                /* the texts of those rules; NULL: none yet */
    char *parts_text;
    size_t n_parts_text;
};

const char *maker_tool_name(const json_t *tool);
int32_t maker_control(const struct maker *m, const char *text);
/* The first reason stays. tool may be NULL. */
void maker_fail(struct maker *m, const json_t *tool, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void maker_put_text(struct maker *m, const char *text, size_t n);
/* A marker, in which control tokens of the vocabulary are those tokens. The text lives as long as
 * the maker. */
void maker_put_mark(struct maker *m, const char *text);
/* Any text that contains none of the words, which end with NULL. */
void maker_put_without(struct maker *m, const char *const *words);
/* The rule arguments-of-NAME. */
void maker_put_arguments(struct maker *m, const json_t *tool);
/* The rules any-value and any-members. */
void maker_put_any_value(struct maker *m);
/* Writes the rules that others use. */
void maker_finish(struct maker *m);

#endif
