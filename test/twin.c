#include "twin.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "harness.h"

static void must(int rc, const struct err *err)
{
    if (rc) fail_msg("%s", err->text);
}

static bool matches_one(struct str pattern, struct str name)
{
    const char *star = memchr(pattern.p, '*', pattern.n);
    if (!star) return str_eq(name, pattern);
    size_t head = (size_t)(star - pattern.p), tail = pattern.n - head - 1;
    return name.n >= head + tail && memcmp(name.p, pattern.p, head) == 0 &&
           memcmp(name.p + name.n - tail, star + 1, tail) == 0;
}

bool twin_matches(const char *pattern, struct str name)
{
    for (;; pattern++) {
        struct str one = {pattern, strcspn(pattern, "|")};
        if (matches_one(one, name)) return true;
        pattern += one.n;
        if (!*pattern) return false;
    }
}

void twin_open(struct twin *t, const char *name, const char *without)
{
    struct golden g;
    struct err err = {0};
    golden_open(&g, name);
    must(source_open(&t->from, g.model, &err), &err);
    must(source_new(&t->to, name, &err), &err);
    golden_close(&g);
    for (u32 i = 0; i < t->from->n_kvs; i++)
        if (!twin_matches(without, t->from->kvs[i].key))
            must(source_add_kv(t->to, &t->from->kvs[i], &err), &err);
    for (u32 i = 0; i < t->from->n_tensors; i++) {
        struct tensor copy = t->from->tensors[i];
        if (twin_matches(without, copy.name)) continue;
        must(source_data(t->from, &t->from->tensors[i], &copy.data, &err), &err);
        copy.recipe = NULL;
        must(source_add_tensor(t->to, &copy, &err), &err);
    }
    if (!source_kv(t->to, "tokenizer.ggml.model"))
        must(source_add_str(t->to, "tokenizer.ggml.model", STR("none"), &err), &err);
}

void twin_close(struct twin *t)
{
    source_close(t->to);
    source_close(t->from);
}

struct source *twin_take(struct twin *t)
{
    struct source *s = t->to;
    t->to = NULL;
    return s;
}

void twin_add(struct twin *t, const char *name, enum qtype type, u64 ne0, u64 ne1, u64 ne2,
              const void *data)
{
    struct err err = {0};
    struct tensor new = {.name = str_of(arena_copy(&t->to->arena, str_of(name))),
                         .type = type,
                         .n_dims = 3,
                         .ne = {ne0, ne1, ne2, 1},
                         .data = data};
    must(source_add_tensor(t->to, &new, &err), &err);
}

void twin_join(struct twin *t, const char *name, const char *const *names, u32 n)
{
    struct err err = {0};
    const struct tensor *parts[8] = {NULL};
    const u8 *data[8];
    u64 n_bytes = 0, rows = 0, at = 0;
    assert_true(n >= 1 && n <= 8);
    for (u32 i = 0; i < n; i++) {
        parts[i] = source_tensor(t->from, names[i]);
        assert_non_null(parts[i]);
        assert_true(parts[i]->type == parts[0]->type && parts[i]->ne[2] == parts[0]->ne[2]);
        must(source_data(t->from, parts[i], &data[i], &err), &err);
        n_bytes += parts[i]->n_bytes;
        rows += parts[i]->n_dims == 1 ? parts[i]->ne[0] : parts[i]->ne[1];
    }
    u8 *joined = arena_alloc(&t->to->arena, n_bytes, 1);
    assert_non_null(joined);
    for (u64 slice = 0; slice < parts[0]->ne[2]; slice++)
        for (u32 i = 0; i < n; i++) {
            u64 bytes = parts[i]->n_bytes / parts[0]->ne[2];
            memcpy(joined + at, data[i] + slice * bytes, bytes);
            at += bytes;
        }
    if (parts[0]->n_dims == 1)
        twin_add(t, name, parts[0]->type, rows, 1, 1, joined);
    else
        twin_add(t, name, parts[0]->type, parts[0]->ne[0], rows, parts[0]->ne[2], joined);
}
