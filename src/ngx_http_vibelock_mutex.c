
/*
 * Copyright (C) the vibelock authors
 *
 * nginx's master frees the mutex of a worker that died, but not
 *
 *   - while it reads its configuration again: it hears of no death then, and
 *     would wait itself, for operations are looked up when it has read it;
 *   - when the zone is in the configuration no more, and workers from before
 *     that still finish.
 *
 * And nginx's own way to wait is to sleep until one is woken, in two steps: who
 * is to wake another may die between them, and nobody does it after that.  So
 * whoever waits wakes by itself, and looks whether who has the mutex is dead.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_http_vibelock_mutex.h"
#include "ngx_http_vibelock_worker.h"


/* tries before somebody else gets the processor, and how often that is done */
#define NGX_HTTP_VIBELOCK_MUTEX_SPIN   1024
#define NGX_HTTP_VIBELOCK_MUTEX_YIELD  64


static void ngx_http_vibelock_mutex_wait(ngx_shmtx_t *mutex);
static ngx_uint_t ngx_http_vibelock_mutex_dead(ngx_pid_t pid);


void
ngx_http_vibelock_mutex_lock(ngx_slab_pool_t *pool)
{
    if (!ngx_shmtx_trylock(&pool->mutex)) {
        ngx_http_vibelock_mutex_wait(&pool->mutex);
    }
}


static void
ngx_http_vibelock_mutex_wait(ngx_shmtx_t *mutex)
{
    ngx_pid_t   pid;
    ngx_uint_t  i, n;

    for (n = 0; /* void */ ; n++) {

        for (i = 0; i < NGX_HTTP_VIBELOCK_MUTEX_SPIN; i++) {

            if (ngx_shmtx_trylock(mutex)) {
                return;
            }

            if (ngx_ncpu == 1) {
                break;
            }

            ngx_cpu_pause();
        }

        pid = (ngx_pid_t) *mutex->lock;

        if (pid && ngx_http_vibelock_mutex_dead(pid)) {
            (void) ngx_shmtx_force_unlock(mutex, pid);
            continue;
        }

        if (n < NGX_HTTP_VIBELOCK_MUTEX_YIELD) {
            ngx_sched_yield();
            continue;
        }

        /* who has it does not run: it is stopped, or dead and not reaped */

        ngx_msleep(1);
    }
}


/*
 * Gone; or, for the master, to be reaped: not here, or it is not replaced.
 */

static ngx_uint_t
ngx_http_vibelock_mutex_dead(ngx_pid_t pid)
{
    siginfo_t  info;

    if (ngx_http_vibelock_worker_gone(pid)) {
        return 1;
    }

    info.si_pid = 0;

    return waitid(P_PID, pid, &info, WEXITED|WNOHANG|WNOWAIT) == 0
           && info.si_pid == pid;
}
