/* Models that other programs keep on this machine: Hugging Face's libraries (and llama.cpp since it
 * shares their cache), llama.cpp's own folder, and ollama. Nothing there is ever written. What lies
 * in these folders was written by others: names and manifests are checked before they are used. */
#ifndef APP_CACHES_H
#define APP_CACHES_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

struct cached {
    const char *program; /* whose it is: a constant */
    const char *repo;    /* OWNER/REPO[@REVISION], or a whole name */
    const char *file;    /* of the repository, in order of names; "": the name is whole */
    const char *path;
    struct stat st;
};

/* One call for each file of a model. */
void caches_each(void (*each)(void *ctx, const struct cached *c), void *ctx);

/* The digest of the weights in a manifest of ollama: 64 hexadecimal digits. False: it has none. */
enum { DIGEST_DIGITS = 64 };
bool caches_read_manifest(char digest[DIGEST_DIGITS + 1], const char *text, size_t n);

#endif
