/* The regexes are written as their authors published them, so that a tokenizer.json can be compared
 * with them; pre_translate then says in PCRE2's words what they mean:
 *   \s   is Unicode's White_Space, which PCRE2's is not (U+0085 is missing there)
 *   (?i: of contractions folds ASCII only ('ſ is not 's)
 * Nothing in them may look behind or match emptiness. */
#include "text/tok_pre.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "text/unicode.h"

/* Enough for any text within tok_encode's limit; what runs past them is an error, not a hang. */
enum { MATCH_LIMIT = 1 << 30, DEPTH_LIMIT = 1 << 20 };

#define CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define BLANKS      "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define CL100K(digits) \
    CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" BLANKS
#define QWEN35                                                    \
    CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| " \
                "?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" BLANKS
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED(tail, digits)                                                                     \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" tail "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER \
    "*" tail "|" digits "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" BLANKS
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
#define TAIL_BLANKS "\\s+$"

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
    {"gpt-4o llama4", {CASED(CONTRACTION "?", "\\p{N}{1,3}")}, false},
    {"deepseek-v3", {"\\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", DS_V3}, false},
    {"deepseek-coder", {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", DS_CJK, TOK_PRE_DIGIT}, false},
    {"deepseek-llm",
     {"[\\r\\n]", "\\s?[" DS_LETTERS "]+", "\\s?[" DS_PUNCT "]+", TAIL_BLANKS, DS_CJK,
      TOK_PRE_DIGITS},
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

#define WHITE                                                                               \
    "\\x09-\\x0d\\x20\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}" \
    "\\x{205f}\\x{3000}"

static void pre_translate(struct buf *out, const char *regex)
{
    bool in_class = false;
    if (!strcmp(regex, TAIL_BLANKS)) {
        /* As it stands this retries at every blank of a run: quadratic. */
        buf_puts(out, "(?<![" WHITE "])[" WHITE "]++$");
        return;
    }
    for (const char *p = regex; *p; p++) {
        if (!strncmp(p, CONTRACTION, sizeof CONTRACTION - 1)) {
            buf_puts(out, "(?:'(?:[sStTmMdD]|[rRvV][eE]|[lL][lL]))");
            p += sizeof CONTRACTION - 2;
        } else if (*p == '\\' && (p[1] == 's' || p[1] == 'S')) {
            buf_puts(out, in_class ? WHITE : *++p == 's' ? "[" WHITE "]" : "[^" WHITE "]");
            if (in_class) p++;
        } else {
            if (*p == '[') in_class = true;
            if (*p == ']') in_class = false;
            buf_putc(out, *p);
            if (*p == '\\') buf_putc(out, *++p);
        }
    }
}

struct tok_pre {
    u32 n;
    pcre2_code *code[TOK_PRE_MAX];
    pcre2_match_context *limits;
};

static int pre_compile(pcre2_code **out, const char *regex, struct err *err)
{
    struct buf b = {0};
    int code = 0, rc = 0;
    size_t at = 0;
    pre_translate(&b, regex);
    if (b.failed) return err_nomem(err, "the pre-tokenizer");
    *out = pcre2_compile((PCRE2_SPTR)b.p, b.n, PCRE2_UTF | PCRE2_UCP | PCRE2_DOLLAR_ENDONLY, &code,
                         &at, NULL);
    /* Where there is no JIT the interpreter gives the same answer. */
    if (*out)
        pcre2_jit_compile(*out, PCRE2_JIT_COMPLETE);
    else
        rc = err_set(err, FLETCH_E_INTERNAL, "pre-tokenizer %s: PCRE2 error %d at %zu",
                     QUOTE(str_of(regex)), code, at);
    buf_free(&b);
    return rc;
}

int tok_pre_open(struct tok_pre **out, const struct tok_pre_def *def, struct err *err)
{
    int rc = 0;
    struct tok_pre *pre = *out = calloc(1, sizeof *pre);
    if (!pre) return err_nomem(err, "the pre-tokenizer");
    for (; rc == 0 && def->regex[pre->n]; pre->n++)
        rc = pre_compile(&pre->code[pre->n], def->regex[pre->n], err);
    if (rc == 0 && !(pre->limits = pcre2_match_context_create(NULL)))
        rc = err_nomem(err, "the pre-tokenizer");
    if (rc) {
        tok_pre_close(pre);
        *out = NULL;
        return rc;
    }
    pcre2_set_match_limit(pre->limits, MATCH_LIMIT);
    pcre2_set_depth_limit(pre->limits, DEPTH_LIMIT);
    return 0;
}

void tok_pre_close(struct tok_pre *pre)
{
    if (!pre) return;
    for (u32 i = 0; i < TOK_PRE_MAX; i++) pcre2_code_free(pre->code[i]);
    pcre2_match_context_free(pre->limits);
    free(pre);
}

struct split {
    const struct tok_pre *pre;
    pcre2_match_data *match[TOK_PRE_MAX]; /* one for each level of the recursion */
    int (*sink)(void *ctx, struct str piece);
    void *ctx;
    struct err *err;
};

/* Cuts s by regex k into matches and the gaps between them, and those by the next regexes. */
static int split_by(struct split *sp, u32 k, struct str s)
{
    if (k == sp->pre->n || s.n == 1) return s.n ? sp->sink(sp->ctx, s) : 0;
    size_t *span = pcre2_get_ovector_pointer(sp->match[k]);
    for (size_t at = 0; at < s.n;) {
        int rc = pcre2_match(sp->pre->code[k], (PCRE2_SPTR)s.p, s.n, at, PCRE2_NO_UTF_CHECK,
                             sp->match[k], sp->pre->limits);
        if (rc < 0 && rc != PCRE2_ERROR_NOMATCH)
            return err_set(sp->err, FLETCH_E_LIMIT,
                           "the pre-tokenizer gave up on this text (PCRE2 error %d)", rc);
        size_t begin = rc < 0 ? s.n : span[0], end = rc < 0 ? s.n : span[1];
        CHECK(rc < 0 || end > begin);
        rc = split_by(sp, k + 1, (struct str){s.p + at, begin - at});
        if (rc == 0) rc = split_by(sp, k + 1, (struct str){s.p + begin, end - begin});
        if (rc) return rc;
        at = end;
    }
    return 0;
}

int tok_pre_split(const struct tok_pre *pre, struct str text,
                  int (*sink)(void *ctx, struct str piece), void *ctx, struct err *err)
{
    struct split sp = {.pre = pre, .sink = sink, .ctx = ctx, .err = err};
    int rc = 0;
    for (u32 k = 0; k < pre->n && rc == 0; k++)
        if (!(sp.match[k] = pcre2_match_data_create(1, NULL))) rc = err_nomem(err, "text");
    for (size_t at = 0; at < text.n && rc == 0;) {
        size_t end = utf8_run(text, at);
        rc = split_by(&sp, 0, (struct str){text.p + at, end - at});
        for (at = end; at < text.n && utf8_check(text.p + at, text.n - at) <= 0;) at++;
        if (at > end && rc == 0) rc = sink(ctx, (struct str){text.p + end, at - end});
    }
    for (u32 k = 0; k < pre->n; k++) pcre2_match_data_free(sp.match[k]);
    return rc;
}
