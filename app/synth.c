/* fletch synth: a model file of real shapes and random weights, to measure with. */
#include "app.h"

#include <stdlib.h>
#include <sys/stat.h>

static const struct opt synth_opts[] = {
    {'o', "output", OPT_TEXT, "OUT", NULL, "GGUF file to write", OPT_FIELD(out), 0, 0},
    OPT_ROW_TYPE("q8_0"),
    {0, "layers", OPT_COUNT, "N", NULL, "write only the first N layers (default: all)",
     OPT_FIELD(n_layers), 1, 512},
    {0, "seed", OPT_COUNT, "N", "0", "random seed of the weights", OPT_FIELD(seed), 0, 0},
    {0, "list", OPT_FLAG, NULL, NULL, "list the available shapes", OPT_FIELD(list), 0, 0},
    OPT_ROW_JSON,
};
static const struct opt_group synth_group = {NULL, OPT_TABLE(synth_opts)};

static int list_shapes(struct host *h, const struct args *a)
{
    char *text;
    int rc = fletch_synth_shapes(h->engine, &text);
    if (rc) return say_failure(rc, fletch_engine_error(h->engine));
    json_t *doc = need(json_loads(text, 0, NULL));
    fletch_free(text);
    if (a->json) {
        say_json(doc);
    } else {
        size_t i;
        json_t *s;
        json_array_foreach(json_object_get(doc, "shapes"), i, s)
        {
            json_int_t n = json_integer_value(json_object_get(s, "n_params"));
            printf("%-16s%-12s%3lld layers  %s parameters\n",
                   json_string_value(json_object_get(s, "name")),
                   json_string_value(json_object_get(s, "arch")),
                   (long long)json_integer_value(json_object_get(s, "n_layers")),
                   human_count((uint64_t)n).text);
        }
    }
    json_decref(doc);
    return EXIT_OK;
}

static int write_file(struct host *h, const struct args *a)
{
    struct progress progress;
    struct fletch_synth s = {.shape = a->operands.p[0],
                             .type = a->type,
                             .n_layers = (uint32_t)a->n_layers.v,
                             .seed = a->seed.v};
    double began = now();
    interrupt_catch((int)(SA_RESETHAND | SA_RESTART));
    progress_begin(&progress, "writing", a);
    int rc = fletch_synth(h->engine, a->out, &s, progress_report, &progress);
    progress_end(&progress);
    if (rc) return say_failure(rc, fletch_engine_error(h->engine));
    struct stat st;
    if (!a->quiet && stat(a->out, &st) == 0)
        fprintf(stderr, "wrote %s, %s in %.1f s\n", QUOTE(a->out),
                human_bytes((uint64_t)st.st_size).text, now() - began);
    return EXIT_OK;
}

static int synth(const struct args *a)
{
    struct host h = {0};
    if (a->list && a->operands.n) return opts_wrong("synth", "--list and SHAPE cannot be combined");
    if (!a->list && !a->operands.n)
        return opts_wrong("synth", "missing argument SHAPE; --list shows the available shapes");
    if (!a->list && !a->out) return opts_wrong("synth", "no output file; add -o OUT.gguf");
    int code = host_open_engine(&h, "ref", a);
    if (!code) code = a->list ? list_shapes(&h, a) : write_file(&h, a);
    host_close(&h);
    return code;
}

const struct command cmd_synth = {
    .name = "synth",
    .operands = "SHAPE",
    .summary = "write a model with real shapes and random weights",
    .about = "Writes a GGUF file with the exact shapes, metadata and storage types of a published "
             "model, but with random weights and an invented vocabulary. Use such files to measure "
             "speed and to compare engines. The model's output is meaningless.",
    .groups = {&synth_group, &opts_common},
    .max_operands = 1,
    .run = synth,
};
