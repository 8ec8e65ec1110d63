/* Messages and operations whose numbers a trace must show: 4 ranks, two communicators of 2. */
#include <mpi.h>

int main(int argc, char **argv)
{
    int rank, size, part_rank, numbers[8] = {0}, sum[3], all[8];
    double values[10] = {0};
    MPI_Comm part;
    MPI_Request requests[2];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &part);
    MPI_Comm_rank(part, &part_rank);
    if (part_rank == 0)
        MPI_Send(numbers, 5, MPI_INT, 1, 3, part); /* LINE send */
    else
        MPI_Recv(numbers, 8, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, part, MPI_STATUS_IGNORE); /* LINE receive */
    MPI_Irecv(numbers, 8, MPI_INT, (rank + size - 1) % size, 7, MPI_COMM_WORLD, &requests[0]); /* LINE post */
    MPI_Isend(all, 1 + rank, MPI_INT, (rank + 1) % size, 7, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE); /* LINE wait */
    MPI_Bcast(values, 10, MPI_DOUBLE, 2, MPI_COMM_WORLD); /* LINE broadcast */
    MPI_Allreduce(numbers, sum, 3, MPI_INT, MPI_SUM, part);
    MPI_Gather(numbers, 2, MPI_INT, all, 2, MPI_INT, 1, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Comm_free(&part);
    MPI_Finalize();
    return 0;
}
