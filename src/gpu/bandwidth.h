/* How fast kernels of a device read its memory: what their rates are compared with. */
#ifndef FLETCH_BANDWIDTH_H
#define FLETCH_BANDWIDTH_H

#include "gpu/driver.h"

struct gpu_reading {
    double gbs; /* the best of several */
    u64 bytes;  /* of the buffer, which no cache should hold */
};

/* Opens the device for it. Memory: 16 MiB, up to 1 GiB where that is read in a few milliseconds. */
int gpu_measure_reading(const struct gpu_driver *d, u32 device, struct gpu_reading *out,
                        struct err *err);

#endif
