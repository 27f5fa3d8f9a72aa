
/*
 * Copyright (C) the vibelock authors
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_vibelock_break.h"
#include "ngx_http_vibelock_json.h"
#include "ngx_http_vibelock_metrics.h"
#include "ngx_http_vibelock_page.h"
#include "ngx_http_vibelock_reply.h"
#include "ngx_http_vibelock_report.h"
#include "ngx_http_vibelock_status.h"


static ngx_int_t ngx_http_vibelock_status_path(ngx_http_request_t *r,
    ngx_str_t *lock);
static ngx_int_t ngx_http_vibelock_status_lock(ngx_http_request_t *r,
    size_t base, ngx_str_t *lock);
static ngx_int_t ngx_http_vibelock_status_gather(ngx_http_request_t *r,
    ngx_http_vibelock_status_conf_t *conf, ngx_http_vibelock_report_pt ready);
static ngx_int_t ngx_http_vibelock_status_json(ngx_http_request_t *r,
    ngx_http_vibelock_report_t *report);
static ngx_int_t ngx_http_vibelock_status_prometheus(ngx_http_request_t *r,
    ngx_http_vibelock_report_t *report);
static ngx_int_t ngx_http_vibelock_status_send(ngx_http_request_t *r,
    ngx_str_t *type, ngx_chain_t *out);


static ngx_str_t  ngx_http_vibelock_status_below = ngx_string("/locks/");

static ngx_str_t  ngx_http_vibelock_status_json_type =
    ngx_string("application/json");

static ngx_str_t  ngx_http_vibelock_status_prometheus_type =
    ngx_string("text/plain; version=0.0.4; charset=utf-8");


char *
ngx_http_vibelock_status_set(ngx_conf_t *cf,
    ngx_http_vibelock_status_conf_t *conf)
{
    ngx_str_t                 *value;
    ngx_uint_t                 i, on, off, forms, breaks;
    ngx_http_vibelock_form_e   form;

    if (conf->enabled) {
        return "is duplicate";
    }

    conf->enabled = 1;

    value = cf->args->elts;
    forms = 0;
    breaks = 0;

    for (i = 1; i < cf->args->nelts; i++) {

        form = ngx_http_vibelock_form_named(&value[i]);

        if (form != NGX_HTTP_VIBELOCK_FORM_NONE) {
            if (forms++) {
                goto duplicate;
            }

            conf->form = form;
            continue;
        }

        on = (ngx_strcmp(value[i].data, "break=on") == 0);
        off = (ngx_strcmp(value[i].data, "break=off") == 0);

        if (on || off) {
            if (breaks++) {
                goto duplicate;
            }

            conf->breakable = on;
            continue;
        }

        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid parameter \"%V\" in \"vibelock_status\", "
                           "it takes \"json\", \"prometheus\" or \"html\", "
                           "and \"break=on\"", &value[i]);
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;

duplicate:

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "\"vibelock_status\" has one parameter twice, the "
                       "second time as \"%V\": it must be given once",
                       &value[i]);

    return NGX_CONF_ERROR;
}


ngx_int_t
ngx_http_vibelock_status(ngx_http_request_t *r,
    ngx_http_vibelock_status_conf_t *conf)
{
    ngx_int_t  rc;
    ngx_str_t  lock, error;

    rc = ngx_http_vibelock_status_path(r, &lock);

    if (rc == NGX_DECLINED) {
        return ngx_http_vibelock_reply_error(r,
                                             NGX_HTTP_VIBELOCK_REPLY_NO_STATUS,
                                             0, NULL);
    }

    if (rc == NGX_AGAIN && !conf->breakable) {
        return ngx_http_vibelock_reply_error(r,
                                             NGX_HTTP_VIBELOCK_REPLY_BREAK_OFF,
                                             0, NULL);
    }

    if (rc == NGX_AGAIN) {
        return ngx_http_vibelock_break(r, conf->zones, conf->log_level, &lock);
    }

    if (!(r->method & (NGX_HTTP_GET|NGX_HTTP_HEAD))) {
        return ngx_http_vibelock_reply_error(r,
                                   NGX_HTTP_VIBELOCK_REPLY_NOT_ALLOWED_STATUS,
                                   0, NULL);
    }

    switch (ngx_http_vibelock_form(r, conf->form)) {

    case NGX_HTTP_VIBELOCK_FORM_HTML:
        return ngx_http_vibelock_page(r);

    case NGX_HTTP_VIBELOCK_FORM_JSON:
        return ngx_http_vibelock_status_gather(r, conf,
                                               ngx_http_vibelock_status_json);

    case NGX_HTTP_VIBELOCK_FORM_PROMETHEUS:
        return ngx_http_vibelock_status_gather(r, conf,
                                          ngx_http_vibelock_status_prometheus);

    default: /* NGX_HTTP_VIBELOCK_FORM_NONE */
        ngx_str_set(&error, "The argument format must be json, prometheus or"
                            " html");
        return ngx_http_vibelock_reply_error(r,
                                          NGX_HTTP_VIBELOCK_REPLY_BAD_ARGUMENT,
                                          0, &error);
    }
}


/*
 * What of the status is asked for: NGX_OK, the status itself; NGX_AGAIN, a
 * lock; NGX_DECLINED, nothing that there is.
 */

static ngx_int_t
ngx_http_vibelock_status_path(ngx_http_request_t *r, ngx_str_t *lock)
{
    u_char                    *p, *last;
    size_t                     base;
    ngx_str_t                 *below;
    ngx_http_core_loc_conf_t  *clcf;

    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);

    below = &ngx_http_vibelock_status_below;
    base = clcf->name.len;

    if (base && clcf->name.data[base - 1] == '/') {
        base--;
    }

    p = r->uri.data;
    last = r->uri.data + r->uri.len;

    if (r->uri.len >= base && ngx_strncmp(p, clcf->name.data, base) == 0) {
        p += base;

    } else {

        /* a regular expression: whatever it matches is the status */

        base = 0;
        p = ngx_strnstr(p, (char *) below->data, last - p);

        if (p == NULL) {
            return NGX_OK;
        }
    }

    if (p == last || (p + 1 == last && *p == '/')) {
        return NGX_OK;
    }

    if ((size_t) (last - p) < below->len
        || ngx_strncmp(p, below->data, below->len) != 0)
    {
        return NGX_DECLINED;
    }

    return ngx_http_vibelock_status_lock(r, base, lock);
}


/*
 * The zone and the key are taken from the address as the client wrote it, for
 * nginx has merged the slashes of the other.
 */

static ngx_int_t
ngx_http_vibelock_status_lock(ngx_http_request_t *r, size_t base,
    ngx_str_t *lock)
{
    u_char     *p, *last;
    ngx_str_t  *below;

    below = &ngx_http_vibelock_status_below;

    p = r->unparsed_uri.data;
    last = ngx_strlchr(p, p + r->unparsed_uri.len, '?');

    if (last == NULL) {
        last = p + r->unparsed_uri.len;
    }

    if ((size_t) (last - p) >= base
        && ngx_strncmp(p, r->uri.data, base) == 0)
    {
        p += base;
    }

    p = ngx_strnstr(p, (char *) below->data, last - p);

    if (p == NULL) {
        return NGX_DECLINED;
    }

    lock->data = p + below->len;
    lock->len = last - lock->data;

    return NGX_AGAIN;
}


static ngx_int_t
ngx_http_vibelock_status_gather(ngx_http_request_t *r,
    ngx_http_vibelock_status_conf_t *conf, ngx_http_vibelock_report_pt ready)
{
    ngx_int_t                    rc;
    ngx_str_t                    error;
    ngx_http_vibelock_report_t  *report;

    rc = ngx_http_discard_request_body(r);

    if (rc != NGX_OK) {
        return rc;
    }

    report = ngx_pcalloc(r->pool, sizeof(ngx_http_vibelock_report_t));
    if (report == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    report->ready = ready;
    report->data = conf;

    if (ready != ngx_http_vibelock_status_json) {
        return ngx_http_vibelock_report(r, report, conf->zones);
    }

    rc = ngx_http_vibelock_list_create(r, conf->zones, &report->list, &error);

    switch (rc) {

    case NGX_OK:
    case NGX_DECLINED:
        return ngx_http_vibelock_report(r, report, conf->zones);

    case NGX_DONE:
        return ngx_http_vibelock_reply_error(r,
                                             NGX_HTTP_VIBELOCK_REPLY_NO_STATUS,
                                             0, NULL);

    case NGX_ABORT:
        return ngx_http_vibelock_reply_error(r,
                                          NGX_HTTP_VIBELOCK_REPLY_BAD_ARGUMENT,
                                          0, &error);

    default: /* NGX_ERROR */
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }
}


static ngx_int_t
ngx_http_vibelock_status_json(ngx_http_request_t *r,
    ngx_http_vibelock_report_t *report)
{
    ngx_chain_t                       out;
    ngx_http_vibelock_status_conf_t  *conf;

    conf = report->data;

    out.buf = ngx_http_vibelock_json(r, report, conf->registry,
                                     conf->breakable);
    out.next = NULL;

    if (out.buf == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return ngx_http_vibelock_status_send(r,
                                  &ngx_http_vibelock_status_json_type, &out);
}


static ngx_int_t
ngx_http_vibelock_status_prometheus(ngx_http_request_t *r,
    ngx_http_vibelock_report_t *report)
{
    ngx_chain_t                      *out;
    ngx_http_vibelock_status_conf_t  *conf;

    conf = report->data;

    out = ngx_http_vibelock_metrics(r, report, conf->registry);
    if (out == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return ngx_http_vibelock_status_send(r,
                             &ngx_http_vibelock_status_prometheus_type, out);
}


/* caches between here and the client keep none of it, but may ask for it */

static ngx_int_t
ngx_http_vibelock_status_send(ngx_http_request_t *r, ngx_str_t *type,
    ngx_chain_t *out)
{
    ngx_keyval_t                        vary;
    ngx_http_vibelock_reply_content_t   content;

    ngx_str_set(&vary.key, "Vary");
    ngx_str_set(&vary.value, "Accept");

    content.status = NGX_HTTP_OK;
    content.type = *type;
    content.headers = &vary;
    content.nheaders = 1;
    content.out = out;

    return ngx_http_vibelock_reply_content(r, &content);
}
