/* What the programs that stream through arrays share: their size, their memory, and the time of the slowest rank. */
#ifndef ARRAYS_H
#define ARRAYS_H
#include "suite.h"

/*
 * Elements of each rank's part of one array. `bytes` 0: four last-level caches, as McCalpin's rules ask, or what fits half
 * of the free memory; says so when that is less. All ranks share one machine's cache.
 */
static inline long arrays_elements(long bytes, int arrays) {
    long wanted = bytes;
    if (wanted == 0) {
        long cache = suite_cache(3) > 0 ? suite_cache(3) : suite_cache(2);
        wanted = 4 * (cache > 4L << 20 ? cache : 4L << 20);
        long most = sysconf(_SC_AVPHYS_PAGES) * sysconf(_SC_PAGESIZE) / 2 / arrays;
        MPI_Bcast(&most, 1, MPI_LONG, 0, MPI_COMM_WORLD);
        if (most > 0 && wanted > most) {
            suite_note("arrays of %ld MB instead of %ld MB (four last-level caches): no more memory is free", most / 1000000, wanted / 1000000);
            wanted = most;
        }
    }
    long n = wanted / (long)sizeof(double) / suite_ranks / 8 * 8;
    if (n < 8) n = 8;
    suite_note("%d arrays of %ld elements, %.0f MB each", arrays, n * suite_ranks, 8e-6 * (double)n * suite_ranks);
    return n;
}

static inline double *arrays_make(long n, double value) {
    double *memory = suite_memory((size_t)n * sizeof(double));
    for (long i = 0; i < n; i++) memory[i] = value;
    return memory;
}

static inline double arrays_begin(void) {
    MPI_Barrier(MPI_COMM_WORLD);
    return MPI_Wtime();
}

/* Seconds since `start` on the slowest rank. */
static inline double arrays_end(double start) {
    double mine = MPI_Wtime() - start, slowest;
    MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return slowest;
}

/* The best of some rates, with their scatter. */
static inline double arrays_report(const char *name, const char *unit, double *rates, int count) {
    double noise = suite_noise(rates, count), best = rates[0];
    for (int n = 1; n < count; n++)
        if (rates[n] > best) best = rates[n];
    suite_figure(name, unit, best, noise);
    return best;
}
#endif
