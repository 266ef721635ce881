#include "base/os.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static void a_file_was_written_when_its_times_say(void **state)
{
    (void)state;
    char path[] = "/tmp/fletch-os-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    struct timespec times[2] = {{1000, 0}, {1700000000, 123456000}}; /* read, written */
    struct stat st;
    assert_int_equal(futimens(fd, times), 0);
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(os_written_ns(&st), 1700000000123456000);
    close(fd);
    unlink(path);
}

struct scene {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    bool done;
};

static void *signal_it(void *arg)
{
    struct scene *s = arg;
    pthread_mutex_lock(&s->lock);
    s->done = true;
    pthread_cond_signal(&s->cond);
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static void waits_end_by_a_signal_or_by_the_clock(void **state)
{
    (void)state;
    struct scene s = {.done = false};
    pthread_t thread;
    pthread_mutex_init(&s.lock, NULL);
    os_cond_init(&s.cond);
    pthread_mutex_lock(&s.lock);
    double until = base_now() + 0.05;
    while (os_cond_wait(&s.cond, &s.lock, until)) {
    }
    double late = base_now() - until;
    assert_true(late > -0.001 && late < 60); /* not by a clock that began at another time */
    assert_false(os_cond_wait(&s.cond, &s.lock, until)); /* gone by already */
    until = base_now() + 600;
    assert_int_equal(pthread_create(&thread, NULL, signal_it, &s), 0);
    while (!s.done) assert_true(os_cond_wait(&s.cond, &s.lock, until));
    pthread_mutex_unlock(&s.lock);
    pthread_join(thread, NULL);
    pthread_cond_destroy(&s.cond);
    pthread_mutex_destroy(&s.lock);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_was_written_when_its_times_say),
        cmocka_unit_test(waits_end_by_a_signal_or_by_the_clock),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
