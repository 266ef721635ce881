/* The folder of prompts: what was kept comes back, and nothing else ever does. */
#include <dirent.h>
#include <glob.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "serve/store.h"

enum { GRAIN = 4, BYTES = 8, N = 12 };

static char folder[64];
static atomic_uint n_notices;
static i32 text[64];

static void hear(void *ctx, const char *line)
{
    (void)ctx;
    if (*line && !strchr(line, '\n')) n_notices++;
}

static struct store *open_store(u64 key, u64 max_bytes)
{
    struct store *s;
    struct err err;
    struct store_env env = {.dir = folder,
                            .max_bytes = max_bytes,
                            .key = key,
                            .grain = GRAIN,
                            .grain_bytes = BYTES,
                            .notice = hear,
                            .retry_seconds = 0.02};
    if (store_open(&s, &env, &err)) fail_msg("%s", err.text);
    return s;
}

/* The path of any file in the folder, and how many there are. */
static u32 list(char path[128])
{
    DIR *d = opendir(folder);
    u32 n = 0;
    for (struct dirent *e; d && (e = readdir(d));)
        if (e->d_name[0] != '.' && ++n && path)
            snprintf(path, 128, "%.63s/%.60s", folder, e->d_name);
    if (d) closedir(d);
    return n;
}

static int setup(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/fletch-store-%d", (int)getpid());
    for (i32 i = 0; i < (i32)ARRAY_LEN(text); i++) text[i] = i * i;
    n_notices = 0;
    return 0;
}

static int clean(void **state)
{
    (void)state;
    char path[128];
    while (list(path)) unlink(path);
    return rmdir(folder);
}

/* Keeps n tokens, whose blocks are filled with their number; false: it was not wanted. */
static bool keep(struct store *s, u64 salt, u32 n)
{
    struct store_span span = {.n = n};
    u8 *p = store_begin(s, salt, text, &span);
    if (!p) return false;
    for (u32 b = span.first / GRAIN; b < span.n / GRAIN; b++)
        memset(p + (b - span.first / GRAIN) * BYTES, 1 + (int)b, BYTES);
    store_end(s, 0);
    return true;
}

/* Opened anew, so that it is written. */
static void keep_one(u64 key, u64 salt, u32 n)
{
    struct store *s = open_store(key, 1 << 20);
    assert_true(keep(s, salt, n));
    store_close(s);
}

/* How many tokens come back, all with the right bytes. */
static u32 found(struct store *s, u64 salt, const i32 *tokens, u32 n)
{
    u32 have = 0;
    struct stored p;
    while (store_find(s, salt, tokens, n, have, &p)) {
        assert_true(p.first <= have && p.n > have && p.n <= n);
        for (u32 b = p.first / GRAIN; b < p.n / GRAIN; b++)
            for (u32 i = 0; i < BYTES; i++)
                assert_int_equal(p.state[(b - p.first / GRAIN) * BYTES + i], 1 + b);
        have = p.n;
        stored_close(&p);
    }
    return have;
}

static u32 found_later(u64 key, u64 salt)
{
    struct store *s = open_store(key, 1 << 20);
    u32 n = found(s, salt, text, ARRAY_LEN(text));
    store_close(s);
    return n;
}

static void what_was_kept_comes_back_to_its_model_salt_and_tokens(void **state)
{
    (void)state;
    keep_one(7, 0, 8);
    keep_one(7, 0, 16); /* only what is behind the first 8 */
    assert_int_equal(found_later(7, 0), 16);
    assert_int_equal(found_later(7, 1), 0);
    assert_int_equal(found_later(8, 0), 0);
    struct store *s = open_store(7, 1 << 20);
    assert_int_equal(found(s, 0, text, 15), 8);
    i32 other[16];
    memcpy(other, text, sizeof other);
    other[9]++;
    assert_int_equal(found(s, 0, other, 16), 8);
    assert_false(keep(s, 0, 16)); /* it is there */
    store_close(s);
    assert_int_equal(n_notices, 0);
}

static void put(const char *path, const u8 *p, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_true(f && fwrite(p, 1, n, f) == n && fclose(f) == 0);
}

static void a_file_that_is_damaged_anywhere_is_told_of_and_removed(void **state)
{
    (void)state;
    char path[128];
    u8 image[512];
    keep_one(7, 0, N);
    assert_int_equal(list(path), 1);
    FILE *f = fopen(path, "rb");
    size_t n = fread(image, 1, sizeof image, f);
    fclose(f);
    for (size_t i = 0; i < n; i++) {
        image[i] ^= 0x10;
        put(path, image, n);
        image[i] ^= 0x10;
        n_notices = 0;
        assert_int_equal(found_later(7, 0), 0);
        assert_true(n_notices == 1 && list(NULL) == 0);
    }
    for (size_t cut = n - 1; cut > 0; cut -= MIN(cut, 13)) {
        put(path, image, cut);
        n_notices = 0;
        assert_int_equal(found_later(7, 0), 0);
        assert_true(n_notices == 1 && list(NULL) == 0);
    }
    put(path, image, n);
    assert_int_equal(found_later(7, 0), N);
    put(path, image, n - 1);
    struct store *s = open_store(7, 1 << 20);
    assert_int_equal(found(s, 0, text, N), 0);
    assert_true(keep(s, 0, N)); /* and written again */
    store_close(s);
    assert_int_equal(found_later(7, 0), N);
}

/* Whole and of this model, but under the name of other tokens. */
static void a_file_under_another_name_is_ignored(void **state)
{
    (void)state;
    char first[128], second[128];
    keep_one(7, 0, N);
    list(first);
    assert_int_equal(rename(first, "/tmp/fletch-store-aside"), 0);
    keep_one(7, 1, N);
    list(second);
    assert_int_equal(rename("/tmp/fletch-store-aside", second), 0);
    assert_int_equal(found_later(7, 1), 0);
    assert_int_equal(n_notices, 1);
}

static void the_ones_unused_for_longest_make_room(void **state)
{
    (void)state;
    char path[128];
    struct stat st;
    keep_one(7, 0, N);
    list(path);
    assert_int_equal(stat(path, &st), 0);
    u64 room = (u64)st.st_size * 9 / 2; /* of four */
    for (u64 salt = 1; salt < 10; salt++) {
        struct store *s = open_store(7, room);
        assert_int_equal(found(s, 0, text, N), N); /* the first stays in use */
        assert_true(keep(s, salt, N));
        store_close(s);
        usleep(12000); /* a tick of the file system's clock */
        assert_true(list(NULL) <= 4);
    }
    assert_true(found_later(7, 0) == N && found_later(7, 9) == N && found_later(7, 1) == 0);
    struct store *s = open_store(7, 16);
    assert_false(keep(s, 11, N)); /* larger than the folder may be */
    store_close(s);
}

/* Two servers, or two models of one. */
static void who_shares_a_folder_sees_what_others_do(void **state)
{
    (void)state;
    struct stat st;
    char path[128];
    keep_one(7, 0, N);
    list(path);
    assert_int_equal(stat(path, &st), 0);
    u64 room = (u64)st.st_size * 9 / 2; /* of four */
    struct store *a = open_store(7, room), *b = open_store(7, room);
    for (u64 salt = 1; salt < 20; salt++) {
        struct store *s = salt % 2 ? a : b;
        usleep(12000);
        assert_true(keep(s, salt, N));
        store_wait(s);
        usleep(12000); /* a tick of the file system's clock */
        assert_int_equal(found(s == a ? b : a, salt, text, N), N);
        assert_true(list(NULL) <= 4);
    }
    store_close(a);
    u64 n, bytes;
    struct err err;
    assert_int_equal(store_scan(folder, false, &n, &bytes, &err), 0);
    assert_true(n == 4 && bytes == 4 * (u64)st.st_size);
    assert_int_equal(store_scan(folder, true, &n, &bytes, &err), 0); /* while one is open */
    assert_true(n == 4 && list(NULL) == 0);
    assert_int_equal(found(b, 19, text, N), 0);
    assert_true(keep(b, 19, N));
    store_close(b);
    assert_int_equal(found_later(7, 19), N);
    assert_int_equal(n_notices, 0);
}

static void a_long_prefix_is_kept_in_pieces(void **state)
{
    (void)state;
    struct err err;
    struct store *s;
    struct store_env env = {.dir = folder,
                            .max_bytes = 1 << 20,
                            .key = 7,
                            .grain = GRAIN,
                            .grain_bytes = BYTES,
                            .piece_bytes = 3 * BYTES + 1};
    assert_int_equal(store_open(&s, &env, &err), 0);
    for (u32 i = 0; i < 4; i++) {
        struct store_span span = {.n = 40};
        u8 *p = store_begin(s, 0, text, &span);
        assert_true(p && span.first == 12 * i && span.n == MIN(12 * i + 12, 40u));
        assert_int_equal(span.is_left, i < 3);
        for (u32 k = 0; k < (span.n - span.first) / GRAIN * BYTES; k++)
            p[k] = (u8)(1 + span.first / GRAIN + k / BYTES);
        store_end(s, 0);
        struct store_span next = {.n = 40}; /* while it is being written */
        if (!store_is_free(s) && !store_begin(s, 0, text, &next)) assert_true(next.is_left);
        store_wait(s);
    }
    struct store_span span = {.n = 40};
    assert_true(!store_begin(s, 0, text, &span) && !span.is_left);
    assert_int_equal(found(s, 0, text, 64), 40);
    store_close(s);
}

static void wait_for_failures(struct store *s, u64 n)
{
    for (u32 i = 0; i < 10000 && store_failures(s) < n; i++) usleep(1000);
    assert_true(store_failures(s) >= n);
}

/* Keeps tokens under ever new salts until a file is there; gives how many times it was told to. */
static u32 keep_until_written(struct store *s, u64 salt)
{
    u32 n = 0, before = list(NULL);
    for (u32 i = 0; i < 20000 && list(NULL) == before; i++) {
        n += keep(s, salt + i, N);
        usleep(500);
    }
    assert_true(list(NULL) > before);
    return n;
}

static void a_full_disk_is_told_of_once_and_tried_again_later(void **state)
{
    (void)state;
    struct rlimit before, full;
    getrlimit(RLIMIT_FSIZE, &before);
    full = (struct rlimit){16, before.rlim_max};
    struct store *s = open_store(7, 1 << 20);
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &full);
    assert_true(keep(s, 0, N));
    wait_for_failures(s, 1);
    u32 n = 0;
    double until = base_now() + 0.5; /* attempts at 20, 60, 140 and 300 ms */
    for (u64 salt = 1; base_now() < until; salt++, usleep(100)) n += keep(s, salt, N);
    assert_true(n >= 1 && n <= 5);
    setrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, SIG_DFL);
    keep_until_written(s, 1000000);
    store_close(s);
    assert_int_equal(n_notices, 2); /* that it fails, and that it works again */
    assert_int_equal(list(NULL), 1);
}

static void a_folder_that_was_removed_is_made_again(void **state)
{
    (void)state;
    struct stat st;
    struct store *s = open_store(7, 1 << 20);
    keep_until_written(s, 0);
    assert_int_equal(clean(NULL), 0);
    assert_int_equal(found(s, 0, text, N), 0);
    keep_until_written(s, 100);
    assert_int_equal(stat(folder, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    assert_int_equal(n_notices, 0);

    /* a file stands in its place until somebody makes the folder again */
    assert_int_equal(clean(NULL), 0);
    FILE *f = fopen(folder, "w");
    assert_true(f && fclose(f) == 0);
    for (u32 i = 0; i < 1000 && !keep(s, 200, N); i++) usleep(1000); /* the last one may go on */
    wait_for_failures(s, 1);
    assert_int_equal(n_notices, 1);
    assert_int_equal(unlink(folder) || mkdir(folder, 0700), 0);
    keep_until_written(s, 300);
    store_close(s);
    assert_int_equal(n_notices, 2);
}

static void nobody_else_reads_what_is_kept(void **state)
{
    (void)state;
    char path[128];
    struct stat st;
    mode_t mask = umask(0);
    keep_one(7, 0, N);
    list(path);
    assert_true(stat(path, &st) == 0 && (st.st_mode & 0777) == 0600);
    assert_true(stat(folder, &st) == 0 && (st.st_mode & 0777) == 0700);

    /* as an older version left it */
    assert_int_equal(chmod(folder, 0755) || chmod(path, 0644), 0);
    assert_int_equal(found_later(7, 0), N);
    assert_true(stat(path, &st) == 0 && (st.st_mode & 0777) == 0600);
    assert_true(stat(folder, &st) == 0 && (st.st_mode & 0777) == 0700);
    umask(mask);
}

static size_t count_whole(void)
{
    char pattern[80];
    glob_t found_files;
    snprintf(pattern, sizeof pattern, "%s/*.kv", folder);
    size_t n = glob(pattern, 0, NULL, &found_files) ? 0 : found_files.gl_pathc;
    globfree(&found_files);
    return n;
}

/* Killed while it writes, again and again: what is there afterwards is whole. */
static void a_kill_leaves_whole_files(void **state)
{
    (void)state;
    for (u32 i = 0; i < 20; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            struct store *s = open_store(7, 1 << 20);
            for (u64 salt = 1000 * i;;) salt += keep(s, salt, N);
        }
        for (u32 k = 0; k < 20000 && count_whole() <= i; k++) usleep(500);
        usleep(100 * i);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
    struct store *s = open_store(7, 1 << 20);
    u32 n = 0;
    for (u64 salt = 0; salt < 20000; salt++) n += found(s, salt, text, N) == N;
    store_close(s);
    assert_true(n >= 20);
    assert_int_equal(n_notices, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_was_kept_comes_back_to_its_model_salt_and_tokens,
                                        setup, clean),
        cmocka_unit_test_setup_teardown(a_file_that_is_damaged_anywhere_is_told_of_and_removed,
                                        setup, clean),
        cmocka_unit_test_setup_teardown(a_file_under_another_name_is_ignored, setup, clean),
        cmocka_unit_test_setup_teardown(the_ones_unused_for_longest_make_room, setup, clean),
        cmocka_unit_test_setup_teardown(who_shares_a_folder_sees_what_others_do, setup, clean),
        cmocka_unit_test_setup_teardown(a_long_prefix_is_kept_in_pieces, setup, clean),
        cmocka_unit_test_setup_teardown(a_full_disk_is_told_of_once_and_tried_again_later, setup,
                                        clean),
        cmocka_unit_test_setup_teardown(a_folder_that_was_removed_is_made_again, setup, clean),
        cmocka_unit_test_setup_teardown(nobody_else_reads_what_is_kept, setup, clean),
        cmocka_unit_test_setup_teardown(a_kill_leaves_whole_files, setup, clean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
