
/*
 * Copyright (C) the vibelock authors
 *
 * The queue: releases on their way to Redis, in the zone's shared memory.
 *
 * A release waits until a worker takes it, is sent until that worker tells
 * what became of it, and rests for a second when it went out: what repeats it
 * in that second goes out as one, at the second's end.  It lasts over reloads
 * and the death of any worker, at any instruction.
 *
 * It is bounded: the oldest is dropped when there is no room, or when it has
 * waited for a minute.
 *
 * Every function takes the zone's mutex for a few moves.  Times are ms of
 * nginx's clock (ngx_current_msec).
 */


#ifndef _NGX_HTTP_VIBELOCK_QUEUE_H_INCLUDED_
#define _NGX_HTTP_VIBELOCK_QUEUE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>


#define NGX_HTTP_VIBELOCK_QUEUE_KEY    255      /* bytes, at most */
#define NGX_HTTP_VIBELOCK_QUEUE_OWNER  32


typedef struct ngx_http_vibelock_queue_s  ngx_http_vibelock_queue_t;


/* a release, for who sends it: a copy, the caller's own */

typedef struct {
    uint32_t      cell;         /* what names it, and what tells it from */
    uint32_t      serial;       /* others that were there */
    ngx_msec_t    at;           /* the moment that it is of */
    u_char        owner[NGX_HTTP_VIBELOCK_QUEUE_OWNER];
    size_t        key_len;
    u_char        key[NGX_HTTP_VIBELOCK_QUEUE_KEY];
} ngx_http_vibelock_queued_t;


typedef struct {
    ngx_uint_t    queued;       /* waiting or sent */
    ngx_uint_t    published;    /* sent, and taken by Redis */
    ngx_uint_t    merged;       /* repeats that did not go out themselves */
    ngx_uint_t    dropped;      /* too old, or no room */
} ngx_http_vibelock_queue_usage_t;


/*
 * The memory that a whole queue takes.
 */

size_t ngx_http_vibelock_queue_size(void);

/*
 * Makes an empty queue in "size" bytes, which may be fewer than that.
 */

void ngx_http_vibelock_queue_init(ngx_http_vibelock_queue_t *queue,
    size_t size);

/*
 * The functions below are for the pool whose mutex guards the queue.
 *
 * put() adds a release of a key of 1 to 255 bytes by an owner of 32, which it
 * copies.  It is of "moment", or of that of a repeat that is later: NGX_OK, it
 * waits; NGX_AGAIN, it repeats one that went out just now, and will wait when
 * turn() finds its second over; NGX_BUSY, it was merged with one that is still
 * here; NGX_DECLINED, there is no room for it.  Where "item" is not NULL and
 * nothing waits, the release does not wait either: NGX_DONE, it was taken, as
 * by take().
 */

ngx_int_t ngx_http_vibelock_queue_put(ngx_http_vibelock_queue_t *queue,
    ngx_slab_pool_t *pool, ngx_str_t *key, u_char *owner, ngx_msec_t moment,
    ngx_msec_t limit, ngx_http_vibelock_queued_t *item);

/*
 * The next release that waits: NGX_OK and *item, or NGX_DECLINED.  Who takes
 * it tells by sent() or back() what became of it; when "limit" ms pass
 * without a word, it waits again.
 */

ngx_int_t ngx_http_vibelock_queue_take(ngx_http_vibelock_queue_t *queue,
    ngx_slab_pool_t *pool, ngx_msec_t limit, ngx_http_vibelock_queued_t *item);
void ngx_http_vibelock_queue_sent(ngx_http_vibelock_queue_t *queue,
    ngx_slab_pool_t *pool, uint32_t cell, uint32_t serial);
void ngx_http_vibelock_queue_back(ngx_http_vibelock_queue_t *queue,
    ngx_slab_pool_t *pool, uint32_t cell, uint32_t serial);

/*
 * One small step of what time brings: ends rests, takes back what nobody told
 * of, drops what is too old.  NGX_OK when nothing is due now: then *next is
 * in how many ms the next rest ends that has something to send, 0: none has.
 * NGX_AGAIN: there is more to do.
 */

ngx_int_t ngx_http_vibelock_queue_turn(ngx_http_vibelock_queue_t *queue,
    ngx_slab_pool_t *pool, ngx_msec_t *next);

/*
 * For who leaves: repeats wait now, without the rest of their seconds.
 */

void ngx_http_vibelock_queue_hurry(ngx_http_vibelock_queue_t *queue,
    ngx_slab_pool_t *pool);

/*
 * 1 when something waits: a look without the mutex.
 */

ngx_uint_t ngx_http_vibelock_queue_waits(ngx_http_vibelock_queue_t *queue);

/*
 * What there is and what became of the rest, without the mutex as well: the
 * numbers may be of slightly different moments.
 */

void ngx_http_vibelock_queue_usage(ngx_http_vibelock_queue_t *queue,
    ngx_http_vibelock_queue_usage_t *usage);


#endif /* _NGX_HTTP_VIBELOCK_QUEUE_H_INCLUDED_ */
