/* The GGUF reader on good and bad files (test/corpus/make_gguf.py makes them), split sets, and
 * the writer by reading back what it wrote. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "format/gguf.h"

static const char *corpus(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "test/corpus/gguf/%s.gguf", name);
    return path;
}

static struct source *open_good(const char *path)
{
    struct source *s;
    struct err err = {0};
    if (source_open(&s, path, &err)) fail_msg("%s: %s", path, err.text);
    return s;
}

/* The code and a part of the text. */
static void expect_error(const char *path, int code, const char *part)
{
    struct source *s;
    struct err err = {0};
    int rc = source_open(&s, path, &err);
    source_close(s);
    if (rc != code || err.code != code || !strstr(err.text, part))
        fail_msg("%s: %d %s; not %d ...%s...", path, rc, err.text, code, part);
}

static void test_reads_every_value_type(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        i64 value;
    } ints[] = {{"k.u8", 200},       {"k.i8", -100},        {"k.u16", 60000},
                {"k.i16", -30000},   {"k.u32", 4000000000}, {"k.i32", -2000000000},
                {"k.i64", INT64_MIN}};
    struct source *s = open_good(corpus("good-v3"));
    i64 v;
    double d;
    struct str str;
    u64 at = 0;
    assert_int_equal(s->version, 3);
    assert_int_equal(s->n_kvs, 18);
    for (size_t i = 0; i < ARRAY_LEN(ints); i++) {
        const struct kv *kv = source_kv(s, ints[i].key);
        assert_true(kv_int(kv, 0, &v) && v == ints[i].value);
        assert_false(kv_int(kv, 1, &v));
        assert_false(kv_float(kv, 0, &d));
    }
    assert_false(kv_int(source_kv(s, "k.u64"), 0, &v));
    assert_false(kv_int(source_kv(s, "k.bool"), 0, &v));
    assert_false(kv_int(source_kv(s, "k.str"), 0, &v));
    assert_true(kv_float(source_kv(s, "k.f32"), 0, &d) && d == 0.5);
    assert_true(kv_float(source_kv(s, "k.f64"), 0, &d) && d == 1e300);
    const struct kv *kv = source_kv(s, "k.tokens");
    assert_int_equal(kv->n, 3);
    assert_true(kv_next_str(kv, &at, &str) && str_is(str, "<s>"));
    assert_true(kv_next_str(kv, &at, &str) && str.n == 0);
    assert_true(kv_next_str(kv, &at, &str) && str_eq(str, STR("a\0b\xff")));
    assert_false(kv_next_str(kv, &at, &str));
    kv = source_kv(s, "k.types");
    assert_true(kv_int(kv, 1, &v) && v == -2);
    assert_int_equal(source_kv(s, "k.empty")->n, 0);
    source_close(s);
}

static void test_reads_tensors_in_place(void **state)
{
    (void)state;
    struct source *s = open_good(corpus("good-v3"));
    struct err err = {0};
    const u8 *data;
    const struct tensor *t = source_tensor(s, "blk.12.weight");
    assert_int_equal(s->n_tensors, 4);
    assert_true(t->type == QT_Q4_K && t->n_dims == 2 && t->ne[0] == 256 && t->ne[1] == 2);
    assert_true(t->ne[2] == 1 && t->ne[3] == 1 && t->n_elems == 512 && t->n_bytes == 288);
    assert_int_equal(source_data(s, t, &data, &err), 0);
    /* 64 + 32 + 64 (36 padded) bytes of the others come before it, nothing after it */
    assert_ptr_equal(data, s->files[0].p + s->files[0].n - 288);
    source_drop(s, t);
    assert_int_equal(data[0], s->files[0].p[s->files[0].n - 288]);
    assert_null(source_tensor(s, "blk.12.weigh"));
    source_close(s);
}

static void test_reads_other_good_files(void **state)
{
    (void)state;
    struct source *s = open_good(corpus("good-v2"));
    assert_int_equal(s->version, 2);
    source_close(s);
    s = open_good(corpus("good-empty"));
    assert_true(s->n_kvs == 0 && s->n_tensors == 0);
    source_close(s);
    s = open_good(corpus("good-align-64"));
    assert_int_equal(s->alignment, 64);
    assert_int_equal((source_tensor(s, "blk.8.weight")->data - s->files[0].p) % 64, 0);
    source_close(s);
    s = open_good(corpus("good-dims"));
    assert_int_equal(source_tensor(s, "s")->n_elems, 1);
    assert_int_equal(source_tensor(s, "t")->n_elems, 120);
    source_close(s);
    s = open_good(corpus("good-reordered"));
    assert_ptr_equal(source_tensor(s, "b")->data, source_tensor(s, "a")->data + 64);
    source_close(s);
    static const char *const rest[] = {"good-no-tensors", "good-align-1", "good-not-padded-at-end",
                                       "good-split-keys"};
    for (size_t i = 0; i < ARRAY_LEN(rest); i++) source_close(open_good(corpus(rest[i])));
}

static void test_refuses_unreadable_types_by_name(void **state)
{
    (void)state;
    struct source *s = open_good(corpus("good-all-types"));
    struct err err = {0};
    const u8 *data;
    assert_int_equal(s->n_tensors, 18);
    for (u32 i = 0; i < s->n_tensors; i++) {
        int rc = source_data(s, &s->tensors[i], &data, &err);
        assert_int_equal(rc, s->tensors[i].type == QT_NVFP4 ? FLETCH_E_UNSUPPORTED : 0);
    }
    assert_non_null(strstr(err.text, "'blk.40.weight' has type NVFP4"));
    source_close(s);
}

static void test_refuses_bad_files(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int code;
        const char *part;
    } bad[] = {
        {"magic", FLETCH_E_FORMAT, "not a GGUF file"},
        {"magic-only", FLETCH_E_FORMAT, "ends inside the header"},
        {"nothing", FLETCH_E_FORMAT, "not a GGUF file"},
        {"version-0", FLETCH_E_UNSUPPORTED, "version 0 "},
        {"version-1", FLETCH_E_UNSUPPORTED, "version 1 "},
        {"version-4", FLETCH_E_UNSUPPORTED, "version 4 "},
        {"version-3000000", FLETCH_E_UNSUPPORTED, "big-endian"},
        {"version-20000", FLETCH_E_UNSUPPORTED, "big-endian"},
        {"kvs-minus-1", FLETCH_E_FORMAT, "18446744073709551615 metadata entries"},
        {"kvs-2p40", FLETCH_E_FORMAT, "1099511627776 metadata entries"},
        {"kvs-one-too-many", FLETCH_E_FORMAT, "ends inside a metadata key"},
        {"tensors-minus-1", FLETCH_E_FORMAT, "18446744073709551615 tensors"},
        {"tensors-2p40", FLETCH_E_FORMAT, "1099511627776 tensors"},
        {"key-empty", FLETCH_E_FORMAT, "key '' has 0 bytes"},
        {"key-2p64", FLETCH_E_FORMAT, "ends inside a metadata key"},
        {"key-beyond", FLETCH_E_FORMAT, "ends inside a metadata key"},
        {"key-257", FLETCH_E_FORMAT, "has 257 bytes"},
        {"key-nul", FLETCH_E_FORMAT, "key 'a\\x00b' contains a control character"},
        {"key-escape", FLETCH_E_FORMAT, "key '\\x1b[31m' contains a control character"},
        {"key-twice", FLETCH_E_FORMAT, "'general.architecture' appears twice"},
        {"kv-type-13", FLETCH_E_FORMAT, "'k' has unknown type 13"},
        {"kv-type-max", FLETCH_E_FORMAT, "'k' has unknown type 4294967295"},
        {"array-nested", FLETCH_E_FORMAT, "'k' has an array of type 9"},
        {"array-type-13", FLETCH_E_FORMAT, "'k' has an array of type 13"},
        {"array-2p61", FLETCH_E_FORMAT, "'k': 2305843009213693952 values"},
        {"array-beyond", FLETCH_E_FORMAT, "'k': 100 values"},
        {"array-strings-beyond", FLETCH_E_FORMAT, "'k': the file ends inside a string"},
        {"value-2p64", FLETCH_E_FORMAT, "'k': the file ends inside a string"},
        {"value-beyond", FLETCH_E_FORMAT, "'k': the file ends inside a string"},
        {"align-0", FLETCH_E_FORMAT, "general.alignment is 0"},
        {"align-3", FLETCH_E_FORMAT, "general.alignment is 3"},
        {"align-2097152", FLETCH_E_FORMAT, "general.alignment is 2097152"},
        {"align-2147483648", FLETCH_E_FORMAT, "general.alignment is 2147483648"},
        {"align-u64", FLETCH_E_FORMAT, "must be a u32, not u64"},
        {"align-array", FLETCH_E_FORMAT, "must be a u32, not array"},
        {"name-empty", FLETCH_E_FORMAT, "tensor name '' has 0 bytes"},
        {"name-64", FLETCH_E_FORMAT, "nnn' has 64 bytes"},
        {"name-2p64", FLETCH_E_FORMAT, "ends inside a tensor's name"},
        {"name-nul", FLETCH_E_FORMAT, "tensor name 'a\\x00' contains a control character"},
        {"name-twice", FLETCH_E_FORMAT, "tensor 'a' appears twice"},
        {"dims-5", FLETCH_E_FORMAT, "'a' has 5 dimensions"},
        {"dims-2p32", FLETCH_E_FORMAT, "'a' has 4294967295 dimensions"},
        {"dim-0", FLETCH_E_FORMAT, "'a': dimension 1 has the invalid value 0"},
        {"dim-minus-1", FLETCH_E_FORMAT, "'a': dimension 0 has the invalid value -1"},
        {"dim-2p62", FLETCH_E_FORMAT, "'a': the dimensions' product overflows"},
        {"dim-product-wraps", FLETCH_E_FORMAT, "'a': the dimensions' product overflows"},
        {"bytes-wrap", FLETCH_E_FORMAT, "'a': its size in bytes overflows"},
        {"not-whole-blocks", FLETCH_E_FORMAT,
         "'a': rows of 33 elements do not consist of whole Q4_0"},
        {"type-4", FLETCH_E_UNSUPPORTED, "'a' has type id 4,"},
        {"type-31", FLETCH_E_UNSUPPORTED, "'a' has type id 31,"},
        {"type-43", FLETCH_E_UNSUPPORTED, "'a' has type id 43,"},
        {"type-4294967295", FLETCH_E_UNSUPPORTED, "'a' has type id 4294967295,"},
        {"offset-unaligned", FLETCH_E_FORMAT, "'a': offset 4 is not a multiple"},
        {"offset-beyond", FLETCH_E_FORMAT, "'a': 32 bytes at offset 64 extend beyond"},
        {"offset-wraps", FLETCH_E_FORMAT, "'a': 32 bytes at offset 18446744073709551584"},
        {"overlap", FLETCH_E_FORMAT, "'b' and 'a' overlap"},
        {"overlap-same", FLETCH_E_FORMAT, "'a' and 'b' overlap"},
        {"data-one-short", FLETCH_E_FORMAT, "'a': 32 bytes at offset 0 extend beyond"},
        {"data-missing", FLETCH_E_FORMAT, "'a': 32 bytes at offset 0 extend beyond"},
        {"dims-missing", FLETCH_E_FORMAT, "ends inside a tensor's dimensions"},
        {"offset-missing", FLETCH_E_FORMAT, "ends inside a tensor's type and offset"},
        {"padding-short", FLETCH_E_FORMAT, "ends inside the padding"},
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        char name[64];
        snprintf(name, sizeof name, "bad-%s", bad[i].name);
        expect_error(corpus(name), bad[i].code, bad[i].part);
    }
    expect_error("test/corpus/gguf/no-such-file.gguf", FLETCH_E_IO, "no-such-file.gguf");
}

/* Each length gets memory of its own, so that a sanitizer sees one byte too far. */
static void test_truncated_anywhere_is_refused(void **state)
{
    (void)state;
    char *whole;
    size_t n;
    struct err err = {0};
    assert_int_equal(file_read(&whole, &n, corpus("good-v3"), 1 << 20, &err), 0);
    for (size_t len = 0; len < n; len++) {
        u8 *p = malloc(len ? len : 1);
        struct source *s;
        memcpy(p, whole, len);
        assert_int_equal(source_new(&s, "short.gguf", &err), 0);
        assert_int_equal(gguf_read_image(s, p, len, &err), FLETCH_E_FORMAT);
        source_close(s);
        free(p);
    }
    free(whole);
}

/* Limits that need large files: memory that is never touched. */
static void expect_large(const void *head, size_t n_head, u64 n, const char *part)
{
    struct source *s;
    struct err err = {0};
    u8 *p =
        mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(p != MAP_FAILED);
    memcpy(p, head, n_head);
    assert_int_equal(source_new(&s, "large.gguf", &err), 0);
    assert_int_equal(gguf_read_image(s, p, n, &err), FLETCH_E_LIMIT);
    if (!strstr(err.text, part)) fail_msg("%s", err.text);
    source_close(s);
    munmap(p, n);
}

static void test_limits(void **state)
{
    (void)state;
    static const char kvs[24] = "GGUF\3\0\0\0"
                                "\0\0\0\0\0\0\0\0"
                                "\1\0\1\0\0\0\0";
    static const char tensors[24] = "GGUF\3\0\0\0"
                                    "\1\0\1\0\0\0\0\0"
                                    "\0\0\0\0\0\0\0";
    static const char text[46] = "GGUF\3\0\0\0"
                                 "\0\0\0\0\0\0\0\0"
                                 "\1\0\0\0\0\0\0\0"
                                 "\1\0\0\0\0\0\0\0k"
                                 "\10\0\0\0"
                                 "\1\0\0\4\0\0\0\0";
    static const char array[50] = "GGUF\3\0\0\0"
                                  "\0\0\0\0\0\0\0\0"
                                  "\1\0\0\0\0\0\0\0"
                                  "\1\0\0\0\0\0\0\0k"
                                  "\11\0\0\0"
                                  "\0\0\0\0"
                                  "\1\0\0\100\0\0\0\0";
    expect_large(kvs, sizeof kvs, 2 << 20, "65537 metadata entries");
    expect_large(tensors, sizeof tensors, 2 << 20, "65537 tensors");
    expect_large(text, sizeof text, (64 << 20) + 100, "'k' has a string of 67108865 bytes");
    expect_large(array, sizeof array, (1u << 30) + 100, "'k' has an array of 1073741825 values");
}

/* A folder for what a test writes. */
struct temp {
    char dir[64], path[128];
};

static void temp_open(struct temp *t)
{
    strcpy(t->dir, "/tmp/fletch-gguf-test-XXXXXX");
    assert_non_null(mkdtemp(t->dir));
}

static const char *temp_path(struct temp *t, const char *name)
{
    snprintf(t->path, sizeof t->path, "%s/%s", t->dir, name);
    return t->path;
}

static void must(int rc, const struct err *err)
{
    if (rc) fail_msg("%d %s", rc, err->text);
}

static void test_written_again_is_the_same_file(void **state)
{
    (void)state;
    static const char *const names[] = {"good-v3", "good-all-types", "good-align-64",
                                        "good-no-tensors", "good-empty"};
    struct temp tmp;
    struct err err = {0};
    temp_open(&tmp);
    for (size_t k = 0; k < ARRAY_LEN(names); k++) {
        struct source *s = open_good(corpus(names[k]));
        struct gguf_writer *w;
        const char *path = temp_path(&tmp, "copy.gguf");
        must(gguf_writer_open(&w, path, &err), &err);
        for (u32 i = 0; i < s->n_kvs; i++) must(gguf_writer_kv(w, &s->kvs[i], &err), &err);
        for (u32 i = 0; i < s->n_tensors; i++)
            must(gguf_writer_tensor(w, &s->tensors[i], &err), &err);
        for (u32 i = 0; i < s->n_tensors; i++) {
            const struct tensor *t = &s->tensors[i];
            must(gguf_writer_data(w, t->data, 1, &err), &err); /* in two pieces */
            must(gguf_writer_data(w, t->data + 1, t->n_bytes - 1, &err), &err);
        }
        assert_false(file_exists(path));
        must(gguf_writer_finish(w, &err), &err);
        gguf_writer_close(w);
        struct source *copy = open_good(path);
        assert_int_equal(copy->files[0].n, s->files[0].n);
        assert_memory_equal(copy->files[0].p, s->files[0].p, s->files[0].n);
        source_close(copy);
        source_close(s);
        unlink(path);
    }
    rmdir(tmp.dir);
}

static void test_writer_refuses_what_the_reader_would(void **state)
{
    (void)state;
    struct temp tmp;
    struct err err = {0};
    struct gguf_writer *w;
    static const u8 three[4] = {3};
    struct kv kv = {STR("general.alignment"), KV_U32, KV_U32, 1, three, 4};
    struct tensor t = {.name = STR("a"), .type = QT_F32, .n_dims = 1, .ne = {8}};
    temp_open(&tmp);
    must(gguf_writer_open(&w, temp_path(&tmp, "x.gguf"), &err), &err);
    must(gguf_writer_kv(w, &kv, &err), &err);
    assert_int_equal(gguf_writer_finish(w, &err), FLETCH_E_FORMAT);
    assert_non_null(strstr(err.text, "general.alignment is 3"));
    gguf_writer_close(w);
    must(gguf_writer_open(&w, temp_path(&tmp, "x.gguf"), &err), &err);
    kv.key = STR("x");
    must(gguf_writer_kv(w, &kv, &err), &err);
    assert_int_equal(gguf_writer_kv(w, &kv, &err), FLETCH_E_FORMAT);
    must(gguf_writer_tensor(w, &t, &err), &err);
    assert_int_equal(gguf_writer_tensor(w, &t, &err), FLETCH_E_FORMAT);
    t = (struct tensor){.name = STR("b"), .type = QT_Q4_K, .n_dims = 1, .ne = {100}};
    assert_int_equal(gguf_writer_tensor(w, &t, &err), FLETCH_E_FORMAT);
    must(gguf_writer_data(w, "12345678901234567890123456789012", 32, &err), &err);
    gguf_writer_close(w); /* not finished: leaves nothing */
    assert_int_equal(rmdir(tmp.dir), 0);
    assert_int_equal(gguf_writer_open(&w, temp_path(&tmp, "x.gguf"), &err), FLETCH_E_IO);
}

/* One file of a split set: its own keys and one tensor of eight floats. */
static void write_part(const char *path, int no, int count, int total, const char *tensor)
{
    struct gguf_writer *w;
    struct err err = {0};
    u8 v[3][2] = {{(u8)no, 0}, {(u8)count, (u8)(count >> 8)}, {(u8)total, 0}};
    static const struct str keys[3] = {STR("split.no"), STR("split.count"),
                                       STR("split.tensors.count")};
    float data[8] = {(float)no};
    must(gguf_writer_open(&w, path, &err), &err);
    for (int i = 0; i < (total < 0 ? 2 : 3); i++) {
        struct kv kv = {keys[i], KV_U16, KV_U16, 1, v[i], 2};
        must(gguf_writer_kv(w, &kv, &err), &err);
    }
    struct tensor t = {.name = str_of(tensor), .type = QT_F32, .n_dims = 1, .ne = {8}};
    must(gguf_writer_tensor(w, &t, &err), &err);
    must(gguf_writer_data(w, data, sizeof data, &err), &err);
    must(gguf_writer_finish(w, &err), &err);
    gguf_writer_close(w);
}

static void test_split_set(void **state)
{
    (void)state;
    static const char *const names[3] = {"m-00001-of-00003.gguf", "m-00002-of-00003.gguf",
                                         "m-00003-of-00003.gguf"};
    static const char *const tensors[3] = {"a", "b", "c"};
    struct temp tmp;
    temp_open(&tmp);
    for (int i = 0; i < 3; i++) write_part(temp_path(&tmp, names[i]), i, 3, 3, tensors[i]);
    struct source *s = open_good(temp_path(&tmp, names[0]));
    assert_true(s->n_files == 3 && s->n_tensors == 3 && s->n_kvs == 3);
    for (int i = 0; i < 3; i++) {
        float y[8];
        quant_decode(QT_F32, source_tensor(s, tensors[i])->data, y, 8);
        assert_true(y[0] == (float)i);
    }
    source_close(s);

    const char *first = strdup(temp_path(&tmp, names[0]));
    expect_error(temp_path(&tmp, names[1]), FLETCH_E_ARG, "open the first one");
    write_part(temp_path(&tmp, names[2]), 2, 4, 3, "c");
    expect_error(first, FLETCH_E_FORMAT, "its split.count 4");
    write_part(temp_path(&tmp, names[2]), 0, 3, 3, "c"); /* a cycle: it says it is the first */
    expect_error(first, FLETCH_E_FORMAT, "not file 3 of a set of 3");
    write_part(temp_path(&tmp, names[2]), 2, 3, 3, "a");
    expect_error(first, FLETCH_E_FORMAT, "tensor 'a' appears twice");
    unlink(temp_path(&tmp, names[2]));
    expect_error(first, FLETCH_E_IO, "1 of the set's 3 files are missing");
    expect_error(first, FLETCH_E_IO, "'m-00003-of-00003.gguf'");
    unlink(temp_path(&tmp, names[1]));
    expect_error(first, FLETCH_E_IO, "'m-00002-of-00003.gguf', 'm-00003-of-00003.gguf'");
    write_part(temp_path(&tmp, names[1]), 1, 3, 3, tensors[1]);
    assert_int_equal(symlink(first, temp_path(&tmp, names[2])), 0);
    expect_error(first, FLETCH_E_FORMAT, "not file 3 of a set of 3");
    unlink(temp_path(&tmp, names[2]));
    write_part(temp_path(&tmp, names[2]), 2, 3, 3, "c");
    write_part(first, 0, 3, 4, "a");
    expect_error(first, FLETCH_E_FORMAT, "contain 3 tensors, but split.tensors.count is 4");
    write_part(first, 0, 3, -1, "a");
    expect_error(first, FLETCH_E_FORMAT, "without split.tensors.count");
    write_part(first, 0, 1025, 3, "a");
    expect_error(first, FLETCH_E_FORMAT, "1025 files is too large");
    write_part(first, 0, 2, 2, "a");
    expect_error(first, FLETCH_E_FORMAT, "must be named ...-00001-of-00002.gguf");
    write_part(first, 2, 1, 1, "a");
    expect_error(first, FLETCH_E_FORMAT, "file 3 of a split set, but split.count is missing");
    write_part(first, 0, 1, 2, "a");
    expect_error(first, FLETCH_E_FORMAT, "contains 1 tensors, but split.tensors.count is 2");
    for (int i = 0; i < 3; i++) unlink(temp_path(&tmp, names[i]));
    free((void *)(uintptr_t)first);
    assert_int_equal(rmdir(tmp.dir), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_every_value_type),
        cmocka_unit_test(test_reads_tensors_in_place),
        cmocka_unit_test(test_reads_other_good_files),
        cmocka_unit_test(test_refuses_unreadable_types_by_name),
        cmocka_unit_test(test_refuses_bad_files),
        cmocka_unit_test(test_truncated_anywhere_is_refused),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_written_again_is_the_same_file),
        cmocka_unit_test(test_writer_refuses_what_the_reader_would),
        cmocka_unit_test(test_split_set),
    };
    return cmocka_run_group_tests_name("gguf", tests, NULL, NULL);
}
