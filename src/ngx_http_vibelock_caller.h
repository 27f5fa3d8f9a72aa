
/*
 * Copyright (C) the vibelock authors
 *
 * The caller: who asks, and whether the server is theirs.  The registry's
 * answer, or that of the platform in variables.
 */


#ifndef _NGX_HTTP_VIBELOCK_CALLER_H_INCLUDED_
#define _NGX_HTTP_VIBELOCK_CALLER_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_vibelock_registry.h"
#include "ngx_http_vibelock_table.h"


/* with an owner, the registry is not asked for anything */

typedef struct {
    ngx_http_vibelock_registry_t  *registry;   /* or NULL */
    ngx_http_complex_value_t      *owner;      /* vibelock_owner, or NULL */
    ngx_http_complex_value_t      *found;      /* vibelock_server_found */
    ngx_http_complex_value_t      *kind;       /* vibelock_server_kind */
} ngx_http_vibelock_caller_conf_t;


typedef enum {
    NGX_HTTP_VIBELOCK_CALLER_OK = 0,
    NGX_HTTP_VIBELOCK_CALLER_NO_KEY,           /* MISSING_API_KEY */
    NGX_HTTP_VIBELOCK_CALLER_BAD_KEY,          /* INVALID_API_KEY */
    NGX_HTTP_VIBELOCK_CALLER_BAD_APP,          /* INVALID_APP_KEY */
    NGX_HTTP_VIBELOCK_CALLER_EXPIRED,          /* TOKEN_EXPIRED */
    NGX_HTTP_VIBELOCK_CALLER_NOT_FOUND,        /* the server */
    NGX_HTTP_VIBELOCK_CALLER_ERROR             /* no memory */
} ngx_http_vibelock_caller_e;


/* copied out of the registry, and so good for as long as the request */

typedef struct {
    u_char                         owner[NGX_HTTP_VIBELOCK_OWNER_LEN];
    unsigned                       owned:1;       /* owner is set */
    unsigned                       standalone:1;  /* the server, as the
                                                     registry has it */
} ngx_http_vibelock_caller_t;


/*
 * Who calls: CALLER_OK and *caller, or what is wrong with the key, the session
 * or the owner.  With neither a registry nor an owner everybody is OK, and owns
 * nothing.
 */

ngx_http_vibelock_caller_e ngx_http_vibelock_caller(ngx_http_request_t *r,
    ngx_http_vibelock_caller_conf_t *conf, ngx_http_vibelock_caller_t *caller);

/*
 * Whether the server "key" is there and is this caller's; "lock" is the lock
 * that is held on it here, or NULL.  To operate on it, the server has to
 * exist; to break its lock, it may be deleted, or unknown where the lock
 * itself is this caller's.  A lock that was taken without an owner is
 * nobody's.  CALLER_OK, CALLER_NOT_FOUND or CALLER_ERROR.
 */

ngx_http_vibelock_caller_e ngx_http_vibelock_caller_may_operate(
    ngx_http_request_t *r, ngx_http_vibelock_caller_conf_t *conf,
    ngx_http_vibelock_caller_t *caller, ngx_str_t *key);
ngx_http_vibelock_caller_e ngx_http_vibelock_caller_may_break(
    ngx_http_request_t *r, ngx_http_vibelock_caller_conf_t *conf,
    ngx_http_vibelock_caller_t *caller, ngx_str_t *key,
    ngx_http_vibelock_lock_t *lock);

/*
 * 1 when the lock is this caller's own.  Pure: it may be asked with the zone's
 * mutex held.
 */

ngx_uint_t ngx_http_vibelock_caller_holds(ngx_http_vibelock_caller_t *caller,
    ngx_http_vibelock_lock_t *lock);

/*
 * 1 when the server stands alone: only such a one can be unstuck.  Of the
 * server that may_operate() or may_break() was asked about.
 */

ngx_uint_t ngx_http_vibelock_caller_standalone(ngx_http_request_t *r,
    ngx_http_vibelock_caller_conf_t *conf,
    ngx_http_vibelock_caller_t *caller);


#endif /* _NGX_HTTP_VIBELOCK_CALLER_H_INCLUDED_ */
