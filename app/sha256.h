/* SHA-256, of OpenSSL, for files that were promised with one. */
#ifndef APP_SHA256_H
#define APP_SHA256_H

#include <stddef.h>

struct sha256 {
    struct evp_md_ctx_st *ctx; /* NULL: not begun */
};

/* Begins, again where it had begun. A machine that can't is out of memory: the program ends. */
void sha256_begin(struct sha256 *s);
void sha256_add(struct sha256 *s, const void *p, size_t n);
/* As 64 hexadecimal digits; then it has not begun. */
void sha256_end(struct sha256 *s, char hex[65]);
/* Instead of an end. */
void sha256_drop(struct sha256 *s);

#endif
