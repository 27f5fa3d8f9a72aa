
/*
 * Copyright (C) the vibelock authors
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_http_vibelock_plain.h"


/* bytes that are looked at together, each by itself */

#define NGX_HTTP_VIBELOCK_PLAIN_BYTES  16

typedef signed char  ngx_http_vibelock_bytes_t
    __attribute__((vector_size(NGX_HTTP_VIBELOCK_PLAIN_BYTES)));


/* the first byte of eight with its bits set: of each, all are or none is */

#if (NGX_HAVE_LITTLE_ENDIAN)
#define ngx_http_vibelock_plain_first(eight)  (__builtin_ctzll(eight) / 8)
#else
#define ngx_http_vibelock_plain_first(eight)  (__builtin_clzll(eight) / 8)
#endif


size_t
ngx_http_vibelock_plain(u_char *text, size_t len)
{
    u_char                     ch, *p, *last;
    uint64_t                   stops[NGX_HTTP_VIBELOCK_PLAIN_BYTES / 8];
    ngx_http_vibelock_bytes_t  bytes;

    last = text + len;

    for (p = text;
         last - p >= NGX_HTTP_VIBELOCK_PLAIN_BYTES;
         p += NGX_HTTP_VIBELOCK_PLAIN_BYTES)
    {
        ngx_memcpy(&bytes, p, sizeof(bytes));

        /* signed: what is not ASCII is less than a space as well */

        bytes = (bytes < 0x20) | (bytes == '"') | (bytes == '\\');

        ngx_memcpy(stops, &bytes, sizeof(bytes));

        if (stops[0]) {
            return p - text + ngx_http_vibelock_plain_first(stops[0]);
        }

        if (stops[1]) {
            return p - text + 8 + ngx_http_vibelock_plain_first(stops[1]);
        }
    }

    for ( /* void */ ; p < last; p++) {
        ch = *p;

        if (ch < 0x20 || ch >= 0x80 || ch == '"' || ch == '\\') {
            break;
        }
    }

    return p - text;
}


/*
 * What is well-formed is table 3-7 of the Unicode standard.  ngx_utf8_decode()
 * takes more: surrogates, and any byte from 80 on for a continuation.
 */

u_char *
ngx_http_vibelock_plain_utf8(u_char *p, u_char *last)
{
    u_char  ch, least, most, *end;
    size_t  rest;

    ch = *p++;

    if (ch < 0xc2 || ch > 0xf4) {
        return NULL;
    }

    rest = (ch < 0xe0) ? 1 : (ch < 0xf0) ? 2 : 3;

    if ((size_t) (last - p) < rest) {
        return NULL;
    }

    end = p + rest;

    least = (ch == 0xe0) ? 0xa0 : (ch == 0xf0) ? 0x90 : 0x80;
    most = (ch == 0xed) ? 0x9f : (ch == 0xf4) ? 0x8f : 0xbf;

    for ( /* void */ ; p < end; p++) {
        if (*p < least || *p > most) {
            return NULL;
        }

        least = 0x80;
        most = 0xbf;
    }

    return p;
}
