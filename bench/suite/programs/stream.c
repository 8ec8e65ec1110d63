/*
 * STREAM by McCalpin's rules: copy, scale, add and triad over arrays of at least four times the last-level cache of the
 * machine, which the ranks share out; the best of several rounds without the first; results verified. Bytes count as in
 * the original: 16 for each element of copy and scale, 24 for add and triad.
 *   stream [-bytes BYTES] [-rounds 10]
 */
#include "arrays.h"

enum { BYTES, ROUNDS, OPTIONS };

static SuiteOption options[OPTIONS] = {
    [BYTES] = {"-bytes", "of one array over all ranks; 0: four last-level caches", 0, 0, 1L << 40, NULL, 0},
    [ROUNDS] = {"-rounds", "repetitions, the first of which does not count", 10, 2, 200, NULL, 0},
};

enum { COPY, SCALE, ADD, TRIAD, KERNELS };

static const char *const names[KERNELS] = {"copy", "scale", "add", "triad"};
static const int bytes_moved[KERNELS] = {16, 16, 24, 24};
static const double FACTOR = 3;

static void kernel(int which, long n, double *restrict a, double *restrict b, double *restrict c) {
    switch (which) {
    case COPY:
        for (long i = 0; i < n; i++) c[i] = a[i];
        break;
    case SCALE:
        for (long i = 0; i < n; i++) b[i] = FACTOR * c[i];
        break;
    case ADD:
        for (long i = 0; i < n; i++) c[i] = a[i] + b[i];
        break;
    default:
        for (long i = 0; i < n; i++) a[i] = b[i] + FACTOR * c[i];
    }
}

/* Largest relative difference of an array from the one value that all its elements must have. */
static double error_of(const double *values, long n, double expected) {
    double worst = 0;
    for (long i = 0; i < n; i++) {
        double error = fabs(values[i] - expected) / expected;
        if (!(error <= worst)) worst = error;
    }
    return worst;
}

int main(int argc, char **argv) {
    suite_start(&argc, &argv, "stream", options, OPTIONS);
    const int rounds = (int)options[ROUNDS].value;
    const long n = arrays_elements(options[BYTES].value, 3);
    double *a = arrays_make(n, 1), *b = arrays_make(n, 2), *c = arrays_make(n, 0), *rates[KERNELS];
    double expected_a = 1, expected_b = 2, expected_c = 0;
    for (int k = 0; k < KERNELS; k++) rates[k] = suite_memory((size_t)rounds * sizeof(double));
    for (int round = 0; round < rounds; round++) {
        for (int k = 0; k < KERNELS; k++) {
            double start = arrays_begin();
            kernel(k, n, a, b, c);
            double seconds = arrays_end(start);
            if (round > 0) rates[k][round - 1] = (double)bytes_moved[k] * (double)n * suite_ranks / seconds * 1e-6;
        }
        expected_c = expected_a;
        expected_b = FACTOR * expected_c;
        expected_c = expected_a + expected_b;
        expected_a = expected_b + FACTOR * expected_c;
    }
    double errors[3] = {error_of(a, n, expected_a), error_of(b, n, expected_b), error_of(c, n, expected_c)}, worst[3];
    MPI_Reduce(errors, worst, 3, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    for (int k = 0; k < KERNELS; k++) arrays_report(names[k], "MB/s", rates[k], rounds - 1);
    for (int k = 0; k < 3; k++) suite_check(((const char *const[]){"array-a", "array-b", "array-c"})[k], worst[k], 1e-13);
    return suite_end();
}
