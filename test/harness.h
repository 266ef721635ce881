/* What tests of whole models share: a model on the reference executor, fed row by row, and golden
 * arrays read from disk. Failures end the test through cmocka. */
#ifndef FLETCH_HARNESS_H
#define FLETCH_HARNESS_H

#include <jansson.h>

#include "core/exec.h"
#include "model/model.h"

struct harness {
    struct model *m;
    struct program *p; /* as recorded */
    struct exec *x;
    u32 h_trunk, h_mtp;
    struct step *s;
    struct exec_limits limits;
};

struct harness_options {
    enum cache_type kv;
    u32 n_slots;   /* 0: 1 */
    u32 n_threads; /* 0: 1 */
    bool in_order; /* cache blocks in order; otherwise as no contiguous cache would have them */
};

void harness_open(struct harness *h, const char *path, struct harness_options options);
/* The same for a source that is open already; owns it from here on. */
void harness_open_source(struct harness *h, struct source *s, struct harness_options options);
void harness_close(struct harness *h);
/* Adds a row to the step being filled; the block table of every slot is fixed. */
void harness_row(struct harness *h, i32 token, u32 slot, u32 pos);
/* Runs the step and clears it; logits (may be NULL) gets one row per row. */
void harness_run(struct harness *h, float *logits);
/* tokens as one sequence in slot 0, chunk rows a step; logits [n][V]. */
void harness_feed(struct harness *h, const i32 *tokens, u32 n, u32 chunk, float *logits);

#define GOLDEN_DIR "test/golden/models"

/* One directory of golden data. */
struct golden {
    char dir[256], model[300]; /* model: what to open, the directory or its GGUF file */
    json_t *doc;
    i32 tokens[64];
    u32 n_vocab, n_embd, n_layer;
};
enum { GOLDEN_MAX = 127 };
/* Names of all golden directories, NULL-ended; fails the test when there are none. */
char **golden_list(void);
void golden_list_free(char **names);
void golden_open(struct golden *g, const char *name);
void golden_close(struct golden *g);
/* The float32 array "logits", "layers", ...; NULL when this golden has none. Free it. */
float *golden_array(const struct golden *g, const char *what, size_t *n);

/* Runs the program with every column marked by the buffer that wrote it last: no op may read what
 * another buffer has overwritten, nor write over what it reads, nor leave its arena. */
void assert_placed(const struct program *p);

/* Largest |a - b| over the range of b. */
double range_error(const float *a, const float *b, size_t n);

#endif
