/* What the files of the schema compiler share. Each put_ function appends one item of a grammar's
 * sequence: a text, a class, a rule's name or a group. */
#ifndef FLETCH_SCHEMA_INTERNAL_H
#define FLETCH_SCHEMA_INTERNAL_H

#include "serve/schema.h"

struct schema_rule {
    const json_t *schema;
    u32 rule;
};

struct schemac {
    const json_t *root;
    json_t *made;   /* schemas made by merging others, kept until the end */
    size_t n_made;  /* keywords in them */
    struct buf out; /* finished rules */
    struct schema_rule *rules;
    u32 n_rules, depth;
    struct buf where; /* the place in the schema, for messages */
    struct err *err;
    int rc;
};

/* Keeps the first error, with the place; returns its code. */
int schema_fail(struct schemac *c, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
int schema_nomem(struct schemac *c);

/* ---- schema_merge.c: schemas made of schemas ---- */

bool schema_is_annotation(const char *key);
/* Does it say nothing besides `but` (may be NULL)? */
bool schema_says_nothing(const json_t *s, const char *but);
/* The schema that a $ref's text names; NULL after an error. */
const json_t *schema_resolve(struct schemac *c, const json_t *ref);
/* One object that says what s says, without $ref and allOf; NULL after an error. Borrowed. */
const json_t *schema_flatten(struct schemac *c, const json_t *s);
/* One object that says what both say. Borrowed. */
const json_t *schema_merge(struct schemac *c, const json_t *a, const json_t *b);
/* A copy without a key. Borrowed. */
const json_t *schema_without(struct schemac *c, const json_t *s, const char *key);
/* Is it certain that no value fits both? */
bool schema_disjoint(struct schemac *c, const json_t *a, const json_t *b);

/* Types as bits. */
enum {
    SCHEMA_NULL = 1,
    SCHEMA_BOOLEAN = 2,
    SCHEMA_INTEGER = 4,
    SCHEMA_NUMBER = 8,
    SCHEMA_STRING = 16,
    SCHEMA_ARRAY = 32,
    SCHEMA_OBJECT = 64,
    SCHEMA_ANY = 127,
};
/* What "type" says, or else what the other keywords are about; 0 after an error. */
u32 schema_types(struct schemac *c, const json_t *s);
/* Of a value; a whole number is an integer and a number. */
u32 schema_type_of(const json_t *value);

/* ---- schema_number.c ---- */

void schema_put_integer(struct schemac *c, struct buf *b, const json_t *s);
void schema_put_number(struct schemac *c, struct buf *b, const json_t *s);

/* ---- schema_pattern.c ---- */

/* The inside of a JSON string that matches a regular expression; "" after an error. */
void schema_put_pattern(struct schemac *c, struct buf *b, struct str pattern);
/* A text as GBNF writes it. */
void schema_put_text(struct buf *b, struct str text);

#endif
