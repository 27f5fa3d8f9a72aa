
/*
 * Copyright (C) the vibelock authors
 *
 * Refuse: what a caller is told who may not.
 */


#ifndef _NGX_HTTP_VIBELOCK_REFUSE_H_INCLUDED_
#define _NGX_HTTP_VIBELOCK_REFUSE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_vibelock_caller.h"


/*
 * Sends the answer to a caller that is not CALLER_OK; returns what a content
 * handler returns.
 */

ngx_int_t ngx_http_vibelock_refuse(ngx_http_request_t *r,
    ngx_http_vibelock_caller_e caller);


#endif /* _NGX_HTTP_VIBELOCK_REFUSE_H_INCLUDED_ */
