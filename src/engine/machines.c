/* Machines that fletch plan --device knows. Bandwidth, memory and number of cores are what their
 * makers publish for the largest configuration of the name (the SXM modules of A100 and H100; for
 * H200 the one all measurements of docs/gpu.md are from); clocks of NVIDIA's are the published
 * boost clocks, those of Apple's are not published and are rounded from what others measured. */
#include <ctype.h>
#include <string.h>

#include "base/buf.h"
#include "engine/predict.h"
#include "gpu/gpu.h"
#include "gpu/gpu_lists.h"

#define APPLE(id, chip, gbs, gib, cores, ghz)                             \
    {                                                                     \
        id, "Apple " chip, "metal", LINK_METAL, gbs, gib, cores, 128, ghz \
    }
#define NVIDIA(id, chip, link, gbs, gib, sms, lanes, ghz)           \
    {                                                               \
        id, "NVIDIA " chip, "cuda", link, gbs, gib, sms, lanes, ghz \
    }
#define RTX(number, chip, gbs, gib, sms, ghz) \
    NVIDIA("rtx-" number, "RTX " chip, LINK_GRAPH, gbs, gib, sms, 128, ghz)
/* No backend runs there: only memory is counted. */
#define OTHER(id, chip, gbs, gib)                      \
    {                                                  \
        id, chip, "cuda", LINK_NONE, gbs, gib, 0, 0, 0 \
    }

const struct machine machines[] = {
    APPLE("m1", "M1", 68, 16, 8, 1.3),
    APPLE("m1-pro", "M1 Pro", 200, 32, 16, 1.3),
    APPLE("m1-max", "M1 Max", 400, 64, 32, 1.3),
    APPLE("m1-ultra", "M1 Ultra", 800, 128, 64, 1.3),
    APPLE("m2", "M2", 100, 24, 10, 1.4),
    APPLE("m2-pro", "M2 Pro", 200, 32, 19, 1.4),
    APPLE("m2-max", "M2 Max", 400, 96, 38, 1.4),
    APPLE("m2-ultra", "M2 Ultra", 800, 192, 76, 1.4),
    APPLE("m3", "M3", 100, 24, 10, 1.4),
    APPLE("m3-pro", "M3 Pro", 150, 36, 18, 1.4),
    APPLE("m3-max", "M3 Max", 400, 128, 40, 1.4),
    APPLE("m3-ultra", "M3 Ultra", 819, 512, 80, 1.4),
    APPLE("m4", "M4", 120, 32, 10, 1.5),
    APPLE("m4-pro", "M4 Pro", 273, 64, 20, 1.5),
    APPLE("m4-max", "M4 Max", 546, 128, 40, 1.5),
    APPLE("m5", "M5", 153, 32, 10, 1.6),
    APPLE("m5-pro", "M5 Pro", 307, 64, 20, 1.6),
    APPLE("m5-max", "M5 Max", 614, 128, 40, 1.6),
    RTX("3060", "3060", 360, 12, 28, 1.78),
    RTX("3070", "3070", 448, 8, 46, 1.73),
    RTX("3080", "3080", 760, 10, 68, 1.71),
    RTX("3090", "3090", 936, 24, 82, 1.70),
    RTX("4060", "4060", 272, 8, 24, 2.46),
    RTX("4060-ti", "4060 Ti", 288, 16, 34, 2.54),
    RTX("4070", "4070", 504, 12, 46, 2.48),
    RTX("4080", "4080", 717, 16, 76, 2.51),
    RTX("4090", "4090", 1008, 24, 128, 2.52),
    RTX("5060", "5060", 448, 8, 30, 2.50),
    RTX("5060-ti", "5060 Ti", 448, 16, 36, 2.57),
    RTX("5070", "5070", 672, 12, 48, 2.51),
    RTX("5070-ti", "5070 Ti", 896, 16, 70, 2.45),
    RTX("5080", "5080", 960, 16, 84, 2.62),
    RTX("5090", "5090", 1792, 32, 170, 2.41),
    NVIDIA("a100", "A100", LINK_GRAPH, 2039, 80, 108, 64, 1.41),
    NVIDIA("h100", "H100", LINK_DEPENDENT, 3350, 80, 132, 128, 1.98),
    NVIDIA("h200", "H200", LINK_DEPENDENT, 4800, 140, 132, 128, 1.98),
    OTHER("mi300x", "AMD Instinct MI300X", 5300, 192),
    OTHER("arc-a770", "Intel Arc A770", 560, 16),
    OTHER("arc-b580", "Intel Arc B580", 456, 12),
    {0},
};

/* Is `name` how people may write id: in any case, with or without dashes, blanks and underscores?
 * Then 2; 1 where id only begins so. */
static int name_matches(const char *id, const char *name)
{
    for (;; id++, name++) {
        id += strspn(id, "-");
        name += strspn(name, "- _");
        if (!*name) return *id ? 1 : 2;
        if (tolower((unsigned char)*name) != *id) return 0;
    }
}

const struct machine *machine_find(const char *name, struct err *err)
{
    struct buf names = {0};
    const struct machine *found = NULL;
    u32 n = 0;
    for (const struct machine *m = machines; m->name; m++) {
        int match = *name ? name_matches(m->name, name) : 0;
        if (match == 2) {
            buf_free(&names);
            return m;
        }
        if (match) found = m;
        n += match != 0;
        buf_puts(&names, m == machines ? " " : ", ");
        buf_puts(&names, m->name);
    }
    if (n != 1)
        err_set(err, FLETCH_E_ARG, "unknown device %s; known devices:%s", QUOTE(str_of(name)),
                names.failed ? "" : names.p);
    buf_free(&names);
    return n == 1 ? found : NULL;
}

struct exec_device machine_device(const struct machine *m)
{
    const struct gpu_driver *d = gpu_driver_of(gpu_class(m->backend));
    struct device_caps caps = m->link == LINK_DEPENDENT ? d->most : gpu_least(d);
    caps.native = strcmp(m->backend, "cuda") == 0;
    caps.buffer = m->link == LINK_METAL ? machine_memory(m) / 40 : 0;
    caps.n_units = m->n_units;
    return (struct exec_device){true, machine_memory(m), caps};
}

/* Metal recommends a working set of two thirds of the memory below 36 GiB and three quarters from
 * there on (what it reports on Macs of 16, 24, 32, 36, 48, 64 and 96 GiB); a card keeps some for
 * its driver. */
u64 machine_memory(const struct machine *m)
{
    double part = m->link != LINK_METAL ? 0.95 : m->gib < 36 ? 2.0 / 3 : 0.75;
    return (u64)(m->gib * part * (1 << 30));
}
