/* Groups. A program holds recorded ops; how an executor runs them is its own affair. Its class
 * lists rules: patterns of ops that one function of the executor runs at once. prog_group finds
 * what matches and makes groups of it, sets of recorded ops of one layer. An op that no rule takes
 * is a group by itself. Nothing is copied or rewritten: a group points at recorded ops.
 *
 * Roles match by what ops read and write, wherever they stand. A group is legal if no path leads
 * from one of its ops out of it and back; the groups run in an order that the paths allow. Cache
 * layers and recurrent states count as values. The result does not depend on the order in which
 * independent ops were recorded. */
#ifndef FLETCH_GROUP_H
#define FLETCH_GROUP_H

#include "core/program.h"

/* One op of a rule. Letters name values, caches and states (after other operands): a lower-case
 * letter stands for the same columns in all roles of a rule, an upper-case one for parts of the
 * same buffer. */
struct role {
    enum op_kind kind;
    const char *in, *out;
    char without; /* 0: must be there; '!': too, and is no member; '-': need not be there; a letter:
                     need not, then `out` is the same value as that */
    u64 also;     /* features that the op may have beside those that all roles of its kind may */
};

struct rule {
    const char *name;
    const char *out; /* values that its function writes in any case; what is not among them must
                        be used inside the group alone, and gets no place */
    /* Any number of lerps by weight rows of the values h and p of its roles (without roles: of one
     * pair of values), of matmuls that don't read each other and, with roles, read those lerps, and
     * of the acts of these. */
    bool gathers;
    struct role roles[GROUP_MAX_ROLES]; /* the first decides where to look */
};

/* Does a role take an op of its kind with these features? */
bool role_takes(const struct role *r, u64 features);

/* The program as an executor with these rules runs it; without rules as recorded. It borrows the
 * ops of p, which must be open for longer. */
int prog_group(struct program **out, const struct program *p, const struct rule *rules, u32 n_rules,
               struct err *err);
/* The ops of p, each by itself, in the order of the groups of `like`, which has the same ops. */
int prog_split(struct program **out, const struct program *p, const struct program *like,
               struct err *err);

bool operand_same(struct operand a, struct operand b);
const char *group_name(const struct group *g);
/* The nth op of that kind (from 0), the one that makes x, the one of that kind that reads x, or
 * NULL. */
const struct op *group_op(const struct group *g, enum op_kind kind, u32 nth);
const struct op *group_maker(const struct group *g, struct operand x);
const struct op *group_reader(const struct group *g, struct operand x, enum op_kind kind);
/* The last op: what it writes is what the group is for. */
const struct op *group_last(const struct group *g);

/* What it writes that has a place, and what it reads of others: at most max of each. Give how many.
 */
u32 group_outputs(const struct program *p, const struct group *g, struct operand *x, u32 max);
u32 group_inputs(const struct program *p, const struct group *g, struct operand *x, u32 max);
/* Of what it writes. */
enum rows group_rows(const struct program *p, const struct group *g);

/* Sums over its ops, as prog_op_... */
u64 group_bytes(const struct program *p, const struct group *g, u32 n_rows);
double group_flops(const struct net *net, const struct group *g);
double group_flops_per_position(const struct group *g);

#endif
