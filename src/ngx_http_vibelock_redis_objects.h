
/*
 * Copyright (C) the vibelock authors
 *
 * Redis objects: what hiredis makes of a reply, in a pool of nginx's.
 *
 * One reply is there at a time, and is freed as a whole: hiredis's own
 * functions ask the system for each part of it, and give each part back.
 */


#ifndef _NGX_HTTP_VIBELOCK_REDIS_OBJECTS_H_INCLUDED_
#define _NGX_HTTP_VIBELOCK_REDIS_OBJECTS_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include <hiredis/hiredis.h>


/* zeroes, but for the log */

typedef struct {
    ngx_log_t   *log;
    ngx_pool_t  *pool;     /* NULL where there was no reply yet */
    redisReply  *root;     /* of what there is of this reply, or NULL */
    size_t       size;     /* of that */
    ngx_uint_t   large;    /* more would be too large */
} ngx_http_vibelock_redis_objects_t;


/*
 * The reader, which has read nothing yet, makes its replies there.  "objects"
 * has to stay as long as the reader does, and to be of no other reader that
 * may hold a reply, or a part of one, at the same time.
 *
 * A reply that there is no memory for, or that is no reply to a command of
 * protocol 2, or that is over 16 MB, is an error to the reader: REDIS_ERR_OOM.
 */

void ngx_http_vibelock_redis_objects_attach(
    ngx_http_vibelock_redis_objects_t *objects, redisReader *reader);

/*
 * 1 for a reply that is too large, by the "more" bytes that the reader has of
 * it or by what was made of it.  The part of it that there is stays until
 * reset(): elements of its lists may be NULL.
 */

ngx_uint_t ngx_http_vibelock_redis_objects_large(
    ngx_http_vibelock_redis_objects_t *objects, size_t more);

/*
 * Ends the reply that the reader has given, which is not freed in another way.
 */

void ngx_http_vibelock_redis_objects_reset(
    ngx_http_vibelock_redis_objects_t *objects);

/*
 * Gives the memory back, while no reader holds a reply.
 */

void ngx_http_vibelock_redis_objects_free(
    ngx_http_vibelock_redis_objects_t *objects);


#endif /* _NGX_HTTP_VIBELOCK_REDIS_OBJECTS_H_INCLUDED_ */
