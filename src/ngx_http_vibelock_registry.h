
/*
 * Copyright (C) the vibelock authors
 *
 * The registry: a JSON file of keys and servers, and who owns what.
 *
 * It is read when the configuration is, and again when the file changes: in
 * a thread, and swapped in whole.  What a look-up returns belongs to the
 * registry and is good until the handler that asked returns to the event loop.
 *
 *     {"version":1,
 *      "keys":[{"id":"k1","type":"api","sha256":"<64 hex digits>"},
 *              {"id":"k2","type":"app","sha256":["...","..."],
 *               "sessions":[{"sha256":"...","expires":1790000000}]}],
 *      "servers":[{"id":"...","key":"k2","kind":"STANDALONE","deleted":true}]}
 *
 * "sessions" and "deleted" may be absent, and "expires", without which a
 * session is never over.  Everything else has to be there, and nothing more.
 *
 * Whoever changes the file writes a new one beside it and renames that over
 * it: what is read in the middle of a write is refused, and read again when it
 * has changed once more.  Workers have to be allowed to read it, not the master
 * alone.
 */


#ifndef _NGX_HTTP_VIBELOCK_REGISTRY_H_INCLUDED_
#define _NGX_HTTP_VIBELOCK_REGISTRY_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_http_vibelock_digest.h"


typedef struct ngx_http_vibelock_registry_s  ngx_http_vibelock_registry_t;


#define NGX_HTTP_VIBELOCK_KEY_API            0
#define NGX_HTTP_VIBELOCK_KEY_APP            1


typedef enum {
    NGX_HTTP_VIBELOCK_SESSION_GOOD = 0,
    NGX_HTTP_VIBELOCK_SESSION_UNKNOWN,
    NGX_HTTP_VIBELOCK_SESSION_OVER
} ngx_http_vibelock_session_e;


typedef struct ngx_http_vibelock_account_s  ngx_http_vibelock_account_t;

typedef struct {
    ngx_str_t                     id;
    ngx_str_t                     kind;
    ngx_http_vibelock_account_t  *account;     /* whose it is */
    unsigned                      deleted:1;
} ngx_http_vibelock_server_t;


struct ngx_http_vibelock_account_s {           /* a "key" of the file */
    ngx_str_t                     id;
    ngx_uint_t                    type;
    void                         *sessions;    /* NULL: any will do */

    /* the SHA-256 of the id */
    u_char                        owner[NGX_HTTP_VIBELOCK_DIGEST_LEN];
};


typedef struct {
    ngx_uint_t                    keys;
    ngx_uint_t                    servers;     /* deleted ones too */
    time_t                        read;        /* when it was last read well */
    ngx_uint_t                    failed;      /* readings, in all workers */
    ngx_uint_t                    failing;     /* the last one was such */
} ngx_http_vibelock_registry_state_t;


/*
 * Reads the file for the first time.  "check" is in ms; 0: it is not watched.
 * NULL: the configuration is wrong, and a message that names the member was
 * logged.
 */

ngx_http_vibelock_registry_t *ngx_http_vibelock_registry_create(
    ngx_conf_t *cf, ngx_str_t *file, ngx_msec_t check);

/*
 * Starts to watch the file, in a worker; stops when it exits.  A worker that
 * starts late begins with the file as it is then, not as the master read it.
 * "failed" counts the readings that failed, in shared memory; or is NULL.
 */

void ngx_http_vibelock_registry_start(ngx_http_vibelock_registry_t *reg,
    ngx_cycle_t *cycle, ngx_atomic_t *failed);
void ngx_http_vibelock_registry_stop(ngx_http_vibelock_registry_t *reg);

/*
 * The account of a key with this SHA-256 (32 bytes), NULL: nobody knows it.
 */

ngx_http_vibelock_account_t *ngx_http_vibelock_registry_account(
    ngx_http_vibelock_registry_t *reg, u_char *digest);

/*
 * What the file says of a session with this SHA-256 of this account, at the
 * time "now" (s); it is over from the second that "expires" names.  GOOD for
 * any where the account lists none.
 */

ngx_http_vibelock_session_e ngx_http_vibelock_registry_session(
    ngx_http_vibelock_account_t *account, u_char *digest, time_t now);

/*
 * The server of this id, NULL: not known.
 */

ngx_http_vibelock_server_t *ngx_http_vibelock_registry_server(
    ngx_http_vibelock_registry_t *reg, ngx_str_t *id);

/*
 * What this worker answers from, and how its readings went.
 */

void ngx_http_vibelock_registry_state(ngx_http_vibelock_registry_t *reg,
    ngx_http_vibelock_registry_state_t *state);


#endif /* _NGX_HTTP_VIBELOCK_REGISTRY_H_INCLUDED_ */
