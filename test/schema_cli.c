/* Tries schemas for test/schema_suite_test.py and tools/check-schemas: one JSON object a line on
 * stdin ({schema, texts, walks, seed}), one a line on stdout: {error}, or {accepts, walks}: whether
 * each text is a whole answer, and texts found by walking through the automaton at random. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/json.h"
#include "serve/automaton.h"
#include "serve/schema.h"

enum { LONG_WALK = 300, LONGEST_WALK = 1500 }; /* bytes */

static char bytes[256];
static struct str pieces[256];

static bool accepts(struct automaton *a, struct str text)
{
    struct constraint *c;
    CHECK(constraint_open(&c, a, NULL) == 0);
    bool whole = constraint_feed(c, text) == text.n && constraint_may_end(c);
    constraint_close(c);
    return whole;
}

static u32 next_random(u64 *x)
{
    *x = *x * 6364136223846793005u + 1442695040888963407u;
    return (u32)(*x >> 33);
}

/* Any byte of the mask; in long texts one that ends something, where there is one. */
static i32 choose(const u32 *mask, bool hurry, u64 *random)
{
    static const char ends[] = "\"]}0e\\1nu";
    u32 allowed[256], n = 0;
    for (u32 i = 0; i < 256; i++)
        if (mask[i / 32] >> i % 32 & 1) allowed[n++] = i;
    for (size_t i = 0; hurry && ends[i]; i++)
        if (mask[(u8)ends[i] / 32] >> (u8)ends[i] % 32 & 1) return (u8)ends[i];
    if (!n) return -1;
    for (u32 k = 0; k < 3; k++) { /* most texts are ASCII, and many strings are short */
        u32 byte = allowed[next_random(random) % n];
        if (byte < 0x7f || k == 2) return (i32)byte;
    }
    return -1;
}

static json_t *walk(struct automaton *a, u64 *random)
{
    struct constraint *c;
    struct buf out = {0};
    json_t *text = NULL;
    CHECK(constraint_open(&c, a, NULL) == 0);
    while (out.n < LONGEST_WALK) {
        if (constraint_may_end(c) && (constraint_is_over(c) || next_random(random) % 3 == 0)) {
            text = json_stringn(out.p ? out.p : "", out.n);
            break;
        }
        const u32 *mask = constraint_mask(c);
        i32 byte = mask ? choose(mask, out.n > LONG_WALK, random) : -1;
        if (byte < 0) break;
        buf_putc(&out, (char)byte);
        CHECK(constraint_advance(c, byte));
    }
    constraint_close(c);
    buf_free(&out);
    return text;
}

static json_t *try_case(const json_t *c, const struct trie *trie)
{
    struct grammar *g;
    struct automaton *a = NULL;
    struct err err = {0};
    const json_t *schema = json_object_get(c, "schema");
    int rc = schema_compile(&g, schema, &err);
    if (!rc) rc = automaton_open(&a, g, trie, &err);
    if (rc) return json_pack("{s:s, s:i}", "error", err.text, "code", err.code);
    json_t *accepted = json_array(), *walks = json_array(), *text;
    u64 random = (u64)json_integer_value(json_object_get(c, "seed")) + 1;
    size_t i;
    json_array_foreach(json_object_get(c, "texts"), i, text)
    {
        struct str s = {json_string_value(text), json_string_length(text)};
        json_array_append_new(accepted, json_boolean(accepts(a, s)));
    }
    for (json_int_t n = json_integer_value(json_object_get(c, "walks")); n > 0; n--) {
        json_t *found = walk(a, &random);
        if (found) json_array_append_new(walks, found);
    }
    automaton_close(a);
    return json_pack("{s:o, s:o}", "accepts", accepted, "walks", walks);
}

int main(void)
{
    struct trie *trie;
    char *line = NULL;
    size_t cap = 0;
    for (u32 i = 0; i < 256; i++) {
        bytes[i] = (char)i;
        pieces[i] = (struct str){&bytes[i], 1};
    }
    CHECK(trie_open(&trie, pieces, 256, NULL, 0, NULL) == 0);
    while (getline(&line, &cap, stdin) > 0) {
        struct err err;
        json_t *c = NULL;
        int rc = json_parse(&c, str_of(line), "case", &err);
        json_t *reply = rc ? json_pack("{s:s}", "error", err.text) : try_case(c, trie);
        json_dumpf(reply, stdout, JSON_COMPACT);
        putchar('\n');
        fflush(stdout);
        json_decref(reply);
        json_decref(c);
    }
    free(line);
    trie_close(trie);
    return 0;
}
