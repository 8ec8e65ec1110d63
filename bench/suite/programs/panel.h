/*
 * A panel of LU with row pivoting: nb columns of the matrix, factored together by the processes of one column of the grid,
 * then passed along the rows. Recursive down to 8 columns, which are done looking left.
 *
 * What a panel holds in one piece, so that it is one message: the pivots, the triangles of its top block (which every
 * process has), and the process's own rows at or below the panel's first, of which the first `skip` are those of the top.
 */
#ifndef PANEL_H
#define PANEL_H
#include "blas.h"
#include "grid.h"

typedef struct {
    int first, width;   /* global column, number of columns */
    int rows, skip;     /* local rows at or below `first`; those of the top block among them */
    int row;            /* local index of the first of them in the matrix */
    size_t ld;
    double *pivots;     /* global rows */
    double *top;        /* width by width: unit lower L and U */
    double *work;       /* rows by width: below the top block, L */
    size_t length;      /* of it all, in doubles */
    double *memory;
    MPI_Request receive, send;
    int root;           /* column of the grid that factors it */
} Panel;

enum { PANEL_NARROW = 8, PANEL_TAG = 1 };

static inline void panel_make(Panel *panel, const Matrix *m) {
    size_t ld = grid_leading(m->rows) + 8, nb = (size_t)m->nb;
    panel->memory = suite_memory((nb + nb * nb + 16 + ld * nb) * sizeof(double));
    panel->receive = panel->send = MPI_REQUEST_NULL;
}

/* Makes the panel stand for the columns that begin at `first`. */
static inline void panel_at(Panel *panel, const Matrix *m, int first) {
    const Grid *grid = m->grid;
    panel->first = first;
    panel->width = m->n - first < m->nb ? m->n - first : m->nb;
    panel->row = grid_row(m, first);
    panel->rows = grid_row(m, m->n) - panel->row;
    panel->skip = grid_owner(first, m->nb, grid->P) == grid->p ? panel->width : 0;
    panel->root = grid_owner(first, m->nb, grid->Q);
    panel->ld = grid_leading(panel->rows > 0 ? panel->rows : 1);
    size_t width = (size_t)panel->width, head = (width + width * width + 7) / 8 * 8;
    panel->pivots = panel->memory;
    panel->top = panel->memory + width;
    panel->work = panel->memory + head;
    panel->length = head + panel->ld * width;
}

/* L below the top block, and how many rows it has here. */
static inline const double *panel_below(const Panel *panel) { return panel->work + panel->skip; }
static inline int panel_below_rows(const Panel *panel) { return panel->rows - panel->skip; }

/*
 * What the processes of a column tell each other for a pivot: magnitude, global row, whether the top row is there, one
 * place unused, then the candidate's row and the top row, each of the panel's width.
 */
enum { PIVOT_HEAD = 4 };

static int pivot_width; /* of the messages in flight; the operation has no other way to know it */

static void pivot_better(void *in, void *inout, int *count, MPI_Datatype *type) {
    const size_t width = (size_t)pivot_width, length = PIVOT_HEAD + 2 * width;
    (void)type;
    for (int n = 0; n < *count; n++) {
        const double *a = (const double *)in + (size_t)n * length;
        double *b = (double *)inout + (size_t)n * length;
        if (a[0] > b[0] || (a[0] == b[0] && a[1] < b[1])) {
            b[0] = a[0];
            b[1] = a[1];
            memcpy(b + PIVOT_HEAD, a + PIVOT_HEAD, width * sizeof *b);
        }
        if (a[2] != 0) {
            b[2] = 1;
            memcpy(b + PIVOT_HEAD + width, a + PIVOT_HEAD + width, width * sizeof *b);
        }
    }
}

/* What the factorization of one panel works with. */
typedef struct {
    Panel *panel;
    const Matrix *m;
    double *mine, *best;
    MPI_Datatype type;
    MPI_Op op;
    int singular;
} Factoring;

/* Finds the pivot of column j, swaps whole rows of the panel, and divides the column by the pivot. */
static inline void panel_pivot(Factoring *f, int j) {
    Panel *panel = f->panel;
    const Grid *grid = f->m->grid;
    const int width = panel->width, from = panel->skip ? j : 0, left = panel->rows - from, one = 1;
    const size_t ld = panel->ld, size = (size_t)width;
    double *column = panel->work + (size_t)j * ld, *mine = f->mine, *best = f->best;
    mine[0] = -1;
    mine[1] = f->m->n;
    mine[2] = panel->skip != 0;
    mine[3] = 0;
    if (left > 0) {
        int at = from + blas.iamax(&left, column + from, &one) - 1;
        mine[0] = fabs(column[at]);
        mine[1] = grid_global(panel->row + at, f->m->nb, grid->p, grid->P);
        for (size_t c = 0; c < size; c++) mine[PIVOT_HEAD + c] = panel->work[(size_t)at + c * ld];
    }
    if (panel->skip)
        for (size_t c = 0; c < size; c++) mine[PIVOT_HEAD + size + c] = panel->work[(size_t)j + c * ld];
    if (grid->P > 1) MPI_Allreduce(mine, best, 1, f->type, f->op, grid->column);
    else best = mine;
    const int row = (int)best[1];
    const double *pivot_row = best + PIVOT_HEAD, *top_row = best + PIVOT_HEAD + size, pivot = pivot_row[j];
    panel->pivots[j] = row;
    for (size_t c = 0; c < size; c++) panel->top[(size_t)j + c * size] = pivot_row[c];
    if (row != panel->first + j && grid_owner(row, f->m->nb, grid->P) == grid->p) {
        double *place = panel->work + (grid_local(row, f->m->nb, grid->P) - panel->row);
        for (size_t c = 0; c < size; c++) place[c * ld] = top_row[c];
    }
    if (pivot == 0) {
        f->singular = 1;
        return;
    }
    const int start = panel->skip ? j + 1 : 0, rows = panel->rows;
    if (fabs(pivot) > 1e-290) {
        const double inverse = 1 / pivot;
        for (int i = start; i < rows; i++) column[i] *= inverse;
    } else {
        for (int i = start; i < rows; i++) column[i] /= pivot;
    }
}

/* Column j minus the products of the columns `from` to j - 1 before it and their entries of U, in one pass. */
static inline void panel_left(Factoring *f, int from, int j) {
    Panel *panel = f->panel;
    const size_t ld = panel->ld, width = (size_t)panel->width;
    const int start = panel->skip ? j : 0, rows = panel->rows;
    double *restrict column = panel->work + (size_t)j * ld, *u = panel->top + (size_t)j * width;
    for (int t = from + 1; t < j; t++)
        for (int s = from; s < t; s++) u[t] -= panel->top[(size_t)t + (size_t)s * width] * u[s];
    int t = from;
    for (; t + 3 < j; t += 4) {
        const double *restrict a = panel->work + (size_t)t * ld, *restrict b = a + ld, *restrict c = b + ld, *restrict d = c + ld;
        const double w = u[t], x = u[t + 1], y = u[t + 2], z = u[t + 3];
        for (int i = start; i < rows; i++) column[i] -= a[i] * w + b[i] * x + c[i] * y + d[i] * z;
    }
    for (; t + 1 < j; t += 2) {
        const double *restrict a = panel->work + (size_t)t * ld, *restrict b = a + ld;
        const double w = u[t], x = u[t + 1];
        for (int i = start; i < rows; i++) column[i] -= a[i] * w + b[i] * x;
    }
    for (; t < j; t++) {
        const double *restrict a = panel->work + (size_t)t * ld;
        const double w = u[t];
        for (int i = start; i < rows; i++) column[i] -= a[i] * w;
    }
}

static inline void panel_recurse(Factoring *f, int from, int count) {
    if (count <= PANEL_NARROW) {
        for (int j = from; j < from + count; j++) {
            panel_left(f, from, j);
            panel_pivot(f, j);
        }
        return;
    }
    Panel *panel = f->panel;
    const int half = (count / 2 + PANEL_NARROW - 1) / PANEL_NARROW * PANEL_NARROW, middle = from + half, rest = count - half;
    const size_t ld = panel->ld, width = (size_t)panel->width;
    double *left = panel->work + (size_t)from * ld, *right = panel->work + (size_t)middle * ld;
    double *l = panel->top + (size_t)from * (width + 1), *u = panel->top + (size_t)from + (size_t)middle * width;
    panel_recurse(f, from, half);
    blas_solve_lower(half, rest, l, width, u, width);
    const int start = panel->skip ? middle : 0;
    blas_multiply(panel->rows - start, rest, half, -1, left + start, ld, u, width, 1, right + start, ld);
    panel_recurse(f, middle, rest);
}

/* Factors the panel out of the matrix, whose triangle U gets the top block. By all processes of its column of the grid. */
static inline int panel_factor(Panel *panel, Matrix *m) {
    const size_t width = (size_t)panel->width, length = PIVOT_HEAD + 2 * width;
    double *columns = m->a + (size_t)grid_column(m, panel->first) * m->ld + panel->row;
    Factoring f = {panel, m, malloc(length * sizeof(double)), malloc(length * sizeof(double)), MPI_DATATYPE_NULL, MPI_OP_NULL, 0};
    if (!f.mine || !f.best) suite_fail("no memory for a pivot's row");
    if (m->grid->P > 1) {
        pivot_width = panel->width;
        MPI_Type_contiguous((int)length, MPI_DOUBLE, &f.type);
        MPI_Type_commit(&f.type);
        MPI_Op_create(pivot_better, 1, &f.op);
    }
    for (size_t c = 0; c < width; c++)
        memcpy(panel->work + c * panel->ld, columns + c * m->ld, (size_t)panel->rows * sizeof(double));
    panel_recurse(&f, 0, panel->width);
    if (panel->skip)
        for (size_t c = 0; c < width; c++) memcpy(columns + c * m->ld, panel->top + c * width, (c + 1) * sizeof(double));
    if (m->grid->P > 1) {
        MPI_Op_free(&f.op);
        MPI_Type_free(&f.type);
    }
    free(f.mine);
    free(f.best);
    return f.singular;
}

/* The panel goes along the rows of the grid as a ring, whole, and is asked for before it is there. */
static inline void panel_expect(Panel *panel, const Grid *grid) {
    MPI_Wait(&panel->send, MPI_STATUS_IGNORE);
    if (grid->q != panel->root)
        MPI_Irecv(panel->memory, (int)panel->length, MPI_DOUBLE, (grid->q + grid->Q - 1) % grid->Q, PANEL_TAG, grid->row, &panel->receive);
}

static inline void panel_pass(Panel *panel, const Grid *grid) {
    int next = (grid->q + 1) % grid->Q;
    if (next != panel->root)
        MPI_Isend(panel->memory, (int)panel->length, MPI_DOUBLE, next, PANEL_TAG, grid->row, &panel->send);
}

/* Tests whether the panel has come, and passes it on. */
static inline void panel_poll(Panel *panel, const Grid *grid, int wait) {
    if (panel->receive != MPI_REQUEST_NULL) {
        int there = 1;
        if (wait) MPI_Wait(&panel->receive, MPI_STATUS_IGNORE);
        else MPI_Test(&panel->receive, &there, MPI_STATUS_IGNORE);
        if (there) panel_pass(panel, grid);
    } else if (panel->send != MPI_REQUEST_NULL && !wait) {
        int sent;
        MPI_Test(&panel->send, &sent, MPI_STATUS_IGNORE);
    }
}

static inline void panel_free(Panel *panel) {
    MPI_Wait(&panel->send, MPI_STATUS_IGNORE);
    free(panel->memory);
}
#endif
