
/*
 * Copyright (C) the vibelock authors
 *
 * The page: the status for people.  It is the same for everybody, and asks
 * for the numbers itself, as JSON at its own address.
 *
 * Its sources are in src/page/, config.make has them made into C.
 */


#ifndef _NGX_HTTP_VIBELOCK_PAGE_H_INCLUDED_
#define _NGX_HTTP_VIBELOCK_PAGE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>


/*
 * A content handler.
 */

ngx_int_t ngx_http_vibelock_page(ngx_http_request_t *r);


#endif /* _NGX_HTTP_VIBELOCK_PAGE_H_INCLUDED_ */
