/* Machines that fletch plan --device knows. Bandwidth, memory and number of cores are what their
 * makers publish for the largest configuration of the name (for H100 the SXM module, for H200 the
 * one all measurements of docs/gpu.md are from); clocks of NVIDIA's are the published boost clocks,
 * those of Apple's are not published and are rounded from what others measured. */
#include <string.h>

#include "base/buf.h"
#include "engine/predict.h"

#define APPLE(id, chip, gbs, gib, cores, ghz)                              \
    {                                                                      \
        id, "Apple " chip, "metal", LINK_METAL, gbs, gib, 0.75, cores, ghz \
    }
#define NVIDIA(id, chip, link, gbs, gib, units, ghz)                 \
    {                                                                \
        id, "NVIDIA " chip, "cuda", link, gbs, gib, 0.95, units, ghz \
    }

const struct machine machines[] = {
    APPLE("m1", "M1", 68, 16, 8, 1.3),
    APPLE("m1-max", "M1 Max", 400, 64, 32, 1.3),
    APPLE("m2", "M2", 100, 24, 10, 1.4),
    APPLE("m2-pro", "M2 Pro", 200, 32, 19, 1.4),
    APPLE("m2-ultra", "M2 Ultra", 800, 192, 76, 1.4),
    APPLE("m3", "M3", 100, 24, 10, 1.4),
    APPLE("m3-pro", "M3 Pro", 150, 36, 18, 1.4),
    APPLE("m3-max", "M3 Max", 400, 128, 40, 1.4),
    APPLE("m4", "M4", 120, 32, 10, 1.5),
    APPLE("m4-pro", "M4 Pro", 273, 64, 20, 1.5),
    APPLE("m4-max", "M4 Max", 546, 128, 40, 1.5),
    APPLE("m5", "M5", 153, 32, 10, 1.6),
    APPLE("m5-max", "M5 Max", 614, 128, 40, 1.6),
    NVIDIA("rtx-4090", "RTX 4090", LINK_GRAPH, 1008, 24, 128, 2.52),
    NVIDIA("h100", "H100", LINK_DEPENDENT, 3350, 80, 132, 1.98),
    NVIDIA("h200", "H200", LINK_DEPENDENT, 4800, 140, 132, 1.98),
    {0},
};

const struct machine *machine_find(const char *name, struct err *err)
{
    struct buf names = {0};
    for (const struct machine *m = machines; m->name; m++) {
        if (strcmp(m->name, name) == 0) {
            buf_free(&names);
            return m;
        }
        buf_putc(&names, ' ');
        buf_puts(&names, m->name);
    }
    err_set(err, FLETCH_E_ARG, "unknown device %s; known are%s", QUOTE(str_of(name)),
            names.failed ? "" : names.p);
    buf_free(&names);
    return NULL;
}

struct exec_device machine_device(const struct machine *m)
{
    bool cuda = strcmp(m->backend, "cuda") == 0, hopper = m->link == LINK_DEPENDENT;
    return (struct exec_device){.known = true,
                                .available = machine_memory(m),
                                .n_units = m->n_units,
                                .native = cuda,
                                .bulk = hopper,
                                .clusters = hopper,
                                .walks = cuda};
}

u64 machine_memory(const struct machine *m)
{
    return (u64)(m->gib * m->part * (1 << 30));
}
