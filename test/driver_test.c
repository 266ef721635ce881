/* What driver.h promises, on every driver that can be had here: the emulator, fast and checked, and
 * Metal and CUDA on a real device or on their stand-ins, whose own counters are looked at too. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "gpu/args.h"
#include "gpu/driver.h"
#include "gpu/kernels/blit.h"
#include "gpu/arithmetic.h"
#include "gpu/layout.h"
#include "standin/standin.h"

enum { N_WORDS = 1000, GUARD = 16 };

/* NULL where it is not linked. */
static const struct gpu_driver *const metal_driver = &driver_metal;

struct lab {
    const struct gpu_driver *d;
    struct gpu *g;
    struct gpu_buf *up, *a, *b, *back;
    u32 blit;
    struct err err;
};

/* NULL: the driver has a real device, or is not there. */
static struct standin *standin_of(const struct gpu_driver *d)
{
    return d == metal_driver ? STANDIN_METAL : d == &driver_cuda ? STANDIN_CUDA : NULL;
}

/* What runs here on a stand-in; none at all would be a hole in CI, so its caller skips loudly. */
static u32 on_standins(const struct gpu_driver **out)
{
    u32 n = 0;
    if (metal_driver && STANDIN_METAL) out[n++] = metal_driver;
    if (STANDIN_CUDA) out[n++] = &driver_cuda;
    return n;
}

static void open_lab(struct lab *lab, const struct gpu_driver *d)
{
    *lab = (struct lab){.d = d};
    assert_int_equal(d->open(&lab->g, 0, &lab->err), 0);
    u64 n = (N_WORDS + GUARD) * 4;
    assert_int_equal(d->alloc(lab->g, &lab->up, n, GPU_UPLOAD, &lab->err), 0);
    assert_int_equal(d->alloc(lab->g, &lab->a, n, GPU_DEVICE, &lab->err), 0);
    assert_int_equal(d->alloc(lab->g, &lab->b, n, GPU_DEVICE, &lab->err), 0);
    assert_int_equal(d->alloc(lab->g, &lab->back, n, GPU_READBACK, &lab->err), 0);
    assert_int_equal(d->kernel(lab->g, "k_blit", &lab->blit, &lab->err), 0);
}

static void close_lab(struct lab *lab)
{
    lab->d->free(lab->g, lab->up);
    lab->d->free(lab->g, lab->a);
    lab->d->free(lab->g, lab->b);
    lab->d->free(lab->g, lab->back);
    lab->d->close(lab->g);
    const struct standin *s = standin_of(lab->d);
    if (s) assert_int_equal(s->alive, 0);
}

static struct gpu_command copy(struct gpu_buf *dst, struct gpu_buf *src, u64 n)
{
    return (struct gpu_command){
        .kind = GPU_COPY, .after = true, .dst = {dst, 0}, .src = {src, 0}, .n_bytes = n};
}

static struct gpu_command blit(const struct lab *lab, struct gpu_buf *dst, struct gpu_buf *src)
{
    struct blit_args args = {N_WORDS};
    struct gpu_command c = {.kind = GPU_LAUNCH,
                            .after = true,
                            .kernel = lab->blit,
                            .groups = {3, 1, 1},
                            .threads = BLIT_THREADS,
                            .n_bufs = 2,
                            .bufs = {{src, 0}, {dst, 0}},
                            .n_args = sizeof args};
    memcpy(c.args, &args, sizeof args);
    return c;
}

/* up → a → b → back, the middle one by a kernel */
static struct gpu_list *record_chain(struct lab *lab)
{
    struct gpu_command c[] = {copy(lab->a, lab->up, N_WORDS * 4), blit(lab, lab->b, lab->a),
                              copy(lab->back, lab->b, N_WORDS * 4)};
    struct gpu_list *list;
    assert_int_equal(lab->d->record(lab->g, &list, c, ARRAY_LEN(c), &lab->err), 0);
    return list;
}

static void fill(u32 *p, u32 seed)
{
    for (u32 i = 0; i < N_WORDS; i++) p[i] = i * 2654435761u + seed;
}

static void check_step(struct lab *lab, struct gpu_list *list, u32 seed)
{
    u32 *up = lab->d->map(lab->up), *back = lab->d->map(lab->back);
    fill(up, seed);
    assert_int_equal(lab->d->submit(lab->g, list, &lab->err), 0);
    assert_int_equal(lab->d->wait(lab->g, &lab->err), 0);
    assert_memory_equal(back, up, N_WORDS * 4);
    for (u32 i = 0; i < GUARD; i++) assert_int_equal(back[N_WORDS + i], 0);
}

static void check_contract(const struct gpu_driver *d)
{
    struct lab lab;
    open_lab(&lab, d);
    struct gpu_info info;
    d->info(lab.g, &info);
    assert_true(info.name[0] && info.memory > 0 && info.max_buffer > 0);
    assert_null(d->map(lab.a));

    u32 *host = malloc(N_WORDS * 4), *seen = malloc(N_WORDS * 4);
    assert_int_equal(d->read(lab.g, lab.a, GUARD * 4, seen, N_WORDS * 4, &lab.err), 0);
    for (u32 i = 0; i < N_WORDS; i++) assert_int_equal(seen[i], 0); /* as allocated */
    fill(host, 7);
    assert_int_equal(d->write(lab.g, lab.a, GUARD * 4, host, N_WORDS * 4, &lab.err), 0);
    assert_int_equal(d->read(lab.g, lab.a, GUARD * 4, seen, N_WORDS * 4, &lab.err), 0);
    assert_memory_equal(seen, host, N_WORDS * 4);
    free(host);
    free(seen);

    u32 id;
    assert_true(d->kernel(lab.g, "k_nonsense", &id, &lab.err) < 0);
    assert_non_null(strstr(lab.err.text, "k_nonsense"));

    struct gpu_list *list = record_chain(&lab);
    struct gpu_counters before, after;
    d->counters(lab.g, &before);
    for (u32 i = 1; i <= 5; i++) check_step(&lab, list, i);
    d->counters(lab.g, &after);
    assert_int_equal(after.submissions - before.submissions, 5);
    assert_int_equal(after.waits - before.waits, 5);
    assert_int_equal(after.dispatches - before.dispatches, 5);
    assert_int_equal(after.copies - before.copies, 10);
    assert_int_equal(after.buffers_made, before.buffers_made);
    assert_int_equal(after.kernels_made, before.kernels_made);
    if (d->profile) {
        double us[3] = {-1, -1, -1};
        assert_int_equal(d->profile(lab.g, list, us, &lab.err), 0);
        for (u32 i = 0; i < 3; i++) assert_true(us[i] >= 0);
    }
    d->drop(lab.g, list);
    close_lab(&lab);
}

/* Two lists in the queue: the second finds what the first left. */
static void check_order(const struct gpu_driver *d)
{
    struct lab lab;
    open_lab(&lab, d);
    struct gpu_command first[] = {copy(lab.a, lab.up, N_WORDS * 4)};
    struct gpu_command second[] = {blit(&lab, lab.b, lab.a), copy(lab.back, lab.b, N_WORDS * 4)};
    struct gpu_list *one, *two;
    assert_int_equal(d->record(lab.g, &one, first, 1, &lab.err), 0);
    assert_int_equal(d->record(lab.g, &two, second, 2, &lab.err), 0);
    fill(d->map(lab.up), 3);
    assert_int_equal(d->submit(lab.g, one, &lab.err), 0);
    assert_int_equal(d->submit(lab.g, two, &lab.err), 0);
    assert_int_equal(d->wait(lab.g, &lab.err), 0);
    assert_int_equal(d->wait(lab.g, &lab.err), 0);
    assert_memory_equal(d->map(lab.back), d->map(lab.up), N_WORDS * 4);
    d->drop(lab.g, one);
    d->drop(lab.g, two);
    close_lab(&lab);
}

/* Contraction, rounding, conversions and logarithms of numbers that the device may flush. */
static void check_arithmetic(const struct gpu_driver *d)
{
    struct lab lab;
    bool flushes = false;
    open_lab(&lab, d);
    if (gpu_check_arithmetic(d, lab.g, &flushes, &lab.err))
        fail_msg("%s: %s", d->name, lab.err.text);
    if (d == &driver_emu) assert_true(flushes); /* as on a Mac, so that tests see it */
    close_lab(&lab);
}

static void check_driver(const struct gpu_driver *d)
{
    check_contract(d);
    check_order(d);
    check_arithmetic(d);
}

static void emulator_keeps_the_contract(void **state)
{
    (void)state;
    check_driver(&driver_emu);
    check_driver(&driver_emu_checked);
}

static void gpus_keep_the_contract(void **state)
{
    (void)state;
    bool metal = metal_driver && !metal_driver->absent(), cuda = !driver_cuda.absent();
    if (!metal && !cuda) skip();
    if (metal) check_driver(metal_driver);
    if (cuda) check_driver(&driver_cuda);
}

static u32 wrong_bits;

/* The first result of the self-test as it is where a product and a sum are fused, and so on. */
static int read_wrong(struct gpu *g, struct gpu_buf *b, u64 offset, void *dst, u64 n,
                      struct err *err)
{
    int rc = driver_emu.read(g, b, offset, dst, n, err);
    memcpy(dst, &wrong_bits, sizeof wrong_bits);
    return rc;
}

static void arithmetic_that_differs_is_named(void **state)
{
    (void)state;
    struct gpu_driver wrong = driver_emu;
    struct lab lab;
    wrong.read = read_wrong;
    open_lab(&lab, &wrong);
    wrong_bits = 0x3a000400;
    assert_int_equal(gpu_check_arithmetic(&wrong, lab.g, NULL, &lab.err), FLETCH_E_BACKEND);
    assert_non_null(strstr(lab.err.text, "rounded twice is 0x3a000400 instead of 0x3a000000"));
    wrong_bits = 0x3a000000;
    assert_int_equal(gpu_check_arithmetic(&wrong, lab.g, NULL, &lab.err), 0);
    close_lab(&lab);
}

/* Nothing is seen before the wait: emulator and stand-ins do the work there and not sooner. */
static void work_is_done_at_the_wait(void **state)
{
    (void)state;
    struct lab lab;
    open_lab(&lab, &driver_emu);
    struct gpu_list *list = record_chain(&lab);
    fill(lab.d->map(lab.up), 9);
    assert_int_equal(lab.d->submit(lab.g, list, &lab.err), 0);
    assert_int_equal(((u32 *)lab.d->map(lab.back))[1], 0);
    assert_int_equal(lab.d->wait(lab.g, &lab.err), 0);
    assert_int_not_equal(((u32 *)lab.d->map(lab.back))[1], 0);
    lab.d->drop(lab.g, list);
    close_lab(&lab);
}

static void lists_are_checked_when_recorded(void **state)
{
    (void)state;
    struct lab lab;
    open_lab(&lab, &driver_emu);
    struct gpu_list *list;
    struct gpu_command c = blit(&lab, lab.b, lab.a);
    c.n_bufs = 1;
    assert_int_equal(lab.d->record(lab.g, &list, &c, 1, &lab.err), FLETCH_E_INTERNAL);
    c = blit(&lab, lab.b, lab.a);
    c.threads = BLIT_THREADS + 32;
    assert_int_equal(lab.d->record(lab.g, &list, &c, 1, &lab.err), FLETCH_E_INTERNAL);
    c = copy(lab.b, lab.a, (N_WORDS + GUARD + 1) * 4);
    assert_int_equal(lab.d->record(lab.g, &list, &c, 1, &lab.err), FLETCH_E_INTERNAL);
    close_lab(&lab);
}

/* By the stand-ins' own count, and nothing is made once a list is recorded. */
static void a_step_is_one_submission_and_one_wait(void **state)
{
    (void)state;
    const struct gpu_driver *drivers[2];
    u32 n = on_standins(drivers);
    if (n == 0) skip();
    for (u32 i = 0; i < n; i++) {
        const struct standin *s = standin_of(drivers[i]);
        struct lab lab;
        open_lab(&lab, drivers[i]);
        struct gpu_list *list = record_chain(&lab);
        check_step(&lab, list, 1);
        struct standin before = *s;
        check_step(&lab, list, 2);
        check_step(&lab, list, 3);
        assert_int_equal(s->submissions - before.submissions, 2);
        assert_int_equal(s->waits - before.waits, 2);
        assert_int_equal(s->dispatches - before.dispatches, 6);
        assert_int_equal(s->buffers, before.buffers);
        assert_int_equal(s->pipelines, before.pipelines);
        assert_int_equal(s->alive, before.alive);
        lab.d->drop(lab.g, list);
        close_lab(&lab);
    }
}

/* A chain of n blits, each of so much work: up → a → b → a → … */
static struct gpu_list *record_blits(struct lab *lab, u32 n, double work)
{
    struct gpu_command *c = calloc(n, sizeof *c);
    struct gpu_list *list;
    for (u32 i = 0; i < n; i++) {
        struct gpu_buf *pair[2] = {lab->a, lab->b};
        c[i] = blit(lab, i + 1 == n ? lab->back : pair[i % 2], i ? pair[(i + 1) % 2] : lab->up);
        c[i].work = work;
    }
    assert_int_equal(lab->d->record(lab->g, &list, c, n, &lab->err), 0);
    free(c);
    return list;
}

static void parts_of_a_list_do_so_much_work(void **state)
{
    (void)state;
    struct gpu_command c[5] = {{.work = 3}, {.work = 1}, {.work = 9}, {.work = 0}, {.work = 2}};
    assert_int_equal(gpu_list_part(c, 0, 5, 4), 2);
    assert_int_equal(gpu_list_part(c, 2, 5, 4), 3); /* one that is too long by itself */
    assert_int_equal(gpu_list_part(c, 3, 5, 4), 5);
    assert_int_equal(gpu_list_part(c, 0, 5, 100), 5);
    assert_int_equal(gpu_list_part(c, 5, 5, 4), 5);
}

enum { N_BLITS = 9, BLIT_ALL = 3 * BLIT_THREADS }; /* threads of a blit */

/* macOS stops a command buffer that takes too long: here one of more than two blits. */
static void metal_cuts_long_lists(void **state)
{
    (void)state;
    struct standin *s = STANDIN_METAL;
    if (!metal_driver || !s) skip();
    struct lab lab;
    struct gpu_counters did[2];
    s->cores = 10;
    open_lab(&lab, metal_driver);
    struct gpu_list *list = record_blits(&lab, N_BLITS, 45e9); /* 45 ms of ten cores */
    struct gpu_list *uncut = record_blits(&lab, N_BLITS, 0);
    s->most_threads = 2 * BLIT_ALL;
    u64 before = s->submissions, waits = s->waits;
    lab.d->counters(lab.g, &did[0]);
    check_step(&lab, list, 5);
    lab.d->counters(lab.g, &did[1]);
    assert_int_equal(s->submissions - before, (N_BLITS + 1) / 2);
    assert_int_equal(s->waits - waits, 1);
    assert_int_equal(did[1].submissions - did[0].submissions, 1);
    assert_int_equal(did[1].command_buffers - did[0].command_buffers, (N_BLITS + 1) / 2);
    assert_true(did[1].longest_us > 0);

    assert_int_equal(lab.d->submit(lab.g, uncut, &lab.err), 0);
    assert_int_equal(lab.d->wait(lab.g, &lab.err), FLETCH_E_BACKEND);
    assert_non_null(strstr(lab.err.text, "Interactivity"));
    s->most_threads = 0;
    lab.d->drop(lab.g, list);
    lab.d->drop(lab.g, uncut);
    close_lab(&lab);

    /* Half as many cores, half as much work; and never more than MAX_PARTS of the driver's. */
    s->cores = 5;
    open_lab(&lab, metal_driver);
    struct gpu_info info;
    lab.d->info(lab.g, &info);
    assert_int_equal(info.caps.n_units, 5);
    list = record_blits(&lab, N_BLITS, 45e9);
    uncut = record_blits(&lab, 300, 45e9);
    before = s->submissions;
    check_step(&lab, list, 6);
    assert_int_equal(s->submissions - before, N_BLITS);
    before = s->submissions;
    check_step(&lab, uncut, 7);
    assert_true(s->submissions - before > 64 && s->submissions - before <= 128);
    s->cores = 0;
    lab.d->drop(lab.g, list);
    lab.d->drop(lab.g, uncut);
    close_lab(&lab);
}

/* macOS stops a command buffer of more than one group here: each launch of three becomes three. */
static void metal_cuts_long_launches(void **state)
{
    (void)state;
    struct standin *s = STANDIN_METAL;
    if (!metal_driver || !s) skip();
    enum { N = 3, GROUPS = BLIT_ALL / BLIT_THREADS };
    struct lab lab;
    double us[N] = {0};
    open_lab(&lab, metal_driver);
    struct gpu_list *list = record_blits(&lab, N, 1e13), *whole = record_blits(&lab, N, 0);
    s->most_threads = BLIT_THREADS;
    u64 before = s->submissions, barriers = s->barriers;
    check_step(&lab, list, 5);
    assert_int_equal(s->submissions - before, N * GROUPS);
    assert_int_equal(s->barriers - barriers, 0); /* the fence is enough */
    s->most_threads = 0;
    assert_int_equal(lab.d->profile(lab.g, list, us, &lab.err), 0);
    for (u32 i = 0; i < N; i++) assert_true(us[i] > 0); /* of the three given */
    before = s->submissions;
    check_step(&lab, whole, 6);
    assert_int_equal(s->submissions - before, 1);
    lab.d->drop(lab.g, list);
    lab.d->drop(lab.g, whole);
    close_lab(&lab);
}

/* Rows are cut where those are what a launch has many of. */
static void metal_cuts_along_the_longest_axis(void **state)
{
    (void)state;
    struct standin *s = STANDIN_METAL;
    if (!metal_driver || !s) skip();
    enum { ROWS = N_WORDS / COLUMNS_THREADS, WORDS = ROWS * COLUMNS_THREADS };
    struct lab lab;
    open_lab(&lab, metal_driver);
    struct copy_args a = {
        .n = COLUMNS_THREADS, .rows = 1, .x_pitch = COLUMNS_THREADS, .y_pitch = COLUMNS_THREADS};
    struct gpu_command c = {.work = 1e13,
                            .groups = {1, ROWS, 1},
                            .threads = COLUMNS_THREADS,
                            .n_bufs = 4,
                            .bufs = {{lab.up, 0}, {lab.up, 0}, {lab.up, 0}, {lab.back, 0}},
                            .n_args = sizeof a};
    struct gpu_list *list;
    u32 *up = lab.d->map(lab.up), *back = lab.d->map(lab.back);
    memcpy(c.args, &a, sizeof a);
    fill(up, 5); /* the second word, of HEAD too, is large */
    assert_int_equal(lab.d->kernel(lab.g, "k_copy", &c.kernel, &lab.err), 0);
    assert_int_equal(lab.d->record(lab.g, &list, &c, 1, &lab.err), 0);
    u64 before = s->submissions;
    s->most_threads = COLUMNS_THREADS;
    assert_int_equal(lab.d->submit(lab.g, list, &lab.err), 0);
    assert_int_equal(lab.d->wait(lab.g, &lab.err), 0);
    s->most_threads = 0;
    assert_int_equal(s->submissions - before, ROWS);
    assert_memory_equal(up, back, WORDS * sizeof *up);
    lab.d->drop(lab.g, list);
    close_lab(&lab);
}

/* The first part of a list is too long, the last is not. */
static void the_error_of_any_part_is_told(void **state)
{
    (void)state;
    struct standin *s = STANDIN_METAL;
    if (!metal_driver || !s) skip();
    struct lab lab;
    open_lab(&lab, metal_driver);
    struct gpu_command c[3];
    struct gpu_list *list;
    for (u32 i = 0; i < ARRAY_LEN(c); i++) {
        c[i] = blit(&lab, lab.a, lab.up);
        c[i].work = i < 2 ? 0 : 1e15;
    }
    assert_int_equal(lab.d->record(lab.g, &list, c, ARRAY_LEN(c), &lab.err), 0);
    s->most_threads = BLIT_ALL;
    assert_int_equal(lab.d->submit(lab.g, list, &lab.err), 0);
    assert_int_equal(lab.d->wait(lab.g, &lab.err), FLETCH_E_BACKEND);
    assert_non_null(strstr(lab.err.text, "Interactivity"));
    s->most_threads = 0;
    assert_int_equal(lab.d->submit(lab.g, list, &lab.err), 0);
    assert_int_equal(lab.d->wait(lab.g, &lab.err), 0);
    lab.d->drop(lab.g, list);
    close_lab(&lab);
}

/* Where the GPU has nothing to do, it gets the first fifth while the rest is encoded. */
static void an_idle_gpu_starts_early(void **state)
{
    (void)state;
    struct standin *s = STANDIN_METAL;
    if (!metal_driver || !s) skip();
    struct lab lab;
    open_lab(&lab, metal_driver);
    struct gpu_list *list = record_blits(&lab, 100, 0);
    u64 before = s->submissions;
    fill(lab.d->map(lab.up), 8);
    assert_int_equal(lab.d->submit(lab.g, list, &lab.err), 0);
    assert_int_equal(s->submissions - before, 2);
    assert_int_equal(lab.d->submit(lab.g, list, &lab.err), 0); /* busy: one is enough */
    assert_int_equal(s->submissions - before, 3);
    assert_int_equal(lab.d->wait(lab.g, &lab.err), 0);
    assert_int_equal(lab.d->wait(lab.g, &lab.err), 0);
    assert_memory_equal(lab.d->map(lab.back), lab.d->map(lab.up), N_WORDS * 4);
    lab.d->drop(lab.g, list);
    close_lab(&lab);
}

/* Half of all memory, twice, and then a step. */
static void freed_memory_is_there_for_the_next_model(void **state)
{
    (void)state;
    struct standin *s = STANDIN_METAL;
    if (!metal_driver || !s) skip();
    struct lab lab;
    struct gpu_info before, after;
    s->working_set = 1 << 20;
    for (u32 model = 0; model < 2; model++) {
        open_lab(&lab, metal_driver);
        struct gpu_buf *b;
        struct gpu_list *list = record_chain(&lab);
        lab.d->info(lab.g, &before);
        for (u32 i = 0; i < 3; i++) {
            assert_int_equal(lab.d->alloc(lab.g, &b, 600000, GPU_DEVICE, &lab.err), 0);
            check_step(&lab, list, i);
            lab.d->free(lab.g, b);
        }
        lab.d->info(lab.g, &after);
        assert_int_equal(after.memory_free, before.memory_free);
        lab.d->drop(lab.g, list);
        close_lab(&lab);
        assert_int_equal(s->residency_sets, 0);
    }
    s->working_set = 0;
}

/* Each is at most a twentieth of a million bytes, unless it is one buffer. */
static void memory_is_wired_in_several_sets(void **state)
{
    (void)state;
    struct standin *s = STANDIN_METAL;
    if (!metal_driver || !s) skip();
    enum { N = 40, LARGE = 100000, SMALL = 20000 };
    struct lab lab;
    struct gpu_buf *bufs[N + 1];
    s->working_set = 1 << 20;
    open_lab(&lab, metal_driver);
    struct gpu_list *list = record_chain(&lab);
    check_step(&lab, list, 1);
    u64 sets = s->residency_sets, requests = s->residency_requests;
    assert_true(sets >= 1);
    check_step(&lab, list, 2); /* nothing changed: nothing is wired anew */
    assert_int_equal(s->residency_requests, requests);
    assert_int_equal(lab.d->alloc(lab.g, &bufs[N], LARGE, GPU_DEVICE, &lab.err), 0);
    assert_int_equal(s->residency_sets, sets + 1);
    for (u32 i = 0; i < N; i++)
        assert_int_equal(lab.d->alloc(lab.g, &bufs[i], SMALL, GPU_DEVICE, &lab.err), 0);
    assert_true(s->residency_sets >= sets + N / 2 && s->residency_sets <= 32);
    check_step(&lab, list, 3);
    requests = s->residency_requests;
    lab.d->free(lab.g, bufs[0]); /* makes room in one set for what comes next */
    sets = s->residency_sets;
    assert_int_equal(lab.d->alloc(lab.g, &bufs[0], SMALL, GPU_DEVICE, &lab.err), 0);
    assert_int_equal(s->residency_sets, sets);
    check_step(&lab, list, 4);
    assert_int_equal(s->residency_requests, requests + 1);
    for (u32 i = 0; i <= N; i++) lab.d->free(lab.g, bufs[i]);

    /* Two don't fit into a set: there are more than sets may be. */
    for (u32 i = 0; i < 33; i++)
        assert_int_equal(lab.d->alloc(lab.g, &bufs[i], 30000, GPU_DEVICE, &lab.err), 0);
    assert_int_equal(s->residency_sets, 32);
    check_step(&lab, list, 5);
    for (u32 i = 0; i < 33; i++) lab.d->free(lab.g, bufs[i]);
    lab.d->drop(lab.g, list);
    close_lab(&lab);
    s->working_set = 0;
}

/* Until the sets were asked for n times more; a thread does it twice a second. */
static bool is_asked(const struct standin *s, u64 n)
{
    const volatile u64 *requests = &s->residency_requests;
    u64 end = *requests + n;
    for (u32 i = 0; i < 400 && *requests < end; i++) usleep(10000);
    return *requests >= end;
}

static void memory_is_kept_while_a_model_is_in_use(void **state)
{
    (void)state;
    const struct standin *s = STANDIN_METAL;
    if (!metal_driver || !s) skip();
    struct lab lab;
    open_lab(&lab, metal_driver);
    struct gpu_list *list = record_chain(&lab);
    check_step(&lab, list, 1);
    assert_int_equal(lab.d->keep_alive(lab.g, 180, &lab.err), 0);
    assert_true(is_asked(s, 2));
    check_step(&lab, list, 2);
    lab.d->drop(lab.g, list);
    close_lab(&lab);

    /* Used long ago: nothing is asked for, until the next step. */
    open_lab(&lab, metal_driver);
    list = record_chain(&lab);
    check_step(&lab, list, 1);
    assert_int_equal(lab.d->keep_alive(lab.g, 0.1, &lab.err), 0);
    usleep(650000);
    u64 before = s->residency_requests;
    usleep(600000);
    assert_int_equal(s->residency_requests, before);
    for (u32 i = 0; i < 200 && s->residency_requests == before; i++) {
        check_step(&lab, list, i);
        usleep(10000);
    }
    assert_true(s->residency_requests > before);
    lab.d->drop(lab.g, list);
    close_lab(&lab);
}

static void older_systems_have_no_sets(void **state)
{
    (void)state;
    struct standin *s = STANDIN_METAL;
    if (!metal_driver || !s) skip();
    struct lab lab;
    s->fault = STANDIN_OLD_SYSTEM;
    open_lab(&lab, metal_driver);
    struct gpu_list *list = record_chain(&lab);
    check_step(&lab, list, 1);
    assert_int_equal(s->residency_sets, 0);
    lab.d->drop(lab.g, list);
    close_lab(&lab);
    s->fault = STANDIN_FINE;
}

/* The last word of a buffer of five: its driver has a vector's bytes behind it. */
static void a_vector_lies_behind_every_offset(void **state)
{
    (void)state;
    if (!metal_driver || !STANDIN_METAL) skip();
    struct lab lab;
    struct gpu_buf *b;
    struct gpu_list *list;
    u32 word = 77;
    open_lab(&lab, metal_driver);
    assert_int_equal(lab.d->alloc(lab.g, &b, 20, GPU_DEVICE, &lab.err), 0);
    assert_int_equal(lab.d->write(lab.g, b, 16, &word, 4, &lab.err), 0);
    struct gpu_command c = {
        .kind = GPU_COPY, .dst = {lab.back, 0}, .src = {b, 16}, .n_bytes = sizeof word};
    assert_int_equal(lab.d->record(lab.g, &list, &c, 1, &lab.err), 0);
    assert_int_equal(lab.d->submit(lab.g, list, &lab.err), 0);
    assert_int_equal(lab.d->wait(lab.g, &lab.err), 0);
    assert_int_equal(*(u32 *)lab.d->map(lab.back), word);
    lab.d->drop(lab.g, list);
    lab.d->free(lab.g, b);
    close_lab(&lab);
}

/* A device that is opened, a kernel more, and closed: what was made, and what an archive had. */
static void use_archive(const struct standin *s, const char *folder, u64 *made, u64 *archived)
{
    struct standin before = *s;
    struct lab lab;
    u32 id;
    lab = (struct lab){.d = metal_driver};
    assert_int_equal(metal_driver->open(&lab.g, 0, &lab.err), 0);
    assert_int_equal(s->libraries - before.libraries, 1); /* the file of k_blit, not all of them */
    metal_driver->cache(lab.g, folder);
    assert_int_equal(metal_driver->kernel(lab.g, "k_edit", &id, &lab.err), 0);
    assert_int_equal(metal_driver->kernel(lab.g, "k_copy", &id, &lab.err), 0);
    assert_int_equal(s->libraries - before.libraries, 2);
    metal_driver->close(lab.g);
    assert_int_equal(s->alive, 0);
    *made = s->pipelines - before.pipelines;
    *archived = s->archived - before.archived;
}

static void compiled_kernels_are_kept(void **state)
{
    (void)state;
    const struct standin *s = STANDIN_METAL;
    if (!metal_driver || !s) skip();
    char folder[] = "/tmp/fletch-archive-XXXXXX", path[300];
    u64 made, archived;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/metal-%s", folder, layout_kernels());
    const char *const left[] = {"metal-older", "metal-older.12", "metal-new.13", "layouts-other"};
    char paths[ARRAY_LEN(left)][300];
    for (u32 i = 0; i < ARRAY_LEN(left); i++) { /* of another build, of processes, and no archive */
        snprintf(paths[i], sizeof paths[i], "%s/%s", folder, left[i]);
        FILE *f = fopen(paths[i], "w");
        assert_non_null(f);
        fclose(f);
    }
    const struct timespec yesterday[2] = {{time(NULL) - 86400, 0}, {time(NULL) - 86400, 0}};
    assert_int_equal(utimensat(AT_FDCWD, paths[1], yesterday, 0), 0);
    use_archive(s, folder, &made, &archived);
    assert_int_equal(made, 3);
    assert_int_equal(archived, 0);
    for (u32 i = 0; i < ARRAY_LEN(left); i++)
        assert_int_equal(access(paths[i], F_OK), i < 2 ? -1 : 0);
    assert_int_equal(remove(paths[2]) | remove(paths[3]), 0);
    use_archive(s, folder, &made, &archived);
    assert_int_equal(made, 3);
    assert_int_equal(archived, 2);

    FILE *f = fopen(path, "w"); /* a damaged one is made anew */
    assert_non_null(f);
    fputs("garbage", f);
    fclose(f);
    use_archive(s, folder, &made, &archived);
    assert_int_equal(archived, 0);
    use_archive(s, folder, &made, &archived);
    assert_int_equal(archived, 2);
    assert_int_equal(remove(path), 0);
    assert_int_equal(rmdir(folder), 0);       /* and nothing else is left there */
    use_archive(s, folder, &made, &archived); /* a folder that is gone: nothing is kept */
    assert_int_equal(made, 3);
}

/* A GPU that has them, one whose compiler does not know them, one that multiplies wrongly. */
static void tensor_operations_are_tried_out(void **state)
{
    (void)state;
    struct standin *s = STANDIN_METAL;
    if (!metal_driver || !s) skip();
    for (enum standin_tensor kind = STANDIN_TENSOR_NONE; kind <= STANDIN_TENSOR_WRONG; kind++) {
        struct lab lab = {.d = metal_driver};
        struct gpu_info info;
        u64 libraries = s->libraries;
        s->tensor = kind;
        assert_int_equal(metal_driver->open(&lab.g, 0, &lab.err), 0);
        metal_driver->info(lab.g, &info);
        assert_int_equal(info.caps.tensor, kind == STANDIN_TENSOR_FINE);
        assert_int_equal(info.api, kind == STANDIN_TENSOR_NONE ? 7 : 10);
        assert_int_equal(s->libraries - libraries,
                         1 + (kind == STANDIN_TENSOR_FINE || kind == STANDIN_TENSOR_WRONG));
        metal_driver->close(lab.g);
        assert_int_equal(s->alive, 0);
    }
    s->tensor = STANDIN_TENSOR_NONE;
}

/* As over ssh, where no display is there to have a default device. */
static void any_device_is_better_than_none(void **state)
{
    (void)state;
    struct standin *s = STANDIN_METAL;
    if (!metal_driver || !s) skip();
    struct lab lab;
    s->fault = STANDIN_NO_DEFAULT;
    assert_null(metal_driver->absent());
    open_lab(&lab, metal_driver);
    s->fault = STANDIN_FINE;
    close_lab(&lab);
}

static void metal_captures_on_demand(void **state)
{
    (void)state;
    const struct standin *seen = STANDIN_METAL;
    if (!metal_driver || !seen) skip();
    struct lab lab;
    char folder[] = "/tmp/fletch-capture-XXXXXX", path[300];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/step.gputrace", folder);
    open_lab(&lab, metal_driver);
    struct gpu_list *list = record_chain(&lab);
    u64 before = seen->captures;
    unsetenv("MTL_CAPTURE_ENABLED");
    assert_int_equal(lab.d->capture(lab.g, path, &lab.err), FLETCH_E_BACKEND);
    assert_non_null(strstr(lab.err.text, "MTL_CAPTURE_ENABLED=1"));
    setenv("MTL_CAPTURE_ENABLED", "1", 1);
    assert_int_equal(lab.d->capture(lab.g, path, &lab.err), 0);
    check_step(&lab, list, 1);
    assert_int_equal(lab.d->capture(lab.g, NULL, &lab.err), 0);
    assert_int_equal(seen->captures - before, 1);
    assert_int_equal(lab.d->capture(lab.g, path, &lab.err), FLETCH_E_BACKEND); /* it is there */
    assert_non_null(strstr(lab.err.text, "step.gputrace"));
    assert_int_equal(remove(path), 0);
    assert_int_equal(rmdir(folder), 0);
    lab.d->drop(lab.g, list);
    close_lab(&lab);
}

static void opening_fails_with_a_reason(void **state)
{
    (void)state;
    static const struct {
        enum standin_fault fault;
        const char *metal, *cuda;
    } cases[] = {{STANDIN_NO_DEVICE, "no Metal device", "found no GPU"},
                 {STANDIN_OLD_DEVICE, "Apple7", "sm_30"},
                 {STANDIN_BAD_TEXT, "kernal", "loading the kernels"}};
    const struct gpu_driver *drivers[2];
    u32 n = on_standins(drivers);
    if (n == 0) skip();
    for (u32 i = 0; i < n * ARRAY_LEN(cases); i++) {
        const struct gpu_driver *d = drivers[i % n];
        struct standin *s = standin_of(d);
        struct gpu *g;
        struct err err = {0};
        s->fault = cases[i / n].fault;
        assert_int_equal(d->open(&g, 0, &err), FLETCH_E_BACKEND);
        s->fault = STANDIN_FINE;
        assert_null(g);
        if (!strstr(err.text, d == metal_driver ? cases[i / n].metal : cases[i / n].cuda))
            fail_msg("%s: %s", d->name, err.text);
        assert_int_equal(s->alive, 0);
        assert_int_equal(d->open(&g, 99, &err), FLETCH_E_ARG);
    }
}

static void no_memory_is_no_crash(void **state)
{
    (void)state;
    const struct gpu_driver *drivers[2];
    u32 n = on_standins(drivers);
    if (n == 0) skip();
    for (u32 i = 0; i < n; i++) {
        struct lab lab;
        open_lab(&lab, drivers[i]);
        struct gpu_buf *b;
        standin_of(lab.d)->fault = STANDIN_NO_MEMORY;
        assert_int_equal(lab.d->alloc(lab.g, &b, 64, GPU_DEVICE, &lab.err), FLETCH_E_NOMEM);
        assert_int_equal(lab.d->alloc(lab.g, &b, 64, GPU_UPLOAD, &lab.err), FLETCH_E_NOMEM);
        standin_of(lab.d)->fault = STANDIN_FINE;
        u64 much = (u64)1 << 40;
        assert_int_equal(lab.d->alloc(lab.g, &b, much, GPU_DEVICE, &lab.err), FLETCH_E_NOMEM);
        close_lab(&lab);
    }
}

static void a_lost_device_is_an_error(void **state)
{
    (void)state;
    const struct gpu_driver *drivers[2];
    u32 n = on_standins(drivers);
    if (n == 0) skip();
    for (u32 i = 0; i < n; i++) {
        struct lab lab;
        open_lab(&lab, drivers[i]);
        struct gpu_list *list = record_chain(&lab);
        standin_of(lab.d)->fault = STANDIN_LOST;
        assert_int_equal(lab.d->submit(lab.g, list, &lab.err), 0);
        assert_int_equal(lab.d->wait(lab.g, &lab.err), FLETCH_E_BACKEND);
        assert_non_null(
            strstr(lab.err.text, lab.d == metal_driver ? "removed" : "illegal memory access"));
        standin_of(lab.d)->fault = STANDIN_FINE;
        lab.d->drop(lab.g, list);
        close_lab(&lab);
    }
}

/* For metal_mutate_test: only the tests that a pattern names, or all but those. */
int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "only") == 0) cmocka_set_test_filter(argv[2]);
    if (argc == 3 && strcmp(argv[1], "skip") == 0) cmocka_set_skip_filter(argv[2]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(emulator_keeps_the_contract),
        cmocka_unit_test(arithmetic_that_differs_is_named),
        cmocka_unit_test(work_is_done_at_the_wait),
        cmocka_unit_test(lists_are_checked_when_recorded),
        cmocka_unit_test(gpus_keep_the_contract),
        cmocka_unit_test(a_step_is_one_submission_and_one_wait),
        cmocka_unit_test(parts_of_a_list_do_so_much_work),
        cmocka_unit_test(metal_cuts_long_lists),
        cmocka_unit_test(metal_cuts_long_launches),
        cmocka_unit_test(metal_cuts_along_the_longest_axis),
        cmocka_unit_test(the_error_of_any_part_is_told),
        cmocka_unit_test(an_idle_gpu_starts_early),
        cmocka_unit_test(freed_memory_is_there_for_the_next_model),
        cmocka_unit_test(memory_is_wired_in_several_sets),
        cmocka_unit_test(memory_is_kept_while_a_model_is_in_use),
        cmocka_unit_test(older_systems_have_no_sets),
        cmocka_unit_test(a_vector_lies_behind_every_offset),
        cmocka_unit_test(compiled_kernels_are_kept),
        cmocka_unit_test(tensor_operations_are_tried_out),
        cmocka_unit_test(any_device_is_better_than_none),
        cmocka_unit_test(metal_captures_on_demand),
        cmocka_unit_test(opening_fails_with_a_reason),
        cmocka_unit_test(no_memory_is_no_crash),
        cmocka_unit_test(a_lost_device_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
