/* fletch chat: a conversation in the terminal. Lines that begin with a slash are commands to the
 * program, everything else goes to the model. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "line.h"
#include "talk.h"

static const struct opt chat_opts[] = {
    {0, "system", OPT_TEXT, "TEXT", NULL, "the system message", OPT_FIELD(system), 0, 0},
    {'n', "max-tokens", OPT_COUNT, "N", NULL,
     "at most N tokens in an answer; -1: no limit (default: until the model ends its answer)",
     OPT_FIELD(n_tokens), -1, UINT32_MAX},
    {0, "stop", OPT_TEXTS, "TEXT", NULL, "end an answer before this text; may be repeated",
     OPT_FIELD(stops), 0, 0},
    {0, "think", OPT_FLAG, NULL, NULL, "ask the template to let the model think first",
     OPT_FIELD(think), 0, 0},
    {0, "no-think", OPT_FLAG, NULL, NULL, "ask the template not to", OPT_FIELD(no_think), 0, 0},
};
static const struct opt_group chat_group = {NULL, OPT_TABLE(chat_opts)};

struct show {
    struct talk talk;
    struct line *line;
    bool terminal, done;
    struct text attached; /* by /read, for the next message */
    size_t n_hidden;      /* that was told */
    bool near_told;       /* that the context is nearly full */
    bool thinking;        /* inside a passage of thoughts */
    char tail[8];         /* what may be the beginning of a tag */
    size_t n_tail;
};

/* ---- the answer as it comes ---- */

static void put(struct show *s, const char *text, size_t n)
{
    if (s->terminal) /* what the model says can't command it */
        say_text(stdout, text, n);
    else
        fwrite(text, 1, n, stdout);
    fflush(stdout);
}

static void turn(struct show *s, bool thinking)
{
    s->thinking = thinking;
    fputs(thinking ? style_dim(1) : style_end(1), stdout);
}

/* Thoughts are dim. A tag may come in pieces, so its beginning waits for the rest. */
static void on_text(void *ctx, const char *text, size_t n)
{
    struct show *s = ctx;
    size_t from = 0, i = 0, n_all = s->n_tail + n;
    char *all = need(malloc(n_all + 1));
    memcpy(all, s->tail, s->n_tail);
    memcpy(all + s->n_tail, text, n);
    s->n_tail = 0;
    while (i < n_all) {
        const char *tag = s->thinking ? "</think>" : "<think>";
        size_t len = strlen(tag), m = n_all - i < len ? n_all - i : len;
        if (memcmp(all + i, tag, m) != 0) {
            i++;
            continue;
        }
        put(s, all + from, i - from);
        from = i += m;
        if (m < len) {
            memcpy(s->tail, tag, s->n_tail = m);
        } else if (s->thinking) {
            put(s, tag, len);
            turn(s, false);
        } else {
            turn(s, true);
            put(s, tag, len);
        }
    }
    put(s, all + from, n_all - from);
    free(all);
}

static void on_begin(void *ctx, bool thinking)
{
    struct show *s = ctx;
    s->n_tail = 0;
    turn(s, thinking);
}

static void say_statistics(const struct show *s)
{
    const struct talk_stats *t = &s->talk.last;
    double fresh = (double)(t->n_read - t->n_reused);
    if (s->talk.a->quiet || !s->terminal) return;
    fprintf(stderr, "%s", style_dim(2));
    say_prompt(stderr, t->n_read, t->n_prompt);
    if (t->n_reused) fprintf(stderr, " (%zu known)", t->n_reused);
    if (t->prompt_seconds > 0) fprintf(stderr, ", %.0f/s", fresh / t->prompt_seconds);
    fprintf(stderr, "; answer %u tokens", t->made.n_tokens);
    if (t->answer_seconds > 0)
        fprintf(stderr, ", %.1f/s", (double)t->made.n_tokens / t->answer_seconds);
    say_guesses(stderr, &t->made);
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
                "the context is full: the model no longer sees the first %zu messages of this "
                "conversation (/clear begins a new one)\n",
                t->last.n_hidden);
    else if (n > n_ctx / 10 * 8 && !s->near_told && !t->last.n_hidden) {
        fprintf(stderr,
                "the context is nearly full (%u of %u tokens): soon the oldest messages are left "
                "out\n",
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
    int code = talk_answer(&s->talk);
    put(s, s->tail, s->n_tail);
    s->n_tail = 0;
    fputs(style_end(1), stdout);
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
    talk_set_system(&s->talk, text);
    fprintf(stderr, *text ? "the system message is set\n" : "there is no system message now\n");
}

/* What /set knows. */
static const struct setting {
    const char *name;
    size_t field; /* of struct fletch_sampling */
    double min, max;
    enum { REAL, COUNT, SEED, LENGTH } kind;
} settings[] = {
    {"temp", offsetof(struct fletch_sampling, temperature), 0, 100, REAL},
    {"top-k", offsetof(struct fletch_sampling, top_k), 0, UINT32_MAX, COUNT},
    {"top-p", offsetof(struct fletch_sampling, top_p), 0, 1, REAL},
    {"min-p", offsetof(struct fletch_sampling, min_p), 0, 1, REAL},
    {"repeat-penalty", offsetof(struct fletch_sampling, repeat_penalty), 0.01, 100, REAL},
    {"presence-penalty", offsetof(struct fletch_sampling, presence_penalty), -100, 100, REAL},
    {"frequency-penalty", offsetof(struct fletch_sampling, frequency_penalty), -100, 100, REAL},
    {"seed", offsetof(struct fletch_sampling, seed), 0, 9007199254740992.0, SEED},
    {"max-tokens", 0, 0, UINT32_MAX, LENGTH},
};
enum { N_SETTINGS = sizeof settings / sizeof *settings };

static double setting_value(struct talk *t, const struct setting *x)
{
    const char *field = (const char *)&t->g.sampling + x->field;
    switch (x->kind) {
    case REAL: return (double)*(const float *)(const void *)field;
    case COUNT: return *(const uint32_t *)(const void *)field;
    case SEED: return (double)*(const uint64_t *)(const void *)field;
    case LENGTH: return t->g.max_tokens;
    }
    return 0;
}

static void change_setting(struct talk *t, const struct setting *x, double v)
{
    char *field = (char *)&t->g.sampling + x->field;
    switch (x->kind) {
    case REAL: *(float *)(void *)field = (float)v; break;
    case COUNT: *(uint32_t *)(void *)field = (uint32_t)v; break;
    case SEED: *(uint64_t *)(void *)field = (uint64_t)v; break;
    case LENGTH: t->g.max_tokens = (uint32_t)v; break;
    }
}

static void do_set(struct show *s, const char *text)
{
    size_t n = strcspn(text, " ");
    const char *value = text + n + strspn(text + n, " ");
    double v;
    for (size_t i = 0; i < N_SETTINGS; i++) {
        const struct setting *x = &settings[i];
        if (!n) fprintf(stderr, "%-18s %.16g\n", x->name, setting_value(&s->talk, x));
        if (strlen(x->name) != n || memcmp(x->name, text, n) != 0) continue;
        if (!parse_real(value, &v) || v < x->min || v > x->max)
            fprintf(stderr, "%s wants a number from %.10g to %.10g, not %s\n", x->name, x->min,
                    x->max, QUOTE(value));
        else
            change_setting(&s->talk, x, v);
        return;
    }
    if (n) fprintf(stderr, "no such setting: %s; /set alone lists them\n", QUOTE(text));
}

static void do_regen(struct show *s, const char *text)
{
    (void)text;
    if (!talk_forget_answer(&s->talk)) {
        fputs("there is no answer yet\n", stderr);
        return;
    }
    if (s->talk.g.sampling.temperature == 0)
        fputs("the temperature is 0, so the answer is the same again; /set temp 0.8 changes that\n",
              stderr);
    s->talk.g.sampling.choice++;
    answer(s);
}

static void do_undo(struct show *s, const char *text)
{
    (void)text;
    json_t *question = talk_forget_question(&s->talk);
    if (question)
        fprintf(stderr, "forgotten: %s\n", QUOTE(json_string_value(question)));
    else
        fputs("there is nothing to undo\n", stderr);
    json_decref(question);
}

static void do_edit(struct show *s, const char *text)
{
    json_t *question = talk_forget_question(&s->talk);
    if (!question)
        fputs("there is no question yet\n", stderr);
    else if (*text)
        say(s, text, strlen(text));
    else if (!line_offer(s->line, json_string_value(question))) {
        fputs("without a terminal: /edit NEW TEXT\n", stderr);
        talk_say(&s->talk, json_string_value(question), json_string_length(question));
    }
    json_decref(question);
}

static void do_read(struct show *s, const char *path)
{
    if (!*path) {
        fputs("/read wants a file\n", stderr);
        return;
    }
    struct text file = {0};
    if (read_text(&file, path)) return;
    if (strlen(file.p) != file.n || !file.n)
        fprintf(stderr, "%s: %s\n", QUOTE(path), file.n ? "not text" : "empty");
    else {
        free(s->attached.p);
        s->attached = file;
        fprintf(stderr, "%s goes with your next message\n", human_bytes(file.n).text);
        return;
    }
    free(file.p);
}

static void do_save(struct show *s, const char *path)
{
    if (!*path)
        fputs("/save wants a file\n", stderr);
    else if (!talk_save(&s->talk, path))
        fprintf(stderr, "saved %zu messages\n", json_array_size(s->talk.messages));
}

static void do_load(struct show *s, const char *path)
{
    if (!*path)
        fputs("/load wants a file\n", stderr);
    else if (!talk_load(&s->talk, path))
        fprintf(stderr, "loaded %zu messages\n", json_array_size(s->talk.messages));
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
            *m->name ? QUOTE(m->name) : "without a name", m->arch,
            human_bytes(m->weight_bytes).text, fletch_engine_backend(s->talk.host->engine));
    say_statistics(s);
}

static void do_think(struct show *s, const char *text)
{
    int on = strcmp(text, "on") == 0 ? 1 : strcmp(text, "off") == 0 ? 0 : -1;
    if (on < 0)
        fputs("/think wants on or off\n", stderr);
    else if (!chat_think_variable(s->talk.host->model))
        fputs("the chat template of this model has no variable enable_thinking, so /think would "
              "have no effect\n",
              stderr);
    else
        s->talk.think = on;
}

static void do_clear(struct show *s, const char *text)
{
    (void)text;
    talk_clear(&s->talk);
    s->near_told = false;
    s->n_hidden = 0;
    fputs("a new conversation\n", stderr);
}

static void do_bye(struct show *s, const char *text)
{
    (void)text;
    s->done = true;
}

static void do_help(struct show *s, const char *text);

static const struct slash {
    const char *name, *operands, *help;
    void (*run)(struct show *s, const char *text);
} slashes[] = {
    {"/help", "", "this list", do_help},
    {"/system", "[TEXT]", "set the system message, or take it away", do_system},
    {"/set", "[NAME VALUE]", "change how tokens are chosen, or show it", do_set},
    {"/regen", "", "another answer to the last question", do_regen},
    {"/undo", "", "forget the last question and its answer", do_undo},
    {"/edit", "[TEXT]", "ask the last question again in other words", do_edit},
    {"/read", "FILE", "send a file along with the next message", do_read},
    {"/save", "FILE", "write the conversation as JSON", do_save},
    {"/load", "FILE", "go on with a saved conversation", do_load},
    {"/tokens", "", "how long the conversation is", do_tokens},
    {"/stats", "", "the model, and how fast it was", do_stats},
    {"/think", "on|off", "let the model think first, where its template knows how", do_think},
    {"/clear", "", "begin a new conversation", do_clear},
    {"/bye", "", "leave (so does Ctrl-D)", do_bye},
};
enum { N_SLASHES = sizeof slashes / sizeof *slashes };

static void do_help(struct show *s, const char *text)
{
    (void)s;
    (void)text;
    for (size_t i = 0; i < N_SLASHES; i++)
        fprintf(stderr, "%-8s %-13s %s\n", slashes[i].name, slashes[i].operands, slashes[i].help);
    fputs("A line that ends in \\ goes on, and \"\"\" begins and ends a text of several lines. "
          "Ctrl-C stops an answer.\n",
          stderr);
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
        if (got == LINE_END || (got == LINE_INTERRUPTED && asked_twice)) break;
        asked_twice = got == LINE_INTERRUPTED;
        if (asked_twice)
            fputs("\n(Ctrl-C again or /bye leaves)\n", stderr);
        else if (n && text[0] == '/')
            command(s, text);
        else if (n)
            say(s, text, n);
    }
}

static int chat(const struct args *a)
{
    const char *words[N_SLASHES + 1] = {0};
    struct host host = {0};
    struct show s = {.terminal = isatty(1)};
    if (a->think && a->no_think)
        return opts_wrong("chat", "--think and --no-think were both given");
    for (size_t i = 0; i < N_SLASHES; i++) words[i] = slashes[i].name;
    s.talk.on_begin = on_begin;
    s.talk.on_text = on_text;
    s.talk.ctx = &s;
    int code = host_open_engine(&host, a->backend, a);
    if (!code) code = host_open_model(&host, a->operands.n ? a->operands.p[0] : NULL, a);
    if (!code) code = host_open_session(&host);
    if (!code && !host.info.has_template)
        code =
            say_error("the model has no chat template that can be used; --template FILE gives one");
    if (!code) code = talk_open(&s.talk, &host, a, "chat");
    if (!code) {
        s.line = line_open(words);
        if (!a->quiet && line_is_terminal(s.line))
            fprintf(stderr, "%s, backend %s; /help lists commands\n",
                    *host.info.name ? QUOTE(host.info.name) : host.info.arch,
                    fletch_engine_backend(host.engine));
        converse(&s);
    }
    line_close(s.line);
    free(s.attached.p);
    talk_close(&s.talk);
    host_close(&host);
    return code;
}

const struct command cmd_chat = {
    .name = "chat",
    .operands = "[MODEL]",
    .summary = "chat with a model in the terminal",
    .about =
        "A conversation in the terminal, through the model's chat template; without MODEL the "
        "built-in model answers. Lines that begin with / are commands; /help lists them. A line "
        "that ends in a backslash goes on in the next one, and three quotes alone on a line begin "
        "and end a text of several lines. Ctrl-C stops an answer and keeps the conversation; "
        "Ctrl-D "
        "leaves. When the context is full the oldest messages are left out, which is said. Input "
        "that is no terminal is read line by line, one message each.",
    .groups = {&chat_group, &opts_sampling, &opts_template, &opts_model, &opts_speculation,
               &opts_cache, &opts_place, &opts_common},
    .max_operands = 1,
    .run = chat,
};
