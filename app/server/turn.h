/* A turn of a chat: what the flavours that talk (chat completions, responses, messages) have in
 * common. On a worker, tools, tool_choice and response_format become prompt and grammar; on the
 * loop, tokens become parts: stretches of reasoning and content, and calls of tools. A flavour says
 * how parts look. */
#ifndef SERVER_TURN_H
#define SERVER_TURN_H

#include "server.h"
#include "chat/tools.h"

struct turn_part {
    enum tools_part kind;
    uint32_t index;      /* in the answer */
    uint32_t call_index; /* among its calls */
    struct words text;   /* so far; of a call its arguments as JSON */
    char id[16];         /* of a call, as its name */
    char *name;
};

/* How a flavour streams; each may be NULL. */
struct turn_writer {
    void (*open)(struct call *c, struct choice *ch, const struct turn_part *p);
    void (*more)(struct call *c, struct choice *ch, const struct turn_part *p, const char *text,
                 size_t n);
    void (*close)(struct call *c, struct choice *ch, const struct turn_part *p);
};

/* What one choice has made: its state (choice->state). */
struct turn {
    struct call *call;
    struct choice *choice;
    const struct turn_writer *w; /* NULL: the answer comes whole */
    struct tools *parser;
    struct turn_part *parts;
    uint32_t n_parts, n_calls, n_reasoning; /* n_reasoning: tokens */
    bool is_open;                           /* the last part may grow */
    json_t *logprobs;                       /* the flavour's, as the next two */
    bool spoke;
    uint32_t n_events;
};

/* A field of another flavour's body in a chat completion's: by its name there, by a function that
 * adds what it says to the chat (as api->take), or not at all. What is wrong with a field of the
 * chat is said of the one that it came from. */
struct turn_field {
    const char *name, *to;
    int (*take)(struct call *c, json_t *chat, json_t *v);
};
/* On a worker: call->body becomes that of a chat completion, by the api's rows; what they don't
 * name stays, but for what a row becomes. The old one is turn_original's. */
int turn_translate(struct call *c);
const json_t *turn_original(const struct call *c);
/* Then: checks, and renders the prompt. As api->take. */
int turn_take(struct call *c);
/* Then: the text of that prompt. */
int turn_prompt(struct call *c, struct words *out);

/* On the loop. The writer is NULL where the answer comes whole. */
struct turn *turn_of(struct choice *ch);
void turn_token(struct call *c, struct choice *ch, const struct token *t,
                const struct turn_writer *w);
void turn_done(struct call *c, struct choice *ch, const struct turn_writer *w);
/* What is to be said about the answers, or NULL. */
const char *turn_notice(const struct call *c);
/* Frees c->state and the choices': an api->free. */
void turn_free(struct call *c);

/* On a worker, after the end: the chat's messages with the answer, as a client sends them back with
 * its thinking or without, and a next one of that text: the results of its calls, or the user's.
 * NULL: no memory. */
json_t *turn_next(struct call *c, const char *text, bool thinking);
bool turn_has(struct choice *ch, enum tools_part kind);

/* A part's text as JSON. */
json_t *turn_text(const struct turn_part *p);
/* All parts of a kind as one text; null where there are none. */
json_t *turn_joined(struct choice *ch, enum tools_part kind);

#endif
