/* Calls: requests for a model, from the body to the end of the answer. A call is the loop's; a
 * worker has it for a while, and the engine thread fills events for its choices. It is freed when
 * the client has its answer, or has gone, and nobody else has it any more. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "app.h"
#include "http.h"
#include "server.h"
#include "turn.h"

enum { HEAVY_BYTES = 262144 }; /* of a body */
enum { LONGEST_NAME = 64 };    /* of a field that an error names whole */

/* ---- what is wrong ---- */

int call_wrong(struct call *c, int status, const char *param, const char *fmt, ...)
{
    va_list args;
    c->problem = (struct problem){.status = status, .type = "invalid_request_error"};
    c->problem.param = param; /* of a table, or of the body, which lives as long */
    if (status == 503) c->problem.type = "overloaded_error";
    if (status == 500) c->problem.type = "server_error";
    va_start(args, fmt);
    vsnprintf(c->problem.text, sizeof c->problem.text, fmt, args);
    va_end(args);
    return -1;
}

int call_at(struct call *c, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(c->place, sizeof c->place, fmt, args);
    va_end(args);
    c->problem.param = c->place;
    return -1;
}

const char *call_field(const struct call *c, const char *name)
{
    for (size_t i = 0; i < c->api->n_rows; i++)
        if (c->api->rows[i].to && strcmp(c->api->rows[i].to, name) == 0)
            return c->api->rows[i].name;
    return name;
}

/* What can't stand in a header, as names of the client's may, becomes a question mark. */
void call_notice(struct call *c, const char *fmt, ...)
{
    static const char more[] = " ...";
    size_t n = strlen(c->notice), cap = sizeof c->notice;
    va_list args;
    if (n + 1 == cap) return;
    if (n) n += (size_t)snprintf(c->notice + n, cap - n, "; ");
    if (n > cap - 1) n = cap - 1;
    va_start(args, fmt);
    int added = vsnprintf(c->notice + n, cap - n, fmt, args);
    va_end(args);
    if (added < 0 || n + (size_t)added >= cap)
        memcpy(c->notice + cap - sizeof more, more, sizeof more);
    for (char *p = c->notice; *p; p++)
        if (*p < ' ' || *p > '~') *p = '?';
}

int call_ignore(struct call *c, const char *name)
{
    if (!c->server->params.lenient) return -1;
    call_notice(c, "field %s was ignored", QUOTE(name));
    return 0;
}

int call_unknown(struct call *c, const char *name)
{
    const char *param = strlen(name) <= LONGEST_NAME ? name : NULL;
    if (!call_ignore(c, name)) return 0;
    return call_wrong(c, 400, param, "unknown field %s", QUOTE(name));
}

int call_over(struct call *c, enum limit l, const char *param, uint64_t is)
{
    char what[120];
    snprintf(what, sizeof what, "%s%s%llu", param ? param : "", param ? ": " : "",
             (unsigned long long)is);
    call_wrong(c, 400, param, " ");
    problem_limit(&c->problem, &c->server->limits, l, what);
    return -1;
}

int call_no_memory(struct call *c)
{
    call_wrong(c, 503, NULL, "not enough memory for this request");
    c->problem.code = "memory";
    return -1;
}

/* ---- on a worker ---- */

struct shape {
    uint64_t depth; /* deepest */
    uint64_t n_values;
};

/* Of a text that may be JSON, before a parser that calls itself and takes memory for each value
 * sees it. A member of an object takes about twice the memory of another value. */
static struct shape shape_of(const char *p, size_t n)
{
    struct shape s = {0, 1};
    uint64_t depth = 0;
    for (size_t i = 0; i < n; i++) {
        if (p[i] == '"')
            for (i++; i < n && p[i] != '"'; i++) i += p[i] == '\\';
        else if (p[i] == '{' || p[i] == '[')
            depth++;
        else if ((p[i] == '}' || p[i] == ']') && depth)
            depth--;
        else
            s.n_values += p[i] == ',' || p[i] == ':';
        if (depth > s.depth) s.depth = depth;
    }
    return s;
}

/* jansson does not check each of its allocations, so what it can take at most must be there: it
 * keeps a text and what it reads of it in buffers that double. */
static bool can_allocate_tree(size_t n, uint64_t n_values)
{
    void *volatile p = malloc(6 * n + 160 * (size_t)n_values); /* a compiler may leave it out */
    bool got = p;
    free(p);
    return got;
}

int call_parse(struct call *c)
{
    json_error_t e;
    struct shape shape = shape_of(c->text, c->n_text);
    if (shape.depth > limit_of(&c->server->limits, json_depth))
        return call_over(c, LIMIT_json_depth, NULL, shape.depth);
    if (shape.n_values > limit_of(&c->server->limits, json_values))
        return call_over(c, LIMIT_json_values, NULL, shape.n_values);
    if (!can_allocate_tree(c->n_text, shape.n_values)) return call_no_memory(c);
    c->body = json_loadb(c->text, c->n_text, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &e);
    /* where its lists and tables find no memory, jansson gives neither a code nor a place */
    if (!c->body && (e.line < 0 || json_error_code(&e) == json_error_out_of_memory))
        return call_no_memory(c);
    if (!c->body)
        return call_wrong(c, 400, NULL, "invalid JSON in the body, line %d, column %d: %s", e.line,
                          e.column, QUOTE(e.text));
    if (!json_is_object(c->body)) return call_wrong(c, 400, NULL, "the body must be a JSON object");
    free(c->text);
    c->text = NULL;
    return 0;
}

void call_write_reply(struct call *c)
{
    c->bytes = reply_open();
    if (c->bytes) reply_add_json(c->bytes, c->reply);
    json_decref(c->reply);
    c->reply = NULL;
    if (!reply_close(c->bytes)) call_no_memory(c);
}

void call_work(struct call *c)
{
    memory_begin();
    c->notice[0] = 0; /* of an earlier try, which found the model not loaded */
    int rc = c->body ? 0 : call_parse(c);
    if (!rc) rc = fields_take_model(c);
    if (!rc && c->held && c->api->take(c) == 0 && c->reply) call_write_reply(c);
    if (memory_failed()) call_no_memory(c); /* whatever it was taken for */
}

static void work(void *ctx)
{
    call_work(ctx);
}

void call_add_prompt(struct call *c, int32_t *ids, size_t n)
{
    c->prompts = memory_resize(c->prompts, (c->n_prompts + 1) * sizeof *c->prompts);
    c->prompts[c->n_prompts++] = (struct prompt){ids, n};
}

/* ---- the end ---- */

static void unlink_call(struct call *c)
{
    struct server *s = c->server;
    *(c->prev ? &c->prev->next : &s->first) = c->next;
    *(c->next ? &c->next->prev : &s->last) = c->prev;
    s->n_calls--;
}

/* JSON that nobody needs any more. */
struct discarded {
    struct task task;
    json_t *body, *reply;
};

static void free_json(void *ctx)
{
    struct discarded *d = ctx;
    json_decref(d->body);
    json_decref(d->reply);
}

/* Frees the body and the reply: on a worker where they may be large, because a million values take
 * the loop tenths of a second. */
static void discard_json(struct call *c)
{
    struct discarded now = {.body = c->body, .reply = c->reply}, *later = NULL;
    c->body = c->reply = NULL;
    if (c->n_text > HEAVY_BYTES && c->server->workers && (now.body || now.reply))
        later = malloc(sizeof *later);
    if (!later) {
        free_json(&now);
        return;
    }
    *later = now;
    later->task = (struct task){.work = free_json, .done = free, .ctx = later};
    workers_give(c->server, &later->task);
}

void call_free(struct call *c)
{
    if (c->api->free) c->api->free(c);
    score_free(c);
    if (c->held) served_let_go(c->held);
    for (size_t i = 0; i < c->n_prompts; i++) fletch_free(c->prompts[i].ids);
    free(c->prompts);
    settings_free(&c->ask.set);
    discard_json(c);
    free(c->choices);
    reply_free(c->bytes);
    free(c->text);
    c->server->body_bytes -= c->cap_text;
    free(c->path);
    free(c);
}

/* Before the headers go: of a stream at its begin, of a whole answer at its end. */
static void add_notice(struct call *c)
{
    if (c->conn && *c->notice) http_add_header(c->conn, "X-Fletch-Notice", c->notice);
}

/* Nobody else has it: says the end to the client, if there is one, and to the log. */
static void finish(struct call *c)
{
    struct conn *conn = c->conn;
    struct server *s = c->server;
    bool begun = c->life == REQUEST_ANSWERING;
    request_change(&c->life, REQUEST_DONE);
    c->status = c->problem.status ? c->problem.status : 200;
    if (!conn) c->status = CALL_CLIENT_GONE;
    double seconds = server_now() - c->t_begin;
    metrics_request(s->metrics, c->api->label, c->status);
    if (c->problem.status) metrics_rejected(s->metrics, c->problem.code);
    struct access a = {.id = c->id,
                       .method = "POST",
                       .path = c->path,
                       .address = c->address,
                       .key = c->key,
                       .status = c->status,
                       .seconds = seconds,
                       .call = c};
    log_access(s, &a);
    memory_begin();
    if (!begun || !c->ask.stream) add_notice(c);
    if (conn && c->problem.status && begun)
        c->api->broken(c);
    else if (conn && c->problem.status)
        problem_reply(conn, &c->problem, c->api->problem);
    else if (conn && c->bytes)
        http_reply_bytes(conn, 200, "application/json", c->bytes);
    else if (conn)
        c->api->end(c);
    unlink_call(c);
    if (!warm_begin(c)) call_free(c);
}

static bool waits(const struct choice *ch)
{
    return ch->life == CHOICE_QUEUED || ch->life == CHOICE_NO_ROOM;
}

static bool has_live(const struct call *c)
{
    for (uint32_t i = 0; i < c->n_choices; i++)
        if (waits(&c->choices[i]) || c->choices[i].life == CHOICE_RUNNING) return true;
    return false;
}

static void start(struct choice *ch)
{
    struct server *s = ch->call->server;
    if (!waits(ch)) return;
    choice_change(&ch->life, CHOICE_RUNNING);
    s->n_queued--;
    s->queued_tokens -= ch->call->prompts[ch->prompt].n;
}

/* Choices that the batch has end later, by an event. */
static void cancel(struct call *c)
{
    for (uint32_t i = 0; i < c->n_choices; i++) {
        struct choice *ch = &c->choices[i];
        if (ch->life == CHOICE_NO_ROOM) {
            start(ch);
            choice_change(&ch->life, CHOICE_ENDED);
        } else if (ch->life == CHOICE_QUEUED || ch->life == CHOICE_RUNNING) {
            fletch_batch_cancel(c->served->batch, ch->id);
        }
    }
}

static void on_gone(void *ctx)
{
    struct call *c = ctx;
    c->conn = NULL;
    cancel(c);
    bool works = c->life == REQUEST_SCORING || c->life == REQUEST_RUNNING ||
                 (c->life == REQUEST_PARSING && !workers_take_back(c->server, &c->task));
    if (!works && !has_live(c)) finish(c);
}

void call_cancel_all(struct server *s)
{
    for (struct call *c = s->first; c; c = c->next) {
        bool works = c->life == REQUEST_PARSING || c->life == REQUEST_SCORING;
        if (!works && !c->problem.status) call_wrong(c, 503, NULL, "the server is shutting down");
        cancel(c);
    }
}

/* ---- from the engine thread ---- */

static int on_token(void *ctx, const struct fletch_token *t)
{
    struct choice *ch = ctx;
    size_t n_ids = t->n_top * sizeof *t->top_ids, n_logs = t->n_top * sizeof *t->top_logprobs;
    struct server_event *e = calloc(1, sizeof *e + n_ids + n_logs + t->n_text + 1);
    if (!e) {
        ch->starved = true;
        return -1;
    }
    int32_t *ids = (int32_t *)(void *)e->data;
    float *logprobs = (float *)(void *)(ids + t->n_top);
    char *text = (char *)(logprobs + t->n_top);
    if (n_ids) {
        memcpy(ids, t->top_ids, n_ids);
        memcpy(logprobs, t->top_logprobs, n_logs);
    }
    memcpy(text, t->n_text ? t->text : "", t->n_text);
    e->kind = EVENT_TOKEN;
    e->choice = ch;
    e->token = (struct token){.id = t->id,
                              .text = text,
                              .n_text = t->n_text,
                              .logprob = t->logprob,
                              .n_top = t->n_top,
                              .top_ids = ids,
                              .top_logprobs = logprobs,
                              .t = server_now()};
    return !mail_send(ch->call->server, e);
}

static void on_reading(void *ctx, const struct fletch_reading *r)
{
    struct choice *ch = ctx;
    if (ch->told_start && !ch->call->ask.include_progress) return;
    ch->told_start = true;
    struct server_event *e = memory_zeroed(sizeof *e);
    e->kind = EVENT_PROGRESS;
    e->choice = ch;
    e->progress = (struct progress_event){r->n_done, r->n_prompt, r->n_reused, r->reuse_end, 0};
    mail_send(ch->call->server, e);
}

static void on_done(void *ctx, const struct fletch_result *r)
{
    struct choice *ch = ctx;
    size_t n = strlen(r->error);
    struct server_event *e = memory_zeroed(sizeof *e + n + 1);
    memcpy(e->data, r->error, n + 1);
    e->kind = EVENT_DONE;
    e->choice = ch;
    e->result = *r;
    mail_send(ch->call->server, e);
}

/* ---- on the loop ---- */

static void begin(struct call *c)
{
    if (c->life == REQUEST_ANSWERING) return;
    request_change(&c->life, REQUEST_ANSWERING);
    if (c->ask.stream) add_notice(c);
    c->api->begin(c);
}

/* Over a limit are grammars that are too ambiguous, and what finds no room beside the session. */
static int status_of(const struct call *c, int code)
{
    if (code != FLETCH_E_LIMIT) return 500;
    return c->ask.set.r.grammar || c->ask.set.r.json_schema ? 400 : 503;
}

/* Did it find no room beside the session, which gives it back when its prompt was read? */
static bool may_try_again(const struct choice *ch, const struct fletch_result *r)
{
    const struct call *c = ch->call;
    return r->finish == FLETCH_FINISH_FAILED && r->code == FLETCH_E_LIMIT && waits(ch) &&
           !c->ask.set.r.grammar && !c->ask.set.r.json_schema && c->conn && !c->problem.status;
}

/* There is too little memory to go on with it. */
static void starve(struct call *c)
{
    if (c->problem.status) return;
    call_no_memory(c);
    cancel(c);
}

static void on_end(struct choice *ch, const struct server_event *e)
{
    struct call *c = ch->call;
    bool cut =
        e->result.finish == FLETCH_FINISH_CANCELLED || e->result.finish == FLETCH_FINISH_ASKED;
    if (may_try_again(ch, &e->result)) {
        choice_change(&ch->life, CHOICE_NO_ROOM); /* call_tick goes on */
        return;
    }
    start(ch);
    choice_change(&ch->life, CHOICE_ENDED);
    ch->result = e->result;
    ch->result.error = ch->error;
    snprintf(ch->error, sizeof ch->error, "%s", e->data);
    metrics_choice(c->server->metrics, ch);
    if (e->result.finish == FLETCH_FINISH_FAILED && !c->problem.status) {
        call_wrong(c, status_of(c, e->result.code), NULL, "%s", ch->error);
        if (e->result.code == FLETCH_E_NOMEM) call_no_memory(c);
        cancel(c);
    } else if (ch->starved)
        starve(c);
    else if (cut && !c->problem.status)
        call_wrong(c, 503, NULL, "the answer was interrupted");
    if (c->conn && !c->problem.status) {
        begin(c);
        c->api->done(c, ch);
        if (memory_failed()) starve(c);
    }
    if (!has_live(c)) finish(c);
}

void call_on_event(const struct server_event *e)
{
    struct choice *ch = e->choice;
    struct call *c = ch->call;
    memory_begin();
    if (e->kind == EVENT_DONE) {
        on_end(ch, e);
        return;
    }
    start(ch);
    if (e->kind == EVENT_TOKEN) {
        metrics_token(c->server->metrics, ch->t_last > 0 ? e->token.t - ch->t_last : 0);
        ch->t_last = e->token.t;
    }
    if (!c->conn || c->problem.status) return;
    if (e->kind == EVENT_TOKEN) {
        begin(c);
        c->api->token(c, ch, &e->token);
    } else if (c->ask.include_progress && c->api->progress) {
        begin(c);
        c->api->progress(c, ch, &e->progress);
    }
    if (memory_failed()) starve(c);
}

/* n more beside n_there. What is too much by itself is refused for good: to try again would not
 * help. */
static int check_limit(struct call *c, enum limit l, uint64_t n, uint64_t n_there)
{
    uint64_t most = c->server->limits.v[l];
    if (n_there + n <= most) return 0;
    call_over(c, l, NULL, n > most ? n : n_there + n);
    if (n <= most) return -1;
    c->problem.status = 400;
    c->problem.type = "invalid_request_error";
    return -1;
}

/* Is there room in the queue for all its choices? */
static int check_queue(struct call *c)
{
    const struct server *s = c->server;
    uint64_t n_tokens = 0, n = (uint64_t)c->n_prompts * c->ask.n;
    for (size_t i = 0; i < c->n_prompts; i++) n_tokens += c->prompts[i].n * c->ask.n;
    if (check_limit(c, LIMIT_queue, n, s->n_queued)) return -1;
    return check_limit(c, LIMIT_queued_tokens, n_tokens, s->queued_tokens);
}

/* The engine's words for what it can't keep of a schema or grammar. */
static bool is_about_form(const char *why)
{
    return strncmp(why, "grammar", 7) == 0 || strncmp(why, "JSON schema", 11) == 0 ||
           strncmp(why, "schema", 6) == 0;
}

/* Gives it to the batch; or call->problem. */
static void submit_choice(struct call *c, struct choice *ch)
{
    const struct prompt *p = &c->prompts[ch->prompt];
    struct fletch_request r = c->ask.set.r;
    r.tokens = p->ids;
    r.n_tokens = p->n;
    r.sampling.choice = ch->index % c->ask.n;
    r.n_logprobs = c->ask.logprobs ? c->ask.n_top + 1 : 0;
    r.client = c->client;
    r.cache_salt = c->salt;
    r.marks = c->marks;
    r.n_marks = c->n_marks;
    r.timeout = (double)limit_of(&c->server->limits, seconds);
    r.on_token = on_token;
    r.on_reading = on_reading;
    r.on_done = on_done;
    r.ctx = ch;
    int rc = fletch_batch_submit(c->served->batch, &r, &ch->id);
    if (rc) {
        const char *why = fletch_batch_error(c->served->batch);
        int status = rc == FLETCH_E_LIMIT ? 503 : 400;
        if (rc == FLETCH_E_NOMEM || memory_failed()) /* a schema is JSON */
            call_no_memory(c);
        else
            call_wrong(c, status, status == 400 && is_about_form(why) ? c->ask.set.form : NULL,
                       "%s", why);
        return;
    }
    warm_supersede(c->served, c->salt, p);
    if (ch->life == CHOICE_NEW) {
        c->server->n_queued++;
        c->server->queued_tokens += p->n;
    }
    choice_change(&ch->life, CHOICE_QUEUED);
}

static void submit(struct call *c)
{
    uint32_t n = (uint32_t)c->n_prompts * c->ask.n;
    c->choices = calloc(n, sizeof *c->choices);
    if (!c->choices) {
        call_no_memory(c);
        return;
    }
    c->n_choices = n;
    request_change(&c->life, REQUEST_GENERATING);
    c->t_submit = server_now();
    for (uint32_t i = 0; i < c->n_choices && !c->problem.status; i++) {
        c->choices[i].call = c;
        c->choices[i].index = i;
        c->choices[i].prompt = i / c->ask.n;
        submit_choice(c, &c->choices[i]);
    }
    if (c->problem.status) cancel(c);
}

/* What is left to do once there are prompts; or their model is not there yet. */
static void go_on(struct call *c)
{
    memory_begin();
    if (!c->held && !c->problem.status && c->conn && !c->server->draining) {
        request_change(&c->life, REQUEST_NEEDS_MODEL);
        c->t_submit = server_now();
        served_want(c->served);
        return;
    }
    if (c->server->draining && !c->problem.status)
        call_wrong(c, 503, NULL, "the server is shutting down");
    bool submits = c->conn && !c->problem.status && !c->bytes;
    if (submits && c->ask.score && !c->scores) {
        request_change(&c->life, REQUEST_SCORING);
        score_begin(c);
    } else if (submits && c->api->run) {
        request_change(&c->life, REQUEST_RUNNING);
        c->api->run(c);
    } else {
        if (submits && !check_queue(c)) submit(c);
        if (!has_live(c)) finish(c);
    }
}

static void on_worked(void *ctx)
{
    go_on(ctx);
}

/* Long bodies may take much memory, and make long answers. */
static void give_work(struct call *c)
{
    c->task =
        (struct task){.work = work, .done = on_worked, .ctx = c, .heavy = c->n_text > HEAVY_BYTES};
    workers_give(c->server, &c->task);
}

/* Requests that waited for a model go on, or end with the reason. */
void call_model_came(struct served *m)
{
    for (struct call *c = m->server->first, *next; c; c = next) {
        next = c->next;
        if (c->life != REQUEST_NEEDS_MODEL || c->served != m) continue;
        if (served_is_ready(m)) {
            request_change(&c->life, REQUEST_PARSING);
            give_work(c);
            continue;
        }
        call_wrong(c, m->code == EXIT_FIT ? 503 : 500, "model", "model %s could not be loaded%s",
                   m->id, m->code == EXIT_FIT ? ": it does not fit in memory" : "");
        finish(c);
    }
}

void call_scored(struct call *c)
{
    go_on(c);
}

void call_ran(struct call *c)
{
    finish(c);
}

void call_begin(struct conn *conn, const struct api *api)
{
    struct server *s = conn_server(conn);
    struct request *r = conn_request(conn);
    struct call *c = calloc(1, sizeof *c);
    char *path = strdup(r->head.path);
    if (!c || !path) {
        free(c);
        free(path);
        http_no_memory(conn);
        return;
    }
    c->server = s;
    c->conn = conn;
    c->api = api;
    c->path = path;
    c->id = r->id;
    c->created = (int64_t)time(NULL);
    snprintf(c->name, sizeof c->name, "%s%08llx%08llx", api->prefix,
             (unsigned long long)s->boot & 0xffffffff, (unsigned long long)r->id);
    snprintf(c->address, sizeof c->address, "%s", conn_address(conn));
    c->key = r->key->name;
    c->client = r->key->number;
    c->salt = s->params.shared_cache ? 0 : r->key->salt;
    c->text = r->body;
    c->n_text = r->n_body;
    c->cap_text = r->cap_body;
    r->body = NULL;
    r->cap_body = 0;
    c->t_begin = conn_began(conn);
    c->prev = s->last;
    *(s->last ? &s->last->next : &s->first) = c;
    s->last = c;
    s->n_calls++;
    http_on_gone(conn, on_gone, c);
    give_work(c);
}

static bool has_started(const struct call *c)
{
    for (uint32_t i = 0; i < c->n_choices; i++)
        if (c->choices[i].life >= CHOICE_RUNNING) return true;
    return false;
}

/* Tells a choice that waits how many are before it, or ends what waited too long: a request of
 * which nothing has had its turn. */
static void tick_choice(struct call *c, struct choice *ch, uint32_t position, double now)
{
    double most = (double)limit_of(&c->server->limits, queue_seconds);
    if (now - c->t_submit > most && !has_started(c)) {
        call_over(c, LIMIT_queue_seconds, NULL, (uint64_t)(now - c->t_submit));
        cancel(c);
    } else if (c->conn && c->ask.include_progress && c->api->progress &&
               ch->shown_position != position) {
        struct progress_event p = {0, (uint32_t)c->prompts[ch->prompt].n, 0,
                                   "the request is still in the queue", position};
        ch->shown_position = position;
        begin(c);
        c->api->progress(c, ch, &p);
    }
}

/* The same for one that waits for its model. */
static void tick_parked(struct call *c, double now)
{
    double waited = now - c->t_submit;
    bool late = waited > (double)limit_of(&c->server->limits, queue_seconds);
    if (!late && !c->server->draining) return;
    if (late)
        call_over(c, LIMIT_queue_seconds, NULL, (uint64_t)waited);
    else if (!c->problem.status)
        call_wrong(c, 503, NULL, "the server is shutting down");
    finish(c);
}

/* The same for one that waits until others took their long answers. */
static void tick_heavy(struct call *c, double now)
{
    double waited = now - c->t_begin;
    if (waited <= (double)limit_of(&c->server->limits, queue_seconds)) return;
    if (!workers_take_back(c->server, &c->task)) return;
    call_over(c, LIMIT_queue_seconds, NULL, (uint64_t)waited);
    finish(c);
}

void call_tick(struct server *s)
{
    uint32_t position = 0;
    double now = server_now();
    for (struct call *c = s->first, *next; c; c = next) {
        next = c->next;
        for (uint32_t i = 0; i < c->n_choices; i++) {
            struct choice *ch = &c->choices[i];
            if (!waits(ch)) continue;
            position++;
            if (!c->problem.status) tick_choice(c, ch, position, now);
            if (!c->problem.status && ch->life == CHOICE_NO_ROOM) {
                submit_choice(c, ch);
                if (c->problem.status) cancel(c);
            }
        }
        if (c->n_choices && !has_live(c))
            finish(c); /* none was left to the batch */
        else if (c->life == REQUEST_NEEDS_MODEL)
            tick_parked(c, now);
        else if (c->life == REQUEST_PARSING && c->task.heavy)
            tick_heavy(c, now);
    }
}

bool call_add_entries(struct call *c, uint64_t n)
{
    c->n_entries += n;
    if (c->n_entries <= limit_of(&c->server->limits, logprob_entries)) return true;
    call_over(c, LIMIT_logprob_entries, "logprobs", c->n_entries);
    cancel(c);
    return false;
}

/* ---- words about the end ---- */

const char *call_finish_reason(const struct choice *ch)
{
    bool ended = ch->result.finish == FLETCH_FINISH_END || ch->result.finish == FLETCH_FINISH_STOP;
    return ended ? "stop" : "length";
}

json_int_t call_prompt_tokens(const struct call *c, size_t prompt)
{
    json_int_t n = 0;
    for (uint32_t i = 0; i < c->n_choices; i++) {
        const struct choice *ch = &c->choices[i];
        if (ch->prompt != prompt) continue;
        if (ch->life != CHOICE_ENDED) return (json_int_t)c->prompts[prompt].n;
        if ((json_int_t)ch->result.n_read > n) n = ch->result.n_read;
    }
    return n;
}

json_t *call_usage(const struct call *c)
{
    json_int_t n_prompt = 0, n_generated = 0, n_reused = 0;
    for (size_t i = 0; i < c->n_prompts; i++) n_prompt += call_prompt_tokens(c, i);
    for (uint32_t i = 0; i < c->n_choices; i++) {
        n_generated += c->choices[i].result.n_generated;
        if (i % c->ask.n == 0) n_reused += c->choices[i].result.n_reused;
    }
    return json_pack("{s:I, s:I, s:I, s:{s:I}}", "prompt_tokens", n_prompt, "completion_tokens",
                     n_generated, "total_tokens", n_prompt + n_generated, "prompt_tokens_details",
                     "cached_tokens", n_reused);
}

static const char *end_of(const struct choice *ch)
{
    switch (ch->result.finish) {
    case FLETCH_FINISH_END: return "end";
    case FLETCH_FINISH_STOP: return "stop";
    case FLETCH_FINISH_CONTEXT: return "context";
    case FLETCH_FINISH_TIMEOUT: return "timeout";
    default: return "length";
    }
}

json_t *call_timings(const struct call *c)
{
    const struct fletch_result *r = &c->choices[0].result;
    double queue = r->queue_seconds, first = r->first_token_seconds;
    double decode = r->seconds - first, n = r->n_generated > 1 ? r->n_generated - 1 : 0;
    return json_pack("{s:f, s:f, s:f, s:f, s:I, s:I, s:s, s:s}", "queue_ms", queue * 1e3,
                     "prefill_ms", first > queue ? (first - queue) * 1e3 : 0.0, "decode_ms",
                     decode * 1e3, "tokens_per_s", decode > 0 ? n / decode : 0.0, "prompt_total",
                     (json_int_t)r->n_prompt, "cached", (json_int_t)r->n_reused, "reuse_end",
                     r->reuse_end, "ended", end_of(&c->choices[0]));
}
