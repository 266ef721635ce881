/* Messages, tools and template options from the command line, as the library's chat template takes
 * them: JSON texts. */
#include "app.h"

#include <stdlib.h>
#include <string.h>

static const struct opt template_opts[] = {
    {0, "template", OPT_TEXT, "FILE", NULL, "chat template to use instead of the model's own",
     OPT_FIELD(template_file), 0, 0},
    {0, "template-arg", OPT_TEXTS, "NAME=VALUE", NULL,
     "set a template variable, for example enable_thinking=false; VALUE is read as JSON if it is "
     "valid JSON, otherwise as text; may be repeated",
     OPT_FIELD(template_args), 0, 0},
};
const struct opt_group opts_template = {"Template options", OPT_TABLE(template_opts)};

static int parse_args(json_t *object, const struct opt_texts *texts, const char *command)
{
    for (size_t i = 0; i < texts->n; i++) {
        const char *text = texts->p[i], *equals = strchr(text, '=');
        if (!equals || equals == text)
            return opts_wrong(command, "--template-arg takes NAME=VALUE, not %s", QUOTE(text));
        json_t *value = json_loads(equals + 1, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
        if (!value) value = json_text(equals + 1, strlen(equals + 1));
        char *name = need(strndup(text, (size_t)(equals - text)));
        int failed = json_object_set_new(object, name, value);
        free(name);
        if (failed) return opts_wrong(command, "%s is not UTF-8", QUOTE(text));
    }
    return EXIT_OK;
}

enum chat_variable chat_find_variable(const struct fletch_model *m, const char *name)
{
    static const char own[][24] = {"messages", "tools", "add_generation_prompt"};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (strcmp(name, own[i]) == 0) return VARIABLE_OWN;
    return fletch_chat_reads(m, name) ? VARIABLE_READ : VARIABLE_UNREAD;
}

const char *chat_think_variable(const struct fletch_model *m)
{
    static const char *const names[] = {"enable_thinking", "thinking"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (fletch_chat_reads(m, names[i])) return names[i];
    return NULL;
}

static int say_no_variable(const char *option, const char *name)
{
    say_error("%s has no effect: this model's chat template has no variable %s", option,
              QUOTE(name));
    return EXIT_USAGE;
}

int chat_check_options(const struct host *h, const struct args *a)
{
    int code = EXIT_OK;
    if (!h->info.has_template) return EXIT_OK; /* rendering says so */
    for (size_t i = 0; i < a->template_args.n && !code; i++) {
        const char *text = a->template_args.p[i];
        char *name = need(strndup(text, strcspn(text, "=")));
        enum chat_variable found = chat_find_variable(h->model, name);
        if (found == VARIABLE_UNREAD) code = say_no_variable("--template-arg", name);
        if (found == VARIABLE_OWN) {
            say_error("--template-arg cannot set %s: fletch sets it", name);
            code = EXIT_USAGE;
        }
        free(name);
    }
    if (!code && (a->think || a->no_think) && !chat_think_variable(h->model))
        code = say_no_variable(a->think ? "--think" : "--no-think", "enable_thinking");
    return code;
}

int chat_open(struct chat *chat, const json_t *messages, const json_t *tools, const struct args *a,
              const char *command)
{
    memset(chat, 0, sizeof *chat);
    if (a->template_args.n) {
        json_t *object = need(json_object());
        int rc = parse_args(object, &a->template_args, command);
        if (!rc) chat->args = need(json_dumps(object, 0));
        json_decref(object);
        if (rc) return rc;
    }
    chat->messages = need(json_dumps(messages, 0));
    if (tools) chat->tools = need(json_dumps(tools, 0));
    chat->c = (struct fletch_chat){
        .messages = chat->messages,
        .tools = chat->tools,
        .args = chat->args,
        .no_generation_prompt = a->no_answer,
    };
    return EXIT_OK;
}

void chat_close(struct chat *chat)
{
    free(chat->messages);
    free(chat->tools);
    free(chat->args);
}
