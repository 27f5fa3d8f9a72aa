
/*
 * Copyright (C) the vibelock authors
 *
 * Scan: finds one number in a plain JSON object without building the object.
 *
 * A real parser builds all of the object, which takes more instructions for
 * 300 bytes than nginx does for a proxied request.  What is plain is known to
 * be right in one pass; what is not is left to the parser, which alone may
 * refuse it.
 */


#ifndef _NGX_HTTP_VIBELOCK_SCAN_H_INCLUDED_
#define _NGX_HTTP_VIBELOCK_SCAN_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>


/*
 * Looks for the member of that name.
 *
 * NGX_OK         it is a whole number of up to 18 digits, now in *value
 * NGX_DECLINED   the object is right, and the member absent or null
 * NGX_AGAIN      the text is not plain, and may be anything
 *
 * Plain is an object whose members have names that differ, in ASCII without
 * escapes, no more than 32 in all objects that are open at a time; and in it
 * four levels of objects and arrays, strings without \u0000, numbers of up to
 * 18 digits before a fraction and without an exponent, true, false and null.
 */

ngx_int_t ngx_http_vibelock_scan(ngx_str_t *text, ngx_str_t *name,
    ngx_uint_t *value);


#endif /* _NGX_HTTP_VIBELOCK_SCAN_H_INCLUDED_ */
