#include "tls.h"

#include <event2/bufferevent_ssl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "app.h"

struct tls {
    SSL_CTX *ctx;
};

static int wrong(const char *file)
{
    char why[160];
    ERR_error_string_n(ERR_get_error(), why, sizeof why);
    return say_error("cannot use %s for TLS: %s", QUOTE(file), why);
}

int tls_open(struct tls **out, const char *cert, const char *key)
{
    *out = NULL;
    if (!cert && !key) return EXIT_OK;
    if (!cert || !key) return opts_wrong("serve", "--cert and --key must be given together");
    struct tls *t = *out = need(calloc(1, sizeof *t));
    t->ctx = need(SSL_CTX_new(TLS_server_method()));
    SSL_CTX_set_min_proto_version(t->ctx, TLS1_2_VERSION);
    if (SSL_CTX_use_certificate_chain_file(t->ctx, cert) != 1) return wrong(cert);
    if (SSL_CTX_use_PrivateKey_file(t->ctx, key, SSL_FILETYPE_PEM) != 1 ||
        SSL_CTX_check_private_key(t->ctx) != 1)
        return wrong(key);
    return EXIT_OK;
}

void tls_close(struct tls *t)
{
    if (t) SSL_CTX_free(t->ctx);
    free(t);
}

struct bufferevent *tls_bufferevent(struct tls *t, struct event_base *base, evutil_socket_t fd)
{
    if (!t) return bufferevent_socket_new(base, fd, BEV_OPT_CLOSE_ON_FREE);
    SSL *ssl = SSL_new(t->ctx);
    if (!ssl) return NULL;
    struct bufferevent *b = bufferevent_openssl_socket_new(base, fd, ssl, BUFFEREVENT_SSL_ACCEPTING,
                                                           BEV_OPT_CLOSE_ON_FREE);
    if (!b) SSL_free(ssl);
    if (b) bufferevent_openssl_set_allow_dirty_shutdown(b, 1);
    return b;
}

void tls_finish(struct tls *t, struct bufferevent *b)
{
    if (t) SSL_shutdown(bufferevent_openssl_get_ssl(b));
    shutdown(bufferevent_getfd(b), SHUT_WR);
}
