/* os.h on macOS. */
#ifdef __APPLE__

#include "base/os.h"

#include <limits.h>
#include <mach/mach.h>
#include <pthread/qos.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysctl.h>
#include <time.h>

/* Numbers there have four or eight bytes, the least significant first; 0: there is none. */
static u64 read_number(const char *name)
{
    u64 v = 0;
    size_t n = sizeof v;
    return sysctlbyname(name, &v, &n, NULL, 0) ? 0 : v;
}

/* ---- files ---- */

u64 os_written_ns(const struct stat *st)
{
    return (u64)st->st_mtimespec.tv_sec * 1000000000 + (u64)st->st_mtimespec.tv_nsec;
}

/* More than OPEN_MAX is refused, whatever the hard limit says (setrlimit(2)). */
void os_allow_files(u64 n)
{
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r) || r.rlim_cur >= n) return;
    r.rlim_cur = MIN(MIN(r.rlim_max, (rlim_t)n), OPEN_MAX);
    setrlimit(RLIMIT_NOFILE, &r);
}

/* ---- threads ---- */

void os_cond_init(pthread_cond_t *cond)
{
    pthread_cond_init(cond, NULL);
}

/* Waits by the clock on the wall are all there is, but for a time from now on. */
bool os_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, double until)
{
    double s = MAX(until - base_now(), 0);
    struct timespec t = {(time_t)s, (long)((s - (double)(time_t)s) * 1e9)};
    return pthread_cond_timedwait_relative_np(cond, lock, &t) == 0;
}

void os_thread_is_urgent(void)
{
    pthread_set_qos_class_self_np(QOS_CLASS_USER_INTERACTIVE, 0);
}

/* ---- the processor ---- */

u32 os_threads(void)
{
    return (u32)MAX(1, read_number("hw.logicalcpu"));
}

/* Level 0 is the fastest kind of core; processors of one kind have no levels. */
u32 os_cores(void)
{
    u64 n = read_number("hw.perflevel0.physicalcpu");
    return (u32)MAX(1, n ? n : read_number("hw.physicalcpu"));
}

u64 os_last_cache_bytes(void)
{
    static const char *const names[] = {"hw.perflevel0.l3cachesize", "hw.l3cachesize",
                                        "hw.perflevel0.l2cachesize", "hw.l2cachesize"};
    u64 n = 0;
    for (size_t i = 0; !n && i < ARRAY_LEN(names); i++) n = read_number(names[i]);
    return n;
}

void os_processor_name(char *out, size_t cap)
{
    if (sysctlbyname("machdep.cpu.brand_string", out, &cap, NULL, 0)) *out = 0;
}

bool os_processor_has(const char *feature)
{
    static const char *const names[][2] = {
        {"avx2", "hw.optional.avx2_0"},
        {"fma", "hw.optional.fma"},
        {"avx512f", "hw.optional.avx512f"},
        {"avx512_vnni", "hw.optional.avx512vnni"},
        {"avx512_bf16", "hw.optional.avx512bf16"},
        {"asimddp", "hw.optional.arm.FEAT_DotProd"},
        {"i8mm", "hw.optional.arm.FEAT_I8MM"},
    };
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (strcmp(feature, names[i][0]) == 0) return read_number(names[i][1]) == 1;
    return false;
}

bool os_allow_tiles(void)
{
    return false;
}

bool os_has_gpu(void)
{
    return true;
}

/* ---- memory ---- */

u64 os_memory_bytes(void)
{
    return read_number("hw.memsize");
}

/* Free pages, and those that were not used for long: files' are forgotten, others compressed. */
u64 os_memory_available(void)
{
    mach_port_t host = mach_host_self();
    vm_size_t page = 0;
    vm_statistics64_data_t s = {0};
    mach_msg_type_number_t n = HOST_VM_INFO64_COUNT;
    kern_return_t rc = host_page_size(host, &page);
    if (!rc) rc = host_statistics64(host, HOST_VM_INFO64, (host_info64_t)&s, &n);
    mach_port_deallocate(mach_task_self(), host);
    return rc ? 0 : ((u64)s.free_count + s.inactive_count) * page;
}

enum os_pressure os_memory_pressure(void)
{
    switch (read_number("kern.memorystatus_vm_pressure_level")) {
    case 1: return OS_PRESSURE_NORMAL;
    case 2: return OS_PRESSURE_WARNING;
    case 4: return OS_PRESSURE_HIGH;
    default: return OS_PRESSURE_UNKNOWN;
    }
}

u64 os_resident_bytes(void)
{
    struct mach_task_basic_info info;
    mach_msg_type_number_t n = MACH_TASK_BASIC_INFO_COUNT;
    return task_info(mach_task_self(), MACH_TASK_BASIC_INFO, (task_info_t)&info, &n)
               ? 0
               : info.resident_size;
}

u64 os_peak_resident_bytes(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) ? 0 : (u64)usage.ru_maxrss; /* bytes here */
}

void os_want_huge_pages(void *p, u64 n)
{
    (void)p;
    (void)n;
}

void os_huge_pages(char *out, size_t cap)
{
    (void)cap;
    *out = 0;
}

u32 os_memory_nodes(void)
{
    return 1;
}

void os_advice(char *out, size_t cap)
{
    u64 limit = read_number("iogpu.wired_limit_mb");
    char set[64] = "the system default";
    *out = 0;
    if (read_number("sysctl.proc_translated"))
        snprintf(
            out, cap,
            "this program was built for Intel processors and runs under Rosetta, without Metal and "
            "NEON, so it is slow; build it in a shell that was started with arch -arm64 zsh\n");
    if (limit) snprintf(set, sizeof set, "%llu MB", (unsigned long long)limit);
    if (read_number("hw.optional.arm64"))
        snprintf(out + strlen(out), cap - strlen(out),
                 "the GPU can use at most %s of memory; to run larger models, raise this limit "
                 "until the next restart with sudo sysctl iogpu.wired_limit_mb=MEGABYTES\n",
                 set);
}

#endif
