/* SentencePiece's tokenizer.model: a protobuf message with the pieces, how they were trained and
 * how texts are normalised. Fields that say nothing about encoding are passed over. */
#include "model/vocab.h"

#include <stdio.h>
#include <string.h>

enum { MAX_PIECES = 1 << 24 };

enum wire { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

/* One field of a message. */
struct field {
    u32 number;
    enum wire wire;
    u64 value;        /* WIRE_VARINT, WIRE_64, WIRE_32 */
    struct str bytes; /* WIRE_BYTES */
};

static bool take_varint(struct str *s, u64 *out)
{
    *out = 0;
    for (u32 shift = 0; shift < 64 && s->n; shift += 7) {
        u8 b = (u8)*s->p++;
        s->n--;
        if (shift == 63 && b > 1) return false;
        *out |= (u64)(b & 0x7f) << shift;
        if (b < 0x80) return true;
    }
    return false;
}

static bool take_fixed(struct str *s, size_t n, u64 *out)
{
    *out = 0;
    if (s->n < n) return false;
    for (size_t i = 0; i < n; i++) *out |= (u64)(u8)s->p[i] << 8 * i;
    s->p += n;
    s->n -= n;
    return true;
}

/* The next field of a message, or false where it is damaged. */
static bool take_field(struct str *s, struct field *f)
{
    u64 key, n;
    *f = (struct field){0};
    if (!take_varint(s, &key) || key >> 3 == 0 || key >> 3 > (1u << 29) - 1) return false;
    f->number = (u32)(key >> 3);
    f->wire = (enum wire)(key & 7);
    switch (f->wire) {
    case WIRE_VARINT: return take_varint(s, &f->value);
    case WIRE_64: return take_fixed(s, 8, &f->value);
    case WIRE_32: return take_fixed(s, 4, &f->value);
    case WIRE_BYTES:
        if (!take_varint(s, &n) || n > s->n) return false;
        f->bytes = (struct str){s->p, (size_t)n};
        s->p += n;
        s->n -= (size_t)n;
        return true;
    default: return false; /* groups: SentencePiece has none */
    }
}

/* SentencePiece's own types of pieces, model types, and defaults of its fields. */
enum { PIECE_NORMAL = 1, PIECE_UNKNOWN, PIECE_CONTROL, PIECE_USER, PIECE_UNUSED, PIECE_BYTE };
enum { MODEL_UNIGRAM = 1, MODEL_BPE, MODEL_WORD, MODEL_CHAR };

struct spm {
    struct str *tokens;
    float *scores;
    u8 *types;
    u32 n, cap; /* pieces */
    u32 model;
    i32 unk, bos, eos, pad;
    bool byte_fallback, suffix, any_user;
    struct vocab_spm_norm norm;
    bool has_denormalizer;
    struct arena *arena;
    struct err *err;
};

static int damaged(struct spm *m, const char *what)
{
    return err_set(m->err, FLETCH_E_FORMAT, "%s is damaged; is this file a SentencePiece model?",
                   what);
}

static int read_piece(struct spm *m, struct str s)
{
    struct field f;
    u32 bits = 0, type = PIECE_NORMAL;
    u32 i = m->n++;
    while (s.n) {
        if (!take_field(&s, &f)) return damaged(m, "a piece");
        if (f.number == 1 && f.wire == WIRE_BYTES) m->tokens[i] = f.bytes;
        if (f.number == 2 && f.wire == WIRE_32) bits = (u32)f.value;
        if (f.number == 3 && f.wire == WIRE_VARINT) type = f.value <= UINT8_MAX ? (u32)f.value : 0;
    }
    /* GGUF has taken over the numbers of the types. */
    _Static_assert((int)PIECE_BYTE == (int)TOK_BYTE && (int)PIECE_USER == (int)TOK_USER, "types");
    if (type < PIECE_NORMAL || type > PIECE_BYTE)
        return err_set(m->err, FLETCH_E_UNSUPPORTED, "piece %u has the unknown type %u", i, type);
    memcpy(&m->scores[i], &bits, sizeof bits);
    if (m->scores[i] != m->scores[i])
        return err_set(m->err, FLETCH_E_FORMAT, "the score of piece %u is not a number", i);
    if (!m->tokens[i].n) return err_set(m->err, FLETCH_E_FORMAT, "piece %u has no text", i);
    char *text = arena_copy(m->arena, m->tokens[i]);
    if (!text) return err_nomem(m->err, "the vocabulary");
    m->tokens[i].p = text;
    m->types[i] = (u8)type;
    m->any_user |= type == PIECE_USER;
    return 0;
}

static int read_trainer(struct spm *m, struct str s)
{
    struct field f;
    while (s.n) {
        if (!take_field(&s, &f)) return damaged(m, "the trainer_spec");
        if (f.wire != WIRE_VARINT) continue;
        i32 id = (i32)(u32)f.value;
        switch (f.number) {
        case 3: m->model = (u32)MIN(f.value, (u64)UINT32_MAX); break;
        case 24: m->suffix = f.value; break;
        case 35: m->byte_fallback = f.value; break;
        case 40: m->unk = id; break;
        case 41: m->bos = id; break;
        case 42: m->eos = id; break;
        case 43: m->pad = id; break;
        default: break;
        }
    }
    return 0;
}

static int read_normalizer(struct spm *m, struct str s)
{
    struct field f;
    while (s.n) {
        if (!take_field(&s, &f)) return damaged(m, "the normalizer_spec");
        if (f.number == 2 && f.wire == WIRE_BYTES) m->norm.charsmap = f.bytes;
        if (f.wire != WIRE_VARINT) continue;
        if (f.number == 3) m->norm.dummy_prefix = f.value;
        if (f.number == 4) m->norm.remove_extra_spaces = f.value;
        if (f.number == 5) m->norm.keep_spaces = !f.value;
    }
    return 0;
}

static int read_denormalizer(struct spm *m, struct str s)
{
    struct field f;
    while (s.n) {
        if (!take_field(&s, &f)) return damaged(m, "the denormalizer_spec");
        if (f.number == 2 && f.wire == WIRE_BYTES) m->has_denormalizer = f.bytes.n > 0;
    }
    return 0;
}

/* All of the file's fields are looked over first, so that the pieces can be counted. */
static int count_pieces(struct spm *m, struct str s)
{
    struct field f;
    while (s.n) {
        if (!take_field(&s, &f)) return damaged(m, "the file");
        m->cap += f.number == 1 && f.wire == WIRE_BYTES;
    }
    if (!m->cap || m->cap > MAX_PIECES)
        return err_set(m->err, FLETCH_E_FORMAT, "%u pieces; is this file a SentencePiece model?",
                       m->cap);
    m->tokens = arena_alloc(m->arena, m->cap, sizeof *m->tokens);
    m->scores = arena_alloc(m->arena, m->cap, sizeof *m->scores);
    m->types = arena_alloc(m->arena, m->cap, 1);
    return m->tokens && m->scores && m->types ? 0 : err_nomem(m->err, "the vocabulary");
}

static int read_fields(struct spm *m, struct str s)
{
    struct field f;
    int rc = 0;
    while (s.n && rc == 0) {
        if (!take_field(&s, &f)) return damaged(m, "the file");
        if (f.wire != WIRE_BYTES) continue;
        if (f.number == 1) rc = read_piece(m, f.bytes);
        if (f.number == 2) rc = read_trainer(m, f.bytes);
        if (f.number == 3) rc = read_normalizer(m, f.bytes);
        if (f.number == 5) rc = read_denormalizer(m, f.bytes);
    }
    return rc;
}

static void put_base64(struct buf *out, struct str s)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    u32 bits = 0, have = 0;
    for (size_t i = 0; i < s.n; i++) {
        bits = bits << 8 | (u8)s.p[i];
        for (have += 8; have >= 6; have -= 6) buf_putc(out, digits[bits >> (have - 6) & 63]);
    }
    if (have) buf_putc(out, digits[bits << (6 - have) & 63]);
}

int vocab_spm_normalizer(struct tok_spec *spec, struct arena *arena,
                         const struct vocab_spm_norm *norm, struct err *err)
{
    struct buf b = {0};
    buf_printf(&b,
               "{\"type\":\"SentencePiece\",\"add_dummy_prefix\":%s,\"prefix_first_only\":%s,"
               "\"remove_extra_whitespaces\":%s,\"escape_whitespaces\":%s,"
               "\"precompiled_charsmap\":\"",
               norm->dummy_prefix ? "true" : "false", norm->prefix_first_only ? "true" : "false",
               norm->remove_extra_spaces ? "true" : "false", norm->keep_spaces ? "false" : "true");
    put_base64(&b, norm->charsmap);
    buf_puts(&b, "\"}");
    char *text = b.failed ? NULL : arena_copy(arena, buf_str(&b));
    spec->normalizer = (struct str){text, b.n};
    buf_free(&b);
    return text ? 0 : err_nomem(err, "the normalizer");
}

static int check_spm(struct spm *m)
{
    const char *what = m->suffix             ? "treat_whitespace_as_suffix"
                       : m->norm.keep_spaces ? "escape_whitespaces = false"
                       : m->has_denormalizer ? "a denormalizer"
                                             : NULL;
    if (m->model != MODEL_UNIGRAM && m->model != MODEL_BPE)
        return err_set(m->err, FLETCH_E_UNSUPPORTED,
                       "a SentencePiece model of type %u is not supported, only Unigram and BPE",
                       m->model);
    if (what)
        return err_set(m->err, FLETCH_E_UNSUPPORTED,
                       "a SentencePiece model with %s is not supported", what);
    for (u32 i = 0; i < m->n; i++)
        if (m->types[i] == PIECE_BYTE && !m->byte_fallback)
            return err_set(m->err, FLETCH_E_FORMAT,
                           "piece %u is a byte, but the model has no byte_fallback", i);
    return 0;
}

static i64 spm_id(const struct spm *m, i32 id)
{
    return id >= 0 && (u32)id < m->n ? id : -1;
}

int vocab_read_spm(struct tok_spec *spec, struct arena *arena, struct str file,
                   bool prefix_first_only, struct err *err)
{
    struct spm m = {.model = MODEL_UNIGRAM,
                    .bos = 1,
                    .eos = 2,
                    .pad = -1,
                    .norm = {.dummy_prefix = true, .remove_extra_spaces = true},
                    .arena = arena,
                    .err = err};
    int rc = count_pieces(&m, file);
    if (rc == 0) rc = read_fields(&m, file);
    if (rc == 0) rc = check_spm(&m);
    if (rc) return rc;
    tok_spec_init(spec);
    spec->kind = m.model == MODEL_BPE ? TOK_SPM : TOK_UNIGRAM;
    spec->n_tokens = m.n;
    spec->tokens = m.tokens;
    spec->types = m.types;
    spec->scores = m.scores;
    spec->unk = spm_id(&m, m.unk);
    spec->bos = spm_id(&m, m.bos);
    spec->eos = spm_id(&m, m.eos);
    spec->pad = spm_id(&m, m.pad);
    spec->add_bos = spec->add_eos = 0;
    spec->strip_space = m.norm.dummy_prefix;
    m.norm.prefix_first_only = prefix_first_only;
    /* What GGUF files of this kind mean anyway is said in GGUF's terms, for other engines too. */
    bool plain = !m.norm.charsmap.n && !m.norm.remove_extra_spaces && !m.any_user &&
                 spec->kind == TOK_SPM && !(m.norm.dummy_prefix && prefix_first_only);
    spec->add_space_prefix = plain && m.norm.dummy_prefix ? TOK_PREFIX_ALWAYS : TOK_PREFIX_NEVER;
    if (plain) return 0;
    spec->n_symbols = m.n;
    return vocab_spm_normalizer(spec, arena, &m.norm, err);
}
