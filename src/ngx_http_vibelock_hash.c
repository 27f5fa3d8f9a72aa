
/*
 * Copyright (C) the vibelock authors
 *
 * The algorithm: Jean-Philippe Aumasson, Daniel J. Bernstein, "SipHash: a fast
 * short-input PRF", 2012.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include <openssl/rand.h>

#include "ngx_http_vibelock_hash.h"


#define ngx_http_vibelock_rotate(x, n)  (((x) << (n)) | ((x) >> (64 - (n))))

#define ngx_http_vibelock_round(v)                                            \
    v[0] += v[1];  v[1] = ngx_http_vibelock_rotate(v[1], 13);                 \
    v[1] ^= v[0];  v[0] = ngx_http_vibelock_rotate(v[0], 32);                 \
    v[2] += v[3];  v[3] = ngx_http_vibelock_rotate(v[3], 16);                 \
    v[3] ^= v[2];                                                             \
    v[0] += v[3];  v[3] = ngx_http_vibelock_rotate(v[3], 21);                 \
    v[3] ^= v[0];                                                             \
    v[2] += v[1];  v[1] = ngx_http_vibelock_rotate(v[1], 17);                 \
    v[1] ^= v[2];  v[2] = ngx_http_vibelock_rotate(v[2], 32)


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
    size_t    i;
    u_char   *p, *last;
    uint64_t  v[4], m;

    v[0] = seed[0] ^ 0x736f6d6570736575ULL;
    v[1] = seed[1] ^ 0x646f72616e646f6dULL;
    v[2] = seed[0] ^ 0x6c7967656e657261ULL;
    v[3] = seed[1] ^ 0x7465646279746573ULL;

    last = data + (len & ~(size_t) 7);

    for (p = data; p < last; p += 8) {

        /* the byte order does not matter: a hash never leaves its machine */

        ngx_memcpy(&m, p, 8);

        v[3] ^= m;
        ngx_http_vibelock_round(v);
        ngx_http_vibelock_round(v);
        v[0] ^= m;
    }

    m = (uint64_t) len << 56;

    for (i = 0; i < (len & 7); i++) {
        m |= (uint64_t) p[i] << (8 * i);
    }

    v[3] ^= m;
    ngx_http_vibelock_round(v);
    ngx_http_vibelock_round(v);
    v[0] ^= m;

    v[2] ^= 0xff;

    for (i = 0; i < 4; i++) {
        ngx_http_vibelock_round(v);
    }

    return v[0] ^ v[1] ^ v[2] ^ v[3];
}
