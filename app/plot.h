/* Pages with plots as inline SVG: nothing is fetched, nothing runs; light and dark by the reader's
 * setting. */
#ifndef APP_PLOT_H
#define APP_PLOT_H

#include <stdbool.h>
#include <stdio.h>

enum {
    WIDTH = 460,
    HEIGHT = 280,
    LEFT = 60,
    RIGHT = 24,
    TOP = 24,
    BOTTOM = 40,
    N_COLOURS = 6
}; /* what has no colour of its own has the one after them */

struct scale {
    double min, max;
    bool log;
};

struct plot {
    FILE *out;
    struct scale x, y;
    int n_keys;
    struct plot_key {
        int colour;
        char name[96];
    } keys[N_COLOURS + 1];
};

/* The beginning of a page, with its style. */
void plot_page(FILE *out, const char *title);
/* Text that is no markup. */
void plot_text(FILE *out, const char *s);

/* Axes from 1-2-5 steps or decades; then lines and points by whoever plots, at these places. */
void plot_begin(struct plot *p, FILE *out, struct scale x, struct scale y, const char *title,
                const char *x_name, const char *y_name);
double plot_x(const struct plot *p, double v);
double plot_y(const struct plot *p, double v);
/* Names what has a colour, once. On one page a colour means the same in all plots. */
void plot_key(struct plot *p, int colour, const char *name);
void plot_end(struct plot *p);

#endif
