
/*
 * Copyright (C) the vibelock authors
 *
 * An entry of a release stream: one release, as JSON.
 *
 *     {"v":1,"key":"...","owner":"<64 hex digits>","at":<ms>,"from":"..."}
 *
 * What is read may be anybody's: members that are not known are ignored, and
 * "v" alone decides whether the rest is understood.
 */


#ifndef _NGX_HTTP_VIBELOCK_ENTRY_H_INCLUDED_
#define _NGX_HTTP_VIBELOCK_ENTRY_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>


#define NGX_HTTP_VIBELOCK_ENTRY_KEY    255     /* bytes, at most */
#define NGX_HTTP_VIBELOCK_ENTRY_FROM   255
#define NGX_HTTP_VIBELOCK_ENTRY_OWNER  32
#define NGX_HTTP_VIBELOCK_ENTRY_MAX    4096    /* the whole, as JSON */


typedef enum {
    NGX_HTTP_VIBELOCK_ENTRY_OK = 0,
    NGX_HTTP_VIBELOCK_ENTRY_MALFORMED,
    NGX_HTTP_VIBELOCK_ENTRY_VERSION,
    NGX_HTTP_VIBELOCK_ENTRY_TOO_LARGE
} ngx_http_vibelock_entry_e;


typedef struct {
    size_t      key_len;
    size_t      from_len;
    uint64_t    at;                            /* ms of the Redis clock */
    u_char      owner[NGX_HTTP_VIBELOCK_ENTRY_OWNER];
    u_char      key[NGX_HTTP_VIBELOCK_ENTRY_KEY];
    u_char      from[NGX_HTTP_VIBELOCK_ENTRY_FROM];
} ngx_http_vibelock_entry_t;


/*
 * Writes an entry to "buf", which has room for ENTRY_MAX bytes, and returns
 * its length; 0: there is no memory, or key or from is not UTF-8.
 */

size_t ngx_http_vibelock_entry_encode(ngx_http_vibelock_entry_t *entry,
    u_char *buf);

/*
 * Reads "len" bytes, whatever they are.  *entry is set when ENTRY_OK is
 * returned.
 */

ngx_http_vibelock_entry_e ngx_http_vibelock_entry_decode(
    ngx_http_vibelock_entry_t *entry, u_char *data, size_t len);


#endif /* _NGX_HTTP_VIBELOCK_ENTRY_H_INCLUDED_ */
