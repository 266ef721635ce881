/* Synthetic models behind the public interface. */
#include <jansson.h>

#include "engine/engine.h"
#include "engine/report.h"
#include "model/synth.h"

int fletch_synth(struct fletch_engine *e, const char *out, const struct fletch_synth *s,
                 fletch_progress progress, void *ctx)
{
    if (!e || !e->class) return FLETCH_E_ARG;
    int rc = engine_need(&e->err, out, "the path of the new file");
    if (!rc) rc = engine_need(&e->err, s, "the parameters");
    if (!rc) rc = engine_need(&e->err, s->shape, "the shape");
    if (!rc) rc = engine_need(&e->err, s->type, "the storage type");
    if (rc) return rc;
    struct synth_params params = {.shape = synth_find(s->shape),
                                  .type = s->type,
                                  .n_layers = s->n_layers,
                                  .seed = s->seed,
                                  .n_threads = e->n_threads,
                                  .progress = progress,
                                  .ctx = ctx};
    if (!params.shape)
        return err_set(&e->err, FLETCH_E_ARG, "unknown shape %s; see fletch synth --list",
                       QUOTE(str_of(s->shape)));
    return synth_run(out, &params, &e->err);
}

int fletch_synth_shapes(struct fletch_engine *e, char **json)
{
    int rc = engine_need_report(e, "", json);
    if (rc) return rc;
    json_t *list = json_array();
    for (const struct synth_shape *s = synth_shapes; s->name; s++) {
        struct source *decl;
        u64 n = 0;
        rc = synth_declare(&decl, s, 0, &e->err);
        if (rc) {
            json_decref(list);
            return rc;
        }
        for (u32 i = 0; i < decl->n_tensors; i++) n += decl->tensors[i].n_elems;
        json_array_append_new(list,
                              json_pack("{s:s, s:s, s:I, s:I, s:I}", "name", s->name, "arch",
                                        s->arch, "n_layers", (json_int_t)s->n_layers, "n_params",
                                        (json_int_t)n, "n_tensors", (json_int_t)decl->n_tensors));
        source_close(decl);
    }
    return report_give(json_pack("{s:o}", "shapes", list), json, &e->err);
}
