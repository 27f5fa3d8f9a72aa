
/*
 * Copyright (C) the vibelock authors
 *
 * table_test <part> [seed=<n>] [operations=<n>] [locks=<n>] [thin=<n>]
 *            [tracing=<0|1>]
 */


#include "table_test.h"


typedef struct {
    const char   *name;
    void        (*run)(amount_t *amount);
} part_t;


static part_t  parts[] = {
    { "facts", table_facts },
    { "clock", table_clock },
    { "full", table_full },
    { "model", table_model },
    { "million", table_million },
    { "crash", table_crash },
    { "stepped", table_stepped },
    { "race", table_race },
    { NULL, NULL }
};


ngx_uint_t  visited;


#if (NGX_HTTP_VIBELOCK_CRASH)

const ngx_uint_t  steps_marked = 1;

#else

const ngx_uint_t  steps_marked = 0;
ngx_int_t         ngx_http_vibelock_crash_after;

#endif


static void visit(ngx_http_vibelock_lock_t *lock, ngx_str_t *key, void *data);


int
main(int argc, char **argv)
{
    int            i;
    part_t        *part;
    amount_t       amount;
    unsigned long  n;

    ngx_memzero(&amount, sizeof(amount_t));

    amount.seed = (uint64_t) time(NULL) * 1000003 + getpid();
    amount.operations = 1000000;
    amount.locks = 1000000;
    amount.thin = 1;
    amount.tracing = 1;

    for (i = 2; i < argc; i++) {

        if (sscanf(argv[i], "seed=%lu", &n) == 1) {
            amount.seed = n;

        } else if (sscanf(argv[i], "operations=%lu", &n) == 1) {
            amount.operations = n;

        } else if (sscanf(argv[i], "locks=%lu", &n) == 1) {
            amount.locks = n;

        } else if (sscanf(argv[i], "thin=%lu", &n) == 1 && n) {
            amount.thin = n;

        } else if (sscanf(argv[i], "tracing=%lu", &n) == 1) {
            amount.tracing = n;

        } else {
            fprintf(stderr, "table_test: \"%s\"?\n", argv[i]);
            return 2;
        }
    }

    for (part = parts; part->name; part++) {
        if (argc > 1 && strcmp(part->name, argv[1]) == 0) {
            break;
        }
    }

    if (part->name == NULL) {
        fprintf(stderr, "table_test: which part?\n");
        return 2;
    }

    random_seed(amount.seed);

    part->run(&amount);
    fact_done();

    printf("done\n");

    return 0;
}


zone_t *
zone_worker(ngx_uint_t pages)
{
    zone_t     *zone;
    ngx_str_t   name;

    zone = zone_create(pages * getpagesize(), 64);

    if (zone->table == NULL) {
        abort();
    }

    name = text("exec");

    if (ngx_http_vibelock_table_operation(zone->table, &name) != 0) {
        abort();
    }

    become(3, getpid());
    ngx_http_vibelock_table_enter(zone->table);

    return zone;
}


ngx_str_t
text(const char *s)
{
    ngx_str_t  str;

    str.data = (u_char *) s;
    str.len = strlen(s);

    return str;
}


ngx_int_t
acquire(zone_t *zone, ngx_str_t key, ngx_msec_t ttl, ngx_uint_t overrun,
    ngx_http_vibelock_lock_t *lock)
{
    ngx_http_vibelock_lock_t   other;
    ngx_http_vibelock_claim_t  claim;

    claim.key = key;
    claim.operation = 0;
    claim.owner = NULL;
    claim.ttl = ttl;
    claim.overrun = overrun;

    return claimed(zone, &claim, lock ? lock : &other);
}


ngx_int_t
claimed(zone_t *zone, ngx_http_vibelock_claim_t *claim,
    ngx_http_vibelock_lock_t *lock)
{
    ngx_int_t                   rc;
    ngx_http_vibelock_handle_t  handle;

    rc = ngx_http_vibelock_table_acquire(zone->table, claim, lock);

    if (rc == NGX_OK) {
        handle = lock->handle;

        check(ngx_http_vibelock_table_find(zone->table, &claim->key, lock)
              == NGX_OK);
        check(lock->handle.token == handle.token);
        check(lock->handle.cell == handle.cell);
    }

    return rc;
}


ngx_uint_t
broken(zone_t *zone, ngx_str_t key)
{
    ngx_http_vibelock_lock_t  lock;

    return ngx_http_vibelock_table_break(zone->table, &key, yes, NULL, &lock)
           == NGX_OK;
}


ngx_uint_t
held(zone_t *zone, ngx_str_t key)
{
    ngx_http_vibelock_lock_t  lock;

    return ngx_http_vibelock_table_find(zone->table, &key, &lock) == NGX_OK;
}


ngx_uint_t
locks(zone_t *zone)
{
    ngx_http_vibelock_usage_t  usage;

    ngx_http_vibelock_table_usage(zone->table, &usage);

    return usage.locks;
}


ngx_uint_t
used(zone_t *zone)
{
    ngx_http_vibelock_usage_t  usage;

    ngx_http_vibelock_table_usage(zone->table, &usage);

    return usage.used;
}


ngx_uint_t
sweep(zone_t *zone)
{
    ngx_uint_t  n;

    n = 1;

    while (ngx_http_vibelock_table_sweep(zone->table) == NGX_AGAIN) {
        n++;
    }

    return n;
}


ngx_uint_t
search(zone_t *zone)
{
    ngx_uint_t  n;

    n = 1;

    while (ngx_http_vibelock_table_search(zone->table, visit, NULL)
           == NGX_AGAIN)
    {
        n++;
    }

    return n;
}


static void
visit(ngx_http_vibelock_lock_t *lock, ngx_str_t *key, void *data)
{
    visited++;
}


ngx_uint_t
yes(ngx_http_vibelock_lock_t *lock, void *data)
{
    return 1;
}


ngx_uint_t
no(ngx_http_vibelock_lock_t *lock, void *data)
{
    return 0;
}
