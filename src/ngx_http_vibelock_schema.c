
/*
 * Copyright (C) the vibelock authors
 *
 * Messages never show a string in a place where none belongs, and no control
 * character of one that they show.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_http_vibelock_schema.h"


/* of a string from the document in a message, bytes; and with its quotes */

#define NGX_HTTP_VIBELOCK_SCHEMA_SHOWN  64
#define NGX_HTTP_VIBELOCK_SCHEMA_VALUE  (NGX_HTTP_VIBELOCK_SCHEMA_SHOWN + 5)


static ngx_int_t ngx_http_vibelock_schema_unknown(
    ngx_http_vibelock_schema_t *schema, json_t *json,
    ngx_http_vibelock_schema_member_t *members);
static u_char *ngx_http_vibelock_schema_value(u_char *buf, json_t *value,
    ngx_uint_t open);
static u_char *ngx_http_vibelock_schema_quote(u_char *buf, const char *data,
    size_t len);


ngx_int_t
ngx_http_vibelock_schema_object(ngx_http_vibelock_schema_t *schema,
    json_t *json, ngx_http_vibelock_schema_member_t *members, json_t **values)
{
    size_t       n;
    json_t      *value;
    json_type    type;
    ngx_uint_t   i;

    if (!json_is_object(json)) {
        return ngx_http_vibelock_schema_error(schema, NULL,
                                              "must be an object");
    }

    n = 0;

    for (i = 0; members[i].name; i++) {
        value = json_object_get(json, members[i].name);
        values[i] = value;

        if (value == NULL && members[i].optional) {
            continue;
        }

        if (value == NULL) {

            /* what is missing may be there under a name with a slip in it */

            if (ngx_http_vibelock_schema_unknown(schema, json, members)
                != NGX_OK)
            {
                return NGX_ERROR;
            }

            return ngx_http_vibelock_schema_wrong(schema, &members[i], NULL);
        }

        type = json_is_boolean(value) ? JSON_TRUE : json_typeof(value);

        if (members[i].type != type && members[i].type != JSON_NULL) {
            return ngx_http_vibelock_schema_wrong(schema, &members[i], value);
        }

        n++;
    }

    if (n != json_object_size(json)) {
        return ngx_http_vibelock_schema_unknown(schema, json, members);
    }

    return NGX_OK;
}


/* NGX_OK: it has none */

static ngx_int_t
ngx_http_vibelock_schema_unknown(ngx_http_vibelock_schema_t *schema,
    json_t *json, ngx_http_vibelock_schema_member_t *members)
{
    u_char      *p, *last, name[NGX_HTTP_VIBELOCK_SCHEMA_VALUE], known[128];
    json_t      *value;
    ngx_uint_t   i;
    const char  *key;

    json_object_foreach(json, key, value) {

        for (i = 0; members[i].name; i++) {
            if (ngx_strcmp(key, members[i].name) == 0) {
                break;
            }
        }

        if (members[i].name == NULL) {
            break;
        }
    }

    if (key == NULL) {
        return NGX_OK;
    }

    p = known;

    for (i = 0; members[i].name; i++) {
        p = ngx_slprintf(p, known + sizeof(known), "%s\"%s\"", i ? ", " : "",
                         members[i].name);
    }

    last = ngx_http_vibelock_schema_quote(name, key, ngx_strlen(key));

    return ngx_http_vibelock_schema_error(schema, NULL,
                              "has an unknown member %*s, but must have only "
                              "%*s", (size_t) (last - name), name,
                              (size_t) (p - known), known);
}


ngx_int_t
ngx_http_vibelock_schema_wrong(ngx_http_vibelock_schema_t *schema,
    ngx_http_vibelock_schema_member_t *member, json_t *value)
{
    u_char  *p, text[NGX_HTTP_VIBELOCK_SCHEMA_VALUE];

    if (value == NULL) {
        return ngx_http_vibelock_schema_error(schema, member->name,
                                              "is missing, it must be %s",
                                              member->must);
    }

    p = ngx_http_vibelock_schema_value(text, value,
                                       member->type == JSON_STRING);

    return ngx_http_vibelock_schema_error(schema, member->name,
                                          "is %*s, but must be %s",
                                          (size_t) (p - text), text,
                                          member->must);
}


ngx_int_t
ngx_http_vibelock_schema_error(ngx_http_vibelock_schema_t *schema,
    char *member, const char *fmt, ...)
{
    u_char      *p, *last;
    va_list      args;
    ngx_uint_t   i;

    p = schema->text;
    last = schema->text + sizeof(schema->text);

    for (i = 0; i < schema->depth; i++) {
        p = ngx_slprintf(p, last, "%s%s[%ui]", i ? "." : "",
                         schema->places[i].list, schema->places[i].n);
    }

    if (member) {
        p = ngx_slprintf(p, last, "%s%s", i ? "." : "", member);
    }

    if (p != schema->text) {
        p = ngx_slprintf(p, last, " ");
    }

    va_start(args, fmt);
    p = ngx_vslprintf(p, last, fmt, args);
    va_end(args);

    schema->error.data = schema->text;
    schema->error.len = p - schema->text;

    return NGX_ERROR;
}


static u_char *
ngx_http_vibelock_schema_value(u_char *buf, json_t *value, ngx_uint_t open)
{
    switch (json_typeof(value)) {

    case JSON_STRING:
        if (open) {
            return ngx_http_vibelock_schema_quote(buf,
                                                  json_string_value(value),
                                                  json_string_length(value));
        }

        return ngx_sprintf(buf, "a string");

    case JSON_INTEGER:
        return ngx_sprintf(buf, "%L", (int64_t) json_integer_value(value));

    case JSON_REAL:
        return ngx_sprintf(buf, "a number with a fraction");

    case JSON_TRUE:
        return ngx_sprintf(buf, "true");

    case JSON_FALSE:
        return ngx_sprintf(buf, "false");

    case JSON_NULL:
        return ngx_sprintf(buf, "null");

    case JSON_ARRAY:
        return ngx_sprintf(buf, "a list");

    default: /* JSON_OBJECT */
        return ngx_sprintf(buf, "an object");
    }
}


static u_char *
ngx_http_vibelock_schema_quote(u_char *buf, const char *data, size_t len)
{
    u_char  ch;
    size_t  i, n;

    n = len;

    if (n > NGX_HTTP_VIBELOCK_SCHEMA_SHOWN) {
        n = NGX_HTTP_VIBELOCK_SCHEMA_SHOWN;

        /* not through the middle of a character */

        while (n && ((u_char) data[n] & 0xc0) == 0x80) {
            n--;
        }
    }

    *buf++ = '"';

    for (i = 0; i < n; i++) {
        ch = (u_char) data[i];
        *buf++ = (ch < ' ' || ch == 0x7f) ? '?' : ch;
    }

    if (n < len) {
        buf = ngx_cpymem(buf, "...", 3);
    }

    *buf++ = '"';

    return buf;
}
