/* sandbox.h on Linux. */
#ifdef __linux__

#include "sandbox.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* ---- seccomp: system calls ---- */

#if defined(__x86_64__)
#define NATIVE_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define NATIVE_ARCH AUDIT_ARCH_AARCH64
#else
#define NATIVE_ARCH 0
#endif

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1 /* their search for leaks is a process that traces this one */
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

/* Numbers that every architecture shares, for headers that are older than the call. */
enum {
    NR_PIDFD_SEND_SIGNAL = 424, /* the first of them: see deny_others */
    NR_IO_URING_SETUP = 425,
    NR_IO_URING_ENTER = 426,
    NR_IO_URING_REGISTER = 427,
    NR_OPEN_TREE = 428,
    NR_MOVE_MOUNT = 429,
    NR_FSOPEN = 430,
    NR_FSCONFIG = 431,
    NR_FSMOUNT = 432,
    NR_PIDFD_OPEN = 434,
    NR_CLONE3 = 435,
    NR_CLOSE_RANGE = 436,
    NR_PIDFD_GETFD = 438,
    NR_FACCESSAT2 = 439,
    NR_PROCESS_MADVISE = 440,
    NR_EPOLL_PWAIT2 = 441,
    NR_MOUNT_SETATTR = 442,
    NR_LANDLOCK_RESTRICT = 446,
    NR_PROCESS_MRELEASE = 448,
    NR_FUTEX_WAITV = 449,
    NR_FCHMODAT2 = 452,
};

/* An attack is the only way to get here: the process ends. */
static const uint32_t fatal_calls[] = {__NR_execve, __NR_execveat, __NR_process_vm_readv,
                                       __NR_process_vm_writev};

/* All that a server without a GPU's driver does; anything else fails. Names of files are Landlock's
 * business. No new socket means no way out by any protocol; connections come from accept. */
static const uint32_t allowed_calls[] = {
    /* memory, also for compiled patterns of tokenizers, which are written and then run */
    __NR_mmap,
    __NR_munmap,
    __NR_mprotect,
    __NR_mremap,
    __NR_madvise,
    __NR_brk,
    __NR_mincore,
    __NR_membarrier,
    /* threads */
    __NR_futex,
    NR_FUTEX_WAITV,
    __NR_set_robust_list,
    __NR_get_robust_list,
    __NR_set_tid_address,
    __NR_rseq,
    __NR_sched_yield,
    __NR_sched_getaffinity,
    __NR_sched_setaffinity,
    __NR_sched_getparam,
    __NR_sched_getscheduler,
    __NR_gettid,
    __NR_getpid,
    __NR_getppid,
    __NR_getcpu,
    __NR_exit,
    __NR_exit_group,
    __NR_restart_syscall,
    /* signals to itself: tgkill and kill are looked at below */
    __NR_rt_sigaction,
    __NR_rt_sigprocmask,
    __NR_rt_sigreturn,
    __NR_rt_sigpending,
    __NR_rt_sigsuspend,
    __NR_rt_sigtimedwait,
    __NR_sigaltstack,
    __NR_signalfd4,
    /* time */
    __NR_clock_gettime,
    __NR_clock_getres,
    __NR_clock_nanosleep,
    __NR_nanosleep,
    __NR_gettimeofday,
    __NR_times,
    __NR_getitimer,
    __NR_setitimer,
    __NR_timerfd_create,
    __NR_timerfd_settime,
    __NR_timerfd_gettime,
    /* files */
    __NR_read,
    __NR_write,
    __NR_readv,
    __NR_writev,
    __NR_pread64,
    __NR_pwrite64,
    __NR_preadv,
    __NR_pwritev,
    __NR_openat,
    __NR_close,
    NR_CLOSE_RANGE,
    __NR_lseek,
    __NR_fstat,
    __NR_statx,
    __NR_newfstatat,
    __NR_statfs,
    __NR_fstatfs,
    __NR_faccessat,
    NR_FACCESSAT2,
    __NR_readlinkat,
    __NR_getdents64,
    __NR_getcwd,
    __NR_fcntl,
    __NR_dup,
    __NR_dup3,
    __NR_flock,
    __NR_fsync,
    __NR_fdatasync,
    __NR_ftruncate,
    __NR_fallocate,
    __NR_fadvise64,
    __NR_readahead,
    __NR_unlinkat,
    __NR_renameat2,
    __NR_mkdirat,
    __NR_utimensat,
    __NR_sendfile,
    /* events and connections */
    __NR_epoll_create1,
    __NR_epoll_ctl,
    __NR_epoll_pwait,
    NR_EPOLL_PWAIT2,
    __NR_ppoll,
    __NR_pselect6,
    __NR_eventfd2,
    __NR_pipe2,
    __NR_accept,
    __NR_accept4,
    __NR_shutdown,
    __NR_listen,
    __NR_sendto,
    __NR_recvfrom,
    __NR_sendmsg,
    __NR_recvmsg,
    __NR_sendmmsg,
    __NR_recvmmsg,
    __NR_setsockopt,
    __NR_getsockopt,
    __NR_getsockname,
    __NR_getpeername,
    /* the machine and itself */
    __NR_uname,
    __NR_sysinfo,
    __NR_getrusage,
    __NR_getrandom,
    __NR_getuid,
    __NR_geteuid,
    __NR_getgid,
    __NR_getegid,
    __NR_getpriority,
    __NR_capget,
    __NR_seccomp,
    NR_LANDLOCK_RESTRICT,
#ifdef __x86_64__ /* calls that newer architectures have in one form only */
    __NR_open,
    __NR_creat,
    __NR_stat,
    __NR_lstat,
    __NR_access,
    __NR_readlink,
    __NR_getdents,
    __NR_unlink,
    __NR_rmdir,
    __NR_rename,
    __NR_mkdir,
    __NR_dup2,
    __NR_pipe,
    __NR_poll,
    __NR_select,
    __NR_epoll_create,
    __NR_epoll_wait,
    __NR_eventfd,
    __NR_signalfd,
    __NR_utimes,
    __NR_futimesat,
    __NR_time,
    __NR_alarm,
    __NR_pause,
    __NR_getrlimit,
    __NR_arch_prctl,
#endif
#ifdef __NR_renameat
    __NR_renameat,
#endif
#if SANITIZED
    __NR_ptrace,
    __NR_clone,
    __NR_wait4,
    __NR_waitid,
    __NR_prctl,
    __NR_tkill,
    __NR_prlimit64,
    __NR_socketpair,
    __NR_personality,
    __NR_mlock,
    __NR_munlock,
    __NR_mlockall,
#endif
};

/* Beside a driver: what is dangerous, or goes around this filter. */
static const uint32_t denied_calls[] = {
    __NR_socket,
    __NR_connect,
    __NR_bind,
    NR_IO_URING_SETUP,
    NR_IO_URING_ENTER,
    NR_IO_URING_REGISTER,
    __NR_bpf,
    __NR_userfaultfd,
    __NR_perf_event_open,
    __NR_keyctl,
    __NR_add_key,
    __NR_request_key,
    __NR_unshare,
    __NR_setns,
    __NR_mount,
    __NR_umount2,
    __NR_pivot_root,
    __NR_chroot,
    NR_OPEN_TREE,
    NR_MOVE_MOUNT,
    NR_FSOPEN,
    NR_FSCONFIG,
    NR_FSMOUNT,
    NR_MOUNT_SETATTR,
    __NR_fchmod,
    __NR_fchmodat,
    NR_FCHMODAT2,
    __NR_fchown,
    __NR_fchownat,
    __NR_setxattr,
    __NR_lsetxattr,
    __NR_fsetxattr,
    __NR_removexattr,
    __NR_symlinkat,
    __NR_linkat,
    __NR_mknodat,
    __NR_name_to_handle_at,
    __NR_open_by_handle_at,
    NR_PIDFD_SEND_SIGNAL,
    NR_PIDFD_OPEN,
    NR_PIDFD_GETFD,
    NR_PROCESS_MADVISE,
    NR_PROCESS_MRELEASE,
    __NR_tkill,
    __NR_rt_sigqueueinfo,
    __NR_rt_tgsigqueueinfo,
    __NR_personality,
    __NR_setuid,
    __NR_setgid,
    __NR_setreuid,
    __NR_setregid,
    __NR_setresuid,
    __NR_setresgid,
    __NR_setgroups,
    __NR_setfsuid,
    __NR_setfsgid,
    __NR_capset,
    __NR_init_module,
    __NR_finit_module,
    __NR_delete_module,
    __NR_kexec_load,
    __NR_reboot,
    __NR_swapon,
    __NR_swapoff,
    __NR_acct,
    __NR_quotactl,
    __NR_sethostname,
    __NR_setdomainname,
    __NR_settimeofday,
    __NR_clock_settime,
    __NR_clock_adjtime,
    __NR_adjtimex,
    __NR_syslog,
    __NR_vhangup,
    __NR_kcmp,
    __NR_fanotify_init,
    __NR_lookup_dcookie,
#ifdef __x86_64__
    __NR_chmod,
    __NR_chown,
    __NR_lchown,
    __NR_symlink,
    __NR_link,
    __NR_mknod,
    __NR_fork,
    __NR_vfork,
    __NR_iopl,
    __NR_ioperm,
    __NR_modify_ldt,
    __NR_uselib,
    __NR_kexec_file_load,
#endif
#if !SANITIZED
    __NR_ptrace,
#endif
};

/* Calls that are allowed when an argument, as far as the mask goes, has a value. */
struct condition {
    uint32_t nr, arg, mask, value;
};

enum {
    OWN_PID = UINT32_MAX, /* instead of a value */
    N_FATAL = sizeof fatal_calls / sizeof *fatal_calls,
    N_ALLOWED = sizeof allowed_calls / sizeof *allowed_calls,
    N_DENIED = sizeof denied_calls / sizeof *denied_calls,
    X32_BIT = 0x40000000, /* calls of x86-64's other numbering */
    MAX_CODE = 1024,
};

static const struct condition conditions[] = {
    {__NR_tgkill, 0, UINT32_MAX, OWN_PID},
    {__NR_kill, 0, UINT32_MAX, OWN_PID},
    /* threads, neither processes nor namespaces: CLONE_NEW*, and CLONE_PARENT */
    {__NR_clone, 0, 0x7e028000 | CLONE_THREAD, CLONE_THREAD},
    {__NR_prctl, 0, UINT32_MAX, PR_SET_NAME},
    {__NR_prctl, 0, UINT32_MAX, PR_GET_NAME},
    {__NR_prctl, 0, UINT32_MAX, PR_GET_DUMPABLE},
    {__NR_prctl, 0, UINT32_MAX, PR_SET_NO_NEW_PRIVS},
    {__NR_prctl, 0, UINT32_MAX, 0x53564d41}, /* PR_SET_VMA: names for memory */
    {__NR_ioctl, 1, UINT32_MAX, FIONREAD},
    {__NR_ioctl, 1, UINT32_MAX, FIONBIO},
    {__NR_ioctl, 1, UINT32_MAX, TCGETS},
    {__NR_ioctl, 1, UINT32_MAX, TIOCGWINSZ},
};
enum { N_CONDITIONS = sizeof conditions / sizeof *conditions };

#define LOAD(field) \
    (struct sock_filter) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define LOAD_ARG(i, half)                  \
    (struct sock_filter)                   \
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, \
                 (uint32_t)(offsetof(struct seccomp_data, args) + 8 * (i) + 4 * (half)))
#define AND(mask)            (struct sock_filter) BPF_STMT(BPF_ALU | BPF_AND | BPF_K, mask)
#define RETURN(value)        (struct sock_filter) BPF_STMT(BPF_RET | BPF_K, value)
#define JUMP(op, k, yes, no) (struct sock_filter) BPF_JUMP(BPF_JMP | BPF_##op | BPF_K, k, yes, no)

struct filter {
    struct sock_filter code[MAX_CODE];
    unsigned short n;
};

static void put(struct filter *f, struct sock_filter instruction)
{
    if (f->n < MAX_CODE) f->code[f->n] = instruction;
    f->n++;
}

static void answer(struct filter *f, const uint32_t *calls, size_t n, uint32_t how)
{
    for (size_t i = 0; i < n; i++) {
        put(f, JUMP(JEQ, calls[i], 0, 1));
        put(f, RETURN(how));
    }
}

/* Both architectures are little-endian: the low half of an argument comes first. */
static void allow_if(struct filter *f, struct condition c)
{
    if (c.value == OWN_PID) c.value = (uint32_t)getpid();
    put(f, JUMP(JEQ, c.nr, 0, 5));
    put(f, LOAD_ARG(c.arg, 0));
    put(f, AND(c.mask));
    put(f, JUMP(JEQ, c.value, 0, 1));
    put(f, RETURN(SECCOMP_RET_ALLOW));
    put(f, LOAD(nr));
}

/* Limits can be read: the place for new ones is NULL. */
static void allow_reading_limits(struct filter *f)
{
    put(f, JUMP(JEQ, __NR_prlimit64, 0, 6));
    put(f, LOAD_ARG(2, 0));
    put(f, JUMP(JEQ, 0, 0, 3));
    put(f, LOAD_ARG(2, 1));
    put(f, JUMP(JEQ, 0, 0, 1));
    put(f, RETURN(SECCOMP_RET_ALLOW));
    put(f, LOAD(nr));
}

/* What is newer than the numbers that architectures share fails as on an older kernel, so that the
 * C library takes another way; so does clone3, whose flags a filter can't see. */
static void deny_others(struct filter *f)
{
    put(f, JUMP(JGE, NR_PIDFD_SEND_SIGNAL, 0, 1));
    put(f, RETURN(SECCOMP_RET_ERRNO | ENOSYS));
    put(f, RETURN(SECCOMP_RET_ERRNO | EPERM));
}

static int restrict_calls(bool has_driver)
{
    static const uint32_t clone3 = NR_CLONE3, looked_at[] = {__NR_tgkill, __NR_kill, __NR_clone};
    struct filter f = {.n = 0};
    put(&f, LOAD(arch));
    put(&f, JUMP(JEQ, NATIVE_ARCH, 1, 0));
    put(&f, RETURN(SECCOMP_RET_KILL_PROCESS));
    put(&f, LOAD(nr));
    put(&f, JUMP(JGE, X32_BIT, 0, 1));
    put(&f, RETURN(SECCOMP_RET_KILL_PROCESS));
    answer(&f, fatal_calls, N_FATAL, SECCOMP_RET_KILL_PROCESS);
    if (!has_driver) answer(&f, allowed_calls, N_ALLOWED, SECCOMP_RET_ALLOW);
    for (size_t i = 0; i < N_CONDITIONS; i++) allow_if(&f, conditions[i]);
    if (has_driver) {
        /* the last one is how sanitizers make the process that searches for leaks */
        answer(&f, looked_at, SANITIZED ? 2 : 3, SECCOMP_RET_ERRNO | EPERM);
        answer(&f, &clone3, 1, SECCOMP_RET_ERRNO | ENOSYS);
        answer(&f, denied_calls, N_DENIED, SECCOMP_RET_ERRNO | EPERM);
        put(&f, RETURN(SECCOMP_RET_ALLOW));
    } else {
        allow_reading_limits(&f);
        deny_others(&f);
    }
    if (f.n > MAX_CODE) {
        errno = E2BIG;
        return -1;
    }
    struct sock_fprog program = {.len = f.n, .filter = f.code};
    long rc = syscall(__NR_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program);
    return rc ? -1 : 0; /* positive: a thread that could not follow */
}

/* ---- Landlock: files ---- */

enum { LANDLOCK_CREATE = 444, LANDLOCK_ADD_RULE = 445, LANDLOCK_RESTRICT = 446 };
enum { LANDLOCK_PATH_BENEATH = 1, LANDLOCK_VERSION_FLAG = 1 };

/* Rights of Landlock's first version, then what later ones added. */
#define RIGHT_EXECUTE   (UINT64_C(1) << 0)
#define RIGHT_WRITE     (UINT64_C(1) << 1)
#define RIGHT_READ      (UINT64_C(1) << 2)
#define RIGHT_LIST      (UINT64_C(1) << 3)
#define RIGHT_REMOVE    (UINT64_C(1) << 5)
#define RIGHT_MAKE_FILE (UINT64_C(1) << 8)
#define RIGHTS_V1       ((UINT64_C(1) << 13) - 1)
#define RIGHT_TRUNCATE  (UINT64_C(1) << 14) /* version 3; 13, in 2, is always denied */

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
    "/proc/self",   "/proc/meminfo",       "/proc/cpuinfo",       "/proc/stat",
    "/proc/sys/vm", "/sys/devices/system", "/sys/fs/cgroup",      "/dev/null",
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
    if (box->has_driver && !rc) rc = allow(rules, "/proc", read & set.files);
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
        snprintf(text, cap, "no sandbox: it is not supported on this processor");
        return 0;
    }
    int rules = make_rules(box, &there), rc = 0;
    if (!there)
        snprintf(text, cap,
                 "sandbox: this kernel has no Landlock, so access to files is not restricted");
    else if (rules < 0 || (n_left = restrict_all(rules)) < 0) {
        snprintf(text, cap, "sandbox: Landlock failed: %s", strerror(errno));
        rc = -1;
    } else if (n_left)
        snprintf(text, cap,
                 "sandbox: access to files is not restricted for %d threads that block signals",
                 n_left);
    if (rules >= 0) close(rules);
    if (!rc && (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || restrict_calls(box->has_driver))) {
        snprintf(text, cap, "sandbox: seccomp failed: %s", strerror(errno));
        rc = -1;
    }
    return rc;
}

#endif
