/* Chat templates: the subset of Jinja that model files use, interpreted within limits. A template
 * comes from a model file and is hostile input: it sees only the variables it is given, and fuel,
 * depth and output are bounded. Something it uses that we don't know is an error, never ignored. */
#ifndef FLETCH_TMPL_H
#define FLETCH_TMPL_H

#include <jansson.h>
#include <time.h>

#include "base/err.h"

struct tmpl;
int tmpl_open(struct tmpl **out, struct str source, struct err *err);
void tmpl_close(struct tmpl *t);
/* Whether a variable of the caller's can change what it renders: false only where it can't. */
bool tmpl_reads(const struct tmpl *t, struct str name);

struct tmpl_limits {
    u64 fuel;       /* evaluation steps; 0 = default */
    u32 depth;      /* nesting of expressions, macros, values; 0 = default */
    size_t n_bytes; /* of output and of all values together; 0 = default */
};

struct tmpl_out {
    char *text;    /* NUL-terminated, n bytes */
    u8 *from_user; /* [n] non-zero where the byte came from vars, 0 where from the template */
    size_t n;
};

/* vars: an object of variables (messages, tools, add_generation_prompt, ...); every string in it
 * counts as the user's. trusted (may be NULL): an object whose strings count as the template's own
 * (bos_token, eos_token). now: what strftime_now formats, in local time. */
int tmpl_render(const struct tmpl *t, const json_t *vars, const json_t *trusted, time_t now,
                const struct tmpl_limits *limits, struct tmpl_out *out, struct err *err);
void tmpl_out_free(struct tmpl_out *out);

#endif
