#include "harness.h"

#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "format/json.h"
#include "ref/ref.h"

static void must(int rc, const struct err *err)
{
    if (rc) fail_msg("%s", err->text);
}

void harness_open(struct harness *h, const char *path, struct harness_options o)
{
    struct err err = {0};
    struct source *s;
    must(source_open(&s, path, &err), &err);
    harness_open_source(h, s, o);
}

void harness_open_source(struct harness *h, struct source *s, struct harness_options o)
{
    struct err err = {0};
    memset(h, 0, sizeof *h);
    must(model_open(&h->m, s, (struct profile){.kv = o.kv}, &err), &err);
    u32 n_slots = o.n_slots ? o.n_slots : 1, per_slot = 8;
    h->limits = (struct exec_limits){.max_rows = 128,
                                     .max_out = 128,
                                     .n_slots = n_slots,
                                     .n_blocks = n_slots * per_slot,
                                     .block_tokens = 16,
                                     .max_pos = 16 * per_slot};
    must(prog_group(&h->p, h->m->trunk, NULL, 0, &err), &err);
    must(step_open(&h->s, h->m->net, &h->limits, &err), &err);
    must(
        ref_exec.open(&h->x, &ref_exec, h->m->net, &h->limits, o.n_threads ? o.n_threads : 1, &err),
        &err);
    must(model_place(h->m, h->x, NULL, NULL, &err), &err);
    must(ref_exec.load(h->x, h->p, &h->h_trunk, &err), &err);
    if (h->m->mtp) must(ref_exec.load(h->x, h->m->mtp, &h->h_mtp, &err), &err);
    for (u32 slot = 0; slot < n_slots; slot++)
        for (u32 i = 0; i < per_slot; i++)
            h->s->tables[slot * h->s->table_len + i] =
                o.in_order ? slot * per_slot + i : (per_slot - 1 - i) * n_slots + slot;
    step_reset(h->s);
}

void harness_close(struct harness *h)
{
    ref_exec.close(h->x);
    step_close(h->s);
    prog_close(h->p);
    model_close(h->m);
}

void harness_row(struct harness *h, i32 token, u32 slot, u32 pos)
{
    if (pos == 0) assert_true(step_edit(h->s, EDIT_ZERO_STATE, slot, 0));
    assert_true(step_add(h->s, (struct row){token, slot, pos, ROW_P}, true));
}

void harness_run(struct harness *h, float *logits)
{
    struct err err = {0};
    step_prepare(h->s);
    must(ref_exec.submit(h->x, h->h_trunk, h->s, &err), &err);
    must(ref_exec.wait(h->x, &err), &err);
    struct operand what = {h->p->logits, 0, h->m->hp.n_vocab};
    if (logits) must(ref_exec.read(h->x, h->h_trunk, what, 0, h->s->n_rows, logits, &err), &err);
    step_reset(h->s);
}

void harness_feed(struct harness *h, const i32 *tokens, u32 n, u32 chunk, float *logits)
{
    for (u32 i = 0; i < n; i += chunk) {
        u32 end = MIN(n, i + chunk);
        for (u32 j = i; j < end; j++) harness_row(h, tokens[j], 0, j);
        harness_run(h, logits + (size_t)i * h->m->hp.n_vocab);
    }
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

char **golden_list(void)
{
    size_t n = 0;
    char **names = calloc(GOLDEN_MAX + 1, sizeof *names);
    DIR *d = opendir(GOLDEN_DIR);
    assert_non_null(names);
    assert_non_null(d); /* tests run from the root of the repository */
    for (struct dirent *e; (e = readdir(d));) {
        if (e->d_name[0] == '.') continue;
        assert_true(n < GOLDEN_MAX);
        names[n++] = strdup(e->d_name);
    }
    closedir(d);
    assert_true(n > 0);
    qsort(names, n, sizeof *names, by_name);
    return names;
}

void golden_list_free(char **names)
{
    for (char **p = names; *p; p++) free(*p);
    free(names);
}

void golden_open(struct golden *g, const char *name)
{
    char path[600];
    struct err err = {0};
    snprintf(g->dir, sizeof g->dir, "%s/%s", GOLDEN_DIR, name);
    snprintf(g->model, sizeof g->model, "%s/model.gguf", g->dir);
    if (!file_exists(g->model)) snprintf(g->model, sizeof g->model, "%s", g->dir);
    snprintf(path, sizeof path, "%s/golden.json", g->dir);
    must(json_read(&g->doc, path, 1 << 20, &err), &err);
    json_t *tokens = json_object_get(g->doc, "tokens");
    assert_int_equal(json_array_size(tokens), 64);
    for (u32 i = 0; i < 64; i++) g->tokens[i] = (i32)json_integer_value(json_array_get(tokens, i));
    g->n_vocab = (u32)json_integer_value(json_object_get(g->doc, "n_vocab"));
    g->n_embd = (u32)json_integer_value(json_object_get(g->doc, "n_embd"));
    g->n_layer = (u32)json_integer_value(json_object_get(g->doc, "n_layer"));
}

void golden_close(struct golden *g)
{
    json_decref(g->doc);
}

float *golden_array(const struct golden *g, const char *what, size_t *n)
{
    char path[600], *data;
    size_t bytes;
    struct err err = {0};
    json_t *file = json_object_get(json_object_get(g->doc, "files"), what);
    if (!file) return NULL;
    snprintf(path, sizeof path, "%s/%s", g->dir, json_string_value(json_object_get(file, "path")));
    must(file_read(&data, &bytes, path, 1 << 24, &err), &err);
    *n = bytes / sizeof(float);
    return (float *)(void *)data;
}

double range_error(const float *a, const float *b, size_t n)
{
    double lo = INFINITY, hi = -INFINITY, worst = 0;
    for (size_t i = 0; i < n; i++) {
        double d = fabs((double)a[i] - (double)b[i]);
        lo = fmin(lo, (double)b[i]);
        hi = fmax(hi, (double)b[i]);
        if (!(d <= worst)) worst = d; /* NaN counts as worst */
    }
    return worst / (hi - lo);
}

/* Columns of an operand: all marked with its buffer, or being marked; those inside a group have no
 * place. */
static void mark(const struct program *p, u32 *owner[2], struct operand o, bool write)
{
    const struct buffer *b = &p->bufs[o.buf];
    if (b->inside) return;
    assert_true(o.col + o.width <= b->width && b->place + b->width <= p->n_cols[b->rows]);
    for (u64 i = b->place + o.col; i < b->place + o.col + o.width; i++) {
        if (write) owner[b->rows][i] = o.buf;
        assert_int_equal(owner[b->rows][i], o.buf);
    }
}

void assert_placed(const struct program *p)
{
    u32 *owner[2];
    for (u32 r = 0; r < 2; r++) {
        owner[r] = malloc((p->n_cols[r] + 1) * sizeof *owner[r]);
        memset(owner[r], 0xff, (p->n_cols[r] + 1) * sizeof *owner[r]);
    }
    for (u32 i = 0; i < p->n_groups; i++)
        for (u32 pass = 0; pass < 2; pass++) /* what a group reads is there until its end */
            for (u32 k = 0; k < p->groups[i].n_ops; k++) {
                const struct op *op = p->groups[i].ops[k];
                for (u32 j = 0; j < op->n_in; j++) mark(p, owner, op->in[j], false);
                for (u32 j = 0; j < op->n_out && !pass; j++) mark(p, owner, op->out[j], true);
            }
    mark(p, owner, (struct operand){p->logits, 0, p->bufs[p->logits].width}, false);
    mark(p, owner, (struct operand){p->hidden, 0, p->bufs[p->hidden].width}, false);
    free(owner[0]);
    free(owner[1]);
}
