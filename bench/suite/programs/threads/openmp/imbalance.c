/*
 * Loops of which few iterations cost most, by each schedule: a product of a sparse matrix, whose rows have lengths by a power law, and
 * a vector, five times over. The figures are for a product.
 */
#include "../kernels.h"

enum { ROWS = 4000, PRODUCTS = 5, LONGEST = 4000 };

static double vectors[PRODUCTS + 1][ROWS], expected[PRODUCTS + 1][ROWS];
static int lengths[ROWS];

static inline void __attribute__((always_inline)) row(const double *from, double *to, long i) {
    double sum = 0;
    uint64_t column = (uint64_t)i;
    for (int n = 0; n < lengths[i]; n++) {
        column = column * 2862933555777941757u + 3037000493u;
        sum += from[(column >> 33) % ROWS] * ((double)(n & 7) - 3.5);
    }
    to[i] = sum / (1 + lengths[i]);
}

static void sequential(void) {
    for (int n = 0; n < PRODUCTS; n++)
        for (long i = 0; i < ROWS; i++) row(vectors[n], vectors[n + 1], i);
}

static void by_static(void) {
    for (int n = 0; n < PRODUCTS; n++) {
#pragma omp parallel for num_threads(threads) schedule(static)
        for (long i = 0; i < ROWS; i++) row(vectors[n], vectors[n + 1], i);
    }
}

static void by_cyclic(void) {
    for (int n = 0; n < PRODUCTS; n++) {
#pragma omp parallel for num_threads(threads) schedule(static, 4)
        for (long i = 0; i < ROWS; i++) row(vectors[n], vectors[n + 1], i);
    }
}

static void by_dynamic(void) {
    for (int n = 0; n < PRODUCTS; n++) {
#pragma omp parallel for num_threads(threads) schedule(dynamic, 8)
        for (long i = 0; i < ROWS; i++) row(vectors[n], vectors[n + 1], i);
    }
}

static void by_guided(void) {
    for (int n = 0; n < PRODUCTS; n++) {
#pragma omp parallel for num_threads(threads) schedule(guided)
        for (long i = 0; i < ROWS; i++) row(vectors[n], vectors[n + 1], i);
    }
}

static void prepare(void) { memset(vectors[1], 0, sizeof vectors - sizeof vectors[0]); }

static long wrong(void) { return kernels_differ(vectors, expected, sizeof vectors); }

int main(int argc, char **argv) {
    threads_start(argc, argv, "imbalance", openmp_symbol);
    kernels_fill(vectors[0], ROWS, 1);
    for (int i = 0; i < ROWS; i++) {
        const double length = 8 / (threads_random((uint64_t)i) + 2e-3);
        /* Heavier towards the end, as of triangular work. */
        lengths[i] = (int)fmin(length * (1 + 3 * (double)i / ROWS), LONGEST);
    }
    prepare();
    sequential();
    memcpy(expected, vectors, sizeof vectors);
    threads_measure("static", "us", 1e6 / PRODUCTS, prepare, by_static, wrong);
    threads_measure("cyclic", "us", 1e6 / PRODUCTS, prepare, by_cyclic, wrong);
    threads_measure("dynamic", "us", 1e6 / PRODUCTS, prepare, by_dynamic, wrong);
    threads_measure("guided", "us", 1e6 / PRODUCTS, prepare, by_guided, wrong);
    return suite_failed;
}
