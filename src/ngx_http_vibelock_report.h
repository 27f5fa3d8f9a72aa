
/*
 * Copyright (C) the vibelock authors
 *
 * The report: what the status tells in numbers.  Counting the locks means to
 * look at each one, so this is done in small steps between which the worker
 * serves others, and the mutex is free.
 */


#ifndef _NGX_HTTP_VIBELOCK_REPORT_H_INCLUDED_
#define _NGX_HTTP_VIBELOCK_REPORT_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_vibelock_bus.h"
#include "ngx_http_vibelock_list.h"
#include "ngx_http_vibelock_zone.h"


/* locks of one state, or of one operation and state */

typedef struct {
    ngx_uint_t                           held;
    ngx_msec_t                           oldest;    /* age of it; ms */
} ngx_http_vibelock_report_count_t;


typedef struct {
    ngx_str_t                            name;
    ngx_http_vibelock_report_count_t     running;
    ngx_http_vibelock_report_count_t     stuck;
} ngx_http_vibelock_report_operation_t;


typedef struct {
    ngx_http_vibelock_zone_t            *zone;
    ngx_http_vibelock_usage_t            usage;
    ngx_http_vibelock_report_count_t     running;
    ngx_http_vibelock_report_count_t     stuck;
    ngx_array_t                          operations;
    ngx_uint_t                           bused;     /* there is a bus: */
    ngx_http_vibelock_bus_state_t        bus;
} ngx_http_vibelock_report_zone_t;


typedef struct ngx_http_vibelock_report_s  ngx_http_vibelock_report_t;

typedef ngx_int_t (*ngx_http_vibelock_report_pt)(ngx_http_request_t *r,
    ngx_http_vibelock_report_t *report);


struct ngx_http_vibelock_report_s {
    ngx_http_vibelock_list_t            *list;      /* or NULL */
    ngx_http_vibelock_report_pt          ready;
    void                                *data;      /* of whom asks */

    /* the result */
    ngx_http_vibelock_report_zone_t     *zones;
    ngx_uint_t                           nzones;

    /* while it is gathered */
    ngx_uint_t                           n;         /* the zone and cell */
    uint32_t                             cell;      /* to look at next */
    ngx_uint_t                           failed;    /* no memory */
    ngx_event_t                          event;
};


/*
 * Gathers the report on these zones, and hands it to report->ready(), which
 * sends the response and returns what a content handler returns; so does
 * this function.  A client that leaves meanwhile ends it.
 */

ngx_int_t ngx_http_vibelock_report(ngx_http_request_t *r,
    ngx_http_vibelock_report_t *report, ngx_http_vibelock_zones_t *zones);


#endif /* _NGX_HTTP_VIBELOCK_REPORT_H_INCLUDED_ */
