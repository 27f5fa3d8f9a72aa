
/*
 * Copyright (C) the vibelock authors
 *
 * Publishing: a release goes into the zone's queue, and from there to Redis,
 * through whichever worker is connected.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_vibelock_bus_inner.h"
#include "ngx_http_vibelock_clock.h"
#include "ngx_http_vibelock_entry.h"
#include "ngx_http_vibelock_number.h"


/* what the queue holds is what an entry says */
#if (NGX_HTTP_VIBELOCK_QUEUE_KEY > NGX_HTTP_VIBELOCK_ENTRY_KEY                \
     || NGX_HTTP_VIBELOCK_QUEUE_OWNER != NGX_HTTP_VIBELOCK_ENTRY_OWNER)
#error "an entry has no room for a release of the queue"
#endif


/* entries that a worker may have on their way */
#define NGX_HTTP_VIBELOCK_BUS_FLIGHT  128

/* a worker that says nothing for so long after a reply's time is dead, ms */
#define NGX_HTTP_VIBELOCK_BUS_SILENT  1000

/* the command up to its entry, in Redis's protocol */

#define NGX_HTTP_VIBELOCK_BUS_XADD                                            \
    "*8\r\n$4\r\nXADD\r\n$%uz\r\n%V\r\n"                                      \
    "$6\r\nMAXLEN\r\n$1\r\n~\r\n$5\r\n10000\r\n$1\r\n*\r\n"                    \
    "$7\r\nrelease\r\n$"

/*
 * No entry has this id: Redis says so where it would let us write one, and
 * else what keeps us from it.
 */

#define NGX_HTTP_VIBELOCK_BUS_TRIAL                                           \
    "*5\r\n$4\r\nXADD\r\n$%uz\r\n%V\r\n"                                      \
    "$3\r\n0-0\r\n$7\r\nrelease\r\n$0\r\n\r\n"

#define NGX_HTTP_VIBELOCK_BUS_TRIED  "ERR The ID specified in XADD"

/* after an error that is this stream's own, ms */
#define NGX_HTTP_VIBELOCK_BUS_PAUSE   250

/* a worker that exits waits so long for the last answers, ms */
#define NGX_HTTP_VIBELOCK_BUS_LINGER  500


static void ngx_http_vibelock_bus_publish_ready(
    ngx_http_vibelock_redis_t *redis);
static void ngx_http_vibelock_bus_publish_lost(
    ngx_http_vibelock_redis_t *redis);
static void ngx_http_vibelock_bus_publish_leave(
    ngx_http_vibelock_redis_t *redis);
static void ngx_http_vibelock_bus_publish_linger(
    ngx_http_vibelock_bus_t *bus);
static void ngx_http_vibelock_bus_publish_linger_handler(ngx_event_t *ev);
static void ngx_http_vibelock_bus_publish_answered(
    ngx_http_vibelock_bus_t *bus);
static ngx_uint_t ngx_http_vibelock_bus_publish_pending(
    ngx_http_vibelock_bus_t *bus);
static void ngx_http_vibelock_bus_publish_hurry(ngx_http_vibelock_bus_t *bus);
static void ngx_http_vibelock_bus_publish_repeat(ngx_event_t *ev);
static void ngx_http_vibelock_bus_publish_pump(ngx_http_vibelock_bus_t *bus);
static ngx_uint_t ngx_http_vibelock_bus_publish_can(
    ngx_http_vibelock_bus_zone_t *bz);
static ngx_int_t ngx_http_vibelock_bus_publish_item(
    ngx_http_vibelock_bus_zone_t *bz, ngx_http_vibelock_queued_t *item);
static ngx_int_t ngx_http_vibelock_bus_publish_send(
    ngx_http_vibelock_bus_zone_t *bz, ngx_http_vibelock_queued_t *item);
static void ngx_http_vibelock_bus_publish_reply(
    ngx_http_vibelock_redis_t *redis, redisReply *reply, void *data,
    uint64_t id);
static void ngx_http_vibelock_bus_publish_error(
    ngx_http_vibelock_bus_zone_t *bz, ngx_http_vibelock_redis_t *redis,
    redisReply *reply);
static void ngx_http_vibelock_bus_publish_try(
    ngx_http_vibelock_bus_zone_t *bz);
static void ngx_http_vibelock_bus_publish_tried(
    ngx_http_vibelock_redis_t *redis, redisReply *reply, void *data,
    uint64_t id);


/* how a release that was taken from the queue goes through a reply's "id" */

#define ngx_http_vibelock_bus_publish_id(item)                                \
    ((uint64_t) (item)->serial << 32 | (item)->cell)

#define ngx_http_vibelock_bus_publish_cell(id)    ((uint32_t) (id))
#define ngx_http_vibelock_bus_publish_serial(id)  ((uint32_t) ((id) >> 32))


/*
 * A worker that finishes what was open at a reload may know another Redis or
 * another stream than those that came after it: what waits is theirs to send.
 */

#define ngx_http_vibelock_bus_publish_here(bz)                                \
    ((bz)->share->target == (bz)->source)


/* Redis refused an entry, and not the login or anything before that */

#define ngx_http_vibelock_bus_publish_refused(why)                            \
    ((why) >= NGX_HTTP_VIBELOCK_REDIS_READONLY                                \
     && (why) != NGX_HTTP_VIBELOCK_REDIS_NOAUTH)


/* what was sent waits again, when nothing was heard of it for that long */

#define ngx_http_vibelock_bus_publish_limit(bz)                               \
    ((bz)->bus->timeout + NGX_HTTP_VIBELOCK_BUS_SILENT)


ngx_int_t
ngx_http_vibelock_bus_publish_zone(ngx_conf_t *cf,
    ngx_http_vibelock_bus_zone_t *bz)
{
    size_t   size;
    u_char  *p;

    size = sizeof(NGX_HTTP_VIBELOCK_BUS_XADD) + NGX_SIZE_T_LEN
           + bz->stream.len;

    p = ngx_pnalloc(cf->pool, size + NGX_SIZE_T_LEN + 2 * (sizeof(CRLF) - 1)
                              + NGX_HTTP_VIBELOCK_ENTRY_MAX);
    if (p == NULL) {
        return NGX_ERROR;
    }

    bz->xadd.data = p;
    bz->xadd.len = ngx_sprintf(p, NGX_HTTP_VIBELOCK_BUS_XADD, bz->stream.len,
                               &bz->stream)
                   - p;

    p = ngx_pnalloc(cf->pool, sizeof(NGX_HTTP_VIBELOCK_BUS_TRIAL)
                              + NGX_SIZE_T_LEN + bz->stream.len);
    if (p == NULL) {
        return NGX_ERROR;
    }

    bz->trial.data = p;
    bz->trial.len = ngx_sprintf(p, NGX_HTTP_VIBELOCK_BUS_TRIAL,
                                bz->stream.len, &bz->stream)
                    - p;

    return NGX_OK;
}


void
ngx_http_vibelock_bus_publish_start(ngx_http_vibelock_bus_t *bus)
{
    ngx_http_vibelock_redis_t  *redis;

    bus->repeat.handler = ngx_http_vibelock_bus_publish_repeat;
    bus->repeat.data = bus;
    bus->repeat.log = bus->log;
    bus->repeat.cancelable = 1;

    /* not cancelable: a worker does not exit before it */

    bus->linger.handler = ngx_http_vibelock_bus_publish_linger_handler;
    bus->linger.data = bus;
    bus->linger.log = bus->log;

    redis = &bus->publisher;

    redis->url = &bus->url;
    redis->log = bus->log;
    redis->ready = ngx_http_vibelock_bus_publish_ready;
    redis->lost = ngx_http_vibelock_bus_publish_lost;
    redis->leave = ngx_http_vibelock_bus_publish_leave;
    redis->data = bus;
    redis->timeout = bus->timeout;
    redis->keepalive = bus->keepalive;
    redis->tests = 1;

    ngx_http_vibelock_redis_init(redis);
    ngx_http_vibelock_redis_open(redis);
}


/*
 * What was sent and not answered waits again, for the workers that are left.
 */

void
ngx_http_vibelock_bus_publish_stop(ngx_http_vibelock_bus_t *bus)
{
    if (bus->repeat.timer_set) {
        ngx_del_timer(&bus->repeat);
    }

    if (bus->linger.timer_set) {
        ngx_del_timer(&bus->linger);
    }

    ngx_http_vibelock_bus_publish_hurry(bus);
    ngx_http_vibelock_bus_publish_pump(bus);

    ngx_http_vibelock_redis_flush(&bus->publisher);
    ngx_http_vibelock_redis_close(&bus->publisher);
}


void
ngx_http_vibelock_bus_publish(ngx_http_vibelock_zone_t *zone, ngx_str_t *key,
    u_char *owner, ngx_msec_t moment)
{
    ngx_int_t                      rc;
    ngx_msec_t                     turn;
    ngx_http_vibelock_queued_t     item;
    ngx_http_vibelock_bus_zone_t  *bz;

    bz = zone->bus;

    if (bz == NULL) {
        return;
    }

    /* locks elsewhere are compared with the moment */

    turn = ngx_http_vibelock_clock_now();

    rc = ngx_http_vibelock_queue_put(bz->queue, bz->pool, key, owner,
                                     moment ? moment : ngx_current_msec,
                                     ngx_http_vibelock_bus_publish_limit(bz),
                                     ngx_http_vibelock_bus_publish_can(bz)
                                     ? &item : NULL);

    if (rc == NGX_DONE) {
        (void) ngx_http_vibelock_bus_publish_item(bz, &item);

    } else if (rc == NGX_OK) {
        ngx_http_vibelock_bus_publish_pump(bz->bus);

    } else if (rc == NGX_AGAIN) {
        ngx_http_vibelock_bus_publish_turn(bz->bus);
    }

    /* NGX_BUSY: the tick sends it; NGX_DECLINED: it is counted */

    if (rc == NGX_DONE || rc == NGX_OK) {

        /*
         * on its way before the answer to whoever released, unless there are
         * many at once
         */

        ngx_http_vibelock_redis_push(&bz->bus->publisher);
    }

    if (ngx_exiting) {

        if (rc == NGX_AGAIN) {
            ngx_http_vibelock_bus_publish_hurry(bz->bus);
            ngx_http_vibelock_bus_publish_pump(bz->bus);
        }

        ngx_http_vibelock_bus_publish_linger(bz->bus);
    }

    ngx_http_vibelock_clock_back(turn);
}


void
ngx_http_vibelock_bus_publish_turn(ngx_http_vibelock_bus_t *bus)
{
    ngx_int_t                      rc;
    ngx_uint_t                     i;
    ngx_msec_t                     next, soonest;
    ngx_http_vibelock_bus_zone_t  *bz;

    soonest = 0;

    for (i = 0; i < bus->nzones; i++) {
        bz = &bus->zones[i];

        rc = ngx_http_vibelock_queue_turn(bz->queue, bz->pool, &next);

        if (rc == NGX_AGAIN) {
            next = 1;
        }

        if (next && (soonest == 0 || next < soonest)) {
            soonest = next;
        }
    }

    if (bus->repeat.timer_set) {
        ngx_del_timer(&bus->repeat);
    }

    if (soonest) {
        ngx_add_timer(&bus->repeat, soonest);
    }

    ngx_http_vibelock_bus_publish_pump(bus);
}


/*
 * The state is that of all workers, and whoever wrote it last may be one that
 * leaves with a password that is not good any more, or that alone cannot
 * connect.  As long as another one can, what waits is sent.
 *
 * When nothing waits any more, and Redis took none of it, it is asked now and
 * then whether it would.
 */

void
ngx_http_vibelock_bus_publish_tick(ngx_http_vibelock_bus_t *bus)
{
    ngx_err_t                        err;
    ngx_uint_t                       i;
    ngx_http_vibelock_redis_e        why;
    ngx_http_vibelock_bus_zone_t    *bz;
    ngx_http_vibelock_queue_usage_t  usage;

    if (!bus->publisher.connected) {
        return;
    }

    for (i = 0; i < bus->nzones; i++) {
        bz = &bus->zones[i];

        if (!ngx_http_vibelock_bus_publish_here(bz)) {
            continue;
        }

        why = ngx_http_vibelock_bus_share_why(bz->share,
                                        NGX_HTTP_VIBELOCK_BUS_PUBLISHES, &err);

        if (ngx_http_vibelock_bus_publish_refused(why)) {

            ngx_http_vibelock_queue_usage(bz->queue, &usage);

            if (usage.queued == 0) {
                ngx_http_vibelock_bus_publish_try(bz);
            }

            continue;
        }

        if (why != NGX_HTTP_VIBELOCK_REDIS_WORKS
            && why != NGX_HTTP_VIBELOCK_REDIS_LOADING)
        {
            ngx_http_vibelock_bus_note(bz, NGX_HTTP_VIBELOCK_BUS_PUBLISHES,
                                       &bus->publisher,
                                       NGX_HTTP_VIBELOCK_REDIS_WORKS, 0);
        }
    }
}


static void
ngx_http_vibelock_bus_publish_repeat(ngx_event_t *ev)
{
    ngx_http_vibelock_bus_publish_turn(ev->data);
}


/*
 * Whether Redis lets us write is not known before it was tried: an error of
 * an entry stands until another one was taken, or would be.
 */

static void
ngx_http_vibelock_bus_publish_ready(ngx_http_vibelock_redis_t *redis)
{
    ngx_err_t                      err;
    ngx_uint_t                     i;
    ngx_http_vibelock_bus_t       *bus;
    ngx_http_vibelock_redis_e      why;
    ngx_http_vibelock_bus_zone_t  *bz;

    bus = redis->data;

    for (i = 0; i < bus->nzones; i++) {
        bz = &bus->zones[i];
        bz->pause = 0;

        if (!ngx_http_vibelock_bus_publish_here(bz)) {
            continue;
        }

        if (redis->connects > 1) {
            ngx_http_vibelock_bus_share_count(bz->share,
                                           NGX_HTTP_VIBELOCK_BUS_N_RECONNECTS);
        }

        why = ngx_http_vibelock_bus_share_why(bz->share,
                                        NGX_HTTP_VIBELOCK_BUS_PUBLISHES, &err);

        if (why < NGX_HTTP_VIBELOCK_REDIS_LOADING
            || (!ngx_http_vibelock_bus_publish_refused(why)
                && !ngx_http_vibelock_queue_waits(bz->queue)))
        {
            ngx_http_vibelock_bus_note(bz, NGX_HTTP_VIBELOCK_BUS_PUBLISHES,
                                       redis, NGX_HTTP_VIBELOCK_REDIS_WORKS,
                                       0);
        }
    }

    ngx_http_vibelock_bus_publish_pump(bus);
}


static void
ngx_http_vibelock_bus_publish_lost(ngx_http_vibelock_redis_t *redis)
{
    ngx_http_vibelock_bus_lost(redis->data, NGX_HTTP_VIBELOCK_BUS_PUBLISHES,
                               redis);
}


/*
 * The worker exits when its last request ends, which may still have something
 * to publish.  The connection does not keep it, but for the answers to what
 * was sent.
 */

static void
ngx_http_vibelock_bus_publish_leave(ngx_http_vibelock_redis_t *redis)
{
    ngx_http_vibelock_bus_t  *bus;

    bus = redis->data;

    ngx_http_vibelock_bus_publish_hurry(bus);
    ngx_http_vibelock_bus_publish_pump(bus);
    ngx_http_vibelock_bus_publish_linger(bus);
}


/*
 * After a worker there may be nobody else who sends what waits.  And a socket
 * that is closed before the answers came is reset by them: Redis drops what it
 * has not read of it by then.  So the worker stays for them, a moment at most;
 * its event loop goes on.
 */

static void
ngx_http_vibelock_bus_publish_linger(ngx_http_vibelock_bus_t *bus)
{
    if (!bus->linger.timer_set && ngx_http_vibelock_bus_publish_pending(bus)) {
        ngx_add_timer(&bus->linger, NGX_HTTP_VIBELOCK_BUS_LINGER);
    }
}


static void
ngx_http_vibelock_bus_publish_linger_handler(ngx_event_t *ev)
{
    /* nginx looks by itself whether anything else keeps the worker */
}


/* the worker may exit when nothing is left; a repeat is what was left last */

static void
ngx_http_vibelock_bus_publish_answered(ngx_http_vibelock_bus_t *bus)
{
    if (!bus->linger.timer_set || ngx_http_vibelock_bus_publish_pending(bus)) {
        return;
    }

    ngx_http_vibelock_bus_publish_hurry(bus);
    ngx_http_vibelock_bus_publish_pump(bus);

    if (!ngx_http_vibelock_bus_publish_pending(bus)) {
        ngx_del_timer(&bus->linger);
    }
}


/* whether there is something that this worker can wait for */

static ngx_uint_t
ngx_http_vibelock_bus_publish_pending(ngx_http_vibelock_bus_t *bus)
{
    ngx_uint_t                     i;
    ngx_http_vibelock_bus_zone_t  *bz;

    if (!bus->publisher.connected) {
        return 0;
    }

    if (bus->flight) {
        return 1;
    }

    for (i = 0; i < bus->nzones; i++) {
        bz = &bus->zones[i];

        if (ngx_http_vibelock_bus_publish_can(bz)
            && ngx_http_vibelock_queue_waits(bz->queue))
        {
            return 1;
        }
    }

    return 0;
}


/* a repeat is not left to its time, when nobody may be there */

static void
ngx_http_vibelock_bus_publish_hurry(ngx_http_vibelock_bus_t *bus)
{
    ngx_uint_t                     i;
    ngx_http_vibelock_bus_zone_t  *bz;

    for (i = 0; i < bus->nzones; i++) {
        bz = &bus->zones[i];

        if (ngx_http_vibelock_bus_publish_can(bz)) {
            ngx_http_vibelock_queue_hurry(bz->queue, bz->pool);
        }
    }
}


static void
ngx_http_vibelock_bus_publish_pump(ngx_http_vibelock_bus_t *bus)
{
    ngx_uint_t                     i;
    ngx_http_vibelock_queued_t     item;
    ngx_http_vibelock_bus_zone_t  *bz;

    for (i = 0; i < bus->nzones; i++) {
        bz = &bus->zones[i];

        while (ngx_http_vibelock_bus_publish_can(bz)
               && ngx_http_vibelock_queue_waits(bz->queue)
               && ngx_http_vibelock_queue_take(bz->queue, bz->pool,
                                       ngx_http_vibelock_bus_publish_limit(bz),
                                       &item)
                  == NGX_OK)
        {
            if (ngx_http_vibelock_bus_publish_item(bz, &item) != NGX_OK) {
                return;
            }
        }
    }
}


static ngx_uint_t
ngx_http_vibelock_bus_publish_can(ngx_http_vibelock_bus_zone_t *bz)
{
    return bz->bus->publisher.connected
           && bz->bus->flight < NGX_HTTP_VIBELOCK_BUS_FLIGHT
           && ngx_http_vibelock_bus_publish_here(bz)
           && (bz->pause == 0 || bz->pause <= ngx_current_msec);
}


static ngx_int_t
ngx_http_vibelock_bus_publish_item(ngx_http_vibelock_bus_zone_t *bz,
    ngx_http_vibelock_queued_t *item)
{
    if (ngx_http_vibelock_bus_publish_send(bz, item) != NGX_OK) {

        /* no memory: the tick tries again */

        ngx_http_vibelock_queue_back(bz->queue, bz->pool, item->cell,
                                     item->serial);
        return NGX_ERROR;
    }

    bz->bus->flight++;

    return NGX_OK;
}


static ngx_int_t
ngx_http_vibelock_bus_publish_send(ngx_http_vibelock_bus_zone_t *bz,
    ngx_http_vibelock_queued_t *item)
{
    u_char                     *p;
    u_char                      json[NGX_HTTP_VIBELOCK_ENTRY_MAX];
    size_t                      len;
    ngx_http_vibelock_redis_t  *redis;
    ngx_http_vibelock_entry_t   entry;

    redis = &bz->bus->publisher;

    entry.key_len = item->key_len;
    ngx_memcpy(entry.key, item->key, item->key_len);

    entry.from_len = bz->from.len;
    ngx_memcpy(entry.from, bz->from.data, bz->from.len);

    ngx_memcpy(entry.owner, item->owner, NGX_HTTP_VIBELOCK_QUEUE_OWNER);

    entry.at = (uint64_t) ((int64_t) item->at + redis->offset);

    len = ngx_http_vibelock_entry_encode(&entry, json);

    if (len == 0) {
        return NGX_ERROR;
    }

    /* behind the beginning there is room for the rest */

    p = bz->xadd.data + bz->xadd.len;

    p = ngx_http_vibelock_number(p, len);
    p = ngx_cpymem(p, CRLF, sizeof(CRLF) - 1);
    p = ngx_cpymem(p, json, len);
    p = ngx_cpymem(p, CRLF, sizeof(CRLF) - 1);

    return ngx_http_vibelock_redis_send(redis, bz->xadd.data,
                                        p - bz->xadd.data, 0,
                                        ngx_http_vibelock_bus_publish_reply,
                                        bz,
                                        ngx_http_vibelock_bus_publish_id(item));
}


static void
ngx_http_vibelock_bus_publish_reply(ngx_http_vibelock_redis_t *redis,
    redisReply *reply, void *data, uint64_t id)
{
    uint32_t                       cell, serial;
    ngx_http_vibelock_bus_t       *bus;
    ngx_http_vibelock_bus_zone_t  *bz;

    bz = data;
    bus = bz->bus;

    cell = ngx_http_vibelock_bus_publish_cell(id);
    serial = ngx_http_vibelock_bus_publish_serial(id);

    bus->flight--;

    if (reply && reply->type == REDIS_REPLY_STRING) {
        ngx_http_vibelock_queue_sent(bz->queue, bz->pool, cell, serial);

        ngx_http_vibelock_bus_note(bz, NGX_HTTP_VIBELOCK_BUS_PUBLISHES, redis,
                                   NGX_HTTP_VIBELOCK_REDIS_WORKS, 0);

        ngx_http_vibelock_bus_publish_pump(bus);

    } else {
        ngx_http_vibelock_queue_back(bz->queue, bz->pool, cell, serial);

        if (reply) {
            ngx_http_vibelock_bus_publish_error(bz, redis, reply);
        }
    }

    ngx_http_vibelock_bus_publish_answered(bus);
}


/*
 * What is wrong with the server wants another connection, which may lead to
 * another server; what is wrong with a stream leaves the others alone.
 */

static void
ngx_http_vibelock_bus_publish_error(ngx_http_vibelock_bus_zone_t *bz,
    ngx_http_vibelock_redis_t *redis, redisReply *reply)
{
    ngx_http_vibelock_redis_e  why;

    why = NGX_HTTP_VIBELOCK_REDIS_UNEXPECTED;

    if (reply->type == REDIS_REPLY_ERROR) {
        why = ngx_http_vibelock_redis_error(redis, reply);
    }

    bz->tried = ngx_current_msec;

    switch (why) {

    case NGX_HTTP_VIBELOCK_REDIS_UNEXPECTED:
    case NGX_HTTP_VIBELOCK_REDIS_LOADING:
    case NGX_HTTP_VIBELOCK_REDIS_READONLY:
    case NGX_HTTP_VIBELOCK_REDIS_NOAUTH:
        ngx_http_vibelock_redis_fail(redis, why, 0);
        break;

    default:
        bz->pause = ngx_current_msec + NGX_HTTP_VIBELOCK_BUS_PAUSE;

        ngx_http_vibelock_bus_note(bz, NGX_HTTP_VIBELOCK_BUS_PUBLISHES, redis,
                                   why, 0);
        break;
    }
}


/*
 * Another kind of key is none of what keeps Redis from looking at the id; who
 * reads the stream knows of it.
 */

static void
ngx_http_vibelock_bus_publish_try(ngx_http_vibelock_bus_zone_t *bz)
{
    ngx_err_t                   err;
    ngx_http_vibelock_redis_t  *redis;

    redis = &bz->bus->publisher;

    if (ngx_http_vibelock_bus_share_why(bz->share,
                                        NGX_HTTP_VIBELOCK_BUS_READS, &err)
        == NGX_HTTP_VIBELOCK_REDIS_WRONGTYPE)
    {
        return;
    }

    if (bz->tried && ngx_current_msec - bz->tried < bz->bus->keepalive) {
        return;
    }

    bz->tried = ngx_current_msec;

    /* no memory: the next one may have some */

    (void) ngx_http_vibelock_redis_send(redis, bz->trial.data, bz->trial.len,
                                        0, ngx_http_vibelock_bus_publish_tried,
                                        bz, 0);
}


static void
ngx_http_vibelock_bus_publish_tried(ngx_http_vibelock_redis_t *redis,
    redisReply *reply, void *data, uint64_t id)
{
    ngx_http_vibelock_bus_zone_t  *bz;

    bz = data;

    if (reply == NULL) {
        return;
    }

    if (reply->type == REDIS_REPLY_ERROR
        && ngx_strncmp(reply->str, NGX_HTTP_VIBELOCK_BUS_TRIED,
                       sizeof(NGX_HTTP_VIBELOCK_BUS_TRIED) - 1)
           == 0)
    {
        ngx_http_vibelock_bus_note(bz, NGX_HTTP_VIBELOCK_BUS_PUBLISHES, redis,
                                   NGX_HTTP_VIBELOCK_REDIS_WORKS, 0);
        return;
    }

    ngx_http_vibelock_bus_publish_error(bz, redis, reply);
}
