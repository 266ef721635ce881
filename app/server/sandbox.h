/* What the process may still do once it serves: the system calls of its work alone, which start no
 * programs, look into no others and open no connections; and see no files but those of its work. A
 * fault that lets a client run code in here then leads nowhere. Linux has seccomp and Landlock for
 * that; on macOS it does nothing, and says so and what protects instead. */
#ifndef SERVER_SANDBOX_H
#define SERVER_SANDBOX_H

#include <stdbool.h>
#include <stddef.h>

struct sandbox {
    const char *const *read; /* files and folders; those that can't be opened are left out */
    size_t n_read;
    const char *const *write; /* may be read as well, and files in them made and removed */
    size_t n_write;
    bool
        has_driver; /* a GPU's, whose system calls nobody knows: only dangerous ones are shut off */
};

/* Closes the sandbox around all threads of the process, for good: listening sockets must be open
 * already. 0: text is empty, or one line about what this system lacks. -1: text says what failed,
 * and the process must not serve. */
int sandbox_enter(const struct sandbox *box, char *text, size_t cap);

#endif
