/* Empty parallel regions, by OpenMP. */
#include "../fork.h"
#include "../openmp.h"

static void flat(void) {
#pragma omp parallel num_threads(threads)
    fork_member(omp_get_thread_num());
}

static void nested(void) {
#pragma omp parallel num_threads(threads)
    {
        const long outer = omp_get_thread_num();
#pragma omp parallel num_threads(threads)
        fork_member(outer * threads + omp_get_thread_num());
    }
}

int main(int argc, char **argv) {
    threads_start(argc, argv, "fork", openmp_symbol);
    fork_verify("members-flat", flat, threads);
    threads_measure("flat", "us", 1e6, NULL, flat, NULL);
    fork_verify("members-nested", nested, (long)threads * threads);
    threads_measure("nested", "us", 1e6, NULL, nested, NULL);
    return suite_failed;
}
