#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "text/tok_map.h"

static void test_a_pairmap_finds_what_was_added_and_keeps_the_first(void **state)
{
    (void)state;
    struct pairmap m = {0};
    u64 v;
    assert_false(pairmap_get(&m, 1, &v));
    for (u64 i = 0; i < 10000; i++) assert_true(pairmap_add(&m, i << 32 | (i * 7), i));
    for (u64 i = 0; i < 10000; i++) assert_true(pairmap_add(&m, i << 32 | (i * 7), 5));
    for (u64 i = 0; i < 10000; i++) {
        assert_true(pairmap_get(&m, i << 32 | (i * 7), &v));
        assert_int_equal(v, i);
        assert_false(pairmap_get(&m, i << 32 | (i * 7 + 1), &v));
    }
    pairmap_free(&m);
}

static i32 lookup(const struct trie *t, struct str word)
{
    u32 node = 0;
    for (size_t i = 0; i < word.n; i++)
        if (!(node = trie_step(t, node, word.p[i]))) return -1;
    return t->ids[node];
}

static void test_a_trie_knows_words_and_only_words(void **state)
{
    (void)state;
    struct trie t = {0};
    assert_true(trie_add(&t, STR("abc"), 1));
    assert_true(trie_add(&t, STR("ab\xff"), 2));
    assert_true(trie_add(&t, STR("\0"), 3));
    assert_true(trie_add(&t, STR("abc"), 4));
    assert_int_equal(lookup(&t, STR("abc")), 1);
    assert_int_equal(lookup(&t, STR("ab\xff")), 2);
    assert_int_equal(lookup(&t, STR("\0")), 3);
    assert_int_equal(lookup(&t, STR("ab")), -1);
    assert_int_equal(lookup(&t, STR("abcd")), -1);
    trie_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_pairmap_finds_what_was_added_and_keeps_the_first),
        cmocka_unit_test(test_a_trie_knows_words_and_only_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
