/* What a GPU driver is: memory, kernels by name, and lists of commands that are made once at load
 * and submitted as one. gpu.c is written over this alone; driver_cuda.c, driver_metal.m and
 * driver_emu.cpp are the three that exist. A driver knows nothing of models, programs or steps. */
#ifndef FLETCH_DRIVER_H
#define FLETCH_DRIVER_H

#include "core/step.h"

struct gpu;      /* an opened device, each driver has its own */
struct gpu_buf;  /* device memory */
struct gpu_list; /* recorded commands */

enum gpu_memory {
    GPU_DEVICE,   /* kernels only; write and read copy */
    GPU_UPLOAD,   /* the host writes it through gpu_driver.map, a copy command sends it */
    GPU_READBACK, /* a copy command fills it, the host reads it after wait */
};

struct gpu_info {
    char name[128];
    u64 memory, memory_free; /* bytes this process may use, and those left */
    u64 max_buffer;          /* largest single buffer */
    u32 api;                 /* 90 for sm_90, 7 for Apple7 */
    struct device_caps caps;
};

/* What the driver itself did, since open. */
struct gpu_counters {
    u64 submissions, waits, dispatches, barriers, copies, fills;
    u64 command_buffers;       /* Metal: a submission is one or several */
    double gpu_us, longest_us; /* of those that were waited for: all of them, the longest */
    u64 buffers_made, kernels_made, lists_made;
    u64 bytes_allocated, bytes_read; /* read: by kernels, where the driver can count it */
    u64 tg_bytes;                    /* threadgroup memory of all groups, likewise */
};

enum {
    GPU_MAX_BUFS = 24,
    GPU_MAX_ARGS = 512,
    /* Metal: arguments of a command; a multiple of 256, which every device takes as an offset */
    GPU_ARGS_PITCH = (GPU_MAX_ARGS + 255) / 256 * 256,
};
#define GPU_OPS_PER_BYTE 20.0 /* f32 operations that a GPU does while it reads a byte, about */

/* Memory that a kernel is given: its buffer from `offset` on. */
struct gpu_ref {
    struct gpu_buf *buf;
    u64 offset;
};

enum gpu_command_kind { GPU_LAUNCH, GPU_COPY };

struct gpu_command {
    enum gpu_command_kind kind;
    bool after; /* needs what earlier commands of the list wrote; else it may overlap them */
    /* An estimate in f32 operations, or GPU_OPS_PER_BYTE for each byte read where that is more;
     * 0 in lists that are never cut. */
    double work;
    /* GPU_LAUNCH */
    u32 kernel; /* from gpu_driver.kernel */
    u32 groups[3], threads;
    u32 tg_bytes; /* threadgroup memory beside the kernel's own arrays; native kernels only */
    u32 n_bufs;   /* at bindings 0 .. n_bufs - 1, the arguments at n_bufs */
    struct gpu_ref bufs[GPU_MAX_BUFS];
    u32 n_args; /* bytes */
    u8 args[GPU_MAX_ARGS];
    /* GPU_COPY */
    struct gpu_ref dst, src;
    u64 n_bytes;
};

struct gpu_driver {
    const char *name;
    struct device_caps least, most; /* what all and the best of its devices can do */
    bool self_test; /* the system compiles the kernels: an executor checks gpu/arithmetic.h first */
    bool unified;   /* host memory is taken from what gpu_info.memory_free says */
    u64 lists_base; /* bytes of it that the first list takes, whatever is in it */
    /* And those of a list of n commands: as the driver allocates them, or an upper estimate. */
    u64 (*list_bytes)(u32 n);
    /* Why it can't be used here, in a sentence for doctor; NULL when it can. */
    const char *(*absent)(void);
    int (*open)(struct gpu **out, u32 device, struct err *err);
    void (*close)(struct gpu *g);
    void (*info)(struct gpu *g, struct gpu_info *out);
    /* Takes the device for launches whose groups wait for each other, one on every unit, until
     * close. False: another in this process has it. Two such launches could each hold half of the
     * units and wait forever. NULL: there are none. */
    bool (*reside)(struct gpu *g);
    void (*counters)(const struct gpu *g, struct gpu_counters *out);
    /* Bytes that this process has on the device, all of its models together, and how many it had
     * better not exceed; NULL: not known. */
    void (*memory)(const struct gpu *g, u64 *allocated, u64 *recommended);
    /* Cleared to zero. FLETCH_E_NOMEM when the device has no room. */
    int (*alloc)(struct gpu *g, struct gpu_buf **out, u64 n, enum gpu_memory where,
                 struct err *err);
    void (*free)(struct gpu *g, struct gpu_buf *b);
    void *(*map)(struct gpu_buf *b); /* GPU_UPLOAD and GPU_READBACK: where the host sees it */
    /* At load and for verify, never inside a step. */
    int (*write)(struct gpu *g, struct gpu_buf *b, u64 offset, const void *src, u64 n,
                 struct err *err);
    int (*read)(struct gpu *g, struct gpu_buf *b, u64 offset, void *dst, u64 n, struct err *err);
    /* A folder where the driver may keep what it compiled, for the next process; NULL: it keeps
     * nothing. */
    void (*cache)(struct gpu *g, const char *folder);
    /* Memory stays ready for that long after the last list; NULL: it does so by itself. */
    int (*keep_alive)(struct gpu *g, double seconds, struct err *err);
    /* A kernel by its name; once per name at load. */
    int (*kernel)(struct gpu *g, const char *name, u32 *id, struct err *err);
    int (*record)(struct gpu *g, struct gpu_list **out, const struct gpu_command *c, u32 n,
                  struct err *err);
    void (*drop)(struct gpu *g, struct gpu_list *list);
    /* Queues the whole list behind what was queued before. */
    int (*submit)(struct gpu *g, struct gpu_list *list, struct err *err);
    /* Until the oldest list that was not waited for is done. */
    int (*wait)(struct gpu *g, struct err *err);
    /* Microseconds of each command, measured one by one (bench --profile); NULL: can't. */
    int (*profile)(struct gpu *g, struct gpu_list *list, double *us, struct err *err);
    /* Writes what follows to a file for the vendor's tools, until called with NULL; NULL: can't. */
    int (*capture)(struct gpu *g, const char *path, struct err *err);
};

extern const struct gpu_driver driver_cuda, driver_emu;
bool gpu_has_cuda(void);                           /* Are its kernels in this build? */
extern const struct gpu_driver driver_emu_checked; /* slow; looks at every access of a kernel */
extern const struct gpu_driver driver_emu_metal;   /* the same, with lists as Metal has them */
/* Always there on macOS. Elsewhere its address is NULL where no test has linked a stand-in. */
#ifdef __APPLE__
extern const struct gpu_driver driver_metal;
#else
extern const struct gpu_driver driver_metal __attribute__((weak));
#endif
/* Its list_bytes, for plans that are made elsewhere: the launches as it keeps them, and a buffer of
 * GPU_ARGS_PITCH bytes of arguments for each. Command buffers are made anew for each step. */
u64 gpu_metal_list_bytes(u32 n);
#define METAL_CAPS                        \
    {                                     \
        .unstaged = true, .attn_heads = 2 \
    } /* and what all of its devices can do */
/* The end of the part of a list that begins at `begin`: as many commands as do at most `most` work,
 * and at least one. */
u32 gpu_list_part(const struct gpu_command *c, u32 begin, u32 n, double most);

#endif
