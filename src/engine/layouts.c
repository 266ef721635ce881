#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "engine/tune.h"

static struct layouts_for made_for(const struct gpu_driver *d, const char *device)
{
    return (struct layouts_for){d->name, device, layout_kernels()};
}

/* A device's name may hold anything; what is no letter or digit becomes a dash, and the file says
 * the name in full. */
static void find_path(struct tuned *t, const struct fletch_engine *e, const struct gpu_driver *d,
                      const char *device)
{
    int n = snprintf(t->path, sizeof t->path, "%s/layouts-%s-%s", e->tune_dir, d->name, device);
    size_t end = strlen(t->path), begin = end - MIN(end, strlen(device));
    if (n < 0 || (size_t)n >= sizeof t->path) t->path[0] = 0;
    for (size_t i = begin; t->path[0] && i < end; i++)
        if (!isalnum((unsigned char)t->path[i])) t->path[i] = '-';
}

int tuned_open(struct tuned *t, const struct fletch_engine *e, const struct gpu_driver *d,
               const char *device, struct err *err)
{
    char *text;
    size_t n;
    *t = (struct tuned){0};
    if (!e->tune_dir) return 0;
    find_path(t, e, d, device);
    if (!t->path[0] || !file_exists(t->path)) return 0;
    int rc = file_read(&text, &n, t->path, LAYOUTS_MAX_BYTES, err);
    if (rc) return rc;
    rc = layouts_read(&t->layouts, made_for(d, device), (struct str){text, n}, err);
    free(text);
    return rc ? err_prefix(err, "layouts in %s", QUOTE(str_of(t->path))) : 0;
}

/* The folder of a file. */
static int make_folder(const char *path, struct err *err)
{
    char folder[4096];
    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    if (slash) *slash = 0;
    return slash && folder[0] ? file_make_dir(folder, err) : 0;
}

int tuned_save(const struct tuned *t, const struct gpu_driver *d, const char *device,
               struct err *err)
{
    struct buf text = {0};
    struct file_out *f = NULL;
    layouts_write(&t->layouts, made_for(d, device), &text);
    int rc = text.failed ? err_nomem(err, "the layouts") : make_folder(t->path, err);
    if (!rc) rc = file_out_open(&f, t->path, FILE_SHARED, err);
    if (!rc) rc = file_out_write(f, text.p, text.n, err);
    if (!rc) rc = file_out_commit(f, err);
    file_out_close(f);
    buf_free(&text);
    return rc;
}

void engine_lay_out(const struct fletch_engine *e, struct exec *x,
                    const struct fletch_model_params *params)
{
    const struct gpu_driver *d = gpu_driver_of(x->class);
    struct gpu_info info;
    struct tuned t;
    struct err err;
    if (!d) return;
    gpu_device(x, &info);
    if (tuned_open(&t, e, d, info.name, &err)) {
        char text[sizeof err.text + 64];
        snprintf(text, sizeof text, "%s; using the default launch shapes", err.text);
        if (params && params->notice) params->notice(params->notice_ctx, text);
    }
    *gpu_layouts(x) = t.layouts;
}
