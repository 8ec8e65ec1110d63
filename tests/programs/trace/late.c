/* A ring in which rank 1 computes longest: who waits for whom is known. */
#include <mpi.h>
#include <signal.h>
#include <string.h>

static void compute(double seconds)
{
    double end = MPI_Wtime() + seconds;
    while (MPI_Wtime() < end)
        ;
}

int main(int argc, char **argv)
{
    int rank, size, got = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int next = (rank + 1) % size, before = (rank + size - 1) % size;
    /* "later": by more than a busy machine makes the others late. */
    double times = argc > 1 && !strcmp(argv[1], "later") ? 5 : 1;
    for (int step = 0; step < 10; step++) {
        MPI_Request request;
        compute(times * (rank == 1 ? 0.03 : 0.004));
        MPI_Isend(&rank, 1, MPI_INT, next, step, MPI_COMM_WORLD, &request); /* LINE send */
        MPI_Recv(&got, 1, MPI_INT, before, step, MPI_COMM_WORLD, MPI_STATUS_IGNORE); /* LINE receive */
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    if (argc > 1 && !strcmp(argv[1], "quick"))
        for (int i = 0; i < 20000; i++)
            MPI_Allreduce(&rank, &got, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD); /* LINE barrier */
    if (argc > 1 && !strcmp(argv[1], "crash") && rank == 1)
        raise(SIGSEGV);
    MPI_Finalize();
    return 0;
}
