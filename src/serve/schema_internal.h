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
    json_t *parts;    /* rules that schemas share: what they say, and the number of the rule */
    struct buf where; /* the place in the schema, for messages */
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

/* Bounds such as minItems and maxItems; false after an error. A maximum above what a grammar may
 * repeat is lowered. */
bool schema_read_counts(struct schemac *c, const json_t *s, const char *min, const char *max,
                        u32 *lo, u32 *hi);
void schema_put_times(struct buf *b, u32 lo, u32 hi);
/* The number of the rule pNUMBER that all schemas share which say the same under these keys; false:
 * it is new, and the caller must write it. */
bool schema_find_part(struct schemac *c, const char *kind, const json_t *s, const char *const *keys,
                      size_t n, u32 *number);
u32 schema_new_part(struct schemac *c);
/* Writes it. */
void schema_put_part(struct schemac *c, const struct buf *rule, u32 number);

/* The rule of a schema that a member or element of the value has; keyword and name say where it is.
 */
u32 schema_inner_rule(struct schemac *c, const json_t *s, const char *keyword, const char *name);
/* The name of a member, as JSON. */
void schema_put_name(struct schemac *c, struct buf *b, const char *key);

/* ---- schema_object.c ---- */

/* Parts that are separated by commas, each at most once and in their order: rules NAME-pI. */
struct schema_row {
    u32 name, n;
    const bool *must; /* [n] it can't be left out; NULL: all can */
    bool open;        /* any number of NAME-x may follow */
    u32 lo, hi;       /* parts there must be, those behind included */
};
/* Rule NAME-m0-0 and those it needs. */
void schema_put_row(struct schemac *c, const struct schema_row *row);
void schema_put_object(struct schemac *c, struct buf *b, const json_t *s, u32 name);

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
bool schema_keyword_is_about(const char *key, u32 types);
/* Does it combine schemas about the same value? */
bool schema_is_choice(const char *key);
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
/* Do the objects that are generated of a lack a member that b requires? */
bool schema_lacks_member(struct schemac *c, const json_t *a, const json_t *b);
/* Are both about objects with a property whose values can't be the same? */
bool schema_told_apart_by(struct schemac *c, const json_t *a, const json_t *b, const char *key);
/* A list of values that holds all that fit s, where s says so; NULL otherwise. A new reference. */
json_t *schema_values(struct schemac *c, const json_t *s);

/* ---- schema_not.c ---- */

/* What the opposite of a schema must say: all that it forbids, or some of that. */
enum schema_extent { SCHEMA_WHOLLY, SCHEMA_PARTLY };
/* A schema that allows only what s forbids, as far as schemas can say that; NULL: they can't. A new
 * reference. named: members without a name do not come anyway. */
json_t *schema_opposite(struct schemac *c, const json_t *s, enum schema_extent extent, bool named);

/* ---- schema_number.c ---- */

/* digits * 10^exponent, without zeros at either end. */
struct schema_decimal {
    bool below; /* 0 */
    char digits[40];
    int n, exponent;
};
/* As it was written, as far as a double keeps that; false: it is no number. */
bool schema_read_decimal(const json_t *v, struct schema_decimal *d);
bool schema_is_multiple(struct schemac *c, const json_t *v, const json_t *step);
void schema_put_number(struct schemac *c, struct buf *b, const json_t *s, u32 type);

/* ---- schema_pattern.c ---- */

struct regex_range;

void schema_put_string(struct schemac *c, struct buf *b, const json_t *s);
/* The regular expression of a schema's format; .p is NULL where any text will do. */
struct schema_format {
    struct str pattern;
    u32 most; /* characters */
};
/* False after an error. */
bool schema_find_format(struct schemac *c, const json_t *s, struct schema_format *found);
/* Does a string match, exactly as ECMA-262 says? False after an error, too. */
bool schema_matches(struct schemac *c, struct str pattern, struct str text);
void schema_patterns_free(struct schema_patterns *p);
/* One of these characters, as JSON spells it. */
void schema_put_ranges(struct buf *b, const struct regex_range *r, u32 n);
/* A text as GBNF writes it. */
void schema_put_text(struct buf *b, struct str text);

#endif
