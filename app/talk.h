/* A conversation with a model: the messages, and the part of them that the session has read. Knows
 * nothing of terminals; chat_command.c does. */
#ifndef APP_TALK_H
#define APP_TALK_H

#include "parse.h"

struct talk_stats {
    size_t n_prompt;         /* tokens of the prompt */
    size_t n_read, n_reused; /* of them: all, unless Ctrl-C came before; in the session already */
    size_t n_hidden;         /* messages that no longer fit into the context */
    double prompt_seconds, answer_seconds;
    struct fletch_generated made;
};

struct talk {
    const struct args *a;
    struct host *host;
    struct sampling sampling;
    struct fletch_generate g; /* settings of the next answer */
    json_t *messages;         /* an array of {role, content}; the first may be the system's */
    size_t first;             /* of those behind the system message that the model still sees */
    int think;                /* chat_think_variable: 1, 0, or -1 to leave it alone (only where
                                 the template has one) */
    struct ids held;          /* tokens that the session holds */
    struct tools *parser;     /* of the answer that is being made */
    struct text said, thought;
    struct talk_stats last;
    /* More of the answer: content or thinking. */
    void (*on_text)(void *ctx, enum tools_part part, const char *text, size_t n);
    void *ctx;
};

/* Exit code; talk_close always. The host has a model and a session. */
int talk_open(struct talk *t, struct host *host, const struct args *a, const char *command);
void talk_close(struct talk *t);

/* The text of the system message, borrowed; NULL: there is none. */
const json_t *talk_system(const struct talk *t);
/* Sets the system message; "" removes it. */
void talk_set_system(struct talk *t, const char *text);
void talk_say(struct talk *t, const char *text, size_t n); /* as the user */
/* Answers the last message and adds the answer. An exit code after saying what went wrong; then the
 * messages are as they were. */
int talk_answer(struct talk *t);
/* Takes away the last answer; or the last question with its answer, whose text is returned (a
 * new reference). False or NULL when there is none. */
bool talk_forget_answer(struct talk *t);
json_t *talk_forget_question(struct talk *t);
void talk_clear(struct talk *t); /* all but the system message */
/* The host has another model and session: the conversation goes on with them. */
void talk_model_changed(struct talk *t);
/* Tokens of the conversation as the model would read it now; negative after saying why not. */
long talk_count(struct talk *t);
/* Files of {"messages": [...]}. Exit codes. */
int talk_save(const struct talk *t, const char *path);
int talk_load(struct talk *t, const char *path);

#endif
