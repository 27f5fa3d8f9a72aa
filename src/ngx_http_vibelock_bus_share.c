
/*
 * Copyright (C) the vibelock authors
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_http_vibelock_bus_share.h"
#include "ngx_http_vibelock_crash.h"
#include "ngx_http_vibelock_hash.h"
#include "ngx_http_vibelock_log.h"
#include "ngx_http_vibelock_mutex.h"
#include "ngx_http_vibelock_worker.h"


/* of a state: the reason, and where the errno begins */

#define NGX_HTTP_VIBELOCK_BUS_WHY  0xff
#define NGX_HTTP_VIBELOCK_BUS_ERR  8


static void ngx_http_vibelock_bus_share_lock(ngx_slab_pool_t *pool);
static void ngx_http_vibelock_bus_share_unlock(ngx_slab_pool_t *pool);
static ngx_uint_t ngx_http_vibelock_bus_share_vacant(
    ngx_http_vibelock_bus_share_t *share, ngx_pid_t pid);


void
ngx_http_vibelock_bus_share_init(ngx_http_vibelock_bus_share_t *share)
{
    u_char      unique[NGX_HTTP_VIBELOCK_BUS_UNIQUE / 2];
    ngx_uint_t  i;

    ngx_http_vibelock_hash_random(unique, sizeof(unique));

    (void) ngx_hex_dump(share->unique, unique, sizeof(unique));

    for (i = 0; i < NGX_HTTP_VIBELOCK_BUS_SIDES; i++) {
        share->state[i] = NGX_HTTP_VIBELOCK_REDIS_IDLE;
    }

    share->made = ngx_current_msec;
}


ngx_uint_t
ngx_http_vibelock_bus_share_lease(ngx_http_vibelock_bus_share_t *share,
    ngx_slab_pool_t *pool, uint64_t nonce, ngx_msec_t term)
{
    ngx_pid_t   pid;
    ngx_uint_t  mine, vacant;

    pid = share->pid;
    mine = (pid == ngx_pid && share->nonce == nonce);

    /* a system call, and so without the mutex */

    vacant = mine ? 0 : ngx_http_vibelock_bus_share_vacant(share, pid);

    if (!mine && !vacant) {
        return 0;
    }

    ngx_http_vibelock_bus_share_lock(pool);

    mine = (share->pid == ngx_pid && share->nonce == nonce);

    if (!mine && vacant && share->pid == pid) {
        share->until = 0;
        ngx_memory_barrier();
        ngx_http_vibelock_crash_step();

        share->pid = ngx_pid;
        ngx_http_vibelock_crash_step();
        share->nonce = nonce;

        mine = 1;
    }

    if (mine) {
        ngx_memory_barrier();
        ngx_http_vibelock_crash_step();

        share->until = ngx_current_msec + term;
    }

    ngx_http_vibelock_bus_share_unlock(pool);

    return mine;
}


/*
 * Nobody has it, its holder died, or did nothing for too long.
 */

static ngx_uint_t
ngx_http_vibelock_bus_share_vacant(ngx_http_vibelock_bus_share_t *share,
    ngx_pid_t pid)
{
    if (share->until <= ngx_current_msec) {
        return 1;
    }

    return ngx_http_vibelock_worker_gone(pid);
}


void
ngx_http_vibelock_bus_share_yield(ngx_http_vibelock_bus_share_t *share,
    ngx_slab_pool_t *pool, uint64_t nonce)
{
    ngx_http_vibelock_bus_share_lock(pool);

    if (share->pid == ngx_pid && share->nonce == nonce) {
        share->until = 0;
    }

    ngx_http_vibelock_bus_share_unlock(pool);
}


/*
 * Whatever of this is done when a worker dies names an entry that is not
 * above the new one: to read some again does no harm.
 */

void
ngx_http_vibelock_bus_share_place(ngx_http_vibelock_bus_share_t *share,
    ngx_slab_pool_t *pool, uint64_t nonce, uint64_t source,
    ngx_http_vibelock_bus_id_t *id)
{
    ngx_http_vibelock_bus_share_lock(pool);

    if (share->pid == ngx_pid && share->nonce == nonce) {

        if (share->source != source) {
            share->source = 0;
            ngx_memory_barrier();
            ngx_http_vibelock_crash_step();
        }

        share->last.seq = 0;
        ngx_memory_barrier();
        ngx_http_vibelock_crash_step();

        share->last.ms = id->ms;
        ngx_memory_barrier();
        ngx_http_vibelock_crash_step();

        share->last.seq = id->seq;
        ngx_memory_barrier();
        ngx_http_vibelock_crash_step();

        share->source = source;
    }

    ngx_http_vibelock_bus_share_unlock(pool);
}


static void
ngx_http_vibelock_bus_share_lock(ngx_slab_pool_t *pool)
{
    ngx_http_vibelock_mutex_lock(pool);

    ngx_http_vibelock_crash_arm();
    ngx_http_vibelock_crash_step();
}


static void
ngx_http_vibelock_bus_share_unlock(ngx_slab_pool_t *pool)
{
    ngx_http_vibelock_crash_step();

    ngx_shmtx_unlock(&pool->mutex);
}


void
ngx_http_vibelock_bus_share_count(ngx_http_vibelock_bus_share_t *share,
    ngx_uint_t counter)
{
    (void) ngx_atomic_fetch_add(&share->counters[counter], 1);
}


ngx_uint_t
ngx_http_vibelock_bus_share_once(ngx_http_vibelock_bus_share_t *share,
    ngx_http_vibelock_bus_once_e line)
{
    return ngx_http_vibelock_log_once(&share->logged[line]);
}


void
ngx_http_vibelock_bus_share_set(ngx_http_vibelock_bus_share_t *share,
    ngx_http_vibelock_bus_side_e side, ngx_http_vibelock_redis_e why,
    ngx_err_t err)
{
    share->state[side] = (ngx_atomic_uint_t) why
                         | (ngx_atomic_uint_t) err
                           << NGX_HTTP_VIBELOCK_BUS_ERR;
}


ngx_http_vibelock_redis_e
ngx_http_vibelock_bus_share_why(ngx_http_vibelock_bus_share_t *share,
    ngx_http_vibelock_bus_side_e side, ngx_err_t *err)
{
    ngx_atomic_uint_t  state;

    state = share->state[side];

    *err = (ngx_err_t) (state >> NGX_HTTP_VIBELOCK_BUS_ERR);

    return (ngx_http_vibelock_redis_e) (state & NGX_HTTP_VIBELOCK_BUS_WHY);
}


ngx_int_t
ngx_http_vibelock_bus_share_news(ngx_http_vibelock_bus_share_t *share,
    ngx_uint_t heard, ngx_http_vibelock_bus_side_e *side)
{
    ngx_err_t                     err;
    ngx_uint_t                    i, works;
    ngx_http_vibelock_redis_e     why;

    works = 0;

    for (i = 0; i < NGX_HTTP_VIBELOCK_BUS_SIDES; i++) {
        why = ngx_http_vibelock_bus_share_why(share, i, &err);

        if (why == NGX_HTTP_VIBELOCK_REDIS_WORKS) {
            works++;
            continue;
        }

        if (why == NGX_HTTP_VIBELOCK_REDIS_IDLE
            || (ngx_http_vibelock_redis_worded(why) && i != heard))
        {
            continue;
        }

        if (share->told
            || !ngx_http_vibelock_bus_share_once(share,
                                             NGX_HTTP_VIBELOCK_BUS_ONCE_AWAY))
        {
            return NGX_DONE;
        }

        share->told = 1;
        *side = i;

        return NGX_DECLINED;
    }

    if (works == NGX_HTTP_VIBELOCK_BUS_SIDES
        && share->told && ngx_atomic_cmp_set(&share->told, 1, 0))
    {
        return NGX_OK;
    }

    return NGX_DONE;
}
