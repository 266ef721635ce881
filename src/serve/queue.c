#include "serve/queue.h"

void queue_init(struct queue *q)
{
    *q = (struct queue){NULL, &q->head, 0};
}

void queue_put(struct queue *q, struct request *r)
{
    r->next = NULL;
    *q->tail = r;
    q->tail = &r->next;
    q->n++;
}

void queue_remove(struct queue *q, struct request *r)
{
    struct request **at = &q->head;
    while (*at != r) at = &(*at)->next;
    *at = r->next;
    if (!r->next) q->tail = at;
    q->n--;
}

static i64 priority_at(const struct request *r, u64 step)
{
    return r->r.priority + (i64)((step - r->waits_since) / QUEUE_AGE);
}

static bool before(const struct request *a, const struct request *b, u64 step)
{
    bool warm_a = a->r.kind == REQUEST_WARM, warm_b = b->r.kind == REQUEST_WARM;
    i64 pa = priority_at(a, step), pb = priority_at(b, step);
    if (warm_a != warm_b) return warm_b; /* however long it has waited */
    if (pa != pb) return pa > pb;
    if (a->client->rows != b->client->rows) return a->client->rows < b->client->rows;
    return a->id < b->id;
}

struct request *queue_next(const struct queue *q, u64 step)
{
    struct request *best = q->head;
    for (struct request *r = q->head; r; r = r->next)
        if (before(r, best, step)) best = r;
    return best;
}

struct client *client_find(struct client *clients, u32 n, u64 key)
{
    struct client *unused = NULL;
    u64 least = UINT64_MAX; /* a newcomer starts level with whoever had least */
    for (u32 i = 0; i < n; i++) {
        if (clients[i].n_live && clients[i].key == key) return &clients[i];
        if (clients[i].n_live)
            least = MIN(least, clients[i].rows);
        else if (!unused)
            unused = &clients[i];
    }
    CHECK(unused);
    *unused = (struct client){key, least == UINT64_MAX ? 0 : least, 0};
    return unused;
}
