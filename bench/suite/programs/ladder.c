/*
 * The memory ladder: how fast doubles come into registers and are added up from the level-1, level-2 and level-3 caches and
 * from memory, on all ranks at once; then the model that ASCI Red's team used: a program that takes the part f(i) of its
 * data from level i of bandwidth b(i) reaches at most 1 / sum f(i)/b(i). The model is tried on a loop that takes half of
 * its data from level 1 and half from memory; with the processor's counters also by what they say about that loop.
 *   ladder [-ms 200] [-memory BYTES]
 */
#include "arrays.h"
#if defined __linux__
#include <linux/perf_event.h>
#include <sys/syscall.h>
#endif

enum { MS, MEMORY, OPTIONS };

static SuiteOption options[OPTIONS] = {
    [MS] = {"-ms", "milliseconds to measure each level for", 200, 1, 100000, NULL, 0},
    [MEMORY] = {"-memory", "bytes over all ranks that count as memory; 0: four last-level caches", 0, 0, 1L << 40, NULL, 0},
};

/* Eight doubles, which the compiler splits into the registers that there are. */
typedef double Eight __attribute__((vector_size(64)));

enum { STEP = 64 }; /* doubles in one turn of a loop */

static double fold(const Eight *sums, int count) {
    double total = 0;
    for (int n = 0; n < count; n++)
        for (int k = 0; k < 8; k++) total += sums[n][k];
    return total;
}

/* The sum of `n` doubles, a multiple of STEP. */
static double __attribute__((noinline)) total(const double *values, long n) {
    Eight sums[8] = {{0}};
    const Eight *at = (const Eight *)values;
    for (long i = 0; i < n / 8; i += 8)
        for (int k = 0; k < 8; k++) sums[k] += at[i + k];
    return fold(sums, 8);
}

/* The sum of the products of a long vector with a short one that is taken again and again. */
static double __attribute__((noinline)) mixed(const double *values, long n, const double *small, long few) {
    Eight sums[4] = {{0}};
    for (long start = 0; start < n; start += few) {
        const Eight *at = (const Eight *)(values + start), *with = (const Eight *)small;
        for (long i = 0; i < few / 8; i += 4)
            for (int k = 0; k < 4; k++) sums[k] += at[i + k] * with[i + k];
    }
    return fold(sums, 4);
}

enum { BATCHES = 9 };

/* MB/s over all ranks when each reads `bytes` again and again; rounds are agreed upon by rank 0. */
static double level(const char *name, double *values, long bytes, double *rates) {
    const long n = bytes / (long)sizeof(double) / STEP * STEP;
    long rounds = 1;
    double got = 0;
    for (int batch = -24; batch < BATCHES; batch++) {
        double start = arrays_begin();
        for (long round = 0; round < rounds; round++) {
            got = total(values, n);
            __asm__ volatile("" ::: "memory");
        }
        double seconds = arrays_end(start), aim = (double)options[MS].value * 1e-3 / BATCHES;
        if (batch >= 0) {
            rates[batch] = (double)n * 8 * (double)rounds * suite_ranks / seconds * 1e-6;
        } else if (seconds >= aim / 2) {
            batch = -1;
        } else {
            rounds *= seconds < aim / 16 ? 8 : 2;
            MPI_Bcast(&rounds, 1, MPI_LONG, 0, MPI_COMM_WORLD);
        }
    }
    char check[48];
    snprintf(check, sizeof check, "%s-sum", name);
    suite_check(check, fabs(got - (double)n), 0);
    return arrays_report(name, "MB/s", rates, BATCHES);
}

#if defined __linux__
enum { LOADS, MISSES_1, MISSES_LAST, COUNTERS };

/* A counter of this process in user mode, or -1 with errno. */
static int counter(uint64_t cache, uint64_t result) {
    struct perf_event_attr what;
    memset(&what, 0, sizeof what);
    what.size = sizeof what;
    what.type = PERF_TYPE_HW_CACHE;
    what.config = cache | (uint64_t)PERF_COUNT_HW_CACHE_OP_READ << 8 | result << 16;
    what.exclude_kernel = what.exclude_hv = 1;
    return (int)syscall(SYS_perf_event_open, &what, 0, -1, -1, 0);
}
#endif

/* The model's bound by what the counters say about the mixed loop, in MB/s on one rank; 0 where there are no counters. */
static double counted(const double *values, long n, const double *small, long few, double first, double middle, double memory) {
#if defined __linux__
    static const uint64_t what[COUNTERS][2] = {{PERF_COUNT_HW_CACHE_L1D, PERF_COUNT_HW_CACHE_RESULT_ACCESS},
                                               {PERF_COUNT_HW_CACHE_L1D, PERF_COUNT_HW_CACHE_RESULT_MISS},
                                               {PERF_COUNT_HW_CACHE_LL, PERF_COUNT_HW_CACHE_RESULT_MISS}};
    int files[COUNTERS], open = 0, reason = 0;
    uint64_t counts[COUNTERS] = {0};
    for (; open < COUNTERS; open++) {
        files[open] = counter(what[open][0], what[open][1]);
        if (files[open] < 0) {
            reason = errno;
            break;
        }
    }
    if (open == COUNTERS) {
        mixed(values, n, small, few);
        for (int k = 0; k < COUNTERS; k++)
            if (read(files[k], &counts[k], sizeof counts[k]) != sizeof counts[k]) counts[k] = 0;
    }
    for (int k = 0; k < open; k++) close(files[k]);
    if (open < COUNTERS) {
        suite_note("no bound from counters: perf_event_open gives none here (%s)", strerror(reason));
        return 0;
    }
    if (counts[LOADS] == 0) {
        suite_note("no bound from counters: they count no loads");
        return 0;
    }
    /* A line that is fetched is used by as many loads as the loop has for each line, so parts are lines against lines. */
    const double lines = (double)n * 16 / 64, from_memory = fmin((double)counts[MISSES_LAST] / lines, 1);
    const double beyond = fmin((double)counts[MISSES_1] / lines, 1), between = fmax(beyond - from_memory, 0);
    suite_figure("part-level-1", "percent", 100 * (1 - from_memory - between), -1);
    suite_figure("part-between", "percent", 100 * between, -1);
    suite_figure("part-memory", "percent", 100 * from_memory, -1);
    return 1 / ((1 - from_memory - between) / first + between / middle + from_memory / memory);
#else
    (void)values, (void)n, (void)small, (void)few, (void)first, (void)middle, (void)memory;
    suite_note("no bound from counters: they are known only for Linux");
    return 0;
#endif
}

int main(int argc, char **argv) {
    suite_start(&argc, &argv, "ladder", options, OPTIONS);
    const long cache1 = suite_cache(1) ? suite_cache(1) : 32 << 10, cache2 = suite_cache(2) ? suite_cache(2) : 512 << 10, cache3 = suite_cache(3);
    const long n = arrays_elements(options[MEMORY].value, 1) / STEP * STEP, whole = n * (long)sizeof(double);
    double *values = arrays_make(n > STEP ? n : STEP, 1), rates[BATCHES];
    const double first = level("level-1", values, cache1 / 2 < whole ? cache1 / 2 : whole, rates);
    double middle = first;
    if (cache2 / 2 < whole) middle = level("level-2", values, cache2 / 2, rates);
    /* The last level is shared by the ranks, and what is in level 2 must not count. */
    const long share = cache3 / 2 / suite_ranks < 8 * cache2 ? cache3 / 2 / suite_ranks : 8 * cache2;
    if (cache3 > 0 && share > 2 * cache2 && share < whole) middle = level("level-3", values, share, rates);
    else suite_note("no level-3 cache beyond level 2 is known for each rank");
    const double memory = level("memory", values, whole, rates);

    const long few = cache1 / 4 / (long)sizeof(double) / STEP * STEP, rows = n / few * few;
    if (rows > 0) {
        double *small = arrays_make(few, 1), got = 0, bound = 2 / (1 / first + 1 / memory);
        for (int batch = 0; batch < BATCHES; batch++) {
            double start = arrays_begin();
            got = mixed(values, rows, small, few);
            rates[batch] = (double)rows * 16 * suite_ranks / arrays_end(start) * 1e-6;
        }
        suite_check("mixed-sum", fabs(got - (double)rows), 0);
        double reached = arrays_report("mixed", "MB/s", rates, BATCHES);
        suite_figure("mixed-bound", "MB/s", bound, -1);
        suite_figure("mixed-part", "percent", 100 * reached / bound, -1);
        const double ranks = suite_ranks, known = counted(values, rows, small, few, first / ranks, middle / ranks, memory / ranks);
        if (known > 0) suite_figure("mixed-bound-counted", "MB/s", known * ranks, -1);
    }
    return suite_end();
}
