
/*
 * Copyright (C) the vibelock authors
 *
 * The mutex of a zone by itself: who may take it from whom.
 */


#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "ngx_http_vibelock_mutex.c"

#include "tap.h"


#define SHORT  100                  /* ms, in which nothing is to happen */
#define LONG   30000                /* ms, in which something is, at last */


ngx_pid_t  ngx_pid;
ngx_int_t  ngx_ncpu = 2;

static ngx_slab_pool_t  *pool;


/* as in nginx, without its semaphore */

ngx_uint_t
ngx_shmtx_trylock(ngx_shmtx_t *mtx)
{
    return *mtx->lock == 0 && ngx_atomic_cmp_set(mtx->lock, 0, ngx_pid);
}


ngx_uint_t
ngx_shmtx_force_unlock(ngx_shmtx_t *mtx, ngx_pid_t pid)
{
    return ngx_atomic_cmp_set(mtx->lock, pid, 0);
}


/* a process that has the mutex, or waits for it, and ends with this one */

static ngx_pid_t
process(void (*run)(void))
{
    ngx_pid_t  pid;

    pid = fork();

    if (pid == 0) {
        (void) prctl(PR_SET_PDEATHSIG, SIGKILL);

        ngx_pid = getpid();
        run();

        for ( ;; ) {
            (void) pause();
        }
    }

    return pid;
}


static void
end(ngx_pid_t pid)
{
    (void) kill(pid, SIGKILL);
    (void) waitpid(pid, NULL, 0);
}


/* 1 when it has it in so many ms */

static ngx_uint_t
has(ngx_pid_t pid, ngx_uint_t ms)
{
    for ( /* void */ ; ms; ms--) {

        if (*pool->mutex.lock == (ngx_atomic_uint_t) pid) {
            return 1;
        }

        (void) usleep(1000);
    }

    return 0;
}


static void
lock(void)
{
    ngx_http_vibelock_mutex_lock(pool);
}


static void
lock_as_stranger(void)
{
    (void) setpgid(0, 0);

    lock();
}


static void
lock_as_master(void)
{
    ngx_pid_t  pid;

    pid = process(lock);

    if (has(pid, LONG)) {
        lock();
    }
}


static ngx_pid_t
holder(void (*run)(void))
{
    ngx_pid_t  pid;

    *pool->mutex.lock = 0;

    pid = process(run);

    check(has(pid, LONG));

    return pid;
}


static void
facts_worker(void)
{
    ngx_pid_t  pid, waits;

    fact("who lives keeps it, until it gives it back");

    pid = holder(lock);
    waits = process(lock);
    check(!has(waits, SHORT));
    *pool->mutex.lock = 0;
    check(has(waits, LONG));
    end(waits);
    end(pid);

    fact("who is dead is waited for until its master knows");

    pid = holder(lock);
    waits = process(lock);
    (void) kill(pid, SIGKILL);
    check(!has(waits, SHORT));
    (void) waitpid(pid, NULL, 0);
    check(has(waits, LONG));
    end(waits);

    fact("a stranger that has the pid now does not have the mutex");

    pid = holder(lock_as_stranger);
    waits = process(lock);
    check(has(waits, LONG));
    end(waits);
    end(pid);

    fact("nor does who had the pid that is ours now");

    *pool->mutex.lock = ngx_pid;
    lock();
    check(*pool->mutex.lock == (ngx_atomic_uint_t) ngx_pid);

    fact_done();
}


static void
facts_master(void)
{
    ngx_pid_t  master, worker;

    *pool->mutex.lock = 0;

    fact("a master does not take it from a worker that lives");

    master = process(lock_as_master);

    while (*pool->mutex.lock == 0) {
        (void) usleep(1000);
    }

    worker = (ngx_pid_t) *pool->mutex.lock;

    check(worker != master && !has(master, SHORT));

    fact("it does from one that is dead, and leaves that to be reaped");

    (void) kill(worker, SIGKILL);
    check(has(master, LONG));
    check(getpgid(worker) == getpgrp());
    end(master);

    fact_done();
}


int
main(void)
{
    void  *p;

    p = mmap(NULL, 4096, PROT_READ|PROT_WRITE, MAP_ANON|MAP_SHARED, -1, 0);
    if (p == MAP_FAILED) {
        abort();
    }

    pool = p;
    pool->mutex.lock = &pool->lock.lock;
    ngx_pid = getpid();

    /* who waits without end fails */

    (void) alarm(120);

    facts_worker();
    facts_master();

    printf("done\n");

    return 0;
}
