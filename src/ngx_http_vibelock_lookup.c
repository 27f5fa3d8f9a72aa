
/*
 * Copyright (C) the vibelock authors
 *
 * Open addressing: a slot holds the hash, so that a miss reads no entry.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_http_vibelock_hash.h"
#include "ngx_http_vibelock_lookup.h"


static size_t ngx_http_vibelock_lookup_slots(ngx_uint_t n);
static uint32_t ngx_http_vibelock_lookup_hash(
    ngx_http_vibelock_lookup_t *lookup, ngx_str_t *name);


size_t
ngx_http_vibelock_lookup_size(ngx_uint_t n, size_t size)
{
    return ngx_align(n * size, sizeof(uint64_t))
           + ngx_http_vibelock_lookup_slots(n)
             * sizeof(ngx_http_vibelock_lookup_slot_t);
}


u_char *
ngx_http_vibelock_lookup_init(ngx_http_vibelock_lookup_t *lookup,
    ngx_http_vibelock_seed_t *seed, u_char *start, ngx_uint_t n, size_t size)
{
    u_char  *p;

    p = start + ngx_align(n * size, sizeof(uint64_t));

    lookup->seed = seed;
    lookup->entries = start;
    lookup->size = size;
    lookup->n = 0;
    lookup->mask = ngx_http_vibelock_lookup_slots(n) - 1;
    lookup->slots = (ngx_http_vibelock_lookup_slot_t *) p;

    return start + ngx_http_vibelock_lookup_size(n, size);
}


void *
ngx_http_vibelock_lookup_add(ngx_http_vibelock_lookup_t *lookup,
    ngx_str_t *name)
{
    uint32_t    i, hash;
    ngx_str_t  *entry;

    entry = (ngx_str_t *) (lookup->entries + lookup->n * lookup->size);
    lookup->n++;

    *entry = *name;

    hash = ngx_http_vibelock_lookup_hash(lookup, name);

    i = hash & lookup->mask;

    while (lookup->slots[i].entry) {
        i = (i + 1) & lookup->mask;
    }

    lookup->slots[i].hash = hash;
    lookup->slots[i].entry = (uint32_t) lookup->n;

    return entry;
}


void *
ngx_http_vibelock_lookup_find(ngx_http_vibelock_lookup_t *lookup,
    ngx_str_t *name)
{
    uint32_t                          i, hash;
    ngx_str_t                        *entry;
    ngx_http_vibelock_lookup_slot_t  *slot;

    hash = ngx_http_vibelock_lookup_hash(lookup, name);

    for (i = hash & lookup->mask; /* void */ ; i = (i + 1) & lookup->mask) {
        slot = &lookup->slots[i];

        if (slot->entry == 0) {
            return NULL;
        }

        if (slot->hash != hash) {
            continue;
        }

        entry = (ngx_str_t *) (lookup->entries
                               + (slot->entry - 1) * lookup->size);

        if (entry->len == name->len
            && ngx_memcmp(entry->data, name->data, name->len) == 0)
        {
            return entry;
        }
    }
}


ngx_uint_t
ngx_http_vibelock_lookup_number(ngx_http_vibelock_lookup_t *lookup,
    void *entry)
{
    return ((u_char *) entry - lookup->entries) / lookup->size;
}


/*
 * Twice as many as there are entries at least: a free one is always near.
 */

static size_t
ngx_http_vibelock_lookup_slots(ngx_uint_t n)
{
    size_t  slots;

    for (slots = 2; slots < 2 * n; slots *= 2) { /* void */ }

    return slots;
}


static uint32_t
ngx_http_vibelock_lookup_hash(ngx_http_vibelock_lookup_t *lookup,
    ngx_str_t *name)
{
    uint32_t  hash;

    if (lookup->seed) {

        /* of a name that is longer, the beginning will do */

        return (uint32_t) ngx_http_vibelock_hash(lookup->seed, name->data,
                              ngx_min(name->len, NGX_HTTP_VIBELOCK_HASH_MAX));
    }

    ngx_memcpy(&hash, name->data, sizeof(uint32_t));

    return hash;
}
