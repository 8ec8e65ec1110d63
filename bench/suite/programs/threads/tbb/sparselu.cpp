// Sparse LU factorization by a group of oneTBB's tasks, which one thread makes.
#include <tbb/task_group.h>

#include "../sparselu.h"
#include "../tbb.h"

static void body() {
    tbb::task_group tasks;
    for (int k = 0; k < SPARSELU_BLOCKS; k++) {
        sparselu_factor(sparselu[k][k]);
        for (int j = k + 1; j < SPARSELU_BLOCKS; j++)
            if (sparselu[k][j]) tasks.run([=] { sparselu_forward(sparselu[k][k], sparselu[k][j]); });
        for (int i = k + 1; i < SPARSELU_BLOCKS; i++)
            if (sparselu[i][k]) tasks.run([=] { sparselu_divide(sparselu[k][k], sparselu[i][k]); });
        tasks.wait();
        for (int i = k + 1; i < SPARSELU_BLOCKS; i++)
            for (int j = k + 1; j < SPARSELU_BLOCKS; j++)
                if (sparselu[i][k] && sparselu[k][j])
                    tasks.run([=] { sparselu_update(sparselu[i][k], sparselu[k][j], &sparselu[i][j]); });
        tasks.wait();
    }
}

int main(int argc, char **argv) {
    threads_start(argc, argv, "sparselu", tbb_symbol);
    sparselu_expect();
    tbb_measure("tasks", "ms", 1e3, sparselu_prepare, body, sparselu_wrong);
    return suite_failed;
}
