
/*
 * Copyright (C) the vibelock authors
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include <jansson.h>

#include "ngx_http_vibelock_cells.h"
#include "ngx_http_vibelock_json.h"
#include "ngx_http_vibelock_log.h"


static json_t *ngx_http_vibelock_json_zones(
    ngx_http_vibelock_report_t *report);
static json_t *ngx_http_vibelock_json_zone(
    ngx_http_vibelock_report_zone_t *zone);
static json_t *ngx_http_vibelock_json_operations(
    ngx_http_vibelock_report_zone_t *zone);
static json_t *ngx_http_vibelock_json_oldest(
    ngx_http_vibelock_report_count_t *count);
static json_t *ngx_http_vibelock_json_memory(
    ngx_http_vibelock_report_zone_t *zone);
static json_t *ngx_http_vibelock_json_counters(
    ngx_http_vibelock_report_zone_t *zone);
static json_t *ngx_http_vibelock_json_bus(
    ngx_http_vibelock_report_zone_t *zone);
static json_t *ngx_http_vibelock_json_registry(
    ngx_http_vibelock_registry_t *registry);
static json_t *ngx_http_vibelock_json_list(ngx_http_vibelock_list_t *list);
static json_t *ngx_http_vibelock_json_row(ngx_http_vibelock_list_row_t *row);
static ngx_buf_t *ngx_http_vibelock_json_text(ngx_http_request_t *r,
    json_t *data);


#define ngx_http_vibelock_json_state(lock)                                    \
    ((lock)->stuck ? "stuck" : "running")


ngx_buf_t *
ngx_http_vibelock_json(ngx_http_request_t *r,
    ngx_http_vibelock_report_t *report,
    ngx_http_vibelock_registry_t *registry, ngx_uint_t breakable)
{
    json_t      *data;
    ngx_time_t  *now;

    now = ngx_timeofday();

    data = json_pack("{s:I, s:b, s:o, s:o}",
                     "time", (json_int_t) now->sec * 1000 + now->msec,
                     "breakable", (int) breakable,
                     "zones", ngx_http_vibelock_json_zones(report),
                     "registry", ngx_http_vibelock_json_registry(registry));

    if (data && report->list
        && json_object_set_new(data, "list",
                               ngx_http_vibelock_json_list(report->list))
           != 0)
    {
        json_decref(data);
        data = NULL;
    }

    return ngx_http_vibelock_json_text(r, data);
}


ngx_buf_t *
ngx_http_vibelock_json_broken(ngx_http_request_t *r,
    ngx_http_vibelock_lock_t *lock)
{
    json_t  *data;

    if (lock == NULL) {
        data = json_pack("{s:b, s:s}", "released", 0,
                         "message", "That lock is not held any more");

    } else {
        data = json_pack("{s:b, s:s%, s:s, s:I, s:I}",
                         "released", 1,
                         "operation", lock->operation.data,
                         lock->operation.len,
                         "state", ngx_http_vibelock_json_state(lock),
                         "ageMs", (json_int_t) lock->age,
                         "expiresInMs", (json_int_t) lock->rest);
    }

    return ngx_http_vibelock_json_text(r, data);
}


static json_t *
ngx_http_vibelock_json_zones(ngx_http_vibelock_report_t *report)
{
    json_t      *zones;
    ngx_uint_t   i;

    zones = json_array();

    for (i = 0; i < report->nzones; i++) {
        if (json_array_append_new(zones,
                                ngx_http_vibelock_json_zone(&report->zones[i]))
            != 0)
        {
            json_decref(zones);
            return NULL;
        }
    }

    return zones;
}


static json_t *
ngx_http_vibelock_json_zone(ngx_http_vibelock_report_zone_t *zone)
{
    return json_pack("{s:s%, s:{s:I, s:I, s:I, s:o, s:o, s:o}, s:o, s:o, s:o}",
                     "name", zone->zone->name.data, zone->zone->name.len,
                     "locks",
                     "held",
                     (json_int_t) (zone->running.held + zone->stuck.held),
                     "running", (json_int_t) zone->running.held,
                     "stuck", (json_int_t) zone->stuck.held,
                     "oldestRunningMs",
                     ngx_http_vibelock_json_oldest(&zone->running),
                     "oldestStuckMs",
                     ngx_http_vibelock_json_oldest(&zone->stuck),
                     "operations", ngx_http_vibelock_json_operations(zone),
                     "memory", ngx_http_vibelock_json_memory(zone),
                     "counters", ngx_http_vibelock_json_counters(zone),
                     "bus", ngx_http_vibelock_json_bus(zone));
}


static json_t *
ngx_http_vibelock_json_operations(ngx_http_vibelock_report_zone_t *zone)
{
    json_t                                *operations, *value;
    ngx_uint_t                             i;
    ngx_http_vibelock_report_operation_t  *op;

    operations = json_array();
    op = zone->operations.elts;

    for (i = 0; i < zone->operations.nelts; i++) {

        value = json_pack("{s:s%, s:I, s:I}",
                          "operation", op[i].name.data, op[i].name.len,
                          "running", (json_int_t) op[i].running.held,
                          "stuck", (json_int_t) op[i].stuck.held);

        if (json_array_append_new(operations, value) != 0) {
            json_decref(operations);
            return NULL;
        }
    }

    return operations;
}


static json_t *
ngx_http_vibelock_json_oldest(ngx_http_vibelock_report_count_t *count)
{
    return count->held ? json_integer(count->oldest) : json_null();
}


static json_t *
ngx_http_vibelock_json_memory(ngx_http_vibelock_report_zone_t *zone)
{
    json_int_t  total, used;

    total = zone->usage.cells;
    used = zone->usage.used;

    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}",
                     "bytes", (json_int_t) zone->zone->shm_zone->shm.size,
                     "bytesUsed", used * NGX_HTTP_VIBELOCK_CELL_SIZE,
                     "bytesFree",
                     (total - used) * NGX_HTTP_VIBELOCK_CELL_SIZE,
                     "cells", total,
                     "cellsUsed", used,
                     "cellsFree", total - used);
}


static json_t *
ngx_http_vibelock_json_counters(ngx_http_vibelock_report_zone_t *zone)
{
#define N(counter)                                                            \
    (json_int_t) ngx_http_vibelock_zone_counted(zone->zone,                   \
                                        NGX_HTTP_VIBELOCK_N_ ## counter)

    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I,"
                     " s:I, s:I, s:{s:I, s:I, s:I, s:I}}",
                     "acquired", N(ACQUIRED),
                     "busy", N(BUSY),
                     "released", N(RELEASED),
                     "kept", N(KEPT),
                     "lost", N(LOST),
                     "expired", (json_int_t) zone->usage.expired,
                     "broken", N(BROKEN),
                     "orphaned", N(ORPHANED),
                     "full", N(FULL),
                     "bypassed", N(BYPASSED),
                     "denied", N(DENIED),
                     "invalid", N(INVALID),
                     "rebuilds", (json_int_t) zone->usage.rebuilds,
                     "dryRun",
                     "busy", N(BUSY_DRY_RUN),
                     "full", N(FULL_DRY_RUN),
                     "denied", N(DENIED_DRY_RUN),
                     "invalid", N(INVALID_DRY_RUN));

#undef N
}


static json_t *
ngx_http_vibelock_json_bus(ngx_http_vibelock_report_zone_t *zone)
{
    u_char                          id[2 * NGX_INT64_LEN + 2];
    ngx_str_t                      *reading, *publishing;
    json_int_t                      skipped[NGX_HTTP_VIBELOCK_BUS_SKIPS];
    ngx_uint_t                      i;
    ngx_http_vibelock_bus_state_t  *bus;

    if (!zone->bused) {
        return json_null();
    }

    bus = &zone->bus;

    reading = ngx_http_vibelock_redis_word(bus->reading);
    publishing = ngx_http_vibelock_redis_word(bus->publishing);

    for (i = 0; i < NGX_HTTP_VIBELOCK_BUS_SKIPS; i++) {
        skipped[i] = bus->skipped[i];
    }

    *ngx_sprintf(id, "%uL-%uL", bus->last_ms, bus->last_seq) = '\0';

    return json_pack("{s:s, s:s, s:s%, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I,"
                     " s:{s:I, s:I, s:I, s:I, s:I, s:I, s:I}, s:I, s:I, s:s}",
                     "reading", reading->data,
                     "publishing", publishing->data,
                     "stream", bus->stream.data, bus->stream.len,
                     "reconnects", (json_int_t) bus->reconnects,
                     "published", (json_int_t) bus->published,
                     "merged", (json_int_t) bus->merged,
                     "queued", (json_int_t) bus->queued,
                     "dropped", (json_int_t) bus->dropped,
                     "received", (json_int_t) bus->received,
                     "applied", (json_int_t) bus->applied,
                     "rewinds", (json_int_t) bus->rewinds,
                     "skipped",
                     "own", skipped[NGX_HTTP_VIBELOCK_BUS_OWN],
                     "noLock", skipped[NGX_HTTP_VIBELOCK_BUS_NO_LOCK],
                     "young", skipped[NGX_HTTP_VIBELOCK_BUS_YOUNG],
                     "otherOwner", skipped[NGX_HTTP_VIBELOCK_BUS_OTHER_OWNER],
                     "malformed", skipped[NGX_HTTP_VIBELOCK_BUS_MALFORMED],
                     "version", skipped[NGX_HTTP_VIBELOCK_BUS_VERSION],
                     "tooLarge", skipped[NGX_HTTP_VIBELOCK_BUS_TOO_LARGE],
                     "reader", (json_int_t) bus->reader,
                     "lagMs", (json_int_t) bus->lag,
                     "lastId", id);
}


static json_t *
ngx_http_vibelock_json_registry(ngx_http_vibelock_registry_t *registry)
{
    ngx_http_vibelock_registry_state_t  state;

    if (registry == NULL) {
        return json_null();
    }

    ngx_http_vibelock_registry_state(registry, &state);

    return json_pack("{s:I, s:I, s:I, s:b, s:I}",
                     "keys", (json_int_t) state.keys,
                     "servers", (json_int_t) state.servers,
                     "read", (json_int_t) state.read * 1000,
                     "failing", (int) state.failing,
                     "failed", (json_int_t) state.failed);
}


static json_t *
ngx_http_vibelock_json_list(ngx_http_vibelock_list_t *list)
{
    json_t      *locks, *cursor;
    ngx_uint_t   i;

    locks = json_array();

    for (i = 0; i < list->n; i++) {
        if (json_array_append_new(locks,
                                  ngx_http_vibelock_json_row(list->rows[i]))
            != 0)
        {
            json_decref(locks);
            return NULL;
        }
    }

    if (list->above > list->n) {
        cursor = json_integer(list->rows[list->n - 1]->lock.handle.token);

    } else {
        cursor = json_null();
    }

    return json_pack("{s:s%, s:I, s:o, s:o}",
                     "zone", list->zone->name.data, list->zone->name.len,
                     "matched", (json_int_t) list->matched,
                     "cursor", cursor,
                     "locks", locks);
}


static json_t *
ngx_http_vibelock_json_row(ngx_http_vibelock_list_row_t *row)
{
    u_char                     hex[2 * NGX_HTTP_VIBELOCK_LOG_OWNER];
    json_t                    *owner;
    ngx_http_vibelock_lock_t  *lock;

    lock = &row->lock;

    ngx_hex_dump(hex, lock->owner, NGX_HTTP_VIBELOCK_LOG_OWNER);
    owner = lock->owned ? json_stringn((char *) hex, sizeof(hex))
                        : json_null();

    return json_pack("{s:s%, s:I, s:s%, s:s, s:I, s:I, s:b, s:o}",
                     "key", row->key, row->len,
                     "token", (json_int_t) lock->handle.token,
                     "operation", lock->operation.data, lock->operation.len,
                     "state", ngx_http_vibelock_json_state(lock),
                     "ageMs", (json_int_t) lock->age,
                     "expiresInMs", (json_int_t) lock->rest,
                     "overrun", (int) lock->overrun,
                     "owner", owner);
}


static ngx_buf_t *
ngx_http_vibelock_json_text(ngx_http_request_t *r, json_t *data)
{
    char       *text;
    size_t      len;
    json_t     *json;
    ngx_buf_t  *b;

    json = json_pack("{s:b, s:o}", "success", 1, "data", data);
    text = json_dumps(json, JSON_COMPACT);

    json_decref(json);

    if (text == NULL) {
        return NULL;
    }

    len = ngx_strlen(text);

    b = ngx_create_temp_buf(r->pool, len);
    if (b) {
        b->last = ngx_cpymem(b->last, text, len);
    }

    free(text);

    return b;
}
