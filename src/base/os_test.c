#include "base/os.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
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

static void more_files_may_be_open_up_to_what_is_allowed(void **state)
{
    (void)state;
    struct rlimit before, now;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    struct rlimit few = {MIN(before.rlim_cur, 64), before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    os_allow_files(32);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &now), 0);
    assert_true(now.rlim_cur == few.rlim_cur); /* never fewer */
    os_allow_files(UINT64_MAX);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &now), 0);
    assert_true(now.rlim_cur >= before.rlim_cur && now.rlim_max == before.rlim_max);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

static void the_processor_is_told(void **state)
{
    (void)state;
    char name[128], tiny[4];
    memset(name, 'x', sizeof name);
    os_processor_name(name, sizeof name);
    os_processor_name(tiny, sizeof tiny);
    assert_non_null(memchr(name, 0, sizeof name));
    assert_null(strchr(name, '\n'));
    assert_non_null(memchr(tiny, 0, sizeof tiny));
    assert_true(os_cores() >= 1 && os_cores() <= os_threads());
    assert_true(os_last_cache_bytes() < (u64)1 << 40);
    assert_false(os_processor_has("no such feature"));
    assert_false(os_processor_has(""));
#if defined __x86_64__
    assert_int_equal(os_processor_has("avx2"), __builtin_cpu_supports("avx2") != 0);
#endif
}

static void memory_is_told(void **state)
{
    (void)state;
    enum { N = 64 << 20 };
    u64 all = os_memory_bytes(), before = os_resident_bytes();
    assert_true(all > N && os_memory_available() > 0 && os_memory_available() <= all);
    assert_in_range(os_memory_pressure(), OS_PRESSURE_UNKNOWN, OS_PRESSURE_HIGH);
    volatile char *p = malloc(N);
    assert_non_null(p);
    os_want_huge_pages((void *)(uintptr_t)p, 0);
    for (size_t i = 0; i < N; i += 4096) p[i] = 1;
    u64 now = os_resident_bytes(), peak = os_peak_resident_bytes();
    free((void *)(uintptr_t)p);
    assert_true(now >= N && now < all); /* in bytes, not in pages and not in kilobytes */
    assert_true(before < now && peak >= N && peak < all);
}

static void advice_is_lines(void **state)
{
    (void)state;
    char text[1024], pages[32];
    os_huge_pages(pages, sizeof pages);
    assert_true(!*pages || strcmp(pages, "always") == 0 || strcmp(pages, "madvise") == 0 ||
                strcmp(pages, "never") == 0);
    assert_in_range(os_memory_nodes(), 1, 1024);
    os_advice(text, sizeof text);
    assert_true(!*text || text[strlen(text) - 1] == '\n');
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_was_written_when_its_times_say),
        cmocka_unit_test(waits_end_by_a_signal_or_by_the_clock),
        cmocka_unit_test(more_files_may_be_open_up_to_what_is_allowed),
        cmocka_unit_test(the_processor_is_told),
        cmocka_unit_test(memory_is_told),
        cmocka_unit_test(advice_is_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
