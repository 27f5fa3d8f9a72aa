
/*
 * Copyright (C) the vibelock authors
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_vibelock_report.h"


/* small steps of a walk before the worker looks at its events again */
#define NGX_HTTP_VIBELOCK_REPORT_STEPS  32

/* far more than any walk takes, ms */
#define NGX_HTTP_VIBELOCK_REPORT_TIMER  60000


static ngx_int_t ngx_http_vibelock_report_zones(ngx_http_request_t *r,
    ngx_http_vibelock_report_t *report, ngx_http_vibelock_zones_t *zones);
static ngx_http_vibelock_report_operation_t *
    ngx_http_vibelock_report_operation(ngx_http_vibelock_report_zone_t *zone,
    ngx_str_t *name);
static ngx_int_t ngx_http_vibelock_report_step(
    ngx_http_vibelock_report_t *report);
static void ngx_http_vibelock_report_visit(ngx_http_vibelock_lock_t *lock,
    ngx_str_t *key, void *data);
static void ngx_http_vibelock_report_count(
    ngx_http_vibelock_report_count_t *count, ngx_http_vibelock_lock_t *lock);
static ngx_int_t ngx_http_vibelock_report_wait(ngx_http_request_t *r,
    ngx_http_vibelock_report_t *report);
static void ngx_http_vibelock_report_event(ngx_event_t *ev);
static void ngx_http_vibelock_report_later(ngx_event_t *ev);
static ngx_int_t ngx_http_vibelock_report_done(ngx_http_request_t *r,
    ngx_http_vibelock_report_t *report);
static void ngx_http_vibelock_report_cleanup(void *data);


ngx_int_t
ngx_http_vibelock_report(ngx_http_request_t *r,
    ngx_http_vibelock_report_t *report, ngx_http_vibelock_zones_t *zones)
{
    if (ngx_http_vibelock_report_zones(r, report, zones) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    report->n = 0;
    report->cell = 0;
    report->failed = 0;

    if (ngx_http_vibelock_report_step(report) == NGX_AGAIN) {
        return ngx_http_vibelock_report_wait(r, report);
    }

    return ngx_http_vibelock_report_done(r, report);
}


/*
 * The zones, with all operations of the configuration: a metric is there
 * before the first lock is.
 */

static ngx_int_t
ngx_http_vibelock_report_zones(ngx_http_request_t *r,
    ngx_http_vibelock_report_t *report, ngx_http_vibelock_zones_t *zones)
{
    ngx_uint_t                         i, j;
    ngx_http_vibelock_zone_t         **zone;
    ngx_http_vibelock_operation_t    **op;
    ngx_http_vibelock_report_zone_t   *z;

    report->nzones = zones->list.nelts;
    report->zones = ngx_pcalloc(r->pool, zones->list.nelts
                                    * sizeof(ngx_http_vibelock_report_zone_t));
    if (report->zones == NULL) {
        return NGX_ERROR;
    }

    zone = zones->list.elts;

    for (i = 0; i < zones->list.nelts; i++) {
        z = &report->zones[i];
        z->zone = zone[i];

        if (ngx_array_init(&z->operations, r->pool, 8,
                           sizeof(ngx_http_vibelock_report_operation_t))
            != NGX_OK)
        {
            return NGX_ERROR;
        }

        op = zone[i]->operations.elts;

        for (j = 0; j < zone[i]->operations.nelts; j++) {
            if (ngx_http_vibelock_report_operation(z, &op[j]->name) == NULL) {
                return NGX_ERROR;
            }
        }
    }

    return NGX_OK;
}


static ngx_http_vibelock_report_operation_t *
ngx_http_vibelock_report_operation(ngx_http_vibelock_report_zone_t *zone,
    ngx_str_t *name)
{
    ngx_uint_t                             i;
    ngx_http_vibelock_report_operation_t  *op;

    op = zone->operations.elts;

    for (i = 0; i < zone->operations.nelts; i++) {
        if (op[i].name.len == name->len
            && ngx_memcmp(op[i].name.data, name->data, name->len) == 0)
        {
            return &op[i];
        }
    }

    op = ngx_array_push(&zone->operations);
    if (op == NULL) {
        return NULL;
    }

    ngx_memzero(op, sizeof(ngx_http_vibelock_report_operation_t));

    op->name = *name;

    return op;
}


static ngx_int_t
ngx_http_vibelock_report_step(ngx_http_vibelock_report_t *report)
{
    ngx_uint_t                        i;
    ngx_http_vibelock_table_t        *table;
    ngx_http_vibelock_report_zone_t  *zone;

    for (i = 0; i < NGX_HTTP_VIBELOCK_REPORT_STEPS; i++) {

        if (report->n == report->nzones) {
            return NGX_OK;
        }

        zone = &report->zones[report->n];
        table = zone->zone->table;

        if (ngx_http_vibelock_table_scan(table, &report->cell,
                                         ngx_http_vibelock_report_visit,
                                         report)
            == NGX_AGAIN)
        {
            continue;
        }

        ngx_http_vibelock_table_usage(table, &zone->usage);

        zone->bused = (ngx_http_vibelock_bus_state(zone->zone, &zone->bus)
                       == NGX_OK);

        report->n++;
        report->cell = 0;
    }

    return NGX_AGAIN;
}


static void
ngx_http_vibelock_report_visit(ngx_http_vibelock_lock_t *lock, ngx_str_t *key,
    void *data)
{
    ngx_http_vibelock_report_t *report = data;

    ngx_http_vibelock_report_zone_t       *zone;
    ngx_http_vibelock_report_operation_t  *op;

    zone = &report->zones[report->n];

    if (report->list && report->list->zone == zone->zone) {
        ngx_http_vibelock_list_add(report->list, lock, key);
    }

    /* an operation that the configuration does not have any more is new */

    op = ngx_http_vibelock_report_operation(zone, &lock->operation);

    if (op == NULL) {
        report->failed = 1;
        return;
    }

    if (lock->stuck) {
        ngx_http_vibelock_report_count(&zone->stuck, lock);
        ngx_http_vibelock_report_count(&op->stuck, lock);

    } else {
        ngx_http_vibelock_report_count(&zone->running, lock);
        ngx_http_vibelock_report_count(&op->running, lock);
    }
}


static void
ngx_http_vibelock_report_count(ngx_http_vibelock_report_count_t *count,
    ngx_http_vibelock_lock_t *lock)
{
    count->held++;
    count->oldest = ngx_max(count->oldest, lock->age);
}


/*
 * The rest comes in turns of the event loop.
 */

static ngx_int_t
ngx_http_vibelock_report_wait(ngx_http_request_t *r,
    ngx_http_vibelock_report_t *report)
{
    ngx_http_cleanup_t  *cln;

    cln = ngx_http_cleanup_add(r, 0);
    if (cln == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    cln->handler = ngx_http_vibelock_report_cleanup;
    cln->data = report;

    if (r == r->main && !r->discard_body) {

        /* of a client that left by now no other event tells */

        if (r->connection->read->ready) {
            ngx_post_event(r->connection->read, &ngx_posted_events);

        } else if (ngx_handle_read_event(r->connection->read, 0) != NGX_OK) {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }

        r->read_event_handler = ngx_http_test_reading;
    }

    report->event.handler = ngx_http_vibelock_report_event;
    report->event.data = r;
    report->event.log = r->connection->log;

    ngx_http_vibelock_report_later(&report->event);

    r->main->count++;

    return NGX_DONE;
}


static void
ngx_http_vibelock_report_event(ngx_event_t *ev)
{
    ngx_connection_t            *c;
    ngx_http_request_t          *r;
    ngx_http_vibelock_report_t  *report;

    r = ev->data;
    c = r->connection;

    report = (ngx_http_vibelock_report_t *)
                 ((u_char *) ev - offsetof(ngx_http_vibelock_report_t, event));

    if (ngx_http_vibelock_report_step(report) == NGX_AGAIN) {
        ngx_http_vibelock_report_later(ev);
        return;
    }

    /* a timer that fires all the same leaves it posted */

    ngx_http_vibelock_report_cleanup(report);

    ngx_http_set_log_request(c->log, r);

    if (r->read_event_handler == ngx_http_test_reading) {
        r->read_event_handler = ngx_http_block_reading;
    }

    ngx_http_finalize_request(r, ngx_http_vibelock_report_done(r, report));

    ngx_http_run_posted_requests(c);
}


/*
 * In the next turn: what is posted to this one would be run in it.  A worker
 * that exits waits for timers, and for nothing else: it has one here.
 */

static void
ngx_http_vibelock_report_later(ngx_event_t *ev)
{
    ngx_post_event(ev, &ngx_posted_next_events);

    if (!ev->timer_set) {
        ngx_add_timer(ev, NGX_HTTP_VIBELOCK_REPORT_TIMER);
    }
}


static ngx_int_t
ngx_http_vibelock_report_done(ngx_http_request_t *r,
    ngx_http_vibelock_report_t *report)
{
    if (report->failed) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (report->list) {
        ngx_http_vibelock_list_sort(report->list);
    }

    return report->ready(r, report);
}


static void
ngx_http_vibelock_report_cleanup(void *data)
{
    ngx_http_vibelock_report_t *report = data;

    if (report->event.posted) {
        ngx_delete_posted_event(&report->event);
    }

    if (report->event.timer_set) {
        ngx_del_timer(&report->event);
    }
}
