/*
 * A grid of P by Q processes, and a matrix in blocks of nb by nb that are scattered over it: block (I, J) lies on process
 * (I mod P, J mod Q). Ranks are numbered along the rows of the grid.
 */
#ifndef GRID_H
#define GRID_H
#include "suite.h"

typedef struct {
    MPI_Comm all;         /* the P*Q ranks that take part */
    MPI_Comm row, column; /* of the grid: ranks are q and p */
    int P, Q, p, q;
} Grid;

/* How many of the first `n` indices process `me` of `processes` has; the local index of the first one at or after n. */
static inline int grid_owned(int n, int nb, int me, int processes) {
    int blocks = n / nb, count = blocks / processes * nb, more = blocks % processes;
    return count + (me < more ? nb : me == more ? n % nb : 0);
}

static inline int grid_owner(int global, int nb, int processes) { return global / nb % processes; }
static inline int grid_local(int global, int nb, int processes) { return global / nb / processes * nb + global % nb; }
static inline int grid_global(int local, int nb, int me, int processes) { return (local / nb * processes + me) * nb + local % nb; }

/* False on the ranks that are left over. Collective. */
static inline int grid_make(Grid *grid, int P, int Q) {
    grid->P = P;
    grid->Q = Q;
    grid->p = suite_rank / Q;
    grid->q = suite_rank % Q;
    int takes_part = suite_rank < P * Q;
    MPI_Comm_split(MPI_COMM_WORLD, takes_part ? 0 : MPI_UNDEFINED, suite_rank, &grid->all);
    if (!takes_part) return 0;
    MPI_Comm_split(grid->all, grid->p, grid->q, &grid->row);
    MPI_Comm_split(grid->all, grid->q, grid->p, &grid->column);
    return 1;
}

static inline void grid_free(Grid *grid) {
    MPI_Comm_free(&grid->row);
    MPI_Comm_free(&grid->column);
    MPI_Comm_free(&grid->all);
}

/* The local part of an n by n matrix with the right-hand side as column n, stored by columns. */
typedef struct {
    const Grid *grid;
    int n, nb, rows, columns;
    size_t ld;
    double *a;
} Matrix;

/* A leading dimension that keeps columns at cache lines but not at distances that fall into the same sets. */
static inline size_t grid_leading(int rows) {
    size_t ld = ((size_t)rows + 7) / 8 * 8;
    return ld % 128 == 0 ? ld + 8 : ld;
}

static inline int grid_column(const Matrix *m, int global) { return grid_owned(global, m->nb, m->grid->q, m->grid->Q); }
static inline int grid_row(const Matrix *m, int global) { return grid_owned(global, m->nb, m->grid->p, m->grid->P); }
#endif
