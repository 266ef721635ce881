/* A model: source, numbers, vocabulary and recorded programs. Opening it reads headers only;
 * model_place gives the weights to an executor. */
#ifndef FLETCH_MODEL_H
#define FLETCH_MODEL_H

#include "core/exec.h"
#include "model/arch.h"
#include "model/vocab.h"

struct rank;

struct model {
    struct source *source;
    struct hparams hp;
    const struct arch *arch;
    struct vocab *vocab;
    struct net *net;
    struct program *trunk; /* as recorded, unfused */
    struct program *mtp;   /* NULL: the model has no MTP block */
    struct bind bind;
    struct rank *rank; /* NULL: it is not a reranker */
};

/* Owns s from here on, also when it fails. profile: its rounding points. What the source says and
 * nothing here honours is an error, unless s->ignore_unknown. */
int model_open(struct model **out, struct source *s, struct profile profile, struct err *err);
/* From a file, ignoring what is not supported: m->source->refused lists it. Only for looking. */
/* The vocabulary alone: the file need not hold weights, nor be of a known architecture. Owns s
 * likewise. */
int model_open_text(struct model **out, struct source *s, struct err *err);
int model_probe(struct model **out, const char *path, struct err *err);
void model_close(struct model *m);

/* Hands every weight to the executor. progress (may be NULL) is told bytes done and in all. */
int model_place(struct model *m, struct exec *x, fletch_progress progress, void *ctx,
                struct err *err);

u64 model_weight_bytes(const struct model *m);

#endif
