/* Engines: which backend, and the small public functions that belong nowhere else. */
#include "engine/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/convert.h"
#include "cpu/cpu.h"
#include "cpu/kernels.h"
#include "ref/ref.h"

static const struct exec_class *ref_class(const char *isa)
{
    return isa ? NULL : &ref_exec;
}

/* In order of preference. */
static const struct backend_state backends[] = {
    {"metal", NULL, "not built in yet"},
    {"cuda", NULL, "not built in yet"},
    {"cpu", cpu_class, "packed weights and vector kernels on all cores"},
    {"ref", ref_class, "plain C: the definition of every op, exact and slow"},
    {"emu", NULL, "not built in yet"},
};

const struct backend_state *backend_list(size_t *n)
{
    *n = ARRAY_LEN(backends);
    return backends;
}

const struct exec_class *backend_find(const char *name, const char *isa, struct err *err)
{
    for (size_t i = 0; i < ARRAY_LEN(backends); i++) {
        if (strcmp(name, backends[i].name) != 0) continue;
        const struct exec_class *class = backends[i].find ? backends[i].find(isa) : NULL;
        if (!backends[i].find)
            err_set(err, FLETCH_E_BACKEND, "backend '%s' is %s; use --backend cpu", name,
                    backends[i].why);
        else if (!class)
            err_set(
                err, FLETCH_E_ARG,
                "backend %s can't use instruction set %s here; fletch doctor tells which it can",
                name, QUOTE(str_of(isa)));
        return class;
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
    bool chosen = strcmp(name, "auto") != 0;
    e->class = backend_find(chosen ? name : "cpu", params ? params->isa : NULL, &e->err);
    if (!e->class) return e->err.code;
    char isa[16] = "";
    if (e->class->isa) snprintf(isa, sizeof isa, " (%s)", e->class->isa);
    snprintf(e->backend, sizeof e->backend, "%s%s: %s", e->class->name, isa,
             chosen ? "asked for" : "no GPU backend is built in yet");
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
    const char *isa = cpu_class(NULL)->isa;
#define VERSION_WITH(set) \
    if (strcmp(isa, #set) == 0) return "fletch " FLETCH_VERSION " (" COMPILER "; cpu: " #set ")";
    CPU_ISAS(VERSION_WITH)
#undef VERSION_WITH
    return "fletch " FLETCH_VERSION;
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
