/* Empty parallel regions and tasks, by OpenMP. */
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

static void tasks(void) {
#pragma omp parallel num_threads(threads)
#pragma omp single
    for (long n = 0; n < FORK_TASKS; n++) {
#pragma omp task firstprivate(n)
        fork_member(n);
    }
}

int main(int argc, char **argv) {
    threads_start(argc, argv, "fork", openmp_symbol);
    fork_verify("members-flat", flat, threads);
    threads_measure("flat", "us", 1e6, NULL, flat, NULL);
    fork_nested(nested, threads_measure);
    fork_verify("members-task", tasks, FORK_TASKS);
    threads_measure("task", "ns", 1e9 / FORK_TASKS, NULL, tasks, NULL);
    return suite_failed;
}
