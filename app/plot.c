#include "plot.h"

#include <math.h>

static const char style[] =
    ":root{color-scheme:light dark;--bg:#fcfcfb;--fg:#1c2024;--dim:#687076;--line:#d7dbdf;"
    "--c0:#0b68cb;--c1:#c2410c;--c2:#15803d;--c3:#8e4ec6;--c4:#b7791f;--c5:#0e7c86}\n"
    "@media(prefers-color-scheme:dark){:root{--bg:#151718;--fg:#ecedee;--dim:#9ba1a6;"
    "--line:#33383c;--c0:#52a9ff;--c1:#ff8b3e;--c2:#4cc38a;--c3:#bf7af0;--c4:#f0c000;"
    "--c5:#3dd3e0}}\n"
    "body{margin:2rem auto;max-width:64rem;padding:0 1rem;background:var(--bg);color:var(--fg);"
    "font:15px/1.5 system-ui,sans-serif}\n"
    "h1{font-size:1.4rem;margin:0}h2{font-size:1rem;margin:2rem 0 .3rem}p,.dim{color:var(--dim)}\n"
    ".wide{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums}"
    "td,th{padding:.25rem .7rem;text-align:right;border-bottom:1px solid var(--line);"
    "white-space:nowrap}th{font-weight:600;color:var(--dim)}td:first-child,th:first-child"
    "{text-align:left;padding-left:0}\n"
    ".plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(26rem,100%),1fr));"
    "gap:0 2rem}svg{width:100%;height:auto}svg text{fill:var(--dim);font:11px "
    "system-ui,sans-serif}"
    ".axis{stroke:var(--line);fill:none}.mark{stroke-width:2;fill:none}"
    ".s0{stroke:var(--c0)}.s1{stroke:var(--c1)}.s2{stroke:var(--c2)}.s3{stroke:var(--c3)}"
    ".s4{stroke:var(--c4)}.s5{stroke:var(--c5)}.s6{stroke:var(--dim)}.f6{fill:var(--dim)"
    "!important}.b6{background:var(--dim)}.f0{fill:var(--c0)!important}"
    ".f1{fill:var(--c1)!important}.f2{fill:var(--c2)!important}.f3{fill:var(--c3)!important}"
    ".f4{fill:var(--c4)!important}.f5{fill:var(--c5)!important}.b0{background:var(--c0)}"
    ".b1{background:var(--c1)}.b2{background:var(--c2)}.b3{background:var(--c3)}"
    ".b4{background:var(--c4)}.b5{background:var(--c5)}.key{font-size:12px;color:var(--dim);"
    "display:flex;flex-wrap:wrap;gap:.2rem 1rem;padding-left:3rem}.key i{display:inline-block;"
    "width:.7em;height:.7em;border-radius:2px;margin-right:.4em}\n"
    ".cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(13rem,1fr));gap:1rem;"
    "margin:1.2rem 0}.card{border:1px solid var(--line);border-radius:8px;padding:.7rem 1rem;"
    "color:var(--dim);font-size:13px}.card b{display:block;font-size:1.7rem;color:var(--fg);"
    "font-variant-numeric:tabular-nums}.bar{height:6px;border-radius:3px;background:var(--line);"
    "margin-top:.5rem}.bar i{display:block;height:100%;border-radius:3px;background:var(--c0)}\n"
    "@media(max-width:32rem){body{margin-top:1rem}svg text{font-size:14px}.key{padding-left:0}"
    ".card b{font-size:1.4rem}.cards{grid-template-columns:repeat(auto-fit,minmax(9rem,1fr))}}\n";

void plot_text(FILE *out, const char *s)
{
    for (; *s; s++) switch (*s) {
        case '<': fputs("&lt;", out); break;
        case '>': fputs("&gt;", out); break;
        case '&': fputs("&amp;", out); break;
        case '"': fputs("&quot;", out); break;
        default: fputc(*s, out);
        }
}

/* ---- a plot: axes from 1-2-5 steps or decades, lines, points ---- */

static double part_of(const struct scale *s, double v)
{
    if (s->log) return log(v / s->min) / log(s->max / s->min);
    return (v - s->min) / (s->max - s->min);
}

double plot_x(const struct plot *p, double v)
{
    return (double)LEFT + part_of(&p->x, v) * (double)(WIDTH - LEFT - RIGHT);
}

double plot_y(const struct plot *p, double v)
{
    return HEIGHT - BOTTOM - part_of(&p->y, v) * (HEIGHT - TOP - BOTTOM);
}

/* The next mark of an axis after v, or its first when v is below the start. */
static double next_mark(const struct scale *s, double v, double step)
{
    if (s->log) return v < s->min ? pow(10, ceil(log10(s->min) - 1e-9)) : v * 10;
    return v < s->min ? ceil(s->min / step - 1e-9) * step + 0.0 : v + step; /* + 0: no -0 */
}

static double step_of(const struct scale *s)
{
    double raw = (s->max - s->min) / 5, unit = pow(10, floor(log10(raw))), f = raw / unit;
    return unit * (f < 1.5 ? 1 : f < 3.5 ? 2 : f < 7.5 ? 5 : 10);
}

void plot_begin(struct plot *p, FILE *out, struct scale x, struct scale y, const char *title,
                const char *x_name, const char *y_name)
{
    *p = (struct plot){.out = out, .x = x, .y = y};
    double step = step_of(&x);
    fprintf(out, "<div><h2>%s</h2><svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s\">",
            title, WIDTH, HEIGHT, title);
    for (double v = next_mark(&x, x.min - 1, step); v <= x.max * 1.0001; v = next_mark(&x, v, step))
        fprintf(out,
                "<path class=\"axis\" d=\"M%.1f %dV%d\"/><text x=\"%.1f\" y=\"%d\" "
                "text-anchor=\"middle\">%g</text>",
                plot_x(p, v), TOP, HEIGHT - BOTTOM, plot_x(p, v), HEIGHT - BOTTOM + 14, v);
    step = step_of(&y);
    for (double v = next_mark(&y, y.min - 1, step); v <= y.max * 1.0001; v = next_mark(&y, v, step))
        fprintf(out,
                "<path class=\"axis\" d=\"M%d %.1fH%d\"/><text x=\"%d\" y=\"%.1f\" "
                "text-anchor=\"end\">%g</text>",
                LEFT, plot_y(p, v), WIDTH - RIGHT, LEFT - 6, plot_y(p, v) + 4, v);
    fprintf(out,
            "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text><text x=\"4\" y=\"11\">%s</text>",
            WIDTH - RIGHT, HEIGHT - 8, x_name, y_name);
}

void plot_key(struct plot *p, int colour, const char *name)
{
    for (int i = 0; i < p->n_keys; i++)
        if (p->keys[i].colour == colour) return;
    if (p->n_keys == sizeof p->keys / sizeof *p->keys) return;
    struct plot_key *key = &p->keys[p->n_keys++];
    key->colour = colour;
    snprintf(key->name, sizeof key->name, "%s", name);
}

void plot_end(struct plot *p)
{
    fputs("</svg><div class=\"key\">", p->out);
    for (int i = 0; i < p->n_keys; i++)
        fprintf(p->out, "<span><i class=\"b%d\"></i>%s</span>", p->keys[i].colour, p->keys[i].name);
    fputs("</div></div>\n", p->out);
}

void plot_page(FILE *out, const char *title)
{
    fprintf(out,
            "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" "
            "content=\"width=device-width\"><title>%s</title><style>%s</style>\n",
            title, style);
}
