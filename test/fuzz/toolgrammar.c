/* Any JSON as a tool's parameters, in every format: the grammar of its calls is refused with a
 * reason, or it is a text that the parser of grammars takes, unless a schema in it can't be kept.
 * The first byte chooses the format, the second what is asked. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "chat/tools.h"
#include "serve/grammar.h"

int LLVMFuzzerTestOneInput(const u8 *data, size_t n);

int LLVMFuzzerTestOneInput(const u8 *data, size_t n)
{
    if (n < 2 || n > 4096) return 0;
    json_t *parameters = json_loadb((const char *)data + 2, n - 2, JSON_REJECT_DUPLICATES, NULL);
    if (!json_is_object(parameters)) {
        json_decref(parameters);
        return 0;
    }
    json_t *tools = json_pack("[{s:{s:s, s:o}}, {s:{s:s}}]", "function", "name", "f", "parameters",
                              parameters, "function", "name", "now");
    char why[300];
    struct tools_ask ask = {
        .format = {.row = &chat_formats[data[0] % N_CHAT_FORMATS], .thinks = data[1] & 1},
        .what = data[1] & 2 ? TOOLS_MAY : TOOLS_MUST,
        .tools = tools,
        .many = data[1] & 4,
        .thinking = data[1] & 8};
    char *text = tools_grammar(&ask, why, sizeof why);
    CHECK(text || *why);
    struct grammar *g = NULL;
    struct err err = {0};
    bool is_pairs = ask.format.row->syntax == CHAT_PAIRS || ask.format.row->quote;
    if (text && grammar_parse(&g, (struct str){text, strlen(text)}, &err) == 0)
        grammar_close(g);
    else if (text) /* what is wrong is a schema's, or the whole is too large */
        CHECK(strstr(text, "%json") || (is_pairs && err.code == FLETCH_E_LIMIT));
    free(text);
    json_decref(tools);
    return 0;
}
