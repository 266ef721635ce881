/* Aligned columns for reports. Cells are put one after the other; a row is full when every column
 * has one. What is put is escaped, so names from files can't speak to the terminal. */
#ifndef APP_TABLE_H
#define APP_TABLE_H

#include <stdio.h>

struct table {
    const char *columns; /* one letter each: l or r for the side they lean to */
    char **cells;
    size_t n;
};

void table_put(struct table *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Prints the rows, indented, and empties the table. */
void table_print(struct table *t, FILE *out);
void table_free(struct table *t); /* empties it without printing */

#endif
