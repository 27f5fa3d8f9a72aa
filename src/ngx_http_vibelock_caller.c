
/*
 * Copyright (C) the vibelock authors
 *
 * The caller: see the header.
 *
 * Keys and sessions are looked up by their SHA-256, and are neither kept nor
 * logged as they came.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_vibelock_caller.h"
#include "ngx_http_vibelock_digest.h"


#if (NGX_HTTP_VIBELOCK_OWNER_LEN != NGX_HTTP_VIBELOCK_DIGEST_LEN)
#error "the owner of a lock is a digest"
#endif


static ngx_http_vibelock_caller_e ngx_http_vibelock_caller_owner(
    ngx_http_request_t *r, ngx_http_vibelock_caller_conf_t *conf,
    ngx_http_vibelock_caller_t *caller);
static ngx_http_vibelock_caller_e ngx_http_vibelock_caller_key(
    ngx_http_request_t *r, ngx_http_vibelock_caller_conf_t *conf,
    ngx_http_vibelock_caller_t *caller);
static ngx_http_vibelock_caller_e ngx_http_vibelock_caller_session(
    ngx_http_vibelock_account_t *account, ngx_str_t *session);
static ngx_int_t ngx_http_vibelock_caller_api_key(ngx_http_request_t *r,
    ngx_str_t *key);
static void ngx_http_vibelock_caller_bearer(ngx_http_request_t *r,
    ngx_str_t *bearer);
static ngx_http_vibelock_server_t *ngx_http_vibelock_caller_server(
    ngx_http_vibelock_caller_conf_t *conf, ngx_http_vibelock_caller_t *caller,
    ngx_str_t *key);
static ngx_uint_t ngx_http_vibelock_caller_owns(
    ngx_http_vibelock_caller_t *caller, ngx_http_vibelock_server_t *server);
static ngx_http_vibelock_caller_e ngx_http_vibelock_caller_found(
    ngx_http_request_t *r, ngx_http_vibelock_caller_conf_t *conf);
static ngx_uint_t ngx_http_vibelock_caller_alone(ngx_str_t *kind);


ngx_http_vibelock_caller_e
ngx_http_vibelock_caller(ngx_http_request_t *r,
    ngx_http_vibelock_caller_conf_t *conf, ngx_http_vibelock_caller_t *caller)
{
    caller->owned = 0;
    caller->standalone = 0;

    if (conf->owner) {
        return ngx_http_vibelock_caller_owner(r, conf, caller);
    }

    if (conf->registry) {
        return ngx_http_vibelock_caller_key(r, conf, caller);
    }

    return NGX_HTTP_VIBELOCK_CALLER_OK;
}


static ngx_http_vibelock_caller_e
ngx_http_vibelock_caller_owner(ngx_http_request_t *r,
    ngx_http_vibelock_caller_conf_t *conf, ngx_http_vibelock_caller_t *caller)
{
    ngx_str_t  owner;

    if (ngx_http_complex_value(r, conf->owner, &owner) != NGX_OK) {
        return NGX_HTTP_VIBELOCK_CALLER_ERROR;
    }

    if (owner.len == 0) {
        return NGX_HTTP_VIBELOCK_CALLER_NO_KEY;
    }

    if (ngx_http_vibelock_digest(&owner, caller->owner) != NGX_OK) {
        return NGX_HTTP_VIBELOCK_CALLER_ERROR;
    }

    caller->owned = 1;

    return NGX_HTTP_VIBELOCK_CALLER_OK;
}


static ngx_http_vibelock_caller_e
ngx_http_vibelock_caller_key(ngx_http_request_t *r,
    ngx_http_vibelock_caller_conf_t *conf, ngx_http_vibelock_caller_t *caller)
{
    u_char                        digest[NGX_HTTP_VIBELOCK_DIGEST_LEN];
    ngx_str_t                    *shown, key, bearer;
    ngx_http_vibelock_caller_e    rc;
    ngx_http_vibelock_account_t  *account;

    if (ngx_http_vibelock_caller_api_key(r, &key) != NGX_OK) {
        return NGX_HTTP_VIBELOCK_CALLER_BAD_KEY;
    }

    ngx_http_vibelock_caller_bearer(r, &bearer);

    shown = key.len ? &key : &bearer;

    if (shown->len == 0) {
        return NGX_HTTP_VIBELOCK_CALLER_NO_KEY;
    }

    if (ngx_http_vibelock_digest(shown, digest) != NGX_OK) {
        return NGX_HTTP_VIBELOCK_CALLER_ERROR;
    }

    account = ngx_http_vibelock_registry_account(conf->registry, digest);

    if (account == NULL) {
        return NGX_HTTP_VIBELOCK_CALLER_BAD_KEY;
    }

    if (account->type == NGX_HTTP_VIBELOCK_KEY_APP) {

        if (shown == &bearer) {
            return NGX_HTTP_VIBELOCK_CALLER_BAD_APP;
        }

        rc = ngx_http_vibelock_caller_session(account, &bearer);

        if (rc != NGX_HTTP_VIBELOCK_CALLER_OK) {
            return rc;
        }
    }

    ngx_memcpy(caller->owner, account->owner, NGX_HTTP_VIBELOCK_OWNER_LEN);
    caller->owned = 1;

    return NGX_HTTP_VIBELOCK_CALLER_OK;
}


static ngx_http_vibelock_caller_e
ngx_http_vibelock_caller_session(ngx_http_vibelock_account_t *account,
    ngx_str_t *session)
{
    u_char  digest[NGX_HTTP_VIBELOCK_DIGEST_LEN];

    if (session->len == 0) {
        return NGX_HTTP_VIBELOCK_CALLER_BAD_APP;
    }

    if (account->sessions == NULL) {
        return NGX_HTTP_VIBELOCK_CALLER_OK;
    }

    if (ngx_http_vibelock_digest(session, digest) != NGX_OK) {
        return NGX_HTTP_VIBELOCK_CALLER_ERROR;
    }

    switch (ngx_http_vibelock_registry_session(account, digest, ngx_time())) {

    case NGX_HTTP_VIBELOCK_SESSION_GOOD:
        return NGX_HTTP_VIBELOCK_CALLER_OK;

    case NGX_HTTP_VIBELOCK_SESSION_OVER:
        return NGX_HTTP_VIBELOCK_CALLER_EXPIRED;

    default: /* NGX_HTTP_VIBELOCK_SESSION_UNKNOWN */
        return NGX_HTTP_VIBELOCK_CALLER_BAD_APP;
    }
}


/*
 * X-Api-Key, empty when it is not there.  NGX_DECLINED: there are two, and
 * they differ.
 */

static ngx_int_t
ngx_http_vibelock_caller_api_key(ngx_http_request_t *r, ngx_str_t *key)
{
    ngx_uint_t        i;
    ngx_list_part_t  *part;
    ngx_table_elt_t  *h;

    ngx_str_null(key);

    part = &r->headers_in.headers.part;
    h = part->elts;

    for (i = 0; /* void */ ; i++) {

        if (i >= part->nelts) {
            if (part->next == NULL) {
                break;
            }

            part = part->next;
            h = part->elts;
            i = 0;
        }

        if (h[i].key.len != sizeof("X-Api-Key") - 1
            || h[i].hash == 0
            || h[i].value.len == 0
            || ngx_memcmp(h[i].lowcase_key, "x-api-key", h[i].key.len) != 0)
        {
            continue;
        }

        if (key->len == 0) {
            *key = h[i].value;
            continue;
        }

        if (key->len != h[i].value.len
            || ngx_memcmp(key->data, h[i].value.data, key->len) != 0)
        {
            return NGX_DECLINED;
        }
    }

    return NGX_OK;
}


/*
 * What follows "Bearer" in Authorization, empty when it is not there.  nginx
 * answers two Authorization headers with 400.
 */

static void
ngx_http_vibelock_caller_bearer(ngx_http_request_t *r, ngx_str_t *bearer)
{
    u_char     *p, *last;
    ngx_str_t  *value;

    ngx_str_null(bearer);

    if (r->headers_in.authorization == NULL) {
        return;
    }

    value = &r->headers_in.authorization->value;

    /* any other scheme is somebody else's affair */

    if (value->len < sizeof("Bearer ") - 1
        || ngx_strncasecmp(value->data, (u_char *) "Bearer ",
                           sizeof("Bearer ") - 1)
           != 0)
    {
        return;
    }

    p = value->data + sizeof("Bearer ") - 1;
    last = value->data + value->len;

    while (p < last && *p == ' ') {
        p++;
    }

    bearer->data = p;
    bearer->len = last - p;
}


ngx_http_vibelock_caller_e
ngx_http_vibelock_caller_may_operate(ngx_http_request_t *r,
    ngx_http_vibelock_caller_conf_t *conf, ngx_http_vibelock_caller_t *caller,
    ngx_str_t *key)
{
    ngx_http_vibelock_server_t  *server;

    server = ngx_http_vibelock_caller_server(conf, caller, key);

    if (conf->found) {
        return ngx_http_vibelock_caller_found(r, conf);
    }

    if (conf->owner || conf->registry == NULL) {
        return NGX_HTTP_VIBELOCK_CALLER_OK;
    }

    if (server && !server->deleted
        && ngx_http_vibelock_caller_owns(caller, server))
    {
        return NGX_HTTP_VIBELOCK_CALLER_OK;
    }

    return NGX_HTTP_VIBELOCK_CALLER_NOT_FOUND;
}


ngx_http_vibelock_caller_e
ngx_http_vibelock_caller_may_break(ngx_http_request_t *r,
    ngx_http_vibelock_caller_conf_t *conf, ngx_http_vibelock_caller_t *caller,
    ngx_str_t *key, ngx_http_vibelock_lock_t *lock)
{
    ngx_http_vibelock_caller_e   rc;
    ngx_http_vibelock_server_t  *server;

    server = ngx_http_vibelock_caller_server(conf, caller, key);

    if (conf->found) {
        rc = ngx_http_vibelock_caller_found(r, conf);

        if (rc != NGX_HTTP_VIBELOCK_CALLER_NOT_FOUND) {
            return rc;
        }

    } else if (server) {
        if (ngx_http_vibelock_caller_owns(caller, server)) {
            return NGX_HTTP_VIBELOCK_CALLER_OK;
        }

    } else if (conf->owner && lock == NULL) {
        /* nothing tells of the server, and there is no lock to protect */
        return NGX_HTTP_VIBELOCK_CALLER_OK;
    }

    /* what the caller locked is theirs to unlock, whatever became of it */

    if (lock && ngx_http_vibelock_caller_holds(caller, lock)) {
        return NGX_HTTP_VIBELOCK_CALLER_OK;
    }

    return NGX_HTTP_VIBELOCK_CALLER_NOT_FOUND;
}


ngx_uint_t
ngx_http_vibelock_caller_holds(ngx_http_vibelock_caller_t *caller,
    ngx_http_vibelock_lock_t *lock)
{
    return caller->owned
           && lock->owned
           && ngx_memcmp(caller->owner, lock->owner,
                         NGX_HTTP_VIBELOCK_OWNER_LEN)
              == 0;
}


ngx_uint_t
ngx_http_vibelock_caller_standalone(ngx_http_request_t *r,
    ngx_http_vibelock_caller_conf_t *conf, ngx_http_vibelock_caller_t *caller)
{
    ngx_str_t  kind;

    if (conf->kind == NULL) {
        return caller->standalone;
    }

    if (ngx_http_complex_value(r, conf->kind, &kind) != NGX_OK) {
        return 0;
    }

    return ngx_http_vibelock_caller_alone(&kind);
}


/* the registry's server, NULL where the registry has no say */

static ngx_http_vibelock_server_t *
ngx_http_vibelock_caller_server(ngx_http_vibelock_caller_conf_t *conf,
    ngx_http_vibelock_caller_t *caller, ngx_str_t *key)
{
    ngx_http_vibelock_server_t  *server;

    if (conf->owner || conf->registry == NULL) {
        return NULL;
    }

    server = ngx_http_vibelock_registry_server(conf->registry, key);

    if (server) {
        caller->standalone = ngx_http_vibelock_caller_alone(&server->kind);
    }

    return server;
}


/*
 * Accounts are compared by value: the registry may have been read again since
 * the caller was looked up.
 */

static ngx_uint_t
ngx_http_vibelock_caller_owns(ngx_http_vibelock_caller_t *caller,
    ngx_http_vibelock_server_t *server)
{
    return ngx_memcmp(caller->owner, server->account->owner,
                      NGX_HTTP_VIBELOCK_OWNER_LEN)
           == 0;
}


/* "1" and nothing else says yes */

static ngx_http_vibelock_caller_e
ngx_http_vibelock_caller_found(ngx_http_request_t *r,
    ngx_http_vibelock_caller_conf_t *conf)
{
    ngx_str_t  found;

    if (ngx_http_complex_value(r, conf->found, &found) != NGX_OK) {
        return NGX_HTTP_VIBELOCK_CALLER_ERROR;
    }

    if (found.len == 1 && found.data[0] == '1') {
        return NGX_HTTP_VIBELOCK_CALLER_OK;
    }

    return NGX_HTTP_VIBELOCK_CALLER_NOT_FOUND;
}


static ngx_uint_t
ngx_http_vibelock_caller_alone(ngx_str_t *kind)
{
    return kind->len == sizeof("STANDALONE") - 1
           && ngx_memcmp(kind->data, "STANDALONE", kind->len) == 0;
}
