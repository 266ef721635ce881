#include "serve/trie.h"

#include <stdlib.h>
#include <string.h>

struct entry {
    struct str bytes;
    i32 id;
};

static int by_bytes(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    int c = memcmp(x->bytes.p, y->bytes.p, MIN(x->bytes.n, y->bytes.n));
    if (c) return c;
    if (x->bytes.n != y->bytes.n) return x->bytes.n < y->bytes.n ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

static size_t shared(struct str a, struct str b)
{
    size_t n = 0;
    while (n < a.n && n < b.n && a.p[n] == b.p[n]) n++;
    return n;
}

/* Sorted entries come in the order of the nodes they end at. */
static void lay_out(struct trie *t, const struct entry *entries)
{
    u32 path[TRIE_MAX_BYTES + 1]; /* node of each depth */
    size_t depth = 0;
    for (u32 i = 0; i < t->n_ids; i++) {
        struct str s = entries[i].bytes;
        size_t common = i ? shared(entries[i - 1].bytes, s) : 0;
        for (; depth > common; depth--) t->nodes[path[depth]].skip = t->n_nodes;
        for (; depth < s.n; depth++) {
            path[depth + 1] = t->n_nodes;
            t->nodes[t->n_nodes++] = (struct trie_node){0, i, (u16)(depth + 1), (u8)s.p[depth]};
        }
        t->ids[i] = entries[i].id;
    }
    for (; depth > 0; depth--) t->nodes[path[depth]].skip = t->n_nodes;
    t->nodes[t->n_nodes].first = t->n_ids;
}

int trie_open(struct trie **out, const struct str *pieces, u32 n_tokens, const i32 *ends,
              u32 n_ends, struct err *err)
{
    struct trie *t = *out = calloc(1, sizeof *t);
    struct entry *entries = calloc((size_t)n_tokens + 1, sizeof *entries);
    size_t n_bytes = 0;
    if (!t || !entries) goto fail;
    t->pieces = pieces;
    t->n_tokens = n_tokens;
    t->ends = ends;
    t->n_ends = n_ends;
    for (u32 i = 0; i < n_tokens; i++) {
        if (!pieces[i].n || pieces[i].n > TRIE_MAX_BYTES) continue;
        entries[t->n_ids++] = (struct entry){pieces[i], (i32)i};
        n_bytes += pieces[i].n;
    }
    qsort(entries, t->n_ids, sizeof *entries, by_bytes);
    t->ids = calloc((size_t)t->n_ids + 1, sizeof *t->ids);
    t->nodes = calloc(n_bytes + 1, sizeof *t->nodes);
    if (!t->ids || !t->nodes) goto fail;
    lay_out(t, entries);
    struct trie_node *fit = realloc(t->nodes, ((size_t)t->n_nodes + 1) * sizeof *fit);
    if (fit) t->nodes = fit;
    free(entries);
    return 0;
fail:
    free(entries);
    trie_close(t);
    *out = NULL;
    return err_nomem(err, "the tree of tokens");
}

void trie_close(struct trie *t)
{
    if (!t) return;
    free(t->nodes);
    free(t->ids);
    free(t);
}

i32 trie_longest(const struct trie *t, struct str text, u32 *n)
{
    u32 i = 0, depth = 1;
    i32 best = -1;
    *n = 0;
    while (depth <= text.n && i < t->n_nodes && t->nodes[i].depth == depth) {
        const struct trie_node *node = &t->nodes[i];
        if (node->byte != (u8)text.p[depth - 1]) {
            i = node->skip;
            continue;
        }
        if (node->first < t->nodes[i + 1].first) {
            best = t->ids[node->first];
            *n = depth;
        }
        i++;
        depth++;
    }
    return best;
}
