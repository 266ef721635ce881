/* Whole answers as bytes, in blocks: what a worker makes, the loop hands to a connection as it is,
 * and the memory goes back block by block as the client takes it. */
#include "reply.h"

#include <event2/buffer.h>
#include <stdlib.h>
#include <string.h>

#include "app.h"

/* A block and what libevent adds to it fit into a power of two. */
enum { FIRST_BLOCK = 4096 - 128, LAST_BLOCK = 262144 - 128 };

struct reply {
    struct evbuffer *bytes;
    struct evbuffer_iovec block; /* the one that is being filled */
    size_t n_block;              /* bytes in it */
    size_t next;                 /* size of the next */
    bool failed;
};

struct reply *reply_open(void)
{
    struct reply *r = calloc(1, sizeof *r);
    if (r) r->bytes = evbuffer_new();
    if (r && !r->bytes) r->failed = true;
    if (r) r->next = FIRST_BLOCK;
    return r;
}

void reply_free(struct reply *r)
{
    if (r && r->bytes) evbuffer_free(r->bytes);
    free(r);
}

/* Adds the block to the others. */
static void close_block(struct reply *r)
{
    if (r->failed || !r->n_block) return;
    r->block.iov_len = r->n_block;
    if (evbuffer_commit_space(r->bytes, &r->block, 1)) r->failed = true;
    r->block = (struct evbuffer_iovec){0};
    r->n_block = 0;
}

static void open_block(struct reply *r)
{
    close_block(r);
    if (r->failed) return;
    if (evbuffer_reserve_space(r->bytes, (ev_ssize_t)r->next, &r->block, 1) != 1) r->failed = true;
    r->next = 2 * r->next < LAST_BLOCK ? 2 * r->next : LAST_BLOCK;
}

void reply_add(struct reply *r, const char *p, size_t n)
{
    while (n && !r->failed) {
        size_t room = r->block.iov_len - r->n_block, some = n < room ? n : room;
        if (!room) {
            open_block(r);
            continue;
        }
        memcpy((char *)r->block.iov_base + r->n_block, p, some);
        r->n_block += some;
        p += some;
        n -= some;
    }
}

void reply_add_word(struct reply *r, const char *word)
{
    reply_add(r, word, strlen(word));
}

void reply_add_int(struct reply *r, int64_t v)
{
    char digits[24], *p = digits + sizeof digits;
    uint64_t left = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    do *--p = (char)('0' + left % 10);
    while (left /= 10);
    if (v < 0) *--p = '-';
    reply_add(r, p, (size_t)(digits + sizeof digits - p));
}

/* How a byte is written in a JSON string; NULL: as it is. */
static const char *escaped(unsigned char c, char *room)
{
    static const char hex[] = "0123456789abcdef", letters[] = "\"\\\b\f\n\r\t",
                      names[] = "\"\\bfnrt";
    const char *at = c ? strchr(letters, c) : NULL;
    if (at) {
        room[0] = '\\';
        room[1] = names[at - letters];
        room[2] = 0;
        return room;
    }
    if (c >= 0x20) return NULL;
    memcpy(room, "\\u00", 4);
    room[4] = hex[c >> 4];
    room[5] = hex[c & 15];
    room[6] = 0;
    return room;
}

void reply_add_text(struct reply *r, const char *p, size_t n)
{
    size_t from = 0, i = 0; /* p[from..i) can be copied as it is */
    reply_add(r, "\"", 1);
    while (i < n && !r->failed) {
        char room[8];
        size_t len = utf8_length(p + i, n - i);
        const char *other = len ? escaped((unsigned char)p[i], room) : "\xef\xbf\xbd";
        if (other) {
            reply_add(r, p + from, i - from);
            reply_add_word(r, other);
            from = i + (len ? len : 1);
        }
        i += len ? len : 1;
    }
    reply_add(r, p + from, n - from);
    reply_add(r, "\"", 1);
}

void reply_add_piece(struct reply *r, const char *p, size_t n)
{
    size_t i = 0, len;
    while (i < n && (len = utf8_length(p + i, n - i))) i += len;
    if (i == n) {
        reply_add_text(r, p, n);
        return;
    }
    for (i = 0; i < n; i++) {
        reply_add_word(r, i ? "," : "[");
        reply_add_int(r, (unsigned char)p[i]);
    }
    reply_add_word(r, "]");
}

static int add_dumped(const char *p, size_t n, void *ctx)
{
    struct reply *r = ctx;
    reply_add(r, p, n);
    return r->failed ? -1 : 0;
}

void reply_add_json(struct reply *r, const json_t *j)
{
    if (json_dump_callback(j, add_dumped, r, REPLY_DUMP)) r->failed = true;
}

bool reply_close(struct reply *r)
{
    if (!r) return false;
    close_block(r);
    return !r->failed;
}

struct evbuffer *reply_bytes(struct reply *r)
{
    return r->bytes;
}
