/* /v1/status: what the page shows of the server and of each model. All of it is the loop's. */
#include <sys/stat.h>

#include "app.h"
#include "http.h"
#include "models.h"
#include "server.h"

/* Once a second each model's generated tokens are counted into its history. */
void status_tick(struct server *s)
{
    double now = server_now();
    if (now - s->t_history < 1) return;
    s->t_history = now;
    for (size_t i = 0; i < s->n_served; i++) {
        struct served *m = &s->served[i];
        struct served_figures f;
        served_figures(m, &f);
        uint64_t n = f.stats.n_answer_rows;
        /* fewer than before: it was loaded anew */
        uint64_t made = n > m->n_counted ? n - m->n_counted : 0;
        m->history[m->n_history++ % STATUS_SECONDS] = (uint32_t)made;
        m->n_counted = n;
    }
}

static json_t *history_json(const struct served *m)
{
    json_t *list = json_array();
    uint64_t n = m->n_history < STATUS_SECONDS ? m->n_history : STATUS_SECONDS;
    for (uint64_t i = m->n_history - n; i < m->n_history; i++)
        json_array_append_new(list, json_integer(m->history[i % STATUS_SECONDS]));
    return list;
}

/* Of a model that is not loaded the size of its file stands for that of its weights. */
static uint64_t file_bytes(const struct served *m)
{
    struct stat st;
    size_t n_name;
    if (!m->path || stat(m->path, &st) || !S_ISREG(st.st_mode)) return 0;
    return model_set_part(m->path, &n_name) ? 0 : (uint64_t)st.st_size;
}

static json_t *sampling_json(const struct fletch_sampling *s)
{
    json_t *j = json_object();
    for (size_t i = 0; i < n_settings; i++) {
        const struct setting *x = &setting_table[i];
        double v = setting_get(x, s);
        json_object_set_new(j, x->name,
                            x->kind == SETTING_real ? json_real(v) : json_integer((json_int_t)v));
    }
    return j;
}

/* What is known once it is loaded. */
static void add_loaded(json_t *j, const struct served *m)
{
    const struct fletch_model_info *info = &m->info;
    json_object_set_new(j, "n_ctx", json_integer(info->n_ctx));
    json_object_set_new(j, "arch", json_string(info->arch));
    json_object_set_new(j, "type", json_string(info->type));
    json_object_set_new(j, "backend", json_string(m->backend));
    json_object_set_new(j, "has_template", json_boolean(info->has_template));
    json_object_set_new(j, "sampling", sampling_json(&info->sampling));
    json_object_set_new(j, "weight_bytes", json_integer((json_int_t)info->weight_bytes));
    json_object_set_new(j, "memory_bytes", json_integer((json_int_t)m->bytes));
}

static json_t *model_status(struct served *m)
{
    struct served_figures f;
    served_figures(m, &f);
    const struct fletch_batch_stats *b = &f.stats;
    bool idle = !b->n_running || server_now() - f.t_step > 2, ready = served_is_ready(m);
    json_int_t n_used = (json_int_t)b->n_blocks - b->n_free - b->n_idle;
    json_t *j = json_pack(
        "{s:s, s:b, s:b, s:i, s:I, s:I, s:{s:I, s:I, s:I, s:I}, s:f, s:I, s:I, s:o}", "model",
        m->id, "ready", ready, "builtin", !m->path, "n_ctx", 0, "running", (json_int_t)b->n_running,
        "warming", (json_int_t)m->n_warming, "kv", "total", (json_int_t)b->n_blocks, "used", n_used,
        "idle", (json_int_t)b->n_idle, "free", (json_int_t)b->n_free, "tokens_per_s",
        idle ? 0.0 : f.tokens_per_second, "steps", (json_int_t)b->n_steps, "generated_tokens",
        (json_int_t)b->n_answer_rows, "tokens_last_minute", history_json(m));
    if (ready)
        add_loaded(j, m);
    else
        json_object_set_new(j, "weight_bytes", json_integer((json_int_t)file_bytes(m)));
    return j;
}

/* The first model's figures and the server's own; then those of every model. */
void status_reply(struct conn *c)
{
    struct server *s = conn_server(c);
    json_t *models = json_array();
    for (size_t i = 0; i < s->n_served; i++)
        json_array_append_new(models, model_status(&s->served[i]));
    json_t *j = json_deep_copy(json_array_get(models, 0));
    json_object_set_new(j, "queue", json_integer(s->n_queued));
    json_object_set_new(j, "calls", json_integer(s->n_calls));
    json_object_set_new(j, "connections", json_integer((json_int_t)http_count(s)));
    json_object_set_new(j, "uptime_s", json_real(server_now() - s->t_start));
    json_object_set_new(j, "draining", json_boolean(s->draining));
    json_object_set_new(j, "version", json_string(FLETCH_VERSION));
    json_object_set_new(j, "resident_bytes", json_integer((json_int_t)metrics_resident_bytes()));
    json_object_set_new(j, "models", models);
    json_reply(c, 200, j);
}
