/*
 * Teams of two levels, as of a program by domains whose solver is parallel, too: two members, and inside of each a team of half of the
 * threads, which meets in the barriers of some loops. With one thread both teams have one. The figure is for an inner region.
 */
#include "../kernels.h"

enum { DOMAINS = 2, CELLS = 3000, SWEEPS = 4, STEPS = 10 };

static double grid[DOMAINS][2][CELLS], original[DOMAINS][CELLS], expected[DOMAINS][2][CELLS];

static inline void __attribute__((always_inline)) cell(int domain, int sweep, long i) {
    const double *from = grid[domain][sweep & 1];
    grid[domain][~sweep & 1][i] = 0.3 * from[i > 0 ? i - 1 : CELLS - 1] + 0.4 * from[i] + 0.3 * from[i < CELLS - 1 ? i + 1 : 0];
}

static void __attribute__((noinline)) exchange(void) {
    const double left = grid[0][0][CELLS - 1];
    grid[0][0][CELLS - 1] = grid[1][0][0];
    grid[1][0][0] = left;
}

static void sequential(void) {
    for (int step = 0; step < STEPS; step++) {
        for (int domain = 0; domain < DOMAINS; domain++)
            for (int sweep = 0; sweep < SWEEPS; sweep++)
                for (long i = 0; i < CELLS; i++) cell(domain, sweep, i);
        exchange();
    }
}

static void body(void) {
#ifdef _OPENMP
    const int outer = threads > 1 ? DOMAINS : 1, inner = threads > 1 ? threads / 2 : 1;
#endif
#pragma omp parallel num_threads(outer)
    for (int step = 0; step < STEPS; step++) {
#pragma omp for schedule(static, 1)
        for (int domain = 0; domain < DOMAINS; domain++) {
#pragma omp parallel num_threads(inner)
            for (int sweep = 0; sweep < SWEEPS; sweep++) {
#pragma omp for schedule(static)
                for (long i = 0; i < CELLS; i++) cell(domain, sweep, i);
            }
        }
#pragma omp single
        exchange();
    }
}

static void prepare(void) {
    memset(grid, 0, sizeof grid);
    for (int domain = 0; domain < DOMAINS; domain++) memcpy(grid[domain][0], original[domain], sizeof original[domain]);
}

static long wrong(void) { return kernels_differ(grid, expected, sizeof grid); }

int main(int argc, char **argv) {
    threads_start(argc, argv, "nested", openmp_symbol);
    kernels_fill(&original[0][0], DOMAINS * CELLS, 1);
    prepare();
    sequential();
    memcpy(expected, grid, sizeof grid);
    threads_measure("region", "us", 1e6 / (DOMAINS * STEPS), prepare, body, wrong);
    return suite_failed;
}
