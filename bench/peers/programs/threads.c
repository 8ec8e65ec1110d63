/*
 * Two ranks with several threads each that send and receive at once (MPI_THREAD_MULTIPLE); each thread talks to the one
 * with its number on the other rank, over a communicator of their own:
 *   exchange   half a round trip (us)
 *   window     time of a message in windows of 64 nonblocking ones, each window answered by an empty message (us)
 * Times are those of a thread, so with perfect cores for all they would not depend on the number of threads.
 * With `--step` for all sizes from 1 B on, each that many times the last; otherwise for three. With `--data written` what is sent
 * is written anew before each message, inside of the measured time.
 * Usage: threads [--threads 2] [--batch-ms 10] [--operation exchange|window] [--data written] [--step 4] [--max-bytes 4194304]
 */
#include "bench.h"
#include <pthread.h>

enum { WINDOW = 64, LANE_BYTES = WINDOW * 65536, THREADS_MOST = 16 };

typedef struct { MPI_Comm comm; char *memory; int bytes, window, calls, check, written; } Lane;
typedef struct { int threads, bytes, window, check, written; Lane lanes[THREADS_MOST]; void *(*body)(void *); } Lanes;

static void *exchange(void *context) {
    Lane *lane = context;
    for (int n = 0; n < lane->calls; n++) {
        if (lane->check) bench_fill(lane->memory, (size_t)lane->bytes, (unsigned)(n + 7 * bench_rank));
        if (lane->written) memset(lane->memory, n, (size_t)lane->bytes);
        if (bench_rank == 0) MPI_Send(lane->memory, lane->bytes, MPI_BYTE, 1, 0, lane->comm);
        MPI_Recv(lane->memory, lane->bytes, MPI_BYTE, !bench_rank, 0, lane->comm, MPI_STATUS_IGNORE);
        if (lane->check) bench_check(lane->memory, (size_t)lane->bytes, (unsigned)n, "exchange brought wrong data");
        if (bench_rank == 1) MPI_Send(lane->memory, lane->bytes, MPI_BYTE, 0, 0, lane->comm);
    }
    return NULL;
}

static void *window(void *context) {
    Lane *lane = context;
    MPI_Request requests[WINDOW];
    size_t bytes = (size_t)lane->bytes;
    for (int n = 0; n < lane->calls; n++) {
        for (unsigned m = 0; m < (unsigned)lane->window; m++) {
            char *place = lane->memory + m * bytes;
            if (lane->check) bench_fill(place, bytes, bench_rank == 0 ? m : 255);
            if (lane->written && bench_rank == 0) memset(place, n, bytes);
            if (bench_rank == 0) MPI_Isend(place, lane->bytes, MPI_BYTE, 1, 0, lane->comm, &requests[m]);
            else MPI_Irecv(place, lane->bytes, MPI_BYTE, 0, 0, lane->comm, &requests[m]);
        }
        MPI_Waitall(lane->window, requests, MPI_STATUSES_IGNORE);
        for (unsigned m = 0; lane->check && m < (unsigned)lane->window; m++)
            bench_check(lane->memory + m * bytes, bytes, m, "a window brought wrong data");
        if (bench_rank == 0) MPI_Recv(NULL, 0, MPI_BYTE, 1, 1, lane->comm, MPI_STATUS_IGNORE);
        else MPI_Send(NULL, 0, MPI_BYTE, 0, 1, lane->comm);
    }
    return NULL;
}

static void at_once(void *context, int calls) {
    Lanes *lanes = context;
    pthread_t threads[THREADS_MOST];
    for (int t = 0; t < lanes->threads; t++) {
        lanes->lanes[t].bytes = lanes->bytes;
        lanes->lanes[t].window = lanes->window;
        lanes->lanes[t].written = lanes->written && !lanes->check;
        lanes->lanes[t].calls = calls;
        lanes->lanes[t].check = lanes->check;
        if (pthread_create(&threads[t], NULL, lanes->body, &lanes->lanes[t]) != 0) bench_fail("no thread");
    }
    for (int t = 0; t < lanes->threads; t++) pthread_join(threads[t], NULL);
}

int main(int argc, char **argv) {
    static const struct { const char *name; void *(*body)(void *); } tests[] = {{"exchange", exchange}, {"window", window}};
    int sizes[32] = {8, 4096, 65536}, count = 3;
    bench_start(&argc, &argv, MPI_THREAD_MULTIPLE);
    if (bench_ranks != 2) bench_fail("threads runs on 2 ranks");
    const char *only = bench_option(argc, argv, "--operation", "");
    const int step = atoi(bench_option(argc, argv, "--step", "0")), largest = atoi(bench_option(argc, argv, "--max-bytes", "4194304"));
    if (step > 1) {
        count = 0;
        for (long size = 1; size <= largest && size <= LANE_BYTES; size *= step) sizes[count++] = (int)size;
    }
    Lanes lanes = {.written = strcmp(bench_option(argc, argv, "--data", ""), "written") == 0, .threads = atoi(bench_option(argc, argv, "--threads", "2"))};
    if (lanes.threads < 1 || lanes.threads > THREADS_MOST) bench_fail("--threads takes 1 to 16");
    for (int t = 0; t < lanes.threads; t++) {
        MPI_Comm_dup(MPI_COMM_WORLD, &lanes.lanes[t].comm);
        lanes.lanes[t].memory = bench_buffer(LANE_BYTES, 0);
    }
    char kind[16];
    snprintf(kind, sizeof kind, "%d", lanes.threads);
    for (size_t t = 0; t < sizeof tests / sizeof tests[0]; t++) {
        if (only[0] && strcmp(only, tests[t].name) != 0) continue;
        for (int n = 0; n < count; n++) {
            double median, best;
            lanes.body = tests[t].body;
            lanes.bytes = sizes[n];
            lanes.window = sizes[n] > LANE_BYTES / WINDOW ? LANE_BYTES / sizes[n] : WINDOW;
            lanes.check = 1;
            at_once(&lanes, 3);
            lanes.check = 0;
            bench_measure(at_once, &lanes, 0, &median, &best);
            double us = 1e6 / (tests[t].body == window ? lanes.window : 2);
            bench_report(tests[t].name, kind, (size_t)sizes[n], "us", median * us, best * us);
        }
    }
    for (int t = 0; t < lanes.threads; t++) {
        bench_free(lanes.lanes[t].memory, 0);
        MPI_Comm_free(&lanes.lanes[t].comm);
    }
    MPI_Finalize();
    return 0;
}
