/* What a request says besides its prompt: fields that mean the same in a file of requests (fletch
 * batch) and in a body of the server, by one table, of which openapi.json is made too. */
#ifndef APP_SETTINGS_H
#define APP_SETTINGS_H

#include "app.h"
#include "server/limits.h"

/* Settings as they were read. What r points to belongs to the JSON, or to the arrays here. */
struct request_settings {
    struct fletch_request r;
    const struct limits *limits;
    const char **stops;
    int32_t *bias_tokens;
    float *bias_values;
    char *schema;
    const char *form; /* the field that says what form the answer has, or NULL */
    bool max_tokens_set, seed_set;
    bool takes_none; /* max_tokens may be 0 */
    /* 0: an unknown member of a field is ignored. NULL: none is. */
    int (*ignore)(void *ctx, const char *name);
    void *ignore_ctx;
};
void settings_free(struct request_settings *s);

/* What is wrong with a field. */
struct setting_error {
    char text[320], place[80]; /* place: inside the field, or "" */
    enum limit limit;          /* that it is over, by `is`; N_LIMITS: none */
    uint64_t is;
    bool no_memory;
};

struct setting_field {
    const char *name; /* "": none */
    /* Stores what v says, which is not null; `said` is what the field is called where it stands.
     * 0, or -1 and *e. */
    int (*take)(const struct setting_field *f, struct request_settings *s, json_t *v,
                const char *said, struct setting_error *e);
    const char *type; /* a JSON schema; NULL: what the setting says */
    const char *help; /* or NULL */
    const struct setting *setting;
    const char *alias_of; /* the field that it is another name for, or NULL */
};
extern const struct setting_field setting_fields[];
extern const size_t n_setting_fields;
const struct setting_field *settings_find(const char *name); /* or NULL */

#endif
