/* What differs between operating systems. Each has one file: os_linux.c, os_macos.c. */
#ifndef FLETCH_OS_H
#define FLETCH_OS_H

#include <pthread.h>

#include "base/base.h"

struct stat;

/* When a file was last written, in nanoseconds since 1970. */
u64 os_written_ns(const struct stat *st);

/* A condition variable for os_cond_wait. */
void os_cond_init(pthread_cond_t *cond);
/* Waits with `lock` held until the condition is signalled, or until base_now() is `until`; false
 * then. May return true without a signal, as pthread_cond_wait may. */
bool os_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, double until);

#endif
