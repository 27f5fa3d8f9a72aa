
/*
 * Copyright (C) the vibelock authors
 *
 * The algorithm: NH, from John Black, Shai Halevi, Hugo Krawczyk, Ted Krovetz,
 * Phillip Rogaway, "UMAC: Fast and Secure Message Authentication", 1999, with
 * words of 64 bits.  The sum of products that it makes is the same for two
 * different texts under one seed of 2^63 at most, whoever chose the texts, as
 * long as the seed is not known.  The wide hash is two such sums under seeds
 * of which one is the other moved by a pair, which squares that.
 *
 * The paper speaks of texts of equal length.  Where one has more pairs, its
 * last pair meets words of the seed that the other never does, in each sum, and
 * these alone keep the sums apart.  Where both have as many, the last word has
 * the length in its upper byte, so that zeroes at the end make a difference.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include <openssl/rand.h>

#include "ngx_http_vibelock_hash.h"


/* where the seeds of the second sum and of the last product are */
#define NGX_HTTP_VIBELOCK_HASH_MOVED  2
#define NGX_HTTP_VIBELOCK_HASH_LAST   (NGX_HTTP_VIBELOCK_HASH_WORDS - 2)

#define ngx_http_vibelock_product(seed, a, b)                                 \
    ((ngx_http_vibelock_sum_t) ((a) + (seed)[0]) * ((b) + (seed)[1]))


__extension__ typedef unsigned __int128  ngx_http_vibelock_sum_t;


static ngx_inline uint64_t ngx_http_vibelock_hash_mix(
    ngx_http_vibelock_seed_t *seed, ngx_http_vibelock_sum_t sum);
static ngx_inline void ngx_http_vibelock_hash_end(u_char *data, size_t len,
    uint64_t pair[2]);


void
ngx_http_vibelock_hash_random(void *data, size_t size)
{
    size_t   i;
    u_char  *p;

    if (RAND_bytes(data, (int) size) == 1) {
        return;
    }

    /* better a weak seed than no start */

    p = data;

    for (i = 0; i < size; i++) {
        p[i] = (u_char) (ngx_random() ^ ngx_pid);
    }
}


uint64_t
ngx_http_vibelock_hash(ngx_http_vibelock_seed_t *seed, u_char *data,
    size_t len)
{
    u_char                   *p, *last;
    uint64_t                  pair[2], *word;
    ngx_http_vibelock_sum_t   sum;

    sum = 0;
    word = seed->words;
    last = data + (len & ~(size_t) 15);

    for (p = data; p < last; p += 16) {
        ngx_memcpy(pair, p, 16);

        sum += ngx_http_vibelock_product(word, pair[0], pair[1]);
        word += 2;
    }

    ngx_http_vibelock_hash_end(data, len, pair);

    sum += ngx_http_vibelock_product(word, pair[0], pair[1]);

    return ngx_http_vibelock_hash_mix(seed, sum);
}


void
ngx_http_vibelock_hash_wide(ngx_http_vibelock_seed_t *seed, u_char *data,
    size_t len, ngx_http_vibelock_wide_t *hash)
{
    u_char                   *p, *last;
    uint64_t                  pair[2], *word, *moved;
    ngx_http_vibelock_sum_t   sum, other;

    sum = 0;
    other = 0;
    word = seed->words;
    last = data + (len & ~(size_t) 15);

    for (p = data; p < last; p += 16) {
        ngx_memcpy(pair, p, 16);

        moved = word + NGX_HTTP_VIBELOCK_HASH_MOVED;

        sum += ngx_http_vibelock_product(word, pair[0], pair[1]);
        other += ngx_http_vibelock_product(moved, pair[0], pair[1]);
        word = moved;
    }

    ngx_http_vibelock_hash_end(data, len, pair);

    moved = word + NGX_HTTP_VIBELOCK_HASH_MOVED;

    sum += ngx_http_vibelock_product(word, pair[0], pair[1]);
    other += ngx_http_vibelock_product(moved, pair[0], pair[1]);

    hash->words[0] = (uint64_t) sum;
    hash->words[1] = (uint64_t) (sum >> 64);
    hash->words[2] = (uint64_t) other;
    hash->words[3] = (uint64_t) (other >> 64);

    hash->hash = ngx_http_vibelock_hash_mix(seed, sum);
}


/* the bits of a sum are not all alike: one more product mixes them */

static ngx_inline uint64_t
ngx_http_vibelock_hash_mix(ngx_http_vibelock_seed_t *seed,
    ngx_http_vibelock_sum_t sum)
{
    uint64_t  *word;

    word = &seed->words[NGX_HTTP_VIBELOCK_HASH_LAST];

    sum = ngx_http_vibelock_product(word, (uint64_t) sum,
                                    (uint64_t) (sum >> 64));

    return (uint64_t) sum ^ (uint64_t) (sum >> 64);
}


/*
 * The last pair: the bytes that are no whole pair of words, and the length.
 */

static ngx_inline void
ngx_http_vibelock_hash_end(u_char *data, size_t len, uint64_t pair[2])
{
    size_t    i, n;
    u_char   *p;
    uint64_t  rest;

    n = len & 7;
    rest = 0;

    if (len >= 8 && n) {
        ngx_memcpy(&rest, data + len - 8, 8);

#if (NGX_HAVE_LITTLE_ENDIAN)
        rest >>= 64 - 8 * n;
#else
        rest &= ((uint64_t) 1 << 8 * n) - 1;
#endif

    } else {
        p = data + (len - n);

        for (i = 0; i < n; i++) {
            rest |= (uint64_t) p[i] << (8 * i);
        }
    }

    rest |= (uint64_t) len << 56;

    if (len & 8) {
        ngx_memcpy(&pair[0], data + (len & ~(size_t) 15), 8);
        pair[1] = rest;

    } else {
        pair[0] = rest;
        pair[1] = 0;
    }
}
