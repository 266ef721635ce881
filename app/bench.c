/* fletch bench: how fast a model, its ops or single kernels are here. */
#include "bench.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const struct opt bench_opts[] = {
    {0, "mode", OPT_CHOICE, "all|prefill|decode|full|serve|drafts", "all",
     "what to measure: prefill, decode, full (prefill followed by decode), all of these, serve "
     "(many clients at once; -b lists the numbers of clients, 1,4,8 by default, and -p and -n take "
     "one value each), or drafts (speculative decoding on several kinds of text)",
     OPT_FIELD(mode), 0, 0},
    {'p', "prompts", OPT_TEXT, "LIST", NULL, "prompt lengths in tokens", OPT_FIELD(prompts), 0, 0},
    {'n', "generate", OPT_TEXT, "LIST", NULL, "numbers of tokens to generate", OPT_FIELD(gens), 0,
     0},
    {'d', "depths", OPT_TEXT, "LIST", NULL,
     "tokens already in the context (default: 0 for prefill, 256 for decode)", OPT_FIELD(depths), 0,
     0},
    {'b', "batches", OPT_TEXT, "LIST", NULL, "numbers of sequences processed at once",
     OPT_FIELD(batches), 0, 0},
    {'r', "reps", OPT_COUNT, "N", "7",
     "number of runs of each case after a warm-up; the median is reported", OPT_FIELD(n_reps), 1,
     1000},
    {0, "chunk", OPT_COUNT, "N", NULL, "number of prompt tokens per prefill step", OPT_FIELD(chunk),
     1, 65536},
    {0, "profile", OPT_FLAG, NULL, NULL,
     "measure every op instead of whole steps; the JSON document is also a Chrome trace",
     OPT_FIELD(profile), 0, 0},
    {0, "kernel", OPT_TEXT, "NAME", NULL,
     "measure one kernel (and its fused form, if there is one) instead of a model, after checking "
     "it against the reference; NAME is matvec, matmul, matmul+add, norm+matmul, "
     "norm+qkv+rope+kv_store+attention, gate+up+glu, norm+gate+up+glu, lerp+matmul+act, attention, "
     "latent_attention, norm, rope, route, experts, experts+glu, experts+combine, wkv7, "
     "wkv7+head+tail, sample or all",
     OPT_FIELD(kernel), 0, 0},
    {0, "shape", OPT_TEXT, "KEY=N,...", NULL,
     "sizes for --kernel; the keys are n, m, t, type, heads, kv_heads, head, rope, depth, experts "
     "and used",
     OPT_FIELD(shape), 0, 0},
    {0, "kv-type", OPT_CHOICE, FLETCH_KV_TYPES, NULL,
     "type of the KV cache (default: depends on the backend)", OPT_FIELD(kv_type), 0, 0},
    OPT_ROW_MAX_MEMORY,
    OPT_ROW_NO_FUSE,
    OPT_ROW_AHEAD,
    OPT_ROW_IGNORE_UNKNOWN,
    OPT_ROW_JSON,
    {0, "csv", OPT_FLAG, NULL, NULL, "print the results as CSV", OPT_FIELD(csv), 0, 0},
    {0, "html", OPT_TEXT, "FILE", NULL,
     "write the HTML page with the plots to FILE instead of the --dir folder", OPT_FIELD(html), 0,
     0},
    {0, "dir", OPT_TEXT, "DIR", P_tmpdir,
     "folder for the JSON document and the HTML page with the plots; their names begin with "
     "fletch-bench-BACKEND-MODEL-MODE",
     OPT_FIELD(dir), 0, 0},
};
static const struct opt_group bench_group = {NULL, OPT_TABLE(bench_opts)};

double get_real(const json_t *j, const char *key)
{
    return json_number_value(json_object_get(j, key));
}

/* ---- the artifacts ---- */

void bench_write_json(FILE *out, const json_t *doc)
{
    json_dumpf(doc, out, JSON_INDENT(1) | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(9));
    fputc('\n', out);
}

static int save(const struct args *a, const char *path, void (*write)(FILE *out, const json_t *doc),
                const json_t *doc)
{
    int code = save_file(path, write, doc);
    if (!code && !a->quiet) fprintf(stderr, "saved %s\n", QUOTE(path));
    return code;
}

/* What a file may be called everywhere, of the first letters of s. */
static void add_plain(char *name, size_t cap, const char *s, size_t n)
{
    size_t at = strlen(name);
    for (size_t i = 0; i < n && at + 1 < cap; i++) {
        bool plain = isalnum((unsigned char)s[i]) || (s[i] && strchr("._+-", s[i]));
        name[at++] = plain ? s[i] : '-';
    }
    name[at] = 0;
}

/* KIND-BACKEND-SUBJECT-MODE, so that different measurements don't overwrite each other. */
static void name_artifact(char *name, size_t cap, const char *kind, const struct args *a,
                          const json_t *doc)
{
    enum { MAX_SUBJECT = 80 };
    const char *backend = get_text(doc, "backend"), *path = a->operands.n ? a->operands.p[0] : "";
    size_t n = strlen(path), end = n;
    while (end && path[end - 1] == '/') end--;
    n = end;
    while (n && path[n - 1] != '/') n--;
    const char *subject = a->kernel ? a->kernel : end ? path + n : "built-in";
    size_t n_subject = a->kernel || !end ? strlen(subject) : end - n;
    if (n_subject > 5 && strncasecmp(subject + n_subject - 5, ".gguf", 5) == 0) n_subject -= 5;
    *name = 0;
    add_plain(name, cap, kind, strlen(kind));
    add_plain(name, cap, "-", 1);
    add_plain(name, cap, backend, strcspn(backend, " (:"));
    add_plain(name, cap, "-", 1);
    add_plain(name, cap, subject, n_subject < MAX_SUBJECT ? n_subject : MAX_SUBJECT);
    if (a->kernel) return;
    add_plain(name, cap, "-", 1);
    add_plain(name, cap, a->mode, strlen(a->mode));
}

static int save_in_dir(const struct args *a, const char *kind, const char *extension,
                       void (*write)(FILE *out, const json_t *doc), const json_t *doc)
{
    char name[200], path[4000];
    name_artifact(name, sizeof name, kind, a, doc);
    if ((size_t)snprintf(path, sizeof path, "%s/%s.%s", a->dir, name, extension) >= sizeof path)
        return say_error("the path of the folder is too long");
    return save(a, path, write, doc);
}

/* The document, and its page where --html says or else beside it. */
static int save_both(const struct args *a, const char *kind,
                     void (*write_page)(FILE *out, const json_t *doc), const json_t *doc)
{
    int code = save_in_dir(a, kind, "json", bench_write_json, doc);
    if (code) return code;
    return a->html ? save(a, a->html, write_page, doc)
                   : save_in_dir(a, kind, "html", write_page, doc);
}

/* Before anything is measured for them. Makes the one of --dir. */
static int check_folders(const struct args *a)
{
    char beside[4000];
    if ((size_t)snprintf(beside, sizeof beside, "%s/x", a->dir) >= sizeof beside)
        return say_error("the path of the folder is too long");
    if (!make_folders(beside, 0755)) return say_error("%s: %s", QUOTE(a->dir), strerror(errno));
    int code = check_folder_of(beside);
    return code || !a->html ? code : check_folder_of(a->html);
}

/* ---- running ---- */

struct counts {
    struct ids ids;
    struct fletch_counts c;
};

static int parse_counts(struct counts *out, const char *list)
{
    int code = list ? parse_ids(&out->ids, "bench", "a count", list) : EXIT_OK;
    out->c = (struct fletch_counts){(const uint32_t *)out->ids.p, out->ids.n};
    return code;
}

static unsigned modes_of(const char *mode)
{
    return strcmp(mode, "prefill") == 0  ? FLETCH_BENCH_PREFILL
           : strcmp(mode, "decode") == 0 ? FLETCH_BENCH_DECODE
           : strcmp(mode, "full") == 0   ? FLETCH_BENCH_FULL
                                         : 0;
}

static int give_results(const struct args *a, const json_t *doc)
{
    if (a->profile) {
        if (!a->json) bench_print_profile(doc);
        return save_in_dir(a, "fletch-profile", "json", bench_write_json, doc);
    }
    if (a->csv)
        bench_print_csv(doc);
    else if (!a->json)
        bench_print(doc);
    return save_both(a, "fletch-bench", bench_write_html, doc);
}

static int bench_model(struct host *h, const struct args *a)
{
    struct counts prompts = {0}, gens = {0}, depths = {0}, batches = {0};
    struct fletch_model_params params;
    struct progress progress;
    char *text = NULL;
    json_t *doc = NULL;
    int code = parse_counts(&prompts, a->prompts);
    if (!code) code = parse_counts(&gens, a->gens);
    if (!code) code = parse_counts(&depths, a->depths);
    if (!code) code = parse_counts(&batches, a->batches);
    if (!code) {
        progress_begin(&progress, "measuring", a);
        host_params(&params, a);
        params.speculation = (struct fletch_speculation){0};
        struct fletch_bench b = {.modes = modes_of(a->mode),
                                 .prompts = prompts.c,
                                 .gens = gens.c,
                                 .depths = depths.c,
                                 .batches = batches.c,
                                 .n_reps = (uint32_t)a->n_reps.v,
                                 .profile = a->profile,
                                 .image = builtin_model,
                                 .n_image = (size_t)builtin_model_size,
                                 .progress = progress_report,
                                 .ctx = &progress};
        int rc =
            fletch_bench(h->engine, a->operands.n ? a->operands.p[0] : NULL, &params, &b, &text);
        progress_end(&progress);
        code = report_load(&doc, a, rc, fletch_engine_error(h->engine), text);
    }
    if (!code) code = give_results(a, doc);
    json_decref(doc);
    free(prompts.ids.p);
    free(gens.ids.p);
    free(depths.ids.p);
    free(batches.ids.p);
    return code;
}

static int bench_drafts(struct host *h, const struct args *a)
{
    static const char *const heads[] = {"tokens",  "off",      "on", "ratio",
                                        "drafted", "accepted", NULL};
    const struct fletch_bench b = {.image = builtin_model, .n_image = (size_t)builtin_model_size};
    struct table t = {.columns = "lrrrrrr"};
    struct fletch_model_params params;
    char *text = NULL;
    json_t *doc = NULL, *row;
    size_t i;
    host_params(&params, a);
    int rc =
        fletch_bench_drafts(h->engine, a->operands.n ? a->operands.p[0] : NULL, &params, &b, &text);
    int code = report_load(&doc, a, rc, fletch_engine_error(h->engine), text);
    if (code || a->json) {
        json_decref(doc);
        return code;
    }
    table_put(&t, "text");
    for (i = 0; heads[i]; i++) table_put(&t, "%s", heads[i]);
    json_array_foreach(json_object_get(doc, "drafts"), i, row)
    {
        table_put(&t, "%s", get_text(row, "text"));
        table_put(&t, "%llu", (unsigned long long)get_count(row, "n_tokens"));
        table_put(&t, "%.1f", get_real(row, "off"));
        table_put(&t, "%.1f", get_real(row, "on"));
        table_put(&t, "%.2f", get_real(row, "ratio"));
        table_put(&t, "%llu", (unsigned long long)get_count(row, "n_drafted"));
        table_put(&t, "%llu", (unsigned long long)get_count(row, "n_accepted"));
    }
    table_print(&t, stdout);
    printf("\n  tokens/s without and with draft tokens, best of five alternating runs\n");
    json_decref(doc);
    return EXIT_OK;
}

static uint32_t first_of(const struct counts *c, uint32_t otherwise)
{
    return c->c.n ? c->c.p[0] : otherwise;
}

static int bench_many(struct host *h, const struct args *a)
{
    struct counts prompts = {0}, gens = {0}, clients = {0};
    json_t *doc = NULL;
    int code = parse_counts(&prompts, a->prompts);
    if (!code) code = parse_counts(&gens, a->gens);
    if (!code) code = parse_counts(&clients, a->batches ? a->batches : "1,4,8");
    for (size_t i = 0; !code && i < clients.ids.n; i++)
        if (clients.ids.p[i] < 1 || clients.ids.p[i] > 256)
            code = opts_wrong("bench", "--batches takes 1 to 256 clients");
    uint32_t n_prompt = first_of(&prompts, 128), n_answer = first_of(&gens, 64);
    if (!code && (n_prompt < 2 || n_prompt > 1 << 20 || !n_answer || n_answer > 1 << 20))
        code = opts_wrong("bench", "a prompt must have at least 2 tokens, an answer at least 1");
    if (!code) code = bench_serve(h, a, n_prompt, n_answer, &clients.ids, &doc);
    if (!code && a->json) bench_write_json(stdout, doc);
    if (!code) code = save_both(a, "fletch-bench", bench_write_serve_html, doc);
    json_decref(doc);
    free(prompts.ids.p);
    free(gens.ids.p);
    free(clients.ids.p);
    return code;
}

static int bench_kernel(struct host *h, const struct args *a)
{
    struct fletch_bench_kernel k = {a->kernel, a->shape, (uint32_t)a->n_reps.v};
    char *text = NULL;
    json_t *doc = NULL, *row;
    size_t i;
    int rc = fletch_bench_kernel(h->engine, &k, &text);
    if (rc) return say_failure(rc, fletch_engine_error(h->engine));
    int code = report_load(&doc, a, rc, fletch_engine_error(h->engine), text);
    if (code) return code;
    if (!a->json) bench_print_kernels(doc);
    code = save_in_dir(a, "fletch-kernels", "json", bench_write_json, doc);
    json_array_foreach(json_object_get(doc, "kernels"), i, row) if (!get_bool(row, "ok")) code =
        EXIT_FAIL;
    json_decref(doc);
    return code;
}

/* Is something asked for that no kernel has? */
static bool is_about_models(const struct args *a)
{
    return a->kv_type || a->prompts || a->gens || a->depths || a->batches || a->chunk.set ||
           a->profile || a->csv || a->html || a->no_fuse || a->max_memory.set ||
           strcmp(a->mode, "all") != 0;
}

static int bench(const struct args *a)
{
    const char *word = a->operands.n ? a->operands.p[0] : "";
    struct host h = {0};
    if (strcmp(word, "compare") == 0) {
        if (a->operands.n != 3)
            return opts_wrong(
                "bench", "compare requires two JSON documents: fletch bench compare A.json B.json");
        return bench_compare(a->operands.p[1], a->operands.p[2], a);
    }
    if (a->operands.n > 1) return opts_wrong("bench", "give only one model");
    if (a->kernel && a->operands.n)
        return opts_wrong("bench", "--kernel and MODEL cannot be combined");
    if (a->shape && !a->kernel) return opts_wrong("bench", "--shape requires --kernel");
    if (a->kernel && is_about_models(a))
        return opts_wrong("bench", "options such as -p, -n and --mode apply only to models; set "
                                   "the sizes for --kernel with --shape");
    if (a->json && a->csv) return opts_wrong("bench", "--json and --csv cannot be combined");
    bool drafts = strcmp(a->mode, "drafts") == 0;
    if ((a->draft || a->ngram || a->mtp) && !drafts && strcmp(a->mode, "serve") != 0)
        return opts_wrong("bench", "speculative decoding can be measured only with --mode serve or "
                                   "--mode drafts");
    int code = check_folders(a);
    if (!code) code = host_open_engine(&h, a->backend, a);
    if (!code)
        code = a->kernel                       ? bench_kernel(&h, a)
               : drafts                        ? bench_drafts(&h, a)
               : strcmp(a->mode, "serve") == 0 ? bench_many(&h, a)
                                               : bench_model(&h, a);
    host_close(&h);
    return code;
}

const struct command cmd_bench = {
    .name = "bench",
    .operands = "[MODEL | compare A.json B.json]",
    .summary = "measure speed",
    .about = "Measures how fast a model runs. Also measures the limits of the machine in the same "
             "run, and shows the speed as a share of these limits. The default model is the "
             "built-in one.\nA LIST is a comma-separated list of numbers. Every combination of the "
             "lists is a case, and the cases run in turns.\n\"fletch bench compare A.json B.json\" "
             "compares the results of two runs and shows the ratio of their speeds with confidence "
             "intervals. It exits with code 1 if any case is significantly slower in B.",
    .groups = {&bench_group, &opts_speculation, &opts_place, &opts_common},
    .max_operands = 3,
    .run = bench,
};
