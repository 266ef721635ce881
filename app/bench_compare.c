/* fletch bench compare: ratios of two documents, with intervals from their runs. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "table.h"

enum { RESAMPLES = 2000, MAX_SAMPLES = 1000 };
static const double margin = 0.02; /* smaller changes are not called regressions */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, size_t n)
{
    qsort(v, n, sizeof *v, by_size);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

static size_t read_samples(double *out, const json_t *row)
{
    const json_t *list = json_object_get(row, "samples"), *v;
    size_t i, n = 0;
    json_array_foreach(list, i, v)
    {
        double x = json_number_value(v);
        if (x > 0 && isfinite(x) && n < MAX_SAMPLES) out[n++] = x;
    }
    return n;
}

struct ratio {
    double mid, low, high; /* of medians; 95 % of resampled ones lie between low and high */
};

static double resampled(const double *v, size_t n, uint64_t *random)
{
    double some[MAX_SAMPLES];
    for (size_t i = 0; i < n; i++) {
        *random = *random * 6364136223846793005u + 1442695040888963407u;
        some[i] = v[(*random >> 33) % n];
    }
    return median(some, n);
}

static struct ratio ratio_of(double *a, size_t n_a, double *b, size_t n_b)
{
    static double all[RESAMPLES];
    uint64_t random = 1; /* the same documents give the same interval */
    for (size_t i = 0; i < RESAMPLES; i++)
        all[i] = resampled(b, n_b, &random) / resampled(a, n_a, &random);
    qsort(all, RESAMPLES, sizeof *all, by_size);
    return (struct ratio){median(b, n_b) / median(a, n_a), all[RESAMPLES / 40],
                          all[RESAMPLES - 1 - RESAMPLES / 40]};
}

static bool same_case(const json_t *a, const json_t *b)
{
    static const char *const keys[] = {"n_prompt", "n_gen", "depth", "batch"};
    if (strcmp(get_text(a, "mode"), get_text(b, "mode")) != 0) return false;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (get_count(a, keys[i]) != get_count(b, keys[i])) return false;
    return true;
}

static const json_t *find_case(const json_t *doc, const json_t *like)
{
    const json_t *row;
    size_t i;
    json_array_foreach(json_object_get(doc, "results"), i,
                       row) if (same_case(row, like)) return row;
    return NULL;
}

int bench_load(json_t **out, const char *path)
{
    struct text text;
    json_error_t where;
    int code = read_text(&text, path);
    if (code) return code;
    *out = json_loadb(text.p, text.n, 0, &where);
    free(text.p);
    if (*out && json_is_array(json_object_get(*out, "results"))) return EXIT_OK;
    return say_error("%s was not written by fletch bench", QUOTE(path));
}

/* One row of the table; 1 when it is a regression, 0 when not, -1 when nothing can be said. */
static int compare_row(struct table *t, const json_t *a, const json_t *b, json_t *list)
{
    double sa[MAX_SAMPLES], sb[MAX_SAMPLES];
    size_t n_a = read_samples(sa, a), n_b = read_samples(sb, b);
    if (n_a == 0 || n_b == 0) return -1;
    struct ratio r = ratio_of(sa, n_a, sb, n_b);
    bool slower = r.high<1 - margin, faster = r.low> 1 + margin;
    table_put(t, "%s", get_text(a, "mode"));
    table_put(t, "p%llu n%llu d%llu b%llu", (unsigned long long)get_count(a, "n_prompt"),
              (unsigned long long)get_count(a, "n_gen"), (unsigned long long)get_count(a, "depth"),
              (unsigned long long)get_count(a, "batch"));
    table_put(t, "%.1f", median(sa, n_a));
    table_put(t, "%.1f", median(sb, n_b));
    table_put(t, "%.3f", r.mid);
    table_put(t, "%.3f to %.3f", r.low, r.high);
    table_put(t, "%.3f", sb[n_b - 1] / sa[n_a - 1]);
    table_put(t, "%s", slower ? "SLOWER" : faster ? "faster" : "");
    json_array_append_new(
        list, need(json_pack(
                  "{s:s, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:b}", "mode", get_text(a, "mode"),
                  "n_prompt", (json_int_t)get_count(a, "n_prompt"), "n_gen",
                  (json_int_t)get_count(a, "n_gen"), "depth", (json_int_t)get_count(a, "depth"),
                  "batch", (json_int_t)get_count(a, "batch"), "ratio", r.mid, "low", r.low, "high",
                  r.high, "best_ratio", sb[n_b - 1] / sa[n_a - 1], "regression", slower)));
    return slower;
}

struct bench_compared bench_compare_docs(const json_t *a, const json_t *b, struct table *t,
                                         json_t *list)
{
    static const char *const names[] = {"mode", "case", "A tokens/s", "B tokens/s",
                                        "B/A",  "95 %", "best B/A",   ""};
    struct bench_compared c = {0, 0};
    const json_t *row;
    size_t i;
    t->columns = "llrrrrrl";
    for (i = 0; i < sizeof names / sizeof *names; i++) table_put(t, "%s", names[i]);
    json_array_foreach(json_object_get(a, "results"), i, row)
    {
        const json_t *other = find_case(b, row);
        int slower = other ? compare_row(t, row, other, list) : -1;
        c.n += slower >= 0;
        c.n_slower += slower == 1;
    }
    return c;
}

int bench_compare(const char *path_a, const char *path_b, const struct args *args)
{
    struct table t = {0};
    struct bench_compared c = {0, 0};
    json_t *a = NULL, *b = NULL, *list = need(json_array());
    int code = bench_load(&a, path_a);
    if (!code) code = bench_load(&b, path_b);
    if (!code) c = bench_compare_docs(a, b, &t, list);
    if (!code && c.n == 0)
        code = say_error("%s and %s have no cases in common", QUOTE(path_a), QUOTE(path_b));
    if (!code && args->json) {
        json_t *doc =
            need(json_pack("{s:O, s:b}", "comparison", list, "regression", c.n_slower > 0));
        say_json(doc);
        json_decref(doc);
    }
    FILE *out = !code && !args->json ? stdout : NULL;
    if (out) {
        table_print(&t, out);
        printf("%zu of %zu cases are significantly slower (by more than %.0f %%)\n", c.n_slower,
               c.n, 100 * margin);
    } else
        table_free(&t);
    json_decref(a);
    json_decref(b);
    json_decref(list);
    return code ? code : c.n_slower ? EXIT_FAIL : EXIT_OK;
}
