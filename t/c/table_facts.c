
/*
 * Copyright (C) the vibelock authors
 *
 * What a lock is, one fact at a time.
 */


#include "table_test.h"


#define START  ((ngx_msec_t) 5 * DAY + 17)


static u_char  mine[] = "0123456789abcdef0123456789abcdef";
static u_char  theirs[] = "fedcba9876543210fedcba9876543210";


typedef struct {
    ngx_uint_t                 n;
    ngx_http_vibelock_lock_t   lock;
    u_char                     key[NGX_HTTP_VIBELOCK_KEY_MAX];
    size_t                     len;
} seen_t;


static void facts_hash(void);
static void facts_spread(ngx_http_vibelock_seed_t *seed);
static void facts_cells(void);
static void facts_create(void);
static void facts_taken(void);
static void facts_release(void);
static void facts_tokens(void);
static void facts_break(void);
static void facts_keep(void);
static void facts_expired(void);
static void facts_overrun(void);
static void facts_worker(void);
static void facts_workers(void);
static void facts_scan(void);
static void facts_keys(void);
static void facts_collisions(void);
static void facts_operations(void);

static void see(ngx_http_vibelock_lock_t *lock, ngx_str_t *key, void *data);
static ngx_uint_t scan(zone_t *zone, seen_t *seen);
static ngx_uint_t may_mine(ngx_http_vibelock_lock_t *lock, void *data);
static void respawn(zone_t *zone, ngx_int_t slot);


void
table_facts(amount_t *amount)
{
    facts_hash();
    facts_cells();
    facts_create();
    facts_taken();
    facts_release();
    facts_tokens();
    facts_break();
    facts_keep();
    facts_expired();
    facts_overrun();
    facts_worker();
    facts_workers();
    facts_scan();
    facts_keys();
    facts_collisions();
    facts_operations();
}


/* NH as its paper writes it down: words, padded, pair by pair */

static unsigned __int128
plain_nh(uint64_t *seed, u_char *data, size_t len)
{
    size_t             i, n;
    uint64_t           word[34];
    unsigned __int128  sum;

    ngx_memzero(word, sizeof(word));

    for (i = 0; i < len; i++) {
        word[i / 8] |= (uint64_t) data[i] << (8 * (i % 8));
    }

    n = len / 8;
    word[n] |= (uint64_t) len << 56;

    sum = 0;

    for (i = 0; i <= n; i += 2) {
        sum += (unsigned __int128) (word[i] + seed[i])
               * (word[i + 1] + seed[i + 1]);
    }

    return sum;
}


static void
facts_hash(void)
{
    u_char                     data[NGX_HTTP_VIBELOCK_HASH_MAX + 8], *p;
    size_t                     len, at;
    uint64_t                  *word;
    unsigned __int128          sum, other;
    ngx_http_vibelock_seed_t   seed, another;
    ngx_http_vibelock_wide_t   wide;

    ngx_http_vibelock_hash_random(&seed, sizeof(seed));
    ngx_http_vibelock_hash_random(&another, sizeof(another));
    ngx_http_vibelock_hash_random(data, sizeof(data));

    word = seed.words;

    fact("the hashes are NH, for any length and at any address");

    for (len = 0; len <= NGX_HTTP_VIBELOCK_HASH_MAX; len++) {
        for (at = 0; at < 8; at++) {
            context("length %zu, address %zu", len, at);

            p = data + at;
            sum = plain_nh(word, p, len);
            other = plain_nh(word + 2, p, len);

            ngx_http_vibelock_hash_wide(&seed, p, len, &wide);

            check(wide.words[0] == (uint64_t) sum
                  && wide.words[1] == (uint64_t) (sum >> 64)
                  && wide.words[2] == (uint64_t) other
                  && wide.words[3] == (uint64_t) (other >> 64));

            sum = (unsigned __int128) ((uint64_t) sum + word[34])
                  * ((uint64_t) (sum >> 64) + word[35]);

            check(ngx_http_vibelock_hash(&seed, p, len)
                  == ((uint64_t) sum ^ (uint64_t) (sum >> 64)));
            check(wide.hash == ngx_http_vibelock_hash(&seed, p, len));
        }
    }

    fact("under another seed the same text has another hash");

    check(ngx_http_vibelock_hash(&seed, data, 36)
          != ngx_http_vibelock_hash(&another, data, 36));

    facts_spread(&seed);
}


/*
 * Ids that count, as those of servers may: as many in each part of the hashes
 * as by chance.  Pearson's chi-squared of 255 degrees of freedom is over 400
 * once in a hundred millions.
 */

static void
facts_spread(ngx_http_vibelock_seed_t *seed)
{
    double      part, chi[4];
    u_char      id[37];
    uint64_t    hash;
    ngx_uint_t  i, k, n, count[4][256];

    fact("ids that count are spread evenly by every part of their hash");

    n = 65536;
    ngx_memzero(count, sizeof(count));

    for (i = 0; i < n; i++) {
        (void) snprintf((char *) id, sizeof(id),
                        "da76a437-284c-47fa-8462-%012x", (unsigned) i);

        hash = ngx_http_vibelock_hash(seed, id, 36);

        for (k = 0; k < 4; k++) {
            count[k][(hash >> (8 * k)) & 0xff]++;
        }
    }

    for (k = 0; k < 4; k++) {
        chi[k] = 0;

        for (i = 0; i < 256; i++) {
            part = (double) count[k][i] - (double) n / 256;
            chi[k] += part * part / ((double) n / 256);
        }

        context("byte %lu: %.1f", (unsigned long) k, chi[k]);
        check(chi[k] < 400);
    }
}


/* what the table compares only when two keys have one hash */

static void
facts_cells(void)
{
    u_char                     buf[NGX_HTTP_VIBELOCK_KEY_MAX], *memory;
    uint32_t                   n, m;
    ngx_str_t                  key;
    ngx_uint_t                 i, len;
    ngx_http_vibelock_cells_t  cells;

    fact("the text of a cell is equal to itself, and to no other");

    if (posix_memalign((void **) &memory, NGX_HTTP_VIBELOCK_CELL_SIZE,
                       8 * NGX_HTTP_VIBELOCK_CELL_SIZE)
        != 0)
    {
        abort();
    }

    ngx_http_vibelock_cells_init(&cells, memory, 8);

    ngx_memset(buf, 't', sizeof(buf));
    key.data = buf;

    for (len = 1; len <= sizeof(buf); len++) {
        context("length %lu", (unsigned long) len);

        key.len = len;
        n = ngx_http_vibelock_cells_alloc(&cells, raw_head, &key);

        check(n != NGX_HTTP_VIBELOCK_NONE);
        check(cells.used == raw_cells(len));
        check(ngx_http_vibelock_cells_equal(&cells, n, &key));

        for (i = 0; i < len; i++) {
            buf[i] ^= 0x20;
            check(!ngx_http_vibelock_cells_equal(&cells, n, &key));
            buf[i] ^= 0x20;
        }

        for (i = 1; i <= sizeof(buf); i++) {
            key.len = i;
            check(ngx_http_vibelock_cells_equal(&cells, n, &key)
                  == (i == len));
        }

        ngx_http_vibelock_cells_free(&cells, n);
        check(cells.used == 0);
    }

    fact("cells that are not enough are not taken");

    key.len = sizeof(buf);
    n = ngx_http_vibelock_cells_alloc(&cells, raw_head, &key);
    m = ngx_http_vibelock_cells_alloc(&cells, raw_head, &key);
    check(n != NGX_HTTP_VIBELOCK_NONE && m != NGX_HTTP_VIBELOCK_NONE);
    check(cells.used == 6);
    check(ngx_http_vibelock_cells_alloc(&cells, raw_head, &key)
          == NGX_HTTP_VIBELOCK_NONE);
    check(cells.used == 6);
    key.len = 37;
    check(ngx_http_vibelock_cells_alloc(&cells, raw_head, &key)
          != NGX_HTTP_VIBELOCK_NONE);
    check(cells.used == 8);
    key.len = 1;
    check(ngx_http_vibelock_cells_alloc(&cells, raw_head, &key)
          == NGX_HTTP_VIBELOCK_NONE);
    ngx_http_vibelock_cells_free(&cells, m);
    check(cells.used == 5);

    free(memory);
}


static void
facts_create(void)
{
    u_char      *p;
    size_t       i;
    zone_t      *zone;
    ngx_uint_t   pages;

    clock_set(START);

    fact("a zone that is too small for a table is told so");

    for (pages = 2; pages < 8; pages++) {
        zone = zone_create(pages * getpagesize(), 64);

        context("%lu pages", (unsigned long) pages);

        if (pages == 2) {
            check(zone->table == NULL);
        }

        if (zone->table) {
            check_null(whole(zone->table));
        }

        zone_destroy(zone);
    }

    fact("a zone of eight pages has room for 64 locks");

    zone = zone_create(8 * getpagesize(), 256);

    check(zone->table && raw_slots(zone->table) >= 64);

    zone_destroy(zone);

    fact("what is reserved is zeroed, and the caller's own");

    zone = zone_worker(16);
    p = ngx_http_vibelock_table_reserved(zone->table);

    check(((uintptr_t) p & 7) == 0);

    for (i = 0; i < 64; i++) {
        check(p[i] == 0);
    }

    ngx_memset(p, 0xff, 64);

    check_null(whole(zone->table));
    check(acquire(zone, text("a"), 1000, 0, NULL) == NGX_OK);
    check_null(whole(zone->table));

    for (i = 0; i < 64; i++) {
        check(p[i] == 0xff);
    }

    zone_destroy(zone);
}


static void
facts_taken(void)
{
    zone_t                     *zone;
    ngx_str_t                   name;
    ngx_http_vibelock_lock_t    lock, other;
    ngx_http_vibelock_claim_t   claim;

    clock_set(START);
    zone = zone_worker(16);

    name = text("deploy");

    claim.key = text("da76a437-284c-47fa-8462-e72f896487e2");
    claim.operation = ngx_http_vibelock_table_operation(zone->table, &name);
    claim.owner = mine;
    claim.ttl = 90000;
    claim.overrun = 0;

    fact("a lock is taken");

    check(claimed(zone, &claim, &lock) == NGX_OK);
    check(lock.handle.token != 0);
    check(lock.age == 0);
    check(lock.rest == 90000);
    check(!lock.stuck && !lock.overrun && lock.owned);
    check(lock.operation.len == 6);
    check(ngx_memcmp(lock.operation.data, "deploy", 6) == 0);
    check(ngx_memcmp(lock.owner, mine, 32) == 0);
    check_null(whole(zone->table));

    fact("it is taken once: busy tells operation, age, rest and owner");

    clock_set(START + 1234);

    claim.operation = 0;
    claim.owner = theirs;
    claim.ttl = 5;
    claim.overrun = 1;

    check(claimed(zone, &claim, &other) == NGX_BUSY);
    check(other.handle.token == lock.handle.token);
    check(other.handle.cell == lock.handle.cell);
    check(other.age == 1234);
    check(other.rest == 90000 - 1234);
    check(!other.stuck && !other.overrun && other.owned);
    check(other.operation.len == 6);
    check(ngx_memcmp(other.operation.data, "deploy", 6) == 0);
    check(ngx_memcmp(other.owner, mine, 32) == 0);

    fact("busy changes nothing");

    check(locks(zone) == 1);
    check(used(zone) == 3);
    check(ngx_http_vibelock_table_find(zone->table, &claim.key, &other)
          == NGX_OK);
    check(other.rest == 90000 - 1234);
    check_null(whole(zone->table));

    fact("another key is free");

    claim.key = text("da76a437-284c-47fa-8462-e72f896487e3");
    claim.owner = NULL;

    check(claimed(zone, &claim, &other) == NGX_OK);
    check(!other.owned && other.overrun);
    check(other.handle.token > lock.handle.token);
    check(other.operation.len == 4);
    check(locks(zone) == 2);

    fact("a lock that was taken by a clock that is ahead has no age yet");

    clock_set(START + 1200);

    check(ngx_http_vibelock_table_find(zone->table, &claim.key, &other)
          == NGX_OK);
    check(other.age == 0);
    check(other.rest == 5);
    check(acquire(zone, claim.key, 1, 0, &other) == NGX_BUSY);
    check(other.age == 0);

    zone_destroy(zone);
}


static void
facts_release(void)
{
    zone_t                    *zone;
    ngx_str_t                  key;
    ngx_http_vibelock_lock_t   lock, next, other;

    clock_set(START);
    zone = zone_worker(16);
    key = text("a");

    fact("release by handle frees");

    check(acquire(zone, key, 1000, 0, &lock) == NGX_OK);
    check(ngx_http_vibelock_table_release(zone->table, &lock.handle)
          == NGX_OK);
    check(!held(zone, key));
    check(locks(zone) == 0);
    check(used(zone) == 1);
    check_null(whole(zone->table));

    fact("a second release is told that the lock was lost");

    check(ngx_http_vibelock_table_release(zone->table, &lock.handle)
          == NGX_DECLINED);
    check(ngx_http_vibelock_table_keep(zone->table, &lock.handle)
          == NGX_DECLINED);

    fact("a handle never frees its successor, in the same cell");

    check(acquire(zone, key, 1000, 0, &next) == NGX_OK);
    check(next.handle.cell == lock.handle.cell);
    check(ngx_http_vibelock_table_release(zone->table, &lock.handle)
          == NGX_DECLINED);
    check(ngx_http_vibelock_table_keep(zone->table, &lock.handle)
          == NGX_DECLINED);
    check(ngx_http_vibelock_table_find(zone->table, &key, &other) == NGX_OK);
    check(other.handle.token == next.handle.token && !other.stuck);

    fact("nor one that is another key's, nor a part of another key");

    check(ngx_http_vibelock_table_release(zone->table, &next.handle)
          == NGX_OK);
    check(acquire(zone, text("b"), 1000, 0, &other) == NGX_OK);
    check(other.handle.cell == next.handle.cell);
    check(ngx_http_vibelock_table_release(zone->table, &next.handle)
          == NGX_DECLINED);
    check(held(zone, text("b")));

    fact("an expired lock is lost for who releases it, and gone");

    check(acquire(zone, text("c"), 1000, 0, &lock) == NGX_OK);
    clock_set(START + 1000);
    check(ngx_http_vibelock_table_release(zone->table, &lock.handle)
          == NGX_DECLINED);
    check(locks(zone) == 1);

    check(acquire(zone, text("c"), 1000, 0, &lock) == NGX_OK);
    clock_set(START + 1999);
    check(ngx_http_vibelock_table_release(zone->table, &lock.handle)
          == NGX_OK);
    check_null(whole(zone->table));

    zone_destroy(zone);
}


static void
facts_tokens(void)
{
    zone_t                    *zone, *second;
    uint64_t                   last, now;
    ngx_uint_t                 i;
    ngx_http_vibelock_lock_t   lock;

    clock_set(START);
    zone = zone_worker(16);

    fact("tokens begin at the Unix time in microseconds, under 2^53");

    check(acquire(zone, text("a"), 1000, 0, &lock) == NGX_OK);

    last = lock.handle.token;
    now = (uint64_t) time(NULL) * 1000000;

    check(last > now - 10000000 && last < now + 10000000);
    check(last < (uint64_t) 1 << 53);

    fact("tokens only grow: over release, break, expiry, and a restart");

    for (i = 0; i < 300; i++) {
        context("acquisition %lu", (unsigned long) i);

        if (i % 3 == 0) {
            check(ngx_http_vibelock_table_release(zone->table, &lock.handle)
                  == NGX_OK);

        } else if (i % 3 == 1) {
            check(broken(zone, text("a")));

        } else {
            clock_set(ngx_current_msec + 1000);
        }

        check(acquire(zone, text("a"), 1000, 0, &lock) == NGX_OK);
        check(lock.handle.token > last);
        last = lock.handle.token;
    }

    /* nginx was started again, a second later */

    clock_later(1);
    second = zone_worker(16);

    check(acquire(second, text("a"), 1000, 0, &lock) == NGX_OK);
    check(lock.handle.token > last);

    zone_destroy(second);
    zone_destroy(zone);
}


static void
facts_break(void)
{
    zone_t                     *zone;
    ngx_str_t                   key;
    ngx_http_vibelock_lock_t    lock, other;
    ngx_http_vibelock_claim_t   claim;

    clock_set(START);
    zone = zone_worker(16);
    key = text("a");

    fact("break finds nothing where nothing is");

    other.handle.token = 1;
    check(ngx_http_vibelock_table_break(zone->table, &key, yes, NULL, &other)
          == NGX_DECLINED);
    check(other.handle.token == 0);

    fact("break leaves a lock that may not be broken, and tells it");

    claim.key = key;
    claim.operation = 0;
    claim.owner = mine;
    claim.ttl = 1000;
    claim.overrun = 0;

    check(claimed(zone, &claim, &lock) == NGX_OK);
    check(ngx_http_vibelock_table_break(zone->table, &key, no, NULL, &other)
          == NGX_DECLINED);
    check(other.handle.token == lock.handle.token);
    check(ngx_http_vibelock_table_break(zone->table, &key, may_mine, theirs,
                                        &other)
          == NGX_DECLINED);
    check(held(zone, key));

    fact("break frees a lock that may be broken, and tells what it was");

    clock_set(START + 300);

    check(ngx_http_vibelock_table_break(zone->table, &key, may_mine, mine,
                                        &other)
          == NGX_OK);
    check(other.handle.token == lock.handle.token);
    check(other.age == 300 && other.rest == 700);
    check(other.owned && ngx_memcmp(other.owner, mine, 32) == 0);
    check(!held(zone, key));
    check(locks(zone) == 0);
    check_null(whole(zone->table));

    fact("who held it is told that it was lost");

    check(ngx_http_vibelock_table_release(zone->table, &lock.handle)
          == NGX_DECLINED);

    fact("break does not see an expired lock");

    check(acquire(zone, key, 10, 0, &lock) == NGX_OK);
    clock_set(START + 310);
    check(ngx_http_vibelock_table_break(zone->table, &key, yes, NULL, &other)
          == NGX_DECLINED);
    check(other.handle.token == 0);

    zone_destroy(zone);
}


static void
facts_keep(void)
{
    zone_t                    *zone;
    ngx_str_t                  key;
    ngx_http_vibelock_lock_t   lock, other;

    clock_set(START);
    zone = zone_worker(16);
    key = text("a");

    fact("keep leaves a lock to its TTL, as stuck");

    check(acquire(zone, key, 1000, 0, &lock) == NGX_OK);
    clock_set(START + 400);
    check(ngx_http_vibelock_table_keep(zone->table, &lock.handle) == NGX_OK);
    check(acquire(zone, key, 1000, 0, &other) == NGX_BUSY);
    check(other.stuck && other.age == 400 && other.rest == 600);
    check_null(whole(zone->table));

    fact("keeping it again changes nothing");

    clock_set(START + 600);
    check(ngx_http_vibelock_table_keep(zone->table, &lock.handle) == NGX_OK);
    check(acquire(zone, key, 1000, 0, &other) == NGX_BUSY);
    check(other.stuck && other.rest == 400);

    clock_set(START + 999);
    check(held(zone, key));
    clock_set(START + 1000);
    check(!held(zone, key));

    fact("a stuck lock is released by its handle, and broken");

    check(acquire(zone, key, 1000, 0, &lock) == NGX_OK);
    check(ngx_http_vibelock_table_keep(zone->table, &lock.handle) == NGX_OK);
    check(ngx_http_vibelock_table_release(zone->table, &lock.handle)
          == NGX_OK);
    check(acquire(zone, key, 1000, 0, &lock) == NGX_OK);
    check(ngx_http_vibelock_table_keep(zone->table, &lock.handle) == NGX_OK);
    check(ngx_http_vibelock_table_break(zone->table, &key, yes, NULL, &other)
          == NGX_OK);
    check(other.stuck);
    check(locks(zone) == 0);

    fact("a plain lock that is past its TTL is not kept");

    check(acquire(zone, key, 100, 0, &lock) == NGX_OK);
    clock_set(START + 1100);
    check(ngx_http_vibelock_table_keep(zone->table, &lock.handle)
          == NGX_DECLINED);
    check(locks(zone) == 0);
    check_null(whole(zone->table));

    zone_destroy(zone);
}


static void
facts_expired(void)
{
    seen_t                     seen;
    zone_t                    *zone;
    ngx_str_t                  key;
    ngx_http_vibelock_lock_t   lock, other;
    ngx_http_vibelock_usage_t  usage;

    clock_set(START);
    zone = zone_worker(16);
    key = text("a");

    check(acquire(zone, key, 1000, 0, &lock) == NGX_OK);

    fact("an expired lock is there for nobody, before any sweep");

    clock_set(START + 999);
    check(scan(zone, &seen) == 1);

    clock_set(START + 1000);
    check(locks(zone) == 1);
    check(scan(zone, &seen) == 0);
    check(locks(zone) == 1);
    check(!held(zone, key));

    fact("an expired lock blocks nobody, before any sweep");

    clock_set(START);
    check(acquire(zone, key, 1000, 0, &lock) == NGX_OK);
    clock_set(START + 1000);
    check(acquire(zone, key, 1000, 0, &other) == NGX_OK);
    check(other.handle.token > lock.handle.token);
    check(locks(zone) == 1);
    check(ngx_http_vibelock_table_release(zone->table, &lock.handle)
          == NGX_DECLINED);
    check(held(zone, key));

    fact("what expired is counted");

    clock_set(START + 2000);
    sweep(zone);
    clock_set(START + 2100);
    sweep(zone);

    ngx_http_vibelock_table_usage(zone->table, &usage);
    check(usage.locks == 0);
    check(usage.expired == 3);
    check(usage.rebuilds == 0);
    check(usage.used == 1);
    check(usage.cells == raw_slots(zone->table));

    fact("also where its holder is the first to see it");

    check(acquire(zone, key, 1000, 0, &lock) == NGX_OK);
    clock_set(START + 3100);
    check(ngx_http_vibelock_table_release(zone->table, &lock.handle)
          == NGX_DECLINED);
    ngx_http_vibelock_table_usage(zone->table, &usage);
    check(usage.expired == 4);
    check_null(whole(zone->table));

    zone_destroy(zone);
}


static void
facts_overrun(void)
{
    seen_t                     seen;
    zone_t                    *zone;
    ngx_str_t                  key;
    ngx_msec_t                 start;
    ngx_http_vibelock_lock_t   lock, other;

    clock_set(START);
    zone = zone_worker(16);
    key = text("a");

    fact("an overrun lock outlives its TTL while its request is open");

    check(acquire(zone, key, 1000, 1, &lock) == NGX_OK);
    check(lock.overrun && lock.rest == 1000);

    clock_set(START + 1000);
    sweep(zone);
    clock_set(START + 1064);
    sweep(zone);
    clock_set(START + 40 * DAY);
    sweep(zone);

    check(acquire(zone, key, 1000, 0, &other) == NGX_BUSY);
    check(other.overrun && !other.stuck);
    check(other.rest == 0 && other.age == 40 * DAY);
    check(scan(zone, &seen) == 1);
    check_null(whole(zone->table));

    fact("it is released long past its TTL");

    check(ngx_http_vibelock_table_release(zone->table, &lock.handle)
          == NGX_OK);
    check(locks(zone) == 0);

    fact("kept past its TTL, it has one more");

    start = ngx_current_msec;
    check(acquire(zone, key, 1000, 1, &lock) == NGX_OK);
    clock_set(start + 5500);
    sweep(zone);
    check(ngx_http_vibelock_table_keep(zone->table, &lock.handle) == NGX_OK);
    check(acquire(zone, key, 1000, 0, &other) == NGX_BUSY);
    check(other.stuck && other.overrun && other.rest == 1000);
    check(other.age == 5500);

    clock_set(start + 6499);
    sweep(zone);
    check(held(zone, key));
    check(ngx_http_vibelock_table_keep(zone->table, &lock.handle) == NGX_OK);
    check_null(whole(zone->table));

    clock_set(start + 6500);
    check(!held(zone, key));

    fact("... and only one, whoever sweeps");

    start = ngx_current_msec;
    check(acquire(zone, key, 1000, 1, &lock) == NGX_OK);
    clock_set(start + 5500);
    check(ngx_http_vibelock_table_keep(zone->table, &lock.handle) == NGX_OK);
    clock_set(start + 6564);
    sweep(zone);
    check(locks(zone) == 0);

    fact("kept at the very end of its TTL, it has one more");

    start = ngx_current_msec;
    check(acquire(zone, key, 1000, 1, &lock) == NGX_OK);
    clock_set(start + 1000);
    check(ngx_http_vibelock_table_keep(zone->table, &lock.handle) == NGX_OK);
    check(acquire(zone, key, 1000, 0, &other) == NGX_BUSY);
    check(other.rest == 1000);
    clock_set(start + 2000);
    check(!held(zone, key));

    fact("kept before its TTL, it lasts to that only");

    start = ngx_current_msec;
    check(acquire(zone, key, 1000, 1, &lock) == NGX_OK);
    clock_set(start + 999);
    check(ngx_http_vibelock_table_keep(zone->table, &lock.handle) == NGX_OK);
    check(acquire(zone, key, 1000, 0, &other) == NGX_BUSY);
    check(other.rest == 1 && other.stuck);
    clock_set(start + 1000);
    check(!held(zone, key));

    start = ngx_current_msec;
    check(acquire(zone, key, 1000, 1, &lock) == NGX_OK);
    clock_set(start + 10);
    check(ngx_http_vibelock_table_keep(zone->table, &lock.handle) == NGX_OK);
    clock_set(start + 1064);
    sweep(zone);
    check(locks(zone) == 0);
    check_null(whole(zone->table));

    zone_destroy(zone);
}


/*
 * A worker dies before or after the TTL, is replaced, leaves, or is never
 * heard of again.
 */

static void
facts_worker(void)
{
    zone_t                    *zone;
    ngx_str_t                  plain, late, early;
    ngx_int_t                  how;
    ngx_pid_t                  pid;
    ngx_http_vibelock_lock_t   lock, other;

    static const char         *name[] = {
        "a worker that is replaced leaves its locks stuck, each told once",
        "a worker that leaves leaves its locks stuck, each told once",
        "a worker that vanishes leaves its locks stuck, each told once"
    };

    plain = text("plain");
    late = text("late");
    early = text("early");

    for (how = 0; how < 3; how++) {
        fact(name[how]);

        clock_set(START);
        zone = zone_worker(16);
        pid = stand_in();

        become(7, pid);
        ngx_http_vibelock_table_enter(zone->table);

        check(acquire(zone, plain, 100000, 0, &lock) == NGX_OK);
        check(acquire(zone, late, 1000, 1, NULL) == NGX_OK);
        check(acquire(zone, early, 200000, 1, NULL) == NGX_OK);
        check(acquire(zone, text("expired"), 1000, 0, NULL) == NGX_OK);

        become(3, getpid());
        check(acquire(zone, text("other"), 1000000, 1, NULL) == NGX_OK);

        clock_set(START + 1500);
        sweep(zone);
        check(held(zone, late));

        /* nobody died yet */

        ngx_http_vibelock_table_reap(zone->table);
        visited = 0;
        search(zone);
        check(visited == 0);
        check(acquire(zone, late, 1, 0, &other) == NGX_BUSY && !other.stuck);

        check(acquire(zone, text("late expired"), 1, 0, NULL) == NGX_OK);

        clock_set(START + 5000);

        switch (how) {

        case 0:
            stand_in_kill(pid);
            respawn(zone, 7);
            break;

        case 1:
            become(7, pid);
            ngx_http_vibelock_table_leave(zone->table);
            stand_in_kill(pid);
            break;

        default:
            stand_in_kill(pid);
            become(3, getpid());
            ngx_http_vibelock_table_reap(zone->table);
        }

        become(3, getpid());

        /* before the search */

        clock_set(START + 5020);
        check(acquire(zone, plain, 1, 0, &other) == NGX_BUSY);
        check(other.stuck && other.rest == 100000 - 5020);
        check(acquire(zone, late, 1, 0, &other) == NGX_BUSY);
        check(other.stuck && other.rest == 1000 - 20);
        check(acquire(zone, early, 1, 0, &other) == NGX_BUSY);
        check(other.stuck && other.rest == 200000 - 5020);
        check(acquire(zone, text("other"), 1, 0, &other) == NGX_BUSY);
        check(!other.stuck);

        visited = 0;
        search(zone);
        check(visited == 3);
        search(zone);
        ngx_http_vibelock_table_reap(zone->table);
        search(zone);
        check(visited == 3);
        check_null(whole(zone->table));

        /* after it */

        clock_set(START + 5040);
        check(acquire(zone, plain, 1, 0, &other) == NGX_BUSY);
        check(other.stuck && other.rest == 100000 - 5040);
        check(acquire(zone, late, 1, 0, &other) == NGX_BUSY);
        check(other.stuck && other.rest == 1000 - 40);
        check(acquire(zone, text("other"), 1, 0, &other) == NGX_BUSY);
        check(!other.stuck);
        check(!held(zone, text("expired")));
        check(!held(zone, text("late expired")));

        clock_set(START + 5999);
        check(held(zone, late));
        clock_set(START + 6000);
        check(!held(zone, late));
        clock_set(START + 6064);
        sweep(zone);
        check(locks(zone) == 3);

        clock_set(START + 99999);
        check(held(zone, plain));
        clock_set(START + 100000);
        check(!held(zone, plain));

        clock_set(START + 199999);
        check(held(zone, early));
        clock_set(START + 200000);
        check(!held(zone, early));

        clock_set(START + 300000);
        sweep(zone);
        check(locks(zone) == 1);
        check_null(whole(zone->table));

        /* its handle is good for nothing now */

        check(ngx_http_vibelock_table_release(zone->table, &lock.handle)
              == NGX_DECLINED);

        zone_destroy(zone);
    }

    fact("a worker's death does not bring an expired lock back");

    clock_set(START);
    zone = zone_worker(16);
    become(7, getppid());
    ngx_http_vibelock_table_enter(zone->table);
    check(acquire(zone, plain, 1000, 0, NULL) == NGX_OK);

    clock_set(START + 5000);
    respawn(zone, 7);
    visited = 0;
    search(zone);
    check(visited == 0);
    check(!held(zone, plain));

    clock_set(START + 5000);
    check(acquire(zone, plain, 1000, 1, NULL) == NGX_OK);
    clock_set(START + 5500);
    respawn(zone, 7);
    clock_set(START + 6000);

    /* it expired at 6000, found or not, and whoever dies after that */

    check(acquire(zone, text("x"), 100000, 1, NULL) == NGX_OK);
    clock_set(START + 7000);
    respawn(zone, 7);
    check(!held(zone, plain));
    search(zone);
    check(!held(zone, plain));
    check(held(zone, text("x")));
    check_null(whole(zone->table));

    zone_destroy(zone);

    fact("a worker that dies at the very end of a TTL leaves one more");

    clock_set(START);
    zone = zone_worker(16);
    become(7, getppid());
    ngx_http_vibelock_table_enter(zone->table);
    check(acquire(zone, late, 1000, 1, NULL) == NGX_OK);

    clock_set(START + 1000);
    respawn(zone, 7);
    check(acquire(zone, late, 1, 1, &other) == NGX_BUSY);
    check(other.stuck && other.rest == 1000);
    search(zone);
    check(acquire(zone, late, 1, 1, &other) == NGX_BUSY);
    check(other.stuck && other.rest == 1000);

    zone_destroy(zone);

    fact("a lock taken by who never entered is stuck, and lasts to its TTL");

    clock_set(START);
    zone = zone_worker(16);
    become(9, getppid());
    check(acquire(zone, plain, 1000, 1, &lock) == NGX_OK);
    check(acquire(zone, late, 1000, 1, NULL) == NGX_OK);

    become(3, getpid());
    check(acquire(zone, plain, 1000, 1, &other) == NGX_BUSY);
    check(other.stuck && other.rest == 1000);
    clock_set(START + 999);
    check(held(zone, plain));
    clock_set(START + 1000);
    check(!held(zone, plain));
    clock_set(START + 1064);
    sweep(zone);
    check(locks(zone) == 0);
    check_null(whole(zone->table));

    zone_destroy(zone);
}


static void
facts_workers(void)
{
    zone_t                    *zone;
    ngx_str_t                  key;
    ngx_pid_t                  pid;
    ngx_uint_t                 i, n, last;
    ngx_msec_t                 over;
    u_char                     buf[64];
    ngx_http_vibelock_lock_t   lock;

    fact("a pid that is ours now, in another slot, is a worker gone");

    clock_set(START);
    zone = zone_worker(16);
    become(7, getpid());
    ngx_http_vibelock_table_enter(zone->table);
    check(acquire(zone, text("a"), 1000, 1, NULL) == NGX_OK);

    become(3, getpid());
    ngx_http_vibelock_table_reap(zone->table);
    check(acquire(zone, text("a"), 1, 1, &lock) == NGX_BUSY && lock.stuck);

    fact("a stranger with a worker's pid is no worker");

    pid = stand_in();
    become(8, pid);
    ngx_http_vibelock_table_enter(zone->table);
    check(acquire(zone, text("c"), 1000, 1, NULL) == NGX_OK);

    become(3, getpid());
    ngx_http_vibelock_table_reap(zone->table);
    check(acquire(zone, text("c"), 1, 1, &lock) == NGX_BUSY && !lock.stuck);

    check(setpgid(pid, pid) == 0);
    ngx_http_vibelock_table_reap(zone->table);
    check(acquire(zone, text("c"), 1, 1, &lock) == NGX_BUSY && lock.stuck);

    stand_in_kill(pid);

    fact("a worker does not take itself for gone");

    check(acquire(zone, text("b"), 1000, 1, NULL) == NGX_OK);
    ngx_http_vibelock_table_reap(zone->table);
    check(acquire(zone, text("b"), 1, 1, &lock) == NGX_BUSY && !lock.stuck);

    fact("a slot that is free is nobody's death");

    pid = pid_gone();
    become(8, pid);
    ngx_http_vibelock_table_enter(zone->table);
    ngx_http_vibelock_table_leave(zone->table);
    become(3, getpid());
    search(zone);
    ngx_http_vibelock_table_reap(zone->table);
    visited = 0;
    check(search(zone) == 1 && visited == 0);

    zone_destroy(zone);

    fact("workers may die faster than their locks are found");

    clock_set(START);
    zone = zone_worker(64);
    key.data = buf;
    last = 0;
    over = 0;

    for (i = 0; i < 5 * raw_gone; i++) {
        context("worker %lu", (unsigned long) i);

        become(7, getppid());
        ngx_http_vibelock_table_enter(zone->table);

        /* what a worker left lasts one TTL more, then it is gone for good */

        key.len = sprintf((char *) buf, "late %lu", (unsigned long) last);

        if (i && ngx_current_msec < over) {
            check(acquire(zone, key, 1, 1, &lock) == NGX_BUSY);
            check(lock.stuck && lock.rest == over - ngx_current_msec);

        } else if (i) {
            check(!held(zone, key));
        }

        if (i) {
            key.len = sprintf((char *) buf, "early %lu",
                              (unsigned long) i - 1);
            check(held(zone, key));
        }

        /* some live past their TTL, some not */

        key.len = sprintf((char *) buf, "early %lu", (unsigned long) i);
        check(acquire(zone, key, 5000000, 1, NULL) == NGX_OK);

        if (i % 3 == 0) {
            key.len = sprintf((char *) buf, "late %lu", (unsigned long) i);
            check(acquire(zone, key, 1500, 1, NULL) == NGX_OK);
            clock_set(ngx_current_msec + 2000);

            last = i;
            over = ngx_current_msec + 1500;

        } else {
            clock_set(ngx_current_msec + 600);
        }

        sweep(zone);
        check_null(whole(zone->table));
    }

    respawn(zone, 7);

    fact("... and each lock that is left is told, once");

    visited = 0;
    search(zone);
    search(zone);

    n = 0;

    for (i = 0; i < 5 * raw_gone; i++) {
        key.len = sprintf((char *) buf, "late %lu", (unsigned long) i);
        n += held(zone, key);
        key.len = sprintf((char *) buf, "early %lu", (unsigned long) i);
        n += held(zone, key);
    }

    check(n == 5 * raw_gone + (ngx_current_msec < over));
    check(visited == n);

    clock_set(ngx_current_msec + 10000000);
    sweep(zone);
    check(locks(zone) == 0);
    check_null(whole(zone->table));

    zone_destroy(zone);

    fact("a search does not run on when there is nobody to look for");

    clock_set(START);
    zone = zone_worker(64);
    check(search(zone) == 1);

    n = test_locked;
    check(search(zone) == 1);
    check(test_locked == n);

    for (i = 0; i < 300; i++) {
        key.data = buf;
        key.len = sprintf((char *) buf, "%lu", (unsigned long) i);
        check(acquire(zone, key, 1000, 0, NULL) == NGX_OK);
    }

    check(search(zone) == 1);

    fact("it goes in small steps, and starts over when another worker dies");

    become(8, getppid());
    ngx_http_vibelock_table_enter(zone->table);
    ngx_http_vibelock_table_leave(zone->table);
    check(search(zone) > 1);
    n = test_locked;
    check(search(zone) == 1);
    check(test_locked == n);

    become(8, getppid());
    ngx_http_vibelock_table_enter(zone->table);
    respawn(zone, 8);
    check(ngx_http_vibelock_table_search(zone->table, NULL, NULL)
          == NGX_AGAIN);

    become(3, getpid());
    ngx_http_vibelock_table_leave(zone->table);
    become(8, getppid());
    visited = 0;
    search(zone);
    check(visited == 300);
    check_null(whole(zone->table));

    zone_destroy(zone);
}


static void
facts_scan(void)
{
    u_char       buf[64];
    seen_t       seen;
    zone_t      *zone;
    uint32_t     cell;
    ngx_str_t    key;
    ngx_uint_t   i, n;

    clock_set(START);
    zone = zone_worker(64);
    key.data = buf;

    fact("a scan of nothing ends at once");

    check(scan(zone, &seen) == 0);

    fact("a scan sees each lock that is not expired once, with its key");

    for (i = 0; i < 400; i++) {
        key.len = sprintf((char *) buf, "%lu", (unsigned long) i);
        check(acquire(zone, key, i % 4 ? 1000 : 10, 0, NULL) == NGX_OK);
    }

    clock_set(START + 10);
    check(scan(zone, &seen) == 300);

    key.len = sprintf((char *) buf, "%lu", 399UL);
    check(seen.len == key.len && ngx_memcmp(seen.key, buf, key.len) == 0);
    check(seen.lock.rest == 990 && seen.lock.age == 10);
    check(locks(zone) == 400);

    fact("a scan goes in small steps");

    cell = 0;
    n = 0;
    seen.n = 0;

    while (ngx_http_vibelock_table_scan(zone->table, &cell, see, &seen)
           == NGX_AGAIN)
    {
        check(seen.n <= raw_step);
        seen.n = 0;
        n++;
    }

    check(n == 400 / raw_step);

    zone_destroy(zone);
}


static void
facts_keys(void)
{
    u_char                     buf[NGX_HTTP_VIBELOCK_KEY_MAX + 1];
    seen_t                     seen;
    zone_t                    *zone;
    uint32_t                   cells;
    ngx_str_t                  key;
    ngx_uint_t                 i, n, before;
    ngx_http_vibelock_lock_t   lock, other;

    static size_t  lens[] = { 1, 2, 35, 36, 37, 155, 156, 157, 254, 255 };
    static ngx_uint_t  need[] = { 1, 1, 1, 1, 2, 2, 2, 3, 3, 3 };

    clock_set(START);
    zone = zone_worker(32);
    key.data = buf;

    fact("keys of 1 to 255 bytes, of every byte there is");

    before = used(zone);

    for (i = 0; i < 10; i++) {
        for (n = 0; n < 256; n++) {
            context("length %zu, byte %lu", lens[i], (unsigned long) n);

            ngx_memset(buf, n, sizeof(buf));
            key.len = lens[i];

            check(acquire(zone, key, 1000, 0, &lock) == NGX_OK);
            check(held(zone, key));
            check(scan(zone, &seen) == 1);
            check(seen.len == key.len);
            check(ngx_memcmp(seen.key, buf, key.len) == 0);

            /* other in the last byte, in the first, longer, shorter */

            buf[key.len - 1] ^= 1;
            check(!held(zone, key));
            buf[key.len - 1] ^= 1;

            buf[0] ^= 0x80;
            check(!held(zone, key));
            buf[0] ^= 0x80;

            key.len++;
            check(!held(zone, key));
            key.len--;

            if (key.len > 1) {
                key.len--;
                check(!held(zone, key));
                key.len++;
            }

            check(used(zone) == before + need[i]);
            check_null(whole(zone->table));

            check(ngx_http_vibelock_table_release(zone->table, &lock.handle)
                  == NGX_OK);
            check(used(zone) == before);
        }
    }

    fact("a key of every length, all held at once: cells are counted exactly");

    cells = before;

    for (i = 1; i <= 255; i++) {
        context("length %lu", (unsigned long) i);

        for (n = 0; n < i; n++) {
            buf[n] = (u_char) (n * i + 7);
        }

        key.len = i;
        cells += raw_cells(i);

        check(acquire(zone, key, 1000 + i, 0, NULL) == NGX_OK);
        check(used(zone) == cells);
    }

    check(locks(zone) == 255);
    check_null(whole(zone->table));

    fact("... and given back exactly, by break, release and expiry");

    for (i = 1; i <= 255; i++) {
        context("length %lu", (unsigned long) i);

        for (n = 0; n < i; n++) {
            buf[n] = (u_char) (n * i + 7);
        }

        key.len = i;

        if (i % 3 == 0) {
            check(ngx_http_vibelock_table_break(zone->table, &key, yes, NULL,
                                                &other)
                  == NGX_OK);

        } else if (i % 3 == 1) {
            check(ngx_http_vibelock_table_find(zone->table, &key, &other)
                  == NGX_OK);
            check(ngx_http_vibelock_table_release(zone->table, &other.handle)
                  == NGX_OK);
        } else {
            continue;
        }

        cells -= raw_cells(i);
        check(used(zone) == cells);
    }

    check_null(whole(zone->table));
    clock_set(START + 10000);
    sweep(zone);
    check(used(zone) == before && locks(zone) == 0);
    check_null(whole(zone->table));

    zone_destroy(zone);
}


typedef struct {
    uint32_t     hash;
    uint32_t     n;
} hashed_t;


static int ngx_libc_cdecl
hashed_cmp(const void *one, const void *two)
{
    const hashed_t  *a = one, *b = two;

    return (a->hash > b->hash) - (a->hash < b->hash);
}


static void
facts_collisions(void)
{
    u_char                    buf[64];
    zone_t                   *zone;
    uint32_t                  slot, keys[64];
    hashed_t                 *hashed;
    ngx_str_t                 key;
    ngx_uint_t                i, j, n, total;
    ngx_http_vibelock_lock_t  lock[64], other;

    clock_set(START);
    zone = zone_worker(16);
    key.data = buf;

    fact("keys that share an index slot: any order of release");

    key.len = sprintf((char *) buf, "%u", 0);
    slot = raw_slot(zone->table, &key);

    for (i = 0, n = 0; n < 64; i++) {
        key.len = sprintf((char *) buf, "%lu", (unsigned long) i);

        if (raw_slot(zone->table, &key) == slot) {
            keys[n++] = i;
        }
    }

    for (j = 0; j < 50; j++) {
        for (i = 0; i < n; i++) {
            key.len = sprintf((char *) buf, "%u", keys[i]);
            check(acquire(zone, key, 1000 + i, 0, &lock[i]) == NGX_OK);
        }

        check_null(whole(zone->table));

        for (total = n; total; total--) {
            i = random_below(total);

            key.len = sprintf((char *) buf, "%u", keys[i]);
            check(ngx_http_vibelock_table_find(zone->table, &key, &other)
                  == NGX_OK);
            check(other.handle.token == lock[i].handle.token);
            check(ngx_http_vibelock_table_release(zone->table,
                                                  &lock[i].handle)
                  == NGX_OK);
            check(!held(zone, key));
            check_null(whole(zone->table));

            slot = keys[i];
            keys[i] = keys[total - 1];
            keys[total - 1] = slot;

            other = lock[i];
            lock[i] = lock[total - 1];
            lock[total - 1] = other;
        }
    }

    fact("two keys of one hash are two locks");

    total = 400000;
    hashed = malloc(total * sizeof(hashed_t));

    for (i = 0; i < total; i++) {
        key.len = sprintf((char *) buf, "%lu", (unsigned long) i);
        hashed[i].n = i;
        hashed[i].hash = raw_hash(zone->table, &key);
    }

    qsort(hashed, total, sizeof(hashed_t), hashed_cmp);

    for (i = 1, n = 0; i < total; i++) {

        if (hashed[i].hash != hashed[i - 1].hash) {
            continue;
        }

        n++;

        key.len = sprintf((char *) buf, "%u", hashed[i].n);
        check(acquire(zone, key, 1000, 0, &lock[0]) == NGX_OK);
        key.len = sprintf((char *) buf, "%u", hashed[i - 1].n);
        check(!held(zone, key));
        check(acquire(zone, key, 1000, 0, &lock[1]) == NGX_OK);
        check(lock[0].handle.cell != lock[1].handle.cell);
        check(ngx_http_vibelock_table_release(zone->table, &lock[n & 1].handle)
              == NGX_OK);
        check(held(zone, key) == !(n & 1));
        check(ngx_http_vibelock_table_release(zone->table,
                                              &lock[!(n & 1)].handle)
              == NGX_OK);
        check_null(whole(zone->table));
    }

    /* 18 are to be expected */

    check(n > 0);

    free(hashed);
    zone_destroy(zone);
}


static void
facts_operations(void)
{
    u_char                     buf[33];
    zone_t                    *zone;
    uint32_t                   number[32];
    ngx_str_t                  name;
    ngx_uint_t                 i;
    ngx_http_vibelock_lock_t   lock;
    ngx_http_vibelock_claim_t  claim;

    clock_set(START);
    zone = zone_worker(16);

    fact("an operation's name is kept once, of 1 to 32 bytes");

    for (i = 1; i < 32; i++) {
        ngx_memset(buf, 'x', 32);
        name.data = buf;
        name.len = i + 1;

        number[i] = ngx_http_vibelock_table_operation(zone->table, &name);
        check(number[i] != NGX_HTTP_VIBELOCK_NONE);
        check(ngx_http_vibelock_table_operation(zone->table, &name)
              == number[i]);
        check(number[i] != number[i - 1] || i == 1);
    }

    check(used(zone) == 32);
    check_null(whole(zone->table));

    fact("a lock has its operation's name");

    for (i = 1; i < 32; i++) {
        buf[0] = (u_char) i;

        claim.key.data = buf;
        claim.key.len = 1;
        claim.operation = number[i];
        claim.owner = NULL;
        claim.ttl = 1000;
        claim.overrun = 0;

        check(claimed(zone, &claim, &lock) == NGX_OK);
        check(lock.operation.len == i + 1);
        check(ngx_memcmp(lock.operation.data,
                         "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", i + 1)
              == 0);
    }

    zone_destroy(zone);
}


static void
see(ngx_http_vibelock_lock_t *lock, ngx_str_t *key, void *data)
{
    seen_t  *seen = data;

    seen->n++;
    seen->lock = *lock;
    seen->len = key->len;
    ngx_memcpy(seen->key, key->data, key->len);
}


static ngx_uint_t
scan(zone_t *zone, seen_t *seen)
{
    uint32_t  cell;

    cell = 0;
    seen->n = 0;

    while (ngx_http_vibelock_table_scan(zone->table, &cell, see, seen)
           == NGX_AGAIN)
    {
        /* void */
    }

    return seen->n;
}


static ngx_uint_t
may_mine(ngx_http_vibelock_lock_t *lock, void *data)
{
    return lock->owned
           && ngx_memcmp(lock->owner, data, NGX_HTTP_VIBELOCK_OWNER_LEN) == 0;
}


/* another worker in the same slot */

static void
respawn(zone_t *zone, ngx_int_t slot)
{
    become(slot, getppid());
    ngx_http_vibelock_table_enter(zone->table);
}
