/* Answers in a chat, split into what the model thinks, says and calls by the parser that the server
 * uses too. */
#ifndef APP_PARSE_H
#define APP_PARSE_H

#include "app.h"
#include "chat/tools.h"

/* How the model writes, by its chat template. */
struct tools_format parse_format(const struct host *h);
/* Whether its markers are control tokens, which must then be part of the text. */
bool parse_needs_control(const struct host *h);
/* A parser for the answer to a prompt of n tokens; p says the rest. */
struct tools *parse_open(const struct host *h, const int32_t *ids, size_t n,
                         const struct tools_params *p);

#endif
