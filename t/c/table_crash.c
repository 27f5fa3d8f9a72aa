
/*
 * Copyright (C) the vibelock authors
 *
 * A worker is killed inside the mutex: at each step that the table marks for
 * that, and, where a process can be traced, after each single instruction.
 */


#include <sys/ptrace.h>

#include "table_test.h"


#define START   (10 * DAY + 33)

#define OTHER   3                           /* slots: a worker that lives, */
#define VICTIM  4                           /* the one that is killed, */
#define DEAD    5                           /* and one that was before */

#define IDS     100                         /* keys begin with a number */
#define NEW     90                          /* one that is not there before */


typedef struct {
    const char    *name;
    void         (*prepare)(zone_t *zone);
    void         (*run)(zone_t *zone);
    ngx_uint_t     rebuild;                 /* to be killed in that, too */
} scenario_t;


/* all locks, by the number in their keys; cell is NONE for one not there */

typedef struct {
    raw_t          raw[IDS];
    ngx_uint_t     twice;
} dump_t;


static void prepare(zone_t *zone, scenario_t *s);
static void stuff(zone_t *zone, ngx_uint_t expired, size_t len);
static void prepare_none(zone_t *zone);
static void prepare_full(zone_t *zone);
static void prepare_full_long(zone_t *zone);
static void prepare_full_overrun(zone_t *zone);
static void prepare_full_running(zone_t *zone);
static void prepare_days(zone_t *zone);
static void prepare_dead(zone_t *zone);
static void prepare_gone(zone_t *zone);
static void prepare_reap(zone_t *zone);

static void run_acquire(zone_t *zone);
static void run_acquire_long(zone_t *zone);
static void run_acquire_expired(zone_t *zone);
static void run_acquire_expired_long(zone_t *zone);
static void run_busy(zone_t *zone);
static void run_release(zone_t *zone);
static void run_release_long(zone_t *zone);
static void run_release_overrun(zone_t *zone);
static void run_release_expired(zone_t *zone);
static void run_keep(zone_t *zone);
static void run_keep_overrun(zone_t *zone);
static void run_keep_past(zone_t *zone);
static void run_break(zone_t *zone);
static void run_find_expired(zone_t *zone);
static void run_sweep(zone_t *zone);
static void run_search(zone_t *zone);
static void run_operation(zone_t *zone);
static void run_enter(zone_t *zone);
static void run_leave(zone_t *zone);
static void run_reap(zone_t *zone);
static void run_read(zone_t *zone);

static ngx_str_t key(ngx_uint_t id, size_t len);
static void take(zone_t *zone, ngx_uint_t id, size_t len, ngx_msec_t ttl,
    ngx_uint_t overrun);
static void dump(zone_t *zone, dump_t *d);
static void dump_add(raw_t *raw, void *data);
static ngx_uint_t same(raw_t *one, raw_t *two);
static ngx_uint_t either(raw_t *before, raw_t *after, raw_t *now);
static void outcome(zone_t *zone, scenario_t *s);
static ngx_pid_t kill_at(zone_t *zone, void (*run)(zone_t *zone),
    ngx_int_t step);
static void crash(zone_t *zone, scenario_t *s, ngx_uint_t thin);
static void crash_rebuild(zone_t *zone, scenario_t *s, ngx_uint_t thin);
static ngx_uint_t stepped(zone_t *zone, scenario_t *s,
    void (*run)(zone_t *zone), ngx_uint_t thin, ngx_uint_t rebuild);


static scenario_t  scenarios[] = {
    { "acquire", prepare_none, run_acquire, 0 },
    { "acquire with a long key", prepare_none, run_acquire_long, 1 },
    { "acquire over an expired lock", prepare_none, run_acquire_expired, 0 },
    { "acquire over an expired lock with a long key", prepare_none,
      run_acquire_expired_long, 0 },
    { "acquire in a full zone, reclaiming", prepare_full, run_acquire, 0 },
    { "acquire with a long key in a full zone, reclaiming", prepare_full_long,
      run_acquire_long, 1 },
    { "acquire in a full zone, past locks that overrun", prepare_full_overrun,
      run_acquire, 0 },
    { "acquire in a full zone in vain", prepare_full_running,
      run_acquire_long, 0 },
    { "acquire and find it busy", prepare_none, run_busy, 0 },
    { "release", prepare_none, run_release, 0 },
    { "release of a long key", prepare_none, run_release_long, 1 },
    { "release of a lock past its TTL", prepare_none, run_release_overrun, 0 },
    { "release of an expired lock", prepare_none, run_release_expired, 0 },
    { "keep", prepare_none, run_keep, 0 },
    { "keep of an overrun lock in its TTL", prepare_none, run_keep_overrun,
      0 },
    { "keep of an overrun lock past its TTL", prepare_none, run_keep_past, 1 },
    { "break", prepare_none, run_break, 0 },
    { "find of an expired lock", prepare_none, run_find_expired, 0 },
    { "sweep, with locks that move down the wheel", prepare_days, run_sweep,
      1 },
    { "search", prepare_dead, run_search, 0 },
    { "a new operation's name", prepare_none, run_operation, 1 },
    { "a new operation's name in a full zone, reclaiming", prepare_full,
      run_operation, 0 },
    { "a worker's start in a place that is taken", prepare_none, run_enter,
      0 },
    { "a worker's start after too many deaths", prepare_gone, run_enter, 0 },
    { "a worker's end", prepare_none, run_leave, 0 },
    { "a look for workers that are gone", prepare_reap, run_reap, 0 },
    { "scan, find, usage", prepare_none, run_read, 0 },
    { NULL, NULL, NULL, 0 }
};


static ngx_http_vibelock_lock_t  taken[IDS];
static ngx_pid_t                 stand_ins[2], gone;
static dump_t                    before, after;


void
table_crash(amount_t *amount)
{
    char         name[128];
    zone_t      *zone;
    scenario_t  *s;

    if (!steps_marked) {
        skip("killed at each step", "no steps are marked in this build");
        return;
    }

    stand_ins[0] = stand_in();
    stand_ins[1] = stand_in();
    gone = pid_gone();

    for (s = scenarios; s->name; s++) {
        (void) snprintf(name, sizeof(name), "killed at each step: %s",
                        s->name);
        fact(name);

        clock_set(START);
        zone = zone_create(6 * getpagesize(), 16);
        prepare(zone, s);

        crash(zone, s, amount->thin);

        if (s->rebuild) {
            (void) snprintf(name, sizeof(name),
                            "killed at each step of the rebuild after: %s",
                            s->name);
            fact(name);
            crash_rebuild(zone, s, amount->thin);
        }

        zone_destroy(zone);
    }

    stand_in_kill(stand_ins[0]);
    stand_in_kill(stand_ins[1]);
}


void
table_stepped(amount_t *amount)
{
    char         name[128];
    zone_t      *zone;
    ngx_uint_t   n;
    scenario_t  *s;

    if (!amount->tracing) {
        skip("killed after each instruction", "not traced here");
        return;
    }

    stand_ins[0] = stand_in();
    stand_ins[1] = stand_in();
    gone = pid_gone();

    for (s = scenarios; s->name; s++) {
        (void) snprintf(name, sizeof(name), "killed at each instruction: %s",
                        s->name);
        fact(name);

        clock_set(START);
        zone = zone_create(6 * getpagesize(), 16);
        prepare(zone, s);

        zone_restore(zone);
        n = stepped(zone, s, s->run, amount->thin, s->rebuild);

        zone_destroy(zone);

        if (n == 0) {
            skip(name, "processes cannot be traced here");
            break;
        }

        note("%lu changes", (unsigned long) n);
    }

    stand_in_kill(stand_ins[0]);
    stand_in_kill(stand_ins[1]);
}


/*
 * Every kind of lock there is, then what the scenario wants beside.  What
 * comes before and what after the operation is kept.
 */

static void
prepare(zone_t *zone, scenario_t *s)
{
    ngx_str_t  name;

    name = text("exec");
    check(ngx_http_vibelock_table_operation(zone->table, &name) == 0);

    become(OTHER, getpid());
    ngx_http_vibelock_table_enter(zone->table);
    become(VICTIM, stand_ins[0]);
    ngx_http_vibelock_table_enter(zone->table);

    /* 0 to 9 are the other's, 10 to 19 the victim's */

    become(OTHER, getpid());
    take(zone, 0, 36, 2 * DAY, 0);
    take(zone, 1, 255, 90000, 0);
    take(zone, 2, 36, 1000, 1);
    take(zone, 3, 200, 90000, 1);
    take(zone, 4, 36, 2000, 0);
    take(zone, 5, 255, 2000, 0);
    take(zone, 6, 36, 90000, 0);
    take(zone, 7, 36, 90000, 0);
    check(ngx_http_vibelock_table_keep(zone->table, &taken[7].handle)
          == NGX_OK);

    become(VICTIM, stand_ins[0]);
    take(zone, 10, 36, 2 * DAY, 0);
    take(zone, 11, 255, 90000, 0);
    take(zone, 12, 36, 1000, 1);
    take(zone, 13, 36, 90000, 1);
    take(zone, 14, 36, 2000, 0);
    take(zone, 15, 100, 90000, 0);
    check(ngx_http_vibelock_table_keep(zone->table, &taken[15].handle)
          == NGX_OK);

    clock_set(START + 1500);
    sweep(zone);

    /* one cell is free that was in use */

    check(ngx_http_vibelock_table_release(zone->table, &taken[6].handle)
          == NGX_OK);

    clock_set(START + 3000);

    s->prepare(zone);

    check_null(whole(zone->table));

    dump(zone, &before);
    check(before.twice == 0);

    zone_save(zone);

    become(VICTIM, stand_ins[0]);
    s->run(zone);
    check_null(whole(zone->table));

    dump(zone, &after);
    check(after.twice == 0);
}


static void
prepare_none(zone_t *zone)
{
    /* void */
}


/* fills the zone; "expired" of the locks are due, the rest stays for days */

static void
stuff(zone_t *zone, ngx_uint_t expired, size_t len)
{
    ngx_uint_t  id;

    become(OTHER, getpid());
    sweep(zone);

    for (id = 20; id < NEW; id++) {

        if (expired) {
            expired--;
            if (acquire(zone, key(id, len), 1, 0, NULL) == NGX_OK) {
                continue;
            }
        }

        (void) acquire(zone, key(id, 36), 3 * DAY, 0, NULL);
    }

    check(used(zone) == raw_slots(zone->table));
    clock_set(ngx_current_msec + 65);
}


static void
prepare_full(zone_t *zone)
{
    stuff(zone, 3, 36);
}


static void
prepare_full_long(zone_t *zone)
{
    stuff(zone, 2, 120);
}


static void
prepare_full_overrun(zone_t *zone)
{
    become(OTHER, getpid());

    take(zone, 60, 36, 10, 1);
    take(zone, 61, 36, 10, 1);
    take(zone, 62, 36, 10, 0);
    take(zone, 63, 36, 10, 1);

    stuff(zone, 0, 36);
    take(zone, 64, 36, 10, 0);
    clock_set(ngx_current_msec + 65);
}


static void
prepare_full_running(zone_t *zone)
{
    stuff(zone, 0, 36);
}


static void
prepare_days(zone_t *zone)
{
    ngx_uint_t  id;

    become(OTHER, getpid());

    for (id = 20; id < 30; id++) {
        take(zone, id, 36, (ngx_msec_t) 100 << id / 2, id & 1);
    }

    clock_set(START + 2 * DAY - 5000);
}


static void
prepare_dead(zone_t *zone)
{
    become(DEAD, gone);
    ngx_http_vibelock_table_enter(zone->table);

    take(zone, 20, 36, 90000, 0);
    take(zone, 21, 36, 90000, 1);
    take(zone, 22, 36, 1000, 1);
    take(zone, 23, 255, 90000, 0);
    take(zone, 24, 36, 1000, 0);

    clock_set(START + 8000);
    ngx_http_vibelock_table_leave(zone->table);
    clock_set(START + 8500);
}


/* so many are gone unfound that there is no room for another */

static void
prepare_gone(zone_t *zone)
{
    ngx_uint_t  i;

    become(DEAD, gone);

    for (i = 0; i < raw_gone; i++) {
        ngx_http_vibelock_table_enter(zone->table);

        if (i < 6) {
            take(zone, 20 + i, 36, 1000, i & 1);
        }

        clock_set(ngx_current_msec + 50 * (i & 3));

        ngx_http_vibelock_table_leave(zone->table);
    }
}


static void
prepare_reap(zone_t *zone)
{
    become(DEAD, gone);
    ngx_http_vibelock_table_enter(zone->table);

    take(zone, 20, 36, 90000, 0);
    take(zone, 21, 36, 1000, 1);

    clock_set(START + 8000);
}


static void
run_acquire(zone_t *zone)
{
    (void) acquire(zone, key(NEW, 36), 5000, 0, &taken[NEW]);
}


static void
run_acquire_long(zone_t *zone)
{
    (void) acquire(zone, key(NEW, 255), 5000, 1, &taken[NEW]);
}


static void
run_acquire_expired(zone_t *zone)
{
    (void) acquire(zone, key(4, 36), 5000, 0, &taken[NEW]);
}


static void
run_acquire_expired_long(zone_t *zone)
{
    (void) acquire(zone, key(5, 255), 5000, 0, &taken[NEW]);
}


static void
run_busy(zone_t *zone)
{
    (void) acquire(zone, key(0, 36), 5000, 0, &taken[NEW]);
}


static void
run_release(zone_t *zone)
{
    (void) ngx_http_vibelock_table_release(zone->table, &taken[10].handle);
}


static void
run_release_long(zone_t *zone)
{
    (void) ngx_http_vibelock_table_release(zone->table, &taken[11].handle);
}


static void
run_release_overrun(zone_t *zone)
{
    (void) ngx_http_vibelock_table_release(zone->table, &taken[12].handle);
}


static void
run_release_expired(zone_t *zone)
{
    (void) ngx_http_vibelock_table_release(zone->table, &taken[14].handle);
}


static void
run_keep(zone_t *zone)
{
    (void) ngx_http_vibelock_table_keep(zone->table, &taken[10].handle);
}


static void
run_keep_overrun(zone_t *zone)
{
    (void) ngx_http_vibelock_table_keep(zone->table, &taken[13].handle);
}


static void
run_keep_past(zone_t *zone)
{
    (void) ngx_http_vibelock_table_keep(zone->table, &taken[12].handle);
}


static void
run_break(zone_t *zone)
{
    (void) broken(zone, key(1, 255));
}


static void
run_find_expired(zone_t *zone)
{
    (void) held(zone, key(5, 255));
}


static void
run_sweep(zone_t *zone)
{
    sweep(zone);
}


static void
run_search(zone_t *zone)
{
    search(zone);
}


static void
run_operation(zone_t *zone)
{
    ngx_str_t  name;

    name = text("a-name-of-32-bytes-is-the-longest");
    name.len = 32;

    (void) ngx_http_vibelock_table_operation(zone->table, &name);
}


static void
run_enter(zone_t *zone)
{
    ngx_http_vibelock_table_enter(zone->table);
}


static void
run_leave(zone_t *zone)
{
    ngx_http_vibelock_table_leave(zone->table);
}


static void
run_reap(zone_t *zone)
{
    ngx_http_vibelock_table_reap(zone->table);
}


static void
run_read(zone_t *zone)
{
    (void) held(zone, key(0, 36));
    (void) held(zone, key(1, 255));
    (void) locks(zone);
}


static ngx_str_t
key(ngx_uint_t id, size_t len)
{
    static u_char  buf[NGX_HTTP_VIBELOCK_KEY_MAX];

    size_t         i;
    ngx_str_t      k;

    buf[0] = (u_char) id;

    for (i = 1; i < len; i++) {
        buf[i] = (u_char) (id + i * 3);
    }

    k.data = buf;
    k.len = len;

    return k;
}


static void
take(zone_t *zone, ngx_uint_t id, size_t len, ngx_msec_t ttl,
    ngx_uint_t overrun)
{
    (void) acquire(zone, key(id, len), ttl, overrun, &taken[id]);
}


static void
dump(zone_t *zone, dump_t *d)
{
    ngx_uint_t  id;

    d->twice = 0;

    for (id = 0; id < IDS; id++) {
        d->raw[id].cell = NGX_HTTP_VIBELOCK_NONE;
    }

    raw_each(zone->table, dump_add, d);
}


static void
dump_add(raw_t *raw, void *data)
{
    dump_t      *d = data;

    ngx_uint_t   id;
    ngx_str_t    k;

    id = raw->key[0];
    k = key(id, raw->len);

    if (id >= IDS || ngx_memcmp(k.data, raw->key, raw->len) != 0
        || d->raw[id].cell != NGX_HTTP_VIBELOCK_NONE)
    {
        d->twice++;
        return;
    }

    d->raw[id] = *raw;
}


static ngx_uint_t
same(raw_t *one, raw_t *two)
{
    if (one->cell == NGX_HTTP_VIBELOCK_NONE
        || two->cell == NGX_HTTP_VIBELOCK_NONE)
    {
        return one->cell == two->cell;
    }

    return ngx_memcmp(one, two, sizeof(raw_t)) == 0;
}


/*
 * A lock is as it was before the operation, or as it is after.  One that was
 * to become stuck may have its new time already, and no flag yet.
 */

static ngx_uint_t
either(raw_t *old, raw_t *new, raw_t *now)
{
    raw_t  mixed;

    if (same(old, now) || same(new, now)) {
        return 1;
    }

    if (old->cell == NGX_HTTP_VIBELOCK_NONE
        || new->cell == NGX_HTTP_VIBELOCK_NONE)
    {
        /* the new one of an acquisition over an expired one */

        return now->cell == NGX_HTTP_VIBELOCK_NONE && old->token != new->token;
    }

    if (old->token != new->token) {
        return now->cell == NGX_HTTP_VIBELOCK_NONE;
    }

    if (!(new->flags & raw_stuck) || (old->flags & raw_stuck)) {
        return 0;
    }

    mixed = *old;
    mixed.expires = new->expires;

    if (same(&mixed, now)) {
        return 1;
    }

    mixed.flags = new->flags | raw_orphan;

    return same(&mixed, now);
}


/*
 * The victim was killed, and the master has freed the mutex: what is there
 * for those who live?
 */

static void
outcome(zone_t *zone, scenario_t *s)
{
    dump_t                    now;
    uint64_t                  token;
    ngx_uint_t                id, i;
    ngx_msec_t                clock;
    ngx_http_vibelock_lock_t  lock;

    clock = ngx_current_msec;

    /* the next operation works, and the table is whole */

    become(OTHER, getpid());
    check(held(zone, key(2, 36)));
    check(!raw_changing(zone->table));
    check_null(whole(zone->table));

    /* no lock but the one operated on has changed */

    dump(zone, &now);
    check(now.twice == 0);

    token = 0;

    for (id = 0; id < IDS; id++) {

        if (now.raw[id].cell != NGX_HTTP_VIBELOCK_NONE) {
            token = ngx_max(token, now.raw[id].token);
        }

        if (!check(either(&before.raw[id], &after.raw[id], &now.raw[id]))) {
            note("lock %lu", (unsigned long) id);
        }
    }

    /* what runs is held */

    for (id = 0; id < IDS; id++) {
        if (now.raw[id].cell != NGX_HTTP_VIBELOCK_NONE
            && now.raw[id].expires > clock)
        {
            check(acquire(zone, key(id, now.raw[id].len), 1, 0, &lock)
                  == NGX_BUSY);
            check(lock.handle.token == now.raw[id].token);
        }
    }

    /* another worker comes in the victim's place, and finds its locks */

    become(VICTIM, stand_ins[1]);
    ngx_http_vibelock_table_enter(zone->table);
    check_null(whole(zone->table));

    become(OTHER, getpid());
    search(zone);
    check_null(whole(zone->table));

    if (now.raw[12].cell != NGX_HTTP_VIBELOCK_NONE) {
        check(acquire(zone, key(12, 36), 1, 0, &lock) == NGX_BUSY);
        check(lock.stuck && lock.rest <= 1000 && lock.rest > 0);

        clock_set(clock + 999);
        check(held(zone, key(12, 36)));
        clock_set(clock + 1000);
        check(!held(zone, key(12, 36)));
        clock_set(clock);
    }

    /* the same is done again */

    become(VICTIM, stand_ins[1]);
    s->run(zone);
    check_null(whole(zone->table));

    if (acquire(zone, key(95, 36), 1, 0, &lock) == NGX_OK) {
        check(lock.handle.token > token);
    }

    /* all that is not held by who lives expires */

    become(VICTIM, stand_ins[1]);
    ngx_http_vibelock_table_leave(zone->table);

    become(OTHER, getpid());
    ngx_http_vibelock_table_reap(zone->table);
    search(zone);
    clock_set(clock + 100 * DAY);
    sweep(zone);
    check_null(whole(zone->table));

    dump(zone, &now);

    for (id = 0; id < IDS; id++) {
        if (now.raw[id].cell != NGX_HTTP_VIBELOCK_NONE) {
            check(now.raw[id].slot == OTHER);
            check(broken(zone, key(id, now.raw[id].len)));
        }
    }

    /* and no cell is lost */

    i = used(zone);
    check(locks(zone) == 0);
    check(i == 1 || i == 2);
    check_null(whole(zone->table));

    clock_set(clock);
}


/* 0: it was not killed, it came to its end */

static ngx_pid_t
kill_at(zone_t *zone, void (*run)(zone_t *zone), ngx_int_t step)
{
    int        status;
    ngx_pid_t  pid;

    pid = fork();

    if (pid == -1) {
        abort();
    }

    if (pid == 0) {
        become(VICTIM, getpid());
        ngx_http_vibelock_crash_after = step;
        run(zone);
        _exit(0);
    }

    if (waitpid(pid, &status, 0) != pid) {
        abort();
    }

    if (WIFEXITED(status)) {
        check(WEXITSTATUS(status) == 0);
        return 0;
    }

    check(WTERMSIG(status) == SIGKILL);

    return pid;
}


static void
crash(zone_t *zone, scenario_t *s, ngx_uint_t thin)
{
    ngx_int_t  step;
    ngx_pid_t  pid;

    for (step = 0; /* void */ ; step += thin) {
        context("step %ld", (long) step);

        zone_restore(zone);

        pid = kill_at(zone, s->run, step);
        if (pid == 0) {
            break;
        }

        check(zone_force_unlock(zone, pid));

        outcome(zone, s);
    }

    check(step > 1 || thin > 1);

    zone_restore(zone);
}


/* the next one, who is to rebuild the table, is killed too */

static void
crash_rebuild(zone_t *zone, scenario_t *s, ngx_uint_t thin)
{
    u_char      *saved;
    ngx_int_t    step, again;
    ngx_pid_t    pid;
    ngx_uint_t   n;

    saved = malloc(zone->size);
    if (saved == NULL) {
        abort();
    }

    n = 0;

    for (step = 0; /* void */ ; step += thin) {

        zone_restore(zone);

        pid = kill_at(zone, s->run, step);
        if (pid == 0) {
            break;
        }

        check(zone_force_unlock(zone, pid));

        if (!raw_changing(zone->table)) {
            continue;
        }

        /* the many steps of a sweep leave much the same */

        if (step > 40 && step % 37) {
            continue;
        }

        ngx_memcpy(saved, zone->pool, zone->size);

        for (again = 0; /* void */ ; again += thin) {
            context("step %ld, then %ld", (long) step, (long) again);

            ngx_memcpy(zone->pool, saved, zone->size);

            pid = kill_at(zone, run_busy, again);
            if (pid == 0) {
                break;
            }

            check(zone_force_unlock(zone, pid));
            outcome(zone, s);
            n++;
        }
    }

    check(n > 10 || thin > 1);

    free(saved);
    zone_restore(zone);
}


/*
 * Lets a process run through an operation, an instruction at a time.  Whenever
 * one has changed something in the zone it could have been killed there: what
 * comes of that is tried out, then the zone is put back for the next one.
 * The zone stays as the operation leaves it.  Returns the number of tries.
 */

static ngx_uint_t
stepped(zone_t *zone, scenario_t *s, void (*run)(zone_t *zone),
    ngx_uint_t thin, ngx_uint_t rebuild)
{
    int         status;
    u_char     *saved;
    ngx_pid_t   pid;
    ngx_uint_t  n, more, locked;

    saved = malloc(zone->size);
    if (saved == NULL) {
        abort();
    }

    ngx_memcpy(saved, zone->pool, zone->size);

    pid = fork();

    if (pid == -1) {
        abort();
    }

    if (pid == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) == -1) {
            _exit(1);
        }

        become(VICTIM, getpid());
        test_stop_locked = 1;
        run(zone);
        _exit(0);
    }

    n = 0;
    more = 0;

    for ( ;; ) {

        if (waitpid(pid, &status, 0) != pid) {
            abort();
        }

        if (!WIFSTOPPED(status)) {
            break;
        }

        locked = (*zone->pool->mutex.lock == (ngx_atomic_uint_t) pid);

        if (locked && !zone_same(zone, saved)) {

            ngx_memcpy(saved, zone->pool, zone->size);

            if (n++ % thin == 0) {
                context("change %lu", (unsigned long) n);
                check(zone_force_unlock(zone, pid));
                outcome(zone, s);
                ngx_memcpy(zone->pool, saved, zone->size);
            }

            /* now and then the next one, who rebuilds, is killed too */

            if (rebuild && raw_changing(zone->table)
                && (n < 50 ? n % 8 == 3 : n % 97 == 3))
            {
                check(zone_force_unlock(zone, pid));
                more += stepped(zone, s, run_busy, thin, 0);
                check_null(whole(zone->table));
                ngx_memcpy(zone->pool, saved, zone->size);
            }
        }

        if (ptrace(locked ? PTRACE_SINGLESTEP : PTRACE_CONT, pid, NULL, NULL)
            == -1)
        {
            check(!"ptrace() failed");
            (void) kill(pid, SIGKILL);
        }
    }

    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        n = 0;
    }

    check(!rebuild || more || n == 0);

    free(saved);

    return n + more;
}
