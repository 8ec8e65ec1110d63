/* Heat in a plate of several zones, in the style of NASA Ames' Multi-Level Parallelism: one process for each zone, with
 * loops that OpenMP runs in parallel. The zones lie in the arena, so a process reads the border of its neighbour by
 * plain loads: there are no messages, only a barrier between the steps.
 *
 *     cc -O2 -fopenmp zones.c $(pkg-config --cflags --libs mlp) -lm -o zones
 *     ./zones [ZONES [THREADS [STEPS]]]
 */
#include <math.h>
#include <mlp.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 64, COLS = 256 };

/* A zone's values of this step and of the next. */
typedef double zone[2][ROWS][COLS];

/* The row above the zone's first one, or below its last one: a neighbour's, or the plate's edge. */
static const double *border(zone *all, int zones, int n, int now, int below) {
    static const double cold[COLS];
    static double hot[COLS];
    for (int j = 0; j < COLS; j++) hot[j] = 100.0;
    if (below) return n + 1 < zones ? all[n + 1][now][0] : cold;
    return n > 0 ? all[n - 1][now][ROWS - 1] : hot;
}

int main(int argc, char **argv) {
    int zones = argc > 1 ? atoi(argv[1]) : 2, threads = argc > 2 ? atoi(argv[2]) : 1;
    int steps = argc > 3 ? atoi(argv[3]) : 500;
    int *nthread = calloc(zones > 0 ? (size_t)zones : 1, sizeof *nthread), nowpro = 0;
    for (int n = 0; n < zones; n++) nthread[n] = threads;

    forkit(nthread, zones, &nowpro);
    int n = nowpro - 1;
    zone *all = mlp_alloc("plate", (size_t)zones * sizeof(zone));
    double *sum = mlp_alloc("sum", (size_t)zones * sizeof(double));
    mlp_place("plate", (size_t)n * sizeof(zone), sizeof(zone), nowpro);
    mlp_barrier(); /* all have bound their threads: so says the report */
    if (nowpro == 1) mlp_report();
    mlp_barrier();

    for (int step = 0; step < steps; step++) {
        int now = step % 2, next = 1 - now;
        const double *above = border(all, zones, n, now, 0), *below = border(all, zones, n, now, 1);
        double (*from)[COLS] = all[n][now], (*to)[COLS] = all[n][next];
#pragma omp parallel for schedule(static)
        for (int i = 0; i < ROWS; i++) {
            const double *up = i > 0 ? from[i - 1] : above, *down = i + 1 < ROWS ? from[i + 1] : below;
            for (int j = 0; j < COLS; j++) {
                double left = j > 0 ? from[i][j - 1] : 0.0, right = j + 1 < COLS ? from[i][j + 1] : 0.0;
                to[i][j] = 0.25 * (up[j] + down[j] + left + right);
            }
        }
        mlp_barrier();
    }

    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < COLS; j++) sum[n] += all[n][steps % 2][i][j];
    mlp_barrier();
    if (nowpro == 1) {
        double total = 0.0;
        for (int m = 0; m < zones; m++) total += sum[m];
        printf("%d zones, %d steps: mean %.12f\n", zones, steps, total / zones / ROWS / COLS);
    }
    return 0;
}
