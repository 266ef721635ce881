/* Every architecture against numbers that other people's code computed (test/golden/README.md). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "harness.h"
#include "core/hostmem.h"
#include "model/rank.h"

/* Of the range of the golden values; measured errors are about 1e-6 (docs/testing.md). */
static const double tolerance = 1e-4;

static void check(const char *name, const char *what, double error)
{
    print_message("%-20s %-8s %.2e of the range\n", name, what, error);
    if (!(error <= tolerance)) fail_msg("%s: %s differ by %g of their range", name, what, error);
}

static void check_logits(struct harness *h, const struct golden *g, const char *name)
{
    size_t n;
    float *want = golden_array(g, "logits", &n), *got = calloc(64, g->n_vocab * sizeof *got);
    assert_int_equal(n, 64 * g->n_vocab);
    assert_int_equal(h->m->hp.n_vocab, g->n_vocab);
    harness_feed(h, g->tokens, 64, 64, got);
    check(name, "logits", range_error(got, want, n));
    free(got);
    free(want);
}

/* The residual stream after every block, read by stopping the step behind it. */
static void check_layers(struct harness *h, const struct golden *g, const char *name)
{
    struct err err = {0};
    size_t n;
    float *want = golden_array(g, "layers", &n), *got;
    if (!want) return;
    got = calloc(n, sizeof *got);
    u32 layer = 0, d = g->n_embd;
    double worst = 0;
    for (u32 i = 0; i < 64; i++) harness_row(h, g->tokens[i], 0, i);
    step_prepare(h->s);
    for (u32 i = 0; i < h->p->n_ops; i++) {
        struct operand out = h->p->ops[i].out[0];
        h->s->group_begin = i;
        h->s->group_end = i + 1;
        assert_int_equal(h->x->class->submit(h->x, h->h_trunk, h->s, &err), 0);
        if (h->p->ops[i].n_out == 0 || strcmp(h->p->bufs[out.buf].name, "block_out") != 0) continue;
        float *at = got + (size_t)layer * 64 * d;
        assert_int_equal(h->x->class->read(h->x, h->h_trunk, out, 0, 64, at, &err), 0);
        worst = fmax(worst, range_error(at, want + (size_t)layer * 64 * d, (size_t)64 * d));
        layer++;
    }
    assert_int_equal(layer, g->n_layer);
    check(name, "layers", worst);
    step_reset(h->s);
    free(got);
    free(want);
}

/* MTP predicts token p+2 from the hidden state at p and token p+1, for p = 0..62. */
static void check_mtp(struct harness *h, const struct golden *g, const char *name)
{
    struct err err = {0};
    size_t n;
    u32 d = g->n_embd, rows = 63;
    float *want = golden_array(g, "mtp_logits", &n);
    if (!want) return;
    assert_non_null(h->m->mtp);
    float *hidden = calloc((size_t)64 * d, sizeof *hidden), *got = calloc(n, sizeof *got);
    for (u32 i = 0; i < 64; i++) harness_row(h, g->tokens[i], 0, i);
    harness_run(h, NULL);
    struct operand last = {h->p->hidden, 0, d}, out = {h->m->mtp->logits, 0, g->n_vocab};
    assert_int_equal(h->x->class->read(h->x, h->h_trunk, last, 0, 64, hidden, &err), 0);
    for (u32 i = 0; i < rows; i++) harness_row(h, g->tokens[i + 1], 0, i);
    h->s->hidden = hidden;
    step_prepare(h->s);
    assert_int_equal(h->x->class->submit(h->x, h->h_mtp, h->s, &err), 0);
    assert_int_equal(h->x->class->read(h->x, h->h_mtp, out, 0, rows, got, &err), 0);
    step_reset(h->s);
    assert_int_equal(n, rows * g->n_vocab);
    check(name, "mtp", range_error(got, want, n));
    free(hidden);
    free(got);
    free(want);
}

/* The recurrent state after 64 tokens: golden has all matrices, then all remembered rows. */
static void check_state(const struct harness *h, const struct golden *g, const char *name)
{
    size_t n, at = 0;
    float *want = golden_array(g, "state", &n);
    if (!want) return;
    const struct hostmem *x = (const struct hostmem *)h->x;
    float *got = calloc(n, sizeof *got);
    for (int shifts = 0; shifts < 2; shifts++)
        for (u32 i = 0; i < h->m->net->n_states; i++) {
            u32 width = h->m->net->states[i].width;
            if ((width == g->n_embd) != (shifts == 1)) continue;
            assert_true(at + width <= n);
            memcpy(got + at, x->state[i], width * sizeof *got);
            at += width;
        }
    assert_int_equal(at, n);
    check(name, "state", range_error(got, want, n));
    free(got);
    free(want);
}

/* The states that embeddings are made of, and what a reranker's head makes of each. */
static void check_hidden(struct harness *h, const struct golden *g, const char *name)
{
    struct err err = {0};
    size_t n, n_labels;
    float *want = golden_array(g, "hidden", &n), *labels = golden_array(g, "labels", &n_labels);
    if (!want) return;
    float *got = calloc(n, sizeof *got);
    struct operand hidden = {h->p->hidden, 0, g->n_embd};
    for (u32 i = 0; i < 64; i++) harness_row(h, g->tokens[i], 0, i);
    step_prepare(h->s);
    assert_int_equal(h->x->class->submit(h->x, h->h_trunk, h->s, &err), 0);
    assert_int_equal(h->x->class->read(h->x, h->h_trunk, hidden, 0, 64, got, &err), 0);
    step_reset(h->s);
    check(name, "hidden", range_error(got, want, n));
    assert_int_equal(h->m->rank != NULL, labels != NULL);
    double worst = 0;
    for (u32 i = 0; labels && i < 64; i++) {
        const float *z = labels + (size_t)i * h->m->rank->n_labels;
        double sum = 0;
        for (u32 k = 0; k < h->m->rank->n_labels; k++)
            sum += exp((double)z[k] - (double)z[h->m->rank->yes]);
        double score = (double)rank_score(h->m->rank, got + (size_t)i * g->n_embd);
        worst = fmax(worst, fabs(score - 1 / sum));
    }
    if (labels) check(name, "score", worst);
    free(got);
    free(want);
    free(labels);
}

static void equals_its_golden(void **state)
{
    const char *name = *state;
    struct golden g;
    struct harness h;
    golden_open(&g, name);
    harness_open(&h, g.model, (struct harness_options){.kv = CACHE_F32});
    check_logits(&h, &g, name);
    check_state(&h, &g, name);
    check_layers(&h, &g, name);
    check_mtp(&h, &g, name);
    check_hidden(&h, &g, name);
    harness_close(&h);
    golden_close(&g);
}

int main(void)
{
    struct CMUnitTest tests[GOLDEN_MAX + 1] = {0};
    char **names = golden_list();
    size_t n = 0;
    for (; names[n]; n++)
        tests[n] = (struct CMUnitTest){
            .name = names[n], .test_func = equals_its_golden, .initial_state = names[n]};
    int failed = _cmocka_run_group_tests("golden", tests, n, NULL, NULL);
    golden_list_free(names);
    return failed;
}
