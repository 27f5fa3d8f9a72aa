
/*
 * Copyright (C) the vibelock authors
 *
 * What nginx calls: directives, phases, filters, processes.  What they do is
 * in src/.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_vibelock_bus.h"
#include "ngx_http_vibelock_endpoint.h"
#include "ngx_http_vibelock_guard.h"
#include "ngx_http_vibelock_keep.h"
#include "ngx_http_vibelock_record.h"
#include "ngx_http_vibelock_status.h"
#include "ngx_http_vibelock_unstick.h"


#define NGX_HTTP_VIBELOCK_RETRY_AFTER  5000      /* ms */
#define NGX_HTTP_VIBELOCK_CHECK        5000      /* ms */


typedef struct {
    ngx_http_vibelock_zones_t           zones;
    ngx_http_vibelock_registry_t       *registry;
    ngx_http_vibelock_bus_t            *bus;
} ngx_http_vibelock_main_conf_t;


typedef struct {
    ngx_http_vibelock_guard_conf_t      guard;
    ngx_http_vibelock_endpoint_conf_t   endpoint;
    ngx_http_vibelock_unstick_conf_t    unstick;
    ngx_http_vibelock_status_conf_t     status;
    ngx_http_vibelock_caller_conf_t     caller;
} ngx_http_vibelock_loc_conf_t;


typedef struct {
    ngx_str_t                           values[3];
    char                               *must;      /* why, and what */
} ngx_http_vibelock_fixed_t;


static ngx_int_t ngx_http_vibelock_precontent_handler(ngx_http_request_t *r);
static ngx_int_t ngx_http_vibelock_release_handler(ngx_http_request_t *r);
static ngx_int_t ngx_http_vibelock_status_handler(ngx_http_request_t *r);
static ngx_int_t ngx_http_vibelock_header_filter(ngx_http_request_t *r);
static ngx_int_t ngx_http_vibelock_body_filter(ngx_http_request_t *r,
    ngx_chain_t *in);

static ngx_int_t ngx_http_vibelock_preconfiguration(ngx_conf_t *cf);
static ngx_int_t ngx_http_vibelock_postconfiguration(ngx_conf_t *cf);
static void *ngx_http_vibelock_create_main_conf(ngx_conf_t *cf);
static char *ngx_http_vibelock_init_main_conf(ngx_conf_t *cf, void *conf);
static void *ngx_http_vibelock_create_loc_conf(ngx_conf_t *cf);
static char *ngx_http_vibelock_merge_loc_conf(ngx_conf_t *cf, void *parent,
    void *child);
static char *ngx_http_vibelock_merge_status(ngx_conf_t *cf,
    ngx_http_vibelock_loc_conf_t *prev, ngx_http_vibelock_loc_conf_t *conf);
static char *ngx_http_vibelock_merge_endpoints(ngx_conf_t *cf,
    ngx_http_vibelock_loc_conf_t *prev, ngx_http_vibelock_loc_conf_t *conf);
static char *ngx_http_vibelock_check_endpoints(ngx_conf_t *cf,
    ngx_http_vibelock_loc_conf_t *conf);
static char *ngx_http_vibelock_check_caller(ngx_conf_t *cf, char *directive,
    ngx_http_vibelock_caller_conf_t *caller);

static char *ngx_http_vibelock_zone_directive(ngx_conf_t *cf,
    ngx_command_t *cmd, void *conf);
static char *ngx_http_vibelock_guard_directive(ngx_conf_t *cf,
    ngx_command_t *cmd, void *conf);
static char *ngx_http_vibelock_guard_words(ngx_conf_t *cf);
static char *ngx_http_vibelock_ttl_directive(ngx_conf_t *cf,
    ngx_command_t *cmd, void *conf);
static char *ngx_http_vibelock_keep_directive(ngx_conf_t *cf,
    ngx_command_t *cmd, void *conf);
static char *ngx_http_vibelock_retry_after_directive(ngx_conf_t *cf,
    ngx_command_t *cmd, void *conf);
static char *ngx_http_vibelock_release_directive(ngx_conf_t *cf,
    ngx_command_t *cmd, void *conf);
static char *ngx_http_vibelock_release_beside(ngx_conf_t *cf);
static char *ngx_http_vibelock_unstick_directive(ngx_conf_t *cf,
    ngx_command_t *cmd, void *conf);
static char *ngx_http_vibelock_registry_directive(ngx_conf_t *cf,
    ngx_command_t *cmd, void *conf);
static char *ngx_http_vibelock_redis_directive(ngx_conf_t *cf,
    ngx_command_t *cmd, void *conf);
static char *ngx_http_vibelock_server_directive(ngx_conf_t *cf,
    ngx_command_t *cmd, void *conf);
static char *ngx_http_vibelock_log_level_directive(ngx_conf_t *cf,
    ngx_command_t *cmd, void *conf);
static char *ngx_http_vibelock_status_directive(ngx_conf_t *cf,
    ngx_command_t *cmd, void *conf);
static char *ngx_http_vibelock_status_beside(ngx_conf_t *cf);

static ngx_int_t ngx_http_vibelock_init_module(ngx_cycle_t *cycle);
static ngx_int_t ngx_http_vibelock_init_process(ngx_cycle_t *cycle);
static void ngx_http_vibelock_exit_process(ngx_cycle_t *cycle);
static void ngx_http_vibelock_exit_master(ngx_cycle_t *cycle);


static ngx_conf_enum_t  ngx_http_vibelock_log_levels[] = {
    { ngx_string("info"), NGX_LOG_INFO },
    { ngx_string("notice"), NGX_LOG_NOTICE },
    { ngx_string("warn"), NGX_LOG_WARN },
    { ngx_string("error"), NGX_LOG_ERR },
    { ngx_null_string, 0 }
};


/* what a value without a variable may be; another one is a slip */

static ngx_http_vibelock_fixed_t  ngx_http_vibelock_founds = {
    { ngx_string("1"), ngx_string("0"), ngx_null_string },
    "no server is found; it must be \"1\""
};


static ngx_http_vibelock_fixed_t  ngx_http_vibelock_kinds = {
    { ngx_string("STANDALONE"), ngx_string("GALAXY_HOST"),
      ngx_string("GALAXY_APP") },
    "no server can be unstuck; it must be \"STANDALONE\", \"GALAXY_HOST\" "
    "or \"GALAXY_APP\""
};


/* of a location that vibelock_release or vibelock_unstick stands in */

static ngx_http_vibelock_guard_conf_t  ngx_http_vibelock_unguarded;


static ngx_command_t  ngx_http_vibelock_commands[] = {

    { ngx_string("vibelock_zone"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_TAKE23,
      ngx_http_vibelock_zone_directive,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("vibelock"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE12,
      ngx_http_vibelock_guard_directive,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("vibelock_ttl"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF
                        |NGX_CONF_1MORE,
      ngx_http_vibelock_ttl_directive,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("vibelock_overrun"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_FLAG,
      ngx_conf_set_flag_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_vibelock_loc_conf_t, guard.overrun),
      NULL },

    { ngx_string("vibelock_keep"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF
                        |NGX_CONF_1MORE,
      ngx_http_vibelock_keep_directive,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("vibelock_retry_after"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_http_vibelock_retry_after_directive,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("vibelock_release"),
      NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_http_vibelock_release_directive,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("vibelock_unstick"),
      NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_http_vibelock_unstick_directive,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("vibelock_status"),
      NGX_HTTP_LOC_CONF|NGX_CONF_NOARGS|NGX_CONF_TAKE12,
      ngx_http_vibelock_status_directive,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("vibelock_registry"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_TAKE12,
      ngx_http_vibelock_registry_directive,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("vibelock_redis"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_1MORE,
      ngx_http_vibelock_redis_directive,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("vibelock_owner"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_http_set_complex_value_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_vibelock_loc_conf_t, caller.owner),
      NULL },

    { ngx_string("vibelock_server_kind"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_http_vibelock_server_directive,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_vibelock_loc_conf_t, caller.kind),
      &ngx_http_vibelock_kinds },

    { ngx_string("vibelock_server_found"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_http_vibelock_server_directive,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_vibelock_loc_conf_t, caller.found),
      &ngx_http_vibelock_founds },

    { ngx_string("vibelock_dry_run"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_FLAG,
      ngx_conf_set_flag_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_vibelock_loc_conf_t, guard.dry_run),
      NULL },

    { ngx_string("vibelock_log_level"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_http_vibelock_log_level_directive,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

      ngx_null_command
};


static ngx_http_module_t  ngx_http_vibelock_module_ctx = {
    ngx_http_vibelock_preconfiguration,    /* preconfiguration */
    ngx_http_vibelock_postconfiguration,   /* postconfiguration */

    ngx_http_vibelock_create_main_conf,    /* create main configuration */
    ngx_http_vibelock_init_main_conf,      /* init main configuration */

    NULL,                                  /* create server configuration */
    NULL,                                  /* merge server configuration */

    ngx_http_vibelock_create_loc_conf,     /* create location configuration */
    ngx_http_vibelock_merge_loc_conf       /* merge location configuration */
};


ngx_module_t  ngx_http_vibelock_module = {
    NGX_MODULE_V1,
    &ngx_http_vibelock_module_ctx,         /* module context */
    ngx_http_vibelock_commands,            /* module directives */
    NGX_HTTP_MODULE,                       /* module type */
    NULL,                                  /* init master */
    ngx_http_vibelock_init_module,         /* init module */
    ngx_http_vibelock_init_process,        /* init process */
    NULL,                                  /* init thread */
    NULL,                                  /* exit thread */
    ngx_http_vibelock_exit_process,        /* exit process */
    ngx_http_vibelock_exit_master,         /* exit master */
    NGX_MODULE_V1_PADDING
};


static ngx_http_output_header_filter_pt  ngx_http_next_header_filter;
static ngx_http_output_body_filter_pt    ngx_http_next_body_filter;


static ngx_int_t
ngx_http_vibelock_precontent_handler(ngx_http_request_t *r)
{
    ngx_int_t                        rc;
    ngx_http_vibelock_loc_conf_t    *conf;
    ngx_http_vibelock_guard_conf_t  *guard;

    conf = ngx_http_get_module_loc_conf(r, ngx_http_vibelock_module);

    guard = &conf->guard;

    /* what guards the server around it guards neither way out nor view */

    if (conf->endpoint.zone || conf->unstick.zone || conf->status.enabled) {
        guard = &ngx_http_vibelock_unguarded;
    }

    /* most requests of most gateways: nothing to do here, nor done before */

    if (guard->zone == NULL
        && conf->unstick.zone == NULL
        && ngx_http_vibelock_record_find(r) == NULL)
    {
        return NGX_DECLINED;
    }

    rc = ngx_http_vibelock_unstick(r, &conf->unstick);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    return ngx_http_vibelock_guard(r, guard);
}


static ngx_int_t
ngx_http_vibelock_release_handler(ngx_http_request_t *r)
{
    ngx_http_vibelock_loc_conf_t  *conf;

    conf = ngx_http_get_module_loc_conf(r, ngx_http_vibelock_module);

    return ngx_http_vibelock_endpoint(r, &conf->endpoint);
}


static ngx_int_t
ngx_http_vibelock_status_handler(ngx_http_request_t *r)
{
    ngx_http_vibelock_loc_conf_t  *conf;

    conf = ngx_http_get_module_loc_conf(r, ngx_http_vibelock_module);

    return ngx_http_vibelock_status(r, &conf->status);
}


static ngx_int_t
ngx_http_vibelock_header_filter(ngx_http_request_t *r)
{
    ngx_http_vibelock_guard_header(r);
    ngx_http_vibelock_unstick_header(r);

    return ngx_http_vibelock_guard_sent(r, ngx_http_next_header_filter(r));
}


static ngx_int_t
ngx_http_vibelock_body_filter(ngx_http_request_t *r, ngx_chain_t *in)
{
    ngx_http_vibelock_guard_body(r, in);

    return ngx_http_next_body_filter(r, in);
}


static ngx_int_t
ngx_http_vibelock_preconfiguration(ngx_conf_t *cf)
{
    return ngx_http_vibelock_record_variables(cf);
}


static ngx_int_t
ngx_http_vibelock_postconfiguration(ngx_conf_t *cf)
{
    ngx_http_handler_pt            *h;
    ngx_http_core_main_conf_t      *cmcf;
    ngx_http_vibelock_main_conf_t  *conf;

    conf = ngx_http_conf_get_module_main_conf(cf, ngx_http_vibelock_module);

    if (conf->zones.list.nelts == 0) {
        return NGX_OK;
    }

    cmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);

    h = ngx_array_push(&cmcf->phases[NGX_HTTP_PRECONTENT_PHASE].handlers);
    if (h == NULL) {
        return NGX_ERROR;
    }

    *h = ngx_http_vibelock_precontent_handler;

    ngx_http_next_header_filter = ngx_http_top_header_filter;
    ngx_http_top_header_filter = ngx_http_vibelock_header_filter;

    ngx_http_next_body_filter = ngx_http_top_body_filter;
    ngx_http_top_body_filter = ngx_http_vibelock_body_filter;

    return NGX_OK;
}


static void *
ngx_http_vibelock_create_main_conf(ngx_conf_t *cf)
{
    ngx_http_vibelock_main_conf_t  *conf;

    conf = ngx_pcalloc(cf->pool, sizeof(ngx_http_vibelock_main_conf_t));
    if (conf == NULL) {
        return NULL;
    }

    if (ngx_http_vibelock_zones_init(cf, &conf->zones) != NGX_OK) {
        return NULL;
    }

    return conf;
}


static char *
ngx_http_vibelock_init_main_conf(ngx_conf_t *cf, void *conf)
{
    ngx_http_vibelock_main_conf_t *vmcf = conf;

    if (ngx_http_vibelock_zones_check(cf, &vmcf->zones) != NGX_CONF_OK) {
        return NGX_CONF_ERROR;
    }

    if (vmcf->bus) {
        return ngx_http_vibelock_bus_check(cf, vmcf->bus, &vmcf->zones,
                                           vmcf->registry);
    }

    return NGX_CONF_OK;
}


static void *
ngx_http_vibelock_create_loc_conf(ngx_conf_t *cf)
{
    ngx_http_vibelock_loc_conf_t  *conf;

    conf = ngx_pcalloc(cf->pool, sizeof(ngx_http_vibelock_loc_conf_t));
    if (conf == NULL) {
        return NULL;
    }

    /*
     * set by ngx_pcalloc():
     *
     *     conf->guard.operation = NULL;
     *     conf->guard.ttl = { 0 };
     *     conf->guard.keep = NULL;
     *     conf->endpoint.zone = NULL;
     *     conf->unstick.zone = NULL;
     *     conf->status = { 0 };
     *     conf->caller = { NULL };
     */

    conf->guard.zone = NGX_CONF_UNSET_PTR;
    conf->guard.overrun = NGX_CONF_UNSET;
    conf->guard.dry_run = NGX_CONF_UNSET;
    conf->guard.retry_after = NGX_CONF_UNSET_MSEC;
    conf->guard.log_level = NGX_CONF_UNSET_UINT;

    return conf;
}


static char *
ngx_http_vibelock_merge_loc_conf(ngx_conf_t *cf, void *parent, void *child)
{
    ngx_http_vibelock_loc_conf_t *prev = parent;
    ngx_http_vibelock_loc_conf_t *conf = child;

    ngx_http_vibelock_main_conf_t  *vmcf;

    vmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_vibelock_module);

    ngx_conf_merge_value(conf->guard.overrun, prev->guard.overrun, 0);
    ngx_conf_merge_value(conf->guard.dry_run, prev->guard.dry_run, 0);
    ngx_conf_merge_msec_value(conf->guard.retry_after, prev->guard.retry_after,
                              NGX_HTTP_VIBELOCK_RETRY_AFTER);
    ngx_conf_merge_uint_value(conf->guard.log_level, prev->guard.log_level,
                              NGX_LOG_WARN);

    ngx_http_vibelock_ttl_merge(&prev->guard.ttl, &conf->guard.ttl);

    if (conf->guard.keep == NULL) {
        conf->guard.keep = prev->guard.keep;
    }

    if (conf->caller.owner == NULL) {
        conf->caller.owner = prev->caller.owner;
    }

    if (conf->caller.found == NULL) {
        conf->caller.found = prev->caller.found;
    }

    if (conf->caller.kind == NULL) {
        conf->caller.kind = prev->caller.kind;
    }

    conf->caller.registry = vmcf->registry;

    conf->guard.caller = &conf->caller;
    conf->endpoint.caller = &conf->caller;
    conf->unstick.caller = &conf->caller;

    conf->endpoint.log_level = conf->guard.log_level;
    conf->unstick.log_level = conf->guard.log_level;
    conf->unstick.retry_after = conf->guard.retry_after;
    conf->unstick.dry_run = conf->guard.dry_run;

    conf->status.log_level = conf->guard.log_level;
    conf->status.zones = &vmcf->zones;
    conf->status.registry = vmcf->registry;

    if (ngx_http_vibelock_merge_status(cf, prev, conf) != NGX_CONF_OK) {
        return NGX_CONF_ERROR;
    }

    return ngx_http_vibelock_merge_endpoints(cf, prev, conf);
}


static char *
ngx_http_vibelock_merge_status(ngx_conf_t *cf,
    ngx_http_vibelock_loc_conf_t *prev, ngx_http_vibelock_loc_conf_t *conf)
{
    ngx_http_core_loc_conf_t  *clcf;

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    /* "if" and "limit_except" are the location they stand in */

    if (clcf->noname && prev->status.enabled && clcf->handler == NULL) {
        conf->status.enabled = prev->status.enabled;
        conf->status.breakable = prev->status.breakable;
        conf->status.form = prev->status.form;

        clcf->handler = ngx_http_vibelock_status_handler;
    }

    if (!conf->status.enabled) {
        return NGX_CONF_OK;
    }

    if ((conf->guard.zone != NGX_CONF_UNSET_PTR && conf->guard.zone)
        || conf->endpoint.zone
        || conf->unstick.zone
        || clcf->handler != ngx_http_vibelock_status_handler)
    {
        return ngx_http_vibelock_status_beside(cf);
    }

    if (conf->status.breakable && clcf->exact_match) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"vibelock_status break=on\" answers below its "
                           "address too, where \"location = %V\" lets "
                           "nothing come; write \"location %V\"",
                           &clcf->name, &clcf->name);
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


static char *
ngx_http_vibelock_merge_endpoints(ngx_conf_t *cf,
    ngx_http_vibelock_loc_conf_t *prev, ngx_http_vibelock_loc_conf_t *conf)
{
    ngx_http_core_loc_conf_t  *clcf;

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    /* "if" and "limit_except" are the location they stand in */

    if (clcf->noname) {

        if (conf->unstick.zone == NULL) {
            conf->unstick.zone = prev->unstick.zone;
        }

        if (conf->endpoint.zone == NULL && prev->endpoint.zone
            && clcf->handler == NULL)
        {
            conf->endpoint.zone = prev->endpoint.zone;
            clcf->handler = ngx_http_vibelock_release_handler;
        }
    }

    if ((conf->endpoint.zone || conf->unstick.zone)
        && conf->guard.zone != NGX_CONF_UNSET_PTR
        && conf->guard.zone)
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"vibelock\" cannot stand in location \"%V\" "
                           "with \"vibelock_release\" or "
                           "\"vibelock_unstick\", which would wait for the "
                           "lock they are to break", &clcf->name);
        return NGX_CONF_ERROR;
    }

    if (conf->endpoint.zone && conf->unstick.zone) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"vibelock_release\" cannot stand in location "
                           "\"%V\" with \"vibelock_unstick\": the one takes "
                           "DELETE, the other POST alone; give each a "
                           "location of its own", &clcf->name);
        return NGX_CONF_ERROR;
    }

    if (conf->guard.zone == NGX_CONF_UNSET_PTR) {
        conf->guard.zone = prev->guard.zone;
        conf->guard.operation = prev->guard.operation;
    }

    if (conf->guard.zone == NGX_CONF_UNSET_PTR) {
        conf->guard.zone = NULL;
    }

    return ngx_http_vibelock_check_endpoints(cf, conf);
}


static char *
ngx_http_vibelock_check_endpoints(ngx_conf_t *cf,
    ngx_http_vibelock_loc_conf_t *conf)
{
    ngx_http_core_loc_conf_t  *clcf;

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    if (conf->endpoint.zone
        && ngx_http_vibelock_check_caller(cf, "vibelock_release",
                                          &conf->caller)
           != NGX_CONF_OK)
    {
        return NGX_CONF_ERROR;
    }

    if (conf->endpoint.zone
        && clcf->handler != ngx_http_vibelock_release_handler)
    {
        return ngx_http_vibelock_release_beside(cf);
    }

    if (conf->unstick.zone == NULL) {
        return NGX_CONF_OK;
    }

    if (conf->caller.owner && conf->caller.kind == NULL) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"vibelock_unstick\" with \"vibelock_owner\" "
                           "needs \"vibelock_server_kind\" in location "
                           "\"%V\": only a server of kind STANDALONE can be "
                           "unstuck", &clcf->name);
        return NGX_CONF_ERROR;
    }

    return ngx_http_vibelock_check_caller(cf, "vibelock_unstick",
                                          &conf->caller);
}


static char *
ngx_http_vibelock_check_caller(ngx_conf_t *cf, char *directive,
    ngx_http_vibelock_caller_conf_t *caller)
{
    ngx_http_core_loc_conf_t  *clcf;

    if (caller->owner || caller->registry) {
        return NGX_CONF_OK;
    }

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "\"%s\" in location \"%V\" needs "
                       "\"vibelock_registry\" or \"vibelock_owner\", or "
                       "anybody could break any lock",
                       directive, &clcf->name);

    return NGX_CONF_ERROR;
}


static char *
ngx_http_vibelock_zone_directive(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_http_vibelock_main_conf_t *vmcf = conf;

    return ngx_http_vibelock_zone_set(cf, &vmcf->zones);
}


static char *
ngx_http_vibelock_guard_directive(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_http_vibelock_loc_conf_t *vlcf = conf;

    ngx_str_t                      *value;
    ngx_http_vibelock_main_conf_t  *vmcf;

    if (vlcf->guard.zone != NGX_CONF_UNSET_PTR) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (cf->args->nelts == 2 && ngx_strcmp(value[1].data, "off") == 0) {
        vlcf->guard.zone = NULL;
        return NGX_CONF_OK;
    }

    if (ngx_http_vibelock_guard_words(cf) != NGX_CONF_OK) {
        return NGX_CONF_ERROR;
    }

    vmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_vibelock_module);

    vlcf->guard.zone = ngx_http_vibelock_zone_get(cf, &vmcf->zones, &value[2]);
    if (vlcf->guard.zone == NULL) {
        return NGX_CONF_ERROR;
    }

    vlcf->guard.operation = ngx_http_vibelock_zone_operation(cf,
                                                vlcf->guard.zone, &value[1]);
    if (vlcf->guard.operation == NULL) {
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


/* whether an operation is named, and something that may be its zone */

static char *
ngx_http_vibelock_guard_words(ngx_conf_t *cf)
{
    ngx_str_t  *value;

    value = cf->args->elts;

    if (cf->args->nelts == 2) {

        if (ngx_strncmp(value[1].data, "zone=", 5) == 0
            || ngx_strcasecmp(value[1].data, (u_char *) "on") == 0)
        {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "\"vibelock %V\" must name an operation and a "
                               "zone, as in \"vibelock exec zone=ops\", or be "
                               "\"vibelock off\"", &value[1]);
            return NGX_CONF_ERROR;
        }

        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"vibelock %V\" must name a zone, as in "
                           "\"vibelock %V zone=ops\", or be \"vibelock off\"",
                           &value[1], &value[1]);
        return NGX_CONF_ERROR;
    }

    if (ngx_strncmp(value[1].data, "zone=", 5) == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"vibelock %V %V\" must name the operation "
                           "first, as in \"vibelock exec zone=ops\"",
                           &value[1], &value[2]);
        return NGX_CONF_ERROR;
    }

    if (ngx_strcmp(value[1].data, "off") == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"vibelock off %V\" must be \"vibelock off\", or "
                           "name an operation that is not called \"off\"",
                           &value[2]);
        return NGX_CONF_ERROR;
    }

    if (!ngx_http_vibelock_guard_operation(&value[1])) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid operation \"%V\" in \"vibelock\", it must "
                           "be 1 to 32 letters, digits, \"_\" or \"-\"",
                           &value[1]);
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


static char *
ngx_http_vibelock_ttl_directive(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_vibelock_loc_conf_t *vlcf = conf;

    return ngx_http_vibelock_ttl_set(cf, &vlcf->guard.ttl);
}


static char *
ngx_http_vibelock_keep_directive(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_http_vibelock_loc_conf_t *vlcf = conf;

    return ngx_http_vibelock_keep_set(cf, &vlcf->guard.keep);
}


static char *
ngx_http_vibelock_retry_after_directive(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_http_vibelock_loc_conf_t *vlcf = conf;

    ngx_int_t   time;
    ngx_str_t  *value;

    if (vlcf->guard.retry_after != NGX_CONF_UNSET_MSEC) {
        return "is duplicate";
    }

    value = cf->args->elts;

    time = ngx_parse_time(&value[1], 0);

    if (time == NGX_ERROR) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid value \"%V\" in \"%V\" directive, it "
                           "must be a time, such as \"5s\"",
                           &value[1], &cmd->name);
        return NGX_CONF_ERROR;
    }

    vlcf->guard.retry_after = time;

    return NGX_CONF_OK;
}


static char *
ngx_http_vibelock_release_directive(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_http_vibelock_loc_conf_t *vlcf = conf;

    ngx_str_t                      *value;
    ngx_http_core_loc_conf_t       *clcf;
    ngx_http_vibelock_main_conf_t  *vmcf;

    if (vlcf->endpoint.zone) {
        return "is duplicate";
    }

    value = cf->args->elts;

    vmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_vibelock_module);

    vlcf->endpoint.zone = ngx_http_vibelock_zone_get(cf, &vmcf->zones,
                                                     &value[1]);
    if (vlcf->endpoint.zone == NULL) {
        return NGX_CONF_ERROR;
    }

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    if (clcf->handler) {
        return ngx_http_vibelock_release_beside(cf);
    }

    clcf->handler = ngx_http_vibelock_release_handler;

    return NGX_CONF_OK;
}


static char *
ngx_http_vibelock_release_beside(ngx_conf_t *cf)
{
    ngx_http_core_loc_conf_t  *clcf;

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "\"vibelock_release\" answers its location \"%V\" "
                       "itself and cannot stand beside \"proxy_pass\" or the "
                       "like; give it a location of its own", &clcf->name);

    return NGX_CONF_ERROR;
}


static char *
ngx_http_vibelock_unstick_directive(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_http_vibelock_loc_conf_t *vlcf = conf;

    ngx_str_t                      *value;
    ngx_http_vibelock_main_conf_t  *vmcf;

    if (vlcf->unstick.zone) {
        return "is duplicate";
    }

    value = cf->args->elts;

    vmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_vibelock_module);

    vlcf->unstick.zone = ngx_http_vibelock_zone_get(cf, &vmcf->zones,
                                                    &value[1]);
    if (vlcf->unstick.zone == NULL) {
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


static char *
ngx_http_vibelock_registry_directive(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_http_vibelock_main_conf_t *vmcf = conf;

    ngx_int_t   check;
    ngx_str_t  *value, s;

    if (vmcf->registry) {
        return "is duplicate";
    }

    value = cf->args->elts;
    check = NGX_HTTP_VIBELOCK_CHECK;

    if (cf->args->nelts == 3) {

        check = NGX_ERROR;

        if (ngx_strncmp(value[2].data, "check=", 6) == 0) {
            s.data = value[2].data + 6;
            s.len = value[2].len - 6;

            check = ngx_parse_time(&s, 0);
        }

        if (check == NGX_ERROR || check == 0) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "invalid parameter \"%V\" in "
                               "\"vibelock_registry\", it must be "
                               "\"check=<time>\" with a time above 0, as in "
                               "\"check=5s\"", &value[2]);
            return NGX_CONF_ERROR;
        }
    }

    vmcf->registry = ngx_http_vibelock_registry_create(cf, &value[1], check);

    return vmcf->registry ? NGX_CONF_OK : NGX_CONF_ERROR;
}


static char *
ngx_http_vibelock_status_directive(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_http_vibelock_loc_conf_t *vlcf = conf;

    ngx_http_core_loc_conf_t  *clcf;

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    if (clcf->handler && !vlcf->status.enabled) {
        return ngx_http_vibelock_status_beside(cf);
    }

    clcf->handler = ngx_http_vibelock_status_handler;

    return ngx_http_vibelock_status_set(cf, &vlcf->status);
}


static char *
ngx_http_vibelock_status_beside(ngx_conf_t *cf)
{
    ngx_http_core_loc_conf_t  *clcf;

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "\"vibelock_status\" answers its location \"%V\" "
                       "itself and cannot stand beside \"vibelock\", "
                       "\"vibelock_release\", \"vibelock_unstick\", "
                       "\"proxy_pass\" or the like; give it a location "
                       "of its own", &clcf->name);

    return NGX_CONF_ERROR;
}


static char *
ngx_http_vibelock_log_level_directive(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_http_vibelock_loc_conf_t *vlcf = conf;

    ngx_str_t        *value;
    ngx_conf_enum_t  *level;

    if (vlcf->guard.log_level != NGX_CONF_UNSET_UINT) {
        return "is duplicate";
    }

    value = cf->args->elts;

    for (level = ngx_http_vibelock_log_levels; level->name.len; level++) {

        if (level->name.len == value[1].len
            && ngx_strncmp(level->name.data, value[1].data, value[1].len) == 0)
        {
            vlcf->guard.log_level = level->value;
            return NGX_CONF_OK;
        }
    }

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "invalid value \"%V\" in \"%V\" directive, it must be "
                       "\"info\", \"notice\", \"warn\" or \"error\"",
                       &value[1], &cmd->name);

    return NGX_CONF_ERROR;
}


static char *
ngx_http_vibelock_redis_directive(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_http_vibelock_main_conf_t *vmcf = conf;

    return ngx_http_vibelock_bus_set(cf, &vmcf->bus);
}


/* vibelock_server_found, vibelock_server_kind */

static char *
ngx_http_vibelock_server_directive(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    char  *p = conf;

    char                       *rv;
    ngx_str_t                  *value;
    ngx_uint_t                  i;
    ngx_http_complex_value_t   *cv;
    ngx_http_vibelock_fixed_t  *fixed;

    rv = ngx_http_set_complex_value_slot(cf, cmd, conf);

    if (rv != NGX_CONF_OK) {
        return rv;
    }

    value = cf->args->elts;
    fixed = cmd->post;
    cv = *(ngx_http_complex_value_t **) (p + cmd->offset);

    if (cv->lengths || value[1].len == 0) {
        return NGX_CONF_OK;
    }

    for (i = 0; i < 3; i++) {
        if (value[1].len == fixed->values[i].len
            && ngx_strncmp(value[1].data, fixed->values[i].data, value[1].len)
               == 0)
        {
            return NGX_CONF_OK;
        }
    }

    ngx_conf_log_error(NGX_LOG_WARN, cf, 0,
                       "\"%V\" has the value \"%V\", so %s, or have a "
                       "variable", &cmd->name, &value[1], fixed->must);

    return NGX_CONF_OK;
}


static ngx_int_t
ngx_http_vibelock_init_module(ngx_cycle_t *cycle)
{
    ngx_http_vibelock_main_conf_t  *conf;

    conf = ngx_http_cycle_get_module_main_conf(cycle,
                                               ngx_http_vibelock_module);

    if (conf && conf->bus) {
        ngx_http_vibelock_bus_init(conf->bus);
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_vibelock_init_process(ngx_cycle_t *cycle)
{
    ngx_http_vibelock_main_conf_t  *conf;

    if (ngx_process != NGX_PROCESS_WORKER && ngx_process != NGX_PROCESS_SINGLE)
    {
        return NGX_OK;
    }

    conf = ngx_http_cycle_get_module_main_conf(cycle,
                                               ngx_http_vibelock_module);
    if (conf == NULL) {
        return NGX_OK;
    }

    ngx_http_vibelock_zones_start(&conf->zones, cycle);

    if (conf->bus) {
        ngx_http_vibelock_bus_start(conf->bus, cycle);
    }

    if (conf->registry) {
        ngx_http_vibelock_registry_start(conf->registry, cycle,
                               ngx_http_vibelock_zones_unread(&conf->zones));
    }

    return NGX_OK;
}


static void
ngx_http_vibelock_exit_process(ngx_cycle_t *cycle)
{
    ngx_http_vibelock_main_conf_t  *conf;

    if (ngx_process != NGX_PROCESS_WORKER && ngx_process != NGX_PROCESS_SINGLE)
    {
        return;
    }

    conf = ngx_http_cycle_get_module_main_conf(cycle,
                                               ngx_http_vibelock_module);
    if (conf == NULL) {
        return;
    }

    if (conf->bus) {
        ngx_http_vibelock_bus_stop(conf->bus);
    }

    ngx_http_vibelock_zones_stop(&conf->zones);

    if (conf->registry) {
        ngx_http_vibelock_registry_stop(conf->registry);
    }
}


static void
ngx_http_vibelock_exit_master(ngx_cycle_t *cycle)
{
    ngx_http_vibelock_main_conf_t  *conf;

    conf = ngx_http_cycle_get_module_main_conf(cycle,
                                               ngx_http_vibelock_module);

    if (conf && conf->bus) {
        ngx_http_vibelock_bus_end(conf->bus, cycle);
    }
}
