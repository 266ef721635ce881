#include "opened.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

const char *const opened_backends[2] = {"ref", "cpu"};

void opened_path(struct opened *o, const char *backend, const char *path,
                 const struct fletch_model_params *params)
{
    *o = (struct opened){0};
    assert_int_equal(fletch_engine_open(
                         &o->e, &(struct fletch_engine_params){.backend = backend, .n_threads = 1}),
                     0);
    if (fletch_model_open(&o->m, o->e, path, params))
        fail_msg("%s: %s", path, fletch_engine_error(o->e));
    if (fletch_session_open(&o->s, o->m)) fail_msg("%s", fletch_model_error(o->m));
}

void opened_tiny(struct opened *o, const char *backend, const struct tiny_model *tiny,
                 const struct fletch_model_params *params)
{
    char *path = tiny_model_path(tiny);
    opened_path(o, backend, path, params);
    o->path = path;
}

void opened_close(struct opened *o)
{
    fletch_session_close(o->s);
    fletch_model_close(o->m);
    fletch_engine_close(o->e);
    if (o->path) tiny_model_remove(o->path);
}

void expect_error(int rc, int code, const char *text, const char *part)
{
    if (rc != code || !strstr(text, part))
        fail_msg("%d '%s'; not %d ...%s...", rc, text, code, part);
    assert_true(*text && !strchr(text, '\n'));
}
