/* A program that hangs on purpose: every rank receives from its left neighbour before it sends to the right one, so
 * that all ranks wait forever. `showmesh` and `mpiexec -timeout` report which rank waits for which. */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    int rank, size, number;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int left = (rank + size - 1) % size, right = (rank + 1) % size;
    MPI_Recv(&number, 1, MPI_INT, left, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Send(&rank, 1, MPI_INT, right, 7, MPI_COMM_WORLD);
    printf("rank %d got %d\n", rank, number);
    MPI_Finalize();
    return 0;
}
