
/*
 * Copyright (C) the vibelock authors
 *
 * The TTL of an operation: see the header.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include <jansson.h>

#include "ngx_http_vibelock_scan.h"
#include "ngx_http_vibelock_table.h"
#include "ngx_http_vibelock_ttl.h"


#define NGX_HTTP_VIBELOCK_TTL_DEFAULT  (15 * 60 * 1000)

/* of a body that has to be read for its TTL, bytes */
#define NGX_HTTP_VIBELOCK_TTL_BODY     (1024 * 1024)

/* a time that no parameter has given yet */
#define NGX_HTTP_VIBELOCK_TTL_UNSET    NGX_CONF_UNSET_MSEC

/* of a time in a message, bytes */
#define NGX_HTTP_VIBELOCK_TTL_TEXT     (NGX_INT_T_LEN + sizeof("ms"))


static char *ngx_http_vibelock_ttl_json(ngx_conf_t *cf,
    ngx_http_vibelock_ttl_t *ttl);
static char *ngx_http_vibelock_ttl_param(ngx_conf_t *cf, ngx_str_t *param,
    ngx_http_vibelock_ttl_t *ttl);
static char *ngx_http_vibelock_ttl_name(ngx_conf_t *cf, ngx_str_t *param,
    ngx_http_vibelock_ttl_t *ttl);
static char *ngx_http_vibelock_ttl_time(ngx_conf_t *cf, ngx_str_t *param,
    size_t skip, ngx_msec_t least, ngx_msec_t *ms);
static char *ngx_http_vibelock_ttl_bounds(ngx_conf_t *cf,
    ngx_http_vibelock_ttl_t *ttl);
static void ngx_http_vibelock_ttl_text(u_char *buf, ngx_msec_t ms);
static char *ngx_http_vibelock_ttl_message(ngx_conf_t *cf,
    ngx_http_vibelock_ttl_t *ttl);
static ngx_int_t ngx_http_vibelock_ttl_body(ngx_http_request_t *r,
    ngx_str_t *body);
static u_char *ngx_http_vibelock_ttl_copy(u_char *p, ngx_buf_t *b);
static ngx_int_t ngx_http_vibelock_ttl_field(ngx_http_vibelock_ttl_t *ttl,
    ngx_str_t *body, ngx_msec_t *ms);
static ngx_int_t ngx_http_vibelock_ttl_member(ngx_http_vibelock_ttl_t *ttl,
    ngx_str_t *body, ngx_msec_t *ms);
static ngx_int_t ngx_http_vibelock_ttl_seconds(ngx_http_vibelock_ttl_t *ttl,
    double seconds, ngx_msec_t *ms);


char *
ngx_http_vibelock_ttl_set(ngx_conf_t *cf, ngx_http_vibelock_ttl_t *ttl)
{
    ngx_str_t   *value;
    ngx_uint_t   i;

    if (ttl->value) {
        return "is duplicate";
    }

    value = cf->args->elts;

    for (i = 1; i < cf->args->nelts; i++) {
        if (ngx_strncmp(value[i].data, "json=", 5) == 0) {
            return ngx_http_vibelock_ttl_json(cf, ttl);
        }
    }

    if (cf->args->nelts == 2 && ngx_strchr(value[1].data, '=') == NULL) {
        return ngx_http_vibelock_ttl_time(cf, &value[1], 0, 1, &ttl->value);
    }

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "\"%V\" has \"%V\": it must be one time, such as "
                       "\"15m\", or \"json=<field>\" and its parameters",
                       &value[0], &value[cf->args->nelts - 1]);

    return NGX_CONF_ERROR;
}


static char *
ngx_http_vibelock_ttl_json(ngx_conf_t *cf, ngx_http_vibelock_ttl_t *ttl)
{
    ngx_str_t   *value;
    ngx_uint_t   i;

    ttl->value = NGX_HTTP_VIBELOCK_TTL_UNSET;
    ttl->add = NGX_HTTP_VIBELOCK_TTL_UNSET;
    ttl->max = NGX_HTTP_VIBELOCK_TTL_UNSET;

    value = cf->args->elts;

    for (i = 1; i < cf->args->nelts; i++) {
        if (ngx_http_vibelock_ttl_param(cf, &value[i], ttl) != NGX_CONF_OK) {
            return NGX_CONF_ERROR;
        }
    }

    if (ngx_http_vibelock_ttl_bounds(cf, ttl) != NGX_CONF_OK) {
        return NGX_CONF_ERROR;
    }

    return ngx_http_vibelock_ttl_message(cf, ttl);
}


static char *
ngx_http_vibelock_ttl_param(ngx_conf_t *cf, ngx_str_t *param,
    ngx_http_vibelock_ttl_t *ttl)
{
    ngx_str_t  *name;

    name = cf->args->elts;

    if (ngx_strncmp(param->data, "json=", 5) == 0) {

        if (ttl->field.len) {
            goto duplicate;
        }

        return ngx_http_vibelock_ttl_name(cf, param, ttl);
    }

    if (ngx_strncmp(param->data, "default=", 8) == 0) {

        if (ttl->value != NGX_HTTP_VIBELOCK_TTL_UNSET) {
            goto duplicate;
        }

        return ngx_http_vibelock_ttl_time(cf, param, 8, 1, &ttl->value);
    }

    if (ngx_strncmp(param->data, "add=", 4) == 0) {

        if (ttl->add != NGX_HTTP_VIBELOCK_TTL_UNSET) {
            goto duplicate;
        }

        return ngx_http_vibelock_ttl_time(cf, param, 4, 0, &ttl->add);
    }

    if (ngx_strncmp(param->data, "max=", 4) == 0) {

        if (ttl->max != NGX_HTTP_VIBELOCK_TTL_UNSET) {
            goto duplicate;
        }

        return ngx_http_vibelock_ttl_time(cf, param, 4, 1, &ttl->max);
    }

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "\"%V\" has an unknown parameter \"%V\": it takes "
                       "\"json=\", \"default=\", \"add=\" and \"max=\"",
                       name, param);

    return NGX_CONF_ERROR;

duplicate:

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "\"%V\" has one parameter twice, the second time as "
                       "\"%V\": it must be given once", name, param);

    return NGX_CONF_ERROR;
}


static char *
ngx_http_vibelock_ttl_name(ngx_conf_t *cf, ngx_str_t *param,
    ngx_http_vibelock_ttl_t *ttl)
{
    ngx_str_t  *name;

    ttl->field.data = param->data + 5;
    ttl->field.len = param->len - 5;

    name = cf->args->elts;

    if (ttl->field.len == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" has an empty \"json=\": it must name a "
                           "field of the body, such as \"json=timeout\"",
                           name);
        return NGX_CONF_ERROR;
    }

    /* JSON may have such a name, but mostly it is a variable's */

    if (ngx_strchr(ttl->field.data, '$')) {
        ngx_conf_log_error(NGX_LOG_WARN, cf, 0,
                           "\"%V\" has \"%V\", where \"$\" makes no "
                           "variable: the TTL is read from a field \"%V\" of "
                           "the body; if that is not meant, name another "
                           "one, such as \"json=timeout\"",
                           name, param, &ttl->field);
    }

    return NGX_CONF_OK;
}


/* "least" is in ms, 0 or 1 */

static char *
ngx_http_vibelock_ttl_time(ngx_conf_t *cf, ngx_str_t *param, size_t skip,
    ngx_msec_t least, ngx_msec_t *ms)
{
    ngx_int_t   time;
    ngx_str_t  *name, text;

    text.data = param->data + skip;
    text.len = param->len - skip;

    time = ngx_parse_time(&text, 0);

    if (time != NGX_ERROR
        && (ngx_msec_t) time >= least
        && (ngx_msec_t) time <= NGX_HTTP_VIBELOCK_TTL_MAX)
    {
        *ms = time;
        return NGX_CONF_OK;
    }

    name = cf->args->elts;

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "\"%V\" has a wrong time in \"%V\": it must be from "
                       "%Mms to 30d, such as \"90s\" or \"15m\"",
                       name, param, least);

    return NGX_CONF_ERROR;
}


/* the parameters that were not given, and whether all of them fit together */

static char *
ngx_http_vibelock_ttl_bounds(ngx_conf_t *cf, ngx_http_vibelock_ttl_t *ttl)
{
    u_char      first[NGX_HTTP_VIBELOCK_TTL_TEXT];
    u_char      second[NGX_HTTP_VIBELOCK_TTL_TEXT];
    ngx_str_t  *name;

    name = cf->args->elts;

    if (ttl->add == NGX_HTTP_VIBELOCK_TTL_UNSET) {
        ttl->add = 0;
    }

    if (ttl->add == NGX_HTTP_VIBELOCK_TTL_MAX) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" has an \"add=\" of 30d: it must be less, "
                           "since a lock lasts 30d at most", name);
        return NGX_CONF_ERROR;
    }

    if (ttl->max == NGX_HTTP_VIBELOCK_TTL_UNSET) {
        ttl->max = NGX_HTTP_VIBELOCK_TTL_MAX - ttl->add;
    }

    if (ttl->max > NGX_HTTP_VIBELOCK_TTL_MAX - ttl->add) {
        ngx_http_vibelock_ttl_text(first, ttl->max);
        ngx_http_vibelock_ttl_text(second, ttl->add);

        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" has a \"max=\" of %s and an \"add=\" of "
                           "%s: together they must not be over 30d",
                           name, first, second);
        return NGX_CONF_ERROR;
    }

    if (ttl->value == NGX_HTTP_VIBELOCK_TTL_UNSET) {
        ttl->value = ngx_min(NGX_HTTP_VIBELOCK_TTL_DEFAULT, ttl->max);
    }

    if (ttl->value > ttl->max) {
        ngx_http_vibelock_ttl_text(first, ttl->value);
        ngx_http_vibelock_ttl_text(second, ttl->max);

        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" has a \"default=\" of %s: it must not be "
                           "over \"max=\", which is %s",
                           name, first, second);
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


/* in the largest unit that it is a whole number of: mostly as it was written */

static void
ngx_http_vibelock_ttl_text(u_char *buf, ngx_msec_t ms)
{
    ngx_uint_t  i;

    static struct {
        ngx_msec_t   ms;
        char        *name;
    } units[] = {
        { 24 * 60 * 60 * 1000, "d" },
        { 60 * 60 * 1000, "h" },
        { 60 * 1000, "m" },
        { 1000, "s" },
        { 1, "ms" }
    };

    for (i = 0; ms % units[i].ms; i++) { /* void */ }

    ngx_sprintf(buf, "%M%s%Z", ms / units[i].ms, units[i].name);
}


static char *
ngx_http_vibelock_ttl_message(ngx_conf_t *cf, ngx_http_vibelock_ttl_t *ttl)
{
    size_t      size, len;
    json_t     *field;
    u_char     *p, *last;
    ngx_str_t  *name;

    field = json_stringn((char *) ttl->field.data, ttl->field.len);

    if (field == NULL) {
        name = cf->args->elts;

        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" has a field \"%V\" that is not UTF-8: no "
                           "JSON can have it", name, &ttl->field);
        return NGX_CONF_ERROR;
    }

    /* at the worst, each byte becomes \u0000 */

    len = 6 * ttl->field.len + sizeof("\"\"");
    size = len + sizeof(" must be a number of seconds over 0, at most .000")
           + NGX_INT_T_LEN;

    p = ngx_pnalloc(cf->pool, size);
    if (p == NULL) {
        json_decref(field);
        return NGX_CONF_ERROR;
    }

    len = json_dumpb(field, (char *) p, len, JSON_ENCODE_ANY);

    json_decref(field);

    /* without the quotes around it */

    ttl->message.data = p + 1;

    last = p + size;
    p += len - 1;

    p = ngx_slprintf(p, last,
                     " must be a number of seconds over 0, at most %M",
                     ttl->max / 1000);

    if (ttl->max % 1000) {
        p = ngx_slprintf(p, last, ".%03M", ttl->max % 1000);
    }

    ttl->message.len = p - ttl->message.data;

    return NGX_CONF_OK;
}


void
ngx_http_vibelock_ttl_merge(ngx_http_vibelock_ttl_t *prev,
    ngx_http_vibelock_ttl_t *ttl)
{
    if (ttl->value == 0) {
        *ttl = *prev;
    }

    if (ttl->value == 0) {
        ttl->value = NGX_HTTP_VIBELOCK_TTL_DEFAULT;
    }
}


ngx_uint_t
ngx_http_vibelock_ttl_over(ngx_http_request_t *r)
{
    return r->headers_in.content_length_n > NGX_HTTP_VIBELOCK_TTL_BODY;
}


ngx_int_t
ngx_http_vibelock_ttl_read(ngx_http_request_t *r, ngx_http_vibelock_ttl_t *ttl,
    ngx_msec_t *ms)
{
    ngx_int_t  rc;
    ngx_str_t  body;

    rc = ngx_http_vibelock_ttl_body(r, &body);

    if (rc != NGX_OK) {
        return rc;
    }

    *ms = ttl->value;

    if (body.len) {
        rc = ngx_http_vibelock_ttl_member(ttl, &body, ms);

        if (rc != NGX_OK) {
            return rc;
        }
    }

    *ms += ttl->add;

    return NGX_OK;
}


/* most bodies are plain, and need no parser to be read right */

static ngx_int_t
ngx_http_vibelock_ttl_member(ngx_http_vibelock_ttl_t *ttl, ngx_str_t *body,
    ngx_msec_t *ms)
{
    ngx_uint_t  seconds;

    switch (ngx_http_vibelock_scan(body, &ttl->field, &seconds)) {

    case NGX_OK:
        return ngx_http_vibelock_ttl_seconds(ttl, (double) seconds, ms);

    case NGX_DECLINED:
        return NGX_OK;

    default: /* NGX_AGAIN */
        return ngx_http_vibelock_ttl_field(ttl, body, ms);
    }
}


/* the body in one piece */

static ngx_int_t
ngx_http_vibelock_ttl_body(ngx_http_request_t *r, ngx_str_t *body)
{
    off_t         size;
    u_char       *p;
    ngx_chain_t  *cl, *in;

    ngx_str_null(body);

    if (r->request_body == NULL || r->request_body->bufs == NULL) {
        return NGX_OK;
    }

    in = r->request_body->bufs;
    size = 0;

    for (cl = in; cl; cl = cl->next) {
        size += ngx_buf_size(cl->buf);

        if (size > NGX_HTTP_VIBELOCK_TTL_BODY) {
            return NGX_DONE;
        }
    }

    body->len = size;

    if (in->next == NULL && ngx_buf_in_memory(in->buf)) {
        body->data = in->buf->pos;
        return NGX_OK;
    }

    p = ngx_pnalloc(r->pool, size);
    if (p == NULL) {
        return NGX_ERROR;
    }

    body->data = p;

    for (cl = in; cl; cl = cl->next) {
        p = ngx_http_vibelock_ttl_copy(p, cl->buf);

        if (p == NULL) {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


static u_char *
ngx_http_vibelock_ttl_copy(u_char *p, ngx_buf_t *b)
{
    size_t   size;
    ssize_t  n;

    if (ngx_buf_in_memory(b)) {
        return ngx_cpymem(p, b->pos, b->last - b->pos);
    }

    if (!b->in_file) {
        return p;
    }

    size = b->file_last - b->file_pos;

    n = ngx_read_file(b->file, p, size, b->file_pos);

    if (n == NGX_ERROR) {
        return NULL;
    }

    if ((size_t) n != size) {
        ngx_log_error(NGX_LOG_CRIT, b->file->log, 0,
                      ngx_read_file_n " read only %z of %uz from \"%s\"",
                      n, size, b->file->name.data);
        return NULL;
    }

    return p + size;
}


static ngx_int_t
ngx_http_vibelock_ttl_field(ngx_http_vibelock_ttl_t *ttl, ngx_str_t *body,
    ngx_msec_t *ms)
{
    json_t        *root, *field;
    ngx_int_t      rc;
    json_error_t   error;

    ngx_memzero(&error, sizeof(json_error_t));

    /* jansson passes over a NUL behind a number */

    if (ngx_strlchr(body->data, body->data + body->len, '\0')) {
        return NGX_DECLINED;
    }

    /*
     * Of the body only one field matters, and the rest may be any JSON: with
     * numbers of any length, and NULs in its strings.
     */

    root = json_loadb((char *) body->data, body->len,
                      JSON_REJECT_DUPLICATES|JSON_DECODE_INT_AS_REAL
                      |JSON_ALLOW_NUL,
                      &error);

    if (root == NULL) {

        if (error.text[0] == '\0') {
            /* no memory: the one thing that jansson has no words for */
            return NGX_ERROR;
        }

        /* a number beyond 1e308: it hardly is another field's */

        return json_error_code(&error) == json_error_numeric_overflow
               ? NGX_ABORT : NGX_DECLINED;
    }

    if (!json_is_object(root)) {
        rc = NGX_DECLINED;
        goto done;
    }

    rc = NGX_OK;

    field = json_object_get(root, (char *) ttl->field.data);

    if (field && !json_is_null(field)) {
        rc = json_is_real(field)
             ? ngx_http_vibelock_ttl_seconds(ttl, json_real_value(field), ms)
             : NGX_ABORT;
    }

done:

    json_decref(root);

    return rc;
}


static ngx_int_t
ngx_http_vibelock_ttl_seconds(ngx_http_vibelock_ttl_t *ttl, double seconds,
    ngx_msec_t *ms)
{
    double  exact;

    /* in seconds, as the limit is told: 2.007 times 1000 is over 2007 */

    if (!(seconds > 0 && seconds <= (double) ttl->max / 1000)) {
        return NGX_ABORT;
    }

    exact = seconds * 1000;

    *ms = (ngx_msec_t) exact;

    if ((double) *ms < exact && *ms < ttl->max) {
        (*ms)++;
    }

    return NGX_OK;
}
