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
/* By a person at a terminal. */
bool line_is_typed(const struct line *l);

/* LINE_CLEARED: Ctrl-C after something was typed. */
enum line_result { LINE_TEXT, LINE_END, LINE_INTERRUPTED, LINE_CLEARED };
/* One message: a line; lines that end in a backslash go on, and what stands between """ at the
 * beginning of a line and """ at the end of one is one message. *text is valid until the next call.
 */
enum line_result line_read(struct line *l, const char **text, size_t *n);
/* While on, nothing that is typed is shown; the next line begins with it. */
void line_quiet(struct line *l, bool on);
/* Ctrl-Z outside of line_read takes effect here. */
void line_stop_if_asked(struct line *l);
/* Puts a text on the next line as if it was typed, to be edited. False without a terminal. */
bool line_offer(struct line *l, const char *text);

#endif
