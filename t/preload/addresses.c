
/*
 * Copyright (C) the vibelock authors
 *
 * Loaded before nginx: the addresses of the name "several.test" are those that
 * ADDRESSES lists, in that order.
 */


#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>


typedef int  (*resolve)(const char *, const char *, const struct addrinfo *,
    struct addrinfo **);


/* glibc frees the pieces of a list one by one: they may be of several */

int
getaddrinfo(const char *node, const char *service,
    const struct addrinfo *hints, struct addrinfo **res)
{
    int               rc;
    char             *list, *addr, *rest;
    struct addrinfo  *one;
    static resolve    next;

    if (next == NULL) {
        next = (resolve) dlsym(RTLD_NEXT, "getaddrinfo");
    }

    if (node == NULL || strcmp(node, "several.test") != 0) {
        return next(node, service, hints, res);
    }

    *res = NULL;

    list = strdup(getenv("ADDRESSES"));

    for (addr = strtok_r(list, " ", &rest); addr;
         addr = strtok_r(NULL, " ", &rest))
    {
        rc = next(addr, service, hints, &one);

        if (rc != 0) {
            return rc;
        }

        *res = one;
        res = &one->ai_next;
    }

    free(list);

    return 0;
}
