
/*
 * Copyright (C) the vibelock authors
 *
 * The lock endpoint: DELETE breaks a lock here and on every other replica,
 * GET and HEAD tell of it.
 */


#ifndef _NGX_HTTP_VIBELOCK_ENDPOINT_H_INCLUDED_
#define _NGX_HTTP_VIBELOCK_ENDPOINT_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_vibelock_caller.h"
#include "ngx_http_vibelock_zone.h"


typedef struct {
    ngx_http_vibelock_zone_t         *zone;
    ngx_uint_t                        log_level;
    ngx_http_vibelock_caller_conf_t  *caller;
} ngx_http_vibelock_endpoint_conf_t;


/*
 * A content handler, but for its configuration.
 */

ngx_int_t ngx_http_vibelock_endpoint(ngx_http_request_t *r,
    ngx_http_vibelock_endpoint_conf_t *conf);


#endif /* _NGX_HTTP_VIBELOCK_ENDPOINT_H_INCLUDED_ */
