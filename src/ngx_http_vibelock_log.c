
/*
 * Copyright (C) the vibelock authors
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_http_vibelock_log.h"


#define NGX_HTTP_VIBELOCK_LOG_MINUTE  60000      /* ms */


static u_char *ngx_http_vibelock_log_escape(u_char *dst, ngx_str_t *text);


void
ngx_http_vibelock_log_lock(ngx_uint_t level, ngx_log_t *log, char *what,
    char *why, ngx_str_t *zone, ngx_str_t *key,
    ngx_http_vibelock_lock_t *lock)
{
    u_char     text[4 * NGX_HTTP_VIBELOCK_KEY_MAX];
    u_char     hex[2 * NGX_HTTP_VIBELOCK_LOG_OWNER];
    ngx_str_t  safe, owner;

    safe.data = text;
    safe.len = ngx_http_vibelock_log_escape(text, key) - text;

    if (lock->owned) {
        owner.data = hex;
        owner.len = ngx_hex_dump(hex, lock->owner, NGX_HTTP_VIBELOCK_LOG_OWNER)
                    - hex;

    } else {
        ngx_str_set(&owner, "-");
    }

    ngx_log_error(level, log, 0,
                  "vibelock: lock %s: %s, zone \"%V\", key \"%V\", "
                  "operation \"%V\", owner %V, age %M ms",
                  what, why, zone, &safe, &lock->operation, &owner, lock->age);
}


ngx_uint_t
ngx_http_vibelock_log_once(ngx_atomic_t *logged)
{
    ngx_atomic_uint_t  last;

    last = *logged;

    /* another worker's clock may be ahead of ours */

    if (last && ngx_current_msec < last + NGX_HTTP_VIBELOCK_LOG_MINUTE) {
        return 0;
    }

    return ngx_atomic_cmp_set(logged, last, ngx_current_msec);
}


/*
 * Control characters, the quote and the backslash become \xHH: those of ASCII,
 * and those from U+0080 to U+009F, which a terminal may heed as well.
 */

static u_char *
ngx_http_vibelock_log_escape(u_char *dst, ngx_str_t *text)
{
    u_char  ch, before;
    size_t  i;

    before = 0;

    for (i = 0; i < text->len; before = text->data[i++]) {
        ch = text->data[i];

        if (ch < 0x20 || ch == 0x7f || ch == '"' || ch == '\\'
            || (before == 0xc2 && ch < 0xa0))
        {
            dst = ngx_sprintf(dst, "\\x%02Xd", (u_int) ch);

        } else {
            *dst++ = ch;
        }
    }

    return dst;
}
