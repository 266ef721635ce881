/* Models in service: each has a thread that loads it and then runs its steps. */
#include "served.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "app.h"

struct errand {
    struct errand *next;
    struct served *m;
    void (*work)(struct served *m, void *ctx);
    void (*done)(void *ctx);
    void *ctx;
};

static struct served *find_alias(struct server *s, const char *name)
{
    for (size_t i = 0; i < s->params.n_aliases; i++)
        if (strcmp(s->params.aliases[i].name, name) == 0)
            return &s->served[s->params.aliases[i].model];
    return NULL;
}

struct served *served_find(struct server *s, const char *id)
{
    if (!id && s->n_served == 1) return &s->served[0];
    for (size_t i = 0; id && i < s->n_served; i++)
        if (strcmp(s->served[i].id, id) == 0) return &s->served[i];
    struct served *m = find_alias(s, id ? id : "");
    return m ? m : find_alias(s, "*");
}

static void set_state(struct served *m, enum hosted_state to)
{
    pthread_mutex_lock(&m->lock);
    hosted_change(&m->state, to);
    pthread_mutex_unlock(&m->lock);
}

bool served_runs(const struct served *m)
{
    return m->state == HOSTED_LOADING || m->state == HOSTED_READY;
}

bool served_is_ready(struct served *m)
{
    pthread_mutex_lock(&m->lock);
    bool ready = m->state == HOSTED_READY;
    pthread_mutex_unlock(&m->lock);
    return ready;
}

void served_figures(struct served *m, struct served_figures *out)
{
    pthread_mutex_lock(&m->lock);
    *out = m->figures;
    pthread_mutex_unlock(&m->lock);
}

const char *served_piece(const struct served *m, int32_t id, size_t *n)
{
    *n = 0;
    if (id < 0 || (uint32_t)id >= m->info.n_vocab || !m->pieces) return "";
    *n = m->pieces[id + 1] - m->pieces[id];
    return m->piece_text + m->pieces[id];
}

json_t *served_card(struct served *m)
{
    bool ready = served_is_ready(m);
    json_t *j = json_pack("{s:s, s:s, s:I, s:s, s:b}", "id", m->id, "object", "model", "created",
                          (json_int_t)m->created, "owned_by", "fletch", "ready", ready);
    if (ready) {
        json_object_set_new(j, "arch", json_string(m->info.arch));
        json_object_set_new(j, "context_length", json_integer(m->info.n_ctx));
        json_object_set_new(j, "vocab_size", json_integer(m->info.n_vocab));
    }
    return j;
}

bool served_is_hidden(const struct served *m, int32_t id)
{
    return id >= 0 && (uint32_t)id < m->info.n_vocab && m->hidden && m->hidden[id];
}

/* ---- errands ---- */

void served_errand(struct served *m, void (*work)(struct served *m, void *ctx),
                   void (*done)(void *ctx), void *ctx)
{
    if (!served_runs(m)) { /* the server ends */
        mail_run(m->server, done, ctx);
        return;
    }
    struct errand *e = memory_zeroed(sizeof *e), **at = &m->errands;
    *e = (struct errand){NULL, m, work, done, ctx};
    pthread_mutex_lock(&m->lock);
    while (*at) at = &(*at)->next;
    *at = e;
    pthread_mutex_unlock(&m->lock);
    fletch_batch_wake(m->batch);
}

static void run_errands(struct served *m)
{
    pthread_mutex_lock(&m->lock);
    struct errand *e = m->errands;
    m->errands = NULL;
    pthread_mutex_unlock(&m->lock);
    while (e) {
        struct errand *next = e->next;
        e->work(m, e->ctx);
        mail_run(m->server, e->done, e->ctx);
        free(e);
        e = next;
    }
}

/* ---- the engine thread ---- */

/* Appends what a token looks like: behind another of its kind, where it keeps the blank that a
 * text would not begin with. */
static int add_piece(struct served *m, struct words *w, int32_t id)
{
    int32_t twice[2] = {id, id};
    char *one = NULL, *two = NULL, *plain = NULL;
    size_t n_one, n_two, n_plain;
    int rc = fletch_detokenize(m->model, twice, 1, FLETCH_SPECIAL, &one, &n_one);
    if (!rc) rc = fletch_detokenize(m->model, twice, 2, FLETCH_SPECIAL, &two, &n_two);
    if (!rc) rc = fletch_detokenize(m->model, twice, 2, 0, &plain, &n_plain);
    if (!rc) {
        words_try_add(w, two + n_one, n_two - n_one);
        m->hidden[id] = n_two && !n_plain;
    }
    fletch_free(one);
    fletch_free(two);
    fletch_free(plain);
    return rc;
}

/* All tokens, so that nobody has to ask the model while it works. */
static int make_pieces(struct served *m)
{
    struct words w = {0};
    if (!m->info.has_vocab) return 0;
    m->pieces = calloc((size_t)m->info.n_vocab + 1, sizeof *m->pieces);
    m->hidden = calloc(m->info.n_vocab, sizeof *m->hidden);
    if (!m->pieces || !m->hidden) return say_failure(FLETCH_E_NOMEM, "out of memory");
    for (uint32_t id = 0; id < m->info.n_vocab; id++) {
        int rc = add_piece(m, &w, (int32_t)id);
        if (rc) return say_failure(rc, fletch_model_error(m->model));
        if (w.failed) return say_failure(FLETCH_E_NOMEM, "out of memory");
        m->pieces[id + 1] = (uint32_t)w.n;
    }
    m->piece_text = w.p;
    return 0;
}

static void leave_figures(struct served *m, double *since, uint64_t *rows)
{
    struct served_figures f = {.t_step = server_now()};
    fletch_batch_stats(m->batch, &f.stats);
    fletch_model_gpu_memory(m->model, &f.gpu_allocated, &f.gpu_recommended);
    pthread_mutex_lock(&m->lock);
    f.tokens_per_second = m->figures.tokens_per_second;
    if (f.t_step - *since >= 1) { /* answers' rows of the last second or so */
        f.tokens_per_second = (double)(f.stats.n_answer_rows - *rows) / (f.t_step - *since);
        *rows = f.stats.n_answer_rows;
        *since = f.t_step;
    }
    m->figures = f;
    pthread_mutex_unlock(&m->lock);
}

static void release(struct served *m);

static void on_loaded(void *ctx)
{
    struct served *m = ctx;
    if (m->state != HOSTED_LOADING) return; /* it was stopped meanwhile */
    set_state(m, HOSTED_READY);
    log_line(m->server, "model %s is ready: context %u, %s", m->id, m->info.n_ctx,
             m->info.has_template ? "with a chat template" : "without a chat template");
    shut_in(m->server);
    call_model_came(m);
}

static void on_failed(void *ctx)
{
    struct served *m = ctx;
    uint64_t all = m->server->params.max_memory;
    bool may_fit = m->code == EXIT_FIT && (!all || m->bytes <= all);
    if (m->state != HOSTED_LOADING) return;
    release(m);
    if (!m->on_demand)
        server_stop(m->server, m->code);
    else if (may_fit)
        set_state(m, HOSTED_NO_ROOM); /* served_tick makes some */
    else
        call_model_came(m);
}

static bool stopped(struct served *m)
{
    pthread_mutex_lock(&m->lock);
    bool stop = m->state == HOSTED_STOPPING;
    pthread_mutex_unlock(&m->lock);
    return stop;
}

static void *serve(void *ctx)
{
    struct served *m = ctx;
    double since = server_now();
    uint64_t rows = 0;
    m->code = m->server->params.load(m->server->params.ctx, m);
    if (!m->code && make_pieces(m)) m->code = EXIT_MODEL;
    mail_run(m->server, m->code ? on_failed : on_loaded, m);
    while (!m->code && !stopped(m)) {
        fletch_batch_step(m->batch, 1);
        leave_figures(m, &since, &rows);
        run_errands(m);
    }
    return NULL;
}

/* ---- coming and going ---- */

void served_declare(struct served *m, struct server *s, const char *id, const char *path)
{
    *m = (struct served){.server = s, .id = id, .path = path, .created = (int64_t)time(NULL)};
    m->on_demand = s->params.on_demand;
    pthread_mutex_init(&m->lock, NULL);
    pthread_mutex_init(&m->text_lock, NULL);
}

int served_load(struct served *m)
{
    set_state(m, HOSTED_LOADING);
    if (pthread_create(&m->thread, NULL, serve, m) == 0) return EXIT_OK;
    m->code = EXIT_FIT; /* its stack, most likely */
    set_state(m, HOSTED_ABSENT);
    return say_error("cannot start a thread");
}

void served_stop(struct served *m)
{
    bool loads = m->state == HOSTED_LOADING;
    if (served_runs(m)) set_state(m, HOSTED_STOPPING);
    if (m->state == HOSTED_STOPPING) {
        if (!loads) fletch_batch_wake(m->batch);
        pthread_join(m->thread, NULL);
        set_state(m, HOSTED_ABSENT);
    }
    reader_wake(m);
    while (m->errands) { /* nobody will run them */
        struct errand *e = m->errands;
        m->errands = e->next;
        mail_run(m->server, e->done, e->ctx);
        free(e);
    }
    fletch_batch_close(m->batch); /* tells those that are not done */
    m->batch = NULL;
}

/* Gives back all that loading took. */
static void release(struct served *m)
{
    served_stop(m);
    fletch_session_close(m->session);
    m->session = NULL;
    m->server->params.unload(m->server->params.ctx, m);
    m->model = NULL;
    free(m->pieces);
    free(m->hidden);
    free(m->piece_text);
    m->pieces = NULL;
    m->hidden = NULL;
    m->piece_text = NULL;
    m->figures = (struct served_figures){0};
}

void served_close(struct served *m)
{
    release(m);
    pthread_mutex_destroy(&m->lock);
    pthread_mutex_destroy(&m->text_lock);
}

bool served_hold(struct served *m)
{
    pthread_mutex_lock(&m->lock);
    bool ready = m->state == HOSTED_READY;
    m->n_users += ready;
    m->t_used = server_now();
    pthread_mutex_unlock(&m->lock);
    return ready;
}

void served_let_go(struct served *m)
{
    pthread_mutex_lock(&m->lock);
    m->n_users--;
    m->t_used = server_now();
    pthread_mutex_unlock(&m->lock);
}

/* Unloads the one that was not used for longest, if nobody uses it. */
static bool make_room(struct server *s)
{
    struct served *oldest = NULL;
    double t_oldest = 0;
    for (size_t i = 0; i < s->n_served; i++) {
        struct served *m = &s->served[i];
        pthread_mutex_lock(&m->lock);
        bool idle = m->state == HOSTED_READY && !m->n_users;
        double t = m->t_used;
        pthread_mutex_unlock(&m->lock);
        if (!idle || (oldest && t >= t_oldest)) continue;
        oldest = m;
        t_oldest = t;
    }
    if (!oldest) return false;
    pthread_mutex_lock(&oldest->lock);
    bool idle = !oldest->n_users; /* a worker may have come meanwhile */
    if (idle) hosted_change(&oldest->state, HOSTED_STOPPING);
    pthread_mutex_unlock(&oldest->lock);
    if (!idle) return false;
    log_line(s, "unloading model %s to free memory", oldest->id);
    release(oldest);
    return true;
}

/* Nothing can make it fit, or it is broken. */
static void give_up(struct served *m)
{
    set_state(m, HOSTED_ABSENT);
    call_model_came(m);
}

/* Loads what is wanted, one after the other, so that each knows what is left. */
void served_tick(struct server *s)
{
    uint64_t taken = 0, all = s->params.max_memory;
    bool loading = false, others = false;
    for (size_t i = 0; i < s->n_served; i++) {
        others = others || s->served[i].state == HOSTED_READY;
        loading = loading || s->served[i].state == HOSTED_LOADING;
        taken += s->served[i].state == HOSTED_READY ? s->served[i].bytes : 0;
    }
    for (size_t i = 0; i < s->n_served && !loading; i++) {
        struct served *m = &s->served[i];
        if (m->state == HOSTED_NO_ROOM && taken < m->beside)
            set_state(m, HOSTED_WANTED); /* another has been unloaded since */
        if (m->state == HOSTED_NO_ROOM && !make_room(s)) {
            if (!others) give_up(m);
            continue; /* others may end their work */
        }
        if (m->state == HOSTED_NO_ROOM) { /* count again, without the one that left */
            set_state(m, HOSTED_WANTED);
            served_tick(s);
            return;
        }
        if (m->state != HOSTED_WANTED) continue;
        m->allowed = !all ? 0 : taken < all ? all - taken : 1;
        m->beside = taken;
        loading = served_load(m) == EXIT_OK;
        if (!loading) call_model_came(m);
    }
}

void served_want(struct served *m)
{
    if (m->state == HOSTED_ABSENT) set_state(m, HOSTED_WANTED);
    if (m->state == HOSTED_READY)
        call_model_came(m); /* it was loaded since a worker looked */
    else
        served_tick(m->server);
}
