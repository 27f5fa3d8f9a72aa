
/*
 * Copyright (C) the vibelock authors
 *
 * The form: which of its three a client wants the status in.
 */


#ifndef _NGX_HTTP_VIBELOCK_FORM_H_INCLUDED_
#define _NGX_HTTP_VIBELOCK_FORM_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>


typedef enum {
    NGX_HTTP_VIBELOCK_FORM_JSON = 0,
    NGX_HTTP_VIBELOCK_FORM_PROMETHEUS,
    NGX_HTTP_VIBELOCK_FORM_HTML,
    NGX_HTTP_VIBELOCK_FORM_NONE
} ngx_http_vibelock_form_e;


/*
 * The form of that name, FORM_NONE: there is none.
 */

ngx_http_vibelock_form_e ngx_http_vibelock_form_named(ngx_str_t *name);

/*
 * What the argument "format" says, else what "Accept" likes best, else
 * "preset".  FORM_NONE: the argument is wrong.
 */

ngx_http_vibelock_form_e ngx_http_vibelock_form(ngx_http_request_t *r,
    ngx_http_vibelock_form_e preset);


#endif /* _NGX_HTTP_VIBELOCK_FORM_H_INCLUDED_ */
