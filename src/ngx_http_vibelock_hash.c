
/*
 * Copyright (C) the vibelock authors
 *
 * The algorithm: Jean-Philippe Aumasson, Daniel J. Bernstein, "SipHash: a fast
 * short-input PRF", 2012.  Tables have SipHash-1-3, as those of Rust and Python
 * do: what it has to keep a stranger from is to make many keys meet.  The wide
 * one is SipHash-2-4 with 128 bits.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include <openssl/rand.h>

#include "ngx_http_vibelock_hash.h"


#define ngx_http_vibelock_rotate(x, n)  (((x) << (n)) | ((x) >> (64 - (n))))

#define ngx_http_vibelock_round(v)                                            \
    v##0 += v##1;  v##1 = ngx_http_vibelock_rotate(v##1, 13);                 \
    v##1 ^= v##0;  v##0 = ngx_http_vibelock_rotate(v##0, 32);                 \
    v##2 += v##3;  v##3 = ngx_http_vibelock_rotate(v##3, 16);                 \
    v##3 ^= v##2;                                                             \
    v##0 += v##3;  v##3 = ngx_http_vibelock_rotate(v##3, 21);                 \
    v##3 ^= v##0;                                                             \
    v##2 += v##1;  v##1 = ngx_http_vibelock_rotate(v##1, 17);                 \
    v##1 ^= v##2;  v##2 = ngx_http_vibelock_rotate(v##2, 32)

#define ngx_http_vibelock_start(v, seed)                                      \
    v##0 = seed[0] ^ 0x736f6d6570736575ULL;                                   \
    v##1 = seed[1] ^ 0x646f72616e646f6dULL;                                   \
    v##2 = seed[0] ^ 0x6c7967656e657261ULL;                                   \
    v##3 = seed[1] ^ 0x7465646279746573ULL

#define ngx_http_vibelock_fold(v)  (v##0 ^ v##1 ^ v##2 ^ v##3)


static ngx_inline uint64_t ngx_http_vibelock_hash_rest(u_char *data,
    size_t len);


void
ngx_http_vibelock_hash_seed(uint64_t seed[2])
{
    if (RAND_bytes((u_char *) seed, 2 * sizeof(uint64_t)) == 1) {
        return;
    }

    /* better a weak seed than no start */

    seed[0] = ((uint64_t) ngx_random() << 32) ^ (uint64_t) ngx_random();
    seed[1] = ((uint64_t) ngx_random() << 32) ^ (uint64_t) ngx_pid;
}


uint64_t
ngx_http_vibelock_hash(uint64_t seed[2], u_char *data, size_t len)
{
    u_char    *p, *last;
    uint64_t   m, v0, v1, v2, v3;

    ngx_http_vibelock_start(v, seed);

    last = data + (len & ~(size_t) 7);

    for (p = data; p < last; p += 8) {

        /* the byte order does not matter: a hash never leaves its machine */

        ngx_memcpy(&m, p, 8);

        v3 ^= m;
        ngx_http_vibelock_round(v);
        v0 ^= m;
    }

    m = ngx_http_vibelock_hash_rest(data, len);

    v3 ^= m;
    ngx_http_vibelock_round(v);
    v0 ^= m;

    v2 ^= 0xff;
    ngx_http_vibelock_round(v);
    ngx_http_vibelock_round(v);
    ngx_http_vibelock_round(v);

    return ngx_http_vibelock_fold(v);
}


void
ngx_http_vibelock_hash_wide(uint64_t seed[2], u_char *data, size_t len,
    uint64_t hash[2])
{
    u_char      *p, *last;
    uint64_t     m, v0, v1, v2, v3;
    ngx_uint_t   i;

    ngx_http_vibelock_start(v, seed);

    v1 ^= 0xee;

    last = data + (len & ~(size_t) 7);

    for (p = data; p < last; p += 8) {
        ngx_memcpy(&m, p, 8);

        v3 ^= m;
        ngx_http_vibelock_round(v);
        ngx_http_vibelock_round(v);
        v0 ^= m;
    }

    m = ngx_http_vibelock_hash_rest(data, len);

    v3 ^= m;
    ngx_http_vibelock_round(v);
    ngx_http_vibelock_round(v);
    v0 ^= m;

    v2 ^= 0xee;

    for (i = 0; i < 4; i++) {
        ngx_http_vibelock_round(v);
    }

    hash[0] = ngx_http_vibelock_fold(v);

    v1 ^= 0xdd;

    for (i = 0; i < 4; i++) {
        ngx_http_vibelock_round(v);
    }

    hash[1] = ngx_http_vibelock_fold(v);
}


/* the last bytes, which are no whole word, and the length */

static ngx_inline uint64_t
ngx_http_vibelock_hash_rest(u_char *data, size_t len)
{
    size_t    i, n;
    uint64_t  m;

    n = len & 7;

#if (NGX_HAVE_LITTLE_ENDIAN)

    if (len >= 8 && n) {
        ngx_memcpy(&m, data + len - 8, 8);

        return (uint64_t) len << 56 | m >> (64 - 8 * n);
    }

#endif

    m = (uint64_t) len << 56;
    data += len - n;

    for (i = 0; i < n; i++) {
        m |= (uint64_t) data[i] << (8 * i);
    }

    return m;
}
