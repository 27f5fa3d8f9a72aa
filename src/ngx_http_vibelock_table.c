
/*
 * Copyright (C) the vibelock authors
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_http_vibelock_cells.h"
#include "ngx_http_vibelock_crash.h"
#include "ngx_http_vibelock_hash.h"
#include "ngx_http_vibelock_mutex.h"
#include "ngx_http_vibelock_table.h"
#include "ngx_http_vibelock_wheel.h"
#include "ngx_http_vibelock_worker.h"


#if (NGX_HTTP_VIBELOCK_KEY_MAX > NGX_HTTP_VIBELOCK_HASH_MAX)
#error "there is no hash of so long a key"
#endif


/* cells that one call may touch with the mutex held, beside its own */
#define NGX_HTTP_VIBELOCK_TABLE_STEP     32

/* ... and when the zone is full and something may be due: a millisecond */
#define NGX_HTTP_VIBELOCK_TABLE_FULL     8192

/* the smallest zone's worth of locks */
#define NGX_HTTP_VIBELOCK_TABLE_MIN      16

/* workers that may be gone before their locks were found */
#define NGX_HTTP_VIBELOCK_TABLE_GONE     64


/* flags of a lock */
#define NGX_HTTP_VIBELOCK_OWNED          0x01
#define NGX_HTTP_VIBELOCK_OVERRUN        0x02
#define NGX_HTTP_VIBELOCK_STUCK          0x04

/* stuck as its worker is gone, and search() has not told so yet */
#define NGX_HTTP_VIBELOCK_ORPHAN         0x08


/*
 * A lock.  The head is so long that a cell of 128 bytes has room for a key of
 * 36 bytes, a UUID; longer keys go on in further cells.
 */

typedef struct {
    ngx_http_vibelock_cell_t        cell;
    uint32_t                        hash;
    uint32_t                        chain;     /* next of the same index slot */
    ngx_http_vibelock_wheel_link_t  link;
    uint64_t                        token;
    ngx_msec_t                      acquired;
    ngx_msec_t                      expires;
    u_char                          owner[NGX_HTTP_VIBELOCK_OWNER_LEN];
    uint32_t                        operation;
    uint32_t                        generation;
    uint16_t                        slot;      /* of the holder */
    uint8_t                         flags;
    uint8_t                         reserved;
    u_char                          key[NGX_HTTP_VIBELOCK_CELL_SIZE - 92];
} ngx_http_vibelock_node_t;


typedef struct {
    ngx_http_vibelock_cell_t        cell;
    uint32_t                        next;
    u_char                          name[NGX_HTTP_VIBELOCK_CELL_SIZE - 12];
} ngx_http_vibelock_name_t;


/*
 * A worker by the slot that nginx has it in.  The generation is new for each
 * worker, for a slot and a pid both come back; 0: nobody is there.
 */

typedef struct {
    uint32_t                        generation;
    ngx_pid_t                       pid;
} ngx_http_vibelock_holder_t;


/*
 * A worker that is gone, until all locks that it held are marked as stuck: what
 * comes of them depends on when it went.
 */

typedef struct {
    uint32_t                        generation;
    ngx_msec_t                      when;
} ngx_http_vibelock_gone_t;


struct ngx_http_vibelock_table_s {
    ngx_slab_pool_t                *shpool;

    /* set while what follows from the cells is changed */
    ngx_uint_t                      changing;

    uint64_t                        token;     /* the last one given */
    ngx_http_vibelock_seed_t        seed;

    uint32_t                       *index;
    uint32_t                        slots;     /* of the index */
    uint32_t                        locks;
    uint32_t                        names;     /* the chain of operations */
    uint32_t                        generation;    /* the last one given */

    /* where the search for locks of dead workers is; NONE: not going on */
    uint32_t                        search;

    uint32_t                        ngone;
    ngx_http_vibelock_gone_t        gone[NGX_HTTP_VIBELOCK_TABLE_GONE];

    ngx_uint_t                      rebuilds;
    uint64_t                        expired;

    void                           *reserved;

    ngx_http_vibelock_cells_t       cells;
    ngx_http_vibelock_wheel_t       wheel;
    ngx_http_vibelock_holder_t      holders[NGX_MAX_PROCESSES];
};


#define ngx_http_vibelock_node(table, n)                                      \
    ((ngx_http_vibelock_node_t *) ngx_http_vibelock_cell(&(table)->cells, n))

#define ngx_http_vibelock_name(table, n)                                      \
    ((ngx_http_vibelock_name_t *) ngx_http_vibelock_cell(&(table)->cells, n))


static void ngx_http_vibelock_table_lock(ngx_http_vibelock_table_t *table);
static void ngx_http_vibelock_table_unlock(ngx_http_vibelock_table_t *table);
static void ngx_http_vibelock_table_rebuild(ngx_http_vibelock_table_t *table);
static uint32_t ngx_http_vibelock_table_hash(ngx_http_vibelock_table_t *table,
    ngx_str_t *key);
static uint32_t *ngx_http_vibelock_table_slot(
    ngx_http_vibelock_table_t *table, uint32_t hash);
static ngx_uint_t ngx_http_vibelock_table_vacant(
    ngx_http_vibelock_table_t *table, uint32_t hash);
static uint32_t ngx_http_vibelock_table_lookup(
    ngx_http_vibelock_table_t *table, uint32_t hash, ngx_str_t *key);
static uint32_t ngx_http_vibelock_table_held(ngx_http_vibelock_table_t *table,
    ngx_http_vibelock_handle_t *handle);
static uint32_t ngx_http_vibelock_table_take(ngx_http_vibelock_table_t *table,
    ngx_http_vibelock_claim_t *claim, uint32_t hash);
static uint32_t ngx_http_vibelock_table_alloc(
    ngx_http_vibelock_table_t *table, size_t head, ngx_str_t *text);
static void ngx_http_vibelock_table_link(ngx_http_vibelock_table_t *table,
    uint32_t n);
static void ngx_http_vibelock_table_drop(ngx_http_vibelock_table_t *table,
    uint32_t n);
static void ngx_http_vibelock_table_unlink(ngx_http_vibelock_table_t *table,
    uint32_t n);
static ngx_int_t ngx_http_vibelock_table_due(ngx_http_vibelock_table_t *table,
    uint32_t n);
static ngx_int_t ngx_http_vibelock_table_turn(
    ngx_http_vibelock_table_t *table, ngx_uint_t *steps);
static void ngx_http_vibelock_table_depart(ngx_http_vibelock_table_t *table,
    ngx_http_vibelock_holder_t *holder);
static ngx_uint_t ngx_http_vibelock_table_dead(
    ngx_http_vibelock_table_t *table, ngx_http_vibelock_node_t *node);
static ngx_msec_t ngx_http_vibelock_table_died(
    ngx_http_vibelock_table_t *table, ngx_http_vibelock_node_t *node);
static ngx_msec_t ngx_http_vibelock_table_deadline(
    ngx_http_vibelock_table_t *table, ngx_http_vibelock_node_t *node);
static ngx_uint_t ngx_http_vibelock_table_orphan(
    ngx_http_vibelock_table_t *table, uint32_t n);
static void ngx_http_vibelock_table_stick(ngx_http_vibelock_table_t *table,
    uint32_t n, uint8_t flags);
static void ngx_http_vibelock_table_copy(ngx_http_vibelock_table_t *table,
    uint32_t n, ngx_http_vibelock_lock_t *lock);


/* no deadline: an overrun lock whose request is open */
#define NGX_HTTP_VIBELOCK_NEVER  ((ngx_msec_t) -1)


/*
 * A process can be killed at any instruction.  What it did before that stands
 * in memory, what comes after does not, so the order of the stores is all
 * that counts: "changing" before and after the rest, a cell's kind after its
 * contents.
 */

#define ngx_http_vibelock_table_change(table)                                 \
    (table)->changing = 1;                                                    \
    ngx_memory_barrier();                                                     \
    ngx_http_vibelock_crash_step()

#define ngx_http_vibelock_table_changed(table)                                \
    ngx_http_vibelock_crash_step();                                           \
    ngx_memory_barrier();                                                     \
    (table)->changing = 0


ngx_http_vibelock_table_t *
ngx_http_vibelock_table_create(ngx_slab_pool_t *shpool, size_t reserve)
{
    size_t                      size, head;
    u_char                     *p;
    uint64_t                    n;
    ngx_time_t                 *tp;
    ngx_http_vibelock_table_t  *table;

    size = shpool->pfree * ngx_pagesize;
    head = ngx_align(sizeof(ngx_http_vibelock_table_t), NGX_ALIGNMENT)
           + ngx_align(reserve, NGX_ALIGNMENT);

    if (size < head + NGX_HTTP_VIBELOCK_CELL_SIZE) {
        return NULL;
    }

    /* cells, an index slot for each, and what aligning them costs */

    n = (size - head - NGX_HTTP_VIBELOCK_CELL_SIZE)
        / (NGX_HTTP_VIBELOCK_CELL_SIZE + sizeof(uint32_t));

    if (n < NGX_HTTP_VIBELOCK_TABLE_MIN) {
        return NULL;
    }

    n = ngx_min(n, NGX_HTTP_VIBELOCK_CELLS_MAX);

    table = ngx_slab_alloc(shpool, size);
    if (table == NULL) {
        return NULL;
    }

    ngx_memzero(table, head);

    p = (u_char *) table
        + ngx_align(sizeof(ngx_http_vibelock_table_t), NGX_ALIGNMENT);

    table->shpool = shpool;
    table->reserved = p;
    tp = ngx_timeofday();
    table->token = (uint64_t) tp->sec * 1000000 + tp->msec * 1000;
    table->names = NGX_HTTP_VIBELOCK_NONE;
    table->search = NGX_HTTP_VIBELOCK_NONE;

    ngx_http_vibelock_hash_random(&table->seed, sizeof(table->seed));

    p += ngx_align(reserve, NGX_ALIGNMENT);

    table->index = (uint32_t *) p;
    table->slots = (uint32_t) n;
    ngx_memset(table->index, 0xff, n * sizeof(uint32_t));

    p = ngx_align_ptr(p + n * sizeof(uint32_t), NGX_HTTP_VIBELOCK_CELL_SIZE);

    ngx_http_vibelock_cells_init(&table->cells, p, (uint32_t) n);

    table->wheel.items = p;
    table->wheel.size = NGX_HTTP_VIBELOCK_CELL_SIZE;
    table->wheel.link = offsetof(ngx_http_vibelock_node_t, link);
    table->wheel.expires = offsetof(ngx_http_vibelock_node_t, expires);

    ngx_http_vibelock_wheel_init(&table->wheel, ngx_current_msec);

    return table;
}


void *
ngx_http_vibelock_table_reserved(ngx_http_vibelock_table_t *table)
{
    return table->reserved;
}


uint32_t
ngx_http_vibelock_table_operation(ngx_http_vibelock_table_t *table,
    ngx_str_t *name)
{
    uint32_t                   n;
    ngx_http_vibelock_name_t  *op;

    ngx_http_vibelock_table_lock(table);

    for (n = table->names; n != NGX_HTTP_VIBELOCK_NONE; n = op->next) {
        op = ngx_http_vibelock_name(table, n);

        if (ngx_http_vibelock_cells_equal(&table->cells, n, name)) {
            ngx_http_vibelock_table_unlock(table);
            return n;
        }
    }

    n = ngx_http_vibelock_table_alloc(table,
                                      offsetof(ngx_http_vibelock_name_t, name),
                                      name);

    if (n != NGX_HTTP_VIBELOCK_NONE) {
        op = ngx_http_vibelock_name(table, n);
        op->next = table->names;

        ngx_memory_barrier();
        ngx_http_vibelock_crash_step();

        op->cell.kind = NGX_HTTP_VIBELOCK_OPERATION;

        ngx_http_vibelock_crash_step();

        table->names = n;

        ngx_http_vibelock_table_changed(table);
    }

    ngx_http_vibelock_table_unlock(table);

    return n;
}


void
ngx_http_vibelock_table_enter(ngx_http_vibelock_table_t *table)
{
    ngx_http_vibelock_holder_t  *holder;

    holder = &table->holders[ngx_process_slot];

    ngx_http_vibelock_table_lock(table);

    /* who was here before may not have left */

    ngx_http_vibelock_table_depart(table, holder);

    holder->pid = ngx_pid;
    table->generation++;

    ngx_memory_barrier();
    ngx_http_vibelock_crash_step();

    holder->generation = table->generation;

    ngx_http_vibelock_table_unlock(table);
}


void
ngx_http_vibelock_table_leave(ngx_http_vibelock_table_t *table)
{
    ngx_http_vibelock_table_lock(table);

    ngx_http_vibelock_table_depart(table, &table->holders[ngx_process_slot]);

    ngx_http_vibelock_table_unlock(table);
}


void
ngx_http_vibelock_table_reap(ngx_http_vibelock_table_t *table)
{
    uint32_t                     generation;
    ngx_int_t                    i;
    ngx_pid_t                    pid;
    ngx_http_vibelock_holder_t  *holder;

    for (i = 0; i < NGX_MAX_PROCESSES; i++) {

        if (i == ngx_process_slot) {
            continue;
        }

        holder = &table->holders[i];
        generation = holder->generation;

        if (generation == 0) {
            continue;
        }

        ngx_memory_barrier();

        pid = holder->pid;

        if (!ngx_http_vibelock_worker_gone(pid)) {
            continue;
        }

        ngx_http_vibelock_table_lock(table);

        if (holder->generation == generation && holder->pid == pid) {
            ngx_http_vibelock_table_depart(table, holder);
        }

        ngx_http_vibelock_table_unlock(table);
    }
}


ngx_int_t
ngx_http_vibelock_table_acquire(ngx_http_vibelock_table_t *table,
    ngx_http_vibelock_claim_t *claim, ngx_http_vibelock_lock_t *lock)
{
    uint32_t   n, hash;
    ngx_int_t  rc;

    hash = ngx_http_vibelock_table_hash(table, &claim->key);

    ngx_http_vibelock_table_lock(table);

    n = ngx_http_vibelock_table_lookup(table, hash, &claim->key);

    if (n != NGX_HTTP_VIBELOCK_NONE) {
        ngx_http_vibelock_table_copy(table, n, lock);
        ngx_http_vibelock_table_unlock(table);
        return NGX_BUSY;
    }

    n = ngx_http_vibelock_table_take(table, claim, hash);

    if (n != NGX_HTTP_VIBELOCK_NONE) {
        lock->handle.cell = n;
        lock->handle.token = table->token;
        rc = NGX_OK;

    } else {
        rc = NGX_DECLINED;
    }

    ngx_http_vibelock_table_unlock(table);

    return rc;
}


ngx_int_t
ngx_http_vibelock_table_release(ngx_http_vibelock_table_t *table,
    ngx_http_vibelock_handle_t *handle)
{
    uint32_t  n;

    ngx_http_vibelock_table_lock(table);

    n = ngx_http_vibelock_table_held(table, handle);

    if (n != NGX_HTTP_VIBELOCK_NONE) {
        ngx_http_vibelock_table_drop(table, n);
    }

    ngx_http_vibelock_table_unlock(table);

    return (n != NGX_HTTP_VIBELOCK_NONE) ? NGX_OK : NGX_DECLINED;
}


ngx_int_t
ngx_http_vibelock_table_keep(ngx_http_vibelock_table_t *table,
    ngx_http_vibelock_handle_t *handle)
{
    uint32_t  n;

    ngx_http_vibelock_table_lock(table);

    n = ngx_http_vibelock_table_held(table, handle);

    if (n != NGX_HTTP_VIBELOCK_NONE) {
        ngx_http_vibelock_table_stick(table, n, 0);
    }

    ngx_http_vibelock_table_unlock(table);

    return (n != NGX_HTTP_VIBELOCK_NONE) ? NGX_OK : NGX_DECLINED;
}


ngx_int_t
ngx_http_vibelock_table_find(ngx_http_vibelock_table_t *table, ngx_str_t *key,
    ngx_http_vibelock_lock_t *lock)
{
    uint32_t  n, hash;

    if (key->len > NGX_HTTP_VIBELOCK_KEY_MAX) {
        return NGX_DECLINED;
    }

    hash = ngx_http_vibelock_table_hash(table, key);

    if (ngx_http_vibelock_table_vacant(table, hash)) {
        return NGX_DECLINED;
    }

    ngx_http_vibelock_table_lock(table);

    n = ngx_http_vibelock_table_lookup(table, hash, key);

    if (n != NGX_HTTP_VIBELOCK_NONE) {
        ngx_http_vibelock_table_copy(table, n, lock);
    }

    ngx_http_vibelock_table_unlock(table);

    return (n != NGX_HTTP_VIBELOCK_NONE) ? NGX_OK : NGX_DECLINED;
}


ngx_int_t
ngx_http_vibelock_table_break(ngx_http_vibelock_table_t *table,
    ngx_str_t *key, ngx_http_vibelock_may_pt may, void *data,
    ngx_http_vibelock_lock_t *lock)
{
    uint32_t   n, hash;
    ngx_int_t  rc;

    lock->handle.token = 0;
    rc = NGX_DECLINED;

    if (key->len > NGX_HTTP_VIBELOCK_KEY_MAX) {
        return rc;
    }

    hash = ngx_http_vibelock_table_hash(table, key);

    ngx_http_vibelock_table_lock(table);

    n = ngx_http_vibelock_table_lookup(table, hash, key);

    if (n != NGX_HTTP_VIBELOCK_NONE) {
        ngx_http_vibelock_table_copy(table, n, lock);

        if (may(lock, data)) {
            ngx_http_vibelock_table_drop(table, n);
            rc = NGX_OK;
        }
    }

    ngx_http_vibelock_table_unlock(table);

    return rc;
}


ngx_int_t
ngx_http_vibelock_table_sweep(ngx_http_vibelock_table_t *table)
{
    ngx_int_t   rc;
    ngx_uint_t  steps;

    steps = NGX_HTTP_VIBELOCK_TABLE_STEP;

    ngx_http_vibelock_table_lock(table);

    do {
        rc = ngx_http_vibelock_table_turn(table, &steps);
    } while (rc == NGX_OK && steps);

    ngx_http_vibelock_table_unlock(table);

    return (rc == NGX_DONE) ? NGX_OK : NGX_AGAIN;
}


ngx_int_t
ngx_http_vibelock_table_search(ngx_http_vibelock_table_t *table,
    ngx_http_vibelock_visit_pt visit, void *data)
{
    u_char                     buf[NGX_HTTP_VIBELOCK_KEY_MAX];
    uint32_t                   n;
    ngx_str_t                  key;
    ngx_uint_t                 steps;
    ngx_http_vibelock_lock_t   lock;
    ngx_http_vibelock_node_t  *node;

    if (table->search == NGX_HTTP_VIBELOCK_NONE) {
        return NGX_OK;
    }

    ngx_http_vibelock_table_lock(table);

    for (steps = NGX_HTTP_VIBELOCK_TABLE_STEP; steps; steps--) {
        n = table->search;

        if (n >= table->cells.fresh) {

            /* all locks of those who are gone are marked now */

            table->ngone = 0;

            ngx_memory_barrier();
            ngx_http_vibelock_crash_step();

            table->search = NGX_HTTP_VIBELOCK_NONE;
            break;
        }

        if (!ngx_http_vibelock_table_orphan(table, n)) {
            table->search = n + 1;
            continue;
        }

        node = ngx_http_vibelock_node(table, n);
        node->flags &= ~NGX_HTTP_VIBELOCK_ORPHAN;

        table->search = n + 1;

        if (node->expires <= ngx_current_msec) {
            continue;
        }

        ngx_http_vibelock_table_copy(table, n, &lock);

        key.data = buf;
        key.len = ngx_http_vibelock_cells_copy(&table->cells, n, buf);

        ngx_http_vibelock_table_unlock(table);

        visit(&lock, &key, data);

        return NGX_AGAIN;
    }

    ngx_http_vibelock_table_unlock(table);

    return steps ? NGX_OK : NGX_AGAIN;
}


ngx_int_t
ngx_http_vibelock_table_scan(ngx_http_vibelock_table_t *table,
    uint32_t *cell, ngx_http_vibelock_visit_pt visit, void *data)
{
    u_char                     buf[NGX_HTTP_VIBELOCK_KEY_MAX];
    uint32_t                   n, last;
    ngx_str_t                  key;
    ngx_http_vibelock_lock_t   lock;
    ngx_http_vibelock_node_t  *node;

    key.data = buf;

    ngx_http_vibelock_table_lock(table);

    last = ngx_min(table->cells.fresh,
                   *cell + NGX_HTTP_VIBELOCK_TABLE_STEP);

    for (n = *cell; n < last; n++) {
        node = ngx_http_vibelock_node(table, n);

        if (node->cell.kind != NGX_HTTP_VIBELOCK_LOCK
            || ngx_http_vibelock_table_deadline(table, node)
               <= ngx_current_msec)
        {
            continue;
        }

        ngx_http_vibelock_table_copy(table, n, &lock);
        key.len = ngx_http_vibelock_cells_copy(&table->cells, n, buf);

        visit(&lock, &key, data);
    }

    *cell = n;
    last = table->cells.fresh;

    ngx_http_vibelock_table_unlock(table);

    return (n < last) ? NGX_AGAIN : NGX_OK;
}


void
ngx_http_vibelock_table_usage(ngx_http_vibelock_table_t *table,
    ngx_http_vibelock_usage_t *usage)
{
    ngx_http_vibelock_table_lock(table);

    usage->cells = table->cells.total;
    usage->used = table->cells.used;
    usage->locks = table->locks;
    usage->rebuilds = table->rebuilds;
    usage->expired = table->expired;

    ngx_http_vibelock_table_unlock(table);
}


static void
ngx_http_vibelock_table_lock(ngx_http_vibelock_table_t *table)
{
    ngx_http_vibelock_mutex_lock(table->shpool);

    ngx_http_vibelock_crash_arm();
    ngx_http_vibelock_crash_step();

    if (table->changing) {
        ngx_http_vibelock_table_rebuild(table);
    }
}


static void
ngx_http_vibelock_table_unlock(ngx_http_vibelock_table_t *table)
{
    ngx_http_vibelock_crash_step();

    ngx_shmtx_unlock(&table->shpool->mutex);
}


/*
 * The one before died while it changed something.  The cells tell what there
 * is: all that leads to them is made anew.
 */

static void
ngx_http_vibelock_table_rebuild(ngx_http_vibelock_table_t *table)
{
    uint32_t                   n;
    ngx_http_vibelock_name_t  *op;
    ngx_http_vibelock_cell_t  *cell;

    ngx_http_vibelock_crash_step();

    ngx_http_vibelock_cells_rebuild(&table->cells);

    ngx_http_vibelock_crash_step();

    table->names = NGX_HTTP_VIBELOCK_NONE;
    table->locks = 0;

    ngx_memset(table->index, 0xff, table->slots * sizeof(uint32_t));

    ngx_http_vibelock_crash_step();

    ngx_http_vibelock_wheel_init(&table->wheel, ngx_current_msec);

    for (n = 0; n < table->cells.fresh; n++) {
        cell = ngx_http_vibelock_cell(&table->cells, n);

        switch (cell->kind) {

        case NGX_HTTP_VIBELOCK_LOCK:
            ngx_http_vibelock_table_link(table, n);
            break;

        case NGX_HTTP_VIBELOCK_OPERATION:
            op = ngx_http_vibelock_name(table, n);
            op->next = table->names;
            table->names = n;
            break;
        }
    }

    /* whoever sees the new number sees the new index: vacant() */

    ngx_memory_barrier();

    table->rebuilds++;

    ngx_http_vibelock_table_changed(table);
}


static uint32_t
ngx_http_vibelock_table_hash(ngx_http_vibelock_table_t *table, ngx_str_t *key)
{
    return (uint32_t) ngx_http_vibelock_hash(&table->seed, key->data,
                                             key->len);
}


static uint32_t *
ngx_http_vibelock_table_slot(ngx_http_vibelock_table_t *table, uint32_t hash)
{
    return &table->index[((uint64_t) hash * table->slots) >> 32];
}


/*
 * 1 when no lock is in that slot of the index, which one look at it tells,
 * without the mutex: unless the index was being made anew meanwhile, when a
 * slot may be empty that is not.
 */

static ngx_uint_t
ngx_http_vibelock_table_vacant(ngx_http_vibelock_table_t *table,
    uint32_t hash)
{
    ngx_uint_t  rebuilds;

    rebuilds = table->rebuilds;

    ngx_memory_barrier();

    if (*ngx_http_vibelock_table_slot(table, hash) != NGX_HTTP_VIBELOCK_NONE) {
        return 0;
    }

    ngx_memory_barrier();

    if (table->changing) {
        return 0;
    }

    ngx_memory_barrier();

    return table->rebuilds == rebuilds;
}


/*
 * The live lock of that key, or NONE; an expired one is gone when it is met.
 */

static uint32_t
ngx_http_vibelock_table_lookup(ngx_http_vibelock_table_t *table,
    uint32_t hash, ngx_str_t *key)
{
    uint32_t                   n;
    ngx_http_vibelock_node_t  *node;

    for (n = *ngx_http_vibelock_table_slot(table, hash);
         n != NGX_HTTP_VIBELOCK_NONE;
         n = node->chain)
    {
        node = ngx_http_vibelock_node(table, n);

        if (node->hash != hash
            || !ngx_http_vibelock_cells_equal(&table->cells, n, key))
        {
            continue;
        }

        if (ngx_http_vibelock_table_deadline(table, node) > ngx_current_msec) {
            return n;
        }

        ngx_http_vibelock_table_drop(table, n);
        table->expired++;

        break;
    }

    return NGX_HTTP_VIBELOCK_NONE;
}


/*
 * The lock of that handle, if it still is what it was given for.
 */

static uint32_t
ngx_http_vibelock_table_held(ngx_http_vibelock_table_t *table,
    ngx_http_vibelock_handle_t *handle)
{
    ngx_http_vibelock_node_t  *node;

    node = ngx_http_vibelock_node(table, handle->cell);

    if (node->cell.kind != NGX_HTTP_VIBELOCK_LOCK
        || node->token != handle->token)
    {
        return NGX_HTTP_VIBELOCK_NONE;
    }

    if (ngx_http_vibelock_table_deadline(table, node) > ngx_current_msec) {
        return handle->cell;
    }

    ngx_http_vibelock_table_drop(table, handle->cell);
    table->expired++;

    return NGX_HTTP_VIBELOCK_NONE;
}


static uint32_t
ngx_http_vibelock_table_take(ngx_http_vibelock_table_t *table,
    ngx_http_vibelock_claim_t *claim, uint32_t hash)
{
    uint32_t                     n;
    ngx_http_vibelock_node_t    *node;
    ngx_http_vibelock_holder_t  *holder;

    n = ngx_http_vibelock_table_alloc(table,
                                      offsetof(ngx_http_vibelock_node_t, key),
                                      &claim->key);

    if (n == NGX_HTTP_VIBELOCK_NONE) {
        return NGX_HTTP_VIBELOCK_NONE;
    }

    node = ngx_http_vibelock_node(table, n);
    holder = &table->holders[ngx_process_slot];

    node->hash = hash;
    node->token = ++table->token;
    node->acquired = ngx_current_msec;
    node->expires = ngx_current_msec + claim->ttl;
    node->operation = claim->operation;
    node->generation = holder->generation;
    node->slot = (uint16_t) ngx_process_slot;
    node->flags = claim->overrun ? NGX_HTTP_VIBELOCK_OVERRUN : 0;

    if (claim->owner) {
        ngx_memcpy(node->owner, claim->owner, NGX_HTTP_VIBELOCK_OWNER_LEN);
        node->flags |= NGX_HTTP_VIBELOCK_OWNED;
    }

    ngx_memory_barrier();
    ngx_http_vibelock_crash_step();

    node->cell.kind = NGX_HTTP_VIBELOCK_LOCK;

    ngx_http_vibelock_table_link(table, n);

    ngx_http_vibelock_table_changed(table);

    return n;
}


/*
 * Cells for a text, be they reclaimed from what is due.  NONE when there are
 * not enough, else "changing" is set.
 */

static uint32_t
ngx_http_vibelock_table_alloc(ngx_http_vibelock_table_t *table, size_t head,
    ngx_str_t *text)
{
    uint32_t    n;
    ngx_uint_t  steps;

    steps = NGX_HTTP_VIBELOCK_TABLE_FULL;

    for ( ;; ) {
        ngx_http_vibelock_table_change(table);

        n = ngx_http_vibelock_cells_alloc(&table->cells, head, text);

        if (n != NGX_HTTP_VIBELOCK_NONE) {
            return n;
        }

        ngx_http_vibelock_table_changed(table);

        if (steps == 0
            || ngx_http_vibelock_table_turn(table, &steps) == NGX_DONE)
        {
            return NGX_HTTP_VIBELOCK_NONE;
        }
    }
}


static void
ngx_http_vibelock_table_link(ngx_http_vibelock_table_t *table, uint32_t n)
{
    uint32_t                  *slot;
    ngx_http_vibelock_node_t  *node;

    node = ngx_http_vibelock_node(table, n);
    slot = ngx_http_vibelock_table_slot(table, node->hash);

    ngx_http_vibelock_crash_step();

    node->chain = *slot;
    *slot = n;

    table->locks++;

    ngx_http_vibelock_wheel_insert(&table->wheel, n);
}


static void
ngx_http_vibelock_table_drop(ngx_http_vibelock_table_t *table, uint32_t n)
{
    ngx_http_vibelock_table_change(table);
    ngx_http_vibelock_table_unlink(table, n);
    ngx_http_vibelock_table_changed(table);
}


static void
ngx_http_vibelock_table_unlink(ngx_http_vibelock_table_t *table, uint32_t n)
{
    uint32_t                  *slot;
    ngx_http_vibelock_node_t  *node;

    node = ngx_http_vibelock_node(table, n);

    for (slot = ngx_http_vibelock_table_slot(table, node->hash);
         *slot != n;
         slot = &ngx_http_vibelock_node(table, *slot)->chain)
    {
        /* void */
    }

    *slot = node->chain;

    table->locks--;

    ngx_http_vibelock_wheel_remove(&table->wheel, n);
    ngx_http_vibelock_cells_free(&table->cells, n);
}


/*
 * Takes what is due from the wheel, up to one lock freed: NGX_OK when one
 * was, NGX_AGAIN when the steps ran out before, NGX_DONE: nothing is due.
 */

static ngx_int_t
ngx_http_vibelock_table_turn(ngx_http_vibelock_table_t *table,
    ngx_uint_t *steps)
{
    uint32_t   n;
    ngx_int_t  rc;

    while (*steps) {
        (*steps)--;

        ngx_http_vibelock_table_change(table);

        rc = ngx_http_vibelock_wheel_turn(&table->wheel, ngx_current_msec, &n);

        if (rc == NGX_OK) {
            rc = ngx_http_vibelock_table_due(table, n);
        }

        ngx_http_vibelock_table_changed(table);

        if (rc != NGX_AGAIN) {
            return rc;
        }
    }

    return NGX_AGAIN;
}


/*
 * Lock n came out of the wheel: NGX_OK when it was freed, else NGX_AGAIN.
 */

static ngx_int_t
ngx_http_vibelock_table_due(ngx_http_vibelock_table_t *table, uint32_t n)
{
    ngx_msec_t                 deadline;
    ngx_http_vibelock_node_t  *node;

    node = ngx_http_vibelock_node(table, n);
    deadline = ngx_http_vibelock_table_deadline(table, node);

    if (deadline <= ngx_current_msec) {
        ngx_http_vibelock_table_unlink(table, n);
        table->expired++;

        return NGX_OK;
    }

    /*
     * An overrun lock stays out of the wheel until its request ends, then
     * stick() hangs it in again.  One of a dead worker that has one more TTL
     * is hung in by search(), which such a death starts.
     */

    return NGX_AGAIN;
}


/*
 * The worker in that place is gone, if one was there.
 */

static void
ngx_http_vibelock_table_depart(ngx_http_vibelock_table_t *table,
    ngx_http_vibelock_holder_t *holder)
{
    uint32_t                   n;
    ngx_http_vibelock_gone_t  *gone;

    if (holder->generation == 0) {
        return;
    }

    if (table->ngone == NGX_HTTP_VIBELOCK_TABLE_GONE) {

        /* workers die faster than the search goes: this once, all of it */

        for (n = 0; n < table->cells.fresh; n++) {
            (void) ngx_http_vibelock_table_orphan(table, n);
        }

        table->ngone = 0;
    }

    gone = &table->gone[table->ngone];

    gone->generation = holder->generation;
    gone->when = ngx_current_msec;

    ngx_memory_barrier();
    ngx_http_vibelock_crash_step();

    table->search = 0;

    ngx_memory_barrier();
    ngx_http_vibelock_crash_step();

    table->ngone++;

    ngx_memory_barrier();
    ngx_http_vibelock_crash_step();

    holder->generation = 0;

    ngx_memory_barrier();
    ngx_http_vibelock_crash_step();
}


static ngx_uint_t
ngx_http_vibelock_table_dead(ngx_http_vibelock_table_t *table,
    ngx_http_vibelock_node_t *node)
{
    /* who did not enter never was there */

    return node->generation == 0
           || table->holders[node->slot].generation != node->generation;
}


/*
 * When the worker of this lock went, which is gone.
 */

static ngx_msec_t
ngx_http_vibelock_table_died(ngx_http_vibelock_table_t *table,
    ngx_http_vibelock_node_t *node)
{
    uint32_t  i;

    for (i = 0; i < table->ngone; i++) {
        if (table->gone[i].generation == node->generation) {
            return table->gone[i].when;
        }
    }

    return node->acquired;
}


/*
 * When the lock is gone.  An overrun lock lasts while its request is open.
 * One that became stuck past its TTL has one more; stick() has settled that,
 * but for a worker that died and whose locks were not all found yet.
 */

static ngx_msec_t
ngx_http_vibelock_table_deadline(ngx_http_vibelock_table_t *table,
    ngx_http_vibelock_node_t *node)
{
    ngx_msec_t  when;

    if ((node->flags & (NGX_HTTP_VIBELOCK_OVERRUN|NGX_HTTP_VIBELOCK_STUCK))
        != NGX_HTTP_VIBELOCK_OVERRUN)
    {
        return node->expires;
    }

    if (!ngx_http_vibelock_table_dead(table, node)) {
        return NGX_HTTP_VIBELOCK_NEVER;
    }

    when = ngx_http_vibelock_table_died(table, node);

    if (when < node->expires) {
        return node->expires;
    }

    return when + (node->expires - node->acquired);
}


/*
 * Marks lock n, if it is one, as stuck when its worker is gone: 1 when
 * search() has to tell so.
 */

static ngx_uint_t
ngx_http_vibelock_table_orphan(ngx_http_vibelock_table_t *table, uint32_t n)
{
    ngx_http_vibelock_node_t  *node;

    node = ngx_http_vibelock_node(table, n);

    if (node->cell.kind != NGX_HTTP_VIBELOCK_LOCK) {
        return 0;
    }

    if (!(node->flags & NGX_HTTP_VIBELOCK_STUCK)
        && ngx_http_vibelock_table_dead(table, node))
    {
        ngx_http_vibelock_table_stick(table, n, NGX_HTTP_VIBELOCK_ORPHAN);
    }

    return (node->flags & NGX_HTTP_VIBELOCK_ORPHAN) != 0;
}


/*
 * The request of this lock is gone, now or with its worker.
 */

static void
ngx_http_vibelock_table_stick(ngx_http_vibelock_table_t *table, uint32_t n,
    uint8_t flags)
{
    ngx_msec_t                 when;
    ngx_http_vibelock_node_t  *node;

    node = ngx_http_vibelock_node(table, n);

    if (node->flags & NGX_HTTP_VIBELOCK_STUCK) {
        return;
    }

    ngx_http_vibelock_table_change(table);

    /* it may be out of the wheel, past its TTL */

    ngx_http_vibelock_wheel_remove(&table->wheel, n);

    when = ngx_http_vibelock_table_dead(table, node)
           ? ngx_http_vibelock_table_died(table, node) : ngx_current_msec;

    if ((node->flags & NGX_HTTP_VIBELOCK_OVERRUN) && when >= node->expires) {
        node->expires = when + (node->expires - node->acquired);
    }

    ngx_memory_barrier();
    ngx_http_vibelock_crash_step();

    node->flags |= NGX_HTTP_VIBELOCK_STUCK|flags;

    ngx_http_vibelock_wheel_insert(&table->wheel, n);

    ngx_http_vibelock_table_changed(table);
}


static void
ngx_http_vibelock_table_copy(ngx_http_vibelock_table_t *table, uint32_t n,
    ngx_http_vibelock_lock_t *lock)
{
    ngx_msec_t                 now, deadline;
    ngx_http_vibelock_name_t  *op;
    ngx_http_vibelock_node_t  *node;

    node = ngx_http_vibelock_node(table, n);

    /* another worker's clock may be a little ahead of ours */

    now = ngx_max(ngx_current_msec, node->acquired);

    deadline = ngx_http_vibelock_table_deadline(table, node);

    if (deadline == NGX_HTTP_VIBELOCK_NEVER) {
        deadline = node->expires;
    }

    lock->handle.cell = n;
    lock->handle.token = node->token;
    lock->age = now - node->acquired;
    lock->rest = (deadline > now) ? deadline - now : 0;

    op = ngx_http_vibelock_name(table, node->operation);
    lock->operation.data = op->name;
    lock->operation.len = op->cell.len;

    lock->owned = (node->flags & NGX_HTTP_VIBELOCK_OWNED) != 0;
    lock->overrun = (node->flags & NGX_HTTP_VIBELOCK_OVERRUN) != 0;
    lock->stuck = (node->flags & NGX_HTTP_VIBELOCK_STUCK)
                  || ngx_http_vibelock_table_dead(table, node);

    ngx_memcpy(lock->owner, node->owner, NGX_HTTP_VIBELOCK_OWNER_LEN);
}
