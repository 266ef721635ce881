/* The words every file speaks: short integer names, strings that are not terminated,
 * checked size arithmetic, and CHECK for invariants of our own (never for input). */
#ifndef FLETCH_BASE_H
#define FLETCH_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int8_t i8;
typedef int16_t i16;
typedef int32_t i32;
typedef int64_t i64;

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
/* sys/param.h and Foundation define these two as well. */
#undef MIN
#undef MAX
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
/* The smallest multiple of `to` that is at least n. */
#define ROUND_UP(n, to) (((n) + (to)-1) / (to) * (to))

/* Borrowed bytes. May hold NUL and invalid UTF-8; compare with str_eq, never strcmp. */
struct str {
    const char *p;
    size_t n;
};

#define STR(lit) ((struct str){(lit), sizeof(lit) - 1})

struct str str_of(const char *z);
bool str_eq(struct str a, struct str b);
bool str_is(struct str a, const char *z);
bool str_starts(struct str a, const char *prefix);
bool str_ends(struct str a, const char *suffix);

/* A broken invariant of our own: always on, always fatal. Input is never CHECKed. */
#define CHECK(cond) ((cond) ? (void)0 : base_check_failed(#cond, __FILE__, __LINE__))
void base_check_failed(const char *cond, const char *file, int line) __attribute__((noreturn));

/* False when the exact result does not fit. */
#define CK_ADD(a, b, out) (!__builtin_add_overflow((a), (b), (out)))
#define CK_MUL(a, b, out) (!__builtin_mul_overflow((a), (b), (out)))

/* Smallest multiple of align (a power of two) that is at least n; false on overflow. */
bool ck_align_up(u64 n, u64 align, u64 *out);

/* Seconds on a clock that never goes back. */
double base_now(void);

#endif
