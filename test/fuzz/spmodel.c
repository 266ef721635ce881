/* Any bytes as a SentencePiece model: read, open, encode, and the same by way of GGUF metadata. */
#include "model/vocab.h"

int LLVMFuzzerTestOneInput(const u8 *data, size_t n);

static struct tok_ids encode(const struct tok *t)
{
    struct tok_ids ids = {0};
    struct err err;
    tok_encode(t, STR("  AB the\tfi e\xcc\x81 \xe2\x96\x81x\xff<tool> <s>1/2  "), NULL,
               TOK_ADD_BOS | TOK_SPECIAL, &ids, &err);
    return ids;
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t n)
{
    struct vocab v = {0}, *again;
    struct source *s = NULL;
    struct err err = {0};
    struct str file = {(const char *)data, n};
    if (vocab_read_spm(&v.spec, &v.arena, file, n % 2, &err) == 0 &&
        tok_open(&v.tok, &v.spec, &err) == 0) {
        CHECK(source_new(&s, "made", &err) == 0);
        CHECK(vocab_to_source(&v, s, &err) == 0);
        CHECK(vocab_load(&again, s, &err) == 0);
        struct tok_ids a = encode(v.tok), b = encode(again->tok);
        CHECK(a.n == b.n);
        for (size_t i = 0; i < a.n; i++) CHECK(a.p[i] == b.p[i]);
        struct buf out = {0};
        tok_decode(v.tok, a.p, a.n, true, &out);
        buf_free(&out);
        tok_ids_free(&a);
        tok_ids_free(&b);
        vocab_close(again);
    }
    source_close(s);
    tok_close(v.tok);
    arena_free(&v.arena);
    return 0;
}
