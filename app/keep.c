/* Conversations in files: the session's state, with the messages as its note. */
#include "app.h"

#include <string.h>
#include <unistd.h>

int keep_open(struct host *h, const char *path, json_t **messages)
{
    char *note = NULL;
    size_t n = 0;
    int code = check_folder_of(path);
    if (!code && access(path, F_OK) == 0 && fletch_session_load(h->session, path, &note, &n))
        code = say_error("%s; remove the file or give another --session",
                         fletch_session_error(h->session));
    *messages = note ? json_loadb(note, n, JSON_ALLOW_NUL, NULL) : NULL;
    fletch_free(note);
    if (!json_is_array(*messages)) {
        json_decref(*messages);
        *messages = need(json_array());
    }
    return code;
}

int keep_save(struct host *h, const char *path, const json_t *messages)
{
    char *note = need(json_dumps(messages, JSON_COMPACT));
    int rc = fletch_session_save(h->session, path, note, strlen(note));
    free(note);
    return rc ? say_failure(rc, fletch_session_error(h->session)) : EXIT_OK;
}
