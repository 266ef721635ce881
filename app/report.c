/* fletch inspect, plan, explain and doctor: the library's reports, as tables for people. */
#include "report.h"

#include <stdlib.h>
#include <string.h>

#include "table.h"

const char *get_text(const json_t *j, const char *key)
{
    const char *s = json_string_value(json_object_get(j, key));
    return s ? s : "";
}

uint64_t get_count(const json_t *j, const char *key)
{
    json_int_t v = json_integer_value(json_object_get(j, key));
    return v > 0 ? (uint64_t)v : 0;
}

bool get_bool(const json_t *j, const char *key)
{
    return json_is_true(json_object_get(j, key));
}

int report_load(json_t **out, const struct args *a, int rc, const char *error, char *text)
{
    if (rc) return say_model_failure(rc, error);
    json_error_t where;
    *out = json_loads(text, JSON_ALLOW_NUL, &where);
    if (*out && a->json) puts(text);
    fletch_free(text);
    return *out ? EXIT_OK : say_error("the report is not JSON: %s", QUOTE(where.text));
}

static const struct opt json_opts[] = {OPT_ROW_JSON};
static const struct opt_group json_group = {NULL, OPT_TABLE(json_opts)};

/* "896 x 4864" */
static void put_shape(struct table *t, const json_t *shape)
{
    char text[128] = "";
    for (size_t i = 0; i < json_array_size(shape); i++) {
        size_t n = strlen(text);
        snprintf(text + n, sizeof text - n, "%s%lld", i ? " x " : "",
                 (long long)json_integer_value(json_array_get(shape, i)));
    }
    table_put(t, "%s", text);
}

/* ---- inspect ---- */

static const struct opt inspect_opts[] = {
    {0, "check", OPT_FLAG, NULL, NULL, "read all weights and look for NaN and infinity",
     OPT_FIELD(check), 0, 0},
    OPT_ROW_JSON,
};
static const struct opt_group inspect_group = {NULL, OPT_TABLE(inspect_opts)};

/* Converters write -1, which as u32 is a large number, for a token that the model does not have. */
static bool is_absent_id(const json_t *entry)
{
    static const char end[] = "_token_id";
    const char *key = get_text(entry, "key");
    const json_t *value = json_object_get(entry, "value");
    size_t n = strlen(key), k = sizeof end - 1;
    if (n < k || strcmp(key + n - k, end) != 0 || !json_is_integer(value)) return false;
    return json_integer_value(value) == UINT32_MAX || json_integer_value(value) < 0;
}

static void put_value(struct table *t, const json_t *entry)
{
    const json_t *value = json_object_get(entry, "value");
    char *text =
        json_is_string(value) ? NULL : json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9));
    uint64_t n = get_count(entry, "n");
    table_put(t, "%.72s%s",
              is_absent_id(entry)     ? "none"
              : text                  ? text
              : json_is_string(value) ? json_string_value(value)
                                      : "",
              n > json_array_size(value) && json_is_array(value) ? " ..." : "");
    free(text);
}

static void put_type(struct table *t, const json_t *entry)
{
    if (json_object_get(entry, "n"))
        table_put(t, "%s[%llu]", get_text(entry, "type"),
                  (unsigned long long)get_count(entry, "n"));
    else
        table_put(t, "%s", get_text(entry, "type"));
}

static void print_check(const json_t *check)
{
    const json_t *bad = json_object_get(check, "bad"), *item;
    size_t i;
    if (get_bool(check, "ok")) {
        printf("\nno NaN or infinity in %llu tensors\n",
               (unsigned long long)get_count(check, "n_tensors"));
        return;
    }
    struct table t = {.columns = "lrr"};
    printf("\nbad weights\n");
    table_put(&t, "tensor");
    table_put(&t, "NaN");
    table_put(&t, "infinite");
    json_array_foreach(bad, i, item)
    {
        table_put(&t, "%s", get_text(item, "tensor"));
        table_put(&t, "%llu", (unsigned long long)get_count(item, "nan"));
        table_put(&t, "%llu", (unsigned long long)get_count(item, "inf"));
    }
    table_print(&t, stdout);
}

static void print_summary(const json_t *j)
{
    struct table t = {.columns = "ll"};
    const json_t *template = json_object_get(j, "template");
    bool usable = json_object_size(template) > 0;
    const char *name = get_text(j, "name");
    table_put(&t, "file");
    table_put(&t, "%s", get_text(j, "path"));
    table_put(&t, "format");
    table_put(&t, "%s, %llu file%s, %s", get_text(j, "format"),
              (unsigned long long)get_count(j, "n_files"), get_count(j, "n_files") == 1 ? "" : "s",
              human_bytes(get_count(j, "n_bytes")).text);
    table_put(&t, "family");
    table_put(&t, "%s%s%s", get_text(j, "arch"), *name ? ", " : "", name);
    table_put(&t, "parameters");
    table_put(&t, "%s", human_count(get_count(j, "n_params")).text);
    table_put(&t, "type");
    table_put(&t, "%s", get_text(j, "type"));
    if (template) { /* else it does not open */
        table_put(&t, "context");
        table_put(&t, "%llu tokens", (unsigned long long)get_count(j, "n_ctx"));
        table_put(&t, "chat template");
        table_put(&t, "%s", usable ? "yes" : json_is_null(template) ? "none" : "not supported");
        table_put(&t, "tools");
        table_put(&t, "%s", get_bool(template, "tools") ? "yes" : "no");
        table_put(&t, "thinking");
        table_put(&t, "%s",
                  get_bool(template, "thinking") ? "can be turned on or off"
                                                 : "cannot be turned on or off");
    }
    table_print(&t, stdout);
}

static void print_inspect(const json_t *j)
{
    const json_t *item, *list;
    size_t i;
    print_summary(j);
    struct table meta = {.columns = "lll"}, tensors = {.columns = "llrr"},
                 types = {.columns = "lrr"};

    list = json_object_get(j, "metadata");
    printf("\n%zu metadata entries\n", json_array_size(list));
    json_array_foreach(list, i, item)
    {
        table_put(&meta, "%s", get_text(item, "key"));
        put_type(&meta, item);
        put_value(&meta, item);
    }
    table_print(&meta, stdout);

    list = json_object_get(j, "tensors");
    printf("\n%zu tensors\n", json_array_size(list));
    json_array_foreach(list, i, item)
    {
        table_put(&tensors, "%s", get_text(item, "name"));
        table_put(&tensors, "%s", get_text(item, "type"));
        put_shape(&tensors, json_object_get(item, "shape"));
        table_put(&tensors, "%s", human_bytes(get_count(item, "bytes")).text);
    }
    table_print(&tensors, stdout);

    printf("\nby type\n");
    json_array_foreach(json_object_get(j, "types"), i, item)
    {
        table_put(&types, "%s", get_text(item, "type"));
        table_put(&types, "%llu", (unsigned long long)get_count(item, "tensors"));
        table_put(&types, "%s", human_bytes(get_count(item, "bytes")).text);
    }
    table_print(&types, stdout);
    if (json_object_get(j, "left_out")) printf("\n%s\n", get_text(j, "left_out"));
    list = json_object_get(j, "refused");
    if (json_array_size(list))
        printf("\nfletch does not support the following content of this file:\n");
    json_array_foreach(list, i, item) printf("  %s\n", json_string_value(item));
    if (json_object_get(j, "check")) print_check(json_object_get(j, "check"));
}

static int inspect(const struct args *a)
{
    struct host h = {0};
    char *text = NULL;
    json_t *j = NULL;
    int code = host_open_engine(&h, "ref", a);
    if (!code) {
        int rc = fletch_inspect(h.engine, a->operands.p[0], a->check, &text);
        code = report_load(&j, a, rc, fletch_engine_error(h.engine), text);
    }
    if (!code && !a->json) print_inspect(j);
    if (!code && a->check && !get_bool(json_object_get(j, "check"), "ok")) code = EXIT_MODEL;
    json_decref(j);
    host_close(&h);
    return code;
}

const struct command cmd_inspect = {
    .name = "inspect",
    .operands = "FILE",
    .summary = "show what a model file contains",
    .about = "Shows a summary, the metadata and the tensors of a model file or directory, without "
             "loading the weights. With --check, the command also reads the weights, and exits "
             "with code 4 if they contain NaN or infinity.",
    .groups = {&inspect_group, &opts_common},
    .min_operands = 1,
    .max_operands = 1,
    .run = inspect,
};

/* ---- plan ---- */

static const struct opt plan_opts[] = {
    OPT_ROW_JSON,
    OPT_ROW_BACKEND,
    OPT_ROW_ISA,
    {0, "device", OPT_TEXT, "NAME", NULL,
     "number of the GPU to plan for, or the name of another machine: m1 to m5 with -pro, -max or "
     "-ultra, rtx-3060 to rtx-5090, a100, h100, h200, mi300x, arc-a770 or arc-b580",
     OPT_FIELD(machine), 0, 0},
};
static const struct opt_group plan_group = {NULL, OPT_TABLE(plan_opts)};

static void print_prediction(FILE *out, const json_t *j)
{
    const json_t *machine = json_object_get(j, "machine"), *row;
    size_t i;
    struct table t = {.columns = "lrrr"};
    if (!get_bool(machine, "supported"))
        fprintf(out,
                "fletch has no backend for %s: memory use is computed as for an NVIDIA GPU, and no "
                "speed is predicted\n",
                get_text(machine, "what"));
    if (!json_object_get(j, "predicted")) return;
    fprintf(out, "\npredicted, not measured: decode on %s (%.0f GB/s), %llu kernels per token\n",
            get_text(machine, "what"), json_number_value(json_object_get(machine, "bandwidth_gbs")),
            (unsigned long long)get_count(j, "launches"));
    static const char *const heads[] = {"context", "bytes per token", "ms", "tokens/s"};
    for (i = 0; i < sizeof heads / sizeof *heads; i++) table_put(&t, "%s", heads[i]);
    json_array_foreach(json_object_get(j, "predicted"), i, row)
    {
        table_put(&t, "%llu tokens", (unsigned long long)get_count(row, "depth"));
        table_put(&t, "%s", human_bytes(get_count(row, "bytes")).text);
        table_put(&t, "%.2f", json_number_value(json_object_get(row, "ms")));
        table_put(&t, "%.0f", json_number_value(json_object_get(row, "tokens_per_s")));
    }
    table_print(&t, out);
}

void report_parts(FILE *out, const json_t *j)
{
    struct table t = {.columns = "lrl"};
    const json_t *part;
    size_t i;
    json_array_foreach(json_object_get(j, "parts"), i, part)
    {
        table_put(&t, "%s", get_text(part, "name"));
        table_put(&t, "%s", human_bytes(get_count(part, "bytes")).text);
        table_put(&t, "%s", get_text(part, "note"));
    }
    table_put(&t, "total");
    table_put(&t, "%s", human_bytes(get_count(j, "total")).text);
    table_put(&t, "%s", get_bool(j, "fits") ? "fits" : "");
    table_put(&t, "available");
    table_put(&t, "%s", human_bytes(get_count(j, "available")).text);
    table_put(&t, "%s", "");
    const char *model = get_text(j, "model");
    uint64_t n_ctx = get_count(j, "n_ctx"), trained = get_count(j, "n_ctx_trained");
    char of_trained[40] = "";
    if (n_ctx < trained)
        snprintf(of_trained, sizeof of_trained, " of %llu", (unsigned long long)trained);
    fprintf(out, "%s, %s%s on %s: context %llu%s, %llu session%s, %s cache, %llu rows per step\n",
            get_text(j, "arch"), get_text(j, "type"),
            get_bool(j, "type_assumed") ? " (assumed)" : "", get_text(j, "backend"),
            (unsigned long long)n_ctx, of_trained, (unsigned long long)get_count(j, "n_sessions"),
            get_count(j, "n_sessions") == 1 ? "" : "s", get_text(j, "kv_type"),
            (unsigned long long)get_count(j, "max_rows"));
    table_print(&t, out);
    if (get_bool(j, "type_assumed"))
        fprintf(out, "to plan another type, use %s:TYPE, for example %s:q4_k_m\n", model, model);
}

static void print_plan(FILE *out, const json_t *j)
{
    uint64_t largest = get_count(j, "largest_ctx");
    report_parts(out, j);
    if (get_bool(j, "fits")) return;
    fprintf(out, "does not fit: %s more is needed",
            human_bytes(get_count(j, "total") - get_count(j, "available")).text);
    if (largest)
        fprintf(out, "; a context of %llu would fit (-c %llu)\n", (unsigned long long)largest,
                (unsigned long long)largest);
    else
        fputs("; use a smaller model or a smaller type\n", out);
}

/* Plan and explain take the same arguments. */
typedef int report_fn(struct fletch_engine *, const char *, const struct fletch_model_params *,
                      char **);

static int load_for_model(json_t **j, const struct args *a, report_fn *report)
{
    struct host h = {0};
    struct fletch_model_params params;
    char *text = NULL;
    host_params(&params, a);
    int code = host_open_engine(&h, a->backend, a);
    if (!code) {
        const char *model = a->operands.p[0];
        int rc = a->machine ? fletch_plan_for(h.engine, model, &params, a->machine, &text)
                            : report(h.engine, model, &params, &text);
        code = report_load(j, a, rc, fletch_engine_error(h.engine), text);
    }
    host_close(&h);
    return code;
}

static int plan(const struct args *args)
{
    struct args a = *args;
    json_t *j = NULL;
    if (a.machine && parse_count(a.machine, &a.device.v)) {
        if (a.device.v > 64)
            return opts_wrong("plan", "--device %s: there is no such GPU", QUOTE(a.machine));
        a.machine = NULL;
    }
    if (a.machine && strcmp(a.backend, "auto") != 0)
        return opts_wrong("plan", "--device %s implies a backend; remove --backend",
                          QUOTE(a.machine));
    int code = load_for_model(&j, &a, fletch_plan);
    if (!code && !a.json) {
        print_plan(stdout, j);
        if (a.machine) print_prediction(stdout, j);
    }
    if (!code && !get_bool(j, "fits")) code = EXIT_FIT;
    json_decref(j);
    return code;
}

const struct command cmd_plan = {
    .name = "plan",
    .operands = "MODEL",
    .summary = "show a model's memory use, and predict its speed on other machines",
    .about =
        "Shows how much memory the model needs and whether it fits. If the model does not fit, the "
        "command shows the longest context that would fit, and exits with code 3.\nMODEL can also "
        "be a published shape, such as Llama-3.1-8B:q4_k_m: a name from \"fletch synth --list\", "
        "optionally followed by a storage type (default q8_0). A shape needs no file.\nWith "
        "--device NAME, the command plans for another machine. --max-memory then sets the GPU "
        "memory of that machine. If fletch supports the machine, the command also predicts the "
        "decode speed, from the bytes and kernels per token and the machine's published bandwidth.",
    .groups = {&plan_group, &opts_model, &opts_speculation, &opts_common},
    .min_operands = 1,
    .max_operands = 1,
    .run = plan,
};

/* ---- explain ---- */

/* "a, b" */
static void put_list(struct table *t, const json_t *list)
{
    char text[300] = "";
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *s = json_string_value(json_array_get(list, i));
        size_t n = strlen(text);
        snprintf(text + n, sizeof text - n, "%s%s", i ? ", " : "", s ? s : "");
    }
    table_put(t, "%s", text);
}

static void print_program(const json_t *program)
{
    bool launches = json_object_get(program, "launches") != NULL;
    struct table t = {.columns = launches ? "rrlllrrl" : "rrlllrl"};
    const json_t *group;
    size_t i;
    printf("\nprogram %s: %llu ops in %llu fused groups\n", get_text(program, "name"),
           (unsigned long long)get_count(program, "n_ops"),
           (unsigned long long)get_count(program, "n_groups"));
    printf("  per row: %llu columns, %s; per token: %s of weights, %s of cache; state %s\n",
           (unsigned long long)get_count(program, "cols_per_row"),
           human_bytes(get_count(program, "bytes_per_row")).text,
           human_bytes(get_count(program, "weight_bytes")).text,
           human_bytes(get_count(program, "kv_bytes_per_token")).text,
           human_bytes(get_count(program, "state_bytes")).text);
    if (launches)
        printf("  %llu kernels per token, in one submission\n",
               (unsigned long long)get_count(program, "launches"));
    if (launches)
        printf(
            "  prefill processes %llu rows at once; the largest group needs %s of scratch memory\n",
            (unsigned long long)get_count(program, "chunk"),
            human_bytes(get_count(program, "scratch_bytes")).text);
    static const char *const heads[] = {"#",  "layer", "group",   "out",
                                        "in", "bytes", "kernels", "weights"};
    for (i = 0; i < sizeof heads / sizeof *heads; i++)
        if (launches || strcmp(heads[i], "kernels") != 0) table_put(&t, "%s", heads[i]);
    json_array_foreach(json_object_get(program, "groups"), i, group)
    {
        json_int_t layer = json_integer_value(json_object_get(group, "layer"));
        table_put(&t, "%llu", (unsigned long long)get_count(group, "i"));
        if (layer >= 0 && json_is_integer(json_object_get(group, "layer")))
            table_put(&t, "%lld", (long long)layer);
        else
            table_put(&t, "-");
        table_put(&t, "%s", get_text(group, "name"));
        put_list(&t, json_object_get(group, "out"));
        put_list(&t, json_object_get(group, "in"));
        table_put(&t, "%s",
                  get_count(group, "bytes") ? human_bytes(get_count(group, "bytes")).text : "");
        if (launches) table_put(&t, "%llu", (unsigned long long)get_count(group, "launches"));
        put_list(&t, json_object_get(group, "weights"));
    }
    table_print(&t, stdout);
}

static int explain(const struct args *a)
{
    json_t *j = NULL;
    const json_t *program;
    size_t i;
    int code = load_for_model(&j, a, fletch_explain);
    if (!code && !a->json) {
        printf("%s on %s: context %llu, %s cache\n", get_text(j, "arch"), get_text(j, "backend"),
               (unsigned long long)get_count(j, "n_ctx"), get_text(j, "kv_type"));
        json_array_foreach(json_object_get(j, "programs"), i, program)
        {
            print_program(program);
        }
    }
    json_decref(j);
    return code;
}

const struct command cmd_explain = {
    .name = "explain",
    .operands = "MODEL",
    .summary = "show the program of one step, op by op",
    .about = "Prints the program that the model runs in each step: every op with its inputs, "
             "output and weights, and the number of bytes that it reads and writes. T stands for "
             "the number of tokens in the step.",
    .groups = {&json_group, &opts_model, &opts_place, &opts_common},
    .min_operands = 1,
    .max_operands = 1,
    .run = explain,
};

/* ---- doctor ---- */

/* Texts in one paragraph of 80 columns under a title. */
static void print_words(const char *title, const json_t *list)
{
    size_t i, at = 1;
    const json_t *word;
    printf("\n%s\n ", title);
    json_array_foreach(list, i, word)
    {
        const char *s = json_string_value(word);
        if (!s) continue;
        if (at + 1 + strlen(s) > 80) {
            fputs("\n ", stdout);
            at = 1;
        }
        at += (size_t)printf(" %s", s);
    }
    putchar('\n');
}

/* Whether GPUs that are there have been tuned, and compute as they must. */
static void print_gpus(const json_t *backends)
{
    const json_t *b;
    size_t i;
    json_array_foreach(backends, i, b)
    {
        const json_t *t = json_object_get(b, "tuned");
        if (!json_is_object(t)) continue;
        printf("  %s on %s: ", get_text(t, "device"), get_text(b, "name"));
        if (json_object_get(t, "wrong"))
            puts(get_text(t, "wrong"));
        else if (get_count(t, "layouts"))
            printf("tuned, %llu launch shapes in %s\n", (unsigned long long)get_count(t, "layouts"),
                   QUOTE(get_text(t, "file")));
        else
            puts("not tuned (fletch tune MODEL)");
        const json_t *a = json_object_get(b, "arithmetic");
        if (json_object_get(a, "wrong"))
            printf("  arithmetic on %s: WRONG, %s\n", get_text(b, "name"), get_text(a, "wrong"));
        else if (json_is_object(a))
            printf("  arithmetic on %s: correct%s%s\n", get_text(b, "name"),
                   get_bool(a, "flushes_subnormals") ? ", subnormal floats are flushed to zero"
                                                     : "",
                   get_bool(a, "tensor") ? "; prefill uses tensor operations" : "");
    }
}

/* What generating tokens on the cpu backend is bound by. */
static void print_reading(const json_t *cpu, const json_t *memory)
{
    const char *pages = get_text(memory, "huge_pages");
    double all = json_number_value(json_object_get(memory, "read_gb_s"));
    double one = json_number_value(json_object_get(memory, "core_read_gb_s"));
    printf("cpu backend: instruction set %s", get_text(cpu, "isa"));
    if (*pages) printf(", large pages: %s", pages);
    if (get_count(memory, "nodes") > 1)
        printf(", %llu memory nodes", (unsigned long long)get_count(memory, "nodes"));
    printf("\n  memory is read at %.1f GB/s, by one core at %.1f", all, one);
    if (one > 0 && all > 0 && all < one * 1.5 && get_count(cpu, "cores") > 1)
        printf("; more threads speed up prompts, but hardly answers");
    putchar('\n');
}

static void print_doctor(const json_t *j)
{
    const json_t *cpu = json_object_get(j, "cpu"), *memory = json_object_get(j, "memory"), *item;
    struct table backends = {.columns = "lll"}, archs = {.columns = "ll"};
    size_t i;
    puts(get_text(j, "version"));
    printf("cpu: %s, %llu cores, %llu threads\n", get_text(cpu, "model"),
           (unsigned long long)get_count(cpu, "cores"),
           (unsigned long long)get_count(cpu, "threads"));
    printf("memory: %s, %s available, pressure %s\n", human_bytes(get_count(memory, "total")).text,
           human_bytes(get_count(memory, "available")).text, get_text(memory, "pressure"));
    print_reading(cpu, memory);
    fputs(get_text(j, "advice"), stdout);
    printf("\nbackends\n");
    json_array_foreach(json_object_get(j, "backends"), i, item)
    {
        table_put(&backends, "%s", get_text(item, "name"));
        table_put(&backends, "%s", get_bool(item, "works") ? "works" : "no");
        table_put(&backends, "%s", get_text(item, "why"));
    }
    table_print(&backends, stdout);
    print_gpus(json_object_get(j, "backends"));
    printf("\narchitectures\n");
    json_array_foreach(json_object_get(j, "architectures"), i, item)
    {
        table_put(&archs, "%s", get_text(item, "name"));
        table_put(&archs, "%s", get_text(item, "models"));
    }
    table_print(&archs, stdout);
    print_words("weight types", json_object_get(j, "types"));
    print_words("cpu features", json_object_get(cpu, "features"));
    print_words("instruction sets of the cpu backend, best first (--isa)",
                json_object_get(cpu, "isas"));
    const char *blas = json_string_value(json_object_get(cpu, "blas"));
    printf("\nBLAS library for the prefill of F32 and F16 models: %s%s\n", blas ? blas : "none",
           blas && !json_is_true(json_object_get(cpu, "blas_used"))
               ? " (not used: a row's result would depend on the other rows of its step)"
               : "");
}

static int doctor(const struct args *a)
{
    struct host h = {0};
    char *text = NULL;
    json_t *j = NULL;
    int code = host_open_engine(&h, "ref", a);
    if (!code) {
        int rc = fletch_doctor(h.engine, &text);
        code = report_load(&j, a, rc, fletch_engine_error(h.engine), text);
    }
    if (!code && !a->json) print_doctor(j);
    json_decref(j);
    host_close(&h);
    return code;
}

const struct command cmd_doctor = {
    .name = "doctor",
    .operands = "",
    .summary = "show this machine and the backends that work on it",
    .about = "Shows this machine's processor and memory, the backends (and why a backend does not "
             "work), and the architectures and types that fletch supports.",
    .groups = {&json_group, &opts_common},
    .run = doctor,
};
