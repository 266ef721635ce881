/* Layouts of launches (gpu/layout.h) that suit a device: layouts.c keeps them in files, one for
 * each device, and gives them to models that are opened; tune.c finds them. */
#ifndef FLETCH_TUNE_H
#define FLETCH_TUNE_H

#include "engine/engine.h"
#include "gpu/gpu.h"

/* What the file of a device holds; the table is empty where there is none. An error leaves it empty
 * too, and its text names the file. */
struct tuned {
    char path[4096]; /* "": the engine has no folder for them */
    struct layouts layouts;
};
int tuned_open(struct tuned *t, const struct fletch_engine *e, const struct gpu_driver *d,
               const char *device, struct err *err);
int tuned_save(const struct tuned *t, const struct gpu_driver *d, const char *device,
               struct err *err);

/* Gives an executor what was tuned for its device. What is wrong with the file is told of and
 * changes nothing. */
void engine_lay_out(const struct fletch_engine *e, struct exec *x,
                    const struct fletch_model_params *params);

#endif
