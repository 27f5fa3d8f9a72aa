
/*
 * Copyright (C) the vibelock authors
 *
 * The registry's file: reads it, checks it, and builds one block of memory
 * of it.
 *
 * This runs in a thread while the worker answers from an older block: all
 * that it works on is in a reading, and it logs nothing.
 */


#ifndef _NGX_HTTP_VIBELOCK_REGISTRY_FILE_H_INCLUDED_
#define _NGX_HTTP_VIBELOCK_REGISTRY_FILE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_http_vibelock_lookup.h"
#include "ngx_http_vibelock_registry.h"
#include "ngx_http_vibelock_schema.h"


/* what the look-ups hold: accounts and servers, and these */

typedef struct {
    ngx_str_t                           digest;    /* of the key */
    ngx_http_vibelock_account_t        *account;
} ngx_http_vibelock_registry_key_t;


typedef struct {
    ngx_str_t                           digest;    /* of the session */
    time_t                              expires;   /* 0: never */
} ngx_http_vibelock_registry_session_t;


/* all that a file said */

typedef struct {
    size_t                              size;      /* with all below */
    ngx_http_vibelock_seed_t            seed;
    ngx_http_vibelock_lookup_t          accounts;
    ngx_http_vibelock_lookup_t          keys;
    ngx_http_vibelock_lookup_t          servers;
    u_char                             *arrays;    /* free memory for them */
    u_char                             *texts;     /* and for ids, digests */
} ngx_http_vibelock_registry_file_t;


/* what tells a changed file from the same one */

typedef struct {
    uint64_t                            dev;
    uint64_t                            ino;
    uint64_t                            size;
    uint64_t                            mtime;
    uint64_t                            mtime_ns;
    uint64_t                            ctime;
    uint64_t                            ctime_ns;
} ngx_http_vibelock_registry_stamp_t;


typedef struct {
    ngx_str_t                           name;
    ngx_http_vibelock_seed_t            seed;
    ngx_uint_t                          threaded;  /* stop if nginx exits */

    /* the result */

    ngx_int_t                           rc;
    ngx_http_vibelock_registry_file_t  *file;
    ngx_http_vibelock_registry_stamp_t  stamp;
    time_t                              opened;
    ngx_err_t                           err;

    ngx_http_vibelock_schema_t          schema;    /* .error */

    /* while it reads */

    ngx_fd_t                            fd;
    off_t                               rest;
} ngx_http_vibelock_registry_reading_t;


/*
 * Reads reading->name.  reading->rc is then
 *
 * NGX_OK         it is in reading->file
 * NGX_ERROR      what it says is wrong: reading->schema.error
 * NGX_DECLINED   it cannot be had: reading->schema.error and err
 * NGX_ABORT      the worker wants to exit
 */

void ngx_http_vibelock_registry_file_read(
    ngx_http_vibelock_registry_reading_t *reading);

/*
 * 1 when what was read may have changed since without looking so: file systems
 * tell moments apart that lie two seconds from each other, and not all do more.
 */

ngx_uint_t ngx_http_vibelock_registry_file_young(
    ngx_http_vibelock_registry_reading_t *reading);

/*
 * Looks whether it is another file than it was: NGX_OK and reading->stamp, or
 * NGX_DECLINED as above.  What cannot be read does not look unchanged.
 */

void ngx_http_vibelock_registry_file_look(
    ngx_http_vibelock_registry_reading_t *reading);

/*
 * Gives the memory back, with all that look-ups in it returned.  "file" may be
 * NULL.
 */

void ngx_http_vibelock_registry_file_free(
    ngx_http_vibelock_registry_file_t *file);


#endif /* _NGX_HTTP_VIBELOCK_REGISTRY_FILE_H_INCLUDED_ */
