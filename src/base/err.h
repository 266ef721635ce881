/* Errors: a negative code from FLETCH_ERRORS plus one line of text, kept by whoever owns the
 * handle. A text says what is wrong, where, and what to do; bytes that came from a file or a
 * request go through err_quote so that they can't speak to the terminal. */
#ifndef FLETCH_ERR_H
#define FLETCH_ERR_H

#include "base/base.h"
#include "fletch.h"

struct err {
    int code;
    char text[512];
};

/* Sets code and text (err may be NULL) and returns the code, so `return err_set(...)` works. */
int err_set(struct err *err, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Puts "prefix: " in front of an existing text; returns its code. */
int err_prefix(struct err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

int err_nomem(struct err *err, const char *what);

/* Tells progress (which may be NULL) how far a work is: 0, or FLETCH_E_CANCELLED. */
int err_progress(struct err *err, fletch_progress progress, void *ctx, u64 done, u64 total);

/* A printable copy of s in 'quotes', escaped and shortened to fit a message. Use it as
 * err_set(e, c, "no tensor %s", QUOTE(name)). */
struct err_quoted {
    char text[96];
};
struct err_quoted err_quote(struct str s);
#define QUOTE(s) (err_quote(s).text)

/* A number of bytes for people, in the units of the reports: 1.5 GiB. */
struct err_bytes {
    char text[24];
};
struct err_bytes err_bytes(u64 n);
#define BYTES(n) (err_bytes(n).text)

#endif
