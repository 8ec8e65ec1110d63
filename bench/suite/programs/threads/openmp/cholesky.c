/* Cholesky factorization by OpenMP's tasks with dependences. */
#include "../cholesky.h"
#include "../openmp.h"

static void body(void) {
#pragma omp parallel num_threads(threads)
#pragma omp single
    for (int k = 0; k < CHOLESKY_TILES; k++) {
#pragma omp task depend(inout : cholesky[k][k])
        cholesky_factor(cholesky[k][k]);
        for (int i = k + 1; i < CHOLESKY_TILES; i++) {
#pragma omp task depend(in : cholesky[k][k]) depend(inout : cholesky[i][k])
            cholesky_solve(cholesky[k][k], cholesky[i][k]);
        }
        for (int i = k + 1; i < CHOLESKY_TILES; i++)
            for (int j = k + 1; j <= i; j++) {
#pragma omp task depend(in : cholesky[i][k], cholesky[j][k]) depend(inout : cholesky[i][j])
                cholesky_update(cholesky[i][k], cholesky[j][k], cholesky[i][j]);
            }
    }
}

int main(int argc, char **argv) {
    threads_start(argc, argv, "cholesky", openmp_symbol);
    cholesky_expect();
    threads_measure("tasks", "ms", 1e3, cholesky_prepare, body, cholesky_wrong);
    return suite_failed;
}
