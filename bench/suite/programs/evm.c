/*
 * EVM, the element vector multiply by which ASCI Red's memory was studied: x(i) = y(i) z(i), over arrays of four last-level
 * caches. Three ways: a plain loop; blocked as on ASCI Red, where a piece of y, then of z, is touched into the level-1
 * cache before it is multiplied; and with stores that go past the caches, which need not read x first. Verified exactly.
 *   evm [-bytes BYTES] [-rounds 8]
 */
#include "arrays.h"
#if defined __x86_64__
#include <immintrin.h>
#endif

enum { BYTES, ROUNDS, OPTIONS };

static SuiteOption options[OPTIONS] = {
    [BYTES] = {"-bytes", "of one array over all ranks; 0: four last-level caches", 0, 0, 1L << 40, NULL, 0},
    [ROUNDS] = {"-rounds", "repetitions, the first of which does not count", 8, 2, 1000, NULL, 0},
};

enum { PIECE = 512, LINE = 8 }; /* doubles: 4 KiB of each vector, a cache line */

static void plain(long n, double *restrict x, const double *restrict y, const double *restrict z) {
    for (long i = 0; i < n; i++) x[i] = y[i] * z[i];
}

/* Brings a piece into the cache, a load for each line. */
static void touch(const double *piece, long n) {
    for (long i = 0; i < n; i += LINE) (void)*(const volatile double *)&piece[i];
}

static void blocked(long n, double *restrict x, const double *restrict y, const double *restrict z) {
    for (long at = 0; at < n; at += PIECE) {
        long count = n - at < PIECE ? n - at : PIECE;
        touch(y + at, count);
        touch(z + at, count);
        plain(count, x + at, y + at, z + at);
    }
}

#if defined __x86_64__
/* Arrays begin at a boundary of 4 KiB and have whole cache lines of elements. */
static void streaming(long n, double *restrict x, const double *restrict y, const double *restrict z) {
    for (long i = 0; i < n; i += LINE) {
#if defined __AVX512F__
        _mm512_stream_pd(x + i, _mm512_mul_pd(_mm512_load_pd(y + i), _mm512_load_pd(z + i)));
#else
        for (int k = 0; k < LINE; k += 2) _mm_stream_pd(x + i + k, _mm_mul_pd(_mm_load_pd(y + i + k), _mm_load_pd(z + i + k)));
#endif
    }
    _mm_sfence();
}
#endif

static double wrong(long n, const double *x, const double *y, const double *z) {
    double count = 0, all;
    for (long i = 0; i < n; i++) count += x[i] != y[i] * z[i];
    MPI_Allreduce(&count, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return all;
}

int main(int argc, char **argv) {
    suite_start(&argc, &argv, "evm", options, OPTIONS);
    static const struct {
        const char *name;
        void (*multiply)(long, double *restrict, const double *restrict, const double *restrict);
    } ways[] = {
        {"plain", plain},
        {"blocked", blocked},
#if defined __x86_64__
        {"streaming", streaming},
#endif
    };
    const int rounds = (int)options[ROUNDS].value;
    const long n = arrays_elements(options[BYTES].value, 3);
    double *x = arrays_make(n, 0), *y = arrays_make(n, 0), *z = arrays_make(n, 0), *rates = suite_memory((size_t)rounds * sizeof(double));
    for (long i = 0; i < n; i++) {
        y[i] = (double)(i % 1021) + 0.5;
        z[i] = (double)((i + 7 * suite_rank) % 509) - 254;
    }
    for (size_t way = 0; way < sizeof ways / sizeof ways[0]; way++) {
        memset(x, 0, (size_t)n * sizeof(double));
        for (int round = 0; round < rounds; round++) {
            double start = arrays_begin();
            ways[way].multiply(n, x, y, z);
            double seconds = arrays_end(start);
            if (round > 0) rates[round - 1] = (double)n * suite_ranks / seconds * 1e-6;
        }
        arrays_report(ways[way].name, "MFLOPS", rates, rounds - 1);
        suite_check(ways[way].name, wrong(n, x, y, z), 0);
    }
#if !defined __x86_64__
    suite_note("no stores past the caches: known only for x86-64");
#endif
    return suite_end();
}
