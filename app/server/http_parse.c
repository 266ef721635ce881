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

/* A fragment has no place in a request. */
static bool is_target(const char *s)
{
    for (; *s; s++)
        if ((unsigned char)*s <= 0x20 || (unsigned char)*s >= 0x7f || *s == '#') return false;
    return true;
}

/* What may be in NAME:PORT. A user's name before it (USER@) is not accepted. */
static bool is_authority(const char *s)
{
    for (; *s; s++)
        if (!is_token_char(*s) && !strchr("()[]:;=,", *s)) return false;
    return true;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
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

/* Is `word` in the list that all headers of that name make together? */
static bool any_has_word(const struct http_head *head, const char *name, const char *word)
{
    for (size_t i = 0; i < head->n_headers; i++)
        if (strcasecmp(head->headers[i].name, name) == 0 && has_word(head->headers[i].value, word))
            return true;
    return false;
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

/* The path of a request target: /PATH, or http://NAME/PATH as it is sent to proxies, which every
 * server must understand; its name then counts instead of the Host header's. NULL: it is neither.
 */
static char *parse_target(struct http_head *head, char *target)
{
    if (!is_target(target)) return NULL;
    if (*target == '/') return target;
    size_t n = strncasecmp(target, "http://", 7) == 0    ? 7
               : strncasecmp(target, "https://", 8) == 0 ? 8
                                                         : 0;
    if (!n) return NULL;
    size_t n_name = strcspn(target + n, "/?");
    char *name = target + n - 1, *path = target + n + n_name;
    if (!n_name) return NULL;
    memmove(name, name + 1, n_name); /* one place down, so that its end does not hit the path */
    name[n_name] = 0;
    head->host = name;
    return is_authority(name) ? path : NULL;
}

static int parse_request_line(struct http_head *head, char *line, const char **why)
{
    char *target = strchr(line, ' '), *version = target ? strchr(target + 1, ' ') : NULL;
    *why = "the first line is not an HTTP request";
    if (!version) return 400;
    *target++ = *version++ = 0;
    if (!is_token(line) || strlen(line) > 16) return 400;
    if (strncmp(version, "HTTP/", 5) != 0 || strlen(version) != 8 || !is_digit(version[5]) ||
        version[6] != '.' || !is_digit(version[7]))
        return 400;
    *why = "only HTTP/1.1 and HTTP/1.0 are supported";
    if (strcmp(version, "HTTP/1.1") != 0 && strcmp(version, "HTTP/1.0") != 0) return 505;
    *why = "the request target must be a path or http://NAME/PATH";
    char *path = parse_target(head, target);
    if (!path) return 400;
    char *query = strchr(path, '?');
    if (query) *query++ = 0;
    head->method = line;
    head->path = *path ? path : "/";
    head->query = query ? query : "";
    head->old = version[7] == '0';
    return 0;
}

static int parse_header(struct http_head *head, char *line, const char **why)
{
    char *colon = strchr(line, ':');
    *why = "a header must have the form NAME: VALUE";
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

/* Headers that decide about a request: where there are two, readers may disagree which one counts.
 */
static const char *find_repeated(const struct http_head *head)
{
    static const char *const once[][2] = {
        {"host", "more than one Host header"},
        {"origin", "more than one Origin header"},
        {"authorization", "more than one Authorization header"},
        {"x-api-key", "more than one X-Api-Key header"},
    };
    for (size_t i = 0; i < sizeof once / sizeof *once; i++)
        if (count(head, once[i][0]) > 1) return once[i][1];
    return NULL;
}

/* How the body comes, and what becomes of the connection. */
static int parse_framing(struct http_head *head, const char **why)
{
    const char *length = http_head_find(head, "content-length"),
               *coding = http_head_find(head, "transfer-encoding"),
               *packed = http_head_find(head, "content-encoding"),
               *host = http_head_find(head, "host");
    *why = find_repeated(head);
    if (*why) return 400;
    *why = "missing Host header";
    if (!head->old && !host) return 400;
    *why = "Host must be NAME or NAME:PORT";
    if (host && !is_authority(host)) return 400;
    if (!head->host) head->host = host;
    *why = "ambiguous body length";
    if (count(head, "content-length") + count(head, "transfer-encoding") > 1) return 400;
    if (length && !parse_length(length, &head->content_length)) return 400;
    *why = "the only supported transfer coding is chunked, and HTTP/1.0 has none";
    if (coding && (head->old || strcasecmp(coding, "chunked") != 0)) return 501;
    *why = "compressed bodies are not supported; send the body without Content-Encoding";
    if (packed && strcasecmp(packed, "identity") != 0) return 415;
    *why = "the only supported expectation is 100-continue";
    for (size_t i = 0; i < head->n_headers; i++) {
        if (strcasecmp(head->headers[i].name, "expect") != 0) continue;
        if (strcasecmp(head->headers[i].value, "100-continue") != 0) return 417;
        head->expects_continue = !head->old;
    }
    head->chunked = coding != NULL;
    head->keep_alive = any_has_word(head, "connection", "close") ? false
                       : head->old ? any_has_word(head, "connection", "keep-alive")
                                   : true;
    return 0;
}

int http_head_parse(struct http_head *head, char *p, size_t n, const char **why)
{
    char *end = p + n - 2; /* of the last header; then comes the empty line */
    memset(head, 0, sizeof *head);
    *why = "the headers contain a stray CR, LF or NUL";
    if (memchr(p, 0, n)) return 400;
    *end = 0;
    char *line = next_line(&p);
    if (!line) return 400;
    int status = parse_request_line(head, line, why);
    while (!status && p < end) {
        *why = "the headers contain a stray CR, LF or NUL";
        line = next_line(&p);
        status = line ? parse_header(head, line, why) : 400;
    }
    return status ? status : parse_framing(head, why);
}

/* ---- chunks ---- */

enum chunk_state {
    SIZE,
    SIZE_BLANK, /* blanks after the size: an extension must follow */
    EXT_BEGIN,
    EXT_NAME,
    EXT_EQUALS, /* blanks after the name */
    EXT_VALUE_BEGIN,
    EXT_VALUE,
    EXT_QUOTED,
    EXT_ESCAPED,
    EXT_CLOSED, /* after a quoted value */
    EXT_END,    /* blanks after a value */
    SIZE_LF,
    DATA,
    DATA_CR,
    DATA_LF,
    TRAILER,
    TRAILER_NAME,
    TRAILER_VALUE,
    TRAILER_LF,
    END_LF
};

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static bool is_value_char(char c)
{
    return c == '\t' || ((unsigned char)c >= 0x20 && c != 0x7f);
}

/* The state after a byte of an extension, ;NAME or ;NAME=VALUE, or -1. */
static int step_extension(int state, char c)
{
    bool may_end = state == EXT_NAME || state == EXT_VALUE || state == EXT_CLOSED;
    bool may_more = may_end || state == SIZE_BLANK || state == EXT_EQUALS || state == EXT_END;
    if (c == ';' && may_more) return EXT_BEGIN;
    if (c == '\r' && may_end) return SIZE_LF;
    switch (state) {
    case EXT_NAME:
    case EXT_EQUALS:
        if (c == '=') return EXT_VALUE_BEGIN;
        if (state == EXT_NAME && is_token_char(c)) return EXT_NAME;
        return is_blank(c) ? EXT_EQUALS : -1;
    case EXT_BEGIN: return is_blank(c) ? state : is_token_char(c) ? EXT_NAME : -1;
    case EXT_VALUE_BEGIN:
        if (c == '"') return EXT_QUOTED;
        return is_blank(c) ? state : is_token_char(c) ? EXT_VALUE : -1;
    case EXT_VALUE:
        if (is_token_char(c)) return state;
        return is_blank(c) ? EXT_END : -1;
    case EXT_QUOTED:
        if (c == '"') return EXT_CLOSED;
        return c == '\\' ? EXT_ESCAPED : is_value_char(c) ? state : -1;
    case EXT_ESCAPED: return is_value_char(c) ? EXT_QUOTED : -1;
    case EXT_CLOSED: return is_blank(c) ? EXT_END : -1;
    default: return is_blank(c) ? state : -1; /* SIZE_BLANK, EXT_END */
    }
}

/* The state after a byte of the trailers, or -1. They are headers by form; nobody looks at them. */
static int step_trailer(int state, char c)
{
    switch (state) {
    case TRAILER: return c == '\r' ? END_LF : is_token_char(c) ? TRAILER_NAME : -1;
    case TRAILER_NAME: return c == ':' ? TRAILER_VALUE : is_token_char(c) ? state : -1;
    case TRAILER_VALUE: return c == '\r' ? TRAILER_LF : is_value_char(c) ? state : -1;
    default: return c == '\n' ? TRAILER : -1; /* TRAILER_LF */
    }
}

/* One byte of what is not data. False: it has no place here. */
static bool step(struct http_chunks *c, char byte, bool *ended)
{
    int digit = hex_digit(byte);
    if (c->n_around++ == HTTP_MAX_AROUND) return false;
    switch (c->state) {
    case SIZE:
        if (digit >= 0) {
            c->left = c->left << 4 | (uint64_t)digit;
            return ++c->n_digits <= 15;
        }
        c->state = byte == '\r' ? SIZE_LF : byte == ';' ? EXT_BEGIN : SIZE_BLANK;
        return c->n_digits && (byte == '\r' || byte == ';' || is_blank(byte));
    case SIZE_LF: c->state = c->left ? DATA : TRAILER; return byte == '\n';
    case DATA_CR: c->state = DATA_LF; return byte == '\r';
    case DATA_LF: *c = (struct http_chunks){0}; return byte == '\n';
    case TRAILER:
    case TRAILER_NAME:
    case TRAILER_VALUE:
    case TRAILER_LF: c->state = step_trailer(c->state, byte); return c->state >= 0;
    case END_LF: *ended = true; return byte == '\n';
    default: c->state = step_extension(c->state, byte); return c->state >= 0;
    }
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
