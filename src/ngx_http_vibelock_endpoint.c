
/*
 * Copyright (C) the vibelock authors
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_vibelock_endpoint.h"
#include "ngx_http_vibelock_record.h"
#include "ngx_http_vibelock_refuse.h"
#include "ngx_http_vibelock_release.h"
#include "ngx_http_vibelock_reply.h"


static ngx_int_t ngx_http_vibelock_endpoint_invalid(ngx_http_request_t *r,
    ngx_http_vibelock_endpoint_conf_t *conf);
static ngx_int_t ngx_http_vibelock_endpoint_denied(ngx_http_request_t *r,
    ngx_http_vibelock_endpoint_conf_t *conf, ngx_http_vibelock_caller_e rc);
static ngx_int_t ngx_http_vibelock_endpoint_answer(ngx_http_request_t *r,
    ngx_http_vibelock_release_t *release);


ngx_int_t
ngx_http_vibelock_endpoint(ngx_http_request_t *r,
    ngx_http_vibelock_endpoint_conf_t *conf)
{
    ngx_int_t                    key, found;
    ngx_http_vibelock_caller_e   rc;
    ngx_http_vibelock_release_t  release;

    if (!(r->method & (NGX_HTTP_DELETE|NGX_HTTP_GET|NGX_HTTP_HEAD))) {
        return ngx_http_vibelock_reply_error(r,
                                    NGX_HTTP_VIBELOCK_REPLY_NOT_ALLOWED_LOCK,
                                    0, NULL);
    }

    release.zone = conf->zone;
    release.moment = 0;
    release.log_level = conf->log_level;
    release.why = "by DELETE";

    key = ngx_http_vibelock_zone_key(r, conf->zone, &release.key);

    if (key == NGX_ERROR) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    rc = ngx_http_vibelock_caller(r, conf->caller, &release.caller);

    if (rc != NGX_HTTP_VIBELOCK_CALLER_OK) {
        return ngx_http_vibelock_endpoint_denied(r, conf, rc);
    }

    if (key == NGX_ABORT) {
        return ngx_http_vibelock_endpoint_invalid(r, conf);
    }

    if (key == NGX_DECLINED) {
        return ngx_http_vibelock_endpoint_denied(r, conf,
                                         NGX_HTTP_VIBELOCK_CALLER_NOT_FOUND);
    }

    found = ngx_http_vibelock_table_find(conf->zone->table, &release.key,
                                         &release.lock);

    if (found != NGX_OK) {
        release.lock.handle.token = 0;
    }

    rc = ngx_http_vibelock_caller_may_break(r, conf->caller, &release.caller,
                                            &release.key,
                                            (found == NGX_OK) ? &release.lock
                                                              : NULL);

    if (rc != NGX_HTTP_VIBELOCK_CALLER_OK) {
        return ngx_http_vibelock_endpoint_denied(r, conf, rc);
    }

    return ngx_http_vibelock_endpoint_answer(r, &release);
}


static ngx_int_t
ngx_http_vibelock_endpoint_invalid(ngx_http_request_t *r,
    ngx_http_vibelock_endpoint_conf_t *conf)
{
    ngx_http_vibelock_record_t  *record;

    record = ngx_http_vibelock_record_get(r);
    if (record == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    record->result = NGX_HTTP_VIBELOCK_INVALID;

    ngx_http_vibelock_zone_count(conf->zone, NGX_HTTP_VIBELOCK_N_INVALID);

    return ngx_http_vibelock_reply_error(r, NGX_HTTP_VIBELOCK_REPLY_BAD_KEY, 0,
                                         NULL);
}


static ngx_int_t
ngx_http_vibelock_endpoint_denied(ngx_http_request_t *r,
    ngx_http_vibelock_endpoint_conf_t *conf, ngx_http_vibelock_caller_e rc)
{
    ngx_http_vibelock_record_t  *record;

    record = ngx_http_vibelock_record_get(r);
    if (record == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    record->result = NGX_HTTP_VIBELOCK_DENIED;

    ngx_http_vibelock_zone_count(conf->zone, NGX_HTTP_VIBELOCK_N_DENIED);

    return ngx_http_vibelock_refuse(r, rc);
}


static ngx_int_t
ngx_http_vibelock_endpoint_answer(ngx_http_request_t *r,
    ngx_http_vibelock_release_t *release)
{
    ngx_uint_t                       held;
    ngx_http_vibelock_reply_lock_t   lock;

    if (r->method == NGX_HTTP_DELETE) {
        held = ngx_http_vibelock_release(r, release);

    } else {
        held = (release->lock.handle.token != 0);
    }

    if (held) {
        lock.operation = release->lock.operation;
        lock.stuck = release->lock.stuck;
        lock.age = release->lock.age;
        lock.rest = release->lock.rest;
    }

    if (r->method == NGX_HTTP_DELETE) {
        return ngx_http_vibelock_reply_released(r, held ? &lock : NULL);
    }

    return ngx_http_vibelock_reply_state(r, held ? &lock : NULL);
}
