/* The man page, from the same tables that parse command lines. `fletch man` prints it; the result
 * is committed as docs/fletch.1. */
#include "app.h"

#include <string.h>

/* Text for roff: a backslash and a hyphen are not what they seem, nor is a leading dot or quote. */
static void put(const char *s)
{
    if (*s == '.' || *s == '\'') fputs("\\&", stdout);
    for (; *s; s++) {
        if (*s == '-')
            fputs("\\-", stdout);
        else if (*s == '\\')
            fputs("\\e", stdout);
        else
            putchar(*s);
    }
}

static void put_option(const struct opt *o)
{
    fputs(".TP\n", stdout);
    fputs("\\fB", stdout);
    if (o->letter) printf("\\-%c\\fR, \\fB", o->letter);
    fputs("\\-\\-", stdout);
    put(o->name);
    fputs("\\fR", stdout);
    if (o->arg) {
        fputs(" \\fI", stdout);
        put(o->arg);
        fputs("\\fR", stdout);
    }
    putchar('\n');
    put(o->help);
    if (o->def) {
        fputs(" (default ", stdout);
        put(o->def);
        putchar(')');
    }
    putchar('\n');
}

static void put_options(const struct opt_group *g)
{
    for (size_t i = 0; i < g->n; i++) put_option(&g->opts[i]);
}

/* A command with its own options; the groups it shares are named and come later. */
static void put_command(const struct command *c)
{
    fputs(".SS \"fletch ", stdout);
    put(c->name);
    if (*c->operands) putchar(' ');
    put(c->operands);
    fputs(" [options]\"\n", stdout);
    put(c->about);
    putchar('\n');
    for (const struct opt_group *const *g = c->groups; *g; g++)
        if (!(*g)->title) put_options(*g);
    fputs(".PP\nAlso takes:", stdout);
    for (const struct opt_group *const *g = c->groups; *g; g++)
        if ((*g)->title) {
            fputs(" \\(lq", stdout);
            put((*g)->title);
            fputs(g[1] ? "\\(rq," : "\\(rq.\n", stdout);
        }
}

/* Each shared group once, where it is first used. */
static void put_shared(const struct command *const *commands, size_t n)
{
    const struct opt_group *seen[16];
    size_t n_seen = 0;
    for (size_t i = 0; i < n; i++)
        for (const struct opt_group *const *g = commands[i]->groups; *g; g++) {
            bool old = !(*g)->title || n_seen == sizeof seen / sizeof *seen;
            for (size_t k = 0; k < n_seen; k++) old = old || seen[k] == *g;
            if (old) continue;
            seen[n_seen++] = *g;
            printf(".SS \"%s\"\n", (*g)->title);
            put_options(*g);
        }
}

void man_print(const struct command *const *commands, size_t n)
{
    puts(".\\\" Made by `fletch man` from the tables in app/; don't edit.\n"
         ".TH FLETCH 1 \"\" \"fletch " FLETCH_VERSION "\" \"User Commands\"\n"
         ".SH NAME\nfletch \\- run language models on your own machine\n"
         ".SH SYNOPSIS");
    for (size_t i = 0; i < n; i++) {
        printf(".B fletch ");
        put(commands[i]->name);
        fputs("\n", stdout);
        if (*commands[i]->operands) {
            put(commands[i]->operands);
            putchar('\n');
        }
        puts("[options]\n.br");
    }
    puts(".B fletch help\n[COMMAND]\n.br\n.B fletch completion\nbash|zsh|fish\n.br\n"
         ".B fletch \\-\\-version\n"
         ".SH DESCRIPTION\n"
         "fletch runs language models from GGUF files and Hugging Face directories.\n"
         "The answer goes to stdout, everything else to stderr.\n"
         "Reports are tables, or JSON with \\fB\\-\\-json\\fR.\n"
         ".SH COMMANDS");
    for (size_t i = 0; i < n; i++) put_command(commands[i]);
    puts(".SH SHARED OPTIONS");
    put_shared(commands, n);
    puts(".SH EXIT STATUS\n"
         ".TP\n0\nsuccess\n"
         ".TP\n1\nfailure; one line on stderr says what failed\n"
         ".TP\n2\ninvalid command line\n"
         ".TP\n3\nthe model does not fit in memory; the plan is printed\n"
         ".TP\n4\nthe model file is damaged or not supported\n"
         ".SH ENVIRONMENT\n"
         ".TP\nXDG_DATA_HOME, XDG_CACHE_HOME, XDG_STATE_HOME\n"
         "base folders of the files below\n"
         ".TP\nHF_ENDPOINT, HF_TOKEN, HF_TOKEN_PATH, HF_HOME\n"
         "Hugging Face server, token and folders; same meaning as in Hugging Face's own tools\n"
         ".TP\nhttps_proxy, http_proxy, no_proxy\n"
         "proxies for downloads\n"
         ".TP\nNO_COLOR\nif set, output has no colours and no dim or bold text\n"
         ".TP\nTERM\nif unset or \\(lqdumb\\(rq, output has no escape sequences\n"
         ".SH FILES\n"
         ".TP\n~/.local/share/fletch/models/OWNER/REPO/\n"
         "models downloaded by \\fBfletch pull\\fR; FILE.part is an interrupted download\n"
         ".TP\n~/.cache/fletch/\n"
         "results of \\fBfletch tune\\fR\n"
         ".TP\n~/.local/state/fletch/chat_history\n"
         "lines typed in \\fBfletch chat\\fR, readable by their owner only\n"
         ".TP\n~/.cache/huggingface/, ~/.cache/llama.cpp/, ~/.ollama/models/\n"
         "models of other programs, which fletch lists and reads but never changes\n"
         ".SH EXAMPLES\n.nf\n"
         "fletch run \\-p \"Once upon a time\" \\-n 64\n"
         "fletch run model.gguf \"Explain this error\" < error.log\n"
         "fletch chat model.gguf \\-\\-system \"Be brief.\"\n"
         "fletch convert ./Qwen3\\-0.6B \\-o qwen3.gguf \\-\\-type q8_0\n"
         "fletch eval qwen3.gguf \\-f book.txt\n"
         ".fi\n"
         ".SH SEE ALSO\n"
         "README.md and the folder docs of the source: server.md (endpoints, limits, metrics),\n"
         "formats.md (file formats and types), grammar.md (JSON schemas and grammars).\n"
         ".PP\n"
         ".BR curl (1),\n.BR jq (1)");
}
