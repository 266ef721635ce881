/* HTTP/1.1 as bytes: the head of a request, and bodies that come in chunks. Knows no sockets. What
 * is doubtful is refused, because two readers of one stream may disagree about it: no folded lines,
 * no bare line feeds, no lengths that are given twice. */
#ifndef SERVER_HTTP_PARSE_H
#define SERVER_HTTP_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HTTP_MAX_HEADERS = 100 };
enum { HTTP_MAX_AROUND = 16384 }; /* bytes around the data of one chunk, and of all trailers */

struct http_header {
    const char *name, *value; /* as sent, less the blanks around the value */
};

struct http_head {
    const char *method, *path, *query; /* query: "" when there is none */
    const char *host;                  /* the target's, else the Host header's; NULL: neither */
    struct http_header headers[HTTP_MAX_HEADERS];
    size_t n_headers;
    uint64_t content_length; /* 0 when there is no body or it comes in chunks */
    bool chunked, keep_alive, expects_continue, old; /* old: HTTP/1.0 */
};

/* Bytes up to and with the empty line; 0: it is not there yet. */
size_t http_head_length(const char *p, size_t n);
/* Cuts a head of n bytes (http_head_length) into words where it lies. 0, or the status of the
 * answer, with *why in words. */
int http_head_parse(struct http_head *head, char *p, size_t n, const char **why);
/* The value of a header by its name in small letters, or NULL. */
const char *http_head_find(const struct http_head *head, const char *name);

/* A body in chunks, a piece at a time. Starts as zero. */
struct http_chunks {
    uint64_t left; /* bytes of the current chunk that are yet to come */
    int state;
    unsigned n_digits, n_around;
};
enum http_chunk_result { CHUNK_MORE, CHUNK_DATA, CHUNK_END, CHUNK_BAD };
/* Looks at p[0..n) and takes *taken bytes of it. CHUNK_DATA: of these, the last *n_data are data.
 */
enum http_chunk_result http_chunks_feed(struct http_chunks *c, const char *p, size_t n,
                                        size_t *taken, size_t *n_data);

#endif
