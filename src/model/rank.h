/* The rank head of a reranker: from the final hidden state of the last token of a text that holds a
 * query and a document, how well the document answers the query. */
#ifndef FLETCH_RANK_H
#define FLETCH_RANK_H

#include "base/err.h"

struct model;

struct rank {
    u32 n_labels, d_model;
    u32 yes;     /* the label whose probability is the score */
    float *rows; /* [n_labels][d_model] */
    /* The prompt: part[0], the query, part[1], the document, part[2]; or the document first. */
    struct str part[3];
    bool document_first;
};

/* *out stays NULL for a model that is not a reranker. It is one if its file asks for pooling_type
 * rank and has cls.output.weight, or if it is a published Qwen3-Reranker, whose head is the rows of
 * "yes" and "no" of its output matrix. The prompt's parts belong to the model's source. */
int rank_open(struct rank **out, struct model *m, struct err *err);
void rank_close(struct rank *r);
/* The probability of the label `yes`, from 0 to 1; NaN if hidden contains one. */
float rank_score(const struct rank *r, const float *hidden);

#endif
