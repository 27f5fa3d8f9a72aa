
/*
 * Copyright (C) the vibelock authors
 *
 * jansson makes a tree of the file; the tree is checked and copied, into as
 * much memory as was counted before, and freed.
 *
 * An exiting worker waits for its threads, so this looks every now and then
 * whether it is one.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include <jansson.h>

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "ngx_http_vibelock_digest.h"
#include "ngx_http_vibelock_registry_file.h"


#define NGX_HTTP_VIBELOCK_REGISTRY_MAX     (256 * 1024 * 1024)
#define NGX_HTTP_VIBELOCK_REGISTRY_ID_MAX  255

/* the last second of the year 9999: what is later is milliseconds */
#define NGX_HTTP_VIBELOCK_REGISTRY_LAST    253402300799LL

/* the longest that a file system calls one moment, s */
#define NGX_HTTP_VIBELOCK_REGISTRY_TICK    2

/* servers between two looks at whether the worker wants to exit */
#define NGX_HTTP_VIBELOCK_REGISTRY_STEP    1024


#if (NGX_DARWIN)
#define ngx_http_vibelock_mtime(fi)        (fi)->st_mtimespec
#define ngx_http_vibelock_ctime(fi)        (fi)->st_ctimespec
#else
#define ngx_http_vibelock_mtime(fi)        (fi)->st_mtim
#define ngx_http_vibelock_ctime(fi)        (fi)->st_ctim
#endif


static ngx_int_t ngx_http_vibelock_registry_file_open(
    ngx_http_vibelock_registry_reading_t *reading, ngx_file_info_t *fi);
static void ngx_http_vibelock_registry_file_stamp(
    ngx_http_vibelock_registry_stamp_t *stamp, ngx_file_info_t *fi);
static ngx_int_t ngx_http_vibelock_registry_file_check(
    ngx_http_vibelock_registry_reading_t *reading, ngx_file_info_t *fi);
static ngx_int_t ngx_http_vibelock_registry_file_parse(
    ngx_http_vibelock_registry_reading_t *reading, json_t **root);
static size_t ngx_http_vibelock_registry_file_more(void *buf, size_t size,
    void *data);
static ngx_int_t ngx_http_vibelock_registry_file_refuse(
    ngx_http_vibelock_registry_reading_t *reading, json_error_t *error);
static ngx_uint_t ngx_http_vibelock_registry_file_marked(
    ngx_http_vibelock_registry_reading_t *reading);
static ngx_int_t ngx_http_vibelock_registry_file_nomem(
    ngx_http_vibelock_registry_reading_t *reading);
static ngx_uint_t ngx_http_vibelock_registry_file_canceled(
    ngx_http_vibelock_registry_reading_t *reading);
static ngx_int_t ngx_http_vibelock_registry_file_build(
    ngx_http_vibelock_registry_reading_t *reading, json_t *root);
static ngx_int_t ngx_http_vibelock_registry_file_alloc(
    ngx_http_vibelock_registry_reading_t *reading, json_t *accounts,
    json_t *servers);
static void ngx_http_vibelock_registry_file_count(json_t *accounts,
    json_t *servers, size_t *keys, size_t *arrays, size_t *texts);
static ngx_int_t ngx_http_vibelock_registry_file_add_account(
    ngx_http_vibelock_registry_reading_t *reading, json_t *json);
static ngx_int_t ngx_http_vibelock_registry_file_add_keys(
    ngx_http_vibelock_registry_reading_t *reading,
    ngx_http_vibelock_account_t *account, json_t *json);
static ngx_int_t ngx_http_vibelock_registry_file_add_key(
    ngx_http_vibelock_registry_reading_t *reading,
    ngx_http_vibelock_account_t *account, char *member, json_t *json);
static ngx_int_t ngx_http_vibelock_registry_file_add_sessions(
    ngx_http_vibelock_registry_reading_t *reading,
    ngx_http_vibelock_account_t *account, json_t *json);
static ngx_int_t ngx_http_vibelock_registry_file_add_session(
    ngx_http_vibelock_registry_reading_t *reading,
    ngx_http_vibelock_lookup_t *sessions, json_t *json);
static ngx_int_t ngx_http_vibelock_registry_file_add_server(
    ngx_http_vibelock_registry_reading_t *reading, json_t *json);
static ngx_int_t ngx_http_vibelock_registry_file_set_account(
    ngx_http_vibelock_registry_reading_t *reading,
    ngx_http_vibelock_server_t *server, json_t *json);
static ngx_int_t ngx_http_vibelock_registry_file_digest(
    ngx_http_vibelock_registry_reading_t *reading, char *member, json_t *json,
    ngx_str_t *digest);
static void ngx_http_vibelock_registry_file_text(
    ngx_http_vibelock_registry_reading_t *reading, json_t *json,
    ngx_str_t *text);
static ngx_int_t ngx_http_vibelock_registry_file_twice(
    ngx_http_vibelock_registry_reading_t *reading, char *list, ngx_uint_t n,
    json_t *value);


static ngx_http_vibelock_schema_member_t
    ngx_http_vibelock_registry_file_members[] =
{
    { "version", JSON_INTEGER, 0, "1" },
    { "keys", JSON_ARRAY, 0, "a list" },
    { "servers", JSON_ARRAY, 0, "a list" },
    { NULL, JSON_NULL, 0, NULL }
};


static ngx_http_vibelock_schema_member_t
    ngx_http_vibelock_registry_file_key_members[] =
{
    { "id", JSON_STRING, 0, "a string that is not empty" },
    { "type", JSON_STRING, 0, "\"api\" or \"app\"" },
    { "sha256", JSON_NULL, 0, "64 hex digits, or a list of such strings" },
    { "sessions", JSON_ARRAY, 1, "a list" },
    { NULL, JSON_NULL, 0, NULL }
};


static ngx_http_vibelock_schema_member_t
    ngx_http_vibelock_registry_file_session_members[] =
{
    { "sha256", JSON_NULL, 0, "64 hex digits" },
    { "expires", JSON_INTEGER, 1,
      "whole seconds since 1970, 253402300799 at most" },
    { NULL, JSON_NULL, 0, NULL }
};


static ngx_http_vibelock_schema_member_t
    ngx_http_vibelock_registry_file_server_members[] =
{
    { "id", JSON_STRING, 0, "a string of 1 to 255 bytes" },
    { "key", JSON_STRING, 0, "the id of one of \"keys\"" },
    { "kind", JSON_STRING, 0,
      "\"STANDALONE\", \"GALAXY_HOST\" or \"GALAXY_APP\"" },
    { "deleted", JSON_TRUE, 1, "true or false" },
    { NULL, JSON_NULL, 0, NULL }
};


static ngx_str_t  ngx_http_vibelock_registry_file_kinds[] = {
    ngx_string("STANDALONE"),
    ngx_string("GALAXY_HOST"),
    ngx_string("GALAXY_APP"),
    ngx_null_string
};


void
ngx_http_vibelock_registry_file_read(
    ngx_http_vibelock_registry_reading_t *reading)
{
    json_t           *root;
    ngx_file_info_t   fi;

    root = NULL;

    reading->file = NULL;
    reading->err = 0;
    reading->schema.depth = 0;

    reading->rc = ngx_http_vibelock_registry_file_open(reading, &fi);

    if (reading->rc != NGX_OK) {
        return;
    }

    reading->rc = ngx_http_vibelock_registry_file_check(reading, &fi);

    if (reading->rc == NGX_OK) {
        reading->rc = ngx_http_vibelock_registry_file_parse(reading, &root);
    }

    /* nothing was written, an error here means nothing */

    (void) ngx_close_file(reading->fd);

    if (reading->rc == NGX_OK) {
        reading->rc = ngx_http_vibelock_registry_file_build(reading, root);
        json_decref(root);
    }

#ifdef __GLIBC__

    /*
     * the tree was ten times the file; glibc would keep as much free memory
     * for each thread that ever had one
     */

    (void) malloc_trim(0);

#endif

    if (reading->rc != NGX_OK) {
        ngx_http_vibelock_registry_file_free(reading->file);
        reading->file = NULL;
    }
}


ngx_uint_t
ngx_http_vibelock_registry_file_young(
    ngx_http_vibelock_registry_reading_t *reading)
{
    /* the other time may be set to anything */

    return reading->opened - (time_t) reading->stamp.ctime
           < NGX_HTTP_VIBELOCK_REGISTRY_TICK;
}


void
ngx_http_vibelock_registry_file_look(
    ngx_http_vibelock_registry_reading_t *reading)
{
    ngx_file_info_t  fi;

    reading->rc = ngx_http_vibelock_registry_file_open(reading, &fi);

    if (reading->rc == NGX_OK) {
        (void) ngx_close_file(reading->fd);
    }
}


void
ngx_http_vibelock_registry_file_free(ngx_http_vibelock_registry_file_t *file)
{
    if (file) {
        (void) munmap(file, file->size);
    }
}


/*
 * Whoever opened it may read it: what the master could, a worker may not.
 */

static ngx_int_t
ngx_http_vibelock_registry_file_open(
    ngx_http_vibelock_registry_reading_t *reading, ngx_file_info_t *fi)
{
    reading->opened = ngx_time();

    /* a FIFO is not waited for */

    reading->fd = ngx_open_file(reading->name.data,
                                NGX_FILE_RDONLY|NGX_FILE_NONBLOCK,
                                NGX_FILE_OPEN, 0);

    if (reading->fd == NGX_INVALID_FILE) {
        reading->err = ngx_errno;
        ngx_str_set(&reading->schema.error, ngx_open_file_n " failed");
        return NGX_DECLINED;
    }

    if (ngx_fd_info(reading->fd, fi) == NGX_FILE_ERROR) {
        reading->err = ngx_errno;
        ngx_str_set(&reading->schema.error, ngx_fd_info_n " failed");

        (void) ngx_close_file(reading->fd);
        return NGX_DECLINED;
    }

    ngx_http_vibelock_registry_file_stamp(&reading->stamp, fi);

    return NGX_OK;
}


static void
ngx_http_vibelock_registry_file_stamp(ngx_http_vibelock_registry_stamp_t *stamp,
    ngx_file_info_t *fi)
{
    stamp->dev = fi->st_dev;
    stamp->ino = fi->st_ino;
    stamp->size = fi->st_size;
    stamp->mtime = ngx_http_vibelock_mtime(fi).tv_sec;
    stamp->mtime_ns = ngx_http_vibelock_mtime(fi).tv_nsec;
    stamp->ctime = ngx_http_vibelock_ctime(fi).tv_sec;
    stamp->ctime_ns = ngx_http_vibelock_ctime(fi).tv_nsec;
}


static ngx_int_t
ngx_http_vibelock_registry_file_check(
    ngx_http_vibelock_registry_reading_t *reading, ngx_file_info_t *fi)
{
    reading->rest = ngx_file_size(fi);

    if (!ngx_is_file(fi)) {
        ngx_str_set(&reading->schema.error, "it must be a regular file");
        return NGX_ERROR;
    }

    if (reading->rest > NGX_HTTP_VIBELOCK_REGISTRY_MAX) {
        ngx_str_set(&reading->schema.error,
                    "it must not be larger than 256 MB");
        return NGX_ERROR;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_vibelock_registry_file_parse(
    ngx_http_vibelock_registry_reading_t *reading, json_t **root)
{
    json_error_t  error;

    *root = json_load_callback(ngx_http_vibelock_registry_file_more, reading,
                               JSON_REJECT_DUPLICATES, &error);

    /* to jansson, the end of the file and the end of reading are the same */

    if (ngx_http_vibelock_registry_file_canceled(reading)) {
        json_decref(*root);
        return NGX_ABORT;
    }

    if (reading->err) {
        json_decref(*root);
        ngx_str_set(&reading->schema.error, ngx_read_fd_n " failed");
        return NGX_DECLINED;
    }

    if (*root == NULL) {
        return ngx_http_vibelock_registry_file_refuse(reading, &error);
    }

    return NGX_OK;
}


static size_t
ngx_http_vibelock_registry_file_more(void *buf, size_t size, void *data)
{
    ngx_http_vibelock_registry_reading_t *reading = data;

    ssize_t  n;

    if (ngx_http_vibelock_registry_file_canceled(reading)) {
        return 0;
    }

    /* never more than it was when it was opened: it may be growing */

    size = (size_t) ngx_min((off_t) size, reading->rest);

    n = ngx_read_fd(reading->fd, buf, size);

    if (n == -1) {
        reading->err = ngx_errno;
        return 0;
    }

    reading->rest -= n;

    return n;
}


static ngx_int_t
ngx_http_vibelock_registry_file_refuse(
    ngx_http_vibelock_registry_reading_t *reading, json_error_t *error)
{
    char                  *near;
    enum json_error_code   code;

    code = json_error_code(error);

    if (code == json_error_out_of_memory) {
        return ngx_http_vibelock_registry_file_nomem(reading);
    }

    if (reading->stamp.size == 0) {
        ngx_str_set(&reading->schema.error, "it must be JSON, but is empty");
        return NGX_ERROR;
    }

    if (ngx_http_vibelock_registry_file_marked(reading)) {
        ngx_str_set(&reading->schema.error,
                    "it must be JSON in UTF-8 without a byte order mark, but "
                    "begins with one");
        return NGX_ERROR;
    }

    /* what is near may be a key; the name of a member is none */

    near = strstr(error->text, " near '");

    if (near && code != json_error_duplicate_key) {
        *near = '\0';
    }

    return ngx_http_vibelock_schema_error(&reading->schema, NULL,
                                          "it must be JSON, but has in line "
                                          "%d, column %d: %s",
                                          error->line, error->column,
                                          error->text);
}


/* some editors put a mark there that they do not show */

static ngx_uint_t
ngx_http_vibelock_registry_file_marked(
    ngx_http_vibelock_registry_reading_t *reading)
{
    u_char  head[3];

    if (pread(reading->fd, head, 3, 0) != 3) {
        return 0;
    }

    return ngx_memcmp(head, "\xef\xbb\xbf", 3) == 0
           || ngx_memcmp(head, "\xff\xfe", 2) == 0
           || ngx_memcmp(head, "\xfe\xff", 2) == 0;
}


static ngx_int_t
ngx_http_vibelock_registry_file_nomem(
    ngx_http_vibelock_registry_reading_t *reading)
{
    reading->err = NGX_ENOMEM;
    ngx_str_set(&reading->schema.error, "it was not read");

    return NGX_DECLINED;
}


static ngx_uint_t
ngx_http_vibelock_registry_file_canceled(
    ngx_http_vibelock_registry_reading_t *reading)
{
    return reading->threaded && (ngx_terminate || ngx_quit || ngx_exiting);
}


static ngx_int_t
ngx_http_vibelock_registry_file_build(
    ngx_http_vibelock_registry_reading_t *reading, json_t *root)
{
    size_t                       i;
    json_t                      *values[3], *version;
    ngx_int_t                    rc;
    ngx_http_vibelock_schema_t  *schema;

    schema = &reading->schema;
    version = json_object_get(root, "version");

    /* the first to look at: another version may have other members */

    if (version && json_integer_value(version) != 1) {
        return ngx_http_vibelock_schema_wrong(schema,
                                    &ngx_http_vibelock_registry_file_members[0],
                                    version);
    }

    if (ngx_http_vibelock_schema_object(schema, root,
                                        ngx_http_vibelock_registry_file_members,
                                        values)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    rc = ngx_http_vibelock_registry_file_alloc(reading, values[1], values[2]);

    schema->depth = 1;
    schema->places[0].list = "keys";

    for (i = 0; rc == NGX_OK && i < json_array_size(values[1]); i++) {
        schema->places[0].n = i;
        rc = ngx_http_vibelock_registry_file_add_account(reading,
                                               json_array_get(values[1], i));
    }

    schema->places[0].list = "servers";

    for (i = 0; rc == NGX_OK && i < json_array_size(values[2]); i++) {

        if (i % NGX_HTTP_VIBELOCK_REGISTRY_STEP == 0
            && ngx_http_vibelock_registry_file_canceled(reading))
        {
            return NGX_ABORT;
        }

        schema->places[0].n = i;
        rc = ngx_http_vibelock_registry_file_add_server(reading,
                                               json_array_get(values[2], i));
    }

    return rc;
}


static ngx_int_t
ngx_http_vibelock_registry_file_alloc(
    ngx_http_vibelock_registry_reading_t *reading, json_t *accounts,
    json_t *servers)
{
    size_t                              size, keys, arrays, texts;
    ngx_http_vibelock_registry_file_t  *file;

    ngx_http_vibelock_registry_file_count(accounts, servers, &keys, &arrays,
                                          &texts);

    size = sizeof(ngx_http_vibelock_registry_file_t) + arrays + texts;

    /* not from the heap: it would hold up what is free around it */

    file = mmap(NULL, size, PROT_READ|PROT_WRITE, MAP_ANON|MAP_PRIVATE, -1, 0);

    if (file == MAP_FAILED) {
        return ngx_http_vibelock_registry_file_nomem(reading);
    }

    file->size = size;
    file->seed = reading->seed;
    file->arrays = (u_char *) (file + 1);
    file->texts = file->arrays + arrays;

    file->arrays = ngx_http_vibelock_lookup_init(&file->accounts, &file->seed,
                                    file->arrays, json_array_size(accounts),
                                    sizeof(ngx_http_vibelock_account_t));

    file->arrays = ngx_http_vibelock_lookup_init(&file->keys, NULL,
                                    file->arrays, keys,
                                    sizeof(ngx_http_vibelock_registry_key_t));

    file->arrays = ngx_http_vibelock_lookup_init(&file->servers, &file->seed,
                                    file->arrays, json_array_size(servers),
                                    sizeof(ngx_http_vibelock_server_t));

    reading->file = file;

    return NGX_OK;
}


/*
 * Nothing is checked yet where this counts: to jansson, a list or a string
 * that is none has the length 0.
 */

static void
ngx_http_vibelock_registry_file_count(json_t *accounts, json_t *servers,
    size_t *keys, size_t *arrays, size_t *texts)
{
    size_t   i, n;
    json_t  *json;

    *keys = 0;
    *arrays = 0;
    *texts = 0;

    for (i = 0; i < json_array_size(accounts); i++) {
        json = json_array_get(accounts, i);
        *texts += json_string_length(json_object_get(json, "id"));

        n = json_array_size(json_object_get(json, "sha256"));
        *keys += n ? n : 1;

        n = json_array_size(json_object_get(json, "sessions"));
        *texts += n * NGX_HTTP_VIBELOCK_DIGEST_LEN;
        *arrays += sizeof(ngx_http_vibelock_lookup_t)
                   + ngx_http_vibelock_lookup_size(n,
                               sizeof(ngx_http_vibelock_registry_session_t));
    }

    for (i = 0; i < json_array_size(servers); i++) {
        json = json_array_get(servers, i);
        *texts += json_string_length(json_object_get(json, "id"));
    }

    *texts += *keys * NGX_HTTP_VIBELOCK_DIGEST_LEN;

    *arrays += ngx_http_vibelock_lookup_size(json_array_size(accounts),
                                        sizeof(ngx_http_vibelock_account_t))
               + ngx_http_vibelock_lookup_size(*keys,
                                   sizeof(ngx_http_vibelock_registry_key_t))
               + ngx_http_vibelock_lookup_size(json_array_size(servers),
                                         sizeof(ngx_http_vibelock_server_t));
}


static ngx_int_t
ngx_http_vibelock_registry_file_add_account(
    ngx_http_vibelock_registry_reading_t *reading, json_t *json)
{
    json_t                             *values[4];
    ngx_int_t                           rc;
    ngx_str_t                           id;
    ngx_http_vibelock_lookup_t         *accounts;
    ngx_http_vibelock_account_t        *account;
    ngx_http_vibelock_schema_member_t  *members;

    members = ngx_http_vibelock_registry_file_key_members;
    accounts = &reading->file->accounts;

    rc = ngx_http_vibelock_schema_object(&reading->schema, json, members,
                                         values);
    if (rc != NGX_OK) {
        return rc;
    }

    ngx_http_vibelock_registry_file_text(reading, values[0], &id);

    if (id.len == 0) {
        return ngx_http_vibelock_schema_wrong(&reading->schema, &members[0],
                                              values[0]);
    }

    account = ngx_http_vibelock_lookup_find(accounts, &id);

    if (account) {
        return ngx_http_vibelock_registry_file_twice(reading, "keys",
                          ngx_http_vibelock_lookup_number(accounts, account),
                          values[0]);
    }

    account = ngx_http_vibelock_lookup_add(accounts, &id);

    if (ngx_strcmp(json_string_value(values[1]), "api") == 0) {
        account->type = NGX_HTTP_VIBELOCK_KEY_API;

    } else if (ngx_strcmp(json_string_value(values[1]), "app") == 0) {
        account->type = NGX_HTTP_VIBELOCK_KEY_APP;

    } else {
        return ngx_http_vibelock_schema_wrong(&reading->schema, &members[1],
                                              values[1]);
    }

    if (ngx_http_vibelock_digest_threaded(&id, account->owner) != NGX_OK) {
        return ngx_http_vibelock_registry_file_nomem(reading);
    }

    rc = ngx_http_vibelock_registry_file_add_keys(reading, account, values[2]);

    if (rc != NGX_OK || values[3] == NULL) {
        return rc;
    }

    return ngx_http_vibelock_registry_file_add_sessions(reading, account,
                                                        values[3]);
}


static ngx_int_t
ngx_http_vibelock_registry_file_add_keys(
    ngx_http_vibelock_registry_reading_t *reading,
    ngx_http_vibelock_account_t *account, json_t *json)
{
    size_t                       i;
    ngx_int_t                    rc;
    ngx_http_vibelock_schema_t  *schema;

    schema = &reading->schema;

    if (!json_is_array(json)) {
        return ngx_http_vibelock_registry_file_add_key(reading, account,
                                                       "sha256", json);
    }

    if (json_array_size(json) == 0) {
        return ngx_http_vibelock_schema_error(schema, "sha256",
                                          "is an empty list, but must be %s",
                         ngx_http_vibelock_registry_file_key_members[2].must);
    }

    schema->depth = 2;
    schema->places[1].list = "sha256";

    for (i = 0; i < json_array_size(json); i++) {
        schema->places[1].n = i;

        rc = ngx_http_vibelock_registry_file_add_key(reading, account, NULL,
                                                     json_array_get(json, i));
        if (rc != NGX_OK) {
            return rc;
        }
    }

    schema->depth = 1;

    return NGX_OK;
}


static ngx_int_t
ngx_http_vibelock_registry_file_add_key(
    ngx_http_vibelock_registry_reading_t *reading,
    ngx_http_vibelock_account_t *account, char *member, json_t *json)
{
    ngx_int_t                           rc;
    ngx_str_t                           digest;
    ngx_http_vibelock_registry_key_t   *key;
    ngx_http_vibelock_registry_file_t  *file;

    file = reading->file;

    rc = ngx_http_vibelock_registry_file_digest(reading, member, json, &digest);
    if (rc != NGX_OK) {
        return rc;
    }

    key = ngx_http_vibelock_lookup_find(&file->keys, &digest);

    if (key) {
        return ngx_http_vibelock_schema_error(&reading->schema, member,
                              "is in keys[%ui] already, but must be there "
                              "once: a key has one owner",
                              ngx_http_vibelock_lookup_number(&file->accounts,
                                                              key->account));
    }

    key = ngx_http_vibelock_lookup_add(&file->keys, &digest);
    key->account = account;

    return NGX_OK;
}


static ngx_int_t
ngx_http_vibelock_registry_file_add_sessions(
    ngx_http_vibelock_registry_reading_t *reading,
    ngx_http_vibelock_account_t *account, json_t *json)
{
    size_t                              i;
    ngx_int_t                           rc;
    ngx_http_vibelock_lookup_t         *sessions;
    ngx_http_vibelock_schema_t         *schema;
    ngx_http_vibelock_registry_file_t  *file;

    file = reading->file;
    schema = &reading->schema;

    if (account->type == NGX_HTTP_VIBELOCK_KEY_API) {
        return ngx_http_vibelock_schema_error(schema, "sessions",
                                "is for type \"app\", but this is type "
                                "\"api\", where it must be left out");
    }

    sessions = (ngx_http_vibelock_lookup_t *) file->arrays;

    file->arrays = ngx_http_vibelock_lookup_init(sessions, NULL,
                                (u_char *) (sessions + 1),
                                json_array_size(json),
                                sizeof(ngx_http_vibelock_registry_session_t));

    schema->depth = 2;
    schema->places[1].list = "sessions";

    for (i = 0; i < json_array_size(json); i++) {
        schema->places[1].n = i;

        rc = ngx_http_vibelock_registry_file_add_session(reading, sessions,
                                                     json_array_get(json, i));
        if (rc != NGX_OK) {
            return rc;
        }
    }

    schema->depth = 1;
    account->sessions = sessions;

    return NGX_OK;
}


static ngx_int_t
ngx_http_vibelock_registry_file_add_session(
    ngx_http_vibelock_registry_reading_t *reading,
    ngx_http_vibelock_lookup_t *sessions, json_t *json)
{
    json_t                                *values[2];
    ngx_int_t                              rc;
    ngx_str_t                              digest;
    json_int_t                             expires;
    ngx_http_vibelock_schema_member_t     *members;
    ngx_http_vibelock_registry_session_t  *session;

    members = ngx_http_vibelock_registry_file_session_members;

    rc = ngx_http_vibelock_schema_object(&reading->schema, json, members,
                                         values);
    if (rc != NGX_OK) {
        return rc;
    }

    rc = ngx_http_vibelock_registry_file_digest(reading, "sha256", values[0],
                                                &digest);
    if (rc != NGX_OK) {
        return rc;
    }

    session = ngx_http_vibelock_lookup_find(sessions, &digest);

    if (session) {
        return ngx_http_vibelock_schema_error(&reading->schema, "sha256",
                          "is in sessions[%ui] already, but must be there "
                          "once: a session has one end",
                          ngx_http_vibelock_lookup_number(sessions, session));
    }

    session = ngx_http_vibelock_lookup_add(sessions, &digest);

    if (values[1] == NULL) {
        return NGX_OK;
    }

    expires = json_integer_value(values[1]);

    if (expires < 1 || expires > NGX_HTTP_VIBELOCK_REGISTRY_LAST) {
        return ngx_http_vibelock_schema_wrong(&reading->schema, &members[1],
                                              values[1]);
    }

    session->expires = (time_t) ngx_min(expires, NGX_MAX_TIME_T_VALUE);

    return NGX_OK;
}


static ngx_int_t
ngx_http_vibelock_registry_file_add_server(
    ngx_http_vibelock_registry_reading_t *reading, json_t *json)
{
    json_t                             *values[4];
    ngx_int_t                           rc;
    ngx_str_t                           id, *kind;
    ngx_http_vibelock_lookup_t         *servers;
    ngx_http_vibelock_server_t         *server;
    ngx_http_vibelock_schema_member_t  *members;

    members = ngx_http_vibelock_registry_file_server_members;
    servers = &reading->file->servers;

    rc = ngx_http_vibelock_schema_object(&reading->schema, json, members,
                                         values);
    if (rc != NGX_OK) {
        return rc;
    }

    ngx_http_vibelock_registry_file_text(reading, values[0], &id);

    if (id.len == 0 || id.len > NGX_HTTP_VIBELOCK_REGISTRY_ID_MAX) {
        return ngx_http_vibelock_schema_wrong(&reading->schema, &members[0],
                                              values[0]);
    }

    server = ngx_http_vibelock_lookup_find(servers, &id);

    if (server) {
        return ngx_http_vibelock_registry_file_twice(reading, "servers",
                            ngx_http_vibelock_lookup_number(servers, server),
                            values[0]);
    }

    server = ngx_http_vibelock_lookup_add(servers, &id);

    for (kind = ngx_http_vibelock_registry_file_kinds; kind->len; kind++) {
        if (ngx_strcmp(json_string_value(values[2]), kind->data) == 0) {
            break;
        }
    }

    if (kind->len == 0) {
        return ngx_http_vibelock_schema_wrong(&reading->schema, &members[2],
                                              values[2]);
    }

    server->kind = *kind;
    server->deleted = json_is_true(values[3]);

    return ngx_http_vibelock_registry_file_set_account(reading, server,
                                                       values[1]);
}


static ngx_int_t
ngx_http_vibelock_registry_file_set_account(
    ngx_http_vibelock_registry_reading_t *reading,
    ngx_http_vibelock_server_t *server, json_t *json)
{
    u_char                              data[NGX_HTTP_VIBELOCK_DIGEST_LEN];
    ngx_str_t                           id, digest;
    ngx_http_vibelock_registry_file_t  *file;
    ngx_http_vibelock_schema_member_t  *member;

    file = reading->file;

    id.data = (u_char *) json_string_value(json);
    id.len = json_string_length(json);

    server->account = ngx_http_vibelock_lookup_find(&file->accounts, &id);

    if (server->account) {
        return NGX_OK;
    }

    member = &ngx_http_vibelock_registry_file_server_members[1];

    /* who took the word "key" literally is not to find the key in a log */

    digest.data = data;
    digest.len = NGX_HTTP_VIBELOCK_DIGEST_LEN;

    if (ngx_http_vibelock_digest_threaded(&id, data) != NGX_OK
        || ngx_http_vibelock_lookup_find(&file->keys, &digest))
    {
        return ngx_http_vibelock_schema_error(&reading->schema, member->name,
                                              "is a key, but must be %s",
                                              member->must);
    }

    return ngx_http_vibelock_schema_wrong(&reading->schema, member, json);
}


static ngx_int_t
ngx_http_vibelock_registry_file_digest(
    ngx_http_vibelock_registry_reading_t *reading, char *member, json_t *json,
    ngx_str_t *digest)
{
    ngx_str_t  hex;

    hex.data = (u_char *) json_string_value(json);
    hex.len = json_string_length(json);

    digest->data = reading->file->texts;
    digest->len = NGX_HTTP_VIBELOCK_DIGEST_LEN;

    if (ngx_http_vibelock_digest_hex(&hex, digest->data) != NGX_OK) {

        /* it may be the key itself, or almost its digest: not shown */

        return ngx_http_vibelock_schema_error(&reading->schema, member,
                                              "must be a SHA-256, a string "
                                              "of 64 hex digits");
    }

    reading->file->texts += NGX_HTTP_VIBELOCK_DIGEST_LEN;

    return NGX_OK;
}


static void
ngx_http_vibelock_registry_file_text(
    ngx_http_vibelock_registry_reading_t *reading, json_t *json,
    ngx_str_t *text)
{
    text->data = reading->file->texts;
    text->len = json_string_length(json);

    reading->file->texts = ngx_cpymem(text->data, json_string_value(json),
                                      text->len);
}


static ngx_int_t
ngx_http_vibelock_registry_file_twice(
    ngx_http_vibelock_registry_reading_t *reading, char *list, ngx_uint_t n,
    json_t *value)
{
    u_char                             must[64];
    ngx_http_vibelock_schema_member_t  member;

    ngx_sprintf(must, "another than that of %s[%ui]%Z", list, n);

    member.name = "id";
    member.type = JSON_STRING;
    member.optional = 0;
    member.must = (char *) must;

    return ngx_http_vibelock_schema_wrong(&reading->schema, &member, value);
}
