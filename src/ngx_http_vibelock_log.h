
/*
 * Copyright (C) the vibelock authors
 *
 * Log lines about a lock: one form for all, and nothing a stranger chose in
 * them but escaped.
 */


#ifndef _NGX_HTTP_VIBELOCK_LOG_H_INCLUDED_
#define _NGX_HTTP_VIBELOCK_LOG_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_http_vibelock_table.h"


/* as much of an owner's digest as tells two owners apart, bytes */
#define NGX_HTTP_VIBELOCK_LOG_OWNER  4


/*
 * Logs that something became of a lock, and why; of the lock it shows the
 * operation, the owner and the age.
 *
 *     vibelock: lock is stuck: the client left, zone "ops", key "…",
 *     operation "deploy", owner 6fb30d2a, age 1500 ms
 */

void ngx_http_vibelock_log_lock(ngx_uint_t level, ngx_log_t *log, char *what,
    char *why, ngx_str_t *zone, ngx_str_t *key,
    ngx_http_vibelock_lock_t *lock);

/*
 * 1 when a line was not logged in the last minute, by whichever process: then
 * it counts as logged now.  *logged is its moment, in shared memory; 0: never.
 */

ngx_uint_t ngx_http_vibelock_log_once(ngx_atomic_t *logged);


#endif /* _NGX_HTTP_VIBELOCK_LOG_H_INCLUDED_ */
