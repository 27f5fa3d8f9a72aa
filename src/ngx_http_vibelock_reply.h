
/*
 * Copyright (C) the vibelock authors
 *
 * Replies: every answer that the module sends itself, as the HTTP contract
 * words it.  They know no shared memory: what they tell of a lock is handed
 * to them.
 */


#ifndef _NGX_HTTP_VIBELOCK_REPLY_H_INCLUDED_
#define _NGX_HTTP_VIBELOCK_REPLY_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>


/* in the order of the table of errors in ngx_http_vibelock_reply.c */

typedef enum {
    NGX_HTTP_VIBELOCK_REPLY_MISSING_API_KEY = 0,
    NGX_HTTP_VIBELOCK_REPLY_INVALID_API_KEY,
    NGX_HTTP_VIBELOCK_REPLY_INVALID_APP_KEY,
    NGX_HTTP_VIBELOCK_REPLY_TOKEN_EXPIRED,
    NGX_HTTP_VIBELOCK_REPLY_NOT_FOUND,
    NGX_HTTP_VIBELOCK_REPLY_BAD_KEY,          /* VALIDATION_ERROR: the id */
    NGX_HTTP_VIBELOCK_REPLY_BAD_BODY,         /* ... no JSON object */
    NGX_HTTP_VIBELOCK_REPLY_BAD_TIMEOUT,      /* ... the field is no TTL */
    NGX_HTTP_VIBELOCK_REPLY_BODY_TOO_LARGE,   /* ... over 1 MB */
    NGX_HTTP_VIBELOCK_REPLY_NOT_ALLOWED_LOCK, /* Allow: DELETE, GET, HEAD */
    NGX_HTTP_VIBELOCK_REPLY_NOT_ALLOWED_UNSTICK,
    NGX_HTTP_VIBELOCK_REPLY_UNSTICK_UNSUPPORTED,
    NGX_HTTP_VIBELOCK_REPLY_ZONE_FULL,
    NGX_HTTP_VIBELOCK_REPLY_NOT_ALLOWED_STATUS,
    NGX_HTTP_VIBELOCK_REPLY_NOT_ALLOWED_BREAK,
    NGX_HTTP_VIBELOCK_REPLY_BAD_ARGUMENT,     /* VALIDATION_ERROR: the status */
    NGX_HTTP_VIBELOCK_REPLY_NO_STATUS,        /* NOT_FOUND: of no zone */
    NGX_HTTP_VIBELOCK_REPLY_BREAK_OFF,        /* FORBIDDEN: no break=on */
    NGX_HTTP_VIBELOCK_REPLY_BREAK_HEADER      /* ... no X-Vibelock-Break */
} ngx_http_vibelock_reply_e;


/* the holder, for EXEC_BUSY, and the lock, for the endpoint; times in ms */

typedef struct {
    ngx_str_t      operation;
    ngx_uint_t     stuck;
    ngx_msec_t     age;
    ngx_msec_t     rest;
} ngx_http_vibelock_reply_lock_t;


/* what is no error; the last buffer is marked as such by reply_content() */

typedef struct {
    ngx_uint_t     status;
    ngx_str_t      type;
    ngx_keyval_t  *headers;
    ngx_uint_t     nheaders;
    ngx_chain_t   *out;
} ngx_http_vibelock_reply_content_t;


/*
 * Each sends a whole response, discards the request's body, and returns what
 * a content handler returns: for ngx_http_finalize_request().
 *
 * error(): any error but EXEC_BUSY.  "retry" (s) is for those that carry
 * Retry-After, 0 for all others.  "message" is for BAD_TIMEOUT and BAD_ARGUMENT
 * alone, and NULL for all others: what would be right, ready for JSON.
 */

ngx_int_t ngx_http_vibelock_reply_error(ngx_http_request_t *r,
    ngx_http_vibelock_reply_e error, time_t retry, ngx_str_t *message);
ngx_int_t ngx_http_vibelock_reply_busy(ngx_http_request_t *r,
    ngx_http_vibelock_reply_lock_t *holder, time_t retry);

/*
 * The release endpoint: "lock" is what was broken, or is held; NULL: none.
 * Unstick: "released" is whether there was a lock.
 */

ngx_int_t ngx_http_vibelock_reply_released(ngx_http_request_t *r,
    ngx_http_vibelock_reply_lock_t *lock);
ngx_int_t ngx_http_vibelock_reply_state(ngx_http_request_t *r,
    ngx_http_vibelock_reply_lock_t *lock);
ngx_int_t ngx_http_vibelock_reply_unstuck(ngx_http_request_t *r,
    ngx_uint_t released);

/*
 * Anything else.  The texts and the buffers of "content" have to last as long
 * as the request; it itself, its headers and its chain need not.
 */

ngx_int_t ngx_http_vibelock_reply_content(ngx_http_request_t *r,
    ngx_http_vibelock_reply_content_t *content);

/*
 * Retry-After in seconds: a random whole number from half the bound to the
 * bound, which is the shorter of "most" and "rest" (ms; rest 0: only most),
 * but 1 s at least.
 */

time_t ngx_http_vibelock_reply_retry(ngx_msec_t most, ngx_msec_t rest);


#endif /* _NGX_HTTP_VIBELOCK_REPLY_H_INCLUDED_ */
