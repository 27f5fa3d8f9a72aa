
/*
 * Copyright (C) the vibelock authors
 */


#include <sys/prctl.h>

#include "nginx.h"
#include "ngx_http_vibelock_mutex.h"


volatile ngx_msec_t    ngx_current_msec;
volatile ngx_time_t   *ngx_cached_time;
ngx_pid_t              ngx_pid;
ngx_int_t              ngx_process_slot;
ngx_uint_t             ngx_pagesize;

ngx_uint_t             test_stop_locked;
ngx_uint_t             test_locked;
ngx_msec_t             test_latest;

static ngx_time_t      test_time;
static uint64_t        test_random;


/* the pool gives all it has, once */

void *
ngx_slab_alloc(ngx_slab_pool_t *pool, size_t size)
{
    if (size > pool->pfree * ngx_pagesize) {
        return NULL;
    }

    pool->pfree -= (size + ngx_pagesize - 1) / ngx_pagesize;

    return pool->start;
}


void
ngx_http_vibelock_mutex_lock(ngx_slab_pool_t *pool)
{
    ngx_shmtx_t  *mtx;

    mtx = &pool->mutex;

    while (*mtx->lock != 0 || !ngx_atomic_cmp_set(mtx->lock, 0, ngx_pid)) {
        (void) sched_yield();
    }

    test_locked++;

    if (test_stop_locked) {
        (void) raise(SIGSTOP);
    }
}


/* a plain store: it can be stepped through on every machine */

void
ngx_shmtx_unlock(ngx_shmtx_t *mtx)
{
    if (*mtx->lock == (ngx_atomic_uint_t) ngx_pid) {
        ngx_memory_barrier();
        *mtx->lock = 0;
    }
}


zone_t *
zone_create(size_t size, size_t reserve)
{
    u_char      *p;
    size_t       n, pages;
    zone_t      *zone;
    ngx_uint_t   sizes;

    ngx_pagesize = getpagesize();

    zone = calloc(1, sizeof(zone_t));
    if (zone == NULL) {
        abort();
    }

    size -= size % ngx_pagesize;

    p = mmap(NULL, size, PROT_READ|PROT_WRITE, MAP_ANON|MAP_SHARED, -1, 0);
    if (p == MAP_FAILED) {
        abort();
    }

    /* what was never used may be anything; a big zone is left untouched */

    if (size < 1024 * 1024) {
        ngx_memset(p, 0xa5, size);
        ngx_memzero(p, sizeof(ngx_slab_pool_t));
    }

    zone->size = size;
    zone->pool = (ngx_slab_pool_t *) p;

    /* as ngx_slab_init() shares it out */

    for (sizes = 0; (ngx_pagesize >> sizes) > 8; sizes++) { /* void */ }

    n = sizeof(ngx_slab_pool_t)
        + sizes * (sizeof(ngx_slab_page_t) + sizeof(ngx_slab_stat_t));

    pages = (size - n) / (ngx_pagesize + sizeof(ngx_slab_page_t));

    zone->pool->start = ngx_align_ptr(p + n + pages * sizeof(ngx_slab_page_t),
                                      ngx_pagesize);
    zone->pool->end = p + size;
    zone->pool->pfree = (zone->pool->end - zone->pool->start) / ngx_pagesize;
    zone->pool->pfree = ngx_min(zone->pool->pfree, pages);
    zone->pool->addr = p;
    zone->pool->mutex.lock = &zone->pool->lock.lock;

    if (ngx_cached_time == NULL) {
        test_time.sec = time(NULL);
        test_time.msec = 123;
        ngx_cached_time = &test_time;
    }

    test_latest = ngx_current_msec;

    zone->table = ngx_http_vibelock_table_create(zone->pool, reserve);

    return zone;
}


void
zone_destroy(zone_t *zone)
{
    (void) munmap(zone->pool, zone->size);
    free(zone->saved);
    free(zone);
}


void
zone_save(zone_t *zone)
{
    if (zone->saved == NULL) {
        zone->saved = malloc(zone->size);
        if (zone->saved == NULL) {
            abort();
        }
    }

    ngx_memcpy(zone->saved, zone->pool, zone->size);
}


void
zone_restore(zone_t *zone)
{
    ngx_memcpy(zone->pool, zone->saved, zone->size);
}


ngx_uint_t
zone_same(zone_t *zone, u_char *copy)
{
    return ngx_memcmp(zone->pool, copy, zone->size) == 0;
}


ngx_uint_t
zone_force_unlock(zone_t *zone, ngx_pid_t pid)
{
    return ngx_atomic_cmp_set(zone->pool->mutex.lock, pid, 0);
}


void
become(ngx_int_t slot, ngx_pid_t pid)
{
    ngx_process_slot = slot;
    ngx_pid = pid;
}


ngx_pid_t
stand_in(void)
{
    ngx_pid_t  pid;

    pid = fork();

    if (pid == -1) {
        abort();
    }

    if (pid == 0) {

        /* not for longer than who made it */

        (void) prctl(PR_SET_PDEATHSIG, SIGKILL);

        for ( ;; ) {
            (void) pause();
        }
    }

    return pid;
}


void
stand_in_kill(ngx_pid_t pid)
{
    (void) kill(pid, SIGKILL);
    (void) waitpid(pid, NULL, 0);
}


ngx_pid_t
pid_gone(void)
{
    ngx_pid_t  pid;

    pid = stand_in();
    stand_in_kill(pid);

    return pid;
}


void
clock_set(ngx_msec_t now)
{
    ngx_current_msec = now;
    test_latest = ngx_max(test_latest, now);
}


void
clock_real(void)
{
    struct timespec  ts;

    (void) clock_gettime(CLOCK_MONOTONIC, &ts);

    ngx_current_msec = (ngx_msec_t) ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}


void
random_seed(uint64_t seed)
{
    test_random = seed;
}


/* splitmix64, by Guy Steele, Doug Lea and Christine Flood */

uint64_t
random_next(void)
{
    uint64_t  x;

    test_random += 0x9e3779b97f4a7c15ULL;

    x = test_random;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;

    return x ^ (x >> 31);
}


uint64_t
random_below(uint64_t n)
{
    return random_next() % n;
}


void
clock_later(time_t sec)
{
    test_time.sec += sec;
}


double
seconds(void)
{
    struct timespec  ts;

    (void) clock_gettime(CLOCK_MONOTONIC, &ts);

    return ts.tv_sec + ts.tv_nsec / 1e9;
}
