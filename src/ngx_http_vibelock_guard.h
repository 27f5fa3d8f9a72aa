
/*
 * Copyright (C) the vibelock authors
 *
 * The guard: takes the lock before a location's content, and ends it when the
 * operation ends.
 */


#ifndef _NGX_HTTP_VIBELOCK_GUARD_H_INCLUDED_
#define _NGX_HTTP_VIBELOCK_GUARD_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_vibelock_caller.h"
#include "ngx_http_vibelock_ttl.h"
#include "ngx_http_vibelock_zone.h"


typedef struct {
    ngx_http_vibelock_zone_t         *zone;         /* NULL: not guarded */
    ngx_http_vibelock_operation_t    *operation;
    ngx_http_vibelock_ttl_t           ttl;
    ngx_array_t                      *keep;         /* of complex values */
    ngx_msec_t                        retry_after;
    ngx_flag_t                        overrun;
    ngx_flag_t                        dry_run;
    ngx_uint_t                        log_level;
    ngx_http_vibelock_caller_conf_t  *caller;
} ngx_http_vibelock_guard_conf_t;


/*
 * 1 when the name of an operation is one: 1 to 32 of A-Z a-z 0-9 _ -.  So it
 * stands in JSON, logs and metrics as it is.
 */

ngx_uint_t ngx_http_vibelock_guard_operation(ngx_str_t *name);

/*
 * For the precontent phase: NGX_DECLINED lets the request go on; NGX_DONE, it
 * was answered, or waits for its body; else a status that nginx answers with.
 */

ngx_int_t ngx_http_vibelock_guard(ngx_http_request_t *r,
    ngx_http_vibelock_guard_conf_t *conf);

/*
 * For the header and the body filter, before anything is passed on; sent():
 * once the header was, gives the result to return for that of passing it on.
 */

void ngx_http_vibelock_guard_header(ngx_http_request_t *r);
ngx_int_t ngx_http_vibelock_guard_sent(ngx_http_request_t *r, ngx_int_t rc);
void ngx_http_vibelock_guard_body(ngx_http_request_t *r, ngx_chain_t *in);


#endif /* _NGX_HTTP_VIBELOCK_GUARD_H_INCLUDED_ */
