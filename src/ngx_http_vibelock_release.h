
/*
 * Copyright (C) the vibelock authors
 *
 * Release: breaks a lock on behalf of a caller who may, here and on every
 * other replica.
 */


#ifndef _NGX_HTTP_VIBELOCK_RELEASE_H_INCLUDED_
#define _NGX_HTTP_VIBELOCK_RELEASE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_vibelock_caller.h"
#include "ngx_http_vibelock_zone.h"


typedef struct {
    ngx_http_vibelock_zone_t    *zone;
    ngx_str_t                    key;
    ngx_http_vibelock_caller_t   caller;

    /* the lock that the caller may break; a token of 0: there is none here */
    ngx_http_vibelock_lock_t     lock;

    /* when that was looked at, as other replicas are told; 0: just now */
    ngx_msec_t                   moment;

    ngx_uint_t                   log_level;
    char                        *why;          /* for the log */
} ngx_http_vibelock_release_t;


/*
 * Breaks the lock if it is still that one: a younger one is somebody's next
 * operation.  1: it was held, is gone, and release->lock is how it was last.
 * The request's record says so.  Other replicas are told, held here or not, if
 * the caller is an owner.
 */

ngx_uint_t ngx_http_vibelock_release(ngx_http_request_t *r,
    ngx_http_vibelock_release_t *release);


#endif /* _NGX_HTTP_VIBELOCK_RELEASE_H_INCLUDED_ */
