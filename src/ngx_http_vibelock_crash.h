
/*
 * Copyright (C) the vibelock authors
 *
 * Crash: kills the process at a chosen step inside the zone's mutex, in a
 * build made for tests alone (-DNGX_HTTP_VIBELOCK_CRASH=1).  In every
 * other build a step is nothing.
 *
 * A file "crash" in the directory that the environment's VIBELOCK_CRASH names
 * holds a number of steps; the next process that takes the mutex takes the
 * file away and dies when it has gone that many steps further.
 */


#ifndef _NGX_HTTP_VIBELOCK_CRASH_H_INCLUDED_
#define _NGX_HTTP_VIBELOCK_CRASH_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>


#if (NGX_HTTP_VIBELOCK_CRASH)

extern ngx_int_t  ngx_http_vibelock_crash_after;

void ngx_http_vibelock_crash_arm(void);
void ngx_http_vibelock_crash_step(void);

#else

#define ngx_http_vibelock_crash_arm()
#define ngx_http_vibelock_crash_step()

#endif


#endif /* _NGX_HTTP_VIBELOCK_CRASH_H_INCLUDED_ */
