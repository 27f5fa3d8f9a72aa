
/*
 * Copyright (C) the vibelock authors
 *
 * Locks and the clock: a TTL to the millisecond, the sweep to the tick.
 */


#include "table_test.h"


#define TICK  64    /* ms */


static void clock_exact(void);
static void clock_tick(void);
static void clock_boundaries(void);
static void clock_jump(void);
static void clock_behind(void);

static ngx_msec_t due(ngx_msec_t expires);


void
table_clock(amount_t *amount)
{
    clock_exact();
    clock_tick();
    clock_boundaries();
    clock_jump();
    clock_behind();
}


static void
clock_exact(void)
{
    zone_t                    *zone;
    ngx_str_t                  key;
    ngx_uint_t                 i, j, n;
    ngx_msec_t                 start, ttl;
    ngx_http_vibelock_lock_t   lock;

    static ngx_msec_t  ttls[] = {
        1, 2, 63, 64, 65, 127, 128, 999, 1000, 4095, 4096, 4097, 60000,
        90000, 262143, 262144, 262145, 900000, 3690000, 16777216,
        /* 2^31 ms are 25 days, 2^31.27 are 30 */
        0x7fffffff, 0x80000000, 0x80000001, 30 * DAY - 1, 30 * DAY
    };

    static ngx_msec_t  starts[] = {
        0, 1, 63, 64, 4095, 4096, 262143, 16777215, 0x7fffffff, 0xffffffff,
        0x100000000, 1073741823, 1073741824, 1790000000000
    };

    fact("a TTL is exact, from 1 ms to 30 days, from any start");

    for (i = 0; i < sizeof(starts) / sizeof(starts[0]); i++) {

        clock_set(starts[i]);
        zone = zone_worker(16);
        key = text("a");
        start = starts[i];

        for (j = 0; j < sizeof(ttls) / sizeof(ttls[0]); j++) {
            ttl = ttls[j];

            context("start %lu, ttl %lu", (unsigned long) start,
                    (unsigned long) ttl);

            for (n = 0; n < 2; n++) {
                clock_set(start);
                check(acquire(zone, key, ttl, 0, &lock) == NGX_OK);
                check(lock.rest == ttl && lock.age == 0);

                clock_set(start + ttl - 1);

                if (n) {
                    sweep(zone);
                }

                check(ngx_http_vibelock_table_find(zone->table, &key, &lock)
                      == NGX_OK);
                check(lock.rest == 1 && lock.age == ttl - 1);
                check_null(whole(zone->table));

                clock_set(start + ttl);

                if (n) {
                    sweep(zone);
                }

                check(ngx_http_vibelock_table_find(zone->table, &key, &lock)
                      == NGX_DECLINED);

                check(locks(zone) == 0);
                check_null(whole(zone->table));

                start += ttl;
            }
        }

        zone_destroy(zone);
    }
}


static void
clock_tick(void)
{
    zone_t      *zone;
    ngx_str_t    key;
    ngx_msec_t   now, ttl, first;

    fact("a sweep frees what is due within a tick, and nothing before");

    clock_set(1000);
    zone = zone_worker(16);
    key = text("a");

    for (ttl = 1; ttl < 300; ttl++) {
        context("ttl %lu", (unsigned long) ttl);

        now = ngx_current_msec;
        check(acquire(zone, key, ttl, 0, NULL) == NGX_OK);
        check(acquire(zone, text("stays"), ttl, 1, NULL) == NGX_OK);
        check(acquire(zone, text("later"), 20000, 0, NULL) == NGX_OK);

        first = 0;

        for ( /* void */ ; now + ttl + TICK >= ngx_current_msec;
             clock_set(ngx_current_msec + 1))
        {
            sweep(zone);

            if (!first && locks(zone) == 2) {
                first = ngx_current_msec;
            }
        }

        check(first >= now + ttl);
        check(first && first <= now + ttl + TICK);
        check(first == due(now + ttl));
        check(locks(zone) == 2);
        check_null(whole(zone->table));

        check(broken(zone, text("stays")));
        check(broken(zone, text("later")));
    }

    zone_destroy(zone);
}


/*
 * Where the wheel's levels meet: 64^n ticks, and a little before and after.
 */

static void
clock_boundaries(void)
{
    zone_t      *zone;
    ngx_str_t    key;
    ngx_int_t    i, j;
    ngx_uint_t   n, m, stride;
    ngx_msec_t   start, expires, edge, step;

    static ngx_int_t  around[] = { -129, -65, -64, -63, -2, -1, 0, 1, 63, 64,
                                   65, 129 };

    fact("locks around the wheel's boundaries come when they are due");

    for (n = 1; n < 6; n++) {

        /* n: the level where the start is close to the end of a turn */

        edge = (ngx_msec_t) TICK << (6 * n);

        for (i = 0; i < 12; i++) {

            start = edge * 3 + around[i];

            for (m = 0; m < 5; m++) {

                /* m: how far the expiry is, in powers of 64 ticks */

                step = (ngx_msec_t) TICK << (6 * m);

                if (step > 30 * DAY) {
                    continue;
                }

                for (j = 0; j < 12; j++) {

                    expires = start - start % step + step + around[j];

                    if (expires <= start || expires - start > 30 * DAY) {
                        continue;
                    }

                    stride = random_below(3);

                    context("start %lu, ttl %lu, stride %lu",
                            (unsigned long) start,
                            (unsigned long) (expires - start),
                            (unsigned long) stride);

                    clock_set(start);
                    zone = zone_worker(8);
                    key = text("a");

                    check(acquire(zone, key, expires - start, 0, NULL)
                          == NGX_OK);
                    check(acquire(zone, text("b"), expires - start, 0, NULL)
                          == NGX_OK);

                    /* at once, in one sweep between, or in several */

                    while (stride && due(expires) - 1 > ngx_current_msec) {
                        clock_set(ngx_current_msec
                                  + 1 + random_below(due(expires)
                                                     - ngx_current_msec - 1));
                        sweep(zone);

                        check(locks(zone) == 2);
                        check_null(whole(zone->table));

                        if (stride == 1) {
                            break;
                        }
                    }

                    clock_set(due(expires) - 1);
                    sweep(zone);
                    check(locks(zone) == 2);
                    check_null(whole(zone->table));

                    clock_set(due(expires));
                    sweep(zone);
                    check(locks(zone) == 0);
                    check_null(whole(zone->table));

                    zone_destroy(zone);
                }
            }
        }
    }
}


static void
clock_jump(void)
{
    u_char       buf[64];
    zone_t      *zone;
    ngx_str_t    key;
    ngx_uint_t   i;
    ngx_msec_t   start;

    fact("the clock may go days ahead at once");

    start = 77 * DAY + 5;

    clock_set(start);
    zone = zone_worker(64);
    key.data = buf;

    for (i = 0; i < 1500; i++) {
        key.len = sprintf((char *) buf, "%lu", (unsigned long) i);
        check(acquire(zone, key, 1 + random_below(30 * DAY), 0, NULL)
              == NGX_OK);
    }

    key = text("last");
    check(acquire(zone, key, 30 * DAY, 0, NULL) == NGX_OK);

    clock_set(start + 10 * DAY);
    sweep(zone);
    check_null(whole(zone->table));
    check(locks(zone) > 900 && locks(zone) < 1100);

    clock_set(start + 30 * DAY - 1);
    sweep(zone);
    check_null(whole(zone->table));
    check(held(zone, key));

    clock_set(start + 400 * DAY);
    check(!held(zone, key));
    sweep(zone);
    check(locks(zone) == 0);
    check_null(whole(zone->table));

    fact("an empty wheel may stand for years");

    clock_set(start + 4000 * DAY);
    check(acquire(zone, key, 1000, 0, NULL) == NGX_OK);
    check_null(whole(zone->table));
    clock_set(start + 4000 * DAY + 999);
    sweep(zone);
    check(held(zone, key));
    clock_set(start + 4000 * DAY + 1064);
    sweep(zone);
    check(locks(zone) == 0);

    zone_destroy(zone);
}


/*
 * Each worker has a clock of its own, read when it last woke up.
 */

static void
clock_behind(void)
{
    zone_t                    *zone;
    ngx_str_t                  key;
    ngx_uint_t                 i;
    ngx_msec_t                 now, ttl, ahead;
    ngx_http_vibelock_lock_t   lock, other;

    fact("a worker whose clock is behind does no harm");

    now = 1000000;

    clock_set(now);
    zone = zone_worker(16);
    key = text("a");

    for (i = 0; i < 5000; i++) {
        context("turn %lu", (unsigned long) i);

        now += random_below(200);
        ttl = 1 + random_below(300);

        /* one ahead turns the wheel, one behind takes a lock */

        ahead = now;
        clock_set(ahead);
        sweep(zone);

        clock_set(now - random_below(100));
        check(acquire(zone, key, ttl, i & 1, &lock) == NGX_OK);
        now = ngx_current_msec;
        check_null(whole(zone->table));

        clock_set(now - 50);
        sweep(zone);
        check(acquire(zone, key, 1, 0, &other) == NGX_BUSY);
        check(other.age == 0 && other.rest == ttl);
        check(locks(zone) == 1);
        check_null(whole(zone->table));

        clock_set(now + random_below(ttl));
        sweep(zone);
        check(locks(zone) == 1);

        clock_set(now);
        sweep(zone);
        check(ngx_http_vibelock_table_find(zone->table, &key, &other)
              == NGX_OK);

        if (i & 1) {
            check(ngx_http_vibelock_table_keep(zone->table, &lock.handle)
                  == NGX_OK);
        }

        /* it is gone for one, and so it is for all */

        clock_set(ngx_max(due(now + ttl), ahead));
        sweep(zone);
        check(locks(zone) == 0);

        clock_set(now);
        check(!held(zone, key));
        check(ngx_http_vibelock_table_release(zone->table, &lock.handle)
              == NGX_DECLINED);
        check_null(whole(zone->table));

        now += 1000;
    }

    fact("one that is behind a rebuild does no harm either");

    clock_set(now);
    check(acquire(zone, key, 1000, 0, &lock) == NGX_OK);
    clock_set(now - 100);
    sweep(zone);
    check_null(whole(zone->table));
    clock_set(now + 999);
    check(held(zone, key));
    clock_set(now + 1064);
    sweep(zone);
    check(locks(zone) == 0);

    zone_destroy(zone);
}


/* when the sweep sees it: at the next tick */

static ngx_msec_t
due(ngx_msec_t expires)
{
    return expires - expires % TICK + TICK;
}
