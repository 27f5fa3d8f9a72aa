
/*
 * Copyright (C) the vibelock authors
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_http_vibelock_redis_why.h"


/* in the order of ngx_http_vibelock_redis_e: for programs, and for people */

static struct {
    ngx_str_t                  word;
    ngx_str_t                  text;
} ngx_http_vibelock_redis_texts[] = {
    { ngx_string("works"), ngx_string("it works") },
    { ngx_string("idle"), ngx_string("nothing was tried yet") },
    { ngx_string("connecting"), ngx_string("it is being connected") },
    { ngx_string("failed"), ngx_string("the connection failed") },
    { ngx_string("unresolved"), ngx_string("its name cannot be resolved") },
    { ngx_string("timeout"), ngx_string("no reply came in time") },
    { ngx_string("closed"), ngx_string("Redis closed the connection") },
    { ngx_string("tls"), ngx_string("TLS failed") },
    { ngx_string("clock"),
      ngx_string("its clock cannot be read within 50 ms") },

    { ngx_string("unexpected"),
      ngx_string("an answer came that is none to what was asked") },

    { ngx_string("large"), ngx_string("an answer is over 16 MB") },
    { ngx_string("loading"), ngx_string("Redis is loading its data") },
    { ngx_string("readonly"), ngx_string("Redis is read-only") },
    { ngx_string("noauth"), ngx_string("Redis refused the login") },
    { ngx_string("noperm"), ngx_string("Redis does not permit a command") },
    { ngx_string("wrongtype"),
      ngx_string("the key of the stream holds something else") },

    { ngx_string("error"), ngx_string("Redis answered with an error") }
};


/* how the errors begin that tell something */

static struct {
    ngx_str_t                  prefix;
    ngx_http_vibelock_redis_e  why;
} ngx_http_vibelock_redis_errors[] = {
    { ngx_string("LOADING"), NGX_HTTP_VIBELOCK_REDIS_LOADING },
    { ngx_string("MASTERDOWN"), NGX_HTTP_VIBELOCK_REDIS_LOADING },
    { ngx_string("READONLY"), NGX_HTTP_VIBELOCK_REDIS_READONLY },
    { ngx_string("NOAUTH"), NGX_HTTP_VIBELOCK_REDIS_NOAUTH },
    { ngx_string("WRONGPASS"), NGX_HTTP_VIBELOCK_REDIS_NOAUTH },
    { ngx_string("ERR AUTH"), NGX_HTTP_VIBELOCK_REDIS_NOAUTH },
    { ngx_string("ERR invalid password"), NGX_HTTP_VIBELOCK_REDIS_NOAUTH },
    { ngx_string("NOPERM"), NGX_HTTP_VIBELOCK_REDIS_NOPERM },
    { ngx_string("WRONGTYPE"), NGX_HTTP_VIBELOCK_REDIS_WRONGTYPE },
    { ngx_string(""), NGX_HTTP_VIBELOCK_REDIS_ERROR }
};


/* how those begin that come before any command was looked at */

static ngx_str_t  ngx_http_vibelock_redis_doors[] = {
    ngx_string("ERR max number of clients"),
    ngx_string("DENIED Redis is running in protected mode"),
    ngx_null_string
};


ngx_http_vibelock_redis_e
ngx_http_vibelock_redis_why(u_char *error, size_t len)
{
    size_t      i;
    ngx_str_t  *prefix;

    for (i = 0; /* void */ ; i++) {
        prefix = &ngx_http_vibelock_redis_errors[i].prefix;

        if (len >= prefix->len
            && ngx_strncmp(error, prefix->data, prefix->len) == 0)
        {
            return ngx_http_vibelock_redis_errors[i].why;
        }
    }
}


ngx_uint_t
ngx_http_vibelock_redis_turned_away(u_char *error, size_t len)
{
    ngx_str_t  *prefix;

    for (prefix = ngx_http_vibelock_redis_doors; prefix->len; prefix++) {

        if (len >= prefix->len
            && ngx_strncmp(error, prefix->data, prefix->len) == 0)
        {
            return 1;
        }
    }

    return 0;
}


ngx_str_t *
ngx_http_vibelock_redis_word(ngx_http_vibelock_redis_e why)
{
    return &ngx_http_vibelock_redis_texts[why].word;
}


ngx_str_t *
ngx_http_vibelock_redis_text(ngx_http_vibelock_redis_e why)
{
    return &ngx_http_vibelock_redis_texts[why].text;
}
