/* Any bytes as a template, rendered with a fixed conversation. */
#include "text/tmpl.h"

int LLVMFuzzerTestOneInput(const u8 *data, size_t n);

static const char vars_text[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \"S\"},"
    " {\"role\": \"user\", \"content\": \" H\\u00e9 <|x|> \"},"
    " {\"role\": \"assistant\", \"content\": \"<think>t</think>\\n\\nYo\", \"tool_calls\":"
    "  [{\"id\": \"abcdefghi\", \"function\": {\"name\": \"f\", \"arguments\": {\"a\": 1, \"b\":"
    "   [1.5, null, true, \"\\ud83d\\ude00\"]}}}]}, {\"role\": \"tool\", \"content\": \"R\","
    " \"tool_call_id\": \"abcdefghi\"}], \"tools\": [{\"type\": \"function\", \"function\":"
    " {\"name\": \"f\", \"description\": \"d\"}}], \"add_generation_prompt\": true,"
    " \"enable_thinking\": false, \"s\": \"stra\\u00dfe \\u03a3\\u0391\\u03a3\", \"n\": 3}";

int LLVMFuzzerTestOneInput(const u8 *data, size_t n)
{
    static json_t *vars, *trusted;
    if (!vars) {
        vars = json_loads(vars_text, 0, NULL);
        trusted = json_pack("{s:s, s:s}", "bos_token", "<s>", "eos_token", "</s>");
        CHECK(vars && trusted);
    }
    struct tmpl_limits limits = {.fuel = 200000, .n_bytes = 8 << 20};
    struct err err;
    struct tmpl *t;
    struct tmpl_out out;
    if (tmpl_open(&t, (struct str){(const char *)data, n}, &err)) return 0;
    tmpl_reads(t, STR("messages"));
    CHECK(!tmpl_reads(t, STR("no such name")));
    tmpl_reads(t, STR("tools"));
    if (tmpl_render(t, vars, trusted, 1767355200, &limits, &out, &err) == 0) {
        for (size_t i = 0; i < out.n; i++) CHECK(out.from_user[i] <= 1);
        CHECK(out.text[out.n] == 0);
        tmpl_out_free(&out);
    }
    tmpl_close(t);
    return 0;
}
