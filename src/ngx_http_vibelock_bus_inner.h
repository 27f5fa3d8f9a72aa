
/*
 * Copyright (C) the vibelock authors
 *
 * What the parts of the bus know of each other, and nobody else does.
 */


#ifndef _NGX_HTTP_VIBELOCK_BUS_INNER_H_INCLUDED_
#define _NGX_HTTP_VIBELOCK_BUS_INNER_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_vibelock_bus.h"
#include "ngx_http_vibelock_bus_share.h"
#include "ngx_http_vibelock_queue.h"
#include "ngx_http_vibelock_redis.h"


/* every so often a worker looks after what is shared, ms */
#define NGX_HTTP_VIBELOCK_BUS_TICK   250

/* two samples of the clock of Redis differ by less, unless it was set, ms */
#define NGX_HTTP_VIBELOCK_BUS_AHEAD  1000


/* a zone, to the bus */

typedef struct {
    ngx_http_vibelock_bus_t         *bus;
    ngx_http_vibelock_zone_t        *zone;
    ngx_str_t                        stream;
    uint64_t                         source;     /* that stream, there */
    ngx_str_t                        from;       /* in entries of ours */
    ngx_str_t                        xadd;       /* the command's beginning */
    ngx_str_t                        trial;      /* one that adds nothing */
    ngx_http_vibelock_bus_share_t   *share;
    ngx_http_vibelock_queue_t       *queue;
    ngx_slab_pool_t                 *pool;

    ngx_msec_t                       pause;      /* publishing, until then */
    ngx_msec_t                       tried;      /* publishing, in vain, when */

    ngx_http_vibelock_bus_id_t       after;      /* it was read up to there */
    ngx_http_vibelock_bus_id_t       before;     /* and from there, before */
    ngx_http_vibelock_bus_id_t       doubted;    /* the clock was asked since */

    unsigned                         leased:1;   /* this worker reads it */
    unsigned                         readable:1; /* its stream can be read */
    unsigned                         known:1;    /* its last is too large */
    unsigned                         asked:1;    /* XREAD names it */
    unsigned                         more:1;     /* than it brought */
    unsigned                         behind:1;   /* it may have lost some */
} ngx_http_vibelock_bus_zone_t;


struct ngx_http_vibelock_bus_s {
    ngx_http_vibelock_redis_url_t    url;
    ngx_str_t                        prefix;
    ngx_str_t                        replica;
    ngx_msec_t                       timeout;
    ngx_msec_t                       keepalive;
    ngx_http_vibelock_registry_t    *registry;   /* or NULL */

    ngx_http_vibelock_bus_zone_t    *zones;
    ngx_uint_t                       nzones;

    /* a worker's own */

    uint64_t                         nonce;
    ngx_log_t                       *log;
    ngx_event_t                      tick;

    ngx_http_vibelock_redis_t        publisher;
    ngx_event_t                      repeat;     /* the end of a rest */
    ngx_event_t                      linger;     /* the last answers, at most */
    ngx_uint_t                       flight;     /* sent, no reply yet */

    ngx_http_vibelock_redis_t        reader;
    ngx_event_t                      again;      /* reading, after a pause */
    ngx_msec_t                       checked;    /* the streams, when */
    ngx_msec_t                       asked;      /* for entries, when */
    ngx_msec_t                       sampled;    /* the clock, when */
    ngx_uint_t                       doubt;      /* whether it still is right */
    ngx_uint_t                       checks;     /* of streams, under way */
    ngx_uint_t                       changed;    /* which zones it reads */
    ngx_uint_t                       refused;    /* XREAD was, the last time */
    const char                     **argv;       /* of XREAD */
    size_t                          *argvlen;
    u_char                          *numbers;    /* in that */
    ngx_uint_t                       count;      /* entries of each stream */
    ngx_uint_t                       first;      /* the zone it begins with */
};


/*
 * bus.c: the state of one side of a zone's bus, or of all zones' by the
 * connection; it is logged when it is news.
 */

void ngx_http_vibelock_bus_note(ngx_http_vibelock_bus_zone_t *bz,
    ngx_http_vibelock_bus_side_e side, ngx_http_vibelock_redis_t *redis,
    ngx_http_vibelock_redis_e why, ngx_err_t err);
void ngx_http_vibelock_bus_lost(ngx_http_vibelock_bus_t *bus,
    ngx_http_vibelock_bus_side_e side, ngx_http_vibelock_redis_t *redis);

/*
 * bus_publish.c: zone() makes ready what is sent for a zone whose stream is
 * known; NGX_ERROR: no memory.
 *
 * turn() does what is due in all queues, and sends what waits, as far as it
 * can now.  tick() says that this worker can, where another one said that it
 * cannot, and finds out whether Redis still refuses what it refused.
 */

ngx_int_t ngx_http_vibelock_bus_publish_zone(ngx_conf_t *cf,
    ngx_http_vibelock_bus_zone_t *bz);
void ngx_http_vibelock_bus_publish_start(ngx_http_vibelock_bus_t *bus);
void ngx_http_vibelock_bus_publish_stop(ngx_http_vibelock_bus_t *bus);
void ngx_http_vibelock_bus_publish_turn(ngx_http_vibelock_bus_t *bus);
void ngx_http_vibelock_bus_publish_tick(ngx_http_vibelock_bus_t *bus);

/*
 * bus_read.c: reads the zones that this worker has the leases of, which tick()
 * takes and keeps.
 */

void ngx_http_vibelock_bus_read_start(ngx_http_vibelock_bus_t *bus);
void ngx_http_vibelock_bus_read_stop(ngx_http_vibelock_bus_t *bus);
void ngx_http_vibelock_bus_read_tick(ngx_http_vibelock_bus_t *bus);

/*
 * bus_apply.c: what an entry of that id says is done, or not.
 */

void ngx_http_vibelock_bus_apply(ngx_http_vibelock_bus_zone_t *bz,
    ngx_http_vibelock_bus_id_t *id, u_char *data, size_t len);
void ngx_http_vibelock_bus_apply_skip(ngx_http_vibelock_bus_zone_t *bz,
    ngx_http_vibelock_bus_id_t *id, ngx_http_vibelock_bus_skip_e why);


#endif /* _NGX_HTTP_VIBELOCK_BUS_INNER_H_INCLUDED_ */
