
/*
 * Copyright (C) the vibelock authors
 *
 * The table's own structures are nobody else's: its source is taken in here,
 * and is what the tests run.
 */


#include "ngx_http_vibelock_cells.c"
#include "ngx_http_vibelock_wheel.c"
#include "ngx_http_vibelock_table.c"

#include "nginx.h"
#include "whole.h"


/* how a cell was found; a bit more when it was in the wheel */

#define WHOLE_ONCE   0x01
#define WHOLE_WHEEL  0x02


const ngx_uint_t  raw_step = NGX_HTTP_VIBELOCK_TABLE_STEP;
const ngx_uint_t  raw_full = NGX_HTTP_VIBELOCK_TABLE_FULL;
const ngx_uint_t  raw_gone = NGX_HTTP_VIBELOCK_TABLE_GONE;
const uint8_t     raw_stuck = NGX_HTTP_VIBELOCK_STUCK;
const uint8_t     raw_orphan = NGX_HTTP_VIBELOCK_ORPHAN;
const size_t      raw_head = offsetof(ngx_http_vibelock_node_t, key);


static const char *whole_cells(ngx_http_vibelock_table_t *table, u_char *seen);
static const char *whole_free(ngx_http_vibelock_table_t *table, u_char *seen,
    uint32_t *n);
static const char *whole_names(ngx_http_vibelock_table_t *table,
    u_char *seen);
static const char *whole_index(ngx_http_vibelock_table_t *table,
    u_char *seen);
static const char *whole_lock(ngx_http_vibelock_table_t *table, uint32_t n);
static const char *whole_text(ngx_http_vibelock_table_t *table, uint32_t n,
    size_t head, u_char *seen);
static const char *whole_wheel(ngx_http_vibelock_table_t *table,
    u_char *seen);
static const char *whole_bucket(ngx_http_vibelock_table_t *table,
    ngx_uint_t level, ngx_uint_t slot, u_char *seen);
static const char *whole_holders(ngx_http_vibelock_table_t *table);


const char *
whole(ngx_http_vibelock_table_t *table)
{
    static u_char   *seen;
    static uint32_t  size;

    const char      *text;

    if (table->changing) {
        return "the mark is set";
    }

    if (table->cells.fresh > table->cells.total) {
        return "more cells in use than there are";
    }

    if (size < table->cells.total) {
        free(seen);
        size = table->cells.total;
        seen = malloc(size);

        if (seen == NULL) {
            abort();
        }
    }

    ngx_memzero(seen, table->cells.fresh);

    text = whole_cells(table, seen);

    if (text == NULL) {
        text = whole_wheel(table, seen);
    }

    if (text == NULL) {
        text = whole_holders(table);
    }

    return text;
}


static const char *
whole_cells(ngx_http_vibelock_table_t *table, u_char *seen)
{
    uint32_t     n, nfree;
    const char  *text;

    text = whole_free(table, seen, &nfree);

    if (text == NULL) {
        text = whole_names(table, seen);
    }

    if (text == NULL) {
        text = whole_index(table, seen);
    }

    if (text) {
        return text;
    }

    for (n = 0; n < table->cells.fresh; n++) {
        if (!seen[n]) {
            return "a cell is lost";
        }
    }

    if (table->cells.used != table->cells.fresh - nfree) {
        return "the number of used cells is wrong";
    }

    return NULL;
}


static const char *
whole_free(ngx_http_vibelock_table_t *table, u_char *seen, uint32_t *nfree)
{
    uint32_t                   n;
    ngx_http_vibelock_cell_t  *cell;

    *nfree = 0;

    for (n = table->cells.free; n != NGX_HTTP_VIBELOCK_NONE; n = cell->more) {

        if (n >= table->cells.fresh) {
            return "the free chain leads out of the cells";
        }

        if (seen[n]) {
            return "the free chain comes back to a cell";
        }

        cell = ngx_http_vibelock_cell(&table->cells, n);

        if (cell->kind != NGX_HTTP_VIBELOCK_FREE) {
            return "a cell in the free chain is not free";
        }

        seen[n] = WHOLE_ONCE;
        (*nfree)++;
    }

    return NULL;
}


static const char *
whole_names(ngx_http_vibelock_table_t *table, u_char *seen)
{
    uint32_t                   n;
    const char                *text;
    ngx_http_vibelock_name_t  *op;

    for (n = table->names; n != NGX_HTTP_VIBELOCK_NONE; n = op->next) {

        if (n >= table->cells.fresh) {
            return "the chain of operations leads out of the cells";
        }

        op = ngx_http_vibelock_name(table, n);

        if (op->cell.kind != NGX_HTTP_VIBELOCK_OPERATION) {
            return "a cell in the chain of operations is none";
        }

        if (op->cell.len == 0
            || op->cell.len > NGX_HTTP_VIBELOCK_OPERATION_MAX)
        {
            return "an operation's name is too long, or empty";
        }

        text = whole_text(table, n, offsetof(ngx_http_vibelock_name_t, name),
                          seen);
        if (text) {
            return text;
        }
    }

    return NULL;
}


static const char *
whole_index(ngx_http_vibelock_table_t *table, u_char *seen)
{
    uint32_t                   i, n, m, locks;
    const char                *text;
    ngx_http_vibelock_node_t  *node, *other;

    locks = 0;

    for (i = 0; i < table->slots; i++) {

        for (n = table->index[i];
             n != NGX_HTTP_VIBELOCK_NONE;
             n = node->chain)
        {
            if (n >= table->cells.fresh) {
                return "an index chain leads out of the cells";
            }

            node = ngx_http_vibelock_node(table, n);

            if (node->cell.kind != NGX_HTTP_VIBELOCK_LOCK) {
                return "a cell in an index chain is no lock";
            }

            text = whole_text(table, n, raw_head, seen);

            if (text == NULL) {
                text = whole_lock(table, n);
            }

            if (text) {
                return text;
            }

            if (ngx_http_vibelock_table_slot(table, node->hash)
                != &table->index[i])
            {
                return "a lock is in a wrong index chain";
            }

            /* "chain" of what comes is still to be looked at, not its text */

            for (m = node->chain;
                 m != NGX_HTTP_VIBELOCK_NONE && m < table->cells.fresh;
                 m = other->chain)
            {
                other = ngx_http_vibelock_node(table, m);

                if (m == n) {
                    return "an index chain is a ring";
                }

                if (other->token == node->token) {
                    return "two locks have one token";
                }

                if (other->hash == node->hash
                    && other->cell.len == node->cell.len
                    && ngx_memcmp(other->key, node->key,
                                  ngx_min(node->cell.len, sizeof(node->key)))
                       == 0
                    && node->cell.len <= sizeof(node->key))
                {
                    return "two locks have one key";
                }

                if (seen[m]) {
                    return "two index chains meet";
                }
            }

            locks++;
        }
    }

    if (locks != table->locks) {
        return "the number of locks is wrong";
    }

    return NULL;
}


static const char *
whole_lock(ngx_http_vibelock_table_t *table, uint32_t n)
{
    u_char                     buf[NGX_HTTP_VIBELOCK_KEY_MAX];
    ngx_str_t                  key;
    ngx_http_vibelock_cell_t  *op;
    ngx_http_vibelock_node_t  *node;

    node = ngx_http_vibelock_node(table, n);

    key.data = buf;
    key.len = ngx_http_vibelock_cells_copy(&table->cells, n, buf);

    if (key.len == 0) {
        return "a lock has no key";
    }

    if (node->hash != ngx_http_vibelock_table_hash(table, &key)) {
        return "a lock's hash is not that of its key";
    }

    if (node->token == 0 || node->token > table->token) {
        return "a lock has a token that was not given yet";
    }

    if (node->expires <= node->acquired) {
        return "a lock expires before it was acquired";
    }

    if (node->operation >= table->cells.fresh) {
        return "a lock's operation is out of the cells";
    }

    op = ngx_http_vibelock_cell(&table->cells, node->operation);

    if (op->kind != NGX_HTTP_VIBELOCK_OPERATION) {
        return "a lock's operation is none";
    }

    if (node->slot >= NGX_MAX_PROCESSES
        || node->generation > table->generation)
    {
        return "a lock's holder cannot be";
    }

    if ((node->flags & NGX_HTTP_VIBELOCK_ORPHAN)
        && !(node->flags & NGX_HTTP_VIBELOCK_STUCK))
    {
        return "a lock has no worker and is not stuck";
    }

    return NULL;
}


static const char *
whole_text(ngx_http_vibelock_table_t *table, uint32_t n, size_t head,
    u_char *seen)
{
    size_t                     len, room;
    uint32_t                   m;
    ngx_http_vibelock_cell_t  *cell, *first;

    first = ngx_http_vibelock_cell(&table->cells, n);
    len = first->len;

    for (m = n; m != NGX_HTTP_VIBELOCK_NONE; m = cell->more) {

        if (m >= table->cells.fresh) {
            return "a text leads out of the cells";
        }

        if (seen[m]) {
            return "a cell is in two places";
        }

        seen[m] = WHOLE_ONCE;

        cell = ngx_http_vibelock_cell(&table->cells, m);

        if (m != n && cell->kind != NGX_HTTP_VIBELOCK_MORE) {
            return "a text goes on in a cell that is not for that";
        }

        if (m != n && len == 0) {
            return "a text has a cell too many";
        }

        if (cell->head != head) {
            return "a text begins at a wrong place";
        }

        room = NGX_HTTP_VIBELOCK_CELL_SIZE - head;
        len -= ngx_min(len, room);

        head = sizeof(ngx_http_vibelock_cell_t);
    }

    if (len) {
        return "a text is cut short";
    }

    return NULL;
}


static const char *
whole_wheel(ngx_http_vibelock_table_t *table, u_char *seen)
{
    uint32_t                   n;
    ngx_uint_t                 level, slot;
    const char                *text;
    ngx_http_vibelock_node_t  *node;

    for (level = 0; level < NGX_HTTP_VIBELOCK_WHEEL_LEVELS; level++) {
        for (slot = 0; slot < NGX_HTTP_VIBELOCK_WHEEL_SLOTS; slot++) {

            text = whole_bucket(table, level, slot, seen);
            if (text) {
                return text;
            }
        }
    }

    for (n = 0; n < table->cells.fresh; n++) {
        node = ngx_http_vibelock_node(table, n);

        if (node->cell.kind != NGX_HTTP_VIBELOCK_LOCK) {
            continue;
        }

        if (seen[n] & WHOLE_WHEEL) {
            continue;
        }

        if (node->link.prev != NGX_HTTP_VIBELOCK_WHEEL_NONE) {
            return "a lock is in no bucket and does not know it";
        }

        /* out of the wheel is what overran, as long as it is not stuck */

        if ((node->flags & (NGX_HTTP_VIBELOCK_OVERRUN|NGX_HTTP_VIBELOCK_STUCK))
            != NGX_HTTP_VIBELOCK_OVERRUN)
        {
            return "a lock is in no bucket and will never expire";
        }

        if (node->expires > test_latest) {
            return "a lock left the wheel before its time";
        }
    }

    return NULL;
}


static const char *
whole_bucket(ngx_http_vibelock_table_t *table, ngx_uint_t level,
    ngx_uint_t slot, u_char *seen)
{
    uint32_t                         n, prev;
    uint64_t                         due, first, span;
    ngx_uint_t                       bucket, occupied, shift;
    ngx_http_vibelock_node_t        *node;
    ngx_http_vibelock_wheel_t       *wheel;
    ngx_http_vibelock_wheel_link_t  *link;

    wheel = &table->wheel;

    bucket = level * NGX_HTTP_VIBELOCK_WHEEL_SLOTS + slot;
    n = wheel->bucket[bucket];
    occupied = (wheel->occupied[level] >> slot) & 1;

    if (occupied != (n != NGX_HTTP_VIBELOCK_NONE)) {
        return occupied ? "an empty bucket is marked as occupied"
                        : "a bucket is not marked as occupied";
    }

    /* the ticks of this bucket, where the wheel stands now */

    shift = level * NGX_HTTP_VIBELOCK_WHEEL_BITS;
    span = (uint64_t) 1 << shift;

    first = wheel->tick >> (shift + NGX_HTTP_VIBELOCK_WHEEL_BITS);
    first = (first << NGX_HTTP_VIBELOCK_WHEEL_BITS) | slot;
    first <<= shift;

    if (occupied && first + span <= wheel->tick) {
        return "the wheel left a bucket that is not empty";
    }

    prev = NGX_HTTP_VIBELOCK_WHEEL_HEAD | (uint32_t) bucket;

    for ( /* void */ ; n != NGX_HTTP_VIBELOCK_NONE; n = link->next) {

        if (n >= table->cells.fresh) {
            return "a bucket leads out of the cells";
        }

        node = ngx_http_vibelock_node(table, n);

        if (node->cell.kind != NGX_HTTP_VIBELOCK_LOCK) {
            return "a cell in a bucket is no lock";
        }

        if (seen[n] & WHOLE_WHEEL) {
            return "a lock is in two buckets, or a bucket is a ring";
        }

        seen[n] |= WHOLE_WHEEL;

        link = ngx_http_vibelock_wheel_link(wheel, n);

        if (link->prev != prev) {
            return "a bucket's list is broken backwards";
        }

        due = ngx_http_vibelock_wheel_due(wheel, n);

        if (level == 0) {
            if (due > first) {
                return "a lock is in a bucket that comes before its time";
            }

        } else if (due < first || due >= first + span) {
            return "a lock is in a bucket of another time";
        }

        prev = n;
    }

    return NULL;
}


static const char *
whole_holders(ngx_http_vibelock_table_t *table)
{
    ngx_uint_t  i, j;

    if (table->ngone > NGX_HTTP_VIBELOCK_TABLE_GONE) {
        return "more workers are gone than there is room for";
    }

    if (table->ngone && table->search == NGX_HTTP_VIBELOCK_NONE) {
        return "a worker is gone and nobody looks for its locks";
    }

    for (i = 0; i < NGX_MAX_PROCESSES; i++) {

        if (table->holders[i].generation == 0) {
            continue;
        }

        if (table->holders[i].generation > table->generation) {
            return "a worker has a generation that was not given yet";
        }

        for (j = 0; j < i; j++) {
            if (table->holders[i].generation == table->holders[j].generation) {
                return "two workers have one generation";
            }
        }
    }

    return NULL;
}


void
raw_each(ngx_http_vibelock_table_t *table,
    void (*visit)(raw_t *raw, void *data), void *data)
{
    raw_t                      raw;
    uint32_t                   n;
    ngx_http_vibelock_node_t  *node;

    for (n = 0; n < table->cells.fresh; n++) {
        node = ngx_http_vibelock_node(table, n);

        if (node->cell.kind != NGX_HTTP_VIBELOCK_LOCK) {
            continue;
        }

        ngx_memzero(&raw, sizeof(raw_t));

        raw.len = ngx_http_vibelock_cells_copy(&table->cells, n, raw.key);
        raw.cell = n;
        raw.token = node->token;
        raw.acquired = node->acquired;
        raw.expires = node->expires;
        raw.operation = node->operation;
        raw.generation = node->generation;
        raw.slot = node->slot;
        raw.flags = node->flags;

        if (node->flags & NGX_HTTP_VIBELOCK_OWNED) {
            ngx_memcpy(raw.owner, node->owner, NGX_HTTP_VIBELOCK_OWNER_LEN);
        }

        visit(&raw, data);
    }
}


uint32_t
raw_cells(size_t len)
{
    uint32_t  n;

    /* counted byte by byte, not as the table counts */

    n = 1;

    while (len > 36 + (size_t) (n - 1) * 120) {
        n++;
    }

    return n;
}


uint32_t
raw_slot(ngx_http_vibelock_table_t *table, ngx_str_t *key)
{
    return ngx_http_vibelock_table_slot(table, raw_hash(table, key))
           - table->index;
}


uint32_t
raw_hash(ngx_http_vibelock_table_t *table, ngx_str_t *key)
{
    return ngx_http_vibelock_table_hash(table, key);
}


uint32_t
raw_slots(ngx_http_vibelock_table_t *table)
{
    return table->slots;
}


ngx_uint_t
raw_changing(ngx_http_vibelock_table_t *table)
{
    return table->changing;
}
