
/*
 * Copyright (C) the vibelock authors
 *
 * TLS to Redis, where hiredis has it: the server has to show a certificate
 * for its host that the system's authorities vouch for.
 */


#ifndef _NGX_HTTP_VIBELOCK_REDIS_TLS_H_INCLUDED_
#define _NGX_HTTP_VIBELOCK_REDIS_TLS_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include <hiredis/hiredis.h>


/*
 * What start() takes as "tls", as long as the configuration lives; NULL when a
 * message was logged, which names the "url": as where this hiredis has no TLS.
 */

void *ngx_http_vibelock_redis_tls_init(ngx_conf_t *cf, ngx_str_t *url);

/*
 * Begins TLS on a connection that is being made to "host", a name or an
 * address, with brackets where it is one of IPv6.  *ssl is hiredis's to free.
 * NGX_OK; NGX_ERROR and *failure, as below.
 */

ngx_int_t ngx_http_vibelock_redis_tls_start(void *tls, ngx_str_t *host,
    redisContext *c, void **ssl, const char **failure);

/*
 * 1 after a write that has to wait until something was read; "ssl" is NULL
 * where there is no TLS.
 */

ngx_uint_t ngx_http_vibelock_redis_tls_reads(void *ssl);

/*
 * What is wrong with a connection that failed, in OpenSSL's words: with the
 * certificate, if anything is.  Of one that was closed: what the server said
 * before it did.  NULL: nothing is known.
 */

const char *ngx_http_vibelock_redis_tls_failure(void *ssl);
const char *ngx_http_vibelock_redis_tls_alert(void *ssl);

/*
 * After a connection: what OpenSSL has noted of it would be taken for an error
 * of whatever has TLS in this worker next, and nginx logs it as an alert.
 */

void ngx_http_vibelock_redis_tls_forget(void);


#endif /* _NGX_HTTP_VIBELOCK_REDIS_TLS_H_INCLUDED_ */
