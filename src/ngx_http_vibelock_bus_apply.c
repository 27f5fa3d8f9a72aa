
/*
 * Copyright (C) the vibelock authors
 *
 * Applying: what an entry that was read does to the locks here.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_vibelock_bus_inner.h"
#include "ngx_http_vibelock_entry.h"
#include "ngx_http_vibelock_log.h"


/* a lock has to be older than the release by more than this, ms */
#define NGX_HTTP_VIBELOCK_BUS_MARGIN  50

/* later than any clock says, and far from where a difference overflows, ms */
#define NGX_HTTP_VIBELOCK_BUS_NEVER   ((uint64_t) 1 << 52)


typedef struct {
    u_char                         *owner;
    ngx_uint_t                      given;    /* the server is the owner's */
    int64_t                         ago;      /* the release, ms */
    ngx_http_vibelock_bus_skip_e    skip;     /* why not */
} ngx_http_vibelock_bus_release_t;


static ngx_uint_t ngx_http_vibelock_bus_apply_mine(
    ngx_http_vibelock_bus_zone_t *bz, u_char *data, size_t len);
static ngx_uint_t ngx_http_vibelock_bus_apply_own(
    ngx_http_vibelock_bus_zone_t *bz, ngx_http_vibelock_entry_t *entry);
static ngx_uint_t ngx_http_vibelock_bus_apply_given(
    ngx_http_vibelock_bus_zone_t *bz, ngx_str_t *key, u_char *owner);
static int64_t ngx_http_vibelock_bus_apply_now(
    ngx_http_vibelock_bus_zone_t *bz);
static ngx_uint_t ngx_http_vibelock_bus_apply_may(
    ngx_http_vibelock_lock_t *lock, void *data);


/* in the order of ngx_http_vibelock_bus_skip_e, for those that are logged */

static struct {
    ngx_http_vibelock_bus_once_e  once;
    char                         *what;
} ngx_http_vibelock_bus_skips[] = {
    { NGX_HTTP_VIBELOCK_BUS_ONCE_MALFORMED, "it is malformed" },
    { NGX_HTTP_VIBELOCK_BUS_ONCE_VERSION, "it is of another version" },
    { NGX_HTTP_VIBELOCK_BUS_ONCE_TOO_LARGE, "it is over 4 kB" }
};


void
ngx_http_vibelock_bus_apply(ngx_http_vibelock_bus_zone_t *bz,
    ngx_http_vibelock_bus_id_t *id, u_char *data, size_t len)
{
    uint64_t                         at;
    ngx_str_t                        key;
    ngx_http_vibelock_lock_t         lock;
    ngx_http_vibelock_entry_t        entry;
    ngx_http_vibelock_bus_release_t  release;

    if (ngx_http_vibelock_bus_apply_mine(bz, data, len)) {
        ngx_http_vibelock_bus_apply_skip(bz, id, NGX_HTTP_VIBELOCK_BUS_OWN);
        return;
    }

    switch (ngx_http_vibelock_entry_decode(&entry, data, len)) {

    case NGX_HTTP_VIBELOCK_ENTRY_OK:
        break;

    case NGX_HTTP_VIBELOCK_ENTRY_VERSION:
        ngx_http_vibelock_bus_apply_skip(bz, id,
                                         NGX_HTTP_VIBELOCK_BUS_VERSION);
        return;

    case NGX_HTTP_VIBELOCK_ENTRY_TOO_LARGE:
        ngx_http_vibelock_bus_apply_skip(bz, id,
                                         NGX_HTTP_VIBELOCK_BUS_TOO_LARGE);
        return;

    default: /* NGX_HTTP_VIBELOCK_ENTRY_MALFORMED */
        ngx_http_vibelock_bus_apply_skip(bz, id,
                                         NGX_HTTP_VIBELOCK_BUS_MALFORMED);
        return;
    }

    if (ngx_http_vibelock_bus_apply_own(bz, &entry)) {
        ngx_http_vibelock_bus_apply_skip(bz, id, NGX_HTTP_VIBELOCK_BUS_OWN);
        return;
    }

    key.data = entry.key;
    key.len = entry.key_len;

    at = ngx_min(entry.at, id->ms);
    at = ngx_min(at, NGX_HTTP_VIBELOCK_BUS_NEVER);

    release.owner = entry.owner;
    release.given = ngx_http_vibelock_bus_apply_given(bz, &key, entry.owner);
    release.ago = ngx_http_vibelock_bus_apply_now(bz) - (int64_t) at;
    release.skip = NGX_HTTP_VIBELOCK_BUS_NO_LOCK;

    if (ngx_http_vibelock_table_break(bz->zone->table, &key,
                                      ngx_http_vibelock_bus_apply_may,
                                      &release, &lock)
        != NGX_OK)
    {
        ngx_http_vibelock_bus_apply_skip(bz, id, release.skip);
        return;
    }

    ngx_http_vibelock_bus_share_count(bz->share,
                                      NGX_HTTP_VIBELOCK_BUS_N_APPLIED);

    ngx_http_vibelock_log_lock(NGX_LOG_WARN, bz->bus->log, "is broken",
                               "by the bus", &bz->zone->name, &key, &lock);
}


/*
 * Our own entries need not be read to be known: this is how they end.
 */

static ngx_uint_t
ngx_http_vibelock_bus_apply_mine(ngx_http_vibelock_bus_zone_t *bz,
    u_char *data, size_t len)
{
    u_char  *end;
    size_t   n;

    n = NGX_HTTP_VIBELOCK_BUS_UNIQUE + 1;

    if (len < n + 2 || len > NGX_HTTP_VIBELOCK_ENTRY_MAX) {
        return 0;
    }

    end = data + len - 2;

    return end[0] == '"'
           && end[1] == '}'
           && ngx_memcmp(end - n, bz->from.data + bz->from.len - n, n) == 0;
}


/*
 * By the part that the zone was given when it was made: the name before that
 * may have been changed since.
 */

static ngx_uint_t
ngx_http_vibelock_bus_apply_own(ngx_http_vibelock_bus_zone_t *bz,
    ngx_http_vibelock_entry_t *entry)
{
    size_t  len;

    len = NGX_HTTP_VIBELOCK_BUS_UNIQUE + 1;

    return entry->from_len > len
           && ngx_memcmp(entry->from + entry->from_len - len,
                         bz->from.data + bz->from.len - len, len)
              == 0;
}


static ngx_uint_t
ngx_http_vibelock_bus_apply_given(ngx_http_vibelock_bus_zone_t *bz,
    ngx_str_t *key, u_char *owner)
{
    ngx_http_vibelock_server_t  *server;

    if (bz->bus->registry == NULL) {
        return 0;
    }

    server = ngx_http_vibelock_registry_server(bz->bus->registry, key);

    return server
           && ngx_memcmp(server->account->owner, owner,
                         NGX_HTTP_VIBELOCK_OWNER_LEN)
              == 0;
}


/*
 * By the clock that entries are of.  One that may have been read before may be
 * of a clock that was ahead of the one there is now: by that, it would be later
 * than it was, and than a lock that was taken since.
 */

static int64_t
ngx_http_vibelock_bus_apply_now(ngx_http_vibelock_bus_zone_t *bz)
{
    int64_t  offset;

    offset = bz->bus->reader.offset;

    if (bz->share->again) {
        offset = ngx_max(offset, bz->share->ahead);
    }

    return (int64_t) ngx_current_msec + offset;
}


/* asked with the zone's mutex held */

static ngx_uint_t
ngx_http_vibelock_bus_apply_may(ngx_http_vibelock_lock_t *lock, void *data)
{
    ngx_http_vibelock_bus_release_t  *release = data;

    if (!release->given
        && !(lock->owned
             && ngx_memcmp(lock->owner, release->owner,
                           NGX_HTTP_VIBELOCK_OWNER_LEN)
                == 0))
    {
        release->skip = NGX_HTTP_VIBELOCK_BUS_OTHER_OWNER;
        return 0;
    }

    /*
     * one that is still to come is of when the clock of Redis was wrong, and
     * when that was is not known: it may be read again long after; by less, it
     * is of this moment at the latest
     */

    if (release->ago < -NGX_HTTP_VIBELOCK_BUS_AHEAD
        || (int64_t) lock->age - ngx_max(release->ago, 0)
           <= NGX_HTTP_VIBELOCK_BUS_MARGIN)
    {
        release->skip = NGX_HTTP_VIBELOCK_BUS_YOUNG;
        return 0;
    }

    return 1;
}


void
ngx_http_vibelock_bus_apply_skip(ngx_http_vibelock_bus_zone_t *bz,
    ngx_http_vibelock_bus_id_t *id, ngx_http_vibelock_bus_skip_e why)
{
    ngx_uint_t  i;

    ngx_http_vibelock_bus_share_count(bz->share,
                                      NGX_HTTP_VIBELOCK_BUS_N_SKIPPED + why);

    if (why < NGX_HTTP_VIBELOCK_BUS_MALFORMED) {
        return;
    }

    i = why - NGX_HTTP_VIBELOCK_BUS_MALFORMED;

    if (ngx_http_vibelock_bus_share_once(bz->share,
                                         ngx_http_vibelock_bus_skips[i].once))
    {
        ngx_log_error(NGX_LOG_WARN, bz->bus->log, 0,
                      "vibelock: entry %uL-%uL of \"%V\" is skipped: %s",
                      id->ms, id->seq, &bz->stream,
                      ngx_http_vibelock_bus_skips[i].what);
    }
}
