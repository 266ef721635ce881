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

struct tools_must {
    struct tools_format format;
    const json_t *tools; /* of which one must be called */
    bool many;           /* or several, one after the other */
    tools_control *control;
    void *ctx;
};
/* The grammar of an answer that calls them, from its first byte to its last, which the parser
 * reads as calls; free. NULL: `why` says what can't be kept, or is empty when out of memory. */
char *tools_grammar(const struct tools_must *must, char *why, size_t why_cap);
/* A system message's text for models whose templates show no tools; free. */
char *tools_describe(const json_t *tools);

#endif
