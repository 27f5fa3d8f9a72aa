
/*
 * Copyright (C) the vibelock authors
 *
 * The mutex of a zone: the one that nginx keeps in its pool.
 */


#ifndef _NGX_HTTP_VIBELOCK_MUTEX_H_INCLUDED_
#define _NGX_HTTP_VIBELOCK_MUTEX_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>


/*
 * Takes it, whoever has it and dies.  ngx_shmtx_unlock() gives it back.
 */

void ngx_http_vibelock_mutex_lock(ngx_slab_pool_t *pool);


#endif /* _NGX_HTTP_VIBELOCK_MUTEX_H_INCLUDED_ */
