/* Loops by OpenMP's schedules. */
#include "../loops.h"
#include "../openmp.h"

static void by_static(void) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (long i = 0; i < LOOPS_COUNT; i++) loops_iteration(i);
}

static void by_dynamic(void) {
#pragma omp parallel for num_threads(threads) schedule(dynamic)
    for (long i = 0; i < LOOPS_COUNT; i++) loops_iteration(i);
}

static void by_guided(void) {
#pragma omp parallel for num_threads(threads) schedule(guided)
    for (long i = 0; i < LOOPS_COUNT; i++) loops_iteration(i);
}

int main(int argc, char **argv) {
    threads_start(argc, argv, "loops", openmp_symbol);
    loops_expect();
    threads_measure("static", "us", 1e6, loops_prepare, by_static, loops_wrong);
    threads_measure("dynamic", "us", 1e6, loops_prepare, by_dynamic, loops_wrong);
    threads_measure("guided", "us", 1e6, loops_prepare, by_guided, loops_wrong);
    return suite_failed;
}
