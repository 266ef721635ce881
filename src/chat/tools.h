/* What an answer says, thinks and calls. A model writes all three as one text, marked the way its
 * chat template taught it (format.h); here the text is split while it arrives. Knows nothing of any
 * protocol: the endpoints turn pieces into theirs.
 *
 * Only what can't be the beginning of a marker is passed on; how the text is cut into feeds changes
 * nothing. A call is passed on when it is whole: it names a tool that was offered and its arguments
 * are an object. Anything else that looks like a call comes out as content. No byte is lost: the
 * texts of all pieces but calls, joined, are what the model wrote. */
#ifndef FLETCH_TOOLS_H
#define FLETCH_TOOLS_H

#include <jansson.h>
#include <stdint.h>

#include "chat/format.h"

enum tools_part {
    TOOLS_CONTENT,
    TOOLS_REASONING,
    TOOLS_CALL,
    TOOLS_MARKUP, /* markers, blanks beside them, and the text that calls were read from */
};
struct tools_piece {
    enum tools_part part;
    const char *text; /* some more of it; all arguments of a call, as JSON */
    size_t n;
    uint32_t index; /* of the call, from 0 */
    const char *id, *name;
};

struct tools_params {
    struct tools_format format;
    const json_t *tools; /* borrowed; [{"function": {"name", "parameters"}}]; NULL: no calls */
    bool thinking;       /* the prompt ends inside thinking */
    uint64_t seed;       /* of the calls' ids */
    void (*on_piece)(void *ctx, const struct tools_piece *piece);
    void *ctx;
};

struct tools;
/* 0, or -1 when out of memory. */
int tools_open(struct tools **out, const struct tools_params *params);
int tools_feed(struct tools *t, const char *text, size_t n);
/* The answer ended: what was held back comes out. */
void tools_end(struct tools *t);
uint32_t tools_n_calls(const struct tools *t);
/* What began with a marker of calls and was passed on as content. */
uint32_t tools_n_malformed(const struct tools *t);
void tools_close(struct tools *t);

/* Whether a rendered prompt ends inside thinking. */
bool tools_prompt_thinks(const struct chat_format *row, const char *prompt, size_t n);

/* ---- tools_choice.c: what is asked of the model ---- */

/* The id of the control token with that text, or -1. */
typedef int32_t tools_control(void *ctx, const char *text);
/* Whether the format's markers are control tokens, shown only when asked for. */
bool tools_has_control(struct tools_format format, tools_control *control, void *ctx);

enum tools_what {
    TOOLS_ANY,     /* anything: only thinking is limited */
    TOOLS_MAY,     /* content, then calls if the model wants; they obey the tools' schemas */
    TOOLS_MUST,    /* calls, each of one of the tools */
    TOOLS_FORM,    /* content that obeys a JSON schema */
    TOOLS_GRAMMAR, /* content that obeys a grammar */
};
struct tools_ask {
    struct tools_format format; /* its `thinks`: thinking may come first */
    enum tools_what what;
    const json_t *tools;
    bool many;        /* several calls, one after the other */
    const char *form; /* the schema or grammar */
    bool thinking;    /* the prompt ends inside thinking */
    uint32_t budget;  /* of thinking, in tokens, where budget_tokens is given: */
    /* the token that ends thinking, and the one that begins it where the prompt doesn't, as
     * "<[ID]>" or "<[ID]> <[ID]>"; NULL: thinking is not limited */
    const char *budget_tokens;
    tools_control *control;
    void *ctx;
};
/* The grammar of such an answer, from its first byte to its last; free. The parser reads what it
 * allows as thinking, content and calls. NULL: `why` says what can't be kept, or is empty when out
 * of memory. */
char *tools_grammar(const struct tools_ask *ask, char *why, size_t why_cap);
/* A system message's text for models whose templates show no tools; free. */
char *tools_describe(const json_t *tools);

#endif
