/* What server.c needs of models in service beyond server.h. */
#ifndef SERVER_SERVED_H
#define SERVER_SERVED_H

#include "server.h"

/* There is such a model; it is not loaded. */
void served_declare(struct served *m, struct server *s, const char *id, const char *path);
/* Begins to load it. Exit code. */
int served_load(struct served *m);
/* Ends its thread; requests that are not done end as cancelled. */
void served_stop(struct served *m);
void served_close(struct served *m);

#endif
