
/*
 * Copyright (C) the vibelock authors
 *
 * Loaded before nginx: there is no memory for what the first XADD of a process
 * is appended to.
 */


#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

#include <hiredis/hiredis.h>


int
redisAppendFormattedCommand(redisContext *c, const char *cmd, size_t len)
{
    static int   seen;
    static int  (*next)(redisContext *, const char *, size_t);

    if (next == NULL) {
        next = (int (*)(redisContext *, const char *, size_t))
                   dlsym(RTLD_NEXT, "redisAppendFormattedCommand");
    }

    if (!seen && memmem(cmd, len, "XADD", sizeof("XADD") - 1)) {
        seen = 1;
        c->err = REDIS_ERR_OOM;
        return REDIS_ERR;
    }

    return next(c, cmd, len);
}
