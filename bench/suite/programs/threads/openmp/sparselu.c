/* Sparse LU factorization by OpenMP's tasks, which one thread makes. */
#include "../sparselu.h"
#include "../openmp.h"

static void body(void) {
#pragma omp parallel num_threads(threads)
#pragma omp single
    for (int k = 0; k < SPARSELU_BLOCKS; k++) {
        sparselu_factor(sparselu[k][k]);
        for (int j = k + 1; j < SPARSELU_BLOCKS; j++)
            if (sparselu[k][j]) {
#pragma omp task
                sparselu_forward(sparselu[k][k], sparselu[k][j]);
            }
        for (int i = k + 1; i < SPARSELU_BLOCKS; i++)
            if (sparselu[i][k]) {
#pragma omp task
                sparselu_divide(sparselu[k][k], sparselu[i][k]);
            }
#pragma omp taskwait
        for (int i = k + 1; i < SPARSELU_BLOCKS; i++)
            for (int j = k + 1; j < SPARSELU_BLOCKS; j++)
                if (sparselu[i][k] && sparselu[k][j]) {
#pragma omp task
                    sparselu_update(sparselu[i][k], sparselu[k][j], &sparselu[i][j]);
                }
#pragma omp taskwait
    }
}

int main(int argc, char **argv) {
    threads_start(argc, argv, "sparselu", openmp_symbol);
    sparselu_expect();
    threads_measure("tasks", "ms", 1e3, sparselu_prepare, body, sparselu_wrong);
    return suite_failed;
}
