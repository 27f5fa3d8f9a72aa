
/*
 * Copyright (C) the vibelock authors
 *
 * Unstick: lets the upstream reset a server's exec channel, and releases its
 * lock when that has worked; releases it at once where there is no upstream.
 */


#ifndef _NGX_HTTP_VIBELOCK_UNSTICK_H_INCLUDED_
#define _NGX_HTTP_VIBELOCK_UNSTICK_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_vibelock_caller.h"
#include "ngx_http_vibelock_zone.h"


typedef struct {
    ngx_http_vibelock_zone_t         *zone;
    ngx_msec_t                        retry_after;
    ngx_flag_t                        dry_run;
    ngx_uint_t                        log_level;
    ngx_http_vibelock_caller_conf_t  *caller;
} ngx_http_vibelock_unstick_conf_t;


/*
 * For the precontent phase: NGX_DECLINED lets the request go on to the
 * upstream; NGX_DONE, it was answered; else a status that nginx answers with.
 */

ngx_int_t ngx_http_vibelock_unstick(ngx_http_request_t *r,
    ngx_http_vibelock_unstick_conf_t *conf);

/*
 * For the header filter, before the header is passed on.
 */

void ngx_http_vibelock_unstick_header(ngx_http_request_t *r);


#endif /* _NGX_HTTP_VIBELOCK_UNSTICK_H_INCLUDED_ */
