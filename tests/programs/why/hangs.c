/* Programs that hang, each at a line that a comment marks. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static volatile double sum;

/* Inlined, so that no function of this name is on the stack. */
static inline __attribute__((always_inline)) void step(int n)
{
    for (int i = 0; i < n; i++)
        sum += i * 0.5; /* LINE step */
}

__attribute__((noinline)) void compute(void)
{
    for (;;)
        step(1000); /* LINE compute */
}

__attribute__((noinline)) int receive(int from, int tag)
{
    int got = 0;
    MPI_Recv(&got, 1, MPI_INT, from, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE); /* LINE receive */
    return got + 1;
}

__attribute__((noinline)) void crash(volatile int *at)
{
    *at = 1; /* LINE crash */
}

int main(int argc, char **argv)
{
    int rank, size;
    /* How many calls of each thread are kept. */
    if (argc > 2)
        setenv("MARGAY_RECORD", argv[2], 1);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    printf("ready\n");
    fflush(stdout);
    const char *what = argc > 1 ? argv[1] : "";
    if (!strcmp(what, "receives")) {
        sum += receive((rank + 1) % size, 5);
    } else if (!strcmp(what, "stores")) {
        int *base;
        MPI_Win window;
        MPI_Win_allocate(sizeof *base, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &window);
        MPI_Win_lock_all(0, window);
        MPI_Put(&rank, 1, MPI_INT, (rank + 1) % size, 0, 1, MPI_INT, window); /* LINE put */
        MPI_Win_flush((rank + 1) % size, window);
        sum += receive((rank + 1) % size, 5);
    } else if (!strcmp(what, "differ")) {
        int data[2] = {0, 0};
        if (rank == 0)
            MPI_Allreduce(&data[0], &data[1], 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD); /* LINE allreduce */
        else
            MPI_Bcast(data, 1, MPI_INT, 0, MPI_COMM_WORLD); /* LINE bcast */
    } else if (!strcmp(what, "further")) {
        /* Rank 0 has done its part of the scatter before rank 1 finds that they differ. */
        int data[2] = {0, 0}, got = 0;
        if (rank == 0)
            MPI_Scatter(data, 1, MPI_INT, &got, 1, MPI_INT, 0, MPI_COMM_WORLD); /* LINE further */
        MPI_Allreduce(&data[0], &data[1], 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    } else if (!strcmp(what, "tags")) {
        static int big[100000];
        if (rank == 0)
            MPI_Send(big, 100000, MPI_INT, 1, 8, MPI_COMM_WORLD);
        else
            sum += receive(0, 7);
    } else if (!strcmp(what, "requests")) {
        /* Rank 1 never sends the second message, and rank 0 never comes to the broadcast. */
        int data[2] = {0, 0};
        MPI_Request requests[2];
        if (rank == 0) {
            MPI_Irecv(&data[0], 1, MPI_INT, 1, 3, MPI_COMM_WORLD, &requests[0]);
            MPI_Irecv(&data[1], 1, MPI_INT, 1, 7, MPI_COMM_WORLD, &requests[1]); /* LINE second */
            MPI_Waitall(2, requests, MPI_STATUSES_IGNORE); /* LINE waitall */
        } else {
            MPI_Send(data, 1, MPI_INT, 0, 3, MPI_COMM_WORLD);
            MPI_Ibcast(data, 1, MPI_INT, 0, MPI_COMM_WORLD, requests); /* LINE broadcast */
            MPI_Wait(requests, MPI_STATUS_IGNORE);
        }
        sum += data[0];
    } else if (!strcmp(what, "unexpected")) {
        /* Short messages that rank 1 has not asked for: one of the wrong tag, two of the wrong communicator. */
        MPI_Comm other;
        MPI_Comm_dup(MPI_COMM_WORLD, &other);
        if (rank == 0) {
            MPI_Send(&rank, 1, MPI_INT, 1, 8, MPI_COMM_WORLD); /* LINE tag */
            MPI_Send(&rank, 1, MPI_INT, 1, 7, other);
            MPI_Send(&rank, 1, MPI_INT, 1, 7, other); /* LINE communicator */
            sum += receive(1, 9);
        } else {
            sum += receive(0, 7);
        }
    } else if (!strcmp(what, "persistent")) {
        int got = 0;
        MPI_Request request;
        MPI_Recv_init(&got, 1, MPI_INT, 1 - rank, 5, MPI_COMM_WORLD, &request); /* LINE init */
        MPI_Start(&request);                                                    /* LINE start */
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        sum += got;
    } else if (!strcmp(what, "barrier")) {
        if (rank == 1)
            compute();
        MPI_Barrier(MPI_COMM_WORLD); /* LINE barrier */
    } else if (!strcmp(what, "crash")) {
        if (rank == 1)
            crash((volatile int *)8);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Finalize();
    return sum < 0;
}
