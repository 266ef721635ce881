/* fletch tokenize, detokenize and template: text, ids and prompts, without running a model. */
#include "app.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* No weights are wanted, so the file need not hold any. */
static int open_vocabulary(struct host *h, const struct args *a)
{
    h->text_only = true;
    int code = host_open_engine(h, "ref", a);
    return code ? code : host_open_model(h, a->operands.p[0], a);
}

static int failed(const struct host *h, int rc)
{
    return say_failure(rc, fletch_model_error(h->model));
}

static void print_ids(const int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++) printf("%s%d", i ? " " : "", ids[i]);
    putchar('\n');
}

/* The bytes as they are; a terminal gets its line ended. */
static void print_text(const char *p, size_t n)
{
    fwrite(p, 1, n, stdout);
    if (isatty(1) && n && p[n - 1] != '\n') putchar('\n');
}

/* ---- tokenize ---- */

static const struct opt tokenize_opts[] = {
    {0, "ids", OPT_FLAG, NULL, NULL, "print only the ids, on one line", OPT_FIELD(ids), 0, 0},
    {0, "no-bos", OPT_FLAG, NULL, NULL, "do not add the model's BOS (beginning of sequence) token",
     OPT_FIELD(no_bos), 0, 0},
    {0, "special", OPT_FLAG, NULL, NULL,
     "treat the names of control tokens in the text as control tokens instead of text",
     OPT_FIELD(special), 0, 0},
    OPT_ROW_JSON,
};
static const struct opt_group tokenize_group = {NULL, OPT_TABLE(tokenize_opts)};

/* One line or one JSON object for each token. */
static int print_pieces(struct host *h, const int32_t *ids, size_t n, bool json)
{
    json_t *list = json ? need(json_array()) : NULL;
    for (size_t i = 0; i < n; i++) {
        char *piece, line[1024];
        size_t n_piece;
        int rc = fletch_detokenize(h->model, ids + i, 1, FLETCH_SPECIAL, &piece, &n_piece);
        if (rc) {
            json_decref(list);
            return failed(h, rc);
        }
        if (json)
            json_array_append_new(
                list, json_pack("{s:i, s:o}", "id", ids[i], "piece", json_piece(piece, n_piece)));
        else {
            escape(line, sizeof line, piece, n_piece);
            printf("%7d  '%s'\n", ids[i], line);
        }
        fletch_free(piece);
    }
    if (json) say_json(list);
    json_decref(list);
    return EXIT_OK;
}

static int tokenize(const struct args *a)
{
    struct host h = {0};
    struct text text = {0};
    int32_t *ids = NULL;
    size_t n_ids = 0;
    int code = EXIT_OK;
    if (a->operands.n > 1)
        text = (struct text){need(strdup(a->operands.p[1])), strlen(a->operands.p[1])};
    else
        code = read_stdin(&text, "tokenize", "text: give TEXT or pipe it to stdin");
    if (!code) code = open_vocabulary(&h, a);
    if (!code) {
        unsigned flags = (a->no_bos ? 0 : FLETCH_BOS) | (a->special ? FLETCH_SPECIAL : 0);
        int rc = fletch_tokenize(h.model, text.p, text.n, flags, &ids, &n_ids);
        if (rc) code = failed(&h, rc);
    }
    if (!code && a->ids)
        print_ids(ids, n_ids);
    else if (!code)
        code = print_pieces(&h, ids, n_ids, a->json);
    fletch_free(ids);
    free(text.p);
    host_close(&h);
    return code;
}

const struct command cmd_tokenize = {
    .name = "tokenize",
    .operands = "MODEL [TEXT]",
    .summary = "convert text to token ids",
    .about =
        "Prints the tokens of a text with their ids, one token per line. Without TEXT, the command "
        "reads the text from stdin and tokenizes every byte of it, including a newline at the end.",
    .groups = {&tokenize_group, &opts_unknown, &opts_common},
    .min_operands = 1,
    .max_operands = 2,
    .run = tokenize,
};

/* ---- detokenize ---- */

static const struct opt detokenize_opts[] = {
    {0, "special", OPT_FLAG, NULL, NULL, "print control tokens by name instead of omitting them",
     OPT_FIELD(special), 0, 0},
};
static const struct opt_group detokenize_group = {NULL, OPT_TABLE(detokenize_opts)};

static int read_ids(struct ids *ids, const struct args *a)
{
    int code = EXIT_OK;
    for (size_t i = 1; i < a->operands.n && !code; i++)
        code = parse_ids(ids, "detokenize", "a token id", a->operands.p[i]);
    if (code || a->operands.n > 1) return code;
    struct text text;
    code = read_stdin(&text, "detokenize", "ids: give IDS or pipe them to stdin");
    if (code) return code;
    code = parse_ids(ids, "detokenize", "a token id", text.p);
    free(text.p);
    return code;
}

static int detokenize(const struct args *a)
{
    struct host h = {0};
    struct ids ids = {0};
    char *text = NULL;
    size_t n = 0;
    int code = read_ids(&ids, a);
    if (!code) code = open_vocabulary(&h, a);
    if (!code) {
        int rc =
            fletch_detokenize(h.model, ids.p, ids.n, a->special ? FLETCH_SPECIAL : 0, &text, &n);
        if (rc) code = failed(&h, rc);
    }
    if (!code) print_text(text, n);
    fletch_free(text);
    free(ids.p);
    host_close(&h);
    return code;
}

const struct command cmd_detokenize = {
    .name = "detokenize",
    .operands = "MODEL [IDS...]",
    .summary = "convert token ids to text",
    .about = "Converts token ids to text and prints the text. Give the ids as arguments or on "
             "stdin, separated by commas or spaces.",
    .groups = {&detokenize_group, &opts_unknown, &opts_common},
    .min_operands = 1,
    .max_operands = SIZE_MAX,
    .run = detokenize,
};

/* ---- template ---- */

static const struct opt template_own_opts[] = {
    {'f', "file", OPT_TEXT, "FILE", NULL, "read the messages from FILE instead of stdin",
     OPT_FIELD(file), 0, 0},
    {0, "no-generation-prompt", OPT_FLAG, NULL, NULL,
     "omit the generation prompt (the text that tells the model to begin its answer)",
     OPT_FIELD(no_answer), 0, 0},
    {0, "ids", OPT_FLAG, NULL, NULL, "print the prompt as token ids instead of text",
     OPT_FIELD(ids), 0, 0},
};
static const struct opt_group template_group = {NULL, OPT_TABLE(template_own_opts)};

static int print_prompt(struct host *h, const struct chat *chat, bool as_ids)
{
    char *text = NULL;
    int32_t *ids = NULL;
    size_t n = 0;
    int rc = as_ids ? fletch_chat_tokenize(h->model, &chat->c, &ids, &n)
                    : fletch_chat_render(h->model, &chat->c, &text, &n);
    if (rc) return failed(h, rc);
    if (as_ids)
        print_ids(ids, n);
    else
        print_text(text, n);
    fletch_free(text);
    fletch_free(ids);
    return EXIT_OK;
}

/* {"messages": [...], "tools": [...]} or the messages alone. */
static int template_json(const struct args *a, const json_t *j)
{
    const json_t *messages = json_is_array(j) ? j : json_object_get(j, "messages");
    const json_t *tools = json_object_get(j, "tools");
    if (!json_is_array(messages))
        return say_error(
            "messages: expected [{\"role\": ..., \"content\": ...}, ...] or an object with "
            "\"messages\"");
    if (tools && !json_is_array(tools) && !json_is_null(tools))
        return say_error("messages: \"tools\" is not an array");
    struct chat chat;
    struct host h = {0};
    int code =
        chat_open(&chat, messages, json_is_array(tools) ? tools : NULL, a, cmd_template.name);
    if (!code) code = open_vocabulary(&h, a);
    if (!code) code = print_prompt(&h, &chat, a->ids);
    chat_close(&chat);
    host_close(&h);
    return code;
}

static int template(const struct args *a)
{
    struct text text;
    json_error_t error;
    int code = a->file ? read_text(&text, a->file)
                       : read_stdin(&text, cmd_template.name,
                                    "messages: give -f FILE or pipe them to stdin");
    if (code) return code;
    json_t *j = json_loadb(text.p, text.n, JSON_ALLOW_NUL, &error);
    free(text.p);
    if (!j) return say_error("messages: line %d: %s", error.line, QUOTE(error.text));
    code = template_json(a, j);
    json_decref(j);
    return code;
}

const struct command cmd_template = {
    .name = "template",
    .operands = "MODEL",
    .summary = "render messages with a model's chat template",
    .about = "Prints the prompt that the model's chat template renders from messages. Give the "
             "messages on stdin or with -f FILE, as a JSON array of {\"role\", \"content\"} or as "
             "an object with \"messages\" and \"tools\".",
    .groups = {&template_group, &opts_template, &opts_unknown, &opts_common},
    .min_operands = 1,
    .max_operands = 1,
    .run = template,
};
