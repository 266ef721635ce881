/* Getting things over HTTP: into memory, or into a file that a broken connection leaves where the
 * next attempt goes on. libcurl does the work; it is loaded when the first thing is fetched, so
 * that the program starts without it and a static one needs no other build. */
#ifndef APP_FETCH_H
#define APP_FETCH_H

#include "app.h"

struct fetch;

/* Whom to ask: what errors advise depends on it. */
enum fetch_from { FETCH_FROM_HUB, FETCH_FROM_SERVER };

/* Exit codes; what went wrong was said. token (NULL: none) is shown to the servers that are asked,
 * over TLS or on this machine, and not to those they redirect to. fetch_close always. */
int fetch_open(struct fetch **out, const char *token, enum fetch_from from);
void fetch_close(struct fetch *f);

/* At most max bytes. `more` (may be NULL): the answer says that there are further pages. */
int fetch_text(struct fetch *f, const char *url, size_t max, struct text *out, bool *more);

struct fetch_file {
    const char *url, *path;    /* path: where it will be; until then path.part */
    uint64_t size;             /* that was promised */
    const char *sha256;        /* likewise, as hexadecimal digits; NULL: nothing was */
    struct progress *progress; /* what came stays at Ctrl-C */
};
int fetch_to_file(struct fetch *f, const struct fetch_file *what);

#endif
