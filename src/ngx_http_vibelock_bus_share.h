
/*
 * Copyright (C) the vibelock authors
 *
 * What all workers share of a zone's bus, in the zone's memory: who reads,
 * how far it was read, counters, the state, and what was logged.
 *
 * A worker may die at any instruction: what takes more than one store is done
 * with the zone's mutex, and in such an order that every step of it is sound.
 */


#ifndef _NGX_HTTP_VIBELOCK_BUS_SHARE_H_INCLUDED_
#define _NGX_HTTP_VIBELOCK_BUS_SHARE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_http_vibelock_redis_why.h"


/* hex digits of what tells this replica from all others */
#define NGX_HTTP_VIBELOCK_BUS_UNIQUE  16


/* counters; they only grow.  The queue has its own. */

typedef enum {
    NGX_HTTP_VIBELOCK_BUS_N_RECONNECTS = 0,
    NGX_HTTP_VIBELOCK_BUS_N_RECEIVED,
    NGX_HTTP_VIBELOCK_BUS_N_APPLIED,
    NGX_HTTP_VIBELOCK_BUS_N_REWINDS,
    NGX_HTTP_VIBELOCK_BUS_N_SKIPPED,      /* the first of 7, BUS_SKIPS */
    NGX_HTTP_VIBELOCK_BUS_N_LAST = NGX_HTTP_VIBELOCK_BUS_N_SKIPPED + 7
} ngx_http_vibelock_bus_counter_e;


/* what is logged once a minute and no more */

typedef enum {
    NGX_HTTP_VIBELOCK_BUS_ONCE_AWAY = 0,
    NGX_HTTP_VIBELOCK_BUS_ONCE_DROPPED,
    NGX_HTTP_VIBELOCK_BUS_ONCE_REWIND,
    NGX_HTTP_VIBELOCK_BUS_ONCE_MALFORMED,
    NGX_HTTP_VIBELOCK_BUS_ONCE_VERSION,
    NGX_HTTP_VIBELOCK_BUS_ONCE_TOO_LARGE,
    NGX_HTTP_VIBELOCK_BUS_ONCE_LAST
} ngx_http_vibelock_bus_once_e;


/* the two things a bus does, which fail apart from each other */

typedef enum {
    NGX_HTTP_VIBELOCK_BUS_READS = 0,
    NGX_HTTP_VIBELOCK_BUS_PUBLISHES,
    NGX_HTTP_VIBELOCK_BUS_SIDES
} ngx_http_vibelock_bus_side_e;


/* the id of an entry */

typedef struct {
    uint64_t         ms;
    uint64_t         seq;
} ngx_http_vibelock_bus_id_t;


typedef struct {
    ngx_msec_t                   made;         /* 0: not made yet */
    u_char                       unique[NGX_HTTP_VIBELOCK_BUS_UNIQUE];

    /* who reads: its pid, what tells it from others of that pid, how long */

    ngx_pid_t                    pid;
    uint64_t                     nonce;
    ngx_msec_t                   until;

    uint64_t                     target;       /* where releases go to now */

    uint64_t                     source;       /* last is of this, 0: unset */
    ngx_http_vibelock_bus_id_t   last;         /* the entry read last */
    ngx_msec_t                   lag;          /* how late that was, ms */

    /* whether entries may have been read before, and how far ahead of ours the
       clocks of Redis were that those may be of */

    ngx_uint_t                   again;
    int64_t                      ahead;

    /* a redis_e, and an errno above its 8 bits */

    ngx_atomic_t                 state[NGX_HTTP_VIBELOCK_BUS_SIDES];
    ngx_atomic_t                 told;         /* that it is away */
    ngx_uint_t                   dropped;      /* told of in the log */

    ngx_atomic_t                 logged[NGX_HTTP_VIBELOCK_BUS_ONCE_LAST];
    ngx_atomic_t                 counters[NGX_HTTP_VIBELOCK_BUS_N_LAST];
} ngx_http_vibelock_bus_share_t;


/*
 * In zeroed memory, before anybody else looks at it.
 */

void ngx_http_vibelock_bus_share_init(ngx_http_vibelock_bus_share_t *share);

/*
 * Takes the lease to read for "term" ms, or keeps it: 1 when it is this
 * worker's, whom "nonce" tells from others.  And gives it up.
 */

ngx_uint_t ngx_http_vibelock_bus_share_lease(
    ngx_http_vibelock_bus_share_t *share, ngx_slab_pool_t *pool,
    uint64_t nonce, ngx_msec_t term);
void ngx_http_vibelock_bus_share_yield(ngx_http_vibelock_bus_share_t *share,
    ngx_slab_pool_t *pool, uint64_t nonce);

/*
 * Remembers how far "source", a stream of some Redis, was read, for who has
 * the lease; does nothing for others.
 */

void ngx_http_vibelock_bus_share_place(ngx_http_vibelock_bus_share_t *share,
    ngx_slab_pool_t *pool, uint64_t nonce, uint64_t source,
    ngx_http_vibelock_bus_id_t *id);

/*
 * Counts one more of BUS_N_..., or of a reason to skip an entry above
 * BUS_N_SKIPPED.
 */

void ngx_http_vibelock_bus_share_count(ngx_http_vibelock_bus_share_t *share,
    ngx_uint_t counter);

/*
 * 1 when this line was not logged in the last minute; it counts as logged now.
 */

ngx_uint_t ngx_http_vibelock_bus_share_once(
    ngx_http_vibelock_bus_share_t *share, ngx_http_vibelock_bus_once_e line);

/*
 * The state of one side: set, and told with the errno that it came with (0:
 * none).
 */

void ngx_http_vibelock_bus_share_set(ngx_http_vibelock_bus_share_t *share,
    ngx_http_vibelock_bus_side_e side, ngx_http_vibelock_redis_e why,
    ngx_err_t err);
ngx_http_vibelock_redis_e ngx_http_vibelock_bus_share_why(
    ngx_http_vibelock_bus_share_t *share, ngx_http_vibelock_bus_side_e side,
    ngx_err_t *err);

/*
 * What has to be logged now of a change: NGX_DECLINED, "*side" is away; NGX_OK,
 * it works again; NGX_DONE, nothing.  It counts as logged.
 *
 * "heard" is the side of which the words of Redis, or of TLS, are known here,
 * or NGX_HTTP_VIBELOCK_BUS_SIDES: what was said is for whoever heard it to log,
 * and it is said as often as is asked.
 */

ngx_int_t ngx_http_vibelock_bus_share_news(
    ngx_http_vibelock_bus_share_t *share, ngx_uint_t heard,
    ngx_http_vibelock_bus_side_e *side);


#endif /* _NGX_HTTP_VIBELOCK_BUS_SHARE_H_INCLUDED_ */
