#include "gpu/bandwidth.h"

#include <string.h>

#include "gpu/args.h"

enum { LAUNCHES = 4, TIMES = 5, GROUP_BYTES = READ_THREADS * READ_AHEAD * 16 };
static const u64 least = 16 << 20, most = 1 << 30;
static const double long_enough = 4e-3; /* seconds of a launch, beside which submitting is little */

/* Seconds in which LAUNCHES launches read n bytes each: the best of several times. */
static int time_list(const struct gpu_driver *d, struct gpu *g, const struct gpu_list *list,
                     double *seconds, struct err *err)
{
    int rc = 0;
    *seconds = 1e9;
    for (u32 i = 0; i < TIMES && !rc; i++) {
        double began = base_now();
        rc = d->submit(g, (struct gpu_list *)(uintptr_t)list, err);
        if (!rc) rc = d->wait(g, err);
        *seconds = MIN(*seconds, base_now() - began);
    }
    return rc;
}

static int time_reading(const struct gpu_driver *d, struct gpu *g, u32 kernel, u64 n,
                        double *seconds, struct err *err)
{
    struct gpu_command c[LAUNCHES];
    struct read_args a = {(u32)(n / 16)};
    struct gpu_buf *x = NULL, *y = NULL;
    struct gpu_list *list = NULL;
    int rc = d->alloc(g, &x, n, GPU_DEVICE, err); /* zeros */
    if (!rc) rc = d->alloc(g, &y, READ_THREADS * sizeof(u32), GPU_DEVICE, err);
    for (u32 i = 0; i < LAUNCHES; i++) {
        c[i] = (struct gpu_command){.kind = GPU_LAUNCH,
                                    .after = true,
                                    .kernel = kernel,
                                    .groups = {(u32)(n / GROUP_BYTES), 1, 1},
                                    .threads = READ_THREADS,
                                    .n_bufs = 2,
                                    .bufs = {{x, 0}, {y, 0}},
                                    .n_args = sizeof a};
        memcpy(c[i].args, &a, sizeof a);
    }
    if (!rc) rc = d->record(g, &list, c, LAUNCHES, err);
    if (!rc) rc = time_list(d, g, list, seconds, err);
    *seconds /= (double)LAUNCHES;
    if (list) d->drop(g, list);
    if (y) d->free(g, y);
    if (x) d->free(g, x);
    return rc;
}

int gpu_measure_reading(const struct gpu_driver *d, u32 device, struct gpu_reading *out,
                        struct err *err)
{
    struct gpu *g;
    struct gpu_info info;
    u32 kernel;
    double seconds = 0;
    *out = (struct gpu_reading){0};
    int rc = d->open(&g, device, err);
    if (rc) return rc;
    d->info(g, &info);
    u64 room = MIN(MIN(info.memory_free / 4, info.max_buffer), most);
    rc = d->kernel(g, "k_read", &kernel, err);
    for (u64 n = least; !rc && n <= MAX(room, least) && seconds < long_enough; n *= 4) {
        rc = time_reading(d, g, kernel, n, &seconds, err);
        if (!rc) *out = (struct gpu_reading){(double)n / seconds * 1e-9, n};
    }
    d->close(g);
    return rc;
}
