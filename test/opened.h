/* For tests through the public interface: an engine with one thread, a model and one session,
 * opened in one call. Failures end the test. */
#ifndef FLETCH_OPENED_H
#define FLETCH_OPENED_H

#include "fletch.h"
#include "tiny_model.h"

struct opened {
    char *path; /* of a tiny model that is deleted at the end, or NULL */
    struct fletch_engine *e;
    struct fletch_model *m;
    struct fletch_session *s;
};

void opened_path(struct opened *o, const char *backend, const char *path,
                 const struct fletch_model_params *params);
void opened_tiny(struct opened *o, const char *backend, const struct tiny_model *tiny,
                 const struct fletch_model_params *params);
void opened_close(struct opened *o);

/* The backends that every build has. */
extern const char *const opened_backends[2];

/* The code, a part of the text, and that the text is one line. */
void expect_error(int rc, int code, const char *text, const char *part);

#endif
