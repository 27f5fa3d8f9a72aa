
/*
 * Copyright (C) the vibelock authors
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_vibelock_redis_tls.h"
#include "ngx_http_vibelock_redis_url.h"


#define NGX_HTTP_VIBELOCK_REDIS_PORT      6379
#define NGX_HTTP_VIBELOCK_REDIS_DB_LEN    9      /* digits, at most */
#define NGX_HTTP_VIBELOCK_REDIS_PASSWORD  512    /* bytes, at most */

/* nginx's own default, which it settles later, ms */
#define NGX_HTTP_VIBELOCK_REDIS_RESOLVE  30000


static char *ngx_http_vibelock_redis_url_tcp(ngx_conf_t *cf,
    ngx_http_vibelock_redis_url_t *url, ngx_str_t *rest);
static char *ngx_http_vibelock_redis_url_unix(ngx_conf_t *cf,
    ngx_http_vibelock_redis_url_t *url, ngx_str_t *rest);
static char *ngx_http_vibelock_redis_url_host(ngx_conf_t *cf,
    ngx_http_vibelock_redis_url_t *url, ngx_str_t *host);
static ngx_uint_t ngx_http_vibelock_redis_url_db(ngx_str_t *db);
static char *ngx_http_vibelock_redis_url_wrong(ngx_conf_t *cf,
    ngx_str_t *text, char *what);
static ssize_t ngx_http_vibelock_redis_url_read(ngx_conf_t *cf,
    ngx_str_t *name, u_char *buf, size_t size);
static void ngx_http_vibelock_redis_url_addrs(
    ngx_http_vibelock_redis_url_t *url, ngx_url_t *u);


char *
ngx_http_vibelock_redis_url(ngx_conf_t *cf, ngx_http_vibelock_redis_url_t *url,
    ngx_str_t *text)
{
    ngx_str_t   rest;
    ngx_uint_t  tls;

    url->text = *text;

    if (ngx_strncmp(text->data, "unix:", 5) == 0) {
        rest.data = text->data + 5;
        rest.len = text->len - 5;

        return ngx_http_vibelock_redis_url_unix(cf, url, &rest);
    }

    if (ngx_strncmp(text->data, "redis://", 8) == 0) {
        tls = 0;

    } else if (ngx_strncmp(text->data, "rediss://", 9) == 0) {
        tls = 1;

    } else {

        /* what stands before an "@" may be a password */

        rest.data = text->data + text->len;

        while (rest.data > text->data && *(rest.data - 1) != '@') {
            rest.data--;
        }

        rest.len = text->data + text->len - rest.data;

        return ngx_http_vibelock_redis_url_wrong(cf, &rest,
                                                 "has no known scheme");
    }

    rest.data = text->data + 8 + tls;
    rest.len = text->len - 8 - tls;

    if (ngx_http_vibelock_redis_url_tcp(cf, url, &rest) != NGX_CONF_OK) {
        return NGX_CONF_ERROR;
    }

    if (tls) {
        url->tls = ngx_http_vibelock_redis_tls_init(cf, &url->text);

        if (url->tls == NULL) {
            return NGX_CONF_ERROR;
        }
    }

    return NGX_CONF_OK;
}


static char *
ngx_http_vibelock_redis_url_tcp(ngx_conf_t *cf,
    ngx_http_vibelock_redis_url_t *url, ngx_str_t *rest)
{
    u_char     *p, *last;
    ngx_str_t   host;

    host = *rest;
    last = host.data + host.len;

    p = ngx_strlchr(host.data, last, '@');

    if (p) {
        url->user.data = host.data;
        url->user.len = p - host.data;

        if (ngx_strlchr(url->user.data, p, ':')) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "\"vibelock_redis\" takes no password in its "
                               "url, which would end up in logs; put it into "
                               "a file and add \"password_file=<file>\"");
            return NGX_CONF_ERROR;
        }

        if (url->user.len == 0) {
            return ngx_http_vibelock_redis_url_wrong(cf, &url->text,
                                                     "has an empty user");
        }

        host.data = p + 1;
        host.len = last - host.data;
    }

    p = ngx_strlchr(host.data, last, '/');

    if (p) {
        host.len = p - host.data;
        url->db.data = p + 1;
        url->db.len = last - url->db.data;
    }

    if (host.len == 0 || ngx_strncmp(host.data, "unix:", 5) == 0) {
        return ngx_http_vibelock_redis_url_wrong(cf, &url->text,
                                                 "has no host");
    }

    if (p && !ngx_http_vibelock_redis_url_db(&url->db)) {
        return ngx_http_vibelock_redis_url_wrong(cf, &url->text,
                                           "has a database that is no number");
    }

    return ngx_http_vibelock_redis_url_host(cf, url, &host);
}


static char *
ngx_http_vibelock_redis_url_host(ngx_conf_t *cf,
    ngx_http_vibelock_redis_url_t *url, ngx_str_t *host)
{
    u_char     what[80];
    ngx_url_t  u;

    ngx_memzero(&u, sizeof(ngx_url_t));

    u.url = *host;
    u.default_port = NGX_HTTP_VIBELOCK_REDIS_PORT;
    u.no_resolve = 1;

    if (ngx_parse_url(cf->pool, &u) != NGX_OK) {
        *ngx_snprintf(what, sizeof(what) - 1, "cannot be read: %s",
                      u.err ? u.err : "invalid host") = '\0';

        return ngx_http_vibelock_redis_url_wrong(cf, &url->text,
                                                 (char *) what);
    }

    url->host = u.host;
    url->port = u.port;

    ngx_http_vibelock_redis_url_addrs(url, &u);

    return NGX_CONF_OK;
}


static char *
ngx_http_vibelock_redis_url_unix(ngx_conf_t *cf,
    ngx_http_vibelock_redis_url_t *url, ngx_str_t *rest)
{
    u_char              *p, *last;
    ngx_str_t            path;
    struct sockaddr_un   sun;

    path = *rest;
    last = path.data + path.len;

    p = ngx_strlchr(path.data, last, ':');

    if (p) {
        path.len = p - path.data;
        url->db.data = p + 1;
        url->db.len = last - url->db.data;

        if (!ngx_http_vibelock_redis_url_db(&url->db)) {
            return ngx_http_vibelock_redis_url_wrong(cf, &url->text,
                                           "has a database that is no number");
        }
    }

    if (path.len == 0 || path.data[0] != '/') {
        return ngx_http_vibelock_redis_url_wrong(cf, &url->text,
                                             "has a path that is not absolute");
    }

    if (path.len >= sizeof(sun.sun_path)) {
        return ngx_http_vibelock_redis_url_wrong(cf, &url->text,
                                       "has a path too long for a socket");
    }

    url->path.len = path.len;
    url->path.data = ngx_pnalloc(cf->pool, path.len + 1);
    if (url->path.data == NULL) {
        return NGX_CONF_ERROR;
    }

    (void) ngx_cpystrn(url->path.data, path.data, path.len + 1);

    return NGX_CONF_OK;
}


static ngx_uint_t
ngx_http_vibelock_redis_url_db(ngx_str_t *db)
{
    return db->len <= NGX_HTTP_VIBELOCK_REDIS_DB_LEN
           && ngx_atoi(db->data, db->len) != NGX_ERROR;
}


static char *
ngx_http_vibelock_redis_url_wrong(ngx_conf_t *cf, ngx_str_t *text, char *what)
{
    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "\"vibelock_redis\" with \"%V\" %s; it must be "
                       "\"redis://[user@]host[:port][/db]\", \"rediss://\" "
                       "with the same, or \"unix:<path>[:db]\"", text, what);

    return NGX_CONF_ERROR;
}


char *
ngx_http_vibelock_redis_url_password(ngx_conf_t *cf,
    ngx_http_vibelock_redis_url_t *url, ngx_str_t *file)
{
    u_char     *buf;
    ssize_t     n;
    ngx_str_t   name;

    name = *file;

    if (ngx_conf_full_name(cf->cycle, &name, 1) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    /* room for one byte too many, and for the end of the line */

    buf = ngx_pnalloc(cf->pool, NGX_HTTP_VIBELOCK_REDIS_PASSWORD + 3);
    if (buf == NULL) {
        return NGX_CONF_ERROR;
    }

    n = ngx_http_vibelock_redis_url_read(cf, &name, buf,
                                         NGX_HTTP_VIBELOCK_REDIS_PASSWORD + 3);
    if (n == NGX_ERROR) {
        return NGX_CONF_ERROR;
    }

    if (n && buf[n - 1] == LF) {
        n--;
    }

    if (n && buf[n - 1] == CR) {
        n--;
    }

    if (n == 0 || n > NGX_HTTP_VIBELOCK_REDIS_PASSWORD) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"password_file=%V\" in \"vibelock_redis\" must "
                           "hold a password of 1 to %d bytes, and nothing "
                           "else but the end of its line", &name,
                           NGX_HTTP_VIBELOCK_REDIS_PASSWORD);
        return NGX_CONF_ERROR;
    }

    url->password.data = buf;
    url->password.len = n;

    return NGX_CONF_OK;
}


static ssize_t
ngx_http_vibelock_redis_url_read(ngx_conf_t *cf, ngx_str_t *name, u_char *buf,
    size_t size)
{
    size_t    len;
    ssize_t   n;
    ngx_fd_t  fd;

    /* not blocking: it may be a pipe that nobody writes to */

    fd = ngx_open_file(name->data, NGX_FILE_RDONLY|NGX_FILE_NONBLOCK,
                       NGX_FILE_OPEN, 0);

    if (fd == NGX_INVALID_FILE) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, ngx_errno,
                           ngx_open_file_n " \"%V\" of \"password_file\" in "
                           "\"vibelock_redis\" failed", name);
        return NGX_ERROR;
    }

    for (len = 0; len < size; len += n) {
        n = ngx_read_fd(fd, buf + len, size - len);

        if (n == -1) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, ngx_errno,
                               ngx_read_fd_n " \"%V\" of \"password_file\" "
                               "in \"vibelock_redis\" failed", name);
            (void) ngx_close_file(fd);
            return NGX_ERROR;
        }

        if (n == 0) {
            break;
        }
    }

    (void) ngx_close_file(fd);

    return len;
}


char *
ngx_http_vibelock_redis_url_resolve(ngx_conf_t *cf,
    ngx_http_vibelock_redis_url_t *url)
{
    ngx_url_t                  u;
    ngx_http_core_loc_conf_t  *clcf;

    /* an address, or a Unix socket */

    if (url->naddrs || url->host.len == 0) {
        return NGX_CONF_OK;
    }

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    if (clcf->resolver && clcf->resolver->connections.nelts) {
        url->resolver = clcf->resolver;

        url->resolver_timeout = clcf->resolver_timeout;
        ngx_conf_init_msec_value(url->resolver_timeout,
                                 NGX_HTTP_VIBELOCK_REDIS_RESOLVE);
    }

    ngx_memzero(&u, sizeof(ngx_url_t));

    u.host = url->host;
    u.port = url->port;

    if (ngx_inet_resolve_host(cf->pool, &u) == NGX_OK) {
        ngx_http_vibelock_redis_url_addrs(url, &u);
        return NGX_CONF_OK;
    }

    if (u.err == NULL) {
        return NGX_CONF_ERROR;
    }

    if (url->resolver) {
        ngx_conf_log_error(NGX_LOG_WARN, cf, 0,
                           "\"vibelock_redis\": %s in \"%V\", the resolver "
                           "will be asked", u.err, &url->text);
        return NGX_CONF_OK;
    }

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "\"vibelock_redis\": %s in \"%V\"; with \"resolver\" "
                       "in http the name may be settled later",
                       u.err, &url->text);

    return NGX_CONF_ERROR;
}


static void
ngx_http_vibelock_redis_url_addrs(ngx_http_vibelock_redis_url_t *url,
    ngx_url_t *u)
{
    ngx_uint_t                       i;
    ngx_http_vibelock_redis_addr_t  *addr;

    for (i = 0; i < u->naddrs && i < NGX_HTTP_VIBELOCK_REDIS_ADDRS; i++) {
        addr = &url->addrs[i];

        ngx_memcpy(&addr->sockaddr, u->addrs[i].sockaddr, u->addrs[i].socklen);
        addr->socklen = u->addrs[i].socklen;
    }

    url->naddrs = i;
}
