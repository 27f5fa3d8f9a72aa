
/*
 * Copyright (C) the vibelock authors
 *
 * The report as JSON.
 */


#ifndef _NGX_HTTP_VIBELOCK_JSON_H_INCLUDED_
#define _NGX_HTTP_VIBELOCK_JSON_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_vibelock_registry.h"
#include "ngx_http_vibelock_report.h"


/*
 * Writes the report into one buffer; NULL: no memory.  "breakable": locks can
 * be broken at this address.  "registry" is NULL where there is none.
 */

ngx_buf_t *ngx_http_vibelock_json(ngx_http_request_t *r,
    ngx_http_vibelock_report_t *report,
    ngx_http_vibelock_registry_t *registry, ngx_uint_t breakable);

/*
 * The same of what became of a lock that was to be broken; NULL: it was gone.
 */

ngx_buf_t *ngx_http_vibelock_json_broken(ngx_http_request_t *r,
    ngx_http_vibelock_lock_t *lock);


#endif /* _NGX_HTTP_VIBELOCK_JSON_H_INCLUDED_ */
