/* fletch, the command: finds the subcommand and hands it its parsed arguments. */
#include "app.h"

#include <stdlib.h>
#include <string.h>

static const struct command *const commands[] = {
    &cmd_run,      &cmd_chat,  &cmd_serve,  &cmd_batch,   &cmd_pull,     &cmd_list,
    &cmd_rm,       &cmd_ps,    &cmd_cache,  &cmd_convert, &cmd_inspect,  &cmd_plan,
    &cmd_explain,  &cmd_synth, &cmd_embed,  &cmd_rerank,  &cmd_tokenize, &cmd_detokenize,
    &cmd_template, &cmd_eval,  &cmd_verify, &cmd_bench,   &cmd_tune,     &cmd_doctor,
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

/* The groups of the overview, each with the command that it begins with. */
static const struct group {
    const struct command *first;
    const char *title;
} groups[] = {
    {&cmd_run, "Run a model"},        {&cmd_pull, "Get models"},
    {&cmd_convert, "Model files"},    {&cmd_embed, "Text, tokens and vectors"},
    {&cmd_eval, "Check and measure"},
};
enum { N_GROUPS = sizeof groups / sizeof *groups };

/* Words that people bring from other programs. */
static const struct word {
    const char *word;
    const struct command *command;
    bool works; /* as the command; otherwise the command is only suggested */
} words[] = {
    {"show", &cmd_inspect, true},      {"ls", &cmd_list, true},
    {"models", &cmd_list, false},      {"download", &cmd_pull, false},
    {"get", &cmd_pull, false},         {"quantize", &cmd_convert, false},
    {"load", &cmd_run, false},         {"status", &cmd_ps, false},
    {"server", &cmd_serve, false},     {"import", &cmd_convert, false},
    {"quantise", &cmd_convert, false}, {"generate", &cmd_run, false},
    {"complete", &cmd_run, false},     {"embeddings", &cmd_embed, false},
    {"rank", &cmd_rerank, false},      {"start", &cmd_serve, false},
    {"remove", &cmd_rm, false},        {"delete", &cmd_rm, false},
    {"info", &cmd_inspect, false},     {"perplexity", &cmd_eval, false},
    {"benchmark", &cmd_bench, false},  {"device", &cmd_doctor, false},
};
enum { N_WORDS = sizeof words / sizeof *words };

static void print_overview(FILE *out)
{
    fputs("usage: fletch COMMAND [options]\n\nRuns language models on your own machine.\n", out);
    for (size_t i = 0; i < N_COMMANDS; i++) {
        for (size_t k = 0; k < N_GROUPS; k++)
            if (groups[k].first == commands[i]) fprintf(out, "\n%s:\n", groups[k].title);
        fprintf(out, "  %-12s", commands[i]->name);
        say_wrapped(out, commands[i]->summary, 14, 14);
    }
    fputs("\nExamples:\n  fletch run -p \"Once upon a time\"   ", out);
    say_wrapped(out, "the built-in model tells a story", 37, 37);
    fputs("  fletch chat model.gguf             ", out);
    say_wrapped(out, "chat with your own model", 37, 37);
    putc('\n', out);
    say_wrapped(out, "Run \"fletch completion bash\" (or zsh, fish) for a shell completion script.",
                0, 0);
    say_wrapped(out,
                "Run \"fletch help COMMAND\" for details and \"fletch --version\" for the version.",
                0, 0);
}

static const struct command *find_command(const char *name)
{
    struct near near = {.word = name};
    for (size_t i = 0; i < N_COMMANDS; i++) {
        if (strcmp(commands[i]->name, name) == 0) return commands[i];
        near_consider(&near, commands[i]->name);
    }
    for (size_t i = 0; i < N_WORDS; i++) {
        if (strcmp(words[i].word, name) != 0) continue;
        if (words[i].works) return words[i].command;
        near.best = words[i].command->name;
    }
    if (near.best)
        opts_wrong("", "unknown command %s (did you mean %s?)", QUOTE(name), near.best);
    else
        opts_wrong("", "unknown command %s", QUOTE(name));
    return NULL;
}

static int help(int argc, char **argv)
{
    if (argc > 2) return opts_wrong("", "help takes at most one command");
    if (argc == 2 && strcmp(argv[1], "completion") == 0) {
        puts("usage: fletch completion bash|zsh|fish\n\nPrints a script that completes fletch "
             "commands and options in this shell.");
        return EXIT_OK;
    }
    const struct command *cmd = argc == 2 ? find_command(argv[1]) : NULL;
    if (argc == 2 && !cmd) return EXIT_USAGE;
    if (cmd)
        opts_print_help(cmd);
    else
        print_overview(stdout);
    return EXIT_OK;
}

static int find_model(const char *operand, char **path, const struct args *a)
{
    int code = models_resolve(operand, path);
    return code ? code : models_get(operand, path, a);
}

/* A MODEL may be the name of one that was pulled. Where it may be left out, a lone operand is the
 * FILE behind it. */
static int resolve_model(const struct command *cmd, struct args *a, char **path, char **draft)
{
    bool optional = cmd->operands[0] == '[';
    const char *first = cmd->operands + optional;
    int code = a->draft ? find_model(a->draft, draft, a) : EXIT_OK;
    if (*draft) a->draft = *draft;
    if (strncmp(first, "MODEL", 5) != 0 && strcmp(first, "IN") != 0 && strcmp(first, "FILE") != 0)
        return code;
    bool there = a->operands.n && (!optional || !strstr(first, "FILE") || a->operands.n > 1);
    if (!code && there) code = find_model(a->operands.p[0], path, a);
    if (*path) a->operands.p[0] = *path;
    return code;
}

static int run_command(int argc, char **argv)
{
    const struct command *cmd = find_command(argv[0]);
    if (!cmd) return EXIT_USAGE;
    struct args a = {0};
    int code = opts_parse(cmd, argc, argv, &a);
    char *path = NULL, *draft = NULL;
    if (!code && !a.help) code = resolve_model(cmd, &a, &path, &draft);
    if (!code && a.help)
        opts_print_help(cmd);
    else if (!code)
        code = cmd->run(&a);
    opts_free(cmd, &a);
    free(path);
    free(draft);
    return code;
}

int main(int argc, char **argv)
{
    int code = EXIT_OK;
    const char *word = argc > 1 ? argv[1] : "";
    if (argc < 2) {
        print_overview(stderr);
        code = EXIT_USAGE;
    } else if (strcmp(word, "--version") == 0 || strcmp(word, "-v") == 0 ||
               strcmp(word, "version") == 0)
        puts(fletch_version());
    else if (strcmp(word, "help") == 0 || strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)
        code = help(argc - 1, argv + 1);
    else if (strcmp(word, "man") == 0)
        man_print(commands, N_COMMANDS);
    else if (strcmp(word, "completion") == 0)
        code = completion_print(argv[2], commands, N_COMMANDS);
    else
        code = run_command(argc - 1, argv + 1);
    return finish_stdout(code);
}
