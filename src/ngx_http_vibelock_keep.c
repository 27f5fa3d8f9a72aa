
/*
 * Copyright (C) the vibelock authors
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_vibelock_keep.h"


char *
ngx_http_vibelock_keep_set(ngx_conf_t *cf, ngx_array_t **keep)
{
    ngx_str_t                         *value;
    ngx_uint_t                         i;
    ngx_http_complex_value_t          *cv;
    ngx_http_compile_complex_value_t   ccv;

    if (*keep) {
        return "is duplicate";
    }

    value = cf->args->elts;

    *keep = ngx_array_create(cf->pool, cf->args->nelts - 1,
                             sizeof(ngx_http_complex_value_t));
    if (*keep == NULL) {
        return NGX_CONF_ERROR;
    }

    for (i = 1; i < cf->args->nelts; i++) {

        cv = ngx_array_push(*keep);
        if (cv == NULL) {
            return NGX_CONF_ERROR;
        }

        ngx_memzero(&ccv, sizeof(ngx_http_compile_complex_value_t));

        ccv.cf = cf;
        ccv.value = &value[i];
        ccv.complex_value = cv;

        if (ngx_http_compile_complex_value(&ccv) != NGX_OK) {
            return NGX_CONF_ERROR;
        }
    }

    return NGX_CONF_OK;
}


ngx_uint_t
ngx_http_vibelock_keep(ngx_http_request_t *r, ngx_array_t *keep)
{
    ngx_str_t                  value;
    ngx_uint_t                 i;
    ngx_http_complex_value_t  *cv;

    if (keep == NULL) {
        return 0;
    }

    cv = keep->elts;

    for (i = 0; i < keep->nelts; i++) {

        if (ngx_http_complex_value(r, &cv[i], &value) != NGX_OK) {
            return 1;
        }

        if (value.len && !(value.len == 1 && value.data[0] == '0')) {
            return 1;
        }
    }

    return 0;
}


/*
 * nginx remembers what a map gave, which need not be what the map would give at
 * the end.  And a regular expression of a map must not take the place of that
 * whose $1 the location goes on with.
 */

ngx_uint_t
ngx_http_vibelock_keep_yet(ngx_http_request_t *r, ngx_array_t *keep)
{
    size_t                      size;
    ngx_uint_t                  kept;
    ngx_http_core_main_conf_t  *cmcf;
    ngx_http_variable_value_t  *saved;
#if (NGX_PCRE)
    int                        *captures;
    u_char                     *data;
    ngx_uint_t                  ncaptures, shared;
#endif

    if (keep == NULL) {
        return 0;
    }

    cmcf = ngx_http_get_module_main_conf(r, ngx_http_core_module);

    size = cmcf->variables.nelts * sizeof(ngx_http_variable_value_t);

    saved = ngx_palloc(r->pool, size);
    if (saved == NULL) {
        return 1;
    }

    ngx_memcpy(saved, r->variables, size);

#if (NGX_PCRE)
    ncaptures = r->ncaptures;
    captures = r->captures;
    data = r->captures_data;
    shared = r->realloc_captures;

    r->realloc_captures = 1;
#endif

    kept = ngx_http_vibelock_keep(r, keep);

#if (NGX_PCRE)
    r->ncaptures = ncaptures;
    r->captures = captures;
    r->captures_data = data;
    r->realloc_captures = shared;
#endif

    ngx_memcpy(r->variables, saved, size);

    return kept;
}
