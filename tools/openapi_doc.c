/* Makes web/openapi.json of the tables of routes and fields, and web/sampling.js, the page's list
 * of sampling settings. What no table knows is in a file of its own: answers, messages, and the
 * types of the fields that are more than a flag or a number ("x-fields", by FIELD or
 * REQUEST.FIELD).
 *
 *     openapi_doc BASE > web/openapi.json; openapi_doc > web/sampling.js */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "server/server.h"
#include "server/turn.h"
#include "settings.h"

enum { WIDTH = 100 };

/* ---- JSON as people read it ---- */

static void print_value(const json_t *v, size_t indent, size_t at);

static void print_members(const json_t *v, size_t indent)
{
    bool is_object = json_is_object(v);
    size_t n = is_object ? json_object_size(v) : json_array_size(v), i = 0;
    void *it = json_object_iter((json_t *)v);
    puts(is_object ? "{" : "[");
    for (; i < n; i++) {
        size_t at = indent + 2;
        printf("%*s", (int)at, "");
        if (is_object) at += (size_t)printf("\"%s\": ", json_object_iter_key(it));
        print_value(is_object ? json_object_iter_value(it) : json_array_get(v, i), indent + 2, at);
        puts(i + 1 < n ? "," : "");
        if (is_object) it = json_object_iter_next((json_t *)v, it);
    }
    printf("%*s%s", (int)indent, "", is_object ? "}" : "]");
}

/* On one line where it fits. */
static void print_value(const json_t *v, size_t indent, size_t at)
{
    char *text = json_dumps(v, JSON_ENCODE_ANY);
    bool fits = at + strlen(text) < WIDTH || !(json_object_size(v) + json_array_size(v));
    if (fits)
        fputs(text, stdout);
    else
        print_members(v, indent);
    free(text);
}

/* ---- requests ---- */

static void fail(const char *what, const char *name)
{
    fprintf(stderr, "openapi_doc: %s %s\n", what, name);
    exit(1);
}

static json_t *ref(const char *name)
{
    return json_pack("{s:o}", "$ref", json_sprintf("#/components/schemas/%s", name));
}

/* Takes j; help may be NULL. */
static json_t *with_help(json_t *j, const char *help)
{
    if (help) json_object_set_new(j, "description", json_string(help));
    return j;
}

static json_t *number(double v)
{
    return v == (double)(json_int_t)v ? json_integer((json_int_t)v) : json_real(v);
}

static json_t *range(const char *type, double min, double max)
{
    return json_pack("{s:s, s:o, s:o}", "type", type, "minimum", number(min), "maximum",
                     number(max));
}

static json_t *setting_type(const struct setting_field *f)
{
    if (f->type) return with_help(json_loads(f->type, 0, NULL), f->help);
    bool is_real = f->setting->kind == SETTING_real;
    return with_help(range(is_real ? "number" : "integer", f->setting->min, f->setting->max),
                     f->help);
}

/* What the base says of a field of that request, or of any; NULL: nothing. */
static json_t *said(json_t *base, json_t *used, const char *request, const char *name)
{
    char path[120];
    snprintf(path, sizeof path, "%s.%s", request, name);
    json_t *j = json_object_get(base, path);
    if (!j) j = json_object_get(base, name);
    json_object_set_new(used, j == json_object_get(base, path) ? path : name, json_true());
    return json_incref(j);
}

static json_t *field_type(json_t *base, json_t *used, const char *request, const struct field *f)
{
    json_t *j = said(base, used, request, f->name);
    if (j) return j;
    if (f->take == field_ignore) return json_pack("{s:s}", "description", "has no effect");
    if (f->take == field_off)
        return json_pack("{s:s}", "description", "not supported; may only be absent or turned off");
    if (f->take == field_flag) return json_pack("{s:s}", "type", "boolean");
    if (f->max <= 0) fail("no type for the field", f->name);
    return range("integer", f->min, f->max);
}

/* A field of a chat that has another name here. */
static bool is_renamed(const struct api *api, const char *name)
{
    for (size_t i = 0; i < api->n_rows; i++)
        if (api->rows[i].to && strcmp(api->rows[i].to, name) == 0) return true;
    return false;
}

static void add(json_t *properties, const char *name, json_t *type)
{
    bool is_new = *name && !json_object_get(properties, name);
    if (is_new)
        json_object_set_new(properties, name, type);
    else
        json_decref(type);
}

static json_t *request_schema(json_t *base, json_t *used, const char *request,
                              const struct api *api)
{
    json_t *properties = json_object();
    for (size_t i = 0; i < api->n_rows; i++) {
        const struct turn_field *row = &api->rows[i];
        json_t *type = said(base, used, request, row->name);
        if (!type && (row->take || row->to)) fail("no type for the field", row->name);
        add(properties, row->name,
            type ? type : json_pack("{s:s}", "description", "has no effect"));
    }
    for (const struct field_table *const *t = api->fields; *t; t++) {
        for (size_t i = 0; i < (*t)->n; i++)
            if (!is_renamed(api, (*t)->fields[i].name))
                add(properties, (*t)->fields[i].name,
                    field_type(base, used, request, &(*t)->fields[i]));
        for (size_t i = 0; i < n_setting_fields && (*t)->has_settings; i++)
            if (!is_renamed(api, setting_fields[i].name))
                add(properties, setting_fields[i].name, setting_type(&setting_fields[i]));
    }
    return json_pack("{s:s, s:o, s:b}", "type", "object", "properties", properties,
                     "additionalProperties", false);
}

/* ---- routes ---- */

static json_t *content(const char *kind, json_t *schema)
{
    return json_pack("{s:{s:o}}", kind, "schema", schema);
}

static json_t *operation(const struct route *r, const char *error)
{
    json_t *o = json_pack("{s:s}", "summary", r->summary);
    json_t *reply = r->reply ? content("application/json", ref(r->reply))
                             : content("text/plain", json_pack("{s:s}", "type", "string"));
    if (r->event) {
        json_t *event = content("text/event-stream", ref(r->event));
        json_object_update(reply, event);
        json_decref(event);
    }
    if (r->request)
        json_object_set_new(o, "requestBody",
                            json_pack("{s:b, s:o}", "required", true, "content",
                                      content("application/json", ref(r->request))));
    const char *what = "the answer";
    if (r->event)
        what = "the answer; with stream: true, a stream of events, each of which matches the "
               "schema of "
               "text/event-stream";
    json_object_set_new(o, "responses",
                        json_pack("{s:{s:s, s:o}, s:{s:s, s:o}}", "200", "description", what,
                                  "content", reply, "default", "description", "an error", "content",
                                  content("application/json", ref(error))));
    return o;
}

static const char *error_of(const struct route *r)
{
    if (r->api && r->api->problem) return "AnthropicError";
    return r->reply && strcmp(r->reply, "State") == 0 ? "State" : "Error";
}

static void add_route(json_t *paths, const struct route *r)
{
    char path[100], *method = strdup(r->method);
    json_t *o = operation(r, error_of(r));
    size_t n = strlen(r->path);
    snprintf(path, sizeof path, "%s", r->path);
    for (char *c = method; *c; c++) *c = (char)tolower((unsigned char)*c);
    if (r->path[n - 1] == '*') {
        snprintf(path + n - 1, sizeof path - n + 1, "{id}");
        json_object_set_new(o, "parameters",
                            json_pack("[{s:s, s:s, s:b, s:{s:s}}]", "name", "id", "in", "path",
                                      "required", true, "schema", "type", "string"));
    }
    json_object_set_new(paths, path, json_pack("{s:o}", method, o));
    free(method);
}

static int print_openapi(const char *path)
{
    json_error_t e;
    json_t *doc = json_load_file(path, JSON_REJECT_DUPLICATES, &e);
    if (!doc) fail(e.text, path);
    json_t *fields = json_incref(json_object_get(doc, "x-fields")), *v;
    json_t *required = json_incref(json_object_get(doc, "x-required")), *used = json_object();
    json_t *schemas = json_object_get(json_object_get(doc, "components"), "schemas");
    const char *name;
    json_object_del(doc, "x-fields");
    json_object_del(doc, "x-required");
    for (size_t i = 0; i < n_routes; i++) {
        const struct route *r = &routes[i];
        add_route(json_object_get(doc, "paths"), r);
        if (!r->request || json_object_get(schemas, r->request)) continue;
        json_t *schema = request_schema(fields, used, r->request, r->api);
        json_object_set(schema, "required", json_object_get(required, r->request));
        json_object_set_new(schemas, r->request, schema);
    }
    json_object_foreach(fields, name, v)
    {
        if (!json_object_get(used, name)) fail("no table has the field", name);
    }
    print_value(doc, 0, 0);
    putchar('\n');
    json_decref(fields);
    json_decref(required);
    json_decref(used);
    json_decref(doc);
    return 0;
}

/* ---- the page ---- */

static void print_quoted(const char *text)
{
    putchar('\'');
    for (; *text; text++) printf(*text == '\'' ? "\\'" : "%c", *text);
    putchar('\'');
}

static int print_page(void)
{
    puts("// Sampling settings, as the server knows them. Made by tools/openapi_doc: make docs.\n"
         "export const SAMPLING = [");
    for (size_t i = 0; i < n_settings; i++) {
        const struct setting *x = &setting_table[i];
        char label[40], help[300];
        snprintf(label, sizeof label, "%s", x->name);
        for (char *c = label; *c; c++)
            if (*c == '_') *c = ' ';
        label[0] = (char)toupper((unsigned char)label[0]);
        if (!strcmp(x->name, "no_repeat_ngram"))
            snprintf(label, sizeof label, "No-repeat n-gram size");
        snprintf(help, sizeof help, "%s.", x->help);
        help[0] = (char)toupper((unsigned char)help[0]);
        printf("    {\n        key: '%s',\n        label: '%s',\n        min: %.10g,\n"
               "        max: %.10g,\n        step: %s,\n        help: ",
               x->name, label, x->min, x->max, x->kind == SETTING_real ? "0.01" : "1");
        print_quoted(help);
        puts(",\n    },");
    }
    puts("];");
    return 0;
}

int main(int argc, char **argv)
{
    int rc = argc > 1 ? print_openapi(argv[1]) : print_page();
    return fflush(stdout) ? 1 : rc;
}
