/* fletch run: a prompt in, the answer on stdout as it comes. */
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "answer.h"
#include "app.h"

static const struct opt run_opts[] = {
    {'p', "prompt", OPT_TEXT, "TEXT", NULL,
     "text to continue, or the message to answer if --chat is given", OPT_FIELD(prompt), 0, 0},
    {'i', "input", OPT_TEXT, "TEXT", NULL, "same as --prompt", OPT_FIELD(prompt), 0, 0},
    {'f', "file", OPT_TEXT, "FILE", NULL,
     "read the prompt from FILE (- for stdin); one newline at the end of the file is removed",
     OPT_FIELD(file), 0, 0},
    {'n', "max-tokens", OPT_COUNT, "N", NULL,
     "generate at most N tokens; -1 means no limit (default: generate until the model ends its "
     "output or the context is full)",
     OPT_FIELD(n_tokens), -1, UINT32_MAX},
    {0, "stop", OPT_TEXTS, "TEXT", NULL, "end the output before this text; may be repeated",
     OPT_FIELD(stops), 0, 0},
    {0, "ignore-end", OPT_FLAG, NULL, NULL, "keep generating even after the model ends its output",
     OPT_FIELD(ignore_end), 0, 0},
    {0, "json-schema", OPT_TEXT, "FILE", NULL,
     "restrict the output to JSON that matches this schema; FILE may also be the schema itself "
     "({...})",
     OPT_FIELD(json_schema), 0, 0},
    {0, "grammar", OPT_TEXT, "FILE", NULL,
     "restrict the output to this GBNF grammar; FILE may also be the grammar itself (root ::= ...)",
     OPT_FIELD(grammar), 0, 0},
    {0, "special", OPT_FLAG, NULL, NULL,
     "treat the names of control tokens in the prompt as control tokens instead of text",
     OPT_FIELD(special), 0, 0},
    {0, "chat", OPT_FLAG, NULL, NULL, "format the prompt with the model's chat template",
     OPT_FIELD(chat), 0, 0},
    {0, "system", OPT_TEXT, "TEXT", NULL,
     "system message for --chat; replaces the system message stored in a --session file",
     OPT_FIELD(system), 0, 0},
    {0, "session", OPT_TEXT, "FILE", NULL,
     "load the state of the conversation from FILE if it exists, and save it there at the end",
     OPT_FIELD(session), 0, 0},
    {0, "json", OPT_FLAG, NULL, NULL, "print one JSON object when the output is complete",
     OPT_FIELD(json), 0, 0},
};
static const struct opt_group run_group = {NULL, OPT_TABLE(run_opts)};

struct run {
    const struct args *a;
    struct host host;
    int32_t *prompt; /* the library's */
    size_t n_prompt;
    struct fletch_generate g;
    struct fletch_generated made;
    struct sampling sampling;
    char *grammar, *json_schema;
    const char *rules_file; /* that one of these came from; NULL: it was given itself */
    struct ids tokens;      /* generated */
    struct text text;       /* generated, with --json or --chat */
    json_t *messages;       /* with --chat */
    size_t n_known;         /* tokens of the prompt that the session has before */
    size_t n_read;          /* these and the ones computed: all, unless Ctrl-C came before */
    bool shown;             /* the answer goes to a terminal, as `view` */
    struct answer_view view;
    double t_open, t_prompt, t_end;
};

/* ---- the prompt ---- */

/* A terminal or /dev/null holds nothing to add to a prompt. */
static bool is_piped(void)
{
    struct stat st;
    return fstat(0, &st) == 0 && (S_ISFIFO(st.st_mode) || S_ISREG(st.st_mode));
}

/* A pipe that nobody writes to would look like a model that never answers. */
static void say_if_it_waits(const struct args *a)
{
    enum { PATIENCE_MS = 2000 };
    struct pollfd in = {.fd = 0, .events = POLLIN};
    if (poll(&in, 1, PATIENCE_MS) == 0 && !a->quiet)
        fputs("reading stdin to add it to the prompt (use < /dev/null if there is no input)\n",
              stderr);
}

/* Appends what is piped to stdin to the prompt of the command line. */
static int append_stdin(struct text *prompt, const struct args *a)
{
    struct text more;
    if (!is_piped()) return EXIT_OK;
    say_if_it_waits(a);
    int code = read_text(&more, "-");
    if (code) return code;
    while (more.n && more.p[more.n - 1] == '\n') more.n--;
    if (more.n) {
        prompt->p = need(realloc(prompt->p, prompt->n + more.n + 3));
        memcpy(prompt->p + prompt->n, "\n\n", 2);
        memcpy(prompt->p + prompt->n + 2, more.p, more.n);
        prompt->n += more.n + 2;
        prompt->p[prompt->n] = 0;
    }
    free(more.p);
    return EXIT_OK;
}

static int read_prompt(struct text *out, const struct args *a)
{
    if (a->prompt && a->file)
        return opts_wrong("run", "give the prompt with --prompt or with --file, not both");
    if (a->prompt) {
        *out = (struct text){need(strdup(a->prompt)), strlen(a->prompt)};
        return append_stdin(out, a);
    }
    int rc = a->file ? read_text(out, a->file)
                     : read_stdin(out, "run", "prompt: give -p TEXT or -f FILE");
    if (!rc && out->n && out->p[out->n - 1] == '\n') out->p[--out->n] = 0;
    return rc;
}

static json_t *message(const char *role, const char *text, size_t n)
{
    return need(json_pack("{s:s, s:o}", "role", role, "content", json_text(text, n)));
}

static bool is_system(const json_t *m)
{
    const char *role = json_word(json_object_get(m, "role"));
    return role && strcmp(role, "system") == 0;
}

/* Also of a conversation that --session brings, which then begins with other tokens. */
static void set_system(struct run *r, const char *text)
{
    json_t *system = message("system", text, strlen(text));
    const json_t *first = json_array_get(r->messages, 0);
    bool same = json_equal(first, system);
    if (first && !same && !r->a->quiet)
        fputs("the system message has changed, so the whole prompt is prefilled again\n", stderr);
    if (is_system(first)) json_array_remove(r->messages, 0);
    json_array_insert_new(r->messages, 0, system);
}

/* Leaves in the session what the prompt begins with: all that it holds, or what --cache-dir has. */
static void reuse(struct run *r)
{
    struct fletch_session *s = r->host.session;
    r->n_known = fletch_session_length(s);
    if (r->n_known && r->n_known < r->n_prompt &&
        memcmp(fletch_session_tokens(s), r->prompt, r->n_known * sizeof *r->prompt) == 0)
        return;
    fletch_session_reset(s);
    r->n_known = fletch_session_recall(s, r->prompt, r->n_prompt);
}

static int tokenize_chat(struct run *r, const struct text *prompt)
{
    if (r->a->system) set_system(r, r->a->system);
    json_array_append_new(r->messages, message("user", prompt->p, prompt->n));
    struct chat chat;
    int code = chat_open(&chat, r->messages, NULL, r->a, "run");
    if (!code) {
        int rc = fletch_chat_tokenize(r->host.model, &chat.c, &r->prompt, &r->n_prompt);
        if (rc) code = say_failure(rc, fletch_model_error(r->host.model));
    }
    chat_close(&chat);
    if (!code) reuse(r);
    return code;
}

static int tokenize_prompt(struct run *r, const struct text *prompt)
{
    if (r->a->chat) return tokenize_chat(r, prompt);
    unsigned flags = r->a->special ? FLETCH_SPECIAL : 0;
    if (!fletch_session_length(r->host.session)) flags |= FLETCH_BOS;
    int rc = fletch_tokenize(r->host.model, prompt->p, prompt->n, flags, &r->prompt, &r->n_prompt);
    if (rc) return say_failure(rc, fletch_model_error(r->host.model));
    if (!r->n_prompt) return say_error("the prompt is empty; give a text with -p TEXT");
    if (flags & FLETCH_BOS) reuse(r); /* otherwise the text goes on */
    return EXIT_OK;
}

static int append_prompt(struct run *r)
{
    struct fletch_session *s = r->host.session;
    uint32_t before = fletch_session_length(s);
    struct progress progress;
    progress_begin(&progress, "prefill", r->a);
    int rc = fletch_session_append(
        s, r->prompt + r->n_known, r->n_prompt - r->n_known,
        &(struct fletch_append){.progress = progress_report, .progress_ctx = &progress});
    progress_end(&progress);
    r->n_read = r->n_known + fletch_session_length(s) - before;
    r->t_prompt = now();
    return rc && !interrupted ? say_failure(rc, fletch_session_error(r->host.session)) : EXIT_OK;
}

/* ---- the answer ---- */

/* What an option gives, itself or in a file. */
static int read_rules(struct run *r, char **out, const char *option, bool is_text)
{
    if (!option) return EXIT_OK;
    if (!is_text) {
        r->rules_file = option;
        return read_string(out, option);
    }
    *out = need(strdup(option));
    return EXIT_OK;
}

static int read_constraint(struct run *r)
{
    const char *grammar = r->a->grammar, *schema = r->a->json_schema;
    if (grammar && schema)
        return opts_wrong("run", "--grammar and --json-schema cannot be combined");
    int code = read_rules(r, &r->grammar, grammar, grammar && strstr(grammar, "::="));
    if (!code)
        code = read_rules(r, &r->json_schema, schema,
                          schema && schema[strspn(schema, " \t\r\n")] == '{');
    return code;
}

static void keep_text(struct text *to, const char *text, size_t n)
{
    to->p = need(realloc(to->p, to->n + n + 1));
    memcpy(to->p + to->n, text, n);
    to->n += n;
}

static int on_text(void *ctx, int32_t token, const char *text, size_t n)
{
    struct run *r = ctx;
    if (r->a->json || r->a->chat) keep_text(&r->text, text, n);
    if (r->a->json) {
        ids_add(&r->tokens, token);
    } else if (n) {
        if (r->shown)
            answer_put(&r->view, text, n);
        else
            fwrite(text, 1, n, stdout);
        fflush(stdout);
    }
    return interrupted || ferror(stdout);
}

/* Says why there is no answer. What is wrong with a schema or grammar begins with that word, for
 * which the name of its file stands where it came from one. */
static int generate_failed(const struct run *r, int rc)
{
    char file[400], longer[1024];
    const char *text = fletch_session_error(r->host.session);
    const char *word = r->grammar ? "grammar" : "schema";
    size_t n = strlen(word);
    if (!r->rules_file || strncmp(text, word, n) != 0 || (text[n] != ':' && text[n] != ','))
        return say_failure(rc, text);
    escape(file, sizeof file, r->rules_file, strlen(r->rules_file));
    snprintf(longer, sizeof longer, "%s%s", file, text + n);
    return say_failure(rc, longer);
}

static int generate(struct run *r)
{
    r->g.max_tokens = (uint32_t)r->a->n_tokens.v;
    r->g.stops = r->a->stops.p;
    r->g.n_stops = r->a->stops.n;
    r->g.ignore_end = r->a->ignore_end;
    r->g.grammar = r->grammar;
    r->g.json_schema = r->json_schema;
    r->g.on_text = on_text;
    r->g.ctx = r;
    r->made.finish = FLETCH_FINISH_ASKED;
    r->shown = isatty(1);
    if (r->shown) answer_begin(&r->view, stdout);
    r->view.styled = r->view.styled && r->a->chat; /* a text is no answer to a person */
    int rc = interrupted ? 0 : fletch_session_generate(r->host.session, &r->g, &r->made);
    r->t_end = now();
    if (r->shown) answer_end(&r->view);
    /* The last token comes again with text that had waited. */
    if (r->tokens.n > r->made.n_tokens) r->tokens.n = r->made.n_tokens;
    if (!r->a->json && (!rc || r->made.n_tokens)) putchar('\n');
    return rc ? generate_failed(r, rc) : EXIT_OK;
}

/* ---- what is said about it ---- */

static double per_second(size_t n, double seconds)
{
    return seconds > 0 ? (double)n / seconds : 0;
}

static void print_result(const struct run *r)
{
    static const char *const finish[] = {"length", "end", "stop", "context", "interrupted"};
    json_t *tokens = need(json_array());
    for (size_t i = 0; i < r->tokens.n; i++)
        json_array_append_new(tokens, json_integer(r->tokens.p[i]));
    double prompt = r->t_prompt - r->t_open, generated = r->t_end - r->t_prompt;
    json_t *j =
        need(json_pack("{s:o, s:o, s:s, s:I, s:I, s:I, s:I, s:I, s:{s:f, s:f, s:f, s:f}}", "text",
                       json_text(r->text.p ? r->text.p : "", r->text.n), "tokens", tokens, "finish",
                       finish[r->made.finish], "n_prompt", (json_int_t)r->n_prompt, "n_read",
                       (json_int_t)r->n_read, "n_reused", (json_int_t)r->n_known, "n_generated",
                       (json_int_t)r->made.n_tokens, "seed", (json_int_t)r->g.sampling.seed,
                       "timings", "prompt_seconds", prompt, "generate_seconds", generated,
                       "prompt_tokens_per_second", per_second(r->n_read - r->n_known, prompt),
                       "tokens_per_second", per_second(r->made.n_tokens, generated)));
    if (r->made.n_drafted)
        json_object_set_new(j, "speculation",
                            json_pack("{s:I, s:I}", "n_drafted", (json_int_t)r->made.n_drafted,
                                      "n_accepted", (json_int_t)r->made.n_accepted));
    say_json(j);
    json_decref(j);
}

static void say_model(const struct run *r)
{
    const struct fletch_model_info *m = &r->host.info;
    fprintf(stderr, "model %s (%s), %s of weights, context %u, seed %llu\n",
            *m->name ? QUOTE(m->name) : "(unnamed)", m->arch, human_bytes(m->weight_bytes).text,
            m->n_ctx, (unsigned long long)r->g.sampling.seed);
}

static void say_gpu_memory(const struct run *r)
{
    uint64_t allocated, recommended;
    if (!fletch_model_gpu_memory(r->host.model, &allocated, &recommended)) return;
    fprintf(stderr, "GPU memory: %s allocated, ", human_bytes(allocated).text);
    fprintf(stderr, "at most %s recommended\n", human_bytes(recommended).text);
}

static void say_statistics(const struct run *r)
{
    if (r->a->verbose) say_gpu_memory(r);
    if (r->a->quiet || (!isatty(2) && !r->a->verbose)) return;
    fprintf(stderr, "%s", style_dim(2));
    say_speed(stderr, &(struct speed){r->n_prompt, r->n_read, r->n_known, r->t_prompt - r->t_open,
                                      r->t_end - r->t_prompt, &r->made});
    fprintf(stderr, "%s\n", style_end(2));
}

/* A conversation does not go on from a text, nor a text from a conversation: what was there would
 * be lost. */
static int check_kind(const struct run *r)
{
    bool is_chat = json_array_size(r->messages) > 0;
    if (!fletch_session_length(r->host.session) || is_chat == r->a->chat) return EXIT_OK;
    return say_error("%s contains a %s --chat, or give another --session", QUOTE(r->a->session),
                     is_chat ? "conversation; add" : "text; leave out");
}

static int run_steps(struct run *r, const struct text *prompt)
{
    const struct args *a = r->a;
    struct host *h = &r->host;
    int code = sampling_open(&r->sampling, a, "run");
    if (!code) code = read_constraint(r);
    if (!code) code = host_open_engine(h, a->backend, a);
    if (code) return code;
    code = host_open_model(h, a->operands.n ? a->operands.p[0] : NULL, a);
    if (!code) code = host_open_session(h);
    if (code) return code;
    if (a->session)
        code = keep_open(h, a->session, &r->messages);
    else
        r->messages = need(json_array());
    if (!code) code = check_kind(r);
    if (!code) code = tokenize_prompt(r, prompt);
    if (code) return code;
    r->g.sampling = sampling_over(&r->sampling, &h->info.sampling);
    if (a->verbose) say_model(r);
    interrupt_catch((int)(SA_RESETHAND | SA_RESTART));
    r->t_open = now();
    code = append_prompt(r);
    if (!code) code = generate(r);
    if (a->chat)
        json_array_append_new(r->messages,
                              message("assistant", r->text.p ? r->text.p : "", r->text.n));
    if (!code && a->session) code = keep_save(h, a->session, r->messages);
    if (code) return code;
    if (a->json) print_result(r);
    if (!ferror(stdout)) fflush(stdout); /* stays before what follows, wherever both go */
    if (r->made.finish == FLETCH_FINISH_CONTEXT && !a->quiet)
        fprintf(stderr, "stopped: the context of %u tokens is full; -c N sets a longer one\n",
                h->info.n_ctx);
    say_statistics(r);
    return EXIT_OK;
}

/* Whether to chat: on a terminal, without a prompt and without options that only one answer has. */
static bool is_conversation(const struct args *a)
{
    return !a->prompt && !a->file && isatty(0) && isatty(1) && !a->json && !a->grammar &&
           !a->json_schema && !a->session && !a->special && !a->ignore_end;
}

/* run MODEL TEXT asks TEXT: the same as --chat -p TEXT. */
static int take_text(struct args *a)
{
    if (a->operands.n < 2) return EXIT_OK;
    if (a->prompt || a->file)
        return opts_wrong("run", "unexpected argument %s: the prompt was already given",
                          QUOTE(a->operands.p[1]));
    a->prompt = a->operands.p[1];
    a->chat = true;
    return EXIT_OK;
}

/* Names the right option where a prompt stands in the place of MODEL. */
static int check_operand(const struct args *a)
{
    const char *model = a->operands.n ? a->operands.p[0] : "";
    if (!strchr(model, ' ') || access(model, F_OK) == 0) return EXIT_OK;
    return say_error("no model %s; to give the built-in model a prompt, use: fletch run -p TEXT",
                     QUOTE(model));
}

static int run(const struct args *args)
{
    struct args mine = *args, *a = &mine;
    struct run r = {.a = a};
    struct text prompt = {0};
    int code = take_text(a);
    if (!code) code = check_operand(a);
    if (code) return code;
    if (is_conversation(a)) return chat_run(a);
    if (!a->chat && (a->system || a->template_file || a->template_args.n))
        return opts_wrong("run", "--system, --template and --template-arg require --chat");
    code = read_prompt(&prompt, a);
    if (!code) code = run_steps(&r, &prompt);
    free(prompt.p);
    fletch_free(r.prompt);
    sampling_close(&r.sampling);
    free(r.grammar);
    free(r.json_schema);
    free(r.tokens.p);
    free(r.text.p);
    json_decref(r.messages);
    host_close(&r.host);
    return code;
}

const struct command cmd_run = {
    .name = "run",
    .operands = "[MODEL] [TEXT]",
    .summary = "answer a question or continue a text",
    .about =
        "Continues the text given with -p, or answers TEXT using the model's chat template. Prints "
        "the output to stdout as the model generates it. Ctrl-C stops the output.\nMODEL is a GGUF "
        "file (for a split model, the first of its files), a Hugging Face directory, or a name "
        "from \"fletch list\". The default is the built-in model.\nIf text is piped to stdin, it "
        "is added to the end of the prompt, or is the prompt if no other prompt is given. On a "
        "terminal without any prompt, the command starts a conversation, as \"fletch chat\" does.",
    .groups = {&run_group, &opts_sampling, &opts_template, &opts_model, &opts_speculation,
               &opts_cache, &opts_place, &opts_common},
    .max_operands = 2,
    .run = run,
};
