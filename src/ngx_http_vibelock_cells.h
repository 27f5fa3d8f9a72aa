
/*
 * Copyright (C) the vibelock authors
 *
 * Cells: the memory of a zone, carved once into pieces of one size.
 *
 * A zone asks nginx's slab allocator a single time, when it is made.  From
 * then on all that comes and goes in it, locks and the names of operations,
 * lives in cells of 128 bytes which are named by 32-bit numbers, so that a
 * process killed at any instruction leaves nothing that cannot be put in
 * order again from the cells alone.
 *
 * All functions expect the caller to hold the zone's mutex.
 */


#ifndef _NGX_HTTP_VIBELOCK_CELLS_H_INCLUDED_
#define _NGX_HTTP_VIBELOCK_CELLS_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>


#define NGX_HTTP_VIBELOCK_CELL_SIZE  128

#define NGX_HTTP_VIBELOCK_CELLS_MAX  0x7fffffff

/* no cell: the end of a chain */
#define NGX_HTTP_VIBELOCK_NONE       0xffffffff


/* what a cell is; whoever fills a cell sets its kind last */

#define NGX_HTTP_VIBELOCK_FREE       0
#define NGX_HTTP_VIBELOCK_LOCK       1
#define NGX_HTTP_VIBELOCK_OPERATION  2
#define NGX_HTTP_VIBELOCK_MORE       3    /* the rest of a long text */


typedef struct {
    uint32_t    more;       /* the next cell of this text, or the next free */
    uint8_t     kind;
    uint8_t     seen;       /* for the rebuild alone */
    uint8_t     head;       /* where the text begins, bytes */
    uint8_t     len;        /* of the whole text, bytes */
} ngx_http_vibelock_cell_t;


typedef struct {
    u_char     *start;
    uint32_t    total;      /* cells there are */
    uint32_t    fresh;      /* cells below this number were in use once */
    uint32_t    free;       /* the chain of cells given back */
    uint32_t    used;
} ngx_http_vibelock_cells_t;


/*
 * The cell of that number, which has to be below cells->fresh.
 */

#define ngx_http_vibelock_cell(cells, n)                                      \
    ((ngx_http_vibelock_cell_t *)                                             \
         ((cells)->start + (size_t) (n) * NGX_HTTP_VIBELOCK_CELL_SIZE))


/*
 * "total" cells of CELL_SIZE bytes each begin at "start".
 */

void ngx_http_vibelock_cells_init(ngx_http_vibelock_cells_t *cells,
    u_char *start, uint32_t total);

/*
 * Takes the cells that a head of "head" bytes (the cell's own 8 included) and
 * a text of up to 255 bytes need, and copies the text in.  The first cell's
 * kind stays FREE: the caller fills the head, and sets the kind as its last
 * act.
 *
 * Returns the first cell's number, NGX_HTTP_VIBELOCK_NONE when there are not
 * enough cells; then none was taken.
 */

uint32_t ngx_http_vibelock_cells_alloc(ngx_http_vibelock_cells_t *cells,
    size_t head, ngx_str_t *text);

/*
 * Gives a cell and the rest of its text back.
 */

void ngx_http_vibelock_cells_free(ngx_http_vibelock_cells_t *cells,
    uint32_t n);

/*
 * Compares the text of a cell (1 or 0), or copies it out: "dst" has room for
 * 255 bytes; returns the length.
 */

ngx_uint_t ngx_http_vibelock_cells_equal(ngx_http_vibelock_cells_t *cells,
    uint32_t n, ngx_str_t *text);
size_t ngx_http_vibelock_cells_copy(ngx_http_vibelock_cells_t *cells,
    uint32_t n, u_char *dst);

/*
 * Puts the cells in order after a process died while it changed them: what
 * belongs to no whole text is free.  May itself be cut short and run again.
 */

void ngx_http_vibelock_cells_rebuild(ngx_http_vibelock_cells_t *cells);


#endif /* _NGX_HTTP_VIBELOCK_CELLS_H_INCLUDED_ */
