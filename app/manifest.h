/* Manifests of ollama: which of its blobs holds a model's weights. */
#ifndef APP_MANIFEST_H
#define APP_MANIFEST_H

#include <stdbool.h>
#include <stddef.h>

enum { DIGEST_DIGITS = 64 };
/* The digest of the weights, as hexadecimal digits. False: there is none, or several files hold
 * them. Any bytes. */
bool manifest_read(char digest[DIGEST_DIGITS + 1], const char *text, size_t n);

#endif
