/* The library's reports are JSON documents: --json prints them as they are, people get tables. */
#ifndef APP_REPORT_H
#define APP_REPORT_H

#include "app.h"

/* Takes what a report function returned and its text (freed here). Exit code; on EXIT_OK *out is
 * the document, and with --json it has been printed. */
int report_load(json_t **out, const struct args *a, int rc, const char *error, char *text);

/* Fields of a document; "", 0 and false where they are missing. */
const char *get_text(const json_t *j, const char *key);
uint64_t get_count(const json_t *j, const char *key);
bool get_bool(const json_t *j, const char *key);

#endif
