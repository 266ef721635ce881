/* Each behaviour in a child process of its own, because the sandbox is for good. */
#include "sandbox.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#ifdef __linux__
#include <sys/ptrace.h>
#include <sys/syscall.h>

#ifdef __SANITIZE_ADDRESS__
#define SANITIZED_TEST true
#else
#define SANITIZED_TEST false
#endif

/* A model folder, a log folder, a secret beside them, a listener, and a client that connects. */
struct scene {
    char root[64], model[96], inside[128], logs[96], secret[96], notice[160];
    int listener, client;
    struct sockaddr_in at;
    bool has_driver;
};

static void write_file(const char *path)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs("x", f);
    assert_int_equal(fclose(f), 0);
}

static int set_up(void **state)
{
    struct scene *s = calloc(1, sizeof *s);
    socklen_t n = sizeof s->at;
    snprintf(s->root, sizeof s->root, "/tmp/fletch-sandbox-XXXXXX");
    assert_non_null(mkdtemp(s->root));
    snprintf(s->model, sizeof s->model, "%s/model", s->root);
    snprintf(s->logs, sizeof s->logs, "%s/logs", s->root);
    snprintf(s->secret, sizeof s->secret, "%s/secret", s->root);
    snprintf(s->inside, sizeof s->inside, "%s/weights", s->model);
    assert_int_equal(mkdir(s->model, 0700) || mkdir(s->logs, 0700), 0);
    write_file(s->inside);
    write_file(s->secret);
    s->at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    s->listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(s->listener, (struct sockaddr *)&s->at, sizeof s->at), 0);
    assert_int_equal(listen(s->listener, 8), 0);
    assert_int_equal(getsockname(s->listener, (struct sockaddr *)&s->at, &n), 0);
    s->client = socket(AF_INET, SOCK_STREAM, 0);
    *state = s;
    return 0;
}

static int tear_down(void **state)
{
    struct scene *s = *state;
    char path[160];
    snprintf(path, sizeof path, "%s/log", s->logs);
    unlink(path);
    unlink(s->inside);
    unlink(s->secret);
    rmdir(s->model);
    rmdir(s->logs);
    rmdir(s->root);
    close(s->listener);
    close(s->client);
    free(s);
    return 0;
}

static bool enter(struct scene *s)
{
    const char *const read[] = {s->model, "/nowhere/at/all"}, *const write[] = {s->logs};
    struct sandbox box = {read, 2, write, 1, s->has_driver};
    return sandbox_enter(&box, s->notice, sizeof s->notice) == 0;
}

/* Runs act inside the sandbox; gives the child's status as waitpid does. Exit 9: not entered. */
static int status_of(struct scene *s, int (*act)(struct scene *s))
{
    pid_t child = fork();
    if (child == 0) _exit(enter(s) ? act(s) : 9);
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void expect_ok(void **state, int (*act)(struct scene *s))
{
    int status = status_of(*state, act);
    if (status) fail_msg("exit %d, signal %d", WEXITSTATUS(status), WTERMSIG(status));
}

static bool has_landlock(struct scene *s)
{
    pid_t child = fork();
    if (child == 0) _exit(enter(s) && !*s->notice ? 0 : 1);
    int status = 0;
    waitpid(child, &status, 0);
    return status == 0;
}

static int act_exec(struct scene *s)
{
    (void)s;
    execl("/bin/true", "true", (char *)NULL);
    return 1;
}

static void test_exec_kills(void **state)
{
    int status = status_of(*state, act_exec);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGSYS);
}

/* With a socket that was there before, and with a new one. */
static int act_connect(struct scene *s)
{
    if (connect(s->client, (struct sockaddr *)&s->at, sizeof s->at) == 0 || errno != EPERM)
        return 1;
    return socket(AF_INET, SOCK_DGRAM, 0) < 0 && errno == EPERM ? 0 : 2;
}

static void test_connect_fails(void **state)
{
    expect_ok(state, act_connect);
}

static int act_trace(struct scene *s)
{
    (void)s;
    return ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0 && errno == EPERM ? 0 : 1;
}

static void test_ptrace_fails(void **state)
{
#ifdef __SANITIZE_ADDRESS__
    (void)act_trace;
    (void)state;
    skip(); /* the sanitizer's own search for leaks needs it */
#else
    expect_ok(state, act_trace);
#endif
}

static int act_serve(struct scene *s)
{
    char c;
    int conn = accept(s->listener, NULL, NULL);
    return conn >= 0 && read(conn, &c, 1) == 1 && write(conn, &c, 1) == 1 ? 0 : 1;
}

static void test_accept_still_works(void **state)
{
    struct scene *s = *state;
    char c = 'x';
    assert_int_equal(connect(s->client, (struct sockaddr *)&s->at, sizeof s->at), 0);
    assert_int_equal(write(s->client, &c, 1), 1);
    expect_ok(state, act_serve);
    assert_int_equal(read(s->client, &c, 1), 1);
}

static int act_files(struct scene *s)
{
    char log[160];
    snprintf(log, sizeof log, "%s/log", s->logs);
    if (open(s->inside, O_RDONLY) < 0) return 1; /* loading on demand */
    if (open("/proc/meminfo", O_RDONLY) < 0) return 2;
    if (open(log, O_CREAT | O_WRONLY | O_TRUNC, 0600) < 0) return 3;
    if (open(s->inside, O_WRONLY) >= 0 || errno != EACCES) return 4;
    if (open(s->secret, O_RDONLY) >= 0 || errno != EACCES) return 5;
    return 0;
}

static void test_only_the_folders_of_its_work_are_there(void **state)
{
    if (!has_landlock(*state)) skip();
    expect_ok(state, act_files);
}

/* ---- system calls ---- */

static bool fails(long nr, long a, long b, long c)
{
    return syscall(nr, a, b, c, 0L, 0L) < 0 && (errno == EPERM || errno == ENOSYS);
}

/* Each with arguments that would work, or would fail otherwise without the filter. Gives the number
 * of the first that does not, so that a failure tells which. */
static int act_dangerous(struct scene *s)
{
    const struct {
        long nr, a, b, c;
    } calls[] = {
        {__NR_fchmod, open(s->inside, O_RDONLY), 0600, 0},
        {__NR_fchmodat, AT_FDCWD, (long)s->inside, 0600},
        {__NR_fchown, open(s->inside, O_RDONLY), getuid(), getgid()},
        {__NR_kill, getppid(), 0, 0},
        {__NR_kill, -1, 0, 0},
        {__NR_kill, 0, 0, 0},
        {__NR_tgkill, getppid(), getppid(), 0},
        {__NR_unshare, CLONE_FS, 0, 0},
        {__NR_setns, 0, 0, 0},
        {__NR_perf_event_open, 0, 0, -1},
        {__NR_keyctl, 0, -3, 0},
        {__NR_bpf, 0, 0, 0},
        {__NR_mount, 0, 0, 0},
        {__NR_chroot, (long)s->root, 0, 0},
        {__NR_userfaultfd, 0, 0, 0},
        {425 /* io_uring_setup */, 1, 0, 0},
        {434 /* pidfd_open */, getpid(), 0, 0},
        {__NR_symlinkat, (long)s->root, AT_FDCWD, (long)"there"},
        {__NR_setuid, getuid(), 0, 0},
        {__NR_open_by_handle_at, -1, 0, 0},
        {435 /* clone3 */, 0, 0, 0},
        {__NR_ptrace, 0, 0, 0},
        {__NR_personality, 0xffffffff, 0, 0},
        {__NR_clone, SIGCHLD, 0, 0}, /* a process */
    };
    int n_tried = (int)(sizeof calls / sizeof *calls);
#ifdef __SANITIZE_ADDRESS__
    n_tried -= 3; /* its search for leaks needs the last ones */
#endif
    for (int i = 0; i < n_tried; i++)
        if (!fails(calls[i].nr, calls[i].a, calls[i].b, calls[i].c)) return 20 + i;
    return 0;
}

/* What an allow-list alone shuts off: calls that are harmless, or that nobody knows yet. */
static int act_unknown(struct scene *s)
{
    (void)s;
    struct rlimit none = {0, 0};
    if (!fails(1000, 0, 0, 0)) return 20;
    if (!fails(__NR_mlockall, 0, 0, 0) && !SANITIZED_TEST) return 21;
    if (setrlimit(RLIMIT_CORE, &none) == 0 && !SANITIZED_TEST) return 22;
    if (getrlimit(RLIMIT_CORE, &none)) return 23;
    return 0;
}

static void *touch(void *arg)
{
    *(int *)arg = 1;
    return NULL;
}

static volatile sig_atomic_t n_signals;

static void count_signal(int number)
{
    (void)number;
    n_signals++;
}

/* What a server does: threads, signals of its own, memory that is written and then run, files of
 * the cache folder. */
static int act_usual(struct scene *s)
{
    pthread_t thread;
    int done = 0;
    char from[160], to[160];
    if (pthread_create(&thread, NULL, touch, &done) || pthread_join(thread, NULL) || !done)
        return 1;
    signal(SIGUSR1, count_signal);
    if (raise(SIGUSR1) || kill(getpid(), SIGUSR1) || n_signals != 2) return 2;
    void *code =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (code == MAP_FAILED || mprotect(code, 4096, PROT_READ | PROT_EXEC)) return 3;
    snprintf(from, sizeof from, "%s/log.new", s->logs);
    snprintf(to, sizeof to, "%s/log", s->logs);
    int fd = open(from, O_CREAT | O_EXCL | O_RDWR, 0600);
    if (fd < 0 || flock(fd, LOCK_EX) || write(fd, "x", 1) != 1 || fsync(fd)) return 4;
    if (rename(from, to) || utimensat(AT_FDCWD, to, NULL, 0)) return 5;
    struct stat st;
    if (stat(to, &st) || access(to, R_OK)) return 6;
    time_t t = time(NULL);
    struct tm tm;
    if (!localtime_r(&t, &tm) || sysconf(_SC_NPROCESSORS_ONLN) < 1) return 7;
    struct pollfd p = {.fd = s->listener, .events = POLLIN};
    return poll(&p, 1, 0) >= 0 && usleep(1) == 0 ? 0 : 8;
}

static void test_calls(void **state)
{
    struct scene *s = *state;
    for (int driver = 0; driver < 2; driver++) {
        s->has_driver = driver;
        expect_ok(state, act_dangerous);
        expect_ok(state, act_usual);
    }
    s->has_driver = false;
    expect_ok(state, act_unknown);
}

/* ---- threads that were there before ---- */

struct worker {
    struct scene *scene;
    int go[2], result;
};

static void *worker_run(void *arg)
{
    struct worker *w = arg;
    char c;
    while (read(w->go[0], &c, 1) != 1) {
    }
    w->result = act_connect(w->scene);
    if (!w->result && open(w->scene->secret, O_RDONLY) >= 0) w->result = 3;
    if (!w->result && open(w->scene->inside, O_RDONLY) < 0) w->result = 4;
    return NULL;
}

static int thread_obeys(struct scene *s)
{
    struct worker w = {.scene = s};
    pthread_t thread;
    if (pipe(w.go) || pthread_create(&thread, NULL, worker_run, &w)) return 8;
    if (!enter(s)) return 9;
    if (write(w.go[1], "x", 1) != 1) return 8;
    pthread_join(thread, NULL);
    return w.result;
}

static void test_threads_that_were_there_obey_too(void **state)
{
    if (!has_landlock(*state)) skip();
    pid_t child = fork();
    if (child == 0) _exit(thread_obeys(*state));
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_exec_kills, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_connect_fails, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_ptrace_fails, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_calls, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_accept_still_works, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_only_the_folders_of_its_work_are_there, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_threads_that_were_there_obey_too, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

static void test_says_that_there_is_none(void **state)
{
    char text[160];
    (void)state;
    assert_int_equal(sandbox_enter(&(struct sandbox){0}, text, sizeof text), 0);
    assert_true(*text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_says_that_there_is_none)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif
