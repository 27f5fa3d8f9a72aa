
/*
 * Copyright (C) the vibelock authors
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include <jansson.h>

#include "ngx_http_vibelock_digest.h"
#include "ngx_http_vibelock_entry.h"
#include "ngx_http_vibelock_number.h"
#include "ngx_http_vibelock_plain.h"


#define NGX_HTTP_VIBELOCK_ENTRY_VERSION_1  1


/* an entry as encode() writes it, around its values */

#define NGX_HTTP_VIBELOCK_ENTRY_HEAD       "{\"v\":1,\"key\":\""
#define NGX_HTTP_VIBELOCK_ENTRY_TO_OWNER   "\",\"owner\":\""
#define NGX_HTTP_VIBELOCK_ENTRY_TO_AT      "\",\"at\":"
#define NGX_HTTP_VIBELOCK_ENTRY_TO_FROM    ",\"from\":\""
#define NGX_HTTP_VIBELOCK_ENTRY_TAIL       "\"}"

/* digits of a number that does not overflow */
#define NGX_HTTP_VIBELOCK_ENTRY_DIGITS     18


#define ngx_http_vibelock_entry_copy(p, text)                                 \
    ngx_cpymem(p, text, sizeof(text) - 1)

#define ngx_http_vibelock_entry_skip(p, last, text)                           \
    ((size_t) (last - p) >= sizeof(text) - 1                                  \
     && ngx_memcmp(p, text, sizeof(text) - 1) == 0                            \
     && (p += sizeof(text) - 1))


static size_t ngx_http_vibelock_entry_write(ngx_http_vibelock_entry_t *entry,
    u_char *buf);
static u_char *ngx_http_vibelock_entry_hex(u_char *p, u_char *owner);
static ngx_int_t ngx_http_vibelock_entry_read(
    ngx_http_vibelock_entry_t *entry, u_char *data, size_t len);
static u_char *ngx_http_vibelock_entry_digits(u_char *p, u_char *last,
    uint64_t *n);
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

    len = ngx_http_vibelock_entry_write(entry, buf);

    if (len) {
        return len;
    }

    json = json_object();

    if (json == NULL) {
        return 0;
    }

    (void) ngx_hex_dump(hex, entry->owner, NGX_HTTP_VIBELOCK_ENTRY_OWNER);

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

    if (ngx_http_vibelock_entry_read(entry, data, len) == NGX_OK) {
        return NGX_HTTP_VIBELOCK_ENTRY_OK;
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


/*
 * Most entries need no JSON parser, neither to be written nor to be read: their
 * texts have nothing to escape.  0 and NGX_DECLINED: this one may need it.
 */

static size_t
ngx_http_vibelock_entry_write(ngx_http_vibelock_entry_t *entry, u_char *buf)
{
    u_char  *p;

    if (ngx_http_vibelock_plain(entry->key, entry->key_len) != entry->key_len
        || ngx_http_vibelock_plain(entry->from, entry->from_len)
           != entry->from_len)
    {
        return 0;
    }

    p = ngx_http_vibelock_entry_copy(buf, NGX_HTTP_VIBELOCK_ENTRY_HEAD);
    p = ngx_cpymem(p, entry->key, entry->key_len);

    p = ngx_http_vibelock_entry_copy(p, NGX_HTTP_VIBELOCK_ENTRY_TO_OWNER);
    p = ngx_http_vibelock_entry_hex(p, entry->owner);

    p = ngx_http_vibelock_entry_copy(p, NGX_HTTP_VIBELOCK_ENTRY_TO_AT);
    p = ngx_http_vibelock_number(p, entry->at);

    p = ngx_http_vibelock_entry_copy(p, NGX_HTTP_VIBELOCK_ENTRY_TO_FROM);
    p = ngx_cpymem(p, entry->from, entry->from_len);

    p = ngx_http_vibelock_entry_copy(p, NGX_HTTP_VIBELOCK_ENTRY_TAIL);

    return p - buf;
}


/*
 * The same as ngx_hex_dump(), four bytes at a time: each byte is spread over
 * two, each digit is a byte then, and those above 9 are letters.
 */

static u_char *
ngx_http_vibelock_entry_hex(u_char *p, u_char *owner)
{
#if (NGX_HAVE_LITTLE_ENDIAN)

    uint32_t    four;
    uint64_t    eight, letters;
    ngx_uint_t  i;

    for (i = 0; i < NGX_HTTP_VIBELOCK_ENTRY_OWNER; i += sizeof(four)) {
        ngx_memcpy(&four, owner + i, sizeof(four));

        eight = four;
        eight = (eight | eight << 16) & 0x0000ffff0000ffff;
        eight = (eight | eight << 8) & 0x00ff00ff00ff00ff;

        eight = (eight >> 4 & 0x000f000f000f000f)
                | (eight & 0x000f000f000f000f) << 8;

        letters = (eight + 0x0606060606060606) >> 4 & 0x0101010101010101;

        eight += 0x3030303030303030 + letters * ('a' - '0' - 10);

        p = ngx_cpymem(p, &eight, sizeof(eight));
    }

    return p;

#else
    return ngx_hex_dump(p, owner, NGX_HTTP_VIBELOCK_ENTRY_OWNER);
#endif
}


static ngx_int_t
ngx_http_vibelock_entry_read(ngx_http_vibelock_entry_t *entry, u_char *data,
    size_t len)
{
    u_char     *p, *last;
    ngx_str_t   owner;

    p = data;
    last = data + len;

    if (!ngx_http_vibelock_entry_skip(p, last, NGX_HTTP_VIBELOCK_ENTRY_HEAD)) {
        return NGX_DECLINED;
    }

    entry->key_len = ngx_http_vibelock_plain(p,
                         ngx_min(last - p, NGX_HTTP_VIBELOCK_ENTRY_KEY));
    ngx_memcpy(entry->key, p, entry->key_len);
    p += entry->key_len;

    if (entry->key_len == 0
        || !ngx_http_vibelock_entry_skip(p, last,
                                         NGX_HTTP_VIBELOCK_ENTRY_TO_OWNER))
    {
        return NGX_DECLINED;
    }

    owner.data = p;
    owner.len = 2 * NGX_HTTP_VIBELOCK_ENTRY_OWNER;

    if ((size_t) (last - p) < owner.len
        || ngx_http_vibelock_digest_hex(&owner, entry->owner) != NGX_OK)
    {
        return NGX_DECLINED;
    }

    p += owner.len;

    if (!ngx_http_vibelock_entry_skip(p, last,
                                      NGX_HTTP_VIBELOCK_ENTRY_TO_AT))
    {
        return NGX_DECLINED;
    }

    p = ngx_http_vibelock_entry_digits(p, last, &entry->at);

    if (p == NULL
        || !ngx_http_vibelock_entry_skip(p, last,
                                         NGX_HTTP_VIBELOCK_ENTRY_TO_FROM))
    {
        return NGX_DECLINED;
    }

    entry->from_len = ngx_http_vibelock_plain(p,
                          ngx_min(last - p, NGX_HTTP_VIBELOCK_ENTRY_FROM));
    ngx_memcpy(entry->from, p, entry->from_len);
    p += entry->from_len;

    if (entry->from_len == 0
        || !ngx_http_vibelock_entry_skip(p, last,
                                         NGX_HTTP_VIBELOCK_ENTRY_TAIL)
        || p != last)
    {
        return NGX_DECLINED;
    }

    return NGX_OK;
}


/* a number as encode() writes it; NULL: it is none, or too long */

static u_char *
ngx_http_vibelock_entry_digits(u_char *p, u_char *last, uint64_t *n)
{
    u_char  *start;

    start = p;
    *n = 0;

    while (p < last && *p >= '0' && *p <= '9'
           && p - start < NGX_HTTP_VIBELOCK_ENTRY_DIGITS)
    {
        *n = *n * 10 + (*p++ - '0');
    }

    return (p == start || (*start == '0' && p - start > 1)) ? NULL : p;
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
