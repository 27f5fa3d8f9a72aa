
/*
 * Copyright (C) the vibelock authors
 *
 * The bus's directive, its life in a worker, and its state.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include <jansson.h>

#include "ngx_http_vibelock_bus_inner.h"
#include "ngx_http_vibelock_hash.h"


#define NGX_HTTP_VIBELOCK_BUS_PREFIX     "vibelock:"
#define NGX_HTTP_VIBELOCK_BUS_TIMEOUT    250      /* ms */
#define NGX_HTTP_VIBELOCK_BUS_KEEPALIVE  15000    /* ms */

/* bytes, at most: an entry has room for much more */
#define NGX_HTTP_VIBELOCK_BUS_REPLICA    64
#define NGX_HTTP_VIBELOCK_BUS_TEXT       128


static char *ngx_http_vibelock_bus_once(ngx_conf_t *cf, ngx_str_t *parameters,
    ngx_uint_t n);
static char *ngx_http_vibelock_bus_parameter(ngx_conf_t *cf,
    ngx_http_vibelock_bus_t *bus, ngx_str_t *value);
static char *ngx_http_vibelock_bus_time(ngx_conf_t *cf, ngx_str_t *value,
    ngx_str_t *time, char *example, ngx_msec_t *msec);
static char *ngx_http_vibelock_bus_text(ngx_conf_t *cf, ngx_str_t *value,
    ngx_str_t *text, size_t max);
static char *ngx_http_vibelock_bus_replica(ngx_conf_t *cf,
    ngx_http_vibelock_bus_t *bus);
static char *ngx_http_vibelock_bus_zone(ngx_conf_t *cf,
    ngx_http_vibelock_bus_t *bus, ngx_http_vibelock_bus_zone_t *bz);
static void ngx_http_vibelock_bus_tick(ngx_event_t *ev);
static void ngx_http_vibelock_bus_news(ngx_http_vibelock_bus_zone_t *bz,
    ngx_http_vibelock_redis_t *redis, ngx_uint_t heard);
static void ngx_http_vibelock_bus_drops(ngx_http_vibelock_bus_zone_t *bz);


/* what a zone has for it has to be enough, and there is a counter a skip */

typedef char  ngx_http_vibelock_bus_fits_t
    [sizeof(ngx_http_vibelock_bus_share_t) <= NGX_HTTP_VIBELOCK_ZONE_STATE
     && NGX_HTTP_VIBELOCK_BUS_N_SKIPPED + NGX_HTTP_VIBELOCK_BUS_SKIPS
        == NGX_HTTP_VIBELOCK_BUS_N_LAST
     ? 1 : -1];


char *
ngx_http_vibelock_bus_set(ngx_conf_t *cf, ngx_http_vibelock_bus_t **busp)
{
    ngx_str_t                *value;
    ngx_uint_t                i;
    ngx_http_vibelock_bus_t  *bus;

    if (*busp) {
        return "is duplicate";
    }

    bus = ngx_pcalloc(cf->pool, sizeof(ngx_http_vibelock_bus_t));
    if (bus == NULL) {
        return NGX_CONF_ERROR;
    }

    *busp = bus;

    ngx_str_set(&bus->prefix, NGX_HTTP_VIBELOCK_BUS_PREFIX);
    bus->timeout = NGX_HTTP_VIBELOCK_BUS_TIMEOUT;
    bus->keepalive = NGX_HTTP_VIBELOCK_BUS_KEEPALIVE;

    value = cf->args->elts;

    if (ngx_http_vibelock_redis_url(cf, &bus->url, &value[1]) != NGX_CONF_OK) {
        return NGX_CONF_ERROR;
    }

    for (i = 2; i < cf->args->nelts; i++) {
        if (ngx_http_vibelock_bus_once(cf, &value[2], i - 2) != NGX_CONF_OK
            || ngx_http_vibelock_bus_parameter(cf, bus, &value[i])
               != NGX_CONF_OK)
        {
            return NGX_CONF_ERROR;
        }
    }

    if (bus->url.user.len && bus->url.password.len == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"vibelock_redis\" names the user \"%V\", and "
                           "needs the password: \"password_file=<file>\"",
                           &bus->url.user);
        return NGX_CONF_ERROR;
    }

    /* before there are threads that could come to it at the same time */

    json_object_seed(0);

    return ngx_http_vibelock_bus_replica(cf, bus);
}


/* whether parameter n is none of those before it */

static char *
ngx_http_vibelock_bus_once(ngx_conf_t *cf, ngx_str_t *parameters, ngx_uint_t n)
{
    size_t       len;
    u_char      *p;
    ngx_str_t   *value;
    ngx_uint_t   i;

    value = &parameters[n];
    p = (u_char *) ngx_strchr(value->data, '=');
    len = p ? (size_t) (p + 1 - value->data) : value->len + 1;

    for (i = 0; i < n; i++) {
        if (ngx_strncmp(parameters[i].data, value->data, len) == 0) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "\"vibelock_redis\" has one parameter twice, "
                               "the second time as \"%V\": it must be given "
                               "once", value);
            return NGX_CONF_ERROR;
        }
    }

    return NGX_CONF_OK;
}


static char *
ngx_http_vibelock_bus_parameter(ngx_conf_t *cf, ngx_http_vibelock_bus_t *bus,
    ngx_str_t *value)
{
    u_char     *p;
    ngx_str_t   name, text;

    p = (u_char *) ngx_strchr(value->data, '=');

    if (p) {
        name.data = value->data;
        name.len = p + 1 - name.data;

        text.data = p + 1;
        text.len = value->data + value->len - text.data;

        if (ngx_strncmp(name.data, "prefix=", name.len) == 0) {
            bus->prefix = text;
            return ngx_http_vibelock_bus_text(cf, value, &text,
                                              NGX_HTTP_VIBELOCK_BUS_TEXT);
        }

        if (ngx_strncmp(name.data, "replica=", name.len) == 0) {
            bus->replica = text;
            return ngx_http_vibelock_bus_text(cf, value, &text,
                                              NGX_HTTP_VIBELOCK_BUS_REPLICA);
        }

        if (ngx_strncmp(name.data, "password_file=", name.len) == 0
            && text.len)
        {
            return ngx_http_vibelock_redis_url_password(cf, &bus->url, &text);
        }

        if (ngx_strncmp(name.data, "timeout=", name.len) == 0) {
            return ngx_http_vibelock_bus_time(cf, value, &text, "250ms",
                                              &bus->timeout);
        }

        if (ngx_strncmp(name.data, "keepalive=", name.len) == 0) {
            return ngx_http_vibelock_bus_time(cf, value, &text, "15s",
                                              &bus->keepalive);
        }

        if (ngx_strncmp(name.data, "password=", name.len) == 0) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "\"vibelock_redis\" takes no \"password=\", "
                               "which would end up in logs; put it into a "
                               "file and add \"password_file=<file>\"");
            return NGX_CONF_ERROR;
        }
    }

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "invalid parameter \"%V\" in \"vibelock_redis\", it "
                       "takes \"prefix=<text>\", \"password_file=<file>\", "
                       "\"replica=<name>\", \"timeout=<time>\" and "
                       "\"keepalive=<time>\"", value);

    return NGX_CONF_ERROR;
}


static char *
ngx_http_vibelock_bus_time(ngx_conf_t *cf, ngx_str_t *value, ngx_str_t *time,
    char *example, ngx_msec_t *msec)
{
    ngx_int_t  n;

    n = ngx_parse_time(time, 0);

    if (n == NGX_ERROR || n == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid parameter \"%V\" in \"vibelock_redis\", "
                           "it must be a time above 0, as in \"%*s%s\"",
                           value, (size_t) (time->data - value->data),
                           value->data, example);
        return NGX_CONF_ERROR;
    }

    *msec = n;

    return NGX_CONF_OK;
}


/* no control characters: it stands in logs, in names of keys, and in JSON */

static char *
ngx_http_vibelock_bus_text(ngx_conf_t *cf, ngx_str_t *value, ngx_str_t *text,
    size_t max)
{
    size_t  i;

    for (i = 0; i < text->len; i++) {
        if (text->data[i] < 0x21 || text->data[i] > 0x7e) {
            break;
        }
    }

    if (text->len == 0 || text->len > max || i < text->len) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid parameter \"%V\" in \"vibelock_redis\", "
                           "it must be 1 to %uz visible ASCII characters",
                           value, max);
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


static char *
ngx_http_vibelock_bus_replica(ngx_conf_t *cf, ngx_http_vibelock_bus_t *bus)
{
    if (bus->replica.len) {
        return NGX_CONF_OK;
    }

    bus->replica = cf->cycle->hostname;
    bus->replica.len = ngx_min(bus->replica.len,
                               NGX_HTTP_VIBELOCK_BUS_REPLICA);

    return ngx_http_vibelock_bus_text(cf, &bus->replica, &bus->replica,
                                      NGX_HTTP_VIBELOCK_BUS_REPLICA);
}


char *
ngx_http_vibelock_bus_check(ngx_conf_t *cf, ngx_http_vibelock_bus_t *bus,
    ngx_http_vibelock_zones_t *zones, ngx_http_vibelock_registry_t *registry)
{
    size_t                      n;
    ngx_uint_t                  i;
    ngx_http_vibelock_zone_t  **zone;

    bus->registry = registry;
    bus->nzones = zones->list.nelts;

    /* XREAD COUNT n BLOCK n STREAMS, and two for each */

    n = 6 + 2 * bus->nzones;

    bus->zones = ngx_pcalloc(cf->pool, bus->nzones
                                       * sizeof(ngx_http_vibelock_bus_zone_t));
    bus->argv = ngx_palloc(cf->pool, n * sizeof(char *));
    bus->argvlen = ngx_palloc(cf->pool, n * sizeof(size_t));

    /* COUNT, and ids: an id is two numbers and a hyphen */

    bus->numbers = ngx_palloc(cf->pool, NGX_INT64_LEN + bus->nzones
                                        * (2 * NGX_INT64_LEN + 1));

    if (bus->zones == NULL || bus->argv == NULL || bus->argvlen == NULL
        || bus->numbers == NULL)
    {
        return NGX_CONF_ERROR;
    }

    zone = zones->list.elts;

    for (i = 0; i < bus->nzones; i++) {
        bus->zones[i].zone = zone[i];

        if (ngx_http_vibelock_bus_zone(cf, bus, &bus->zones[i])
            != NGX_CONF_OK)
        {
            return NGX_CONF_ERROR;
        }
    }

    return ngx_http_vibelock_redis_url_resolve(cf, &bus->url);
}


static char *
ngx_http_vibelock_bus_zone(ngx_conf_t *cf, ngx_http_vibelock_bus_t *bus,
    ngx_http_vibelock_bus_zone_t *bz)
{
    u_char     *p;
    ngx_str_t  *name;

    name = &bz->zone->name;

    bz->bus = bus;
    bz->zone->bus = bz;

    bz->stream.len = bus->prefix.len + name->len + sizeof(":releases") - 1;
    bz->stream.data = ngx_pnalloc(cf->pool, bz->stream.len);

    /* the unique part follows when the zone is there */

    bz->from.len = bus->replica.len + 1 + NGX_HTTP_VIBELOCK_BUS_UNIQUE;
    bz->from.data = ngx_pnalloc(cf->pool, bz->from.len);

    if (bz->stream.data == NULL || bz->from.data == NULL) {
        return NGX_CONF_ERROR;
    }

    p = ngx_cpymem(bz->stream.data, bus->prefix.data, bus->prefix.len);
    p = ngx_cpymem(p, name->data, name->len);
    ngx_memcpy(p, ":releases", sizeof(":releases") - 1);

    p = ngx_cpymem(bz->from.data, bus->replica.data, bus->replica.len);
    *p = '-';

    bz->source = (uint64_t) ngx_murmur_hash2(bus->url.text.data,
                                             bus->url.text.len)
                 << 32
                 | ngx_murmur_hash2(bz->stream.data, bz->stream.len)
                 | 1;

    if (ngx_http_vibelock_bus_publish_zone(cf, bz) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


void
ngx_http_vibelock_bus_init(ngx_http_vibelock_bus_t *bus)
{
    size_t                         size;
    u_char                        *p;
    ngx_uint_t                     i;
    ngx_http_vibelock_bus_zone_t  *bz;

    for (i = 0; i < bus->nzones; i++) {
        bz = &bus->zones[i];

        p = ngx_http_vibelock_zone_bus(bz->zone, &size);

        bz->share = (ngx_http_vibelock_bus_share_t *) p;
        bz->queue = (ngx_http_vibelock_queue_t *)
                        (p + NGX_HTTP_VIBELOCK_ZONE_STATE);
        bz->pool = ngx_http_vibelock_zone_pool(bz->zone);

        if (bz->share->made == 0) {
            ngx_http_vibelock_queue_init(bz->queue,
                                         size - NGX_HTTP_VIBELOCK_ZONE_STATE);
            ngx_http_vibelock_bus_share_init(bz->share);
        }

        bz->share->target = bz->source;

        ngx_memcpy(bz->from.data + bus->replica.len + 1, bz->share->unique,
                   NGX_HTTP_VIBELOCK_BUS_UNIQUE);
    }
}


/* with those that were dropped since the last line about that */

void
ngx_http_vibelock_bus_end(ngx_http_vibelock_bus_t *bus, ngx_cycle_t *cycle)
{
    ngx_uint_t                       i, n;
    ngx_http_vibelock_bus_zone_t    *bz;
    ngx_http_vibelock_queue_usage_t  usage;

    for (i = 0; i < bus->nzones; i++) {
        bz = &bus->zones[i];

        ngx_http_vibelock_queue_usage(bz->queue, &usage);

        n = usage.queued + usage.dropped - bz->share->dropped;

        if (n) {
            ngx_log_error(NGX_LOG_ERR, cycle->log, 0,
                          "vibelock: %ui releases of zone \"%V\" end with "
                          "nginx: Redis has not said that it took them",
                          n, &bz->zone->name);
        }
    }
}


void
ngx_http_vibelock_bus_start(ngx_http_vibelock_bus_t *bus, ngx_cycle_t *cycle)
{
    if (bus->nzones == 0) {
        return;
    }

    ngx_http_vibelock_hash_random(&bus->nonce, sizeof(bus->nonce));

    bus->log = cycle->log;

    bus->tick.handler = ngx_http_vibelock_bus_tick;
    bus->tick.data = bus;
    bus->tick.log = cycle->log;
    bus->tick.cancelable = 1;

    ngx_http_vibelock_bus_publish_start(bus);
    ngx_http_vibelock_bus_read_start(bus);

    ngx_add_timer(&bus->tick, 1);
}


void
ngx_http_vibelock_bus_stop(ngx_http_vibelock_bus_t *bus)
{
    if (bus->tick.timer_set) {
        ngx_del_timer(&bus->tick);
    }

    if (bus->log) {
        ngx_http_vibelock_bus_read_stop(bus);
        ngx_http_vibelock_bus_publish_stop(bus);
    }
}


static void
ngx_http_vibelock_bus_tick(ngx_event_t *ev)
{
    ngx_uint_t                i;
    ngx_http_vibelock_bus_t  *bus;

    bus = ev->data;

    ngx_http_vibelock_bus_read_tick(bus);
    ngx_http_vibelock_bus_publish_turn(bus);
    ngx_http_vibelock_bus_publish_tick(bus);

    for (i = 0; i < bus->nzones; i++) {
        ngx_http_vibelock_bus_drops(&bus->zones[i]);
        ngx_http_vibelock_bus_news(&bus->zones[i], NULL,
                                   NGX_HTTP_VIBELOCK_BUS_SIDES);
    }

    ngx_add_timer(ev, NGX_HTTP_VIBELOCK_BUS_TICK);
}


void
ngx_http_vibelock_bus_note(ngx_http_vibelock_bus_zone_t *bz,
    ngx_http_vibelock_bus_side_e side, ngx_http_vibelock_redis_t *redis,
    ngx_http_vibelock_redis_e why, ngx_err_t err)
{
    ngx_err_t  was;

    /* each release that Redis took says so */

    if (why == NGX_HTTP_VIBELOCK_REDIS_WORKS
        && ngx_http_vibelock_bus_share_why(bz->share, side, &was) == why)
    {
        return;
    }

    ngx_http_vibelock_bus_share_set(bz->share, side, why, err);
    ngx_http_vibelock_bus_news(bz, redis, side);
}


void
ngx_http_vibelock_bus_lost(ngx_http_vibelock_bus_t *bus,
    ngx_http_vibelock_bus_side_e side, ngx_http_vibelock_redis_t *redis)
{
    ngx_uint_t  i;

    /* who leaves may have a configuration that is not in force any more */

    if (ngx_exiting) {
        return;
    }

    for (i = 0; i < bus->nzones; i++) {
        if (side == NGX_HTTP_VIBELOCK_BUS_READS && !bus->zones[i].leased) {
            continue;
        }

        ngx_http_vibelock_bus_note(&bus->zones[i], side, redis, redis->why,
                                   redis->err);
    }
}


/*
 * "redis" has the words of Redis, or of TLS, for what went wrong on the side
 * "heard"; with NULL and none they are not known.
 */

static void
ngx_http_vibelock_bus_news(ngx_http_vibelock_bus_zone_t *bz,
    ngx_http_vibelock_redis_t *redis, ngx_uint_t heard)
{
    ngx_int_t                      rc;
    ngx_err_t                      err;
    ngx_str_t                      said;
    ngx_http_vibelock_redis_e      why;
    ngx_http_vibelock_bus_side_e   side;

    rc = ngx_http_vibelock_bus_share_news(bz->share, heard, &side);

    if (rc == NGX_OK) {
        ngx_log_error(NGX_LOG_NOTICE, bz->bus->log, 0,
                      "vibelock: the bus of zone \"%V\" works again",
                      &bz->zone->name);
        return;
    }

    if (rc == NGX_DONE) {
        return;
    }

    why = ngx_http_vibelock_bus_share_why(bz->share, side, &err);

    ngx_str_null(&said);

    if (side == heard && ngx_http_vibelock_redis_worded(why)) {
        said.data = redis->text;
        said.len = redis->text_len;
    }

    ngx_log_error(NGX_LOG_ERR, bz->bus->log, err,
                  "vibelock: the bus of zone \"%V\" is away, it cannot %s: "
                  "%V, \"%V\"%s%V%s", &bz->zone->name,
                  side == NGX_HTTP_VIBELOCK_BUS_READS ? "read" : "publish",
                  ngx_http_vibelock_redis_text(why), &bz->bus->url.text,
                  said.len ? " (" : "", &said, said.len ? ")" : "");
}


static void
ngx_http_vibelock_bus_drops(ngx_http_vibelock_bus_zone_t *bz)
{
    ngx_http_vibelock_queue_usage_t  usage;

    ngx_http_vibelock_queue_usage(bz->queue, &usage);

    if (usage.dropped == bz->share->dropped
        || !ngx_http_vibelock_bus_share_once(bz->share,
                                          NGX_HTTP_VIBELOCK_BUS_ONCE_DROPPED))
    {
        return;
    }

    ngx_log_error(NGX_LOG_ERR, bz->bus->log, 0,
                  "vibelock: %ui releases of zone \"%V\" were dropped: they "
                  "waited for Redis for over a minute, or there were more "
                  "than the queue holds", usage.dropped - bz->share->dropped,
                  &bz->zone->name);

    bz->share->dropped = usage.dropped;
}


ngx_int_t
ngx_http_vibelock_bus_state(ngx_http_vibelock_zone_t *zone,
    ngx_http_vibelock_bus_state_t *state)
{
    ngx_err_t                         err;
    ngx_uint_t                        i;
    ngx_atomic_t                     *counters;
    ngx_http_vibelock_bus_zone_t     *bz;
    ngx_http_vibelock_bus_share_t    *share;
    ngx_http_vibelock_queue_usage_t   usage;

    bz = zone->bus;

    if (bz == NULL) {
        return NGX_DECLINED;
    }

    share = bz->share;
    counters = share->counters;

    state->stream = bz->stream;

    state->reading = ngx_http_vibelock_bus_share_why(share,
                                         NGX_HTTP_VIBELOCK_BUS_READS, &err);
    state->publishing = ngx_http_vibelock_bus_share_why(share,
                                     NGX_HTTP_VIBELOCK_BUS_PUBLISHES, &err);

    ngx_http_vibelock_queue_usage(bz->queue, &usage);

    state->published = usage.published;
    state->merged = usage.merged;
    state->queued = usage.queued;
    state->dropped = usage.dropped;

    state->reconnects = counters[NGX_HTTP_VIBELOCK_BUS_N_RECONNECTS];
    state->received = counters[NGX_HTTP_VIBELOCK_BUS_N_RECEIVED];
    state->applied = counters[NGX_HTTP_VIBELOCK_BUS_N_APPLIED];
    state->rewinds = counters[NGX_HTTP_VIBELOCK_BUS_N_REWINDS];

    for (i = 0; i < NGX_HTTP_VIBELOCK_BUS_SKIPS; i++) {
        state->skipped[i] = counters[NGX_HTTP_VIBELOCK_BUS_N_SKIPPED + i];
    }

    state->reader = (share->until > ngx_current_msec) ? share->pid : 0;
    state->lag = share->lag;
    state->last_ms = share->last.ms;
    state->last_seq = share->last.seq;

    return NGX_OK;
}
