/* The page of a bench run: the headline figures, the table, the latency distribution, throughput
 * over depth and batch, every run and the roofline, as inline SVG. Nothing is fetched, nothing
 * runs; light and dark by the reader's setting. */
#include <math.h>
#include <string.h>

#include "bench.h"
#include "plot.h"

/* ---- what is plotted ---- */

#define EACH_ROW(doc, i, row) json_array_foreach(json_object_get(doc, "results"), i, row)

static bool has_latency(const json_t *row)
{
    return json_object_get(row, "latency_ms") != NULL;
}

static void case_name(char *name, size_t n, const json_t *row)
{
    static const char *const keys[][2] = {
        {"n_prompt", "p"}, {"n_gen", "n"}, {"depth", "d"}, {"batch", "b"}};
    size_t at = (size_t)snprintf(name, n, "%.16s", get_text(row, "mode"));
    for (size_t i = 0; i < sizeof keys / sizeof *keys && at < n; i++)
        if (get_count(row, keys[i][0]))
            at += (size_t)snprintf(name + at, n - at, " %s%llu", keys[i][1],
                                   (unsigned long long)get_count(row, keys[i][0]));
}

/* A case has its colour on all of the page; those after the last colour share the one that means
 * others. */
static int colour_of(size_t i)
{
    return i < N_COLOURS ? (int)i : N_COLOURS;
}

static void key_of(struct plot *p, const json_t *row, size_t i)
{
    char name[96];
    case_name(name, sizeof name, row);
    plot_key(p, colour_of(i), i < N_COLOURS ? name : "others");
}

/* Percentile over latency, one line per case. */
static void plot_latency(FILE *out, const json_t *doc)
{
    const json_t *row;
    size_t i;
    struct scale x = {1e30, 0, false};
    EACH_ROW(doc, i, row)
    {
        const json_t *all = json_object_get(json_object_get(row, "latency_ms"), "percentiles");
        if (json_array_size(all) != 101) continue;
        x.min = fmin(x.min, json_number_value(json_array_get(all, 0)));
        x.max = fmax(x.max, json_number_value(json_array_get(all, 99)));
    }
    if (x.max <= x.min) return;
    struct plot p;
    plot_begin(&p, out, x, (struct scale){0, 100, false}, "Latency per token",
               "ms (up to the 99th percentile)", "% of tokens");
    EACH_ROW(doc, i, row)
    {
        const json_t *all = json_object_get(json_object_get(row, "latency_ms"), "percentiles");
        if (json_array_size(all) != 101) continue;
        fprintf(out, "<path class=\"mark s%d\" d=\"", colour_of(i));
        for (size_t k = 0; k < 100; k++)
            fprintf(out, "%c%.1f %.1f", k ? 'L' : 'M',
                    plot_x(&p, json_number_value(json_array_get(all, k))), plot_y(&p, (double)k));
        fputs("\"/>", out);
        key_of(&p, row, i);
    }
    plot_end(&p);
}

/* Cases that differ in nothing but what the plot is over. */
static bool same_line(const json_t *a, const json_t *b, const char *other)
{
    return strcmp(get_text(a, "mode"), get_text(b, "mode")) == 0 &&
           get_count(a, "n_prompt") == get_count(b, "n_prompt") &&
           get_count(a, "n_gen") == get_count(b, "n_gen") &&
           get_count(a, other) == get_count(b, other);
}

/* Joins the cases that are like the k-th but for `by`, unless an earlier one did. */
static void draw_line(const struct plot *p, const json_t *doc, size_t k, const char *by,
                      const char *other)
{
    const json_t *row, *start = json_array_get(json_object_get(doc, "results"), k);
    size_t i, n = 0;
    EACH_ROW(doc, i, row)
    {
        if (!same_line(row, start, other)) continue;
        if (i < k) return;
        if (!n++) fputs("<path class=\"mark s6\" style=\"stroke-width:1\" d=\"", p->out);
        fprintf(p->out, "%c%.1f %.1f", n == 1 ? 'M' : 'L', plot_x(p, get_real(row, by)),
                plot_y(p, get_real(row, "tokens_per_s")));
    }
    if (n) fputs("\"/>", p->out);
}

/* Tokens per second over one of a case's numbers: a point per case, joined where nothing else
 * differs. */
static void plot_throughput(FILE *out, const json_t *doc, const char *by, const char *other)
{
    const json_t *row;
    size_t i;
    struct scale x = {1e30, 0, false}, y = {0, 0, false};
    EACH_ROW(doc, i, row)
    {
        x.min = fmin(x.min, get_real(row, by));
        x.max = fmax(x.max, get_real(row, by));
        y.max = fmax(y.max, 1.1 * get_real(row, "tokens_per_s"));
    }
    if (x.max <= x.min) return; /* nothing varies */
    struct plot p;
    char title[64];
    snprintf(title, sizeof title, "Throughput by %s", by);
    plot_begin(&p, out, x, y, title, by, "tokens/s");
    EACH_ROW(doc, i, row) draw_line(&p, doc, i, by, other);
    EACH_ROW(doc, i, row)
    {
        fprintf(out, "<circle class=\"f%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"4\"/>", colour_of(i),
                plot_x(&p, get_real(row, by)), plot_y(&p, get_real(row, "tokens_per_s")));
        key_of(&p, row, i);
    }
    plot_end(&p);
}

/* Every run against the median of its case: how steady the machine was. */
static void plot_runs(FILE *out, const json_t *doc)
{
    const json_t *row, *v;
    size_t i, k, n = 0;
    struct scale y = {90, 110, false};
    EACH_ROW(doc, i, row)
    {
        const json_t *all = json_object_get(row, "samples");
        double mid = get_real(row, "tokens_per_s");
        if (json_array_size(all) > n) n = json_array_size(all);
        json_array_foreach(all, k, v)
        {
            y.min = fmin(y.min, 100 * json_number_value(v) / mid);
            y.max = fmax(y.max, 100 * json_number_value(v) / mid);
        }
    }
    if (n < 2 || !isfinite(y.min) || !isfinite(y.max)) return;
    struct plot p;
    plot_begin(&p, out, (struct scale){1, (double)n, false}, y, "Every run, in order", "run",
               "% of the median");
    EACH_ROW(doc, i, row)
    {
        fprintf(out, "<path class=\"mark s%d\" d=\"", colour_of(i));
        json_array_foreach(json_object_get(row, "samples"), k, v)
            fprintf(out, "%c%.1f %.1f", k ? 'L' : 'M', plot_x(&p, (double)k + 1),
                    plot_y(&p, 100 * json_number_value(v) / get_real(row, "tokens_per_s")));
        fputs("\"/>", out);
        key_of(&p, row, i);
    }
    plot_end(&p);
}

static void plot_roofline(FILE *out, const json_t *doc)
{
    const json_t *m = json_object_get(doc, "machine"), *row;
    double bandwidth = fmax(get_real(m, "read_gb_s"), get_real(m, "cache_gb_s"));
    double peak = get_real(m, "peak_gflop_s");
    struct scale x = {0.1, 1000, true}, y = {0, 0, true};
    size_t i;
    const json_t *first = json_array_get(json_object_get(doc, "results"), 0);
    if (bandwidth <= 0 || peak <= 0 || !json_object_get(first, "bandwidth_share")) return;
    y.max = pow(10, ceil(log10(peak) + 0.3));
    y.min = y.max / 1e4;
    struct plot p;
    plot_begin(&p, out, x, y, "Roofline", "FLOP per byte read", "GFLOP/s");
    double knee = peak / bandwidth;
    double start = fmax(x.min, y.min / bandwidth);
    fprintf(out, "<path class=\"mark\" stroke=\"currentColor\" d=\"M%.1f %.1fL%.1f %.1fH%d\"/>",
            plot_x(&p, start), plot_y(&p, bandwidth * start), plot_x(&p, knee), plot_y(&p, peak),
            WIDTH - RIGHT);
    fprintf(out, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.0f GFLOP/s, %s</text>",
            WIDTH - RIGHT, plot_y(&p, peak) - 5, peak, get_text(m, "peak"));
    EACH_ROW(doc, i, row)
    {
        double bytes = get_real(row, "active_bytes"), flop = get_real(row, "flop_per_token");
        double gflops = get_real(row, "gflop_s");
        if (bytes <= 0 || flop <= 0 || gflops < y.min) continue;
        double at = fmin(fmax(flop / bytes, x.min), x.max);
        char name[96];
        fprintf(out, "<circle class=\"f%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"4\"><title>", colour_of(i),
                plot_x(&p, at), plot_y(&p, fmin(gflops, y.max)));
        case_name(name, sizeof name, row);
        fprintf(out, "%s: %.0f GFLOP/s</title></circle>", name, gflops);
        key_of(&p, row, i);
    }
    plot_end(&p);
}

/* Of what the machine was measured to do; -1 where that is not known (a GPU). */
static double share_of(const json_t *row, const char *key)
{
    return json_object_get(row, key) ? get_real(row, key) : -1;
}

static void say_share(char *out, size_t cap, const char *name, double share, const char *of)
{
    if (share < 0)
        snprintf(out, cap, "%s", name);
    else
        snprintf(out, cap, "%s: %.0f %% of %s", name, 100 * share, of);
}

static void put_rate(FILE *out, const json_t *row, int digits, const char *key, const char *share)
{
    fprintf(out, "<td>%.*f", digits, get_real(row, key));
    if (share_of(row, share) >= 0) fprintf(out, " (%.0f %%)", 100 * share_of(row, share));
}

static void put_table(FILE *out, const json_t *doc)
{
    const json_t *row;
    size_t i;
    fputs("<div class=\"wide\"><table><tr><th>case<th>tokens/s<th>best<th>spread<th>first token"
          "<th>p50<th>p95<th>p99<th>max<th>GB/s<th>GFLOP/s</tr>\n",
          out);
    EACH_ROW(doc, i, row)
    {
        char name[96];
        const json_t *l = json_object_get(row, "latency_ms");
        case_name(name, sizeof name, row);
        fprintf(out, "<tr><td>%s<td><b>%.1f</b><td>%.1f<td>%.0f %%", name,
                get_real(row, "tokens_per_s"), get_real(row, "best"),
                100 * get_real(row, "spread"));
        if (json_object_get(row, "first_token_ms"))
            fprintf(out, "<td>%.1f ms", get_real(row, "first_token_ms"));
        else
            fputs("<td>", out);
        if (has_latency(row))
            fprintf(out, "<td>%.2f<td>%.2f<td>%.2f<td>%.2f", get_real(l, "p50"), get_real(l, "p95"),
                    get_real(l, "p99"), get_real(l, "max"));
        else
            fputs("<td><td><td><td>", out);
        put_rate(out, row, 1, "gb_s", "bandwidth_share");
        put_rate(out, row, 0, "gflop_s", "flop_share");
        fputs("</tr>\n", out);
    }
    fputs("</table></div>\n", out);
}

/* One figure with what it is, and how much of what was measured it takes. */
static void put_card(FILE *out, double value, const char *unit, const char *what, double share)
{
    fprintf(out, "<div class=\"card\"><b>%.*f</b>%s, %s", value < 100 ? 1 : 0, value, unit, what);
    if (share >= 0)
        fprintf(out, "<div class=\"bar\"><i style=\"width:%.0f%%\"></i></div>",
                100 * fmin(share, 1));
    fputs("</div>", out);
}

/* The fastest case of each mode. */
static void put_cards(FILE *out, const json_t *doc)
{
    const json_t *row, *prefill = NULL, *decode = NULL;
    size_t i;
    EACH_ROW(doc, i, row)
    {
        const json_t **best = !get_count(row, "n_gen")      ? &prefill
                              : !get_count(row, "n_prompt") ? &decode
                                                            : NULL;
        if (best && (!*best || get_real(row, "tokens_per_s") > get_real(*best, "tokens_per_s")))
            *best = row;
    }
    char what[128], name[96];
    fputs("<div class=\"cards\">", out);
    if (decode) {
        case_name(name, sizeof name, decode);
        double share = share_of(decode, "bandwidth_share");
        say_share(what, sizeof what, name, share, "the measured bandwidth");
        put_card(out, get_real(decode, "tokens_per_s"), "tokens/s decode", what, share);
    }
    if (prefill) {
        case_name(name, sizeof name, prefill);
        double share = share_of(prefill, "flop_share");
        say_share(what, sizeof what, name, share, "the measured peak");
        put_card(out, get_real(prefill, "tokens_per_s"), "tokens/s prefill", what, share);
        put_card(out, get_real(prefill, "first_token_ms"), "ms", "to the first token", -1);
    }
    double plan = (double)get_count(doc, "plan_bytes"), rss = (double)get_count(doc, "peak_rss");
    snprintf(what, sizeof what, "of memory at peak; %s planned", human_bytes((uint64_t)plan).text);
    put_card(out, rss / 1048576, "MiB", what, plan > 0 ? rss / plan : -1);
    fputs("</div>\n", out);
}

void bench_write_html(FILE *out, const json_t *doc)
{
    const json_t *model = json_object_get(doc, "model"), *m = json_object_get(doc, "machine");
    const char *name = get_text(model, "name");
    plot_page(out, "fletch bench");
    fputs("<h1>", out);
    plot_text(out, *name ? name : get_text(model, "path"));
    fprintf(out, "</h1>\n<p>%s, %llu layers, %s of weights. Backend ", get_text(model, "arch"),
            (unsigned long long)get_count(model, "n_layers"),
            human_bytes(get_count(model, "weight_bytes")).text);
    plot_text(out, get_text(doc, "backend_why"));
    fprintf(out, ". Loaded in %.2f s. Medians of %llu alternating runs.<br>%.10s, ",
            get_real(doc, "load_s"), (unsigned long long)get_count(doc, "reps"),
            get_text(doc, "date"));
    plot_text(out, get_text(m, "processor"));
    fprintf(out, ": %s. ", bench_say_machine(m).text);
    plot_text(out, get_text(doc, "version"));
    fputs(".</p>\n", out);
    put_cards(out, doc);
    fputs("<h2>Results</h2>\n", out);
    put_table(out, doc);
    fputs("<p>p: prompt tokens; n: generated tokens; d: tokens already in the context; b: "
          "sequences at once. Latencies are in ms per step. Percentages in parentheses are shares "
          "of the measured peak.</p>\n<div class=\"plots\">\n",
          out);
    plot_latency(out, doc);
    plot_throughput(out, doc, "depth", "batch");
    plot_throughput(out, doc, "batch", "depth");
    plot_runs(out, doc);
    plot_roofline(out, doc);
    fputs("</div>\n</html>\n", out);
}
