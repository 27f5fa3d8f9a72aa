
/*
 * Copyright (C) the vibelock authors
 *
 * SHA-256 of keys, sessions and owners: a context and an algorithm are kept for
 * the process, because to look them up again costs more than the hashing.
 *
 * The same few keys come again and again, so the last digests are kept too.
 * What a key is found by is not the key: it is a wide hash under a seed that is
 * drawn in this process and never leaves it.  Without the seed nobody can tell
 * two texts with the same hash, nor one with a given hash.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include <openssl/evp.h>
#include <openssl/rand.h>

#include "ngx_http_vibelock_digest.h"
#include "ngx_http_vibelock_hash.h"


/* digests that are kept, a power of two */
#define NGX_HTTP_VIBELOCK_DIGESTS  256


typedef struct {
    ngx_http_vibelock_wide_t   tag;
    ngx_uint_t                 filled;
    u_char                     digest[NGX_HTTP_VIBELOCK_DIGEST_LEN];
} ngx_http_vibelock_digest_t;


static ngx_inline ngx_uint_t ngx_http_vibelock_digest_same(
    ngx_http_vibelock_wide_t *one, ngx_http_vibelock_wide_t *other);
static ngx_int_t ngx_http_vibelock_digest_make(ngx_str_t *text,
    u_char *digest);
static ngx_int_t ngx_http_vibelock_digest_init(void);


static EVP_MD_CTX                 *ngx_http_vibelock_digest_ctx;
static const EVP_MD               *ngx_http_vibelock_digest_md;

static ngx_http_vibelock_seed_t    ngx_http_vibelock_digest_seed;

static ngx_http_vibelock_digest_t
    ngx_http_vibelock_digests[NGX_HTTP_VIBELOCK_DIGESTS];


ngx_int_t
ngx_http_vibelock_digest(ngx_str_t *text, u_char *digest)
{
    ngx_http_vibelock_wide_t     tag;
    ngx_http_vibelock_digest_t  *kept;

    if (ngx_http_vibelock_digest_ctx == NULL
        && ngx_http_vibelock_digest_init() != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (text->len > NGX_HTTP_VIBELOCK_HASH_MAX) {
        return ngx_http_vibelock_digest_make(text, digest);
    }

    ngx_http_vibelock_hash_wide(&ngx_http_vibelock_digest_seed, text->data,
                                text->len, &tag);

    kept = &ngx_http_vibelock_digests[tag.hash
                                      & (NGX_HTTP_VIBELOCK_DIGESTS - 1)];

    if (!ngx_http_vibelock_digest_same(&kept->tag, &tag) || !kept->filled) {

        kept->filled = 0;

        if (ngx_http_vibelock_digest_make(text, kept->digest) != NGX_OK) {
            return NGX_ERROR;
        }

        kept->tag = tag;
        kept->filled = 1;
    }

    ngx_memcpy(digest, kept->digest, NGX_HTTP_VIBELOCK_DIGEST_LEN);

    return NGX_OK;
}


static ngx_inline ngx_uint_t
ngx_http_vibelock_digest_same(ngx_http_vibelock_wide_t *one,
    ngx_http_vibelock_wide_t *other)
{
    return ((one->words[0] ^ other->words[0])
            | (one->words[1] ^ other->words[1])
            | (one->words[2] ^ other->words[2])
            | (one->words[3] ^ other->words[3]))
           == 0;
}


static ngx_int_t
ngx_http_vibelock_digest_make(ngx_str_t *text, u_char *digest)
{
    EVP_MD_CTX  *ctx;

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
    u_char      ch;
    size_t      i;
    ngx_uint_t  n;

    if (hex->len != 2 * NGX_HTTP_VIBELOCK_DIGEST_LEN) {
        return NGX_ERROR;
    }

    n = 0;

    for (i = 0; i < 2 * NGX_HTTP_VIBELOCK_DIGEST_LEN; i++) {
        ch = hex->data[i];

        if (ch >= '0' && ch <= '9') {
            n = n << 4 | (ch - '0');

        } else {
            ch |= 0x20;

            if (ch < 'a' || ch > 'f') {
                return NGX_ERROR;
            }

            n = n << 4 | (ch - 'a' + 10);
        }

        if (i & 1) {
            digest[i / 2] = (u_char) n;
        }
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

    /* a seed that can be guessed would let one key pass for another */

    if (RAND_bytes((u_char *) &ngx_http_vibelock_digest_seed,
                   sizeof(ngx_http_vibelock_digest_seed))
        != 1)
    {
        return NGX_ERROR;
    }

    ngx_http_vibelock_digest_ctx = EVP_MD_CTX_new();

    return ngx_http_vibelock_digest_ctx ? NGX_OK : NGX_ERROR;
}
