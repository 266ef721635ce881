#include "table.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "app.h"

enum { CELL_MAX = 400, MAX_COLUMNS = 16 };

void table_put(struct table *t, const char *fmt, ...)
{
    char raw[CELL_MAX], shown[CELL_MAX];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(raw, sizeof raw, fmt, ap);
    va_end(ap);
    escape(shown, sizeof shown, raw, strlen(raw));
    t->cells = need(realloc(t->cells, (t->n + 1) * sizeof *t->cells));
    t->cells[t->n++] = need(strdup(shown));
}

/* Characters, which for names and numbers is columns. */
static int width_of(const char *s)
{
    int n = 0;
    for (; *s; s++) n += ((unsigned char)*s & 0xc0) != 0x80;
    return n;
}

void table_print(struct table *t, FILE *out)
{
    size_t n_columns = strlen(t->columns);
    int widths[MAX_COLUMNS] = {0};
    if (n_columns > MAX_COLUMNS) abort(); /* tables are our own */
    for (size_t i = 0; i < t->n; i++) {
        int w = width_of(t->cells[i]), *max = &widths[i % n_columns];
        if (w > *max) *max = w;
    }
    int blanks = 0; /* not printed yet: a line doesn't end with them */
    for (size_t i = 0; i < t->n; i++) {
        size_t column = i % n_columns;
        bool left = t->columns[column] == 'l';
        int space = widths[column] - width_of(t->cells[i]);
        blanks += 2 + (left ? 0 : space);
        if (*t->cells[i]) {
            fprintf(out, "%*s%s", blanks, "", t->cells[i]);
            blanks = 0;
        }
        blanks += left ? space : 0;
        if (column + 1 == n_columns) {
            fputc('\n', out);
            blanks = 0;
        }
    }
    table_free(t);
}

void table_free(struct table *t)
{
    for (size_t i = 0; i < t->n; i++) free(t->cells[i]);
    free(t->cells);
    t->cells = NULL;
    t->n = 0;
}
