
/*
 * Copyright (C) the vibelock authors
 *
 * Who is a worker still: with a system that may refuse to tell.
 */


#include <sys/prctl.h>
#include <sys/wait.h>

#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_http_vibelock_worker.h"

#include "tap.h"


ngx_pid_t  ngx_pid;

static ngx_pid_t  stranger;         /* who may not be asked for */

static enum { NONE, PIDS, ALL }  forbidden;


/* as in libc, but for those; a security module is not asked about 0 */

pid_t
getpgid(pid_t pid)
{
    if (forbidden == ALL
        || (forbidden == PIDS && pid != 0)
        || (stranger && pid == stranger))
    {
        errno = EPERM;
        return -1;
    }

    return syscall(SYS_getpgid, pid);
}


static ngx_pid_t
process(void)
{
    ngx_pid_t  pid;

    pid = fork();

    if (pid == 0) {
        (void) prctl(PR_SET_PDEATHSIG, SIGKILL);

        for ( ;; ) {
            (void) pause();
        }
    }

    return pid;
}


int
main(void)
{
    ngx_pid_t  pid;

    ngx_pid = getpid();

    /* the one that this began in may have no number here, in a container */

    if (setpgid(0, 0) == -1) {
        abort();
    }

    fact("who runs is there");

    pid = process();
    check(!ngx_http_vibelock_worker_gone(pid));

    fact("so is everyone, where nobody may be asked for");

    forbidden = ALL;
    check(!ngx_http_vibelock_worker_gone(pid));

    forbidden = PIDS;
    check(!ngx_http_vibelock_worker_gone(pid));

    forbidden = NONE;

    fact("a stranger with that pid is not the worker, who may ask for it or not");

    stranger = pid;
    check(ngx_http_vibelock_worker_gone(pid));
    stranger = 0;

    check(setpgid(pid, pid) == 0);
    check(ngx_http_vibelock_worker_gone(pid));
    check(setpgid(pid, getpgrp()) == 0);

    fact("who is dead is there until it is reaped");

    (void) kill(pid, SIGKILL);
    check(waitid(P_PID, pid, NULL, WEXITED|WNOWAIT) == 0);
    check(!ngx_http_vibelock_worker_gone(pid));

    (void) waitpid(pid, NULL, 0);
    check(ngx_http_vibelock_worker_gone(pid));

    fact("who had the pid that is ours is gone");

    check(ngx_http_vibelock_worker_gone(ngx_pid));

    fact_done();

    printf("done\n");

    return 0;
}
