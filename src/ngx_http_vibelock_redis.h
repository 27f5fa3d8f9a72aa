
/*
 * Copyright (C) the vibelock authors
 *
 * A connection to Redis: a context of hiredis's in nginx's event loop.  It
 * connects and connects again, logs in, and knows the Redis clock.
 *
 * It never blocks, and never keeps a worker from exiting.
 */


#ifndef _NGX_HTTP_VIBELOCK_REDIS_H_INCLUDED_
#define _NGX_HTTP_VIBELOCK_REDIS_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_event.h>

#include <hiredis/hiredis.h>
#include <hiredis/async.h>

#include "ngx_http_vibelock_redis_objects.h"
#include "ngx_http_vibelock_redis_url.h"
#include "ngx_http_vibelock_redis_why.h"


#define NGX_HTTP_VIBELOCK_REDIS_TEXT  128    /* of what Redis said, or TLS */


typedef struct ngx_http_vibelock_redis_s  ngx_http_vibelock_redis_t;

/*
 * A reply, which is freed afterwards; or NULL: the connection was lost before
 * it came, or is lost because it is too large, and redis->part is what there is
 * of it.  "data" and "id" are as they were given with the command.  With a
 * reply it may call redis_command() and redis_fail().
 */

typedef void (*ngx_http_vibelock_redis_reply_pt)(
    ngx_http_vibelock_redis_t *redis, redisReply *reply, void *data,
    uint64_t id);

/*
 * The connection is ready for commands; or is not any more, or could not be
 * made: redis->why says why.
 */

typedef void (*ngx_http_vibelock_redis_change_pt)(
    ngx_http_vibelock_redis_t *redis);


struct ngx_http_vibelock_redis_s {
    ngx_http_vibelock_redis_url_t      *url;
    ngx_log_t                          *log;
    ngx_http_vibelock_redis_change_pt   ready;
    ngx_http_vibelock_redis_change_pt   lost;
    ngx_http_vibelock_redis_change_pt   leave;     /* nginx exits */
    void                               *data;      /* the caller's */
    ngx_msec_t                          timeout;   /* of any command */
    ngx_msec_t                          keepalive; /* between two tests */
    ngx_uint_t                          tests;     /* whether it does them */

    /* the rest is redis.c's and redis_loop.c's, to be read at most */

    ngx_http_vibelock_redis_e           why;
    ngx_err_t                           err;
    u_char                              text[NGX_HTTP_VIBELOCK_REDIS_TEXT];
    size_t                              text_len;

    ngx_uint_t                          opened;    /* is to be connected */
    ngx_uint_t                          connected; /* ready for commands */
    ngx_uint_t                          connects;  /* how often it was */
    ngx_uint_t                          clocked;
    int64_t                             offset;    /* Redis clock less ours */

    redisAsyncContext                  *ac;
    void                               *ssl;       /* of ac, with TLS */
    ngx_http_vibelock_redis_objects_t   objects;   /* of its replies */
    redisReply                         *part;      /* or NULL, as above */
    ngx_connection_t                   *connection;
    ngx_uint_t                          writing;   /* hiredis is */
    ngx_uint_t                          pushed;    /* the rest can wait */
    ngx_uint_t                          sent;      /* since it was written */
    ngx_resolver_ctx_t                 *resolving;
    ngx_queue_t                         commands;  /* sent, no reply yet */
    ngx_queue_t                         spare;     /* for the next ones */
    ngx_event_t                         deadline;
    ngx_event_t                         retry;
    ngx_event_t                         test;
    ngx_uint_t                          tries;
    ngx_msec_t                          since;     /* connected */

    ngx_uint_t                          naddrs;
    ngx_uint_t                          next;      /* address to try */
    ngx_http_vibelock_redis_addr_t      addrs[NGX_HTTP_VIBELOCK_REDIS_ADDRS];
};


/*
 * init() is for a structure of zeroes with all above set.
 * open() begins to connect, and keeps at it until close(), which calls the
 * handlers of all commands that wait, but not lost(), and is not for handlers
 * of replies.
 */

void ngx_http_vibelock_redis_init(ngx_http_vibelock_redis_t *redis);
void ngx_http_vibelock_redis_open(ngx_http_vibelock_redis_t *redis);
void ngx_http_vibelock_redis_close(ngx_http_vibelock_redis_t *redis);

/*
 * Sends a command, of which nothing is needed any more when this returns.  The
 * reply has to be there "late" ms after the time that any command has.
 * NGX_ERROR: there is no connection, or no memory; then the handler is not
 * called.
 */

ngx_int_t ngx_http_vibelock_redis_command(ngx_http_vibelock_redis_t *redis,
    int argc, const char **argv, const size_t *argvlen, ngx_msec_t late,
    ngx_http_vibelock_redis_reply_pt handler, void *data, uint64_t id);

/*
 * The same for a command that is text already, as the protocol has it.
 */

ngx_int_t ngx_http_vibelock_redis_send(ngx_http_vibelock_redis_t *redis,
    u_char *text, size_t len, ngx_msec_t late,
    ngx_http_vibelock_redis_reply_pt handler, void *data, uint64_t id);

/*
 * Asks for the time: the offset follows when the answer is there.  NGX_OK,
 * NGX_ERROR as above.
 */

ngx_int_t ngx_http_vibelock_redis_clock(ngx_http_vibelock_redis_t *redis);

/*
 * Writes what there is to write, once and at once; not for handlers of
 * replies, since the connection may be lost by this.
 */

void ngx_http_vibelock_redis_flush(ngx_http_vibelock_redis_t *redis);

/*
 * The same, unless there are many at once: what comes behind the first command
 * of a turn of the event loop goes out with what the next turn brings, and so
 * do all of the turns after one that had more than one.
 */

void ngx_http_vibelock_redis_push(ngx_http_vibelock_redis_t *redis);

/*
 * Gives the connection up, for a reason and an errno or 0, and connects again
 * after a while.
 */

void ngx_http_vibelock_redis_fail(ngx_http_vibelock_redis_t *redis,
    ngx_http_vibelock_redis_e why, ngx_err_t err);

/*
 * What an error reply means; its text is kept for the log, with "?" for all
 * that is not visible ASCII.
 */

ngx_http_vibelock_redis_e ngx_http_vibelock_redis_error(
    ngx_http_vibelock_redis_t *redis, redisReply *reply);


#endif /* _NGX_HTTP_VIBELOCK_REDIS_H_INCLUDED_ */
