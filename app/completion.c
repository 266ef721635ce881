/* Completion scripts for shells, from the same tables that parse command lines. `fletch completion
 * SHELL` prints one; make install puts all of them where the shells look. */
#include "app.h"

#include <string.h>

/* What follows an option, or stands for an operand. */
enum value { VALUE_NONE, VALUE_WORDS, VALUE_FILE, VALUE_FOLDER, VALUE_MODEL, VALUE_OTHER };

static bool is_one_of(const char *word, size_t n, const char *const *list)
{
    for (; *list; list++)
        if (strlen(*list) == n && strncmp(*list, word, n) == 0) return true;
    return false;
}

static enum value value_named(const char *name, size_t n)
{
    static const char *const files[] = {"FILE", "OUT", NULL}, *const folders[] = {"DIR", "FOLDER",
                                                                                  NULL};
    static const char *const models[] = {"MODEL", "IN", NULL};
    return is_one_of(name, n, models)    ? VALUE_MODEL
           : is_one_of(name, n, files)   ? VALUE_FILE
           : is_one_of(name, n, folders) ? VALUE_FOLDER
                                         : VALUE_OTHER;
}

static enum value value_of(const struct opt *o)
{
    if (o->kind == OPT_FLAG) return VALUE_NONE;
    if (o->kind == OPT_CHOICE) return VALUE_WORDS;
    return value_named(o->arg, strlen(o->arg));
}

/* Of the first operand. */
static enum value operand_of(const struct command *c)
{
    const char *first = c->operands + (*c->operands == '[');
    size_t n = strcspn(first, "] ");
    if (!n) return VALUE_NONE;
    if (strcmp(c->name, "rm") == 0 || strcmp(c->name, "inspect") == 0) return VALUE_MODEL;
    return value_named(first, n);
}

struct list {
    const struct command *const *p;
    size_t n;
};

#define EACH_OPTION(c, g, o)                                          \
    for (const struct opt_group *const *g = (c)->groups; *(g); (g)++) \
        for (const struct opt *o = (*(g))->opts; o < (*(g))->opts + (*(g))->n; o++)

static const char *const words[] = {"help", "completion", NULL};
static const char *const shells[] = {"bash", "zsh", "fish", NULL};

/* The words of a choice, separated by blanks. */
static void put_choice(const char *arg)
{
    for (; *arg; arg++) putchar(*arg == '|' ? ' ' : *arg);
}

static void put_commands(const struct list *all)
{
    for (size_t i = 0; i < all->n; i++) printf("%s ", all->p[i]->name);
    for (const char *const *w = words; *w; w++) printf("%s%s", w == words ? "" : " ", *w);
}

/* ---- bash ---- */

/* "run:--file|run:-f": a pattern of options with this kind of value. False: there is none. */
static bool put_bash_pattern(const struct command *c, enum value value)
{
    bool any = false;
    EACH_OPTION(c, g, o)
    {
        if (value_of(o) != value) continue;
        printf("%s%s:--%s", any ? "|" : "    ", c->name, o->name);
        if (o->letter) printf("|%s:-%c", c->name, o->letter);
        any = true;
    }
    return any;
}

static void put_bash_values(const struct command *c)
{
    static const struct {
        enum value value;
        const char *action;
    } actions[] = {{VALUE_FILE, "_fletch_files -f"},
                   {VALUE_FOLDER, "_fletch_files -d"},
                   {VALUE_MODEL, "_fletch_models"},
                   {VALUE_OTHER, "COMPREPLY=()"}};
    EACH_OPTION(c, g, o)
    {
        if (value_of(o) != VALUE_WORDS) continue;
        printf("    %s:--%s) _fletch_words \"", c->name, o->name);
        put_choice(o->arg);
        puts("\" ;;");
    }
    for (size_t i = 0; i < sizeof actions / sizeof *actions; i++)
        if (put_bash_pattern(c, actions[i].value)) printf(") %s ;;\n", actions[i].action);
}

static void put_bash_options(const struct command *c)
{
    printf("    %s) _fletch_words \"", c->name);
    EACH_OPTION(c, g, o)
    {
        if (o->letter) printf("-%c ", o->letter);
        printf("--%s ", o->name);
    }
    puts("\" ;;");
}

static void put_bash(const struct list *all)
{
    puts("# bash completion for fletch; made by `fletch completion bash`.\n"
         "_fletch_words() { mapfile -t COMPREPLY < <(compgen -W \"$1\" -- \"$cur\"); }\n"
         "_fletch_files() { mapfile -t COMPREPLY < <(compgen \"$1\" -- \"$cur\"); }\n"
         "_fletch_models() {\n"
         "    mapfile -t COMPREPLY < <(compgen -f -- \"$cur\"\n"
         "        compgen -W \"$(\"${COMP_WORDS[0]}\" list -q 2> /dev/null | awk 'NF { print $1 "
         "}')\" "
         "-- \"$cur\")\n"
         "}\n"
         "_fletch_operand() {\n"
         "    case $command in");
    for (size_t i = 0; i < all->n; i++) {
        enum value v = operand_of(all->p[i]);
        const char *action = v == VALUE_MODEL    ? "_fletch_models"
                             : v == VALUE_FILE   ? "_fletch_files -f"
                             : v == VALUE_FOLDER ? "_fletch_files -d"
                                                 : NULL;
        if (action) printf("    %s) %s ;;\n", all->p[i]->name, action);
    }
    puts("    synth) _fletch_words \"$(\"${COMP_WORDS[0]}\" synth --list 2> /dev/null | "
         "awk '{ print $1 }')\" ;;");
    printf("    help) _fletch_words \"");
    put_commands(all);
    puts("\" ;;\n    completion) _fletch_words \"bash zsh fish\" ;;\n    esac\n}\n"
         "_fletch_option() {\n    case $command in");
    for (size_t i = 0; i < all->n; i++) put_bash_options(all->p[i]);
    puts("    esac\n}\n"
         "_fletch_value() { # of the option before it; fails where there is none\n"
         "    case $command:$previous in");
    for (size_t i = 0; i < all->n; i++) put_bash_values(all->p[i]);
    puts("    *) return 1 ;;\n"
         "    esac\n}\n"
         "_fletch() {\n"
         "    local cur previous command=${COMP_WORDS[1]} line=${COMP_LINE:0:COMP_POINT} rest i\n"
         "    cur=${line##*[[:space:]]} # whole, although bash takes words apart at : and =\n"
         "    rest=${line%\"$cur\"}\n"
         "    read -r -a i <<< \"$rest\"\n"
         "    previous=${i[-1]}\n"
         "    COMPREPLY=()");
    fputs("    if [ \"${#i[@]}\" -lt 2 ]; then\n        _fletch_words \"", stdout);
    put_commands(all);
    puts("\"\n        return\n    fi\n"
         "    case $command in show) command=inspect ;; ls) command=list ;; esac\n"
         "    _fletch_value || case $cur in -*) _fletch_option ;; *) _fletch_operand ;; esac\n"
         "    case $cur in\n"
         "    *:*) COMPREPLY=(\"${COMPREPLY[@]#\"${cur%:*}:\"}\") ;;\n"
         "    esac\n"
         "}\n"
         "complete -o filenames -F _fletch fletch");
}

/* ---- zsh ---- */

/* Inside '...[...]': no brackets or quotes that would end it. */
static void put_zsh_text(const char *s)
{
    for (; *s; s++) {
        if (*s == '\'')
            fputs("'\\''", stdout);
        else {
            if (strchr("[]\\", *s)) putchar('\\');
            putchar(*s);
        }
    }
}

static void put_zsh_value(enum value v, const char *arg)
{
    switch (v) {
    case VALUE_NONE: return;
    case VALUE_WORDS:
        fputs(":value:(", stdout);
        put_choice(arg);
        putchar(')');
        return;
    case VALUE_FILE: fputs(":file:_files", stdout); return;
    case VALUE_FOLDER: fputs(":folder:_files -/", stdout); return;
    case VALUE_MODEL: fputs(":model:_fletch_models", stdout); return;
    case VALUE_OTHER: fputs(":value: ", stdout); return;
    }
}

static void put_zsh_option(const struct opt *o)
{
    char names[100];
    snprintf(names, sizeof names, "--%s", o->name);
    fputs("            ", stdout);
    if (o->kind == OPT_TEXTS)
        fputs("'*'", stdout);
    else if (o->letter)
        printf("'(-%c %s)'", o->letter, names);
    if (o->letter)
        printf("{-%c,%s}'[", o->letter, names);
    else
        printf("%s'[", names);
    put_zsh_text(o->help);
    putchar(']');
    put_zsh_value(value_of(o), o->arg);
    puts("' \\");
}

static void put_zsh_command(const struct command *c)
{
    enum value v = operand_of(c);
    printf("    %s)\n        _arguments -s -S \\\n", c->name);
    EACH_OPTION(c, g, o) put_zsh_option(o);
    if (v == VALUE_NONE)
        puts("            && return ;;");
    else {
        fputs("            '1", stdout);
        put_zsh_value(v, NULL);
        puts("' '*:file:_files' && return ;;");
    }
}

static void put_zsh(const struct list *all)
{
    puts("#compdef fletch\n"
         "# zsh completion for fletch; made by `fletch completion zsh`.\n"
         "_fletch_models() {\n"
         "    local -a models\n"
         "    models=(${(f)\"$(fletch list -q 2> /dev/null | awk '/^ / { print $1 }')\"})\n"
         "    compadd -a models\n"
         "    _files\n"
         "}\n"
         "_fletch() {\n"
         "    local -a commands\n"
         "    commands=(");
    for (size_t i = 0; i < all->n; i++) {
        printf("        '%s:", all->p[i]->name);
        put_zsh_text(all->p[i]->summary);
        puts("'");
    }
    puts("        'help:show help for a command'\n"
         "        'completion:print a completion script'\n"
         "    )\n"
         "    if (( CURRENT == 2 )); then\n"
         "        _describe command commands\n"
         "        return\n"
         "    fi\n"
         "    local command=$words[2]\n"
         "    shift words\n"
         "    (( CURRENT-- ))\n"
         "    case $command in\n"
         "    show) command=inspect ;;\n    ls) command=list ;;\n    esac\n"
         "    case $command in");
    for (size_t i = 0; i < all->n; i++) put_zsh_command(all->p[i]);
    puts("    help) _describe command commands ;;\n"
         "    completion) compadd bash zsh fish ;;\n"
         "    esac\n"
         "}\n"
         "_fletch \"$@\"");
}

/* ---- fish ---- */

static void put_fish_text(const char *s)
{
    putchar('\'');
    for (; *s; s++) {
        if (*s == '\'' || *s == '\\') putchar('\\');
        putchar(*s);
    }
    putchar('\'');
}

static void put_fish_value(enum value v, const char *arg)
{
    switch (v) {
    case VALUE_NONE: return;
    case VALUE_WORDS:
        fputs(" -x -a '", stdout);
        put_choice(arg);
        putchar('\'');
        return;
    case VALUE_FILE: fputs(" -r -F", stdout); return;
    case VALUE_FOLDER: fputs(" -x -a '(__fish_complete_directories)'", stdout); return;
    case VALUE_MODEL: fputs(" -r -F -a '(__fletch_models)'", stdout); return;
    case VALUE_OTHER: fputs(" -x", stdout); return;
    }
}

static void put_fish_command(const struct command *c)
{
    enum value v = operand_of(c);
    EACH_OPTION(c, g, o)
    {
        printf("complete -c fletch -n '__fish_seen_subcommand_from %s' -l %s", c->name, o->name);
        if (o->letter) printf(" -s %c", o->letter);
        put_fish_value(value_of(o), o->arg);
        fputs(" -d ", stdout);
        put_fish_text(o->help);
        putchar('\n');
    }
    if (v == VALUE_NONE || v == VALUE_OTHER) return;
    printf("complete -c fletch -n '__fish_seen_subcommand_from %s'", c->name);
    if (v == VALUE_MODEL)
        puts(" -F -a '(__fletch_models)'");
    else
        puts(" -F");
}

static void put_fish(const struct list *all)
{
    puts("# fish completion for fletch; made by `fletch completion fish`.\n"
         "function __fletch_models\n"
         "    fletch list -q 2> /dev/null | string match -r -g '^ *(\\S+)'\n"
         "end\n"
         "complete -c fletch -f");
    for (size_t i = 0; i < all->n; i++) {
        printf("complete -c fletch -n __fish_use_subcommand -a %s -d ", all->p[i]->name);
        put_fish_text(all->p[i]->summary);
        putchar('\n');
    }
    for (const char *const *w = words; *w; w++)
        printf("complete -c fletch -n __fish_use_subcommand -a %s\n", *w);
    for (size_t i = 0; i < all->n; i++) put_fish_command(all->p[i]);
    printf("complete -c fletch -n '__fish_seen_subcommand_from help' -a '");
    put_commands(all);
    puts("'\ncomplete -c fletch -n '__fish_seen_subcommand_from completion' -a 'bash zsh fish'");
}

int completion_print(const char *shell, const struct command *const *commands, size_t n)
{
    const struct list all = {commands, n};
    if (!shell || !is_one_of(shell, strlen(shell), shells)) {
        fprintf(stderr, "fletch completion: %s; usage: fletch completion bash|zsh|fish\n",
                shell ? "unknown shell" : "missing argument SHELL");
        return EXIT_USAGE;
    }
    if (strcmp(shell, "bash") == 0)
        put_bash(&all);
    else if (strcmp(shell, "zsh") == 0)
        put_zsh(&all);
    else
        put_fish(&all);
    return EXIT_OK;
}
