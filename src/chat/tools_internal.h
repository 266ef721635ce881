/* What the parser's files share: texts, and arguments of calls as formats write them. */
#ifndef FLETCH_TOOLS_INTERNAL_H
#define FLETCH_TOOLS_INTERNAL_H

#include "chat/tools.h"

struct text {
    const char *p;
    size_t n;
};

bool text_is_blank(char c);
struct text text_skip_blanks(struct text s);
struct text text_skip(struct text s, size_t n);
bool text_starts(struct text s, const char *with);
/* Whether s is a beginning of a longer `whole`; NULL is none. */
bool text_may_become(struct text s, const char *whole);
/* Where a marker begins, or could begin at the end of s; s.n when nowhere. */
size_t text_find(struct text s, const char *marker);
/* The length of s without blanks at its end. */
size_t text_rtrim(struct text s);

/* ---- arguments ---- */

/* A value with brackets or quotes of which the beginning is there: how far it was read. */
struct span {
    size_t at;
    uint32_t depth;
    char quote; /* that is open, or 0 */
    bool escaped;
};
enum span_kind { SPAN_JSON, SPAN_PYTHON, SPAN_QUOTED };
/* Goes on reading what begins at s.p; true when its end was found, at span->at. Says nothing about
 * what is inside. mark: around strings, of SPAN_QUOTED. */
bool span_read(struct span *span, enum span_kind kind, const char *mark, struct text s);
/* Does an object, array or string begin here? */
bool span_begins(struct text s);

const json_t *tool_find(const json_t *tools, struct text name);
const char *tool_name(const json_t *tool);

/* Receives a call's name and its arguments, a JSON text. */
typedef void take_call(void *ctx, const char *name, struct text arguments);
/* Each reads calls from a text that has an end: all are good and are taken, or none.
 * name_is_key: {"NAME": {arguments}}. */
bool read_objects(const json_t *tools, bool name_is_key, struct text raw, take_call *take,
                  void *ctx);
bool read_python(const json_t *tools, struct text raw, take_call *take, void *ctx);
/* The arguments that stand in {..}, as JSON; NULL: they can't be read. */
json_t *read_quoted(struct text raw, const char *quote);
json_t *read_json(struct text s);
/* As compact JSON; free. */
char *write_json(const json_t *value);

/* Whether a member of a tool's arguments is declared a string, which is written without quotes. */
bool value_is_text(const json_t *tool, const char *key);
enum value_form { VALUE_BY_SCHEMA, VALUE_TEXT, VALUE_JSON };
/* A value that is written without quotes. NULL: not UTF-8. */
json_t *value_read(const json_t *tool, const char *key, enum value_form form, struct text s);

#endif
