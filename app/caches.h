/* Models that other programs keep on this machine: Hugging Face's libraries (and llama.cpp since it
 * shares their cache), llama.cpp's own folder, and ollama. Nothing there is ever written. What lies
 * in these folders was written by others: names and manifests are checked before they are used. */
#ifndef APP_CACHES_H
#define APP_CACHES_H

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

#endif
