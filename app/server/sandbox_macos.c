/* sandbox.h on macOS, whose sandbox_init() is deprecated and whose profiles Apple does not
 * document: one that nobody here can try would promise more than it keeps. */
#ifdef __APPLE__

#include "sandbox.h"

#include <stdio.h>

int sandbox_enter(const struct sandbox *box, char *text, size_t cap)
{
    (void)box;
    snprintf(text, cap,
             "no sandbox on macOS: API keys, limits, input validation and the rights of this "
             "account protect this Mac; to serve strangers, run fletch in an account of its own");
    return 0;
}

#endif
