/* fletch verify: two backends side by side, op by op; or all gates that a backend has to pass. */
#include "bench.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct opt verify_opts[] = {
    {0, "against", OPT_CHOICE, "metal|cuda|cpu|ref|emu", "ref", "backend to compare with",
     OPT_FIELD(against), 0, 0},
    {'p', "prompt", OPT_TEXT, "TEXT", NULL,
     "prompt (default: a built-in sentence, or fixed token ids if the model has no vocabulary)",
     OPT_FIELD(prompt), 0, 0},
    {0, "tokens", OPT_TEXT, "IDS", NULL, "token ids to run instead of a prompt, for example 1,2,3",
     OPT_FIELD(tokens), 0, 0},
    {'n', "max-tokens", OPT_COUNT, "N", NULL, "number of tokens to generate after the prompt",
     OPT_FIELD(n_tokens), 1, UINT32_MAX},
    {0, "gates", OPT_FLAG, NULL, NULL,
     "run every check that a backend must pass, with 512 generated tokens unless -n is given",
     OPT_FIELD(gates), 0, 0},
    {0, "recorded", OPT_TEXT, "FILE", NULL,
     "for --gates: compare the speed with the speed recorded in FILE, or record it if FILE does "
     "not exist",
     OPT_FIELD(recorded), 0, 0},
    OPT_ROW_JSON,
};
static const struct opt_group verify_group = {NULL, OPT_TABLE(verify_opts)};

static void print_difference(const json_t *d)
{
    json_t *a = json_object_get(d, "a"), *b = json_object_get(d, "b");
    printf("first difference: step %llu, op %s of %s, layer %lld, row %llu, column %llu: ",
           (unsigned long long)get_count(d, "step"), get_text(d, "op"), get_text(d, "name"),
           (long long)json_integer_value(json_object_get(d, "layer")),
           (unsigned long long)get_count(d, "row"), (unsigned long long)get_count(d, "column"));
    printf("%.9g against %.9g\n", json_number_value(a), json_number_value(b));
}

static void print_verify(const json_t *j)
{
    struct table t = {.columns = "lrrr"};
    const json_t *op, *routing = json_object_get(j, "routing");
    const json_t *tokens = json_object_get(j, "tokens"), *first;
    size_t i;
    printf("%s against %s: %llu steps of %llu ops\n", get_text(j, "backend"),
           get_text(j, "against"), (unsigned long long)get_count(j, "n_steps"),
           (unsigned long long)get_count(j, "n_ops"));
    static const char *const heads[] = {"op", "compared", "worst", "limit"};
    for (i = 0; i < sizeof heads / sizeof *heads; i++) table_put(&t, "%s", heads[i]);
    json_array_foreach(json_object_get(j, "tolerances"), i, op)
    {
        table_put(&t, "%s", get_text(op, "op"));
        table_put(&t, "%llu", (unsigned long long)get_count(op, "n"));
        table_put(&t, "%.3g", json_number_value(json_object_get(op, "worst")));
        table_put(&t, "%.3g", json_number_value(json_object_get(op, "limit")));
    }
    table_print(&t, stdout);
    first = json_object_get(j, "first_difference");
    if (json_is_object(first)) print_difference(first);
    printf("tokens: %llu of %llu equal, %llu ties; expert choices: %llu of %llu different; NaN or "
           "infinite values: %llu\n",
           (unsigned long long)get_count(tokens, "equal"),
           (unsigned long long)get_count(tokens, "compared"),
           (unsigned long long)get_count(tokens, "close"),
           (unsigned long long)get_count(routing, "different"),
           (unsigned long long)get_count(routing, "compared"),
           (unsigned long long)get_count(j, "bad_values"));
    puts(get_bool(j, "equal") ? "equal within the tolerances" : "DIFFERENT");
}

/* The prompt as ids: what was asked for, or something every model can read. */
static int choose_tokens(struct ids *ids, struct host *h, const struct args *a)
{
    enum { N_DEFAULT = 12, STRIDE = 7 };
    if (a->tokens) return parse_ids(ids, "verify", "a token id", a->tokens);
    int code = host_open_model(h, a->operands.p[0], a);
    if (code) return code;
    const char *text = a->prompt ? a->prompt : "The quick brown fox jumps over the lazy dog.";
    int32_t *tokens = NULL;
    size_t n = 0;
    int rc = fletch_tokenize(h->model, text, strlen(text), FLETCH_BOS, &tokens, &n);
    if (rc && a->prompt)
        code = say_failure(rc, fletch_model_error(h->model));
    else if (rc) /* there is no vocabulary, or none that has the bytes of the sentence */
        for (uint32_t i = 0; i < N_DEFAULT; i++)
            ids_add(ids, (int32_t)(STRIDE * (i + 1) % h->info.n_vocab));
    for (size_t i = 0; i < n && !rc; i++) ids_add(ids, tokens[i]);
    fletch_free(tokens);
    fletch_model_close(h->model);
    h->model = NULL;
    return code;
}

static void tell_gate(json_t *gates, bool passed, const char *said)
{
    json_array_append_new(gates, need(json_pack("{s:s, s:s, s:b, s:s}", "gate", "P5", "what",
                                                "as fast as recorded, at 16, 128 and 512 tokens",
                                                "passed", passed, "said", said)));
}

/* Keeps what was measured where nothing is kept yet, and compares with it otherwise. */
static int compare_speed(json_t *gates, const json_t *measured, const char *path)
{
    json_t *before = NULL, *list = need(json_array());
    struct table t = {0};
    char said[96];
    if (access(path, F_OK) != 0) {
        json_decref(list);
        tell_gate(gates, true, "no earlier record; this run was recorded");
        return save_file(path, bench_write_json, measured);
    }
    int code = bench_load(&before, path);
    if (!code) {
        struct bench_compared c = bench_compare_docs(before, measured, &t, list);
        snprintf(said, sizeof said, "%zu of %zu cases are significantly slower", c.n_slower, c.n);
        tell_gate(gates, c.n > 0 && c.n_slower == 0, said);
    }
    table_free(&t);
    json_decref(before);
    json_decref(list);
    return code;
}

static int gate_speed(json_t *gates, struct host *h, const struct args *a)
{
    static const uint32_t lengths[] = {16, 128, 512};
    struct fletch_bench b = {.modes = FLETCH_BENCH_DECODE, .gens = {lengths, 3}};
    struct fletch_model_params params;
    char *text = NULL;
    host_params(&params, a);
    int rc = fletch_bench(h->engine, a->operands.p[0], &params, &b, &text);
    if (rc) return say_model_failure(rc, fletch_engine_error(h->engine));
    json_t *measured = need(json_loads(text, 0, NULL));
    fletch_free(text);
    int code = compare_speed(gates, measured, a->recorded);
    json_decref(measured);
    return code;
}

static void print_gates(const json_t *doc)
{
    struct table t = {.columns = "llll"};
    const json_t *g;
    size_t i;
    printf("%s against %s\n", get_text(doc, "backend"), get_text(doc, "against"));
    json_array_foreach(json_object_get(doc, "gates"), i, g)
    {
        table_put(&t, "%s", get_text(g, "gate"));
        table_put(&t, "%s", get_bool(g, "passed") ? "passed" : "FAILED");
        table_put(&t, "%s", get_text(g, "what"));
        table_put(&t, "%s", get_text(g, "said"));
    }
    table_print(&t, stdout);
}

static int run_gates(struct host *h, const struct args *a, const struct fletch_model_params *params,
                     const struct fletch_verify *v)
{
    char *text = NULL;
    int rc = fletch_gates(h->engine, a->operands.p[0], params, v, &text);
    if (rc) return say_model_failure(rc, fletch_engine_error(h->engine));
    json_t *doc = need(json_loads(text, 0, NULL)), *gates = json_object_get(doc, "gates"), *g;
    fletch_free(text);
    int code = a->recorded ? gate_speed(gates, h, a) : EXIT_OK;
    bool passed = true;
    size_t i;
    json_array_foreach(gates, i, g) passed &= get_bool(g, "passed");
    json_object_set_new(doc, "passed", json_boolean(passed));
    if (!code && a->json)
        say_json(doc);
    else if (!code)
        print_gates(doc);
    json_decref(doc);
    return code ? code : passed ? EXIT_OK : EXIT_FAIL;
}

static int verify(const struct args *a)
{
    struct host h = {0};
    struct ids ids = {0};
    char *text = NULL;
    json_t *j = NULL;
    if (a->recorded && !a->gates) return opts_wrong("verify", "--recorded requires --gates");
    if (a->prompt && a->tokens)
        return opts_wrong("verify", "--prompt and --tokens cannot be combined");
    int code = a->recorded ? check_folder_of(a->recorded) : EXIT_OK;
    if (!code) code = host_open_engine(&h, a->backend, a);
    if (!code) code = choose_tokens(&ids, &h, a);
    if (!code && !ids.n) code = opts_wrong("verify", "the prompt is empty");
    struct fletch_model_params params;
    host_params(&params, a);
    struct fletch_verify v = {
        .against = a->against,
        .n_tokens = (uint32_t)a->n_tokens.v,
        .tokens = ids.p,
        .n_prompt = ids.n,
        .no_fuse = a->no_fuse,
    };
    if (!code && a->gates)
        code = run_gates(&h, a, &params, &v);
    else if (!code) {
        int rc = fletch_verify(h.engine, a->operands.p[0], &params, &v, &text);
        code = report_load(&j, a, rc, fletch_engine_error(h.engine), text);
    }
    if (j && !a->json) print_verify(j);
    if (j && !get_bool(j, "equal")) code = EXIT_FAIL;
    json_decref(j);
    free(ids.p);
    host_close(&h);
    return code;
}

const struct command cmd_verify = {
    .name = "verify",
    .operands = "MODEL",
    .summary = "compare two backends op by op",
    .about =
        "Runs a prompt on two backends step by step. Compares the result of every op, the selected "
        "experts and the tokens, and checks for NaN and infinity. Prints the tolerances and the "
        "first difference, and exits with code 1 if the backends differ.\nWith --gates, the "
        "command runs every check that a backend must pass: greedy and sampled tokens (P1); ops "
        "and experts (P2); NaN and infinity (P3); combinations of sampling and grammar settings "
        "(P4); speed, with --recorded (P5); and a conversation of twenty turns (P6).",
    .groups = {&verify_group, &opts_model, &opts_place, &opts_common},
    .min_operands = 1,
    .max_operands = 1,
    .run = verify,
};
