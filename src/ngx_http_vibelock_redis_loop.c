
/*
 * Copyright (C) the vibelock authors
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_event.h>

#include "ngx_http_vibelock_redis_loop.h"
#include "ngx_http_vibelock_redis_tls.h"


static void ngx_http_vibelock_redis_loop_write_handler(ngx_event_t *wev);
static void ngx_http_vibelock_redis_loop_add_read(void *data);
static void ngx_http_vibelock_redis_loop_del_read(void *data);
static void ngx_http_vibelock_redis_loop_add_write(void *data);
static void ngx_http_vibelock_redis_loop_del_write(void *data);


ngx_int_t
ngx_http_vibelock_redis_loop_attach(ngx_http_vibelock_redis_t *redis,
    ngx_event_handler_pt read)
{
    ngx_connection_t   *c;
    redisAsyncContext  *ac;

    ac = redis->ac;

    c = ngx_get_connection(ac->c.fd, redis->log);
    if (c == NULL) {
        return NGX_ERROR;
    }

    redis->connection = c;

    c->data = redis;
    c->log = redis->log;
    c->read->handler = read;
    c->read->log = redis->log;
    c->write->handler = ngx_http_vibelock_redis_loop_write_handler;
    c->write->log = redis->log;

    /* its read handler is called when nginx wants to exit */

    c->idle = 1;

    ac->ev.data = redis;
    ac->ev.addRead = ngx_http_vibelock_redis_loop_add_read;
    ac->ev.delRead = ngx_http_vibelock_redis_loop_del_read;
    ac->ev.addWrite = ngx_http_vibelock_redis_loop_add_write;
    ac->ev.delWrite = ngx_http_vibelock_redis_loop_del_write;

    return NGX_OK;
}


void
ngx_http_vibelock_redis_loop_detach(ngx_http_vibelock_redis_t *redis)
{
    ngx_connection_t  *c;

    if (redis->ac) {
        ngx_memzero(&redis->ac->ev, sizeof(redis->ac->ev));
    }

    c = redis->connection;

    redis->connection = NULL;
    redis->pushed = 0;
    redis->sent = 0;

    if (c == NULL) {
        return;
    }

    /* what is read may wait for its turn, as with "accept_mutex on" */

    if (c->read->posted) {
        ngx_delete_posted_event(c->read);
    }

    if (c->write->posted) {
        ngx_delete_posted_event(c->write);
    }

    /* kqueue would be told too late of a socket that is closed by then */

    if (ngx_del_conn) {
        (void) ngx_del_conn(c, NGX_CLOSE_EVENT);

    } else {
        if (c->read->active) {
            (void) ngx_del_event(c->read, NGX_READ_EVENT, NGX_CLOSE_EVENT);
        }

        if (c->write->active) {
            (void) ngx_del_event(c->write, NGX_WRITE_EVENT, NGX_CLOSE_EVENT);
        }
    }

    ngx_free_connection(c);
    c->fd = (ngx_socket_t) -1;
}


static void
ngx_http_vibelock_redis_loop_write_handler(ngx_event_t *wev)
{
    ngx_connection_t           *c;
    ngx_http_vibelock_redis_t  *redis;

    c = wev->data;
    redis = c->data;

    /* a system call for two turns, while there are many at once */

    redis->pushed = (redis->sent > 1);
    redis->sent = 0;

    ngx_http_vibelock_redis_loop_write(redis);
}


/*
 * hiredis connects, and tells of an error: it goes no further with a context
 * that has one.  What to wait for it is not asked: with TLS it would wait for
 * something to read, which once it had to, until it reads itself.
 */

void
ngx_http_vibelock_redis_loop_write(ngx_http_vibelock_redis_t *redis)
{
    int                 done;
    redisAsyncContext  *ac;

    ac = redis->ac;

    redis->writing = 1;

    if (!(ac->c.flags & REDIS_CONNECTED)
        || redisBufferWrite(&ac->c, &done) != REDIS_OK)
    {
        redisAsyncHandleWrite(ac);

    } else if (done || ngx_http_vibelock_redis_tls_reads(redis->ssl)) {
        ngx_http_vibelock_redis_loop_del_write(redis);

    } else {
        ngx_http_vibelock_redis_loop_later(redis);
    }

    redis->writing = 0;
}


/*
 * Level-triggered: hiredis reads 16 kB an event, and may leave some behind.
 */

static void
ngx_http_vibelock_redis_loop_add_read(void *data)
{
    ngx_event_t                *rev;
    ngx_http_vibelock_redis_t  *redis = data;

    rev = redis->connection->read;

    if (!rev->active) {
        (void) ngx_add_event(rev, NGX_READ_EVENT, NGX_LEVEL_EVENT);
    }
}


static void
ngx_http_vibelock_redis_loop_del_read(void *data)
{
    ngx_event_t                *rev;
    ngx_http_vibelock_redis_t  *redis = data;

    rev = redis->connection->read;

    if (rev->active) {
        (void) ngx_del_event(rev, NGX_READ_EVENT, 0);
    }
}


/*
 * What is asked for in one turn of the event loop goes out in the next, in one
 * piece, and nginx does not sleep before it.  Only a socket that is not
 * connected, or that took less than there is, has to be waited for.
 */

void
ngx_http_vibelock_redis_loop_later(ngx_http_vibelock_redis_t *redis)
{
    ngx_event_t  *wev;

    wev = redis->connection->write;

    if (redis->connected && !redis->writing && !wev->active) {
        ngx_post_event(wev, &ngx_posted_next_events);
        return;
    }

    if (!wev->active) {
        (void) ngx_add_event(wev, NGX_WRITE_EVENT, NGX_LEVEL_EVENT);
    }
}


static void
ngx_http_vibelock_redis_loop_add_write(void *data)
{
    ngx_http_vibelock_redis_loop_later(data);
}


static void
ngx_http_vibelock_redis_loop_del_write(void *data)
{
    ngx_event_t                *wev;
    ngx_http_vibelock_redis_t  *redis = data;

    wev = redis->connection->write;

    if (wev->active) {
        (void) ngx_del_event(wev, NGX_WRITE_EVENT, 0);
    }
}
