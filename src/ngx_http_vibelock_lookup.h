
/*
 * Copyright (C) the vibelock authors
 *
 * A look-up: entries by name, filled once and only read from then on, in
 * memory that the caller has.  It is seeded: names that a stranger may choose
 * do not make it slow.
 */


#ifndef _NGX_HTTP_VIBELOCK_LOOKUP_H_INCLUDED_
#define _NGX_HTTP_VIBELOCK_LOOKUP_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_http_vibelock_hash.h"


typedef struct {
    uint32_t                          hash;
    uint32_t                          entry;   /* from 1; 0: free */
} ngx_http_vibelock_lookup_slot_t;


/* an entry is any structure that begins with its name, a ngx_str_t */

typedef struct {
    ngx_http_vibelock_seed_t         *seed;
    u_char                           *entries;
    size_t                            size;    /* of an entry */
    ngx_uint_t                        n;
    uint32_t                          mask;
    ngx_http_vibelock_lookup_slot_t  *slots;
} ngx_http_vibelock_lookup_t;


/*
 * The memory that "n" entries of "size" bytes take.
 */

size_t ngx_http_vibelock_lookup_size(ngx_uint_t n, size_t size);

/*
 * Lays an empty look-up out in zeroed memory; returns what is behind it.  With
 * "seed" NULL the names are digests of 32 bytes, which are hashes already.
 */

u_char *ngx_http_vibelock_lookup_init(ngx_http_vibelock_lookup_t *lookup,
    ngx_http_vibelock_seed_t *seed, u_char *start, ngx_uint_t n, size_t size);

/*
 * Adds an entry whose name is not there yet, all zeroes but for that.  The
 * caller counts: there is room for n.
 */

void *ngx_http_vibelock_lookup_add(ngx_http_vibelock_lookup_t *lookup,
    ngx_str_t *name);

/*
 * The entry of that name, or NULL; and the number of an entry, in the order
 * of adding.
 */

void *ngx_http_vibelock_lookup_find(ngx_http_vibelock_lookup_t *lookup,
    ngx_str_t *name);
ngx_uint_t ngx_http_vibelock_lookup_number(ngx_http_vibelock_lookup_t *lookup,
    void *entry);


#endif /* _NGX_HTTP_VIBELOCK_LOOKUP_H_INCLUDED_ */
