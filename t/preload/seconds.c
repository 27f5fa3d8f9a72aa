
/*
 * Copyright (C) the vibelock authors
 *
 * Loaded before nginx: files are of whole seconds, as on file systems that
 * keep no more of their times.
 */


#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/stat.h>


/* what a module of nginx calls where off_t has 64 bits; the next is no other */

int
fstat64(int fd, struct stat64 *st)
{
    if (fstatat64(fd, "", st, AT_EMPTY_PATH) != 0) {
        return -1;
    }

    st->st_mtim.tv_nsec = 0;
    st->st_ctim.tv_nsec = 0;

    return 0;
}
