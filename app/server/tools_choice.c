/* What is asked of the model: that it calls a tool, and what tools there are where its template
 * doesn't say. Names were checked to be plain words when they came. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools.h"

/* How each style writes a call: before, the key of the arguments, after. */
static const struct {
    const char *open, *key, *close;
} spelling[] = {
    [TOOLS_TAGGED] = {"<tool_call>\n", "arguments", "\n</tool_call>"},
    [TOOLS_BARE] = {"", "parameters", ""},
    [TOOLS_LISTED] = {"[TOOL_CALLS][", "arguments", "]"},
};

static const char *name_of(const json_t *tool)
{
    return json_string_value(json_object_get(json_object_get(tool, "function"), "name"));
}

static json_t *schema_of(const json_t *tool)
{
    json_t *schema = json_object_get(json_object_get(tool, "function"), "parameters");
    return schema ? json_incref(schema) : json_pack("{s:s}", "type", "object");
}

/* {"name": .., "arguments": ..} of any of the tools. */
static json_t *schema_of_any(const json_t *tools, const char *key)
{
    json_t *any = json_array();
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *tool = json_array_get(tools, i);
        json_array_append_new(any, json_pack("{s:s, s:{s:{s:s}, s:o}, s:[s, s], s:b}", "type",
                                             "object", "properties", "name", "const", name_of(tool),
                                             key, schema_of(tool), "required", "name", key,
                                             "additionalProperties", 0));
    }
    return json_pack("{s:o}", "anyOf", any);
}

int tools_force(struct tools_forced *out, struct tools_format format, const json_t *tools)
{
    const char *open = spelling[format.style].open, *key = spelling[format.style].key;
    const char *close = spelling[format.style].close;
    const json_t *one = json_array_size(tools) == 1 ? json_array_get(tools, 0) : NULL;
    int n, m = 0;
    *out = (struct tools_forced){0};
    if (format.style == TOOLS_PAIRS) { /* not JSON: only the beginning can be given */
        n = asprintf(&out->prefix, "<tool_call>%s", one ? name_of(one) : "");
        out->suffix = strdup("");
    } else if (one) {
        n = asprintf(&out->prefix, "%s{\"name\": \"%s\", \"%s\": ", open, name_of(one), key);
        m = asprintf(&out->suffix, "}%s", close);
        out->schema = schema_of(one);
    } else {
        n = asprintf(&out->prefix, "%s", open);
        m = asprintf(&out->suffix, "%s", close);
        out->schema = schema_of_any(tools, key);
    }
    if (n < 0) out->prefix = NULL;
    if (m < 0) out->suffix = NULL;
    if (out->prefix && out->suffix && (out->schema || format.style == TOOLS_PAIRS)) return 0;
    tools_forced_free(out);
    return -1;
}

void tools_forced_free(struct tools_forced *f)
{
    free(f->prefix);
    free(f->suffix);
    json_decref(f->schema);
    *f = (struct tools_forced){0};
}

char *tools_describe(const json_t *tools)
{
    char *list = json_dumps(tools, JSON_COMPACT), *text = NULL;
    if (list && asprintf(&text,
                         "To call a function, write its name and arguments as JSON, like this:\n"
                         "<tool_call>\n{\"name\": \"...\", \"arguments\": {...}}\n</tool_call>\n"
                         "These functions are there: %s",
                         list) < 0)
        text = NULL;
    free(list);
    return text;
}
