/* Rank 0 has ended its part, and the others call a barrier or a sum of all. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    int rank, sum = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    puts("ready");
    fflush(stdout);
    if (rank != 0 && argc > 1 && !strcmp(argv[1], "barrier"))
        MPI_Barrier(MPI_COMM_WORLD);
    else if (rank != 0)
        MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
