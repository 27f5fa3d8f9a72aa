
/*
 * Copyright (C) the vibelock authors
 *
 * The clock of this moment: that of the event loop is as old as its turn, which
 * may take its time, for a slow disk or many handshakes.
 */


#ifndef _NGX_HTTP_VIBELOCK_CLOCK_H_INCLUDED_
#define _NGX_HTTP_VIBELOCK_CLOCK_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>


/*
 * now() sets ngx_current_msec to this moment, and returns what it was; back()
 * sets it to that again, before anything else is done: what the timers of this
 * turn wait for may have come, and has not been read yet.
 */

ngx_msec_t ngx_http_vibelock_clock_now(void);
void ngx_http_vibelock_clock_back(ngx_msec_t turn);


#endif /* _NGX_HTTP_VIBELOCK_CLOCK_H_INCLUDED_ */
