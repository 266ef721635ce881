/* Conversations in files: the session's state, with the messages as its note. */
#include "app.h"

#include <string.h>
#include <unistd.h>

json_t *keep_open(struct host *h, const char *path, const struct args *a)
{
    char *note = NULL;
    size_t n = 0;
    if (access(path, F_OK) != 0) return need(json_array());
    if (fletch_session_load(h->session, path, &note, &n) && !a->quiet)
        fprintf(stderr, "%s; beginning anew\n", fletch_session_error(h->session));
    json_t *messages = note ? json_loadb(note, n, 0, NULL) : NULL;
    fletch_free(note);
    if (json_is_array(messages)) return messages;
    json_decref(messages);
    return need(json_array());
}

int keep_save(struct host *h, const char *path, const json_t *messages)
{
    char *note = need(json_dumps(messages, JSON_COMPACT));
    int rc = fletch_session_save(h->session, path, note, strlen(note));
    free(note);
    return rc ? say_failure(rc, fletch_session_error(h->session)) : EXIT_OK;
}
