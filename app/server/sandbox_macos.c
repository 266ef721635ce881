/* sandbox.h on macOS, whose sandbox_init() is deprecated and whose profiles Apple does not
 * document: one that nobody here can try would promise more than it keeps. */
#ifdef __APPLE__

#include "sandbox.h"

#include <stdio.h>

int sandbox_enter(const struct sandbox *box, char *text, size_t cap)
{
    (void)box;
    snprintf(
        text, cap,
        "no sandbox on macOS: only API keys, limits, input validation and the permissions of this "
        "account protect this Mac; to serve people you do not trust, use a separate account");
    return 0;
}

#endif
