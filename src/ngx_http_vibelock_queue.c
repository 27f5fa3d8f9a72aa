
/*
 * Copyright (C) the vibelock authors
 *
 * The releases are cells, as the locks of the table are; what leads to them,
 * an index and three lists, is made anew from the cells when a worker died
 * while it changed something.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_http_vibelock_cells.h"
#include "ngx_http_vibelock_crash.h"
#include "ngx_http_vibelock_hash.h"
#include "ngx_http_vibelock_mutex.h"
#include "ngx_http_vibelock_queue.h"


#define NGX_HTTP_VIBELOCK_QUEUE_MAX      1000     /* releases */
#define NGX_HTTP_VIBELOCK_QUEUE_AGE      60000    /* ms */
#define NGX_HTTP_VIBELOCK_QUEUE_REST     1000     /* ms */

/* what a cell is: the state of its release, and the list it is in */

#define NGX_HTTP_VIBELOCK_QUEUE_WAITING  8
#define NGX_HTTP_VIBELOCK_QUEUE_SENT     9
#define NGX_HTTP_VIBELOCK_QUEUE_RESTING  10

#define NGX_HTTP_VIBELOCK_QUEUE_LISTS    3

/* releases that one call may look at with the mutex held */
#define NGX_HTTP_VIBELOCK_QUEUE_STEP     16


/* the head leaves room for a key of 36 bytes, a UUID, in a cell of 128 */

typedef struct {
    ngx_http_vibelock_cell_t       cell;
    uint32_t                       hash;
    uint32_t                       chain;     /* next of the same index slot */
    uint32_t                       next;      /* in its list */
    uint32_t                       prev;
    ngx_msec_t                     at;
    ngx_msec_t                     again;     /* of a repeat to send, or 0 */
    ngx_msec_t                     until;     /* the end of its state */
    ngx_msec_t                     moment;    /* that it is of, the last one */
    uint32_t                       serial;
    u_char                         owner[NGX_HTTP_VIBELOCK_QUEUE_OWNER];
    u_char                         key[NGX_HTTP_VIBELOCK_CELL_SIZE - 92];
} ngx_http_vibelock_queue_node_t;


typedef struct {
    uint32_t                       first;
    uint32_t                       last;
} ngx_http_vibelock_queue_list_t;


struct ngx_http_vibelock_queue_s {

    /* set while what follows from the cells is changed */
    ngx_uint_t                      changing;

    ngx_http_vibelock_seed_t        seed;
    uint32_t                        serial;    /* the last one given */
    uint32_t                        n;         /* releases */
    uint32_t                        queued;    /* those with more to send */

    ngx_uint_t                      published;
    ngx_uint_t                      merged;
    ngx_uint_t                      dropped;

    ngx_http_vibelock_queue_list_t  lists[NGX_HTTP_VIBELOCK_QUEUE_LISTS];

    uint32_t                       *index;
    uint32_t                        slots;
    ngx_http_vibelock_cells_t       cells;
};


#define ngx_http_vibelock_queue_node(queue, n)                                \
    ((ngx_http_vibelock_queue_node_t *)                                       \
         ngx_http_vibelock_cell(&(queue)->cells, n))

#define ngx_http_vibelock_queue_list(queue, kind)                             \
    (&(queue)->lists[(kind) - NGX_HTTP_VIBELOCK_QUEUE_WAITING])

#define ngx_http_vibelock_queue_first(queue, kind)                            \
    (ngx_http_vibelock_queue_list(queue, kind)->first)


static void ngx_http_vibelock_queue_lock(ngx_http_vibelock_queue_t *queue,
    ngx_slab_pool_t *pool);
static void ngx_http_vibelock_queue_unlock(ngx_slab_pool_t *pool);
static void ngx_http_vibelock_queue_rebuild(ngx_http_vibelock_queue_t *queue);
static void ngx_http_vibelock_queue_clear(ngx_http_vibelock_queue_t *queue);
static uint32_t *ngx_http_vibelock_queue_slot(
    ngx_http_vibelock_queue_t *queue, uint32_t hash);
static uint32_t ngx_http_vibelock_queue_lookup(
    ngx_http_vibelock_queue_t *queue, uint32_t hash, ngx_str_t *key,
    u_char *owner);
static ngx_int_t ngx_http_vibelock_queue_merge(
    ngx_http_vibelock_queue_t *queue, uint32_t n, ngx_msec_t moment);
static ngx_int_t ngx_http_vibelock_queue_add(ngx_http_vibelock_queue_t *queue,
    uint32_t hash, ngx_str_t *key, u_char *owner, ngx_msec_t moment,
    ngx_msec_t limit, ngx_http_vibelock_queued_t *item);
static uint32_t ngx_http_vibelock_queue_alloc(
    ngx_http_vibelock_queue_t *queue, ngx_str_t *key);
static ngx_uint_t ngx_http_vibelock_queue_sacrifice(
    ngx_http_vibelock_queue_t *queue);
static void ngx_http_vibelock_queue_copy(ngx_http_vibelock_queue_t *queue,
    uint32_t n, ngx_http_vibelock_queued_t *item);
static uint32_t ngx_http_vibelock_queue_mine(ngx_http_vibelock_queue_t *queue,
    uint32_t cell, uint32_t serial);
static ngx_uint_t ngx_http_vibelock_queue_due(
    ngx_http_vibelock_queue_t *queue);
static void ngx_http_vibelock_queue_again(ngx_http_vibelock_queue_t *queue,
    uint32_t n);
static ngx_msec_t ngx_http_vibelock_queue_next(
    ngx_http_vibelock_queue_t *queue);
static void ngx_http_vibelock_queue_link(ngx_http_vibelock_queue_t *queue,
    uint32_t n);
static void ngx_http_vibelock_queue_move(ngx_http_vibelock_queue_t *queue,
    uint32_t n, uint8_t kind);
static void ngx_http_vibelock_queue_append(ngx_http_vibelock_queue_t *queue,
    uint32_t n);
static void ngx_http_vibelock_queue_detach(ngx_http_vibelock_queue_t *queue,
    uint32_t n);
static void ngx_http_vibelock_queue_free(ngx_http_vibelock_queue_t *queue,
    uint32_t n);
static ngx_uint_t ngx_http_vibelock_queue_sends(
    ngx_http_vibelock_queue_node_t *node);


/* "changing" before and after the rest, as in the table */

#define ngx_http_vibelock_queue_change(queue)                                 \
    (queue)->changing = 1;                                                    \
    ngx_memory_barrier();                                                     \
    ngx_http_vibelock_crash_step()

#define ngx_http_vibelock_queue_changed(queue)                                \
    ngx_http_vibelock_crash_step();                                           \
    ngx_memory_barrier();                                                     \
    (queue)->changing = 0


size_t
ngx_http_vibelock_queue_size(void)
{
    return sizeof(ngx_http_vibelock_queue_t) + NGX_HTTP_VIBELOCK_CELL_SIZE
           + NGX_HTTP_VIBELOCK_QUEUE_MAX
             * (NGX_HTTP_VIBELOCK_CELL_SIZE + sizeof(uint32_t));
}


void
ngx_http_vibelock_queue_init(ngx_http_vibelock_queue_t *queue, size_t size)
{
    u_char    *p;
    uint32_t   n;

    ngx_memzero(queue, sizeof(ngx_http_vibelock_queue_t));

    n = (uint32_t) ((size - sizeof(ngx_http_vibelock_queue_t)
                     - NGX_HTTP_VIBELOCK_CELL_SIZE)
                    / (NGX_HTTP_VIBELOCK_CELL_SIZE + sizeof(uint32_t)));

    ngx_http_vibelock_hash_random(&queue->seed, sizeof(queue->seed));

    p = (u_char *) queue + sizeof(ngx_http_vibelock_queue_t);

    queue->index = (uint32_t *) p;
    queue->slots = n;

    p = ngx_align_ptr(p + n * sizeof(uint32_t), NGX_HTTP_VIBELOCK_CELL_SIZE);

    ngx_http_vibelock_cells_init(&queue->cells, p, n);

    ngx_http_vibelock_queue_clear(queue);
}


ngx_int_t
ngx_http_vibelock_queue_put(ngx_http_vibelock_queue_t *queue,
    ngx_slab_pool_t *pool, ngx_str_t *key, u_char *owner, ngx_msec_t moment,
    ngx_msec_t limit, ngx_http_vibelock_queued_t *item)
{
    uint32_t   n, hash;
    ngx_int_t  rc;

    hash = (uint32_t) ngx_http_vibelock_hash(&queue->seed, key->data,
                                             key->len);

    ngx_http_vibelock_queue_lock(queue, pool);

    n = ngx_http_vibelock_queue_lookup(queue, hash, key, owner);

    ngx_http_vibelock_queue_change(queue);

    if (n != NGX_HTTP_VIBELOCK_NONE) {
        rc = ngx_http_vibelock_queue_merge(queue, n, moment);

    } else {
        rc = ngx_http_vibelock_queue_add(queue, hash, key, owner, moment,
                                         limit, item);
    }

    ngx_http_vibelock_queue_changed(queue);

    ngx_http_vibelock_queue_unlock(pool);

    return rc;
}


ngx_int_t
ngx_http_vibelock_queue_take(ngx_http_vibelock_queue_t *queue,
    ngx_slab_pool_t *pool, ngx_msec_t limit, ngx_http_vibelock_queued_t *item)
{
    uint32_t                         n;
    ngx_http_vibelock_queue_node_t  *node;

    ngx_http_vibelock_queue_lock(queue, pool);

    n = ngx_http_vibelock_queue_first(queue, NGX_HTTP_VIBELOCK_QUEUE_WAITING);

    if (n == NGX_HTTP_VIBELOCK_NONE) {
        ngx_http_vibelock_queue_unlock(pool);
        return NGX_DECLINED;
    }

    node = ngx_http_vibelock_queue_node(queue, n);

    ngx_http_vibelock_queue_change(queue);

    node->serial = ++queue->serial;
    node->until = ngx_current_msec + limit;

    ngx_http_vibelock_queue_move(queue, n, NGX_HTTP_VIBELOCK_QUEUE_SENT);

    ngx_http_vibelock_queue_changed(queue);

    ngx_http_vibelock_queue_copy(queue, n, item);

    ngx_http_vibelock_queue_unlock(pool);

    return NGX_OK;
}


void
ngx_http_vibelock_queue_sent(ngx_http_vibelock_queue_t *queue,
    ngx_slab_pool_t *pool, uint32_t cell, uint32_t serial)
{
    uint32_t                         n;
    ngx_http_vibelock_queue_node_t  *node;

    ngx_http_vibelock_queue_lock(queue, pool);

    queue->published++;

    n = ngx_http_vibelock_queue_mine(queue, cell, serial);

    if (n != NGX_HTTP_VIBELOCK_NONE) {
        node = ngx_http_vibelock_queue_node(queue, n);

        ngx_http_vibelock_queue_change(queue);

        node->until = ngx_current_msec + NGX_HTTP_VIBELOCK_QUEUE_REST;

        ngx_http_vibelock_queue_move(queue, n,
                                     NGX_HTTP_VIBELOCK_QUEUE_RESTING);

        ngx_http_vibelock_queue_changed(queue);
    }

    ngx_http_vibelock_queue_unlock(pool);
}


void
ngx_http_vibelock_queue_back(ngx_http_vibelock_queue_t *queue,
    ngx_slab_pool_t *pool, uint32_t cell, uint32_t serial)
{
    uint32_t  n;

    ngx_http_vibelock_queue_lock(queue, pool);

    n = ngx_http_vibelock_queue_mine(queue, cell, serial);

    if (n != NGX_HTTP_VIBELOCK_NONE) {
        ngx_http_vibelock_queue_change(queue);
        ngx_http_vibelock_queue_again(queue, n);
        ngx_http_vibelock_queue_changed(queue);
    }

    ngx_http_vibelock_queue_unlock(pool);
}


ngx_int_t
ngx_http_vibelock_queue_turn(ngx_http_vibelock_queue_t *queue,
    ngx_slab_pool_t *pool, ngx_msec_t *next)
{
    ngx_uint_t  i, due;

    *next = 0;

    if (queue->n == 0 && !queue->changing) {
        return NGX_OK;
    }

    ngx_http_vibelock_queue_lock(queue, pool);

    due = 1;

    for (i = 0; due && i < NGX_HTTP_VIBELOCK_QUEUE_STEP; i++) {
        ngx_http_vibelock_queue_change(queue);
        due = ngx_http_vibelock_queue_due(queue);
        ngx_http_vibelock_queue_changed(queue);
    }

    if (!due) {
        *next = ngx_http_vibelock_queue_next(queue);
    }

    ngx_http_vibelock_queue_unlock(pool);

    return due ? NGX_AGAIN : NGX_OK;
}


/* a thousand at the most, in one go: of a worker that ends */

void
ngx_http_vibelock_queue_hurry(ngx_http_vibelock_queue_t *queue,
    ngx_slab_pool_t *pool)
{
    uint32_t                         n, next;
    ngx_http_vibelock_queue_node_t  *node;

    if (queue->n == 0 && !queue->changing) {
        return;
    }

    ngx_http_vibelock_queue_lock(queue, pool);

    ngx_http_vibelock_queue_change(queue);

    for (n = ngx_http_vibelock_queue_first(queue,
                                           NGX_HTTP_VIBELOCK_QUEUE_RESTING);
         n != NGX_HTTP_VIBELOCK_NONE;
         n = next)
    {
        node = ngx_http_vibelock_queue_node(queue, n);
        next = node->next;

        if (node->again) {
            ngx_http_vibelock_queue_again(queue, n);
        }
    }

    ngx_http_vibelock_queue_changed(queue);

    ngx_http_vibelock_queue_unlock(pool);
}


ngx_uint_t
ngx_http_vibelock_queue_waits(ngx_http_vibelock_queue_t *queue)
{
    return ngx_http_vibelock_queue_first(queue,
                                         NGX_HTTP_VIBELOCK_QUEUE_WAITING)
           != NGX_HTTP_VIBELOCK_NONE;
}


void
ngx_http_vibelock_queue_usage(ngx_http_vibelock_queue_t *queue,
    ngx_http_vibelock_queue_usage_t *usage)
{
    usage->queued = queue->queued;
    usage->published = queue->published;
    usage->merged = queue->merged;
    usage->dropped = queue->dropped;
}


static void
ngx_http_vibelock_queue_lock(ngx_http_vibelock_queue_t *queue,
    ngx_slab_pool_t *pool)
{
    ngx_http_vibelock_mutex_lock(pool);

    ngx_http_vibelock_crash_arm();
    ngx_http_vibelock_crash_step();

    if (queue->changing) {
        ngx_http_vibelock_queue_rebuild(queue);
    }
}


static void
ngx_http_vibelock_queue_unlock(ngx_slab_pool_t *pool)
{
    ngx_http_vibelock_crash_step();

    ngx_shmtx_unlock(&pool->mutex);
}


static void
ngx_http_vibelock_queue_rebuild(ngx_http_vibelock_queue_t *queue)
{
    uint32_t                         n;
    ngx_http_vibelock_queue_node_t  *node;

    ngx_http_vibelock_crash_step();

    ngx_http_vibelock_cells_rebuild(&queue->cells);

    ngx_http_vibelock_crash_step();

    ngx_http_vibelock_queue_clear(queue);

    for (n = 0; n < queue->cells.fresh; n++) {
        node = ngx_http_vibelock_queue_node(queue, n);

        if (node->cell.kind < NGX_HTTP_VIBELOCK_QUEUE_WAITING) {
            continue;
        }

        /* the list of those that rest was in the order of their ends */

        if (node->cell.kind == NGX_HTTP_VIBELOCK_QUEUE_RESTING) {
            node->until = ngx_current_msec;
        }

        ngx_http_vibelock_queue_link(queue, n);
    }

    ngx_http_vibelock_queue_changed(queue);
}


/* no release in the lists and the index */

static void
ngx_http_vibelock_queue_clear(ngx_http_vibelock_queue_t *queue)
{
    queue->n = 0;
    queue->queued = 0;

    ngx_memset(queue->lists, 0xff, sizeof(queue->lists));
    ngx_memset(queue->index, 0xff, queue->slots * sizeof(uint32_t));
}


static uint32_t *
ngx_http_vibelock_queue_slot(ngx_http_vibelock_queue_t *queue, uint32_t hash)
{
    return &queue->index[((uint64_t) hash * queue->slots) >> 32];
}


static uint32_t
ngx_http_vibelock_queue_lookup(ngx_http_vibelock_queue_t *queue, uint32_t hash,
    ngx_str_t *key, u_char *owner)
{
    uint32_t                         n;
    ngx_http_vibelock_queue_node_t  *node;

    for (n = *ngx_http_vibelock_queue_slot(queue, hash);
         n != NGX_HTTP_VIBELOCK_NONE;
         n = node->chain)
    {
        node = ngx_http_vibelock_queue_node(queue, n);

        if (node->hash == hash
            && ngx_memcmp(node->owner, owner, NGX_HTTP_VIBELOCK_QUEUE_OWNER)
               == 0
            && ngx_http_vibelock_cells_equal(&queue->cells, n, key))
        {
            return n;
        }
    }

    return NGX_HTTP_VIBELOCK_NONE;
}


/*
 * Release n again.  One that waits is now of this moment, which covers what
 * it was before.
 */

static ngx_int_t
ngx_http_vibelock_queue_merge(ngx_http_vibelock_queue_t *queue, uint32_t n,
    ngx_msec_t moment)
{
    ngx_http_vibelock_queue_node_t  *node;

    node = ngx_http_vibelock_queue_node(queue, n);

    node->moment = ngx_max(node->moment, moment);

    if (node->cell.kind == NGX_HTTP_VIBELOCK_QUEUE_WAITING) {
        queue->merged++;

        node->at = ngx_current_msec;
        ngx_http_vibelock_queue_move(queue, n,
                                     NGX_HTTP_VIBELOCK_QUEUE_WAITING);
        return NGX_BUSY;
    }

    if (node->again) {
        queue->merged++;

    } else if (node->cell.kind == NGX_HTTP_VIBELOCK_QUEUE_RESTING) {
        queue->queued++;
    }

    node->again = ngx_current_msec;

    return NGX_AGAIN;
}


static ngx_int_t
ngx_http_vibelock_queue_add(ngx_http_vibelock_queue_t *queue, uint32_t hash,
    ngx_str_t *key, u_char *owner, ngx_msec_t moment, ngx_msec_t limit,
    ngx_http_vibelock_queued_t *item)
{
    uint32_t                         n;
    ngx_http_vibelock_queue_node_t  *node;

    n = ngx_http_vibelock_queue_alloc(queue, key);

    if (n == NGX_HTTP_VIBELOCK_NONE) {
        queue->dropped++;
        return NGX_DECLINED;
    }

    node = ngx_http_vibelock_queue_node(queue, n);

    node->hash = hash;
    node->at = ngx_current_msec;
    node->again = 0;
    node->until = ngx_current_msec + limit;
    node->moment = moment;
    node->serial = ++queue->serial;
    ngx_memcpy(node->owner, owner, NGX_HTTP_VIBELOCK_QUEUE_OWNER);

    ngx_memory_barrier();
    ngx_http_vibelock_crash_step();

    if (item && !ngx_http_vibelock_queue_waits(queue)) {
        node->cell.kind = NGX_HTTP_VIBELOCK_QUEUE_SENT;

        ngx_http_vibelock_queue_link(queue, n);
        ngx_http_vibelock_queue_copy(queue, n, item);

        return NGX_DONE;
    }

    node->cell.kind = NGX_HTTP_VIBELOCK_QUEUE_WAITING;

    ngx_http_vibelock_queue_link(queue, n);

    return NGX_OK;
}


static uint32_t
ngx_http_vibelock_queue_alloc(ngx_http_vibelock_queue_t *queue, ngx_str_t *key)
{
    uint32_t  n;

    for ( ;; ) {
        if (queue->n < NGX_HTTP_VIBELOCK_QUEUE_MAX) {

            n = ngx_http_vibelock_cells_alloc(&queue->cells,
                                 offsetof(ngx_http_vibelock_queue_node_t, key),
                                 key);

            if (n != NGX_HTTP_VIBELOCK_NONE) {
                return n;
            }
        }

        if (!ngx_http_vibelock_queue_sacrifice(queue)) {
            return NGX_HTTP_VIBELOCK_NONE;
        }
    }
}


/*
 * Makes room, or comes nearer to it: what rests has done its work, what waits
 * longest is the least likely to matter still.  What is under way stays, and a
 * repeat waits without the rest of its second.
 */

static ngx_uint_t
ngx_http_vibelock_queue_sacrifice(ngx_http_vibelock_queue_t *queue)
{
    uint32_t  n;

    n = ngx_http_vibelock_queue_first(queue, NGX_HTTP_VIBELOCK_QUEUE_RESTING);

    if (n != NGX_HTTP_VIBELOCK_NONE) {

        if (ngx_http_vibelock_queue_node(queue, n)->again) {
            ngx_http_vibelock_queue_again(queue, n);

        } else {
            ngx_http_vibelock_queue_free(queue, n);
        }

        return 1;
    }

    n = ngx_http_vibelock_queue_first(queue, NGX_HTTP_VIBELOCK_QUEUE_WAITING);

    if (n == NGX_HTTP_VIBELOCK_NONE) {
        return 0;
    }

    queue->dropped++;
    ngx_http_vibelock_queue_free(queue, n);

    return 1;
}


/* for who takes the release */

static void
ngx_http_vibelock_queue_copy(ngx_http_vibelock_queue_t *queue, uint32_t n,
    ngx_http_vibelock_queued_t *item)
{
    ngx_http_vibelock_queue_node_t  *node;

    node = ngx_http_vibelock_queue_node(queue, n);

    item->cell = n;
    item->serial = node->serial;
    item->at = node->moment;
    ngx_memcpy(item->owner, node->owner, NGX_HTTP_VIBELOCK_QUEUE_OWNER);
    item->key_len = ngx_http_vibelock_cells_copy(&queue->cells, n, item->key);
}


/* the release that was taken, if it still is under way as that */

static uint32_t
ngx_http_vibelock_queue_mine(ngx_http_vibelock_queue_t *queue, uint32_t cell,
    uint32_t serial)
{
    ngx_http_vibelock_queue_node_t  *node;

    node = ngx_http_vibelock_queue_node(queue, cell);

    if (node->cell.kind != NGX_HTTP_VIBELOCK_QUEUE_SENT
        || node->serial != serial)
    {
        return NGX_HTTP_VIBELOCK_NONE;
    }

    return cell;
}


/* does one thing that is due; 0: nothing is */

static ngx_uint_t
ngx_http_vibelock_queue_due(ngx_http_vibelock_queue_t *queue)
{
    uint32_t                         n;
    ngx_http_vibelock_queue_node_t  *node;

    n = ngx_http_vibelock_queue_first(queue, NGX_HTTP_VIBELOCK_QUEUE_RESTING);

    if (n != NGX_HTTP_VIBELOCK_NONE) {
        node = ngx_http_vibelock_queue_node(queue, n);

        if (node->until <= ngx_current_msec) {

            if (node->again) {
                ngx_http_vibelock_queue_again(queue, n);

            } else {
                ngx_http_vibelock_queue_free(queue, n);
            }

            return 1;
        }
    }

    n = ngx_http_vibelock_queue_first(queue, NGX_HTTP_VIBELOCK_QUEUE_SENT);

    if (n != NGX_HTTP_VIBELOCK_NONE) {
        node = ngx_http_vibelock_queue_node(queue, n);

        if (node->until <= ngx_current_msec) {
            ngx_http_vibelock_queue_again(queue, n);
            return 1;
        }
    }

    n = ngx_http_vibelock_queue_first(queue, NGX_HTTP_VIBELOCK_QUEUE_WAITING);

    if (n != NGX_HTTP_VIBELOCK_NONE) {
        node = ngx_http_vibelock_queue_node(queue, n);

        if (ngx_current_msec > node->at + NGX_HTTP_VIBELOCK_QUEUE_AGE) {
            queue->dropped++;
            ngx_http_vibelock_queue_free(queue, n);
            return 1;
        }
    }

    return 0;
}


/* it has to go out, once more or after all, with its repeat in it */

static void
ngx_http_vibelock_queue_again(ngx_http_vibelock_queue_t *queue, uint32_t n)
{
    ngx_http_vibelock_queue_node_t  *node;

    node = ngx_http_vibelock_queue_node(queue, n);

    if (node->again) {

        if (node->cell.kind == NGX_HTTP_VIBELOCK_QUEUE_SENT) {
            queue->merged++;
        }

        node->at = node->again;
    }

    ngx_http_vibelock_crash_step();

    ngx_http_vibelock_queue_move(queue, n, NGX_HTTP_VIBELOCK_QUEUE_WAITING);

    node->again = 0;
}


/* in how many ms a rest ends that has something to send, among the next few */

static ngx_msec_t
ngx_http_vibelock_queue_next(ngx_http_vibelock_queue_t *queue)
{
    uint32_t                         n;
    ngx_uint_t                       i;
    ngx_http_vibelock_queue_node_t  *node;

    n = ngx_http_vibelock_queue_first(queue, NGX_HTTP_VIBELOCK_QUEUE_RESTING);

    for (i = 0;
         n != NGX_HTTP_VIBELOCK_NONE && i < NGX_HTTP_VIBELOCK_QUEUE_STEP;
         i++)
    {
        node = ngx_http_vibelock_queue_node(queue, n);

        if (node->again) {

            /* another worker's clock may have been a little behind ours */

            return (node->until > ngx_current_msec)
                   ? node->until - ngx_current_msec : 1;
        }

        n = node->next;
    }

    return 0;
}


static void
ngx_http_vibelock_queue_link(ngx_http_vibelock_queue_t *queue, uint32_t n)
{
    uint32_t                        *slot;
    ngx_http_vibelock_queue_node_t  *node;

    node = ngx_http_vibelock_queue_node(queue, n);
    slot = ngx_http_vibelock_queue_slot(queue, node->hash);

    ngx_http_vibelock_crash_step();

    node->chain = *slot;
    *slot = n;

    queue->n++;

    ngx_http_vibelock_queue_append(queue, n);
}


static void
ngx_http_vibelock_queue_move(ngx_http_vibelock_queue_t *queue, uint32_t n,
    uint8_t kind)
{
    ngx_http_vibelock_queue_detach(queue, n);

    ngx_http_vibelock_crash_step();

    ngx_http_vibelock_queue_node(queue, n)->cell.kind = kind;

    ngx_http_vibelock_queue_append(queue, n);
}


/* puts n at the end of the list of its kind */

static void
ngx_http_vibelock_queue_append(ngx_http_vibelock_queue_t *queue, uint32_t n)
{
    ngx_http_vibelock_queue_node_t  *node;
    ngx_http_vibelock_queue_list_t  *list;

    node = ngx_http_vibelock_queue_node(queue, n);
    list = ngx_http_vibelock_queue_list(queue, node->cell.kind);

    node->next = NGX_HTTP_VIBELOCK_NONE;
    node->prev = list->last;

    if (list->last == NGX_HTTP_VIBELOCK_NONE) {
        list->first = n;

    } else {
        ngx_http_vibelock_queue_node(queue, list->last)->next = n;
    }

    list->last = n;

    queue->queued += ngx_http_vibelock_queue_sends(node);
}


static void
ngx_http_vibelock_queue_detach(ngx_http_vibelock_queue_t *queue, uint32_t n)
{
    ngx_http_vibelock_queue_node_t  *node;
    ngx_http_vibelock_queue_list_t  *list;

    node = ngx_http_vibelock_queue_node(queue, n);
    list = ngx_http_vibelock_queue_list(queue, node->cell.kind);

    if (node->prev == NGX_HTTP_VIBELOCK_NONE) {
        list->first = node->next;

    } else {
        ngx_http_vibelock_queue_node(queue, node->prev)->next = node->next;
    }

    if (node->next == NGX_HTTP_VIBELOCK_NONE) {
        list->last = node->prev;

    } else {
        ngx_http_vibelock_queue_node(queue, node->next)->prev = node->prev;
    }

    queue->queued -= ngx_http_vibelock_queue_sends(node);
}


static void
ngx_http_vibelock_queue_free(ngx_http_vibelock_queue_t *queue, uint32_t n)
{
    uint32_t                        *slot;
    ngx_http_vibelock_queue_node_t  *node;

    node = ngx_http_vibelock_queue_node(queue, n);

    for (slot = ngx_http_vibelock_queue_slot(queue, node->hash);
         *slot != n;
         slot = &ngx_http_vibelock_queue_node(queue, *slot)->chain)
    {
        /* void */
    }

    *slot = node->chain;

    queue->n--;

    ngx_http_vibelock_queue_detach(queue, n);
    ngx_http_vibelock_cells_free(&queue->cells, n);
}


static ngx_uint_t
ngx_http_vibelock_queue_sends(ngx_http_vibelock_queue_node_t *node)
{
    return node->cell.kind != NGX_HTTP_VIBELOCK_QUEUE_RESTING || node->again;
}
