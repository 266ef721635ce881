/* Threads of a group are fibers of one core. A simdgroup's lanes run one after the other up to
 * their next meeting (a simd op or barrier); when all 32 are there, and at the same one, they go
 * on. That is also where lanes that disagree are found, in fast kernels as in checked ones. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "gpu/emu/worker.h"

namespace emu
{
enum { STACK = 64 << 10 };
enum { READY, WAITING, DONE };
static const u64 CANARY = 0x5afe57acc0ffee11u;

__thread thread *cur;

/* ---- the switch: callee-saved registers go to the old stack and come from the new one ---- */
extern "C" void emu_switch(void **save, void *to) asm("emu_switch");
#if defined __x86_64__
asm(".text\nemu_switch:\n"
    "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
    "mov %rsp,(%rdi)\nmov %rsi,%rsp\n"
    "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n");
enum { SAVED = 7, RETURN = 6 }; /* words; which of them is where to go on */
#elif defined __aarch64__
asm(".text\n.p2align 2\nemu_switch:\n"
    "sub sp,sp,#160\nstp x19,x20,[sp]\nstp x21,x22,[sp,#16]\nstp x23,x24,[sp,#32]\n"
    "stp x25,x26,[sp,#48]\nstp x27,x28,[sp,#64]\nstp x29,x30,[sp,#80]\nstp d8,d9,[sp,#96]\n"
    "stp d10,d11,[sp,#112]\nstp d12,d13,[sp,#128]\nstp d14,d15,[sp,#144]\n"
    "mov x9,sp\nstr x9,[x0]\nmov sp,x1\n"
    "ldp x19,x20,[sp]\nldp x21,x22,[sp,#16]\nldp x23,x24,[sp,#32]\nldp x25,x26,[sp,#48]\n"
    "ldp x27,x28,[sp,#64]\nldp x29,x30,[sp,#80]\nldp d8,d9,[sp,#96]\nldp d10,d11,[sp,#112]\n"
    "ldp d12,d13,[sp,#128]\nldp d14,d15,[sp,#144]\nadd sp,sp,#160\nret\n");
enum { SAVED = 20, RETURN = 11 };
#else
#error "emu_switch is not written for this processor"
#endif

static char *stack_of(worker *w, u32 tid)
{
    return w->stacks + (size_t)tid * STACK;
}

static void thread_main();

/* Where a lane that has not run yet begins, on a stack of its own. */
static void make_stack(thread *t)
{
    char *stack = stack_of(t->w, t->id.tid);
    /* Tops that differ a little, so that lanes don't share the cache's sets. x86 functions start
     * with the stack at 16·n + 8, as if a return address had been pushed. */
    void **top = (void **)(stack + STACK - t->id.lane * 832 - 64);
    void **sp = top - SAVED - (RETURN == SAVED - 1);
    memset(sp, 0, (SAVED + 1) * sizeof *sp);
    sp[RETURN] = (void *)thread_main;
    t->sp = sp;
    *(u64 *)stack = CANARY;
}

/* The next lane of the simdgroup that can run; none behind the last one. */
static thread *next_ready(worker *w)
{
    while (++w->turn < EMU_SIMD) {
        thread *t = w->simd + (w->turn ^ w->order);
        if (t->state == READY) return t;
    }
    return 0;
}

/* Straight to another lane, or back to the scheduler without one. */
static void switch_to(thread *to)
{
    thread *from = cur;
    if (!to) {
        emu_switch(&from->sp, from->w->scheduler_sp);
        return;
    }
    if (!to->sp) make_stack(to);
    cur = to;
    emu_switch(&from->sp, to->sp);
}

/* Runs a lane, and on the same stack those behind it that have not begun: most lanes of most groups
 * have little to do, and a stack of their own would cost more than that. */
static void thread_main()
{
    worker *w = cur->w;
    const emu_launch *l = w->launch;
    const u64 *end = (const u64 *)stack_of(w, cur->id.tid);
    thread *next;
    do {
        l->kernel->fn(l->binds);
        if (l->kernel->checked && !cur->waited) fail("a thread left without dep_wait()");
        if (*end != CANARY) fail("more than %d bytes of stack", STACK);
        cur->state = DONE;
        next = next_ready(w);
        if (next && !next->sp) cur = next;
    } while (cur == next);
    switch_to(next);
    abort();
}

void fail(const char *fmt, ...)
{
    thread *t = cur;
    worker *w = t->w;
    int n = snprintf(w->error, sizeof w->error,
                     "kernel %s, group %u,%u,%u, thread %u: ", w->launch->kernel->name,
                     t->id.group.x, t->id.group.y, t->id.group.z, t->id.tid);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(w->error + n, sizeof w->error - (size_t)n, fmt, ap);
    va_end(ap);
    w->failed = true;
    emu_switch(&t->sp, w->scheduler_sp);
    abort(); /* the group is given up: no thread of it runs again */
}

/* ---- what a running thread calls ---- */

void meet(enum op op, int line)
{
    thread *t = cur;
    t->op = (u8)op;
    t->line = line;
    t->state = WAITING;
    t->n_met++;
    switch_to(next_ready(t->w));
}

const u32 *meet_exchange(u32 v, int line)
{
    thread *t = cur;
    u32 *values = t->w->values[t->n_met & 1] + t->id.simd * EMU_SIMD;
    values[t->id.lane] = v;
    meet(OP_SHUFFLE, line);
    return values;
}

u32 meet_reduce(enum op op, u32 v, int line)
{
    thread *t = cur;
    t->w->values[t->n_met & 1][t->id.tid] = v;
    meet(op, line);
    return t->w->results[t->id.simd];
}

void meet_multiply(const float *a, const float *b, float *c, int line)
{
    thread *t = cur;
    product *p = &t->w->products[t->n_met & 1][t->id.simd];
    u32 row = t->id.lane / 4, col = t->id.lane % 4 * 2;
    memcpy(&p->a[row][col], a, 2 * sizeof *a);
    memcpy(&p->b[row][col], b, 2 * sizeof *b);
    memcpy(&p->c[row][col], c, 2 * sizeof *c);
    meet(OP_MULTIPLY, line);
    memcpy(c, &p->c[row][col], 2 * sizeof *c);
}

void meet_at(const void *p, u64 pitch, int line)
{
    u32 mine = (u32)(uintptr_t)p * 31 + (u32)pitch;
    const u32 *all = meet_exchange(mine, line);
    for (u32 i = 0; i < EMU_SIMD; i++)
        if (all[i] != mine) fail("lanes differ in where a matrix lies (line %d)", line);
    if (pitch < 8) fail("rows of a matrix overlap: %llu apart", (unsigned long long)pitch);
}

void must_hold(const void *p, u32 n, bool group)
{
    const thread *t = cur;
    const u8 *begin = (const u8 *)p;
    if (group && begin >= t->w->tg && begin + n <= t->w->tg + t->tg_used) return;
    const emu_launch *l = t->w->launch;
    for (u32 i = 0; !group && i < l->kernel->n_bufs; i++) {
        const emu_buffer *b = &l->binds[i].buf;
        if (begin >= b->p && begin + n <= b->p + b->n) return;
    }
    fail("a matrix outside of %s", group ? "threadgroup memory" : "all buffers");
}

void *tg_alloc(u32 n, u32 align)
{
    thread *t = cur;
    u32 at = (t->tg_used + align - 1) / align * align;
    if (n > EMU_MAX_TG || at + n > EMU_MAX_TG)
        fail("over %d bytes of threadgroup memory", EMU_MAX_TG);
    t->tg_used = at + n;
    return t->w->tg + at;
}

void see_groups()
{
    cur->w->sees_groups = true;
}

/* ---- the scheduler ---- */

template <class T> static u32 butterfly(const u32 *values, T (*f)(T, T))
{
    T v[EMU_SIMD];
    memcpy(v, values, sizeof v);
    for (u32 m = EMU_SIMD / 2; m > 0; m /= 2)
        for (u32 i = 0; i < m; i++) v[i] = f(v[i], v[i + m]);
    u32 r;
    memcpy(&r, v, sizeof r);
    return r;
}

template <class T> static T sum(T a, T b)
{
    return a + b;
}

template <class T> static T top(T a, T b)
{
    return b > a ? b : a;
}

static u32 reduce(u8 op, const u32 *v)
{
    switch (op) {
    case OP_SUM_F32: return butterfly<float>(v, sum<float>);
    case OP_SUM_U32: return butterfly<u32>(v, sum<u32>);
    case OP_MAX_F32: return butterfly<float>(v, top<float>);
    case OP_MAX_U32: return butterfly<u32>(v, top<u32>);
    case OP_MAX_I32: return butterfly<i32>(v, top<i32>);
    default: return butterfly<u32>(v, top<u32>); /* OP_ANY, of 0 and 1 */
    }
}

/* In ascending order of columns of a, as simt.h's own. */
static inline __attribute__((always_inline)) void multiply(product *p)
{
    for (u32 row = 0; row < 8; row++)
        for (u32 k = 0; k < 8; k++)
            for (u32 col = 0; col < 8; col++)
                p->c[row][col] = __builtin_fmaf(p->a[row][k], p->b[k][col], p->c[row][col]);
}

static void multiply_any(product *p)
{
    multiply(p);
}

#if defined __x86_64__
__attribute__((target("avx2,fma"))) static void multiply_fma(product *p)
{
    multiply(p);
}
#endif

static void (*find_multiply())(product *)
{
#if defined __x86_64__
    if (__builtin_cpu_supports("fma") && __builtin_cpu_supports("avx2")) return multiply_fma;
#endif
    return multiply_any;
}

static const char *op_name(u8 op)
{
    return op <= OP_DEV_BARRIER ? "barrier" : "simd op";
}

static bool give_up(worker *w, const thread *t, const char *what, int a, int b)
{
    snprintf(w->error, sizeof w->error,
             "kernel %s, group %u,%u,%u, simdgroup %u: %s (lines %d, %d)", w->launch->kernel->name,
             t->id.group.x, t->id.group.y, t->id.group.z, t->id.simd, what, a, b);
    w->failed = true;
    return false;
}

static bool same_place(const thread *a, const thread *b)
{
    return a->op == b->op && a->line == b->line && a->n_met == b->n_met;
}

enum outcome { BROKEN, LEFT, AT_BARRIER };

/* Runs a simdgroup until it waits at a barrier or has left. */
static enum outcome run_simd(worker *w, thread *lanes)
{
    w->simd = lanes;
    for (;;) {
        w->turn = 0;
        cur = lanes + w->order;
        if (!cur->sp) make_stack(cur);
        emu_switch(&w->scheduler_sp, cur->sp);
        if (w->failed) return BROKEN;
        u32 n_left = 0;
        for (u32 i = 0; i < EMU_SIMD; i++) n_left += lanes[i].state == DONE;
        if (n_left == EMU_SIMD) return LEFT;
        if (n_left > 0) {
            u32 i = 0;
            while (lanes[i].state == DONE) i++;
            give_up(w, lanes + i, "some lanes have left, others wait", lanes[i].line, 0);
            return BROKEN;
        }
        for (u32 i = 1; i < EMU_SIMD; i++)
            if (!same_place(lanes, lanes + i)) {
                give_up(w, lanes,
                        op_name(lanes[i].op)[0] == 'b' ? "divergent barrier" : "divergent simd op",
                        lanes[0].line, lanes[i].line);
                return BROKEN;
            }
        if (lanes->op <= OP_DEV_BARRIER) return AT_BARRIER;
        u32 turn = (lanes->n_met - 1) & 1;
        if (lanes->op == OP_MULTIPLY)
            w->multiply(&w->products[turn][lanes->id.simd]);
        else if (lanes->op > OP_MULTIPLY)
            w->results[lanes->id.simd] = reduce(lanes->op, w->values[turn] + lanes->id.tid);
        for (u32 i = 0; i < EMU_SIMD; i++) {
            lanes[i].state = READY;
            lanes[i].simd_epoch += lanes->op == OP_SIMD_BARRIER;
        }
    }
}

static bool run_group(worker *w, u32 n_threads)
{
    for (;;) {
        thread *left = 0, *waits = 0;
        for (u32 s = 0; s < n_threads; s += EMU_SIMD) {
            thread *lanes = w->threads + (w->order & 1 ? n_threads - EMU_SIMD - s : s);
            enum outcome o = run_simd(w, lanes);
            if (o == BROKEN) return false;
            /* simdgroups may have met within themselves as often as they like */
            if (o == AT_BARRIER && waits && (lanes->op != waits->op || lanes->line != waits->line))
                return give_up(w, lanes, "divergent barrier", lanes->line, waits->line);
            (o == LEFT ? left : waits) = lanes;
        }
        if (!waits) return true;
        if (left)
            return give_up(w, waits, "a simdgroup left, another waits at a barrier", waits->line,
                           0);
        for (u32 i = 0; i < n_threads; i++) {
            thread *t = w->threads + i;
            t->state = READY;
            t->tg_epoch++;
            if (t->op == OP_DEV_BARRIER) t->dev_epoch++;
        }
    }
}
} // namespace emu

using namespace emu;

struct emulator {
    struct pool *pool;
    u32 n_workers;
    worker *workers;
    checks check;
    /* the launch that runs */
    const emu_launch *launch;
    u64 next_group, n_groups;
};

/* As on the devices; denormal numbers are also many times slower. */
static void flush_to_zero(bool on)
{
#if defined __x86_64__
    __builtin_ia32_ldmxcsr(on ? 0x9fc0 : 0x1f80);
#elif defined __aarch64__
    u64 fpcr = on ? 1u << 24 : 0;
    asm volatile("msr fpcr, %0" : : "r"(fpcr));
#endif
}

static void run_groups(void *ctx, u64 begin, u64)
{
    struct emulator *e = (struct emulator *)ctx;
    worker *w = e->workers + begin;
    const emu_launch *l = e->launch;
    w->launch = l;
    w->failed = false;
    flush_to_zero(true);
    uint3 n = {l->groups[0], l->groups[1], l->groups[2]};
    for (;;) {
        u64 g = __atomic_fetch_add(&e->next_group, 1, __ATOMIC_RELAXED);
        if (g >= e->n_groups) break;
        ids id = {{(u32)(g % n.x), (u32)(g / n.x % n.y), (u32)(g / n.x / n.y)}, n, 0, 0, 0};
        if (l->kernel->checked) {
            e->check.group++;
            memset(w->tg, 0xff, sizeof w->tg);
            w->order = e->check.group * 2654435761u >> 27; /* not always the same lanes first */
        } else {
            w->order = 0;
        }
        w->sees_groups = false;
        for (u32 t = 0; t < l->threads; t++) {
            id.tid = t;
            id.lane = t % EMU_SIMD;
            id.simd = t / EMU_SIMD;
            w->threads[t] = thread{};
            w->threads[t].w = w;
            w->threads[t].id = id;
        }
        bool done = run_group(w, l->threads);
        if (l->kernel->checked) e->check.tg_bytes += w->threads[0].tg_used;
        if (!done) {
            __atomic_store_n(&e->next_group, e->n_groups, __ATOMIC_RELAXED);
            break;
        }
    }
    flush_to_zero(false);
    cur = 0;
}

static int check_launch(const emu_launch *l, struct err *err)
{
    const emu_kernel *k = l->kernel;
    if (l->threads == 0 || l->threads > k->max_threads || l->threads % EMU_SIMD)
        return err_set(err, FLETCH_E_INTERNAL,
                       "kernel %s: groups of %u threads, it takes %u at most", k->name, l->threads,
                       k->max_threads);
    const emu_bind *a = l->binds + k->n_bufs;
    if (k->n_args > 0 && a->buf.n - a->offset != k->n_args)
        return err_set(err, FLETCH_E_INTERNAL, "kernel %s: %llu bytes of arguments, it has %u",
                       k->name, (unsigned long long)(a->buf.n - a->offset), k->n_args);
    return 0;
}

int emu_run(struct emulator *e, const struct emu_launch *l, struct err *err)
{
    int rc = check_launch(l, err);
    if (rc < 0) return rc;
    e->launch = l;
    e->next_group = 0;
    e->n_groups = (u64)l->groups[0] * l->groups[1] * l->groups[2];
    e->check.launch++;
    e->check.wave += l->after || e->check.wave == 0;
    bool alone = l->kernel->checked || e->n_groups * l->threads <= 512;
    if (alone)
        run_groups(e, 0, 1);
    else
        pool_run(e->pool, run_groups, e, e->n_workers);
    for (u32 i = 0; i < (alone ? 1 : e->n_workers); i++)
        if (e->workers[i].failed) return err_set(err, FLETCH_E_INTERNAL, "%s", e->workers[i].error);
    return 0;
}

/* Whether the copy may touch these words now; marks them. */
static bool copy_side(struct emulator *e, const emu_bind &b, u64 n, bool write)
{
    touch now = {e->check.wave, e->check.group, 0, 0, 0, 0};
    const touch *other;
    for (u64 i = b.offset / 4; b.buf.shadow && i < (b.offset + n + 3) / 4; i++)
        if (!word_touch(b.buf.shadow->words + i, &now, write, false, &other)) return false;
    return true;
}

int emu_copy(struct emulator *e, struct emu_bind dst, struct emu_bind src, u64 n, bool after,
             struct err *err)
{
    e->check.group++;
    e->check.wave += after || e->check.wave == 0;
    if (!copy_side(e, dst, n, true) || !copy_side(e, src, n, false))
        return err_set(err, FLETCH_E_INTERNAL,
                       "a copy of %llu bytes overlaps with commands that touch them",
                       (unsigned long long)n);
    memcpy(dst.buf.p + dst.offset, src.buf.p + src.offset, n);
    return 0;
}

u64 emu_bytes_read(const struct emulator *e)
{
    return e->check.bytes_read;
}

u64 emu_tg_bytes(const struct emulator *e)
{
    return e->check.tg_bytes;
}

const struct emu_kernel *emu_find(const struct emu_kernel *const *tables, const char *name)
{
    for (; *tables; tables++)
        for (const emu_kernel *k = *tables; k->name; k++)
            if (strcmp(k->name, name) == 0) return k;
    return 0;
}

int emu_open(struct emulator **out, u32 n_threads, struct err *err)
{
    *out = 0;
    struct emulator *e = (struct emulator *)calloc(1, sizeof *e);
    if (!e) return err_nomem(err, "emulator");
    int rc = pool_open(&e->pool, n_threads, err);
    if (rc < 0) {
        emu_close(e);
        return rc;
    }
    u32 n = pool_threads(e->pool);
    e->workers = (worker *)aligned_alloc(64, n * sizeof *e->workers);
    if (e->workers) memset((void *)e->workers, 0, n * sizeof *e->workers);
    for (; e->workers && e->n_workers < n; e->n_workers++) {
        worker *w = e->workers + e->n_workers;
        void *m = mmap(0, (size_t)EMU_MAX_THREADS * STACK, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (m == MAP_FAILED) break;
        w->stacks = (char *)m;
        w->check = &e->check;
        w->multiply = find_multiply();
    }
    if (e->n_workers < n) {
        emu_close(e);
        return err_nomem(err, "emulator");
    }
    *out = e;
    return 0;
}

void emu_close(struct emulator *e)
{
    if (!e) return;
    pool_close(e->pool);
    for (u32 i = 0; i < e->n_workers; i++)
        munmap(e->workers[i].stacks, (size_t)EMU_MAX_THREADS * STACK);
    free(e->workers);
    free(e);
}
