/* What an executor is: it takes a net's weights and programs, and runs steps. All state that
 * outlives a step (cache blocks, recurrent state) is its own; the caller names blocks and slots. */
#ifndef FLETCH_EXEC_H
#define FLETCH_EXEC_H

#include "core/group.h"
#include "core/step.h"

struct exec_class;
struct gpu_driver;
struct exec; /* each executor has its own; all begin with `const struct exec_class *class` */

/* What a device was told to do, since open. */
struct exec_counters {
    u64 submissions, waits, launches, copies;
    u64 buffers_made, kernels_made, lists_made;
    u64 bytes_allocated, bytes_read; /* read: by kernels, where it can be counted */
    u64 barriers;
    u64 tg_bytes;              /* threadgroup memory of all groups, where it can be counted */
    u64 command_buffers;       /* where submissions may be several */
    double gpu_us, longest_us; /* of command buffers: all of them, the longest */
};

/* What an executor keeps between steps: a cache block, or the recurrent state of a slot. */
enum exec_part { PART_BLOCK, PART_STATE };

struct exec_class {
    const char *name;
    const char *isa;                 /* of the kernels, where executors of one name differ by it */
    const struct gpu_driver *driver; /* of those with a device (gpu/driver.h) */
    const struct rule *rules; /* [n_rules] what it runs as one, in order of preference (group.h) */
    u32 n_rules;
    const u64
        *kernels; /* [OP_COUNT] what its kernel of a recorded op knows (op.h); 0: it has none */
    enum cache_type kv; /* the KV type it prefers */
    bool int8;          /* the profile it prefers: see struct profile */
    enum bf16_use bf16;
    bool has_f32_act;     /* it can do without that rounding too */
    bool has_bf16;        /* it knows the one to bf16, */
    bool has_bf16_floats; /* of floats alone too, */
    bool int8_experts;    /* and leaves routed experts out of it */
    u32 max_rows;         /* largest T it takes */
    u32 chunk;            /* T that suits it, where that is not ENGINE_MAX_ROWS; 0: it is */
    bool keeps_weights;   /* reads weight data where the file has it, at every step */
    bool queues;          /* submit comes back before the step is done */
    int (*open)(struct exec **out, const struct exec_class *class, const struct net *net,
                const struct exec_limits *limits, u32 n_threads, struct err *err);
    void (*close)(struct exec *x);
    /* Places net->weights[id], repacking if it wants; its data is there during this call. */
    int (*weight)(struct exec *x, u32 id, struct err *err);
    /* Makes a program ready; *handle names it in submit and read. */
    int (*load)(struct exec *x, const struct program *p, u32 *handle, struct err *err);
    /* Does now what the first step of a shape would do: somebody may wait for that one. Steps may
     * be on their way. NULL: nothing. */
    int (*prepare)(struct exec *x, u32 handle, struct step_shape shape, struct err *err);
    /* Queues one prepared step, which may be filled anew then. Two may be on their way. */
    int (*submit)(struct exec *x, u32 handle, const struct step *s, struct err *err);
    /* Until the oldest step that was not waited for is done. */
    int (*wait)(struct exec *x, struct err *err);
    /* Rows of a buffer as the last step left it: the outputs, or, when group_end stopped the step
     * early, any buffer that was alive there. While another is on its way only the sampled ids can
     * be read, of the one that was waited for last. */
    int (*read)(struct exec *x, u32 handle, struct operand what, u32 row, u32 n_rows, float *dst,
                struct err *err);
    /* The other way, for verify: what the next op is to find there. */
    int (*write)(struct exec *x, u32 handle, struct operand what, u32 row, u32 n_rows,
                 const float *src, struct err *err);
    /* A part's bytes (exec_part_bytes), layer by layer: to dst, or from src when dst is NULL.
     * Between steps only. */
    int (*move)(struct exec *x, enum exec_part part, u32 index, u8 *dst, const u8 *src,
                struct err *err);
    /* Bytes of a weight once placed; NULL: as in the file. */
    u64 (*weight_bytes)(const struct weight *w);
    /* Bytes that load, and steps after it, will take for a program (for the plan). */
    u64 (*bytes)(const struct exec_class *class, const struct program *p,
                 const struct exec_limits *limits);
    /* Bytes that open will take beside weights, caches and states; NULL: bytes counts them. */
    u64 (*open_bytes)(const struct exec_class *class, const struct net *net,
                      const struct exec_limits *limits);

    /* Of executors with a device; NULL for the others. */
    /* Where it places things; all memory there is where that can't be opened. */
    struct exec_device (*look)(const struct exec_class *class, u32 device);
    /* Kernels that a step of n_rows rows launches, for each group and in all; needs no device.
     * n_units: of one where groups can wait for each other, on every unit; 0: of any. */
    int (*launches)(const struct exec_class *class, const struct program *p,
                    const struct exec_limits *limits, u32 n_rows, u32 n_units, u32 *by_group,
                    u32 *total, struct err *err);
    /* Bytes beside the program's buffers that each group takes in a step full of prompts' rows. */
    int (*scratch)(const struct exec_class *class, const struct program *p,
                   const struct exec_limits *limits, u64 *by_group, struct err *err);
    void (*counters)(const struct exec *x, struct exec_counters *out);
    /* What the process has on the device, and had better not exceed; false: not known. */
    bool (*memory)(const struct exec *x, u64 *allocated, u64 *recommended);
    /* Runs a step and times what each group takes by itself ([n_groups], microseconds). */
    int (*profile)(struct exec *x, u32 handle, const struct step *s, double *us, struct err *err);
};

struct exec {
    const struct exec_class *class;
    char warning[512]; /* what open found wrong with the device, for the user; "": nothing */
};

/* Does the class have a kernel for every recorded op of p, with every parameter that it has? Else
 * the error names the first that it lacks. load begins with this. */
int exec_check(const struct exec_class *class, const struct program *p, struct err *err);

/* One token of a cache layer: keys then values, or the latent columns then rope's. Each part is
 * rounded to its type, blocks running along the columns. */
struct kv_row {
    struct {
        enum qtype type;
        u32 width;
        u64 at; /* bytes from the row's start */
    } part[2];
    u64 bytes;
    u32 rotated; /* columns of a key head that are multiplied with a Hadamard matrix before they
                    are rounded, and after, so that none is much larger than others; 0: not */
};
struct kv_row exec_kv_row(const struct net *net, u32 layer);
/* The profile's cache types suit all layers. */
int exec_kv_check(const struct net *net, struct err *err);

/* Cache bytes per token over all layers, and state bytes per slot. */
u64 exec_kv_bytes(const struct net *net);
u64 exec_state_bytes(const struct net *net);
u64 exec_part_bytes(const struct net *net, const struct exec_limits *limits, enum exec_part part);

#endif
