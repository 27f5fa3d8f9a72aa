
/*
 * Copyright (C) the vibelock authors
 *
 * The report as Prometheus reads it: its text format, version 0.0.4.
 *
 * Labels have values that the configuration bounds: zones, operations, states
 * and reasons; no key is among them.
 */


#ifndef _NGX_HTTP_VIBELOCK_METRICS_H_INCLUDED_
#define _NGX_HTTP_VIBELOCK_METRICS_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_vibelock_registry.h"
#include "ngx_http_vibelock_report.h"


/*
 * Writes the report into a chain of buffers; NULL: no memory.  "registry" is
 * NULL where there is none.
 */

ngx_chain_t *ngx_http_vibelock_metrics(ngx_http_request_t *r,
    ngx_http_vibelock_report_t *report,
    ngx_http_vibelock_registry_t *registry);


#endif /* _NGX_HTTP_VIBELOCK_METRICS_H_INCLUDED_ */
