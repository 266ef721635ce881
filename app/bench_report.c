/* Bench documents as tables for people, and as CSV. */
#include "bench.h"

#include "table.h"

/* A cell that stays empty where there is nothing to tell. */
#define PUT_IF(t, there, ...) ((there) ? table_put(t, __VA_ARGS__) : table_put(t, "%s", ""))

static void put_head(struct table *t, const char *const *names)
{
    for (; *names; names++) table_put(t, "%s", *names);
}

struct bench_line bench_say_machine(const json_t *m)
{
    struct bench_line line;
    char cached[64] = "", gpu[48] = "";
    if (get_real(m, "cache_gb_s") > 0)
        snprintf(cached, sizeof cached, " (%.1f GB/s from the cache, which holds the model)",
                 get_real(m, "cache_gb_s"));
    if (get_real(m, "gpu_read_gb_s") > 0)
        snprintf(gpu, sizeof gpu, "GPU: read %.1f GB/s; ", get_real(m, "gpu_read_gb_s"));
    snprintf(line.text, sizeof line.text,
             "%s%llu threads: read %.1f GB/s%s, compute %.0f GFLOP/s (%s)", gpu,
             (unsigned long long)get_count(m, "threads"), get_real(m, "read_gb_s"), cached,
             get_real(m, "peak_gflop_s"), get_text(m, "peak"));
    return line;
}

static void print_head(const json_t *doc)
{
    const json_t *model = json_object_get(doc, "model"), *m = json_object_get(doc, "machine");
    struct table t = {.columns = "ll"};
    table_put(&t, "model");
    table_put(&t, "%s %s, %s", get_text(model, "path"), get_text(model, "name"),
              human_bytes(get_count(model, "weight_bytes")).text);
    table_put(&t, "backend");
    table_put(&t, "%s", get_text(doc, "backend_why"));
    table_put(&t, "date");
    table_put(&t, "%s", get_text(doc, "date"));
    table_put(&t, "loaded in");
    table_put(&t, "%.2f s", get_real(doc, "load_s"));
    if (m) {
        table_put(&t, "memory");
        table_put(&t, "%s peak, %s planned", human_bytes(get_count(doc, "peak_rss")).text,
                  human_bytes(get_count(doc, "plan_bytes")).text);
        table_put(&t, "machine");
        table_put(&t, "%s", get_text(m, "processor"));
        table_put(&t, "measured");
        table_put(&t, "%s", bench_say_machine(m).text);
    }
    table_print(&t, stdout);
    putchar('\n');
}

/* With its share of what the machine was measured to do, where that is known; nothing without a
 * row. */
static void put_rate(struct table *t, const json_t *row, int digits, const char *key,
                     const char *share)
{
    if (!row)
        table_put(t, "%s", "");
    else if (json_object_get(row, share))
        table_put(t, "%.*f (%.0f %%)", digits, get_real(row, key), 100 * get_real(row, share));
    else
        table_put(t, "%.*f", digits, get_real(row, key));
}

/* What the host did to the speed of generating, where steps are queued. */
static void print_gaps(const json_t *doc)
{
    const json_t *row;
    size_t i;
    json_array_foreach(json_object_get(doc, "results"), i, row)
    {
        bool queues = json_object_get(row, "launches_per_step") || get_real(row, "ahead_share") > 0;
        if (!queues || !json_object_get(row, "gap_us")) continue;
        printf("  %s, prompt %llu, depth %llu, batch %llu: %.0f %% of the steps submitted ahead; "
               "the queue was empty for %.1f µs per step\n",
               get_text(row, "mode"), (unsigned long long)get_count(row, "n_prompt"),
               (unsigned long long)get_count(row, "depth"),
               (unsigned long long)get_count(row, "batch"), 100 * get_real(row, "ahead_share"),
               get_real(row, "gap_us"));
    }
}

void bench_print(const json_t *doc)
{
    static const char *const names[] = {"mode",     "prompt",   "gen",  "depth",   "batch",
                                        "tokens/s", "best",     "±",    "p50 ms",  "p95/p99/max",
                                        "first ms", "MB/token", "GB/s", "GFLOP/s", NULL};
    struct table t = {.columns = "lrrrrrrrrrrrrr"};
    const json_t *row;
    size_t i;
    print_head(doc);
    put_head(&t, names);
    json_array_foreach(json_object_get(doc, "results"), i, row)
    {
        const json_t *l = json_object_get(row, "latency_ms");
        table_put(&t, "%s", get_text(row, "mode"));
        table_put(&t, "%llu", (unsigned long long)get_count(row, "n_prompt"));
        table_put(&t, "%llu", (unsigned long long)get_count(row, "n_gen"));
        table_put(&t, "%llu", (unsigned long long)get_count(row, "depth"));
        table_put(&t, "%llu", (unsigned long long)get_count(row, "batch"));
        table_put(&t, "%.1f", get_real(row, "tokens_per_s"));
        table_put(&t, "%.1f", get_real(row, "best"));
        table_put(&t, "%.0f %%", 100 * get_real(row, "spread"));
        PUT_IF(&t, l, "%.2f", get_real(l, "p50"));
        PUT_IF(&t, l, "%.2f/%.2f/%.2f", get_real(l, "p95"), get_real(l, "p99"), get_real(l, "max"));
        PUT_IF(&t, json_object_get(row, "first_token_ms"), "%.1f", get_real(row, "first_token_ms"));
        table_put(&t, "%.1f", 1e-6 * get_real(row, "active_bytes"));
        put_rate(&t, row, 1, "gb_s", "bandwidth_share");
        put_rate(&t, row, 0, "gflop_s", "flop_share");
    }
    table_print(&t, stdout);
    print_gaps(doc);
}

void bench_print_csv(const json_t *doc)
{
    static const char *const columns[] = {
        "mode",         "n_prompt",     "n_gen",       "depth",           "batch",   "tokens_per_s",
        "best",         "worst",        "spread",      "first_token_ms",  "p50",     "p95",
        "p99",          "max",          "gb_s",        "bandwidth_share", "gflop_s", "flop_share",
        "active_bytes", "placed_bytes", "ahead_share", "gap_us",          NULL};
    const json_t *row;
    size_t i;
    for (const char *const *c = columns; *c; c++) printf("%s%s", c == columns ? "" : ",", *c);
    putchar('\n');
    json_array_foreach(json_object_get(doc, "results"), i, row)
    {
        for (const char *const *c = columns; *c; c++) {
            const json_t *v = json_object_get(row, *c);
            if (!v) v = json_object_get(json_object_get(row, "latency_ms"), *c);
            if (c != columns) putchar(',');
            if (json_is_string(v)) fputs(json_string_value(v), stdout);
            if (json_is_number(v)) printf("%.9g", json_number_value(v));
        }
        putchar('\n');
    }
}

static void print_parts(const json_t *parts)
{
    const json_t *row;
    size_t i;
    json_array_foreach(parts, i, row)
        printf("%s%s %.1f %%, %.1f GB/s", i ? "; " : "  by part: ", get_text(row, "part"),
               100 * get_real(row, "share"), get_real(row, "gb_s"));
    putchar('\n');
}

static void print_layers(const json_t *layers)
{
    double least = 0, most = 0, sum = 0;
    size_t i, n = 0;
    const json_t *row;
    json_array_foreach(layers, i, row)
    {
        double us = get_real(row, "us");
        if (json_integer_value(json_object_get(row, "layer")) < 0) continue;
        least = n == 0 || us < least ? us : least;
        most = us > most ? us : most;
        sum += us;
        n++;
    }
    if (n)
        printf("  %zu layers: %.0f µs on average, %.0f to %.0f; the JSON document lists each\n", n,
               sum / (double)n, least, most);
}

void bench_print_profile(const json_t *doc)
{
    static const char *const names[] = {"op", "times", "µs",      "share",
                                        "MB", "GB/s",  "GFLOP/s", NULL};
    const json_t *profile, *row;
    size_t i, k;
    print_head(doc);
    json_array_foreach(json_object_get(doc, "profiles"), i, profile)
    {
        struct table t = {.columns = "lrrrrrr"};
        printf("%s, %llu rows per step at depth %llu: %.0f µs, op by op\n",
               get_text(profile, "mode"), (unsigned long long)get_count(profile, "rows_per_step"),
               (unsigned long long)get_count(profile, "depth"), get_real(profile, "us_per_step"));
        put_head(&t, names);
        json_array_foreach(json_object_get(profile, "ops"), k, row)
        {
            table_put(&t, "%s", get_text(row, "op"));
            table_put(&t, "%llu", (unsigned long long)get_count(row, "n"));
            table_put(&t, "%.1f", get_real(row, "us"));
            table_put(&t, "%.1f %%", 100 * get_real(row, "share"));
            table_put(&t, "%.2f", 1e-6 * get_real(row, "bytes"));
            table_put(&t, "%.1f", get_real(row, "gb_s"));
            table_put(&t, "%.0f", get_real(row, "gflop_s"));
        }
        table_print(&t, stdout);
        print_parts(json_object_get(profile, "parts"));
        print_layers(json_object_get(profile, "layers"));
    }
}

static void put_shape(struct table *t, json_t *shape)
{
    char text[200] = "";
    size_t n = 0;
    const char *key;
    json_t *v;
    json_object_foreach(shape, key, v)
    {
        int k = json_is_string(v) ? snprintf(text + n, sizeof text - n, " %s", json_string_value(v))
                                  : snprintf(text + n, sizeof text - n, " %s=%lld", key,
                                             (long long)json_integer_value(v));
        if (k < 0 || (size_t)k >= sizeof text - n) break;
        n += (size_t)k;
    }
    table_put(t, "%s", n ? text + 1 : "");
}

void bench_print_kernels(const json_t *doc)
{
    static const char *const names[] = {"kernel", "form", "shape",   "µs",         "best",
                                        "MB",     "GB/s", "GFLOP/s", "difference", NULL};
    const json_t *m = json_object_get(doc, "machine"), *row;
    struct table t = {.columns = "lllrrrrrr"};
    size_t i;
    printf("  backend %s on %s, %s; %s\n\n", get_text(doc, "backend"), get_text(m, "processor"),
           get_text(doc, "date"), bench_say_machine(m).text);
    put_head(&t, names);
    json_array_foreach(json_object_get(doc, "kernels"), i, row)
    {
        bool ok = get_bool(row, "ok");
        table_put(&t, "%s", get_text(row, "kernel"));
        table_put(&t, "%s", get_text(row, "form"));
        put_shape(&t, json_object_get(row, "shape"));
        table_put(&t, ok ? "%.1f" : "WRONG", get_real(row, "us"));
        PUT_IF(&t, ok, "%.1f", get_real(row, "us_best"));
        PUT_IF(&t, ok, "%.2f", 1e-6 * get_real(row, "bytes"));
        put_rate(&t, ok ? row : NULL, 1, "gb_s", "bandwidth_share");
        put_rate(&t, ok ? row : NULL, 0, "gflop_s", "flop_share");
        table_put(&t, "%.1e", get_real(row, "difference"));
    }
    table_print(&t, stdout);
}
