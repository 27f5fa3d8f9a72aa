
/*
 * Copyright (C) the vibelock authors
 *
 * Break: ends a lock on behalf of those who run the gateway, below the
 * address of its status.
 */


#ifndef _NGX_HTTP_VIBELOCK_BREAK_H_INCLUDED_
#define _NGX_HTTP_VIBELOCK_BREAK_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_vibelock_zone.h"


/*
 * A content handler, but for its arguments: "lock" is <zone>/<key> as the
 * client escaped them, the zone one of "zones"; a broken lock is logged at
 * "log_level".  A key that no path can carry, as "..", comes in the request's
 * argument "key" instead.  With "token" only that lock is broken, and none
 * that is younger.
 */

ngx_int_t ngx_http_vibelock_break(ngx_http_request_t *r,
    ngx_http_vibelock_zones_t *zones, ngx_uint_t log_level, ngx_str_t *lock);


#endif /* _NGX_HTTP_VIBELOCK_BREAK_H_INCLUDED_ */
