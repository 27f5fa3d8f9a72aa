
/*
 * Copyright (C) the vibelock authors
 *
 * Looks into a table, past its interface: is it whole, and what is in it.
 */


#ifndef _NGX_VIBELOCK_TEST_WHOLE_H_INCLUDED_
#define _NGX_VIBELOCK_TEST_WHOLE_H_INCLUDED_


#include "ngx_http_vibelock_table.h"


/* a lock as it lies in its cell */

typedef struct {
    u_char       key[NGX_HTTP_VIBELOCK_KEY_MAX];
    size_t       len;
    uint32_t     cell;
    uint64_t     token;
    ngx_msec_t   acquired;
    ngx_msec_t   expires;
    u_char       owner[NGX_HTTP_VIBELOCK_OWNER_LEN];
    uint32_t     operation;
    uint32_t     generation;
    uint16_t     slot;
    uint8_t      flags;
} raw_t;


/*
 * NULL when all in the table fits together, or what does not.  Every cell has
 * to be found once: free, or a lock's, or an operation's.
 */

const char *whole(ngx_http_vibelock_table_t *table);

/*
 * Calls "visit" for every lock there is, expired ones too.
 */

void raw_each(ngx_http_vibelock_table_t *table,
    void (*visit)(raw_t *raw, void *data), void *data);

/*
 * The cells a key takes.
 */

uint32_t raw_cells(size_t len);

/*
 * The index slot of a key, and its hash; how many slots there are.
 */

uint32_t raw_slot(ngx_http_vibelock_table_t *table, ngx_str_t *key);
uint32_t raw_hash(ngx_http_vibelock_table_t *table, ngx_str_t *key);
uint32_t raw_slots(ngx_http_vibelock_table_t *table);

/*
 * 1 while the mark is set that makes the next one rebuild the table.
 */

ngx_uint_t raw_changing(ngx_http_vibelock_table_t *table);

/*
 * What one call may touch, in steps of the sweep; the size of a lock's cell.
 */

extern const ngx_uint_t  raw_step, raw_full, raw_gone;
extern const uint8_t     raw_stuck, raw_orphan;
extern const size_t      raw_head;


#endif /* _NGX_VIBELOCK_TEST_WHOLE_H_INCLUDED_ */
