
/*
 * Copyright (C) the vibelock authors
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_vibelock_ending.h"
#include "ngx_http_vibelock_record.h"
#include "ngx_http_vibelock_refuse.h"
#include "ngx_http_vibelock_release.h"
#include "ngx_http_vibelock_reply.h"
#include "ngx_http_vibelock_unstick.h"


static ngx_int_t ngx_http_vibelock_unstick_not_allowed(ngx_http_request_t *r,
    ngx_http_vibelock_unstick_conf_t *conf);
static ngx_int_t ngx_http_vibelock_unstick_check(ngx_http_request_t *r,
    ngx_http_vibelock_unstick_conf_t *conf,
    ngx_http_vibelock_record_t *record, ngx_http_vibelock_release_t *release);
static ngx_uint_t ngx_http_vibelock_unstick_passes(ngx_http_request_t *r,
    ngx_http_vibelock_unstick_conf_t *conf);
static ngx_int_t ngx_http_vibelock_unstick_invalid(ngx_http_request_t *r,
    ngx_http_vibelock_unstick_conf_t *conf,
    ngx_http_vibelock_record_t *record);
static ngx_int_t ngx_http_vibelock_unstick_denied(ngx_http_request_t *r,
    ngx_http_vibelock_unstick_conf_t *conf,
    ngx_http_vibelock_record_t *record, ngx_http_vibelock_caller_e rc);
static ngx_int_t ngx_http_vibelock_unstick_unsupported(ngx_http_request_t *r,
    ngx_http_vibelock_unstick_conf_t *conf, ngx_http_vibelock_lock_t *lock);
static ngx_int_t ngx_http_vibelock_unstick_answer(ngx_http_request_t *r,
    ngx_int_t rc);
static ngx_uint_t ngx_http_vibelock_unstick_status(ngx_http_request_t *r);


ngx_int_t
ngx_http_vibelock_unstick(ngx_http_request_t *r,
    ngx_http_vibelock_unstick_conf_t *conf)
{
    ngx_int_t                     rc;
    ngx_uint_t                    released;
    ngx_http_vibelock_record_t   *record;
    ngx_http_vibelock_release_t  *release;

    if (r != r->main) {
        return NGX_DECLINED;
    }

    record = ngx_http_vibelock_record_find(r);

    if (record) {

        /* redirected: who answers now is not the upstream that was to reset */

        record->unstick = NULL;
    }

    if (conf->zone == NULL) {
        return NGX_DECLINED;
    }

    /* a preflight is the upstream's */

    if (r->method == NGX_HTTP_OPTIONS && r->content_handler) {
        return NGX_DECLINED;
    }

    if (r->method != NGX_HTTP_POST) {
        return ngx_http_vibelock_unstick_not_allowed(r, conf);
    }

    record = ngx_http_vibelock_record_get(r);
    if (record == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    release = ngx_palloc(r->pool, sizeof(ngx_http_vibelock_release_t));
    if (release == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    rc = ngx_http_vibelock_unstick_check(r, conf, record, release);

    if (rc != NGX_OK) {
        return rc;
    }

    if (r->content_handler == NULL) {
        released = ngx_http_vibelock_release(r, release);

        return ngx_http_vibelock_unstick_answer(r,
                                 ngx_http_vibelock_reply_unstuck(r, released));
    }

    /* the rest is in the upstream's hands, see unstick_header() */

    record->unstick = release;

    return NGX_DECLINED;
}


static ngx_int_t
ngx_http_vibelock_unstick_not_allowed(ngx_http_request_t *r,
    ngx_http_vibelock_unstick_conf_t *conf)
{
    if (ngx_http_vibelock_unstick_passes(r, conf)) {
        return NGX_DECLINED;
    }

    return ngx_http_vibelock_unstick_answer(r,
                    ngx_http_vibelock_reply_error(r,
                                  NGX_HTTP_VIBELOCK_REPLY_NOT_ALLOWED_UNSTICK,
                                  0, NULL));
}


/*
 * Fills *release: NGX_OK, the caller may.  Else the request was answered, or
 * goes on in a dry run, as what is returned says.
 */

static ngx_int_t
ngx_http_vibelock_unstick_check(ngx_http_request_t *r,
    ngx_http_vibelock_unstick_conf_t *conf,
    ngx_http_vibelock_record_t *record, ngx_http_vibelock_release_t *release)
{
    ngx_int_t                    key;
    ngx_http_vibelock_lock_t    *lock;
    ngx_http_vibelock_caller_e   rc;

    release->zone = conf->zone;
    release->moment = ngx_current_msec;
    release->log_level = conf->log_level;
    release->why = "by unstick";

    key = ngx_http_vibelock_zone_key(r, conf->zone, &release->key);

    if (key == NGX_ERROR) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    rc = ngx_http_vibelock_caller(r, conf->caller, &release->caller);

    if (rc != NGX_HTTP_VIBELOCK_CALLER_OK) {
        return ngx_http_vibelock_unstick_denied(r, conf, record, rc);
    }

    if (key == NGX_ABORT) {
        return ngx_http_vibelock_unstick_invalid(r, conf, record);
    }

    if (key == NGX_DECLINED) {
        return ngx_http_vibelock_unstick_denied(r, conf, record,
                                         NGX_HTTP_VIBELOCK_CALLER_NOT_FOUND);
    }

    lock = &release->lock;

    if (ngx_http_vibelock_table_find(conf->zone->table, &release->key, lock)
        != NGX_OK)
    {
        release->lock.handle.token = 0;
        lock = NULL;
    }

    rc = ngx_http_vibelock_caller_may_break(r, conf->caller, &release->caller,
                                            &release->key, lock);

    if (rc != NGX_HTTP_VIBELOCK_CALLER_OK) {
        return ngx_http_vibelock_unstick_denied(r, conf, record, rc);
    }

    if (!ngx_http_vibelock_caller_standalone(r, conf->caller,
                                             &release->caller))
    {
        return ngx_http_vibelock_unstick_unsupported(r, conf, lock);
    }

    return NGX_OK;
}


/*
 * 1 in a dry run: what would be refused goes on, where there is something to
 * go on to.
 */

static ngx_uint_t
ngx_http_vibelock_unstick_passes(ngx_http_request_t *r,
    ngx_http_vibelock_unstick_conf_t *conf)
{
    return conf->dry_run && r->content_handler;
}


static ngx_int_t
ngx_http_vibelock_unstick_invalid(ngx_http_request_t *r,
    ngx_http_vibelock_unstick_conf_t *conf,
    ngx_http_vibelock_record_t *record)
{
    if (ngx_http_vibelock_unstick_passes(r, conf)) {
        record->result = NGX_HTTP_VIBELOCK_INVALID_DRY_RUN;

        ngx_http_vibelock_zone_count(conf->zone,
                                     NGX_HTTP_VIBELOCK_N_INVALID_DRY_RUN);
        return NGX_DECLINED;
    }

    record->result = NGX_HTTP_VIBELOCK_INVALID;

    ngx_http_vibelock_zone_count(conf->zone, NGX_HTTP_VIBELOCK_N_INVALID);

    return ngx_http_vibelock_unstick_answer(r,
                    ngx_http_vibelock_reply_error(r,
                                              NGX_HTTP_VIBELOCK_REPLY_BAD_KEY,
                                              0, NULL));
}


static ngx_int_t
ngx_http_vibelock_unstick_denied(ngx_http_request_t *r,
    ngx_http_vibelock_unstick_conf_t *conf,
    ngx_http_vibelock_record_t *record, ngx_http_vibelock_caller_e rc)
{
    if (rc != NGX_HTTP_VIBELOCK_CALLER_ERROR
        && ngx_http_vibelock_unstick_passes(r, conf))
    {
        record->result = NGX_HTTP_VIBELOCK_DENIED_DRY_RUN;

        ngx_http_vibelock_zone_count(conf->zone,
                                     NGX_HTTP_VIBELOCK_N_DENIED_DRY_RUN);
        return NGX_DECLINED;
    }

    record->result = NGX_HTTP_VIBELOCK_DENIED;

    ngx_http_vibelock_zone_count(conf->zone, NGX_HTTP_VIBELOCK_N_DENIED);

    return ngx_http_vibelock_unstick_answer(r, ngx_http_vibelock_refuse(r, rc));
}


static ngx_int_t
ngx_http_vibelock_unstick_unsupported(ngx_http_request_t *r,
    ngx_http_vibelock_unstick_conf_t *conf, ngx_http_vibelock_lock_t *lock)
{
    time_t  retry;

    if (ngx_http_vibelock_unstick_passes(r, conf)) {
        return NGX_DECLINED;
    }

    retry = ngx_http_vibelock_reply_retry(conf->retry_after,
                                          lock ? lock->rest : 0);

    return ngx_http_vibelock_unstick_answer(r,
                    ngx_http_vibelock_reply_error(r,
                                  NGX_HTTP_VIBELOCK_REPLY_UNSTICK_UNSUPPORTED,
                                  retry, NULL));
}


static ngx_int_t
ngx_http_vibelock_unstick_answer(ngx_http_request_t *r, ngx_int_t rc)
{
    ngx_http_finalize_request(r, rc);

    return NGX_DONE;
}


void
ngx_http_vibelock_unstick_header(ngx_http_request_t *r)
{
    ngx_uint_t                    status;
    ngx_http_vibelock_record_t   *record;
    ngx_http_vibelock_release_t  *release;

    if (r != r->main) {
        return;
    }

    record = ngx_http_vibelock_record_find(r);

    if (record == NULL || record->unstick == NULL) {
        return;
    }

    status = ngx_http_vibelock_unstick_status(r);

    if (status < 200 || status > 299) {
        return;
    }

    release = record->unstick;

    /* once: what follows is not the upstream's word any more */

    record->unstick = NULL;

    (void) ngx_http_vibelock_release(r, release);
}


/*
 * The status that the upstream itself, or what else makes the content, gave;
 * 0 when the answer is another's: a cache's, or an error page's.
 */

static ngx_uint_t
ngx_http_vibelock_unstick_status(ngx_http_request_t *r)
{
    if (r->upstream == NULL) {
        return r->err_status ? 0 : r->headers_out.status;
    }

    if (!ngx_http_vibelock_ending_answering(r)) {
        return 0;
    }

    return r->upstream->headers_in.status_n;
}
