/* fletch, the command: finds the subcommand and hands it its parsed arguments. */
#include "app.h"

#include <stdlib.h>
#include <string.h>

static const struct command *const commands[] = {
    &cmd_run,      &cmd_chat,    &cmd_serve,   &cmd_batch,    &cmd_eval,
    &cmd_inspect,  &cmd_explain, &cmd_plan,    &cmd_tokenize, &cmd_detokenize,
    &cmd_template, &cmd_verify,  &cmd_convert, &cmd_synth,    &cmd_bench,
    &cmd_tune,     &cmd_doctor,  &cmd_pull,    &cmd_list,     &cmd_rm,
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

static void print_overview(FILE *out)
{
    fputs("usage: fletch COMMAND [options]\n\nRuns language models on your own machine.\n\n", out);
    for (size_t i = 0; i < N_COMMANDS; i++)
        fprintf(out, "  %-12s%s\n", commands[i]->name, commands[i]->summary);
    fputs("\nfletch help COMMAND tells more; fletch --version tells what this is.\n", out);
}

static const struct command *find_command(const char *name)
{
    struct near near = {.word = name};
    for (size_t i = 0; i < N_COMMANDS; i++) {
        if (strcmp(commands[i]->name, name) == 0) return commands[i];
        near_consider(&near, commands[i]->name);
    }
    if (near.best)
        opts_wrong("", "unknown command %s (did you mean %s?)", QUOTE(name), near.best);
    else
        opts_wrong("", "unknown command %s", QUOTE(name));
    return NULL;
}

static int help(int argc, char **argv)
{
    if (argc > 2) return opts_wrong("", "help takes one command");
    const struct command *cmd = argc == 2 ? find_command(argv[1]) : NULL;
    if (argc == 2 && !cmd) return EXIT_USAGE;
    if (cmd)
        opts_print_help(cmd);
    else
        print_overview(stdout);
    return EXIT_OK;
}

/* A MODEL may be the name of one that was pulled. Where it may be left out, a lone operand is the
 * FILE behind it. */
static int resolve_model(const struct command *cmd, struct args *a, char **path, char **draft)
{
    bool optional = cmd->operands[0] == '[';
    const char *first = cmd->operands + optional;
    int code = a->draft ? models_resolve(a->draft, draft) : EXIT_OK;
    if (*draft) a->draft = *draft;
    if (strncmp(first, "MODEL", 5) != 0 && strcmp(first, "IN") != 0 && strcmp(first, "FILE") != 0)
        return code;
    bool there = a->operands.n && (!optional || !strstr(first, "FILE") || a->operands.n > 1);
    if (!code && there) code = models_resolve(a->operands.p[0], path);
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
    } else if (strcmp(word, "--version") == 0)
        puts(fletch_version());
    else if (strcmp(word, "help") == 0 || strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)
        code = help(argc - 1, argv + 1);
    else if (strcmp(word, "man") == 0)
        man_print(commands, N_COMMANDS);
    else
        code = run_command(argc - 1, argv + 1);
    return finish_stdout(code);
}
