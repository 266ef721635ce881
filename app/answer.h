/* An answer on a terminal as it comes: words that wrap whole, and the bold, code, headings and
 * lists of Markdown. What the model says can't command the terminal. */
#ifndef APP_ANSWER_H
#define APP_ANSWER_H

#include "app.h"

struct answer_view {
    FILE *out;
    bool styled;         /* Markdown is shown as what it means, else as it is written */
    unsigned width;      /* columns; 0: lines are never broken */
    unsigned at, indent; /* the cursor's column; that of further lines of this paragraph */
    unsigned blanks;     /* before the word */
    struct text word;    /* held back until it ends, with escape sequences */
    unsigned word_width; /* its columns */
    char part[4];        /* of a character, or of what begins a line */
    size_t n_part;       /* bytes of it */
    char lead[41];       /* what may begin a list, a heading or a block of code */
    size_t n_lead;       /* bytes of it */
    unsigned stars;      /* just before this */
    bool line_begins, fenced, skip_line, bold, code, heading;
};

void answer_begin(struct answer_view *v, FILE *out);
void answer_put(struct answer_view *v, const char *text, size_t n);
/* Shows what was held back and ends all styles. */
void answer_end(struct answer_view *v);
/* The same, and whatever comes next stands in the next column; for styles of the caller's. */
void answer_flush(struct answer_view *v);

#endif
