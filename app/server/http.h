/* What server.c and call.c need of connections beyond server.h. */
#ifndef SERVER_HTTP_H
#define SERVER_HTTP_H

#include "server.h"

/* Exit code. */
int http_listen(struct server *s);
uint16_t http_port(const struct server *s);
size_t http_count(const struct server *s); /* connections */
void http_tick(struct server *s);          /* about every quarter of a second */
/* No new connections; those without a request end. */
void http_stop_listening(struct server *s);
void http_close(struct server *s);

int conn_status(const struct conn *c);   /* of the answer; 0: none yet */
double conn_began(const struct conn *c); /* when its request came */

/* Answers in place of whoever would have: for what is wrong before there is a call. */
void http_problem(struct conn *c, const struct problem *p);
void http_refuse(struct conn *c, enum limit l, const char *what);
/* What is over limit l, in words that name it. */
void problem_limit(struct problem *p, const struct limits *limits, enum limit l, const char *what);

#endif
