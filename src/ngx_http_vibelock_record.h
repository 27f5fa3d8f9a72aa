
/*
 * Copyright (C) the vibelock authors
 *
 * The record: what the module knows of a request, for its variables and its
 * log line.  It stays with the main request over internal redirects, which
 * clear r->ctx, and until after the access log.
 */


#ifndef _NGX_HTTP_VIBELOCK_RECORD_H_INCLUDED_
#define _NGX_HTTP_VIBELOCK_RECORD_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>


typedef enum {
    NGX_HTTP_VIBELOCK_NO_RESULT = 0,
    NGX_HTTP_VIBELOCK_ACQUIRED,
    NGX_HTTP_VIBELOCK_RELEASED,
    NGX_HTTP_VIBELOCK_KEPT,
    NGX_HTTP_VIBELOCK_LOST,
    NGX_HTTP_VIBELOCK_BUSY,
    NGX_HTTP_VIBELOCK_DENIED,
    NGX_HTTP_VIBELOCK_INVALID,
    NGX_HTTP_VIBELOCK_FULL,
    NGX_HTTP_VIBELOCK_BYPASSED,
    NGX_HTTP_VIBELOCK_BUSY_DRY_RUN,
    NGX_HTTP_VIBELOCK_DENIED_DRY_RUN,
    NGX_HTTP_VIBELOCK_INVALID_DRY_RUN,
    NGX_HTTP_VIBELOCK_FULL_DRY_RUN,
    NGX_HTTP_VIBELOCK_BROKEN,
    NGX_HTTP_VIBELOCK_ABSENT
} ngx_http_vibelock_result_e;


typedef struct {
    ngx_http_vibelock_result_e   result;
    ngx_str_t                    operation;
    uint64_t                     token;        /* 0: none */
    ngx_msec_t                   since;        /* when it was ACQUIRED, ms */
    ngx_msec_t                   age;          /* in any other state, ms */
    unsigned                     aged:1;       /* there is a lock with an age */
    void                        *hold;         /* the guard's */
    void                        *unstick;      /* the unstick handler's */
} ngx_http_vibelock_record_t;


/*
 * The record of r's main request: find() NULL when there is none, get() makes
 * it (NULL: no memory).
 */

ngx_http_vibelock_record_t *ngx_http_vibelock_record_find(
    ngx_http_request_t *r);
ngx_http_vibelock_record_t *ngx_http_vibelock_record_get(
    ngx_http_request_t *r);

/*
 * Adds $vibelock_operation, _token, _age and _result.  NGX_ERROR: no memory.
 */

ngx_int_t ngx_http_vibelock_record_variables(ngx_conf_t *cf);


#endif /* _NGX_HTTP_VIBELOCK_RECORD_H_INCLUDED_ */
