/* Unbalanced tree search by OpenMP's tasks. */
#include "../uts.h"
#include "../openmp.h"

static long walk(uint64_t state, int children) {
    long nodes[UTS_CHILDREN], sum = 1;
    for (int n = 0; n < children; n++) {
#pragma omp task shared(nodes) firstprivate(n, state)
        {
            const uint64_t child = uts_child(state, n);
            nodes[n] = walk(child, uts_children(child));
        }
    }
#pragma omp taskwait
    for (int n = 0; n < children; n++) sum += nodes[n];
    return sum;
}

static void body(void) {
    static long nodes[UTS_ROOTS];
#pragma omp parallel num_threads(threads)
#pragma omp single
    for (int n = 0; n < UTS_ROOTS; n++) {
#pragma omp task firstprivate(n)
        {
            const uint64_t child = uts_child(0, n);
            nodes[n] = walk(child, uts_children(child));
        }
    }
    uts_nodes = 1;
    for (int n = 0; n < UTS_ROOTS; n++) uts_nodes += nodes[n];
}

int main(int argc, char **argv) {
    threads_start(argc, argv, "uts", openmp_symbol);
    uts_expect();
    threads_measure("node", "ns", 1e9 / (double)uts_expected, uts_prepare, body, uts_wrong);
    return suite_failed;
}
