/* Any bytes as a manifest of ollama: what it gives is a digest, which becomes the name of a file.
 */
#include <string.h>

#include "../../app/manifest.h"
#include "base/base.h"

int LLVMFuzzerTestOneInput(const u8 *data, size_t n);

int LLVMFuzzerTestOneInput(const u8 *data, size_t n)
{
    char digest[DIGEST_DIGITS + 1];
    if (!manifest_read(digest, (const char *)data, n)) return 0;
    CHECK(strlen(digest) == DIGEST_DIGITS);
    for (const char *p = digest; *p; p++)
        CHECK((*p >= '0' && *p <= '9') || (*p >= 'a' && *p <= 'f'));
    return 0;
}
