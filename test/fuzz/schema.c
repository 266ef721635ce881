/* Any JSON as a schema. The grammar that comes out, if one does, is read without an error of
 * syntax, and a walk through it that takes the first byte it can ends in JSON. */
#include "serve/schema.h"

#include <string.h>

#include "serve/automaton.h"

int LLVMFuzzerTestOneInput(const u8 *data, size_t n);

/* The shortest way is not looked for; quotation marks and brackets are preferred because they end
 * things. */
static void write_one(struct constraint *c)
{
    static const char prefer[] = "\"]}0e";
    struct buf out = {0};
    while (out.n < 2000 && !constraint_may_end(c)) {
        const u32 *mask = constraint_mask(c);
        u32 byte = 0;
        if (!mask) break;
        for (u32 i = 0; i < 256; i++) {
            byte = i < 5 ? (u8)prefer[i] : i;
            if (mask[byte / 32] >> byte % 32 & 1) break;
        }
        buf_putc(&out, (char)byte);
        CHECK(constraint_advance(c, (i32)byte));
    }
    if (constraint_may_end(c)) {
        json_t *j = json_loadb(out.p, out.n, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
        CHECK(j);
        json_decref(j);
    }
    buf_free(&out);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t n)
{
    static struct trie *trie;
    static char bytes[256];
    static struct str pieces[256];
    struct err err;
    for (u32 i = 0; !trie && i < 256; i++) {
        bytes[i] = (char)i;
        pieces[i] = (struct str){&bytes[i], 1};
    }
    if (!trie) CHECK(trie_open(&trie, pieces, 256, NULL, 0, &err) == 0);
    json_t *j = json_loadb((const char *)data, n, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, NULL);
    struct grammar *g = NULL;
    struct automaton *a;
    struct constraint *c;
    if (j && schema_compile(&g, j, &err) && str_starts(str_of(err.text), "schema, as a grammar"))
        CHECK(strstr(err.text, "too ") || strstr(err.text, "10000") ||
              strstr(err.text, "more than") || strstr(err.text, "less than its minimum"));
    if (g) {
        CHECK(automaton_open(&a, g, trie, &err) == 0 && constraint_open(&c, a, &err) == 0);
        write_one(c);
        constraint_close(c);
        automaton_close(a);
    }
    json_decref(j);
    return 0;
}
