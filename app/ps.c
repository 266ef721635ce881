/* fletch ps: the models that a server has loaded. */
#include <stdlib.h>
#include <string.h>

#include "fetch.h"
#include "report.h"
#include "table.h"

enum { MAX_STATUS_BYTES = 1 << 24 };

static const struct opt ps_opts[] = {
    {0, "endpoint", OPT_TEXT, "URL", "http://127.0.0.1:8080", "address of the server",
     OPT_FIELD(endpoint), 0, 0},
    {0, "api-key", OPT_TEXT, "FILE", NULL,
     "file whose first API key is sent to the server; env:VARIABLE reads the key from an "
     "environment variable instead",
     OPT_FIELD(api_key), 0, 0},
    OPT_ROW_JSON,
};
static const struct opt_group ps_group = {NULL, OPT_TABLE(ps_opts)};

/* The key of the first line that has one: KEY, or NAME KEY and maybe more. *out is to be freed. */
static int read_key(char **out, const char *from)
{
    char *text = NULL, *rest, *line;
    if (!from) return EXIT_OK;
    if (strncmp(from, "env:", 4) == 0) {
        const char *set = getenv(from + 4);
        if (!set) return say_error("the environment variable %s is not set", QUOTE(from + 4));
        text = need(strdup(set));
    } else {
        int code = read_string(&text, from);
        if (code) return code;
    }
    for (line = strtok_r(text, "\r\n", &rest); line && !*out;
         line = strtok_r(NULL, "\r\n", &rest)) {
        char *words, *first = strtok_r(line, " \t", &words),
                     *second = strtok_r(NULL, " \t", &words);
        if (first && *first != '#') *out = need(strdup(second ? second : first));
    }
    free(text);
    return *out ? EXIT_OK : say_error("%s contains no key", QUOTE(from));
}

static int ask(json_t **out, const struct args *a, const char *key)
{
    struct fetch *f = NULL;
    struct text text = {0};
    char *url;
    size_t n = strlen(a->endpoint);
    while (n && a->endpoint[n - 1] == '/') n--;
    need(asprintf(&url, "%.*s/v1/status", (int)n, a->endpoint) < 0 ? NULL : url);
    int code = fetch_open(&f, key, FETCH_FROM_SERVER);
    if (!code) code = fetch_text(f, url, MAX_STATUS_BYTES, &text, NULL);
    if (!code && !(*out = json_loadb(text.p, text.n, 0, NULL)))
        code = say_error("%s is not a fletch server", QUOTE(a->endpoint));
    free(text.p);
    free(url);
    fetch_close(f);
    return code;
}

static void put_row(struct table *t, const json_t *m)
{
    const char *backend = get_text(m, "backend");
    table_put(t, "%s", get_text(m, "model"));
    table_put(t, "%s", get_text(m, "type"));
    table_put(t, "%s", human_bytes(get_count(m, "memory_bytes")).text);
    table_put(t, "%.*s", (int)strcspn(backend, " :"), backend);
    table_put(t, "%llu", (unsigned long long)get_count(m, "n_ctx"));
    table_put(t, "%llu", (unsigned long long)get_count(m, "running"));
    table_put(t, "%.1f", json_number_value(json_object_get(m, "tokens_per_s")));
}

static void print_models(const json_t *j, const struct args *a)
{
    static const char *const heads[] = {"model",   "type",    "memory",  "backend",
                                        "context", "running", "tokens/s"};
    const json_t *models = json_object_get(j, "models"), *m;
    struct table t = {.columns = "llrlrrr"};
    size_t i, n = 0;
    for (i = 0; i < sizeof heads / sizeof *heads; i++) table_put(&t, "%s", heads[i]);
    json_array_foreach(models, i, m)
    {
        if (get_bool(m, "ready")) put_row(&t, m);
        n += get_bool(m, "ready");
    }
    if (n)
        table_print(&t, stdout);
    else if (!a->quiet)
        fprintf(stderr, "no model is loaded (available on demand: %zu)\n", json_array_size(models));
    table_free(&t);
}

static int ps(const struct args *a)
{
    char *key = NULL;
    json_t *j = NULL;
    int code = read_key(&key, a->api_key);
    if (!code) {
        code = ask(&j, a, key);
        if (code && !a->quiet)
            fputs("start a server with \"fletch serve\", or give the address of a running one with "
                  "--endpoint URL\n",
                  stderr);
    }
    if (!code && a->json) say_json(j);
    if (!code && !a->json) print_models(j, a);
    json_decref(j);
    free(key);
    return code;
}

const struct command cmd_ps = {
    .name = "ps",
    .operands = "",
    .summary = "list the models that a server has loaded",
    .about = "Lists the models that a running \"fletch serve\" has loaded, with their memory use "
             "and the number of running requests. Requires libcurl.",
    .groups = {&ps_group, &opts_common},
    .run = ps,
};
