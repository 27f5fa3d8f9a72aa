
/*
 * Copyright (C) the vibelock authors
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_http_vibelock_plain.h"
#include "ngx_http_vibelock_scan.h"


#define NGX_HTTP_VIBELOCK_SCAN_MEMBERS  32
#define NGX_HTTP_VIBELOCK_SCAN_LEVELS   4
#define NGX_HTTP_VIBELOCK_SCAN_DIGITS   18

/* a text, how much of it was read, and what was found */

typedef struct {
    u_char       *pos;
    u_char       *last;
    ngx_uint_t    levels;
    ngx_uint_t    members;      /* of the objects that are open */
    ngx_str_t     names[NGX_HTTP_VIBELOCK_SCAN_MEMBERS];
    ngx_int_t     found;
    ngx_uint_t    value;
} ngx_http_vibelock_scan_t;


static ngx_int_t ngx_http_vibelock_scan_object(ngx_http_vibelock_scan_t *scan,
    ngx_str_t *wanted);
static ngx_int_t ngx_http_vibelock_scan_array(ngx_http_vibelock_scan_t *scan);
static ngx_int_t ngx_http_vibelock_scan_wanted(ngx_http_vibelock_scan_t *scan,
    u_char ch);
static ngx_int_t ngx_http_vibelock_scan_value(ngx_http_vibelock_scan_t *scan,
    u_char ch);
static ngx_int_t ngx_http_vibelock_scan_other(ngx_http_vibelock_scan_t *scan,
    u_char ch);
static ngx_int_t ngx_http_vibelock_scan_level(ngx_http_vibelock_scan_t *scan,
    u_char ch);
static ngx_str_t *ngx_http_vibelock_scan_name(ngx_http_vibelock_scan_t *scan,
    ngx_uint_t first);
static ngx_int_t ngx_http_vibelock_scan_string(
    ngx_http_vibelock_scan_t *scan);
static u_char *ngx_http_vibelock_scan_escape(u_char *p, u_char *last);
static ngx_int_t ngx_http_vibelock_scan_number(ngx_http_vibelock_scan_t *scan,
    u_char ch, ngx_uint_t *value);
static ngx_int_t ngx_http_vibelock_scan_word(ngx_http_vibelock_scan_t *scan,
    char *word, size_t len);
static u_char ngx_http_vibelock_scan_next(ngx_http_vibelock_scan_t *scan);
static void ngx_http_vibelock_scan_space(ngx_http_vibelock_scan_t *scan);


ngx_int_t
ngx_http_vibelock_scan(ngx_str_t *text, ngx_str_t *name, ngx_uint_t *value)
{
    ngx_http_vibelock_scan_t  scan;

    scan.pos = text->data;
    scan.last = text->data + text->len;
    scan.levels = 0;
    scan.members = 0;
    scan.found = NGX_DECLINED;

    if (ngx_http_vibelock_scan_next(&scan) != '{'
        || ngx_http_vibelock_scan_object(&scan, name) != NGX_OK)
    {
        return NGX_AGAIN;
    }

    ngx_http_vibelock_scan_space(&scan);

    if (scan.pos != scan.last) {
        return NGX_AGAIN;
    }

    if (scan.found == NGX_OK) {
        *value = scan.value;
    }

    return scan.found;
}


/* an object, behind its first brace; "wanted" is NULL for one in another */

static ngx_int_t
ngx_http_vibelock_scan_object(ngx_http_vibelock_scan_t *scan,
    ngx_str_t *wanted)
{
    u_char       ch;
    ngx_int_t    rc;
    ngx_str_t   *name;
    ngx_uint_t   first;

    first = scan->members;
    ch = ngx_http_vibelock_scan_next(scan);

    if (ch == '}') {
        return NGX_OK;
    }

    for ( ;; ) {

        if (ch != '"') {
            return NGX_AGAIN;
        }

        name = ngx_http_vibelock_scan_name(scan, first);

        if (name == NULL || ngx_http_vibelock_scan_next(scan) != ':') {
            return NGX_AGAIN;
        }

        ch = ngx_http_vibelock_scan_next(scan);

        if (wanted && name->len == wanted->len
            && ngx_memcmp(name->data, wanted->data, name->len) == 0)
        {
            rc = ngx_http_vibelock_scan_wanted(scan, ch);

        } else {
            rc = ngx_http_vibelock_scan_value(scan, ch);
        }

        if (rc != NGX_OK) {
            return NGX_AGAIN;
        }

        ch = ngx_http_vibelock_scan_next(scan);

        if (ch == '}') {
            scan->members = first;
            return NGX_OK;
        }

        if (ch != ',') {
            return NGX_AGAIN;
        }

        ch = ngx_http_vibelock_scan_next(scan);
    }
}


/* an array, behind its first bracket */

static ngx_int_t
ngx_http_vibelock_scan_array(ngx_http_vibelock_scan_t *scan)
{
    u_char  ch;

    ch = ngx_http_vibelock_scan_next(scan);

    if (ch == ']') {
        return NGX_OK;
    }

    while (ngx_http_vibelock_scan_value(scan, ch) == NGX_OK) {

        ch = ngx_http_vibelock_scan_next(scan);

        if (ch == ']') {
            return NGX_OK;
        }

        if (ch != ',') {
            break;
        }

        ch = ngx_http_vibelock_scan_next(scan);
    }

    return NGX_AGAIN;
}


/* the value that is looked for, behind its first character */

static ngx_int_t
ngx_http_vibelock_scan_wanted(ngx_http_vibelock_scan_t *scan, u_char ch)
{
    if (ch == 'n') {
        return ngx_http_vibelock_scan_word(scan, "ull", 3);
    }

    scan->found = ngx_http_vibelock_scan_number(scan, ch, &scan->value);

    return scan->found;
}


/* any other, behind its first character */

static ngx_int_t
ngx_http_vibelock_scan_value(ngx_http_vibelock_scan_t *scan, u_char ch)
{
    switch (ch) {

    case '"':
        return ngx_http_vibelock_scan_string(scan);

    case '{':
    case '[':
        return ngx_http_vibelock_scan_level(scan, ch);

    case 't':
        return ngx_http_vibelock_scan_word(scan, "rue", 3);

    case 'f':
        return ngx_http_vibelock_scan_word(scan, "alse", 4);

    case 'n':
        return ngx_http_vibelock_scan_word(scan, "ull", 3);

    case '-':
        ch = (scan->pos < scan->last) ? *scan->pos++ : '\0';

        /* fall through */

    default:
        return ngx_http_vibelock_scan_other(scan, ch);
    }
}


/* a number that is of no interest: it may have a fraction */

static ngx_int_t
ngx_http_vibelock_scan_other(ngx_http_vibelock_scan_t *scan, u_char ch)
{
    u_char      *p;
    ngx_uint_t   number;

    if (ngx_http_vibelock_scan_number(scan, ch, &number) != NGX_OK) {
        return NGX_AGAIN;
    }

    p = scan->pos;

    if (p == scan->last || *p != '.') {
        return NGX_OK;
    }

    do {
        p++;
    } while (p < scan->last && *p >= '0' && *p <= '9');

    if (p - scan->pos == 1) {
        return NGX_AGAIN;
    }

    scan->pos = p;

    return NGX_OK;
}


static ngx_int_t
ngx_http_vibelock_scan_level(ngx_http_vibelock_scan_t *scan, u_char ch)
{
    ngx_int_t  rc;

    if (scan->levels == NGX_HTTP_VIBELOCK_SCAN_LEVELS) {
        return NGX_AGAIN;
    }

    scan->levels++;

    rc = (ch == '{') ? ngx_http_vibelock_scan_object(scan, NULL)
                     : ngx_http_vibelock_scan_array(scan);

    scan->levels--;

    return rc;
}


/*
 * The name of a member, behind its first quote, of an object whose own names
 * begin with the first; NULL: it is not plain, or there twice.
 */

static ngx_str_t *
ngx_http_vibelock_scan_name(ngx_http_vibelock_scan_t *scan, ngx_uint_t first)
{
    u_char      *p;
    ngx_str_t   *name;
    ngx_uint_t   i;

    if (scan->members == NGX_HTTP_VIBELOCK_SCAN_MEMBERS) {
        return NULL;
    }

    p = scan->pos + ngx_http_vibelock_plain(scan->pos, scan->last - scan->pos);

    /* an escaped name may be another one's double */

    if (p == scan->last || *p != '"') {
        return NULL;
    }

    name = &scan->names[scan->members];

    name->data = scan->pos;
    name->len = p - scan->pos;

    scan->pos = p + 1;

    for (i = first; i < scan->members; i++) {
        if (scan->names[i].len == name->len
            && ngx_memcmp(scan->names[i].data, name->data, name->len) == 0)
        {
            return NULL;
        }
    }

    scan->members++;

    return name;
}


/* a string, behind its first quote */

static ngx_int_t
ngx_http_vibelock_scan_string(ngx_http_vibelock_scan_t *scan)
{
    u_char  *p, *last;

    p = scan->pos;
    last = scan->last;

    do {
        p += ngx_http_vibelock_plain(p, last - p);

        if (p == last) {
            return NGX_AGAIN;
        }

        if (*p == '"') {
            scan->pos = p + 1;
            return NGX_OK;
        }

        p = (*p == '\\') ? ngx_http_vibelock_scan_escape(p + 1, last)
                         : ngx_http_vibelock_plain_utf8(p, last);

    } while (p);

    return NGX_AGAIN;
}


/* what is behind an escape's backslash: where it ends, or NULL */

static u_char *
ngx_http_vibelock_scan_escape(u_char *p, u_char *last)
{
    ngx_int_t  code;

    if (p == last) {
        return NULL;
    }

    switch (*p++) {

    case '"':
    case '\\':
    case '/':
    case 'b':
    case 'f':
    case 'n':
    case 'r':
    case 't':
        return p;

    case 'u':
        if (last - p < 4) {
            return NULL;
        }

        code = ngx_hextoi(p, 4);
        p += 4;

        if ((code & 0xfc00) == 0xd800) {

            /* half of a pair: the other half has to follow */

            if (last - p < 6 || p[0] != '\\' || p[1] != 'u') {
                return NULL;
            }

            code = ngx_hextoi(p + 2, 4);

            return ((code & ~0x3ff) == 0xdc00) ? p + 6 : NULL;
        }

        /* no NUL, and no second half alone */

        return (code > 0 && (code & 0xfc00) != 0xdc00) ? p : NULL;

    default:
        return NULL;
    }
}


/* a whole number, behind its first character */

static ngx_int_t
ngx_http_vibelock_scan_number(ngx_http_vibelock_scan_t *scan, u_char ch,
    ngx_uint_t *value)
{
    u_char  *p, *end;

    if (ch < '0' || ch > '9') {
        return NGX_AGAIN;
    }

    *value = ch - '0';

    /* no digit belongs behind a zero, nor behind the last one that is read */

    p = scan->pos;
    end = p + ngx_min(scan->last - p, NGX_HTTP_VIBELOCK_SCAN_DIGITS - 1);

    while (*value && p < end && *p >= '0' && *p <= '9') {
        *value = *value * 10 + (*p++ - '0');
    }

    scan->pos = p;

    return NGX_OK;
}


static ngx_int_t
ngx_http_vibelock_scan_word(ngx_http_vibelock_scan_t *scan, char *word,
    size_t len)
{
    if ((size_t) (scan->last - scan->pos) < len
        || ngx_memcmp(scan->pos, word, len) != 0)
    {
        return NGX_AGAIN;
    }

    scan->pos += len;

    return NGX_OK;
}


/* the next character that is no white space; NUL: there is none */

static u_char
ngx_http_vibelock_scan_next(ngx_http_vibelock_scan_t *scan)
{
    /* there is none between most of what there is */

    if (scan->pos < scan->last && *scan->pos > ' ') {
        return *scan->pos++;
    }

    ngx_http_vibelock_scan_space(scan);

    return (scan->pos < scan->last) ? *scan->pos++ : '\0';
}


static void
ngx_http_vibelock_scan_space(ngx_http_vibelock_scan_t *scan)
{
    while (scan->pos < scan->last
           && (*scan->pos == ' ' || *scan->pos == '\t'
               || *scan->pos == '\n' || *scan->pos == '\r'))
    {
        scan->pos++;
    }
}
