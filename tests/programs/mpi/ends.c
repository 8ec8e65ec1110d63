/* Ends in the way that the first argument names, rank 1 in a world of several: for launchers that
   are not Margay's. */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "well";
    int rank, size, sum = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    printf("rank %d of %d has the sum %d\n", rank, size, sum);
    fflush(stdout);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 1 && strcmp(how, "abort") == 0) MPI_Abort(MPI_COMM_WORLD, 7);
    if (rank == 1 && strcmp(how, "kill") == 0) raise(SIGKILL);
    if (rank == 1 && strcmp(how, "exit") == 0) _exit(5);
    if (strcmp(how, "forever") == 0)
        for (;;) pause();
    /* The others wait for it. */
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return strcmp(how, "code") == 0 ? 3 : 0;
}
