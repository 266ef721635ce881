/* Text on its way out: tokens in, whole characters out, and what could be the beginning of a stop
 * text waits until it is known not to be. */
#ifndef FLETCH_OUTLET_H
#define FLETCH_OUTLET_H

#include "base/buf.h"
#include "text/tok.h"

struct outlet {
    const struct tok *tok; /* NULL: ids only */
    size_t n_stops;
    const char *const *stops;
    bool show_control; /* control tokens are text */
    u32 stop;          /* index of the stop text that appeared */
    struct tok_stream stream;
    struct buf held;
    size_t n_out; /* bytes at the beginning of held that went out with the last call */
};

/* The text that one more token makes certain, good until the next call; true: a stop text
 * appeared, and that was what came before it. */
bool outlet_feed(struct outlet *o, i32 token, struct str *text);
/* What is still held when there are no more tokens; true as above. */
bool outlet_flush(struct outlet *o, struct str *text);
void outlet_close(struct outlet *o);

#endif
