
/*
 * Copyright (C) the vibelock authors
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include <jansson.h>

#include "ngx_http_vibelock_digest.h"
#include "ngx_http_vibelock_entry.h"


#define NGX_HTTP_VIBELOCK_ENTRY_VERSION_1  1


static ngx_http_vibelock_entry_e ngx_http_vibelock_entry_members(
    ngx_http_vibelock_entry_t *entry, json_t *json);
static size_t ngx_http_vibelock_entry_text(json_t *json, const char *name,
    u_char *dst, size_t max);


size_t
ngx_http_vibelock_entry_encode(ngx_http_vibelock_entry_t *entry, u_char *buf)
{
    u_char   hex[2 * NGX_HTTP_VIBELOCK_ENTRY_OWNER];
    json_t  *json;
    size_t   len;

    json = json_object();

    if (json == NULL) {
        return 0;
    }

    (void) ngx_hex_dump(hex, entry->owner, NGX_HTTP_VIBELOCK_ENTRY_OWNER);

    len = 0;

    if (json_object_set_new(json, "v",
                            json_integer(NGX_HTTP_VIBELOCK_ENTRY_VERSION_1))
        == 0
        && json_object_set_new(json, "key",
                               json_stringn((char *) entry->key,
                                            entry->key_len))
           == 0
        && json_object_set_new(json, "owner",
                               json_stringn((char *) hex, sizeof(hex)))
           == 0
        && json_object_set_new(json, "at",
                               json_integer((json_int_t) entry->at))
           == 0
        && json_object_set_new(json, "from",
                               json_stringn((char *) entry->from,
                                            entry->from_len))
           == 0)
    {
        len = json_dumpb(json, (char *) buf, NGX_HTTP_VIBELOCK_ENTRY_MAX,
                         JSON_COMPACT);
    }

    json_decref(json);

    return (len <= NGX_HTTP_VIBELOCK_ENTRY_MAX) ? len : 0;
}


ngx_http_vibelock_entry_e
ngx_http_vibelock_entry_decode(ngx_http_vibelock_entry_t *entry, u_char *data,
    size_t len)
{
    json_t                     *json;
    ngx_http_vibelock_entry_e   rc;

    if (len > NGX_HTTP_VIBELOCK_ENTRY_MAX) {
        return NGX_HTTP_VIBELOCK_ENTRY_TOO_LARGE;
    }

    json = json_loadb((char *) data, len,
                      JSON_ALLOW_NUL|JSON_REJECT_DUPLICATES, NULL);

    if (json == NULL) {
        return NGX_HTTP_VIBELOCK_ENTRY_MALFORMED;
    }

    rc = ngx_http_vibelock_entry_members(entry, json);

    json_decref(json);

    return rc;
}


static ngx_http_vibelock_entry_e
ngx_http_vibelock_entry_members(ngx_http_vibelock_entry_t *entry, json_t *json)
{
    json_t     *value;
    ngx_str_t   owner;

    /* of anything but an object this gets NULL */

    value = json_object_get(json, "v");

    if (!json_is_integer(value)) {
        return NGX_HTTP_VIBELOCK_ENTRY_MALFORMED;
    }

    if (json_integer_value(value) != NGX_HTTP_VIBELOCK_ENTRY_VERSION_1) {
        return NGX_HTTP_VIBELOCK_ENTRY_VERSION;
    }

    entry->key_len = ngx_http_vibelock_entry_text(json, "key", entry->key,
                                                 NGX_HTTP_VIBELOCK_ENTRY_KEY);
    entry->from_len = ngx_http_vibelock_entry_text(json, "from", entry->from,
                                                NGX_HTTP_VIBELOCK_ENTRY_FROM);

    if (entry->key_len == 0 || entry->from_len == 0) {
        return NGX_HTTP_VIBELOCK_ENTRY_MALFORMED;
    }

    value = json_object_get(json, "owner");

    if (!json_is_string(value)) {
        return NGX_HTTP_VIBELOCK_ENTRY_MALFORMED;
    }

    owner.data = (u_char *) json_string_value(value);
    owner.len = json_string_length(value);

    if (ngx_http_vibelock_digest_hex(&owner, entry->owner) != NGX_OK) {
        return NGX_HTTP_VIBELOCK_ENTRY_MALFORMED;
    }

    value = json_object_get(json, "at");

    if (!json_is_integer(value) || json_integer_value(value) < 0) {
        return NGX_HTTP_VIBELOCK_ENTRY_MALFORMED;
    }

    entry->at = (uint64_t) json_integer_value(value);

    return NGX_HTTP_VIBELOCK_ENTRY_OK;
}


/* the length of a member that is a text of 1 to "max" bytes, else 0 */

static size_t
ngx_http_vibelock_entry_text(json_t *json, const char *name, u_char *dst,
    size_t max)
{
    size_t   len;
    json_t  *value;

    value = json_object_get(json, name);

    if (!json_is_string(value)) {
        return 0;
    }

    len = json_string_length(value);

    if (len > max) {
        return 0;
    }

    ngx_memcpy(dst, json_string_value(value), len);

    return len;
}
