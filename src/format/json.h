/* JSON documents with limits on size and depth, as jansson's values. Keys and strings may hold NUL:
 * take them with their length. */
#ifndef FLETCH_JSON_H
#define FLETCH_JSON_H

#include <jansson.h>

#include "base/err.h"

enum { JSON_MAX_DEPTH = 64 };

/* what: how messages name the document ("config.json"). Duplicate keys are errors. */
int json_parse(json_t **out, struct str text, const char *what, struct err *err);
/* Infinity, as Python writes it, becomes null. */
int json_read(json_t **out, const char *path, size_t max, struct err *err);

#endif
