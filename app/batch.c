/* fletch batch: a file of requests, one JSON object a line, many at once; answers as they come. */
#include "parse.h"
#include "settings.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LINE_MAX_BYTES = 1 << 26 };

static const struct opt batch_opts[] = {
    {'o', "output", OPT_TEXT, "FILE", NULL,
     "write answers to FILE instead of stdout, and skip requests that FILE already answers",
     OPT_FIELD(out), 0, 0},
    {0, "parallel", OPT_COUNT, "N", "8", "maximum number of requests that run concurrently",
     OPT_FIELD(parallel), 1, 1024},
    {0, "cache-tokens", OPT_COUNT, "N", NULL,
     "size of the KV cache in tokens, shared by all requests (default: with -c, a full context per "
     "request; otherwise up to 8192 tokens per request, but at least one full context in total)",
     OPT_FIELD(cache_tokens), 1, UINT32_MAX},
    {'n', "max-tokens", OPT_COUNT, "N", "256",
     "generate at most N tokens for a request without max_tokens; -1 means no limit",
     OPT_FIELD(n_tokens), -1, UINT32_MAX},
    {0, "no-reuse", OPT_FLAG, NULL, NULL,
     "prefill every prompt from the beginning, without reusing the beginnings of other prompts",
     OPT_FIELD(no_reuse), 0, 0},
};
static const struct opt_group batch_group = {NULL, OPT_TABLE(batch_opts)};

struct batch {
    const struct args *a;
    struct host host;
    struct sampling sampling;
    struct limits limits;
    struct fletch_batch *b;
    bool shows_control; /* in answers of chats */
    FILE *in, *out;
    json_t *seen;  /* ids as JSON texts: true where an answer was there before this run */
    json_t *given; /* those that lines of the input have, as far as it was looked through */
    size_t n_lines, n_skipped, n_done, n_failed, n_tokens, n_live;
    double began;
    int code; /* what went wrong with files */
};

/* One request from its line to its answer. */
struct job {
    struct batch *b;
    json_t *id;
    struct request_settings set; /* borrow from line */
    int32_t *prompt;             /* the library's */
    struct ids tokens;
    json_t *line, *logprobs;
    struct tools *parser; /* of chats; NULL: the text is as the model writes it */
    struct text text, thought;
    json_t *calls; /* NULL: none */
    char error[256];
};

/* ---- answers ---- */

static void write_line(struct batch *b, json_t *answer)
{
    char *text = need(json_dumps(answer, JSON_COMPACT | JSON_REAL_PRECISION(9)));
    fprintf(b->out, "%s\n", text);
    free(text);
    if (fflush(b->out) && !b->code)
        b->code = say_error("%s: %s", b->a->out ? QUOTE(b->a->out) : "stdout", strerror(errno));
}

static void job_free(struct job *j)
{
    json_decref(j->id);
    json_decref(j->line);
    json_decref(j->logprobs);
    fletch_free(j->prompt);
    settings_free(&j->set);
    free(j->tokens.p);
    free(j->text.p);
    free(j->thought.p);
    json_decref(j->calls);
    tools_close(j->parser);
    free(j);
}

/* Also for those that were never submitted. */
static void answer_failure(struct job *j, const char *why)
{
    json_t *answer =
        need(json_pack("{s:O, s:o}", "id", j->id, "error", json_text(why, strlen(why))));
    write_line(j->b, answer);
    json_decref(answer);
    j->b->n_failed++;
}

static void add_text(struct text *to, const char *text, size_t n)
{
    to->p = need(realloc(to->p, to->n + n + 1));
    memcpy(to->p + to->n, text, n);
    to->n += n;
}

static void on_piece(void *ctx, const struct tools_piece *p)
{
    struct job *j = ctx;
    if (p->part == TOOLS_CONTENT) add_text(&j->text, p->text, p->n);
    if (p->part == TOOLS_REASONING) add_text(&j->thought, p->text, p->n);
    if (p->part != TOOLS_CALL) return;
    if (!j->calls) j->calls = need(json_array());
    json_array_append_new(j->calls, need(json_pack("{s:s, s:s, s:{s:s, s:o}}", "id", p->id, "type",
                                                   "function", "function", "name", p->name,
                                                   "arguments", json_text(p->text, p->n))));
}

static int on_token(void *ctx, const struct fletch_token *t)
{
    struct job *j = ctx;
    if (!j->parser)
        add_text(&j->text, t->text, t->n_text);
    else if (tools_feed(j->parser, t->text, t->n_text))
        need(NULL);
    if (t->id < 0) return 0;
    ids_add(&j->tokens, t->id);
    if (!j->logprobs) return 0;
    json_t *top = need(json_array());
    for (uint32_t i = 0; i < t->n_top; i++)
        json_array_append_new(top,
                              json_pack("[i, f]", (int)t->top_ids[i], (double)t->top_logprobs[i]));
    json_array_append_new(j->logprobs,
                          json_pack("{s:f, s:o}", "logprob", (double)t->logprob, "top", top));
    return 0;
}

static void answer(struct job *j, const struct fletch_result *r)
{
    static const char *const finish[] = {"length",      "end",       "stop",    "context",
                                         "interrupted", "cancelled", "timeout", "failed"};
    json_t *tokens = need(json_array());
    if (j->parser) tools_end(j->parser);
    for (size_t i = 0; i < j->tokens.n; i++)
        json_array_append_new(tokens, json_integer(j->tokens.p[i]));
    json_t *line = need(
        json_pack("{s:O, s:o, s:o, s:s, s:I, s:I, s:I, s:s, s:I, s:f, s:f}", "id", j->id, "text",
                  json_text(j->text.p ? j->text.p : "", j->text.n), "tokens", tokens,
                  "finish_reason", finish[r->finish], "n_prompt", (json_int_t)r->n_prompt,
                  "n_generated", (json_int_t)r->n_generated, "n_reused", (json_int_t)r->n_reused,
                  "reuse_end", r->reuse_end, "n_preempted", (json_int_t)r->n_preempted,
                  "first_token_seconds", r->first_token_seconds, "seconds", r->seconds));
    if (j->thought.n) json_object_set_new(line, "reasoning", json_text(j->thought.p, j->thought.n));
    if (j->calls) json_object_set(line, "tool_calls", j->calls);
    if (j->logprobs) json_object_set(line, "logprobs", j->logprobs);
    if (r->n_drafted)
        json_object_set_new(line, "speculation",
                            json_pack("{s:I, s:I}", "n_drafted", (json_int_t)r->n_drafted,
                                      "n_accepted", (json_int_t)r->n_accepted));
    write_line(j->b, line);
    json_decref(line);
    j->b->n_done++;
    j->b->n_tokens += r->n_generated;
}

static void on_done(void *ctx, const struct fletch_result *r)
{
    struct job *j = ctx;
    j->b->n_live--;
    if (r->finish == FLETCH_FINISH_FAILED)
        answer_failure(j, r->error);
    else if (r->finish != FLETCH_FINISH_CANCELLED) /* interrupted: not answered */
        answer(j, r);
    job_free(j);
}

/* ---- lines ---- */

static bool wrong(struct job *j, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Always false, so that a taker can end with it. */
static bool wrong(struct job *j, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(j->error, sizeof j->error, fmt, args);
    va_end(args);
    return false;
}

static bool take_other(struct job *j, const char *key, json_t *v)
{
    const struct setting_field *x = settings_find(key);
    struct setting_error e = {.limit = N_LIMITS};
    const json_t *twin = x && x->alias_of ? json_object_get(j->line, x->alias_of) : NULL;
    if (twin && !json_is_null(twin))
        return wrong(j, "%s is another name for %s; give only one of them", key, x->alias_of);
    if (x) return !x->take(x, &j->set, v, key, &e) || wrong(j, "%s", e.text);
    if (strcmp(key, "timeout") == 0) {
        j->set.r.timeout = json_number_value(v);
        return (json_is_number(v) && j->set.r.timeout > 0) ||
               wrong(j, "timeout must be a positive number of seconds");
    }
    json_int_t n = json_is_integer(v) ? json_integer_value(v) : INT64_MIN; /* out of every range */
    if (strcmp(key, "logprobs") == 0) {
        j->set.r.n_logprobs = (uint32_t)n + 1;
        j->logprobs = need(json_array());
        return (n >= 0 && n <= 20) || wrong(j, "logprobs must be an integer from 0 to 20");
    }
    if (strcmp(key, "priority") == 0) {
        j->set.r.priority = (int32_t)n;
        return (n >= -1000 && n <= 1000) ||
               wrong(j, "priority must be an integer from -1000 to 1000");
    }
    if (strcmp(key, "choice") == 0) {
        j->set.r.sampling.choice = (uint32_t)n;
        return (n >= 0 && n <= UINT32_MAX) || wrong(j, "choice must be a non-negative integer");
    }
    return wrong(j, "unknown field %s", QUOTE(key));
}

static bool take_ids(struct job *j, const json_t *v)
{
    j->prompt = need(malloc((json_array_size(v) + 1) * sizeof *j->prompt));
    for (size_t i = 0; i < json_array_size(v); i++) {
        json_int_t id = json_integer_value(json_array_get(v, i));
        if (!json_is_integer(json_array_get(v, i)) || id < 0 || id > INT32_MAX)
            return wrong(j, "tokens must be an array of token ids");
        j->prompt[i] = (int32_t)id;
    }
    j->set.r.n_tokens = json_array_size(v);
    return true;
}

static bool take_messages(struct job *j, const json_t *v)
{
    struct chat chat;
    const json_t *tools = json_object_get(j->line, "tools");
    if (tools && !json_is_array(tools)) return wrong(j, "tools must be an array");
    int rc = chat_open(&chat, v, tools, j->b->a, "batch");
    if (!rc && fletch_chat_tokenize(j->b->host.model, &chat.c, &j->prompt, &j->set.r.n_tokens))
        rc = !wrong(j, "%s", fletch_model_error(j->b->host.model));
    chat_close(&chat);
    if (rc) return false;
    const struct tools_params p = {.tools = json_array_size(tools) ? tools : NULL,
                                   .seed = j->set.r.sampling.seed,
                                   .on_piece = on_piece,
                                   .ctx = j};
    j->parser = parse_open(&j->b->host, j->prompt, j->set.r.n_tokens, &p);
    j->set.r.show_control = j->b->shows_control;
    return true;
}

/* Exactly one of prompt, messages and tokens. */
static bool take_prompt(struct job *j)
{
    json_t *prompt = json_object_get(j->line, "prompt"),
           *tokens = json_object_get(j->line, "tokens");
    json_t *messages = json_object_get(j->line, "messages");
    if (!prompt + !tokens + !messages != 2)
        return wrong(j, "exactly one of prompt, messages and tokens is required");
    if (tokens)
        return json_is_array(tokens) ? take_ids(j, tokens)
                                     : wrong(j, "tokens must be an array of token ids");
    if (messages)
        return json_is_array(messages) ? take_messages(j, messages)
                                       : wrong(j, "messages must be an array");
    if (!json_is_string(prompt)) return wrong(j, "prompt must be a string");
    if (fletch_tokenize(j->b->host.model, json_string_value(prompt), json_string_length(prompt),
                        FLETCH_BOS, &j->prompt, &j->set.r.n_tokens))
        return wrong(j, "%s", fletch_model_error(j->b->host.model));
    return true;
}

static bool take_line(struct job *j)
{
    static const char *const elsewhere[] = {"id", "prompt", "messages", "tokens", "tools"};
    const char *key;
    json_t *v;
    json_object_foreach(j->line, key, v)
    {
        bool known = false;
        for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++)
            known |= strcmp(key, elsewhere[i]) == 0;
        if (!known && !json_is_null(v) && !take_other(j, key, v)) return false;
    }
    return take_prompt(j);
}

/* ---- ids ---- */

/* What an id is filed under. */
static char *id_key(const json_t *id)
{
    return need(json_dumps(id, JSON_ENCODE_ANY | JSON_COMPACT));
}

/* What a line may be called by. */
static bool is_id(const json_t *id)
{
    return json_is_string(id) || json_is_integer(id);
}

/* A line without an id is called by its number, or "line N" where another line is called N. */
static json_t *number_id(const struct batch *b)
{
    json_t *id = need(json_integer((json_int_t)b->n_lines));
    for (int n_marks = 0;; n_marks++) {
        static const char marks[] = "''''''''";
        char *key = id_key(id);
        bool taken = json_object_get(b->given, key) || json_is_false(json_object_get(b->seen, key));
        free(key);
        if (!taken || n_marks == sizeof marks) return id;
        json_decref(id);
        id = need(json_sprintf("line %zu%.*s", b->n_lines, n_marks, marks));
    }
}

/* The line's own id, or its number. False: it was answered before. */
static bool take_id(struct job *j)
{
    struct batch *b = j->b;
    json_t *id = json_object_get(j->line, "id");
    j->id = is_id(id) ? json_incref(id) : number_id(b);
    if (id && !is_id(id)) return !wrong(j, "id must be a string or an integer");
    char *key = id_key(j->id);
    json_t *before = json_object_get(b->seen, key);
    if (!before) json_object_set_new(b->seen, key, json_false());
    if (json_is_false(before)) wrong(j, "the id %s is used by an earlier request", QUOTE(key));
    free(key);
    return !json_is_true(before);
}

/* Which ids the lines of a file have, so that none is given to a line without one; what comes
 * through a pipe can't be looked through. */
static int find_ids(struct batch *b)
{
    struct stat st;
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    b->given = need(json_object());
    if (fstat(fileno(b->in), &st) || !S_ISREG(st.st_mode)) return EXIT_OK;
    long began = ftell(b->in);
    while ((n = getline(&line, &cap, b->in)) > 0) {
        json_t *j = json_loadb(line, (size_t)n, 0, NULL), *id = json_object_get(j, "id");
        if (is_id(id)) {
            char *key = id_key(id);
            json_object_set_new(b->given, key, json_true());
            free(key);
        }
        json_decref(j);
    }
    free(line);
    if (!ferror(b->in) && began >= 0 && fseek(b->in, began, SEEK_SET) == 0) return EXIT_OK;
    return say_error("cannot read the requests");
}

static void submit(struct batch *b, const char *text, size_t n)
{
    json_error_t at;
    struct job *j = need(calloc(1, sizeof *j));
    j->b = b;
    j->set.limits = &b->limits;
    j->set.r.sampling = sampling_over(&b->sampling, &b->host.info.sampling);
    if (!b->a->seed.set) j->set.r.sampling.seed = 0; /* the same file gives the same answers */
    j->set.r.max_tokens = (uint32_t)b->a->n_tokens.v;
    j->set.r.on_token = on_token;
    j->set.r.on_done = on_done;
    j->set.r.ctx = j;
    j->line = json_loadb(text, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &at);
    if (!take_id(j)) {
        b->n_skipped++;
        job_free(j);
        return;
    }
    if (!json_is_object(j->line))
        wrong(j, "line %zu is not a JSON object: %s", b->n_lines,
              j->line ? "it is another type of JSON value" : at.text);
    if (!*j->error && take_line(j)) {
        j->set.r.tokens = j->prompt;
        if (fletch_batch_submit(b->b, &j->set.r, NULL) == 0) {
            b->n_live++;
            return;
        }
        wrong(j, "%s", fletch_batch_error(b->b));
    }
    answer_failure(j, j->error);
    job_free(j);
}

/* ---- files ---- */

/* Whether a line is an answer or, as a kill leaves the last one, the beginning of one. Other files
 * are neither cut nor written to, the requests' own least of all. */
static bool is_answer(const json_t *j, const char *line, size_t n)
{
    static const char head[] = "{\"id\":";
    size_t n_head = sizeof head - 1;
    if (j) return json_object_get(j, "error") || json_object_get(j, "finish_reason");
    return line[n - 1] != '\n' && memcmp(line, head, n < n_head ? n : n_head) == 0;
}

/* The file for answers, which nobody else adds to until it is closed; *old: it is a regular file,
 * whose answers count. */
static int open_answers(struct batch *b, bool *old)
{
    struct stat st, named;
    int fd = open(b->a->out, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0 && errno == EACCES) fd = open(b->a->out, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st)) {
        if (fd >= 0) close(fd);
        return say_error("%s: %s", QUOTE(b->a->out), strerror(errno));
    }
    *old = S_ISREG(st.st_mode); /* not a pipe, nor a terminal */
    bool ours = !*old || (flock(fd, LOCK_EX | LOCK_NB) == 0 && stat(b->a->out, &named) == 0 &&
                          named.st_ino == st.st_ino && named.st_dev == st.st_dev);
    if (!ours) {
        close(fd);
        return say_error("%s is in use by another fletch batch", QUOTE(b->a->out));
    }
    b->out = need(fdopen(fd, *old ? "a+b" : "ab"));
    return EXIT_OK;
}

/* Answers that are there already stay, in order; failures go, because their requests are tried
 * again, and so does a last line without an end, which was being written when the program was
 * killed. *kept receives the new file's text; false: there are other lines. */
static bool sort_answers(struct batch *b, FILE *kept, bool *changed)
{
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    bool good = true;
    rewind(b->out);
    while (good && (n = getline(&line, &cap, b->out)) > 0) {
        json_t *j = json_loadb(line, (size_t)n, 0, NULL), *id = json_object_get(j, "id");
        good = is_answer(j, line, (size_t)n);
        bool keep = line[n - 1] == '\n' && !json_object_get(j, "error");
        if (keep && id) {
            char *key = id_key(id);
            json_object_set_new(b->seen, key, json_true());
            free(key);
        }
        if (keep)
            fwrite(line, 1, (size_t)n, kept);
        else
            *changed = true;
        json_decref(j);
    }
    free(line);
    return good;
}

/* Puts a file of the kept lines in the place of the old one. A kill leaves one or the other, and
 * the lock is held all the time: by the new file before it has the name. */
static int replace_answers(struct batch *b, FILE *kept, const char *temp)
{
    struct stat st;
    bool failed = ferror(kept) || fflush(kept) || fstat(fileno(b->out), &st);
    failed = failed || flock(fileno(kept), LOCK_EX | LOCK_NB);
    failed = failed || fchmod(fileno(kept), st.st_mode & 0777) || rename(temp, b->a->out);
    if (failed) return say_error("%s: %s", QUOTE(b->a->out), strerror(errno));
    return EXIT_OK;
}

static int read_answers(struct batch *b)
{
    char temp[4096];
    bool changed = false;
    int n = snprintf(temp, sizeof temp, "%s.XXXXXX", b->a->out);
    int fd = n > 0 && (size_t)n < sizeof temp ? mkostemp(temp, O_APPEND | O_CLOEXEC) : -1;
    if (fd < 0) return say_error("cannot create %s: %s", QUOTE(temp), strerror(errno));
    FILE *kept = need(fdopen(fd, "a+b"));
    int code = EXIT_OK;
    if (!sort_answers(b, kept, &changed))
        code = say_error("%s contains lines that are not answers; give another file with -o",
                         QUOTE(b->a->out));
    else if (ferror(b->out))
        code = say_error("%s: %s", QUOTE(b->a->out), strerror(errno));
    else if (changed)
        code = replace_answers(b, kept, temp);
    if (code || !changed) {
        unlink(temp);
        fclose(kept);
        return code;
    }
    fclose(b->out);
    b->out = kept;
    return EXIT_OK;
}

static int open_files(struct batch *b)
{
    const char *in = b->a->operands.p[b->a->operands.n - 1];
    bool old = false;
    b->in = strcmp(in, "-") == 0 ? stdin : fopen(in, "rb");
    if (!b->in) return say_error("%s: %s", QUOTE(in), strerror(errno));
    b->out = stdout;
    b->seen = need(json_object());
    int code = find_ids(b);
    if (code || !b->a->out) return code;
    b->out = NULL;
    code = open_answers(b, &old);
    return code || !old ? code : read_answers(b);
}

/* Runs steps while there are lines or requests; twice as many are read as run, so that there is
 * always one to go on with. */
static int run_all(struct batch *b)
{
    char *line = NULL;
    size_t cap = 0, most = 2 * (size_t)b->a->parallel.v;
    bool more = true;
    b->began = now();
    while (!interrupted && !b->code && (more || b->n_live)) {
        while (more && b->n_live < most && !b->code) {
            ssize_t n = getline(&line, &cap, b->in);
            more = n > 0;
            b->n_lines += more;
            if (n > LINE_MAX_BYTES) b->code = say_error("line %zu is too long", b->n_lines);
            if (more && !b->code && strspn(line, " \t\r\n") < (size_t)n) submit(b, line, (size_t)n);
        }
        fletch_batch_step(b->b, 0);
    }
    free(line);
    if (ferror(b->in) && !b->code) b->code = say_error("cannot read the requests");
    return b->code;
}

static void say_end(const struct batch *b)
{
    struct fletch_batch_stats s;
    double seconds = now() - b->began;
    fletch_batch_stats(b->b, &s);
    if (interrupted)
        fprintf(stderr, "interrupted; run the same command with -o again to continue\n");
    fprintf(stderr,
            "%zu answered, %zu failed, %zu already answered; %zu tokens in %.1f s, %.1f/s\n",
            b->n_done, b->n_failed, b->n_skipped, b->n_tokens, seconds,
            seconds > 0 ? (double)b->n_tokens / seconds : 0);
    if (b->a->verbose)
        fprintf(stderr,
                "%llu steps, %llu with both prefill and decode, %llu submitted ahead; at most %u "
                "requests at once; %llu of %llu prompt tokens cached; %llu preemptions\n",
                (unsigned long long)s.n_steps, (unsigned long long)s.n_mixed,
                (unsigned long long)s.n_ahead, s.most_running, (unsigned long long)s.n_reused,
                (unsigned long long)s.n_prompt, (unsigned long long)s.n_preemptions);
    if (b->a->verbose && s.n_drafted)
        fprintf(stderr, "%llu of %llu draft tokens accepted\n", (unsigned long long)s.n_accepted,
                (unsigned long long)s.n_drafted);
}

/* Once, instead of in the answer of every chat. */
static int check_template(const struct args *a)
{
    struct chat chat;
    json_t *nothing = need(json_array());
    int code = chat_open(&chat, nothing, NULL, a, "batch");
    chat_close(&chat);
    json_decref(nothing);
    return code;
}

static int batch_steps(struct batch *b)
{
    const struct args *a = b->a;
    int code = sampling_open(&b->sampling, a, "batch");
    if (!code) code = check_template(a);
    if (!code) code = open_files(b);
    if (!code) code = host_open_engine(&b->host, a->backend, a);
    if (code) return code;
    code = host_open_model(&b->host, a->operands.n > 1 ? a->operands.p[0] : NULL, a);
    if (code) return code;
    b->shows_control = parse_needs_control(&b->host);
    struct fletch_batch_params params = {.no_reuse = a->no_reuse};
    int rc = fletch_batch_open(&b->b, b->host.model, &params);
    if (rc) return say_failure(rc, fletch_model_error(b->host.model));
    interrupt_catch((int)SA_RESETHAND);
    code = run_all(b);
    if (!a->quiet) say_end(b);
    return code || interrupted || b->n_failed ? EXIT_FAIL : EXIT_OK;
}

static int batch(const struct args *a)
{
    struct batch b = {.a = a};
    for (size_t i = 0; i < N_LIMITS; i++)
        b.limits.v[i] = UINT32_MAX; /* who writes the file runs it */
    b.limits.v[LIMIT_stops] = limit_table[LIMIT_stops].value;
    int code = batch_steps(&b);
    fletch_batch_close(b.b);
    sampling_close(&b.sampling);
    if (b.in && b.in != stdin) fclose(b.in);
    if (b.out && b.out != stdout && fclose(b.out) && !code)
        code = say_error("%s: %s", QUOTE(a->out), strerror(errno));
    json_decref(b.seen);
    json_decref(b.given);
    host_close(&b.host);
    return code;
}

const struct command cmd_batch = {
    .name = "batch",
    .operands = "[MODEL] FILE",
    .summary = "answer a file of requests in parallel",
    .about =
        "Reads requests from FILE (- for stdin), one JSON object per line, and runs them in "
        "parallel. Writes each answer as a JSON object on one line, in the order in which the "
        "answers complete. An answer does not depend on the other requests.\nA request contains "
        "prompt (text), messages (formatted with the chat template, optionally with tools), or "
        "tokens (token ids). It can also contain id, max_tokens, temperature, top_k, top_p, min_p, "
        "repeat_penalty, presence_penalty, frequency_penalty, penalty_window, no_repeat_ngram, "
        "logit_bias, seed (default 0), choice, stop, ignore_end, grammar, json_schema, "
        "response_format, logprobs, priority and timeout. Options on the command line set the "
        "defaults. If a request has no id, its id is its line number, or \"line N\" if another "
        "request already has the id N.\nAn answer contains id, text, tokens, finish_reason and "
        "statistics. The answer to a chat contains reasoning and tool_calls separately from text. "
        "If a request fails, its line contains id and error.\nWith -o, the command can be "
        "interrupted and run again. It then skips requests that were answered and retries requests "
        "that failed. Only one process at a time can write to the file.",
    .groups = {&batch_group, &opts_sampling, &opts_template, &opts_model, &opts_speculation,
               &opts_cache, &opts_place, &opts_common},
    .min_operands = 1,
    .max_operands = 2,
    .run = batch,
};
