
/*
 * Copyright (C) the vibelock authors
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_vibelock_bus.h"
#include "ngx_http_vibelock_log.h"
#include "ngx_http_vibelock_record.h"
#include "ngx_http_vibelock_release.h"


static ngx_uint_t ngx_http_vibelock_release_same(
    ngx_http_vibelock_lock_t *lock, void *data);


ngx_uint_t
ngx_http_vibelock_release(ngx_http_request_t *r,
    ngx_http_vibelock_release_t *release)
{
    ngx_http_vibelock_lock_t     lock;
    ngx_http_vibelock_zone_t    *zone;
    ngx_http_vibelock_record_t  *record;

    zone = release->zone;
    record = ngx_http_vibelock_record_get(r);

    /* on other replicas the lock may be held when it is not here */

    if (release->caller.owned) {
        ngx_http_vibelock_bus_publish(zone, &release->key,
                                      release->caller.owner, release->moment);
    }

    if (release->lock.handle.token == 0
        || ngx_http_vibelock_table_break(zone->table, &release->key,
                                         ngx_http_vibelock_release_same,
                                         &release->lock, &lock)
           != NGX_OK)
    {
        if (record) {
            record->result = NGX_HTTP_VIBELOCK_ABSENT;
        }

        return 0;
    }

    release->lock = lock;

    if (record) {
        record->result = NGX_HTTP_VIBELOCK_BROKEN;
        record->operation = lock.operation;
        record->token = lock.handle.token;
        record->age = lock.age;
        record->aged = 1;
    }

    ngx_http_vibelock_zone_count(zone, NGX_HTTP_VIBELOCK_N_BROKEN);

    ngx_http_vibelock_log_lock(release->log_level, r->connection->log,
                               "is broken", release->why, &zone->name,
                               &release->key, &lock);

    return 1;
}


static ngx_uint_t
ngx_http_vibelock_release_same(ngx_http_vibelock_lock_t *lock, void *data)
{
    ngx_http_vibelock_lock_t  *found = data;

    return lock->handle.token == found->handle.token;
}
