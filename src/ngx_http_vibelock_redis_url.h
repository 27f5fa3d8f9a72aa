
/*
 * Copyright (C) the vibelock authors
 *
 * Where Redis is and how to log in there, as the configuration says it:
 *
 *     redis://[user@]host[:port][/db]
 *     rediss://[user@]host[:port][/db]
 *     unix:<path>[:db]
 */


#ifndef _NGX_HTTP_VIBELOCK_REDIS_URL_H_INCLUDED_
#define _NGX_HTTP_VIBELOCK_REDIS_URL_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>


#define NGX_HTTP_VIBELOCK_REDIS_ADDRS  16    /* of one name */


typedef struct {
    ngx_sockaddr_t              sockaddr;
    socklen_t                   socklen;
} ngx_http_vibelock_redis_addr_t;


typedef struct {
    ngx_str_t                   text;       /* as it was given */
    ngx_str_t                   host;       /* empty: a Unix socket */
    ngx_str_t                   path;       /* of that; a zero follows */
    ngx_str_t                   user;       /* empty: the default one */
    ngx_str_t                   password;   /* empty: none */
    ngx_str_t                   db;         /* empty: the first one */
    in_port_t                   port;
    void                       *tls;        /* NULL: a plain connection */

    ngx_uint_t                  naddrs;
    ngx_http_vibelock_redis_addr_t  addrs[NGX_HTTP_VIBELOCK_REDIS_ADDRS];

    ngx_resolver_t             *resolver;   /* NULL: host was settled */
    ngx_msec_t                  resolver_timeout;
} ngx_http_vibelock_redis_url_t;


/*
 * Each returns NGX_CONF_OK, or NGX_CONF_ERROR when a message was logged.
 *
 * url() takes a text apart, password() reads a file.  resolve() is for when
 * all was read: a resolver may stand below.
 */

char *ngx_http_vibelock_redis_url(ngx_conf_t *cf,
    ngx_http_vibelock_redis_url_t *url, ngx_str_t *text);
char *ngx_http_vibelock_redis_url_password(ngx_conf_t *cf,
    ngx_http_vibelock_redis_url_t *url, ngx_str_t *file);
char *ngx_http_vibelock_redis_url_resolve(ngx_conf_t *cf,
    ngx_http_vibelock_redis_url_t *url);


#endif /* _NGX_HTTP_VIBELOCK_REDIS_URL_H_INCLUDED_ */
