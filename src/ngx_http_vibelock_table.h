
/*
 * Copyright (C) the vibelock authors
 *
 * The table: the locks of a zone, in shared memory.
 *
 * It knows neither HTTP nor Redis.  A function takes the zone's mutex for a few
 * pointer moves, if at all, and gives it back before it returns; none blocks
 * for anything else, none allocates outside the zone.
 *
 * Times are milliseconds of nginx's monotonic clock (ngx_current_msec), TTLs
 * and ages are milliseconds too.
 */


#ifndef _NGX_HTTP_VIBELOCK_TABLE_H_INCLUDED_
#define _NGX_HTTP_VIBELOCK_TABLE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>


#define NGX_HTTP_VIBELOCK_KEY_MAX        255
#define NGX_HTTP_VIBELOCK_OPERATION_MAX  32
#define NGX_HTTP_VIBELOCK_OWNER_LEN      32

/* 30 days: a lock that nobody ends is of no use after that */
#define NGX_HTTP_VIBELOCK_TTL_MAX        ((ngx_msec_t) 30 * 24 * 3600 * 1000)


typedef struct ngx_http_vibelock_table_s  ngx_http_vibelock_table_t;


/* where a lock is; good for one acquisition only, however often it is shown */

typedef struct {
    uint64_t    token;
    uint32_t    cell;
} ngx_http_vibelock_handle_t;


/* a lock as it was when it was looked at: a copy, the caller's own */

typedef struct {
    ngx_http_vibelock_handle_t   handle;
    ngx_msec_t                   age;
    ngx_msec_t                   rest;          /* to the TTL; 0 past it */
    ngx_str_t                    operation;     /* in the zone, for good */
    u_char                       owner[NGX_HTTP_VIBELOCK_OWNER_LEN];
    unsigned                     owned:1;       /* owner is set */
    unsigned                     overrun:1;
    unsigned                     stuck:1;       /* its request is gone */
} ngx_http_vibelock_lock_t;


/* what to lock, and how */

typedef struct {
    ngx_str_t                    key;           /* 1 to 255 bytes */
    uint32_t                     operation;     /* from table_operation() */
    u_char                      *owner;         /* 32 bytes, or NULL */
    ngx_msec_t                   ttl;           /* 1 to TTL_MAX */
    ngx_uint_t                   overrun;
} ngx_http_vibelock_claim_t;


typedef struct {
    ngx_uint_t                   cells;
    ngx_uint_t                   used;          /* cells */
    ngx_uint_t                   locks;         /* expired, unswept included */
    ngx_uint_t                   rebuilds;
    uint64_t                     expired;       /* locks that ended so */
} ngx_http_vibelock_usage_t;


/*
 * Makes the table in a zone that was never used: takes all the memory that the
 * pool has, and keeps "reserve" bytes of it, zeroed, for the caller
 * (table_reserved()).  Returns NULL when the pool is too small.
 */

ngx_http_vibelock_table_t *ngx_http_vibelock_table_create(
    ngx_slab_pool_t *shpool, size_t reserve);

/*
 * Those bytes, aligned as nginx aligns memory.
 */

void *ngx_http_vibelock_table_reserved(ngx_http_vibelock_table_t *table);

/*
 * The number of the operation of that name (1 to 32 bytes), which the table
 * remembers for good.  NGX_HTTP_VIBELOCK_NONE when there is no room.
 */

uint32_t ngx_http_vibelock_table_operation(ngx_http_vibelock_table_t *table,
    ngx_str_t *name);

/*
 * A worker enters when it starts, and leaves when it exits: a lock is running
 * for as long as the worker that took it is there.
 */

void ngx_http_vibelock_table_enter(ngx_http_vibelock_table_t *table);
void ngx_http_vibelock_table_leave(ngx_http_vibelock_table_t *table);

/*
 * Looks for workers that are gone without a word and were not replaced: a
 * system call or two a worker, and the mutex only for one that is gone.
 */

void ngx_http_vibelock_table_reap(ngx_http_vibelock_table_t *table);

/*
 * Takes the lock that *claim describes; what that points to is copied.
 *
 * NGX_OK         the lock is the caller's: lock->handle, which ends it
 * NGX_BUSY       somebody holds it: *lock
 * NGX_DECLINED   the zone is full
 */

ngx_int_t ngx_http_vibelock_table_acquire(ngx_http_vibelock_table_t *table,
    ngx_http_vibelock_claim_t *claim, ngx_http_vibelock_lock_t *lock);

/*
 * The end of an operation: release() frees the lock, keep() leaves it to its
 * TTL, as stuck.  NGX_OK; NGX_DECLINED when the lock was lost before: broken,
 * or expired.
 */

ngx_int_t ngx_http_vibelock_table_release(ngx_http_vibelock_table_t *table,
    ngx_http_vibelock_handle_t *handle);
ngx_int_t ngx_http_vibelock_table_keep(ngx_http_vibelock_table_t *table,
    ngx_http_vibelock_handle_t *handle);

/*
 * NGX_OK and *lock, or NGX_DECLINED: nobody holds it.  To find and to break, a
 * key may be longer than any that can be held.
 */

ngx_int_t ngx_http_vibelock_table_find(ngx_http_vibelock_table_t *table,
    ngx_str_t *key, ngx_http_vibelock_lock_t *lock);

/*
 * Breaks the lock of that key, if its holder is one that "may" says yes to:
 * a function on a copy of the lock, called with the mutex held, that must
 * not call the table.  *lock tells what was broken (NGX_OK) or was left
 * (NGX_DECLINED; lock->handle.token is 0 when there was none).
 */

typedef ngx_uint_t (*ngx_http_vibelock_may_pt)(ngx_http_vibelock_lock_t *lock,
    void *data);

ngx_int_t ngx_http_vibelock_table_break(ngx_http_vibelock_table_t *table,
    ngx_str_t *key, ngx_http_vibelock_may_pt may, void *data,
    ngx_http_vibelock_lock_t *lock);

/*
 * One small step of the sweep: frees what is past its TTL, and nothing else.
 * NGX_AGAIN: there is more to do; NGX_OK: nothing is due.
 */

ngx_int_t ngx_http_vibelock_table_sweep(ngx_http_vibelock_table_t *table);

typedef void (*ngx_http_vibelock_visit_pt)(ngx_http_vibelock_lock_t *lock,
    ngx_str_t *key, void *data);

/*
 * One small step of the search for locks whose worker died: marks them stuck,
 * and calls "visit" for each, with the mutex free.  NGX_AGAIN: there is more
 * to search; NGX_OK: no worker died, or all was seen.
 */

ngx_int_t ngx_http_vibelock_table_search(ngx_http_vibelock_table_t *table,
    ngx_http_vibelock_visit_pt visit, void *data);

/*
 * One small step of a walk over all locks, in no order: "visit" gets a copy
 * of each live one and its key, with the mutex held; it must be short and
 * must not call the table.  *cell starts at 0 and is moved on.  NGX_AGAIN:
 * there are more; NGX_OK: that was all.  A lock that comes or goes meanwhile
 * is seen or not.
 */

ngx_int_t ngx_http_vibelock_table_scan(ngx_http_vibelock_table_t *table,
    uint32_t *cell, ngx_http_vibelock_visit_pt visit, void *data);

/*
 * How full the table is, and what became of it so far.
 */

void ngx_http_vibelock_table_usage(ngx_http_vibelock_table_t *table,
    ngx_http_vibelock_usage_t *usage);


#endif /* _NGX_HTTP_VIBELOCK_TABLE_H_INCLUDED_ */
