/* os.h on macOS. */
#ifdef __APPLE__

#include "base/os.h"

#include <sys/stat.h>
#include <time.h>

u64 os_written_ns(const struct stat *st)
{
    return (u64)st->st_mtimespec.tv_sec * 1000000000 + (u64)st->st_mtimespec.tv_nsec;
}

void os_cond_init(pthread_cond_t *cond)
{
    pthread_cond_init(cond, NULL);
}

bool os_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, double until)
{
    double s = MAX(until - base_now(), 0);
    struct timespec t = {(time_t)s, (long)((s - (double)(time_t)s) * 1e9)};
    return pthread_cond_timedwait_relative_np(cond, lock, &t) == 0;
}

#endif
