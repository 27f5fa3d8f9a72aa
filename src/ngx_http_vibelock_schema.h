
/*
 * Copyright (C) the vibelock authors
 *
 * The schema: checks JSON objects against lists of their members, strictly,
 * and words what is wrong: the place, the value, and what would be right.
 *
 * It is for any thread: it logs nothing, and allocates nothing.
 */


#ifndef _NGX_HTTP_VIBELOCK_SCHEMA_H_INCLUDED_
#define _NGX_HTTP_VIBELOCK_SCHEMA_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include <jansson.h>


#define NGX_HTTP_VIBELOCK_SCHEMA_DEPTH  2


/* a member that an object may have; its value must be what "must" says */

typedef struct {
    char          *name;             /* NULL: the end of the list */
    json_type      type;             /* JSON_TRUE: or false; JSON_NULL: any */
    ngx_uint_t     optional;
    char          *must;
} ngx_http_vibelock_schema_member_t;


/* where one is in the lists of a document, "keys[1].sessions[2]" */

typedef struct {
    char          *list;
    ngx_uint_t     n;
} ngx_http_vibelock_schema_place_t;


typedef struct {
    ngx_http_vibelock_schema_place_t   places[NGX_HTTP_VIBELOCK_SCHEMA_DEPTH];
    ngx_uint_t                         depth;
    ngx_str_t                          error;
    u_char                             text[512];
} ngx_http_vibelock_schema_t;


/*
 * Finds the members of an object, in the order of "members"; what is absent
 * and may be comes as NULL.  NGX_OK; NGX_ERROR and schema->error.
 */

ngx_int_t ngx_http_vibelock_schema_object(ngx_http_vibelock_schema_t *schema,
    json_t *json, ngx_http_vibelock_schema_member_t *members,
    json_t **values);

/*
 * These make schema->error, and return NGX_ERROR.
 *
 * wrong(): the value (NULL: it is missing) is not what the member must be.  A
 * string is shown only where a string is expected: it may be a secret else.
 *
 * error(): the rest of a sentence that begins with the place, and with the
 * member's name if it is not NULL.
 */

ngx_int_t ngx_http_vibelock_schema_wrong(ngx_http_vibelock_schema_t *schema,
    ngx_http_vibelock_schema_member_t *member, json_t *value);
ngx_int_t ngx_http_vibelock_schema_error(ngx_http_vibelock_schema_t *schema,
    char *member, const char *fmt, ...);


#endif /* _NGX_HTTP_VIBELOCK_SCHEMA_H_INCLUDED_ */
