/* JSON Schema as a grammar: every text that the grammar allows is JSON that the schema allows. Not
 * all that a schema allows: members come in its order, spaces only behind : and , (docs/grammar.md
 * has the list). What can't be kept is refused by name. */
#ifndef FLETCH_SCHEMA_H
#define FLETCH_SCHEMA_H

#include <jansson.h>

#include "base/buf.h"
#include "base/err.h"

enum {
    SCHEMA_MAX_DEPTH = 64,     /* schemas inside schemas, references included */
    SCHEMA_MAX_RULES = 2048,   /* different schemas */
    SCHEMA_MAX_LIST = 512,     /* entries of lists that are compared with each other */
    SCHEMA_MAX_MADE = 1 << 18, /* keywords of schemas that are made by merging */
    SCHEMA_MAX_NAME = 128,     /* bytes of a property's name beside additionalProperties */
};

/* Appends rules whose root is the schema. */
int schema_to_grammar(struct buf *out, const json_t *schema, struct err *err);

#endif
