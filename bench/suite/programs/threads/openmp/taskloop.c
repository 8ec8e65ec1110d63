/*
 * Loops by tasks of one iteration: a taskloop of grain 1, with iterations of about a microsecond, from one member; and the same from
 * all members at once, each over its own part. The figures are for an iteration.
 */
#include "../kernels.h"

enum { ITERATIONS = 1024, PARTS = 8, WORK = 400 };

static uint64_t results[ITERATIONS], expected[ITERATIONS];

static void __attribute__((noinline)) iteration(long i) {
    uint64_t z = (uint64_t)i;
    for (int step = 0; step < WORK; step++) z = threads_mix(z);
    results[i] = z;
}

static void by_one(void) {
#pragma omp parallel num_threads(threads)
#pragma omp single
#pragma omp taskloop grainsize(1)
    for (long i = 0; i < ITERATIONS; i++) iteration(i);
}

static void by_all(void) {
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (long part = 0; part < PARTS; part++) {
#pragma omp taskloop grainsize(1)
        for (long i = part * ITERATIONS / PARTS; i < (part + 1) * ITERATIONS / PARTS; i++) iteration(i);
    }
}

static void prepare(void) { memset(results, 0, sizeof results); }

static long wrong(void) { return kernels_differ(results, expected, sizeof results); }

int main(int argc, char **argv) {
    threads_start(argc, argv, "taskloop", openmp_symbol);
    for (long i = 0; i < ITERATIONS; i++) iteration(i);
    memcpy(expected, results, sizeof results);
    threads_measure("one", "ns", 1e9 / ITERATIONS, prepare, by_one, wrong);
    threads_measure("all", "ns", 1e9 / ITERATIONS, prepare, by_all, wrong);
    return suite_failed;
}
