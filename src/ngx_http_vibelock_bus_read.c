
/*
 * Copyright (C) the vibelock authors
 *
 * Reading: one worker reads the streams of the zones that it has the leases
 * of.
 *
 * First each stream is looked at by itself, for whether it is one at all and
 * still has the entry that was read last; then all that can be read are read at
 * once, in a command that waits for a second at Redis.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_vibelock_bus_inner.h"


/* a worker that does nothing for that long loses its leases, ms */
#define NGX_HTTP_VIBELOCK_BUS_TERM    1500

/* XREAD waits so long at Redis, ms, and brings at most so many entries */
#define NGX_HTTP_VIBELOCK_BUS_BLOCK   1000
#define NGX_HTTP_VIBELOCK_BUS_BLOCK_TEXT  "1000"
#define NGX_HTTP_VIBELOCK_BUS_COUNT   32

/* between two looks at the clock and the streams, ms */
#define NGX_HTTP_VIBELOCK_BUS_CHECK   10000

/* before something that went wrong is tried again, ms */
#define NGX_HTTP_VIBELOCK_BUS_AGAIN   250

/* a zone begins to read at what was sent so long before it was made, ms */
#define NGX_HTTP_VIBELOCK_BUS_BEFORE  1000


static void ngx_http_vibelock_bus_read_ready(ngx_http_vibelock_redis_t *redis);
static void ngx_http_vibelock_bus_read_lost(ngx_http_vibelock_redis_t *redis);
static void ngx_http_vibelock_bus_read_leave(ngx_http_vibelock_redis_t *redis);
static void ngx_http_vibelock_bus_read_yield(ngx_http_vibelock_bus_t *bus);
static void ngx_http_vibelock_bus_read_again(ngx_event_t *ev);

static void ngx_http_vibelock_bus_read_check(ngx_http_vibelock_bus_t *bus);
static void ngx_http_vibelock_bus_read_checked(
    ngx_http_vibelock_redis_t *redis, redisReply *reply, void *data,
    uint64_t id);
static ngx_int_t ngx_http_vibelock_bus_read_first(redisReply *reply,
    ngx_http_vibelock_bus_id_t *id);
static void ngx_http_vibelock_bus_read_after(ngx_http_vibelock_bus_zone_t *bz);
static void ngx_http_vibelock_bus_read_place(ngx_http_vibelock_bus_zone_t *bz,
    ngx_http_vibelock_bus_id_t *last);

static void ngx_http_vibelock_bus_read_works(ngx_http_vibelock_bus_zone_t *bz);
static void ngx_http_vibelock_bus_read_next(ngx_http_vibelock_bus_t *bus);
static void ngx_http_vibelock_bus_read_streams(ngx_http_vibelock_bus_t *bus);
static ngx_int_t ngx_http_vibelock_bus_read_behind(
    ngx_http_vibelock_bus_t *bus);
static void ngx_http_vibelock_bus_read_kept(ngx_http_vibelock_redis_t *redis,
    redisReply *reply, void *data, uint64_t id);
static ngx_uint_t ngx_http_vibelock_bus_read_args(
    ngx_http_vibelock_bus_t *bus);
static void ngx_http_vibelock_bus_read_reply(ngx_http_vibelock_redis_t *redis,
    redisReply *reply, void *data, uint64_t id);
static void ngx_http_vibelock_bus_read_part(ngx_http_vibelock_bus_t *bus,
    redisReply *reply);
static ngx_int_t ngx_http_vibelock_bus_read_stream(
    ngx_http_vibelock_bus_t *bus, redisReply *stream);
static ngx_uint_t ngx_http_vibelock_bus_read_ahead(
    ngx_http_vibelock_bus_zone_t *bz, ngx_http_vibelock_bus_id_t *id);
static void ngx_http_vibelock_bus_read_entry(
    ngx_http_vibelock_bus_zone_t *bz, redisReply *fields,
    ngx_http_vibelock_bus_id_t *id);
static void ngx_http_vibelock_bus_read_error(ngx_http_vibelock_bus_t *bus,
    redisReply *reply);

static ngx_http_vibelock_bus_zone_t *ngx_http_vibelock_bus_read_zone(
    ngx_http_vibelock_bus_t *bus, redisReply *name);
static ngx_uint_t ngx_http_vibelock_bus_read_above(
    ngx_http_vibelock_bus_id_t *id, ngx_http_vibelock_bus_id_t *other);
static ngx_int_t ngx_http_vibelock_bus_read_id(redisReply *text,
    ngx_http_vibelock_bus_id_t *id);
static ngx_int_t ngx_http_vibelock_bus_read_number(u_char **text,
    u_char *last, uint64_t *n);


void
ngx_http_vibelock_bus_read_start(ngx_http_vibelock_bus_t *bus)
{
    ngx_http_vibelock_redis_t  *redis;

    bus->again.handler = ngx_http_vibelock_bus_read_again;
    bus->again.data = bus;
    bus->again.log = bus->log;
    bus->again.cancelable = 1;

    bus->count = 1;

    redis = &bus->reader;

    redis->url = &bus->url;
    redis->log = bus->log;
    redis->ready = ngx_http_vibelock_bus_read_ready;
    redis->lost = ngx_http_vibelock_bus_read_lost;
    redis->leave = ngx_http_vibelock_bus_read_leave;
    redis->data = bus;
    redis->timeout = bus->timeout;

    ngx_http_vibelock_redis_init(redis);
}


void
ngx_http_vibelock_bus_read_stop(ngx_http_vibelock_bus_t *bus)
{
    ngx_http_vibelock_bus_read_yield(bus);
}


/*
 * Takes the leases that are to be had, keeps its own, and connects when it
 * has one.  A worker that exits leaves the reading to those that stay.
 */

void
ngx_http_vibelock_bus_read_tick(ngx_http_vibelock_bus_t *bus)
{
    ngx_uint_t                     i, n, leased;
    ngx_http_vibelock_bus_zone_t  *bz;

    if (ngx_exiting) {
        ngx_http_vibelock_bus_read_yield(bus);
        return;
    }

    n = 0;

    for (i = 0; i < bus->nzones; i++) {
        bz = &bus->zones[i];

        leased = ngx_http_vibelock_bus_share_lease(bz->share, bz->pool,
                                                   bus->nonce,
                                                   NGX_HTTP_VIBELOCK_BUS_TERM);
        if (leased != bz->leased) {
            bz->leased = leased;
            bz->known = 0;
            bus->changed = 1;
        }

        n += leased;
    }

    if (n) {
        ngx_http_vibelock_redis_open(&bus->reader);

    } else {
        ngx_http_vibelock_bus_read_yield(bus);
    }
}


static void
ngx_http_vibelock_bus_read_yield(ngx_http_vibelock_bus_t *bus)
{
    ngx_uint_t                     i;
    ngx_http_vibelock_bus_zone_t  *bz;

    if (bus->again.timer_set) {
        ngx_del_timer(&bus->again);
    }

    ngx_http_vibelock_redis_close(&bus->reader);

    for (i = 0; i < bus->nzones; i++) {
        bz = &bus->zones[i];

        if (bz->leased) {
            bz->leased = 0;
            bz->known = 0;
            ngx_http_vibelock_bus_share_yield(bz->share, bz->pool,
                                              bus->nonce);
        }
    }
}


static void
ngx_http_vibelock_bus_read_ready(ngx_http_vibelock_redis_t *redis)
{
    ngx_uint_t                     i;
    ngx_http_vibelock_bus_t       *bus;
    ngx_http_vibelock_bus_zone_t  *bz;

    bus = redis->data;

    for (i = 0; i < bus->nzones; i++) {
        bz = &bus->zones[i];
        bz->behind = 0;

        if (bz->leased && redis->connects > 1) {
            ngx_http_vibelock_bus_share_count(bz->share,
                                           NGX_HTTP_VIBELOCK_BUS_N_RECONNECTS);
        }
    }

    /* that the connection is ready, the clock of this moment has told */

    bus->sampled = ngx_current_msec;
    bus->doubt = 0;

    ngx_http_vibelock_bus_read_check(bus);
}


static void
ngx_http_vibelock_bus_read_lost(ngx_http_vibelock_redis_t *redis)
{
    ngx_http_vibelock_bus_t  *bus;

    bus = redis->data;

    if (bus->again.timer_set) {
        ngx_del_timer(&bus->again);
    }

    ngx_http_vibelock_bus_lost(bus, NGX_HTTP_VIBELOCK_BUS_READS, redis);
}


static void
ngx_http_vibelock_bus_read_leave(ngx_http_vibelock_redis_t *redis)
{
    ngx_http_vibelock_bus_read_yield(redis->data);
}


static void
ngx_http_vibelock_bus_read_again(ngx_event_t *ev)
{
    ngx_http_vibelock_bus_read_check(ev->data);
}


static void
ngx_http_vibelock_bus_read_check(ngx_http_vibelock_bus_t *bus)
{
    u_char                         after[2 * NGX_INT64_LEN + 1];
    size_t                         argvlen[6];
    ngx_uint_t                     i;
    const char                    *argv[6];
    ngx_http_vibelock_bus_zone_t  *bz;

    bus->changed = 0;
    bus->checks = 0;
    bus->checked = ngx_current_msec;

    if (bus->doubt
        || ngx_current_msec - bus->sampled >= NGX_HTTP_VIBELOCK_BUS_CHECK)
    {
        (void) ngx_http_vibelock_redis_clock(&bus->reader);

        bus->sampled = ngx_current_msec;
        bus->doubt = 0;
    }

    argv[0] = "XREVRANGE";
    argvlen[0] = sizeof("XREVRANGE") - 1;
    argv[2] = (char *) after;
    argv[3] = "-";
    argvlen[3] = 1;
    argv[4] = "COUNT";
    argvlen[4] = sizeof("COUNT") - 1;
    argv[5] = "1";
    argvlen[5] = 1;

    for (i = 0; i < bus->nzones; i++) {
        bz = &bus->zones[i];
        bz->readable = 0;

        if (!bz->leased) {
            continue;
        }

        if (bz->known) {
            bz->readable = 1;
            ngx_http_vibelock_bus_read_works(bz);
            continue;
        }

        ngx_http_vibelock_bus_read_after(bz);

        argv[1] = (char *) bz->stream.data;
        argvlen[1] = bz->stream.len;
        argvlen[2] = ngx_sprintf(after, "%uL-%uL", bz->after.ms,
                                 bz->after.seq)
                     - after;

        /* an entry comes with its id, however large it is */

        if (ngx_http_vibelock_redis_command(&bus->reader, 6, argv, argvlen,
                                            NGX_HTTP_VIBELOCK_BUS_BLOCK,
                                            ngx_http_vibelock_bus_read_checked,
                                            bz, 0)
            != NGX_OK)
        {
            ngx_http_vibelock_redis_fail(&bus->reader,
                                         NGX_HTTP_VIBELOCK_REDIS_FAILED,
                                         NGX_ENOMEM);
            return;
        }

        bus->checks++;
    }

    if (bus->checks == 0) {
        ngx_http_vibelock_bus_read_streams(bus);
    }
}


static void
ngx_http_vibelock_bus_read_checked(ngx_http_vibelock_redis_t *redis,
    redisReply *reply, void *data, uint64_t id)
{
    ngx_http_vibelock_bus_t       *bus;
    ngx_http_vibelock_redis_e      why;
    ngx_http_vibelock_bus_id_t     last;
    ngx_http_vibelock_bus_zone_t  *bz;

    bz = data;
    bus = bz->bus;

    if (reply == NULL) {

        /*
         * the id came before the rest, which would take a connection each time
         * it was asked for: when all the others were looked at, this stream is
         * read
         */

        if (redis->part
            && ngx_http_vibelock_bus_read_first(redis->part, &last) == NGX_OK
            && !ngx_http_vibelock_bus_read_above(&last, &bz->after))
        {
            bz->known = 1;
            ngx_http_vibelock_bus_read_place(bz, &last);
        }

        return;
    }

    why = NGX_HTTP_VIBELOCK_REDIS_WORKS;

    if (reply->type == REDIS_REPLY_ERROR) {
        why = ngx_http_vibelock_redis_error(redis, reply);

    } else if (ngx_http_vibelock_bus_read_first(reply, &last) != NGX_OK
               || ngx_http_vibelock_bus_read_above(&last, &bz->after))
    {
        why = NGX_HTTP_VIBELOCK_REDIS_UNEXPECTED;

    } else {
        bz->readable = 1;
        ngx_http_vibelock_bus_read_place(bz, &last);
    }

    if (why == NGX_HTTP_VIBELOCK_REDIS_LOADING
        || why == NGX_HTTP_VIBELOCK_REDIS_NOAUTH)
    {
        ngx_http_vibelock_redis_fail(redis, why, 0);
        return;
    }

    if (why == NGX_HTTP_VIBELOCK_REDIS_WORKS) {
        ngx_http_vibelock_bus_read_works(bz);

    } else {
        ngx_http_vibelock_bus_note(bz, NGX_HTTP_VIBELOCK_BUS_READS, redis,
                                   why, 0);
    }

    if (--bus->checks == 0) {
        ngx_http_vibelock_bus_read_streams(bus);
    }
}


/* the id of the first entry, as far as it came, or 0-0: there is none */

static ngx_int_t
ngx_http_vibelock_bus_read_first(redisReply *reply,
    ngx_http_vibelock_bus_id_t *id)
{
    redisReply  *entry;

    id->ms = 0;
    id->seq = 0;

    if (reply->type != REDIS_REPLY_ARRAY) {
        return NGX_ERROR;
    }

    if (reply->elements == 0) {
        return NGX_OK;
    }

    entry = reply->element[0];

    if (entry == NULL || entry->type != REDIS_REPLY_ARRAY
        || entry->elements != 2)
    {
        return NGX_ERROR;
    }

    return ngx_http_vibelock_bus_read_id(entry->element[0], id);
}


/*
 * Where reading goes on.  A stream that was not read yet, as of a new zone, is
 * read from the moment when the zone was made: there was no lock before.
 */

static void
ngx_http_vibelock_bus_read_after(ngx_http_vibelock_bus_zone_t *bz)
{
    int64_t                         made;
    ngx_http_vibelock_bus_share_t  *share;

    share = bz->share;

    if (share->source == bz->source) {
        bz->after = share->last;
        return;
    }

    made = (int64_t) share->made + bz->bus->reader.offset
           - NGX_HTTP_VIBELOCK_BUS_BEFORE;

    bz->after.ms = (uint64_t) ngx_max(made, 0);
    bz->after.seq = 0;
}


/*
 * "last" is the last entry up to there.  When that is not the one that was read
 * last, others may have come since that are not above it: all is read again.
 */

static void
ngx_http_vibelock_bus_read_place(ngx_http_vibelock_bus_zone_t *bz,
    ngx_http_vibelock_bus_id_t *last)
{
    ngx_http_vibelock_bus_id_t      start;
    ngx_http_vibelock_bus_share_t  *share;

    share = bz->share;

    if (share->source != bz->source) {

        /* it may have been read under another name */

        share->again = 1;

        ngx_http_vibelock_bus_share_place(share, bz->pool, bz->bus->nonce,
                                          bz->source, last);
        return;
    }

    if (!ngx_http_vibelock_bus_read_above(&share->last, last)) {
        return;
    }

    start.ms = 0;
    start.seq = 0;

    if (ngx_http_vibelock_bus_read_above(last, &start)) {
        share->again = 1;
    }

    ngx_http_vibelock_bus_share_count(share, NGX_HTTP_VIBELOCK_BUS_N_REWINDS);

    if (ngx_http_vibelock_bus_share_once(share,
                                         NGX_HTTP_VIBELOCK_BUS_ONCE_REWIND))
    {
        ngx_log_error(NGX_LOG_WARN, bz->bus->log, 0,
                      "vibelock: \"%V\" has lost entry %uL-%uL, which was "
                      "read last, and is read from its start",
                      &bz->stream, share->last.ms, share->last.seq);
    }

    ngx_http_vibelock_bus_share_place(share, bz->pool, bz->bus->nonce,
                                      bz->source, &start);
}


/*
 * The stream can be read, as far as was tried: who looks at it may still not
 * be let read it.
 */

static void
ngx_http_vibelock_bus_read_works(ngx_http_vibelock_bus_zone_t *bz)
{
    if (bz->bus->refused) {
        return;
    }

    ngx_http_vibelock_bus_note(bz, NGX_HTTP_VIBELOCK_BUS_READS,
                               &bz->bus->reader,
                               NGX_HTTP_VIBELOCK_REDIS_WORKS, 0);
}


/* after something was read: on, or another look at the streams first */

static void
ngx_http_vibelock_bus_read_next(ngx_http_vibelock_bus_t *bus)
{
    ngx_uint_t                     i, changed;
    ngx_http_vibelock_bus_zone_t  *bz;

    changed = bus->changed;

    for (i = 0; i < bus->nzones; i++) {
        bz = &bus->zones[i];

        if (bz->leased && !bz->readable) {
            changed = 1;
        }
    }

    if (bus->doubt
        || ngx_current_msec - bus->checked >= NGX_HTTP_VIBELOCK_BUS_CHECK)
    {
        changed = 1;
    }

    if (changed) {
        ngx_http_vibelock_bus_read_check(bus);

    } else {
        ngx_http_vibelock_bus_read_streams(bus);
    }
}


static void
ngx_http_vibelock_bus_read_streams(ngx_http_vibelock_bus_t *bus)
{
    ngx_uint_t  n;

    n = ngx_http_vibelock_bus_read_args(bus);

    if (n == 0) {
        ngx_add_timer(&bus->again, NGX_HTTP_VIBELOCK_BUS_AGAIN);
        return;
    }

    bus->asked = ngx_current_msec;

    if (ngx_http_vibelock_bus_read_behind(bus) != NGX_OK
        || ngx_http_vibelock_redis_command(&bus->reader, n, bus->argv,
                                           bus->argvlen,
                                           NGX_HTTP_VIBELOCK_BUS_BLOCK,
                                           ngx_http_vibelock_bus_read_reply,
                                           bus, 0)
           != NGX_OK)
    {
        ngx_http_vibelock_redis_fail(&bus->reader,
                                     NGX_HTTP_VIBELOCK_REDIS_FAILED,
                                     NGX_ENOMEM);
    }
}


/*
 * Who got as many entries as he asked for may be far behind, so that the
 * stream lost what came next before he asked.  It did not, if it still has the
 * entry that he went on from.  That is asked along with the next entries, and
 * costs no time.
 */

static ngx_int_t
ngx_http_vibelock_bus_read_behind(ngx_http_vibelock_bus_t *bus)
{
    u_char                         id[2 * NGX_INT64_LEN + 1];
    size_t                         argvlen[4];
    ngx_uint_t                     i;
    const char                    *argv[4];
    ngx_http_vibelock_bus_zone_t  *bz;

    argv[0] = "XREVRANGE";
    argvlen[0] = sizeof("XREVRANGE") - 1;
    argv[2] = (char *) id;
    argv[3] = (char *) id;

    for (i = 0; i < bus->nzones; i++) {
        bz = &bus->zones[i];

        if (!bz->asked || !bz->behind) {
            continue;
        }

        bz->behind = 0;

        argv[1] = (char *) bz->stream.data;
        argvlen[1] = bz->stream.len;
        argvlen[2] = ngx_sprintf(id, "%uL-%uL", bz->before.ms, bz->before.seq)
                     - id;
        argvlen[3] = argvlen[2];

        if (ngx_http_vibelock_redis_command(&bus->reader, 4, argv, argvlen,
                                            NGX_HTTP_VIBELOCK_BUS_BLOCK,
                                            ngx_http_vibelock_bus_read_kept,
                                            bz, 0)
            != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


static void
ngx_http_vibelock_bus_read_kept(ngx_http_vibelock_redis_t *redis,
    redisReply *reply, void *data, uint64_t id)
{
    ngx_http_vibelock_bus_zone_t  *bz;

    bz = data;

    if (reply == NULL || reply->type != REDIS_REPLY_ARRAY || reply->elements) {
        return;
    }

    ngx_http_vibelock_bus_share_count(bz->share,
                                      NGX_HTTP_VIBELOCK_BUS_N_REWINDS);

    if (ngx_http_vibelock_bus_share_once(bz->share,
                                         NGX_HTTP_VIBELOCK_BUS_ONCE_REWIND))
    {
        ngx_log_error(NGX_LOG_WARN, bz->bus->log, 0,
                      "vibelock: \"%V\" has lost entry %uL-%uL, and may have "
                      "lost others behind it before they were read",
                      &bz->stream, bz->before.ms, bz->before.seq);
    }
}


/* how many there are; 0: there is nothing to read */

static ngx_uint_t
ngx_http_vibelock_bus_read_args(ngx_http_vibelock_bus_t *bus)
{
    u_char                        *p;
    size_t                        *len;
    ngx_uint_t                     i, n, streams;
    const char                   **argv;
    ngx_http_vibelock_bus_zone_t  *bz;

    streams = 0;

    for (i = 0; i < bus->nzones; i++) {
        bz = &bus->zones[i];
        bz->asked = (bz->leased && bz->readable);
        bz->more = 0;
        streams += bz->asked;
    }

    if (streams == 0) {
        return 0;
    }

    argv = bus->argv;
    len = bus->argvlen;
    p = bus->numbers;

    argv[0] = "XREAD";
    len[0] = sizeof("XREAD") - 1;
    argv[1] = "COUNT";
    len[1] = sizeof("COUNT") - 1;
    argv[2] = (char *) p;
    len[2] = ngx_sprintf(p, "%ui", bus->count) - p;
    argv[3] = "BLOCK";
    len[3] = sizeof("BLOCK") - 1;
    argv[4] = NGX_HTTP_VIBELOCK_BUS_BLOCK_TEXT;
    len[4] = sizeof(NGX_HTTP_VIBELOCK_BUS_BLOCK_TEXT) - 1;
    argv[5] = "STREAMS";
    len[5] = sizeof("STREAMS") - 1;

    n = 6;
    p += len[2];

    for (i = 0; i < bus->nzones; i++) {
        bz = &bus->zones[(bus->first + i) % bus->nzones];

        if (!bz->asked) {
            continue;
        }

        bz->after = bz->share->last;

        argv[n] = (char *) bz->stream.data;
        len[n] = bz->stream.len;

        argv[n + streams] = (char *) p;
        len[n + streams] = ngx_sprintf(p, "%uL-%uL", bz->after.ms,
                                       bz->after.seq)
                           - p;

        p += len[n + streams];
        n++;
    }

    return n + streams;
}


static void
ngx_http_vibelock_bus_read_reply(ngx_http_vibelock_redis_t *redis,
    redisReply *reply, void *data, uint64_t id)
{
    size_t                         i;
    ngx_http_vibelock_bus_t       *bus;
    ngx_http_vibelock_bus_zone_t  *bz;

    bus = data;

    if (reply == NULL) {

        if (redis->part && bus->count == 1) {
            ngx_http_vibelock_bus_read_part(bus, redis->part);
        }

        /* it may have been too much, also for Redis to make in time */

        bus->count = 1;
        return;
    }

    if (reply->type == REDIS_REPLY_ERROR) {
        ngx_http_vibelock_bus_read_error(bus, reply);
        return;
    }

    /* more than was asked for would keep the worker from all else */

    if ((reply->type != REDIS_REPLY_ARRAY && reply->type != REDIS_REPLY_NIL)
        || reply->elements > bus->nzones)
    {
        ngx_http_vibelock_redis_fail(redis, NGX_HTTP_VIBELOCK_REDIS_UNEXPECTED,
                                     0);
        return;
    }

    for (i = 0; i < reply->elements; i++) {
        if (ngx_http_vibelock_bus_read_stream(bus, reply->element[i])
            != NGX_OK)
        {
            ngx_http_vibelock_redis_fail(redis,
                                         NGX_HTTP_VIBELOCK_REDIS_UNEXPECTED,
                                         0);
            return;
        }
    }

    bus->count = ngx_min(bus->count * 2, NGX_HTTP_VIBELOCK_BUS_COUNT);
    bus->refused = 0;

    for (i = 0; i < bus->nzones; i++) {
        bz = &bus->zones[i];

        if (!bz->asked) {
            continue;
        }

        ngx_http_vibelock_bus_read_works(bz);

        /* what comes from now on was not there before */

        if (!bz->more) {
            bz->share->again = 0;
        }
    }

    /*
     * nothing: a second went by, or something between here and Redis does not
     * let it wait, and is not to be asked without end
     */

    if (reply->elements == 0
        && ngx_current_msec - bus->asked < NGX_HTTP_VIBELOCK_BUS_BLOCK / 2)
    {
        ngx_add_timer(&bus->again, NGX_HTTP_VIBELOCK_BUS_AGAIN);
        return;
    }

    ngx_http_vibelock_bus_read_next(bus);
}


/*
 * Of a reply that is too large, with an entry of each stream: the first one
 * came whole, or is too large by itself.  The others have their turns as the
 * first.
 */

static void
ngx_http_vibelock_bus_read_part(ngx_http_vibelock_bus_t *bus,
    redisReply *reply)
{
    redisReply                    *stream;
    ngx_http_vibelock_bus_id_t     id;
    ngx_http_vibelock_bus_zone_t  *bz;

    bus->first = (bus->first + 1) % bus->nzones;

    if (reply->type != REDIS_REPLY_ARRAY || reply->elements == 0
        || reply->element[0] == NULL)
    {
        return;
    }

    stream = reply->element[0];

    if (reply->elements > 1 && reply->element[1]) {
        (void) ngx_http_vibelock_bus_read_stream(bus, stream);
        return;
    }

    if (stream->type != REDIS_REPLY_ARRAY || stream->elements != 2
        || stream->element[1] == NULL)
    {
        return;
    }

    bz = ngx_http_vibelock_bus_read_zone(bus, stream->element[0]);

    if (bz == NULL
        || ngx_http_vibelock_bus_read_first(stream->element[1], &id) != NGX_OK)
    {
        return;
    }

    ngx_http_vibelock_bus_share_count(bz->share,
                                      NGX_HTTP_VIBELOCK_BUS_N_RECEIVED);
    ngx_http_vibelock_bus_apply_skip(bz, &id, NGX_HTTP_VIBELOCK_BUS_TOO_LARGE);

    bz->known = 1;

    ngx_http_vibelock_bus_share_place(bz->share, bz->pool, bus->nonce,
                                      bz->source, &id);
}


static ngx_int_t
ngx_http_vibelock_bus_read_stream(ngx_http_vibelock_bus_t *bus,
    redisReply *stream)
{
    size_t                         i;
    int64_t                        now;
    redisReply                    *entries, *entry;
    ngx_http_vibelock_bus_id_t     id, last;
    ngx_http_vibelock_bus_zone_t  *bz;

    if (stream->type != REDIS_REPLY_ARRAY || stream->elements != 2) {
        return NGX_ERROR;
    }

    bz = ngx_http_vibelock_bus_read_zone(bus, stream->element[0]);
    entries = stream->element[1];

    if (bz == NULL || entries->type != REDIS_REPLY_ARRAY
        || entries->elements == 0
        || entries->elements > NGX_HTTP_VIBELOCK_BUS_COUNT)
    {
        return NGX_ERROR;
    }

    last = bz->after;

    for (i = 0; i < entries->elements; i++) {
        entry = entries->element[i];

        if (entry->type != REDIS_REPLY_ARRAY || entry->elements != 2
            || ngx_http_vibelock_bus_read_id(entry->element[0], &id) != NGX_OK)
        {
            return NGX_ERROR;
        }

        /* what comes again would be asked for again, without end */

        if (!ngx_http_vibelock_bus_read_above(&id, &last)) {
            return NGX_ERROR;
        }

        if (ngx_http_vibelock_bus_read_ahead(bz, &id)) {
            bus->doubt = 1;
            break;
        }

        ngx_http_vibelock_bus_read_entry(bz, entry->element[1], &id);

        last = id;
    }

    bz->more = (i < entries->elements || entries->elements >= bus->count);

    /* the start of a stream is no entry; one that is too large is let be */

    bz->behind = (entries->elements >= bus->count && !bz->known
                  && (bz->after.ms || bz->after.seq));
    bz->before = bz->after;

    /* the rest is read again with the next sample */

    if (i == 0) {
        return NGX_OK;
    }

    now = (int64_t) ngx_current_msec + bus->reader.offset;

    /* an id is what somebody says, and may be later than any clock */

    bz->share->lag = (now > 0 && (uint64_t) now > last.ms)
                     ? (ngx_msec_t) ((uint64_t) now - last.ms) : 0;

    bz->share->ahead = ngx_max(bz->share->ahead, bus->reader.offset);

    bz->known = 0;

    ngx_http_vibelock_bus_share_place(bz->share, bz->pool, bus->nonce,
                                      bz->source, &last);

    return NGX_OK;
}


/*
 * 1 for an entry of a moment that is still to come, by a sample that may be of
 * before the clock of Redis was set: once for each, or one whose answer takes
 * longer than a sample is good for would not be read before its moment came.
 */

static ngx_uint_t
ngx_http_vibelock_bus_read_ahead(ngx_http_vibelock_bus_zone_t *bz,
    ngx_http_vibelock_bus_id_t *id)
{
    int64_t                   now;
    ngx_http_vibelock_bus_t  *bus;

    bus = bz->bus;

    now = (int64_t) ngx_current_msec + bus->reader.offset
          + NGX_HTTP_VIBELOCK_BUS_AHEAD;

    if (id->ms <= (uint64_t) ngx_max(now, 0)
        || ngx_current_msec - bus->sampled < NGX_HTTP_VIBELOCK_BUS_AHEAD
        || (id->ms == bz->doubted.ms && id->seq == bz->doubted.seq))
    {
        return 0;
    }

    bz->doubted = *id;

    return 1;
}


/* names and values by turns; "release" is the one that counts */

static void
ngx_http_vibelock_bus_read_entry(ngx_http_vibelock_bus_zone_t *bz,
    redisReply *fields, ngx_http_vibelock_bus_id_t *id)
{
    size_t       i;
    redisReply  *name, *value;

    ngx_http_vibelock_bus_share_count(bz->share,
                                      NGX_HTTP_VIBELOCK_BUS_N_RECEIVED);

    if (fields->type == REDIS_REPLY_ARRAY) {

        for (i = 0; i + 1 < fields->elements; i += 2) {
            name = fields->element[i];
            value = fields->element[i + 1];

            if (name->type == REDIS_REPLY_STRING
                && value->type == REDIS_REPLY_STRING
                && (size_t) name->len == sizeof("release") - 1
                && ngx_memcmp(name->str, "release", name->len) == 0)
            {
                ngx_http_vibelock_bus_apply(bz, id, (u_char *) value->str,
                                            value->len);
                return;
            }
        }
    }

    ngx_http_vibelock_bus_apply_skip(bz, id, NGX_HTTP_VIBELOCK_BUS_MALFORMED);
}


/*
 * It names no stream: each is looked at by itself again, after a while.
 */

static void
ngx_http_vibelock_bus_read_error(ngx_http_vibelock_bus_t *bus,
    redisReply *reply)
{
    ngx_uint_t                  i;
    ngx_http_vibelock_redis_e   why;
    ngx_http_vibelock_redis_t  *redis;

    redis = &bus->reader;
    why = ngx_http_vibelock_redis_error(redis, reply);

    for (i = 0; i < bus->nzones; i++) {
        bus->zones[i].known = 0;
    }

    if (why == NGX_HTTP_VIBELOCK_REDIS_LOADING
        || why == NGX_HTTP_VIBELOCK_REDIS_NOAUTH)
    {
        ngx_http_vibelock_redis_fail(redis, why, 0);
        return;
    }

    if (why != NGX_HTTP_VIBELOCK_REDIS_WRONGTYPE) {
        bus->refused = 1;

        for (i = 0; i < bus->nzones; i++) {
            if (bus->zones[i].asked) {
                ngx_http_vibelock_bus_note(&bus->zones[i],
                                           NGX_HTTP_VIBELOCK_BUS_READS, redis,
                                           why, 0);
            }
        }
    }

    ngx_add_timer(&bus->again, NGX_HTTP_VIBELOCK_BUS_AGAIN);
}


static ngx_http_vibelock_bus_zone_t *
ngx_http_vibelock_bus_read_zone(ngx_http_vibelock_bus_t *bus, redisReply *name)
{
    ngx_uint_t                     i;
    ngx_http_vibelock_bus_zone_t  *bz;

    if (name->type != REDIS_REPLY_STRING) {
        return NULL;
    }

    for (i = 0; i < bus->nzones; i++) {
        bz = &bus->zones[i];

        if (bz->asked && bz->stream.len == (size_t) name->len
            && ngx_memcmp(bz->stream.data, name->str, name->len) == 0)
        {
            return bz;
        }
    }

    return NULL;
}


static ngx_uint_t
ngx_http_vibelock_bus_read_above(ngx_http_vibelock_bus_id_t *id,
    ngx_http_vibelock_bus_id_t *other)
{
    return id->ms > other->ms
           || (id->ms == other->ms && id->seq > other->seq);
}


static ngx_int_t
ngx_http_vibelock_bus_read_id(redisReply *text, ngx_http_vibelock_bus_id_t *id)
{
    u_char  *p, *last;

    if (text == NULL || text->type != REDIS_REPLY_STRING) {
        return NGX_ERROR;
    }

    p = (u_char *) text->str;
    last = p + text->len;

    if (ngx_http_vibelock_bus_read_number(&p, last, &id->ms) != NGX_OK
        || p == last || *p++ != '-'
        || ngx_http_vibelock_bus_read_number(&p, last, &id->seq) != NGX_OK
        || p != last)
    {
        return NGX_ERROR;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_vibelock_bus_read_number(u_char **text, u_char *last, uint64_t *n)
{
    u_char    *p;
    uint64_t   value, digit;

    value = 0;

    for (p = *text; p < last && *p >= '0' && *p <= '9'; p++) {
        digit = *p - '0';

        if (value >= UINT64_MAX / 10
            && (value > UINT64_MAX / 10 || digit > UINT64_MAX % 10))
        {
            return NGX_ERROR;
        }

        value = value * 10 + digit;
    }

    if (p == *text) {
        return NGX_ERROR;
    }

    *text = p;
    *n = value;

    return NGX_OK;
}
