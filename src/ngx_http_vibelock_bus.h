
/*
 * Copyright (C) the vibelock authors
 *
 * The bus: a release here is a release on every replica.
 *
 * A release becomes an entry of the zone's stream in Redis.  Every worker
 * publishes on a connection of its own; one worker reads for all, and breaks
 * the locks that entries of other replicas name.
 *
 * A release applies only to a lock of the same owner's, or of a server that
 * the registry here gives to that owner, and only if the lock was taken more
 * than 50 ms before it.  So whatever comes late, twice or again does no harm.
 */


#ifndef _NGX_HTTP_VIBELOCK_BUS_H_INCLUDED_
#define _NGX_HTTP_VIBELOCK_BUS_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_vibelock_redis_why.h"
#include "ngx_http_vibelock_registry.h"
#include "ngx_http_vibelock_zone.h"


typedef struct ngx_http_vibelock_bus_s  ngx_http_vibelock_bus_t;


/* why an entry that was read changed nothing */

typedef enum {
    NGX_HTTP_VIBELOCK_BUS_OWN = 0,        /* this replica's */
    NGX_HTTP_VIBELOCK_BUS_NO_LOCK,
    NGX_HTTP_VIBELOCK_BUS_YOUNG,          /* the lock is somebody's next */
    NGX_HTTP_VIBELOCK_BUS_OTHER_OWNER,
    NGX_HTTP_VIBELOCK_BUS_MALFORMED,
    NGX_HTTP_VIBELOCK_BUS_VERSION,
    NGX_HTTP_VIBELOCK_BUS_TOO_LARGE,
    NGX_HTTP_VIBELOCK_BUS_SKIPS
} ngx_http_vibelock_bus_skip_e;


/*
 * The state of a zone's bus.  Counts are of all workers, since the zone was
 * made; received = applied + all skipped.
 */

typedef struct {
    ngx_str_t                    stream;
    ngx_http_vibelock_redis_e    reading;      /* REDIS_WORKS, or why not */
    ngx_http_vibelock_redis_e    publishing;
    ngx_uint_t                   reconnects;
    ngx_uint_t                   published;    /* entries that Redis took */
    ngx_uint_t                   merged;       /* repeats within a second */
    ngx_uint_t                   queued;       /* not published yet */
    ngx_uint_t                   dropped;      /* will not be */
    ngx_uint_t                   received;
    ngx_uint_t                   applied;      /* locks broken */
    ngx_uint_t                   skipped[NGX_HTTP_VIBELOCK_BUS_SKIPS];
    ngx_uint_t                   rewinds;      /* read from the start again */
    ngx_pid_t                    reader;       /* the worker, or 0 */
    ngx_msec_t                   lag;          /* of the last entry, ms */
    uint64_t                     last_ms;      /* the id read last */
    uint64_t                     last_seq;
} ngx_http_vibelock_bus_state_t;


/*
 * "vibelock_redis <url> ...": the result is that of a ngx_command_t handler.
 * *bus is NULL before, and is set.
 */

char *ngx_http_vibelock_bus_set(ngx_conf_t *cf, ngx_http_vibelock_bus_t **bus);

/*
 * When all is read: NGX_CONF_OK, or NGX_CONF_ERROR when a message was logged.
 * "registry" may be NULL.
 */

char *ngx_http_vibelock_bus_check(ngx_conf_t *cf, ngx_http_vibelock_bus_t *bus,
    ngx_http_vibelock_zones_t *zones, ngx_http_vibelock_registry_t *registry);

/*
 * For the master, when zones are mapped, and at its end: what was not sent is
 * lost then.  And for a worker's start and end.
 */

void ngx_http_vibelock_bus_init(ngx_http_vibelock_bus_t *bus);
void ngx_http_vibelock_bus_end(ngx_http_vibelock_bus_t *bus,
    ngx_cycle_t *cycle);
void ngx_http_vibelock_bus_start(ngx_http_vibelock_bus_t *bus,
    ngx_cycle_t *cycle);
void ngx_http_vibelock_bus_stop(ngx_http_vibelock_bus_t *bus);

/*
 * Tells all other replicas of a release: of this key, by this owner (32
 * bytes), of the locks there were at that moment of ngx_current_msec; 0: now.
 * It is copied, and sent when it can be; nothing, where there is no bus.
 */

void ngx_http_vibelock_bus_publish(ngx_http_vibelock_zone_t *zone,
    ngx_str_t *key, u_char *owner, ngx_msec_t moment);

/*
 * NGX_OK and *state, whose text is the configuration's; NGX_DECLINED: there
 * is no bus.
 */

ngx_int_t ngx_http_vibelock_bus_state(ngx_http_vibelock_zone_t *zone,
    ngx_http_vibelock_bus_state_t *state);


#endif /* _NGX_HTTP_VIBELOCK_BUS_H_INCLUDED_ */
