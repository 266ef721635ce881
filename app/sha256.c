#include "sha256.h"

#include <openssl/evp.h>
#include <stdio.h>

#include "app.h"

void sha256_begin(struct sha256 *s)
{
    if (!s->ctx) s->ctx = need(EVP_MD_CTX_new());
    need(EVP_DigestInit_ex(s->ctx, EVP_sha256(), NULL) ? s->ctx : NULL);
}

void sha256_add(struct sha256 *s, const void *p, size_t n)
{
    need(EVP_DigestUpdate(s->ctx, p, n) ? s->ctx : NULL);
}

void sha256_end(struct sha256 *s, char hex[65])
{
    unsigned char sum[EVP_MAX_MD_SIZE];
    unsigned n = 0;
    need(EVP_DigestFinal_ex(s->ctx, sum, &n) && n == 32 ? s->ctx : NULL);
    for (int i = 0; i < 32; i++) snprintf(hex + 2 * i, 3, "%02x", sum[i]);
    sha256_drop(s);
}

void sha256_drop(struct sha256 *s)
{
    EVP_MD_CTX_free(s->ctx);
    s->ctx = NULL;
}
