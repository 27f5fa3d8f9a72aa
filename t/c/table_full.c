
/*
 * Copyright (C) the vibelock authors
 *
 * A zone that is full.
 */


#include "table_test.h"


#define START  ((ngx_msec_t) 3 * DAY + 5)


typedef struct {
    uint64_t     token[4096];
    ngx_uint_t   n;
} tokens_t;


static void fill(zone_t *zone, ngx_uint_t first, ngx_uint_t n, ngx_msec_t ttl);
static ngx_str_t numbered(ngx_uint_t n);
static ngx_str_t lengthy(size_t len);
static void token_add(raw_t *raw, void *data);


void
table_full(amount_t *amount)
{
    zone_t                    *zone;
    tokens_t                   before, after;
    ngx_str_t                  key;
    ngx_uint_t                 i, n, total, step;
    ngx_http_vibelock_lock_t   lock;
    ngx_http_vibelock_usage_t  usage;

    clock_set(START);
    zone = zone_worker(16);
    total = raw_slots(zone->table) - 1;

    fact("a zone takes as many locks as it has cells");

    fill(zone, 0, total, 10000);
    check(locks(zone) == total);
    check_null(whole(zone->table));

    fact("a full zone takes no other, and touches none that runs");

    before.n = 0;
    after.n = 0;
    raw_each(zone->table, token_add, &before);

    check(acquire(zone, numbered(total), 1000, 0, NULL) == NGX_DECLINED);
    check(acquire(zone, lengthy(255), 1000, 0, NULL) == NGX_DECLINED);
    check(acquire(zone, numbered(7), 1000, 0, &lock) == NGX_BUSY);

    raw_each(zone->table, token_add, &after);
    check(before.n == total && after.n == total);
    check(ngx_memcmp(before.token, after.token,
                     total * sizeof(before.token[0]))
          == 0);
    check_null(whole(zone->table));

    fact("nor does it take another operation's name");

    key = text("deploy");
    check(ngx_http_vibelock_table_operation(zone->table, &key)
          == NGX_HTTP_VIBELOCK_NONE);
    key = text("exec");
    check(ngx_http_vibelock_table_operation(zone->table, &key) == 0);
    check_null(whole(zone->table));

    fact("a full zone takes one again for one that was released");

    check(ngx_http_vibelock_table_release(zone->table, &lock.handle)
          == NGX_OK);
    check(acquire(zone, lengthy(37), 1000, 0, NULL) == NGX_DECLINED);
    check(acquire(zone, numbered(total), 1000, 0, NULL) == NGX_OK);
    check(acquire(zone, numbered(total + 1), 1000, 0, NULL) == NGX_DECLINED);
    check_null(whole(zone->table));

    fact("a full zone reclaims what is expired, no more than it needs");

    clock_set(START + 10064);
    check(acquire(zone, numbered(total + 2), 1000, 0, NULL) == NGX_OK);
    check(locks(zone) == total);
    check(acquire(zone, lengthy(255), 1000, 0, NULL) == NGX_OK);
    check(locks(zone) == total - 2);
    check(used(zone) == total + 1);
    check_null(whole(zone->table));

    key = text("deploy");
    check(ngx_http_vibelock_table_operation(zone->table, &key)
          != NGX_HTTP_VIBELOCK_NONE);
    check_null(whole(zone->table));

    zone_destroy(zone);

    fact("few expired among many that run: they are found, of whatever level");

    for (step = 1; step < 30; step += 4) {
        context("one in %lu", (unsigned long) step);

        clock_set(START);
        zone = zone_worker(16);

        for (i = 0; i < total; i++) {
            fill(zone, i, 1, i % step ? 20 * DAY
                                      : 1 + random_below(step * DAY / 2));
        }

        clock_set(START + 19 * DAY);
        n = 0;

        while (acquire(zone, numbered(total + n), DAY, 0, NULL) == NGX_OK) {
            n++;
        }

        check(n == (total + step - 1) / step);

        /* what runs is there still */

        for (i = 0; i < total; i++) {
            if (i % step) {
                check(held(zone, numbered(i)));
            }
        }

        for (i = 0; i < n; i++) {
            check(held(zone, numbered(total + i)));
        }

        check_null(whole(zone->table));
        zone_destroy(zone);
    }

    fact("a full zone of overrun locks past their TTL takes no other");

    clock_set(START);
    zone = zone_worker(16);

    for (i = 0; i < total; i++) {
        check(acquire(zone, numbered(i), 1000, 1, NULL) == NGX_OK);
    }

    clock_set(START + 9000);
    check(acquire(zone, numbered(total), 1000, 0, NULL) == NGX_DECLINED);
    check(acquire(zone, numbered(total), 1000, 0, NULL) == NGX_DECLINED);
    check(locks(zone) == total);
    check(held(zone, numbered(0)) && held(zone, numbered(total - 1)));
    check_null(whole(zone->table));

    fact("... and is free again one TTL after their worker died");

    ngx_http_vibelock_table_enter(zone->table);
    search(zone);
    check(acquire(zone, numbered(total), 1000, 0, NULL) == NGX_DECLINED);
    clock_set(START + 10064);
    check(acquire(zone, numbered(total), 1000, 0, NULL) == NGX_OK);
    sweep(zone);
    check(locks(zone) == 1);
    check_null(whole(zone->table));

    fact("long keys fill a zone, and leave it, to the last cell");

    clock_set(START + 20000);
    sweep(zone);
    check(used(zone) == 1);

    for (n = 0; n < 3; n++) {
        for (i = 255; i > 0; i--) {
            while (acquire(zone, lengthy(i), 1000, 0, &lock) == NGX_BUSY) {
                (void) ngx_http_vibelock_table_release(zone->table,
                                                       &lock.handle);
            }
        }

        while (acquire(zone, numbered(random_below(1000000)), 1000, 0, NULL)
               != NGX_DECLINED)
        {
            /* void */
        }

        check(used(zone) == total + 1);
        check_null(whole(zone->table));

        clock_set(ngx_current_msec + 1064);
        sweep(zone);
        check(used(zone) == 1);
        check_null(whole(zone->table));
    }

    ngx_http_vibelock_table_usage(zone->table, &usage);
    check(usage.cells == total + 1);
    check(usage.rebuilds == 0);

    zone_destroy(zone);
}


static void
fill(zone_t *zone, ngx_uint_t first, ngx_uint_t n, ngx_msec_t ttl)
{
    while (n--) {
        check(acquire(zone, numbered(first + n), ttl, 0, NULL) == NGX_OK);
    }
}


static ngx_str_t
numbered(ngx_uint_t n)
{
    static u_char  buf[32];

    ngx_str_t      key;

    key.data = buf;
    key.len = sprintf((char *) buf, "%08lu", (unsigned long) n);

    return key;
}


static ngx_str_t
lengthy(size_t len)
{
    static u_char  buf[NGX_HTTP_VIBELOCK_KEY_MAX];

    ngx_str_t      key;

    ngx_memset(buf, 'l', len);

    key.data = buf;
    key.len = len;

    return key;
}


static void
token_add(raw_t *raw, void *data)
{
    tokens_t  *tokens = data;

    tokens->token[tokens->n++] = raw->token;
}
