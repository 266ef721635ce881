/* Whole answers as bytes. Adding never fails visibly: whether the memory sufficed is asked once, at
 * the end, as what is added may be as long as a client wants. */
#ifndef SERVER_REPLY_H
#define SERVER_REPLY_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Logprobs and milliseconds need no more digits than these; shorter answers. */
#define REPLY_DUMP (JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(9))

struct reply;
struct evbuffer;

struct reply *reply_open(void); /* NULL: out of memory */
void reply_free(struct reply *r);
void reply_add(struct reply *r, const char *p, size_t n);
void reply_add_word(struct reply *r, const char *word);
void reply_add_int(struct reply *r, int64_t v);
/* As a JSON string; bytes that are not UTF-8 become U+FFFD. */
void reply_add_text(struct reply *r, const char *p, size_t n);
/* As json_piece: a JSON string, or numbers where the bytes are not UTF-8. */
void reply_add_piece(struct reply *r, const char *p, size_t n);
void reply_add_json(struct reply *r, const json_t *j);
/* All is added. False: memory did not suffice, or r is NULL. */
bool reply_close(struct reply *r);
/* What was added, for the loop to take; its length is known. */
struct evbuffer *reply_bytes(struct reply *r);

#endif
