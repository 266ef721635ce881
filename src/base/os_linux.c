/* os.h on Linux. */
#ifdef __linux__

#include "base/os.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* ---- files ---- */

u64 os_written_ns(const struct stat *st)
{
    return (u64)st->st_mtim.tv_sec * 1000000000 + (u64)st->st_mtim.tv_nsec;
}

void os_allow_files(u64 n)
{
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r) || r.rlim_cur >= n) return;
    r.rlim_cur = MIN(r.rlim_max, (rlim_t)n);
    setrlimit(RLIMIT_NOFILE, &r);
}

/* ---- threads ---- */

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

void os_thread_is_urgent(void) {}

/* ---- the processor ---- */

/* The first of the hardware threads that share cpu's core. */
static unsigned first_sibling(unsigned cpu)
{
    char path[96];
    unsigned first = cpu;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%u/topology/thread_siblings_list", cpu);
    FILE *f = fopen(path, "re");
    if (f && fscanf(f, "%u", &first) != 1) first = cpu;
    if (f) fclose(f);
    return first;
}

static u32 count_processors(bool cores)
{
    cpu_set_t set;
    u32 n = 0;
    if (sched_getaffinity(0, sizeof set, &set) != 0) /* more than a cpu_set_t holds */
        return (u32)MAX(1, sysconf(_SC_NPROCESSORS_ONLN));
    for (unsigned c = 0; c < CPU_SETSIZE; c++) {
        if (!CPU_ISSET(c, &set)) continue;
        unsigned first = cores ? first_sibling(c) : c;
        n += first == c || first >= CPU_SETSIZE || !CPU_ISSET(first, &set);
    }
    return MAX(1, n);
}

u32 os_threads(void)
{
    return count_processors(false);
}

u32 os_cores(void)
{
    return count_processors(true);
}

u64 os_last_cache_bytes(void)
{
    long n = sysconf(_SC_LEVEL3_CACHE_SIZE);
    if (n <= 0) n = sysconf(_SC_LEVEL2_CACHE_SIZE);
    return n > 0 ? (u64)n : 0;
}

/* What follows the colon of the first line of a file that begins with `key`; false: none. */
static bool read_line(const char *path, const char *key, char *out, size_t cap)
{
    bool found = false;
    FILE *f = fopen(path, "re");
    *out = 0;
    while (f && !found && fgets(out, (int)cap, f)) {
        size_t n = strlen(key);
        char *value = out + n + strspn(out + MIN(n, strlen(out)), " \t:");
        found = strncmp(out, key, n) == 0;
        if (found) memmove(out, value, strlen(value) + 1);
    }
    if (f) fclose(f);
    out[found ? strcspn(out, "\n") : 0] = 0;
    return found;
}

void os_processor_name(char *out, size_t cap)
{
    char line[4096]; /* longer ones would come in several */
    read_line("/proc/cpuinfo", "model name", line, sizeof line);
    snprintf(out, cap, "%s", line);
}

bool os_processor_has(const char *feature)
{
#if defined __aarch64__
    if (strcmp(feature, "asimddp") == 0) return getauxval(AT_HWCAP) >> 20 & 1;
    if (strcmp(feature, "i8mm") == 0) return getauxval(AT_HWCAP2) >> 13 & 1;
    return false;
#else
    char line[4096];
    if (!read_line("/proc/cpuinfo", "flags", line, sizeof line)) return false;
    for (char *save, *w = strtok_r(line, " ", &save); w; w = strtok_r(NULL, " ", &save))
        if (strcmp(w, feature) == 0) return true;
    return false;
#endif
}

bool os_allow_tiles(void)
{
#if defined __x86_64__
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, TILE_DATA = 18 };
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, TILE_DATA) == 0;
#else
    return false;
#endif
}

bool os_has_gpu(void)
{
    return access("/dev/nvidiactl", F_OK) == 0;
}

/* ---- memory ---- */

u64 os_memory_bytes(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    return pages > 0 && size > 0 ? (u64)pages * (u64)size : 0;
}

/* A line "key: number kB". */
static u64 read_kilobytes(const char *path, const char *key)
{
    char line[256];
    u64 kb;
    return read_line(path, key, line, sizeof line) && sscanf(line, "%" SCNu64, &kb) == 1 ? kb * 1024
                                                                                         : 0;
}

u64 os_memory_available(void)
{
    return read_kilobytes("/proc/meminfo", "MemAvailable");
}

enum os_pressure os_memory_pressure(void)
{
    char line[256];
    double some, full;
    if (!read_line("/proc/pressure/memory", "some", line, sizeof line) ||
        sscanf(line, "avg10=%lf", &some) != 1 ||
        !read_line("/proc/pressure/memory", "full", line, sizeof line) ||
        sscanf(line, "avg10=%lf", &full) != 1)
        return OS_PRESSURE_UNKNOWN;
    return full >= 10 ? OS_PRESSURE_HIGH : some >= 10 ? OS_PRESSURE_WARNING : OS_PRESSURE_NORMAL;
}

u64 os_resident_bytes(void)
{
    return read_kilobytes("/proc/self/status", "VmRSS");
}

u64 os_peak_resident_bytes(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) ? 0 : (u64)usage.ru_maxrss * 1024;
}

void os_want_huge_pages(void *p, u64 n)
{
    madvise(p, n, MADV_HUGEPAGE);
}

void os_huge_pages(char *out, size_t cap)
{
    char line[128];
    read_line("/sys/kernel/mm/transparent_hugepage/enabled", "", line, sizeof line);
    char *chosen = strchr(line, '['), *end = chosen ? strchr(chosen, ']') : NULL;
    snprintf(out, cap, "%.*s", end ? (int)(end - chosen - 1) : 0, end ? chosen + 1 : "");
}

u32 os_memory_nodes(void)
{
    char path[64];
    u32 n = 0;
    do snprintf(path, sizeof path, "/sys/devices/system/node/node%u", n);
    while (access(path, F_OK) == 0 && ++n < 1024);
    return MAX(1, n);
}

/* Processors that this container may use at a time, 0: as many as there are. */
static double processor_quota(void)
{
    char line[128];
    double quota, period;
    if (!read_line("/sys/fs/cgroup/cpu.max", "", line, sizeof line)) return 0;
    return sscanf(line, "%lf %lf", &quota, &period) == 2 && period > 0 ? quota / period : 0;
}

void os_advice(char *out, size_t cap)
{
    char pages[32], governor[64];
    double quota = processor_quota();
    size_t n = 0;
    *out = 0;
    os_huge_pages(pages, sizeof pages);
    read_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "", governor,
              sizeof governor);
    if (strcmp(pages, "never") == 0)
        snprintf(out, cap,
                 "large pages are off, so reading weights is slower; to let programs ask for them: "
                 "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled\n");
    n = strlen(out);
    if (strcmp(governor, "powersave") == 0)
        snprintf(out + n, cap - n,
                 "the processor's frequency follows its load slowly (governor powersave); for "
                 "faster answers: sudo cpupower frequency-set -g performance\n");
    n = strlen(out);
    if (os_memory_nodes() > 1)
        snprintf(out + n, cap - n,
                 "memory belongs to %u groups of processors; to read from all of it at once, start "
                 "with: numactl --interleave=all\n",
                 os_memory_nodes());
    n = strlen(out);
    if (quota > 0 && quota < os_cores())
        snprintf(out + n, cap - n,
                 "this container may use %.1f processors at a time, but sees %u cores; set "
                 "--threads to %u\n",
                 quota, os_cores(), (u32)MAX(1, quota));
}

#endif
