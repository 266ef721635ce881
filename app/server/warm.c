/* Answers come back as prompts: after a chat's answer, what the next request will contain of it is
 * computed as a prompt while the device is idle, so that the next turn finds it in the prefix cache
 * with the bits of a run of its own. What that is depends on the template, which may leave earlier
 * thinking out, and on the client, which may: so the conversation is rendered as it would come
 * back, with the thinking and without, up to where the next message begins. */
#include <stdlib.h>
#include <string.h>

#include "server.h"
#include "turn.h"

enum { MAX_BRANCHES = 2, MAX_WARMS = 32 };

/* A prefix that the batch computes. All lists are the loop's. */
struct warm {
    struct warm *next;
    struct served *served;
    uint64_t id, salt;
    struct prompt prefix;
    size_t n_old; /* its tokens up to the answer: a prompt that begins with them is the next turn */
};

/* The prefixes of a call's answer, on a worker. */
struct branches {
    struct task task;
    struct call *call;
    struct prompt prefixes[MAX_BRANCHES];
};

static size_t n_common(const struct prompt *a, const struct prompt *b)
{
    size_t n = 0;
    while (n < a->n && n < b->n && a->ids[n] == b->ids[n]) n++;
    return n;
}

static int render(struct call *c, const char *next, bool thinking, struct prompt *p)
{
    json_t *messages = turn_next(c, next, thinking);
    int rc = messages ? prompt_chat_with(c, messages, p) : -1;
    json_decref(messages);
    return rc;
}

/* Two next messages that begin differently have the rest in common. */
static void make_prefix(struct call *c, bool thinking, struct prompt *out)
{
    struct prompt a = {0}, b = {0};
    int rc = render(c, "A", thinking, &a);
    if (!rc) rc = render(c, "1", thinking, &b);
    a.n = rc ? 0 : n_common(&a, &b);
    fletch_free(b.ids);
    *out = a;
}

static void make_prefixes(void *ctx)
{
    struct branches *all = ctx;
    memory_begin();
    for (size_t i = 0; i < MAX_BRANCHES; i++)
        if (!i || turn_has(&all->call->choices[0], TOOLS_REASONING))
            make_prefix(all->call, i > 0, &all->prefixes[i]);
}

static void unlink_warm(struct warm *w)
{
    struct warm **at = &w->served->warms;
    while (*at != w) at = &(*at)->next;
    *at = w->next;
}

static void on_end(void *ctx)
{
    struct warm *w = ctx;
    unlink_warm(w);
    w->served->n_warming--;
    fletch_free(w->prefix.ids);
    free(w);
}

static void on_done(void *ctx, const struct fletch_result *r)
{
    struct warm *w = ctx;
    (void)r;
    mail_run(w->served->server, on_end, w);
}

/* Gives it to the batch. Takes the prefix. */
static void submit(const struct call *c, struct prompt prefix)
{
    struct served *m = c->served;
    struct warm *w = calloc(1, sizeof *w), **at = &m->warms;
    if (w) {
        *w = (struct warm){NULL, m, 0, c->salt, prefix, n_common(&prefix, &c->prompts[0])};
        struct fletch_request r = {.tokens = prefix.ids,
                                   .n_tokens = prefix.n,
                                   .warm = true,
                                   .client = c->client,
                                   .cache_salt = c->salt,
                                   .on_done = on_done,
                                   .ctx = w};
        if (m->n_warming < MAX_WARMS && !fletch_batch_submit(m->batch, &r, &w->id)) {
            while (*at) at = &(*at)->next;
            *at = w;
            m->n_warming++;
            return;
        }
    }
    free(w);
    fletch_free(prefix.ids);
}

static void on_made(void *ctx)
{
    struct branches *all = ctx;
    struct call *c = all->call;
    struct prompt *p = all->prefixes;
    bool same = p[1].n && n_common(&p[0], &p[1]) == p[1].n;
    for (size_t i = 0; i < MAX_BRANCHES; i++) {
        bool wanted = p[i].n > 1 && !(i && same) && !c->server->draining;
        if (wanted && served_is_ready(c->served))
            submit(c, p[i]);
        else
            fletch_free(p[i].ids);
    }
    c->served->n_warming--;
    call_free(c);
    free(all);
}

bool warm_begin(struct call *c)
{
    const struct ask *ask = &c->ask;
    bool is_chat = c->conn && c->status == 200 && ask->messages && c->n_choices == 1 &&
                   c->choices[0].state && c->choices[0].result.n_generated;
    if (c->server->params.no_warm || c->server->draining || !is_chat || !c->held) return false;
    if (ask->n_dropped || ask->continue_final) return false; /* comes back in other words */
    struct branches *all = calloc(1, sizeof *all);
    if (!all) return false;
    all->call = c;
    all->task = (struct task){.work = make_prefixes, .done = on_made, .ctx = all};
    c->served->n_warming++;
    workers_give(c->server, &all->task);
    return true;
}

void warm_supersede(struct served *m, uint64_t salt, const struct prompt *p)
{
    for (struct warm *w = m->warms; w; w = w->next)
        if (w->salt == salt && n_common(&w->prefix, p) >= w->n_old)
            fletch_batch_cancel(m->batch, w->id);
}
