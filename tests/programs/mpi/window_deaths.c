/*
 * A rank dies in the middle of one-sided operations; the live ranks end their operations with an
 * error or without, and go on.
 * Arguments: which rank dies, microseconds.
 *   target   the rank whose memory, of malloc, the others put to and accumulate to, while it does what they leave for it
 *   origin   one of those, while the target computes, so that they have to do all themselves
 *   holder   one of the ranks that accumulate to mapped memory
 */
#include "check.h"

#include <mpi_ext.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

enum { BYTES = 1 << 16, LONG = 1 << 22, LONGEST_S = 20 };

static long delay_us;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Another thread, so that it ends the rank at a moment which that cannot foresee. */
static void *end(void *unused)
{
    struct timespec delay = {0, delay_us * 1000};
    (void)unused;
    nanosleep(&delay, NULL);
    kill(getpid(), SIGKILL);
    return NULL;
}

int main(int argc, char **argv)
{
    int provided, rank, size, code = MPI_SUCCESS;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    CHECK(argc == 3 && size >= 2);
    delay_us = atol(argv[2]);
    int mapped = strcmp(argv[1], "holder") == 0, target = 0;
    int dies = strcmp(argv[1], "target") == 0 ? target : size - 1;

    size_t bytes = mapped ? LONG : BYTES;
    char *base, *own = calloc(bytes, 1), *other = calloc(bytes, 1);
    MPI_Win win;
    if (mapped) {
        MPI_Win_allocate((MPI_Aint)bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
    } else {
        base = own;
        MPI_Win_create(base, (MPI_Aint)bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    }
    MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
    CHECK(MPI_Win_lock_all(0, win) == MPI_SUCCESS);
    MPI_Barrier(MPI_COMM_WORLD);

    pthread_t thread;
    if (rank == dies)
        pthread_create(&thread, NULL, end, NULL);
    double until = now() + (double)delay_us * 1e-6 + 0.02;
    int doubles = (int)(bytes / sizeof(double)), few = 64;
    /* Until there is an error, or until the other one is dead for certain and nothing came of it. */
    while (!code && (rank == dies || now() < until)) {
        if (rank == target && !mapped) {
            int flag;
            if (dies == target)
                MPI_Iprobe(MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
            continue;
        }
        if (!mapped) {
            code = MPI_Put(other, BYTES, MPI_BYTE, target, 0, BYTES, MPI_BYTE, win);
            if (!code)
                code = MPI_Accumulate(other, few, MPI_DOUBLE, target, 0, few, MPI_DOUBLE, MPI_SUM, win);
            if (!code)
                code = MPI_Get(other, few, MPI_DOUBLE, target, 1024, few, MPI_DOUBLE, win);
        } else {
            code = MPI_Accumulate(other, doubles, MPI_DOUBLE, target, 0, doubles, MPI_DOUBLE, MPI_SUM, win);
        }
        if (!code)
            code = MPI_Win_flush(target, win);
    }
    int class_ = class_of(code);
    CHECK(!code || class_ == MPIX_ERR_PROC_FAILED || (dies == target && class_ == MPI_ERR_RMA_RANGE));

    /* Every further one ends, too. */
    double start = now();
    if (rank != target || mapped) {
        MPI_Accumulate(other, few, MPI_DOUBLE, target, 0, few, MPI_DOUBLE, MPI_SUM, win);
        MPI_Win_flush(target, win);
    }
    MPI_Comm rest;
    CHECK(MPIX_Comm_shrink(MPI_COMM_WORLD, &rest) == MPI_SUCCESS);
    int left;
    MPI_Comm_size(rest, &left);
    CHECK(left == size - 1);

    /* The ranks that are left work on, with a window of their own. */
    double *sum, one = 1;
    MPI_Win fresh;
    MPI_Win_allocate(sizeof *sum, sizeof *sum, MPI_INFO_NULL, rest, &sum, &fresh);
    *sum = 0;
    MPI_Barrier(rest);
    MPI_Win_lock_all(0, fresh);
    MPI_Accumulate(&one, 1, MPI_DOUBLE, 0, 0, 1, MPI_DOUBLE, MPI_SUM, fresh);
    MPI_Win_unlock_all(fresh);
    MPI_Barrier(rest);
    MPI_Comm_rank(rest, &rank);
    CHECK(rank != 0 || *sum == left);
    MPI_Win_free(&fresh);
    CHECK(now() - start < LONGEST_S);
    int all, failed[2] = {failures, code != MPI_SUCCESS}, sums[2];
    CHECK(MPI_Allreduce(failed, sums, 2, MPI_INT, MPI_SUM, rest) == MPI_SUCCESS);
    all = sums[0];
    if (rank == 0)
        printf("%s %d of %d\n", all ? "failed" : "ok", sums[1], left);
    MPI_Finalize();
    return all != 0;
}
