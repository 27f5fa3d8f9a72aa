
/*
 * Copyright (C) the vibelock authors
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_vibelock_record.h"


/* the module's name for itself in nginx: where r->ctx keeps the record */
extern ngx_module_t  ngx_http_vibelock_module;


static void ngx_http_vibelock_record_cleanup(void *data);
static ngx_int_t ngx_http_vibelock_record_operation(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_vibelock_record_token(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_vibelock_record_age(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_vibelock_record_result(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static void ngx_http_vibelock_record_text(ngx_http_variable_value_t *v,
    ngx_str_t *text);


static ngx_http_variable_t  ngx_http_vibelock_record_vars[] = {

    { ngx_string("vibelock_operation"), NULL,
      ngx_http_vibelock_record_operation, 0, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("vibelock_token"), NULL,
      ngx_http_vibelock_record_token, 0, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("vibelock_age"), NULL,
      ngx_http_vibelock_record_age, 0, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("vibelock_result"), NULL,
      ngx_http_vibelock_record_result, 0, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    ngx_http_null_variable
};


/* in the order of ngx_http_vibelock_result_e */

static ngx_str_t  ngx_http_vibelock_record_results[] = {
    ngx_null_string,
    ngx_string("ACQUIRED"),
    ngx_string("RELEASED"),
    ngx_string("KEPT"),
    ngx_string("LOST"),
    ngx_string("BUSY"),
    ngx_string("DENIED"),
    ngx_string("INVALID"),
    ngx_string("FULL"),
    ngx_string("BYPASSED"),
    ngx_string("BUSY_DRY_RUN"),
    ngx_string("DENIED_DRY_RUN"),
    ngx_string("INVALID_DRY_RUN"),
    ngx_string("FULL_DRY_RUN"),
    ngx_string("BROKEN"),
    ngx_string("ABSENT")
};


ngx_http_vibelock_record_t *
ngx_http_vibelock_record_find(ngx_http_request_t *r)
{
    ngx_pool_cleanup_t          *cln;
    ngx_http_vibelock_record_t  *record;

    r = r->main;

    record = ngx_http_get_module_ctx(r, ngx_http_vibelock_module);

    if (record || !(r->internal || r->filter_finalize || r->err_status)) {
        return record;
    }

    /*
     * if the module's context was cleared by an internal redirect, by an
     * error in a filter, or by a module whose redirect found no location to
     * lead to, look for it among the pool's cleanups
     */

    for (cln = r->pool->cleanup; cln; cln = cln->next) {
        if (cln->handler == ngx_http_vibelock_record_cleanup) {
            record = cln->data;
            ngx_http_set_ctx(r, record, ngx_http_vibelock_module);
            break;
        }
    }

    return record;
}


ngx_http_vibelock_record_t *
ngx_http_vibelock_record_get(ngx_http_request_t *r)
{
    ngx_pool_cleanup_t          *cln;
    ngx_http_vibelock_record_t  *record;

    record = ngx_http_vibelock_record_find(r);

    if (record) {
        return record;
    }

    r = r->main;

    cln = ngx_pool_cleanup_add(r->pool, sizeof(ngx_http_vibelock_record_t));
    if (cln == NULL) {
        return NULL;
    }

    record = cln->data;
    ngx_memzero(record, sizeof(ngx_http_vibelock_record_t));

    cln->handler = ngx_http_vibelock_record_cleanup;

    ngx_http_set_ctx(r, record, ngx_http_vibelock_module);

    return record;
}


/* there is nothing to clean: it is what the record is found by */

static void
ngx_http_vibelock_record_cleanup(void *data)
{
}


ngx_int_t
ngx_http_vibelock_record_variables(ngx_conf_t *cf)
{
    ngx_http_variable_t  *var, *v;

    for (v = ngx_http_vibelock_record_vars; v->name.len; v++) {

        var = ngx_http_add_variable(cf, &v->name, v->flags);
        if (var == NULL) {
            return NGX_ERROR;
        }

        var->get_handler = v->get_handler;
        var->data = v->data;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_vibelock_record_operation(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_http_vibelock_record_t  *record;

    record = ngx_http_vibelock_record_find(r);

    if (record == NULL || record->operation.len == 0) {
        v->not_found = 1;
        return NGX_OK;
    }

    ngx_http_vibelock_record_text(v, &record->operation);

    return NGX_OK;
}


static ngx_int_t
ngx_http_vibelock_record_token(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_str_t                    text;
    ngx_http_vibelock_record_t  *record;

    record = ngx_http_vibelock_record_find(r);

    if (record == NULL || record->token == 0) {
        v->not_found = 1;
        return NGX_OK;
    }

    text.data = ngx_pnalloc(r->pool, NGX_INT64_LEN);
    if (text.data == NULL) {
        return NGX_ERROR;
    }

    text.len = ngx_sprintf(text.data, "%uL", record->token) - text.data;

    ngx_http_vibelock_record_text(v, &text);

    return NGX_OK;
}


static ngx_int_t
ngx_http_vibelock_record_age(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_str_t                    text;
    ngx_msec_t                   age;
    ngx_http_vibelock_record_t  *record;

    record = ngx_http_vibelock_record_find(r);

    if (record == NULL || !record->aged) {
        v->not_found = 1;
        return NGX_OK;
    }

    age = record->age;

    if (record->result == NGX_HTTP_VIBELOCK_ACQUIRED) {
        age = ngx_current_msec - record->since;
    }

    text.data = ngx_pnalloc(r->pool, NGX_INT64_LEN);
    if (text.data == NULL) {
        return NGX_ERROR;
    }

    text.len = ngx_sprintf(text.data, "%M", age) - text.data;

    ngx_http_vibelock_record_text(v, &text);

    return NGX_OK;
}


static ngx_int_t
ngx_http_vibelock_record_result(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_http_vibelock_record_t  *record;

    record = ngx_http_vibelock_record_find(r);

    if (record == NULL || record->result == NGX_HTTP_VIBELOCK_NO_RESULT) {
        v->not_found = 1;
        return NGX_OK;
    }

    ngx_http_vibelock_record_text(v,
                           &ngx_http_vibelock_record_results[record->result]);

    return NGX_OK;
}


static void
ngx_http_vibelock_record_text(ngx_http_variable_value_t *v, ngx_str_t *text)
{
    v->valid = 1;
    v->no_cacheable = 0;
    v->not_found = 0;
    v->data = text->data;
    v->len = text->len;
}
