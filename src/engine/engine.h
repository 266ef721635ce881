/* The handles behind fletch.h. */
#ifndef FLETCH_ENGINE_H
#define FLETCH_ENGINE_H

#include <stdatomic.h>

#include "base/turns.h"
#include "core/step_queue.h"
#include "model/model.h"
#include "serve/batch.h"
#include "text/tmpl.h"

enum {
    ENGINE_BLOCK_TOKENS = 32,
    ENGINE_MAX_OUT = 64, /* R: rows a step gives logits for */
    ENGINE_MAX_ROWS = 64,
    ENGINE_DEFAULT_CTX = 8192, /* where memory for more is not looked for */
    ENGINE_MAX_CTX = 1 << 24,
    ENGINE_KEEP_ALIVE = 180, /* seconds */
};

struct fletch_engine {
    struct err err;
    const struct exec_class *class;
    u32 n_threads, device;
    bool asked;        /* for this backend, by its name */
    char *capture;     /* NULL: none */
    char *tune_dir;    /* NULL: none */
    u32 keep_alive;    /* seconds */
    char backend[160]; /* name and why */
};

struct fletch_model {
    struct err err;
    struct turns turns; /* of threads whose sessions and batches use all that is below */
    struct fletch_engine *engine;
    struct model *m;
    struct program *trunk; /* as the executor runs it: in groups unless told otherwise */
    struct exec *x;
    struct exec_limits limits;
    struct step *step;
    struct step_queue queue; /* trunk's */
    struct step_queue
        reader; /* its own buffers, for a batch's prompts; without a step: there is none */
    struct step *reader_step;
    bool reader_used;
    struct kv_pool kv;
    u32 n_sessions;  /* slots for sequences; those behind them keep snapshots and trials */
    bool *slot_used; /* [n_sessions] */
    struct constrain *constrain;
    struct fletch_sampling sampling;
    struct tmpl *chat; /* the chat template; NULL: there is none, or chat_err says why not */
    struct err chat_err;
    char *given_template; /* instead of the file's own; NULL: none was given, or it is not used */
    u64 memory_bytes;     /* by its plan */
    struct spec *spec;    /* NULL: nothing is guessed; what guesses: */
    struct fletch_model *draft;
    struct program *mtp;
    struct step_queue mtp_queue;
    struct recall recall; /* a folder for later runs, or none */
};

/* For arguments of the public functions that must not be NULL: 0, or the error that names it. */
int engine_need(struct err *err, const void *p, const char *what);
/* The same for n things. */
int engine_need_all(struct err *err, const void *p, size_t n, const char *what);
/* The engine is open, and there is a path to read and a place for the report. */
int engine_need_report(struct fletch_engine *e, const char *path, char **json);
int engine_need_biases(struct err *err, const struct fletch_sampling *s);
int engine_need_stops(struct err *err, const char *const *stops, size_t n);

/* Backends. backend_find sets an error that says why when it is not there; isa (NULL: the best)
 * names the instruction set of one that has several. */
const struct exec_class *backend_find(const char *name, const char *isa, struct err *err);
struct backend_state {
    const char *name;
    const struct exec_class *(*find)(const char *isa); /* NULL: a GPU's (gpu/gpu.h) */
    const char *what;
};
/* Why it can't be used here; NULL when it can. */
const char *backend_absent(const struct backend_state *b);
const struct backend_state *backend_list(size_t *n);

/* An error where the model was opened without weights. */
int engine_need_weights(struct fletch_model *m);
/* An error where params ask for that; params may be NULL. */
int engine_refuse_text_only(const struct fletch_model_params *params, struct err *err);

/* A model by path, recorded but not placed. */
int engine_model(struct model **out, const char *path, struct profile profile,
                 const struct fletch_model_params *params, struct err *err);

/* The longest context that is worth having: the model's own, or the window that it attends to. */
u32 engine_longest(const struct model *m);
/* Tells params' notice of a context that is longer than the model was trained with. */
void engine_tell_length(const struct model *m, const struct fletch_model_params *params);
/* Tells params' notice what the file says and the model does without. */
void engine_tell_ignored(const struct model *m, const struct fletch_model_params *params);

/* The numbers a model is opened with: what params leave open is decided here. */
int engine_profile(struct profile *out, const struct exec_class *class,
                   const struct fletch_model_params *params, struct err *err);
int engine_limits(struct exec_limits *out, const struct model *m, const struct exec_class *class,
                  const struct fletch_model_params *params, struct err *err);

/* Where params leave the context open: as long as the model has it and half of the memory that is
 * left allows; the rest is for a draft model and other programs. Several sessions share a cache in
 * which one of them may have all of the context. */
void engine_widen(struct exec_limits *limits, const struct model *m, const struct program *p,
                  const struct exec_class *class, const struct fletch_model_params *params);

/* A model that runs in turns with m, on its threads, and is closed before it. */
int engine_open_beside(struct fletch_model **out, const struct fletch_model *m, const char *path,
                       const struct fletch_model_params *params);

/* speculation.c: guesses of the next tokens, where params want some. */
bool engine_speculates(const struct fletch_model_params *params);
/* Is this drafter one of those that they ask for? */
bool engine_drafts(const struct model *m, const struct fletch_model_params *params,
                   enum drafter_kind d);
/* What takes memory of that, in words; NULL: nothing. */
const char *engine_drafts_with(const struct model *m, const struct fletch_model_params *params);
int engine_speculation_check(const struct model *m, const struct fletch_speculation *how,
                             struct err *err);
/* What a draft model is opened with, beside a model of these limits. */
struct fletch_model_params engine_draft_params(const struct fletch_model_params *params,
                                               const struct exec_limits *limits);
int engine_speculation_open(struct fletch_model *m, const struct fletch_model_params *params,
                            struct err *err);
void engine_speculation_close(struct fletch_model *m);

/* embed.c: the name of how the model pools, as in struct fletch_model_info. */
const char *engine_pooling(const struct model *m);

/* remember.c: what must be equal for a kept state to mean the same. */
int engine_key(struct fletch_model *m, u64 *key, struct err *err);

/* recall.c: the folder that keeps prompts for later runs, where params name one. */
int engine_recall_open(struct fletch_model *m, const struct fletch_model_params *params,
                       struct err *err);

/* batch.c: submits a request, whose tokens become text; seq: what it continues instead of r's
 * tokens, with r's n_tokens of it; NULL: nothing. */
int engine_submit(struct fletch_model *m, struct batch *b, const struct fletch_request *r,
                  struct batch_seq *seq, u64 *id, struct err *err);

/* batch_check of serve/batch.h, for tests. */
void engine_batch_check(const struct fletch_batch *b);

/* What it will take, by part. */
struct plan {
    u64 weights, kv, state, activations, total, available;
    u64 guessing;  /* what guesses tokens: a draft model with its cache, or the MTP block's program
                    */
    u64 per_token; /* of all caches, for a context that is one token longer */
    bool fits;
    u32 largest_ctx; /* that fits, 0: none */
};
void plan_make(struct plan *plan, const struct model *m, const struct program *p,
               const struct exec_class *class, const struct exec_limits *limits, u64 max_memory);
/* With what guesses tokens: so many bytes beside the cache, so many per token of context. */
void plan_add_guessing(struct plan *plan, const struct model *m, const struct exec_limits *limits,
                       u64 fixed, u64 kv, u64 per_token);
/* With the model's MTP block as that: its weights and cache layer are counted already. */
int plan_add_mtp(struct plan *plan, const struct model *m, const struct exec_class *class,
                 const struct exec_limits *limits, bool no_fuse, struct err *err);
/* With the MTP block, if params ask for it; checks what they ask for. */
int engine_speculation_plan(struct plan *plan, const struct model *m,
                            const struct exec_class *class, const struct exec_limits *limits,
                            const struct fletch_model_params *params, struct err *err);
u64 plan_available(void);
/* A program ready for an executor: its groups are found by the class's rules unless no_fuse. It
 * borrows from p. */
int engine_program(struct program **out, const struct program *p, const struct exec_class *class,
                   bool no_fuse, struct err *err);

#endif
