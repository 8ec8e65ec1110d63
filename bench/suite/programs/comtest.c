/*
 * Comtest: ping-pong between nearest neighbours, all pairs of ranks at once: latency, bandwidth, their standard deviation
 * over repetitions and pairs, and N1/2, the message length that reaches half of the bandwidth. Through MPI; through NX or
 * MPL when compiled with COMTEST_NX or COMTEST_MPL. Contents are verified before anything is timed.
 *   comtest [-bytes 4194304] [-batch-us 2000]
 */
#include "suite.h"
#if defined COMTEST_NX
#include <nx.h>
#elif defined COMTEST_MPL
#include <mpl.h>
#endif

enum { BYTES, BATCH, OPTIONS };

static SuiteOption options[OPTIONS] = {
    [BYTES] = {"-bytes", "largest message", 4 << 20, 8, 1 << 30, NULL, 0},
    [BATCH] = {"-batch-us", "microseconds to aim at for one batch", 2000, 1, 10000000, NULL, 0},
};

enum { TAG = 7, BATCHES = 9, SIZES = 32 };

static void send_to(int neighbour, char *memory, long bytes) {
#if defined COMTEST_NX
    csend(TAG, memory, bytes, neighbour, 0);
#elif defined COMTEST_MPL
    mpc_bsend(memory, (size_t)bytes, neighbour, TAG);
#else
    MPI_Send(memory, (int)bytes, MPI_BYTE, neighbour, TAG, MPI_COMM_WORLD);
#endif
}

static void receive_from(int neighbour, char *memory, long bytes) {
#if defined COMTEST_NX
    /* As the others do, it names the sender; crecv would take a message of any, which costs more from 1 to 4 KiB. */
    crecvx(TAG, memory, bytes, neighbour, 0, msginfo);
#elif defined COMTEST_MPL
    int source = neighbour, type = TAG;
    size_t got;
    mpc_brecv(memory, (size_t)bytes, &source, &type, &got);
#else
    MPI_Recv(memory, (int)bytes, MPI_BYTE, neighbour, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
#endif
}

static void ping_pong(int neighbour, char *out, char *in, long bytes, long rounds) {
    for (long n = 0; n < rounds; n++)
        if (suite_rank < neighbour) {
            send_to(neighbour, out, bytes);
            receive_from(neighbour, in, bytes);
        } else {
            receive_from(neighbour, in, bytes);
            send_to(neighbour, out, bytes);
        }
}

static char content(int rank, long n) { return (char)(rank * 31 + n * 7 + (n >> 8) * 13); }

/* Bytes that did not arrive as they were sent, over all ranks. */
static double wrong(int neighbour, char *out, char *in, long bytes) {
    double count = 0, all;
    if (neighbour >= 0) {
        memset(in, 0, (size_t)bytes);
        for (long n = 0; n < bytes; n++) out[n] = content(suite_rank, n);
        ping_pong(neighbour, out, in, bytes, 1);
        for (long n = 0; n < bytes; n++) count += in[n] != content(neighbour, n);
    }
    MPI_Allreduce(&count, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return all;
}

/* Microseconds for one way, BATCHES values of each pair one after the other in `all` on rank 0. Collective. */
static void times(int neighbour, char *out, char *in, long bytes, double *all, MPI_Comm leaders) {
    double mine[BATCHES];
    long rounds = 1;
    for (int batch = -12; batch < BATCHES; batch++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double start = MPI_Wtime();
        if (neighbour >= 0) ping_pong(neighbour, out, in, bytes, rounds);
        double took = (MPI_Wtime() - start) * 1e6, aim = (double)options[BATCH].value;
        if (batch >= 0) {
            mine[batch] = took / (double)rounds / 2;
            continue;
        }
        if (took < aim / 2) rounds *= took < aim / 16 ? 8 : 2;
        MPI_Bcast(&rounds, 1, MPI_LONG, 0, MPI_COMM_WORLD);
    }
    if (leaders != MPI_COMM_NULL) MPI_Gather(mine, BATCHES, MPI_DOUBLE, all, BATCHES, MPI_DOUBLE, 0, leaders);
}

/* The length at which the bandwidth first reaches half of its highest, between the lengths that were measured. */
static double half_length(const long *lengths, const double *bandwidths, int count) {
    double most = 0;
    for (int n = 0; n < count; n++)
        if (bandwidths[n] > most) most = bandwidths[n];
    for (int n = 1; n < count; n++)
        if (bandwidths[n] >= most / 2) {
            double part = (most / 2 - bandwidths[n - 1]) / (bandwidths[n] - bandwidths[n - 1]);
            if (part < 0) part = 0;
            return (double)lengths[n - 1] + part * (double)(lengths[n] - lengths[n - 1]);
        }
    return (double)lengths[count - 1];
}

int main(int argc, char **argv) {
    suite_start(&argc, &argv, "comtest", options, OPTIONS);
    if (suite_ranks < 2) suite_misused("needs at least 2 ranks");
    const long most = options[BYTES].value;
    const int pairs = suite_ranks / 2, neighbour = (suite_rank ^ 1) < suite_ranks ? suite_rank ^ 1 : -1;
    long lengths[SIZES];
    double bandwidths[SIZES], *all = suite_memory((size_t)(pairs * BATCHES) * sizeof(double)), deviation = 0, last_noise = 0;
    char *out = suite_memory((size_t)most), *in = suite_memory((size_t)most), name[32];
    int count = 0;
    MPI_Comm leaders;
    MPI_Comm_split(MPI_COMM_WORLD, neighbour > suite_rank ? 0 : MPI_UNDEFINED, suite_rank, &leaders);
    suite_check("contents-short", wrong(neighbour, out, in, 8), 0);
    suite_check("contents-long", wrong(neighbour, out, in, most), 0);
    for (long bytes = 0; bytes <= most && count < SIZES; bytes = bytes ? bytes * 2 : 8) {
        times(neighbour, out, in, bytes, all, leaders);
        if (suite_rank != 0) continue;
        const double noise = suite_noise(all, pairs * BATCHES), middle = suite_median(all, pairs * BATCHES);
        deviation = suite_deviation(all, pairs * BATCHES);
        if (bytes == 0) {
            suite_figure("latency", "us", middle, noise);
            suite_figure("latency-deviation", "us", deviation * middle / 100, -1);
        }
        lengths[count] = bytes;
        bandwidths[count] = (double)bytes / middle;
        last_noise = noise;
        snprintf(name, sizeof name, "%ldB", bytes);
        if (bytes) suite_figure(name, "MB/s", bandwidths[count], noise);
        count++;
    }
    if (suite_rank == 0) {
        suite_figure("bandwidth", "MB/s", bandwidths[count - 1], last_noise);
        suite_figure("bandwidth-deviation", "MB/s", deviation * bandwidths[count - 1] / 100, -1);
        suite_figure("n-half", "bytes", half_length(lengths, bandwidths, count), -1);
    }
    if (leaders != MPI_COMM_NULL) MPI_Comm_free(&leaders);
    return suite_end();
}
