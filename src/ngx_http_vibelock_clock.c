
/*
 * Copyright (C) the vibelock authors
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_http_vibelock_clock.h"


ngx_msec_t
ngx_http_vibelock_clock_now(void)
{
    ngx_msec_t  turn;

    turn = ngx_current_msec;

    ngx_time_update();

    return turn;
}


void
ngx_http_vibelock_clock_back(ngx_msec_t turn)
{
    ngx_current_msec = turn;
}
