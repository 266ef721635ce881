/* Answers that must follow a grammar or a JSON schema: compiled ones are kept by their text, so
 * that many requests with one schema share its states and masks. */
#ifndef FLETCH_CONSTRAIN_H
#define FLETCH_CONSTRAIN_H

#include "serve/automaton.h"

struct fletch_model;
struct constrain; /* what a model keeps */

/* One answer's; all NULL: it is free. */
struct constrained {
    struct constraint *place;
    struct rules *rules;
};

/* At most one of the texts is given; none leaves *out empty. From any thread. */
int constrain_begin(struct constrained *out, struct fletch_model *m, const char *grammar,
                    const char *json_schema, struct err *err);
/* On the thread that used it, or before anybody did. */
void constrain_end(struct constrained *c, struct fletch_model *m);

int constrain_open(struct constrain **out, struct err *err);
void constrain_close(struct constrain *c);

#endif
