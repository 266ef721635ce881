/* For tests: makes every change of a life, and sees that those which are not listed end the
 * program. */
#ifndef FLETCH_LIFE_REFUSED_H
#define FLETCH_LIFE_REFUSED_H

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"

/* change(from, to) brings something from one state to another in the way the program does it.
 * allowed: [n_allowed] pairs of states. */
static inline void life_check(u32 n_states, void (*change)(u32 from, u32 to),
                              const u32 (*allowed)[2], size_t n_allowed)
{
    for (u32 i = 0; i < n_states * n_states; i++) {
        u32 from = i / n_states, to = i % n_states;
        bool may = false;
        int status;
        for (size_t k = 0; k < n_allowed; k++) may |= allowed[k][0] == from && allowed[k][1] == to;
        fflush(NULL);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (!pid) {
            signal(SIGABRT, SIG_DFL); /* cmocka's handler would report it as its own */
            if (!may) (void)!freopen("/dev/null", "w", stderr);
            change(from, to);
            _exit(0);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        bool done = WIFEXITED(status) && WEXITSTATUS(status) == 0;
        bool refused = WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
        if (!(may ? done : refused)) fail_msg("from %u to %u: %s", from, to, may ? "no" : "yes");
    }
}

#endif
