
/*
 * Copyright (C) the vibelock authors
 *
 * Loaded before Redis: its clock is as many seconds ahead as AHEAD says.
 */


#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>


/* the next one is not looked for: whoever allocates memory may ask the time */

int
gettimeofday(struct timeval *tv, void *tz)
{
    char             *ahead;
    struct timespec   ts;

    if (syscall(SYS_clock_gettime, CLOCK_REALTIME, &ts) == -1) {
        return -1;
    }

    ahead = getenv("AHEAD");

    tv->tv_sec = ts.tv_sec + (ahead ? atol(ahead) : 0);
    tv->tv_usec = ts.tv_nsec / 1000;

    return 0;
}
