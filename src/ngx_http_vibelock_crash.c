
/*
 * Copyright (C) the vibelock authors
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_http_vibelock_crash.h"


#if (NGX_HTTP_VIBELOCK_CRASH)


/* steps to go, -1: not armed */

ngx_int_t  ngx_http_vibelock_crash_after = -1;


void
ngx_http_vibelock_crash_arm(void)
{
    int    n;
    char  *dir, path[NGX_MAX_PATH], mine[NGX_MAX_PATH];
    FILE  *file;

    dir = getenv("VIBELOCK_CRASH");

    if (dir == NULL || ngx_strlen(dir) > NGX_MAX_PATH - 32) {
        return;
    }

    (void) snprintf(path, sizeof(path), "%s/crash", dir);
    (void) snprintf(mine, sizeof(mine), "%s/crash.%d", dir, (int) ngx_pid);

    /* only one process gets the file */

    if (rename(path, mine) == -1) {
        return;
    }

    file = fopen(mine, "r");

    if (file == NULL) {
        return;
    }

    if (fscanf(file, "%d", &n) == 1) {
        ngx_http_vibelock_crash_after = n;
    }

    (void) fclose(file);
}


void
ngx_http_vibelock_crash_step(void)
{
    if (ngx_http_vibelock_crash_after == -1) {
        return;
    }

    if (ngx_http_vibelock_crash_after-- == 0) {
        (void) kill(getpid(), SIGKILL);
    }
}


#else


/* ISO C wants something in every file */

typedef int  ngx_http_vibelock_crash_t;


#endif
