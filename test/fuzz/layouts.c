/* Any bytes as a file of layouts; what is read is written and read again. */
#include <string.h>

#include "gpu/layout.h"

static const struct layouts_for here = {"cuda", "a GPU", "1-2"};

int LLVMFuzzerTestOneInput(const u8 *p, size_t n);
int LLVMFuzzerTestOneInput(const u8 *p, size_t n)
{
    struct layouts t, back;
    struct err err = {0};
    struct buf text = {0};
    int rc = layouts_read(&t, here, (struct str){(const char *)p, n}, &err);
    CHECK(rc == 0 || (err.text[0] && !strchr(err.text, '\n') && !t.n));
    if (rc) return 0;
    layouts_write(&t, here, &text);
    CHECK(layouts_read(&back, here, buf_str(&text), &err) == 0 && back.n == t.n);
    CHECK(t.n == 0 || memcmp(back.p, t.p, t.n * sizeof *t.p) == 0);
    layouts_close(&back);
    layouts_close(&t);
    buf_free(&text);
    return 0;
}
