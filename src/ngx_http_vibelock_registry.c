
/*
 * Copyright (C) the vibelock authors
 *
 * Answers from the file that was read last, and watches it: a thread reads
 * its successor, the event loop swaps it in.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_event.h>

#if (NGX_THREADS)
#include <ngx_thread_pool.h>
#endif

#include <jansson.h>

#include "ngx_http_vibelock_digest.h"
#include "ngx_http_vibelock_hash.h"
#include "ngx_http_vibelock_registry.h"
#include "ngx_http_vibelock_registry_file.h"


struct ngx_http_vibelock_registry_s {
    ngx_str_t                              name;
    ngx_msec_t                             check;

    ngx_http_vibelock_registry_file_t     *file;     /* in force */
    time_t                                 read;
    ngx_atomic_t                          *failed;   /* or NULL */
    ngx_uint_t                             wrong;    /* what was read last */

    ngx_http_vibelock_registry_reading_t   reading;
    ngx_http_vibelock_registry_stamp_t     seen;     /* good or bad */
    ngx_uint_t                             young;    /* when it was seen */
    ngx_uint_t                             again;    /* read for being so */
    ngx_err_t                              err;      /* logged already */

#if (NGX_THREADS)
    ngx_thread_pool_t                     *pool;     /* NULL: no watch */
    ngx_thread_task_t                     *task;
    ngx_event_t                            timer;
#endif
};


static void ngx_http_vibelock_registry_cleanup(void *data);
static void ngx_http_vibelock_registry_settle(
    ngx_http_vibelock_registry_t *reg, ngx_log_t *log);
static void ngx_http_vibelock_registry_saw(ngx_http_vibelock_registry_t *reg);

#if (NGX_THREADS)
static ngx_int_t ngx_http_vibelock_registry_threads(ngx_conf_t *cf,
    ngx_http_vibelock_registry_t *reg);
static ngx_uint_t ngx_http_vibelock_registry_changed(
    ngx_http_vibelock_registry_t *reg, ngx_log_t *log);
static void ngx_http_vibelock_registry_check(ngx_event_t *ev);
static void ngx_http_vibelock_registry_task(void *data, ngx_log_t *log);
static void ngx_http_vibelock_registry_done(ngx_event_t *ev);
#endif


ngx_http_vibelock_registry_t *
ngx_http_vibelock_registry_create(ngx_conf_t *cf, ngx_str_t *file,
    ngx_msec_t check)
{
    ngx_pool_cleanup_t                    *cln;
    ngx_http_vibelock_registry_t          *reg;
    ngx_http_vibelock_registry_reading_t  *reading;

    reg = ngx_pcalloc(cf->pool, sizeof(ngx_http_vibelock_registry_t));
    cln = ngx_pool_cleanup_add(cf->pool, 0);

    if (reg == NULL || cln == NULL) {
        return NULL;
    }

    reg->name = *file;
    reg->check = check;

    if (ngx_conf_full_name(cf->cycle, &reg->name, 1) != NGX_OK) {
        return NULL;
    }

    cln->handler = ngx_http_vibelock_registry_cleanup;
    cln->data = reg;

    /* before there are threads that could come to it at the same time */

    json_object_seed(0);

    reading = &reg->reading;
    reading->name = reg->name;
    ngx_http_vibelock_hash_random(&reading->seed, sizeof(reading->seed));

    ngx_http_vibelock_registry_file_read(reading);

    if (reading->rc != NGX_OK) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, reading->err,
                           "vibelock_registry \"%V\": %V",
                           &reg->name, &reading->schema.error);
        return NULL;
    }

    ngx_http_vibelock_registry_settle(reg, cf->log);

#if (NGX_THREADS)
    if (ngx_http_vibelock_registry_threads(cf, reg) != NGX_OK) {
        return NULL;
    }
#endif

    return reg;
}


static void
ngx_http_vibelock_registry_cleanup(void *data)
{
    ngx_http_vibelock_registry_t *reg = data;

    ngx_http_vibelock_registry_stop(reg);

    /* a task's result that nobody took goes with the process */

    ngx_http_vibelock_registry_file_free(reg->file);
}


/*
 * Takes what a reading brought.  A file that cannot be had is tried again at
 * every check, and logged when the reason is another; one that is wrong is
 * left alone until it changes.  What is read once more, as it was young, is no
 * news by itself.
 */

static void
ngx_http_vibelock_registry_settle(ngx_http_vibelock_registry_t *reg,
    ngx_log_t *log)
{
    ngx_uint_t                             level, said;
    ngx_http_vibelock_registry_reading_t  *reading;

    reading = &reg->reading;

    switch (reading->rc) {

    case NGX_OK:

        /* that it was mended is news as well */

        level = (reg->wrong || reg->err) ? NGX_LOG_NOTICE
                : reg->again ? NGX_LOG_DEBUG : NGX_LOG_INFO;

        ngx_http_vibelock_registry_file_free(reg->file);

        reg->file = reading->file;
        reading->file = NULL;

        reg->read = ngx_time();
        reg->wrong = 0;

        ngx_http_vibelock_registry_saw(reg);

        ngx_log_error(level, log, 0,
                      "vibelock_registry \"%V\": read %ui keys, "
                      "%ui servers", &reg->name, reg->file->accounts.n,
                      reg->file->servers.n);
        return;

    case NGX_ERROR:
        said = reg->again && reg->wrong;
        reg->wrong = 1;

        ngx_http_vibelock_registry_saw(reg);

        if (said) {
            return;
        }

        break;

    case NGX_DECLINED:
        if (reading->err == reg->err) {
            return;
        }

        reg->err = reading->err;
        break;

    default: /* NGX_ABORT: the worker exits */
        return;
    }

    if (reg->failed) {
        (void) ngx_atomic_fetch_add(reg->failed, 1);
    }

    ngx_log_error(NGX_LOG_ERR, log, reading->err,
                  "vibelock_registry \"%V\" stays as it was read before: %V",
                  &reg->name, &reading->schema.error);
}


static void
ngx_http_vibelock_registry_saw(ngx_http_vibelock_registry_t *reg)
{
    reg->seen = reg->reading.stamp;
    reg->young = ngx_http_vibelock_registry_file_young(&reg->reading);
    reg->err = 0;
}


void
ngx_http_vibelock_registry_start(ngx_http_vibelock_registry_t *reg,
    ngx_cycle_t *cycle, ngx_atomic_t *failed)
{
    reg->failed = failed;

#if (NGX_THREADS)

    if (reg->pool == NULL) {
        return;
    }

    /*
     * a worker that replaces one which died has the file of the last reload,
     * with keys that were taken away since; it serves nobody yet, and reads
     */

    if (ngx_http_vibelock_registry_changed(reg, cycle->log)) {
        ngx_http_vibelock_registry_file_read(&reg->reading);
        ngx_http_vibelock_registry_settle(reg, cycle->log);
    }

    reg->reading.threaded = 1;

    reg->timer.handler = ngx_http_vibelock_registry_check;
    reg->timer.data = reg;
    reg->timer.log = cycle->log;
    reg->timer.cancelable = 1;

    /* not all workers at the same moment */

    ngx_add_timer(&reg->timer, 1 + (ngx_msec_t) ngx_random() % reg->check);

#endif
}


void
ngx_http_vibelock_registry_stop(ngx_http_vibelock_registry_t *reg)
{
#if (NGX_THREADS)

    if (reg->timer.timer_set) {
        ngx_del_timer(&reg->timer);
    }

#endif
}


ngx_http_vibelock_account_t *
ngx_http_vibelock_registry_account(ngx_http_vibelock_registry_t *reg,
    u_char *digest)
{
    ngx_str_t                          name;
    ngx_http_vibelock_registry_key_t  *key;

    name.len = NGX_HTTP_VIBELOCK_DIGEST_LEN;
    name.data = digest;

    key = ngx_http_vibelock_lookup_find(&reg->file->keys, &name);

    return key ? key->account : NULL;
}


ngx_http_vibelock_session_e
ngx_http_vibelock_registry_session(ngx_http_vibelock_account_t *account,
    u_char *digest, time_t now)
{
    ngx_str_t                              name;
    ngx_http_vibelock_registry_session_t  *session;

    if (account->sessions == NULL) {
        return NGX_HTTP_VIBELOCK_SESSION_GOOD;
    }

    name.len = NGX_HTTP_VIBELOCK_DIGEST_LEN;
    name.data = digest;

    session = ngx_http_vibelock_lookup_find(account->sessions, &name);

    if (session == NULL) {
        return NGX_HTTP_VIBELOCK_SESSION_UNKNOWN;
    }

    if (session->expires && session->expires <= now) {
        return NGX_HTTP_VIBELOCK_SESSION_OVER;
    }

    return NGX_HTTP_VIBELOCK_SESSION_GOOD;
}


ngx_http_vibelock_server_t *
ngx_http_vibelock_registry_server(ngx_http_vibelock_registry_t *reg,
    ngx_str_t *id)
{
    return ngx_http_vibelock_lookup_find(&reg->file->servers, id);
}


void
ngx_http_vibelock_registry_state(ngx_http_vibelock_registry_t *reg,
    ngx_http_vibelock_registry_state_t *state)
{
    state->keys = reg->file->accounts.n;
    state->servers = reg->file->servers.n;
    state->read = reg->read;
    state->failed = reg->failed ? *reg->failed : 0;
    state->failing = (reg->wrong || reg->err);
}


#if (NGX_THREADS)

static ngx_int_t
ngx_http_vibelock_registry_threads(ngx_conf_t *cf,
    ngx_http_vibelock_registry_t *reg)
{
    ngx_event_conf_t  *ecf;

    if (reg->check == 0) {
        return NGX_OK;
    }

    /* with one of these methods, a thread pool keeps workers from starting */

    if (ngx_get_conf(cf->cycle->conf_ctx, ngx_events_module)) {
        ecf = ngx_event_get_conf(cf->cycle->conf_ctx, ngx_event_core_module);

        if (ngx_strcmp(ecf->name, "select") == 0
            || ngx_strcmp(ecf->name, "poll") == 0
            || ngx_strcmp(ecf->name, "/dev/poll") == 0)
        {
            ngx_conf_log_error(NGX_LOG_WARN, cf, 0,
                               "vibelock_registry \"%V\" will not be read "
                               "again when it changes: \"use %s\" allows no "
                               "threads", &reg->name, ecf->name);
            return NGX_OK;
        }
    }

    reg->task = ngx_thread_task_alloc(cf->pool, 0);
    reg->pool = ngx_thread_pool_add(cf, NULL);

    if (reg->task == NULL || reg->pool == NULL) {
        return NGX_ERROR;
    }

    reg->task->ctx = &reg->reading;
    reg->task->handler = ngx_http_vibelock_registry_task;
    reg->task->event.handler = ngx_http_vibelock_registry_done;
    reg->task->event.data = reg;

    return NGX_OK;
}


static void
ngx_http_vibelock_registry_check(ngx_event_t *ev)
{
    ngx_http_vibelock_registry_t *reg = ev->data;

    if (ngx_exiting) {
        return;
    }

    if (ngx_http_vibelock_registry_changed(reg, ev->log)
        && ngx_thread_task_post(reg->pool, reg->task) == NGX_OK)
    {
        /* the next check is for whoever takes the result */
        return;
    }

    ngx_add_timer(ev, reg->check);
}


static ngx_uint_t
ngx_http_vibelock_registry_changed(ngx_http_vibelock_registry_t *reg,
    ngx_log_t *log)
{
    ngx_http_vibelock_registry_reading_t  *reading;

    reading = &reg->reading;

    ngx_http_vibelock_registry_file_look(reading);

    if (reading->rc != NGX_OK) {

        /* what this process is short of says nothing of the file */

        if (reading->err != NGX_EMFILE && reading->err != NGX_ENFILE) {
            ngx_http_vibelock_registry_settle(reg, log);
        }

        return 0;
    }

    if (ngx_memcmp(&reading->stamp, &reg->seen,
                   sizeof(ngx_http_vibelock_registry_stamp_t))
        == 0)
    {
        if (reg->err) {
            reg->err = 0;

            ngx_log_error(NGX_LOG_NOTICE, log, 0,
                          "vibelock_registry \"%V\" can be read again, and is "
                          "as it was", &reg->name);
        }

        /* once, when it cannot change any more and look the same */

        reg->again = reg->young
                     && !ngx_http_vibelock_registry_file_young(reading);

        return reg->again;
    }

    reg->again = 0;

    return 1;
}


static void
ngx_http_vibelock_registry_task(void *data, ngx_log_t *log)
{
    ngx_http_vibelock_registry_file_read(data);
}


static void
ngx_http_vibelock_registry_done(ngx_event_t *ev)
{
    ngx_http_vibelock_registry_t *reg = ev->data;

    ngx_http_vibelock_registry_settle(reg, reg->timer.log);

    if (!ngx_exiting) {
        ngx_add_timer(&reg->timer, reg->check);
    }
}

#endif
