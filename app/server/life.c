#include "life.h"

#include "base/life.h"

void request_change(enum request_state *state, enum request_state to)
{
    static const u32 next[N_REQUEST_STATES] = {
        [REQUEST_PARSING] = LIFE(REQUEST_NEEDS_MODEL) | LIFE(REQUEST_SCORING) |
                            LIFE(REQUEST_RUNNING) | LIFE(REQUEST_GENERATING) | LIFE(REQUEST_DONE),
        [REQUEST_NEEDS_MODEL] = LIFE(REQUEST_PARSING) | LIFE(REQUEST_DONE),
        [REQUEST_SCORING] = LIFE(REQUEST_RUNNING) | LIFE(REQUEST_GENERATING) | LIFE(REQUEST_DONE),
        [REQUEST_RUNNING] = LIFE(REQUEST_DONE),
        [REQUEST_GENERATING] = LIFE(REQUEST_ANSWERING) | LIFE(REQUEST_DONE),
        [REQUEST_ANSWERING] = LIFE(REQUEST_DONE),
    };
    *state = life_next(next, *state, to);
}

void choice_change(enum choice_state *state, enum choice_state to)
{
    static const u32 next[N_CHOICE_STATES] = {
        [CHOICE_NEW] = LIFE(CHOICE_QUEUED),
        [CHOICE_QUEUED] = LIFE(CHOICE_NO_ROOM) | LIFE(CHOICE_RUNNING),
        [CHOICE_NO_ROOM] = LIFE(CHOICE_QUEUED) | LIFE(CHOICE_RUNNING),
        [CHOICE_RUNNING] = LIFE(CHOICE_ENDED),
    };
    *state = life_next(next, *state, to);
}

void hosted_change(enum hosted_state *state, enum hosted_state to)
{
    static const u32 next[N_HOSTED_STATES] = {
        [HOSTED_ABSENT] = LIFE(HOSTED_WANTED) | LIFE(HOSTED_NO_ROOM) | LIFE(HOSTED_LOADING),
        [HOSTED_WANTED] = LIFE(HOSTED_LOADING) | LIFE(HOSTED_ABSENT),
        [HOSTED_NO_ROOM] = LIFE(HOSTED_WANTED) | LIFE(HOSTED_ABSENT),
        [HOSTED_LOADING] = LIFE(HOSTED_READY) | LIFE(HOSTED_STOPPING) | LIFE(HOSTED_ABSENT),
        [HOSTED_READY] = LIFE(HOSTED_STOPPING),
        [HOSTED_STOPPING] = LIFE(HOSTED_ABSENT),
    };
    *state = life_next(next, *state, to);
}
