/* What is asked of the model, as one grammar over its whole answer: thinking, then content that
 * obeys a form, or calls of tools. Names of tools were checked to be plain words when they came. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chat/choice_internal.h"

enum { MAX_CALLS = 8 };

/* ---- calls ---- */

/* A rule for each tool, whose name follows `prefix`. */
static void put_tools(struct maker *m, const char *prefix)
{
    size_t i;
    json_t *tool;
    fputs("(", m->out);
    json_array_foreach((json_t *)m->ask->tools, i, tool)
        fprintf(m->out, "%s%s-%s", i ? " | " : "", prefix, maker_tool_name(tool));
    fputs(") ", m->out);
}

/* From the name to the arguments, apart from what every call begins with. */
static void put_name(struct maker *m, const char *name)
{
    const struct chat_format *row = m->ask->format.row;
    bool id_first = row->id && !row->after_name;
    if (id_first) fprintf(m->out, "%s ", row->id);
    if (row->before_name) maker_put_mark(m, row->before_name);
    maker_put_text(m, name, strlen(name));
    if (row->id && !id_first) {
        maker_put_mark(m, row->after_name);
        fprintf(m->out, "%s ", row->id);
    }
    if (row->args_end) fputs("gap ", m->out);
    if (row->name_end && row->syntax != CHAT_QUOTED) maker_put_mark(m, row->name_end);
}

static void put_object(struct maker *m, const char *name)
{
    const struct chat_format *row = m->ask->format.row;
    const char *name_key = row->name_key ? row->name_key : "name";
    const char *args_key = row->args_key ? row->args_key : "arguments";
    const char *id = ""; /* that the template writes before the name */
    if (strcmp(name_key, "tool_name") == 0)
        id = "(\"\\\"tool_call_id\\\":\" \" \"? \"\\\"\" [0-9]{1,2} \"\\\",\" \" \"?)? ";
    if (row->name_is_key) {
        fprintf(m->out, "\"{\\\"%s\\\":\" \" \"? arguments-of-%s \"}\"", name, name);
        return;
    }
    fprintf(m->out,
            "\"{\" %s\"\\\"%s\\\":\" \" \"? \"\\\"%s\\\",\" \" \"? \"\\\"%s\\\":\" \" \"? "
            "arguments-of-%s ",
            id, name_key, name, args_key, name);
    if (row->id)
        fprintf(m->out, "(\",\" \" \"? \"\\\"id\\\":\" \" \"? \"\\\"\" %s \"\\\"\")? ", row->id);
    fputs("\"}\"", m->out);
}

static void put_header_call(struct maker *m, const char *name)
{
    static const char *const begins[] = {"<|channel|>commentary to=functions.",
                                         "<|channel|>analysis to=functions."};
    fputs("((", m->out);
    for (size_t i = 0; i < 2; i++) {
        fputs(i ? "| " : "", m->out);
        maker_put_mark(m, begins[i]);
    }
    fputs(") ", m->out);
    maker_put_text(m, name, strlen(name));
    fputs("(\" \" ", m->out);
    maker_put_mark(m, "<|constrain|>json");
    fputs(")? | ", m->out);
    maker_put_text(m, " to=functions.", strlen(" to=functions."));
    maker_put_text(m, name, strlen(name));
    maker_put_mark(m, "<|channel|>commentary");
    fputs("\" json\"?) ", m->out);
    maker_put_mark(m, "<|message|>");
    fprintf(m->out, "arguments-of-%s ", name);
}

static void put_open(struct maker *m)
{
    if (!m->ask->format.row->open) return;
    maker_put_mark(m, m->ask->format.row->open);
    fputs("gap ", m->out);
}

static void put_close(struct maker *m)
{
    if (!m->ask->format.row->close) return;
    fputs("gap ", m->out);
    maker_put_mark(m, m->ask->format.row->close);
}

/* Of a message whose content is a call, up to the tool's name. */
static void put_header(struct maker *m, const char *name)
{
    fputs("\" to=\" ", m->out);
    maker_put_text(m, name, strlen(name));
    maker_put_mark(m, "<|message|>");
    put_open(m);
    maker_put_mark(m, m->ask->format.row->call);
}

static void put_call_of(struct maker *m, json_t *tool)
{
    const struct chat_format *row = m->ask->format.row;
    const char *name = maker_tool_name(tool);
    fprintf(m->out, "call-%s ::= ", name);
    switch (row->syntax) {
    case CHAT_OBJECT: put_object(m, name); break;
    case CHAT_CHANNELS: put_header_call(m, name); break;
    case CHAT_NAMED:
        put_name(m, name);
        fprintf(m->out, "gap arguments-of-%s gap ", name);
        if (row->args_end) maker_put_mark(m, row->args_end);
        if (row->args_end) fputs("gap ", m->out);
        break;
    case CHAT_PAIRS:
        if (row->headers) put_header(m, name);
        put_name(m, name);
        fprintf(m->out, "\"\\n\"{0,2} arguments-of-%s ", name);
        if (row->headers) maker_put_mark(m, row->call_end);
        if (row->headers) put_close(m);
        break;
    case CHAT_PYTHON:
        maker_put_text(m, name, strlen(name));
        fprintf(m->out, "\"(\" arguments-of-%s \")\"", name);
        break;
    case CHAT_QUOTED:
        put_name(m, name);
        fprintf(m->out, "\"{\" arguments-of-%s \"}\"", name);
        break;
    }
    fputs("\n", m->out);
    maker_put_arguments(m, tool);
}

/* What stands between two calls. */
static void put_between(struct maker *m)
{
    const struct chat_format *row = m->ask->format.row;
    if (row->headers) {
        maker_put_mark(m, row->think_end);
        maker_put_mark(m, row->after_think);
    } else if (!row->named)
        fputs(row->between ? "\";\" gap " : "gap ", m->out);
}

/* The rule call: one of them, or a list of them. */
static void put_call(struct maker *m)
{
    const struct chat_format *row = m->ask->format.row;
    bool in_list = row->list || row->syntax == CHAT_PYTHON;
    bool spaced = row->syntax == CHAT_OBJECT || row->syntax == CHAT_NAMED || in_list;
    fputs("call ::= ", m->out);
    if (row->each) put_open(m);
    if (row->call && !row->bare && !row->headers) maker_put_mark(m, row->call);
    if (spaced && !row->bare && !row->named) fputs("gap ", m->out);
    if (row->syntax == CHAT_PAIRS && !row->name_end) fputs("\"\\n\"? ", m->out);
    if (in_list) fputs("\"[\" [ \\n]{0,5} ", m->out);
    put_tools(m, "call");
    if (in_list) {
        fputs("(\",\" [ \\n]{0,5} ", m->out);
        put_tools(m, "call");
        fprintf(m->out, "){0,%d} gap \"]\" ", m->ask->many ? MAX_CALLS - 1 : 0);
    }
    if (row->syntax == CHAT_OBJECT && row->call_end) fputs("gap ", m->out);
    if (row->call_end && !row->headers) maker_put_mark(m, row->call_end);
    if (row->each) put_close(m);
    fputs("\n", m->out);
}

/* The rule calls: all of them, from the first marker to the last. */
static void put_calls(struct maker *m)
{
    const struct chat_format *row = m->ask->format.row;
    bool wraps = !row->each && !row->headers;
    bool alone = row->list || row->syntax == CHAT_PYTHON || row->syntax == CHAT_CHANNELS;
    size_t i;
    json_t *tool;
    fputs("calls ::= ", m->out);
    if (wraps) put_open(m);
    if (row->bare && maker_control(m, row->call) >= 0) {
        fputs("(", m->out);
        maker_put_mark(m, row->call);
        fputs(")? ", m->out);
    }
    if (row->named)
        put_tools(m, "call"); /* the prompt ends with the marker */
    else
        fputs("call ", m->out);
    if (!alone && m->ask->many) {
        fputs("(", m->out);
        put_between(m);
        fprintf(m->out, "call){0,%d} ", MAX_CALLS - 1);
    }
    if (wraps) put_close(m);
    fputs("\n", m->out);
    put_call(m);
    json_array_foreach((json_t *)m->ask->tools, i, tool) put_call_of(m, tool);
}

/* ---- thinking and content ---- */

static void put_thinking(struct maker *m)
{
    const struct tools_ask *ask = m->ask;
    const struct chat_format *row = ask->format.row;
    if (!row->think || !(ask->thinking || ask->format.thinks)) return;
    /* a model with headers always thinks first; then its budget counts from the beginning */
    bool optional = !ask->thinking && !(row->headers && ask->budget_tokens);
    if (optional) fputs(row->headers ? "(" : "([ \\n]{0,2} ", m->out);
    if (!ask->thinking) maker_put_mark(m, row->think);
    maker_put_without(m, (const char *[]){row->think_end, NULL});
    maker_put_mark(m, row->think_end);
    if (row->after_think) maker_put_mark(m, row->after_think);
    if (!row->headers) fputs("[ \\n]{0,3} ", m->out);
    if (optional) fputs(")? ", m->out);
}

/* Any text that is followed by calls, or the end of its message. */
static void put_said(struct maker *m)
{
    const struct chat_format *row = m->ask->format.row;
    if (row->headers)
        maker_put_without(m, (const char *[]){row->think_end, "<|start|>", "<|channel|>", NULL});
    else if (row->after_think)
        maker_put_without(m, (const char *[]){row->call, row->open, row->think_end, NULL});
    else
        maker_put_without(m, (const char *[]){row->call, row->open, NULL});
}

/* What may be said in a message of its own before calls. */
static void put_preamble(struct maker *m)
{
    const struct chat_format *row = m->ask->format.row;
    if (!row->after_think) return;
    fputs("(", m->out);
    bool channels = row->syntax == CHAT_CHANNELS;
    maker_put_mark(m, channels ? "<|channel|>commentary<|message|>" : row->say);
    put_said(m);
    maker_put_mark(m, row->think_end);
    maker_put_mark(m, row->after_think);
    fputs(")? ", m->out);
}

/* Content up to where calls begin. */
static void put_content(struct maker *m)
{
    const struct chat_format *row = m->ask->format.row;
    if (row->bare) {
        fputs("gap ([^ \\n\\t\\r{] ", m->out);
        maker_put_without(m, (const char *[]){row->call, NULL});
        fputs(")? ", m->out);
        return;
    }
    if (row->say) maker_put_mark(m, row->say);
    put_said(m);
    if (row->say_end) maker_put_mark(m, row->say_end);
}

static void put_answer(struct maker *m)
{
    const struct tools_ask *ask = m->ask;
    const struct chat_format *row = ask->format.row;
    switch (ask->what) {
    case TOOLS_FORM:
    case TOOLS_GRAMMAR:
        if (row->say) maker_put_mark(m, row->say);
        fputs(ask->what == TOOLS_FORM ? "%json " : "%gbnf ", m->out);
        if (ask->what == TOOLS_FORM)
            fprintf(m->out, "%s ", ask->form);
        else
            maker_put_text(m, ask->form, strlen(ask->form));
        if (row->say_end) maker_put_mark(m, row->say_end);
        fputs("\n", m->out);
        return;
    case TOOLS_ANY: fputs("%bytes*\n", m->out); return;
    case TOOLS_MUST:
        fputs(row->headers || row->named ? "calls\n" : "[ \\n]{0,2} calls\n", m->out);
        return;
    case TOOLS_MAY: break;
    }
    put_preamble(m);
    if (row->named) {
        maker_put_mark(m, row->say);
        put_said(m);
        fprintf(m->out, "call{0,%d} | calls\n", m->ask->many ? MAX_CALLS : 1);
        return;
    }
    bool either = row->say || row->bare;
    fputs("(", m->out);
    put_content(m);
    fputs(either ? "| calls)\n" : " calls?)\n", m->out);
}

static void put_grammar(struct maker *m)
{
    const struct tools_ask *ask = m->ask;
    bool calls = ask->what == TOOLS_MUST || ask->what == TOOLS_MAY;
    if (ask->budget_tokens) fprintf(m->out, "%%budget %u %s\n", ask->budget, ask->budget_tokens);
    fputs("root ::= ", m->out);
    if (ask->what != TOOLS_ANY || ask->format.row->headers) put_thinking(m);
    put_answer(m);
    if (!calls) return;
    fputs("gap ::= \" \"? \"\\n\"?\n", m->out);
    put_calls(m);
}

char *tools_grammar(const struct tools_ask *ask, char *why, size_t why_cap)
{
    char *text = NULL;
    size_t n = 0;
    struct maker m = {.ask = ask, .out = open_memstream(&text, &n), .why = why, .why_cap = why_cap};
    if (why_cap) *why = 0;
    if (!m.out) return NULL;
    put_grammar(&m);
    maker_finish(&m);
    bool written = !ferror(m.out);
    if (fclose(m.out) == 0 && written && !m.failed) return text;
    free(text);
    return NULL;
}

bool tools_has_control(struct tools_format format, tools_control *control, void *ctx)
{
    const char *markers[CHAT_MAX_MARKERS];
    size_t n = chat_markers(format.row, markers);
    for (size_t i = 0; i < n; i++)
        if (control(ctx, markers[i]) >= 0) return true;
    return false;
}

char *tools_describe(const json_t *tools)
{
    char *list = json_dumps(tools, JSON_COMPACT), *text = NULL;
    if (list && asprintf(&text,
                         "To call a function, write its name and arguments as JSON, like this:\n"
                         "<tool_call>\n{\"name\": \"...\", \"arguments\": {...}}\n</tool_call>\n"
                         "The following functions are available: %s",
                         list) < 0)
        text = NULL;
    free(list);
    return text;
}
