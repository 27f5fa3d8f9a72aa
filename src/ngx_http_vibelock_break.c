
/*
 * Copyright (C) the vibelock authors
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_vibelock_break.h"
#include "ngx_http_vibelock_json.h"
#include "ngx_http_vibelock_release.h"
#include "ngx_http_vibelock_reply.h"


static ngx_int_t ngx_http_vibelock_break_refused(ngx_http_request_t *r);
static ngx_uint_t ngx_http_vibelock_break_asked(ngx_http_request_t *r);
static ngx_int_t ngx_http_vibelock_break_lock(ngx_http_request_t *r,
    ngx_http_vibelock_zones_t *zones, ngx_str_t *lock,
    ngx_http_vibelock_release_t *release);
static ngx_int_t ngx_http_vibelock_break_find(ngx_http_request_t *r,
    ngx_http_vibelock_release_t *release);
static ngx_int_t ngx_http_vibelock_break_unescape(ngx_http_request_t *r,
    ngx_str_t *escaped, ngx_str_t *text);
static ngx_int_t ngx_http_vibelock_break_answer(ngx_http_request_t *r,
    ngx_http_vibelock_lock_t *lock);


ngx_int_t
ngx_http_vibelock_break(ngx_http_request_t *r,
    ngx_http_vibelock_zones_t *zones, ngx_uint_t log_level, ngx_str_t *lock)
{
    ngx_int_t                    rc;
    ngx_str_t                    error;
    ngx_uint_t                   broken;
    ngx_http_vibelock_release_t  release;

    rc = ngx_http_vibelock_break_refused(r);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    ngx_memzero(&release, sizeof(ngx_http_vibelock_release_t));

    release.log_level = log_level;
    release.why = "at the status address";

    rc = ngx_http_vibelock_break_lock(r, zones, lock, &release);

    if (rc == NGX_OK) {
        rc = ngx_http_vibelock_break_find(r, &release);
    }

    switch (rc) {

    case NGX_OK:
        broken = ngx_http_vibelock_release(r, &release);

        return ngx_http_vibelock_break_answer(r,
                                              broken ? &release.lock : NULL);

    case NGX_DECLINED:
        return ngx_http_vibelock_reply_error(r,
                                             NGX_HTTP_VIBELOCK_REPLY_NO_STATUS,
                                             0, NULL);

    case NGX_ABORT:
        ngx_str_set(&error, "The argument token must be the token of a lock");
        return ngx_http_vibelock_reply_error(r,
                                          NGX_HTTP_VIBELOCK_REPLY_BAD_ARGUMENT,
                                          0, &error);

    default: /* NGX_ERROR */
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }
}


/* NGX_DECLINED: it is not refused */

static ngx_int_t
ngx_http_vibelock_break_refused(ngx_http_request_t *r)
{
    ngx_http_vibelock_reply_e  error;

    if (r->method != NGX_HTTP_DELETE) {
        error = NGX_HTTP_VIBELOCK_REPLY_NOT_ALLOWED_BREAK;

    } else if (!ngx_http_vibelock_break_asked(r)) {
        error = NGX_HTTP_VIBELOCK_REPLY_BREAK_HEADER;

    } else {
        return NGX_DECLINED;
    }

    return ngx_http_vibelock_reply_error(r, error, 0, NULL);
}


/*
 * A form of another site sends no header of its own, and a script there has to
 * ask first, which nobody answers.
 */

static ngx_uint_t
ngx_http_vibelock_break_asked(ngx_http_request_t *r)
{
    ngx_uint_t        i;
    ngx_list_part_t  *part;
    ngx_table_elt_t  *h;

    part = &r->headers_in.headers.part;
    h = part->elts;

    for (i = 0; /* void */ ; i++) {

        if (i >= part->nelts) {
            if (part->next == NULL) {
                return 0;
            }

            part = part->next;
            h = part->elts;
            i = 0;
        }

        if (h[i].key.len == sizeof("X-Vibelock-Break") - 1
            && ngx_strncasecmp(h[i].key.data, (u_char *) "X-Vibelock-Break",
                               h[i].key.len)
               == 0)
        {
            return h[i].value.len == 1 && h[i].value.data[0] == '1';
        }
    }
}


/* the zone and the key, into *release; NGX_DECLINED: there is no such zone */

static ngx_int_t
ngx_http_vibelock_break_lock(ngx_http_request_t *r,
    ngx_http_vibelock_zones_t *zones, ngx_str_t *lock,
    ngx_http_vibelock_release_t *release)
{
    u_char     *p, *last;
    ngx_str_t   zone, key, name;

    last = lock->data + lock->len;

    p = ngx_strlchr(lock->data, last, '/');
    if (p == NULL) {
        p = last;
    }

    zone.data = lock->data;
    zone.len = p - lock->data;

    key.data = ngx_min(p + 1, last);
    key.len = last - key.data;

    if (key.len == 0) {
        (void) ngx_http_arg(r, (u_char *) "key", 3, &key);
    }

    if (ngx_http_vibelock_break_unescape(r, &zone, &name) != NGX_OK
        || ngx_http_vibelock_break_unescape(r, &key, &release->key) != NGX_OK)
    {
        return NGX_ERROR;
    }

    release->zone = ngx_http_vibelock_zone_find(zones, &name);

    if (release->zone == NULL || release->key.len == 0) {
        return NGX_DECLINED;
    }

    return NGX_OK;
}


/*
 * The lock that is meant, into *release: as far as other replicas know, its
 * owner breaks it.  NGX_ABORT: the token is none.
 */

static ngx_int_t
ngx_http_vibelock_break_find(ngx_http_request_t *r,
    ngx_http_vibelock_release_t *release)
{
    off_t                      token;
    ngx_str_t                  value;
    ngx_http_vibelock_lock_t  *lock;

    token = 0;

    if (ngx_http_arg(r, (u_char *) "token", 5, &value) == NGX_OK) {
        token = ngx_atoof(value.data, value.len);

        /* 0, as of a variable that was never set, is no lock's */

        if (token == NGX_ERROR || token == 0) {
            return NGX_ABORT;
        }
    }

    lock = &release->lock;

    if (ngx_http_vibelock_table_find(release->zone->table, &release->key, lock)
        != NGX_OK
        || (token && lock->handle.token != (uint64_t) token))
    {
        lock->handle.token = 0;
        return NGX_OK;
    }

    release->caller.owned = lock->owned;
    ngx_memcpy(release->caller.owner, lock->owner,
               NGX_HTTP_VIBELOCK_OWNER_LEN);

    return NGX_OK;
}


static ngx_int_t
ngx_http_vibelock_break_unescape(ngx_http_request_t *r, ngx_str_t *escaped,
    ngx_str_t *text)
{
    u_char  *dst, *src;

    text->data = ngx_pnalloc(r->pool, escaped->len + 1);
    if (text->data == NULL) {
        return NGX_ERROR;
    }

    src = escaped->data;
    dst = text->data;

    ngx_unescape_uri(&dst, &src, escaped->len, 0);

    text->len = dst - text->data;

    return NGX_OK;
}


static ngx_int_t
ngx_http_vibelock_break_answer(ngx_http_request_t *r,
    ngx_http_vibelock_lock_t *lock)
{
    ngx_chain_t                         out;
    ngx_http_vibelock_reply_content_t   content;

    out.buf = ngx_http_vibelock_json_broken(r, lock);
    out.next = NULL;

    if (out.buf == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    content.status = NGX_HTTP_OK;
    ngx_str_set(&content.type, "application/json");
    content.headers = NULL;
    content.nheaders = 0;
    content.out = &out;

    return ngx_http_vibelock_reply_content(r, &content);
}
