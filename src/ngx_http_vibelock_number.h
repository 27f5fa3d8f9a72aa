
/*
 * Copyright (C) the vibelock authors
 *
 * Numbers in decimal: ngx_sprintf() would cost more than all the rest of an
 * answer's text.
 */


#ifndef _NGX_HTTP_VIBELOCK_NUMBER_H_INCLUDED_
#define _NGX_HTTP_VIBELOCK_NUMBER_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>


/*
 * Writes NGX_INT64_LEN bytes at the most; returns where they end.
 */

static ngx_inline u_char *
ngx_http_vibelock_number(u_char *p, uint64_t n)
{
    u_char  *first, *last, digits[NGX_INT64_LEN];

    last = digits + NGX_INT64_LEN;
    first = last;

    do {
        *--first = (u_char) ('0' + n % 10);
        n /= 10;
    } while (n);

    while (first < last) {
        *p++ = *first++;
    }

    return p;
}


#endif /* _NGX_HTTP_VIBELOCK_NUMBER_H_INCLUDED_ */
