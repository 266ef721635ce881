/* How launches lie over a device, where that changes no bit: groups, threads of a group, rows of
 * activations at a time. What is usual an emitter says where it launches, with what is possible
 * there; what `fletch tune` found to be faster on a device is a table of layouts, kept as text. A
 * layout that is not possible where it is asked for is never used, wherever it came from. */
#ifndef FLETCH_LAYOUT_H
#define FLETCH_LAYOUT_H

#include "base/buf.h"
#include "base/err.h"

/* What decides how a launch lies best. The kernel's name says the encoding. */
struct site {
    char kernel[32];
    u32 rows; /* of the list */
    u32 n_out, n_in, n_slices;
    u32 normed; /* its input is, by every group for itself */
};

bool site_is(const struct site *a, const struct site *b);

enum layout_axis {
    LAYOUT_THREADS, /* of a group */
    LAYOUT_GROUPS,  /* at most so many for every four units of the device; 0: one for each piece */
    LAYOUT_COLUMNS, /* rows of activations that meet a weight at once; 0: as there are */
    LAYOUT_OUTPUTS, /* weight rows of a simdgroup; 0: one after the other */
    LAYOUT_QUADS,   /* 16 bytes of each of these that a lane has at once; 0: as the kernel does */
    LAYOUT_AXES
};
struct layout {
    u32 v[LAYOUT_AXES];
};

/* What a launch may choose from: on each axis the usual value, and those of layout_value between
 * two bounds. */
struct choice {
    struct site site;
    struct layout usual, least, most;
};

/* The i-th value that is tried on an axis; 0 behind the last one. */
u32 layout_value(enum layout_axis axis, u32 i);
bool layout_possible(const struct choice *c, const struct layout *l);

struct layouts {
    u32 n, cap;
    struct laid_out {
        struct site site;
        struct layout layout;
    } * p;
};
void layouts_close(struct layouts *t); /* leaves an empty one */
/* The one for a site; NULL: none. t may be NULL. */
const struct layout *layouts_find(const struct layouts *t, const struct site *site);
/* Adds it, or takes the place of the one that was there. */
int layouts_set(struct layouts *t, const struct site *site, const struct layout *layout,
                struct err *err);
void layouts_remove(struct layouts *t, const struct site *site);

/* A table as text: for whom it is (driver, device, fingerprint of the kernels, each without line
 * breaks), a line for each layout, their number. */
struct layouts_for {
    const char *driver, *device, *kernels;
};
const char *layout_kernels(void); /* the fingerprint of those of this build */
enum { LAYOUTS_MAX = 4096, LAYOUTS_MAX_BYTES = 1 << 20 };
void layouts_write(const struct layouts *t, struct layouts_for who, struct buf *out);
/* Any bytes. An error says what is wrong with them and leaves an empty table; FLETCH_E_FIT: for
 * another build or device. */
int layouts_read(struct layouts *t, struct layouts_for who, struct str text, struct err *err);

#endif
