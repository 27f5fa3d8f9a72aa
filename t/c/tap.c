
/*
 * Copyright (C) the vibelock authors
 */


#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tap.h"


/* of a fact, the first things that went wrong are told, not all */
#define TAP_TOLD  5


static char  tap_name[256];
static int   tap_failed;
static char  tap_context[256];


void
fact(const char *name)
{
    fact_done();

    (void) snprintf(tap_name, sizeof(tap_name), "%s", name);
    tap_failed = 0;
    tap_context[0] = '\0';
}


void
fact_done(void)
{
    if (tap_name[0]) {
        printf("%sok - %s\n", tap_failed ? "not " : "", tap_name);
        fflush(stdout);
    }

    tap_name[0] = '\0';
}


int
fact_failed(void)
{
    return tap_failed;
}


int
check_at(int good, const char *what, const char *file, int line)
{
    const char  *base;

    if (!good && tap_failed++ < TAP_TOLD) {
        base = strrchr(file, '/');

        printf("# %s:%d: %s%s%s\n", base ? base + 1 : file, line, what,
               tap_context[0] ? ", " : "", tap_context);
        fflush(stdout);
    }

    return good;
}


int
check_text(const char *text, const char *file, int line)
{
    return check_at(text == NULL, text ? text : "", file, line);
}


void
context(const char *fmt, ...)
{
    va_list  args;

    va_start(args, fmt);
    (void) vsnprintf(tap_context, sizeof(tap_context), fmt, args);
    va_end(args);
}


void
skip(const char *name, const char *why)
{
    fact_done();

    printf("skip - %s - %s\n", name, why);
    fflush(stdout);
}


void
note(const char *fmt, ...)
{
    va_list  args;

    va_start(args, fmt);
    printf("# ");
    vprintf(fmt, args);
    printf("\n");
    va_end(args);
    fflush(stdout);
}
