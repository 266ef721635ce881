#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int err_set(struct err *err, int code, const char *fmt, ...)
{
    if (err) {
        va_list ap;
        va_start(ap, fmt);
        err->code = code;
        vsnprintf(err->text, sizeof err->text, fmt, ap);
        va_end(ap);
    }
    return code;
}

int err_prefix(struct err *err, const char *fmt, ...)
{
    if (!err) return FLETCH_E_INTERNAL;
    struct err old = *err;
    char head[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(head, sizeof head, fmt, ap);
    va_end(ap);
    return err_set(err, old.code, "%s: %s", head, old.text);
}

int err_nomem(struct err *err, const char *what)
{
    return err_set(err, FLETCH_E_NOMEM, "out of memory for %s", what);
}

int err_progress(struct err *err, fletch_progress progress, void *ctx, u64 done, u64 total)
{
    return progress && progress(ctx, done, total) ? err_set(err, FLETCH_E_CANCELLED, "cancelled")
                                                  : 0;
}

struct err_quoted err_quote(struct str s)
{
    struct err_quoted q;
    size_t o = 0, room = sizeof q.text - 8; /* longest escape, ellipsis, quote, NUL */
    q.text[o++] = '\'';
    for (size_t i = 0; i < s.n; i++) {
        if (o >= room) {
            memcpy(q.text + o, "...", 3);
            o += 3;
            break;
        }
        u8 c = (u8)s.p[i];
        if (c == '\n') {
            q.text[o++] = '\\';
            q.text[o++] = 'n';
        } else if (c < 0x20 || c >= 0x7f) {
            o += (size_t)snprintf(q.text + o, 5, "\\x%02x", c);
        } else {
            q.text[o++] = (char)c;
        }
    }
    q.text[o++] = '\'';
    q.text[o] = 0;
    return q;
}

struct err_bytes err_bytes(u64 n)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    struct err_bytes b;
    double v = (double)n;
    size_t i = 0;
    while (v >= 1024 && i + 1 < ARRAY_LEN(units)) {
        v /= 1024;
        i++;
    }
    snprintf(b.text, sizeof b.text, i ? "%.1f %s" : "%.0f %s", v, units[i]);
    return b;
}
