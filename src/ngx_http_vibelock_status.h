
/*
 * Copyright (C) the vibelock authors
 *
 * The status: who holds what, for people, scripts and monitoring, at one
 * address.  Below it, DELETE .../locks/<zone>/<key> breaks a lock.
 */


#ifndef _NGX_HTTP_VIBELOCK_STATUS_H_INCLUDED_
#define _NGX_HTTP_VIBELOCK_STATUS_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_vibelock_form.h"
#include "ngx_http_vibelock_registry.h"
#include "ngx_http_vibelock_zone.h"


typedef struct {
    ngx_uint_t                      enabled;
    ngx_uint_t                      breakable;
    ngx_http_vibelock_form_e        form;         /* where nobody asks */
    ngx_uint_t                      log_level;
    ngx_http_vibelock_zones_t      *zones;
    ngx_http_vibelock_registry_t   *registry;     /* or NULL */
} ngx_http_vibelock_status_conf_t;


/*
 * "vibelock_status [json | prometheus | html] [break=on]": the result is that
 * of a ngx_command_t handler.
 */

char *ngx_http_vibelock_status_set(ngx_conf_t *cf,
    ngx_http_vibelock_status_conf_t *conf);

/*
 * A content handler, but for its configuration.
 */

ngx_int_t ngx_http_vibelock_status(ngx_http_request_t *r,
    ngx_http_vibelock_status_conf_t *conf);


#endif /* _NGX_HTTP_VIBELOCK_STATUS_H_INCLUDED_ */
