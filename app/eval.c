/* fletch eval: how well a model predicts a text, and the logits it gives.
 *
 * A text longer than the context goes through in windows. Each window begins with one token that is
 * only read: the model's bos, or where it has none the last token of the window before. So every
 * token is predicted once, but for the first of a text without bos. */
#include "app.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct opt eval_opts[] = {
    {'f', "file", OPT_TEXT, "FILE", NULL, "text to evaluate (- for stdin)", OPT_FIELD(file), 0, 0},
    {0, "tokens", OPT_TEXT, "IDS", NULL,
     "token ids to evaluate instead of a text, for example 1,2,3", OPT_FIELD(tokens), 0, 0},
    {0, "logits", OPT_TEXT, "OUT", NULL,
     "write the logits of every token to OUT: one row per token, one little-endian float32 per "
     "vocabulary entry",
     OPT_FIELD(logits), 0, 0},
    {0, "chunk", OPT_COUNT, "N", "64", "tokens per prefill step", OPT_FIELD(chunk), 1, 65536},
    OPT_ROW_JSON,
};
static const struct opt_group eval_group = {NULL, OPT_TABLE(eval_opts)};

struct eval {
    const struct args *a;
    struct host host;
    int32_t *ids; /* the library's, or given.p */
    size_t n_ids;
    struct ids given;
    bool has_bos; /* ids[0] is it */
    float *logits;
    FILE *out;
    struct progress progress;
    size_t n_windows, n_read, n_scored;
    double sum, sum2; /* of -ln p and its square */
    double seconds;
};

/* -ln of the probability that softmax(logits) gives to id. */
static double surprise(const float *logits, size_t n, int32_t id)
{
    size_t top = 0;
    double sum = 0; /* of the others, relative to the top */
    for (size_t i = 1; i < n; i++)
        if (logits[i] > logits[top]) top = i;
    double max = logits[top];
    for (size_t i = 0; i < n; i++)
        if (i != top) sum += exp(logits[i] - max);
    return max - logits[id] + log1p(sum);
}

static int get_ids(struct eval *e)
{
    const struct args *a = e->a;
    struct text text;
    if (a->tokens) {
        int code = parse_ids(&e->given, "eval", "a token id", a->tokens);
        if (code) return code;
        for (size_t i = 0; i < e->given.n; i++)
            if ((uint32_t)e->given.p[i] >= e->host.info.n_vocab)
                return opts_wrong("eval", "token id %d is not between 0 and %u", e->given.p[i],
                                  e->host.info.n_vocab - 1);
        e->ids = e->given.p;
        e->n_ids = e->given.n;
        return EXIT_OK;
    }
    int code = read_text(&text, a->file);
    if (code) return code;
    int32_t *bos = NULL;
    size_t n_bos = 0;
    int rc = fletch_tokenize(e->host.model, "", 0, FLETCH_BOS, &bos, &n_bos);
    if (!rc) rc = fletch_tokenize(e->host.model, text.p, text.n, FLETCH_BOS, &e->ids, &e->n_ids);
    e->has_bos = n_bos > 0 && e->n_ids > 0 && e->ids[0] == bos[0];
    fletch_free(bos);
    free(text.p);
    return rc ? say_failure(rc, fletch_model_error(e->host.model)) : EXIT_OK;
}

/* Appends n ids to the session and scores what each predicts: the id after it, which is there for
 * the n-th too unless they are the window's last. */
static int feed(struct eval *e, const int32_t *ids, size_t n, bool last)
{
    size_t n_vocab = e->host.info.n_vocab;
    int rc = fletch_session_append(e->host.session, ids, n,
                                   &(struct fletch_append){.all_logits = e->logits});
    if (rc) return say_failure(rc, fletch_session_error(e->host.session));
    if (e->out && fwrite(e->logits, n_vocab * sizeof(float), n, e->out) != n)
        return say_error("%s: %s", QUOTE(e->a->logits), strerror(errno));
    for (size_t i = 0; i < n - last; i++) {
        double s = surprise(e->logits + i * n_vocab, n_vocab, ids[i + 1]);
        if (!isfinite(s))
            return say_error(
                "the model produced NaN or infinity for token %zu; run fletch inspect --check to "
                "look for bad weights",
                (size_t)e->n_read + i);
        e->sum += s;
        e->sum2 += s * s;
    }
    e->n_read += n;
    e->n_scored += n - last;
    return EXIT_OK;
}

/* One window: `lead` is read first, then ids[0..n). */
static int eval_window(struct eval *e, int32_t lead, const int32_t *ids, size_t n)
{
    size_t chunk = (size_t)e->a->chunk.v;
    int32_t *window = need(malloc((n + 1) * sizeof *window));
    window[0] = lead;
    memcpy(window + 1, ids, n * sizeof *ids);
    fletch_session_reset(e->host.session);
    int code = EXIT_OK;
    for (size_t i = 0; i <= n && !code; i += chunk) {
        size_t rows = n + 1 - i < chunk ? n + 1 - i : chunk;
        code = feed(e, window + i, rows, i + rows == n + 1);
        progress_report(&e->progress, (uint64_t)(ids - e->ids) + i + rows, e->n_ids);
    }
    free(window);
    e->n_windows++;
    return code;
}

/* Windows are as long as -c says. Otherwise they end where few texts would fill them. */
static size_t window_of(const struct eval *e)
{
    enum { DEFAULT = 8192 };
    size_t n_ctx = e->host.info.n_ctx;
    return e->a->n_ctx.set || e->a->logits || n_ctx < DEFAULT ? n_ctx : DEFAULT;
}

static int eval_all(struct eval *e)
{
    size_t n_ctx = window_of(e);
    if (!e->n_ids) return say_error("nothing to evaluate: the text has no tokens");
    if (e->a->logits && e->n_ids > n_ctx)
        return say_error("--logits requires that all %zu tokens fit in the context, which has %zu "
                         "tokens; set a longer context with -c",
                         e->n_ids, n_ctx);
    if (e->n_ids > 1 && n_ctx < 2)
        return say_error("a context of one token is too short to predict a token");
    size_t rows = (size_t)e->a->chunk.v < n_ctx ? (size_t)e->a->chunk.v : n_ctx;
    e->logits = need(calloc(rows * e->host.info.n_vocab, sizeof *e->logits));
    if (e->a->logits && !(e->out = fopen(e->a->logits, "wb")))
        return say_error("%s: %s", QUOTE(e->a->logits), strerror(errno));
    progress_begin(&e->progress, "evaluating", e->a);
    double began = now();
    int code;
    size_t i = 1;
    do {
        size_t n = e->n_ids - i < n_ctx - 1 ? e->n_ids - i : n_ctx - 1;
        code = eval_window(e, e->has_bos ? e->ids[0] : e->ids[i - 1], e->ids + i, n);
        i += n_ctx - 1;
    } while (!code && i < e->n_ids);
    e->seconds = now() - began;
    progress_end(&e->progress);
    if (e->out && fclose(e->out) && !code)
        code = say_error("%s: %s", QUOTE(e->a->logits), strerror(errno));
    return code;
}

/* The error bar comes from the spread of the tokens themselves, which few tokens don't show. */
static void warn_short(const struct eval *e)
{
    enum { MIN_SCORED = 500 };
    if (e->a->quiet || !e->n_scored || e->n_scored >= MIN_SCORED) return;
    fprintf(stderr,
            "fletch: %zu tokens are too few for a reliable standard error; evaluate at least %d "
            "tokens\n",
            e->n_scored, MIN_SCORED);
}

static void print_result(const struct eval *e)
{
    double n = (double)e->n_scored, mean = 0, error = 0;
    double speed = e->seconds > 0 ? (double)e->n_read / e->seconds : 0;
    if (e->n_scored) mean = e->sum / n;
    if (e->n_scored > 1) error = sqrt(fmax(e->sum2 / n - mean * mean, 0) / (n - 1));
    double perplexity = exp(mean);
    bool finite = e->n_scored && isfinite(perplexity);
    if (e->a->json) {
        json_t *j = need(json_pack(
            "{s:o, s:o, s:o, s:I, s:I, s:I, s:I, s:f, s:f}", "perplexity",
            finite ? json_real(perplexity) : json_null(), "perplexity_error",
            finite ? json_real(perplexity * error) : json_null(), "nll",
            finite ? json_real(mean) : json_null(), "n_tokens", (json_int_t)e->n_ids, "n_scored",
            (json_int_t)e->n_scored, "n_windows", (json_int_t)e->n_windows, "n_ctx",
            (json_int_t)window_of(e), "seconds", e->seconds, "tokens_per_second", speed));
        say_json(j);
        json_decref(j);
        return;
    }
    if (e->n_scored)
        printf("perplexity %.4f +- %.4f\n", perplexity, perplexity * error);
    else
        printf("perplexity: not defined for a single token\n");
    printf("%zu tokens%s, %zu predicted, in %zu window%s of at most %zu tokens; %.1f tokens/s\n",
           e->n_ids, e->has_bos ? " with bos" : "", e->n_scored, e->n_windows,
           e->n_windows == 1 ? "" : "s", window_of(e), speed);
}

static int eval_steps(struct eval *e)
{
    const struct args *a = e->a;
    int code = host_open_engine(&e->host, a->backend, a);
    if (code) return code;
    /* measure the model, not the cache, unless asked to */
    struct args exact = *a;
    if (!exact.kv_type) exact.kv_type = "f32";
    code = host_open_model(&e->host, a->operands.p[0], &exact);
    if (!code) code = get_ids(e);
    if (!code) code = host_open_session(&e->host);
    if (!code) code = eval_all(e);
    if (!code) {
        print_result(e);
        warn_short(e);
    }
    return code;
}

static int eval(const struct args *a)
{
    struct eval e = {.a = a};
    if (!a->file == !a->tokens)
        return opts_wrong("eval", "missing text: give -f FILE or --tokens IDS");
    int code = eval_steps(&e);
    if (e.ids != e.given.p) fletch_free(e.ids);
    free(e.given.p);
    free(e.logits);
    host_close(&e.host);
    return code;
}

const struct command cmd_eval = {
    .name = "eval",
    .operands = "MODEL",
    .summary = "measure perplexity, or write the logits of a text",
    .about = "Measures the model's perplexity on a text (the exponential of the mean of -ln p) "
             "with its standard error, and the speed. If the text is longer than the context, it "
             "is divided into windows of the context length, and every token is predicted once. "
             "The context has at most 8192 tokens unless -c is given.",
    .groups = {&eval_group, &opts_model, &opts_place, &opts_common},
    .min_operands = 1,
    .max_operands = 1,
    .run = eval,
};
