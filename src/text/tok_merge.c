/* Merging: start from single symbols, join the best adjacent pair until none is left. SPM and BPE
 * differ only in what a symbol is at first (a character, a byte) and what makes a pair good (the
 * score of its text, the rank of its merge). A heap keeps this n log n: a piece may be the whole
 * text. */
#include "text/tok_internal.h"

#include <stdlib.h>

#include "text/unicode.h"

enum { MERGE_WINDOW = 65536 }; /* bytes merged at once: 3 MB of symbols and pairs */

/* A symbol lives at the offset of its first byte; the next one is at offset + n. */
struct merge_sym {
    u32 n;      /* bytes; 0: swallowed by the one before */
    u32 prev;   /* offset; of no use at 0 */
    i32 id;     /* -1: no token */
    bool whole; /* a user-defined symbol: never merged */
};

struct merge_pair {
    u64 key; /* priority << 32 | offset of the left symbol: ties go to the left */
    u32 n;   /* bytes of both; a left symbol only grows, so another n means the pair is gone */
    i32 id;
};

void tok_merger_free(struct tok_merger *m)
{
    free(m->syms);
    free(m->heap);
    free(m->lens);
    free(m->scores);
    *m = (struct tok_merger){0};
}

/* At least need elements at p, or NULL. */
static void *merger_grow(void *p, size_t *cap, size_t need, size_t size)
{
    size_t bytes, n = MAX(need, *cap * 2);
    if (p && need <= *cap) return p;
    p = CK_MUL(n, size, &bytes) ? realloc(p, MAX(bytes, (size_t)1024)) : NULL;
    if (p) *cap = n;
    return p;
}

struct merge {
    const struct tok *t;
    struct str text;
    struct merge_sym *syms;
    struct merge_pair *heap;
    size_t n_heap;
};

static void heap_push(struct merge *m, struct merge_pair x)
{
    size_t i = m->n_heap++;
    while (i && m->heap[(i - 1) / 2].key > x.key) {
        m->heap[i] = m->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    m->heap[i] = x;
}

static struct merge_pair heap_pop(struct merge *m)
{
    struct merge_pair top = m->heap[0], x = m->heap[--m->n_heap];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < m->n_heap; i = child) {
        if (child + 1 < m->n_heap && m->heap[child + 1].key < m->heap[child].key) child++;
        if (x.key <= m->heap[child].key) break;
        m->heap[i] = m->heap[child];
    }
    m->heap[i] = x;
    return top;
}

/* Queues the pair of the symbol at left and its neighbour, if they make a token. */
static void merge_queue(struct merge *m, size_t left)
{
    const struct tok *t = m->t;
    const struct merge_sym *a = &m->syms[left];
    size_t right = left + a->n;
    if (right >= m->text.n) return;
    const struct merge_sym *b = &m->syms[right];
    if (a->whole || b->whole) return;
    u32 n = a->n + b->n;
    u64 found;
    if (t->priorities) {
        i32 id = tok_find_mergeable(t, (struct str){m->text.p + left, n});
        if (id < 0 || t->priorities[id] == UINT32_MAX) return;
        found = (u64)t->priorities[id] << 32 | (u32)id;
    } else {
        if (a->id < 0 || b->id < 0) return;
        if (!pairmap_get(&t->merges, (u64)a->id << 32 | (u32)b->id, &found)) return;
    }
    u64 key = (found & 0xffffffff00000000u) | (u32)left;
    heap_push(m, (struct merge_pair){key, n, (i32)(u32)found});
}

static void merge_all(struct merge *m)
{
    struct merge_sym *syms = m->syms;
    for (size_t i = 0; i < m->text.n; i += syms[i].n) merge_queue(m, i);
    while (m->n_heap) {
        struct merge_pair top = heap_pop(m);
        size_t left = (u32)top.key, right = left + syms[left].n;
        if (!syms[left].n || right >= m->text.n || syms[left].n + syms[right].n != top.n) continue;
        syms[right].n = 0;
        syms[left].n = top.n;
        syms[left].id = top.id;
        size_t next = left + top.n;
        if (next < m->text.n) syms[next].prev = (u32)left;
        if (left) merge_queue(m, syms[left].prev);
        merge_queue(m, left);
    }
}

/* A symbol that is no token goes byte by byte; without byte tokens it is unknown as a whole. */
int tok_emit(const struct tok *t, struct str s, i32 id, struct tok_ids *ids, size_t first,
             struct err *err)
{
    if (id >= 0) return tok_push(ids, id, err);
    size_t k = 0;
    while (k < s.n && t->bytes[(u8)s.p[k]] >= 0) k++;
    if (k == s.n) {
        int rc = 0;
        for (k = 0; k < s.n && rc == 0; k++) rc = tok_push(ids, t->bytes[(u8)s.p[k]], err);
        return rc;
    }
    i32 unk = (i32)t->spec.unk;
    if (unk < 0 || tok_type(t, unk) != TOK_UNKNOWN) /* some name a control token: not for text */
        return err_set(err, FLETCH_E_ARG, "the vocabulary has no token for %s in the text",
                       QUOTE(s));
    /* A run of unknown characters counts as one. */
    if (t->spec.fuse_unk && ids->n > first && ids->p[ids->n - 1] == unk) return 0;
    return tok_push(ids, unk, err);
}

/* The longest user-defined symbol that s begins with: its length, or 0. */
static u32 merge_symbol(const struct tok *t, struct str s, i32 *id)
{
    u32 node = 0, n = 0;
    if (!t->spec.n_symbols) return 0;
    for (size_t i = 0; i < s.n && (node = trie_step(&t->symbols, node, s.p[i])); i++)
        if (t->symbols.ids[node] >= 0) {
            *id = t->symbols.ids[node];
            n = (u32)i + 1;
        }
    return n;
}

/* Makes symbols of the text and merges them all: mem->syms then has the tokens. */
static int merge_text(const struct tok *t, struct tok_merger *mem, struct str text, struct err *err)
{
    bool by_char = t->spec.kind == TOK_SPM;
    size_t n_syms = 0, prev = 0;
    struct merge_sym *syms = merger_grow(mem->syms, &mem->cap_syms, text.n, sizeof *syms);
    if (!syms) return err_nomem(err, "tokens");
    mem->syms = syms;
    for (size_t i = 0; i < text.n; n_syms++) {
        int len = by_char ? utf8_check(text.p + i, text.n - i) : 1;
        u32 n = len > 0 ? (u32)len : 1;
        i32 id =
            by_char ? tok_find_mergeable(t, (struct str){text.p + i, n}) : t->bytes[(u8)text.p[i]];
        u32 symbol = merge_symbol(t, (struct str){text.p + i, text.n - i}, &id);
        if (symbol) n = symbol;
        syms[i] = (struct merge_sym){n, (u32)prev, id, symbol > 0};
        prev = i;
        i += n;
    }
    /* At most one pair per symbol at first; each merge takes one off and queues two. */
    struct merge_pair *heap = merger_grow(mem->heap, &mem->cap_heap, 2 * n_syms, sizeof *heap);
    if (!heap) return err_nomem(err, "tokens");
    mem->heap = heap;
    merge_all(&(struct merge){t, text, syms, heap, 0});
    return 0;
}

/* Where the last quarter of a window begins, at the end of a token. */
static size_t merge_seam(const struct merge_sym *syms, size_t n)
{
    size_t at = 0;
    while (at < n - n / 4) at += syms[at].n;
    return at;
}

/* A piece may be the whole text, so it is merged window by window, which bounds the memory. Each
 * window begins at the seam of the one before, and both must see the same token after the seam.
 * Then the result is that of the whole piece: what is merged inside two neighbouring tokens depends
 * on these two alone, as long as no merge crosses their ends, so the first merge to cross one would
 * have crossed it in one of the windows too. Where they disagree, it begins again with larger
 * windows, up to the whole piece. */
int tok_merge_windows(const struct tok *t, struct tok_merger *mem, struct str piece, size_t window,
                      struct tok_ids *ids, struct err *err)
{
    size_t first = ids->n, done = 0;
    u32 n_after = 0; /* bytes of the token that the last window saw after its seam; 0: none */
    if (piece.n >= UINT32_MAX)
        return err_set(err, FLETCH_E_LIMIT, "text of %zu bytes after normalisation", piece.n);
    while (done < piece.n) {
        struct str text = {piece.p + done, MIN(window, piece.n - done)};
        bool last = done + text.n == piece.n;
        int rc = merge_text(t, mem, text, err);
        if (rc) return rc;
        const struct merge_sym *syms = mem->syms;
        size_t end = last ? text.n : merge_seam(syms, text.n);
        if ((n_after && syms[0].n != n_after) || (!last && end == text.n)) {
            ids->n = first;
            done = n_after = 0;
            window *= 2;
            continue;
        }
        for (size_t i = 0; i < end && rc == 0; i += syms[i].n)
            rc = tok_emit(t, (struct str){text.p + i, syms[i].n}, syms[i].id, ids, first, err);
        if (rc) return rc;
        n_after = last ? 0 : syms[end].n;
        done += end;
    }
    return 0;
}

int tok_merge(const struct tok *t, struct tok_merger *mem, struct str piece, struct tok_ids *ids,
              struct err *err)
{
    return tok_merge_windows(t, mem, piece, MERGE_WINDOW, ids, err);
}
