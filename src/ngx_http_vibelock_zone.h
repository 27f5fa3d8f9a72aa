
/*
 * Copyright (C) the vibelock authors
 *
 * A zone as the configuration names it: what is locked (the key), where (the
 * table in its shared memory), its counters, and the sweep.
 */


#ifndef _NGX_HTTP_VIBELOCK_ZONE_H_INCLUDED_
#define _NGX_HTTP_VIBELOCK_ZONE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_vibelock_table.h"


/* one counter an event; they only grow */

typedef enum {
    NGX_HTTP_VIBELOCK_N_ACQUIRED = 0,
    NGX_HTTP_VIBELOCK_N_BUSY,
    NGX_HTTP_VIBELOCK_N_RELEASED,
    NGX_HTTP_VIBELOCK_N_KEPT,
    NGX_HTTP_VIBELOCK_N_LOST,
    NGX_HTTP_VIBELOCK_N_BROKEN,           /* by a request here */
    NGX_HTTP_VIBELOCK_N_ORPHANED,         /* its worker died */
    NGX_HTTP_VIBELOCK_N_FULL,
    NGX_HTTP_VIBELOCK_N_BYPASSED,
    NGX_HTTP_VIBELOCK_N_DENIED,
    NGX_HTTP_VIBELOCK_N_INVALID,
    NGX_HTTP_VIBELOCK_N_BUSY_DRY_RUN,
    NGX_HTTP_VIBELOCK_N_FULL_DRY_RUN,
    NGX_HTTP_VIBELOCK_N_DENIED_DRY_RUN,
    NGX_HTTP_VIBELOCK_N_INVALID_DRY_RUN,
    NGX_HTTP_VIBELOCK_N_LAST
} ngx_http_vibelock_counter_e;


/* what is logged once a minute and no more, whichever worker meets it */

typedef enum {
    NGX_HTTP_VIBELOCK_ONCE_FULL = 0,
    NGX_HTTP_VIBELOCK_ONCE_BYPASSED,
    NGX_HTTP_VIBELOCK_ONCE_LAST
} ngx_http_vibelock_once_e;


typedef struct {
    ngx_str_t                     name;
    uint32_t                      number;      /* in the zone's table */
} ngx_http_vibelock_operation_t;


typedef struct {
    ngx_str_t                     name;
    ngx_str_t                     file;        /* where it is named first */
    ngx_uint_t                    line;
    ngx_http_complex_value_t      key;
    ngx_int_t                     variable;    /* the key's, or NGX_ERROR */
    ngx_msec_t                    sweep;       /* between two sweeps, ms */
    ngx_array_t                   operations;  /* of _operation_t * */
    ngx_shm_zone_t               *shm_zone;    /* NULL: only mentioned yet */
    ngx_http_vibelock_table_t    *table;       /* NULL until it is mapped */
    ngx_event_t                   timer;       /* of the sweep */
    ngx_uint_t                    sweeping;    /* and not done yet */
    void                         *bus;         /* the bus's, or NULL */
} ngx_http_vibelock_zone_t;


typedef struct {
    ngx_array_t                   list;        /* of _zone_t * */
} ngx_http_vibelock_zones_t;


/*
 * Makes an empty list.  NGX_OK, NGX_ERROR: no memory.
 */

ngx_int_t ngx_http_vibelock_zones_init(ngx_conf_t *cf,
    ngx_http_vibelock_zones_t *zones);

/*
 * "vibelock_zone <key> zone=<name>:<size> [sweep=<time>]": the result is that
 * of a ngx_command_t handler.
 */

char *ngx_http_vibelock_zone_set(ngx_conf_t *cf,
    ngx_http_vibelock_zones_t *zones);

/*
 * The zone of a directive's parameter "zone=<name>", which may be defined
 * further down; NULL, and a logged message, when the parameter is wrong.
 */

ngx_http_vibelock_zone_t *ngx_http_vibelock_zone_get(ngx_conf_t *cf,
    ngx_http_vibelock_zones_t *zones, ngx_str_t *parameter);

/*
 * The zone of that name, or NULL.
 */

ngx_http_vibelock_zone_t *ngx_http_vibelock_zone_find(
    ngx_http_vibelock_zones_t *zones, ngx_str_t *name);

/*
 * An operation that is run under locks of this zone.  NULL: no memory.
 */

ngx_http_vibelock_operation_t *ngx_http_vibelock_zone_operation(
    ngx_conf_t *cf, ngx_http_vibelock_zone_t *zone, ngx_str_t *name);

/*
 * When all is read: every zone that was mentioned has to be defined.
 * NGX_CONF_OK, or NGX_CONF_ERROR when a message was logged.
 */

char *ngx_http_vibelock_zones_check(ngx_conf_t *cf,
    ngx_http_vibelock_zones_t *zones);

/*
 * A worker's start and end.
 */

void ngx_http_vibelock_zones_start(ngx_http_vibelock_zones_t *zones,
    ngx_cycle_t *cycle);
void ngx_http_vibelock_zones_stop(ngx_http_vibelock_zones_t *zones);

/*
 * The memory that a zone has for the bus, "*size" bytes: zeroes when the zone
 * was made.  ZONE_STATE bytes are for its state, the rest is for its queue.
 * And the pool whose mutex guards it.
 */

#define NGX_HTTP_VIBELOCK_ZONE_STATE  1024

void *ngx_http_vibelock_zone_bus(ngx_http_vibelock_zone_t *zone,
    size_t *size);
ngx_slab_pool_t *ngx_http_vibelock_zone_pool(ngx_http_vibelock_zone_t *zone);

/*
 * The key of a request, good for as long as that.  NGX_OK; NGX_DECLINED: it is
 * empty; NGX_ABORT: over 255 bytes, or not UTF-8; NGX_ERROR: no memory.
 */

ngx_int_t ngx_http_vibelock_zone_key(ngx_http_request_t *r,
    ngx_http_vibelock_zone_t *zone, ngx_str_t *key);

/*
 * Counts one more, and tells how many were counted since the zone was made.
 */

void ngx_http_vibelock_zone_count(ngx_http_vibelock_zone_t *zone,
    ngx_http_vibelock_counter_e counter);
ngx_uint_t ngx_http_vibelock_zone_counted(ngx_http_vibelock_zone_t *zone,
    ngx_http_vibelock_counter_e counter);

/*
 * A counter for what belongs to no zone: the readings of the registry that
 * failed.  NULL where there is no zone to have it.
 */

ngx_atomic_t *ngx_http_vibelock_zones_unread(ngx_http_vibelock_zones_t *zones);

/*
 * 1 when this line was not logged in the last minute; it counts as logged now.
 */

ngx_uint_t ngx_http_vibelock_zone_once(ngx_http_vibelock_zone_t *zone,
    ngx_http_vibelock_once_e line);


#endif /* _NGX_HTTP_VIBELOCK_ZONE_H_INCLUDED_ */
