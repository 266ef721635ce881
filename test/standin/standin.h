/* The stand-ins for Metal and CUDA: what they saw, counted by themselves, and what goes wrong on
 * request. Tests read and set these; drivers know nothing of them. */
#ifndef STANDIN_H
#define STANDIN_H

#include "base/base.h"

enum standin_fault {
    STANDIN_FINE,
    STANDIN_NO_DEVICE,
    STANDIN_NO_DEFAULT, /* Metal: there is a device, but none that is the default */
    STANDIN_OLD_DEVICE, /* one that the kernels were not made for */
    STANDIN_OLD_SYSTEM, /* Metal: macOS 14, which has neither residency sets nor math modes */
    STANDIN_BAD_TEXT,   /* the kernels don't compile */
    STANDIN_NO_MEMORY,  /* no buffer is given any more */
    STANDIN_LOST,       /* the next thing to be run fails, and all after it */
};

/* Metal: what the GPU has of tensor operations. */
enum standin_tensor {
    STANDIN_TENSOR_NONE,
    STANDIN_TENSOR_FINE,
    STANDIN_TENSOR_TEXT,  /* their text does not compile */
    STANDIN_TENSOR_WRONG, /* they multiply wrongly */
};

struct standin {
    enum standin_fault fault;
    enum standin_tensor tensor;
    bool fuses; /* Metal: the self-test's first product and sum are rounded once */
    u64 alive;  /* objects that somebody owns */
    u64 buffers, pipelines, libraries;            /* made */
    u64 submissions, waits, dispatches, barriers; /* waits: those that had something to wait for */
    u64 captures;
    u64 archived;        /* pipelines that an archive had */
    u64 tensor_products; /* dispatches of k_panels_tensor */
    u64 binds;           /* buffers that were set, without those of which only the offset was */
    u64 bindings;        /* buffers that dispatches had */
    u64 residency_sets, residency_requests; /* made; each time that a set was asked for */
    u64 largest_set;                        /* bytes of one, at a commit */
    /* Metal: what the machine is like; 0: as it is without */
    u64 most_threads; /* a command buffer that runs more of them is stopped, as by macOS */
    u64 working_set;  /* recommended bytes */
    u32 cores;        /* of the GPU, in the registry of IOKit; 0: there is no such entry */
};

/* STANDIN_METAL, STANDIN_CUDA: where they are; NULL in a test that is linked without them, and on
 * macOS, which has none and whose linker refuses weak symbols that nobody defines. */
#ifdef __APPLE__
#define STANDIN_METAL ((struct standin *)NULL)
#define STANDIN_CUDA  ((struct standin *)NULL)
#else
extern struct standin standin_metal __attribute__((weak));
extern struct standin standin_cuda __attribute__((weak, visibility("default")));
#define STANDIN_METAL (&standin_metal)
#define STANDIN_CUDA  (&standin_cuda)
#endif

#endif
