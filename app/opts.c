/* Parses command lines by the tables of opts.h and prints help from them. Strict: anything that is
 * not understood as a whole is an error, because a mistyped flag that is ignored costs more. */
#include "opts.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "app.h"

static const struct opt common_opts[] = {
    {'q', "quiet", OPT_FLAG, NULL, NULL, "print only errors to stderr", OPT_FIELD(quiet), 0, 0},
    {'h', "help", OPT_FLAG, NULL, NULL, "print this help and exit", OPT_FIELD(help), 0, 0},
};
const struct opt_group opts_common = {"Common options", OPT_TABLE(common_opts)};

int opts_wrong(const char *command, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fprintf(stderr, "fletch%s%s: ", *command ? " " : "", command);
    vfprintf(stderr, fmt, ap);
    fprintf(stderr, "; see fletch help%s%s\n", *command ? " " : "", command);
    va_end(ap);
    return EXIT_USAGE;
}

bool parse_count(const char *s, uint64_t *v)
{
    *v = 0;
    for (const char *p = s; *p; p++) {
        if (*p < '0' || *p > '9') return false;
        uint64_t digit = (uint64_t)(*p - '0');
        if (*v > (UINT64_MAX - digit) / 10) return false;
        *v = *v * 10 + digit;
    }
    return *s != 0;
}

bool parse_real(const char *s, double *v)
{
    char *end;
    if (!*s || strspn(s, "+-.0123456789eE") != strlen(s)) return false; /* no hex, no "nan" */
    *v = strtod(s, &end);
    return !*end && isfinite(*v);
}

bool parse_size(const char *s, uint64_t *v)
{
    static const char units[] = "KMGT";
    char digits[32];
    size_t n = strspn(s, "0123456789.");
    double value, scale = 1;
    if (!n || n >= sizeof digits) return false;
    memcpy(digits, s, n);
    digits[n] = 0;
    if (s[n]) {
        const char *unit = strchr(units, s[n]);
        if (!unit || (s[n + 1] && strcmp(s + n + 1, "iB") != 0)) return false;
        scale = ldexp(1, 10 * (int)(unit - units + 1));
    }
    if (!parse_real(digits, &value) || value * scale >= ldexp(1, 63)) return false;
    *v = (uint64_t)(value * scale);
    return true;
}

/* Edit distance where a swap of neighbours counts once. Words longer than the rows are far. */
static size_t distance(const char *a, const char *b)
{
    enum { MAX = 32 };
    size_t d[MAX + 1][MAX + 1], n = strlen(a), m = strlen(b);
    if (n > MAX || m > MAX) return MAX;
    for (size_t i = 0; i <= n; i++) d[i][0] = i;
    for (size_t j = 0; j <= m; j++) d[0][j] = j;
    for (size_t i = 1; i <= n; i++)
        for (size_t j = 1; j <= m; j++) {
            size_t best = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            if (d[i - 1][j] + 1 < best) best = d[i - 1][j] + 1;
            if (d[i][j - 1] + 1 < best) best = d[i][j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                d[i - 2][j - 2] + 1 < best)
                best = d[i - 2][j - 2] + 1;
            d[i][j] = best;
        }
    return d[n][m];
}

void near_consider(struct near *near, const char *candidate)
{
    size_t n = strlen(near->word), d = distance(near->word, candidate);
    if (n > 1 && strncmp(candidate, near->word, n) == 0) d = 1; /* "tok" means tokenize */
    if (d > 2 || d >= strlen(candidate) || (near->best && d >= near->distance)) return;
    near->best = candidate;
    near->distance = d;
}

/* ---- parsing ---- */

struct parser {
    const struct command *cmd;
    struct args *args;
};

static void *field_of(struct args *a, const struct opt *o)
{
    return (char *)a + o->field;
}

static const struct opt *find(const struct command *cmd, char letter, const char *name, size_t n)
{
    for (const struct opt_group *const *g = cmd->groups; *g; g++)
        for (size_t i = 0; i < (*g)->n; i++) {
            const struct opt *o = &(*g)->opts[i];
            if (name ? strlen(o->name) == n && memcmp(o->name, name, n) == 0 : o->letter == letter)
                return o;
        }
    return NULL;
}

/* In any case: people write types in capitals. */
static bool is_choice(const char *words, const char *value)
{
    size_t n = strlen(value);
    for (const char *w = words;; w++) {
        size_t len = strcspn(w, "|");
        if (len == n && strncasecmp(w, value, n) == 0) return true;
        w += len;
        if (!*w) return false;
    }
}

static bool in_range(const struct opt *o, double v)
{
    return (o->min == 0 && o->max == 0) || (v >= o->min && v <= o->max);
}

/* A number at most, where -1 means no limit, as in other programs. The field is then 0. */
static bool is_limit(const struct opt *o)
{
    return o->kind == OPT_COUNT && o->min < 0;
}

static int wants(const struct parser *p, const struct opt *o, const char *what, const char *value)
{
    char range[64] = "";
    if (o->min != 0 || o->max != 0)
        snprintf(range, sizeof range, " from %.10g to %.10g%s",
                 o->min < 0 && is_limit(o) ? 1 : o->min, o->max,
                 is_limit(o) ? ", or -1 for no limit" : "");
    return opts_wrong(p->cmd->name, "--%s takes %s%s, not %s", o->name, what, range, QUOTE(value));
}

static int store(struct parser *p, const struct opt *o, const char *value)
{
    void *field = field_of(p->args, o);
    struct opt_count *count = field;
    struct opt_real *real = field;
    struct opt_texts *texts = field;
    switch (o->kind) {
    case OPT_FLAG: *(bool *)field = true; break;
    case OPT_TEXT: *(const char **)field = value; break;
    case OPT_TEXTS:
        if (!*value) return wants(p, o, o->arg, value);
        texts->p[texts->n++] = value;
        break;
    case OPT_CHOICE:
        if (!is_choice(o->arg, value)) return wants(p, o, o->arg, value);
        *(const char **)field = value;
        break;
    case OPT_COUNT:
        count->v = 0;
        if (!(is_limit(o) && strcmp(value, "-1") == 0) &&
            (!parse_count(value, &count->v) || !in_range(o, (double)count->v) ||
             (is_limit(o) && !count->v)))
            return wants(p, o, "a whole number", value);
        count->set = true;
        break;
    case OPT_REAL:
        if (!parse_real(value, &real->v) || !in_range(o, real->v))
            return wants(p, o, "a number", value);
        real->set = true;
        break;
    case OPT_SIZE:
        if (!parse_size(value, &count->v)) return wants(p, o, "a size such as 512M or 4G", value);
        count->set = true;
        break;
    }
    return 0;
}

/* A value of the command line. Choices are stored in the small letters that the tables have. */
static int take(struct parser *p, const struct opt *o, char *value)
{
    if (o->kind == OPT_CHOICE && is_choice(o->arg, value))
        for (char *c = value; *c; c++) *c = (char)tolower((unsigned char)*c);
    return store(p, o, value);
}

/* Defaults go through the same parser; then nothing counts as set. */
static int start(struct parser *p, int argc)
{
    p->args->operands.p = need(calloc((size_t)argc, sizeof(char *)));
    for (const struct opt_group *const *g = p->cmd->groups; *g; g++)
        for (size_t i = 0; i < (*g)->n; i++) {
            const struct opt *o = &(*g)->opts[i];
            if (o->kind == OPT_TEXTS) {
                struct opt_texts *texts = field_of(p->args, o);
                texts->p = need(calloc((size_t)argc, sizeof(char *)));
            } else if (o->def) {
                int rc = store(p, o, o->def);
                if (rc) return rc;
                if (o->kind == OPT_COUNT || o->kind == OPT_SIZE)
                    ((struct opt_count *)field_of(p->args, o))->set = false;
                if (o->kind == OPT_REAL) ((struct opt_real *)field_of(p->args, o))->set = false;
            }
        }
    return 0;
}

/* Options of other programs, and ours for the same thing. */
static const struct synonym {
    const char *word, *ours;
    bool works; /* as our option; otherwise that is only suggested */
} synonyms[] = {
    {"temperature", "temp", false},
    {"ctx-size", "context", false},
    {"num-ctx", "context", false},
    {"max-model-len", "context", false},
    {"n-predict", "max-tokens", true},
    {"num-predict", "max-tokens", false},
    {"max-new-tokens", "max-tokens", false},
    {"system-prompt", "system", false},
    {"repetition-penalty", "repeat-penalty", false},
    {"quantization", "type", false},
    {"outtype", "type", false},
    {"outfile", "output", false},
    {"cache-type-k", "kv-type", false},
    {"kv-cache-dtype", "kv-type", false},
    {"model-draft", "draft", false},
    {"chat-template-file", "template", false},
    {"n-parallel", "parallel", false},
    {"cache-size", "cache-disk", true},
};

static const struct synonym *synonym_of(const struct command *cmd, const char *name, size_t n)
{
    for (size_t i = 0; i < sizeof synonyms / sizeof *synonyms; i++) {
        const struct synonym *s = &synonyms[i];
        if (strlen(s->word) == n && memcmp(s->word, name, n) == 0 &&
            find(cmd, 0, s->ours, strlen(s->ours)))
            return s;
    }
    return NULL;
}

static int unknown(const struct parser *p, const char *arg, size_t n)
{
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)(n < sizeof name ? n : sizeof name - 1), arg + 2);
    const struct synonym *synonym = synonym_of(p->cmd, name, strlen(name));
    struct near near = {.word = name, .best = synonym ? synonym->ours : NULL};
    for (const struct opt_group *const *g = p->cmd->groups; *g; g++)
        for (size_t i = 0; i < (*g)->n; i++) near_consider(&near, (*g)->opts[i].name);
    if (near.best)
        return opts_wrong(p->cmd->name, "unknown option %s (did you mean --%s?)", QUOTE(arg),
                          near.best);
    return opts_wrong(p->cmd->name, "unknown option %s", QUOTE(arg));
}

/* --name, --name VALUE or --name=VALUE. Returns 0 or an exit code; *i moves over a value. */
static int parse_long(struct parser *p, int argc, char **argv, int *i)
{
    char *arg = argv[*i], *name = arg + 2, *equals = strchr(name, '=');
    size_t n = equals ? (size_t)(equals - name) : strlen(name);
    const struct synonym *synonym = synonym_of(p->cmd, name, n);
    const struct opt *o = synonym && synonym->works
                              ? find(p->cmd, 0, synonym->ours, strlen(synonym->ours))
                              : find(p->cmd, 0, name, n);
    if (!o) return unknown(p, arg, n);
    if (o->kind == OPT_FLAG) {
        if (equals) return opts_wrong(p->cmd->name, "--%s takes no value", o->name);
        return store(p, o, NULL);
    }
    if (equals) return take(p, o, equals + 1);
    if (*i + 1 >= argc)
        return opts_wrong(p->cmd->name, "--%s needs a value: --%s %s", o->name, o->name, o->arg);
    return take(p, o, argv[++*i]);
}

/* Words after one dash that llama.cpp has; here they would be letters with a value. */
static const char *const dashed[][2] = {
    {"-hf", "model"},   {"-md", "draft"},    {"-ctk", "kv-type"}, {"-ctv", "kv-type"},
    {"-cnv", "chat"},   {"-sys", "system"},  {"-ngl", "backend"}, {"-np", "parallel"},
    {"-dev", "device"}, {"-sysf", "system"}, {"-mg", "device"},
};

static const char *dashed_of(const struct command *cmd, const char *arg)
{
    for (size_t i = 0; i < sizeof dashed / sizeof *dashed; i++) {
        const char *ours = dashed[i][1];
        if (strcmp(dashed[i][0], arg) == 0 && find(cmd, 0, ours, strlen(ours))) return ours;
    }
    return NULL;
}

/* -q, -qv, -n VALUE or -nVALUE. */
static int parse_short(struct parser *p, int argc, char **argv, int *i)
{
    const char *ours = dashed_of(p->cmd, argv[*i]);
    if (ours)
        return opts_wrong(p->cmd->name, "unknown option %s (did you mean --%s?)", QUOTE(argv[*i]),
                          ours);
    for (char *c = argv[*i] + 1; *c; c++) {
        const struct opt *o = find(p->cmd, *c, NULL, 0);
        if (!o) return opts_wrong(p->cmd->name, "unknown option %s", QUOTE(argv[*i]));
        if (o->kind != OPT_FLAG) {
            if (c[1]) return take(p, o, c + 1);
            if (*i + 1 >= argc)
                return opts_wrong(p->cmd->name, "-%c needs a value: -%c %s", *c, *c, o->arg);
            return take(p, o, argv[++*i]);
        }
        store(p, o, NULL);
    }
    return 0;
}

/* Says which of the operands that must be there is not. */
static int missing(const struct command *cmd, size_t n_given)
{
    const char *word = cmd->operands;
    for (;; word += strspn(word, " ")) {
        if (*word != '[' && !n_given--) break;
        word += strcspn(word, " ");
    }
    fprintf(stderr, "fletch %s: missing argument %.*s; usage: fletch %s %s\n", cmd->name,
            (int)strcspn(word, " "), word, cmd->name, cmd->operands);
    return EXIT_USAGE;
}

int opts_parse(const struct command *cmd, int argc, char **argv, struct args *a)
{
    struct parser p = {cmd, a};
    struct opt_texts *operands = &a->operands;
    bool only_operands = false;
    int rc = start(&p, argc);
    for (int i = 1; i < argc && !rc; i++) {
        const char *arg = argv[i];
        if (only_operands || arg[0] != '-' || !arg[1])
            operands->p[operands->n++] = arg;
        else if (strcmp(arg, "--") == 0)
            only_operands = true;
        else
            rc = arg[1] == '-' ? parse_long(&p, argc, argv, &i) : parse_short(&p, argc, argv, &i);
    }
    if (rc || a->help) return rc;
    if (a->model) { /* -m MODEL is the operand by another name */
        memmove(operands->p + 1, operands->p, operands->n++ * sizeof *operands->p);
        operands->p[0] = a->model;
    }
    size_t n_optional = a->model && cmd->operands[0] == '[';
    if (operands->n < cmd->min_operands + n_optional) return missing(cmd, operands->n - n_optional);
    if (operands->n > cmd->max_operands)
        return opts_wrong(cmd->name, "unexpected argument %s",
                          QUOTE(operands->p[cmd->max_operands]));
    return 0;
}

void opts_free(const struct command *cmd, struct args *a)
{
    free(a->operands.p);
    for (const struct opt_group *const *g = cmd->groups; *g; g++)
        for (size_t i = 0; i < (*g)->n; i++)
            if ((*g)->opts[i].kind == OPT_TEXTS)
                free(((struct opt_texts *)field_of(a, &(*g)->opts[i]))->p);
}

/* ---- help ---- */

void opts_print_name(FILE *out, const struct opt *o)
{
    if (o->letter)
        fprintf(out, "-%c, ", o->letter);
    else
        fputs("    ", out);
    fprintf(out, "--%s%s%s", o->name, o->arg ? " " : "", o->arg ? o->arg : "");
}

static void print_group(const struct opt_group *g)
{
    enum { HELP_COLUMN = 30 };
    printf("\n%s:\n", g->title ? g->title : "Options");
    for (size_t i = 0; i < g->n; i++) {
        const struct opt *o = &g->opts[i];
        char help[600];
        size_t width = 8 + strlen(o->name) + (o->arg ? strlen(o->arg) + 1 : 0);
        fputs("  ", stdout);
        opts_print_name(stdout, o);
        if (width >= HELP_COLUMN)
            printf("\n%*s", HELP_COLUMN, "");
        else
            printf("%*s", (int)(HELP_COLUMN - width), "");
        snprintf(help, sizeof help, o->def ? "%s (default %s)" : "%s", o->help, o->def);
        say_wrapped(stdout, help, HELP_COLUMN, HELP_COLUMN);
    }
}

void opts_print_help(const struct command *cmd)
{
    printf("usage: fletch %s %s%s[options]\n\n", cmd->name, cmd->operands,
           *cmd->operands ? " " : "");
    say_wrapped(stdout, cmd->about, 0, 0);
    for (const struct opt_group *const *g = cmd->groups; *g; g++) print_group(*g);
}
