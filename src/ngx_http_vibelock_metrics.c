
/*
 * Copyright (C) the vibelock authors
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_vibelock_cells.h"
#include "ngx_http_vibelock_metrics.h"


#define NGX_HTTP_VIBELOCK_METRICS_BUFFER  8192


/* names, labels and numbers of a line, beside the zone's name */
#define NGX_HTTP_VIBELOCK_METRICS_LINE    512


/* a chain that grows by a buffer when the last one is full */

typedef struct {
    ngx_pool_t                        *pool;
    ngx_chain_t                       *first;
    ngx_chain_t                       *last;
} ngx_http_vibelock_metrics_text_t;


/* ages are kept in ms and shown in seconds */

typedef enum {
    NGX_HTTP_VIBELOCK_METRIC_COUNTER = 0,
    NGX_HTTP_VIBELOCK_METRIC_GAUGE,
    NGX_HTTP_VIBELOCK_METRIC_AGE
} ngx_http_vibelock_metric_e;


typedef uint64_t (*ngx_http_vibelock_metric_pt)(
    ngx_http_vibelock_report_zone_t *zone, ngx_uint_t n);


/*
 * One sample a zone.  Those of one metric follow each other, and the first of
 * them has the help.
 */

typedef struct {
    char                              *name;
    ngx_http_vibelock_metric_e         type;
    char                              *help;
    char                              *label;
    ngx_http_vibelock_metric_pt        get;
    ngx_uint_t                         n;
} ngx_http_vibelock_metric_t;


static void ngx_http_vibelock_metrics_locks(
    ngx_http_vibelock_metrics_text_t *text,
    ngx_http_vibelock_report_t *report);
static void ngx_http_vibelock_metrics_zones(
    ngx_http_vibelock_metrics_text_t *text,
    ngx_http_vibelock_report_t *report, ngx_http_vibelock_metric_t *table);
static void ngx_http_vibelock_metrics_registry(
    ngx_http_vibelock_metrics_text_t *text,
    ngx_http_vibelock_registry_t *registry);

static uint64_t ngx_http_vibelock_metric_counter(
    ngx_http_vibelock_report_zone_t *zone, ngx_uint_t n);
static uint64_t ngx_http_vibelock_metric_expired(
    ngx_http_vibelock_report_zone_t *zone, ngx_uint_t n);
static uint64_t ngx_http_vibelock_metric_rebuilds(
    ngx_http_vibelock_report_zone_t *zone, ngx_uint_t n);
static uint64_t ngx_http_vibelock_metric_running(
    ngx_http_vibelock_report_zone_t *zone, ngx_uint_t n);
static uint64_t ngx_http_vibelock_metric_stuck(
    ngx_http_vibelock_report_zone_t *zone, ngx_uint_t n);
static uint64_t ngx_http_vibelock_metric_size(
    ngx_http_vibelock_report_zone_t *zone, ngx_uint_t n);
static uint64_t ngx_http_vibelock_metric_used(
    ngx_http_vibelock_report_zone_t *zone, ngx_uint_t n);
static uint64_t ngx_http_vibelock_metric_free(
    ngx_http_vibelock_report_zone_t *zone, ngx_uint_t n);
static uint64_t ngx_http_vibelock_metric_applied(
    ngx_http_vibelock_report_zone_t *zone, ngx_uint_t n);
static uint64_t ngx_http_vibelock_metric_reading(
    ngx_http_vibelock_report_zone_t *zone, ngx_uint_t n);
static uint64_t ngx_http_vibelock_metric_publishing(
    ngx_http_vibelock_report_zone_t *zone, ngx_uint_t n);
static uint64_t ngx_http_vibelock_metric_bus(
    ngx_http_vibelock_report_zone_t *zone, ngx_uint_t n);

static void ngx_http_vibelock_metrics_head(
    ngx_http_vibelock_metrics_text_t *text, char *name, char *type,
    char *help);
static void ngx_http_vibelock_metrics_single(
    ngx_http_vibelock_metrics_text_t *text, char *name, char *type,
    char *help, uint64_t value);
static void ngx_http_vibelock_metrics_sample(
    ngx_http_vibelock_metrics_text_t *text, ngx_http_vibelock_metric_t *metric,
    ngx_http_vibelock_report_zone_t *zone);
static void ngx_http_vibelock_metrics_lock(
    ngx_http_vibelock_metrics_text_t *text, ngx_str_t *zone,
    ngx_str_t *operation, char *state, ngx_uint_t held);
static u_char *ngx_http_vibelock_metrics_label(u_char *p, ngx_str_t *value);
static ngx_buf_t *ngx_http_vibelock_metrics_room(
    ngx_http_vibelock_metrics_text_t *text, size_t zone);


static char  *ngx_http_vibelock_metric_types[] = {
    "counter",
    "gauge",
    "gauge"
};


#define ngx_http_vibelock_metric_count(name, help, label, n)                  \
    { name, NGX_HTTP_VIBELOCK_METRIC_COUNTER, help, label,                    \
      ngx_http_vibelock_metric_counter, NGX_HTTP_VIBELOCK_N_ ## n }


static ngx_http_vibelock_metric_t  ngx_http_vibelock_metrics_table[] = {

    { "vibelock_oldest_lock_age_seconds", NGX_HTTP_VIBELOCK_METRIC_AGE,
      "Age of the oldest lock that is held, 0 where there is none.",
      ",state=\"running\"", ngx_http_vibelock_metric_running, 0 },

    { "vibelock_oldest_lock_age_seconds", NGX_HTTP_VIBELOCK_METRIC_AGE,
      NULL,
      ",state=\"stuck\"", ngx_http_vibelock_metric_stuck, 0 },

    { "vibelock_zone_size_bytes", NGX_HTTP_VIBELOCK_METRIC_GAUGE,
      "Shared memory of the zone.",
      "", ngx_http_vibelock_metric_size, 0 },

    { "vibelock_zone_memory_bytes", NGX_HTTP_VIBELOCK_METRIC_GAUGE,
      "Memory for locks in the zone.",
      ",state=\"used\"", ngx_http_vibelock_metric_used,
      NGX_HTTP_VIBELOCK_CELL_SIZE },

    { "vibelock_zone_memory_bytes", NGX_HTTP_VIBELOCK_METRIC_GAUGE,
      NULL,
      ",state=\"free\"", ngx_http_vibelock_metric_free,
      NGX_HTTP_VIBELOCK_CELL_SIZE },

    { "vibelock_zone_cells", NGX_HTTP_VIBELOCK_METRIC_GAUGE,
      "Cells in the zone; a lock takes one, or more when its key is long.",
      ",state=\"used\"", ngx_http_vibelock_metric_used, 1 },

    { "vibelock_zone_cells", NGX_HTTP_VIBELOCK_METRIC_GAUGE,
      NULL,
      ",state=\"free\"", ngx_http_vibelock_metric_free, 1 },

    ngx_http_vibelock_metric_count("vibelock_acquired_total",
        "Locks that were taken.", "", ACQUIRED),

    ngx_http_vibelock_metric_count("vibelock_released_total",
        "Locks that were freed at the end of their operation.", "", RELEASED),

    ngx_http_vibelock_metric_count("vibelock_kept_total",
        "Locks that were left to their TTL, as nobody can know whether their"
        " operation ended.", "", KEPT),

    ngx_http_vibelock_metric_count("vibelock_orphaned_total",
        "Locks that were found stuck as their worker process was gone.", "",
        ORPHANED),

    ngx_http_vibelock_metric_count("vibelock_lost_total",
        "Operations that ended after their lock had expired or was broken.",
        "", LOST),

    { "vibelock_expired_total", NGX_HTTP_VIBELOCK_METRIC_COUNTER,
      "Locks that ended by their TTL.",
      "", ngx_http_vibelock_metric_expired, 0 },

    ngx_http_vibelock_metric_count("vibelock_broken_total",
        "Locks that were broken: by a request here, or by one that came over"
        " the bus.", ",reason=\"request\"", BROKEN),

    { "vibelock_broken_total", NGX_HTTP_VIBELOCK_METRIC_COUNTER, NULL,
      ",reason=\"bus\"", ngx_http_vibelock_metric_applied, 0 },

    ngx_http_vibelock_metric_count("vibelock_refused_total",
        "Requests that were refused.", ",reason=\"busy\"", BUSY),
    ngx_http_vibelock_metric_count("vibelock_refused_total",
        NULL, ",reason=\"full\"", FULL),
    ngx_http_vibelock_metric_count("vibelock_refused_total",
        NULL, ",reason=\"denied\"", DENIED),
    ngx_http_vibelock_metric_count("vibelock_refused_total",
        NULL, ",reason=\"invalid\"", INVALID),

    ngx_http_vibelock_metric_count("vibelock_dry_run_refused_total",
        "Requests that would have been refused, but for dry run.",
        ",reason=\"busy\"", BUSY_DRY_RUN),
    ngx_http_vibelock_metric_count("vibelock_dry_run_refused_total",
        NULL, ",reason=\"full\"", FULL_DRY_RUN),
    ngx_http_vibelock_metric_count("vibelock_dry_run_refused_total",
        NULL, ",reason=\"denied\"", DENIED_DRY_RUN),
    ngx_http_vibelock_metric_count("vibelock_dry_run_refused_total",
        NULL, ",reason=\"invalid\"", INVALID_DRY_RUN),

    ngx_http_vibelock_metric_count("vibelock_bypassed_total",
        "Requests that ran without a lock, as their key was empty.", "",
        BYPASSED),

    { "vibelock_zone_rebuilds_total", NGX_HTTP_VIBELOCK_METRIC_COUNTER,
      "Times the zone was put in order after a process was killed while it"
      " changed it.",
      "", ngx_http_vibelock_metric_rebuilds, 0 },

    { NULL, 0, NULL, NULL, NULL, 0 }
};


/* of zones that have a bus */

#define ngx_http_vibelock_metric_bus_count(name, help, label, field)          \
    { name, NGX_HTTP_VIBELOCK_METRIC_COUNTER, help, label,                    \
      ngx_http_vibelock_metric_bus,                                           \
      offsetof(ngx_http_vibelock_bus_state_t, field) }

#define ngx_http_vibelock_metric_bus_skip(help, label, reason)                \
    ngx_http_vibelock_metric_bus_count("vibelock_bus_skipped_total", help,    \
        label, skipped[NGX_HTTP_VIBELOCK_BUS_ ## reason])


static ngx_http_vibelock_metric_t  ngx_http_vibelock_metrics_bus_table[] = {

    { "vibelock_bus_up", NGX_HTTP_VIBELOCK_METRIC_GAUGE,
      "1 while the bus works, or was not needed yet, in this direction.",
      ",direction=\"reading\"", ngx_http_vibelock_metric_reading, 0 },

    { "vibelock_bus_up", NGX_HTTP_VIBELOCK_METRIC_GAUGE,
      NULL,
      ",direction=\"publishing\"", ngx_http_vibelock_metric_publishing, 0 },

    { "vibelock_bus_lag_seconds", NGX_HTTP_VIBELOCK_METRIC_AGE,
      "How late the release was that was read last.",
      "", ngx_http_vibelock_metric_bus,
      offsetof(ngx_http_vibelock_bus_state_t, lag) },

    { "vibelock_bus_queued_releases", NGX_HTTP_VIBELOCK_METRIC_GAUGE,
      "Releases that wait to be published.",
      "", ngx_http_vibelock_metric_bus,
      offsetof(ngx_http_vibelock_bus_state_t, queued) },

    ngx_http_vibelock_metric_bus_count("vibelock_bus_published_total",
        "Releases that were published.", "", published),

    ngx_http_vibelock_metric_bus_count("vibelock_bus_merged_total",
        "Releases that were one with another of the same second.", "",
        merged),

    ngx_http_vibelock_metric_bus_count("vibelock_bus_dropped_total",
        "Releases that were not published: the queue was full, or they were"
        " too old.", "", dropped),

    ngx_http_vibelock_metric_bus_count("vibelock_bus_received_total",
        "Releases that were read, this replica's own among them.", "",
        received),

    ngx_http_vibelock_metric_bus_skip(
        "Releases that were read and changed nothing.",
        ",reason=\"own\"", OWN),
    ngx_http_vibelock_metric_bus_skip(NULL, ",reason=\"no_lock\"", NO_LOCK),
    ngx_http_vibelock_metric_bus_skip(NULL, ",reason=\"young\"", YOUNG),
    ngx_http_vibelock_metric_bus_skip(NULL, ",reason=\"other_owner\"",
                                      OTHER_OWNER),
    ngx_http_vibelock_metric_bus_skip(NULL, ",reason=\"malformed\"",
                                      MALFORMED),
    ngx_http_vibelock_metric_bus_skip(NULL, ",reason=\"version\"", VERSION),
    ngx_http_vibelock_metric_bus_skip(NULL, ",reason=\"too_large\"",
                                      TOO_LARGE),

    ngx_http_vibelock_metric_bus_count("vibelock_bus_reconnects_total",
        "Connections to Redis that took the place of a lost one.", "",
        reconnects),

    ngx_http_vibelock_metric_bus_count("vibelock_bus_rewinds_total",
        "Times that the entry after which reading went on was not in the stream"
        " any more: releases may be missing.", "", rewinds),

    { NULL, 0, NULL, NULL, NULL, 0 }
};


ngx_chain_t *
ngx_http_vibelock_metrics(ngx_http_request_t *r,
    ngx_http_vibelock_report_t *report, ngx_http_vibelock_registry_t *registry)
{
    ngx_http_vibelock_metrics_text_t  text;

    text.pool = r->pool;
    text.first = ngx_alloc_chain_link(r->pool);

    if (text.first == NULL) {
        return NULL;
    }

    text.last = text.first;
    text.last->next = NULL;
    text.last->buf = ngx_create_temp_buf(r->pool,
                                         NGX_HTTP_VIBELOCK_METRICS_BUFFER);
    if (text.last->buf == NULL) {
        return NULL;
    }

    ngx_http_vibelock_metrics_locks(&text, report);
    ngx_http_vibelock_metrics_zones(&text, report,
                                    ngx_http_vibelock_metrics_table);

    /* zones have a bus all or none */

    if (report->nzones && report->zones[0].bused) {
        ngx_http_vibelock_metrics_zones(&text, report,
                                        ngx_http_vibelock_metrics_bus_table);
    }

    if (registry) {
        ngx_http_vibelock_metrics_registry(&text, registry);
    }

    return text.pool ? text.first : NULL;
}


static void
ngx_http_vibelock_metrics_locks(ngx_http_vibelock_metrics_text_t *text,
    ngx_http_vibelock_report_t *report)
{
    ngx_str_t                             *zone;
    ngx_uint_t                             i, j;
    ngx_http_vibelock_report_operation_t  *op;

    ngx_http_vibelock_metrics_head(text, "vibelock_locks", "gauge",
                    "Locks that are held: by an open request, or stuck.");

    for (i = 0; i < report->nzones; i++) {
        zone = &report->zones[i].zone->name;
        op = report->zones[i].operations.elts;

        for (j = 0; j < report->zones[i].operations.nelts; j++) {
            ngx_http_vibelock_metrics_lock(text, zone, &op[j].name, "running",
                                           op[j].running.held);
            ngx_http_vibelock_metrics_lock(text, zone, &op[j].name, "stuck",
                                           op[j].stuck.held);
        }
    }
}


static void
ngx_http_vibelock_metrics_zones(ngx_http_vibelock_metrics_text_t *text,
    ngx_http_vibelock_report_t *report, ngx_http_vibelock_metric_t *table)
{
    ngx_uint_t                   i;
    ngx_http_vibelock_metric_t  *metric, *first;

    for (first = table; first->name; first = metric) {

        ngx_http_vibelock_metrics_head(text, first->name,
                                  ngx_http_vibelock_metric_types[first->type],
                                  first->help);

        for (metric = first;
             metric->name && (metric == first || metric->help == NULL);
             metric++)
        {
            for (i = 0; i < report->nzones; i++) {
                ngx_http_vibelock_metrics_sample(text, metric,
                                                 &report->zones[i]);
            }
        }
    }
}


static void
ngx_http_vibelock_metrics_registry(ngx_http_vibelock_metrics_text_t *text,
    ngx_http_vibelock_registry_t *registry)
{
    ngx_http_vibelock_registry_state_t  state;

    ngx_http_vibelock_registry_state(registry, &state);

    ngx_http_vibelock_metrics_single(text, "vibelock_registry_keys", "gauge",
        "Keys in the registry.", state.keys);

    ngx_http_vibelock_metrics_single(text, "vibelock_registry_servers",
        "gauge",
        "Servers in the registry, deleted ones among them.", state.servers);

    ngx_http_vibelock_metrics_single(text,
        "vibelock_registry_last_success_timestamp_seconds", "gauge",
        "When the registry was last read well.", state.read);

    ngx_http_vibelock_metrics_single(text,
        "vibelock_registry_last_reading_successful", "gauge",
        "1 while the file of the registry is what answers come from.",
        state.failing ? 0 : 1);

    ngx_http_vibelock_metrics_single(text, "vibelock_registry_failures_total",
        "counter",
        "Readings of the registry that failed.", state.failed);
}


static uint64_t
ngx_http_vibelock_metric_counter(ngx_http_vibelock_report_zone_t *zone,
    ngx_uint_t n)
{
    return ngx_http_vibelock_zone_counted(zone->zone, n);
}


static uint64_t
ngx_http_vibelock_metric_expired(ngx_http_vibelock_report_zone_t *zone,
    ngx_uint_t n)
{
    return zone->usage.expired;
}


static uint64_t
ngx_http_vibelock_metric_rebuilds(ngx_http_vibelock_report_zone_t *zone,
    ngx_uint_t n)
{
    return zone->usage.rebuilds;
}


static uint64_t
ngx_http_vibelock_metric_running(ngx_http_vibelock_report_zone_t *zone,
    ngx_uint_t n)
{
    return zone->running.oldest;
}


static uint64_t
ngx_http_vibelock_metric_stuck(ngx_http_vibelock_report_zone_t *zone,
    ngx_uint_t n)
{
    return zone->stuck.oldest;
}


static uint64_t
ngx_http_vibelock_metric_size(ngx_http_vibelock_report_zone_t *zone,
    ngx_uint_t n)
{
    return zone->zone->shm_zone->shm.size;
}


static uint64_t
ngx_http_vibelock_metric_used(ngx_http_vibelock_report_zone_t *zone,
    ngx_uint_t n)
{
    return n * zone->usage.used;
}


static uint64_t
ngx_http_vibelock_metric_free(ngx_http_vibelock_report_zone_t *zone,
    ngx_uint_t n)
{
    return n * (zone->usage.cells - zone->usage.used);
}


static uint64_t
ngx_http_vibelock_metric_applied(ngx_http_vibelock_report_zone_t *zone,
    ngx_uint_t n)
{
    return zone->bused ? zone->bus.applied : 0;
}


static uint64_t
ngx_http_vibelock_metric_reading(ngx_http_vibelock_report_zone_t *zone,
    ngx_uint_t n)
{
    return zone->bus.reading == NGX_HTTP_VIBELOCK_REDIS_WORKS;
}


static uint64_t
ngx_http_vibelock_metric_publishing(ngx_http_vibelock_report_zone_t *zone,
    ngx_uint_t n)
{
    return zone->bus.publishing == NGX_HTTP_VIBELOCK_REDIS_WORKS
           || zone->bus.publishing == NGX_HTTP_VIBELOCK_REDIS_IDLE;
}


/* n: where the number is in the state of the bus */

static uint64_t
ngx_http_vibelock_metric_bus(ngx_http_vibelock_report_zone_t *zone,
    ngx_uint_t n)
{
    return *(ngx_uint_t *) ((u_char *) &zone->bus + n);
}


static void
ngx_http_vibelock_metrics_head(ngx_http_vibelock_metrics_text_t *text,
    char *name, char *type, char *help)
{
    ngx_buf_t  *b;

    b = ngx_http_vibelock_metrics_room(text, 0);

    if (b) {
        b->last = ngx_sprintf(b->last, "# HELP %s %s\n# TYPE %s %s\n",
                              name, help, name, type);
    }
}


static void
ngx_http_vibelock_metrics_single(ngx_http_vibelock_metrics_text_t *text,
    char *name, char *type, char *help, uint64_t value)
{
    ngx_buf_t  *b;

    ngx_http_vibelock_metrics_head(text, name, type, help);

    b = ngx_http_vibelock_metrics_room(text, 0);

    if (b) {
        b->last = ngx_sprintf(b->last, "%s %uL\n", name, value);
    }
}


static void
ngx_http_vibelock_metrics_sample(ngx_http_vibelock_metrics_text_t *text,
    ngx_http_vibelock_metric_t *metric, ngx_http_vibelock_report_zone_t *zone)
{
    uint64_t    value;
    ngx_buf_t  *b;
    ngx_str_t  *name;

    name = &zone->zone->name;
    value = metric->get(zone, metric->n);

    b = ngx_http_vibelock_metrics_room(text, name->len);
    if (b == NULL) {
        return;
    }

    b->last = ngx_sprintf(b->last, "%s{zone=\"", metric->name);
    b->last = ngx_http_vibelock_metrics_label(b->last, name);
    b->last = ngx_sprintf(b->last, "\"%s} ", metric->label);

    if (metric->type == NGX_HTTP_VIBELOCK_METRIC_AGE) {
        b->last = ngx_sprintf(b->last, "%uL.%03uL\n",
                              value / 1000, value % 1000);

    } else {
        b->last = ngx_sprintf(b->last, "%uL\n", value);
    }
}


static void
ngx_http_vibelock_metrics_lock(ngx_http_vibelock_metrics_text_t *text,
    ngx_str_t *zone, ngx_str_t *operation, char *state, ngx_uint_t held)
{
    ngx_buf_t  *b;

    b = ngx_http_vibelock_metrics_room(text, zone->len);
    if (b == NULL) {
        return;
    }

    b->last = ngx_sprintf(b->last, "vibelock_locks{zone=\"");
    b->last = ngx_http_vibelock_metrics_label(b->last, zone);
    b->last = ngx_sprintf(b->last, "\",operation=\"%V\",state=\"%s\"} %ui\n",
                          operation, state, held);
}


static u_char *
ngx_http_vibelock_metrics_label(u_char *p, ngx_str_t *value)
{
    size_t  i;

    for (i = 0; i < value->len; i++) {

        switch (value->data[i]) {

        case '\n':
            *p++ = '\\';
            *p++ = 'n';
            break;

        case '"':
        case '\\':
            *p++ = '\\';

            /* fall through */

        default:
            *p++ = value->data[i];
        }
    }

    return p;
}


/*
 * A buffer with room for one more line; NULL: there was no memory, now or
 * before.
 */

static ngx_buf_t *
ngx_http_vibelock_metrics_room(ngx_http_vibelock_metrics_text_t *text,
    size_t zone)
{
    size_t        size;
    ngx_buf_t    *b;
    ngx_chain_t  *cl;

    if (text->pool == NULL) {
        return NULL;
    }

    b = text->last->buf;
    size = NGX_HTTP_VIBELOCK_METRICS_LINE + 2 * zone;

    if ((size_t) (b->end - b->last) >= size) {
        return b;
    }

    cl = ngx_alloc_chain_link(text->pool);
    b = ngx_create_temp_buf(text->pool,
                            ngx_max(size, NGX_HTTP_VIBELOCK_METRICS_BUFFER));

    if (cl == NULL || b == NULL) {
        text->pool = NULL;
        return NULL;
    }

    cl->buf = b;
    cl->next = NULL;

    text->last->next = cl;
    text->last = cl;

    return b;
}
