
/*
 * Copyright (C) the vibelock authors
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_vibelock_list.h"


/* locks of one page */
#define NGX_HTTP_VIBELOCK_LIST_DEFAULT  100
#define NGX_HTTP_VIBELOCK_LIST_MAX      250


static ngx_int_t ngx_http_vibelock_list_argument(ngx_http_request_t *r,
    char *name, ngx_str_t *value);
static ngx_int_t ngx_http_vibelock_list_zone(ngx_http_vibelock_zones_t *zones,
    ngx_str_t *name, ngx_http_vibelock_list_t *list, ngx_str_t *error);
static ngx_int_t ngx_http_vibelock_list_numbers(ngx_str_t *limit,
    ngx_str_t *cursor, ngx_http_vibelock_list_t *list, ngx_str_t *error);
static ngx_int_t ngx_http_vibelock_list_state(ngx_str_t *state,
    ngx_http_vibelock_list_t *list, ngx_str_t *error);
static ngx_int_t ngx_http_vibelock_list_rows(ngx_http_request_t *r,
    ngx_http_vibelock_list_t *list);
static ngx_uint_t ngx_http_vibelock_list_wants(ngx_http_vibelock_list_t *list,
    ngx_http_vibelock_lock_t *lock, ngx_str_t *key);
static void ngx_http_vibelock_list_rise(ngx_http_vibelock_list_row_t **rows,
    ngx_uint_t i);
static void ngx_http_vibelock_list_sink(ngx_http_vibelock_list_row_t **rows,
    ngx_uint_t n);


#define ngx_http_vibelock_list_token(row)  ((row)->lock.handle.token)


ngx_int_t
ngx_http_vibelock_list_create(ngx_http_request_t *r,
    ngx_http_vibelock_zones_t *zones, ngx_http_vibelock_list_t **listp,
    ngx_str_t *error)
{
    ngx_int_t                  rc;
    ngx_str_t                  zone, limit, cursor, state;
    ngx_http_vibelock_list_t  *list;

    list = ngx_pcalloc(r->pool, sizeof(ngx_http_vibelock_list_t));
    if (list == NULL) {
        return NGX_ERROR;
    }

    if (ngx_http_vibelock_list_argument(r, "zone", &zone) != NGX_OK
        || ngx_http_vibelock_list_argument(r, "limit", &limit) != NGX_OK
        || ngx_http_vibelock_list_argument(r, "cursor", &cursor) != NGX_OK
        || ngx_http_vibelock_list_argument(r, "state", &state) != NGX_OK
        || ngx_http_vibelock_list_argument(r, "operation", &list->operation)
           != NGX_OK
        || ngx_http_vibelock_list_argument(r, "key", &list->key) != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (zone.len + limit.len + cursor.len + state.len + list->operation.len
        + list->key.len
        == 0)
    {
        return NGX_DECLINED;
    }

    rc = ngx_http_vibelock_list_zone(zones, &zone, list, error);

    if (rc != NGX_OK) {
        return rc;
    }

    if (ngx_http_vibelock_list_numbers(&limit, &cursor, list, error) != NGX_OK
        || ngx_http_vibelock_list_state(&state, list, error) != NGX_OK)
    {
        return NGX_ABORT;
    }

    *listp = list;

    return ngx_http_vibelock_list_rows(r, list);
}


/* an argument without its %XX; empty where there is none */

static ngx_int_t
ngx_http_vibelock_list_argument(ngx_http_request_t *r, char *name,
    ngx_str_t *value)
{
    u_char     *dst, *src;
    ngx_str_t   escaped;

    if (ngx_http_arg(r, (u_char *) name, ngx_strlen(name), &escaped)
        != NGX_OK)
    {
        ngx_str_null(value);
        return NGX_OK;
    }

    value->data = ngx_pnalloc(r->pool, escaped.len + 1);
    if (value->data == NULL) {
        return NGX_ERROR;
    }

    src = escaped.data;
    dst = value->data;

    ngx_unescape_uri(&dst, &src, escaped.len, 0);

    value->len = dst - value->data;

    return NGX_OK;
}


static ngx_int_t
ngx_http_vibelock_list_zone(ngx_http_vibelock_zones_t *zones, ngx_str_t *name,
    ngx_http_vibelock_list_t *list, ngx_str_t *error)
{
    ngx_http_vibelock_zone_t  **zone;

    if (name->len == 0) {

        if (zones->list.nelts != 1) {
            ngx_str_set(error, "There is more than one zone, or none: name"
                               " it with the argument zone");
            return NGX_ABORT;
        }

        zone = zones->list.elts;
        list->zone = zone[0];

        return NGX_OK;
    }

    list->zone = ngx_http_vibelock_zone_find(zones, name);

    return list->zone ? NGX_OK : NGX_DONE;
}


static ngx_int_t
ngx_http_vibelock_list_numbers(ngx_str_t *limit, ngx_str_t *cursor,
    ngx_http_vibelock_list_t *list, ngx_str_t *error)
{
    off_t      above;
    ngx_int_t  n;

    list->limit = NGX_HTTP_VIBELOCK_LIST_DEFAULT;

    if (limit->len) {
        n = ngx_atoi(limit->data, limit->len);

        if (n < 1 || n > NGX_HTTP_VIBELOCK_LIST_MAX) {
            ngx_str_set(error, "The argument limit must be a whole number"
                               " from 1 to "
                               ngx_value(NGX_HTTP_VIBELOCK_LIST_MAX));
            return NGX_ABORT;
        }

        list->limit = n;
    }

    if (cursor->len) {
        above = ngx_atoof(cursor->data, cursor->len);

        if (above == NGX_ERROR) {
            ngx_str_set(error, "The argument cursor must be the cursor of"
                               " the page before");
            return NGX_ABORT;
        }

        list->cursor = above;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_vibelock_list_state(ngx_str_t *state, ngx_http_vibelock_list_t *list,
    ngx_str_t *error)
{
    if (state->len == 0) {
        list->state = NGX_HTTP_VIBELOCK_LIST_ANY;
        return NGX_OK;
    }

    if (state->len == 7 && ngx_strncmp(state->data, "running", 7) == 0) {
        list->state = NGX_HTTP_VIBELOCK_LIST_RUNNING;
        return NGX_OK;
    }

    if (state->len == 5 && ngx_strncmp(state->data, "stuck", 5) == 0) {
        list->state = NGX_HTTP_VIBELOCK_LIST_STUCK;
        return NGX_OK;
    }

    ngx_str_set(error, "The argument state must be running or stuck");

    return NGX_ABORT;
}


static ngx_int_t
ngx_http_vibelock_list_rows(ngx_http_request_t *r,
    ngx_http_vibelock_list_t *list)
{
    ngx_uint_t                     i;
    ngx_http_vibelock_list_row_t  *row;

    list->rows = ngx_palloc(r->pool, list->limit
                                     * sizeof(ngx_http_vibelock_list_row_t *));
    row = ngx_palloc(r->pool, list->limit
                              * sizeof(ngx_http_vibelock_list_row_t));

    if (list->rows == NULL || row == NULL) {
        return NGX_ERROR;
    }

    for (i = 0; i < list->limit; i++) {
        list->rows[i] = &row[i];
    }

    return NGX_OK;
}


/*
 * The rows are a heap with the greatest token first: the one that goes when
 * a smaller one comes.
 */

void
ngx_http_vibelock_list_add(ngx_http_vibelock_list_t *list,
    ngx_http_vibelock_lock_t *lock, ngx_str_t *key)
{
    ngx_uint_t                     full;
    ngx_http_vibelock_list_row_t  *row;

    if (!ngx_http_vibelock_list_wants(list, lock, key)) {
        return;
    }

    list->matched++;

    if (lock->handle.token <= list->cursor) {
        return;
    }

    list->above++;

    full = (list->n == list->limit);
    row = full ? list->rows[0] : list->rows[list->n];

    if (full && lock->handle.token > ngx_http_vibelock_list_token(row)) {
        return;
    }

    row->lock = *lock;
    row->len = key->len;
    ngx_memcpy(row->key, key->data, key->len);

    if (full) {
        ngx_http_vibelock_list_sink(list->rows, list->n);

    } else {
        ngx_http_vibelock_list_rise(list->rows, list->n++);
    }
}


static ngx_uint_t
ngx_http_vibelock_list_wants(ngx_http_vibelock_list_t *list,
    ngx_http_vibelock_lock_t *lock, ngx_str_t *key)
{
    size_t  i;

    if (list->state == NGX_HTTP_VIBELOCK_LIST_RUNNING && lock->stuck) {
        return 0;
    }

    if (list->state == NGX_HTTP_VIBELOCK_LIST_STUCK && !lock->stuck) {
        return 0;
    }

    if (list->operation.len
        && (list->operation.len != lock->operation.len
            || ngx_memcmp(list->operation.data, lock->operation.data,
                          lock->operation.len)
               != 0))
    {
        return 0;
    }

    if (list->key.len == 0) {
        return 1;
    }

    for (i = 0; i + list->key.len <= key->len; i++) {
        if (ngx_memcmp(key->data + i, list->key.data, list->key.len) == 0) {
            return 1;
        }
    }

    return 0;
}


void
ngx_http_vibelock_list_sort(ngx_http_vibelock_list_t *list)
{
    ngx_uint_t                      n;
    ngx_http_vibelock_list_row_t   *row, **rows;

    rows = list->rows;

    for (n = list->n; n > 1; n--) {
        row = rows[0];
        rows[0] = rows[n - 1];
        rows[n - 1] = row;

        ngx_http_vibelock_list_sink(rows, n - 1);
    }
}


/* lets the row at i rise to its place */

static void
ngx_http_vibelock_list_rise(ngx_http_vibelock_list_row_t **rows, ngx_uint_t i)
{
    ngx_uint_t                     parent;
    ngx_http_vibelock_list_row_t  *row;

    row = rows[i];

    while (i) {
        parent = (i - 1) / 2;

        if (ngx_http_vibelock_list_token(rows[parent])
            >= ngx_http_vibelock_list_token(row))
        {
            break;
        }

        rows[i] = rows[parent];
        i = parent;
    }

    rows[i] = row;
}


/* lets the first row sink to its place among n */

static void
ngx_http_vibelock_list_sink(ngx_http_vibelock_list_row_t **rows, ngx_uint_t n)
{
    ngx_uint_t                     i, child;
    ngx_http_vibelock_list_row_t  *row;

    row = rows[0];
    i = 0;

    for ( ;; ) {
        child = 2 * i + 1;

        if (child >= n) {
            break;
        }

        if (child + 1 < n
            && ngx_http_vibelock_list_token(rows[child + 1])
               > ngx_http_vibelock_list_token(rows[child]))
        {
            child++;
        }

        if (ngx_http_vibelock_list_token(row)
            >= ngx_http_vibelock_list_token(rows[child]))
        {
            break;
        }

        rows[i] = rows[child];
        i = child;
    }

    rows[i] = row;
}
