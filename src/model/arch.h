/* Architectures: each records its forward pass as a program. One file in arch/ and one row in the
 * table (arch.c) per architecture. */
#ifndef FLETCH_ARCH_H
#define FLETCH_ARCH_H

#include "model/bind.h"
#include "model/hparams.h"

/* What an architecture records with. */
struct build {
    const struct hparams *hp;
    struct bind bind;
    struct program *p;   /* the program being recorded: the trunk, then the MTP block */
    struct program *mtp; /* NULL unless hp->n_mtp > 0 */
    struct err *err;
};

struct arch {
    const char *name;
    const char *models; /* for people: which published models it is */
    int (*record)(struct build *b);
};

/* NULL when unknown. */
const struct arch *arch_find(const char *name);
/* The table, ended by a row without a name. */
extern const struct arch arch_table[];

int arch_llama(struct build *b);
int arch_qwen2(struct build *b);
int arch_qwen3(struct build *b);
int arch_qwen3moe(struct build *b);
int arch_deepseek2(struct build *b);
int arch_rwkv7(struct build *b);
int arch_arwkv7(struct build *b);

#endif
