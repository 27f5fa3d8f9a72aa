
/*
 * Copyright (C) the vibelock authors
 *
 * Replies: see the header.
 *
 * Refusals and releases are what a gateway answers most, so their texts are
 * whole before the first request comes, and only numbers are put in.  Nothing
 * needs escaping here: operations are made of letters, digits, "_" and "-",
 * and the message of a TTL was made ready when the configuration was read.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_vibelock_number.h"
#include "ngx_http_vibelock_reply.h"


/* the texts are JSON already: no quote, backslash or "%" goes into them */

#define ngx_http_vibelock_error_head(code, message)                           \
    "{\"success\":false,\"error\":{\"code\":\"" code "\","                    \
    "\"message\":\"" message "\""

#define ngx_http_vibelock_error_text(code, message)                           \
    ngx_string(ngx_http_vibelock_error_head(code, message) "}}")

#define ngx_http_vibelock_error_hint(code, message, hint)                     \
    ngx_string(ngx_http_vibelock_error_head(code, message)                    \
               ",\"hint\":\"" hint "\"}}")

#define ngx_http_vibelock_busy_head(message, hint)                            \
    ngx_string(ngx_http_vibelock_error_head("EXEC_BUSY", message)             \
               ",\"hint\":\"" hint "\",\"retryAfter\":")

#define ngx_http_vibelock_copy(p, text)                                       \
    ngx_cpymem(p, text, sizeof(text) - 1)


/* what goes with the answer, besides the headers that all of them have */

#define ngx_http_vibelock_no_header                                           \
    { ngx_null_string, ngx_null_string }

/* RFC 9110 wants a 401 to say how to authenticate, RFC 6750 a parameter */

#define ngx_http_vibelock_challenge                                           \
    { ngx_string("WWW-Authenticate"), ngx_string("Bearer realm=\"api\"") }


typedef struct {
    ngx_uint_t     status;
    ngx_str_t      text;
    ngx_keyval_t   header;
} ngx_http_vibelock_error_t;


static ngx_int_t ngx_http_vibelock_reply_send(ngx_http_request_t *r,
    ngx_uint_t status, ngx_keyval_t *header, ngx_buf_t *b);
static ngx_int_t ngx_http_vibelock_reply_text(ngx_http_request_t *r,
    ngx_uint_t status, ngx_keyval_t *header, ngx_str_t *text);
static ngx_buf_t *ngx_http_vibelock_reply_buf(ngx_http_request_t *r,
    size_t size);
static u_char *ngx_http_vibelock_reply_lock(u_char *p,
    ngx_http_vibelock_reply_lock_t *lock, ngx_uint_t state);
static u_char *ngx_http_vibelock_reply_after(u_char *p, time_t retry,
    ngx_keyval_t *header);
static ngx_int_t ngx_http_vibelock_reply_headers(ngx_http_request_t *r,
    ngx_http_vibelock_reply_content_t *content);
static ngx_table_elt_t *ngx_http_vibelock_reply_header(ngx_http_request_t *r,
    ngx_keyval_t *header);
static void ngx_http_vibelock_reply_expect(ngx_http_request_t *r);


static ngx_http_vibelock_error_t  ngx_http_vibelock_errors[] = {

    /* MISSING_API_KEY */
    { NGX_HTTP_UNAUTHORIZED,
      ngx_http_vibelock_error_hint("MISSING_API_KEY",
          "An API key is required",
          "Send the key as X-Api-Key: <key>, or as"
          " Authorization: Bearer <key>"),
      ngx_http_vibelock_challenge },

    /* INVALID_API_KEY */
    { NGX_HTTP_UNAUTHORIZED,
      ngx_http_vibelock_error_hint("INVALID_API_KEY",
          "The API key is not known",
          "Send one valid key: check that it is complete, and that it was"
          " not replaced or revoked"),
      ngx_http_vibelock_challenge },

    /* INVALID_APP_KEY */
    { NGX_HTTP_UNAUTHORIZED,
      ngx_http_vibelock_error_hint("INVALID_APP_KEY",
          "An application key needs a valid session of its user",
          "Send the key as X-Api-Key: <key>, and the session as"
          " Authorization: Bearer <session>"),
      ngx_http_vibelock_challenge },

    /* TOKEN_EXPIRED */
    { NGX_HTTP_UNAUTHORIZED,
      ngx_http_vibelock_error_hint("TOKEN_EXPIRED",
          "The session of the user has expired",
          "Let the user log in again, and send the new session as"
          " Authorization: Bearer <session>"),
      ngx_http_vibelock_challenge },

    /* NOT_FOUND: not a word more, for a stranger learns nothing */
    { NGX_HTTP_NOT_FOUND,
      ngx_http_vibelock_error_text("NOT_FOUND", "Server not found"),
      ngx_http_vibelock_no_header },

    /* BAD_KEY */
    { NGX_HTTP_BAD_REQUEST,
      ngx_http_vibelock_error_hint("VALIDATION_ERROR",
          "The server id must be UTF-8 of at most 255 bytes",
          "Check the server id in the address"),
      ngx_http_vibelock_no_header },

    /* BAD_BODY */
    { NGX_HTTP_BAD_REQUEST,
      ngx_http_vibelock_error_hint("VALIDATION_ERROR",
          "The request body must be a JSON object without duplicate members",
          "Send one JSON object, or an empty body for the default timeout"),
      ngx_http_vibelock_no_header },

    /* BAD_TIMEOUT */
    { NGX_HTTP_BAD_REQUEST,
      ngx_http_vibelock_error_hint("VALIDATION_ERROR",
          "%V",
          "Send a JSON number without quotes, or leave the field out for the"
          " default timeout"),
      ngx_http_vibelock_no_header },

    /* BODY_TOO_LARGE */
    { NGX_HTTP_BAD_REQUEST,
      ngx_http_vibelock_error_hint("VALIDATION_ERROR",
          "The request body of this operation must not be over 1 MB",
          "Send a shorter body, and large data in another way"),
      ngx_http_vibelock_no_header },

    /* NOT_ALLOWED_LOCK */
    { NGX_HTTP_NOT_ALLOWED,
      ngx_http_vibelock_error_hint("METHOD_NOT_ALLOWED",
          "The method must be DELETE, GET or HEAD",
          "DELETE releases the lock, GET and HEAD tell of it"),
      { ngx_string("Allow"), ngx_string("DELETE, GET, HEAD") } },

    /* NOT_ALLOWED_UNSTICK */
    { NGX_HTTP_NOT_ALLOWED,
      ngx_http_vibelock_error_hint("METHOD_NOT_ALLOWED",
          "The method must be POST",
          "POST resets the exec channel of the server and releases its lock"),
      { ngx_string("Allow"), ngx_string("POST") } },

    /* UNSTICK_UNSUPPORTED */
    { NGX_HTTP_CONFLICT,
      ngx_http_vibelock_error_hint("GALAXY_UNSTICK_UNSUPPORTED",
          "Only a server of kind STANDALONE can be unstuck",
          "The exec channel is shared with other servers: repeat the operation"
          " at the pace of Retry-After, and ask support if it stays busy"),
      ngx_http_vibelock_no_header },

    /* ZONE_FULL */
    { NGX_HTTP_SERVICE_UNAVAILABLE,
      ngx_http_vibelock_error_hint("LOCK_ZONE_FULL",
          "There is no memory for another lock; nothing was started",
          "Repeat the request after retryAfter seconds"),
      ngx_http_vibelock_no_header },

    /* NOT_ALLOWED_STATUS */
    { NGX_HTTP_NOT_ALLOWED,
      ngx_http_vibelock_error_hint("METHOD_NOT_ALLOWED",
          "The method must be GET or HEAD",
          "A lock is broken by DELETE .../locks/<zone>/<key>"),
      { ngx_string("Allow"), ngx_string("GET, HEAD") } },

    /* NOT_ALLOWED_BREAK */
    { NGX_HTTP_NOT_ALLOWED,
      ngx_http_vibelock_error_hint("METHOD_NOT_ALLOWED",
          "The method must be DELETE",
          "DELETE breaks the lock; the status itself lists the locks"),
      { ngx_string("Allow"), ngx_string("DELETE") } },

    /* BAD_ARGUMENT */
    { NGX_HTTP_BAD_REQUEST,
      ngx_http_vibelock_error_hint("VALIDATION_ERROR",
          "%V",
          "Arguments are format, zone, operation, state, key, limit and"
          " cursor, and token where a lock is broken, all of them optional"),
      ngx_http_vibelock_no_header },

    /* NO_STATUS */
    { NGX_HTTP_NOT_FOUND,
      ngx_http_vibelock_error_hint("NOT_FOUND",
          "There is no such zone or address",
          "The status itself lists the zones; a lock is"
          " .../locks/<zone>/<key> below it"),
      ngx_http_vibelock_no_header },

    /* BREAK_OFF */
    { NGX_HTTP_FORBIDDEN,
      ngx_http_vibelock_error_hint("FORBIDDEN",
          "Locks cannot be broken at this address",
          "The gateway's configuration allows it with"
          " vibelock_status break=on"),
      ngx_http_vibelock_no_header },

    /* BREAK_HEADER */
    { NGX_HTTP_FORBIDDEN,
      ngx_http_vibelock_error_hint("FORBIDDEN",
          "The header X-Vibelock-Break is missing",
          "Send X-Vibelock-Break: 1, which shows that the request comes from"
          " no other site"),
      ngx_http_vibelock_no_header }
};


static ngx_str_t  ngx_http_vibelock_busy_running =
    ngx_http_vibelock_busy_head("Another operation is running on this server",
        "Wait, and repeat the request after retryAfter seconds: the lock is"
        " released when the operation ends");

static ngx_str_t  ngx_http_vibelock_busy_stuck =
    ngx_http_vibelock_busy_head("An operation whose end was not seen holds the"
                                " lock of this server",
        "Wait, and repeat the request after retryAfter seconds; if nothing"
        " runs on the server any more, DELETE .../lock releases the lock");

static ngx_str_t  ngx_http_vibelock_absent =
    ngx_string("{\"success\":true,\"data\":{\"released\":false,"
               "\"localLock\":false,\"broadcast\":true,"
               "\"message\":\"No lock on this replica; a fleet-wide EXEC-lock"
               " release was broadcast to peers\"}}");

static ngx_str_t  ngx_http_vibelock_unlocked =
    ngx_string("{\"success\":true,\"data\":{\"locked\":false}}");

static ngx_str_t  ngx_http_vibelock_unstuck[] = {
    ngx_string("{\"success\":true,\"data\":{\"unstuck\":true,"
               "\"released\":false}}"),
    ngx_string("{\"success\":true,\"data\":{\"unstuck\":true,"
               "\"released\":true}}")
};


static ngx_str_t  ngx_http_vibelock_reply_json =
    ngx_string("application/json");

/*
 * Not the header that nginx keeps for "expires": a configuration that has it
 * for everything adds its own, and no-store is stronger.
 */

static ngx_keyval_t  ngx_http_vibelock_no_store =
    { ngx_string("Cache-Control"), ngx_string("no-store") };


ngx_int_t
ngx_http_vibelock_reply_error(ngx_http_request_t *r,
    ngx_http_vibelock_reply_e error, time_t retry, ngx_str_t *message)
{
    size_t                      size;
    ngx_buf_t                  *b;
    ngx_keyval_t               *header, after;
    ngx_http_vibelock_error_t  *e;

    e = &ngx_http_vibelock_errors[error];
    header = e->header.key.len ? &e->header : NULL;

    if (retry == 0 && message == NULL) {
        return ngx_http_vibelock_reply_text(r, e->status, header, &e->text);
    }

    size = e->text.len + (message ? message->len : 0)
           + sizeof(",\"retryAfter\":") - 1 + NGX_TIME_T_LEN;

    b = ngx_http_vibelock_reply_buf(r, size);
    if (b == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (message) {
        b->last = ngx_sprintf(b->last, (char *) e->text.data, message);

    } else {
        b->last = ngx_cpymem(b->last, e->text.data, e->text.len);
    }

    if (retry) {
        b->last -= sizeof("}}") - 1;
        b->last = ngx_http_vibelock_copy(b->last, ",\"retryAfter\":");
        b->last = ngx_http_vibelock_reply_after(b->last, retry, &after);
        b->last = ngx_http_vibelock_copy(b->last, "}}");

        header = &after;
    }

    return ngx_http_vibelock_reply_send(r, e->status, header, b);
}


ngx_int_t
ngx_http_vibelock_reply_busy(ngx_http_request_t *r,
    ngx_http_vibelock_reply_lock_t *holder, time_t retry)
{
    size_t         size;
    ngx_buf_t     *b;
    ngx_str_t     *head;
    ngx_keyval_t   after;

    head = holder->stuck ? &ngx_http_vibelock_busy_stuck
                         : &ngx_http_vibelock_busy_running;

    size = head->len + NGX_TIME_T_LEN
           + sizeof(",\"operation\":\"\",\"state\":\"running\",\"ageMs\":"
                    ",\"expiresInMs\":}}") - 1
           + holder->operation.len + 2 * NGX_INT_T_LEN;

    b = ngx_http_vibelock_reply_buf(r, size);
    if (b == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    b->last = ngx_cpymem(b->last, head->data, head->len);
    b->last = ngx_http_vibelock_reply_after(b->last, retry, &after);
    *b->last++ = ',';
    b->last = ngx_http_vibelock_reply_lock(b->last, holder, 1);

    return ngx_http_vibelock_reply_send(r, NGX_HTTP_CONFLICT, &after, b);
}


ngx_int_t
ngx_http_vibelock_reply_released(ngx_http_request_t *r,
    ngx_http_vibelock_reply_lock_t *lock)
{
    size_t      size;
    ngx_buf_t  *b;

    if (lock == NULL) {
        return ngx_http_vibelock_reply_text(r, NGX_HTTP_OK, NULL,
                                            &ngx_http_vibelock_absent);
    }

    size = sizeof("{\"success\":true,\"data\":{\"released\":true,"
                  "\"localLock\":true,\"broadcast\":true,"
                  "\"operation\":\"\",\"ageMs\":,\"expiresInMs\":}}") - 1
           + lock->operation.len + 2 * NGX_INT_T_LEN;

    b = ngx_http_vibelock_reply_buf(r, size);
    if (b == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    b->last = ngx_http_vibelock_copy(b->last,
                  "{\"success\":true,\"data\":{\"released\":true,"
                  "\"localLock\":true,\"broadcast\":true,");
    b->last = ngx_http_vibelock_reply_lock(b->last, lock, 0);

    return ngx_http_vibelock_reply_send(r, NGX_HTTP_OK, NULL, b);
}


ngx_int_t
ngx_http_vibelock_reply_state(ngx_http_request_t *r,
    ngx_http_vibelock_reply_lock_t *lock)
{
    size_t      size;
    ngx_buf_t  *b;

    if (lock == NULL) {
        return ngx_http_vibelock_reply_text(r, NGX_HTTP_OK, NULL,
                                            &ngx_http_vibelock_unlocked);
    }

    size = sizeof("{\"success\":true,\"data\":{\"locked\":true,"
                  "\"operation\":\"\",\"state\":\"running\",\"ageMs\":"
                  ",\"expiresInMs\":}}") - 1
           + lock->operation.len + 2 * NGX_INT_T_LEN;

    b = ngx_http_vibelock_reply_buf(r, size);
    if (b == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    b->last = ngx_http_vibelock_copy(b->last,
                  "{\"success\":true,\"data\":{\"locked\":true,");
    b->last = ngx_http_vibelock_reply_lock(b->last, lock, 1);

    return ngx_http_vibelock_reply_send(r, NGX_HTTP_OK, NULL, b);
}


ngx_int_t
ngx_http_vibelock_reply_unstuck(ngx_http_request_t *r, ngx_uint_t released)
{
    ngx_str_t  *text;

    text = &ngx_http_vibelock_unstuck[released ? 1 : 0];

    return ngx_http_vibelock_reply_text(r, NGX_HTTP_OK, NULL, text);
}


time_t
ngx_http_vibelock_reply_retry(ngx_msec_t most, ngx_msec_t rest)
{
    time_t      from, to;
    ngx_msec_t  bound;

    bound = (rest && rest < most) ? rest : most;

    if (bound < 1000) {
        bound = 1000;
    }

    /* from half the bound, rounded up, to the bound, rounded down */

    from = bound / 2000 + (bound % 2000 ? 1 : 0);
    to = bound / 1000;

    return from + ngx_random() % (to - from + 1);
}


/* the members that tell of a lock, and the end of the text */

static u_char *
ngx_http_vibelock_reply_lock(u_char *p, ngx_http_vibelock_reply_lock_t *lock,
    ngx_uint_t state)
{
    p = ngx_http_vibelock_copy(p, "\"operation\":\"");
    p = ngx_cpymem(p, lock->operation.data, lock->operation.len);

    if (state) {
        if (lock->stuck) {
            p = ngx_http_vibelock_copy(p, "\",\"state\":\"stuck");

        } else {
            p = ngx_http_vibelock_copy(p, "\",\"state\":\"running");
        }
    }

    p = ngx_http_vibelock_copy(p, "\",\"ageMs\":");
    p = ngx_http_vibelock_number(p, lock->age);

    p = ngx_http_vibelock_copy(p, ",\"expiresInMs\":");
    p = ngx_http_vibelock_number(p, lock->rest);

    return ngx_http_vibelock_copy(p, "}}");
}


/* the header shows the digits of the body */

static u_char *
ngx_http_vibelock_reply_after(u_char *p, time_t retry, ngx_keyval_t *header)
{
    ngx_str_set(&header->key, "Retry-After");

    header->value.data = p;
    p = ngx_http_vibelock_number(p, retry);
    header->value.len = p - header->value.data;

    return p;
}


/* a buffer to be filled: b->last is where it goes on */

static ngx_buf_t *
ngx_http_vibelock_reply_buf(ngx_http_request_t *r, size_t size)
{
    ngx_buf_t  *b;

    b = ngx_calloc_buf(r->pool);
    if (b == NULL) {
        return NULL;
    }

    b->pos = ngx_pnalloc(r->pool, size);
    if (b->pos == NULL) {
        return NULL;
    }

    b->last = b->pos;
    b->temporary = 1;

    return b;
}


static ngx_int_t
ngx_http_vibelock_reply_text(ngx_http_request_t *r, ngx_uint_t status,
    ngx_keyval_t *header, ngx_str_t *text)
{
    ngx_buf_t  *b;

    b = ngx_calloc_buf(r->pool);
    if (b == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    b->pos = text->data;
    b->last = text->data + text->len;
    b->memory = 1;

    return ngx_http_vibelock_reply_send(r, status, header, b);
}


static ngx_int_t
ngx_http_vibelock_reply_send(ngx_http_request_t *r, ngx_uint_t status,
    ngx_keyval_t *header, ngx_buf_t *b)
{
    ngx_chain_t                         out;
    ngx_http_vibelock_reply_content_t   content;

    out.buf = b;
    out.next = NULL;

    content.status = status;
    content.type = ngx_http_vibelock_reply_json;
    content.headers = header;
    content.nheaders = header ? 1 : 0;
    content.out = &out;

    return ngx_http_vibelock_reply_content(r, &content);
}


ngx_int_t
ngx_http_vibelock_reply_content(ngx_http_request_t *r,
    ngx_http_vibelock_reply_content_t *content)
{
    ngx_int_t     rc;
    ngx_uint_t    status;
    ngx_chain_t  *cl;

    status = content->status;

    if (status >= NGX_HTTP_BAD_REQUEST) {
        ngx_http_vibelock_reply_expect(r);

        /* an error is this one, whatever error_page came here for */
        r->err_status = 0;
    }

    /* a request body that cannot be discarded does not change the answer */

    if (ngx_http_discard_request_body(r) != NGX_OK) {
        r->keepalive = 0;
    }

    if (ngx_http_vibelock_reply_headers(r, content) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    r->headers_out.status = status;
    r->headers_out.status_line.len = 0;
    r->headers_out.content_length_n = 0;
    r->headers_out.content_type_len = content->type.len;
    r->headers_out.content_type = content->type;
    r->headers_out.content_type_lowcase = NULL;
    r->headers_out.charset.len = 0;

    /* what was done is done: no If-Match turns the answer into a 412 */
    r->disable_not_modified = 1;

    for (cl = content->out; cl; cl = cl->next) {
        r->headers_out.content_length_n += ngx_buf_size(cl->buf);

        cl->buf->last_buf = (cl->next == NULL && r == r->main) ? 1 : 0;
        cl->buf->last_in_chain = (cl->next == NULL) ? 1 : 0;
    }

    rc = ngx_http_send_header(r);

    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) {
        return rc;
    }

    return ngx_http_output_filter(r, content->out);
}


static ngx_int_t
ngx_http_vibelock_reply_headers(ngx_http_request_t *r,
    ngx_http_vibelock_reply_content_t *content)
{
    ngx_uint_t        i;
    ngx_table_elt_t  *h;

    if (ngx_http_vibelock_reply_header(r, &ngx_http_vibelock_no_store) == NULL)
    {
        return NGX_ERROR;
    }

    for (i = 0; i < content->nheaders; i++) {
        h = ngx_http_vibelock_reply_header(r, &content->headers[i]);

        if (h == NULL) {
            return NGX_ERROR;
        }

        if (content->status == NGX_HTTP_UNAUTHORIZED) {
            r->headers_out.www_authenticate = h;
        }
    }

    return NGX_OK;
}


static ngx_table_elt_t *
ngx_http_vibelock_reply_header(ngx_http_request_t *r, ngx_keyval_t *header)
{
    ngx_table_elt_t  *h;

    h = ngx_list_push(&r->headers_out.headers);
    if (h == NULL) {
        return NULL;
    }

    h->hash = 1;
    h->key = header->key;
    h->value = header->value;
    h->lowcase_key = NULL;
#if (nginx_version >= 1023000)
    h->next = NULL;
#endif

    return h;
}


/*
 * A client that waits for "100 Continue" is told of the error instead, and
 * keeps its megabytes.  Whether it then sends them or the next request cannot
 * be told apart, so the connection ends here.
 */

static void
ngx_http_vibelock_reply_expect(ngx_http_request_t *r)
{
    if (r != r->main
        || r->headers_in.expect == NULL
        || r->expect_tested
        || r->http_version != NGX_HTTP_VERSION_11
        || r->header_in->pos != r->header_in->last
        || (r->headers_in.content_length_n <= 0 && !r->headers_in.chunked))
    {
        return;
    }

    r->expect_tested = 1;
    r->keepalive = 0;
}
