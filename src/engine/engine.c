/* Engines: which backend, and the small public functions that belong nowhere else. */
#include "engine/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/convert.h"
#include "cpu/cpu.h"
#include "ref/ref.h"

/* In order of preference. */
static const struct backend_state backends[] = {
    {"metal", NULL, "not built in yet"},
    {"cuda", NULL, "not built in yet"},
    {"cpu", &cpu_exec, "packed weights and vector kernels on all cores"},
    {"ref", &ref_exec, "plain C: the definition of every op, exact and slow"},
    {"emu", NULL, "not built in yet"},
};

const struct backend_state *backend_list(size_t *n)
{
    *n = ARRAY_LEN(backends);
    return backends;
}

const struct exec_class *backend_find(const char *name, struct err *err)
{
    for (size_t i = 0; i < ARRAY_LEN(backends); i++) {
        if (strcmp(name, backends[i].name) != 0) continue;
        if (!backends[i].class)
            err_set(err, FLETCH_E_BACKEND, "backend '%s' is %s; use --backend cpu", name,
                    backends[i].why);
        return backends[i].class;
    }
    err_set(err, FLETCH_E_ARG, "unknown backend %s (auto, metal, cuda, cpu, ref or emu)",
            QUOTE(str_of(name)));
    return NULL;
}

int fletch_engine_open(struct fletch_engine **out, const struct fletch_engine_params *params)
{
    struct fletch_engine *e = *out = calloc(1, sizeof *e);
    if (!e) return FLETCH_E_NOMEM;
    const char *name = params && params->backend ? params->backend : "auto";
    e->n_threads = params ? params->n_threads : 0;
    if (strcmp(name, "auto") == 0) {
        e->class = &cpu_exec;
        snprintf(e->backend, sizeof e->backend, "cpu (%s): no GPU backend is built in yet",
                 cpu_isa());
        return 0;
    }
    e->class = backend_find(name, &e->err);
    if (!e->class) return e->err.code;
    snprintf(e->backend, sizeof e->backend, "%s: asked for", name);
    return 0;
}

void fletch_engine_close(struct fletch_engine *e)
{
    free(e);
}

const char *fletch_engine_error(const struct fletch_engine *e)
{
    return e ? e->err.text : "out of memory";
}

const char *fletch_engine_backend(const struct fletch_engine *e)
{
    return e->backend;
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
    return "fletch " FLETCH_VERSION " (" COMPILER "; backends: cpu, ref)";
}

void fletch_free(void *p)
{
    free(p);
}

int fletch_convert(struct fletch_engine *e, const char *in, const char *out, const char *type,
                   fletch_progress progress, void *ctx)
{
    return convert_run(in, out, type, e->n_threads, progress, ctx, &e->err);
}
