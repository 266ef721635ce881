#include "http_parse.h"

#include <string.h>
#include <strings.h>

/* ---- words ---- */

static bool is_token_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c && strchr("!#$%&'*+-.^_`|~", c));
}

static bool is_token(const char *s)
{
    size_t n = 0;
    while (is_token_char(s[n])) n++;
    return n && !s[n];
}

/* What may be in a value: anything but control characters, of which a tab is none here. */
static bool is_value(const char *s)
{
    for (; *s; s++)
        if (((unsigned char)*s < 0x20 && *s != '\t') || *s == 0x7f) return false;
    return true;
}

static bool is_target(const char *s)
{
    if (*s != '/') return false;
    for (; *s; s++)
        if ((unsigned char)*s <= 0x20 || (unsigned char)*s >= 0x7f) return false;
    return true;
}

/* Digits only, and few enough not to overflow. */
static bool parse_length(const char *s, uint64_t *out)
{
    size_t n = strspn(s, "0123456789");
    if (!n || s[n] || n > 18) return false;
    for (*out = 0; *s; s++) *out = *out * 10 + (uint64_t)(*s - '0');
    return true;
}

/* Is `word` one of a list's, separated by commas? */
static bool has_word(const char *list, const char *word)
{
    while (*list) {
        list += strspn(list, " \t,");
        size_t n = strcspn(list, " \t,");
        if (n == strlen(word) && strncasecmp(list, word, n) == 0) return true;
        list += n;
    }
    return false;
}

/* ---- the head ---- */

size_t http_head_length(const char *p, size_t n)
{
    const char *end = n >= 4 ? memmem(p, n, "\r\n\r\n", 4) : NULL;
    return end ? (size_t)(end - p) + 4 : 0;
}

const char *http_head_find(const struct http_head *head, const char *name)
{
    for (size_t i = 0; i < head->n_headers; i++)
        if (strcasecmp(head->headers[i].name, name) == 0) return head->headers[i].value;
    return NULL;
}

static size_t count(const struct http_head *head, const char *name)
{
    size_t n = 0;
    for (size_t i = 0; i < head->n_headers; i++) n += strcasecmp(head->headers[i].name, name) == 0;
    return n;
}

/* The line at *p without its end, and *p behind it. NULL: it holds a bare CR, LF or NUL. */
static char *next_line(char **p)
{
    char *line = *p, *end = strstr(line, "\r\n");
    if (!end || strcspn(line, "\r\n") != (size_t)(end - line)) return NULL;
    *end = 0;
    *p = end + 2;
    return line;
}

static int parse_request_line(struct http_head *head, char *line, const char **why)
{
    char *target = strchr(line, ' '), *version = target ? strchr(target + 1, ' ') : NULL;
    *why = "the first line is no HTTP request";
    if (!version) return 400;
    *target++ = *version++ = 0;
    if (!is_token(line) || strlen(line) > 16) return 400;
    if (strncmp(version, "HTTP/", 5) != 0) return 400;
    *why = "only HTTP/1.1 and HTTP/1.0 are spoken here";
    if (strcmp(version, "HTTP/1.1") != 0 && strcmp(version, "HTTP/1.0") != 0) return 505;
    *why = "the address is not a path";
    if (!is_target(target)) return 400;
    char *query = strchr(target, '?');
    if (query) *query++ = 0;
    head->method = line;
    head->path = target;
    head->query = query ? query : "";
    head->old = version[7] == '0';
    return 0;
}

static int parse_header(struct http_head *head, char *line, const char **why)
{
    char *colon = strchr(line, ':');
    *why = "a header is not NAME: VALUE";
    if (!colon) return 400;
    *colon = 0;
    char *value = colon + 1 + strspn(colon + 1, " \t");
    size_t n = strlen(value);
    while (n && (value[n - 1] == ' ' || value[n - 1] == '\t')) value[--n] = 0;
    if (!is_token(line) || !is_value(value)) return 400;
    *why = "too many headers";
    if (head->n_headers == HTTP_MAX_HEADERS) return 431;
    head->headers[head->n_headers++] = (struct http_header){line, value};
    return 0;
}

/* How the body comes, and what becomes of the connection. */
static int parse_framing(struct http_head *head, const char **why)
{
    const char *length = http_head_find(head, "content-length"),
               *coding = http_head_find(head, "transfer-encoding"),
               *connection = http_head_find(head, "connection"),
               *expect = http_head_find(head, "expect");
    *why = "Host must be given once";
    if (count(head, "host") > 1 || (!head->old && !count(head, "host"))) return 400;
    *why = "the length of the body is not clear";
    if (count(head, "content-length") + count(head, "transfer-encoding") > 1) return 400;
    if (length && !parse_length(length, &head->content_length)) return 400;
    *why = "chunked is the only transfer coding there is";
    if (coding && (head->old || strcasecmp(coding, "chunked") != 0)) return 501;
    *why = "100-continue is the only expectation that can be met";
    if (expect && strcasecmp(expect, "100-continue") != 0) return 417;
    head->chunked = coding != NULL;
    head->expects_continue = expect && !head->old;
    head->keep_alive = connection && has_word(connection, "close") ? false
                       : head->old ? connection && has_word(connection, "keep-alive")
                                   : true;
    return 0;
}

int http_head_parse(struct http_head *head, char *p, size_t n, const char **why)
{
    char *end = p + n - 2; /* of the last header; then comes the empty line */
    memset(head, 0, sizeof *head);
    *why = "the head holds a stray CR, LF or NUL";
    if (memchr(p, 0, n)) return 400;
    *end = 0;
    char *line = next_line(&p);
    if (!line) return 400;
    int status = parse_request_line(head, line, why);
    while (!status && p < end) {
        *why = "the head holds a stray CR, LF or NUL";
        line = next_line(&p);
        status = line ? parse_header(head, line, why) : 400;
    }
    return status ? status : parse_framing(head, why);
}

/* ---- chunks ---- */

enum { SIZE, EXTENSION, SIZE_LF, DATA, DATA_CR, DATA_LF, TRAILER, TRAILER_LF, END_LF };

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* One byte of what is not data. False: it has no place here. */
static bool step(struct http_chunks *c, char byte, bool *ended)
{
    int digit = hex_digit(byte);
    switch (c->state) {
    case SIZE:
        if (digit >= 0) {
            c->left = c->left << 4 | (uint64_t)digit;
            return ++c->n_digits <= 15;
        }
        c->state = byte == '\r' ? SIZE_LF : EXTENSION;
        return c->n_digits && (byte == '\r' || byte == ';' || byte == ' ');
    case EXTENSION:
        if (byte == '\r') c->state = SIZE_LF;
        return byte != '\n';
    case SIZE_LF: c->state = c->left ? DATA : TRAILER; break;
    case DATA_CR: c->state = DATA_LF; return byte == '\r';
    case DATA_LF: *c = (struct http_chunks){0}; break;
    case TRAILER: /* at the beginning of a line; trailers are not looked at */
        c->state = byte == '\r' ? END_LF : TRAILER_LF;
        return byte != '\n';
    case TRAILER_LF:
        if (byte == '\n') c->state = TRAILER;
        return true;
    case END_LF: *ended = true; break;
    }
    return byte == '\n';
}

enum http_chunk_result http_chunks_feed(struct http_chunks *c, const char *p, size_t n,
                                        size_t *taken, size_t *n_data)
{
    bool ended = false;
    *taken = *n_data = 0;
    while (*taken < n) {
        if (c->state == DATA) {
            *n_data = c->left < n - *taken ? (size_t)c->left : n - *taken;
            *taken += *n_data;
            c->left -= *n_data;
            if (!c->left) c->state = DATA_CR;
            return CHUNK_DATA;
        }
        if (!step(c, p[(*taken)++], &ended)) return CHUNK_BAD;
        if (ended) return CHUNK_END;
    }
    return CHUNK_MORE;
}
