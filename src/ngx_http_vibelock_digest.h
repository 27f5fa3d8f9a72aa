
/*
 * Copyright (C) the vibelock authors
 *
 * SHA-256, by libcrypto.
 */


#ifndef _NGX_HTTP_VIBELOCK_DIGEST_H_INCLUDED_
#define _NGX_HTTP_VIBELOCK_DIGEST_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>


#define NGX_HTTP_VIBELOCK_DIGEST_LEN  32


/*
 * Writes the 32 bytes of the text's digest.  NGX_OK, NGX_ERROR (libcrypto has
 * no memory, or no random bytes).  For nginx's own thread of a process only: it
 * keeps one context.
 */

ngx_int_t ngx_http_vibelock_digest(ngx_str_t *text, u_char *digest);

/*
 * The same for any thread, at three times the price.
 */

ngx_int_t ngx_http_vibelock_digest_threaded(ngx_str_t *text, u_char *digest);

/*
 * Reads 64 hex digits, in either case, into 32 bytes.  NGX_OK, NGX_ERROR (not
 * that).
 */

ngx_int_t ngx_http_vibelock_digest_hex(ngx_str_t *hex, u_char *digest);


#endif /* _NGX_HTTP_VIBELOCK_DIGEST_H_INCLUDED_ */
