/* Wrong on purpose: every rank first receives from its neighbour and would send to the other one afterwards, so
 * that all of them wait without an end. `showmesh` and `mpiexec -timeout` tell who waits for whom. */
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
