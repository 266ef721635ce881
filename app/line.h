/* Lines that a person types, or that a pipe gives: editing, history and completion on a terminal.
 */
#ifndef APP_LINE_H
#define APP_LINE_H

#include <stdbool.h>
#include <stddef.h>

struct line;

/* words: what Tab completes at the beginning of a line, ended by NULL. */
struct line *line_open(const char *const *words);
void line_close(struct line *l);
bool line_is_terminal(const struct line *l);

enum line_result { LINE_TEXT, LINE_END, LINE_INTERRUPTED };
/* One message: a line; lines that end in a backslash go on, and lines between a pair of """ are one
 * message. *text is valid until the next call. */
enum line_result line_read(struct line *l, const char **text, size_t *n);
/* Puts a text on the next line as if it was typed, to be edited. False without a terminal. */
bool line_offer(struct line *l, const char *text);

#endif
