
/*
 * Copyright (C) the vibelock authors
 *
 * Plain: how far a text can stand in a JSON string as it is.
 */


#ifndef _NGX_HTTP_VIBELOCK_PLAIN_H_INCLUDED_
#define _NGX_HTTP_VIBELOCK_PLAIN_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>


/*
 * How many of the text's first bytes are ASCII without control characters,
 * quotes and backslashes: "len" when all are.
 */

size_t ngx_http_vibelock_plain(u_char *text, size_t len);

/*
 * A character beyond ASCII, from its first byte on: where it ends, or NULL when
 * it is none of UTF-8.
 */

u_char *ngx_http_vibelock_plain_utf8(u_char *p, u_char *last);


#endif /* _NGX_HTTP_VIBELOCK_PLAIN_H_INCLUDED_ */
