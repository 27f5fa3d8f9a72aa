
/*
 * Copyright (C) the vibelock authors
 *
 * SipHash-2-4: a hash for tables whose keys a stranger may choose.
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


#endif /* _NGX_HTTP_VIBELOCK_HASH_H_INCLUDED_ */
