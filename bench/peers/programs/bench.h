/*
 * What the benchmark programs share: buffers, patterns that are verified, adaptive repetition, and the output format.
 *
 * A figure is one line on standard output of rank 0, keys and values separated by blanks:
 *   figure <test> buffer <what kind, or -> bytes <bytes> <unit> <median of the batches> min <best batch>
 * where <unit> is `us` (microseconds, less is better), `mbps` (10^6 bytes a second, more is better) or `share` (of 1, more
 * is better). Before the figures stands one line `library <first line of MPI_Get_library_version>`.
 */
#ifndef BENCH_H
#define BENCH_H
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCHES = 7 };

static int bench_rank, bench_ranks;
static double bench_batch_s = 0.01; /* time to aim at for one batch of calls */

static void bench_fail(const char *what) {
    fprintf(stderr, "benchmark: rank %d: %s\n", bench_rank, what);
    MPI_Abort(MPI_COMM_WORLD, 3);
}

/* The value of `--name value`, or `otherwise`. */
static const char *bench_option(int argc, char **argv, const char *name, const char *otherwise) {
    for (int n = 1; n + 1 < argc; n++)
        if (strcmp(argv[n], name) == 0) return argv[n + 1];
    return otherwise;
}

/* `level` is the level of thread support that the benchmark needs. */
static void bench_start(int *argc, char ***argv, int level) {
    int provided;
    MPI_Init_thread(argc, argv, level, &provided);
    if (provided < level) bench_fail("the library does not give the level of thread support that is needed");
    MPI_Comm_rank(MPI_COMM_WORLD, &bench_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &bench_ranks);
    bench_batch_s = atof(bench_option(*argc, *argv, "--batch-ms", "10")) / 1000;
    char library[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    MPI_Get_library_version(library, &length);
    library[strcspn(library, "\r\n")] = '\0';
    if (bench_rank == 0) printf("library %s\n", library);
}

/* A touched buffer of at least one page, from MPI_Alloc_mem or malloc. */
static char *bench_buffer(size_t bytes, int from_mpi) {
    void *memory = NULL;
    size_t size = bytes < 4096 ? 4096 : bytes;
    if (from_mpi) MPI_Alloc_mem((MPI_Aint)size, MPI_INFO_NULL, &memory);
    else memory = malloc(size);
    if (!memory) bench_fail("no memory for a buffer");
    memset(memory, 1, size);
    return memory;
}

static void bench_free(char *memory, int from_mpi) {
    if (from_mpi) MPI_Free_mem(memory);
    else free(memory);
}

/* Contents that differ by `seed` and position, so that lost, repeated and shifted bytes are seen. */
static unsigned char bench_byte(unsigned seed, size_t n) { return (unsigned char)(seed * 31 + n * 7 + (n >> 8) * 13); }

static void bench_fill(char *memory, size_t bytes, unsigned seed) {
    for (size_t n = 0; n < bytes; n++) memory[n] = (char)bench_byte(seed, n);
}

static void bench_check(const char *memory, size_t bytes, unsigned seed, const char *what) {
    for (size_t n = 0; n < bytes; n++)
        if ((unsigned char)memory[n] != bench_byte(seed, n)) bench_fail(what);
}

static int bench_compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/*
 * Seconds of one call of `body(context, calls)`: the number of calls grows until a batch takes its time on rank 0, then
 * the median and the best of the batches are taken. The seconds of a batch are those of the slowest rank when `slowest`,
 * else those of rank 0. Slow cases (a batch already takes long with one call) make fewer batches. Collective.
 */
static void bench_measure(void (*body)(void *, int), void *context, int slowest, double *median, double *best) {
    double seconds[BATCHES];
    int calls = 1, batches = BATCHES;
    for (int grow = 1; grow;) {
        MPI_Barrier(MPI_COMM_WORLD);
        double start = MPI_Wtime();
        body(context, calls);
        double took = MPI_Wtime() - start;
        int next = calls;
        if (took < 0.7 * bench_batch_s && calls < 1000000) {
            double factor = took > 0 ? bench_batch_s / took : 10;
            next = (int)(calls * (factor > 10 ? 10 : factor < 1.5 ? 1.5 : factor)) + 1;
        }
        if (next == calls && took > 4 * bench_batch_s) batches = 3;
        int plan[2] = {next, batches};
        MPI_Bcast(plan, 2, MPI_INT, 0, MPI_COMM_WORLD);
        grow = plan[0] != calls;
        calls = plan[0];
        batches = plan[1];
    }
    for (int n = 0; n < batches; n++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double start = MPI_Wtime();
        body(context, calls);
        double took = (MPI_Wtime() - start) / calls;
        seconds[n] = took;
        if (slowest) MPI_Reduce(&took, &seconds[n], 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    }
    qsort(seconds, (size_t)batches, sizeof seconds[0], bench_compare);
    *median = seconds[batches / 2];
    *best = seconds[0];
}

static void bench_report(const char *test, const char *buffer, size_t bytes, const char *unit, double median, double best) {
    if (bench_rank != 0) return;
    printf("figure %s buffer %s bytes %zu %s %.6g min %.6g\n", test, buffer, bytes, unit, median, best);
    fflush(stdout);
}
#endif
