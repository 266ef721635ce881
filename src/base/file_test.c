#include "base/file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[64];

static const char *in_dir(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static int n_entries(void)
{
    int n = -2; /* . and .. */
    DIR *d = opendir(dir);
    assert_non_null(d);
    while (readdir(d)) n++;
    closedir(d);
    return n;
}

static void write_file(const char *name, const char *text)
{
    FILE *f = fopen(in_dir(name), "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static int make_dir(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/fletch-file-test-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
    (void)state;
    static const char *const names[] = {"a", "b", "fifo", "empty"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) unlink(in_dir(names[i]));
    return rmdir(dir); /* fails when a test left something behind */
}

static void maps_and_reads_whole_files(void **state)
{
    (void)state;
    struct err err;
    struct file_map m;
    char *p;
    size_t n;
    write_file("a", "weights");
    assert_int_equal(file_map_open(&m, in_dir("a"), &err), 0);
    assert_int_equal(m.n, 7);
    assert_memory_equal(m.p, "weights", 7);
    file_map_close(&m);
    file_map_close(&m);
    assert_int_equal(file_read(&p, &n, in_dir("a"), 7, &err), 0);
    assert_int_equal(n, 7);
    assert_string_equal(p, "weights");
    free(p);
}

static void reads_no_more_than_max(void **state)
{
    (void)state;
    struct err err;
    char *p = "";
    size_t n;
    write_file("a", "weights");
    assert_int_equal(file_read(&p, &n, in_dir("a"), 6, &err), FLETCH_E_LIMIT);
    assert_null(p);
    assert_non_null(strstr(err.text, "has 7 bytes; the limit is 6"));
}

static void empty_files_are_fine(void **state)
{
    (void)state;
    struct err err;
    struct file_map m;
    char *p;
    size_t n = 1;
    write_file("empty", "");
    assert_int_equal(file_map_open(&m, in_dir("empty"), &err), 0);
    assert_int_equal(m.n, 0);
    file_map_close(&m);
    assert_int_equal(file_read(&p, &n, in_dir("empty"), 10, &err), 0);
    assert_int_equal(n, 0);
    assert_string_equal(p, "");
    free(p);
}

/* A pipe must be refused at once: opening one waits for a writer that may never come. */
static void only_regular_files_open(void **state)
{
    (void)state;
    struct err err;
    struct file_map m;
    char *p;
    size_t n;
    assert_int_equal(file_map_open(&m, in_dir("none"), &err), FLETCH_E_IO);
    assert_non_null(strstr(err.text, "No such file"));
    assert_int_equal(file_map_open(&m, dir, &err), FLETCH_E_IO);
    assert_non_null(strstr(err.text, "not a regular file"));
    assert_int_equal(mkfifo(in_dir("fifo"), 0600), 0);
    alarm(5);
    assert_int_equal(file_read(&p, &n, in_dir("fifo"), 10, &err), FLETCH_E_IO);
    alarm(0);
    assert_non_null(strstr(err.text, "not a regular file"));
}

static void tells_files_from_folders(void **state)
{
    (void)state;
    write_file("a", "");
    assert_true(file_is_dir(dir));
    assert_true(file_exists(dir));
    assert_false(file_is_dir(in_dir("a")));
    assert_true(file_exists(in_dir("a")));
    assert_false(file_exists(in_dir("none")));
}

static void output_appears_only_when_committed(void **state)
{
    (void)state;
    struct err err;
    struct file_out *f;
    char *p;
    size_t n;
    unlink(in_dir("b"));
    int before = n_entries();
    mode_t mask = umask(027);
    assert_int_equal(file_out_open(&f, in_dir("b"), FILE_SHARED, &err), 0);
    assert_int_equal(file_out_write(f, "head body", 9, &err), 0);
    assert_int_equal(file_out_pwrite(f, "HEAD", 4, 0, &err), 0);
    assert_int_equal(file_out_write(f, "!", 1, &err), 0); /* pwrite does not move */
    assert_false(file_exists(in_dir("b")));
    assert_int_equal(file_out_commit(f, &err), 0);
    file_out_close(f);
    umask(mask);

    struct stat st;
    assert_int_equal(stat(in_dir("b"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0640);
    assert_int_equal(file_read(&p, &n, in_dir("b"), 100, &err), 0);
    assert_string_equal(p, "HEAD body!");
    free(p);
    assert_int_equal(n_entries(), before + 1);
}

static void abandoned_output_leaves_the_old_file(void **state)
{
    (void)state;
    struct err err;
    struct file_out *f;
    char *p;
    size_t n;
    write_file("b", "old");
    int before = n_entries();
    assert_int_equal(file_out_open(&f, in_dir("b"), FILE_SHARED, &err), 0);
    assert_int_equal(file_out_write(f, "new", 3, &err), 0);
    assert_int_equal(n_entries(), before + 1);
    file_out_close(f);
    assert_int_equal(n_entries(), before);
    assert_int_equal(file_read(&p, &n, in_dir("b"), 100, &err), 0);
    assert_string_equal(p, "old");
    free(p);
}

static void several_may_write_and_the_last_one_stays(void **state)
{
    (void)state;
    struct err err;
    struct file_out *f, *g;
    char *p;
    size_t n;
    unlink(in_dir("b"));
    int before = n_entries();
    assert_int_equal(file_out_open(&f, in_dir("b"), FILE_SHARED, &err), 0);
    assert_int_equal(file_out_open(&g, in_dir("b"), FILE_SHARED, &err), 0);
    assert_int_equal(file_out_write(f, "one", 3, &err), 0);
    assert_int_equal(file_out_write(g, "two", 3, &err), 0);
    assert_int_equal(n_entries(), before + 2);
    assert_int_equal(file_out_commit(g, &err), 0);
    file_out_close(g);
    assert_int_equal(file_out_commit(f, &err), 0);
    file_out_close(f);
    assert_int_equal(n_entries(), before + 1);
    assert_int_equal(file_read(&p, &n, in_dir("b"), 100, &err), 0);
    assert_string_equal(p, "one");
    free(p);
}

static void what_a_killed_writer_left_is_used_again(void **state)
{
    (void)state;
    struct err err;
    struct file_out *f;
    char *p;
    size_t n;
    int status;
    unlink(in_dir("b"));
    int before = n_entries();
    pid_t child = fork();
    if (child == 0) {
        if (file_out_open(&f, in_dir("b"), FILE_SHARED, &err) == 0)
            file_out_write(f, "unfinished", 10, &err);
        raise(SIGKILL);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(n_entries(), before + 1);
    assert_int_equal(file_out_open(&f, in_dir("b"), FILE_SHARED, &err), 0);
    assert_int_equal(n_entries(), before + 1);
    assert_int_equal(file_out_write(f, "whole", 5, &err), 0);
    assert_int_equal(file_out_commit(f, &err), 0);
    file_out_close(f);
    assert_int_equal(n_entries(), before + 1);
    assert_int_equal(file_read(&p, &n, in_dir("b"), 100, &err), 0);
    assert_string_equal(p, "whole");
    free(p);
}

static void output_failures_say_where(void **state)
{
    (void)state;
    struct err err;
    struct file_out *f = NULL;
    file_out_close(f);
    assert_int_equal(file_out_open(&f, in_dir("none/b"), FILE_SHARED, &err), FLETCH_E_IO);
    assert_null(f);
    assert_non_null(strstr(err.text, "none/b"));

    int before = n_entries();
    assert_int_equal(file_out_open(&f, in_dir("folder"), FILE_SHARED, &err), 0);
    assert_int_equal(mkdir(in_dir("folder"), 0700), 0);
    assert_int_equal(file_out_commit(f, &err), FLETCH_E_IO);
    assert_non_null(strstr(err.text, "folder"));
    file_out_close(f);
    assert_int_equal(rmdir(in_dir("folder")), 0);
    assert_int_equal(n_entries(), before);
}

static void folders_are_made_with_those_above(void **state)
{
    (void)state;
    struct err err;
    int before = n_entries();
    assert_int_equal(file_make_dir(in_dir("above/below"), &err), 0);
    assert_int_equal(file_make_dir(in_dir("above/below/"), &err), 0);
    assert_true(file_is_dir(in_dir("above/below")));
    FILE *f = fopen(in_dir("above/file"), "w");
    assert_non_null(f);
    fclose(f);
    assert_int_equal(file_make_dir(in_dir("above/file/x"), &err), FLETCH_E_IO);
    assert_non_null(strstr(err.text, "above/file/x"));
    assert_int_equal(unlink(in_dir("above/file")), 0);
    assert_int_equal(rmdir(in_dir("above/below")), 0);
    assert_int_equal(rmdir(in_dir("above")), 0);
    assert_int_equal(n_entries(), before);
}

static mode_t mode_of(const char *name)
{
    struct stat st;
    assert_int_equal(stat(in_dir(name), &st), 0);
    return st.st_mode & 0777;
}

static void a_private_file_is_never_open_to_others(void **state)
{
    (void)state;
    struct err err;
    struct file_out *f;
    mode_t mask = umask(0);
    for (int i = 0; i < 2; i++) { /* the second time a leftover is there that anyone can read */
        assert_int_equal(file_out_open(&f, in_dir("b"), FILE_PRIVATE, &err), 0);
        assert_int_equal(mode_of("b.fletch0"), 0600);
        assert_int_equal(file_out_commit(f, &err), 0);
        file_out_close(f);
        assert_int_equal(mode_of("b"), 0600);
        write_file("b.fletch0", "left by a kill");
        assert_int_equal(chmod(in_dir("b.fletch0"), 0666), 0);
    }
    assert_int_equal(file_out_open(&f, in_dir("b"), FILE_SHARED, &err), 0);
    assert_int_equal(file_out_commit(f, &err), 0);
    file_out_close(f);
    assert_int_equal(mode_of("b"), 0666);
    umask(mask);
    unlink(in_dir("b"));
}

static bool is_kept(const char *name)
{
    return strncmp(name, "kept", 4) == 0;
}

static void a_private_folder_is_closed_to_others_or_refused(void **state)
{
    (void)state;
    struct err err;
    mode_t mask = umask(0);
    assert_int_equal(file_make_private_dir(in_dir("private"), is_kept, &err), 0);
    assert_int_equal(mode_of("private"), 0700);
    write_file("private/kept1", "a prompt");
    assert_int_equal(chmod(in_dir("private"), 0755) || chmod(in_dir("private/kept1"), 0644), 0);
    assert_int_equal(file_make_private_dir(in_dir("private"), is_kept, &err), 0);
    assert_int_equal(mode_of("private"), 0700);
    assert_int_equal(mode_of("private/kept1"), 0600);

    /* nothing is changed where other things lie too */
    write_file("private/other", "");
    assert_int_equal(chmod(in_dir("private"), 0755) || chmod(in_dir("private/kept1"), 0644), 0);
    assert_int_equal(file_make_private_dir(in_dir("private"), is_kept, &err), FLETCH_E_ARG);
    assert_non_null(strstr(err.text, "mode 755"));
    assert_int_equal(mode_of("private"), 0755);
    assert_int_equal(mode_of("private/kept1"), 0644);
    assert_int_equal(chmod(in_dir("private"), 0700), 0);
    assert_int_equal(file_make_private_dir(in_dir("private"), is_kept, &err), 0);
    assert_int_equal(file_make_private_dir("/tmp", is_kept, &err), FLETCH_E_ARG);

    umask(mask);
    assert_int_equal(unlink(in_dir("private/kept1")) || unlink(in_dir("private/other")), 0);
    assert_int_equal(rmdir(in_dir("private")), 0);
}

static void only_regular_files_are_replaced(void **state)
{
    (void)state;
    struct err err;
    struct file_out *f;
    struct stat st;
    assert_int_equal(mkfifo(in_dir("pipe"), 0600), 0);
    const char *const names[] = {"", dir, in_dir("pipe")};
    int before = n_entries();
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        assert_int_equal(file_out_open(&f, names[i], FILE_SHARED, &err), FLETCH_E_IO);
        assert_null(f);
        assert_non_null(strstr(err.text, "not a regular file"));
    }
    assert_int_equal(n_entries(), before);
    assert_true(stat(in_dir("pipe"), &st) == 0 && S_ISFIFO(st.st_mode));
    assert_int_equal(unlink(in_dir("pipe")), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(maps_and_reads_whole_files),
        cmocka_unit_test(reads_no_more_than_max),
        cmocka_unit_test(empty_files_are_fine),
        cmocka_unit_test(only_regular_files_open),
        cmocka_unit_test(tells_files_from_folders),
        cmocka_unit_test(output_appears_only_when_committed),
        cmocka_unit_test(abandoned_output_leaves_the_old_file),
        cmocka_unit_test(several_may_write_and_the_last_one_stays),
        cmocka_unit_test(what_a_killed_writer_left_is_used_again),
        cmocka_unit_test(output_failures_say_where),
        cmocka_unit_test(folders_are_made_with_those_above),
        cmocka_unit_test(a_private_file_is_never_open_to_others),
        cmocka_unit_test(a_private_folder_is_closed_to_others_or_refused),
        cmocka_unit_test(only_regular_files_are_replaced),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
