/* Renders templates for test/tmpl/oracle.py: one JSON object a line on stdin ({template, vars,
 * trusted, now}), one a line on stdout ({text, from_user} or {error}, and the format in which a
 * model with that template calls tools). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chat/format.h"
#include "text/tmpl.h"

static json_t *render(const json_t *c)
{
    const json_t *source = json_object_get(c, "template");
    struct str text = {json_string_value(source), json_string_length(source)};
    time_t now = (time_t)json_integer_value(json_object_get(c, "now"));
    struct err err = {0};
    struct tmpl *t = NULL;
    struct tmpl_out out = {0};
    if (tmpl_open(&t, text, &err) ||
        tmpl_render(t, json_object_get(c, "vars"), json_object_get(c, "trusted"), now, NULL, &out,
                    &err)) {
        tmpl_close(t);
        return json_pack("{s:s, s:i}", "error", err.text, "code", err.code);
    }
    for (size_t i = 0; i < out.n; i++) out.from_user[i] = out.from_user[i] ? '1' : '0';
    json_t *reply = json_pack("{s:s#, s:s#}", "text", out.text, (int)out.n, "from_user",
                              (char *)out.from_user, (int)out.n);
    tmpl_out_free(&out);
    tmpl_close(t);
    return reply ? reply : json_pack("{s:s}", "error", "output is not UTF-8");
}

int main(void)
{
    char *line = NULL;
    size_t cap = 0;
    while (getline(&line, &cap, stdin) > 0) {
        json_t *c = json_loads(line, JSON_ALLOW_NUL, NULL);
        json_t *reply = c ? render(c) : json_pack("{s:s}", "error", "bad case");
        const json_t *source = json_object_get(c, "template");
        if (source)
            json_object_set_new(
                reply, "format",
                json_string(
                    tools_detect(json_string_value(source), json_string_length(source)).row->name));
        json_dumpf(reply, stdout, JSON_COMPACT);
        putchar('\n');
        fflush(stdout);
        json_decref(reply);
        json_decref(c);
    }
    free(line);
    return 0;
}
