/* Text behind the public interface: tokens, and chats rendered by the model's template. */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "engine/engine.h"
#include "format/json.h"

static int need_tok(struct fletch_model *m, const struct tok **tok)
{
    *tok = m->m->vocab->tok;
    if (*tok) return 0;
    return err_set(&m->err, FLETCH_E_VOCAB,
                   "the model has no vocabulary, so it accepts only token ids (eval --tokens)");
}

static int need_outputs(struct fletch_model *m, const void *what, const size_t *n)
{
    int rc = engine_need(&m->err, what, "the address for the result");
    return rc ? rc : engine_need(&m->err, n, "the address for the length of the result");
}

/* An empty result is a valid pointer, so that callers can free and print it. */
static int give_ids(struct tok_ids *ids, int32_t **out, size_t *n, struct err *err)
{
    if (!ids->p && !(ids->p = malloc(sizeof *ids->p))) return err_nomem(err, "tokens");
    *out = ids->p;
    *n = ids->n;
    return 0;
}

int fletch_tokenize(struct fletch_model *m, const char *text, size_t n, unsigned flags,
                    int32_t **ids, size_t *n_ids)
{
    const struct tok *tok;
    struct tok_ids got = {0};
    if (ids) *ids = NULL;
    if (n_ids) *n_ids = 0;
    if (!m) return FLETCH_E_ARG;
    int rc = need_outputs(m, ids, n_ids);
    if (!rc) rc = engine_need_all(&m->err, text, n, "the text");
    if (!rc) rc = need_tok(m, &tok);
    if (rc) return rc;
    if (!text) text = "";
    unsigned f =
        (flags & FLETCH_BOS ? TOK_ADD_BOS : 0) | (flags & FLETCH_SPECIAL ? TOK_SPECIAL : 0);
    if ((rc = tok_encode(tok, (struct str){text, n}, NULL, f, &got, &m->err))) {
        tok_ids_free(&got);
        return rc;
    }
    return give_ids(&got, ids, n_ids, &m->err);
}

int fletch_detokenize(struct fletch_model *m, const int32_t *ids, size_t n_ids, unsigned flags,
                      char **text, size_t *n)
{
    const struct tok *tok;
    struct buf b = {0};
    if (text) *text = NULL;
    if (n) *n = 0;
    if (!m) return FLETCH_E_ARG;
    int rc = need_outputs(m, text, n);
    if (!rc) rc = engine_need_all(&m->err, ids, n_ids, "ids");
    if (!rc) rc = need_tok(m, &tok);
    if (rc) return rc;
    for (size_t i = 0; i < n_ids; i++)
        if (ids[i] < 0 || (u32)ids[i] >= m->m->hp.n_vocab)
            return err_set(&m->err, FLETCH_E_ARG,
                           "token id %d is outside the model's vocabulary (0 to %u)", (int)ids[i],
                           m->m->hp.n_vocab - 1);
    tok_decode(tok, ids, n_ids, flags & FLETCH_SPECIAL, &b);
    buf_put(&b, "", 0);
    if (b.failed) {
        buf_free(&b);
        return err_nomem(&m->err, "the text");
    }
    *text = b.p;
    *n = b.n;
    return 0;
}

bool fletch_is_end(const struct fletch_model *m, int32_t id)
{
    return m && m->m->vocab->tok && tok_is_eog(m->m->vocab->tok, id);
}

/* ---- chats ---- */

static int add_json(json_t *vars, const char *key, const char *text, int type, struct err *err)
{
    json_t *v;
    if (!text) return 0;
    int rc = json_parse(&v, str_of(text), key, err);
    if (rc) return rc;
    if (json_typeof(v) != (json_type)type) {
        json_decref(v);
        return err_set(err, FLETCH_E_ARG, "%s is not a JSON %s", key,
                       type == JSON_ARRAY ? "array" : "object");
    }
    if (type == JSON_OBJECT ? json_object_update_new(vars, v) : json_object_set_new(vars, key, v))
        return err_nomem(err, key);
    return 0;
}

/* Templates expect the arguments of a tool call as an object; clients often send them as text. */
static void parse_arguments(json_t *messages)
{
    size_t i, j;
    json_t *message, *call;
    json_array_foreach(messages, i, message)
    {
        json_array_foreach(json_object_get(message, "tool_calls"), j, call)
        {
            json_t *f = json_object_get(call, "function");
            json_t *holder = f ? f : call, *args = json_object_get(holder, "arguments"), *parsed;
            if (!json_is_string(args)) continue;
            struct str text = {json_string_value(args), json_string_length(args)};
            if (json_parse(&parsed, text, "arguments", NULL) == 0)
                json_object_set_new(holder, "arguments", parsed);
        }
    }
}

static int make_vars(json_t *vars, const struct fletch_chat *chat, struct err *err)
{
    int rc = add_json(vars, "template arguments", chat->args, JSON_OBJECT, err);
    if (!rc) rc = add_json(vars, "messages", chat->messages, JSON_ARRAY, err);
    if (!rc) rc = add_json(vars, "tools", chat->tools, JSON_ARRAY, err);
    if (rc) return rc;
    if (!json_object_get(vars, "messages"))
        return err_set(err, FLETCH_E_ARG, "a chat needs at least one message");
    parse_arguments(json_object_get(vars, "messages"));
    if (json_object_set_new(vars, "add_generation_prompt",
                            json_boolean(!chat->no_generation_prompt && !chat->continue_final)))
        return err_nomem(err, "the chat");
    return 0;
}

static json_t *special_texts(const struct tok *tok)
{
    struct str bos = tok_text(tok, tok_bos(tok)), eos = tok_text(tok, tok_eos(tok));
    return json_pack("{s:s%, s:s%}", "bos_token", bos.n ? bos.p : "", bos.n, "eos_token",
                     eos.n ? eos.p : "", eos.n);
}

/* The prompt ends where the last message's text does: at the last place that has it and where every
 * byte of it is the user's. */
static int cut_final(const json_t *messages, struct tmpl_out *out, struct err *err)
{
    const json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    const json_t *content = json_object_get(last, "content");
    size_t n = json_string_length(content), at = out->n;
    const char *text = json_string_value(content);
    while (n && at-- >= n) {
        size_t from = at + 1 - n, i = 0;
        if (memcmp(out->text + from, text, n) != 0) continue;
        while (i < n && out->from_user[from + i]) i++;
        if (i < n) continue;
        out->n = from + n;
        return 0;
    }
    return err_set(err, FLETCH_E_ARG, "the last message cannot be continued: %s",
                   n ? "the chat template modifies its text" : "it has no text");
}

static int need_template(struct fletch_model *m)
{
    if (m->chat) return 0;
    if (!m->chat_err.code)
        return err_set(&m->err, FLETCH_E_TEMPLATE,
                       "the model has no chat template; give one with --template FILE");
    return err_set(&m->err, FLETCH_E_TEMPLATE,
                   "the model's chat template cannot be used: %s; give one with --template FILE",
                   m->chat_err.text);
}

bool fletch_chat_reads(const struct fletch_model *m, const char *name)
{
    return m && name && m->chat && tmpl_reads(m->chat, str_of(name));
}

/* What a template is rendered with. */
struct rendering {
    const struct tmpl *t;
    const json_t *trusted;
    time_t now;
};

static int render_vars(const struct rendering *r, const json_t *vars, struct tmpl_out *out,
                       struct err *err)
{
    return tmpl_render(r->t, vars, r->trusted, r->now, NULL, out, err);
}

static const char *role_of(const json_t *messages, size_t i)
{
    const char *role = json_string_value(json_object_get(json_array_get(messages, i), "role"));
    return role ? role : "";
}

/* The text of a system message that a question follows; NULL: there is none to join. */
static const json_t *joinable_system(const json_t *vars)
{
    const json_t *messages = json_object_get(vars, "messages");
    const json_t *question = json_object_get(json_array_get(messages, 1), "content");
    const json_t *text = json_object_get(json_array_get(messages, 0), "content");
    if (strcmp(role_of(messages, 0), "system") != 0 || strcmp(role_of(messages, 1), "user") != 0)
        return NULL;
    bool joinable = json_is_string(text) && (json_is_string(question) || json_is_array(question));
    return joinable && strspn(json_string_value(text), " \t\r\n") < json_string_length(text) ? text
                                                                                             : NULL;
}

/* The variables with another text in the first message. */
static json_t *with_system(const json_t *vars, json_t *text)
{
    json_t *copy = json_deep_copy(vars);
    json_t *first = json_array_get(json_object_get(copy, "messages"), 0);
    if (json_object_set_new(first, "content", text) == 0) return copy;
    json_decref(copy);
    return NULL;
}

/* The variables with the system message before the text of the question, on a line of its own. */
static json_t *with_joined_system(const json_t *vars, const json_t *text)
{
    json_t *copy = json_deep_copy(vars), *messages = json_object_get(copy, "messages");
    json_t *question = json_array_get(messages, 1), *said = json_object_get(question, "content");
    const char *p = json_string_value(text), *q = json_string_value(said);
    size_t n = json_string_length(text), n_said = json_string_length(said);
    int rc = q ? json_object_set_new(question, "content", json_pack("s%++%", p, n, "\n", q, n_said))
               : json_array_insert_new(
                     said, 0, json_pack("{s:s, s:s%+}", "type", "text", "text", p, n, "\n"));
    if (rc == 0 && json_array_remove(messages, 0) == 0) return copy;
    json_decref(copy);
    return NULL;
}

/* Whether the template shows the system message: its text stands in what it rendered, or another
 * text renders otherwise. */
static bool shows_system(const struct rendering *r, const json_t *vars, const json_t *text,
                         const struct tmpl_out *out)
{
    const char *p = json_string_value(text);
    size_t skip = strspn(p, " \t\r\n"), n = json_string_length(text) - skip;
    while (n && strchr(" \t\r\n", p[skip + n - 1]) && p[skip + n - 1]) n--;
    if (memmem(out->text, out->n, p + skip, n)) return true;
    json_t *other = with_system(vars, json_pack("s%+", p, json_string_length(text), "x"));
    struct tmpl_out probe = {0};
    struct err err;
    bool same = other && render_vars(r, other, &probe, &err) == 0 && probe.n == out->n &&
                memcmp(probe.text, out->text, out->n) == 0;
    tmpl_out_free(&probe);
    json_decref(other);
    return !same;
}

/* Renders; where the template raises an error for a system message, or leaves it out, the message
 * is joined to the question after it, and *vars then holds the messages as they were rendered. */
static int render_joined(const struct rendering *r, json_t **vars, struct tmpl_out *out,
                         struct err *err)
{
    const json_t *text = joinable_system(*vars);
    int rc = render_vars(r, *vars, out, err);
    if (!text || (rc && rc != FLETCH_E_TEMPLATE) || (!rc && shows_system(r, *vars, text, out)))
        return rc;
    struct tmpl_out joined_out = {0};
    struct err joined_err;
    json_t *joined = with_joined_system(*vars, text);
    if (joined && render_vars(r, joined, &joined_out, &joined_err) == 0) {
        tmpl_out_free(out);
        *out = joined_out;
        json_decref(*vars);
        *vars = joined;
        return 0;
    }
    json_decref(joined);
    return rc;
}

static int render(struct fletch_model *m, const struct fletch_chat *chat, struct tmpl_out *out)
{
    const struct tok *tok;
    struct tmpl *given = NULL;
    json_t *vars = json_object(), *trusted = NULL;
    *out = (struct tmpl_out){0};
    int rc = need_tok(m, &tok);
    if (!rc && chat->template_text)
        rc = tmpl_open(&given, str_of(chat->template_text), &m->err);
    else if (!rc)
        rc = need_template(m);
    if (!rc) rc = make_vars(vars, chat, &m->err);
    if (!rc && !(trusted = special_texts(tok))) rc = err_nomem(&m->err, "the chat");
    struct rendering r = {given ? given : m->chat, trusted, time(NULL)};
    if (!rc) rc = render_joined(&r, &vars, out, &m->err);
    if (!rc && chat->continue_final) {
        rc = cut_final(json_object_get(vars, "messages"), out, &m->err);
        if (rc) tmpl_out_free(out);
    }
    tmpl_close(given);
    json_decref(trusted);
    json_decref(vars);
    return rc;
}

int fletch_chat_render(struct fletch_model *m, const struct fletch_chat *chat, char **text,
                       size_t *n)
{
    struct tmpl_out out;
    if (text) *text = NULL;
    if (n) *n = 0;
    if (!m) return FLETCH_E_ARG;
    int rc = need_outputs(m, text, n);
    if (!rc) rc = engine_need(&m->err, chat, "the chat");
    if (!rc) rc = render(m, chat, &out);
    if (rc) return rc;
    *text = out.text;
    *n = out.n;
    out.text = NULL;
    tmpl_out_free(&out);
    return 0;
}

/* Did the template write it? A user's bytes never count. */
static bool begins_with_bos(const struct tmpl_out *out, const struct tok *tok)
{
    struct str bos = tok_text(tok, tok_bos(tok));
    if (!bos.n || out->n < bos.n || memcmp(out->text, bos.p, bos.n) != 0) return false;
    for (size_t i = 0; i < bos.n; i++)
        if (out->from_user[i]) return false;
    return true;
}

int fletch_chat_tokenize(struct fletch_model *m, const struct fletch_chat *chat, int32_t **ids,
                         size_t *n_ids)
{
    struct tmpl_out out;
    struct tok_ids got = {0};
    if (ids) *ids = NULL;
    if (n_ids) *n_ids = 0;
    if (!m) return FLETCH_E_ARG;
    int rc = need_outputs(m, ids, n_ids);
    if (!rc) rc = engine_need(&m->err, chat, "the chat");
    if (!rc) rc = render(m, chat, &out);
    if (rc) return rc;
    const struct tok *tok = m->m->vocab->tok;
    unsigned flags = TOK_SPECIAL | (begins_with_bos(&out, tok) ? 0 : TOK_ADD_BOS);
    rc = tok_encode(tok, (struct str){out.text, out.n}, out.from_user, flags, &got, &m->err);
    tmpl_out_free(&out);
    if (rc) {
        tok_ids_free(&got);
        return rc;
    }
    return give_ids(&got, ids, n_ids, &m->err);
}
