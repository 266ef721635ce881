/* Ctrl-C asks what runs to end, where a command lets it; what that means is the command's. */
#include "app.h"

volatile sig_atomic_t interrupted;

static void on_interrupt(int signal)
{
    (void)signal;
    interrupted = 1;
}

void interrupt_catch(int flags)
{
    struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = flags};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
}
