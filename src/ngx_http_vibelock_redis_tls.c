
/*
 * Copyright (C) the vibelock authors
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_http_vibelock_redis_tls.h"


#if (NGX_HTTP_VIBELOCK_TLS)

#include <hiredis/hiredis_ssl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>


static void ngx_http_vibelock_redis_tls_cleanup(void *data);
static ngx_int_t ngx_http_vibelock_redis_tls_name(ngx_str_t *host, SSL *ssl);


void *
ngx_http_vibelock_redis_tls_init(ngx_conf_t *cf, ngx_str_t *url)
{
    SSL_CTX             *ctx;
    ngx_pool_cleanup_t  *cln;

    cln = ngx_pool_cleanup_add(cf->pool, 0);
    if (cln == NULL) {
        return NULL;
    }

    ctx = SSL_CTX_new(TLS_client_method());

    if (ctx == NULL
        || SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION) != 1
        || SSL_CTX_set_default_verify_paths(ctx) != 1)
    {
        SSL_CTX_free(ctx);

        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"vibelock_redis\" with \"%V\": the system's "
                           "certificate authorities cannot be read", url);
        return NULL;
    }

    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);

    cln->handler = ngx_http_vibelock_redis_tls_cleanup;
    cln->data = ctx;

    return ctx;
}


static void
ngx_http_vibelock_redis_tls_cleanup(void *data)
{
    SSL_CTX_free(data);
}


ngx_int_t
ngx_http_vibelock_redis_tls_start(void *tls, ngx_str_t *host,
    redisContext *c, void **sslp, const char **failure)
{
    SSL  *ssl;

    *failure = NULL;

    ssl = SSL_new(tls);
    if (ssl == NULL) {
        return NGX_ERROR;
    }

    if (ngx_http_vibelock_redis_tls_name(host, ssl) != NGX_OK
        || redisInitiateSSL(c, ssl) != REDIS_OK)
    {
        *failure = ngx_http_vibelock_redis_tls_failure(ssl);

        SSL_free(ssl);
        return NGX_ERROR;
    }

    *sslp = ssl;

    return NGX_OK;
}


ngx_uint_t
ngx_http_vibelock_redis_tls_reads(void *ssl)
{
    return ssl && SSL_want_read((SSL *) ssl);
}


const char *
ngx_http_vibelock_redis_tls_failure(void *ssl)
{
    long  rc;

    if (ssl == NULL) {
        return NULL;
    }

    rc = SSL_get_verify_result((SSL *) ssl);

    if (rc != X509_V_OK) {
        return X509_verify_cert_error_string(rc);
    }

    return ERR_reason_error_string(ERR_peek_last_error());
}


const char *
ngx_http_vibelock_redis_tls_alert(void *ssl)
{
    unsigned long  error;

    error = ssl ? ERR_peek_last_error() : 0;

    return (ERR_GET_LIB(error) == ERR_LIB_SSL
            && ERR_GET_REASON(error) >= SSL_AD_REASON_OFFSET)
           ? ERR_reason_error_string(error) : NULL;
}


void
ngx_http_vibelock_redis_tls_forget(void)
{
    ERR_clear_error();
}


/* whom the certificate has to be for: OpenSSL takes texts with a final zero */

static ngx_int_t
ngx_http_vibelock_redis_tls_name(ngx_str_t *host, SSL *ssl)
{
    char                name[256];
    ngx_str_t           bare;
    X509_VERIFY_PARAM  *param;

    bare = *host;

    if (bare.len && bare.data[0] == '[') {
        bare.data++;
        bare.len -= 2;
    }

    if (bare.len >= sizeof(name)) {
        return NGX_ERROR;
    }

    (void) ngx_cpystrn((u_char *) name, bare.data, bare.len + 1);

    param = SSL_get0_param(ssl);

    if (X509_VERIFY_PARAM_set1_ip_asc(param, name) == 1) {
        return NGX_OK;
    }

    if (X509_VERIFY_PARAM_set1_host(param, name, bare.len) != 1
        || SSL_set_tlsext_host_name(ssl, name) != 1)
    {
        return NGX_ERROR;
    }

    return NGX_OK;
}


#else


void *
ngx_http_vibelock_redis_tls_init(ngx_conf_t *cf, ngx_str_t *url)
{
    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "\"vibelock_redis\" with \"%V\": the hiredis that this "
                       "module was built with has no TLS; hiredis 1.0 and "
                       "later can have it", url);

    return NULL;
}


ngx_int_t
ngx_http_vibelock_redis_tls_start(void *tls, ngx_str_t *host,
    redisContext *c, void **ssl, const char **failure)
{
    *failure = NULL;

    return NGX_ERROR;
}


ngx_uint_t
ngx_http_vibelock_redis_tls_reads(void *ssl)
{
    return 0;
}


const char *
ngx_http_vibelock_redis_tls_failure(void *ssl)
{
    return NULL;
}


const char *
ngx_http_vibelock_redis_tls_alert(void *ssl)
{
    return NULL;
}


void
ngx_http_vibelock_redis_tls_forget(void)
{
}


#endif
