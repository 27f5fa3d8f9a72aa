
/*
 * Copyright (C) the vibelock authors
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_vibelock_clock.h"
#include "ngx_http_vibelock_ending.h"
#include "ngx_http_vibelock_guard_inner.h"
#include "ngx_http_vibelock_refuse.h"
#include "ngx_http_vibelock_reply.h"


typedef enum {
    NGX_HTTP_VIBELOCK_REFUSAL_BUSY = 0,
    NGX_HTTP_VIBELOCK_REFUSAL_DENIED,
    NGX_HTTP_VIBELOCK_REFUSAL_INVALID,
    NGX_HTTP_VIBELOCK_REFUSAL_FULL
} ngx_http_vibelock_refusal_e;


typedef struct {
    ngx_http_vibelock_result_e       result;
    ngx_http_vibelock_counter_e      counter;
} ngx_http_vibelock_refusal_t;


static ngx_uint_t ngx_http_vibelock_guard_anew(ngx_http_request_t *r,
    ngx_http_vibelock_guard_conf_t *conf, ngx_http_vibelock_hold_t *hold);
static ngx_uint_t ngx_http_vibelock_guard_enforced(
    ngx_http_vibelock_guard_conf_t *conf, ngx_http_vibelock_hold_t *hold);
static ngx_int_t ngx_http_vibelock_guard_check(ngx_http_request_t *r,
    ngx_http_vibelock_hold_t *hold);
static ngx_int_t ngx_http_vibelock_guard_peek(ngx_http_request_t *r,
    ngx_http_vibelock_hold_t *hold);
static void ngx_http_vibelock_guard_body_handler(ngx_http_request_t *r);
static ngx_int_t ngx_http_vibelock_guard_read(ngx_http_request_t *r,
    ngx_http_vibelock_hold_t *hold);
static ngx_http_vibelock_caller_e ngx_http_vibelock_guard_allowed(
    ngx_http_request_t *r, ngx_http_vibelock_hold_t *hold);
static ngx_int_t ngx_http_vibelock_guard_acquire(ngx_http_request_t *r,
    ngx_http_vibelock_hold_t *hold, ngx_msec_t ttl);

static ngx_int_t ngx_http_vibelock_guard_deny(ngx_http_request_t *r,
    ngx_http_vibelock_hold_t *hold, ngx_http_vibelock_caller_e rc);
static ngx_int_t ngx_http_vibelock_guard_invalid(ngx_http_request_t *r,
    ngx_http_vibelock_hold_t *hold, ngx_http_vibelock_reply_e error);
static ngx_int_t ngx_http_vibelock_guard_busy(ngx_http_request_t *r,
    ngx_http_vibelock_hold_t *hold, ngx_http_vibelock_lock_t *lock);
static ngx_int_t ngx_http_vibelock_guard_full(ngx_http_request_t *r,
    ngx_http_vibelock_hold_t *hold);
static ngx_int_t ngx_http_vibelock_guard_bypass(ngx_http_request_t *r,
    ngx_http_vibelock_hold_t *hold);
static ngx_uint_t ngx_http_vibelock_guard_passes(
    ngx_http_vibelock_hold_t *hold, ngx_http_vibelock_refusal_e why);
static ngx_int_t ngx_http_vibelock_guard_answer(ngx_http_request_t *r,
    ngx_int_t rc);


/* in the order of ngx_http_vibelock_refusal_e: for real, and in a dry run */

static ngx_http_vibelock_refusal_t  ngx_http_vibelock_refusals[][2] = {

    { { NGX_HTTP_VIBELOCK_BUSY,
        NGX_HTTP_VIBELOCK_N_BUSY },
      { NGX_HTTP_VIBELOCK_BUSY_DRY_RUN,
        NGX_HTTP_VIBELOCK_N_BUSY_DRY_RUN } },

    { { NGX_HTTP_VIBELOCK_DENIED,
        NGX_HTTP_VIBELOCK_N_DENIED },
      { NGX_HTTP_VIBELOCK_DENIED_DRY_RUN,
        NGX_HTTP_VIBELOCK_N_DENIED_DRY_RUN } },

    { { NGX_HTTP_VIBELOCK_INVALID,
        NGX_HTTP_VIBELOCK_N_INVALID },
      { NGX_HTTP_VIBELOCK_INVALID_DRY_RUN,
        NGX_HTTP_VIBELOCK_N_INVALID_DRY_RUN } },

    { { NGX_HTTP_VIBELOCK_FULL,
        NGX_HTTP_VIBELOCK_N_FULL },
      { NGX_HTTP_VIBELOCK_FULL_DRY_RUN,
        NGX_HTTP_VIBELOCK_N_FULL_DRY_RUN } }
};


ngx_uint_t
ngx_http_vibelock_guard_operation(ngx_str_t *name)
{
    u_char  ch;
    size_t  i;

    for (i = 0; i < name->len; i++) {
        ch = name->data[i];

        if ((ch < 'a' || ch > 'z')
            && (ch < 'A' || ch > 'Z')
            && (ch < '0' || ch > '9')
            && ch != '_'
            && ch != '-')
        {
            return 0;
        }
    }

    return name->len > 0 && name->len <= NGX_HTTP_VIBELOCK_OPERATION_MAX;
}


ngx_int_t
ngx_http_vibelock_guard(ngx_http_request_t *r,
    ngx_http_vibelock_guard_conf_t *conf)
{
    ngx_http_vibelock_hold_t    *hold;
    ngx_http_vibelock_record_t  *record;

    if (r != r->main) {
        return NGX_DECLINED;
    }

    record = ngx_http_vibelock_record_find(r);

    if (record && record->hold) {

        hold = record->hold;

        if (hold->state == NGX_HTTP_VIBELOCK_HOLD_READ) {
            return ngx_http_vibelock_guard_read(r, hold);
        }

        if (!ngx_http_vibelock_guard_anew(r, conf, hold)) {
            ngx_http_vibelock_guard_end_again(r, hold);
            return NGX_DECLINED;
        }

        if (hold->state == NGX_HTTP_VIBELOCK_HOLD_OVER
            && !ngx_http_vibelock_guard_enforced(conf, hold))
        {
            /* a redirect drops no lock, wherever it leads: take it again */

            hold->state = NGX_HTTP_VIBELOCK_HOLD_CHECKED;

            /* without it there is nothing to tell of the one before */

            record->token = 0;
            record->aged = 0;

            return ngx_http_vibelock_guard_acquire(r, hold, hold->ttl);
        }
    }

    if (conf->zone == NULL || r->method == NGX_HTTP_OPTIONS) {
        return NGX_DECLINED;
    }

    record = ngx_http_vibelock_record_get(r);
    if (record == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    hold = ngx_pcalloc(r->pool, sizeof(ngx_http_vibelock_hold_t));
    if (hold == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    record->hold = hold;
    record->operation = conf->operation->name;
    record->token = 0;
    record->aged = 0;

    hold->request = r;
    hold->conf = conf;
    hold->record = record;

    return ngx_http_vibelock_guard_check(r, hold);
}


/*
 * A request that was refused, or whose body was bad, may come back through
 * error_page: it is looked at as if it came for the first time.  So is one that
 * passed in a dry run, and comes to a guard that refuses.  One that gave its
 * lock back with an empty answer, of which a filter then made a 416, needs the
 * same lock again.
 */

static ngx_uint_t
ngx_http_vibelock_guard_anew(ngx_http_request_t *r,
    ngx_http_vibelock_guard_conf_t *conf, ngx_http_vibelock_hold_t *hold)
{
    switch (hold->state) {

    case NGX_HTTP_VIBELOCK_HOLD_CHECKED:
        return 1;

    case NGX_HTTP_VIBELOCK_HOLD_PASSED:

        /* after its answer there is nobody to refuse */

        return ngx_http_vibelock_guard_enforced(conf, hold)
               && !r->post_action;

    case NGX_HTTP_VIBELOCK_HOLD_OVER:

        /* while nginx has its upstream, that one's end is the hold's */

        return hold->record->result == NGX_HTTP_VIBELOCK_RELEASED
               && !ngx_http_vibelock_ending_answering(r)
               && !r->post_action;

    default:
        return 0;
    }
}


/*
 * 1 when a dry run said what would have been, and this guard is none: what the
 * one let pass, the other has not.
 */

static ngx_uint_t
ngx_http_vibelock_guard_enforced(ngx_http_vibelock_guard_conf_t *conf,
    ngx_http_vibelock_hold_t *hold)
{
    return hold->conf->dry_run && conf->zone && !conf->dry_run;
}


static ngx_int_t
ngx_http_vibelock_guard_check(ngx_http_request_t *r,
    ngx_http_vibelock_hold_t *hold)
{
    ngx_int_t                        key;
    ngx_http_vibelock_caller_e       rc;
    ngx_http_vibelock_guard_conf_t  *conf;

    conf = hold->conf;

    key = ngx_http_vibelock_zone_key(r, conf->zone, &hold->key);

    if (key == NGX_ERROR) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (key == NGX_DECLINED) {
        return ngx_http_vibelock_guard_bypass(r, hold);
    }

    rc = ngx_http_vibelock_caller(r, conf->caller, &hold->caller);

    if (rc == NGX_HTTP_VIBELOCK_CALLER_OK && key == NGX_ABORT) {
        return ngx_http_vibelock_guard_invalid(r, hold,
                                            NGX_HTTP_VIBELOCK_REPLY_BAD_KEY);
    }

    if (rc == NGX_HTTP_VIBELOCK_CALLER_OK) {
        rc = ngx_http_vibelock_caller_may_operate(r, conf->caller,
                                                  &hold->caller, &hold->key);
    }

    if (rc != NGX_HTTP_VIBELOCK_CALLER_OK) {
        return ngx_http_vibelock_guard_deny(r, hold, rc);
    }

    if (conf->ttl.field.len) {
        return ngx_http_vibelock_guard_peek(r, hold);
    }

    return ngx_http_vibelock_guard_acquire(r, hold, conf->ttl.value);
}


/*
 * The TTL is in the body: who is busy says so before a body is read.
 */

static ngx_int_t
ngx_http_vibelock_guard_peek(ngx_http_request_t *r,
    ngx_http_vibelock_hold_t *hold)
{
    ngx_int_t                 rc;
    ngx_http_vibelock_lock_t  lock;

    rc = ngx_http_vibelock_table_find(hold->conf->zone->table, &hold->key,
                                      &lock);

    if (rc == NGX_OK) {
        return ngx_http_vibelock_guard_busy(r, hold, &lock);
    }

    if (ngx_http_vibelock_ttl_over(r)) {
        return ngx_http_vibelock_guard_invalid(r, hold,
                                     NGX_HTTP_VIBELOCK_REPLY_BODY_TOO_LARGE);
    }

    rc = ngx_http_read_client_request_body(r,
                                        ngx_http_vibelock_guard_body_handler);

    if (rc >= NGX_HTTP_SPECIAL_RESPONSE) {
        return rc;
    }

    if (rc == NGX_AGAIN) {
        hold->waited = 1;
    }

    ngx_http_finalize_request(r, NGX_DONE);

    return NGX_DONE;
}


static void
ngx_http_vibelock_guard_body_handler(ngx_http_request_t *r)
{
    ngx_http_vibelock_hold_t    *hold;
    ngx_http_vibelock_record_t  *record;

    record = ngx_http_vibelock_record_find(r);

    hold = record->hold;
    hold->state = NGX_HTTP_VIBELOCK_HOLD_READ;

    r->preserve_body = 1;

    r->write_event_handler = ngx_http_core_run_phases;
    ngx_http_core_run_phases(r);
}


static ngx_int_t
ngx_http_vibelock_guard_read(ngx_http_request_t *r,
    ngx_http_vibelock_hold_t *hold)
{
    ngx_msec_t                  ttl;
    ngx_http_vibelock_caller_e  rc;

    hold->state = NGX_HTTP_VIBELOCK_HOLD_CHECKED;

    /* a body that was not there yet took its time: a right may have ended */

    if (hold->waited) {
        rc = ngx_http_vibelock_guard_allowed(r, hold);

        if (rc != NGX_HTTP_VIBELOCK_CALLER_OK) {
            return ngx_http_vibelock_guard_deny(r, hold, rc);
        }
    }

    switch (ngx_http_vibelock_ttl_read(r, &hold->conf->ttl, &ttl)) {

    case NGX_OK:
        return ngx_http_vibelock_guard_acquire(r, hold, ttl);

    case NGX_DECLINED:
        return ngx_http_vibelock_guard_invalid(r, hold,
                                            NGX_HTTP_VIBELOCK_REPLY_BAD_BODY);

    case NGX_ABORT:
        return ngx_http_vibelock_guard_invalid(r, hold,
                                         NGX_HTTP_VIBELOCK_REPLY_BAD_TIMEOUT);

    case NGX_DONE:
        return ngx_http_vibelock_guard_invalid(r, hold,
                                      NGX_HTTP_VIBELOCK_REPLY_BODY_TOO_LARGE);

    default: /* NGX_ERROR */
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }
}


static ngx_http_vibelock_caller_e
ngx_http_vibelock_guard_allowed(ngx_http_request_t *r,
    ngx_http_vibelock_hold_t *hold)
{
    ngx_http_vibelock_caller_e        rc;
    ngx_http_vibelock_caller_conf_t  *caller;

    caller = hold->conf->caller;

    rc = ngx_http_vibelock_caller(r, caller, &hold->caller);

    if (rc != NGX_HTTP_VIBELOCK_CALLER_OK) {
        return rc;
    }

    return ngx_http_vibelock_caller_may_operate(r, caller, &hold->caller,
                                                &hold->key);
}


static ngx_int_t
ngx_http_vibelock_guard_acquire(ngx_http_request_t *r,
    ngx_http_vibelock_hold_t *hold, ngx_msec_t ttl)
{
    ngx_int_t                        rc;
    ngx_msec_t                       turn;
    ngx_http_cleanup_t              *cln;
    ngx_http_vibelock_lock_t         lock;
    ngx_http_vibelock_claim_t        claim;
    ngx_http_vibelock_guard_conf_t  *conf;

    conf = hold->conf;

    hold->ttl = ttl;

    /* what ends the lock has to be there before the lock is */

    cln = ngx_http_cleanup_add(r, 0);
    if (cln == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    cln->handler = ngx_http_vibelock_guard_end_cleanup;
    cln->data = hold;

    claim.key = hold->key;
    claim.operation = conf->operation->number;
    claim.owner = hold->caller.owned ? hold->caller.owner : NULL;
    claim.ttl = ttl;
    claim.overrun = conf->overrun;

    if (conf->zone->bus) {

        /* a release elsewhere is compared with when the lock was taken */

        turn = ngx_http_vibelock_clock_now();

        rc = ngx_http_vibelock_table_acquire(conf->zone->table, &claim, &lock);

        ngx_http_vibelock_clock_back(turn);

    } else {
        rc = ngx_http_vibelock_table_acquire(conf->zone->table, &claim, &lock);
    }

    if (rc == NGX_BUSY) {
        return ngx_http_vibelock_guard_busy(r, hold, &lock);
    }

    if (rc == NGX_DECLINED) {
        return ngx_http_vibelock_guard_full(r, hold);
    }

    hold->state = NGX_HTTP_VIBELOCK_HOLD_HELD;
    hold->handle = lock.handle;
    hold->tries = ngx_http_vibelock_ending_tries(r);
    hold->left = hold->tries;
    hold->redirects = r->uri_changes;
    hold->past = r->upstream;

    hold->record->result = NGX_HTTP_VIBELOCK_ACQUIRED;
    hold->record->token = lock.handle.token;
    hold->record->since = ngx_current_msec;
    hold->record->aged = 1;

    ngx_http_vibelock_zone_count(conf->zone, NGX_HTTP_VIBELOCK_N_ACQUIRED);

    return NGX_DECLINED;
}


static ngx_int_t
ngx_http_vibelock_guard_deny(ngx_http_request_t *r,
    ngx_http_vibelock_hold_t *hold, ngx_http_vibelock_caller_e rc)
{
    if (rc != NGX_HTTP_VIBELOCK_CALLER_ERROR
        && ngx_http_vibelock_guard_passes(hold,
                                          NGX_HTTP_VIBELOCK_REFUSAL_DENIED))
    {
        return NGX_DECLINED;
    }

    return ngx_http_vibelock_guard_answer(r, ngx_http_vibelock_refuse(r, rc));
}


static ngx_int_t
ngx_http_vibelock_guard_invalid(ngx_http_request_t *r,
    ngx_http_vibelock_hold_t *hold, ngx_http_vibelock_reply_e error)
{
    ngx_str_t  *message;

    if (ngx_http_vibelock_guard_passes(hold,
                                       NGX_HTTP_VIBELOCK_REFUSAL_INVALID))
    {
        return NGX_DECLINED;
    }

    message = (error == NGX_HTTP_VIBELOCK_REPLY_BAD_TIMEOUT)
              ? &hold->conf->ttl.message : NULL;

    return ngx_http_vibelock_guard_answer(r,
                          ngx_http_vibelock_reply_error(r, error, 0, message));
}


static ngx_int_t
ngx_http_vibelock_guard_busy(ngx_http_request_t *r,
    ngx_http_vibelock_hold_t *hold, ngx_http_vibelock_lock_t *lock)
{
    time_t                            retry;
    ngx_http_vibelock_reply_lock_t    holder;
    ngx_http_vibelock_caller_conf_t  *caller;

    caller = hold->conf->caller;

    /* nobody else said whose the server is: to a stranger it is not there */

    if (caller->owner
        && caller->found == NULL
        && lock->owned
        && !ngx_http_vibelock_caller_holds(&hold->caller, lock))
    {
        return ngx_http_vibelock_guard_deny(r, hold,
                                         NGX_HTTP_VIBELOCK_CALLER_NOT_FOUND);
    }

    hold->record->age = lock->age;
    hold->record->aged = 1;

    if (ngx_http_vibelock_guard_passes(hold, NGX_HTTP_VIBELOCK_REFUSAL_BUSY)) {
        return NGX_DECLINED;
    }

    holder.operation = lock->operation;
    holder.stuck = lock->stuck;
    holder.age = lock->age;
    holder.rest = lock->rest;

    retry = ngx_http_vibelock_reply_retry(hold->conf->retry_after, lock->rest);

    return ngx_http_vibelock_guard_answer(r,
                               ngx_http_vibelock_reply_busy(r, &holder, retry));
}


static ngx_int_t
ngx_http_vibelock_guard_full(ngx_http_request_t *r,
    ngx_http_vibelock_hold_t *hold)
{
    time_t                     retry;
    ngx_http_vibelock_zone_t  *zone;

    zone = hold->conf->zone;

    if (ngx_http_vibelock_zone_once(zone, NGX_HTTP_VIBELOCK_ONCE_FULL)) {
        ngx_log_error(hold->conf->log_level, r->connection->log, 0,
                      "vibelock: zone \"%V\" is full, no lock for operation "
                      "\"%V\"; give the zone more memory",
                      &zone->name, &hold->conf->operation->name);
    }

    if (ngx_http_vibelock_guard_passes(hold, NGX_HTTP_VIBELOCK_REFUSAL_FULL)) {
        return NGX_DECLINED;
    }

    retry = ngx_http_vibelock_reply_retry(hold->conf->retry_after, 0);

    return ngx_http_vibelock_guard_answer(r,
                     ngx_http_vibelock_reply_error(r,
                                          NGX_HTTP_VIBELOCK_REPLY_ZONE_FULL,
                                          retry, NULL));
}


static ngx_int_t
ngx_http_vibelock_guard_bypass(ngx_http_request_t *r,
    ngx_http_vibelock_hold_t *hold)
{
    ngx_http_vibelock_zone_t  *zone;

    zone = hold->conf->zone;

    hold->record->result = NGX_HTTP_VIBELOCK_BYPASSED;

    ngx_http_vibelock_zone_count(zone, NGX_HTTP_VIBELOCK_N_BYPASSED);

    /* a redirect may lead to where the key is not empty */

    hold->state = NGX_HTTP_VIBELOCK_HOLD_CHECKED;

    if (ngx_http_vibelock_zone_once(zone, NGX_HTTP_VIBELOCK_ONCE_BYPASSED)) {
        ngx_log_error(hold->conf->log_level, r->connection->log, 0,
                      "vibelock: the key \"%V\" of zone \"%V\" is empty, "
                      "operation \"%V\" runs without a lock",
                      &zone->key.value, &zone->name,
                      &hold->conf->operation->name);
    }

    return NGX_DECLINED;
}


/*
 * Notes why the request gets no lock.  1: it goes on without one, since this
 * is a dry run.
 */

static ngx_uint_t
ngx_http_vibelock_guard_passes(ngx_http_vibelock_hold_t *hold,
    ngx_http_vibelock_refusal_e why)
{
    ngx_http_vibelock_refusal_t  *refusal;

    refusal = &ngx_http_vibelock_refusals[why][hold->conf->dry_run ? 1 : 0];

    hold->record->result = refusal->result;

    ngx_http_vibelock_zone_count(hold->conf->zone, refusal->counter);

    if (!hold->conf->dry_run) {
        return 0;
    }

    hold->state = NGX_HTTP_VIBELOCK_HOLD_PASSED;

    return 1;
}


static ngx_int_t
ngx_http_vibelock_guard_answer(ngx_http_request_t *r, ngx_int_t rc)
{
    ngx_http_finalize_request(r, rc);

    return NGX_DONE;
}
