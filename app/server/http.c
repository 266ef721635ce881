/* Connections: bytes of requests in, bytes of answers out, within limits of size and time. Every
 * connection has one timer, whose meaning is its state's. */
#include "http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/listener.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "app.h"
#include "base/os.h"
#include "tls.h"

enum conn_state {
    CONN_HEAD,   /* waits for a head */
    CONN_BODY,   /* waits for a body */
    CONN_ANSWER, /* somebody works on the answer */
    CONN_FLUSH,  /* the last answer goes out, then it ends */
    CONN_LINGER, /* all is said; what still comes is thrown away, so that the client can read */
};
enum { LINGER_SECONDS = 2, READ_AHEAD = 65536, MAX_EXTRA = 2048 };
enum { PROBE_MS = 1000, ECHO_MS = 100 };
enum { SPARE_DESCRIPTORS = 256 }; /* for models, and to refuse connections with words */

struct conn {
    struct listener *listener;
    struct conn *next, *prev;
    struct bufferevent *bev;
    struct event *timer;
    char address[INET6_ADDRSTRLEN];
    enum conn_state state;
    struct request request;
    char *head; /* what request.head points into */
    struct http_chunks chunks;
    char extra[MAX_EXTRA]; /* header lines of the answer */
    bool reading;          /* conn_read is at it */
    bool chunked, close;   /* of the answer */
    bool input_ended;      /* the client sends no more, and may have gone */
    bool probed;           /* something was sent to see whether it has */
    bool overdue;          /* it took too little of its answer */
    size_t left;           /* of the last answer, when the timer was set */
    int status;
    double t_begin;
    void (*on_gone)(void *ctx);
    void *on_gone_ctx;
};

struct listener {
    struct server *server;
    struct evconnlistener *l;
    struct tls *tls;
    struct conn *first;
    size_t n;
    uint64_t last_id;
    bool rests, refused; /* no connection could be taken: until the next tick; lately */
};

struct server *conn_server(const struct conn *c)
{
    return c->listener->server;
}

struct request *conn_request(struct conn *c)
{
    return &c->request;
}

const char *conn_address(const struct conn *c)
{
    return c->address;
}

double conn_began(const struct conn *c)
{
    return c->t_begin;
}

bool http_has_owner(const struct conn *c)
{
    return c->on_gone != NULL;
}

void http_on_gone(struct conn *c, void (*on_gone)(void *ctx), void *ctx)
{
    c->on_gone = on_gone;
    c->on_gone_ctx = ctx;
}

/* ---- the end of connections and requests ---- */

static void wait_at_most(struct conn *c, uint64_t seconds)
{
    struct timeval t = {.tv_sec = (time_t)(seconds < 1 << 30 ? seconds : 1 << 30)};
    evtimer_add(c->timer, &t);
}

static void wait_ms(struct conn *c, int ms)
{
    struct timeval t = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};
    evtimer_add(c->timer, &t);
}

static void request_free(struct conn *c)
{
    free(c->head);
    free(c->request.body);
    conn_server(c)->body_bytes -= c->request.cap_body;
    c->head = NULL;
    c->request = (struct request){0};
    c->extra[0] = 0;
    c->status = 0;
    c->chunked = false;
    c->on_gone = NULL;
}

static size_t unsent(const struct conn *c)
{
    return evbuffer_get_length(bufferevent_get_output(c->bev));
}

static bool has_backlog(const struct conn *c)
{
    return unsent(c) > limit_of(&conn_server(c)->limits, backlog_bytes);
}

/* Counts what waits for clients; when little does, others may make long answers. */
static void on_output(struct evbuffer *out, const struct evbuffer_cb_info *info, void *ctx)
{
    struct server *s = conn_server(ctx);
    uint64_t before = s->unsent_bytes, few = limit_of(&s->limits, backlog_bytes);
    (void)out;
    s->unsent_bytes += info->n_added - info->n_deleted;
    if (before > few && s->unsent_bytes <= few) workers_heed(s);
}

static void conn_close(struct conn *c)
{
    struct listener *l = c->listener;
    void (*on_gone)(void *) = c->on_gone;
    void *ctx = c->on_gone_ctx;
    if (c->next) c->next->prev = c->prev;
    *(c->prev ? &c->prev->next : &l->first) = c->next;
    l->n--;
    event_free(c->timer);
    evbuffer_remove_cb(bufferevent_get_output(c->bev), on_output, c);
    conn_server(c)->unsent_bytes -= unsent(c);
    bufferevent_free(c->bev);
    request_free(c);
    free(c);
    if (on_gone) on_gone(ctx);
}

/* The last answer goes out for as long as its client takes some of it. */
static void flush(struct conn *c)
{
    c->state = CONN_FLUSH;
    c->left = unsent(c);
    wait_at_most(c, limit_of(&conn_server(c)->limits, stall_seconds));
}

/* The input of a client that waits for its answer has ended. Only one that has gone refuses what is
 * sent to it: something is sent that means nothing, and a little later the socket tells. */
static void probe(struct conn *c)
{
    int error = 0;
    socklen_t n = sizeof error;
    bool failed = getsockopt(bufferevent_getfd(c->bev), SOL_SOCKET, SO_ERROR, &error, &n) || error;
    if (failed) {
        conn_close(c);
        return;
    }
    c->probed = !c->probed;
    if (c->probed && c->status)
        http_write(c, ":\n\n", 3); /* a comment: what begins early is a stream of events */
    else if (c->probed && !c->request.head.old)
        bufferevent_write(c->bev, "HTTP/1.1 100 Continue\r\n\r\n", 25);
    wait_ms(c, c->probed ? ECHO_MS : PROBE_MS);
}

static void on_timer(evutil_socket_t fd, short what, void *ctx)
{
    struct conn *c = ctx;
    bool began = c->state == CONN_BODY || evbuffer_get_length(bufferevent_get_input(c->bev));
    (void)fd;
    (void)what;
    if (c->state == CONN_ANSWER && c->input_ended && !c->overdue) {
        probe(c);
        return;
    }
    if (c->state == CONN_FLUSH && unsent(c) < c->left) {
        flush(c);
        return;
    }
    if (c->state > CONN_BODY || !began) {
        conn_close(c);
        return;
    }
    enum limit l = c->state == CONN_HEAD ? LIMIT_header_seconds : LIMIT_body_seconds;
    http_refuse(c, l, "the time for this request to arrive");
}

/* Between two requests: the connection waits for the next, from when the client has all of its
 * answer. */
static void idle(struct conn *c)
{
    c->state = CONN_HEAD;
    c->chunks = (struct http_chunks){0};
    if (unsent(c))
        evtimer_del(c->timer);
    else
        wait_at_most(c, limit_of(&conn_server(c)->limits, idle_seconds));
}

/* ---- requests ---- */

static void conn_read(struct conn *c);
static void end(struct conn *c);

/* Some clients end a body with an empty line that is not part of it. */
static void skip_empty_line(struct evbuffer *in)
{
    char begin[3];
    if (evbuffer_copyout(in, begin, sizeof begin) == sizeof begin &&
        memcmp(begin, "\r\n", 2) == 0 && begin[2] != '\r')
        evbuffer_drain(in, 2);
}

static bool take_head(struct conn *c)
{
    struct evbuffer *in = bufferevent_get_input(c->bev);
    skip_empty_line(in);
    size_t n = evbuffer_get_length(in);
    const struct limits *limits = &conn_server(c)->limits;
    uint64_t most = limit_of(limits, header_bytes);
    struct evbuffer_ptr end = evbuffer_search(in, "\r\n\r\n", 4, NULL);
    const char *why;
    if (end.pos < 0 || (uint64_t)end.pos + 4 > most) {
        if (n > most || end.pos >= 0) http_refuse(c, LIMIT_header_bytes, "the size of the headers");
        return false;
    }
    n = (size_t)end.pos + 4;
    c->t_begin = server_now();
    c->request.id = ++c->listener->last_id;
    c->head = malloc(n + 1);
    if (!c->head) {
        http_no_memory(c);
        return false;
    }
    evbuffer_remove(in, c->head, n);
    int status = http_head_parse(&c->request.head, c->head, n, &why);
    c->close = status || !c->request.head.keep_alive;
    if (status) {
        struct problem p = {.status = status, .type = "invalid_request_error"};
        snprintf(p.text, sizeof p.text, "%s", why);
        http_problem(c, &p);
        return false;
    }
    if (c->request.head.content_length > limit_of(limits, body_bytes)) {
        http_refuse(c, LIMIT_body_bytes, "the size of the body");
        return false;
    }
    /* who may not, need not send a body */
    struct problem p = {0};
    if (!guard_admit(conn_server(c), c, &p)) {
        c->close = true;
        http_problem(c, &p);
        return false;
    }
    c->state = CONN_BODY;
    wait_at_most(c, limit_of(limits, body_seconds));
    if (c->request.head.expects_continue)
        bufferevent_write(c->bev, "HTTP/1.1 100 Continue\r\n\r\n", 25);
    return true;
}

/* Room for n more bytes and the 0 at the end; memory follows what has arrived, not what was
 * announced. */
static bool make_room(struct conn *c, size_t n)
{
    struct server *s = conn_server(c);
    struct request *r = &c->request;
    size_t needed = r->n_body + n + 1, most = limit_of(&s->limits, body_bytes) + 1;
    if (needed > most) {
        http_refuse(c, LIMIT_body_bytes, "the size of the body");
        return false;
    }
    if (needed <= r->cap_body) return true;
    size_t cap = needed > 2 * r->cap_body ? needed : 2 * r->cap_body;
    if (!r->head.chunked) most = (size_t)r->head.content_length + 1;
    if (cap > most) cap = most;
    if (s->body_bytes + cap - r->cap_body > limit_of(&s->limits, all_body_bytes)) {
        http_refuse(c, LIMIT_all_body_bytes, "the size of all request bodies together");
        return false;
    }
    char *body = realloc(r->body, cap);
    if (!body) {
        http_no_memory(c);
        return false;
    }
    s->body_bytes += cap - r->cap_body;
    r->cap_body = cap;
    r->body = body;
    return true;
}

/* True: it has arrived whole. */
static bool take_body(struct conn *c)
{
    struct evbuffer *in = bufferevent_get_input(c->bev);
    uint64_t length = c->request.head.content_length;
    if (!c->request.head.chunked) {
        uint64_t left = length - c->request.n_body;
        size_t n = evbuffer_get_length(in) < left ? evbuffer_get_length(in) : (size_t)left;
        if (!make_room(c, n)) return false;
        evbuffer_remove(in, c->request.body + c->request.n_body, n);
        c->request.n_body += n;
        return c->request.n_body == length;
    }
    for (;;) {
        struct evbuffer_iovec part;
        size_t taken, n_data;
        if (evbuffer_peek(in, -1, NULL, &part, 1) < 1) return false;
        enum http_chunk_result r =
            http_chunks_feed(&c->chunks, part.iov_base, part.iov_len, &taken, &n_data);
        if (r == CHUNK_BAD) {
            struct problem p = {400, "invalid_request_error", NULL, NULL, "malformed chunk"};
            http_problem(c, &p);
            return false;
        }
        if (!make_room(c, n_data)) return false;
        if (n_data)
            memcpy(c->request.body + c->request.n_body,
                   (const char *)part.iov_base + taken - n_data, n_data);
        c->request.n_body += n_data;
        evbuffer_drain(in, taken);
        if (r == CHUNK_END) return true;
    }
}

/* As many requests as there are whole ones, one after the other. */
static void conn_read(struct conn *c)
{
    struct evbuffer *in = bufferevent_get_input(c->bev);
    if (c->reading) return; /* it is further up the stack */
    c->reading = true;
    while (c->state == CONN_HEAD || c->state == CONN_BODY) {
        /* a client that takes no answers gets no more of them */
        if (c->state == CONN_HEAD && (has_backlog(c) || !evbuffer_get_length(in) || !take_head(c)))
            break;
        if (!take_body(c)) break;
        c->request.body[c->request.n_body] = 0;
        c->state = CONN_ANSWER;
        evtimer_del(c->timer);
        if (c->input_ended) wait_ms(c, PROBE_MS);
        route(c);
    }
    if (c->state == CONN_LINGER) evbuffer_drain(in, evbuffer_get_length(in));
    c->reading = false;
    if (c->input_ended && c->state < CONN_ANSWER && !has_backlog(c)) end(c); /* nothing is left */
}

static void on_read(struct bufferevent *bev, void *ctx)
{
    struct conn *c = ctx;
    bool first = c->state == CONN_HEAD && c->t_begin <= 0;
    (void)bev;
    if (first) { /* from the first byte on a head has its own time */
        c->t_begin = server_now();
        wait_at_most(c, limit_of(&conn_server(c)->limits, header_seconds));
    }
    conn_read(c);
}

/* What there was to say is said. */
static void on_written(struct bufferevent *bev, void *ctx)
{
    struct conn *c = ctx;
    if (c->state == CONN_HEAD && !evtimer_pending(c->timer, NULL)) {
        idle(c);
        conn_read(c); /* what came while there was a backlog */
    }
    if (c->state != CONN_FLUSH) return;
    tls_finish(c->listener->tls, bev);
    c->state = CONN_LINGER;
    wait_at_most(c, LINGER_SECONDS);
}

/* The last answer was made. */
static void end(struct conn *c)
{
    flush(c);
    if (!c->left) on_written(c->bev, c);
}

/* A client may end its side of the connection after its request, and still waits for the answer.
 * TLS has no such thing in practice. */
static void on_change(struct bufferevent *bev, short what, void *ctx)
{
    struct conn *c = ctx;
    (void)bev;
    if (what & BEV_EVENT_CONNECTED) return; /* TLS is agreed on */
    c->input_ended = !c->listener->tls && what == (BEV_EVENT_EOF | BEV_EVENT_READING);
    if (c->input_ended && c->state == CONN_ANSWER)
        wait_ms(c, PROBE_MS);
    else if (c->input_ended && c->state < CONN_ANSWER && unsent(c))
        end(c);
    else if (!c->input_ended || c->state != CONN_FLUSH)
        conn_close(c);
}

/* ---- answers ---- */

static const struct {
    int status;
    const char *reason;
} reasons[] = {
    {200, "OK"},
    {204, "No Content"},
    {304, "Not Modified"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {408, "Request Timeout"},
    {413, "Content Too Large"},
    {415, "Unsupported Media Type"},
    {417, "Expectation Failed"},
    {421, "Misdirected Request"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {503, "Service Unavailable"},
    {505, "HTTP Version Not Supported"},
};

static const char *reason_of(int status)
{
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        if (reasons[i].status == status) return reasons[i].reason;
    return "Unknown";
}

void http_add_header(struct conn *c, const char *name, const char *value)
{
    size_t n = strlen(c->extra), more = strlen(name) + strlen(value) + strlen(": \r\n");
    if (n + more < sizeof c->extra)
        snprintf(c->extra + n, sizeof c->extra - n, "%s: %s\r\n", name, value);
}

/* The head of an answer; length < 0: it comes in pieces. */
static void write_head(struct conn *c, int status, const char *type, int64_t length)
{
    struct evbuffer *out = bufferevent_get_output(c->bev);
    c->status = status;
    if (conn_server(c)->draining) c->close = true;
    evbuffer_add_printf(out, "HTTP/1.1 %d %s\r\n%s", status, reason_of(status), c->extra);
    if (type) evbuffer_add_printf(out, "Content-Type: %s\r\n", type);
    if (length >= 0)
        evbuffer_add_printf(out, "Content-Length: %lld\r\n", (long long)length);
    else if (c->chunked)
        evbuffer_add_printf(out, "Transfer-Encoding: chunked\r\n");
    evbuffer_add_printf(out,
                        "X-Content-Type-Options: nosniff\r\nX-Request-Id: %016llx-%llu\r\n"
                        "Connection: %s\r\n\r\n",
                        (unsigned long long)conn_server(c)->boot, (unsigned long long)c->request.id,
                        c->close ? "close" : "keep-alive");
}

/* What nobody made a call of. */
static void log_request(struct conn *c)
{
    const struct request *r = &c->request;
    struct access a = {.id = r->id,
                       .method = r->head.method ? r->head.method : "-",
                       .path = r->head.path ? r->head.path : "-",
                       .address = c->address,
                       .key = r->key ? r->key->name : "-",
                       .status = c->status,
                       .seconds = c->t_begin > 0 ? server_now() - c->t_begin : 0};
    metrics_request(conn_server(c)->metrics, "other", c->status);
    log_access(conn_server(c), &a);
}

/* The answer is complete: the connection goes on to the next request, or ends. */
static void finish(struct conn *c)
{
    if (!c->on_gone) log_request(c);
    request_free(c);
    c->t_begin = 0;
    if (c->close || conn_server(c)->draining) { /* a stream's head may have promised more */
        end(c);
        return;
    }
    idle(c);
    conn_read(c); /* the next one may be there already */
}

/* Is there room for another n bytes that wait for clients? If not, says so in their place. An
 * answer alone may be longer than all together. */
static bool check_room(struct conn *c, size_t n)
{
    const struct server *s = conn_server(c);
    bool small = n <= READ_AHEAD; /* what refusing takes itself */
    bool alone = s->unsent_bytes <= limit_of(&s->limits, backlog_bytes);
    if (small || alone || s->unsent_bytes + n <= limit_of(&s->limits, all_reply_bytes)) return true;
    http_refuse(c, LIMIT_all_reply_bytes, "the size of all unread answers together");
    return false;
}

static bool wants_head_only(const struct conn *c)
{
    return c->request.head.method && strcmp(c->request.head.method, "HEAD") == 0;
}

void http_reply(struct conn *c, int status, const char *type, const void *body, size_t n)
{
    bool empty = status == 204 || status == 304;
    if (!check_room(c, n)) return;
    write_head(c, status, type, empty ? -1 : (int64_t)n);
    if (!wants_head_only(c) && n && bufferevent_write(c->bev, body, n))
        c->overdue = c->close = true; /* out of memory: it ends too soon, as the client can see */
    finish(c);
}

void http_reply_bytes(struct conn *c, int status, const char *type, struct reply *r)
{
    struct evbuffer *bytes = reply_bytes(r);
    size_t n = evbuffer_get_length(bytes);
    if (!check_room(c, n)) return;
    write_head(c, status, type, (int64_t)n);
    if (!wants_head_only(c)) bufferevent_write_buffer(c->bev, bytes);
    finish(c);
}

void http_begin(struct conn *c, int status, const char *type)
{
    c->chunked = !c->request.head.old;
    if (!c->chunked) c->close = true; /* the end of the connection is the end of the answer */
    write_head(c, status, type, -1);
}

void http_write(struct conn *c, const void *p, size_t n)
{
    struct evbuffer *out = bufferevent_get_output(c->bev);
    if (!n) return;
    if (has_backlog(c)) {
        c->overdue = true; /* as good as gone; but it can't end while others use it */
        wait_at_most(c, 0);
        return;
    }
    bool lost = c->chunked && evbuffer_add_printf(out, "%zx\r\n", n) < 0;
    lost = lost || evbuffer_add(out, p, n) || (c->chunked && evbuffer_add(out, "\r\n", 2));
    if (!lost) return;
    c->overdue = true; /* the client sees that its answer lacks an end */
    wait_at_most(c, 0);
}

void http_end(struct conn *c)
{
    if (c->chunked) bufferevent_write(c->bev, "0\r\n\r\n", 5);
    finish(c);
}

int conn_status(const struct conn *c)
{
    return c->status;
}

void http_problem(struct conn *c, const struct problem *p)
{
    if (c->state < CONN_ANSWER) c->close = true; /* what else comes can't be told from a request */
    c->state = CONN_ANSWER;
    evtimer_del(c->timer);
    metrics_rejected(conn_server(c)->metrics, p->code);
    problem_reply(c, p, route_words(c->request.head.path));
}

void http_refuse(struct conn *c, enum limit l, const char *what)
{
    struct problem p = {.type = "invalid_request_error"};
    problem_limit(&p, &conn_server(c)->limits, l, what);
    http_problem(c, &p);
}

void http_no_memory(struct conn *c)
{
    struct problem p = {503, "overloaded_error", NULL, "memory",
                        "not enough memory for this request"};
    http_problem(c, &p);
}

/* ---- the listener ---- */

static size_t count_address(const struct listener *l, const char *address)
{
    size_t n = 0;
    for (const struct conn *c = l->first; c; c = c->next) n += strcmp(c->address, address) == 0;
    return n;
}

static void on_accept(struct evconnlistener *unused, evutil_socket_t fd, struct sockaddr *addr,
                      int n_addr, void *ctx)
{
    struct listener *l = ctx;
    const struct limits *limits = &l->server->limits;
    struct conn *c = calloc(1, sizeof *c);
    int on = 1;
    (void)unused;
    if (!c) {
        close(fd);
        return;
    }
    l->refused = false;
    c->listener = l;
    if (getnameinfo(addr, (socklen_t)n_addr, c->address, sizeof c->address, NULL, 0,
                    NI_NUMERICHOST))
        strcpy(c->address, "?");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    bool many = l->n >= limit_of(limits, connections);
    bool many_here = count_address(l, c->address) >= limit_of(limits, connections_per_address);
    c->bev = tls_bufferevent(l->tls, l->server->base, fd);
    c->timer = evtimer_new(l->server->base, on_timer, c);
    if (!c->bev || !c->timer || !evbuffer_add_cb(bufferevent_get_output(c->bev), on_output, c)) {
        if (c->timer) event_free(c->timer);
        if (c->bev)
            bufferevent_free(c->bev);
        else
            close(fd);
        free(c);
        return;
    }
    c->next = l->first;
    if (c->next) c->next->prev = c;
    l->first = c;
    l->n++;
    struct timeval stall = {.tv_sec = (time_t)limit_of(limits, stall_seconds)};
    bufferevent_set_timeouts(c->bev, NULL, &stall);
    bufferevent_setcb(c->bev, on_read, on_written, on_change, c);
    bufferevent_setwatermark(c->bev, EV_READ, 0, READ_AHEAD);
    bufferevent_enable(c->bev, EV_READ | EV_WRITE);
    idle(c);
    wait_at_most(c, limit_of(limits, header_seconds));
    if (many || many_here)
        http_refuse(c, many ? LIMIT_connections : LIMIT_connections_per_address,
                    "the number of connections");
}

/* Out of descriptors, most likely: those who are there go on, and who waits outside would have the
 * loop do nothing else than fail again. */
static void on_accept_error(struct evconnlistener *el, void *ctx)
{
    struct listener *l = ctx;
    if (!l->refused) log_line(l->server, "cannot accept connections: %s", strerror(errno));
    evconnlistener_disable(el);
    l->rests = l->refused = true;
}

void http_tick(struct server *s)
{
    struct listener *l = s->listener;
    if (l->rests && l->l) evconnlistener_enable(l->l);
    l->rests = false;
}

int http_listen(struct server *s)
{
    struct listener *l = s->listener = need(calloc(1, sizeof *l));
    struct addrinfo *found, hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    char port[8];
    l->server = s;
    os_allow_files(limit_of(&s->limits, connections) + SPARE_DESCRIPTORS);
    int code = tls_open(&l->tls, s->params.cert, s->params.key);
    if (code) return code;
    snprintf(port, sizeof port, "%u", (unsigned)s->params.port);
    int rc = getaddrinfo(s->params.host, port, &hints, &found);
    if (rc) return say_error("--host %s: %s", QUOTE(s->params.host), gai_strerror(rc));
    l->l = evconnlistener_new_bind(s->base, on_accept, l, LEV_OPT_CLOSE_ON_FREE | LEV_OPT_REUSEABLE,
                                   256, found->ai_addr, (int)found->ai_addrlen);
    int why = errno;
    freeaddrinfo(found);
    if (!l->l && why == EADDRINUSE)
        return say_error("port %s is already in use; choose another with --port N", port);
    if (!l->l)
        return say_error("cannot listen on %s port %s: %s", s->params.host, port, strerror(why));
    evconnlistener_set_error_cb(l->l, on_accept_error);
    return EXIT_OK;
}

uint16_t http_port(const struct server *s)
{
    struct sockaddr_storage a;
    socklen_t n = sizeof a;
    if (getsockname(evconnlistener_get_fd(s->listener->l), (struct sockaddr *)&a, &n)) return 0;
    return ntohs(a.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&a)->sin6_port
                                         : ((struct sockaddr_in *)&a)->sin_port);
}

size_t http_count(const struct server *s)
{
    return s->listener->n;
}

void http_stop_listening(struct server *s)
{
    struct listener *l = s->listener;
    if (l->l) evconnlistener_free(l->l);
    l->l = NULL;
    for (struct conn *c = l->first, *next; c; c = next) {
        next = c->next;
        if (c->state == CONN_HEAD && unsent(c))
            flush(c);
        else if (c->state == CONN_HEAD)
            conn_close(c);
    }
}

void http_close(struct server *s)
{
    struct listener *l = s->listener;
    if (!l) return;
    while (l->first) conn_close(l->first);
    if (l->l) evconnlistener_free(l->l);
    tls_close(l->tls);
    free(l);
    s->listener = NULL;
}
