
/*
 * Copyright (C) the vibelock authors
 *
 * Any bytes as an entry of a release stream.  What is read as an entry has to
 * be the same after it was written and read again.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_http_vibelock_entry.h"


int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);


/* what is wanted of nginx */

volatile ngx_time_t   *ngx_cached_time;
ngx_pid_t              ngx_pid;


u_char *
ngx_hex_dump(u_char *dst, u_char *src, size_t len)
{
    static u_char  hex[] = "0123456789abcdef";

    while (len--) {
        *dst++ = hex[*src >> 4];
        *dst++ = hex[*src++ & 0xf];
    }

    return dst;
}


/* the one format that an entry needs: %uL */

u_char * ngx_cdecl
ngx_sprintf(u_char *buf, const char *fmt, ...)
{
    int       n;
    va_list   args;

    va_start(args, fmt);
    n = sprintf((char *) buf, "%llu",
                (unsigned long long) va_arg(args, uint64_t));
    va_end(args);

    return buf + n;
}


static void
again(ngx_http_vibelock_entry_t *entry)
{
    u_char                     json[NGX_HTTP_VIBELOCK_ENTRY_MAX];
    size_t                     len;
    ngx_http_vibelock_entry_t  copy;

    len = ngx_http_vibelock_entry_encode(entry, json);

    if (len == 0
        || ngx_http_vibelock_entry_decode(&copy, json, len)
           != NGX_HTTP_VIBELOCK_ENTRY_OK
        || copy.at != entry->at
        || copy.key_len != entry->key_len
        || copy.from_len != entry->from_len
        || memcmp(copy.key, entry->key, copy.key_len) != 0
        || memcmp(copy.from, entry->from, copy.from_len) != 0
        || memcmp(copy.owner, entry->owner, sizeof(copy.owner)) != 0)
    {
        abort();
    }
}


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    ngx_http_vibelock_entry_e  rc;
    ngx_http_vibelock_entry_t  entry;

    rc = ngx_http_vibelock_entry_decode(&entry, (u_char *) data, len);

    if ((len > NGX_HTTP_VIBELOCK_ENTRY_MAX)
        != (rc == NGX_HTTP_VIBELOCK_ENTRY_TOO_LARGE))
    {
        abort();
    }

    if (rc == NGX_HTTP_VIBELOCK_ENTRY_OK) {

        if (entry.key_len == 0 || entry.key_len > NGX_HTTP_VIBELOCK_ENTRY_KEY
            || entry.from_len == 0
            || entry.from_len > NGX_HTTP_VIBELOCK_ENTRY_FROM)
        {
            abort();
        }

        again(&entry);
    }

    return 0;
}
