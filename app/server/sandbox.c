#include "sandbox.h"

#include <stdio.h>

#ifndef __linux__

int sandbox_enter(const struct sandbox *box, char *text, size_t cap)
{
    (void)box;
    snprintf(text, cap, "no sandbox: this system has neither seccomp nor Landlock");
    return 0;
}

#else

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* ---- seccomp: calls that this process never makes ---- */

#if defined(__x86_64__)
#define NATIVE_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define NATIVE_ARCH AUDIT_ARCH_AARCH64
#else
#define NATIVE_ARCH 0
#endif

/* An attack is the only way to get here: the process ends. */
static const uint32_t fatal_calls[] = {__NR_execve, __NR_execveat, __NR_process_vm_readv,
                                       __NR_process_vm_writev};

/* A library might try one of these for reasons of its own: they fail. No new socket means no way
 * out by any protocol; connections come from accept. io_uring and bpf would go around the filter.
 */
static const uint32_t failing_calls[] = {
    __NR_socket, __NR_connect, 425 /* io_uring_setup */, __NR_bpf, 438 /* pidfd_getfd */,
#ifndef __SANITIZE_ADDRESS__ /* its search for leaks is a tracer */
    __NR_ptrace,
#endif
};

enum {
    N_FATAL = sizeof fatal_calls / sizeof *fatal_calls,
    N_FAILING = sizeof failing_calls / sizeof *failing_calls,
    X32_BIT = 0x40000000, /* calls of x86-64's other numbering */
};

#define LOAD(field) \
    (struct sock_filter) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define RETURN(value)        (struct sock_filter) BPF_STMT(BPF_RET | BPF_K, value)
#define JUMP(op, k, yes, no) (struct sock_filter) BPF_JUMP(BPF_JMP | BPF_##op | BPF_K, k, yes, no)

static int deny_calls(void)
{
    struct sock_filter code[8 + 2 * (N_FATAL + N_FAILING)];
    unsigned short n = 0;
    code[n++] = LOAD(arch);
    code[n++] = JUMP(JEQ, NATIVE_ARCH, 1, 0);
    code[n++] = RETURN(SECCOMP_RET_KILL_PROCESS);
    code[n++] = LOAD(nr);
    code[n++] = JUMP(JGE, X32_BIT, 0, 1);
    code[n++] = RETURN(SECCOMP_RET_KILL_PROCESS);
    for (size_t i = 0; i < N_FATAL; i++) {
        code[n++] = JUMP(JEQ, fatal_calls[i], 0, 1);
        code[n++] = RETURN(SECCOMP_RET_KILL_PROCESS);
    }
    for (size_t i = 0; i < N_FAILING; i++) {
        code[n++] = JUMP(JEQ, failing_calls[i], 0, 1);
        code[n++] = RETURN(SECCOMP_RET_ERRNO | EPERM);
    }
    code[n++] = RETURN(SECCOMP_RET_ALLOW);
    struct sock_fprog program = {.len = n, .filter = code};
    long rc = syscall(__NR_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program);
    return rc ? -1 : 0; /* positive: a thread that could not follow */
}

/* ---- Landlock: files ---- */

enum { LANDLOCK_CREATE = 444, LANDLOCK_ADD_RULE = 445, LANDLOCK_RESTRICT = 446 };
enum { LANDLOCK_PATH_BENEATH = 1, LANDLOCK_VERSION_FLAG = 1 };

/* Rights of Landlock's first version, then what later ones added. */
#define RIGHT_EXECUTE        (UINT64_C(1) << 0)
#define RIGHT_WRITE          (UINT64_C(1) << 1)
#define RIGHT_READ           (UINT64_C(1) << 2)
#define RIGHT_LIST           (UINT64_C(1) << 3)
#define RIGHT_REMOVE         (UINT64_C(1) << 5)
#define RIGHT_MAKE_FILE      (UINT64_C(1) << 8)
#define RIGHTS_V1            ((UINT64_C(1) << 13) - 1)
#define RIGHT_TRUNCATE       (UINT64_C(1) << 14) /* version 3; 13, in 2, is always denied */

struct ruleset {
    uint64_t files;
};
struct path_rule {
    uint64_t rights;
    int32_t fd;
} __attribute__((packed));

/* The library and the C library look at these while they serve: memory that is left, cores, time.
 */
static const char *const always[] = {
    "/proc",        "/sys/devices/system", "/sys/fs/cgroup",      "/dev/null",
    "/dev/urandom", "/etc/localtime",      "/usr/share/zoneinfo",
};

static int allow(int rules, const char *path, uint64_t rights)
{
    struct stat st;
    struct path_rule rule = {.rights = rights, .fd = open(path, O_PATH | O_CLOEXEC)};
    if (rule.fd < 0) return 0; /* what can't be opened now is not needed later */
    int rc = fstat(rule.fd, &st);
    if (!rc && !S_ISDIR(st.st_mode))
        rule.rights &= RIGHT_READ | RIGHT_WRITE | RIGHT_TRUNCATE | RIGHT_EXECUTE;
    if (!rc) rc = (int)syscall(LANDLOCK_ADD_RULE, rules, LANDLOCK_PATH_BENEATH, &rule, 0);
    close(rule.fd);
    return rc;
}

/* A ruleset, or -1. *there: the kernel has Landlock. */
static int make_rules(const struct sandbox *box, bool *there)
{
    long version = syscall(LANDLOCK_CREATE, NULL, 0, LANDLOCK_VERSION_FLAG);
    *there = version > 0;
    if (!*there) return -1;
    struct ruleset set = {.files = RIGHTS_V1 | (version >= 3 ? RIGHT_TRUNCATE : 0)};
    int rules = (int)syscall(LANDLOCK_CREATE, &set, sizeof set, 0);
    if (rules < 0) return -1;
    uint64_t read = RIGHT_READ | RIGHT_LIST;
    uint64_t write = (read | RIGHT_WRITE | RIGHT_REMOVE | RIGHT_MAKE_FILE | RIGHT_TRUNCATE);
    int rc = 0;
    for (size_t i = 0; i < sizeof always / sizeof *always && !rc; i++)
        rc = allow(rules, always[i], read & set.files);
    for (size_t i = 0; i < box->n_read && !rc; i++)
        rc = allow(rules, box->read[i], read & set.files);
    for (size_t i = 0; i < box->n_write && !rc; i++)
        rc = allow(rules, box->write[i], write & set.files);
    if (!rc) return rules;
    close(rules);
    return -1;
}

/* Landlock binds the thread that asks, so every thread is made to ask, by a signal. */
static struct {
    atomic_int rules;
    atomic_uint n_done, n_failed;
} all_threads;

static void restrict_thread(int signal)
{
    int saved = errno;
    (void)signal;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
        syscall(LANDLOCK_RESTRICT, atomic_load(&all_threads.rules), 0))
        atomic_fetch_add(&all_threads.n_failed, 1);
    atomic_fetch_add(&all_threads.n_done, 1);
    errno = saved;
}

/* Signals every other thread and waits, two seconds at most; no thread is being made meanwhile.
 * Gives how many took no signal (a driver's may not), or -1. */
static int restrict_all(int rules)
{
    struct sigaction action = {.sa_handler = restrict_thread, .sa_flags = SA_RESTART}, before;
    int signal = SIGRTMAX - 1, self = (int)syscall(SYS_gettid);
    unsigned n = 1;
    DIR *tasks = opendir("/proc/self/task");
    if (!tasks) return -1;
    atomic_store(&all_threads.rules, rules);
    sigfillset(&action.sa_mask);
    sigaction(signal, &action, &before);
    for (struct dirent *d; (d = readdir(tasks));) {
        int id = atoi(d->d_name);
        if (id > 0 && id != self) n += syscall(SYS_tgkill, getpid(), id, signal) == 0;
    }
    closedir(tasks);
    restrict_thread(0);
    for (int i = 0; i < 2000 && atomic_load(&all_threads.n_done) < n; i++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    unsigned n_left = n - atomic_load(&all_threads.n_done);
    if (!n_left) sigaction(signal, &before, NULL); /* a late one would end the process */
    return atomic_load(&all_threads.n_failed) ? -1 : (int)n_left;
}

int sandbox_enter(const struct sandbox *box, char *text, size_t cap)
{
    bool there;
    int n_left = 0;
    *text = 0;
    if (!NATIVE_ARCH) {
        snprintf(text, cap, "no sandbox: no system calls are known for this processor");
        return 0;
    }
    int rules = make_rules(box, &there), rc = 0;
    if (!there)
        snprintf(text, cap, "this kernel has no Landlock: files are not shut off");
    else if (rules < 0 || (n_left = restrict_all(rules)) < 0) {
        snprintf(text, cap, "sandbox: Landlock failed: %s", strerror(errno));
        rc = -1;
    } else if (n_left)
        snprintf(text, cap, "files are not shut off for %d threads that take no signals", n_left);
    if (rules >= 0) close(rules);
    if (!rc && (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || deny_calls())) {
        snprintf(text, cap, "sandbox: seccomp failed: %s", strerror(errno));
        rc = -1;
    }
    return rc;
}

#endif
