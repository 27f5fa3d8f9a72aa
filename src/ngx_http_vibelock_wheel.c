
/*
 * Copyright (C) the vibelock authors
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_http_vibelock_crash.h"
#include "ngx_http_vibelock_wheel.h"


#define NGX_HTTP_VIBELOCK_WHEEL_TICK   6       /* bits of a tick: 64 ms */
#define NGX_HTTP_VIBELOCK_WHEEL_BITS   6       /* bits of a level */

#define NGX_HTTP_VIBELOCK_WHEEL_MASK   (NGX_HTTP_VIBELOCK_WHEEL_SLOTS - 1)

/* in "prev": what follows is the number of a bucket, not of an item */
#define NGX_HTTP_VIBELOCK_WHEEL_HEAD   0x80000000


#define ngx_http_vibelock_wheel_link(wheel, n)                                \
    ((ngx_http_vibelock_wheel_link_t *)                                       \
         ((wheel)->items + (size_t) (n) * (wheel)->size + (wheel)->link))

#define ngx_http_vibelock_wheel_expires(wheel, n)                             \
    (*(ngx_msec_t *)                                                          \
         ((wheel)->items + (size_t) (n) * (wheel)->size + (wheel)->expires))


static uint64_t ngx_http_vibelock_wheel_due(ngx_http_vibelock_wheel_t *wheel,
    uint32_t n);
static ngx_int_t ngx_http_vibelock_wheel_next(
    ngx_http_vibelock_wheel_t *wheel, ngx_uint_t *level, ngx_uint_t *slot);


void
ngx_http_vibelock_wheel_init(ngx_http_vibelock_wheel_t *wheel,
    ngx_msec_t now)
{
    wheel->tick = now >> NGX_HTTP_VIBELOCK_WHEEL_TICK;

    ngx_memzero(wheel->occupied, sizeof(wheel->occupied));
    ngx_memset(wheel->bucket, 0xff, sizeof(wheel->bucket));
}


void
ngx_http_vibelock_wheel_insert(ngx_http_vibelock_wheel_t *wheel, uint32_t n)
{
    uint32_t                        *head;
    uint64_t                         tick, digits;
    ngx_uint_t                       level, slot, bucket;
    ngx_http_vibelock_wheel_link_t  *link;

    tick = ngx_http_vibelock_wheel_due(wheel, n);
    tick = ngx_max(tick, wheel->tick);

    /* the level is that of the highest digit in which the two differ */

    digits = (tick ^ wheel->tick) >> NGX_HTTP_VIBELOCK_WHEEL_BITS;

    for (level = 0;
         digits && level < NGX_HTTP_VIBELOCK_WHEEL_LEVELS - 1;
         level++)
    {
        digits >>= NGX_HTTP_VIBELOCK_WHEEL_BITS;
    }

    slot = (tick >> (level * NGX_HTTP_VIBELOCK_WHEEL_BITS))
           & NGX_HTTP_VIBELOCK_WHEEL_MASK;

    bucket = level * NGX_HTTP_VIBELOCK_WHEEL_SLOTS + slot;
    head = &wheel->bucket[bucket];

    link = ngx_http_vibelock_wheel_link(wheel, n);

    link->next = *head;
    link->prev = NGX_HTTP_VIBELOCK_WHEEL_HEAD | (uint32_t) bucket;

    ngx_http_vibelock_crash_step();

    if (*head != NGX_HTTP_VIBELOCK_WHEEL_NONE) {
        ngx_http_vibelock_wheel_link(wheel, *head)->prev = n;
    }

    *head = n;
    wheel->occupied[level] |= (uint64_t) 1 << slot;

    ngx_http_vibelock_crash_step();
}


void
ngx_http_vibelock_wheel_remove(ngx_http_vibelock_wheel_t *wheel, uint32_t n)
{
    uint32_t                         bucket;
    ngx_http_vibelock_wheel_link_t  *link;

    link = ngx_http_vibelock_wheel_link(wheel, n);

    if (link->prev == NGX_HTTP_VIBELOCK_WHEEL_NONE) {
        return;
    }

    ngx_http_vibelock_crash_step();

    if (link->next != NGX_HTTP_VIBELOCK_WHEEL_NONE) {
        ngx_http_vibelock_wheel_link(wheel, link->next)->prev = link->prev;
    }

    if (link->prev & NGX_HTTP_VIBELOCK_WHEEL_HEAD) {
        bucket = link->prev & ~NGX_HTTP_VIBELOCK_WHEEL_HEAD;
        wheel->bucket[bucket] = link->next;

        if (link->next == NGX_HTTP_VIBELOCK_WHEEL_NONE) {
            wheel->occupied[bucket / NGX_HTTP_VIBELOCK_WHEEL_SLOTS] &=
                  ~((uint64_t) 1 << (bucket % NGX_HTTP_VIBELOCK_WHEEL_SLOTS));
        }

    } else {
        ngx_http_vibelock_wheel_link(wheel, link->prev)->next = link->next;
    }

    link->prev = NGX_HTTP_VIBELOCK_WHEEL_NONE;

    ngx_http_vibelock_crash_step();
}


ngx_int_t
ngx_http_vibelock_wheel_turn(ngx_http_vibelock_wheel_t *wheel, ngx_msec_t now,
    uint32_t *n)
{
    uint64_t    tick, last;
    ngx_uint_t  level, slot, shift;

    last = now >> NGX_HTTP_VIBELOCK_WHEEL_TICK;

    if (ngx_http_vibelock_wheel_next(wheel, &level, &slot) != NGX_OK) {
        wheel->tick = ngx_max(wheel->tick, last);
        return NGX_DONE;
    }

    /* the bucket begins at the wheel's digits above, its own, and zeroes */

    shift = level * NGX_HTTP_VIBELOCK_WHEEL_BITS;

    tick = wheel->tick >> (shift + NGX_HTTP_VIBELOCK_WHEEL_BITS);
    tick = (tick << NGX_HTTP_VIBELOCK_WHEEL_BITS) | slot;
    tick <<= shift;

    if (tick > last) {

        /* all buckets begin later: the wheel may stand anywhere before */

        wheel->tick = ngx_max(wheel->tick, last);
        return NGX_DONE;
    }

    wheel->tick = ngx_max(wheel->tick, tick);

    *n = wheel->bucket[level * NGX_HTTP_VIBELOCK_WHEEL_SLOTS + slot];

    ngx_http_vibelock_wheel_remove(wheel, *n);

    /* what is due needs not go down first: room may be wanted now */

    if (ngx_http_vibelock_wheel_due(wheel, *n) <= last) {
        return NGX_OK;
    }

    ngx_http_vibelock_wheel_insert(wheel, *n);

    return NGX_AGAIN;
}


/*
 * The tick at which an item is due, rounded up: nothing comes before its time.
 */

static uint64_t
ngx_http_vibelock_wheel_due(ngx_http_vibelock_wheel_t *wheel, uint32_t n)
{
    return (ngx_http_vibelock_wheel_expires(wheel, n)
            >> NGX_HTTP_VIBELOCK_WHEEL_TICK)
           + 1;
}


static ngx_int_t
ngx_http_vibelock_wheel_next(ngx_http_vibelock_wheel_t *wheel,
    ngx_uint_t *level, ngx_uint_t *slot)
{
    uint64_t    map;
    ngx_uint_t  l, here;

    /*
     * A bucket that the wheel has reached and that is not empty yet is moved
     * down before anything below it is taken: what is in it may come first.
     */

    for (l = NGX_HTTP_VIBELOCK_WHEEL_LEVELS; l-- > 0; /* void */ ) {
        here = (wheel->tick >> (l * NGX_HTTP_VIBELOCK_WHEEL_BITS))
               & NGX_HTTP_VIBELOCK_WHEEL_MASK;

        if (wheel->occupied[l] & ((uint64_t) 1 << here)) {
            *level = l;
            *slot = here;
            return NGX_OK;
        }
    }

    /* the lowest level that has any has the next one */

    for (l = 0; l < NGX_HTTP_VIBELOCK_WHEEL_LEVELS; l++) {
        map = wheel->occupied[l];

        if (map) {
            *level = l;

            for (*slot = 0; !(map & 1); map >>= 1) {
                (*slot)++;
            }

            return NGX_OK;
        }
    }

    return NGX_DECLINED;
}
