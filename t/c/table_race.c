
/*
 * Copyright (C) the vibelock authors
 *
 * Processes at one zone at the same time, with a real mutex and a real clock:
 * no key is held by two.  Then the same, and one of them is killed every few
 * milliseconds, wherever it is.
 */


#include "table_test.h"


#define PROCESSES  3
#define KEYS       40


/* shared by all */

typedef struct {
    ngx_atomic_t    go;
    ngx_atomic_t    marks[KEYS];            /* who holds it, 0: nobody */
    ngx_atomic_t    violations;
    ngx_atomic_t    operations[PROCESSES];
} shared_t;


typedef struct {
    ngx_uint_t                    held;
    ngx_http_vibelock_handle_t    handle;
} mine_t;


static ngx_pid_t race_start(zone_t *zone, shared_t *shared, ngx_uint_t process,
    ngx_uint_t operations, uint64_t seed);
static void race_run(zone_t *zone, shared_t *shared, ngx_uint_t process,
    ngx_uint_t operations);
static void race_step(zone_t *zone, shared_t *shared, ngx_uint_t process,
    mine_t *mine);
static void race_end(zone_t *zone, shared_t *shared);
static ngx_str_t race_key(ngx_uint_t n);
static ngx_uint_t may_short(ngx_http_vibelock_lock_t *lock, void *data);
static ngx_uint_t may_stuck(ngx_http_vibelock_lock_t *lock, void *data);


/* locks of an owner are short ones, that anybody may break */
static u_char  owner[NGX_HTTP_VIBELOCK_OWNER_LEN];


void
table_race(amount_t *amount)
{
    int                        status;
    double                     began;
    zone_t                    *zone;
    shared_t                  *shared;
    ngx_pid_t                  pids[PROCESSES];
    ngx_str_t                  key;
    ngx_uint_t                 i, k, n, kills, forced, left;
    ngx_http_vibelock_lock_t   lock;
    ngx_http_vibelock_usage_t  usage;

    note("seed=%lu", (unsigned long) amount->seed);

    shared = mmap(NULL, sizeof(shared_t), PROT_READ|PROT_WRITE,
                  MAP_ANON|MAP_SHARED, -1, 0);
    if (shared == MAP_FAILED) {
        abort();
    }

    fact("processes at one zone: no key is held by two at once");

    clock_real();
    zone = zone_worker(7);
    began = seconds();

    for (i = 0; i < PROCESSES; i++) {
        pids[i] = race_start(zone, shared, i, amount->operations / 4,
                             amount->seed + i);
    }

    shared->go = 1;

    for (i = 0; i < PROCESSES; i++) {
        check(waitpid(pids[i], &status, 0) == pids[i]);
        check(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }

    check(shared->violations == 0);

    for (i = 0, n = 0; i < PROCESSES; i++) {
        n += shared->operations[i];
    }

    note("%lu operations in %.2f s", (unsigned long) n, seconds() - began);

    check_null(whole(zone->table));
    ngx_http_vibelock_table_usage(zone->table, &usage);
    check(usage.rebuilds == 0);

    race_end(zone, shared);

    fact("... nor when they are killed, wherever they are");

    ngx_memzero(shared, sizeof(shared_t));

    clock_real();
    zone = zone_worker(7);

    for (i = 0; i < PROCESSES; i++) {
        pids[i] = race_start(zone, shared, i, (ngx_uint_t) -1,
                             amount->seed + 10 + i);
    }

    shared->go = 1;
    kills = ngx_min(amount->operations / 2000, 500);
    forced = 0;
    left = 0;

    for (n = 0; n < kills; n++) {
        (void) usleep(1000 + random_below(4000));

        i = random_below(PROCESSES);

        (void) kill(pids[i], SIGKILL);
        check(waitpid(pids[i], &status, 0) == pids[i]);
        check(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);

        /* as nginx's master does */

        forced += zone_force_unlock(zone, pids[i]);
        left += raw_changing(zone->table);

        /* what it did is over; only then may its locks be broken */

        for (k = 0; k < KEYS; k++) {
            (void) ngx_atomic_cmp_set(&shared->marks[k], i + 1, 0);
        }

        pids[i] = race_start(zone, shared, i, (ngx_uint_t) -1,
                             random_next());

        clock_real();

        for (k = 0; k < KEYS; k++) {
            key = race_key(k);
            (void) ngx_http_vibelock_table_break(zone->table, &key, may_stuck,
                                                 NULL, &lock);
        }
    }

    for (i = 0; i < PROCESSES; i++) {
        (void) kill(pids[i], SIGKILL);
        (void) waitpid(pids[i], NULL, 0);
        (void) zone_force_unlock(zone, pids[i]);
    }

    check(shared->violations == 0);

    (void) locks(zone);
    check_null(whole(zone->table));

    ngx_http_vibelock_table_usage(zone->table, &usage);

    note("%lu kills, %lu of them with the mutex, %lu in the middle of a "
         "change, %lu rebuilds", (unsigned long) kills, (unsigned long) forced,
         (unsigned long) left, (unsigned long) usage.rebuilds);

    race_end(zone, shared);

    (void) munmap(shared, sizeof(shared_t));
}


static ngx_pid_t
race_start(zone_t *zone, shared_t *shared, ngx_uint_t process,
    ngx_uint_t operations, uint64_t seed)
{
    ngx_pid_t  pid;

    pid = fork();

    if (pid == -1) {
        abort();
    }

    if (pid == 0) {
        random_seed(seed);
        become(10 + process, getpid());
        clock_real();

        ngx_http_vibelock_table_enter(zone->table);

        while (!shared->go) {
            (void) sched_yield();
        }

        race_run(zone, shared, process, operations);
        _exit(0);
    }

    return pid;
}


static void
race_run(zone_t *zone, shared_t *shared, ngx_uint_t process,
    ngx_uint_t operations)
{
    mine_t      mine[KEYS];
    ngx_uint_t  i;

    ngx_memzero(mine, sizeof(mine));

    for (i = 0; i < operations; i++) {

        if ((i & 15) == 0) {
            clock_real();
        }

        race_step(zone, shared, process, mine);

        shared->operations[process]++;
    }

    for (i = 0; i < KEYS; i++) {

        if (!mine[i].held) {
            continue;
        }

        if (!ngx_atomic_cmp_set(&shared->marks[i], process + 1, 0)
            || ngx_http_vibelock_table_release(zone->table, &mine[i].handle)
               != NGX_OK)
        {
            (void) ngx_atomic_fetch_add(&shared->violations, 1);
        }
    }

    ngx_http_vibelock_table_leave(zone->table);
}


static void
race_step(zone_t *zone, shared_t *shared, ngx_uint_t process, mine_t *mine)
{
    ngx_str_t                  key;
    ngx_int_t                  rc;
    ngx_uint_t                 n, r;
    ngx_http_vibelock_lock_t   lock;
    ngx_http_vibelock_claim_t  claim;

    n = random_below(KEYS);
    r = random_below(100);
    key = race_key(n);

    if (mine[n].held) {

        if (r < 30) {
            return;
        }

        if (r < 40) {
            if (ngx_http_vibelock_table_find(zone->table, &key, &lock)
                != NGX_OK
                || lock.handle.token != mine[n].handle.token)
            {
                (void) ngx_atomic_fetch_add(&shared->violations, 1);
            }

            return;
        }

        mine[n].held = 0;

        if (!ngx_atomic_cmp_set(&shared->marks[n], process + 1, 0)
            || ngx_http_vibelock_table_release(zone->table, &mine[n].handle)
               != NGX_OK)
        {
            (void) ngx_atomic_fetch_add(&shared->violations, 1);
        }

        return;
    }

    claim.key = key;
    claim.operation = 0;

    if (r < 60) {
        claim.owner = NULL;
        claim.ttl = 30 * DAY;
        claim.overrun = r & 1;

        rc = ngx_http_vibelock_table_acquire(zone->table, &claim, &lock);

        if (rc == NGX_OK) {
            mine[n].held = 1;
            mine[n].handle = lock.handle;

            if (!ngx_atomic_cmp_set(&shared->marks[n], 0, process + 1)) {
                (void) ngx_atomic_fetch_add(&shared->violations, 1);
            }
        }

        return;
    }

    if (r < 80) {

        /* a short one, that expires, is kept, or broken */

        claim.owner = owner;
        claim.ttl = 1 + random_below(5);
        claim.overrun = r & 1;

        rc = ngx_http_vibelock_table_acquire(zone->table, &claim, &lock);

        if (rc == NGX_OK && (claim.overrun || r < 70)) {
            (void) ngx_http_vibelock_table_keep(zone->table, &lock.handle);
        }

        return;
    }

    if (r < 90) {
        (void) ngx_http_vibelock_table_break(zone->table, &key, may_short,
                                             NULL, &lock);
        return;
    }

    if (r < 95) {
        (void) search(zone);
        return;
    }

    (void) ngx_http_vibelock_table_sweep(zone->table);
}


/* all can be given back */

static void
race_end(zone_t *zone, shared_t *shared)
{
    ngx_str_t                  key;
    ngx_uint_t                 i;
    ngx_http_vibelock_lock_t   lock;

    become(3, getpid());
    clock_real();
    ngx_http_vibelock_table_reap(zone->table);
    search(zone);
    check_null(whole(zone->table));

    for (i = 0; i < KEYS; i++) {
        key = race_key(i);
        (void) ngx_http_vibelock_table_break(zone->table, &key, may_stuck,
                                             NULL, &lock);
    }

    clock_set(ngx_current_msec + 1000);
    sweep(zone);

    check(locks(zone) == 0);
    check(used(zone) == 1);
    check_null(whole(zone->table));

    zone_destroy(zone);
}


/* some of them take several cells */

static ngx_str_t
race_key(ngx_uint_t n)
{
    static u_char  buf[NGX_HTTP_VIBELOCK_KEY_MAX];

    ngx_str_t      key;

    ngx_memset(buf, 'k', sizeof(buf));
    buf[0] = (u_char) n;

    key.data = buf;
    key.len = (n % 4) ? 36 : 64 * (n % 3) + 100;

    return key;
}


static ngx_uint_t
may_short(ngx_http_vibelock_lock_t *lock, void *data)
{
    return lock->owned;
}


static ngx_uint_t
may_stuck(ngx_http_vibelock_lock_t *lock, void *data)
{
    return lock->stuck && !lock->owned;
}
