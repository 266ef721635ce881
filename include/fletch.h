/* fletch: run language models on your own machine. The public interface of libfletch.
 *
 *   engine > model > session. An engine chooses where things run; a model is loaded once; a session
 *   is one timeline of tokens on a model. Close in reverse order; closing NULL is fine.
 *
 * Functions return 0 or a negative code; the handle they were called on keeps one line of text
 * about the last failure (fletch_engine_error and so on). An open that fails leaves its text in the
 * handle it was given. NULL is taken everywhere: a pointer to settings means their defaults, and
 * what must be there is FLETCH_E_ARG. Memory that a function hands out (char **, int32_t **) is
 * freed with fletch_free.
 *
 * Threads: a session, and a batch but for its submit and cancel, is used by one thread at a time.
 * Different sessions and batches of one model may be used by different threads: their steps take
 * turns, in the order of asking, and what each gives does not depend on the others. They may be
 * opened and closed at any time. The model's own functions (tokenize, chat, info) may run beside
 * them, in one thread at a time, because of the model's error text. An engine is used by one thread
 * at a time; different engines are independent. While a callback of fletch_session_generate runs,
 * other threads may use the model, but it must not wait for one that uses the same session; while a
 * callback of fletch_batch_step runs, they wait, so it must not wait for them. Either may use other
 * sessions itself, but not the one that it is a callback of, except to cancel it. */
#ifndef FLETCH_H
#define FLETCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FLETCH_VERSION "0.1.0"
#define FLETCH_API     __attribute__((visibility("default")))

#define FLETCH_ERRORS(X)                                \
    X(NOMEM, -1, "out of memory")                       \
    X(IO, -2, "cannot read or write a file")            \
    X(FORMAT, -3, "bad model file")                     \
    X(UNSUPPORTED, -4, "not supported")                 \
    X(ARG, -5, "bad argument")                          \
    X(LIMIT, -6, "limit exceeded")                      \
    X(FIT, -7, "does not fit in memory")                \
    X(CONTEXT, -8, "context full")                      \
    X(CANCELLED, -9, "cancelled")                       \
    X(VOCAB, -10, "the model has no vocabulary")        \
    X(TEMPLATE, -11, "chat template failed")            \
    X(BACKEND, -12, "backend failed or is unavailable") \
    X(INTERNAL, -13, "internal error")

enum fletch_error_code {
    FLETCH_OK = 0,
#define FLETCH_ERROR_ENUM(name, code, text) FLETCH_E_##name = code,
    FLETCH_ERRORS(FLETCH_ERROR_ENUM)
#undef FLETCH_ERROR_ENUM
};

FLETCH_API const char *fletch_strerror(int code);
/* Version, compiler and the backends of this build in one line. */
FLETCH_API const char *fletch_version(void);
FLETCH_API void fletch_free(void *p);

/* ---- engine ---- */

struct fletch_engine;

struct fletch_engine_params {
    const char *backend; /* auto (NULL), metal, cuda, cpu, ref, emu */
    uint32_t n_threads;  /* at most: others that use the processors get some; 0: one per core */
    const char *isa;     /* of the cpu backend: amx, avx512, avx2, ..., generic; NULL: the best */
    uint32_t device;     /* of a GPU backend, where there are several */
    const char *capture; /* file for a trace of the device (metal); NULL: none */
    /* Folder of what fletch_tune found for GPUs, which models are then opened with, and of kernels
     * that were compiled for them; NULL: none. What fletch_tune left there is told of and ignored
     * if it is damaged or of another build. */
    const char *tune_dir;
    /* Seconds after its last use in which a model's memory is kept ready for the GPU (metal); the
     * system takes it away after about one, and the next token waits for it. 0: 180; -1: none. */
    int32_t keep_alive;
};

/* Sets *out even on failure (unless out of memory), so that the text can be read; close it. */
FLETCH_API int fletch_engine_open(struct fletch_engine **out,
                                  const struct fletch_engine_params *params);
FLETCH_API void fletch_engine_close(struct fletch_engine *e);
FLETCH_API const char *fletch_engine_error(const struct fletch_engine *e);
/* Which backend, and why: "ref: no faster backend is built in". */
FLETCH_API const char *fletch_engine_backend(const struct fletch_engine *e);

/* ---- model ---- */

struct fletch_model;

/* Non-zero ends the work, which then fails with FLETCH_E_CANCELLED. */
typedef int (*fletch_progress)(void *ctx, uint64_t done, uint64_t total);
typedef void (*fletch_notice)(void *ctx, const char *text);

/* Drafters propose the next tokens, and the model checks several in one step. The tokens are those
 * of decoding without drafters; they come sooner. Several drafters may be used: each is asked where
 * those before it proposed nothing, and none where that was measured not to pay. */
struct fletch_speculation {
    bool automatic;    /* n-grams, and the MTP block if the model has one and no draft is given */
    const char *draft; /* a smaller model with the same vocabulary */
    bool ngram;        /* what followed the latest tokens earlier in the context */
    bool mtp;          /* the model's own MTP block */
    bool rejection;    /* judge drafts by rejection: other tokens, of the same distribution */
    uint32_t n_tokens; /* to draft in a step, at most 64 (a model or MTP block: 8); 0: what pays */
};

/* Whether a step is queued before the token of the one before it is read, so that the device need
 * not wait for the host. Never changes a token. */
enum fletch_ahead {
    FLETCH_AHEAD_AUTO, /* where the backend queues steps */
    FLETCH_AHEAD_ALWAYS,
    FLETCH_AHEAD_NEVER,
};

/* Types of the KV cache: of keys and values, or of each. */
#define FLETCH_KV_TYPES "f32|f16|q8|q4|k8v4"

struct fletch_model_params {
    uint32_t n_ctx;       /* longest sequence; 0: the model's own, as far as memory allows */
    uint32_t n_sessions;  /* open at once, or requests that a batch runs at once; 0: 1 */
    uint64_t kv_tokens;   /* that the cache has room for, over all; 0: n_ctx for each, if given */
    uint32_t n_snapshots; /* states of recurrent models that a batch keeps for reuse */
    uint32_t max_rows;    /* rows in one step, so the chunk of a prompt; 0: what suits */
    const char *kv_type;  /* one of FLETCH_KV_TYPES; NULL: what the backend prefers */
    const char *act_type; /* activations in matrix products: f32, int8 or bf16; NULL likewise */
    bool no_fuse;         /* run the program as recorded */
    enum fletch_ahead ahead;
    struct fletch_speculation speculation;
    uint64_t max_memory; /* bytes it may take; 0: what the machine has available */
    fletch_progress progress;
    void *progress_ctx;
    /* A folder that keeps what prompts left in the cache, for later runs; NULL: none. Files there
     * that are damaged are told of and removed. It is for its owner alone: one that others can open
     * is closed to them if it holds nothing else, and refused otherwise. Other models and programs
     * may use it at the same time. When a file can't be written, the next attempts come later. */
    const char *cache_dir;
    bool cache_optional;  /* where it can't be used, notice is told, and nothing is kept */
    uint64_t cache_bytes; /* that its files may take, the ones unused for longest go; 0: 8 GiB */
    fletch_notice notice; /* NULL: nobody is told; may be called from any thread */
    void *notice_ctx;
    const char *chat_template; /* text of one to use instead of the model's own; NULL: none */
    bool keep_own_template;    /* chat_template only where the model has none that can be used */
    /* Opens a model although its file says what is not supported, as if that were not there: its
     * answers may be wrong. notice is told of each such thing. Otherwise the open fails with
     * FLETCH_E_UNSUPPORTED and names them. */
    bool ignore_unknown;
    /* Opens the vocabulary and the chat template alone: for fletch_tokenize, fletch_chat_render and
     * their like. The file may hold no weights, or a model that is not supported; sessions and
     * batches of it are refused, and so are reports with these parameters. */
    bool text_only;
};

/* path: a GGUF file (the first of a split set) or a Hugging Face directory. */
FLETCH_API int fletch_model_open(struct fletch_model **out, struct fletch_engine *e,
                                 const char *path, const struct fletch_model_params *params);
/* A GGUF image in memory that outlives the model. */
FLETCH_API int fletch_model_open_image(struct fletch_model **out, struct fletch_engine *e,
                                       const void *image, size_t n,
                                       const struct fletch_model_params *params);
FLETCH_API void fletch_model_close(struct fletch_model *m);
FLETCH_API const char *fletch_model_error(const struct fletch_model *m);

/* How a token is chosen: X(kind, name, option, arg, min, max, off, metadata, alias, help). kind:
 * real (a float) or count (a uint32_t). name: of the member below, and in JSON; alias: another name
 * there, as other programs have it, or "". option and arg: on the command line. off: the value that
 * has no effect, or counts where nobody says one. metadata: in model files, after
 * "general.sampling.", or "". Whatever knows these settings takes them from here. */
#define FLETCH_SAMPLING_SETTINGS(X)                                                           \
    X(real, temperature, "temp", "T", 0, 100, 0, "temp", "",                                  \
      "temperature; 0 always takes the most likely token")                                    \
    X(count, top_k, "top-k", "K", 0, INT32_MAX, 0, "top_k", "",                               \
      "number of most likely tokens to sample from; 0 means all tokens")                      \
    X(real, top_p, "top-p", "P", 0, 1, 1, "top_p", "",                                        \
      "sample from the most likely tokens, up to this total probability")                     \
    X(real, min_p, "min-p", "P", 0, 1, 0, "min_p", "",                                        \
      "exclude tokens less likely than this fraction of the most likely token's probability") \
    X(real, repeat_penalty, "repeat-penalty", "X", 0.01, 100, 1, "penalty_repeat",            \
      "repetition_penalty", "divide the logits of recent tokens by this number")              \
    X(real, presence_penalty, "presence-penalty", "X", -100, 100, 0, "", "",                  \
      "subtract this number from the logits of recent tokens")                                \
    X(real, frequency_penalty, "frequency-penalty", "X", -100, 100, 0, "", "",                \
      "subtract this number from the logits of recent tokens, once for each occurrence")      \
    X(count, penalty_window, "penalty-window", "N", 0, 1024, 64, "", "repeat_last_n",         \
      "number of most recent tokens that the penalties apply to")                             \
    X(count, no_repeat_ngram, "no-repeat-ngram", "N", 0, 64, 0, "", "no_repeat_ngram_size",   \
      "never repeat a sequence of this many tokens from the penalty window; 0 turns this off")

enum { FLETCH_MAX_LOGIT_BIAS = 1000000000 };

struct fletch_sampling {
    float temperature;                                         /* 0: the most likely token */
    uint32_t top_k;                                            /* 0: off */
    float top_p;                                               /* 1: off */
    float min_p;                                               /* 0: off */
    float repeat_penalty, presence_penalty, frequency_penalty; /* 1, 0, 0: off */
    uint32_t penalty_window;  /* latest tokens the penalties look at */
    uint32_t no_repeat_ngram; /* so many tokens in a row come once in them; 0: off */
    uint64_t seed;
    uint32_t choice; /* index among several answers to one prompt */
    size_t n_bias;   /* logit bias: tokens, and what is added, at most FLETCH_MAX_LOGIT_BIAS */
    const int32_t *bias_tokens;
    const float *bias_values;
};

struct fletch_model_info {
    const char *arch, *name; /* name may be "" */
    const char *type;        /* in which most bytes of the weights are stored, such as "Q4_K" */
    uint32_t n_ctx, n_ctx_trained, n_vocab, n_embd, n_layers;
    bool has_vocab, has_template, has_state; /* has_state: it is recurrent, in part at least */
    const char *chat_template;               /* the one that chats use, n_chat_template bytes */
    size_t n_chat_template;
    uint64_t weight_bytes;
    uint64_t memory_bytes; /* with cache, state and buffers, and a draft model's: by the plan */
    /* How a text becomes one vector: "mean", "cls" (the first token) or "last"; "rank": the model
     * is a reranker; "unsupported": in another way. */
    const char *pooling;
    struct fletch_sampling sampling; /* defaults, from the model where it has them */
};
FLETCH_API void fletch_model_info(const struct fletch_model *m, struct fletch_model_info *info);
/* Bytes that the process now has on a model's GPU, for all its models together, and the most that
 * the system recommends. False where that is not known: everywhere but on metal. */
FLETCH_API bool fletch_model_gpu_memory(const struct fletch_model *m, uint64_t *allocated,
                                        uint64_t *recommended);

/* ---- text ---- */

enum {
    FLETCH_BOS = 1,     /* begin with the model's bos token where it wants one */
    FLETCH_SPECIAL = 2, /* tokenize: control tokens in the text are parsed; detokenize: shown */
};
FLETCH_API int fletch_tokenize(struct fletch_model *m, const char *text, size_t n, unsigned flags,
                               int32_t **ids, size_t *n_ids);
FLETCH_API int fletch_detokenize(struct fletch_model *m, const int32_t *ids, size_t n_ids,
                                 unsigned flags, char **text, size_t *n);
FLETCH_API bool fletch_is_end(const struct fletch_model *m, int32_t id);

struct fletch_chat {
    const char *messages;      /* JSON array of {role, content, ...} */
    const char *tools;         /* JSON array, or NULL */
    const char *args;          /* JSON object of further template variables, or NULL */
    const char *template_text; /* instead of the model's own, or NULL */
    bool no_generation_prompt; /* don't end with the beginning of an answer */
    bool continue_final;       /* end inside the last message, so that the answer continues it */
};
/* The prompt as text, and as tokens: what users wrote never becomes a control token. */
FLETCH_API int fletch_chat_render(struct fletch_model *m, const struct fletch_chat *chat,
                                  char **text, size_t *n);
FLETCH_API int fletch_chat_tokenize(struct fletch_model *m, const struct fletch_chat *chat,
                                    int32_t **ids, size_t *n_ids);

/* Whether the chat template reads a variable, so that giving it in args can have an effect. */
FLETCH_API bool fletch_chat_reads(const struct fletch_model *m, const char *name);

/* A query and a document for a reranker, as the tokens of the prompt that it was trained with.
 * FLETCH_E_UNSUPPORTED for a model that is not one. */
struct fletch_pair {
    const char *query;
    size_t n_query;
    const char *document;
    size_t n_document;
};
FLETCH_API int fletch_rank_tokenize(struct fletch_model *m, const struct fletch_pair *pair,
                                    int32_t **ids, size_t *n_ids);

/* ---- session ---- */

struct fletch_session;

FLETCH_API int fletch_session_open(struct fletch_session **out, struct fletch_model *m);
FLETCH_API void fletch_session_close(struct fletch_session *s);
FLETCH_API const char *fletch_session_error(const struct fletch_session *s);
FLETCH_API uint32_t fletch_session_length(const struct fletch_session *s);
/* Its tokens, good until the next call that changes it. */
FLETCH_API const int32_t *fletch_session_tokens(const struct fletch_session *s);
/* The session as a file for its owner alone, which appears only when it is whole, with any note of
 * the caller's; and back, on the same model with the same options. What can't be trusted or belongs
 * to another model is refused with FLETCH_E_FORMAT; then the timeline is empty. The note is freed
 * with fletch_free.
 */
FLETCH_API int fletch_session_save(struct fletch_session *s, const char *path, const char *note,
                                   size_t n_note);
FLETCH_API int fletch_session_load(struct fletch_session *s, const char *path, char **note,
                                   size_t *n_note);
/* Back to an empty timeline. */
FLETCH_API void fletch_session_reset(struct fletch_session *s);

struct fletch_append {
    float *all_logits;        /* receives n rows of n_vocab floats; NULL: none are wanted */
    fletch_progress progress; /* is told how many of the n tokens are appended; may be NULL */
    void *progress_ctx;
};

/* Appends tokens. Computes all but the last, which is computed when what follows it is asked for;
 * that too where all_logits are wanted. FLETCH_E_CONTEXT when they don't fit; then nothing was
 * appended. */
FLETCH_API int fletch_session_append(struct fletch_session *s, const int32_t *tokens, size_t n,
                                     const struct fletch_append *how);
/* What the model's cache_dir keeps of a prompt comes back into an empty session: gives how many of
 * its tokens are there already and need not be appended. The rest is kept as it is appended. */
FLETCH_API size_t fletch_session_recall(struct fletch_session *s, const int32_t *tokens, size_t n);
/* Ends a running append or generate (or else the next one, unless a reset comes before it) at its
 * next step with FLETCH_E_CANCELLED; what was fed until then stays. The one call that may come from
 * another thread or a signal handler. */
FLETCH_API void fletch_session_cancel(struct fletch_session *s);
/* Logits after the last token, n_vocab floats; NULL when nothing was appended yet, or when the last
 * append was broken off. */
FLETCH_API const float *fletch_session_logits(struct fletch_session *s);
/* The token that the sampling settings (NULL: the model's defaults, as in fletch_model_info) choose
 * after the last one. Does not append it. */
FLETCH_API int fletch_session_sample(struct fletch_session *s,
                                     const struct fletch_sampling *sampling, int32_t *token);
/* Appends tokens to a session that holds nothing but tokens appended by this function, and gives
 * the embedding (n_embd floats) of all of them, pooled as fletch_model_info says. Its length is not
 * 1: see fletch_normalise. FLETCH_E_UNSUPPORTED for rerankers and other ways to pool. */
FLETCH_API int fletch_session_embed(struct fletch_session *s, const int32_t *tokens, size_t n,
                                    float *out);
/* Scales a vector to length 1; one of zeros stays as it is. */
FLETCH_API void fletch_normalise(float *v, uint32_t n);
/* Appends tokens of fletch_rank_tokenize; after the last one, score is how well the document
 * answers the query, from 0 to 1. FLETCH_E_UNSUPPORTED for a model that is not a reranker. */
FLETCH_API int fletch_session_rank(struct fletch_session *s, const int32_t *tokens, size_t n,
                                   float *score);

enum fletch_finish {
    FLETCH_FINISH_LENGTH,  /* max_tokens were generated */
    FLETCH_FINISH_END,     /* the model ended its answer */
    FLETCH_FINISH_STOP,    /* a stop text appeared */
    FLETCH_FINISH_CONTEXT, /* the context is full */
    FLETCH_FINISH_ASKED,   /* the callback said so */
    FLETCH_FINISH_CANCELLED,
    FLETCH_FINISH_TIMEOUT, /* it was not done in the time it was given */
    FLETCH_FINISH_FAILED,
};

struct fletch_generate {
    uint32_t max_tokens; /* 0: until the model or the context ends */
    struct fletch_sampling sampling;
    size_t n_stops;
    const char *const *stops;
    bool ignore_end;   /* go on after end-of-answer tokens */
    bool show_control; /* control tokens are part of the text */
    /* At most one: what the answer must be, as a GBNF grammar or a JSON schema; NULL: anything.
     * What can't be kept is refused before the first token (docs/grammar.md). */
    const char *grammar, *json_schema;
    /* Called with whole characters as they become certain (n may be 0 for a token that adds none
     * yet; text held back for a stop may come at the end with token -1); non-zero ends it. */
    int (*on_text)(void *ctx, int32_t token, const char *text, size_t n);
    void *ctx;
};

struct fletch_generated {
    uint32_t n_tokens;
    uint32_t n_drafted, n_accepted; /* draft tokens; those that the model accepted */
    enum fletch_finish finish;
};

/* Generates after what the session holds; appended tokens stay in it. g NULL: with the model's
 * default sampling until the model or the context ends. The token that completed a
 * stop text, or at which the callback ended it, is counted in n_tokens but not appended. */
FLETCH_API int fletch_session_generate(struct fletch_session *s, const struct fletch_generate *g,
                                       struct fletch_generated *result);

/* ---- batch: many requests at once on one model ---- */

/* Every step takes the next token of all running requests and a piece of the prompts that are being
 * read, so that nobody waits for anybody's end. What a request gets does not depend on what else
 * runs. Callbacks are called inside fletch_batch_step. */
struct fletch_batch;

struct fletch_batch_params {
    uint32_t max_waiting; /* requests that may wait for their turn; more are refused. 0: 1024 */
    bool no_reuse;        /* compute every prompt from its beginning */
};

/* The model's sessions share its room with the batch. */
FLETCH_API int fletch_batch_open(struct fletch_batch **out, struct fletch_model *m,
                                 const struct fletch_batch_params *params);
/* Requests that are not done end as cancelled. */
FLETCH_API void fletch_batch_close(struct fletch_batch *b);
FLETCH_API const char *fletch_batch_error(const struct fletch_batch *b); /* of the calling thread */

struct fletch_token {
    int32_t id;       /* -1: only text that had waited for a stop text */
    const char *text; /* whole characters that became certain */
    size_t n_text;
    float logprob; /* when logprobs were asked for: its own and those of the likeliest */
    uint32_t n_top;
    const int32_t *top_ids;
    const float *top_logprobs;
};

struct fletch_reading {
    uint32_t n_done, n_prompt; /* tokens of the prompt: read or found in the cache; all */
    uint32_t n_reused;         /* of them, those found in the cache */
    const char *reuse_end;     /* why not more */
};

struct fletch_result {
    uint64_t id;
    enum fletch_finish finish;
    int code;          /* when it failed */
    const char *error; /* "" otherwise */
    uint32_t n_prompt, n_generated;
    uint32_t n_reused;              /* tokens of the prompt that were in the cache */
    const char *reuse_end;          /* why not more */
    uint32_t stop;                  /* index of the stop text that ended it */
    uint32_t n_preempted;           /* times it gave its room to others and began again */
    uint32_t n_drafted, n_accepted; /* draft tokens; those that the model accepted */
    double queue_seconds, first_token_seconds, seconds; /* since it was submitted */
    uint32_t n_read; /* tokens of the prompt that were computed or in the cache: all of them, unless
                        it ended before */
};

enum { FLETCH_MARKS = 4 };

struct fletch_request {    /* all of it is copied */
    const int32_t *tokens; /* the prompt */
    size_t n_tokens;
    uint32_t max_tokens; /* 0: until the model or the context ends */
    struct fletch_sampling sampling;
    size_t n_stops;
    const char *const *stops;
    bool ignore_end;
    bool show_control;                 /* control tokens are part of the text */
    const char *grammar, *json_schema; /* at most one, as in fletch_generate */
    uint32_t n_logprobs; /* 0: none; n: of the token and of the n - 1 likeliest, at most 20 */
    uint64_t client;     /* those who wait get turns by client */
    int32_t priority;    /* higher ones first; waiting raises it */
    double timeout;      /* seconds; 0: none */
    /* What the cache keeps of a prompt is found again only by requests of the same salt. */
    uint64_t cache_salt;
    /* Only computes the prompt, so that later requests find it in the cache, and gives no token: in
     * steps of some 50 ms while there is nothing else to do. */
    bool warm;
    /* Positions in the prompt, ascending, where others with the same beginning are likely to go on
     * in another way: recurrent models keep a state near each, at most FLETCH_MARKS of them. */
    const uint32_t *marks;
    size_t n_marks;
    /* When its turn comes, and after every step that read a part of the prompt; may be NULL. */
    void (*on_reading)(void *ctx, const struct fletch_reading *reading);
    /* Non-zero ends the request. */
    int (*on_token)(void *ctx, const struct fletch_token *token);
    /* Once for every request that was accepted, as the last call. */
    void (*on_done)(void *ctx, const struct fletch_result *result);
    void *ctx;
};

/* FLETCH_E_LIMIT when too many wait, FLETCH_E_CONTEXT when it can never fit. This and cancel may
 * be called from any thread, and from callbacks. */
FLETCH_API int fletch_batch_submit(struct fletch_batch *b, const struct fletch_request *r,
                                   uint64_t *id);
/* Ends a request at the next step; one that is done already stays so. */
FLETCH_API int fletch_batch_cancel(struct fletch_batch *b, uint64_t id);
/* Ends the wait of a fletch_batch_step, or of the next one that would wait; from any thread. */
FLETCH_API void fletch_batch_wake(struct fletch_batch *b);
/* Runs one step, after waiting at most so many seconds for something to do. Gives the number of
 * requests that are not done. A step that failed ends the requests in it, not the batch. */
FLETCH_API size_t fletch_batch_step(struct fletch_batch *b, double wait_seconds);

struct fletch_batch_stats {
    uint64_t n_steps, n_mixed;             /* steps; with prompts in or beside those of answers */
    uint64_t n_ahead;                      /* steps queued before the one before was read */
    uint64_t n_prompt_rows, n_answer_rows; /* tokens computed, again ones included */
    uint64_t n_done, n_failed, n_preemptions; /* requests */
    uint64_t n_drafted, n_accepted;           /* draft tokens; those that were accepted */
    uint64_t n_prompt, n_reused, n_evicted;   /* tokens of prompts, found in the cache; blocks */
    uint64_t n_unwritten;                     /* files of cache_dir that could not be written */
    uint64_t n_warmed;                        /* tokens computed for requests that only do that */
    uint32_t n_running, n_waiting, most_running;
    uint32_t n_warming; /* of those requests, such that run, which are not in n_running */
    uint32_t n_blocks, n_free, n_idle; /* cache blocks: all, unused, kept for reuse */
    uint32_t prompt_budget;            /* rows of prompts that are read at a time beside answers */
};
FLETCH_API void fletch_batch_stats(const struct fletch_batch *b, struct fletch_batch_stats *stats);

/* How many files a cache_dir has, and their bytes, of all models; remove: they are removed. */
FLETCH_API int fletch_prefix_files(struct fletch_engine *e, const char *dir, bool remove,
                                   uint64_t *n_files, uint64_t *n_bytes);

/* ---- reports: JSON documents, for people after formatting ---- */

/* Metadata and tensors, and under "refused" what fletch_model_open would refuse; check: every
 * weight is read and looked at for NaN and infinity. */
FLETCH_API int fletch_inspect(struct fletch_engine *e, const char *path, bool check, char **json);
/* Memory by part, and what would fit if it does not. For this and fletch_explain, path may also be
 * SHAPE[:TYPE] of fletch_synth: no file is needed. */
FLETCH_API int fletch_plan(struct fletch_engine *e, const char *path,
                           const struct fletch_model_params *params, char **json);
/* The same for a machine that is not at hand (m3-pro, rtx-4090, h100; an unknown name is told which
 * there are), with the speed of decoding as predicted from bytes and kernels per token. */
FLETCH_API int fletch_plan_for(struct fletch_engine *e, const char *path,
                               const struct fletch_model_params *params, const char *machine,
                               char **json);
/* The program: ops, buffers, bytes per step. */
FLETCH_API int fletch_explain(struct fletch_engine *e, const char *path,
                              const struct fletch_model_params *params, char **json);
/* What this machine has, and the state of each backend. */
FLETCH_API int fletch_doctor(struct fletch_engine *e, char **json);

struct fletch_verify {
    const char *backend, *against; /* two backends, run in lockstep */
    uint32_t n_tokens;             /* generated after the prompt; 0: 16 */
    const int32_t *tokens;         /* the prompt */
    size_t n_prompt;
    float temperature; /* of the tokens that follow; 0: the most likely ones */
    uint64_t seed;
    bool no_fuse; /* the first backend runs unfused too */
};
FLETCH_API int fletch_verify(struct fletch_engine *e, const char *path,
                             const struct fletch_model_params *params,
                             const struct fletch_verify *v, char **json);
/* The gates that a backend has to pass on a model (docs/testing.md): parity with `against` by
 * tokens and op by op, numbers everywhere, the same answers under all settings, and twenty turns
 * that equal a fresh run. v's n_tokens (0: 512) are compared op by op. */
FLETCH_API int fletch_gates(struct fletch_engine *e, const char *path,
                            const struct fletch_model_params *params, const struct fletch_verify *v,
                            char **json);

/* type: f32 f16 bf16 q8_0 q4_0 q4_k q4_k_m q5_k_m q6_k. */
FLETCH_API int fletch_convert(struct fletch_engine *e, const char *in, const char *out,
                              const char *type, fletch_progress progress, void *ctx);
/* The same with choices. */
struct fletch_convert_params {
    bool ignore_unknown; /* as in fletch_model_params */
    fletch_notice notice;
    void *notice_ctx;
    fletch_progress progress;
    void *ctx;
};
FLETCH_API int fletch_convert_with(struct fletch_engine *e, const char *in, const char *out,
                                   const char *type, const struct fletch_convert_params *params);

struct fletch_synth {
    const char *shape; /* of fletch_synth_shapes, case-insensitive */
    const char *type;  /* as in fletch_convert */
    uint32_t n_layers; /* the first of them; 0: all */
    uint64_t seed;
};
/* Writes a GGUF file of a published model's shape with random weights. */
FLETCH_API int fletch_synth(struct fletch_engine *e, const char *out, const struct fletch_synth *s,
                            fletch_progress progress, void *ctx);
/* The shapes it knows. */
FLETCH_API int fletch_synth_shapes(struct fletch_engine *e, char **json);

struct fletch_counts {
    const uint32_t *p;
    size_t n;
};
enum {
    FLETCH_BENCH_PREFILL = 1, /* prompts alone */
    FLETCH_BENCH_DECODE = 2,  /* generated tokens alone, behind a context of each depth */
    FLETCH_BENCH_FULL = 4,    /* a prompt, then generated tokens */
};
struct fletch_bench {
    unsigned modes;                       /* 0: all */
    struct fletch_counts prompts, gens;   /* tokens; empty: a short standard list */
    struct fletch_counts depths, batches; /* tokens before, sequences at once */
    uint32_t n_reps;                      /* 0: 7 */
    bool profile;                         /* time single ops instead of tokens */
    const void *image;                    /* the model where the path is NULL */
    size_t n_image;
    fletch_progress progress;
    void *ctx;
};
/* Speed, latency and memory, beside what this machine was measured to be capable of. params' n_ctx
 * and n_sessions are decided by the cases. */
FLETCH_API int fletch_bench(struct fletch_engine *e, const char *path,
                            const struct fletch_model_params *params,
                            const struct fletch_bench *bench, char **json);

/* What speculation gives on texts that suit it and on texts that do not; of bench, the image
 * counts. */
FLETCH_API int fletch_bench_drafts(struct fletch_engine *e, const char *path,
                                   const struct fletch_model_params *params,
                                   const struct fletch_bench *bench, char **json);

struct fletch_bench_kernel {
    const char *name;  /* as fletch help bench lists them: matvec, attention, ..., all */
    const char *shape; /* "key=value,...", NULL: the kernel's own */
    uint32_t n_reps;   /* 0: 7 */
};
/* Single kernels, each checked against the reference: one that is wrong has no speed. */
FLETCH_API int fletch_bench_kernel(struct fletch_engine *e, const struct fletch_bench_kernel *k,
                                   char **json);

struct fletch_tune {
    struct fletch_counts batches; /* sequences at once; empty: 1 */
    uint32_t depth;               /* tokens in the context of each; 0: 256 */
    uint32_t n_rounds;            /* that a layout has to win; 0: 4 */
    fletch_progress progress;
    void *ctx;
};
/* Finds how the kernels of a step lie best on the engine's GPU, among layouts that give the same
 * bits, and keeps that in the engine's tune_dir for all models that have matrices of these sizes.
 * params' n_ctx and n_sessions are decided by the batches. */
FLETCH_API int fletch_tune(struct fletch_engine *e, const char *path,
                           const struct fletch_model_params *params, const struct fletch_tune *how,
                           char **json);

#ifdef __cplusplus
}
#endif
#endif
