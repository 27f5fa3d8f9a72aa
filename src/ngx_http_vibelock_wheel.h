
/*
 * Copyright (C) the vibelock authors
 *
 * The wheel: locks in buckets by the time they expire, so that a sweep
 * touches what is due and nothing else.
 *
 * A hierarchical timing wheel: George Varghese, Tony Lauck, "Hashed and
 * Hierarchical Timing Wheels", 1987, scheme 7.  A tick is 64 ms, a level has
 * 64 buckets, and a bucket of one level is as long as the whole level below.
 * What comes near its time moves down a level, once per level at most.
 *
 * It links what it holds by number; the links are in the caller's items.
 */


#ifndef _NGX_HTTP_VIBELOCK_WHEEL_H_INCLUDED_
#define _NGX_HTTP_VIBELOCK_WHEEL_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>


#define NGX_HTTP_VIBELOCK_WHEEL_LEVELS  6
#define NGX_HTTP_VIBELOCK_WHEEL_SLOTS   64

/* no item, and "in no bucket" */
#define NGX_HTTP_VIBELOCK_WHEEL_NONE    0xffffffff


/* of an item; "prev" of a bucket's first item names the bucket */

typedef struct {
    uint32_t                         next;
    uint32_t                         prev;
} ngx_http_vibelock_wheel_link_t;


typedef struct {
    uint64_t                         tick;     /* the wheel stands here */
    uint64_t                         occupied[NGX_HTTP_VIBELOCK_WHEEL_LEVELS];
    uint32_t                         bucket[NGX_HTTP_VIBELOCK_WHEEL_LEVELS
                                            * NGX_HTTP_VIBELOCK_WHEEL_SLOTS];

    u_char                          *items;    /* where items are, */
    size_t                           size;     /* how long one is, */
    size_t                           link;     /* and where its link is */
    size_t                           expires;  /* and its time, ngx_msec_t */
} ngx_http_vibelock_wheel_t;


/*
 * An empty wheel that stands at "now" (ms).  wheel->items, size, link and
 * expires are the caller's to set.
 */

void ngx_http_vibelock_wheel_init(ngx_http_vibelock_wheel_t *wheel,
    ngx_msec_t now);

/*
 * Hangs item n in, by its time; takes it out, if it is in.
 */

void ngx_http_vibelock_wheel_insert(ngx_http_vibelock_wheel_t *wheel,
    uint32_t n);
void ngx_http_vibelock_wheel_remove(ngx_http_vibelock_wheel_t *wheel,
    uint32_t n);

/*
 * Turns the wheel towards "now" (ms) by one item: NGX_OK, and in *n an item
 * that is due and was taken out; NGX_AGAIN: one was moved to a lower level;
 * NGX_DONE: nothing is due.
 */

ngx_int_t ngx_http_vibelock_wheel_turn(ngx_http_vibelock_wheel_t *wheel,
    ngx_msec_t now, uint32_t *n);


#endif /* _NGX_HTTP_VIBELOCK_WHEEL_H_INCLUDED_ */
