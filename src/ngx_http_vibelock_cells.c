
/*
 * Copyright (C) the vibelock authors
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_http_vibelock_cells.h"
#include "ngx_http_vibelock_crash.h"


/* the text in a cell of kind MORE */

#define NGX_HTTP_VIBELOCK_MORE_SIZE                                           \
    (NGX_HTTP_VIBELOCK_CELL_SIZE - sizeof(ngx_http_vibelock_cell_t))


static uint32_t ngx_http_vibelock_cells_take(
    ngx_http_vibelock_cells_t *cells);
static void ngx_http_vibelock_cells_give(ngx_http_vibelock_cells_t *cells,
    uint32_t n);


void
ngx_http_vibelock_cells_init(ngx_http_vibelock_cells_t *cells, u_char *start,
    uint32_t total)
{
    cells->start = start;
    cells->total = total;
    cells->fresh = 0;
    cells->free = NGX_HTTP_VIBELOCK_NONE;
    cells->used = 0;
}


uint32_t
ngx_http_vibelock_cells_alloc(ngx_http_vibelock_cells_t *cells, size_t head,
    ngx_str_t *text)
{
    size_t                     size;
    uint32_t                   first, n, need;
    ngx_str_t                  rest;
    ngx_http_vibelock_cell_t  *cell;

    need = 1;

    if (text->len > NGX_HTTP_VIBELOCK_CELL_SIZE - head) {
        size = text->len - (NGX_HTTP_VIBELOCK_CELL_SIZE - head);
        need += (size + NGX_HTTP_VIBELOCK_MORE_SIZE - 1)
                / NGX_HTTP_VIBELOCK_MORE_SIZE;
    }

    if (cells->total - cells->used < need) {
        return NGX_HTTP_VIBELOCK_NONE;
    }

    rest = *text;
    first = ngx_http_vibelock_cells_take(cells);

    for (n = first; /* void */ ; n = cell->more) {
        cell = ngx_http_vibelock_cell(cells, n);

        size = ngx_min(rest.len, NGX_HTTP_VIBELOCK_CELL_SIZE - head);
        ngx_memcpy((u_char *) cell + head, rest.data, size);

        cell->head = (uint8_t) head;
        cell->len = (uint8_t) text->len;

        rest.data += size;
        rest.len -= size;

        if (rest.len == 0) {
            cell->more = NGX_HTTP_VIBELOCK_NONE;
            return first;
        }

        cell->more = ngx_http_vibelock_cells_take(cells);

        ngx_http_vibelock_cell(cells, cell->more)->kind =
                                                       NGX_HTTP_VIBELOCK_MORE;
        head = sizeof(ngx_http_vibelock_cell_t);
    }
}


static uint32_t
ngx_http_vibelock_cells_take(ngx_http_vibelock_cells_t *cells)
{
    uint32_t                   n;
    ngx_http_vibelock_cell_t  *cell;

    ngx_http_vibelock_crash_step();

    n = cells->free;

    if (n != NGX_HTTP_VIBELOCK_NONE) {
        cells->free = ngx_http_vibelock_cell(cells, n)->more;

    } else {
        n = cells->fresh;

        /* what is above "fresh" is not looked at: clear it before */

        cell = ngx_http_vibelock_cell(cells, n);
        ngx_memzero(cell, sizeof(ngx_http_vibelock_cell_t));
        ngx_memory_barrier();

        cells->fresh++;
    }

    ngx_http_vibelock_crash_step();

    cells->used++;

    return n;
}


void
ngx_http_vibelock_cells_free(ngx_http_vibelock_cells_t *cells, uint32_t n)
{
    uint32_t  more;

    do {
        more = ngx_http_vibelock_cell(cells, n)->more;
        ngx_http_vibelock_cells_give(cells, n);
        n = more;

    } while (n != NGX_HTTP_VIBELOCK_NONE);
}


static void
ngx_http_vibelock_cells_give(ngx_http_vibelock_cells_t *cells, uint32_t n)
{
    ngx_http_vibelock_cell_t  *cell;

    cell = ngx_http_vibelock_cell(cells, n);

    cell->kind = NGX_HTTP_VIBELOCK_FREE;
    ngx_memory_barrier();

    ngx_http_vibelock_crash_step();

    cell->more = cells->free;
    cells->free = n;
    cells->used--;

    ngx_http_vibelock_crash_step();
}


ngx_uint_t
ngx_http_vibelock_cells_equal(ngx_http_vibelock_cells_t *cells, uint32_t n,
    ngx_str_t *text)
{
    size_t                     size;
    ngx_str_t                  rest;
    ngx_http_vibelock_cell_t  *cell;

    cell = ngx_http_vibelock_cell(cells, n);

    if (cell->len != text->len) {
        return 0;
    }

    rest = *text;

    for ( ;; ) {
        size = ngx_min(rest.len,
                       (size_t) NGX_HTTP_VIBELOCK_CELL_SIZE - cell->head);

        if (ngx_memcmp((u_char *) cell + cell->head, rest.data, size) != 0) {
            return 0;
        }

        rest.data += size;
        rest.len -= size;

        if (rest.len == 0) {
            return 1;
        }

        cell = ngx_http_vibelock_cell(cells, cell->more);
    }
}


size_t
ngx_http_vibelock_cells_copy(ngx_http_vibelock_cells_t *cells, uint32_t n,
    u_char *dst)
{
    size_t                     size, len, rest;
    ngx_http_vibelock_cell_t  *cell;

    cell = ngx_http_vibelock_cell(cells, n);

    len = cell->len;
    rest = len;

    for ( ;; ) {
        size = ngx_min(rest,
                       (size_t) NGX_HTTP_VIBELOCK_CELL_SIZE - cell->head);

        dst = ngx_cpymem(dst, (u_char *) cell + cell->head, size);
        rest -= size;

        if (rest == 0) {
            return len;
        }

        cell = ngx_http_vibelock_cell(cells, cell->more);
    }
}


void
ngx_http_vibelock_cells_rebuild(ngx_http_vibelock_cells_t *cells)
{
    uint32_t                   n, m;
    ngx_http_vibelock_cell_t  *cell;

    for (n = 0; n < cells->fresh; n++) {
        ngx_http_vibelock_cell(cells, n)->seen = 0;
    }

    /* a cell that is set to a kind but MORE has its whole text behind it */

    for (n = 0; n < cells->fresh; n++) {
        cell = ngx_http_vibelock_cell(cells, n);

        if (cell->kind == NGX_HTTP_VIBELOCK_FREE
            || cell->kind == NGX_HTTP_VIBELOCK_MORE)
        {
            continue;
        }

        for (m = n; m != NGX_HTTP_VIBELOCK_NONE; m = cell->more) {
            cell = ngx_http_vibelock_cell(cells, m);
            cell->seen = 1;
        }
    }

    cells->free = NGX_HTTP_VIBELOCK_NONE;
    cells->used = cells->fresh;

    for (n = cells->fresh; n-- > 0; /* void */ ) {
        cell = ngx_http_vibelock_cell(cells, n);

        if (!cell->seen) {
            ngx_http_vibelock_cells_give(cells, n);
        }
    }
}
