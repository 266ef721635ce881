/* What the files of the schema compiler share. Each put_ function appends one item of a grammar's
 * sequence: a text, a class, a rule's name or a group. */
#ifndef FLETCH_SCHEMA_INTERNAL_H
#define FLETCH_SCHEMA_INTERNAL_H

#include "base/strmap.h"
#include "serve/grammar.h"
#include "serve/schema.h"

struct schema_rule {
    char *key; /* the schema's text, by which the same schema is found again */
    u32 level; /* of its members and elements inside each other */
    bool open; /* it is being compiled */
};

struct schemac {
    const json_t *root;
    json_t *made;   /* schemas made by merging others, kept until the end */
    size_t n_made;  /* keywords in them */
    struct buf out; /* finished rules */
    struct schema_rule *rules;
    struct strmap known; /* rules by their keys */
    u32 n_rules, depth, level;
    u64 n_refs;      /* that were resolved */
    bool inner_base; /* a schema inside the root has an $id; known after the first reference */
    u64 work;        /* done in places where hostile schemas could ask for much */
    const json_t *candidates, *candidate; /* the enum that is tried now, and the value in it */
    struct schema_patterns *patterns;     /* those that values were tried on */
    struct buf where;                     /* the place in the schema, for messages */
    struct err *err;
    int rc;
};

/* Rules for any JSON: value, object, string, char, number and what they are made of. */
extern const char schema_prelude[];

/* Keeps the first error, followed by its place; returns its code. */
int schema_fail(struct schemac *c, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
int schema_nomem(struct schemac *c);
/* Counts work; false, with an error, when it becomes too much. */
bool schema_work(struct schemac *c, u64 n);
/* Goes to a place inside the schema for messages; name may be NULL. Gives what schema_leave needs
 * to go back. */
size_t schema_enter(struct schemac *c, const char *keyword, const char *name);
void schema_leave(struct schemac *c, size_t place);

/* ---- schema_keyword.c: what each keyword is ---- */

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

bool schema_is_annotation(const char *key);
/* Does it say nothing besides `but` (may be NULL)? */
bool schema_says_nothing(const json_t *s, const char *but);
/* Refuses keywords whose value is not of the kind that they need; false after an error. */
bool schema_check_shapes(struct schemac *c, const json_t *s);
/* Refuses, by name, keywords that no grammar is made for. */
void schema_check_keywords(struct schemac *c, const json_t *s);
/* Is it one that schema_fits obeys? */
bool schema_keyword_can_be_tried(const char *key);
/* What "type" says, or else what the other keywords are about; 0 after an error. */
u32 schema_types(struct schemac *c, const json_t *s);
/* Are there keywords about values of these types? */
bool schema_is_about(const json_t *s, u32 types);
/* The same schema in the keywords that grammars are made for, where that is possible: old spellings
 * become new ones, and what can't fail goes. NULL after an error. Borrowed. */
const json_t *schema_normalise(struct schemac *c, const json_t *s);

/* ---- schema_value.c: values ---- */

/* Of a value; a whole number is an integer and a number. */
u32 schema_type_of(const json_t *value);
/* As JSON Schema compares values, where 1 and 1.0 are one number. */
bool schema_equal(const json_t *a, const json_t *b);
/* Numbers only: below 0, 0 or above 0, exactly. */
int schema_compare(const json_t *a, const json_t *b);
/* A text that equal values share and different ones don't; free it. NULL: out of memory. */
char *schema_value_key(const json_t *value);
/* Does the value fit the schema? False after an error, too. */
bool schema_fits(struct schemac *c, const json_t *value, const json_t *s);

/* ---- schema_merge.c: schemas made of schemas ---- */

/* Takes the reference and keeps it until the end; NULL after an error. */
json_t *schema_keep(struct schemac *c, json_t *made);
/* The schema that a $ref's text names; NULL after an error. */
const json_t *schema_resolve(struct schemac *c, const json_t *ref);
/* One object that says what s says, without $ref and allOf; NULL after an error. Borrowed. */
const json_t *schema_flatten(struct schemac *c, const json_t *s);
/* {"allOf": [a, b]}, or less where that says the same; either may be NULL. A new reference. */
json_t *schema_both(const json_t *a, const json_t *b);
/* A copy without a key. Borrowed. */
const json_t *schema_without(struct schemac *c, const json_t *s, const char *key);
/* Is it certain that no value fits both? Of flattened schemas. */
bool schema_disjoint(struct schemac *c, const json_t *a, const json_t *b);
/* A list of values that holds all that fit s, where s says so; NULL otherwise. A new reference. */
json_t *schema_values(struct schemac *c, const json_t *s);

/* ---- schema_number.c ---- */

void schema_put_integer(struct schemac *c, struct buf *b, const json_t *s);
void schema_put_number(struct schemac *c, struct buf *b, const json_t *s);

/* ---- schema_pattern.c ---- */

enum schema_controls { SCHEMA_WITHOUT_CONTROLS, SCHEMA_WITH_CONTROLS };

/* The inside of a JSON string that matches a regular expression; "" after an error. Control
 * characters: are they among those that . and negated classes stand for? */
void schema_put_pattern(struct schemac *c, struct buf *b, struct str pattern,
                        enum schema_controls controls);
/* The regular expression of a format; NULL: there is none. */
const char *schema_format(const char *name);
/* Does a string match, exactly as ECMA-262 says? False after an error, too. */
bool schema_matches(struct schemac *c, struct str pattern, struct str text);
void schema_patterns_free(struct schema_patterns *p);
/* A text as GBNF writes it. */
void schema_put_text(struct buf *b, struct str text);

#endif
