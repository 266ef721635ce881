/* Tokenizers: bytes to token ids and back. Four kinds: SPM (merges of characters, by score or
 * rank), byte-level BPE (ranked merges inside pre-split pieces), Unigram (the best sum of scores)
 * and RWKV World (longest match). */
#ifndef FLETCH_TOK_H
#define FLETCH_TOK_H

#include <jansson.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"

enum tok_kind {
    TOK_NONE, /* ids only, no text */
    TOK_SPM,
    TOK_BPE,
    TOK_RWKV,
    TOK_UNIGRAM,
};

/* GGUF's token types. */
enum tok_type {
    TOK_NORMAL = 1,
    TOK_UNKNOWN = 2,
    TOK_CONTROL = 3,
    TOK_USER = 4,
    TOK_UNUSED = 5, /* and any other number */
    TOK_BYTE = 6,
};

enum tok_norm { TOK_NORM_NONE, TOK_NORM_NFC, TOK_NORM_NFD, TOK_NORM_NFKC, TOK_NORM_NFKD };

/* When SPM puts a space before a fragment of text. GGUF's add_space_prefix is NEVER or ALWAYS;
 * the others are how tokenizer.json's Metaspace does it. */
enum tok_prefix {
    TOK_PREFIX_NEVER,
    TOK_PREFIX_ALWAYS,
    TOK_PREFIX_UNLESS_SPACE, /* every fragment that doesn't start with one */
    TOK_PREFIX_FIRST,        /* the beginning of the text, unless it starts with one */
};

/* How a special token is found in text, as tokenizer.json's added tokens say it. */
enum {
    TOK_LSTRIP = 1, /* it takes the white space before it */
    TOK_RSTRIP = 2, /* and after it */
    TOK_SINGLE_WORD = 4,
    TOK_NORMALIZED = 8, /* of user-defined ones: it and the text are normalised first */
};

/* What a vocabulary is, wherever it came from; texts are in GGUF's stored form (SPM with U+2581,
 * BPE byte-mapped, RWKV escaped). Plain data: tok_open copies no text, so what the spec points to
 * must outlive it. */
struct tok_spec {
    enum tok_kind kind;
    struct str pre; /* pre-tokenizer name, BPE only; empty: "default" */
    u32 n_tokens;
    const struct str *tokens; /* [n_tokens] */
    const u8 *types;          /* [n_tokens] enum tok_type, or NULL: all normal */
    const float *scores;      /* [n_tokens] SPM; used when there are no merges */
    u32 n_merges;
    const struct str *merges; /* [n_merges] "left right", best first; BPE, optional in SPM */
    i64 bos, eos, eot, eom, unk, pad;    /* -1 unset; beyond n_tokens counts as unset */
    int add_bos, add_eos, ignore_merges; /* 0, 1, or -1: the kind's default */
    int add_space_prefix;                /* enum tok_prefix, or -1: the kind's default */
    enum tok_norm norm;                  /* applied to text before splitting */
    /* Steps that the names above can't say, as JSON in tokenizer.json's form; p == NULL: none. With
     * either of them, spaces become U+2581 only where a step says so. */
    struct str normalizer, pre_tokenizer;
    int strip_space; /* decoding drops a first space; -1: where add_space_prefix adds one */
    int fuse_unk;    /* a run of unknown characters is one token; -1: not in byte-level BPE */
    /* User-defined tokens below this id are found in normalised text, and pass the normalizer as
     * they are: SentencePiece's way. Others part the text before. */
    u32 n_symbols;
    const u8 *token_flags; /* [n_tokens] TOK_LSTRIP and others; NULL: none */
    /* What stands before and after a text where add_bos and add_eos can't say it; they are 1 then
     * where there is anything. */
    u32 n_before, n_after;
    const i32 *before, *after;
    /* More ids that end generation, beside eos, eot and eom. */
    u32 n_ends;
    const i32 *ends;
    struct str chat_template; /* p == NULL: none */
};

/* Sets every id to -1, every flag to "default"; the rest is zero. */
void tok_spec_init(struct tok_spec *spec);
/* The special ids that GGUF files leave unsaid, by kind and pre; then metadata overrides. */
void tok_spec_gguf_ids(struct tok_spec *spec);
/* From Hugging Face files: tokenizer.json and (may be NULL) tokenizer_config.json; the chat
 * template may also come as its own file's text (chat_template.jinja), which then wins.
 * Everything the spec points to lives in arena. */
int tok_spec_from_json(struct tok_spec *spec, struct arena *arena, const json_t *tokenizer,
                       const json_t *config, struct str chat_template, struct err *err);

/* Files beside a vocabulary that came without a tokenizer.json; each may be NULL. */
struct tok_files {
    const json_t *config;      /* tokenizer_config.json */
    json_t *added;             /* added_tokens.json: text to id */
    const json_t *special_map; /* special_tokens_map.json */
    struct str chat_template;  /* chat_template.jinja */
};
/* Adds their tokens, names of special tokens, flags and chat template to a spec. */
int tok_spec_read_beside(struct tok_spec *spec, struct arena *arena, const struct tok_files *f,
                         struct err *err);

/* An open tokenizer is constant: any number of threads may use it. */
struct tok;
int tok_open(struct tok **out, const struct tok_spec *spec, struct err *err);
void tok_close(struct tok *t);

struct tok_ids {
    i32 *p;
    size_t n, cap;
};
void tok_ids_free(struct tok_ids *ids);

enum {
    TOK_ADD_BOS = 1, /* where the vocabulary wants it; add_eos likewise */
    TOK_SPECIAL = 2, /* control tokens in the text become their ids */
};

/* Appends to ids (on failure: nothing). from_user (may be NULL) has one byte per byte of text:
 * non-zero bytes never take part in a control token, whatever the flags; user-defined tokens are
 * found everywhere. Any bytes are legal text. */
int tok_encode(const struct tok *t, struct str text, const u8 *from_user, unsigned flags,
               struct tok_ids *ids, struct err *err);

/* The raw bytes of one token; control tokens are empty unless render_special. Borrowed. */
struct str tok_piece(const struct tok *t, i32 id, bool render_special);
/* Appends a whole sequence: all pieces, less the space that encoding put in front. It stays where
 * the sequence starts with bos, as in other engines. Ids out of range print nothing. */
void tok_decode(const struct tok *t, const i32 *ids, size_t n, bool render_special,
                struct buf *out);

u32 tok_size(const struct tok *t);
enum tok_type tok_type(const struct tok *t, i32 id);
bool tok_is_eog(const struct tok *t, i32 id);
i64 tok_bos(const struct tok *t);
i64 tok_eos(const struct tok *t);
/* Ends a turn. Part of the end-of-generation set; plain completion with RWKV may run past it. */
i64 tok_eot(const struct tok *t);
bool tok_adds_bos(const struct tok *t);
/* The id of a token by its stored text, or -1. */
i32 tok_find(const struct tok *t, struct str text);
/* Stored text of a special id as a template sees it ("" when unset). */
struct str tok_text(const struct tok *t, i64 id);

/* Streaming: feed pieces, take whole UTF-8 characters. Never holds more than 3 bytes back.
 * Start from zero; flush at the end. */
struct tok_stream {
    char tail[4]; /* the beginning of a character that is not whole yet */
    u32 n_tail;
};
/* Calls sink with whole characters; raw = invalid bytes pass through, else they become U+FFFD. */
void tok_stream_feed(struct tok_stream *s, struct str piece, bool raw,
                     void (*sink)(void *ctx, const char *p, size_t n), void *ctx);
void tok_stream_flush(struct tok_stream *s, bool raw,
                      void (*sink)(void *ctx, const char *p, size_t n), void *ctx);

#endif
