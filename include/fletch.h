/* fletch: run language models on your own machine. The public interface of libfletch.
 *
 * An engine chooses a backend. A model is loaded once on an engine. A session is one sequence of
 * tokens on a model; a batch runs many requests on a model at once. Close them in reverse order;
 * closing NULL does nothing.
 *
 * Errors: functions return 0 or a negative code. The handle of the call keeps one line of text
 * about the last failure (fletch_engine_error and so on). A failed open leaves its text in the
 * handle that it was called with. A NULL pointer to settings means default settings; NULL for a
 * required argument gives FLETCH_E_ARG.
 *
 * Memory: free what a function returns through char ** or int32_t ** with fletch_free.
 *
 * Threads: use a session from one thread at a time, and a batch too, except for submit, cancel and
 * wake. Different threads may use different sessions and batches of one model, and may open and
 * close them at any time; their steps take turns in the order of the calls, and no result depends
 * on another session. The functions of the model itself (tokenize, chat, info) may run at the same
 * time, in one thread at a time because they share the model's error text. Use an engine from one
 * thread at a time; different engines are independent.
 *
 * Callbacks: a callback may use other sessions, but not its own, except to cancel it. While a
 * callback of fletch_session_generate runs, other threads may use the model; the callback must not
 * wait for a thread that uses the same session. While a callback of fletch_batch_step runs, all
 * other threads that use the model wait, so the callback must not wait for any of them. */
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
    uint32_t n_threads;  /* most threads to use; fewer run while cores are busy; 0: one per core */
    const char *isa;     /* of the cpu backend: amx, avx512, avx2, ..., generic; NULL: the best */
    uint32_t device;     /* number of the GPU, if there are several */
    const char *capture; /* file for a GPU trace (metal); NULL: none */
    /* Folder with the results of fletch_tune, which are applied to every model that is opened, and
     * with compiled kernels; NULL: none. Results that are damaged or belong to another build are
     * reported and ignored. */
    const char *tune_dir;
    /* Seconds for which an idle model's memory stays ready for the GPU (metal). Without this, macOS
     * unwires it after about a second, and the next token waits. 0: 180; -1: none. */
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

/* Return non-zero to end the call, which then fails with FLETCH_E_CANCELLED. */
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

/* Whether to submit a step before the token of the previous step was read, so that the device does
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
    uint32_t n_sessions;  /* sessions open at once, or requests a batch runs at once; 0: 1 */
    uint64_t kv_tokens;   /* size of the KV cache, for all together; 0: n_ctx for each, if set */
    uint32_t n_snapshots; /* state snapshots of recurrent models that a batch keeps for reuse */
    uint32_t max_rows;    /* rows in one step, and so the chunk of a prompt; 0: chosen by backend */
    const char *kv_type;  /* one of FLETCH_KV_TYPES; NULL: the backend's default */
    const char *act_type; /* activations of matrix products: f32, int8, bf16; NULL: the same */
    bool no_fuse;         /* run every recorded op by itself */
    enum fletch_ahead ahead;
    struct fletch_speculation speculation;
    uint64_t max_memory; /* limit in bytes; 0: the memory that is available */
    fletch_progress progress;
    void *progress_ctx;
    /* Folder for prefix files, which later runs reuse; NULL: none. Damaged files are reported and
     * removed. Only the owner may read the folder: if others can, fletch closes it to them if it
     * holds nothing but prefix files, and refuses it otherwise. Other models and programs may use
     * it at the same time. After a failed write, fletch waits before it tries again. */
    const char *cache_dir;
    bool cache_optional;  /* if cache_dir cannot be used, report it to notice and save nothing */
    uint64_t cache_bytes; /* limit of its files in bytes; the least recently used go; 0: 8 GiB */
    fletch_notice notice; /* NULL: nobody is told; may be called from any thread */
    void *notice_ctx;
    const char *chat_template; /* text of a template that replaces the model's; NULL: none */
    bool keep_own_template;    /* use chat_template only if the model has no usable one */
    /* Open a model even if its file contains unsupported features, and ignore these; answers may be
     * wrong. notice receives each of them. Without this, the open fails with FLETCH_E_UNSUPPORTED
     * and an error that names them. */
    bool ignore_unknown;
    /* Open only the vocabulary and the chat template: for fletch_tokenize, fletch_chat_render and
     * similar functions. The file may have no weights, or an unsupported architecture. Sessions,
     * batches and reports are refused for such a model. */
    bool text_only;
};

/* path: a GGUF file (the first of a split set) or a Hugging Face directory. */
FLETCH_API int fletch_model_open(struct fletch_model **out, struct fletch_engine *e,
                                 const char *path, const struct fletch_model_params *params);
/* The same from a GGUF image in memory, which must outlive the model. */
FLETCH_API int fletch_model_open_image(struct fletch_model **out, struct fletch_engine *e,
                                       const void *image, size_t n,
                                       const struct fletch_model_params *params);
FLETCH_API void fletch_model_close(struct fletch_model *m);
FLETCH_API const char *fletch_model_error(const struct fletch_model *m);

/* Sampling settings: X(kind, name, option, arg, min, max, off, metadata, alias, help). kind: real
 * (a float) or count (a uint32_t). name: the member below, and the JSON field; alias: a second name
 * of the JSON field, which other programs use, or "". option and arg: the command-line option. off:
 * the value that has no effect, which is the default. metadata: the key in model files after
 * "general.sampling.", or "". Every interface to these settings is generated from this table. */
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
    uint32_t penalty_window;  /* number of latest tokens that the penalties apply to */
    uint32_t no_repeat_ngram; /* length of a sequence that must not recur in them; 0: off */
    uint64_t seed;
    uint32_t choice; /* index among several answers to one prompt */
    size_t n_bias;   /* logit bias: tokens, and what to add, at most FLETCH_MAX_LOGIT_BIAS */
    const int32_t *bias_tokens;
    const float *bias_values;
};

struct fletch_model_info {
    const char *arch, *name; /* name may be "" */
    const char *type;        /* in which most bytes of the weights are stored, such as "Q4_K" */
    uint32_t n_ctx, n_ctx_trained, n_vocab, n_embd, n_layers;
    bool has_vocab, has_template;
    bool has_state;            /* recurrent, at least in part */
    const char *chat_template; /* the template in use, n_chat_template bytes */
    size_t n_chat_template;
    uint64_t weight_bytes;
    uint64_t memory_bytes; /* planned: weights, cache, states and buffers, of a draft model too */
    /* How an embedding is made of the tokens' vectors: "mean", "cls" (the first token) or "last".
     * "rank": the model is a reranker; "unsupported": any other method. */
    const char *pooling;
    struct fletch_sampling sampling; /* defaults, from the model where it has them */
};
FLETCH_API void fletch_model_info(const struct fletch_model *m, struct fletch_model_info *info);
/* GPU memory of this process, for all its models, and the maximum that the system recommends.
 * Returns false if these are unknown; only metal knows them. */
FLETCH_API bool fletch_model_gpu_memory(const struct fletch_model *m, uint64_t *allocated,
                                        uint64_t *recommended);

/* ---- text ---- */

enum {
    FLETCH_BOS = 1,     /* begin with the bos token if the model uses one */
    FLETCH_SPECIAL = 2, /* tokenize: parse control tokens; detokenize: show them */
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
    bool no_generation_prompt; /* don't append the prefix of an assistant message */
    bool continue_final;       /* leave the last message open, so that the answer continues it */
};
/* The prompt as text, and as tokens. The content of messages never becomes control tokens. */
FLETCH_API int fletch_chat_render(struct fletch_model *m, const struct fletch_chat *chat,
                                  char **text, size_t *n);
FLETCH_API int fletch_chat_tokenize(struct fletch_model *m, const struct fletch_chat *chat,
                                    int32_t **ids, size_t *n_ids);

/* Whether the chat template reads a variable, so that setting it in args can have an effect. */
FLETCH_API bool fletch_chat_reads(const struct fletch_model *m, const char *name);

/* The tokens of a reranker's prompt for a query and a document. FLETCH_E_UNSUPPORTED if the model
 * is not a reranker. */
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
/* The session's tokens; valid until the next call that changes the session. */
FLETCH_API const int32_t *fletch_session_tokens(const struct fletch_session *s);
/* Save writes the session and a note of the caller's to a file that only its owner can read; the
 * file appears when it is complete. Load restores the session on the same model with the same
 * parameters; the caller frees the note with fletch_free. A file that is damaged or belongs to
 * another model gives FLETCH_E_FORMAT and leaves the session empty. */
FLETCH_API int fletch_session_save(struct fletch_session *s, const char *path, const char *note,
                                   size_t n_note);
FLETCH_API int fletch_session_load(struct fletch_session *s, const char *path, char **note,
                                   size_t *n_note);
/* Empties the session. */
FLETCH_API void fletch_session_reset(struct fletch_session *s);

struct fletch_append {
    float *all_logits;        /* receives n rows of n_vocab floats; may be NULL */
    fletch_progress progress; /* receives how many of the n tokens are appended; may be NULL */
    void *progress_ctx;
};

/* Appends tokens and computes all but the last one, which the next generate, logits or sample
 * computes; with all_logits, the last one is computed too. FLETCH_E_CONTEXT if they don't fit;
 * nothing is appended then. */
FLETCH_API int fletch_session_append(struct fletch_session *s, const int32_t *tokens, size_t n,
                                     const struct fletch_append *how);
/* Loads the longest prefix of a prompt that the model's cache_dir has into an empty session, and
 * returns its number of tokens; append the rest. What is appended is then saved there. */
FLETCH_API size_t fletch_session_recall(struct fletch_session *s, const int32_t *tokens, size_t n);
/* Ends the running append or generate at its next step with FLETCH_E_CANCELLED; if none runs, the
 * next one, unless fletch_session_reset comes first. Tokens that were computed remain. This is the
 * only function of a session that may be called from another thread or a signal handler. */
FLETCH_API void fletch_session_cancel(struct fletch_session *s);
/* Logits after the last token, n_vocab floats. NULL if the session is empty or the last append did
 * not finish. */
FLETCH_API const float *fletch_session_logits(struct fletch_session *s);
/* Samples the next token without appending it. sampling NULL: the model's defaults, as in
 * fletch_model_info. */
FLETCH_API int fletch_session_sample(struct fletch_session *s,
                                     const struct fletch_sampling *sampling, int32_t *token);
/* Appends tokens to a session in which every token was appended by this function, and writes the
 * embedding of all of them: n_embd floats, pooled as fletch_model_info says and not normalised (see
 * fletch_normalise). FLETCH_E_UNSUPPORTED for rerankers and for pooling methods that fletch lacks.
 */
FLETCH_API int fletch_session_embed(struct fletch_session *s, const int32_t *tokens, size_t n,
                                    float *out);
/* Scales a vector to length 1. A vector of zeros is left unchanged. */
FLETCH_API void fletch_normalise(float *v, uint32_t n);
/* Appends tokens of fletch_rank_tokenize. After the last of them, score is the relevance of the
 * document to the query, from 0 to 1. FLETCH_E_UNSUPPORTED if the model is not a reranker. */
FLETCH_API int fletch_session_rank(struct fletch_session *s, const int32_t *tokens, size_t n,
                                   float *score);

enum fletch_finish {
    FLETCH_FINISH_LENGTH,  /* max_tokens were generated */
    FLETCH_FINISH_END,     /* the model ended its answer */
    FLETCH_FINISH_STOP,    /* a stop text appeared */
    FLETCH_FINISH_CONTEXT, /* the context is full */
    FLETCH_FINISH_ASKED,   /* the callback ended it */
    FLETCH_FINISH_CANCELLED,
    FLETCH_FINISH_TIMEOUT, /* the timeout of the request expired */
    FLETCH_FINISH_FAILED,
};

struct fletch_generate {
    uint32_t max_tokens; /* 0: until the model or the context ends */
    struct fletch_sampling sampling;
    size_t n_stops;
    const char *const *stops;
    bool ignore_end;   /* continue after end-of-answer tokens */
    bool show_control; /* include control tokens in the text */
    /* The form of the answer, as a GBNF grammar or a JSON schema, at most one of them; NULL: any
     * text. Unsupported ones are refused before the first token (docs/grammar.md). */
    const char *grammar, *json_schema;
    /* Called for each token with the whole characters that it completes; n is 0 if there are none.
     * The stop filter may hold text back, and pass it on at the end with token -1. Return non-zero
     * to end the answer. */
    int (*on_text)(void *ctx, int32_t token, const char *text, size_t n);
    void *ctx;
};

struct fletch_generated {
    uint32_t n_tokens;
    uint32_t n_drafted, n_accepted; /* draft tokens; those that the model accepted */
    enum fletch_finish finish;
};

/* Generates an answer and appends its tokens to the session. g NULL: with the model's default
 * sampling, until the model or the context ends. A token that completed a stop text, or at which
 * the callback ended the answer, counts in n_tokens but is not appended. */
FLETCH_API int fletch_session_generate(struct fletch_session *s, const struct fletch_generate *g,
                                       struct fletch_generated *result);

/* ---- batch: many requests at once on one model ---- */

/* Each step decodes one token of every running request and computes a chunk of the prompts in
 * prefill, so that no request waits for another one to finish. The tokens of a request do not
 * depend on other requests. Callbacks are called inside fletch_batch_step. */
struct fletch_batch;

struct fletch_batch_params {
    uint32_t max_waiting; /* most requests in the queue; further ones are refused. 0: 1024 */
    bool no_reuse;        /* compute every prompt from its beginning */
};

/* The batch and the sessions of a model share its KV cache. */
FLETCH_API int fletch_batch_open(struct fletch_batch **out, struct fletch_model *m,
                                 const struct fletch_batch_params *params);
/* Unfinished requests end as cancelled. */
FLETCH_API void fletch_batch_close(struct fletch_batch *b);
FLETCH_API const char *fletch_batch_error(const struct fletch_batch *b); /* of the calling thread */

struct fletch_token {
    int32_t id;       /* -1: no token, only text that the stop filter had held back */
    const char *text; /* whole characters that the token completes */
    size_t n_text;
    float logprob; /* if logprobs were requested: its own, and those of the most likely tokens */
    uint32_t n_top;
    const int32_t *top_ids;
    const float *top_logprobs;
};

struct fletch_reading {
    uint32_t n_done, n_prompt; /* tokens of the prompt: computed or found in the cache; all */
    uint32_t n_reused;         /* tokens of the prompt that were found in the prefix cache */
    const char *reuse_end;     /* why no more were found */
};

struct fletch_result {
    uint64_t id;
    enum fletch_finish finish;
    int code;          /* error code if it failed */
    const char *error; /* text of the error, or "" */
    uint32_t n_prompt, n_generated;
    uint32_t n_reused;              /* tokens of the prompt that were in the prefix cache */
    const char *reuse_end;          /* why no more were found */
    uint32_t stop;                  /* index of the stop text that ended it */
    uint32_t n_preempted;           /* times it was preempted and restarted */
    uint32_t n_drafted, n_accepted; /* draft tokens; those that the model accepted */
    double queue_seconds, first_token_seconds, seconds; /* since it was submitted */
    uint32_t n_read; /* tokens of the prompt that were computed or found in the cache: fewer than
                        n_prompt if the request ended during prefill */
};

enum { FLETCH_MARKS = 4 };

struct fletch_request {    /* submit copies everything */
    const int32_t *tokens; /* the prompt */
    size_t n_tokens;
    uint32_t max_tokens; /* 0: until the model or the context ends */
    struct fletch_sampling sampling;
    size_t n_stops;
    const char *const *stops;
    bool ignore_end;
    bool show_control;                 /* include control tokens in the text */
    const char *grammar, *json_schema; /* at most one, as in fletch_generate */
    uint32_t n_logprobs; /* 0: none; n: of the token and the n - 1 most likely ones, at most 20 */
    uint64_t client;     /* requests in the queue are taken from each client in turn */
    int32_t priority;    /* higher first; it rises while the request waits */
    double timeout;      /* seconds; 0: none */
    /* Requests with different salts never reuse each other's prefixes. */
    uint64_t cache_salt;
    /* Only compute the prompt, so that later requests find it in the prefix cache; generate
     * nothing. Runs in steps of about 50 ms while there is no other work. */
    bool warm;
    /* Ascending positions in the prompt where other prompts with the same beginning are likely to
     * differ. Recurrent models keep a state snapshot near each; at most FLETCH_MARKS. */
    const uint32_t *marks;
    size_t n_marks;
    /* When the request starts, and after each step that computed a chunk of its prompt; may be
     * NULL. */
    void (*on_reading)(void *ctx, const struct fletch_reading *reading);
    /* Return non-zero to end the request. */
    int (*on_token)(void *ctx, const struct fletch_token *token);
    /* The last call for a request; it comes exactly once for each accepted request. */
    void (*on_done)(void *ctx, const struct fletch_result *result);
    void *ctx;
};

/* Queues a request. FLETCH_E_LIMIT if the queue is full, FLETCH_E_CONTEXT if the request can never
 * fit. Submit and cancel may be called from any thread and from callbacks. */
FLETCH_API int fletch_batch_submit(struct fletch_batch *b, const struct fletch_request *r,
                                   uint64_t *id);
/* Ends a request at the next step. Does nothing if the request has finished. */
FLETCH_API int fletch_batch_cancel(struct fletch_batch *b, uint64_t id);
/* Ends the wait of the current fletch_batch_step, or of the next one that would wait. May be called
 * from any thread. */
FLETCH_API void fletch_batch_wake(struct fletch_batch *b);
/* Waits for work for at most wait_seconds, then runs one step. Returns the number of unfinished
 * requests. A failed step ends its requests, not the batch. */
FLETCH_API size_t fletch_batch_step(struct fletch_batch *b, double wait_seconds);

struct fletch_batch_stats {
    uint64_t n_steps, n_mixed;                /* steps: all; those with both prefill and decode */
    uint64_t n_ahead;                         /* steps submitted before the previous one was read */
    uint64_t n_prompt_rows, n_answer_rows;    /* tokens computed, including repeated ones */
    uint64_t n_done, n_failed, n_preemptions; /* requests */
    uint64_t n_drafted, n_accepted;           /* draft tokens; those that were accepted */
    uint64_t n_prompt, n_reused, n_evicted;   /* tokens of prompts; tokens reused; blocks evicted */
    uint64_t n_unwritten;                     /* files of cache_dir that could not be written */
    uint64_t n_warmed; /* prompt tokens computed for requests with warm set */
    uint32_t n_running, n_waiting, most_running;
    uint32_t n_warming; /* running requests with warm set; n_running does not count them */
    uint32_t n_blocks, n_free, n_idle; /* cache blocks: all, unused, kept for reuse */
    uint32_t prompt_budget;            /* most prefill rows between two decode steps */
};
FLETCH_API void fletch_batch_stats(const struct fletch_batch *b, struct fletch_batch_stats *stats);

/* Counts the prefix files in a cache_dir, of all models, and their bytes. remove: deletes them. */
FLETCH_API int fletch_prefix_files(struct fletch_engine *e, const char *dir, bool remove,
                                   uint64_t *n_files, uint64_t *n_bytes);

/* ---- reports: JSON documents, for people after formatting ---- */

/* Metadata and tensors; "refused" lists what fletch_model_open would refuse. check: read all
 * weights and look for NaN and infinity. */
FLETCH_API int fletch_inspect(struct fletch_engine *e, const char *path, bool check, char **json);
/* Memory by part, and if the model does not fit, which settings would. For this function and
 * fletch_explain, path may also be SHAPE[:TYPE] as in fletch_synth, which needs no file. */
FLETCH_API int fletch_plan(struct fletch_engine *e, const char *path,
                           const struct fletch_model_params *params, char **json);
/* The same for another machine (m3-pro, rtx-4090, h100; the error for an unknown name lists all),
 * with the decode speed that is predicted from the bytes and kernels of a token. */
FLETCH_API int fletch_plan_for(struct fletch_engine *e, const char *path,
                               const struct fletch_model_params *params, const char *machine,
                               char **json);
/* The program: ops, buffers, bytes per step. */
FLETCH_API int fletch_explain(struct fletch_engine *e, const char *path,
                              const struct fletch_model_params *params, char **json);
/* The hardware of this machine, and the state of each backend. */
FLETCH_API int fletch_doctor(struct fletch_engine *e, char **json);

struct fletch_verify {
    const char *backend, *against; /* two backends, run in lockstep */
    uint32_t n_tokens;             /* generated after the prompt; 0: 16 */
    const int32_t *tokens;         /* the prompt */
    size_t n_prompt;
    float temperature; /* of the generated tokens; 0: the most likely ones */
    uint64_t seed;
    bool no_fuse; /* the first backend runs unfused too */
};
FLETCH_API int fletch_verify(struct fletch_engine *e, const char *path,
                             const struct fletch_model_params *params,
                             const struct fletch_verify *v, char **json);
/* The gates that a backend must pass on a model (docs/testing.md): the same tokens and op results
 * as `against`, no NaN, the same answers under all settings, and twenty turns that equal a fresh
 * run. Compares v->n_tokens tokens (0: 512) op by op. */
FLETCH_API int fletch_gates(struct fletch_engine *e, const char *path,
                            const struct fletch_model_params *params, const struct fletch_verify *v,
                            char **json);

/* type: f32 f16 bf16 q8_0 q4_0 q4_k q4_k_m q5_k_m q6_k. */
FLETCH_API int fletch_convert(struct fletch_engine *e, const char *in, const char *out,
                              const char *type, fletch_progress progress, void *ctx);
/* The same with more parameters. */
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
/* The shapes that fletch_synth knows. */
FLETCH_API int fletch_synth_shapes(struct fletch_engine *e, char **json);

struct fletch_counts {
    const uint32_t *p;
    size_t n;
};
enum {
    FLETCH_BENCH_PREFILL = 1, /* prompts alone */
    FLETCH_BENCH_DECODE = 2,  /* generated tokens alone, after a context of each depth */
    FLETCH_BENCH_FULL = 4,    /* a prompt, then generated tokens */
};
struct fletch_bench {
    unsigned modes;                       /* 0: all */
    struct fletch_counts prompts, gens;   /* tokens; empty: a short standard list */
    struct fletch_counts depths, batches; /* tokens in the context; sequences at once */
    uint32_t n_reps;                      /* 0: 7 */
    bool profile;                         /* time single ops instead of tokens */
    const void *image;                    /* the model, if path is NULL */
    size_t n_image;
    fletch_progress progress;
    void *ctx;
};
/* Speed, latency and memory use, compared with the measured bandwidth and arithmetic peak of this
 * machine. The cases determine n_ctx and n_sessions; those of params are ignored. */
FLETCH_API int fletch_bench(struct fletch_engine *e, const char *path,
                            const struct fletch_model_params *params,
                            const struct fletch_bench *bench, char **json);

/* Speed with and without speculation, on texts that suit it and on texts that do not. Of bench,
 * only the image is used. */
FLETCH_API int fletch_bench_drafts(struct fletch_engine *e, const char *path,
                                   const struct fletch_model_params *params,
                                   const struct fletch_bench *bench, char **json);

struct fletch_bench_kernel {
    const char *name;  /* as fletch help bench lists them: matvec, attention, ..., all */
    const char *shape; /* "key=value,..."; NULL: the default shape */
    uint32_t n_reps;   /* 0: 7 */
};
/* Speed of single kernels. Each is first checked against the reference; no speed is reported for a
 * kernel with wrong results. */
FLETCH_API int fletch_bench_kernel(struct fletch_engine *e, const struct fletch_bench_kernel *k,
                                   char **json);

struct fletch_tune {
    struct fletch_counts batches; /* sequences at once; empty: 1 */
    uint32_t depth;               /* tokens in the context of each; 0: 256 */
    uint32_t n_rounds;            /* rounds that a launch shape must win; 0: 4 */
    fletch_progress progress;
    void *ctx;
};
/* Finds the fastest launch shapes for a model on the engine's GPU, among those that give the same
 * bits, and saves them in the engine's tune_dir for all models with matrices of these sizes. The
 * batches determine n_ctx and n_sessions; those of params are ignored. */
FLETCH_API int fletch_tune(struct fletch_engine *e, const char *path,
                           const struct fletch_model_params *params, const struct fletch_tune *how,
                           char **json);

#ifdef __cplusplus
}
#endif
#endif
