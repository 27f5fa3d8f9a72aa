
/*
 * Copyright (C) the vibelock authors
 *
 * Workers are of one process group, their master's.  A stranger that has the
 * pid now is not, and who had the pid that is ours is gone.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_http_vibelock_worker.h"


ngx_uint_t
ngx_http_vibelock_worker_gone(ngx_pid_t pid)
{
    ngx_pid_t  pgid;

    if (pid == ngx_pid) {
        return 1;
    }

    pgid = getpgid(pid);

    /*
     * Where a sandbox forbids to ask, it does so for all, and nobody is known
     * to be gone; where only this one may not be asked for, it is a stranger.
     * Linux asks its security modules about any pid but 0.
     */

    if (pgid == -1 && ngx_errno != NGX_ESRCH && getpgid(ngx_pid) == -1) {
        return 0;
    }

    return pgid != getpgrp();
}
