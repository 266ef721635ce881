/* JSON Schema as a grammar: every text that the grammar allows is JSON that the schema allows. Not
 * all that a schema allows: members come in its order, spaces only behind : and , (docs/grammar.md
 * has the list). What can't be kept is refused by name. */
#ifndef FLETCH_SCHEMA_H
#define FLETCH_SCHEMA_H

#include <jansson.h>

#include "base/buf.h"
#include "base/err.h"
#include "serve/grammar.h"

enum {
    SCHEMA_MAX_DEPTH = 64,      /* schemas inside schemas, references included */
    SCHEMA_MAX_TRIED = 256,     /* the same while a value of enum or const is tried */
    SCHEMA_MAX_RULES = 1 << 13, /* different schemas */
    SCHEMA_MAX_LIST = 512,      /* entries of lists that are compared with each other */
    SCHEMA_MAX_ANY = 4096,      /* schemas in anyOf */
    SCHEMA_MAX_MADE = 1 << 18,  /* keywords of schemas that are made by merging */
    SCHEMA_MAX_WORK = 1 << 21,  /* values and references tried */
    SCHEMA_MAX_NAME = 128,      /* bytes of a property's name beside additionalProperties */
};

/* Appends rules whose root is the schema, to be read by grammar_parse_pruned. */
int schema_to_grammar(struct buf *out, const json_t *schema, struct err *err);
/* The machine of a schema. */
int schema_compile(struct grammar **out, const json_t *schema, struct err *err);

#endif
