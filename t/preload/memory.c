
/*
 * Copyright (C) the vibelock authors
 *
 * Loaded before nginx: of the pieces of memory that are asked for, the one is
 * not there whose number stands, as an int, in the file that MEMORY names.  The
 * int is counted down to 0, and then there is memory again.
 */


#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>


static volatile int  *left;


/* nginx's workers have no environment */

__attribute__((constructor))
static void
begin(void)
{
    int    file;
    char  *name;
    void  *p;

    name = getenv("MEMORY");

    if (name == NULL) {
        return;
    }

    file = open(name, O_RDWR|O_CLOEXEC);

    p = mmap(NULL, sizeof(int), PROT_READ|PROT_WRITE, MAP_SHARED, file, 0);

    if (p != MAP_FAILED) {
        left = p;
    }

    (void) close(file);
}


static int
missing(void)
{
    return left && *left && --*left == 0;
}


void *
malloc(size_t size)
{
    static void *(*next)(size_t);

    if (next == NULL) {
        next = (void *(*)(size_t)) dlsym(RTLD_NEXT, "malloc");
    }

    if (missing()) {
        errno = ENOMEM;
        return NULL;
    }

    return next(size);
}


int
posix_memalign(void **p, size_t alignment, size_t size)
{
    static int  (*next)(void **, size_t, size_t);

    if (next == NULL) {
        next = (int (*)(void **, size_t, size_t))
                   dlsym(RTLD_NEXT, "posix_memalign");
    }

    return missing() ? ENOMEM : next(p, alignment, size);
}
