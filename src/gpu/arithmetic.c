#include "gpu/arithmetic.h"

#include <string.h>

#include "base/num.h"
#include "gpu/kernels/self_test.h"

struct self_case {
    u32 op, a, b, c;
    u32 bits; /* of the result */
};

static const char *const names[] = {
    [SELF_TEST_MUL_ADD] = "a*b + c rounded twice",
    [SELF_TEST_ADD_ADD] = "(a + b) + c in this order",
    [SELF_TEST_DIVIDE] = "a / b",
    [SELF_TEST_SQRT] = "the square root of a",
    [SELF_TEST_FMA] = "fma(a, b, c)",
    [SELF_TEST_IS_NAN] = "a != a",
    [SELF_TEST_EXP] = "exp(a)",
    [SELF_TEST_LOG] = "log(a)",
    [SELF_TEST_FROM_UINT] = "the float nearest to integer a",
    [SELF_TEST_FROM_U64] = "the float nearest to the 64-bit integer b, a",
    [SELF_TEST_TO_U64] = "float a as a 64-bit integer, shifted by b",
    [SELF_TEST_DIVIDE_U64] = "the 64-bit integer b, a divided by c",
    [SELF_TEST_HIGH_U64] = "the 64-bit integer b, a times c, c",
    [SELF_TEST_TO_HALF] = "the half nearest to a",
    [SELF_TEST_FROM_HALF] = "half a as a float",
    [SELF_TEST_DOT] = "the dot of bytes a and b, plus c",
    [SELF_TEST_DOT_LOW] = "the dot of a's low nibbles and bytes b, plus c",
    [SELF_TEST_DOT_HIGH] = "the dot of a's high nibbles and bytes b, plus c",
};

/* (1 + 2^-12)² is 1 + 2^-11 + 2^-24, which is halfway between two floats: the even one is
 * 1 + 2^-11. Without that rounding 2^-11 + 2^-24 is left in the end, 0x3a000400. */
static const struct self_case cases[] = {
    {SELF_TEST_MUL_ADD, 0x3f800800, 0x3f800800, 0xbf800000, 0x3a000000},
    {SELF_TEST_FMA, 0x3f800800, 0x3f800800, 0xbf800000, 0x3a000400},
    {SELF_TEST_MUL_ADD, 0x3f800800, 0xbf800800, 0x3f800000, 0xba000000},
    {SELF_TEST_ADD_ADD, 0x3f800000, 0x4cbebc20, 0xccbebc20, 0}, /* (1 + 1e8) - 1e8 */
    {SELF_TEST_DIVIDE, 0x3f800000, 0x40400000, 0, 0x3eaaaaab},  /* 1 / 3 */
    {SELF_TEST_DIVIDE, 0x42fe0000, 0x3dfcd6ea, 0, 0x44809666},
    {SELF_TEST_SQRT, 0x40000000, 0, 0, 0x3fb504f3},
    {SELF_TEST_SQRT, 0x3f7fffff, 0, 0, 0x3f7fffff},
    {SELF_TEST_IS_NAN, 0x7fc00000, 0, 0, 1},
    {SELF_TEST_IS_NAN, 0x7f800000, 0, 0, 0},
    /* subnormals, the smallest first; zeros; below zero */
    {SELF_TEST_LOG, 0x00000001, 0, 0, 0xc2ce8ed0},
    {SELF_TEST_LOG, 0x000116c2, 0, 0, 0xc2b834f2},
    {SELF_TEST_LOG, 0x007fffff, 0, 0, 0xc2aeac50},
    {SELF_TEST_LOG, 0x00800000, 0, 0, 0xc2aeac50},
    {SELF_TEST_LOG, 0x00000000, 0, 0, 0xff800000},
    {SELF_TEST_LOG, 0x80000000, 0, 0, 0xff800000},
    {SELF_TEST_LOG, 0x40000000, 0, 0, 0x3f317218},
    {SELF_TEST_LOG, 0x7f800000, 0, 0, 0x7f800000},
    {SELF_TEST_EXP, 0x3f800000, 0, 0, 0x402df854},
    {SELF_TEST_EXP, 0xc2aeac4f, 0, 0, 0x00800026}, /* hardly a normal number */
    {SELF_TEST_EXP, 0xc2b00000, 0, 0, 0},          /* not one any more */
    {SELF_TEST_FROM_UINT, 0x01000001, 0, 0, 0x4b800000},
    {SELF_TEST_FROM_UINT, 0x01000003, 0, 0, 0x4b800002},
    {SELF_TEST_FROM_UINT, 0xffffffff, 0, 0, 0x4f800000},
    {SELF_TEST_FROM_U64, 0x00000000, 0, 0, 0},
    {SELF_TEST_FROM_U64, 0x01000001, 0, 0, 0x4b800000},
    {SELF_TEST_FROM_U64, 0x00000000, 0x01000001, 0, 0x5b800000}, /* a tie, to the even one */
    {SELF_TEST_FROM_U64, 0x00000001, 0x01000001, 0, 0x5b800001}, /* just above it */
    {SELF_TEST_FROM_U64, 0x00000000, 0x01000003, 0, 0x5b800002},
    {SELF_TEST_FROM_U64, 0xffffffff, 0x01000002, 0, 0x5b800001}, /* just below one */
    {SELF_TEST_FROM_U64, 0x80000000, 0x00000080, 0, 0x53008000},
    {SELF_TEST_FROM_U64, 0xffffffff, 0xffffffff, 0, 0x5f800000},
    {SELF_TEST_TO_U64, 0x537fffff, 8, 0, 0xffffff00}, /* 2^40 - 2^16 */
    {SELF_TEST_TO_U64, 0x3f7fffff, 0, 0, 0},
    {SELF_TEST_DIVIDE_U64, 0xffffffff, 0x000000ff, 0x00010001, 0x00ffff00},
    {SELF_TEST_HIGH_U64, 0x7f4a7c15, 0x9e3779b9, 0x1ce4e5b9, 0x15a1de00},
    {SELF_TEST_TO_HALF, 0x3f801000, 0, 0, 0x3c00}, /* ties, to the even one */
    {SELF_TEST_TO_HALF, 0x3f803000, 0, 0, 0x3c02},
    {SELF_TEST_TO_HALF, 0x33c00000, 0, 0, 0x0002}, /* a subnormal half: 1.5 · 2^-24 */
    {SELF_TEST_TO_HALF, 0x477ff000, 0, 0, 0x7c00},
    {SELF_TEST_FROM_HALF, 0x0001, 0, 0, 0x33800000},
    {SELF_TEST_FROM_HALF, 0x7bff, 0, 0, 0x477fe000},
    {SELF_TEST_DOT, 0x7f807f80, 0x807f7f80, 0x0007dfa0, 0x0007dfa1},
    {SELF_TEST_DOT, 0x80808080, 0x80808080, 0xfffffffb, 0x0000fffb},
    {SELF_TEST_DOT_LOW, 0xf1e2d3c4, 0x7f80ff81, 0xfffffff9, 0xfffffd79},
    {SELF_TEST_DOT_HIGH, 0xf1e2d3c4, 0x7f80ff81, 0xfffffff9, 0xfffffa69},
};
enum { N_CASES = ARRAY_LEN(cases), N_ALL = N_CASES + 1 };
_Static_assert((int)N_ALL <= SELF_TEST_THREADS, "a thread for each case");

/* The least normal number halved is a subnormal one. */
static const struct self_case halved = {SELF_TEST_MULTIPLY, 0x00800000, 0x3f000000, 0, 0x00400000};

/* Submits one launch of the kernel and reads its results. */
static int run(const struct gpu_driver *d, struct gpu *g, struct gpu_command *c,
               struct gpu_list **list, u32 results[N_ALL], struct err *err)
{
    u32 in[N_ALL][4];
    for (u32 i = 0; i < N_ALL; i++) {
        const struct self_case *s = i < N_CASES ? &cases[i] : &halved;
        memcpy(in[i], (u32[4]){s->op, s->a, s->b, s->c}, sizeof in[i]);
    }
    int rc = d->alloc(g, &c->bufs[0].buf, sizeof in, GPU_DEVICE, err);
    if (!rc) rc = d->alloc(g, &c->bufs[1].buf, N_ALL * sizeof *results, GPU_DEVICE, err);
    if (!rc) rc = d->write(g, c->bufs[0].buf, 0, in, sizeof in, err);
    if (!rc) rc = d->kernel(g, "k_self_test", &c->kernel, err);
    if (!rc) rc = d->record(g, list, c, 1, err);
    if (!rc) rc = d->submit(g, *list, err);
    if (!rc) rc = d->wait(g, err);
    if (!rc) rc = d->read(g, c->bufs[1].buf, 0, results, N_ALL * sizeof *results, err);
    return rc;
}

int gpu_check_arithmetic(const struct gpu_driver *d, struct gpu *g, bool *flushes, struct err *err)
{
    u32 results[N_ALL];
    struct self_test_args a = {N_ALL};
    struct gpu_list *list = NULL;
    struct gpu_command c = {.kind = GPU_LAUNCH,
                            .after = true,
                            .groups = {1, 1, 1},
                            .threads = SELF_TEST_THREADS,
                            .n_bufs = 2,
                            .n_args = sizeof a};
    memcpy(c.args, &a, sizeof a);
    int rc = run(d, g, &c, &list, results, err);
    if (list) d->drop(g, list);
    for (u32 i = 0; i < 2; i++)
        if (c.bufs[i].buf) d->free(g, c.bufs[i].buf);
    for (u32 i = 0; i < N_CASES && !rc; i++) {
        const struct self_case *s = &cases[i];
        if (results[i] != s->bits)
            rc = err_set(err, FLETCH_E_BACKEND,
                         "this GPU computes wrong bits: %s is 0x%08x instead of 0x%08x (a = "
                         "0x%08x, b = 0x%08x, c = 0x%08x)",
                         names[s->op], results[i], s->bits, s->a, s->b, s->c);
    }
    if (!rc && flushes) *flushes = results[N_CASES] != halved.bits;
    return rc;
}
