/* A stand-in for NVIDIA's libcuda.so.1, on the emulator: what driver_cuda.c uses of it. Kernels are
 * the emulator's own, found by name, whatever is in the fatbin. Work is done when it is waited for
 * and no sooner; what no driver would take stops the program. Numbers, names and layouts are as
 * NVIDIA documents them, the text is ours. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "gpu/emu/emu.h"
#include "standin.h"

enum {
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NO_DEVICE = 100,
    INVALID_CONTEXT = 201,
    NO_BINARY_FOR_GPU = 209,
    NOT_FOUND = 500,
    ILLEGAL_ADDRESS = 700,
};
enum { ATTR_UNITS = 16, ATTR_MAJOR = 75, ATTR_MINOR = 76, ATTR_MAX_SHARED = 97 };
enum { MAX_PARAMS = 32, MAX_ITEMS = 4096, ARGS_BYTES = 1024, MAX_SHARED = 227 << 10 };

typedef int cu_result;
typedef u64 cu_ptr;

struct standin standin_cuda;

/* A piece of memory, device's or pinned. */
struct memory {
    u8 *p;
    u64 n;
    struct memory *next;
};

struct event {
    struct stream *stream;
    u64 at; /* place in the stream's history */
    double seconds;
};

enum kind { KERNEL, COPY, FILL, RECORD };

struct node {
    enum kind kind;
    bool after;
    const struct emu_kernel *kernel;
    u32 grid[3], threads;
    cu_ptr params[MAX_PARAMS];
    u8 args[ARGS_BYTES];
    u8 *dst, *src;
    u8 *staged; /* what src was when the copy was asked for */
    u64 n;
    u8 value;
    struct event *event;
};

struct graph {
    u32 n;
    struct node *nodes[MAX_ITEMS];
};

struct stream {
    u64 began, ended; /* items ever put in, and taken out */
    struct node *items[MAX_ITEMS];
};

struct kernel_node { /* CUDA_KERNEL_NODE_PARAMS, second version */
    const struct emu_kernel *function;
    unsigned grid[3], block[3], shared_bytes;
    void **params, **extra;
    void *kernel, *context;
};

struct copy_side {
    size_t x, y, z, lod;
    int memory_type;
    const void *host;
    cu_ptr device;
    void *array, *reserved;
    size_t pitch, height;
};

struct copy_node { /* CUDA_MEMCPY3D */
    struct copy_side src, dst;
    size_t width, height, depth;
};

struct edge { /* CUgraphEdgeData */
    u8 from_port, to_port, type, reserved[5];
};

static struct emulator *emu;
static int n_contexts;
static struct memory *memories;
static bool lost;
static char error_text[512];
static __thread bool current;

#define EXPORT __attribute__((visibility("default")))
#define NEEDS_CONTEXT                         \
    do {                                      \
        if (lost) return ILLEGAL_ADDRESS;     \
        if (!current) return INVALID_CONTEXT; \
    } while (0)

static void misuse(const char *what)
{
    fprintf(stderr, "stand-in CUDA: %s\n", what);
    abort();
}

static void *make(size_t n)
{
    void *p = calloc(1, n);
    if (!p) abort();
    standin_cuda.alive++;
    return p;
}

static cu_result forget(void *p)
{
    if (!p) misuse("nothing is destroyed");
    standin_cuda.alive--;
    free(p);
    return 0;
}

static struct emu_bind find(cu_ptr at, u64 n)
{
    for (struct memory *m = memories; m; m = m->next) {
        u64 begin = (u64)(uintptr_t)m->p;
        if (at >= begin && at <= begin + m->n && n <= begin + m->n - at)
            return (struct emu_bind){{m->p, m->n, NULL}, at - begin};
    }
    misuse("an address outside all memory");
    return (struct emu_bind){{0}, 0};
}

/* ---- what streams do ---- */

static cu_result run_kernel(const struct node *k)
{
    struct emu_bind binds[MAX_PARAMS + 1];
    for (u32 i = 0; i < k->kernel->n_bufs; i++) binds[i] = find(k->params[i], 0);
    u8 args[ARGS_BYTES];
    memcpy(args, k->args, sizeof args);
    binds[k->kernel->n_bufs] = (struct emu_bind){{args, k->kernel->n_args, NULL}, 0};
    struct emu_launch l = {.kernel = k->kernel,
                           .groups = {k->grid[0], k->grid[1], k->grid[2]},
                           .threads = k->threads,
                           .binds = binds,
                           .after = k->after};
    struct err err = {0};
    standin_cuda.dispatches++;
    if (emu_run(emu, &l, &err) == 0) return 0;
    memcpy(error_text, err.text, sizeof error_text);
    return ILLEGAL_ADDRESS;
}

static cu_result run_node(const struct node *k)
{
    if (standin_cuda.fault == STANDIN_LOST) {
        strcpy(error_text, "an illegal memory access was encountered");
        return ILLEGAL_ADDRESS;
    }
    switch (k->kind) {
    case KERNEL: return run_kernel(k);
    case COPY: memmove(k->dst, k->staged ? k->staged : k->src, k->n); return 0;
    case FILL: memset(k->dst, k->value, k->n); return 0;
    case RECORD: k->event->seconds = (double)clock() / CLOCKS_PER_SEC; return 0;
    }
    return INVALID_VALUE;
}

static void drop_node(struct node *k)
{
    free(k->staged);
    free(k);
}

static cu_result push(struct stream *s, const struct node *k)
{
    if (s->began - s->ended == MAX_ITEMS) misuse("a stream is never waited for");
    struct node *copy = malloc(sizeof *copy);
    if (!copy) abort();
    *copy = *k;
    s->items[s->began++ % MAX_ITEMS] = copy;
    return 0;
}

static cu_result run_until(struct stream *s, u64 at)
{
    while (s->ended < at) {
        struct node *k = s->items[s->ended++ % MAX_ITEMS];
        if (!lost) lost = run_node(k) != 0;
        drop_node(k);
    }
    return lost ? ILLEGAL_ADDRESS : 0;
}

/* ---- the library's functions ---- */

EXPORT cu_result cuInit(unsigned flags)
{
    (void)flags;
    return standin_cuda.fault == STANDIN_NO_DEVICE ? NO_DEVICE : 0;
}

EXPORT cu_result cuGetErrorString(cu_result rc, const char **text)
{
    *text = rc == ILLEGAL_ADDRESS   ? error_text
            : rc == OUT_OF_MEMORY   ? "out of memory"
            : rc == INVALID_CONTEXT ? "invalid device context"
                                    : "error";
    return 0;
}

EXPORT cu_result cuDeviceGetCount(int *n)
{
    *n = 1;
    return 0;
}

EXPORT cu_result cuDeviceGet(int *device, int n)
{
    *device = n;
    return n == 0 ? 0 : INVALID_VALUE;
}

EXPORT cu_result cuDeviceGetName(char *name, int n, int device)
{
    (void)device;
    snprintf(name, (size_t)n, "stand-in for CUDA");
    return 0;
}

EXPORT cu_result cuDeviceGetAttribute(int *value, int attribute, int device)
{
    (void)device;
    switch (attribute) {
    case ATTR_UNITS: *value = 2; return 0;
    case ATTR_MAJOR: *value = standin_cuda.fault == STANDIN_OLD_DEVICE ? 3 : 9; return 0;
    case ATTR_MINOR: *value = 0; return 0;
    case ATTR_MAX_SHARED: *value = MAX_SHARED; return 0;
    default: return INVALID_VALUE;
    }
}

EXPORT cu_result cuDevicePrimaryCtxRetain(void **context, int device)
{
    (void)device;
    if (n_contexts++ == 0 && emu_open(&emu, 0, NULL) < 0) abort();
    *context = emu;
    return 0;
}

EXPORT cu_result cuDevicePrimaryCtxRelease_v2(int device)
{
    (void)device;
    if (--n_contexts > 0) return 0;
    emu_close(emu);
    current = lost = false;
    return 0;
}

EXPORT cu_result cuCtxSetCurrent(void *context)
{
    current = context != NULL;
    return 0;
}

EXPORT cu_result cuModuleLoadData(void **module, const void *image)
{
    (void)image;
    NEEDS_CONTEXT;
    if (standin_cuda.fault == STANDIN_OLD_DEVICE) return NO_BINARY_FOR_GPU;
    if (standin_cuda.fault == STANDIN_BAD_TEXT) return INVALID_VALUE;
    standin_cuda.libraries++;
    *module = make(1);
    return 0;
}

EXPORT cu_result cuModuleUnload(void *module)
{
    return forget(module);
}

EXPORT cu_result cuModuleGetFunction(const struct emu_kernel **out, void *module, const char *name)
{
    NEEDS_CONTEXT;
    *out = module ? emu_find(emu_fast, name) : NULL;
    standin_cuda.pipelines += *out != NULL;
    return *out ? 0 : NOT_FOUND;
}

EXPORT cu_result cuFuncSetAttribute(const struct emu_kernel *k, int attribute, int value)
{
    (void)attribute;
    (void)value;
    return k ? 0 : INVALID_VALUE;
}

EXPORT cu_result cuMemGetInfo_v2(size_t *left, size_t *total)
{
    *left = *total = (size_t)1 << 34;
    for (struct memory *m = memories; m; m = m->next) *left -= MIN(*left, m->n);
    return 0;
}

static cu_result allocate(u8 **out, size_t n)
{
    NEEDS_CONTEXT;
    if (n == 0) return INVALID_VALUE;
    if (standin_cuda.fault == STANDIN_NO_MEMORY || n > (size_t)1 << 34) return OUT_OF_MEMORY;
    struct memory *m = make(sizeof *m);
    m->p = aligned_alloc(256, (n + 255) / 256 * 256);
    if (!m->p) abort();
    memset(m->p, 0xff, n); /* nothing promises zeros */
    m->n = n;
    m->next = memories;
    memories = m;
    standin_cuda.buffers++;
    *out = m->p;
    return 0;
}

static cu_result release(void *p)
{
    for (struct memory **at = &memories; *at; at = &(*at)->next) {
        struct memory *m = *at;
        if (m->p != p) continue;
        *at = m->next;
        free(m->p);
        return forget(m);
    }
    misuse("memory is freed that was never given");
    return INVALID_VALUE;
}

EXPORT cu_result cuMemAlloc_v2(cu_ptr *out, size_t n)
{
    u8 *p = NULL;
    cu_result rc = allocate(&p, n);
    *out = (cu_ptr)(uintptr_t)p;
    return rc;
}

EXPORT cu_result cuMemFree_v2(cu_ptr p)
{
    return release((void *)(uintptr_t)p);
}

EXPORT cu_result cuMemHostAlloc(void **out, size_t n, unsigned flags)
{
    (void)flags;
    u8 *p = NULL;
    cu_result rc = allocate(&p, n);
    *out = p;
    return rc;
}

EXPORT cu_result cuMemFreeHost(void *p)
{
    return release(p);
}

EXPORT cu_result cuMemsetD8Async(cu_ptr dst, u8 value, size_t n, struct stream *s)
{
    NEEDS_CONTEXT;
    struct emu_bind b = find(dst, n);
    return push(s, &(struct node){.kind = FILL, .dst = b.buf.p + b.offset, .n = n, .value = value});
}

EXPORT cu_result cuMemcpyHtoDAsync_v2(cu_ptr dst, const void *src, size_t n, struct stream *s)
{
    NEEDS_CONTEXT;
    struct emu_bind b = find(dst, n);
    u8 *staged = malloc(MAX(n, 1));
    if (!staged) abort();
    memcpy(staged, src, n);
    return push(s,
                &(struct node){.kind = COPY, .dst = b.buf.p + b.offset, .staged = staged, .n = n});
}

EXPORT cu_result cuMemcpyDtoHAsync_v2(void *dst, cu_ptr src, size_t n, struct stream *s)
{
    NEEDS_CONTEXT;
    struct emu_bind b = find(src, n);
    return push(s, &(struct node){.kind = COPY, .dst = dst, .src = b.buf.p + b.offset, .n = n});
}

EXPORT cu_result cuStreamCreate(struct stream **out, unsigned flags)
{
    (void)flags;
    NEEDS_CONTEXT;
    *out = make(sizeof **out);
    return 0;
}

EXPORT cu_result cuStreamSynchronize(struct stream *s)
{
    NEEDS_CONTEXT;
    standin_cuda.waits += s->ended < s->began;
    return run_until(s, s->began);
}

EXPORT cu_result cuStreamDestroy_v2(struct stream *s)
{
    run_until(s, s->began);
    return forget(s);
}

EXPORT cu_result cuEventCreate(struct event **out, unsigned flags)
{
    (void)flags;
    NEEDS_CONTEXT;
    *out = make(sizeof **out);
    return 0;
}

EXPORT cu_result cuEventDestroy_v2(struct event *e)
{
    return forget(e);
}

EXPORT cu_result cuEventRecord(struct event *e, struct stream *s)
{
    NEEDS_CONTEXT;
    e->stream = s;
    e->at = s->began;
    return 0;
}

EXPORT cu_result cuEventSynchronize(struct event *e)
{
    NEEDS_CONTEXT;
    if (!e->stream) misuse("an event is waited for that was never recorded");
    standin_cuda.waits += e->stream->ended < e->at;
    return run_until(e->stream, e->at);
}

EXPORT cu_result cuEventElapsedTime(float *ms, const struct event *a, const struct event *b)
{
    NEEDS_CONTEXT;
    *ms = (float)((b->seconds - a->seconds) * 1e3);
    return 0;
}

/* ---- graphs: nodes in the order in which they were added, which is one that dependencies allow */

EXPORT cu_result cuGraphCreate(struct graph **out, unsigned flags)
{
    (void)flags;
    NEEDS_CONTEXT;
    *out = make(sizeof **out);
    return 0;
}

EXPORT cu_result cuGraphDestroy(struct graph *g)
{
    for (u32 i = 0; i < g->n; i++) drop_node(g->nodes[i]);
    return forget(g);
}

static cu_result add_node(struct node **out, struct graph *g, const struct node *k, size_t n_deps)
{
    NEEDS_CONTEXT;
    if (g->n == MAX_ITEMS) misuse("a graph of too many nodes");
    *out = g->nodes[g->n++] = malloc(sizeof *k);
    if (!*out) abort();
    **out = *k;
    (*out)->after = n_deps > 0;
    return 0;
}

EXPORT cu_result cuGraphAddKernelNode_v2(struct node **out, struct graph *g,
                                         struct node *const *deps, size_t n_deps,
                                         const struct kernel_node *k)
{
    (void)deps;
    const struct emu_kernel *f = k->function;
    u32 threads = k->block[0] * k->block[1] * k->block[2];
    if (!f || f->n_bufs > MAX_PARAMS || f->n_args > ARGS_BYTES || k->shared_bytes > MAX_SHARED)
        misuse("a kernel that the stand-in can't run");
    if (threads == 0 || threads > f->max_threads) misuse("too many threads in a block");
    if (!k->grid[0] || !k->grid[1] || !k->grid[2]) misuse("an empty grid");
    struct node n = {.kind = KERNEL,
                     .kernel = f,
                     .grid = {k->grid[0], k->grid[1], k->grid[2]},
                     .threads = threads};
    for (u32 i = 0; i < f->n_bufs; i++) memcpy(&n.params[i], k->params[i], sizeof n.params[i]);
    if (f->n_args > 0) memcpy(n.args, k->params[f->n_bufs], f->n_args);
    return add_node(out, g, &n, n_deps);
}

EXPORT cu_result cuGraphAddMemcpyNode(struct node **out, struct graph *g, struct node *const *deps,
                                      size_t n_deps, const struct copy_node *c, void *context)
{
    (void)deps;
    (void)context;
    u64 n = c->width * c->height * c->depth;
    struct emu_bind dst = find(c->dst.device, n), src = find(c->src.device, n);
    struct node k = {
        .kind = COPY, .dst = dst.buf.p + dst.offset, .src = src.buf.p + src.offset, .n = n};
    return add_node(out, g, &k, n_deps);
}

EXPORT cu_result cuGraphAddEventRecordNode(struct node **out, struct graph *g,
                                           struct node *const *deps, size_t n_deps, struct event *e)
{
    (void)deps;
    return add_node(out, g, &(struct node){.kind = RECORD, .event = e}, n_deps);
}

EXPORT cu_result cuGraphAddDependencies_v2(struct graph *g, struct node *const *from,
                                           struct node *const *to, const struct edge *edges,
                                           size_t n)
{
    NEEDS_CONTEXT;
    for (size_t i = 0; i < n; i++) {
        u32 a = 0, b = 0;
        while (a < g->n && g->nodes[a] != from[i]) a++;
        while (b < g->n && g->nodes[b] != to[i]) b++;
        if (a >= b || b == g->n) misuse("a dependency on a later node, or on none of the graph");
        if (edges[i].type == 1 && (from[i]->kind != KERNEL || to[i]->kind != KERNEL))
            misuse("a programmatic edge between things that are not kernels");
        to[i]->after = true;
        standin_cuda.barriers++;
    }
    return 0;
}

EXPORT cu_result cuGraphInstantiateWithFlags(struct graph **out, const struct graph *g, u64 flags)
{
    (void)flags;
    NEEDS_CONTEXT;
    *out = make(sizeof **out);
    (*out)->n = g->n;
    for (u32 i = 0; i < g->n; i++) {
        (*out)->nodes[i] = malloc(sizeof(struct node));
        if (!(*out)->nodes[i]) abort();
        *(*out)->nodes[i] = *g->nodes[i];
        if (i > 0 && !g->nodes[i]->after) misuse("a node that nothing orders");
    }
    return 0;
}

EXPORT cu_result cuGraphLaunch(struct graph *exec, struct stream *s)
{
    NEEDS_CONTEXT;
    for (u32 i = 0; i < exec->n; i++) push(s, exec->nodes[i]);
    standin_cuda.submissions++;
    return 0;
}

EXPORT cu_result cuGraphExecDestroy(struct graph *exec)
{
    return cuGraphDestroy(exec);
}
