/* The rotary table of a net, from a model's hyper-parameters and its rope_freqs tensor. */
#ifndef FLETCH_ROPE_H
#define FLETCH_ROPE_H

#include "core/program.h"
#include "model/hparams.h"

int rope_fill(struct net *net, const struct hparams *hp, struct source *s, struct err *err);

#endif
