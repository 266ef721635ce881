/* Who may: the names that this server goes by (a page of another site that makes its name point
 * here is refused), pages of other origins, keys and their rates. */
#include "server.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "app.h"
#include "sha256.h"

static const double MAX_RATE = 1e9; /* requests a minute, as --rate has it */
/* Wrong keys from one address: MAX_WRONG at once, then one every WRONG_SECONDS. */
static const double MAX_WRONG = 10, WRONG_SECONDS = 6;
#define WORD_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"

/* ---- names ---- */

/* Cuts the port off a copy of a Host; brackets of IPv6 too. */
static bool host_name(const char *host, char *out, size_t cap)
{
    const char *end = host[0] == '[' ? strchr(host, ']') : host + strcspn(host, ":");
    if (!end) return false;
    const char *begin = host + (host[0] == '['), *port = end + (host[0] == '[');
    if (*port && (*port != ':' || port[1 + strspn(port + 1, "0123456789")])) return false;
    size_t n = (size_t)(end - begin);
    if (!n || n >= cap) return false;
    memcpy(out, begin, n);
    out[n] = 0;
    return true;
}

/* An attacker's page reaches a local server by a name of the attacker's: addresses are safe. */
static bool knows_host(const struct guard *g, const char *host)
{
    char name[256];
    unsigned char address[16];
    if (!host_name(host, name, sizeof name)) return false;
    if (strcasecmp(name, "localhost") == 0 || inet_pton(AF_INET, name, address) == 1 ||
        inet_pton(AF_INET6, name, address) == 1)
        return true;
    for (size_t i = 0; i < g->n_hosts; i++)
        if (strcasecmp(name, g->hosts[i]) == 0) return true;
    return false;
}

/* A page may use the server that it came from. */
static bool same_origin(const char *origin, const char *host)
{
    const char *at = strstr(origin, "://");
    return at && (strncmp(origin, "http://", 7) == 0 || strncmp(origin, "https://", 8) == 0) &&
           strcasecmp(at + 3, host) == 0;
}

/* The value of Access-Control-Allow-Origin; NULL: that origin may not. */
static const char *allowed_origin(const struct guard *g, const char *origin)
{
    for (size_t i = 0; origin && i < g->n_origins; i++)
        if (strcmp(g->origins[i], "*") == 0 || strcasecmp(g->origins[i], origin) == 0)
            return g->origins[i];
    return NULL;
}

/* "*", "null" or SCHEME://HOST[:PORT], as browsers send it. */
static bool is_origin(const char *text)
{
    size_t n = strspn(text, WORD_CHARS "+.");
    if (strcmp(text, "*") == 0 || strcmp(text, "null") == 0) return true;
    if (!n || strncmp(text + n, "://", 3) != 0) return false;
    const char *host = text + n + 3;
    return *host && !host[strspn(host, WORD_CHARS ".:[]")];
}

/* Names of headers, with commas; they are repeated to the browser that sent them. */
static bool is_header_list(const char *text)
{
    return !text[strspn(text, WORD_CHARS ", ")];
}

bool guard_preflight(struct conn *c)
{
    enum { MAX_LIST = 1024 };
    const struct http_head *head = &conn_request(c)->head;
    const char *wanted = http_head_find(head, "access-control-request-headers");
    if (strcmp(head->method, "OPTIONS") != 0 ||
        !http_head_find(head, "access-control-request-method") ||
        !allowed_origin(&conn_server(c)->guard, http_head_find(head, "origin")))
        return false;
    http_add_header(c, "Access-Control-Allow-Methods", "GET, POST");
    if (wanted && strlen(wanted) <= MAX_LIST && is_header_list(wanted))
        http_add_header(c, "Access-Control-Allow-Headers", wanted);
    if (http_head_find(head, "access-control-request-private-network"))
        http_add_header(c, "Access-Control-Allow-Private-Network", "true");
    http_add_header(c, "Access-Control-Max-Age", "600");
    http_reply(c, 204, NULL, NULL, 0);
    return true;
}

/* ---- keys ---- */

/* Takes the same time wherever they differ. */
static bool same_secret(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b);
    unsigned diff = n != m;
    for (size_t i = 0; i < n; i++) diff |= (unsigned char)a[i] ^ (unsigned char)b[m ? i % m : 0];
    return !diff;
}

static struct key *find_key(const struct guard *g, const char *given)
{
    struct key *found = NULL;
    for (size_t i = 0; i < g->n_keys; i++)
        if (same_secret(given, g->keys[i].secret)) found = &g->keys[i];
    return found;
}

static const char *given_key(const struct http_head *head)
{
    const char *auth = http_head_find(head, "authorization"), *key;
    if (auth && strncasecmp(auth, "bearer ", 7) == 0) return auth + 7 + strspn(auth + 7, " ");
    key = http_head_find(head, "x-api-key"); /* Anthropic's clients */
    return key ? key : "";
}

/* One minute's requests; a rate below one a minute still lets one through in its time. */
static double bucket_size(const struct key *k)
{
    return k->rate > 1 ? k->rate : 1;
}

/* A bucket of one minute's requests that fills steadily. */
static bool take_turn(struct key *k, double now)
{
    if (k->rate <= 0) return true;
    k->tokens += (now - k->t) * k->rate / 60;
    if (k->tokens > bucket_size(k)) k->tokens = bucket_size(k);
    k->t = now;
    if (k->tokens < 1) return false;
    k->tokens--;
    return true;
}

static bool refuse(struct problem *p, int status, const char *code, const char *text)
{
    *p = (struct problem){.status = status, .type = "invalid_request_error", .code = code};
    if (status == 429) p->type = "rate_limit_error";
    if (status == 401) p->type = "authentication_error";
    snprintf(p->text, sizeof p->text, "%s", text);
    return false;
}

/* ---- wrong keys ---- */

/* Of IPv6 the network (64 bits): a client that has one address of it has all. */
static struct address address_of(const char *text)
{
    struct address a = {{0}};
    unsigned char v6[16];
    static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};
    if (inet_pton(AF_INET, text, a.bytes) == 1 || inet_pton(AF_INET6, text, v6) != 1) return a;
    bool is_mapped = memcmp(v6, mapped, sizeof mapped) == 0; /* an IPv4 client of an IPv6 socket */
    memcpy(a.bytes, is_mapped ? v6 + sizeof mapped : v6, is_mapped ? 4 : sizeof a.bytes);
    return a;
}

static bool same_address(struct address a, struct address b)
{
    return memcmp(&a, &b, sizeof a) == 0;
}

/* The guesser at that address, brought up to date. Where the table is full, the one with the fewest
 * wrong keys makes room. */
static struct guesser *find_guesser(struct guard *g, struct address a, double now)
{
    struct guesser *found = NULL, *least = &g->guessers[0];
    for (size_t i = 0; i < MAX_GUESSERS; i++) {
        struct guesser *q = &g->guessers[i];
        q->n_wrong -= (now - q->t) / WRONG_SECONDS;
        if (q->n_wrong < 0) q->n_wrong = 0;
        q->t = now;
        if (same_address(q->address, a)) found = q;
        if (q->n_wrong < least->n_wrong) least = q;
    }
    if (found) return found;
    *least = (struct guesser){.address = a, .t = now};
    return least;
}

/* The key that was sent, if it may be looked at. An address that sent too many wrong ones has to
 * wait, so that keys can't be guessed; but keys that were used from there before go on working:
 * behind a proxy all clients have one address. */
static struct key *admit_key(struct guard *g, struct conn *c, struct problem *p)
{
    struct address a = address_of(conn_address(c));
    struct guesser *q = find_guesser(g, a, server_now());
    struct key *k = find_key(g, given_key(&conn_request(c)->head));
    bool waits = q->n_wrong > MAX_WRONG - 1;
    if (k && (!waits || (k->used && same_address(k->used_from, a)))) {
        k->used = true;
        k->used_from = a;
        return k;
    }
    if (waits)
        refuse(p, 429, "wrong_keys",
               "too many invalid API keys from this address; try again later");
    else
        refuse(p, 401, "invalid_api_key",
               "this server requires an API key: send Authorization: Bearer KEY");
    if (!k && !waits && *given_key(&conn_request(c)->head)) q->n_wrong++;
    return NULL;
}

/* What may be asked without a key and at any rate: whether it is alive, and the page, which asks
 * for the key. */
static bool is_open_path(const char *path)
{
    static const char *const alive[] = {"/livez", "/readyz", "/health"};
    for (size_t i = 0; i < sizeof alive / sizeof *alive; i++)
        if (strcmp(path, alive[i]) == 0) return true;
    return page_find(path) != NULL;
}

bool guard_admit(struct server *s, struct conn *c, struct problem *p)
{
    struct guard *g = &s->guard;
    struct request *r = conn_request(c);
    const char *host = r->head.host, *origin = http_head_find(&r->head, "origin");
    const char *allowed = allowed_origin(g, origin);
    if (host && !knows_host(g, host))
        return refuse(p, 421, "unknown_host",
                      "the host name in the Host header is not allowed; start the server with "
                      "--allow-host NAME to allow it");
    if (origin && !allowed && !(host && same_origin(origin, host)))
        return refuse(p, 403, "foreign_origin",
                      "web pages from this origin cannot use this server; start it with "
                      "--allow-origin ORIGIN to allow them");
    if (g->n_origins) http_add_header(c, "Vary", "Origin");
    if (allowed) {
        http_add_header(c, "Access-Control-Allow-Origin", allowed);
        http_add_header(c, "Access-Control-Expose-Headers",
                        "X-Request-Id, X-Fletch-Notice, Retry-After");
    }
    bool asks = strcmp(r->head.method, "OPTIONS") == 0; /* which browsers do without a key */
    if (is_open_path(r->head.path) || (allowed && asks)) return true;
    struct key *k = g->needs_key ? admit_key(g, c, p) : &g->keys[0];
    r->key = k;
    if (!k) return false;
    if (!take_turn(k, server_now()))
        return refuse(p, 429, "rate",
                      "this key has reached its limit of requests per minute; try again later");
    return true;
}

/* ---- opening ---- */

/* The same wherever the key stands among others: files of --cache-dir outlast their order. */
static uint64_t salt_of(const char *secret)
{
    struct sha256 h = {NULL};
    char hex[65];
    sha256_begin(&h);
    sha256_add(&h, secret, strlen(secret));
    sha256_end(&h, hex);
    hex[16] = 0;
    return strtoull(hex, NULL, 16);
}

static int read_keys(struct guard *g, const char *from)
{
    const char *env = strncmp(from, "env:", 4) == 0 ? getenv(from + 4) : NULL;
    if (strncmp(from, "env:", 4) == 0 && !env)
        return say_error("--api-key: the environment variable %s is not set", QUOTE(from + 4));
    if (env)
        g->text = need(strdup(env));
    else {
        int code = read_string(&g->text, from);
        if (code) return code;
    }
    char *save, *line = strtok_r(g->text, "\r\n", &save);
    for (; line; line = strtok_r(NULL, "\r\n", &save)) {
        char *words, *first = strtok_r(line, " \t", &words);
        if (!first || first[0] == '#') continue;
        char *second = strtok_r(NULL, " \t", &words), *third = strtok_r(NULL, " \t", &words);
        double rate = 0;
        bool more = third && strtok_r(NULL, " \t", &words);
        if (more || (third && (!parse_real(third, &rate) || !(rate > 0 && rate <= MAX_RATE))))
            return say_error("--api-key: key %s: expected NAME KEY [REQUESTS-PER-MINUTE], with "
                             "more than 0 and at most %g requests",
                             QUOTE(first), MAX_RATE);
        const char *secret = second ? second : first;
        if (strlen(secret) < 8)
            return say_error("--api-key: a key must have at least 8 characters");
        g->keys = need(realloc(g->keys, (g->n_keys + 1) * sizeof *g->keys));
        g->keys[g->n_keys] = (struct key){.name = second ? first : "key",
                                          .secret = secret,
                                          .number = g->n_keys + 1,
                                          .salt = salt_of(secret),
                                          .rate = rate};
        g->n_keys++;
    }
    return g->n_keys ? EXIT_OK : say_error("--api-key: %s contains no key", QUOTE(from));
}

static bool is_loopback(const char *host)
{
    return strcmp(host, "localhost") == 0 || strcmp(host, "::1") == 0 ||
           strncmp(host, "127.", 4) == 0;
}

int guard_open(struct guard *g, const struct server_params *params)
{
    *g = (struct guard){.hosts = params->hosts,
                        .n_hosts = params->n_hosts,
                        .origins = params->origins,
                        .n_origins = params->n_origins};
    for (size_t i = 0; i < g->n_origins; i++)
        if (!is_origin(g->origins[i]))
            return opts_wrong("serve",
                              "--allow-origin %s: expected an origin such as https://example.org, "
                              "or '*' for all",
                              QUOTE(g->origins[i]));
    g->needs_key = params->key_file != NULL;
    if (g->needs_key) {
        int code = read_keys(g, params->key_file);
        if (code) return code;
    } else {
        if (!is_loopback(params->host))
            return opts_wrong("serve",
                              "anyone who can reach %s could use this server; require API keys "
                              "with --api-key FILE",
                              QUOTE(params->host));
        g->keys = need(calloc(1, sizeof *g->keys));
        g->keys[g->n_keys++] = (struct key){.name = "-", .secret = ""};
    }
    for (size_t i = 0; i < g->n_keys; i++) {
        if (g->keys[i].rate <= 0) g->keys[i].rate = params->rate;
        g->keys[i].tokens = bucket_size(&g->keys[i]);
    }
    return EXIT_OK;
}

void guard_close(struct guard *g)
{
    free(g->keys);
    free(g->text);
    *g = (struct guard){0};
}
