/* Engines: which backend, and the small public functions that belong nowhere else. */
#include "engine/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/convert.h"
#include "cpu/blas.h"
#include "cpu/cpu.h"
#include "cpu/kernels.h"
#include "gpu/gpu.h"
#include "ref/ref.h"

static const struct exec_class *ref_class(const char *isa)
{
    return isa ? NULL : &ref_exec;
}

/* In order of preference; the last two only when asked for. */
static const struct backend_state backends[] = {
    {"metal", NULL, "Apple GPUs, one command buffer per step"},
    {"cuda", NULL, "NVIDIA GPUs, one graph launch per step"},
    {"cpu", cpu_class, "packed weights and vector kernels on all cores"},
    {"ref", ref_class, "the reference implementation in plain C; exact but slow"},
    {"emu", NULL, "an emulator that runs the GPU kernels on the CPU, for tests; slow"},
};

const struct backend_state *backend_list(size_t *n)
{
    *n = ARRAY_LEN(backends);
    return backends;
}

const char *backend_absent(const struct backend_state *b)
{
    return b->find ? NULL : gpu_absent(b->name);
}

static const struct exec_class *class_of(const struct backend_state *b, const char *isa)
{
    return b->find ? b->find(isa) : isa ? NULL : gpu_class(b->name);
}

const struct exec_class *backend_find(const char *name, const char *isa, struct err *err)
{
    for (size_t i = 0; i < ARRAY_LEN(backends); i++) {
        if (strcmp(name, backends[i].name) != 0) continue;
        const char *why = backend_absent(&backends[i]);
        const struct exec_class *class = class_of(&backends[i], isa);
        if (why)
            err_set(err, FLETCH_E_BACKEND, "backend '%s' is not available: %s; use --backend cpu",
                    name, why);
        else if (!class)
            err_set(err, FLETCH_E_ARG,
                    "backend %s cannot use instruction set %s on this machine; fletch doctor lists "
                    "the supported instruction sets",
                    name, QUOTE(str_of(isa)));
        return why ? NULL : class;
    }
    err_set(err, FLETCH_E_ARG, "unknown backend %s (auto, metal, cuda, cpu, ref or emu)",
            QUOTE(str_of(name)));
    return NULL;
}

/* The first that works, and why the better ones don't. */
static void choose(struct fletch_engine *e, const char *isa)
{
    const char *why = NULL;
    size_t i = 0;
    for (; backends[i].find == NULL && (isa || backend_absent(&backends[i])); i++)
        why = backend_absent(&backends[i]);
    e->class = backend_find(backends[i].name, isa, &e->err);
    snprintf(e->backend, sizeof e->backend, "%s%s",
             why ? "no GPU, because " : "the best backend available", why ? why : "");
}

int engine_need(struct err *err, const void *p, const char *what)
{
    return p ? 0 : err_set(err, FLETCH_E_ARG, "%s is NULL", what);
}

int engine_need_all(struct err *err, const void *p, size_t n, const char *what)
{
    return p || !n ? 0 : err_set(err, FLETCH_E_ARG, "%s is NULL, but its length is %zu", what, n);
}

int engine_need_report(struct fletch_engine *e, const char *path, char **json)
{
    if (json) *json = NULL;
    if (!e || !e->class) return FLETCH_E_ARG; /* its text says why it did not open */
    int rc = engine_need(&e->err, json, "the address for the report");
    return rc ? rc : engine_need(&e->err, path, "the path of the model");
}

int engine_need_biases(struct err *err, const struct fletch_sampling *s)
{
    int rc = engine_need_all(err, s->bias_tokens, s->n_bias, "bias_tokens");
    return rc ? rc : engine_need_all(err, s->bias_values, s->n_bias, "bias_values");
}

int engine_need_stops(struct err *err, const char *const *stops, size_t n)
{
    int rc = engine_need_all(err, stops, n, "stops");
    for (size_t i = 0; !rc && i < n; i++) rc = engine_need(err, stops[i], "a stop text");
    return rc;
}

int fletch_engine_open(struct fletch_engine **out, const struct fletch_engine_params *params)
{
    if (!out) return FLETCH_E_ARG;
    struct fletch_engine *e = *out = calloc(1, sizeof *e);
    if (!e) return FLETCH_E_NOMEM;
    const char *name = params && params->backend ? params->backend : "auto";
    const char *isa = params ? params->isa : NULL;
    e->n_threads = params ? params->n_threads : 0;
    e->device = params ? params->device : 0;
    e->keep_alive = ENGINE_KEEP_ALIVE;
    if (params && params->keep_alive) e->keep_alive = (u32)MAX(params->keep_alive, 0);
    if (params && params->capture && !(e->capture = strdup(params->capture)))
        return err_nomem(&e->err, "the engine");
    if (params && params->tune_dir && !(e->tune_dir = strdup(params->tune_dir)))
        return err_nomem(&e->err, "the engine");
    char why[160] = "asked for";
    if (strcmp(name, "auto") == 0) {
        choose(e, isa);
        memcpy(why, e->backend, sizeof why);
    } else {
        e->asked = true;
        e->class = backend_find(name, isa, &e->err);
    }
    if (!e->class) return e->err.code;
    if (e->capture && !e->class->look)
        return err_set(&e->err, FLETCH_E_ARG, "backend '%s' does not support captures",
                       e->class->name);
    if (e->device && !e->class->look)
        return err_set(&e->err, FLETCH_E_ARG, "backend '%s' has only device 0", e->class->name);
    bool many = e->class->isa != NULL;
    snprintf(e->backend, sizeof e->backend, "%s%s%s%s: %.120s", e->class->name, many ? " (" : "",
             many ? e->class->isa : "", many ? ")" : "", why);
    return 0;
}

void fletch_engine_close(struct fletch_engine *e)
{
    if (!e) return;
    free(e->capture);
    free(e->tune_dir);
    free(e);
}

const char *fletch_engine_error(const struct fletch_engine *e)
{
    return e ? e->err.text : "out of memory";
}

const char *fletch_engine_backend(const struct fletch_engine *e)
{
    return e ? e->backend : "";
}

const char *fletch_strerror(int code)
{
    switch (code) {
    case FLETCH_OK: return "ok";
#define ERROR_TEXT(name, value, text) \
    case value: return text;
        FLETCH_ERRORS(ERROR_TEXT)
#undef ERROR_TEXT
    default: return "unknown error";
    }
}

#ifdef __clang__
#define COMPILER "clang " __clang_version__
#else
#define COMPILER "gcc " __VERSION__
#endif

const char *fletch_version(void)
{
    const char *isa = cpu_class(NULL)->isa;
#if defined __APPLE__
#define METAL "metal, "
#else
#define METAL ""
#endif
#define VERSION_OF(cuda, cpu) \
    "fletch " FLETCH_VERSION " (" COMPILER "; backends " METAL cuda "cpu (" cpu "), ref, emu)"
#define VERSION_ON(cpu) (gpu_has_cuda() ? VERSION_OF("cuda, ", cpu) : VERSION_OF("", cpu))
#define VERSION_WITH(set)       \
    if (strcmp(isa, #set) == 0) \
        return blas_name() ? VERSION_ON(#set " with BLAS") : VERSION_ON(#set);
    CPU_ISAS(VERSION_WITH)
#undef VERSION_WITH
#undef VERSION_ON
#undef VERSION_OF
#undef METAL
    return "fletch " FLETCH_VERSION;
}

void fletch_free(void *p)
{
    free(p);
}

int fletch_convert_with(struct fletch_engine *e, const char *in, const char *out, const char *type,
                        const struct fletch_convert_params *params)
{
    static const struct fletch_convert_params usual = {0};
    if (!e || !e->class) return FLETCH_E_ARG;
    int rc = engine_need(&e->err, in, "the path of the model");
    if (!rc) rc = engine_need(&e->err, out, "the path of the new file");
    if (!rc) rc = engine_need(&e->err, type, "the storage type");
    if (rc) return rc;
    return convert_run(in, out, type, e->n_threads, params ? params : &usual, &e->err);
}

int fletch_convert(struct fletch_engine *e, const char *in, const char *out, const char *type,
                   fletch_progress progress, void *ctx)
{
    const struct fletch_convert_params params = {.progress = progress, .ctx = ctx};
    return fletch_convert_with(e, in, out, type, &params);
}
