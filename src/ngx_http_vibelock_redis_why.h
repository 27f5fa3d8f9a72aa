
/*
 * Copyright (C) the vibelock authors
 *
 * Redis why: what keeps a connection to Redis from being of use.
 */


#ifndef _NGX_HTTP_VIBELOCK_REDIS_WHY_H_INCLUDED_
#define _NGX_HTTP_VIBELOCK_REDIS_WHY_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>


/*
 * Why there is no connection, or why it is of no use.  It fits in a word of
 * shared memory, with an errno.
 */

typedef enum {
    NGX_HTTP_VIBELOCK_REDIS_WORKS = 0,
    NGX_HTTP_VIBELOCK_REDIS_IDLE,         /* nobody asked for it yet */
    NGX_HTTP_VIBELOCK_REDIS_CONNECTING,
    NGX_HTTP_VIBELOCK_REDIS_FAILED,       /* connecting, reading or writing */
    NGX_HTTP_VIBELOCK_REDIS_UNRESOLVED,   /* its name */
    NGX_HTTP_VIBELOCK_REDIS_TIMEOUT,      /* no reply in time */
    NGX_HTTP_VIBELOCK_REDIS_CLOSED,       /* by Redis */
    NGX_HTTP_VIBELOCK_REDIS_TLS,          /* no TLS, or the wrong server */
    NGX_HTTP_VIBELOCK_REDIS_CLOCK,        /* no sample was good enough */
    NGX_HTTP_VIBELOCK_REDIS_UNEXPECTED,   /* a reply that is no reply to this */
    NGX_HTTP_VIBELOCK_REDIS_LARGE,        /* a reply of too many bytes */

    /* what Redis answered; the connection itself works */

    NGX_HTTP_VIBELOCK_REDIS_LOADING,
    NGX_HTTP_VIBELOCK_REDIS_READONLY,
    NGX_HTTP_VIBELOCK_REDIS_NOAUTH,
    NGX_HTTP_VIBELOCK_REDIS_NOPERM,
    NGX_HTTP_VIBELOCK_REDIS_WRONGTYPE,
    NGX_HTTP_VIBELOCK_REDIS_ERROR         /* any other error */
} ngx_http_vibelock_redis_e;


/* whoever finds one of these has the words of Redis, or of TLS, for it */

#define ngx_http_vibelock_redis_worded(why)                                   \
    ((why) >= NGX_HTTP_VIBELOCK_REDIS_LOADING                                 \
     || (why) == NGX_HTTP_VIBELOCK_REDIS_TLS)


/*
 * What an error means that Redis answered with; REDIS_ERROR, if nothing more is
 * known of it.
 */

ngx_http_vibelock_redis_e ngx_http_vibelock_redis_why(u_char *error,
    size_t len);

/*
 * 1 for what is said to whoever connects: too many do, or nobody may.
 */

ngx_uint_t ngx_http_vibelock_redis_turned_away(u_char *error, size_t len);

/*
 * A word for a reason, as in "readonly", and a text for people.
 */

ngx_str_t *ngx_http_vibelock_redis_word(ngx_http_vibelock_redis_e why);
ngx_str_t *ngx_http_vibelock_redis_text(ngx_http_vibelock_redis_e why);


#endif /* _NGX_HTTP_VIBELOCK_REDIS_WHY_H_INCLUDED_ */
