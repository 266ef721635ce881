/* The GPU on the CPU: gpu.c's third driver. Work is done when it is waited for, not when it is
 * submitted, so that a wait that was forgotten shows. driver_emu runs the fast kernels,
 * driver_emu_checked those that look at every access. */
#include "gpu/driver.h"

#include <stdlib.h>
#include <string.h>

#include "base/os.h"
#include "gpu/emu/emu.h"

enum { MAX_KERNELS = 512, MAX_QUEUED = 64 };

struct gpu_buf {
    struct emu_buffer mem;
    void *base; /* where mem, which is aligned, was taken from */
    enum gpu_memory where;
};

struct gpu_list {
    u32 n;
    struct gpu_command commands[];
};

struct gpu {
    struct emulator *emu;
    bool checked;
    u32 n_kernels;
    const struct emu_kernel *kernels[MAX_KERNELS];
    u32 n_queued;
    const struct gpu_list *queue[MAX_QUEUED];
    struct gpu_counters did;
};

static const char *dev_absent(void)
{
    return NULL;
}

static int open_mode(struct gpu **out, u32 device, bool checked, struct err *err)
{
    *out = NULL;
    if (device != 0) return err_set(err, FLETCH_E_ARG, "the emulator has device 0 only");
    struct gpu *g = calloc(1, sizeof *g);
    if (!g) return err_nomem(err, "emulator");
    g->checked = checked;
    int rc = emu_open(&g->emu, checked ? 1 : 0, err);
    if (rc < 0) {
        free(g);
        return rc;
    }
    *out = g;
    return 0;
}

static int open_fast(struct gpu **out, u32 device, struct err *err)
{
    return open_mode(out, device, false, err);
}

static int open_checked(struct gpu **out, u32 device, struct err *err)
{
    return open_mode(out, device, true, err);
}

static void dev_close(struct gpu *g)
{
    if (!g) return;
    emu_close(g->emu);
    free(g);
}

static void dev_info(struct gpu *g, struct gpu_info *out)
{
    u64 memory = os_memory_bytes();
    *out = (struct gpu_info){
        .memory = memory, .memory_free = memory, .max_buffer = memory, .caps = driver_emu.least};
    /* A group is dear here: few that go round make a token in a fifth of the time. Checked kernels
     * run as on devices that want one for each piece. */
    out->caps.n_units = 2;
    out->caps.walks = !g->checked;
    strcpy(out->name, g->checked ? "emulator, checked" : "emulator");
}

/* Loops stand for what a newer device has. */
static void dev_info_metal(struct gpu *g, struct gpu_info *out)
{
    dev_info(g, out);
    out->caps = driver_emu_metal.most;
    out->caps.n_units = 2;
}

static void dev_counters(const struct gpu *g, struct gpu_counters *out)
{
    *out = g->did;
    out->bytes_read = emu_bytes_read(g->emu);
    out->tg_bytes = emu_tg_bytes(g->emu);
}

static void dev_free(struct gpu *g, struct gpu_buf *b)
{
    if (!b) return;
    g->did.bytes_allocated -= b->mem.n;
    emu_shadow_free(b->mem.shadow);
    free(b->base);
    free(b);
}

static int dev_alloc(struct gpu *g, struct gpu_buf **out, u64 n, enum gpu_memory where,
                     struct err *err)
{
    *out = NULL;
    enum { ALIGN = 256 };
    u64 size;
    struct gpu_buf *b = calloc(1, sizeof *b);
    if (!b || !ck_align_up(n, ALIGN, &size)) goto fail;
    b->where = where;
    b->base = calloc(size / ALIGN + 1, ALIGN); /* pages that nobody touches are never made */
    if (b->base) b->mem.p = (u8 *)ROUND_UP((uintptr_t)b->base, ALIGN);
    if (b->mem.p && g->checked) b->mem.shadow = emu_shadow_new(n);
    if (!b->mem.p || (g->checked && !b->mem.shadow)) goto fail;
    b->mem.n = n;
    g->did.bytes_allocated += n;
    g->did.buffers_made++;
    *out = b;
    return 0;
fail:
    if (b) free(b->base);
    free(b);
    return err_nomem(err, "emulated device memory");
}

static void *dev_map(struct gpu_buf *b)
{
    return b->where == GPU_DEVICE ? NULL : b->mem.p;
}

static bool inside(const struct gpu_buf *b, u64 offset, u64 n)
{
    return offset <= b->mem.n && n <= b->mem.n - offset;
}

static int dev_write(struct gpu *g, struct gpu_buf *b, u64 offset, const void *src, u64 n,
                     struct err *err)
{
    (void)err;
    CHECK(inside(b, offset, n) && g->n_queued == 0);
    if (n > 0) memcpy(b->mem.p + offset, src, n);
    return 0;
}

static int dev_read(struct gpu *g, struct gpu_buf *b, u64 offset, void *dst, u64 n, struct err *err)
{
    (void)err;
    CHECK(inside(b, offset, n) && g->n_queued == 0);
    if (n > 0) memcpy(dst, b->mem.p + offset, n);
    return 0;
}

static int dev_kernel(struct gpu *g, const char *name, u32 *id, struct err *err)
{
    const struct emu_kernel *k = emu_find(g->checked ? emu_checked : emu_fast, name);
    if (!k) return err_set(err, FLETCH_E_UNSUPPORTED, "there is no kernel %s", name);
    CHECK(g->n_kernels < MAX_KERNELS);
    *id = g->n_kernels++;
    g->kernels[*id] = k;
    g->did.kernels_made++;
    return 0;
}

/* A list is wrong only by a mistake of ours, but a clear text finds it sooner than a crash. */
static int check_command(const struct gpu *g, const struct gpu_command *c, struct err *err)
{
    if (c->kind == GPU_COPY) {
        if (inside(c->dst.buf, c->dst.offset, c->n_bytes) &&
            inside(c->src.buf, c->src.offset, c->n_bytes))
            return 0;
        return err_set(err, FLETCH_E_INTERNAL, "copy of %llu bytes beyond its buffers",
                       (unsigned long long)c->n_bytes);
    }
    CHECK(c->kernel < g->n_kernels);
    const struct emu_kernel *k = g->kernels[c->kernel];
    if (c->n_bufs > GPU_MAX_BUFS || c->n_bufs != k->n_bufs || c->n_args != k->n_args)
        return err_set(err, FLETCH_E_INTERNAL,
                       "kernel %s takes %u buffers and %u bytes of arguments, given %u and %u",
                       k->name, k->n_bufs, k->n_args, c->n_bufs, c->n_args);
    if (c->threads == 0 || c->threads % EMU_SIMD != 0 || c->threads > k->max_threads)
        return err_set(err, FLETCH_E_INTERNAL, "kernel %s takes up to %u threads, given %u",
                       k->name, k->max_threads, c->threads);
    for (u32 i = 0; i < c->n_bufs; i++)
        if (!c->bufs[i].buf || !inside(c->bufs[i].buf, c->bufs[i].offset, 0))
            return err_set(err, FLETCH_E_INTERNAL, "kernel %s: nothing at binding %u", k->name, i);
    return 0;
}

static u64 dev_list_bytes(u32 n)
{
    return sizeof(struct gpu_list) + n * sizeof(struct gpu_command);
}

static int dev_record(struct gpu *g, struct gpu_list **out, const struct gpu_command *c, u32 n,
                      struct err *err)
{
    *out = NULL;
    for (u32 i = 0; i < n; i++) {
        int rc = check_command(g, c + i, err);
        if (rc < 0) return rc;
    }
    struct gpu_list *list = malloc(dev_list_bytes(n));
    if (!list) return err_nomem(err, "command list");
    list->n = n;
    if (n > 0) memcpy(list->commands, c, n * sizeof *c);
    g->did.lists_made++;
    g->did.bytes_allocated += dev_list_bytes(n);
    *out = list;
    return 0;
}

static void dev_drop(struct gpu *g, struct gpu_list *list)
{
    for (u32 i = 0; i < g->n_queued; i++) CHECK(g->queue[i] != list);
    if (list) g->did.bytes_allocated -= dev_list_bytes(list->n);
    free(list);
}

static struct emu_bind bound(struct gpu_ref r)
{
    return (struct emu_bind){r.buf->mem, r.offset};
}

static int run_command(struct gpu *g, const struct gpu_command *c, bool first, struct err *err)
{
    g->did.barriers += c->after && !first;
    if (c->kind == GPU_COPY) {
        g->did.copies++;
        return emu_copy(g->emu, bound(c->dst), bound(c->src), c->n_bytes, c->after || first, err);
    }
    struct emu_bind binds[GPU_MAX_BUFS + 1];
    for (u32 i = 0; i < c->n_bufs; i++) binds[i] = bound(c->bufs[i]);
    u8 args[GPU_MAX_ARGS];
    memcpy(args, c->args, c->n_args);
    binds[c->n_bufs] = (struct emu_bind){.buf = {.p = args, .n = c->n_args}};
    struct emu_launch l = {.kernel = g->kernels[c->kernel],
                           .groups = {c->groups[0], c->groups[1], c->groups[2]},
                           .threads = c->threads,
                           .binds = binds,
                           .after = c->after || first};
    g->did.dispatches++;
    return emu_run(g->emu, &l, err);
}

static int dev_submit(struct gpu *g, struct gpu_list *list, struct err *err)
{
    if (g->n_queued == MAX_QUEUED)
        return err_set(err, FLETCH_E_LIMIT, "%d lists are pending, none waited for", MAX_QUEUED);
    g->queue[g->n_queued++] = list;
    g->did.submissions++;
    return 0;
}

static int dev_wait(struct gpu *g, struct err *err)
{
    g->did.waits++;
    if (g->n_queued == 0) return 0;
    const struct gpu_list *list = g->queue[0];
    memmove(g->queue, g->queue + 1, --g->n_queued * sizeof g->queue[0]);
    for (u32 i = 0; i < list->n; i++) {
        int rc = run_command(g, list->commands + i, i == 0, err);
        if (rc < 0) return err_prefix(err, "command %u", i), rc;
    }
    return 0;
}

static int dev_profile(struct gpu *g, struct gpu_list *list, double *us, struct err *err)
{
    CHECK(g->n_queued == 0);
    for (u32 i = 0; i < list->n; i++) {
        double began = base_now();
        int rc = run_command(g, list->commands + i, true, err);
        if (rc < 0) return rc;
        us[i] = (base_now() - began) * 1e6;
    }
    return 0;
}

#define EMU_CAPS(as_metal, tensor_ops)                                                \
    {                                                                                 \
        .joins = !(as_metal), .unstaged = as_metal, .attn_heads = (as_metal) ? 2 : 0, \
        .tensor = tensor_ops                                                          \
    }
#define DRIVER_EMU(mode_name, mode_open, as_metal)                                           \
    {                                                                                        \
        .name = mode_name, .least = EMU_CAPS(as_metal, false),                               \
        .most = EMU_CAPS(as_metal, as_metal), .unified = true, .list_bytes = dev_list_bytes, \
        .absent = dev_absent, .open = mode_open, .close = dev_close,                         \
        .info = (as_metal) ? dev_info_metal : dev_info,                                      \
                                                                                             \
        .counters = dev_counters, .alloc = dev_alloc, .free = dev_free, .map = dev_map,      \
        .write = dev_write, .read = dev_read, .kernel = dev_kernel, .record = dev_record,    \
        .drop = dev_drop, .submit = dev_submit, .wait = dev_wait, .profile = dev_profile,    \
    }

const struct gpu_driver driver_emu = DRIVER_EMU("emu", open_fast, false);
const struct gpu_driver driver_emu_checked = DRIVER_EMU("emu-checked", open_checked, false);
const struct gpu_driver driver_emu_metal = DRIVER_EMU("emu-metal", open_checked, true);
