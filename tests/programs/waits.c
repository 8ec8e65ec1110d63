/* Two ranks wait in a receive: "dead": for each other, forever; "healthy": rank 0 for rank 1, which computes until a file is there. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int rank, word = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 1 && argc > 1 && !strcmp(argv[1], "healthy")) {
        while (access("end", F_OK) != 0) continue;
        MPI_Send(&word, 1, MPI_INT, 0, 0, MPI_COMM_WORLD);
    } else {
        MPI_Recv(&word, 1, MPI_INT, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    if (rank == 0) puts("done");
    MPI_Finalize();
    return 0;
}
