/* A tool of MPI's profiling interface and a program in one: its own MPI_Barrier stands before the library's. */
#include <mpi.h>
#include <stdio.h>

static int calls;

int MPI_Barrier(MPI_Comm comm)
{
    calls++;
    return PMPI_Barrier(comm);
}

int main(int argc, char **argv)
{
    int rank;
    MPI_Init(&argc, &argv);
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    if (rank == 0) printf("%d barriers\n", calls);
    return 0;
}
