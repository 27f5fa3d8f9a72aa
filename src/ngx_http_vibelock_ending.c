
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


static char *ngx_http_vibelock_ending_reason(ngx_http_request_t *r,
    ngx_int_t rc);
static ngx_uint_t ngx_http_vibelock_ending_shutdown(ngx_http_request_t *r);
static ngx_uint_t ngx_http_vibelock_ending_header_only(ngx_http_request_t *r);
static ngx_uint_t ngx_http_vibelock_ending_partial(ngx_http_request_t *r);
static ngx_uint_t ngx_http_vibelock_ending_unmodified(ngx_http_request_t *r);
static ngx_uint_t ngx_http_vibelock_ending_cached(ngx_http_upstream_t *u);
static ngx_uint_t ngx_http_vibelock_ending_fastcgi(ngx_http_upstream_t *u);
static ngx_uint_t ngx_http_vibelock_ending_torn(ngx_http_upstream_t *u);


static char  ngx_http_vibelock_ending_not_passed[] =
    "nginx passed no answer on";


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

    return u && u->cleanup && !ngx_http_vibelock_ending_cached(u);
}


ngx_uint_t
ngx_http_vibelock_ending_bodiless(ngx_http_request_t *r)
{
    return ngx_http_vibelock_ending_header_only(r)
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

    /* a length of 0 that a filter set keeps nginx from reading nothing */

    if (!ngx_http_vibelock_ending_header_only(r)
        || ngx_http_vibelock_ending_unmodified(r))
    {
        return 0;
    }

    if (r->filter_finalize && r->method != NGX_HTTP_HEAD) {

        /* an error that a filter made, without a page: nobody asked for less */

        return 0;
    }

    /* nginx stops here on purpose, unless it reads on for its own use */

    return !u->buffering || !(u->cacheable || u->store);
}


ngx_uint_t
ngx_http_vibelock_ending_part(ngx_http_request_t *r)
{
    off_t                 length;
    ngx_http_upstream_t  *u;

    u = r->upstream;

    if (u == NULL
        || (u->cleanup == NULL && !ngx_http_vibelock_ending_cached(u))
        || u->headers_in.status_n != NGX_HTTP_PARTIAL_CONTENT)
    {
        /* what makes another answer longer adds to it with no subrequest */

        return 0;
    }

    length = u->headers_in.content_length_n;

    if (length == -1 || r->headers_out.content_length_n == -1) {

        /* a slice whose header was made that of the whole, by its status */

        return r->headers_out.status == NGX_HTTP_OK;
    }

    return r->headers_out.content_length_n > length;
}


off_t
ngx_http_vibelock_ending_length(ngx_http_request_t *r)
{
    if (r->upstream->upgrade || r->filter_finalize) {

        /*
         * Some servers give their 101 a Content-Length: 0.  An error that a
         * filter made has the length of its page.
         */

        return -1;
    }

    if (r->headers_out.content_length_n
        != r->upstream->headers_in.content_length_n)
    {
        /* a filter made another answer of it: Lua, njs */

        return -1;
    }

    return r->headers_out.content_length_n;
}


ngx_uint_t
ngx_http_vibelock_ending_body(ngx_http_request_t *r)
{
    ngx_uint_t            closed;
    ngx_event_t          *rev;
    ngx_event_pipe_t     *p;
    ngx_http_upstream_t  *u;

    u = r->upstream;

    rev = u->peer.connection ? u->peer.connection->read : NULL;
    closed = rev && rev->eof && !rev->error
             && !ngx_http_vibelock_ending_torn(u);

    if (u->upgrade) {

        /* the client's end says nothing of the other side's */

        return closed;
    }

    /* a FastCGI response has an end of its own, a close is not it */

    if (u->buffering) {
        p = u->pipe;

        if (p->upstream_error && !(rev && rev->error)) {

            /* the connection is fine: it was ended before its length */

            return 0;
        }

        return p->upstream_done
               || (p->upstream_eof
                   && p->length == -1
                   && !ngx_http_vibelock_ending_fastcgi(u)
                   && !ngx_http_vibelock_ending_torn(u));
    }

    return u->length == 0
           || (closed
               && u->length == -1
               && !ngx_http_vibelock_ending_fastcgi(u));
}


char *
ngx_http_vibelock_ending_finalize(ngx_http_request_t *r, ngx_int_t rc)
{
    ngx_http_upstream_t  *u;

    u = r->upstream;

    if (ngx_http_vibelock_ending_body(r)) {
        return NULL;
    }

    if (u->upgrade) {

        if (u->peer.connection
            && (u->peer.connection->read->error
                || ngx_http_vibelock_ending_torn(u)))
        {
            return "the upstream closed early";
        }

        return ngx_http_vibelock_ending_reason(r, rc);
    }

    if (rc == 0) {

        if (ngx_http_vibelock_ending_unmodified(r)) {
            return "nginx answered with a 304 of its own";
        }

        return ngx_http_vibelock_ending_fastcgi(u)
               || ngx_http_vibelock_ending_torn(u)
               ? "the upstream closed early" : NULL;
    }

    if (ngx_http_vibelock_ending_replaced(r, rc)
        || (r->filter_finalize && !u->header_sent))
    {
        /*
         * A filter made an error of the header: 412, 416.  The client asked
         * for that, and what the upstream does is not its to say.
         */

        return "nginx answered with an error of its own";
    }

    if (rc == NGX_ERROR
        && !r->connection->error
        && !r->connection->timedout)
    {
        /* an upstream that resets a stream, or sends what nginx refuses */

        return "the upstream closed early";
    }

    return ngx_http_vibelock_ending_reason(r, rc);
}


ngx_uint_t
ngx_http_vibelock_ending_replaced(ngx_http_request_t *r, ngx_int_t rc)
{
    return rc >= NGX_HTTP_SPECIAL_RESPONSE && !r->upstream->header_sent;
}


char *
ngx_http_vibelock_ending_dropped(ngx_http_request_t *r)
{
    ngx_http_upstream_t  *u;

    u = r->upstream;

    if (u == NULL || u->cleanup || ngx_http_vibelock_ending_cached(u)) {
        return NULL;
    }

    if (u->header_sent) {

        /*
         * As far as nginx knows.  A filter kept it, and made an answer of its
         * own when nothing more came: image_filter.
         */

        return ngx_http_vibelock_ending_partial(r)
               ? ngx_http_vibelock_ending_not_passed : NULL;
    }

    if (u->headers_in.status_n == 0
        || u->headers_in.status_n >= NGX_HTTP_SPECIAL_RESPONSE
        || u->headers_in.x_accel_redirect)
    {
        return NULL;
    }

    return ngx_http_vibelock_ending_not_passed;
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

        if (state[i].bytes_sent
            && state[i].header_time == (ngx_msec_t) -1)
        {
            return ngx_http_vibelock_ending_reason(r, state[i].status);
        }
    }

    return NULL;
}


char *
ngx_http_vibelock_ending_unsent(ngx_http_request_t *r, ngx_uint_t from)
{
    char                       *why;
    ngx_uint_t                  n;
    ngx_http_upstream_state_t  *state;

    why = ngx_http_vibelock_ending_unanswered(r, from);

    if (why) {
        return why;
    }

    n = ngx_http_vibelock_ending_tries(r);

    if (n <= from) {
        return NULL;
    }

    /* from those before the last one nginx has gone on */

    state = r->upstream_states->elts;

    if (state[n - 1].bytes_sent == 0) {
        return NULL;
    }

    if (r->connection->error
        && state[n - 1].status >= NGX_HTTP_SPECIAL_RESPONSE
        && !r->upstream->header_sent)
    {
        /*
         * nginx was to intercept it, or to try the next upstream, and does
         * neither for a client that is gone.  What it has sent, as far as it
         * knows, a filter keeps until the body is there: xslt, image_filter.
         */

        return NULL;
    }

    return r->filter_finalize ? "nginx answered with an error of its own"
                              : ngx_http_vibelock_ending_not_passed;
}


static char *
ngx_http_vibelock_ending_reason(ngx_http_request_t *r, ngx_int_t rc)
{
    switch (rc) {

    case NGX_HTTP_GATEWAY_TIME_OUT:
        return "the upstream timed out";

    case NGX_HTTP_BAD_GATEWAY:
        return "the upstream closed early";
    }

    return ngx_http_vibelock_ending_shutdown(r) ? "its worker was shut down"
                                                : "the client left";
}


static ngx_uint_t
ngx_http_vibelock_ending_shutdown(ngx_http_request_t *r)
{
#if (NGX_HTTP_V2)

    ngx_connection_t  *c;

    if (r->stream) {

        /*
         * A stream is not told, and the mark is gone from its connection.  What
         * the client does to that is seen there, or is done to the stream.
         */

        c = r->stream->connection->connection;

        return ngx_exiting
               && c->error
               && !c->timedout
               && !c->read->eof
               && !c->read->error
               && !c->write->error;
    }

#endif

    /* a QUIC connection that its client ends marks its streams the same way */

    return r->connection->close && !r->connection->read->error;
}


/*
 * 1 when nginx sends a header and nothing more, whatever its length says.
 */

static ngx_uint_t
ngx_http_vibelock_ending_header_only(ngx_http_request_t *r)
{
    return r->header_only
           || r->method == NGX_HTTP_HEAD
           || r->headers_out.status == NGX_HTTP_NO_CONTENT
           || r->headers_out.status == NGX_HTTP_NOT_MODIFIED;
}


/*
 * 1 when nginx has let go of an upstream that was not read in full.  Of a body
 * that ends with its connection, without buffering nothing tells that any more.
 */

static ngx_uint_t
ngx_http_vibelock_ending_partial(ngx_http_request_t *r)
{
    ngx_http_upstream_t  *u;

    u = r->upstream;

    if (!u->buffering
        && u->length == -1
        && !ngx_http_vibelock_ending_fastcgi(u))
    {
        return 0;
    }

    return !ngx_http_vibelock_ending_body(r);
}


/*
 * 1 when a condition of the client's, and not the upstream, made a 304.
 */

static ngx_uint_t
ngx_http_vibelock_ending_unmodified(ngx_http_request_t *r)
{
    return r->headers_out.status == NGX_HTTP_NOT_MODIFIED
           && r->upstream->headers_in.status_n != NGX_HTTP_NOT_MODIFIED;
}


/*
 * 1 when the answer is out of the cache.  r->cached is no help: it stays when
 * another upstream is asked afterwards.
 */

static ngx_uint_t
ngx_http_vibelock_ending_cached(ngx_http_upstream_t *u)
{
#if (NGX_HTTP_CACHE)

    switch (u->cache_status) {

    case NGX_HTTP_CACHE_STALE:
    case NGX_HTTP_CACHE_UPDATING:
    case NGX_HTTP_CACHE_REVALIDATED:
    case NGX_HTTP_CACHE_HIT:
        return 1;
    }

#endif

    return 0;
}


static ngx_uint_t
ngx_http_vibelock_ending_fastcgi(ngx_http_upstream_t *u)
{
    return u->schema.len == sizeof("fastcgi://") - 1
           && ngx_strncmp(u->schema.data, "fastcgi://",
                          sizeof("fastcgi://") - 1)
              == 0;
}


/*
 * 1 when a connection that is over was reset, though to nginx it was closed:
 * with TLS it takes the one for the other.  OpenSSL has seen an end only where
 * the other side has said so, or has closed.
 */

static ngx_uint_t
ngx_http_vibelock_ending_torn(ngx_http_upstream_t *u)
{
#if (NGX_HTTP_SSL && defined SSL_OP_IGNORE_UNEXPECTED_EOF)

    ngx_connection_t  *c;

    c = u->peer.connection;

    if (c && c->ssl && c->read->eof) {
        return !(SSL_get_shutdown(c->ssl->connection) & SSL_RECEIVED_SHUTDOWN);
    }

#endif

    return 0;
}
