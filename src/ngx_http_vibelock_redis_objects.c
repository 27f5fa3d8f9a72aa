
/*
 * Copyright (C) the vibelock authors
 *
 * To hiredis, NULL for an object is an error of memory, which ends the
 * connection.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_http_vibelock_redis_objects.h"


/* bytes that a reply may have, at most: with what is made of it, and unread */
#define NGX_HTTP_VIBELOCK_REDIS_OBJECTS_SIZE  (16 * 1024 * 1024)


#if (HIREDIS_MAJOR >= 1)
typedef size_t  ngx_http_vibelock_redis_elements_t;
#else
typedef int  ngx_http_vibelock_redis_elements_t;
#endif


/* hiredis and those who are answered see the reply */

typedef struct {
    redisReply                          reply;
    ngx_http_vibelock_redis_objects_t  *objects;
} ngx_http_vibelock_redis_object_t;


static redisReply *ngx_http_vibelock_redis_object(const redisReadTask *task,
    int type, size_t more);
static void *ngx_http_vibelock_redis_object_text(const redisReadTask *task,
    char *text, size_t len);
static void *ngx_http_vibelock_redis_object_list(const redisReadTask *task,
    ngx_http_vibelock_redis_elements_t n);
static void *ngx_http_vibelock_redis_object_number(const redisReadTask *task,
    long long value);
static void *ngx_http_vibelock_redis_object_nil(const redisReadTask *task);
#if (HIREDIS_MAJOR >= 1)
static void *ngx_http_vibelock_redis_object_double(const redisReadTask *task,
    double value, char *text, size_t len);
static void *ngx_http_vibelock_redis_object_bool(const redisReadTask *task,
    int value);
#endif
static void ngx_http_vibelock_redis_object_free(void *reply);


static redisReplyObjectFunctions  ngx_http_vibelock_redis_object_functions = {
    ngx_http_vibelock_redis_object_text,
    ngx_http_vibelock_redis_object_list,
    ngx_http_vibelock_redis_object_number,
#if (HIREDIS_MAJOR >= 1)
    ngx_http_vibelock_redis_object_double,
#endif
    ngx_http_vibelock_redis_object_nil,
#if (HIREDIS_MAJOR >= 1)
    ngx_http_vibelock_redis_object_bool,
#endif
    ngx_http_vibelock_redis_object_free
};


void
ngx_http_vibelock_redis_objects_attach(
    ngx_http_vibelock_redis_objects_t *objects, redisReader *reader)
{
    reader->fn = &ngx_http_vibelock_redis_object_functions;
    reader->privdata = objects;

    /* the reader before may have had a part of a reply */

    ngx_http_vibelock_redis_objects_reset(objects);
}


void
ngx_http_vibelock_redis_objects_reset(
    ngx_http_vibelock_redis_objects_t *objects)
{
    objects->root = NULL;
    objects->size = 0;
    objects->large = 0;

    if (objects->pool == NULL) {
        return;
    }

    /* one block is enough for most, and is kept */

    if (objects->pool->d.next) {
        ngx_http_vibelock_redis_objects_free(objects);

    } else {
        ngx_reset_pool(objects->pool);
    }
}


void
ngx_http_vibelock_redis_objects_free(
    ngx_http_vibelock_redis_objects_t *objects)
{
    if (objects->pool) {
        ngx_destroy_pool(objects->pool);
        objects->pool = NULL;
    }
}


ngx_uint_t
ngx_http_vibelock_redis_objects_large(
    ngx_http_vibelock_redis_objects_t *objects, size_t more)
{
    return objects->large
           || more > NGX_HTTP_VIBELOCK_REDIS_OBJECTS_SIZE - objects->size;
}


/*
 * With room for "more" bytes behind it: a list makes room for as many elements
 * as are announced.
 */

static redisReply *
ngx_http_vibelock_redis_object(const redisReadTask *task, int type,
    size_t more)
{
    size_t                              size;
    redisReply                         *parent;
    ngx_http_vibelock_redis_object_t   *object;
    ngx_http_vibelock_redis_objects_t  *objects;

    objects = task->privdata;
    size = sizeof(ngx_http_vibelock_redis_object_t) + more;

    if (size > NGX_HTTP_VIBELOCK_REDIS_OBJECTS_SIZE - objects->size) {
        objects->large = 1;
        return NULL;
    }

    if (objects->pool == NULL) {
        objects->pool = ngx_create_pool(NGX_DEFAULT_POOL_SIZE, objects->log);

        if (objects->pool == NULL) {
            return NULL;
        }
    }

    object = ngx_palloc(objects->pool, size);
    if (object == NULL) {
        return NULL;
    }

    objects->size += size;

    ngx_memzero(object, sizeof(ngx_http_vibelock_redis_object_t));

    object->objects = objects;
    object->reply.type = type;

    if (task->parent) {
        parent = task->parent->obj;
        parent->element[task->idx] = &object->reply;

    } else {
        objects->root = &object->reply;
    }

    return &object->reply;
}


static void *
ngx_http_vibelock_redis_object_text(const redisReadTask *task, char *text,
    size_t len)
{
    u_char      *p;
    redisReply  *reply;

    if (task->type != REDIS_REPLY_STRING
        && task->type != REDIS_REPLY_STATUS
        && task->type != REDIS_REPLY_ERROR)
    {
        return NULL;
    }

    /* hiredis writes what an unexpected error says as a string of C */

    reply = ngx_http_vibelock_redis_object(task, task->type, len + 1);
    if (reply == NULL) {
        return NULL;
    }

    p = (u_char *) reply + sizeof(ngx_http_vibelock_redis_object_t);

    *ngx_cpymem(p, text, len) = '\0';

    reply->str = (char *) p;
    reply->len = len;

    return reply;
}


static void *
ngx_http_vibelock_redis_object_list(const redisReadTask *task,
    ngx_http_vibelock_redis_elements_t n)
{
    redisReply  *reply;

    if (task->type != REDIS_REPLY_ARRAY) {
        return NULL;
    }

    reply = ngx_http_vibelock_redis_object(task, task->type,
                                           n * sizeof(redisReply *));
    if (reply == NULL) {
        return NULL;
    }

    if (n == 0) {
        return reply;
    }

    reply->elements = n;
    reply->element = (redisReply **)
                         ((u_char *) reply
                          + sizeof(ngx_http_vibelock_redis_object_t));

    ngx_memzero(reply->element, n * sizeof(redisReply *));

    return reply;
}


static void *
ngx_http_vibelock_redis_object_number(const redisReadTask *task,
    long long value)
{
    redisReply  *reply;

    reply = ngx_http_vibelock_redis_object(task, REDIS_REPLY_INTEGER, 0);
    if (reply == NULL) {
        return NULL;
    }

    reply->integer = value;

    return reply;
}


static void *
ngx_http_vibelock_redis_object_nil(const redisReadTask *task)
{
    return ngx_http_vibelock_redis_object(task, REDIS_REPLY_NIL, 0);
}


#if (HIREDIS_MAJOR >= 1)

/* what only protocol 3 has, which was not asked for */

static void *
ngx_http_vibelock_redis_object_double(const redisReadTask *task, double value,
    char *text, size_t len)
{
    return NULL;
}


static void *
ngx_http_vibelock_redis_object_bool(const redisReadTask *task, int value)
{
    return NULL;
}

#endif


/*
 * Of a reply that hiredis gives up, as far as there is one.  Of what is too
 * large for it, who waits for the reply is told first.
 */

static void
ngx_http_vibelock_redis_object_free(void *reply)
{
    ngx_http_vibelock_redis_object_t  *object;

    object = reply;

    if (!object->objects->large) {
        ngx_http_vibelock_redis_objects_reset(object->objects);
    }
}
