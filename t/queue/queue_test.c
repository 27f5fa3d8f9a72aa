
/*
 * Copyright (C) the vibelock authors
 *
 * The queue by itself.  Its own structures are nobody else's: its source is
 * taken in here, and is what is tested.
 */


#include <sys/mman.h>
#include <sys/wait.h>

#include "ngx_http_vibelock_cells.c"
#include "ngx_http_vibelock_queue.c"

#include "tap.h"


#define SIZE   16384                /* of a queue in most tests, bytes */
#define LIMIT  500                  /* ms, of take() */
#define IDS    400                  /* releases of the random operations */


/* what a release is like, by the number in its key */

typedef struct {
    uint8_t     kind;               /* 0: not there */
    ngx_msec_t  at;
    ngx_msec_t  again;
} seen_t;


typedef struct {
    const char   *name;
    void        (*prepare)(void);
    void        (*run)(void);
} scenario_t;


volatile ngx_msec_t    ngx_current_msec;
volatile ngx_time_t   *ngx_cached_time;
ngx_pid_t              ngx_pid;

static ngx_slab_pool_t            *pool;
static ngx_http_vibelock_queue_t  *queue;
static size_t                      size;
static uint64_t                    random_state = 1;


void
ngx_http_vibelock_mutex_lock(ngx_slab_pool_t *pool)
{
    if (*pool->mutex.lock) {
        abort();
    }

    *pool->mutex.lock = ngx_pid;
}


void
ngx_shmtx_unlock(ngx_shmtx_t *mtx)
{
    *mtx->lock = 0;
}


static void
make(size_t bytes)
{
    u_char  *p;

    size = bytes;

    p = mmap(NULL, 4096 + bytes, PROT_READ|PROT_WRITE, MAP_ANON|MAP_SHARED, -1,
             0);
    if (p == MAP_FAILED) {
        abort();
    }

    ngx_pid = getpid();
    ngx_current_msec = 1000000;

    pool = (ngx_slab_pool_t *) p;
    pool->mutex.lock = &pool->lock.lock;
    queue = (ngx_http_vibelock_queue_t *) (p + 4096);

    ngx_http_vibelock_queue_init(queue, bytes);
}


static void
unmake(void)
{
    (void) munmap(pool, 4096 + size);
}


static uint64_t
random_below(uint64_t n)
{
    random_state = random_state * 6364136223846793005ULL
                   + 1442695040888963407ULL;

    return (random_state >> 33) % n;
}


/* the key of a number: every third is a long one */

static ngx_str_t
key_of(ngx_uint_t id)
{
    ngx_str_t      key;
    static u_char  text[256];

    ngx_memset(text, 'x', sizeof(text));
    (void) snprintf((char *) text, sizeof(text), "%06d", (int) id);
    text[6] = '-';

    key.data = text;
    key.len = (id % 3 == 2) ? 36 + id * 7 % 220 : 36;

    return key;
}


static ngx_int_t
put(ngx_uint_t id)
{
    ngx_str_t      key;
    static u_char  owner[NGX_HTTP_VIBELOCK_QUEUE_OWNER];

    key = key_of(id);

    return ngx_http_vibelock_queue_put(queue, pool, &key, owner,
                                       ngx_current_msec, 0, NULL);
}


/* put() by who can send it at once */

static ngx_int_t
pass(ngx_uint_t id, ngx_http_vibelock_queued_t *item)
{
    ngx_str_t      key;
    static u_char  owner[NGX_HTTP_VIBELOCK_QUEUE_OWNER];

    key = key_of(id);

    return ngx_http_vibelock_queue_put(queue, pool, &key, owner,
                                       ngx_current_msec, LIMIT, item);
}


static ngx_int_t
take(ngx_http_vibelock_queued_t *item)
{
    return ngx_http_vibelock_queue_take(queue, pool, LIMIT, item);
}


static void
sent(ngx_http_vibelock_queued_t *item)
{
    ngx_http_vibelock_queue_sent(queue, pool, item->cell, item->serial);
}


static void
back(ngx_http_vibelock_queued_t *item)
{
    ngx_http_vibelock_queue_back(queue, pool, item->cell, item->serial);
}


static ngx_msec_t
turn(void)
{
    ngx_msec_t  next;

    while (ngx_http_vibelock_queue_turn(queue, pool, &next) == NGX_AGAIN) {
        /* void */
    }

    check(next <= NGX_HTTP_VIBELOCK_QUEUE_REST);

    return next;
}


static ngx_http_vibelock_queue_usage_t
usage(void)
{
    ngx_http_vibelock_queue_usage_t  u;

    ngx_http_vibelock_queue_usage(queue, &u);

    return u;
}


static ngx_uint_t
id_of(ngx_http_vibelock_queued_t *item)
{
    return strtoul((char *) item->key, NULL, 10);
}


/* all that has to hold of what is in memory; what does not, or NULL */

static const char *
whole(seen_t *seen)
{
    u_char                           key[256];
    uint8_t                          used[4096];
    uint32_t                         n, m, listed, sends, held, chained, prev;
    ngx_uint_t                       i;
    ngx_http_vibelock_queue_node_t  *node;

    ngx_memzero(seen, IDS * sizeof(seen_t));
    ngx_memzero(used, sizeof(used));

    if (queue->changing) {
        return "it is being changed";
    }

    listed = 0;
    sends = 0;
    held = 0;

    for (i = 0; i < NGX_HTTP_VIBELOCK_QUEUE_LISTS; i++) {
        prev = NGX_HTTP_VIBELOCK_NONE;

        for (n = queue->lists[i].first; n != NGX_HTTP_VIBELOCK_NONE;
             n = node->next)
        {
            node = ngx_http_vibelock_queue_node(queue, n);

            if (n >= queue->cells.fresh || used[n]
                || node->prev != prev
                || node->cell.kind != NGX_HTTP_VIBELOCK_QUEUE_WAITING + i)
            {
                return "a list is broken";
            }

            for (m = n; m != NGX_HTTP_VIBELOCK_NONE;
                 m = ngx_http_vibelock_cell(&queue->cells, m)->more)
            {
                if (used[m]++) {
                    return "a cell is used twice";
                }

                held++;
            }

            ngx_memzero(key, sizeof(key));
            (void) ngx_http_vibelock_cells_copy(&queue->cells, n, key);
            m = strtoul((char *) key, NULL, 10);

            if (m >= IDS || seen[m].kind) {
                return "a release is there twice";
            }

            seen[m].kind = node->cell.kind;
            seen[m].at = node->at;
            seen[m].again = node->again;

            listed++;
            sends += ngx_http_vibelock_queue_sends(node);
            prev = n;
        }

        if (queue->lists[i].last != prev) {
            return "the end of a list is wrong";
        }
    }

    chained = 0;

    for (i = 0; i < queue->slots; i++) {
        for (n = queue->index[i]; n != NGX_HTTP_VIBELOCK_NONE; n = node->chain)
        {
            node = ngx_http_vibelock_queue_node(queue, n);

            if (++chained > listed || !used[n]) {
                return "the index is broken";
            }
        }
    }

    for (n = queue->cells.free; n != NGX_HTTP_VIBELOCK_NONE;
         n = ngx_http_vibelock_cell(&queue->cells, n)->more)
    {
        if (used[n]++) {
            return "a free cell is used";
        }
    }

    for (n = 0; n < queue->cells.fresh; n++) {
        if (!used[n]) {
            return "a cell is lost";
        }
    }

    if (chained != listed || queue->n != listed || queue->queued != sends
        || queue->cells.used != held)
    {
        return "a count is wrong";
    }

    return NULL;
}


static void
check_whole(void)
{
    static seen_t  seen[IDS];

    check_null(whole(seen));
}


static void
facts_way(void)
{
    ngx_http_vibelock_queued_t  one, two, none;

    make(SIZE);

    fact("a release waits, is sent, rests, and is gone");

    check(!ngx_http_vibelock_queue_waits(queue));
    check(take(&none) == NGX_DECLINED);
    check(put(1) == NGX_OK);
    check(ngx_http_vibelock_queue_waits(queue));
    check(usage().queued == 1);
    check(take(&one) == NGX_OK);
    check(id_of(&one) == 1 && one.key_len == 36 && one.at == 1000000);
    check(take(&none) == NGX_DECLINED);
    check(usage().queued == 1);
    sent(&one);
    check(usage().queued == 0 && usage().published == 1);
    ngx_current_msec += NGX_HTTP_VIBELOCK_QUEUE_REST - 1;
    check(turn() == 0 && queue->n == 1);
    ngx_current_msec += 1;
    check(turn() == 0 && queue->n == 0);
    check_whole();

    fact("the first to come is the first to go");

    (void) put(1);
    (void) put(2);
    (void) take(&one);
    (void) take(&two);
    check(id_of(&one) == 1 && id_of(&two) == 2 && two.key_len == 50);

    fact("what comes back goes out again, what is forgotten too");

    back(&one);
    check(take(&one) == NGX_OK && id_of(&one) == 1);
    ngx_current_msec += LIMIT;
    (void) turn();
    check(take(&none) == NGX_OK && take(&none) == NGX_OK);

    fact("who comes too late with an answer changes nothing");

    sent(&one);
    back(&two);
    check(usage().queued == 2 && usage().published == 2);
    check(take(&one) == NGX_DECLINED);
    check_whole();

    fact_done();
    unmake();
}


static void
facts_pass(void)
{
    ngx_http_vibelock_queued_t  one, two, none;

    make(SIZE);

    fact("a release that none waits before is taken at once");

    check(pass(1, &one) == NGX_DONE);
    check(id_of(&one) == 1 && one.key_len == 36 && one.at == 1000000);
    check(usage().queued == 1 && !ngx_http_vibelock_queue_waits(queue));
    check(take(&none) == NGX_DECLINED);
    check(pass(2, &two) == NGX_DONE);
    check(id_of(&two) == 2 && two.key_len == 50);
    check_whole();

    fact("and rests, is repeated, comes back and is forgotten as others are");

    check(pass(1, &none) == NGX_AGAIN);
    sent(&one);
    check(pass(1, &none) == NGX_AGAIN);
    check(usage().published == 1 && usage().merged == 1);
    ngx_current_msec += LIMIT - 1;
    (void) turn();
    check(take(&none) == NGX_DECLINED);
    ngx_current_msec += 1;
    (void) turn();
    check(take(&two) == NGX_OK && id_of(&two) == 2);
    back(&two);
    check(take(&two) == NGX_OK && id_of(&two) == 2);
    sent(&two);
    check_whole();
    unmake();

    make(SIZE);

    fact("who comes too late with an answer to it changes nothing");

    check(pass(3, &one) == NGX_DONE);
    ngx_current_msec += LIMIT;
    (void) turn();
    check(take(&two) == NGX_OK && id_of(&two) == 3);
    back(&one);
    check(take(&none) == NGX_DECLINED);
    sent(&two);

    fact("one behind others waits as they do");

    (void) put(4);
    check(pass(5, &none) == NGX_OK);
    check(pass(5, &none) == NGX_BUSY);
    check(take(&one) == NGX_OK && id_of(&one) == 4);
    check(take(&one) == NGX_OK && id_of(&one) == 5);
    check(take(&none) == NGX_DECLINED);
    check_whole();

    fact_done();
    unmake();
}


static void
facts_merge(void)
{
    ngx_http_vibelock_queued_t  one, none;

    make(SIZE);

    fact("repeats of one that waits are it, at the last one's time");

    check(put(1) == NGX_OK);
    ngx_current_msec += 10;
    check(put(1) == NGX_BUSY);
    ngx_current_msec += 10;
    check(put(1) == NGX_BUSY);
    check(take(&one) == NGX_OK && one.at == 1000020);
    check(usage().merged == 2 && take(&none) == NGX_DECLINED);

    fact("repeats of one that was sent go out as one, a second later");

    check(put(1) == NGX_AGAIN);
    sent(&one);
    ngx_current_msec += 300;
    check(put(1) == NGX_AGAIN);
    check(put(1) == NGX_AGAIN);
    check(usage().queued == 1 && usage().merged == 4);
    check(turn() == 700);
    check(take(&none) == NGX_DECLINED);
    ngx_current_msec += 700;
    check(turn() == 0);
    check(take(&one) == NGX_OK && one.at == 1000320);
    sent(&one);

    fact("and so on, from second to second");

    check(put(1) == NGX_AGAIN);
    ngx_current_msec += NGX_HTTP_VIBELOCK_QUEUE_REST;
    (void) turn();
    check(take(&one) == NGX_OK);

    fact("one that comes back takes its repeat with it");

    ngx_current_msec += 5;
    check(put(1) == NGX_AGAIN);
    back(&one);
    check(take(&one) == NGX_OK && one.at == ngx_current_msec);
    check(usage().merged == 5);
    sent(&one);
    ngx_current_msec += NGX_HTTP_VIBELOCK_QUEUE_REST;
    check(turn() == 0 && queue->n == 0);
    check_whole();

    fact("a repeat waits no more when it is to hurry, and nothing else does");

    (void) put(1);
    (void) put(2);
    (void) put(3);
    (void) take(&one);
    sent(&one);
    (void) take(&one);
    sent(&one);
    (void) take(&none);
    ngx_current_msec += 10;
    check(put(2) == NGX_AGAIN);
    check(put(3) == NGX_AGAIN);
    ngx_http_vibelock_queue_hurry(queue, pool);
    check(take(&one) == NGX_OK && id_of(&one) == 2);
    check(one.at == ngx_current_msec);
    check(take(&none) == NGX_DECLINED);
    check_whole();

    fact_done();
    unmake();
}


static void
facts_moment(void)
{
    u_char                      owner[NGX_HTTP_VIBELOCK_QUEUE_OWNER];
    ngx_str_t                   key;
    ngx_http_vibelock_queued_t  one;

    make(SIZE);

    key = key_of(1);
    ngx_memzero(owner, sizeof(owner));

    fact("a release may be of a moment that is past, and long past");

    check(ngx_http_vibelock_queue_put(queue, pool, &key, owner, 1000, 0, NULL)
          == NGX_OK);
    check(turn() == 0 && usage().dropped == 0);

    fact("a repeat of an earlier moment does not set it back");

    check(ngx_http_vibelock_queue_put(queue, pool, &key, owner, 500, 0, NULL)
          == NGX_BUSY);
    check(take(&one) == NGX_OK && one.at == 1000);

    fact("one of a later moment goes out with that");

    check(ngx_http_vibelock_queue_put(queue, pool, &key, owner, 2000, 0, NULL)
          == NGX_AGAIN);
    back(&one);
    check(take(&one) == NGX_OK && one.at == 2000);
    sent(&one);
    check_whole();

    fact_done();
    unmake();
}


static void
facts_owner(void)
{
    u_char                      owner[NGX_HTTP_VIBELOCK_QUEUE_OWNER];
    ngx_str_t                   key;
    ngx_http_vibelock_queued_t  one;

    make(SIZE);

    fact("another owner's release of the same key is another release");

    check(put(1) == NGX_OK);
    ngx_memset(owner, 7, sizeof(owner));
    key = key_of(1);
    check(ngx_http_vibelock_queue_put(queue, pool, &key, owner,
                                      ngx_current_msec, 0, NULL)
          == NGX_OK);
    check(usage().queued == 2);
    (void) take(&one);
    check(one.owner[0] == 0);
    (void) take(&one);
    check(one.owner[0] == 7);

    fact_done();
    unmake();
}


static void
facts_bounds(void)
{
    ngx_uint_t                  i, n;
    ngx_http_vibelock_queued_t  one;

    fact("a thousand releases of typical keys, and no more");

    make(ngx_http_vibelock_queue_size());

    for (i = 0; i < 1200; i++) {
        (void) put(i * 3);
    }

    check(usage().queued == 1000 && usage().dropped == 200);
    check(take(&one) == NGX_OK && id_of(&one) == 600);
    unmake();

    make(SIZE);

    fact("a small queue drops its oldest");

    for (n = 0; usage().dropped == 0; n++) {
        check(put(n * 3) == NGX_OK);
    }

    check(n > 100 && usage().queued == n - 1);
    check(take(&one) == NGX_OK && id_of(&one) == 3);
    check_whole();

    fact("what rests makes room first, what is under way stays");

    sent(&one);

    while (take(&one) == NGX_OK) { /* void */ }

    check(put(0) == NGX_OK);
    check(usage().dropped == 1 && queue->n == n - 1);
    check(take(&one) == NGX_OK);
    check(put(3) == NGX_DECLINED);
    check(usage().dropped == 2 && queue->n == n - 1);
    check_whole();
    unmake();

    make(SIZE);

    fact("a repeat that rests is not dropped for one that is done");

    for (i = 0; i < n - 1; i++) {
        check(put(i * 3) == NGX_OK && take(&one) == NGX_OK);
        sent(&one);
    }

    check(put(0) == NGX_AGAIN && usage().queued == 1);
    check(put(i * 3) == NGX_OK);
    check(usage().dropped == 0 && usage().queued == 2);
    check(take(&one) == NGX_OK && id_of(&one) == 0);
    check(take(&one) == NGX_OK && id_of(&one) == i * 3);
    check_whole();
    unmake();

    make(SIZE);

    fact("after a minute it is too late");

    (void) put(1);
    ngx_current_msec += 30000;
    (void) put(2);
    ngx_current_msec += 30000;
    (void) turn();
    check(usage().queued == 2);
    ngx_current_msec += 1;
    (void) turn();
    check(usage().queued == 1 && usage().dropped == 1);
    (void) put(2);
    ngx_current_msec += 60000;
    (void) turn();
    check(usage().queued == 1);
    check_whole();

    fact_done();
    unmake();
}


static void
facts_anew(void)
{
    ngx_http_vibelock_queued_t  one, two;

    make(SIZE);

    fact("what rested, in whatever order, is over when it is put in order");

    check(put(1) == NGX_OK && put(2) == NGX_OK);
    check(take(&one) == NGX_OK && take(&two) == NGX_OK);
    sent(&two);
    ngx_current_msec += 500;
    sent(&one);
    queue->changing = 1;
    check(turn() == 0 && queue->n == 0);
    check_whole();

    fact("one that was not counted yet is found by the next turn");

    check(put(1) == NGX_OK);
    queue->n = 0;
    queue->changing = 1;
    check(turn() == 0 && queue->n == 1);
    check_whole();

    fact_done();
    unmake();
}


/* any operation at all */

static void
random_step(ngx_http_vibelock_queued_t *items, ngx_uint_t *n)
{
    ngx_uint_t  i;

    switch (random_below(8)) {

    case 0:
    case 1:
    case 2:
        (void) put(random_below(IDS));
        break;

    case 6:
        if (*n < 64 && pass(random_below(IDS), &items[*n]) == NGX_DONE) {
            (*n)++;
        }
        break;

    case 3:
        if (*n < 64 && take(&items[*n]) == NGX_OK) {
            (*n)++;
        }
        break;

    case 4:
        if (*n) {
            i = random_below(*n);
            sent(&items[i]);
            items[i] = items[--*n];
        }
        break;

    case 5:
        if (*n) {
            i = random_below(*n);

            if (random_below(2)) {
                back(&items[i]);
            }

            items[i] = items[--*n];
        }
        break;

    default:
        ngx_current_msec += random_below(random_below(40) ? 60 : 30000);
        (void) turn();
        break;
    }
}


static void
model(ngx_uint_t operations)
{
    ngx_uint_t                  i, n;
    static seen_t               seen[IDS];
    ngx_http_vibelock_queued_t  items[64];

    make(SIZE);
    n = 0;

    fact("random operations leave it whole");

    for (i = 0; i < operations && !fact_failed(); i++) {
        random_step(items, &n);
        check_null(whole(seen));
    }

    fact_done();
    unmake();
}


/* scenarios in which a worker is killed */

static void
prepare_some(void)
{
    ngx_uint_t                  i;
    ngx_http_vibelock_queued_t  one;

    for (i = 10; i < 25; i++) {
        (void) put(i);
    }

    for (i = 0; i < 4; i++) {
        (void) take(&one);
        sent(&one);
    }

    (void) put(10);
    (void) take(&one);
    (void) take(&one);
    (void) put(1);
}


static void
prepare_taken(void)
{
    ngx_http_vibelock_queued_t  one;

    prepare_some();

    while (take(&one) == NGX_OK) { /* void */ }
}


static void
prepare_full(void)
{
    ngx_uint_t  i;

    for (i = 10; usage().dropped == 0; i++) {
        (void) put(i);
    }
}


static void
run_put(void)
{
    (void) put(2);
}


static void
run_pass(void)
{
    ngx_http_vibelock_queued_t  one;

    (void) pass(2, &one);
}


static void
run_repeat(void)
{
    (void) put(1);
    (void) put(10);
}


static void
run_take(void)
{
    ngx_http_vibelock_queued_t  one;

    (void) take(&one);
}


static void
run_sent(void)
{
    ngx_http_vibelock_queued_t  one;

    (void) take(&one);
    sent(&one);
}


static void
run_back(void)
{
    ngx_http_vibelock_queued_t  one;

    (void) take(&one);
    (void) put(id_of(&one));
    back(&one);
}


static void
run_turn(void)
{
    ngx_current_msec += NGX_HTTP_VIBELOCK_QUEUE_REST;
    (void) turn();
    ngx_current_msec += NGX_HTTP_VIBELOCK_QUEUE_AGE;
    (void) turn();
}


static void
run_hurry(void)
{
    (void) put(11);
    ngx_http_vibelock_queue_hurry(queue, pool);
}


static scenario_t  scenarios[] = {
    { "put", prepare_some, run_put },
    { "put in a full queue", prepare_full, run_put },
    { "put that is taken at once", prepare_taken, run_pass },
    { "put of repeats", prepare_some, run_repeat },
    { "take", prepare_some, run_take },
    { "take and sent", prepare_some, run_sent },
    { "take, repeat and back", prepare_some, run_back },
    { "turn", prepare_some, run_turn },
    { "hurry", prepare_some, run_hurry },
    { NULL, NULL, NULL }
};


/* runs in a child that is killed after so many steps; 1 when it was */

static ngx_uint_t
killed_at(void (*run)(void), ngx_int_t step)
{
    int        status;
    ngx_pid_t  pid;

    pid = fork();

    if (pid == 0) {
        ngx_pid = getpid();
        ngx_http_vibelock_crash_after = step;
        run();
        _exit(0);
    }

    (void) waitpid(pid, &status, 0);

    /* nginx's master frees the mutex of who died */

    *pool->mutex.lock = 0;

    return WIFSIGNALED(status);
}


static void
look(void)
{
    ngx_http_vibelock_queue_lock(queue, pool);
    ngx_http_vibelock_queue_unlock(pool);
}


static void
check_after(seen_t *before, seen_t *after, ngx_uint_t drops)
{
    ngx_uint_t     id, gone;
    static seen_t  now[IDS], turned[IDS];

    look();
    check_null(whole(now));
    (void) turn();
    check_null(whole(turned));

    gone = 0;

    for (id = 0; id < IDS; id++) {

        if (now[id].kind == before[id].kind || now[id].kind == after[id].kind)
        {
            continue;
        }

        /* on its way from one to the other */

        if (now[id].kind == 0) {
            gone++;

        } else {
            check(before[id].kind != 0 || after[id].kind != 0);
        }
    }

    check(gone <= drops);
}


static void
crash(scenario_t *s)
{
    u_char         *saved;
    ngx_int_t       step, second;
    static seen_t   before[IDS], after[IDS];

    make(SIZE);
    s->prepare();
    fact(s->name);
    check_null(whole(before));

    saved = malloc(SIZE);
    ngx_memcpy(saved, queue, SIZE);

    (void) killed_at(s->run, -1);
    check_null(whole(after));

    for (step = 0; !fact_failed(); step++) {
        context("killed at step %d", (int) step);

        ngx_memcpy(queue, saved, SIZE);

        if (!killed_at(s->run, step)) {
            break;
        }

        /* and who puts it in order dies as well */

        for (second = 1; killed_at(look, second) && second < 8; second++) {
            /* void */
        }

        check_after(before, after, 0);
    }

    check(step > 3);
    note("%s: %d steps", s->name, (int) step);

    fact_done();
    free(saved);
    unmake();
}


int
main(int argc, char **argv)
{
    scenario_t  *s;

    facts_way();
    facts_pass();
    facts_merge();
    facts_moment();
    facts_owner();
    facts_bounds();
    facts_anew();
    model(argc > 1 ? strtoul(argv[1], NULL, 10) : 100000);

    for (s = scenarios; s->name; s++) {
        crash(s);
    }

    printf("done\n");

    return 0;
}
