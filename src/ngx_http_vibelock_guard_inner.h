
/*
 * Copyright (C) the vibelock authors
 *
 * What the parts of the guard know of each other, and nobody else does.
 */


#ifndef _NGX_HTTP_VIBELOCK_GUARD_INNER_H_INCLUDED_
#define _NGX_HTTP_VIBELOCK_GUARD_INNER_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_vibelock_guard.h"
#include "ngx_http_vibelock_record.h"


typedef enum {
    NGX_HTTP_VIBELOCK_HOLD_CHECKED = 0,        /* or refused, or reading */
    NGX_HTTP_VIBELOCK_HOLD_READ,               /* the body, for its TTL */
    NGX_HTTP_VIBELOCK_HOLD_PASSED,             /* without a lock: dry run */
    NGX_HTTP_VIBELOCK_HOLD_HELD,
    NGX_HTTP_VIBELOCK_HOLD_OVER
} ngx_http_vibelock_hold_e;


/* what a request has to do with a lock, from its first check to its end */

typedef struct {
    ngx_http_request_t              *request;
    ngx_http_vibelock_guard_conf_t  *conf;     /* of the location that locks */
    ngx_http_vibelock_record_t      *record;
    ngx_http_vibelock_hold_e         state;

    ngx_str_t                        key;
    ngx_http_vibelock_caller_t       caller;
    ngx_msec_t                       ttl;      /* once it was asked for */
    ngx_http_vibelock_handle_t       handle;   /* of the lock, once HELD */

    /* the upstream that answers, and what nginx would call at its end */
    ngx_http_upstream_t             *upstream;
    void                           (*finalize)(ngx_http_request_t *r,
                                               ngx_int_t rc);

    ngx_http_upstream_t             *past;     /* that nginx went on from */
    ngx_uint_t                       tries;    /* before the lock was taken */
    ngx_uint_t                       left;     /* before the last redirect */
    ngx_uint_t                       redirects;
    off_t                            seen;     /* of the answer's body */
    off_t                            length;   /* of it, or -1 */
    char                            *why;      /* it is kept at its end */
    unsigned                         part:1;   /* more comes than upstream's */
    unsigned                         keep:1;   /* vibelock_keep said so */
    unsigned                         waited:1; /* for the body */
} ngx_http_vibelock_hold_t;


/*
 * guard_end.c: how a hold ends that is HELD.
 *
 * again(): the request comes by again, redirected or for post_action.
 * cleanup() is for the request's cleanup, with the hold as its data: what ends
 * then was not seen to end before.
 */

void ngx_http_vibelock_guard_end_again(ngx_http_request_t *r,
    ngx_http_vibelock_hold_t *hold);
void ngx_http_vibelock_guard_end_cleanup(void *data);


#endif /* _NGX_HTTP_VIBELOCK_GUARD_INNER_H_INCLUDED_ */
