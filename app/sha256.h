/* SHA-256 (FIPS 180-4), for files that were promised with one. */
#ifndef APP_SHA256_H
#define APP_SHA256_H

#include <stddef.h>
#include <stdint.h>

struct sha256 {
    uint32_t h[8];
    uint64_t n; /* bytes so far */
    unsigned char block[64];
};

void sha256_begin(struct sha256 *s);
void sha256_add(struct sha256 *s, const void *p, size_t n);
/* As 64 hexadecimal digits. */
void sha256_end(struct sha256 *s, char hex[65]);

#endif
