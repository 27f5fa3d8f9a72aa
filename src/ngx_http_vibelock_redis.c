
/*
 * Copyright (C) the vibelock authors
 *
 * hiredis connects, writes, and makes replies of what is read.  Whose turn it
 * is to get one is known here: its own callbacks cost as much as all the rest
 * of a command, and it ends the process when a reply comes that nobody waits
 * for.
 *
 * Who frees a context: hiredis frees one that it cannot connect or write to, by
 * itself, after it has called back; in 0.14 it must not be freed in the
 * callback of connecting, in 1.x it may.  So a context is always let go of
 * first: from then on none of its callbacks finds anything to do, and it is
 * freed here only outside of those that hiredis frees it after.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_event.h>

#include "ngx_http_vibelock_clock.h"
#include "ngx_http_vibelock_redis.h"
#include "ngx_http_vibelock_redis_loop.h"
#include "ngx_http_vibelock_redis_tls.h"


/* between two tries to connect, ms: at least, and at most */

#define NGX_HTTP_VIBELOCK_REDIS_SHORT   50
#define NGX_HTTP_VIBELOCK_REDIS_LONG    500

/* who was connected for that long, ms, begins with short pauses again */

#define NGX_HTTP_VIBELOCK_REDIS_STABLE  1000

/* a sample of the Redis clock that took longer says too little, ms */

#define NGX_HTTP_VIBELOCK_REDIS_SAMPLE  50

/* an error is a line, and what tells a length is a short one */

#define NGX_HTTP_VIBELOCK_REDIS_LINE    65536
#define NGX_HTTP_VIBELOCK_REDIS_LENGTH  32


/* a command that was sent */

typedef struct {
    ngx_queue_t                        queue;
    ngx_msec_t                         until;     /* the reply has to come */
    ngx_http_vibelock_redis_reply_pt   handler;
    void                              *data;
    uint64_t                           id;
} ngx_http_vibelock_redis_command_t;


static void ngx_http_vibelock_redis_connect(ngx_http_vibelock_redis_t *redis);
static void ngx_http_vibelock_redis_connect_addr(
    ngx_http_vibelock_redis_t *redis);
static redisAsyncContext *ngx_http_vibelock_redis_context(
    ngx_http_vibelock_redis_t *redis);
static ngx_int_t ngx_http_vibelock_redis_attach(
    ngx_http_vibelock_redis_t *redis);
static redisAsyncContext *ngx_http_vibelock_redis_detach(
    ngx_http_vibelock_redis_t *redis);
static void ngx_http_vibelock_redis_abandon(ngx_http_vibelock_redis_t *redis,
    ngx_http_vibelock_redis_e why, ngx_err_t err);
static void ngx_http_vibelock_redis_pause(ngx_http_vibelock_redis_t *redis);

static void ngx_http_vibelock_redis_resolve(ngx_http_vibelock_redis_t *redis);
static void ngx_http_vibelock_redis_resolved(ngx_resolver_ctx_t *ctx);

static void ngx_http_vibelock_redis_connected(const redisAsyncContext *ac,
    int status);
static void ngx_http_vibelock_redis_disconnected(const redisAsyncContext *ac,
    int status);
static void ngx_http_vibelock_redis_broken(ngx_http_vibelock_redis_t *redis,
    int error, ngx_err_t err);
static void ngx_http_vibelock_redis_said(ngx_http_vibelock_redis_t *redis,
    const char *failure);
static void ngx_http_vibelock_redis_greet(ngx_http_vibelock_redis_t *redis);
static ngx_int_t ngx_http_vibelock_redis_login(
    ngx_http_vibelock_redis_t *redis);
static void ngx_http_vibelock_redis_admitted(ngx_http_vibelock_redis_t *redis,
    redisReply *reply, void *data, uint64_t id);
static void ngx_http_vibelock_redis_greeted(ngx_http_vibelock_redis_t *redis,
    redisReply *reply, void *data, uint64_t id);
static void ngx_http_vibelock_redis_sampled(ngx_http_vibelock_redis_t *redis,
    redisReply *reply, void *data, uint64_t id);
static void ngx_http_vibelock_redis_settle(ngx_http_vibelock_redis_t *redis);
static int64_t ngx_http_vibelock_redis_time(redisReply *reply);
static ngx_http_vibelock_redis_command_t *ngx_http_vibelock_redis_take(
    ngx_http_vibelock_redis_t *redis);
static void ngx_http_vibelock_redis_answer(ngx_http_vibelock_redis_t *redis,
    redisReply *reply);

static void ngx_http_vibelock_redis_deadline(ngx_http_vibelock_redis_t *redis);
static void ngx_http_vibelock_redis_deadline_handler(ngx_event_t *ev);
static void ngx_http_vibelock_redis_retry_handler(ngx_event_t *ev);
static void ngx_http_vibelock_redis_test_handler(ngx_event_t *ev);
static void ngx_http_vibelock_redis_read_handler(ngx_event_t *rev);
static void ngx_http_vibelock_redis_read(ngx_http_vibelock_redis_t *redis);
static ngx_int_t ngx_http_vibelock_redis_replies(
    ngx_http_vibelock_redis_t *redis);
static ngx_int_t ngx_http_vibelock_redis_rest(
    ngx_http_vibelock_redis_t *redis);
static void ngx_http_vibelock_redis_large(ngx_http_vibelock_redis_t *redis);
static size_t ngx_http_vibelock_redis_unread(ngx_http_vibelock_redis_t *redis);


void
ngx_http_vibelock_redis_init(ngx_http_vibelock_redis_t *redis)
{
    ngx_event_t  *ev;

    ngx_queue_init(&redis->commands);
    ngx_queue_init(&redis->spare);

    redis->objects.log = redis->log;

    redis->why = NGX_HTTP_VIBELOCK_REDIS_IDLE;
    redis->naddrs = redis->url->naddrs;
    ngx_memcpy(redis->addrs, redis->url->addrs, sizeof(redis->addrs));

    ev = &redis->deadline;
    ev->handler = ngx_http_vibelock_redis_deadline_handler;
    ev->data = redis;
    ev->log = redis->log;
    ev->cancelable = 1;

    ev = &redis->retry;
    ev->handler = ngx_http_vibelock_redis_retry_handler;
    ev->data = redis;
    ev->log = redis->log;
    ev->cancelable = 1;

    ev = &redis->test;
    ev->handler = ngx_http_vibelock_redis_test_handler;
    ev->data = redis;
    ev->log = redis->log;
    ev->cancelable = 1;
}


void
ngx_http_vibelock_redis_open(ngx_http_vibelock_redis_t *redis)
{
    if (redis->opened) {
        return;
    }

    redis->opened = 1;
    redis->tries = 0;

    ngx_http_vibelock_redis_connect(redis);
}


void
ngx_http_vibelock_redis_close(ngx_http_vibelock_redis_t *redis)
{
    ngx_queue_t  *q;

    redis->opened = 0;

    if (redis->retry.timer_set) {
        ngx_del_timer(&redis->retry);
    }

    if (redis->resolving) {
        ngx_resolve_name_done(redis->resolving);
        redis->resolving = NULL;
    }

    ngx_http_vibelock_redis_abandon(redis, NGX_HTTP_VIBELOCK_REDIS_IDLE, 0);

    while (!ngx_queue_empty(&redis->spare)) {
        q = ngx_queue_head(&redis->spare);
        ngx_queue_remove(q);

        ngx_free(ngx_queue_data(q, ngx_http_vibelock_redis_command_t, queue));
    }

    ngx_http_vibelock_redis_objects_free(&redis->objects);
}


ngx_int_t
ngx_http_vibelock_redis_command(ngx_http_vibelock_redis_t *redis, int argc,
    const char **argv, const size_t *argvlen, ngx_msec_t late,
    ngx_http_vibelock_redis_reply_pt handler, void *data, uint64_t id)
{
    char      *text;
    long long  len;
    ngx_int_t  rc;

    len = redisFormatCommandArgv(&text, argc, argv, argvlen);

    if (len < 0) {
        return NGX_ERROR;
    }

    rc = ngx_http_vibelock_redis_send(redis, (u_char *) text, (size_t) len,
                                      late, handler, data, id);

    redisFreeCommand(text);

    return rc;
}


ngx_int_t
ngx_http_vibelock_redis_send(ngx_http_vibelock_redis_t *redis, u_char *text,
    size_t len, ngx_msec_t late, ngx_http_vibelock_redis_reply_pt handler,
    void *data, uint64_t id)
{
    ngx_http_vibelock_redis_command_t  *command;

    if (redis->ac == NULL) {
        return NGX_ERROR;
    }

    command = ngx_http_vibelock_redis_take(redis);
    if (command == NULL) {
        return NGX_ERROR;
    }

    if (redisAppendFormattedCommand(&redis->ac->c, (char *) text, len)
        != REDIS_OK)
    {
        ngx_queue_insert_head(&redis->spare, &command->queue);
        return NGX_ERROR;
    }

    command->until = ngx_current_msec + redis->timeout + late;
    command->handler = handler;
    command->data = data;
    command->id = id;

    ngx_queue_insert_tail(&redis->commands, &command->queue);

    redis->sent++;
    ngx_http_vibelock_redis_loop_later(redis);

    if (!redis->deadline.timer_set) {
        ngx_http_vibelock_redis_deadline(redis);
    }

    return NGX_OK;
}


ngx_int_t
ngx_http_vibelock_redis_clock(ngx_http_vibelock_redis_t *redis)
{
    static const char    *argv[] = { "TIME" };
    static const size_t   argvlen[] = { sizeof("TIME") - 1 };

    ngx_int_t   rc;
    ngx_msec_t  turn;

    turn = ngx_http_vibelock_clock_now();

    rc = ngx_http_vibelock_redis_command(redis, 1, argv, argvlen, 0,
                                         ngx_http_vibelock_redis_sampled,
                                         NULL, ngx_current_msec);

    ngx_http_vibelock_clock_back(turn);

    return rc;
}


void
ngx_http_vibelock_redis_flush(ngx_http_vibelock_redis_t *redis)
{
    if (redis->connected) {
        ngx_http_vibelock_redis_loop_write(redis);
    }
}


void
ngx_http_vibelock_redis_push(ngx_http_vibelock_redis_t *redis)
{
    if (redis->pushed) {
        return;
    }

    /* until the socket is written to, which is asked for already */

    redis->pushed = 1;

    ngx_http_vibelock_redis_flush(redis);
}


/*
 * For all places but those that hiredis frees the context after.
 */

void
ngx_http_vibelock_redis_fail(ngx_http_vibelock_redis_t *redis,
    ngx_http_vibelock_redis_e why, ngx_err_t err)
{
    ngx_http_vibelock_redis_abandon(redis, why, err);

    if (redis->opened) {
        ngx_http_vibelock_redis_pause(redis);
        redis->lost(redis);
    }
}


ngx_http_vibelock_redis_e
ngx_http_vibelock_redis_error(ngx_http_vibelock_redis_t *redis,
    redisReply *reply)
{
    u_char  ch;
    size_t  i, len;

    len = reply->str ? ngx_min((size_t) reply->len, sizeof(redis->text)) : 0;

    for (i = 0; i < len; i++) {
        ch = (u_char) reply->str[i];
        redis->text[i] = (ch < 0x20 || ch > 0x7e) ? '?' : ch;
    }

    redis->text_len = len;

    return ngx_http_vibelock_redis_why(redis->text, len);
}


static void
ngx_http_vibelock_redis_connect(ngx_http_vibelock_redis_t *redis)
{
    redis->why = NGX_HTTP_VIBELOCK_REDIS_CONNECTING;

    /* a name may mean another server than it did at the start */

    if (redis->url->resolver && (redis->tries || redis->naddrs == 0)) {
        ngx_http_vibelock_redis_resolve(redis);
        return;
    }

    ngx_http_vibelock_redis_connect_addr(redis);
}


static void
ngx_http_vibelock_redis_connect_addr(ngx_http_vibelock_redis_t *redis)
{
    const char         *failure;
    redisAsyncContext  *ac;

    ac = ngx_http_vibelock_redis_context(redis);

    if (ac == NULL) {
        ngx_http_vibelock_redis_fail(redis, NGX_HTTP_VIBELOCK_REDIS_FAILED,
                                     NGX_ENOMEM);
        return;
    }

    redis->ac = ac;

    if (ac->err) {
        ngx_http_vibelock_redis_fail(redis, NGX_HTTP_VIBELOCK_REDIS_FAILED,
                                     ac->err == REDIS_ERR_IO ? ngx_errno : 0);
        return;
    }

    if (ngx_http_vibelock_redis_attach(redis) != NGX_OK) {
        ngx_http_vibelock_redis_fail(redis, NGX_HTTP_VIBELOCK_REDIS_FAILED,
                                     NGX_ENOMEM);
        return;
    }

    if (redis->url->tls
        && ngx_http_vibelock_redis_tls_start(redis->url->tls,
                                             &redis->url->host, &ac->c,
                                             &redis->ssl, &failure)
           != NGX_OK)
    {
        ngx_http_vibelock_redis_said(redis, failure);
        ngx_http_vibelock_redis_fail(redis, NGX_HTTP_VIBELOCK_REDIS_TLS, 0);
        return;
    }

    ngx_add_timer(&redis->deadline, redis->timeout);
}


/* an address as a text is what keeps hiredis from asking the DNS */

static redisAsyncContext *
ngx_http_vibelock_redis_context(ngx_http_vibelock_redis_t *redis)
{
    u_char                           text[NGX_SOCKADDR_STRLEN + 1];
    size_t                           len;
    ngx_http_vibelock_redis_addr_t  *addr;

    if (redis->url->host.len == 0) {
        return redisAsyncConnectUnix((char *) redis->url->path.data);
    }

    addr = &redis->addrs[redis->next % redis->naddrs];

    len = ngx_sock_ntop(&addr->sockaddr.sockaddr, addr->socklen, text,
                        NGX_SOCKADDR_STRLEN, 0);
    text[len] = '\0';

    /* nginx writes [::1], the system's functions read ::1 */

    if (text[0] == '[') {
        text[len - 1] = '\0';
        return redisAsyncConnect((char *) text + 1, redis->url->port);
    }

    return redisAsyncConnect((char *) text, redis->url->port);
}


static ngx_int_t
ngx_http_vibelock_redis_attach(ngx_http_vibelock_redis_t *redis)
{
    redisAsyncContext  *ac;

    if (ngx_http_vibelock_redis_loop_attach(redis,
                                          ngx_http_vibelock_redis_read_handler)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    ac = redis->ac;

    ngx_http_vibelock_redis_objects_attach(&redis->objects, ac->c.reader);

    ac->data = redis;

    /* the first of them asks for a write event, which tells of the connect */

    (void) redisAsyncSetConnectCallback(ac, ngx_http_vibelock_redis_connected);
    (void) redisAsyncSetDisconnectCallback(ac,
                                        ngx_http_vibelock_redis_disconnected);
    return NGX_OK;
}


/*
 * Lets go of the context: it has no way back from here, and its socket is not
 * nginx's any more.  Tells those who wait for replies.
 */

static redisAsyncContext *
ngx_http_vibelock_redis_detach(ngx_http_vibelock_redis_t *redis)
{
    redisAsyncContext  *ac;

    ac = redis->ac;

    if (ac) {
        ac->data = NULL;
    }

    if (redis->url->tls) {
        ngx_http_vibelock_redis_tls_forget();
    }

    ngx_http_vibelock_redis_loop_detach(redis);

    redis->ac = NULL;
    redis->ssl = NULL;
    redis->connected = 0;
    redis->clocked = 0;

    if (redis->deadline.timer_set) {
        ngx_del_timer(&redis->deadline);
    }

    if (redis->test.timer_set) {
        ngx_del_timer(&redis->test);
    }

    while (!ngx_queue_empty(&redis->commands)) {
        ngx_http_vibelock_redis_answer(redis, NULL);
    }

    return ac;
}


static void
ngx_http_vibelock_redis_abandon(ngx_http_vibelock_redis_t *redis,
    ngx_http_vibelock_redis_e why, ngx_err_t err)
{
    redisAsyncContext  *ac;

    redis->why = why;
    redis->err = err;

    ac = ngx_http_vibelock_redis_detach(redis);

    if (ac) {
        redisAsyncFree(ac);
    }
}


/*
 * Tries the next address after a pause that grows, and that is another one
 * for each worker and replica.
 */

static void
ngx_http_vibelock_redis_pause(ngx_http_vibelock_redis_t *redis)
{
    ngx_msec_t  most;

    if (redis->since
        && ngx_current_msec - redis->since >= NGX_HTTP_VIBELOCK_REDIS_STABLE)
    {
        redis->tries = 0;
    }

    redis->since = 0;
    redis->next++;
    redis->tries++;

    most = NGX_HTTP_VIBELOCK_REDIS_LONG;

    if (redis->tries < 4) {
        most = NGX_HTTP_VIBELOCK_REDIS_SHORT << redis->tries;
    }

    most -= NGX_HTTP_VIBELOCK_REDIS_SHORT;

    if (!redis->retry.timer_set) {
        ngx_add_timer(&redis->retry, NGX_HTTP_VIBELOCK_REDIS_SHORT
                                     + (ngx_msec_t) ngx_random() % (most + 1));
    }
}


static void
ngx_http_vibelock_redis_resolve(ngx_http_vibelock_redis_t *redis)
{
    ngx_resolver_ctx_t  *ctx;

    ctx = ngx_resolve_start(redis->url->resolver, NULL);

    if (ctx == NULL || ctx == NGX_NO_RESOLVER) {
        ngx_http_vibelock_redis_fail(redis, NGX_HTTP_VIBELOCK_REDIS_UNRESOLVED,
                                     0);
        return;
    }

    ctx->name = redis->url->host;
    ctx->handler = ngx_http_vibelock_redis_resolved;
    ctx->data = redis;
    ctx->timeout = redis->url->resolver_timeout;
    ctx->cancelable = 1;

    redis->resolving = ctx;

    /* a failure frees the context */

    if (ngx_resolve_name(ctx) != NGX_OK) {
        redis->resolving = NULL;
        ngx_http_vibelock_redis_fail(redis, NGX_HTTP_VIBELOCK_REDIS_UNRESOLVED,
                                     0);
    }
}


static void
ngx_http_vibelock_redis_resolved(ngx_resolver_ctx_t *ctx)
{
    ngx_uint_t                       i;
    ngx_http_vibelock_redis_t       *redis;
    ngx_http_vibelock_redis_addr_t  *addr;

    redis = ctx->data;
    redis->resolving = NULL;

    if (ctx->state == 0) {

        for (i = 0;
             i < ctx->naddrs && i < NGX_HTTP_VIBELOCK_REDIS_ADDRS;
             i++)
        {
            addr = &redis->addrs[i];

            ngx_memcpy(&addr->sockaddr, ctx->addrs[i].sockaddr,
                       ctx->addrs[i].socklen);
            addr->socklen = ctx->addrs[i].socklen;
        }

        redis->naddrs = i;
    }

    ngx_resolve_name_done(ctx);

    /* who cannot be asked now may be where it was */

    if (redis->naddrs == 0) {
        ngx_http_vibelock_redis_fail(redis, NGX_HTTP_VIBELOCK_REDIS_UNRESOLVED,
                                     0);
        return;
    }

    ngx_http_vibelock_redis_connect_addr(redis);
}


static void
ngx_http_vibelock_redis_connected(const redisAsyncContext *ac, int status)
{
    ngx_err_t                   err;
    ngx_http_vibelock_redis_t  *redis;

    err = ngx_socket_errno;
    redis = ac->data;

    if (redis == NULL) {
        return;
    }

    if (status == REDIS_OK) {
        ngx_http_vibelock_redis_greet(redis);
        return;
    }

    redis->why = NGX_HTTP_VIBELOCK_REDIS_FAILED;
    redis->err = err;

    (void) ngx_http_vibelock_redis_detach(redis);

    ngx_http_vibelock_redis_pause(redis);
    redis->lost(redis);
}


static void
ngx_http_vibelock_redis_disconnected(const redisAsyncContext *ac, int status)
{
    ngx_err_t                   err;
    ngx_http_vibelock_redis_t  *redis;

    err = ngx_socket_errno;
    redis = ac->data;

    if (redis == NULL) {
        return;
    }

    ngx_http_vibelock_redis_broken(redis, ac->err, err);

    (void) ngx_http_vibelock_redis_detach(redis);

    ngx_http_vibelock_redis_pause(redis);
    redis->lost(redis);
}


/* by an error of hiredis's, and the errno there was: before it is freed */

static void
ngx_http_vibelock_redis_broken(ngx_http_vibelock_redis_t *redis, int error,
    ngx_err_t err)
{
    const char  *failure;

    redis->err = (error == REDIS_ERR_IO) ? err : 0;

    failure = NULL;

    switch (error) {

    case REDIS_ERR_EOF:
        failure = ngx_http_vibelock_redis_tls_alert(redis->ssl);

        redis->why = failure ? NGX_HTTP_VIBELOCK_REDIS_TLS
                             : NGX_HTTP_VIBELOCK_REDIS_CLOSED;
        break;

    case REDIS_ERR_PROTOCOL:
        redis->why = NGX_HTTP_VIBELOCK_REDIS_UNEXPECTED;
        break;

    case REDIS_ERR_OOM:
        redis->why = NGX_HTTP_VIBELOCK_REDIS_FAILED;
        redis->err = NGX_ENOMEM;
        break;

    default:
        failure = ngx_http_vibelock_redis_tls_failure(redis->ssl);

        redis->why = redis->url->tls ? NGX_HTTP_VIBELOCK_REDIS_TLS
                                     : NGX_HTTP_VIBELOCK_REDIS_FAILED;
        break;
    }

    if (failure) {
        redis->err = 0;
    }

    ngx_http_vibelock_redis_said(redis, failure);
}


/* what is logged with the reason; NULL: nothing */

static void
ngx_http_vibelock_redis_said(ngx_http_vibelock_redis_t *redis,
    const char *failure)
{
    redis->text_len = 0;

    if (failure) {
        redis->text_len = ngx_min(ngx_strlen(failure), sizeof(redis->text));
        ngx_memcpy(redis->text, failure, redis->text_len);
    }
}


/*
 * The answers come in this order, and the last one makes the connection
 * ready.  Nothing is freed here: hiredis goes on with the context.
 */

static void
ngx_http_vibelock_redis_greet(ngx_http_vibelock_redis_t *redis)
{
    if (ngx_http_vibelock_redis_login(redis) != NGX_OK
        || ngx_http_vibelock_redis_clock(redis) != NGX_OK)
    {
        /* no memory: the deadline of connecting ends it */
        return;
    }

    ngx_http_vibelock_redis_deadline(redis);
}


static ngx_int_t
ngx_http_vibelock_redis_login(ngx_http_vibelock_redis_t *redis)
{
    int                             n;
    size_t                          lens[3];
    const char                     *args[3];
    ngx_http_vibelock_redis_url_t  *url;

    url = redis->url;

    if (url->password.len) {
        n = 0;

        args[n] = "AUTH";
        lens[n++] = sizeof("AUTH") - 1;

        if (url->user.len) {
            args[n] = (char *) url->user.data;
            lens[n++] = url->user.len;
        }

        args[n] = (char *) url->password.data;
        lens[n++] = url->password.len;

        if (ngx_http_vibelock_redis_command(redis, n, args, lens, 0,
                                            ngx_http_vibelock_redis_admitted,
                                            NULL, 0)
            != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    if (url->db.len == 0) {
        return NGX_OK;
    }

    args[0] = "SELECT";
    lens[0] = sizeof("SELECT") - 1;
    args[1] = (char *) url->db.data;
    lens[1] = url->db.len;

    return ngx_http_vibelock_redis_command(redis, 2, args, lens, 0,
                                           ngx_http_vibelock_redis_greeted,
                                           NULL, 0);
}


/*
 * A Redis that does not know the command repeats what it was sent, and that is
 * for no log.  But what it says to whoever connects, before it looks at any
 * command, is nothing of the login's.
 */

static void
ngx_http_vibelock_redis_admitted(ngx_http_vibelock_redis_t *redis,
    redisReply *reply, void *data, uint64_t id)
{
    ngx_http_vibelock_redis_e  why;

    if (reply == NULL || reply->type != REDIS_REPLY_ERROR) {
        return;
    }

    why = ngx_http_vibelock_redis_error(redis, reply);

    if (why != NGX_HTTP_VIBELOCK_REDIS_ERROR
        || !ngx_http_vibelock_redis_turned_away(redis->text, redis->text_len))
    {
        redis->text_len = 0;

        if (why == NGX_HTTP_VIBELOCK_REDIS_ERROR) {
            why = NGX_HTTP_VIBELOCK_REDIS_NOAUTH;
        }
    }

    ngx_http_vibelock_redis_fail(redis, why, 0);
}


static void
ngx_http_vibelock_redis_greeted(ngx_http_vibelock_redis_t *redis,
    redisReply *reply, void *data, uint64_t id)
{
    if (reply && reply->type == REDIS_REPLY_ERROR) {
        ngx_http_vibelock_redis_fail(redis,
                           ngx_http_vibelock_redis_error(redis, reply), 0);
    }
}


/*
 * "id" is our clock when the question was sent.  The answer is taken to be of
 * the moment halfway.
 */

static void
ngx_http_vibelock_redis_sampled(ngx_http_vibelock_redis_t *redis,
    redisReply *reply, void *data, uint64_t id)
{
    int64_t     now;
    ngx_msec_t  took, turn;

    if (reply == NULL) {
        return;
    }

    if (reply->type == REDIS_REPLY_ERROR) {
        ngx_http_vibelock_redis_fail(redis,
                           ngx_http_vibelock_redis_error(redis, reply), 0);
        return;
    }

    now = ngx_http_vibelock_redis_time(reply);

    if (now == NGX_ERROR) {
        ngx_http_vibelock_redis_fail(redis, NGX_HTTP_VIBELOCK_REDIS_UNEXPECTED,
                                     0);
        return;
    }

    turn = ngx_http_vibelock_clock_now();

    took = ngx_current_msec - (ngx_msec_t) id;

    ngx_http_vibelock_clock_back(turn);

    if (took <= NGX_HTTP_VIBELOCK_REDIS_SAMPLE) {
        redis->offset = now - (int64_t) (id + took / 2);
        redis->clocked = 1;
    }

    if (!redis->connected) {
        ngx_http_vibelock_redis_settle(redis);
    }

    if (redis->connected && redis->tests && !redis->test.timer_set) {
        ngx_add_timer(&redis->test, redis->keepalive);
    }
}


/*
 * Without a clock a connection is of no use: another sample, and then another
 * connection.
 */

static void
ngx_http_vibelock_redis_settle(ngx_http_vibelock_redis_t *redis)
{
    if (redis->clocked) {
        redis->why = NGX_HTTP_VIBELOCK_REDIS_WORKS;
        redis->connected = 1;
        redis->connects++;
        redis->since = ngx_current_msec;

        redis->ready(redis);
        return;
    }

    if (redis->why == NGX_HTTP_VIBELOCK_REDIS_CLOCK
        || ngx_http_vibelock_redis_clock(redis) != NGX_OK)
    {
        ngx_http_vibelock_redis_fail(redis, NGX_HTTP_VIBELOCK_REDIS_CLOCK, 0);
        return;
    }

    redis->why = NGX_HTTP_VIBELOCK_REDIS_CLOCK;
}


/* ms of the Redis clock, from seconds and microseconds as texts */

static int64_t
ngx_http_vibelock_redis_time(redisReply *reply)
{
    ngx_int_t    sec, usec;
    redisReply  *s, *us;

    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2) {
        return NGX_ERROR;
    }

    s = reply->element[0];
    us = reply->element[1];

    if (s->type != REDIS_REPLY_STRING || us->type != REDIS_REPLY_STRING) {
        return NGX_ERROR;
    }

    sec = ngx_atoi((u_char *) s->str, s->len);
    usec = ngx_atoi((u_char *) us->str, us->len);

    if (sec == NGX_ERROR || usec == NGX_ERROR
        || sec > NGX_MAX_INT_T_VALUE / 2000 || usec > 999999)
    {
        return NGX_ERROR;
    }

    return (int64_t) sec * 1000 + usec / 1000;
}


/* memory for a command; what was answered leaves its own behind */

static ngx_http_vibelock_redis_command_t *
ngx_http_vibelock_redis_take(ngx_http_vibelock_redis_t *redis)
{
    ngx_queue_t  *q;

    if (ngx_queue_empty(&redis->spare)) {
        return ngx_alloc(sizeof(ngx_http_vibelock_redis_command_t),
                         redis->log);
    }

    q = ngx_queue_head(&redis->spare);
    ngx_queue_remove(q);

    return ngx_queue_data(q, ngx_http_vibelock_redis_command_t, queue);
}


/* the reply of the first one, which its handler may send others after */

static void
ngx_http_vibelock_redis_answer(ngx_http_vibelock_redis_t *redis,
    redisReply *reply)
{
    ngx_queue_t                        *q;
    ngx_http_vibelock_redis_command_t  *command;

    q = ngx_queue_head(&redis->commands);
    ngx_queue_remove(q);

    command = ngx_queue_data(q, ngx_http_vibelock_redis_command_t, queue);
    command->handler(redis, reply, command->data, command->id);

    ngx_queue_insert_head(&redis->spare, &command->queue);
}


/*
 * Of the command that is answered next.  When there is none before the
 * connection is ready, no memory was left for it: the deadline that there is
 * ends that.
 */

static void
ngx_http_vibelock_redis_deadline(ngx_http_vibelock_redis_t *redis)
{
    ngx_msec_int_t                      rest;
    ngx_http_vibelock_redis_command_t  *command;

    if (!redis->connected && ngx_queue_empty(&redis->commands)) {
        return;
    }

    if (redis->deadline.timer_set) {
        ngx_del_timer(&redis->deadline);
    }

    if (ngx_queue_empty(&redis->commands)) {
        return;
    }

    command = ngx_queue_data(ngx_queue_head(&redis->commands),
                             ngx_http_vibelock_redis_command_t, queue);

    rest = (ngx_msec_int_t) (command->until - ngx_current_msec);

    ngx_add_timer(&redis->deadline, (ngx_msec_t) ngx_max(rest, 1));
}


static void
ngx_http_vibelock_redis_deadline_handler(ngx_event_t *ev)
{
    ngx_http_vibelock_redis_fail(ev->data, NGX_HTTP_VIBELOCK_REDIS_TIMEOUT, 0);
}


static void
ngx_http_vibelock_redis_retry_handler(ngx_event_t *ev)
{
    ngx_http_vibelock_redis_connect(ev->data);
}


static void
ngx_http_vibelock_redis_test_handler(ngx_event_t *ev)
{
    ngx_http_vibelock_redis_t  *redis = ev->data;

    if (ngx_http_vibelock_redis_clock(redis) != NGX_OK) {
        ngx_http_vibelock_redis_fail(redis, NGX_HTTP_VIBELOCK_REDIS_FAILED,
                                     NGX_ENOMEM);
    }
}


static void
ngx_http_vibelock_redis_read_handler(ngx_event_t *rev)
{
    ngx_connection_t           *c;
    ngx_http_vibelock_redis_t  *redis;

    c = rev->data;
    redis = c->data;

    if (c->close) {
        c->close = 0;
        redis->leave(redis);
        return;
    }

    /* TLS may have waited for this with what it writes, as in a handshake */

    if (redis->url->tls) {
        ngx_http_vibelock_redis_loop_write(redis);
    }

    if (redis->ac) {
        ngx_http_vibelock_redis_read(redis);
    }
}


static void
ngx_http_vibelock_redis_read(ngx_http_vibelock_redis_t *redis)
{
    redisAsyncContext                  *ac;
    ngx_http_vibelock_redis_command_t  *command;

    ac = redis->ac;

    if (redisBufferRead(&ac->c) != REDIS_OK) {
        ngx_http_vibelock_redis_broken(redis, ac->c.err, ngx_socket_errno);
        ngx_http_vibelock_redis_fail(redis, redis->why, redis->err);
        return;
    }

    switch (ngx_http_vibelock_redis_replies(redis)) {

    case NGX_OK:
        break;

    case NGX_DECLINED:
        ngx_http_vibelock_redis_large(redis);
        return;

    default: /* NGX_ERROR */
        ngx_http_vibelock_redis_fail(redis, NGX_HTTP_VIBELOCK_REDIS_UNEXPECTED,
                                     0);
        return;
    }

    if (redis->ac != ac) {
        return;
    }

    if (!ngx_queue_empty(&redis->commands)) {

        /* a long reply may be on its way: what still comes is not dead */

        command = ngx_queue_data(ngx_queue_head(&redis->commands),
                                 ngx_http_vibelock_redis_command_t, queue);

        if ((ngx_msec_int_t) (command->until - ngx_current_msec)
            < (ngx_msec_int_t) redis->timeout)
        {
            command->until = ngx_current_msec + redis->timeout;
        }
    }

    ngx_http_vibelock_redis_deadline(redis);
}


/*
 * Replies come in the order of their commands.  NGX_ERROR: what was read is no
 * reply, or answers nothing.  NGX_DECLINED: the reply of the first command is
 * too large.  A handler may have lost the connection.
 *
 * What came with the last reply there was to come answers nothing either, and
 * no command that its handler sends.
 */

static ngx_int_t
ngx_http_vibelock_redis_replies(ngx_http_vibelock_redis_t *redis)
{
    void               *reply;
    ngx_uint_t          unasked;
    redisAsyncContext  *ac;

    ac = redis->ac;

    while (!ngx_queue_empty(&redis->commands)) {

        if (redisReaderGetReply(ac->c.reader, &reply) != REDIS_OK) {
            return ngx_http_vibelock_redis_objects_large(&redis->objects, 0)
                   ? NGX_DECLINED : NGX_ERROR;
        }

        if (reply == NULL) {
            return ngx_http_vibelock_redis_rest(redis);
        }

        unasked = ngx_queue_head(&redis->commands)
                  == ngx_queue_last(&redis->commands)
                  && ngx_http_vibelock_redis_unread(redis);

        ngx_http_vibelock_redis_answer(redis, reply);
        ngx_http_vibelock_redis_objects_reset(&redis->objects);

        if (redis->ac != ac) {
            return NGX_OK;
        }

        if (unasked) {
            return NGX_ERROR;
        }
    }

    return ngx_http_vibelock_redis_unread(redis) ? NGX_ERROR : NGX_OK;
}


/*
 * Whether the rest of a reply may come.  In a line hiredis looks for the end
 * from the start, whenever something was read.
 */

static ngx_int_t
ngx_http_vibelock_redis_rest(ngx_http_vibelock_redis_t *redis)
{
    char    *p;
    size_t   i, len;

    len = ngx_http_vibelock_redis_unread(redis);

    if (len <= NGX_HTTP_VIBELOCK_REDIS_LINE) {
        return NGX_OK;
    }

    p = redis->ac->c.reader->buf + redis->ac->c.reader->pos;

    for (i = 0; i < NGX_HTTP_VIBELOCK_REDIS_LENGTH; i++) {

        if (p[i] == CR && p[i + 1] == LF) {
            return ngx_http_vibelock_redis_objects_large(&redis->objects, len)
                   ? NGX_DECLINED : NGX_OK;
        }
    }

    return NGX_ERROR;
}


/* who waits for the reply is told as of one that does not come */

static void
ngx_http_vibelock_redis_large(ngx_http_vibelock_redis_t *redis)
{
    redis->part = redis->objects.root;
    ngx_http_vibelock_redis_answer(redis, NULL);
    redis->part = NULL;

    ngx_http_vibelock_redis_fail(redis, NGX_HTTP_VIBELOCK_REDIS_LARGE, 0);

    ngx_http_vibelock_redis_objects_reset(&redis->objects);
}


/* bytes that came and are no part of a reply yet */

static size_t
ngx_http_vibelock_redis_unread(ngx_http_vibelock_redis_t *redis)
{
    redisReader  *reader;

    reader = redis->ac->c.reader;

    return reader->len - reader->pos;
}
