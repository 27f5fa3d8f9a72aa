
/*
 * Copyright (C) the vibelock authors
 *
 * Keep: the values by which an upstream says that its operation still runs.
 */


#ifndef _NGX_HTTP_VIBELOCK_KEEP_H_INCLUDED_
#define _NGX_HTTP_VIBELOCK_KEEP_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>


/*
 * For the directive: makes *keep, which has to be NULL, of its values.
 */

char *ngx_http_vibelock_keep_set(ngx_conf_t *cf, ngx_array_t **keep);

/*
 * 1 when a value is neither empty nor "0", or cannot be told.  "keep" may be
 * NULL, which says nothing.
 */

ngx_uint_t ngx_http_vibelock_keep(ngx_http_request_t *r, ngx_array_t *keep);

/*
 * The same before the operation is over: the values may be others at its end.
 */

ngx_uint_t ngx_http_vibelock_keep_yet(ngx_http_request_t *r,
    ngx_array_t *keep);


#endif /* _NGX_HTTP_VIBELOCK_KEEP_H_INCLUDED_ */
