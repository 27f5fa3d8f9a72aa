
/*
 * Copyright (C) the vibelock authors
 *
 * Loaded before nginx: there is no memory for one TIME of a process, that which
 * NOTIME numbers, or the first.
 */


#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>


static int  which = 1;


/* nginx gives its workers an environment of its own */

__attribute__((constructor))
static void
look(void)
{
    char  *n;

    n = getenv("NOTIME");

    if (n) {
        which = atoi(n);
    }
}


/* "int" in hiredis 0.14, "long long" in later ones, which has it as well */

long long
redisFormatCommandArgv(char **target, int argc, const char **argv,
    const size_t *argvlen)
{
    static int         seen;
    static long long  (*next)(char **, int, const char **, const size_t *);

    if (next == NULL) {
        next = (long long (*)(char **, int, const char **, const size_t *))
                   dlsym(RTLD_NEXT, "redisFormatCommandArgv");
    }

    if (argc == 1 && strcmp(argv[0], "TIME") == 0 && ++seen == which) {
        return -1;
    }

    return next(target, argc, argv, argvlen);
}
