/* The regexes are written as their authors published them, so that a tokenizer.json can be compared
 * with them; tok_regex.h says how they are read. */
#include "text/tok_pre.h"

#include <stdlib.h>
#include <string.h>

#include "text/tok_internal.h"
#include "text/tok_regex.h"
#include "text/unicode.h"

#define BLANKS "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define CL100K(digits)                                       \
    TOK_CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits \
                    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" BLANKS
#define QWEN35                                                        \
    TOK_CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| " \
                    "?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" BLANKS
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED(tail, digits)                                                                     \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" tail "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER \
    "*" tail "|" digits "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" BLANKS
/* Kimi's sets of letters leave Chinese characters out, which \p{Han}+ takes. */
#define KIMI_UPPER "(?:(?!\\p{Han})" UPPER ")"
#define KIMI_LOWER "(?:(?!\\p{Han})" LOWER ")"
#define KIMI                                                                         \
    "\\p{Han}+|[^\\r\\n\\p{L}\\p{N}]?" KIMI_UPPER "*" KIMI_LOWER "+" TOK_CONTRACTION \
    "?|[^\\r\\n\\p{L}\\p{N}]?" KIMI_UPPER "+" KIMI_LOWER "*" TOK_CONTRACTION         \
    "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" BLANKS
#define DS_CJK "[一-龥ࠀ-一가-퟿]+"
/* clang-format off */
#define DS_LETTERS \
    "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁ" \
    "Ҋ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝ" \
    "Ὗ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭ" \
    "ℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗ" \
    "Ａ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"
/* clang-format on */
#define DS_PUNCT "!-/:-~！-／：-～‘-‟　-。"
#define DS_V3                                                                            \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?" \
    "[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|" BLANKS

static const struct tok_pre_def defs[] = {
    {"llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2",
     {CL100K("\\p{N}{1,3}")},
     true},
    {"glm4 chatglm-bpe dbrx smaug-bpe", {CL100K("\\p{N}{1,3}")}, false},
    {"qwen2 deepseek-r1-qwen stablelm2 megrez hunyuan solar-open", {CL100K("\\p{N}")}, false},
    {"qwen35", {QWEN35}, false},
    {"gpt-2 phi-2 mpt olmo exaone4 mellum a.x-4.0", {TOK_PRE_GPT2}, false},
    {"smollm starcoder refact command-r codeshell exaone minerva-7b",
     {TOK_PRE_DIGIT, TOK_PRE_GPT2},
     false},
    {"tekken", {CASED("", "\\p{N}")}, true},
    {"gpt-4o llama4 kanana2 minimax-m2", {CASED(TOK_CONTRACTION "?", "\\p{N}{1,3}")}, false},
    {"kimi-k2", {KIMI}, false},
    {"seed-coder",
     {TOK_CONTRACTION
      "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|" BLANKS},
     false},
    {"deepseek-v3 hunyuan-dense joyai-llm",
     {"\\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", DS_V3},
     false},
    {"deepseek-coder", {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", DS_CJK, TOK_PRE_DIGIT}, false},
    {"deepseek-llm",
     {"[\\r\\n]", "\\s?[" DS_LETTERS "]+", "\\s?[" DS_PUNCT "]+", "\\s+$", DS_CJK, TOK_PRE_DIGITS},
     false},
    {"falcon", {TOK_PRE_PUNCTUATION, TOK_PRE_GPT2, "[0-9][0-9][0-9]"}, false},
    {"default",
     {"[\\p{P}\\$\\+<=>\\^~\\|]+", TOK_PRE_GPT2, TOK_PRE_DIGITS, "[0-9][0-9][0-9]"},
     false},
};

static bool pre_has_name(const struct tok_pre_def *def, struct str name)
{
    for (const char *p = def->names; *p;) {
        size_t n = strcspn(p, " ");
        if (str_eq((struct str){p, n}, name)) return true;
        p += n + (p[n] == ' ');
    }
    return false;
}

const struct tok_pre_def *tok_pre_find(struct str name)
{
    for (size_t i = 0; i < ARRAY_LEN(defs); i++)
        if (pre_has_name(&defs[i], name)) return &defs[i];
    return NULL;
}

struct str tok_pre_name(const struct tok_pre_def *def)
{
    return (struct str){def->names, strcspn(def->names, " ")};
}

/* One character of a regex; a line break may be written as itself or escaped. */
static char pre_next(struct str s, size_t *at)
{
    char c = s.p[(*at)++];
    if (c != '\\' || *at == s.n || (s.p[*at] != 'r' && s.p[*at] != 'n')) return c;
    return s.p[(*at)++] == 'r' ? '\r' : '\n';
}

static bool pre_same(struct str a, struct str b)
{
    size_t i = 0, j = 0;
    while (i < a.n && j < b.n)
        if (pre_next(a, &i) != pre_next(b, &j)) return false;
    return i == a.n && j == b.n;
}

const struct tok_pre_def *tok_pre_recognise(const struct str *regex, u32 n, bool ignore_merges)
{
    const struct tok_pre_def *found = NULL;
    for (size_t i = 0; i < ARRAY_LEN(defs); i++) {
        const char *const *list = defs[i].regex;
        u32 k = 0;
        while (k < n && list[k] && pre_same(regex[k], str_of(list[k]))) k++;
        if (k < n || list[k]) continue;
        if (defs[i].bos_and_whole == ignore_merges) return &defs[i];
        if (!found) found = &defs[i];
    }
    return found;
}

enum pre_op {
    PRE_SPLIT,
    PRE_PREFIX, /* text in front of a piece that doesn't begin with it */
    PRE_SPACES, /* text for each space */
    PRE_BYTES,  /* bytes become byte-level BPE's characters; undone at the end */
};

struct pre_step {
    enum pre_op op;
    struct tok_regex *re;
    enum tok_behavior behavior;
    bool invert;     /* what matches and what doesn't change places */
    bool first_only; /* PRE_PREFIX: at the beginning of the whole text */
    struct str text; /* PRE_PREFIX, PRE_SPACES; in arena */
};

struct tok_pre {
    u32 n;
    struct pre_step steps[TOK_PRE_STEPS];
    bool keeps; /* the pieces together are the text, so that one byte need not be split */
    bool byte_level;
    struct arena arena;
};

static int pre_add(struct tok_pre *pre, struct pre_step step, struct err *err)
{
    if (pre->n == TOK_PRE_STEPS) {
        tok_regex_close(step.re);
        return err_set(err, FLETCH_E_LIMIT, "more than %d steps of pre_tokenizers", TOK_PRE_STEPS);
    }
    if (step.op != PRE_SPLIT || step.behavior == TOK_REMOVED) pre->keeps = false;
    pre->steps[pre->n++] = step;
    return 0;
}

static int pre_add_split(struct tok_pre *pre, struct str regex, enum tok_behavior behavior,
                         bool invert, struct err *err)
{
    struct pre_step step = {.op = PRE_SPLIT, .behavior = behavior, .invert = invert};
    int rc = tok_regex_open(&step.re, regex, err);
    return rc ? rc : pre_add(pre, step, err);
}

static int pre_add_text(struct tok_pre *pre, enum pre_op op, struct str text, bool first_only,
                        struct err *err)
{
    struct pre_step step = {.op = op, .first_only = first_only};
    step.text = (struct str){arena_copy(&pre->arena, text), text.n};
    return step.text.p ? pre_add(pre, step, err) : err_nomem(err, "the pre-tokenizer");
}

int tok_pre_open(struct tok_pre **out, const struct tok_pre_def *def, struct err *err)
{
    int rc = 0;
    struct tok_pre *pre = *out = calloc(1, sizeof *pre);
    if (!pre) return err_nomem(err, "the pre-tokenizer");
    pre->keeps = pre->byte_level = true;
    for (u32 i = 0; rc == 0 && def->regex[i]; i++)
        rc = pre_add_split(pre, str_of(def->regex[i]), TOK_ISOLATED, false, err);
    if (rc) {
        tok_pre_close(pre);
        *out = NULL;
    }
    return rc;
}

void tok_pre_close(struct tok_pre *pre)
{
    if (!pre) return;
    for (u32 i = 0; i < pre->n; i++) tok_regex_close(pre->steps[i].re);
    arena_free(&pre->arena);
    free(pre);
}

bool tok_pre_is_byte_level(const struct tok_pre *pre)
{
    return pre->byte_level;
}

/* From tokenizer.json's pre_tokenizer */

/* Punctuation as the library counts it: Unicode's, and all of ASCII's. */
#define PUNCT "[\\p{P}$+<=>^`|~]"

bool tok_behavior_read(struct str name, enum tok_behavior *out)
{
    static const char *const names[] = {
        [TOK_ISOLATED] = "Isolated",        [TOK_REMOVED] = "Removed",
        [TOK_CONTIGUOUS] = "Contiguous",    [TOK_WITH_PREVIOUS] = "MergedWithPrevious",
        [TOK_WITH_NEXT] = "MergedWithNext",
    };
    for (u32 i = 0; i < ARRAY_LEN(names); i++)
        if (str_is(name, names[i])) {
            *out = (enum tok_behavior)i;
            return true;
        }
    return false;
}

/* A regex for a text as it stands. */
static int pre_add_literal(struct tok_pre *pre, struct str text, enum tok_behavior behavior,
                           bool invert, struct err *err)
{
    struct buf b = {0};
    tok_regex_quote(&b, text);
    int rc = b.failed ? err_nomem(err, "the pre-tokenizer")
                      : pre_add_split(pre, buf_str(&b), behavior, invert, err);
    buf_free(&b);
    return rc;
}

static int pre_read_split(struct tok_pre *pre, const json_t *v, struct err *err)
{
    const json_t *pattern = json_object_get(v, "pattern");
    struct str regex = tok_json_str(pattern, "Regex"), text = tok_json_str(pattern, "String");
    struct str name = tok_json_str(v, "behavior");
    bool invert = json_is_true(json_object_get(v, "invert"));
    enum tok_behavior behavior;
    if (!tok_behavior_read(name, &behavior))
        return err_set(err, FLETCH_E_UNSUPPORTED, "Split behavior %s is not supported",
                       QUOTE(name));
    if (regex.p) return pre_add_split(pre, regex, behavior, invert, err);
    if (text.p) return pre_add_literal(pre, text, behavior, invert, err);
    return err_set(err, FLETCH_E_FORMAT, "a Split has no pattern");
}

static int pre_read_metaspace(struct tok_pre *pre, const json_t *v, struct err *err)
{
    struct str scheme = tok_json_str(v, "prepend_scheme"), text = tok_json_str(v, "replacement");
    bool never = !tok_json_bool(v, "add_prefix_space", true) || str_is(scheme, "never");
    if (!text.n || utf8_check(text.p, text.n) != (int)text.n)
        return err_set(err, FLETCH_E_FORMAT, "Metaspace replacement %s is not one character",
                       QUOTE(text));
    if (scheme.p && !never && !str_is(scheme, "first") && !str_is(scheme, "always"))
        return err_set(err, FLETCH_E_UNSUPPORTED, "Metaspace prepend_scheme %s is not supported",
                       QUOTE(scheme));
    int rc = pre_add_text(pre, PRE_SPACES, text, false, err);
    if (rc == 0 && !never) rc = pre_add_text(pre, PRE_PREFIX, text, str_is(scheme, "first"), err);
    if (rc == 0 && tok_json_bool(v, "split", true))
        rc = pre_add_literal(pre, text, TOK_WITH_NEXT, false, err);
    return rc;
}

static int pre_read_byte_level(struct tok_pre *pre, const json_t *v, struct err *err)
{
    int rc = 0;
    if (pre->byte_level)
        return err_set(err, FLETCH_E_UNSUPPORTED, "a second ByteLevel is not supported");
    if (tok_json_bool(v, "add_prefix_space", true))
        rc = pre_add_text(pre, PRE_PREFIX, STR(" "), false, err);
    if (rc == 0 && tok_json_bool(v, "use_regex", true))
        rc = pre_add_split(pre, STR(TOK_PRE_GPT2), TOK_ISOLATED, false, err);
    if (rc == 0) rc = pre_add(pre, (struct pre_step){.op = PRE_BYTES}, err);
    pre->byte_level = true;
    return rc;
}

static int pre_read(struct tok_pre *pre, const json_t *v, struct err *err);

static int pre_read_sequence(struct tok_pre *pre, const json_t *v, struct err *err)
{
    const json_t *items = json_object_get(v, "pretokenizers");
    int rc = 0;
    for (size_t i = 0; i < json_array_size(items) && rc == 0; i++)
        rc = pre_read(pre, json_array_get(items, i), err);
    return rc;
}

static int pre_read(struct tok_pre *pre, const json_t *v, struct err *err)
{
    struct str type = tok_json_str(v, "type");
    enum tok_behavior behavior = TOK_ISOLATED;
    if (str_is(type, "Sequence")) return pre_read_sequence(pre, v, err);
    if (str_is(type, "Split")) return pre_read_split(pre, v, err);
    if (str_is(type, "ByteLevel")) return pre_read_byte_level(pre, v, err);
    if (str_is(type, "Metaspace")) return pre_read_metaspace(pre, v, err);
    if (str_is(type, "Digits"))
        return pre_add_split(pre, STR(TOK_PRE_DIGIT),
                             tok_json_bool(v, "individual_digits", false) ? TOK_ISOLATED
                                                                          : TOK_CONTIGUOUS,
                             false, err);
    if (str_is(type, "Punctuation")) {
        struct str name = tok_json_str(v, "behavior");
        if (name.p && !tok_behavior_read(name, &behavior))
            return err_set(err, FLETCH_E_UNSUPPORTED, "Punctuation behavior %s is not supported",
                           QUOTE(name));
        return pre_add_split(pre, STR(PUNCT), behavior, false, err);
    }
    /* Words here are those of Rust's regexes, not Oniguruma's. */
    if (str_is(type, "Whitespace"))
        return pre_add_split(pre,
                             STR("[\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\p{Join_Control}]+|"
                                 "[^\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\p{Join_Control}\\s]+"),
                             TOK_REMOVED, true, err);
    if (str_is(type, "WhitespaceSplit"))
        return pre_add_split(pre, STR("\\s"), TOK_REMOVED, false, err);
    if (str_is(type, "BertPreTokenizer")) {
        int rc = pre_add_split(pre, STR("\\s"), TOK_REMOVED, false, err);
        return rc ? rc : pre_add_split(pre, STR(PUNCT), TOK_ISOLATED, false, err);
    }
    if (str_is(type, "CharDelimiterSplit"))
        return pre_add_literal(pre, tok_json_str(v, "delimiter"), TOK_REMOVED, false, err);
    return err_set(err, FLETCH_E_UNSUPPORTED, "pre_tokenizer %s is not supported",
                   type.p ? QUOTE(type) : "without a type");
}

int tok_pre_open_json(struct tok_pre **out, const json_t *v, struct err *err)
{
    struct tok_pre *pre = *out = calloc(1, sizeof *pre);
    if (!pre) return err_nomem(err, "the pre-tokenizer");
    pre->keeps = true;
    int rc = !v || json_is_null(v) ? 0 : pre_read(pre, v, err);
    if (rc) {
        tok_pre_close(pre);
        *out = NULL;
    }
    return rc;
}

struct split {
    const struct tok_pre *pre;
    void *match;
    struct buf texts[TOK_PRE_STEPS + 1]; /* what a step made of its piece; the last: raw bytes */
    int (*sink)(void *ctx, struct str piece);
    void *ctx;
    struct err *err;
};

/* A piece on its way through the steps. */
struct part {
    struct str s;
    bool first;  /* it begins the whole text */
    bool mapped; /* PRE_BYTES was done */
};

static int split_step(struct split *sp, u32 k, struct part part);

static int split_emit(struct split *sp, struct part part)
{
    struct buf *raw = &sp->texts[TOK_PRE_STEPS];
    if (!part.mapped) return sp->sink(sp->ctx, part.s);
    raw->n = 0;
    tok_unmap_bytes(raw, part.s);
    return raw->failed ? err_nomem(sp->err, "text") : sp->sink(sp->ctx, buf_str(raw));
}

/* What lies between begin and end goes on to the next step. */
static int split_slice(struct split *sp, u32 k, struct part whole, size_t begin, size_t end)
{
    struct part part = whole;
    part.s = (struct str){whole.s.p + begin, end - begin};
    part.first = whole.first && begin == 0;
    return begin == end ? 0 : split_step(sp, k + 1, part);
}

/* A stretch of the piece: a match, or what lies between two. Pieces are made of one or more. */
struct stretch {
    size_t begin, end;
    bool is_match; /* of the last of them */
    bool some;
};

static bool split_joins(enum tok_behavior behavior, const struct stretch *held, bool is_match)
{
    switch (behavior) {
    case TOK_CONTIGUOUS: return held->is_match == is_match;
    case TOK_WITH_PREVIOUS: return is_match && !held->is_match;
    case TOK_WITH_NEXT: return !is_match && held->is_match;
    default: return false;
    }
}

static int split_put(struct split *sp, u32 k, struct part whole, struct stretch *held, size_t end,
                     bool is_match)
{
    const struct pre_step *step = &sp->pre->steps[k];
    size_t begin = held->end;
    int rc = 0;
    is_match ^= step->invert;
    if (held->some && split_joins(step->behavior, held, is_match)) {
        held->end = end;
        held->is_match = is_match;
        return 0;
    }
    if (!(step->behavior == TOK_REMOVED && held->is_match))
        rc = split_slice(sp, k, whole, held->begin, held->end);
    *held = (struct stretch){begin, end, is_match, true};
    return rc;
}

/* Cuts a piece into matches and the gaps between them. */
static int split_by(struct split *sp, u32 k, struct part whole)
{
    const struct pre_step *step = &sp->pre->steps[k];
    struct tok_regex_iter it = {.re = step->re, .match = sp->match, .text = whole.s};
    struct stretch held = {0};
    int rc;
    while ((rc = tok_regex_next(&it, sp->err)) > 0) {
        size_t begin = it.begin, end = it.end; /* the next steps use the same match */
        rc = begin > held.end ? split_put(sp, k, whole, &held, begin, false) : 0;
        if (rc == 0) rc = split_put(sp, k, whole, &held, end, true);
        if (rc) return rc;
    }
    if (rc == 0 && held.end < whole.s.n) rc = split_put(sp, k, whole, &held, whole.s.n, false);
    if (rc == 0 && !(step->behavior == TOK_REMOVED && held.is_match))
        rc = split_slice(sp, k, whole, held.begin, held.end);
    return rc;
}

static void put_spaced(struct buf *out, struct str s, struct str space)
{
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] == ' ')
            buf_put(out, space.p, space.n);
        else
            buf_putc(out, s.p[i]);
    }
}

static int split_step(struct split *sp, u32 k, struct part part)
{
    const struct tok_pre *pre = sp->pre;
    if (k == pre->n || (pre->keeps && part.s.n == 1)) return split_emit(sp, part);
    const struct pre_step *step = &pre->steps[k];
    if (step->op == PRE_SPLIT) return split_by(sp, k, part);
    struct buf *text = &sp->texts[k];
    text->n = 0;
    if (step->op == PRE_BYTES) {
        if (k + 1 == pre->n) return split_emit(sp, part); /* it would be undone at once */
        tok_map_bytes(text, part.s);
        part.mapped = true;
    } else if (step->op == PRE_SPACES) {
        put_spaced(text, part.s, step->text);
    } else {
        struct str begin = {part.s.p, MIN(part.s.n, step->text.n)};
        if (!str_eq(begin, step->text) && (part.first || !step->first_only))
            buf_put(text, step->text.p, step->text.n);
        buf_put(text, part.s.p, part.s.n);
    }
    if (text->failed) return err_nomem(sp->err, "text");
    part.s = buf_str(text);
    return split_step(sp, k + 1, part);
}

int tok_pre_split(const struct tok_pre *pre, struct str text, bool first,
                  int (*sink)(void *ctx, struct str piece), void *ctx, struct err *err)
{
    struct split sp = {
        .pre = pre, .match = tok_regex_match(), .sink = sink, .ctx = ctx, .err = err};
    int rc = sp.match ? 0 : err_nomem(err, "text");
    for (size_t at = 0; at < text.n && rc == 0;) {
        size_t end = utf8_run(text, at);
        struct part part = {.s = {text.p + at, end - at}, .first = first && at == 0};
        if (end > at) rc = split_step(&sp, 0, part);
        for (at = end; at < text.n && utf8_check(text.p + at, text.n - at) <= 0;) at++;
        if (at > end && rc == 0) rc = sink(ctx, (struct str){text.p + end, at - end});
    }
    tok_regex_match_free(sp.match);
    for (size_t i = 0; i < ARRAY_LEN(sp.texts); i++) buf_free(&sp.texts[i]);
    return rc;
}
