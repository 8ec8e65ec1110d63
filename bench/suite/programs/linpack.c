/*
 * MP LINPACK: solves a dense system of N equations by LU with row pivoting on a P by Q grid of ranks.
 *   linpack -N 8000 -NB 256 -P 1 -Q 2      one size; -N and -NB also take lists: 1000,2000
 *   linpack -N 8000 -half                  also N1/2, the smallest order with half of that rate
 * The matrix is that of ScaLAPACK's pdmatgen, generated again for the residuals. Reported are the rate by 2/3 N^3 + 3/2 N^2
 * operations, its part of the rate of DGEMM on all ranks at once, all norms, and the four scaled residuals in use: HPL's
 * |Ax-b|oo / (eps (|A|oo |x|oo + |b|oo) N), and LINPACK's |Ax-b|oo / (eps |A|1 N), / (eps |A|1 |x|1), / (eps |A|oo |x|oo N).
 */
#include "lu.h"
#include "matgen.h"

enum { N, NB, P, Q, THREADS, REPEAT, HALF, ORDER, VERBOSE, OPTIONS };

static long orders[SUITE_LIST], blocks[SUITE_LIST];

static SuiteOption options[OPTIONS] = {
    [N] = {"-N", "orders of the matrix, separated by commas", 2000, 1, 1000000, orders, 0},
    [NB] = {"-NB", "block sizes, separated by commas", 256, 1, 4096, blocks, 0},
    [P] = {"-P", "rows of the grid of ranks; 0: chosen", 0, 0, 1000000, NULL, 0},
    [Q] = {"-Q", "columns of the grid; 0: chosen", 0, 0, 1000000, NULL, 0},
    [THREADS] = {"-threads", "threads of each rank inside BLAS", 1, 1, 4096, NULL, 0},
    [REPEAT] = {"-repeat", "runs of each size; the best counts", 1, 1, 100, NULL, 0},
    [HALF] = {"-half", "find N1/2 for the rate at the last order", 0, 0, 1, NULL, 0},
    [ORDER] = {"-gemm", "order of the DGEMM to compare with; 0: none", 1536, 0, 20000, NULL, 0},
    [VERBOSE] = {"-norms", "report the norms", 0, 0, 1, NULL, 0},
};

static const double LIMIT = 16;
static const double EPSILON = 1.1102230246251565e-16; /* 2^-53, the largest relative error of one rounding */

static void fill(Matrix *m) {
    const Grid *g = m->grid;
    const uint64_t rows = (uint64_t)m->n;
    for (int c = 0; c < m->columns; c++) {
        const int global = grid_global(c, m->nb, g->q, g->Q), right = global == m->n;
        matgen_column(right ? MATGEN_SEED_RIGHT : MATGEN_SEED_MATRIX, rows, right ? 0 : (uint64_t)global, m->nb, g->p, g->P, m->rows,
                      m->a + (size_t)c * m->ld);
    }
}

/* Compares what was generated with the stream, walked from its start as one process would. Gives the elements that differ. */
static double wrong_elements(const Matrix *m) {
    const Grid *g = m->grid;
    double wrong = 0, all;
    for (int part = 0; part < 2; part++) {
        uint32_t state = part ? MATGEN_SEED_RIGHT : MATGEN_SEED_MATRIX;
        for (int j = part ? m->n : 0; j < m->n + part; j++)
            for (int i = 0; i < m->n; i++) {
                state = (uint32_t)((1103515245ull * state + 12345) % 2147483648ull);
                if (grid_owner(i, m->nb, g->P) != g->p || grid_owner(j, m->nb, g->Q) != g->q) continue;
                size_t at = (size_t)grid_local(i, m->nb, g->P) + (size_t)grid_local(j, m->nb, g->Q) * m->ld;
                wrong += m->a[at] != 1 - 2 * (state / 2147483648.0);
            }
    }
    MPI_Allreduce(&wrong, &all, 1, MPI_DOUBLE, MPI_SUM, g->all);
    return all;
}

static double largest(const double *values, int count) {
    double most = 0;
    for (int n = 0; n < count; n++)
        if (!(fabs(values[n]) <= most)) most = fabs(values[n]);
    return most;
}

static double total(const double *values, int count) {
    double sum = 0;
    for (int n = 0; n < count; n++) sum += fabs(values[n]);
    return sum;
}

static double combine(double value, MPI_Op op, MPI_Comm comm) {
    double all;
    MPI_Allreduce(&value, &all, 1, MPI_DOUBLE, op, comm);
    return all;
}

/* Generates the matrix again and checks `x`, the local columns' part of the solution. */
static void residuals(Matrix *m, const double *x, const char *name) {
    const Grid *g = m->grid;
    const int own = grid_column(m, m->n), rows = m->rows;
    fill(m);
    double *partial = suite_memory(((size_t)rows * 2 + (size_t)own + 1) * sizeof(double)), *sums = partial + rows;
    double *columns = sums + rows, *whole = suite_memory(((size_t)rows * 2 + (size_t)own + 1) * sizeof(double));
    for (int i = 0; i < 2 * rows; i++) partial[i] = 0;
    for (int c = 0; c < own; c++) {
        const double *a = m->a + (size_t)c * m->ld;
        double sum = 0;
        for (int i = 0; i < rows; i++) {
            partial[i] += a[i] * x[c];
            sums[i] += fabs(a[i]);
            sum += fabs(a[i]);
        }
        columns[c] = sum;
    }
    MPI_Allreduce(partial, whole, 2 * rows, MPI_DOUBLE, MPI_SUM, g->row);
    MPI_Allreduce(columns, whole + 2 * rows, own, MPI_DOUBLE, MPI_SUM, g->column);
    const int home = grid_owner(m->n, m->nb, g->Q);
    double *b = partial;
    if (g->q == home) memcpy(b, m->a + (size_t)own * m->ld, (size_t)rows * sizeof(double));
    MPI_Bcast(b, rows, MPI_DOUBLE, home, g->row);
    for (int i = 0; i < rows; i++) whole[i] -= b[i];
    const double a_max = combine(largest(whole + rows, rows), MPI_MAX, g->all);
    const double a_one = combine(largest(whole + 2 * rows, own), MPI_MAX, g->all);
    const double x_max = combine(largest(x, own), MPI_MAX, g->all), x_one = combine(total(x, own), MPI_SUM, g->row);
    const double b_max = combine(largest(b, rows), MPI_MAX, g->all), b_one = combine(total(b, rows), MPI_SUM, g->column);
    const double r_max = combine(largest(whole, rows), MPI_MAX, g->all), r_one = combine(total(whole, rows), MPI_SUM, g->column);
    if (options[VERBOSE].value) {
        suite_note("%s: |A|oo %.9g |A|1 %.9g |x|oo %.9g |x|1 %.9g", name, a_max, a_one, x_max, x_one);
        suite_note("%s: |b|oo %.9g |b|1 %.9g |Ax-b|oo %.9g |Ax-b|1 %.9g", name, b_max, b_one, r_max, r_one);
    }
    char check[96];
    const double scaled[4] = {r_max / (EPSILON * (a_max * x_max + b_max) * m->n), r_max / (EPSILON * a_one * m->n),
                              r_max / (EPSILON * a_one * x_one), r_max / (EPSILON * a_max * x_max * m->n)};
    static const char *const kinds[4] = {"hpl", "order", "one-norm", "max-norm"};
    for (int n = 0; n < 4; n++) {
        snprintf(check, sizeof check, "%s.residual-%s", name, kinds[n]);
        suite_check(check, scaled[n], LIMIT);
    }
    free(partial);
    free(whole);
}

/* One system: seconds of factoring and solving on the slowest rank. */
static double run(const Grid *grid, int n, int nb, int check) {
    Matrix m = {.grid = grid, .n = n, .nb = nb};
    m.rows = grid_row(&m, n);
    m.columns = grid_column(&m, n + 1);
    m.ld = grid_leading(m.rows > 0 ? m.rows : 1);
    m.a = suite_memory(m.ld * (size_t)(m.columns > 0 ? m.columns : 1) * sizeof(double));
    double *x = suite_memory((size_t)(m.columns + 1) * sizeof(double));
    char name[64];
    snprintf(name, sizeof name, "N%d.NB%d", n, nb);
    fill(&m);
    if (check && n <= 300) {
        char generator[80];
        snprintf(generator, sizeof generator, "%s.generator", name);
        suite_check(generator, wrong_elements(&m), 0);
    }
    MPI_Barrier(grid->all);
    double start = MPI_Wtime();
    int singular = lu_factor(&m);
    if (!singular) lu_solve(&m, x);
    double seconds = combine(MPI_Wtime() - start, MPI_MAX, grid->all);
    if (singular) {
        suite_note("%s: the matrix is singular", name);
        suite_check(name, 1, 0);
    } else if (check) {
        residuals(&m, x, name);
    }
    free(x);
    free(m.a);
    return seconds;
}

static double gflops(double n, double seconds) { return (2.0 / 3 * n * n * n + 1.5 * n * n) / seconds * 1e-9; }

/* DGEMM on all ranks at once: the sum of the ranks' best rates. */
static double multiply_rate(const Grid *grid, int n) {
    const size_t size = (size_t)n * (size_t)n;
    double *a = suite_memory(3 * size * sizeof(double)), *b = a + size, *c = b + size, best = 0;
    for (size_t i = 0; i < 3 * size; i++) a[i] = (double)(i % 17) - 8;
    for (int round = 0; round < 6; round++) {
        MPI_Barrier(grid->all);
        double start = MPI_Wtime();
        blas_multiply(n, n, n, -1, a, (size_t)n, b, (size_t)n, 1, c, (size_t)n);
        double rate = 2.0 * n * n * n / (MPI_Wtime() - start) * 1e-9;
        if (rate > best) best = rate;
    }
    free(a);
    return combine(best, MPI_SUM, grid->all);
}

/* Smallest order, to 100 or a fiftieth, with at least half of `rate`; 0 when even 100 has it. */
static int half_order(const Grid *grid, int most, int nb, double rate) {
    int below = 0, above = most;
    for (int n = 100; n < most; n *= 2) {
        double reached = 0;
        for (int round = 0; round < 3; round++) {
            double now = gflops(n, run(grid, n, nb, 0));
            if (now > reached) reached = now;
        }
        if (reached >= rate / 2) {
            above = n;
            break;
        }
        below = n;
    }
    while (above - below > 100 && above - below > above / 50) {
        int n = (below + above) / 200 * 100;
        if (n <= below || n >= above) break;
        double reached = 0;
        for (int round = 0; round < 3; round++) {
            double now = gflops(n, run(grid, n, nb, 0));
            if (now > reached) reached = now;
        }
        if (reached >= rate / 2) above = n;
        else below = n;
    }
    return above;
}

/* All sizes; the best rate of a size counts. */
static void sizes(const Grid *grid) {
    double rates[100], peak = 0, best_rate = 0, last_rate = 0;
    int best_order = 0, last_block = (int)blocks[0];
    if (options[ORDER].value) {
        peak = multiply_rate(grid, (int)options[ORDER].value);
        suite_figure("dgemm", "GFLOPS", peak, -1);
    }
    for (int n = 0; n < options[N].count; n++)
        for (int b = 0; b < options[NB].count; b++) {
            const int order = (int)orders[n], repeat = (int)options[REPEAT].value;
            char name[64];
            double rate = 0;
            for (int r = 0; r < repeat; r++) {
                rates[r] = gflops(order, run(grid, order, (int)blocks[b], r == 0));
                if (rates[r] > rate) rate = rates[r];
            }
            snprintf(name, sizeof name, "N%d.NB%ld", order, blocks[b]);
            suite_figure(name, "GFLOPS", rate, suite_noise(rates, repeat));
            last_rate = rate;
            last_block = (int)blocks[b];
            if (rate <= best_rate) continue;
            best_rate = rate;
            best_order = order;
        }
    suite_figure("rmax", "GFLOPS", best_rate, -1);
    suite_figure("nmax", "order", best_order, -1);
    if (peak > 0) suite_figure("dgemm-part", "percent", 100 * best_rate / peak, -1);
    if (options[HALF].value) {
        int half = half_order(grid, (int)orders[options[N].count - 1], last_block, last_rate);
        suite_figure("n-half", "order", half, -1);
    }
}

int main(int argc, char **argv) {
    suite_start(&argc, &argv, "linpack", options, OPTIONS);
    int rows = (int)options[P].value, columns = (int)options[Q].value;
    if (rows == 0 && columns == 0)
        for (rows = 1; rows * rows <= suite_ranks; rows++)
            if (suite_ranks % rows == 0 && rows * rows <= suite_ranks) columns = rows;
    if (options[P].value == 0 && options[Q].value == 0) {
        rows = columns;
        columns = suite_ranks / rows;
    } else if (rows == 0) {
        rows = suite_ranks / columns;
    } else if (columns == 0) {
        columns = suite_ranks / rows;
    }
    if (rows < 1 || columns < 1 || (long)rows * columns > suite_ranks)
        suite_misused("a grid of %d by %d needs more than %d rank%s", rows, columns, suite_ranks, suite_ranks == 1 ? "" : "s");
    blas_open((int)options[THREADS].value);
    Grid grid;
    if (grid_make(&grid, rows, columns)) {
        suite_note("grid: %d by %d", rows, columns);
        sizes(&grid);
        grid_free(&grid);
    }
    return suite_end();
}
