/*
 * Point-to-point between ranks 0 and 1, for 0 B to 4 MiB.
 *   latency   ping-pong, half of the round trip on rank 0 (us)
 *   oneway    a window of nonblocking messages from 0 to 1, then a short answer (mbps; 8 B give the message rate)
 *   bothways  the same in both directions at once; bytes of both directions count (mbps)
 * Usage: p2p --test latency|oneway|bothways --buffer malloc|alloc [--batch-ms 10] [--max-bytes 4194304]
 */
#include "bench.h"

enum { WINDOW = 64, WINDOW_BYTES = 64 << 20, TAG = 1, ANSWER = 2 };

typedef struct { char *send, *receive; int bytes, window; } Pair;

static void latency(void *context, int calls) {
    Pair *pair = context;
    for (int n = 0; n < calls; n++) {
        if (bench_rank == 0) {
            MPI_Send(pair->send, pair->bytes, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
            MPI_Recv(pair->receive, pair->bytes, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(pair->receive, pair->bytes, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(pair->send, pair->bytes, MPI_BYTE, 0, TAG, MPI_COMM_WORLD);
        }
    }
}

static void window(Pair *pair, int calls, int sends, int receives) {
    MPI_Request requests[2 * WINDOW];
    char answer = 0;
    int peer = 1 - bench_rank;
    for (int n = 0; n < calls; n++) {
        int open = 0;
        for (int m = 0; receives && m < pair->window; m++)
            MPI_Irecv(pair->receive, pair->bytes, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, &requests[open++]);
        for (int m = 0; sends && m < pair->window; m++)
            MPI_Isend(pair->send, pair->bytes, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, &requests[open++]);
        MPI_Waitall(open, requests, MPI_STATUSES_IGNORE);
        if (bench_rank == 0) MPI_Recv(&answer, 1, MPI_BYTE, 1, ANSWER, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        else MPI_Send(&answer, 1, MPI_BYTE, 0, ANSWER, MPI_COMM_WORLD);
    }
}

static void oneway(void *context, int calls) { window(context, calls, bench_rank == 0, bench_rank == 1); }
static void bothways(void *context, int calls) { window(context, calls, 1, 1); }

/* Three untimed rounds of the same calls with contents of their own, checked byte by byte. */
static void verify(void (*body)(void *, int), Pair *pair, const char *test) {
    for (unsigned round = 0; round < 3; round++) {
        bench_fill(pair->send, (size_t)pair->bytes, round + 10 * (unsigned)bench_rank);
        memset(pair->receive, 0, (size_t)pair->bytes);
        body(pair, 1);
        if (body != oneway || bench_rank == 1)
            bench_check(pair->receive, (size_t)pair->bytes, round + 10 * (unsigned)(1 - bench_rank), test);
    }
}

int main(int argc, char **argv) {
    bench_start(&argc, &argv, MPI_THREAD_SINGLE);
    if (bench_ranks != 2) bench_fail("p2p runs on 2 ranks");
    const char *test = bench_option(argc, argv, "--test", "latency"), *buffer = bench_option(argc, argv, "--buffer", "malloc");
    const int largest = atoi(bench_option(argc, argv, "--max-bytes", "4194304")), from_mpi = strcmp(buffer, "alloc") == 0;
    void (*body)(void *, int) = strcmp(test, "oneway") == 0 ? oneway : strcmp(test, "bothways") == 0 ? bothways : latency;
    static const int sizes[] = {0, 8, 64, 512, 4096, 16384, 65536, 262144, 1048576, 4194304};
    Pair pair = {bench_buffer((size_t)largest, from_mpi), bench_buffer((size_t)largest, from_mpi), 0, 0};
    for (size_t n = 0; n < sizeof sizes / sizeof sizes[0] && sizes[n] <= largest; n++) {
        if (body != latency && sizes[n] == 0) continue;
        double median, best;
        pair.bytes = sizes[n];
        pair.window = sizes[n] * (long)WINDOW > WINDOW_BYTES ? WINDOW_BYTES / sizes[n] : WINDOW;
        verify(body, &pair, test);
        bench_measure(body, &pair, 0, &median, &best);
        if (body == latency) {
            bench_report(test, buffer, (size_t)pair.bytes, "us", median / 2 * 1e6, best / 2 * 1e6);
        } else {
            double moved = (double)pair.bytes * pair.window * (body == bothways ? 2 : 1);
            bench_report(test, buffer, (size_t)pair.bytes, "mbps", moved / median / 1e6, moved / best / 1e6);
        }
    }
    bench_free(pair.send, from_mpi);
    bench_free(pair.receive, from_mpi);
    MPI_Finalize();
    return 0;
}
