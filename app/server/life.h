/* The lives of what the server keeps: requests, their choices, and hosted models. Each is an enum
 * that changes by one of these functions alone. */
#ifndef SERVER_LIFE_H
#define SERVER_LIFE_H

enum request_state {
    REQUEST_PARSING,     /* a worker has its body, or will have it */
    REQUEST_NEEDS_MODEL, /* waits until its model is loaded */
    REQUEST_SCORING,     /* its prompts' log probabilities are computed */
    REQUEST_RUNNING,     /* api->run is at work */
    REQUEST_GENERATING,  /* the batch has its choices; the client has heard nothing yet */
    REQUEST_ANSWERING,   /* the answer has begun */
    REQUEST_DONE,
    N_REQUEST_STATES,
};

enum choice_state {
    CHOICE_NEW,     /* the batch does not have it */
    CHOICE_QUEUED,  /* the batch has it; nothing was heard of it */
    CHOICE_NO_ROOM, /* the batch had no room for it; it is submitted again */
    CHOICE_RUNNING,
    CHOICE_ENDED,
    N_CHOICE_STATES,
};

enum hosted_state {
    HOSTED_ABSENT,   /* it is not loaded, and nobody waits for it */
    HOSTED_WANTED,   /* it is loaded when its turn comes */
    HOSTED_NO_ROOM,  /* it did not fit: others must go first */
    HOSTED_LOADING,  /* by its thread */
    HOSTED_READY,    /* its thread runs steps */
    HOSTED_STOPPING, /* its thread is to end */
    N_HOSTED_STATES,
};

void request_change(enum request_state *state, enum request_state to);
void choice_change(enum choice_state *state, enum choice_state to);
void hosted_change(enum hosted_state *state, enum hosted_state to);

#endif
