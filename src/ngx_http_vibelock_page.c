
/*
 * Copyright (C) the vibelock authors
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_vibelock_digest.h"
#include "ngx_http_vibelock_page.h"
#include "ngx_http_vibelock_reply.h"

/* ngx_http_vibelock_page_head, _style, _middle, _script, _tail */
#include "ngx_http_vibelock_page_text.h"


#define NGX_HTTP_VIBELOCK_PAGE_HASH                                           \
    ngx_base64_encoded_length(NGX_HTTP_VIBELOCK_DIGEST_LEN)


static ngx_int_t ngx_http_vibelock_page_policy(ngx_http_request_t *r,
    ngx_str_t *policy);
static ngx_int_t ngx_http_vibelock_page_hash(ngx_str_t *text, ngx_str_t *hash);


static ngx_str_t  *ngx_http_vibelock_page_parts[] = {
    &ngx_http_vibelock_page_head,
    &ngx_http_vibelock_page_style,
    &ngx_http_vibelock_page_middle,
    &ngx_http_vibelock_page_script,
    &ngx_http_vibelock_page_tail
};

#define NGX_HTTP_VIBELOCK_PAGE_PARTS                                          \
    (sizeof(ngx_http_vibelock_page_parts) / sizeof(ngx_str_t *))


ngx_int_t
ngx_http_vibelock_page(ngx_http_request_t *r)
{
    ngx_buf_t                          *b;
    ngx_uint_t                          i;
    ngx_chain_t                         out[NGX_HTTP_VIBELOCK_PAGE_PARTS];
    ngx_keyval_t                        headers[4];
    ngx_http_vibelock_reply_content_t   content;

    for (i = 0; i < NGX_HTTP_VIBELOCK_PAGE_PARTS; i++) {

        b = ngx_calloc_buf(r->pool);
        if (b == NULL) {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }

        b->pos = ngx_http_vibelock_page_parts[i]->data;
        b->last = b->pos + ngx_http_vibelock_page_parts[i]->len;
        b->memory = 1;

        out[i].buf = b;
        out[i].next = &out[i + 1];
    }

    out[NGX_HTTP_VIBELOCK_PAGE_PARTS - 1].next = NULL;

    ngx_str_set(&headers[0].key, "Content-Security-Policy");

    if (ngx_http_vibelock_page_policy(r, &headers[0].value) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ngx_str_set(&headers[1].key, "X-Content-Type-Options");
    ngx_str_set(&headers[1].value, "nosniff");

    ngx_str_set(&headers[2].key, "Referrer-Policy");
    ngx_str_set(&headers[2].value, "no-referrer");

    ngx_str_set(&headers[3].key, "Vary");
    ngx_str_set(&headers[3].value, "Accept");

    content.status = NGX_HTTP_OK;
    ngx_str_set(&content.type, "text/html; charset=utf-8");
    content.headers = headers;
    content.nheaders = 4;
    content.out = out;

    return ngx_http_vibelock_reply_content(r, &content);
}


/*
 * The browser runs this style and this script, asks this gateway, and does
 * nothing else.
 */

static ngx_int_t
ngx_http_vibelock_page_policy(ngx_http_request_t *r, ngx_str_t *policy)
{
    u_char     *p, style[NGX_HTTP_VIBELOCK_PAGE_HASH],
                script[NGX_HTTP_VIBELOCK_PAGE_HASH];
    size_t      size;
    ngx_str_t   style_hash, script_hash;

    style_hash.data = style;
    script_hash.data = script;

    if (ngx_http_vibelock_page_hash(&ngx_http_vibelock_page_style,
                                    &style_hash)
        != NGX_OK
        || ngx_http_vibelock_page_hash(&ngx_http_vibelock_page_script,
                                       &script_hash)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    size = sizeof("default-src 'none'; style-src 'sha256-'; "
                  "script-src 'sha256-'; connect-src 'self'; "
                  "base-uri 'none'; form-action 'none'; "
                  "frame-ancestors 'none'") - 1
           + style_hash.len + script_hash.len;

    policy->data = ngx_pnalloc(r->pool, size);
    if (policy->data == NULL) {
        return NGX_ERROR;
    }

    p = ngx_sprintf(policy->data,
                    "default-src 'none'; style-src 'sha256-%V'; "
                    "script-src 'sha256-%V'; connect-src 'self'; "
                    "base-uri 'none'; form-action 'none'; "
                    "frame-ancestors 'none'", &style_hash, &script_hash);

    policy->len = p - policy->data;

    return NGX_OK;
}


static ngx_int_t
ngx_http_vibelock_page_hash(ngx_str_t *text, ngx_str_t *hash)
{
    u_char     digest[NGX_HTTP_VIBELOCK_DIGEST_LEN];
    ngx_str_t  bytes;

    if (ngx_http_vibelock_digest(text, digest) != NGX_OK) {
        return NGX_ERROR;
    }

    bytes.data = digest;
    bytes.len = NGX_HTTP_VIBELOCK_DIGEST_LEN;

    ngx_encode_base64(hash, &bytes);

    return NGX_OK;
}
