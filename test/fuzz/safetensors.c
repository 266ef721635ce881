/* Any bytes as a safetensors file: parse, then look everything up and read its ends. */
#include <string.h>

#include "format/safetensors.h"

int LLVMFuzzerTestOneInput(const u8 *p, size_t n);
int LLVMFuzzerTestOneInput(const u8 *p, size_t n)
{
    struct st_file f;
    struct err err = {0};
    int rc = st_parse(&f, p, n, &err);
    CHECK(rc <= 0 && (rc == 0 || (err.code == rc && err.text[0] && !strchr(err.text, '\n'))));
    for (u32 i = 0; i < f.n_tensors; i++) {
        const struct st_tensor *t = &f.tensors[i];
        u64 bytes = t->n_elems; /* of U8 and F8_E4M3 */
        bool known = t->bytes || t->fp8 || quant_bytes(t->type, t->n_elems, &bytes);
        CHECK(st_find(&f, t->name) == t);
        CHECK(known && bytes == t->n_bytes && bytes > 0);
        CHECK(t->data >= p + 8 && t->n_bytes <= (u64)(p + n - t->data));
        volatile u8 ends = (u8)(t->data[0] ^ t->data[t->n_bytes - 1]);
        (void)ends;
    }
    st_free(&f);
    return 0;
}
