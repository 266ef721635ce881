/* The parts of driver_metal.m: memory that stays wired (metal_residency.m), and kernels by name
 * (metal_library.m). */
#ifndef FLETCH_METAL_H
#define FLETCH_METAL_H

#include <pthread.h>

#include "base/base.h"
#include "base/err.h"

#ifdef __OBJC__
typedef id metal_object;
#else
typedef struct objc_object *metal_object;
#endif

/* ---- metal_residency.m ----
 *
 * Memory stays wired between steps from macOS 15 on, in sets. A set that changes is wired anew as a
 * whole, so memory is spread over several, each at most a twentieth of what the device recommends
 * in all, or a single buffer that is larger. Before macOS 15 there are none, and all of this does
 * nothing.
 *
 * After about a second in which the GPU does nothing macOS unwires them all the same, and the next
 * step waits for a quarter of a second. A thread asks for them twice a second, until nothing was
 * submitted for as long as the user said; then it sleeps until the next step. */

enum { RESIDENCY_SETS = 32 }; /* that a queue takes */

struct residency {
    metal_object device, queue; /* whoever opened it owns them; NULL: there are no sets */
    u64 most;                   /* bytes of a set */
    u32 n;
    struct resident_set {
        metal_object set;
        u64 bytes;
        bool changed; /* and not yet committed */
    } sets[RESIDENCY_SETS];
    pthread_mutex_t lock; /* for all of it, and for the sets themselves */
    pthread_cond_t woken;
    pthread_t thread;
    bool has_thread, asleep, ends;
    double keep, used; /* seconds; base_now() of the last step */
};

void residency_open(struct residency *r, metal_object device, metal_object queue);
/* Gives all memory back. Nothing that uses it may be on its way. */
void residency_close(struct residency *r);

/* A buffer of n bytes belongs to the set whose number is returned, and is wired when that is
 * committed. Removed, it is free when its last owner releases it. */
u32 residency_add(struct residency *r, metal_object buffer, u64 n);
void residency_remove(struct residency *r, u32 set, metal_object buffer, u64 n);
void residency_commit(struct residency *r);
/* Sets are asked for until that many seconds after the last step. */
int residency_keep(struct residency *r, double seconds, struct err *err);
void residency_used(struct residency *r); /* a step begins */

/* ---- metal_library.m ----
 *
 * The text of all kernels has a head, and a section for each file of them, which begins with a line
 * that names its kernels (tools/gpu-text). A section is compiled when the first of its kernels is
 * asked for. What Metal makes of a kernel for this device is kept in a binary archive: the next
 * process then only has to read it. Archives of other builds are removed when one is written. */

enum { LIBRARY_SECTIONS = 64 };

struct library {
    metal_object device; /* whoever opened it owns it */
    metal_object sections[LIBRARY_SECTIONS];
    metal_object archive; /* NULL: nothing is kept */
    char *path;           /* of its file */
    bool added;           /* something that is not in the file */
};

void library_open(struct library *l, metal_object device);
/* A folder where an archive may be kept; one that is there and damaged is made anew. */
void library_keep(struct library *l, const char *folder);
/* Writes the archive if it is more than the file. */
void library_close(struct library *l);
/* A kernel's MTLComputePipelineState, which the caller owns. When a text does not compile, all that
 * Metal says goes to stderr, and its beginning to err. */
int library_kernel(struct library *l, const char *name, metal_object *out, struct err *err);

#endif
