#include "text/tok_charsmap.h"

#include <string.h>

static u32 charsmap_u32(const u8 *p)
{
    return (u32)p[0] | (u32)p[1] << 8 | (u32)p[2] << 16 | (u32)p[3] << 24;
}

int tok_charsmap_open(struct tok_charsmap *m, struct str blob, struct err *err)
{
    const u8 *p = (const u8 *)blob.p;
    *m = (struct tok_charsmap){0};
    if (blob.n == 0) return 0;
    u32 n = blob.n >= 4 ? charsmap_u32(p) : 0;
    if (n < 4 || n % 4 || n > blob.n - 4 || n == blob.n - 4 || blob.p[blob.n - 1] != 0)
        return err_set(err, FLETCH_E_FORMAT,
                       "the precompiled map of characters (%zu bytes) is damaged", blob.n);
    m->units = p + 4;
    m->n_units = n / 4;
    m->texts = (struct str){blob.p + 4 + n, blob.n - 4 - n};
    return 0;
}

/* A unit: bit 8 tells that a word ends at this node, bits 10 to 30 (shifted by 8 more where bit 9
 * is set) lead to its children, bits 0 to 7 and 31 are its label; the unit of a word's end holds
 * the offset of its text in bits 0 to 30. */
static u32 unit_children(u32 unit)
{
    return (unit >> 10) << ((unit & 1u << 9) >> 6);
}

size_t tok_charsmap_find(const struct tok_charsmap *m, struct str s, enum tok_match which,
                         struct str *out)
{
    size_t found = 0;
    if (!m->n_units) return 0;
    u32 node = unit_children(charsmap_u32(m->units));
    for (size_t i = 0; i < s.n; i++) {
        node ^= (u8)s.p[i];
        if (node >= m->n_units) break;
        u32 unit = charsmap_u32(m->units + (size_t)node * 4);
        if ((unit & (1u << 31 | 0xff)) != (u8)s.p[i]) break;
        node ^= unit_children(unit);
        if (node >= m->n_units) break;
        if (!(unit >> 8 & 1)) continue;
        u32 at = charsmap_u32(m->units + (size_t)node * 4) & 0x7fffffff;
        if (at >= m->texts.n) break;
        *out = (struct str){m->texts.p + at, strlen(m->texts.p + at)};
        found = i + 1;
        if (which == TOK_SHORTEST) break;
    }
    return found;
}
