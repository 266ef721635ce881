/* TLS under a connection. */
#ifndef SERVER_TLS_H
#define SERVER_TLS_H

#include <event2/bufferevent.h>
#include <event2/util.h>

struct tls; /* NULL: connections are plain */

/* Files of a chain of certificates and of its key; both NULL: plain. Exit code. */
int tls_open(struct tls **out, const char *cert, const char *key);
void tls_close(struct tls *t);
/* A connection on an accepted socket, which it owns. */
struct bufferevent *tls_bufferevent(struct tls *t, struct event_base *base, evutil_socket_t fd);
/* Nothing more will be written: says so to the other side. */
void tls_finish(struct tls *t, struct bufferevent *b);

#endif
