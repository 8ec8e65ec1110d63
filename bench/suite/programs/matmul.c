/*
 * Parallel matrix multiply C = A B of block scattered matrices: for each block of the inner dimension, its columns of A go
 * along the rows of the grid and its rows of B along the columns, and every rank multiplies. With the library's DGEMM and
 * with compiled loops, as ASCI Red's table compares them. The elements are small integers, so that C times a vector can be
 * compared exactly with A times (B times the vector).
 *   matmul [-N 300,1200] [-NB 64] [-ms 300]
 */
#include "blas.h"
#include "grid.h"

enum { N, NB, MS, COMPILED, OPTIONS };

static long orders[SUITE_LIST];

static SuiteOption options[OPTIONS] = {
    [N] = {"-N", "orders, separated by commas", 300, 1, 100000, orders, 0},
    [NB] = {"-NB", "block size", 64, 1, 4096, NULL, 0},
    [MS] = {"-ms", "milliseconds to measure for", 300, 1, 600000, NULL, 0},
    [COMPILED] = {"-compiled", "largest order for the compiled loops", 600, 0, 100000, NULL, 0},
};

static double a_value(int i, int j) { return (i * 3 + j * 7) % 11 - 5; }
static double b_value(int i, int j) { return (i * 5 + j * 2) % 13 - 6; }

static void compiled(int m, int n, int k, double alpha, const double *a, size_t lda, const double *b, size_t ldb, double beta, double *c,
                     size_t ldc) {
    for (int j = 0; j < n; j++) {
        double *restrict column = c + (size_t)j * ldc;
        for (int i = 0; i < m; i++) column[i] *= beta;
        for (int l = 0; l < k; l++) {
            const double *restrict left = a + (size_t)l * lda, factor = alpha * b[(size_t)l + (size_t)j * ldb];
            for (int i = 0; i < m; i++) column[i] += left[i] * factor;
        }
    }
}

typedef void Multiply(int, int, int, double, const double *, size_t, const double *, size_t, double, double *, size_t);

/* Local parts, stored by columns without gaps; and the blocks on their way. */
typedef struct {
    const Grid *grid;
    int n, nb, rows, columns;
    double *a, *b, *c, *left, *right;
} Product;

static void multiply(Product *m, Multiply *kernel) {
    const Grid *g = m->grid;
    memset(m->c, 0, (size_t)m->rows * (size_t)m->columns * sizeof(double));
    for (int first = 0; first < m->n; first += m->nb) {
        const int width = m->n - first < m->nb ? m->n - first : m->nb;
        const int q = grid_owner(first, m->nb, g->Q), p = grid_owner(first, m->nb, g->P);
        double *left = g->q == q ? m->a + (size_t)grid_local(first, m->nb, g->Q) * (size_t)m->rows : m->left;
        MPI_Bcast(left, m->rows * width, MPI_DOUBLE, q, g->row);
        if (g->p == p)
            for (int j = 0; j < m->columns; j++)
                memcpy(m->right + (size_t)j * (size_t)width, m->b + (size_t)j * (size_t)m->rows + grid_local(first, m->nb, g->P),
                       (size_t)width * sizeof(double));
        MPI_Bcast(m->right, m->columns * width, MPI_DOUBLE, p, g->column);
        if (m->rows > 0 && m->columns > 0)
            kernel(m->rows, m->columns, width, 1, left, (size_t)m->rows, m->right, (size_t)width, 1, m->c, (size_t)m->rows);
    }
}

/* Elements in which C v differs from A (B v). */
static double wrong(const Product *m) {
    const Grid *g = m->grid;
    double *sums = suite_memory((size_t)(m->rows + 1) * sizeof(double)), *whole = suite_memory((size_t)(m->rows + 1) * sizeof(double));
    double *bv = suite_memory((size_t)m->n * sizeof(double)), count = 0, all;
    for (int i = 0; i < m->n; i++) {
        bv[i] = 0;
        for (int j = 0; j < m->n; j++) bv[i] += b_value(i, j) * (j % 5 - 2);
    }
    for (int i = 0; i < m->rows; i++) {
        sums[i] = 0;
        for (int j = 0; j < m->columns; j++) sums[i] += m->c[(size_t)i + (size_t)j * (size_t)m->rows] * (grid_global(j, m->nb, g->q, g->Q) % 5 - 2);
    }
    MPI_Allreduce(sums, whole, m->rows, MPI_DOUBLE, MPI_SUM, g->row);
    for (int i = 0; i < m->rows; i++) {
        const int global = grid_global(i, m->nb, g->p, g->P);
        double expected = 0;
        for (int j = 0; j < m->n; j++) expected += a_value(global, j) * bv[j];
        count += whole[i] != expected;
    }
    MPI_Allreduce(&count, &all, 1, MPI_DOUBLE, MPI_SUM, g->all);
    free(sums);
    free(whole);
    free(bv);
    return all;
}

static void measure(Product *m, const char *kind, Multiply *kernel) {
    enum { MOST = 400 };
    double rates[MOST], best = 0, spent = 0;
    int count = 0, more = 1;
    char name[64];
    multiply(m, kernel);
    snprintf(name, sizeof name, "%s.N%d", kind, m->n);
    suite_check(name, wrong(m), 0);
    while (more) {
        MPI_Barrier(m->grid->all);
        double start = MPI_Wtime(), slowest;
        multiply(m, kernel);
        double seconds = MPI_Wtime() - start;
        MPI_Allreduce(&seconds, &slowest, 1, MPI_DOUBLE, MPI_MAX, m->grid->all);
        spent += slowest;
        rates[count] = 2.0 * m->n * m->n * m->n / slowest * 1e-6 / suite_ranks;
        if (rates[count] > best) best = rates[count];
        count++;
        more = count < MOST && (count < 3 || spent * 1000 < (double)options[MS].value);
        MPI_Bcast(&more, 1, MPI_INT, 0, m->grid->all);
    }
    suite_figure(name, "MFLOPS/rank", best, suite_noise(rates, count));
}

int main(int argc, char **argv) {
    suite_start(&argc, &argv, "matmul", options, OPTIONS);
    blas_open(1);
    Grid grid;
    int rows = 1;
    for (int r = 1; r * r <= suite_ranks; r++)
        if (suite_ranks % r == 0) rows = r;
    grid_make(&grid, rows, suite_ranks / rows);
    for (int order = 0; order < options[N].count; order++) {
        Product m = {.grid = &grid, .n = (int)orders[order], .nb = (int)options[NB].value};
        m.rows = grid_owned(m.n, m.nb, grid.p, grid.P);
        m.columns = grid_owned(m.n, m.nb, grid.q, grid.Q);
        const size_t size = (size_t)m.rows * (size_t)m.columns + 1, nb = (size_t)m.nb;
        m.a = suite_memory(size * sizeof(double));
        m.b = suite_memory(size * sizeof(double));
        m.c = suite_memory(size * sizeof(double));
        m.left = suite_memory((size_t)(m.rows + 1) * nb * sizeof(double));
        m.right = suite_memory((size_t)(m.columns + 1) * nb * sizeof(double));
        for (int j = 0; j < m.columns; j++)
            for (int i = 0; i < m.rows; i++) {
                const int row = grid_global(i, m.nb, grid.p, grid.P), column = grid_global(j, m.nb, grid.q, grid.Q);
                m.a[(size_t)i + (size_t)j * (size_t)m.rows] = a_value(row, column);
                m.b[(size_t)i + (size_t)j * (size_t)m.rows] = b_value(row, column);
            }
        measure(&m, "library", blas_multiply);
        if (m.n <= options[COMPILED].value) measure(&m, "compiled", compiled);
        double *parts[] = {m.a, m.b, m.c, m.left, m.right};
        for (size_t n = 0; n < sizeof parts / sizeof parts[0]; n++) free(parts[n]);
    }
    grid_free(&grid);
    return suite_end();
}
