/* Byte-level BPE and RWKV: byte 0 picks the pre-tokenizer, byte 1 options, the rest is text. What
 * was encoded decodes to the same bytes, whatever they are, whole and streamed. */
#include "text/tok_sample.h"

static const char *const pres[] = {
    "llama-bpe", "glm4",           "qwen2",        "qwen35", "gpt-2",   "smollm",      "tekken",
    "gpt-4o",    "deepseek-coder", "deepseek-llm", "falcon", "default", "deepseek-v3", "rwkv",
};

enum { WHOLE = 1, NFC = 2, N_MODES = 4, PARSE_SPECIAL = 4, FROM_USER = 8 };

/* Kept between runs: opening costs milliseconds. */
static struct tok *open_with(u32 pre, u32 mode)
{
    static struct tok *open[ARRAY_LEN(pres)][N_MODES];
    static struct sample samples[ARRAY_LEN(pres)][N_MODES];
    struct sample *s = &samples[pre][mode];
    struct err err;
    if (open[pre][mode]) return open[pre][mode];
    if (pre == ARRAY_LEN(pres) - 1)
        sample_rwkv(s);
    else
        sample_bpe(s, pres[pre]);
    s->spec.ignore_merges = mode & WHOLE;
    s->spec.norm = mode & NFC ? TOK_NORM_NFC : TOK_NORM_NONE;
    CHECK(tok_open(&open[pre][mode], &s->spec, &err) == 0);
    return open[pre][mode];
}

static void sink(void *ctx, const char *p, size_t n)
{
    buf_put(ctx, p, n);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t n);

int LLVMFuzzerTestOneInput(const u8 *data, size_t n)
{
    if (n < 2) return 0;
    const struct tok *t = open_with(data[0] % ARRAY_LEN(pres), data[1] % N_MODES);
    struct str text = {(const char *)data + 2, n - 2};
    struct tok_ids ids = {0};
    struct buf back = {0}, streamed = {0};
    struct tok_stream stream = {0};
    struct err err;
    /* The text as its own mask: all but zero bytes are the user's. */
    const u8 *from_user = data[1] & FROM_USER ? data + 2 : NULL;
    unsigned flags = data[1] & PARSE_SPECIAL ? TOK_SPECIAL : 0;
    CHECK(tok_encode(t, text, from_user, flags, &ids, &err) == 0);
    tok_decode(t, ids.p, ids.n, true, &back);
    for (size_t i = 0; i < ids.n; i++)
        tok_stream_feed(&stream, tok_piece(t, ids.p[i], true), true, sink, &streamed);
    tok_stream_flush(&stream, true, sink, &streamed);
    CHECK(str_eq(buf_str(&back), buf_str(&streamed)));
    CHECK((data[1] & NFC) || str_eq(buf_str(&back), text));
    buf_free(&back);
    buf_free(&streamed);
    tok_ids_free(&ids);
    return 0;
}
