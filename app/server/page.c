/* The page: files of web/, which are part of the binary (tools/embed makes their table). */
#include <string.h>

#include "server.h"
#include "web.h"

static const char csp[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; font-src 'self'; manifest-src 'self'; base-uri 'none'; form-action "
    "'none'; frame-ancestors 'none'";

const struct web_file *page_find(const char *path)
{
    if (strcmp(path, "/") == 0) path = "/index.html";
    for (const struct web_file *f = web_files; f->path; f++)
        if (strcmp(f->path, path) == 0) return f;
    return NULL;
}

bool page_reply(struct conn *c)
{
    const struct http_head *h = &conn_request(c)->head;
    const char *has = http_head_find(h, "if-none-match");
    const struct web_file *f = page_find(h->path);
    if (!f) return false;
    http_add_header(c, "ETag", f->etag);
    http_add_header(c, "Cache-Control", "no-cache");
    http_add_header(c, "Content-Security-Policy", csp);
    http_add_header(c, "Referrer-Policy", "no-referrer");
    if (has && strcmp(has, f->etag) == 0)
        http_reply(c, 304, NULL, NULL, 0);
    else
        http_reply(c, 200, f->type, f->data, (size_t)(f->end - f->data));
    return true;
}
