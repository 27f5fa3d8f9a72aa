
/*
 * Copyright (C) the vibelock authors
 *
 * Hashes under a seed, of texts that a stranger may choose.
 */


#ifndef _NGX_HTTP_VIBELOCK_HASH_H_INCLUDED_
#define _NGX_HTTP_VIBELOCK_HASH_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>


/* the longest text there is a hash of, in bytes */
#define NGX_HTTP_VIBELOCK_HASH_MAX    255

/* a word of seed for each of the text, two for the wide one, two to mix */
#define NGX_HTTP_VIBELOCK_HASH_WORDS  (32 + 2 + 2)


typedef struct {
    uint64_t  words[NGX_HTTP_VIBELOCK_HASH_WORDS];
} ngx_http_vibelock_seed_t;


typedef struct {
    uint64_t  words[4];
    uint64_t  hash;        /* of the same text, as below */
} ngx_http_vibelock_wide_t;


/*
 * Fills "size" bytes with what nobody outside can know: a seed, or a name.
 */

void ngx_http_vibelock_hash_random(void *data, size_t size);

/*
 * The hash of "len" bytes at "data", HASH_MAX at most, under that seed.  It
 * never leaves its machine: the byte order is the processor's.
 */

uint64_t ngx_http_vibelock_hash(ngx_http_vibelock_seed_t *seed, u_char *data,
    size_t len);

/*
 * The same for where equal hashes have to mean equal data: two texts that were
 * chosen without knowing the seed have the same one once in 2^126.
 */

void ngx_http_vibelock_hash_wide(ngx_http_vibelock_seed_t *seed, u_char *data,
    size_t len, ngx_http_vibelock_wide_t *hash);


#endif /* _NGX_HTTP_VIBELOCK_HASH_H_INCLUDED_ */
