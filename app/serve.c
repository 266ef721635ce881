/* fletch serve: a model for programs and people, over HTTP. The server itself is in server/. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "app.h"
#include "models.h"
#include "report.h"
#include "server/server.h"

static const struct opt serve_opts[] = {
    {0, "host", OPT_TEXT, "ADDRESS", "127.0.0.1",
     "address to listen on; addresses other than localhost require --api-key", OPT_FIELD(host), 0,
     0},
    {0, "port", OPT_COUNT, "N", "8080", "port to listen on; 0 picks a free port and prints it",
     OPT_FIELD(port), 0, 65535},
    {0, "api-key", OPT_TEXT, "FILE", NULL,
     "file of API keys, one per line: NAME KEY [REQUESTS-PER-MINUTE]; env:VARIABLE reads the lines "
     "from an environment variable instead",
     OPT_FIELD(api_key), 0, 0},
    {0, "rate", OPT_REAL, "N", NULL, "maximum requests per minute per key (default: unlimited)",
     OPT_FIELD(rate), 0, 1e9},
    {0, "allow-host", OPT_TEXTS, "NAME", NULL,
     "accept requests addressed to this host name, in addition to localhost and IP addresses; may "
     "be repeated",
     OPT_FIELD(allow_hosts), 0, 0},
    {0, "allow-origin", OPT_TEXTS, "ORIGIN", NULL,
     "let web pages from this origin, such as https://example.org, use the server; may be "
     "repeated. With '*', every web page that is open in a browser can use the server",
     OPT_FIELD(allow_origins), 0, 0},
    {0, "cert", OPT_TEXT, "FILE", NULL, "use TLS with the certificates in FILE (PEM)",
     OPT_FIELD(cert), 0, 0},
    {0, "key", OPT_TEXT, "FILE", NULL, "private key of the certificate (PEM)", OPT_FIELD(cert_key),
     0, 0},
    {0, "parallel", OPT_COUNT, "N", "8", "maximum number of requests that run concurrently",
     OPT_FIELD(parallel), 1, 1024},
    {0, "cache-tokens", OPT_COUNT, "N", NULL,
     "size of the KV cache in tokens, shared by all requests (default: with -c, a full context per "
     "request; otherwise up to 8192 tokens per request, but at least one full context in total)",
     OPT_FIELD(cache_tokens), 1, UINT32_MAX},
    {0, "no-warm", OPT_FLAG, NULL, NULL,
     "do not compute answers as prompts for the next turn while the device is idle",
     OPT_FIELD(no_warm), 0, 0},
    {0, "shared-cache", OPT_FLAG, NULL, NULL,
     "let requests reuse prefixes that were computed for other API keys; response times can then "
     "reveal what other clients have asked",
     OPT_FIELD(shared_cache), 0, 0},
    {0, "alias", OPT_TEXTS, "NAME[=MODEL]", NULL,
     "name of the model in the API (default: its file name); with =MODEL, an additional name for "
     "that model; '*' stands for every unknown name; may be repeated",
     OPT_FIELD(aliases), 0, 0},
    {0, "strict-model", OPT_FLAG, NULL, NULL,
     "reject unknown model names even if the server has only one model (default: answer them with "
     "this model)",
     OPT_FIELD(strict_model), 0, 0},
    {0, "lenient", OPT_FLAG, NULL, NULL,
     "ignore unknown fields in requests instead of rejecting the request, and list them in the "
     "X-Fletch-Notice header",
     OPT_FIELD(lenient), 0, 0},
    {'n', "max-tokens", OPT_COUNT, "N", NULL,
     "generate at most N tokens for a request without max_tokens; -1 means no limit (default: -1 "
     "for chats, 16 for text completions)",
     OPT_FIELD(n_tokens), -1, INT32_MAX},
    {0, "model-dir", OPT_TEXT, "DIR", NULL,
     "serve every model in DIR and its subfolders; the server loads models on demand, and unloads "
     "idle models when another model needs the memory (--max-memory limits the total)",
     OPT_FIELD(model_dir), 0, 0},
    {0, "template", OPT_TEXT, "FILE", NULL,
     "chat template to use instead of the model's own; with --model-dir, only for models without a "
     "usable template",
     OPT_FIELD(template_file), 0, 0},
    {0, "limit", OPT_TEXTS, "NAME=N", NULL,
     "change a limit, for example queue=32; docs/server.md lists all limits; may be repeated",
     OPT_FIELD(limits), 0, 0},
    {0, "drain", OPT_REAL, "SECONDS", "30",
     "after SIGTERM, wait up to this long for running requests to finish; a second signal stops "
     "the server immediately",
     OPT_FIELD(drain), 0, 1e6},
    {0, "stuck", OPT_REAL, "SECONDS", "60",
     "return 503 from /health if requests are waiting and the model has completed no step for this "
     "long",
     OPT_FIELD(stuck), 1, 1e6},
    {0, "workers", OPT_COUNT, "N", "2",
     "number of threads for tokenizing and for rendering templates", OPT_FIELD(workers), 1, 64},
    {0, "no-sandbox", OPT_FLAG, NULL, NULL,
     "run without the sandbox, which on Linux prevents the server from starting programs, opening "
     "connections, and reading files other than the model's",
     OPT_FIELD(no_sandbox), 0, 0},
    {0, "log-json", OPT_FLAG, NULL, NULL, "write the log as JSON, one object per line",
     OPT_FIELD(log_json), 0, 0},
};
static const struct opt_group serve_group = {NULL, OPT_TABLE(serve_opts)};

/* Bytes that the model will take, by its plan; 0: not known. */
static uint64_t planned(struct host *h, const char *path, const struct args *a)
{
    struct fletch_model_params params;
    char *text;
    host_params(&params, a);
    params.notice = NULL; /* loading tells */
    if (!path || fletch_plan(h->engine, path, &params, &text)) return 0;
    json_t *j = json_loads(text, 0, NULL);
    uint64_t bytes = (uint64_t)json_integer_value(json_object_get(j, "total"));
    json_decref(j);
    fletch_free(text);
    return bytes;
}

static void log_notice(void *ctx, const char *text)
{
    log_line(ctx, "%s", text);
}

struct loader {
    struct args args;
    struct sampling sampling; /* of requests that say nothing else */
};

/* On the engine thread. */
static int load(void *ctx, struct served *m)
{
    const struct loader *loader = ctx;
    struct args a = loader->args;
    struct host *h = m->host = calloc(1, sizeof *h);
    if (!h) return EXIT_FIT;
    int code = host_open_engine(h, a.backend, &a);
    if (code) return code;
    m->has_driver = strncmp(fletch_engine_backend(h->engine), "cuda", 4) == 0;
    a.parallel.v++; /* one for embeddings and scores, which are a session's */
    m->bytes = planned(h, m->path, &a);
    if (m->allowed && m->bytes > m->allowed) return EXIT_FIT;
    h->notice = log_notice;
    h->notice_ctx = m->server;
    code = host_open_model(h, m->path, &a);
    if (code) return code;
    m->model = h->model;
    m->info = h->info;
    m->info.sampling = sampling_over(&loader->sampling, &h->info.sampling);
    m->bytes = m->info.memory_bytes;
    m->backend = fletch_engine_backend(h->engine);
    struct fletch_batch_params params = {.max_waiting = UINT16_MAX};
    int rc = fletch_session_open(&m->session, m->model);
    if (!rc) rc = fletch_batch_open(&m->batch, m->model, &params);
    return rc ? say_failure(rc, fletch_model_error(m->model)) : EXIT_OK;
}

static void unload(void *ctx, struct served *m)
{
    (void)ctx;
    if (m->host) host_close(m->host);
    free(m->host);
    m->host = NULL;
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
            return opts_wrong("serve", "--limit: expected NAME=N, not %s", QUOTE(text));
        limits->v[i] = v;
        return EXIT_OK;
    }
    return opts_wrong("serve", "--limit: unknown limit %s%s%s", QUOTE(word),
                      near.best ? "; did you mean " : "", near.best ? near.best : "");
}

/* What could not stand in JSON, labels of metrics and the log as it is becomes a dash. */
static void make_plain(char *name)
{
    json_t *utf8 = json_string(name);
    for (char *p = name; *p; p++) {
        unsigned char c = (unsigned char)*p;
        if (c <= 0x20 || c == 0x7f || c == '"' || c == '\\' || (c >= 0x80 && !utf8)) *p = '-';
    }
    json_decref(utf8);
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
    if (n > 5 && model_is_gguf(name)) name[n - 5] = 0;
    make_plain(name);
    return name;
}

struct names {
    const char **ids, **paths;
    size_t n;
};

static const char *shown_path(const char *path)
{
    return path ? path : "the built-in model";
}

/* Takes the name over. */
static int names_add(struct names *names, const char *path, char *name)
{
    int code = EXIT_OK;
    make_plain(name);
    for (size_t i = 0; i < names->n && !code; i++)
        if (strcmp(names->ids[i], name) == 0)
            code =
                say_error("%s and %s would both be called %s; rename one of them",
                          QUOTE(shown_path(names->paths[i])), QUOTE(shown_path(path)), QUOTE(name));
    if (code) {
        free(name);
        return code;
    }
    size_t n = ++names->n;
    names->ids = need(realloc(names->ids, n * sizeof *names->ids));
    names->paths = need(realloc(names->paths, n * sizeof *names->paths));
    names->ids[n - 1] = name;
    names->paths[n - 1] = path ? need(strdup(path)) : NULL;
    return EXIT_OK;
}

static void names_free(struct names *names)
{
    for (size_t i = 0; i < names->n; i++) {
        free((char *)names->ids[i]);
        free((char *)names->paths[i]);
    }
    free(names->ids);
    free(names->paths);
}

/* Aliases of models; free the array and the names. */
struct aliases {
    struct server_alias *p;
    size_t n;
};

static void aliases_add(struct aliases *list, const char *name, size_t n_name, size_t model)
{
    list->p = need(realloc(list->p, (list->n + 1) * sizeof *list->p));
    list->p[list->n++] = (struct server_alias){need(strndup(name, n_name)), model};
}

static void aliases_free(struct aliases *list)
{
    for (size_t i = 0; i < list->n; i++) free((char *)list->p[i].name);
    free(list->p);
}

/* NAME, NAME=MODEL, * or *=MODEL. The first plain NAME is what a lone model is called. */
static int add_alias(struct aliases *list, struct names *names, const char *text, bool *renamed)
{
    const char *equals = strchr(text, '='), *model = equals ? equals + 1 : NULL;
    size_t n = equals ? (size_t)(equals - text) : strlen(text), i = 0;
    char *name = need(strndup(text, n)), *copy = need(strdup(name));
    make_plain(copy);
    bool plain = n && strcmp(name, copy) == 0;
    free(copy);
    for (; model && i < names->n && strcmp(names->ids[i], model) != 0; i++) continue;
    int code = EXIT_OK;
    if (!plain)
        code = opts_wrong("serve",
                          "--alias %s: names must not contain spaces, quotes or invalid UTF-8",
                          QUOTE(text));
    else if (i == names->n)
        code = opts_wrong("serve", "--alias %s: there is no model %s on this server", QUOTE(text),
                          QUOTE(model));
    else if (!model && names->n > 1 && strcmp(name, "*") != 0)
        code = opts_wrong("serve", "--alias %s: add the name of its model, for example %s=%s",
                          QUOTE(text), name, names->ids[0]);
    else if (!model && !*renamed && strcmp(name, "*") != 0) {
        free((char *)names->ids[0]);
        names->ids[0] = need(strdup(name));
        *renamed = true;
    } else
        aliases_add(list, name, n, i);
    free(name);
    return code;
}

/* Is it a model, by its name? Of a split one, the first file is. */
static bool is_model(const char *path)
{
    char config[4096 + 16];
    size_t n_name;
    if (model_is_gguf(path)) return model_set_part(path, &n_name) <= 1;
    snprintf(config, sizeof config, "%s/config.json", path);
    return access(config, R_OK) == 0;
}

struct pulled {
    struct names *names;
    size_t n_root; /* bytes of the path of the folder of models */
};

/* What lies deeper in the directory of a model is part of that. */
static int add_pulled(void *ctx, const char *name, const char *path)
{
    const struct pulled *p = ctx;
    size_t n = p->n_root + 1;
    n += strcspn(path + n, "/");
    char *owner = need(strndup(path, n));
    bool inside = is_model(owner);
    free(owner);
    return inside ? EXIT_OK : names_add(p->names, path, need(strdup(name)));
}

/* What fletch pull got, after the built-in model. */
static int list_pulled(struct names *names, const char *folder)
{
    struct pulled pulled = {names, strlen(folder)};
    int code = names_add(names, NULL, need(strdup("guide")));
    return code ? code : models_each(folder, add_pulled, &pulled);
}

static int list_models(struct names *names, const char *folder)
{
    struct pulled pulled = {names, strlen(folder)};
    struct dirent **found;
    int n = scandir(folder, &found, NULL, alphasort), code = EXIT_OK;
    if (n < 0) return say_error("%s: %s", QUOTE(folder), strerror(errno));
    for (int i = 0; i < n; i++) {
        char path[4096];
        int length = snprintf(path, sizeof path, "%s/%s", folder, found[i]->d_name);
        if (found[i]->d_name[0] != '.' && length < (int)sizeof path && is_model(path) && !code)
            code = names_add(names, path, name_of(path));
        free(found[i]);
    }
    free(found);
    if (!code) code = models_each(folder, add_pulled, &pulled);
    if (code) return code;
    return names->n ? EXIT_OK : say_error("%s: no models found", QUOTE(folder));
}

/* Of answers whose requests give none; 0: the endpoint's. */
static uint32_t default_length(const struct args *a)
{
    if (!a->n_tokens.set) return 0;
    return a->n_tokens.v ? (uint32_t)a->n_tokens.v : UINT32_MAX;
}

static int serve(const struct args *a)
{
    const char *path = a->operands.n ? a->operands.p[0] : NULL;
    struct names names = {0};
    struct aliases aliases = {0};
    struct loader loader = {.args = *a};
    struct args *mine = &loader.args;
    char *template_text = NULL, *pulled = NULL;
    bool renamed = false;
    int code = EXIT_OK;
    if (a->model_dir && path)
        return opts_wrong("serve", "--model-dir cannot be combined with MODEL");
    if (a->template_file) { /* now: models may come when files can no longer be read */
        code = read_string(&template_text, a->template_file);
        if (code) return code;
        mine->template_text = template_text;
    }
    code = sampling_open(&loader.sampling, a, "serve");
    if (code) {
        sampling_close(&loader.sampling);
        free(template_text);
        return code;
    }
    bool saves = !a->cache_disk.set || a->cache_disk.v;
    char *folder = saves && !a->cache_dir ? user_folder(PREFIX_FOLDER) : NULL;
    if (folder) {
        mine->cache_dir = folder;
        mine->cache_optional = true;
    }
    if (mine->cache_dir && !a->cache_disk.set)
        mine->cache_disk.v = default_cache_bytes(mine->cache_dir);
    if (a->model_dir) {
        code = list_models(&names, a->model_dir);
    } else if (path) {
        code = host_check_path(path);
        if (!code) code = names_add(&names, path, name_of(path));
    } else {
        pulled = user_folder(MODELS_FOLDER);
        code =
            pulled ? list_pulled(&names, pulled) : names_add(&names, NULL, need(strdup("guide")));
        if (names.n > 1) mine->model_dir = pulled;
        if (names.n > 1) aliases_add(&aliases, "", 0, 0); /* who names none means the built-in */
    }
    for (size_t i = 0; i < a->aliases.n && !code; i++)
        code = add_alias(&aliases, &names, a->aliases.p[i], &renamed);
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
                              .no_warm = a->no_warm,
                              .log_json = a->log_json,
                              .no_sandbox = a->no_sandbox,
                              .cache_dir = saves ? mine->cache_dir : NULL,
                              .cache_is_default = folder != NULL,
                              .model_dir = mine->model_dir,
                              .origins = a->allow_origins.p,
                              .n_origins = a->allow_origins.n,
                              .strict_model = a->strict_model,
                              .lenient = a->lenient,
                              .has_seed = a->seed.set,
                              .seed = a->seed.v,
                              .max_tokens = default_length(a),
                              .draft = a->draft,
                              .quiet = a->quiet,
                              .n_workers = (uint32_t)a->workers.v,
                              .load = load,
                              .unload = unload,
                              .ctx = &loader,
                              .ids = names.ids,
                              .paths = names.paths,
                              .n_models = names.n,
                              .aliases = aliases.p,
                              .n_aliases = aliases.n,
                              .on_demand = mine->model_dir != NULL,
                              .max_memory = a->max_memory.v};
    for (size_t i = 0; i < N_LIMITS; i++) p.limits.v[i] = limit_table[i].value;
    for (size_t i = 0; i < a->limits.n && !code; i++) code = set_limit(&p.limits, a->limits.p[i]);
    if (!code) code = server_run(&p);
    names_free(&names);
    aliases_free(&aliases);
    sampling_close(&loader.sampling);
    free(template_text);
    free(pulled);
    free(folder);
    return code;
}

const struct command cmd_serve = {
    .name = "serve",
    .operands = "[MODEL]",
    .summary = "start a server with an OpenAI-compatible API and a chat page",
    .about = "Starts a server at http://127.0.0.1:8080 with an OpenAI-compatible API "
             "(/v1/chat/completions, /v1/completions and others) and a chat page for browsers. The "
             "server runs many requests concurrently.\nWithout MODEL or --model-dir, it serves the "
             "built-in model and every model that \"fletch pull\" has downloaded. It loads each "
             "model when a request needs it.\nThe server listens on localhost only; other "
             "addresses require API keys (--api-key). Request sizes, queues and times are limited. "
             "docs/server.md describes every endpoint, limit and metric.",
    .groups = {&serve_group, &opts_sampling, &opts_model, &opts_speculation, &opts_cache,
               &opts_place, &opts_common},
    .max_operands = 1,
    .run = serve,
};
