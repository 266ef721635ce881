#ifndef FLETCH_REPORT_H
#define FLETCH_REPORT_H

#include <jansson.h>

#include "base/err.h"

struct source;

/* Takes doc (NULL: memory ran out while it was made) and gives its text. */
int report_give(json_t *doc, char **json, struct err *err);
/* A JSON string of bytes that need not be UTF-8. */
json_t *report_text(struct str s);
/* The name of the type that most bytes of the weights are stored in. */
const char *report_main_type(const struct source *s);

#endif
