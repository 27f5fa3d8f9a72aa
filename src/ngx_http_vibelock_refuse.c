
/*
 * Copyright (C) the vibelock authors
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_vibelock_refuse.h"
#include "ngx_http_vibelock_reply.h"


ngx_int_t
ngx_http_vibelock_refuse(ngx_http_request_t *r,
    ngx_http_vibelock_caller_e caller)
{
    ngx_http_vibelock_reply_e  error;

    switch (caller) {

    case NGX_HTTP_VIBELOCK_CALLER_NO_KEY:
        error = NGX_HTTP_VIBELOCK_REPLY_MISSING_API_KEY;
        break;

    case NGX_HTTP_VIBELOCK_CALLER_BAD_KEY:
        error = NGX_HTTP_VIBELOCK_REPLY_INVALID_API_KEY;
        break;

    case NGX_HTTP_VIBELOCK_CALLER_BAD_APP:
        error = NGX_HTTP_VIBELOCK_REPLY_INVALID_APP_KEY;
        break;

    case NGX_HTTP_VIBELOCK_CALLER_EXPIRED:
        error = NGX_HTTP_VIBELOCK_REPLY_TOKEN_EXPIRED;
        break;

    case NGX_HTTP_VIBELOCK_CALLER_NOT_FOUND:
        error = NGX_HTTP_VIBELOCK_REPLY_NOT_FOUND;
        break;

    default: /* NGX_HTTP_VIBELOCK_CALLER_ERROR */
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return ngx_http_vibelock_reply_error(r, error, 0, NULL);
}
