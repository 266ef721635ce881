/* Every limit of the server: name, default, the status of an answer to what is over it (0: the
 * connection is closed), and what it bounds. `--limit NAME=VALUE` sets one; docs/server.md has this
 * table, and test/server_test.py compares the two. */
#ifndef SERVER_LIMITS_H
#define SERVER_LIMITS_H

#include <stdint.h>

#define LIMITS(X)                                                                       \
    X(header_bytes, 16384, 431, "bytes of a request's head")                            \
    X(body_bytes, 8388608, 413, "bytes of a request's body")                            \
    X(all_body_bytes, 268435456, 503, "bytes of all bodies together")                   \
    X(all_reply_bytes, 33554432, 503, "bytes of all answers that wait for clients")     \
    X(header_seconds, 10, 408, "time for the head of a request to arrive")              \
    X(body_seconds, 60, 408, "time for the body of a request to arrive")                \
    X(idle_seconds, 75, 0, "time that a connection may wait for its next request")      \
    X(stall_seconds, 30, 0, "time that a client may take nothing of its answer")        \
    X(backlog_bytes, 1048576, 0, "bytes of an answer that wait for their client")       \
    X(connections, 1024, 503, "connections")                                            \
    X(connections_per_address, 512, 429, "connections from one address")                \
    X(queue, 256, 503, "requests that wait for their turn")                             \
    X(queued_tokens, 1048576, 503, "tokens of prompts that wait for their turn")        \
    X(queue_seconds, 120, 503, "time that a request may wait for its turn")             \
    X(seconds, 600, 0, "time for a whole answer, which ends with what there is")        \
    X(json_depth, 32, 400, "levels of nesting in a body")                               \
    X(json_values, 1048576, 400, "values in a body; of an object each counts twice")    \
    X(pieces_bytes, 1048576, 413, "bytes of a text whose tokens' pieces are asked for") \
    X(messages, 1024, 400, "messages of a chat")                                        \
    X(tools, 128, 400, "tools of a chat")                                               \
    X(stops, 16, 400, "stop texts")                                                     \
    X(stop_bytes, 256, 400, "bytes of a stop text")                                     \
    X(choices, 16, 400, "answers to one prompt (n)")                                    \
    X(prompts, 128, 400, "prompts of one request")                                      \
    X(logprobs, 20, 400, "alternatives of a token (top_logprobs)")                      \
    X(logprob_entries, 131072, 400, "log probabilities in a whole answer")              \
    X(echo_bytes, 8388608, 400, "bytes of prompts that an answer repeats")              \
    X(biases, 1024, 400, "entries of logit_bias")                                       \
    X(schema_bytes, 65536, 400, "bytes of a JSON schema or grammar")                    \
    X(output_tokens, 1048576, 400, "tokens of an answer")

enum limit {
#define LIMIT_ENUM(name, value, status, what) LIMIT_##name,
    LIMITS(LIMIT_ENUM)
#undef LIMIT_ENUM
        N_LIMITS
};

struct limits {
    uint64_t v[N_LIMITS];
};
/* limit_of(&limits, queue) */
#define limit_of(limits, name) ((limits)->v[LIMIT_##name])

struct limit_row {
    const char *name, *what;
    uint64_t value;
    int status;
};
extern const struct limit_row limit_table[N_LIMITS];

#endif
