
/*
 * Copyright (C) the vibelock authors
 *
 * Any bytes as the body of a request.  What the scanner says of them has to be
 * what jansson says; of what it does not understand it says nothing.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include <jansson.h>

#include "ngx_http_vibelock_scan.h"


int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);


/* what the scanner needs of nginx */

ngx_int_t
ngx_hextoi(u_char *line, size_t n)
{
    u_char     *digit;
    ngx_int_t   value;

    static u_char  digits[] = "0123456789abcdef0123456789ABCDEF";

    value = 0;

    for ( /* void */ ; n; n--, line++) {

        digit = memchr(digits, *line, sizeof(digits) - 1);
        if (digit == NULL) {
            return NGX_ERROR;
        }

        value = value * 16 + (digit - digits) % 16;
    }

    return value;
}


static void
compare(ngx_int_t rc, ngx_uint_t value, json_t *root)
{
    json_t  *field;

    if (!json_is_object(root)) {
        abort();
    }

    field = json_object_get(root, "timeout");

    if (rc == NGX_OK) {
        if (!json_is_integer(field)
            || json_integer_value(field) != (json_int_t) value)
        {
            abort();
        }

        return;
    }

    if (rc != NGX_DECLINED || (field && !json_is_null(field))) {
        abort();
    }
}


/* a scanner that understands nothing would never be wrong */

int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
    ngx_str_t   text;
    ngx_uint_t  i, value;

    static ngx_str_t  name = ngx_string("timeout");

    static char  *plain[] = {
        "{\"timeout\":5}",
        "{\"a\":{\"timeout\":1,\"b\":[{},[],null]},\"timeout\":5}",
        "{\"a\":\"\\u00e9 \\ud83d\\ude00 \\n\",\"timeout\":5}",
        "{\"a\":\"\xd1\x8f \xe2\x82\xac \xf0\x9f\x98\x80\",\"timeout\":5}",
        "{\"a\":-1,\"b\":0.50,\"c\":1790000000000,\"timeout\":5}",
    };

    for (i = 0; i < sizeof(plain) / sizeof(plain[0]); i++) {
        text.data = (u_char *) plain[i];
        text.len = strlen(plain[i]);

        if (ngx_http_vibelock_scan(&text, &name, &value) != NGX_OK
            || value != 5)
        {
            abort();
        }
    }

    return 0;
}


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    u_char        *copy;
    json_t        *root;
    ngx_int_t      rc;
    ngx_str_t      text;
    ngx_uint_t     value;
    json_error_t   error;

    static ngx_str_t  name = ngx_string("timeout");

    /* of exactly that length: a byte behind it is not the scanner's to read */

    copy = malloc(len);
    if (copy == NULL && len) {
        return 0;
    }

    if (len) {
        memcpy(copy, data, len);
    }

    text.data = copy;
    text.len = len;

    rc = ngx_http_vibelock_scan(&text, &name, &value);

    if (rc != NGX_AGAIN) {
        root = json_loadb((char *) copy, len, JSON_REJECT_DUPLICATES, &error);

        compare(rc, value, root);

        json_decref(root);
    }

    free(copy);

    return 0;
}
