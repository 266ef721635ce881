/* For tests: a Hugging Face directory made on the spot. */
#ifndef FLETCH_HF_TESTDIR_H
#define FLETCH_HF_TESTDIR_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "quant/quant.h"

struct testdir {
    char path[64];
    char file[384];          /* of the last testdir_path */
    struct buf header, data; /* of the safetensors file being made */
};

static inline void testdir_open(struct testdir *d)
{
    *d = (struct testdir){.path = "/tmp/fletch-hf-test-XXXXXX"};
    assert_non_null(mkdtemp(d->path));
}

static inline const char *testdir_path(struct testdir *d, const char *name)
{
    snprintf(d->file, sizeof d->file, "%s/%s", d->path, name);
    return d->file;
}

static inline void testdir_write(struct testdir *d, const char *name, struct str text)
{
    FILE *f = fopen(testdir_path(d, name), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text.p, 1, text.n, f), text.n);
    fclose(f);
}

static inline void testdir_puts(struct testdir *d, const char *name, const char *text)
{
    testdir_write(d, name, str_of(text));
}

static inline void testdir_close(struct testdir *d)
{
    DIR *files = opendir(d->path);
    assert_non_null(files);
    for (struct dirent *e; (e = readdir(files));)
        if (e->d_name[0] != '.') unlink(testdir_path(d, e->d_name));
    closedir(files);
    assert_int_equal(rmdir(d->path), 0);
    buf_free(&d->header);
    buf_free(&d->data);
}

static struct testdir dir; /* of the test that runs */

static inline int testdir_setup(void **state)
{
    (void)state;
    testdir_open(&dir);
    return 0;
}

static inline int testdir_teardown(void **state)
{
    (void)state;
    testdir_close(&dir);
    return 0;
}

#define TESTDIR_TEST(f) cmocka_unit_test_setup_teardown(f, testdir_setup, testdir_teardown)

/* A tensor whose element i is first + i. */
#define TESTDIR_TENSOR(d, name, type, first, ...)                                 \
    testdir_tensor(d, name, type, first, ARRAY_LEN(((const u64[]){__VA_ARGS__})), \
                   (const u64[]){__VA_ARGS__})

static inline void testdir_tensor(struct testdir *d, const char *name, enum qtype type, float first,
                                  size_t n_dims, const u64 *dims)
{
    u64 n = 1;
    size_t begin = d->data.n;
    buf_printf(&d->header, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[", d->header.n ? "," : "{", name,
               quant_info(type)->name);
    for (size_t i = 0; i < n_dims; i++) {
        buf_printf(&d->header, "%s%llu", i ? "," : "", (unsigned long long)dims[i]);
        n *= dims[i];
    }
    for (u64 i = 0; i < n; i++) {
        float f = first + (float)i;
        u8 bytes[4];
        quant_encode(type, &f, bytes, 1);
        buf_put(&d->data, bytes, quant_info(type)->bytes);
    }
    buf_printf(&d->header, "],\"data_offsets\":[%zu,%zu]}", begin, d->data.n);
}

/* Writes what was added; an odd number of spaces after the header leaves the data unaligned. */
static inline void testdir_tensors(struct testdir *d, const char *name, bool unaligned)
{
    struct buf b = {0};
    if (!d->header.n) buf_puts(&d->header, "{");
    buf_puts(&d->header, "}");
    while (d->header.n % 8 != unaligned) buf_putc(&d->header, ' ');
    for (int i = 0; i < 8; i++) buf_putc(&b, (char)((u64)d->header.n >> 8 * i));
    buf_put(&b, d->header.p, d->header.n);
    buf_put(&b, d->data.p, d->data.n);
    testdir_write(d, name, buf_str(&b));
    buf_free(&b);
    buf_free(&d->header);
    buf_free(&d->data);
}

#endif
