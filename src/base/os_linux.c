/* os.h on Linux. */
#ifdef __linux__

#include "base/os.h"

#include <sys/stat.h>
#include <time.h>

u64 os_written_ns(const struct stat *st)
{
    return (u64)st->st_mtim.tv_sec * 1000000000 + (u64)st->st_mtim.tv_nsec;
}

void os_cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attr);
    pthread_condattr_destroy(&attr);
}

bool os_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, double until)
{
    struct timespec t = {(time_t)until, (long)((until - (double)(time_t)until) * 1e9)};
    return pthread_cond_timedwait(cond, lock, &t) == 0;
}

#endif
