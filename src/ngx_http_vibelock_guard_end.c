
/*
 * Copyright (C) the vibelock authors
 *
 * The end: sees in what nginx does that an operation is over, frees its lock or
 * keeps it, and says which.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_vibelock_ending.h"
#include "ngx_http_vibelock_guard_inner.h"
#include "ngx_http_vibelock_keep.h"
#include "ngx_http_vibelock_log.h"


static void ngx_http_vibelock_guard_end_slice(ngx_http_request_t *r);
static ngx_uint_t ngx_http_vibelock_guard_end_answering(ngx_http_request_t *r,
    ngx_http_vibelock_hold_t *hold);
static char *ngx_http_vibelock_guard_end_dropped(ngx_http_request_t *r,
    ngx_http_vibelock_hold_t *hold);
static void ngx_http_vibelock_guard_end_watch(ngx_http_request_t *r,
    ngx_http_vibelock_hold_t *hold);
static ngx_http_vibelock_hold_t *ngx_http_vibelock_guard_end_held(
    ngx_http_request_t *r);
static void ngx_http_vibelock_guard_end_finalize(ngx_http_request_t *r,
    ngx_int_t rc);
static void ngx_http_vibelock_guard_end_unseen(ngx_http_request_t *r,
    ngx_http_vibelock_hold_t *hold);
static void ngx_http_vibelock_guard_end_settle(ngx_http_request_t *r,
    ngx_http_vibelock_hold_t *hold, char *why);
static char *ngx_http_vibelock_guard_end_why(ngx_http_request_t *r,
    ngx_http_vibelock_hold_t *hold);
static void ngx_http_vibelock_guard_end_log(ngx_http_vibelock_hold_t *hold,
    char *what, char *why);


/*
 * The request comes by again: redirected, or for post_action.
 */

void
ngx_http_vibelock_guard_end_again(ngx_http_request_t *r,
    ngx_http_vibelock_hold_t *hold)
{
    char  *why;

    if (hold->state != NGX_HTTP_VIBELOCK_HOLD_HELD) {
        return;
    }

    if (r->post_action) {

        /* the answer is over, and what follows is not the operation */

        ngx_http_vibelock_guard_end_unseen(r, hold);
        return;
    }

    if (ngx_http_vibelock_guard_end_answering(r, hold)
        && !ngx_http_vibelock_ending_header(r)
        && !ngx_http_vibelock_ending_body(r))
    {
        /* a filter made an error of an answer that still comes: 412 */

        hold->why = "nginx answered with an error of its own";
    }

    why = ngx_http_vibelock_guard_end_dropped(r, hold);

    if (why) {
        hold->why = why;
    }

    /* what was tried up to here, nginx has gone on from */

    hold->past = r->upstream;
    hold->left = ngx_http_vibelock_ending_tries(r);
    hold->redirects = r->uri_changes;

    /* the next upstream's headers will take the place of this one's */

    if (ngx_http_vibelock_keep_yet(r, hold->conf->keep)) {
        hold->keep = 1;
    }
}


void
ngx_http_vibelock_guard_header(ngx_http_request_t *r)
{
    ngx_uint_t                 over, answering;
    ngx_http_vibelock_hold_t  *hold;

    if (r != r->main) {
        ngx_http_vibelock_guard_end_slice(r);
        return;
    }

    hold = ngx_http_vibelock_guard_end_held(r);

    if (hold == NULL) {
        return;
    }

    hold->seen = 0;
    hold->part = 0;

    answering = ngx_http_vibelock_guard_end_answering(r, hold);

    if (answering) {
        ngx_http_vibelock_guard_end_watch(r, hold);

        over = ngx_http_vibelock_ending_header(r);

    } else {
        over = ngx_http_vibelock_ending_bodiless(r);
    }

    if (over) {
        hold->why = ngx_http_vibelock_guard_end_why(r, hold);

        if (hold->why == NULL) {
            ngx_http_vibelock_guard_end_settle(r, hold, NULL);
            return;
        }

        /* a 416 may take its place yet, and lead on: that needs the lock */
    }

    if (!ngx_http_vibelock_ending_bodiless(r) && r->upstream != hold->past) {
        hold->part = ngx_http_vibelock_ending_part(r);
    }

    hold->length = answering ? ngx_http_vibelock_ending_length(r)
                             : r->headers_out.content_length_n;
}


/*
 * A further slice of the answer comes with a subrequest of the same address.
 * Its tries are the operation's, and so is how it ends: nginx goes on from a
 * slice that was cut short.  Those of any other subrequest are not, nor of one
 * that updates the cache behind the answer.
 */

static void
ngx_http_vibelock_guard_end_slice(ngx_http_request_t *r)
{
    ngx_http_vibelock_hold_t  *hold;

    hold = ngx_http_vibelock_guard_end_held(r->main);

    if (hold == NULL
        || !hold->part
        || r->background
        || r->uri.data != r->main->uri.data)
    {
        return;
    }

    if (hold->why == NULL) {
        hold->why = ngx_http_vibelock_ending_unanswered(r, 0);
    }

    /* at the end, only the first one's headers and status are there */

    if (ngx_http_vibelock_keep_yet(r, hold->conf->keep)) {
        hold->keep = 1;
    }

    if (ngx_http_vibelock_ending_answering(r)) {
        ngx_http_vibelock_guard_end_watch(r, hold);
    }
}


/*
 * What an upstream still sends that nginx has gone on from, or that there was
 * before the lock, is not the answer.
 */

static ngx_uint_t
ngx_http_vibelock_guard_end_answering(ngx_http_request_t *r,
    ngx_http_vibelock_hold_t *hold)
{
    return r->upstream != hold->past && ngx_http_vibelock_ending_answering(r);
}


/*
 * A header came, and nginx had no memory for it: it answers with a 500 of its
 * own, and looks no further at what the upstream does.  Or it came no further
 * than to a filter above, and the upstream was let go of unseen.
 */

static char *
ngx_http_vibelock_guard_end_dropped(ngx_http_request_t *r,
    ngx_http_vibelock_hold_t *hold)
{
    if (r->upstream == hold->past || r->upstream == hold->upstream) {
        return NULL;
    }

    return ngx_http_vibelock_ending_dropped(r);
}


/*
 * Of the upstreams of a request and its slices one answers at a time.
 */

static void
ngx_http_vibelock_guard_end_watch(ngx_http_request_t *r,
    ngx_http_vibelock_hold_t *hold)
{
    if (hold->upstream == r->upstream) {
        return;
    }

    hold->upstream = r->upstream;
    hold->finalize = r->upstream->finalize_request;

    r->upstream->finalize_request = ngx_http_vibelock_guard_end_finalize;
}


ngx_int_t
ngx_http_vibelock_guard_sent(ngx_http_request_t *r, ngx_int_t rc)
{
    ngx_uint_t                 waits;
    ngx_http_upstream_t       *u;
    ngx_http_vibelock_hold_t  *hold;

    if (rc != NGX_ERROR || !r->connection->error) {
        return rc;
    }

    hold = ngx_http_vibelock_guard_end_held(r);

    if (hold == NULL || !ngx_http_vibelock_guard_end_answering(r, hold)) {
        return rc;
    }

    u = r->upstream;

    waits = u->conf->ignore_client_abort || u->store;

#if (NGX_HTTP_CACHE)

    /* until the header said that the answer is not for the cache */

    waits = waits || r->cache;

#endif

    if (u->upgrade || !waits) {
        return rc;
    }

    /*
     * The client is gone, and nginx would leave it at that, although it was
     * to wait for the answer.  What it reads without writing may be all.
     */

    return NGX_OK;
}


void
ngx_http_vibelock_guard_body(ngx_http_request_t *r, ngx_chain_t *in)
{
    ngx_uint_t                 over;
    ngx_chain_t               *cl;
    ngx_http_vibelock_hold_t  *hold;

    hold = ngx_http_vibelock_guard_end_held(r);

    if (hold == NULL) {
        return;
    }

    over = 0;

    for (cl = in; cl; cl = cl->next) {
        hold->seen += ngx_buf_size(cl->buf);

        if (cl->buf->last_buf) {
            over = 1;

            /* of a range that ends in the first slice, no other one comes */

            hold->part = 0;
        }
    }

    /* of a response that is still being read, only nginx's reading tells */

    if (ngx_http_vibelock_guard_end_answering(r, hold)) {
        over = !hold->part
               && hold->upstream == r->upstream
               && ngx_http_vibelock_ending_body(r);
    }

    /* with that many bytes the client's answer is whole in any case */

    if (hold->length != -1 && hold->seen >= hold->length) {
        over = 1;
    }

    if (over) {
        ngx_http_vibelock_guard_end_settle(r, hold, NULL);
    }
}


/*
 * The hold of a request that has its lock.
 */

static ngx_http_vibelock_hold_t *
ngx_http_vibelock_guard_end_held(ngx_http_request_t *r)
{
    ngx_http_vibelock_hold_t    *hold;
    ngx_http_vibelock_record_t  *record;

    if (r != r->main) {
        return NULL;
    }

    record = ngx_http_vibelock_record_find(r);

    if (record == NULL || record->hold == NULL) {
        return NULL;
    }

    hold = record->hold;

    return (hold->state == NGX_HTTP_VIBELOCK_HOLD_HELD) ? hold : NULL;
}


/*
 * Stands in for the finalize_request() of the upstream that answers.
 */

static void
ngx_http_vibelock_guard_end_finalize(ngx_http_request_t *r, ngx_int_t rc)
{
    char                        *why;
    ngx_http_vibelock_hold_t    *hold;
    ngx_http_vibelock_record_t  *record;

    record = ngx_http_vibelock_record_find(r);
    hold = record->hold;

    if (hold->state == NGX_HTTP_VIBELOCK_HOLD_HELD
        && r->upstream != hold->past)
    {
        why = ngx_http_vibelock_ending_finalize(r, rc);

        if (r != r->main
            || (why && ngx_http_vibelock_ending_replaced(r, rc)))
        {
            /* the answer goes on without it */

            if (hold->why == NULL) {
                hold->why = why;
            }

        } else if (why || !hold->part) {
            ngx_http_vibelock_guard_end_settle(r, hold, why);
        }
    }

    hold->finalize(r, rc);
}


void
ngx_http_vibelock_guard_end_cleanup(void *data)
{
    ngx_http_vibelock_hold_t *hold = data;

    if (hold->state == NGX_HTTP_VIBELOCK_HOLD_HELD) {
        ngx_http_vibelock_guard_end_unseen(hold->request, hold);
    }
}


/*
 * The request is over, and nothing said of its operation that it was.
 */

static void
ngx_http_vibelock_guard_end_unseen(ngx_http_request_t *r,
    ngx_http_vibelock_hold_t *hold)
{
    char  *why;

    why = NULL;

    if (r->header_sent) {

        if (hold->part) {
            why = "the answer was cut short";
        }

    } else if (hold->redirects == r->uri_changes
               || r->post_action
               || r->filter_finalize)
    {
        /*
         * post_action is a redirect too, and no reason to go on from a try;
         * nor is an error that a filter made
         */

        why = ngx_http_vibelock_ending_unsent(r, hold->left);
    }

    ngx_http_vibelock_guard_end_settle(r, hold, why);
}


/*
 * The operation is over.  "why" says why the lock has to stay, as far as the
 * upstream that answered knows.
 */

static void
ngx_http_vibelock_guard_end_settle(ngx_http_request_t *r,
    ngx_http_vibelock_hold_t *hold, char *why)
{
    ngx_int_t                        rc;
    ngx_http_vibelock_record_t      *record;
    ngx_http_vibelock_guard_conf_t  *conf;

    conf = hold->conf;
    record = hold->record;

    if (why == NULL) {
        why = ngx_http_vibelock_guard_end_why(r, hold);
    }

    hold->state = NGX_HTTP_VIBELOCK_HOLD_OVER;

    record->age = ngx_current_msec - record->since;

    if (why) {
        rc = ngx_http_vibelock_table_keep(conf->zone->table, &hold->handle);
    } else {
        rc = ngx_http_vibelock_table_release(conf->zone->table,
                                             &hold->handle);
    }

    if (rc != NGX_OK) {
        record->result = NGX_HTTP_VIBELOCK_LOST;

        ngx_http_vibelock_zone_count(conf->zone, NGX_HTTP_VIBELOCK_N_LOST);

        ngx_http_vibelock_guard_end_log(hold, "was lost",
                                    "broken, or past its TTL, before its "
                                    "operation ended");
        return;
    }

    if (why == NULL) {
        record->result = NGX_HTTP_VIBELOCK_RELEASED;

        ngx_http_vibelock_zone_count(conf->zone, NGX_HTTP_VIBELOCK_N_RELEASED);
        return;
    }

    record->result = NGX_HTTP_VIBELOCK_KEPT;

    ngx_http_vibelock_zone_count(conf->zone, NGX_HTTP_VIBELOCK_N_KEPT);

    ngx_http_vibelock_guard_end_log(hold, "is stuck", why);
}


/*
 * Why the lock has to stay, whatever the upstream that answered knows; NULL: it
 * may go.
 */

static char *
ngx_http_vibelock_guard_end_why(ngx_http_request_t *r,
    ngx_http_vibelock_hold_t *hold)
{
    char  *why;

    why = ngx_http_vibelock_ending_unanswered(r, hold->tries);

    if (why) {
        return why;
    }

    if (hold->why) {
        return hold->why;
    }

    why = ngx_http_vibelock_guard_end_dropped(r, hold);

    if (why) {
        return why;
    }

    if (hold->keep || ngx_http_vibelock_keep(r, hold->conf->keep)) {
        return "vibelock_keep says so";
    }

    return NULL;
}


static void
ngx_http_vibelock_guard_end_log(ngx_http_vibelock_hold_t *hold, char *what,
    char *why)
{
    ngx_http_vibelock_lock_t         lock;
    ngx_http_vibelock_guard_conf_t  *conf;

    conf = hold->conf;

    lock.age = hold->record->age;
    lock.operation = conf->operation->name;
    lock.owned = hold->caller.owned;

    ngx_memcpy(lock.owner, hold->caller.owner, NGX_HTTP_VIBELOCK_OWNER_LEN);

    ngx_http_vibelock_log_lock(conf->log_level, hold->request->connection->log,
                               what, why, &conf->zone->name, &hold->key,
                               &lock);
}
