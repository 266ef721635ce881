/* The page of `fletch bench --mode serve`: the table, and how speed and waiting change with the
 * number of clients. In the style of the other bench page. */
#include <math.h>
#include <string.h>

#include "bench.h"
#include "plot.h"

#define EACH_CASE(doc, i, row) json_array_foreach(json_object_get(doc, "serve"), i, row)

static bool is_closed(const json_t *row)
{
    return strcmp(get_text(row, "mode"), "closed") == 0;
}

/* Lines over the number of clients, one for each key; the first has the colour. */
static void plot_lines(FILE *out, const json_t *doc, const char *title, const char *unit,
                       double factor, const char *const *keys, const char *const *names, size_t n,
                       int colour)
{
    const json_t *row;
    size_t i;
    struct scale x = {0, 1, false}, y = {0, 0, false};
    EACH_CASE(doc, i, row)
    {
        if (!is_closed(row)) continue;
        x.max = fmax(x.max, get_real(row, "clients"));
        for (size_t k = 0; k < n; k++) y.max = fmax(y.max, 1.1 * factor * get_real(row, keys[k]));
    }
    if (y.max <= 0) return;
    struct plot p;
    plot_begin(&p, out, x, y, title, "clients", unit);
    for (size_t k = 0; k < n; k++) {
        bool first = true;
        fprintf(out, "<path class=\"mark s%d\" d=\"", colour + (int)k);
        EACH_CASE(doc, i, row)
        {
            if (!is_closed(row)) continue;
            fprintf(out, "%c%.1f %.1f", first ? 'M' : 'L', plot_x(&p, get_real(row, "clients")),
                    plot_y(&p, factor * get_real(row, keys[k])));
            first = false;
        }
        fputs("\"/>", out);
        EACH_CASE(doc, i, row)
        if (is_closed(row))
            fprintf(out, "<circle class=\"f%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\"/>",
                    colour + (int)k, plot_x(&p, get_real(row, "clients")),
                    plot_y(&p, factor * get_real(row, keys[k])));
        plot_key(&p, colour + (int)k, names[k]);
    }
    plot_end(&p);
}

static void put_rows(FILE *out, const json_t *doc)
{
    const json_t *row;
    size_t i;
    fputs(
        "<div class=\"wide\"><table><tr><th>mode<th>clients<th>requests<th>tokens/s<th>first "
        "token p50<th>p95<th>token p50<th>p95<th>p99<th>max<th>usual<th>p95<th>cancel p50<th>max\n",
        out);
    EACH_CASE(doc, i, row)
    {
        fprintf(out, "<tr><td>%s<td>%.0f<td>%.0f<td>%.1f", get_text(row, "mode"),
                get_real(row, "clients"), get_real(row, "requests"),
                get_real(row, "tokens_per_second"));
        for (size_t k = 0; bench_serve_times[k]; k++) {
            const json_t *v = json_object_get(row, bench_serve_times[k]);
            if (v)
                fprintf(out, "<td>%.2f", 1e3 * json_number_value(v));
            else
                fputs("<td>", out);
        }
        fputc('\n', out);
    }
    fputs("</table></div>\n", out);
}

void bench_write_serve_html(FILE *out, const json_t *doc)
{
    static const char *const speed[] = {"tokens_per_second"}, *const speed_name[] = {"tokens/s"};
    static const char *const gaps[] = {"gap_p50", "gap_p95", "gap_p99"};
    static const char *const firsts[] = {"first_p50", "first_p95"};
    static const char *const shares[] = {"p50", "p95", "p99"};
    plot_page(out, "fletch bench --mode serve");
    fputs("<h1>", out);
    plot_text(out, get_text(doc, "model"));
    fprintf(out, "</h1>\n<p>%.10s, ", get_text(doc, "date"));
    plot_text(out, get_text(doc, "processor"));
    fputs(". Backend ", out);
    plot_text(out, get_text(doc, "backend"));
    fprintf(out,
            ". Prompts have %.0f tokens and share their first half; answers have %.0f "
            "tokens; %.0f %% of the prompt tokens were cached. Times are in ms.</p>\n",
            get_real(doc, "prompt"), get_real(doc, "answer"), 100 * get_real(doc, "reused"));
    put_rows(out, doc);
    fputs("<div class=\"plots\">\n", out);
    plot_lines(out, doc, "Throughput", "tokens/s", 1, speed, speed_name, 1, 3);
    plot_lines(out, doc, "Time between tokens", "ms", 1e3, gaps, shares, 3, 0);
    plot_lines(out, doc, "Time to the first token", "ms", 1e3, firsts, shares, 2, 0);
    fputs("</div>\n</html>\n", out);
}
