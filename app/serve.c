/* fletch serve: a model for programs and people, over HTTP. The server itself is in server/. */
#include <stdlib.h>
#include <string.h>

#include "app.h"
#include "server/server.h"

static const struct opt serve_opts[] = {
    {0, "host", OPT_TEXT, "ADDRESS", "127.0.0.1",
     "address to listen on; any but this machine's own needs --api-key", OPT_FIELD(host), 0, 0},
    {0, "port", OPT_COUNT, "N", "8080", "port to listen on; 0: any free one, which is said",
     OPT_FIELD(port), 0, 65535},
    {0, "api-key", OPT_TEXT, "FILE", NULL,
     "keys, one a line: NAME KEY [REQUESTS-A-MINUTE]; env:VARIABLE takes them from the environment",
     OPT_FIELD(api_key), 0, 0},
    {0, "rate", OPT_REAL, "N", NULL, "requests a minute for every key (default: any number)",
     OPT_FIELD(rate), 0, 1e9},
    {0, "allow-host", OPT_TEXTS, "NAME", NULL,
     "a name that this server goes by, besides addresses and localhost; may be repeated",
     OPT_FIELD(allow_hosts), 0, 0},
    {0, "cert", OPT_TEXT, "FILE", NULL, "certificates (PEM): speak TLS", OPT_FIELD(cert), 0, 0},
    {0, "key", OPT_TEXT, "FILE", NULL, "the key of the certificate (PEM)", OPT_FIELD(cert_key), 0,
     0},
    {0, "parallel", OPT_COUNT, "N", "8", "requests to run at once", OPT_FIELD(parallel), 1, 1024},
    {0, "cache-tokens", OPT_COUNT, "N", NULL,
     "tokens that the cache has room for, over all requests (default: a whole context for each)",
     OPT_FIELD(cache_tokens), 1, UINT32_MAX},
    {0, "shared-cache", OPT_FLAG, NULL, NULL,
     "prompts of one key may use what was computed for another's; how fast it answers then tells "
     "what others asked",
     OPT_FIELD(shared_cache), 0, 0},
    {0, "alias", OPT_TEXT, "NAME", NULL, "what the API calls the model (default: its file's name)",
     OPT_FIELD(alias), 0, 0},
    {0, "limit", OPT_TEXTS, "NAME=N", NULL,
     "sets a limit, as in queue=32; docs/server.md lists them; may be repeated", OPT_FIELD(limits),
     0, 0},
    {0, "drain", OPT_REAL, "SECONDS", "30",
     "time that running requests may take after SIGTERM; a second signal ends at once",
     OPT_FIELD(drain), 0, 1e6},
    {0, "stuck", OPT_REAL, "SECONDS", "60",
     "/health is 503 when work waits and no step ended for so long", OPT_FIELD(stuck), 1, 1e6},
    {0, "workers", OPT_COUNT, "N", "2", "threads that tokenise and render templates",
     OPT_FIELD(workers), 1, 64},
    {0, "log-json", OPT_FLAG, NULL, NULL, "log as JSON, one object a line", OPT_FIELD(log_json), 0,
     0},
};
static const struct opt_group serve_group = {NULL, OPT_TABLE(serve_opts)};

struct serve {
    struct args a;
    struct host host;
};

/* On the engine thread. */
static int load(void *ctx, struct served *m)
{
    struct serve *v = ctx;
    int code = host_open_engine(&v->host, v->a.backend, &v->a);
    if (code) return code;
    if (!v->a.quiet) fprintf(stderr, "backend %s\n", fletch_engine_backend(v->host.engine));
    v->a.parallel.v++; /* one for embeddings, which are a session's */
    code = host_open_model(&v->host, m->path, &v->a);
    if (code) return code;
    m->model = v->host.model;
    m->info = v->host.info;
    struct fletch_batch_params params = {.max_waiting = UINT16_MAX};
    int rc = fletch_session_open(&m->session, m->model);
    if (!rc) rc = fletch_batch_open(&m->batch, m->model, &params);
    return rc ? say_failure(rc, fletch_model_error(m->model)) : EXIT_OK;
}

static int set_limit(struct limits *limits, const char *text)
{
    size_t n = strcspn(text, "=");
    char word[40];
    struct near near = {.word = word};
    snprintf(word, sizeof word, "%.*s", (int)(n < sizeof word ? n : sizeof word - 1), text);
    uint64_t v;
    for (size_t i = 0; i < N_LIMITS; i++) {
        const char *name = limit_table[i].name;
        near_consider(&near, name);
        if (strlen(name) != n || strncmp(name, text, n) != 0) continue;
        if (!text[n] || !parse_count(text + n + 1, &v) || v > UINT32_MAX || !v)
            return opts_wrong("serve", "--limit wants NAME=N, not %s", QUOTE(text));
        limits->v[i] = v;
        return EXIT_OK;
    }
    return opts_wrong("serve", "--limit: there is no limit %s%s%s", QUOTE(word),
                      near.best ? "; did you mean " : "", near.best ? near.best : "");
}

/* The file's or folder's name, without what all such names end in. */
static char *name_of(const char *path)
{
    char *name = need(strdup(path)), *slash;
    size_t n = strlen(name);
    while (n > 1 && name[n - 1] == '/') name[--n] = 0;
    slash = strrchr(name, '/');
    if (slash) memmove(name, slash + 1, strlen(slash + 1) + 1);
    n = strlen(name);
    if (n > 5 && strcmp(name + n - 5, ".gguf") == 0) name[n - 5] = 0;
    for (char *p = name; *p; p++)
        if (*p <= 0x20 || *p == 0x7f || *p == '"' || *p == '\\') *p = '-';
    return name;
}

static int serve(const struct args *a)
{
    struct serve v = {.a = *a};
    const char *path = a->operands.n ? a->operands.p[0] : NULL;
    char *name = name_of(a->alias ? a->alias : path ? path : "guide");
    struct server_params p = {.host = a->host,
                              .port = (uint16_t)a->port.v,
                              .cert = a->cert,
                              .key = a->cert_key,
                              .key_file = a->api_key,
                              .hosts = a->allow_hosts.p,
                              .n_hosts = a->allow_hosts.n,
                              .drain_seconds = a->drain.v,
                              .stuck_seconds = a->stuck.v,
                              .rate = a->rate.v,
                              .shared_cache = a->shared_cache,
                              .log_json = a->log_json,
                              .quiet = a->quiet,
                              .n_workers = (uint32_t)a->workers.v,
                              .load = load,
                              .ctx = &v,
                              .id = name,
                              .path = path};
    int code = EXIT_OK;
    for (size_t i = 0; i < N_LIMITS; i++) p.limits.v[i] = limit_table[i].value;
    for (size_t i = 0; i < a->limits.n && !code; i++) code = set_limit(&p.limits, a->limits.p[i]);
    if (!code) code = server_run(&p);
    host_close(&v.host);
    free(name);
    return code;
}

const struct command cmd_serve = {
    .name = "serve",
    .operands = "[MODEL]",
    .summary = "answer requests over HTTP, as OpenAI's servers do, and serve a page",
    .about =
        "Listens on 127.0.0.1:8080 and answers /v1/chat/completions, /v1/completions and more, "
        "many requests at once; a browser gets a page to chat with. Only programs of this machine "
        "can reach it; any other address needs keys (--api-key). docs/server.md tells of every "
        "endpoint, limit and figure.",
    .groups = {&serve_group, &opts_model, &opts_place, &opts_common},
    .max_operands = 1,
    .run = serve,
};
