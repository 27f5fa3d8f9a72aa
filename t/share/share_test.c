
/*
 * Copyright (C) the vibelock authors
 *
 * What workers share of the bus, by itself: who reads, and how far it was read.
 */


#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "ngx_http_vibelock_bus_share.c"

#include "tap.h"


#define TERM  1500                  /* ms, of a lease */


typedef struct {
    uint64_t                    source;
    ngx_http_vibelock_bus_id_t  last;
} place_t;


volatile ngx_msec_t  ngx_current_msec = 1000000;
ngx_pid_t            ngx_pid;

static ngx_slab_pool_t                *pool;
static ngx_http_vibelock_bus_share_t  *share;

/* who has the lease by the time that the mutex is there, once */
static ngx_pid_t                       sooner;


void
ngx_http_vibelock_mutex_lock(ngx_slab_pool_t *pool)
{
    if (*pool->mutex.lock) {
        abort();
    }

    *pool->mutex.lock = ngx_pid;

    if (sooner) {
        share->pid = sooner;
        share->until = ngx_current_msec + TERM;
        sooner = 0;
    }
}


void
ngx_shmtx_unlock(ngx_shmtx_t *mtx)
{
    *mtx->lock = 0;
}


/* once: all of this is within a minute */

ngx_uint_t
ngx_http_vibelock_log_once(ngx_atomic_t *logged)
{
    return ngx_atomic_cmp_set(logged, 0, 1);
}


u_char *
ngx_hex_dump(u_char *dst, u_char *src, size_t len)
{
    ngx_memset(dst, 'a', 2 * len);

    return dst + 2 * len;
}


static void
make(void)
{
    u_char  *p;

    p = mmap(NULL, 8192, PROT_READ|PROT_WRITE, MAP_ANON|MAP_SHARED, -1, 0);
    if (p == MAP_FAILED) {
        abort();
    }

    pool = (ngx_slab_pool_t *) p;
    pool->mutex.lock = &pool->lock.lock;
    share = (ngx_http_vibelock_bus_share_t *) (p + 4096);

    ngx_http_vibelock_bus_share_init(share);
}


static void
unmake(void)
{
    (void) munmap(pool, 8192);
}


static ngx_uint_t
lease(uint64_t nonce)
{
    return ngx_http_vibelock_bus_share_lease(share, pool, nonce, TERM);
}


static void
yield(uint64_t nonce)
{
    ngx_http_vibelock_bus_share_yield(share, pool, nonce);
}


static void
place(uint64_t nonce, place_t *to)
{
    ngx_http_vibelock_bus_share_place(share, pool, nonce, to->source,
                                      &to->last);
}


/* another worker, which has the lease, and does no more about it */

static ngx_pid_t
reader(ngx_uint_t stranger)
{
    ngx_pid_t   pid;
    ngx_uint_t  i;

    pid = fork();

    if (pid == 0) {
        (void) prctl(PR_SET_PDEATHSIG, SIGKILL);

        ngx_pid = getpid();

        if (stranger) {
            (void) setpgid(0, 0);
        }

        (void) lease(ngx_pid);

        for ( ;; ) {
            (void) pause();
        }
    }

    /* half a minute for a slow machine */

    for (i = 0; i < 30000 && (share->pid != pid || share->until == 0); i++) {
        (void) usleep(1000);
    }

    check(share->pid == pid);

    return pid;
}


static void
end(ngx_pid_t pid)
{
    (void) kill(pid, SIGKILL);
    (void) waitpid(pid, NULL, 0);
}


static void
facts_lease(void)
{
    ngx_pid_t  pid;

    make();

    fact("who asks first reads, and goes on reading");

    check(lease(1));
    ngx_current_msec += TERM + 1;
    check(lease(1));
    check(share->pid == ngx_pid && share->until == ngx_current_msec + TERM);

    fact("who gives up what another one has changes nothing");

    yield(2);
    check(share->until == ngx_current_msec + TERM);

    fact("who gives it up leaves it to the next one");

    yield(1);
    pid = reader(0);
    check(share->pid == pid);

    fact("who lives and does something now and then keeps it");

    check(!lease(1));
    ngx_current_msec += TERM - 1;
    check(!lease(1));

    fact("who does nothing for too long loses it");

    ngx_current_msec += 1;
    check(lease(1));
    end(pid);

    fact("who dies loses it at once");

    yield(1);
    pid = reader(0);
    check(!lease(1));
    end(pid);
    check(lease(1));

    fact("a stranger that has the pid now does not read");

    yield(1);
    pid = reader(1);
    check(lease(1));
    end(pid);

    fact("who had the pid that is ours now is gone");

    check(lease(2));

    fact("who takes it while another one does is not the second to have it");

    yield(2);
    sooner = getppid();
    check(!lease(3));
    check(share->pid == getppid());

    fact("nor is who has lost it meanwhile");

    share->until = 0;
    check(lease(2));
    ngx_current_msec += TERM;
    sooner = getppid();
    check(!lease(2));
    check(share->pid == getppid());

    fact_done();
    unmake();
}


static void
facts_place(void)
{
    place_t  one = { 7, { 5, 9 } }, two = { 8, { 6, 1 } };

    make();

    fact("the one that reads says how far it was read, and no other");

    check(lease(1));
    place(2, &one);
    check(share->source == 0);
    place(1, &one);
    check(share->source == 7 && share->last.ms == 5 && share->last.seq == 9);
    place(2, &two);
    check(share->source == 7 && share->last.ms == 5 && share->last.seq == 9);
    place(1, &two);
    check(share->source == 8 && share->last.ms == 6 && share->last.seq == 1);

    fact_done();
    unmake();
}


static void
set(ngx_http_vibelock_bus_side_e side, ngx_http_vibelock_redis_e why)
{
    ngx_http_vibelock_bus_share_set(share, side, why, 0);
}


static ngx_int_t
news(ngx_http_vibelock_bus_side_e *side)
{
    return ngx_http_vibelock_bus_share_news(share,
                                            NGX_HTTP_VIBELOCK_BUS_SIDES, side);
}


static void
facts_news(void)
{
    ngx_err_t                     err;
    ngx_http_vibelock_bus_side_e  side;

    make();

    fact("a state comes with its errno");

    ngx_http_vibelock_bus_share_set(share, NGX_HTTP_VIBELOCK_BUS_READS,
                                    NGX_HTTP_VIBELOCK_REDIS_FAILED, 111);
    check(ngx_http_vibelock_bus_share_why(share, NGX_HTTP_VIBELOCK_BUS_READS,
                                          &err)
          == NGX_HTTP_VIBELOCK_REDIS_FAILED);
    check(err == 111);
    unmake();

    make();

    fact("what Redis said is told by who heard it");

    set(NGX_HTTP_VIBELOCK_BUS_READS, NGX_HTTP_VIBELOCK_REDIS_NOPERM);
    set(NGX_HTTP_VIBELOCK_BUS_PUBLISHES, NGX_HTTP_VIBELOCK_REDIS_ERROR);
    check(news(&side) == NGX_DONE);
    check(ngx_http_vibelock_bus_share_news(share,
                                           NGX_HTTP_VIBELOCK_BUS_PUBLISHES,
                                           &side)
          == NGX_DECLINED);
    check(side == NGX_HTTP_VIBELOCK_BUS_PUBLISHES);
    unmake();

    make();

    fact("nothing that was not tried yet is news");

    check(news(&side) == NGX_DONE);

    fact("what is away is told once");

    set(NGX_HTTP_VIBELOCK_BUS_PUBLISHES, NGX_HTTP_VIBELOCK_REDIS_CLOSED);
    check(news(&side) == NGX_DECLINED);
    check(side == NGX_HTTP_VIBELOCK_BUS_PUBLISHES);
    check(news(&side) == NGX_DONE);

    fact("it works again when both of its sides do");

    set(NGX_HTTP_VIBELOCK_BUS_PUBLISHES, NGX_HTTP_VIBELOCK_REDIS_WORKS);
    check(news(&side) == NGX_DONE);
    set(NGX_HTTP_VIBELOCK_BUS_READS, NGX_HTTP_VIBELOCK_REDIS_WORKS);
    check(news(&side) == NGX_OK);
    check(news(&side) == NGX_DONE);

    fact("and what is away once more within a minute is not told");

    set(NGX_HTTP_VIBELOCK_BUS_READS, NGX_HTTP_VIBELOCK_REDIS_TIMEOUT);
    check(news(&side) == NGX_DONE);
    set(NGX_HTTP_VIBELOCK_BUS_READS, NGX_HTTP_VIBELOCK_REDIS_WORKS);
    check(news(&side) == NGX_DONE);

    fact_done();
    unmake();
}


/* in a child that is killed after so many steps; 1 when it was */

static ngx_uint_t
killed_at(void (*run)(void *data), void *data, ngx_int_t step)
{
    int        status;
    ngx_pid_t  pid;

    pid = fork();

    if (pid == 0) {
        ngx_pid = getpid();
        ngx_http_vibelock_crash_after = -1;
        (void) lease(1);
        ngx_http_vibelock_crash_after = step;
        run(data);
        _exit(0);
    }

    (void) waitpid(pid, &status, 0);

    /* nginx's master frees the mutex of who died */

    *pool->mutex.lock = 0;

    return WIFSIGNALED(status);
}


static void
run_lease(void *data)
{
    yield(1);
    (void) lease(2);
}


static void
run_place(void *data)
{
    place(1, data);
}


static void
crash_lease(void)
{
    ngx_int_t  step;

    make();

    fact("who dies within a lease leaves it to the next one");

    for (step = 0; killed_at(run_lease, NULL, step); step++) {
        context("killed at step %d", (int) step);
        check(lease(3));
        yield(3);
    }

    check(step > 4);

    fact_done();
    unmake();
}


/*
 * A later start does no harm, but for an entry that is left out: of what was
 * read of another source nothing is known of this one.
 */

static ngx_uint_t
sound(place_t *from, place_t *to)
{
    if (share->source == 0) {
        return 1;
    }

    if (share->source == to->source) {
        return share->last.ms < to->last.ms
               || (share->last.ms == to->last.ms
                   && share->last.seq <= to->last.seq);
    }

    return share->source == from->source
           && share->last.ms == from->last.ms
           && share->last.seq == from->last.seq;
}


static void
crash_place(void)
{
    place_t    *from, *to;
    ngx_int_t   step;

    static place_t  places[] = {
        { 7, { 5, 9 } },
        { 7, { 5, 12 } },
        { 7, { 6, 0 } },
        { 8, { 9, 3 } },
        { 9, { 2, 4 } },
        { 0, { 0, 0 } }
    };

    fact("who dies within a place leaves out no entry");

    for (from = places; from[1].source; from++) {
        to = from + 1;
        step = 0;

        for ( ;; ) {
            make();
            check(lease(1));
            place(1, from);
            yield(1);

            context("from %d-%d to %d-%d, killed at step %d",
                    (int) from->last.ms, (int) from->last.seq,
                    (int) to->last.ms, (int) to->last.seq, (int) step);

            if (!killed_at(run_place, to, step)) {
                break;
            }

            check(sound(from, to));
            unmake();
            step++;
        }

        check(step > 4 && share->source == to->source);
        check(share->last.ms == to->last.ms
              && share->last.seq == to->last.seq);
        unmake();
    }

    fact_done();
}


int
main(void)
{
    ngx_pid = getpid();

    facts_lease();
    facts_place();
    facts_news();
    crash_lease();
    crash_place();

    printf("done\n");

    return 0;
}
