
/*
 * Copyright (C) the vibelock authors
 *
 * The list: one page of a zone's locks, oldest first, by a walk over all of
 * them in no order.
 *
 * A page is the "limit" smallest tokens above a cursor, the last token of the
 * page before: what comes and goes between two pages makes no lock come twice
 * or be left out.
 */


#ifndef _NGX_HTTP_VIBELOCK_LIST_H_INCLUDED_
#define _NGX_HTTP_VIBELOCK_LIST_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_vibelock_zone.h"


typedef enum {
    NGX_HTTP_VIBELOCK_LIST_ANY = 0,
    NGX_HTTP_VIBELOCK_LIST_RUNNING,
    NGX_HTTP_VIBELOCK_LIST_STUCK
} ngx_http_vibelock_list_state_e;


typedef struct {
    ngx_http_vibelock_lock_t          lock;
    size_t                            len;
    u_char                            key[NGX_HTTP_VIBELOCK_KEY_MAX];
} ngx_http_vibelock_list_row_t;


typedef struct {
    ngx_http_vibelock_zone_t         *zone;
    ngx_uint_t                        limit;
    uint64_t                          cursor;
    ngx_str_t                         operation;   /* empty: any */
    ngx_str_t                         key;         /* any key with this in
                                                      it; empty: any */
    ngx_http_vibelock_list_state_e    state;

    /* the result */
    ngx_uint_t                        matched;     /* in the whole zone */
    ngx_uint_t                        above;       /* of these, the cursor */
    ngx_uint_t                        n;           /* rows of this page */
    ngx_http_vibelock_list_row_t    **rows;
} ngx_http_vibelock_list_t;


/*
 * What a request's arguments ask for: "zone", "limit", "cursor", "operation",
 * "state", "key".  Where there is one zone, it need not be named.
 *
 * NGX_OK         *list is made, and has no row yet
 * NGX_DECLINED   they ask for none
 * NGX_DONE       there is no such zone
 * NGX_ABORT      one is wrong, *error says how
 * NGX_ERROR      no memory
 */

ngx_int_t ngx_http_vibelock_list_create(ngx_http_request_t *r,
    ngx_http_vibelock_zones_t *zones, ngx_http_vibelock_list_t **list,
    ngx_str_t *error);

/*
 * Shows a lock to the list, which takes it or not.  Short, and no memory is
 * allocated: it may be called with the zone's mutex held.
 */

void ngx_http_vibelock_list_add(ngx_http_vibelock_list_t *list,
    ngx_http_vibelock_lock_t *lock, ngx_str_t *key);

/*
 * When all were shown: sorts the rows.
 */

void ngx_http_vibelock_list_sort(ngx_http_vibelock_list_t *list);


#endif /* _NGX_HTTP_VIBELOCK_LIST_H_INCLUDED_ */
