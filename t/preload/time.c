
/*
 * Copyright (C) the vibelock authors
 *
 * Loaded before nginx: there is no memory for the first TIME of a process.
 */


#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>


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

    if (argc == 1 && strcmp(argv[0], "TIME") == 0 && !seen) {
        seen = 1;
        return -1;
    }

    return next(target, argc, argv, argvlen);
}
