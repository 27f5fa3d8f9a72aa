
/*
 * Copyright (C) the vibelock authors
 *
 * How an operation ended, by what nginx knows of its upstreams.
 *
 * The lock may go when no try sent a byte of the request, or when every try
 * that did was answered in full, or nginx itself stopped reading on purpose.
 * It is kept in every other case: nobody can know whether the operation ended.
 *
 * Where a function returns a text, it says why the lock has to stay; NULL: it
 * may go.
 */


#ifndef _NGX_HTTP_VIBELOCK_ENDING_H_INCLUDED_
#define _NGX_HTTP_VIBELOCK_ENDING_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>


/*
 * The tries that an upstream was given so far; what came before the lock was
 * taken is not the operation's.
 */

ngx_uint_t ngx_http_vibelock_ending_tries(ngx_http_request_t *r);

/*
 * 1 when the response that is on its way to the client is the upstream's own,
 * still being read, and not nginx's, a cache's or a file's.
 */

ngx_uint_t ngx_http_vibelock_ending_answering(ngx_http_request_t *r);

/*
 * 1 when the client has the whole answer with this header.
 */

ngx_uint_t ngx_http_vibelock_ending_bodiless(ngx_http_request_t *r);

/*
 * 1 when an upstream's response was read to its end: with its header, which is
 * about to be passed on; and later, while nginx still has the upstream.
 */

ngx_uint_t ngx_http_vibelock_ending_header(ngx_http_request_t *r);
ngx_uint_t ngx_http_vibelock_ending_body(ngx_http_request_t *r);

/*
 * 1 when the client was promised more than this response, the upstream's or the
 * cache's: it is the first slice, and the others come with subrequests.
 */

ngx_uint_t ngx_http_vibelock_ending_part(ngx_http_request_t *r);

/*
 * How many bytes of a body an upstream's answer has with this header; -1 when
 * that is not known, or says nothing of its end.
 */

off_t ngx_http_vibelock_ending_length(ngx_http_request_t *r);

/*
 * What it means when nginx lets go of the upstream that it was answering
 * from, with "rc".
 */

char *ngx_http_vibelock_ending_finalize(ngx_http_request_t *r, ngx_int_t rc);

/*
 * 1 when nginx lets go of it to answer with "rc", or what error_page has for
 * that: 416.
 */

ngx_uint_t ngx_http_vibelock_ending_replaced(ngx_http_request_t *r,
    ngx_int_t rc);

/*
 * Whether nginx let go of the upstream before it passed the header on, which is
 * no error's that may be intercepted, and hands on to nobody; or before it had
 * the body of a header that a filter kept.
 */

char *ngx_http_vibelock_ending_dropped(ngx_http_request_t *r);

/*
 * Whether one of the tries from number "from" on had part of the request and
 * gave no answer to it.
 */

char *ngx_http_vibelock_ending_unanswered(ngx_http_request_t *r,
    ngx_uint_t from);

/*
 * The same of a request that ended before its client had a header: where the
 * last of those tries had part of it, nobody looked at its answer's end.
 */

char *ngx_http_vibelock_ending_unsent(ngx_http_request_t *r, ngx_uint_t from);


#endif /* _NGX_HTTP_VIBELOCK_ENDING_H_INCLUDED_ */
