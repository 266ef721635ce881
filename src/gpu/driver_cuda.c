/* The CUDA driver: driver.h on NVIDIA's driver API, in plain C. Nothing of CUDA is needed to build
 * or to start: libcuda is looked for when it is asked for, the prototypes are our own, and the
 * kernels come as fatbins inside the program (fatbins.S) when there was an nvcc.
 *
 * A list becomes one graph, so that a step costs the host one call. Its commands form a chain, also
 * those that needn't wait for the one before: side by side, three small matrix products and their
 * reader took 13.2 µs on an H200, in a row 11.2. From sm_90 on, kernels follow kernels by
 * programmatic edges: a kernel starts while earlier ones still run, loads its weights, and waits
 * for them in dep_wait(). */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/driver.h"
#include "gpu/kernels/blit.h"

/* ---- what we use of cuda.h ---- */

typedef int cu_result, cu_device;
typedef u64 cu_ptr;
typedef struct cu_context *cu_context;
typedef struct cu_module *cu_module;
typedef struct cu_function *cu_function;
typedef struct cu_stream *cu_stream;
typedef struct cu_event *cu_event;
typedef struct cu_graph *cu_graph;
typedef struct cu_node *cu_node;
typedef struct cu_graph_exec *cu_graph_exec;

enum {
    CU_OUT_OF_MEMORY = 2,
    CU_NO_DEVICE = 100,
    CU_NO_BINARY_FOR_GPU = 209,
    CU_NOT_FOUND = 500,
    CU_ATTR_UNITS = 16,
    CU_ATTR_MAJOR = 75,
    CU_ATTR_MINOR = 76,
    CU_FUNC_MAX_SHARED = 8,
    CU_FUNC_CARVEOUT = 9,
    CU_HOST_PORTABLE = 1,
    CU_HOST_MAPPED = 2,
    CU_STREAM_NON_BLOCKING = 1,
    CU_EVENT_DISABLE_TIMING = 2,
    CU_MEMORY_UNIFIED = 4,
    CU_PORT_PROGRAMMATIC = 1,
    CU_EDGE_PROGRAMMATIC = 1,
};

struct cu_edge {
    u8 from_port, to_port, type, reserved[5];
};

struct cu_kernel_node {
    cu_function function;
    unsigned grid[3], block[3], shared_bytes;
    void **params, **extra;
    void *kernel;
    cu_context context;
};

struct cu_copy_side {
    size_t x, y, z, lod;
    int memory_type;
    const void *host;
    cu_ptr device;
    void *array, *reserved;
    size_t pitch, height;
};

struct cu_copy_node {
    struct cu_copy_side src, dst;
    size_t width, height, depth;
};

#define CU_FUNCTIONS(X)                                                                        \
    X(init, "cuInit", (unsigned))                                                              \
    X(error_text, "cuGetErrorString", (cu_result, const char **))                              \
    X(device_count, "cuDeviceGetCount", (int *))                                               \
    X(device_get, "cuDeviceGet", (cu_device *, int))                                           \
    X(device_name, "cuDeviceGetName", (char *, int, cu_device))                                \
    X(device_attr, "cuDeviceGetAttribute", (int *, int, cu_device))                            \
    X(context_retain, "cuDevicePrimaryCtxRetain", (cu_context *, cu_device))                   \
    X(context_release, "cuDevicePrimaryCtxRelease_v2", (cu_device))                            \
    X(context_set, "cuCtxSetCurrent", (cu_context))                                            \
    X(module_load, "cuModuleLoadData", (cu_module *, const void *))                            \
    X(module_function, "cuModuleGetFunction", (cu_function *, cu_module, const char *))        \
    X(module_unload, "cuModuleUnload", (cu_module))                                            \
    X(function_set, "cuFuncSetAttribute", (cu_function, int, int))                             \
    X(mem_info, "cuMemGetInfo_v2", (size_t *, size_t *))                                       \
    X(mem_alloc, "cuMemAlloc_v2", (cu_ptr *, size_t))                                          \
    X(mem_free, "cuMemFree_v2", (cu_ptr))                                                      \
    X(host_alloc, "cuMemHostAlloc", (void **, size_t, unsigned))                               \
    X(host_free, "cuMemFreeHost", (void *))                                                    \
    X(mem_set, "cuMemsetD8Async", (cu_ptr, u8, size_t, cu_stream))                             \
    X(mem_write, "cuMemcpyHtoDAsync_v2", (cu_ptr, const void *, size_t, cu_stream))            \
    X(mem_read, "cuMemcpyDtoHAsync_v2", (void *, cu_ptr, size_t, cu_stream))                   \
    X(stream_create, "cuStreamCreate", (cu_stream *, unsigned))                                \
    X(stream_destroy, "cuStreamDestroy_v2", (cu_stream))                                       \
    X(stream_wait, "cuStreamSynchronize", (cu_stream))                                         \
    X(event_create, "cuEventCreate", (cu_event *, unsigned))                                   \
    X(event_destroy, "cuEventDestroy_v2", (cu_event))                                          \
    X(event_record, "cuEventRecord", (cu_event, cu_stream))                                    \
    X(event_wait, "cuEventSynchronize", (cu_event))                                            \
    X(event_elapsed, "cuEventElapsedTime", (float *, cu_event, cu_event))                      \
    X(graph_create, "cuGraphCreate", (cu_graph *, unsigned))                                   \
    X(graph_destroy, "cuGraphDestroy", (cu_graph))                                             \
    X(graph_kernel, "cuGraphAddKernelNode_v2",                                                 \
      (cu_node *, cu_graph, const cu_node *, size_t, const struct cu_kernel_node *))           \
    X(graph_copy, "cuGraphAddMemcpyNode",                                                      \
      (cu_node *, cu_graph, const cu_node *, size_t, const struct cu_copy_node *, cu_context)) \
    X(graph_event, "cuGraphAddEventRecordNode",                                                \
      (cu_node *, cu_graph, const cu_node *, size_t, cu_event))                                \
    X(graph_depend, "cuGraphAddDependencies_v2",                                               \
      (cu_graph, const cu_node *, const cu_node *, const struct cu_edge *, size_t))            \
    X(graph_instantiate, "cuGraphInstantiateWithFlags", (cu_graph_exec *, cu_graph, u64))      \
    X(graph_launch, "cuGraphLaunch", (cu_graph_exec, cu_stream))                               \
    X(graph_exec_destroy, "cuGraphExecDestroy", (cu_graph_exec))

struct cuda {
#define CU_FIELD(field, symbol, args) cu_result(*field) args;
    CU_FUNCTIONS(CU_FIELD)
#undef CU_FIELD
};

/* Fatbins, one for each file of kernels, and NULL; only NULL in a build without nvcc. */
extern const void *const gpu_fatbins[];

enum { MAX_MODULES = 64, MAX_KERNELS = 512, MAX_QUEUED = 4 };
enum { BLIT_MAX = 1 << 20 }; /* bytes */

struct gpu {
    struct cuda cu;
    cu_device device;
    cu_context context;
    cu_stream stream;
    u32 n_modules, n_kernels;
    cu_module modules[MAX_MODULES];
    cu_function kernels[MAX_KERNELS];
    cu_function blit, native, bulk; /* k_blit and two of native/'s; NULL: not there */
    cu_event done[MAX_QUEUED];      /* of submission i at i % MAX_QUEUED */
    u32 api;
    bool is_resident; /* it has taken the device's bit in residents */
    struct gpu_counters count;
};

/* A bit for each device: somebody in this process has taken it. */
static atomic_uint_least64_t residents;

struct gpu_buf {
    cu_ptr ptr;
    u64 n;
    void *host; /* NULL: device memory */
};

struct gpu_list {
    cu_graph_exec exec;
    u32 n_dispatches, n_copies, n_barriers;
    u32 n;
    struct gpu_command *commands; /* for profile */
};

/* ---- start, errors ---- */

bool gpu_has_cuda(void)
{
    return gpu_fatbins[0] != NULL;
}

/* Fills cu, or says why there is no CUDA. The library stays loaded: it can't be unloaded safely. */
static const char *cuda_load(struct cuda *cu)
{
    if (!gpu_has_cuda()) return "this build has no CUDA kernels (it was built without nvcc)";
    void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!lib) return "no NVIDIA driver found (libcuda.so.1 is missing)";
#define CU_LOOKUP(field, symbol, args)                \
    if (!(*(void **)&cu->field = dlsym(lib, symbol))) \
        return "the NVIDIA driver is too old (no " symbol "); 545 or newer is needed";
    CU_FUNCTIONS(CU_LOOKUP)
#undef CU_LOOKUP
    int n = 0;
    cu_result rc = cu->init(0);
    if (rc == CU_NO_DEVICE || (!rc && !cu->device_count(&n) && n == 0))
        return "the NVIDIA driver found no GPU";
    if (rc) return "the NVIDIA driver cannot be initialized (cuInit fails)";
    return NULL;
}

static const char *cuda_absent(void)
{
    struct cuda cu;
    return cuda_load(&cu);
}

/* Once a kernel has gone wrong every later call fails too: the device is lost to this process. */
static int failed(const struct gpu *g, cu_result rc, const char *what, struct err *err)
{
    const char *text = "unknown error";
    if (!rc) return 0;
    if (g->cu.error_text(rc, &text) || !text) text = "unknown error";
    return err_set(err, rc == CU_OUT_OF_MEMORY ? FLETCH_E_NOMEM : FLETCH_E_BACKEND,
                   "CUDA: %s failed: %s (%d)", what, text, rc);
}

static int no_room(const struct gpu *g, u64 n, const char *where, struct err *err)
{
    size_t left = 0, total = 0;
    g->cu.mem_info(&left, &total);
    return err_set(err, FLETCH_E_NOMEM, "cannot allocate %.1f MB in %s: %.1f of %.1f MB are free",
                   (double)n * 1e-6, where, (double)left * 1e-6, (double)total * 1e-6);
}

static void cuda_close(struct gpu *g)
{
    if (!g) return;
    const struct cuda *cu = &g->cu;
    if (g->context) {
        cu->context_set(g->context);
        if (g->stream) cu->stream_wait(g->stream);
        for (u32 i = 0; i < MAX_QUEUED; i++)
            if (g->done[i]) cu->event_destroy(g->done[i]);
        if (g->stream) cu->stream_destroy(g->stream);
        for (u32 i = 0; i < g->n_modules; i++) cu->module_unload(g->modules[i]);
        cu->context_release(g->device);
    }
    if (g->is_resident) atomic_fetch_and(&residents, ~(1ull << g->device));
    free(g);
}

static int open_device(struct gpu *g, u32 device, struct err *err)
{
    const struct cuda *cu = &g->cu;
    int rc, n = 0, major = 0, minor = 0;
    if ((rc = failed(g, cu->device_count(&n), "cuDeviceGetCount", err))) return rc;
    if (device >= (u32)n)
        return err_set(err, FLETCH_E_ARG, "there is no GPU %u; GPUs are numbered from 0 to %d",
                       device, n - 1);
    if ((rc = failed(g, cu->device_get(&g->device, (int)device), "cuDeviceGet", err)) ||
        (rc = failed(g, cu->device_attr(&major, CU_ATTR_MAJOR, g->device), "cuDeviceGetAttribute",
                     err)) ||
        (rc = failed(g, cu->device_attr(&minor, CU_ATTR_MINOR, g->device), "cuDeviceGetAttribute",
                     err)) ||
        (rc = failed(g, cu->context_retain(&g->context, g->device), "opening the GPU", err)) ||
        (rc = failed(g, cu->context_set(g->context), "cuCtxSetCurrent", err)) ||
        (rc = failed(g, cu->stream_create(&g->stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate",
                     err)))
        return rc;
    g->api = (u32)(major * 10 + minor);
    for (u32 i = 0; i < MAX_QUEUED; i++)
        if ((rc = failed(g, cu->event_create(&g->done[i], CU_EVENT_DISABLE_TIMING), "cuEventCreate",
                         err)))
            return rc;
    for (; gpu_fatbins[g->n_modules]; g->n_modules++) {
        CHECK(g->n_modules < MAX_MODULES);
        cu_result load = cu->module_load(&g->modules[g->n_modules], gpu_fatbins[g->n_modules]);
        if (load == CU_NO_BINARY_FOR_GPU)
            return err_set(err, FLETCH_E_BACKEND,
                           "this build has no CUDA kernels for sm_%u; build with make release",
                           g->api);
        if ((rc = failed(g, load, "loading the kernels", err))) return rc;
        if (!g->blit) cu->module_function(&g->blit, g->modules[g->n_modules], "k_blit");
        if (!g->native) cu->module_function(&g->native, g->modules[g->n_modules], "k_panels_mma_3");
        if (!g->bulk) cu->module_function(&g->bulk, g->modules[g->n_modules], "k_matmul_i8_mma16");
    }
    return 0;
}

static int cuda_open(struct gpu **out, u32 device, struct err *err)
{
    *out = NULL;
    struct gpu *g = calloc(1, sizeof *g);
    if (!g) return err_nomem(err, "the GPU driver");
    const char *why = cuda_load(&g->cu);
    int rc = why ? err_set(err, FLETCH_E_BACKEND, "%s", why) : open_device(g, device, err);
    if (rc) {
        cuda_close(g);
        return rc;
    }
    *out = g;
    return 0;
}

static void cuda_info(struct gpu *g, struct gpu_info *out)
{
    size_t left = 0, total = 0;
    int units = 0;
    g->cu.context_set(g->context);
    bool large = g->api >= 90 && g->api < 120; /* from sm_120 on a group has less memory */
    *out = (struct gpu_info){.api = g->api, .caps = driver_cuda.least};
    g->cu.device_name(out->name, sizeof out->name, g->device);
    g->cu.mem_info(&left, &total);
    g->cu.device_attr(&units, CU_ATTR_UNITS, g->device);
    out->memory = total;
    out->memory_free = left;
    out->max_buffer = total;
    out->caps.n_units = (u32)units;
    out->caps.native = g->native;
    out->caps.bulk = g->bulk;
    out->caps.clusters = g->native && large;
}

static bool cuda_reside(struct gpu *g)
{
    u32 i = (u32)g->device;
    if (!g->is_resident && i < 64)
        g->is_resident = !(atomic_fetch_or(&residents, 1ull << i) >> i & 1);
    return g->is_resident;
}

static void cuda_counters(const struct gpu *g, struct gpu_counters *out)
{
    *out = g->count;
}

/* ---- memory ---- */

static int cuda_alloc(struct gpu *g, struct gpu_buf **out, u64 n, enum gpu_memory where,
                      struct err *err)
{
    const struct cuda *cu = &g->cu;
    *out = NULL;
    struct gpu_buf *b = calloc(1, sizeof *b);
    if (!b) return err_nomem(err, "a GPU buffer");
    cu->context_set(g->context);
    b->n = MAX(n, 1);
    cu_result rc;
    if (where == GPU_DEVICE) {
        rc = cu->mem_alloc(&b->ptr, b->n);
    } else {
        rc = cu->host_alloc(&b->host, b->n, CU_HOST_PORTABLE | CU_HOST_MAPPED);
        b->ptr = (cu_ptr)(uintptr_t)b->host; /* one address space for both */
    }
    if (rc) {
        free(b);
        const char *place = where == GPU_DEVICE ? "GPU memory" : "pinned host memory";
        return rc == CU_OUT_OF_MEMORY ? no_room(g, n, place, err) : failed(g, rc, place, err);
    }
    if (b->host)
        memset(b->host, 0, b->n);
    else
        cu->mem_set(b->ptr, 0, b->n, g->stream);
    g->count.buffers_made++;
    g->count.fills += !b->host;
    g->count.bytes_allocated += b->n;
    *out = b;
    return 0;
}

static void cuda_free(struct gpu *g, struct gpu_buf *b)
{
    if (!b) return;
    g->cu.context_set(g->context);
    g->cu.stream_wait(g->stream); /* what clears or fills it may still be queued */
    if (b->host)
        g->cu.host_free(b->host);
    else
        g->cu.mem_free(b->ptr);
    g->count.bytes_allocated -= b->n;
    free(b);
}

static void *cuda_map(struct gpu_buf *b)
{
    return b->host;
}

static int cuda_write(struct gpu *g, struct gpu_buf *b, u64 offset, const void *src, u64 n,
                      struct err *err)
{
    CHECK(offset <= b->n && n <= b->n - offset);
    g->cu.context_set(g->context);
    g->count.copies++;
    int rc = failed(g, g->cu.mem_write(b->ptr + offset, src, n, g->stream), "writing", err);
    return rc ? rc : failed(g, g->cu.stream_wait(g->stream), "writing", err);
}

static int cuda_read(struct gpu *g, struct gpu_buf *b, u64 offset, void *dst, u64 n,
                     struct err *err)
{
    CHECK(offset <= b->n && n <= b->n - offset);
    g->cu.context_set(g->context);
    g->count.copies++;
    int rc = failed(g, g->cu.mem_read(dst, b->ptr + offset, n, g->stream), "reading", err);
    return rc ? rc : failed(g, g->cu.stream_wait(g->stream), "reading", err);
}

/* ---- kernels and lists ---- */

static int cuda_kernel(struct gpu *g, const char *name, u32 *id, struct err *err)
{
    g->cu.context_set(g->context);
    if (g->n_kernels == MAX_KERNELS)
        return err_set(err, FLETCH_E_LIMIT, "more than %d GPU kernels", MAX_KERNELS);
    for (u32 i = 0; i < g->n_modules; i++) {
        cu_result rc = g->cu.module_function(&g->kernels[g->n_kernels], g->modules[i], name);
        if (rc == CU_NOT_FOUND) continue;
        if (rc) return failed(g, rc, name, err);
        /* One division of the on-chip memory for all: kernels that differ can't share a unit. */
        g->cu.function_set(g->kernels[g->n_kernels], CU_FUNC_CARVEOUT, 100);
        g->count.kernels_made++;
        *id = g->n_kernels++;
        return 0;
    }
    return err_set(err, FLETCH_E_BACKEND, "the CUDA build has no kernel %s", name);
}

static cu_ptr address(struct gpu_ref r)
{
    CHECK(r.buf && r.offset <= r.buf->n);
    return r.buf->ptr + r.offset;
}

static cu_result add_kernel(struct gpu *g, cu_graph graph, const struct gpu_command *c,
                            cu_node *node)
{
    cu_ptr ptrs[GPU_MAX_BUFS];
    void *params[GPU_MAX_BUFS + 1];
    CHECK(c->n_bufs <= GPU_MAX_BUFS && c->kernel < g->n_kernels);
    for (u32 i = 0; i < c->n_bufs; i++) {
        ptrs[i] = address(c->bufs[i]);
        params[i] = &ptrs[i];
    }
    params[c->n_bufs] = (void *)(uintptr_t)c->args;
    struct cu_kernel_node k = {
        .function = g->kernels[c->kernel],
        .grid = {c->groups[0], c->groups[1], c->groups[2]},
        .block = {c->threads, 1, 1},
        .shared_bytes = c->tg_bytes,
        .params = params,
    };
    enum { MAX_WITHOUT_ASKING = 48 << 10 };
    if (c->tg_bytes > MAX_WITHOUT_ASKING) {
        cu_result rc = g->cu.function_set(k.function, CU_FUNC_MAX_SHARED, (int)c->tg_bytes);
        if (rc) return rc;
    }
    return g->cu.graph_kernel(node, graph, NULL, 0, &k);
}

/* A small copy is a kernel: that costs a step 1 to 2 µs, a copy node 7 (H200). */
static bool is_blit(const struct gpu *g, const struct gpu_command *c)
{
    return g->blit && c->n_bytes <= BLIT_MAX &&
           (address(c->src) | address(c->dst) | c->n_bytes) % 4 == 0;
}

static cu_result add_blit(struct gpu *g, cu_graph graph, const struct gpu_command *c, cu_node *node)
{
    cu_ptr src = address(c->src), dst = address(c->dst);
    struct blit_args args = {.n_words = (u32)(c->n_bytes / 4)};
    void *params[] = {&src, &dst, &args};
    struct cu_kernel_node k = {
        .function = g->blit,
        .grid = {MIN(BLIT_GROUPS, args.n_words / BLIT_THREADS + 1), 1, 1},
        .block = {BLIT_THREADS, 1, 1},
        .params = params,
    };
    return g->cu.graph_kernel(node, graph, NULL, 0, &k);
}

static cu_result add_copy(struct gpu *g, cu_graph graph, const struct gpu_command *c, cu_node *node)
{
    struct cu_copy_side src = {.memory_type = CU_MEMORY_UNIFIED, .device = address(c->src)};
    struct cu_copy_side dst = {.memory_type = CU_MEMORY_UNIFIED, .device = address(c->dst)};
    src.pitch = dst.pitch = c->n_bytes;
    src.height = dst.height = 1;
    struct cu_copy_node copy = {src, dst, c->n_bytes, 1, 1};
    return g->cu.graph_copy(node, graph, NULL, 0, &copy, g->context);
}

static cu_result add_command(struct gpu *g, cu_graph graph, const struct gpu_command *c,
                             cu_node *node, bool *is_kernel)
{
    *is_kernel = true;
    if (c->kind == GPU_LAUNCH) return add_kernel(g, graph, c, node);
    CHECK(c->n_bytes <= c->src.buf->n - c->src.offset);
    CHECK(c->n_bytes <= c->dst.buf->n - c->dst.offset);
    if (is_blit(g, c)) return add_blit(g, graph, c, node);
    *is_kernel = false;
    return add_copy(g, graph, c, node);
}

static cu_result fill_graph(struct gpu *g, cu_graph graph, struct gpu_list *list)
{
    static const struct cu_edge whole = {0};
    static const struct cu_edge early = {CU_PORT_PROGRAMMATIC, 0, CU_EDGE_PROGRAMMATIC, {0}};
    cu_node last = NULL, node;
    bool was_kernel = false, is_kernel;
    for (u32 i = 0; i < list->n; i++) {
        const struct gpu_command *c = &list->commands[i];
        cu_result rc = add_command(g, graph, c, &node, &is_kernel);
        bool overlaps = g->api >= 90 && was_kernel && is_kernel;
        if (!rc && last)
            rc = g->cu.graph_depend(graph, &last, &node, overlaps ? &early : &whole, 1);
        if (rc) return rc;
        last = node;
        was_kernel = is_kernel;
        list->n_dispatches += c->kind == GPU_LAUNCH;
        list->n_copies += c->kind == GPU_COPY;
        list->n_barriers += i > 0 && c->after;
    }
    return 0;
}

static void cuda_drop(struct gpu *g, struct gpu_list *list)
{
    if (!list) return;
    g->cu.context_set(g->context);
    if (list->exec) g->cu.graph_exec_destroy(list->exec);
    free(list->commands);
    free(list);
}

/* Estimates, from what cuMemGetInfo told around 128 graphs of 1 to 1000 kernels with 320 bytes of
 * parameters each, in chains of programmatic edges (H200, driver 580): 14 MB once, then 1.9 to 2.6
 * KB for each kernel. Dropped graphs leave it to later ones. */
enum { GRAPHS_BASE = 16 << 20, GRAPH_BYTES = 8 << 10, GRAPH_NODE_BYTES = 2560 };

static u64 cuda_list_bytes(u32 n)
{
    return GRAPH_BYTES + (u64)n * GRAPH_NODE_BYTES;
}

static int cuda_record(struct gpu *g, struct gpu_list **out, const struct gpu_command *c, u32 n,
                       struct err *err)
{
    *out = NULL;
    struct gpu_list *list = calloc(1, sizeof *list);
    cu_graph graph = NULL;
    if (list) list->commands = calloc(MAX(n, 1), sizeof *c);
    if (!list || !list->commands) {
        cuda_drop(g, list);
        return err_nomem(err, "a list of GPU commands");
    }
    memcpy(list->commands, c, n * sizeof *c);
    list->n = n;
    g->cu.context_set(g->context);
    cu_result rc = g->cu.graph_create(&graph, 0);
    if (!rc) rc = fill_graph(g, graph, list);
    if (!rc) rc = g->cu.graph_instantiate(&list->exec, graph, 0);
    if (graph) g->cu.graph_destroy(graph);
    if (rc) {
        cuda_drop(g, list);
        return failed(g, rc, "recording a list", err);
    }
    g->count.lists_made++;
    *out = list;
    return 0;
}

static int cuda_submit(struct gpu *g, struct gpu_list *list, struct err *err)
{
    CHECK(g->count.submissions - g->count.waits < MAX_QUEUED);
    g->cu.context_set(g->context);
    cu_result rc = g->cu.graph_launch(list->exec, g->stream);
    if (!rc) rc = g->cu.event_record(g->done[g->count.submissions % MAX_QUEUED], g->stream);
    if (rc) return failed(g, rc, "submitting a step", err);
    g->count.submissions++;
    g->count.dispatches += list->n_dispatches;
    g->count.copies += list->n_copies;
    g->count.barriers += list->n_barriers;
    return 0;
}

static int cuda_wait(struct gpu *g, struct err *err)
{
    CHECK(g->count.waits < g->count.submissions);
    g->cu.context_set(g->context);
    cu_event done = g->done[g->count.waits % MAX_QUEUED];
    g->count.waits++;
    return failed(g, g->cu.event_wait(done), "a step", err);
}

/* ---- profile ---- */

/* The commands one after another in a graph of their own, with an event between any two: the host
 * is not in it, a time includes what a start and an end cost. */
static cu_result time_graph(struct gpu *g, cu_graph graph, const struct gpu_list *list,
                            const cu_event *events)
{
    static const struct cu_edge whole = {0};
    cu_node last = NULL, node;
    for (u32 i = 0; i <= list->n; i++) {
        cu_result rc = g->cu.graph_event(&node, graph, &last, last != NULL, events[i]);
        if (rc || i == list->n) return rc;
        last = node;
        bool is_kernel;
        rc = add_command(g, graph, &list->commands[i], &node, &is_kernel);
        if (!rc) rc = g->cu.graph_depend(graph, &last, &node, &whole, 1);
        if (rc) return rc;
        last = node;
    }
    return 0;
}

static int cuda_profile(struct gpu *g, struct gpu_list *list, double *us, struct err *err)
{
    cu_event *events = calloc(list->n + 1, sizeof(cu_event));
    cu_graph graph = NULL;
    cu_graph_exec exec = NULL;
    if (!events) return err_nomem(err, "the profile");
    g->cu.context_set(g->context);
    cu_result rc = g->cu.graph_create(&graph, 0);
    for (u32 i = 0; !rc && i <= list->n; i++) rc = g->cu.event_create(&events[i], 0);
    if (!rc) rc = time_graph(g, graph, list, events);
    if (!rc) rc = g->cu.graph_instantiate(&exec, graph, 0);
    if (!rc) rc = g->cu.graph_launch(exec, g->stream);
    if (!rc) rc = g->cu.stream_wait(g->stream);
    for (u32 i = 0; !rc && i < list->n; i++) {
        float ms = 0;
        rc = g->cu.event_elapsed(&ms, events[i], events[i + 1]);
        us[i] = (double)ms * 1e3;
    }
    if (exec) g->cu.graph_exec_destroy(exec);
    if (graph) g->cu.graph_destroy(graph);
    for (u32 i = 0; i <= list->n; i++)
        if (events[i]) g->cu.event_destroy(events[i]);
    free(events);
    return failed(g, rc, "profiling a list", err);
}

const struct gpu_driver driver_cuda = {
    .name = "cuda",
    .least = {.joins = true, .walks = true},
    .most = {.joins = true, .walks = true, .native = true, .bulk = true, .clusters = true},
    .lists_base = GRAPHS_BASE,
    .list_bytes = cuda_list_bytes,
    .absent = cuda_absent,
    .open = cuda_open,
    .close = cuda_close,
    .info = cuda_info,
    .reside = cuda_reside,
    .counters = cuda_counters,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .map = cuda_map,
    .write = cuda_write,
    .read = cuda_read,
    .kernel = cuda_kernel,
    .record = cuda_record,
    .drop = cuda_drop,
    .submit = cuda_submit,
    .wait = cuda_wait,
    .profile = cuda_profile,
};
