/* SPM: byte 0 picks options, the rest is text. Decoding gives the text back, but for a literal
 * U+2581, which is SPM's space. */
#include <string.h>

#include "text/tok_sample.h"

static struct tok *open_with(bool prefix, bool by_merges)
{
    static const char *const merges[] = {"▁ ▁", "▁▁ ▁▁", "▁ t", "h e", "▁t he", "i n", "a a"};
    static struct str list[ARRAY_LEN(merges)];
    static struct sample samples[4];
    static struct tok *open[4]; /* kept between runs */
    u32 i = (u32)prefix * 2 + by_merges;
    struct sample *s = &samples[i];
    struct err err;
    if (open[i]) return open[i];
    sample_spm(s);
    s->spec.add_space_prefix = prefix;
    for (size_t k = 0; k < ARRAY_LEN(merges); k++) list[k] = str_of(merges[k]);
    s->spec.merges = list;
    s->spec.n_merges = by_merges ? ARRAY_LEN(merges) : 0;
    CHECK(tok_open(&open[i], &s->spec, &err) == 0);
    return open[i];
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t n);

int LLVMFuzzerTestOneInput(const u8 *data, size_t n)
{
    if (n < 1) return 0;
    const struct tok *t = open_with(data[0] & 1, data[0] & 2);
    struct str text = {(const char *)data + 1, n - 1};
    struct tok_ids ids = {0};
    struct buf back = {0}, want = {0};
    struct err err;
    CHECK(tok_encode(t, text, NULL, 0, &ids, &err) == 0);
    tok_decode(t, ids.p, ids.n, false, &back);
    for (size_t i = 0; i < text.n; i++) {
        bool space = str_starts((struct str){text.p + i, text.n - i}, TOK_SPACE);
        buf_putc(&want, space ? ' ' : text.p[i]);
        if (space) i += 2;
    }
    CHECK(str_eq(buf_str(&back), buf_str(&want)));
    buf_free(&back);
    buf_free(&want);
    tok_ids_free(&ids);
    return 0;
}
