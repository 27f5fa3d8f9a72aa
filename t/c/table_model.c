
/*
 * Copyright (C) the vibelock authors
 *
 * Random operations, of several workers, against a model that is as simple as
 * can be: what is known of each key, in a plain array.
 */


#include "table_test.h"


#define WORKERS     4
#define OPERATIONS  5
#define OWNERS      3

/* what the table marks as steps when it frees or moves a lock, at most */
#define STEPS       7


/* a key, and the lock of it that was taken last */

typedef struct {
    ngx_http_vibelock_handle_t   handle;
    ngx_msec_t                   acquired;
    ngx_msec_t                   expires;
    uint8_t                      held;       /* not known to be gone */
    uint8_t                      overrun;
    uint8_t                      stuck;
    uint8_t                      orphan;     /* search() has to visit it */
    uint8_t                      worker;
    uint8_t                      owner;      /* 0: none */
    uint8_t                      operation;
    uint8_t                      seen;
} item_t;


typedef struct {
    ngx_pid_t                    pid;
    ngx_msec_t                   behind;     /* its clock */
} worker_t;


typedef struct {
    zone_t                      *zone;
    ngx_uint_t                   check;      /* every so often all of it */
    ngx_uint_t                   keys;
    ngx_str_t                  (*key)(ngx_uint_t n);
    ngx_uint_t                   long_jumps;
    ngx_uint_t                   deaths;

    item_t                      *items;
    worker_t                     workers[WORKERS];
    ngx_uint_t                   worker;     /* who we are */
    ngx_msec_t                   now;
    ngx_msec_t                   latest;     /* any clock said */
    uint64_t                     token;
    ngx_uint_t                   names;
    ngx_uint_t                   searching;
    ngx_uint_t                   visits;
    uint32_t                     operation[OPERATIONS];
    ngx_uint_t                   count[16];
} model_t;


typedef void (*act_pt)(model_t *m);
typedef ngx_int_t (*end_pt)(ngx_http_vibelock_table_t *table,
    ngx_http_vibelock_handle_t *handle);


static void million_random(amount_t *amount);
static void million_cascade(amount_t *amount);
static void million_full(amount_t *amount);
static ngx_int_t sweep_once(zone_t *zone, ngx_uint_t *steps);

static ngx_str_t key_odd(ngx_uint_t n);
static ngx_str_t key_uuid(ngx_uint_t n);

static void model_start(model_t *m, size_t size);
static void model_end(model_t *m);
static void model_run(model_t *m, ngx_uint_t operations);
static ngx_msec_t model_ttl(void);
static void model_clock(model_t *m);
static void model_acquire(model_t *m, ngx_uint_t n, ngx_msec_t ttl,
    ngx_uint_t overrun);
static void act_acquire(model_t *m);
static void act_again(model_t *m);
static item_t *act_end(model_t *m, end_pt end, ngx_uint_t count);
static void act_release(model_t *m);
static void act_keep(model_t *m);
static void act_find(model_t *m);
static void act_break(model_t *m);
static void act_sweep(model_t *m);
static void act_clock(model_t *m);
static void act_die(model_t *m);
static void act_search(model_t *m);
static void settle(model_t *m);

static void become_worker(model_t *m, ngx_uint_t worker);
static void died(model_t *m, ngx_uint_t worker);
static ngx_msec_t deadline(item_t *item);
static int expected(model_t *m, item_t *item);
static ngx_uint_t same(model_t *m, item_t *item,
    ngx_http_vibelock_lock_t *lock);
static ngx_uint_t occupied(model_t *m);
static ngx_uint_t may(ngx_http_vibelock_lock_t *lock, void *data);
static void visit_orphan(ngx_http_vibelock_lock_t *lock, ngx_str_t *key,
    void *data);
static void visit_scan(ngx_http_vibelock_lock_t *lock, ngx_str_t *key,
    void *data);
static item_t *item_of(model_t *m, ngx_http_vibelock_lock_t *lock,
    ngx_str_t *key);


static u_char  owners[OWNERS + 1][NGX_HTTP_VIBELOCK_OWNER_LEN];


/* what is done how often, in thousandths; the rest of it is acquisition */

static struct {
    ngx_uint_t    weight;
    act_pt        act;
    const char   *name;
} acts[] = {
    { 200, act_release, "release" },
    { 80, act_keep, "keep" },
    { 100, act_find, "find" },
    { 40, act_break, "break" },
    { 50, act_sweep, "sweep" },
    { 120, act_clock, "clock" },
    { 30, act_search, "search" },
    { 80, act_again, "again" },
    { 1000, act_acquire, "acquire" }
};


void
table_model(amount_t *amount)
{
    model_t  m;

    note("seed=%lu", (unsigned long) amount->seed);

    fact("a small zone, often full, does what a simple model does");

    ngx_memzero(&m, sizeof(model_t));
    m.check = 50;
    m.deaths = 300;
    m.keys = 150;
    m.key = key_odd;
    m.long_jumps = 1;

    model_start(&m, 8 * getpagesize());
    model_run(&m, amount->operations / 2);
    model_end(&m);

    fact("... and so does one in the pace of seconds, with room");

    ngx_memzero(&m, sizeof(model_t));
    m.check = 200;
    m.deaths = 300;
    m.keys = 600;
    m.key = key_odd;

    model_start(&m, 64 * getpagesize());
    model_run(&m, amount->operations / 2);
    model_end(&m);
}


void
table_million(amount_t *amount)
{
    if (!steps_marked) {
        skip("a million locks", "no steps are marked in this build");
        return;
    }

    note("seed=%lu", (unsigned long) amount->seed);

    million_random(amount);
    million_cascade(amount);
    million_full(amount);
}


static void
million_random(amount_t *amount)
{
    double                     began;
    model_t                    m;
    item_t                    *item;
    ngx_uint_t                 i, n, calls, before, steps, most;
    ngx_http_vibelock_usage_t  usage;

    fact("locks with keys of 36 bytes fit in 144 bytes each, all counted");

    ngx_memzero(&m, sizeof(model_t));
    m.check = amount->operations / 2 + 1;
    m.deaths = 40;
    m.keys = amount->locks + amount->locks / 20;
    m.key = key_uuid;
    m.long_jumps = 1;

    model_start(&m, amount->locks * 144);

    began = seconds();

    for (i = 0; i < amount->locks; i++) {
        model_acquire(&m, i, 1 + random_below(DAY), 0);
    }

    note("%lu locks in %.2f s", (unsigned long) amount->locks,
         seconds() - began);

    check(locks(m.zone) == amount->locks);
    check_null(whole(m.zone->table));

    fact("random operations on them do what a simple model does");

    began = seconds();
    model_run(&m, amount->operations);
    note("%lu operations in %.2f s", (unsigned long) amount->operations,
         seconds() - began);

    fact("all of them expire, and are swept in small steps");

    settle(&m);

    for (i = 0; i < amount->locks; i++) {
        if (!expected(&m, &m.items[i])) {
            model_acquire(&m, i, 1 + random_below(DAY), 0);
        }
    }

    for (i = 0; i < m.keys; i++) {
        item = &m.items[i];

        if (expected(&m, item) && deadline(item) == (ngx_msec_t) -1) {
            check(ngx_http_vibelock_table_keep(m.zone->table, &item->handle)
                  == NGX_OK);
        }
    }

    ngx_http_vibelock_table_usage(m.zone->table, &usage);
    before = usage.expired;
    n = usage.locks;

    check(n >= amount->locks);

    m.now += 61 * DAY;
    become_worker(&m, 0);

    began = seconds();
    calls = 0;
    most = 0;

    while (sweep_once(m.zone, &steps) == NGX_AGAIN) {

        ngx_http_vibelock_table_usage(m.zone->table, &usage);

        check(usage.expired - before <= raw_step);
        before = usage.expired;

        most = ngx_max(most, steps);
        calls++;
    }

    note("%lu calls in %.3f s, at most %lu steps in one",
         (unsigned long) calls, seconds() - began, (unsigned long) most);

    check(locks(m.zone) == 0);
    check(used(m.zone) == m.names);
    check(calls >= n / raw_step);
    check(calls <= n / raw_step + 1);
    check(most <= raw_step * STEPS + 16);
    check_null(whole(m.zone->table));

    model_end(&m);
}


static void
million_cascade(amount_t *amount)
{
    double        began;
    model_t       m;
    ngx_int_t     rc;
    ngx_pid_t     pid;
    ngx_uint_t    i, calls, steps, most;

    fact("a sweep in which all locks move down a level is in small steps too");

    ngx_memzero(&m, sizeof(model_t));
    m.keys = amount->locks;
    m.key = key_uuid;

    model_start(&m, amount->locks * 144);

    for (i = 0; i < amount->locks; i++) {
        model_acquire(&m, i, 29 * DAY + random_below(1000), 0);
    }

    m.now += 29 * DAY - 5000;
    become_worker(&m, 0);

    began = seconds();
    most = 0;
    calls = 0;

    do {
        rc = sweep_once(m.zone, &steps);
        most = ngx_max(most, steps);
        calls++;

    } while (rc == NGX_AGAIN);

    note("%lu calls in %.3f s, at most %lu steps in one",
         (unsigned long) calls, seconds() - began, (unsigned long) most);

    check(locks(m.zone) == amount->locks);
    check(most <= raw_step * STEPS + 16);
    check(calls >= amount->locks / raw_step);
    check(calls <= amount->locks / raw_step * 6 + 1);
    check_null(whole(m.zone->table));

    fact("a table of that size is rebuilt");

    m.now += 6000;
    become_worker(&m, 0);

    pid = fork();

    if (pid == 0) {
        ngx_pid = getpid();
        ngx_http_vibelock_crash_after = 12;
        sweep(m.zone);
        _exit(0);
    }

    (void) waitpid(pid, NULL, 0);

    check(zone_force_unlock(m.zone, pid));
    check(raw_changing(m.zone->table));

    began = seconds();
    check(locks(m.zone) >= amount->locks - raw_step);
    note("rebuilt in %.3f s", seconds() - began);

    check_null(whole(m.zone->table));

    model_end(&m);
}


static void
million_full(amount_t *amount)
{
    double       began, longest;
    model_t      m;
    ngx_str_t    key;
    ngx_uint_t   i, n, most;

    fact("an acquisition in a full zone does not go through all of it");

    ngx_memzero(&m, sizeof(model_t));
    m.keys = raw_full * 10;
    m.key = key_uuid;

    model_start(&m, m.keys * 136);

    n = 0;

    while (acquire(m.zone, m.key(n), 29 * DAY + random_below(100000), 0, NULL)
           == NGX_OK)
    {
        n++;
    }

    m.now += 29 * DAY - 1;
    become_worker(&m, 0);

    key = text("one too many");
    longest = 0;
    most = 0;

    for (i = 0; i < 30; i++) {
        began = seconds();
        ngx_http_vibelock_crash_after = NGX_MAX_INT_T_VALUE;

        check(acquire(m.zone, key, 1000, 0, NULL) == NGX_DECLINED);

        most = ngx_max(most, (ngx_uint_t) NGX_MAX_INT_T_VALUE
                             - ngx_http_vibelock_crash_after);
        ngx_http_vibelock_crash_after = -1;
        longest = ngx_max(longest, seconds() - began);
    }

    note("at most %.6f s and %lu steps", longest, (unsigned long) most);

    check(most > raw_full);
    check(most <= raw_full * STEPS + 16);
    check(locks(m.zone) == n);
    check_null(whole(m.zone->table));

    model_end(&m);

    fact("one that finds all of it expired takes the first of it");

    model_start(&m, m.keys * 136);

    for (i = 0; i < n; i++) {
        check(acquire(m.zone, m.key(i), 29 * DAY + random_below(100000), 0,
                      NULL)
              == NGX_OK);
    }

    check(acquire(m.zone, key, 1000, 0, NULL) == NGX_DECLINED);

    m.now += 30 * DAY;
    become_worker(&m, 0);

    check(acquire(m.zone, key, 1000, 0, NULL) == NGX_OK);
    check(locks(m.zone) == n);
    check_null(whole(m.zone->table));

    model_end(&m);
}


/* one call, and how many steps it took that the table marks */

static ngx_int_t
sweep_once(zone_t *zone, ngx_uint_t *steps)
{
    ngx_int_t  rc;

    ngx_http_vibelock_crash_after = NGX_MAX_INT_T_VALUE;

    rc = ngx_http_vibelock_table_sweep(zone->table);

    *steps = NGX_MAX_INT_T_VALUE - ngx_http_vibelock_crash_after;
    ngx_http_vibelock_crash_after = -1;

    return rc;
}


/* keys of any length and byte: the number is in them but for those of 1 */

static ngx_str_t
key_odd(ngx_uint_t n)
{
    static u_char  buf[NGX_HTTP_VIBELOCK_KEY_MAX];
    static size_t  lens[] = { 1, 36, 37, 36, 156, 157, 255, 9 };

    size_t         i;
    ngx_str_t      key;

    key.data = buf;
    key.len = lens[n % 8];

    for (i = 0; i < key.len; i++) {
        buf[i] = (u_char) (n * 31 + i * 7);
    }

    if (key.len == 1) {
        buf[0] = (u_char) (n / 8);

    } else {
        buf[key.len - 1] = (u_char) n;
        buf[key.len - 2] = (u_char) (n >> 8);
    }

    return key;
}


static ngx_str_t
key_uuid(ngx_uint_t n)
{
    static u_char  buf[64];

    ngx_str_t      key;

    key.data = buf;
    key.len = sprintf((char *) buf, "%08lx-284c-47fa-8462-%012lx",
                      (unsigned long) n,
                      (unsigned long) (n * 2654435761UL & 0xffffffffffff));

    return key;
}


static void
model_start(model_t *m, size_t size)
{
    u_char      name[8];
    ngx_str_t   s;
    ngx_uint_t  i;

    m->now = 3 * DAY + random_below(30 * DAY);
    m->latest = m->now;
    clock_set(m->now);

    m->zone = zone_create(size, 0);
    m->items = calloc(m->keys, sizeof(item_t));

    if (m->zone->table == NULL || m->items == NULL) {
        abort();
    }

    for (i = 0; i <= OWNERS; i++) {
        ngx_memset(owners[i], 'a' + i, NGX_HTTP_VIBELOCK_OWNER_LEN);
    }

    for (i = 0; i < OPERATIONS; i++) {
        s.data = name;
        s.len = sprintf((char *) name, "op%.*s", (int) i, "-----");
        m->operation[i] = ngx_http_vibelock_table_operation(m->zone->table,
                                                            &s);
    }

    m->names = OPERATIONS;

    for (i = 0; i < WORKERS; i++) {
        m->workers[i].pid = stand_in();
        m->workers[i].behind = i * 3;

        become_worker(m, i);
        ngx_http_vibelock_table_enter(m->zone->table);
    }

    become_worker(m, 0);
}


static void
model_end(model_t *m)
{
    ngx_uint_t  i;

    for (i = 0; i < WORKERS; i++) {
        stand_in_kill(m->workers[i].pid);
    }

    zone_destroy(m->zone);
    free(m->items);
}


static void
model_run(model_t *m, ngx_uint_t operations)
{
    ngx_uint_t  i, j, r, n, settled;

    n = sizeof(acts) / sizeof(acts[0]);
    settled = 0;

    for (i = 0; i < operations; i++) {

        become_worker(m, random_below(WORKERS));

        if (random_below(operations / m->deaths + 1) == 0) {
            act_die(m);
        }

        r = random_below(1000);

        for (j = 0; j < n - 1 && r >= acts[j].weight; j++) {
            r -= acts[j].weight;
        }

        context("operation %lu, %s", (unsigned long) i, acts[j].name);

        acts[j].act(m);

        if (m->check < 1000 && i % m->check == 0) {
            check_null(whole(m->zone->table));
        }

        if (i - settled >= m->check && random_below(4) == 0) {
            settle(m);
            settled = i;
        }

        if (fact_failed()) {
            return;
        }
    }

    context("at the end");
    settle(m);

    note("acquired %lu, busy %lu, full %lu, released %lu, kept %lu, broken "
         "%lu, lost %lu, deaths %lu, visits %lu, unsure %lu",
         (unsigned long) m->count[0], (unsigned long) m->count[1],
         (unsigned long) m->count[2], (unsigned long) m->count[3],
         (unsigned long) m->count[4], (unsigned long) m->count[5],
         (unsigned long) m->count[6], (unsigned long) m->count[7],
         (unsigned long) m->visits, (unsigned long) m->count[8]);
}


static ngx_msec_t
model_ttl(void)
{
    switch (random_below(6)) {
    case 0:
        return 1 + random_below(10);
    case 1:
        return 1 + random_below(200);
    case 2:
        return 1 + random_below(10000);
    case 3:
        return 1 + random_below(900000);
    case 4:
        return 1 + random_below(DAY);
    default:
        return 1 + random_below(30 * DAY);
    }
}


static void
model_clock(model_t *m)
{
    ngx_uint_t  r;

    r = random_below(1000);

    if (r < 700) {
        m->now += random_below(20);

    } else if (r < 900) {
        m->now += random_below(1000);

    } else if (r < 990 || !m->long_jumps) {
        m->now += random_below(10000);

    } else if (r < 998) {
        m->now += random_below(900000);

    } else if (m->keys < 10000 || random_below(1000) == 0) {
        m->now += random_below(3 * DAY);
    }
}


static void
model_acquire(model_t *m, ngx_uint_t n, ngx_msec_t ttl, ngx_uint_t overrun)
{
    int                         alive;
    item_t                     *item;
    ngx_int_t                   rc;
    ngx_http_vibelock_lock_t    lock;
    ngx_http_vibelock_claim_t   claim;

    item = &m->items[n];
    alive = expected(m, item);

    claim.key = m->key(n);
    claim.ttl = ttl;
    claim.overrun = overrun;
    claim.owner = owners[random_below(OWNERS + 1)];

    if (claim.owner == owners[0]) {
        claim.owner = NULL;
    }

    n = random_below(OPERATIONS);
    claim.operation = m->operation[n];

    ngx_memset(&lock, 0xee, sizeof(ngx_http_vibelock_lock_t));

    rc = claimed(m->zone, &claim, &lock);

    if (alive == -1) {
        alive = (rc == NGX_BUSY);
    }

    if (alive) {
        m->count[1]++;
        check(rc == NGX_BUSY);
        check(same(m, item, &lock));
        return;
    }

    item->held = 0;
    item->orphan = 0;

    if (rc == NGX_DECLINED) {
        m->count[2]++;
        check(occupied(m) + raw_cells(claim.key.len)
              > raw_slots(m->zone->table));
        return;
    }

    m->count[0]++;

    check(rc == NGX_OK);
    check(lock.handle.token > m->token);
    check(lock.handle.token < (uint64_t) 1 << 53);

    m->token = lock.handle.token;

    item->handle = lock.handle;
    item->acquired = ngx_current_msec;
    item->expires = ngx_current_msec + ttl;
    item->held = 1;
    item->overrun = (uint8_t) overrun;
    item->stuck = 0;
    item->worker = (uint8_t) m->worker;
    item->owner = claim.owner ? 1 + (claim.owner - owners[0])
                                    / NGX_HTTP_VIBELOCK_OWNER_LEN : 0;
    item->operation = (uint8_t) n;

    check(same(m, item, &lock));
}


static void
act_acquire(model_t *m)
{
    model_acquire(m, random_below(m->keys), model_ttl(),
                  random_below(3) == 0);
}


/* one that is likely to be held, or to have been a moment ago */

static void
act_again(model_t *m)
{
    ngx_uint_t  i, n;

    for (i = 0; i < 10; i++) {
        n = random_below(m->keys);

        if (m->items[n].held) {
            break;
        }
    }

    if (deadline(&m->items[n]) < m->now + 1000
        && deadline(&m->items[n]) > m->now)
    {
        /* to the very millisecond */

        m->now = deadline(&m->items[n]) - random_below(2);
        become_worker(m, m->worker);
    }

    model_acquire(m, n, model_ttl(), random_below(3) == 0);
}


/*
 * Somebody's operation ends: the item whose lock was still there, or NULL.
 */

static item_t *
act_end(model_t *m, end_pt end, ngx_uint_t count)
{
    int         alive;
    item_t     *item;
    ngx_int_t   rc;

    item = &m->items[random_below(m->keys)];

    if (item->handle.token == 0) {
        return NULL;
    }

    alive = expected(m, item);

    rc = end(m->zone->table, &item->handle);

    if (alive == -1) {
        alive = (rc == NGX_OK);
    }

    check(rc == (alive ? NGX_OK : NGX_DECLINED));
    m->count[alive ? count : 6]++;

    if (alive) {
        return item;
    }

    item->held = 0;
    item->orphan = 0;

    return NULL;
}


static void
act_release(model_t *m)
{
    item_t  *item;

    item = act_end(m, ngx_http_vibelock_table_release, 3);

    if (item) {
        item->held = 0;
        item->orphan = 0;
    }
}


static void
act_keep(model_t *m)
{
    item_t  *item;

    item = act_end(m, ngx_http_vibelock_table_keep, 4);

    if (item == NULL) {
        return;
    }

    if (item->orphan == 1) {

        /* it was said by name that it is stuck: no need to tell */

        item->orphan = 2;
    }

    if (!item->stuck) {
        item->stuck = 1;

        if (item->overrun && ngx_current_msec >= item->expires) {
            item->expires = ngx_current_msec + item->expires - item->acquired;
        }
    }
}


static void
act_find(model_t *m)
{
    int                        alive;
    item_t                    *item;
    ngx_str_t                  key;
    ngx_int_t                  rc;
    ngx_uint_t                 n;
    ngx_http_vibelock_lock_t   lock;

    n = random_below(m->keys);
    item = &m->items[n];
    key = m->key(n);
    alive = expected(m, item);

    rc = ngx_http_vibelock_table_find(m->zone->table, &key, &lock);

    if (alive == -1) {
        alive = (rc == NGX_OK);
    }

    check(rc == (alive ? NGX_OK : NGX_DECLINED));

    if (alive) {
        check(same(m, item, &lock));

    } else {
        item->held = 0;
        item->orphan = 0;
    }
}


static void
act_break(model_t *m)
{
    int                        alive;
    item_t                    *item;
    ngx_str_t                  key;
    ngx_int_t                  rc;
    ngx_uint_t                 n, answer[2];
    ngx_http_vibelock_lock_t   lock;

    n = random_below(m->keys);
    item = &m->items[n];
    key = m->key(n);
    alive = expected(m, item);

    answer[0] = random_below(2);
    answer[1] = 0;

    rc = ngx_http_vibelock_table_break(m->zone->table, &key, may, answer,
                                       &lock);

    if (alive == -1) {
        alive = (lock.handle.token != 0);
    }

    check(answer[1] == (ngx_uint_t) alive);
    check(rc == (alive && answer[0] ? NGX_OK : NGX_DECLINED));

    if (alive) {
        check(same(m, item, &lock));

    } else {
        check(lock.handle.token == 0);
    }

    if (rc == NGX_OK) {
        m->count[5]++;
    }

    if (rc == NGX_OK || !alive) {
        item->held = 0;
        item->orphan = 0;
    }
}


static void
act_sweep(model_t *m)
{
    (void) ngx_http_vibelock_table_sweep(m->zone->table);
}


static void
act_clock(model_t *m)
{
    model_clock(m);
    become_worker(m, m->worker);
}


/* some worker dies, and how that is found out */

static void
act_die(model_t *m)
{
    ngx_uint_t  worker;

    worker = random_below(WORKERS);

    m->count[7]++;

    switch (random_below(3)) {

    case 0:
        stand_in_kill(m->workers[worker].pid);
        m->workers[worker].pid = stand_in();
        become_worker(m, worker);
        ngx_http_vibelock_table_enter(m->zone->table);
        died(m, worker);
        break;

    case 1:
        become_worker(m, worker);
        ngx_http_vibelock_table_leave(m->zone->table);
        died(m, worker);
        model_clock(m);
        stand_in_kill(m->workers[worker].pid);
        m->workers[worker].pid = stand_in();
        become_worker(m, worker);
        ngx_http_vibelock_table_enter(m->zone->table);
        break;

    default:
        become_worker(m, worker);
        stand_in_kill(m->workers[worker].pid);
        become_worker(m, (worker + 1) % WORKERS);
        ngx_http_vibelock_table_reap(m->zone->table);
        died(m, worker);
        model_clock(m);
        m->workers[worker].pid = stand_in();
        become_worker(m, worker);
        ngx_http_vibelock_table_enter(m->zone->table);
    }
}


static void
act_search(model_t *m)
{
    if (ngx_http_vibelock_table_search(m->zone->table, visit_orphan, m)
        == NGX_OK)
    {
        m->searching = 0;
    }
}


/*
 * Looks for all that died, sweeps all that is due, and compares everything
 * that is then left.
 */

static void
settle(model_t *m)
{
    uint32_t                   cell;
    item_t                    *item;
    ngx_str_t                  key;
    ngx_uint_t                 i, n, cells, live;
    ngx_http_vibelock_lock_t   lock;
    ngx_http_vibelock_usage_t  usage;

    become_worker(m, 0);

    while (ngx_http_vibelock_table_search(m->zone->table, visit_orphan, m)
           == NGX_AGAIN)
    {
        /* void */
    }

    m->searching = 0;

    while (ngx_http_vibelock_table_sweep(m->zone->table) == NGX_AGAIN) {
        /* void */
    }

    n = 0;
    live = 0;
    cells = m->names;

    for (i = 0; i < m->keys; i++) {
        item = &m->items[i];
        item->seen = 0;

        if (item->held && (deadline(item) >> 6) + 1
                          <= (ngx_current_msec >> 6)
            && deadline(item) != (ngx_msec_t) -1)
        {
            item->held = 0;
        }

        if (item->held && item->overrun && deadline(item) <= ngx_current_msec)
        {
            /* one that was past its TTL may be gone before the next tick */

            key = m->key(i);
            check(ngx_http_vibelock_table_find(m->zone->table, &key, &lock)
                  == NGX_DECLINED);
            item->held = 0;
        }

        if (item->orphan == 1) {
            check(!item->held || deadline(item) <= ngx_current_msec);
        }

        item->orphan = 0;

        if (item->held) {
            n++;
            cells += raw_cells(m->key(i).len);
            live += (deadline(item) > ngx_current_msec);
        }
    }

    ngx_http_vibelock_table_usage(m->zone->table, &usage);

    check(usage.rebuilds == 0);
    check(usage.locks == n);
    check(usage.used == cells);

    cell = 0;
    m->count[9] = 0;

    while (ngx_http_vibelock_table_scan(m->zone->table, &cell, visit_scan, m)
           == NGX_AGAIN)
    {
        /* void */
    }

    check(m->count[9] == live);
    check_null(whole(m->zone->table));
}


static void
become_worker(model_t *m, ngx_uint_t worker)
{
    m->worker = worker;

    become(20 + worker, m->workers[worker].pid);
    clock_set(m->now - m->workers[worker].behind);

    m->latest = ngx_max(m->latest, ngx_current_msec);
}


static void
died(model_t *m, ngx_uint_t worker)
{
    item_t      *item;
    ngx_uint_t   i;

    m->searching = 1;

    for (i = 0; i < m->keys; i++) {
        item = &m->items[i];

        if (!item->held || item->worker != worker || item->stuck) {
            continue;
        }

        item->stuck = 1;
        item->orphan = 1;

        if (item->overrun && ngx_current_msec >= item->expires) {
            item->expires = ngx_current_msec + item->expires - item->acquired;
        }
    }
}


static ngx_msec_t
deadline(item_t *item)
{
    return (item->overrun && !item->stuck) ? (ngx_msec_t) -1 : item->expires;
}


/*
 * 1: the lock is there, 0: it is not, -1: it is not expired by our clock, but
 * may have been by that of another worker, who took it away.
 */

static int
expected(model_t *m, item_t *item)
{
    if (!item->held || deadline(item) <= ngx_current_msec) {
        return 0;
    }

    if (deadline(item) <= m->latest) {
        m->count[8]++;
        return -1;
    }

    return 1;
}


static ngx_uint_t
same(model_t *m, item_t *item, ngx_http_vibelock_lock_t *lock)
{
    ngx_msec_t  now, rest;

    now = ngx_max(ngx_current_msec, item->acquired);
    rest = (item->expires > now) ? item->expires - now : 0;

    return lock->handle.token == item->handle.token
           && lock->handle.cell == item->handle.cell
           && lock->age == now - item->acquired
           && lock->rest == rest
           && lock->operation.len == 2 + (size_t) item->operation
           && ngx_memcmp(lock->operation.data, "op------", 2 + item->operation)
              == 0
           && lock->owned == (item->owner != 0)
           && (!item->owner
               || ngx_memcmp(lock->owner, owners[item->owner - 1],
                             NGX_HTTP_VIBELOCK_OWNER_LEN)
                  == 0)
           && lock->overrun == item->overrun
           && lock->stuck == item->stuck;
}


/*
 * Cells that are not to be had: those of locks that are not due (a clock that
 * is behind may put it off by a tick), or were not found yet.
 */

static ngx_uint_t
occupied(model_t *m)
{
    item_t      *item;
    ngx_uint_t   i, n;

    n = m->names;

    for (i = 0; i < m->keys; i++) {
        item = &m->items[i];

        if (item->held
            && (deadline(item) == (ngx_msec_t) -1
                || (deadline(item) >> 6) + 2 > (ngx_current_msec >> 6)
                || (m->searching && item->overrun)))
        {
            n += raw_cells(m->key(i).len);
        }
    }

    return n;
}


static ngx_uint_t
may(ngx_http_vibelock_lock_t *lock, void *data)
{
    ngx_uint_t  *answer = data;

    answer[1]++;

    return answer[0];
}


static void
visit_orphan(ngx_http_vibelock_lock_t *lock, ngx_str_t *key, void *data)
{
    model_t  *m = data;

    item_t   *item;

    item = item_of(m, lock, key);

    if (item == NULL) {
        return;
    }

    check(item->held);
    check(item->orphan != 0);
    check(lock->stuck);
    check(same(m, item, lock));

    item->orphan = 0;
    m->visits++;
}


static void
visit_scan(ngx_http_vibelock_lock_t *lock, ngx_str_t *key, void *data)
{
    model_t  *m = data;

    item_t   *item;

    item = item_of(m, lock, key);

    if (item == NULL) {
        return;
    }

    check(!item->seen);
    check(expected(m, item) != 0);
    check(same(m, item, lock));

    item->seen = 1;
    m->count[9]++;
}


/* in the table a lock has a cell, in the model a key has a number */

static item_t *
item_of(model_t *m, ngx_http_vibelock_lock_t *lock, ngx_str_t *key)
{
    char         digits[9];
    ngx_str_t    other;
    ngx_uint_t   i, first, last;

    first = 0;
    last = m->keys;

    if (m->key == key_uuid) {
        ngx_memcpy(digits, key->data, 8);
        digits[8] = '\0';

        first = strtoul(digits, NULL, 16);
        last = first + 1;
    }

    for (i = first; i < last && i < m->keys; i++) {
        if (m->items[i].handle.token != lock->handle.token) {
            continue;
        }

        other = m->key(i);

        if (check(other.len == key->len)
            && check(ngx_memcmp(other.data, key->data, key->len) == 0))
        {
            return &m->items[i];
        }
    }

    check(!"a lock that the model does not know");

    return NULL;
}
