/* Small vocabularies for tests and fuzz targets: every byte, a few merges, a few specials. */
#ifndef FLETCH_TOK_SAMPLE_H
#define FLETCH_TOK_SAMPLE_H

#include "text/tok_internal.h"

struct sample {
    struct tok_spec spec;
    struct arena arena;
    struct str *tokens;
    u8 *types;
    float *scores;
};

enum { SAMPLE_MAX = 512 };

static inline i32 sample_add(struct sample *s, struct str text, enum tok_type type, float score)
{
    u32 id = s->spec.n_tokens++;
    CHECK(id < SAMPLE_MAX);
    s->tokens[id] = (struct str){arena_copy(&s->arena, text), text.n};
    s->types[id] = (u8)type;
    s->scores[id] = score;
    return (i32)id;
}

static inline void sample_new(struct sample *s, enum tok_kind kind)
{
    *s = (struct sample){0};
    tok_spec_init(&s->spec);
    s->tokens = arena_alloc(&s->arena, SAMPLE_MAX, sizeof *s->tokens);
    s->types = arena_alloc(&s->arena, SAMPLE_MAX, 1);
    s->scores = arena_alloc(&s->arena, SAMPLE_MAX, sizeof *s->scores);
    s->spec.kind = kind;
    s->spec.tokens = s->tokens;
    s->spec.types = s->types;
    s->spec.scores = s->scores;
}

/* Ids 0-255 are the bytes; then one token per merge; then the specials. */
static inline void sample_bpe(struct sample *s, const char *pre)
{
    static const char *const merges[] = {
        "h e", "l l",  "he ll", "hell o",    "Ġ w", "o r",   "Ġw or",
        "l d", "Ġ Ġ",  "ĠĠ ĠĠ", "ĠĠĠĠ ĠĠĠĠ", "a a", "aa aa", "1 1",
        "Ċ Ċ", "ĠĠ Ċ", "ä ¸",   "ä¸ Ń",      "ÿ ÿ", "' s",   "Ì ģ",
    };
    struct str *list;
    sample_new(s, TOK_BPE);
    list = arena_alloc(&s->arena, ARRAY_LEN(merges), sizeof *list);
    for (int b = 0; b < 256; b++) {
        struct buf text = {0};
        tok_map_bytes(&text, (struct str){(char[]){(char)b}, 1});
        sample_add(s, buf_str(&text), TOK_NORMAL, 0);
        buf_free(&text);
    }
    for (size_t i = 0; i < ARRAY_LEN(merges); i++) {
        struct buf text = {0};
        list[i] = str_of(merges[i]);
        for (const char *p = merges[i]; *p; p++)
            if (*p != ' ') buf_putc(&text, *p);
        sample_add(s, buf_str(&text), TOK_NORMAL, 0);
        buf_free(&text);
    }
    sample_add(s, STR("orphan"), TOK_NORMAL, 0);
    sample_add(s, STR("<|im_start|>"), TOK_CONTROL, 0);
    sample_add(s, STR("<|im_end|>"), TOK_CONTROL, 0);
    sample_add(s, STR("<think>"), TOK_USER, 0);
    sample_add(s, STR("[PAD281]"), TOK_UNUSED, 0);
    s->spec.pre = str_of(pre);
    s->spec.merges = list;
    s->spec.n_merges = ARRAY_LEN(merges);
}

/* <unk>, <s>, </s>, ids 3-258 the bytes, then pieces with falling scores. */
static inline void sample_spm(struct sample *s)
{
    static const char *const pieces[] = {
        "▁▁", "▁▁▁▁", "▁t", "he", "▁the", "in", "aa", "aaaa", "▁a", "中中",
        "▁",  "t",    "h",  "e",  "i",    "n",  "a",  "中",   "b",  "\n",
    };
    sample_new(s, TOK_SPM);
    sample_add(s, STR("<unk>"), TOK_UNKNOWN, 0);
    sample_add(s, STR("<s>"), TOK_CONTROL, 0);
    sample_add(s, STR("</s>"), TOK_CONTROL, 0);
    for (int b = 0; b < 256; b++) {
        char text[8] = "<0x00>";
        text[3] = "0123456789ABCDEF"[b >> 4];
        text[4] = "0123456789ABCDEF"[b & 15];
        sample_add(s, str_of(text), TOK_BYTE, 0);
    }
    for (size_t i = 0; i < ARRAY_LEN(pieces); i++)
        sample_add(s, str_of(pieces[i]), TOK_NORMAL, -(float)i);
    tok_spec_gguf_ids(&s->spec);
}

/* <s>, ids 1-256 the bytes, a few longer words, one unused. */
static inline void sample_rwkv(struct sample *s)
{
    static const char *const words[] = {"ab", "abcd\\n", "\\\\\\'\\t\\r", "\\xe4\\xb8"};
    sample_new(s, TOK_RWKV);
    sample_add(s, STR("<s>"), TOK_CONTROL, 0);
    for (int b = 0; b < 256; b++) {
        char text[8] = "\\x00";
        text[2] = "0123456789abcdef"[b >> 4];
        text[3] = "0123456789abcdef"[b & 15];
        sample_add(s, str_of(text), TOK_NORMAL, 0);
    }
    for (size_t i = 0; i < ARRAY_LEN(words); i++) sample_add(s, str_of(words[i]), TOK_NORMAL, 0);
    sample_add(s, STR("[PAD]"), TOK_UNUSED, 0);
    tok_spec_gguf_ids(&s->spec);
}

static inline void sample_free(struct sample *s)
{
    arena_free(&s->arena);
}

#endif
