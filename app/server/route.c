/* Paths: which are answered at once, which become calls. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "app.h"
#include "http.h"
#include "server.h"

/* ---- what is answered at once ---- */

/* Alive: the loop turns. */
static void livez(struct conn *c)
{
    json_reply(c, 200, json_pack("{s:s}", "status", "ok"));
}

static bool is_ready(struct server *s)
{
    bool ready = !s->draining;
    for (size_t i = 0; i < s->n_served; i++)
        ready = ready && (s->params.on_demand || served_is_ready(&s->served[i]));
    return ready;
}

static void readyz(struct conn *c)
{
    struct server *s = conn_server(c);
    bool ready = is_ready(s);
    const char *why = s->draining ? "shutting down" : ready ? "ok" : "loading";
    if (!ready) http_add_header(c, "Retry-After", "2");
    json_reply(c, ready ? 200 : 503, json_pack("{s:s}", "status", why));
}

/* Healthy: where there is work, steps end. */
static void health(struct conn *c)
{
    struct server *s = conn_server(c);
    const char *status = "ok";
    for (size_t i = 0; i < s->n_served; i++) {
        struct served_figures f;
        served_figures(&s->served[i], &f);
        bool busy = s->n_queued || f.stats.n_running || f.stats.n_waiting;
        if (busy && f.t_step > 0 && server_now() - f.t_step > s->params.stuck_seconds)
            status = "requests are waiting, but the model has completed no step for too long";
    }
    if (!is_ready(s)) {
        readyz(c);
        return;
    }
    json_reply(c, strcmp(status, "ok") == 0 ? 200 : 503, json_pack("{s:s}", "status", status));
}

static void models(struct conn *c)
{
    struct server *s = conn_server(c);
    json_t *list = json_array();
    for (size_t i = 0; i < s->n_served; i++)
        json_array_append_new(list, served_card(&s->served[i]));
    json_reply(c, 200, json_pack("{s:s, s:o}", "object", "list", "data", list));
}

static void no_such_path(struct conn *c)
{
    struct problem p = {.status = 404, .type = "invalid_request_error", .code = "not_found"};
    snprintf(p.text, sizeof p.text, "unknown path %s", QUOTE(conn_request(c)->head.path));
    problem_reply(c, &p, NULL);
}

/* %HH becomes the byte; what is no such thing stays. NULL: a byte is NUL, which no name has. */
static char *percent_decoded(const char *s)
{
    char *text = memory_copy(s), *to = text;
    for (; *s; s++) {
        unsigned byte;
        bool coded = s[0] == '%' && isxdigit((unsigned char)s[1]) && isxdigit((unsigned char)s[2]);
        if (coded && sscanf(s + 1, "%2x", &byte) == 1) {
            *to++ = (char)byte;
            s += 2;
        } else
            *to++ = *s;
    }
    *to = 0;
    if (strlen(text) == (size_t)(to - text)) return text;
    free(text);
    return NULL;
}

/* GET /v1/models/ID */
static void model(struct conn *c)
{
    char *id = percent_decoded(conn_request(c)->head.path + strlen("/v1/models/"));
    struct served *m = id ? served_find(conn_server(c), id) : NULL;
    free(id);
    if (m)
        json_reply(c, 200, served_card(m));
    else
        no_such_path(c);
}

/* ---- the table ---- */

const struct route routes[] = {
    {"GET", "/livez", livez, NULL, "report whether the server is running", NULL, "State", NULL},
    {"GET", "/readyz", readyz, NULL,
     "report whether the server can answer requests; 503 while models load or the server shuts "
     "down",
     NULL, "State", NULL},
    {"GET", "/health", health, NULL,
     "report the same as /readyz; also 503 if requests are waiting and the model completes no step",
     NULL, "State", NULL},
    {"GET", "/metrics", metrics_reply, NULL, "return metrics for Prometheus", NULL, NULL, NULL},
    {"GET", "/v1/status", status_reply, NULL, "return the state of the server", NULL, "Status",
     NULL},
    {"GET", "/v1/models", models, NULL, "list the available models", NULL, "Models", NULL},
    {"GET", "/v1/models/*", model, NULL, "describe one model", NULL, "Model", NULL},
    {"POST", "/v1/chat/completions", NULL, &api_chat, "generate the next message of a conversation",
     "ChatRequest", "ChatCompletion", "ChatChunk"},
    {"POST", "/v1/responses", NULL, &api_responses,
     "generate the next message of a conversation, in OpenAI's newer format", "ResponseRequest",
     "Response", "ResponseEvent"},
    {"POST", "/v1/messages", NULL, &api_messages,
     "generate the next message of a conversation, in Anthropic's format", "MessagesRequest",
     "Message", "MessageEvent"},
    {"POST", "/v1/messages/count_tokens", NULL, &api_count_tokens, "count the tokens of a prompt",
     "MessagesRequest", "TokenCount", NULL},
    {"POST", "/v1/embeddings", NULL, &api_embeddings, "turn texts into vectors",
     "EmbeddingsRequest", "Embeddings", NULL},
    {"POST", "/v1/rerank", NULL, &api_rerank, "sort documents by how well they answer a query",
     "RerankRequest", "Ranking", NULL},
    {"POST", "/rerank", NULL, &api_rerank, "do the same as /v1/rerank", "RerankRequest", "Ranking",
     NULL},
    {"POST", "/v1/completions", NULL, &api_completions, "continue texts or token ids",
     "CompletionRequest", "Completion", "Completion"},
    {"POST", "/tokenize", NULL, &api_tokenize, "convert a text to tokens", "TokenizeRequest",
     "Tokens", NULL},
    {"POST", "/detokenize", NULL, &api_detokenize, "convert tokens to a text", "DetokenizeRequest",
     "Text", NULL},
    {"POST", "/apply-template", NULL, &api_apply_template,
     "return the model's exact input for a chat", "ChatRequest", "Rendered", NULL},
};
const size_t n_routes = sizeof routes / sizeof *routes;

static bool matches(const char *pattern, const char *path)
{
    size_t n = strlen(pattern);
    if (pattern[n - 1] == '*') return strncmp(pattern, path, n - 1) == 0;
    return strcmp(pattern, path) == 0;
}

json_t *(*route_words(const char *path))(const struct problem *)
{
    for (size_t i = 0; path && i < n_routes; i++)
        if (routes[i].api && matches(routes[i].path, path)) return routes[i].api->problem;
    return NULL;
}

static void wrong_method(struct conn *c, const char *allowed)
{
    struct problem p = {.status = 405, .type = "invalid_request_error", .code = "method"};
    snprintf(p.text, sizeof p.text, "%s accepts only %s", QUOTE(conn_request(c)->head.path),
             allowed);
    http_add_header(c, "Allow", allowed);
    problem_reply(c, &p, route_words(conn_request(c)->head.path));
}

void route(struct conn *c)
{
    memory_begin();
    const struct http_head *h = &conn_request(c)->head;
    const char *method = strcmp(h->method, "HEAD") == 0 ? "GET" : h->method, *allowed = NULL;
    if (guard_preflight(c)) return;
    for (size_t i = 0; i < n_routes; i++) {
        if (!matches(routes[i].path, h->path)) continue;
        allowed = routes[i].method;
        if (strcmp(method, allowed) != 0) continue;
        if (routes[i].api)
            call_begin(c, routes[i].api);
        else
            routes[i].answer(c);
        return;
    }
    if (allowed)
        wrong_method(c, allowed);
    else if (strcmp(method, "GET") != 0 || !page_reply(c))
        no_such_path(c);
}
