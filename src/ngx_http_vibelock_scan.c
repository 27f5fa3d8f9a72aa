
/*
 * Copyright (C) the vibelock authors
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_http_vibelock_plain.h"
#include "ngx_http_vibelock_scan.h"


#define NGX_HTTP_VIBELOCK_SCAN_MEMBERS  16
#define NGX_HTTP_VIBELOCK_SCAN_DIGITS   9

/* a text, and how much of it was read */

typedef struct {
    u_char       *pos;
    u_char       *last;
    ngx_uint_t    members;
    ngx_str_t     names[NGX_HTTP_VIBELOCK_SCAN_MEMBERS];
} ngx_http_vibelock_scan_t;


static ngx_int_t ngx_http_vibelock_scan_name(ngx_http_vibelock_scan_t *scan);
static ngx_int_t ngx_http_vibelock_scan_string(
    ngx_http_vibelock_scan_t *scan);
static ngx_int_t ngx_http_vibelock_scan_number(ngx_http_vibelock_scan_t *scan,
    ngx_uint_t *value);
static ngx_int_t ngx_http_vibelock_scan_word(ngx_http_vibelock_scan_t *scan,
    char *word, size_t len);
static u_char ngx_http_vibelock_scan_next(ngx_http_vibelock_scan_t *scan);
static void ngx_http_vibelock_scan_space(ngx_http_vibelock_scan_t *scan);


ngx_int_t
ngx_http_vibelock_scan(ngx_str_t *text, ngx_str_t *name, ngx_uint_t *value)
{
    u_char                     ch;
    ngx_int_t                  rc, found;
    ngx_str_t                 *member;
    ngx_uint_t                 number, wanted;
    ngx_http_vibelock_scan_t   scan;

    scan.pos = text->data;
    scan.last = text->data + text->len;
    scan.members = 0;

    found = NGX_DECLINED;

    if (ngx_http_vibelock_scan_next(&scan) != '{') {
        return NGX_AGAIN;
    }

    do {
        if (ngx_http_vibelock_scan_next(&scan) != '"'
            || ngx_http_vibelock_scan_name(&scan) != NGX_OK
            || ngx_http_vibelock_scan_next(&scan) != ':')
        {
            return NGX_AGAIN;
        }

        member = &scan.names[scan.members - 1];
        wanted = (member->len == name->len
                  && ngx_memcmp(member->data, name->data, name->len) == 0);

        switch (ngx_http_vibelock_scan_next(&scan)) {

        case '"':
            rc = wanted ? NGX_AGAIN : ngx_http_vibelock_scan_string(&scan);
            break;

        case 't':
            rc = wanted ? NGX_AGAIN
                        : ngx_http_vibelock_scan_word(&scan, "rue", 3);
            break;

        case 'f':
            rc = wanted ? NGX_AGAIN
                        : ngx_http_vibelock_scan_word(&scan, "alse", 4);
            break;

        case 'n':
            rc = ngx_http_vibelock_scan_word(&scan, "ull", 3);
            break;

        default:
            rc = ngx_http_vibelock_scan_number(&scan, &number);

            if (rc == NGX_OK && wanted) {
                *value = number;
                found = NGX_OK;
            }
        }

        if (rc != NGX_OK) {
            return NGX_AGAIN;
        }

        ch = ngx_http_vibelock_scan_next(&scan);

    } while (ch == ',');

    if (ch != '}') {
        return NGX_AGAIN;
    }

    ngx_http_vibelock_scan_space(&scan);

    return (scan.pos == scan.last) ? found : NGX_AGAIN;
}


/* the name of a member, behind its first quote */

static ngx_int_t
ngx_http_vibelock_scan_name(ngx_http_vibelock_scan_t *scan)
{
    u_char      *p;
    ngx_str_t   *name;
    ngx_uint_t   i;

    if (scan->members == NGX_HTTP_VIBELOCK_SCAN_MEMBERS) {
        return NGX_AGAIN;
    }

    p = scan->pos + ngx_http_vibelock_plain(scan->pos, scan->last - scan->pos);

    /* an escaped name may be another one's double */

    if (p == scan->last || *p != '"') {
        return NGX_AGAIN;
    }

    name = &scan->names[scan->members];

    name->data = scan->pos;
    name->len = p - scan->pos;

    scan->pos = p + 1;

    for (i = 0; i < scan->members; i++) {
        if (scan->names[i].len == name->len
            && ngx_memcmp(scan->names[i].data, name->data, name->len) == 0)
        {
            return NGX_AGAIN;
        }
    }

    scan->members++;

    return NGX_OK;
}


/* a string, behind its first quote */

static ngx_int_t
ngx_http_vibelock_scan_string(ngx_http_vibelock_scan_t *scan)
{
    u_char  ch, *p, *last;

    p = scan->pos;
    last = scan->last;

    for ( ;; ) {
        p += ngx_http_vibelock_plain(p, last - p);

        if (p == last) {
            return NGX_AGAIN;
        }

        ch = *p++;

        if (ch == '"') {
            scan->pos = p;
            return NGX_OK;
        }

        if (ch != '\\' || p == last) {
            return NGX_AGAIN;
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
            break;

        default:
            return NGX_AGAIN;
        }
    }
}


/* a whole number, behind its first digit */

static ngx_int_t
ngx_http_vibelock_scan_number(ngx_http_vibelock_scan_t *scan,
    ngx_uint_t *value)
{
    u_char  *start;

    start = scan->pos - 1;
    *value = 0;

    for (scan->pos = start; scan->pos < scan->last; scan->pos++) {

        if (*scan->pos < '0' || *scan->pos > '9') {
            break;
        }

        if (scan->pos - start == NGX_HTTP_VIBELOCK_SCAN_DIGITS) {
            return NGX_AGAIN;
        }

        *value = *value * 10 + (*scan->pos - '0');
    }

    /* no digit at all, or a zero in front: what comes next tells the rest */

    if (scan->pos == start || (*start == '0' && scan->pos - start > 1)) {
        return NGX_AGAIN;
    }

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
