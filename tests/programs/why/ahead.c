/* The last rank calls a gather or a reduction to rank 0, in which it has only to send; the others
   do not. All end then. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    int rank, size, all[64];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    puts("ready");
    fflush(stdout);
    if (rank == size - 1 && argc > 1 && !strcmp(argv[1], "gather"))
        MPI_Gather(&rank, 1, MPI_INT, all, 1, MPI_INT, 0, MPI_COMM_WORLD); /* LINE gather */
    else if (rank == size - 1)
        MPI_Reduce(&rank, all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD); /* LINE reduce */
    MPI_Finalize(); /* LINE finalize */
    return 0;
}
