#include "manifest.h"

#include <jansson.h>
#include <string.h>

/* Is it a text without NUL that begins so? Then what follows. */
static const char *after(const json_t *v, const char *prefix)
{
    const char *s = json_string_value(v);
    size_t n = strlen(prefix);
    return s && strlen(s) == json_string_length(v) && strncmp(s, prefix, n) == 0 ? s + n : NULL;
}

bool manifest_read(char digest[DIGEST_DIGITS + 1], const char *text, size_t n)
{
    json_t *manifest = json_loadb(text, n, JSON_REJECT_DUPLICATES, NULL);
    const json_t *layer;
    size_t i, n_found = 0;
    json_array_foreach(json_object_get(manifest, "layers"), i, layer)
    {
        const char *rest =
            after(json_object_get(layer, "mediaType"), "application/vnd.ollama.image.model");
        const char *name = after(json_object_get(layer, "digest"), "sha256:");
        if (!rest || *rest) continue;
        n_found++;
        if (!name || strlen(name) != DIGEST_DIGITS ||
            strspn(name, "0123456789abcdef") != DIGEST_DIGITS)
            n_found = 2; /* nothing that could be looked up */
        else
            memcpy(digest, name, DIGEST_DIGITS + 1);
        if (n_found > 1) break;
    }
    json_decref(manifest);
    return n_found == 1;
}
