
/*
 * Copyright (C) the vibelock authors
 *
 * Facts: each is a line "ok - name" or "not ok - name", for the .t to count.
 */


#ifndef _NGX_VIBELOCK_TEST_TAP_H_INCLUDED_
#define _NGX_VIBELOCK_TEST_TAP_H_INCLUDED_


/*
 * Within a fact any number of things may be checked; the first that fails is
 * printed, with where it was.  check() gives its condition back.
 */

void fact(const char *name);
void fact_done(void);
int fact_failed(void);

#define check(x)          check_at((x) != 0, #x, __FILE__, __LINE__)

/* the same for a text that tells what is wrong, NULL: nothing */
#define check_null(x)     check_text(x, __FILE__, __LINE__)

int check_at(int good, const char *what, const char *file, int line);
int check_text(const char *text, const char *file, int line);

/* where a check that fails stands; printed with it */
void context(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

void skip(const char *name, const char *why);
void note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));


#endif /* _NGX_VIBELOCK_TEST_TAP_H_INCLUDED_ */
