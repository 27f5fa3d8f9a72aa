
/*
 * Copyright (C) the vibelock authors
 *
 * What the table needs of nginx, made for tests: a zone in memory that
 * children share, a mutex like that of nginx's, a clock that is set, and
 * processes that are played.
 */


#ifndef _NGX_VIBELOCK_TEST_NGINX_H_INCLUDED_
#define _NGX_VIBELOCK_TEST_NGINX_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_http_vibelock_table.h"


typedef struct {
    ngx_slab_pool_t            *pool;       /* where the zone begins */
    size_t                      size;       /* bytes, all counted */
    ngx_http_vibelock_table_t  *table;      /* NULL: too small for one */
    u_char                     *saved;
} zone_t;


/* a process has the mutex: stop it, for its parent to look at the zone */
extern ngx_uint_t  test_stop_locked;

/* how often the mutex was taken */
extern ngx_uint_t  test_locked;

/* the latest that the clock was set to, since the last zone was made */
extern ngx_msec_t  test_latest;


/*
 * A zone of "size" bytes, with what nginx itself takes of it, and the table
 * with "reserve" bytes for the caller.
 */

zone_t *zone_create(size_t size, size_t reserve);
void zone_destroy(zone_t *zone);

/*
 * Keeps a copy of all there is in the zone; puts it back; 1 when the zone is
 * still the same.
 */

void zone_save(zone_t *zone);
void zone_restore(zone_t *zone);
ngx_uint_t zone_same(zone_t *zone, u_char *copy);

/*
 * What nginx's master does for a worker that died.  1 when it had the mutex.
 */

ngx_uint_t zone_force_unlock(zone_t *zone, ngx_pid_t pid);

/*
 * From now on this is the worker in that slot, with that pid.
 */

void become(ngx_int_t slot, ngx_pid_t pid);

/*
 * A process that lives until it is killed, and one that is gone.
 */

ngx_pid_t stand_in(void);
void stand_in_kill(ngx_pid_t pid);
ngx_pid_t pid_gone(void);

/*
 * The clock, ms: set, or that of the machine.  The wall clock stands, but for
 * clock_later().
 */

void clock_set(ngx_msec_t now);
void clock_real(void);
void clock_later(time_t sec);

/*
 * Random numbers that a seed repeats; below(n): from 0 to n - 1.
 */

void random_seed(uint64_t seed);
uint64_t random_next(void);
uint64_t random_below(uint64_t n);

double seconds(void);


#endif /* _NGX_VIBELOCK_TEST_NGINX_H_INCLUDED_ */
