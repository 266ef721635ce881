/* Opens what a command works on, with the options that say how, and says what went wrong. */
#include "app.h"

#include <errno.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/os.h"

enum { LEAST_SNAPSHOTS = 16 }; /* where requests come from several conversations */

static const struct opt place_opts[] = {
    OPT_ROW_BACKEND,
    {'t', "threads", OPT_COUNT, "N", NULL, "use at most N threads (default: one per core)",
     OPT_FIELD(n_threads), 1, 1024},
    OPT_ROW_ISA,
    {0, "device", OPT_COUNT, "N", "0", "number of the GPU to use", OPT_FIELD(device), 0, 64},
    {0, "capture", OPT_TEXT, "FILE", NULL,
     "write a GPU trace for Xcode (metal only; requires MTL_CAPTURE_ENABLED=1)", OPT_FIELD(capture),
     0, 0},
    {0, "keep-alive", OPT_COUNT, "SECONDS", NULL,
     "how long an idle model stays in GPU memory (metal only; default: 180; 0 turns this off)",
     OPT_FIELD(keep_alive), 0, 1 << 30},
    {'v', "verbose", OPT_FLAG, NULL, NULL, "print the backend, model, seed and speed to stderr",
     OPT_FIELD(verbose), 0, 0},
};
const struct opt_group opts_place = {"Backend options", OPT_TABLE(place_opts)};

static const struct opt model_opts[] = {
    OPT_ROW_MODEL,
    {'c', "context", OPT_COUNT, "N", NULL,
     "context length in tokens, for prompt and output together (default: 0, which means as long as "
     "the model and memory allow)",
     OPT_FIELD(n_ctx), 0, UINT32_MAX},
    {0, "kv-type", OPT_CHOICE, FLETCH_KV_TYPES, NULL,
     "storage type of the KV cache (default: f32 for eval, otherwise depends on the backend)",
     OPT_FIELD(kv_type), 0, 0},
    {0, "act-type", OPT_CHOICE, "f32|int8|bf16", NULL,
     "type to which activations are rounded before they are multiplied by quantized weights "
     "(default: depends on the backend)",
     OPT_FIELD(act_type), 0, 0},
    OPT_ROW_MAX_MEMORY,
    OPT_ROW_NO_FUSE,
    OPT_ROW_AHEAD,
    OPT_ROW_IGNORE_UNKNOWN,
};
const struct opt_group opts_model = {"Model options", OPT_TABLE(model_opts)};

static const struct opt unknown_opts[] = {OPT_ROW_MODEL, OPT_ROW_IGNORE_UNKNOWN};
const struct opt_group opts_unknown = {"Model file options", OPT_TABLE(unknown_opts)};

static const struct opt speculation_opts[] = {
    {0, "spec", OPT_CHOICE, "auto|off", "auto",
     "auto: propose draft tokens from the context, and with the model's own MTP block if it has "
     "one, where measurements show that this is faster; off: use only the drafters that other "
     "options select",
     OPT_FIELD(spec), 0, 0},
    {0, "draft", OPT_TEXT, "MODEL", NULL,
     "let a smaller model with the same vocabulary propose draft tokens, several of which the main "
     "model checks in one step",
     OPT_FIELD(draft), 0, 0},
    {0, "ngram", OPT_FLAG, NULL, NULL,
     "propose only the tokens that followed an earlier occurrence of the latest tokens in the "
     "context",
     OPT_FIELD(ngram), 0, 0},
    {0, "mtp", OPT_FLAG, NULL, NULL,
     "let only the model's own MTP (multi-token prediction) block propose draft tokens",
     OPT_FIELD(mtp), 0, 0},
    {0, "spec-tokens", OPT_COUNT, "N", NULL,
     "number of draft tokens per step, of which a draft model or MTP block proposes at most 8 "
     "(default: adapts to the acceptance rate)",
     OPT_FIELD(spec_tokens), 1, 64},
    {0, "spec-accept", OPT_CHOICE, "equal|rejection", "equal",
     "how draft tokens are accepted. equal: only if the model chooses the same token, so the "
     "output does not change; rejection: by rejection sampling, so the tokens differ but their "
     "distribution does not",
     OPT_FIELD(spec_accept), 0, 0},
};
const struct opt_group opts_speculation = {"Speculative decoding", OPT_TABLE(speculation_opts)};

static const struct opt cache_opts[] = {
    {0, "cache-dir", OPT_TEXT, "FOLDER", NULL,
     "save the computed beginnings of prompts (prefixes) in FOLDER, so that later runs can reuse "
     "them (default: for serve, ~/.cache/fletch/prefixes; otherwise none)",
     OPT_FIELD(cache_dir), 0, 0},
    {0, "cache-disk", OPT_SIZE, "SIZE", NULL,
     "maximum size of that folder; the least recently used prefixes are deleted first; 0: save "
     "none "
     "(default: 8G, or a tenth of the free disk space if that is less)",
     OPT_FIELD(cache_disk), 0, 0},
};
const struct opt_group opts_cache = {"Prefix cache on disk", OPT_TABLE(cache_opts)};

void say_notice(void *ctx, const char *text)
{
    (void)ctx;
    fprintf(stderr, "fletch: %s\n", text);
}

void say_speed(FILE *out, const struct speed *s)
{
    const struct fletch_generated *made = s->made;
    size_t fresh = s->n_read - s->n_cached;
    fprintf(out, "prefill %zu", s->n_read);
    if (s->n_read < s->n_prompt) fprintf(out, " of %zu", s->n_prompt);
    fputs(" tokens", out);
    if (s->n_cached) fprintf(out, " (%zu cached)", s->n_cached);
    if (s->prefill_s > 0) fprintf(out, ", %.1f/s", (double)fresh / s->prefill_s);
    fprintf(out, "; decode %u tokens", made->n_tokens);
    if (s->decode_s > 0) fprintf(out, ", %.1f/s", (double)made->n_tokens / s->decode_s);
    if (!made->n_drafted) return;
    fprintf(out, "; %u of %u draft tokens accepted (%.0f %%), %.1f tokens per step",
            made->n_accepted, made->n_drafted, 100.0 * made->n_accepted / made->n_drafted,
            (double)made->n_tokens / (made->n_tokens - made->n_accepted));
}

/* Nothing says which drafters to use. */
static bool speculates_by_itself(const struct args *a)
{
    return a->spec && strcmp(a->spec, "auto") == 0 && !a->ngram && !a->mtp;
}

/* An option that means nothing without another was meant to mean something. */
static int check_pairs(const struct args *a)
{
    bool drafts = speculates_by_itself(a) || a->draft || a->ngram || a->mtp;
    bool rejection = a->spec_accept && strcmp(a->spec_accept, "rejection") == 0;
    if (!drafts && (a->spec_tokens.set || rejection))
        return opts_wrong("", "with --spec off, --spec-tokens and --spec-accept require --draft, "
                              "--ngram or --mtp");
    if (!a->cache_dir && a->cache_disk.set && a->cache_disk.v)
        return opts_wrong("", "--cache-disk requires --cache-dir");
    return EXIT_OK;
}

/* With --verbose, or where it is slower than it need be. */
static void say_backend(const struct host *h, const struct args *a)
{
    const char *used = fletch_engine_backend(h->engine);
    bool on_gpu = strncmp(used, "cuda", 4) == 0 || strncmp(used, "metal", 5) == 0;
    bool is_auto = a->backend && strcmp(a->backend, "auto") == 0;
    bool slow = is_auto && !on_gpu && (strncmp(used, "ref", 3) == 0 || os_has_gpu());
    if ((a->verbose || slow) && !a->quiet) fprintf(stderr, "backend %s\n", used);
}

/* As struct fletch_engine_params has it. */
static int32_t keep_alive(const struct args *a)
{
    if (!a->keep_alive.set) return 0;
    return a->keep_alive.v > 0 ? (int32_t)a->keep_alive.v : -1;
}

int host_open_engine(struct host *h, const char *backend, const struct args *a)
{
    int code = check_pairs(a);
    if (code) return code;
    char *tune_dir = user_folder(TUNED_FOLDER);
    struct fletch_engine_params params = {.backend = backend,
                                          .tune_dir = tune_dir,
                                          .n_threads = (uint32_t)a->n_threads.v,
                                          .isa = a->isa,
                                          .device = (uint32_t)a->device.v,
                                          .capture = a->capture,
                                          .keep_alive = keep_alive(a)};
    int rc = fletch_engine_open(&h->engine, &params);
    free(tune_dir);
    if (rc) return say_failure(rc, h->engine ? fletch_engine_error(h->engine) : NULL);
    say_backend(h, a);
    return EXIT_OK;
}

static enum fletch_ahead ahead_of(const struct args *a)
{
    return !a->ahead || strcmp(a->ahead, "auto") == 0 ? FLETCH_AHEAD_AUTO
           : strcmp(a->ahead, "always") == 0          ? FLETCH_AHEAD_ALWAYS
                                                      : FLETCH_AHEAD_NEVER;
}

/* Of a conversation: where its system prompt ends, where its last question begins, and two ends. */
static uint32_t snapshots_for(uint32_t parallel)
{
    if (parallel < 2) return parallel;
    return parallel < LEAST_SNAPSHOTS ? LEAST_SNAPSHOTS : parallel;
}

void host_params(struct fletch_model_params *params, const struct args *a)
{
    *params = (struct fletch_model_params){
        .n_ctx = (uint32_t)a->n_ctx.v,
        .max_rows = (uint32_t)a->chunk.v,
        .kv_type = a->kv_type,
        .act_type = a->act_type,
        .no_fuse = a->no_fuse,
        .ahead = ahead_of(a),
        .max_memory = a->max_memory.v,
        .n_sessions = (uint32_t)a->parallel.v,
        .kv_tokens = a->cache_tokens.v,
        .n_snapshots = snapshots_for((uint32_t)a->parallel.v),
        .cache_dir = a->cache_disk.set && !a->cache_disk.v ? NULL : a->cache_dir,
        .cache_bytes = a->cache_disk.v,
        .cache_optional = a->cache_optional,
        .notice = a->quiet ? NULL : say_notice,
        .ignore_unknown = a->ignore_unknown,
        .speculation = {.automatic = speculates_by_itself(a),
                        .draft = a->draft,
                        .ngram = a->ngram,
                        .mtp = a->mtp,
                        .n_tokens = (uint32_t)a->spec_tokens.v,
                        .rejection = a->spec_accept && strcmp(a->spec_accept, "rejection") == 0},
    };
}

/* What it would take, for people who just read that it does not fit. */
static void say_plan(struct host *h, const char *path, const struct fletch_model_params *params)
{
    struct fletch_model_params quiet = *params; /* what there is to notice was said */
    char *text;
    quiet.notice = NULL;
    if (!path || fletch_plan(h->engine, path, &quiet, &text)) return;
    json_t *j = json_loads(text, 0, NULL);
    if (j) report_parts(stderr, j);
    json_decref(j);
    fletch_free(text);
}

int host_check_path(const char *path)
{
    size_t n = path ? strlen(path) : 0;
    bool is_file = n > 5 && strcasecmp(path + n - 5, ".gguf") == 0;
    if (!path || access(path, R_OK) == 0) return EXIT_OK;
    if (strchr(path, '/') || is_file || access(path, F_OK) == 0)
        return say_error("%s: %s", QUOTE(path), strerror(errno));
    return say_error("no model %s on this machine; \"fletch list\" shows the available models, "
                     "\"fletch pull OWNER/REPO\" downloads one",
                     QUOTE(path));
}

int host_open_model(struct host *h, const char *path, const struct args *a)
{
    int found = host_check_path(path);
    if (found) return found;
    struct fletch_model_params params;
    struct progress progress;
    char *template_text = NULL;
    if (a->template_file && !a->template_text) {
        int code = read_string(&template_text, a->template_file);
        if (code) return code;
    }
    progress_begin(&progress, "loading", a);
    host_params(&params, a);
    params.chat_template = a->template_text ? a->template_text : template_text;
    params.keep_own_template = a->model_dir != NULL;
    params.progress = progress_report;
    params.progress_ctx = &progress;
    params.text_only = h->text_only;
    if (params.notice && h->notice) params.notice = h->notice;
    params.notice_ctx = h->notice_ctx;
    int rc;
    if (path)
        rc = fletch_model_open(&h->model, h->engine, path, &params);
    else
        rc = fletch_model_open_image(&h->model, h->engine, builtin_model,
                                     (size_t)builtin_model_size, &params);
    progress_end(&progress);
    free(template_text);
    if (rc) {
        int code = say_model_failure(rc, fletch_engine_error(h->engine));
        if (code == EXIT_FIT) say_plan(h, path, &params);
        return code;
    }
    fletch_model_info(h->model, &h->info);
    return chat_check_options(h, a);
}

int host_open_session(struct host *h)
{
    int rc = fletch_session_open(&h->session, h->model);
    return rc ? say_failure(rc, fletch_model_error(h->model)) : EXIT_OK;
}

void host_close(struct host *h)
{
    fletch_session_close(h->session);
    fletch_model_close(h->model);
    fletch_engine_close(h->engine);
    memset(h, 0, sizeof *h);
}
