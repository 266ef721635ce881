/* What differs between operating systems. Each has one file: os_linux.c, os_macos.c. */
#ifndef FLETCH_OS_H
#define FLETCH_OS_H

#include <pthread.h>

#include "base/base.h"

struct stat;

/* ---- files ---- */

/* When a file was last written, in nanoseconds since 1970. */
u64 os_written_ns(const struct stat *st);
/* Lets this process have n files open, or as many as the system allows. */
void os_allow_files(u64 n);

/* ---- threads ---- */

/* A condition variable for os_cond_wait. */
void os_cond_init(pthread_cond_t *cond);
/* Waits with `lock` held until the condition is signalled, or until base_now() is `until`; false
 * then. May return true without a signal, as pthread_cond_wait may. */
bool os_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, double until);
/* The calling thread computes tokens that somebody waits for: macOS runs it on performance cores.
 */
void os_thread_is_urgent(void);

/* ---- the processor ---- */

/* Hardware threads that this process may use; at least 1. */
u32 os_threads(void);
/* Cores among them that are worth a thread each: of macOS's the performance cores. At least 1. */
u32 os_cores(void);
/* Bytes of the last cache before memory, as one core sees it; 0: not known. */
u64 os_last_cache_bytes(void);
/* The processor's name; an empty string where the system does not tell. */
void os_processor_name(char *out, size_t cap);
/* Features of its instruction set, by the names of /proc/cpuinfo: avx2, amx_int8, asimddp, i8mm. */
bool os_processor_has(const char *feature);
/* Asks the system to keep the state of AMX's tiles for this process; false where it does not. */
bool os_allow_tiles(void);

/* Is there a GPU of a kind that fletch runs on, whether or not this build and its driver can? */
bool os_has_gpu(void);

/* ---- memory ---- */

enum os_pressure { OS_PRESSURE_UNKNOWN, OS_PRESSURE_NORMAL, OS_PRESSURE_WARNING, OS_PRESSURE_HIGH };

u64 os_memory_bytes(void); /* of the machine; 0: not known */
/* What programs can have before the system writes memory to disk; 0: not known. */
u64 os_memory_available(void);
/* Do programs wait for memory now? */
enum os_pressure os_memory_pressure(void);
/* Memory of this process, now and at most so far; 0: not known. */
u64 os_resident_bytes(void);
u64 os_peak_resident_bytes(void);
/* Asks for large pages. Does nothing where a program has no say in it. */
void os_want_huge_pages(void *p, u64 n);
/* Who gets them: always, madvise (who asks), never; an empty string where programs can't ask. */
void os_huge_pages(char *out, size_t cap);
/* Memories, each of which some of the processors are closer to than others; 1 if not known. */
u32 os_memory_nodes(void);

/* What the owner of this machine should know or can change, in lines; empty: nothing. */
void os_advice(char *out, size_t cap);

#endif
