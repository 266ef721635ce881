/* The server: what its files share. It is a program over fletch.h.
 *
 * Threads. The loop thread owns every libevent object, connections, calls and figures. Each model
 * has an engine thread that runs fletch_batch_step. A few workers parse bodies, render templates
 * and tokenise. Between them: a bounded queue to the workers (worker.c) and a queue of events back
 * to the loop (mail.c).
 *
 * The way of a request:
 *   http.c      bytes become a request; guard.c says who may
 *   route.c     the path names an api: either answered at once, or a call is made of it
 *   worker      api->take(call): JSON to settings and prompts, or call->reply (which it makes
 *               bytes of), or call_wrong
 *   loop        call.c submits one batch request per choice; when the client goes, cancels them
 *   engine      tokens become events
 *   loop        api->begin, progress, token, done (per choice), end: the answer writer
 *
 * A new API flavour is one file with a `struct api` and its row in route.c. */
#ifndef SERVER_H
#define SERVER_H

#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "fletch.h"
#include "http_parse.h"
#include "life.h"
#include "limits.h"
#include "reply.h"
#include "settings.h"

struct server;
struct server_event;
struct conn;
struct call;
struct served;
struct server_params;

/* ---- http.c: connections ---- */

struct key;

/* A whole request. Valid until its answer has ended or its client has gone. */
struct request {
    struct http_head head;
    char *body; /* ends with 0 */
    size_t n_body, cap_body;
    uint64_t id; /* for the log */
    const struct key *key;
};

struct server *conn_server(const struct conn *c);
struct request *conn_request(struct conn *c);
const char *conn_address(const struct conn *c);

/* An answer is one http_reply, or http_begin, any number of http_write, http_end. Further headers
 * are added before. A write to a client that has gone, or that takes nothing for too long, is
 * lost and on_gone is called (from the loop, not from within the write). */
void http_add_header(struct conn *c, const char *name, const char *value);
void http_reply(struct conn *c, int status, const char *type, const void *body, size_t n);
/* The same of a reply that was closed; takes its bytes. */
void http_reply_bytes(struct conn *c, int status, const char *type, struct reply *r);
void http_begin(struct conn *c, int status, const char *type);
void http_write(struct conn *c, const void *p, size_t n);
void http_end(struct conn *c);
/* Whom to tell, once, when the client goes before its answer has ended. After it c is no more. */
void http_on_gone(struct conn *c, void (*on_gone)(void *ctx), void *ctx);
void http_no_memory(struct conn *c);       /* says that there is too little for this request */
bool http_has_owner(const struct conn *c); /* somebody is to be told */

/* ---- guard.c: who may ---- */

struct address { /* an IPv4 address, or the first half of an IPv6 address */
    unsigned char bytes[8];
};

struct key { /* who asks */
    const char *name, *secret;
    uint64_t number;  /* of the key, from 1; 0: nobody needs one */
    uint64_t salt;    /* keeps what is cached for it apart from what is for others */
    double rate;      /* requests a minute; 0: any */
    double tokens, t; /* of its bucket, at that time */
    bool used;        /* it was, lately from that address */
    struct address used_from;
};

/* An address that wrong keys came from; n_wrong decreases with time. */
struct guesser {
    struct address address;
    double n_wrong, t;
};
enum { MAX_GUESSERS = 256 };

struct guard {
    struct key *keys; /* [n_keys]; one without a secret when none are needed */
    size_t n_keys;
    const char *const *hosts; /* names that this server has, besides addresses and localhost */
    size_t n_hosts;
    const char *const *origins; /* whose pages may use it, besides its own; "*": all */
    size_t n_origins;
    bool needs_key;
    char *text; /* what keys point into */
    struct guesser guessers[MAX_GUESSERS];
};

struct problem;
int guard_open(struct guard *g, const struct server_params *params); /* exit code */
void guard_close(struct guard *g);
/* Sets the request's key; or the problem, and false. Adds the headers that let a page of an allowed
 * origin read the answer. */
bool guard_admit(struct server *s, struct conn *c, struct problem *p);
/* Answers a browser that asks whether a page of an allowed origin may send a request; false: this
 * is no such question. */
bool guard_preflight(struct conn *c);

/* ---- memory.c: what a request takes, and what is left when there is none ---- */

void memory_open(void); /* before anything else takes memory */
void memory_close(void);
/* Takes back what the reserve gave, as far as there is room again. */
void memory_restock(void);
/* This thread begins what it does for a request; then whether it found no memory, so that JSON or
 * words lack a part. */
void memory_begin(void);
bool memory_failed(void);
void memory_fail(void); /* it did */
/* Of small things that the server can't go on without: never NULL. */
void *memory_zeroed(size_t n);
void *memory_resize(void *old, size_t n);
char *memory_copy(const char *text);

/* ---- worker.c: what takes long, off the loop ---- */

/* Lives in what it is about. */
struct task {
    void (*work)(void *ctx); /* on a worker */
    void (*done)(void *ctx); /* then on the loop; may free the task */
    void *ctx;
    bool heavy; /* may take much memory: one of these at a time */
    struct server *server;
    struct task *next;
};
int workers_open(struct server *s);
void workers_close(struct server *s);
void workers_give(struct server *s, struct task *t);
/* Out of the queue; false: it has begun, or was never given. */
bool workers_take_back(struct server *s, struct task *t);
/* Clients took something of their answers, or time has passed: heavy tasks may be due. */
void workers_heed(struct server *s);

/* ---- calls: requests for models ---- */

/* Why not: the status and words for the client, ready to be sent. */
struct problem {
    int status;        /* 0: none */
    const char *type;  /* OpenAI's: invalid_request_error, ... */
    const char *param; /* the field it is about, or NULL */
    const char *code;  /* a word for programs, or NULL; of a limit its name */
    char text[600];
};

/* One answer that is being made: a batch request. */
struct choice {
    struct call *call;
    uint32_t index;  /* in the answer */
    uint32_t prompt; /* index of its prompt */
    uint64_t id;     /* in the batch, while that has it */
    enum choice_state life;
    bool told_start; /* the engine thread's */
    bool starved;    /* a token found no memory; the engine thread's until its end */
    double t_last;   /* when its latest token was made */
    uint32_t shown_position;
    struct fletch_result result; /* once it has ended; its error is the text below */
    char error[200];
    void *state; /* the api's own; freed by api->free */
};

struct prompt {
    int32_t *ids; /* fletch_free */
    size_t n;
};

/* What most flavours ask for; fields.c reads it. JSON is borrowed from call->body. */
struct ask {
    bool stream, include_usage, include_progress, echo, logprobs, continue_final;
    bool score;           /* the prompts' own logprobs are wanted */
    bool silent;          /* what is generated is not shown */
    const json_t *effort; /* how hard to think, in the template's words, or NULL */
    enum { THINK_AS_IS, THINK_ON, THINK_OFF } think;
    const char *think_field; /* that says so */
    uint64_t think_budget;   /* 1 + the tokens that it may think at most; 0: no such limit */
    bool one_tool_call;      /* at most, in an answer */
    bool truncates;          /* of a chat that is too long the oldest turns may be left out */
    uint32_t n_dropped;      /* messages that were */
    uint32_t n;              /* answers to each prompt */
    uint32_t n_top;          /* alternatives of each token */
    json_t *messages, *tools, *tool_choice, *template_args, *prompt;
    struct request_settings set; /* of every choice */
};

/* score.c: of each token of a prompt, given those before it; the first has none. */
struct score {
    float *logprobs; /* [n] */
    uint32_t n_top;
    int32_t *top_ids;    /* [n][n_top] */
    float *top_logprobs; /* [n][n_top] */
};

enum { NOTICE_BYTES = 512 };

struct call {
    struct server *server;
    struct conn *conn; /* NULL: the client has gone */
    const struct api *api;
    struct served *served;
    uint64_t id;     /* of the request */
    char name[40];   /* of the answer: chatcmpl-... */
    int64_t created; /* unix seconds */
    uint64_t client, salt;
    char *text; /* the body as it came; NULL once it is parsed */
    size_t n_text, cap_text;
    json_t *body; /* parsed; always an object */
    struct ask ask;
    struct prompt *prompts;
    uint32_t marks[FLETCH_MARKS]; /* of a chat of a recurrent model (prompt_marks) */
    size_t n_marks;
    size_t n_prompts;
    struct score *scores; /* [n_prompts] where they were asked for */
    json_t *reply;        /* set by take: the whole answer, nothing is submitted */
    struct reply *bytes;  /* the same as bytes: made of reply, or set by take in its place */
    uint64_t n_entries;   /* of log probabilities that wait to be sent */
    struct problem problem;
    char place[160];           /* inside a field, that the problem is about */
    char notice[NOTICE_BYTES]; /* X-Fletch-Notice of the answer: what was not done as asked */
    struct choice *choices;    /* [n_choices = n_prompts · ask.n] */
    uint32_t n_choices;
    struct served *held;     /* its model, which stays loaded; NULL: it is not yet */
    enum request_state life; /* the loop's to change */
    int status;              /* of the answer, at its end */
    double t_begin, t_submit;
    char address[48];
    char *path; /* for the log, as key */
    const char *key;
    void *state;              /* the api's own */
    struct call *next, *prev; /* all calls, oldest first */
    struct task task;
};

/* A token, or text that waited for a stop text (id -1). */
struct token {
    int32_t id;
    const char *text;
    size_t n_text;
    float logprob;
    uint32_t n_top;
    const int32_t *top_ids;
    const float *top_logprobs;
    double t; /* when it was made */
};

/* How far reading the prompt is. */
struct progress_event {
    uint32_t n_done, n_prompt, n_reused;
    const char *reuse_end;
    uint32_t queue_position; /* 0: it runs */
};

enum { CALL_CLIENT_GONE = 499 }; /* the status of its answer, in logs and metrics */

/* One flavour of request and answer. All but take are called on the loop thread. */
struct api {
    const char *label;                       /* in metrics and logs */
    const char *prefix;                      /* of call->name */
    const struct field_table *const *fields; /* of the body, up to a NULL */
    const struct turn_field *rows;           /* [n_rows] of what becomes a chat's (turn.h) */
    size_t n_rows;
    /* On a worker: reads call->body. 0, or call_wrong's -1. */
    int (*take)(struct call *c);
    /* What is no batch request: works on its own, sets call->reply or problem, and ends with
     * call_ran. NULL: choices are submitted. */
    void (*run)(struct call *c);
    /* The rest is NULL where take or run makes the reply. begin: before the first event of any
     * choice. */
    void (*begin)(struct call *c);
    void (*progress)(struct call *c, struct choice *ch,
                     const struct progress_event *p); /* or NULL */
    void (*token)(struct call *c, struct choice *ch, const struct token *t);
    void (*done)(struct call *c, struct choice *ch); /* ch->result is there */
    void (*end)(struct call *c);                     /* all choices are done: ends the answer */
    void (*free)(struct call *c);                    /* c->state and choices' states */
    /* Instead of end: call->problem came after begin. Says so in the stream, or replies. */
    void (*broken)(struct call *c);
    /* Words for a problem in this flavour; NULL: OpenAI's. */
    json_t *(*problem)(const struct problem *p);
};

/* Always -1, so that a taker can end with it. param may be NULL. */
int call_wrong(struct call *c, int status, const char *param, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* After call_wrong: the problem is about this place inside a field, as messages[2].role. -1. */
int call_at(struct call *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* One more thing that was not done as asked, for the header X-Fletch-Notice of the answer. */
void call_notice(struct call *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* A field that has no effect here; name is one of the body's. With --lenient it is ignored, with a
 * notice: 0. Otherwise -1. */
int call_ignore(struct call *c, const char *name);
/* A field that nobody knows: as call_ignore. */
int call_unknown(struct call *c, const char *name);
/* What a field of a chat is called in the flavour of this request. */
const char *call_field(const struct call *c, const char *name);
/* What is over a limit: names it. */
int call_over(struct call *c, enum limit l, const char *param, uint64_t is);
/* What is asked for takes more memory than there is. */
int call_no_memory(struct call *c);
/* n more log probabilities wait until the whole answer is there. False: too many, it ends. */
bool call_add_entries(struct call *c, uint64_t n);
/* Makes call->bytes of call->reply, on a worker. */
void call_write_reply(struct call *c);
/* The end of api->run, on the loop. */
void call_ran(struct call *c);
/* Adds a prompt; takes ids. */
void call_add_prompt(struct call *c, int32_t *ids, size_t n);
/* OpenAI's finish_reason. */
const char *call_finish_reason(const struct choice *ch);
/* Tokens of a prompt that were read: all, unless it was stopped before, or goes on. */
json_int_t call_prompt_tokens(const struct call *c, size_t prompt);
/* {prompt_tokens, completion_tokens, total_tokens, prompt_tokens_details: {cached_tokens}} */
json_t *call_usage(const struct call *c);
/* {queue_ms, prefill_ms, decode_ms, tokens_per_s, ...} */
json_t *call_timings(const struct call *c);

/* call.c's other side. */
void call_begin(struct conn *conn, const struct api *api);
int call_parse(struct call *c); /* call->text to call->body */
void call_on_event(const struct server_event *e);
void call_free(struct call *c);
void call_work(struct call *c);         /* on a worker: the body becomes settings and prompts */
void call_model_came(struct served *m); /* or failed to: those who wait for it go on */
void call_scored(struct call *c);       /* score_begin has ended */
void call_tick(struct server *s);       /* about every quarter of a second */
void call_cancel_all(struct server *s);

/* ---- fields.c: fields of a body, by tables ---- */

struct field {
    const char *name;
    int (*take)(struct call *c, const struct field *f, json_t *v); /* as api->take; v is not null */
    size_t at; /* offsetof(struct call, ...) where take writes to */
    double min, max;
};
struct field_table {
    const struct field *fields;
    size_t n;
    bool has_settings; /* the fields of settings.h follow */
};
#define FIELD_TABLE(table)                              \
    {                                                   \
        (table), sizeof(table) / sizeof *(table), false \
    }
#define FIELD_AT(member) offsetof(struct call, member)

/* Takes every field of the body by the first of the api's tables that has it; a field that none has
 * is an error that names it. Nulls count as absent. The model and its defaults come first. */
int fields_take(struct call *c);
/* Before that: finds c->served, and c->held if that is loaded. */
int fields_take_model(struct call *c);
int field_count(struct call *c, const struct field *f, json_t *v); /* to a uint32_t */
int field_top(struct call *c, const struct field *f, json_t *v); /* field_count, within logprobs */
int field_think_budget(struct call *c, const char *name, const json_t *v);
int field_flag(struct call *c, const struct field *f, json_t *v);  /* to a bool */
int field_array(struct call *c, const struct field *f, json_t *v); /* to a json_t * */
int field_object(struct call *c, const struct field *f, json_t *v);
int field_any(struct call *c, const struct field *f, json_t *v);
int field_ignore(struct call *c, const struct field *f, json_t *v); /* known, without effect here */
/* Not supported: a number from min to max, where true is 1 and false, "", [] and {} are 0, says
 * that it is not wanted; anything else is refused. */
int field_off(struct call *c, const struct field *f, json_t *v);
/* A field of settings.h, by its name there. */
int field_setting(struct call *c, const struct field *f, json_t *v);
/* n, stream, model, user, ..., and the fields of settings.h: what the OpenAI flavours have in
 * common. */
extern const struct field_table fields_common;
extern const struct field_table fields_model; /* model, and what has no effect anywhere */
/* Fields of other servers that have no effect here, or may only be off. */
extern const struct field_table fields_others;
/* messages, tools, chat_template_kwargs, ... */
extern const struct field_table fields_chat;
extern const struct field_table *const chat_tables[]; /* all fields of a chat */

/* ---- prompt.c: text to tokens, on a worker ---- */

/* Renders ask.messages (with tools and so on) and adds the prompt; checks its length. Where
 * ask.truncates, leaves out the fewest of the oldest turns (a question and all up to the next one)
 * so that it fits and leaves room for an answer, and counts their messages. */
int prompt_chat(struct call *c);
/* Renders the chat with the template variables as they are now, and compares with its prompt. */
int prompt_chat_again(struct call *c, bool *same);
/* The tokens of other messages in the same chat. */
int prompt_chat_with(struct call *c, json_t *messages, struct prompt *p);
/* Finds where other prompts are likely to differ from this chat's: where its first and its last
 * message of the user begin. */
void prompt_marks(struct call *c);
/* The text that the template gives (fletch_free). It may be long, so the body, which nobody needs
 * after it, goes first. */
int prompt_chat_text(struct call *c, char **text, size_t *n);
int prompt_text(struct call *c, const char *text, size_t n, unsigned flags);
/* A query and a document for a reranker. */
int prompt_pair(struct call *c, const struct fletch_pair *pair);
int prompt_ids(struct call *c, const char *path, const json_t *from);
/* Prompt and answer fit into the context? */
int prompt_check(struct call *c, size_t n);

/* ---- warm.c: answers come back as prompts ---- */

/* At the end of a call whose client has its answer: takes the call, and frees it later. False: it
 * does not, because there is nothing to compute. */
bool warm_begin(struct call *c);
/* A prompt has come, which nobody else need compute any more for that conversation. */
void warm_supersede(struct served *m, uint64_t salt, const struct prompt *p);

/* ---- reader.c: prompts read by a model's session ---- */

/* Of one call; what it makes of the prompts is the owner's, around it. */
struct reader {
    struct reader *next;
    struct call *call;
    size_t piece;      /* tokens between two steps of others */
    size_t prompt, at; /* which one, and how many of its tokens were read */
    /* On the engine thread: reads the n tokens from `at`. A code of the session's. */
    int (*read)(struct served *m, struct reader *r, const int32_t *ids, size_t n);
    /* On the loop, as the last call: all was read, or call->problem or the client's going broke it
     * off. */
    void (*done)(struct reader *r);
    int rc;
    bool lacks_room, rests; /* others have the room that it needs; the loop's: it waits for some */
    uint32_t room;          /* blocks that were too few */
    char error[200];
    json_t *(*reply)(const struct reader *r); /* of reader_answer: the answer, on a worker */
    struct task task;
};
void reader_begin(struct reader *r);
/* A reader's `done` that ends its call with `reply`. */
void reader_answer(struct reader *r);
void reader_wake(struct served *m); /* the first in line tries again, if it rests */

/* ---- score.c ---- */

/* Scores the prompts of a call, on the engine thread; ends in call_scored. */
void score_begin(struct call *c);
void score_free(struct call *c);

/* ---- sse.c: streams ---- */

void sse_begin(struct conn *c);
/* `data: JSON`, with `event: NAME` before it unless NULL. Takes j. */
void sse_send(struct conn *c, const char *event, json_t *j);
void sse_end(struct conn *c, const char *last); /* last: "[DONE]" or NULL */
/* The ends of OpenAI's answers: j is the last chunk, sent where usage or progress was asked for, or
 * the whole answer. Takes j. broken is an api's. */
void stream_end(struct call *c, json_t *j);
void stream_broken(struct call *c);
/* {prompt_done, prompt_total, ...} */
json_t *progress_json(const struct choice *ch, const struct progress_event *p);
/* A whole answer; a long one is written by a worker first. Takes j. */
void json_reply(struct conn *c, int status, json_t *j);
/* Status, Retry-After where it is due, and the words. */
void problem_reply(struct conn *c, const struct problem *p,
                   json_t *(*words)(const struct problem *));
json_t *problem_openai(const struct problem *p);
/* Text that grows. Starts as zero; free p. */
struct words {
    char *p;
    size_t n, cap;
    bool failed;
};
/* Where memory does not suffice the words have failed, and stay empty: words_add says so to
 * memory_failed, too. */
void words_add(struct words *w, const char *p, size_t n);
void words_try_add(struct words *w, const char *p, size_t n);
json_t *words_json(const struct words *w); /* NULL: they have failed */

/* {token, logprob, bytes, top_logprobs} of one token, as chat completions have it. */
json_t *logprob_entry(const struct served *m, const struct token *t, uint32_t n_top);

/* ---- api_*.c ---- */

extern const struct api api_chat, api_responses, api_messages, api_count_tokens, api_embeddings,
    api_rerank, api_completions, api_tokenize, api_detokenize, api_apply_template;

/* ---- served.c: models in service ---- */

/* Figures that the engine thread leaves after every step. */
struct served_figures {
    struct fletch_batch_stats stats;
    double t_step;                           /* when the last one ended; 0: none */
    double tokens_per_second;                /* over the last seconds */
    uint64_t gpu_allocated, gpu_recommended; /* bytes, of the process; 0: not known */
};

enum { STATUS_SECONDS = 60 }; /* that /v1/status looks back */

struct served {
    struct server *server;
    const char *id;   /* its name in the API */
    const char *path; /* NULL: the built-in one */
    bool has_driver;  /* its engine runs on a GPU */
    /* set by the loader, good while it is loaded */
    const char *backend;
    /* the loop's: tokens generated in each of the last seconds, a ring */
    uint32_t history[STATUS_SECONDS];
    uint64_t n_history, n_counted;
    struct fletch_model_info info;
    int64_t created;
    struct fletch_model *model;
    struct fletch_batch *batch;
    struct fletch_session *session; /* for embeddings; the engine thread's */
    pthread_mutex_t text_lock;      /* the text functions of a model are for one thread at a time */
    char *piece_text;               /* what every token looks like, one after the other */
    uint32_t *pieces;               /* [n_vocab + 1] where in it */
    bool *hidden;                   /* [n_vocab] control tokens, which text does not show */
    /* the engine thread's, and what it shares under lock */
    pthread_t thread;
    pthread_mutex_t lock;
    enum hosted_state state; /* the loop's to change */
    struct served_figures figures;
    struct errand *errands;
    struct reader *readers; /* the loop's: the first of a line */
    struct warm *warms;     /* the loop's: of answers that come back, the oldest first */
    uint32_t n_warming;     /* the loop's: these, and those that workers make */
    uint32_t n_users;       /* calls that hold it */
    bool on_demand;         /* of --model-dir: loaded when asked for */
    double t_used;          /* when it was last asked for or let go; under lock */
    uint64_t bytes;         /* of memory that it takes */
    uint64_t allowed;       /* that it may take; 0: what the machine has */
    uint64_t beside;        /* that others took when it was last loaded */
    int code;               /* why it failed to load: an exit code */
    void *host;             /* the loader's */
};

/* The one of that name; the only one for NULL. NULL: there is none. */
struct served *served_find(struct server *s, const char *id);
bool served_is_ready(struct served *m);   /* from any thread */
bool served_runs(const struct served *m); /* on the loop: its thread takes work */
/* From any thread: keeps it loaded until it is let go; false: it is not. */
bool served_hold(struct served *m);
void served_let_go(struct served *m);
/* Loads it if need be, making room by unloading those that nobody uses; then call_model_came. */
void served_want(struct served *m);
void served_tick(struct server *s);    /* tries again where there was no room */
json_t *served_card(struct served *m); /* as /v1/models has it */
void served_figures(struct served *m, struct served_figures *out);
/* The bytes of a token as shown, control tokens too. Not ended by 0. */
const char *served_piece(const struct served *m, int32_t id, size_t *n);
bool served_is_hidden(const struct served *m, int32_t id);
/* Runs work(m, ctx) on the engine thread between two steps, then done(ctx) on the loop. */
void served_errand(struct served *m, void (*work)(struct served *m, void *ctx),
                   void (*done)(void *ctx), void *ctx);

/* ---- mail.c: what other threads tell the loop ---- */

enum event_kind { EVENT_TOKEN, EVENT_PROGRESS, EVENT_DONE, EVENT_RUN };

struct server_event {
    struct server_event *next;
    enum event_kind kind;
    struct choice *choice;
    struct token token;
    struct progress_event progress;
    struct fletch_result result;
    void (*run)(void *ctx);
    void *ctx;
    char data[]; /* what token's pointers point to */
};

/* From any thread; takes e. False: the loop is far behind, and whoever makes this one should end.
 * The last events of things are never refused. */
bool mail_send(struct server *s, struct server_event *e);
/* Runs it on the loop. */
void mail_run(struct server *s, void (*run)(void *ctx), void *ctx);
int mail_open(struct server *s);
void mail_close(struct server *s);

/* ---- route.c ---- */

struct route {
    const char *method, *path; /* a path that ends in * is a beginning */
    void (*answer)(struct conn *c);
    const struct api *api; /* or NULL, and answer */
    /* For openapi.json, where the other three are names of schemas; NULL: a text, or none. */
    const char *summary, *request, *reply, *event;
};
extern const struct route routes[];
extern const size_t n_routes;

void route(struct conn *c);
/* How the API at a path words problems; NULL: as OpenAI's. The path may be NULL. */
json_t *(*route_words(const char *path))(const struct problem *);

/* ---- metrics.c, status.c, log.c, page.c ---- */

struct metrics;
struct metrics *metrics_open(void);
void metrics_close(struct metrics *m);
void metrics_request(struct metrics *m, const char *label, int status);
void metrics_rejected(struct metrics *m, const char *code);
void metrics_token(struct metrics *m, double since_last); /* 0: the first of an answer */
void metrics_prompt(struct metrics *m, uint64_t n);       /* tokens that were read for no choice */
void metrics_choice(struct metrics *m, const struct choice *ch);
void metrics_reply(struct conn *c);
uint64_t metrics_resident_bytes(void); /* memory of this process */

void status_reply(struct conn *c);
void status_tick(struct server *s); /* at least once a second */

/* A request that has ended; call NULL: it was answered at once. */
struct access {
    uint64_t id;
    const char *method, *path, *address, *key;
    int status;
    double seconds;
    const struct call *call;
};
void log_access(const struct server *s, const struct access *a);
void log_line(const struct server *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

struct web_file;
const struct web_file *page_find(const char *path); /* NULL: it has no such file */
bool page_reply(struct conn *c);                    /* false likewise */

/* ---- shut.c ---- */

/* A model is there: at the first the sandbox is closed. */
void shut_in(struct server *s);

/* ---- server.c ---- */

struct server_params {
    const char *host;
    uint16_t port;
    const char *cert, *key;
    const char *key_file;
    const char *const *hosts;
    size_t n_hosts;
    struct limits limits;
    double drain_seconds, stuck_seconds, rate; /* rate: requests a minute and key */
    const char *cache_dir;                     /* that models keep prompts in, or NULL */
    bool cache_is_default;                     /* nobody has asked for it */
    const char *model_dir, *draft; /* what models that come later are read from, or NULL */
    const char *const *origins;    /* [n_origins] of pages that may use the server; "*": all */
    size_t n_origins;
    bool shared_cache, log_json, no_sandbox, quiet;
    bool no_warm;      /* answers are computed as prompts only when they come back */
    bool strict_model; /* a lone model answers to its own names only */
    bool lenient;      /* unknown fields are ignored, with a notice */
    bool has_seed;
    uint64_t seed;       /* of requests that give none */
    uint32_t max_tokens; /* the same; 0: that of the endpoint */
    uint32_t n_workers;
    /* Opens engine and model, on the engine thread; says what went wrong. Exit code. */
    int (*load)(void *ctx, struct served *m);
    void (*unload)(void *ctx, struct served *m);
    void *ctx;
    /* One model that is there from the start, or those of a folder, on demand. */
    const char *const *ids, *const *paths; /* [n_models] */
    size_t n_models;
    const struct server_alias { /* a further name of a model; "*": every name that is not known, "":
                                   requests that name none */
        const char *name;
        size_t model;
    } * aliases;
    size_t n_aliases;
    bool on_demand;
    uint64_t max_memory; /* of all together; 0: what the machine has */
};

struct server {
    struct server_params params;
    struct limits limits;
    struct guard guard;
    struct event_base *base;
    struct listener *listener;
    struct mail *mail;
    struct workers *workers;
    struct metrics *metrics;
    struct served *served; /* [n_served] */
    size_t n_served;
    struct call *first, *last;  /* calls that are not done */
    uint32_t n_calls, n_queued; /* all of them; those with a choice that has not started */
    uint64_t body_bytes;        /* memory of all bodies */
    uint64_t unsent_bytes;      /* of all answers */
    uint64_t queued_tokens, last_id, boot; /* boot: a random number of this start */
    double t_start, t_drain, t_history;    /* t_history: when status_tick last counted */
    bool draining;
    atomic_bool noted_billing; /* that such blocks are removed (api_messages.c) */
    bool is_shut_in;           /* the sandbox is closed */
    int code;                  /* of the program's exit */
};

/* Runs until it is told to end. Exit code. */
int server_run(const struct server_params *params);
/* Ends the loop at once. */
void server_stop(struct server *s, int code);
double server_now(void);

#endif
