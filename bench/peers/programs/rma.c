/*
 * One-sided operations of rank 0 on the memory of rank 1, each completed by MPI_Win_flush in one epoch of MPI_Win_lock_all;
 * the time of an operation with its flush (us). Rank 1 waits in a barrier meanwhile.
 *   put, get         bytes
 *   accumulate       MPI_SUM of doubles
 * The window is of MPI_Win_allocate (alloc) or of MPI_Win_create over malloc's memory (malloc).
 * Usage: rma --buffer malloc|alloc [--batch-ms 10]
 */
#include "bench.h"

typedef struct { char *origin; int bytes; MPI_Win win; } Side;

static void put(void *context, int calls) {
    Side *side = context;
    for (int n = 0; bench_rank == 0 && n < calls; n++) {
        MPI_Put(side->origin, side->bytes, MPI_BYTE, 1, 0, side->bytes, MPI_BYTE, side->win);
        MPI_Win_flush(1, side->win);
    }
}

static void get(void *context, int calls) {
    Side *side = context;
    for (int n = 0; bench_rank == 0 && n < calls; n++) {
        MPI_Get(side->origin, side->bytes, MPI_BYTE, 1, 0, side->bytes, MPI_BYTE, side->win);
        MPI_Win_flush(1, side->win);
    }
}

static void accumulate(void *context, int calls) {
    Side *side = context;
    int doubles = side->bytes / (int)sizeof(double);
    for (int n = 0; bench_rank == 0 && n < calls; n++) {
        MPI_Accumulate(side->origin, doubles, MPI_DOUBLE, 1, 0, doubles, MPI_DOUBLE, MPI_SUM, side->win);
        MPI_Win_flush(1, side->win);
    }
}

/* Three rounds of one call each, checked byte by byte (element by element) where the data arrives. */
static void verify(void (*body)(void *, int), Side *side, char *base, const char *test) {
    double *mine = (double *)(void *)side->origin, *theirs = (double *)(void *)base;
    size_t bytes = (size_t)side->bytes, doubles = bytes / sizeof(double);
    /* Rank 0 may still be busy with the calls that were measured last. */
    MPI_Barrier(MPI_COMM_WORLD);
    for (unsigned round = 0; round < 3; round++) {
        for (size_t n = 0; body == accumulate && n < doubles; n++) {
            mine[n] = (double)n + round;
            theirs[n] = 0.5;
        }
        if (body != accumulate) {
            bench_fill(side->origin, bytes, round);
            bench_fill(base, bytes, round + 10);
        }
        MPI_Win_sync(side->win);
        MPI_Barrier(MPI_COMM_WORLD);
        body(side, 1);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Win_sync(side->win);
        if (body == put && bench_rank == 1) bench_check(base, bytes, round, test);
        if (body == get && bench_rank == 0) bench_check(side->origin, bytes, round + 10, test);
        for (size_t n = 0; body == accumulate && bench_rank == 1 && n < doubles; n++)
            if (theirs[n] != (double)n + round + 0.5) bench_fail(test);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    /* Sums that are repeated a million times must not leave the numbers that cost nothing special. */
    memset(side->origin, 0, bytes);
}

int main(int argc, char **argv) {
    static const struct { const char *name; void (*body)(void *, int); } tests[] = {{"put", put}, {"get", get}, {"accumulate", accumulate}};
    static const int sizes[] = {8, 65536};
    bench_start(&argc, &argv, MPI_THREAD_SINGLE);
    if (bench_ranks != 2) bench_fail("rma runs on 2 ranks");
    const char *buffer = bench_option(argc, argv, "--buffer", "malloc");
    const MPI_Aint largest = 65536;
    char *base, *own = NULL;
    Side side = {bench_buffer((size_t)largest, 0), 0, MPI_WIN_NULL};
    if (strcmp(buffer, "alloc") == 0) {
        MPI_Win_allocate(largest, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &side.win);
    } else {
        base = own = bench_buffer((size_t)largest, 0);
        MPI_Win_create(base, largest, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &side.win);
    }
    MPI_Win_lock_all(0, side.win);
    for (size_t t = 0; t < sizeof tests / sizeof tests[0]; t++) {
        for (size_t n = 0; n < sizeof sizes / sizeof sizes[0]; n++) {
            double median, best;
            side.bytes = sizes[n];
            verify(tests[t].body, &side, base, tests[t].name);
            bench_measure(tests[t].body, &side, 0, &median, &best);
            bench_report(tests[t].name, buffer, (size_t)side.bytes, "us", median * 1e6, best * 1e6);
        }
    }
    MPI_Win_unlock_all(side.win);
    MPI_Win_free(&side.win);
    if (own) bench_free(own, 0);
    bench_free(side.origin, 0);
    MPI_Finalize();
    return 0;
}
