/* fletch convert: another GGUF file from a model. */
#include "app.h"

#include <sys/stat.h>

static const struct opt convert_opts[] = {
    {'o', "output", OPT_TEXT, "OUT", NULL, "GGUF file to write", OPT_FIELD(out), 0, 0},
    OPT_ROW_TYPE(NULL),
};
static const struct opt_group convert_group = {NULL, OPT_TABLE(convert_opts)};

static int convert(const struct args *a)
{
    if (!a->out) return opts_wrong("convert", "no output file; add -o OUT.gguf");
    if (!a->type) return opts_wrong("convert", "no type; add --type, such as --type q4_k_m");
    struct host h = {0};
    struct progress progress;
    int code = host_open_engine(&h, "ref", a);
    if (!code) {
        interrupt_catch((int)(SA_RESETHAND | SA_RESTART));
        progress_begin(&progress, "converting", a);
        struct fletch_convert_params params = {.ignore_unknown = a->ignore_unknown,
                                               .notice = a->quiet ? NULL : say_notice,
                                               .progress = progress_report,
                                               .ctx = &progress};
        int rc = fletch_convert_with(h.engine, a->operands.p[0], a->out, a->type, &params);
        progress_end(&progress);
        if (rc) code = say_model_failure(rc, fletch_engine_error(h.engine));
    }
    struct stat st;
    if (!code && !a->quiet && stat(a->out, &st) == 0)
        fprintf(stderr, "wrote %s, %s\n", QUOTE(a->out), human_bytes((uint64_t)st.st_size).text);
    host_close(&h);
    return code;
}

const struct command cmd_convert = {
    .name = "convert",
    .operands = "IN",
    .summary = "convert a model to GGUF, optionally quantizing it",
    .about = "Writes a GGUF file from a Hugging Face directory or another GGUF file. The output "
             "file gets its final name only when it is complete.",
    .groups = {&convert_group, &opts_unknown, &opts_common},
    .min_operands = 1,
    .max_operands = 1,
    .run = convert,
};
