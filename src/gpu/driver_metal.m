/* The Metal driver: driver.h on Apple's GPUs (macOS 13 and later, Apple7 and later). Objective-C
 * without automatic reference counting, so that the same file runs on Linux against the stand-in
 * framework under test/standin.
 *
 * A list is encoded anew for every submission, into a command buffer with one concurrent encoder:
 * what it needs (pipelines, buffers, arguments in one buffer of the list's own) is there since
 * record. Hazard tracking is off: barriers stand where a command says `after`, and a fence puts
 * each encoder behind the one before it. Copies are a kernel, so that no second encoder is needed.
 *
 * macOS stops work that keeps the display waiting for seconds, so a list that takes long is cut
 * into several command buffers (PART_SECONDS), and a launch that takes long by itself into several
 * of a share of its groups each: groups see nothing of each other. Where the GPU has nothing to do,
 * the first fifth of a long list goes ahead, and it starts while the rest is encoded.
 */
#import <Foundation/Foundation.h>
#import <IOKit/IOKitLib.h>
#import <Metal/Metal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/args.h"
#include "gpu/driver.h"
#include "gpu/kernels/blit.h"
#include "gpu/metal.h"
#include "quant/quant.h"

enum {
    MAX_KERNELS = 512,
    MAX_QUEUED = 8,
    MAX_PARTS = 128,     /* command buffers of a list */
    EARLY_COMMANDS = 64, /* lists of fewer are encoded before the GPU could have started */
    USUAL_CORES = 8,     /* an M1's, where the system does not say how many there are */
    GRID_INDEX = 30,     /* simt.h */
};
/* Of an estimated list: how long a part takes, and operations that a core does in a second, a third
 * of what the published figures of M1 to M5 promise. */
static const double PART_SECONDS = 0.1, CORE_RATE = 100e9;
#define OPTIONS (MTLResourceStorageModeShared | MTLResourceHazardTrackingModeUntracked)

struct gpu_buf {
    id<MTLBuffer> mtl;
    u64 n;
    enum gpu_memory where;
    u32 set; /* of metal.h */
};

/* Which of a launch's groups a command has, as kernels get it (gpu_grid in simt.h). */
struct grid {
    u32 first[3], groups[3]; /* groups of the whole launch; 0: it is whole */
};

struct gpu_list {
    id<MTLBuffer> args; /* GPU_ARGS_PITCH bytes for each command */
    double part;        /* work of a command buffer */
    u32 n, set;         /* of metal.h, for args */
    u32 n_given;        /* commands before long launches were cut */
    struct share {
        u32 command; /* of those given */
        struct grid grid;
    } * shares; /* [n] */
    struct gpu_command commands[];
};

struct gpu {
    id<MTLDevice> device;
    id<MTLCommandQueue> queue;
    id<MTLFence> fence;
    struct residency residency;
    struct library library;
    bool capturing, tensor; /* tensor: device_caps.tensor */
    u32 n_kernels, blit;
    id<MTLComputePipelineState> kernels[MAX_KERNELS];
    u32 n_cores; /* 0: not known */
    u32 n_queued;
    struct queued {
        u32 n;
        id<MTLCommandBuffer> parts[MAX_PARTS];
    } queued[MAX_QUEUED];
    struct gpu_counters did;
};

static const char *why(NSError *e)
{
    return e ? [[e localizedDescription] UTF8String] : "no reason given";
}

/* The variable is Apple's: with it, macOS lets long work of the GPU finish. It is read when a
 * device is opened. Without a session at the display (ssh, tmux) there may be no default device. */
static id<MTLDevice> open_device(void)
{
    setenv("AGX_RELAX_CDM_CTXSTORE_TIMEOUT", "1", 0);
    id<MTLDevice> d = MTLCreateSystemDefaultDevice();
    if (d) return d;
    NSArray *all = MTLCopyAllDevices();
    d = [[all firstObject] retain];
    [all release];
    return d;
}

/* Metal does not tell; 0: the registry does not either. */
static u32 count_cores(void)
{
    u32 n = 0;
    io_service_t gpu =
        IOServiceGetMatchingService(MACH_PORT_NULL, IOServiceMatching("AGXAccelerator"));
    if (!gpu) return 0;
    id found = (id)IORegistryEntryCreateCFProperty(gpu, (CFStringRef) @"gpu-core-count", NULL, 0);
    if ([found isKindOfClass:[NSNumber class]]) n = [found unsignedIntValue];
    [found release];
    IOObjectRelease(gpu);
    return n;
}

static const char *metal_absent(void)
{
    @autoreleasepool {
        id<MTLDevice> d = open_device();
        bool fits = d && [d supportsFamily:MTLGPUFamilyApple7];
        const char *text = !d      ? "there is no Metal device"
                           : !fits ? "the GPU is older than Apple's M1 (family Apple7)"
                                   : NULL;
        [d release];
        return text;
    }
}

static void metal_close(struct gpu *g);

static int metal_kernel(struct gpu *g, const char *name, u32 *number, struct err *err);

static int first_command(struct gpu *g, struct err *err);

static bool has_tensor(struct gpu *g);

static int metal_open(struct gpu **out, u32 device, struct err *err)
{
    *out = NULL;
    const char *absent = metal_absent();
    if (absent) return err_set(err, FLETCH_E_BACKEND, "Metal: %s", absent);
    if (device != 0) return err_set(err, FLETCH_E_ARG, "Metal has device 0 only");
    struct gpu *g = calloc(1, sizeof *g);
    if (!g) return err_nomem(err, "Metal device");
    int rc = 0;
    @autoreleasepool {
        g->device = open_device();
        g->n_cores = count_cores();
        /* so many that making one never waits for the GPU */
        g->queue = [g->device newCommandQueueWithMaxCommandBufferCount:MAX_QUEUED * MAX_PARTS];
        g->fence = [g->device newFence];
        g->queue.label = @"fletch";
        library_open(&g->library, g->device);
        if (!g->queue || !g->fence)
            rc = err_set(err, FLETCH_E_BACKEND, "Metal did not create a command queue");
        if (rc == 0) rc = metal_kernel(g, "k_blit", &g->blit, err);
        if (rc == 0) {
            residency_open(&g->residency, g->device, g->queue);
            rc = first_command(g, err);
        }
        g->tensor = rc == 0 && has_tensor(g);
        g->did = (struct gpu_counters){0};
    }
    if (rc < 0) {
        metal_close(g);
        return rc;
    }
    *out = g;
    return 0;
}

static int metal_capture(struct gpu *g, const char *path, struct err *err)
{
    int rc = 0;
    @autoreleasepool {
        MTLCaptureManager *m = [MTLCaptureManager sharedCaptureManager];
        if (g->capturing) [m stopCapture];
        g->capturing = false;
        if (path && ![m supportsDestination:MTLCaptureDestinationGPUTraceDocument]) {
            rc = err_set(err, FLETCH_E_BACKEND,
                         "captures are off: set MTL_CAPTURE_ENABLED=1 in the environment");
        } else if (path) {
            MTLCaptureDescriptor *d = [[[MTLCaptureDescriptor alloc] init] autorelease];
            NSError *e = nil;
            d.captureObject = g->device;
            d.destination = MTLCaptureDestinationGPUTraceDocument;
            d.outputURL = [NSURL fileURLWithPath:[NSString stringWithUTF8String:path]];
            g->capturing = [m startCaptureWithDescriptor:d error:&e];
            if (!g->capturing)
                rc = err_set(err, FLETCH_E_BACKEND, "cannot capture to %s: %s", QUOTE(str_of(path)),
                             why(e));
        }
    }
    return rc;
}

static int finish_oldest(struct gpu *g, struct err *err);

static void metal_close(struct gpu *g)
{
    if (!g) return;
    @autoreleasepool {
        while (g->n_queued > 0) finish_oldest(g, NULL);
        metal_capture(g, NULL, NULL);
        for (u32 i = 0; i < g->n_kernels; i++) [g->kernels[i] release];
        library_close(&g->library);
        residency_close(&g->residency);
        [g->fence release];
        [g->queue release];
        [g->device release];
    }
    free(g);
}

static void metal_memory(const struct gpu *g, u64 *allocated, u64 *recommended)
{
    @autoreleasepool {
        *allocated = [g->device currentAllocatedSize];
        *recommended = [g->device recommendedMaxWorkingSetSize];
    }
}

static void metal_info(struct gpu *g, struct gpu_info *out)
{
    *out = (struct gpu_info){.caps = METAL_CAPS};
    @autoreleasepool {
        u64 used;
        metal_memory(g, &used, &out->memory);
        out->memory_free = used < out->memory ? out->memory - used : 0;
        out->max_buffer = [g->device maxBufferLength];
        out->caps.buffer = g->residency.most / 2; /* no set begins before the others are 2/3 full */
        out->caps.tensor = g->tensor;
        out->caps.n_units = g->n_cores;
        for (out->api = 7; [g->device supportsFamily:(MTLGPUFamily)(1001 + out->api)];) out->api++;
        strncpy(out->name, [[g->device name] UTF8String], sizeof out->name - 1);
    }
}

static void metal_counters(const struct gpu *g, struct gpu_counters *out)
{
    *out = g->did;
}

/* Whole elements, whatever their type, so that one lies behind every offset inside. */
static u64 length_of(u64 n)
{
    return ROUND_UP(MAX(n, 1), 16);
}

static int alloc_buf(struct gpu *g, struct gpu_buf **out, u64 n, enum gpu_memory where,
                     struct err *err)
{
    *out = NULL;
    u64 most = [g->device maxBufferLength], room = [g->device recommendedMaxWorkingSetSize];
    u64 used = [g->device currentAllocatedSize], size = length_of(n);
    if (size > most || used > room || size > room - used)
        return err_set(err, FLETCH_E_NOMEM,
                       "cannot allocate %.1f GB more of GPU memory: %.1f of %.1f GB are in use, "
                       "and a buffer can have at most %.1f GB",
                       (double)size / 1e9, (double)used / 1e9, (double)room / 1e9,
                       (double)most / 1e9);
    struct gpu_buf *b = calloc(1, sizeof *b);
    if (!b) return err_nomem(err, "Metal buffer");
    b->mtl = [g->device newBufferWithLength:size options:OPTIONS];
    if (!b->mtl) {
        free(b);
        return err_set(err, FLETCH_E_NOMEM, "Metal did not create a buffer of %.1f GB",
                       (double)size / 1e9);
    }
    memset([b->mtl contents], 0, size);
    b->set = residency_add(&g->residency, b->mtl, size);
    b->n = n;
    b->where = where;
    g->did.bytes_allocated += n;
    g->did.buffers_made++;
    *out = b;
    return 0;
}

/* What Metal makes on the way is released with the pool of each function, not of the caller's. */
static int metal_alloc(struct gpu *g, struct gpu_buf **out, u64 n, enum gpu_memory where,
                       struct err *err)
{
    @autoreleasepool {
        return alloc_buf(g, out, n, where, err);
    }
}

static void metal_free(struct gpu *g, struct gpu_buf *b)
{
    if (!b) return;
    @autoreleasepool {
        g->did.bytes_allocated -= b->n;
        residency_remove(&g->residency, b->set, b->mtl, length_of(b->n));
        [b->mtl release];
    }
    free(b);
}

static int metal_keep_alive(struct gpu *g, double seconds, struct err *err)
{
    return residency_keep(&g->residency, seconds, err);
}

static u8 *bytes_at(const struct gpu_buf *b, u64 offset, u64 n)
{
    CHECK(offset <= b->n && n <= b->n - offset);
    return (u8 *)[b->mtl contents] + offset;
}

static void *metal_map(struct gpu_buf *b)
{
    return b->where == GPU_DEVICE ? NULL : [b->mtl contents];
}

static int metal_write(struct gpu *g, struct gpu_buf *b, u64 offset, const void *src, u64 n,
                       struct err *err)
{
    (void)err;
    CHECK(g->n_queued == 0);
    if (n > 0) memcpy(bytes_at(b, offset, n), src, n);
    return 0;
}

static int metal_read(struct gpu *g, struct gpu_buf *b, u64 offset, void *dst, u64 n,
                      struct err *err)
{
    (void)err;
    CHECK(g->n_queued == 0);
    if (n > 0) memcpy(dst, bytes_at(b, offset, n), n);
    return 0;
}

static int metal_kernel(struct gpu *g, const char *name, u32 *number, struct err *err)
{
    CHECK(g->n_kernels < MAX_KERNELS);
    metal_object p;
    int rc = library_kernel(&g->library, name, &p, err);
    if (rc < 0) return rc;
    *number = g->n_kernels++;
    g->kernels[*number] = p;
    g->did.kernels_made++;
    return 0;
}

static void metal_cache(struct gpu *g, const char *folder)
{
    library_keep(&g->library, folder);
}

/* A copy as the launch that does it. */
static int lower(struct gpu *g, struct gpu_command *c, struct err *err)
{
    if (c->kind == GPU_LAUNCH) return 0;
    if (c->n_bytes % 4 || c->dst.offset % 4 || c->src.offset % 4 || c->n_bytes / 4 > 0xffffffff)
        return err_set(err, FLETCH_E_INTERNAL, "a copy of %llu bytes is not one of words",
                       (unsigned long long)c->n_bytes);
    bytes_at(c->src.buf, c->src.offset, c->n_bytes);
    bytes_at(c->dst.buf, c->dst.offset, c->n_bytes);
    struct blit_args a = {(u32)(c->n_bytes / 4)};
    u64 groups = MIN((u64)BLIT_GROUPS, a.n_words / BLIT_THREADS + 1);
    c->kernel = g->blit;
    c->groups[0] = (u32)groups, c->groups[1] = c->groups[2] = 1;
    c->threads = BLIT_THREADS;
    c->n_bufs = 2;
    c->bufs[0] = c->src, c->bufs[1] = c->dst;
    c->n_args = sizeof a;
    memcpy(c->args, &a, sizeof a);
    return 0;
}

/* The axis along which a launch has most groups. */
static u32 longest_axis(const struct gpu_command *c)
{
    u32 axis = 0;
    for (u32 i = 1; i < 3; i++)
        if (c->groups[i] > c->groups[axis]) axis = i;
    return axis;
}

/* Commands that a launch becomes, so that each does at most that much work where it has groups
 * enough. */
static u32 count_shares(const struct gpu_command *c, double most)
{
    u32 n = c->groups[longest_axis(c)];
    if (c->work <= most) return 1;
    return c->work / most < n ? (u32)(c->work / most) + 1 : n;
}

/* Work of a command buffer: what is thought to take PART_SECONDS, but more in lists of which that
 * would make more parts than there may be. */
static double part_of(const struct gpu *g, const struct gpu_command *c, u32 n)
{
    double most = PART_SECONDS * CORE_RATE * (g->n_cores ? g->n_cores : USUAL_CORES);
    for (;; most *= 2) {
        u64 n_parts = 1; /* for the fifth that goes ahead */
        for (u32 i = 0; i < n; n_parts++) {
            if (c[i].work > most) n_parts += count_shares(c + i, most) - 1;
            i = gpu_list_part(c, i, n, most);
        }
        if (n_parts <= MAX_PARTS) return most;
    }
}

/* Command i of those given as n_shares of the list's, from `at` on. */
static void put_shares(struct gpu_list *list, u32 at, const struct gpu_command *c, u32 i,
                       u32 n_shares)
{
    u32 axis = longest_axis(c), all = c->groups[axis];
    for (u32 k = 0; k < n_shares; k++) {
        struct gpu_command *l = &list->commands[at + k];
        struct share *s = &list->shares[at + k];
        *l = *c;
        *s = (struct share){.command = i};
        memcpy((u8 *)[list->args contents] + (size_t)(at + k) * GPU_ARGS_PITCH, c->args, c->n_args);
        if (n_shares == 1) return;
        u32 first = (u32)((u64)all * k / n_shares), end = (u32)((u64)all * (k + 1) / n_shares);
        l->after &= k == 0;
        l->work = c->work / n_shares;
        l->groups[axis] = end - first;
        s->grid.first[axis] = first;
        memcpy(s->grid.groups, c->groups, sizeof c->groups);
    }
}

static void drop(struct gpu_list *list)
{
    [list->args release];
    free(list->shares);
    free(list);
}

/* A list of the commands, all of them launches, long ones cut. */
static int make_list(struct gpu *g, struct gpu_list **out, const struct gpu_command *c, u32 n,
                     struct err *err)
{
    double part = part_of(g, c, n);
    u32 n_shares = 0, at = 0;
    for (u32 i = 0; i < n; i++) n_shares += count_shares(c + i, part);
    struct gpu_list *list = malloc(sizeof *list + n_shares * sizeof *c);
    if (!list) return err_nomem(err, "command list");
    *list = (struct gpu_list){.n = n_shares, .n_given = n, .part = part};
    list->shares = malloc(MAX(n_shares, 1) * sizeof *list->shares);
    list->args = [g->device newBufferWithLength:MAX(n_shares, 1) * GPU_ARGS_PITCH options:OPTIONS];
    if (!list->shares || !list->args) {
        drop(list);
        return err_set(err, FLETCH_E_NOMEM, "Metal did not create a buffer for arguments");
    }
    for (u32 i = 0; i < n; at += count_shares(c + i, part), i++)
        put_shares(list, at, c + i, i, count_shares(c + i, part));
    *out = list;
    return 0;
}

/* Can the launch run? */
static int check(const struct gpu *g, const struct gpu_command *c, struct err *err)
{
    CHECK(c->kernel < g->n_kernels && c->n_bufs <= GPU_MAX_BUFS && c->n_args <= GPU_MAX_ARGS);
    u64 most = [g->kernels[c->kernel] maxTotalThreadsPerThreadgroup];
    if (c->threads <= most) return 0;
    return err_set(err, FLETCH_E_UNSUPPORTED, "a kernel can run at most %llu threads, not %u",
                   (unsigned long long)most, c->threads);
}

static int record(struct gpu *g, struct gpu_list **out, const struct gpu_command *given, u32 n,
                  struct err *err)
{
    *out = NULL;
    struct gpu_command *c = malloc(MAX(n, 1) * sizeof *c);
    if (!c) return err_nomem(err, "command list");
    if (n > 0) memcpy(c, given, n * sizeof *c);
    int rc = 0;
    for (u32 i = 0; i < n && rc == 0; i++) {
        rc = lower(g, c + i, err);
        if (rc == 0) rc = check(g, c + i, err);
    }
    if (rc == 0) rc = make_list(g, out, c, n, err);
    free(c);
    if (rc < 0) return rc;
    struct gpu_list *list = *out;
    list->set = residency_add(&g->residency, list->args, [list->args length]);
    residency_commit(&g->residency);
    g->did.lists_made++;
    g->did.bytes_allocated += gpu_metal_list_bytes(list->n);
    return 0;
}

static int metal_record(struct gpu *g, struct gpu_list **out, const struct gpu_command *c, u32 n,
                        struct err *err)
{
    @autoreleasepool {
        return record(g, out, c, n, err);
    }
}

static void metal_drop(struct gpu *g, struct gpu_list *list)
{
    if (!list) return;
    @autoreleasepool {
        g->did.bytes_allocated -= gpu_metal_list_bytes(list->n);
        residency_remove(&g->residency, list->set, list->args, [list->args length]);
        drop(list);
    }
}

/* An encoder, and what it has bound: that is not bound again. */
struct encoding {
    id<MTLComputeCommandEncoder> e;
    u32 kernel; /* UINT32_MAX: none yet */
    bool whole; /* the grid that is bound says nothing */
    struct {
        id<MTLBuffer> buffer;
        u64 offset;
    } bound[GPU_MAX_BUFS + 1];
};

static void bind(struct encoding *to, u32 index, id<MTLBuffer> buffer, u64 offset)
{
    if (to->bound[index].buffer != buffer)
        [to->e setBuffer:buffer offset:offset atIndex:index];
    else if (to->bound[index].offset != offset)
        [to->e setBufferOffset:offset atIndex:index];
    to->bound[index].buffer = buffer;
    to->bound[index].offset = offset;
}

static void bind_grid(struct encoding *to, const struct grid *grid)
{
    bool whole = grid->groups[0] == 0;
    if (!whole || !to->whole) [to->e setBytes:grid length:sizeof *grid atIndex:GRID_INDEX];
    to->whole = whole;
}

static void encode_launch(struct gpu *g, struct encoding *to, const struct gpu_list *list, u32 i)
{
    const struct gpu_command *c = list->commands + i;
    if (to->kernel != c->kernel) [to->e setComputePipelineState:g->kernels[c->kernel]];
    to->kernel = c->kernel;
    for (u32 b = 0; b < c->n_bufs; b++) bind(to, b, c->bufs[b].buf->mtl, c->bufs[b].offset);
    if (c->n_args > 0) bind(to, c->n_bufs, list->args, (u64)i * GPU_ARGS_PITCH);
    bind_grid(to, &list->shares[i].grid);
    [to->e dispatchThreadgroups:MTLSizeMake(c->groups[0], c->groups[1], c->groups[2])
          threadsPerThreadgroup:MTLSizeMake(c->threads, 1, 1)];
    g->did.copies += c->kind == GPU_COPY;
    g->did.dispatches += c->kind == GPU_LAUNCH;
}

/* Commands [begin, end) of a list, committed; the caller owns what is returned. */
static id<MTLCommandBuffer> commit(struct gpu *g, const struct gpu_list *list, u32 begin, u32 end)
{
    id<MTLCommandBuffer> cb;
    @autoreleasepool {
        cb = [[g->queue commandBufferWithUnretainedReferences] retain];
        id<MTLComputeCommandEncoder> e =
            [cb computeCommandEncoderWithDispatchType:MTLDispatchTypeConcurrent];
        cb.label = @"fletch step";
        e.label = @"fletch step";
        struct encoding to = {.e = e, .kernel = UINT32_MAX};
        [e waitForFence:g->fence];
        for (u32 i = begin; i < end; i++) {
            if (list->commands[i].after && i > begin) {
                [e memoryBarrierWithScope:MTLBarrierScopeBuffers];
                g->did.barriers++;
            }
            encode_launch(g, &to, list, i);
        }
        [e updateFence:g->fence];
        [e endEncoding];
        [cb commit];
    }
    g->did.command_buffers++;
    return cb;
}

static int metal_submit(struct gpu *g, struct gpu_list *list, struct err *err)
{
    if (g->n_queued == MAX_QUEUED)
        return err_set(err, FLETCH_E_LIMIT, "%d lists are queued, none waited for", MAX_QUEUED);
    residency_commit(&g->residency); /* what was allocated since the list was recorded */
    residency_used(&g->residency);
    struct queued *q = &g->queued[g->n_queued];
    u32 begin = 0, early = list->n;
    if (g->n_queued == 0 && list->n >= EARLY_COMMANDS) early = list->n / 5;
    q->n = 0;
    do {
        u32 end = gpu_list_part(list->commands, begin, begin ? list->n : early, list->part);
        q->parts[q->n++] = commit(g, list, begin, end);
        begin = end;
    } while (begin < list->n);
    g->n_queued++;
    g->did.submissions++;
    return 0;
}

static int finish(id<MTLCommandBuffer> cb, double *us, struct err *err)
{
    int rc = 0;
    @autoreleasepool {
        [cb waitUntilCompleted];
        if ([cb status] != MTLCommandBufferStatusCompleted)
            rc = err_set(err, FLETCH_E_BACKEND, "the GPU stopped with an error: %s",
                         why([cb error]));
        if (us) *us = ([cb GPUEndTime] - [cb GPUStartTime]) * 1e6;
        [cb release];
    }
    return rc;
}

/* Each part begins when the one before it is done: the wait for the last is the only one that takes
 * time. The first part that failed says why. */
static int finish_oldest(struct gpu *g, struct err *err)
{
    struct queued *q = &g->queued[0];
    int rc = 0;
    @autoreleasepool {
        [q->parts[q->n - 1] waitUntilCompleted];
    }
    for (u32 i = 0; i < q->n; i++) {
        double us;
        int part = finish(q->parts[i], &us, rc ? NULL : err);
        if (part == 0) {
            g->did.gpu_us += us;
            g->did.longest_us = MAX(g->did.longest_us, us);
        }
        if (rc == 0) rc = part;
    }
    memmove(g->queued, g->queued + 1, --g->n_queued * sizeof g->queued[0]);
    return rc;
}

static int metal_wait(struct gpu *g, struct err *err)
{
    g->did.waits++;
    return g->n_queued > 0 ? finish_oldest(g, err) : 0;
}

/* macOS keeps the memory of a queue that never ran anything, whatever its owner releases: so each
 * queue copies a few bytes. */
static int first_command(struct gpu *g, struct err *err)
{
    struct gpu_buf *b;
    struct gpu_list *list;
    int rc = metal_alloc(g, &b, 32, GPU_DEVICE, err);
    if (rc < 0) return rc;
    struct gpu_command c = {.kind = GPU_COPY, .dst = {b, 0}, .src = {b, 16}, .n_bytes = 4};
    rc = metal_record(g, &list, &c, 1, err);
    if (rc == 0) {
        rc = metal_submit(g, list, err);
        if (rc == 0) rc = metal_wait(g, err);
        metal_drop(g, list);
    }
    metal_free(g, b);
    return rc;
}

/* ---- tensor operations ---- */

/* Numbers that halves and bfloats hold, and floats all sums of their products. */
static int probe_value(u32 row, u32 column)
{
    return (int)((row * 7 + column * 5) % 17) - 8;
}

/* As bf16, then as halves: rows of TENSOR_PROBE columns. */
static void fill_probe(u16 *p, u32 n_rows)
{
    for (u32 i = 0; i < n_rows * TENSOR_PROBE; i++) {
        float v = (float)probe_value(i / TENSOR_PROBE, i % TENSOR_PROBE);
        p[i] = bf16_from_float(v);
        p[n_rows * TENSOR_PROBE + i] = half_from_float(v);
    }
}

static bool probe_is_right(const float *y)
{
    for (u32 i = 0; i < 2 * TENSOR_ROWS * TENSOR_OUTS; i++) {
        u32 row = i / TENSOR_OUTS % TENSOR_ROWS, out = i % TENSOR_OUTS;
        int sum = 0;
        for (u32 k = 0; k < TENSOR_PROBE; k++) sum += probe_value(row, k) * probe_value(out, k);
        if (y[i] != (float)sum) return false;
    }
    return true;
}

static int run_probe(struct gpu *g, struct gpu_buf *const b[3], bool *right, struct err *err)
{
    enum { ALL = 2 * TENSOR_ROWS * TENSOR_OUTS };
    static const struct tensor_probe_args args = {TENSOR_PROBE};
    struct gpu_list *list;
    struct gpu_command c = {.kind = GPU_LAUNCH,
                            .groups = {1, 1, 1},
                            .threads = TENSOR_THREADS,
                            .n_bufs = 3,
                            .bufs = {{b[0], 0}, {b[1], 0}, {b[2], 0}},
                            .n_args = sizeof args};
    memcpy(c.args, &args, sizeof args);
    int rc = metal_kernel(g, "k_tensor_probe", &c.kernel, err);
    if (rc == 0) rc = metal_record(g, &list, &c, 1, err);
    if (rc < 0) return rc;
    fill_probe(metal_map(b[0]), TENSOR_ROWS);
    fill_probe(metal_map(b[1]), TENSOR_OUTS);
    rc = metal_submit(g, list, err);
    if (rc == 0) rc = metal_wait(g, err);
    *right = rc == 0 && probe_is_right(metal_map(b[2]));
    metal_drop(g, list);
    return rc;
}

/* Does the GPU have units for tensor operations (Apple10, which is an M5's, with Metal 4), and do
 * they multiply as the text of tensor.gpu asks for it? What says no on a GPU that has them goes to
 * stderr; prompts are then multiplied as on older ones. */
static bool has_tensor(struct gpu *g)
{
    enum { METAL4 = 5002, APPLE10 = 1010 }; /* MTLGPUFamily of newer SDKs */
    if (![g->device supportsFamily:(MTLGPUFamily)METAL4] ||
        ![g->device supportsFamily:(MTLGPUFamily)APPLE10])
        return false;
    struct gpu_buf *b[3] = {NULL};
    struct err err = {0};
    bool right = false;
    u64 column = 2 * TENSOR_PROBE * sizeof(u16);
    int rc = metal_alloc(g, &b[0], TENSOR_ROWS * column, GPU_UPLOAD, &err);
    if (rc == 0) rc = metal_alloc(g, &b[1], TENSOR_OUTS * column, GPU_UPLOAD, &err);
    if (rc == 0)
        rc = metal_alloc(g, &b[2], 2 * TENSOR_ROWS * TENSOR_OUTS * sizeof(float), GPU_READBACK,
                         &err);
    if (rc == 0) rc = run_probe(g, b, &right, &err);
    for (u32 i = 0; i < ARRAY_LEN(b); i++) metal_free(g, b[i]);
    if (rc == 0 && !right) err_set(&err, FLETCH_E_BACKEND, "wrong products");
    if (!right) fprintf(stderr, "Metal: tensor operations are not used: %s\n", err.text);
    return right;
}

static int metal_profile(struct gpu *g, struct gpu_list *list, double *us, struct err *err)
{
    CHECK(g->n_queued == 0);
    int rc = 0;
    memset(us, 0, list->n_given * sizeof *us);
    for (u32 i = 0; i < list->n && rc == 0; i++) {
        double took;
        rc = finish(commit(g, list, i, i + 1), &took, err);
        us[list->shares[i].command] += took;
    }
    return rc;
}

const struct gpu_driver driver_metal = {
    .name = "metal",
    .least = METAL_CAPS,
    .most = METAL_CAPS,
    .self_test = true,
    .unified = true,
    .list_bytes = gpu_metal_list_bytes,
    .absent = metal_absent,
    .open = metal_open,
    .close = metal_close,
    .info = metal_info,
    .counters = metal_counters,
    .memory = metal_memory,
    .alloc = metal_alloc,
    .free = metal_free,
    .map = metal_map,
    .write = metal_write,
    .read = metal_read,
    .kernel = metal_kernel,
    .cache = metal_cache,
    .keep_alive = metal_keep_alive,
    .record = metal_record,
    .drop = metal_drop,
    .submit = metal_submit,
    .wait = metal_wait,
    .profile = metal_profile,
    .capture = metal_capture,
};
