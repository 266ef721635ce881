/* Heads and chunks against RFC 9112: what must work, and what must not. */
#include "server/http_parse.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct parsed {
    struct http_head head;
    char text[512];
    int status;
};

/* n bytes, because a head may hold NUL. */
static void parse(struct parsed *p, const char *text, size_t n)
{
    const char *why = NULL;
    assert_true(n < sizeof p->text);
    memcpy(p->text, text, n);
    assert_int_equal(http_head_length(p->text, n), n);
    p->status = http_head_parse(&p->head, p->text, n, &why);
    if (p->status && !why) fail_msg("%s: no reason is given", text);
}

#define HEAD(p, text) parse(p, text, sizeof(text) - 1)

static void a_target_may_be_a_path_or_a_whole_address(void **state)
{
    static const struct {
        const char *target, *path, *query, *host; /* path NULL: it is refused */
    } rows[] = {
        {"/", "/", "", "h:1"},
        {"/a?b?c", "/a", "b?c", "h:1"},
        {"http://x.example/a?b", "/a", "b", "x.example"},
        {"HTTP://x.example:80/", "/", "", "x.example:80"},
        {"https://[::1]:80/a/b", "/a/b", "", "[::1]:80"},
        {"http://x", "/", "", "x"},
        {"http://x?q", "/", "q", "x"},
        {"http:///a", NULL, NULL, NULL},
        {"http://", NULL, NULL, NULL},
        {"http://user@x/", NULL, NULL, NULL},
        {"ftp://x/", NULL, NULL, NULL},
        {"a", NULL, NULL, NULL},
        {"*", NULL, NULL, NULL},
        {"x:80", NULL, NULL, NULL},
        {"/a#b", NULL, NULL, NULL},
        {"/a\x80", NULL, NULL, NULL},
        {"/a\tb", NULL, NULL, NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct parsed p;
        char text[200];
        int n = snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: h:1\r\n\r\n", rows[i].target);
        parse(&p, text, (size_t)n);
        if (p.status != (rows[i].path ? 0 : 400)) fail_msg("%s: %d", rows[i].target, p.status);
        if (!rows[i].path) continue;
        assert_string_equal(p.head.path, rows[i].path);
        assert_string_equal(p.head.query, rows[i].query);
        assert_string_equal(p.head.host, rows[i].host);
    }
}

static void heads_that_readers_could_take_differently_are_refused(void **state)
{
#define ROW(status, text)                                    \
    {                                                        \
        status, text "\r\n\r\n", sizeof(text "\r\n\r\n") - 1 \
    }
#define GET "GET / HTTP/1.1\r\nHost: h\r\n"
    static const struct {
        int status;
        const char *text;
        size_t n;
    } rows[] = {
        ROW(0, "GET / HTTP/1.1\r\nHost: h"),
        ROW(0, "GET / HTTP/1.1\r\nHost:h\t"),
        ROW(0, "GET / HTTP/1.1\r\nHost:"),
        ROW(0, "GET / HTTP/1.0"),
        ROW(0, GET "X:"),
        ROW(0, GET "X: a\tb\x80"),
        ROW(0, GET "Content-Length: 007"),
        ROW(0, GET "Transfer-Encoding: Chunked"),
        ROW(0, GET "Content-Encoding: identity"),
        ROW(0, GET "Cookie: a\r\nCookie: b"),
        ROW(400, "GET / HTTP/1.1"),
        ROW(400, "GET / HTTP/1.1 "),
        ROW(400, "GET  / HTTP/1.1\r\nHost: h"),
        ROW(400, "GET\t/ HTTP/1.1\r\nHost: h"),
        ROW(400, " GET / HTTP/1.1\r\nHost: h"),
        ROW(400, "GET / http/1.1\r\nHost: h"),
        ROW(400, "GET / HTTP/1.1x\r\nHost: h"),
        ROW(400, "GET / HTTP/11\r\nHost: h"),
        ROW(505, "GET / HTTP/2.0\r\nHost: h"),
        ROW(505, "GET / HTTP/0.9\r\nHost: h"),
        ROW(400, "G(T / HTTP/1.1\r\nHost: h"),
        ROW(400, "GET / HTTP/1.1\r\nHost: a\r\nhost: a"),
        ROW(400, "GET / HTTP/1.1\r\nHost: a b"),
        ROW(400, "GET / HTTP/1.1\r\nHost: u@a"),
        ROW(400, "GET / HTTP/1.1\r\nHost: a/b"),
        ROW(400, "GET http://a/ HTTP/1.1"),
        ROW(400, GET " folded"),
        ROW(400, GET "X: a\r\n\tfolded"),
        ROW(400, GET "X : a"),
        ROW(400, GET "X\t: a"),
        ROW(400, GET ": a"),
        ROW(400, GET "X"),
        ROW(400, GET "X: a\nY: b"),
        ROW(400, GET "X: a\rY: b"),
        ROW(400, GET "X: a\0b"),
        ROW(400, GET "X\0: a"),
        ROW(400, GET "X: a\x7f"),
        ROW(400, GET "X: a\x01"),
        ROW(400, GET "Content-Length: 2\r\nContent-Length: 2"),
        ROW(400, GET "Content-Length: 2, 2"),
        ROW(400, GET "Content-Length: +2"),
        ROW(400, GET "Content-Length: -2"),
        ROW(400, GET "Content-Length: 0x2"),
        ROW(400, GET "Content-Length: 2 2"),
        ROW(400, GET "Content-Length:"),
        ROW(400, GET "Content-Length: 9999999999999999999"),
        ROW(400, GET "Content-Length: 2\r\nTransfer-Encoding: chunked"),
        ROW(400, GET "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked"),
        ROW(501, GET "Transfer-Encoding: gzip, chunked"),
        ROW(501, GET "Transfer-Encoding: chunked, identity"),
        ROW(501, GET "Transfer-Encoding:"),
        ROW(501, "GET / HTTP/1.0\r\nTransfer-Encoding: chunked"),
        ROW(415, GET "Content-Length: 2\r\nContent-Encoding: gzip"),
        ROW(417, GET "Expect: wonders"),
        ROW(417, GET "Expect: 100-continue\r\nExpect: wonders"),
        ROW(400, GET "Origin: http://h\r\nOrigin: http://evil.example"),
        ROW(400, GET "Authorization: Bearer a\r\nAuthorization: Bearer b"),
        ROW(400, GET "X-Api-Key: a\r\nx-api-key: b"),
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct parsed p;
        parse(&p, rows[i].text, rows[i].n);
        if (p.status != rows[i].status)
            fail_msg("%s: %d, not %d", rows[i].text, p.status, rows[i].status);
    }
}

static void a_connection_ends_where_any_header_says_so(void **state)
{
    struct parsed p;
    (void)state;
    HEAD(&p, GET "\r\n");
    assert_true(p.head.keep_alive);
    HEAD(&p, GET "Connection: keep-alive\r\nConnection: x, CLOSE\r\n\r\n");
    assert_false(p.head.keep_alive);
    HEAD(&p, "GET / HTTP/1.0\r\nConnection: x\r\nConnection: Keep-Alive\r\n\r\n");
    assert_true(p.head.keep_alive);
    HEAD(&p, "GET / HTTP/1.0\r\n\r\n");
    assert_false(p.head.keep_alive);
    HEAD(&p, GET "Expect: 100-Continue\r\n\r\n");
    assert_true(p.head.expects_continue);
}

static void too_many_headers_are_refused(void **state)
{
    struct parsed p;
    char text[512];
    size_t n = (size_t)snprintf(text, sizeof text, GET);
    (void)state;
    for (int i = 0; i < HTTP_MAX_HEADERS; i++) n += (size_t)snprintf(text + n, 512 - n, "A:\r\n");
    n += (size_t)snprintf(text + n, sizeof text - n, "\r\n");
    parse(&p, text, n);
    assert_int_equal(p.status, 431);
}

/* The last result, and the data, of a body fed in parts of `size` bytes. */
static enum http_chunk_result feed(const char *p, size_t n, size_t size, char *data)
{
    struct http_chunks c = {0};
    enum http_chunk_result r = CHUNK_MORE;
    size_t at = 0, n_all = 0;
    while (at < n && r != CHUNK_END && r != CHUNK_BAD) {
        size_t taken, n_data;
        r = http_chunks_feed(&c, p + at, n - at < size ? n - at : size, &taken, &n_data);
        memcpy(data + n_all, p + at + taken - n_data, n_data);
        n_all += n_data;
        at += taken;
    }
    data[n_all] = 0;
    return r == CHUNK_END && at < n ? CHUNK_BAD : r;
}

static void chunks_are_read_by_the_letter(void **state)
{
#define BODY(result, text)             \
    {                                  \
        result, text, sizeof(text) - 1 \
    }
    static const struct {
        enum http_chunk_result result;
        const char *text;
        size_t n;
    } rows[] = {
        BODY(CHUNK_END, "5\r\nhello\r\n0\r\n\r\n"),
        BODY(CHUNK_END, "2\r\nhe\r\n003\r\nllo\r\n000\r\n\r\n"),
        BODY(CHUNK_END, "5;a\r\nhello\r\n0;b=c\r\n\r\n"),
        BODY(CHUNK_END, "5 ; a = \"x;\\\" y\" ; b\r\nhello\r\n0\r\n\r\n"),
        BODY(CHUNK_END, "5\r\nhello\r\n0\r\nTrailer: x\r\nB:\r\nC:\t\x80\r\n\r\n"),
        BODY(CHUNK_MORE, "5\r\nhello\r\n0\r\n"),
        BODY(CHUNK_MORE, "5\r\nhello\r\n0\r\n\r"),
        BODY(CHUNK_BAD, "\r\nhello\r\n0\r\n\r\n"),
        BODY(CHUNK_BAD, "5\nhello\r\n0\r\n\r\n"),
        BODY(CHUNK_BAD, "5 zz\r\nhello\r\n0\r\n\r\n"),
        BODY(CHUNK_BAD, "5 \r\nhello\r\n0\r\n\r\n"),
        BODY(CHUNK_BAD, " 5\r\nhello\r\n0\r\n\r\n"),
        BODY(CHUNK_BAD, "5;\r\nhello\r\n0\r\n\r\n"),
        BODY(CHUNK_BAD, "5;=a\r\nhello\r\n0\r\n\r\n"),
        BODY(CHUNK_BAD, "5;a=\r\nhello\r\n0\r\n\r\n"),
        BODY(CHUNK_BAD, "5;a b\r\nhello\r\n0\r\n\r\n"),
        BODY(CHUNK_BAD, "5;a=\"x\r\nhello\r\n0\r\n\r\n"),
        BODY(CHUNK_BAD, "5;a=\"x\"y\r\nhello\r\n0\r\n\r\n"),
        BODY(CHUNK_BAD, "5;a\nhello\r\n0\r\n\r\n"),
        BODY(CHUNK_BAD, "5;a\0\r\nhello\r\n0\r\n\r\n"),
        BODY(CHUNK_BAD, "5;a\rb\r\nhello\r\n0\r\n\r\n"),
        BODY(CHUNK_BAD, "0x5\r\nhello\r\n0\r\n\r\n"),
        BODY(CHUNK_BAD, "-5\r\nhello\r\n0\r\n\r\n"),
        BODY(CHUNK_BAD, "5g\r\nhello\r\n0\r\n\r\n"),
        BODY(CHUNK_BAD, "5\r\nhello0\r\n\r\n"),
        BODY(CHUNK_BAD, "5\r\nhello\n0\r\n\r\n"),
        BODY(CHUNK_BAD, "5\r\nhello\r\n0\n\r\n"),
        BODY(CHUNK_BAD, "5\r\nhello\r\n0\r\n\n"),
        BODY(CHUNK_BAD, "5\r\nhello\r\n0\r\na: b\n\r\n"),
        BODY(CHUNK_BAD, "5\r\nhello\r\n0\r\na: b\n\n"),
        BODY(CHUNK_BAD, "5\r\nhello\r\n0\r\na: \0\r\n\r\n"),
        BODY(CHUNK_BAD, "5\r\nhello\r\n0\r\na\0: b\r\n\r\n"),
        BODY(CHUNK_BAD, "5\r\nhello\r\n0\r\na\r\n\r\n"),
        BODY(CHUNK_BAD, "5\r\nhello\r\n0\r\na : b\r\n\r\n"),
        BODY(CHUNK_BAD, "5\r\nhello\r\n0\r\n: b\r\n\r\n"),
        BODY(CHUNK_BAD, "5\r\nhello\r\n0\r\na: b\r\n c\r\n\r\n"),
        BODY(CHUNK_BAD, "5\r\nhello\r\n0\r\na: b\rc\r\n\r\n"),
        BODY(CHUNK_BAD, "1000000000000000\r\n"),
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (size_t size = 1; size < 4; size += 2) {
            char data[64];
            enum http_chunk_result r = feed(rows[i].text, rows[i].n, size, data);
            if (r != rows[i].result) fail_msg("%s: %d, not %d", rows[i].text, r, rows[i].result);
            if (r == CHUNK_END) assert_string_equal(data, "hello");
        }
}

/* Whatever stands around the data is thrown away; there is no need to read it for ever. */
static void what_stands_around_chunks_is_bounded(void **state)
{
    static const char *const begins[] = {"5;a=", "0\r\na:"};
    enum { N = HTTP_MAX_AROUND };
    char *text = malloc(N + 10);
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        char data[8];
        size_t n = strlen(begins[i]);
        memset(text, 'x', N + 10);
        memcpy(text, begins[i], n);
        assert_int_equal(feed(text, N, 100, data), CHUNK_MORE);
        assert_int_equal(feed(text, N + 1, 100, data), CHUNK_BAD);
    }
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_target_may_be_a_path_or_a_whole_address),
        cmocka_unit_test(heads_that_readers_could_take_differently_are_refused),
        cmocka_unit_test(a_connection_ends_where_any_header_says_so),
        cmocka_unit_test(too_many_headers_are_refused),
        cmocka_unit_test(chunks_are_read_by_the_letter),
        cmocka_unit_test(what_stands_around_chunks_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
