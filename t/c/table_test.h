
/*
 * Copyright (C) the vibelock authors
 *
 * The parts of the table's test, and what they share.
 */


#ifndef _NGX_VIBELOCK_TEST_TABLE_TEST_H_INCLUDED_
#define _NGX_VIBELOCK_TEST_TABLE_TEST_H_INCLUDED_


#include "nginx.h"
#include "ngx_http_vibelock_cells.h"
#include "ngx_http_vibelock_crash.h"
#include "ngx_http_vibelock_hash.h"
#include "tap.h"
#include "whole.h"


#define DAY  ((ngx_msec_t) 24 * 3600 * 1000)


/* how much is done: less under valgrind, more where there is time */

typedef struct {
    uint64_t     seed;
    ngx_uint_t   operations;        /* of the random ones */
    ngx_uint_t   locks;             /* of the big zone */
    ngx_uint_t   thin;              /* one of so many crashes is made */
    ngx_uint_t   tracing;           /* 0: where no process can be traced */
} amount_t;


/*
 * The table is compiled with the steps where a process may be killed marked,
 * and they are counted: what takes that is skipped otherwise.  Without them the
 * compiler is as free as it is in nginx.
 */

extern const ngx_uint_t  steps_marked;

#if !(NGX_HTTP_VIBELOCK_CRASH)
extern ngx_int_t  ngx_http_vibelock_crash_after;
#endif


void table_facts(amount_t *amount);
void table_clock(amount_t *amount);
void table_full(amount_t *amount);
void table_model(amount_t *amount);
void table_million(amount_t *amount);
void table_crash(amount_t *amount);
void table_stepped(amount_t *amount);
void table_race(amount_t *amount);


/*
 * A zone of that many pages with a worker in it, which this process plays.
 */

zone_t *zone_worker(ngx_uint_t pages);

ngx_str_t text(const char *s);

/*
 * Takes a lock without an owner, for the first operation there is; or by a
 * claim.  *lock is all there is to know of one that was taken.
 */

ngx_int_t acquire(zone_t *zone, ngx_str_t key, ngx_msec_t ttl,
    ngx_uint_t overrun, ngx_http_vibelock_lock_t *lock);
ngx_int_t claimed(zone_t *zone, ngx_http_vibelock_claim_t *claim,
    ngx_http_vibelock_lock_t *lock);

/*
 * Breaks a lock: 1 when there was one.
 */

ngx_uint_t broken(zone_t *zone, ngx_str_t key);

/*
 * Is there a lock?  How many locks lie in the zone, expired or not, and how
 * many cells are used?
 */

ngx_uint_t held(zone_t *zone, ngx_str_t key);
ngx_uint_t locks(zone_t *zone);
ngx_uint_t used(zone_t *zone);

/*
 * Sweeps all that is due, or searches all; the number of calls that took.
 */

ngx_uint_t sweep(zone_t *zone);
ngx_uint_t search(zone_t *zone);

/* what search() visited since it was set to 0 */
extern ngx_uint_t  visited;

ngx_uint_t yes(ngx_http_vibelock_lock_t *lock, void *data);
ngx_uint_t no(ngx_http_vibelock_lock_t *lock, void *data);


#endif /* _NGX_VIBELOCK_TEST_TABLE_TEST_H_INCLUDED_ */
