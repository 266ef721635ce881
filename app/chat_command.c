/* fletch chat: a conversation in the terminal. Lines that begin with a slash are commands to the
 * program, everything else goes to the model. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "answer.h"
#include "line.h"
#include "talk.h"

static const struct opt chat_opts[] = {
    {0, "system", OPT_TEXT, "TEXT", NULL, "system message for the conversation", OPT_FIELD(system),
     0, 0},
    {'n', "max-tokens", OPT_COUNT, "N", NULL,
     "generate at most N tokens per answer; -1 means no limit (default: generate until the model "
     "ends its answer)",
     OPT_FIELD(n_tokens), -1, UINT32_MAX},
    {0, "stop", OPT_TEXTS, "TEXT", NULL, "end an answer before this text; may be repeated",
     OPT_FIELD(stops), 0, 0},
    {0, "think", OPT_FLAG, NULL, NULL, "turn thinking on, if the model's chat template supports it",
     OPT_FIELD(think), 0, 0},
    {0, "no-think", OPT_FLAG, NULL, NULL,
     "turn thinking off, if the model's chat template supports it", OPT_FIELD(no_think), 0, 0},
};
static const struct opt_group chat_group = {NULL, OPT_TABLE(chat_opts)};

struct show {
    struct talk talk;
    struct line *line;
    struct answer_view view; /* of the answer, on a terminal */
    char *path;              /* of the model; NULL: the built-in one */
    char *own_file;          /* that was saved to or loaded from last; NULL: none */
    bool terminal, done;
    bool lost;            /* /model closed a model that could not be opened again */
    struct text attached; /* by /read, for the next message */
    size_t n_hidden;      /* that was told */
    bool near_told;       /* that the context is nearly full */
    bool thinking;        /* inside a passage of thoughts */
};

/* ---- the answer as it comes ---- */

static void put(struct show *s, const char *text, size_t n)
{
    if (s->terminal)
        answer_put(&s->view, text, n);
    else
        fwrite(text, 1, n, stdout);
    fflush(stdout);
}

/* Thoughts are dim, between tags that are the same for all models. */
static void turn(struct show *s, bool thinking)
{
    static const char begin[] = "<think>\n", end[] = "\n</think>\n\n";
    if (s->thinking == thinking) return;
    s->thinking = thinking;
    if (thinking && s->terminal) {
        answer_flush(&s->view);
        s->view.styled = false;
    }
    if (thinking) fputs(style_dim(1), stdout);
    put(s, thinking ? begin : end, strlen(thinking ? begin : end));
    if (thinking) return;
    if (s->terminal) {
        answer_flush(&s->view);
        s->view.styled = *style_dim(1);
    }
    fputs(style_end(1), stdout);
}

static void on_text(void *ctx, enum tools_part part, const char *text, size_t n)
{
    struct show *s = ctx;
    turn(s, part == TOOLS_REASONING);
    put(s, text, n);
    line_stop_if_asked(s->line);
}

static void say_statistics(const struct show *s)
{
    const struct talk_stats *t = &s->talk.last;
    if (s->talk.a->quiet || !s->terminal) return;
    fprintf(stderr, "%s", style_dim(2));
    say_speed(stderr, &(struct speed){t->n_prompt, t->n_read, t->n_reused, t->prompt_seconds,
                                      t->answer_seconds, &t->made});
    fprintf(stderr, "; context %u of %u%s%s\n", fletch_session_length(s->talk.host->session),
            s->talk.host->info.n_ctx, t->made.finish == FLETCH_FINISH_ASKED ? "; stopped" : "",
            style_end(2));
}

static void say_context(struct show *s)
{
    const struct talk *t = &s->talk;
    unsigned n_ctx = t->host->info.n_ctx, n = fletch_session_length(t->host->session);
    if (t->last.n_hidden > s->n_hidden)
        fprintf(stderr,
                "the context is full: the first %zu messages are no longer sent to the model "
                "(/clear starts a new conversation)\n",
                t->last.n_hidden);
    else if (n > n_ctx / 10 * 8 && !s->near_told && !t->last.n_hidden) {
        fprintf(stderr,
                "the context is nearly full (%u of %u tokens); the oldest messages will soon no "
                "longer be sent to the model\n",
                n, n_ctx);
        s->near_told = true;
    }
    s->n_hidden = t->last.n_hidden;
    if (t->last.made.finish == FLETCH_FINISH_CONTEXT)
        fputs("the answer ends here because the context is full\n", stderr);
}

static void answer(struct show *s)
{
    interrupted = 0;
    s->thinking = false;
    if (s->terminal) answer_begin(&s->view, stdout);
    line_quiet(s->line, true);
    int code = talk_answer(&s->talk);
    if (s->terminal) answer_end(&s->view);
    fputs(style_end(1), stdout);
    line_quiet(s->line, false);
    if (code) {
        json_decref(talk_forget_question(&s->talk));
        return;
    }
    putchar('\n');
    fflush(stdout);
    say_context(s);
    say_statistics(s);
}

static void say(struct show *s, const char *text, size_t n)
{
    if (s->attached.n) {
        struct text both = {need(malloc(s->attached.n + n + 3)), 0};
        both.n = (size_t)sprintf(both.p, "%s\n\n", s->attached.p);
        memcpy(both.p + both.n, text, n);
        talk_say(&s->talk, both.p, both.n + n);
        free(both.p);
        free(s->attached.p);
        s->attached = (struct text){0};
    } else
        talk_say(&s->talk, text, n);
    answer(s);
}

/* ---- commands ---- */

static void do_system(struct show *s, const char *text)
{
    const json_t *now = talk_system(&s->talk);
    if (strcmp(text, "\"\"") == 0) {
        talk_set_system(&s->talk, "");
        fputs("system message removed\n", stderr);
    } else if (*text) {
        talk_set_system(&s->talk, text);
        fputs("system message set\n", stderr);
    } else if (now) {
        say_text(stderr, json_string_value(now), json_string_length(now));
        fputs("\n(/system TEXT replaces the system message, /system \"\" removes it)\n", stderr);
    } else
        fputs("there is no system message; /system TEXT sets one\n", stderr);
}

/* Our name of a setting: others write num_predict, and top_k with an underscore. */
static void read_name(char *name, size_t cap, const char *text, size_t n)
{
    snprintf(name, cap, "%.*s", (int)(n < cap ? n : cap - 1), text);
    for (char *c = name; *c; c++)
        if (*c == '_') *c = '-';
    if (strcmp(name, "temperature") == 0) snprintf(name, cap, "temp");
    if (strcmp(name, "num-predict") == 0) snprintf(name, cap, "max-tokens");
}

/* Whether `name` is this setting's, whose value *v then changes; shows it where there
 * is no name. */
static bool set_number(const char *option, const char *name, const char *value, double min,
                       double max, double *v)
{
    double given;
    if (!*name) fprintf(stderr, "%-18s %.16g\n", option, *v);
    if (strcmp(option, name) != 0) return false;
    if (!parse_real(value, &given) || given < min || given > max)
        fprintf(stderr, "%s takes a number from %.10g to %.10g, not %s\n", option, min, max,
                QUOTE(value));
    else
        *v = given;
    return true;
}

static void do_set(struct show *s, const char *text)
{
    static const char system[] = "system", parameter[] = "parameter ";
    char name[32];
    if (strncmp(text, parameter, sizeof parameter - 1) == 0) text += sizeof parameter - 1;
    size_t n = strcspn(text, " ");
    const char *value = text + n + strspn(text + n, " ");
    double v;
    read_name(name, sizeof name, text, n);
    if (strcmp(name, system) == 0) {
        do_system(s, value);
        return;
    }
    struct fletch_sampling *sampling = &s->talk.g.sampling;
    for (size_t i = 0; i < n_settings; i++) {
        const struct setting *x = &setting_table[i];
        v = setting_get(x, sampling);
        if (!set_number(x->option, name, value, x->min, x->max, &v)) continue;
        setting_put(x, sampling, v);
        return;
    }
    v = (double)sampling->seed;
    if (set_number("seed", name, value, 0, 9007199254740992.0, &v)) {
        sampling->seed = (uint64_t)v;
        return;
    }
    v = s->talk.g.max_tokens;
    if (set_number("max-tokens", name, value, 0, UINT32_MAX, &v)) {
        s->talk.g.max_tokens = (uint32_t)v;
        return;
    }
    if (n) fprintf(stderr, "unknown setting %s; /set lists them\n", QUOTE(text));
}

static void do_regen(struct show *s, const char *text)
{
    (void)text;
    if (!talk_forget_answer(&s->talk)) {
        fputs("there is no answer to regenerate\n", stderr);
        return;
    }
    if (s->talk.g.sampling.temperature == 0)
        fputs("at temperature 0 the answer is always the same; /set temp 0.8 varies it\n", stderr);
    s->talk.g.sampling.choice++;
    answer(s);
}

static void do_undo(struct show *s, const char *text)
{
    (void)text;
    json_t *question = talk_forget_question(&s->talk);
    if (question)
        fprintf(stderr, "removed: %s\n", QUOTE(json_string_value(question)));
    else
        fputs("there is nothing to undo\n", stderr);
    json_decref(question);
}

static void do_edit(struct show *s, const char *text)
{
    json_t *question = talk_forget_question(&s->talk);
    if (!question)
        fputs("there is no question to edit\n", stderr);
    else if (*text)
        say(s, text, strlen(text));
    else if (!line_offer(s->line, json_string_value(question))) {
        fputs("missing text; without a terminal, use /edit TEXT\n", stderr);
        talk_say(&s->talk, json_string_value(question), json_string_length(question));
    }
    json_decref(question);
}

static void do_read(struct show *s, const char *path)
{
    if (!*path) {
        fputs("missing file name: /read FILE\n", stderr);
        return;
    }
    struct text file = {0};
    if (read_text(&file, path)) return;
    if (strlen(file.p) != file.n || !file.n)
        fprintf(stderr, "%s is %s\n", QUOTE(path), file.n ? "not a text file" : "empty");
    else {
        free(s->attached.p);
        s->attached = file;
        fprintf(stderr, "%s will be sent with your next message\n", human_bytes(file.n).text);
        return;
    }
    free(file.p);
}

static void keep_own_file(struct show *s, const char *path)
{
    char *copy = need(strdup(path));
    free(s->own_file);
    s->own_file = copy;
}

static void save(struct show *s, const char *path, bool replace)
{
    struct stat st;
    bool there = *path && access(path, F_OK) == 0;
    bool own = s->own_file && strcmp(path, s->own_file) == 0;
    if (!*path)
        fputs("missing file name: /save FILE\n", stderr);
    else if (there && !own && !replace)
        fprintf(stderr, "%s exists; /save! FILE replaces it\n", QUOTE(path));
    else if (!talk_save(&s->talk, path)) {
        keep_own_file(s, path);
        fprintf(stderr, "saved %zu messages to %s", json_array_size(s->talk.messages), QUOTE(path));
        if (stat(path, &st) == 0)
            fprintf(stderr, " (%s%s)", human_bytes((uint64_t)st.st_size).text,
                    there ? ", replaced" : "");
        fputc('\n', stderr);
    }
}

static void do_save(struct show *s, const char *path)
{
    save(s, path, false);
}

static void do_replace(struct show *s, const char *path)
{
    save(s, path, true);
}

static void do_load(struct show *s, const char *path)
{
    if (!*path)
        fputs("missing file name: /load FILE\n", stderr);
    else if (!talk_load(&s->talk, path)) {
        keep_own_file(s, path);
        fprintf(stderr, "loaded %zu message%s\n", json_array_size(s->talk.messages),
                json_array_size(s->talk.messages) == 1 ? "" : "s");
    }
}

static void do_tokens(struct show *s, const char *text)
{
    (void)text;
    long n = json_array_size(s->talk.messages) ? talk_count(&s->talk) : 0;
    if (n >= 0) fprintf(stderr, "%ld of %u tokens of context\n", n, s->talk.host->info.n_ctx);
}

static void do_stats(struct show *s, const char *text)
{
    (void)text;
    const struct fletch_model_info *m = &s->talk.host->info;
    fprintf(stderr, "model %s (%s), %s of weights, backend %s\n",
            *m->name ? QUOTE(m->name) : "(unnamed)", m->arch, human_bytes(m->weight_bytes).text,
            fletch_engine_backend(s->talk.host->engine));
    say_statistics(s);
}

static void do_think(struct show *s, const char *text)
{
    int on = strcmp(text, "on") == 0 ? 1 : strcmp(text, "off") == 0 ? 0 : -1;
    if (!chat_think_variable(s->talk.host->model))
        fputs("thinking cannot be turned on or off: this model's chat template has no variable for "
              "it\n",
              stderr);
    else if (on < 0)
        fputs("/think takes on or off\n", stderr);
    else {
        s->talk.think = on;
        fprintf(stderr, "thinking is %s\n", text);
    }
}

static int open_host(struct host *h, const char *path, const struct args *a);

/* Another model answers from now on. Two may not fit beside each other, so the first is closed
 * before; it comes back if the other fails. */
static void change_model(struct show *s, const char *name)
{
    struct host *h = s->talk.host;
    char *path = NULL;
    if (models_resolve(name, &path)) return;
    if (!path) path = need(strdup(name));
    host_close(h);
    bool failed = open_host(h, path, s->talk.a) != EXIT_OK;
    if (failed) {
        host_close(h);
        if (open_host(h, s->path, s->talk.a)) s->done = s->lost = true;
        free(path);
    } else {
        free(s->path);
        s->path = path;
    }
    if (!s->done) talk_model_changed(&s->talk);
    if (!failed) fprintf(stderr, "now using %s\n", QUOTE(name));
}

static void do_model(struct show *s, const char *name)
{
    const struct fletch_model_info *m = &s->talk.host->info;
    if (*name) {
        change_model(s, name);
        return;
    }
    fprintf(stderr, "%s (%s), %s of weights, context %u, backend %s\n",
            s->path    ? QUOTE(s->path)
            : *m->name ? QUOTE(m->name)
                       : "the built-in model",
            m->arch, human_bytes(m->weight_bytes).text, m->n_ctx,
            fletch_engine_backend(s->talk.host->engine));
}

/* Shows what other programs show under this name: the model, or what is asked for. */
static void do_show(struct show *s, const char *text)
{
    if (strcmp(text, "system") == 0)
        do_system(s, "");
    else if (strcmp(text, "parameters") == 0)
        do_set(s, "");
    else
        do_model(s, "");
}

static void do_clear(struct show *s, const char *text)
{
    (void)text;
    talk_clear(&s->talk);
    s->near_told = false;
    s->n_hidden = 0;
    fputs("new conversation\n", stderr);
}

static void do_bye(struct show *s, const char *text)
{
    (void)text;
    s->done = true;
}

static void do_help(struct show *s, const char *text);

static const struct slash {
    const char *name, *operands, *help; /* help NULL: another word for one that has it */
    void (*run)(struct show *s, const char *text);
} slashes[] = {
    {"/help", "", "list these commands", do_help},
    {"/system", "[TEXT]", "show or set the system message", do_system},
    {"/set", "[NAME VALUE]", "show or change the sampling settings", do_set},
    {"/model", "[MODEL]", "show the model, or switch to another one", do_model},
    {"/regen", "", "answer the last question again", do_regen},
    {"/undo", "", "remove the last question and its answer", do_undo},
    {"/edit", "[TEXT]", "change the last question and ask it again", do_edit},
    {"/read", "FILE", "attach a file to the next message", do_read},
    {"/save", "FILE", "save the conversation as JSON", do_save},
    {"/save!", "FILE", "save the conversation even if FILE exists", do_replace},
    {"/load", "FILE", "continue a saved conversation", do_load},
    {"/tokens", "", "count the tokens of the conversation", do_tokens},
    {"/stats", "", "show the model and its speed", do_stats},
    {"/think", "on|off", "turn thinking on or off", do_think},
    {"/clear", "", "start a new conversation", do_clear},
    {"/bye", "", "leave the chat, as do /exit, /quit and Ctrl-D", do_bye},
    {"/exit", "", NULL, do_bye},
    {"/quit", "", NULL, do_bye},
    {"/show", "", NULL, do_show},
    {"/?", "", NULL, do_help},
};
enum { N_SLASHES = sizeof slashes / sizeof *slashes };

static void do_help(struct show *s, const char *text)
{
    (void)s;
    (void)text;
    for (size_t i = 0; i < N_SLASHES; i++)
        if (slashes[i].help)
            fprintf(stderr, "%-8s %-13s %s\n", slashes[i].name, slashes[i].operands,
                    slashes[i].help);
    say_wrapped(stderr,
                "Pasted text is sent as one message. To type a message of several lines, end each "
                "line except the last with \\, or put \"\"\" before and after the message. Ctrl-C "
                "stops an answer.",
                0, 0);
}

static void command(struct show *s, const char *text)
{
    char name[16];
    size_t n = strcspn(text, " ");
    snprintf(name, sizeof name, "%.*s", (int)(n < sizeof name ? n : sizeof name - 1), text);
    struct near near = {.word = name};
    for (size_t i = 0; i < N_SLASHES; i++) {
        if (strcmp(slashes[i].name, name) == 0) {
            slashes[i].run(s, text + n + strspn(text + n, " "));
            return;
        }
        near_consider(&near, slashes[i].name);
    }
    fprintf(stderr, "unknown command %s", QUOTE(name));
    fprintf(stderr, near.best ? " (did you mean %s?); /help lists them\n" : "; /help lists them\n",
            near.best);
}

/* ---- the command ---- */

static void converse(struct show *s)
{
    const char *text;
    size_t n;
    bool asked_twice = false;
    while (!s->done && !ferror(stdout)) {
        interrupted = 0;
        interrupt_catch(0); /* breaks the reading off; but no write of an answer */
        enum line_result got = line_read(s->line, &text, &n);
        interrupt_catch(SA_RESTART);
        bool ends = got == LINE_END || (got == LINE_INTERRUPTED && asked_twice);
        if (ends && line_is_typed(s->line)) putchar('\n');
        if (ends) break;
        asked_twice = got == LINE_INTERRUPTED;
        if (asked_twice)
            fputs("\n(press Ctrl-C again, or type /bye, to leave)\n", stderr);
        else if (got == LINE_CLEARED)
            putchar('\n');
        else if (n && text[0] == '/' && !memchr(text, '\n', n))
            command(s, text);
        else if (n)
            say(s, text, n);
    }
}

static void no_notice(void *ctx, const char *text)
{
    (void)ctx;
    (void)text;
}

/* Whether the model has a chat template, asked before its weights are loaded. */
static int check_template(const struct host *h, const char *path, const struct args *a)
{
    struct host text = {.engine = h->engine, .text_only = true, .notice = no_notice};
    if (!path || a->template_file) return EXIT_OK;
    int code = host_open_model(&text, path, a);
    if (!code && !text.info.has_template)
        code = say_error("%s has no chat template that fletch can use. Continue a text with "
                         "\"fletch run MODEL -p TEXT\", or give a template with --template FILE.",
                         QUOTE(path));
    fletch_model_close(text.model);
    return code;
}

static int open_host(struct host *h, const char *path, const struct args *a)
{
    int code = host_open_engine(h, a->backend, a);
    if (!code) code = check_template(h, path, a);
    if (!code) code = host_open_model(h, path, a);
    return code ? code : host_open_session(h);
}

int chat_run(const struct args *a)
{
    const char *words[N_SLASHES + 1] = {0};
    struct host host = {0};
    struct show s = {.terminal = isatty(1)};
    if (a->think && a->no_think)
        return opts_wrong("chat", "--think and --no-think cannot be combined");
    for (size_t i = 0; i < N_SLASHES; i++) words[i] = slashes[i].name;
    s.talk.on_text = on_text;
    s.talk.ctx = &s;
    if (a->operands.n) s.path = need(strdup(a->operands.p[0]));
    int code = open_host(&host, s.path, a);
    if (!code) code = talk_open(&s.talk, &host, a, "chat");
    if (!code) {
        s.line = line_open(words);
        if (!a->quiet && line_is_typed(s.line))
            fprintf(stderr, "model %s; /help lists commands, Ctrl-D exits\n",
                    *host.info.name ? QUOTE(host.info.name) : host.info.arch);
        converse(&s);
    }
    line_close(s.line);
    free(s.attached.p);
    free(s.path);
    free(s.own_file);
    talk_close(&s.talk);
    host_close(&host);
    return code ? code : s.lost ? EXIT_FAIL : EXIT_OK;
}

const struct command cmd_chat = {
    .name = "chat",
    .operands = "[MODEL]",
    .summary = "chat with a model in the terminal",
    .about = "Starts a conversation in the terminal. The model's chat template formats the "
             "messages. The default model is the built-in one.\nCtrl-C stops an answer and keeps "
             "the conversation. Ctrl-D exits. Lines that begin with / are commands; /help lists "
             "them.\nPasted text is sent as one message, even if it has several lines. To type a "
             "message of several lines, end each line except the last with a backslash, or put "
             "\"\"\" before and after the message. If the input is not a terminal, each line is a "
             "message.\nWhen the context is full, the oldest messages are no longer sent to the "
             "model, and a notice says so.",
    .groups = {&chat_group, &opts_sampling, &opts_template, &opts_model, &opts_speculation,
               &opts_cache, &opts_place, &opts_common},
    .max_operands = 1,
    .run = chat_run,
};
