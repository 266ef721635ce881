/* Every limit of the server: name, default, the status of an answer to what is over it (0: the
 * connection is closed), and what it bounds. `--limit NAME=VALUE` sets one; docs/server.md has this
 * table, and test/server_test.py compares the two. */
#ifndef SERVER_LIMITS_H
#define SERVER_LIMITS_H

#include <stdint.h>

#define LIMITS(X)                                                                              \
    X(header_bytes, 16384, 431, "bytes in the headers of a request")                           \
    X(body_bytes, 8388608, 413, "bytes in a request body")                                     \
    X(all_body_bytes, 268435456, 503, "bytes in all request bodies together")                  \
    X(all_reply_bytes, 33554432, 503, "bytes in all answers that clients have not read yet")   \
    X(header_seconds, 10, 408, "time for the headers of a request to arrive")                  \
    X(body_seconds, 60, 408, "time for a request body to arrive")                              \
    X(idle_seconds, 75, 0, "time that a connection can stay idle between requests")            \
    X(stall_seconds, 30, 0, "time during which a client reads nothing of its answer")          \
    X(backlog_bytes, 1048576, 0, "bytes in an answer that its client has not read yet")        \
    X(connections, 1024, 503, "open connections")                                              \
    X(connections_per_address, 512, 429, "open connections from one address")                  \
    X(queue, 256, 503, "requests in the queue")                                                \
    X(queued_tokens, 1048576, 503, "prompt tokens of the requests in the queue")               \
    X(queue_seconds, 120, 503, "time that a request can spend in the queue")                   \
    X(seconds, 600, 0, "time for a whole answer; the server ends an answer that takes longer") \
    X(json_depth, 32, 400, "levels of nesting in a body")                                      \
    X(json_values, 1048576, 400, "values in a body; each member of an object counts twice")    \
    X(pieces_bytes, 1048576, 413, "bytes in a text tokenized with pieces")                     \
    X(messages, 1024, 400, "messages in a chat")                                               \
    X(tools, 128, 400, "tools in a chat")                                                      \
    X(stops, 16, 400, "stop strings")                                                          \
    X(stop_bytes, 256, 400, "bytes in a stop string")                                          \
    X(choices, 16, 400, "answers to one prompt (n)")                                           \
    X(prompts, 128, 400, "prompts in one request")                                             \
    X(logprobs, 20, 400, "alternatives for a token (top_logprobs)")                            \
    X(logprob_entries, 131072, 400, "log probabilities in a whole answer")                     \
    X(echo_bytes, 8388608, 400, "bytes of prompts that an answer repeats")                     \
    X(biases, 1024, 400, "entries in logit_bias")                                              \
    X(schema_bytes, 65536, 400, "bytes in a JSON schema or grammar")                           \
    X(output_tokens, 1048576, 400, "tokens in an answer")

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
