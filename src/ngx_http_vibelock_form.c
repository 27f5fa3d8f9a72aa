
/*
 * Copyright (C) the vibelock authors
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_vibelock_form.h"


/*
 * A media range of "Accept" and the form it stands for.  A scraper that
 * understands OpenMetrics takes the older text too.
 */

typedef struct {
    ngx_str_t                   range;
    ngx_http_vibelock_form_e    form;        /* FORM_NONE: any */
} ngx_http_vibelock_form_range_t;


/* how much a client likes a form, in thousandths, and how exactly it says so */

typedef struct {
    ngx_int_t                   quality;
    ngx_uint_t                  exact;
} ngx_http_vibelock_form_taste_t;


static ngx_http_vibelock_form_e ngx_http_vibelock_form_accepted(
    ngx_http_request_t *r, ngx_http_vibelock_form_e preset);
static void ngx_http_vibelock_form_header(ngx_str_t *value,
    ngx_http_vibelock_form_taste_t *tastes);
static ngx_int_t ngx_http_vibelock_form_quality(ngx_str_t *parameters);
static void ngx_http_vibelock_form_range(ngx_str_t *range, ngx_int_t quality,
    ngx_http_vibelock_form_taste_t *tastes);
static void ngx_http_vibelock_form_trim(ngx_str_t *text);


static ngx_str_t  ngx_http_vibelock_form_names[] = {
    ngx_string("json"),
    ngx_string("prometheus"),
    ngx_string("html")
};


static ngx_http_vibelock_form_range_t  ngx_http_vibelock_form_ranges[] = {
    { ngx_string("application/json"), NGX_HTTP_VIBELOCK_FORM_JSON },
    { ngx_string("application/*"), NGX_HTTP_VIBELOCK_FORM_JSON },
    { ngx_string("text/html"), NGX_HTTP_VIBELOCK_FORM_HTML },
    { ngx_string("text/plain"), NGX_HTTP_VIBELOCK_FORM_PROMETHEUS },
    { ngx_string("application/openmetrics-text"),
      NGX_HTTP_VIBELOCK_FORM_PROMETHEUS },
    { ngx_string("text/*"), NGX_HTTP_VIBELOCK_FORM_HTML },
    { ngx_string("text/*"), NGX_HTTP_VIBELOCK_FORM_PROMETHEUS },
    { ngx_string("*/*"), NGX_HTTP_VIBELOCK_FORM_NONE }
};


ngx_http_vibelock_form_e
ngx_http_vibelock_form_named(ngx_str_t *name)
{
    ngx_str_t   *known;
    ngx_uint_t   i;

    known = ngx_http_vibelock_form_names;

    for (i = 0; i < NGX_HTTP_VIBELOCK_FORM_NONE; i++) {
        if (known[i].len == name->len
            && ngx_strncmp(known[i].data, name->data, name->len) == 0)
        {
            break;
        }
    }

    return i;
}


ngx_http_vibelock_form_e
ngx_http_vibelock_form(ngx_http_request_t *r, ngx_http_vibelock_form_e preset)
{
    ngx_str_t  name;

    if (ngx_http_arg(r, (u_char *) "format", 6, &name) == NGX_OK) {
        return ngx_http_vibelock_form_named(&name);
    }

    return ngx_http_vibelock_form_accepted(r, preset);
}


static ngx_http_vibelock_form_e
ngx_http_vibelock_form_accepted(ngx_http_request_t *r,
    ngx_http_vibelock_form_e preset)
{
    ngx_uint_t                       i;
    ngx_list_part_t                 *part;
    ngx_table_elt_t                 *h;
    ngx_http_vibelock_form_e         form;
    ngx_http_vibelock_form_taste_t   tastes[NGX_HTTP_VIBELOCK_FORM_NONE];

    ngx_memzero(tastes, sizeof(tastes));

    part = &r->headers_in.headers.part;
    h = part->elts;

    for (i = 0; /* void */ ; i++) {

        if (i >= part->nelts) {
            if (part->next == NULL) {
                break;
            }

            part = part->next;
            h = part->elts;
            i = 0;
        }

        if (h[i].key.len == 6
            && ngx_strncasecmp(h[i].key.data, (u_char *) "Accept", 6) == 0)
        {
            ngx_http_vibelock_form_header(&h[i].value, tastes);
        }
    }

    /* who likes nothing that there is gets it anyway */

    form = preset;

    for (i = 0; i < NGX_HTTP_VIBELOCK_FORM_NONE; i++) {
        if (tastes[i].quality > tastes[form].quality) {
            form = i;
        }
    }

    return form;
}


static void
ngx_http_vibelock_form_header(ngx_str_t *value,
    ngx_http_vibelock_form_taste_t *tastes)
{
    u_char     *p, *last, *end, *semicolon;
    ngx_str_t   range, parameters;

    p = value->data;
    last = value->data + value->len;

    while (p < last) {

        end = ngx_strlchr(p, last, ',');
        if (end == NULL) {
            end = last;
        }

        semicolon = ngx_strlchr(p, end, ';');
        if (semicolon == NULL) {
            semicolon = end;
        }

        range.data = p;
        range.len = semicolon - p;

        parameters.data = semicolon;
        parameters.len = end - semicolon;

        ngx_http_vibelock_form_trim(&range);

        ngx_http_vibelock_form_range(&range,
                                  ngx_http_vibelock_form_quality(&parameters),
                                  tastes);

        p = end + 1;
    }
}


/*
 * "q" among the parameters of a media range: 1000 where it is not there, or
 * is no number.
 */

static ngx_int_t
ngx_http_vibelock_form_quality(ngx_str_t *parameters)
{
    u_char     *p, *last, *end;
    ngx_int_t   quality;
    ngx_str_t   parameter;

    p = parameters->data;
    last = p + parameters->len;

    while (p < last) {

        end = ngx_strlchr(p + 1, last, ';');
        if (end == NULL) {
            end = last;
        }

        parameter.data = p + 1;
        parameter.len = end - parameter.data;

        ngx_http_vibelock_form_trim(&parameter);

        if (parameter.len > 2
            && ngx_strncasecmp(parameter.data, (u_char *) "q=", 2) == 0)
        {
            quality = ngx_atofp(parameter.data + 2, parameter.len - 2, 3);
            return (quality == NGX_ERROR) ? 1000 : quality;
        }

        p = end;
    }

    return 1000;
}


/* a range that says more outweighs one that says less, in whatever order */

static void
ngx_http_vibelock_form_range(ngx_str_t *range, ngx_int_t quality,
    ngx_http_vibelock_form_taste_t *tastes)
{
    ngx_uint_t                       i, form, exact;
    ngx_http_vibelock_form_range_t  *known;

    known = ngx_http_vibelock_form_ranges;

    for (i = 0;
         i < sizeof(ngx_http_vibelock_form_ranges)
             / sizeof(ngx_http_vibelock_form_range_t);
         i++)
    {
        if (known[i].range.len != range->len
            || ngx_strncasecmp(known[i].range.data, range->data, range->len)
               != 0)
        {
            continue;
        }

        exact = (range->data[range->len - 1] != '*') ? 3
                : (range->data[0] != '*') ? 2 : 1;

        for (form = 0; form < NGX_HTTP_VIBELOCK_FORM_NONE; form++) {

            if (known[i].form != form
                && known[i].form != NGX_HTTP_VIBELOCK_FORM_NONE)
            {
                continue;
            }

            if (exact > tastes[form].exact
                || (exact == tastes[form].exact
                    && quality > tastes[form].quality))
            {
                tastes[form].exact = exact;
                tastes[form].quality = quality;
            }
        }
    }
}


static void
ngx_http_vibelock_form_trim(ngx_str_t *text)
{
    while (text->len && (text->data[0] == ' ' || text->data[0] == '\t')) {
        text->data++;
        text->len--;
    }

    while (text->len
           && (text->data[text->len - 1] == ' '
               || text->data[text->len - 1] == '\t'))
    {
        text->len--;
    }
}
