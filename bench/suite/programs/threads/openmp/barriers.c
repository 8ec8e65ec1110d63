/*
 * One region with a loop of small work between barriers, as of iterative solvers and stencils: each sweep takes some microseconds. By
 * explicit barriers, where each member has its own part of the grid, and by those at the end of loops. The figures are for a sweep.
 */
#include "../kernels.h"

enum { CELLS = 4096, SWEEPS = 60 };

static double grid[2][CELLS], original[CELLS], expected[2][CELLS];

static inline void __attribute__((always_inline)) cell(int sweep, long i) {
    const double *from = grid[sweep & 1];
    double *to = grid[~sweep & 1];
    to[i] = 0.25 * from[i > 0 ? i - 1 : CELLS - 1] + 0.5 * from[i] + 0.25 * from[i < CELLS - 1 ? i + 1 : 0];
}

static void sequential(void) {
    for (int sweep = 0; sweep < SWEEPS; sweep++)
        for (long i = 0; i < CELLS; i++) cell(sweep, i);
}

static void by_barriers(void) {
#pragma omp parallel num_threads(threads)
    {
#ifdef _OPENMP
        const long me = omp_get_thread_num(), all = omp_get_num_threads();
#else
        const long me = 0, all = 1;
#endif
        for (int sweep = 0; sweep < SWEEPS; sweep++) {
            for (long i = me * CELLS / all; i < (me + 1) * CELLS / all; i++) cell(sweep, i);
#pragma omp barrier
        }
    }
}

static void by_loops(void) {
#pragma omp parallel num_threads(threads)
    for (int sweep = 0; sweep < SWEEPS; sweep++) {
#pragma omp for schedule(static)
        for (long i = 0; i < CELLS; i++) cell(sweep, i);
    }
}

static void prepare(void) {
    memset(grid, 0, sizeof grid);
    memcpy(grid[0], original, sizeof original);
}

static long wrong(void) { return kernels_differ(grid, expected, sizeof grid); }

int main(int argc, char **argv) {
    threads_start(argc, argv, "barriers", openmp_symbol);
    kernels_fill(original, CELLS, 1);
    prepare();
    sequential();
    memcpy(expected, grid, sizeof grid);
    threads_measure("barrier", "us", 1e6 / SWEEPS, prepare, by_barriers, wrong);
    threads_measure("loop", "us", 1e6 / SWEEPS, prepare, by_loops, wrong);
    return suite_failed;
}
