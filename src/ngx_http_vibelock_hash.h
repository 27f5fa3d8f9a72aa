
/*
 * Copyright (C) the vibelock authors
 *
 * SipHash: a hash for tables whose keys a stranger may choose.
 */


#ifndef _NGX_HTTP_VIBELOCK_HASH_H_INCLUDED_
#define _NGX_HTTP_VIBELOCK_HASH_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>


/*
 * Draws a seed that nobody outside can know.
 */

void ngx_http_vibelock_hash_seed(uint64_t seed[2]);

/*
 * The hash of "len" bytes at "data" under that seed.
 */

uint64_t ngx_http_vibelock_hash(uint64_t seed[2], u_char *data, size_t len);

/*
 * The same with 128 bits, for where equal hashes have to mean equal data: who
 * does not know the seed finds no two of them.
 */

void ngx_http_vibelock_hash_wide(uint64_t seed[2], u_char *data, size_t len,
    uint64_t hash[2]);


#endif /* _NGX_HTTP_VIBELOCK_HASH_H_INCLUDED_ */
