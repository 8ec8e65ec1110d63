/*
 * LU by the library's own LAPACK in one process, to compare MP LINPACK with: dgetrf and dgetrs on the same matrix, with all
 * threads that it is given.
 *   getrf -N 8000 -threads 2
 */
#include "blas.h"
#include "grid.h"
#include "matgen.h"

enum { N, THREADS, REPEAT, OPTIONS };

static SuiteOption options[OPTIONS] = {
    [N] = {"-N", "order of the matrix", 2000, 1, 1000000, NULL, 0},
    [THREADS] = {"-threads", "threads of the library", 1, 1, 4096, NULL, 0},
    [REPEAT] = {"-repeat", "runs; the best counts", 1, 1, 100, NULL, 0},
};

int main(int argc, char **argv) {
    suite_start(&argc, &argv, "getrf", options, OPTIONS);
    if (suite_ranks != 1) suite_misused("runs on one rank");
    blas_open((int)options[THREADS].value);
    const int n = (int)options[N].value, one = 1, repeat = (int)options[REPEAT].value, ld = (int)grid_leading(n);
    if (!blas.getrf) {
        suite_note("%s has no LAPACK, so no LU to compare with", blas.name);
        return suite_end();
    }
    double *a = suite_memory((size_t)n * (size_t)ld * sizeof(double)), *x = suite_memory((size_t)n * sizeof(double));
    double rates[100], best = 0, difference = 0;
    int *pivots = suite_memory((size_t)n * sizeof(int)), info;
    for (int run = 0; run < repeat; run++) {
        for (int j = 0; j < n; j++) matgen_column(MATGEN_SEED_MATRIX, (uint64_t)n, (uint64_t)j, n, 0, 1, n, a + (size_t)j * (size_t)ld);
        for (int i = 0; i < n; i++) x[i] = 0;
        for (int j = 0; j < n; j++)
            for (int i = 0; i < n; i++) x[i] += a[(size_t)i + (size_t)j * (size_t)ld];
        double start = MPI_Wtime();
        blas.getrf(&n, &n, a, &ld, pivots, &info);
        for (int i = 0; i < n; i++) {
            double value = x[i];
            x[i] = x[pivots[i] - 1];
            x[pivots[i] - 1] = value;
        }
        blas.trsv("L", "N", "U", &n, a, &ld, x, &one);
        blas.trsv("U", "N", "N", &n, a, &ld, x, &one);
        double seconds = MPI_Wtime() - start;
        if (info != 0) suite_fail("dgetrf ended with %d", info);
        rates[run] = (2.0 / 3 * n * (double)n * n + 1.5 * n * (double)n) / seconds * 1e-9;
        if (rates[run] > best) best = rates[run];
    }
    /* The right-hand side was the sum of each row, so the solution is 1 everywhere. */
    for (int i = 0; i < n; i++)
        if (!(fabs(x[i] - 1) <= difference)) difference = fabs(x[i] - 1);
    suite_check("solution", difference, 1e-13 * n * n);
    char name[32];
    snprintf(name, sizeof name, "N%d", n);
    suite_figure(name, "GFLOPS", best, suite_noise(rates, repeat));
    return suite_end();
}
