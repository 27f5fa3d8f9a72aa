
/*
 * Copyright (C) the vibelock authors
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_vibelock_cells.h"
#include "ngx_http_vibelock_log.h"
#include "ngx_http_vibelock_plain.h"
#include "ngx_http_vibelock_queue.h"
#include "ngx_http_vibelock_zone.h"


#define NGX_HTTP_VIBELOCK_ZONE_SWEEP   60000     /* ms */

/* a worker sweeps this soon after its start, and between two small steps */
#define NGX_HTTP_VIBELOCK_ZONE_SOON    1000      /* ms */
#define NGX_HTTP_VIBELOCK_ZONE_PAUSE   1         /* ms */

/* small steps that a worker does before it looks at its events again */
#define NGX_HTTP_VIBELOCK_ZONE_STEPS   16

/* the queue of the bus gets one part of a zone in so many, at most */
#define NGX_HTTP_VIBELOCK_ZONE_QUEUE   8


/* in shared memory, beside the table */

typedef struct {
    ngx_atomic_t               counters[NGX_HTTP_VIBELOCK_N_LAST];
    ngx_atomic_t               logged[NGX_HTTP_VIBELOCK_ONCE_LAST];
    ngx_atomic_t               unread;     /* registries; in the first zone */
} ngx_http_vibelock_shared_t;


static ngx_int_t ngx_http_vibelock_zone_parameters(ngx_conf_t *cf,
    ngx_str_t *name, ssize_t *size, ngx_msec_t *sweep);
static ngx_int_t ngx_http_vibelock_zone_size(ngx_conf_t *cf,
    ngx_str_t *parameter, ngx_str_t *name, ssize_t *size);
static ngx_int_t ngx_http_vibelock_zone_sweep(ngx_conf_t *cf,
    ngx_str_t *parameter, ngx_msec_t *sweep);
static ngx_int_t ngx_http_vibelock_zone_compile(ngx_conf_t *cf,
    ngx_http_vibelock_zone_t *zone);
static ngx_int_t ngx_http_vibelock_zone_variable(ngx_conf_t *cf,
    ngx_str_t *key);
static ngx_http_vibelock_zone_t *ngx_http_vibelock_zone_named(ngx_conf_t *cf,
    ngx_http_vibelock_zones_t *zones, ngx_str_t *name);
static void ngx_http_vibelock_zones_defined(ngx_conf_t *cf,
    ngx_http_vibelock_zones_t *zones, ngx_str_t *text);
static ngx_int_t ngx_http_vibelock_zone_init(ngx_shm_zone_t *shm_zone,
    void *data);
static size_t ngx_http_vibelock_zone_bus_size(ngx_http_vibelock_zone_t *zone);
static ngx_int_t ngx_http_vibelock_zone_resized(ngx_shm_zone_t *shm_zone);
static ngx_int_t ngx_http_vibelock_zone_operations(
    ngx_http_vibelock_zone_t *zone, ngx_log_t *log);
static void ngx_http_vibelock_zone_timer(ngx_event_t *ev);
static void ngx_http_vibelock_zone_orphan(ngx_http_vibelock_lock_t *lock,
    ngx_str_t *key, void *data);
static ngx_uint_t ngx_http_vibelock_zone_utf8(ngx_str_t *text);


/* its address is what tells our shared memory from that of other modules */
static ngx_uint_t  ngx_http_vibelock_zone_tag;


#define ngx_http_vibelock_zone_shared(zone)                                   \
    ((ngx_http_vibelock_shared_t *)                                           \
         ngx_http_vibelock_table_reserved((zone)->table))


ngx_int_t
ngx_http_vibelock_zones_init(ngx_conf_t *cf, ngx_http_vibelock_zones_t *zones)
{
    return ngx_array_init(&zones->list, cf->pool, 4,
                          sizeof(ngx_http_vibelock_zone_t *));
}


char *
ngx_http_vibelock_zone_set(ngx_conf_t *cf, ngx_http_vibelock_zones_t *zones)
{
    ssize_t                    size;
    ngx_str_t                  name;
    ngx_msec_t                 sweep;
    ngx_shm_zone_t            *shm_zone;
    ngx_http_vibelock_zone_t  *zone;

    if (ngx_http_vibelock_zone_parameters(cf, &name, &size, &sweep) != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    zone = ngx_http_vibelock_zone_named(cf, zones, &name);
    if (zone == NULL) {
        return NGX_CONF_ERROR;
    }

    if (zone->shm_zone) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"vibelock_zone\" \"%V\" is defined twice, first "
                           "with the key \"%V\"; give the second one another "
                           "name", &name, &zone->key.value);
        return NGX_CONF_ERROR;
    }

    if (ngx_http_vibelock_zone_compile(cf, zone) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    shm_zone = ngx_shared_memory_add(cf, &name, size,
                                     &ngx_http_vibelock_zone_tag);
    if (shm_zone == NULL) {
        return NGX_CONF_ERROR;
    }

    shm_zone->init = ngx_http_vibelock_zone_init;
    shm_zone->data = zone;

    zone->shm_zone = shm_zone;
    zone->sweep = sweep;

    return NGX_CONF_OK;
}


/* what follows the key; "sweep" is in ms */

static ngx_int_t
ngx_http_vibelock_zone_parameters(ngx_conf_t *cf, ngx_str_t *name,
    ssize_t *size, ngx_msec_t *sweep)
{
    ngx_str_t   *value;
    ngx_uint_t   i;

    value = cf->args->elts;

    ngx_str_null(name);
    *size = 0;
    *sweep = 0;

    for (i = 2; i < cf->args->nelts; i++) {

        if (ngx_strncmp(value[i].data, "zone=", 5) == 0) {

            if (name->len) {
                goto duplicate;
            }

            if (ngx_http_vibelock_zone_size(cf, &value[i], name, size)
                != NGX_OK)
            {
                return NGX_ERROR;
            }

            continue;
        }

        if (ngx_strncmp(value[i].data, "sweep=", 6) == 0) {

            if (*sweep) {
                goto duplicate;
            }

            if (ngx_http_vibelock_zone_sweep(cf, &value[i], sweep) != NGX_OK) {
                return NGX_ERROR;
            }

            continue;
        }

        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid parameter \"%V\" in \"vibelock_zone\", "
                           "it takes \"zone=<name>:<size>\" and "
                           "\"sweep=<time>\"", &value[i]);
        return NGX_ERROR;
    }

    if (name->len == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"vibelock_zone\" must have a parameter "
                           "\"zone=<name>:<size>\", as in \"zone=ops:10m\"");
        return NGX_ERROR;
    }

    if (*sweep == 0) {
        *sweep = NGX_HTTP_VIBELOCK_ZONE_SWEEP;
    }

    return NGX_OK;

duplicate:

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "\"vibelock_zone\" has one parameter twice, the second "
                       "time as \"%V\": it must be given once", &value[i]);

    return NGX_ERROR;
}


static ngx_int_t
ngx_http_vibelock_zone_size(ngx_conf_t *cf, ngx_str_t *parameter,
    ngx_str_t *name, ssize_t *size)
{
    u_char     *p;
    ngx_str_t   s;

    name->data = parameter->data + 5;

    p = (u_char *) ngx_strchr(name->data, ':');

    if (p == NULL || p == name->data) {
        goto invalid;
    }

    name->len = p - name->data;

    if (!ngx_http_vibelock_zone_utf8(name)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "the name of the zone in \"%V\" of "
                           "\"vibelock_zone\" must be UTF-8", parameter);
        return NGX_ERROR;
    }

    s.data = p + 1;
    s.len = parameter->data + parameter->len - s.data;

    *size = ngx_parse_size(&s);

    if (*size == NGX_ERROR) {
        goto invalid;
    }

    if (*size < (ssize_t) (8 * ngx_pagesize)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"vibelock_zone\" with \"%V\" is too small, it "
                           "must be %uz bytes at least", parameter,
                           8 * ngx_pagesize);
        return NGX_ERROR;
    }

    return NGX_OK;

invalid:

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "invalid parameter \"%V\" in \"vibelock_zone\", it "
                       "must be \"zone=<name>:<size>\" with a size in \"k\" "
                       "or \"m\", as in \"zone=ops:10m\"", parameter);
    return NGX_ERROR;
}


static ngx_int_t
ngx_http_vibelock_zone_sweep(ngx_conf_t *cf, ngx_str_t *parameter,
    ngx_msec_t *sweep)
{
    ngx_int_t  time;
    ngx_str_t  s;

    s.data = parameter->data + 6;
    s.len = parameter->len - 6;

    time = ngx_parse_time(&s, 0);

    if (time == NGX_ERROR || time == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid parameter \"%V\" in \"vibelock_zone\", it "
                           "must be a time above 0, as in \"sweep=60s\"",
                           parameter);
        return NGX_ERROR;
    }

    *sweep = time;

    return NGX_OK;
}


/* makes ready what a request's key is made by */

static ngx_int_t
ngx_http_vibelock_zone_compile(ngx_conf_t *cf, ngx_http_vibelock_zone_t *zone)
{
    ngx_str_t                         *value;
    ngx_http_compile_complex_value_t   ccv;

    value = cf->args->elts;

    if (value[1].len == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"vibelock_zone\" \"%V\" has an empty key, with "
                           "which nothing is locked; it must name what is "
                           "locked, as in \"$server_id\"", &zone->name);
        return NGX_ERROR;
    }

    ngx_memzero(&ccv, sizeof(ngx_http_compile_complex_value_t));

    ccv.cf = cf;
    ccv.value = &value[1];
    ccv.complex_value = &zone->key;

    if (ngx_http_compile_complex_value(&ccv) != NGX_OK) {
        return NGX_ERROR;
    }

    if (zone->key.lengths == NULL) {
        ngx_conf_log_error(NGX_LOG_WARN, cf, 0,
                           "the key \"%V\" of \"vibelock_zone\" \"%V\" has "
                           "no variable, so all its requests share one lock; "
                           "write \"$%V\" if a variable is meant",
                           &value[1], &zone->name, &value[1]);
    }

    zone->variable = ngx_http_vibelock_zone_variable(cf, &value[1]);

    return NGX_OK;
}


/*
 * The index of the variable that a key consists of, NGX_ERROR when it is more
 * than a variable.
 */

static ngx_int_t
ngx_http_vibelock_zone_variable(ngx_conf_t *cf, ngx_str_t *key)
{
    u_char      ch;
    size_t      i;
    ngx_str_t   name;

    if (key->len < 2 || key->data[0] != '$') {
        return NGX_ERROR;
    }

    name.data = key->data + 1;
    name.len = key->len - 1;

    /* $1 is no variable */

    if (name.data[0] >= '0' && name.data[0] <= '9') {
        return NGX_ERROR;
    }

    for (i = 0; i < name.len; i++) {
        ch = name.data[i];

        if ((ch < 'a' || ch > 'z')
            && (ch < 'A' || ch > 'Z')
            && (ch < '0' || ch > '9')
            && ch != '_')
        {
            return NGX_ERROR;
        }
    }

    return ngx_http_get_variable_index(cf, &name);
}


ngx_http_vibelock_zone_t *
ngx_http_vibelock_zone_get(ngx_conf_t *cf, ngx_http_vibelock_zones_t *zones,
    ngx_str_t *parameter)
{
    ngx_str_t  name, *value;

    value = cf->args->elts;

    if (parameter->len <= 5
        || ngx_strncmp(parameter->data, "zone=", 5) != 0
        || ngx_strchr(parameter->data, ':') != NULL)
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid parameter \"%V\" in \"%V\", it must be "
                           "\"zone=<name>\" with the name of a "
                           "\"vibelock_zone\"", parameter, &value[0]);
        return NULL;
    }

    name.data = parameter->data + 5;
    name.len = parameter->len - 5;

    return ngx_http_vibelock_zone_named(cf, zones, &name);
}


ngx_http_vibelock_zone_t *
ngx_http_vibelock_zone_find(ngx_http_vibelock_zones_t *zones, ngx_str_t *name)
{
    ngx_uint_t                  i;
    ngx_http_vibelock_zone_t  **zone;

    zone = zones->list.elts;

    for (i = 0; i < zones->list.nelts; i++) {
        if (zone[i]->name.len == name->len
            && ngx_strncmp(zone[i]->name.data, name->data, name->len) == 0)
        {
            return zone[i];
        }
    }

    return NULL;
}


static ngx_http_vibelock_zone_t *
ngx_http_vibelock_zone_named(ngx_conf_t *cf, ngx_http_vibelock_zones_t *zones,
    ngx_str_t *name)
{
    ngx_http_vibelock_zone_t  *zone, **zp;

    zone = ngx_http_vibelock_zone_find(zones, name);

    if (zone) {
        return zone;
    }

    zone = ngx_pcalloc(cf->pool, sizeof(ngx_http_vibelock_zone_t));
    if (zone == NULL) {
        return NULL;
    }

    zone->name = *name;
    zone->file = cf->conf_file->file.name;
    zone->line = cf->conf_file->line;

    if (ngx_array_init(&zone->operations, cf->pool, 4,
                       sizeof(ngx_http_vibelock_operation_t *))
        != NGX_OK)
    {
        return NULL;
    }

    zp = ngx_array_push(&zones->list);
    if (zp == NULL) {
        return NULL;
    }

    *zp = zone;

    return zone;
}


ngx_http_vibelock_operation_t *
ngx_http_vibelock_zone_operation(ngx_conf_t *cf,
    ngx_http_vibelock_zone_t *zone, ngx_str_t *name)
{
    ngx_uint_t                       i;
    ngx_http_vibelock_operation_t   *op, **opp;

    opp = zone->operations.elts;

    for (i = 0; i < zone->operations.nelts; i++) {
        if (opp[i]->name.len == name->len
            && ngx_strncmp(opp[i]->name.data, name->data, name->len) == 0)
        {
            return opp[i];
        }
    }

    op = ngx_pcalloc(cf->pool, sizeof(ngx_http_vibelock_operation_t));
    if (op == NULL) {
        return NULL;
    }

    op->name = *name;

    opp = ngx_array_push(&zone->operations);
    if (opp == NULL) {
        return NULL;
    }

    *opp = op;

    return op;
}


char *
ngx_http_vibelock_zones_check(ngx_conf_t *cf,
    ngx_http_vibelock_zones_t *zones)
{
    ngx_str_t                   defined;
    ngx_uint_t                  i;
    ngx_http_vibelock_zone_t  **zone;

    zone = zones->list.elts;

    for (i = 0; i < zones->list.nelts; i++) {
        if (zone[i]->shm_zone == NULL) {
            ngx_http_vibelock_zones_defined(cf, zones, &defined);

            ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                          "no \"vibelock_zone\" defines the zone \"%V\" that "
                          "is used (defined: %V); add \"vibelock_zone <key> "
                          "zone=%V:<size>;\" to http, or correct the name in "
                          "%V:%ui", &zone[i]->name, &defined, &zone[i]->name,
                          &zone[i]->file, zone[i]->line);
            return NGX_CONF_ERROR;
        }
    }

    return NGX_CONF_OK;
}


/* the names of those that are defined, for people */

static void
ngx_http_vibelock_zones_defined(ngx_conf_t *cf,
    ngx_http_vibelock_zones_t *zones, ngx_str_t *text)
{
    size_t                      size;
    u_char                     *p;
    ngx_uint_t                  i;
    ngx_http_vibelock_zone_t  **zone;

    zone = zones->list.elts;
    size = 0;

    for (i = 0; i < zones->list.nelts; i++) {
        size += zone[i]->name.len + sizeof(", \"\"") - 1;
    }

    ngx_str_set(text, "none");

    p = ngx_pnalloc(cf->pool, size);
    if (p == NULL) {
        return;
    }

    text->data = p;

    for (i = 0; i < zones->list.nelts; i++) {
        if (zone[i]->shm_zone) {
            p = ngx_sprintf(p, "%s\"%V\"", (p > text->data) ? ", " : "",
                            &zone[i]->name);
        }
    }

    text->len = p - text->data;

    if (text->len == 0) {
        ngx_str_set(text, "none");
    }
}


static ngx_int_t
ngx_http_vibelock_zone_init(ngx_shm_zone_t *shm_zone, void *data)
{
    ngx_http_vibelock_zone_t  *ozone = data;

    ngx_slab_pool_t           *shpool;
    ngx_http_vibelock_zone_t  *zone;

    zone = shm_zone->data;

    if (ozone) {
        if (zone->key.value.len != ozone->key.value.len
            || ngx_strncmp(zone->key.value.data, ozone->key.value.data,
                           zone->key.value.len)
               != 0)
        {
            ngx_log_error(NGX_LOG_EMERG, shm_zone->shm.log, 0,
                          "\"vibelock_zone\" \"%V\" has the key \"%V\" while "
                          "its locks were taken with \"%V\"; restart nginx "
                          "to change the key, which frees all locks",
                          &zone->name, &zone->key.value, &ozone->key.value);
            return NGX_ERROR;
        }

        zone->table = ozone->table;

        return ngx_http_vibelock_zone_operations(zone, shm_zone->shm.log);
    }

    if (ngx_http_vibelock_zone_resized(shm_zone) != NGX_OK) {
        return NGX_ERROR;
    }

    shpool = (ngx_slab_pool_t *) shm_zone->shm.addr;

    if (shm_zone->shm.exists) {
        zone->table = shpool->data;
        return ngx_http_vibelock_zone_operations(zone, shm_zone->shm.log);
    }

    shpool->log_nomem = 0;

    zone->table = ngx_http_vibelock_table_create(shpool,
                                       sizeof(ngx_http_vibelock_shared_t)
                                       + ngx_http_vibelock_zone_bus_size(zone));

    if (zone->table == NULL) {
        ngx_log_error(NGX_LOG_EMERG, shm_zone->shm.log, 0,
                      "\"vibelock_zone\" \"%V\" of %uz bytes is too small",
                      &zone->name, shm_zone->shm.size);
        return NGX_ERROR;
    }

    shpool->data = zone->table;

    return ngx_http_vibelock_zone_operations(zone, shm_zone->shm.log);
}


static size_t
ngx_http_vibelock_zone_bus_size(ngx_http_vibelock_zone_t *zone)
{
    return NGX_HTTP_VIBELOCK_ZONE_STATE
           + ngx_min(ngx_http_vibelock_queue_size(),
                     zone->shm_zone->shm.size / NGX_HTTP_VIBELOCK_ZONE_QUEUE);
}


void *
ngx_http_vibelock_zone_bus(ngx_http_vibelock_zone_t *zone, size_t *size)
{
    *size = ngx_http_vibelock_zone_bus_size(zone);

    return ngx_http_vibelock_zone_shared(zone) + 1;
}


ngx_slab_pool_t *
ngx_http_vibelock_zone_pool(ngx_http_vibelock_zone_t *zone)
{
    return (ngx_slab_pool_t *) zone->shm_zone->shm.addr;
}


/*
 * A zone of another size is other memory: the workers that still finish would
 * lock in one, and the new ones in the other.
 */

static ngx_int_t
ngx_http_vibelock_zone_resized(ngx_shm_zone_t *shm_zone)
{
    ngx_uint_t        i;
    ngx_shm_zone_t   *old;
    ngx_list_part_t  *part;

    part = (ngx_list_part_t *) &ngx_cycle->shared_memory.part;
    old = part->elts;

    for (i = 0; /* void */ ; i++) {

        if (i >= part->nelts) {
            if (part->next == NULL) {
                return NGX_OK;
            }

            part = part->next;
            old = part->elts;
            i = 0;
        }

        if (old[i].tag == shm_zone->tag
            && &old[i] != shm_zone
            && old[i].shm.size != shm_zone->shm.size
            && old[i].shm.name.len == shm_zone->shm.name.len
            && ngx_strncmp(old[i].shm.name.data, shm_zone->shm.name.data,
                           shm_zone->shm.name.len)
               == 0)
        {
            ngx_log_error(NGX_LOG_EMERG, shm_zone->shm.log, 0,
                          "\"vibelock_zone\" \"%V\" has %uz bytes while its "
                          "locks are held in %uz; restart nginx to change "
                          "the size, which frees all locks",
                          &shm_zone->shm.name, shm_zone->shm.size,
                          old[i].shm.size);
            return NGX_ERROR;
        }
    }
}


static ngx_int_t
ngx_http_vibelock_zone_operations(ngx_http_vibelock_zone_t *zone,
    ngx_log_t *log)
{
    ngx_uint_t                       i;
    ngx_http_vibelock_operation_t  **op;

    op = zone->operations.elts;

    for (i = 0; i < zone->operations.nelts; i++) {

        op[i]->number = ngx_http_vibelock_table_operation(zone->table,
                                                          &op[i]->name);

        if (op[i]->number == NGX_HTTP_VIBELOCK_NONE) {
            ngx_log_error(NGX_LOG_EMERG, log, 0,
                          "\"vibelock_zone\" \"%V\" is full and has no room "
                          "for the operation \"%V\"; try again when locks "
                          "were freed", &zone->name, &op[i]->name);
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


void
ngx_http_vibelock_zones_start(ngx_http_vibelock_zones_t *zones,
    ngx_cycle_t *cycle)
{
    /* what nginx looks for a file descriptor in when it logs a timer */
    static ngx_connection_t     dummy;

    ngx_uint_t                  i;
    ngx_event_t                *ev;
    ngx_http_vibelock_zone_t  **zone;

    dummy.fd = (ngx_socket_t) -1;

    zone = zones->list.elts;

    for (i = 0; i < zones->list.nelts; i++) {

        ngx_http_vibelock_table_enter(zone[i]->table);

        ev = &zone[i]->timer;

        ngx_memzero(ev, sizeof(ngx_event_t));

        ev->handler = ngx_http_vibelock_zone_timer;
        ev->data = &dummy;
        ev->log = cycle->log;
        ev->cancelable = 1;

        ngx_add_timer(ev, ngx_min(zone[i]->sweep,
                                  NGX_HTTP_VIBELOCK_ZONE_SOON));
    }
}


void
ngx_http_vibelock_zones_stop(ngx_http_vibelock_zones_t *zones)
{
    ngx_uint_t                  i;
    ngx_http_vibelock_zone_t  **zone;

    zone = zones->list.elts;

    for (i = 0; i < zones->list.nelts; i++) {

        if (zone[i]->timer.timer_set) {
            ngx_del_timer(&zone[i]->timer);
        }

        ngx_http_vibelock_table_leave(zone[i]->table);
    }
}


static void
ngx_http_vibelock_zone_timer(ngx_event_t *ev)
{
    ngx_int_t                  swept, searched;
    ngx_uint_t                 i;
    ngx_http_vibelock_zone_t  *zone;

    zone = (ngx_http_vibelock_zone_t *)
               ((u_char *) ev - offsetof(ngx_http_vibelock_zone_t, timer));

    if (!zone->sweeping) {
        ngx_http_vibelock_table_reap(zone->table);
    }

    i = 0;

    do {
        searched = ngx_http_vibelock_table_search(zone->table,
                                                ngx_http_vibelock_zone_orphan,
                                                zone);
        swept = ngx_http_vibelock_table_sweep(zone->table);

        zone->sweeping = (searched == NGX_AGAIN || swept == NGX_AGAIN);

    } while (zone->sweeping && ++i < NGX_HTTP_VIBELOCK_ZONE_STEPS);

    ngx_add_timer(ev, zone->sweeping ? NGX_HTTP_VIBELOCK_ZONE_PAUSE
                                     : zone->sweep);
}


static void
ngx_http_vibelock_zone_orphan(ngx_http_vibelock_lock_t *lock, ngx_str_t *key,
    void *data)
{
    ngx_http_vibelock_zone_t  *zone = data;

    ngx_http_vibelock_zone_count(zone, NGX_HTTP_VIBELOCK_N_ORPHANED);

    ngx_http_vibelock_log_lock(NGX_LOG_WARN, zone->timer.log, "is stuck",
                               "its worker is gone", &zone->name, key, lock);
}


ngx_int_t
ngx_http_vibelock_zone_key(ngx_http_request_t *r,
    ngx_http_vibelock_zone_t *zone, ngx_str_t *key)
{
    ngx_http_variable_value_t  *value;

    if (zone->variable != NGX_ERROR) {

        /* without a copy: it lasts as long as its request */

        value = ngx_http_get_flushed_variable(r, zone->variable);

        if (value == NULL || value->not_found) {
            return NGX_DECLINED;
        }

        key->data = value->data;
        key->len = value->len;

    } else if (ngx_http_complex_value(r, &zone->key, key) != NGX_OK) {
        return NGX_ERROR;
    }

    if (key->len == 0) {
        return NGX_DECLINED;
    }

    if (key->len > NGX_HTTP_VIBELOCK_KEY_MAX
        || !ngx_http_vibelock_zone_utf8(key))
    {
        return NGX_ABORT;
    }

    return NGX_OK;
}


static ngx_uint_t
ngx_http_vibelock_zone_utf8(ngx_str_t *text)
{
    u_char    *p, *last;
    uint64_t   all, eight;

    p = text->data;
    last = p + text->len;

    /* most keys are ASCII all through */

    for (all = 0; last - p >= 8; p += 8) {
        ngx_memcpy(&eight, p, 8);
        all |= eight;
    }

    if (text->len >= 8) {
        ngx_memcpy(&eight, last - 8, 8);
        all |= eight;

        if ((all & 0x8080808080808080ULL) == 0) {
            return 1;
        }

        p = text->data;
    }

    while (p < last) {

        if (*p < 0x80) {
            p++;
            continue;
        }

        p = ngx_http_vibelock_plain_utf8(p, last);

        if (p == NULL) {
            return 0;
        }
    }

    return 1;
}


void
ngx_http_vibelock_zone_count(ngx_http_vibelock_zone_t *zone,
    ngx_http_vibelock_counter_e counter)
{
    ngx_http_vibelock_shared_t  *shared;

    shared = ngx_http_vibelock_zone_shared(zone);

    (void) ngx_atomic_fetch_add(&shared->counters[counter], 1);
}


ngx_uint_t
ngx_http_vibelock_zone_counted(ngx_http_vibelock_zone_t *zone,
    ngx_http_vibelock_counter_e counter)
{
    return ngx_http_vibelock_zone_shared(zone)->counters[counter];
}


ngx_atomic_t *
ngx_http_vibelock_zones_unread(ngx_http_vibelock_zones_t *zones)
{
    ngx_http_vibelock_zone_t  **zone;

    if (zones->list.nelts == 0) {
        return NULL;
    }

    zone = zones->list.elts;

    return &ngx_http_vibelock_zone_shared(zone[0])->unread;
}


ngx_uint_t
ngx_http_vibelock_zone_once(ngx_http_vibelock_zone_t *zone,
    ngx_http_vibelock_once_e line)
{
    ngx_http_vibelock_shared_t  *shared;

    shared = ngx_http_vibelock_zone_shared(zone);

    return ngx_http_vibelock_log_once(&shared->logged[line]);
}
