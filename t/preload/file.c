
/*
 * Copyright (C) the vibelock authors
 *
 * Loaded before nginx: right before the first read of the file that FILE names,
 * a line is added to it, or its second half is cut off, as DO says: "grow" or
 * "shrink".  It is the first one as long as there is a file of that name and
 * ".armed", which is removed.
 */


#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>


static char  file[256], armed[264];
static int   grows;


/* nginx's workers have no environment */

__attribute__((constructor))
static void
begin(void)
{
    char  *name;

    name = getenv("FILE");

    if (name == NULL || strlen(name) >= sizeof(file)) {
        return;
    }

    strcpy(file, name);
    strcpy(armed, name);
    strcat(armed, ".armed");

    grows = (strcmp(getenv("DO"), "grow") == 0);
}


static void
change(int fd)
{
    int          to;
    struct stat  is, named;

    if (file[0] == '\0'
        || stat(file, &named) == -1
        || fstat(fd, &is) == -1
        || is.st_ino != named.st_ino
        || is.st_dev != named.st_dev
        || unlink(armed) == -1)
    {
        return;
    }

    if (!grows) {
        (void) !truncate(file, is.st_size / 2);
        return;
    }

    to = open(file, O_WRONLY|O_APPEND|O_CLOEXEC);

    (void) !write(to, "more\n", 5);
    (void) close(to);
}


ssize_t
read(int fd, void *buf, size_t len)
{
    static ssize_t  (*next)(int, void *, size_t);

    if (next == NULL) {
        next = (ssize_t (*)(int, void *, size_t)) dlsym(RTLD_NEXT, "read");
    }

    change(fd);

    return next(fd, buf, len);
}
