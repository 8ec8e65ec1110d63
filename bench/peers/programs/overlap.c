/*
 * A nonblocking Allreduce of doubles while every rank computes for as long as the operation takes alone: the share of the
 * shorter of the two that is hidden (share), (operation + computation - both) / min(operation, computation), from times of
 * the slowest rank; the median of rounds in each of which all three are measured.
 *   core     the computation is arithmetic in registers and holds the rank's core
 *   device   the computation is elsewhere (on an accelerator, say) and the rank's thread sleeps until its end
 * With a core for each rank and no more, an operation whose time is copying and adding cannot be hidden behind `core`:
 * nobody is left to do it.
 * A share says nothing about time: an operation that is slow alone, because its progress thread and the program wait for each
 * other, hides much of that. So the time of both (together) stands beside it, with a computation that is as long for
 * every implementation: what the bytes take at 4 GB/s.
 * Usage: overlap [--batch-ms 10]
 */
#define _POSIX_C_SOURCE 200809L
#include "bench.h"
#include <time.h>

typedef struct { double *send, *receive; int doubles, device; double compute_s; long rounds; } Work;

enum { ROUNDS = 3 };

static double rounds_per_s;
static volatile double arithmetic_result;

static void arithmetic(long rounds) {
    double x = 1.0;
    for (long n = 0; n < rounds; n++) x = x * 0.999999 + 1e-7;
    arithmetic_result = x;
}

static void compute(const Work *work) {
    if (work->device) {
        struct timespec left = {(time_t)work->compute_s, (long)(work->compute_s * 1e9) % 1000000000};
        while (nanosleep(&left, &left) != 0) { }
    } else {
        arithmetic(work->rounds);
    }
}

static void start(Work *work, MPI_Request *request) {
    MPI_Iallreduce(work->send, work->receive, work->doubles, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, request);
}

static void operation(void *context, int calls) {
    for (int n = 0; n < calls; n++) {
        MPI_Request request;
        start(context, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
}

static void computation(void *context, int calls) {
    for (int n = 0; n < calls; n++) compute(context);
}

static void both(void *context, int calls) {
    for (int n = 0; n < calls; n++) {
        MPI_Request request;
        start(context, &request);
        compute(context);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
}

static void verify(Work *work) {
    for (int n = 0; n < work->doubles; n++) {
        work->send[n] = bench_rank + n % 100;
        work->receive[n] = -1;
    }
    both(work, 1);
    for (int n = 0; n < work->doubles; n++)
        if (work->receive[n] != bench_ranks * (bench_ranks - 1) / 2 + (double)bench_ranks * (n % 100))
            bench_fail("Iallreduce brought wrong sums");
}

int main(int argc, char **argv) {
    static const int sizes[] = {65536, 1048576, 4194304};
    bench_start(&argc, &argv, MPI_THREAD_SINGLE);
    double began = MPI_Wtime();
    arithmetic(10000000);
    rounds_per_s = 1e7 / (MPI_Wtime() - began);
    for (int device = 0; device < 2; device++) {
        for (size_t n = 0; n < sizeof sizes / sizeof sizes[0]; n++) {
            double alone, best, computed, together, shares[ROUNDS];
            Work work = {(double *)(void *)bench_buffer((size_t)sizes[n], 0), (double *)(void *)bench_buffer((size_t)sizes[n], 0),
                         sizes[n] / (int)sizeof(double), device, 0, 0};
            verify(&work);
            /* What is set against each other is measured side by side: machines have faster and slower minutes. */
            for (int round = 0; round < ROUNDS; round++) {
                bench_measure(operation, &work, 1, &alone, &best);
                MPI_Bcast(&alone, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
                work.compute_s = alone;
                work.rounds = (long)(alone * rounds_per_s);
                bench_measure(computation, &work, 1, &computed, &best);
                bench_measure(both, &work, 1, &together, &best);
                shares[round] = (alone + computed - together) / (computed < alone ? computed : alone);
            }
            qsort(shares, ROUNDS, sizeof shares[0], bench_compare);
            bench_report("overlap", device ? "device" : "core", (size_t)sizes[n], "share", shares[ROUNDS / 2], shares[ROUNDS - 1]);
            work.compute_s = sizes[n] / 4e9;
            work.rounds = (long)(work.compute_s * rounds_per_s);
            bench_measure(both, &work, 1, &together, &best);
            bench_report("together", device ? "device" : "core", (size_t)sizes[n], "us", together * 1e6, best * 1e6);
            bench_free((char *)work.send, 0);
            bench_free((char *)work.receive, 0);
        }
    }
    MPI_Finalize();
    return 0;
}
