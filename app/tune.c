/* fletch tune: finds how a GPU's kernels lie best over it, for the sizes that a model has. */
#include "bench.h"

#include <stdlib.h>

static const struct opt tune_opts[] = {
    {'b', "batches", OPT_TEXT, "LIST", NULL, "numbers of sequences per step to tune for",
     OPT_FIELD(batches), 0, 0},
    {'d', "depth", OPT_COUNT, "N", "256",
     "number of tokens already in the context of each sequence", OPT_FIELD(n_ctx), 1, 65536},
    {'r', "rounds", OPT_COUNT, "N", "4",
     "number of comparisons that a launch shape must win before it is kept", OPT_FIELD(n_reps), 1,
     100},
    OPT_ROW_JSON,
};
static const struct opt_group tune_group = {NULL, OPT_TABLE(tune_opts)};

/* "512, 2 per SM": threads, groups, and rows at once or weight rows and quads where a kernel has a
 * choice of them. */
static void put_layout(struct table *t, const json_t *l)
{
    char groups[32] = "", columns[32] = "", outputs[64] = "";
    double per_unit = get_real(l, "groups_per_unit");
    uint64_t at_once = get_count(l, "columns"), n_outputs = get_count(l, "outputs");
    if (per_unit > 0) snprintf(groups, sizeof groups, ", %g per SM", per_unit);
    if (at_once) snprintf(columns, sizeof columns, ", %llu rows", (unsigned long long)at_once);
    if (n_outputs)
        snprintf(outputs, sizeof outputs, ", %llu outputs × %llu", (unsigned long long)n_outputs,
                 (unsigned long long)get_count(l, "quads"));
    table_put(t, "%llu%s%s%s", (unsigned long long)get_count(l, "threads"), groups, columns,
              outputs);
}

static void print_batch(const json_t *b)
{
    struct table t = {.columns = "lrrll"};
    const json_t *s;
    size_t i;
    double usual = get_real(b, "usual_tokens_per_s"), tuned = get_real(b, "tuned_tokens_per_s");
    printf("%llu sequence%s\n", (unsigned long long)get_count(b, "batch"),
           get_count(b, "batch") == 1 ? "" : "s");
    static const char *const heads[] = {"kernel", "outputs", "columns", "default threads, groups",
                                        "best"};
    for (i = 0; i < sizeof heads / sizeof *heads; i++) table_put(&t, "%s", heads[i]);
    json_array_foreach(json_object_get(b, "sites"), i, s)
    {
        const json_t *best = json_object_get(s, "best"), *was = json_object_get(s, "usual");
        table_put(&t, "%s", get_text(s, "kernel"));
        table_put(&t, "%llu", (unsigned long long)get_count(s, "n_out"));
        table_put(&t, "%llu", (unsigned long long)get_count(s, "n_in"));
        put_layout(&t, was);
        if (json_equal(best, was))
            table_put(&t, "the same");
        else
            put_layout(&t, best);
    }
    table_print(&t, stdout);
    printf("default %.1f tokens/s, tuned %.1f (%+.1f %%)%s\n\n", usual, tuned,
           usual > 0 ? 100 * (tuned / usual - 1) : 0, get_bool(b, "kept") ? "" : ": not kept");
}

static void print_tune(const json_t *j)
{
    const json_t *b;
    size_t i;
    printf("%s on %s, after %llu tokens: %llu launch shapes tried, %llu with different bits\n",
           get_text(j, "device"), get_text(j, "backend"), (unsigned long long)get_count(j, "depth"),
           (unsigned long long)get_count(j, "tried"), (unsigned long long)get_count(j, "wrong"));
    json_array_foreach(json_object_get(j, "batches"), i, b) print_batch(b);
    printf("%llu launch shapes saved to %s\n", (unsigned long long)get_count(j, "kept"),
           QUOTE(get_text(j, "file")));
}

static int tune(const struct args *a)
{
    struct host h = {0};
    struct ids batches = {0};
    struct progress progress;
    struct fletch_model_params params;
    struct args given = *a; /* the context is what the depth needs */
    char *text = NULL;
    json_t *j = NULL;
    given.n_ctx = (struct opt_count){0};
    host_params(&params, &given);
    int code = a->batches ? parse_ids(&batches, "tune", "a count", a->batches) : EXIT_OK;
    if (!code) code = host_open_engine(&h, a->backend, a);
    if (!code) {
        progress_begin(&progress, "tuning", a);
        struct fletch_tune how = {.batches = {(const uint32_t *)batches.p, batches.n},
                                  .depth = (uint32_t)a->n_ctx.v,
                                  .n_rounds = (uint32_t)a->n_reps.v,
                                  .progress = progress_report,
                                  .ctx = &progress};
        int rc = fletch_tune(h.engine, a->operands.p[0], &params, &how, &text);
        progress_end(&progress);
        code = report_load(&j, a, rc, fletch_engine_error(h.engine), text);
    }
    if (j && !a->json) print_tune(j);
    if (j && get_count(j, "wrong"))
        code =
            say_error("%llu launch shapes give different bits and are not used: please report this",
                      (unsigned long long)get_count(j, "wrong"));
    json_decref(j);
    free(batches.p);
    host_close(&h);
    return code;
}

const struct command cmd_tune = {
    .name = "tune",
    .operands = "MODEL",
    .summary = "find the fastest settings for this GPU",
    .about =
        "Searches for the fastest launch shape of every decode kernel on this GPU. A launch shape "
        "is the number of threadgroups, of threads per threadgroup, and of rows processed at a "
        "time. The command measures whole steps of the model, and keeps a launch shape only if it "
        "is consistently faster and gives identical results.\nThe results are saved in "
        "$XDG_CACHE_HOME/fletch (default: ~/.cache/fletch), in a file for this GPU and this build "
        "of fletch. All commands use this file, for every model with matrices of the same sizes. "
        "To undo the tuning, delete the file; \"fletch doctor\" shows its path.",
    .groups = {&tune_group, &opts_unknown, &opts_place, &opts_common},
    .min_operands = 1,
    .max_operands = 1,
    .run = tune,
};
