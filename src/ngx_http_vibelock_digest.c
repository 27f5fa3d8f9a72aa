
/*
 * Copyright (C) the vibelock authors
 *
 * SHA-256 of keys, sessions and ids: a context and an algorithm are kept for
 * the process, because to look them up again costs more than the hashing.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include <openssl/evp.h>

#include "ngx_http_vibelock_digest.h"


static ngx_int_t ngx_http_vibelock_digest_init(void);


static EVP_MD_CTX    *ngx_http_vibelock_digest_ctx;
static const EVP_MD  *ngx_http_vibelock_digest_md;


ngx_int_t
ngx_http_vibelock_digest(ngx_str_t *text, u_char *digest)
{
    EVP_MD_CTX  *ctx;

    if (ngx_http_vibelock_digest_ctx == NULL
        && ngx_http_vibelock_digest_init() != NGX_OK)
    {
        return NGX_ERROR;
    }

    ctx = ngx_http_vibelock_digest_ctx;

    if (EVP_DigestInit_ex(ctx, ngx_http_vibelock_digest_md, NULL) != 1
        || EVP_DigestUpdate(ctx, text->data, text->len) != 1
        || EVP_DigestFinal_ex(ctx, digest, NULL) != 1)
    {
        return NGX_ERROR;
    }

    return NGX_OK;
}


ngx_int_t
ngx_http_vibelock_digest_threaded(ngx_str_t *text, u_char *digest)
{
    if (EVP_Digest(text->data, text->len, digest, NULL, EVP_sha256(), NULL)
        != 1)
    {
        return NGX_ERROR;
    }

    return NGX_OK;
}


ngx_int_t
ngx_http_vibelock_digest_hex(ngx_str_t *hex, u_char *digest)
{
    size_t     i;
    ngx_int_t  n;

    if (hex->len != 2 * NGX_HTTP_VIBELOCK_DIGEST_LEN) {
        return NGX_ERROR;
    }

    for (i = 0; i < NGX_HTTP_VIBELOCK_DIGEST_LEN; i++) {

        n = ngx_hextoi(hex->data + 2 * i, 2);
        if (n == NGX_ERROR) {
            return NGX_ERROR;
        }

        digest[i] = (u_char) n;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_vibelock_digest_init(void)
{
    if (ngx_http_vibelock_digest_md == NULL) {

#if OPENSSL_VERSION_NUMBER >= 0x30000000L

        /* with EVP_sha256() each digest would fetch the algorithm anew */

        ngx_http_vibelock_digest_md = EVP_MD_fetch(NULL, "SHA256", NULL);
#else
        ngx_http_vibelock_digest_md = EVP_sha256();
#endif

        if (ngx_http_vibelock_digest_md == NULL) {
            return NGX_ERROR;
        }
    }

    ngx_http_vibelock_digest_ctx = EVP_MD_CTX_new();

    return ngx_http_vibelock_digest_ctx ? NGX_OK : NGX_ERROR;
}
