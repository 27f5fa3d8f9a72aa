
/*
 * Copyright (C) the vibelock authors
 *
 * Workers of the same master, by their pids.
 */


#ifndef _NGX_HTTP_VIBELOCK_WORKER_H_INCLUDED_
#define _NGX_HTTP_VIBELOCK_WORKER_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>


/*
 * Whether the worker that had this pid is known to be gone, with up to three
 * system calls.  One that is dead and was not reaped yet is there still; and
 * whoever asks with its own pid asks for one that had it before.
 */

ngx_uint_t ngx_http_vibelock_worker_gone(ngx_pid_t pid);


#endif /* _NGX_HTTP_VIBELOCK_WORKER_H_INCLUDED_ */
