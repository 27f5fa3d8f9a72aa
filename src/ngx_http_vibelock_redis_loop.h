
/*
 * Copyright (C) the vibelock authors
 *
 * Redis loop: a context of hiredis in nginx's event loop.
 */


#ifndef _NGX_HTTP_VIBELOCK_REDIS_LOOP_H_INCLUDED_
#define _NGX_HTTP_VIBELOCK_REDIS_LOOP_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_http_vibelock_redis.h"


/*
 * Watches the socket of redis->ac from here on: "read" is called when there is
 * something to read, and when nginx exits (c->close); c->data is the redis.
 * What is to be written is written.  NGX_ERROR: nginx has no connection left.
 */

ngx_int_t ngx_http_vibelock_redis_loop_attach(
    ngx_http_vibelock_redis_t *redis, ngx_event_handler_pt read);

/*
 * Writes what there is to write, now, or later, which is in the next turn of
 * the event loop, behind all that comes in it.  hiredis may call back from it
 * that the connection is made, or lost.
 */

void ngx_http_vibelock_redis_loop_write(ngx_http_vibelock_redis_t *redis);
void ngx_http_vibelock_redis_loop_later(ngx_http_vibelock_redis_t *redis);

/*
 * The socket is not nginx's any more, and redis->ac has no way to ask for it;
 * both may be there or not.  It has to be closed before the event loop goes on.
 */

void ngx_http_vibelock_redis_loop_detach(ngx_http_vibelock_redis_t *redis);


#endif /* _NGX_HTTP_VIBELOCK_REDIS_LOOP_H_INCLUDED_ */
