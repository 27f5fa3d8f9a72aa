
/*
 * Copyright (C) the vibelock authors
 *
 * nginx keeps one state for each try of an upstream: how many bytes were sent
 * and when the header of the response was there.  Whether the body was read
 * in full stands in the event pipe, or in the length that is left, and only
 * for as long as nginx reads: it has to be looked at in time.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_vibelock_ending.h"


static ngx_uint_t ngx_http_vibelock_ending_schema(ngx_http_upstream_t *u,
    ngx_str_t *schema);


static ngx_str_t  ngx_http_vibelock_ending_fastcgi = ngx_string("fastcgi://");


ngx_uint_t
ngx_http_vibelock_ending_tries(ngx_http_request_t *r)
{
    return r->upstream_states ? r->upstream_states->nelts : 0;
}


ngx_uint_t
ngx_http_vibelock_ending_answering(ngx_http_request_t *r)
{
    ngx_http_upstream_t  *u;

    u = r->upstream;

    /* u->cleanup is there until nginx lets go of the upstream */

    if (u == NULL || u->cleanup == NULL) {
        return 0;
    }

#if (NGX_HTTP_CACHE)
    if (r->cached) {
        return 0;
    }
#endif

    return 1;
}


ngx_uint_t
ngx_http_vibelock_ending_bodiless(ngx_http_request_t *r)
{
    return r->header_only
           || r->method == NGX_HTTP_HEAD
           || r->headers_out.status == NGX_HTTP_NO_CONTENT
           || r->headers_out.status == NGX_HTTP_NOT_MODIFIED
           || r->headers_out.content_length_n == 0;
}


ngx_uint_t
ngx_http_vibelock_ending_header(ngx_http_request_t *r)
{
    ngx_http_upstream_t  *u;

    u = r->upstream;

    if (u->upgrade) {
        return 0;
    }

    if (u->headers_in.content_length_n == 0
        || u->headers_in.status_n == NGX_HTTP_NO_CONTENT
        || u->headers_in.status_n == NGX_HTTP_NOT_MODIFIED)
    {
        return 1;
    }

    if (ngx_http_vibelock_ending_bodiless(r)) {

        /* nginx stops here on purpose, unless it reads on for its own use */

        return !u->cacheable && !u->store;
    }

    /*
     * The whole body came with the header: it counts although the client may
     * be gone and nginx never get to read it.
     */

    return u->headers_in.content_length_n > 0
           && u->buffer.last - u->buffer.pos >= u->headers_in.content_length_n
           && !ngx_http_vibelock_ending_schema(u,
                                           &ngx_http_vibelock_ending_fastcgi);
}


ngx_uint_t
ngx_http_vibelock_ending_body(ngx_http_request_t *r, off_t seen)
{
    ngx_event_pipe_t     *p;
    ngx_http_upstream_t  *u;

    u = r->upstream;

    if (u->upgrade) {
        return 0;
    }

    if (u->headers_in.content_length_n >= 0
        && seen >= u->headers_in.content_length_n)
    {
        return 1;
    }

    if (u->buffering) {
        p = u->pipe;

        return p->upstream_done
               || (p->upstream_eof && p->length == -1
                   && !ngx_http_vibelock_ending_schema(u,
                                           &ngx_http_vibelock_ending_fastcgi));
    }

    return u->length == 0
           || (u->length == -1
               && u->peer.connection
               && u->peer.connection->read->eof
               && !ngx_http_vibelock_ending_schema(u,
                                           &ngx_http_vibelock_ending_fastcgi));
}


char *
ngx_http_vibelock_ending_finalize(ngx_http_request_t *r, ngx_int_t rc)
{
    ngx_http_upstream_t  *u;

    u = r->upstream;

    if (u->upgrade && rc == 0) {

        /* the client's end says nothing of the other side's */

        if (r->connection->read->eof) {
            return "the client left";
        }

        return NULL;
    }

    if (rc == 0) {

        /* a FastCGI response has an end of its own, a close is not it */

        if (ngx_http_vibelock_ending_schema(u,
                                            &ngx_http_vibelock_ending_fastcgi)
            && !ngx_http_vibelock_ending_bodiless(r)
            && !(u->buffering ? u->pipe->upstream_done : u->length == 0))
        {
            return "the upstream closed early";
        }

        return NULL;
    }

    switch (rc) {

    case NGX_HTTP_GATEWAY_TIME_OUT:
        return "the upstream timed out";

    case NGX_HTTP_BAD_GATEWAY:
        return "the upstream closed early";

    default:
        return "the client left";
    }
}


char *
ngx_http_vibelock_ending_unanswered(ngx_http_request_t *r, ngx_uint_t from)
{
    ngx_uint_t                  i;
    ngx_http_upstream_state_t  *state;

    if (r->upstream_states == NULL) {
        return NULL;
    }

    state = r->upstream_states->elts;

    for (i = from; i < r->upstream_states->nelts; i++) {

        if (state[i].bytes_sent == 0
            || state[i].header_time != (ngx_msec_t) -1)
        {
            continue;
        }

        switch (state[i].status) {

        case NGX_HTTP_GATEWAY_TIME_OUT:
            return "the upstream timed out";

        case NGX_HTTP_BAD_GATEWAY:
            return "the upstream closed early";

        default:
            return "the client left";
        }
    }

    return NULL;
}


static ngx_uint_t
ngx_http_vibelock_ending_schema(ngx_http_upstream_t *u, ngx_str_t *schema)
{
    return u->schema.len == schema->len
           && ngx_strncmp(u->schema.data, schema->data, schema->len) == 0;
}
