/* Any bytes as a grammar; then a text behind a NUL byte is followed through it. Whatever is a
 * beginning can be finished: from every state some byte or the end leads on. */
#include "serve/grammar.h"

#include <string.h>

#include "serve/automaton.h"

int LLVMFuzzerTestOneInput(const u8 *data, size_t n);

int LLVMFuzzerTestOneInput(const u8 *data, size_t n)
{
    static struct trie *trie;
    static char bytes[256];
    static struct str pieces[257];
    static const i32 end = 256;
    struct err err;
    for (u32 i = 0; !trie && i < 256; i++) {
        bytes[i] = (char)i;
        pieces[i] = (struct str){&bytes[i], 1};
    }
    if (!trie) CHECK(trie_open(&trie, pieces, 257, &end, 1, &err) == 0);
    const u8 *nul = n ? memchr(data, 0, n) : NULL;
    struct str text = {(const char *)data, nul ? (size_t)(nul - data) : n}, input = {"", 0};
    if (nul) input = (struct str){(const char *)nul + 1, n - text.n - 1};
    struct grammar *g;
    struct automaton *a;
    struct constraint *c;
    if (grammar_parse(&g, text, &err)) return 0;
    CHECK(automaton_open(&a, g, trie, &err) == 0 && constraint_open(&c, a, &err) == 0);
    for (size_t i = 0; i <= input.n; i++) {
        const u32 *mask = constraint_mask(c);
        bool leads_on = false;
        for (u32 k = 0; mask && k < 9; k++) leads_on |= mask[k] != 0;
        CHECK(!mask || leads_on);
        if (!mask || i == input.n || !constraint_feed(c, (struct str){input.p + i, 1})) break;
    }
    constraint_close(c);
    automaton_close(a);
    return 0;
}
