
/*
 * Copyright (C) the vibelock authors
 *
 * The TTL of an operation: fixed, or read from a field of its JSON body.
 */


#ifndef _NGX_HTTP_VIBELOCK_TTL_H_INCLUDED_
#define _NGX_HTTP_VIBELOCK_TTL_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>


typedef struct {
    ngx_str_t      field;     /* empty: the TTL is fixed, in "value" */
    ngx_str_t      message;   /* what the field may be, ready for JSON */
    ngx_msec_t     value;     /* fixed, or where the field is not there; ms */
    ngx_msec_t     add;       /* on top of the field or of "value"; ms */
    ngx_msec_t     max;       /* of the field; ms */
} ngx_http_vibelock_ttl_t;


/*
 * "vibelock_ttl": parses it.  A ngx_command_t handler's result.  A structure
 * of zeroes is one that was not set: there is no TTL of 0.
 */

char *ngx_http_vibelock_ttl_set(ngx_conf_t *cf, ngx_http_vibelock_ttl_t *ttl);

/*
 * Where "ttl" was not set it becomes "prev", or the default of 15 minutes.
 */

void ngx_http_vibelock_ttl_merge(ngx_http_vibelock_ttl_t *prev,
    ngx_http_vibelock_ttl_t *ttl);

/*
 * 1 when the body says that it is over 1 MB, and need not be read to know it.
 */

ngx_uint_t ngx_http_vibelock_ttl_over(ngx_http_request_t *r);

/*
 * The TTL from the body that nginx has read, into *ms.  A body of no bytes,
 * and a field that is absent or null, give the default; a body of nothing but
 * white space is no JSON object.
 *
 * NGX_OK         it is there
 * NGX_DECLINED   the body is no JSON object, or has a member twice
 * NGX_ABORT      the field is no positive number, or over the limit
 * NGX_DONE       the body is over 1 MB
 * NGX_ERROR      no memory, or the temporary file cannot be read
 */

ngx_int_t ngx_http_vibelock_ttl_read(ngx_http_request_t *r,
    ngx_http_vibelock_ttl_t *ttl, ngx_msec_t *ms);


#endif /* _NGX_HTTP_VIBELOCK_TTL_H_INCLUDED_ */
