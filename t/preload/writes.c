
/*
 * Copyright (C) the vibelock authors
 *
 * Loaded before nginx: of each write that has an XADD in it, the file that
 * WRITES names gets a line with how many there are.
 */


#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>


static int  file = -1;


/* nginx's workers have no environment */

__attribute__((constructor))
static void
begin(void)
{
    char  *name;

    name = getenv("WRITES");

    if (name) {
        file = open(name, O_WRONLY|O_APPEND|O_CLOEXEC);
    }
}


static void
count(const char *buf, ssize_t len)
{
    int          n;
    const char  *p, *last;

    n = 0;
    last = buf + len;

    for (p = buf;
         len > 0 && (p = memmem(p, last - p, "\r\nXADD\r\n", 8)) != NULL;
         p += 8)
    {
        n++;
    }

    if (n) {
        dprintf(file, "%d\n", n);
    }
}


/* hiredis 0.14 writes with the one, later ones with the other */

ssize_t
write(int fd, const void *buf, size_t len)
{
    ssize_t          n;
    static ssize_t  (*next)(int, const void *, size_t);

    if (next == NULL) {
        next = (ssize_t (*)(int, const void *, size_t))
                   dlsym(RTLD_NEXT, "write");
    }

    n = next(fd, buf, len);
    count(buf, n);

    return n;
}


ssize_t
send(int fd, const void *buf, size_t len, int flags)
{
    ssize_t  n;

    n = sendto(fd, buf, len, flags, NULL, 0);
    count(buf, n);

    return n;
}
